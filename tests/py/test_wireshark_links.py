"""What weft's dissector says of several frames together: requests and completions, CCI over TCP, paths with drops.

Pytest, over tshark twice (`-2`), as requests know their completions on the second pass.

Units: ns.
Source: docs/wireshark.md; docs/spec/wire-formats.md §1.5, §3.1, §3.5 to §3.7, §4.1.
"""

import os
import struct
import subprocess

import pytest

import make_tlp as m
import weftbuild as w
import weftshark
from ccitalk import STEP_NS, Talk, message
from weftlive import ROOT, weft
from weftpcap import PcapngWriter, write_pcap

HOST, DEVICE = "02:00:00:00:00:0a", "02:00:00:00:00:0b"

pytestmark = pytest.mark.skipif(weftshark.missing() is not None, reason=str(weftshark.missing()))


@pytest.fixture(name="shark", scope="module")
def fixture_shark():
    with weftshark.Shark() as shark:
        yield shark


def on_link(src, dst, protocol, data):
    """A frame with a TLP between two ends of a link."""
    head = w.mac(dst) + w.mac(src) + struct.pack(">H", m.ETHER_TYPE)
    return w.pad60(head + bytes(m.TlpLink(protocol=protocol)) + data)


def read(requester, tag, dws=16, **bits):
    """A non-flit MRd."""
    return bytes(m.NonFlitMem64(length=dws, requester=requester, tag=tag, addr=0x1000, **bits))


def completion(requester, tag, dws, left, status=0):
    """A non-flit CplD of `dws` DWs, or a Cpl; `left` bytes with its own are to come."""
    first = 0x4A if dws else 0x0A
    head = struct.pack(">BBHHHHBB", first, 0, dws, 0, status << 13 | left, requester, tag, 0)
    return head + bytes(4 * dws)


def uio_completion(requester, tag, dws, offset):
    """A UIORdCplD."""
    return struct.pack(">BBHHHHH", 0x48, 0, dws, 0, tag, requester, offset) + bytes(4 * dws)


def pbr(spid, dpid, data):
    """A TLP behind a PTH."""
    return bytes(m.Pth(spid=spid, dpid=dpid)) + data


def links_of(shark, tmp_path, frames, *fields, name="links.pcap"):
    """The values of fields, of each frame, a µs after the other."""
    capture = str(tmp_path / name)
    write_pcap(capture, [(i * 1000, data) for i, data in enumerate(frames)])
    shown = shark.frames(capture, "-2")
    return [tuple(frame.all(field) for field in fields) for frame in shown]


TLP = ("weft.tlp.completed_in", "weft.tlp.request_in", "weft.tlp.response_time")


def test_completions_find_their_requests(shark, tmp_path):
    three = m.HBR_NON_FLIT
    frames = [
        on_link(HOST, DEVICE, three, read(0x0100, 5)),
        on_link(HOST, DEVICE, three, read(0x0100, 6)),
        on_link(DEVICE, HOST, three, completion(0x0100, 6, 16, 64)),
        on_link(DEVICE, HOST, three, completion(0x0100, 5, 8, 64)),
        on_link(DEVICE, HOST, three, completion(0x0100, 5, 8, 32)),
        on_link(DEVICE, HOST, three, completion(0x0100, 5, 8, 32)),  # of nothing any more
        on_link(HOST, DEVICE, three, read(0x0100, 5)),  # the tag is free again
        on_link(DEVICE, HOST, three, completion(0x0100, 5, 0, 64, status=1)),
        on_link(DEVICE, HOST, three, completion(0x0200, 5, 0, 64, status=1)),  # another requester
    ]
    assert links_of(shark, tmp_path, frames, *TLP) == [
        (["4", "5"], [], []),
        (["3"], [], []),
        ([], ["2"], ["0.000001000"]),
        ([], ["1"], ["0.000003000"]),
        ([], ["1"], ["0.000004000"]),
        ([], [], []),
        (["8"], [], []),
        ([], ["7"], ["0.000001000"]),
        ([], [], []),
    ]


def test_posted_writes_and_other_completions_are_not_linked(shark, tmp_path):
    write = bytes(m.NonFlitMem64(fmt=3, length=2, requester=0x0100, tag=5, addr=0x1000)) + bytes(8)
    frames = [
        on_link(HOST, DEVICE, m.HBR_NON_FLIT, write),
        on_link(DEVICE, HOST, m.HBR_NON_FLIT, completion(0x0100, 5, 2, 8)),
    ]
    assert links_of(shark, tmp_path, frames, *TLP) == [([], [], [])] * 2


