//! What a run says: plain data for programs and tables, and the balance over several hosts.
//!
//! [`Report`] of one host, serialised as JSON; [`balance`] holds senders against receivers.
//!
//! Units: frames, bytes without FCS, picoseconds (`_ps`), bit/s (`_bps`).

use std::collections::BTreeMap;

use serde::Serialize;
use weft_dataplane::port::PortCounters;
use weft_dataplane::time::Span;
use weft_dataplane::types::{PRIS_MAX, Pri};
use weft_parsers::Format;

use crate::stream::rx::{Latency, StreamRx};
use crate::stream::tx::StreamTx;

/// A count of frames and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Bytes without FCS.
    pub bytes: u64,
}

impl Count {
    /// Adds a frame of `len` bytes.
    #[inline]
    pub const fn add(&mut self, len: usize) {
        self.frames += 1;
        self.bytes += len as u64;
    }
}

/// Frames of one format and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Name of the format.
    pub format: &'static str,
    /// Priority by the header.
    pub pri: u8,
    /// How many.
    #[serde(flatten)]
    pub count: Count,
}

/// Frames by format and priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table([[Count; PRIS_MAX]; Format::COUNT]);

impl Table {
    /// Adds a frame of `len` bytes.
    #[inline]
    pub fn add(&mut self, format: Format, pri: Pri, len: usize) {
        let row = self.0.get_mut(format as usize);
        if let Some(count) = row.and_then(|row| row.get_mut(pri.index())) {
            count.add(len);
        }
    }

    /// The sum of all.
    #[must_use]
    pub fn total(&self) -> Count {
        self.0.iter().flatten().fold(Count::default(), |sum, had| Count {
            frames: sum.frames + had.frames,
            bytes: sum.bytes + had.bytes,
        })
    }

    /// The cells that are not empty.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        let rows = Format::ALL.into_iter().zip(&self.0);
        let cells = rows.flat_map(|(format, row)| {
            (0u8..).zip(row).map(move |(pri, count)| Cell {
                format: format.name(),
                pri,
                count: *count,
            })
        });
        cells.filter(|cell| cell.count.frames > 0).collect()
    }
}

/// Latencies of the frames that carried a send time; `None`, and `null` as JSON, where none did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencyReport {
    /// How many frames.
    pub frames: u64,
    /// Least.
    pub min_ps: Option<u64>,
    /// Mean.
    pub mean_ps: Option<u64>,
    /// Median.
    pub p50_ps: Option<u64>,
    /// 99 of 100 are at or below.
    pub p99_ps: Option<u64>,
    /// 999 of 1000 are at or below.
    pub p999_ps: Option<u64>,
    /// Most.
    pub max_ps: Option<u64>,
}

impl From<&Latency> for LatencyReport {
    fn from(latency: &Latency) -> Self {
        let frames = latency.count();
        let ps = |span: Span| (frames > 0).then_some(span.as_ps());
        Self {
            frames,
            min_ps: ps(latency.min()),
            mean_ps: ps(latency.mean()),
            p50_ps: ps(latency.quantile(0.5)),
            p99_ps: ps(latency.quantile(0.99)),
            p999_ps: ps(latency.quantile(0.999)),
            max_ps: ps(latency.max()),
        }
    }
}

impl LatencyReport {
    /// In nanoseconds, for people: "min 4 p50 ...", or `reason` behind "not measured: ".
    #[must_use]
    pub fn in_words(&self, reason: &str) -> String {
        let Self { min_ps, p50_ps, p99_ps, p999_ps, max_ps, .. } = *self;
        let names = ["min", "p50", "p99", "p99.9", "max"];
        let figures = names.into_iter().zip([min_ps, p50_ps, p99_ps, p999_ps, max_ps]);
        let words: Option<Vec<_>> =
            figures.map(|(name, ps)| Some(format!("{name} {}", ps? / 1_000))).collect();
        words.map_or_else(|| format!("not measured: {reason}"), |words| words.join(" "))
    }
}

/// What the sender of a stream reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TxStreamReport {
    /// Number of the stream.
    pub stream: u16,
    /// Kind of its frames.
    pub kind: &'static str,
    /// Priority; `None` of MAC Control.
    pub pri: Option<u8>,
    /// What was sent.
    #[serde(flatten)]
    pub count: Count,
    /// How far its schedule was moved because it could not be followed.
    pub behind_ps: u64,
}

