#!/usr/bin/env python3
"""Makes pcaps/cxl_cache/link.pcap: CXL.cache messages on links, from docs/spec/wire-formats.md §3.12 alone.

CAPTURE, a `cxl_message_capture.Capture`; the page's worked strings.

Units: bytes.
Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.12.
"""

import sys

from cxl_cache import CODEC
from cxl_message import link_header
from cxl_message_capture import Capture, from_page

CAPTURE = Capture(CODEC, tag_step=2)


def worked():
    """(name, built, copied from the page); `[data]` stands for the 64 bytes that the page does not give."""
    line, data = 0x0123_4567_BA40 >> 6, bytes(range(64))
    own = {"cache_id": 5, "id": 0x123}
    lease = {"term": 984, "lease": 0x0102_0304_0506_0708}
    page = [
        (
            "RdOwn",
            link_header(CODEC.hbr) + CODEC.encode("RdOwn", line=line, **own),
            "88 B7 02 57 46 00 08 10 22 00 51 23 00 00 00 00 00 00 01 23 45 67 BA 40",
        ),
        (
            "GO-E with a lease",
            CODEC.encode("GO", rsp_data=2, **own, **lease),
            "A4 00 51 23 00 02 03 D8 01 02 03 04 05 06 07 08",
        ),
        (
            "its data",
            CODEC.encode("H2D Data", data, **own, **lease),
            "C0 00 51 23 00 00 03 D8 01 02 03 04 05 06 07 08 [data]",
        ),
        (
            "SnpInv",
            CODEC.encode("SnpInv", cache_id=5, id=7, line=line),
            "82 00 50 07 00 00 00 00 00 00 01 23 45 67 BA 40",
        ),
        (
            "RspIFwdM of the device",
            CODEC.encode("RspIFwdM", id=7, line=line),
            "4F 00 00 07 00 00 00 00 00 00 01 23 45 67 BA 40",
        ),
    ]
    return from_page(page, data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_cxl_cache.py OUT.pcap")
    CAPTURE.write(sys.argv[1])
