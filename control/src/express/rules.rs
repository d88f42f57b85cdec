//! A configuration in the form in which the XDP program looks it up.
//!
//! [`Snapshot`] → [`PortRules`] by port, and members by VID.
//!
//! Source: docs/spec/pipeline.md §1 to §3; docs/express.md.

use weft_dataplane::config::{PortConfig, PortRole, PriSource, TlpConfig};
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::types::{PortId, Pri, PriSet};
use weft_dataplane::vlan::PortMode;
use weft_parsers::tlp::Mode;
use weft_parsers::{AfhMode, Format, Gen2Order, Vid};
use weft_xdp::layout::{NO_SOURCE, NO_VID, PortRules, TlpRules, VIDS, role, tags};

#[must_use]
pub fn ports(snapshot: &Snapshot) -> Vec<PortRules> {
    let ids = (0..).map_while(PortId::new);
    ids.zip(&snapshot.config.ports).map(|(id, port)| port_rules(snapshot, id, port)).collect()
}

/// By VID, the ports of the VLAN as bits.
#[must_use]
pub fn members(snapshot: &Snapshot) -> Vec<u64> {
    let vids = (0..u16::try_from(VIDS).unwrap_or(u16::MAX)).filter_map(Vid::new);
    vids.map(|vid| snapshot.vlan.members(vid).bits()).collect()
}

fn port_rules(snapshot: &Snapshot, id: PortId, port: &PortConfig) -> PortRules {
    let (tags, untagged) = match &port.vlan {
        PortMode::Transparent { pvid } => (tags::AS_ARRIVED, Some(*pvid)),
        PortMode::Access { pvid } => (tags::NEVER, Some(*pvid)),
        PortMode::Trunk { native, .. } => (tags::ALL_BUT_NATIVE, *native),
    };
    let carries = Format::ALL.iter().zip(&snapshot.carriers);
    let carries = carries.filter(|(_, ports)| ports.contains(id));
    let maps = &snapshot.config.maps;
    let parse = &port.parse;
    PortRules {
        // Slots have the order of `PriSource::ALL`, which the program indexes by; a code without an entry is priority
        // 0.
        maps: core::array::from_fn(|slot| {
            let map = PriSource::ALL.get(slot).map_or(&[][..], |&source| maps.of(source));
            core::array::from_fn(|code| map.get(code).map_or(0, |pri| pri.get()))
        }),
        // Decided here for each combination of fields that a frame may carry, so that the program needs one lookup.
        by: core::array::from_fn(|carried| {
            PriSource::deciding(&port.trust, carried).map_or(NO_SOURCE, |source| source as u8)
        }),
        port_mac: parse.port_mac.0,
        tpids: parse.tpids.lanes(),
        mac_type1: parse.mac_type1,
        mac_type2: parse.mac_type2,
        udp_type1: parse.udp_type1,
        udp_type2: parse.udp_type2,
        untagged: untagged.map_or(NO_VID, Vid::get),
        frame_len_max: u16::try_from(port.frame_len_max).unwrap_or(u16::MAX),
        default_pri: port.default_pri.get(),
        afh: match parse.afh {
            AfhMode::None => 0,
            AfhMode::Gen1 => 1,
            AfhMode::Gen2 => 2,
            AfhMode::Lite => 3,
            AfhMode::Auto => 4,
        },
        gen2_order: match parse.gen2_order {
            Gen2Order::Slap => 0,
            Gen2Order::AsDocumented => 1,
        },
        tags,
        carries: carries.fold(0, |bits, (format, _)| bits | 1 << *format as u8),
        express_pris: express_pris(snapshot, id).bits(),
        tlp: tlp_rules(&snapshot.config.tlp, port.role),
    }
}

fn tlp_rules(config: &TlpConfig, port: PortRole) -> TlpRules {
    let role = match port {
        PortRole::L2 => role::L2,
        PortRole::Usp(_) => role::USP,
        PortRole::Dsp(_) => role::DSP,
        PortRole::Fport(_) => role::FPORT,
        PortRole::Cpu => role::CPU,
    };
    let link = port.link();
    TlpRules {
        tc_to_pri: config.tc_to_pri.map(Pri::get),
        oui: config.oui.0,
        role,
        payload_max: link.map_or(0, |link| link.payload_max),
        uio_req_pri: config.uio_req_pri.get(),
        uio_cpl_pri: config.uio_cpl_pri.get(),
        flit: u8::from(link.is_some_and(|link| link.mode == Mode::Flit)),
        spare: [0; 7],
    }
}

/// Priorities of `input` whose frames the kernel may forward: the lossy ones. Empty if all frames are mirrored, or if
/// the port is in a LAG, as stations are learned at another of its ports.
fn express_pris(snapshot: &Snapshot, input: PortId) -> PriSet {
    let is_mirrored = snapshot.config.mirror.is_some_and(|mirror| mirror.from.contains(input));
    if is_mirrored || snapshot.links.members(input).len() > 1 {
        return PriSet::EMPTY;
    }
    snapshot.pris.iter().filter(|&pri| !snapshot.is_lossless(input, pri)).collect()
}
