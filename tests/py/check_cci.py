#!/usr/bin/env python3
"""Drives a live switch or GFD over CCI: what it says of itself, who may command it, each command and refusal.

check_cci.py --connect PLACE --kind switch|gfd -> one line a check; exit 1 when one failed, 2 broke off.

Units: bytes; PIDs of 12 bits; seconds.
Source: docs/spec/wire-formats.md §4, §5.1, §5.2; docs/spec/cxl-fabric.md "The fabric manager", "Tables of an edge and
who may write them".

The component is fresh: no FM owns it. After each refused command all tables are read back and must be the same.
What the page leaves open, and what is chosen here:
- Who asks: a connection is one FM. The connection of a successful operation 0 is the primary's; operation 3 comes
  from another connection with the PID and UUID that operation 1 registered, and makes that connection the primary's.
- "Identify" that a non-owner may use is 0001 alone; 5700, 4900, 5100 are refused to it as all else is.
- Operation 2 gives the component another PID (the assigned PID); the FM's stays.
- Wrong length is told before anything else that is wrong, but after who may ask.
- An index, port, VCS, vPPB, operation or code out of range is Invalid Input also where the page has no rule.
- MCTP type 07 to a switch, 08 to a GFD (--mctp).
- Background commands may answer 0 or 1; their effect is waited for (--settle seconds).
- 570C to 5714, 58xx and 0109/010A are the host's: sent over --host-connect, left out (and said so) without it.
- Good requests that disturb or need somebody are sent where the command line names a place: 5102 to --reset-port,
  5300 to 5302 to --mld-port and its --mld-ld, 5809 to 580B for PIDs that the FM allows first; 5105 by the host.
- A second 5809 for one PID is refused by Busy, Retry Required or Invalid Input; 580A of a thread that was cancelled
  says that it is over, or Invalid Input. A command of 5809 has at most 1024 bytes (3.8), and at least a header.
- Commands that 4.2 names and nothing lays out, and those of the other kind of component, are Unsupported, and so are
  notifications (0107, 0108), which go from components to others.
- --complete: each command of this kind that is laid out must have been carried out, and have been refused, at least
  once (but --absent ones).
- --absent takes opcodes that the component need not have: they must answer Unsupported.
"""

import argparse
import json
import sys
import time

import cci
import cci_check_gfd
import cci_check_switch
from cci import COMMANDS, INVALID_INPUT, INVALID_LENGTH, PID_NONE, SUCCESS, UNSUPPORTED, CciError, Client

KINDS = {"switch": cci_check_switch, "gfd": cci_check_gfd}
MCTP = {"switch": cci.MCTP_FM_API, "gfd": cci.MCTP_COMPONENT}
UUIDS = {"first": bytes(range(0x10, 0x20)), "second": bytes(range(0x20, 0x30)), "stranger": bytes(range(0x30, 0x40))}
ALWAYS_ALLOWED = {0x0700, 0x0701}
NAMED_ONLY = (*range(0x5400, 0x540A), 0x5500, 0x5501, *range(0x5600, 0x5609))
NOTIFICATIONS = (0x0107, 0x0108)
OPERATIONS = {"register primary": 0, "register secondary": 1, "update PID": 2, "promote": 3}


class Counted(Client):
    """A client that notes which return codes each opcode was answered with."""

    def __init__(self, tally, *args):
        super().__init__(*args)
        self.tally = tally

    def exchange(self, opcode, payload=b""):
        answer = super().exchange(opcode, payload)
        self.tally.setdefault(opcode, set()).add(answer.return_code)
        return answer


