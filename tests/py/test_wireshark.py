"""weft's dissector in Debian's tshark, frame by frame against `weft decode`.

Pytest; captures of pcaps/, mutated frames, links of requests and completions, CCI over TCP, PFC, preferences.

Units: bytes; ns.
Source: docs/wireshark.md; docs/spec/wire-formats.md.
"""

import glob
import os
import random
import re
import shutil
import subprocess
import tomllib

import pytest

import ccitalk
import make_tlp
import test_cut_frames
import weftbuild as w
import weftmutate
import weftpri
import weftshark
from weftlive import ROOT, weft
from weftpcap import PcapngWriter, read_capture, write_pcap

PCAPS = os.path.join(ROOT, "pcaps")
SCRIPTS = sorted(glob.glob(os.path.join(ROOT, "wireshark", "**", "*.lua"), recursive=True))
CAPTURES = sorted(glob.glob(os.path.join(PCAPS, "**", "*.pcap*"), recursive=True))
# What Lua 5.2 and 5.4 both have, and what Wireshark adds: only for the files that speak to it.
LIBRARIES = set(
    "assert error ipairs loadfile math next pairs pcall setmetatable string table tonumber tostring type".split()
)
GLOBALS = LIBRARIES | set(
    "__DIR__ debug base expert frametype DissectorTable Field NSTime Pref Proto ProtoExpert ProtoField UInt64"
    " dissect_tcp_pdus register_postdissector".split()
)
GLUE = [os.path.join(ROOT, "wireshark", name) for name in ("weft.lua", "weft/fields.lua")]
SEED = 20_261_126
MUTATED = 10_000
A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
FORMATS = ["standard", "gen1", "gen2", "ethernet", "roce6", "pfc", "pause"]

pytestmark = pytest.mark.skipif(weftshark.missing() is not None, reason=str(weftshark.missing()))


@pytest.fixture(name="shark", scope="module")
def fixture_shark():
    with weftshark.Shark() as shark:
        yield shark


def settings_of(capture):
    """Mode and byte order of the set that a capture belongs to: what its ports are configured with."""
    name = os.path.basename(os.path.dirname(capture))
    path = os.path.join(PCAPS, "conformance", name + ".toml")
    if not os.path.exists(path):
        return "auto", "slap"
    with open(path, "rb") as file:
        config = tomllib.load(file)
    return config["port_defaults"]["afh"], config.get("formats", {}).get("gen2_order", "slap")


def hold(shark, capture, afh="auto", order="slap", more=(), prefs=()):
    """Holds what tshark shows of a capture against `weft decode`."""
    frames = shark.frames(capture, *more, prefs=[f"weft.afh:{afh}", f"weft.gen2_order:{order}", *prefs])
    lines = weftshark.decoded(capture, "--afh", afh, "--gen2-order", order)
    weftshark.assert_equal(frames, lines)
    return frames


def by_settings():
    """Captures that are read in the same way."""
    groups = {}
    for capture in CAPTURES:
        groups.setdefault(settings_of(capture), []).append(capture)
    return groups


def test_there_are_captures_of_every_kind():
    sets = {os.path.relpath(os.path.dirname(path), PCAPS) for path in CAPTURES}
    assert {"tlp", "in/lite", "in/gen2_doc", "want/standard", "in/malformed"} <= sets
    modes = {
        ("auto", "slap"),
        ("none", "slap"),
        ("gen1", "slap"),
        ("gen2", "slap"),
        ("gen2", "as_documented"),
    }
    assert set(by_settings()) == modes | {("lite", "slap")}


@pytest.mark.parametrize("afh, order", by_settings())
def test_fields_of_every_capture_equal_those_of_decode(shark, tmp_path, afh, order):
    """All captures of a mode as interfaces of one, as each start of tshark takes as long as thousands of frames."""
    captures, joined = by_settings()[afh, order], str(tmp_path / "all.pcapng")
    count = 0
    with PcapngWriter(joined, captures[0]) as writer:
        for capture in captures:
            number = writer.add_interface(capture)
            for frame in read_capture(capture):
                writer.write(frame.ts_ns, frame.data, interface=number)
                count += 1
    shown = hold(shark, joined, afh, order)
    assert len(shown) == count > 0


def test_a_capture_is_read_as_it_stands(shark):
    for name in ("in/malformed/p0.pcap", "tlp/link.pcap"):
        hold(shark, os.path.join(PCAPS, name))


