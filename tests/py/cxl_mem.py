"""CXL.mem messages on Ethernet links, written and read from docs/spec/wire-formats.md §3.9 alone.

CODEC, a `cxl_message.Codec`.

Units: addresses in bytes.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.9.
"""

from cxl_message import Codec, show_byte_mask, show_lease

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
OPCODES = {
    REQ: "0 MemInv, 1 MemRd, 2 MemRdData, 3 MemRdFwd, 4 MemWrFwd, 8 MemSpecRd, 9 MemInvNT, A MemClnEvct",
    RWD: "1 MemWr, 2 MemWrPtl, 4 BIConflict",
    NDR: "0 Cmp, 1 Cmp-S, 2 Cmp-E, 3 Cmp-M, 4 BI-ConflictAck",
    DRS: "0 MemData, 1 MemData-NXM",
    BISNP: "0 BISnpCur, 1 BISnpData, 2 BISnpInv, 4 BISnpCurBlk, 5 BISnpDataBlk, 6 BISnpInvBlk",
    BIRSP: "0 BIRspI, 1 BIRspS, 2 BIRspE, 4 BIRspIBlk, 5 BIRspSBlk, 6 BIRspEBlk",
}
PARTIAL = "MemWrPtl"


def _named(found, is_hbr):
    """Fields of a message, as `weft decode --json` shows them."""
    kind = found["kind"]
    number, _ = CODEC.codes[kind]
    told = {"kind": kind, "tag": found["bi_tag" if number in (BISNP, BIRSP) else "tag"]}
    if number in (REQ, RWD):
        told["tc"] = found["tc"]
    if number in (REQ, RWD, BISNP, BIRSP):
        told["to"] = hex(found["line"] << 6)
    if found.get("poison"):
        told["poisoned"] = True
    if number in (NDR, DRS):
        told["dev_load"] = found["dev_load"]
    if is_hbr and number <= DRS:
        told["ld_id"] = found["ld_id"]
    show_lease(told, found)
    show_byte_mask(told, found)
    return told


CODEC = Codec(
    name="cxl.mem",
    pbr=5,
    hbr=6,
    fields=FIELDS,
    has=HAS,
    with_data=(RWD, DRS),
    names=Codec.read_names(OPCODES),
    masked=PARTIAL,
    masks_always=True,
    named=_named,
)
