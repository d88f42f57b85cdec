//! What a TCP host and its connections are like, what came of them, and what it counts.
//!
//! [`TcpHostSpec`], [`ConnectionSpec`], [`Transfer`]; [`TcpEvent`], [`TcpStats`]; [`TcpError`].
//!
//! Units: picoseconds, bytes of payload, segments.
//! Source: docs/spec/model.md §7; docs/tcp.md.

use core::net::Ipv4Addr;

use serde::Serialize;
use smoltcp::socket::tcp::CongestionControl;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::{Dscp, MacAddr};

use crate::classes::PriMap;

/// Least payload of a segment that a connection can be limited to: that of the least IPv4 packet that all take (RFC 9293).
pub const MSS_MIN: usize = 536;
/// Most: that of an Ethernet frame of 9,000 bytes of IP.
pub const MSS_MAX: usize = 8_960;
/// Bytes of a frame beside a segment's payload: Ethernet, IPv4 and TCP without options, without FCS.
pub const HEADERS_LEN: usize = 14 + 20 + 20;
/// Least buffer of a socket: two of the longest segments.
pub const BUFFER_MIN: usize = 2 * MSS_MAX;
/// Most, as a window has 30 bits.
pub const BUFFER_MAX: usize = 1 << 30;
/// Least and most of [`ConnectionSpec::rto_min`].
pub const RTO_MIN: (Span, Span) = (Span::from_us(1), Span::from_ms(60_000));

/// Who else is on the network: the MAC address of an IPv4 address.
pub type Directory = fn(Ipv4Addr) -> Option<MacAddr>;

/// What a TCP host is built from.
#[derive(Clone, Debug)]
pub struct TcpHostSpec {
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Its IPv4 address.
    pub ip: Ipv4Addr,
    /// Bits of it that name its network, 0 to 32.
    pub prefix_len: u8,
    /// Who forwards what is not for its network.
    pub gateway: Option<Ipv4Addr>,
    /// Names all others; without it they are asked for by ARP.
    pub directory: Option<Directory>,
    /// When its clock begins.
    pub origin: Instant,
    /// Whether frames are whole: checksums of TCP are made and checked, and data is written and compared byte by byte. Else
    /// only the front of a frame counts, and what data says is left out; nothing else changes.
    pub whole: bool,
    /// Priority by DSCP and PFC class.
    pub classes: PriMap,
    /// Chooses the first sequence numbers.
    pub seed: u64,
}

/// What limits how much a connection has in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
}

impl Congestion {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Reno, Self::Cubic];

    /// Name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    pub(super) const fn of_stack(self) -> CongestionControl {
        match self {
            Self::Reno => CongestionControl::Reno,
            Self::Cubic => CongestionControl::Cubic,
        }
    }
}

/// What a connection is like at one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSpec {
    /// Its congestion control.
    pub congestion: Congestion,
    /// Most payload of a segment that it sends, and that it tells the other end to send.
    pub mss: usize,
    /// DSCP of its packets.
    pub dscp: Dscp,
    /// Bytes that may wait to be read, which its window tells.
    pub receive_buffer: usize,
    /// Bytes that may wait to be acknowledged or sent.
    pub send_buffer: usize,
    /// It waits no less for an acknowledgement before it sends again: one second of its stack, which times all else in that
    /// proportion.
    pub rto_min: Span,
    /// For so long an acknowledgement of one segment waits for the next one; 0 for none.
    pub ack_delay: Span,
    /// After so long without hearing anything it is given up; it asks whether the other end is there at a third of it.
    pub give_up: Option<Span>,
}

impl ConnectionSpec {
    /// Segments of 1,460 bytes, buffers of 1 MiB, timeouts of 1 ms and more, each segment acknowledged.
    pub const DEFAULT: Self = Self {
        congestion: Congestion::Cubic,
        mss: 1_460,
        dscp: Dscp::from_tos(0),
        receive_buffer: 1 << 20,
        send_buffer: 1 << 20,
        rto_min: Span::from_ms(1),
        ack_delay: Span::ZERO,
        give_up: None,
    };

    /// Checks that there can be one.
    pub(super) fn check(&self) -> Result<(), TcpError> {
        if !(MSS_MIN..=MSS_MAX).contains(&self.mss) {
            return Err(TcpError::Mss(self.mss));
        }
        for had in [self.receive_buffer, self.send_buffer] {
            if !(BUFFER_MIN..=BUFFER_MAX).contains(&had) {
                return Err(TcpError::Buffer(had));
            }
        }
        let (least, most) = RTO_MIN;
        if self.rto_min < least || self.rto_min > most {
            return Err(TcpError::Rto(self.rto_min));
        }
        Ok(())
    }
}