def test_every_format_by_default(shark, tmp_path):
    capture = str(tmp_path / "formats.pcapng")
    made = [weft(), "gen", *FORMATS, "--count", "2", "--out", capture]
    subprocess.run(made, check=True, capture_output=True)
    frames = hold(shark, capture)
    shown = {frame.one("weft.format") for frame in frames}
    assert shown == {"standard", "gen1", "gen2", "other", "mac_control"}
    assert any(frame.one("weft.bth.name") for frame in frames), "RoCEv2 over IPv6"


def conversations(count):
    """Connections with a mutated message each, in segments of 9 bytes or in one."""
    rng = random.Random(SEED)
    bodies = [data for *_, data in ccitalk.everything()]
    frames = []
    while len(frames) < count:
        talk = ccitalk.Talk(client=10_000 + len(frames))
        talk.ask(weftmutate.mutated(rng, rng.choice(bodies)), rng.choice([9, 1400, 1400]))
        frames += [data for _, data in talk.frames]
    return frames[:count]


def with_mutations():
    """Frames that are nearly right, from all captures and from CCI over TCP."""
    seeds = [frame.data for path in CAPTURES for frame in read_capture(path)]
    return weftmutate.frames(SEED, MUTATED - 2_000, seeds) + conversations(2_000)


def test_mutated_frames_are_read_as_decode_reads_them(shark, tmp_path):
    capture = str(tmp_path / "mutated.pcap")
    frames = with_mutations()
    assert len(frames) == MUTATED
    write_pcap(capture, [(i * 1000, data) for i, data in enumerate(frames)])
    # Twice, as Wireshark reads again what is clicked.
    shown = hold(shark, capture, "auto", more=("-2",), prefs=["weft.cci_ports:4000"])
    errors = [frame.one("weft.error") for frame in shown]
    kinds = {frame.one("weft.tlp.kind") for frame in shown}
    assert MUTATED / 20 < sum(error is not None for error in errors) < MUTATED / 2
    assert len({error.split(":")[0] for error in errors if error}) > 8 and len(kinds) > 20
    wrong = {error.split(":")[0] for frame in shown for error in frame.all("weft.cci.error")}
    assert wrong >= {"mctp", "cci"} and sum(bool(frame.all("weft.cci.name")) for frame in shown) > 100
    write_pcap(capture, [(i * 1000, data) for i, data in enumerate(frames[:2_000])])
    hold(shark, capture, "lite", "as_documented")


def test_the_error_of_a_script_would_be_found(tmp_path):
    """The check of all others can fail: a script that calls what is not there."""
    with weftshark.Shark() as shark:
        path = os.path.join(shark.home, weftshark.PLUGINS, "weft", "summary.lua")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(
                text.replace(
                    "local function pfc(classes, names)", "local function pfc(classes, names)\n  none()"
                )
            )
        capture = str(tmp_path / "pfc.pcap")
        write_pcap(capture, [(0, w.build_pfc(A, {3: 0xFFFF}))])
        with pytest.raises(AssertionError, match=weftshark.LUA_ERROR):
            shark.frames(capture)


def test_scripts_compile_and_use_no_global_of_their_own():
    """In Lua 5.4, too: a name that is written wrongly is a global, which only Wireshark and the libraries may have."""
    for script in SCRIPTS:  # of several at once, Debian's luac 5.4.4 frees one twice
        listing = subprocess.run(
            ["luac5.4", "-l", "-p", script], check=True, capture_output=True, text=True
        ).stdout
        used = set(re.findall(r"GETTABUP.*_ENV \"(\w+)\"", listing))
        allowed = GLOBALS if script in GLUE else LIBRARIES
        assert used <= allowed, (script, used - allowed)
        assert "SETTABUP" not in listing, f"{script} sets a global"


