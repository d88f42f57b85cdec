//! Fabric memory transfers through a switch, beside plain UIO and copies of the same memory.
//!
//! [`measure`]: a [`CxlHost`] with its engine on a [`GfamPath`], all on one core; pieces of 1 MiB,
//! 4 streams. Each byte is copied out of one memory and into the other. Figures are bytes a ns
//! (GB/s) of wall clock.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §3.6, §5.5.

use std::collections::BTreeMap;
use std::hint::black_box;

use weft_cxl::cache::home::HomeSpec;
use weft_cxl::completer::Target;
use weft_cxl::cxl_host::{CxlHost, Event, HostConfig, HostMemory};
use weft_cxl::fabric_mem::{
    Engine, EngineSpec, MemDesc, MemKind, Memory, Message, Op, Options, PeerId, Place, Segment,
    Share, Status, TransferOpDesc, Window,
};
use weft_cxl::gfd::capacity::{Choice, NO_TAG};
use weft_cxl::gfd::dmp::{Dmp, Media, Region};
use weft_cxl::gfd::{self, Config, Decoder, Gfd, ReturnCode};
use weft_cxl::pci::express::LnSystem;
use weft_cxl::pci::{BridgeSpec, HostSpec, Identity, Link, PortKind};
use weft_cxl::requester::Operation;
use weft_cxl::tlp_end::EndConfig;
use weft_dataplane::config::TlpLink;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_parsers::fabric::{Dpa, Hpa, Interleave, Pid};

use crate::gfam_path::{BASE, GfamPath, HOST, Sizes, rate};

/// Least bytes a ns of one core that runs host, switch and device.
pub const GOAL_GBPS: f64 = 3.0;

const GFD: Pid = Pid::from_low_bits(0xABC);
const PEER: PeerId = PeerId(1);
const OWN: u64 = 1 << 20;
/// Memory that a round moves: more than the caches hold.
const ROUND: u64 = if cfg!(test) { 2 << 20 } else { 128 << 20 };
/// Bytes of an operation.
const PIECE: u64 = 1 << 20;
/// Bytes of a request, and requests in flight.
const REQUEST: u64 = 4_096;
const WINDOW: usize = 64;
const ROUNDS: usize = 5;
const CELLS: u32 = 2_048;
const FRAME_LEN_MAX: usize = 4_096 + 128;

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A part of the fabric could not be built.
    #[error("the fabric cannot be made: {0}")]
    Made(String),
    #[error("a transfer failed: {0}")]
    Failed(String),
}

fn made(error: impl std::fmt::Display) -> TransferError {
    TransferError::Made(error.to_string())
}

fn failed(error: impl std::fmt::Display) -> TransferError {
    TransferError::Failed(error.to_string())
}

/// 256 MiB that the host was granted, without interleaving.
fn device() -> Result<Gfd, ReturnCode> {
    let len = 256 << 20;
    let config = Config { dmps: 1, regions: 1, ..Config::full(GFD, LinkRate::gbps(400)) };
    let mut gfd = Gfd::new(config, gfd::Memory::anonymous(len));
    let (base, block, media) = (Dpa(0), 16 << 20, Media::default());
    gfd.set_dmps(&[Dmp { index: 0, base, decode_len: len, len, block, media }])?;
    gfd.set_region(Region { id: 0, block, sanitize: false, base, decode_len: len, len })?;
    gfd.add_capacity(Instant::ZERO, 0, NO_TAG, Choice::Free { region: 0, len }, 0)?;
    let window = Decoder {
        coherent: false,
        hpa_base: Hpa(BASE),
        dpa_base: base,
        dpa_len: len,
        interleave: Interleave::NONE,
        way: 0,
    };
    gfd.set_decoders(HOST, 0, &[Some(window)])?;
    gfd.set_group_access(&[(HOST, 1)])?;
    Ok(gfd)
}

