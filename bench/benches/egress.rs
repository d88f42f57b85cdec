//! Egress picks under criterion: WRR and DWRR, without and with rates.
//!
//! One criterion group; each bench picks among three busy queues.
//!
//! Units: time a pick.
//! Run: `cargo bench -p weft-bench --bench egress`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use weft_dataplane::egress::{EgressConfig, EgressSched, Weighted};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{Pri, PriSet};

fn picks(criterion: &mut Criterion) {
    // no rate here ever holds a queue back: the rows compare the cost of looking at rates
    let wrr = EgressConfig::for_pris(4);
    let dwrr = EgressConfig { mode: Weighted::Dwrr, ..wrr.clone() };
    let port_rate = EgressConfig { port_max_rate: Some(LinkRate::gbps(9_999)), ..wrr.clone() };
    let mut all_rates = port_rate.clone();
    for pri in Pri::ALL {
        all_rates.pri_max_rate[pri] = Some(LinkRate::gbps(9_999));
    }
    let mut group = criterion.benchmark_group("egress_pick");
    for (name, config) in
        [("wrr", wrr), ("dwrr", dwrr), ("wrr/port_rate", port_rate), ("wrr/all_rates", all_rates)]
    {
        let mut sched = EgressSched::new(&config);
        let mut now = Instant::ZERO;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                now += Span::from_ns(100);
                sched.pick(black_box(now), black_box(PriSet::first(3)), |_| black_box(1_000))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, picks);
criterion_main!(benches);
