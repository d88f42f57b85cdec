//! iSLIP slots under criterion: 4, 16 and 64 ports, settled and unsettled.
//!
//! One criterion group, a bench a load of [`weft_bench::islip_slot`].
//!
//! Units: time a slot.
//! Run: `cargo bench -p weft-bench --bench islip`.

use criterion::{Criterion, criterion_group, criterion_main};
use weft_bench::islip_slot::{Bench, Busy, Load};

fn slots(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("islip_slot");
    for ports in [4, 16, 64] {
        for busy in [Busy::OneEach, Busy::All, Busy::Half] {
            for weighted in [false, true] {
                let load = Load { ports, weighted, busy, ..Load::goal() };
                let mut bench = Bench::new(load);
                group.bench_function(load.name(), |bencher| bencher.iter(|| bench.slot()));
            }
        }
    }
    group.finish();
}

criterion_group!(benches, slots);
criterion_main!(benches);
