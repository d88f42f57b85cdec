"""CXL.cache messages on Ethernet links, written and read from docs/spec/wire-formats.md §3.12 alone.

Shape: encode(kind, ...) -> message; decode(message) -> its fields; frame(message, pth, tag) -> Ethernet frame;
shown(frame) -> what `weft decode --json` says of it, as (tlp, error, length of data, end), or None of any other frame.
Units: bytes without FCS; addresses in bytes.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.12.
"""

import re

import cxl_mem
from cxl_mem import CTAG, Malformed, decode_pth, link_header

PBR, HBR = 7, 8
HEAD_LEN, DATA_LEN, MASK_LEN = 16, 64, 8

# The header as one number of 128 bits, byte 0 first: name -> (bits below it, width).
FIELDS = {
    "class": (125, 3),
    "opcode": (120, 5),
    "nt": (119, 1),
    "poison": (118, 1),
    "bogus": (117, 1),
    "go_err": (116, 1),
    "bep": (115, 1),
    "pre": (112, 2),
    "cache_id": (108, 4),
    "id": (96, 12),
    "rsp_data": (80, 12),
    "term": (64, 16),
    "lease": (0, 64),
    "line": (6, 46),
}
TERM_UNIT_US = 100
D2H_REQ, D2H_RSP, D2H_DATA, H2D_REQ, H2D_RSP, H2D_DATA = range(1, 7)
# What a class has, beside class and opcode.
HAS = {
    D2H_REQ: ("nt", "cache_id", "id", "line"),
    D2H_RSP: ("cache_id", "id", "line"),
    D2H_DATA: ("poison", "bogus", "bep", "cache_id", "id"),
    H2D_REQ: ("cache_id", "id", "line"),
    H2D_RSP: ("pre", "cache_id", "id", "rsp_data", "term", "lease"),
    H2D_DATA: ("poison", "go_err", "cache_id", "id", "term", "lease"),
}
WITH_DATA = (D2H_DATA, H2D_DATA)
WITH_CQID = (D2H_REQ, H2D_RSP, H2D_DATA)
OPCODES = {
    D2H_REQ: "01 RdCurr, 02 RdOwn, 03 RdShared, 04 RdAny, 05 RdOwnNoData, 06 ItoMWr, 07 WrCur, 08 CLFlush, "
    "09 CleanEvict, 0A DirtyEvict, 0B CleanEvictNoData, 0C WOWrInv, 0D WOWrInvF, 0E WrInv, 10 CacheFlushed",
    D2H_RSP: "01 RspSHitSE, 04 RspIHitI, 05 RspIHitSE, 06 RspVHitV, 07 RspSFwdM, 0F RspIFwdM, 16 RspVFwdV",
    H2D_REQ: "1 SnpData, 2 SnpInv, 3 SnpCur",
    H2D_RSP: "1 WritePull, 4 GO, 5 GO_WritePull, 6 ExtCmp, 8 GO_WritePull_Drop, D Fast_GO_WritePull, "
    "F GO_ERR_WritePull",
}
# (class, opcode) -> name, and back. The page gives classes with one opcode no name but that of the class.
NAMES = {
    (number, int(code, 16)): name
    for number, text in OPCODES.items()
    for code, name in re.findall(r"(\w+) (\w+)", text)
} | {(D2H_DATA, 0): "D2H Data", (H2D_DATA, 0): "H2D Data"}
CODES = {name: code for code, name in NAMES.items()}
STATES = {0b0011: "I", 0b0001: "S", 0b0010: "E", 0b0110: "M", 0b0100: "error"}
MASKED = "D2H Data"


def fields_of(kind):
    """Names of the fields that may vary in a message of this opcode."""
    return [name for name in HAS[CODES[kind][0]] if name != "bep"]


def _get(head, name):
    shift, width = FIELDS[name]
    return head >> shift & ((1 << width) - 1)


def _put(name, value):
    shift, width = FIELDS[name]
    if not 0 <= value < 1 << width:
        raise ValueError(f"{name}: {value} has more than {width} bits")
    return value << shift


def encode(kind, data=b"", byte_mask=None, **fields):
    """A message. Fields have their names in `FIELDS`, and are 0 if left out; bit n of `byte_mask` is for byte n."""
    number, opcode = CODES[kind]
    spare = set(fields) - set(fields_of(kind))
    if spare:
        raise ValueError(f"{kind} has no {sorted(spare)}")
    if len(data) != (DATA_LEN if number in WITH_DATA else 0):
        raise ValueError(f"{kind} cannot have {len(data)} bytes of data")
    if byte_mask is not None and kind != MASKED:
        raise ValueError(f"{kind}: only {MASKED} has byte enables")
    head = _put("class", number) | _put("opcode", opcode) | _put("bep", int(byte_mask is not None))
    for name, value in fields.items():
        head |= _put(name, value)
    # Bit j of byte k is for data byte 8k + j: the order of a little-endian number.
    tail = byte_mask.to_bytes(MASK_LEN, "little") if byte_mask is not None else b""
    return head.to_bytes(HEAD_LEN, "big") + data + tail


