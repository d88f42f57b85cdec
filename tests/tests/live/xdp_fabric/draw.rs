//! Tables and frames, drawn.
//!
//! A draw to [`Tables`] of a switch with ports of all roles, and to a frame for one of them.
//!
//! Units: bytes without FCS.
//! Source: docs/spec/cxl-fabric.md "Port roles"; docs/spec/wire-formats.md §3.5, §3.7, §3.7a.

use weft_base::rng::Rng;
use weft_dataplane::config::{LiveSizes, PortRole, SwitchConfig, TlpLink};
use weft_dataplane::pbr::tables::Assigned;
use weft_dataplane::pbr::{Access, EdgePort, Fast, Ldst, Prefixes, Role, Tables};
use weft_dataplane::time::LinkRate;
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::MacAddr;
use weft_parsers::fabric::{DrtEntry, FastEntry, Hpa, Interleave, Pid, RgtEntry, Target};
use weft_parsers::tlp::fast_frame::LinkWords;
use weft_parsers::tlp::{Mode, Oui, Pth};

pub const FRAME_LEN_MAX: usize = 1_518;
/// A link that takes less than others.
const NARROW: usize = 300;
pub const PORTS: usize = 9;
/// The first port that takes no TLPs: Ethernet, then the switch's own functions.
pub const ETHERNET: usize = 7;
/// Where the fabric's windows begin; segments of 64 GiB.
const BASE: u64 = 1 << 40;
const SEGMENT: u64 = 64 << 30;
/// PIDs that are spoken of.
const PIDS: u64 = 24;

pub fn port(number: usize) -> PortId {
    PortId::new(number).unwrap()
}

/// Ports of all roles: hosts, devices, a G-FAM device, other switches, an HBR link of the old layout.
fn roles() -> [PortRole; PORTS] {
    let (flit, small) = (TlpLink::default(), TlpLink { payload_max: 128, ..TlpLink::default() });
    let old = TlpLink { mode: Mode::NonFlit, ..TlpLink::default() };
    [
        PortRole::Usp(flit),
        PortRole::Dsp(flit),
        PortRole::Dsp(flit),
        PortRole::Fport(flit),
        PortRole::Fport(flit),
        PortRole::Usp(old),
        PortRole::Usp(small),
        PortRole::L2,
        PortRole::Cpu,
    ]
}

/// A switch; `lossless` says how many of its lower priorities are.
pub fn config(lossless: usize) -> SwitchConfig {
    let mut config = SwitchConfig::live(&LiveSizes {
        names: (0..PORTS).map(|n| format!("p{n}")).collect(),
        rate: LinkRate::gbps(100),
        pris: 8,
        cells: 4_096,
        cell_bytes: 1_728,
        headroom_cells: 4,
        frame_len_max: FRAME_LEN_MAX,
    });
    for (n, (config, role)) in config.ports.iter_mut().zip(roles()).enumerate() {
        config.role = role;
        config.parse.port_mac = MacAddr([2, 0, 0, 0, 0, u8::try_from(n).unwrap()]);
        config.frame_len_max = if n == 4 { NARROW } else { FRAME_LEN_MAX };
    }
    config.pfc.enabled = lossless > 0;
    config.pfc.lossless = weft_dataplane::types::PriSet::first(lossless);
    config
}

pub fn pid(rng: &mut Rng) -> Pid {
    Pid::from_low_bits(0x100 + low(rng.below(PIDS)))
}

fn low(bits: u64) -> u16 {
    u16::try_from(bits & 0xFFFF).unwrap()
}

