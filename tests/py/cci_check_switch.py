"""Checks of a switch's commands: what it says of itself, tables, PIDs, bindings, access vectors, host's tables.

samples(args, facts) -> {opcode: values} well formed; learn() -> facts; reads() -> [(opcode, payload)]; SECTIONS.

Units: bytes; PIDs of 12 bits; entries.
Source: docs/spec/wire-formats.md §4.3, §4.5, §4.6, §5.1; choices as in check_cci.py.
"""

from cci_switch import DRT_PORT, DRT_RGT, PID_COUNT, bits_of, decode_vcs_info
from ccilayout import COMMANDS

PID_NONE, UNSUPPORTED, INVALID_LENGTH = 0xFFF, 3, 0x16
RETRY, BUSY, EXHAUSTED = 5, 6, 0x1D
HOST_COMMANDS = (0x0109, 0x010A, *range(0x570C, 0x5715), *range(0x5800, 0x580C))
CHUNK = 1024  # DRT entries a read
RGT_READ = 16  # RGT entries of a snapshot
BASE, SEGMENT_64G = 1 << 40, 1 << 36
IDENTIFY = bytes.fromhex("00 00 00 00 07 00 00 00 00 00 00 00")  # Identify PBR Component, tag 0
RGT_ENTRY = {"ports": bytes(8), "valid_max": 1, "primary_max": 0, "mode": 0, "mix": 3}
LDST_ENTRY = {"valid": 1, "segment": 0, "interleave": 0, "granularity": 0}
FAST_ENTRY = {"valid": 1, "gim": 0, "interleave": 0, "granularity": 0}


def samples(args, facts=None):
    """One well-formed request of each of the FM's commands; the first changes nothing."""
    facts = facts or {"ports": [0], "targets": [{"target": 0, "instance": 0}]}
    port, vcs, vppb, pid = facts["ports"][0], args.vcs, args.vppb, args.pid
    target = facts["targets"][0] if facts["targets"] else {"target": 0, "instance": 0}
    at = {"vcs": vcs, "vppb": vppb}
    return {
        0x5700: {},
        0x5100: {},
        0x5101: {"ports": [port]},
        0x5102: {"port": port, "op": 0},
        0x5103: {"port": port, "first_be": 15},
        0x5104: {},
        0x5105: {"uuid": bytes(16)},
        0x5106: {"vcs": vcs},
        0x5107: {"vcs": vcs},
        0x5200: {"limit": 255, "ids": [vcs]},
        0x5201: at | {"port": port, "ld": args.ld},
        0x5202: at,
        0x5301: {"port": port, "first_be": 15},
        0x5302: {"port": port, "first_be": 15, "last_be": 15, "size": 4},
        0x5300: {"id": port, "message": IDENTIFY},
        0x5701: {"target": port, "message": IDENTIFY},
        0x5702: {"ports": [port]},
        0x5703: {"count": 16},
        0x5704: {"list": [{"pid": pid, "target": target["target"], "instance": target["instance"]}]},
        0x5705: at,
        0x5706: at | {"pid": pid},
        0x5707: {"num": 1},
        0x5708: {"num": 4, "start": pid},
        0x5709: {"start": pid, "list": [{"type": DRT_PORT, "value": port}]},
        0x570A: {"num": 1},
        0x570B: {"list": [RGT_ENTRY]},
        0x5715: {"vcs": vcs, "num": 512},
        0x5716: {"vcs": vcs, "pid": pid},
        0x5900: {"vcs": vcs, "num": 1},
        0x5901: {"vcs": vcs, "num": 1024},
        0x5902: {"vcs": vcs, "pid": pid},
        0x5903: {"vcs": vcs},
        0x5904: {"vcs": vcs},
        0xC510: {"ports": [port]},
    }


