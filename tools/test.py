#!/usr/bin/env python3
"""Runs every suite of weft, cheapest first, and sums up: `make test`.

Shape: test.py [SUITE]... -> each tool's output, a table of suites, and `N passed, N failed, N skipped`.
Units: tests; seconds. A check without a count of its own (fmt, clippy, doc) counts as one test.
Source: ARCHITECTURE.md "Layout of the tree". Exit 1 when anything failed, also when a suite ran no test at all.
"""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTED = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored.*finished in ([\d.]+)s")
BINARY = re.compile(r"^\s+Running (?:unittests )?(\S+) \((\S+)\)|^\s+Doc-tests (\S+)")
SKIPPED = re.compile(r"^SKIPPED ([^\s:]+): (.+)$")
IGNORED = re.compile(r"^test (\S+) \.\.\. ignored(?:, (.+))?$")
PYTEST = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s")
PYTEST_SKIP = re.compile(r"^SKIPPED \[(\d+)\] (\S+): (.+)$")


# A suite that says nothing for so long hangs: the longest test takes two minutes, the longest build that says nothing
# nine. How long all of it takes says nothing: neighbours may be busy.
QUIET_S = 1500
# Test binaries that are told as the slowest.
SLOWEST = 15


class Said(threading.local):
    """Where a thread's suites print: at once, or into `kept` for later."""

    kept = None


SAID = Said()


def say(text):
    """Prints a text, line ends included."""
    if SAID.kept is None:
        print(text, end="", flush=True)
    else:
        SAID.kept.append(text)


@dataclass
class Tally:
    """What a suite came to."""

    name: str
    passed: int = 0
    failed: int = 0
    skips: list = field(default_factory=list)  # (test, reason), once for each
    seconds: float = 0.0

    def check(self, good):
        """Counts a tool that has no tests of its own as one."""
        self.passed, self.failed = (1, 0) if good else (0, 1)


def run(name, command, env=None):
    """Runs `command`, showing its output; returns (good, lines, seconds). One that hangs is ended."""
    say(f"\n== {name}: {' '.join(command)}\n")
    start, lines, said = time.monotonic(), [], queue.SimpleQueue()
    try:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as err:
        say(f"{command[0]}: {err}\n")
        return False, [], time.monotonic() - start
    threading.Thread(target=read_all, args=(child.stdout, said), daemon=True).start()
    while True:
        try:
            line = said.get(timeout=QUIET_S)
        except queue.Empty:
            # What a broken kernel holds on to does not even end so: it is left behind.
            os.killpg(child.pid, signal.SIGKILL)
            say(f"{name}: ended, as it said nothing for {QUIET_S} s\n")
            return False, lines, time.monotonic() - start
        if line is None:
            break
        lines.append(line.rstrip("\n"))
        if not line.startswith(("   Compiling ", "    Checking ", "  Downloaded ", " Documenting ")):
            say(line)
    return child.wait() == 0, lines, time.monotonic() - start


def read_all(pipe, said):
    """Hands over the lines of `pipe`, then None."""
    for line in pipe:
        said.put(line)
    said.put(None)


def plain(name, command, env=None):
    """A check that holds or not."""
    tally = Tally(name)
    good, _, tally.seconds = run(name, command, env)
    tally.check(good)
    return [tally]


def crate_of(artifact):
    """The crate, or the name of the test, that a binary is of."""
    return os.path.basename(artifact).rsplit("-", 1)[0]


def kind_of(path, artifact):
    """The suite that a test binary belongs to, by its file."""
    file = os.path.basename(path)
    if crate_of(artifact) in ("tree", "weft_tidy"):
        return "tidy"
    if file == "fuzz_replay.rs":
        return "fuzz replay"
    if file.startswith("live"):
        return "live"
    if path.startswith("tests/"):
        return f"integration: {crate_of(artifact)}"
    return "unit"


def binary_of(found):
    """What a test binary is told as: `tests/live_lag.rs`, `unit tests of weft_fm`."""
    if found[3]:
        return f"doc examples of {found[3]}"
    return found[1] if found[1].startswith("tests/") else f"unit tests of {crate_of(found[2])}"


# Seconds, binary, number of tests, of all that ran.
TIMES = []


