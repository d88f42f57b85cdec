//! The long run: seeded chaos in virtual time with all checkers on, part of it a second time.
//!
//! `WEFT_SEED` and `WEFT_SOAK_FRAMES` → a report, the same for the same pair; `make soak`.
//!
//! Units: frames.

use std::thread;

use weft_sim::chaos::{ChaosReport, plan, run};

/// Frames of a soak.
const FRAMES: u64 = 500_000_000;
/// Least of each fault in a soak of that length; less of them in a shorter one.
const FAULTS: u64 = 1_000;
/// One of so many episodes is run again at once; all of them when the seed is given again.
const AGAIN: usize = 10;
/// Episodes between two lines of progress.
const EVERY: usize = 20;

fn set(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn chaos_holds_and_a_seed_says_all() {
    // Without a seed the process id stands for chance: it is printed, and WEFT_SEED repeats it.
    let seed = set("WEFT_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let frames = set("WEFT_SOAK_FRAMES").unwrap_or(FRAMES);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    println!("seed {seed}, {frames} frames on {threads} threads: WEFT_SEED={seed} repeats it");
    let episodes = plan(seed, frames);
    let count = episodes.len();
    let reports = run(&episodes, threads, |done| {
        if done.is_multiple_of(EVERY) {
            println!("{done} of {count} episodes");
        }
    });
    let report = ChaosReport::sum(seed, &reports);
    println!("{}", serde_json::to_string_pretty(&report).expect("a report of numbers"));
    assert_eq!(report.violations, [], "seed {seed}");
    assert!(report.frames >= frames);
    let least = u64::try_from(u128::from(FAULTS) * u128::from(frames) / u128::from(FRAMES));
    let faults = serde_json::to_value(report.faults).expect("counts");
    for (fault, count) in faults.as_object().expect("counts by name") {
        let enough = count.as_u64() >= least.ok();
        assert!(enough, "seed {seed}: {fault} happened {count} times only, wanted {least:?}");
    }
    let some: Vec<_> = episodes.iter().copied().step_by(AGAIN).collect();
    let first: Vec<_> = reports.into_iter().step_by(AGAIN).collect();
    assert_eq!(run(&some, threads, |_| ()), first, "seed {seed}: the same once more");
    println!("{} episodes once more: the same hashes", some.len());
}