def learn(check):
    """What the switch says of itself; reports what cannot be."""
    facts = {"ports": [], "vcs": [], "targets": [], "drts": 1, "rgts": 0, "gae": False, "modes": []}

    def switch(found):
        facts.update(drts=found["drts"], rgts=found["rgts"], gae=bool(found["gae_map"] >> check.args.vcs & 1))
        facts["modes"] = [found["random"], found["ca"], found["advanced_ca"]]
        return "" if found["drts"] else "no DRT"

    def device(found):
        facts.update(ports=bits_of(found["active_ports"]), vcs=bits_of(found["active_vcs"]))
        facts["port_count"], facts["vcs_count"] = found["ports"], found["vcs"]
        if len(facts["ports"]) > found["ports"] or len(facts["vcs"]) > found["vcs"]:
            return "more ports or VCSs are active than there are"
        return "more vPPBs active than there are" if found["active_vppbs"] > found["vppbs"] else ""

    def targets(found):
        facts["targets"] = found["list"]
        wrong = [row for row in found["list"] if row["type"] > 2]
        if found["num"] != min(found["total"], 255):
            return f"{found['num']} of {found['total']} targets for 255 asked"
        return f"target types {wrong}" if wrong else ""

    check.good("Identify PBR Switch", 0x5700, switch)
    check.good("Identify Switch Device", 0x5100, device)
    check.good("all targets", 0x5703, targets, start=0, count=255)
    facts["ports"] = facts["ports"] or sorted({row["port"] for row in facts["targets"]}) or [0]
    facts["vcs"] = facts["vcs"] or [check.args.vcs]
    facts["no_port"] = next(port for port in range(255, -1, -1) if port not in facts["ports"])
    facts["no_vcs"] = next(vcs for vcs in range(255, -1, -1) if vcs not in facts["vcs"])
    return facts


def reads(check):
    """Requests that read all tables back."""
    facts, args = check.facts, check.args
    wanted = [(0x5700, {}), (0x5703, {"count": 255})]
    for idx in range(facts["drts"]):
        wanted += [(0x5708, {"idx": idx, "num": CHUNK, "start": at}) for at in range(0, PID_COUNT, CHUNK)]
    wanted += [(0x570A, {"idx": idx, "num": RGT_READ}) for idx in range(facts["rgts"])]
    for vcs in facts["vcs"]:
        wanted += [(0x5200, {"limit": 255, "ids": [vcs]}), (0x5715, {"vcs": vcs, "num": 512})]
        wanted += [(0x5901, {"vcs": vcs, "num": 1024}), (0x5903, {"vcs": vcs})]
        wanted += [(0x5705, {"vcs": vcs, "vppb": vppb}) for vppb in {args.vppb, 0}]
    return [(op, COMMANDS[op].request.encode(**values)) for op, values in wanted if not check.absent(op)]


def equal(name, want):
    """A judge that compares one value."""
    return lambda found: "" if found[name] == want else f"{name} reads {found[name]}, not {want}"


def set_get(check, name, put, got, values, where, listed):
    """Sets, reads back, and says when they differ; `listed` is the list that must come back."""
    check.good(f"{name}", put, **values)
    check.good(f"{name} reads back", got, equal("list", listed), **where)


def check_device(check):
    facts, args = check.facts, check.args
    ports = facts["ports"][:16]

    def numbers(found):
        have = [block["port"] for block in found["blocks"]]
        return "" if have == ports else f"ports {have}, asked for {ports}"

    check.good("all ports", 0x5101, numbers, ports=ports)
    check.good("all ports", 0x5702, numbers, ports=ports)
    check.good("all ports", 0xC510, numbers, ports=ports)
    for opcode in (0x5101, 0x5702, 0xC510):
        check.bad("no such port", opcode, ports=[facts["no_port"]])
    check.bad("no such port", 0x5102, port=facts["no_port"], op=0)
    check.bad("operation 255", 0x5102, port=ports[0], op=255)
    check.good("register 0", 0x5103, port=ports[0], first_be=15)
    check.good("SV state", 0x5104)
    check.good("SV state of a VCS", 0x5106, vcs=args.vcs)
    check.good("SV of a VCS", 0x5107, vcs=args.vcs)
    check.bad("no such port", 0x5103, port=facts["no_port"], first_be=15)
    check.bad("no such port", 0x5301, port=facts["no_port"], first_be=15)

    def vcs(found):
        rows = decode_vcs_info(found["blocks"], 0, 255)
        return "" if [row["vcs"] for row in rows] == [args.vcs] else f"VCSs {[row['vcs'] for row in rows]}"

    check.good("one VCS", 0x5200, vcs, start=0, limit=255, ids=[args.vcs])
    check.bad("no such VCS", 0x5200, limit=255, ids=[facts["no_vcs"]])
    for opcode in (0x5106, 0x5107):
        check.bad("no such VCS", opcode, vcs=facts["no_vcs"])
    check.good("descriptors", 0x5707, descriptors(facts), start=0, num=facts["drts"] + facts["rgts"])


