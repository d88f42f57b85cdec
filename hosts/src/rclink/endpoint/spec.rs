//! What an endpoint is like, and what it cannot be like.
//!
//! [`EndpointSpec`] with defaults for all but its number, addresses and kind of frames.
//!
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §4.

use std::sync::Arc;

use weft_dataplane::time::Span;
use weft_parsers::frame::MAX_PAYLOAD_LEN;
use weft_parsers::{ParseConfig, ethernet};

use crate::classes::PriMap;
use crate::frames::{FrameError, FrameSpec, Kind, Station};
use crate::pfc::SlowSpec;
use crate::rclink::credits::{CreditError, CreditSpec};
use crate::rclink::dcqcn::{DcqcnError, DcqcnSpec};
use crate::rclink::rate::RateError;
use crate::rclink::rnr;
use crate::rclink::slots::SLOTS;
use crate::stamp;

/// Queue pairs: 10 of the 13 bits that name one are used.
pub const QPS: u16 = 1 << 10;

/// What an endpoint takes for each frame, each way, if nothing else is said.
pub const DELAY: Span = Span::from_ns(60);

/// Most slots.
pub const SLOTS_MAX: u16 = 512;
const _: () = assert!(SLOTS_MAX as usize == SLOTS, "an endpoint has those of its FIFO");

/// Frames of TYPE2 that may be outstanding.
pub const OUTSTANDING: u16 = 16;
/// Credits of [`LOCAL_CREDIT`] bytes that frames of TYPE2 may take at the sender.
pub const LOCAL_CREDITS: u32 = 2_048;
/// Bytes of one.
pub const LOCAL_CREDIT: u32 = 128;

/// How frames get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TYPE1: acknowledged, and sent again after a NAK or so long without an ACK.
    Reliable {
        /// So long.
        timeout: Span,
    },
    /// TYPE2: acknowledged, so that few are outstanding, and never sent again; what was not acknowledged for so long is no
    /// longer outstanding.
    Unreliable {
        /// So long.
        timeout: Span,
        /// Frames that may wait for an ACK at once.
        outstanding: u16,
        /// Credits of 128 bytes that these frames may take.
        credits: u32,
    },
    /// TYPE3: raw Ethernet without an RC Link header, sent once.
    Raw,
    /// LITE: sent once, in any format. Those with an RC Link header have CNPs nevertheless.
    Lite,
}

impl Transport {
    /// TYPE1 with a timer of 4.096 us x 2^8.
    pub const RELIABLE: Self = Self::Reliable { timeout: Span::from_ns(4_096 << 8) };

    /// TYPE2 with 16 outstanding, 2048 credits of its own, and the same timer.
    pub const UNRELIABLE: Self = Self::Unreliable {
        timeout: Span::from_ns(4_096 << 8),
        outstanding: OUTSTANDING,
        credits: LOCAL_CREDITS,
    };

    /// How long a frame waits for an ACK; `None` where none comes.
    #[must_use]
    pub const fn timeout(self) -> Option<Span> {
        match self {
            Self::Reliable { timeout } | Self::Unreliable { timeout, .. } => Some(timeout),
            Self::Raw | Self::Lite => None,
        }
    }
}

/// What an endpoint is built from.
#[derive(Clone, Debug)]
pub struct EndpointSpec {
    /// Its number.
    pub number: u16,
    /// Addresses of all endpoints by number, its own included.
    pub peers: Arc<[Station]>,
    /// What its frames are like; receiver, RC Link header, Traffic Class and length are filled in.
    pub frame: FrameSpec,
    /// How it reads frames.
    pub parse: ParseConfig,
    /// Priority by header field and PFC class.
    pub classes: PriMap,
    /// How frames get there.
    pub transport: Transport,
    /// Most bytes of payload a frame.
    pub payload_max: usize,
    /// Whether frames are padded to Ethernet's least size; without, an ACK is as long as its headers, which only a wire in
    /// virtual time carries.
    pub padded: bool,
    /// Frames that may wait for a grant or an ACK at once, 1 to 512.
    pub slots: u16,
    /// Virtual channel of requests.
    pub request_vc: u8,
    /// Virtual channel of ACKs and CNPs.
    pub ack_vc: u8,
    /// From a frame that is taken to its ACK.
    pub ack_delay: Span,
    /// From a frame with CE to its CNP.
    pub cnp_delay: Span,
    /// CNPs of one queue pair that come within so long of one passed on are held back.
    pub cnp_merge: Span,
    /// Rate of each queue pair: length of a window ([`WINDOW_NS`](crate::rclink::rate::WINDOW_NS)), bytes a window; `None` for
    /// no limit.
    pub rate: Option<(Span, u32)>,
    /// Changes the rate of a queue pair by CNPs, up to `rate`, which it needs; `None` for a static one.
    pub dcqcn: Option<DcqcnSpec>,
    /// Banks of requests, 1 to 4: frames to endpoint n are of bank n modulo it, which is on the virtual channel so much below
    /// `request_vc`.
    pub banks: u8,
    /// Whether the bank that was granted last waits for the others.
    pub bank_turns: bool,
    /// Virtual channels have credits, each as many and for each peer, and no PFC is sent or heard. The longest frame is
    /// filled in.
    pub credits: Option<CreditSpec>,
    /// Receives slowly, and sends PFC; with credits only its rate counts. The rate is that of a wire: FCS, preamble and gap
    /// are counted.
    pub slow: Option<SlowSpec>,
    /// A request that finds no room is answered by an RNR NAK with this code of a time ([`rnr`](crate::rclink::rnr)), after
    /// which it is sent again; `None`: it is dropped like one that was lost.
    pub rnr: Option<u8>,
    /// Whether each frame that is taken is an event of its own.
    pub frame_events: bool,
}

