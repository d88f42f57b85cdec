#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "small drawn numbers"
)]

use weft_base::rng::Rng;

use super::*;
use crate::config::{BufferConfig, Sharing};
use crate::types::{Alpha, PerPri, QueueKey};

const PORTS: usize = 3;
const PRIS: usize = 4;
/// Of priorities.
const ALPHAS: PerPri<(u64, u64)> =
    PerPri([(1, 1), (2, 1), (3, 4), (4, 1), (1, 1), (1, 1), (1, 1), (1, 1)]);

fn config(sharing: Sharing, total: u32) -> BufferConfig {
    BufferConfig {
        cell_bytes: 256,
        total_cells: total,
        sharing,
        alpha: PerPri(ALPHAS.0.map(|(num, den)| Alpha::ratio(num, den).unwrap())),
        voq_reserve_cells: 2,
        pg_reserve_cells: 4,
        headroom_cells: vec![10, 0, 6],
        xon_offset_cells: 8,
    }
}

fn lossless() -> PriSet {
    PriSet::from_bits(0b0110)
}

fn thresholds(config: &BufferConfig) -> Thresholds {
    let plan = BufferPlan::new(config, PORTS, PORTS - 1, PRIS, lossless(), 1).unwrap();
    Thresholds::new(config, &plan)
}

fn port(index: u64) -> PortId {
    PortId::new(index as usize).unwrap()
}

fn pri(index: u8) -> Pri {
    Pri::new(index).unwrap()
}

fn voq(input: u64, output: u64, of: u8) -> QueueKey {
    QueueKey { input: port(input), output: port(output), pri: pri(of) }
}

/// docs/spec/pipeline.md §4 as it is written, over plain numbers.
#[derive(Default)]
struct Oracle {
    /// Reserve and cells in use of each queue: VOQs, then groups.
    used: std::collections::BTreeMap<(u8, u64, u64, u8), (i64, i64)>,
    headroom: std::collections::BTreeMap<(u64, u8), i64>,
    shared_total: i64,
}

impl Oracle {
    fn free(&self) -> i64 {
        self.shared_total - self.used.values().map(|(s, used)| (used - s).max(0)).sum::<i64>()
    }

    fn limit(&self, reserve: i64, of: u8) -> i64 {
        let (num, den) = ALPHAS[pri(of)];
        reserve + (self.free() * num as i64).div_euclid(den as i64)
    }

    /// Whether `cells` fit, as the two conditions say; charges them.
    fn admit(&mut self, key: (u8, u64, u64, u8), reserve: i64, cells: i64) -> bool {
        let limit = self.limit(reserve, key.3);
        let free = self.free();
        let (_, used) = *self.used.entry(key).or_insert((reserve, 0));
        let exceeds = (used + cells - reserve).max(0) - (used - reserve).max(0);
        let fits = used + cells <= limit && exceeds <= free;
        if fits {
            self.used.insert(key, (reserve, used + cells));
        }
        fits
    }
}

/// A frame of `cells` for one output asks for room.
fn admit(
    buffer: &Buffer,
    lease: &mut Lease,
    thresholds: &Thresholds,
    voq: QueueKey,
    cells: u32,
) -> Admission {
    let QueueKey { input, pri, .. } = voq;
    if !lossless().contains(pri) {
        return buffer.admit_voq(lease, thresholds, voq, cells);
    }
    let got = buffer.admit_group(lease, thresholds, GroupKey { input, pri }, cells);
    if !matches!(got.verdict, Verdict::Drop(_)) {
        buffer.deepen_by(lease, voq, cells);
    }
    got
}

/// A frame of `cells` leaves; its last copy, if it is lossless.
fn leave(
    buffer: &Buffer,
    lease: &mut Lease,
    thresholds: &Thresholds,
    QueueKey { input, output, pri }: QueueKey,
    cells: u32,
) {
    let mut run = buffer.leaving(lease, thresholds, output, pri);
    if lossless().contains(pri) {
        run.copy_of(input);
        run.lossless(input, cells);
    } else {
        run.lossy(input, cells);
    }
    let _ = run.shallow(cells);
    run.end(lease);
}

