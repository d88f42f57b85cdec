#!/usr/bin/env python3
"""Runs every suite of weft, cheapest first, and sums up: `make test`.

test.py [SUITE]... -> each tool's output, a table of suites, and `N passed, N failed, N skipped`.

Units: tests; seconds. A check without a count of its own (fmt, clippy, doc) counts as one test.
Source: ARCHITECTURE.md "Layout of the tree". Exit 1 when anything failed, also when a suite ran no test at all.
"""

import contextlib
import glob
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTED = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored.*finished in ([\d.]+)s")
BINARY = re.compile(r"^\s+Running (?:unittests )?(\S+) \((\S+)\)|^\s+Doc-tests (\S+)")
SKIPPED = re.compile(r"^SKIPPED ([^\s:]+): (.+)$")
IGNORED = re.compile(r"^test (\S+) \.\.\. ignored(?:, (.+))?$")
SLOW = re.compile(r"^test (\S+) has been running for over")
ENDED = re.compile(r"^test (\S+) \.\.\. ")
PYTEST = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s")
PYTEST_FAILED = re.compile(r"^(?:FAILED|ERROR) \S+::")
PYTEST_SKIP = re.compile(r"^SKIPPED \[(\d+)\] (\S+): (.+)$")


# A tool that prints nothing for so long hangs: the longest build without output takes nine minutes beside busy
# neighbours. The duration of the whole does not matter.
QUIET_S = 1500
# A test binary prints a line when a test ends: one that prints nothing for so long has a test that hangs, as the
# longest takes two minutes.
TEST_QUIET_S = 600
# Number of test binaries that are listed as the slowest, and of commands that use most.
SLOWEST = 15


class Lane(threading.local):
    """How a thread's suites print, at once or into `kept` for later, and whether they give way to others."""

    kept = None
    gives_way = False


LANE = Lane()
PRINTS = threading.Lock()
# How nice suites are that give way. Only root can take that back, so that they do not starve beside busy neighbours.
NICE = 15 if os.geteuid() == 0 else 0


