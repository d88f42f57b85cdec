"""CXL.mem messages on Ethernet links, written and read from docs/spec/wire-formats.md §3.9 alone.

Shape: encode(kind, ...) -> message; decode(message) -> its fields; frame(message, pth, tag) -> Ethernet frame;
shown(frame) -> what `weft decode --json` says of it, as (tlp, error, length of data, end), or None of any other frame.
Units: bytes without FCS; addresses in bytes.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.9.
"""

import re

ETHER_TYPE, CTAG = 0x88B7, 0x8100
OUI = bytes.fromhex("025746")
PBR, HBR = 5, 6
VERSION = 1
HEAD_LEN, DATA_LEN, MASK_LEN = 16, 64, 8
FRAME_MIN = 60
PTH_FIRST = 0b11

# The header as one number of 128 bits, byte 0 first: name -> (bits below it, width).
FIELDS = {
    "class": (124, 4),
    "opcode": (120, 4),
    "snp_type": (117, 3),
    "meta_field": (115, 2),
    "meta_value": (113, 2),
    "poison": (112, 1),
    "tc": (110, 2),
    "dev_load": (108, 2),
    "bep": (107, 1),
    "ld_id": (100, 4),
    "tag": (80, 16),
    "bi_tag": (80, 12),
    "bi_id": (64, 12),
    "term": (64, 16),
    "lease": (0, 64),
    "line": (6, 46),
}
REQ, RWD, NDR, DRS, BISNP, BIRSP = range(1, 7)
_ANSWER = ("meta_field", "meta_value", "dev_load", "ld_id", "tag", "poison", "term", "lease")
TERM_UNIT_US = 100
_REQUEST = ("snp_type", "meta_field", "meta_value", "tc", "ld_id", "tag", "line")
# What a class has, beside class and opcode.
HAS = {
    REQ: _REQUEST,
    RWD: (*_REQUEST, "poison", "bep"),
    NDR: _ANSWER,
    DRS: _ANSWER,
    BISNP: ("bi_tag", "bi_id", "line"),
    BIRSP: ("bi_tag", "bi_id", "line"),
}
WITH_DATA = (RWD, DRS)
OPCODES = {
    REQ: "0 MemInv, 1 MemRd, 2 MemRdData, 3 MemRdFwd, 4 MemWrFwd, 8 MemSpecRd, 9 MemInvNT, A MemClnEvct",
    RWD: "1 MemWr, 2 MemWrPtl, 4 BIConflict",
    NDR: "0 Cmp, 1 Cmp-S, 2 Cmp-E, 3 Cmp-M, 4 BI-ConflictAck",
    DRS: "0 MemData, 1 MemData-NXM",
    BISNP: "0 BISnpCur, 1 BISnpData, 2 BISnpInv, 4 BISnpCurBlk, 5 BISnpDataBlk, 6 BISnpInvBlk",
    BIRSP: "0 BIRspI, 1 BIRspS, 2 BIRspE, 4 BIRspIBlk, 5 BIRspSBlk, 6 BIRspEBlk",
}
# (class, opcode) -> name, and back.
NAMES = {
    (number, int(code, 16)): name
    for number, text in OPCODES.items()
    for code, name in re.findall(r"(\w) ([\w-]+)", text)
}
CODES = {name: code for code, name in NAMES.items()}
PARTIAL = "MemWrPtl"


class Malformed(Exception):
    """A message that the page calls malformed."""


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
    if (byte_mask is not None) != (kind == PARTIAL):
        raise ValueError(f"{kind}: only {PARTIAL} has byte enables, and always")
    head = _put("class", number) | _put("opcode", opcode) | _put("bep", int(kind == PARTIAL))
    for name, value in fields.items():
        head |= _put(name, value)
    # Bit j of byte k is for data byte 8k + j: the order of a little-endian number.
    tail = byte_mask.to_bytes(MASK_LEN, "little") if byte_mask is not None else b""
    return head.to_bytes(HEAD_LEN, "big") + data + tail


def ignored_bits(kind):
    """A header in which those bits are 1 that say nothing: reserved, or of fields that the class lacks."""
    read = _put("class", 15) | _put("opcode", 15) | _put("bep", 1)
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
    if bool(bep) != (kind == PARTIAL):
        raise Malformed(f"{kind} with BEP {bep}")
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


def frame(message, pth=None, tag=None, flags=0, *, is_padded=True):
    """A frame: in PBR form with `pth`, without in HBR form; `tag` is (PCP, DEI, VID) of 802.1Q."""
    made = bytes.fromhex("020000000002 020000000001")
    if tag is not None:
        pcp, dei, vid = tag
        made += CTAG.to_bytes(2, "big") + (pcp << 13 | dei << 12 | vid).to_bytes(2, "big")
    made += link_header(HBR if pth is None else PBR, flags) + (pth or b"") + message
    return made + bytes(max(0, FRAME_MIN - len(made)) if is_padded else 0)


def link_of(data):
    """(protocol, where it begins) of a CXL.mem message's frame; None of any other."""
    at = 16 if data[12:14] == CTAG.to_bytes(2, "big") else 12
    head = data[at : at + 8]
    if len(head) < 8 or head[:5] != link_header(0)[:5] or head[7] >> 4 != VERSION:
        return None
    protocol = int.from_bytes(head[5:7], "big")
    return (protocol, at + 8) if protocol in (PBR, HBR) else None


def _named(found, is_hbr):
    """Fields of a message, as `weft decode --json` shows them."""
    kind = found["kind"]
    number, _ = CODES[kind]
    told = {"kind": kind, "tag": found["bi_tag" if number in (BISNP, BIRSP) else "tag"]}
    if number in (REQ, RWD):
        told["tc"] = found["tc"]
    if number in (REQ, RWD, BISNP, BIRSP):
        told["to"] = hex(found["line"] << 6)
    if found.get("poison"):
        told["poisoned"] = True
    if number in (NDR, DRS):
        told["dev_load"] = found["dev_load"]
        if found["lease"]:
            told["lease"], told["lease_us"] = f"0x{found['lease']:016x}", TERM_UNIT_US * found["term"]
    if is_hbr and number <= DRS:
        told["ld_id"] = found["ld_id"]
    if kind == PARTIAL:
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
    told = {"link": "pbr cxl.mem" if protocol == PBR else "hbr cxl.mem"}
    try:
        if protocol == PBR:
            told["pth"] = decode_pth(data[at:])
            at += 4
        found, size = decode(data[at:])
    except Malformed as wrong:
        return told, str(wrong), None, None
    return told | _named(found, protocol == HBR), None, len(found.get("data", b"")), at + size
