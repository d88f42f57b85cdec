"""Managers that speak MCTP command a running switch: what works, who is fenced, and what hostile neighbours get.

Pytest; `weft run` with ports that lead nowhere, on loopback.

Units: seconds.
Source: docs/mctp.md; DMTF DSP0236 8, 11, 12.
"""

import os
import re
import select
import struct
import subprocess
import time

import pytest

import mctp
import mctplive
import weftlive
from mctp import CCI, FM_API, Bus
from mctpswitch import PlainSwitch

UUID = bytes.fromhex("5ed8a1c0000040008000000000000001")
FIRST = 'cci_owner = "first"'
UPDATE = 2
PRELOAD = os.path.join(weftlive.ROOT, "tools", "mctp_preload")
DROP_TIMEOUT_S = 30  # a half message has 10 s
ALL_PORTS = bytes([4, 0, 1, 2, 3])
VCS_0 = bytes([0, 255, 1, 0])


def wait_for_bridge(bus, vppb, want):
    """Waits until a bridge of virtual switch 0 is as wanted."""
    end = time.monotonic() + 20
    while True:
        code, payload = bus.cci(0x5200, VCS_0)
        assert code == mctp.SUCCESS
        bridge = mctp.vcs_info(payload)[0][2][vppb]
        if bridge == want:
            return
        assert time.monotonic() < end, bridge
        time.sleep(0.01)


def closed_by_the_switch(bus):
    """Waits until the switch closes a connection."""
    ready, _, _ = select.select([bus.sock], [], [], DROP_TIMEOUT_S)
    return bool(ready) and bus.packet() is None


@pytest.fixture(name="first", scope="module")
def a_switch_that_the_first_owns():
    """One that whoever connects commands."""
    with mctplive.Switch(FIRST) as switch:
        yield switch


def test_a_manager_enumerates_and_binds(first):
    """Control messages, identify, ports, virtual switches, bind, unbind, as managers of others begin."""
    bus = Bus(first.mctp)
    assert bus.control(mctp.GET_EID) == (0, bytes([0, 0, 0]) + bytes(57))
    assert bus.control(mctp.SET_EID, bytes([0, 12]))[1][:3] == bytes([0, 12, 0])
    bus.dest = 12
    assert bus.control(mctp.GET_EID)[1][:3] == bytes([12, 0, 0])
    assert bus.control(mctp.GET_UUID)[1][:16] == UUID
    for kind in (0xFF, 0):
        code, versions = bus.control(mctp.GET_VERSIONS, bytes([kind]))
        assert (code, versions[0], versions[13:17]) == (0, 4, bytes.fromhex("f1f3f100"))
    for kind in (FM_API, CCI):
        code, versions = bus.control(mctp.GET_VERSIONS, bytes([kind]))
        assert (code, versions[:5]) == (0, bytes([1, 0xF1, 0xF0, 0xF0, 0]))
    assert bus.control(mctp.GET_TYPES)[1][:3] == bytes([2, FM_API, CCI])

    for kind in (FM_API, CCI):  # both lead to the switch
        code, identity = bus.cci(0x5100, kind=kind)
        assert (code, len(identity), identity[2], identity[3]) == (0, 73, 4, 1)
        assert identity[4] == 0b1111
    code, states = bus.cci(0x5101, ALL_PORTS)
    assert (code, states[0], len(states)) == (0, 4, 4 + 4 * 16)
    assert [states[4 + 16 * n + 1] for n in range(4)] == [4, 3, 3, 5]
    code, payload = bus.cci(0x5200, VCS_0)
    state, usp, vppbs = mctp.vcs_info(payload)[0]
    assert (code, state, usp, len(vppbs)) == (0, 1, 0, 4)
    assert vppbs[1:] == [(0, 255, 255)] * 3

    assert bus.cci(0x5201, struct.pack("<BBBBH", 0, 1, 1, 0, 0xFFFF))[0] in (mctp.SUCCESS, mctp.BACKGROUND)
    wait_for_bridge(bus, 1, (2, 1, 255))
    assert bus.cci(0x5201, struct.pack("<BBBBH", 0, 2, 1, 0, 0xFFFF))[0] == mctp.INVALID_INPUT
    assert bus.cci(0x5202, bytes([0, 1, 1]))[0] in (mctp.SUCCESS, mctp.BACKGROUND)
    wait_for_bridge(bus, 1, (0, 255, 255))
    bus.close()


