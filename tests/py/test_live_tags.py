"""VLAN tags through `weft run`, in the data and in metadata: kept as they are, and their PCP decides the queue.

Frames of scapy on veth and tap, tags pushed by tcx programs; kernel hosts whose every frame is tagged.

Units: frames.
Source: docs/spec/pipeline.md §2, §11; IEEE 802.1Q 9.6. A tag: PCP 3 bits, DEI 1, VID 12.
"""

import hashlib
import json
import os
import subprocess
import sys
import time

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether

import weftlive
from tagmeta import MarkTag, RawPort, with_tag
from test_live import BPF_MISSING
from weftlive import Rig, assert_lossless, at, per_priority, plug, sh, tool
from weftpcap import read_capture
from weftpri import pri_of_pcp

MISSING = weftlive.missing()
live = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
bpf = pytest.mark.skipif(BPF_MISSING is not None, reason=str(BPF_MISSING))
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
CONFIG = """
[switch]
num_priorities = {priorities}
[port_defaults]
vlan = "{vlan}"
[[port]]
name = "p0"
kind = "{kind}"
device = "sw0"
[[port]]
name = "p1"
{device}
"""
DEVICES = {
    "veth": f'kind = "{weftlive.xdp_kind()}"\ndevice = "sw1"',
    "packet": 'kind = "af_packet"\ndevice = "sw1"',
    "tap": 'kind = "tap"\ndevice = "h1"',
}
# A number of its own for each PCP, so that no two queues can be taken for each other.
COUNTS = [10 + pcp for pcp in range(8)]
TRANSFER_BYTES = 4 << 20


def tags():
    """Every PCP with either DEI, and a VID of its own."""
    return [(pcp, dei, 100 + 2 * pcp + dei) for pcp in range(8) for dei in (0, 1)]


def untagged(source, target, pcp, number):
    """A frame whose DSCP asks for another priority than its tag does."""
    ip = IP(src="10.0.0.1", dst="10.0.0.2", tos=(pcp + 3) % 8 << 5) / UDP(sport=number, dport=9)
    return bytes(Ether(src=source, dst=target) / ip / (bytes([pcp]) * 40))


def tagged(source, target, pcp, dei, vid, number):
    """The same with a tag by scapy, every fourth with a second one inside, whose PCP must not matter."""
    frame = Ether(untagged(source, target, pcp, number))
    inner = Dot1Q(prio=7 - pcp, vlan=7) / frame.payload if number % 4 == 3 else frame.payload
    return bytes(Ether(src=source, dst=target) / Dot1Q(prio=pcp, id=dei, vlan=vid) / inner)


def send_in_data(port, source, target):
    """Sends frames with tags of scapy; returns what must arrive."""
    sent = [
        tagged(source, target, pcp, dei, vid, number)
        for pcp, dei, vid in tags()
        for number in range(COUNTS[pcp])
    ]
    for data in sent:
        port.send(data)
    return sent


def send_in_metadata(port, source, target):
    """Sends untagged frames that a tcx program tags on their way out; returns what must arrive."""
    arriving = []
    with MarkTag(port.ifname):
        for pcp, dei, vid in tags():
            tci = pcp << 13 | dei << 12 | vid
            port.mark(tci)
            for data in [untagged(source, target, pcp, number) for number in range(COUNTS[pcp])]:
                port.send(data)
                arriving.append(with_tag(data, 0x8100, tci))
    return arriving


def cross(rig, priorities, send, ways):
    """Sends each way, and holds frames and counters against what was sent."""
    for source_port, source, target_port, target, inputs in ways:
        before = rig.show_settled()
        want = send(source_port, source, target)
        got = target_port.take(len(want))
        assert len(got) == len(want), f"{len(want) - len(got)} of {len(want)} frames are missing"
        assert target_port.recv(0.05) is None
        # Queues of different priorities may overtake each other, frames of one PCP may not.
        for pcp in range(8):
            assert [f.data for f in got if f.data[14] >> 5 == pcp] == [f for f in want if f[14] >> 5 == pcp]
        shown = rig.show_settled()
        assert_lossless(shown)
        expected = {}
        for pcp, count in enumerate(COUNTS):
            pri = pri_of_pcp(pcp, priorities)
            expected[pri] = expected.get(pri, 0) + 2 * count
        for port, key in zip(inputs, ("enqueued", "dequeued")):
            old = per_priority(before, port, key)
            grown = {pri: n - old.get(pri, 0) for pri, n in per_priority(shown, port, key).items()}
            assert {pri: n for pri, n in grown.items() if n} == expected, (port, key)


