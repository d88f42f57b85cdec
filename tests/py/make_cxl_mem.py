#!/usr/bin/env python3
"""Makes pcaps/cxl_mem/link.pcap: CXL.mem messages on links, from docs/spec/wire-formats.md §3.9 alone.

CAPTURE, a `cxl_message_capture.Capture`; the page's worked strings.

Units: bytes.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.9.
"""

import sys

from cxl_mem import CODEC
from cxl_message import encode_pth, link_header
from cxl_message_capture import Capture, from_page

CAPTURE = Capture(CODEC, tag_step=1)


def worked():
    """(name, built, copied from the page); `[data]` stands for the 64 bytes that the page does not give."""
    none = {"meta_field": 3}
    line, data = 0x0123_4567_BA40 >> 6, bytes(range(64))
    read = CODEC.encode("MemRd", tag=5, line=line, **none)
    answer = CODEC.encode("MemData", data, tag=5, dev_load=1, **none)
    there = encode_pth(0x0A1, 0x123, dsar=True)
    back = encode_pth(0x123, 0x0A1)
    ask, told = "11 18 00 00 00 05 00 00 00 00 01 23 45 67 BA 40", "40 18 10 00 00 05" + " 00" * 10
    page = [
        ("MemRd", link_header(CODEC.hbr) + read, "88 B7 02 57 46 00 06 10" + ask),
        ("behind the edge", link_header(CODEC.pbr) + there + read, "88 B7 02 57 46 00 05 10 C2 0A 11 23" + ask),
        ("answer", (link_header(CODEC.pbr) + back + answer)[5:], "00 05 10 C0 12 30 A1" + told + "[data]"),
        (
            "MemWr, poisoned",
            CODEC.encode("MemWr", data, poison=1, tag=5, line=line, **none),
            "21 19 00 00 00 05 00 00 00 00 01 23 45 67 BA 40 [data]",
        ),
        ("its answer", CODEC.encode("Cmp", tag=5, **none), "30 18 00 00 00 05 00 00" + " 00" * 8),
        (
            "Cmp-E with a lease",
            CODEC.encode("Cmp-E", tag=5, term=984, lease=0x0102_0304_0506_0708),
            "32 00 00 00 00 05 03 D8 01 02 03 04 05 06 07 08",
        ),
        ("not written", CODEC.encode("Cmp", tag=5, poison=1, **none), "30 19 00 00 00 05 00 00" + " 00" * 8),
    ]
    return from_page(page, data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_cxl_mem.py OUT.pcap")
    CAPTURE.write(sys.argv[1])
