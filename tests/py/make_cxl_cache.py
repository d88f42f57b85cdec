#!/usr/bin/env python3
"""Makes pcaps/cxl_cache/link.pcap: CXL.cache messages on links, from docs/spec/wire-formats.md §3.12 alone.

Shape: 7 rounds of every opcode in both forms; fields are 0 in round 0, all ones in round 1, and follow from the
frame's number after these. Bits that say nothing are set in rounds 3 and 6. A third of the frames is tagged, each
opcode in each form at least twice.
Units: frames without FCS, padded to 60 bytes, 1 ms apart.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.12.
"""

import hashlib
import sys

import cxl_cache as c
from cxl_mem import encode_pth
from weftpcap import write_pcap

ROUNDS = 7
NOISY = (3, 6)
KINDS = [(kind, is_pbr) for kind in c.CODES for is_pbr in (False, True)]
COUNT = ROUNDS * len(KINDS)
STEP_NS = 1_000_000


def bits(i, name, width):
    """A value of frame i, of so many bits, that follows from its number alone."""
    if i // len(KINDS) < 2:
        return ((1 << width) - 1) * (i // len(KINDS))
    digest = hashlib.sha256(f"{i} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - width)


def is_noisy(i):
    """Whether bits that say nothing are set in frame i."""
    return i // len(KINDS) in NOISY


def is_tagged(i):
    """Whether frame i has a tag."""
    # 68 kinds a round: with one more for each round, a kind would be tagged always or never.
    return (i + 2 * (i // len(KINDS))) % 3 == 0


def message(i):
    """(kind, fields for `cxl_cache.encode`) of frame i."""
    kind, _ = KINDS[i % len(KINDS)]
    fields = {name: bits(i, name, c.FIELDS[name][1]) for name in c.fields_of(kind)}
    if c.CODES[kind][0] in c.WITH_DATA:
        fields["data"] = bytes((i + n) % 256 for n in range(c.DATA_LEN))
    if kind == c.MASKED and i // len(KINDS) % 2:
        fields["byte_mask"] = bits(i, "byte_mask", 64)
    return kind, fields


def pth(i):
    """Fields of frame i's PTH; None in HBR form. PIF is 0."""
    _, is_pbr = KINDS[i % len(KINDS)]
    if not is_pbr:
        return None
    names = {"spid": 12, "dpid": 12, "dsar": 1, "hie": 1} | ({"rsv": 3} if is_noisy(i) else {})
    return {name: bits(i, name, width) for name, width in names.items()}


def frame(i):
    """Frame i."""
    kind, fields = message(i)
    made = bytearray(c.encode(kind, **fields))
    if is_noisy(i):
        for at, mask in enumerate(c.ignored_bits(kind)):
            made[at] |= mask & bits(i, f"noise {at}", 8)
    tag = (i % 8, i // 8 % 2, 1 + bits(i, "vid", 12) % 4094) if is_tagged(i) else None
    front = pth(i)
    flags = bits(i, "flags", 4) if is_noisy(i) else 0
    return c.frame(bytes(made), encode_pth(**front) if front else None, tag, flags)


def worked():
    """(name, built, copied from the page); `[data]` stands for the 64 bytes that the page does not give."""
    line, data = 0x0123_4567_BA40 >> 6, bytes(range(64))
    own = {"cache_id": 5, "id": 0x123}
    lease = {"term": 984, "lease": 0x0102_0304_0506_0708}
    page = [
        (
            "RdOwn",
            c.link_header(c.HBR) + c.encode("RdOwn", line=line, **own),
            "88 B7 02 57 46 00 08 10 22 00 51 23 00 00 00 00 00 00 01 23 45 67 BA 40",
        ),
        (
            "GO-E with a lease",
            c.encode("GO", rsp_data=2, **own, **lease),
            "A4 00 51 23 00 02 03 D8 01 02 03 04 05 06 07 08",
        ),
        (
            "its data",
            c.encode("H2D Data", data, **own, **lease),
            "C0 00 51 23 00 00 03 D8 01 02 03 04 05 06 07 08 [data]",
        ),
        (
            "SnpInv",
            c.encode("SnpInv", cache_id=5, id=7, line=line),
            "82 00 50 07 00 00 00 00 00 00 01 23 45 67 BA 40",
        ),
        (
            "RspIFwdM of the device",
            c.encode("RspIFwdM", id=7, line=line),
            "4F 00 00 07 00 00 00 00 00 00 01 23 45 67 BA 40",
        ),
    ]
    return [(name, built, bytes.fromhex(text.replace("[data]", data.hex()))) for name, built, text in page]


def main(path):
    """Writes the capture."""
    write_pcap(path, [(i * STEP_NS, frame(i)) for i in range(COUNT)])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_cxl_cache.py OUT.pcap")
    main(sys.argv[1])
