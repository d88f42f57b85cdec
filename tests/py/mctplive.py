"""A `weft run` whose managers speak MCTP, for the live tests.

Switch(directory, **keys of [fabric]) runs it until it is closed; .mctp and .cci are where managers connect.

Units: seconds.
Source: docs/mctp.md.
"""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile

import mctp
import weftlive
from mctp import FM_API

FM_UUID = bytes(range(16))
CLAIM = 0

CONFIG = """[switch]
name = "t"
[run]
socket = "{folder}/weft/mgmt.sock"
[fabric]
uuid = "5ed8a1c0-0000-4000-8000-000000000001"
cci = "{folder}/cci/cci.sock"
cci_mctp = "{place}"
{fabric}
[[port]]
name = "h"
kind = "null"
role = "usp"
[[port]]
name = "d"
kind = "null"
role = "dsp"
[[port]]
name = "e"
kind = "null"
role = "dsp"
[[port]]
name = "f"
kind = "null"
role = "fport"
[[vcs]]
usp = "h"
vppbs = 3
"""


class Switch:
    """A running switch; a context that ends it, and fails where a thread of it has panicked."""

    def __init__(self, fabric="", place="127.0.0.1:0", env=None):
        self.folder = tempfile.TemporaryDirectory(prefix="weft-mctp-")
        name = self.folder.name
        self.socket, self.cci = f"{name}/weft/mgmt.sock", f"{name}/cci/cci.sock"
        with open(f"{name}/t.toml", "w", encoding="ascii") as file:
            file.write(CONFIG.format(folder=name, fabric=fabric, place=place))
        command = [weftlive.weft(), "run", "-c", f"{name}/t.toml"]
        out, err = subprocess.DEVNULL, subprocess.PIPE
        self.process = subprocess.Popen(command, stderr=err, stdout=out, text=True, env=env)
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.search(r"CCI over MCTP at ([0-9.]+):(\d+)", line):
                self.mctp = (found[1], int(found[2]))
            if "is up" in line:
                return
        raise AssertionError(f"weft run: {said}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            _, said = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, said = self.process.communicate()
        self.folder.cleanup()
        if kind is None:
            assert self.process.returncode == 0 and "panicked" not in said, said

    def show(self):
        """What the switch says of its managers."""
        command = [weftlive.weft(), "show", "fabric", "--json", "--socket", self.socket]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["fabric"]

    def counts(self):
        """What became of connections and messages over MCTP."""
        return self.show()["mctp"]

    def memory_kib(self):
        """Memory that it has in use."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def compiler():
    """The C compiler."""
    return os.environ.get("CC", "cc")


def claim(op):
    """Payload of Claim Ownership (0701h)."""
    return struct.pack("<BH16sH", op, 1, FM_UUID, 0x10)


def claim_elsewhere(path):
    """Claims the switch at its Unix socket; the connection, which must stay, and the return code."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(path)
    message = bytes([FM_API]) + mctp.cci(0x0701, claim(CLAIM), 1)
    sock.sendall(struct.pack("<H", len(message)) + message)
    answer = sock.recv(4096)
    return sock, mctp.parse_cci(answer[3:])[3]