def descriptors(facts):
    """Judges Get Table Descriptors: as many DRTs and RGTs as Identify says."""
    want = {0: facts["drts"], 1: facts["rgts"]}

    def judge(found):
        have = {kind: sum(row["type"] == kind for row in found["list"]) for kind in want}
        return "" if have == want else f"tables by type {have}, Identify says {want}"

    return judge


def check_drt(check):
    facts, pid = check.facts, check.args.pid
    ports = facts["ports"]
    rows = [{"type": kind, "value": port} for kind, port in ((DRT_PORT, ports[0]), (0, 0), (DRT_PORT, ports[-1]))]
    where = {"idx": 0, "start": pid, "num": len(rows)}
    set_get(check, "entries", 0x5709, 0x5708, where | {"list": rows}, where, rows)
    other = [{"type": 0, "value": 0}]
    bad_rows = {"type 3": {"type": 3, "value": 0}, "no such port": {"type": DRT_PORT, "value": facts["no_port"]}}
    for row, first in zip(bad_rows.items(), (other[0], rows[-1]), strict=True):  # what must not be written is new
        check.bad(f"{row[0]} behind a good entry", 0x5709, start=pid, list=[first, row[1]])
    for opcode, extra in ((0x5708, {}), (0x5709, {"list": other * 2})):
        check.bad("no such table", opcode, idx=facts["drts"], start=pid, **({"num": 2} | extra))
        check.bad("past the end", opcode, start=PID_COUNT - 1, **({"num": 2} | extra))
        check.bad("start 4096", opcode, start=PID_COUNT, **({"num": 1} | ({"list": other} if extra else {})))
    check.bad("more entries than sent", 0x5709, (0x16,), start=pid, num=2, list=other)
    check.bad("fewer entries than sent", 0x5709, (0x16,), start=pid, num=1, list=other * 2)
    check.good("last entry", 0x5708, start=PID_COUNT - 1, num=1)
    clear = [{"type": 0, "value": 0}] * len(rows)
    set_get(check, "entries cleared", 0x5709, 0x5708, where | {"list": clear}, where, clear)


def check_rgt(check):
    facts = check.facts
    if not facts["rgts"]:
        return check.report("RGT", note="the switch says it has none")
    ports = bytes([facts["ports"][0], facts["ports"][-1], *bytes(6)])
    rows = [dict(RGT_ENTRY, ports=ports)]
    where = {"idx": 0, "start": 1, "num": 1}
    set_get(check, "entry", 0x570B, 0x570A, where | {"list": rows}, where, rows)
    wrong = {
        "no such port": {"ports": bytes([facts["no_port"]]) + bytes(7)},
        "primary behind the last": {"valid_max": 0, "primary_max": 1},
        "mode 5": {"mode": 5},
    }
    for mode, told in enumerate(facts["modes"]):
        if not told:
            wrong[f"mode {mode}, which 5700 does not tell of"] = {"mode": mode}
    for mix, (name, change) in enumerate(wrong.items(), 4):  # what must not be written is new
        check.bad(f"{name} behind a good entry", 0x570B, start=1, list=[rows[0] | {"mix": mix}, rows[0] | change])
    check.bad("no such table", 0x570B, idx=facts["rgts"], list=rows)
    check.bad("no such table", 0x570A, idx=facts["rgts"], num=1)
    check.bad("past the end", 0x570A, start=256, num=1)
    check.bad("past the end", 0x570B, start=256, list=rows)
    check.bad("more entries than sent", 0x570B, (0x16,), num=2, list=rows)
    if facts["drts"]:
        where = {"idx": 0, "start": check.args.pid, "num": 1}
        to_group = [{"type": DRT_RGT, "value": 1}]
        set_get(check, "entry to a group", 0x5709, 0x5708, where | {"list": to_group}, where, to_group)


