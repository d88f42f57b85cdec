"""What CXL.mem and CXL.cache messages on Ethernet links have in common: a header of 16 bytes that a table of fields lays out, a line,
byte enables, and the link and PTH in front.

Codec(table) -> encode(kind, ...) -> message; decode(message) -> its fields; frame(message, pth, tag) -> Ethernet frame;
shown(frame) -> what `weft decode --json` says of it, as (tlp, error, length of data, end), or None of any other frame.

Units: bytes without FCS.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.9, §3.12.
"""

import dataclasses
import re
from collections.abc import Callable

ETHER_TYPE, CTAG = 0x88B7, 0x8100
OUI = bytes.fromhex("025746")
VERSION = 1
HEAD_LEN, DATA_LEN, MASK_LEN = 16, 64, 8
FRAME_MIN = 60
PTH_FIRST = 0b11
TERM_UNIT_US = 100


class Malformed(Exception):
    """A message that the page calls malformed."""


def encode_pth(spid, dpid, pif=False, dsar=False, hie=False, rsv=0):
    """The PTH of §3.7."""
    first = PTH_FIRST << 6 | rsv << 3 | hie << 2 | dsar << 1 | pif
    return (first << 24 | spid << 12 | dpid).to_bytes(4, "big")


def decode_pth(data):
    """The PTH in front of `data`, as `weft decode --json` shows it.

    Raises `Malformed`.
    """
    if len(data) < 4:
        raise Malformed(f"PTH needs 4 bytes, has {len(data)}")
    if data[0] >> 6 != PTH_FIRST:
        raise Malformed(f"no PTH but {data[:4].hex()}")
    return {
        "spid": f"{int.from_bytes(data[1:3], 'big') >> 4:03x}",
        "dpid": f"{int.from_bytes(data[2:4], 'big') & 0xFFF:03x}",
        "pif": bool(data[0] & 1),
        "dsar": bool(data[0] & 2),
        "hie": bool(data[0] & 4),
    }


def link_header(protocol, flags=0):
    """EtherType and what follows it, §3.7a."""
    front = ETHER_TYPE.to_bytes(2, "big") + OUI + protocol.to_bytes(2, "big")
    return front + bytes([VERSION << 4 | flags])


def show_lease(told, found):
    """Shows a lease, where there is one, as `weft decode --json` does."""
    if found.get("lease"):
        told["lease"], told["lease_us"] = f"0x{found['lease']:016x}", TERM_UNIT_US * found["term"]


def show_byte_mask(told, found):
    """Shows byte enables, where there are some, as `weft decode --json` does."""
    if "byte_mask" in found:
        told["byte_mask"] = f"0x{found['byte_mask']:016x}"