class GivingWay:
    """Process groups that give way to others, until they are hurried."""

    def __init__(self):
        self.lock, self.groups, self.hurried = threading.Lock(), set(), False

    def add(self, group):
        """Has a process group give way, unless it is too late for that."""
        with self.lock:
            self.groups.add(group)
            self.set(group, 0 if self.hurried else NICE)

    def remove(self, group):
        """Forgets a group that is about to end."""
        with self.lock:
            self.groups.discard(group)

    def hurry(self):
        """Has none of them give way any more."""
        with self.lock:
            self.hurried = True
            for group in self.groups:
                self.set(group, 0)

    @staticmethod
    def set(group, nice):
        """Sets how nice a group is, which is a session of its own (`run`), unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PGRP, group, nice)
        # Where Linux has autogroups, it shares the processors between sessions first, each by a nice of its own: that of a
        # process counts within its session alone (sched(7)).
        with contextlib.suppress(OSError), open(f"/proc/{group}/autogroup", "w", encoding="ascii") as autogroup:
            autogroup.write(str(nice))


GIVING_WAY = GivingWay()


def say(text):
    """Prints a text, line ends included."""
    if LANE.kept is None:
        with PRINTS:
            print(text, end="", flush=True)
    else:
        LANE.kept.append(text)


@dataclass
class Tally:
    """The result of a suite."""

    name: str
    passed: int = 0
    failed: int = 0
    skips: list = field(default_factory=list)  # (test, reason), once for each
    seconds: float = 0.0

    def check(self, good):
        """Counts a tool that has no tests of its own as one."""
        self.passed, self.failed = (1, 0) if good else (0, 1)


def run(name, command, env=None, cwd=ROOT, quiet_s=QUIET_S):
    """Runs `command`, showing its output; returns (good, lines, seconds). One that hangs is ended."""
    say(f"\n== {name}: {' '.join(command)}\n")
    start, lines, said = time.monotonic(), [], queue.SimpleQueue()
    try:
        child = subprocess.Popen(
            command,
            cwd=cwd,
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
    if LANE.gives_way:
        GIVING_WAY.add(child.pid)
    threading.Thread(target=read_all, args=(child.stdout, said), daemon=True).start()
    while True:
        try:
            line = said.get(timeout=quiet_s)
        except queue.Empty:
            # A process that hangs in the kernel does not end even so: it is left behind.
            os.killpg(child.pid, signal.SIGKILL)
            say(f"{name}: ended, as it said nothing for {quiet_s} s{hanging(lines)}\n")
            return False, lines, time.monotonic() - start
        if line is None:
            break
        lines.append(line.rstrip("\n"))
        if not line.startswith(QUIETLY):
            say(line)
    GIVING_WAY.remove(child.pid)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode < 0:
        REASONS.append(f"{name}: ended by {signal.Signals(-child.returncode).name}")
    CPU.append((used.ru_utime + used.ru_stime, name))
    return child.returncode == 0, lines, time.monotonic() - start


# Lines that are not shown: cargo's progress, and its JSON for programs.
QUIETLY = ("   Compiling ", "    Checking ", "  Downloaded ", " Documenting ", '{"reason":')


def hanging(lines):
    """Names the tests that libtest has said are slow and that have not ended, if there are any."""
    slow = {found[1] for line in lines if (found := SLOW.match(line))}
    ended = {found[1] for line in lines if (found := ENDED.match(line))}
    names = ", ".join(sorted(slow - ended))
    return f", in {names}" if names else ""


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


# Seconds, binary, number of tests, of all that ran.
TIMES = []
# Seconds of processors that a command and all that it waited for used, and its name.
CPU = []
# Of each test that failed, where and what it said then (so many lines and characters), and what ended by a signal.
REASONS = []
PANIC_LINES = 4
REASON_LENGTH = 900


def count(tally, binary, lines):
    """Adds to `tally` what libtest said in `lines`."""
    for line in lines:
        if found := TESTED.match(line):
            tally.passed += int(found[1])
            tally.failed += int(found[2])
            TIMES.append((float(found[4]), binary, int(found[1]) + int(found[2])))
        elif found := SKIPPED.match(line):
            tally.skips.append((found[1], found[2]))
            # A skipping test returns early and is counted as passed by libtest.
            tally.passed -= 1
        elif (found := IGNORED.match(line)) and not (found[2] or "").startswith(("soak", "long")):
            tally.skips.append((found[1], found[2] or "ignored"))


def panics(binary, lines):
    """Of each test that failed, where it panicked and the first lines of what it said, if it did."""
    failed = {found[1] for line in lines if (found := re.match(r"^test (\S+) \.\.\. FAILED", line))}
    test = None
    for at, line in enumerate(lines):
        if found := re.match(r"^---- (\S+) stdout ----$", line):
            test = found[1]
        elif test in failed and " panicked at " in line:
            said = " | ".join(lines[at : at + PANIC_LINES])
            yield f"{binary}: {test}: {said[:REASON_LENGTH]}"


def cargo_tests(name, command, env=None):
    """Tests that cargo builds and runs."""
    tally = Tally(name)
    good, lines, tally.seconds = run(name, command, env)
    binary = name
    for line in lines:
        if found := BINARY.match(line):
            binary = f"{name}: {found[3] or os.path.basename(found[2]).rsplit('-', 1)[0]}"
        else:
            count(tally, binary, [line])
    REASONS.extend(panics(name, lines))
    if not tally.failed and (not good or not (tally.passed or tally.skips)):
        tally.failed = 1
    return [tally]


@dataclass
class Binary:
    """A test binary: `lib`, `bin` or `test` of a crate."""

    folder: str
    kind: str
    name: str
    executable: str

    @property
    def title(self):
        """Its name in the report: `cxl/tests/rig.rs`, `unit tests of cxl`."""
        return f"{self.folder}/tests/{self.name}" if self.kind == "test" else f"unit tests of {self.folder}"

    @property
    def suite(self):
        """The row that its tests are counted in."""
        if self.folder == "tidy":
            return "tidy"
        if self.name == "fuzz_replay":
            return "fuzz replay"
        if self.kind != "test":
            return "unit"
        return "live" if self.name.startswith("live") else f"integration: {self.folder}/{self.name}"

    def run(self):
        """Runs it as cargo does, in the folder of its crate; returns one tally."""
        tally = Tally(self.suite)
        command = [self.executable, "--show-output"]
        folder = os.path.join(ROOT, self.folder)
        good, lines, tally.seconds = run(self.title, command, BINARY_ENV, folder, TEST_QUIET_S)
        count(tally, self.title, lines)
        REASONS.extend(panics(self.title, lines))
        if not good and not tally.failed:
            tally.failed = 1  # it ended without a result
        return [tally]


def built(lines):
    """The test binaries that cargo says, as JSON, to have built; keeps where the examples are, which it builds, too."""
    said = [json.loads(line) for line in lines if line.startswith('{"reason":')]
    for one in (one for one in said if one.get("executable")):
        target = one["target"]
        if "example" in target["kind"]:
            BUILT_EXAMPLES[target["name"]] = one["executable"]
        elif one.get("profile", {}).get("test"):
            folder = os.path.relpath(os.path.dirname(one["manifest_path"]), ROOT)
            yield Binary(folder, target["kind"][0], target["name"], one["executable"])


def dpdk_missing():
    """Why what needs DPDK cannot be built here, or None."""
    probe = subprocess.run(
        ["pkg-config", "--atleast-version=22.11", "--print-errors", "libdpdk"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode == 0:
        return None
    return (probe.stderr.strip().splitlines() or ["no DPDK 22.11 or later"])[0]


def dpdk(name):
    """Ports of kind dpdk are built and tested with all else where DPDK is installed; if not, this is reported."""
    why = dpdk_missing()
    return [Tally(name, skips=[("ports of kind dpdk", why)])] if why else []


def features():
    """Features of all builds: the same each time, or cargo compiles shared crates again."""
    return [] if dpdk_missing() else ["--features", "weft-tests/dpdk,weft-dataplane/dpdk"]


def tests(name):
    """Builds every test; returns a tally of that, and the binaries."""
    command = ["cargo", "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]
    build = Tally(f"{name}: build")
    good, lines, build.seconds = run(build.name, [*command, *features()])
    binaries = list(built(lines)) if good else []
    if not binaries:
        build.failed = 1
    return [build], binaries


# Gives workers a time to answer: only what gives way runs beside it.
FIRST_ALONE = "live"
# Measures what a machine can do: nothing runs beside it.
LAST_ALONE = "live_quiet"


def pytest(name, command, env):
    """Python tests; `-rfEs` names what failed and what was skipped."""
    tally = Tally(name)
    good, lines, tally.seconds = run(name, command, env)
    for line in lines:
        if found := PYTEST_SKIP.match(line):
            tally.skips += [(found[2], found[3])] * int(found[1])
        elif found := PYTEST.match(line):
            for count, word in re.findall(r"(\d+) (\w+)", found[1]):
                tally.passed += int(count) if word == "passed" else 0
                tally.failed += int(count) if word in ("failed", "error", "errors") else 0
        elif PYTEST_FAILED.match(line):
            REASONS.append(f"{name}: {line[:REASON_LENGTH]}")
    if tally.failed == 0 and (not good or tally.passed == 0):
        tally.failed = 1
    return [tally]


def miri(name):
    """Unsafe blocks between threads under Miri, or a skip that says why there is none; `make sanitize` has all others."""
    asked = ["sh", "-c", ". tools/versions.sh; nightly"]
    nightly = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()
    toolchain = ["cargo", f"+{nightly}", "miri"]
    probe = subprocess.run([*toolchain, "--version"], capture_output=True, text=True, check=False, cwd=ROOT)
    if probe.returncode != 0:
        why = (probe.stderr.strip().splitlines() or ["no nightly toolchain with Miri"])[0]
        return [Tally(name, skips=[("rings, lists and free indices under Miri", why)])]
    env = {"CARGO_TARGET_DIR": f"{TARGET}/miri", "MIRIFLAGS": "-Zmiri-disable-isolation"}
    modules = ["ring::", "growing::", "free::"]
    return cargo_tests(name, [*toolchain, "test", "-pweft-base", "--lib", "--", *modules], env)


def examples(name):
    """Examples of how others use the crates run, and what is for crates.io can be packaged."""
    ran = []
    for package, example in EXAMPLES:
        # Alone, a crate is built with fewer features than with all others, so that all that it needs is built again.
        command = ["cargo", "run", "--quiet", "-p", package, "--example", example]
        ran += plain(f"{name}: {example}", [BUILT_EXAMPLES[example]] if example in BUILT_EXAMPLES else command)
    # What is not committed yet is packaged, too; all that it is built with is there by now.
    packaged = ["cargo", "package", "--quiet", "--offline", "--allow-dirty", "-p", "weft-parsers"]
    return ran + plain(f"{name}: package of parsers", packaged)


# Tests of the independent side that test a switch as testers of chips do, and others with a switch that runs: they wait for
# much of their time, so beside others.
TESTERS = ("tests/py/sai", "tests/py/test_live_conform.py")
RUNNING = sorted({os.path.relpath(path, ROOT) for path in glob.glob(f"{ROOT}/tests/py/test_live_*.py")} - {*TESTERS})


def python(name, which):
    """Tests of the independent side, with the binary that the tests have built or one that is built now."""
    ran = []
    if "test" not in CHOSEN:
        ran = plain(f"{name}: weft", ["cargo", "build", "--workspace", "--quiet", "--bin", "weft", *features()])
    return ran + pytest(name, [".venv/bin/python", "-m", "pytest", "-q", "-rfEs", *which], BINARY_ENV)


# Where the build of the tests has put examples, by name.
BUILT_EXAMPLES = {}
EXAMPLES = [
    ("weft-parsers", "parse_frame"),
    ("weft-dataplane", "two_ports"),
    ("weft-sim", "latency"),
    ("weft-lab", "fabric_memory"),
]
TARGET = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"))
# The profile `dev`, as all tests: its dependencies are built once, and it checks what it asserts.
BINARY_ENV = {"WEFT_BIN": os.path.join(TARGET, "debug", "weft")}
LOOM = ["cargo", "test", "-p", "weft-base", "-p", "weft-dataplane", "--lib", "--", "loom"]
# They run for half a second: what takes time is their build.
LOOM_ENV = {
    "RUSTFLAGS": "--cfg loom",
    "CARGO_TARGET_DIR": f"{TARGET}/loom",
    "CARGO_PROFILE_DEV_OPT_LEVEL": "0",
    "CARGO_PROFILE_DEV_DEBUG": "false",
}
WARN = ["--", "-D", "warnings"]


def doc(name):
    """Documentation, on what `clippy` has checked: cargo knows it by the wrapper and the arguments that clippy has set.

    With examples, crates have the features that tests give them. Were any of this another, all would be checked once more, which
    takes as long as rustdoc does.
    """
    asked = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=False, cwd=ROOT)
    env = {"RUSTDOCFLAGS": "-D warnings"}
    driver = os.path.join(asked.stdout.strip(), "bin", "clippy-driver")
    if os.path.exists(driver):
        lints = "".join(f"{one}__CLIPPY_HACKERY__" for one in WARN[1:])
        env |= {"RUSTC_WORKSPACE_WRAPPER": driver, "CLIPPY_ARGS": lints}
    documented = ["--lib", "--examples", "--bin", "weft-kit"]  # a program that is named as its library has nowhere to go
    return plain(name, ["cargo", "doc", "--workspace", "--no-deps", *documented, "--quiet", *features()], env)


SUITES = {
    "fmt": lambda n: plain(n, ["cargo", "fmt", "--all", "--check"]),
    "clippy": lambda n: plain(
        n, ["cargo", "clippy", "--workspace", "--all-targets", "--quiet", *features(), *WARN]
    ),
    "test": tests,
    "python": lambda n: python(n, ["tests/py", *(f"--ignore={path}" for path in (*TESTERS, *RUNNING))]),
    "python running": lambda n: python(n, RUNNING),
    "python testers": lambda n: python(n, TESTERS),
    "doc": doc,
    "doc examples": lambda n: cargo_tests(n, ["cargo", "test", "--workspace", "--doc", *features()]),
    "examples": examples,
    "miri": miri,
    "loom": lambda n: cargo_tests(n, LOOM, LOOM_ENV),
    "dpdk": dpdk,
}
# One after the other, before anything else runs; what is built for `test` is used by those behind it.
FIRST = ("fmt", "clippy", "test")
# Suites that run one after the other, as cargo has one lock on each directory that it builds in. They compute only: they take
# what `live`, which waits for links and processes, leaves of the processors.
ONE_DIRECTORY = ("doc", "doc examples", "examples")
# Suites that build in directories of their own: they take what `FIRST`, whose builds end in one crate each, leaves of the
# processors.
OWN_DIRECTORIES = ("miri", "loom")
# So many run at once: one more than there are processors, as some always wait for links, threads and processes.
LANES = (os.cpu_count() or 1) + 1
# Suites and binaries that begin first, in this order: those of live processes, which wait for links more than they compute,
# then the longest of the others, so that none of them is left alone at the end with one processor busy.
EARLY = (
    "python running",
    "python",
    "python testers",
    "tests/tests/fabric",
    "cli/tests/running",
    "tests/tests/live_dpdk",
    "sim/tests/virtual_time",
    "unit tests of cxl",
    "cli/tests/commands",
    "unit tests of fm",
)
CHOSEN = []


def apart(task, gives_way=False):
    """Runs `task`, which gives tallies, and prints what it says when it is done."""
    LANE.kept = kept = []
    LANE.gives_way = gives_way
    try:
        return task()
    except Exception as err:  # what cannot be run has not passed
        say(f"{err!r}\n")
        return [Tally("not run", failed=1)]
    finally:
        LANE.kept = None
        say("".join(kept))


def in_turn(names):
    """A task that runs suites one after the other."""
    return lambda: [tally for name in names for tally in SUITES[name](name)]


def beside(task, binaries):
    """Runs binaries, and beside them a task that gives way; returns the tallies of both once all have ended."""
    with ThreadPoolExecutor(1) as lane:
        ran = lane.submit(apart, task, gives_way=True)
        first = [one.run() for one in binaries]
        GIVING_WAY.hurry()
        return [*first, ran.result()]


def run_all(names):
    """Runs suites; returns their tallies, in the order of the table."""
    with ThreadPoolExecutor(1) as lane:
        early = [lane.submit(apart, in_turn([name]), gives_way=True) for name in names if name in OWN_DIRECTORIES]
        ran = run_in_order([name for name in names if name not in OWN_DIRECTORIES])
        return merged(ran + [tally for one in early for tally in one.result()])


def run_in_order(names):
    """Runs suites, those first that others need; returns their tallies."""
    first, binaries = [], []
    for name in (name for name in FIRST if name in names):
        if name == "test":
            tallies, binaries = tests(name)
            first += tallies
        else:
            first += SUITES[name](name)
    rest = [name for name in names if name not in FIRST]
    shared = [(one.title, one.run) for one in binaries if one.name not in (FIRST_ALONE, LAST_ALONE)]
    shared += [(name, in_turn([name])) for name in rest if name not in ONE_DIRECTORY]
    shared.sort(key=lambda task: EARLY.index(task[0]) if task[0] in EARLY else len(EARLY))
    with ThreadPoolExecutor(LANES) as lanes:
        ran = list(lanes.map(apart, [run for _, run in shared]))
    compute = in_turn([name for name in rest if name in ONE_DIRECTORY])
    ran += beside(compute, [one for one in binaries if one.name == FIRST_ALONE])
    ran += [one.run() for one in binaries if one.name == LAST_ALONE]
    return first + [tally for tallies in ran for tally in tallies]


def merged(tallies):
    """Tallies of one name made one."""
    by_name = {}
    for one in tallies:
        tally = by_name.setdefault(one.name, Tally(one.name))
        tally.passed += one.passed
        tally.failed += one.failed
        tally.skips += one.skips
        tally.seconds += one.seconds
    return list(by_name.values())


def show(tallies, start):
    """Prints the table, the slowest binaries, what was skipped, and the sum; returns whether all is well."""
    print(f"\n{'suite':34} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for t in tallies:
        print(f"{t.name:34} {t.passed:7} {t.failed:7} {len(t.skips):8} {t.seconds:8.0f}")
    if TIMES:
        print(f"\n{'slowest of ' + str(len(TIMES)) + ' test binaries':50} {'tests':>6} {'seconds':>8}")
    for seconds, binary, tests_run in sorted(TIMES, reverse=True)[:SLOWEST]:
        print(f"{binary:50} {tests_run:6} {seconds:8.1f}")
    print(f"\n{'most of ' + format(sum(used for used, _ in CPU), '.0f') + ' seconds of processors':50}")
    for used, name in sorted(CPU, reverse=True)[:SLOWEST]:
        print(f"{name:57} {used:8.1f}")
    print(f"all in {(time.monotonic() - start) / 60:.1f} minutes")
    for t in tallies:
        for test, why in t.skips:
            print(f"skipped: {t.name}: {test}: {why}")
    for t in tallies:
        if t.failed:
            print(f"failed: {t.failed} of {t.name}")
    for reason in REASONS:
        print(reason)
    passed, failed = sum(t.passed for t in tallies), sum(t.failed for t in tallies)
    skipped = sum(len(t.skips) for t in tallies)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return passed and not failed


def main(chosen):
    """Runs the chosen suites, or all; returns the exit code."""
    unknown = [name for name in chosen if name not in SUITES]
    if unknown:
        print(f"test.py: no suite {', '.join(unknown)}; there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    if not glob.glob(os.path.join(TARGET, "debug", "incremental", "*")):
        # A first build reuses nothing: without incremental compilation it takes three quarters of the time. What was built so is
        # used again as long as nobody else has built incrementally (cargo makes the directory in any case).
        os.environ.setdefault("CARGO_INCREMENTAL", "0")
    start = time.monotonic()
    CHOSEN.extend(name for name in SUITES if not chosen or name in chosen)
    return 0 if show(run_all(CHOSEN), start) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