def run_frames(kind, priorities, vlan, where):
    priorities = int(priorities)
    plug("sw0", "h0")
    if kind != "tap":
        plug("sw1", "h1")
    config = CONFIG.format(priorities=priorities, vlan=vlan, device=DEVICES[kind], kind=weftlive.xdp_kind())
    with Rig(config) as rig:
        if kind == "veth" and where == "metadata":  # where tags can be pushed, programs may read them
            assert {port["name"]: port["kind"] for port in rig.show()["ports"]}["p1"] == "af_xdp"
        if kind == "tap":
            sh("ip link set h1 up")
        send = {"data": send_in_data, "metadata": send_in_metadata}[where]
        with RawPort("h0") as one, RawPort("h1") as two:
            cross(rig, priorities, send, [(one, A, two, B, ("p0", "p1")), (two, B, one, A, ("p1", "p0"))])


SERVE = """
import hashlib, socket, sys
server = socket.create_server(("", 5000))
print("up", flush=True)
for _ in range(8):
    link, digest = server.accept()[0], hashlib.sha256()
    while data := link.recv(1 << 20):
        digest.update(data)
    link.sendall(digest.digest())
    link.close()
"""
SEND = """
import socket, sys
link = socket.create_connection(("10.9.0.2", 5000), timeout=60)
link.sendall(bytes(range(256)) * (int(sys.argv[1]) >> 8))
link.shutdown(socket.SHUT_WR)
print(b"".join(iter(lambda: link.recv(64), b"")).hex())
"""


def checksum_errors(host):
    """`TcpInCsumErrors` of a host."""
    lines = subprocess.check_output(at(host, "cat", "/proc/net/snmp"), text=True).split("\n")
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[names.index("InCsumErrors")])


def run_hosts():
    """Two kernel hosts with their default offloads, all that they say tagged: TSO's super-frames too."""
    plug("sw0", "h0", "10.9.0.1/24")
    plug("sw1", "h1", "10.9.0.2/24")
    want = hashlib.sha256(bytes(range(256)) * (TRANSFER_BYTES >> 8)).hexdigest()
    with Rig(CONFIG.format(priorities=8, vlan="trunk", device=DEVICES["veth"], kind=weftlive.xdp_kind())) as rig:
        server = subprocess.Popen(at("h1", sys.executable, "-c", SERVE), stdout=subprocess.PIPE, text=True)
        assert server.stdout.readline() == "up\n"
        for pcp in range(8):
            before = rig.show_settled()
            pushers = []
            for host, out in (("h0", pcp), ("h1", 7 - pcp)):
                pushers.append(
                    tool(
                        "tagmeta.py",
                        "eth0",
                        "--push",
                        f"{200 + pcp}:{out}",
                        "--pop",
                        host=host,
                        stdin=subprocess.PIPE,
                    )
                )
                assert pushers[-1].stdout.readline() == "ready\n"
            capture = tool("capture.py", "eth0", "/run/got.pcapng", "--timeout", 120, host="h1")
            assert capture.stdout.readline() == "ready\n"
            done = subprocess.run(
                at("h0", sys.executable, "-c", SEND, TRANSFER_BYTES),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.stdout.strip() == want, done.stderr
            time.sleep(0.1)
            capture.terminate()
            heard = json.loads(capture.communicate(timeout=60)[0])
            for pusher in pushers:
                pusher.stdin.close()
                pusher.wait(timeout=60)
            got = read_capture("/run/got.pcapng")
            assert heard["kernel_lost"] == 0 and sum(len(frame.data) for frame in got) > TRANSFER_BYTES
            tci = (pcp << 13 | 200 + pcp).to_bytes(2, "big")
            assert {frame.data[12:16] for frame in got} == {b"\x81\x00" + tci}
            shown = rig.show_settled()
            assert_lossless(shown)
            for port, out in (("p0", pcp), ("p1", 7 - pcp)):
                old = per_priority(before, port, "enqueued")
                grown = {
                    pri for pri, n in per_priority(shown, port, "enqueued").items() if n > old.get(pri, 0)
                }
                assert grown == {out}, port
        server.wait(timeout=60)
    assert (checksum_errors("h0"), checksum_errors("h1")) == (0, 0)


@live
@pytest.mark.parametrize("where", ["data", pytest.param("metadata", marks=bpf)])
@pytest.mark.parametrize(
    ("kind", "priorities", "vlan"),
    [
        ("veth", 4, "transparent"),
        ("veth", 8, "trunk"),
        ("packet", 8, "trunk"),
        ("tap", 8, "transparent"),
    ],
)
def test_a_tag_is_kept_and_its_pcp_decides(kind, priorities, vlan, where):
    if kind == "tap" and not os.path.exists("/dev/net/tun"):
        pytest.skip("no /dev/net/tun")
    weftlive.inside("test_live_tags", "run_frames", kind, priorities, vlan, where)


@live
@bpf
def test_kernel_hosts_whose_every_frame_is_tagged():
    weftlive.inside("test_live_tags", "run_hosts")
