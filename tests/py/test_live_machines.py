"""A fabric over two machines (`weft fabric up --hosts`): their parts reach each other by VXLAN.

A machine is a network namespace with a /run of its own; orders go to it through nsenter(1), or by ssh(1) over the cable.

Units: bytes; seconds.
Source: docs/fabric.md "Over several machines".
"""

import json
import os
import pwd
import signal
import subprocess
import time

import pytest

import weftlive
from weftlive import sh, weft

MISSING = weftlive.missing()
live = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
TIMEOUT_S = 90
DIR = "/run/weft/fabric"
TOPOLOGY = """
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"], count = 2 }]
[[host]]
name = "h0"
at = "sw0"
bind = ["ep1"]
[[host]]
name = "h1"
at = "sw1"
[[device]]
name = "ep1"
at = "sw1"
[[gfd]]
name = "g"
at = ["sw0", "sw1"]
count = 2
capacity_mib = 256
[[memory]]
name = "pool"
hosts = ["h0", "h1"]
gfds = ["g"]
len = 0x10000000
granularity = 256
hpa = 0x10000000000
"""
PARTS = {"m1": ["sw0", "h0", "g0"], "m2": ["sw1", "h1", "ep1", "g1"]}
HPA = 0x10000000000


class Machine:
    """A namespace with a /run of its own, for as long as its first process lives."""

    def __init__(self, name, address):
        self.name, self.address = name, address
        sh(f"ip netns add {name}")
        held = ["nsenter", f"--net=/run/netns/{name}", "unshare", "--mount", "sh", "-c"]
        ready = f"mount -t tmpfs tmpfs /run && mkdir -m 700 -p {DIR} && echo up && exec sleep infinity"
        self.first = subprocess.Popen([*held, ready], stdout=subprocess.PIPE, text=True)
        assert self.first.stdout.readline() == "up\n"
        self.enter = ["nsenter", "--target", str(self.first.pid), "--mount", "--net"]

    def run(self, *words):
        """Runs a command there."""
        return subprocess.run([*self.enter, *map(str, words)], capture_output=True, text=True, check=False)

    def ok(self, *words):
        """What a command there prints; it must succeed."""
        done = self.run(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def ctl(self, part, *words):
        """What a part of the fabric answers."""
        return json.loads(self.ok(weft(), "endpoint", "ctl", f"{DIR}/{part}/endpoint.sock", *words, "--json"))["transfer"]

    def fm(self, *words):
        """What the manager answers."""
        return json.loads(self.ok(weft(), "fm", *words, "--socket", f"{DIR}/fm/fm.sock", "--json"))

    def put(self, path, text):
        """Writes a file there."""
        with open(f"/proc/{self.first.pid}/root{path}", "w", encoding="ascii") as file:
            file.write(text)

    def live_in(self, home):
        """Gives its user another home."""
        self.ok("mkdir", "-m", "700", "-p", f"{home}/.ssh")
        user = pwd.getpwuid(os.getuid())
        self.put("/run/passwd", f"{user.pw_name}:x:{user.pw_uid}:{user.pw_gid}::{home}:/bin/sh\n")
        self.ok("mount", "--bind", "/run/passwd", "/etc/passwd")
        return user.pw_name

    def links(self):
        """Interfaces of the fabric, with their flags."""
        listed = json.loads(self.ok("ip", "-j", "link", "show"))
        return {link["ifname"]: link["flags"] for link in listed if link["ifname"].startswith("wf")}


def wait(what, done):
    """Waits until `done` has something."""
    end = time.monotonic() + TIMEOUT_S
    while not (found := done()):
        assert time.monotonic() < end, f"{what}: does not come"
        time.sleep(0.05)
    return found


def machines():
    """Two machines with a cable between them."""
    one, two = Machine("m1", "10.1.0.1"), Machine("m2", "10.1.0.2")
    sh("ip link add c1 netns m1 type veth peer name c2 netns m2")
    for machine, cable in ((one, "c1"), (two, "c2")):
        sh(f"ip -n {machine.name} link set lo up && ip -n {machine.name} link set {cable} up")
        sh(f"ip -n {machine.name} addr add {machine.address}/24 dev {cable}")
    return one, two


def hosts_file(both, manager="m1", top=""):
    """Writes who runs what; returns its path."""
    text = top
    for machine in both:
        parts = PARTS[machine.name] + (["fm"] if machine.name == manager else [])
        text += f'[[machine]]\nname = "{machine.name}"\naddress = "{machine.address}"\n'
        text += f"run = {json.dumps(machine.enter)}\nparts = {json.dumps(parts)}\n"
    with open("/run/hosts.toml", "w", encoding="ascii") as file:
        file.write(text)
    return "/run/hosts.toml"


def up(hosts):
    """The fabric, once it is up."""
    with open("/run/fabric.toml", "w", encoding="ascii") as file:
        file.write(TOPOLOGY)
    return weftlive.FabricUp("/run/fabric.toml", "--hosts", hosts).__enter__()


def ended(machine):
    """All parts of a fabric have ended at a machine."""
    for name in machine.ok("sh", "-c", f"ls {DIR}/*/pid").split():
        pid = machine.ok("cat", name).strip()
        wait(f"the end of {name}", lambda pid=pid: not os.path.exists(f"/proc/{pid}"))


def gone(both):
    """Nothing of a fabric is left on the machines."""
    wait("the end of interfaces", lambda: not any(machine.links() for machine in both))
    for machine in both:
        ended(machine)


def shared_memory(one, two, seed):
    """What one machine's host writes, the other's reads: memory of two ways, one of each machine."""
    wrote = one.ctl("h0", "write", HPA, "64KiB", f"--seed={seed}")
    assert wrote["ok"] and wrote["written"] == 65536, wrote
    read = two.ctl("h1", "read", HPA, "64KiB", f"--seed={seed}")
    assert read["ok"] and read["read"] == 65536, read


def crossing(one, two):
    """Names of the interfaces of both machines that lead to the other, by wire."""
    ends = [machine.ok("ip", "-j", "link", "show", "type", "vxlan") for machine in (one, two)]
    ends = [sorted(link["ifname"] for link in json.loads(text) if link) for text in ends]
    assert len(ends[0]) == len(ends[1]) == 2, ends
    assert [name[:-1] for name in ends[0]] == [name[:-1] for name in ends[1]], ends
    return list(zip(*ends))


def down(one):
    """How many links the manager knows to be down."""
    return one.fm("status")["counts"]["down"]


def run_cables():
    """Memory of both machines, a cable between them that is pulled, and a switch that loses its power."""
    one, two = both = machines()
    fabric = up(hosts_file(both))
    assert any("h0 sees" in line for line in fabric.said), fabric.said
    shared_memory(one, two, 1)
    (near, far), _ = crossing(one, two)
    one.ok("ip", "link", "set", near, "down")
    wait("the far end's carrier goes", lambda: "NO-CARRIER" in two.links()[far])
    wait("the manager sees the link go", lambda: down(one))
    shared_memory(one, two, 2)
    one.ok("ip", "link", "set", near, "up")
    wait("the far end's carrier comes", lambda: "LOWER_UP" in two.links()[far])
    wait("the manager sees the link come", lambda: not down(one))
    shared_memory(one, two, 3)
    # A switch of the other machine loses its power and comes back.
    pid = int(two.ok("cat", f"{DIR}/sw1/pid"))
    os.kill(pid, signal.SIGKILL)
    wait("both carriers go", lambda: "NO-CARRIER" in one.links()[near])
    wait("the manager sees it go", lambda: down(one))
    again = subprocess.Popen([*two.enter, "sh", f"{DIR}/sw1/run"])
    wait("the carrier comes", lambda: "LOWER_UP" in one.links()[near])
    wait("the manager sees it come", lambda: not down(one))
    done = subprocess.run(
        [weft(), "fabric", "map", "/run/fabric.toml", "--hosts", "/run/hosts.toml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shared_memory(one, two, 4)
    code, said = fabric.end()
    assert code == 0 and "machine m2: sw1 has ended" in said, (code, said)
    again.terminate()
    again.wait(timeout=TIMEOUT_S)
    gone(both)


def run_ends():
    """A manager on the other machine, by TLS; commands and machines that are killed leave nothing."""
    one, two = both = machines()
    sh(f"{weft()} tls init /run/tls")
    fabric = up(hosts_file(both, manager="m2", top='tls = "/run/tls"\n'))
    assert two.fm("status")["phase"] == "up"
    shared_memory(one, two, 1)
    modes = one.ok("stat", "-c", "%a", f"{DIR}/sw0/cert.key") + two.ok("stat", "-c", "%a", f"{DIR}/fm/cert.key")
    assert modes == "600\n600\n"
    # The other machine's own switch is not served to the network.
    assert "4000" not in two.ok("ss", "-Hltn")
    fabric.end(signal.SIGKILL)
    gone(both)
    fabric = up(hosts_file(both))
    shared_memory(one, two, 2)
    agent = next(
        int(pid)
        for pid in filter(str.isdigit, os.listdir("/proc"))
        if "fabric\0agent" in open(f"/proc/{pid}/cmdline", encoding="utf-8").read()
        and os.readlink(f"/proc/{pid}/ns/net") == os.readlink(f"/proc/{two.first.pid}/ns/net")
    )
    os.kill(agent, signal.SIGKILL)
    assert fabric.process.wait(timeout=TIMEOUT_S) != 0
    said = fabric.process.stdout.read()
    assert "machine m2" in said, said
    wait("the end of the first machine's interfaces", lambda: not one.links())
    # What the killed one has left is recognised, and made anew.
    assert two.links()
    fabric = up(hosts_file(both))
    shared_memory(one, two, 3)
    assert fabric.end()[0] == 0
    gone(both)


def ssh_server(one, two):
    """An SSH server at `two`, which takes a key of `one`; who to name to ssh(1)."""
    user = one.live_in("/run/home")
    two.live_in("/run/home")
    one.ok("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/run/home/.ssh/id_ed25519")
    two.put("/run/home/.ssh/authorized_keys", one.ok("cat", "/run/home/.ssh/id_ed25519.pub"))
    two.ok("dropbearkey", "-t", "ed25519", "-f", "/run/host_key")
    said = two.ok("dropbearkey", "-y", "-f", "/run/host_key")
    key = next(line for line in said.splitlines() if line.startswith("ssh-ed25519 "))
    one.put("/run/home/.ssh/known_hosts", f"{two.address} {key}\n")
    server = subprocess.Popen([*two.enter, "dropbear", "-F", "-E", "-s", "-r", "/run/host_key", "-P", "/run/dropbear.pid"])
    wait("the SSH server", lambda: ":22 " in two.ok("ss", "-Hltn"))
    return server, f"{user}@{two.address}"


def run_ssh():
    """One machine has the other do its part by ssh; then the cable between them is cut, for good."""
    one, two = both = machines()
    server, there = ssh_server(one, two)
    text = ""
    for machine, reached in ((one, "run = []"), (two, f'ssh = "{there}"\nweft = "{weft()}"')):
        parts = json.dumps(PARTS[machine.name])
        text += f'[[machine]]\nname = "{machine.name}"\naddress = "{machine.address}"\n{reached}\nparts = {parts}\n'
    one.put("/run/hosts.toml", text)
    one.put("/run/fabric.toml", TOPOLOGY)
    arguments = ("/run/fabric.toml", "--hosts", "/run/hosts.toml")
    fabric = weftlive.FabricUp(*arguments, enter=one.enter).__enter__()
    shared_memory(one, two, 1)
    one.ok(weft(), "fabric", "map", *arguments)
    shared_memory(one, two, 2)
    code, said = fabric.end()
    assert code == 0, said
    gone(both)
    fabric = weftlive.FabricUp(*arguments, enter=one.enter).__enter__()
    shared_memory(one, two, 3)
    one.ok("ip", "link", "set", "c1", "down")
    # Neither end is told: both notice that nothing comes any more.
    said, _ = fabric.process.communicate(timeout=TIMEOUT_S)
    assert fabric.process.returncode != 0 and "machine m2" in said, said
    gone([one])
    ended(two)
    wait("the end of the other machine's interfaces", lambda: not two.links())
    # A machine that is not to be reached is named, within the time that ssh has to connect.
    fabric = weftlive.FabricUp(*arguments, enter=one.enter)
    said, _ = fabric.process.communicate(timeout=TIMEOUT_S)
    assert fabric.process.returncode != 0 and "machine m2" in said, said
    gone([one])
    server.terminate()
    server.wait(timeout=TIMEOUT_S)


@live
def test_memory_and_links_reach_over_machines():
    weftlive.inside("test_live_machines", "run_cables", timeout=300)


@live
def test_nothing_is_left_of_a_fabric_on_any_machine():
    weftlive.inside("test_live_machines", "run_ends", timeout=300)


@live
def test_a_machine_is_reached_by_ssh_and_its_loss_is_noticed_at_both_ends():
    weftlive.inside("test_live_machines", "run_ssh", timeout=400)
