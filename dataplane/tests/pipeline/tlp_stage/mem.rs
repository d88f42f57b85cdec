//! CXL.mem messages through the pipeline, byte for byte, and what is refused.
//!
//! The switch of [`super`].
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "CXL.mem"; docs/spec/wire-formats.md §3.9.

use super::*;
use weft_dataplane::pipeline::PortLedger;

const PBR: u8 = 5;
pub(super) const HBR: u8 = 6;

/// A message without data: class and opcode, tag 5, and an address.
pub(super) fn message(op: u8, address: u64) -> Vec<u8> {
    [&[op, 0x18, 0, 0, 0, 5, 0, 0][..], &address.to_be_bytes()].concat()
}

fn with_line(head: &[u8], byte: u8) -> Vec<u8> {
    [head, &[byte; 64]].concat()
}

/// The same behind a PTH.
fn behind(header: Pth, message: &[u8]) -> Vec<u8> {
    [&header.emit()[..], message].concat()
}

/// A host's read gets the PIDs of the edge and of the GFD, and its answer loses them: the bytes of §3.9.
#[test]
fn a_read_goes_to_the_gfd_and_its_line_comes_back_without_a_pid() {
    let mut rig = Rig::new();
    let read = message(0x11, GFAM + 0x40);
    let out = rig.frame(HOST, &from_partner(HOST, HBR, &read));
    let want = behind(Pth { dsar: true, ..pth(HOST_PID, GFD_PID) }, &read);
    assert_eq!(out, [(GFD, wire(MacAddr::BROADCAST, mac(GFD), PBR, &want))]);

    let line = with_line(&hex("40 18 10 00 00 05 00 00 00 00 00 00 00 00 00 00"), 0xAB);
    let back = behind(pth(GFD_PID, HOST_PID), &line);
    let out = rig.frame(GFD, &from_partner(GFD, PBR, &back));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), HBR, &line))]);
    let sent = &rig.ledger().port[HOST].pri;
    assert!(sent[4].tx_bytes > 0, "answers have the priority of UIO completions");

    // A write of part of a line, padded, over a fabric link and in from one.
    let write = [
        &hex("22 18 08 00 00 06 00 00")[..],
        &(FAR_GFAM + 0x80).to_be_bytes(),
        &[7; 64],
        &[0xFF; 8],
    ]
    .concat();
    let padded = [&write[..], &[0; 20]].concat();
    let out = rig.frame(HOST, &from_partner(HOST, HBR, &padded));
    let sent = behind(Pth { dsar: true, ..pth(HOST_PID, FAR_GFD) }, &write);
    assert_eq!(out, [(FABRIC, wire(MacAddr::BROADCAST, mac(FABRIC), PBR, &sent))]);
    let done = message(0x30, 0);
    let came = behind(pth(FAR_GFD, HOST_PID), &done);
    let out = rig.frame(FABRIC, &from_partner(FABRIC, PBR, &came));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), HBR, &done))]);
    let transit = behind(Pth { dsar: true, ..pth(FAR_HOST, GFD_PID) }, &read);
    let out = rig.frame(FABRIC, &from_partner(FABRIC, PBR, &transit));
    assert_eq!(out, [(GFD, wire(partner(GFD), mac(GFD), PBR, &transit))]);
}

/// A host's answer to a snoop of the GFD that its BI-ID names, tag 5.
fn answer_to(gfd: u16, op: u8) -> Vec<u8> {
    [&[op, 0, 0, 0, 0, 5][..], &gfd.to_be_bytes(), &[0; 8]].concat()
}

