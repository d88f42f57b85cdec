//! Checkers of a switch: rules that must hold in every simulation, held against its trace and its counters.
//!
//! [`Checkers::event`] hears every decision of the pipeline, [`Checkers::look`] compares with the switch's own counters
//! between steps, [`Checkers::finish`] at the end; a broken rule is a [`Violation`].
//!
//! Source: docs/spec/pipeline.md §4, §5, §7 to §10.

use std::collections::VecDeque;

use serde::Serialize;
use weft_dataplane::config::{PfcMode, StormAction};
use weft_dataplane::pipeline::{Core, Ledger};
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Listen, Trace, Tracer};
use weft_dataplane::types::{PORTS_MAX, PRIS_MAX, PerPri, PortId, Pri, PriSet, QueueKey};

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Virtual time, in picoseconds.
    pub at_ps: u64,
    /// Name of the checker that objects.
    pub checker: &'static str,
    /// What the checker saw, in words.
    pub saw: String,
}

/// Violations kept, beside the first one of each checker; all are counted.
const KEEP: usize = 16;

/// Whether one more violation is kept: fewer than `most` are, or none of this checker.
pub(crate) fn is_kept(kept: &[Violation], checker: &str, most: usize) -> bool {
    kept.len() < most || kept.iter().all(|it| it.checker != checker)
}

/// State of a frame that has not ended.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    input: u8,
    pri: u8,
    cells: u16,
    /// Copies that have not been sent or dropped.
    left: u8,
    /// Copies that are charged to the buffer.
    waiting: u8,
    lossless: bool,
    admitted: bool,
    /// Number of outputs until the first copy asks for room; a frame dropped before that ends as one.
    outputs: u8,
}

/// State of a port.
#[derive(Clone, Debug)]
struct PortView {
    /// Frames in its egress queues, as output.
    queued: PerPri<u32>,
    /// Priorities that were paused when last seen, as output.
    paused: PriSet,
    /// PFC classes that the peer has been told to pause, as input.
    held: u8,
    /// Priorities above XOFF, as input.
    xoff: PriSet,
    up: bool,
}

/// All checkers of one switch.
#[derive(Clone)]
pub struct Checkers {
    frames: VecDeque<Frame>,
    /// Trace number of the first frame in `frames`.
    first: u64,
    live: u64,
    copies_live: u64,
    charged: u64,
    waiting_cells: u64,
    /// Last frame sent, by (input, output, pri).
    last_tx: Vec<u64>,
    ports: Vec<PortView>,
    last_deq: u64,
    mode: PfcMode,
    storm_action: StormAction,
    classes: [u8; PRIS_MAX],
    /// By output: strict priorities, and those among them without a maximum rate.
    strict: Vec<(PriSet, PriSet)>,
    /// Frames dequeued although their priority was paused when last seen: (frame, output, priority).
    suspects: Vec<(u64, u8, Pri)>,
    /// Whether this step has taken over a new configuration, which may drop queues.
    reloaded: bool,
    lossless: PriSet,
    pfc_ports: u64,
    /// Cells of the shared part of the buffer.
    shared: u64,
    /// Whether a drop for full headroom is a violation; set if every peer obeys PAUSE in time.
    pub lossless_absolute: bool,
    violations: Vec<Violation>,
    count: u64,
}

