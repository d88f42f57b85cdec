"""CXL.cache messages on Ethernet links, written and read from docs/spec/wire-formats.md §3.12 alone.

CODEC, a `cxl_message.Codec`.

Units: addresses in bytes.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.12.
"""

from cxl_message import Codec, show_byte_mask, show_lease

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
WITH_CQID = (D2H_REQ, H2D_RSP, H2D_DATA)
OPCODES = {
    D2H_REQ: "01 RdCurr, 02 RdOwn, 03 RdShared, 04 RdAny, 05 RdOwnNoData, 06 ItoMWr, 07 WrCur, 08 CLFlush, "
    "09 CleanEvict, 0A DirtyEvict, 0B CleanEvictNoData, 0C WOWrInv, 0D WOWrInvF, 0E WrInv, 10 CacheFlushed",
    D2H_RSP: "01 RspSHitSE, 04 RspIHitI, 05 RspIHitSE, 06 RspVHitV, 07 RspSFwdM, 0F RspIFwdM, 16 RspVFwdV",
    H2D_REQ: "1 SnpData, 2 SnpInv, 3 SnpCur",
    H2D_RSP: "1 WritePull, 4 GO, 5 GO_WritePull, 6 ExtCmp, 8 GO_WritePull_Drop, D Fast_GO_WritePull, "
    "F GO_ERR_WritePull",
}
STATES = {0b0011: "I", 0b0001: "S", 0b0010: "E", 0b0110: "M", 0b0100: "error"}


def _named(found, _is_hbr):
    """Fields of a message, as `weft decode --json` shows them."""
    kind = found["kind"]
    number, _ = CODEC.codes[kind]
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
    show_lease(told, found)
    show_byte_mask(told, found)
    return told


CODEC = Codec(
    name="cxl.cache",
    pbr=7,
    hbr=8,
    fields=FIELDS,
    has=HAS,
    with_data=(D2H_DATA, H2D_DATA),
    # The page gives classes with one opcode no name but that of the class.
    names=Codec.read_names(OPCODES) | {(D2H_DATA, 0): "D2H Data", (H2D_DATA, 0): "H2D Data"},
    masked="D2H Data",
    masks_always=False,
    named=_named,
)