/// An edge port whose window has segments of all kinds; the FM took some of its targets away afterwards.
fn edge(rng: &mut Rng, role: Role, own: u16) -> EdgePort {
    let tables = (Fast::new(16, 64).unwrap(), Ldst::new(16, 16).unwrap());
    let mut edge = EdgePort::new(role, Pid::from_low_bits(own), tables.0, tables.1);
    edge.prefixes = Prefixes::from_bits(u8::try_from(rng.below(4)).unwrap());
    let mut access = Access::default();
    for n in 0..PIDS {
        let pid = Pid::from_low_bits(0x100 + low(n));
        access.gmv.allow(pid).unwrap();
        access.vtv.allow(pid).unwrap();
    }
    edge.set_access(access.clone().into());
    // Above the segments' indices, so that those of addresses wrap.
    let base = BASE + SEGMENT * rng.below(40);
    edge.configure_fast(0, Hpa(base), Hpa(base + (8 + rng.below(9)) * SEGMENT)).unwrap();
    for index in 0..16 {
        let gim = rng.chance(1, 12);
        let entry = match rng.below(10) {
            0 => None,
            1..=3 => {
                let ways = 1 + u8::try_from(rng.below(3)).unwrap();
                let granularity = u8::try_from(rng.below(7)).unwrap();
                let interleave = Interleave::from_codes(ways, granularity).unwrap();
                let target = Target::Interleaved(low(rng.below(56)));
                Some(FastEntry { gim, interleave, target })
            }
            _ => {
                let (interleave, target) = (Interleave::NONE, Target::Direct(pid(rng)));
                Some(FastEntry { gim, interleave, target })
            }
        };
        edge.set_fast(index, &[entry]).unwrap();
    }
    for index in 0..64 {
        let to = if rng.chance(1, 12) { Pid::NONE } else { pid(rng) };
        edge.set_fast_idt(index, &[to]).unwrap();
    }
    for _ in 0..3 {
        access.gmv.forbid(pid(rng));
    }
    edge.set_access(access.into());
    edge
}

/// Tables of the switch.
pub fn tables(rng: &mut Rng, ports: PortSet) -> Tables {
    let mut tables = Tables::new(ports, 4).unwrap();
    let edges = [
        (0, Role::Usp, 0x0A0),
        (1, Role::Dsp, 0x0A1),
        (2, Role::Gfd, 0x0A2),
        (5, Role::Usp, 0x0A5),
        (6, Role::Usp, 0x0A6),
    ];
    for (at, role, own) in edges {
        tables.set_edge(port(at), Some(edge(rng, role, own))).unwrap();
    }
    for group in 0..4 {
        let ports = core::array::from_fn(|_| u8::try_from(3 + rng.below(2)).unwrap());
        let entry = RgtEntry { ports, highest: 3, primary: 1, ..RgtEntry::default() };
        tables.set_rgt(group, &[entry]).unwrap();
    }
    for n in 0..PIDS {
        let at = 0x100 + usize::from(low(n));
        let entry = match rng.below(12) {
            0 => DrtEntry::Invalid,
            1 => DrtEntry::Group(u8::try_from(rng.below(4)).unwrap()),
            2 => DrtEntry::Port(5),
            _ => DrtEntry::Port([0, 1, 2, 3, 4, 6, 3, 2, 8][usize::from(low(rng.below(9)))]),
        };
        tables.set_drt(at, &[entry]).unwrap();
        let owner = match rng.below(12) {
            0 => Some(Assigned::Switch),
            1..=3 => Some(Assigned::Port(port(usize::from(low(rng.below(7)))))),
            _ => None,
        };
        if let Some(owner) = owner {
            tables.assign(Pid::from_low_bits(low(at as u64)), owner).unwrap();
        }
    }
    tables
}

