"""Tests of CCI layouts: every worked byte string of the page both ways, all sizes it names, lengths and reserved bits.

Tables of cases, name first.

Units: bytes.
Source: docs/spec/wire-formats.md §3.8 (partner information), §4.1 to §4.7, §5.1, §5.2.
"""

import random

import pytest

import cci
import cci_gae
import cci_gfd
import cci_switch
from cci import COMMANDS, CciError, Layout, Message
from ccilayout import Many, Number

UUID_10 = bytes(range(0x10, 0x20))
FAST_4_WAY = {"valid": 1, "gim": 0, "interleave": 2, "granularity": 4, "dpid": 0x040}
GIM_DIRECT = {"valid": 1, "gim": 1, "interleave": 0, "granularity": 0, "dpid": 0x123}

# name, tag, opcode, values of the request, bytes of the page
REQUESTS = [
    ("Identify PBR Switch", 1, 0x5700, {}, "00 01 00 00 57 00 00 00 00 00 00 00"),
    (
        "Claim Ownership",
        4,
        0x0701,
        {"op": 0, "fm_pid": 1, "fm_uuid": UUID_10, "assigned_pid": 0x010},
        "00 04 00 01 07 15 00 00 00 00 00 00 00 01 00 10 11 12 13 14 15 16 17 18 19 1A 1B 1C 1D 1E 1F 10 00",
    ),
    (
        "assign PID 010",
        2,
        0x5704,
        {"op": 0, "num": 1, "list": [{"pid": 0x010, "target": 1, "instance": 0}]},
        "00 02 00 04 57 09 00 00 00 00 00 00 00 00 01 00 10 00 01 00 00",
    ),
    (
        "Set DRT, PID 123 to port 5",
        3,
        0x5709,
        {"idx": 0, "num": 1, "start": 0x123, "list": [{"type": 1, "value": 5}]},
        "00 03 00 09 57 08 00 00 00 00 00 00 00 00 01 00 23 01 01 05",
    ),
    (
        "Set FAST Segment",
        5,
        0x5806,
        {"vppb": 0, "count": 1, "start": 2, "list": [FAST_4_WAY]},
        "00 05 00 06 58 0E 00 00 00 00 00 00 00 00 01 00 02 00 01 02 04 00 40 00 00 00",
    ),
]


@pytest.mark.parametrize(("name", "tag", "opcode", "values", "data"), REQUESTS, ids=[r[0] for r in REQUESTS])
def test_worked_requests(name, tag, opcode, values, data):
    row = COMMANDS[opcode]
    built = Message(opcode, row.request.encode(**values), tag).encode()
    assert built == bytes.fromhex(data), name
    read = Message.decode(built)
    assert (read.opcode, read.tag, read.category) == (opcode, tag, cci.REQUEST)
    assert row.request.decode(read.payload) == values, name


RESPONSES = [
    ("success of 5704", 0, "01 02 00 04 57 00 00 00 00 00 00 00"),
    ("Invalid Input of 5704", 2, "01 02 00 04 57 00 00 00 02 00 00 00"),
]


@pytest.mark.parametrize(("name", "code", "data"), RESPONSES, ids=[r[0] for r in RESPONSES])
def test_worked_responses(name, code, data):
    want = Message(0x5704, b"", 2, cci.RESPONSE, code)
    assert want.encode() == bytes.fromhex(data), name
    assert Message.decode(bytes.fromhex(data)) == want, name


def test_worked_fast_entries_and_lookup():
    assert cci_gae.FAST_ENTRY.encode(**FAST_4_WAY).hex(" ") == "01 02 04 00 40 00 00 00"
    assert cci_gae.FAST_ENTRY.encode(**GIM_DIRECT).hex(" ") == "03 00 00 00 23 01 00 00"
    assert cci_gae.FAST_ENTRY.decode(bytes.fromhex("03 00 00 00 23 01 00 00")) == GIM_DIRECT
    hpa, shift, base = 0x0123_4567_BA40, 36, 0x0100_0000_0000
    assert hpa >> shift == 0x12 and (hpa >> shift) - (base >> shift) == 2
    assert FAST_4_WAY["dpid"] + (hpa >> 8 + FAST_4_WAY["granularity"] & 3) == 0x043