impl EndpointSpec {
    /// Endpoint `number` of `peers`, sending frames of `kind` with defaults for all else.
    #[must_use]
    pub fn new(number: u16, peers: Arc<[Station]>, kind: Kind) -> Self {
        let own = peers.get(usize::from(number)).copied().unwrap_or(Station::numbered(number));
        Self {
            number,
            peers,
            frame: FrameSpec::new(kind, own, own),
            parse: ParseConfig { port_mac: own.mac, ..ParseConfig::DEFAULT },
            classes: PriMap::four(),
            transport: match kind {
                Kind::Lite => Transport::Lite,
                Kind::Ethernet => Transport::Raw,
                _ => Transport::RELIABLE,
            },
            payload_max: MAX_PAYLOAD_LEN,
            padded: true,
            slots: SLOTS_MAX,
            request_vc: 3,
            ack_vc: 5,
            ack_delay: Span::ZERO,
            cnp_delay: Span::ZERO,
            cnp_merge: Span::from_us(50),
            rate: None,
            dcqcn: None,
            banks: 1,
            bank_turns: false,
            credits: None,
            slow: None,
            rnr: None,
            frame_events: false,
        }
    }

    /// Whether others answer its frames: by ACKs, or in LITE by CNPs alone, where frames have an RC Link header.
    #[must_use]
    pub const fn has_answers(&self) -> bool {
        match self.transport {
            Transport::Reliable { .. } | Transport::Unreliable { .. } => true,
            Transport::Lite => !matches!(self.frame.kind, Kind::Lite),
            Transport::Raw => false,
        }
    }

    /// Bytes of a frame with a header and payload of `len` bytes.
    #[must_use]
    pub const fn padded_len(&self, len: usize) -> usize {
        if self.padded && len < ethernet::MIN_FRAME_LEN { ethernet::MIN_FRAME_LEN } else { len }
    }

    /// The virtual channel of requests to endpoint `to`.
    #[must_use]
    pub const fn vc_to(&self, to: u16) -> u8 {
        if self.banks == 1 {
            return self.request_vc;
        }
        let [_, bank] = (to % self.banks as u16).to_be_bytes();
        self.request_vc - bank
    }

    /// Virtual channels of requests.
    pub(super) fn request_vcs(&self) -> impl Iterator<Item = u8> {
        (0..self.banks).map(|bank| self.request_vc - bank)
    }

    /// Checks that its parts go together.
    pub(super) fn check(&self) -> Result<(), EndpointError> {
        let (number, peers) = (self.number, self.peers.len());
        if usize::from(number) >= peers || peers > usize::from(QPS) {
            return Err(EndpointError::Number { number, peers });
        }
        let kind = self.frame.kind;
        if let Some(expected) = expected(kind, self.transport) {
            return Err(EndpointError::Format { kind: kind.name(), expected });
        }
        if let Transport::Unreliable { outstanding, credits, .. } = self.transport {
            if self.frame.icrc {
                return Err(EndpointError::Icrc);
            }
            if !(1..=SLOTS_MAX).contains(&outstanding) {
                return Err(EndpointError::Outstanding(outstanding));
            }
            let least = local_credits(self.frame.header_len() + self.payload_max);
            if credits < least {
                return Err(EndpointError::LocalCredits { had: credits, least });
            }
        }
        if !(stamp::LEN..=MAX_PAYLOAD_LEN).contains(&self.payload_max) {
            return Err(EndpointError::Payload(self.payload_max));
        }
        if !(1..=SLOTS_MAX).contains(&self.slots) {
            return Err(EndpointError::Slots(self.slots));
        }
        for vc in [self.request_vc, self.ack_vc] {
            if vc > 7 {
                return Err(EndpointError::Vc(vc));
            }
        }
        if !(1..=4).contains(&self.banks) || self.banks > self.request_vc + 1 {
            return Err(EndpointError::Banks { banks: self.banks, vc: self.request_vc });
        }
        if self.bank_turns && self.banks == 1 {
            return Err(EndpointError::Turns);
        }
        if self.credits.is_some()
            && self.has_answers()
            && self.request_vcs().any(|vc| vc == self.ack_vc)
        {
            return Err(EndpointError::SharedVc(self.ack_vc));
        }
        if let Some(code) = self.rnr {
            if code > rnr::CODE_MAX {
                return Err(EndpointError::Rnr(code));
            }
            if self.credits.is_some() {
                return Err(EndpointError::RnrWith("credits"));
            }
            match self.transport {
                Transport::Reliable { .. } => {}
                Transport::Lite => return Err(EndpointError::RnrWith("the LITE transport")),
                Transport::Unreliable { .. } => return Err(EndpointError::RnrWith("TYPE2")),
                Transport::Raw => return Err(EndpointError::RnrWith("TYPE3")),
            }
        }
        if self.dcqcn.is_some() && self.rate.is_none() {
            return Err(EndpointError::NoRate);
        }
        Ok(())
    }
}

