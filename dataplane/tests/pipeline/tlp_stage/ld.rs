//! Logical devices through the stage: the prefix says which one a TLP is of, and nothing else of it does.
//!
//! Shape: the switch of [`super`], whose device has four logical devices, of which the host has the third.
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.2 "LD-ID form"; CXL 3.1 section 2.5.

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