def check_pids(check):
    facts, pid = check.facts, check.args.pid
    if not facts["targets"]:
        return check.report("5704", "the switch lists no PID target")
    first, last = facts["targets"][0], facts["targets"][-1]

    def entry(row, number=pid):
        return {"pid": number, "target": row["target"], "instance": row["instance"]}

    def holds(number):
        def judge(found):
            rows = [row for row in found["list"] if entry(row) == entry(first)]
            have = [row["pid"] for row in rows]
            return "" if have == [number] else f"first target has PIDs {have}, not {number:#x}"

        return judge

    check.good("assign", 0x5704, op=0, list=[entry(first)])
    check.good("assign reads back", 0x5703, holds(pid), count=255)
    if entry(first) != entry(last):
        check.bad("PID of another target", 0x5704, list=[entry(last)])
    nowhere = {"pid": pid + 1, "target": 0xFFFE, "instance": 0}
    check.bad("no such target behind a good one", 0x5704, list=[entry(first, pid + 1), nowhere])
    check.bad("PID FFF", 0x5704, list=[entry(first, PID_NONE)])
    check.bad("operation 7", 0x5704, op=7, list=[entry(first)])
    check.bad("more entries than sent", 0x5704, (0x16,), num=2, list=[entry(first)])
    check.good("clear", 0x5704, op=1, list=[entry(first)])
    check.good("clear reads back", 0x5703, holds(PID_NONE), count=255)
    if first["pid"] != PID_NONE:
        check.good("assign as before", 0x5704, op=0, list=[entry(first, first["pid"])])


def check_binding(check):
    facts, args = check.facts, check.args
    at = {"vcs": args.vcs, "vppb": args.vppb}
    absent = {"no such VCS": {"vcs": facts["no_vcs"]}, "no such vPPB": {"vppb": 255}}
    metrics = {"latency_base": 1, "latency": 10, "bandwidth_base": 1, "bandwidth": 20}
    requests = {0x5705: {}, 0x5706: {"pid": args.pid}, 0x5201: {"port": facts["ports"][0], "ld": args.ld}, 0x5202: {}}
    for opcode, extra in requests.items():
        for name, change in absent.items():
            check.bad(name, opcode, **at | extra | change)
    check.bad("operation 7", 0x5706, op=7, pid=args.pid, **at)
    check.bad("PID FFF", 0x5706, op=0, pid=PID_NONE, **at)
    check.bad("no such port", 0x5201, port=facts["no_port"], ld=args.ld, **at)

    def bound_to(pid):
        return lambda: equal("pid", pid)(check.client.get(0x5705, **at))

    if not check.absent(0x5706):
        check.good("bind", 0x5706, op=0, pid=args.pid, **at, **metrics)
        check.settle("5705 bind reads back", bound_to(args.pid))
        check.good("unbind", 0x5706, op=1, pid=args.pid, **at)
        check.settle("5705 unbind reads back", bound_to(PID_NONE))
    if args.bind_port is None:
        return check.report("5201 5202", note="only refused: no --bind-port")

    def local(bound):
        def work():
            rows = decode_vcs_info(check.client.get(0x5200, limit=255, ids=[args.vcs])["blocks"], 0, 255)
            if not rows or len(rows[0]["bindings"]) <= args.vppb:
                return f"there is no vPPB {args.vppb}"
            have = rows[0]["bindings"][args.vppb]
            fits = have["status"] != 0 and have["port"] == args.bind_port if bound else have["status"] == 0
            return "" if fits else f"vPPB reads {have}"

        return work

    check.good("bind", 0x5201, port=args.bind_port, ld=args.ld, **at)
    check.settle("5200 bind reads back", local(True))
    check.good("unbind", 0x5202, option=args.unbind_option, **at)
    check.settle("5200 unbind reads back", local(False))