/// What frames of `kind` want, if it is not this transport.
fn expected(kind: Kind, transport: Transport) -> Option<&'static str> {
    match (kind, transport) {
        (Kind::Lite, Transport::Lite) | (Kind::Ethernet, Transport::Raw) => None,
        (
            Kind::Standard | Kind::Gen1 | Kind::Gen2,
            Transport::Reliable { .. } | Transport::Lite,
        ) => None,
        (Kind::Gen1 | Kind::Gen2, Transport::Unreliable { .. }) => None,
        (Kind::Standard, Transport::Unreliable { .. }) => Some(
            "gen1 or gen2 for TYPE2: as a Standard frame it has a UDP port of its own, which nobody has agreed on",
        ),
        (Kind::Lite, _) => Some("the LITE transport: they have no sequence number"),
        (Kind::Standard | Kind::Gen1 | Kind::Gen2, Transport::Raw) => {
            Some("acknowledgements or LITE: TYPE3 has frames of its own")
        }
        (Kind::Ethernet, _) => Some("standard, gen1, gen2 or lite, or the transport of TYPE3"),
        (Kind::Roce6 | Kind::Pfc | Kind::Pause, _) => {
            Some("standard, gen1, gen2 or lite, or ethernet for TYPE3")
        }
    }
}

/// Credits of the sender that a frame of `len` bytes takes, FCS included.
pub(super) fn local_credits(len: usize) -> u32 {
    u32::try_from(len + 4).unwrap_or(u32::MAX).div_ceil(LOCAL_CREDIT)
}

/// An endpoint cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Its number, or that of its peers.
    #[error(
        "endpoint {number} of {peers}: expected a number below that of the endpoints, of which there are at most {QPS}"
    )]
    Number {
        /// Its own.
        number: u16,
        /// All endpoints.
        peers: usize,
    },
    /// A format or a transport that do not go together.
    #[error("{kind} frames: expected {expected}")]
    Format {
        /// Kind of frame.
        kind: &'static str,
        /// What would do.
        expected: &'static str,
    },
    /// Bytes of payload a frame.
    #[error("payload of {0} bytes a frame: expected {least} to {MAX_PAYLOAD_LEN}", least = stamp::LEN)]
    Payload(usize),
    /// Slots.
    #[error("{0} slots: expected 1 to {SLOTS_MAX}")]
    Slots(u16),
    /// A virtual channel.
    #[error("virtual channel {0}: expected 0 to 7")]
    Vc(u8),
    /// Its frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Its credits.
    #[error(transparent)]
    Credit(#[from] CreditError),
    /// Requests and answers on one virtual channel.
    #[error(
        "virtual channel {0} for requests and for answers: expected two, as each has credits of its own"
    )]
    SharedVc(u8),
    /// Its banks.
    #[error(
        "{banks} banks below virtual channel {vc}: expected 1 to 4, and channels down to 0 or more"
    )]
    Banks {
        /// Asked for.
        banks: u8,
        /// That of the first one.
        vc: u8,
    },
    /// A turn of banks without banks.
    #[error("bank_turns with 1 bank: expected 2 to 4 banks, which can take turns")]
    Turns,
    /// An ICRC where there is none.
    #[error("an ICRC with TYPE2: expected none")]
    Icrc,
    /// Frames of TYPE2 that may be outstanding.
    #[error("{0} outstanding: expected 1 to {SLOTS_MAX}")]
    Outstanding(u16),
    /// Credits of TYPE2 at its sender.
    #[error(
        "{had} credits of {LOCAL_CREDIT} bytes at the sender: expected {least} or more, which the longest frame takes"
    )]
    LocalCredits {
        /// Asked for.
        had: u32,
        /// Fewest.
        least: u32,
    },
    /// RNR.
    #[error("RNR timer code {0}: expected 0 to {max}", max = rnr::CODE_MAX)]
    Rnr(u8),
    /// RNR with credits, which leave no request without room, or without ACKs.
    #[error("RNR with {0}: expected acknowledged frames without credits")]
    RnrWith(&'static str),
    /// A controller without a rate.
    #[error("dcqcn without a rate: expected the full rate, which it cuts")]
    NoRate,
    /// Its controller.
    #[error(transparent)]
    Dcqcn(#[from] DcqcnError),
    /// Its rate.
    #[error(transparent)]
    Rate(#[from] RateError),
}
