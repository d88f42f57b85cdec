//! Port on capture files: plays one, and writes sent frames to another.
//!
//! The whole input is read into memory when the port is opened, so that playing never waits for a disk. Output goes
//! through a buffer of 1 MiB into the page cache, where a write may block when memory is short: this port is for tests
//! and benches, not for a live switch.
//!
//! Source: docs/spec/pipeline.md §11, §13.

use std::path::PathBuf;

use weft_base::files::Existing;

use super::capture::{CaptureFormat, CaptureName, CaptureReader, CaptureWriter, Record};
use super::flaw::Flaw;
use super::{Port, PortCaps, PortCounters, PortError, PortOpenError, csum};
use crate::batch::{BURST, Batch};
use crate::pool::Bufs;
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate};

/// Times at which frames of the input are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the worker calls.
    Fast,
    /// By their stamps, counted from the first frame and the first call of `rx`.
    Stamps,
}

/// Settings of a pcap port.
#[derive(Clone, Debug)]
pub struct PcapConfig {
    /// Name of the port in reports.
    pub name: String,
    /// Rate that the port reports; it limits nothing.
    pub rate: LinkRate,
    /// Longest frame in bytes, without FCS.
    pub frame_len_max: usize,
    /// Capture to play; with `None` the port receives nothing.
    pub input: Option<CaptureName>,
    /// Times at which its frames are received.
    pub pace: Pace,
    /// How often it is played; `None` for no limit.
    pub times: Option<u64>,
    /// Capture to write sent frames to; with `None` they are discarded.
    pub output: Option<PathBuf>,
    /// Treatment of an output file that exists.
    pub existing: Existing,
}

/// One frame of the input; its bytes follow those of the frame before.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Time after the first frame's stamp, in ns.
    after_ns: u64,
    end: usize,
    flaw: Flaw,
}

/// Bytes of input that a port keeps at most. A packed file of some MiB may hold more than the machine's memory.
const INPUT_BYTES_MAX: usize = 4 << 30;

/// The frames to play.
#[derive(Debug, Default)]
struct Input {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    warnings: Vec<String>,
}

impl Input {
    /// Reads a capture, of which at most `most` bytes may be kept; `port` names the port in errors.
    fn read(port: &str, name: &CaptureName, most: usize) -> Result<Self, PortOpenError> {
        let capture = |source| PortOpenError::Capture { device: port.to_owned(), source };
        let mut reader = CaptureReader::open_name(name).map_err(capture)?;
        let (mut record, mut first, mut latest) = (Record::default(), None, 0);
        let mut input = Self::default();
        while reader.read_into(&mut record).map_err(capture)? {
            input.bytes.extend_from_slice(&record.data);
            let first = *first.get_or_insert(record.ts_ns);
            // A frame whose stamp lies before that of the frame in front follows it at once: order in the file counts.
            latest = record.ts_ns.saturating_sub(first).max(latest);
            let (end, flaw) = (input.bytes.len(), record.flaw());
            input.frames.push(Frame { after_ns: latest, end, flaw });
            let kept = end + input.frames.len() * size_of::<Frame>();
            if kept > most {
                return Err(PortOpenError::Config {
                    device: port.to_owned(),
                    what: "what its capture holds, in bytes",
                    had: kept as u64,
                    want: "at most 4 GiB: replay a larger one (weft replay), or split it",
                });
            }
        }
        input.warnings = reader.warnings();
        Ok(input)
    }
}

/// A port on capture files.
pub struct Pcap {
    caps: PortCaps,
    input: Input,
    pace: Pace,
    /// Playings left; the next frame of the current one, and where its bytes start. `u64::MAX` playings are no limit.
    times: u64,
    next: usize,
    at: usize,
    /// Start of the current playing.
    began: Option<Instant>,
    output: Option<CaptureWriter>,
    /// Scratch memory for frames whose checksum is completed, as other outputs may share their chunk.
    spare: Box<[u8]>,
    counters: PortCounters,
    fault: Option<std::io::Error>,
}

