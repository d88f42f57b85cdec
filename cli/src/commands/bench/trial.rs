//! One trial: sends frames from one port, or both, for a while, and counts the arrivals at the other.
//!
//! [`Rig`] has two ports, each driven by a thread of its own. [`Rig::run`] carries out an [`Ask`] and returns an
//! [`Outcome`].
//!
//! Source: RFC 2544 §23 (trial description), §21 (bidirectional traffic).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use weft_base::processors;
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::{Port, PortCounters, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_hosts::frames::{FrameSpec, Kind, Station};
use weft_hosts::host::{Host, HostSpec};
use weft_hosts::pace::Rate;
use weft_hosts::stream::rx::Latency;
use weft_hosts::stream::{StreamError, StreamSpec};
use weft_lab::clock::now;
use weft_lab::netdev::wait;
use weft_parsers::AfhMode;

use super::plan::Plan;
use super::search::Offered;

/// Chunks of the pool for bursts both ways, in addition to those that the ports hold.
pub const CHUNKS: usize = 16_384;
/// How far a generator may fall behind its schedule and still catch up.
const LAG_MAX: Span = Span::from_ms(10);
/// How much longer than planned a side may send before it is stopped.
const OVERTIME: Span = Span::from_ms(5_000);
/// Planned time of a burst, whose rate is not known in advance.
const FRAMES_TIME_MAX: Span = Span::from_ms(60_000);
/// Longest sleep of an idle side.
const SLEEP_MAX: Span = Span::from_ms(1);
/// Send times that are kept for frames too short to carry theirs.
const KEPT: usize = 1 << 20;
/// Upper bound of the stream numbers that trials use in turn, so that late frames count for no other trial. It is below
/// the announcements' number. Each side takes two numbers a trial.
const STREAMS: u16 = 0xFFF0;

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// A signal ended the trial.
    #[error("interrupted")]
    Interrupted,
    /// The frames cannot be made.
    #[error(transparent)]
    Frames(#[from] StreamError),
    #[error(transparent)]
    Port(#[from] PortError),
    /// A side's thread panicked.
    #[error("a sending or receiving thread failed")]
    Thread,
    /// The port accepted no frame.
    #[error("{device}: accepted none of the frames")]
    Unsent {
        /// Device of the sending port.
        device: String,
    },
}

/// The load of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Frames a second and direction; `None` for the generator's maximum.
    pub fps: Option<u64>,
    /// Duration, or number of frames.
    pub extent: Extent,
    /// Whether latencies are measured, which costs memory for frames too short to carry a send time.
    pub latency: bool,
}

/// How long a trial sends.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// Sends for this time.
    Time(Span),
    /// Sends this number of frames, one behind the other.
    Frames(u64),
}

/// Counts of one direction.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Frames that the port accepted and did not fail to send.
    pub sent: u64,
    /// Frames a second, over the time that sending took.
    pub offered_fps: u64,
    /// Frames that arrived, each counted once.
    pub unique: u64,
    /// Copies of frames that had arrived already.
    pub duplicates: u64,
    /// Frames that arrived behind later ones.
    pub reordered: u64,
    /// Frames that arrived with wrong bytes.
    pub corrupt: u64,
    /// Frames of earlier trials.
    pub late: u64,
    pub latency: Latency,
    /// Latency of the tagged frame in the middle of the trial; `None` if it did not arrive.
    pub tagged: Option<Span>,
}

/// Result of a trial.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By direction; one unless traffic is bidirectional.
    pub ways: Vec<Way>,
    /// Requested rate; `None` for the generator's maximum.
    asked_fps: Option<u64>,
}