def ignored_bits(kind):
    """A header in which those bits are 1 that say nothing: reserved, or of fields that the class lacks."""
    read = _put("class", 7) | _put("opcode", 31) | _put("bep", 1)
    for name in fields_of(kind):
        read |= _put(name, (1 << FIELDS[name][1]) - 1)
    return (((1 << 8 * HEAD_LEN) - 1) ^ read).to_bytes(HEAD_LEN, "big")


def decode(data):
    """(fields by name with `kind`, length) of the message at the front of `data`.

    Raises `Malformed`.
    """
    if len(data) < HEAD_LEN:
        raise Malformed(f"needs {HEAD_LEN} bytes, has {len(data)}")
    head = int.from_bytes(data[:HEAD_LEN], "big")
    code = _get(head, "class"), _get(head, "opcode")
    if code not in NAMES:
        raise Malformed("class {}, opcode {:x} are unknown".format(*code))
    kind, bep = NAMES[code], _get(head, "bep")
    if bep and kind != MASKED:
        raise Malformed(f"{kind} with BEP")
    data_end = HEAD_LEN + (DATA_LEN if code[0] in WITH_DATA else 0)
    end = data_end + (MASK_LEN if bep else 0)
    if len(data) < end:
        raise Malformed(f"needs {end} bytes, has {len(data)}")
    found = {"kind": kind} | {name: _get(head, name) for name in fields_of(kind)}
    if code[0] in WITH_DATA:
        found["data"] = data[HEAD_LEN:data_end]
    if bep:
        found["byte_mask"] = int.from_bytes(data[data_end:end], "little")
    return found, end


def frame(message, pth=None, tag=None, flags=0, *, is_padded=True):
    """A frame: in PBR form with `pth`, without in HBR form; `tag` is (PCP, DEI, VID) of 802.1Q."""
    made = bytearray(cxl_mem.frame(message, pth, tag, flags, is_padded=is_padded))
    protocol = 12 + (4 if tag is not None else 0) + 5
    made[protocol : protocol + 2] = (HBR if pth is None else PBR).to_bytes(2, "big")
    return bytes(made)


def link_of(data):
    """(protocol, where it begins) of a CXL.cache message's frame; None of any other."""
    at = 16 if data[12:14] == CTAG.to_bytes(2, "big") else 12
    head = data[at : at + 8]
    if len(head) < 8 or head[:5] != link_header(0)[:5] or head[7] >> 4 != cxl_mem.VERSION:
        return None
    protocol = int.from_bytes(head[5:7], "big")
    return (protocol, at + 8) if protocol in (PBR, HBR) else None


def _named(found):
    """Fields of a message, as `weft decode --json` shows them."""
    kind = found["kind"]
    number, _ = CODES[kind]
    told = {"kind": kind, "cache_id": found["cache_id"]}
    told["cqid" if number in WITH_CQID else "uqid"] = found["id"]
    if kind == "GO":
        told["state"] = STATES.get(found["rsp_data"] & 15, "reserved")
    elif number == H2D_RSP:
        told["uqid"] = found["rsp_data"]
    if "line" in found:
        told["to"] = hex(found["line"] << 6)
    for name, shown_as in (("poison", "poisoned"), ("bogus", "bogus")):
        if found.get(name):
            told[shown_as] = True
    if found.get("lease"):
        told["lease"], told["lease_us"] = f"0x{found['lease']:016x}", TERM_UNIT_US * found["term"]
    if "byte_mask" in found:
        told["byte_mask"] = f"0x{found['byte_mask']:016x}"
    return told


def shown(data):
    """(`tlp` of `weft decode --json`, error or None, length of data, where the message ends); None of other frames.

    Of a malformed message `tlp` has its link, and the PTH if that is there; length and end are None.
    """
    link = link_of(data)
    if link is None:
        return None
    protocol, at = link
    told = {"link": "pbr cxl.cache" if protocol == PBR else "hbr cxl.cache"}
    try:
        if protocol == PBR:
            told["pth"] = decode_pth(data[at:])
            at += 4
        found, size = decode(data[at:])
    except Malformed as wrong:
        return told, str(wrong), None, None
    return told | _named(found), None, len(found.get("data", b"")), at + size
