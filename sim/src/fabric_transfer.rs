//! A transfer of fabric memory in virtual time, over links of a given rate.
//!
//! It goes between memory of a device and memory of a host at another switch.
//!
//! [`TransferSpec::run`] measures how long it takes; [`TransferSpec::goodput`] computes the rate that the links allow.
//!
//! There are two switches, each with one end; all three links have the same rate. TLPs carry a PTH on all of them,
//! which is as long as the prefix that a host's link has in its place. The ends themselves take no time and have no
//! limits.
//!
//! Source: docs/fabric-memory.md "Rates in virtual time"; docs/spec/cxl-fabric.md "Fabric memory transfers";
//! docs/spec/model.md.

use std::collections::BTreeMap;

use weft_cxl::completer::{CompleterSpec, Target};
use weft_cxl::cxl_host::HostMemory;
use weft_cxl::cxl_host::memory::NoPlace;
use weft_cxl::fabric_mem::{
    Engine, EngineSpec, Error, MemDesc, MemKind, Message, Op, Options, PeerId, Place as Segmented,
    Segment, Share, Status, TransferOpDesc, TransferReq, Window,
};
use weft_cxl::gfd::memory::Memory;
use weft_cxl::requester::uio::{Uio, UioSide};
use weft_cxl::requester::{Requester, RequesterSpec};
use weft_cxl::tlp_end::{Frame, Outbox, Received};
use weft_dataplane::port::PortError;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::PortId;
use weft_parsers::fabric::{Bdf, DrtEntry, Hpa, Pid};
use weft_parsers::tlp::{Mode, Pth};

use crate::engine::Place;
use crate::fabric::{FabricError, Link, Plan, Routes, around, due, link, nodes};
use crate::nodes::{Edge, Nodes};
use crate::setup::Setup;

/// Bytes of a frame beside a TLP's payload: MAC addresses, link header, PTH, TLP header, FCS, preamble and gap.
pub const AROUND_PAYLOAD: u64 = 12 + 8 + 4 + 16 + 4 + 20;

const NEAR: Pid = Pid::from_low_bits(0x100);
const FAR: Pid = Pid::from_low_bits(0x200);
const PEER: PeerId = PeerId(1);
/// Address at which either memory begins.
const OWN: u64 = 1 << 20;
/// Bytes of one operation of the transfer.
const PIECE: u64 = 1 << 20;
/// Time by which a run must be done; otherwise it is taken to hang.
const HORIZON: Instant = Instant::from_ns(10_000_000_000);
/// Virtual time between two looks whether the transfer has ended.
const SLICE: Span = Span::from_us(10);

/// Description of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct TransferSpec {
    /// Rate of all three links.
    pub rate: LinkRate,
    /// `Write`: from the device's memory to the host's (D2RH); `Read`: the other way (RH2D).
    pub op: Op,
    /// Bytes to transfer, a multiple of 1 MiB.
    pub bytes: u64,
    /// `Max_Payload_Size` and longest read, a power of two from 128 to 4096; no request crosses a multiple of it.
    pub payload_max: u16,
    /// Most requests that may wait for their completions.
    pub in_flight: usize,
}

/// Result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Time from its begin to its end.
    pub took: Span,
    /// Bytes a second over that time.
    pub rate: u64,
    /// Whether all bytes arrived unchanged at the other end.
    pub equal: bool,
}

