//! Loads by CXL.mem through a switch: a host, the switch and a G-FAM device of one process on one core.
//!
//! Shape: [`measure`]: a requester with so many lines on their way, a pipe, a lane of a switch with an edge for the host and
//! one for the device, a pipe, a [`GfdEnd`]; each line is copied out of the device's memory and into the requester's.
//! Units: loads of 64 bytes a second of wall clock.
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use std::sync::Arc;

use weft_cxl::gfd::Gfd;
use weft_cxl::gfd::access::Enables;
use weft_cxl::gfd::device::Request;
use weft_cxl::gfd_end::{Device, GfdEnd, GfdEndConfig};
use weft_cxl::mem::{MemOperation, MemRequester, MemSpec};
use weft_cxl::tlp_end::{Carries, EndConfig, Received, TlpEnd};
use weft_dataplane::config::{LiveSizes, PortRole, SwitchConfig, TlpLink};
use weft_dataplane::pbr::{Access, EdgePort, Fast, Ldst, Role, TableError, Tables};
use weft_dataplane::pipeline::{Lane, Switch, SwitchBuilder};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::{PortId, PortSet};
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::fabric::{DrtEntry, FastEntry, Hpa, Interleave, Pid, Target};
use weft_parsers::tlp::Mode;

/// Least loads a second, and what is aimed at.
pub const MUST_MPS: f64 = 3.0;
/// What is aimed at.
pub const GOAL_MPS: f64 = 6.0;

const HOST: Pid = Pid::from_low_bits(1);
/// Lines on their way.
const WINDOW: usize = 256;
/// Loads of a round, and rounds that are timed.
const ROUND: usize = 1 << 20;
const ROUNDS: usize = 7;
/// Memory that is loaded from: more than the caches hold.
const SPREAD: u64 = 128 << 20;
const FRAME_LEN_MAX: usize = 1_518;
const CELLS: u32 = 4_096;
const BASE: u64 = 1 << 40;

/// What cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MemError {
    /// The switch, the pool or a pipe.
    #[error("the fabric cannot be made: {0}")]
    Made(String),
    /// A load failed.
    #[error("a load failed: {0}")]
    Failed(String),
}

fn made(error: impl std::fmt::Display) -> MemError {
    MemError::Made(error.to_string())
}

fn end(last: u8, carries: Carries, config: &SwitchConfig) -> EndConfig {
    EndConfig {
        mac: MacAddr([2, 0, 0, 0, 0, last]),
        carries,
        tlp: config.tlp.clone(),
        classes: PriMap::eight(),
        payload_max: 256,
    }
}

/// The host's edge with one segment for the device, and the device's.
fn tables(gfd: Pid) -> Result<Tables, TableError> {
    let mut tables = Tables::new(PortSet::first(2), 0)?;
    let mut host = EdgePort::new(Role::Usp, HOST, Fast::new(16, 0)?, Ldst::new(1, 0)?);
    let mut access = Access::default();
    access.gmv.allow(gfd)?;
    host.set_access(Arc::new(access));
    host.configure_fast(0, Hpa(BASE), Hpa(BASE + (8 << 36)))?;
    let target = Target::Direct(gfd);
    host.set_fast(0, &[Some(FastEntry { gim: false, interleave: Interleave::NONE, target })])?;
    let device = EdgePort::new(Role::Gfd, gfd, Fast::new(1, 0)?, Ldst::new(1, 0)?);
    for (number, (pid, edge)) in [(HOST, host), (gfd, device)].into_iter().enumerate() {
        tables.set_edge(PortId::new(number).unwrap_or_default(), Some(edge))?;
        tables.set_drt(pid.index(), &[DrtEntry::Port(u8::try_from(number).unwrap_or(0))])?;
    }
    Ok(tables)
}

/// Which line is loaded next.
#[derive(Clone, Copy)]
enum Order {
    /// The one behind.
    Rising,
    /// Any: neither the caches nor the TLB have it.
    Scattered,
}

/// A host, a switch and a device.
struct Fabric {
    host: (TlpEnd, MemRequester, Pipe),
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    gfd: (GfdEnd, Pipe),
    bufs: Bufs,
    now: u64,
    /// Number of the next load.
    next: u64,
}

