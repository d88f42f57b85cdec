//! Log of the frames that pass a switch, from the trace of its pipeline.
//!
//! [`SwitchLog::event`] hears every decision, [`SwitchLog::follow`] sees after each step which outputs are paused.
//!
//! Source: docs/spec/model.md §2, §6 "Results".

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::pipeline::Core;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::{PORTS_MAX, PortId, Pri, PriSet};
use weft_parsers::HEAD_LEN;

use super::{Hop, Key};
use crate::rclink_heard::{FrameKind, Reader};

/// A frame in the switch.
#[derive(Clone, Copy, Debug, Default)]
struct Inside {
    key: Option<Key>,
    len: usize,
    is_done: bool,
    pri: Pri,
    output: u8,
    /// When it was admitted to its VOQ.
    queued: Instant,
    /// Total time paused of its output at that instant.
    paused: Span,
    /// When the crossbar moved it to its egress queue.
    crossed: Option<Instant>,
}

/// Total time for which a priority of an output was paused.
#[derive(Clone, Copy, Debug, Default)]
struct Paused {
    until_now: Span,
    since: Option<Instant>,
}

impl Paused {
    fn at(&self, now: Instant) -> Span {
        self.since.map_or(self.until_now, |since| self.until_now + now.since(since))
    }
}

/// Log of one switch.
#[derive(Clone, Debug)]
pub struct SwitchLog {
    reader: Reader,
    latency: Span,
    /// Propagation delay of each port's cable.
    propagations: Vec<Span>,
    /// Trace number of the first frame in `inside`.
    first: u64,
    inside: VecDeque<Inside>,
    /// Frames before the crossbar, in order, by input, output and priority.
    queues: BTreeMap<(u8, u8, u8), VecDeque<u64>>,
    /// Time paused, by port and priority.
    paused: Vec<[Paused; 8]>,
    stopped: Vec<PriSet>,
    hops: Vec<(Key, Hop)>,
}

impl SwitchLog {
    /// The log of a switch with this fixed latency and these propagation delays; `reader` identifies frames.
    #[must_use]
    pub fn new(reader: Reader, latency: Span, propagations: Vec<Span>) -> Self {
        Self {
            reader,
            latency,
            propagations,
            first: 1,
            inside: VecDeque::new(),
            queues: BTreeMap::new(),
            paused: vec![[Paused::default(); 8]; PORTS_MAX],
            stopped: vec![PriSet::EMPTY; PORTS_MAX],
            hops: Vec::new(),
        }
    }

    /// All frames that have passed, with their times.
    pub(super) fn hops(&self) -> &[(Key, Hop)] {
        &self.hops
    }

    /// Notes which priorities of outputs are paused after a step.
    pub fn follow(&mut self, now: Instant, core: &Core) {
        let ports = (0..self.propagations.len()).filter_map(PortId::new);
        for (port, (stopped, paused)) in ports.zip(self.stopped.iter_mut().zip(&mut self.paused)) {
            let is = core.paused(port);
            // Most steps change no pause.
            if is == *stopped {
                continue;
            }
            *stopped = is;
            for (pri, paused) in Pri::ALL.into_iter().zip(paused) {
                paused.until_now = paused.at(now);
                paused.since = is.contains(pri).then_some(now);
            }
        }
    }

    fn frame(&mut self, number: u64) -> Option<&mut Inside> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.inside.get_mut(place)
    }

    /// Total time for which a priority of a port was paused until `now`.
    fn paused(&self, port: u8, pri: Pri, now: Instant) -> Span {
        let port = self.paused.get(usize::from(port));
        port.and_then(|of| of.get(pri.index())).map(|paused| paused.at(now)).unwrap_or_default()
    }

    fn end(&mut self, number: u64) {
        if let Some(frame) = self.frame(number) {
            frame.is_done = true;
        }
        while self.inside.front().is_some_and(|frame| frame.is_done) {
            self.inside.pop_front();
            self.first += 1;
        }
    }

    fn crossed(&mut self, now: Instant, queue: (u8, u8, u8), mut frames: u16) {
        while frames > 0
            && let Some(number) = self.queues.get_mut(&queue).and_then(VecDeque::pop_front)
        {
            // A frame that was dropped in its queue is not moved by the crossbar.
            if let Some(frame) = self.frame(number).filter(|frame| !frame.is_done) {
                frame.crossed = Some(now);
                frames -= 1;
            }
        }
    }

    fn left(&mut self, now: Instant, number: u64) {
        let Some(&mut Inside { key, pri, output, queued, paused, crossed, .. }) =
            self.frame(number)
        else {
            return;
        };
        let (Some(key), Some(crossed)) = (key, crossed) else { return };
        // The pauses of the stay are taken from its last part first: a paused egress queue is what held the frame back.
        let (voq, egress) = (crossed.since(queued).as_ps(), now.since(crossed).as_ps());
        let stopped = self.paused(output, pri, now).as_ps() - paused.as_ps();
        let of_egress = stopped.min(egress);
        let of_voq = (stopped - of_egress).min(voq);
        let cable = self.propagations.get(usize::from(output)).copied().unwrap_or_default();
        // Fixed latency and cable are time that the frame cannot avoid, so they count as wire (docs/results.md).
        let hop = Hop {
            voq: Span::from_ps(voq - of_voq),
            egress: Span::from_ps(egress - of_egress),
            paused: Span::from_ps(of_voq + of_egress),
            wire: self.latency + cable,
        };
        self.hops.push((key, hop));
    }

    /// Hears a decision of the pipeline.
    pub fn event(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Rx { len, .. } => {
                self.inside.push_back(Inside { len: len.into(), ..Inside::default() });
            }
            Event::Admit {
                frame, input, output, pri, verdict: "queue" | "in_headroom", ..
            } => {
                let paused = self.paused(output, Pri::from_low_bits(pri), now);
                self.queues.entry((input, output, pri)).or_default().push_back(frame);
                if let Some(inside) = self.frame(frame) {
                    (inside.pri, inside.output) = (Pri::from_low_bits(pri), output);
                    (inside.queued, inside.paused) = (now, paused);
                }
            }
            Event::Match { input, output, pri, frames, .. } => {
                self.crossed(now, (input, output, pri), frames);
            }
            Event::Tx { frame, .. } => {
                self.left(now, frame);
                self.end(frame);
            }
            Event::Drop { frame, .. } | Event::Consume { frame, .. } => self.end(frame),
            _ => {}
        }
    }

    /// Reads the bytes of a frame that has come in, for its identity.
    pub fn bytes(&mut self, frame: u64, bytes: &[u8]) {
        let mut head = [0; HEAD_LEN];
        for (to, from) in head.iter_mut().zip(bytes) {
            *to = *from;
        }
        let Some(len) = self.frame(frame).map(|inside| inside.len) else { return };
        let read = self.reader.read(&head, len, bytes, false);
        if let FrameKind::Data { message, index, .. } = read.kind
            && let Some(inside) = self.frame(frame)
        {
            inside.key = Some((message, index));
        }
    }
}
