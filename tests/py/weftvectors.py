"""The worked byte strings of docs/spec/wire-formats.md §1 and §2, next to what the builders make.

VECTORS is a list of (name, built bytes, hexadecimal text copied from the document).

Units: bytes in transmission order; "FCS" vectors hold four bytes in wire order.
Source: docs/spec/wire-formats.md §1.2 to §1.7, §2.1 to §2.4.
"""

import weftbuild as w

PAYLOAD = bytes(range(0x40))
A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
RH1 = w.build_rh(fack=1, ts=0x1234, p_key=0x5A, len_syn=w.rh_length(64), psn=0x0AB, dest_qp=0x123)
RH2 = w.build_rh(opcode=1, ts=0x1234, p_key=0x5A, len_syn=0x1F, psn=0x0AB, dest_qp=0x045)
TAG = w.build_vlan(pcp=3, vid=100)
STANDARD = {"tos": 0x21, "sport": 0xC000, "ident": 1}

STD = w.build_standard(B, A, PAYLOAD, RH1, icrc=True, **STANDARD)
STD_VLAN = w.build_standard(B, A, PAYLOAD, RH1, icrc=True, vlan=TAG, **STANDARD)
STD_BARE = w.build_standard(B, A, PAYLOAD, RH1, **STANDARD)
GEN1 = w.build_gen1(B, A, w.traffic_class(1), PAYLOAD, RH1)
GEN1_VLAN = w.build_gen1(B, A, w.traffic_class(1), PAYLOAD, RH1, vlan=TAG)
GEN2_REQ = {"hi": 0xA1A2A3, "lo": 0xB1B2B3}
GEN2 = w.build_gen2(2, 1, w.traffic_class(1), PAYLOAD, RH1, **GEN2_REQ)
GEN2_DOC = w.build_gen2(2, 1, w.traffic_class(1), PAYLOAD, RH1, order="as_documented", **GEN2_REQ)
GEN2_ACK = w.build_gen2(1, 2, w.traffic_class(1, w.FLOW_ACK), b"", RH2)
GEN2_MULTICAST = w.build_gen2(
    w.multicast_id(5),
    1,
    w.traffic_class(2, w.FLOW_TYPE2),
    PAYLOAD,
    RH1,
    key_words=w.KEY_MULTICAST,
    ethertype=w.MAC_TYPE2,
    **GEN2_REQ,
)
LITE = w.build_lite(2, 1, w.traffic_class(2), PAYLOAD, xpu_id=0x2A)
CC_UPDATE = w.build_cc_update(A, [0x12345, 0x10])
PFC3 = w.build_pfc(A, {3: 0xFFFF})
PFC35 = w.build_pfc(A, {3: 0x0100, 5: 0x0200})

