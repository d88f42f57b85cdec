//! Replay: frames with stamps in, frames with stamps out, and an account of all that happened.
//!
//! One iterator of [`InputFrame`]s a port, open loop; [`ReplayResult`] is `result.json`.
//!
//! Units: picoseconds; bytes without FCS.
//! Source: docs/spec/pipeline.md §13.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::{BuildError, Core, Ledger};
use weft_dataplane::port::wire::{Flaw, WireConfig, WireEnd};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Listen;
use weft_dataplane::types::PortId;

use crate::checkers::{Violation, Watch};
use crate::switch::{Around, Switch};

/// A frame of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFrame {
    /// Its stamp.
    pub at: Instant,
    /// What the capture holds of it, without FCS.
    pub bytes: Vec<u8>,
    /// Its length on the wire, without FCS; above `bytes.len()` when it was cut off.
    pub orig_len: usize,
    /// What is wrong with it.
    pub flaw: Flaw,
}

impl InputFrame {
    /// A whole frame.
    #[must_use]
    pub const fn whole(at: Instant, bytes: Vec<u8>) -> Self {
        let orig_len = bytes.len();
        Self { at, bytes, orig_len, flaw: Flaw::None }
    }
}

/// Why a replay cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The switch cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An input names a port that the switch does not have, or a second time.
    #[error("input for {0:?}, which is not a port of this switch or has one already")]
    Port(PortId),
}

/// What came of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayResult {
    /// Hash of every decision and its time, in hexadecimal.
    #[serde(serialize_with = "hex")]
    pub trace_hash: u64,
    /// Decisions.
    pub events: u64,
    /// Virtual time of the last thing that happened, in picoseconds.
    pub end_ps: u64,
    /// Frames read from inputs.
    pub inputs: u64,
    /// Frames written to outputs, those that the switch made included.
    pub outputs: u64,
    /// Drops by reason, those that are not 0.
    pub drops: BTreeMap<&'static str, u64>,
    /// Lossless frames that came after PAUSE was asked for and found the headroom full: a file
    /// cannot be held back, so these are the replay's, not the switch's.
    pub xoff_overruns: u64,
    /// Frames that are not accounted for; always 0.
    pub imbalance: i64,
    /// Frames that were still queued when nothing more would happen; 0 but for a switch that is
    /// paused for ever.
    pub stuck: u64,
    /// All counters, watermarks included.
    pub ledger: Ledger,
    /// What the checkers object to, the first few.
    pub violations: Vec<Violation>,
    /// How much they object to.
    pub violation_count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn hex<S: Serializer>(hash: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{hash:016x}"))
}

/// Cables of a replay hold so many frames, so that little is read ahead.
const AHEAD: usize = 64;
/// Steps between full looks of the checkers.
const LOOK_EVERY: u64 = 256;
/// Nothing that a switch does of its own accord with frames takes longer.
const PATIENCE: Span = Span::from_ms(60_000);

struct Input<I> {
    frames: I,
    end: WireEnd,
    wire: WireConfig,
    /// When the last bit of the frame before was in.
    last: Option<Instant>,
    /// A frame that found no room on the cable.
    ahead: Option<(Instant, InputFrame)>,
    done: bool,
}

impl<I: Iterator<Item = InputFrame>> Input<I> {
    /// Puts frames on the cable while there is room; returns how many, and when the first is in, as far as the switch
    /// waits for it.
    fn feed(&mut self) -> (u64, Option<Instant>) {
        let (mut count, mut first) = (0, None);
        while !self.done {
            let Some((at, frame)) = self.ahead.take().or_else(|| self.read()) else {
                self.done = true;
                break;
            };
            // A frame that the capture cut off was whole on the wire.
            let lead = self.wire.lead(frame.orig_len);
            if !self.end.send_front(at, frame.flaw, &frame.bytes, frame.orig_len) {
                self.ahead = Some((at, frame));
                break;
            }
            count += 1;
            first = Instant::earlier(first, Some(at - lead));
        }
        (count, first)
    }

    fn read(&mut self) -> Option<(Instant, InputFrame)> {
        let frame = self.frames.next()?;
        let least = self.last.map(|last| last + self.wire.frame_time(frame.orig_len));
        let at = least.map_or(frame.at, |least| least.max(frame.at));
        self.last = Some(at);
        Some((at, frame))
    }
}

/// Runs `inputs` through a switch of `config`. Frames that leave are handed to `outputs` with the
/// end of their transmission, those of one port in order; every decision goes to `listener`.
///
/// Inputs are read as they are needed. The run ends when the last one is in and all queues are empty.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay<I, L>(
    config: SwitchConfig,
    around: &Around,
    inputs: Vec<(PortId, I)>,
    outputs: &mut dyn FnMut(PortId, Instant, &[u8]),
    listener: L,
) -> Result<ReplayResult, ReplayError>
where
    I: Iterator<Item = InputFrame>,
    L: Listen,
{
    replay_seen(config, around, inputs, outputs, listener, &mut |_, _, _| {})
}

