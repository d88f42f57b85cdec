"""Checks of a GFD's commands: what it says of itself, SAT, decoders, QoS, DMPs and regions, capacity and tags.

samples(args, facts) -> {opcode: values} well formed; learn() -> facts; reads() -> [(opcode, payload)]; SECTIONS.

Units: bytes; RPIDs of 12 bits; capacities of 4900 in 256 MB.
Source: docs/spec/wire-formats.md §4.7, §5.2; choices as in check_cci.py.
"""

from cci_gfd import GDT_COUNT, UNIT
from ccilayout import COMMANDS

PID_NONE, PID_COUNT = 0xFFF, 4096
HOST_COMMANDS = ()
EXHAUSTED, INVALID_INPUT, INVALID_LENGTH = 0x1D, 2, 0x16
TAG, NO_TAG = bytes(range(0x60, 0x70)), bytes(range(0x70, 0x80))
DECODER = {
    "index": 0,
    "valid": 1,
    "coherent": 0,
    "hpa_base": 0x0120_0000_0000,
    "dpa_base": 0,
    "dpa_length": UNIT,
    "interleave": 1,
    "granularity": 4,
    "way": 1,
}
REGION_ENTRY = {"id": 0, "block": UNIT, "base": 0, "decode_units": 1, "length": UNIT}
DMP_ENTRY = {"base": 0, "decode_length": UNIT, "length": UNIT, "block": UNIT, "index": 0}
QOS = {"control": 0, "moderate": 25, "severe": 50, "interval": 8, "basis": 0, "completion_interval": 8}


def samples(args, facts=None):
    """One well-formed request of each command; the first changes nothing."""
    capacity = {"grp_id": args.group, "region": args.region, "length": UNIT, "tag": TAG, "response_max": 8}
    return {
        0x4900: {},
        0x4901: {},
        0x4902: {"count": 8},
        0x4903: REGION_ENTRY,
        0x4904: {"grp_id": args.group, "count": 16},
        0x4905: {"count": 4},
        0x4906: {"list": [DMP_ENTRY]},
        0x4907: capacity,
        0x4908: capacity,
        0x4909: {"tag": TAG},
        0x490A: {"tag": TAG},
        0x490B: {"max": 16},
        0x490C: {"count": 4, "start": args.pid},
        0x490D: {"list": [{"rpid": args.pid, "vector": 2}]},
        0x490E: {},
        0x490F: QOS,
        0x4910: {},
        0x4911: {"num": 4, "start": args.pid},
        0x4912: {"start": args.pid, "fractions": [128]},
        0x4913: {"rpid": args.pid, "count": 8},
        0x4914: {"rpid": args.pid, "list": [DECODER]},
    }


def learn(check):
    """What the GFD says of itself."""
    facts = {"dmps": 1, "regions": 1, "groups": 64, "capacity": 0, "region_rows": [], "dmp_rows": []}

    def judge(found):
        facts.update({name: found[name] for name in ("dmps", "regions", "groups", "capacity")})
        wrong = [] if 1 <= found["dmps"] <= 4 else [f"{found['dmps']} DMPs"]
        wrong += [] if 1 <= found["regions"] <= 8 else [f"{found['regions']} regions"]
        wrong += [] if found["groups"] > check.args.group else [f"{found['groups']} groups, none {check.args.group}"]
        return "; ".join(wrong)

    def rows(name):
        def keep(found):
            facts[f"{name}_rows"] = found["list"]
            wrong = found["available"] != facts[f"{name}s"] or found["returned"] != found["available"]
            return f"{found['returned']} of {found['available']}, Identify says {facts[f'{name}s']}" if wrong else ""

        return keep

    check.good("Identify GFD", 0x4900, judge)
    check.good("status", 0x4901)
    check.good("all regions", 0x4902, rows("region"), count=8)
    check.good("all DMPs", 0x4905, rows("dmp"), count=4)
    return facts


