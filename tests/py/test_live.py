"""Tests of tagmeta, send_pcap and capture over a veth pair in a network namespace of their own.

Each test starts itself again under `unshare -n` (with -Ur when not root); the namespace goes with it.

Units: frames, seconds.
Source: Linux packet(7), veth(4).
"""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

import weftbuild as w
from tagmeta import MetaTag, RawPort, push_program, with_tag
from weftpcap import read_capture, write_pcap

HERE = os.path.dirname(os.path.abspath(__file__))
A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
UNSHARE = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-Urn"]


def missing():
    """Why no namespace with veth can be had here, or None."""
    try:
        probe = subprocess.run(
            [*UNSHARE, "ip", "link", "add", "vl0", "type", "veth", "peer", "vl1"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return f"unshare or ip cannot be run: {err}"
    return None if probe.returncode == 0 else f"network namespaces or veth missing: {probe.stderr.strip()}"


MISSING = missing()


def bpf_missing():
    """Why tags cannot be put into metadata here, or None."""
    code = f"import sys; sys.path.insert(0, {HERE!r}); import tagmeta; tagmeta.MetaTag('lo', 1).close()"
    probe = subprocess.run(
        [*UNSHARE, sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False
    )
    words = probe.stderr.strip().splitlines()
    return None if probe.returncode == 0 else f"tcx programs (CAP_BPF, Linux 6.6) missing: {words[-1:]}"


BPF_MISSING = MISSING or bpf_missing()
bpf = pytest.mark.skipif(BPF_MISSING is not None, reason=str(BPF_MISSING))
live = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def in_namespace(name, *arguments):
    """Runs function `name` of this file in a new namespace with veth pair vl0, vl1."""
    code = (
        f"import sys; sys.path.insert(0, {HERE!r}); import test_live as t; t.setup(); t.{name}(*sys.argv[1:])"
    )
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def setup():
    subprocess.run(
        "ip link add vl0 type veth peer name vl1 && ip link set vl0 addrgenmode none && "
        "ip link set vl1 addrgenmode none && ip link set vl0 up && ip link set vl1 up",
        shell=True,
        check=True,
    )
    time.sleep(0.1)


def tool(name, *arguments):
    return subprocess.Popen(
        [sys.executable, os.path.join(HERE, name), *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def through(folder, frames, pps, *send_options, capture_options=()):
    """Sends `frames` from vl0 to a capture on vl1; gives (sender's, capturer's JSON, frames, seconds)."""
    sent, got = os.path.join(folder, "s.pcap"), os.path.join(folder, "g.pcapng")
    write_pcap(sent, [(0, data) for data in frames])
    capturer = tool("capture.py", "vl1", got, "--count", len(frames), "--timeout", 30, *capture_options)
    assert capturer.stdout.readline().strip() == "ready"
    start = time.monotonic()
    sender = tool("send_pcap.py", "vl0", sent, "--pps", pps, *send_options)
    said, heard = sender.communicate(timeout=40)[0], capturer.communicate(timeout=40)[0]
    seconds = time.monotonic() - start
    assert (sender.returncode, capturer.returncode) == (0, 0), (said, heard)
    return json.loads(said), json.loads(heard), read_capture(got), seconds


def every_format():
    tag = w.build_vlan(5, 100)
    return [
        w.build_standard(B, A, bytes(64)),
        w.build_standard(B, A, bytes(1344), vlan=tag, icrc=True),
        w.build_gen1(B, A, 0x24, b""),
        w.build_gen1(B, A, 0x24, b"", vlan=tag),
        w.build_gen2(2, 1, 0x20, b"abcd", hi=7),
        w.build_lite(2, 1, 0x40, b"\x81\x00\x60\x64" + bytes(20)),
        w.build_lite(2, 1, 0x40, b"\x88\x08"),
        w.build_pfc(A, {3: 5}),
        w.build_standard(B, A, bytes(3), vlan=w.build_vlan(3, 7, tpid=0x88A8)),
    ]


def run_formats(folder):
    frames = every_format()
    said, heard, got, _ = through(folder, frames, 1000)
    assert [frame.data for frame in got] == frames
    assert said["sent"] == heard["frames"] == len(frames) and heard["kernel_lost"] == 0
    # The kernel itself takes an outer tag of the data into metadata at receive.
    assert heard["meta_tags"] == 4, heard
    stamps = [frame.ts_ns for frame in got]
    assert stamps == sorted(stamps) and abs(stamps[0] - time.time_ns()) < 60 * 10**9


def run_meta_tag(folder):
    frames = [w.build_standard(B, A, n.to_bytes(4, "big")) for n in range(50)]
    _, heard, got, _ = through(folder, frames, 1000, "--meta-tag", "100:5")
    assert [frame.data for frame in got] == [with_tag(data, 0x8100, 5 << 13 | 100) for data in frames]
    assert heard["meta_tags"] == 50
    _, heard, got, _ = through(folder, frames, 1000)
    assert [frame.data for frame in got] == frames and heard["meta_tags"] == 0, (
        "the program is gone afterwards"
    )


def run_ethertype_of_meta_tag():
    with (
        RawPort("vl0", receive=False) as sender,
        RawPort("vl1") as receiver,
        MetaTag("vl0", 9, 2, ethertype=0x0800),
    ):
        ip, afh = w.build_standard(B, A, bytes(40)), w.build_gen1(B, A, 0x20, bytes(40))
        sender.send(ip)
        sender.send(afh)
        first, second = receiver.recv(2), receiver.recv(2)
        assert first.data == with_tag(ip, 0x8100, 2 << 13 | 9) and first.meta_tag == (0x8100, 2 << 13 | 9)
        assert second.data == afh and second.meta_tag is None
        assert receiver.recv(0.05) is None and receiver.recv_now() is None


def run_tagged_hosts():
    """Two hosts without VLAN devices speak IP with tags on the wire: tagmeta.py pushes and pops."""
    peer = subprocess.Popen(["unshare", "-n", "sleep", "30"])
    tools = []
    try:
        time.sleep(0.3)
        inside = ["nsenter", "-t", str(peer.pid), "-n"]
        subprocess.run(["ip", "link", "set", "vl1", "netns", str(peer.pid)], check=True)
        for host, where, iface in ((1, [], "vl0"), (2, inside, "vl1")):
            for words in (["link", "set", iface, "up"], ["addr", "add", f"10.9.0.{host}/24", "dev", iface]):
                subprocess.run([*where, "ip", *words], check=True)
            command = [
                sys.executable,
                os.path.join(HERE, "tagmeta.py"),
                iface,
                "--push",
                f"100:{host}",
                "--pop",
            ]
            tools.append(
                subprocess.Popen([*where, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert tools[-1].stdout.readline().strip() == "ready"
        echo = "import socket; s = socket.socket(2, 2); s.bind(('', 7)); print('up', flush=True); s.sendto(*s.recvfrom(99))"
        server = subprocess.Popen([*inside, sys.executable, "-c", echo], stdout=subprocess.PIPE, text=True)
        tools.append(server)
        assert server.stdout.readline().strip() == "up"
        with RawPort("vl0") as tap, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(5)
            client.sendto(b"hello", ("10.9.0.2", 7))
            assert client.recv(99) == b"hello"
            seen = [tap.recv(1) for _ in range(2)]
            assert {got.meta_tag for got in seen} == {(0x8100, 2 << 13 | 100)}, seen
    finally:
        for program in [*tools, peer]:
            program.terminate()
            program.wait(timeout=10)


def run_rate(folder):
    frames = [w.build_gen1(B, A, 0x20, n.to_bytes(4, "big") + bytes(1000)) for n in range(40_000)]
    with RawPort("vl1") as port:
        pps = 8000 if port.small_buffers else 0
    said, heard, got, seconds = through(folder, frames, pps)
    assert [frame.data for frame in got] == frames and heard["kernel_lost"] == 0
    assert seconds < 10, f"40,000 frames took {seconds:.1f} s"
    said, _, _, _ = through(folder, frames[:2000], 4000)
    assert 0.45 < said["seconds"] < 0.8, said


def run_own_frames_unseen():
    with RawPort("vl0") as port, RawPort("vl1") as peer:
        port.send(w.pad60(w.build_gen1(B, A, 0x20, b"")))
        assert peer.recv(2) is not None
        assert port.recv(0.05) is None


def run_ends(folder):
    path = os.path.join(folder, "e.pcapng")
    short = tool("capture.py", "vl1", path, "--count", 5, "--timeout", 0.3)
    assert json.loads(short.communicate(timeout=20)[0].split("\n")[1])["frames"] == 0
    assert short.returncode == 1
    stopped = tool("capture.py", "vl1", path, "--timeout", 30, "--ethertype", "0x88b5")
    assert stopped.stdout.readline().strip() == "ready"
    with RawPort("vl0", receive=False) as port:
        port.send(w.build_gen1(B, A, 0x20, bytes(40)))
        port.send(w.build_standard(B, A, bytes(40)))
    time.sleep(0.3)
    stopped.terminate()
    result = json.loads(stopped.communicate(timeout=20)[0])
    assert (stopped.returncode, result["frames"], result["others"], result["stopped"]) == (0, 1, 1, True)
    assert len(read_capture(path)) == 1
    nowhere = tool("capture.py", "none0", path)
    nowhere.communicate(timeout=20)
    assert nowhere.returncode == 2


@live
@pytest.mark.parametrize(
    "name", ["run_formats", pytest.param("run_meta_tag", marks=bpf), "run_rate", "run_ends"]
)
def test_with_folder(tmp_path, name):
    in_namespace(name, tmp_path)


@live
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("run_ethertype_of_meta_tag", marks=bpf),
        "run_own_frames_unseen",
        pytest.param("run_tagged_hosts", marks=bpf),
    ],
)
def test_in_one_process(name):
    in_namespace(name)


def test_push_program_bytes():
    """As the kernel's verifier reads them: whole instructions, the last one exit."""
    for ethertype, count in ((None, 7), (0x0800, 9)):
        program = push_program(5 << 13 | 100, ethertype)
        assert len(program) == 8 * count and program[-8:] == b"\x95" + bytes(7)
