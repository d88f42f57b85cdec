"""CXL.mem messages of the independent encoder: `weft decode` says of them what the independent decoder says.

Shape: worked strings; pcaps/cxl_mem/link.pcap frame by frame; values of small fields; malformed and mutated frames.
Units: bytes.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.9.
"""

import os
import random
from collections import Counter

import pytest

import cxl_mem as c
import make_cxl_mem as m
import weftmutate
from weftlive import ROOT
from weftpcap import read_capture, write_pcap
from weftshark import decoded

KEPT = os.path.join(ROOT, "pcaps", "cxl_mem", "link.pcap")
SEED = 20_261_127
MUTATED = 2_000
LINK_LEN = 20
PTH = c.encode_pth(0x0A1, 0x123, dsar=True)
FORMS = [("hbr", None), ("pbr", PTH)]
EACH = [(kind, form, pth) for kind in c.CODES for form, pth in FORMS]


def plain(kind):
    """A message with data where it has some, and a tag."""
    data = bytes(range(64)) if c.CODES[kind][0] in c.WITH_DATA else b""
    mask = {"byte_mask": 0x8000_0000_0000_0001} if kind == c.PARTIAL else {}
    tag = "bi_tag" if c.CODES[kind][0] in (c.BISNP, c.BIRSP) else "tag"
    return c.encode(kind, data, **mask, **{tag: 0x5A})


def with_header(message, **fields):
    """A message with other values of header fields, whatever its class has."""
    head = int.from_bytes(message[: c.HEAD_LEN], "big")
    for name, value in fields.items():
        shift, width = c.FIELDS[name]
        head = head & ~(((1 << width) - 1) << shift) | value << shift
    return head.to_bytes(c.HEAD_LEN, "big") + message[c.HEAD_LEN :]


def flipped(message, mask):
    """A message with the bits of `mask` changed in its header, read as one number."""
    head = int.from_bytes(message[: c.HEAD_LEN], "big") ^ mask
    return head.to_bytes(c.HEAD_LEN, "big") + message[c.HEAD_LEN :]


def hold(tmp_path, frames):
    """Holds what `weft decode` says of frames against the independent decoder; returns what that one says."""
    capture = str(tmp_path / "frames.pcap")
    write_pcap(capture, [(0, data) for data in frames])
    lines, wanted = decoded(capture), [c.shown(data) for data in frames]
    assert len(lines) == len(frames)
    for number, (data, line, want) in enumerate(zip(frames, lines, wanted, strict=True)):
        note = f"frame {number}: {data.hex()}"
        told = line.get("tlp", {})
        if want is None:
            assert "cxl.mem" not in told.get("link", ""), note
            continue
        tlp, error, data_len, end = want
        assert bool(line.get("error")) == bool(error), (note, error, line)
        assert told == tlp, note
        if error is None:
            assert (line["payload_len"], line.get("padding_len", 0)) == (data_len, len(data) - end), note
    return wanted


def assert_all_malformed(tmp_path, frames):
    """Both sides refuse all frames."""
    assert all(error for _, error, *_ in hold(tmp_path, frames))


@pytest.mark.parametrize("name, built, want", m.worked())
def test_worked_strings(name, built, want):
    assert built == want, name


def test_worked_strings_are_read(tmp_path):
    ask, edge, answer, write, done, granted, lost = (text for _, _, text in m.worked())
    front = bytes.fromhex("020000000002 020000000001")
    answer = bytes.fromhex("88B7025746") + answer
    hbr = bytes.fromhex("88B7025746000610")
    frames = [front + data for data in (ask, edge, answer, *(hbr + one for one in (write, done, granted, lost)))]
    there = {"spid": "0a1", "dpid": "123", "pif": False, "dsar": True, "hie": False}
    back = {"spid": "123", "dpid": "0a1", "pif": False, "dsar": False, "hie": False}
    read, near, far = (
        {"kind": "MemRd", "tag": 5, "tc": 0, "to": "0x1234567ba40"},
        {"link": "hbr cxl.mem", "ld_id": 0},
        {"link": "pbr cxl.mem"},
    )
    assert [tlp for tlp, *_ in hold(tmp_path, frames)] == [
        read | near,
        read | far | {"pth": there},
        far | {"kind": "MemData", "tag": 5, "dev_load": 1, "pth": back},
        read | near | {"kind": "MemWr", "poisoned": True},
        near | {"kind": "Cmp", "tag": 5, "dev_load": 0},
        near | {"kind": "Cmp-E", "tag": 5, "dev_load": 0, "lease": "0x0102030405060708", "lease_us": 98_400},
        near | {"kind": "Cmp", "tag": 5, "dev_load": 0, "poisoned": True},
    ]


