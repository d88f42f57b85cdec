//! Results of a host as plain data that serialises to JSON, and [`balance`], which compares senders with receivers.
//!
//! Bytes are without FCS; a field's suffix is its unit: `_ps` picoseconds, `_bps` bit/s.

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
    /// Frames, each counted once.
    pub frames: u64,
    /// Their bytes, without FCS.
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

/// Number of frames of one format and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Name of the format, as in [`Format::name`].
    pub format: &'static str,
    /// Priority that the host's map gives to the header, 0..=7.
    pub pri: u8,
    /// Frames and bytes of this cell.
    #[serde(flatten)]
    pub count: Count,
}

/// Counts of frames by format and priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table([[Count; PRIS_MAX]; Format::COUNT]);

impl Table {
    /// Adds a frame of `len` bytes.
    #[inline]
    pub fn add(&mut self, format: Format, pri: Pri, len: usize) {
        // Format and priority come from the classifier and are always in range.
        let row = self.0.get_mut(format as usize);
        if let Some(count) = row.and_then(|row| row.get_mut(pri.index())) {
            count.add(len);
        }
    }

    /// The sum over all formats and priorities.
    #[must_use]
    pub fn total(&self) -> Count {
        self.0.iter().flatten().fold(Count::default(), |sum, had| Count {
            frames: sum.frames + had.frames,
            bytes: sum.bytes + had.bytes,
        })
    }

    /// The cells that have counted a frame, by format and then priority.
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
    /// Frames that carried a send time.
    pub frames: u64,
    /// Shortest latency, exact.
    pub min_ps: Option<u64>,
    /// Mean, exact but for rounding down.
    pub mean_ps: Option<u64>,
    /// Median, to about 1 %.
    pub p50_ps: Option<u64>,
    /// 99th percentile, to about 1 %.
    pub p99_ps: Option<u64>,
    /// 99.9th percentile, to about 1 %.
    pub p999_ps: Option<u64>,
    /// Longest latency, exact.
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
    /// The figures in nanoseconds as text, "min 4 p50 ...", or "not measured: `reason`".
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

/// Sender's side of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TxStreamReport {
    /// Number of the stream, as receivers see it in the stamp.
    pub stream: u16,
    /// Kind of its frames, as on the command line.
    pub kind: &'static str,
    /// Priority whose PAUSE stops the stream; `None` for MAC Control, which is never paused.
    pub pri: Option<u8>,
    /// Frames and bytes built, including those that the port has not taken yet.
    #[serde(flatten)]
    pub count: Count,
    /// How far its schedule was moved because the stream fell behind.
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

/// Receiver's side of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RxStreamReport {
    /// Number of the stream, read from the stamps.
    pub stream: u16,
    /// Frames and bytes received, copies and flawed frames included.
    #[serde(flatten)]
    pub count: Count,
    /// Sequence numbers received, each counted once.
    pub unique: u64,
    /// One above the highest sequence number received.
    pub next_seq: u64,
    /// Sequence numbers below `next_seq` that did not come. Losses behind the last frame that came are known to the
    /// sender alone: see [`balance`].
    pub lost: u64,
    /// Frames that came after one with a higher number.
    pub reordered: u64,
    /// Frames whose number had already come.
    pub duplicates: u64,
    /// Frames too far behind to be told from duplicates.
    pub too_old: u64,
    /// Frames with a flaw, of any kind.
    pub corrupt: u64,
    /// The same by kind: short, grown, payload, ICRC, header bits, IP checksum.
    pub flaws: [u64; 6],
    /// Frames by ECN codepoint: Not-ECT, ECT(1), ECT(0), CE.
    pub ecn: [u64; 4],
    /// Frames by priority of their headers.
    pub pris: [u64; PRIS_MAX],
    /// Frames by name of the format; formats without frames are left out.
    pub formats: BTreeMap<&'static str, u64>,
    /// Arrival of the first frame; `None` if there was none.
    pub first_ps: Option<u64>,
    /// Arrival of the last frame.
    pub last_ps: Option<u64>,
    /// Bits of all frames over the time from first to last arrival; 0 if that is 0.
    pub rate_bps: u64,
    /// Latencies of its frames that carry a send time.
    pub latency: LatencyReport,
}