def test_uio_is_complete_with_its_last_chunk_whatever_their_order(shark, tmp_path):
    ask = bytes(m.FlitMem64(type=0x22, length=16, requester=0x0100, tag=300, addr=0x400))
    frames = [
        on_link(HOST, DEVICE, m.PBR, pbr(0x0A1, 0x123, ask)),
        on_link(HOST, DEVICE, m.PBR, pbr(0x0A2, 0x123, ask)),  # another host, with the same ids
        on_link(DEVICE, HOST, m.PBR, pbr(0x123, 0x0A1, uio_completion(0x0100, 300, 8, 8))),
        on_link(DEVICE, HOST, m.PBR, pbr(0x123, 0x0A2, uio_completion(0x0100, 300, 16, 0))),
        on_link(DEVICE, HOST, m.PBR, pbr(0x123, 0x0A1, uio_completion(0x0100, 300, 8, 0))),
        on_link(DEVICE, HOST, m.PBR, pbr(0x123, 0x0A1, uio_completion(0x0100, 300, 8, 0))),
    ]
    requests = [found[:2] for found in links_of(shark, tmp_path, frames, *TLP)]
    far = [  # one host, two devices, one tag
        on_link(HOST, DEVICE, m.PBR, pbr(0x0A1, 0x123, ask)),
        on_link(HOST, "02:00:00:00:00:0c", m.PBR, pbr(0x0A1, 0x124, ask)),
        on_link("02:00:00:00:00:0d", HOST, m.PBR, pbr(0x123, 0x0A1, uio_completion(0x0100, 300, 16, 0))),
    ]
    assert [found[1] for found in links_of(shark, tmp_path, far, *TLP)] == [[], [], ["1"]]
    assert requests == [(["3", "5"], []), (["4"], []), ([], ["1"]), ([], ["2"]), ([], ["1"]), ([], [])]


def test_a_request_seen_on_two_links_is_completed_on_each(shark, tmp_path):
    near, far = ("02:00:00:00:00:0a", "02:00:00:00:00:11"), ("02:00:00:00:00:12", "02:00:00:00:00:0b")
    frames = [
        on_link(*near, m.HBR_NON_FLIT, read(0x0100, 5)),
        on_link(*far, m.HBR_NON_FLIT, read(0x0100, 5)),
        on_link(*far[::-1], m.HBR_NON_FLIT, completion(0x0100, 5, 16, 64)),
        on_link(*near[::-1], m.HBR_NON_FLIT, completion(0x0100, 5, 16, 64)),
    ]
    assert [found[1] for found in links_of(shark, tmp_path, frames, *TLP)] == [[], [], ["2"], ["1"]]
    # As `weft trace` writes them: each frame where it came in. One request can be meant, of two none is.
    assert [found[1] for found in links_of(shark, tmp_path, [frames[0], frames[2]], *TLP)] == [[], ["1"]]
    third = on_link(DEVICE, "02:00:00:00:00:77", m.HBR_NON_FLIT, completion(0x0100, 5, 16, 64))
    assert [found[1] for found in links_of(shark, tmp_path, [frames[0], frames[1], third], *TLP)] == [
        [],
        [],
        [],
    ]


def test_interfaces_are_links_of_their_own(shark, tmp_path):
    capture = str(tmp_path / "two.pcapng")
    with PcapngWriter(capture, "p0") as writer:
        writer.write(0, on_link(HOST, DEVICE, m.HBR_NON_FLIT, read(0x0100, 5)))
        writer.write(5, on_link(DEVICE, HOST, m.HBR_NON_FLIT, completion(0x0100, 5, 16, 64)))
    shown = shark.frames(capture, "-2")
    assert [frame.one("weft.tlp.completed_in") for frame in shown] == ["2", None]
    assert shown[1].one("weft.tlp.response_time") == "0.000000005"