def test_worked_decoder_of_a_gfd():
    entry = {
        "valid": 1,
        "hpa_base": 0x0120_0000_0000,
        "dpa_base": 0x4000_0000,
        "dpa_length": 0x1_0000_0000,
        "interleave": 2,
        "granularity": 4,
        "way": 3,
    }
    assert cci_gfd.dpa_of(entry, 0x0123_4567_BA40) == 0x1_1159_EA40
    assert cci_gfd.hpa_of(entry, 0x1_1159_EA40) == 0x0123_4567_BA40
    assert cci_gfd.dpa_of(dict(entry, dpa_length=0xD159_EA40), 0x0123_4567_BA40) is None
    assert cci_gfd.dpa_of(dict(entry, dpa_length=0xD159_EA41), 0x0123_4567_BA40) == 0x1_1159_EA40
    assert cci_gfd.dpa_of(entry, 0x011F_FFFF_FFFF) is None
    assert cci_gfd.dpa_of(dict(entry, valid=0), 0x0123_4567_BA40) is None


# opcode, side, bytes
SIZES = [
    (0x0700, "response", 38),
    (0x0701, "request", 21),
    (0x0701, "response", 36),
    (0x4900, "response", 0x94),
    (0x4901, "response", 0x0B),
    (0x490E, "response", 7),
    (0x490F, "request", 7),
    (0x5100, "response", 73),
    (0x5705, "response", 0x18),
    (0x5706, "request", 0x1C),
    (0x5902, "request", 0x18),
    (0x0107, "request", 0x28),
    (0x0108, "request", 0x20),
    (0x0109, "response", 8),
    (0x010A, "request", 8),
    (0x570C, "response", 0x1A),
    (0x5804, "request", 0x14),
    (0x5809, "request", 0x16),
]
ITEMS = [
    ("port state", cci_switch.PORT_STATE, 16),
    ("link partner", cci_switch.PARTNER, 0x36),
    ("PID target", cci_switch.PID_TARGET, 8),
    ("assignment", cci_switch.ASSIGNMENT, 5),
    ("DRT", cci_switch.DRT_ENTRY, 2),
    ("RGT", cci_switch.RGT_ENTRY, 12),
    ("LDST", cci_switch.LDST_ENTRY, 8),
    ("re-router", cci_switch.REROUTER, 5),
    ("FAST", cci_gae.FAST_ENTRY, 8),
    ("region", cci_gfd.REGION, 0x28),
    ("DMP", cci_gfd.DMP, 0x28),
    ("extent", cci_gfd.EXTENT, 40),
    ("GDT", cci_gfd.GDT_ENTRY, 0x20),
    ("tag", cci_gfd.TAG_ENTRY, 20),
]
# opcode, side, bytes before (4902: around) its list
LISTS_AT = [
    (0x0702, "response", 0x10),
    (0x4902, "response", 4 + 16),
    (0x4904, "response", 0x18),
    (0x4905, "response", 4),
    (0x4906, "request", 4),
    (0x4907, "request", 0x24),
    (0x4907, "response", 0x18),
    (0x4908, "request", 0x24),
    (0x490B, "response", 12),
    (0x490C, "response", 6),
    (0x490D, "request", 2),
    (0x4913, "response", 8),
    (0x4914, "request", 6),
    (0x5101, "response", 4),
    (0x5300, "request", 4),
    (0x5300, "response", 4),
    (0x5701, "request", 6),
    (0x5701, "response", 4),
    (0x5702, "response", 4),
    (0x5703, "response", 4),
    (0x5704, "request", 4),
    (0x5708, "response", 8),
    (0x5709, "request", 6),
    (0x570B, "request", 6),
    (0x570E, "response", 4),
    (0x570F, "request", 6),
    (0x5711, "request", 8),
    (0x5713, "request", 6),
    (0x5714, "response", 4),
    (0x5800, "response", 8),
    (0x5803, "response", 0x1A),
    (0x5806, "request", 6),
    (0x5808, "request", 8),
]


