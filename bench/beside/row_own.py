"""weft's own null ports: what `weft-bench` measures and judges by itself.

run(bench) adds a line for each that it prints: "ok WHAT: FIGURE (wanted: BOUND)"; what is indented is a
note on the one before.

Units: as printed.
Source: bench/src/main.rs.
"""

import re
import subprocess

from .result import Line

NAMES = ("own",)
PRINTED = re.compile(r"^(ok|MISS|skip)\s+(.*): (.*) \(wanted: (.*)\)$")


def run(bench, _wanted):
    """Runs it, and takes its lines."""
    argv = [bench.weft_bench]
    bench.processes.commands.append(" ".join(argv))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=1_800)
    found = []
    for text in done.stdout.splitlines():
        if match := PRINTED.match(text):
            verdict, work, figure, wanted = match.groups()
            bench.say(f"own: {verdict} {work}: {figure}")
            printed = f"{work}: {figure} (wanted: {wanted})"
            found.append(Line("own", work, "-", "", printed=printed, judged=verdict))
        elif found and text.startswith(" "):
            bench.say(f"own: {text.strip()}")
            found[-1].notes.append(text.strip())
    bench.lines += found
    if not found or (done.returncode != 0 and all(line.judged != "MISS" for line in found)):
        reason = f"weft-bench ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        bench.lines.append(Line("own", "weft-bench", "-", "", failed=True, reason=reason))