impl Pcap {
    /// Reads the input and creates the output.
    ///
    /// # Errors
    /// A file cannot be read or created, is damaged, or a setting is out of range.
    pub fn open(config: &PcapConfig) -> Result<Self, PortOpenError> {
        PortOpenError::check_frame_len_max(&config.name, config.frame_len_max)?;
        let capture = |source| PortOpenError::Capture { device: config.name.clone(), source };
        let input = match &config.input {
            None => Input::default(),
            Some(name) => Input::read(&config.name, name, INPUT_BYTES_MAX)?,
        };
        let output = match &config.output {
            None => None,
            Some(path) => {
                let format = CaptureFormat::for_path(path);
                let made = CaptureWriter::create_in_service(path, config.existing, format, 0);
                Some(made.map_err(capture)?)
            }
        };
        Ok(Self {
            caps: PortCaps {
                kind: "pcap",
                device: config.name.clone(),
                frame_len_max: config.frame_len_max,
                rate: config.rate,
                tx_partial_csum: false,
                virtual_time: false,
            },
            // Without frames a playing would never end.
            times: if input.frames.is_empty() { 0 } else { config.times.unwrap_or(u64::MAX) },
            input,
            pace: config.pace,
            next: 0,
            at: 0,
            began: None,
            output,
            spare: vec![0; 16 << 10].into(),
            counters: PortCounters::default(),
            fault: None,
        })
    }

    /// Warnings about the input for the user: it is cut off, or has frames that are not Ethernet.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.input.warnings
    }

    /// Whether all of the input was played.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.times == 0
    }

    /// Moves on to the next frame, or to the next playing.
    fn advance(&mut self, end: usize) {
        (self.next, self.at) = (self.next + 1, end);
        if self.next == self.input.frames.len() {
            (self.next, self.at, self.began) = (0, 0, None);
            if self.times != u64::MAX {
                self.times -= 1;
            }
        }
    }
}

