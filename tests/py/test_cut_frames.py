"""Frames of every kind, cut at every length: which are forwarded, as which format and in which priority.

All cuts through `weft replay`; what leaves, is dropped and is counted, held against weftpri.py.

Units: bytes without FCS.
Source: docs/spec/pipeline.md §1 and §2.
"""

import json
import struct

import pytest

import weftbuild as w
from test_ecn_marks import TAG, ethernet, run, tcp, v4, v6
from weftpri import is_malformed, pri_of_frame

MODES = {"ethernet": "none", "gen1": "gen1", "gen2": "gen2", "auto": "auto", "lite": "lite"}
SEEN = 80  # bytes: no header that is looked at reaches further


def kinds():
    """Frames of every kind, with DSCP and PCP that lead to other priorities than the default."""
    udp = struct.pack(">HHHH", 5000, 5001, 28, 0) + bytes(20)
    roce = struct.pack(">HHHH", 5000, w.UDP_TYPE1, 28, 0) + bytes(20)
    bodies = [
        (w.ETH_IPV4, v4(1, tcp())),
        (w.ETH_IPV4, v4(1, udp, 17)),
        (w.ETH_IPV4, v4(1, roce, 17)),
        (w.ETH_IPV4, v4(1, roce, 17, flags=0x2000)),
        (w.ETH_IPV4, v4(1, roce, 17, total=27)),
        (w.ETH_IPV4, v4(1, udp, 17, options=b"\1" * 40)),
        (w.ETH_IPV4, v4(1, tcp(), first=0x44)),
        (w.ETH_IPV4, v6(1, tcp())),
        (w.ETH_IPV6, v6(1, tcp())),
        (w.ETH_IPV6, v6(1, udp, 17)),
        (w.ETH_IPV6, v6(1, roce, 17)),
        (w.ETH_IPV6, v6(1, roce, 0)),
        (w.ETH_IPV6, v4(1, tcp())),
        (0x0806, bytes(28)),
        (0x8847, b"\0\1\x0b\x40" + bytes(20)),
        (46, b"\xaa\xaa\3\0\0\0\x08\0" + v4(1, tcp())),
        (0x88A8, b"\x60\5\x08\0" + v4(1, tcp())),
    ]
    frames = [ethernet(kind, body, tag) for kind, body in bodies for tag in (b"", TAG)]
    rh = w.build_rh(len_syn=8)
    for tag in (b"", TAG):
        frames += [
            w.build_standard(2, 1, bytes(20), rh, vlan=tag),
            w.build_gen1(2, 1, 0x44, bytes(20), rh, vlan=tag),
            w.build_gen2(2, 1, 0x44, bytes(20), rh, vlan=tag),
        ]
    return [*frames, w.build_lite(2, 1, 0x44, bytes(20)), w.build_gen1(2, 1, 0x44, bytes(20), rh)]


def cuts():
    """Every cut of them."""
    return [frame[:length] for frame in kinds() for length in range(12, min(len(frame), SEEN) + 1)]


@pytest.mark.parametrize("tpids", [(0x8100,), (0x8100, 0x88A8)])
@pytest.mark.parametrize("priorities", [4, 8])
@pytest.mark.parametrize("mode", MODES)
def test_every_cut_is_forwarded_unless_it_ends_in_what_the_switch_reads(mode, priorities, tpids, tmp_path):
    """A layer-2 switch forwards what it need not understand."""
    sent = cuts()
    left = [frame for frame in sent if not is_malformed(frame, mode, tpids=tpids)]
    more = ["--set", f"switch.num_priorities={priorities}", "--set", "ecn.ecn_enabled=false"]
    more += ["--set", f"port_defaults.afh={MODES[mode]}", "--set", f"formats.tpid={list(tpids)}"]
    got = run(tmp_path, sent, *more)
    result = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert len(left) > len(sent) / 2
    for frame, out in zip(left, got, strict=True):
        assert out == w.pad60(frame), f"{len(frame)}: {frame.hex(' ')}"
    assert result["drops"] == {"malformed": len(sent) - len(left)}
    wanted = [pri_of_frame(frame, mode, priorities, tpids=tpids) for frame in left]
    counted = {row["pri"]: row["dequeued"] for row in result["ports"][1]["priorities"]}
    assert counted == {pri: wanted.count(pri) for pri in range(priorities)}
