//! The plan of a run of `weft bench ports`: tests, sizes, durations and repetitions.
//!
//! [`Plan::new`] derives it from [`PortsArgs`], whose defaults are short; `--rfc-lengths` takes those of RFC 2544.
//! Sizes count the FCS, as in RFC 2544 §9.
//!
//! Source: RFC 2544 §9, §18, §23, §24, §26; RFC 6985 (IMIX by its genome).

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use weft_control::live::placement::refuse_unusable;
use weft_hosts::frames::{FrameSpec, Kind, Station};
use weft_hosts::sizes::Sizes;
use weft_parsers::{Ecn, Pcp, Vid};

use super::percent::Percent;
use crate::commands::frames::data_kind;

/// Bytes of the FCS, which frames at a port lack.
pub const FCS_LEN: usize = 4;
/// Sizes that RFC 2544 §9.1 asks for on Ethernet.
const SIZES: [Size; 7] = [
    Size::Bytes(64),
    Size::Bytes(128),
    Size::Bytes(256),
    Size::Bytes(512),
    Size::Bytes(1024),
    Size::Bytes(1280),
    Size::Bytes(1518),
];
/// Simple IMIX: seven frames of 64 bytes, four of 570 and one of 1518, FCS counted, in an even mix.
const IMIX: [usize; 12] = [64, 570, 64, 64, 570, 64, 1518, 64, 570, 64, 570, 64];

/// Arguments of `weft bench ports`.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct PortsArgs {
    /// Port to send frames from
    #[arg(long, value_name = "[KIND:]DEVICE")]
    pub tx: String,
    /// Port to receive frames at
    #[arg(long, value_name = "[KIND:]DEVICE")]
    pub rx: String,
    /// Kind of both ports, one of the values of `port.kind` in `weft config defaults`
    #[arg(long)]
    pub kind: Option<String>,
    /// Set one parameter of the ports; `weft config defaults` lists them
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub set: Vec<String>,
    /// Frame format: standard, roce6, gen1, gen2, lite, ethernet
    #[arg(long, default_value = "ethernet", value_parser = data_kind)]
    pub format: Kind,
    /// Tag frames with this VLAN
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=4094))]
    pub vlan: Option<u16>,
    /// Frame sizes in bytes with FCS, or imix (7:4:1 of 64, 570 and 1518) [default: the sizes of RFC 2544
    /// that the format allows]
    #[arg(long, value_delimiter = ',', value_parser = size)]
    pub size: Vec<Size>,
    /// Tests to run
    #[arg(long, value_delimiter = ',', default_value = "throughput,latency,loss,burst")]
    pub test: Vec<Test>,
    /// Send in both directions at once; rates are per direction
    #[arg(long)]
    pub bidirectional: bool,
    /// Default to the durations and repetitions of RFC 2544 (60 s per trial, 120 s and 20 repetitions for
    /// latency, 50 bursts); takes hours
    #[arg(long)]
    pub rfc_lengths: bool,
    /// Duration of a trial in milliseconds [default: 2000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub trial_ms: Option<u64>,
    /// Pause between learning frames and a trial, in milliseconds [default: 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub settle_ms: Option<u64>,
    /// Time to wait for frames after the last one was sent, in milliseconds [default: 200]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub drain_ms: Option<u64>,
    /// Pause between trials, in milliseconds [default: 0]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=600_000))]
    pub rest_ms: Option<u64>,
    /// Number of searches for each throughput; the result is their median [default: 3]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub repetitions: Option<u16>,
    /// Resolution of a search, in percent of the maximum that can be offered
    #[arg(long, value_name = "PERCENT", default_value = "1")]
    pub resolution_percent: Percent,
    /// Frame loss accepted in the search for the throughput (NDR)
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    pub accepted_loss_percent: Percent,
    /// Frame loss accepted in the search for the partial drop rate (PDR)
    #[arg(long, value_name = "PERCENT", default_value = "0.5")]
    pub partial_loss_percent: Percent,
    /// Load for the latency histogram, in percent of the measured throughput
    #[arg(long, value_name = "PERCENT", default_value = "50")]
    pub latency_load_percent: Percent,
    /// Duration of a latency trial in milliseconds [default: --trial-ms]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub latency_trial_ms: Option<u64>,
    /// Number of latency trials at full throughput, one tagged frame each; the result is their mean [default: 5]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub latency_repetitions: Option<u16>,
    /// Longest burst to try, in milliseconds at the maximum rate that can be offered [default: --trial-ms]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub burst_ms_max: Option<u64>,
    /// Number of searches for the longest burst; the result is their mean [default: 3]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub burst_repetitions: Option<u16>,
    /// Cores of the sending and the receiving thread
    #[arg(long, value_name = "CPU,CPU", value_delimiter = ',')]
    pub cores: Vec<usize>,
    /// Poll without sleeping, for exact latencies; needs cores that nothing else uses
    #[arg(long)]
    pub busy: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Write an HTML report with plots to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// A test of RFC 2544.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// Throughput without loss (NDR) and at the partial drop rate (PDR).
    Throughput,
    /// Latency; includes the search for the throughput.
    Latency,
    /// Frame loss over offered load.
    Loss,
    /// Longest back-to-back burst without loss.
    Burst,
}

