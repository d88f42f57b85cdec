"""Frames that are nearly right: what a dissector must survive.

frames(seed, count, seeds) -> bytes of each; tlp(random) -> a frame with a TLP in which most fields are likely.

Units: bytes without FCS.
Source: docs/spec/wire-formats.md §1.8, §3.1 to §3.8.
"""

import random

ADDRESSES = bytes.fromhex("020000000002020000000001")
TYPES = [bytes.fromhex(text) for text in ("0800", "86dd", "8808", "8100", "88b5", "88b6", "88b7", "8847")]
KINDS = bytes.fromhex(
    "00 01 02 03 04 05 0a 0b 0c 0d 20 21 22 30 31 32 33 34 35 36 40 42 44 45 48 4a 4b 4c 4d 4e 5b 60 61 6c 6e 70 72 73 74 75"
    "7b 80 8d 8e 8f 90 91 9e"
)
LOCAL, PREFIXES = b"\x8e\x8f", b"\x80\x8d\x8e\x8f\x90\x91\x9e"
VDMS = [
    (0x80, 0),
    (0x80, 1),
    (0x90, 0),
    (0xA0, 0),
    (0xA0, 2),
    (0xA0, 3),
    (0xA1, 1),
    (0xA1, 7),
    (0xA1, 16),
    (0x68, 0),
    (0, 0),
]
LEN_MAX = 2000


def tlp(rng):
    """A frame with a TLP of any link."""
    protocol = rng.choice([1, 1, 2, 2, 3, 3, 4, 7])
    body = bytearray(rng.randbytes(rng.choice([11, 12, 16, 20, 24, 40, 80, 200])))
    front = bytearray()
    for _ in range(rng.choice([0, 0, 0, 1, 2, 9])):
        first = rng.choice([0, 0x55, *LOCAL]) if protocol == 1 else rng.choice(PREFIXES)
        front += bytes([first]) + (bytes(3) if first == 0 else rng.randbytes(3))
    if protocol == 1:
        front += bytes([0xC0 | rng.randrange(64)]) + rng.randbytes(3)
    body[0] = rng.choice(KINDS)
    if rng.random() < 0.8:  # a length that fits, no OHC or OHC-A, no trailer
        body[1] &= rng.choice([0xE0, 0xE1, 0xE9])
        body[2] &= 0x1C
        body[3] = rng.choice([1, 1, 2, 4, 8, 32])
    if rng.random() < 0.3 and len(body) >= 16:
        code, opcode = rng.choice(VDMS)
        body[0], body[7], body[10:12], body[12:16] = (
            rng.choice(b"\x34\x74\x30"),
            0x7E,
            b"\x1e\x98",
            bytes([0, 0, opcode, code]),
        )
    return ADDRESSES + b"\x88\xb7\x02\x57\x46" + protocol.to_bytes(2, "big") + b"\x10" + bytes(front + body)


def mutated(rng, frame):
    """A frame with one to four changes near its front."""
    data = bytearray(frame)
    for _ in range(rng.choice([1, 1, 2, 4])):
        if not data:
            break
        at, what = rng.randrange(min(len(data), 90)), rng.randrange(5)
        if what == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            data[at] = rng.choice([0, 255, rng.randrange(256)])
        elif what == 2:
            del data[rng.randrange(len(data) + 1) :]
        elif what == 3:
            data[at:at] = rng.randbytes(rng.randrange(9))
        elif len(data) > 14:
            data[12:14] = rng.choice(TYPES)
    return bytes(data[:LEN_MAX])


def frames(seed, count, seeds):
    """`count` frames: a third are TLPs, the rest are mutated from `seeds` and TLPs."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        kind = rng.random()
        made.append(tlp(rng) if kind < 0.33 else mutated(rng, tlp(rng) if kind < 0.45 else rng.choice(seeds)))
    return made
