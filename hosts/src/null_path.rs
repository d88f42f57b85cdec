//! A switch between null ports that generate its load: the whole path of frames in memory, without a wire.
//!
//! [`NullPath`] has a core, and for each worker a lane with its ports; the caller drives the lanes and owns the clock.
//! The ports of a [`NullLoad`] send to stations behind all other ports. Bytes are without FCS.
//!
//! Source: docs/bench.md.

use std::sync::Arc;

use weft_dataplane::config::{LiveSizes, PortRole, SwitchConfig, TlpLink};
use weft_dataplane::pbr::TableError;
use weft_dataplane::pipeline::{
    BuildError, Core, Lane, Switch, SwitchBuilder, chunks_beside_buffer,
};
use weft_dataplane::pool::{Pool, PoolError};
use weft_dataplane::port::null::{Null, NullConfig};
use weft_dataplane::port::{Port, PortOpenError};
use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::types::{PORTS_MAX, PortId};
use weft_parsers::AfhMode;
use weft_parsers::fabric::{Bdf, DrtEntry, Hpa, Pid};
use weft_parsers::tlp::{self, At, Body, Mode, Oui, Protocol, Pth, TlpRepr};

use crate::frames::{FrameError, FrameSpec, Kind, Station};
use crate::sizes::Sizes;
use crate::stamp::Stamp;

/// Rate that the ports claim, which sizes thresholds only: null ports are not paced.
const RATE: LinkRate = LinkRate::gbps(100);
/// Longest frame of a load, bytes without FCS.
pub const FRAME_LEN_MAX: usize = 1_518;
/// Chunks that the shared buffer may fill.
const CELLS: u32 = 8_192;
/// Least number of chunks in the pool.
const CHUNKS_MIN: usize = 16_384;
/// Most stations: each has a 16-bit number of its own, below those of groups.
pub const STATIONS_MAX: usize = 32_767;
/// Type of plain Ethernet frames: neither IP nor AFH (local experimental, IEEE 802).
const ETHER_TYPE: u16 = 0x88B7;

/// The load of a [`NullPath`]: how many ports, stations, frame lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullLoad {
    /// Format of all frames.
    pub kind: Kind,
    /// Number of ports, all of which send and receive.
    pub ports: usize,
    /// Number of stations, dealt out to the ports in turn.
    pub stations: usize,
    /// Bytes of a frame, without FCS.
    pub frame_len: usize,
}

