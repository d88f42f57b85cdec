//! Chaos from the command line: `chaos [SEED [FRAMES]]`, or `chaos episode SEED` to see one again.
//!
//! A report on standard output; exit code 1 when a checker objects.
//!
//! Units: frames.

use std::process::ExitCode;

use weft_sim::chaos::{chaos, episode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| args.get(index).and_then(|text| text.parse::<u64>().ok());
    let report = if args.first().is_some_and(|first| first == "episode") {
        episode(number(1).unwrap_or(1))
    } else {
        let (seed, frames) = (number(0).unwrap_or(1), number(1).unwrap_or(10_000_000));
        chaos(seed, frames)
    };
    println!("{report:#?}");
    ExitCode::from(u8::from(report.violation_count > 0))
}
