"""A `weft run` between veth pairs in namespaces of their own, for the live tests.

inside(module, function, *arguments) calls it in new namespaces; there Rig(...) is the switch with its cables.

Units: frames; seconds.
Source: unshare(1), veth(4), ip-netns(8). The namespaces end with their first process, and all they hold with them.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
UNSHARE = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
UNSHARE += ["--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
# Names of namespaces and the switch's socket stay private; no interface says hello by IPv6.
PRIVATE_RUN = "mount -t tmpfs tmpfs /run && echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6"
PRIVATE_RUN += ' && exec "$@"'
START_TIMEOUT_S = 20
CAP_BPF = 39  # capabilities(7)
# A switch, and who must keep up with it, has processors of its own; here it at least goes before the rest.
FIRST = ["nice", "-n", "-15"] if os.geteuid() == 0 else []


def weft():
    """Path of the binary; a test without one fails, it is never skipped."""
    given = os.environ.get("WEFT_BIN")
    built = [os.path.join(ROOT, "target", profile, "weft") for profile in ("release", "debug")]
    path = next((path for path in ([given] if given else built) if os.access(path, os.X_OK)), None)
    assert path, (
        f"no weft binary: build it (cargo build -p weft), or set WEFT_BIN; looked for {given or built}"
    )
    return path


def command_inside(*command):
    """The command line that runs `command` in new namespaces."""
    return [*UNSHARE, "sh", "-c", PRIVATE_RUN, "sh", *map(str, command)]


def missing():
    """Why no namespace with veth can be had here, or None."""
    try:
        probe = subprocess.run(
            command_inside("ip", "link", "add", "vl0", "type", "veth", "peer", "vl1"),
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return f"unshare or ip cannot be run: {err}"
    return None if probe.returncode == 0 else f"network namespaces or veth missing: {probe.stderr.strip()}"


def inside(module, function, *arguments, timeout=300):
    """Calls `function` of `module` with text arguments in new namespaces; fails as it does, with what it printed.

    A call that hangs says where, shortly before its time is over.
    """
    code = f"import faulthandler, sys; faulthandler.dump_traceback_later({timeout - 5}); sys.path.insert(0, {HERE!r});"
    code += f" import {module} as m; m.{function}(*sys.argv[1:])"
    try:
        done = subprocess.run(
            command_inside(sys.executable, "-c", code, *arguments),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as err:
        said = [(text or b"").decode(errors="replace") for text in (err.stdout, err.stderr)]
        raise AssertionError(f"{module}.{function} hangs after {timeout} s\n{said[0]}{said[1]}") from None
    print(done.stdout)
    # The last lines say where and what: a report of a line shows the first.
    why = " | ".join(line.strip() for line in done.stderr.splitlines()[-4:]) or f"exit code {done.returncode}"
    assert done.returncode == 0, f"{why}\n{done.stdout}{done.stderr}"


def sh(command):
    """Runs a shell command that must succeed."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr.strip() or done.stdout.strip()}"
    return done.stdout


def pings(namespace, address, count):
    """How many of so many pings came back within 2 s each."""
    command = ["ip", "netns", "exec", namespace, "fping", "-q", "-c", str(count), "-p", "10", "-t", "2000", address]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    return int(said.partition("xmt/rcv/%loss = ")[2].split("/")[1])


def tool(name, *arguments, host=None, **options):
    """Starts a tool of this folder, at a host or beside the switch."""
    command = [sys.executable, os.path.join(HERE, name), *map(str, arguments)]
    return subprocess.Popen(at(host, *command), stdout=subprocess.PIPE, text=True, **options)


def at(host, *command):
    """The command line that runs `command` at a host with a namespace; None is the switch's."""
    return [*(["nsenter", f"--net=/run/netns/{host}"] if host else []), *map(str, command)]


def xdp_kind():
    """The kind of port that takes AF_XDP where programs may be loaded: by itself weft takes a packet socket on veth."""
    with open("/proc/self/status", encoding="ascii") as status:
        held = int(next(line.split()[1] for line in status if line.startswith("CapEff:")), 16)
    return "af_xdp" if os.geteuid() == 0 and held & (1 << CAP_BPF) else "auto"


def plug(port, host, address=None):
    """A cable: `port` at the switch, `host` beside it; with an address, a kernel host with `eth0`."""
    sh(f"ip link add {port} type veth peer name {host}")
    if address:
        sh(f"ip netns add {host} && ip link set {host} netns {host} name eth0 addrgenmode none")
        sh(f"ip -n {host} link set eth0 up && ip -n {host} addr add {address} dev eth0")
    else:
        sh(f"ip link set {host} up")
    sh(f"ip link set {port} up")
    # An end gets its queue some time after it has a carrier. Until then it throws away what is sent there and says nothing.
    end = time.monotonic() + START_TIMEOUT_S
    while " qdisc noop " in sh(f"ip -n {host} link show eth0" if address else f"ip link show {host}"):
        assert time.monotonic() < end, f"{host} gets no queue"
        time.sleep(0.01)


