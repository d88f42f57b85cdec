//! The device as a whole.
//! [`Request`] and bytes in; [`Done`] or [`Refusal`] out, and a notification for the latter.
//!
//! Units: bytes; time as a parameter.
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)".

use weft_dataplane::time::{Instant, LinkRate};
use weft_parsers::cxl_mem::LINE;
use weft_parsers::fabric::{Dpa, Hpa, Pid};

use super::access::{self, Enables, Fault, Guard, Refusal};
use super::capacity::Capacity;
use super::decode::Gdt;
use super::events::{Event, Events, Kind};
use super::memory::Memory;
use super::protect::{GROUPS, GrpId, Sat};
use super::qos::{DevLoad, Qos};
use super::remains::Remains;

/// What a G-FAM device is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its own port id.
    pub pid: Pid,
    /// Payload that it moves, for limits of requesters.
    pub rate: LinkRate,
    /// Groups, 1..=64.
    pub groups: u16,
    /// Media partitions that can be set, 1..=4.
    pub dmps: u8,
    /// Regions that can be set, 1..=8.
    pub regions: u8,
}

impl Config {
    /// All that there is, at `rate`.
    #[must_use]
    pub const fn full(pid: Pid, rate: LinkRate) -> Self {
        Self { pid, rate, groups: GROUPS, dmps: 4, regions: 8 }
    }
}

/// A requester and the address that it accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Requester.
    pub rpid: Pid,
    /// First address.
    pub hpa: Hpa,
    /// Opcode for notifications, 4 bits.
    pub opcode: Option<u8>,
}

/// When an access is done, and the load to report with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Not before.
    pub due: Instant,
    /// How loaded the device is.
    pub load: DevLoad,
}

/// What the link of the device says of itself (4901).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// Flags.
    pub flags: u8,
    /// Mode.
    pub mode: u8,
    /// Greatest width.
    pub width_max: u8,
    /// Width.
    pub width: u8,
    /// Speeds that are offered, one bit each.
    pub speeds: u8,
    /// Greatest speed.
    pub speed_max: u8,
    /// Speed.
    pub speed: u8,
    /// State of link training.
    pub ltssm: u8,
    /// First lane.
    pub first_lane: u8,
    /// Link flags.
    pub link_flags: u16,
}

/// A G-FAM device: memory behind decoders, protection and `QoS`.
#[derive(Debug)]
pub struct Gfd {
    pub(super) config: Config,
    pub(super) gdt: Gdt,
    pub(super) sat: Sat,
    pub(super) capacity: Capacity,
    pub(super) memory: Memory,
    /// What is free and was not wiped.
    pub(super) remains: Remains,
    pub(super) events: Events,
    pub(super) qos: Qos,
    pub(super) link: LinkStatus,
}

/// What commands have set of a device: all but the bytes of its memory.
#[derive(Clone, Debug)]
pub struct Settings {
    config: Config,
    gdt: Gdt,
    sat: Sat,
    capacity: Capacity,
    qos: Qos,
}

