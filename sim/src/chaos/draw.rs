//! Draws the parts of an episode from a seed: configurations, reloads, streams and stray frames.
//!
//! Source: docs/spec/pipeline.md §12 (which settings there are, and their ranges).

use weft_base::rng::Rng;
use weft_dataplane::buffer::Headroom;
use weft_dataplane::config::{
    MirrorConfig, PfcMode, Sharing, StormAction, SwitchConfig, WredConfig,
};
use weft_dataplane::egress::Weighted;
use weft_dataplane::islip::Discipline;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{Alpha, PerPri, PortId, PortSet, Pri, PriSet};
use weft_parsers::{AfhMode, Format, MacAddr, Pfc, Vid, mac_control};

use crate::frames::{FrameSpec, stations_known};
use crate::setup::Setup;
use crate::station::Stream;
use crate::switch::SwitchTiming;

/// One of `choices`, each equally likely.
pub(super) fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    let index = usize::try_from(rng.below(choices.len() as u64)).unwrap_or(0);
    *choices.get(index).expect("below the number of choices")
}

/// A number from `least` to `most`, both included.
pub(super) fn between(rng: &mut Rng, least: u64, most: u64) -> u64 {
    least + rng.below(most - least + 1)
}

fn index(rng: &mut Rng, count: usize) -> usize {
    usize::try_from(rng.below(count as u64)).unwrap_or(0)
}

/// Draws a switch and the conditions around it.
pub(super) fn setup(rng: &mut Rng) -> (Setup, SwitchTiming) {
    let ports = pick(rng, &[1, 2, 3, 4, 4, 6, 8]);
    let mut setup = Setup::new(ports, pick(rng, &[4, 8]));
    setup.rate = LinkRate::gbps(pick(rng, &[100, 100, 200, 400]));
    if rng.chance(1, 2) {
        setup.rates = vec![(index(rng, ports), LinkRate::gbps(pick(rng, &[10, 25, 40, 50])))];
    }
    setup.cable_m = pick(rng, &[1, 10, 100]);
    setup.latency = Span::from_ns(pick(rng, &[0, 300, 500, 800]));
    setup.frame_len_max = pick(rng, &[1_518, 1_518, 2_048, 9_216]);
    setup.cell_bytes = pick(rng, &[64, 128, 256, 512, 2_048]);
    setup.buffer_bytes = between(rng, 256, 4_096) << 10;
    setup.pfc = rng.chance(3, 4);
    setup.ecn = rng.chance(3, 4);
    setup.seed = rng.next_u64();
    // Headroom grows with ports and classes; the buffer must hold it and leave something to share.
    let cells: u64 = (0..ports).map(|p| u64::from(setup.headroom(p).cells(setup.cell_bytes))).sum();
    let reserved = (cells + 64 * ports as u64) * 4 * u64::from(setup.cell_bytes);
    setup.buffer_bytes += if setup.pfc { reserved } else { 0 };
    let around = SwitchTiming {
        latency: setup.latency,
        propagation: Headroom::propagation(setup.cable_m),
        propagations: Vec::new(),
        overhead: rng.chance(7, 8),
        cut_through: setup.seed.is_multiple_of(4),
        drop_runts: rng.chance(7, 8),
        cable_frames: 1_024,
        fronts: false,
        chunks: rng.chance(1, 4).then(|| 2_048 + index(rng, 4_096)),
    };
    (setup, around)
}

