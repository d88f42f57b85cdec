//! Capture reader: turns pcap (both stamp units, both byte orders) and pcapng files into records.
//!
//! Records come one by one, of the chosen interfaces; blocks of other kinds are skipped. Why not a crate: see
//! `pcap-parser` in Cargo.toml.
//!
//! Source: draft-ietf-opsawg-pcap-06, draft-ietf-opsawg-pcapng-05; libpcap's sf-pcap.c for lengths of old files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use weft_parsers::crc;

use super::fields::{Fields, Order};
use super::interface::{CaptureName, Choice, Interface, Shown};
use super::source::Source;
use super::unpack::{Unpacked, unpack};
use super::{
    BLOCK_INTERFACE, BLOCK_PACKET, BLOCK_PACKET_OBSOLETE, BLOCK_PACKET_SIMPLE, BLOCK_SECTION,
    BYTE_ORDER, CaptureError, Fcs, LINK_ETHERNET, LinkErrors, MAGIC_NS, MAGIC_US, OPT_COMMENT,
    OPT_EPB_FLAGS, OPT_IF_FCSLEN, OPT_IF_NAME, OPT_IF_TSOFFSET, OPT_IF_TSRESOL, Place,
    RECORD_LEN_MAX, Record,
};

/// Longest block read into memory, in bytes: far more than a largest frame with its options.
const BLOCK_LEN_MAX: u32 = 16 << 20;
/// Interfaces kept per file, and bytes kept of a name: bounds on the memory that a file can claim.
const INTERFACES_MAX: usize = 65_536;
const NAME_LEN_MAX: usize = 256;
/// Interfaces that an error lists at most.
const LISTED_MAX: usize = 16;

/// Format of the file after its header.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// `minor` is the minor version.
    Pcap {
        order: Order,
        minor: u16,
    },
    PcapNg {
        order: Order,
    },
}

/// Reads the records of a capture in order.
///
/// An iterator of records; [`Self::read_into`] does the same without a new buffer for each. After an error there are no
/// more records. A file that is cut off ends with its last whole record; [`Self::warnings`] then says so.
pub struct CaptureReader {
    source: Source,
    layout: Layout,
    /// Interfaces of the whole file; those of the current section start at index `section`.
    interfaces: Vec<Interface>,
    section: usize,
    /// Index of the current section, from 0.
    sections: u32,
    choice: Choice,
    /// Place and link type of the first frame left out because it is not Ethernet.
    left_out: Option<(Place, u16)>,
    /// Where the file is cut off, if it is.
    cut: Option<CaptureError>,
    block: Vec<u8>,
    done: bool,
}