@pytest.mark.parametrize(
    ("command", "data", "code"),
    [
        ("set without an EID", bytes([mctp.SET_EID, 0, 0]), 2),
        ("set to broadcast", bytes([mctp.SET_EID, 0, 255]), 2),
        ("reset", bytes([mctp.SET_EID, 2, 9]), 2),
        ("discovered flag", bytes([mctp.SET_EID, 3, 9]), 2),
        ("versions of PLDM", bytes([mctp.GET_VERSIONS, 1]), 0x80),
        ("vendor messages", bytes([6, 0]), 5),
        ("a command that does not exist", bytes([0xEE]), 5),
        ("two packets", bytes([mctp.GET_EID]) + bytes(64), 3),
    ],
)
def test_control_messages_are_refused_by_code(first, command, data, code):
    """DSP0236 table 13: completion codes."""
    bus = Bus(first.mctp)
    assert bus.control(data[0], data[1:])[0] == code, command
    assert bus.control(mctp.GET_EID)[0] == 0
    bus.close()


def test_an_endpoint_with_an_eid_is_not_called_by_another():
    """Each connection is a bus of its own; broadcast and null reach it anyhow."""
    with mctplive.Switch(FIRST) as switch:
        bus, other = Bus(switch.mctp), Bus(switch.mctp)
        bus.dest = 77  # not given an EID yet: it is whoever it is called
        assert bus.control(mctp.SET_EID, bytes([1, 20]))[0] == 0
        bus.send(*mctp.split(bytes([0, 0x81, mctp.GET_EID]), dest=21))
        bus.dest = 20
        assert bus.control(mctp.GET_EID)[1][0] == 20, "and nothing came from 21"
        bus.send(*mctp.split(bytes([0, 0x81, mctp.GET_EID]), dest=255, tag=3))
        assert bus.receive()[2]["source"] == 20
        assert other.control(mctp.GET_EID)[1][0] == 0
        assert switch.counts()["other_eid"] == 1


def test_two_connections_are_one_manager():
    """Whoever claims by one connection owns by all of this listener, and as long as there is one."""
    with mctplive.Switch() as switch:
        bus, other = Bus(switch.mctp), Bus(switch.mctp)
        assert bus.cci(0x5100)[0] == other.cci(0x5100)[0] == mctp.UNSUPPORTED
        assert bus.cci(0x0701, mctplive.claim(mctplive.CLAIM), kind=CCI)[0] == mctp.SUCCESS
        assert bus.cci(0x5100)[0] == other.cci(0x5100)[0] == mctp.SUCCESS
        bus.close()
        third = Bus(switch.mctp)
        assert third.cci(0x5100)[0] == other.cci(0x5100)[0] == mctp.SUCCESS
        third.close()
        other.close()
        end = time.monotonic() + 20
        while switch.counts()["open"]:
            assert time.monotonic() < end, switch.counts()
            time.sleep(0.02)
        again = Bus(switch.mctp)
        assert again.cci(0x5100)[0] == mctp.UNSUPPORTED, "the manager has gone"
        assert again.cci(0x0701, mctplive.claim(UPDATE))[0] == mctp.SUCCESS, "and is here again"
        assert again.cci(0x5100)[0] == mctp.SUCCESS


