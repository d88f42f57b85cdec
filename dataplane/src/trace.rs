//! Decisions of the pipeline as events: for `weft trace`, for hashes that show two runs equal.
//!
//! [`Tracer`] is a type parameter of the pipeline, so that tracing costs nothing when off;
//! [`Event`] carries the numbers that decided. Frames are numbered from 1 in order of receipt; with
//! several workers, each has numbers of its own.
//!
//! Units: cells, bytes, picoseconds, as named.
//! Source: docs/spec/pipeline.md §13; ARCHITECTURE.md.

use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

use crate::time::Instant;

/// One decision of the pipeline about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "ev", rename_all = "snake_case")]
pub enum Event {
    /// A frame came in.
    Rx {
        /// Frame number.
        frame: u64,
        /// Input.
        port: u8,
        /// Bytes.
        len: u16,
        /// First bytes: addresses, type.
        digest: u64,
    },
    /// It was parsed and classified.
    Classify {
        /// Frame number.
        frame: u64,
        /// Format's name.
        format: &'static str,
        /// Priority.
        pri: u8,
        /// What decided: `pcp`, `dscp`, `tc`, `exp`, `tlp` (kind and Traffic Class of a TLP) or `default`.
        by: &'static str,
        /// VLAN.
        vid: u16,
    },
    /// Outputs were chosen.
    Forward {
        /// Frame number.
        frame: u64,
        /// `fdb`, `static`, `group`, `broadcast`, `flood`, `pbr`.
        by: &'static str,
        /// Bit set of outputs.
        outputs: u64,
    },
    /// Room was asked for.
    Admit {
        /// Frame number.
        frame: u64,
        /// Input.
        input: u8,
        /// Output; the first one for a lossless frame's group.
        output: u8,
        /// Priority.
        pri: u8,
        /// `queue`, `in_headroom` or the drop reason.
        verdict: &'static str,
        /// Cells that the frame takes.
        cells: u32,
        /// Cells of the queue before.
        used: u32,
        /// Its limit.
        limit: u32,
        /// Cells of the shared part in use.
        shared_used: u64,
    },
    /// The frame ended here.
    Drop {
        /// Frame number.
        frame: u64,
        /// Port that it is counted at.
        port: u8,
        /// Why.
        reason: &'static str,
    },
    /// The frame was for the switch itself.
    Consume {
        /// Frame number.
        frame: u64,
        /// Input.
        port: u8,
        /// MAC control opcode.
        opcode: u16,
    },
    /// An address was learnt or moved.
    Learn {
        /// Address key.
        key: u64,
        /// Port.
        port: u8,
        /// `new`, `moved`, …
        outcome: &'static str,
    },
    /// A port was blocked because of a loop, or is so no longer.
    Block {
        /// The port.
        port: u8,
        /// Which of both.
        blocked: bool,
    },
    /// The crossbar moved frames.
    Match {
        /// Input.
        input: u8,
        /// Output.
        output: u8,
        /// Priority.
        pri: u8,
        /// Iteration, from 1.
        iteration: u8,
        /// Frames moved.
        frames: u16,
    },
    /// A frame was taken off its egress queue.
    Deq {
        /// Frame number.
        frame: u64,
        /// Output.
        port: u8,
        /// Priority.
        pri: u8,
        /// Depth of (output, pri) before, in bytes (cells times their size).
        depth: u64,
        /// ECN mark from which on some are marked; both are 0 while marking is off.
        low: u64,
        /// Mark from which on all are.
        high: u64,
        /// Share that is marked just below it, in percent.
        max_percent: u8,
        /// Whether the frame may be marked.
        ect: bool,
        /// Whether it was.
        marked: bool,
    },
    /// A port took a frame.
    Tx {
        /// Frame number.
        frame: u64,
        /// Output.
        port: u8,
        /// Bytes.
        len: u16,
    },
    /// PAUSE or resume was received.
    PauseRx {
        /// Port.
        port: u8,
        /// Class enable vector.
        enable: u8,
        /// Priorities paused afterwards.
        paused: u8,
    },
    /// PAUSE or resume was sent.
    PauseTx {
        /// Port.
        port: u8,
        /// Class enable vector.
        enable: u8,
        /// Classes with quanta above 0.
        pausing: u8,
    },
    /// An ingress group crossed XOFF or reached XON.
    Group {
        /// Input.
        port: u8,
        /// Priority.
        pri: u8,
        /// Stopped, or released.
        xoff: bool,
        /// Cells in the group, headroom included.
        used: u32,
        /// The threshold.
        limit: u32,
    },
    /// The watchdog found a PAUSE storm, or its end.
    Storm {
        /// Output.
        port: u8,
        /// Priority.
        pri: u8,
        /// Begin or end.
        active: bool,
    },
    /// A link went up or down.
    Link {
        /// Port.
        port: u8,
        /// Up.
        up: bool,
    },
    /// A new configuration was taken over.
    Reload {
        /// Its number.
        epoch: u64,
    },
}

