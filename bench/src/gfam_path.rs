//! Path that benches share: a host's end, a switch and a G-FAM device in one process on one core.
//!
//! [`GfamPath::new`] takes the device and returns the host's pipe, a lane of a switch with an edge
//! for host and device, and the device at its pipe. [`GfamPath::turn`] moves all that is in flight;
//! [`rate`] is the median of some rounds, in things a ns of wall clock.
//!
//! Source: docs/spec/cxl-fabric.md "Inside".

use std::fmt::Display;
use std::sync::Arc;

use weft_cxl::gfd::Gfd;
use weft_cxl::gfd_end::{Device, GfdEnd, GfdEndConfig};
use weft_cxl::tlp_end::{Carries, EndConfig};
use weft_dataplane::config::{LiveSizes, PortRole, SwitchConfig, TlpLink};
use weft_dataplane::pbr::{Access, EdgePort, Fast, Ldst, Role, TableError, Tables};
use weft_dataplane::pipeline::{Lane, Switch, SwitchBuilder};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::{PortId, PortSet};
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::fabric::{DrtEntry, FastEntry, Hpa, Interleave, Pid, Target};
use weft_parsers::tlp::Mode;

/// PID of the host.
pub const HOST: Pid = Pid::from_low_bits(1);
/// HPA of the device's first byte.
pub const BASE: u64 = 1 << 40;

/// Sizes of frames and buffers, in bytes where not cells.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Both links of the switch.
    pub link: TlpLink,
    /// Longest payload that host and device send.
    pub payload_max: usize,
    pub frame_len_max: usize,
    /// Cells of the switch's buffer.
    pub cells: u32,
    /// Bytes of a cell.
    pub cell_bytes: u32,
}

/// A switch and a device, and the host's end of the switch's other link.
pub struct GfamPath {
    /// Host's end of its link.
    pub near: Pipe,
    /// Chunks of the pool that switch, host and device share.
    pub bufs: Bufs,
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    gfd: (GfdEnd, Pipe),
    now: u64,
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

fn said(error: impl Display) -> String {
    error.to_string()
}

impl GfamPath {
    /// Builds the switch with `gfd`, which the host has from [`BASE`] on. Also returns the
    /// configuration of the host's end.
    ///
    /// # Errors
    /// A part of the path could not be built.
    pub fn new(gfd: Gfd, sizes: Sizes) -> Result<(Self, EndConfig), String> {
        let Sizes { link, payload_max, frame_len_max, cells, cell_bytes } = sizes;
        let rate = LinkRate::gbps(400);
        let mut config = SwitchConfig::live(&LiveSizes {
            names: vec!["host".to_owned(), "gfd".to_owned()],
            rate,
            pris: 8,
            cells,
            cell_bytes,
            headroom_cells: 64,
            frame_len_max,
        });
        for (port, role) in config.ports.iter_mut().zip([PortRole::Usp, PortRole::Dsp]) {
            port.role = role(link);
        }
        let end = |last, carries| EndConfig {
            mac: MacAddr([2, 0, 0, 0, 0, last]),
            carries,
            tlp: config.tlp.clone(),
            classes: PriMap::eight(),
            payload_max,
        };
        let ends = (end(1, Carries::Hbr(Mode::Flit)), end(2, Carries::Pbr));
        let wire = |name: &str| {
            let names = [format!("{name}-switch"), name.to_owned()];
            pipe(PipeConfig { names, depth: 512, rate, frame_len_max, wakes_reader: false })
        };
        let ((first, mut near), (second, mut far)) =
            (wire("host").map_err(said)?, wire("gfd").map_err(said)?);
        let pool = Pool::map(4 * cells as usize, frame_len_max).map_err(said)?;
        let mut bufs = Bufs::new(pool.clone(), 64, 0);
        let ports: Vec<Box<dyn Port>> = vec![Box::new(first), Box::new(second)];
        let builder = SwitchBuilder::new(ports).config(config).pool(pool);
        let Switch { core, mut lanes, .. } = builder.build().map_err(said)?;
        core.tables.store(Arc::new(tables(gfd.pid()).map_err(said)?));
        near.start(&mut bufs).map_err(said)?;
        far.start(&mut bufs).map_err(said)?;
        let (lane, ports) = lanes.pop().ok_or("no lane")?;
        let gfd = GfdEnd::new(Device::new(gfd, 0), GfdEndConfig::default(), ends.1);
        Ok((Self { near, bufs, lane, ports, gfd: (gfd, far), now: 1_000 }, ends.0))
    }

    /// Advances the time by 1 µs, and returns it.
    pub const fn tick(&mut self) -> Instant {
        self.now += 1_000;
        self.time()
    }

    #[must_use]
    pub const fn time(&self) -> Instant {
        Instant::from_ns(self.now)
    }

    /// Gives the switch a turn, then the device, and the switch again, which forwards the device's
    /// answers.
    ///
    /// # Errors
    /// The device's port fails.
    pub fn turn(&mut self, time: Instant) -> Result<(), PortError> {
        let Self { lane, ports, gfd: (gfd, far), bufs, .. } = self;
        lane.step(time, ports, &mut NoTrace);
        gfd.poll(time, far, bufs)?;
        lane.step(time, ports, &mut NoTrace);
        Ok(())
    }
}

/// Median rate of `ROUNDS` rounds of `each`, in things a ns, where one round does `things`. A first
/// round is not counted.
///
/// # Errors
/// Those of `each`.
#[expect(clippy::float_arithmetic, reason = "a figure for people")]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub fn rate<const ROUNDS: usize, E>(
    things: u64,
    mut each: impl FnMut() -> Result<(), E>,
) -> Result<f64, E> {
    let mut rates = [0.0; ROUNDS];
    // warms caches, pages and branch predictors
    each()?;
    for rate in &mut rates {
        let start = std::time::Instant::now();
        each()?;
        *rate = things as f64 / start.elapsed().as_nanos() as f64;
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates.get(ROUNDS / 2).copied().unwrap_or(0.0))
}