def test_the_first_owns_until_a_manager_claims():
    """The session without a claim commands, is fenced on all its connections, and cannot take the switch back."""
    with mctplive.Switch(FIRST) as switch:
        bus, other = Bus(switch.mctp), Bus(switch.mctp)
        assert bus.cci(0x5100)[0] == other.cci(0x5100)[0] == mctp.SUCCESS
        assert bus.cci(0x0701, mctplive.claim(mctplive.CLAIM))[0] == mctp.UNSUPPORTED, "it has no claim of its own"
        assert switch.show()["primary"] is None
        keep, code = mctplive.claim_elsewhere(switch.cci)
        assert code == mctp.SUCCESS
        late = Bus(switch.mctp)
        for fenced in (bus, other, late):
            assert fenced.cci(0x5100)[0] == mctp.UNSUPPORTED
            assert fenced.cci(0x5201, struct.pack("<BBBBH", 0, 1, 1, 0, 0xFFFF))[0] == mctp.UNSUPPORTED
            assert fenced.cci(0x0701, mctplive.claim(UPDATE))[0] == mctp.UNSUPPORTED, "also in the owner's name"
            code, identity = fenced.cci(0x0700)
            assert (code, mctplive.FM_UUID in identity) == (mctp.SUCCESS, False)
            assert fenced.cci(0x0001)[0] == mctp.SUCCESS
        keep.close()
        assert late.cci(0x5100)[0] == mctp.UNSUPPORTED, "who has claimed may come back"


def test_answers_go_to_the_connection_that_asked(first):
    """A request that waits for a component elsewhere is answered on its own connection and tag, and others go on."""
    bus, other = Bus(first.mctp), Bus(first.mctp)
    # Fabric Crawl Out to whoever is behind port 3: nobody answers, which is noticed after a second.
    inner = mctp.cci(0x0001, b"", 1)
    tunnel = struct.pack("<HBBH", 3, 0, 0, len(inner)) + inner
    bus.send(*mctp.split(bytes([FM_API]) + mctp.cci(0x5701, tunnel, 9), dest=5, tag=6))
    asked = 0
    while not select.select([bus.sock], [], [], 0)[0]:
        assert other.cci(0x0001)[0] == mctp.SUCCESS
        asked += 1
    kind, body, fields = bus.receive()
    assert (kind, fields["tag"], fields["source"], fields["owner"]) == (FM_API, 6, 5, False)
    category, tag, opcode, code, _ = mctp.parse_cci(body)
    assert (category, tag, opcode) == (1, 9, 0x5701) and code != mctp.SUCCESS
    assert asked > 0, f"code {code} at once: nothing was awaited"
    bus.close()
    other.close()


