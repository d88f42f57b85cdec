use super::*;

#[cfg(not(loom))]
use std::collections::{BTreeMap, VecDeque};

/// A descriptor that stands for frame `n`; nothing behind it.
fn desc(n: u16) -> Desc {
    let mut desc = Desc::new(u32::from(n), 0);
    desc.set_vid(n);
    desc
}

#[cfg(not(loom))]
#[test]
fn random_operations_match_a_map_of_deques() {
    const PORTS: usize = 3;
    let (mut inputs, mut drain, free) = voqs(PORTS, 2, 40, true);
    let mut nodes = FreeCache::new(free, 0);
    let mut oracle: BTreeMap<(usize, usize, u8), VecDeque<u16>> = BTreeMap::new();
    let mut state = 7u64;
    let mut next = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut queued, mut refused) = (0, 0);
    let steps = if cfg!(miri) { 600 } else { 20_000 };
    for n in 0..steps {
        let input = next(PORTS as u64) as usize;
        let output = PortId::new(next(PORTS as u64) as usize).unwrap();
        let pri = Pri::new(next(2) as u8).unwrap();
        let key = (input, output.index(), pri.get());
        if next(2) == 0 {
            match inputs[input].push(&mut nodes, output, pri, desc(n)) {
                Ok(()) => {
                    oracle.entry(key).or_default().push_back(n);
                    queued += 1;
                }
                Err(back) => {
                    assert_eq!((back.vid(), queued), (n, 40), "refused only when full");
                    refused += 1;
                }
            }
            inputs[input].publish(|_, _| {});
        } else {
            let input = PortId::new(input).unwrap();
            let got = drain
                .queue(input, output, pri)
                .and_then(|mut q| q.pop(&mut nodes))
                .map(|d| d.vid());
            drain.queue(input, output, pri).unwrap().settle();
            let want = oracle.get_mut(&key).and_then(VecDeque::pop_front);
            assert_eq!(got, want);
            queued -= usize::from(want.is_some());
        }
        for (&(i, o, p), queue) in &oracle {
            let waiting = drain.waiting(PortId::new(o).unwrap(), Pri::new(p).unwrap());
            assert_eq!(waiting.contains(PortId::new(i).unwrap()), !queue.is_empty());
        }
    }
    assert!(refused > 0, "the bound was reached");
}

#[cfg(not(loom))]
#[test]
fn queues_that_do_not_exist_are_refused() {
    let (mut inputs, mut drain, free) = voqs(2, 4, 8, true);
    let mut nodes = FreeCache::new(free, 0);
    let (p0, p2) = (PortId::new(0).unwrap(), PortId::new(2).unwrap());
    let pri4 = Pri::new(4).unwrap();
    assert!(inputs[0].push(&mut nodes, p2, Pri::default(), desc(1)).is_err());
    assert!(inputs[0].push(&mut nodes, p0, pri4, desc(1)).is_err());
    assert_eq!(drain.queue(p2, p0, Pri::default()).and_then(|mut q| q.pop(&mut nodes)), None);
    assert_eq!(drain.queue(p0, p0, pri4).and_then(|mut q| q.pop(&mut nodes)), None);
    assert!(drain.queue(p0, p0, pri4).is_none_or(|q| q.is_empty()));
}

/// Two threads, some hundred thousand hand-overs: order kept, nothing lost, no wake-up forgotten.
#[cfg(not(loom))]
#[test]
fn two_cores_hand_over_every_frame_in_order() {
    let frames: u32 = if cfg!(miri) { 300 } else { 400_000 };
    let (mut inputs, mut drain, free) = voqs(2, 4, 256, false);
    let output = PortId::new(1).unwrap();
    let mut nodes = FreeCache::new(free.clone(), 0);
    let producer = std::thread::spawn({
        let mut input = inputs.remove(0);
        move || {
            let mut nodes = FreeCache::new(free, 0);
            for n in 0..frames {
                let pri = Pri::from_low_bits((n % 4) as u8);
                let mut frame = desc((n / 4) as u16);
                while let Err(back) = input.push(&mut nodes, output, pri, frame) {
                    frame = back;
                    std::hint::spin_loop();
                }
                if n % 3 == 0 {
                    input.publish(|_, _| {});
                }
            }
            input.publish(|_, _| {});
        }
    });
    let input = PortId::default();
    let mut next = [0u16; 4];
    let mut got = 0;
    while got < frames {
        for pri in Pri::ALL.into_iter().take(4) {
            if !drain.waiting(output, pri).contains(input) {
                std::hint::spin_loop();
                continue;
            }
            for _ in 0..7 {
                let Some(frame) =
                    drain.queue(input, output, pri).and_then(|mut q| q.pop(&mut nodes))
                else {
                    break;
                };
                assert_eq!(frame.vid(), next[pri.index()]);
                next[pri.index()] = next[pri.index()].wrapping_add(1);
                got += 1;
            }
            drain.queue(input, output, pri).unwrap().settle();
        }
    }
    producer.join().unwrap();
    assert!(
        Pri::ALL
            .into_iter()
            .take(4)
            .all(|pri| drain.queue(input, output, pri).is_none_or(|q| q.is_empty()))
    );
}

/// Under the model checker: every order of two threads' steps.
#[cfg(loom)]
mod loom_tests {
    use super::*;

    #[test]
    fn no_frame_is_left_without_its_occupancy_bit() {
        loom::model(|| {
            let (mut inputs, mut drain, free) = voqs(1, 1, 4, false);
            let (port, pri) = (PortId::default(), Pri::default());
            let mut input = inputs.remove(0);
            let mut theirs = FreeCache::new(free.clone(), 0);
            let mut nodes = FreeCache::new(free, 0);
            input.push(&mut theirs, port, pri, desc(0)).unwrap();
            input.publish(|_, _| {});
            let producer = loom::thread::spawn(move || {
                input.push(&mut theirs, port, pri, desc(1)).unwrap();
                input.publish(|_, _| {});
            });
            let mut next = 0;
            if let Some(frame) = drain.queue(port, port, pri).and_then(|mut q| q.pop(&mut nodes)) {
                assert_eq!(frame.vid(), next);
                next += 1;
            }
            drain.queue(port, port, pri).unwrap().settle();
            producer.join().unwrap();
            while next < 2 {
                assert!(
                    drain.waiting(port, pri).contains(port),
                    "a queued frame is always announced"
                );
                let frame = drain
                    .queue(port, port, pri)
                    .and_then(|mut q| q.pop(&mut nodes))
                    .expect("what is announced is there");
                assert_eq!(frame.vid(), next);
                next += 1;
                drain.queue(port, port, pri).unwrap().settle();
            }
            assert!(drain.queue(port, port, pri).and_then(|mut q| q.pop(&mut nodes)).is_none());
            assert!(!drain.waiting(port, pri).contains(port), "an empty queue announces nothing");
        });
    }
}