class Checker:
    """Sends, judges and remembers."""

    def __init__(self, args, client, out=print):
        self.args, self.client, self.out = args, client, out
        self.kind = KINDS[args.kind]
        self.results, self.facts, self.reads = [], {}, [(0x0700, b"")]

    def report(self, name, problem="", note=""):
        """One line; no problem is ok."""
        self.results.append({"name": name, "ok": not problem, "problem": problem, "note": note})
        self.out(f"{name}: {problem or 'ok'}{f' ({note})' if note else ''}")

    def absent(self, opcode):
        """Whether the command line says that the component has no such command."""
        return opcode in self.args.absent

    def attempt(self, name, work, opcode=None):
        """Runs `work`, which returns what is wrong or nothing; what it raises is wrong too."""
        if opcode is not None and self.absent(opcode):
            return
        try:
            self.report(name, work() or "")
        except (CciError, cci.Refused, TimeoutError) as error:
            self.report(name, f"{type(error).__name__}: {error}")

    def snapshot(self, client):
        """Answers to all reads, bytes as they are."""
        return {(opcode, payload): client.raw(opcode, payload) for opcode, payload in self.reads}

    def refused(self, name, opcode, payload, codes=(INVALID_INPUT,), client=None):
        """A request that must be refused with one of `codes` and change nothing."""

        def work():
            before = self.snapshot(self.client)
            code, body = (client or self.client).raw(opcode, payload)
            after = self.snapshot(self.client)
            changed = sorted({f"{key[0]:04x}" for key in before if before[key] != after[key]})
            wrong = []
            if code not in codes:
                wrong.append(f"{cci.code_name(code)}, not {' or '.join(map(cci.code_name, codes))}")
            if body and code != SUCCESS:
                wrong.append(f"{len(body)} bytes of payload")
            if changed:
                wrong.append(f"changed what {', '.join(changed)} read")
            return "; ".join(wrong)

        self.attempt(f"{opcode:04x} {name}", work, opcode)

    def bad(self, name, opcode, codes=(INVALID_INPUT,), client=None, **values):
        """As `refused`, from values."""
        self.refused(name, opcode, COMMANDS[opcode].request.encode(**values), codes, client)

    def good(self, name, opcode, judge=None, client=None, **values):
        """A request that must succeed; `judge(values of the response)` says what is wrong with it."""
        row = COMMANDS[opcode]

        def work():
            code, found = (client or self.client).call(opcode, **values)
            if code != SUCCESS and not (row.background and code == cci.BACKGROUND_STARTED):
                return cci.code_name(code)
            return judge(found) if judge else ""

        self.attempt(f"{opcode:04x} {name}", work, opcode)

    def settle(self, name, work):
        """Waits until `work` finds nothing wrong."""

        def wait():
            end = time.monotonic() + self.args.settle
            while (problem := work()) and time.monotonic() < end:
                time.sleep(0.05)
            return problem

        self.attempt(name, wait)

    def lengths(self, samples):
        """Each command one byte too long and one too short."""
        for opcode, values in samples.items():
            payload = COMMANDS[opcode].request.encode(**values)
            self.refused("one byte too many", opcode, payload + b"\0", (INVALID_LENGTH,))
            if payload:
                self.refused("one byte too few", opcode, payload[:-1], (INVALID_LENGTH,))


def differences(found, want):
    """What is different of the fields that matter."""
    wrong = {name: value for name, value in want.items() if found.get(name) != value}
    return "; ".join(f"{name} is {show(found.get(name))}, not {show(value)}" for name, value in wrong.items())


def show(value):
    """A value as text."""
    return value.hex() if isinstance(value, bytes) else f"{value:#x}" if isinstance(value, int) else str(value)


def claim_values(args, who, operation, **other):
    """Values of Claim Ownership."""
    pids = {"first": args.fm_pid, "second": args.second_pid, "stranger": args.second_pid + 1}
    values = {"op": OPERATIONS[operation], "fm_pid": pids[who], "fm_uuid": UUIDS[who], "assigned_pid": args.assign}
    return values | other


def check_unowned(check, stranger):
    """Nobody owns the component: who may do what."""
    args = check.args
    none = {"primary_pid": PID_NONE, "secondary_pid": PID_NONE}
    check.good("of a fresh component", 0x0700, lambda found: differences(found, none))
    for opcode, values in check.kind.samples(args).items():
        if opcode not in ALWAYS_ALLOWED and not check.absent(opcode):
            check.bad("before Claim Ownership", opcode, (UNSUPPORTED,), **values)
    for op in ("register secondary", "update PID", "promote"):
        check.bad(f"{op} without a primary", 0x0701, **claim_values(args, "first", op))
    wrong = {"fm_pid": PID_NONE, "assigned_pid": PID_NONE, "op": 4}
    for name, other in ((name, {name: value}) for name, value in wrong.items()):
        check.bad(f"{name} out of range", 0x0701, **claim_values(args, "first", "register primary", **other))
    check.lengths({0x0700: {}, 0x0701: claim_values(args, "first", "register primary")})
    own = {"primary_pid": args.fm_pid, "primary_uuid": UUIDS["first"], "secondary_pid": PID_NONE}
    values = claim_values(args, "first", "register primary")
    check.good("register primary", 0x0701, lambda found: differences(found, own), **values)
    check.good("after register primary", 0x0700, lambda found: differences(found, own | {"pid": args.assign}))
    for opcode, values in check.kind.samples(args).items():
        if opcode not in ALWAYS_ALLOWED and not check.absent(opcode):
            check.bad("from another FM", opcode, (UNSUPPORTED,), stranger, **values)