#[test]
fn random_frames_get_room_exactly_as_the_formula_says() {
    let config = config(Sharing::Dt, 200);
    let thresholds = thresholds(&config);
    let (buffer, mut lease) = (Buffer::new(PORTS, PRIS, 1), Lease::default());
    let mut oracle = Oracle { shared_total: thresholds.shared() as i64, ..Oracle::default() };
    let mut rng = Rng::new(11);
    let mut queued: Vec<(u64, u64, u8, u32)> = Vec::new();
    let mut seen = [0u32; 4];
    for _ in 0..60_000 {
        if rng.below(100) < 55 {
            let (i, o) = (rng.below(PORTS as u64), rng.below(PORTS as u64));
            let (p, cells) = (rng.below(PRIS as u64) as u8, 1 + rng.below(6) as u32);
            if lossless().contains(pri(p)) {
                let group = GroupKey { input: port(i), pri: pri(p) };
                let got = buffer.admit_group(&mut lease, &thresholds, group, cells);
                assert_eq!(i64::from(got.limit), oracle.limit(4, p).max(0));
                let head = oracle.headroom.entry((i, p)).or_default();
                let most = i64::from(config.headroom_cells[i as usize]);
                let head_fits = *head + i64::from(cells) <= most;
                let want = if oracle.admit((1, i, 0, p), 4, cells.into()) {
                    Verdict::Queue
                } else if head_fits {
                    *oracle.headroom.entry((i, p)).or_default() += i64::from(cells);
                    Verdict::Headroom
                } else {
                    Verdict::Drop(DropReason::Headroom)
                };
                assert_eq!(got.verdict, want);
                seen[match want {
                    Verdict::Queue => 0,
                    Verdict::Headroom => 1,
                    Verdict::Drop(_) => 2,
                }] += 1;
                if !matches!(want, Verdict::Drop(_)) {
                    buffer.deepen_by(&lease, voq(i, o, p), cells);
                    queued.push((i, o, p, cells));
                }
            } else {
                let got = buffer.admit_voq(&mut lease, &thresholds, voq(i, o, p), cells);
                let fits = oracle.admit((0, i, o, p), 2, cells.into());
                let want = if fits { Verdict::Queue } else { Verdict::Drop(DropReason::Dt) };
                assert_eq!(got.verdict, want);
                seen[3] += u32::from(!fits);
                if fits {
                    queued.push((i, o, p, cells));
                }
            }
        } else if !queued.is_empty() {
            let (i, o, p, cells) = queued.swap_remove(rng.below(queued.len() as u64) as usize);
            leave(&buffer, &mut lease, &thresholds, voq(i, o, p), cells);
            if lossless().contains(pri(p)) {
                let head = oracle.headroom.entry((i, p)).or_default();
                let first = (*head).min(cells.into());
                *head -= first;
                oracle.used.entry((1, i, 0, p)).or_insert((4, 0)).1 -= i64::from(cells) - first;
            } else {
                oracle.used.entry((0, i, o, p)).or_insert((2, 0)).1 -= i64::from(cells);
            }
        }
        let used: i64 = oracle.used.values().map(|(_, used)| used).sum();
        let head: i64 = oracle.headroom.values().sum();
        assert_eq!(buffer.charged() as i64, used + head);
        assert_eq!(buffer.shared_used(&thresholds) as i64, oracle.shared_total - oracle.free());
        assert_eq!(buffer.charged(), queued.iter().map(|&(.., c)| u64::from(c)).sum::<u64>());
    }
    assert!(seen.iter().all(|&n| n > 100), "every verdict occurs: {seen:?}");
}

#[test]
fn a_static_share_is_kept_to_the_cell() {
    let mut config = config(Sharing::Static, 200);
    config.headroom_cells = vec![0; PORTS];
    let thresholds = thresholds(&config); // 200 cells over 24 VOQs: 8 each
    let (buffer, mut lease) = (Buffer::new(PORTS, PRIS, 1), Lease::default());
    let queue = voq(0, 1, 0);
    for used in 0..8 {
        let got = buffer.admit_voq(&mut lease, &thresholds, queue, 1);
        assert_eq!((got.verdict, got.used, got.limit), (Verdict::Queue, used, 8));
    }
    let over = buffer.admit_voq(&mut lease, &thresholds, queue, 1);
    assert_eq!(over.verdict, Verdict::Drop(DropReason::Dt));
    let other = buffer.admit_voq(&mut lease, &thresholds, voq(2, 1, 0), 8);
    assert_eq!(other.verdict, Verdict::Queue, "another queue's share is its own");
    assert_eq!(buffer.shared_used(&thresholds), 0, "nothing is shared");
}

