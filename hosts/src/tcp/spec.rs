//! Descriptions of a TCP host and its connections, their events and counters.
//!
//! Times are picoseconds, amounts are bytes of payload.
//!
//! Source: docs/spec/model.md §7; docs/tcp.md.

use core::net::Ipv4Addr;

use serde::Serialize;
use smoltcp::socket::tcp::CongestionControl;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::{Dscp, MacAddr};

use crate::classes::PriMap;

/// Smallest MSS that can be set: payload of the smallest IPv4 packet that every host accepts (RFC 9293).
pub const MSS_MIN: usize = 536;
/// Largest MSS: payload of an IP packet of 9,000 bytes.
pub const MSS_MAX: usize = 8_960;
/// Bytes of a frame's headers, Ethernet, IPv4 and TCP without options; no FCS.
pub const HEADERS_LEN: usize = 14 + 20 + 20;
/// Smallest buffer of a socket: two of the longest segments.
pub const BUFFER_MIN: usize = 2 * MSS_MAX;
/// Largest buffer of a socket, as a scaled window has 30 bits.
pub const BUFFER_MAX: usize = 1 << 30;
/// Least and most of [`ConnectionSpec::rto_min`].
pub const RTO_MIN: (Span, Span) = (Span::from_us(1), Span::from_ms(60_000));

/// Looks up the MAC address of an IPv4 address; `None` if there is no such host.
pub type Directory = fn(Ipv4Addr) -> Option<MacAddr>;

/// Description of a TCP host.
#[derive(Clone, Debug)]
pub struct TcpHostSpec {
    /// Ethernet address of the host.
    pub mac: MacAddr,
    /// IPv4 address of the host.
    pub ip: Ipv4Addr,
    /// Length of its network prefix, 0 to 32.
    pub prefix_len: u8,
    /// Router for packets to other networks; `None`: they cannot be reached.
    pub gateway: Option<Ipv4Addr>,
    /// Known addresses of all others; `None`: they are asked for by ARP.
    pub directory: Option<Directory>,
    /// Instant at which the stack's clock begins.
    pub origin: Instant,
    /// Whether frames are whole: then TCP checksums are made and checked, and data is written and compared byte by
    /// byte. Otherwise only the front of each frame is kept and data has no content; nothing else differs.
    pub whole: bool,
    /// Priority by DSCP and PFC class; must equal the switch's.
    pub classes: PriMap,
    /// Seed of the first sequence numbers.
    pub seed: u64,
}

/// Congestion control, which limits the bytes that a connection has in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// Reno (RFC 5681), without SACK.
    Reno,
    /// CUBIC (RFC 9438), on the stack's clock.
    Cubic,
}

impl Congestion {
    /// Both, in the order of the variants.
    pub const ALL: [Self; 2] = [Self::Reno, Self::Cubic];

    /// Name in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
        }
    }

    /// The congestion control with this name, if there is one.
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

/// Settings of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSpec {
    /// Congestion control of the data it sends.
    pub congestion: Congestion,
    /// Largest payload of a segment that it sends, and that it lets the other end send.
    pub mss: usize,
    /// DSCP of its packets, by which switches choose a priority.
    pub dscp: Dscp,
    /// Bytes that may wait to be read; the largest window that it advertises.
    pub receive_buffer: usize,
    /// Bytes that may wait to be sent or acknowledged.
    pub send_buffer: usize,
    /// Least retransmission timeout. It is one second of the stack's clock, so all that the stack times scales with it.
    pub rto_min: Span,
    /// How long the acknowledgement of a single segment waits for the next one; 0: not at all.
    pub ack_delay: Span,
    /// Silence of the peer after which the connection is given up; a keep-alive goes out after a third of it. `None`:
    /// never.
    pub give_up: Option<Span>,
}

impl ConnectionSpec {
    /// CUBIC, segments of 1,460 bytes, buffers of 1 MiB, a least timeout of 1 ms, no delayed acknowledgements.
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

    /// Checks that all values are in range.
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

/// How much one end of a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A fixed number of bytes.
    Bytes(u64),
    /// As much as possible until this instant.
    Until(Instant),
}

/// Data that one end of a connection sends and expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Amount to send, after which the end closes its half; `None`: it sends nothing, and closes when the peer has.
    pub send: Option<Amount>,
    /// Bytes that the peer sends; `None`: all until it closes.
    pub expect: Option<u64>,
    /// Seed of the data sent and expected ([`pattern`](super::pattern)); `None`: zeros are sent and any data is
    /// accepted.
    pub seed: Option<u64>,
}

