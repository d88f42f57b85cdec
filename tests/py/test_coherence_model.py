"""The model of a coherent device finds what the page does not allow, and nothing in what it allows.

A conversation of two hosts with a device, whole; then each with one thing wrong.

Units: bytes.
Source: docs/spec/cxl-fabric.md "Back-invalidate".
"""

import pytest

from cxl_mem import CODEC
from cxl_message import encode_pth
from coherence_model import ANY, INVALID, SHARED, SNP_DATA, SNP_INV, Model, Wrong

GFD, A, B = 0x123, 0x0A1, 0x0A2
LINE = 0x10000000000 >> 6
ZERO, NINE = bytes(64), bytes([9]) * 64
STATE = {"meta_field": 0}


def come(host, kind, *data, **fields):
    """A frame from a host."""
    return False, CODEC.frame(CODEC.encode(kind, *data, **fields), encode_pth(host, GFD, dsar=True))


def out(host, kind, *data, **fields):
    """A frame to a host."""
    return True, CODEC.frame(CODEC.encode(kind, *data, **fields), encode_pth(GFD, host))


def exclusive(host, tag):
    """A read for the only copy."""
    return come(host, "MemRd", tag=tag, line=LINE, snp_type=SNP_INV, meta_value=ANY, **STATE)


def talk():
    """A takes the line and changes it; B takes it from A; A shares it with B."""
    return [
        exclusive(A, 1),
        out(A, "Cmp-E", tag=1),
        out(A, "MemData", ZERO, tag=1, meta_value=ANY),
        exclusive(B, 1),
        out(A, "BISnpInv", bi_tag=7, line=LINE),
        come(A, "MemWr", NINE, tag=2, line=LINE, meta_value=INVALID, **STATE),
        out(A, "Cmp", tag=2),
        come(A, "BIRspI", bi_tag=7),
        out(B, "Cmp-E", tag=1),
        out(B, "MemData", NINE, tag=1, meta_value=ANY),
        come(A, "MemRd", tag=3, line=LINE, snp_type=SNP_DATA, meta_value=SHARED, **STATE),
        out(B, "BISnpData", bi_tag=8, line=LINE),
        come(B, "BIRspS", bi_tag=8),
        out(A, "Cmp-S", tag=3),
        out(A, "MemData", NINE, tag=3, meta_value=SHARED),
        come(A, "MemClnEvct", tag=4, line=LINE, **STATE),
        out(A, "Cmp", tag=4),
    ]


def judged(frames):
    """The model's counts of a conversation."""
    model = Model()
    for is_out, data in frames:
        model.take(is_out, data)
    model.finish()
    return model.counts


def test_what_the_page_allows_is_explained():
    counts = judged(talk())
    assert (counts["lines"], counts["written"], counts["stale"], counts["for room"]) == (3, 1, 0, 0)


@pytest.mark.parametrize("left_out", [2, 4, 5, 6, 7, 8, 11, 12, 13, 16])
def test_what_is_left_out_is_missed(left_out):
    frames = talk()
    del frames[left_out]
    with pytest.raises(Wrong):
        judged(frames)


@pytest.mark.parametrize(
    "at, frame",
    [
        (9, out(B, "MemData", ZERO, tag=1, meta_value=ANY)),
        (4, out(A, "BISnpCur", bi_tag=7, line=LINE)),
        (4, out(B, "BISnpInv", bi_tag=7, line=LINE)),
        (4, out(A, "BISnpInv", bi_tag=7, line=LINE + 1)),
        (7, come(A, "BIRspE", bi_tag=7)),
        (7, come(B, "BIRspI", bi_tag=7)),
        (7, come(A, "BIRspI", bi_tag=8)),
        (13, out(A, "Cmp-E", tag=3)),
        (8, out(B, "Cmp-S", tag=1)),
        (8, out(B, "Cmp-E", tag=2)),
        (9, out(B, "MemData", NINE, tag=1, poison=1)),
    ],
)
def test_what_is_wrong_is_found(at, frame):
    frames = talk()
    frames[at] = frame
    with pytest.raises(Wrong):
        judged(frames)


@pytest.mark.parametrize("early, late", [(4, 8), (7, 8), (12, 13)])
def test_an_order_that_is_wrong_is_found(early, late):
    frames = talk()
    frames[early], frames[late] = frames[late], frames[early]
    with pytest.raises(Wrong):
        judged(frames)