/// Why a transfer cannot be run, or did not complete.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A figure out of range; the text says which.
    #[error("{0}")]
    Figure(&'static str),
    /// The fabric cannot be built.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The memory cannot be made.
    #[error(transparent)]
    Memory(#[from] NoPlace),
    /// The transfer engine refuses it.
    #[error(transparent)]
    Engine(#[from] Error),
    /// A port failed; the text is its error.
    #[error("{0}")]
    Port(String),
    /// The transfer failed or did not end; its last status.
    #[error("the transfer has not completed: {0:?}")]
    Ended(Status),
}

/// The end that transfers, or the one with the other memory.
enum End {
    Device(Box<Device>),
    Host(Box<Host>),
}

/// A device with a transfer engine for its memory.
struct Device {
    link: Link,
    requester: Requester,
    side: UioSide,
    /// Most requests of the engine that may be with the requester.
    pending_max: usize,
    engine: Engine,
    memory: HostMemory,
    req: TransferReq,
    ended: Option<(Instant, Status)>,
}

/// A host that answers requests for its memory.
struct Host {
    link: Link,
    memory: HostMemory,
    completer: CompleterSpec,
}

impl TransferSpec {
    /// Bytes a second that the links allow: each payload has [`AROUND_PAYLOAD`] bytes around it.
    #[must_use]
    pub fn goodput(&self) -> u64 {
        let payload = u128::from(self.payload_max);
        let bytes = u128::from(self.rate.as_bps() / 8) * payload;
        u64::try_from(bytes / (payload + u128::from(AROUND_PAYLOAD))).unwrap_or(u64::MAX)
    }

    fn check(&self) -> Result<(), TransferError> {
        let payload = self.payload_max;
        if !payload.is_power_of_two() || !(128..=4_096).contains(&payload) {
            return Err(TransferError::Figure("payload: expected 128 to 4096, a power of two"));
        }
        if !(1..=8_192).contains(&self.in_flight) {
            return Err(TransferError::Figure("requests under way: expected 1 to 8192"));
        }
        if self.bytes == 0 || !self.bytes.is_multiple_of(PIECE) || self.bytes > 1 << 30 {
            return Err(TransferError::Figure("bytes: expected 1 MiB to 1 GiB, in whole MiB"));
        }
        Ok(())
    }

    fn plan(&self) -> Plan {
        let at = |component, port| Place { component, port: PortId::new(port).unwrap_or_default() };
        let routes = |near, far| Routes {
            drt: vec![(NEAR, DrtEntry::Port(near)), (FAR, DrtEntry::Port(far))],
            rgt: Vec::new(),
        };
        let frame_len_max = usize::from(self.payload_max).max(1_536) + 128;
        Plan {
            setup: Setup { rate: self.rate, frame_len_max, ..Setup::new(2, 8) },
            ports: vec![2, 2],
            links: vec![(at(0, 1), at(1, 1))],
            seats: vec![(NEAR, at(0, 0)), (FAR, at(1, 0))],
            routes: vec![routes(0, 1), routes(1, 0)],
            window: 0,
            payload_max: self.payload_max,
        }
    }

    /// Runs the transfer on one thread.
    ///
    /// # Errors
    /// A figure out of range, a part that cannot be built, or a transfer that does not complete.
    pub fn run(&self) -> Result<Outcome, TransferError> {
        self.check()?;
        let (plan, around) = (self.plan(), around());
        let mut nodes = nodes(&plan, &around, |pid, wire| {
            let memory = pattern(self.bytes, pid)?;
            let link = link(&plan, &around, pid, wire)?;
            if pid == FAR { Ok(self.host(link, memory)) } else { self.device(link, memory) }
        })?;
        // Time runs in slices, as only the device knows when it has ended; `ended` has the exact instant.
        let ended = |nodes: &Nodes<End>| nodes.edges().find_map(End::ended);
        while ended(&nodes).is_none() && nodes.now() < HORIZON {
            let next = nodes.now() + SLICE;
            nodes.run(next, 1).map_err(|error| TransferError::Port(error.to_string()))?;
        }
        let (at, status) = ended(&nodes).unwrap_or((HORIZON, Status::Waiting));
        if status != Status::Completed {
            return Err(TransferError::Ended(status));
        }
        let took = at.since(Instant::ZERO);
        let rate = u128::from(self.bytes) * 1_000_000_000_000 / u128::from(took.as_ps().max(1));
        let mut ends = nodes.edges().map(End::memory);
        let equal = ends.next().zip(ends.next()).is_some_and(|(a, b)| same(a, b, self.bytes));
        Ok(Outcome { took, rate: u64::try_from(rate).unwrap_or(u64::MAX), equal })
    }

    fn host(&self, link: Link, memory: HostMemory) -> End {
        let payload_max = self.payload_max.into();
        let completer = CompleterSpec { payload_max, uio_last_first: false };
        End::Host(Box::new(Host { link, memory, completer }))
    }

    /// The device, with its transfer begun.
    fn device(&self, link: Link, memory: HostMemory) -> Result<End, TransferError> {
        let options = Options { enabled: true, ..Options::default() };
        // Streams deep enough for `in_flight` requests, so that the engine is not the limit.
        let options = Options {
            streams_per_transfer: options.streams_max,
            stream_depth: self.in_flight.div_ceil(options.streams_max).max(options.stream_depth),
            ..options
        };
        let place = |pid, offset| Segmented { pid, offset };
        let window = Window { place: place(NEAR, 1 << 40), len: 1 << 40 };
        let segments = BTreeMap::from([(FAR, Segment { base: Hpa(0), len: u64::MAX })]);
        let mut engine = Engine::new(EngineSpec { options, window, segments })?;
        let mem = MemDesc { addr: OWN, len: self.bytes };
        engine.register(mem, MemKind::Host, &memory)?;
        let shares = vec![Share { mem, kind: MemKind::Host, place: place(FAR, OWN) }];
        engine.receive(PEER, &Message::Hello { pid: FAR, shares })?;
        let piece = |at| TransferOpDesc { local: OWN + at, remote: OWN + at, len: PIECE };
        let pieces = (0..self.bytes / PIECE).map(|n| piece(n * PIECE));
        let ops: Vec<TransferOpDesc> = pieces.collect();
        // Longer than the run: the engine must not give up a slow transfer.
        let long = Some(Span::from_ms(1_000_000));
        let req = engine.transfer_async(Instant::ZERO, PEER, self.op, &ops, long)?;
        let most = self.payload_max.into();
        let spec = RequesterSpec {
            mode: Mode::Flit,
            payload_max: most,
            read_max: most,
            uio_max: most,
            in_flight_max: self.in_flight,
            timeout: Span::from_ms(1_000),
        };
        let requester = Requester::new(spec, Bdf::new(1, 0, 0));
        // A request of the engine has up to 4 KiB, in TLPs of `most` bytes; this many never let the requester run dry.
        let pending_max = (2 * self.in_flight * most / 4_096).max(2);
        let (side, ended) = (UioSide::default(), None);
        let device = Device { link, requester, side, pending_max, engine, memory, req, ended };
        Ok(End::Device(Box::new(device)))
    }
}

impl End {
    fn memory(&self) -> &HostMemory {
        match self {
            Self::Device(device) => &device.memory,
            Self::Host(host) => &host.memory,
        }
    }

    fn ended(&self) -> Option<(Instant, Status)> {
        match self {
            Self::Device(device) => device.ended,
            Self::Host(_) => None,
        }
    }
}

impl Edge for End {
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, PortError> {
        match self {
            Self::Device(device) => device.step(now),
            Self::Host(host) => host.step(now),
        }
    }
}

impl Device {
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, PortError> {
        let Self { link, requester, side, pending_max, engine, memory, .. } = self;
        requester.expire(now);
        while let Some(done) = requester.next_done() {
            side.take(done);
        }
        let mut port = Uio { requester, side, pending_max: *pending_max };
        let due_next = engine.poll(now, &mut port, memory).unwrap_or_default();
        let out = link.end.outbox();
        let pth = Pth::new(NEAR, FAR);
        requester.flush(now, &mut |tlp| out.send(Some(pth), tlp).is_ok());
        let mut handler = |frame: Frame<'_>, _: &mut Outbox| {
            if let Received::Tlp(Some(_), tlp) = frame.content
                && tlp.is_completion()
            {
                requester.take(&tlp);
            }
        };
        let Link { end, port, bufs } = link;
        let progress = end.poll(now, port, bufs, &mut handler)?;
        if self.ended.is_none()
            && let Ok(status) = engine.status(self.req)
            && status != Status::Waiting
        {
            self.ended = Some((now, status));
        }
        let next = Instant::earlier(due(progress, port, now), requester.next_due());
        Ok(Instant::earlier(next, due_next.filter(|_| self.ended.is_none())))
    }
}

impl Host {
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, PortError> {
        let Self { link, memory, completer } = self;
        let mut handler = |frame: Frame<'_>, out: &mut Outbox| {
            let Received::Tlp(Some(pth), tlp) = frame.content else { return };
            let back = Pth::new(pth.dpid, pth.spid);
            completer.serve(&tlp, Bdf::default(), memory, &mut |answer| {
                let _ = out.send(Some(back), answer); // no answer is longer than the payload
            });
        };
        let Link { end, port, bufs } = link;
        let progress = end.poll(now, port, bufs, &mut handler)?;
        Ok(due(progress, port, now))
    }
}