def test_the_kept_capture_is_what_is_made():
    kept = [(frame.ts_ns, frame.data) for frame in read_capture(KEPT)]
    assert kept == [(i * m.STEP_NS, m.frame(i)) for i in range(m.COUNT)]


def test_the_capture_has_every_opcode_in_both_forms_tagged_and_untagged():
    frames = [m.frame(i) for i in range(m.COUNT)]
    found = {(tlp["link"], tlp["kind"], m.is_tagged(i)) for i, (tlp, *_) in enumerate(map(c.shown, frames))}
    assert len(c.CODES) == 30 and len(found) == 30 * 2 * 2
    assert all(len(data) >= c.FRAME_MIN for data in frames)
    assert [data[12:14] == b"\x81\x00" for data in frames] == [m.is_tagged(i) for i in range(m.COUNT)]


def test_the_decoder_finds_what_was_encoded():
    for i in range(m.COUNT):
        kind, fields = m.message(i)
        made = c.encode(kind, **fields)
        assert c.decode(made) == ({"kind": kind} | fields, len(made)), i


def test_the_capture_is_read_alike(tmp_path):
    wanted = hold(tmp_path, [m.frame(i) for i in range(m.COUNT)])
    assert all(error is None for _, error, *_ in wanted)


def test_every_value_of_small_fields_is_read_alike(tmp_path):
    """Those of other classes and reserved codes, too."""
    fixed = ("class", "opcode", "bep")
    small = [name for name, (_, width) in c.FIELDS.items() if width <= 4 and name not in fixed]
    frames = [
        c.frame(with_header(plain(kind), **{name: value}), pth)
        for kind, _, pth in EACH
        for name in small
        for value in range(1 << c.FIELDS[name][1])
    ]
    assert all(error is None for _, error, *_ in hold(tmp_path, frames))


def test_each_bit_of_byte_enables_address_and_tags_is_read_alike(tmp_path):
    frames = [
        c.frame(c.encode(c.PARTIAL, bytes(64), byte_mask=1 << n), pth) for n in range(64) for _, pth in FORMS
    ]
    told = [tlp["byte_mask"] for tlp, *_ in hold(tmp_path, frames)]
    assert told[::2] == told[1::2] == [f"0x{1 << n:016x}" for n in range(64)]
    heads = [c.frame(flipped(plain(kind), 1 << bit), pth) for kind, _, pth in EACH for bit in range(96)]
    assert all(error is None for _, error, *_ in hold(tmp_path, heads))


def test_bits_that_say_nothing_are_ignored(tmp_path):
    """One at a time and all at once, in the message, the PTH and the flags of the link."""
    frames = []
    for kind, _, pth in EACH:
        made, spare = plain(kind), int.from_bytes(c.ignored_bits(kind), "big")
        masks = [0, spare, *(1 << bit for bit in range(128) if spare >> bit & 1)]
        frames += [c.frame(flipped(made, mask), pth) for mask in masks]
        frames.append(c.frame(made, pth, flags=15))
        frames += [c.frame(made, c.encode_pth(0x0A1, 0x123, dsar=True, rsv=rsv)) for rsv in range(8) if pth]
    said = {}
    for tlp, error, *_ in hold(tmp_path, frames):
        assert error is None
        assert said.setdefault((tlp["link"], tlp["kind"]), tlp) == tlp
    assert len(said) == len(EACH)


def test_the_pth_is_read_alike(tmp_path):
    bits = [(pif, dsar, hie) for pif in (0, 1) for dsar in (0, 1) for hie in (0, 1)]
    pids = [(0, 0), (0xFFF, 0xFFF), (0x123, 0), (0, 0x123), *((1 << n, 0xFFF ^ 1 << n) for n in range(12))]
    frames = [
        c.frame(plain(kind), c.encode_pth(spid, dpid, *flags))
        for kind in ("MemRd", "Cmp", "BISnpInv")
        for flags in bits
        for spid, dpid in pids
    ]
    assert all(error is None for _, error, *_ in hold(tmp_path, frames))


def test_what_follows_a_message_is_padding(tmp_path):
    made = [c.frame(plain(kind), pth, is_padded=False) for kind, _, pth in EACH]
    frames = [data + b"\xff" * size for data in made for size in (0, 1, 7, 100)]
    assert all(error is None for _, error, *_ in hold(tmp_path, frames))


def test_frames_cut_short_at_every_length(tmp_path):
    """Behind the header of a link they are malformed, within it of no link."""
    for tag in (None, (3, 0, 100)):
        made = [c.frame(plain(kind), pth, tag, is_padded=False) for kind, _, pth in EACH]
        # From the EtherType on: a shorter frame is malformed as Ethernet.
        frames = [data[:size] for data in made for size in range(14, len(data))]
        front = LINK_LEN + (4 if tag else 0)
        for data, want in zip(frames, hold(tmp_path, frames), strict=True):
            assert (want is None) == (len(data) < front), data.hex()
            assert want is None or want[1], data.hex()


