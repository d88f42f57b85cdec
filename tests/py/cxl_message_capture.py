"""The frames of a capture of CXL.mem or CXL.cache messages, each from its number alone.

7 rounds of every opcode in both forms; fields are 0 in round 0, all ones in round 1, and follow from the frame's number after
these. Bits that say nothing are set in rounds 3 and 6. A third of the frames is tagged, each opcode in each form at least twice.

Units: frames without FCS, padded to 60 bytes, 1 ms apart.
"""

import hashlib

from cxl_message import DATA_LEN, encode_pth
from weftpcap import write_pcap

ROUNDS = 7
NOISY = (3, 6)
STEP_NS = 1_000_000


class Capture:
    """Frames of a codec's messages. Each round the tags move on by `tag_step` frames: with a wrong one, the same opcodes
    would always be tagged."""

    def __init__(self, codec, tag_step):
        self.codec, self.tag_step = codec, tag_step
        self.kinds = [(kind, is_pbr) for kind in codec.codes for is_pbr in (False, True)]
        self.count = ROUNDS * len(self.kinds)

    def bits(self, i, name, width):
        """A value of frame i, of so many bits, that follows from its number alone."""
        if i // len(self.kinds) < 2:
            return ((1 << width) - 1) * (i // len(self.kinds))
        digest = hashlib.sha256(f"{i} {name}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> (64 - width)

    def is_noisy(self, i):
        """Whether bits that say nothing are set in frame i."""
        return i // len(self.kinds) in NOISY

    def is_tagged(self, i):
        """Whether frame i has a tag."""
        return (i + self.tag_step * (i // len(self.kinds))) % 3 == 0

    def message(self, i):
        """(kind, fields for `Codec.encode`) of frame i."""
        kind, _ = self.kinds[i % len(self.kinds)]
        fields = {name: self.bits(i, name, self.codec.fields[name][1]) for name in self.codec.fields_of(kind)}
        if self.codec.codes[kind][0] in self.codec.with_data:
            fields["data"] = bytes((i + n) % 256 for n in range(DATA_LEN))
        if kind == self.codec.masked and (self.codec.masks_always or i // len(self.kinds) % 2):
            fields["byte_mask"] = self.bits(i, "byte_mask", 64)
        return kind, fields

    def pth(self, i):
        """Fields of frame i's PTH; None in HBR form. PIF is 0."""
        _, is_pbr = self.kinds[i % len(self.kinds)]
        if not is_pbr:
            return None
        names = {"spid": 12, "dpid": 12, "dsar": 1, "hie": 1} | ({"rsv": 3} if self.is_noisy(i) else {})
        return {name: self.bits(i, name, width) for name, width in names.items()}

    def frame(self, i):
        """Frame i."""
        kind, fields = self.message(i)
        made = bytearray(self.codec.encode(kind, **fields))
        if self.is_noisy(i):
            for at, mask in enumerate(self.codec.ignored_bits(kind)):
                made[at] |= mask & self.bits(i, f"noise {at}", 8)
        tag = (i % 8, i // 8 % 2, 1 + self.bits(i, "vid", 12) % 4094) if self.is_tagged(i) else None
        front = self.pth(i)
        flags = self.bits(i, "flags", 4) if self.is_noisy(i) else 0
        return self.codec.frame(bytes(made), encode_pth(**front) if front else None, tag, flags)

    def frames(self):
        """(nanoseconds, frame) of all."""
        return [(i * STEP_NS, self.frame(i)) for i in range(self.count)]

    def write(self, path):
        """Writes the capture."""
        write_pcap(path, self.frames())


def from_page(page, data):
    """(name, built, copied from the page) of the page's strings, in which `[data]` stands for a line that it does not give."""
    return [(name, built, bytes.fromhex(text.replace("[data]", data.hex()))) for name, built, text in page]
