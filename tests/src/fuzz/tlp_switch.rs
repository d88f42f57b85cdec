//! A switch for TLPs with random tables.
//!
//! A TLP that comes in leaves, is answered, or is dropped for a reason.
//!
//! [`switch`] has ports of every role, [`tables`] are drawn from a seed; frames are those of
//! [`super::tlp`].
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "Inside", "Egress at an edge".

use weft_base::rng::Rng;
use weft_dataplane::config::{PortRole, SwitchConfig, TlpLink};
use weft_dataplane::pbr::tables::Assigned;
use weft_dataplane::pbr::{
    Access, Binding, Bridge, EdgePort, Fast, Ldst, Prefixes, Role, Side, TableError, Tables, Vcs,
    Vppb, Window,
};
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::fabric::{
    Bdf, DrtEntry, FastEntry, Hpa, Interleave, LdstEntry, Pid, ReRouterEntry, RgtEntry, RgtMode,
    Target,
};
use weft_parsers::tlp::Mode;

use super::rig::Rig;

/// Ports: hosts, devices, GFDs and fabric ports by turns, with both header layouts; the agent;
/// Ethernet.
pub const PORTS: usize = 10;
const VCSES: u8 = 3;
/// PIDs that tables may contain; frames name any PID.
const PIDS: u64 = 48;

/// A switch with ports of every role.
#[must_use]
pub fn switch() -> SwitchConfig {
    let mut config = Rig::config(PORTS, 8);
    let link = TlpLink::default();
    let old = TlpLink { mode: Mode::NonFlit, ..link };
    for (at, port) in config.ports.iter_mut().enumerate() {
        port.role = match at {
            0 => PortRole::Usp(link),
            1 => PortRole::Usp(old),
            2 | 3 => PortRole::Dsp(link),
            4 => PortRole::Dsp(old),
            5..=7 => PortRole::Fport(link),
            8 => PortRole::Cpu,
            _ => PortRole::L2,
        };
    }
    config
}

fn below(rng: &mut Rng, bound: u64) -> usize {
    usize::try_from(rng.below(bound)).unwrap_or(0)
}

fn byte(rng: &mut Rng, bound: u64) -> u8 {
    u8::try_from(rng.below(bound)).unwrap_or(0)
}

fn pid(rng: &mut Rng) -> Pid {
    Pid::from_low_bits(u16::try_from(rng.below(PIDS)).unwrap_or(0))
}

fn port(rng: &mut Rng) -> PortId {
    PortId::new(below(rng, PORTS as u64)).unwrap_or_default()
}

/// An address range that drawn addresses may fall into.
fn window(rng: &mut Rng) -> Window {
    let base = rng.below(1 << 16) << 32;
    Window::new(base, base + (rng.below(1 << 16) << 32))
}

fn vppb(rng: &mut Rng) -> Vppb {
    let binding = match rng.below(5) {
        0 => Binding::Unbound,
        1 => Binding::Fabric { spid: pid(rng), dpid: pid(rng) },
        2 => Binding::Ld { port: port(rng), ld: u16::from(byte(rng, 4)) },
        _ => Binding::Port(port(rng)),
    };
    let bridge = Bridge {
        command: u16::from(byte(rng, 8)),
        primary: byte(rng, 256),
        secondary: byte(rng, 256),
        subordinate: byte(rng, 256),
        ari: rng.below(2) == 0,
        io: window(rng),
        memory: window(rng),
        prefetchable: window(rng),
    };
    Vppb { function: byte(rng, 256), bridge, bar: Window::OFF, binding }
}

fn edge(rng: &mut Rng, role: Role) -> Result<EdgePort, TableError> {
    let mut edge = EdgePort::new(role, pid(rng), Fast::new(16, 64)?, Ldst::new(16, 64)?);
    let side = match rng.below(3) {
        0 => Side::Above,
        _ => Side::Below(byte(rng, 4)),
    };
    edge.vcs = (rng.below(5) > 0).then(|| (byte(rng, u64::from(VCSES) + 1), side));
    edge.prefixes = Prefixes::from_bits(byte(rng, 4));
    let (mut every, mut access) = (Access::default(), Access::default());
    for bits in 0..u16::try_from(PIDS).unwrap_or(0) {
        let pid = Pid::from_low_bits(bits);
        for (all, some) in [
            (&mut every.gmv, &mut access.gmv),
            (&mut every.vtv, &mut access.vtv),
            (&mut every.lav, &mut access.lav),
        ] {
            all.allow(pid)?;
            if rng.below(4) > 0 {
                some.allow(pid)?;
            }
        }
    }
    // first all PIDs are allowed: tables refuse entries for targets that are not
    edge.set_access(every.into());
    let size = byte(rng, 8);
    let base = Hpa(1 << 43 | rng.below(4) << 44);
    edge.configure_fast(size, base, Hpa(base.0 + (8 << (36 + size))))?;
    edge.configure_ldst(size, Hpa(1 << 48), Hpa((1 << 48) + (8 << (36 + size))))?;
    for at in 0..8 {
        let interleave = Interleave::from_codes(byte(rng, 4), byte(rng, 7)).unwrap_or_default();
        let target = match interleave.ways_code() {
            0 => Target::Direct(pid(rng)),
            _ => Target::Interleaved(u16::from(byte(rng, 48))),
        };
        let gim = rng.below(3) == 0;
        let fast = (rng.below(4) > 0).then_some(FastEntry { gim, interleave, target });
        let ldst = (rng.below(4) > 0).then_some(LdstEntry { segment: gim, interleave, target });
        edge.set_fast(at, &[fast])?;
        edge.set_ldst(at, &[ldst])?;
    }
    for at in 0..64 {
        edge.set_fast_idt(at, &[pid(rng)])?;
        edge.set_ldst_idt(at, &[pid(rng)])?;
    }
    let entry = |rng: &mut Rng| ReRouterEntry {
        dpid: pid(rng),
        segment: None,
        requester: Bdf::new(byte(rng, 4), 0, 0),
    };
    let first = entry(rng);
    edge.set_rerouter(0, &[Some(first)])?;
    edge.set_access(access.into()); // entries stay, lookups ask again
    Ok(edge)
}