/// A frame for port `input`: mostly as its link has them, with a TLP that is often one of the commonest.
pub fn frame(rng: &mut Rng, tables: &Tables, input: PortId, oui: Oui) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, input.get()];
    let partner = if rng.chance(1, 40) { 0xEE } else { input.get() };
    frame.extend([2, 0, 0, 9, 9, partner]);
    if rng.chance(1, 60) {
        frame.extend([0x81, 0, 0, 1]);
    }
    let words = LinkWords::new(oui);
    let own = tables.edge(input).is_none_or(|edge| edge.role == Role::Gfd);
    let with_pth = own != rng.chance(1, 30);
    frame.extend(if with_pth { words.pbr } else { words.hbr }.to_be_bytes());
    if rng.chance(1, 40) {
        let prefix = 0x8E00_0000 | u32::from(pid(rng).bits());
        frame.extend(prefix.to_be_bytes());
    }
    if with_pth {
        let mut pth = Pth::new(pid(rng), pid(rng));
        pth.pif = rng.chance(1, 6);
        pth.dsar = rng.chance(1, 2);
        pth.hie = rng.chance(1, 4);
        if rng.chance(1, 50) {
            pth.dpid = Pid::NONE;
        }
        let mut bytes = pth.emit();
        if rng.chance(1, 40) {
            bytes[0] ^= 1 << rng.below(8);
        }
        frame.extend(bytes);
    }
    tlp(rng, tables, input, &mut frame);
    match rng.below(12) {
        0 => frame.truncate(usize::from(low(14 + rng.below(frame.len() as u64 - 14)))),
        1 => {
            let at = usize::from(low(12 + rng.below(frame.len() as u64 - 12)));
            frame[at] ^= 1 << rng.below(8);
        }
        _ => {}
    }
    if rng.chance(9, 10) && frame.len() < 60 {
        let byte = if rng.chance(1, 2) { 0 } else { 0xA5 };
        frame.resize(60, byte);
    }
    if rng.chance(1, 6) {
        frame.extend((0..rng.below(40)).map(|n| low(n).to_be_bytes()[1] | 1));
    }
    frame
}

/// A TLP: what its first 16 bytes say, and the payload.
fn tlp(rng: &mut Rng, tables: &Tables, input: PortId, frame: &mut Vec<u8>) {
    const REQUESTS: [u8; 6] = [0x03, 0x20, 0x40, 0x60, 0x22, 0x61];
    const COMPLETIONS: [u8; 5] = [0x0A, 0x4A, 0x0C, 0x0D, 0x48];
    const OTHERS: [u8; 8] = [0x02, 0x04, 0x44, 0x0B, 0x30, 0x74, 0x5B, 0x4C];
    let mut pick = |of: &[u8]| of[usize::from(low(rng.below(of.len() as u64)))];
    let types =
        [pick(&REQUESTS), pick(&REQUESTS), pick(&REQUESTS), pick(&COMPLETIONS), pick(&OTHERS)];
    let kinds = if rng.chance(1, 6) { 5 } else { 4 };
    let first = types[usize::from(low(rng.below(kinds)))];
    let words = match rng.below(8) {
        0 => 1 + rng.below(200),
        1 => 4 + rng.below(2),
        _ => 1 + rng.below(36),
    };
    let mut dw0 = u32::from(first) << 24 | u32::from(low(words));
    dw0 |= u32::from(low(rng.below(8))) << 21;
    if rng.chance(1, 20) {
        dw0 |= 1 << (13 + rng.below(8));
    }
    let window = tables.edge(input).map_or((0, BASE, BASE), |edge| {
        let (size, Hpa(base), Hpa(limit)) = edge.fast().segments().config();
        (size, base, limit)
    });
    let (_, base, limit) = window;
    let far = base + rng.below((limit - base).max(1));
    let address = match rng.below(12) {
        0 => rng.next_u64(),
        1 => base.wrapping_sub(4_096),
        2 => limit,
        _ => far,
    } & if rng.chance(1, 20) { !0 } else { !0xFFF };
    let odd = u64::from(rng.chance(1, 30));
    let address = (address & !3) | odd | (0x140 * u64::from(rng.chance(1, 2)));
    frame.extend(dw0.to_be_bytes());
    frame.extend([1, 2, 0, 0x34]);
    let wide = matches!(first, 0x20 | 0x60 | 0x22 | 0x61 | 0x30 | 0x74);
    if wide {
        frame.extend(address.to_be_bytes());
    } else {
        frame.extend(address.to_be_bytes()[4..].iter());
    }
    if first & 0x40 != 0 {
        frame.extend((0..words * 4).map(|n| low(n * 7).to_be_bytes()[1] | 1));
    } else if first == 0x61 {
        frame.extend((0..words * 4).map(|_| 0x77));
    }
}