/// A GFD's snoop comes to the host without PIDs and with the GFD's as BI-ID; by that the host's answer finds back. Both have the
/// priority of answers.
#[test]
fn a_snoop_comes_with_the_gfd_as_bi_id_and_its_answer_finds_back() {
    let mut rig = Rig::new();
    let (near, far) = ((GFD, GFD_PID, GFAM), (FABRIC, FAR_GFD, FAR_GFAM));
    let mut host = MacAddr::BROADCAST;
    for (port, gfd, at) in [near, far] {
        for op in [0x50, 0x51, 0x52] {
            let snoop = [&[op, 0, 0, 0, 0, 5, 0xFA, 0xBC][..], &(at + 0x40).to_be_bytes()].concat();
            let out =
                rig.frame(port, &from_partner(port, PBR, &behind(pth(gfd, HOST_PID), &snoop)));
            let mut want = snoop;
            want[6..8].copy_from_slice(&gfd.to_be_bytes());
            assert_eq!(out, [(HOST, wire(host, mac(HOST), HBR, &want))]);
        }
        for op in [0x60, 0x61, 0x62] {
            let answer = answer_to(gfd, op);
            let out = rig.frame(HOST, &from_partner(HOST, HBR, &answer));
            let sent = behind(Pth { dsar: true, ..pth(HOST_PID, gfd) }, &answer);
            assert_eq!(out, [(port, wire(partner(port), mac(port), PBR, &sent))]);
        }
        host = partner(HOST);
    }
    let ledger = rig.ledger();
    for port in [HOST, GFD, FABRIC] {
        assert!(ledger.port[port].pri[4].tx_bytes > 0, "{port:?}");
        assert_eq!(ledger.port[port].pri[3].tx_bytes, 0, "{port:?}");
    }
    // In transit, nothing of it changes.
    let answer = answer_to(0x999, 0x60);
    let transit = behind(Pth { dsar: true, ..pth(FAR_HOST, GFD_PID) }, &answer);
    let out = rig.frame(FABRIC, &from_partner(FABRIC, PBR, &transit));
    assert_eq!(out, [(GFD, wire(partner(GFD), mac(GFD), PBR, &transit))]);
}

/// CXL.mem has no UR: whoever waits for a line gets ones, whoever waits for an end gets one, and nobody else anything.
#[test]
fn refused_requests_are_answered_with_ones_or_an_end() {
    let mut rig = Rig::new();
    let ones = with_line(&hex("41 18 00 00 00 05 00 00 00 00 00 00 00 00 00 00"), 0xFF);
    let end = message(0x30, 0);
    let write = |at| with_line(&message(0x21, at), 3);
    #[rustfmt::skip] // columns: message, answer, refusal
    let cases = [
        (message(0x11, NOWHERE),     Some(&ones), Refusal::NoFastEntry),
        (message(0x12, NOWHERE),     Some(&ones), Refusal::NoFastEntry),
        (message(0x10, NOWHERE),     Some(&end),  Refusal::NoFastEntry),
        (write(NOWHERE),             Some(&end),  Refusal::NoFastEntry),
        (message(0x18, NOWHERE),     None,        Refusal::NoFastEntry),
        (message(0x11, GIM),         Some(&ones), Refusal::GimNeedsUio),
        (message(0x11, 0x1000),      Some(&ones), Refusal::NoHdmDecoder),
        (write(0x1000),              Some(&end),  Refusal::NoHdmDecoder),
    ];
    for (place, (sent, want, refusal)) in cases.into_iter().enumerate() {
        let before = rig.refused(HOST, refusal);
        let out = rig.frame(HOST, &from_partner(HOST, HBR, &sent));
        let want = want.map(|want| (HOST, wire(partner(HOST), mac(HOST), HBR, want)));
        assert_eq!(out, Vec::from_iter(want), "case {place}");
        assert_eq!(rig.refused(HOST, refusal), before + 1, "case {place}");
    }
    assert_eq!(rig.ledger().port[HOST].answered, 7);
    // Out of the fabric to where nothing leads, to a host, hierarchical, or to the switch itself: back with the PIDs exchanged.
    let read = message(0x11, GFAM);
    for (dpid, hie, refusal) in [
        (0x999, false, Refusal::NoDrtEntry),
        (HOST_PID, false, Refusal::WrongRole),
        (DEVICE_PID, false, Refusal::ForeignHost),
        (LINK_NEAR, true, Refusal::NoHdmDecoder),
    ] {
        let header = Pth { hie, ..pth(FAR_HOST, dpid) };
        let before = rig.refused(FABRIC, refusal);
        let out = rig.frame(FABRIC, &from_partner(FABRIC, PBR, &behind(header, &read)));
        let back = Pth { dsar: true, hie, ..pth(dpid, FAR_HOST) };
        let want = (FABRIC, wire(partner(FABRIC), mac(FABRIC), PBR, &behind(back, &ones)));
        assert_eq!(out, [want], "{dpid:x}");
        assert_eq!(rig.refused(FABRIC, refusal), before + 1, "{dpid:x}");
    }
}