def cargo_tests(name, command, env=None, split=False):
    """Tests that cargo runs; with `split`, one tally for each kind of test binary."""
    good, lines, seconds = run(name, command, env)
    tallies, now, binary = {}, name, name
    for line in lines:
        if found := BINARY.match(line):
            now, binary = name, binary_of(found)
            if split:
                now = "doc examples" if found[3] else kind_of(found[1], found[2])
            continue
        tally = tallies.setdefault(now, Tally(now))
        if found := TESTED.match(line):
            tally.passed += int(found[1])
            tally.failed += int(found[2])
            TIMES.append((float(found[4]), binary, int(found[1]) + int(found[2])))
        elif found := SKIPPED.match(line):
            tally.skips.append((found[1], found[2]))
        elif (found := IGNORED.match(line)) and not (found[2] or "").startswith(("soak", "long")):
            tally.skips.append((found[1], found[2] or "ignored"))
    for tally in tallies.values():
        # A skipping test returns early and is counted as passed by libtest.
        tally.passed -= min(tally.passed, sum(1 for _, why in tally.skips if why != "ignored"))
    done = [t for t in tallies.values() if t.passed or t.failed or t.skips]
    if not good and not any(t.failed for t in done) or not done:
        done.append(Tally(f"{name} (build or run)", failed=1))
    done[0].seconds = seconds
    return done


def pytest(name, command, env):
    """Python tests; `-rs` names what was skipped."""
    tally = Tally(name)
    good, lines, tally.seconds = run(name, command, env)
    for line in lines:
        if found := PYTEST_SKIP.match(line):
            tally.skips += [(found[2], found[3])] * int(found[1])
        elif found := PYTEST.match(line):
            for count, word in re.findall(r"(\d+) (\w+)", found[1]):
                tally.passed += int(count) if word == "passed" else 0
                tally.failed += int(count) if word in ("failed", "error", "errors") else 0
    if tally.failed == 0 and (not good or tally.passed == 0):
        tally.failed = 1
    return [tally]


def miri(name):
    """Unsafe blocks under Miri, or a skip that says why there is none."""
    asked = ["sh", "-c", ". tools/versions.sh; nightly"]
    nightly = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()
    toolchain = ["cargo", f"+{nightly}", "miri"]
    probe = subprocess.run([*toolchain, "--version"], capture_output=True, text=True, check=False, cwd=ROOT)
    if probe.returncode != 0:
        why = (probe.stderr.strip().splitlines() or ["no nightly toolchain with Miri"])[0]
        return [Tally(name, skips=[("pool, rings, free and loans under Miri", why)])]
    ours = ["weft-base", "weft-dataplane"]
    modules = ["pool::", "ring::", "free::", "port::loan::", "port::af_xdp::rings::"]
    env = {"CARGO_TARGET_DIR": f"{TARGET}/miri", "MIRIFLAGS": "-Zmiri-disable-isolation"}
    return cargo_tests(name, [*toolchain, "test", *(f"-p{one}" for one in ours), "--lib", "--", *modules], env)


