//! TLPs on their way out: each is written with its addresses, link header and PTH, and given its priority.
//!
//! [`Outbox::send`] appends a frame; [`Head`] is what stands in front of a TLP.
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

/// Addresses of a frame.
pub(super) const MACS_LEN: usize = 12;
/// Addresses, link header, PTH.
const HEAD_MAX: usize = MACS_LEN + link::LEN + pth::LEN;
const _: () = assert!(HEAD_MAX <= 64, "a head fits the first cache line");

/// TLPs that a handler has written and that are not sent yet.
#[derive(Debug)]
pub struct Outbox {
    pub(super) bytes: Vec<u8>,
    /// Where each frame ends, and its priority.
    pub(super) ends: Vec<(usize, Pri)>,
    mac: MacAddr,
    pub(super) partner: MacAddr,
    carries: Carries,
    tlp: TlpConfig,
    /// In front of all that is sent: the logical device that sends it.
    prefix: Option<VendPrefixL0>,
    /// What completions of UIO and answers of CXL.mem tell of the device's load; `None`: what they have themselves.
    load: Option<DevLoad>,
}

/// Why an [`Outbox`] did not take a TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It cannot be written.
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// The link wants a PTH, or none.
    #[error("the link carries TLPs {0}")]
    Pth(&'static str),
}

/// Why [`super::TlpEnd::place`] did not append a TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It cannot be written, or does not belong on the link.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The pool has no chunk now.
    #[error("the pool has no free chunk")]
    NoChunk,
    /// Whoever was to fill it did not.
    #[error("the payload was not written")]
    Unfilled,
}

impl From<EmitError> for PlaceError {
    fn from(error: EmitError) -> Self {
        Self::Send(error.into())
    }
}

impl Outbox {
    /// An empty one, whose TLPs go to everybody until the partner has spoken.
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

    /// Puts `prefix` in front of all that is sent from now on, whatever it has itself; `None`: what it has.
    pub(crate) const fn set_prefix(&mut self, prefix: Option<VendPrefixL0>) {
        self.prefix = prefix;
        self.load = None;
    }

    /// Has completions of UIO and answers of CXL.mem tell `load` until the next prefix.
    pub(crate) const fn set_load(&mut self, load: DevLoad) {
        self.load = Some(load);
    }

    /// Appends a TLP. On a link of several kinds, its PTH says which one it is.
    ///
    /// # Errors
    /// See [`SendError`]; nothing is appended then.
    pub fn send(&mut self, pth: Option<Pth>, tlp: &TlpRepr<'_>) -> Result<(), SendError> {
        self.send_to(self.partner, pth, tlp)
    }

    /// As [`Self::send`], to an address of the link's own.
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

    /// Appends a TLP without PTH as it came, with what [`TlpRepr`] leaves behind.
    ///
    /// # Errors
    /// The link wants a PTH; nothing is appended then.
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
    /// The link wants a PTH, or none; nothing is appended then.
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

    /// What stands in front of a CXL.mem message.
    pub(super) fn head_of_mem(&self, pth: Option<Pth>) -> Result<Head, SendError> {
        let protocol = match (self.carries, pth) {
            (Carries::Pbr, Some(_)) => Protocol::PbrMem,
            (Carries::Hbr(_), None) => Protocol::HbrMem,
            (Carries::Pbr, None) => return Err(SendError::Pth("with PTH")),
            (Carries::Hbr(_) | Carries::Both, _) => return Err(SendError::Pth("without PTH")),
        };
        Ok(self.head(self.partner, protocol, pth))
    }

    /// Appends what is said of the link itself (protocol 4).
    pub fn control(&mut self, to: MacAddr, message: LinkReset) {
        let head = self.head(to, Protocol::Control, None);
        self.bytes.extend_from_slice(head.bytes());
        self.bytes.extend_from_slice(&message.emit());
        self.ends.push((self.bytes.len(), self.tlp.tc_to_pri[0]));
    }

    /// How the link names a TLP.
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
        let written = TlpLink { oui: self.tlp.oui, protocol, ln: false }.emit(&mut link);
        debug_assert!(written.is_ok(), "the array is of its length");
        head.push(&link);
        if let Some(pth) = pth {
            head.push(&pth.emit());
        }
        head
    }

    /// The same, to the other end of the link.
    pub fn control_partner(&mut self, message: LinkReset) {
        self.control(self.partner, message);
    }

    /// Forgets all that waits in it.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// TLPs that wait in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing waits in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// What stands in front of a TLP.
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

    /// Writes itself and a CXL.mem message into `space`; returns the length of all.
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

    /// Writes itself and the TLP into `space`; returns the length of all.
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
        let payload = rest.get_mut(at..at + payload_len);
        let payload = payload.ok_or(EmitError::Room { need, had })?;
        if fill(payload) { Ok(need) } else { Err(PlaceError::Unfilled) }
    }
}

/// Priority of a CXL.mem message, as the switch gives it.
#[must_use]
pub const fn mem_pri_of(op: MemOp, config: &TlpConfig) -> Pri {
    if op.class().is_request() { config.uio_req_pri } else { config.uio_cpl_pri }
}

/// Priority of a CXL.cache message, as the switch gives it: what devices say waits for what the host says, and that for
/// nothing. Each direction has one priority, as its messages have to stay in order.
#[must_use]
pub const fn cache_pri_of(op: CacheOp, config: &TlpConfig) -> Pri {
    if op.class().is_to_host() { config.uio_req_pri } else { config.uio_cpl_pri }
}

/// Priority of a TLP, as the switch gives it.
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