def check_access(check):
    facts, args = check.facts, check.args
    byte, bit = args.pid >> 3, args.pid & 7

    def has(offset, want, size):
        def judge(found):
            if found["num"] != size:
                return f"{found['num']} bytes, not {size}"
            return "" if found["data"][offset + byte] >> bit & 1 == want else f"bit of {args.pid:#x} is not {want}"

        return judge

    if not facts["gae"]:
        check.report("59xx", note=f"the switch says VCS {args.vcs} has no GAE")
    steps = [(0x5716, 0x5715, 512, "LAV", 0, 0, 1), (0x5716, 0x5715, 512, "LAV", 1, 0, 0)]
    if facts["gae"]:
        for op, offset, name, want in ((0, 0, "GMV", 1), (1, 0, "GMV", 0), (2, 512, "VTV", 1), (3, 512, "VTV", 0)):
            steps.append((0x5902, 0x5901, 1024, name, op, offset, want))
    for put, got, size, name, op, offset, want in steps:
        check.good(f"{name} operation {op}", put, vcs=args.vcs, pid=args.pid, op=op)
        check.good(f"{name} operation {op} reads back", got, has(offset, want, size), vcs=args.vcs, num=size)
    for put, got, size, top in ((0x5716, 0x5715, 512, 2), (0x5902, 0x5901, 1024, 5))[: 1 + facts["gae"]]:
        check.bad("no such operation", put, vcs=args.vcs, pid=args.pid, op=top)
        check.bad("no such VCS", put, vcs=facts["no_vcs"], pid=args.pid)
        check.bad("PID FFF", put, vcs=args.vcs, pid=PID_NONE)
        check.bad("no such VCS", got, vcs=facts["no_vcs"], num=size)
        check.bad("past the end", got, vcs=args.vcs, start=1, num=size)
    if facts["gae"]:
        check_prefix(check)


def check_prefix(check):
    args, can = check.args, {}

    def identity(found):
        can.update({name: found[name] for name in ("egress_prefix", "ingress_prefix")})
        return "" if found["num"] == 1 and found["available"] <= found["threads"] else f"reads {found}"

    check.good("Identify VCS GAE", 0x5900, identity, vcs=args.vcs, num=1)
    check.bad("no such VCS", 0x5900, vcs=check.facts["no_vcs"], num=1)
    for flags in (can, dict.fromkeys(can, 0)):
        check.good("set prefixes", 0x5904, vcs=args.vcs, **flags)
        same = lambda found, f=flags: "" if found == f or not f else f"{found}"  # noqa: E731
        check.good("prefixes read back", 0x5903, same, vcs=args.vcs)
    for opcode in (0x5903, 0x5904):
        check.bad("no such VCS", opcode, vcs=check.facts["no_vcs"])


def check_crawl(check):
    facts, args = check.facts, check.args
    inner = IDENTIFY
    check.bad("no such port", 0x5701, target=facts["no_port"], type=0, message=inner)
    check.bad("PID without a DRT entry", 0x5701, target=args.pid + 2, type=1, message=inner)
    check.bad("no such target type", 0x5701, target=0, type=7, message=inner)
    check.bad("size of more than was sent", 0x5701, (0x16,), target=facts["no_port"], size=13, message=inner)
    if args.crawl_port is None:
        return check.report("5701", note="only refused: no --crawl-port")
    through = {"target": args.crawl_port, "type": 0}

    def judge(found):
        head = found["message"][:12]
        return "" if head[:5] == bytes.fromhex("01 00 00 00 07") else f"answers {head.hex()}"

    check.good("Identify of the far end", 0x5701, judge, message=inner, **through)
    for _ in range(2):
        body = COMMANDS[0x5701].request.encode(message=inner, **through)
        inner = bytes.fromhex("00 00 00 01 57") + len(body).to_bytes(3, "little") + bytes(4) + body
    check.bad("three layers", 0x5701, (UNSUPPORTED,), message=inner, **through)


