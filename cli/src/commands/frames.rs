//! Frames as flags and `[traffic]` describe them: lengths, rates, formats, virtual channels.
//!
//! Parses [`SizesArg`], [`RateArg`] and [`Kind`], and checks a [`FrameSpec`] against the limits of [`TrafficConfig`].
//!
//! Source: docs/configuration.md "`[traffic]`".

use std::str::FromStr;

use weft_config::TrafficConfig;
use weft_hosts::frames::{FrameSpec, Kind};
use weft_hosts::pace::Rate;
use weft_hosts::sizes::Sizes;
use weft_parsers::{Format, Pcp, Tci, TrafficClass};

use crate::error::CliError;

/// Frame lengths on the command line, in bytes without FCS.
#[derive(Clone, Debug)]
pub struct SizesArg(pub Sizes);

impl FromStr for SizesArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.trim()
                .parse::<usize>()
                .map_err(|_| format!("expected N, N-M, N,M,... or imix in bytes, found {text:?}"))
        };
        if text == "imix" {
            return Ok(Self(Sizes::Imix));
        }
        if let Some((from, to)) = text.split_once('-') {
            return Ok(Self(Sizes::Range(number(from)?, number(to)?)));
        }
        if text.contains(',') {
            return Ok(Self(Sizes::List(text.split(',').map(number).collect::<Result<_, _>>()?)));
        }
        Ok(Self(Sizes::Fixed(number(text)?)))
    }
}

/// A rate on the command line, in bit/s or frames/s.
#[derive(Clone, Copy, Debug)]
pub struct RateArg(pub Rate);

impl FromStr for RateArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("expected N[k|M|G]bps, N[k|M]fps or max, found {text:?}");
        if text == "max" {
            return Ok(Self(Rate::Max));
        }
        let (digits, make): (&str, fn(u64) -> Rate) = match text.strip_suffix("bps") {
            Some(digits) => (digits, Rate::FrameBps),
            None => (text.strip_suffix("fps").ok_or_else(refuse)?, Rate::Fps),
        };
        let (digits, unit) = match digits.as_bytes().last() {
            Some(b'k') => (digits.strip_suffix('k'), 1_000),
            Some(b'M') => (digits.strip_suffix('M'), 1_000_000),
            Some(b'G') => (digits.strip_suffix('G'), 1_000_000_000),
            _ => (Some(digits), 1),
        };
        let number: u64 = digits.and_then(|d| d.parse().ok()).ok_or_else(refuse)?;
        let rate = number.checked_mul(unit).filter(|&rate| rate > 0).ok_or_else(refuse)?;
        Ok(Self(make(rate)))
    }
}

/// Parses the name of a data frame's kind; PFC and PAUSE are refused.
pub(super) fn data_kind(text: &str) -> Result<Kind, String> {
    let data = Kind::from_name(text).filter(|kind| !kind.is_control());
    data.ok_or_else(|| "expected standard, roce_v2, gen1, gen2, lite or ethernet".to_owned())
}

/// The kind of frame for a configured format.
pub(super) const fn kind_of(format: Format) -> Kind {
    match format {
        Format::AfhGen1 => Kind::Gen1,
        Format::AfhGen2 => Kind::Gen2,
        Format::AfhLite => Kind::Lite,
        Format::Other => Kind::Ethernet,
        _ => Kind::Standard,
    }
}

/// Refuses lengths above `most` bytes, the limit of `traffic.max_frame_size`.
pub(super) fn check_len(spec: &FrameSpec, most: usize) -> Result<(), CliError> {
    let longest = spec.sizes.bounds(spec.len_min(), spec.len_max()).map_or(0, |(_, max)| max);
    if longest <= most || spec.kind.is_control() {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "--size: expected at most traffic.max_frame_size, {most} bytes, found {longest}"
    )))
}

/// Puts a frame on a virtual channel, by the Traffic Class of AFH and the PCP of a tag.
pub(super) fn on_vc(
    mut spec: FrameSpec,
    vc: u8,
    traffic: &TrafficConfig,
) -> Result<FrameSpec, CliError> {
    if vc >= traffic.vcs {
        let most = traffic.vcs - 1;
        return Err(CliError::Usage(format!(
            "--vc: expected 0..={most} (traffic.num_vc), found {vc}"
        )));
    }
    let has_tc = matches!(spec.kind, Kind::Gen1 | Kind::Gen2 | Kind::Lite);
    if has_tc {
        spec.tc = TrafficClass::new(vc, spec.tc.flow());
    }
    if let Some(tci) = spec.vlan {
        let pcp = traffic.vc_pcp.get(usize::from(vc)).copied().unwrap_or_default();
        spec.vlan = Some(Tci::new(Pcp::from_low_bits(pcp), tci.dei(), tci.vid()));
    } else if !has_tc {
        let kind = spec.kind.name();
        return Err(CliError::Usage(format!(
            "--vc: expected a format with a Traffic Class (gen1, gen2, lite) or a tag; a {kind} frame without one has no place for it: add --vlan, or traffic.vlan_enabled = true"
        )));
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_are_read_or_refused() {
        let rate = |text: &str| text.parse::<RateArg>().map(|r| r.0).ok();
        #[rustfmt::skip] // columns: text, want
        let cases = [
            ("max", Some(Rate::Max)), ("10fps", Some(Rate::Fps(10))),
            ("2kfps", Some(Rate::Fps(2_000))), ("3Mbps", Some(Rate::FrameBps(3_000_000))),
            ("1Gbps", Some(Rate::FrameBps(1_000_000_000))), ("0bps", None), ("10", None),
            ("-1fps", None), ("99999999999999999999bps", None), ("18446744073709551615Gbps", None),
        ];
        for (text, want) in cases {
            assert_eq!(rate(text), want, "{text}");
        }
        let sizes = |text: &str| text.parse::<SizesArg>().map(|s| s.0).ok();
        assert_eq!(sizes("60"), Some(Sizes::Fixed(60)));
        assert_eq!(sizes("60-1400"), Some(Sizes::Range(60, 1_400)));
        assert_eq!(sizes("60,594"), Some(Sizes::List(vec![60, 594])));
        assert_eq!(sizes("imix"), Some(Sizes::Imix));
        assert_eq!(sizes("big"), None);
    }
}
