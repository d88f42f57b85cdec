//! A crossbar whose inputs never run dry: one FIFO an input, PIM, and iSLIP.
//!
//! A FIFO for all outputs and PIM are no modes of the switch. A simulation of slots with random matching of its own
//! holds their numbers; then the data plane's own [`Islip`] takes the place of that matching. With FIFOs it does as
//! well as any other, as each output that is asked serves one input. With a queue for each output it reaches a
//! throughput that PIM does not.
//!
//! Throughput is in 10,000ths of the outputs' capacity.
//!
//! Source: docs/spec/model-reference.md §3 (Karol, Hluchyj and Morgan 1987; Anderson et al. 1993; McKeown 1999).
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

use weft_base::rng::Rng;
use weft_dataplane::islip::{Discipline, Islip, Matches, Requests};
use weft_dataplane::types::{PortId, Pri, QueueKey};

const SLOTS: u64 = 20_000;
/// Denominator of throughput.
const PARTS: u64 = 10_000;

/// A matching: from the outputs that each input asks for in a slot, to the pairs that send.
type Matcher = Box<dyn FnMut(&[Vec<usize>], &mut Rng) -> Vec<(usize, usize)>>;

fn any(of: &[usize], rng: &mut Rng) -> Option<usize> {
    let place = usize::try_from(rng.below(of.len() as u64)).unwrap();
    of.get(place).copied()
}

/// PIM with one iteration: each output grants any input that asks, each input accepts any output that grants.
fn random() -> Matcher {
    Box::new(|asked, rng| {
        let mut grants = vec![Vec::new(); asked.len()];
        for output in 0..asked.len() {
            let asking = asked.iter().enumerate().filter(|(_, outputs)| outputs.contains(&output));
            let asking: Vec<usize> = asking.map(|(input, _)| input).collect();
            if let Some(input) = any(&asking, rng) {
                grants[input].push(output);
            }
        }
        let accept = |(input, outputs): (usize, &Vec<usize>)| Some((input, any(outputs, rng)?));
        grants.iter().enumerate().filter_map(accept).collect()
    })
}

/// The data plane's own iSLIP, with one iteration.
fn islip(ports: usize) -> Matcher {
    let mut crossbar = Islip::new(ports, 1, 1, Discipline::Strict);
    let (mut requests, mut matches) = (Requests::new(), Matches::new());
    Box::new(move |asked, _| {
        requests.clear();
        for (input, outputs) in asked.iter().enumerate() {
            for &output in outputs {
                let [input, output] = [input, output].map(|port| PortId::new(port).unwrap());
                requests.add(QueueKey { input, output, pri: Pri::default() });
            }
        }
        crossbar.slot(&requests, &mut matches);
        matches.iter().map(|made| (made.input.index(), made.output.index())).collect()
    })
}

/// Throughput of queues that never run dry, with one FIFO an input or a queue for each output.
fn throughput(ports: usize, fifo: bool, mut matcher: Matcher) -> u64 {
    let mut rng = Rng::new(ports as u64);
    let all: Vec<usize> = (0..ports).collect();
    let mut asked: Vec<Vec<usize>> = vec![all.clone(); ports];
    if fifo {
        for head in &mut asked {
            *head = vec![any(&all, &mut rng).unwrap()];
        }
    }
    let mut left = 0;
    for slot in 0..SLOTS {
        let made = matcher(&asked, &mut rng);
        left += if slot < SLOTS / 10 { 0 } else { made.len() as u64 };
        for (input, output) in made {
            assert!(asked[input].contains(&output), "{input} has nothing for {output}");
            if fifo {
                asked[input] = vec![any(&all, &mut rng).unwrap()];
            }
        }
    }
    left * PARTS / (ports as u64 * (SLOTS - SLOTS / 10))
}

fn assert_near(name: &str, ports: usize, had: u64, want: u64) {
    assert!(had.abs_diff(want) * 100 <= want, "{name}, {ports} ports: {had}, not {want}");
}

#[test]
fn one_fifo_an_input_is_blocked_at_its_head() {
    for (ports, want) in [(2, 7_500), (4, 6_553), (8, 6_184)] {
        assert_near("random", ports, throughput(ports, true, random()), want);
        assert_near("iSLIP", ports, throughput(ports, true, islip(ports)), want);
    }
    // 2 - sqrt 2 without end.
    assert_near("iSLIP", 64, throughput(64, true, islip(64)), 5_858);
}

#[test]
fn one_iteration_of_pim_leaves_outputs_idle_and_one_of_islip_none() {
    for (ports, want) in [(4, 6_836), (8, 6_564), (16, 6_439), (32, 6_379)] {
        assert_near("PIM", ports, throughput(ports, false, random()), want);
        assert_eq!(throughput(ports, false, islip(ports)), PARTS, "iSLIP, {ports} ports");
    }
}
