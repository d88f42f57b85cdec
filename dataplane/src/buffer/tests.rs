#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "small drawn numbers"
)]

use super::*;
use crate::rng::Rng;
use crate::types::PerPri;

const PORTS: usize = 3;
const PRIS: usize = 4;

fn config(sharing: Sharing, total: u32) -> BufferConfig {
    BufferConfig {
        cell_bytes: 256,
        total_cells: total,
        sharing,
        alpha: PerPri([0, 1, -1, 2, 0, 0, 0, 0]),
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
    let plan = BufferPlan::new(config, PORTS, PRIS, lossless(), 1).unwrap();
    Thresholds::new(config, &plan, PORTS)
}

fn port(index: u64) -> PortId {
    PortId::new(index as usize).unwrap()
}

fn pri(index: u8) -> Pri {
    Pri::new(index).unwrap()
}

/// pipeline.md §4 as it is written, over plain numbers.
#[derive(Default)]
struct Oracle {
    /// Queues with their reserves and what they use: VOQs, then groups.
    used: std::collections::BTreeMap<(u8, u64, u64, u8), (i64, i64)>,
    headroom: std::collections::BTreeMap<(u64, u8), i64>,
    shared_total: i64,
}

impl Oracle {
    fn free(&self) -> i64 {
        self.shared_total - self.used.values().map(|(s, used)| (used - s).max(0)).sum::<i64>()
    }

    fn limit(&self, reserve: i64, alpha: i8) -> i64 {
        let free = self.free();
        reserve + if alpha >= 0 { free << alpha } else { free >> -alpha }
    }

    /// Whether `cells` fit, as the two conditions say; charges them.
    fn admit(&mut self, key: (u8, u64, u64, u8), reserve: i64, alpha: i8, cells: i64) -> bool {
        let limit = self.limit(reserve, alpha);
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

#[test]
fn random_frames_get_room_exactly_as_the_formula_says() {
    let config = config(Sharing::Dt, 200);
    let thresholds = thresholds(&config);
    let (buffer, mut lease) = (Buffer::new(PORTS, PRIS, true), Lease::default());
    let mut oracle = Oracle { shared_total: thresholds.shared() as i64, ..Oracle::default() };
    let mut rng = Rng::new(11);
    let mut queued: Vec<(u64, u64, u8, u32)> = Vec::new();
    let mut seen = [0u32; 4];
    for _ in 0..60_000 {
        if rng.below(100) < 55 {
            let (i, o) = (rng.below(PORTS as u64), rng.below(PORTS as u64));
            let (p, cells) = (rng.below(PRIS as u64) as u8, 1 + rng.below(6) as u32);
            let alpha = config.alpha[pri(p)];
            if lossless().contains(pri(p)) {
                let got = buffer.admit_group(&mut lease, &thresholds, (port(i), pri(p)), cells);
                assert_eq!(i64::from(got.limit), oracle.limit(4, alpha).max(0));
                let head = oracle.headroom.entry((i, p)).or_default();
                let most = i64::from(config.headroom_cells[i as usize]);
                let head_fits = *head + i64::from(cells) <= most;
                let want = if oracle.admit((1, i, 0, p), 4, alpha, cells.into()) {
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
                    buffer.deepen(port(o), pri(p), cells);
                    queued.push((i, o, p, cells));
                }
            } else {
                let queue = (port(i), port(o), pri(p));
                let got = buffer.admit_voq(&mut lease, &thresholds, queue, cells);
                let fits = oracle.admit((0, i, o, p), 2, alpha, cells.into());
                let want = if fits { Verdict::Queue } else { Verdict::Drop(DropReason::Dt) };
                assert_eq!(got.verdict, want);
                seen[3] += u32::from(!fits);
                if fits {
                    queued.push((i, o, p, cells));
                }
            }
        } else if !queued.is_empty() {
            let (i, o, p, cells) = queued.swap_remove(rng.below(queued.len() as u64) as usize);
            buffer.shallow(port(o), pri(p), cells);
            if lossless().contains(pri(p)) {
                buffer.release_group(&mut lease, &thresholds, (port(i), pri(p)), cells);
                let head = oracle.headroom.entry((i, p)).or_default();
                let first = (*head).min(cells.into());
                *head -= first;
                oracle.used.entry((1, i, 0, p)).or_insert((4, 0)).1 -= i64::from(cells) - first;
            } else {
                buffer.release_voq(&mut lease, &thresholds, (port(i), port(o), pri(p)), cells);
                oracle.used.entry((0, i, o, p)).or_insert((2, 0)).1 -= i64::from(cells);
            }
        }
        let used: i64 = oracle.used.values().map(|(_, used)| used).sum();
        let head: i64 = oracle.headroom.values().sum();
        assert_eq!(buffer.charged() as i64, used + head);
        assert_eq!(buffer.shared_used() as i64, oracle.shared_total - oracle.free());
        assert_eq!(buffer.charged(), queued.iter().map(|&(.., c)| u64::from(c)).sum::<u64>());
    }
    assert!(seen.iter().all(|&n| n > 100), "every verdict occurs: {seen:?}");
}

#[test]
fn a_static_share_is_kept_to_the_cell() {
    let mut config = config(Sharing::Static, 200);
    config.headroom_cells = vec![0; PORTS];
    let thresholds = thresholds(&config); // 200 cells over 36 VOQs: 5 each
    let (buffer, mut lease) = (Buffer::new(PORTS, PRIS, true), Lease::default());
    let queue = (port(0), port(1), pri(0));
    for used in 0..5 {
        let got = buffer.admit_voq(&mut lease, &thresholds, queue, 1);
        assert_eq!((got.verdict, got.used, got.limit), (Verdict::Queue, used, 5));
    }
    let over = buffer.admit_voq(&mut lease, &thresholds, queue, 1);
    assert_eq!(over.verdict, Verdict::Drop(DropReason::Dt));
    let other = buffer.admit_voq(&mut lease, &thresholds, (port(2), port(1), pri(0)), 5);
    assert_eq!(other.verdict, Verdict::Queue, "another queue's share is its own");
    assert_eq!(buffer.shared_used(), 0, "nothing is shared");
}

#[test]
fn a_buffer_that_leaves_nothing_is_refused() {
    // 2 x 16 of headroom, 18 x 2 and 6 x 4 of reserves: 92 cells leave nothing, 93 leave one
    for (total, fits) in [(0, false), (92, false), (93, true)] {
        let plan = BufferPlan::new(&config(Sharing::Dt, total), PORTS, PRIS, lossless(), 1);
        assert_eq!(plan.is_ok(), fits, "{total}");
    }
    let mut small = config(Sharing::Static, 100);
    small.headroom_cells = vec![0; PORTS];
    let plan = |frame| BufferPlan::new(&small, PORTS, PRIS, lossless(), frame);
    assert!(plan(2).is_ok(), "100 cells over 36 VOQs: 2 each");
    assert_eq!(plan(3), Err(BufferError::ShareBelowFrame { share: 2, frame: 3 }));
}

/// Two workers admit and release at once: the shared part is never overdrawn, and all comes back.
#[test]
fn leases_never_overdraw_the_shared_part() {
    let config = config(Sharing::Dt, 400);
    let thresholds = thresholds(&config);
    let buffer = Buffer::new(PORTS, PRIS, false);
    std::thread::scope(|scope| {
        for worker in 0..2u64 {
            let (buffer, thresholds) = (&buffer, &thresholds);
            scope.spawn(move || {
                let (mut lease, mut rng) = (Lease::default(), Rng::new(worker));
                let mut queued: Vec<(PortId, u32)> = Vec::new();
                for _ in 0..if cfg!(miri) { 200 } else { 200_000 } {
                    let queue = (port(worker), port(rng.below(3)), pri(3));
                    if rng.below(2) == 0 {
                        let cells = 1 + rng.below(5) as u32;
                        let got = buffer.admit_voq(&mut lease, thresholds, queue, cells);
                        if got.verdict == Verdict::Queue {
                            queued.push((queue.1, cells));
                        }
                    } else if let Some((output, cells)) = queued.pop() {
                        buffer.shallow(output, pri(3), cells);
                        let queue = (port(worker), output, pri(3));
                        buffer.release_voq(&mut lease, thresholds, queue, cells);
                    }
                    let reserves = 9 * 2;
                    assert!(buffer.charged() <= thresholds.shared() + reserves, "overdrawn");
                }
                for (output, cells) in queued {
                    let queue = (port(worker), output, pri(3));
                    buffer.release_voq(&mut lease, thresholds, queue, cells);
                }
                buffer.settle(&mut lease);
            });
        }
    });
    assert_eq!((buffer.charged(), buffer.shared_used()), (0, 0));
}