impl TxStreamReport {
    pub(crate) fn new(tx: &StreamTx, pri: Option<Pri>) -> Self {
        Self {
            stream: tx.spec().id,
            kind: tx.spec().frame.kind.name(),
            pri: pri.map(Pri::get),
            count: Count { frames: tx.sent(), bytes: tx.bytes() },
            behind_ps: tx.behind().as_ps(),
        }
    }
}

/// What the receiver of a stream reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RxStreamReport {
    /// Number of the stream.
    pub stream: u16,
    /// What came, copies and flawed frames included.
    #[serde(flatten)]
    pub count: Count,
    /// Sequence numbers that came.
    pub unique: u64,
    /// One above the highest of them.
    pub next_seq: u64,
    /// Sequence numbers below it that did not come. What is missing behind the last frame that came
    /// only the sender can tell: see [`balance`].
    pub lost: u64,
    /// Frames that came behind a later one.
    pub reordered: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames too far behind to tell.
    pub too_old: u64,
    /// Frames with a flaw.
    pub corrupt: u64,
    /// Frames with a flaw: short, grown, payload, ICRC, header bits, IP checksum.
    pub flaws: [u64; 6],
    /// Frames by ECN codepoint: Not-ECT, ECT(1), ECT(0), CE.
    pub ecn: [u64; 4],
    /// Frames by priority.
    pub pris: [u64; PRIS_MAX],
    /// Frames by format.
    pub formats: BTreeMap<&'static str, u64>,
    /// First arrival.
    pub first_ps: Option<u64>,
    /// Last arrival.
    pub last_ps: Option<u64>,
    /// Bits of frames a second between them.
    pub rate_bps: u64,
    /// Latencies.
    pub latency: LatencyReport,
}

impl RxStreamReport {
    pub(crate) fn new(stream: u16, rx: &StreamRx) -> Self {
        let formats = Format::ALL.into_iter().zip(rx.formats);
        let span_ps = rx.first_last.map_or(0, |(first, last)| last.since(first).as_ps());
        let bits = u128::from(rx.bytes) * 8 * 1_000_000_000_000;
        let rate_bps = bits.checked_div(u128::from(span_ps)).unwrap_or_default();
        Self {
            stream,
            count: Count { frames: rx.frames, bytes: rx.bytes },
            unique: rx.window.unique(),
            next_seq: rx.window.next(),
            lost: rx.lost(None),
            reordered: rx.reordered,
            duplicates: rx.duplicates,
            too_old: rx.too_old,
            corrupt: rx.corrupt(),
            flaws: rx.flaws,
            ecn: rx.ecn,
            pris: rx.pris,
            formats: formats.filter(|(_, n)| *n > 0).map(|(f, n)| (f.name(), n)).collect(),
            first_ps: rx.first_last.map(|(first, _)| first.as_ps()),
            last_ps: rx.first_last.map(|(_, last)| last.as_ps()),
            rate_bps: u64::try_from(rate_bps).unwrap_or(u64::MAX),
            latency: (&rx.latency).into(),
        }
    }
}

/// MAC Control frames (PAUSE, PFC) that a host sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ControlReport {
    /// PFC frames received.
    pub pfc_rx: u64,
    /// Of them, how many stop each class.
    pub stop_rx: [u64; 8],
    /// Of them, how many let each class go on.
    pub go_rx: [u64; 8],
    /// Frames with PFC's opcode that are malformed.
    pub pfc_malformed: u64,
    /// 802.3x PAUSE frames received; they stop nothing.
    pub pause_rx: u64,
    /// Other MAC Control frames received.
    pub other_rx: u64,
    /// PFC frames that the slow receiver sent.
    pub pfc_tx: u64,
    /// Of them, how many stop each class.
    pub stop_tx: [u64; 8],
    /// Of them, how many let each class go on.
    pub go_tx: [u64; 8],
    /// Time that each priority was stopped.
    pub paused_ps: [u64; PRIS_MAX],
}

/// How full the buffer of a slow receiver was, and what it lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlowReport {
    /// Bytes in it now.
    pub used_bytes: usize,
    /// Most bytes of each priority at once.
    pub watermark_bytes: [usize; PRIS_MAX],
    /// Frames of each priority that found no room.
    pub overruns: [u64; PRIS_MAX],
}

