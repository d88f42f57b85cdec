"""weft itself: `weft run` with a configuration made here; its counters come from the management socket.

`with Weft(bench, ports) as peer`; peer.count() -> frames sent by the second port, ns.

Units: frames, ns of CLOCK_MONOTONIC.
Source: docs/configuration.md; one JSON object a line on the management socket.
"""

import json
import os
import socket
import time

from .processes import Skip

SOCKET = "/run/weft/bench/mgmt.sock"


def port(name, kind, device, **keys):
    """One `[[port]]` of a configuration."""
    lines = ["[[port]]", f'name = "{name}"', f'device = "{device}"']
    lines += [f'kind = "{kind}"'] if kind else []
    return "\n".join(lines + [f"{key} = {json.dumps(value)}" for key, value in keys.items()]) + "\n"


class Weft:
    """A running switch with one busy worker on the forwarding core."""

    name = "weft"

    def __init__(self, bench, ports, targets=(), netns=None, settings="", poll="busy", flags=()):
        self.bench, self.netns, self.flags = bench, netns, flags
        self.process, self.socket, self.reader = None, None, None
        run = f'[run]\nworkers = 1\ncores = [{bench.cores[1]}]\npoll = "{poll}"\nsocket = "{SOCKET}"\n'
        text = f'[switch]\nname = "bench"\n{run}{settings}\n' + "".join(ports)
        for target in targets:
            text += f'[[static_entry]]\naddr = "{target}"\nport = "p1"\n'
        self.config = f"{bench.folder}/weft.toml"
        with open(self.config, "w", encoding="ascii") as file:
            file.write(text)
        bench.configs[text if len(text) < 4_096 else text[:4_096] + "..."] = None
        try:
            bench.processes.run([bench.weft, "config", "check", "-c", self.config], note=False)
        except RuntimeError as err:
            raise Skip("weft config check: " + str(err).splitlines()[0].split("error: ")[-1]) from err

    def start(self):
        """Starts it, without waiting until it is ready."""
        argv = [self.bench.weft, "run", "-c", self.config, "--json", *self.flags]
        self.process = self.bench.processes.start(argv, netns=self.netns)

    def __enter__(self):
        try:
            self.start()
            self.bench.processes.wait_for(self.process, self._connect)
        except BaseException as err:
            self.__exit__()
            if "without the feature" in str(err):
                raise Skip("this weft was built without a feature that the row needs") from err
            raise
        return self

    def _connect(self):
        if not os.path.exists(SOCKET):
            return False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(SOCKET)
        self.reader = self.socket.makefile("r", encoding="utf-8")
        return True

    def __exit__(self, *_):
        for end in (self.reader, self.socket):
            if end:
                end.close()
        if self.process:
            self.bench.processes.stop(self.process)

    def ask(self, **request):
        """What the management socket answers."""
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        said = json.loads(self.reader.readline())
        if "ok" not in said:
            raise RuntimeError(f"weft {request}: {said.get('error')}")
        return said["ok"]

    def show(self, what):
        """A part of the report."""
        return self.ask(cmd="show", what=what)[what]

    def count(self):
        """Frames that the second port has sent, and when."""
        start = time.monotonic_ns()
        frames = next(row["tx_frames"] for row in self.show("ports") if row["name"] == "p1")
        return frames, (start + time.monotonic_ns()) // 2

    def known(self):
        """(MAC, port) of all entries."""
        return {(row["addr"], row["port"]) for row in self.show("fdb")["entries"]}

    def notes(self):
        """What the ports and drops say."""
        notes = [f"{row['name']} ({row['kind']}): {row['note']}" for row in self.show("ports") if row.get("note")]
        drops = {name: count for name, count in self.show("drops")["total"].items() if count}
        return notes + ([f"drops {drops}"] if drops else [])


def veth_ports(kind):
    """Ports p0 and p1 on f0 and f1, and settings, of one of the ways between interfaces."""
    keys = {"af_packet": {"kind": "af_packet"}, "af_xdp": {"kind": "af_xdp"}, "express": {"kind": "af_xdp"}}
    settings = {"af_packet": "", "af_xdp": "[express]\nenabled = false\n", "express": ""}
    return [port(f"p{number}", device=f"f{number}", **keys[kind]) for number in (0, 1)], settings[kind]


def dpdk_ports(source, sink):
    """Ports p0 and p1 on DPDK devices, and the arguments that DPDK takes."""
    ports = [port("p0", "dpdk", source), port("p1", "dpdk", sink)]
    eal = ["--in-memory", "--no-telemetry", "-m", "256"]
    return ports, f"[dpdk]\neal_args = {json.dumps(eal)}\n"
