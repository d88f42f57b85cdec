"""CXL.cache messages of the independent encoder: `weft decode` says of them what the independent decoder says.

Worked strings; pcaps/cxl_cache/link.pcap frame by frame; values of small fields; malformed and mutated frames.

Units: bytes.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.12.
"""

import os

import pytest

import make_cxl_cache as m
from cxl_cache import CODEC
from cxl_message import DATA_LEN, HEAD_LEN, MASK_LEN
from cxl_message_checks import Checks
from weftlive import ROOT

KEPT = os.path.join(ROOT, "pcaps", "cxl_cache", "link.pcap")


def plain(kind):
    """A message with data and byte enables where it may have some, and a number."""
    data = bytes(range(64)) if CODEC.codes[kind][0] in CODEC.with_data else b""
    mask = {"byte_mask": 0x8000_0000_0000_0001} if kind == CODEC.masked else {}
    return CODEC.encode(kind, data, **mask, cache_id=5, id=0x5A)


CHECKS = Checks(m.CAPTURE, plain)


@pytest.mark.parametrize("name, built, want", m.worked())
def test_worked_strings(name, built, want):
    assert built == want, name


def test_worked_strings_are_read(tmp_path):
    ask, *others = (text for _, _, text in m.worked())
    front, hbr = bytes.fromhex("020000000002 020000000001"), bytes.fromhex("88B7025746000810")
    frames = [front + data for data in (ask, *(hbr + one for one in others))]
    near, line = {"link": "hbr cxl.cache", "cache_id": 5}, {"to": "0x1234567ba40"}
    lease = {"lease": "0x0102030405060708", "lease_us": 98_400}
    assert [tlp for tlp, *_ in CHECKS.hold(tmp_path, frames)] == [
        near | line | {"kind": "RdOwn", "cqid": 0x123},
        near | lease | {"kind": "GO", "cqid": 0x123, "state": "E"},
        near | lease | {"kind": "H2D Data", "cqid": 0x123},
        near | line | {"kind": "SnpInv", "uqid": 7},
        near | line | {"kind": "RspIFwdM", "cache_id": 0, "uqid": 7},
    ]


def test_the_kept_capture_is_what_is_made():
    CHECKS.kept_capture(KEPT)


def test_the_capture_has_every_opcode_in_both_forms_tagged_and_untagged():
    CHECKS.capture_is_complete(34)


def test_the_decoder_finds_what_was_encoded():
    CHECKS.decoder_finds_what_was_encoded()


def test_the_capture_is_read_alike(tmp_path):
    CHECKS.capture_alike(tmp_path)


def test_every_value_of_small_fields_is_read_alike(tmp_path):
    CHECKS.small_fields(tmp_path)


def test_each_bit_of_byte_enables_address_and_tags_is_read_alike(tmp_path):
    CHECKS.each_bit(tmp_path)


def test_bits_that_say_nothing_are_ignored(tmp_path):
    CHECKS.ignored_bits(tmp_path)


def test_the_pth_is_read_alike(tmp_path):
    CHECKS.pth(tmp_path, ("RdOwn", "GO", "SnpInv"))


def test_what_follows_a_message_is_padding(tmp_path):
    CHECKS.padding(tmp_path)


def test_frames_cut_short_at_every_length(tmp_path):
    CHECKS.cut_short(tmp_path)


def test_unknown_classes_and_opcodes(tmp_path):
    body = bytes(HEAD_LEN - 1 + DATA_LEN + MASK_LEN)
    bep = 1 << CODEC.fields["bep"][0] - 112
    assert bep == 8
    CHECKS.unknown_opcodes(tmp_path, 34, lambda first: [bytes([first, second]) + body[1:] for second in (0, bep)])


def test_bep_on_the_wrong_opcode(tmp_path):
    wrong = [(CHECKS.with_header(plain(kind), bep=1), pth) for kind, pth in CHECKS.each if kind != CODEC.masked]
    CHECKS.wrong_bep(tmp_path, wrong)


def test_pbr_form_without_a_pth(tmp_path):
    CHECKS.pbr_without_pth(tmp_path)


def test_links_that_are_not_of_these_messages(tmp_path):
    CHECKS.other_links(tmp_path, "RdOwn")


def test_mutated_frames_are_read_alike(tmp_path):
    CHECKS.mutations(tmp_path, 34)