def reads(check):
    """Requests that read all tables back."""
    args = check.args
    wanted = [(0x4900, {}), (0x4902, {"count": 8}), (0x4905, {"count": 4}), (0x490B, {"max": 64}), (0x490E, {})]
    wanted += [(0x4904, {"grp_id": group, "count": 64}) for group in {0, args.group}]
    wanted += [(0x490C, {"count": 1024, "start": at}) for at in range(0, PID_COUNT, 1024)]
    wanted += [(0x4911, {"num": 1024, "start": at}) for at in range(0, PID_COUNT, 1024)]
    wanted += [(0x4913, {"rpid": rpid, "count": GDT_COUNT}) for rpid in (args.pid, args.pid + 1, 0)]
    return [(op, COMMANDS[op].request.encode(**values)) for op, values in wanted if not check.absent(op)]


def equal(name, want):
    """A judge that compares one value."""
    return lambda found: "" if found[name] == want else f"{name} reads {found[name]}, not {want}"


def check_setup(check):
    """One DMP and one region over all there is, where there are none; nobody has memory yet."""
    facts = check.facts
    if any(row["length"] for row in facts["dmp_rows"] + facts["region_rows"]):
        return check.report("4903 4906", note="there are DMPs and regions already")
    whole = facts["capacity"] * UNIT
    dmp = DMP_ENTRY | {"decode_length": whole, "length": whole, "sharable": 1, "dynamic": 1}
    region = REGION_ENTRY | {"decode_units": facts["capacity"], "length": whole}
    row = {name: region[name] for name in ("base", "decode_units", "length", "block")}

    def has(name, want):
        def judge(found):
            facts[f"{name}_rows"] = found["list"]
            if not found["list"]:
                return "none is listed"
            first = found["list"][0]
            wrong = [f"{key} reads {first[key]:#x}" for key, value in want.items() if first[key] != value]
            return "; ".join(wrong)

        return judge

    check.bad("DMP past the end of memory", 0x4906, list=[dmp | {"length": 2 * whole, "decode_length": 2 * whole}])
    check.good("DMP", 0x4906, count=1, list=[dmp])
    check.good("DMP reads back", 0x4905, has("dmp", dmp), count=4)
    check.good("region", 0x4903, **region)
    check.good("region reads back", 0x4902, has("region", row), count=8)


def check_sat(check):
    pid = check.args.pid
    rows = [{"rpid": pid, "vector": 0x8000_0003}, {"rpid": pid + 1, "vector": 4}]
    check.good("two RPIDs", 0x490D, list=rows)
    check.good("reads back", 0x490C, equal("list", [0x8000_0003, 4]), count=2, start=pid)
    check.bad("RPID FFF behind a good one", 0x490D, list=[{"rpid": pid, "vector": 0}, {"rpid": PID_NONE, "vector": 1}])
    check.bad("more entries than sent", 0x490D, (INVALID_LENGTH,), count=3, list=rows)
    check.bad("fewer entries than sent", 0x490D, (INVALID_LENGTH,), count=1, list=rows)
    check.bad("past the end", 0x490C, count=2, start=PID_COUNT - 1)
    check.good("cleared", 0x490D, list=[row | {"vector": 0} for row in rows])


