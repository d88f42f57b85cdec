"""CDATs and DOE objects, laid out from the standards alone, are the worked bytes of the page.

Structures packed here -> the bytes that docs/spec/wire-formats.md §3.13 shows.

Units: bytes; ps, MB/s.
Source: CDAT 1.03 (header, DSMAS, DSLBIS, SSLBIS); PCIe 6.0 section 6.30; CXL 3.1 section 8.1.11.
"""

import pathlib
import re
import struct

PAGE = pathlib.Path(__file__).parents[2] / "docs/spec/wire-formats.md"
READ_LATENCY, WRITE_LATENCY, READ_BANDWIDTH, WRITE_BANDWIDTH = 1, 2, 4, 5
CXL, TABLE_ACCESS = 0x1E98, 2


def worked():
    """All byte strings behind `Worked:` in §3.13."""
    section = PAGE.read_text().split("### 3.13 ")[1].split("\n---\n")[0]
    found = re.findall(r"`([0-9A-F]{2}(?: [0-9A-F]{2})+)`", section.split("Worked:")[1])
    return [bytes.fromhex(one) for one in found]


def dsmas(handle, flags, base, size):
    return struct.pack("<BBHBBHQQ", 0, 0, 24, handle, flags, 0, base, size)


def dslbis(handle, what, unit, entry):
    return struct.pack("<BBHBBBBQHHHH", 1, 0, 24, handle, 0, what, 0, unit, entry, 0, 0, 0)


def sslbis(what, unit, ways):
    head = struct.pack("<BBHB3xQ", 5, 0, 16 + 8 * len(ways), what, unit)
    return head + b"".join(struct.pack("<HHHH", 0x100, port, entry, 0) for port, entry in ways)


def header(structures, sequence=0):
    body = b"".join(structures)
    length = 16 + len(body)
    unsealed = struct.pack("<IBB6xI", length, 1, 0, sequence)
    return struct.pack("<IBB6xI", length, 1, -sum(unsealed + body) % 256, sequence)


def data_object(vendor, kind, payload):
    return struct.pack("<HBBI", vendor, kind, 0, 2 + len(payload) // 4) + payload


def test_the_page_has_these_bytes():
    device = [
        dsmas(0, 0, 0, 256 << 20),
        dslbis(0, READ_LATENCY, 1000, 150),
        dslbis(0, WRITE_LATENCY, 1000, 150),
        dslbis(0, READ_BANDWIDTH, 1, 64_000),
        dslbis(0, WRITE_BANDWIDTH, 1, 64_000),
    ]
    head = header(device)
    assert sum(head + b"".join(device)) % 256 == 0
    assert worked() == [
        data_object(CXL, TABLE_ACCESS, struct.pack("<BBH", 0, 0, 0)),
        data_object(CXL, TABLE_ACCESS, struct.pack("<BBH", 0, 0, 1) + head),
        device[1],
        sslbis(0, 1000, [(1, 100), (2, 305)]),
    ]
