"""Tests of the independent maker of TLP frames, and that the kept capture is what it makes.

Worked strings; pcaps/tlp/link.pcap frame by frame.

Units: bytes.
Source: docs/spec/wire-formats.md §3.
"""

import os

import pytest

import make_tlp
from weftpcap import read_capture

KEPT = os.path.join(os.path.dirname(__file__), "..", "..", "pcaps", "tlp", "link.pcap")


@pytest.mark.parametrize("name, built, want", make_tlp.worked())
def test_worked_strings(name, built, want):
    assert built == bytes.fromhex(want), name


def test_the_kept_capture_is_what_is_made():
    kept = [frame.data for frame in read_capture(KEPT)]
    assert kept == [make_tlp.frame(i) for i in range(make_tlp.COUNT)]


def test_frames_are_padded_and_tagged():
    frames = [make_tlp.frame(i) for i in range(make_tlp.COUNT)]
    assert all(len(frame) >= 60 for frame in frames)
    assert [frame[12:14] == b"\x81\x00" for frame in frames] == [i % 4 == 0 for i in range(len(frames))]
