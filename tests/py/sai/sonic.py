#!/usr/bin/env python3
"""Runs SONiC's QoS tests, unmodified, out of a user's clone of sonic-mgmt against a running weft: `make sonic`.

sonic.py CLONE [CLASS]... [--workers N] [--backend KIND] [--timeout S] [--results FOLDER] -> a table, on the terminal
and in FOLDER/table.txt, and what each test said in FOLDER/CLASS.log. Each class gets a switch of its own.

Units: seconds.
Source: docs/sonic.md. Exit 1 when a class did not pass, 2 when nothing can be run.
"""

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import saiswitch  # noqa: E402
import sonicclone  # noqa: E402
import soniccases  # noqa: E402
import stubs  # noqa: E402
import weftlive  # noqa: E402
from saioracle import Oracle  # noqa: E402

RESULTS = os.path.join(weftlive.ROOT, "bench", "results", "sonic")
TIMEOUT_S = 900
PACKET_OCTETS = 64
REASON_LENGTH = 160
# A test sends thousands of frames at once, and never asks whether the switch has taken them.
RING_FRAMES = 8192
PTF = [
    "--platform", "eth", "--qlen", "10000", "--relax", "--socket-recv-size", "16384", "--log-file", "ptf.log",
]  # fmt: skip
# What a class must say that has run: ptf also ends well without a test.
PASSED = re.compile(r"^Ran 1 test .*\n+OK$", re.MULTILINE)
ERROR = re.compile(r"^([\w.]*(?:Error|Exception|Exit|Failure))(?:: ?(.*))?$")


class Unusable(Exception):
    """Why nothing can be run."""


@dataclass
class Row:
    """What became of a class."""

    title: str
    result: str
    asserted: str = ""
    seconds: float = 0.0

    @property
    def good(self):
        """Whether it passed."""
        return self.result == "passed"


def table(rows, said=()):
    """The rows as text; below are the reasons of those that did not pass, and remarks about the clone."""
    lines = [f"{'class':26} {'result':8} {'seconds':>7}  asserted"]
    for row in rows:
        word = "passed" if row.good else "FAILED"
        lines.append(f"{row.title:26} {word:8} {row.seconds:7.0f}  {row.asserted}".rstrip())
    lines += [f"{row.title}: {row.result}" for row in rows if not row.good]
    passed = sum(row.good for row in rows)
    return "\n".join([*lines, *said, f"{passed} passed, {len(rows) - passed} failed"]) + "\n"


def usable(clone, folder):
    """Checks what the tests need, and makes the stubs in `folder`."""
    if not os.path.isdir(clone):
        raise Unusable(f"{clone} is no folder: give that of a clone of sonic-mgmt")
    if missing := sonicclone.missing_files(clone):
        raise Unusable(f"{clone} is no clone of sonic-mgmt with these tests: it has no {', '.join(missing)}")
    if why := weftlive.missing() or stubs.missing():
        raise Unusable(why)
    for module in ("ptf", "scapy", "thrift"):
        if importlib.util.find_spec(module) is None:
            raise Unusable(f"the Python package {module} is not installed (tools/setup.sh sonic)")
    stubs.make(folder)
    try:
        names = sonicclone.missing_names(clone, folder)
    except (OSError, ValueError) as err:
        raise Unusable(str(err)) from err
    if names:
        raise Unusable(f"these tests import names that weft's stubs do not have: {', '.join(names)}")