impl Event {
    /// The frame that the event is about, if any.
    #[must_use]
    pub const fn frame(&self) -> Option<u64> {
        match *self {
            Self::Rx { frame, .. }
            | Self::Classify { frame, .. }
            | Self::Forward { frame, .. }
            | Self::Admit { frame, .. }
            | Self::Drop { frame, .. }
            | Self::Consume { frame, .. }
            | Self::Deq { frame, .. }
            | Self::Tx { frame, .. } => Some(frame),
            _ => None,
        }
    }
}

/// Receiver of all events of a lane's pipeline.
pub trait Tracer {
    /// Whether there is anyone to hear: if not, events are not even made.
    const ON: bool;

    /// Takes an event.
    fn event(&mut self, now: Instant, event: Event);

    /// Takes the bytes of a frame as it came in, right after [`Event::Rx`].
    fn bytes(&mut self, _frame: u64, _bytes: &[u8]) {}

    /// The next frame's number.
    fn number(&mut self) -> u64;

    /// A part of a step has ended: called whether there is anyone to hear or not.
    #[inline]
    fn part(&mut self, part: Part) {
        let _ = part;
    }
}

/// A part of what a lane does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Frames are taken from a port.
    Receive,
    /// Parsed, classified, forwarded, admitted and put into VOQs.
    Ingress,
    /// Moved to egress queues.
    Crossbar,
    /// Picked and marked.
    Egress,
    /// Given to a port.
    Transmit,
    /// All else: timers, links, housekeeping of the ports.
    Rest,
}

impl Part {
    /// All of them, in the order of a step.
    pub const ALL: [Self; 6] =
        [Self::Receive, Self::Ingress, Self::Crossbar, Self::Egress, Self::Transmit, Self::Rest];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Ingress => "ingress",
            Self::Crossbar => "crossbar",
            Self::Egress => "egress",
            Self::Transmit => "transmit",
            Self::Rest => "rest",
        }
    }
}

/// A tracer that ignores all events, at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Tracer for NoTrace {
    const ON: bool = false;

    fn event(&mut self, _now: Instant, _event: Event) {}

    fn number(&mut self) -> u64 {
        0
    }
}

/// Hears events that a [`Trace`] hands on.
pub trait Listen {
    /// Takes an event.
    fn listen(&mut self, now: Instant, event: &Event);

    /// Takes the bytes of a frame as it came in, right after [`Event::Rx`].
    fn bytes(&mut self, _frame: u64, _bytes: &[u8]) {}

    /// Whether it need not hear any more; a worker lets go of it then.
    fn has_enough(&self) -> bool {
        false
    }
}

impl<F: FnMut(Instant, &Event)> Listen for F {
    fn listen(&mut self, now: Instant, event: &Event) {
        self(now, event);
    }
}

/// Folds all events into one number and hands them on to a listener.
pub struct Trace<L> {
    hash: Xxh3,
    /// The next frame's number, and from there to the one after it.
    next: u64,
    step: u64,
    events: u64,
    listener: L,
}

impl<L: Listen> Trace<L> {
    /// A trace whose events also go to `listener`; it numbers frames from 1.
    pub fn new(listener: L) -> Self {
        Self::numbered(listener, 1, 1)
    }

    /// A trace that numbers frames `first`, `first + step` and so on: `step` of them that
    /// begin with 1 to `step` never give two frames one number.
    pub fn numbered(listener: L, first: u64, step: u64) -> Self {
        Self { hash: Xxh3::new(), next: first, step, events: 0, listener }
    }

    /// The number that the next frame will have.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    /// The hash of all events until now, times included.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash.digest()
    }

    /// How many events there were.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The listener.
    pub const fn listener(&mut self) -> &mut L {
        &mut self.listener
    }
}

impl<L: Listen> Tracer for Trace<L> {
    const ON: bool = true;

    fn event(&mut self, now: Instant, event: Event) {
        self.events += 1;
        self.hash.update(&now.as_ps().to_le_bytes());
        event.feed(&mut self.hash);
        self.listener.listen(now, &event);
    }

    fn bytes(&mut self, frame: u64, bytes: &[u8]) {
        self.listener.bytes(frame, bytes);
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += self.step;
        number
    }
}