impl Gfd {
    /// All that commands set.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let Self { config, gdt, sat, capacity, qos, .. } = self;
        let (gdt, sat, capacity) = (gdt.clone(), sat.clone(), capacity.clone());
        Settings { config: *config, gdt, sat, capacity, qos: qos.clone() }
    }

    /// Conventional reset: all that commands set is as in `settings`, no notification waits, and memory keeps its bytes.
    pub fn reset(&mut self, settings: &Settings) {
        let Settings { config, gdt, sat, capacity, qos } = settings.clone();
        (self.config, self.gdt, self.sat) = (config, gdt, sat);
        self.remains.add(0, self.memory.size());
        for group in (0..GROUPS).filter_map(GrpId::new) {
            for extent in capacity.extents(group).0 {
                self.remains.take(extent.start.0, extent.len);
            }
        }
        (self.capacity, self.qos, self.events) = (capacity, qos, Events::default());
    }

    /// A device with `memory` behind it and nothing configured; numbers out of range are clamped.
    #[must_use]
    pub fn new(config: Config, memory: Memory) -> Self {
        let config = Config {
            groups: config.groups.clamp(1, GROUPS),
            dmps: config.dmps.clamp(1, 4),
            regions: config.regions.clamp(1, 8),
            ..config
        };
        let mut remains = Remains::default();
        remains.add(0, memory.kept());
        Self {
            config,
            remains,
            gdt: Gdt::default(),
            sat: Sat::default(),
            capacity: Capacity::new(memory.size()),
            memory,
            events: Events::default(),
            qos: Qos::new(config.rate),
            link: LinkStatus::default(),
        }
    }

    /// Its port id, which notifications carry.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.config.pid
    }

    /// Gives it another port id.
    pub const fn set_pid(&mut self, pid: Pid) {
        self.config.pid = pid;
    }

    /// The tables that accesses go through, to ask them what they would say.
    #[inline]
    #[must_use]
    pub const fn guard(&self) -> Guard<'_> {
        Guard { gdt: &self.gdt, mgt: self.capacity.mgt(), sat: &self.sat }
    }

    /// Decoders, also for the way back.
    #[must_use]
    pub const fn gdt(&self) -> &Gdt {
        &self.gdt
    }

    /// Who has which memory.
    #[must_use]
    pub const fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Notifications that were not told: as others like them were, and for a full queue; each to the FM and to hosts.
    #[must_use]
    pub const fn untold(&self) -> ((u64, u64), (u64, u64)) {
        (self.events.alike(), self.events.lost())
    }

    /// Notifications that wait to be sent.
    pub const fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    /// Reads `out.len()` bytes.
    ///
    /// # Errors
    /// [`Refusal`], of which a notification tells; `out` is as before.
    #[inline]
    pub fn read(
        &mut self,
        now: Instant,
        request: Request,
        out: &mut [u8],
    ) -> Result<Done, Refusal> {
        let guard = Guard { gdt: &self.gdt, mgt: self.capacity.mgt(), sat: &self.sat };
        match access::read(guard, &self.memory, request.rpid, request.hpa, out) {
            Ok(()) => Ok(self.done(now, request.rpid, out.len())),
            Err(fault) => Err(self.refuse(now, request, fault)),
        }
    }

    /// Checks a read of `len` bytes and draws for it: its data may be had by [`Self::fetch`] when it is due.
    ///
    /// # Errors
    /// [`Refusal`], of which a notification tells.
    #[inline]
    pub fn admit(&mut self, now: Instant, request: Request, len: usize) -> Result<Done, Refusal> {
        match self.guard().check(request.rpid, request.hpa, len, false) {
            Ok(first) => {
                self.memory.prefetch(first.dpa.0); // it is read once the answer is due
                Ok(self.done(now, request.rpid, len))
            }
            Err(fault) => Err(self.refuse(now, request, fault)),
        }
    }

    /// Reads all or a part of what [`Self::admit`] let through. It is checked again: rights may have gone since.
    ///
    /// # Errors
    /// As [`Self::read`].
    #[inline]
    pub fn fetch(&mut self, now: Instant, request: Request, out: &mut [u8]) -> Result<(), Refusal> {
        let guard = Guard { gdt: &self.gdt, mgt: self.capacity.mgt(), sat: &self.sat };
        let read = access::read(guard, &self.memory, request.rpid, request.hpa, out);
        read.map_err(|fault| self.refuse(now, request, fault))
    }

    /// The memory, past all checks: what is in it, whoever may see it.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// How loaded the device is.
    #[inline]
    #[must_use]
    pub fn load(&self) -> DevLoad {
        self.qos.load()
    }

    /// Writes the bytes of `data` that `enables` names.
    ///
    /// # Errors
    /// [`Refusal`], of which a notification tells; nothing was written.
    #[inline]
    pub fn write(
        &mut self,
        now: Instant,
        request: Request,
        data: &[u8],
        enables: Enables,
    ) -> Result<Done, Refusal> {
        let guard = Guard { gdt: &self.gdt, mgt: self.capacity.mgt(), sat: &self.sat };
        let Request { rpid, hpa, .. } = request;
        match access::write(guard, &mut self.memory, rpid, hpa, data, enables) {
            Ok(()) => Ok(self.done(now, request.rpid, data.len())),
            Err(fault) => Err(self.refuse(now, request, fault)),
        }
    }

    /// As [`Self::write`], of the bytes of a line that `mask` enables, lowest first: a line that is poisoned stays so.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_in_part(
        &mut self,
        now: Instant,
        request: Request,
        line: &[u8; LINE],
        mask: u64,
    ) -> Result<Done, Refusal> {
        let part = self.guard().part(request.rpid, request.hpa, true);
        let bad = part.map(|part| part.dpa.0).ok();
        let bad = bad.filter(|at| self.memory.is_poisoned(*at, LINE as u64));
        let done = self.write(now, request, line, Enables::Mask(mask))?;
        if let Some(at) = bad {
            self.memory.poison(at).ok(); // it was there a moment ago
        }
        Ok(done)
    }

    /// Reads a line that [`Self::admit`] let through; true if it is poisoned, and `line` as before.
    ///
    /// # Errors
    /// As [`Self::read`].
    #[inline]
    pub fn fetch_line(
        &mut self,
        now: Instant,
        request: Request,
        line: &mut [u8; LINE],
    ) -> Result<bool, Refusal> {
        let part = match self.guard().part(request.rpid, request.hpa, false) {
            Ok(part) => part,
            Err(fault) => return Err(self.refuse(now, request, fault)),
        };
        if self.memory.is_poisoned(part.dpa.0, LINE as u64) {
            return Ok(true);
        }
        // Only a decoder whose ends are no multiples of it has a line in several parts.
        if part.room < LINE as u64 || self.memory.read(part.dpa.0, line).is_err() {
            return self.fetch(now, request, line).map(|()| false);
        }
        Ok(false)
    }

    /// Where in the device the line of an access is.
    ///
    /// # Errors
    /// As [`Self::read`] or, if it `changes` the line, [`Self::write`]; also a decoder that has a line in two parts.
    #[inline]
    pub fn line_of(
        &mut self,
        now: Instant,
        request: Request,
        changes: bool,
    ) -> Result<Dpa, Refusal> {
        let split = |dpa| Fault { refusal: Refusal::OtherWay, hpa: request.hpa, dpa: Some(dpa) };
        let checked = self.guard().check(request.rpid, request.hpa, LINE, changes);
        match checked {
            Ok(part) if part.dpa.0.is_multiple_of(LINE as u64) => Ok(part.dpa),
            Ok(part) => Err(self.refuse(now, request, split(part.dpa))),
            Err(fault) => Err(self.refuse(now, request, fault)),
        }
    }

    /// The owner of a line has not said whether it changed it: the line is poisoned, and a notification tells of it.
    pub fn lose_line(&mut self, now: Instant, who: Pid, dpa: Dpa) {
        self.memory.poison(dpa.0).ok(); // else there is nothing left to be read
        let event = Event {
            kind: Kind::Failure,
            trigger: 0,
            rpid: who,
            by_request: false,
            dpa: Some(dpa),
            hpa: None,
            group: None,
            opcode: None,
        };
        self.events.raise(now, event, self.sat.notify(who));
    }

    /// Poisons a line; its bytes stay.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn poison_line(&mut self, now: Instant, request: Request) -> Result<Done, Refusal> {
        let checked = self.guard().check(request.rpid, request.hpa, LINE, true);
        let failed = |dpa| Fault { refusal: Refusal::Memory, hpa: request.hpa, dpa: Some(dpa) };
        let done =
            checked.and_then(|part| self.memory.poison(part.dpa.0).map_err(|_| failed(part.dpa)));
        match done {
            Ok(()) => Ok(self.done(now, request.rpid, LINE)),
            Err(fault) => Err(self.refuse(now, request, fault)),
        }
    }

    /// The address to snoop `rpid` with for `dpa`.
    ///
    /// # Errors
    /// [`Refusal::NoWayBack`], of which a notification tells.
    pub fn snoop_hpa(&mut self, now: Instant, rpid: Pid, dpa: Dpa) -> Result<Hpa, Refusal> {
        self.gdt.reverse(rpid, dpa).map_err(|miss| {
            let refusal = Refusal::NoWayBack(miss);
            let (kind, trigger) = refusal.notice();
            let event = Event {
                kind,
                trigger,
                rpid,
                by_request: false,
                dpa: Some(dpa),
                hpa: None,
                group: None,
                opcode: None,
            };
            self.events.raise(now, event, self.sat.notify(rpid));
            refusal
        })
    }

    /// Tells of a request that never got to the memory: unrecognised, unexpected, invalid.
    pub fn reject(&mut self, now: Instant, request: Request, kind: Kind) {
        let event = Event {
            kind,
            trigger: 0,
            rpid: request.rpid,
            by_request: true,
            dpa: None,
            hpa: Some(request.hpa),
            group: None,
            opcode: request.opcode,
        };
        self.events.raise(now, event, self.sat.notify(request.rpid));
    }

    /// Notes that `waiting` of at most `room` requests or responses wait.
    pub fn sample_backlog(&mut self, waiting: u32, room: u32) {
        self.qos.sample(waiting, room);
    }

    #[inline]
    fn done(&mut self, now: Instant, rpid: Pid, bytes: usize) -> Done {
        let (due, load) = self.qos.draw(now, rpid, bytes as u64);
        Done { due, load }
    }

    #[cold]
    fn refuse(&mut self, now: Instant, request: Request, fault: Fault) -> Refusal {
        let (kind, trigger) = fault.refusal.notice();
        let event = Event {
            kind,
            trigger,
            rpid: request.rpid,
            by_request: true,
            dpa: fault.dpa,
            hpa: Some(fault.hpa),
            group: fault.refusal.group(),
            opcode: request.opcode,
        };
        self.events.raise(now, event, self.sat.notify(request.rpid));
        fault.refusal
    }
}
