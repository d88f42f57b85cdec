//! Capture reader: pcap (both stamps, both byte orders) and pcapng into records.
//!
//! Shape: file header or section; then records one by one; blocks of other kinds are skipped. Why not
//! a crate: see `pcap-parser` in Cargo.toml.
//! Units: bytes; stamps to ns.
//! Source: draft-ietf-opsawg-pcap-06, draft-ietf-opsawg-pcapng-05.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use weft_parsers::crc;

use super::fields::{Fields, Order};
use super::{
    BLOCK_INTERFACE, BLOCK_PACKET, BLOCK_PACKET_OBSOLETE, BLOCK_PACKET_SIMPLE, BLOCK_SECTION,
    BYTE_ORDER, CaptureError, Fcs, LINK_ETHERNET, LinkErrors, MAGIC_NS, MAGIC_US, OPT_COMMENT,
    OPT_EPB_FLAGS, OPT_IF_FCSLEN, OPT_IF_TSOFFSET, OPT_IF_TSRESOL, Place, RECORD_LEN_MAX, Record,
};

/// Longest block that is read into memory: a largest frame and options of 64 KiB many times over.
const BLOCK_LEN_MAX: u32 = 16 << 20;
/// Most interfaces of one file; a bound on what a file can make us keep.
const INTERFACES_MAX: usize = 65_536;

/// What a file says about one interface.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snaplen: u32,
    /// Bytes of FCS at the end of each frame.
    fcs_len: u8,
    /// Stamp unit: 10^-n s, or 2^-n s when the top bit is set.
    tsresol: u8,
    /// Seconds added to each stamp.
    tsoffset: i64,
}

impl Interface {
    /// A stamp in ns; `None` before 1970 or after 2554.
    fn to_ns(self, stamp: u64) -> Option<u64> {
        let n = u32::from(self.tsresol & 0x7F);
        let stamp = u128::from(stamp);
        let ns = if self.tsresol & 0x80 != 0 {
            (stamp * 1_000_000_000) >> n
        } else if n <= 9 {
            stamp * 10u128.pow(9 - n)
        } else {
            10u128.checked_pow(n - 9).map_or(0, |unit| stamp / unit)
        };
        let offset = i128::from(self.tsoffset) * 1_000_000_000;
        u64::try_from(i128::try_from(ns).ok()? + offset).ok()
    }
}

/// How the rest of the file is laid out.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Pcap { order: Order, interface: Interface },
    PcapNg { order: Order },
}

/// Reads records from a capture, from its start to its end.
///
/// An iterator of records; [`Self::read_into`] does the same without a new buffer for each. After
/// an error there are no more records.
pub struct CaptureReader {
    path: PathBuf,
    input: Box<dyn Read + Send>,
    layout: Layout,
    /// Interfaces of the whole file; those of the current section start at `section`.
    interfaces: Vec<Interface>,
    section: usize,
    block: Vec<u8>,
    record: u64,
    offset: u64,
    next_offset: u64,
    done: bool,
}

