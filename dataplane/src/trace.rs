//! Decisions of the pipeline as events, for `weft trace` and for hashes that show two runs equal.
//!
//! [`Tracer`] is a type parameter of the pipeline, so that tracing costs nothing when off;
//! [`Event`] carries the numbers behind a decision. Frames are numbered from 1 in order of receipt;
//! with several workers, each has numbers of its own.
//!
//! Units: cells, bytes, picoseconds, as named.
//! Source: docs/spec/pipeline.md §13; ARCHITECTURE.md.

use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

use crate::time::Instant;

/// One decision of the pipeline, about a frame or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "ev", rename_all = "snake_case")]
pub enum Event {
    /// A port received a frame.
    Rx {
        /// Number that the frame gets here.
        frame: u64,
        /// Port that it came in by.
        port: u8,
        /// Its length, in bytes without FCS.
        len: u16,
        /// Its first eight bytes: destination and part of the source address.
        digest: u64,
    },
    /// A frame was parsed and classified.
    Classify {
        /// Number of the frame, from `Rx`.
        frame: u64,
        /// Name of the frame's format.
        format: &'static str,
        /// Priority that it gets in the switch.
        pri: u8,
        /// Source that decided: `pcp`, `dscp`, `tc`, `exp`, `tlp` (kind and Traffic Class of a
        /// TLP) or `default`.
        by: &'static str,
        /// VID of its outer tag; 0 without one.
        vid: u16,
    },
    /// Outputs were chosen for a frame.
    Forward {
        /// Number of the frame, from `Rx`.
        frame: u64,
        /// Lookup that found them: `fdb`, `static`, `group`, `broadcast`, `flood` or `pbr`.
        by: &'static str,
        /// The outputs, as a bit set of ports.
        outputs: u64,
    },
    /// A frame asked for room in the buffer.
    Admit {
        /// Number of the frame, from `Rx`.
        frame: u64,
        /// Port that it came in by.
        input: u8,
        /// Port that it goes to; the first one if a lossless frame goes to several.
        output: u8,
        /// Priority of the VOQ or group.
        pri: u8,
        /// `queue`, `in_headroom`, or the drop reason.
        verdict: &'static str,
        /// Cells that the frame takes.
        cells: u32,
        /// Cells in the queue before the frame.
        used: u32,
        /// The queue's threshold at that moment, in cells.
        limit: u32,
        /// Cells of the shared part in use.
        shared_used: u64,
    },
    /// A frame was dropped.
    Drop {
        /// Number of the frame, from `Rx`.
        frame: u64,
        /// Port at which the drop is counted.
        port: u8,
        /// Name of the drop reason.
        reason: &'static str,
    },
    /// A frame for the switch itself ended here.
    Consume {
        /// Number of the frame, from `Rx`.
        frame: u64,
        /// Port that it came in by.
        port: u8,
        /// MAC control opcode; the EtherType of a loop probe.
        opcode: u16,
    },
    /// A station was learnt, or moved.
    Learn {
        /// Address key of the station.
        key: u64,
        /// Port at which it is learnt; the first one of a LAG.
        port: u8,
        /// `new`, `moved`, and so on.
        outcome: &'static str,
    },
    /// A port was blocked because of a loop, or opened again.
    Block {
        /// Port that is blocked or opened.
        port: u8,
        /// Whether it is blocked from now on.
        blocked: bool,
    },
    /// The crossbar moved frames.
    Match {
        /// Port whose VOQ sent them.
        input: u8,
        /// Port whose egress queue got them.
        output: u8,
        /// Priority of the VOQ.
        pri: u8,
        /// Iteration of iSLIP that made the match, from 1.
        iteration: u8,
        /// Number of frames that the match moved.
        frames: u16,
    },
    /// A frame was taken off its egress queue.
    Deq {
        /// Number of the frame, from `Rx`.
        frame: u64,
        /// Port that it leaves by.
        port: u8,
        /// Priority of the egress queue.
        pri: u8,
        /// Depth of (output, pri) before, in bytes (cells times their size).
        depth: u64,
        /// Depth from which on some frames are marked; `low` and `high` are 0 while ECN is off.
        low: u64,
        /// Depth from which on all frames are marked.
        high: u64,
        /// Share of frames that is marked just below `high`, in percent.
        max_percent: u8,
        /// Whether the frame may be marked.
        ect: bool,
        /// Whether the frame is marked here.
        marked: bool,
    },
    /// A port took a frame.
    Tx {
        /// Number of the frame, from `Rx`.
        frame: u64,
        /// Port that sends it.
        port: u8,
        /// Its length as sent, in bytes without FCS.
        len: u16,
    },
    /// A PFC frame was received.
    PauseRx {
        /// Port that it came in by.
        port: u8,
        /// Its class enable vector.
        enable: u8,
        /// Priorities that are paused afterwards, as bits.
        paused: u8,
    },
    /// A PFC frame was made.
    PauseTx {
        /// Port that sends it.
        port: u8,
        /// Its class enable vector.
        enable: u8,
        /// Classes with quanta above 0, as bits.
        pausing: u8,
    },
    /// An ingress group crossed XOFF or reached XON.
    Group {
        /// Port whose group it is.
        port: u8,
        /// Priority of the group.
        pri: u8,
        /// True for XOFF, false for XON.
        xoff: bool,
        /// Cells in the group, headroom included.
        used: u32,
        /// XOFF of the group at that moment, in cells.
        limit: u32,
    },
    /// The watchdog found a PAUSE storm, or its end.
    Storm {
        /// Port that was paused.
        port: u8,
        /// Priority that was paused.
        pri: u8,
        /// Whether the storm begins.
        active: bool,
    },
    /// A link went up or down.
    Link {
        /// Port whose link it is.
        port: u8,
        /// Whether the link is up now.
        up: bool,
    },
    /// A worker took over a new configuration.
    Reload {
        /// Number of the configuration; 0 is that of the start.
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
    /// Whether events are wanted: if not, the pipeline does not even make them.
    const ON: bool;

    /// Receives an event that happened at `now`.
    fn event(&mut self, now: Instant, event: Event);

    /// Receives the bytes of a frame as it came in, right after [`Event::Rx`].
    fn bytes(&mut self, _frame: u64, _bytes: &[u8]) {}

    /// Number for the next frame that is received.
    fn number(&mut self) -> u64;

    /// Called when a part of a step has ended, whether events are wanted or not.
    #[inline]
    fn part(&mut self, part: Part) {
        let _ = part;
    }
}

/// A part of the work that a lane does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Frames are taken from a port.
    Receive,
    /// Frames are parsed, classified, forwarded, admitted and put into VOQs.
    Ingress,
    /// Frames are moved to egress queues.
    Crossbar,
    /// Frames are picked, marked and counted.
    Egress,
    /// Frames are given to a port.
    Transmit,
    /// Everything else: timers, links, housekeeping of the ports.
    Rest,
}