/// A size of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All of this many bytes, FCS counted.
    Bytes(usize),
    /// Twelve frames of three sizes, in turn.
    Imix,
}

fn size(text: &str) -> Result<Size, String> {
    if text == "imix" {
        return Ok(Size::Imix);
    }
    let bytes = text.parse().ok().filter(|bytes| (64..=9_220).contains(bytes));
    bytes.map(Size::Bytes).ok_or_else(|| "expected 64 to 9220 bytes with FCS, or imix".to_owned())
}

impl Size {
    /// Name of the size in results.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Imix => "imix".to_owned(),
        }
    }
}

/// The plan, with all defaults filled in; part of the JSON result.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Format of all frames.
    pub format: &'static str,
    pub tests: Vec<Test>,
    /// Whether both ports send at once.
    pub bidirectional: bool,
    /// How long a trial sends.
    pub trial_ms: u64,
    /// Pause between learning frames and a trial.
    pub settle_ms: u64,
    /// Wait for frames in flight after the last one was sent.
    pub drain_ms: u64,
    /// Pause before each trial.
    pub rest_ms: u64,
    /// Searches for each throughput.
    pub repetitions: u16,
    /// Resolution of a search, as a share of the generator's maximum.
    pub resolution_ppm: u64,
    /// Loss that passes for NDR.
    pub accepted_loss_ppm: u64,
    /// Loss that passes for PDR.
    pub partial_loss_ppm: u64,
    /// Load of the latency histogram, as a share of the NDR.
    pub latency_load_ppm: u64,
    /// How long a latency trial sends.
    pub latency_trial_ms: u64,
    /// Tagged frames, each in a trial of its own.
    pub latency_repetitions: u16,
    /// Longest burst, as time at the generator's maximum rate.
    pub burst_ms_max: u64,
    /// Number of searches for the longest burst.
    pub burst_repetitions: u16,
    /// Whether threads poll without sleeping.
    pub busy: bool,
    /// Cores of the sending and the receiving thread; empty if not pinned.
    pub cores: Vec<usize>,
    #[serde(skip)]
    pub(super) sizes: Vec<Size>,
    /// Whether sizes were given as arguments: one that the format cannot have is then a failure.
    #[serde(skip)]
    pub(super) sizes_given: bool,
    #[serde(skip)]
    pub(super) frame: FrameSpec,
}

