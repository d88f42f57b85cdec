"""weft's own null ports: what `weft-bench` measures and judges by itself.

Shape: run(bench) adds a line for each that it prints: "ok WHAT: FIGURE (wanted: BOUND)".
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
    bench.crew.commands.append(" ".join(argv))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    found = [match.groups() for line in done.stdout.splitlines() if (match := PRINTED.match(line))]
    for verdict, work, figure, wanted in found:
        bench.say(f"own: {verdict} {work}: {figure}")
        printed = f"{work}: {figure} (wanted: {wanted})"
        bench.lines.append(Line("own", work, "-", "", printed=printed, judged=verdict))
    if not found or (done.returncode != 0 and all(verdict != "MISS" for verdict, *_ in found)):
        reason = f"weft-bench ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        bench.lines.append(Line("own", "weft-bench", "-", "", failed=True, reason=reason))