/// The host; no UIO request of it crosses a multiple of `uio_max`.
fn host(end: EndConfig, uio_max: usize) -> Result<CxlHost, TransferError> {
    let mut memory = HostMemory::default();
    memory.add(Hpa(OWN), gfd::Memory::anonymous(ROUND)).map_err(made)?;
    let config = HostConfig {
        cache_lines: 0,
        home: HomeSpec { lines: 1, answer_max: Span::from_ms(200), secret: 1 },
        end,
        spec: HostSpec::default(),
        root: BridgeSpec {
            identity: Identity {
                vendor: 0x1E98,
                device: 0x0100,
                revision: 1,
                class: 0x06_04_00,
                subsystem: (0x1E98, 0),
            },
            kind: PortKind::Root,
            port: 0,
            link: Link::default(),
            slot: None,
            serial: None,
            multi_function: false,
            ln: LnSystem::None,
        },
        read_max: 4_096,
        uio_max,
        in_flight_max: WINDOW,
        timeout: Span::from_ms(1_000),
        uio_last_first: false,
        gim: false,
        lnc: None,
        hot_plug: false,
    };
    CxlHost::new(config, memory).map_err(made)
}

/// The host's memory, and the device's as a place on the fabric.
struct Memories<'a>(&'a mut dyn Target);

impl Memory for Memories<'_> {
    fn kind(&self, addr: u64, _: u64) -> Option<MemKind> {
        Some(if addr >= BASE { MemKind::Fabric } else { MemKind::Host })
    }

    fn place(&self, addr: u64, _: u64) -> Option<Place> {
        Some(Place { pid: GFD, offset: addr })
    }
}

impl Target for Memories<'_> {
    fn holds(&self, addr: u64, len: u64) -> bool {
        self.0.holds(addr, len)
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        self.0.read(addr, into)
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        self.0.write(addr, data)
    }
}

struct Fabric {
    host: CxlHost,
    path: GfamPath,
    engine: Engine,
}

/// An engine that has the host's memory, and a peer that shares the device's.
fn engine(host: &mut CxlHost) -> Result<Engine, TransferError> {
    let options = Options { enabled: true, ..Options::default() };
    let at = |offset| Place { pid: GFD, offset };
    let window = Window { place: at(1 << 50), len: 1 << 40 };
    let segments = BTreeMap::from([(GFD, Segment { base: Hpa(0), len: u64::MAX })]);
    let mut engine = Engine::new(EngineSpec { options, window, segments }).map_err(made)?;
    let (_, mut own) = host.uio(0);
    let all = MemDesc { addr: OWN, len: ROUND };
    engine.register(all, MemKind::Host, &Memories(&mut own)).map_err(made)?;
    let mem = MemDesc { addr: BASE, len: ROUND };
    let shares = vec![Share { mem, kind: MemKind::Fabric, place: at(BASE) }];
    engine.receive(PEER, &Message::Hello { pid: Pid::NONE, shares }).map_err(made)?;
    Ok(engine)
}

impl Fabric {
    fn new(uio_max: usize) -> Result<Self, TransferError> {
        let sizes = Sizes {
            link: TlpLink { payload_max: 4_096, ..TlpLink::default() },
            payload_max: 4_096,
            frame_len_max: FRAME_LEN_MAX,
            cells: CELLS,
            cell_bytes: 4_608,
        };
        let device = device().map_err(|code| made(format!("{code:?}")))?;
        let (path, end) = GfamPath::new(device, sizes).map_err(made)?;
        let mut host = host(end, uio_max)?;
        let pattern: Vec<u8> = (0..PIECE).map(|at| at.to_le_bytes()[0]).collect();
        for at in (0..ROUND).step_by(pattern.len()) {
            host.store(Hpa(OWN + at), &pattern);
        }
        let engine = engine(&mut host)?;
        Ok(Self { host, path, engine })
    }

    /// Gives host, switch and device a turn; returns its time.
    fn step(&mut self) -> Result<Instant, TransferError> {
        let Self { host, path, .. } = self;
        let time = path.tick();
        host.poll(time, &mut path.near, &mut path.bufs).map_err(failed)?;
        path.turn(time).map_err(failed)?;
        Ok(time)
    }

