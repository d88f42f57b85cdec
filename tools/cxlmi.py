#!/usr/bin/env python3
"""Runs libcxlmi's own tests of generic commands and of the FM-API against a running switch: `make cxlmi LIBCXLMI=PATH`.

cxlmi.py PATH -> a table of tests and results, in the folder of the library too; exit 1 where a test program fails to run.

Units: tests.
Source: docs/mctp.md "Programs with AF_MCTP sockets". PATH is a clone that was built there (meson setup build; ninja -C build).

A test that the switch refuses is a result, not a failure of this script: the tests send dummy arguments.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "py"))

import mctplive  # noqa: E402

PROGRAMS = ("cxl-test-generic", "cxl-test-fmapi")
RESULT = re.compile(r"^\s*\[(PASS|FAIL|SKIP)\] (\S+?):?(?: (.*))?$")
OUT = os.path.join(ROOT, "target", "mctp")
TIMEOUT_S = 300


def find(path, name):
    """The test program of that name in a clone, built anywhere below it."""
    for folder, _, files in os.walk(path):
        program = os.path.join(folder, name)
        if name in files and os.access(program, os.X_OK):
            return program
    return None


def libraries(path):
    """Folders of the clone that have its shared library."""
    return [folder for folder, _, files in os.walk(path) if any(file.startswith("libcxlmi.so") for file in files)]


def run(program, path, address):
    """Runs a test program; its results, or None where it did not get to them."""
    search = ":".join([*libraries(path), os.environ.get("LD_LIBRARY_PATH", "")])
    env = {
        **os.environ,
        "LD_PRELOAD": os.path.join(OUT, "mctp_preload.so"),
        "LD_LIBRARY_PATH": search,
        "WEFT_MCTP": f"{address[0]}:{address[1]}",
    }
    done = subprocess.run(
        [program, "mctp:1,8"], env=env, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    found = [match.groups() for line in done.stdout.splitlines() if (match := RESULT.match(line))]
    if not found:
        print(f"{program}: exit {done.returncode}, and no results\n{done.stdout}{done.stderr}", file=sys.stderr)
        return None
    return found


def main():
    """See above."""
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit("expected the folder of a built clone of libcxlmi: make cxlmi LIBCXLMI=PATH")
    path = os.path.abspath(sys.argv[1])
    programs = {name: find(path, name) for name in PROGRAMS}
    if missing := [name for name, program in programs.items() if not program]:
        sys.exit(f"{path}: no {' and no '.join(missing)}: build it first (meson setup build && ninja -C build)")
    lines, failed = ["| program | test | result | why |", "|---|---|---|---|"], False
    with mctplive.Switch('cci_owner = "first"') as switch:
        for name, program in programs.items():
            results = run(program, path, switch.mctp)
            failed |= results is None
            lines += [f"| {name} | {test} | {result} | {why or ''} |" for result, test, why in results or []]
    table = "\n".join(lines) + "\n"
    print(table, end="")
    with open(os.path.join(OUT, "cxlmi.txt"), "w", encoding="utf-8") as file:
        file.write(table)
    sys.exit(failed)


if __name__ == "__main__":
    main()
