//! The long run: seeded chaos in virtual time with all checkers on, twice at once, with one outcome.
//!
//! Shape: `WEFT_SEED` and `WEFT_SOAK_FRAMES` → two equal reports, on two cores; `make soak`.
//! Units: frames.
//! Source: issue 2, acceptance 10.

use std::thread;

use weft_sim::chaos::chaos;

/// Frames of a soak.
const FRAMES: u64 = 500_000_000;
/// Least of each fault in a soak of that length; less of them in a shorter one.
const FAULTS: u64 = 1_000;
/// Frames between two lines of progress.
const EVERY: u64 = 10_000_000;

fn set(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn chaos_holds_and_a_seed_says_all() {
    // Without a seed the process id stands for chance: it is printed, and WEFT_SEED repeats it.
    let seed = set("WEFT_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let frames = set("WEFT_SOAK_FRAMES").unwrap_or(FRAMES);
    println!("seed {seed}, {frames} frames, twice: WEFT_SEED={seed} repeats it");
    let again = thread::spawn(move || chaos(seed, frames, |_| ()));
    let mut next = EVERY;
    let report = chaos(seed, frames, |done| {
        if done >= next {
            println!("{done} frames of {frames}");
            next = done + EVERY;
        }
    });
    let again = again.join().expect("the second run ends as the first");
    println!("{}", serde_json::to_string_pretty(&report).expect("a report of numbers"));
    assert_eq!(report.violations, [], "seed {seed}");
    assert_eq!(report.trace_hash, again.trace_hash, "seed {seed}: the same decisions");
    assert_eq!(report, again, "seed {seed}");
    assert!(report.frames >= frames);
    let least = u64::try_from(u128::from(FAULTS) * u128::from(frames) / u128::from(FRAMES));
    let faults = serde_json::to_value(report.faults).expect("counts");
    for (fault, count) in faults.as_object().expect("counts by name") {
        let enough = count.as_u64() >= least.ok();
        assert!(enough, "seed {seed}: {fault} happened {count} times only, wanted {least:?}");
    }
}
