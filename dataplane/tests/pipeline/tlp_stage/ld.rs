//! Logical devices through the stage: the prefix says which one a TLP is of, and nothing else of it does.
//!
//! The switch of [`super`], whose device has four logical devices, of which the host has the third.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.2 "LD-ID form"; CXL 3.1 section 2.5.

use weft_dataplane::pbr::Access;
use weft_parsers::fabric::{Bdf, ReRouterEntry};

use super::*;

/// LD 2 of the device is bound to the bridge that shows the device otherwise.
fn rig() -> Rig {
    let rig = Rig::new();
    let core = rig.lane.core().clone();
    let mut tables = (**core.tables.load()).clone();
    let mut below: Vec<Vppb> = parts::host_vcs().below().to_vec();
    below[0].binding = Binding::Ld { port: id(DEVICE), ld: 2 };
    let vcs = Vcs::new(*parts::host_vcs().upstream(), None, &below).unwrap();
    tables.set_vcs(0, Some(vcs)).unwrap();
    let mut part = tables.edge(id(DEVICE)).unwrap().clone();
    part.vcs = Some((0, Side::Below(0)));
    let mut edge = EdgePort::new(
        Role::Dsp,
        pid(DEVICE_PID),
        Fast::new(16, 16).unwrap(),
        Ldst::new(16, 16).unwrap(),
    );
    edge.set_ld(3, None).unwrap();
    edge.set_ld(2, Some(part)).unwrap();
    tables.set_edge(id(DEVICE), Some(edge)).unwrap();
    core.tables.store(Arc::new(tables));
    rig
}

fn of_ld(ld: u16, tlp: &[u8]) -> Vec<u8> {
    [&VendPrefixL0::from_ld_id(ld).emit()[..], tlp].concat()
}

/// A read of the device's memory by 00:00.0, tag 5, and what answers it.
const READ: &str = "03 00 00 01 00 00 00 05 E0 00 00 00";
const DATA: &str = "4A 00 00 01 03 00 00 05 00 00 00 04 01 02 03 04";

/// To the device with the prefix of the LD that the bridge is bound to, from it to that LD's host without.
#[test]
fn a_prefix_is_put_in_front_and_taken_off() {
    let mut rig = rig();
    let out = rig.frame(HOST, &from_partner(HOST, 2, &hex(READ)));
    assert_eq!(out, [(DEVICE, wire(MacAddr::BROADCAST, mac(DEVICE), 2, &of_ld(2, &hex(READ))))]);
    let out = rig.frame(DEVICE, &from_partner(DEVICE, 2, &of_ld(2, &hex(DATA))));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), 2, &hex(DATA)))]);
}

/// An LD that no host has, one that there is not, and none at all: nobody gets it, and it is counted.
#[test]
fn what_is_of_no_bound_ld_goes_nowhere() {
    let mut rig = rig();
    for (ld, refusal) in
        [(Some(1), Refusal::Unbound), (Some(9), Refusal::Unbound), (None, Refusal::NoVcs)]
    {
        for tlp in [DATA, "40 00 00 01 03 00 00 00 00 10 00 00 DE AD BE EF"] {
            let tlp = ld.map_or_else(|| hex(tlp), |ld| of_ld(ld, &hex(tlp)));
            let before = rig.refused(DEVICE, refusal);
            assert_eq!(rig.frame(DEVICE, &from_partner(DEVICE, 2, &tlp)), [], "{ld:?}");
            assert_eq!(rig.refused(DEVICE, refusal), before + 1, "{ld:?}");
        }
    }
}

/// LD `FFFFh` at a downstream port is for the switch's own functions, whether the device has LDs or not; a host has no such thing.
#[test]
fn the_managers_ld_is_the_switchs_and_no_hosts() {
    let tlp = of_ld(0xFFFF, &hex(READ));
    for mut rig in [rig(), Rig::new()] {
        let out = rig.frame(DEVICE, &from_partner(DEVICE, 2, &tlp));
        let want = wire(CPU_PORT_MAC, cpu_mac_of_port(id(DEVICE)), 2, &tlp);
        assert_eq!(out, [(AGENT, want)]);
        let out = rig.frame(HOST, &from_partner(HOST, 2, &tlp));
        assert!(out.iter().all(|(port, _)| *port == HOST), "refused: {out:02x?}");
        let refused = [Refusal::PrefixNeedsUio, Refusal::PrefixNotEnabled, Refusal::PrefixNotInVtv];
        let count: u64 = refused.map(|refusal| rig.refused(HOST, refusal)).iter().sum();
        assert_eq!(count, 1);
    }
}

