"""Every conformance set through `weft run` over veth: right port, right bytes, equal counts on both sides.

send_pcap.py at four ports, capture.py at their far sides, check_conformance.py, `weft show`.

Units: frames without FCS; WEFT_BIN names the binary, WEFT_CONFORMANCE_COUNT the frames of a set.
"""

import json
import os

import pytest

import check_conformance
import make_conformance
import weftlive
from tagmeta import RawPort
from weftlive import ROOT, Rig, assert_lossless, per_priority, plug, sh, tool, xdp_kind
from weftpcap import iter_capture

MISSING = weftlive.missing()
COUNT = int(os.environ.get("WEFT_CONFORMANCE_COUNT", "10000"))
PORTS = make_conformance.PORTS
HOSTS = {port: f"h{number}" for number, port in enumerate(PORTS)}
PPS = 2500  # of each of the four senders: no queue overflows, not in the kernel either
CAPTURE_TIMEOUT_S = 60


def frames_received(host):
    """Frames that an interface has received, by its own count."""
    return json.loads(sh(f"ip -s -j link show {host}"))[0]["stats64"]["rx"]["packets"]


def learn(made, name):
    """Sends the first frame of each input, by which the switch learns its stations, and waits for all copies."""
    for port, host in HOSTS.items():
        first = next(iter_capture(os.path.join(made, f"{name}.in.{port}.pcap")))
        others = [RawPort(HOSTS[other]) for other in PORTS if other != port]
        with RawPort(host, receive=False) as sender:
            sender.send(first.data)
        for other in others:
            assert other.recv(5) is not None, f"the group frame of {port} did not come to {other.ifname}"
            other.close()


def run_set(made, name, priorities):
    with open(os.path.join(made, f"{name}.expect.json"), encoding="ascii") as file:
        expect = json.load(file)
    counts = expect["counts"][priorities]
    for number, host in enumerate(HOSTS.values()):
        plug(f"sw{number}", host)
    flags = [part for number, port in enumerate(PORTS) for part in ("--port", f"{port}={xdp_kind()}:sw{number}")]
    flags += ["--set", f"switch.num_priorities={priorities}", "--set", "port_defaults.port_bandwidth_gbps=1"]
    with open(os.path.join(ROOT, "pcaps", "conformance", f"{name}.toml"), encoding="ascii") as file:
        config = file.read()
    out_total = {port: sum(counts["out_per_port"][port].values()) for port in PORTS}
    with Rig(config, *flags) as rig:
        before = {host: frames_received(host) for host in HOSTS.values()}
        captures = []
        for port, host in HOSTS.items():
            out = f"/run/{port}.pcapng"
            captures.append(
                tool("capture.py", host, out, "--count", out_total[port], "--timeout", CAPTURE_TIMEOUT_S)
            )
            assert captures[-1].stdout.readline() == "ready\n"
        learn(made, name)
        senders = [
            tool("send_pcap.py", host, os.path.join(made, expect["inputs"][port]), "--skip", 1, "--pps", PPS)
            for port, host in HOSTS.items()
        ]
        for process in senders + captures:
            said = process.communicate(timeout=CAPTURE_TIMEOUT_S + 10)[0]
            assert process.returncode == 0, said
        assert (
            check_conformance.main(
                ["/run", os.path.join(made, f"{name}.expect.json"), "--priorities", priorities]
            )
            == 0
        )
        shown = rig.show_settled()
        assert_lossless(shown)
        sums = shown["conservation"]
        assert (sums["rx"], sums["tx"], sums["consumed"]) == (
            len(expect["frames"]),
            sum(out_total.values()),
            0,
        )
        for row in shown["ports"]:
            port = row["name"]
            sent = sum(frame["in"] == port for frame in expect["frames"])
            assert row["rx_formats"] == {expect["format"]: sent}, port
            assert row["tx_formats"] == {expect["format"]: out_total[port]}, port
            # Nothing else came out either: the interface counts what the capture may have left.
            assert frames_received(HOSTS[port]) - before[HOSTS[port]] == out_total[port], port
            dequeued = {str(pri): n for pri, n in per_priority(shown, port, "dequeued").items()}
            assert dequeued == counts["out_per_port"][port], port
            enqueued = {}
            for frame in expect["frames"]:
                if frame["in"] == port:
                    pri = frame[f"pri{priorities}"]
                    enqueued[pri] = enqueued.get(pri, 0) + len(frame["out"])
            assert per_priority(shown, port, "enqueued") == enqueued, port


@pytest.fixture(scope="module", name="made")
def made_fixture(tmp_path_factory):
    """Folder with all sets."""
    folder = str(tmp_path_factory.mktemp("conformance"))
    assert make_conformance.main([folder, "--count", str(COUNT)]) == 0
    return folder


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("priorities", [4, 8])
@pytest.mark.parametrize("name", [row[0] for row in make_conformance.SETS])
def test_every_frame_comes_out_right(name, priorities, made):
    weftlive.inside("test_live_conformance", "run_set", made, name, priorities)