#[test]
fn a_buffer_that_leaves_nothing_is_refused() {
    // 2 x 16 of headroom, 18 x 2 and 6 x 4 of reserves: 92 cells leave nothing, 93 leave one
    for (total, fits) in [(0, false), (92, false), (93, true)] {
        let config = config(Sharing::Dt, total);
        let plan = BufferPlan::new(&config, PORTS, PORTS - 1, PRIS, lossless(), 1);
        assert_eq!(plan.is_ok(), fits, "{total}");
    }
    let mut small = config(Sharing::Static, 100);
    small.headroom_cells = vec![0; PORTS];
    let plan = |outputs, frame| BufferPlan::new(&small, PORTS, outputs, PRIS, lossless(), frame);
    assert!(plan(PORTS - 1, 4).is_ok(), "100 cells over 24 VOQs: 4 each");
    let refused = |share, frame| Err(BufferError::ShareBelowFrame { share, frame });
    assert_eq!(plan(PORTS - 1, 5), refused(4, 5));
    assert!(plan(PORTS, 2).is_ok(), "over 36, where frames may go back: 2 each");
    assert_eq!(plan(PORTS, 3), refused(2, 3));
}

/// All counts against the frames that are queued.
fn check_counts(buffer: &Buffer, thresholds: &Thresholds, queued: &[(QueueKey, u32)]) {
    let cells = |of: &dyn Fn(&QueueKey) -> bool| -> u32 {
        queued.iter().filter(|(queue, _)| of(queue)).map(|(_, cells)| cells).sum()
    };
    assert_eq!(buffer.charged(), u64::from(cells(&|_| true)));
    let mut drawn = 0;
    for (port, pri) in port_pris() {
        assert_eq!(buffer.depth(port, pri), cells(&|voq| (voq.output, voq.pri) == (port, pri)));
        drawn += over(buffer.group_used(port, pri), thresholds.group_reserve());
        for output in (0..PORTS).filter_map(PortId::new) {
            let used = buffer.voq_used(QueueKey { input: port, output, pri });
            drawn += over(used, thresholds.voq_reserve());
            let here = QueueKey { input: port, output, pri };
            if lossless().contains(pri) {
                let is_queued = queued.iter().any(|(queue, _)| *queue == here);
                assert_eq!(buffer.stands(QueueKey { input: port, output, pri }), is_queued);
            } else {
                assert_eq!(used, cells(&|queue| *queue == here));
            }
        }
    }
    let used = buffer.shared_used(thresholds);
    assert!(drawn <= used && used <= thresholds.shared(), "{drawn} drawn of {used}");
}