impl Port for Pcap {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        // Bounded also while frames are dropped, which do not fill `batch`.
        for _ in 0..BURST {
            let Some(frame) = self.input.frames.get(self.next).copied().filter(|_| self.times > 0)
            else {
                break;
            };
            let began = *self.began.get_or_insert(now);
            let due = self.pace == Pace::Fast || frame.after_ns <= now.since(began).as_ns();
            if batch.is_full() || !due {
                break;
            }
            let bytes = self.input.bytes.get(self.at..frame.end).unwrap_or_default();
            let reason = match bytes.len() {
                _ if frame.flaw != Flaw::None => frame.flaw.reason(),
                0..14 => Some(DropReason::Malformed),
                len if len > self.caps.frame_len_max.min(bufs.room()) => Some(DropReason::TooLong),
                _ => None,
            };
            if let Some(reason) = reason {
                self.counters.rx_drop(reason);
            } else if let Some(desc) = bufs.alloc_from(bytes) {
                batch.push(desc);
            } else {
                break; // wait for a chunk: frames of a file are not lost by waiting
            }
            self.advance(frame.end);
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        BURST
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let count = batch.len();
        for desc in batch.drain(..) {
            if let Some(output) = &mut self.output {
                let frame = csum::outgoing(bufs, &desc, &mut self.spare);
                // The batch is taken all the same: the worker must not keep frames for a file that fails.
                if let Err(error) = output.write(now.as_ns(), frame, None) {
                    self.counters.tx_failed += 1;
                    self.fault = Some(std::io::Error::other(error));
                }
            }
            bufs.free(desc);
        }
        count
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        match self.fault.take() {
            None => Ok(()),
            Some(source) => {
                self.output = None; // report once; later frames are discarded
                Err(PortError { device: self.caps.device.clone(), call: "write capture", source })
            }
        }
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    /// Ends the output; a following `service` reports an error.
    fn release(&mut self, _bufs: &mut Bufs) {
        if let Some(Err(error)) = self.output.take().map(CaptureWriter::finish) {
            self.fault = Some(std::io::Error::other(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desc::Desc;
    use crate::pool::{PartialCsum, Pool};
    use crate::time::Span;

    /// A file in the system's place for them, gone at the end.
    struct Temp(PathBuf);

    impl Temp {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("weft-{}-{name}", std::process::id())))
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            drop(std::fs::remove_file(&self.0));
        }
    }

    fn config(input: &Temp) -> PcapConfig {
        PcapConfig {
            name: "p0".to_owned(),
            rate: LinkRate::gbps(100),
            frame_len_max: 1_518,
            input: Some(CaptureName::parse(input.0.to_str().unwrap())),
            pace: Pace::Fast,
            times: Some(1),
            output: None,
            existing: Existing::Replace,
        }
    }

    fn input(name: &str, frames: &[(u64, usize)]) -> Temp {
        let temp = Temp::new(name);
        let mut writer = CaptureWriter::create(&temp.0, CaptureFormat::Pcap, 1_600).unwrap();
        for &(ts, len) in frames {
            writer.write(ts, &vec![7; len], None).unwrap();
        }
        writer.finish().unwrap();
        temp
    }

    /// Receives at `now`, frees, and gives the lengths.
    fn lens(port: &mut Pcap, bufs: &mut Bufs, now_ns: u64) -> Vec<usize> {
        let mut batch = Batch::new();
        port.rx(Instant::ZERO + Span::from_ns(now_ns), bufs, &mut batch);
        let lens = batch.iter().map(Desc::len).collect();
        for desc in batch {
            bufs.free(desc);
        }
        lens
    }

    #[test]
    fn frames_are_played_at_once_or_at_their_stamps() {
        let file = input("pace.pcap", &[(1_000, 60), (1_100, 61), (1_050, 62), (1_200, 63)]);
        let mut bufs = Bufs::new(Pool::in_memory(64, 1_518).unwrap(), 16, 0);
        let mut fast = Pcap::open(&PcapConfig { times: Some(2), ..config(&file) }).unwrap();
        assert_eq!(lens(&mut fast, &mut bufs, 0), [60, 61, 62, 63, 60, 61, 62, 63]);
        assert!(fast.is_done());
        assert_eq!(lens(&mut fast, &mut bufs, 9), []);

        let mut paced = Pcap::open(&PcapConfig { pace: Pace::Stamps, ..config(&file) }).unwrap();
        for (now_ns, want) in
            [(5_000, vec![60]), (5_099, vec![]), (5_100, vec![61, 62]), (9_999, vec![63])]
        {
            assert_eq!(lens(&mut paced, &mut bufs, now_ns), want, "{now_ns}");
        }
        let mut forever = Pcap::open(&PcapConfig { times: None, ..config(&file) }).unwrap();
        for _ in 0..10 {
            assert_eq!(lens(&mut forever, &mut bufs, 0).len(), BURST);
        }
    }

    #[test]
    fn what_is_cut_off_too_long_or_too_short_is_counted() {
        let file = input("bad.pcap", &[(0, 13), (0, 14), (0, 1_601), (0, 1_519), (0, 1_518)]);
        let mut bufs = Bufs::new(Pool::in_memory(64, 1_518).unwrap(), 16, 0);
        let mut port = Pcap::open(&config(&file)).unwrap();
        assert_eq!(lens(&mut port, &mut bufs, 0), [14, 1_518]);
        let reasons = [DropReason::Malformed, DropReason::Truncated, DropReason::TooLong];
        for (reason, got) in reasons.into_iter().zip(port.counters().rx_dropped) {
            assert_eq!(got, (Some(reason), 1));
        }
    }

    #[test]
    fn an_input_is_played_as_far_as_it_goes_and_kept_within_bounds() {
        let file = input("cut.pcap", &[(0, 60), (1, 60), (2, 60)]);
        let whole = std::fs::read(&file.0).unwrap();
        std::fs::write(&file.0, &whole[..whole.len() - 1]).unwrap();
        let mut bufs = Bufs::new(Pool::in_memory(64, 1_518).unwrap(), 16, 0);
        let mut port = Pcap::open(&config(&file)).unwrap();
        assert_eq!(lens(&mut port, &mut bufs, 0), [60, 60]);
        assert!(port.warnings()[0].contains("record 3 at byte"), "{:?}", port.warnings());
        let name = CaptureName::parse(file.0.to_str().unwrap());
        let kept = 2 * (60 + size_of::<Frame>());
        assert!(Input::read("p0", &name, kept).is_ok());
        let refused = Input::read("p0", &name, kept - 1).unwrap_err().to_string();
        assert!(refused.contains("at most 4 GiB"), "{refused}");
    }

    /// A capture with FCS, whose second frame was damaged.
    #[test]
    fn what_was_damaged_is_counted() {
        let temp = Temp::new("fcs.pcap");
        let mut bytes = [0xA1B2_3C4D_u32, 4 << 16 | 2, 0, 0, 65_535, 0x2400_0001]
            .map(u32::to_le_bytes)
            .concat();
        for damage in [0, 1] {
            let frame = [7; 60];
            bytes.extend([0_u32, 0, 64, 64].map(u32::to_le_bytes).concat());
            bytes.extend(frame);
            bytes.extend(weft_parsers::crc::fcs(&frame).map(|byte| byte ^ damage));
        }
        std::fs::write(&temp.0, bytes).unwrap();
        let mut bufs = Bufs::new(Pool::in_memory(64, 1_518).unwrap(), 16, 0);
        let mut port = Pcap::open(&config(&temp)).unwrap();
        assert_eq!(lens(&mut port, &mut bufs, 0), [60]);
        assert_eq!(port.counters().rx_dropped[0], (Some(DropReason::Fcs), 1));
    }

    #[test]
    fn what_is_sent_is_written_padded_and_with_whole_checksums() {
        let (out, file) = (Temp::new("out.pcapng"), input("in.pcap", &[(0, 14), (0, 100)]));
        let mut bufs = Bufs::new(Pool::in_memory(64, 1_518).unwrap(), 16, 0);
        let settings = PcapConfig { output: Some(out.0.clone()), ..config(&file) };
        let mut port = Pcap::open(&settings).unwrap();
        let mut batch = Batch::new();
        port.rx(Instant::ZERO, &mut bufs, &mut batch);
        bufs.set_partial_csum(&mut batch[1], Some(PartialCsum { start: 34, offset: 6 }));
        assert_eq!(port.tx(Instant::from_ns(77), &mut bufs, &mut batch), 2);
        port.release(&mut bufs);
        port.service(Instant::ZERO, &mut bufs).unwrap();
        assert_eq!(bufs.used().get(), 0);

        let records: Vec<_> =
            CaptureReader::open(&out.0).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(records.iter().map(|r| r.ts_ns).collect::<Vec<_>>(), [77, 77]);
        assert_eq!(records[0].data, [vec![7; 14], vec![0; 46]].concat());
        assert_eq!(records[1].data.len(), 100);
        let want = !csum::sum(&[7; 66], 0);
        assert_eq!(records[1].data[40..42], want.to_be_bytes());
    }

    #[test]
    fn a_bad_file_is_refused_by_name() {
        let file = Temp::new("bad-magic.pcap");
        std::fs::write(&file.0, "no capture").unwrap();
        let PortOpenError::Capture { device, source } = Pcap::open(&config(&file)).err().unwrap()
        else {
            panic!("another error")
        };
        assert_eq!(device, "p0");
        assert!(source.to_string().contains("not a pcap or pcapng file"), "{source}");
    }
}
