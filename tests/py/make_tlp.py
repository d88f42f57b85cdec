#!/usr/bin/env python3
"""Makes pcaps/tlp/link.pcap: TLPs on Ethernet links, built with scapy from docs/spec/wire-formats.md §3 alone.

Frame i of 96 has fields that follow from i as `fields` says; tests/tests/fabric/tlp_link.rs reads them back.

Units: frames without FCS, padded to 60 bytes.
Source: docs/spec/wire-formats.md §3.1, §3.5, §3.6, §3.7, §3.7a.
"""

import sys

from scapy.fields import BitField, ByteField, IntField, LongField, ShortField, XBitField
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

COUNT = 96
OUI = 0x025746
ETHER_TYPE = 0x88B7
PBR, HBR_FLIT, HBR_NON_FLIT = 1, 2, 3


class TlpLink(Packet):
    """3.7a, from behind the EtherType."""

    fields_desc = [
        XBitField("oui", OUI, 24),
        ShortField("protocol", PBR),
        BitField("version", 1, 4),
        BitField("flags", 0, 4),
    ]


class Pth(Packet):
    """3.7."""

    fields_desc = [
        BitField("first", 3, 2),
        BitField("rsv", 0, 3),
        BitField("hie", 0, 1),
        BitField("dsar", 0, 1),
        BitField("pif", 0, 1),
        XBitField("spid", 0, 12),
        XBitField("dpid", 0, 12),
    ]


class FlitMem64(Packet):
    """3.5: a memory or UIO request with 64-bit address."""

    fields_desc = [
        ByteField("type", 0x22),
        BitField("tc", 0, 3),
        BitField("ohc", 0, 5),
        BitField("ts", 0, 3),
        BitField("attr", 0, 3),
        BitField("length", 0, 10),
        ShortField("requester", 0),
        BitField("ep", 0, 1),
        BitField("rsv", 0, 1),
        BitField("tag", 0, 14),
        BitField("addr", 0, 62),
        BitField("at", 0, 2),
    ]


class OhcA1(Packet):
    """3.5: byte enables and PASID."""

    fields_desc = [
        BitField("nw", 0, 1),
        BitField("pv", 0, 1),
        BitField("pmr", 0, 1),
        BitField("er", 0, 1),
        BitField("pasid", 0, 20),
        BitField("last_be", 0, 4),
        BitField("first_be", 0, 4),
    ]


class NonFlitMem64(Packet):
    """3.1: a memory request with 4 DW."""

    fields_desc = [
        BitField("fmt", 1, 3),
        BitField("type", 0, 5),
        BitField("t9", 0, 1),
        BitField("tc", 0, 3),
        BitField("t8", 0, 1),
        BitField("attr2", 0, 1),
        BitField("ln", 0, 1),
        BitField("th", 0, 1),
        BitField("td", 0, 1),
        BitField("ep", 0, 1),
        BitField("attr", 0, 2),
        BitField("at", 0, 2),
        BitField("length", 0, 10),
        ShortField("requester", 0),
        ByteField("tag", 0),
        BitField("last_be", 0xF, 4),
        BitField("first_be", 0xF, 4),
        LongField("addr", 0),
    ]


class VendPrefixL0(Packet):
    """3.2, LD-ID form."""

    fields_desc = [ByteField("first", 0x8E), ShortField("ld_id", 0), ByteField("rsv", 0)]


class Dw(Packet):
    """One DW."""

    fields_desc = [IntField("value", 0)]


def fields(i):
    """What frame i says; the same formulas stand in the Rust test."""
    return {
        "tc": i % 8,
        "attr": i // 3 % 8,
        "requester": i * 0x0101 & 0xFFFF,
        "tag": i * 37 % 1024,
        "length": 2 + i % 14,
        "addr": (0x1_0000_0000 + i * 4096 + i % 5 * 4) & ~3,
        "spid": i * 41 % 4095,
        "dpid": i * 89 % 4095,
        "pasid": i * 10_007 % (1 << 20),
    }