/// Two workers queue frames, and dequeue their own and each other's, in one thread so that the
/// truth is known at each step. A queue counts exactly the frames in it and is refused only by
/// exact numbers, and the shared part holds at least as much as the queues draw on it.
#[test]
fn workers_know_what_others_let_leave() {
    for (reserve, sharing) in [(0, Sharing::Dt), (2, Sharing::Dt), (0, Sharing::Static)] {
        let mut config = config(sharing, 700);
        config.voq_reserve_cells = reserve;
        let thresholds = thresholds(&config);
        let buffer = Buffer::new(PORTS, PRIS, 2);
        let owner = |input: PortId| input.index() % 2;
        let own = |worker| (0..PORTS).filter_map(PortId::new).filter(move |&i| owner(i) == worker);
        let mut leases = [0, 1].map(|worker| Lease::new(worker, own(worker).collect()));
        let mut rng = Rng::new(u64::from(reserve) + 5);
        let mut queued: Vec<(QueueKey, u32)> = Vec::new();
        let (mut dropped, mut headroom) = (0, 0);
        for step in 0..60_000 {
            // Long enough up and down for queues to fill and to empty.
            let fills = step / 1_000 % 2 == 0;
            if rng.below(100) < if fills { 70 } else { 30 } {
                let queue = voq(rng.below(3), rng.below(3), rng.below(4) as u8);
                let QueueKey { input, output, pri } = queue;
                let cells = 1 + rng.below(5) as u32;
                let lease = &mut leases[owner(input)];
                let got = admit(&buffer, lease, &thresholds, queue, cells);
                let of = |other: &QueueKey| {
                    other.input == input
                        && other.pri == pri
                        && (lossless().contains(pri) || other.output == output)
                };
                let truth: u32 = queued.iter().filter(|(q, _)| of(q)).map(|(_, c)| c).sum();
                let head = buffer.headroom_used(input, pri);
                match got.verdict {
                    Verdict::Queue => queued.push((queue, cells)),
                    Verdict::Headroom => {
                        headroom += 1;
                        assert_eq!(got.used + head - cells, truth, "refused by exact numbers");
                        queued.push((queue, cells));
                    }
                    Verdict::Drop(_) => {
                        dropped += 1;
                        assert_eq!(got.used + head, truth, "refused by exact numbers");
                    }
                }
            } else if !queued.is_empty() {
                let (queue, cells) = queued.swap_remove(rng.below(queued.len() as u64) as usize);
                let worker = rng.below(2) as usize; // that of the output, or of the crossbar
                leave(&buffer, &mut leases[worker], &thresholds, queue, cells);
            }
            if rng.below(50) == 0 {
                let worker = rng.below(2) as usize;
                let uses = buffer.catch_up(&mut leases[worker], &thresholds, lossless());
                let is_kept = |queue: &QueueKey| {
                    owner(queue.input) == worker
                        && (lossless().contains(queue.pri) || thresholds.voq_reserve() > 0)
                };
                assert_eq!(uses, queued.iter().any(|(queue, _)| is_kept(queue)));
            }
            check_counts(&buffer, &thresholds, &queued);
        }
        assert!(dropped > 100 && headroom > 100, "all verdicts: {dropped} {headroom}");
        let [_, other] = &mut leases;
        queued
            .drain(..)
            .for_each(|(queue, cells)| leave(&buffer, other, &thresholds, queue, cells));
        for lease in &mut leases {
            assert!(!buffer.catch_up(lease, &thresholds, lossless()));
            buffer.settle(lease);
        }
        assert_eq!((buffer.charged(), buffer.shared_used(&thresholds)), (0, 0));
    }
}

/// Two workers admit frames at once, and dequeue each other's: the shared part is never overdrawn,
/// and all cells come back.
#[test]
fn leases_never_overdraw_the_shared_part() {
    let config = config(Sharing::Dt, 400);
    let thresholds = thresholds(&config);
    let buffer = Buffer::new(PORTS, PRIS, 2);
    let (to_1, of_0) = std::sync::mpsc::channel();
    let (to_0, of_1) = std::sync::mpsc::channel();
    let sides = [(0u64, to_1, of_1), (1, to_0, of_0)];
    let leases = std::thread::scope(|scope| {
        let threads = sides.map(|(worker, to, from)| {
            let (buffer, thresholds) = (&buffer, &thresholds);
            scope.spawn(move || {
                let mut lease = Lease::new(worker as usize, PortSet::only(port(worker)));
                let mut rng = Rng::new(worker);
                for _ in 0..if cfg!(miri) { 200 } else { 200_000 } {
                    if rng.below(2) == 0 {
                        let cells = 1 + rng.below(5) as u32;
                        let pri = 2 + rng.below(2) as u8; // lossless and lossy
                        let queue = voq(worker, rng.below(3), pri);
                        let verdict = admit(buffer, &mut lease, thresholds, queue, cells).verdict;
                        if !matches!(verdict, Verdict::Drop(_)) {
                            to.send((queue, cells)).unwrap();
                        }
                    } else if let Ok((queue, cells)) = from.try_recv() {
                        leave(buffer, &mut lease, thresholds, queue, cells);
                    }
                    let taken = buffer.shared.0.load(Ordering::Relaxed); // one attempt each apart
                    assert!(taken <= thresholds.shared() + 2 * LEASE, "overdrawn");
                }
                drop(to);
                for (queue, cells) in from {
                    leave(buffer, &mut lease, thresholds, queue, cells);
                }
                lease
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    for mut lease in leases {
        assert!(!buffer.catch_up(&mut lease, &thresholds, lossless()));
        buffer.settle(&mut lease);
    }
    assert!(port_pris().all(|(port, pri)| buffer.depth(port, pri) == 0));
    assert_eq!((buffer.charged(), buffer.shared_used(&thresholds)), (0, 0));
}

fn port_pris() -> impl Iterator<Item = (PortId, Pri)> {
    let ports = (0..PORTS).filter_map(PortId::new);
    ports.flat_map(|port| Pri::ALL.into_iter().take(PRIS).map(move |pri| (port, pri)))
}
