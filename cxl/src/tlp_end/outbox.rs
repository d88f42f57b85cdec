//! Frames to send: each TLP is written with its addresses, link header and PTH, and assigned its priority.
//!
//! [`Outbox::send`] appends a frame; [`Head`] is the part in front of the TLP.
//!
//! Units: bytes without FCS.
//! Source: docs/spec/wire-formats.md §3.7a.

use arrayvec::ArrayVec;
use weft_dataplane::config::TlpConfig;
use weft_dataplane::types::Pri;
use weft_parsers::MacAddr;
use weft_parsers::cxl_cache::{self, CacheMessage, CacheOp};
use weft_parsers::cxl_mem::{self, MemMessage, MemOp};
use weft_parsers::tlp::{
    Body, DevLoad, EmitError, HEAD_LEN_MAX, Kind, LinkReset, Mode, Protocol, Pth, Tlp, TlpLink,
    TlpRepr, VendPrefixL0, link, pth,
};

use super::config::{Carries, EndConfig};

/// Destination and source address of a frame, bytes.
pub(super) const MACS_LEN: usize = 12;
/// Addresses, link header and PTH, bytes.
const HEAD_MAX: usize = MACS_LEN + link::LEN + pth::LEN;
const _: () = assert!(HEAD_MAX <= 64, "a head fits the first cache line");

/// Frames that a handler has written and that are not sent yet.
#[derive(Debug)]
pub struct Outbox {
    pub(super) bytes: Vec<u8>,
    /// End of each frame in `bytes`, and its priority.
    pub(super) ends: Vec<(usize, Pri)>,
    mac: MacAddr,
    pub(super) partner: MacAddr,
    carries: Carries,
    tlp: TlpConfig,
    /// Prefix of all TLPs sent: it names the logical device that sends them.
    prefix: Option<VendPrefixL0>,
    /// Device load told in completions of UIO and responses of CXL.mem; `None` leaves their own value.
    load: Option<DevLoad>,
}

/// Reason why an [`Outbox`] did not accept a TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It cannot be encoded.
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// The link requires a PTH, or forbids one.
    #[error("the link carries TLPs {0}")]
    Pth(&'static str),
}

/// Reason why [`super::TlpEnd::place`] did not append a TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It cannot be encoded, or does not belong on the link.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The pool has no free chunk now.
    #[error("the pool has no free chunk")]
    NoChunk,
    /// The caller's `fill` did not write the payload.
    #[error("the payload was not written")]
    Unfilled,
}

impl From<EmitError> for PlaceError {
    fn from(error: EmitError) -> Self {
        Self::Send(error.into())
    }
}