/// Who speaks in another's name, or says what is not his to say, is not heard, and gets no answer by another's PID.
#[test]
fn nobody_speaks_for_another() {
    let mut rig = Rig::new();
    let (read, end) = (message(0x11, GFAM), message(0x30, 0));
    let snoop = message(0x52, GFAM);
    #[rustfmt::skip] // columns: port, protocol, what, refusal
    let cases = [
        (HOST,   PBR, behind(pth(HOST_PID, GFD_PID), &read),   Refusal::PthAtEdge),
        (HOST,   PBR, behind(pth(FAR_GFD, FAR_HOST), &end),    Refusal::PthAtEdge),
        (DEVICE, PBR, behind(pth(DEVICE_PID, GFD_PID), &read), Refusal::PthAtEdge),
        (GFD,    PBR, behind(pth(FAR_GFD, HOST_PID), &end),    Refusal::ForeignSpid),
        (GFD,    PBR, behind(pth(0xFFF, HOST_PID), &end),      Refusal::ForeignSpid),
        (GFD,    PBR, behind(pth(GFD_PID, FAR_GFD), &read),    Refusal::NotFromGfd),
        (GFD,    PBR, behind(pth(GFD_PID, 0xFFF), &end),       Refusal::NotFromGfd),
        (GFD,    PBR, behind(Pth { hie: true, ..pth(GFD_PID, HOST_PID) }, &end), Refusal::NotFromGfd),
        (HOST,   HBR, end.clone(),                             Refusal::WrongRole),
        (DEVICE, HBR, end.clone(),                             Refusal::LavClear),
        (FABRIC, PBR, behind(pth(FAR_GFD, GFD_PID), &end),     Refusal::WrongRole),
        (FABRIC, PBR, behind(pth(FAR_GFD, DEVICE_PID), &end),  Refusal::WrongRole),
        (FABRIC, PBR, behind(pth(FAR_GFD, 0xFFF), &end),       Refusal::NoHdmDecoder),
        (GFD,    PBR, behind(pth(GFD_PID, HOST_PID), &message(0x56, GFAM)), Refusal::NoBackInvalidate),
        (HOST,   HBR, message(0x64, 0),                        Refusal::NoBackInvalidate),
        (HOST,   PBR, behind(pth(HOST_PID, GFD_PID), &message(0x60, 0)), Refusal::PthAtEdge),
        (GFD,    PBR, behind(pth(FAR_GFD, HOST_PID), &snoop),  Refusal::ForeignSpid),
        (GFD,    PBR, behind(pth(GFD_PID, HOST_PID), &message(0x60, 0)), Refusal::NotFromGfd),
        (GFD,    PBR, behind(Pth { hie: true, ..pth(GFD_PID, HOST_PID) }, &snoop), Refusal::NotFromGfd),
        (GFD,    PBR, behind(pth(GFD_PID, 0xFFF), &snoop),     Refusal::NotFromGfd),
        (GFD,    PBR, behind(pth(GFD_PID, DEVICE_PID), &snoop), Refusal::WrongRole),
        (GFD,    PBR, behind(pth(GFD_PID, HOST_PID), &message(0x52, FAR_GFAM)), Refusal::ForeignSnoop),
        (GFD,    PBR, behind(pth(GFD_PID, HOST_PID), &message(0x52, 0x1000)), Refusal::ForeignSnoop),
        (FABRIC, PBR, behind(pth(FAR_HOST, HOST_PID), &snoop), Refusal::NotInGmv),
        (FABRIC, PBR, behind(pth(FAR_HOST, HOST_PID), &end),   Refusal::NotInGmv),
        (FABRIC, PBR, behind(pth(FAR_HOST, HOST_PID), &with_line(&message(0x40, 0), 7)), Refusal::NotInGmv),
        (FABRIC, PBR, behind(pth(FAR_GFD, HOST_PID), &snoop),  Refusal::ForeignSnoop),
        (FABRIC, PBR, behind(pth(FAR_GFD, GFD_PID), &snoop),   Refusal::WrongRole),
        (FABRIC, PBR, behind(pth(FAR_HOST, HOST_PID), &message(0x60, 0)), Refusal::WrongRole),
        (HOST,   HBR, snoop.clone(),                           Refusal::WrongRole),
        (DEVICE, HBR, snoop.clone(),                           Refusal::WrongRole),
        (DEVICE, HBR, answer_to(GFD_PID, 0x60),                Refusal::WrongRole),
        (HOST,   HBR, answer_to(0x999, 0x60),                  Refusal::NotInGmv),
        (HOST,   HBR, answer_to(FAR_HOST, 0x60),               Refusal::NotInGmv),
        (HOST,   HBR, answer_to(0xFFF, 0x60),                  Refusal::NotInGmv),
    ];
    for (place, (port, protocol, sent, refusal)) in cases.into_iter().enumerate() {
        let before = rig.refused(port, refusal);
        let out = rig.frame(port, &from_partner(port, protocol, &sent));
        assert_eq!(out, [], "case {place}");
        assert_eq!(rig.refused(port, refusal), before + 1, "case {place}");
    }
    // A device asks nobody for anything: it is told so.
    let out = rig.frame(DEVICE, &from_partner(DEVICE, HBR, &read));
    let ones = with_line(&hex("41 18 00 00 00 05 00 00 00 00 00 00 00 00 00 00"), 0xFF);
    assert_eq!(out, [(DEVICE, wire(partner(DEVICE), mac(DEVICE), HBR, &ones))]);
    assert_eq!(rig.refused(DEVICE, Refusal::WrongRole), 3);
    // No link with a PTH has messages without, and no message is cut short.
    for (port, protocol, sent, reason) in [
        (GFD, HBR, read.clone(), DropReason::NotTlp),
        (FABRIC, HBR, read.clone(), DropReason::NotTlp),
        (HOST, HBR, message(0x21, GFAM), DropReason::Malformed),
        (HOST, HBR, message(0x13 + 4, GFAM), DropReason::Malformed),
        (FABRIC, PBR, read.clone(), DropReason::Malformed),
    ] {
        assert_eq!(rig.frame(port, &from_partner(port, protocol, &sent)), []);
        assert!(rig.drops(port, reason) > 0, "{port} {protocol} {reason:?}");
    }
}

