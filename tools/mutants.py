#!/usr/bin/env python3
"""Shows that each checker of the simulation objects to a mutation of the stage that it watches: `make soak`.

mutants.py [--jobs N] [--list] [NAME]... -> a row a mutant (who objected), a count; all of tools/mutants.toml
    without a name. Exit 1 when a checker kept silent, when one objects to the source as it is, or when a mutant does not
    apply, build or end.

Units: seconds.
Source: docs/simulation.md "What the checkers are worth"; tools/mutants.toml.

The tree is copied into the target directory. There, all mutants are made at once, each behind a number that is asked at run
time (WEFT_MUTANT), so that one build is enough; the tree itself has no trace of that. The build is without debug assertions
and overflow checks, as a release: these would end a run before a checker objects.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

if sys.version_info < (3, 11):
    sys.exit(f"mutants.py: needs Python 3.11 or later, this is {sys.version.split()[0]}")
import tomllib  # not before Python 3.11

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = pathlib.Path("tools/mutants.toml")
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "mutants"
NEEDED = {"name", "watch", "checker", "scenes", "why", "file", "find", "to"}
OTHER = {"says", "part"}
# A scene takes a second; a mutant under which it never ends is no better than one that survives.
PATIENCE_S = 300
BUILD_ENV = {
    "CARGO_PROFILE_DEV_DEBUG_ASSERTIONS": "false",
    "CARGO_PROFILE_DEV_OVERFLOW_CHECKS": "false",
}
# Where what all mutated crates use is, and what is put behind it in the copy.
BASE = "base/src/lib.rs"
HOOK = """
/// The mutant that is on; 0 for none.
static MUTANT: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
    std::env::var("WEFT_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
});