def test_sizes_the_page_names():
    for opcode, side, size in SIZES:
        assert getattr(COMMANDS[opcode], side).size == size, f"{opcode:04x} {side}"
    for name, layout, size in ITEMS:
        assert layout.size == size, name
    for opcode, side, at in LISTS_AT:
        assert len(getattr(COMMANDS[opcode], side).encode()) == at, f"{opcode:04x} {side}"


# name, opcode, side, values, offset, bytes there
OFFSETS = [
    ("Claim's assigned PID", 0x0701, "request", {"assigned_pid": 0xABC}, 0x13, "bc 0a"),
    ("secondary PID", 0x0700, "response", {"secondary_pid": 0xABC}, 0x14, "bc 0a"),
    ("CDAT count", 0x0702, "request", {"count": 0x55}, 0x0C, "55"),
    ("capacity", 0x4900, "response", {"capacity": 0x5566}, 0x0C, "66 55"),
    ("region masks", 0x4900, "response", {"region_blocks7": 2}, 0x4C, "02"),
    ("DMP masks", 0x4900, "response", {"dmp_blocks0": 0x77}, 0x54, "77"),
    ("volatile", 0x4900, "response", {"volatile": 0x99}, 0x74, "99"),
    ("persistent", 0x4900, "response", {"persistent": 0x77}, 0x8C, "77"),
    ("modes", 0x5700, "response", {"ca": 1, "vendor": 2}, 0x0B, "82"),
    ("crawl by PID", 0x5701, "request", {"target": 0xFFF, "type": 1}, 0, "ff 0f 01 00"),
    ("RGT association", 0x5708, "response", {"rgt": 9}, 6, "09 00"),
    ("LDST base", 0x570C, "response", {"base": 0x1122}, 0x0A, "22 11"),
    ("LDST limit", 0x570D, "request", {"limit": 0x1122}, 0x0A, "22 11"),
    ("LAV count", 0x5714, "request", {"start": 0, "num": 512}, 4, "00 02"),
    ("access vectors count", 0x5802, "request", {"num": 1024}, 4, "00 04"),
    ("clear on read", 0x5801, "request", {"clear": 1}, 8, "01"),
    ("access operation", 0x5902, "request", {"pid": 0x123, "op": 4}, 2, "23 41"),
    ("LDST access", 0x5716, "request", {"pid": 0xFFE, "op": 1}, 2, "fe 1f"),
    ("proxy response", 0x5809, "request", {"response": 0x77, "response_max": 0x88}, 0x0C, "77" + "00" * 7 + "88"),
    ("GAE support", 0x5800, "response", {"pids_max": 0x123, "gim": 1}, 0, "23 41"),
    ("FAST base", 0x5803, "response", {"base": 0x1122}, 0x0A, "22 11"),
    ("GAM head", 0x0109, "response", {"valid": 1, "address_32": 0x1000 >> 5, "head": 7}, 0, "01 10" + "00" * 5 + "07"),
    ("notification flags", 0x0107, "request", {"opcode_valid": 1, "handle": 0x42}, 0x1C, "20 00 42 00"),
    ("PPB register", 0x5103, "request", {"reg": 0x12, "ext_reg": 1, "first_be": 15, "write": 1}, 1, "12 f1 80"),
    ("DC Add", 0x4907, "request", {"policy": 2, "region": 1, "length": 0x55}, 2, "02 01 55"),
    ("DC Release sanitizes", 0x4908, "request", {"policy": 1, "sanitize": 1}, 2, "21 00"),
]


