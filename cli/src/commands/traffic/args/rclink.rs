//! Arguments of `weft traffic --rclink`.
//!
//! Source: docs/rclink.md.

use clap::Args;
use weft_hosts::rclink::endpoint::SLOTS_MAX;

use crate::commands::frames::RateArg;

/// Arguments of an RC Link endpoint.
#[derive(Args, Debug)]
pub struct RclinkArgs {
    /// Act as an RC Link endpoint: requests are acknowledged, and retransmitted if lost (docs/rclink.md)
    #[arg(long, conflicts_with_all = ["pri", "size", "rate", "count", "ignore_pfc", "config", "set"])]
    pub(crate) rclink: bool,
    /// Use LITE mode in any format: send once, without ACKs; CNPs answer ECN marks where there is an RC Link header
    #[arg(long, requires = "rclink", conflicts_with_all = ["ack_timeout", "ack_delay"])]
    pub(crate) lite: bool,
    /// Number of requests to each station
    #[arg(long, requires = "rclink", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) requests: u32,
    /// Size of a request in bytes; it is sent in frames of up to 1344 bytes of payload
    #[arg(long, value_name = "BYTES", requires = "rclink", default_value_t = 1_344, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) request_bytes: u64,
    /// Maximum number of unacknowledged frames
    #[arg(long, value_name = "FRAMES", requires = "rclink", default_value_t = SLOTS_MAX, value_parser = clap::value_parser!(u16).range(1..=i64::from(SLOTS_MAX)))]
    pub(crate) window: u16,
    /// Retransmission timeout: 4.096 us x 2^N without an ACK of new frames, not counting PFC pauses
    #[arg(long, value_name = "N", requires = "rclink", default_value_t = 14, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) ack_timeout: u32,
    /// Delay of an ACK in microseconds, so that it acknowledges several frames
    #[arg(long, value_name = "US", requires = "rclink", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) ack_delay: u64,
    /// Rate limit to each station: N[k|M|G]bps of frames without FCS, in windows of 65.536 us
    #[arg(long, value_name = "RATE", requires = "rclink")]
    pub(crate) limit: Option<RateArg>,
    /// Lower the rate limit upon CNPs, and raise it again (DCQCN)
    #[arg(long, requires = "limit")]
    pub(crate) dcqcn: bool,
    /// Time after a CNP, in microseconds, in which further CNPs of the same station are ignored
    #[arg(long, value_name = "US", requires = "rclink", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) cnp_merge: u64,
}
