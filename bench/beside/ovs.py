"""Open vSwitch, user-space datapath, as the learning switch that it is (`NORMAL`), with daemons of the bench's own.

`with Ovs(bench, netns) as ovs`; then ovs.ports(...), ovs.count(), ovs.caches(), ovs.known().

Units: frames, ns of CLOCK_MONOTONIC, MiB.
Source: ovs-vswitchd(8), ovs-vswitchd.conf.db(5), ovs-appctl(8) with its JSON-RPC socket. Nothing is read from
or left in the system's own Open vSwitch: run directory, database and sockets are the bench's.
"""

import json
import os
import re
import shutil
import socket
import time

from .processes import Skip

DAEMON = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
CACHES = ("Rx packets", "PHWOL", "EMC hits", "SMC hits", "Megaflow hits", "Upcalls", "Lost upcalls", "Tx packets")
MEMORY_MIB, MACS = 512, 65_536
START_S = 60  # beside busy neighbours; an idle machine takes a second


class Control:
    """The daemon's control socket: what ovs-appctl speaks, without a process for each command."""

    def __init__(self, path):
        self.path, self.socket, self.rest = path, None, ""

    def connect(self):
        """Whether it answers."""
        if not os.path.exists(self.path):
            return False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(20)
        self.socket.connect(self.path)
        return True

    def ask(self, method, *params):
        """The text that a command answers."""
        request = {"id": 0, "method": method, "params": [str(word) for word in params]}
        self.socket.sendall(json.dumps(request).encode())
        while True:
            try:
                said, end = json.JSONDecoder().raw_decode(self.rest)
                self.rest = self.rest[end:].lstrip()
                break
            except ValueError:
                data = self.socket.recv(1 << 20)
                if not data:
                    raise RuntimeError(f"ovs-vswitchd ended at {method}") from None
                self.rest += data.decode()
        if said.get("error"):
            raise RuntimeError(f"ovs {method}: {said['error']}")
        return said["result"]

    def close(self):
        """Ends the connection."""
        if self.socket:
            self.socket.close()


class Ovs:
    """Both daemons and a bridge without ports; its forwarding thread is on the forwarding core."""

    name = "OVS NORMAL"

    def __init__(self, bench, netns=None):
        self.bench, self.netns, self.folder = bench, netns, f"{bench.folder}/ovs"
        self.database, self.daemon = None, None
        self.control = Control(f"{self.folder}/vswitchd.ctl")
        for needed in (DAEMON, SCHEMA):
            if not os.path.exists(needed):
                raise Skip(f"{needed} is missing: run tools/setup.sh bench")

    def _vsctl(self, *words):
        return self.bench.processes.run(["ovs-vsctl", f"--db=unix:{self.folder}/db.sock", *words], note=words[0] != "--no-wait")

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        processes, folder = self.bench.processes, self.folder
        main, forwarder = self.bench.cores
        for name in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"):
            os.environ[name] = folder
        os.makedirs(folder)
        processes.run(["ovsdb-tool", "create", f"{folder}/conf.db", SCHEMA], note=False)
        server = ["ovsdb-server", f"{folder}/conf.db", f"--remote=punix:{folder}/db.sock"]
        self.database = processes.start([*server, f"--unixctl={folder}/ovsdb.ctl"], core=main)
        processes.wait_for(self.database, lambda: os.path.exists(f"{folder}/db.sock"), START_S)
        settings = [f"pmd-cpu-mask={1 << forwarder:#x}"]
        if not self.netns:
            settings += ["dpdk-init=true", f"dpdk-lcore-mask={1 << main:#x}", f"dpdk-socket-mem={MEMORY_MIB}"]
            settings += [f"dpdk-hugepage-dir={self.bench.huge_dir}", 'dpdk-extra="--no-pci"']
        other = [f"other_config:{setting}" for setting in settings]
        self._vsctl("--no-wait", "init", "--", "set", "Open_vSwitch", ".", *other)
        start = [DAEMON, f"unix:{folder}/db.sock", f"--unixctl={self.control.path}"]
        self.daemon = processes.start(start, netns=self.netns)
        processes.wait_for(self.daemon, self.control.connect, START_S)
        table = f"other_config:mac-table-size={MACS}"
        self._vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", table)

    def __exit__(self, *_):
        self.control.close()
        for process in (self.daemon, self.database):
            if process:
                self.bench.processes.stop(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def ports(self, first, second, targets=()):
        """Makes two ports (name and Interface columns each); `targets` are known to be behind the second."""
        for name, *options in (second, first):  # what sends comes last, when its targets are known
            self._vsctl("add-port", "br0", name, "--", "set", "Interface", name, *options)
            self._check(name)
            for target in targets if name == second[0] else ():
                self.control.ask("fdb/add", "br0", name, 0, target)

    def _check(self, name):
        """Waits for the port, which may have been refused."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            got = self._vsctl("get", "Interface", name, "error", "ofport").split("\n")
            if got[0] not in ("[]", '""'):
                raise Skip(f"OVS refuses {name}: {got[0]}")
            if got[1].isdigit():
                return
            time.sleep(0.05)
        raise RuntimeError(f"OVS did not create {name}")

    def count(self):
        """Frames that the forwarding thread has sent, and when."""
        start = time.monotonic_ns()
        shown = self.control.ask("dpif-netdev/pmd-perf-show", "-nh")
        sent = sum(int(frames) for frames in re.findall(r"Tx packets:\s+(\d+)", shown))
        return sent, (start + time.monotonic_ns()) // 2

    def forget(self):
        """Resets the counters, which the forwarding thread does at its next pass."""
        before, _ = self.count()
        self.control.ask("dpif-netdev/pmd-stats-clear")
        self.bench.processes.wait_for(self.daemon, lambda: self.count()[0] < before or before == 0)

    def caches(self):
        """What pmd-perf-show says of its caches."""
        shown = self.control.ask("dpif-netdev/pmd-perf-show", "-nh").split("\n")
        lines = (" ".join(line.strip("- ").split()) for line in shown)
        return [line for line in lines if line.startswith(CACHES)]

    def known(self):
        """(MAC, port) of all entries."""
        rows = (line.split() for line in self.control.ask("fdb/show", "br0").split("\n")[1:])
        ports = dict(re.findall(r"(\S+) (\d+)/", self.control.ask("dpif/show")))
        numbers = {number: name for name, number in ports.items()}
        return {(row[2], numbers.get(row[0], row[0])) for row in rows if len(row) == 4}
