//! Kept findings of the fuzzers, and a million damaged frames, through the same bodies as `fuzz/`.
//!
//! `fuzz/regress/TARGET/NAME.bin` → the target of that name.
//!
//! Units: frames.

use std::path::Path;

use weft_base::rng::Rng;
use weft_dataplane::pbr::Refusal;
use weft_dataplane::pipeline::{Ledger, PortLedger};
use weft_dataplane::time::Span;
use weft_tests::fuzz::frames::Mutator;
use weft_tests::fuzz::rig::Rig;
use weft_tests::fuzz::{TARGETS, cci, config, record, scenario, tlp, tlp_switch};

fn fuzz_dir() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace").join("fuzz")
}

#[test]
fn kept_findings_stay_fixed() {
    let mut replayed = 0;
    for (name, target) in TARGETS {
        let kept = fuzz_dir().join("regress").join(name);
        let files = std::fs::read_dir(&kept).unwrap_or_else(|e| panic!("{}: {e}", kept.display()));
        for file in files {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            println!("{}", path.display());
            target(&bytes);
            replayed += 1;
        }
    }
    assert!(replayed >= TARGETS.len(), "each target has at least one kept input");
}

/// `fuzz/` has a binary for each target, and none beside them.
#[test]
fn every_target_has_its_binary() {
    let files = std::fs::read_dir(fuzz_dir().join("fuzz_targets")).unwrap();
    let mut names: Vec<String> = files
        .map(|f| f.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, TARGETS.map(|(name, _)| name.to_owned()));
}