/// How much an end of a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// As much as it can until then.
    Until(Instant),
}

/// What an end of a connection sends and expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What it sends; nothing for `None`. It closes its half of the connection behind it.
    pub send: Option<Amount>,
    /// Bytes that the other end sends; `None` for all until it closes.
    pub expect: Option<u64>,
    /// Seed of the data that it sends and expects ([`pattern`](super::pattern)); `None`: it sends zeros, and takes anything.
    pub seed: Option<u64>,
}

/// The other end of a connection, as a host names its own: its port, and the peer's address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionKey {
    /// Port here.
    pub port: u16,
    /// Address there.
    pub peer: Ipv4Addr,
    /// Port there.
    pub peer_port: u16,
}

/// What came of a connection; `id` is the number that its host's user gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEvent {
    /// Its first segment goes to the port.
    Begun {
        /// Which.
        id: u32,
        /// When.
        at: Instant,
    },
    /// Both ends know of each other.
    Established {
        /// Which.
        id: u32,
        /// When.
        at: Instant,
    },
    /// All that was to be sent is acknowledged.
    Acknowledged {
        /// Which.
        id: u32,
        /// Bytes of payload.
        bytes: u64,
        /// Segments that were sent again.
        resent: u64,
        /// When.
        at: Instant,
    },
    /// All that was expected has come, in order.
    Received {
        /// Which.
        id: u32,
        /// Bytes of payload.
        bytes: u64,
        /// When the first segment of the other end came.
        first: Instant,
        /// When.
        at: Instant,
    },
    /// It ended before all was sent and received.
    Failed {
        /// Which.
        id: u32,
        /// When.
        at: Instant,
    },
    /// It is over: nothing is sent or heard of it any more.
    Closed {
        /// Which.
        id: u32,
        /// Place in the stream of the first byte that was not the expected one.
        differs: Option<u64>,
        /// When.
        at: Instant,
    },
}

/// What a host counts: segments, unless a name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpStats {
    /// Sent, acknowledgements included.
    pub tx_segments: u64,
    /// Received for one of its connections.
    pub rx_segments: u64,
    /// Payload sent, also again.
    pub tx_bytes: u64,
    /// Payload taken, in order, once.
    pub rx_bytes: u64,
    /// Sent again: with a sequence number that was sent before.
    pub resent: u64,
    /// Payload of these.
    pub resent_bytes: u64,
    /// Acknowledgements received that were no news: same number, no payload.
    pub duplicate_acks: u64,
    /// Connections that came about.
    pub established: u64,
    /// Connections that ended before all was sent and received.
    pub failed: u64,
    /// Connections whose data was not the expected one.
    pub data_errors: u64,
    /// Received for no connection, or of a protocol that it does not speak.
    pub refused: u64,
    /// Answers that found no room behind a pause.
    pub answers_dropped: u64,
    /// ARP requests sent.
    pub arp_requests: u64,
    /// PFC frames received.
    pub pfc_rx: u64,
}

/// A host or a connection cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpError {
    /// Payload of a segment.
    #[error("MSS of {0} bytes: expected {MSS_MIN} to {MSS_MAX}")]
    Mss(usize),
    /// A buffer of a socket.
    #[error("buffer of {0} bytes: expected {BUFFER_MIN} to {BUFFER_MAX}")]
    Buffer(usize),
    /// Least timeout.
    #[error("least timeout of {} ps: expected 1 us to 60 s", .0.as_ps())]
    Rto(Span),
    /// An address.
    #[error("address {0}: expected one of a single host")]
    Address(Ipv4Addr),
    /// A prefix.
    #[error("prefix of {0} bits: expected 0 to 32")]
    Prefix(u8),
    /// A peer on another network.
    #[error("{peer} is not on the network of {ip}/{prefix_len}: expected a gateway")]
    Gateway {
        /// Who cannot be reached.
        peer: Ipv4Addr,
        /// The host.
        ip: Ipv4Addr,
        /// Bits of its network.
        prefix_len: u8,
    },
    /// A connection that there is.
    #[error("port {} to {}:{}: there is such a connection", .0.port, .0.peer, .0.peer_port)]
    Twice(ConnectionKey),
    /// A port of 0.
    #[error("port 0: expected 1 to 65535")]
    Port,
}