/// What LDST of the host's port has goes to the memory device without PIDs, and what that answers goes to its host, and to
/// nobody else; each needs its right in LAV.
#[test]
fn a_memory_device_is_asked_by_its_own_host_and_answers_it() {
    const HDM: u64 = 2 << 40;
    let mut rig = Rig::new();
    let ones = with_line(&hex("41 18 00 00 00 05 00 00 00 00 00 00 00 00 00 00"), 0xFF);
    let end = message(0x30, 0);
    let line = with_line(&hex("40 18 10 00 00 05 00 00 00 00 00 00 00 00 00 00"), 0xAB);
    let (read, write) = (message(0x11, HDM + 0x40), with_line(&message(0x21, HDM), 3));
    let set = |rig: &Rig, lav: [&[u16]; 2]| {
        let mut tables = Tables::clone(&rig.lane.core().tables.load());
        for (port, allowed) in [HOST, DEVICE].into_iter().zip(lav) {
            let mut edge = tables.edge(id(port)).unwrap().clone();
            let mut access = edge.access().clone();
            access.lav.allow(pid(DEVICE_PID)).unwrap();
            edge.set_access(access.clone().into());
            edge.configure_ldst(0, Hpa(HDM), Hpa(HDM + (1 << 36))).unwrap();
            let target = Target::Direct(pid(DEVICE_PID));
            let entry = weft_parsers::fabric::LdstEntry {
                segment: true,
                interleave: Interleave::NONE,
                target,
            };
            edge.set_ldst(0, &[Some(entry)]).unwrap();
            access.lav = weft_dataplane::pbr::AccessVector::NONE;
            for bits in allowed {
                access.lav.allow(pid(*bits)).unwrap();
            }
            edge.set_access(access.into());
            tables.set_edge(id(port), Some(edge)).unwrap();
        }
        rig.lane.core().tables.store(std::sync::Arc::new(tables));
    };
    let all: [&[u16]; 2] = [&[DEVICE_PID], &[HOST_PID, FAR_HOST]];
    set(&rig, all);
    for message in [&read, &write] {
        let out = rig.frame(HOST, &from_partner(HOST, HBR, message));
        assert_eq!(out, [(DEVICE, wire(MacAddr::BROADCAST, mac(DEVICE), HBR, message))]);
        rig = Rig::new();
        set(&rig, all);
    }
    for answer in [&line, &end] {
        let out = rig.frame(DEVICE, &from_partner(DEVICE, HBR, answer));
        assert_eq!(out, [(HOST, wire(MacAddr::BROADCAST, mac(HOST), HBR, answer))]);
        rig = Rig::new();
        set(&rig, all);
    }
    // Another host's, though LAV has it; snoops; and a device asks nobody.
    let foreign = behind(pth(FAR_HOST, DEVICE_PID), &read);
    let out = rig.frame(FABRIC, &from_partner(FABRIC, PBR, &foreign));
    let back = behind(Pth { dsar: true, ..pth(DEVICE_PID, FAR_HOST) }, &ones);
    assert_eq!(out, [(FABRIC, wire(partner(FABRIC), mac(FABRIC), PBR, &back))]);
    assert_eq!(rig.refused(FABRIC, Refusal::ForeignHost), 1);
    assert_eq!(rig.frame(DEVICE, &from_partner(DEVICE, HBR, &message(0x52, HDM))), []);
    let out = rig.frame(DEVICE, &from_partner(DEVICE, HBR, &read));
    assert_eq!(out, [(DEVICE, wire(partner(DEVICE), mac(DEVICE), HBR, &ones))]);
    assert_eq!(rig.refused(DEVICE, Refusal::WrongRole), 2);
    // Either right gone: the request is refused at once, the answer dropped.
    for (lav, at) in [([&[][..], all[1]], "here"), ([all[0], &[][..]], "there")] {
        let mut rig = Rig::new();
        set(&rig, lav);
        let out = rig.frame(HOST, &from_partner(HOST, HBR, &read));
        assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), HBR, &ones))], "{at}");
        assert_eq!(rig.refused(HOST, Refusal::LavClear), 1, "{at}");
        if lav[1].is_empty() {
            assert_eq!(rig.frame(DEVICE, &from_partner(DEVICE, HBR, &line)), [], "{at}");
            assert_eq!(rig.refused(DEVICE, Refusal::LavClear), 1, "{at}");
        }
    }
}

