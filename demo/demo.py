#!/usr/bin/env python3
"""The demonstration: four hosts on one weft switch, real traffic of every format, a table of what happened.

demo.py [WEFT] -> steps as they go, then the table; exit 1 when a step did not go as it must.

Units: frames, seconds, Mbit/s.
Runs in namespaces of its own (net, mount, pid; also user when not root), so that whatever ends
it takes everything along: nothing is left behind.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "bench")]

import outage  # noqa: E402 - needs the path above
from namespaces import enter, sh  # noqa: E402

HOSTS = (1, 2, 3, 4)
BRIDGED = (5, 6)  # hosts beside them, on a bridge of the kernel's
INSIDE = "WEFT_DEMO_INSIDE"
OUTSIDE = "WEFT_DEMO_SOCKET"  # number of a descriptor: a socket that listens outside of the namespaces
KEEP_S = int(os.environ.get("KEEP") or 0)  # seconds that the incast goes on longer, to look at the page
METRICS = ("127.0.0.1", 9464)
BUSY_MAX = 0.25  # of the processors: what others may have where rates are compared

# Port 4 is shaped far below what three senders offer, and the buffer is small: queues, marks and pauses.
CONFIG = """
[switch]
name = "demo"
[buffer]
buffer_size_mb = 24
[ecn]
ecn_threshold_low = 5
ecn_threshold_high = 60
{ports}
"""
PORT = '[[port]]\nname = "p{n}"\ndevice = "sw{n}"\nafh = "{afh}"\n{extra}'


def may_come_first():
    """Whether processes may have the policy SCHED_RR here."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except OSError:
        return False
    return True


# On a machine that has more to do, frames would wait for a worker in a receive ring until it runs over.
FIRST = ["--set", 'run.priority="rr"'] if may_come_first() else []


def at(host, *command):
    """The command line that runs `command` at a host."""
    return ["nsenter", f"--net=/run/netns/h{host}", *map(str, command)]