def test_unknown_classes_and_opcodes(tmp_path):
    body = bytes(c.HEAD_LEN - 1 + c.DATA_LEN + c.MASK_LEN)
    unknown = [first for first in range(256) if (first >> 4, first & 15) not in c.NAMES]
    assert len(unknown) == 256 - 30
    bep = 1 << c.FIELDS["bep"][0] - 104
    assert bep == 8
    messages = [bytes([first, 0, second]) + body[2:] for first in unknown for second in (0, bep)]
    assert_all_malformed(tmp_path, [c.frame(message, pth) for message in messages for _, pth in FORMS])


def test_bep_on_the_wrong_opcode_or_missing(tmp_path):
    """However long the message is."""
    wrong = [(with_header(plain(kind), bep=kind != c.PARTIAL), pth) for kind, _, pth in EACH]
    frames = [c.frame(made.ljust(size, b"\0"), pth) for made, pth in wrong for size in (16, 80, 88, 200)]
    assert_all_malformed(tmp_path, frames)


def test_pbr_form_without_a_pth(tmp_path):
    messages = [plain(kind) for kind in c.CODES]
    frames = [c.frame(made, b"") for made in messages]
    # Of any other kind than a PTH is the first DW, and none follows it either.
    firsts = [bytes([first, 0x0A, 0x11, 0x23]) for first in (0x00, 0x01, 0x40, 0x7F, 0x80, 0x8E, 0xBF)]
    frames += [c.frame(made, first) for made in messages for first in firsts]
    assert_all_malformed(tmp_path, frames)


def test_links_that_are_not_of_these_messages(tmp_path):
    frame = c.frame(plain("MemRd"))
    changed = [
        frame[:14] + bytes.fromhex("025747") + frame[17:],
        *(frame[:19] + bytes([version << 4]) + frame[20:] for version in (0, 2, 15)),
        *(frame[:17] + bytes([high, low]) + frame[19:] for high in (0, 1, 255) for low in (0, 1, 2, 3, 4, 9)),
        *(frame[:17] + bytes([high, low]) + frame[19:] for high in (1, 5, 6, 255) for low in (5, 6)),
        frame[:12] + bytes.fromhex("8100 0064 8100 0064") + frame[12:],
        frame[:12] + bytes.fromhex("88B8") + frame[14:],
    ]
    assert hold(tmp_path, changed) == [None] * len(changed)


def mutated(rng):
    """A message's frame with one to four changes behind its addresses, most of them in message and PTH."""
    data = bytearray(m.frame(rng.randrange(m.COUNT)))
    link = 12 + (4 if data[12:14] == b"\x81\x00" else 0)
    front = link + 8
    for _ in range(rng.choice([1, 1, 2, 4])):
        if len(data) <= front:
            break
        at = rng.randrange(front, min(len(data), front + 24))
        what = rng.randrange(24)
        if what < 6:
            data[at] ^= 1 << rng.randrange(8)
        elif what < 10:
            data[at] = rng.randrange(256)
        elif what < 13:
            del data[rng.randrange(front, len(data) + 1) :]
        elif what < 15:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif what < 17:
            del data[at : at + rng.randrange(1, 9)]
        elif what < 21:  # another opcode
            at = front + (4 if data[link + 6] == c.PBR else 0)
            number, opcode = rng.choice(list(c.NAMES))
            data[at : at + 1] = bytes([number << 4 | opcode])
        elif what < 23:
            data[link + 6] = rng.choice([c.PBR, c.HBR])
        else:
            data[rng.randrange(link, front)] ^= 1 << rng.randrange(8)
    return bytes(data)


def test_mutated_frames_are_read_alike(tmp_path):
    rng = random.Random(SEED)
    frames = [mutated(rng) for _ in range(MUTATED * 9 // 10)]
    seeds = [m.frame(i) for i in range(m.COUNT)]
    frames += [weftmutate.mutated(rng, rng.choice(seeds)) for _ in range(MUTATED - len(frames))]
    assert len(frames) == MUTATED
    wanted = [want for want in hold(tmp_path, frames) if want is not None]
    kinds = Counter(tlp["kind"] for tlp, error, *_ in wanted if error is None)
    errors = sum(error is not None for _, error, *_ in wanted)
    assert len(wanted) > MUTATED * 3 // 4 and len(kinds) == 30
    assert len(wanted) / 5 < errors < len(wanted) * 4 / 5
