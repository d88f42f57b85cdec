"""`weft conform run` at running switches: by management socket and SAI, each kind of port, one worker and two.

Each test calls a function of weftconform.py in namespaces of its own.

Source: docs/conform.md.
"""

import pytest

import weftlive

MISSING = weftlive.missing()
NO_XDP = None if weftlive.xdp_kind() == "af_xdp" else "XDP programs cannot be loaded (root with CAP_BPF)"
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["af_packet", "af_xdp"])
def test_all_cases_pass(kind, workers):
    if kind == "af_xdp" and NO_XDP:
        pytest.skip(NO_XDP)
    weftlive.inside("weftconform", "check", kind, workers, timeout=400)


def test_a_profile_does_what_is_published():
    weftlive.inside("weftconform", "check", "af_packet", 1, "th2-100g-40m", timeout=400)


def test_a_difference_is_noticed():
    weftlive.inside("weftconform", "notices", timeout=600)


def test_what_cannot_be_begun_is_refused():
    weftlive.inside("weftconform", "refuses")
