//! Description of an endpoint, and the errors of one that cannot be.
//!
//! [`EndpointSpec`] has defaults for everything but number, addresses and kind of frames.
//!
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

/// Queue pairs, and so endpoints: 10 of the 13 bits of a queue pair's number are used.
pub const QPS: u16 = 1 << 10;

/// Default time that a frame takes in an endpoint, each way.
pub const DELAY: Span = Span::from_ns(60);

/// Most slots of an endpoint.
pub const SLOTS_MAX: u16 = 512;
const _: () = assert!(SLOTS_MAX as usize == SLOTS, "an endpoint has those of its FIFO");

/// Frames of TYPE2 that may be outstanding by default.
pub const OUTSTANDING: u16 = 16;
/// Default credits of [`LOCAL_CREDIT`] bytes that frames of TYPE2 may take at the sender.
pub const LOCAL_CREDITS: u32 = 2_048;
/// Bytes of a sender's own credit.
pub const LOCAL_CREDIT: u32 = 128;

/// How an endpoint makes sure, or does not, that its frames arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TYPE1: frames are acknowledged, and sent again after a NAK or a timeout.
    Reliable {
        /// Time without an ACK after which frames are sent again.
        timeout: Span,
    },
    /// TYPE2: frames are acknowledged, so that few are outstanding, and never sent again.
    Unreliable {
        /// Time without an ACK after which a frame is no longer outstanding.
        timeout: Span,
        /// Frames that may wait for an ACK at once.
        outstanding: u16,
        /// Credits of [`LOCAL_CREDIT`] bytes that these frames may take.
        credits: u32,
    },
    /// TYPE3: raw Ethernet without an RC Link header, sent once.
    Raw,
    /// LITE: frames of any format are sent once. Those with an RC Link header still get CNPs.
    Lite,
}

impl Transport {
    /// TYPE1 with a timeout of 4.096 us x 2^8.
    pub const RELIABLE: Self = Self::Reliable { timeout: Span::from_ns(4_096 << 8) };

    /// TYPE2 with 16 frames outstanding, 2,048 local credits, and the same timeout.
    pub const UNRELIABLE: Self = Self::Unreliable {
        timeout: Span::from_ns(4_096 << 8),
        outstanding: OUTSTANDING,
        credits: LOCAL_CREDITS,
    };

    /// How long a frame waits for an ACK; `None` if frames are not acknowledged.
    #[must_use]
    pub const fn timeout(self) -> Option<Span> {
        match self {
            Self::Reliable { timeout } | Self::Unreliable { timeout, .. } => Some(timeout),
            Self::Raw | Self::Lite => None,
        }
    }
}

/// Description of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointSpec {
    /// Number of the endpoint, which is also that of its queue pair at others.
    pub number: u16,
    /// Addresses of all endpoints by number, its own included.
    pub peers: Arc<[Station]>,
    /// Its frames; the endpoint fills in receiver, RC Link header, Traffic Class and length.
    pub frame: FrameSpec,
    /// How it classifies received frames.
    pub parse: ParseConfig,
    /// Priority by header field and PFC class; must equal the switches'.
    pub classes: PriMap,
    /// Whether frames are acknowledged, and sent again.
    pub transport: Transport,
    /// Most bytes of payload in a frame.
    pub payload_max: usize,
    /// Whether frames are padded to Ethernet's least size. Without it an ACK is as long as its headers, which only a
    /// wire in virtual time carries.
    pub padded: bool,
    /// Frames that may wait for a grant or an ACK at the same time, 1 to 512.
    pub slots: u16,
    /// Virtual channel of requests, of those of the first bank.
    pub request_vc: u8,
    /// Virtual channel of ACKs and CNPs.
    pub ack_vc: u8,
    /// Time from taking a frame to sending its ACK.
    pub ack_delay: Span,
    /// Time from a frame with CE to its CNP.
    pub cnp_delay: Span,
    /// Time after a CNP that was passed on in which further ones of its queue pair are suppressed.
    pub cnp_merge: Span,
    /// Rate of each queue pair: length of a window ([`WINDOW_NS`](crate::rclink::rate::WINDOW_NS)) and bytes in a
    /// window; `None` for no limit.
    pub rate: Option<(Span, u32)>,
    /// Controller that lowers the rate of a queue pair by CNPs; it needs `rate`, the full one. `None`: the rate is
    /// static.
    pub dcqcn: Option<DcqcnSpec>,
    /// Banks of requests, 1 to 4: frames to endpoint n are of bank n modulo this, and bank k is on virtual channel
    /// `request_vc` - k.
    pub banks: u8,
    /// Whether the bank granted last yields to the others.
    pub bank_turns: bool,
    /// Credits of each virtual channel to each peer; then no PFC is sent or obeyed. The endpoint fills in the longest
    /// frame. `None`: PFC.
    pub credits: Option<CreditSpec>,
    /// Buffer of a slow receiver, which sends PFC; with credits only its rate counts. It drains at a rate of the wire,
    /// which counts FCS, preamble and gap.
    pub slow: Option<SlowSpec>,
    /// Code of the wait time ([`rnr`](crate::rclink::rnr)) in the RNR NAK that answers a request without room; the
    /// request is sent again after that time. `None`: it is dropped like a lost one.
    pub rnr: Option<u8>,
    /// Whether each frame taken is reported as an event.
    pub frame_events: bool,
}