/// CXL.mem of a host goes to the LD that is the host's, which the message names behind the edge and nowhere else; of others,
/// and where the host has several, it is refused. An LD that no host has answers nobody.
#[test]
fn cxl_mem_names_the_ld_of_its_host_behind_the_edge() {
    const HDM: u64 = 2 << 40;
    const HBR_MEM: u8 = 6;
    let message = |op: u8, ld: u8, at: u64| -> Vec<u8> {
        [&[op, 0x18, 0, ld << 4, 0, 5, 0, 0][..], &at.to_be_bytes()].concat()
    };
    let ones = [&hex("41 18 00 00 00 05 00 00 00 00 00 00 00 00 00 00")[..], &[0xFF; 64]].concat();
    let set = |rig: &Rig, lds: &[u16]| {
        let mut tables = Tables::clone(&rig.lane.core().tables.load());
        let mut host = tables.edge(id(HOST)).unwrap().clone();
        let mut access = host.access().clone();
        access.lav.allow(pid(DEVICE_PID)).unwrap();
        access.lav.allow(pid(HOST_PID)).unwrap();
        access.lav.allow(pid(FAR_HOST)).unwrap();
        host.set_access(access.clone().into());
        host.configure_ldst(0, Hpa(HDM), Hpa(HDM + (1 << 36))).unwrap();
        let target = weft_parsers::fabric::Target::Direct(pid(DEVICE_PID));
        let interleave = weft_parsers::fabric::Interleave::NONE;
        let entry = weft_parsers::fabric::LdstEntry { segment: false, interleave, target };
        host.set_ldst(0, &[Some(entry)]).unwrap();
        tables.set_edge(id(HOST), Some(host)).unwrap();
        let mut edge = tables.edge(id(DEVICE)).unwrap().clone();
        let mut part = edge.part(Some(2)).unwrap().clone();
        part.set_access(access.into());
        for ld in lds {
            edge.set_ld(*ld, Some(part.clone())).unwrap();
        }
        tables.set_edge(id(DEVICE), Some(edge)).unwrap();
        rig.lane.core().tables.store(Arc::new(tables));
    };
    let mut rig = rig();
    set(&rig, &[2]);
    let read = message(0x11, 0, HDM + 0x40);
    let out = rig.frame(HOST, &from_partner(HOST, HBR_MEM, &read));
    let named = message(0x11, 2, HDM + 0x40);
    assert_eq!(out, [(DEVICE, wire(MacAddr::BROADCAST, mac(DEVICE), HBR_MEM, &named))]);
    // Whatever LD the host names, it is its own.
    let out = rig.frame(HOST, &from_partner(HOST, HBR_MEM, &message(0x11, 1, HDM + 0x40)));
    assert_eq!(out, [(DEVICE, wire(MacAddr::BROADCAST, mac(DEVICE), HBR_MEM, &named))]);
    let out = rig.frame(DEVICE, &from_partner(DEVICE, HBR_MEM, &message(0x30, 2, 0)));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), HBR_MEM, &message(0x30, 0, 0)))]);
    for ld in [0, 1, 3, 15] {
        let answer = message(0x30, ld, 0);
        assert_eq!(rig.frame(DEVICE, &from_partner(DEVICE, HBR_MEM, &answer)), [], "{ld}");
    }
    assert_eq!(rig.refused(DEVICE, Refusal::Unbound), 4);
    // An LD asks nobody: refused with its own number.
    let out = rig.frame(
        DEVICE,
        &from_partner(
            DEVICE,
            HBR_MEM,
            &message(0x21, 2, HDM).into_iter().chain([1; 64]).collect::<Vec<_>>(),
        ),
    );
    assert_eq!(out, [(DEVICE, wire(partner(DEVICE), mac(DEVICE), HBR_MEM, &message(0x30, 2, 0)))]);
    // Another host's request, with LAV set.
    let foreign = [&pth(FAR_HOST, DEVICE_PID).emit()[..], &read].concat();
    let out = rig.frame(FABRIC, &from_partner(FABRIC, 5, &foreign));
    let back = Pth { dsar: true, ..pth(DEVICE_PID, FAR_HOST) };
    let back = [&back.emit()[..], &ones].concat();
    assert_eq!(out, [(FABRIC, wire(partner(FABRIC), mac(FABRIC), 5, &back))]);
    assert_eq!(rig.refused(FABRIC, Refusal::ForeignHost), 1);
    // With two LDs of the host it is not known which.
    set(&rig, &[2, 3]);
    let out = rig.frame(HOST, &from_partner(HOST, HBR_MEM, &read));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), HBR_MEM, &ones))]);
    assert_eq!(rig.refused(HOST, Refusal::SeveralLds), 1);
}

