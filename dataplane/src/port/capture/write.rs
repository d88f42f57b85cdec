//! Capture writer: frames into pcap or pcapng with nanosecond stamps, little-endian.
//!
//! The same calls give the same bytes: no clock, host or program name goes into the file.
//!
//! Source: draft-ietf-opsawg-pcap-06, draft-ietf-opsawg-pcapng-05.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use weft_base::files::{self, Existing};

use super::{
    BLOCK_INTERFACE, BLOCK_PACKET, BLOCK_SECTION, BYTE_ORDER, CaptureError, CaptureFormat,
    LINK_ETHERNET, MAGIC_NS, OPT_COMMENT, OPT_EPB_FLAGS, OPT_IF_NAME, OPT_IF_TSRESOL, Place,
    RECORD_LEN_MAX,
};

/// Direction of a frame, seen from the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// The record does not say.
    #[default]
    Unknown,
    /// The interface received the frame.
    In,
    /// The interface sent the frame.
    Out,
}

/// Facts recorded with a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta<'a> {
    /// Time stamp in ns since the epoch.
    pub ts_ns: u64,
    /// Interface, by the number that [`CaptureWriter::add_interface`] returned.
    pub interface: u32,
    /// Length on the wire in bytes, if the frame was cut off earlier; ignored if less than the frame has.
    pub orig_len: u32,
    /// Direction of the frame; pcap does not record it.
    pub direction: Direction,
    /// Comment, at most 65,535 bytes.
    pub comment: Option<&'a str>,
}

/// Writes frames to a capture file. pcap has no place for comments, directions and interfaces, so they are left out
/// there.
pub struct CaptureWriter {
    path: PathBuf,
    /// `None` once a write failed or the file was finished.
    out: Option<Box<dyn Write + Send>>,
    format: CaptureFormat,
    snaplen: u32,
    interfaces: u32,
    records: u64,
    offset: u64,
    block: Vec<u8>,
}

