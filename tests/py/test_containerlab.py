"""Topologies of containerlab: they are well formed, and their switches start as containerlab would start them.

packaging/containerlab/*.clab.yml; each switch in namespaces of its own, with veth for links, which come one by one.

Units: seconds.
Source: docs/lab.md "containerlab" (topology files, CLAB_INTFS). containerlab itself does not run here.
"""

import glob
import json
import os
import shlex
import subprocess
import time

import pytest
import yaml

import weftlive
from weftlive import ROOT, sh, weft

MISSING = weftlive.missing()
live = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
FILES = sorted(glob.glob(os.path.join(ROOT, "packaging", "containerlab", "*.clab.yml")))
WAIT_S = 30
MTU = 9_500


def read(path):
    """A topology: nodes, and for each the interfaces that links give it."""
    with open(path, encoding="ascii") as file:
        topology = yaml.safe_load(file)["topology"]
    ends = [end.split(":") for link in topology["links"] for end in link["endpoints"]]
    ports = {name: [port for node, port in ends if node == name] for name in topology["nodes"]}
    assert sum(map(len, ports.values())) == len(ends), f"{path}: a link leads to no node"
    return topology["nodes"], ports


def switches(path):
    """The switches of a topology: name, arguments of weft, interfaces."""
    nodes, ports = read(path)
    return [
        (name, shlex.split(node["cmd"]), ports[name])
        for name, node in nodes.items()
        if node["image"].startswith("weft:")
    ]


def test_there_are_two_topologies_and_each_says_that_it_is_untested():
    assert [os.path.basename(path) for path in FILES] == ["leaf.clab.yml", "pair.clab.yml"]
    for path in FILES:
        with open(path, encoding="ascii") as file:
            assert "Untested" in file.readline()
    assert [len(switches(path)) for path in FILES] == [1, 2]


@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_nodes_and_links_fit(path):
    nodes, ports = read(path)
    for name, node in nodes.items():
        assert node["kind"] == "linux"
        # Interfaces of a node are eth1 and on; eth0 is containerlab's.
        assert ports[name] == [f"eth{number}" for number in range(1, len(ports[name]) + 1)], name
    addresses = [line.split()[3] for node in nodes.values() for line in node.get("exec", [])]
    assert len(addresses) == len(set(addresses)) > 1


@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_each_link_has_an_mtu_that_fits_the_longest_frame_of_its_switches(path):
    with open(path, encoding="ascii") as file:
        links = yaml.safe_load(file)["topology"]["links"]
    mtus = {link["mtu"] for link in links}
    longest = {word.split("=")[1] for _, words, _ in switches(path) for word in words if "max_frame" in word}
    assert (mtus, longest) == ({MTU}, {str(MTU + 18)}), "14 bytes more, and 4 for a tag"


def run_switch(name, arguments, ports):
    """In namespaces: a container's interfaces come one after the other while its switch waits."""
    arguments, ports = json.loads(arguments), json.loads(ports)
    sh("ip link add eth0 type veth peer name mgmt && ip link set eth0 up")
    environment = {**os.environ, "CLAB_INTFS": str(len(ports))}
    process = subprocess.Popen([weft(), *arguments], stderr=subprocess.PIPE, text=True, env=environment)
    for count, port in enumerate(ports):
        while not (line := process.stderr.readline()).startswith(f"{count} of {len(ports)} "):
            assert line, f"weft ended: {process.wait()}"
        # As containerlab does: under another name first.
        sh(f"ip link add clab-{port} mtu {MTU} type veth peer name far-{port} mtu {MTU}")
        sh(f"ip link set clab-{port} name {port} && ip link set {port} up && ip link set far-{port} up")
    end = time.monotonic() + WAIT_S
    show = [weft(), "show", "ports", "--json", "--switch", name]
    while (shown := subprocess.run(show, capture_output=True, text=True, check=False)).returncode != 0:
        assert process.poll() is None and time.monotonic() < end, shown.stderr
        time.sleep(0.05)
    shown = json.loads(shown.stdout)["ports"]
    assert [port["name"] for port in shown] == ports
    assert [port["mtu_warning"] for port in shown] == [None] * len(ports)
    process.terminate()
    assert process.wait(WAIT_S) == 0, process.stderr.read()


@live
@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_each_switch_starts_as_its_container_would(path):
    for name, arguments, ports in switches(path):
        weftlive.inside("test_containerlab", "run_switch", name, json.dumps(arguments), json.dumps(ports))
