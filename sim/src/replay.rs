//! Replay of captures: frames with timestamps go through a switch in virtual time, and come out with timestamps.
//!
//! Each port may have one iterator of [`InputFrame`]s, which PAUSE does not stop. [`ReplayResult`] is the content of
//! `result.json`.
//!
//! Source: docs/spec/pipeline.md §13.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::{BuildError, Core, Ledger};
use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::port::wire::{WireConfig, WireEnd};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Listen;
use weft_dataplane::types::PortId;

use crate::checkers::{Violation, Watch};
use crate::switch::{Switch, SwitchTiming};

/// A frame of a capture, or of another source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFrame {
    /// When its last bit was received, according to the capture.
    pub at: Instant,
    /// Its bytes as far as the capture holds them, without FCS.
    pub bytes: Vec<u8>,
    /// Its length on the wire, without FCS; more than `bytes.len()` if the capture cut it off.
    pub orig_len: usize,
    /// Damage with which it arrives.
    pub flaw: Flaw,
}

impl InputFrame {
    /// A whole, undamaged frame.
    #[must_use]
    pub const fn whole(at: Instant, bytes: Vec<u8>) -> Self {
        let orig_len = bytes.len();
        Self { at, bytes, orig_len, flaw: Flaw::None }
    }
}

/// Why a replay cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The switch cannot be built from its configuration.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An input names a port that the switch does not have, or a second time.
    #[error("input for {0:?}, which is not a port of this switch or has one already")]
    Port(PortId),
}

/// Result of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayResult {
    /// Hash of every decision and its time, in hexadecimal.
    #[serde(serialize_with = "hex")]
    pub trace_hash: u64,
    /// Number of decisions in the trace.
    pub events: u64,
    /// Virtual time of the last event, in picoseconds.
    pub end_ps: u64,
    /// Frames read from the inputs.
    pub inputs: u64,
    /// Frames written to the outputs, those that the switch made itself included.
    pub outputs: u64,
    /// Drops by reason, as far as there were any.
    pub drops: BTreeMap<&'static str, u64>,
    /// Lossless frames that arrived after PAUSE was sent and found the headroom full. A file cannot be paused, so these
    /// are not faults of the switch.
    pub xoff_overruns: u64,
    /// Frames not accounted for; always 0 in a correct switch.
    pub imbalance: i64,
    /// Frames still queued when nothing more could happen; 0 unless the switch is paused for ever.
    pub stuck: u64,
    /// All counters of the switch, watermarks included.
    pub ledger: Ledger,
    /// Violations that the checkers found: the first few, and the first of each checker.
    pub violations: Vec<Violation>,
    /// Number of all violations.
    pub violation_count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn hex<S: Serializer>(hash: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{hash:016x}"))
}

/// Frames that a cable of a replay holds, and so how far inputs are read ahead.
const AHEAD: usize = 64;
/// Steps between two full looks of the checkers.
const LOOK_EVERY: u64 = 256;
/// Time in which a switch that can still move a frame does so.
const PATIENCE: Span = Span::from_ms(60_000);

struct Input<I> {
    frames: I,
    end: WireEnd,
    wire: WireConfig,
    /// When the last bit of the frame before arrived.
    last: Option<Instant>,
    /// A frame that was read and found no room on the cable.
    ahead: Option<(Instant, InputFrame)>,
    done: bool,
}

impl<I: Iterator<Item = InputFrame>> Input<I> {
    /// Puts frames on the cable while it has room; returns how many, and when the switch is due for the first.
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
        // A frame cannot end sooner after the one before than its own wire time (docs/spec/pipeline.md §13).
        let least = self.last.map(|last| last + self.wire.frame_time(frame.orig_len));
        let at = least.map_or(frame.at, |least| least.max(frame.at));
        self.last = Some(at);
        Some((at, frame))
    }
}

/// Runs `inputs` through a switch of `config`. `outputs` gets each frame that leaves, with the end of its transmission,
/// those of one port in order; `listener` gets every decision.
///
/// Inputs are read as they are needed. The run ends when the last frame has arrived and all queues are empty.
///
/// # Errors
/// The switch cannot be built, or an input has no port of its own.
pub fn replay<I, L>(
    config: SwitchConfig,
    around: &SwitchTiming,
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

/// Called with the switch after each step; a last time at the end, with `true`.
pub type Look<'a> = &'a mut dyn FnMut(Instant, &Core, bool);

/// Like [`replay`]; `look` sees the switch after each step.
///
/// # Errors
/// Those of [`replay`].
pub fn replay_seen<I, L>(
    config: SwitchConfig,
    around: &SwitchTiming,
    inputs: Vec<(PortId, I)>,
    outputs: &mut dyn FnMut(PortId, Instant, &[u8]),
    listener: L,
    look: Look<'_>,
) -> Result<ReplayResult, ReplayError>
where
    I: Iterator<Item = InputFrame>,
    L: Listen,
{
    // Without propagation an arrival at the far end is the end of transmission, the stamp of an output.
    let around = SwitchTiming { cable_frames: AHEAD, propagation: Span::ZERO, ..around.clone() };
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

/// Counts of a run, and the time it has reached.
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
        // A port above XOFF still has a RESUME to send.
        let held = (0..ports.len()).filter_map(PortId::new).any(|p| !core.xoff(p).is_empty());
        let idle = !arriving && watch.checkers.copies_live() == 0 && !held;
        // Timers of the switch, such as ageing, would keep it due for ever.
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
                // Outputs are read at once, as nothing at the far end is modelled.
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
        // Every headroom drop counts here: `InputFrame`s do not obey PAUSE.
        xoff_overruns: drops.get(DropReason::Headroom.name()).copied().unwrap_or(0),
        drops,
        imbalance: ledger.imbalance(),
        stuck: ledger.queued,
        ledger,
        violations: watch.checkers.violations().to_vec(),
        violation_count: watch.checkers.count(),
    }
}