def check_host(check):
    """The host's own tables, over its own connection."""
    if check.host is None:
        return check.report("570C-5714 58xx 0109 010A", note="left out: no --host-connect")
    host, args, caps = check.host, check.args, {}
    for get, prefix in ((0x5803, "FAST"), (0x570C, "LDST")):
        check.good(f"{prefix} capabilities", get, lambda found: caps.update(found), host, vppb=args.vppb)
        if not caps or check.absent(get):
            continue
        span = {"vppb": args.vppb, "segment_size": 0, "base": BASE}
        span["limit"] = BASE + min(4, caps["segments"]) * SEGMENT_64G
        check.good("set window", get + 1, None, host, **span)
        same = lambda found, w=span: "" if w.items() <= found.items() else f"{found}"  # noqa: E731
        check.good("window reads back", get, same, host, vppb=args.vppb)
        wrong = {
            "base is not aligned": {"base": BASE + 4096},
            "limit is not aligned": {"limit": span["limit"] + 4096},
            "limit is the base": {"limit": BASE},
            "window larger than the table": {"limit": BASE + 2 * caps["segments"] * SEGMENT_64G},
            "segment size 8": {"segment_size": 8},
        }
        for name, change in wrong.items():
            host_bad(check, name, get + 1, get, **span | change)
        check_segments(check, get + 2, prefix, caps)
        check.good("window off", get + 1, None, host, **span | {"base": 0, "limit": 0})
    check.good("Identify GAE", 0x5800, equal("num", 1), host, num=1)
    check.good("interrupt vector", 0x5801, equal("num", 512), host, num=512)
    check.good("access vectors", 0x5802, equal("num", 1024), host, num=1024)
    check.good("LAV", 0x5714, equal("num", 512), host, num=512)
    route = {"dpid": args.pid, "segment_enable": 1, "segment": 1, "bus": 2, "function": 3, "device": 4}
    if caps.get("rerouters"):
        at = {"vppb": args.vppb, "start": 0, "count": 1}
        check.good("allow for the re-router", 0x5716, vcs=args.vcs, pid=args.pid, op=0)
        check.good("re-router", 0x5713, None, host, **at, list=[route])
        check.good("re-router reads back", 0x5712, equal("list", [route]), host, **at)
        host_bad(check, "past the end", 0x5713, 0x5712, **at | {"start": caps["rerouters"]}, list=[route])
        check.good("re-router off", 0x5713, None, host, **at, list=[dict.fromkeys(route, 0)])
        check.good("disallow for the re-router", 0x5716, vcs=args.vcs, pid=args.pid, op=1)
    for opcode in HOST_COMMANDS:
        for name, change in (("many", lambda raw: raw + b"\0"), ("few", lambda raw: raw[:-1])):
            payload = change(COMMANDS[opcode].request.encode())
            if len(COMMANDS[opcode].request.encode()) or name == "many":
                check.refused(f"one byte too {name}", opcode, payload, (INVALID_LENGTH,), host)
    ring = {"valid": 1, "address_32": 0x10000 >> 5}
    check.good("set ring", 0x010A, None, host, **ring)
    check.good("ring reads back", 0x0109, lambda found: "" if ring.items() <= found.items() else f"{found}", host)


def host_bad(check, name, opcode, read, **values):
    """A refused command of the host; what `read` reads stays."""

    def work():
        where = {"vppb": values["vppb"]} | ({} if read in (0x5803, 0x570C) else {"count": 1})
        before = check.host.get(read, **where)
        code, _ = check.host.call(opcode, **values)
        changed = check.host.get(read, **where) != before
        return ("" if code == 2 else f"return code {code:#x}, not 2") + ("; changed" if changed else "")

    check.attempt(f"{opcode:04x} {name}", work, opcode)