@pytest.mark.parametrize(("name", "opcode", "side", "values", "at", "data"), OFFSETS, ids=[r[0] for r in OFFSETS])
def test_fields_stand_where_the_page_puts_them(name, opcode, side, values, at, data):
    layout = getattr(COMMANDS[opcode], side)
    want = bytes.fromhex(data.replace(" ", ""))
    built = layout.encode(**values)
    assert built[at : at + len(want)] == want, name
    assert sum(built) == sum(want), f"{name}: bytes elsewhere"
    assert {k: layout.decode(built)[k] for k in values} == values, name


def test_entries_have_the_bits_of_the_page():
    rgt = {"ports": bytes(range(8)), "valid_max": 3, "primary_max": 1, "mode": 2, "mix": 7}
    assert cci_switch.RGT_ENTRY.encode(**rgt).hex(" ") == "00 01 02 03 04 05 06 07 0b 3a 00 00"
    ldst = {"valid": 1, "segment": 1, "interleave": 8, "granularity": 6, "dpid": 0xABC}
    assert cci_switch.LDST_ENTRY.encode(**ldst).hex(" ") == "03 08 06 00 bc 0a 00 00"
    rerouter = {"dpid": 0x123, "segment_enable": 1, "segment": 4, "bus": 5, "function": 2, "device": 31}
    assert cci_switch.REROUTER.encode(**rerouter).hex(" ") == "23 11 04 05 fa"
    dmp = {"base": 0, "decode_length": 0, "length": 0, "block": 0, "non_volatile": 1, "read_only": 1, "index": 3}
    assert cci_gfd.DMP.encode(**dmp)[32:].hex(" ") == "44 03 00 00 00 00 00 00"
    partner = {"port": 1, "far_port": 2, "pid": 0x345, "type": 1}
    assert cci_switch.PARTNER.encode(**partner)[:4].hex(" ") == "01 02 45 13"


def random_values(layout, rng):
    """Values that the layout can carry."""
    values = {}
    for field in layout.fields:
        if isinstance(field, Number):
            values.update({name: rng.getrandbits(width) for name, _, width in field.parts})
        elif isinstance(field, Many):
            count = rng.randrange(4)
            if field.item is None:
                values[field.name] = rng.randbytes(count)
            elif isinstance(field.item, Layout):
                values[field.name] = [random_values(field.item, rng) for _ in range(count)]
            else:
                values[field.name] = [rng.getrandbits(8 * field.item) for _ in range(count)]
            if field.count:
                values[field.count] = count
        else:
            values[field.name] = rng.randbytes(field.size)
    return values


@pytest.mark.parametrize("opcode", COMMANDS, ids=[f"{opcode:04x}" for opcode in COMMANDS])
def test_every_layout_reads_what_it_wrote_and_no_other_length(opcode):
    rng = random.Random(opcode)
    for layout in (COMMANDS[opcode].request, COMMANDS[opcode].response):
        open_end = any(isinstance(field, Many) and not field.count for field in layout.fields)
        for _ in range(20):
            values = random_values(layout, rng)
            data = layout.encode(**values)
            assert layout.decode(data) == values
            if not open_end:
                with pytest.raises(CciError):
                    layout.decode(data + b"\0")
                for short in range(len(data)):
                    with pytest.raises(CciError):
                        layout.decode(data[:short])


# name, layout, bytes with one reserved bit set
RESERVED = [
    ("header byte 0", cci.HEADER, "10 01 00 00 57 00 00 00 00 00 00 00"),
    ("header byte 2", cci.HEADER, "00 01 01 00 57 00 00 00 00 00 00 00"),
    ("header length 22:21", cci.HEADER, "00 01 00 00 57 00 00 20 00 00 00 00"),
    ("PID 15:12", COMMANDS[0x5704].request, "00 00 01 00 10 10 01 00 00"),
    ("operation 7:3", COMMANDS[0x5704].request, "08 00 01 00 10 00 01 00 00"),
    ("DRT 7:2", cci_switch.DRT_ENTRY, "05 05"),
    ("FAST byte 3", cci_gae.FAST_ENTRY, "01 00 00 01 23 01 00 00"),
    ("FAST 7:2", cci_gae.FAST_ENTRY, "04 00 00 00 23 01 00 00"),
    ("GAM bits 4:2", COMMANDS[0x0109].response, "05 00 00 00 00 00 00 00"),
    ("notification flag 4 to a host", cci_gae.NOTIFICATION_HOST, "00" * 4 + "10" + "00" * 27),
]