def test_acks_find_what_they_acknowledge(shark, tmp_path):
    def rc(dst, src, opcode=0, syndrome=0, **rh):
        made = w.build_rh(opcode=opcode, len_syn=syndrome if opcode else w.rh_length(64), **rh)
        return w.build_gen2(dst, src, w.traffic_class(1, opcode), bytes(0 if opcode else 64), made)

    frames = [
        rc(2, 1, psn=10, dest_qp=4),
        rc(2, 1, psn=11, dest_qp=4),
        rc(2, 3, psn=11, dest_qp=4),  # another station
        rc(1, 2, opcode=1, syndrome=0x60, psn=10, dest_qp=8),  # a NAK acknowledges nothing
        rc(2, 1, psn=10, dest_qp=4),  # sent again
        rc(1, 2, opcode=1, syndrome=0x1F, psn=11, dest_qp=8),
        rc(1, 2, opcode=1, syndrome=0x1F, psn=10, dest_qp=8),
        rc(2, 1, psn=12, dest_qp=4),
        rc(2, 1, psn=12, dest_qp=8),
        rc(1, 2, opcode=1, syndrome=0x1F, psn=12, dest_qp=12),  # of two of one bank: nobody knows
        rc(2, 1, psn=13, dest_qp=4),
        rc(2, 1, psn=13, dest_qp=5),
        rc(1, 2, opcode=1, syndrome=0x1F, psn=13, dest_qp=9),  # of two, the one of its bank
    ]
    got = links_of(shark, tmp_path, frames, "weft.rh.acked_in", "weft.rh.request_in", "weft.rh.response_time")
    want = [([], [], [])] * len(frames)
    want[1], want[5] = (["6"], [], []), ([], ["2"], ["0.000004000"])
    want[4], want[6] = (["7"], [], []), ([], ["5"], ["0.000002000"])
    want[11], want[12] = (["13"], [], []), ([], ["12"], ["0.000001000"])
    assert got == want


def test_what_is_looked_through_is_bounded():
    """A capture that is made to be slow: many requests with one name on as many links, and none answered."""
    script = """
      local state = dofile(arg[1]).new()
      for i = 1, 10000 do
        state:tlp(i, 0, {requester = "r", tag = 1, wants_completion = true}, "link" .. i, "back" .. i)
        state:rc_link(i, 0, {opcode = "send", psn = 1, qp = i % 8192}, "a", "b")
      end
      local most = 0
      for _, sends in pairs(state.sends) do
        for _ in pairs(sends.by_qp) do most = most + 1 end
      end
      print(#state.tlps["r/1"], most)
    """
    links = os.path.join(ROOT, "wireshark", "weft", "links.lua")
    run = ["lua5.4", "-", links]
    told = subprocess.run(run, input=script, capture_output=True, text=True, check=True).stdout
    waiting, sends = map(int, told.split())
    assert waiting == 64 and 0 < sends <= 64


# CCI over TCP


def messages(shark, capture, *prefs):
    """What is shown of all messages, in order: name, category, tag, and frame numbers of request and response."""
    found = []
    for frame in shark.frames(capture, "-2", prefs=prefs):
        values = [frame.all("weft.cci." + key) for key in ("name", "category", "tag", "return_name")]
        found.append((values, frame.all("weft.cci.request_in"), frame.all("weft.cci.response_in"), frame))
    return found


@pytest.mark.parametrize("size", [1, 2, 15, 100])
def test_cci_is_put_together_over_the_borders_of_segments(shark, tmp_path, size):
    capture = str(tmp_path / "cci.pcap")
    write_pcap(capture, Talk().say_everything(size).frames)
    shown = messages(shark, capture, "weft.cci_ports:4000")
    names = [name for values, *_ in shown for name in values[0]]
    assert names == [
        "Identify PBR Switch", "Identify PBR Switch",
        "Get DRT", "Identify PBR Component", "Get DRT", "Identify PBR Component",
        "Fabric Crawl Out", "Identify PBR Switch", "Fabric Crawl Out", "Identify PBR Switch",
        "Configure PID Assignment", "Configure PID Assignment",
    ]  # fmt: skip
    assert [tag for values, *_ in shown for tag in values[2]] == list("112323494955")
    lengths = [length for *_, frame in shown for length in frame.all("weft.cci.payload_len")]
    assert lengths == ["0", "12", "6", "0", "3000", "38", "18", "0", "28", "12", "9", "0"]
    assert not any(frame.all("weft.cci.error") for *_, frame in shown)
    assert shown[-1][0][3] == ["Invalid Input"] and shown[-1][-1].all("weft.cci.refused") == [""]


