#!/usr/bin/env python3
"""TCP between kernel hosts: through weft with their default offloads, and through the Linux bridge without TSO and GSO.

Shape: tcp_ratio.py [WEFT] [--seconds S] [--rounds N] -> rates, their medians and the ratio; exit 1 below 0.5.
Units: Gbit/s of payload at the receiver; seconds.
Source: acceptance 2 of issue 2; iperf3(1), veth(4). Runs in namespaces of its own, which vanish with it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))

from namespaces import enter, sh  # noqa: E402 - needs the path above

INSIDE = "WEFT_BENCH_INSIDE"
WANTED = 0.5
# By packet sockets: they take what TSO made of many segments as one, which XDP makes the hosts leave off.
PORT = '[[port]]\nname = "p{n}"\nkind = "af_packet"\ndevice = "wp{m}"\n'
CONFIG = PORT.format(n=0, m=1) + PORT.format(n=1, m=2)


def pair(kind):
    """Two hosts, and their cables to what lies between."""
    for n in (1, 2):
        host = f"{kind}h{n}"
        sh(f"ip netns add {host} && ip link add {kind}p{n} type veth peer name eth0 netns {host}")
        sh(f"ip link set {kind}p{n} up && ip -n {host} link set lo up && ip -n {host} link set eth0 up")
        sh(f"ip -n {host} addr add 10.77.0.{n}/24 dev eth0")


def start_bridge():
    """The bridge between two hosts that segment themselves."""
    pair("b")
    sh("ip link add br0 type bridge && ip link set br0 up")
    for n in (1, 2):
        sh(f"ip link set bp{n} master br0 && nsenter --net=/run/netns/bh{n} ethtool -K eth0 tso off gso off")


def start_weft(weft):
    """The switch between two hosts as they are."""
    pair("w")
    with open("/run/weft.toml", "w", encoding="ascii") as file:
        file.write(CONFIG)
    switch = subprocess.Popen([weft, "run", "-c", "/run/weft.toml", "--json"], stdout=subprocess.PIPE)
    for _ in range(100):
        if subprocess.run([weft, "show", "ports"], capture_output=True, check=False).returncode == 0:
            return switch
        if switch.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError("weft run does not answer")


def tcp(kind, source, target, seconds):
    """Gbit/s that the receiver got."""
    at = [f"--net=/run/netns/{kind}h{source}", f"--net=/run/netns/{kind}h{target}"]
    server = subprocess.Popen(
        ["nsenter", at[1], "iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE, text=True
    )
    while "listening" not in server.stdout.readline():
        if server.poll() is not None:
            raise RuntimeError("iperf3 -s ended")
    client = ["nsenter", at[0], "iperf3", "-c", f"10.77.0.{target}", "-t", str(seconds), "-J"]
    done = subprocess.run(client, capture_output=True, text=True, timeout=seconds + 30, check=False)
    server.communicate(timeout=10)
    said = json.loads(done.stdout)
    if "sum_received" not in said["end"]:
        raise RuntimeError(f"iperf3: {said.get('error')}")
    return said["end"]["sum_received"]["bits_per_second"] / 1e9


def checksum_errors(host):
    """`TcpInCsumErrors` of a host."""
    lines = sh(f"nsenter --net=/run/netns/{host} cat /proc/net/snmp").split("\n")
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[names.index("InCsumErrors")])


def measure(weft, seconds, rounds):
    """Runs both in turn, each way; returns whether the figures hold."""
    start_bridge()
    switch = start_weft(weft)
    ways = ((1, 2), (2, 1))
    rates = {(kind, way): [] for kind in "wb" for way in ways}
    for number in range(rounds):
        for way in ways:
            for kind in "wb":
                rates[kind, way].append(tcp(kind, *way, seconds))
            weft_rate, bridge_rate = (rates[kind, way][-1] for kind in "wb")
            text = f"weft {weft_rate:.2f}, bridge {bridge_rate:.2f} Gbit/s"
            print(f"     round {number + 1}, host {way[0]} to {way[1]}: {text}", flush=True)
    switch.terminate()
    ledger = json.loads(switch.communicate(timeout=20)[0])
    good = True
    for way in ways:
        weft_rate, bridge_rate = (statistics.median(rates[kind, way]) for kind in "wb")
        ratio = weft_rate / bridge_rate
        good &= ratio >= WANTED
        print(
            f"{'ok' if ratio >= WANTED else 'MISS':4} iperf3, host {way[0]} to {way[1]}, {seconds} s, median of "
            f"{rounds}: {weft_rate:.2f} Gbit/s through weft, {bridge_rate:.2f} through the Linux bridge, "
            f"ratio {ratio:.2f} (wanted: {WANTED} or more)"
        )
    errors = sum(checksum_errors(f"wh{n}") for n in (1, 2))
    print(f"{'ok' if not errors else 'MISS':4} TcpInCsumErrors at the hosts of weft: {errors} (wanted: 0)")
    print(f"     frames through weft: {ledger['rx']}, dropped {ledger['dropped']}")
    return good and not errors and switch.returncode == 0


def main(arguments):
    """Command line; exit 1 when a figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "release", "weft")
    parser.add_argument("weft", nargs="?", default=os.environ.get("WEFT_BIN", built))
    parser.add_argument("--seconds", type=int, default=10, help="of each stream (default 10)")
    parser.add_argument("--rounds", type=int, default=3, help="streams of each kind and way (default 3)")
    args = parser.parse_args(arguments)
    weft = os.path.abspath(args.weft)
    if not os.access(weft, os.X_OK):
        print(f"tcp_ratio: {weft} is not there; `make build` makes it", file=sys.stderr)
        return 2
    if os.environ.get(INSIDE) != "1":
        return enter(INSIDE, *arguments)
    try:
        return 0 if measure(weft, args.seconds, args.rounds) else 1
    except (RuntimeError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as err:
        print(f"tcp_ratio: {err}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