@pytest.mark.parametrize(("name", "layout", "data"), RESERVED, ids=[r[0] for r in RESERVED])
def test_reserved_bits_are_refused(name, layout, data):
    with pytest.raises(CciError, match="reserved"):
        layout.decode(bytes.fromhex(data))


def test_header_carries_the_background_bit_and_21_bits_of_length():
    built = Message(0x5201, b"\0" * 0x234, 9, cci.RESPONSE, 1, background=1, vendor_status=0xBEEF).encode()
    assert built[:12].hex(" ") == "01 09 00 01 52 34 02 80 01 00 ef be"
    assert Message.decode(built).background == 1
    for data in (built[:-1], built + b"\0", built[:11], b""):
        with pytest.raises(CciError):
            Message.decode(data)
    with pytest.raises(CciError):
        Message(0, bytes(1 << 21)).encode()
    with pytest.raises(CciError, match="category"):
        Message.decode(b"\x03" + bytes(11))


def test_return_codes_have_the_numbers_of_the_page():
    names = {0: "Success", 0xA: "FW auth", 0x10: "Poison limit", 0x16: "Invalid payload length"}
    assert {code: cci.code_name(code) for code in names} == names
    assert cci.code_name(cci.EXHAUSTED) == "Resources Exhausted" and len(cci.RETURN_CODES) == 0x21


def test_values_that_do_not_fit_are_refused():
    with pytest.raises(CciError, match="fit"):
        COMMANDS[0x5704].request.encode(op=8)
    with pytest.raises(CciError, match="no such"):
        COMMANDS[0x5700].request.encode(op=0)
    with pytest.raises(CciError, match="bytes"):
        COMMANDS[0x4909].request.encode(tag=b"short")
    assert COMMANDS[0x5704].request.encode(num=9).hex() == "00000900", "a wrong count can be sent"


def test_vcs_info_has_the_vppbs_that_were_asked_for():
    data = bytes.fromhex("00 01 02 03 02 05 00 00 00 ff ff 00 01 01 03 01".replace(" ", ""))
    got = cci_switch.decode_vcs_info(data, 1, 2)
    assert [(row["vcs"], row["vppbs"], len(row["bindings"])) for row in got] == [(0, 3, 2), (1, 1, 0)]
    assert got[0]["bindings"][0] == {"status": 2, "port": 5, "ld": 0}
    for wrong in (data[:-1], data[:-5], data + b"\0"):
        with pytest.raises(CciError):
            cci_switch.decode_vcs_info(wrong, 1, 2)
    assert cci_switch.bits_of(bytes([0b101, 0, 0x80])) == [0, 2, 23]


def test_a_frame_counts_what_follows_its_length():
    message = Message(0x5700, b"", 1).encode()
    data = cci.frame(cci.MCTP_FM_API, message)
    assert data.hex(" ") == "0d 00 07 00 01 00 00 57 00 00 00 00 00 00 00"
    assert cci.unframe(data + b"\x01") == (7, message, b"\x01")
    assert all(cci.unframe(data[:short]) is None for short in range(len(data)))
    for wrong in (b"\x0c\x00\x07" + bytes(11), b"\x00\x00", data[:2] + b"\x09" + data[3:]):
        with pytest.raises(CciError):
            cci.unframe(wrong)
    with pytest.raises(CciError):
        cci.frame(7, bytes(0xFFFF))