impl Fabric {
    fn new(gfd: Gfd) -> Result<Self, MemError> {
        let mut config = SwitchConfig::live(&LiveSizes {
            names: vec!["host".to_owned(), "gfd".to_owned()],
            rate: LinkRate::gbps(400),
            pris: 8,
            cells: CELLS,
            cell_bytes: 1_916,
            headroom_cells: 64,
            frame_len_max: FRAME_LEN_MAX,
        });
        for (port, role) in config.ports.iter_mut().zip([PortRole::Usp, PortRole::Dsp]) {
            port.role = role(TlpLink::default());
        }
        let link = |name: &str| {
            let names = [format!("{name}-switch"), name.to_owned()];
            let (rate, frame_len_max) = (LinkRate::gbps(400), FRAME_LEN_MAX);
            pipe(PipeConfig { names, depth: 512, rate, frame_len_max, wakes_reader: false })
        };
        let ((near, mut host), (far, mut device)) =
            (link("host").map_err(made)?, link("gfd").map_err(made)?);
        let pool = Pool::in_memory(4 * CELLS as usize, FRAME_LEN_MAX).map_err(made)?;
        let mut bufs = Bufs::new(pool.clone(), 64, 0);
        let ends = (end(1, Carries::Hbr(Mode::Flit), &config), end(2, Carries::Pbr, &config));
        let ports: Vec<Box<dyn Port>> = vec![Box::new(near), Box::new(far)];
        let builder = SwitchBuilder::new(ports).config(config).pool(pool);
        let Switch { core, mut lanes, .. } = builder.build().map_err(made)?;
        core.tables.store(Arc::new(tables(gfd.pid()).map_err(made)?));
        host.start(&mut bufs).map_err(made)?;
        device.start(&mut bufs).map_err(made)?;
        let (lane, ports) = lanes.pop().ok_or_else(|| made("no lane"))?;
        let spec = MemSpec { in_flight_max: WINDOW, timeout: Span::from_ms(1_000) };
        let gfd = GfdEnd::new(Device::new(gfd, 0), GfdEndConfig::default(), ends.1);
        Ok(Self {
            host: (TlpEnd::new(ends.0), MemRequester::new(spec), host),
            lane,
            ports,
            gfd: (gfd, device),
            bufs,
            now: 1_000,
            next: 0,
        })
    }

    /// Loads so many lines.
    fn round(&mut self, loads: usize, order: Order) -> Result<(), MemError> {
        let Self { host: (end, requester, near), lane, ports, gfd: (gfd, far), bufs, now, next } =
            self;
        let failed = |error: &dyn std::fmt::Display| MemError::Failed(error.to_string());
        let mut done = 0;
        let mut idle = 0;
        while done < loads {
            while requester.pending() < WINDOW {
                let line = match order {
                    Order::Rising => *next,
                    Order::Scattered => next.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8,
                };
                let addr = address(line % (SPREAD / 64) * 64);
                requester.submit(MemOperation::Load { addr, len: 64 });
                *next += 1;
            }
            *now += 1_000;
            let time = Instant::from_ns(*now);
            requester.flush(time, &mut |message| {
                let sent = end.outbox().send_mem(None, message);
                debug_assert!(sent.is_ok(), "the link has no PTH");
            });
            end.flush(time, near, bufs).map_err(|error| failed(&error))?;
            lane.step(time, ports, &mut NoTrace);
            gfd.poll(time, far, bufs).map_err(|error| failed(&error))?;
            lane.step(time, ports, &mut NoTrace);
            let came = end.receive(time, near, bufs, 8, &mut |frame, _| {
                if let Received::Mem(None, message) = frame.content {
                    requester.take(&message);
                }
            });
            idle = if came > 0 { 0 } else { idle + 1 };
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

/// Writes all that is loaded later: memory that nobody has written takes no room, and is not read.
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
#[expect(clippy::float_arithmetic, reason = "a figure for people")]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub fn measure(gfd: Gfd, loads: usize) -> Result<[f64; 2], MemError> {
    let mut gfd = gfd;
    fill(&mut gfd)?;
    let mut fabric = Fabric::new(gfd)?;
    let loads = loads.min(ROUND);
    let mut medians = [0.0; 2];
    for (median, order) in medians.iter_mut().zip([Order::Rising, Order::Scattered]) {
        fabric.round(loads, order)?;
        let mut rates = [0.0; ROUNDS];
        for rate in &mut rates {
            let start = std::time::Instant::now();
            fabric.round(loads, order)?;
            *rate = loads as f64 * 1e3 / start.elapsed().as_nanos() as f64;
        }
        rates.sort_by(f64::total_cmp);
        *median = rates.get(ROUNDS / 2).copied().unwrap_or(0.0);
    }
    Ok(medians)
}