/// Memory whose every eight bytes differ from all others, and from those of the other end.
fn pattern(bytes: u64, pid: Pid) -> Result<HostMemory, TransferError> {
    let mut memory = HostMemory::default();
    memory.add(Hpa(OWN), Memory::anonymous(bytes))?;
    let mark = u64::from(pid.bits()) << 48;
    for at in (0..bytes).step_by(1 << 16) {
        let words = (at..at + (1 << 16)).step_by(8);
        let data: Vec<u8> = words.flat_map(|word| (word | mark).to_le_bytes()).collect();
        memory.write(OWN + at, &data);
    }
    Ok(memory)
}

fn same(a: &HostMemory, b: &HostMemory, bytes: u64) -> bool {
    let (mut one, mut other) = (vec![0; 1 << 20], vec![1; 1 << 20]);
    (0..bytes).step_by(1 << 20).all(|at| {
        let read = a.read(OWN + at, &mut one) && b.read(OWN + at, &mut other);
        read && one == other
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(gbytes: u64, op: Op) -> TransferSpec {
        let rate = LinkRate::gbps(gbytes * 8);
        TransferSpec { rate, op, bytes: 64 << 20, payload_max: 4_096, in_flight: 128 }
    }

    fn within(found: u64, want: u64, per_mille: u64) -> bool {
        found.abs_diff(want) * 1_000 <= want * per_mille
    }

    /// Links of 64 and 103 GB/s: 4096 of 4160 bytes are payload, 63.0 and 101.4 GB/s.
    #[test]
    fn a_transfer_takes_what_links_of_64_and_103_gb_a_second_allow() {
        for (gbytes, op, want) in [
            (64, Op::Write, 63_015_384_615),
            (103, Op::Write, 101_415_384_615),
            (64, Op::Read, 63_015_384_615),
            (103, Op::Read, 101_415_384_615),
        ] {
            let spec = spec(gbytes, op);
            assert_eq!(spec.goodput(), want, "the closed form of the page");
            let found = spec.run().unwrap();
            let name = format!("{gbytes} GB/s {op:?}: {found:?}");
            assert!(found.equal, "{name}");
            assert!(found.rate <= want && within(found.rate, want, 5), "{name}");
            assert!(within(found.rate, gbytes * 1_000_000_000, 20), "{name}");
        }
        let short = TransferSpec { bytes: 4 << 20, ..spec(64, Op::Read) };
        assert_eq!(short.run().unwrap(), short.run().unwrap(), "the same again");
    }

    /// Short payloads, and few requests under way, cost what they must: a request waits for its answer.
    #[test]
    fn payload_and_requests_under_way_bound_it() {
        for payload_max in [128, 256, 512, 1_024] {
            let spec = TransferSpec {
                payload_max,
                in_flight: 2_048,
                bytes: 8 << 20,
                ..spec(64, Op::Write)
            };
            let (found, want) = (spec.run().unwrap(), spec.goodput());
            assert!(found.equal && found.rate <= want, "{payload_max}: {found:?}");
            assert!(within(found.rate, want, 30), "{payload_max}: {found:?}, {want}");
        }
        let one = TransferSpec { in_flight: 1, bytes: 1 << 20, ..spec(64, Op::Write) };
        let two = TransferSpec { in_flight: 2, ..one };
        let (one, two) = (one.run().unwrap(), two.run().unwrap());
        assert!(within(two.rate, 2 * one.rate, 10), "twice as fast: {one:?} {two:?}");
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        let good = spec(64, Op::Read);
        for (name, bad) in [
            ("payload", TransferSpec { payload_max: 100, ..good }),
            ("payload", TransferSpec { payload_max: 8_192, ..good }),
            ("requests", TransferSpec { in_flight: 0, ..good }),
            ("bytes", TransferSpec { bytes: 0, ..good }),
            ("bytes", TransferSpec { bytes: 5_000, ..good }),
        ] {
            let said = bad.run().unwrap_err().to_string();
            assert!(said.starts_with(name), "{said}");
        }
    }
}