    /// Moves all memory by one transfer: pieces of 1 MiB, 4 streams.
    fn transfer(&mut self, op: Op) -> Result<(), TransferError> {
        let piece = |at| TransferOpDesc { local: OWN + at, remote: BASE + at, len: PIECE };
        let ops: Vec<TransferOpDesc> = (0..ROUND).step_by(1 << 20).map(piece).collect();
        // far longer than a round, so that no transfer ends by its deadline
        let (now, long) = (self.path.time(), Some(Span::from_ms(100_000)));
        let req = self.engine.transfer_async(now, PEER, op, &ops, long).map_err(failed)?;
        loop {
            let time = self.step()?;
            let (mut port, mut own) = self.host.uio(WINDOW);
            self.engine.poll(time, &mut port, &mut Memories(&mut own)).map_err(failed)?;
            match self.engine.status(req).map_err(failed)? {
                Status::Waiting => {}
                Status::Completed => return Ok(()),
                other => return Err(failed(format!("{other:?}"))),
            }
        }
    }

    /// Moves all memory by transactions of 4 KiB, [`WINDOW`] in flight.
    fn plain(&mut self, op: Op) -> Result<(), TransferError> {
        let (mut next, mut done) = (0, 0);
        let mut starts = BTreeMap::new();
        while done < ROUND {
            while starts.len() < WINDOW && next < ROUND {
                let (addr, len) = (Hpa(BASE + next), 4_096);
                let what = match op {
                    Op::Read => Operation::UioRead { addr, len },
                    Op::Write => {
                        let mut data = vec![0; len];
                        Target::read(self.host.memory(), OWN + next, &mut data);
                        Operation::UioWrite { addr, data }
                    }
                };
                starts.insert(self.host.submit(what), next);
                next += REQUEST;
            }
            self.step()?;
            while let Some(event) = self.host.next_event() {
                let Event::Done(one) = event else { continue };
                let at = starts.remove(&one.op).ok_or_else(|| failed("an answer to nothing"))?;
                let data = one.result.map_err(failed)?;
                if op == Op::Read {
                    self.host.store(Hpa(OWN + at), &data);
                }
                done += REQUEST;
            }
        }
        Ok(())
    }
}

/// Bytes a ns, by direction: write, read.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub transfers: [f64; 2],
    /// By transactions of 4 KiB on the same path.
    pub plain: [f64; 2],
    /// Copying the same memory in pieces of 1 MiB.
    pub copies: f64,
}

/// Measures all three in one run; no UIO request crosses a multiple of `uio_max`.
///
/// # Errors
/// See [`TransferError`].
pub fn measure(uio_max: usize) -> Result<Rates, TransferError> {
    let mut fabric = Fabric::new(uio_max)?;
    let transfers = [
        rate::<ROUNDS, _>(ROUND, || fabric.transfer(Op::Write))?,
        rate::<ROUNDS, _>(ROUND, || fabric.transfer(Op::Read))?,
    ];
    let plain = [
        rate::<ROUNDS, _>(ROUND, || fabric.plain(Op::Write))?,
        rate::<ROUNDS, _>(ROUND, || fabric.plain(Op::Read))?,
    ];
    // the fabric's memory makes room for the two blocks that are copied
    drop(fabric);
    let round = usize::try_from(ROUND).unwrap_or(0);
    let (from, mut to) = (vec![1_u8; round], vec![0_u8; round]);
    let copies = rate::<ROUNDS, TransferError>(ROUND, || {
        for (to, from) in to.chunks_exact_mut(1 << 20).zip(from.chunks_exact(1 << 20)) {
            to.copy_from_slice(black_box(from));
        }
        black_box(&mut to);
        Ok(())
    })?;
    Ok(Rates { transfers, plain, copies })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is measured is what it says: all bytes have moved, both ways.
    #[test]
    fn a_round_moves_every_byte() {
        let mut fabric = Fabric::new(4_096).unwrap();
        fabric.transfer(Op::Write).unwrap();
        let last = vec![0xEE; 4_096];
        let (first, end) = (Hpa(OWN), Hpa(OWN + ROUND - REQUEST));
        for at in [first, end] {
            assert!(fabric.host.store(at, &last));
        }
        fabric.transfer(Op::Read).unwrap();
        for at in [first, end] {
            let mut bytes = vec![0; 4_096];
            assert!(Target::read(fabric.host.memory(), at.0, &mut bytes));
            assert!((0_usize..).zip(&bytes).all(|(at, byte)| *byte == at.to_le_bytes()[0]), "{at}");
        }
        fabric.plain(Op::Write).unwrap();
        fabric.plain(Op::Read).unwrap();
    }
}