def test_cci_requests_and_responses_are_linked(shark, tmp_path):
    capture = str(tmp_path / "cci.pcap")
    talk = Talk().ask(message(0x5700, tag=1) + message(0x5700, tag=2)).ask(message(0x5708, bytes(6), 1))
    talk.answer(message(0x5708, b"", 1, True, 2)).answer(message(0x5700, bytes(12), 2, True), 7)
    talk.answer(message(0x5700, bytes(12), 1, True)).answer(message(0x5700, bytes(12), 1, True))
    other = Talk(client=50_001).answer(message(0x5700, bytes(12), 2, True))
    write_pcap(capture, talk.frames + [(len(talk.frames) * STEP_NS, other.frames[0][1])])
    shown = messages(shark, capture, "weft.cci_ports:4000")
    last = len(talk.frames)
    assert sorted(shown[0][2]) == sorted([str(last - 1), str(last - 2)]), "of two requests in one segment"
    assert (shown[1][2], shown[2][1], shown[last - 3][1]) == (["3"], ["2"], ["1"])
    assert shown[last - 2][1] == ["1"]
    assert shown[last - 2][3].one("weft.cci.response_time") == f"{(last - 2) / 1000:.9f}"
    assert (shown[last - 1][1], shown[last][1]) == ([], []), "answered already; another connection"


def test_cci_is_recognised_at_ports_that_nobody_named(shark, tmp_path):
    capture = str(tmp_path / "cci.pcap")
    write_pcap(capture, Talk().say_everything(1400).frames)
    assert sum(bool(values[0]) for values, *_ in messages(shark, capture)) == 8
    write_pcap(capture, Talk().ask(message(0x5700, tag=1)).ask(message(0x5700, tag=2), 5).frames)
    assert [values[2] for values, *_ in messages(shark, capture) if values[2]] == [["1"], ["2"]], (
        "once it is known"
    )
    plain = str(tmp_path / "plain.pcap")
    text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    nearly = bytearray(message(0x5700, tag=1))
    nearly[5] = 1  # a reserved byte
    write_pcap(plain, Talk().ask(text).frames + Talk(client=50_001).ask(bytes(nearly)).frames)
    assert not any(values[0] for values, *_ in messages(shark, plain))


def test_a_stream_that_is_out_of_step_is_shown_as_such(shark, tmp_path):
    capture = str(tmp_path / "cci.pcap")
    talk = Talk().ask(message(0x5700, tag=1)).ask(b"\5\0\7garbage").answer(b"\x20\0\x09" + bytes(31))
    write_pcap(capture, talk.ask(message(0x5700)[:3] + b"\3" + message(0x5700)[4:]).frames)
    shown = [frame.one("weft.cci.error") for *_, frame in messages(shark, capture, "weft.cci_ports:4000")]
    assert shown == [
        None,
        "mctp: length cannot be 0x0005",
        "mctp: message type cannot be 0x0009",
        "cci: category cannot be 0x0003",
    ]


# Paths


def test_drop_reasons_come_from_comments(shark, tmp_path):
    frames, trace, config = tmp_path / "in.pcap", tmp_path / "trace.pcapng", tmp_path / "weft.toml"
    config.write_text('[fdb]\nunknown_unicast = "drop"\n[[port]]\nname = "p0"\n[[port]]\nname = "p1"\n')
    for command in (
        ["gen", "standard", "gen2", "pfc", "--count", "2", "--out", frames],
        ["replay", "-c", config, "--in", f"p0={frames}", "--out", tmp_path / "out", "--trace", trace],
    ):
        subprocess.run([weft(), *map(str, command)], check=True, capture_output=True)
    shown = shark.frames(str(trace))
    weftshark.assert_equal(shown, weftshark.decoded(str(trace)))
    drops = [(frame.one("weft.drop.reason"), frame.one("weft.drop.port")) for frame in shown]
    assert drops.count(("unknown_unicast", "p0")) == 4 and drops.count((None, None)) == 2
    assert [int(frame.one("weft.path.frame")) for frame in shown] == list(range(1, 7))
    stages = [stage.split()[2] for stage in shown[0].all("weft.path.stage")]
    assert stages == ["rx", "classify", "drop"]
    told = shark.run("-r", shark.reachable(str(trace)), "-Y", 'weft.drop.reason == "unknown_unicast"')
    assert len(told.splitlines()) == 4 and all(
        "[dropped: unknown_unicast]" in line for line in told.splitlines()
    )


def test_other_comments_are_no_paths(shark, tmp_path):
    capture = str(tmp_path / "comment.pcapng")
    with PcapngWriter(capture) as writer:
        writer.write(0, w.build_pfc(HOST, {3: 1}), comment="0.5 frame drop dt, counted at p0")
    (frame,) = shark.frames(capture)
    assert (
        frame.one("frame.comment")
        and frame.one("weft.drop.reason") is None
        and not frame.all("weft.path.stage")
    )