/// Gives a port logical devices, of which some have the same host.
fn logical(rng: &mut Rng, port: &mut EdgePort) {
    let one = edge(rng, Role::Dsp).expect("settings within range");
    for ld in 0..4 {
        let part = match rng.below(8) {
            0 => None,
            1 => Some(edge(rng, Role::Dsp).expect("settings within range")),
            _ => Some(one.clone()),
        };
        port.set_ld(ld, part).expect("below 16");
    }
}

/// Tables of the switch, drawn at random. Entries that contradict others are left out.
///
/// # Panics
/// Never: the numbers are within the tables' bounds.
#[must_use]
pub fn tables(rng: &mut Rng, ports: PortSet) -> Tables {
    let mut tables = Tables::new(ports, 16).expect("16 groups");
    for (at, roles) in [
        (0, &[Role::Usp][..]),
        (1, &[Role::Usp]),
        (2, &[Role::Dsp, Role::Gfd]),
        (3, &[Role::Dsp, Role::Gfd]),
        (4, &[Role::Dsp]),
    ] {
        let role = roles.get(below(rng, roles.len() as u64)).copied().unwrap_or(Role::Dsp);
        let mut made = edge(rng, role).expect("settings within range");
        if role == Role::Dsp && rng.below(2) == 0 {
            logical(rng, &mut made);
        }
        let port = PortId::new(at).expect("below 64");
        tables.set_edge(port, Some(made)).expect("the port is there");
    }
    for vcs in 0..VCSES {
        let bridges: Vec<Vppb> = (0..below(rng, 5)).map(|_| vppb(rng)).collect();
        if let Ok(made) = Vcs::new(vppb(rng), None, &bridges) {
            let _ = tables.set_vcs(vcs, Some(made)); // bound twice: left out
        }
    }
    for at in 0..16 {
        let highest = byte(rng, 8);
        let entry = RgtEntry {
            ports: core::array::from_fn(|_| byte(rng, 8)),
            highest,
            primary: highest.min(byte(rng, 8)),
            mode: [RgtMode::Random, RgtMode::CongestionAvoiding][below(rng, 2)],
            mix: byte(rng, 8),
        };
        let _ = tables.set_rgt(at, &[entry]); // a port that is not there: left out
    }
    for pid in 0..usize::try_from(PIDS).unwrap_or(0) {
        let entry = match rng.below(4) {
            0 => DrtEntry::Invalid,
            1 => DrtEntry::Group(byte(rng, 16)),
            _ => DrtEntry::Port(byte(rng, 9)),
        };
        let _ = tables.set_drt(pid, &[entry]);
        if rng.below(8) == 0 {
            let to = match rng.below(2) {
                0 => Assigned::Switch,
                _ => Assigned::Port(port(rng)),
            };
            let _ = tables.assign(Pid::from_low_bits(u16::try_from(pid).unwrap_or(0)), to);
        }
    }
    tables
}

/// A frame with `rest` behind its addresses. Mostly its PIDs and its address become some that
/// tables know.
pub fn frame(rng: &mut Rng, port: usize, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0];
    for at in [5, 11] {
        if let Some(byte) = frame.get_mut(at) {
            *byte = u8::try_from(port).unwrap_or(0);
        }
    }
    frame.extend_from_slice(rest);
    let pbr = matches!(frame.get(17..19), Some(&[0, 1 | 5])); // TLPs and CXL.mem with PTH
    if let Some(pids) = frame.get_mut(21..24).filter(|_| pbr && rng.below(4) > 0) {
        let (from, to) = (pid(rng).bits(), pid(rng).bits());
        let [high, mid] = (from << 4).to_be_bytes();
        let [top, low] = to.to_be_bytes();
        for (place, byte) in pids.iter_mut().zip([high, mid | top, low]) {
            *place = byte;
        }
    }
    let address = if pbr { 32 } else { 28 };
    if let Some(place) = frame.get_mut(address..address + 8).filter(|_| rng.below(3) == 0) {
        // as large as `edge` configures its windows
        let span = 8 << (36 + rng.below(8));
        let drawn = match rng.below(8) {
            0 => rng.below(1 << 49),
            1..=4 => (1 << 43 | rng.below(4) << 44) + rng.below(span), // FAST
            5 | 6 => (1 << 48) + rng.below(span),                      // LDST
            _ => rng.below(1 << 33),
        } & !0x3F;
        for (place, byte) in place.iter_mut().zip(drawn.to_be_bytes()) {
            *place = byte;
        }
    }
    frame
}