@dataclasses.dataclass
class Codec:
    """Messages of one protocol."""

    name: str  # as in the link that `weft decode --json` shows
    pbr: int  # protocol on links with a PTH
    hbr: int
    fields: dict  # the header as one number of 128 bits, byte 0 first: name -> (bits below it, width)
    has: dict  # class -> what it has, beside class and opcode
    with_data: tuple  # classes with a line
    names: dict  # (class, opcode) -> name
    masked: str  # the only opcode with byte enables
    masks_always: bool  # it always has them
    named: Callable  # (fields, is_hbr) -> them, as `weft decode --json` shows them

    def __post_init__(self):
        self.codes = {name: code for code, name in self.names.items()}

    @staticmethod
    def read_names(opcodes):
        """(class, opcode) -> name, of the page's text for each class: codes with their names."""
        return {
            (number, int(code, 16)): name
            for number, text in opcodes.items()
            for code, name in re.findall(r"(\w+) ([\w-]+)", text)
        }

    def fields_of(self, kind):
        """Names of the fields that may vary in a message of this opcode."""
        return [name for name in self.has[self.codes[kind][0]] if name != "bep"]

    def _get(self, head, name):
        shift, width = self.fields[name]
        return head >> shift & ((1 << width) - 1)

    def _put(self, name, value):
        shift, width = self.fields[name]
        if not 0 <= value < 1 << width:
            raise ValueError(f"{name}: {value} has more than {width} bits")
        return value << shift

    def first_byte(self, number, opcode):
        """Class and opcode."""
        head = self._put("class", number) | self._put("opcode", opcode)
        return head >> 8 * (HEAD_LEN - 1)

    def encode(self, kind, data=b"", byte_mask=None, **fields):
        """A message. Fields have their names in `fields`, and are 0 if left out; bit n of `byte_mask` is for byte n."""
        number, opcode = self.codes[kind]
        spare = set(fields) - set(self.fields_of(kind))
        if spare:
            raise ValueError(f"{kind} has no {sorted(spare)}")
        if len(data) != (DATA_LEN if number in self.with_data else 0):
            raise ValueError(f"{kind} cannot have {len(data)} bytes of data")
        if byte_mask is not None and kind != self.masked:
            raise ValueError(f"{kind}: only {self.masked} has byte enables")
        if byte_mask is None and kind == self.masked and self.masks_always:
            raise ValueError(f"{kind} always has byte enables")
        head = self._put("class", number) | self._put("opcode", opcode) | self._put("bep", int(byte_mask is not None))
        for name, value in fields.items():
            head |= self._put(name, value)
        # Bit j of byte k is for data byte 8k + j: the order of a little-endian number.
        tail = byte_mask.to_bytes(MASK_LEN, "little") if byte_mask is not None else b""
        return head.to_bytes(HEAD_LEN, "big") + data + tail

    def ignored_bits(self, kind):
        """A header in which those bits are 1 that say nothing: reserved, or of fields that the class lacks."""
        read = 0
        for name in ("class", "opcode", "bep", *self.fields_of(kind)):
            read |= self._put(name, (1 << self.fields[name][1]) - 1)
        return (((1 << 8 * HEAD_LEN) - 1) ^ read).to_bytes(HEAD_LEN, "big")

    def decode(self, data):
        """(fields by name with `kind`, length) of the message at the front of `data`.

        Raises `Malformed`.
        """
        if len(data) < HEAD_LEN:
            raise Malformed(f"needs {HEAD_LEN} bytes, has {len(data)}")
        head = int.from_bytes(data[:HEAD_LEN], "big")
        code = self._get(head, "class"), self._get(head, "opcode")
        if code not in self.names:
            raise Malformed("class {}, opcode {:x} are unknown".format(*code))
        kind, bep = self.names[code], self._get(head, "bep")
        if (bep and kind != self.masked) or (not bep and kind == self.masked and self.masks_always):
            raise Malformed(f"{kind} with BEP {bep}")
        data_end = HEAD_LEN + (DATA_LEN if code[0] in self.with_data else 0)
        end = data_end + (MASK_LEN if bep else 0)
        if len(data) < end:
            raise Malformed(f"needs {end} bytes, has {len(data)}")
        found = {"kind": kind} | {name: self._get(head, name) for name in self.fields_of(kind)}
        if code[0] in self.with_data:
            found["data"] = data[HEAD_LEN:data_end]
        if bep:
            found["byte_mask"] = int.from_bytes(data[data_end:end], "little")
        return found, end

    def frame(self, message, pth=None, tag=None, flags=0, *, is_padded=True):
        """A frame: in PBR form with `pth`, without in HBR form; `tag` is (PCP, DEI, VID) of 802.1Q."""
        made = bytes.fromhex("020000000002 020000000001")
        if tag is not None:
            pcp, dei, vid = tag
            made += CTAG.to_bytes(2, "big") + (pcp << 13 | dei << 12 | vid).to_bytes(2, "big")
        made += link_header(self.hbr if pth is None else self.pbr, flags) + (pth or b"") + message
        return made + bytes(max(0, FRAME_MIN - len(made)) if is_padded else 0)

    def link_of(self, data):
        """(protocol, where it begins) of a message's frame; None of any other."""
        at = 16 if data[12:14] == CTAG.to_bytes(2, "big") else 12
        head = data[at : at + 8]
        if len(head) < 8 or head[:5] != link_header(0)[:5] or head[7] >> 4 != VERSION:
            return None
        protocol = int.from_bytes(head[5:7], "big")
        return (protocol, at + 8) if protocol in (self.pbr, self.hbr) else None

    def shown(self, data):
        """(`tlp` of `weft decode --json`, error or None, length of data, where the message ends); None of other frames.

        Of a malformed message `tlp` has its link, and the PTH if that is there; length and end are None.
        """
        link = self.link_of(data)
        if link is None:
            return None
        protocol, at = link
        told = {"link": f"{'pbr' if protocol == self.pbr else 'hbr'} {self.name}"}
        try:
            if protocol == self.pbr:
                told["pth"] = decode_pth(data[at:])
                at += 4
            found, size = self.decode(data[at:])
        except Malformed as wrong:
            return told, str(wrong), None, None
        return told | self.named(found, protocol == self.hbr), None, len(found.get("data", b"")), at + size