VECTORS = [
    ("RH 1 SEND FACK", RH1, "21 12 34 5A 90 15 61 23"),
    ("RH 2 ACK", RH2, "41 12 34 5A 3E 15 60 45"),
    (
        "RH 3 NAK sequence",
        w.build_rh(opcode=1, p_key=0x5A, len_syn=0x60, psn=0x0AB, dest_qp=0x045),
        "40 00 00 5A C0 15 60 45",
    ),
    ("RH 4 CNP", w.build_rh(opcode=2, p_key=0x5A, dest_qp=0x045), "80 00 00 5A 00 00 00 45"),
    (
        "RH 5 SEND long",
        w.build_rh(p_key=0x5A, len_syn=w.rh_length(120), psn=0xFFF, dest_qp=0x1FFF),
        "00 00 00 5A 01 FF FF FF",
    ),
    (
        "Standard header",
        STD[:50],
        "02 00 00 00 00 02 02 00 00 00 00 01 08 00 45 21 00 68 00 01 40 00 40 11 26 61 0A 00 00 01 0A 00 00 02"
        "C0 00 12 B7 00 54 FF FF 21 12 34 5A 90 15 61 23",
    ),
    ("Standard ICRC", STD[-4:], "91 60 6E B7"),
    ("Standard FCS", w.fcs(STD), "7D B8 D5 78"),
    ("Standard length", bytes([len(w.with_fcs(STD))]), f"{122:02x}"),
    ("CE mark ToS and checksum", w.mark_ce(STD)[15:16] + w.mark_ce(STD)[24:26], "23 26 5F"),
    ("CE mark FCS", w.fcs(w.mark_ce(STD)), "0E 45 8F 90"),
    ("CE mark keeps ICRC", w.mark_ce(STD)[-4:], "91 60 6E B7"),
    (
        "CE mark equals whole checksum",
        w.mark_ce(STD),
        w.build_standard(B, A, PAYLOAD, RH1, icrc=True, tos=0x23, sport=0xC000, ident=1).hex(),
    ),
    ("RFC 1624", w.rfc1624(0x2661, 0x4521, 0x4523).to_bytes(2, "big"), "26 5F"),
    ("Standard VLAN tag", STD_VLAN[12:16], "81 00 60 64"),
    ("Standard VLAN length", bytes([len(w.with_fcs(STD_VLAN))]), f"{126:02x}"),
    ("Standard VLAN FCS", w.fcs(STD_VLAN), "1B 2E 13 88"),
    (
        "Standard without ICRC lengths",
        STD_BARE[16:18] + STD_BARE[38:40] + STD_BARE[24:26],
        "00 64 00 50 26 65",
    ),
    ("Standard without ICRC length", bytes([len(w.with_fcs(STD_BARE))]), f"{118:02x}"),
    ("Standard without ICRC FCS", w.fcs(STD_BARE), "44 64 05 49"),
    ("GEN1 header", GEN1[:22], "02 00 00 00 00 02 20 00 00 00 00 01 88 B5 21 12 34 5A 90 15 61 23"),
    ("GEN1 length", bytes([len(w.with_fcs(GEN1))]), f"{90:02x}"),
    ("GEN1 FCS", w.fcs(GEN1), "B0 64 33 B7"),
    (
        "GEN1 VLAN header",
        GEN1_VLAN[:26],
        "02 00 00 00 00 02 20 00 00 00 00 01 81 00 60 64 88 B5 21 12 34 5A 90 15 61 23",
    ),
    ("Key_words", bytes([w.KEY_UNICAST, w.KEY_MULTICAST]), "82 83"),
    ("GEN2 slap", GEN2[:22], "82 A1 A2 A3 00 02 20 B1 B2 B3 00 01 88 B5 21 12 34 5A 90 15 61 23"),
    (
        "GEN2 as_documented",
        GEN2_DOC[:22],
        "20 A1 A2 A3 00 02 82 B1 B2 B3 00 01 88 B5 21 12 34 5A 90 15 61 23",
    ),
    ("GEN2 ACK", GEN2_ACK, "82 00 00 00 00 01 24 00 00 00 00 02 88 B5 41 12 34 5A 3E 15 60 45"),
    ("GEN2 ACK FCS", w.with_fcs(GEN2_ACK)[60:], "01 27 AD B5"),
    ("GEN2 multicast", GEN2_MULTICAST[:14], "83 A1 A2 A3 80 05 48 B1 B2 B3 00 01 88 B6"),
    ("Lite header", LITE[:12], "82 00 00 00 00 02 40 00 2A 00 00 01"),
    ("Lite length", bytes([len(w.with_fcs(LITE))]), f"{80:02x}"),
    ("Lite FCS", w.fcs(LITE), "C5 FF AC 4F"),
    (
        "Traffic Class",
        bytes([w.traffic_class(1), w.traffic_class(1, 1), w.traffic_class(2, 2), w.traffic_class(2)]),
        "20 24 48 40",
    ),
    ("CF_Update", w.build_cf_update(3, 0x1234, 4, 0x0010), "5C 10 19 23 46 20 01 00"),
    (
        "CC_Update",
        CC_UPDATE[:25],
        "01 80 C2 00 00 01 02 00 00 00 00 01 88 08 FF FE FA 7A CB 01 12 34 50 00 10",
    ),
    ("CC_Update zeros", CC_UPDATE[25:], bytes(35).hex()),
    ("CC_Update FCS", w.fcs(CC_UPDATE), "83 BF E3 0F"),
    (
        "SUE RH",
        w.build_sue_rh(xpu_id=0x12, npsn=0xAB, vc=1, partition=5, apsn=0xAA),
        "00 12 00 AB 40 05 00 AA",
    ),
    ("CNP BTH", w.build_cnp_bth(0x123), "81 00 FF FF 40 00 01 23 00 00 00 00" + "00" * 16),
    ("PFC 3", PFC3[:26], "01 80 C2 00 00 01 02 00 00 00 00 01 88 08 01 01 00 08 00 00 00 00 00 00 FF FF"),
    ("PFC 3 zeros", PFC3[26:], bytes(34).hex()),
    ("PFC 3 FCS", w.fcs(PFC3), "B0 B2 29 C3"),
    ("PFC 3 resume FCS", w.fcs(w.build_pfc(A, {3: 0})), "D1 31 78 AC"),
    ("PFC 3 and 5", PFC35[16:18] + PFC35[24:26] + PFC35[28:30], "00 28 01 00 02 00"),
    ("PFC 3 and 5 FCS", w.fcs(PFC35), "7C 1A 8E 8E"),
]


def check_all():
    """Prints one line a vector; 1 if any differs."""
    bad = 0
    for name, built, want in VECTORS:
        want = bytes.fromhex(want)
        if built != want:
            bad += 1
            print(f"FAIL {name}: built {built.hex(' ')}, document {want.hex(' ')}")
    print(f"{len(VECTORS) - bad} of {len(VECTORS)} worked byte strings reproduced")
    return 1 if bad else 0
