#![expect(clippy::unwrap_used, reason = "a test may fail")]

use super::*;
use std::collections::{BTreeMap, VecDeque};

/// A descriptor that stands for frame `n`; nothing behind it.
fn desc(n: u16) -> Desc {
    let mut desc = Desc::new(u32::from(n), 0);
    desc.set_vid(n);
    desc
}

fn port(index: usize) -> PortId {
    PortId::new(index).unwrap()
}

fn queue(output: usize, pri: u8) -> QueueId {
    QueueId::new(port(output), Pri::new(pri).unwrap())
}

#[test]
fn random_operations_match_a_map_of_deques() {
    const PORTS: usize = 3;
    const ROOM: usize = 40;
    let mut voqs = Voqs::new(PORTS, 2, ROOM);
    let mut oracle: BTreeMap<(usize, usize, u8), VecDeque<u16>> = BTreeMap::new();
    let mut rng = weft_base::rng::Rng::new(7);
    let mut next = move |below: usize| usize::try_from(rng.below(below as u64)).unwrap();
    let (mut queued, mut refused, mut most) = (0, 0, 0);
    let steps = if cfg!(miri) { 600 } else { 40_000 };
    for n in 0..steps {
        let (input, output, pri) = (next(PORTS), next(PORTS), u8::try_from(next(2)).unwrap());
        let id = queue(output, pri);
        let fills = n / 800 % 2 == 0;
        if next(100) < if fills { 75 } else { 25 } {
            if next(4) == 0 {
                // A burst for several queues at once.
                let frames: Vec<_> = (0..next(9)).map(|_| queue(next(PORTS), pri)).collect();
                if !voqs.has_room(frames.len()) {
                    continue;
                }
                let mut touched = QueueSet::EMPTY;
                for &queue in &frames {
                    touched.insert(queue);
                }
                queued += frames.len();
                for queue in &frames {
                    let key = (input, queue.output().index(), pri);
                    oracle.entry(key).or_default().push_back(n);
                }
                voqs.push_all(port(input), &touched, frames.into_iter().map(|q| (desc(n), q)));
            } else if let Err(back) = voqs.push(port(input), id, desc(n)) {
                assert_eq!(back.vid(), n);
                assert!(queued >= ROOM, "refused only when full, at {queued}");
                refused += 1;
            } else {
                oracle.entry((input, output, pri)).or_default().push_back(n);
                queued += 1;
            }
        } else {
            let mut got = Vec::new();
            let mut own = voqs.queue(port(input), id).unwrap();
            let want = next(12);
            while got.len() < want {
                let run = own.run(want - got.len());
                if run.is_empty() {
                    break;
                }
                got.extend(run.iter().map(|frame| frame.unpack().vid()));
            }
            let empty = own.settle();
            let known = oracle.entry((input, output, pri)).or_default();
            let count = known.len().min(want);
            assert_eq!(got, known.drain(..count).collect::<Vec<_>>());
            assert_eq!(empty, known.is_empty());
            queued -= count;
        }
        most = most.max(queued);
        for (&(i, o, p), known) in &oracle {
            let (output, pri) = (queue(o, p).output(), queue(o, p).pri());
            assert_eq!(voqs.waiting(output, pri).contains(port(i)), !known.is_empty());
            assert!(known.is_empty() || voqs.outputs().contains(output));
        }
    }
    assert!(refused > 0 && most > ROOM, "the bound was reached: {refused} {most}");
    for ((i, o, p), mut known) in oracle {
        let all = || voqs.pop(port(i), queue(o, p)).map(|desc| desc.vid());
        assert_eq!(core::iter::from_fn(all).collect::<Vec<_>>(), known.make_contiguous());
    }
    let lines = voqs.lines.len();
    assert_eq!(voqs.free.len(), lines, "all lines come back");
}

/// However the frames are spread, as many have room as were asked for.
#[test]
fn frames_that_lie_badly_have_room() {
    const ROOM: usize = 60;
    for per_queue in [1, 4, 5, 6, 60] {
        let mut voqs = Voqs::new(4, 4, ROOM);
        let ids = (0..4).flat_map(|output| (0..4).map(move |pri| queue(output, pri)));
        let mut all = (0..4).flat_map(|i| ids.clone().map(move |id| (port(i), id))).cycle();
        let mut held = 0;
        while held < ROOM {
            let (input, id) = all.next().unwrap();
            // The first frame of a line is taken again, so that four are left in it.
            assert!(voqs.push(input, id, desc(0)).is_ok());
            for _ in 0..per_queue.min(ROOM - held) {
                assert!(voqs.push(input, id, desc(1)).is_ok(), "{per_queue} a queue, {held} held");
                held += 1;
            }
            assert!(voqs.pop(input, id).is_some());
        }
    }
}

#[test]
fn queues_that_do_not_exist_are_refused() {
    let mut voqs = Voqs::new(2, 4, 8);
    assert!(voqs.push(port(0), queue(2, 0), desc(1)).is_err());
    assert!(voqs.push(port(0), queue(0, 4), desc(1)).is_err());
    assert!(voqs.push(port(2), queue(0, 0), desc(1)).is_err());
    assert_eq!(voqs.pop(port(2), queue(0, 0)), None);
    assert_eq!(voqs.pop(port(0), queue(0, 4)), None);
}