/// Frames that belong to no stream, and frames that never were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OtherReport {
    /// Frames that made a station known.
    pub announcements: u64,
    /// Frames that nobody marked.
    pub foreign: u64,
    /// Frames whose mark does not hold together: corrupted, stream unknown.
    pub broken: u64,
    /// Frames that end inside a header that they claim to have.
    pub malformed: u64,
    /// Times that there was no free chunk for a frame; it was sent later.
    pub no_buffer: u64,
    /// Streams that were ended because a frame did not fit a chunk.
    pub unsendable: u64,
    /// Frames built that the port has not taken yet.
    pub pending: u64,
    /// Frames that kernel or device lost before the port.
    pub kernel_rx: u64,
    /// Frames that the port dropped on receipt.
    pub port_rx_dropped: u64,
    /// Frames that kernel or device refused to send.
    pub port_tx_failed: u64,
}

impl OtherReport {
    pub(crate) fn with_port(self, port: &PortCounters) -> Self {
        Self {
            kernel_rx: port.kernel_rx,
            port_rx_dropped: port.rx_dropped.iter().map(|(_, count)| count).sum(),
            port_tx_failed: port.tx_failed,
            ..self
        }
    }
}

/// The report of a host: its streams, other frames and its port's counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Name of the host.
    pub name: String,
    /// When the report was made.
    pub at_ps: u64,
    /// Data frames built, announcements included.
    pub tx: Count,
    /// The same by format and priority.
    pub tx_cells: Vec<Cell>,
    /// Data frames received, foreign ones included.
    pub rx: Count,
    /// The same by format and priority.
    pub rx_cells: Vec<Cell>,
    /// Streams sent.
    pub tx_streams: Vec<TxStreamReport>,
    /// Streams received.
    pub rx_streams: Vec<RxStreamReport>,
    /// Latencies over all streams.
    pub latency: LatencyReport,
    /// MAC Control.
    pub control: ControlReport,
    /// The buffer, if the host is a slow receiver.
    pub slow: Option<SlowReport>,
    /// All else.
    pub other: OtherReport,
}

impl Report {
    /// The report as JSON, on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        // plain data with string keys: nothing in it can fail to serialise
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether every frame that came was whole, once and in order, and nothing is missing between.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let whole = |rx: &RxStreamReport| {
            rx.lost + rx.reordered + rx.duplicates + rx.too_old + rx.corrupt == 0
        };
        let other = &self.other;
        other.broken + other.malformed + other.kernel_rx + other.port_rx_dropped == 0
            && self.rx_streams.iter().all(whole)
    }
}

/// A stream's frames as its sender and its receivers counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// Number of the stream.
    pub stream: u16,
    /// Frames sent, by all senders of that number.
    pub sent: u64,
    /// Frames that came, each counted once, at all receivers.
    pub received: u64,
    /// Frames that did not come; 0 where a frame came to more than one receiver.
    pub lost: u64,
    /// Frames that came behind a later one.
    pub reordered: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames with a flaw.
    pub corrupt: u64,
    /// Frames marked CE.
    pub marked: u64,
}

/// Compares what was sent with what was received, by stream; MAC Control is left out.
#[must_use]
pub fn balance(reports: &[Report]) -> Vec<Balance> {
    let mut streams: BTreeMap<u16, Balance> = BTreeMap::new();
    for tx in reports.iter().flat_map(|report| &report.tx_streams).filter(|tx| tx.pri.is_some()) {
        streams.entry(tx.stream).or_default().sent += tx.count.frames;
    }
    for rx in reports.iter().flat_map(|report| &report.rx_streams) {
        let both = streams.entry(rx.stream).or_default();
        let [_, _, _, ce] = rx.ecn;
        both.received += rx.unique;
        both.reordered += rx.reordered;
        both.duplicates += rx.duplicates;
        both.corrupt += rx.corrupt;
        both.marked += ce;
    }
    let finish = |(stream, had): (u16, Balance)| Balance {
        stream,
        lost: had.sent.saturating_sub(had.received),
        ..had
    };
    streams.into_iter().map(finish).collect()
}