/// Why a load or its switch could not be built.
#[derive(Debug, thiserror::Error)]
pub enum NullPathError {
    /// A number of the load is out of range.
    #[error("{had} {what}: expected {min} to {max}")]
    Range {
        /// The quantity that is out of range.
        what: &'static str,
        /// Its value in the load.
        had: usize,
        /// Least value that is allowed.
        min: usize,
        /// Largest value that is allowed.
        max: usize,
    },
    /// The format has no such frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The pool could not be mapped.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The switch refuses its configuration or ports.
    #[error(transparent)]
    Build(#[from] Box<BuildError>),
    /// Routes do not fit the tables.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A port refuses the frames that it is to send.
    #[error(transparent)]
    Port(#[from] Box<PortOpenError>),
}

/// A switch of null ports, before its first step.
pub struct NullPath {
    /// State that all workers share.
    pub core: Arc<Core>,
    /// For each worker its lane and the ports it owns.
    pub lanes: Vec<(Lane, Vec<Box<dyn Port>>)>,
    /// For each worker the numbers of its ports.
    pub spread: Vec<Vec<PortId>>,
}

impl NullPath {
    /// A switch for `load`, whose ports are dealt out to `workers` in turn.
    ///
    /// # Errors
    /// A number out of range, or parts that the dataplane refuses.
    pub fn new(load: &NullLoad, workers: usize) -> Result<Self, NullPathError> {
        let range = |what, had, min, max| {
            let fits = (min..=max).contains(&had);
            if fits { Ok(()) } else { Err(NullPathError::Range { what, had, min, max }) }
        };
        range("ports", load.ports, 2, PORTS_MAX)?;
        range("stations", load.stations, load.ports, STATIONS_MAX)?;
        range("bytes of a frame (without FCS)", load.frame_len, 60, FRAME_LEN_MAX)?;
        range("workers", workers, 1, load.ports)?;
        Self::of(switch(load), workers, &|port| Ok(templates(load, port)?))
    }

    /// A switch between fabric ports: each sends UIO writes of 24 bytes, frames of 64, to `pids` PIDs, which lie
    /// behind all ports in turn.
    ///
    /// # Errors
    /// A number out of range, or parts that the dataplane refuses.
    pub fn of_tlps(ports: usize, pids: u16, workers: usize) -> Result<Self, NullPathError> {
        let load = NullLoad { kind: Kind::Ethernet, ports, stations: ports, frame_len: 64 };
        let mut switch = switch(&load);
        for port in &mut switch.ports {
            port.role = PortRole::Fport(TlpLink::default());
        }
        let path = Self::of(switch, workers, &|port| Ok(tlp_templates(ports, pids, port)))?;
        let mut tables = (**path.core.tables.load()).clone();
        // PIDs are dealt out to ports in turn, which `tlp_templates` relies on.
        let behind = |pid: u16| u8::try_from(usize::from(pid) % ports).unwrap_or(0);
        let entries: Vec<DrtEntry> = (0..pids).map(|pid| DrtEntry::Port(behind(pid))).collect();
        tables.set_drt(0, &entries)?;
        path.core.tables.store(Arc::new(tables));
        Ok(path)
    }

    /// Builds `switch`, its ports dealt out to `workers` in turn; `templates` gives the frames that each port sends.
    fn of(
        switch: SwitchConfig,
        workers: usize,
        templates: &dyn Fn(usize) -> Result<Vec<Vec<u8>>, NullPathError>,
    ) -> Result<Self, NullPathError> {
        let count = switch.ports.len();
        let beside = chunks_beside_buffer(count, workers, switch.tx_ring_frames);
        // Receive buffers, transmit rings and workers' caches take chunks beside those of the buffer.
        let chunks = CHUNKS_MIN.max(CELLS as usize + beside);
        let pool = Pool::map(chunks, FRAME_LEN_MAX)?;
        let ports = (0..count).filter_map(PortId::new);
        let ports = ports.map(|id| port(id, templates(id.index())?));
        let ports = ports.collect::<Result<Vec<_>, NullPathError>>()?;
        let builder = SwitchBuilder::new(ports).config(switch).workers(workers).pool(pool);
        let Switch { core, lanes, spread } = builder.build().map_err(Box::new)?;
        Ok(Self { core, lanes, spread })
    }
}

/// UIO writes that `port` sends, to PIDs behind all other ports; over all ports every PID is addressed once.
fn tlp_templates(ports: usize, pids: u16, port: usize) -> Vec<Vec<u8>> {
    const PAYLOAD: [u8; 24] = [0xA5; 24];
    let spid = Pid::from_low_bits(u16::try_from(port).unwrap_or(0));
    // PID p lies behind port p % ports; its sender is 1 to ports - 1 further on, so never that port itself.
    let sender = |pid: u16| (usize::from(pid) + 1 + usize::from(pid) / ports % (ports - 1)) % ports;
    let to_pid = |pid: u16| {
        let body = Body::Address {
            addr: Hpa(0x0123_4567_0000 | u64::from(pid) << 6),
            // An address of its own for each PID, 64 bytes apart.
            wide: true,
            at: At::default(),
            no_write: false,
            length_dw: 6,
            first_be: 0xF,
            last_be: 0xF,
        };
        let write = TlpRepr::new(Mode::Flit, tlp::Kind::UioWrite, Bdf::new(1, 0, 0), pid, body);
        let write = TlpRepr { payload: &PAYLOAD, ..write };
        let mut frame = vec![0; 64];
        let (macs, rest) = frame.split_at_mut(12);
        macs.copy_from_slice(&[0x02, 0, 0, 0, 1, 0, 0x02, 0, 0, 0, 2, 0]);
        let link = tlp::TlpLink { oui: Oui::DEFAULT, protocol: Protocol::Pbr, ln: false };
        let rest = link.emit(rest).expect("room for the head");
        let pth = Pth::new(spid, Pid::from_low_bits(pid));
        let len = tlp::pth::emit_pbr(pth, &write, rest).expect("a TLP of constants");
        debug_assert_eq!(len, rest.len(), "64 bytes in all");
        frame
    };
    (0..pids).filter(|&pid| sender(pid) == port).map(to_pid).collect()
}

/// Frames sent so far by the first `ports` ports of `core`, over all workers.
#[must_use]
pub fn frames_sent(core: &Core, ports: usize) -> u64 {
    let of = |port: PortId| core.stats.iter().map(move |stats| stats.port[port].tx_frames.get());
    (0..ports).filter_map(PortId::new).flat_map(of).sum()
}

fn switch(load: &NullLoad) -> SwitchConfig {
    let mut switch = SwitchConfig::live(&LiveSizes {
        names: (0..load.ports).map(|port| format!("p{port}")).collect(),
        rate: RATE,
        pris: 4,
        cells: CELLS,
        cell_bytes: 1_916,
        headroom_cells: 64,
        frame_len_max: FRAME_LEN_MAX,
    });
    // A port must be told that it is Lite: nothing in a frame says so (docs/spec/pipeline.md §1).
    if load.kind == Kind::Lite {
        for port in &mut switch.ports {
            port.parse.afh = AfhMode::Lite; // has no type of its own
        }
    }
    switch
}

fn port(id: PortId, templates: Vec<Vec<u8>>) -> Result<Box<dyn Port>, NullPathError> {
    let config = NullConfig {
        name: format!("p{}", id.get()),
        rate: RATE,
        frame_len_max: FRAME_LEN_MAX,
        templates,
        per_burst: 64,
        limit: None,
    };
    Ok(Box::new(Null::generator(config).map_err(Box::new)?))
}

/// Frames that `port` sends, one from each of its stations, to stations behind all other ports. Over all ports every
/// station is addressed once, so that there are few bytes to copy and the switch itself is measured.
fn templates(load: &NullLoad, port: usize) -> Result<Vec<Vec<u8>>, FrameError> {
    let own = (port..load.stations).step_by(load.ports);
    let to = |row: usize| {
        // In one row the ports send to each other by a rotation without fixed points.
        let column = (port + 1 + row % (load.ports - 1)) % load.ports;
        let wanted = row * load.ports + column;
        // The last row may be short of stations: use that port's first one.
        if wanted < load.stations { wanted } else { column }
    };
    own.enumerate().map(|(row, src)| frame(load, to(row), src)).collect()
}

/// A frame of `load` from station `src` to station `dst`.
fn frame(load: &NullLoad, dst: usize, src: usize) -> Result<Vec<u8>, FrameError> {
    let station = |index: usize| Station::numbered(u16::try_from(index + 1).unwrap_or(u16::MAX));
    let mut spec = FrameSpec::new(load.kind, station(src), station(dst))
        .with_sizes(Sizes::Fixed(load.frame_len));
    if load.kind == Kind::Ethernet {
        spec.ether_type = ETHER_TYPE;
    }
    spec.to_vec(&Stamp { stream: 0, seq: 0, sent: Instant::ZERO }, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::pipeline::Ledger;
    use weft_dataplane::trace::NoTrace;

    /// Every format passes, and what is not lost while stations are learnt leaves again.
    #[test]
    fn every_format_passes() {
        for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_control()) {
            let load = NullLoad { kind, ports: 4, stations: 40, frame_len: 124 };
            let mut path = NullPath::new(&load, 1).unwrap();
            let (lane, ports) = &mut path.lanes[0];
            for step in 1..200 {
                lane.step(Instant::from_ns(step * 10_000), ports, &mut NoTrace);
            }
            let ledger = Ledger::read(&path.core);
            assert!(frames_sent(&path.core, 4) > 10_000, "{kind:?}: {ledger:?}");
            assert_eq!(ledger.imbalance(), 0, "{kind:?}");
            let busy = ledger.port.iter().filter(|port| port.tx_frames > 0).count();
            assert_eq!(busy, 4, "{kind:?}: every port has stations that others send to");
        }
    }

    /// TLPs pass by their PIDs, all of them as they are.
    #[test]
    fn tlps_pass() {
        let mut path = NullPath::of_tlps(4, 40, 1).unwrap();
        let (lane, ports) = &mut path.lanes[0];
        for step in 1..200 {
            lane.step(Instant::from_ns(step * 10_000), ports, &mut NoTrace);
        }
        let ledger = Ledger::read(&path.core);
        assert!(frames_sent(&path.core, 4) > 10_000, "{ledger:?}");
        assert_eq!((ledger.imbalance(), ledger.dropped), (0, 0));
        for port in &ledger.port {
            assert_eq!(port.tx_bytes, port.tx_frames * 64);
            assert!(port.tx_frames > 0 && port.tx_format[weft_parsers::Format::Pbr as usize] > 0);
        }
    }

    #[test]
    fn loads_out_of_range_are_refused() {
        let good = NullLoad { kind: Kind::Ethernet, ports: 2, stations: 2, frame_len: 60 };
        #[rustfmt::skip] // columns: load, workers, what is told
        let cases = [
            (NullLoad { ports: 1, ..good },                      1, "1 ports: expected 2 to 64"),
            (NullLoad { stations: 1, ..good },                   1, "1 stations: expected 2 to 32767"),
            (NullLoad { stations: 32_768, ..good },              1, "32768 stations: expected 2 to 32767"),
            (NullLoad { frame_len: 59, ..good },                 1, "59 bytes of a frame (without FCS): expected 60 to 1518"),
            (good,                                               3, "3 workers: expected 1 to 2"),
            (NullLoad { kind: Kind::Gen1, frame_len: 1_500, ..good }, 1, "gen1 frame of 1500 bytes"),
        ];
        for (load, workers, want) in cases {
            let told = NullPath::new(&load, workers).err().map(|error| error.to_string());
            assert!(told.as_ref().is_some_and(|told| told.starts_with(want)), "{want}: {told:?}");
        }
    }
}