/// Any bytes behind either protocol, at every port: the books stay even, and with a trace the same comes out.
#[test]
fn any_bytes_are_forwarded_or_counted() {
    let (mut rig, mut traced) = (Rig::new(), Rig::new());
    traced.trace = Some(Trace::new(Deaf));
    let mut rng = Rng::new(20);
    let pids =
        [HOST_PID, DEVICE_PID, GFD_PID, FAR_GFD, FAR_HOST, LINK_NEAR, LINK_FAR, 0xFFF, 0x999];
    let pick = |rng: &mut Rng| pids[usize::try_from(rng.below(9)).unwrap()];
    let mut out_of = 0;
    for _ in 0..20_000 {
        let port = usize::try_from(rng.below(PORTS as u64)).unwrap();
        let protocol = if rng.below(2) == 0 { PBR } else { HBR };
        let op = [0x11, 0x21, 0x22, 0x18, 0x10, 0x30, 0x40, 0x52, 0x60, 0x77]
            [usize::try_from(rng.below(10)).unwrap()];
        let bases = [GFAM, FAR_GFAM, GIM, NOWHERE, 0x1000];
        let mut bytes = message(op, bases[usize::try_from(rng.below(5)).unwrap()]);
        bytes.extend((0..rng.below(80)).map(|_| u8::try_from(rng.below(256)).unwrap()));
        if rng.below(3) == 0 {
            let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
            bytes[at] ^= 1 << rng.below(8);
        }
        if protocol == PBR {
            let (spid, dpid) = (pick(&mut rng), pick(&mut rng));
            bytes = behind(Pth { hie: rng.below(8) == 0, ..pth(spid, dpid) }, &bytes);
        }
        let frame = from_partner(port, protocol, &bytes);
        if port == AGENT {
            continue; // nobody but the process itself sends there
        }
        let out = rig.frame(port, &frame);
        out_of += out.len();
        assert_eq!(traced.frame(port, &frame), out);
        for (to, frame) in out {
            let is_edge = [HOST, DEVICE, OLD_HOST, OLD_DEVICE].contains(&to);
            assert!(
                to == L2 || !is_edge || frame[18] == HBR,
                "a PID left the fabric: {frame:02x?}"
            );
        }
    }
    assert!(out_of > 1_000, "{out_of}");
    for (port, (short, long)) in rig.ledger().port.iter().zip(&traced.ledger().port).enumerate() {
        let drops = |port: &PortLedger| port.drops;
        assert_eq!((&short.refused, drops(short)), (&long.refused, drops(long)), "port {port}");
        let sums = |port: &PortLedger| (port.rx_frames, port.tx_frames, port.answered);
        assert_eq!(sums(short), sums(long), "port {port}");
    }
}