def check_gdt(check):
    pid = check.args.pid
    second = DECODER | {"index": 1, "hpa_base": 0x0220_0000_0000, "dpa_length": UNIT, "way": 0}
    check.good("two decoders", 0x4914, rpid=pid, start=0, list=[DECODER, second])
    check.good("reads back", 0x4913, equal("list", [DECODER, second]), rpid=pid, start=0, count=2)
    whole = lambda f: "" if f["returned"] == f["total"] else f"{f['returned']} of {f['total']}"  # noqa: E731
    check.good("all decoders", 0x4913, whole, rpid=pid, count=GDT_COUNT)
    wrong = {
        "interleave 9": {"interleave": 9},
        "granularity 7": {"granularity": 7},
        "way that is none of two": {"way": 2},
    }
    for step, (name, change) in enumerate(wrong.items(), 1):  # what must not be written is new
        first = DECODER | {"hpa_base": DECODER["hpa_base"] + (step << 40)}
        check.bad(f"{name} behind a good one", 0x4914, rpid=pid, list=[first, second | change])
    meets = DECODER | {"index": 2, "hpa_base": DECODER["hpa_base"] + UNIT}  # docs/spec/wire-formats.md §5.2: exactly one hit
    check.bad("decoder for addresses of another one", 0x4914, rpid=pid, start=2, list=[meets])
    check.good("another RPID at the same addresses", 0x4914, rpid=pid + 1, start=2, list=[meets])
    check.good("and switched off", 0x4914, rpid=pid + 1, start=2, list=[meets | {"valid": 0}])
    check.bad("RPID FFF", 0x4914, rpid=PID_NONE, list=[DECODER])
    check.bad("ninth decoder", 0x4914, rpid=pid, start=GDT_COUNT, list=[DECODER | {"index": GDT_COUNT}])
    behind = [DECODER | {"index": 7}, DECODER | {"index": 8}]
    check.bad("past the end", 0x4914, rpid=pid, start=GDT_COUNT - 1, list=behind)
    check.bad("ninth decoder", 0x4913, rpid=pid, start=GDT_COUNT, count=1)
    check.bad("more entries than sent", 0x4914, (INVALID_LENGTH,), rpid=pid, count=2, list=[DECODER])
    off = [DECODER | {"valid": 0}, second | {"valid": 0}]
    check.good("switched off", 0x4914, rpid=pid, list=off)


def check_qos(check):
    before = {}
    check.good("QoS", 0x490E, lambda found: before.update(found))
    check.good("set QoS", 0x490F, **QOS)
    check.good("QoS reads back", 0x490E, lambda found: "" if found == QOS else f"reads {found}")
    check.bad("throughput reduction, which 4900 does not offer", 0x490F, **QOS | {"control": 2})
    check.bad("moderate over 100 %", 0x490F, **QOS | {"moderate": 101, "severe": 101})
    if before:
        check.good("QoS as before", 0x490F, **before)
    check.good("backpressure", 0x4910, lambda f: "" if f["backpressure"] <= 100 else f"{f['backpressure']} %")
    where = {"num": 2, "start": check.args.pid}
    old = {}
    check.good("fractions", 0x4911, lambda found: old.update(found), **where)
    check.good("set fractions", 0x4912, **where, fractions=[128, 64])
    check.good("fractions read back", 0x4911, equal("fractions", [128, 64]), **where)
    check.bad("past the end", 0x4911, num=2, start=PID_COUNT - 1)
    check.bad("past the end", 0x4912, num=2, start=PID_COUNT - 1, fractions=[1, 1])
    check.bad("more than sent", 0x4912, (INVALID_LENGTH,), num=3, start=check.args.pid, fractions=[1, 1])
    if old:
        check.good("fractions as before", 0x4912, **where, fractions=old["fractions"])


def check_layout(check):
    """DMPs and regions, while no memory is given out."""
    facts = check.facts
    for row in facts["dmp_rows"][:1]:
        again = {"count": 1, "start": row["index"], "list": [row]}
        check.good("DMP as it is", 0x4906, **again)
        check.good("DMP reads back", 0x4905, equal("list", [row]), count=1, start=row["index"])
        wrong = {"base off 256 MB": {"base": 4096}, "length off 256 MB": {"length": row["length"] + 4096}}
        wrong["block no power of two"] = {"block": 3 << 20}
        for name, change in wrong.items():
            check.bad(f"DMP {name}", 0x4906, **again | {"list": [row | change]})
        check.bad("no such DMP", 0x4906, start=facts["dmps"], list=[row | {"index": facts["dmps"]}])
        check.bad("more DMPs than sent", 0x4906, (INVALID_LENGTH,), count=2, list=[row])
    check.bad("no such DMP", 0x4905, start=facts["dmps"], count=1)
    for row in facts["region_rows"][:1]:
        again = {name: row[name] for name in ("block", "sanitize", "base", "decode_units", "length")} | {"id": 0}
        check.good("region as it is", 0x4903, **again)
        check.good("region reads back", 0x4902, equal("list", [row]), count=1, start=0)
        check.bad("no such region", 0x4903, **again | {"id": 8})
        check.bad("region's block no power of two", 0x4903, **again | {"block": 3 << 20})
    check.bad("no such region", 0x4902, start=8, count=1)