impl Part {
    /// All parts, in the order of a step.
    pub const ALL: [Self; 6] =
        [Self::Receive, Self::Ingress, Self::Crossbar, Self::Egress, Self::Transmit, Self::Rest];

    /// The part's name in output.
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

/// Receiver of the events that a [`Trace`] passes on.
pub trait Listen {
    /// Receives an event that happened at `now`.
    fn listen(&mut self, now: Instant, event: &Event);

    /// Receives the bytes of a frame as it came in, right after [`Event::Rx`].
    fn bytes(&mut self, _frame: u64, _bytes: &[u8]) {}

    /// Whether it needs no further events; a worker drops it then.
    fn has_enough(&self) -> bool {
        false
    }
}

impl<F: FnMut(Instant, &Event)> Listen for F {
    fn listen(&mut self, now: Instant, event: &Event) {
        self(now, event);
    }
}

/// Hashes all events into one number and passes them on to a listener.
pub struct Trace<L> {
    hash: Xxh3,
    /// Number of the next frame.
    next: u64,
    /// Distance from one number to the next.
    step: u64,
    events: u64,
    listener: L,
}

impl<L: Listen> Trace<L> {
    /// A trace whose events also go to `listener`; it numbers frames from 1.
    pub fn new(listener: L) -> Self {
        Self::numbered(listener, 1, 1)
    }

    /// A trace that numbers frames `first`, `first + step` and so on: traces that begin with 1 to
    /// `step` never give two frames the same number.
    pub fn numbered(listener: L, first: u64, step: u64) -> Self {
        Self { hash: Xxh3::new(), next: first, step, events: 0, listener }
    }

    /// The number that the next frame will have.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.next
    }

    /// The hash of all events so far, times included.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash.digest()
    }

    /// Number of events so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The listener to which events are passed on.
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
        // The tag keeps events of different kinds apart whose numbers are the same. Numbers are
        // little-endian on every machine, so that a record replays to the same hash anywhere.
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