impl Outcome {
    /// Combines the directions: the rate of the slower one, and the sum of the frames.
    #[must_use]
    pub fn offered(&self) -> Offered {
        let sum = |of: fn(&Way) -> u64| self.ways.iter().map(of).sum();
        Offered {
            asked_fps: self.asked_fps,
            offered_fps: self.ways.iter().map(|way| way.offered_fps).min().unwrap_or(0),
            sent_frames: sum(|way| way.sent),
            // A damaged frame counts as lost (docs/bench.md).
            received_frames: sum(|way| way.unique.saturating_sub(way.corrupt)),
        }
    }
}

/// One of the two ports, with its frame buffers and its station.
struct Side {
    port: Box<dyn Port>,
    bufs: Bufs,
    station: Station,
    core: Option<usize>,
}

/// Two ports, and the parameters that all trials between them share.
pub struct Rig {
    sides: [Side; 2],
    settle: Span,
    drain: Span,
    bidirectional: bool,
    busy: bool,
    stream: u16,
    stop: Arc<AtomicBool>,
}

/// State shared by the two threads of a trial.
struct Shared {
    /// Sides that still send.
    sending: AtomicUsize,
    failed: AtomicBool,
    /// Time at which a side that still sends is stopped.
    deadline: Instant,
    drain: Span,
    busy: bool,
    stop: Arc<AtomicBool>,
}

impl Rig {
    /// A rig that sends from the first port to the second, or both ways, with chunks of `pool`; `stop` ends a trial
    /// early.
    #[must_use]
    pub fn new(
        ports: [Box<dyn Port>; 2],
        pool: &Arc<Pool>,
        plan: &Plan,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let mut number = 0;
        let sides = ports.map(|port| {
            number += 1;
            Side {
                port,
                bufs: Bufs::new(pool.clone(), CHUNKS / 8, 4),
                station: Station::numbered(number),
                core: plan.cores.get(usize::from(number) - 1).copied(),
            }
        });
        Self {
            sides,
            settle: Span::from_ms(plan.settle_ms),
            drain: Span::from_ms(plan.drain_ms),
            bidirectional: plan.bidirectional,
            busy: plan.busy,
            stream: 0,
            stop,
        }
    }

    /// Announces both stations, sends the load `ask` in frames like `base`, and counts the arrivals.
    ///
    /// # Errors
    /// A device failed, no frame was sent, or a signal ended the trial: its figures would be meaningless.
    pub fn run(&mut self, base: &FrameSpec, ask: &Ask) -> Result<Outcome, TrialError> {
        // Two numbers for each side: the stream and its tagged frame.
        self.stream = if self.stream >= STREAMS { 0 } else { self.stream + 4 };
        let start = now() + self.settle;
        let planned = match ask.extent {
            Extent::Time(time) => time,
            Extent::Frames(_) => FRAMES_TIME_MAX,
        };
        let shared = Shared {
            sending: AtomicUsize::new(2),
            failed: AtomicBool::new(false),
            deadline: start + planned + OVERTIME,
            drain: self.drain,
            busy: self.busy,
            stop: self.stop.clone(),
        };
        let [near, far] = &mut self.sides;
        let mut forth = Half::new(near, far, base, self.stream, Some(ask), ask.latency, start)?;
        let back_ask = self.bidirectional.then_some(ask);
        let mut back = Half::new(far, near, base, self.stream + 2, back_ask, ask.latency, start)?;
        let (forth_end, back_end) = std::thread::scope(|scope| {
            let forth = scope.spawn(|| drive(near, &mut forth.host, &shared));
            let back = scope.spawn(|| drive(far, &mut back.host, &shared));
            (forth.join(), back.join())
        });
        // Also after an error or signal: both hosts still hold chunks, and the next trial uses the same pool.
        forth.finish(near);
        back.finish(far);
        let forth_at = forth_end.map_err(|_| TrialError::Thread)??;
        let back_at = back_end.map_err(|_| TrialError::Thread)??;
        if self.stop.load(Ordering::Relaxed) {
            return Err(TrialError::Interrupted);
        }
        let mut ways = vec![forth.way(&back, ask, forth_at.since(start))?];
        if self.bidirectional {
            ways.push(back.way(&forth, ask, back_at.since(start))?);
        }
        Ok(Outcome { ways, asked_fps: ask.fps })
    }
}