def flit(i, uio):
    """A flit-mode read, or write of `length` DWs of i; every second with OHC-A1."""
    f, write, ohc = fields(i), i // 3 % 2, i // 6 % 2
    kind = (0x22, 0x61) if uio else (0x20, 0x60)
    head = FlitMem64(
        type=kind[write],
        tc=f["tc"],
        ohc=ohc,
        attr=0 if uio else f["attr"],
        length=f["length"],
        requester=f["requester"],
        tag=f["tag"],
        addr=f["addr"] >> 2,
    )
    a1 = OhcA1(pv=1, pasid=f["pasid"], last_be=0x7, first_be=0xE)
    return bytes(head) + (bytes(a1) if ohc else b"") + bytes([i]) * (4 * f["length"] * write)


def non_flit(i):
    """A non-flit read or write, with a local prefix before every second one."""
    f, write, prefix = fields(i), i // 3 % 2, i // 6 % 2
    head = NonFlitMem64(
        fmt=3 if write else 1,
        t9=f["tag"] >> 9,
        tc=f["tc"],
        t8=f["tag"] >> 8 & 1,
        attr2=f["attr"] >> 2,
        attr=f["attr"] & 3,
        ln=i % 2,
        length=f["length"],
        requester=f["requester"],
        tag=f["tag"] & 0xFF,
        addr=f["addr"],
    )
    front = bytes(VendPrefixL0(ld_id=i)) if prefix else b""
    return front + bytes(head) + bytes([i]) * (4 * f["length"] * write)


def tlp(i):
    """(protocol, bytes) of frame i."""
    f = fields(i)
    if i % 3 == 0:
        pth = Pth(pif=i & 1, dsar=i >> 1 & 1, hie=i >> 2 & 1, spid=f["spid"], dpid=f["dpid"])
        nop = bytes(Dw()) if i % 9 == 0 else b""
        return PBR, nop + bytes(pth) + flit(i, uio=True)
    return (HBR_FLIT, flit(i, uio=False)) if i % 3 == 1 else (HBR_NON_FLIT, non_flit(i))


def frame(i):
    """Frame i, every fourth with a tag."""
    protocol, data = tlp(i)
    ether = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01", type=ETHER_TYPE)
    if i % 4 == 0:
        ether = ether.copy()
        ether.type = 0x8100
        ether = ether / Dot1Q(prio=i % 8, vlan=100, type=ETHER_TYPE)
    made = bytes(ether / TlpLink(protocol=protocol) / Raw(data))
    return made + bytes(max(0, 60 - len(made)))


def worked():
    """(name, built, copied from the page) of what these layers can say."""
    uio = FlitMem64(type=0x22, length=16, requester=0x0100, tag=5, addr=0x123_4567_BA40 >> 2)
    read = NonFlitMem64(ln=1, length=16, requester=0x0100, tag=0x21, addr=0x1_2345_6780)
    pth = Pth(pif=1, spid=0x0A1, dpid=0x123)
    link = TlpLink(protocol=PBR)
    head = ETHER_TYPE.to_bytes(2, "big") + bytes(link)
    text = "22 00 00 10 01 00 00 05 00 00 01 23 45 67 BA 40"
    return [
        ("UIOMRd", bytes(uio), text),
        ("LN Read", bytes(read), "20 02 00 10 01 00 21 FF 00 00 00 01 23 45 67 80"),
        ("PTH", bytes(Pth(pif=1, dsar=1, spid=0x0A1, dpid=0x123)), "C3 0A 11 23"),
        ("PTH Hie", bytes(Pth(hie=1, spid=0x0A1, dpid=0x123)), "C4 0A 11 23"),
        ("PTH none", bytes(Pth(spid=0xFFF, dpid=0xFFF)), "C0 FF FF FF"),
        ("LD 3", bytes(VendPrefixL0(ld_id=3)), "8E 00 03 00"),
        ("FMLD", bytes(VendPrefixL0(ld_id=0xFFFF)), "8E FF FF 00"),
        ("PASID", bytes(OhcA1(pv=1, pasid=0x12345, first_be=15)), "41 23 45 0F"),
        ("link", head + bytes(pth) + bytes(uio), "88 B7 02 57 46 00 01 10 C1 0A 11 23" + text),
    ]


def main(path):
    """Writes the capture."""
    frames = [Ether(frame(i)) for i in range(COUNT)]
    for i, packet in enumerate(frames):
        packet.time = i / 1000
    wrpcap(path, frames, nano=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_tlp.py OUT.pcap")
    main(sys.argv[1])