def is_up(shown):
    """Whether all links are, in what `weft show ports --json` says."""
    return all(port["link_up"] for port in json.loads(shown)["ports"])


class Rig:
    """A running switch, all of whose links are up; a context that stops it and holds its books."""

    def __init__(self, config, *flags):
        self.file, self.ledger = "/run/weft.toml", None
        with open(self.file, "w", encoding="ascii") as file:
            file.write(config)
        self.process = subprocess.Popen(
            [*FIRST, weft(), "run", "-c", self.file, "--json", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + START_TIMEOUT_S
        while not (shown := self.ask("show", "ports", "--json")) or not is_up(shown):
            assert self.process.poll() is None, f"weft run: {self.process.stderr.read()}"
            assert time.monotonic() < end, f"weft run does not answer, or a link is down: {shown}"
            time.sleep(0.05)

    @staticmethod
    def ask(*words):
        """Asks the running switch; None when it does not answer."""
        asked = subprocess.run([weft(), *words], capture_output=True, text=True, check=False)
        return asked.stdout if asked.returncode == 0 else None

    def show(self):
        """All counters; watermarks go on."""
        return json.loads(self.ask("show", "all", "--json", "--keep-watermarks"))["all"]

    def summary(self):
        """The switch in a line, for the report of a failure: what came in at each port, went out and was dropped."""
        shown = self.show()
        said = [
            f"{port['name']}: link {'up' if port['link_up'] else 'down'}, {port['rx_frames']} in, {port['tx_frames']} out"
            for port in shown["ports"]
        ]
        return "; ".join([*said, f"dropped {shown['drops']['total']}, lost before {shown['drops']['kernel_rx']}"])

    def show_settled(self):
        """All counters, once nothing is queued any more."""
        end = time.monotonic() + 5
        while (now := self.show())["conservation"]["queued"]:
            assert time.monotonic() < end, now["conservation"]
            time.sleep(0.05)
        return now

    def stop(self):
        """Ends the switch as a user would; returns the final ledger, which must come out even."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, err
        self.ledger = json.loads(out)
        came = self.ledger["rx"] + self.ledger["copies"]
        assert came == sum(self.ledger[key] for key in ("tx", "dropped", "consumed", "queued")), self.ledger
        return self.ledger

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if kind is not None:
            with contextlib.suppress(TypeError, ValueError):  # a switch that does not answer says nothing
                error.add_note(self.summary())
            # What may tell why: counters of switch, interfaces and this machine's backlogs.
            for command in ([weft(), "show", "all", "--keep-watermarks"], ["ip", "-s", "link"]):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    subprocess.run(command, stdout=sys.stderr, timeout=10, check=False)
            with open("/proc/net/softnet_stat", encoding="ascii") as stat:
                print(stat.read(), file=sys.stderr)
            self.process.kill()
            print(self.process.communicate()[1], file=sys.stderr, flush=True)
        elif self.ledger is None:
            self.stop()


# For fabrics in which nobody is stopped: a busy machine may not run a cache for the 200 ms that are the default of
# `snoop_ms`, nor whoever answers for a second. The second is an option of `weft fabric up --processes`.
PATIENT_SNOOP_MS = 10_000
PATIENT = ("--answer-ms", "20000")


def with_snoop_ms(file, line, snoop_ms):
    """A copy of a topology file with the key `snoop_ms` behind `line`; its path."""
    with open(file, encoding="ascii") as shipped:
        text = shipped.read()
    assert text.count(f"{line}\n") == 1, line
    path = "/run/with-snoop-ms.toml"
    with open(path, "w", encoding="ascii") as copy:
        copy.write(text.replace(f"{line}\n", f"{line}\nsnoop_ms = {snoop_ms}\n"))
    return path


class FabricUp:
    """A `weft fabric up`, behind the command `enter`; a context that ends it as a user would, and prints what it said."""

    def __init__(self, *arguments, enter=()):
        command = [*enter, weft(), "fabric", "up", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.said = []  # until it is up

    def __enter__(self):
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("fabric is up"):
                return self
        self.process.wait(timeout=60)
        raise AssertionError("".join(self.said))

    def end(self, how=signal.SIGTERM, timeout=60):
        """Ends it; its exit code, and what it has said since it was up."""
        self.process.send_signal(how)
        try:
            said, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said, _ = self.process.communicate()
        return self.process.returncode, said

    def __exit__(self, kind, *_):
        code, said = self.end()
        print(said)
        assert kind is not None or code == 0, said


def per_priority(shown, port, key):
    """Counter `key` of a port's queues, by priority; those that are not 0."""
    return {row["pri"]: row[key] for row in shown["queues"] if row["port"] == port and row[key]}


def assert_lossless(shown):
    """Nothing was dropped, by the switch or by the kernel before it, and the books come out even."""
    assert not any(shown["drops"]["total"].values()), shown["drops"]
    assert not any(port["kernel_rx"] for port in shown["ports"]), shown["drops"]
    assert shown["conservation"]["holds"], shown["conservation"]