/// One side of a trial: its host, and the streams that it sends.
struct Half {
    host: Host,
    device: String,
    /// Number of its stream; its tagged frame has the next one.
    stream: u16,
    /// The port's count of failed sends before the trial.
    failed_before: u64,
    /// Frames of this trial that were made but not sent.
    unsent: u64,
}

impl Half {
    /// Makes the host of `side`, with its announcement queued. It sends the load `ask` to `peer`; without one it only
    /// receives.
    fn new(
        side: &Side,
        peer: &Side,
        base: &FrameSpec,
        id: u16,
        ask: Option<&Ask>,
        latency: bool,
        start: Instant,
    ) -> Result<Self, TrialError> {
        let (src, dst) = (side.station, peer.station);
        let frame = FrameSpec { src, dst, xpu_id: src.id, ..base.clone() };
        let device = side.port.caps().device.clone();
        let mut spec = HostSpec::new(device.clone(), src.mac);
        if frame.kind == Kind::Lite {
            spec.parse.afh = AfhMode::Lite; // without an EtherType of its own
        }
        spec.honour_pfc = false; // a PAUSE must not lower the offered rate
        // A latency runs until the burst has been read, which is later than the time of the poll.
        spec.arrival_clock = Some(now);
        spec.keep_arrivals = if latency { KEPT } else { 0 };
        spec.stations.push(FrameSpec { dst: Station::ALL, ..frame.clone() });
        if let Some(ask) = ask {
            let stream = StreamSpec {
                rate: ask.fps.map_or(Rate::Max, Rate::Fps),
                start,
                lag_max: Some(LAG_MAX),
                keep_times: if latency { KEPT } else { 0 },
                ..StreamSpec::new(id, frame)
            };
            spec.streams.push(match ask.extent {
                Extent::Time(time) => StreamSpec { duration: Some(time), ..stream.clone() },
                Extent::Frames(count) => StreamSpec { count: Some(count), ..stream.clone() },
            });
            if let (true, Extent::Time(time)) = (latency, ask.extent) {
                let middle = start + Span::from_ps(time.as_ps() / 2);
                let (id, count, keep_times) = (id + 1, Some(1), 1);
                spec.streams.push(StreamSpec { id, count, keep_times, start: middle, ..stream });
            }
        }
        let mut host = Host::new(spec)?;
        host.announce();
        let failed_before = side.port.counters().tx_failed;
        Ok(Self { host, device, stream: id, failed_before, unsent: 0 })
    }

    /// Counts frames that were made but not sent, and returns the host's chunks.
    fn finish(&mut self, side: &mut Side) {
        let counters = side.port.counters();
        // Before `release`, which frees the pending frames.
        let pending = self.host.report(Instant::ZERO, &counters).other.pending;
        self.unsent = pending + counters.tx_failed.saturating_sub(self.failed_before);
        self.host.release(&mut side.bufs);
    }

    /// Counts this side's frames at `peer`; sending them took `time`.
    fn way(&self, peer: &Self, ask: &Ask, time: Span) -> Result<Way, TrialError> {
        let (mut way, mut frames) = (Way::default(), 0);
        for id in [self.stream, self.stream + 1] {
            let Some(tx) = self.host.sending(id) else { continue };
            way.sent += tx.sent();
            let Some(rx) = peer.host.received(id) else { continue };
            frames += rx.frames;
            way.unique += rx.window.unique();
            way.duplicates += rx.duplicates;
            way.reordered += rx.reordered + rx.too_old;
            way.corrupt += rx.corrupt();
            let latency = rx.latency_with(tx.times());
            if id == self.stream {
                way.latency = latency;
            } else if latency.count() > 0 {
                way.tagged = Some(latency.max());
            }
        }
        way.sent = way.sent.saturating_sub(self.unsent);
        if way.sent == 0 {
            return Err(TrialError::Unsent { device: self.device.clone() });
        }
        // A side that was done early would have sent its last frame before the period's end, and the rate would be too
        // high.
        let time = match ask.extent {
            Extent::Time(planned) => time.max(planned),
            Extent::Frames(_) => time,
        };
        way.offered_fps = per_second(way.sent, time);
        let report = peer.host.report(Instant::ZERO, &PortCounters::default());
        let all: u64 = report.rx_streams.iter().map(|stream| stream.count.frames).sum();
        // Streams of other numbers are those of earlier trials.
        way.late = all.saturating_sub(frames);
        Ok(way)
    }
}