/// Changes settings that a running switch cannot take over.
pub(super) fn fixed(rng: &mut Rng, config: &mut SwitchConfig) {
    for port in &mut config.ports {
        port.parse.afh =
            pick(rng, &[AfhMode::Auto, AfhMode::Auto, AfhMode::Gen1, AfhMode::Gen2, AfhMode::Lite]);
    }
    config.crossbar.egress_queue_frames = pick(rng, &[1, 2, 8, 32]);
    if rng.chance(1, 8) {
        // Static sharing needs room for a longest frame in each VOQ (docs/spec/pipeline.md §4).
        config.buffer.sharing = Sharing::Static;
        let queues = config.ports.len() * config.ports.len() * config.pris;
        let frame = config.ports.first().map_or(0, |p| p.frame_len_max).div_ceil(64);
        let most = u32::try_from(queues * (frame + 1)).unwrap_or(u32::MAX);
        config.buffer.total_cells = config.buffer.total_cells.max(most).saturating_add(most);
    }
    config.buffer.voq_reserve_cells = pick(rng, &[0, 0, 4]);
    if config.buffer.voq_reserve_cells > 0 {
        // Reserves come out of the buffer before anything is shared.
        let queues = config.ports.len() * config.ports.len() * config.pris;
        config.buffer.total_cells += 4 * u32::try_from(queues).unwrap_or(0);
    }
    if rng.chance(1, 2) {
        stations_known(config, Vid::from_low_bits(1));
    }
    config.forward.flood_unknown = rng.chance(7, 8);
    config.forward.ageing = pick(rng, &[Span::ZERO, Span::from_us(500), Span::from_ms(300_000)]);
    config.pfc.watchdog_detect = pick(rng, &[Span::ZERO, Span::from_us(100), Span::from_ms(200)]);
    config.pfc.watchdog_restore = pick(rng, &[Span::from_us(50), Span::from_us(400)]);
}

/// Changes settings that a reload may change.
pub(super) fn hot(rng: &mut Rng, config: &mut SwitchConfig) {
    let ports = config.ports.len();
    let pris = PriSet::first(config.pris);
    let alphas = [(1, 8), (1, 4), (1, 2), (1, 1), (5, 3), (4, 1), (8, 1)];
    config.buffer.alpha = PerPri(Pri::ALL.map(|_| {
        let (num, den) = pick(rng, &alphas);
        Alpha::ratio(num, den).unwrap_or_default()
    }));
    config.buffer.xon_offset_cells = u32::try_from(rng.below(64)).unwrap_or(0);
    config.crossbar.iterations = pick(rng, &[1, 2, 3, 4]);
    config.crossbar.speedup = pick(rng, &[1, 2, 2, 4]);
    config.crossbar.discipline = if rng.chance(1, 2) {
        Discipline::Strict
    } else {
        Discipline::Weighted(PerPri([1, 2, 4, 8, 1, 2, 4, 8]))
    };
    let most = u64::from(config.buffer.total_cells) * u64::from(config.buffer.cell_bytes);
    config.ecn.low_bytes = rng.below(most / 16 + 1);
    config.ecn.high_bytes = config.ecn.low_bytes + rng.below(most / 8 + 1);
    config.wred = PerPri(Pri::ALL.map(|_| {
        let low_bytes = rng.below(most / 16 + 1);
        let high_bytes = low_bytes + rng.below(most / 8 + 1);
        let max_percent = pick(rng, &[0, 10, 50, 100]);
        rng.chance(1, 3).then_some(WredConfig { low_bytes, high_bytes, max_percent })
    }));
    config.pfc.mode = if rng.chance(2, 3) {
        PfcMode::IngressPg
    } else {
        let xoff_bytes = between(rng, 4_096, 262_144);
        PfcMode::EgressQueue { xoff_bytes, xon_bytes: xoff_bytes / 2 }
    };
    config.pfc.watchdog_action = pick(rng, &[StormAction::Drop, StormAction::Forward]);
    for port in &mut config.ports {
        let egress = &mut port.egress;
        egress.mode = pick(rng, &[Weighted::Wrr, Weighted::Dwrr]);
        egress.weights = PerPri(Pri::ALL.map(|_| u32::try_from(between(rng, 1, 50)).unwrap_or(1)));
        egress.strict = PriSet::from_bits(pick(rng, &[0, 0b1000, 0b1100])).and(pris);
        egress.pri_max_rate = PerPri::default();
        egress.burst = Span::from_us(20);
        if rng.chance(1, 8) {
            let pri = Pri::from_low_bits(u8::try_from(rng.below(4)).unwrap_or(0));
            egress.pri_max_rate[pri] = Some(LinkRate::gbps(pick(rng, &[1, 5, 20])));
        }
        egress.port_max_rate = rng.chance(1, 16).then(|| LinkRate::gbps(pick(rng, &[5, 20, 50])));
    }
    let to = PortId::new(index(rng, ports)).unwrap_or_default();
    // A port cannot mirror itself.
    let from =
        PortSet::from_bits(rng.next_u64()).and(PortSet::first(ports)).without(PortSet::only(to));
    config.mirror = (rng.chance(1, 8) && !from.is_empty()).then_some(MirrorConfig { from, to });
}

