"""`weft extcap`: ports of a running switch as interfaces of tshark, in namespaces of their own.

Two kernel hosts on veth that ping each other; tshark lists and captures; a pipe is closed while nothing comes.

Units: seconds; ns.
Source: docs/wireshark.md "A running switch's ports"; extcap(4).
"""

import contextlib
import json
import os
import shutil
import subprocess
import time

import pytest

import weftlive
import weftshark
from weftlive import ROOT, Rig, at, plug, sh, weft

MISSING = weftlive.missing() or weftshark.missing()
live = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
CONFIG = """
[switch]
name = "lab"
[[port]]
name = "p0"
kind = "af_packet"
device = "sw0"
[[port]]
name = "p1"
kind = "af_packet"
device = "sw1"
[[port]]
name = "idle"
kind = "null"
"""
P0, IDLE = "weft:lab:p0", "weft:lab:idle"
FOLDER, WAIT_S, TRACES_MAX = "/run/extcap", 40, 8


def extcap(*arguments):
    """Asks as Wireshark does; the answer, whether or not it is one of success."""
    command = [os.path.join(FOLDER, "weft-extcap"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def prepare():
    """Two hosts, and the script in the folder of tshark: mounted there, as root's takes no other by its environment."""
    folders = subprocess.run(["tshark", "-G", "folders"], capture_output=True, text=True, check=True).stdout
    folder = next(line.split("\t")[1] for line in folders.splitlines() if line.startswith("Extcap path:"))
    os.mkdir(FOLDER)
    shutil.copy(os.path.join(ROOT, "wireshark", "extcap", "weft-extcap"), FOLDER)
    sh(f"mount --bind {FOLDER} {folder}")
    plug("sw0", "h0", "10.9.0.1/24")
    plug("sw1", "h1", "10.9.0.2/24")
    os.environ |= {"WEFT": weft(), "HOME": "/run", "LC_ALL": "C.UTF-8"}


def ended(process):
    """Waits for a process to end; returns its exit code."""
    return process.wait(timeout=WAIT_S)


@contextlib.contextmanager
def capturing(*arguments):
    """A running `weft extcap --capture` and the end of its pipe that is read; it has written its head."""
    path = f"/run/fifo{time.monotonic_ns()}"
    os.mkfifo(path, 0o600)
    command = [os.path.join(FOLDER, "weft-extcap"), "--capture", "--fifo", path, *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        read = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        head = b""
        end = time.monotonic() + WAIT_S
        while not head and process.poll() is None:
            assert time.monotonic() < end, "no head"
            with contextlib.suppress(BlockingIOError):
                head = os.read(read, 65536)
            time.sleep(0.02)
        yield process, read, head
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def begun(stack):
    """A capture of both directions that runs; the switch may take a while to notice that earlier ones have gone."""
    end = time.monotonic() + WAIT_S
    while True:
        process, read, head = stack.enter_context(capturing("--extcap-interface", IDLE))
        if head:
            return process, read, head
        assert time.monotonic() < end, process.stderr.read()


def lists_ports():
    """`tshark -D` has the ports of the running switch, and none without one."""
    prepare()
    listed = subprocess.run(["tshark", "-D"], capture_output=True, text=True, check=True).stdout
    assert "weft:" not in listed, listed
    assert extcap("--extcap-interfaces").stdout.startswith("extcap {version=")
    refused = extcap("--extcap-interface", P0, "--capture", "--fifo", "/run/none")
    assert refused.returncode == 4 and "no running switch answers" in refused.stderr
    with Rig(CONFIG):
        listed = subprocess.run(["tshark", "-D"], capture_output=True, text=True, check=True).stdout
        for port in ("p0", "p1", "idle"):
            assert f"weft:lab:{port} (weft switch lab, port {port})" in listed, listed
        assert (
            extcap("--extcap-interface", P0, "--extcap-dlts").stdout
            == "dlt {number=1}{name=EN10MB}{display=Ethernet}\n"
        )
        options = extcap("--extcap-interface", P0, "--extcap-config").stdout
        assert "{call=--frames}" in options and options.count("value {arg=0}") == 3
        links = subprocess.run(["tshark", "-i", P0, "-L"], capture_output=True, text=True, check=True)
        assert "EN10MB" in links.stdout + links.stderr
        checks_filters()
    assert extcap("--extcap-interfaces").stdout.count("\n") == 1


def checks_filters():
    """A filter that the switch would refuse has a complaint; another has none."""
    for text in ("", "drop", "in=p1", "pri=3,format=gen2,out=p0"):
        told = extcap("--extcap-interface", P0, "--extcap-capture-filter", text)
        assert (told.returncode, told.stdout) == (0, ""), (text, told)
    for text, want in [
        ("nonsense", "expected in=PORT"),
        ("pri=9", "0 to 7"),
        ("in=p7", "no port"),
        ("in=p1,out=idle", ""),
    ]:
        told = extcap("--extcap-interface", P0, "--extcap-capture-filter", text)
        assert told.returncode == 0 and told.stdout and want in told.stdout, (text, told)
    told = extcap("--extcap-interface", "weft:lab:p9", "--extcap-capture-filter", "")
    assert told.returncode == 4 and P0 in told.stderr, told


def captures(home):
    """What tshark captures at a port are the frames of both directions, each as it came in and with its path."""
    prepare()
    file = os.path.join(home, "extcap.pcapng")
    ping = at("h0", "ping", "-c", "1", "-W", "1", "10.9.0.2")
    with Rig(CONFIG) as rig:
        before = time.time_ns()
        tshark = subprocess.Popen(
            ["tshark", "-q", "-i", P0, "-w", file, "-c", "12"], stderr=subprocess.PIPE, text=True
        )
        end = time.monotonic() + WAIT_S
        while tshark.poll() is None:
            assert time.monotonic() < end, "tshark captured too little"
            subprocess.run(ping, capture_output=True, check=False)
        told = tshark.communicate()[1]
        assert tshark.returncode == 0, told
        rig.show_settled()
    shown = subprocess.run([weft(), "decode", "--json", file], capture_output=True, text=True, check=True)
    frames = [json.loads(line) for line in shown.stdout.splitlines()]
    assert len(frames) == 12
    assert {frame["interface"] for frame in frames} == {0, 1}, (
        "both directions, by the port where they came in"
    )
    for frame in frames:
        assert before - 1e9 < frame["ts_ns"] < time.time_ns() + 1e9
        port, other = ("p0", "p1") if frame["interface"] == 0 else ("p1", "p0")
        lines = frame["comment"].splitlines()
        assert f"  rx        {port} " in lines[0], frame
        assert any(f"  tx        {other} " in line for line in lines), frame
    assert {frame["ip"]["proto"] for frame in frames if "ip" in frame} >= {1}, "ICMP"


def ends_cleanly():
    """A capture of a port where nothing comes ends when its pipe is closed, and its trace with it."""
    prepare()
    with Rig(CONFIG):
        for _ in range(TRACES_MAX):  # traces that stayed would be too many now
            with capturing("--extcap-interface", IDLE, "--frames", "in") as (process, read, head):
                assert head[:4] == b"\x0a\x0d\x0d\x0a" and head.count(b"idle") == 1
                os.close(read)
                assert ended(process) == 0, process.stderr.read()
        with contextlib.ExitStack() as stack:
            running = [begun(stack) for _ in range(TRACES_MAX // 2)]
            refused = extcap("--extcap-interface", IDLE, "--capture", "--fifo", "/run/file.pcapng")
            assert refused.returncode == 4 and "end another one first" in refused.stderr, refused
            assert not os.path.exists("/run/file.pcapng")
            os.close(running[0][1])
            assert ended(running[0][0]) == 0
        asked = ["--extcap-interface", P0, "--frames", "in", "--extcap-capture-filter", "in=p1"]
        none = extcap(*asked, "--capture", "--fifo", "/run/x")
        assert none.returncode == 2 and "leaves no frame of port p0" in none.stderr


def ends_with_the_switch():
    """A capture ends when the switch stops; what stops it is no error of Wireshark's."""
    prepare()
    with Rig(CONFIG) as rig, capturing("--extcap-interface", IDLE) as (process, _, _):
        rig.stop()
        assert ended(process) in (0, 4), process.stderr.read()


@live
def test_ports_are_listed_as_interfaces():
    weftlive.inside("test_live_extcap", "lists_ports")


@live
def test_frames_are_captured_as_they_came_in(tmp_path):
    weftlive.inside("test_live_extcap", "captures", tmp_path)


@live
def test_a_capture_ends_with_its_pipe():
    weftlive.inside("test_live_extcap", "ends_cleanly")


@live
def test_a_capture_ends_with_the_switch():
    weftlive.inside("test_live_extcap", "ends_with_the_switch")