/// `frames` in `time`, as frames a second, rounded down.
fn per_second(frames: u64, time: Span) -> u64 {
    const SECOND_PS: u128 = 1_000_000_000_000;
    let rate = (u128::from(frames) * SECOND_PS).checked_div(u128::from(time.as_ps()));
    rate.and_then(|rate| u64::try_from(rate).ok()).unwrap_or(u64::MAX)
}

/// Runs one side until both have finished sending and `drain` has passed for frames in flight. Returns the time at
/// which this side had sent its last frame.
fn drive(side: &mut Side, host: &mut Host, shared: &Shared) -> Result<Instant, PortError> {
    if let Some(id) = side.core {
        drop(processors::bind(None, id)); // the plan has checked that the core exists
    }
    let (mut sent_at, mut over) = (None, None);
    loop {
        let at = now();
        let progress = match host.poll(at, side.port.as_mut(), &mut side.bufs) {
            Ok(progress) => progress,
            Err(error) => {
                // The other side must not wait for this one to finish sending.
                shared.failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        };
        if sent_at.is_none() {
            let given_up = at > shared.deadline;
            if given_up {
                host.stop();
            }
            // A blocked port still holds frames that it has not accepted.
            if given_up || host.is_done() && !progress.blocked {
                sent_at = Some(at);
                shared.sending.fetch_sub(1, Ordering::AcqRel); // pairs with the load below
            }
        }
        if let Some(sent_at) = sent_at
            && shared.sending.load(Ordering::Acquire) == 0
            && *over.get_or_insert(at + shared.drain) <= at
        {
            return Ok(sent_at);
        }
        if shared.stop.load(Ordering::Relaxed) || shared.failed.load(Ordering::Relaxed) {
            return Ok(at);
        }
        if progress.sent + progress.received == 0 {
            let until = if progress.blocked {
                Span::from_us(50)
            } else {
                progress.next.map_or(SLEEP_MAX, |next| next.since(at)).min(SLEEP_MAX)
            };
            if shared.busy {
                std::hint::spin_loop();
            } else {
                wait(side.port.as_ref(), until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_time_that_sending_took() {
        #[rustfmt::skip] // columns: frames, time, frames a second
        let cases = [
            (1_000, Span::from_ms(500), 2_000),
            (0, Span::from_ms(500), 0),
            (3, Span::ZERO, u64::MAX),
            (u64::MAX, Span::from_ns(1), u64::MAX),
        ];
        for (frames, time, want) in cases {
            assert_eq!(per_second(frames, time), want, "{frames} {time:?}");
        }
    }

    #[test]
    fn both_directions_count_and_the_slower_one_is_the_rate() {
        let way = |sent, offered_fps, unique, corrupt| Way {
            sent,
            offered_fps,
            unique,
            corrupt,
            ..Way::default()
        };
        let ways = vec![way(100, 1_000, 100, 0), way(90, 900, 80, 1)];
        let offered = Outcome { ways, asked_fps: Some(1_000) }.offered();
        assert_eq!((offered.offered_fps, offered.sent_frames), (900, 190));
        assert_eq!(offered.lost(), 11, "a frame with wrong bytes has not come");
        assert!(!offered.is_reached(), "900 of 1,000");
    }
}
