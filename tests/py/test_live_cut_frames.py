"""Frames of every kind, cut at every length, through `weft run` on each kind of port.

The cuts of test_cut_frames.py between two interfaces in namespaces of their own.

Units: frames without FCS.
Source: docs/spec/pipeline.md §1.
"""

import os
from collections import Counter

import pytest

import test_cut_frames
import weftbuild as w
import weftlive
from tagmeta import RawPort
from test_live_tags import CONFIG, DEVICES
from weftlive import Rig, plug, sh
from weftpri import is_malformed

# The kernel sends nothing below 14 bytes, and drops a tagged frame below 20 before a packet socket sees it.
TAGS = (b"\x81\x00", b"\x88\xa8")
# Frames at a time: no more than wait in any ring for a switch that is not scheduled.
BATCH = 256
MISSING = weftlive.missing()


def run_cuts(kind):
    """What leaves is what a port does not call malformed; no frame is dropped for another reason."""
    plug("sw0", "h0")
    if kind != "tap":
        plug("sw1", "h1")
    first = "af_packet" if kind == "packet" else weftlive.xdp_kind()
    sent = [frame for frame in test_cut_frames.cuts() if len(frame) >= (20 if frame[12:14] in TAGS else 14)]
    left = 0
    config = CONFIG.format(priorities=8, vlan="transparent", device=DEVICES[kind], kind=first)
    with Rig(config) as rig:
        if kind == "tap":
            sh("ip link set h1 up")
        with RawPort("h0", receive=False) as one, RawPort("h1") as two:
            for start in range(0, len(sent), BATCH):
                batch = sent[start : start + BATCH]
                for frame in batch:
                    one.send(frame)
                want = Counter(w.pad60(frame) for frame in batch if not is_malformed(frame, "auto"))
                got = Counter(frame.data for frame in two.take(want.total()))
                assert got == want, (want - got, got - want)
                left += want.total()
            assert two.recv(0.05) is None
        drops = rig.show_settled()["drops"]["total"]
        assert {reason: n for reason, n in drops.items() if n} == {"malformed": len(sent) - left}


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("kind", DEVICES)
def test_a_frame_that_is_cut_short_crosses_a_running_switch(kind):
    if kind == "tap" and not os.path.exists("/dev/net/tun"):
        pytest.skip("no /dev/net/tun")
    weftlive.inside("test_live_cut_frames", "run_cuts", kind)