impl CaptureReader {
    /// Opens a pcap or pcapng file, packed by gzip or zstd or not. A pipe is read as it comes.
    ///
    /// # Errors
    /// The file cannot be opened, is neither format, or (pcap) is not Ethernet.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let file = File::open(path)
            .map_err(|source| CaptureError::Open { path: path.to_owned(), source })?;
        Self::new(path, file)
    }

    /// Opens a capture for the interfaces that `name` chooses.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_name(name: &CaptureName) -> Result<Self, CaptureError> {
        Ok(Self::open(&name.path)?.only(name.choice.clone()))
    }

    /// Reads a capture from `input`; `path` names it in errors.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn new(
        path: impl AsRef<Path>,
        input: impl Read + Send + 'static,
    ) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let place = || Place { path: path.to_owned(), record: 0, offset: 0 };
        let input = match unpack(input) {
            Ok(Unpacked::Bytes(input)) => input,
            Ok(Unpacked::Other(tool)) => {
                return Err(CaptureError::Packed { path: path.to_owned(), tool });
            }
            Err(source) => return Err(CaptureError::Read { at: place(), source }),
        };
        let mut reader = Self {
            source: Source::new(path.to_owned(), input),
            layout: Layout::PcapNg { order: Order { big: false } },
            interfaces: Vec::new(),
            section: 0,
            sections: 0,
            choice: Choice::default(),
            left_out: None,
            cut: None,
            block: Vec::new(),
            done: false,
        };
        let magic: [u8; 4] = reader.source.need("the file header")?;
        if u32::from_le_bytes(magic) == BLOCK_SECTION {
            reader.section_header()?;
            // `section_header` has counted the first section, which has index 0.
            reader.sections = 0;
        } else if let Some(order) = Order::of(magic, MAGIC_NS) {
            reader.pcap_header(order, 9)?;
        } else if let Some(order) = Order::of(magic, MAGIC_US) {
            reader.pcap_header(order, 6)?;
        } else {
            let magic = u32::from_be_bytes(magic);
            return Err(CaptureError::Magic { path: reader.source.path, magic });
        }
        Ok(reader)
    }

    /// Restricts the reader to the interfaces of `choice`.
    #[must_use]
    pub fn only(mut self, choice: Choice) -> Self {
        self.choice = choice;
        self
    }

    /// Reads the next record into `record`; false at the end of the file, and where it is cut off.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or has no interface that was chosen, or no Ethernet interface.
    pub fn read_into(&mut self, record: &mut Record) -> Result<bool, CaptureError> {
        if self.done {
            return Ok(false);
        }
        self.done = true; // unless all goes well
        let read = match self.layout {
            Layout::Pcap { order, minor } => self.pcap_record(order, minor, record),
            Layout::PcapNg { .. } => self.ng_record(record),
        };
        match read {
            Ok(true) => {
                self.done = false;
                return Ok(true);
            }
            Ok(false) if self.source.is_packed_cut => {
                let (at, what) = (self.source.at(), "what is packed");
                self.cut = Some(CaptureError::Short { at, what, need: 1, had: 0 });
            }
            Ok(false) => {}
            // A capture that a killed program was writing ends like this. Its whole records are still worth reading.
            Err(error @ CaptureError::Short { .. }) if self.source.ended => self.cut = Some(error),
            Err(error) => return Err(error),
        }
        self.check_choice().map(|()| false)
    }

    /// Interfaces described so far, in the order of their numbers.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Warnings for the user once the file was read: it is cut off, or has frames that are not Ethernet.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let cut = self.cut.iter().map(|error| format!("{error}; what comes before it was read"));
        let others = (0..).zip(&self.interfaces).filter(|(_, of)| of.left_out > 0);
        let others = others.map(|(number, interface)| {
            let Interface { link_type, left_out, .. } = interface;
            let (path, interface) = (self.source.path.display(), Shown(number, interface));
            format!("{path}: interface {interface} is not Ethernet, but of link type {link_type}: its frames are left out ({left_out})")
        });
        cut.chain(others).collect()
    }

    /// The place where the file is cut off, once it was read; `None` if it is whole.
    #[must_use]
    pub fn into_cut(self) -> Option<CaptureError> {
        self.cut
    }

    /// Checks, at the end of the file, that it has a chosen interface.
    fn check_choice(&mut self) -> Result<(), CaptureError> {
        let all = || (0..).zip(&self.interfaces);
        if all().any(|(number, interface)| self.choice.is_of(number, interface)) {
            return Ok(());
        }
        match (&self.choice, self.left_out.take()) {
            (Choice::Ethernet, None) => Ok(()), // no frame of any
            (Choice::Ethernet, Some((at, link_type))) => {
                Err(CaptureError::LinkType { at, link_type })
            }
            (wanted, _) => {
                let shown = (0..).zip(&self.interfaces).take(LISTED_MAX);
                let mut found: Vec<String> =
                    shown.map(|(number, it)| Shown(number, it).to_string()).collect();
                if self.interfaces.len() > LISTED_MAX {
                    found.push(format!("{} in all", self.interfaces.len()));
                }
                let (path, wanted) = (self.source.path.clone(), wanted.to_string());
                Err(CaptureError::NoInterface { path, wanted, found: found.join(", ") })
            }
        }
    }

    fn field(&self, what: &'static str, had: u64, want: &'static str) -> CaptureError {
        CaptureError::Field { at: self.source.at(), what, had, want }
    }

    /// An error for a block shorter than its fields.
    fn cut(&self, what: &'static str, need: u64) -> CaptureError {
        CaptureError::Short { at: self.source.at(), what, need, had: self.block.len() as u64 }
    }

    /// An error for a packet block with `had` bytes left where `need` are needed.
    fn short_packet(&self, need: u64, had: u64) -> CaptureError {
        CaptureError::Short { at: self.source.at(), what: "a packet block", need, had }
    }

    // pcap ----------------------------------------------------------------------------------

    fn pcap_header(&mut self, order: Order, tsresol: u8) -> Result<(), CaptureError> {
        let header: [u8; 20] = self.source.need("the file header")?;
        let mut fields = Fields { rest: &header, order };
        let major = fields.u16().unwrap_or(0);
        let (minor, _zone, _digits) = (fields.u16().unwrap_or(4), fields.u32(), fields.u32());
        let snaplen = fields.u32().unwrap_or(0);
        let link = fields.u32().unwrap_or(0);
        if major != 2 {
            return Err(self.field("pcap major version", u64::from(major), "2"));
        }
        let link_type = u16::from_le_bytes([link.to_le_bytes()[0], link.to_le_bytes()[1]]);
        // Bit 26: the top four bits hold the FCS length in units of 16 bits.
        let fcs = if link & 0x0400_0000 == 0 { 0 } else { (link >> 28) * 2 };
        let fcs_len = self.fcs_len(fcs, "FCS length of the file")?;
        if link_type != LINK_ETHERNET {
            return Err(CaptureError::LinkType { at: self.source.at(), link_type });
        }
        let interface = Interface { snaplen, fcs_len, tsresol, ..Interface::new(link_type, 0) };
        self.interfaces.push(interface);
        self.layout = Layout::Pcap { order, minor };
        Ok(())
    }

    fn pcap_record(
        &mut self,
        order: Order,
        minor: u16,
        record: &mut Record,
    ) -> Result<bool, CaptureError> {
        self.source.begin();
        self.source.record += 1;
        self.check_choice()?; // one interface, from the start
        let (tsresol, fcs_len) =
            self.interfaces.first().map_or((6, 0), |it| (it.tsresol, it.fcs_len));
        let Some(header) = self.source.try_need::<16>("a record header")? else { return Ok(false) };
        let mut fields = Fields { rest: &header, order };
        let mut word = || fields.u32().unwrap_or(0);
        let (sec, fraction, mut caplen, mut orig_len) = (word(), word(), word(), word());
        // Programs that wrote versions before 2.3 swapped the two lengths, and some of those that wrote 2.3 did.
        // libpcap's sf-pcap.c decides in the same way.
        if minor < 3 || minor == 3 && caplen > orig_len {
            core::mem::swap(&mut caplen, &mut orig_len);
        }
        if caplen > RECORD_LEN_MAX {
            return Err(self.field("captured length", u64::from(caplen), "0..=262,144"));
        }
        let unit = if tsresol == 9 { 1 } else { 1_000 };
        record.ts_ns = u64::from(sec) * 1_000_000_000 + u64::from(fraction) * unit;
        self.source.read_bytes(&mut record.data, caplen, "a frame")?;
        record.comment = None;
        record.link_errors = LinkErrors::default();
        record.interface = 0;
        finish(record, orig_len, fcs_len);
        Ok(true)
    }

    // pcapng --------------------------------------------------------------------------------

    /// Reads the rest of a section header; each section has its own byte order and interfaces.
    fn section_header(&mut self) -> Result<(), CaptureError> {
        let head: [u8; 8] = self.source.need("a section header")?;
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
        self.sections = self.sections.saturating_add(1);
        Ok(())
    }

    /// Checks a block's length and returns the bytes after the `had` that were read.
    fn block_rest(&self, len: u32, had: u32, least: u32) -> Result<u32, CaptureError> {
        if len < least || !len.is_multiple_of(4) {
            let want = "a multiple of 4 that holds the block's fields";
            return Err(self.field("block length", u64::from(len), want));
        }
        Ok(len - had)
    }

    /// Reads the rest of a block and removes the closing length.
    fn read_block(&mut self, rest: u32, len: u32, order: Order) -> Result<(), CaptureError> {
        if rest > BLOCK_LEN_MAX {
            return Err(self.field("block length", u64::from(len), "at most 16 MiB"));
        }
        // Taken out of `self`, which `source` is borrowed from, and put back for its capacity.
        let mut block = core::mem::take(&mut self.block);
        let read = self.source.read_bytes(&mut block, rest, "a block");
        self.block = block;
        read?;
        let Some((_, closing)) = self.block.split_last_chunk::<4>() else {
            return Err(self.cut("a block", 4));
        };
        let closing = order.u32(*closing);
        self.block.truncate(self.block.len() - 4);
        // A mismatch means that this reader is out of step with the blocks; going on would read frames as headers.
        if closing != len {
            let want = "the length at the block's start";
            return Err(self.field("closing block length", u64::from(closing), want));
        }
        Ok(())
    }

    fn ng_record(&mut self, record: &mut Record) -> Result<bool, CaptureError> {
        self.source.record += 1;
        loop {
            self.source.begin();
            let Some(kind) = self.source.try_need::<4>("a block header")? else { return Ok(false) };
            if u32::from_le_bytes(kind) == BLOCK_SECTION {
                self.section_header()?; // reads the same in either order
                continue;
            }
            let Layout::PcapNg { order } = self.layout else { return Ok(false) };
            let len = order.u32(self.source.need("a block header")?);
            let rest = self.block_rest(len, 8, 12)?;
            match order.u32(kind) {
                BLOCK_INTERFACE => {
                    self.read_block(rest, len, order)?;
                    self.interface_block(order)?;
                }
                kind @ (BLOCK_PACKET | BLOCK_PACKET_SIMPLE | BLOCK_PACKET_OBSOLETE) => {
                    self.read_block(rest, len, order)?;
                    if self.packet_block(kind, order, record)? {
                        return Ok(true);
                    }
                    self.source.record += 1; // of an interface that is not wanted
                }
                _ => self.source.skip(rest)?,
            }
        }
    }

    fn interface_block(&mut self, order: Order) -> Result<(), CaptureError> {
        let mut fields = Fields { rest: &self.block, order };
        let (Some(link_type), Some(_), Some(snaplen)) = (fields.u16(), fields.u16(), fields.u32())
        else {
            return Err(self.cut("an interface description", 8));
        };
        let mut interface = Interface { snaplen, ..Interface::new(link_type, self.sections) };
        let mut fcs = 0;
        while let Some((code, value)) = fields.option() {
            match (code, value) {
                (OPT_IF_NAME, name) => {
                    let name = name.get(..NAME_LEN_MAX).unwrap_or(name);
                    let name = String::from_utf8_lossy(name);
                    name.trim_end_matches('\0').clone_into(&mut interface.name);
                }
                (OPT_IF_TSRESOL, [resolution, ..]) => interface.tsresol = *resolution,
                (OPT_IF_FCSLEN, [bytes, ..]) => fcs = u32::from(*bytes),
                (OPT_IF_TSOFFSET, value) => {
                    let seconds = value.first_chunk().map_or(0, |v| order.u64(*v));
                    interface.tsoffset = seconds.cast_signed();
                }
                _ => {}
            }
        }
        if interface.is_ethernet() {
            // Some writers took an early draft by its word and give bits.
            interface.fcs_len = self.fcs_len(if fcs == 32 { 4 } else { fcs }, "if_fcslen")?;
        }
        if self.interfaces.len() == INTERFACES_MAX {
            return Err(self.field("number of interfaces", 65_537, "at most 65,536"));
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Reads a packet into `record`; false if its interface is not chosen.
    fn packet_block(
        &mut self,
        kind: u32,
        order: Order,
        record: &mut Record,
    ) -> Result<bool, CaptureError> {
        let block = core::mem::take(&mut self.block);
        let mut fields = Fields { rest: &block, order };
        let done = self.packet_interface(kind, &mut fields).and_then(|number| match number {
            Some(number) => self.packet_fields(kind, fields, number, record).map(|()| true),
            None => Ok(false),
        });
        self.block = block;
        done
    }

    /// Number of a packet's interface in the whole file; `None` if the interface is not chosen.
    fn packet_interface(
        &mut self,
        kind: u32,
        fields: &mut Fields<'_>,
    ) -> Result<Option<usize>, CaptureError> {
        let room = fields.rest.len() as u64;
        let index = match kind {
            BLOCK_PACKET => fields.u32(),
            BLOCK_PACKET_OBSOLETE => fields.u16().and_then(|index| {
                fields.u16()?; // drop count
                Some(u32::from(index))
            }),
            // A simple packet block names no interface: the first of its section is meant (4.4).
            _ => Some(0),
        };
        let index = index.ok_or_else(|| self.short_packet(20, room))?;
        let number = self.section.saturating_add(index as usize);
        let Some(interface) = self.interfaces.get_mut(number) else {
            let want = "an interface described before";
            return Err(self.field("interface", u64::from(index), want));
        };
        let (link_type, is_ethernet) = (interface.link_type, interface.is_ethernet());
        let is_wanted = u32::try_from(number).is_ok_and(|of| self.choice.is_of(of, interface));
        if self.choice == Choice::Ethernet && !is_ethernet {
            interface.left_out += 1;
            if self.left_out.is_none() {
                self.left_out = Some((self.source.at(), link_type));
            }
        } else if is_wanted && !is_ethernet {
            return Err(CaptureError::LinkType { at: self.source.at(), link_type });
        }
        Ok(is_wanted.then_some(number))
    }

    /// Reads the fields behind a packet block's interface, the file's `number`th.
    fn packet_fields(
        &self,
        kind: u32,
        mut fields: Fields<'_>,
        number: usize,
        record: &mut Record,
    ) -> Result<(), CaptureError> {
        let room = fields.rest.len() as u64;
        let short = |need| self.short_packet(need, room);
        let Some(interface) = self.interfaces.get(number) else { return Ok(()) };
        let (stamp, caplen, orig_len) = if kind == BLOCK_PACKET_SIMPLE {
            let orig_len = fields.u32().ok_or_else(|| short(4))?;
            // A simple packet block has no captured length: it follows from the interface's limit, where 0 means none
            // (4.4).
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
        record.interface = u32::try_from(number).unwrap_or(u32::MAX);
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
                    // Bits 5 to 8 hold the FCS length of this packet; 0 means that the packet does not say (4.3.1).
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

    fn fcs_len(&self, bytes: u32, what: &'static str) -> Result<u8, CaptureError> {
        match bytes {
            0 => Ok(0),
            4 => Ok(4),
            had => Err(self.field(what, u64::from(had), "0 or 4 bytes for Ethernet")),
        }
    }
}

/// Checks the FCS and removes it, and sets the length on the wire.
fn finish(record: &mut Record, orig_len: u32, fcs_len: u8) {
    let captured = u32::try_from(record.data.len()).unwrap_or(u32::MAX);
    // Some writers leave `orig_len` 0 or too small; a frame is at least as long as its captured part.
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