def wanted(names):
    """The cases of the classes that are asked for, or all."""
    cases = soniccases.CASES
    known = {case.test.rsplit(".", 1)[-1] for case in cases}
    if unknown := [name for name in names if name not in known]:
        raise Unusable(f"no class {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return [case for case in cases if not names or case.test.rsplit(".", 1)[-1] in names]


def plan(clone, cases):
    """The cases that a clone's classes check, and remarks about classes of another revision than the parameters are for."""
    digests = {case.test: sonicclone.digest(clone, case.folder, case.test) for case in cases}
    other = [test.rsplit(".", 1)[-1] for test, found in digests.items() if found not in (None, soniccases.DIGESTS[test])]
    said, chosen = [], []
    if other:
        said.append(
            f"warning: parameters follow sonic-mgmt {soniccases.REVISION}; this clone has other code in "
            f"{', '.join(other)}: if one of these fails, check its limits first"
        )
    for case in cases:
        names = sonicclone.identifiers(clone, case.folder, case.test)
        if not digests[case.test] or not case.needs or case.needs in names:
            chosen.append(case)
        else:
            said.append(f"{case.title}: left out, as the class of this clone does not check that")
    return chosen, said


def configuration(case, kind, workers):
    """The switch of a case, as TOML."""
    settings = saiswitch.SETTINGS
    maps = {
        "dscp_to_pri": soniccases.DSCP_TO_PRI,
        "pcp_to_pri": soniccases.PCP_TO_PRI,
        "pri_to_pg": soniccases.PRI_TO_PG,
    }
    own = {"classify": maps, "run": {"workers": workers}, "port_defaults": {"rx_ring_frames": RING_FRAMES}}
    for changes in (own, case.settings):
        settings = saiswitch.merged(settings, changes)
    macs = [soniccases.mac(port) for port in range(soniccases.PORTS)]
    return saiswitch.toml(settings, kind, macs)


def command(case, clone, given):
    """The command line that runs a class under ptf."""
    ports = [f"--interface=0-{port}@h{port}" for port in range(soniccases.PORTS)]
    texts = ";".join(f"{key}={value!r}" for key, value in given.items())
    ptf = os.path.join(os.path.dirname(sys.executable), "ptf")
    tests = ["--test-dir", sonicclone.folder(clone, case.folder)]
    return [sys.executable, ptf, *tests, *PTF, *ports, f"--test-params={texts}", case.test]


def reason(said):
    """Why a class failed, of all that it said: the last error, and the line of the tests that raised it."""
    lines = [line for line in said.splitlines() if line.strip(" ~^")]
    errors = [(at, found) for at, line in enumerate(lines) if (found := ERROR.match(line))]
    if not errors:
        return (lines[-1].strip() if lines else "it said nothing")[:REASON_LENGTH]
    at, found = errors[-1]
    before = next((line.strip() for line in reversed(lines[:at]) if line.strip().startswith("File ")), "")
    source = lines[at - 1].strip() if at else ""
    where = f" ({re.sub(r'.*[/]', '', before).replace(chr(34), '')}: {source})" if before else ""
    return (f"{found[1]}: {found[2]}" if found[2] else found[1])[:REASON_LENGTH] + where[:REASON_LENGTH]


def run_ptf(line, environment, folder, log, timeout):
    """Runs a command in a process group of its own, which ends with it or with the time; returns what is wrong, or None."""
    with open(log, "w", encoding="utf-8") as out:
        child = subprocess.Popen(
            line,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
    with open(log, encoding="utf-8", errors="replace") as file:
        said = file.read()
    if code is None:
        return f"did not end within {timeout:g} s"
    return None if code == 0 and PASSED.search(said) else reason(said)


def run_case(case, options, folder):
    """A switch, and a class against it."""
    start, asserted = time.monotonic(), ""
    if case.test not in sonicclone.classes(options.clone, case.folder):
        return Row(case.title, f"this clone has no {case.folder}/{case.test}")
    text = configuration(case, options.backend, options.workers)
    log = os.path.join(options.results, re.sub(r"\W+", "-", case.title) + ".log")
    try:
        with weftlive.Rig(text) as rig:
            asked = rig.ask("conform", "params", "--packet-size", str(PACKET_OCTETS), "--json")
            assert asked, "weft conform params does not answer"
            config = tomllib.loads(text)
            names = sonicclone.identifiers(options.clone, case.folder, case.test)
            facts = soniccases.Facts(json.loads(asked), Oracle(config), config, names)
            own, asserted = case.given(facts)
            given = facts.common() | own | {"port_map_file_ini": os.path.join(folder, "ports.ini")}
            path = os.pathsep.join([options.stubs, sonicclone.folder(options.clone, "py3")])
            # Nothing is written into the clone.
            environment = os.environ | case.environment | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
            wrong = run_ptf(command(case, options.clone, given), environment, folder, log, options.timeout)
    except (AssertionError, OSError, ValueError, subprocess.TimeoutExpired) as err:
        wrong = f"the switch: {str(err).strip() or type(err).__name__}"
    return Row(case.title, wrong or "passed", asserted, time.monotonic() - start)


def inside(options):
    """All chosen classes, within namespaces; writes the table after each."""
    weftlive.sh("ip link set lo up")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "ports.ini"), "w", encoding="ascii") as file:
            file.writelines(f"{port}@p{port}\n" for port in range(soniccases.PORTS))
        for port in range(soniccases.PORTS):
            weftlive.plug(f"sw{port}", f"h{port}")
            weftlive.sh(f"ip link set h{port} address {soniccases.mac(port)}")
            weftlive.sh(f"ethtool -K h{port} tx off rx off")
        rows = []
        cases, said = plan(options.clone, wanted(options.classes))
        for line in said:
            print(line, flush=True)
        for case in cases:
            row = run_case(case, options, folder)
            rows.append(row)
            print(f"{row.title}: {row.result} ({row.seconds:.0f} s) {row.asserted}".rstrip(), flush=True)
            with open(os.path.join(options.results, "table.txt"), "w", encoding="utf-8") as file:
                file.write(table(rows, said))
    print(f"\n{table(rows, said)}", end="", flush=True)
    return 0 if all(row.good for row in rows) else 1


def arguments(words):
    """The command line."""
    parser = argparse.ArgumentParser(prog="sonic.py", description=__doc__.splitlines()[0])
    parser.add_argument("clone", help="folder of a clone of sonic-mgmt")
    parser.add_argument("classes", nargs="*", metavar="CLASS", help="classes to run; all by default")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--backend", default="af_packet", choices=["af_packet", "af_xdp"])
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds for each class")
    parser.add_argument("--results", default=RESULTS, help="folder for the table and logs")
    parser.add_argument("--stubs", help=argparse.SUPPRESS)  # of the second start, within namespaces
    options = parser.parse_args(words)
    options.clone, options.results = os.path.abspath(options.clone), os.path.abspath(options.results)
    return options


def main(words):
    """Checks, starts itself again in namespaces, and returns the exit code."""
    options = arguments(words)
    if options.stubs:
        return inside(options)
    try:
        with tempfile.TemporaryDirectory() as folder:
            usable(options.clone, folder)
            wanted(options.classes)
            os.makedirs(options.results, exist_ok=True)
            again = [sys.executable, os.path.abspath(__file__), *words, "--stubs", folder]
            return subprocess.run(weftlive.command_inside(*again), check=False).returncode
    except (Unusable, OSError) as err:
        print(f"sonic: {err}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