/// Key of a connection at a host: the local port, and the peer's address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionKey {
    /// TCP port at this host.
    pub port: u16,
    /// IPv4 address of the peer.
    pub peer: Ipv4Addr,
    /// TCP port of the peer.
    pub peer_port: u16,
}

/// Event of a connection; `id` is the number that the host's user gave to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEvent {
    /// Its SYN goes to the port for the first time.
    Begun {
        /// Number of the connection.
        id: u32,
        /// Time of the event.
        at: Instant,
    },
    /// The handshake is complete at this end.
    Established {
        /// Number of the connection.
        id: u32,
        /// Time of the event.
        at: Instant,
    },
    /// All data that it was to send has been acknowledged.
    Acknowledged {
        /// Number of the connection.
        id: u32,
        /// Bytes of payload sent.
        bytes: u64,
        /// Segments sent more than once.
        resent: u64,
        /// Time of the event.
        at: Instant,
    },
    /// All expected data has been received, in order.
    Received {
        /// Number of the connection.
        id: u32,
        /// Bytes of payload received.
        bytes: u64,
        /// When the peer's first segment came.
        first: Instant,
        /// Time of the event.
        at: Instant,
    },
    /// It ended before all data was sent and received.
    Failed {
        /// Number of the connection.
        id: u32,
        /// Time of the event.
        at: Instant,
    },
    /// It is over: no more is sent, and later segments are refused.
    Closed {
        /// Number of the connection.
        id: u32,
        /// Offset in the received data of the first wrong byte, if there was one.
        differs: Option<u64>,
        /// Time of the event.
        at: Instant,
    },
}

/// Counters of a host; segments, unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpStats {
    /// Segments sent, bare acknowledgements included.
    pub tx_segments: u64,
    /// Segments received for one of its connections.
    pub rx_segments: u64,
    /// Payload sent, each retransmission included.
    pub tx_bytes: u64,
    /// Payload received in order, each byte once.
    pub rx_bytes: u64,
    /// Retransmissions: segments whose sequence numbers had been sent before.
    pub resent: u64,
    /// Payload of these segments, in bytes.
    pub resent_bytes: u64,
    /// Acknowledgements received with the number of the one before and no payload, while data was outstanding.
    pub duplicate_acks: u64,
    /// Connections whose handshake was completed.
    pub established: u64,
    /// Connections that ended before all was sent and received.
    pub failed: u64,
    /// Connections that received a wrong byte.
    pub data_errors: u64,
    /// Segments received for no connection, or malformed ones.
    pub refused: u64,
    /// Answers dropped because too many waited behind a pause.
    pub answers_dropped: u64,
    /// ARP requests sent, repetitions included.
    pub arp_requests: u64,
    /// PFC frames received, whether they pause or release.
    pub pfc_rx: u64,
}

/// Why a host or a connection cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpError {
    /// An MSS out of range.
    #[error("MSS of {0} bytes: expected {MSS_MIN} to {MSS_MAX}")]
    Mss(usize),
    /// A buffer size out of range.
    #[error("buffer of {0} bytes: expected {BUFFER_MIN} to {BUFFER_MAX}")]
    Buffer(usize),
    /// A least timeout out of range.
    #[error("least timeout of {} ps: expected 1 us to 60 s", .0.as_ps())]
    Rto(Span),
    /// An address that is not that of a single host.
    #[error("address {0}: expected one of a single host")]
    Address(Ipv4Addr),
    /// A prefix length above 32.
    #[error("prefix of {0} bits: expected 0 to 32")]
    Prefix(u8),
    /// A peer on another network, and no gateway.
    #[error("{peer} is not on the network of {ip}/{prefix_len}: expected a gateway")]
    Gateway {
        /// Address of the peer.
        peer: Ipv4Addr,
        /// Address of the host.
        ip: Ipv4Addr,
        /// Prefix length of its network.
        prefix_len: u8,
    },
    /// A connection with the same key exists already.
    #[error("port {} to {}:{}: there is such a connection", .0.port, .0.peer, .0.peer_port)]
    Twice(ConnectionKey),
    /// Port 0, which TCP does not use.
    #[error("port 0: expected 1 to 65535")]
    Port,
}
