"""Commands of a GFD, 49xx, and the address arithmetic of its decoders.

Entries are dicts with the names of REGION, DMP, EXTENT, TAG_ENTRY, SAT_ENTRY and GDT_ENTRY.

Units: bytes, little-endian; capacities of 4900 and decode units in 256 MB; addresses, lengths and block sizes in bytes.
Source: docs/spec/wire-formats.md §4.7, §5.2.

What the page leaves open: entries of 4902 (28h) are CXL's DC region configuration with a sanitize byte, their place is
their number, and decode lengths of regions count units of 256 MB; 4903 has a record of its own, also of 28h. 4900 has
no words for bytes 7 and Bh: reserved. The eleven bytes of 4901 are one each but the last two, as in 5101. 490B sends
no count: the list runs to the end. Bandwidth fractions are one byte each. Get and Set in one row (4902/03, 4905/06,
490E/0F, 4911/12, 4913/14): a Set may answer nothing or like Get. 4906 has 4905's four bytes before its list.
"""

from ccilayout import Layout, command

REGION = Layout("id:1 -:3 block:8 sanitize:1 -:3 base:8 decode_units:8 length:8")
REGION_ROW = Layout("base:8 decode_units:8 length:8 block:8 flags:1 -:3 sanitize:1.1 -:3")
DMP = Layout(
    "base:8 decode_length:8 length:8 block:8"
    " (non_volatile=2+1,sharable=3+1,coherent=4+1,dynamic=5+1,read_only=6+1):1 index:1 -:2 sanitize:1.1 -:3"
)
EXTENT = Layout("start:8 length:8 tag:x16 sequence:2 -:6")
TAG_ENTRY = Layout("tag:x16 fm_reference:1.1 -:3")
SAT_ENTRY = Layout("rpid:2.12 vector:4")
GDT_ENTRY = Layout(
    "index:1 valid:1 coherent:1 -:1 hpa_base:8 dpa_base:8 dpa_length:8 interleave:1 granularity:1 way:1 -:1"
)
UNIT = 256 << 20  # bytes a capacity unit
SAT_NOTIFY = 1 << 31
FREE, CONTIGUOUS, PRESCRIPTIVE, ENABLE_SHARED = range(4)
RELEASE_TAG, RELEASE_PRESCRIPTIVE = 0, 1
GDT_COUNT = 8
PROPERTIES = "control:1 moderate:1 severe:1 interval:1 basis:2 completion_interval:1"
ITEMS = {
    "region": REGION,
    "region_row": REGION_ROW,
    "dmp": DMP,
    "extent": EXTENT,
    "tag": TAG_ENTRY,
    "sat": SAT_ENTRY,
    "gdt": GDT_ENTRY,
    "mask": Layout("blocks:8"),
}
EXTENTS = "grp_id:2 -:2 start:4 count:4 total:4 generation:4 -:4 extents[count]:extent"
CAPACITY = "region:1 length:8 tag:x16 count:4 response_max:4 extents[count]:extent"


def rows(*table):
    """Adds commands that take the items of this page section."""
    for opcode, name, request, response in table:
        shared = name.startswith("Set ") and bool(response)
        command(opcode, name, request, response, ITEMS, may_be_empty=shared)


REGIONS = "-:2 available:1 returned:1 list[returned]:region_row extents:4 extents_free:4 tags:4 tags_free:4"
DMPS = "-:2 available:1 returned:1 list[returned]:dmp"
FRACTIONS = "num:2 start:2.12 fractions[num]:1"
GDT = "rpid:2.12 -:2 start:1 returned:1 total:1 -:1 list[returned]:gdt"
rows(
    (
        0x4900,
        "Identify GFD",
        "",
        "dmps:1 regions:1 groups:2 add_policies:2 qos:1 -:1 release_policies:2 sanitize:1 -:1 capacity:8"
        + "".join(f" region_blocks{i}:8" for i in range(8))
        + "".join(f" dmp_blocks{i}:8" for i in range(4))
        + " volatile:8 -:16 persistent:8",
    ),
    (
        0x4901,
        "Get GFD Status",
        "",
        "flags:1 link_mode:1 width_max:1 width:1 speeds:1 speed_max:1 speed:1 ltssm:1 first_lane:1 link_flags:2",
    ),
    (0x4902, "Get DC Region Configuration", "-:2 count:1 start:1", REGIONS),
    (0x4903, "Set DC Region Configuration", REGION, REGIONS),
    (
        0x4904,
        "Get DC Extent Lists",
        "grp_id:2 -:2 count:4 start:4",
        EXTENTS,
    ),
    (0x4905, "Get DMP Configuration", "-:2 count:1 start:1", DMPS),
    (0x4906, "Set DMP Configuration", "-:2 count:1 start:1 list[count]:dmp", DMPS),
    (0x4907, "DC Add", f"grp_id:2 policy:1.4 {CAPACITY}", EXTENTS),
    (0x4908, "DC Release", f"grp_id:2 (policy=0+4,sanitize=5+1):1 {CAPACITY}", EXTENTS),
    (0x4909, "Add Reference", "tag:x16", ""),
    (0x490A, "Remove Reference", "tag:x16", ""),
    (0x490B, "List Tags", "start:4 max:4", "generation:4 total:4 -:4 list[]:tag"),
    (0x490C, "Get SAT", "-:2 count:2 start:2.12", "-:2 num:2 start:2.12 list[num]:4"),
    (0x490D, "Set SAT", "count:2 list[count]:sat", ""),
    (0x490E, "Get QoS Control", "", PROPERTIES),
    (0x490F, "Set QoS Control", PROPERTIES, PROPERTIES),
    (0x4910, "Get QoS Status", "", "backpressure:1"),
    (0x4911, "Get Bandwidth Limit", "num:2 start:2.12", FRACTIONS),
    (0x4912, "Set Bandwidth Limit", FRACTIONS, FRACTIONS),
    (0x4913, "Get GDT", "rpid:2.12 -:2 count:1 start:1", GDT),
    (0x4914, "Set GDT", "rpid:2.12 -:2 count:1 start:1 list[count]:gdt", GDT),
)


def dpa_of(entry, hpa):
    """DPA that a valid decoder maps an HPA to; None when it does not hit."""
    low = 8 + entry["granularity"]
    offset = hpa - entry["hpa_base"]
    inside = (offset >> low + entry["interleave"] << low) | offset & (1 << low) - 1
    if offset < 0 or not entry["valid"] or inside >= entry["dpa_length"]:
        return None
    return entry["dpa_base"] + inside


def hpa_of(entry, dpa):
    """HPA of a DPA under a decoder: its way is put back."""
    low = 8 + entry["granularity"]
    inside = dpa - entry["dpa_base"]
    way = entry["way"] << low
    return entry["hpa_base"] + ((inside >> low << low + entry["interleave"]) | way | inside & (1 << low) - 1)
