//! The host that the flags and the configuration of `weft traffic` describe.
//!
//! Makes a [`HostSpec`] with a stream for each format, receiver and priority. Streams are numbered station × 256 +
//! index, so that hosts with different stations never share a number. Lengths are without FCS.
//!
//! Source: docs/spec/pipeline.md §9; docs/configuration.md "`[traffic]`".

use weft_config::TrafficConfig;
use weft_config::resolve::traffic_of;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{Pri, PriSet};
use weft_hosts::classes::PriMap;
use weft_hosts::frames::{FrameSpec, Kind, Station};
use weft_hosts::host::HostSpec;
use weft_hosts::pace::Rate;
use weft_hosts::pfc::SlowSpec;
use weft_hosts::stream::tx::StreamSpec;
use weft_lab::clock::now;
use weft_parsers::{Ecn, ParseConfig, Pcp, Vid};

use super::args::{PriArg, TrafficArgs};
use super::seconds;
use crate::commands::frames::{RateArg, check_len, kind_of, on_vc};
use crate::error::CliError;
use crate::settings::SettingsArgs;

/// Largest backlog of a slow receiver, in bytes.
const SLOW_CAPACITY_BYTES: usize = 16 << 20;

/// The configuration's settings of the host, and of the switch at the other end.
struct Given {
    /// Whether a configuration was given; otherwise only flags and their defaults apply.
    is_configured: bool,
    config: TrafficConfig,
    classes: PriMap,
    pris: usize,
    lossless: PriSet,
}

impl Given {
    fn read(args: &TrafficArgs) -> Result<Self, CliError> {
        let is_configured = args.config.is_some() || !args.set.is_empty();
        let (config, set) = (args.config.clone(), args.set.clone());
        let of = SettingsArgs { config, set, ..SettingsArgs::default() };
        let mut settings = of.load()?;
        if let Some(count) = args.priorities {
            settings.set(&format!("switch.num_priorities={count}"), "--priorities")?;
        }
        let (config, sorts) = traffic_of(&settings)?;
        // Without a configuration the switch is taken to have the default maps for its number of priorities.
        let classes = match (is_configured, sorts.pris) {
            (true, _) => PriMap::of_port(&sorts.maps, &sorts.trust, Pri::default()),
            (false, 8) => PriMap::eight(),
            (false, _) => PriMap::four(),
        };
        let (pris, lossless) = (sorts.pris, sorts.lossless);
        Ok(Self { is_configured, config, classes, pris, lossless })
    }
}

/// Makes the host's spec.
pub(super) fn spec(args: &TrafficArgs) -> Result<HostSpec, CliError> {
    let given = Given::read(args)?;
    let me = Station::numbered(args.station);
    let mut spec = HostSpec::new(format!("station{}", args.station), me.mac);
    spec.parse = ParseConfig {
        afh: args.afh,
        gen2_order: args.gen2_order,
        port_mac: me.mac,
        ..ParseConfig::DEFAULT
    };
    spec.classes = given.classes;
    spec.rate = Some(LinkRate::gbps(args.gbps));
    spec.honour_pfc = !args.ignore_pfc && given.config.obeys_pfc;
    spec.slow = args.slow.map(|rate| slow(args, rate, given.lossless)).transpose()?;
    // All streams start together, once the switch has learnt the stations from their announcements.
    let start = now() + seconds(args.delay);
    let configured = [kind_of(given.config.format)];
    for &kind in if args.format.is_empty() { &configured[..] } else { &args.format } {
        spec.stations.push(frame(args, &given, kind, me, Station::ALL));
        for &to in &args.to {
            let base = frame(args, &given, kind, me, Station::numbered(to));
            if given.is_configured {
                check_len(&base, given.config.frame_len_max)?;
            }
            for frame in at_priorities(args, &given, &base)? {
                let stream = stream(args, frame, spec.streams.len(), start)?;
                spec.streams.push(stream);
            }
        }
    }
    Ok(spec)
}

/// `base` at each requested priority.
fn at_priorities(
    args: &TrafficArgs,
    given: &Given,
    base: &FrameSpec,
) -> Result<Vec<FrameSpec>, CliError> {
    if let Some(vc) = args.vc {
        return Ok(vec![on_vc(base.clone(), vc, &given.config)?]);
    }
    let map = &given.classes;
    let existing = || Pri::ALL.into_iter().take(given.pris);
    let mut frames = Vec::new();
    for &wanted in &args.pri {
        match wanted {
            PriArg::All => {
                // Some formats cannot select every priority: AFH without a tag has no Traffic Class for priority 1 of
                // 4.
                frames.extend(existing().filter_map(|pri| base.clone().with_pri(pri, map).ok()));
            }
            PriArg::One(pri) => {
                if !existing().any(|p| p == pri) {
                    let text = format!("--pri {}: the switch has {}", pri.get(), given.pris);
                    return Err(CliError::Usage(text));
                }
                let frame = base.clone().with_pri(pri, map);
                frames.push(frame.map_err(|error| CliError::Usage(error.to_string()))?);
            }
        }
    }
    Ok(frames)
}

/// A frame of `kind`, without its priority.
fn frame(args: &TrafficArgs, given: &Given, kind: Kind, me: Station, to: Station) -> FrameSpec {
    let mut frame = FrameSpec::new(kind, me, to).with_sizes(args.size.0.clone());
    frame.gen2_order = args.gen2_order;
    let is_ect = args.ecn || given.is_configured && given.config.ecn;
    frame.ecn = if is_ect { Ecn::Ect0 } else { Ecn::NotEct };
    // AFH_Lite has no place for a tag.
    let tagged = given.config.vlan && kind != Kind::Lite;
    if let Some(vid) = args.vlan.or(tagged.then_some(1)) {
        frame = frame.with_vlan(Pcp::from_low_bits(0), Vid::from_low_bits(vid));
    }
    frame
}