def dpdk(name):
    """Ports on DPDK's virtual devices, with builds that have them, or a skip that says what is missing."""
    probe = subprocess.run(
        ["pkg-config", "--atleast-version=22.11", "--print-errors", "libdpdk"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        why = (probe.stderr.strip().splitlines() or ["no DPDK 22.11 or later"])[0]
        return [Tally(name, skips=[("ports of kind dpdk", why)])]
    feature = ["--features", "dpdk"]
    lint = ["cargo", "clippy", "--quiet", "-p", "weft", "-p", "weft-dataplane", "-p", "weft-tests"]
    lints = plain(f"{name}: clippy", [*lint, *feature, "--all-targets", "--", "-D", "warnings"])
    # The same packages and tests each time: for others cargo chooses other features of what they share, and compiles it
    # anew.
    both = ["-p", "weft", "-p", "weft-tests", *feature, "--test", "live_dpdk"]
    build, _, seconds = run(name, ["cargo", "build", "--quiet", *both, "--bin", "weft"])
    if not build:
        return [*lints, Tally(f"{name}: build", failed=1, seconds=seconds)]
    env = {"WEFT_BIN": os.path.join(TARGET, "debug", "weft")}
    unit = ["cargo", "test", "-p", "weft-dataplane", *feature, "--lib", "--", "dpdk"]
    ports = ["cargo", "test", "-p", "weft-dataplane", *feature, "--test", "dpdk_ports", "--", "--show-output"]
    live = ["cargo", "test", *both, "--", "--show-output"]
    ran = []
    for part, command in (("unit", unit), ("ports", ports), ("live", live)):
        ran += cargo_tests(f"{name}: {part}", command, env)
    return [*lints, *ran]


def examples(name):
    """Examples of how others use the crates run, and what is for crates.io can be packaged."""
    ran = []
    for package, example in EXAMPLES:
        command = ["cargo", "run", "--quiet", "-p", package, "--example", example]
        ran += plain(f"{name}: {example}", command)
    # What is not committed yet is packaged, too; all that it is built with is there by now.
    packaged = ["cargo", "package", "--quiet", "--offline", "--allow-dirty", "-p", "weft-parsers"]
    return ran + plain(f"{name}: package of parsers", packaged)


EXAMPLES = [("weft-parsers", "parse_frame")]
TARGET = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"))
BINARY_ENV = {"WEFT_BIN": os.path.join(TARGET, "release", "weft")}
CARGO_TEST = ["cargo", "test", "--workspace", "--no-fail-fast", "--", "--show-output"]
LOOM = ["cargo", "test", "-p", "weft-base", "-p", "weft-dataplane", "--lib", "--", "loom"]
SUITES = {
    "fmt": lambda n: plain(n, ["cargo", "fmt", "--all", "--check"]),
    "clippy": lambda n: plain(
        n, ["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]
    ),
    "release": lambda n: plain(n, ["cargo", "build", "--release", "--quiet", "-p", "weft"]),
    "test": lambda n: cargo_tests(n, CARGO_TEST, BINARY_ENV, split=True),
    "doc": lambda n: plain(
        n, ["cargo", "doc", "--workspace", "--no-deps", "--quiet"], {"RUSTDOCFLAGS": "-D warnings"}
    ),
    "examples": examples,
    "miri": miri,
    "loom": lambda n: cargo_tests(n, LOOM, {"RUSTFLAGS": "--cfg loom", "CARGO_TARGET_DIR": f"{TARGET}/loom"}),
    "dpdk": dpdk,
    "python": lambda n: pytest(n, [".venv/bin/python", "-m", "pytest", "-q", "-rs", "tests/py"], BINARY_ENV),
}


# They have directories of their own to build in, and little to wait for: they fill the time in which the tests of
# `test` wait for links, threads and processes. What they print comes when they are done.
BESIDE = ("miri", "loom")


def run_beside(names):
    """Starts suites in a thread of their own; returns what waits for them and gives their tallies."""
    kept, tallies = [], []

    def work():
        SAID.kept = kept
        for name in names:
            try:
                tallies.extend(SUITES[name](name))
            except Exception as err:  # a suite that cannot be run is no suite that passed
                say(f"{name}: {err!r}\n")
                tallies.append(Tally(name, failed=1))

    thread = threading.Thread(target=work)
    thread.start()

    def wait():
        thread.join()
        say("".join(kept))
        return tallies

    return wait


def main(chosen):
    """Runs the chosen suites, or all; returns the exit code."""
    unknown = [name for name in chosen if name not in SUITES]
    if unknown:
        print(f"test.py: no suite {', '.join(unknown)}; there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    if not os.path.isdir(os.path.join(TARGET, "debug", "incremental")):
        # Of a first build nothing is used again: without what that takes it is done in three quarters of the time.
        os.environ.setdefault("CARGO_INCREMENTAL", "0")
    start, tallies = time.monotonic(), []
    names = [name for name in SUITES if not chosen or name in chosen]
    beside = [name for name in names if name in BESIDE and "test" in names]
    for name in names:
        if name == "test":
            wait = run_beside(beside)
            tallies += SUITES[name](name)
            tallies += wait()
        elif name not in beside:
            tallies += SUITES[name](name)
    print(f"\n{'suite':34} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for t in tallies:
        spent = f"{t.seconds:8.0f}" if t.seconds else " " * 8
        print(f"{t.name:34} {t.passed:7} {t.failed:7} {len(t.skips):8} {spent}")
    if TIMES:
        print(f"\n{'slowest of ' + str(len(TIMES)) + ' test binaries':50} {'tests':>6} {'seconds':>8}")
    for seconds, binary, count in sorted(TIMES, reverse=True)[:SLOWEST]:
        print(f"{binary:50} {count:6} {seconds:8.1f}")
    print(f"all in {(time.monotonic() - start) / 60:.1f} minutes")
    for t in tallies:
        for test, why in t.skips:
            print(f"skipped: {t.name}: {test}: {why}")
    passed, failed = sum(t.passed for t in tallies), sum(t.failed for t in tallies)
    skipped = sum(len(t.skips) for t in tallies)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
