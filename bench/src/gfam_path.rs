//! A switch between a host and a G-FAM device, of one process on one core: what benches of both stand on.
//!
//! [`GfamPath::new`] of a device -> the pipe of the host, a lane of a switch with an edge for each of them, the device at
//! its pipe; [`GfamPath::turn`] moves what is under way; [`rate`] is the median of some rounds.
//!
//! Units: bytes; things a ns of wall clock.
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

/// The host.
pub const HOST: Pid = Pid::from_low_bits(1);
/// The device's first address as the host has it.
pub const BASE: u64 = 1 << 40;

/// How large frames and buffers are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// What the switch's links are.
    pub link: TlpLink,
    /// Longest payload of host and device.
    pub payload_max: usize,
    /// Longest frame.
    pub frame_len_max: usize,
    /// Cells of the switch's buffer.
    pub cells: u32,
    /// Bytes of a cell.
    pub cell_bytes: u32,
}

/// A switch and a device, and the host's end of the switch's other link.
pub struct GfamPath {
    /// The host's end.
    pub near: Pipe,
    /// Chunks of all of them.
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
    /// A switch with a device, which its host has from [`BASE`] on; also what the host's end is to be.
    ///
    /// # Errors
    /// What cannot be made.
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

    /// The time of the next turn.
    pub const fn tick(&mut self) -> Instant {
        self.now += 1_000;
        self.time()
    }

    /// The time.
    #[must_use]
    pub const fn time(&self) -> Instant {
        Instant::from_ns(self.now)
    }

    /// The switch forwards to the device, the device has its turn, the switch forwards what it says.
    ///
    /// # Errors
    /// Its port's.
    pub fn turn(&mut self, time: Instant) -> Result<(), PortError> {
        let Self { lane, ports, gfd: (gfd, far), bufs, .. } = self;
        lane.step(time, ports, &mut NoTrace);
        gfd.poll(time, far, bufs)?;
        lane.step(time, ports, &mut NoTrace);
        Ok(())
    }
}

/// Median of things a ns over some rounds of `each`, which does `things`; a first round is not counted.
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
    each()?;
    for rate in &mut rates {
        let start = std::time::Instant::now();
        each()?;
        *rate = things as f64 / start.elapsed().as_nanos() as f64;
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates.get(ROUNDS / 2).copied().unwrap_or(0.0))
}
