//! The tables of the switch that these tests drive: its edges, virtual switches and routes.
//!
//! Ports that carry TLPs → [`Tables`].
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Tables of an edge and who may write them".

use super::*;

pub fn bridge(primary: u8, secondary: u8, subordinate: u8, memory: Window) -> Bridge {
    let command = Bridge::ALL_ON;
    Bridge { command, primary, secondary, subordinate, memory, ..Bridge::default() }
}

/// The host's virtual switch on bus 1: bus 3 is the device's link, 4 to 6 lie beyond the fabric.
pub fn host_vcs() -> Vcs {
    let all = Window::memory(0xE000, 0xE0F0);
    let up =
        Vppb { bridge: bridge(1, 2, 6, all), binding: Binding::Port(id(HOST)), ..Vppb::default() };
    let device = Vppb {
        function: 0,
        bridge: bridge(2, 3, 3, Window::memory(0xE000, 0xE000)),
        binding: Binding::Port(id(DEVICE)),
        ..Vppb::default()
    };
    let far = Vppb {
        function: 1 << 3,
        bridge: bridge(2, 4, 6, Window::memory(0xE010, 0xE010)),
        binding: Binding::Fabric { spid: pid(LINK_NEAR), dpid: pid(LINK_FAR) },
        ..Vppb::default()
    };
    let unbound = Vppb {
        function: 2 << 3,
        bridge: bridge(2, 0, 0, Window::memory(0xE020, 0xE020)),
        ..Vppb::default()
    };
    Vcs::new(up, None, &[device, far, unbound]).unwrap()
}

/// A virtual switch between two links of the old kind.
pub fn old_vcs() -> Vcs {
    let memory = Window::memory(0xD000, 0xD000);
    let up = Vppb {
        bridge: bridge(1, 2, 3, memory),
        binding: Binding::Port(id(OLD_HOST)),
        ..Vppb::default()
    };
    let down = Vppb {
        bridge: bridge(2, 3, 3, memory),
        binding: Binding::Port(id(OLD_DEVICE)),
        ..Vppb::default()
    };
    Vcs::new(up, None, &[down]).unwrap()
}

pub fn tables(ports: weft_dataplane::types::PortSet) -> Tables {
    let mut tables = Tables::new(ports, 4).unwrap();
    let edge = |role, bits: u16, side: Option<(u8, Side)>| {
        let (fast, ldst) = (Fast::new(16, 16).unwrap(), Ldst::new(16, 16).unwrap());
        let mut edge = EdgePort::new(role, pid(bits), fast, ldst);
        edge.vcs = side;
        edge
    };
    let mut host = edge(Role::Usp, HOST_PID, Some((0, Side::Above)));
    let mut access = Access::default();
    for bits in [GFD_PID, FAR_GFD] {
        access.gmv.allow(pid(bits)).unwrap();
    }
    access.vtv.allow(pid(FAR_HOST)).unwrap();
    host.set_access(access.into());
    host.prefixes = Prefixes::from_bits(1);
    // 1 TB on: segments of 64 GB; the first one here, the second one far away, the third one GIM
    host.configure_fast(0, Hpa(1 << 40), Hpa((1 << 40) + (8 << 36))).unwrap();
    let entry = |gim, bits| {
        Some(FastEntry { gim, interleave: Interleave::NONE, target: Target::Direct(pid(bits)) })
    };
    host.set_fast(0, &[entry(false, GFD_PID), entry(false, FAR_GFD), entry(true, FAR_HOST)])
        .unwrap();
    tables.set_edge(id(HOST), Some(host)).unwrap();
    let device = edge(Role::Dsp, DEVICE_PID, Some((0, Side::Below(0))));
    tables.set_edge(id(DEVICE), Some(device)).unwrap();
    tables.set_edge(id(GFD), Some(edge(Role::Gfd, GFD_PID, None))).unwrap();
    let old_host = edge(Role::Usp, 0x0E1, Some((1, Side::Above)));
    tables.set_edge(id(OLD_HOST), Some(old_host)).unwrap();
    let old_device = edge(Role::Dsp, 0x0E2, Some((1, Side::Below(0))));
    tables.set_edge(id(OLD_DEVICE), Some(old_device)).unwrap();
    tables.set_vcs(0, Some(host_vcs())).unwrap();
    tables.set_vcs(1, Some(old_vcs())).unwrap();
    tables.assign(pid(LINK_NEAR), Assigned::Port(id(HOST))).unwrap();
    tables.assign(pid(0x010), Assigned::Switch).unwrap();
    let routes = [
        (HOST_PID, HOST),
        (DEVICE_PID, DEVICE),
        (GFD_PID, GFD),
        (FAR_GFD, FABRIC),
        (FAR_HOST, FABRIC),
        (LINK_FAR, FABRIC),
        (LINK_NEAR, HOST),
    ];
    for (bits, port) in routes {
        let port = u8::try_from(port).unwrap();
        tables.set_drt(usize::from(bits), &[DrtEntry::Port(port)]).unwrap();
    }
    tables
}
