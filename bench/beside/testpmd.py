"""dpdk-testpmd: forwards between two devices without switching.

`with Testpmd(bench, devices, netns) as peer`; peer.count() -> frames sent by the second device, ns.

Units: frames, ns of CLOCK_MONOTONIC, MiB.
Source: DPDK 22.11 testpmd user guide; its telemetry socket (SOCK_SEQPACKET, JSON) tells the counters.
"""

import json
import os
import shutil
import socket
import time

from .processes import Skip

MBUFS, MEMORY_MIB = 32_768, 128


class Telemetry:
    """DPDK's telemetry socket of one process."""

    def __init__(self, prefix):
        self.path = f"/run/dpdk/{prefix}/dpdk_telemetry.v2"
        self.socket = None

    def connect(self):
        """Whether it answers."""
        if not os.path.exists(self.path):
            return False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(5)
        self.socket.connect(self.path)
        self.socket.recv(1 << 16)  # who it is
        return True

    def stats(self, port):
        """Counters of a port."""
        self.socket.send(f"/ethdev/stats,{port}".encode())
        return json.loads(self.socket.recv(1 << 16))["/ethdev/stats"]

    def close(self):
        """Ends the connection."""
        if self.socket:
            self.socket.close()


class Testpmd:
    """Forwards from one virtual device to another on the forwarding core."""

    name = "testpmd io"

    def __init__(self, bench, devices, netns=None):
        self.bench, self.devices, self.netns = bench, devices, netns
        self.process, self.telemetry = None, Telemetry("weft-bench-testpmd")
        if not shutil.which("dpdk-testpmd"):
            raise Skip("dpdk-testpmd is not installed: run tools/setup.sh bench")

    def __enter__(self):
        main, forwarder = self.bench.cores
        vdevs = [f"--vdev={device}" for device in self.devices]
        eal = ["-l", f"{main},{forwarder}", "--main-lcore", main, "--no-pci", "-m", MEMORY_MIB]
        eal += ["--huge-dir", self.bench.huge_dir, "--file-prefix", "weft-bench-testpmd", *vdevs]
        own = ["--no-mlockall", "--nb-cores=1", f"--total-num-mbufs={MBUFS}", "--forward-mode=io"]
        self.process = self.bench.processes.start(["dpdk-testpmd", *eal, "--", *own], netns=self.netns)
        try:
            self.bench.processes.wait_for(self.process, self.telemetry.connect)
            end = time.monotonic() + 10
            while self.forwards_not() and time.monotonic() < end:
                time.sleep(0.02)
        except BaseException:
            self.__exit__()
            raise
        return self

    def forwards_not(self):
        """Whether it is still setting up."""
        with open(self.process.log_path, encoding="utf-8", errors="replace") as log:
            return "Press enter to exit" not in log.read()

    def __exit__(self, *_):
        self.telemetry.close()
        if self.process:
            self.bench.processes.stop(self.process)

    def count(self):
        """Frames that the second device has sent, and when."""
        start = time.monotonic_ns()
        frames = self.telemetry.stats(1)["opackets"]
        return frames, (start + time.monotonic_ns()) // 2

    def notes(self):
        """No notes."""
        return []