impl Outbox {
    /// An empty outbox, whose frames are broadcast until the partner has sent one.
    pub(super) fn new(config: &EndConfig) -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            mac: config.mac,
            partner: MacAddr::BROADCAST,
            carries: config.carries,
            tlp: config.tlp.clone(),
            prefix: None,
            load: None,
        }
    }

    /// Sets the prefix of all TLPs from now on, in place of their own; `None` leaves their own.
    pub(crate) const fn set_prefix(&mut self, prefix: Option<VendPrefixL0>) {
        self.prefix = prefix;
        // The load belongs to the logical device that the prefix named.
        self.load = None;
    }

    /// Sets the load told in completions of UIO and responses of CXL.mem, until the next prefix.
    pub(crate) const fn set_load(&mut self, load: DevLoad) {
        self.load = Some(load);
    }

    /// Appends a TLP. On a link that carries both kinds, the PTH decides which kind it is.
    ///
    /// # Errors
    /// See [`SendError`]; nothing is appended then.
    pub fn send(&mut self, pth: Option<Pth>, tlp: &TlpRepr<'_>) -> Result<(), SendError> {
        self.send_to(self.partner, pth, tlp)
    }

    /// As [`Self::send`], to a given address of the link.
    ///
    /// # Errors
    /// See [`SendError`]; nothing is appended then.
    pub fn send_to(
        &mut self,
        to: MacAddr,
        pth: Option<Pth>,
        tlp: &TlpRepr<'_>,
    ) -> Result<(), SendError> {
        let mut tlp = TlpRepr { vend_prefix: self.prefix.or(tlp.vend_prefix), ..*tlp };
        if let (Some(load), Body::UioCompletion { dev_load, .. }) = (self.load, &mut tlp.body) {
            *dev_load = load;
        }
        let tlp = &tlp;
        let protocol = self.protocol(pth, tlp)?;
        let pri = pri_of(tlp.kind, tlp.tc, &self.tlp);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(self.head(to, protocol, pth).bytes());
        let (at, mut tlp_head) = (self.bytes.len(), [0; HEAD_LEN_MAX]);
        let written = tlp.emit_head(tlp.payload.len(), &mut tlp_head).and_then(|len| {
            self.bytes.extend_from_slice(tlp_head.get(..len).unwrap_or_default());
            self.bytes.extend_from_slice(tlp.payload);
            // `emit_head` does not refuse all bad combinations of fields; reading the whole back does.
            tlp.read_back(self.bytes.get(at..).unwrap_or_default())
        });
        match written {
            Ok(()) => {
                self.ends.push((self.bytes.len(), pri));
                Ok(())
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(error.into())
            }
        }
    }

    /// Appends a TLP without PTH exactly as received, including fields that [`TlpRepr`] does not have.
    ///
    /// # Errors
    /// The link requires a PTH; nothing is appended then.
    pub fn pass(&mut self, tlp: &Tlp<'_>) -> Result<(), SendError> {
        if self.carries == Carries::Pbr {
            return Err(SendError::Pth("with PTH"));
        }
        let protocol = match tlp.mode() {
            Mode::Flit => Protocol::HbrFlit,
            Mode::NonFlit => Protocol::HbrNonFlit,
        };
        let head = self.head(self.partner, protocol, None);
        self.bytes.extend_from_slice(head.bytes());
        self.bytes.extend_from_slice(tlp.bytes().get(..tlp.len()).unwrap_or_default());
        self.ends.push((self.bytes.len(), pri_of(tlp.kind(), tlp.tc(), &self.tlp)));
        Ok(())
    }

    /// Appends a CXL.mem message.
    ///
    /// # Errors
    /// The link requires a PTH, or forbids one; nothing is appended then.
    pub fn send_mem(
        &mut self,
        pth: Option<Pth>,
        message: &MemMessage<'_>,
    ) -> Result<(), SendError> {
        let head = self.head_of_mem(pth)?;
        let mut message = *message;
        if let Some(load) = self.load.filter(|_| message.head.op.class().is_response()) {
            message.head.load = load;
        }
        self.bytes.extend_from_slice(head.bytes());
        let mut place = [0; cxl_mem::LEN_MAX];
        let len = message.emit(&mut place).unwrap_or_default(); // there is room for the longest
        self.bytes.extend_from_slice(place.get(..len).unwrap_or_default());
        self.ends.push((self.bytes.len(), mem_pri_of(message.head.op, &self.tlp)));
        Ok(())
    }

    /// Appends a CXL.cache message.
    ///
    /// # Errors
    /// The link carries TLPs with PTH; nothing is appended then. Only switches put one in front of such a message.
    pub fn send_cache(&mut self, message: &CacheMessage<'_>) -> Result<(), SendError> {
        let Carries::Hbr(_) = self.carries else { return Err(SendError::Pth("without PTH")) };
        let head = self.head(self.partner, Protocol::HbrCache, None);
        self.bytes.extend_from_slice(head.bytes());
        let mut place = [0; cxl_cache::LEN_MAX];
        let len = message.emit(&mut place).unwrap_or_default(); // there is room for the longest
        self.bytes.extend_from_slice(place.get(..len).unwrap_or_default());
        self.ends.push((self.bytes.len(), cache_pri_of(message.head.op, &self.tlp)));
        Ok(())
    }

    /// The head for a CXL.mem message.
    pub(super) fn head_of_mem(&self, pth: Option<Pth>) -> Result<Head, SendError> {
        let protocol = match (self.carries, pth) {
            (Carries::Pbr, Some(_)) => Protocol::PbrMem,
            (Carries::Hbr(_), None) => Protocol::HbrMem,
            (Carries::Pbr, None) => return Err(SendError::Pth("with PTH")),
            (Carries::Hbr(_) | Carries::Both, _) => return Err(SendError::Pth("without PTH")),
        };
        Ok(self.head(self.partner, protocol, pth))
    }

    /// Appends a link control message (protocol 4).
    pub fn control(&mut self, to: MacAddr, message: LinkReset) {
        let head = self.head(to, Protocol::Control, None);
        self.bytes.extend_from_slice(head.bytes());
        self.bytes.extend_from_slice(&message.emit());
        // Priority of TC 0: link control has no TC, and needs no lossless class as it is repeated.
        self.ends.push((self.bytes.len(), self.tlp.tc_to_pri[0]));
    }

    /// Protocol number in the link header for a TLP.
    pub(super) fn protocol(
        &self,
        pth: Option<Pth>,
        tlp: &TlpRepr<'_>,
    ) -> Result<Protocol, SendError> {
        match (self.carries, pth) {
            (Carries::Hbr(_), Some(_)) => return Err(SendError::Pth("without PTH")),
            (Carries::Pbr, None) => return Err(SendError::Pth("with PTH")),
            _ => {}
        }
        Ok(match (pth, tlp.mode) {
            (Some(_), _) => Protocol::Pbr,
            (None, Mode::Flit) => Protocol::HbrFlit,
            (None, Mode::NonFlit) => Protocol::HbrNonFlit,
        })
    }

    pub(super) fn head(&self, to: MacAddr, protocol: Protocol, pth: Option<Pth>) -> Head {
        let mut head = Head { bytes: ArrayVec::new() };
        head.push(&to.0);
        head.push(&self.mac.0);
        let mut link = [0; link::LEN];
        // LN is a flag of frames between PBR switches only (docs/spec/wire-formats.md §3.7a).
        let written = TlpLink { oui: self.tlp.oui, protocol, ln: false }.emit(&mut link);
        debug_assert!(written.is_ok(), "the array is of its length");
        head.push(&link);
        if let Some(pth) = pth {
            head.push(&pth.emit());
        }
        head
    }

    /// Appends a link control message to the partner.
    pub fn control_partner(&mut self, message: LinkReset) {
        self.control(self.partner, message);
    }

    /// Drops all frames.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Number of frames in the outbox.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the outbox is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// The part of a frame in front of the TLP.