impl Plan {
    /// The plan of `args`.
    ///
    /// # Errors
    /// Arguments that contradict each other, or are out of range.
    pub fn new(args: &PortsArgs) -> Result<Self, String> {
        if args.tx == args.rx {
            return Err(format!("--tx {0} --rx {0}: expected two ports", args.tx));
        }
        if !(args.cores.is_empty() || args.cores.len() == 2) {
            return Err("--cores: expected two, of the sending and the receiving thread".to_owned());
        }
        refuse_unusable("--cores", &args.cores)?;
        if args.resolution_percent.ppm() == 0 {
            return Err("--resolution-percent 0: expected more than 0".to_owned());
        }
        if args.latency_load_percent.ppm() == 0 {
            return Err("--latency-load-percent 0: expected more than 0".to_owned());
        }
        let rfc = |given: Option<u64>, rfc: u64, short: u64| {
            given.unwrap_or(if args.rfc_lengths { rfc } else { short })
        };
        let times = |given: Option<u16>, rfc: u16, short: u16| {
            given.unwrap_or(if args.rfc_lengths { rfc } else { short })
        };
        // RFC 2544 §24: at least 60 s. §23: 2 s after routing updates (here learning frames) and after the last frame,
        // and 5 s between trials.
        let trial_ms = rfc(args.trial_ms, 60_000, 2_000);
        let (settle_ms, drain_ms) =
            (rfc(args.settle_ms, 2_000, 100), rfc(args.drain_ms, 2_000, 200));
        let rest_ms = rfc(args.rest_ms, 5_000, 0);
        let frame = frame(args);
        Ok(Self {
            format: args.format.name(),
            tests: args.test.clone(),
            bidirectional: args.bidirectional,
            trial_ms,
            settle_ms,
            drain_ms,
            rest_ms,
            repetitions: times(args.repetitions, 3, 3),
            resolution_ppm: args.resolution_percent.ppm(),
            accepted_loss_ppm: args.accepted_loss_percent.ppm(),
            partial_loss_ppm: args.partial_loss_percent.ppm(),
            latency_load_ppm: args.latency_load_percent.ppm(),
            // RFC 2544 §26.2: 120 s and 20 times. §26.4: bursts of at least 2 s, 50 times.
            latency_trial_ms: rfc(args.latency_trial_ms, 120_000, trial_ms),
            latency_repetitions: times(args.latency_repetitions, 20, 5),
            burst_ms_max: rfc(args.burst_ms_max, 2_000, trial_ms.min(60_000)),
            burst_repetitions: times(args.burst_repetitions, 50, 3),
            busy: args.busy,
            cores: args.cores.clone(),
            sizes: if args.size.is_empty() { SIZES.to_vec() } else { args.size.clone() },
            sizes_given: !args.size.is_empty(),
            frame,
        })
    }

    /// Template of frames of `size`, for ports that carry up to `frame_len_max` bytes without FCS.
    ///
    /// # Errors
    /// The format or the ports cannot have this size; the text gives the possible range.
    pub fn frames(&self, size: Size, frame_len_max: usize) -> Result<FrameSpec, String> {
        let frame = &self.frame;
        let most = frame.len_max().min(frame_len_max);
        let fit = |bytes: usize| (bytes - FCS_LEN).clamp(frame.len_min(), most);
        let sizes = match size {
            // A mix is clamped, as docs/bench.md says; a single size must be exact.
            Size::Imix => Sizes::List(IMIX.map(fit).to_vec()),
            Size::Bytes(bytes) if fit(bytes) + FCS_LEN == bytes => Sizes::Fixed(bytes - FCS_LEN),
            Size::Bytes(bytes) => {
                let (min, max) = (frame.len_min().max(60) + FCS_LEN, most + FCS_LEN);
                let kind = frame.kind.name();
                return Err(format!(
                    "{bytes} bytes: {kind} frames of these ports have {min} to {max}"
                ));
            }
        };
        Ok(frame.clone().with_sizes(sizes))
    }
}

/// The frame that the flags describe, without size; stations are replaced by those of the trial's sides.
fn frame(args: &PortsArgs) -> FrameSpec {
    let (from, to) = (Station::numbered(1), Station::numbered(2));
    let mut frame = FrameSpec::new(args.format, from, to);
    // Not ECN-capable, so a switch that marks leaves the frames as they are.
    frame.ecn = Ecn::NotEct;
    if let Some(vid) = args.vlan {
        frame = frame.with_vlan(Pcp::from_low_bits(0), Vid::from_low_bits(vid));
    }
    frame
}