def check_segments(check, get, prefix, caps):
    host, args = check.host, check.args
    permit = 0x5902 if prefix == "FAST" else 0x5716
    entry = (FAST_ENTRY if prefix == "FAST" else LDST_ENTRY) | {"dpid": args.pid}
    at = {"vppb": args.vppb, "start": 0, "count": 1}
    host_bad(check, "PID that is not allowed", get + 1, get, **at, list=[entry])
    check.good(f"allow for {prefix}", permit, vcs=args.vcs, pid=args.pid, op=0)
    check.good("segment", get + 1, None, host, **at, list=[entry])
    check.good("segment reads back", get, equal("list", [entry]), host, **at)
    for change in ({"interleave": 9}, {"granularity": 7}, {"dpid": PID_NONE}):
        host_bad(check, f"entry of {change}", get + 1, get, **at, list=[entry | change])
    host_bad(check, "past the end", get + 1, get, **at | {"start": caps["segments"]}, list=[entry])
    if caps["idt"]:
        check.good("IDT", get + 3, None, host, **at, list=[args.pid])
        check.good("IDT reads back", get + 2, equal("list", [args.pid]), host, **at)
        host_bad(check, "IDT past the end", get + 3, get + 2, **at | {"start": caps["idt"]}, list=[args.pid])
    check.good("segment off", get + 1, None, host, **at, list=[dict.fromkeys(entry, 0)])
    check.good(f"disallow for {prefix}", permit, vcs=args.vcs, pid=args.pid, op=1)


def check_secret(check):
    """The host's security value: set by the host, read by the FM."""
    if check.host is None:
        return check.report("5105", note="only refused: no --host-connect")
    vcs, value, before = {"vcs": check.args.vcs}, bytes(range(0x50, 0x60)), {}
    check.good("state at first", 0x5106, lambda found: before.update(found), **vcs)
    check.good("set", 0x5105, None, check.host, uuid=value)
    other = lambda found: f"still reads {found}" if found == before else ""  # noqa: E731
    check.good("state after set", 0x5106, other, **vcs)
    check.good("SV after set", 0x5107, equal("uuid", value), **vcs)
    check.good("state of the host", 0x5104, other, check.host)


def check_reset(check):
    if check.absent(0x5102):
        return check.report("5102", note="absent")
    if check.args.reset_port is None:
        return check.report("5102", note="only refused: no --reset-port")
    for op in (2, 0, 1):  # a hot reset needs a link that is up
        check.good(f"operation {op}", 0x5102, port=check.args.reset_port, op=op)
    check.bad("operation 3", 0x5102, port=check.args.reset_port, op=3)


