"""CXL.mem messages of the independent encoder: `weft decode` says of them what the independent decoder says.

Worked strings; pcaps/cxl_mem/link.pcap frame by frame; values of small fields; malformed and mutated frames.

Units: bytes.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.9.
"""

import os

import pytest

import make_cxl_mem as m
from cxl_mem import BIRSP, BISNP, CODEC
from cxl_message import DATA_LEN, HEAD_LEN, MASK_LEN
from cxl_message_checks import Checks
from weftlive import ROOT

KEPT = os.path.join(ROOT, "pcaps", "cxl_mem", "link.pcap")


def plain(kind):
    """A message with data where it has some, and a tag."""
    number, _ = CODEC.codes[kind]
    data = bytes(range(64)) if number in CODEC.with_data else b""
    mask = {"byte_mask": 0x8000_0000_0000_0001} if kind == CODEC.masked else {}
    tag = "bi_tag" if number in (BISNP, BIRSP) else "tag"
    return CODEC.encode(kind, data, **mask, **{tag: 0x5A})


CHECKS = Checks(m.CAPTURE, plain)


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
    assert [tlp for tlp, *_ in CHECKS.hold(tmp_path, frames)] == [
        read | near,
        read | far | {"pth": there},
        far | {"kind": "MemData", "tag": 5, "dev_load": 1, "pth": back},
        read | near | {"kind": "MemWr", "poisoned": True},
        near | {"kind": "Cmp", "tag": 5, "dev_load": 0},
        near | {"kind": "Cmp-E", "tag": 5, "dev_load": 0, "lease": "0x0102030405060708", "lease_us": 98_400},
        near | {"kind": "Cmp", "tag": 5, "dev_load": 0, "poisoned": True},
    ]


def test_the_kept_capture_is_what_is_made():
    CHECKS.kept_capture(KEPT)


def test_the_capture_has_every_opcode_in_both_forms_tagged_and_untagged():
    CHECKS.capture_is_complete(30)


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
    CHECKS.pth(tmp_path, ("MemRd", "Cmp", "BISnpInv"))


def test_what_follows_a_message_is_padding(tmp_path):
    CHECKS.padding(tmp_path)


def test_frames_cut_short_at_every_length(tmp_path):
    CHECKS.cut_short(tmp_path)


def test_unknown_classes_and_opcodes(tmp_path):
    body = bytes(HEAD_LEN - 1 + DATA_LEN + MASK_LEN)
    bep = 1 << CODEC.fields["bep"][0] - 104
    assert bep == 8
    CHECKS.unknown_opcodes(tmp_path, 30, lambda first: [bytes([first, 0, second]) + body[2:] for second in (0, bep)])


def test_bep_on_the_wrong_opcode_or_missing(tmp_path):
    wrong = [(CHECKS.with_header(plain(kind), bep=kind != CODEC.masked), pth) for kind, pth in CHECKS.each]
    CHECKS.wrong_bep(tmp_path, wrong)


def test_pbr_form_without_a_pth(tmp_path):
    CHECKS.pbr_without_pth(tmp_path)


def test_links_that_are_not_of_these_messages(tmp_path):
    CHECKS.other_links(tmp_path, "MemRd")


def test_mutated_frames_are_read_alike(tmp_path):
    CHECKS.mutations(tmp_path, 30)