def test_lua_5_4_decodes_the_same(tmp_path):
    """Wireshark 4.4 has Lua 5.4: the parts that decode say the same there."""
    lua = shutil.which("lua5.4")
    assert lua, "lua5.4 is not installed (tools/setup.sh test)"
    frames = with_mutations()
    capture = str(tmp_path / "frames.pcap")
    write_pcap(capture, [(0, data) for data in frames])
    walk = os.path.join(os.path.dirname(os.path.abspath(__file__)), "decode_frames.lua")
    read = subprocess.run(
        [lua, walk, os.path.join(ROOT, "wireshark", "weft", "")],
        input="".join(data.hex() + "\n" for data in frames),
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.returncode == 0, read.stderr
    lines = read.stdout.split("\n")[:-1]
    wanted = weftshark.decoded(capture)
    assert len(lines) == len(wanted)
    for line, want in zip(lines, wanted, strict=True):
        number = want["number"]
        for key in weftshark.RECORD:
            want.pop(key, None)
        got = [tuple(pair.split("=", 1)) for pair in line.split("\t") if pair]
        assert sorted(pair for pair in got if not weftshark.is_own(pair[0])) == sorted(
            weftshark.flat(want)
        ), number


def test_the_script_can_be_named_where_it_stands(shark, tmp_path):
    capture = str(tmp_path / "pfc.pcap")
    write_pcap(capture, [(0, w.build_pfc(A, {3: 0xFFFF}))])
    elsewhere = os.path.join(shark.home, "elsewhere")
    shutil.copytree(os.path.join(ROOT, "wireshark"), elsewhere)
    shark.own(elsewhere)
    script = os.path.join(elsewhere, "weft.lua")
    told = shark.run(
        "-X", f"lua_script:{script}", "-r", shark.reachable(capture), "-T", "fields", "-e", "weft.format",
        environment={"HOME": elsewhere},
    )  # fmt: skip
    assert told.split() == ["mac_control"]


# Formats and preferences


def test_pfc_classes_have_names(shark, tmp_path):
    capture = str(tmp_path / "pfc.pcap")
    write_pcap(capture, [(0, w.build_pfc(A, {1: 7, 3: 0xFFFF, 5: 0}))])
    (frame,) = shark.frames(capture)
    assert frame.all("weft.mac_control.classes.class") == ["1", "3", "5"]
    assert frame.all("weft.mac_control.classes.quanta") == ["7", "65535", "0"]
    assert frame.all("weft.mac_control.classes.name") == ["TYPE1 REQ", "ACK+CNP"]
    (frame,) = shark.frames(capture, prefs=["weft.class_names:1=storage, 3=RoCE"])
    assert frame.all("weft.mac_control.classes.name") == ["storage", "RoCE"]
    line = shark.run("-r", shark.reachable(capture), "-T", "fields", "-e", "_ws.col.Info")
    assert (
        line.strip()
        == "PFC class 1 pause 7 quanta, class 3 (TYPE1 REQ) pause 65535 quanta, class 5 (ACK+CNP) resume"
    )


def test_lite_is_read_where_a_preference_says_so(shark, tmp_path):
    capture = str(tmp_path / "ports.pcapng")
    lite = w.build_lite(2, 1, w.traffic_class(2), bytes(64), xpu_id=0x2A)
    with PcapngWriter(capture, "p0") as writer:
        writer.write(0, lite)
    cases = [
        ([], "other"),
        (["weft.afh:lite"], "lite"),
        (["weft.interfaces:p0=lite"], "lite"),
        (["weft.interfaces:0=lite, p1=gen1"], "lite"),
        (["weft.interfaces:p1=lite"], "other"),
        (["weft.afh:lite", "weft.interfaces:p0=auto"], "other"),
    ]
    for prefs, want in cases:
        (frame,) = shark.frames(capture, prefs=prefs)
        assert frame.one("weft.format") == want, prefs
        layers = frame.one("frame.protocols")
        assert ("eth:" in layers, layers == "weft_lite") == (want != "lite", want == "lite"), prefs
        assert frame.one("weft.afh.xpu_id") == ("42" if want == "lite" else None), prefs


def test_numbers_of_formats_are_preferences(shark, tmp_path):
    capture = str(tmp_path / "numbers.pcap")
    rh, tc, tag = (
        w.build_rh(psn=9, dest_qp=7),
        w.traffic_class(1),
        {"vlan": w.build_vlan(pcp=3, vid=100, tpid=0x9100)},
    )
    frames = [
        w.build_gen1(B, A, tc, bytes(64), rh, ethertype=0x1234),
        w.build_gen1(B, A, tc, bytes(64), rh, ethertype=0x1235, **tag),
        w.build_standard(B, A, bytes(64), rh, dport=5000),
        w.build_standard(B, A, bytes(64), rh, dport=5001),
    ]
    write_pcap(capture, [(i, data) for i, data in enumerate(frames)])
    plain = shark.frames(capture)
    assert [frame.one("weft.format") for frame in plain] == ["other"] * 4
    prefs = [
        "mac_type1:0x1234",
        "mac_type2:0x1235",
        "udp_type1_port:5000",
        "udp_type2_port:5001",
    ]
    for tpid in ("tpid:0x9100", "tpid:0x88A8,0x8100, 0x9100"):
        shown = shark.frames(capture, prefs=["weft." + pref for pref in (tpid, *prefs)])
        assert [frame.one("weft.format") for frame in shown] == ["gen1", "gen1", "standard", "standard"]
        assert [frame.one("weft.rh.psn") for frame in shown] == ["9"] * 4
        assert shown[1].one("weft.vlan.vid") == "100"


def test_a_preference_that_means_nothing_is_shown(shark, tmp_path):
    capture = str(tmp_path / "one.pcap")
    write_pcap(capture, [(0, w.build_gen1(B, A, w.traffic_class(1), bytes(64), w.build_rh()))])
    for pref, want in [
        ("mac_type1:0x12", "mac_type1: expected an EtherType 0x0600..0xFFFF, found"),
        ("tpid:0x8100,0x12", "tpid: expected one to four EtherTypes 0x0600..0xFFFF, found"),
        ("tpid:", "tpid: expected one to four EtherTypes 0x0600..0xFFFF, found"),
        ("tpid:0x8101,0x8102,0x8103,0x8104,0x8105", "tpid: expected one to four EtherTypes 0x0600..0xFFFF, found"),
        ("interfaces:p0=light", "interfaces: expected INTERFACE=auto, none, gen1, gen2 or lite, found"),
        ("class_names:9=x", "class_names: expected CLASS=NAME with a class 0..7, found"),
        ("oui:02-57", "oui: expected three bytes such as 02-57-46, found"),
        ("udp_type1_port:70000", "udp_type1_port: expected a UDP port 0..65535, found"),
    ]:
        (frame,) = shark.frames(capture, prefs=["weft." + pref])
        assert frame.one("weft.preference_error").startswith(want), pref
        assert frame.one("weft.format") == "gen1", pref


def test_other_oui_stay_with_wireshark(shark, tmp_path):
    capture = str(tmp_path / "oui.pcap")
    frame = make_tlp.frame(1)
    other = frame[:14] + b"\x00\x12\x34" + frame[17:]
    write_pcap(capture, [(0, frame), (1, other)])
    told = shark.run(
        "-r", shark.reachable(capture), "-T", "fields", "-e", "frame.protocols", "-e", "weft.format"
    )
    assert [line.split("\t") for line in told.splitlines()] == [
        ["eth:ethertype:weft_oui", "pbr"],
        ["eth:ethertype:weft_oui:ieee802a:data", "other"],
    ]
    told = shark.run(
        "-r", shark.reachable(capture), "-T", "fields", "-e", "weft.format", prefs=["weft.oui:00-12-34"]
    )
    assert told.split() == ["other", "pbr"]


def test_an_fcs_is_left_out_where_a_preference_says_so(shark, tmp_path):
    capture, bare = str(tmp_path / "fcs.pcap"), str(tmp_path / "bare.pcap")
    frames = [make_tlp.frame(i) for i in range(6)] + [
        w.build_gen2(2, 1, w.traffic_class(1), bytes(64), w.build_rh())
    ]
    write_pcap(capture, [(i, w.with_fcs(data)) for i, data in enumerate(frames)])
    write_pcap(bare, [(i, data) for i, data in enumerate(frames)])
    shown = shark.frames(capture, prefs=["weft.fcs:TRUE"])
    lines = weftshark.decoded(bare)
    weftshark.assert_equal(shown, lines)


@pytest.mark.parametrize("afh, mode", [("auto", "auto"), ("none", "ethernet"), ("lite", "lite")])
def test_malformed_is_what_a_port_drops(shark, tmp_path, afh, mode):
    capture, frames = str(tmp_path / "cuts.pcap"), test_cut_frames.cuts()
    write_pcap(capture, [(i, data) for i, data in enumerate(frames)])
    shown = hold(shark, capture, afh)
    for data, frame in zip(frames, shown, strict=True):
        is_malformed = frame.one("weft.malformed") is not None
        assert is_malformed == weftpri.is_malformed(data, mode), data.hex(" ")
        assert is_malformed == (frame.one("weft.format") is None), data.hex(" ")
        is_cut = frame.one("weft.cut") is not None
        assert is_cut == (frame.one("weft.error") is not None and not is_malformed), data.hex(" ")


def test_frames_that_were_cut_off(shark, tmp_path):
    capture = str(tmp_path / "cut.pcapng")
    frame = w.build_standard(B, A, bytes(600), w.build_rh())
    with PcapngWriter(capture) as writer:
        for kept in (13, 20, 40, 45, 60, len(frame)):
            writer.write(0, frame[:kept], len(frame))
    shown = hold(shark, capture)
    assert [frame.one("weft.malformed") for frame in shown] == [None] * 6, "the capture cut them, nobody else"
    assert shown[0].one("weft.wire_len") == str(len(frame))