/// What looks at a switch after each step; at last once more, and then it is told that this is the end.
pub type Look<'a> = &'a mut dyn FnMut(Instant, &Core, bool);

/// As [`replay`], where `look` sees the switch after each step.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay_seen<I, L>(
    config: SwitchConfig,
    around: &Around,
    inputs: Vec<(PortId, I)>,
    outputs: &mut dyn FnMut(PortId, Instant, &[u8]),
    listener: L,
    look: Look<'_>,
) -> Result<ReplayResult, ReplayError>
where
    I: Iterator<Item = InputFrame>,
    L: Listen,
{
    let around = Around { cable_frames: AHEAD, propagation: Span::ZERO, ..around.clone() };
    let rates: Vec<LinkRate> = config.ports.iter().map(|port| port.rate).collect();
    let (mut switch, ends) = Switch::new(config, &around)?;
    let mut given: Vec<Option<I>> = ends.iter().map(|_| None).collect();
    for (port, frames) in inputs {
        match given.get_mut(port.index()) {
            Some(slot @ None) => *slot = Some(frames),
            _ => return Err(ReplayError::Port(port)),
        }
    }
    let mut ports: Vec<Input<Box<dyn Iterator<Item = InputFrame> + '_>>> = Vec::new();
    for ((end, frames), rate) in ends.into_iter().zip(given).zip(rates) {
        let mut wire = WireConfig::new("", rate);
        wire.overhead = around.overhead;
        wire.cut_through = around.cut_through;
        let frames: Box<dyn Iterator<Item = InputFrame>> = match frames {
            Some(frames) => Box::new(frames),
            None => Box::new(core::iter::empty()),
        };
        ports.push(Input { frames, end, wire, last: None, ahead: None, done: false });
    }
    let mut watch = Watch::new(&switch.core().snapshot.load_full(), listener);
    let run = run(&mut switch, &mut ports, outputs, &mut watch, look);
    switch.count_pauses(run.now);
    look(run.now, switch.core(), true);
    Ok(account(&switch, &mut watch, &run))
}

/// What a run counted.
struct Run {
    now: Instant,
    inputs: u64,
    outputs: u64,
}

fn run<I: Iterator<Item = InputFrame>, L: Listen>(
    switch: &mut Switch,
    ports: &mut [Input<I>],
    outputs: &mut dyn FnMut(PortId, Instant, &[u8]),
    watch: &mut Watch<L>,
    look: Look<'_>,
) -> Run {
    let core = switch.core().clone();
    let mut run = Run { now: Instant::ZERO, inputs: 0, outputs: 0 };
    let mut busy_at = Instant::ZERO;
    loop {
        let mut arriving = false;
        for input in ports.iter_mut() {
            let (count, first) = input.feed();
            run.inputs += count;
            if let Some(at) = first {
                switch.expect(at);
            }
            arriving |= !input.done || input.end.in_flight() > 0;
        }
        let Some(next) = switch.next() else { break };
        let held = (0..ports.len()).filter_map(PortId::new).any(|p| !core.xoff(p).is_empty());
        let idle = !arriving && watch.checkers.copies_live() == 0 && !held;
        if idle || !arriving && next.since(busy_at) > PATIENCE {
            break;
        }
        run.now = next.max(run.now);
        if switch.step(run.now, watch).work > 0 {
            busy_at = run.now;
        }
        look(run.now, &core, false);
        watch.checkers.follow(run.now, &core, ports.len());
        if switch.steps().is_multiple_of(LOOK_EVERY) {
            watch.checkers.look(run.now, &core);
        }
        for (port, input) in (0..).map_while(PortId::new).zip(ports.iter_mut()) {
            while let Some(at) = input.end.next_arrival() {
                let Some(frame) = input.end.receive(at) else { break };
                outputs(port, frame.at, frame.bytes());
                run.outputs += 1;
                busy_at = busy_at.max(frame.at);
            }
        }
    }
    run.now = run.now.max(busy_at);
    run
}

fn account<L: Listen>(switch: &Switch, watch: &mut Watch<L>, run: &Run) -> ReplayResult {
    watch.checkers.look(run.now, switch.core());
    let ledger = Ledger::read(switch.core());
    let mut drops = BTreeMap::new();
    for port in &ledger.port {
        for (reason, &count) in DropReason::ALL.iter().zip(&port.drops) {
            if count > 0 {
                *drops.entry(reason.name()).or_default() += count;
            }
        }
    }
    ReplayResult {
        trace_hash: watch.hash(),
        events: watch.events(),
        end_ps: run.now.as_ps(),
        inputs: run.inputs,
        outputs: run.outputs,
        xoff_overruns: drops.get(DropReason::Headroom.name()).copied().unwrap_or(0),
        drops,
        imbalance: ledger.imbalance(),
        stuck: ledger.queued,
        ledger,
        violations: watch.checkers.violations().to_vec(),
        violation_count: watch.checkers.count(),
    }
}
