"""Incast 7:1 into a slower output through `weft run`: lossless with PFC, and the same load without it.

Seven `weft traffic` hosts that honour PFC, one that checks sequence numbers; captures held by check_pfc.py.

Units: frames; bytes without FCS; cells.
Source: docs/spec/pipeline.md §4, §9; IEEE 802.1Q 36.
"""

import json
import subprocess

import pytest

import check_pfc
import weftlive
from weftlive import FIRST, Rig, assert_lossless, plug, tool, weft
from weftpcap import read_capture

MISSING = weftlive.missing()
SENDERS = range(1, 8)
RECEIVER = 8
PRI = 2
FRAMES = 15_000  # of each sender
SIZE = 700
RATE = "60Mbps"  # of each sender: 420 Mbit/s to an output of 100
TIMEOUT_S = 60
# All these processes share the machine's cores: headroom also takes what waits in the kernel meanwhile.
# Each PFC frame is to be one of a threshold: those of the pause guard are tested elsewhere.
CONFIG = """
[run]
pause_guard = false
[pfc]
pfc_enabled = {pfc}
pfc_priorities = [2]
[port_defaults]
rx_ring_frames = 4096
"""
PORT = '[[port]]\nname = "p{n}"\ndevice = "sw{n}"\n{extra}'


def traffic(station, *options):
    """A weft host on its end of the cable."""
    command = [weft(), "traffic", f"h{station}", "--station", station, "--size", SIZE, "--json", *options]
    command = [*(FIRST if station == RECEIVER else []), *map(str, command)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def report(host):
    """What a host says at its end."""
    out, err = host.communicate(timeout=TIMEOUT_S)
    assert host.returncode == 0, err
    return json.loads(out)


def incast(pfc):
    """Runs the load; returns reports of the senders, of the receiver, and all counters of the switch."""
    for n in (*SENDERS, RECEIVER):
        plug(f"sw{n}", f"h{n}")
    ports = "".join(
        PORT.format(n=n, extra="max_rate_gbps = 0.1\n" if n == RECEIVER else "") for n in (*SENDERS, RECEIVER)
    )
    with Rig(CONFIG.format(pfc=str(pfc).lower()) + ports) as rig:
        captures = [
            tool("capture.py", f"h{n}", f"/run/h{n}.pcapng", "--ethertype", "0x8808", "--timeout", TIMEOUT_S)
            for n in SENDERS
        ]
        assert all(capture.stdout.readline() == "ready\n" for capture in captures)
        receiver = traffic(RECEIVER)
        line = receiver.stderr.readline()  # a host that is not there yet loses what is flooded to it
        assert "is open" in line, line + receiver.stderr.read()
        load = ("--to", RECEIVER, "--pri", PRI, "--count", FRAMES, "--rate", RATE, "--linger", 1)
        senders = [report(host) for host in [traffic(n, *load) for n in SENDERS]]
        shown = rig.show_settled()
        receiver.terminate()  # it takes what its port has before it ends
        received = report(receiver)
        for capture in captures:
            capture.terminate()
            assert json.loads(capture.communicate(timeout=20)[0])["kernel_lost"] == 0
        ledger = rig.stop()
    assert ledger["queued"] == 0
    sent = sum(stream["frames"] for host in senders for stream in host["tx_streams"])
    assert sent == FRAMES * len(SENDERS) >= 100_000
    for host in (*senders, received):
        own = {
            key: host["other"][key] for key in ("kernel_rx", "port_rx_dropped", "port_tx_failed", "pending")
        }
        assert not any(own.values()), (host["name"], own)
    assert not any(shown["drops"]["kernel_rx"].values()) and shown["conservation"]["holds"]
    assert {port["name"]: port["kernel_rx"] for port in shown["ports"] if port["kernel_rx"]} == {}
    return senders, received, shown


def sum_of(streams, *keys):
    """Sum of counters over streams."""
    return sum(stream[key] for stream in streams for key in keys)


def run_with_pfc():
    senders, received, shown = incast(pfc=True)
    assert_lossless(shown)
    streams = received["rx_streams"]
    assert sorted(stream["unique"] for stream in streams) == [FRAMES] * len(SENDERS)
    assert sum_of(streams, "lost", "reordered", "duplicates", "too_old", "corrupt") == 0
    stopped = 0
    macs = {port["name"]: port["mac"] for port in shown["ports"]}
    rows = {row["port"]: row for row in shown["pfc"] if row["pri"] == PRI}
    for n, sender in zip(SENDERS, senders):
        row, heard = rows[f"p{n}"], sender["control"]
        headroom = (row["headroom_watermark_cells"], row["headroom_size_cells"])
        print(
            f"p{n}: {row['xoff']} XOFF, headroom {headroom[0]} of {headroom[1]} cells, {heard['pfc_rx']} PFC frames"
        )
        assert headroom[0] < headroom[1] and heard["pfc_malformed"] == 0, (row, heard)
        assert row["xoff"] == row["xon"] and not row["xoff_now"], row
        frames = read_capture(f"/run/h{n}.pcapng")
        if not row["xoff"]:  # a host that came too late, on a machine with much else to do
            assert not frames
            continue
        stopped += 1
        assert headroom[0] > 0 and heard["paused_ps"][PRI] > 0, (row, heard)
        found = check_pfc.check(frames, sa=check_pfc.w.mac(macs[f"p{n}"]))
        assert found["problems"] == [], found["problems"][:10]
        # PCP 3 and 4 both ask for priority 2 of 4.
        assert [klass["class"] for klass in found["classes"]] == row["classes"] == [3, 4]
        for klass in found["classes"]:
            assert klass["pause"] == klass["xon"] == row["resume_tx"], (klass, row)
            assert klass["pause"] + klass["refresh"] == row["pause_tx"], (klass, row)
            # An XON that a new XOFF overtakes within one step of the switch is never sent.
            assert 0 < klass["pause"] <= row["xoff"] and klass["xon_without_pause"] == 0, (klass, row)
        # A host that is done may leave before the last XON.
        assert found["mac_control"] == row["pause_tx"] + row["resume_tx"] >= heard["pfc_rx"]
    assert stopped > len(SENDERS) // 2
    assert rows[f"p{RECEIVER}"]["xoff"] == 0


def run_without_pfc():
    senders, received, shown = incast(pfc=False)
    streams = received["rx_streams"]
    dropped = shown["drops"]["total"]
    arrived = sum_of(streams, "unique")
    counts = [(port["name"], port["rx_frames"], port["tx_frames"]) for port in shown["ports"]]
    print(f"{arrived} arrived, dropped {dropped}; port, in, out: {counts}")
    assert {reason for reason, count in dropped.items() if count} == {"dt"}
    assert arrived + dropped["dt"] == FRAMES * len(SENDERS)
    assert sum_of(streams, "reordered", "duplicates", "too_old", "corrupt") == 0
    assert all(sender["control"]["pfc_rx"] == 0 for sender in senders)
    assert not any(row["xoff"] or row["headroom_watermark_cells"] for row in shown["pfc"])
    assert not any(read_capture(f"/run/h{n}.pcapng") for n in SENDERS)


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("function", ["run_with_pfc", "run_without_pfc"])
def test_incast(function):
    weftlive.inside("test_live_incast", function)