impl EndpointSpec {
    /// Endpoint `number` of `peers` with frames of `kind`, and defaults for the rest.
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

    /// Whether its frames are answered: by ACKs, or in LITE by CNPs alone, if they have an RC Link header.
    #[must_use]
    pub const fn has_answers(&self) -> bool {
        match self.transport {
            Transport::Reliable { .. } | Transport::Unreliable { .. } => true,
            Transport::Lite => !matches!(self.frame.kind, Kind::Lite),
            Transport::Raw => false,
        }
    }

    /// Length on the wire of a frame of `len` bytes, without FCS.
    #[must_use]
    pub const fn padded_len(&self, len: usize) -> usize {
        if self.padded && len < ethernet::MIN_FRAME_LEN { ethernet::MIN_FRAME_LEN } else { len }
    }

    /// Virtual channel of requests to endpoint `to`.
    #[must_use]
    pub const fn vc_to(&self, to: u16) -> u8 {
        if self.banks == 1 {
            return self.request_vc;
        }
        let [_, bank] = (to % self.banks as u16).to_be_bytes();
        self.request_vc - bank
    }

    /// Virtual channels of requests, one for each bank.
    pub(super) fn request_vcs(&self) -> impl Iterator<Item = u8> {
        (0..self.banks).map(|bank| self.request_vc - bank)
    }

    /// Checks that all values are in range and fit each other.
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
            // TYPE2 never has an ICRC (docs/spec/wire-formats.md §1.1).
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
        // Each channel counts its own credits, so answers must not use up those of requests.
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
            // With credits no request comes for which there is no room.
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

/// Words for the formats or transports that frames of `kind` need; `None` if `transport` suits them.
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

/// Local credits that a frame of `len` bytes takes, FCS included.
pub(super) fn local_credits(len: usize) -> u32 {
    u32::try_from(len + 4).unwrap_or(u32::MAX).div_ceil(LOCAL_CREDIT)
}

/// Why an endpoint cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The number does not belong to the endpoints, or there are too many of them.
    #[error(
        "endpoint {number} of {peers}: expected a number below that of the endpoints, of which there are at most {QPS}"
    )]
    Number {
        /// Number of the endpoint.
        number: u16,
        /// Number of all endpoints.
        peers: usize,
    },
    /// The format and the transport do not fit each other.
    #[error("{kind} frames: expected {expected}")]
    Format {
        /// Name of the frames' kind.
        kind: &'static str,
        /// Formats or transports that would fit.
        expected: &'static str,
    },
    /// A payload size out of range.
    #[error("payload of {0} bytes a frame: expected {least} to {MAX_PAYLOAD_LEN}", least = stamp::LEN)]
    Payload(usize),
    /// A number of slots out of range.
    #[error("{0} slots: expected 1 to {SLOTS_MAX}")]
    Slots(u16),
    /// A virtual channel above 7.
    #[error("virtual channel {0}: expected 0 to 7")]
    Vc(u8),
    /// Frames that the format cannot have.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Credits that the registers cannot hold.
    #[error(transparent)]
    Credit(#[from] CreditError),
    /// Requests and answers share a virtual channel with credits.
    #[error(
        "virtual channel {0} for requests and for answers: expected two, as each has credits of its own"
    )]
    SharedVc(u8),
    /// Banks out of range, or without virtual channels below the first.
    #[error(
        "{banks} banks below virtual channel {vc}: expected 1 to 4, and channels down to 0 or more"
    )]
    Banks {
        /// Number of banks asked for.
        banks: u8,
        /// Virtual channel of the first bank.
        vc: u8,
    },
    /// Turns of banks, with a single bank.
    #[error("bank_turns with 1 bank: expected 2 to 4 banks, which can take turns")]
    Turns,
    /// An ICRC with TYPE2, which has none.
    #[error("an ICRC with TYPE2: expected none")]
    Icrc,
    /// A number of outstanding TYPE2 frames out of range.
    #[error("{0} outstanding: expected 1 to {SLOTS_MAX}")]
    Outstanding(u16),
    /// Fewer local credits of TYPE2 than the longest frame takes.
    #[error(
        "{had} credits of {LOCAL_CREDIT} bytes at the sender: expected {least} or more, which the longest frame takes"
    )]
    LocalCredits {
        /// Number of credits asked for.
        had: u32,
        /// Credits of the longest frame.
        least: u32,
    },
    /// A code of an RNR timer out of range.
    #[error("RNR timer code {0}: expected 0 to {max}", max = rnr::CODE_MAX)]
    Rnr(u8),
    /// RNR with credits, which leave no request without room, or without ACKs.
    #[error("RNR with {0}: expected acknowledged frames without credits")]
    RnrWith(&'static str),
    /// A controller of the rate without a full rate.
    #[error("dcqcn without a rate: expected the full rate, which it cuts")]
    NoRate,
    /// Parameters of the controller out of range.
    #[error(transparent)]
    Dcqcn(#[from] DcqcnError),
    /// A rate limit out of range.
    #[error(transparent)]
    Rate(#[from] RateError),
}