/// Bytes with FCS of twelve successive frames: the mean length of IMIX is no whole number, but twelve frames are.
#[must_use]
pub fn bytes_of_twelve(frame: &FrameSpec) -> u64 {
    (0..12).map(|seq| (frame.len_at(seq, 0) + FCS_LEN) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PortsArgs,
    }

    fn plan(more: &[&str]) -> Result<Plan, String> {
        let line = ["bench", "--tx", "a", "--rx", "b"].iter().chain(more);
        Plan::new(&Line::try_parse_from(line).map_err(|error| error.to_string())?.args)
    }

    #[test]
    fn sizes_count_the_fcs_and_fit_the_format() {
        #[rustfmt::skip] // columns: format, size, longest frame of the port, lengths without FCS
        let cases: [(_, _, _, Result<&[usize], &str>); 7] = [
            ("ethernet", Size::Bytes(64),   1522, Ok(&[60])),
            ("ethernet", Size::Bytes(1518), 1522, Ok(&[1514])),
            ("ethernet", Size::Bytes(9000), 1522, Err("9000 bytes: ethernet frames of these ports have 64 to 1526")),
            ("standard", Size::Bytes(64),   1522, Ok(&[60])),
            ("lite",     Size::Bytes(64),   1522, Ok(&[60])),
            ("ethernet", Size::Imix,         1522, Ok(&[60, 566, 60, 60, 566, 60, 1514, 60, 566, 60, 566, 60])),
            ("ethernet", Size::Imix,         1000, Ok(&[60, 566, 60, 60, 566, 60, 1000, 60, 566, 60, 566, 60])),
        ];
        for (format, size, frame_len_max, want) in cases {
            let plan = plan(&["--format", format]).unwrap();
            let lens = plan.frames(size, frame_len_max).map(|frame| {
                frame.check().unwrap();
                (0..want.map_or(0, <[usize]>::len) as u64).map(|seq| frame.len_at(seq, 0)).collect()
            });
            assert_eq!(
                lens,
                want.map(<[usize]>::to_vec).map_err(str::to_owned),
                "{format} {size:?}"
            );
        }
    }

    #[test]
    fn lengths_of_the_rfc_give_way_to_what_is_asked_for() {
        let (short, rfc) =
            (plan(&[]).unwrap(), plan(&["--rfc-lengths", "--drain-ms", "7"]).unwrap());
        let told = |plan: &Plan| {
            (
                plan.trial_ms,
                plan.settle_ms,
                plan.drain_ms,
                plan.latency_trial_ms,
                plan.burst_repetitions,
            )
        };
        assert_eq!(told(&short), (2_000, 100, 200, 2_000, 3));
        assert_eq!(told(&rfc), (60_000, 2_000, 7, 120_000, 50));
    }

    #[test]
    fn nonsense_is_refused() {
        #[rustfmt::skip] // columns: more arguments, part of what is told
        let cases: [(&[&str], &str); 9] = [
            (&["--size", "63"], "expected 64 to 9220 bytes with FCS, or imix"),
            (&["--size", "big"], "expected 64 to 9220 bytes with FCS, or imix"),
            (&["--cores", "1"], "--cores: expected two"),
            (&["--cores", "0,0"], "--cores: expected each processor once, found 0 twice"),
            (&["--cores", "0,5000"], "--cores: expected processors of this machine ("),
            (&["--trial-ms", "0"], "1..=3600000"),
            (&["--resolution-percent", "0"], "--resolution-percent 0: expected more than 0"),
            (&["--latency-load-percent", "0"], "--latency-load-percent 0: expected more than 0"),
            (&["--format", "pfc"], "expected standard"),
        ];
        for (more, want) in cases {
            let told = plan(more).err().unwrap_or_default();
            assert!(told.contains(want), "{more:?}: {told}");
        }
        let same = Line::try_parse_from(["bench", "--tx", "a", "--rx", "a"]).unwrap();
        assert_eq!(Plan::new(&same.args).unwrap_err(), "--tx a --rx a: expected two ports");
    }
}