/// Draws a stream from station `src`.
pub(super) fn stream(rng: &mut Rng, setup: &Setup, src: usize, now: Instant, count: u64) -> Stream {
    let formats =
        [Format::Standard, Format::AfhGen1, Format::AfhGen2, Format::AfhLite, Format::Other];
    let pri = Pri::from_low_bits(u8::try_from(rng.below(setup.pris as u64)).unwrap_or(0));
    let len = pick(rng, &[60, 60, 64, 128, 256, 1_024, 1_400, setup.frame_len_max]);
    let dst = index(rng, setup.ports + 1); // one too many: no station has that address
    let mut spec = FrameSpec::new(pick(rng, &formats), src, dst, len.max(80), pri, setup.pris);
    spec.ecn = u8::try_from(rng.below(4)).unwrap_or(0);
    spec.payload_bits = u32::try_from(rng.below(1 << 24)).unwrap_or(0);
    let mut template = spec.to_vec();
    if rng.chance(1, 16) {
        // Broadcast, a multicast group, and the bridge group 01-80-C2-00-00-00, which is not forwarded.
        let group = pick(rng, &[[0xFF; 6], [0x01, 0, 0x5E, 0, 0, 1], [0x01, 0x80, 0xC2, 0, 0, 0]]);
        template.iter_mut().zip(group).for_each(|(byte, group)| *byte = group);
    }
    let len_min = if rng.chance(1, 2) { template.len() } else { 80.min(template.len()) };
    let gap = match rng.below(3) {
        0 => Span::ZERO,
        _ => Span::from_ns(between(rng, 5, 500)),
    };
    Stream { id: u16::try_from(src).unwrap_or(0), pri, template, len_min, gap, start: now, count }
}

/// Draws a PFC frame, sometimes 802.3x PAUSE or an unknown opcode, sometimes with reserved bits set.
pub(super) fn pause(rng: &mut Rng) -> Vec<u8> {
    let mut out = [0; mac_control::FRAME_LEN];
    let mut pfc = Pfc::default();
    for class in 0..8 {
        if rng.chance(1, 2) {
            let quanta = pick(rng, &[0, 1, 100, 1_000, 0xFFFF]);
            pfc = pfc.with(class, quanta);
        }
    }
    pfc.emit(MacAddr([0x02, 0, 0, 0, 0x10, 1]), &mut out);
    let opcode = match rng.below(16) {
        0 => 0x0001,
        1 => 0x0002,
        2 => 0x7FFF,
        _ => 0x0101,
    };
    if let Some(place) = out.get_mut(14..16) {
        place.copy_from_slice(&u16::to_be_bytes(opcode));
    }
    if rng.chance(1, 16)
        && let Some(place) = out.get_mut(16)
    {
        *place = 1; // reserved bits of the vector, which change nothing
    }
    out.to_vec()
}

/// Draws a frame of random bytes, which may begin like a valid one.
pub(super) fn stray(rng: &mut Rng, setup: &Setup) -> Vec<u8> {
    let len = usize::try_from(between(rng, 1, 300)).unwrap_or(60);
    let src = index(rng, setup.ports);
    let pri = Pri::default();
    let good = FrameSpec::new(Format::Standard, src, 0, 60, pri, setup.pris).to_vec();
    let keep = index(rng, 40);
    let mut out: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
    out.iter_mut().zip(&good).take(keep).for_each(|(to, from)| *to = *from);
    out
}