impl Event {
    /// Feeds the hash with a tag and every field.
    fn feed(&self, hash: &mut Xxh3) {
        let mut put = |tag: &str, numbers: &[u64]| {
            hash.update(tag.as_bytes());
            for n in numbers {
                hash.update(&n.to_le_bytes());
            }
        };
        match *self {
            Self::Rx { frame, port, len, digest } => {
                put("rx", &[frame, port.into(), len.into(), digest]);
            }
            Self::Classify { frame, format, pri, by, vid } => {
                put(format, &[frame, pri.into(), vid.into()]);
                put(by, &[]);
            }
            Self::Forward { frame, by, outputs } => put(by, &[frame, outputs]),
            Self::Admit { frame, input, output, pri, verdict, cells, used, limit, shared_used } => {
                let at = u64::from(input) << 16 | u64::from(output) << 8 | u64::from(pri);
                put(verdict, &[frame, at, cells.into(), used.into(), limit.into(), shared_used]);
            }
            Self::Drop { frame, port, reason } => put(reason, &[frame, port.into()]),
            Self::Consume { frame, port, opcode } => {
                put("consume", &[frame, port.into(), opcode.into()]);
            }
            Self::Learn { key, port, outcome } => put(outcome, &[key, port.into()]),
            Self::Match { input, output, pri, iteration, frames } => {
                let at = u64::from(input) << 16 | u64::from(output) << 8 | u64::from(pri);
                put("match", &[at, iteration.into(), frames.into()]);
            }
            Self::Deq { frame, port, pri, depth, low, high, max_percent, ect, marked } => {
                let at = u64::from(port) << 8 | u64::from(pri);
                let max = max_percent.into();
                put("deq", &[frame, at, depth, low, high, max, ect.into(), marked.into()]);
            }
            Self::Tx { frame, port, len } => put("tx", &[frame, port.into(), len.into()]),
            Self::PauseRx { port, enable, paused } => {
                put("pause_rx", &[port.into(), enable.into(), paused.into()]);
            }
            Self::PauseTx { port, enable, pausing } => {
                put("pause_tx", &[port.into(), enable.into(), pausing.into()]);
            }
            Self::Group { port, pri, xoff, used, limit } => {
                put("group", &[port.into(), pri.into(), xoff.into(), used.into(), limit.into()]);
            }
            Self::Block { port, blocked } => put("block", &[port.into(), blocked.into()]),
            Self::Storm { port, pri, active } => {
                put("storm", &[port.into(), pri.into(), active.into()]);
            }
            Self::Link { port, up } => put("link", &[port.into(), up.into()]),
            Self::Reload { epoch } => put("reload", &[epoch]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_every_event_and_its_time() {
        let run = |events: &[(u64, Event)]| {
            let mut heard = 0;
            let mut trace = Trace::new(|_, _: &Event| heard += 1);
            for &(ps, event) in events {
                trace.event(Instant::from_ps(ps), event);
            }
            let hash = trace.hash();
            assert_eq!(heard, events.len());
            hash
        };
        let (a, b) = (Event::Link { port: 1, up: true }, Event::Link { port: 1, up: false });
        let base = run(&[(1, a), (2, b)]);
        assert_eq!(base, run(&[(1, a), (2, b)]));
        for other in [&[(1, a)][..], &[(1, b), (2, a)], &[(1, a), (3, b)], &[(1, a), (2, a)]] {
            assert_ne!(base, run(other), "{other:?}");
        }
    }

    #[test]
    fn traces_of_one_switch_number_apart() {
        let numbers = |first| {
            let mut trace = Trace::numbered(|_, _: &Event| (), first, 2);
            let numbers = [trace.number(), trace.number(), trace.number()];
            (numbers, trace.next_number())
        };
        assert_eq!(numbers(1), ([1, 3, 5], 7));
        assert_eq!(numbers(2), ([2, 4, 6], 8));
    }

    #[test]
    fn bytes_are_handed_on_and_leave_the_hash_alone() {
        #[derive(Default)]
        struct Keeper(Vec<(u64, Vec<u8>)>);
        impl Listen for Keeper {
            fn listen(&mut self, _now: Instant, _event: &Event) {}

            fn bytes(&mut self, frame: u64, bytes: &[u8]) {
                self.0.push((frame, bytes.to_vec()));
            }
        }
        let mut trace = Trace::new(Keeper::default());
        let (hash, events) = (trace.hash(), trace.events());
        trace.bytes(7, &[1, 2, 3]);
        assert_eq!((trace.hash(), trace.events()), (hash, events));
        assert_eq!(trace.listener().0, [(7, vec![1, 2, 3])]);
    }
}