def check_owned(check, stranger):
    """The primary is registered: the refused cases, a secondary, another PID."""
    args = check.args
    check.bad("register primary again", 0x0701, **claim_values(args, "first", "register primary"))
    wrong = [("stranger", op) for op in ("register primary", "update PID", "promote")]
    for who, op in (*wrong, ("second", "register secondary"), ("second", "promote")):
        check.bad(f"{op} from another FM", 0x0701, client=stranger, **claim_values(args, who, op))
    other = args.assign + 1
    check.good("update PID", 0x0701, None, **claim_values(args, "first", "update PID", assigned_pid=other))
    check.good("after update PID", 0x0700, lambda found: differences(found, {"pid": other, "primary_pid": args.fm_pid}))
    check.good("update PID back", 0x0701, None, **claim_values(args, "first", "update PID"))
    check.bad("update PID to FFF", 0x0701, **claim_values(args, "first", "update PID", assigned_pid=PID_NONE))
    check.bad("register secondary FFF", 0x0701, **claim_values(args, "second", "register secondary", fm_pid=PID_NONE))
    both = {"primary_pid": args.fm_pid, "secondary_pid": args.second_pid, "secondary_uuid": UUIDS["second"]}
    values = claim_values(args, "second", "register secondary")
    check.good("register secondary", 0x0701, lambda found: differences(found, both), **values)
    check.good("after register secondary", 0x0700, lambda found: differences(found, both | {"pid": args.assign}))
    check.bad("register secondary again", 0x0701, **claim_values(args, "stranger", "register secondary"))
    check.bad("promote from the primary", 0x0701, **claim_values(args, "first", "promote"))
    check.bad("promote from a stranger", 0x0701, client=stranger, **claim_values(args, "stranger", "promote"))


def check_common(check):
    """CDAT and opcodes that do not exist."""
    pid = check.args.assign

    def judge(found):
        return "" if found["count"] <= 16 else f"asked for 16, got {found['count']}"

    check.good("of the component itself", 0x0702, judge, pid=pid, start=0, count=16)
    check.bad("of PID FFF", 0x0702, pid=PID_NONE, start=0, count=16)
    check.bad("behind the end", 0x0702, pid=pid, start=1 << 40, count=16)
    check.lengths({0x0702: {"pid": pid, "count": 16}})
    for opcode in (0x57FF, 0x49FF, 0xF000):
        check.refused("does not exist", opcode, b"", (UNSUPPORTED,))


def check_others(check):
    """What is named and not laid out, what others have, and what is no command."""
    others = [kind.samples(check.args) for name, kind in KINDS.items() if name != check.args.kind]
    rest = [*NAMED_ONLY, *NOTIFICATIONS, *(opcode for sample in others for opcode in sample)]
    for opcode in rest:
        row = COMMANDS.get(opcode)
        values = next((sample[opcode] for sample in others if opcode in sample), {})
        payload = row.request.encode(**values) if row else b""
        check.refused("is not of this component", opcode, payload, (UNSUPPORTED,))


def check_complete(check, tally):
    """Each command of this kind was carried out, and was refused."""
    done = {SUCCESS, cci.BACKGROUND_STARTED}
    wanted = {0x0700, 0x0701, 0x0702, *check.kind.samples(check.args), *check.kind.HOST_COMMANDS}
    for opcode in sorted(wanted - check.args.absent):
        codes = tally.get(opcode, set())
        wrong = [] if codes & done else ["never carried out"]
        wrong += [] if codes - done else ["never refused"]
        check.report(f"{opcode:04x} complete", " and ".join(wrong))


def check_takeover(check, second):
    """The secondary becomes primary; tables stay as they are."""
    args = check.args

    def work():
        before = check.snapshot(check.client)
        found = second.get(0x0701, **claim_values(args, "second", "promote"))
        want = {"primary_pid": args.second_pid, "primary_uuid": UUIDS["second"], "secondary_pid": PID_NONE}
        wrong = differences(found, want)
        after = check.snapshot(second)
        changed = sorted({f"{key[0]:04x}" for key in before if key[0] != 0x0700 and before[key] != after[key]})
        if changed:
            wrong += f"; changed what {', '.join(changed)} read"
        opcode, values = next(iter(check.kind.samples(args).items()))
        code, _ = check.client.call(opcode, **values)
        if code != UNSUPPORTED:
            wrong += f"; {opcode:04x} of the former primary: {cci.code_name(code)}"
        return wrong

    check.attempt("0701 promote", work)


