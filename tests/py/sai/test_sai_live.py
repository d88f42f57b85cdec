"""QoS tests of a foreign tester against running switches: SAI's service by Thrift stubs, PTF's dataplane over veths.

One switch for each kind of port and number of workers runs all cases of saiobjects.py, saiforward.py and
saibuffer.py; the first one also those of saihostile.py, whose clients break the protocol.

Source: docs/spec/pipeline.md §2, §4, §7 to §9; the interface of switch_sai.thrift.
"""

import ast
import functools
import json
import os
import subprocess

import pytest

import stubs
import weftlive

HERE = os.path.dirname(os.path.abspath(__file__))
MISSING = weftlive.missing() or stubs.missing()
NO_XDP = None if weftlive.xdp_kind() == "af_xdp" else "XDP programs cannot be loaded (root with CAP_BPF)"
SWITCHES = [(kind, workers) for kind in ("af_packet", "af_xdp") for workers in (1, 2)]
TIMEOUT_S = 300


def cases_of(module):
    """Names of a module's cases, without its imports, which need the stubs."""
    with open(os.path.join(HERE, f"{module}.py"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [
        one.name for one in functions if any(getattr(mark, "id", "") == "case" for mark in one.decorator_list)
    ]


CASES = [case for module in ("saiobjects", "saiforward", "saibuffer") for case in cases_of(module)]
HOSTILE = cases_of("saihostile")


@pytest.fixture(scope="session", name="package")
def package_fixture(tmp_path_factory):
    """Folder with the stubs."""
    return stubs.make(str(tmp_path_factory.mktemp("stubs")))


BOOKS = "the_books_come_out_even_at_the_end"
# The protocol is one for all switches.
OF_SWITCH = {switch: [*CASES, *(HOSTILE if switch == SWITCHES[0] else []), BOOKS] for switch in SWITCHES}
PAIRS = [(switch, case) for switch, cases in OF_SWITCH.items() for case in cases]


@pytest.fixture(scope="session", name="outcome_of")
def outcome_of_fixture(request, package, tmp_path_factory):
    """A function that tells what became of each chosen case on a switch, which it runs once."""
    params = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    chosen = [(one.get("switch"), one.get("case")) for one in params]

    @functools.cache
    def outcome(switch):
        out, ended = str(tmp_path_factory.mktemp("sai") / "results.json"), None
        cases = [case for of, case in chosen if of == switch and case != BOOKS]
        try:
            weftlive.inside("sai.saiswitch", "run", *switch, package, out, *cases, timeout=TIMEOUT_S)
        except (AssertionError, subprocess.TimeoutExpired) as err:
            ended = str(err)
        results = {}
        if os.path.exists(out):
            with open(out, encoding="utf-8") as file:
                results = json.load(file)
        return {case: results.get(case, f"not run: {ended}") for case in cases} | {BOOKS: ended or "passed"}

    return outcome


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize(
    ("switch", "case"), PAIRS, ids=[f"{kind}-{workers}-{case}" for (kind, workers), case in PAIRS]
)
def test_case(outcome_of, switch, case):
    if switch[0] == "af_xdp" and NO_XDP:
        pytest.skip(NO_XDP)
    result = outcome_of(switch)[case]
    assert result == "passed", result