impl RxStreamReport {
    pub(crate) fn new(stream: u16, rx: &StreamRx) -> Self {
        let formats = Format::ALL.into_iter().zip(rx.formats);
        let span_ps = rx.first_last.map_or(0, |(first, last)| last.since(first).as_ps());
        // 10^12 ps in a second; u128, as bits of a long run times that exceed 64 bits.
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
    /// PFC frames received, without the malformed ones.
    pub pfc_rx: u64,
    /// How many of them stop each class.
    pub stop_rx: [u64; 8],
    /// How many of them release each class.
    pub go_rx: [u64; 8],
    /// MAC Control frames with PFC's opcode that are malformed.
    pub pfc_malformed: u64,
    /// 802.3x PAUSE frames received; they stop nothing.
    pub pause_rx: u64,
    /// MAC Control frames received with any other opcode.
    pub other_rx: u64,
    /// PFC frames that the slow receiver sent.
    pub pfc_tx: u64,
    /// How many of them stop each class.
    pub stop_tx: [u64; 8],
    /// How many of them release each class.
    pub go_tx: [u64; 8],
    /// Time for which each priority was stopped.
    pub paused_ps: [u64; PRIS_MAX],
}

/// Fill level and losses of a slow receiver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlowReport {
    /// Bytes in the buffer when the report was made.
    pub used_bytes: usize,
    /// Most bytes of each priority that were in it at once.
    pub watermark_bytes: [usize; PRIS_MAX],
    /// Frames of each priority that found no room.
    pub overruns: [u64; PRIS_MAX],
}

/// Frames that belong to no stream, and frames that were never sent or received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OtherReport {
    /// Announcements received: frames by which switches learn a station.
    pub announcements: u64,
    /// Data frames received without a mark.
    pub foreign: u64,
    /// Frames whose mark is damaged or names an unknown stream.
    pub broken: u64,
    /// Frames that end inside a header that they claim to have.
    pub malformed: u64,
    /// Times that no chunk was free for a frame; the frame was sent later.
    pub no_buffer: u64,
    /// Streams that were ended because a frame did not fit a chunk.
    pub unsendable: u64,
    /// Frames built that the port has not taken yet.
    pub pending: u64,
    /// Frames that the kernel or the device lost before the port.
    pub kernel_rx: u64,
    /// Frames that the port dropped on receipt.
    pub port_rx_dropped: u64,
    /// Frames that the kernel or the device refused to send.
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
    /// Name of the host, as given to it.
    pub name: String,
    /// When the report was made, on the caller's clock.
    pub at_ps: u64,
    /// Data frames built, announcements included.
    pub tx: Count,
    /// `tx` by format and priority.
    pub tx_cells: Vec<Cell>,
    /// Data frames received, foreign ones included.
    pub rx: Count,
    /// `rx` by format and priority.
    pub rx_cells: Vec<Cell>,
    /// One entry for each stream that the host sends.
    pub tx_streams: Vec<TxStreamReport>,
    /// One entry for each stream of which a frame has come.
    pub rx_streams: Vec<RxStreamReport>,
    /// Latencies over all streams received.
    pub latency: LatencyReport,
    /// MAC Control frames, both ways.
    pub control: ControlReport,
    /// State of the buffer, if the host is a slow receiver.
    pub slow: Option<SlowReport>,
    /// Everything that belongs to no stream.
    pub other: OtherReport,
}

impl Report {
    /// The report as JSON, on one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        // plain data with string keys: nothing in it can fail to serialise
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether every frame that came was whole, came once and in order, and no frame between them is missing.
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

/// Counts of a stream, senders and receivers put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// Number of the stream, the same at senders and receivers.
    pub stream: u16,
    /// Frames sent, by all senders of that number.
    pub sent: u64,
    /// Frames that came, each counted once, at all receivers.
    pub received: u64,
    /// Frames that did not come; 0 where a frame came to more than one receiver.
    pub lost: u64,
    /// Frames that came after one with a higher number.
    pub reordered: u64,
    /// Frames whose number had already come.
    pub duplicates: u64,
    /// Frames with a flaw, of any kind.
    pub corrupt: u64,
    /// Frames that came with ECN codepoint CE.
    pub marked: u64,
}

/// Compares frames sent with frames received, by stream; MAC Control is left out, as it carries no stamp.
#[must_use]
pub fn balance(reports: &[Report]) -> Vec<Balance> {
    let mut streams: BTreeMap<u16, Balance> = BTreeMap::new();
    // Only MAC Control has no priority.
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
        // A flooded frame counts at each receiver, so more frames may be received than sent.
        lost: had.sent.saturating_sub(had.received),
        ..had
    };
    streams.into_iter().map(finish).collect()
}
