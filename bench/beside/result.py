"""Lines of the table, what they amount to, and the files that keep them.

Line -> verdict; table(lines) -> text; write(folder, facts, lines) -> paths of JSON and markdown.

Units: as each line's `unit` says; a ratio is weft's figure over the peer's.
"""

import dataclasses
import datetime
import json
import os
import statistics


@dataclasses.dataclass
class Line:
    """One figure of weft beside one of a peer, or beside a bound; `least` is whether more is better.

    What was `judged` where it was measured is only `printed`.
    """

    row: str
    work: str
    against: str
    unit: str
    must: float | None = None
    goal: float | None = None
    least: bool = True
    weft: list = dataclasses.field(default_factory=list)
    peer: list | None = None
    reason: str = ""
    failed: bool = False
    notes: list = dataclasses.field(default_factory=list)
    printed: str = ""
    judged: str = ""

    def figure(self):
        """What is compared with must and goal: the median ratio of the rounds, or the median itself."""
        if self.peer is None:
            return statistics.median(self.weft) if self.weft else None
        pairs = [(ours, theirs) for ours, theirs in zip(self.weft, self.peer) if theirs > 0]
        return statistics.median(ours / theirs for ours, theirs in pairs) if pairs else None

    def holds(self, bound):
        """Whether the figure is on the right side of a bound."""
        figure = self.figure()
        if bound is None or figure is None:
            return None
        return figure >= bound if self.least else figure <= bound

    def verdict(self):
        """ok, MISS, skip, or nothing where there is no bound."""
        if self.failed:
            return "MISS"
        if self.judged:
            return self.judged
        if self.figure() is None:
            return "skip" if self.must is not None or self.reason else ""
        if self.must is None:
            return ""
        return "ok" if self.holds(self.must) else "MISS"

    def described(self):
        """What was printed at the measurement, and then the notes on it."""
        return "; ".join([self.printed, *self.notes])

    def cells(self):
        """The line as a row of text."""
        figure, sign = self.figure(), "≥" if self.least else "≤"
        ratio = "" if figure is None or self.peer is None else f"{figure:.2f}"
        bound = lambda value: "" if value is None else f"{sign} {value:g}"  # noqa: E731 - used twice, here
        goal = bound(self.goal) + (" met" if self.holds(self.goal) else "")
        weft, peer = shown(self.weft), shown(self.peer or [])
        return [self.work, self.against, self.unit, weft, peer, ratio, bound(self.must), goal, self.verdict()]


HEAD = ["work", "against", "unit", "weft", "peer", "ratio", "must", "goal", ""]


def shown(figures):
    """The median, with its significant digits."""
    if not figures:
        return "-"
    median = statistics.median(figures)
    return f"{median:.3f}" if abs(median) < 10 else f"{median:.1f}"


def table(lines):
    """All lines as a table."""
    judged = [line for line in lines if line.printed]
    rows = [HEAD] + [line.cells() for line in lines if not line.printed] if len(judged) < len(lines) else []
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(len(HEAD))]
    out = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows]
    reasons = dict.fromkeys(f"     {line.row}: {line.reason}" for line in lines if line.reason)
    return "\n".join([*out, *(f"{line.verdict():4} {line.described()}" for line in judged), *reasons])


def markdown(facts, lines):
    """The result for people."""
    out = ["# weft beside other switches", ""]
    out += [f"- {name}: {value}" for name, value in facts.items() if not isinstance(value, (dict, list))]
    out += ["", "| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    out += ["| " + " | ".join(line.cells()) + " |" for line in lines if not line.printed]
    out += ["", *(f"- {line.verdict()}: {line.described()}" for line in lines if line.printed)]
    out += ["", "Figures are medians of the rounds; a ratio is the median of the rounds' ratios.", ""]
    out += ["## Rows", ""]
    for line in (line for line in lines if not line.printed):
        out.append(f"**{line.row}**: {line.work}, against {line.against}")
        out.append("")
        for name, figures in (("weft", line.weft), ("peer", line.peer)):
            if figures:
                out.append(f"- {name}: " + ", ".join(f"{figure:.4g}" for figure in figures) + f" {line.unit}")
        out += [f"- {note}" for note in ([line.reason] if line.reason else []) + line.notes] + [""]
    out += ["## Core distance", "", "Round trips in ns (least, median, most) before and after each round:", ""]
    out += [f"- {row}: before {before}, after {after}" for row, before, after in facts["distances"]]
    out += ["", "## Configurations of weft", ""]
    for text in facts["configurations"]:
        out += ["```toml", text.strip(), "```", ""]
    out += ["## Commands", "", "```sh", *facts["commands"], "```", ""]
    return "\n".join(out)


def write(folder, facts, lines):
    """Writes both files, named by the time; returns their paths."""
    os.makedirs(folder, exist_ok=True)
    name = f"{folder}/{datetime.datetime.now(datetime.timezone.utc):%Y%m%dT%H%M%SZ}"
    kept = [{**dataclasses.asdict(line), "figure": line.figure(), "verdict": line.verdict()} for line in lines]
    with open(f"{name}.json", "w", encoding="utf-8") as file:
        json.dump({"machine": facts, "lines": kept}, file, indent=1, ensure_ascii=False)
        file.write("\n")
    with open(f"{name}.md", "w", encoding="utf-8") as file:
        file.write(markdown(facts, lines))
    return f"{name}.json", f"{name}.md"
