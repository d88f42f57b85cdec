//! Distance of two cores: the time in which a cache line goes from one to the other and back.
//!
//! [`measure`] takes two cores and returns a [`Distance`] in ns a round trip.
//!
//! The threads spin without PAUSE, which takes longer than a way; virtual processors move between
//! physical ones, so callers measure before and after.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{KitError, sys};

/// Pieces of the measurement; median and bounds of them are reported.
const PIECES: usize = 21;
/// Round trips of a piece.
const TRIPS: u64 = 20_000;

/// Round trips between two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// Time of the quickest piece.
    pub min_ns: u64,
    /// Time of the median piece.
    pub median_ns: u64,
    /// Time of the slowest piece.
    pub max_ns: u64,
}

/// A word alone on two cache lines, as processors fetch lines in pairs.
#[repr(align(128))]
struct Alone(AtomicU64);

/// Runs one thread on each core, which answer each other.
///
/// # Errors
/// A core that the process may not use.
pub fn measure(cores: [usize; 2]) -> Result<Distance, KitError> {
    let (ping, pong, over) = (Alone(0.into()), Alone(0.into()), AtomicBool::new(false));
    let answer = || {
        sys::pin(cores[1])?;
        let mut seen = 0;
        while !over.load(Ordering::Relaxed) {
            let now = ping.0.load(Ordering::Acquire); // pairs with the store of the asker
            if now == seen {
                continue;
            }
            seen = now;
            pong.0.store(now, Ordering::Release); // pairs with the load of the asker
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let answering = scope.spawn(answer);
        let pieces = ask(cores[0], &ping.0, &pong.0, &|| answering.is_finished());
        // Relaxed: only tells the other thread to end; the results come by `join`
        over.store(true, Ordering::Relaxed);
        let answered: Result<(), KitError> = answering
            .join()
            .unwrap_or_else(|_| Err(KitError::Usage("the answering thread panicked".to_owned())));
        answered?;
        let mut pieces = pieces?;
        pieces.sort_unstable();
        let [min_ns, median_ns, max_ns] =
            [0, PIECES / 2, PIECES - 1].map(|at| pieces.get(at).copied().unwrap_or(0));
        Ok(Distance { min_ns, median_ns, max_ns })
    })
}

/// The asking side; gives up once the other thread has ended.
fn ask(
    core: usize,
    ping: &AtomicU64,
    pong: &AtomicU64,
    gone: &dyn Fn() -> bool,
) -> Result<Vec<u64>, KitError> {
    sys::pin(core)?;
    let mut trip = 0;
    let mut pieces = Vec::with_capacity(PIECES);
    for _ in 0..PIECES {
        let start = sys::now_ns();
        for _ in 0..TRIPS {
            trip += 1;
            ping.store(trip, Ordering::Release); // pairs with the load of the answerer
            let mut spins = 0_u64;
            while pong.load(Ordering::Acquire) != trip {
                spins += 1;
                // rarely: another load in this loop would lengthen each trip
                if spins.is_multiple_of(1 << 20) && gone() {
                    return Ok(pieces);
                }
            }
        }
        pieces.push((sys::now_ns() - start) / TRIPS);
    }
    Ok(pieces)
}
