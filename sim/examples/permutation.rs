//! A permutation of so many hosts, at one switch or on a fat tree, on one thread or several: to be run under time(1), perf(1)
//! or callgrind.
//!
//! Shape: hosts (8), frames a host (10,000), threads (1) → what it took.
//! Units: frames that switches sent, steps of switches.
//! Source: docs/spec/model.md §1.

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::frames::Kind;
use weft_sim::network::{Network, NetworkSpec};
use weft_sim::scenario::flow::Flow;
use weft_sim::setup::Setup;
use weft_sim::switch::Around;
use weft_sim::topology::Topology;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |at, other: usize| {
        std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(other)
    };
    let (hosts, frames, threads) = (number(1, 8), number(2, 10_000), number(3, 1));
    let topology = if hosts <= 64 { Topology::single(hosts)? } else { Topology::fat_tree(hosts)? };
    let setup = Setup { rate: LinkRate::gbps(400), buffer_bytes: 16 << 20, ..Setup::new(1, 4) };
    let spec = NetworkSpec {
        topology,
        setup,
        around: Around { fronts: std::env::args().nth(4).is_none(), ..Around::default() },
        kind: Kind::Standard,
        endpoint_delay: Span::from_ns(60),
    };
    let mut flows = Vec::new();
    for from in 0..hosts {
        let to = u16::try_from((from + hosts / 2) % hosts)?;
        flows.push(Flow::new(u16::try_from(from)?, to, 1_344 * frames as u64));
    }
    let mut network = Network::new(&spec, flows, |_| (), |_| ())?;
    let end = Instant::from_ns(40 * frames as u64 + 100_000);
    network.run(end, threads).map_err(ToString::to_string)?;
    let hops: u64 = network.ledgers().iter().map(|ledger| ledger.tx).sum();
    let dropped: u64 = network.ledgers().iter().map(|ledger| ledger.dropped).sum();
    let steps: u64 = network.switches().map(weft_sim::switch::Switch::steps).sum();
    let done =
        if network.is_idle() { "all messages are done" } else { "some messages are not done" };
    println!("{hops} frames sent by switches in {steps} steps, {dropped} dropped; {done}");
    Ok(())
}
