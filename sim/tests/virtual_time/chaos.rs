//! Chaos in small, on one thread and on two: all checkers hold, and a seed determines every decision.

use weft_sim::chaos::{ChaosReport, chaos, plan, run};

#[test]
fn checkers_hold_in_chaos_and_a_seed_says_all() {
    for seed in 1..=2 {
        let report = chaos(seed, 1_000_000);
        println!("{report:?}");
        assert_eq!(report.violations, [], "seed {seed}");
        let again = run(&plan(seed, 1_000_000), 2, |_| ());
        assert_eq!(report, ChaosReport::sum(seed, &again), "seed {seed}");
    }
}
