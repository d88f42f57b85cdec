//! The whole pipeline: bytes as a run of frames, pauses, link flaps, stalls, reloads and time steps.
//!
//! The first two bytes are settings; then come operations of a few bytes each.
//!
//! Source: docs/spec/pipeline.md §1 to §10.

use std::sync::Arc;

use weft_dataplane::config::{PriSource, SwitchConfig};
use weft_dataplane::time::Span;
use weft_dataplane::types::{Alpha, PerPri};
use weft_parsers::mac_control::FRAME_LEN;
use weft_parsers::{AfhMode, Gen2Order, MacAddr, Pfc};

use super::Input;
use super::frames;
use super::rig::{FRAME_LEN_MAX, Rig};

/// Operations of one run; short runs make short findings.
const OPS_MAX: usize = 512;
const PORTS: usize = 4;

/// The switch that two bytes describe.
fn config(shape: u8, modes: u8) -> SwitchConfig {
    let mut config = Rig::config(PORTS, if shape & 1 == 0 { 4 } else { 8 });
    config.forward.flood_unknown = shape & 2 == 0;
    config.pfc.enabled = shape & 4 == 0;
    config.ecn.enabled = shape & 8 == 0;
    for (at, port) in config.ports.iter_mut().enumerate() {
        port.parse.afh = match modes >> (2 * at) & 3 {
            0 => AfhMode::Auto,
            1 => AfhMode::Gen1,
            2 => AfhMode::Gen2,
            _ => AfhMode::Lite,
        };
        if shape & 16 != 0 {
            port.parse.gen2_order = Gen2Order::AsDocumented;
        }
        if shape & 32 != 0 {
            port.trust = vec![PriSource::Tc, PriSource::Dscp, PriSource::Pcp];
        }
    }
    config
}

/// Runs the operations that `bytes` describe and closes the books.
///
/// # Panics
/// The switch panics, or a frame, cell or chunk is not accounted for.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (shape, modes) = (input.byte(), input.byte());
    // With a few chunks only, the pool runs empty as well.
    let chunks = if shape & 64 == 0 { 1_024 } else { 96 };
    let mut rig = Rig::new(config(shape, modes), chunks);
    let valid = frames::valid();
    for _ in 0..OPS_MAX {
        if input.is_empty() {
            break;
        }
        operate(&mut rig, &mut input, &valid);
        rig.step(Span::from_ns(1));
        rig.check();
    }
    rig.finish();
}

/// Takes an operation off `input` and carries it out.
fn operate(rig: &mut Rig, input: &mut Input<'_>, valid: &[Vec<u8>]) {
    let op = input.byte();
    let port = usize::from(op >> 4) % PORTS;
    match op & 15 {
        // A frame of its own bytes.
        0..=3 => {
            let len = usize::from(input.word()) % (FRAME_LEN_MAX + 100);
            let count = usize::from(input.byte()).min(len);
            let mut frame = input.take(count).to_vec();
            frame.resize(len, 0);
            rig.arrive(port, &frame);
        }
        // A burst of one valid frame with a byte changed.
        4..=6 => {
            let (which, at, value) = (input.byte(), input.byte(), input.byte());
            let mut frame =
                valid.get(usize::from(which) % valid.len()).cloned().unwrap_or_default();
            if let Some(byte) = frame.get_mut(usize::from(at)) {
                *byte = value;
            }
            for _ in 0..=usize::from(input.byte() & 63) {
                rig.arrive(port, &frame);
            }
        }
        7 => {
            let mut out = [0; FRAME_LEN];
            let class = input.byte();
            let pfc = Pfc::default().with(class & 7, input.word());
            pfc.emit(MacAddr([2, 0, 0, 0, 0, 9]), &mut out);
            rig.arrive(port, &out);
        }
        8..=10 => rig.open(port, usize::from(input.byte())),
        11 => {
            let up = !rig.link(port);
            rig.set_link(port, up);
        }
        12 => reload(rig, input.byte()),
        13 => drop(rig.core().fdb.flush_all()),
        // Up to a quarter of an hour: ageing, pauses and the watchdog come due.
        _ => {
            // shifted by up to 23 bits, so that single ns and minutes are drawn alike
            let ns = u64::from(input.word()) << (input.byte() % 24);
            rig.step(Span::from_ns(ns));
        }
    }
}

/// Publishes a successor of the configuration in force.
fn reload(rig: &Rig, choice: u8) {
    let old = rig.core().snapshot.load_full();
    let mut config = old.config.clone();
    let alpha = Alpha::ratio(1 + u64::from(choice % 7), 4).unwrap_or_default();
    config.buffer.alpha = PerPri([alpha; 8]);
    config.ecn.enabled = choice & 8 == 0;
    config.forward.flood_unknown = choice & 16 == 0;
    config.crossbar.iterations = 1 + u32::from(choice >> 5 & 3);
    let new = old.succeed(config).expect("a change that a running switch takes");
    rig.core().snapshot.store(Arc::new(new));
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;

    #[test]
    fn random_operations_leave_nothing_behind() {
        let mut rng = Rng::new(9);
        for _ in 0..400 {
            let len = 2 + rng.below(1_500);
            let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            run(&bytes);
        }
    }
}
