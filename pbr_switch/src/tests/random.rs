//! Random commands: valid ones with changed bytes, from any sender.

use weft_base::rng::Rng;

use super::everyone::samples;
use super::*;

/// No message causes a panic, and a refused one does not change the switch.
#[test]
fn mutated_messages_never_panic_and_refusals_change_nothing() {
    mutated_messages(0x5716, 100_000);
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_of_mutated_messages() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    mutated_messages(seed, 1_000_000);
}

fn mutated_messages(seed: u64, count: usize) {
    let mut rng = Rng::new(seed);
    let mut pick = move |bound: usize| usize::try_from(rng.below(bound as u64)).expect("small");
    let mut messages = Vec::new();
    samples(&mut |request| messages.push(message(request)));
    let mut bench = Bench::new();
    bench.up(1);
    bench.up(4);
    bench.assign(0, 0, 0x20);
    bench.switch.set_partner(port(1), Partner::Device { lds: 2 });
    let mut before = bench.switch.clone();
    let mut counts = [0_usize; 2];
    for round in 0..count {
        let mut bytes = messages[pick(messages.len())].clone();
        for _ in 0..pick(4) {
            // Mostly the payload, and small numbers, because more of those are valid.
            let from = if pick(8) == 0 { 0 } else { 12 };
            let at = from.min(bytes.len() - 1) + pick(bytes.len() - from.min(bytes.len() - 1));
            bytes[at] = u8::try_from(if pick(2) == 0 { pick(8) } else { pick(256) }).expect("byte");
        }
        let session = [FM, FM, FM, HOST, HOST, OTHER_HOST, Session::Fm(2)][pick(7)];
        let (served, out) = bench.send(session, &bytes);
        let done = match served {
            Served::Ignored => false,
            Served::Pending(_) => true,
            Served::Response => {
                let (header, _) = Header::parse(&out).expect("a whole message");
                assert_eq!((header.tag, out[3..5].to_vec()), (bytes[1], bytes[3..5].to_vec()));
                matches!(header.return_code, ReturnCode::Success | ReturnCode::BackgroundStarted)
            }
        };
        counts[usize::from(done)] += 1;
        if done {
            bench.events();
            bench.switch.outgoing().for_each(drop);
            bench.wait(Span::from_ms(2));
            before = bench.switch.clone();
        } else {
            assert!(bench.switch == before, "round {round}: {bytes:02x?} changed something");
        }
    }
    let [refused, done] = counts;
    assert!(refused > count / 10 && done > count / 10, "{refused} refused, {done} done");
}