impl Checkers {
    /// Checkers of a switch with the configuration of `snapshot`.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Self {
        let view = PortView {
            queued: PerPri([0; PRIS_MAX]),
            paused: PriSet::EMPTY,
            held: 0,
            xoff: PriSet::EMPTY,
            up: false,
        };
        let mut checkers = Self {
            frames: VecDeque::new(),
            first: 1,
            live: 0,
            copies_live: 0,
            charged: 0,
            waiting_cells: 0,
            last_tx: vec![0; PORTS_MAX * PORTS_MAX * PRIS_MAX],
            ports: vec![view; PORTS_MAX],
            last_deq: 0,
            mode: PfcMode::IngressPg,
            storm_action: StormAction::Drop,
            classes: [0; PRIS_MAX],
            strict: Vec::new(),
            suspects: Vec::new(),
            reloaded: false,
            lossless: PriSet::EMPTY,
            pfc_ports: 0,
            shared: 0,
            lossless_absolute: false,
            violations: Vec::new(),
            count: 0,
        };
        checkers.configure(snapshot);
        checkers
    }

    /// Takes over the configuration of `snapshot`, after a reload.
    pub fn configure(&mut self, snapshot: &Snapshot) {
        let config = &snapshot.config;
        self.mode = config.pfc.mode;
        self.storm_action = config.pfc.watchdog_action;
        self.classes = config.pfc.classes.0;
        // A rate may hold even a strict priority back, so it may wait for a lower one.
        self.strict = config
            .ports
            .iter()
            .map(|port| {
                let free = |pri: &Pri| port.egress.pri_max_rate[*pri].is_none();
                (port.egress.strict, port.egress.strict.iter().filter(free).collect())
            })
            .collect();
        self.lossless = snapshot.lossless;
        self.pfc_ports = snapshot.pfc_ports.bits();
        self.shared = snapshot.thresholds.shared();
    }

    /// Violations found: the first few, and the first of each checker.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Number of all violations found.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Copies of frames that were received and have not ended.
    #[must_use]
    pub const fn copies_live(&self) -> u64 {
        self.copies_live
    }

    #[cold]
    fn object(&mut self, now: Instant, checker: &'static str, saw: String) {
        self.count += 1;
        if is_kept(&self.violations, checker, KEEP) {
            self.violations.push(Violation { at_ps: now.as_ps(), checker, saw });
        }
    }

    fn frame(&mut self, number: u64) -> Option<&mut Frame> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.frames.get_mut(index).filter(|frame| frame.left > 0)
    }

    /// Ends one copy of a frame: it is sent, dropped or consumed.
    fn end(&mut self, number: u64) {
        self.copies_live -= 1;
        let Some(frame) = self.frame(number) else { return };
        frame.left -= 1;
        if frame.left == 0 {
            self.live -= 1;
        }
        // Frames end out of order; the deque keeps ended ones until those before them have ended.
        while self.frames.front().is_some_and(|frame| frame.left == 0) {
            self.frames.pop_front();
            self.first += 1;
        }
    }

    /// Releases the room of one copy; false if the frame holds none.
    fn release(&mut self, number: u64) -> bool {
        let Some(frame) = self.frame(number) else { return false };
        if frame.waiting == 0 {
            return false;
        }
        frame.waiting -= 1;
        let (cells, last) = (u64::from(frame.cells), frame.waiting == 0);
        // A lossless frame is charged once to its group until its last copy leaves (docs/spec/pipeline.md §4).
        if !frame.lossless || last {
            self.charged -= cells;
        }
        self.waiting_cells -= cells;
        true
    }

    fn view(&mut self, port: u8) -> &mut PortView {
        let index = usize::from(port) % PORTS_MAX;
        self.ports.get_mut(index).expect("PORTS_MAX of them")
    }

    /// Checks an event of the trace, and follows it.
    pub fn event(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::Rx { frame, port, .. } => self.on_rx(now, frame, port),
            Event::Classify { frame, pri, .. } => {
                if let Some(frame) = self.frame(frame) {
                    frame.pri = pri;
                }
            }
            Event::Forward { frame, outputs, .. } => self.on_forward(now, frame, outputs),
            Event::Admit { shared_used, .. } => {
                if shared_used > self.shared {
                    let saw = format!("{shared_used} cells shared are more than there are");
                    self.object(now, "buffer", saw);
                }
                self.on_admit(now, event);
            }
            Event::Drop { frame, reason, .. } => self.on_drop(now, frame, reason),
            Event::Consume { frame, .. } => {
                if self.frame(frame).is_some() {
                    self.end(frame);
                } else {
                    self.object(now, "conservation", format!("frame {frame} consumed twice"));
                }
            }
            Event::Match { output, pri, frames, .. } => {
                // Matched frames are in an egress queue until they are dequeued.
                self.view(output).queued[Pri::from_low_bits(pri)] += u32::from(frames);
            }
            Event::Deq { .. } => self.on_deq(now, event),
            Event::Tx { frame, port, .. } => self.on_tx(now, frame, port),
            Event::PauseRx { port, paused, .. } => {
                self.view(port).paused = PriSet::from_bits(paused);
            }
            Event::PauseTx { port, enable, pausing } => {
                self.on_pause(now, port, enable, pausing);
            }
            Event::Group { port, pri, xoff, used, limit } => {
                self.on_group(now, port, pri, xoff, (used, limit));
            }
            Event::Storm { port, pri, active } => {
                // The watchdog drops all that is queued there.
                if active && self.storm_action == StormAction::Drop {
                    self.view(port).queued[Pri::from_low_bits(pri)] = 0;
                }
            }
            Event::Link { port, up } => {
                let view = self.view(port);
                view.up = up;
                // Queues are dropped when a link goes down, and pauses of either side end with it.
                (view.queued, view.held) = (PerPri::default(), 0);
                view.paused = PriSet::EMPTY;
            }
            Event::Reload { .. } => self.reloaded = true,
            Event::Learn { .. } | Event::Block { .. } => {}
        }
    }

    fn on_rx(&mut self, now: Instant, frame: u64, port: u8) {
        // The index of a frame in the deque comes from its number, so numbers must have no gaps.
        if frame != self.first + self.frames.len() as u64 {
            self.object(now, "conservation", format!("frame {frame} is out of turn"));
            return;
        }
        self.frames.push_back(Frame { input: port, left: 1, ..Frame::default() });
        self.live += 1;
        self.copies_live += 1;
    }

    fn on_forward(&mut self, now: Instant, number: u64, outputs: u64) {
        let copies = u8::try_from(outputs.count_ones()).unwrap_or(0);
        let Some(frame) = self.frame(number) else {
            self.object(now, "conservation", format!("frame {number} forwarded after its end"));
            return;
        };
        let input = frame.input;
        frame.outputs = copies;
        if copies == 0 || outputs >> input & 1 != 0 {
            self.object(now, "forwarding", format!("frame {number} to {outputs:#x} from {input}"));
        }
    }

    fn on_admit(&mut self, now: Instant, event: &Event) {
        let Event::Admit { frame: number, input, pri, verdict, cells, used, limit, .. } = *event
        else {
            return;
        };
        if let Some(frame) = self.frame(number) {
            // The first copy that asks for room splits the frame into as many copies as it has outputs.
            let more = core::mem::take(&mut frame.outputs).saturating_sub(1);
            frame.left += more;
            self.copies_live += u64::from(more);
        }
        let lossless = self.lossless.contains(Pri::from_low_bits(pri))
            && self.pfc_ports >> (input & 63) & 1 != 0;
        if verdict == "queue" && used + cells > limit {
            self.object(now, "buffer", format!("frame {number} over its limit: {used}, {limit}"));
        }
        // Here `limit` is WRED's low threshold, below which no frame is dropped.
        if verdict == "wred" && used + cells < limit {
            self.object(now, "wred", format!("frame {number} dropped early: {used}, {limit}"));
        }
        if verdict == "in_headroom" && !lossless {
            self.object(now, "lossless", format!("frame {number} of lossy {pri} in headroom"));
        }
        if !matches!(verdict, "queue" | "in_headroom") {
            return;
        }
        let Some(frame) = self.frame(number) else {
            self.object(now, "conservation", format!("frame {number} queued after its end"));
            return;
        };
        // A lossless frame asks once for all its copies, a lossy one for each.
        let copies = if lossless { frame.left } else { 1 };
        frame.waiting += copies;
        frame.admitted = true;
        frame.lossless = lossless;
        frame.cells = u16::try_from(cells).unwrap_or(u16::MAX);
        self.charged += u64::from(cells);
        self.waiting_cells += u64::from(cells) * u64::from(copies);
    }

    fn on_drop(&mut self, now: Instant, number: u64, reason: &str) {
        let Some(frame) = self.frame(number).copied() else {
            self.object(now, "conservation", format!("frame {number} dropped after its end"));
            return;
        };
        // The frame had been dequeued, which released its room; then the pool had no chunk for its copy.
        let late = reason == "pool" && self.last_deq == number;
        if !late && !matches!(reason, "dt" | "headroom" | "wred") {
            self.release(number);
        }
        // These reasons come from admission: the frame has not been charged.
        if matches!(reason, "dt" | "headroom" | "wred") {
            let lossless = self.lossless.contains(Pri::from_low_bits(frame.pri))
                && self.pfc_ports >> (frame.input & 63) & 1 != 0;
            if lossless && (reason != "headroom" || self.lossless_absolute) {
                self.object(
                    now,
                    "lossless",
                    format!("frame {number}, pri {}: {reason}", frame.pri),
                );
            }
            if !lossless && reason == "headroom" {
                self.object(now, "lossless", format!("lossy frame {number} dropped: headroom"));
            }
        }
        self.end(number);
    }

    fn on_deq(&mut self, now: Instant, event: &Event) {
        let Event::Deq { frame, port, pri, depth, low, high, max_percent, ect, marked } = *event
        else {
            return;
        };
        if !self.release(frame) {
            self.object(now, "buffer", format!("frame {frame} dequeued, but holds no room"));
        }
        self.last_deq = frame;
        // From the high threshold on every frame is marked, also with a `max_percent` of 0.
        let never = depth <= low || depth < high && max_percent == 0;
        if marked && (!ect || never && low < high) {
            self.object(now, "ecn", format!("frame {frame} marked: ect {ect}, depth {depth}"));
        }
        if !marked && ect && depth >= high && high > 0 {
            self.object(now, "ecn", format!("frame {frame} not marked at depth {depth}"));
        }
        let strict = self.strict.get(usize::from(port)).copied().unwrap_or_default();
        let view = self.view(port);
        let pri = Pri::from_low_bits(pri);
        view.queued[pri] = view.queued[pri].saturating_sub(1);
        let paused = view.paused;
        if paused.contains(pri) {
            self.suspects.push((frame, port, pri)); // unless the pause has just ended
        }
        let (strict, free) = strict;
        let view = self.view(port);
        // `pri` was served: no strict priority above it may wait, unpaused and free of a rate.
        let waiting = free
            .without(paused)
            .iter_down()
            .find(|&waits| (waits > pri || !strict.contains(pri)) && view.queued[waits] > 0);
        if let Some(waits) = waiting.filter(|&waits| waits != pri && !self.reloaded) {
            self.object(now, "strict", format!("port {port}: {waits:?} waits for {pri:?}"));
        }
    }

    fn on_tx(&mut self, now: Instant, number: u64, port: u8) {
        let Some(frame) = self.frame(number).copied() else {
            self.object(now, "conservation", format!("frame {number} sent after its end"));
            return;
        };
        // Frames of one (input, output, priority) leave in the order of their numbers.
        let index = (usize::from(frame.input) * PORTS_MAX + usize::from(port)) * PRIS_MAX
            + usize::from(frame.pri);
        let last = self.last_tx.get_mut(index).map_or(0, |last| core::mem::replace(last, number));
        if last >= number {
            let saw = format!("frame {number} left port {port} after {last}");
            self.object(now, "fifo", saw);
        }
        if !frame.admitted {
            self.object(now, "conservation", format!("frame {number} sent, never queued"));
        }
        self.end(number);
    }

    fn on_pause(&mut self, now: Instant, port: u8, enable: u8, pausing: u8) {
        let classes = self.classes;
        let ingress = self.mode == PfcMode::IngressPg;
        let view = self.view(port);
        // A class is paused with reason if a priority that it stands for is above XOFF.
        let asked =
            view.xoff.iter().fold(0, |set, pri| set | classes.get(pri.index()).unwrap_or(&0));
        let (held, resumed) = (view.held, enable & !pausing);
        view.held = (view.held | pausing) & !resumed;
        if ingress && pausing & !asked != 0 {
            self.object(now, "pause", format!("port {port} pauses {pausing:#x} without a reason"));
        }
        if resumed & !held != 0 {
            self.object(now, "pause", format!("port {port} resumes {resumed:#x}, not paused"));
        }
    }

    fn on_group(&mut self, now: Instant, port: u8, pri: u8, xoff: bool, marks: (u32, u32)) {
        let pri = Pri::from_low_bits(pri);
        let view = self.view(port);
        let twice = view.xoff.contains(pri) == xoff;
        if xoff {
            view.xoff.insert(pri);
        } else {
            view.xoff.remove(pri);
        }
        if twice {
            self.object(now, "pause", format!("port {port} {pri:?}: xoff {xoff} twice, {marks:?}"));
        }
        if !self.lossless.contains(pri) {
            self.object(now, "pause", format!("port {port} {pri:?} is lossy, xoff {xoff}"));
        }
    }

    /// Compares with the counters of the switch; to be called between steps only.
    pub fn look(&mut self, now: Instant, core: &Core) {
        let snapshot = core.snapshot.load();
        let ledger = Ledger::read(core);
        if ledger.imbalance() != 0 {
            self.object(now, "conservation", format!("imbalance of {}", ledger.imbalance()));
        }
        if ledger.output_imbalance() != 0 {
            let left = ledger.output_imbalance();
            self.object(now, "conservation", format!("{left} drops missing at outputs"));
        }
        if ledger.queued != self.copies_live {
            let saw = format!("{} queued, {} by events", ledger.queued, self.copies_live);
            self.object(now, "conservation", saw);
        }
        let charged = core.buffer.charged();
        if charged != self.charged {
            self.object(now, "buffer", format!("{charged} cells, {} by events", self.charged));
        }
        let (mut shared, mut depth) = (0, 0);
        let count = snapshot.config.ports.len();
        let buffer = &snapshot.config.buffer;
        let over = |used: u32, reserve: u32| u64::from(used.saturating_sub(reserve));
        // With static sharing nothing is shared, so there is no sum to compare.
        let dynamic = matches!(buffer.sharing, weft_dataplane::config::Sharing::Dt);
        for input in (0..count).filter_map(PortId::new) {
            for pri in snapshot.pris.iter() {
                let head = core.buffer.headroom_used(input, pri);
                if head > snapshot.thresholds.headroom(input) {
                    self.object(now, "buffer", format!("{input:?} {pri:?}: {head} of headroom"));
                }
                shared += over(core.buffer.group_used(input, pri), buffer.pg_reserve_cells);
                depth += u64::from(core.buffer.depth(input, pri));
                for output in (0..count).filter_map(PortId::new) {
                    let used = core.buffer.voq_used(QueueKey { input, output, pri });
                    shared += over(used, buffer.voq_reserve_cells);
                }
            }
        }
        if dynamic && shared != core.buffer.shared_used(&snapshot.thresholds) {
            let had = core.buffer.shared_used(&snapshot.thresholds);
            self.object(now, "buffer", format!("{had} cells shared, {shared} by queues"));
        }
        if core.buffer.shared_used(&snapshot.thresholds) > snapshot.thresholds.shared()
            || charged > snapshot.plan.total
        {
            self.object(now, "buffer", format!("{charged} cells are more than there are"));
        }
        if depth != self.waiting_cells {
            let saw = format!("depths of {depth} cells, {} by events", self.waiting_cells);
            self.object(now, "buffer", saw);
        }
    }

    /// Follows which priorities are paused; to be called after every step, as it costs less than [`Self::look`].
    pub fn follow(&mut self, now: Instant, core: &Core, ports: usize) {
        for (port, view) in (0..ports).filter_map(PortId::new).zip(&mut self.ports) {
            // A pause may end by time alone, of which no event tells.
            view.paused = core.paused(port);
            for pri in core.storming(port).iter() {
                view.queued[pri] = 0; // the watchdog drops them
            }
        }
        self.reloaded = false;
        self.judge(now);
    }

    /// Objects to dequeues of priorities that turn out to be paused still.
    fn judge(&mut self, now: Instant) {
        while let Some((frame, port, pri)) = self.suspects.pop() {
            if self.view(port).paused.contains(pri) {
                self.object(now, "pause", format!("frame {frame}: port {port} {pri:?} is paused"));
            }
        }
    }

    /// Checks the end of a run in which all queues have become empty: no frame, room or pause may be left.
    pub fn finish(&mut self, now: Instant, core: &Core) {
        self.judge(now);
        self.look(now, core);
        if self.copies_live > 0 {
            self.object(now, "conservation", format!("{} frames are left", self.copies_live));
        }
        for port in 0..PORTS_MAX {
            // A port whose link is down keeps its state: its peer cannot be told.
            let Some(view) = self.ports.get(port).filter(|view| view.up) else { continue };
            let (held, xoff) = (view.held, view.xoff);
            if held != 0 || !xoff.is_empty() {
                let saw = format!("port {port} still pauses {held:#x}, {xoff:?}");
                self.object(now, "pause", saw);
            }
        }
    }
}

/// A tracer that hashes all events, checks them, and passes them on.
pub struct Watch<L> {
    trace: Trace<fn(Instant, &Event)>,
    /// Checkers of the switch.
    pub checkers: Checkers,
    /// Receiver of all events, after the checkers.
    pub listener: L,
}

const fn nobody(_now: Instant, _event: &Event) {}

impl<L: Listen> Watch<L> {
    /// Watches a switch with the configuration of `snapshot`.
    pub fn new(snapshot: &Snapshot, listener: L) -> Self {
        Self { trace: Trace::new(nobody), checkers: Checkers::new(snapshot), listener }
    }

    /// Hash of all events so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.trace.hash()
    }

    /// Number of events so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.trace.events()
    }
}

impl<L: Listen> Tracer for Watch<L> {
    const ON: bool = true;

    fn event(&mut self, now: Instant, event: Event) {
        self.trace.event(now, event);
        self.checkers.event(now, &event);
        self.listener.listen(now, &event);
    }

    fn bytes(&mut self, frame: u64, bytes: &[u8]) {
        self.listener.bytes(frame, bytes);
    }

    fn number(&mut self) -> u64 {
        self.trace.number()
    }
}