impl CaptureWriter {
    /// Creates the file, replacing an earlier result, and writes its header. Frames are cut to `snaplen` bytes; 0 is no
    /// limit.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(
        path: impl AsRef<Path>,
        format: CaptureFormat,
        snaplen: u32,
    ) -> Result<Self, CaptureError> {
        Self::create_as(path, Existing::Result, format, snaplen)
    }

    /// Like [`Self::create`]; `existing` decides about a file that exists.
    ///
    /// # Errors
    /// The file cannot be created or written, or exists.
    pub fn create_as(
        path: impl AsRef<Path>,
        existing: Existing,
        format: CaptureFormat,
        snaplen: u32,
    ) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let file = files::create(path, existing)
            .map_err(|source| CaptureError::Open { path: path.to_owned(), source })?;
        Self::new(path, BufWriter::with_capacity(1 << 20, file), format, snaplen)
    }

    /// Like [`Self::create_as`], in a process that serves: no pipe keeps it waiting for long.
    ///
    /// # Errors
    /// As for [`Self::create_as`]; a pipe that nothing reads.
    pub fn create_in_service(
        path: impl AsRef<Path>,
        existing: Existing,
        format: CaptureFormat,
        snaplen: u32,
    ) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let file = files::create_in_service(path, existing)
            .map_err(|source| CaptureError::Open { path: path.to_owned(), source })?;
        Self::new(path, BufWriter::with_capacity(1 << 20, file), format, snaplen)
    }

    /// Writes a capture to `out`; `path` names it in errors.
    ///
    /// # Errors
    /// The header cannot be written.
    pub fn new(
        path: impl AsRef<Path>,
        out: impl Write + Send + 'static,
        format: CaptureFormat,
        snaplen: u32,
    ) -> Result<Self, CaptureError> {
        let mut writer = Self {
            path: path.as_ref().to_owned(),
            out: Some(Box::new(out)),
            format,
            snaplen: if snaplen == 0 { RECORD_LEN_MAX } else { snaplen.min(RECORD_LEN_MAX) },
            interfaces: 0,
            records: 0,
            offset: 0,
            block: Vec::with_capacity(4_096),
        };
        match format {
            CaptureFormat::Pcap => {
                writer.put(&MAGIC_NS.to_le_bytes());
                writer.put(&[2, 0, 4, 0]); // version
                writer.put(&[0; 8]); // zone, digits
                writer.put(&writer.snaplen.to_le_bytes());
                writer.put(&u32::from(LINK_ETHERNET).to_le_bytes());
            }
            CaptureFormat::PcapNg => {
                writer.start_block(BLOCK_SECTION);
                writer.put(&BYTE_ORDER.to_le_bytes());
                writer.put(&[1, 0, 0, 0]); // version
                writer.put(&u64::MAX.to_le_bytes()); // length of the section: not said
                writer.end_block();
            }
        }
        writer.flush_block()?;
        Ok(writer)
    }

    /// Describes another interface and returns its number. Without any call the file has one interface without a name.
    /// pcap always has one only, and this does nothing.
    ///
    /// # Errors
    /// A write failed.
    pub fn add_interface(&mut self, name: &str) -> Result<u32, CaptureError> {
        if self.format == CaptureFormat::Pcap {
            return Ok(0);
        }
        self.start_block(BLOCK_INTERFACE);
        self.put(&LINK_ETHERNET.to_le_bytes());
        self.put(&[0; 2]);
        self.put(&self.snaplen.to_le_bytes());
        if !name.is_empty() {
            self.option(OPT_IF_NAME, name.as_bytes())?;
        }
        // 10^-9 s; without the option readers assume microseconds.
        self.option(OPT_IF_TSRESOL, &[9])?;
        self.put(&[0; 4]);
        self.end_block();
        self.flush_block()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a whole frame of interface 0.
    ///
    /// # Errors
    /// As for [`Self::write_with`].
    pub fn write(
        &mut self,
        ts_ns: u64,
        frame: &[u8],
        comment: Option<&str>,
    ) -> Result<(), CaptureError> {
        self.write_with(Meta { ts_ns, comment, ..Meta::default() }, frame)
    }

    /// Writes a frame and its facts.
    ///
    /// # Errors
    /// A write failed, the interface was not described, the comment is longer than 65,535 bytes, or the stamp is after
    /// 2106 and the file is pcap. Nothing of the record is written then.
    pub fn write_with(&mut self, meta: Meta<'_>, frame: &[u8]) -> Result<(), CaptureError> {
        // Counted before it is written, so that an error names this record; `field` takes it back.
        self.records += 1;
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let orig_len = meta.orig_len.max(len);
        let caplen = len.min(self.snaplen);
        let data = frame.get(..caplen as usize).unwrap_or(frame);
        match self.format {
            CaptureFormat::Pcap => {
                let Ok(sec) = u32::try_from(meta.ts_ns / 1_000_000_000) else {
                    return Err(self.field("time stamp in ns", meta.ts_ns, "before 2106 in pcap"));
                };
                self.put(&sec.to_le_bytes());
                let fraction = (meta.ts_ns % 1_000_000_000).to_le_bytes();
                self.put(fraction.get(..4).unwrap_or_default());
                self.put(&caplen.to_le_bytes());
                self.put(&orig_len.to_le_bytes());
                self.put(data);
            }
            CaptureFormat::PcapNg => {
                // A packet may only name an interface that was described before it (4.3).
                if self.interfaces == 0 {
                    self.add_interface("")?;
                }
                if meta.interface >= self.interfaces {
                    let had = u64::from(meta.interface);
                    return Err(self.field("interface", had, "one that was added"));
                }
                self.packet_block(meta, data, caplen, orig_len)?;
            }
        }
        self.flush_block()
    }

    fn packet_block(
        &mut self,
        meta: Meta<'_>,
        data: &[u8],
        caplen: u32,
        orig_len: u32,
    ) -> Result<(), CaptureError> {
        self.start_block(BLOCK_PACKET);
        self.put(&meta.interface.to_le_bytes());
        let stamp = meta.ts_ns.rotate_left(32).to_le_bytes(); // high word first
        self.put(&stamp);
        self.put(&caplen.to_le_bytes());
        self.put(&orig_len.to_le_bytes());
        self.put(data);
        self.pad();
        let before = self.block.len();
        if let Some(comment) = meta.comment {
            self.option(OPT_COMMENT, comment.as_bytes())?;
        }
        match meta.direction {
            Direction::Unknown => {}
            Direction::In => self.option(OPT_EPB_FLAGS, &[1, 0, 0, 0])?,
            Direction::Out => self.option(OPT_EPB_FLAGS, &[2, 0, 0, 0])?,
        }
        // A block without options has no end mark either (3.5).
        if self.block.len() > before {
            self.put(&[0; 4]); // end of options
        }
        self.end_block();
        Ok(())
    }

    /// Frames written so far.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Hands buffered bytes to the system.
    ///
    /// # Errors
    /// A write failed.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        let Some(out) = self.out.as_mut() else { return Err(self.closed()) };
        let done = out.flush();
        self.check(done)
    }

    /// Ends the file; returns the number of its frames.
    ///
    /// # Errors
    /// A write failed, now or before.
    pub fn finish(mut self) -> Result<u64, CaptureError> {
        self.flush()?;
        self.out = None;
        Ok(self.records)
    }

    fn at(&self) -> Place {
        Place { path: self.path.clone(), record: self.records, offset: self.offset }
    }

    /// An error for a value that the format cannot hold; the record in progress is dropped and not counted.
    fn field(&mut self, what: &'static str, had: u64, want: &'static str) -> CaptureError {
        self.block.clear();
        let at = self.at();
        self.records = self.records.saturating_sub(1);
        CaptureError::Field { at, what, had, want }
    }

    fn closed(&self) -> CaptureError {
        let source = std::io::Error::other("an earlier write to this capture failed");
        CaptureError::Write { at: self.at(), source }
    }

    /// After a failed write the file ends in the middle of a record, so nothing may follow it: closes the file.
    fn check(&mut self, done: std::io::Result<()>) -> Result<(), CaptureError> {
        done.map_err(|source| {
            self.out = None;
            CaptureError::Write { at: self.at(), source }
        })
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) -> Result<(), CaptureError> {
        let Ok(len) = u16::try_from(value.len()) else {
            return Err(self.field("option length", value.len() as u64, "at most 65,535 bytes"));
        };
        self.put(&code.to_le_bytes());
        self.put(&len.to_le_bytes());
        self.put(value);
        self.pad();
        Ok(())
    }

    fn start_block(&mut self, kind: u32) {
        self.put(&kind.to_le_bytes());
        self.put(&[0; 4]); // length, known at the end
    }

    fn end_block(&mut self) {
        // The length stands at both ends of a block and counts itself, so that readers can walk backwards (3.1).
        let len = u32::try_from(self.block.len() + 4).unwrap_or(u32::MAX).to_le_bytes();
        if let Some(at) = self.block.get_mut(4..8) {
            at.copy_from_slice(&len);
        }
        self.put(&len);
    }

    fn flush_block(&mut self) -> Result<(), CaptureError> {
        let Some(out) = self.out.as_mut() else { return Err(self.closed()) };
        let done = out.write_all(&self.block);
        self.check(done)?;
        self.offset += self.block.len() as u64;
        self.block.clear();
        Ok(())
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        if let Some(out) = self.out.as_mut() {
            drop(out.flush()); // `finish` reports errors; `drop` cannot
        }
    }
}