class LivePage:
    """The switch's page for a browser outside of these namespaces: by a socket that was made there, to the switch in here."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)
        self.url = "http://{}:{}/".format(*self.socket.getsockname())
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        """Takes connections for as long as this process runs."""
        while True:
            client, _ = self.socket.accept()
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        """Carries one connection, both ways, until either end closes it."""
        with client, contextlib.suppress(OSError), socket.create_connection(METRICS) as switch:
            back = threading.Thread(target=self.copy, args=(switch, client), daemon=True)
            back.start()
            self.copy(client, switch)
            back.join()

    @staticmethod
    def copy(source, target):
        """Copies bytes until there are no more, and says so to the other end."""
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                target.sendall(part)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


class Demo:
    """The switch, its hosts, and what was found."""

    def __init__(self, weft, folder, page):
        self.page = page
        self.weft, self.config = weft, os.path.join(folder, "demo.toml")
        self.rows, self.good, self.switch, self.parts = [], True, None, None

    def note(self, what, result, good=True):
        """Adds a row to the table of what happened."""
        self.rows.append((what, result, good))
        self.good &= good
        print(f"  {'ok' if good else 'NOT OK':7} {what}: {result}", flush=True)

    def network(self):
        """Four namespaces, each joined to a port of the switch by a veth pair."""
        sh("ip link set lo up")
        for n in HOSTS:
            sh(f"ip netns add h{n} && ip link add sw{n} type veth peer name eth0 netns h{n}")
            sh(f"ip link set sw{n} up && ip -n h{n} link set lo up && ip -n h{n} link set eth0 up")
            sh(f"ip -n h{n} addr add 10.77.0.{n}/24 dev eth0")

    def configure(self, lite=False):
        """Writes the configuration: ports 3 and 4 as AFH_Lite links, or all as they usually are."""
        ports = ""
        for n in HOSTS:
            afh = "lite" if lite and n > 2 else "auto"
            extra = "max_rate_gbps = 0.2\n" if n == 4 and not lite else ""
            ports += PORT.format(n=n, afh=afh, extra=extra)
        with open(self.config, "w", encoding="ascii") as file:
            file.write(CONFIG.format(ports=ports))

    def run_switch(self):
        """Starts `weft run` and waits until it answers."""
        self.configure()
        self.switch = subprocess.Popen(
            [self.weft, "run", "-c", self.config, "--metrics", "{}:{}".format(*METRICS), "--json", *FIRST],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(100):
            asked = subprocess.run([self.weft, "show", "ports"], capture_output=True, check=False)
            if asked.returncode == 0:
                print(f"  live page while the switch runs: {self.page.url}", flush=True)
                return
            if self.switch.poll() is not None:
                raise RuntimeError(f"weft run: {self.switch.stderr.read()}")
            time.sleep(0.1)
        raise RuntimeError("weft run does not answer")

    def show(self):
        """All counters; watermarks go on."""
        return json.loads(sh(f"'{self.weft}' show all --json --keep-watermarks"))["all"]

    def reload(self, lite):
        """Changes the running switch."""
        self.configure(lite)
        sh(f"'{self.weft}' reload")

    def ping(self):
        """Every host to every other."""
        sent = answered = 0
        for source in HOSTS:
            pings = []
            for target in HOSTS:
                if target != source:
                    ping = at(source, "fping", "-q", "-c", 20, "-p", 20, "-t", 10_000, f"10.77.0.{target}")
                    pings.append(subprocess.Popen(ping, stderr=subprocess.PIPE, text=True))
            for ping in pings:
                counts = ping.communicate(timeout=30)[1].partition("xmt/rcv/%loss = ")[2].split("/")
                sent += 20
                answered += int(counts[1]) if len(counts) > 1 else 0
        self.note("ping, all pairs of kernel hosts", f"{answered} of {sent} answered", answered == sent)

    @staticmethod
    def iperf(server, client, address):
        """Mbit/s of one TCP stream for a second between two kernel hosts; what iperf3 said where that is no number."""
        listening = subprocess.Popen(at(server, "iperf3", "-s", "-1", "--forceflush"), stdout=subprocess.PIPE, text=True)
        for line in listening.stdout:
            if "listening" in line:
                break
        command = at(client, "iperf3", "-c", address, "-t", 1, "-J")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6
        except (ValueError, KeyError):
            raise RuntimeError(f"iperf3: {done.stdout[-200:]}") from None
        finally:
            listening.kill()
            listening.communicate()

    @staticmethod
    def busy(seconds=0.5):
        """Share of all processors that others take: the demo waits meanwhile, and its switch has no frames."""

        def times():
            with open("/proc/stat", encoding="ascii") as file:
                fields = [int(field) for field in file.readline().split()[1:9]]
            return sum(fields), fields[3] + fields[4]  # idle, and idle while a disk is waited for

        total, idle = times()
        time.sleep(seconds)
        later, idle_later = times()
        return 1 - (idle_later - idle) / max(1, later - total)

    def tcp(self):
        """TCP of two kernel hosts with their default offloads, in turn with two hosts without TSO on a Linux bridge."""
        sh("ip link add br0 type bridge && ip link set br0 up")
        for n in BRIDGED:
            sh(f"ip netns add h{n} && ip link add br{n} type veth peer name eth0 netns h{n}")
            sh(f"ip link set br{n} master br0 up && ip -n h{n} link set lo up && ip -n h{n} link set eth0 up")
            sh(f"ip -n h{n} addr add 10.78.0.{n}/24 dev eth0")
            sh(f"nsenter --net=/run/netns/h{n} ethtool -K eth0 tso off")
        busy, rounds = self.busy(), []
        for _ in range(3):
            rounds.append((self.iperf(2, 1, "10.77.0.2"), self.iperf(6, 5, "10.78.0.6")))
            busy = max(busy, self.busy())
        mbps, bridge = (statistics.median(way) for way in zip(*rounds))
        for n in BRIDGED:
            sh(f"ip netns del h{n}")
        sh("ip link del br0")
        errors = sh("nsenter --net=/run/netns/h2 cat /proc/net/snmp").split("\n")
        names, values = (line.split() for line in errors if line.startswith("Tcp:"))
        wrong = int(values[names.index("InCsumErrors")])
        text = f"{mbps:.0f} Mbit/s, {wrong} checksum errors; {mbps / bridge:.2f} of a Linux bridge's {bridge:.0f} (TSO off)"
        # A bridge has no thread of its own: it gains where processors are short.
        is_fair = busy < BUSY_MAX
        if not is_fair:
            text += f"; not judged, as others had {busy:.0%} of the processors"
        self.note("iperf3 TCP, hosts' TSO on", text, wrong == 0 and mbps > 0 and (mbps >= bridge or not is_fair))

    def traffic(self, host, *options):
        """A weft host on `host`'s interface."""
        command = [self.weft, "traffic", "eth0", "--station", host, "--json", *options]
        return subprocess.Popen(at(host, *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def receiver(self, host, *options):
        """A weft host whose port is open: one that is not there yet loses what is flooded to it."""
        started = self.traffic(host, *options)
        line = started.stderr.readline()
        if "is open" not in line:
            raise RuntimeError(f"weft traffic: {line.strip()} {started.stderr.read().strip()}")
        return started

    @staticmethod
    def report(host, seconds=40):
        """What a weft host says at its end."""
        out, err = host.communicate(timeout=seconds)
        if host.returncode != 0:
            raise RuntimeError(f"weft traffic: {err.strip()}")
        return json.loads(out)

    @staticmethod
    def own_loss(report):
        """Frames that a host's own receive ring lost, after the switch had delivered them."""
        return report["other"]["kernel_rx"] + report["other"]["port_rx_dropped"]

    def note_frames(self, what, text, missing, before, got):
        """Adds a row about frames of which some are missing: who lost them, in which ring, how long its worker was away.

        What the receiving host lost in its own ring, the switch had delivered. Any loss in the switch is a failure, also where
        the host lost as many.
        """
        if missing == 0:
            self.note(what, text)
            return
        after, own, causes = self.show(), self.own_loss(got), []
        for old, new in zip(before["ports"], after["ports"]):
            if ring := new["kernel_rx"] - old["kernel_rx"]:
                causes.append(f"{ring} in the receive ring of the switch's port {new['name']}")
        for name, count in sorted(after["drops"]["total"].items()):
            if more := count - before["drops"]["total"].get(name, 0):
                causes.append(f"{more} dropped as {name}")
        is_lost_here = bool(causes) or missing > own
        if own:
            causes.append(f"{own} in the receive ring of the receiving host, which had no processor for too long")
        away = max(worker["away_max_ns"] for worker in after["workers"]) / 1e6
        causes.append(f"the switch's worker was away for {away:.0f} ms at most")
        self.note(what, f"{text}; {missing} missing: {', '.join(causes)}", not is_lost_here)

    def streams(self, name, source, target, *options):
        """Streams of every priority from one host to another, each frame checked where it arrives."""
        before = self.show()
        receiver = self.receiver(target, *options, "--duration", 4)
        sender = self.traffic(source, "--to", target, "--pri", "all", "--count", 500, "--rate", "2kfps", *options)
        sent = self.report(sender)
        got = self.report(receiver)
        pris = [stream["pri"] for stream in sent["tx_streams"]]
        frames = sum(stream["frames"] for stream in sent["tx_streams"])
        unique = sum(stream["unique"] for stream in got["rx_streams"])
        faults = sum(stream[key] for stream in got["rx_streams"] for key in ("reordered", "duplicates", "corrupt"))
        what = f"{name}, priorities {', '.join(map(str, sorted(pris)))}"
        if faults:
            self.note(what, f"{faults} frames are damaged, out of order or there twice", False)
        else:
            text = f"{unique} of {frames} frames undamaged and in order"
            self.note_frames(what, text, frames - unique, before, got)

    def formats(self):
        """All four formats; the port's mode for Lite comes with a reload of the running switch."""
        self.streams("standard", 1, 2, "--format", "standard", "--size", "80-1200")
        for name in ("gen1", "gen2"):  # a tag can ask for each priority
            tagged = ("--format", name, "--vlan", 100, "--size", "80-1200")
            self.streams(f"{name} in VLAN 100", 1, 2, *tagged)
        self.reload(lite=True)
        self.streams("lite (after weft reload)", 3, 4, "--format", "lite", "--afh", "lite", "--size", "80-1200")
        self.reload(lite=False)

    def incast(self):
        """Three hosts at once to a slower fourth, in a lossless priority, honouring PFC."""
        print(f"  an incast begins; see it at {self.page.url}", flush=True)
        before = self.show()
        receiver = self.receiver(4, "--duration", 7 + KEEP_S)
        options = ("--to", 4, "--pri", 2, "--ecn", "--size", 1392, "--rate", "200Mbps", "--duration", 3 + KEEP_S)
        senders = [self.traffic(n, *options, "--linger", 2) for n in (1, 2, 3)]
        sent = [self.report(sender, 40 + KEEP_S) for sender in senders]
        got = self.report(receiver)
        after = self.show()
        frames = sum(report["tx"]["frames"] for report in sent)
        data = sum(stream["frames"] for report in sent for stream in report["tx_streams"])
        unique = sum(stream["unique"] for stream in got["rx_streams"])
        lost = data - unique
        text = f"{unique} of {data} frames arrived, {lost} lost"
        self.note_frames("incast 3:1, lossless priority", text, lost, before, got)

        def grown(part, key):
            return sum(row[key] for row in after[part]) - sum(row[key] for row in before[part])

        marked, pauses, resumes = grown("queues", "ecn_marked"), grown("pfc", "xoff"), grown("pfc", "xon")
        self.note("ECN marks", f"{marked} of {frames} frames", marked > 0)
        heard = sum(report["control"]["pfc_rx"] for report in sent)
        text = f"{pauses} x XOFF, {resumes} x XON, {heard} PFC frames at the senders"
        self.note("PFC towards the senders", text, pauses > 0 and pauses == resumes and heard > 0)

    def fabric(self):
        """A CXL fabric in one process: two hosts on two switches share memory that is dealt out over four GFDs."""
        folder = os.path.join(os.path.dirname(self.config), "fabric")
        file = f"{ROOT}/pcaps/fabric/fig-7-26.toml"
        command = [self.weft, "fabric", "up", file, "--dir", folder]
        self.parts = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        hosts, bridges = 0, 0
        for line in self.parts.stdout:
            hosts += line.rstrip().endswith(" sees")
            bridges += " port, " in line
            if line.startswith("fabric is up"):
                break
        self.note("fabric discovered, PIDs and routes set", f"{hosts} hosts see {bridges} bridges", hosts == 2)
        base, size = "0x10000000000", "1MiB"
        for host, word in (("h0", "write"), ("h1", "read")):
            socket = f"{folder}/{host}/endpoint.sock"
            done = sh(f"{self.weft} endpoint ctl --json {socket} {word} {base} {size} --seed=7")
            report = json.loads(done)["transfer"]
            raw = report["written"] + report["read"]
            text = f"{raw} bytes in {report['ns'] / 1e6:.0f} ms by UIO"
            self.note(f"{host} {word}s over four GFDs", text, report["ok"] and raw == 1 << 20)
        asked = f"--socket {folder}/fm/fm.sock --host h0 --hpa 0x10000003040"
        lines = sh(f"{self.weft} fm trace {asked}").splitlines()
        self.note("what the manager says of an address", lines[-1], lines[-1].startswith("ends: memory"))
        self.parts.send_signal(signal.SIGTERM)
        out, _ = self.parts.communicate(timeout=20)
        books = [line for line in out.splitlines() if "unaccounted" in line]
        even = len(books) == 2 and all(line.endswith("unaccounted 0") for line in books)
        self.note("the books of both switches", "; ".join(books), even)

    def processes(self):
        """A fabric of processes on veth pairs: loads and stores, a transfer between hosts' memories, a pulled cable."""
        folder = os.path.join(os.path.dirname(self.config), "processes")
        command = [self.weft, "fabric", "up", "--processes", f"{ROOT}/pcaps/fabric/fabric-memory.toml", "--dir", folder]
        self.parts = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        is_up = any(line.startswith("fabric is up") for line in self.parts.stdout)
        self.note("fabric of processes, two switches on two cables", "is up" if is_up else "does not come up", is_up)
        for host, word in (("h0", "write"), ("h1", "read")):
            access = f"{folder}/{host}/endpoint.sock {word} {outage.HPA:#x} 64KiB --seed=9 --via cxl-mem"
            report = json.loads(sh(f"{self.weft} endpoint ctl --json {access}"))["transfer"]
            raw = report["written"] + report["read"]
            what = f"{host} {'stores' if word == 'write' else 'loads and compares'} lines of G-FAM"
            self.note(what, f"{raw} bytes in {report['ns'] / 1e6:.0f} ms by CXL.mem", report["ok"] and raw == 1 << 16)
        script = [sys.executable, f"{ROOT}/lab/examples/kv_cache.py", "--dir", folder, "--size", "16MiB"]
        moved = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
        told = [line for line in moved.stdout.splitlines() if "of transfers" in line] or [moved.stderr.strip()]
        good = moved.returncode == 0 and moved.stdout.endswith("verified\n")
        self.note("a KV-cache moves from h0 to h1", f"{told[0]}{', verified by hash' if good else ''}", good)
        # The second granule is of the device at the other switch; memory requests are static, and wait for new tables.
        rig = outage.Fabric(Path(folder), 20, [("h0", outage.HPA + 4_096, "plain", "outage_ms")], part=1)
        row = rig.pull(0)
        text = f"first changed table after {row['first_table_ms']:.0f} ms, flow back after {row['outage_ms']:.0f} ms"
        self.note("one of the two cables is pulled under load", text, bool(row["events"]))
        self.parts.send_signal(signal.SIGTERM)
        self.parts.communicate(timeout=60)
        self.note("the fabric of processes ends", f"exit code {self.parts.returncode}", self.parts.returncode == 0)

    def scenario(self, name, *options):
        """Results of a scenario file, run in virtual time."""
        file = os.path.join(ROOT, "scenarios", name)
        command = [self.weft, "sim", "run", file, "--json", "-", *options]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        return json.loads(done.stdout), done.returncode

    def model(self):
        """The same switch in virtual time: two switches and LITE, then an incast with marks and without."""
        results, code = self.scenario("setting-b-lite-pfc.toml")
        said = results["summary"]
        last = said["fct_ps"]["max"] / 1e6
        text = f"{said['flows_delivered']} of {said['flows']} flows, {said['dropped_frames']} frames lost, "
        self.note("model, LITE over two switches", text + f"the last flow after {last:.4f} us", code == 0)
        (marked, code), (unmarked, _) = (
            self.scenario("setting-c-rate-control.toml", "--set", f"ecn.ecn_enabled={on}") for on in ("true", "false")
        )
        paused = [each["summary"]["host_paused_ps"] / 1e6 for each in (marked, unmarked)]
        text = f"hosts were paused for {paused[0]:.1f} us with ECN, {paused[1]:.1f} us without"
        self.note("model, incast of four to one", text, code == 0 and paused[0] < paused[1])

    def conform(self):
        """A second switch, with the buffer of a known chip, is held against its thresholds frame by frame."""
        command, links = [self.weft, "run", "--profile", "th2-100g-40m", "--set", "switch.name=chip", *FIRST], []
        # The kernel's own frames (IPv6's greetings) would be counted with those of the cases.
        sh("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
        for n in range(4):
            sh(f"ip link add cs{n} type veth peer name ch{n} && ip link set cs{n} up && ip link set ch{n} up")
            command += ["--port", f"c{n}=cs{n}"]
            links.append(f"--link=c{n}=ch{n}")
        self.parts = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            asked = [self.weft, "show", "ports", "--switch", "chip"]
            if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)
        done = subprocess.run(
            [self.weft, "conform", "run", "--switch", "chip", *links], capture_output=True, text=True, timeout=60, check=False
        )
        self.parts.send_signal(signal.SIGTERM)
        self.parts.wait(timeout=20)
        last = (done.stdout.splitlines() or [done.stderr])[-1]
        self.note("weft conform run, buffer of a Tomahawk 2", last, done.returncode == 0 and " passed" in last)

    def sums(self):
        """What the switch counted by port, and whether all of it adds up."""
        all_ = self.show()
        print("\nport  link  rx frames  tx frames  received by format")
        for port in all_["ports"]:
            formats = ", ".join(f"{name} {count}" for name, count in sorted(port["rx_formats"].items()))
            link = "up" if port["link_up"] else "down"
            print(f"{port['name']:5} {link:5} {port['rx_frames']:9}  {port['tx_frames']:9}  {formats}")
        drops = ", ".join(f"{name} {count}" for name, count in sorted(all_["drops"]["total"].items()) if count)
        print(f"drops by reason: {drops or 'none'}")
        rings = ", ".join(f"{port['name']} {port['kernel_rx']}" for port in all_["ports"] if port["kernel_rx"])
        away = max(worker["away_max_ns"] for worker in all_["workers"]) / 1e6
        guarded = sum(port["pfc_guard"] for port in all_["ports"])
        print(f"lost in receive rings: {rings or 'none'}; the worker was away for {away:.0f} ms at most")
        print(f"PFC frames sent for it meanwhile: {guarded}\n")

    def stop(self):
        """Ends the switch as a user would; its last words are the counters."""
        self.switch.send_signal(signal.SIGTERM)
        out, err = self.switch.communicate(timeout=20)
        ledger = json.loads(out)
        came = ledger["rx"] + ledger["copies"]
        went = ledger["tx"] + ledger["dropped"] + ledger["consumed"] + ledger["queued"]
        text = f"{ledger['rx']} in + {ledger['copies']} copies = {ledger['tx']} out + {ledger['dropped']} dropped"
        text += f" + {ledger['consumed']} for the switch"
        self.note("the books at the end", text, came == went and self.switch.returncode == 0)
        if self.switch.returncode != 0:
            print(err, file=sys.stderr)


def main(argv):
    """Runs the steps; exit 1 when one did not go as it must."""
    weft = argv[0] if argv else os.environ.get("WEFT_BIN", f"{ROOT}/target/release/weft")
    weft = os.path.abspath(weft)
    if not os.access(weft, os.X_OK):
        print(f"demo: {weft} does not exist; `make demo` builds it", file=sys.stderr)
        return 2
    if os.environ.get(INSIDE) != "1":
        # A browser outside of the namespaces reaches the page by a socket of theirs.
        with socket.create_server(("127.0.0.1", 0)) as outside:
            os.environ[OUTSIDE] = str(outside.fileno())
            return enter(INSIDE, weft, sockets=(outside.fileno(),))
    start, folder = time.monotonic(), tempfile.mkdtemp(dir="/run")
    demo = Demo(weft, folder, LivePage(int(os.environ[OUTSIDE])))
    print("four hosts in namespaces and a weft switch; a CXL fabric; networks in virtual time", flush=True)
    try:
        demo.network()
        demo.run_switch()
        switch = (demo.ping, demo.tcp, demo.formats, demo.incast, demo.sums, demo.stop)
        for step in (*switch, demo.fabric, demo.processes, demo.model, demo.conform):
            step()
    except (RuntimeError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as err:
        demo.note("demo", f"{type(err).__name__}: {err}", False)
    finally:
        for process in (demo.switch, demo.parts):
            if process and process.poll() is None:
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    width = max(len(what) for what, _, _ in demo.rows)
    print(f"\n{'what':{width}}  result")
    for what, result, good in demo.rows:
        print(f"{what:{width}}  {result}{'' if good else '   <- NOT OK'}")
    print(f"\nlive page while the switch ran: {demo.page.url} (`make demo KEEP=300`: five minutes of incast to look at)")
    print(f"{'all steps passed' if demo.good else 'a step failed'}, {time.monotonic() - start:.0f} s")
    return 0 if demo.good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
