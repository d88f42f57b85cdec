//! Arguments of `weft traffic`, with the parsers of their values.

pub(super) mod rclink;
pub(super) mod tcp;

use std::path::PathBuf;

use clap::Args;
use weft_dataplane::types::Pri;
use weft_hosts::frames::Kind;
use weft_parsers::{AfhMode, Gen2Order};

use crate::commands::frames::{RateArg, SizesArg, data_kind};

/// Arguments of `weft traffic`.
#[derive(Args, Debug)]
pub struct TrafficArgs {
    #[command(flatten)]
    pub(super) rclink: rclink::RclinkArgs,
    #[command(flatten)]
    pub(super) tcp: tcp::TcpArgs,
    /// Network interface, or `tap:NAME`
    #[arg(value_name = "[KIND:]DEVICE")]
    pub(super) device: String,
    /// Number of this host, from which its addresses are made (02:00:00:00:HH:LL, 10.0.H.L, id)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(super) station: u16,
    /// Send to this station; may be given several times
    #[arg(long = "to", value_name = "STATION", value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(super) to: Vec<u16>,
    /// Frame formats to send: standard, `roce_v2`, gen1, gen2, lite, ethernet; by default `traffic.pkt_format`
    #[arg(long, value_delimiter = ',', value_parser = data_kind)]
    pub(super) format: Vec<Kind>,
    /// Priorities to send a stream for, 0 is the lowest; `all` for every priority that the format can select
    /// (AFH without a tag has no Traffic Class for priority 1 of 4)
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = pri)]
    pub(super) pri: Vec<PriArg>,
    /// Virtual channel to send on: sets the Traffic Class, and the PCP by `traffic.vc_pcp_mapping`
    #[arg(long, value_name = "VC", conflicts_with = "pri")]
    pub(super) vc: Option<u8>,
    /// Number of priorities of the switch, 4 or 8; by default `switch.num_priorities`
    #[arg(long, value_parser = priorities)]
    pub(super) priorities: Option<u8>,
    /// Frame sizes in bytes: N, N-M, N,M,..., or imix
    #[arg(long, default_value = "64")]
    pub(super) size: SizesArg,
    /// Rate of each stream: N[k|M|G]bps, N[k|M]fps, or max
    #[arg(long, default_value = "1000fps")]
    pub(super) rate: RateArg,
    /// Number of frames per stream; by default no limit
    #[arg(long)]
    pub(super) count: Option<u64>,
    /// Time to send for in seconds; by default no limit
    #[arg(long)]
    pub(super) duration: Option<f64>,
    /// Time to go on receiving after the last frame was sent, in seconds
    #[arg(long, default_value_t = 1.0)]
    pub(super) linger: f64,
    /// Time to wait between the announcement and the first frame, in seconds
    #[arg(long, default_value_t = 0.5)]
    pub(super) delay: f64,
    /// Tag frames with this VLAN; the PCP then selects the priority
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=4094))]
    pub(super) vlan: Option<u16>,
    /// Mark IP frames as ECN-capable
    #[arg(long)]
    pub(super) ecn: bool,
    /// AFH mode of the link: none, gen1, gen2, lite, auto
    #[arg(long, default_value = "auto", value_parser = afh)]
    pub(super) afh: AfhMode,
    /// Byte order of GEN2 and Lite: slap, `as_documented`
    #[arg(long, default_value = "slap", value_parser = order)]
    pub(super) gen2_order: Gen2Order,
    /// Link rate in Gbit/s, for pause quanta
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=800))]
    pub(super) gbps: u64,
    /// Ignore received PFC frames
    #[arg(long)]
    pub(super) ignore_pfc: bool,
    /// Receive slowly: drain at this rate, and send PFC for the lossless priorities of the switch
    #[arg(long, value_name = "RATE")]
    pub(super) slow: Option<RateArg>,
    /// Receive backlog in bytes at which a slow receiver sends PAUSE
    #[arg(long, value_name = "BYTES", requires = "slow", default_value_t = 64 << 10)]
    pub(super) slow_xoff: usize,
    /// Receive backlog in bytes at which a slow receiver sends RESUME
    #[arg(long, value_name = "BYTES", requires = "slow", default_value_t = 32 << 10)]
    pub(super) slow_xon: usize,
    /// Fail (exit code 1) unless this many frames of streams (with --rclink: requests) arrive, undamaged and in order
    #[arg(long, value_name = "FRAMES")]
    pub(super) expect: Option<u64>,
    /// Create this file, which must not exist, when the port is open and the announcement has been sent; standard error
    /// reports it, too
    #[arg(long, value_name = "FILE")]
    pub(super) ready: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Configuration file, TOML; its `[traffic]` has further settings; `[classify]`, `[pfc]` and
    /// `port_defaults.trust` describe how the switch classifies
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Set one parameter; overrides the file. `weft config defaults` lists the parameters
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(super) set: Vec<String>,
}

/// A priority on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PriArg {
    All,
    One(Pri),
}

fn pri(text: &str) -> Result<PriArg, String> {
    if text == "all" {
        return Ok(PriArg::All);
    }
    let pri = text.parse().ok().and_then(Pri::new);
    pri.map(PriArg::One).ok_or_else(|| "expected 0 to 7, or all".to_owned())
}

fn priorities(text: &str) -> Result<u8, String> {
    match text {
        "4" => Ok(4),
        "8" => Ok(8),
        _ => Err("expected 4 or 8".to_owned()),
    }
}

fn afh(text: &str) -> Result<AfhMode, String> {
    let all = [AfhMode::None, AfhMode::Gen1, AfhMode::Gen2, AfhMode::Lite, AfhMode::Auto];
    let found = all.into_iter().find(|mode| mode.name() == text);
    found.ok_or_else(|| "expected none, gen1, gen2, lite or auto".to_owned())
}

fn order(text: &str) -> Result<Gen2Order, String> {
    let all = [Gen2Order::Slap, Gen2Order::AsDocumented];
    let found = all.into_iter().find(|order| order.name() == text);
    found.ok_or_else(|| "expected slap or as_documented".to_owned())
}