fn stream(
    args: &TrafficArgs,
    frame: FrameSpec,
    index: usize,
    start: Instant,
) -> Result<StreamSpec, CliError> {
    let index = u16::try_from(index).ok().filter(|&index| index < 256).ok_or_else(|| {
        CliError::Usage("expected at most 256 streams: formats x priorities x --to".to_owned())
    })?;
    frame.check().map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(StreamSpec {
        rate: args.rate.0,
        start,
        count: args.count,
        duration: args.duration.map(seconds),
        lag_max: Some(Span::from_ms(10)),
        ..StreamSpec::new(args.station << 8 | index, frame)
    })
}

/// A receiver that drains at `rate` and pauses the lossless priorities.
pub(super) fn slow(
    args: &TrafficArgs,
    rate: RateArg,
    lossless: PriSet,
) -> Result<SlowSpec, CliError> {
    let drain = match rate.0 {
        Rate::FrameBps(bps) | Rate::WireBps(bps) => LinkRate::bps(bps),
        _ => None,
    };
    let drain = drain.ok_or_else(|| CliError::Usage("--slow: expected N[k|M|G]bps".to_owned()))?;
    let (xon, xoff) = (args.slow_xon, args.slow_xoff);
    if xon > xoff || xoff > SLOW_CAPACITY_BYTES {
        let message = format!(
            "--slow-xon, --slow-xoff: expected XON <= XOFF <= {SLOW_CAPACITY_BYTES} bytes, found {xon} and {xoff}"
        );
        return Err(CliError::Usage(message));
    }
    Ok(SlowSpec {
        drain,
        xoff_bytes: xoff,
        xon_bytes: xon,
        capacity_bytes: SLOW_CAPACITY_BYTES,
        lossless,
        quanta: 0xFFFF,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: TrafficArgs,
    }

    /// The host of a command line.
    fn host(flags: &[&str]) -> Result<HostSpec, CliError> {
        let line = ["traffic", "tap:t0", "--to", "2"].iter().chain(flags);
        spec(&<Line as clap::Parser>::try_parse_from(line).unwrap().args)
    }

    #[test]
    fn a_host_is_what_its_configuration_says() {
        let frame = |flags: &[&str]| host(flags).unwrap().streams[0].frame.clone();
        let plain = frame(&[]);
        assert_eq!((plain.kind, plain.ecn, plain.vlan), (Kind::Standard, Ecn::NotEct, None));
        assert!(host(&[]).unwrap().honour_pfc);
        assert!(!host(&["--set", "traffic.flow_control_mode=none"]).unwrap().honour_pfc);
        assert_eq!(frame(&["--set", "traffic.pkt_format=gen1"]).kind, Kind::Gen1);
        assert_eq!(frame(&["--set", "traffic.lite_mode=true"]).kind, Kind::Lite);
        let both = ["--set", "traffic.pkt_format=gen1", "--format", "ethernet"];
        assert_eq!(frame(&both).kind, Kind::Ethernet, "a flag lies over it");
        let tagged = frame(&["--set", "traffic.vlan_enabled=true", "--vc", "5"]);
        assert_eq!(tagged.vlan.map(|tci| (tci.pcp().get(), tci.vid().get())), Some((5, 1)));
        assert_eq!(tagged.ecn, Ecn::Ect0, "Standard is ECN-capable unless it is said");
        assert_eq!(frame(&["--set", "traffic.ecn_capable=false"]).ecn, Ecn::NotEct);
        #[rustfmt::skip] // columns: flags, part of the refusal
        let refused: [(&[&str], &str); 4] = [
            (&["--vc", "1"], "a standard frame without one has no place for it"),
            (&["--set", "traffic.max_frame_size=100", "--size", "101"], "at most traffic.max_frame_size, 100"),
            (&["--set", "traffic.flow_control_mode=cbfc"], "take \"none\""),
            (&["--slow", "1Gbps", "--slow-xon", "70000"], "expected XON <= XOFF"),
        ];
        for (flags, part) in refused {
            let told = host(flags).map(|_| ()).unwrap_err().to_string();
            assert!(told.contains(part), "{flags:?}: {told}");
        }
    }

    #[test]
    fn a_slow_receiver_pauses_what_the_switch_must_not_lose() {
        let slow = |flags: &[&str]| {
            let all = [&["--slow", "1Gbps"][..], flags].concat();
            let slow = host(&all).unwrap().slow.unwrap();
            (slow.lossless.bits(), slow.xon_bytes, slow.xoff_bytes)
        };
        assert_eq!(slow(&[]), (0b0110, 32 << 10, 64 << 10));
        assert_eq!(slow(&["--priorities", "8"]).0, 0b1_1110);
        assert_eq!(slow(&["--set", "switch.num_priorities=8"]).0, 0b1_1110);
        assert_eq!(slow(&["--set", "pfc.pfc_priorities=[0]"]).0, 1);
        assert_eq!(slow(&["--set", "pfc.pfc_enabled=false"]).0, 0);
        assert_eq!(slow(&["--slow-xoff", "9000", "--slow-xon", "4000"]), (0b0110, 4_000, 9_000));
    }
}
