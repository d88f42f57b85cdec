"""What a pulled cable costs on processes: time to the first changed table, and the outage of flows that have another path.

`sudo python3 bench/outage.py [--weft target/release/weft]` -> JSON: each pull, then medians and maxima.

Units: ms of CLOCK_MONOTONIC.
Source: docs/bench.md "A pulled cable".

In a network namespace of its own: `weft fabric up --processes` of two switches that two cables join. One host at the first
switch reaches memory of a GFD behind the second one by UIO (dynamic messages), another one by memory requests (static ones).
The two cables are pulled in turn, so that the static flow is hit by every other pull. The table is read by `pbr_route` of the first
switch's management socket, a flow by the answers that its load counts; a lost request is given up after `--round-ms`, and
10 ms later comes the next one: an outage is at least that.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TOPOLOGY = """
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"], count = 2 }]
host = [{ name = "h0", at = "sw0" }, { name = "h1", at = "sw0" }]
gfd = [{ name = "g0", at = "sw1" }]

[[memory]]
name = "pool"
hosts = ["h0", "h1"]
gfds = ["g0"]
len = 0x10000000
hpa = 0x10000000000
"""
HPA = 0x10000000000
# Who reaches the device behind the other switch, where, by which requests, and how its outage is called.
LOADS = (("h0", HPA, "uio", "uio_outage_ms"), ("h1", HPA + 4_096, "plain", "static_outage_ms"))
WAIT_S = 60  # for what must come
QUIET_S = 0.5  # without anything new
LOOK_S = 0.0002  # between two looks


class Asked:
    """A socket that answers a line of JSON with one."""

    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(str(path))
        self.lines = self.stream.makefile("rb")

    def __call__(self, cmd, **fields):
        self.stream.sendall(json.dumps({"cmd": cmd, **fields}).encode() + b"\n")
        answer = json.loads(self.lines.readline())
        if "ok" not in answer:
            raise RuntimeError(f"{cmd}: {answer}")
        return answer["ok"]


def until(what, look):
    """What `look` finds, once it does."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(LOOK_S)
    raise TimeoutError(what)


@contextlib.contextmanager
def fabric(weft, pause):
    """A fabric in this namespace, ended with the block."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-outage-"))
    (folder / "topology.toml").write_text(TOPOLOGY)
    command = [weft, "fabric", "up", "--processes", folder / "topology.toml", "--dir", folder / "run"]
    command += ["--pause", pause]
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)
    try:
        if not any(line.startswith("fabric is up") for line in iter(process.stdout.readline, "")):
            raise RuntimeError("the fabric does not come up")
        yield folder / "run"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        shutil.rmtree(folder)


class Fabric:
    """The parts of a running fabric, and the load of each host."""

    def __init__(self, folder, round_ms, loads=LOADS, part=0):
        self.loads = loads
        self.switch = Asked(folder / "sw0/mgmt.sock")
        self.manager = Asked(folder / "fm/fm.sock")
        self.hosts = {name: Asked(folder / name / "endpoint.sock") for name, *_ in loads}
        self.devices = port_devices(folder / "sw0/switch.toml")
        self.pid = self.manager("memory")["memory"][0]["parts"][part]["gfd"]
        for name, addr, via, _ in loads:
            access = {"addr": addr, "len": 256, "seed": 1, "via": via, "timeout_ms": round_ms}
            self.hosts[name]("load_start", access=access, rounds=0, pause_ms=1)

    def route(self):
        """The route to the GFD, as the first switch has it."""
        return self.switch("pbr_route", dpid=self.pid)

    def answered(self):
        """Answers that each load has had."""
        return {name: host("load_status")["load"]["answered"] for name, host in self.hosts.items()}

    def told(self, after):
        """Events of the manager."""
        return [event["what"] for event in self.manager("events", after=after)["events"]]

    def count(self):
        """Number of the manager's last event."""
        return self.manager("status")["status"]["events"]

    def link(self, port, state):
        """Pulls the cable of a port, or puts it back."""
        subprocess.run(["ip", "link", "set", self.devices[port], state], check=True)

    def pull(self, nth):
        """Pulls a cable and puts it back: the time to the first changed table, and the outage of each flow."""
        before, events, running = self.route(), self.count(), self.answered()
        port = before["group_ports"][nth % len(before["group_ports"])]
        until("all loads run", lambda: all(now > running[name] + 20 for name, now in self.answered().items()))
        seen = {name: (time.monotonic(), count) for name, count in self.answered().items()}
        gaps, changed = dict.fromkeys(seen, 0.0), None
        start = last = time.monotonic()
        self.link(port, "down")
        while time.monotonic() < last + QUIET_S or changed is None:
            if changed is None and self.route() != before:
                last = changed = time.monotonic()
            for name, count in self.answered().items():
                now, (since, had) = time.monotonic(), seen[name]
                if count != had:
                    if now - since > gaps[name]:
                        gaps[name], last = now - since, now
                    seen[name] = (now, count)
            if time.monotonic() > start + WAIT_S:
                raise TimeoutError("the table does not change, or a flow does not go on")
            time.sleep(LOOK_S)
        row = {"port": port, "first_table_ms": 1e3 * (changed - start)}
        row |= {key: 1e3 * gaps[name] for name, _, _, key in self.loads} | {"events": self.told(events)}
        events = self.count()
        self.link(port, "up")
        until("the link is back", lambda: any("is up again" in what for what in self.told(events)))
        until("the routes are back", lambda: self.route() == before)
        time.sleep(QUIET_S)
        return row


def port_devices(file):
    """Interfaces of a switch's ports by name of the port."""
    devices, name = {}, None
    for line in file.read_text().splitlines():
        key, _, value = line.partition(" = ")
        if key == "name":
            name = value.strip('"')
        elif key == "device":
            devices[name] = value.strip('"')
    return devices


def main():
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default="target/release/weft")
    parser.add_argument("--pulls", type=int, default=20)
    parser.add_argument("--round-ms", type=int, default=20, help="after which a lost request is given up")
    parser.add_argument("--pause", type=int, default=200, help="of the manager: milliseconds between two polls")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        again = [sys.executable, __file__, *sys.argv[1:], "--inside"]
        os.execvp("unshare", ["unshare", "--net", *again])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with fabric(args.weft, args.pause) as folder:
        parts = Fabric(folder, args.round_ms)
        pulls = [parts.pull(nth) for nth in range(args.pulls)]
    summary = {}
    for key in ("first_table_ms", "uio_outage_ms", "static_outage_ms"):
        all_of_it = [row[key] for row in pulls]
        summary[key] = {"median": statistics.median(all_of_it), "max": max(all_of_it)}
    print(json.dumps({**vars(args), "pulls": pulls, **summary}, indent=1))


if __name__ == "__main__":
    main()
