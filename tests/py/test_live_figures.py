"""Each topology file that says in its first comment what to type does what it says.

`#   weft ...` lines of pcaps/fabric/*.toml -> the same commands, in order; `# refused` behind one says that it must fail.

Source: docs/fabric.md "Whole fabrics"; CXL 3.1 section 7.7, whose figures the files are.
"""

import glob
import os
import shlex
import subprocess

import pytest

import weftlive
from weftlive import ROOT, weft

MISSING = weftlive.missing()
FILES = sorted(glob.glob(os.path.join(ROOT, "pcaps", "fabric", "*.toml")))
TYPED, REFUSED = "#   weft ", "# refused"


def typed(path):
    """The commands of the first comment of a file: words, and whether they must be refused."""
    found = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith("#"):
                return found
            if line.startswith(TYPED):
                words, refused, _ = line.removeprefix(TYPED).partition(REFUSED)
                found.append((shlex.split(words), bool(refused)))
    return found


def test_every_figure_says_what_to_type():
    """A figure without commands is a picture and no more."""
    figures = [path for path in FILES if os.path.basename(path).startswith("fig-")]
    assert len(figures) > 15
    assert [path for path in figures if len(typed(path)) < 2] == []


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("path", [path for path in FILES if typed(path)], ids=os.path.basename)
def test_what_a_file_says_works_as_typed(path):
    """`weft fabric up FILE &`, then each command."""
    (up, refused), *others = typed(path)
    assert up == ["fabric", "up", os.path.relpath(path, ROOT), "&"] and not refused
    with weftlive.FabricUp(path):
        for words, refused in others:
            done = subprocess.run([weft(), *words], capture_output=True, text=True, timeout=60, check=False)
            said = (words, done.returncode, done.stdout, done.stderr)
            assert done.returncode == (1 if refused else 0), said
            assert refused or "not reached" not in done.stdout, said
