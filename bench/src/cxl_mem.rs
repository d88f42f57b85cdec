//! Loads by CXL.mem through a switch: a host, the switch and a G-FAM device of one process on one core.
//!
//! [`measure`]: a requester with 256 lines in flight on a [`GfamPath`]. Each line is copied
//! out of the device's memory and into the requester's. Figures are loads of 64 bytes a second of
//! wall clock.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use weft_cxl::gfd::Gfd;
use weft_cxl::gfd::access::Enables;
use weft_cxl::gfd::device::Request;
use weft_cxl::mem::{MemOperation, MemRequester, MemSpec};
use weft_cxl::tlp_end::{Received, TlpEnd};
use weft_dataplane::config::TlpLink;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::Hpa;

use crate::gfam_path::{BASE, GfamPath, HOST, Sizes, rate};

/// Least million loads a second.
pub const MUST_MPS: f64 = 3.0;
/// Goal in million loads a second; it fails no run.
pub const GOAL_MPS: f64 = 6.0;

/// Lines in flight.
const WINDOW: usize = 256;
/// Loads of a round, and rounds that are timed.
const ROUND: usize = 1 << 20;
const ROUNDS: usize = 7;
/// Memory that is loaded from: more than the caches hold.
const SPREAD: u64 = 128 << 20;
const FRAME_LEN_MAX: usize = 1_518;
const CELLS: u32 = 4_096;

#[derive(Debug, thiserror::Error)]
pub enum MemError {
    /// The switch, the pool or a pipe could not be built.
    #[error("the fabric cannot be made: {0}")]
    Made(String),
    #[error("a load failed: {0}")]
    Failed(String),
}

/// Order in which lines are loaded.
#[derive(Clone, Copy)]
enum Order {
    /// Each line after the one before it.
    Rising,
    /// Lines at random, which neither the caches nor the TLB hold.
    Scattered,
}

/// A host, a switch and a device.
struct Fabric {
    end: TlpEnd,
    requester: MemRequester,
    path: GfamPath,
    /// Number of the next load.
    next: u64,
}

impl Fabric {
    fn new(gfd: Gfd) -> Result<Self, MemError> {
        let sizes = Sizes {
            link: TlpLink::default(),
            payload_max: 256,
            frame_len_max: FRAME_LEN_MAX,
            cells: CELLS,
            cell_bytes: 1_916,
        };
        let (path, end) = GfamPath::new(gfd, sizes).map_err(MemError::Made)?;
        let spec = MemSpec { in_flight_max: WINDOW, timeout: Span::from_ms(1_000) };
        Ok(Self { end: TlpEnd::new(end), requester: MemRequester::new(spec), path, next: 0 })
    }

    /// Loads `loads` lines.
    fn round(&mut self, loads: usize, order: Order) -> Result<(), MemError> {
        let Self { end, requester, path, next } = self;
        let failed = |error: &dyn std::fmt::Display| MemError::Failed(error.to_string());
        let mut done = 0;
        let mut idle = 0;
        while done < loads {
            while requester.pending() < WINDOW {
                let line = match order {
                    Order::Rising => *next,
                    // the golden ratio scatters neighbours; the shift drops low bits, which stay regular
                    Order::Scattered => next.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8,
                };
                let addr = address(line % (SPREAD / 64) * 64);
                requester.submit(MemOperation::Load { addr, len: 64 });
                *next += 1;
            }
            let time = path.tick();
            requester.flush(time, &mut |message| {
                let sent = end.outbox().send_mem(None, message);
                debug_assert!(sent.is_ok(), "the link has no PTH");
            });
            end.flush(time, &mut path.near, &mut path.bufs).map_err(|error| failed(&error))?;
            path.turn(time).map_err(|error| failed(&error))?;
            let came = end.receive(time, &mut path.near, &mut path.bufs, 8, &mut |frame, _| {
                if let Received::Mem(None, message) = frame.content {
                    requester.take(&message);
                }
            });
            idle = if came > 0 { 0 } else { idle + 1 };
            // a load that got lost must not hang the bench
            if idle > 10_000 {
                return Err(MemError::Failed("nothing comes back".to_owned()));
            }
            while let Some(one) = requester.next_done() {
                one.result.map_err(|error| failed(&error))?;
                done += 1;
            }
        }
        Ok(())
    }
}

/// Address of byte `at` of the host's window: granules of 4 KiB of way 1 of 4, as [`crate::gfd::device`] has them.
const fn address(at: u64) -> Hpa {
    Hpa(BASE + (at >> 12 << 14) + (1 << 12) + (at & 0xFFF))
}

/// Writes all memory that is loaded later: unwritten memory has no pages, and is not read.
fn fill(gfd: &mut Gfd) -> Result<(), MemError> {
    let data: Vec<u8> = (0..4_096_usize).map(|at| at.to_le_bytes()[0]).collect();
    for granule in 0..SPREAD / 4_096 {
        let request = Request { rpid: HOST, hpa: address(granule * 4_096), opcode: None };
        let written = gfd.write(Instant::ZERO, request, &data, Enables::All);
        written.map_err(|refusal| MemError::Failed(refusal.to_string()))?;
    }
    Ok(())
}

/// Million loads a second of rising and of scattered lines: medians of some rounds.
///
/// # Errors
/// See [`MemError`].
pub fn measure(gfd: Gfd, loads: usize) -> Result<[f64; 2], MemError> {
    let mut gfd = gfd;
    fill(&mut gfd)?;
    let mut fabric = Fabric::new(gfd)?;
    let loads = loads.min(ROUND);
    let mut medians = [0.0; 2];
    for (median, order) in medians.iter_mut().zip([Order::Rising, Order::Scattered]) {
        // `rate` counts things a ns, and one a ns is 1,000 million a second
        *median = rate::<ROUNDS, _>(loads as u64 * 1_000, || fabric.round(loads, order))?;
    }
    Ok(medians)
}