# What a neighbour may send, and the count that it appears in; a good request on the same connection is answered after it.
IDENTIFY = bytes([FM_API]) + mctp.cci(0x0001, b"", 1)
LONG = bytes([FM_API]) + mctp.cci(0x0001, bytes(200), 2)
HOSTILE = {
    "wrong version": ("version", [mctp.head(version=2) + bytes(64)]),
    "no SOM": ("orphans", [mctp.head(som=False) + bytes(64)]),
    "sequence lost": ("out_of_order", [packet for at, packet in enumerate(mctp.split(LONG, tag=5)) if at != 1]),
    "a packet twice": ("out_of_order", [packet for packet in mctp.split(LONG, tag=5)[:2] for _ in range(2)]),
    "SOM in a message": ("restarted", [mctp.split(LONG, tag=5)[0]] * 2),
    "unknown type": ("unknown_type", mctp.split(bytes([0x70]) + bytes(20))),
    "integrity check": ("unknown_type", mctp.split(bytes([0x87]) + IDENTIFY[1:])),
    "an answer": ("no_request", mctp.split(IDENTIFY, owner=False)),
    "a CCI response": ("no_request", mctp.split(bytes([FM_API]) + mctp.cci(0x0001, category=1))),
    "a control response": ("no_request", mctp.split(bytes([0, 1, 2, 0]))),
    "no CCI header": ("no_request", mctp.split(bytes([FM_API, 3]))),
    "too long": ("too_long", [mctp.head(eom=False, som=n == 0, seq=n % 4, tag=4) + bytes(64) for n in range(1025)]),
    "a flood of tags": (
        "no_room",
        [mctp.head(source=n, eom=False, tag=n % 8) + bytes(64) for n in range(64)],
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_makes_no_sense_is_dropped_and_counted(first, name):
    """DSP0236 8.1.5: dropped, without an answer; the connection goes on, and so do others."""
    count, packets = HOSTILE[name]
    bus, other = Bus(first.mctp), Bus(first.mctp)
    before = first.counts()[count]
    bus.send(*packets)
    assert other.cci(0x0001)[0] == mctp.SUCCESS
    assert bus.cci(0x0001)[0] == mctp.SUCCESS, "and nothing else was answered"
    assert first.counts()[count] > before
    bus.close()
    other.close()


def test_lengths_that_do_not_fit_are_refused(first):
    """The length of the CCI header is held against the number of packets."""
    bus = Bus(first.mctp)
    for told, sent in ((200, 3), (0, 100), (0x1FFFFF, 0)):
        bus.send(*mctp.split(bytes([FM_API]) + mctp.cci(0x0001, bytes(sent), 7, length=told), dest=0, tag=2))
        _, body, _ = bus.receive()
        assert mctp.parse_cci(body)[3] == mctp.BAD_LENGTH, (told, sent)
    bus.close()


def test_half_of_anything_is_sent_away_and_others_go_on(first):
    """Half a packet, half a message, packets without sense, and nothing at all: 10 s, and who works stays."""
    works = Bus(first.mctp)
    assert works.cci(0x0001)[0] == mctp.SUCCESS
    silent, packet, message, senseless = (Bus(first.mctp) for _ in range(4))
    packet.send(mctp.head()[:3])
    message.send(mctp.split(LONG)[0])
    senseless.send(mctp.head(version=5) + bytes(64))
    end = time.monotonic() + DROP_TIMEOUT_S
    waiting = {bus.sock: bus for bus in (silent, packet, message, senseless)}
    while waiting:
        assert time.monotonic() < end, f"{len(waiting)} are still connected"
        assert works.cci(0x0001)[0] == mctp.SUCCESS
        for sock in select.select(list(waiting), [], [], 0.2)[0]:
            assert waiting.pop(sock).packet() is None
    assert first.counts()["overdue"] >= 4
    assert first.counts()["timed_out"] >= 1
    works.close()


def test_connections_beyond_the_limit_do_not_keep_managers_out(first):
    """Who says nothing takes no place of who has asked; of those, who was served longest ago goes for a new one."""
    works = Bus(first.mctp)
    assert works.cci(0x0001)[0] == mctp.SUCCESS
    crowd = [Bus(first.mctp) for _ in range(100)]
    late = Bus(first.mctp)
    assert late.cci(0x0001)[0] == mctp.SUCCESS
    assert works.cci(0x0001)[0] == mctp.SUCCESS
    counts = first.counts()
    assert counts["open"] <= 32 and counts["evicted"] + counts["refused"] >= 70, counts
    for bus in crowd:
        bus.close()
    askers = []
    for _ in range(20):
        askers.append(Bus(first.mctp))
        assert askers[-1].cci(0x0001)[0] == mctp.SUCCESS
    assert closed_by_the_switch(works), "the one that was served longest ago"
    for bus in [late, *askers]:
        bus.close()


def test_packets_may_be_cut_anywhere_and_interleaved(first):
    """Bytes come as TCP brings them; messages of other tags and EIDs may stand between packets of one."""
    bus = Bus(first.mctp)
    one = mctp.split(bytes([FM_API]) + mctp.cci(0x5101, ALL_PORTS + bytes(0), 1), tag=1)
    long = mctp.split(bytes([FM_API]) + mctp.cci(0x5101, bytes([100]) + bytes(100), 2), tag=2)
    for byte in b"".join([long[0], *one, *long[1:]]):
        bus.send(bytes([byte]))
    got = {}
    for _ in range(2):
        _, body, fields = bus.receive()
        got[fields["tag"]] = mctp.parse_cci(body)[1:4]
    assert got == {1: (1, 0x5101, 0), 2: (2, 0x5101, 0)}
    bus.close()


@pytest.mark.parametrize("framing", ["mctp", "length"])
def test_a_plain_switch_is_shown_and_bound(framing):
    """`weft fm --hbr` with a switch that knows 5100h, 5101h, 5200h to 5203h alone."""
    with PlainSwitch(framing) as switch:
        scheme = "mctp" if framing == "mctp" else "tcp"
        peer = f"{scheme}:{switch.address[0]}:{switch.address[1]}"

        def fm(*words):
            command = [weftlive.weft(), "fm", "--hbr", peer, *words]
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

        shown = fm()
        assert shown.returncode == 0, shown.stderr
        assert "4 ports, 1 virtual switches, 0 of 3 vPPBs bound; asked by port 2" in shown.stdout
        assert "VCS 0 of port 0" in shown.stdout and shown.stdout.count("unbound") == 3
        bound = fm("bind", "0/2", "port:3")
        assert (bound.returncode, bound.stdout) == (0, "vPPB 2 of VCS 0 is bound to port 3\n"), bound.stderr
        assert switch.bound == {2: 3}
        data = fm("topology", "--json").stdout
        assert '"port": 3' in data and '"vppbs_bound": 1' in data
        refused = fm("bind", "0/2", "port:1")
        assert refused.returncode != 0 and "Invalid Input" in refused.stderr
        assert fm("unbind", "0/2").returncode == 0 and switch.bound == {}
        told = fm("aer", "0/2", "malformed-tlp", "--tlp", "40000001" + "0000000f")
        assert (told.returncode, told.stdout) == (0, "vPPB 2 of VCS 0 reports the error malformed-tlp\n"), told.stderr
        assert switch.errors == [(2, 1 << 18, "400000010000000f" + "00" * 24)]
        unknown = fm("aer", "0/2", "internal")
        assert unknown.returncode != 0 and "Invalid Input" in unknown.stderr
        assert set(switch.asked) == {0x5100, 0x5101, 0x5200, 0x5201, 0x5202, 0x5203}, "and nothing else"


def test_weft_is_a_plain_switch_to_its_own_command(first):
    """`weft fm --hbr` with weft's own switch, which answers the same commands."""
    peer = f"mctp:{first.mctp[0]}:{first.mctp[1]}"

    def fm(*words):
        command = [weftlive.weft(), "fm", "--hbr", peer, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert "4 ports, 1 virtual switches" in fm().stdout
    bound = fm("bind", "0/3", "port:2")
    assert bound.returncode == 0, bound.stderr
    shown = fm("topology").stdout
    assert re.search(r"^3 +port +2 +-$", shown, re.MULTILINE), shown
    assert fm("unbind", "0/3").returncode == 0
    assert fm("aer", "0/3", "completion-timeout").returncode == 0
    refused = fm("aer", "0/3", "ecrc")
    assert refused.returncode != 0 and "Invalid Input" in refused.stderr


def test_programs_with_mctp_sockets_reach_the_switch(first, tmp_path):
    """A program that opens AF_MCTP sockets, by the preload library, on a kernel without them."""
    library, program = str(tmp_path / "mctp_preload.so"), str(tmp_path / "identify")
    flags = ["-Wall", "-Wextra", "-Werror", "-O2"]
    source = [os.path.join(PRELOAD, name) for name in ("mctp_preload.c", "identify.c")]
    build = [mctplive.compiler(), *flags, "-shared", "-fPIC", "-o", library, source[0], "-ldl", "-lpthread"]
    subprocess.run(build, check=True)
    subprocess.run([mctplive.compiler(), *flags, "-D_FORTIFY_SOURCE=2", "-o", program, source[1]], check=True)
    host, port = first.mctp
    env = {**os.environ, "LD_PRELOAD": library, "WEFT_MCTP": f"{host}:{port}"}
    done = subprocess.run([program, "0x1d"], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["0001 type 8", "5100 type 7", "5201 type 7"], done.stdout
    assert "code 0, 18 bytes" in lines[0] and "code 0, 73 bytes: 00 00 04 01 0f" in lines[1], done.stdout
    assert "code 2, 0 bytes" in lines[2], done.stdout
    # Nobody there: the program is told as by any socket.
    env["WEFT_MCTP"] = "127.0.0.1:1"
    none = subprocess.run([program], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert none.returncode == 1 and "sendto: Connection refused" in none.stderr, none.stderr
