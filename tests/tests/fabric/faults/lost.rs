//! How long the routes over what is lost lead nowhere, where the manager's own way crosses it too.
//!
//! A ring of four switches in virtual time → one link, or both links of a switch, go → the manager looks → requests
//! to the other side of the ring are answered again.
//!
//! Units: virtual milliseconds.
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; CXL 3.1 section 7.7.12.6.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_dataplane::time::Instant;
use weft_lab::endpoint::command::Command;
use weft_lab::fabric::in_process::virtual_clock;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{pass, range};

use super::load;

/// The manager is at the first switch, and so is the host; what it reads is at the other side.
const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }, { name = "sw2" }, { name = "sw3" }]
link = [
    { ends = ["sw0", "sw1"] }, { ends = ["sw1", "sw2"] }, { ends = ["sw2", "sw3"] },
    { ends = ["sw3", "sw0"] },
]
host = [{ name = "h0", at = "sw0" }]
gfd = [{ name = "g", at = "sw2", capacity_mib = 512 }]

[[memory]]
name = "far"
hosts = ["h0"]
gfds = ["g"]
len = 0x10000000
hpa = 0x10000000000
"#;

/// Milliseconds that a fault may cost, and those of them between two looks of `weft fm serve`.
const COST_MS: u64 = 1_000;
const PAUSE_MS: u64 = 250;

/// What goes at once: links by the switches that they join.
const FAULTS: [(&str, &[[usize; 2]]); 6] = [
    ("the first link", &[[0, 1]]),
    ("the last link", &[[3, 0]]),
    ("a link behind another switch", &[[1, 2]]),
    ("a link behind the other switch", &[[2, 3]]),
    ("both links of one switch", &[[0, 1], [1, 2]]),
    ("both links of the other switch", &[[2, 3], [3, 0]]),
];

fn wires(fabric: &ManagedFabric, links: &[[usize; 2]]) -> Vec<usize> {
    let parts = fabric.parts();
    let of = |&[one, other]: &[usize; 2]| {
        let there = parts.wires_of(Part::Switch(other));
        parts
            .wires_of(Part::Switch(one))
            .into_iter()
            .filter(move |at| there.contains(at))
            .collect::<Vec<_>>()
    };
    links.iter().flat_map(of).collect()
}

fn set(fabric: &ManagedFabric, wires: &[usize], up: bool) {
    for &wire in wires {
        fabric.parts().set_wire(wire, up);
    }
}

#[test]
fn what_is_lost_costs_less_than_a_second_also_on_the_managers_own_way() {
    let time = Arc::new(AtomicU64::new(0));
    let (seen, mut clock) = (time.clone(), virtual_clock());
    let clock = move |moved| {
        let now: Instant = clock(moved);
        seen.store(now.since(Instant::ZERO).as_ns(), Ordering::Relaxed);
        now
    };
    let now_ms = || time.load(Ordering::Relaxed) / 1_000_000;
    let mut fabric = ManagedFabric::up(TOPOLOGY, Box::new(clock)).unwrap();
    let before = fabric.fm().state();
    let access = range(0x100_0000_0000, 1 << 12, 1);
    let start = Command::LoadStart { access, rounds: 0, pause_ms: 1 };
    fabric.ask(Part::Host(0), &start).unwrap();
    pass(&fabric, 20);
    for (name, links) in FAULTS {
        let all = wires(&fabric, links);
        assert_eq!(all.len(), links.len(), "{name}");
        let healthy = load(&fabric, 0);
        set(&fabric, &all, false);
        pass(&fabric, 5);
        let cut = now_ms();
        fabric.fm().watch();
        let took = now_ms() - cut;
        eprintln!("{name}: routes are whole {took} ms after the look began");
        assert!(took + PAUSE_MS < COST_MS, "{name}: {took} ms");
        // What was on the link is given up in time, and nothing is lost from then on.
        pass(&fabric, 3_000);
        let then = load(&fabric, 0);
        pass(&fabric, 100);
        let now = load(&fabric, 0);
        assert!(now.done > then.done && now.failures == then.failures, "{name}: {now:?}");
        assert!(then.answered > healthy.answered, "{name}: {then:?}");
        set(&fabric, &all, true);
        for _ in 0..4 {
            pass(&fabric, 150);
            fabric.fm().watch();
        }
        assert_eq!(fabric.fm().state(), before, "{name}");
    }
}