impl CaptureReader {
    /// Opens a pcap or pcapng file.
    ///
    /// # Errors
    /// The file cannot be opened, is neither, or (pcap) is not Ethernet.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let file = File::open(path)
            .map_err(|source| CaptureError::Open { path: path.to_owned(), source })?;
        Self::new(path, BufReader::with_capacity(1 << 16, file))
    }

    /// Reads a capture from `input`; `path` names it in errors.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn new(
        path: impl AsRef<Path>,
        input: impl Read + Send + 'static,
    ) -> Result<Self, CaptureError> {
        let mut reader = Self {
            path: path.as_ref().to_owned(),
            input: Box::new(input),
            layout: Layout::PcapNg { order: Order { big: false } },
            interfaces: Vec::new(),
            section: 0,
            block: Vec::new(),
            record: 0,
            offset: 0,
            next_offset: 0,
            done: false,
        };
        let magic: [u8; 4] = reader.need("the file header")?;
        if u32::from_le_bytes(magic) == BLOCK_SECTION {
            reader.section_header()?;
        } else if let Some(order) = Order::of(magic, MAGIC_NS) {
            reader.pcap_header(order, 9)?;
        } else if let Some(order) = Order::of(magic, MAGIC_US) {
            reader.pcap_header(order, 6)?;
        } else {
            let magic = u32::from_be_bytes(magic);
            return Err(CaptureError::Magic { path: reader.path, magic });
        }
        Ok(reader)
    }

    /// Reads the next record into `record`; false at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, is damaged or cut off, or holds a frame that is not Ethernet.
    pub fn read_into(&mut self, record: &mut Record) -> Result<bool, CaptureError> {
        if self.done {
            return Ok(false);
        }
        self.done = true; // unless all goes well
        let more = match self.layout {
            Layout::Pcap { order, interface } => self.pcap_record(order, interface, record)?,
            Layout::PcapNg { .. } => self.ng_record(record)?,
        };
        self.done = !more;
        Ok(more)
    }

    /// Interfaces that were described so far.
    #[must_use]
    pub fn interface_count(&self) -> usize {
        self.interfaces.len()
    }

    fn at(&self) -> Place {
        Place { path: self.path.clone(), record: self.record, offset: self.offset }
    }

    fn field(&self, what: &'static str, had: u64, want: &'static str) -> CaptureError {
        CaptureError::Field { at: self.at(), what, had, want }
    }

    /// A block that is shorter than what it must hold.
    fn cut(&self, what: &'static str, need: u64) -> CaptureError {
        CaptureError::Short { at: self.at(), what, need, had: self.block.len() as u64 }
    }

    /// Reads up to `buf`'s length; less only at the end of the file.
    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, CaptureError> {
        let mut had = 0;
        while let Some(rest) = buf.get_mut(had..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => break,
                Ok(n) => had += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(CaptureError::Read { at: self.at(), source }),
            }
        }
        self.next_offset += had as u64;
        Ok(had)
    }

    fn need<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CaptureError> {
        self.try_need(what)?.ok_or_else(|| CaptureError::Short {
            at: self.at(),
            what,
            need: N as u64,
            had: 0,
        })
    }

    /// `N` bytes, or `None` when the file ends right here.
    fn try_need<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<Option<[u8; N]>, CaptureError> {
        let mut bytes = [0; N];
        match self.fill(&mut bytes)? {
            0 => Ok(None),
            had if had == N => Ok(Some(bytes)),
            had => {
                let (need, had) = (N as u64, had as u64);
                Err(CaptureError::Short { at: self.at(), what, need, had })
            }
        }
    }

    /// Replaces `into` by the next `len` bytes; memory grows only as far as the file goes.
    fn read_bytes(
        &mut self,
        into: &mut Vec<u8>,
        len: u32,
        what: &'static str,
    ) -> Result<(), CaptureError> {
        into.clear();
        let need = u64::from(len);
        let read = (&mut self.input).take(need).read_to_end(into);
        let had = read.map_err(|source| CaptureError::Read { at: self.at(), source })? as u64;
        self.next_offset += had;
        if had < need {
            return Err(CaptureError::Short { at: self.at(), what, need, had });
        }
        Ok(())
    }

    // pcap ----------------------------------------------------------------------------------

    fn pcap_header(&mut self, order: Order, tsresol: u8) -> Result<(), CaptureError> {
        let header: [u8; 20] = self.need("the file header")?;
        let mut fields = Fields { rest: &header, order };
        let major = fields.u16().unwrap_or(0);
        let (_minor, _zone, _digits) = (fields.u16(), fields.u32(), fields.u32());
        let snaplen = fields.u32().unwrap_or(0);
        let link = fields.u32().unwrap_or(0);
        if major != 2 {
            return Err(self.field("pcap major version", u64::from(major), "2"));
        }
        let link_type = u16::from_le_bytes([link.to_le_bytes()[0], link.to_le_bytes()[1]]);
        // Bit 26: the top four bits hold the FCS length in units of 16 bits.
        let fcs = if link & 0x0400_0000 == 0 { 0 } else { (link >> 28) * 2 };
        let fcs_len = self.fcs_len(fcs, "FCS length of the file")?;
        let interface = Interface { link_type, snaplen, fcs_len, tsresol, tsoffset: 0 };
        self.check_link(interface)?;
        self.interfaces.push(interface);
        self.layout = Layout::Pcap { order, interface };
        Ok(())
    }

    fn pcap_record(
        &mut self,
        order: Order,
        interface: Interface,
        record: &mut Record,
    ) -> Result<bool, CaptureError> {
        self.offset = self.next_offset;
        self.record += 1;
        let Some(header) = self.try_need::<16>("a record header")? else { return Ok(false) };
        let mut fields = Fields { rest: &header, order };
        let mut word = || fields.u32().unwrap_or(0);
        let (sec, fraction, caplen, orig_len) = (word(), word(), word(), word());
        if caplen > RECORD_LEN_MAX {
            return Err(self.field("captured length", u64::from(caplen), "0..=262,144"));
        }
        let unit = if interface.tsresol == 9 { 1 } else { 1_000 };
        record.ts_ns = u64::from(sec) * 1_000_000_000 + u64::from(fraction) * unit;
        self.read_bytes(&mut record.data, caplen, "a frame")?;
        record.comment = None;
        record.link_errors = LinkErrors::default();
        record.interface = 0;
        finish(record, orig_len, interface.fcs_len);
        Ok(true)
    }

    // pcapng --------------------------------------------------------------------------------

    /// The rest of a section header after its type; a section has its own order and interfaces.
    fn section_header(&mut self) -> Result<(), CaptureError> {
        let head: [u8; 8] = self.need("a section header")?;
        let mut raw = Fields { rest: &head, order: Order { big: true } };
        let (len, magic) = (raw.array().unwrap_or([0; 4]), raw.array().unwrap_or([0; 4]));
        let Some(order) = Order::of(magic, BYTE_ORDER) else {
            let had = u64::from(u32::from_be_bytes(magic));
            return Err(self.field("byte-order magic", had, "1A2B3C4D in either order"));
        };
        let len = order.u32(len);
        let rest = self.block_rest(len, 12, 28)?;
        self.read_block(rest, len, order)?;
        let major = Fields { rest: &self.block, order }.u16().unwrap_or(0);
        if major != 1 {
            return Err(self.field("pcapng major version", u64::from(major), "1"));
        }
        self.layout = Layout::PcapNg { order };
        self.section = self.interfaces.len();
        Ok(())
    }

    /// Bytes of a block after the `had` that were read; its length is checked.
    fn block_rest(&self, len: u32, had: u32, least: u32) -> Result<u32, CaptureError> {
        if len < least || !len.is_multiple_of(4) {
            let want = "a multiple of 4 that holds the block's fields";
            return Err(self.field("block length", u64::from(len), want));
        }
        Ok(len - had)
    }

    /// Reads what is left of a block and takes its closing length off.
    fn read_block(&mut self, rest: u32, len: u32, order: Order) -> Result<(), CaptureError> {
        if rest > BLOCK_LEN_MAX {
            return Err(self.field("block length", u64::from(len), "at most 16 MiB"));
        }
        let mut block = core::mem::take(&mut self.block);
        let read = self.read_bytes(&mut block, rest, "a block");
        self.block = block;
        read?;
        let Some((_, closing)) = self.block.split_last_chunk::<4>() else {
            return Err(self.cut("a block", 4));
        };
        let closing = order.u32(*closing);
        self.block.truncate(self.block.len() - 4);
        if closing != len {
            let want = "the length at the block's start";
            return Err(self.field("closing block length", u64::from(closing), want));
        }
        Ok(())
    }

    /// Passes over a block that is not for us, without holding it.
    fn skip_block(&mut self, rest: u32) -> Result<(), CaptureError> {
        let need = u64::from(rest);
        let mut part = (&mut self.input).take(need);
        let had = std::io::copy(&mut part, &mut std::io::sink())
            .map_err(|source| CaptureError::Read { at: self.at(), source })?;
        self.next_offset += had;
        if had < need {
            return Err(CaptureError::Short { at: self.at(), what: "a block", need, had });
        }
        Ok(())
    }

    fn ng_record(&mut self, record: &mut Record) -> Result<bool, CaptureError> {
        self.record += 1;
        loop {
            self.offset = self.next_offset;
            let Some(kind) = self.try_need::<4>("a block header")? else { return Ok(false) };
            if u32::from_le_bytes(kind) == BLOCK_SECTION {
                self.section_header()?; // reads the same in either order
                continue;
            }
            let Layout::PcapNg { order } = self.layout else { return Ok(false) };
            let len = order.u32(self.need("a block header")?);
            let rest = self.block_rest(len, 8, 12)?;
            match order.u32(kind) {
                BLOCK_INTERFACE => {
                    self.read_block(rest, len, order)?;
                    self.interface_block(order)?;
                }
                kind @ (BLOCK_PACKET | BLOCK_PACKET_SIMPLE | BLOCK_PACKET_OBSOLETE) => {
                    self.read_block(rest, len, order)?;
                    self.packet_block(kind, order, record)?;
                    return Ok(true);
                }
                _ => self.skip_block(rest)?,
            }
        }
    }

    fn interface_block(&mut self, order: Order) -> Result<(), CaptureError> {
        let mut fields = Fields { rest: &self.block, order };
        let (Some(link_type), Some(_), Some(snaplen)) = (fields.u16(), fields.u16(), fields.u32())
        else {
            return Err(self.cut("an interface description", 8));
        };
        let mut interface = Interface { link_type, snaplen, fcs_len: 0, tsresol: 6, tsoffset: 0 };
        let mut fcs = 0;
        while let Some((code, value)) = fields.option() {
            match (code, value) {
                (OPT_IF_TSRESOL, [resolution, ..]) => interface.tsresol = *resolution,
                (OPT_IF_FCSLEN, [bytes, ..]) => fcs = u32::from(*bytes),
                (OPT_IF_TSOFFSET, value) => {
                    let seconds = value.first_chunk().map_or(0, |v| order.u64(*v));
                    interface.tsoffset = seconds.cast_signed();
                }
                _ => {}
            }
        }
        // Some writers took an early draft by its word and give bits.
        interface.fcs_len = self.fcs_len(if fcs == 32 { 4 } else { fcs }, "if_fcslen")?;
        if self.interfaces.len() == INTERFACES_MAX {
            return Err(self.field("number of interfaces", 65_537, "at most 65,536"));
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn packet_block(
        &mut self,
        kind: u32,
        order: Order,
        record: &mut Record,
    ) -> Result<(), CaptureError> {
        let block = core::mem::take(&mut self.block);
        let done = self.packet_fields(kind, Fields { rest: &block, order }, record);
        self.block = block;
        done
    }

    fn packet_fields(
        &self,
        kind: u32,
        mut fields: Fields<'_>,
        record: &mut Record,
    ) -> Result<(), CaptureError> {
        let room = fields.rest.len() as u64;
        let short =
            |need| CaptureError::Short { at: self.at(), what: "a packet block", need, had: room };
        let index = match kind {
            BLOCK_PACKET => fields.u32().ok_or_else(|| short(20))?,
            BLOCK_PACKET_OBSOLETE => {
                let index = fields.u16().ok_or_else(|| short(20))?;
                fields.u16().ok_or_else(|| short(20))?; // drop count
                u32::from(index)
            }
            _ => 0,
        };
        let (number, interface) = self.interface(index)?;
        let (stamp, caplen, orig_len) = if kind == BLOCK_PACKET_SIMPLE {
            let orig_len = fields.u32().ok_or_else(|| short(4))?;
            let limit = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
            (None, orig_len.min(limit), orig_len)
        } else {
            let mut word = || fields.u32().ok_or_else(|| short(20));
            let (high, low, caplen, orig_len) = (word()?, word()?, word()?, word()?);
            (Some(u64::from(high) << 32 | u64::from(low)), caplen, orig_len)
        };
        if caplen > RECORD_LEN_MAX {
            return Err(self.field("captured length", u64::from(caplen), "0..=262,144"));
        }
        let data = fields.padded(caplen as usize).ok_or_else(|| short(u64::from(caplen) + 20))?;
        record.data.clear();
        record.data.extend_from_slice(data);
        record.ts_ns = match stamp {
            None => 0,
            Some(stamp) => interface
                .to_ns(stamp)
                .ok_or_else(|| self.field("time stamp", stamp, "between 1970 and 2554"))?,
        };
        record.interface = number;
        record.comment = None;
        record.link_errors = LinkErrors::default();
        let mut fcs = u32::from(interface.fcs_len);
        while kind != BLOCK_PACKET_SIMPLE
            && let Some((code, value)) = fields.option()
        {
            match code {
                OPT_COMMENT if record.comment.is_none() => {
                    record.comment = Some(String::from_utf8_lossy(value).into_owned());
                }
                OPT_EPB_FLAGS => {
                    let flags = value.first_chunk().map_or(0, |v| fields.order.u32(*v));
                    let own = flags >> 5 & 0xF;
                    fcs = if own == 0 { fcs } else { own };
                    record.link_errors = LinkErrors::from_epb_flags(flags);
                }
                _ => {}
            }
        }
        finish(record, orig_len, self.fcs_len(fcs, "FCS length of the packet")?);
        Ok(())
    }

    /// The interface that this section calls `index`, and its number in the file.
    fn interface(&self, index: u32) -> Result<(u32, Interface), CaptureError> {
        let at = self.section.checked_add(index as usize);
        let Some(interface) = at.and_then(|at| self.interfaces.get(at)) else {
            let want = "an interface described before";
            return Err(self.field("interface", u64::from(index), want));
        };
        self.check_link(*interface)?;
        let number = u32::try_from(self.section).unwrap_or(u32::MAX).saturating_add(index);
        Ok((number, *interface))
    }

    fn check_link(&self, interface: Interface) -> Result<(), CaptureError> {
        if interface.link_type == LINK_ETHERNET {
            return Ok(());
        }
        Err(CaptureError::LinkType { at: self.at(), link_type: interface.link_type })
    }

    fn fcs_len(&self, bytes: u32, what: &'static str) -> Result<u8, CaptureError> {
        match bytes {
            0 => Ok(0),
            4 => Ok(4),
            had => Err(self.field(what, u64::from(had), "0 or 4 bytes for Ethernet")),
        }
    }
}

/// Checks the FCS and takes it off, and sets the length on the wire.
fn finish(record: &mut Record, orig_len: u32, fcs_len: u8) {
    let captured = u32::try_from(record.data.len()).unwrap_or(u32::MAX);
    let on_wire = orig_len.max(captured);
    record.orig_len = on_wire.saturating_sub(u32::from(fcs_len));
    let (frame, fcs) =
        record.data.split_at_checked(record.orig_len as usize).unwrap_or((&record.data, &[]));
    record.fcs = match fcs_len {
        0 => Fcs::Absent,
        _ if captured < on_wire => Fcs::CutOff,
        _ if crc::fcs(frame) == fcs => Fcs::Right,
        _ => Fcs::Wrong,
    };
    record.data.truncate(record.orig_len as usize);
}

impl Iterator for CaptureReader {
    type Item = Result<Record, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = Record::default();
        match self.read_into(&mut record) {
            Ok(true) => Some(Ok(record)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}
