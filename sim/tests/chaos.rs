//! Chaos in small: all checkers hold, and a seed determines every decision.
//!
//! Shape: [`weft_sim::chaos::chaos`] twice.
//! Units: frames.
//! Source: issue 2, acceptance 10.

use weft_sim::chaos::chaos;

#[test]
fn checkers_hold_in_chaos_and_a_seed_says_all() {
    for seed in 1..=2 {
        let report = chaos(seed, 1_000_000, |_| ());
        println!("{report:?}");
        assert_eq!(report.violations, [], "seed {seed}");
        assert_eq!(report, chaos(seed, 1_000_000, |_| ()), "seed {seed}");
    }
}
