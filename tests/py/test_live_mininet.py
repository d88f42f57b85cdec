"""weft as a switch of Mininet: every host reaches every other, and nothing is left behind, whatever happens.

Mininet's `mn` with packaging/weft_mininet.py in namespaces of its own.

Units: seconds.
Source: docs/lab.md "Mininet"; mn(1).
"""

import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

import weftlive
from weftlive import ROOT, sh, weft

MISSING = weftlive.missing() or (None if shutil.which("mn") else "mn (Debian's mininet) missing")
MISSING = MISSING or (None if os.geteuid() == 0 else "Mininet needs root")
live = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
CUSTOM = os.path.join(ROOT, "packaging", "weft_mininet.py")
WAIT_S = 60


def mn(*arguments, **more):
    """Starts `mn` with weft as its switch."""
    # A shell that starts something in the background has it ignore SIGINT, and so would mn.
    command = ["env", "--default-signal=INT", "mn", "--custom", CUSTOM, "--controller", "none", *arguments]
    environment = {**os.environ, "WEFT": weft(), "HOME": "/run"}
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, **options, **more)


def running():
    """Process ids of all switches in this namespace of processes."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[:2] == [weft().encode(), b"run"]:
            found.append(int(pid))
    return found


def until(what, holds):
    """Waits until something holds."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)


class Said:
    """What a process says, which a thread reads."""

    def __init__(self, process):
        self.text, self.process = "", process
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line

    def has(self, text):
        """Whether it has said so; not if it has ended without."""
        assert text in self.text or self.thread.is_alive(), f"mn ended without {text}: {self.text}"
        return text in self.text

    def rest(self):
        """All that it has said until its end."""
        self.process.wait(timeout=WAIT_S)
        self.thread.join(timeout=WAIT_S)
        return self.text


def interrupt(process, said):
    """Ctrl-C, until it is noticed: Python does not see one that comes right before it begins to wait for input."""
    sent = 0

    def is_noticed():
        nonlocal sent
        if said.has("Interrupt"):
            return True
        if time.monotonic() > sent + 1:
            os.killpg(process.pid, signal.SIGINT)
            sent = time.monotonic()
        return False

    until("the interrupt is noticed", is_noticed)


def private_tmp():
    """Hides /tmp, as Mininet's clean-up after a failure removes /tmp/*.log; what is tested may be there."""
    shown = {path.split("/")[2] for path in (ROOT, weft()) if path.startswith("/tmp/")}
    sh("mkdir /run/tmp && mount --bind /tmp /run/tmp && mount -t tmpfs tmpfs /tmp")
    for path in shown:
        sh(f"mkdir /tmp/{path} && mount --bind /run/tmp/{path} /tmp/{path}")


def no_interfaces():
    """Whether only the loopback is left."""
    return len(sh("ip -o link").splitlines()) == 1


def run_pingall():
    private_tmp()
    process = mn("--switch", "weft", "--topo", "tree,2", "--test", "pingall")
    said = process.communicate(timeout=WAIT_S)[0]
    print(said)
    assert process.returncode == 0 and "0% dropped (12/12 received)" in said, said
    assert not running() and no_interfaces()


def run_command_line():
    """Commands reach the switch; Ctrl-C on the command line does not."""
    private_tmp()
    process = mn("--switch", "weft", "--topo", "linear,2", start_new_session=True)
    process.stdin.write("dpctl show ports\n")
    process.stdin.flush()
    until("two switches", lambda: len(running()) == 2)
    pids = running()
    said = Said(process)
    until("the switches' ports", lambda: said.has("s2-eth2"))
    interrupt(process, said)
    process.stdin.write("pingall\nexit\n")
    process.stdin.flush()
    assert running() == pids, "they are in sessions of their own"
    text = said.rest()
    assert "0% dropped" in text, text
    assert not running()


def run_failures():
    private_tmp()
    process = mn("--switch", "weft,opts=--set switch.nothing=1", "--topo", "single,2", "--test", "pingall")
    said = process.communicate(timeout=WAIT_S)[0]
    assert "nothing" in said and "received" not in said, said
    assert not running()
    # One of two switches does not start, as its socket cannot be made: the other one does not stay.
    os.makedirs("/run/weft")
    with open("/run/weft/s2", "w", encoding="ascii"):
        process = mn("--switch", "weft", "--topo", "linear,2", "--test", "pingall")
    said = process.communicate(timeout=WAIT_S)[0]
    assert "s2: weft run did not start" in said, said
    assert not running()
    os.remove("/run/weft/s2")
    # Mininet is killed while switches run.
    process = mn("--switch", "weft", "--topo", "linear,2")
    until("two switches", lambda: len(running()) == 2)
    process.kill()
    process.wait()
    until("switches end with Mininet", lambda: not running())
    environment = {**os.environ, "WEFT": "/nowhere/weft"}
    command = ["mn", "--custom", CUSTOM, "--controller", "none", "--switch", "weft", "--test", "pingall"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode != 0 and "/nowhere/weft is not in PATH" in done.stdout + done.stderr, done


@live
@pytest.mark.parametrize("what", ["run_pingall", "run_command_line", "run_failures"])
def test_mininet(what):
    weftlive.inside("test_live_mininet", what, timeout=4 * WAIT_S)