/// A million damaged frames of every format through the whole pipeline: no panic, and at the end
/// each of them was sent, dropped for a reason or meant for the switch.
#[test]
fn a_million_damaged_frames_are_all_accounted_for() {
    const FRAMES: u64 = 1_000_000;
    const PORTS: usize = 8;
    let seed = std::env::var("WEFT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_121);
    println!("seed {seed} (WEFT_SEED sets another)");
    let mut mutator = Mutator::new(seed);
    let mut rig = Rig::new(Rig::config(PORTS, 8), 1_024);
    let mut fed = 0;
    while fed < FRAMES {
        for port in 0..PORTS {
            for _ in 0..mutator.below(24) {
                if fed < FRAMES {
                    rig.arrive(port, mutator.frame());
                    fed += 1;
                }
            }
            rig.open(port, mutator.below(32));
        }
        rig.step(Span::from_ns(mutator.below(4_000) as u64));
        if fed % 64 == 0 {
            rig.check();
        }
    }
    // What still waits at the ports goes in.
    while rig.check().rx < FRAMES {
        rig.step(Span::from_us(1));
    }
    let ledger = rig.finish();
    assert_eq!(ledger.rx, FRAMES);
    let reasons = |of: usize| ledger.port.iter().map(|port| port.drops[of]).sum::<u64>();
    let dropped: u64 = (0..weft_dataplane::stats::DROP_REASONS).map(reasons).sum();
    assert_eq!(dropped, ledger.dropped, "each drop has one reason");
    assert!(ledger.tx > FRAMES / 10, "most of the pipeline was reached: {} sent", ledger.tx);
    assert!(ledger.consumed > 0 && ledger.dropped > 0);
}

/// A thousand damaged configurations: none panics, and each that is refused names the place.
#[test]
fn a_thousand_damaged_configurations_are_taken_or_refused_by_line() {
    let valid = config::valid();
    assert_eq!(config::problems(&valid), [""; 0], "the start is valid");
    let mut rng = Rng::new(20_261_121);
    let texts = (0..1_000).map(|_| config::mutated(&valid, &mut rng));
    let accepted = texts.filter(|text| config::problems(text).is_empty()).count();
    println!("{accepted} of 1000 were still valid");
    assert!((10..900).contains(&accepted), "both outcomes are common: {accepted} of 1000 valid");
}

/// Five hundred damaged scenarios: none panics, and each that is refused names the file.
#[test]
fn five_hundred_damaged_scenarios_are_taken_or_refused_by_line() {
    let valid = scenario::valid();
    assert_eq!(scenario::problems(&valid), [""; 0], "the start is valid");
    let mut rng = Rng::new(20_261_125);
    let texts = (0..500).map(|_| config::mutated(&valid, &mut rng));
    let accepted = texts.filter(|text| scenario::problems(text).is_empty()).count();
    println!("{accepted} of 500 were still valid");
    assert!((10..450).contains(&accepted), "both outcomes are common: {accepted} of 500 valid");
}

/// Two thousand damaged records: each is replayed as far as it goes, or refused; none panics.
#[test]
fn two_thousand_damaged_records_are_replayed_or_refused() {
    let kept = fuzz_dir().join("regress/record/run.bin");
    let whole = std::fs::read(kept).unwrap();
    let all = record::steps(&whole).unwrap();
    assert!(all > 50, "{all} steps");
    let mut rng = Rng::new(20_261_121);
    let done: Vec<_> =
        (0..2_000).map(|_| record::steps(&record::damaged(&whole, &mut rng))).collect();
    let refused = done.iter().filter(|done| done.is_err()).count();
    let partly = done.iter().filter(|done| done.as_ref().is_ok_and(|&n| n > 0 && n < all)).count();
    println!("{refused} of 2000 refused, {partly} replayed in part");
    assert!(refused > 100 && partly > 100, "both are common: {refused}, {partly}");
}

/// A hundred thousand damaged CCI messages of every command: each is read and written again, or refused
/// for a reason; all reasons and both outcomes are common.
#[test]
fn a_hundred_thousand_damaged_cci_messages_are_read_or_refused() {
    damaged_cci_messages(20_261_122, 100_000);
}

fn damaged_cci_messages(seed: u64, count: usize) {
    let valid = cci::valid();
    let mut rng = Rng::new(seed);
    let mut all = cci::Outcome::default();
    for whole in valid.iter().cycle().take(count) {
        let one = cci::stream(&cci::damaged(whole, &mut rng));
        all.read += one.read;
        all.length += one.length;
        all.input += one.input;
        all.unsupported += one.unsupported;
        all.header += one.header;
    }
    println!("{all:?} of {count}");
    let common = count / 20..count;
    assert!(common.contains(&all.read) && common.contains(&all.refused()), "{all:?}");
    let reasons = [all.length, all.input, all.unsupported, all.header];
    assert!(reasons.into_iter().all(|count| count > 100), "{all:?}");
}

/// A million damaged TLPs of every kind on every kind of link: each is refused, or emitted, translated and
/// answered to the same meaning.
#[test]
fn a_million_damaged_tlps_are_refused_or_keep_their_meaning() {
    damaged_tlps(tlp::Frames::new(seed(20_261_122)), 1_000_000);
}

/// The same of CXL.mem alone, `BISnp` and `BIRsp` among it.
#[test]
fn a_million_damaged_messages_of_cxl_mem_are_refused_or_keep_their_meaning() {
    damaged_tlps(tlp::Frames::of_mem(seed(20_261_127)), 1_000_000);
}

fn damaged_tlps(mut frames: tlp::Frames, count: usize) {
    let parsed = (0..count).filter(|_| tlp::parse(frames.frame())).count();
    println!("{parsed} of {count} were well-formed");
    assert!((count / 5..count / 5 * 4).contains(&parsed), "both are common: {parsed} parsed");
}

/// `WEFT_SEED`, or `other`.
fn seed(other: u64) -> u64 {
    let seed = std::env::var("WEFT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(other);
    println!("seed {seed} (WEFT_SEED sets another)");
    seed
}

/// A million damaged TLPs into a switch with ports of every role, whose tables say something else every ten
/// thousand: no panic, and each of them left, became its own answer, or was dropped for one reason.
#[test]
fn a_million_damaged_tlps_are_all_accounted_for_by_a_switch() {
    every_refusal(seed(20_261_122), 1_000_000);
}

/// The same of CXL.mem alone: hosts ask, devices answer and snoop, and all say what is not theirs to say.
#[test]
fn a_million_damaged_messages_of_cxl_mem_are_all_accounted_for_by_a_switch() {
    let seed = seed(20_261_127);
    let ledger = through_a_switch(seed, tlp::Frames::of_mem(seed), 1_000_000);
    let sum = |of: &dyn Fn(&PortLedger) -> u64| -> u64 { ledger.port.iter().map(of).sum() };
    let (answered, refused) = (sum(&|port| port.answered), sum(&|port| port.refused.iter().sum()));
    println!("{} sent, {answered} answered of {refused} refused", ledger.tx);
    assert!(ledger.tx > 50_000 && answered > 1_000 && refused > answered);
    let rules = [
        Refusal::NotInGmv,
        Refusal::ForeignSnoop,
        Refusal::NoHdmDecoder,
        Refusal::GimNeedsUio,
        Refusal::NoBackInvalidate,
        Refusal::WrongRole,
    ];
    for refusal in rules {
        let count = sum(&|port| port.refused.get(refusal.index()).copied().unwrap_or_default());
        assert!(count > 0, "{} is reached", refusal.name());
    }
}

/// Feeds frames to a switch whose links come and go and whose tables change; its ledger, in which each drop has one reason.
fn through_a_switch(seed: u64, mut frames: tlp::Frames, count: u64) -> Ledger {
    let mut rng = Rng::new(seed);
    let mut rig = Rig::new(tlp_switch::switch(), 1_024);
    let (mut fed, mut renewed) = (0, 0);
    while fed < count {
        if fed >= renewed {
            let ports = rig.core().snapshot.load().tlp_ports;
            rig.core().tables.store(std::sync::Arc::new(tlp_switch::tables(&mut rng, ports)));
            renewed += 10_000;
            for port in 0..tlp_switch::PORTS {
                rig.set_link(port, rng.below(8) > 0);
            }
        }
        for port in 0..tlp_switch::PORTS {
            for _ in 0..rng.below(12) {
                if fed < count {
                    rig.arrive(port, &tlp_switch::frame(&mut rng, port, frames.frame()));
                    fed += 1;
                }
            }
            rig.open(port, usize::try_from(rng.below(32)).expect("small"));
        }
        rig.step(Span::from_ns(rng.below(4_000)));
        if fed % 64 == 0 {
            rig.check();
        }
    }
    for port in 0..tlp_switch::PORTS {
        rig.set_link(port, true);
    }
    while rig.check().rx < count {
        rig.step(Span::from_us(1));
    }
    let ledger = rig.finish();
    let dropped = ledger.port.iter().map(|port| port.drops.iter().sum::<u64>()).sum::<u64>();
    assert_eq!((ledger.rx, dropped), (count, ledger.dropped), "each drop has one reason");
    ledger
}

fn every_refusal(seed: u64, count: u64) {
    let ledger = through_a_switch(seed, tlp::Frames::new(seed), count);
    let sum = |of: &dyn Fn(&PortLedger) -> u64| -> u64 { ledger.port.iter().map(of).sum() };
    let (answered, refused) = (sum(&|port| port.answered), sum(&|port| port.refused.iter().sum()));
    let to_agent = sum(&|port| port.to_agent);
    println!(
        "{} sent, {answered} answered of {refused} refused, {to_agent} to the agent",
        ledger.tx
    );
    assert!(ledger.tx > count / 20 && answered > 1_000 && to_agent > 1_000);
    for refusal in Refusal::ALL {
        let count = sum(&|port| port.refused.get(refusal.index()).copied().unwrap_or_default());
        println!("{:26} {count}", refusal.name());
        assert!(count > 0, "{} is reached", refusal.name());
    }
}

/// Ten times as many of each, from a seed of its own.
#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_of_ten_times_as_many_tlps_and_messages() {
    let seed = seed(u64::from(std::process::id()));
    damaged_cci_messages(seed, 1_000_000);
    damaged_tlps(tlp::Frames::new(seed), 10_000_000);
    every_refusal(seed, 10_000_000);
}
