//! Arguments of `weft traffic --rclink`.
//!
//! Source: docs/rclink.md.

use clap::Args;
use weft_hosts::rclink::endpoint::SLOTS_MAX;

use crate::commands::frames::RateArg;

/// What only an RC Link endpoint has.
#[derive(Args, Debug)]
pub struct RclinkArgs {
    /// Be an RC Link endpoint: requests are acknowledged and sent again if they are lost (docs/rclink.md)
    #[arg(long, conflicts_with_all = ["pri", "size", "rate", "count", "ignore_pfc", "config", "set"])]
    pub(crate) rclink: bool,
    /// LITE mode in any format: sent once, without ACK; CNPs answer marks where there is an RC Link header
    #[arg(long, requires = "rclink", conflicts_with_all = ["ack_timeout", "ack_delay"])]
    pub(crate) lite: bool,
    /// Requests to each station
    #[arg(long, requires = "rclink", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) requests: u32,
    /// Bytes of a request, sent in frames of up to 1344 bytes of payload
    #[arg(long, value_name = "BYTES", requires = "rclink", default_value_t = 1_344, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) request_bytes: u64,
    /// Frames that may wait to be acknowledged
    #[arg(long, value_name = "FRAMES", requires = "rclink", default_value_t = SLOTS_MAX, value_parser = clap::value_parser!(u16).range(1..=i64::from(SLOTS_MAX)))]
    pub(crate) window: u16,
    /// Frames are sent again after 4.096 us x 2^N without an ACK of anything new, pauses by PFC not counted
    #[arg(long, value_name = "N", requires = "rclink", default_value_t = 14, value_parser = clap::value_parser!(u32).range(0..=20))]
    pub(crate) ack_timeout: u32,
    /// Microseconds by which an ACK is held back, so that it answers several frames
    #[arg(long, value_name = "US", requires = "rclink", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) ack_delay: u64,
    /// Limit what is sent to each station: N[k|M|G]bps of frames without FCS, in windows of 65.536 us
    #[arg(long, value_name = "RATE", requires = "rclink")]
    pub(crate) limit: Option<RateArg>,
    /// Cut the limit by CNPs, and raise it again (DCQCN)
    #[arg(long, requires = "limit")]
    pub(crate) dcqcn: bool,
    /// Microseconds for which further CNPs of one station are held back
    #[arg(long, value_name = "US", requires = "rclink", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(crate) cnp_merge: u64,
}
