"""Tests of check_cci.py itself: a toy switch that obeys passes, one that breaks a rule is caught by the right check.

Toy keeps ownership and one DRT; a fault is one rule it breaks.

Units: bytes.
Source: docs/spec/wire-formats.md §4.4, §4.5.
"""

import json
import socketserver
import threading

import pytest

import cci
import check_cci

LEARNT = bytes([0, 0, 4, 1, 0xF]) + bytes(31) + b"\x01" + bytes(31) + bytes([1, 0, 1, 0, 1])
NONE = b"\xff\x0f" + bytes(16)
SIZES = {0x0700: 0, 0x0701: 21, 0x5700: 0, 0x5100: 0, 0x5703: 4, 0x5708: 6}
ABSENT = (
    "5101,5102,5103,5104,5105,5106,5107,5200,5201,5202,5300,5301,5302,5701,5702,5704,"
    "5705,5706,5707,570a,570b,5715,5716,5900,5901,5902,5903,5904,c510,0702"
)


class Toy:
    """A switch of four ports with a DRT; each command is judged and answered by hand."""

    def __init__(self, fault):
        self.fault, self.pid, self.drt = fault, b"\xff\x0f", bytearray(8192)
        self.primary, self.secondary, self.owner, self.former = NONE, NONE, None, None

    def answer(self, who, opcode, body):
        if self.fault == "yes":
            return 0, cci.COMMANDS[opcode].response.encode() if opcode in cci.COMMANDS else b""
        owns = who is self.owner or self.fault == "two owners" and who is self.former
        if opcode not in (0x0700, 0x0701) and not owns and self.fault != "open to all":
            return 3, b""
        if opcode == 0x5709:
            size = 6 + 2 * int.from_bytes(body[2:4], "little")
        elif opcode not in SIZES:
            return 3, b""
        else:
            size = SIZES[opcode]
        if len(body) != size and not (self.fault == "long" and opcode == 0x5709):
            return 0x16, b""
        return getattr(self, f"do_{opcode:04x}")(who, body)

    def do_0700(self, who, body):
        return 0, self.pid + self.primary + self.secondary

    def do_0701(self, who, body):
        op, fm, assigned = body[0], body[1:19], body[19:]
        if op > 3 or b"\xff\x0f" in (fm[:2], assigned):
            return 2, b""
        if op == 0 and (self.owner is None or self.fault == "stolen"):
            self.primary, self.pid, self.owner = fm, assigned, who
        elif op == 1 and who is self.owner and who and self.secondary == NONE:
            self.secondary = fm
        elif op == 2 and who is self.owner and who:
            self.pid = assigned
        elif op == 3 and fm == self.secondary != NONE:
            self.primary, self.secondary = self.secondary, NONE
            self.former = self.owner
            self.owner = who if self.fault != "old owner" else self.owner
        else:
            return 2, b""
        return 0, self.primary + self.secondary

    def do_5700(self, who, body):
        return 0, bytes(8) + b"\x01\x00\x00\x01"

    def do_5100(self, who, body):
        return 0, LEARNT

    def do_5703(self, who, body):
        return 0, bytes(4)

    def do_5708(self, who, body):
        num, start = int.from_bytes(body[2:4], "little"), int.from_bytes(body[4:6], "little")
        if body[0] or start + num > 4096:
            return 2, b""
        return 0, body + bytes(2) + bytes(self.drt[2 * start : 2 * (start + num)])

    def do_5709(self, who, body):
        num, start = int.from_bytes(body[2:4], "little"), int.from_bytes(body[4:6], "little")
        if body[0] or start + num > 4096:
            return 2, b""
        for at in range(min(num, len(body) // 2 - 3)):
            kind, port = body[6 + 2 * at : 8 + 2 * at]
            if kind == 3 or kind == 1 and port > 3:
                return 2, b""
            if self.fault == "half set":
                self.drt[2 * (start + at) : 2 * (start + at) + 2] = bytes([kind, port])
        if self.fault != "not stored":
            self.drt[2 * start : 2 * (start + num)] = body[6 : 6 + 2 * num]
        return 0, b""


@pytest.fixture
def toy():
    """Starts a toy with a fault on loopback; gives its port."""
    servers = []

    def start(fault):
        state = Toy(fault)

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                while len(head := self.rfile.read(2)) == 2:
                    data = self.rfile.read(int.from_bytes(head, "little"))
                    opcode = int.from_bytes(data[4:6], "little")
                    code, body = state.answer(self, opcode, data[13:])
                    out = data[:1] + b"\x01" + data[2:6] + len(body).to_bytes(3, "little") + bytes([code, 0, 0, 0]) + body
                    self.wfile.write(len(out).to_bytes(2, "little") + out)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server.server_address[1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


# the rule that the toy breaks, what a failed check is called
FAULTS = [
    ("", None),
    ("open to all", "5700 before Claim Ownership"),
    ("stolen", "0701 register primary again"),
    ("old owner", "0701 promote"),
    ("two owners", "0701 promote"),
    ("long", "5709 fewer entries than sent"),
    ("half set", "5709 no such port behind a good entry"),
    ("not stored", "5708 entries reads back"),
]


@pytest.mark.parametrize(("fault", "caught"), FAULTS, ids=[row[0] or "none" for row in FAULTS])
def test_a_broken_rule_is_caught_by_name(toy, capsys, fault, caught):
    words = ["--connect", f"127.0.0.1:{toy(fault)}", "--kind", "switch", "--only", "drt", "--json", "--absent"]
    code = check_cci.main([*words, ABSENT])
    out = json.loads(capsys.readouterr().out)
    failed = [row for row in out["results"] if not row["ok"]]
    assert (code, bool(failed)) == ((1, True) if caught else (0, False)), failed
    assert out["checks"] > 50 and out["failed"] == len(failed)
    assert caught is None or caught in [row["name"] for row in failed], failed


@pytest.mark.parametrize("kind", check_cci.KINDS)
def test_a_component_that_says_yes_to_all_fails_every_refusal(toy, capsys, kind):
    place = f"127.0.0.1:{toy('yes')}"
    assert check_cci.main(["--connect", place, "--kind", kind, "--json", "--settle", "0", "--host-connect", place]) == 1
    rows = json.loads(capsys.readouterr().out)["results"]
    lengths = [row for row in rows if "one byte too" in row["name"]]
    assert len(lengths) > 40 and not any(row["ok"] for row in lengths)
    assert len(rows) > 150 and not any("Unsupported" in row["problem"] and row["ok"] for row in rows)


def test_a_command_that_was_never_sent_is_named(toy, capsys):
    words = ["--connect", f"127.0.0.1:{toy('')}", "--kind", "switch", "--only", "drt", "--json", "--complete"]
    assert check_cci.main([*words, "--absent", ABSENT]) == 1
    rows = json.loads(capsys.readouterr().out)["results"]
    failed = {row["name"]: row["problem"] for row in rows if not row["ok"]}
    assert failed["5809 complete"] == "never carried out and never refused"
    assert not failed.keys() & {"0701 complete", "5708 complete", "5709 complete"}, failed


def test_no_component_is_said(capsys):
    assert check_cci.main(["--connect", "127.0.0.1:1", "--kind", "gfd"]) == 2
    assert "broke off" in capsys.readouterr().err