def check_capacity(check):
    facts, args = check.facts, check.args
    blocks = [row["block"] for row in facts["region_rows"][args.region : args.region + 1]]
    size = blocks[0] if blocks else UNIT
    want = {"grp_id": args.group, "region": args.region, "length": size, "tag": TAG, "response_max": 8}
    lists, empty = {"grp_id": args.group, "count": 16}, {}
    check.good("extents at first", 0x4904, lambda found: empty.update(found), **lists)

    def whole(found):
        have = [row for row in found["extents"] if row["tag"] == TAG]
        length = sum(row["length"] for row in have)
        return "" if length == size else f"extents of the tag have {length} bytes, not {size}"

    def tag_is(present, reference=None):
        def judge(found):
            rows = [row for row in found["list"] if row["tag"] == TAG]
            if bool(rows) != present:
                return f"tag {'missing' if present else 'still there'}"
            wrong = reference is not None and rows[0]["fm_reference"] != reference
            return f"FM reference is not {reference}" if wrong else ""

        return judge

    check.good("add", 0x4907, whole, **want)
    check.good("add reads back", 0x4904, whole, **lists)
    check.good("tag is listed", 0x490B, tag_is(True), max=64)
    check.good("add reference", 0x4909, tag=TAG)
    check.good("reference is listed", 0x490B, tag_is(True, 1), max=64)
    if facts["dmp_rows"]:
        row = facts["dmp_rows"][0]
        check.bad("DMP while a group is in use", 0x4906, count=1, start=row["index"], list=[row])
    more = facts["capacity"] * UNIT + size
    wrong = {
        "no such policy": {"policy": 15},
        "no such region": {"region": 8},
        "no such group": {"grp_id": facts["groups"]},
        "length no multiple of the block": {"length": size + 1},
        "no length": {"length": 0},
    }
    for name, change in wrong.items():
        check.bad(name, 0x4907, **want | {"tag": NO_TAG} | change)
        if "length" not in name and name != "no such region":  # a release by tag need not look at them
            check.bad(name, 0x4908, **want | change)
    check.bad("more than there is", 0x4907, (INVALID_INPUT, EXHAUSTED), **want | {"tag": NO_TAG, "length": more})
    check.bad("more extents than sent", 0x4907, (INVALID_LENGTH,), count=1, **want | {"tag": NO_TAG})
    check.bad("tag that nobody has", 0x4908, **want | {"tag": NO_TAG})
    for opcode in (0x4909, 0x490A):
        check.bad("tag that nobody has", opcode, tag=NO_TAG)
    check.bad("no such group", 0x4904, grp_id=facts["groups"], count=1)
    check.good("remove reference", 0x490A, tag=TAG)
    check.good("reference is gone", 0x490B, tag_is(True, 0), max=64)
    check.good("release", 0x4908, **want)
    check.good("release reads back", 0x4904, equal("extents", empty.get("extents", [])), **lists)
    check.good("tag is gone", 0x490B, tag_is(False), max=64)


SECTIONS = {
    "setup": check_setup,
    "sat": check_sat,
    "gdt": check_gdt,
    "qos": check_qos,
    "layout": check_layout,
    "capacity": check_capacity,
}