def absent_problem(check, opcode, values):
    """A command that is not there answers Unsupported."""
    code, _ = check.client.raw(opcode, COMMANDS[opcode].request.encode(**values))
    return "" if code == UNSUPPORTED else cci.code_name(code)


def run(args, out=print):
    """All checks; the list of results."""
    clients, tally = [], {}

    def connect(place, mctp=None):
        host, port = cci.place(place)
        clients.append(Counted(tally, host, port, mctp or args.mctp or MCTP[args.kind], args.timeout))
        return clients[-1]

    try:
        check = Checker(args, connect(args.connect), out)
        stranger = connect(args.connect)
        check.host = connect(args.host_connect) if args.host_connect else None
        check_unowned(check, stranger)
        check_owned(check, stranger)
        check.facts = check.kind.learn(check)
        check.reads = [(0x0700, b""), *check.kind.reads(check)]
        if check.args.only is None:
            check_common(check)
            check_others(check)
            check.lengths(check.kind.samples(args, check.facts))
        for opcode in sorted(args.absent):
            values = check.kind.samples(args, check.facts).get(opcode, {})
            check.attempt(f"{opcode:04x} is absent", lambda op=opcode, v=values: absent_problem(check, op, v))
        for name, section in check.kind.SECTIONS.items():
            if check.args.only is None or name in check.args.only:
                section(check)
        check_takeover(check, stranger)
        if args.complete:
            check_complete(check, tally)
        return check.results
    finally:
        for client in clients:
            client.close()


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    number = lambda text: int(text, 0)  # noqa: E731
    codes = lambda text: {int(part, 16) for part in text.split(",") if part}  # noqa: E731
    names = lambda text: set(text.split(","))  # noqa: E731
    parser.add_argument("--connect", required=True, metavar="PLACE", help="HOST:PORT or unix:PATH")
    parser.add_argument("--kind", required=True, choices=KINDS)
    parser.add_argument("--json", action="store_true", help="results as JSON instead of lines")
    parser.add_argument("--host-connect", metavar="PLACE", help="where the host's GAE and LDST commands go")
    parser.add_argument("--absent", type=codes, default=set(), metavar="OPCODES", help="hexadecimal, with commas")
    sections = ", ".join(section for kind in KINDS.values() for section in kind.SECTIONS)
    parser.add_argument("--only", type=names, help=f"sections besides ownership: {sections}")
    parser.add_argument("--complete", action="store_true", help="each command must have been carried out and refused")
    parser.add_argument("--mctp", type=number)
    parser.add_argument("--timeout", type=float, default=5)
    parser.add_argument("--settle", type=float, default=5, help="for background commands")
    for name, value, text in (
        ("fm-pid", 0x001, "PID of the first FM"),
        ("second-pid", 0x002, "PID of the secondary FM"),
        ("assign", 0x010, "PID for the component; it and the next are free"),
        ("pid", 0x123, "a PID nobody has, for entries; it and the next are free"),
        ("vcs", 0, "a VCS"),
        ("vppb", 0, "an unbound vPPB of it"),
        ("ld", 0xFFFF, "LD of Bind vPPB"),
        ("unbind-option", 0, "option of Unbind vPPB, which the page does not list"),
        ("bind-port", None, "port to bind; without it 5201 and 5202 are only refused"),
        ("reset-port", None, "port to reset; without it 5102 is only refused"),
        ("mld-port", None, "port with an MLD; without it 5300 to 5302 are only refused"),
        ("mld-ld", 0, "one of its LDs, whose memory's first bytes may be written"),
        ("crawl-port", None, "port with a PBR component behind it"),
        ("group", 1, "memory group of a GFD"),
        ("region", 0, "DC region of a GFD"),
    ):
        parser.add_argument(f"--{name}", type=number, default=value, help=f"{text} ({value})")
    return parser


def main(argv=None):
    args = options().parse_args(argv)
    try:
        results = run(args, (lambda line: None) if args.json else print)
    except (OSError, CciError, cci.Refused) as error:
        print(f"broke off: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    failed = [row for row in results if not row["ok"]]
    if args.json:
        print(json.dumps({"checks": len(results), "failed": len(failed), "results": results}, indent=1))
    else:
        print(f"{len(results) - len(failed)} of {len(results)} checks ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
