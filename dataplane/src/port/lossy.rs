//! Loss for tests: a port around another one that drops some received frames at random, counted as `injected`.
//!
//! Source: docs/configuration.md `loss_per_million`; docs/spec/pipeline.md §11.

use weft_base::rng::Rng;

use super::delegate::delegate;
use super::{Port, PortCounters};
use crate::batch::Batch;
use crate::pool::Bufs;
use crate::stats::DropReason;
use crate::time::Instant;

/// A port that drops received frames at random.
pub struct Lossy<P> {
    port: P,
    per_million: u64,
    rng: Rng,
    lost: u64,
}

impl<P: Port> Lossy<P> {
    /// Drops each frame that `port` receives with probability `per_million` / 1,000,000; the same `seed` drops the same
    /// ones.
    #[must_use]
    pub fn new(port: P, per_million: u32, seed: u64) -> Self {
        Self { port, per_million: u64::from(per_million), rng: Rng::new(seed), lost: 0 }
    }
}

impl<P: Port> Port for Lossy<P> {
    // No `fast_path`: frames that the kernel forwards would not be dropped.
    delegate!(
        caps, start, tx_room, tx, sending, service, link_up, rx_gauge, wait_fd, link_fd, next_event,
        idle_at, release => |self| self.port
    );

    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        let had = self.port.rx(now, bufs, batch);
        let mut kept = 0;
        for _ in 0..had {
            // Frames in front of `before` came by other ports.
            let place = before + kept;
            if self.rng.chance(self.per_million, 1_000_000)
                && let Some(desc) = batch.pop_at(place)
            {
                bufs.free(desc);
            } else {
                kept += 1;
            }
        }
        self.lost += (had - kept) as u64;
        kept
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.port.counters();
        if self.lost > 0 {
            counters.rx_drops(DropReason::Injected, self.lost);
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use crate::port::null::{Null, NullConfig};
    use crate::time::LinkRate;

    fn port(limit: u64) -> Null {
        let config = NullConfig {
            name: "gen0".to_owned(),
            rate: LinkRate::gbps(100),
            frame_len_max: 1_518,
            templates: vec![vec![1; 100]],
            per_burst: 8,
            limit: Some(limit),
        };
        Null::generator(config).unwrap()
    }

    /// Frames that are handed over, and those that were lost, of 100,000.
    fn run(per_million: u32, seed: u64) -> (usize, u64) {
        let mut port = Lossy::new(port(100_000), per_million, seed);
        let mut bufs = Bufs::new(Pool::in_memory(64, 1_518).unwrap(), 1, 0);
        let (mut batch, mut kept) = (Batch::new(), 0);
        let mut first = bufs.alloc_from(&[7; 60]).map(|desc| batch.push(desc));
        for at in 0..20_000 {
            let before = batch.len();
            let had = port.rx(Instant::from_ns(at), &mut bufs, &mut batch);
            assert_eq!(batch.len(), before + had, "what was there before stays");
            kept += had;
            if first.take().is_some() {
                assert_eq!(batch[0].len(), 60);
                let desc = batch.remove(0);
                bufs.free(desc);
            }
            batch.drain(..).for_each(|desc| assert!(bufs.free(desc)));
        }
        assert_eq!(bufs.used().get(), 0);
        let lost =
            port.counters().rx_dropped.iter().find_map(|&(reason, count)| {
                (reason == Some(DropReason::Injected)).then_some(count)
            });
        (kept, lost.unwrap_or(0))
    }

    #[test]
    fn so_many_of_a_million_are_lost_and_counted() {
        assert_eq!(run(0, 1), (100_000, 0));
        assert_eq!(run(1_000_000, 1), (0, 100_000));
        let (kept, lost) = run(10_000, 1);
        assert_eq!(kept as u64 + lost, 100_000);
        assert!((900..1_100).contains(&lost), "{lost}");
        assert_eq!(run(10_000, 1), (kept, lost), "the same seed");
        assert_ne!(run(10_000, 2), (kept, lost), "another seed");
        assert!(Lossy::new(port(1), 1, 1).fast_path().is_none());
    }
}
