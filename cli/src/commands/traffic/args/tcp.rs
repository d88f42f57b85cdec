//! Arguments of `weft traffic --tcp`, with the parsers of their values.
//!
//! Source: docs/tcp.md.

use core::net::{Ipv4Addr, SocketAddrV4};

use clap::Args;
use weft_config::quantity::parse_size;
use weft_hosts::tcp::{BUFFER_MAX, BUFFER_MIN, Congestion, ConnectionSpec, MSS_MAX, MSS_MIN};
use weft_parsers::MacAddr;

/// Arguments of a TCP host.
#[derive(Args, Debug)]
pub struct TcpArgs {
    /// Act as a TCP host with its own stack: connections to and from any other host (docs/tcp.md)
    #[arg(long, conflicts_with_all = ["rclink", "to", "format", "pri", "vc", "priorities", "size", "rate", "count", "ignore_pfc", "linger", "vlan", "ecn", "afh", "gen2_order", "slow", "expect", "config", "set"])]
    pub(crate) tcp: bool,
    /// IPv4 address of this host, with prefix length; by default that of the station, 10.0.H.L/16
    #[arg(long, value_name = "ADDRESS/BITS", requires = "tcp", value_parser = address)]
    pub(crate) ip: Option<(Ipv4Addr, u8)>,
    /// MAC address of this host; by default that of the station
    #[arg(long, value_name = "MAC", requires = "tcp")]
    pub(crate) mac: Option<MacAddr>,
    /// Gateway to other networks
    #[arg(long, value_name = "ADDRESS", requires = "tcp")]
    pub(crate) gateway: Option<Ipv4Addr>,
    /// Connect to this address and port
    #[arg(long, value_name = "ADDRESS:PORT", requires = "tcp", conflicts_with = "listen")]
    pub(crate) connect: Option<SocketAddrV4>,
    /// Accept connections at this port
    #[arg(long, value_name = "PORT", requires = "tcp", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) listen: Option<u16>,
    /// Number of connections to open or to accept; the host ends when all are closed
    #[arg(long, value_name = "N", requires = "tcp", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(crate) connections: u32,
    /// Send this many bytes on each connection, such as 1000000 or 64MiB, then close this side of it; with --duration
    /// instead, send as many as possible
    #[arg(long, value_name = "BYTES", requires = "tcp", value_parser = size, conflicts_with = "duration")]
    pub(crate) send: Option<u64>,
    /// Fail (exit code 1) unless this many bytes arrive on each connection
    #[arg(long, value_name = "BYTES", requires = "tcp", value_parser = size)]
    pub(crate) expect_bytes: Option<u64>,
    /// Seed for the data to send and to expect; every received byte is compared. Give both ends the same seed
    #[arg(long, value_name = "N", requires = "tcp", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Accept any data, without comparing it
    #[arg(long, requires = "tcp")]
    pub(crate) any_data: bool,
    /// Congestion control: cubic or reno
    #[arg(long, requires = "tcp", default_value = "cubic", value_parser = congestion)]
    pub(crate) congestion: Congestion,
    /// Maximum payload of a segment (MSS) in bytes
    #[arg(long, value_name = "BYTES", requires = "tcp", default_value_t = 1_460, value_parser = mss)]
    pub(crate) mss: usize,
    /// DSCP of all packets
    #[arg(long, requires = "tcp", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=63))]
    pub(crate) dscp: u8,
    /// Size of the receive buffer and of the send buffer of a connection, such as 4MiB
    #[arg(long, value_name = "BYTES", requires = "tcp", default_value_t = 1 << 20, value_parser = buffer)]
    pub(crate) buffer: usize,
    /// Minimum retransmission timeout in milliseconds
    #[arg(long, value_name = "MS", requires = "tcp", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(crate) rto_min: u64,
    /// Silence of the peer, in seconds, after which a connection has failed; keep-alives are sent before
    #[arg(long, value_name = "SECONDS", requires = "tcp", default_value_t = 30, value_parser = clap::value_parser!(u64).range(3..=3_600))]
    pub(crate) give_up: u64,
}

fn address(text: &str) -> Result<(Ipv4Addr, u8), String> {
    let parts = text.split_once('/').and_then(|(address, bits)| {
        Some((address.parse().ok()?, bits.parse().ok().filter(|bits| *bits <= 32)?))
    });
    parts.ok_or_else(|| "expected an address and bits, such as 10.0.0.1/24".to_owned())
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = text.parse().ok().or_else(|| parse_size(text));
    bytes.ok_or_else(|| "expected bytes, such as 1000000 or 64MiB".to_owned())
}

fn buffer(text: &str) -> Result<usize, String> {
    let bytes = size(text).ok().and_then(|bytes| usize::try_from(bytes).ok());
    let bytes = bytes.filter(|bytes| (BUFFER_MIN..=BUFFER_MAX).contains(bytes));
    bytes.ok_or_else(|| format!("expected {BUFFER_MIN} to {BUFFER_MAX} bytes"))
}

fn mss(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| (MSS_MIN..=MSS_MAX).contains(bytes));
    bytes.ok_or_else(|| format!("expected {MSS_MIN} to {MSS_MAX}"))
}

fn congestion(text: &str) -> Result<Congestion, String> {
    Congestion::from_name(text).ok_or_else(|| "expected cubic or reno".to_owned())
}

const _: () = assert!(ConnectionSpec::DEFAULT.mss == 1_460, "what the help says");
