"""The machine: what it is, its huge pages, its cores, and what else it does.

facts() -> dict; huge_pages(wanted) gives back what it took; cores() -> (generator's, forwarder's);
busy() -> share; Others().share(), while the bench itself is at work.

Units: MiB; shares of 1.
Source: Linux Documentation/admin-guide/mm/hugetlbpage.rst, proc_stat(5).
"""

import contextlib
import os
import platform
import subprocess
import time

NR_HUGEPAGES = "/proc/sys/vm/nr_hugepages"


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def _field(path, name):
    lines = (line.split(":", 1) for line in _read(path).splitlines() if ":" in line)
    return next((value.strip() for key, value in lines if key.strip() == name), "unknown")


def huge_page_kb():
    """Size of a huge page, in KiB."""
    return int(_field("/proc/meminfo", "Hugepagesize").split()[0])


@contextlib.contextmanager
def huge_pages(megabytes):
    """Reserves huge pages beyond those that are in use, and frees them; yields how many MiB there are."""
    before = int(_read(NR_HUGEPAGES))
    free = int(_field("/proc/meminfo", "HugePages_Free"))
    wanted = before - free + megabytes * 1024 // huge_page_kb()
    try:
        if wanted > before:
            with open(NR_HUGEPAGES, "w", encoding="ascii") as file:
                file.write(str(wanted))
        yield int(_field("/proc/meminfo", "HugePages_Free")) * huge_page_kb() // 1024
    finally:
        with open(NR_HUGEPAGES, "w", encoding="ascii") as file:
            file.write(str(before))


def cores():
    """The generator's core and the forwarder's; the same twice on a machine with one."""
    mine = sorted(os.sched_getaffinity(0))
    return mine[0], mine[-1]


def busy(seconds=0.5):
    """Share of all processors that others use now, the hypervisor's guests among them: it distorts figures."""

    def ticks():
        user, nice, system, idle, iowait, *rest = map(int, _read("/proc/stat").splitlines()[0].split()[1:9])
        return user + nice + system + sum(rest), idle + iowait

    used, idle = ticks()
    time.sleep(seconds)
    used, idle = (after - before for before, after in zip((used, idle), ticks()))
    return round(used / max(used + idle, 1), 3)


class Others:
    """What others use of the processors from now on: user time that is not the bench's, and what guests took."""

    def __init__(self):
        self.start = self._ticks()

    @staticmethod
    def _ticks():
        """Ticks of others so far, and of all processors; the namespace shows the bench's own processes only."""
        user, nice, system, idle, iowait, irq, softirq, steal, *_ = map(int, _read("/proc/stat").split("\n")[0].split()[1:])
        own = os.times()
        ours = (own.user + own.children_user) * os.sysconf("SC_CLK_TCK")
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):  # it may have ended
                    fields = _read(f"/proc/{name}/stat").rpartition(")")[2].split()
                    ours += int(fields[11]) + int(fields[13])  # utime and that of children waited for
        return user + nice - ours + steal, user + nice + system + idle + iowait + irq + softirq + steal

    def share(self):
        """Their share of the time since the start; a tick of the bench that is counted late does not make it less than 0."""
        used, passed = (now - then for now, then in zip(self._ticks(), self.start))
        return max(used, 0) / max(passed, 1)


def _version(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except FileNotFoundError:
        return "not installed"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"


def facts(weft):
    """What a result file says about the machine."""
    package = ("dpkg-query", "-W", "-f", "${Version}")
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cpus": os.cpu_count(),
        "memory_mib": int(_field("/proc/meminfo", "MemTotal").split()[0]) // 1024,
        "busy_at_start": busy(),
        "weft": _version(weft, "--version"),
        "commit": _version("git", "-C", os.path.dirname(os.path.abspath(__file__)), "describe", "--always", "--dirty"),
        "dpdk": _version(*package, "dpdk-dev"),
        "open_vswitch": _version(*package, "openvswitch-switch-dpdk"),
        "iperf3": _version("iperf3", "--version"),
        "iproute2": _version("ip", "-V"),
    }