/// Whether it is this one.
#[must_use]
pub fn is_mutant(number: u32) -> bool {
    *MUTANT == number
}
"""


class Refused(Exception):
    """A table that is not as it must be."""


def read_table():
    """The mutants, with the places that they change: `span` of the text of their file."""
    with open(ROOT / TABLE, "rb") as file:
        mutants = tomllib.load(file).get("mutant", [])
    texts, names = {}, set()
    for number, one in enumerate(mutants, 1):
        name = one.get("name", f"number {number}")
        keys = set(one)
        if keys - NEEDED - OTHER or NEEDED - keys:
            raise Refused(f"{name}: expected keys {', '.join(sorted(NEEDED))}, and perhaps {', '.join(sorted(OTHER))}")
        if name in names:
            raise Refused(f"{name}: there are two of that name")
        names.add(name)
        one["number"] = number
        text = texts.setdefault(one["file"], (ROOT / one["file"]).read_text())
        find = one["find"].strip("\n")
        part = one.get("part", find)
        if text.count(find) != 1 or find.count(part) != 1:
            times = text.count(find) if text.count(find) != 1 else find.count(part)
            raise Refused(f"{name}: out of date: its place in {one['file']} is there {times} times")
        start = text.index(find) + find.index(part)
        one["span"] = (start, start + len(part))
    return mutants, texts


def mutated(text, mutants):
    """`text` with each of `mutants` at its place, behind its number."""
    by_span = {}
    for one in mutants:
        by_span.setdefault(one["span"], []).append(one)
    spans = sorted(by_span)
    for (before, behind) in zip(spans, spans[1:]):
        if before[1] > behind[0]:
            names = [one["name"] for span in (before, behind) for one in by_span[span]]
            raise Refused(f"{', '.join(names)}: their places overlap; write one of them in other words")
    for start, end in reversed(spans):
        found = text[start:end]
        arms = "".join(
            f"if weft_base::is_mutant({one['number']}) {{ {one['to'].strip()} }} else " for one in by_span[start, end]
        )
        whole = f"{arms}{{ {found} }}"
        text = text[:start] + (whole if found.endswith(";") else f"({whole})") + text[end:]
    return text


def write(path, data):
    """Writes a file that is not like that already, so that cargo builds what has changed only."""
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def copy_tree(mutants, texts):
    """Copies what git tracks or would track, and the mutants into it; returns where to."""
    tree = TARGET / "tree"
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tracked = [path for path in listed.split("\0") if path and (ROOT / path).is_file()]
    for path in tracked:
        data = (ROOT / path).read_bytes()
        if path in texts:
            data = mutated(texts[path], [one for one in mutants if one["file"] == path]).encode()
        elif path == BASE:
            data += HOOK.encode()
        write(tree / path, data)
    known = {tree / path for path in tracked}
    for path in [path for path in tree.rglob("*") if path.is_file() and path not in known]:
        path.unlink()
    return tree


def build(tree):
    """Builds what runs the scenes; returns it, or None."""
    command = ["cargo", "build", "--locked", "-p", "weft-sim", "--example", "objections"]
    env = {**os.environ, **BUILD_ENV, "CARGO_TARGET_DIR": str(TARGET / "build"), "RUSTFLAGS": "--cap-lints allow"}
    if subprocess.run(command, cwd=tree, env=env, check=False).returncode != 0:
        return None
    return TARGET / "build" / "debug" / "examples" / "objections"


def run(runner, number, scenes):
    """Runs scenes under a mutant; returns objections as (watch, checker, what it saw), or why there are none."""
    env = {**os.environ, "WEFT_MUTANT": str(number)}
    try:
        ran = subprocess.run(
            [runner, *scenes], env=env, check=False, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return [], f"did not end in {PATIENCE_S} s"
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    found = [tuple(line[1:]) for line in lines if len(line) == 4]
    if ran.returncode != (1 if found else 0):
        said = (ran.stderr.strip().splitlines() or [""])[-1]
        return found, f"exit code {ran.returncode}: {said[:200]}"
    return found, None


def verdict(runner, one):
    """Runs a mutant; returns (whether the one who must object has, a row)."""
    start = time.monotonic()
    found, failure = run(runner, one["number"], one["scenes"])
    wanted = (one["watch"], one["checker"])
    is_killed = any((watch, by) == wanted and one.get("says", "") in saw for watch, by, saw in found)
    who = ", ".join(sorted({f"{watch} {by}" for watch, by, _ in found})) or "nobody"
    end = "killed" if is_killed else "SURVIVED"
    if not is_killed and failure:
        end += f" ({failure})"
    row = f"{one['name']:28} {' '.join(wanted):22} {end:9} {time.monotonic() - start:5.1f} s  by {who}"
    return is_killed, row


def main():
    """Runs mutants; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants that run at once")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    parser.add_argument("names", nargs="*", metavar="NAME", help="those of tools/mutants.toml that are run; all without")
    args = parser.parse_args()
    try:
        mutants, texts = read_table()
        known = {one["name"] for one in mutants}
        unknown = [name for name in args.names if name not in known]
        if unknown:
            raise Refused(f"no mutant {', '.join(unknown)}: --list says which there are")
        if args.list:
            for one in mutants:
                print(f"{one['name']:28} {one['watch']} {one['checker']}: {one['why']}")
            return 0
        tree = copy_tree(mutants, texts)
    except (Refused, OSError, tomllib.TOMLDecodeError) as error:
        print(f"mutants.py: {error}", file=sys.stderr)
        return 1
    start = time.monotonic()
    runner = build(tree)
    if runner is None:
        print("mutants.py: the source or a mutant of it does not build: see above", file=sys.stderr)
        return 1
    print(f"built in {time.monotonic() - start:.0f} s")
    found, failure = run(runner, 0, [])
    if found or failure:
        print(f"mutants.py: without a mutant: {failure or 'somebody objects'}: {found}", file=sys.stderr)
        return 1
    chosen = [one for one in mutants if not args.names or one["name"] in args.names]
    with ThreadPoolExecutor(args.jobs) as lanes:
        ended = []
        for is_killed, row in lanes.map(lambda one: verdict(runner, one), chosen):
            print(row, flush=True)
            ended.append(is_killed)
    print(f"nobody objects without a mutant; {sum(ended)} of {len(ended)} mutants killed in {time.monotonic() - start:.0f} s")
    return 0 if ended and all(ended) else 1


if __name__ == "__main__":
    sys.exit(main())