def check_mld(check):
    """Through the switch to an MLD: a message, a register, memory."""
    facts, args = check.facts, check.args
    if args.mld_port is None:
        return check.report("5300 to 5302", note="only refused: no --mld-port")
    identify = bytes.fromhex("00 5A 00 01 00 00 00 00 00 00 00 00")

    def answered(found):
        head = found["message"][:5]
        return "" if head == bytes.fromhex("01 5A 00 01 00") else f"answers {head.hex()}"

    tunnel = {"id": args.mld_port, "message": identify}
    check.good("Identify of the MLD", 0x5300, answered, **tunnel)
    check.bad("target type 2", 0x5300, **tunnel | {"type": 2})
    check.bad("no such port", 0x5300, **tunnel | {"id": facts["no_port"]})
    check.bad("size of more than was sent", 0x5300, (INVALID_LENGTH,), **tunnel, size=13)
    register = {"port": args.mld_port, "ld": args.mld_ld, "first_be": 15}
    line = register | {"reg": 15, "first_be": 1}  # the interrupt line, which every function keeps for software
    identity = {}
    check.good("identity of the LD", 0x5301, lambda found: identity.update(found), **register)
    check.good("and again", 0x5301, lambda found: "" if found == identity else f"reads {found}", **register)
    check.good("write a register", 0x5301, None, **line, write=1, data=0x5A)
    low = lambda found: "" if found["data"] & 0xFF == 0x5A else f"reads {found}"  # noqa: E731
    check.good("register reads back", 0x5301, low, **line | {"first_be": 15})
    memory = {"port": args.mld_port, "ld": args.mld_ld, "first_be": 15, "last_be": 15, "size": 8, "offset": 0}
    check.good("write memory", 0x5302, None, **memory, write=1, data=bytes(range(0xA0, 0xA8)))
    check.good("memory reads back", 0x5302, equal("data", bytes(range(0xA0, 0xA8))), **memory)
    few = memory | {"size": 8, "write": 1, "data": bytes(7)}
    check.bad("fewer bytes than size says", 0x5302, (INVALID_LENGTH,), **few)
    check.bad("4,097 bytes", 0x5302, (2, INVALID_LENGTH), **memory | {"size": 4097})
    for name, change in {"no such port": {"port": facts["no_port"]}, "no such LD": {"ld": 0xFFFE}}.items():
        check.bad(name, 0x5301, **register | change)
        check.bad(name, 0x5302, **memory | change)


def check_proxy(check):
    """Commands of a host for GFDs: threads are taken one by one, looked at and given back."""
    if check.host is None:
        return check.report("5809 to 580B", note="left out: no --host-connect")
    host, args, facts = check.host, check.args, {}
    check.good("threads", 0x5800, lambda found: facts.update(found), host, num=1)
    threads = facts.get("threads", 0)
    pids = [args.pid + 0x10 + at for at in range(threads + 1)]
    for pid in pids:
        check.good("allow", 0x5902, vcs=args.vcs, pid=pid, op=0)
    to = {"request": 0x1000, "size": 64, "response": 0x2000, "response_max": 64}
    for size in (0, 11, 1025):
        check.bad(f"{size} bytes", 0x5809, client=host, **to | {"pid": pids[0], "size": size})
    running = {}
    for left, pid in zip(range(threads - 1, -1, -1), pids, strict=False):

        def started(found, pid=pid, left=left):
            running[pid] = found["cmd_seq"]
            return "" if found["available"] == left else f"{found['available']} threads are left, not {left}"

        check.good("start", 0x5809, started, host, pid=pid, **to)
        taken = (2, RETRY, BUSY) if left else (2, RETRY, BUSY, EXHAUSTED)
        check.bad("second of one PID", 0x5809, taken, host, pid=pid, **to)
    check.bad("no thread is left", 0x5809, (EXHAUSTED,), host, pid=pids[-1], **to)
    for count, (pid, seq) in enumerate(running.items(), 1):
        named = {"pid": pid, "cmd_seq": seq}
        state = lambda found: "" if found["in_progress"] else f"{found}"  # noqa: E731
        check.good("status", 0x580A, state, host, **named)
        for opcode in (0x580A, 0x580B):
            check.bad("another CmdSeq", opcode, client=host, **named | {"cmd_seq": (seq + 1) % 8})
        check.good("cancel", 0x580B, equal("available", count), host, **named)

        def over(named=named):
            code, found = host.call(0x580A, **named)
            return "" if code == 2 or code == 0 and not found["in_progress"] else f"{code}: {found}"

        check.attempt("580a after the cancel", over, 0x580A)
    for pid in pids:
        check.good("disallow", 0x5902, vcs=args.vcs, pid=pid, op=1)


SECTIONS = {
    "device": check_device,
    "drt": check_drt,
    "rgt": check_rgt,
    "pids": check_pids,
    "binding": check_binding,
    "access": check_access,
    "crawl": check_crawl,
    "host": check_host,
    "secret": check_secret,
    "reset": check_reset,
    "mld": check_mld,
    "proxy": check_proxy,
}