/// CXL 3.1 section 7.7.9: a UIO request to the memory of a logical device names none. It goes to the one whose re-router sends its
/// completion back to where it came from, and to none if there is none, or several; the completion goes straight back.
#[test]
fn uio_goes_to_the_ld_that_answers_it() {
    // UIOMRd of 2 DW by 01:00.0, tag 5, and its completion with data by 03:00.0.
    let read = |id: &str| hex(&format!("22 00 00 02 {id} 00 05 00 00 02 00 00 00 00 40"));
    let answer = hex("48 00 00 02 03 00 00 05 01 00 00 00 01 02 03 04 05 06 07 08");
    let came = |spid: u16, tlp: &[u8]| {
        let tlp = [&pth(spid, DEVICE_PID).emit()[..], tlp].concat();
        from_partner(FABRIC, 1, &tlp)
    };
    let set = |rig: &Rig, lds: &[(u16, &[u16], (u16, u16))]| {
        let mut tables = Tables::clone(&rig.lane.core().tables.load());
        let mut edge = tables.edge(id(DEVICE)).unwrap().clone();
        for (ld, lav, (requester, dpid)) in lds {
            let mut part = edge.part(Some(2)).unwrap().clone();
            let with = |lav: &[u16]| {
                let mut access = Access::default();
                for one in lav {
                    access.lav.allow(pid(*one)).unwrap();
                }
                Arc::new(access)
            };
            part.set_access(with(&[*dpid]));
            let (dpid, requester) = (pid(*dpid), Bdf::from_bits(*requester));
            part.set_rerouter(0, &[Some(ReRouterEntry { dpid, segment: None, requester })])
                .unwrap();
            part.set_access(with(lav));
            edge.set_ld(*ld, Some(part)).unwrap();
        }
        tables.set_edge(id(DEVICE), Some(edge)).unwrap();
        rig.lane.core().tables.store(Arc::new(tables));
    };
    let mut rig = rig();
    let to =
        |ld, tlp: &[u8]| vec![(DEVICE, wire(MacAddr::BROADCAST, mac(DEVICE), 2, &of_ld(ld, tlp)))];
    // LD 0 answers 02:00.0, LD 2 answers 01:00.0, both behind the same PID; LD 3 had 01:00.0, and LAV no more.
    let far = FAR_HOST;
    let three =
        [(0, &[far][..], (0x0200, far)), (2, &[far], (0x0100, far)), (3, &[], (0x0100, far))];
    set(&rig, &three);
    let first = read("01 00");
    assert_eq!(rig.frame(FABRIC, &came(FAR_HOST, &first)), to(2, &first));
    let second = read("02 00");
    assert_eq!(rig.frame(FABRIC, &came(FAR_HOST, &second)), to(0, &second));
    let out = rig.frame(DEVICE, &from_partner(DEVICE, 2, &of_ld(2, &answer)));
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].0, FABRIC, "straight back: {out:02x?}");
    // Whom none answers, by id or by PID, and what two would answer, is refused.
    let refused = |rig: &mut Rig, spid, tlp: &[u8], refusal| {
        let before = rig.refused(FABRIC, refusal);
        let out = rig.frame(FABRIC, &came(spid, tlp));
        assert!(out.iter().all(|(port, _)| *port != DEVICE), "{out:02x?}");
        assert_eq!(rig.refused(FABRIC, refusal), before + 1, "{refusal:?}");
    };
    refused(&mut rig, FAR_HOST, &read("03 00"), Refusal::LavClear);
    refused(&mut rig, HOST_PID, &first, Refusal::LavClear);
    set(&rig, &[(3, &[far], (0x0100, far))]);
    refused(&mut rig, FAR_HOST, &first, Refusal::SeveralLds);
    let others = wire(partner(DEVICE), mac(DEVICE), 2, &of_ld(0, &second));
    assert_eq!(rig.frame(FABRIC, &came(FAR_HOST, &second)), [(DEVICE, others)], "as before");
}