pub(super) struct Head {
    bytes: ArrayVec<u8, HEAD_MAX>,
}

impl Head {
    fn push(&mut self, bytes: &[u8]) {
        let pushed = self.bytes.try_extend_from_slice(bytes);
        debug_assert!(pushed.is_ok(), "it has room for all parts");
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes the head and a CXL.mem message into `space`; returns the length of both.
    pub(super) fn write_mem(
        &self,
        message: &MemMessage<'_>,
        space: &mut [u8],
    ) -> Result<usize, PlaceError> {
        let had = space.len();
        let short = || EmitError::Room { need: HEAD_MAX + cxl_mem::LEN_MAX, had };
        let (head, rest) = space.split_at_mut_checked(self.bytes.len()).ok_or_else(short)?;
        head.copy_from_slice(&self.bytes);
        Ok(self.bytes.len() + message.emit(rest).map_err(|_| short())?)
    }

    /// Writes the head and the TLP into `space`; returns the length of both.
    pub(super) fn write(
        &self,
        tlp: &TlpRepr<'_>,
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]) -> bool,
        space: &mut [u8],
    ) -> Result<usize, PlaceError> {
        let had = space.len();
        let short = || EmitError::Room { need: HEAD_MAX, had };
        let (head, rest) = space.split_at_mut_checked(self.bytes.len()).ok_or_else(short)?;
        head.copy_from_slice(&self.bytes);
        let at = tlp.emit_head(payload_len, rest)?;
        let need = self.bytes.len() + at + payload_len;
        // `fill` gets the payload's place alone, so that it cannot overwrite the headers.
        let payload = rest.get_mut(at..at + payload_len);
        let payload = payload.ok_or(EmitError::Room { need, had })?;
        if fill(payload) { Ok(need) } else { Err(PlaceError::Unfilled) }
    }
}

/// Priority of a CXL.mem message, as in the switch.
#[must_use]
pub const fn mem_pri_of(op: MemOp, config: &TlpConfig) -> Pri {
    if op.class().is_request() { config.uio_req_pri } else { config.uio_cpl_pri }
}

/// Priority of a CXL.cache message, as in the switch: messages of devices wait for those of the host, and those for
/// nothing. Each direction has one priority, as its messages must stay in order.
#[must_use]
pub const fn cache_pri_of(op: CacheOp, config: &TlpConfig) -> Pri {
    if op.class().is_to_host() { config.uio_req_pri } else { config.uio_cpl_pri }
}

/// Priority of a TLP, as in the switch.
#[must_use]
pub fn pri_of(kind: Kind, tc: u8, config: &TlpConfig) -> Pri {
    if kind.is_uio_request() {
        config.uio_req_pri
    } else if kind.is_uio_completion() {
        config.uio_cpl_pri
    } else {
        config.tc_to_pri.get(usize::from(tc & 7)).copied().unwrap_or_default()
    }
}
