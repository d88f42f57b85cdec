//! The device as a whole: a [`Request`] with its bytes in; [`Done`] or [`Refusal`] out, and a notification for the
//! latter.
//!
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

/// Configuration of a G-FAM device, apart from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// PID of the device.
    pub pid: Pid,
    /// Payload bandwidth of the device, of which limits of requesters are fractions.
    pub rate: LinkRate,
    /// Number of groups, 1..=64.
    pub groups: u16,
    /// Media partitions that can be set, 1..=4.
    pub dmps: u8,
    /// Regions that can be set, 1..=8.
    pub regions: u8,
}

impl Config {
    /// The most groups, partitions and regions, at `rate`.
    #[must_use]
    pub const fn full(pid: Pid, rate: LinkRate) -> Self {
        Self { pid, rate, groups: GROUPS, dmps: 4, regions: 8 }
    }
}

/// A requester and the address that it accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub rpid: Pid,
    pub hpa: Hpa,
    /// Low 4 bits of the CXL.mem opcode, for notifications; `None` for a TLP.
    pub opcode: Option<u8>,
}

/// When the answer to an access may leave, and the load to report in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Earliest time of the answer.
    pub due: Instant,
    /// How loaded the device is.
    pub load: DevLoad,
}

/// Link status as command 4901 returns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    pub flags: u8,
    pub mode: u8,
    pub width_max: u8,
    pub width: u8,
    /// Supported speeds, one bit each.
    pub speeds: u8,
    pub speed_max: u8,
    pub speed: u8,
    /// State of link training.
    pub ltssm: u8,
    pub first_lane: u8,
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
    /// Free memory that was not zeroed.
    pub(super) remains: Remains,
    pub(super) events: Events,
    pub(super) qos: Qos,
    pub(super) link: LinkStatus,
}

/// All settings that commands change: everything but the bytes of the memory.
#[derive(Clone, Debug)]
pub struct Settings {
    config: Config,
    gdt: Gdt,
    sat: Sat,
    capacity: Capacity,
    qos: Qos,
}

impl Gfd {
    /// All settings that commands change.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let Self { config, gdt, sat, capacity, qos, .. } = self;
        let (gdt, sat, capacity) = (gdt.clone(), sat.clone(), capacity.clone());
        Settings { config: *config, gdt, sat, capacity, qos: qos.clone() }
    }

    /// Conventional reset: restores `settings` and drops waiting notifications; memory keeps its bytes.
    pub fn reset(&mut self, settings: &Settings) {
        let Settings { config, gdt, sat, capacity, qos } = settings.clone();
        (self.config, self.gdt, self.sat) = (config, gdt, sat);
        // Everything becomes free with its bytes, apart from memory that `settings` allocate.
        self.remains.add(0, self.memory.size());
        for group in (0..GROUPS).filter_map(GrpId::new) {
            for extent in capacity.extents(group).0 {
                self.remains.take(extent.start.0, extent.len);
            }
        }
        (self.capacity, self.qos, self.events) = (capacity, qos, Events::default());
    }

    /// A device with `memory` and nothing configured; numbers out of range are clamped.
    #[must_use]
    pub fn new(config: Config, memory: Memory) -> Self {
        let config = Config {
            groups: config.groups.clamp(1, GROUPS),
            dmps: config.dmps.clamp(1, 4),
            regions: config.regions.clamp(1, 8),
            ..config
        };
        let mut remains = Remains::default();
        // A file may hold contents of an earlier run, which must read as zeros to a group that did not name the
        // address.
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

    /// PID of the device, which its notifications carry.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.config.pid
    }

    /// Sets the PID, which notifications carry from then on.
    pub const fn set_pid(&mut self, pid: Pid) {
        self.config.pid = pid;
    }

    /// The tables that check accesses, to check one without carrying it out.
    #[inline]
    #[must_use]
    pub const fn guard(&self) -> Guard<'_> {
        Guard { gdt: &self.gdt, mgt: self.capacity.mgt(), sat: &self.sat }
    }

    /// Decoder tables of all requesters.
    #[must_use]
    pub const fn gdt(&self) -> &Gdt {
        &self.gdt
    }

    /// Allocation of memory to groups.
    #[must_use]
    pub const fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Notifications not sent: because others like them were, and because a queue was full; each for the FM and for
    /// hosts.
    #[must_use]
    pub const fn untold(&self) -> ((u64, u64), (u64, u64)) {
        (self.events.alike(), self.events.lost())
    }

    pub const fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    /// Reads `out.len()` bytes.
    ///
    /// # Errors
    /// [`Refusal`], with a notification; `out` is as before.
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

    /// Checks a read of `len` bytes and draws for it on the requester's limit. [`Self::fetch`] reads the data when the
    /// answer is due.
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

    /// Reads all or a part of a read that [`Self::admit`] allowed. Checks again: the requester may have lost its rights
    /// since.
    ///
    /// # Errors
    /// As [`Self::read`].
    #[inline]
    pub fn fetch(&mut self, now: Instant, request: Request, out: &mut [u8]) -> Result<(), Refusal> {
        let guard = Guard { gdt: &self.gdt, mgt: self.capacity.mgt(), sat: &self.sat };
        let read = access::read(guard, &self.memory, request.rpid, request.hpa, out);
        read.map_err(|fault| self.refuse(now, request, fault))
    }

    /// The memory itself, without access checks.
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
    /// [`Refusal`], with a notification; nothing was written.
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

    /// Writes the bytes of a line that `mask` enables (bit n: byte n). A poisoned line stays poisoned, even if all
    /// bytes are enabled.
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
        // The write may heal the line (a run of 64 enabled bytes), so the poison is set again after it.
        let bad = part.map(|part| part.dpa.0).ok();
        let bad = bad.filter(|at| self.memory.is_poisoned(*at, LINE as u64));
        let done = self.write(now, request, line, Enables::Mask(mask))?;
        if let Some(at) = bad {
            self.memory.poison(at).ok(); // it was there a moment ago
        }
        Ok(done)
    }

    /// Reads a line that [`Self::admit`] allowed; true if it is poisoned, and then `line` is unchanged.
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
        // Before the read, which would fail: CXL.mem answers with Poison = 1, not with a refusal.
        if self.memory.is_poisoned(part.dpa.0, LINE as u64) {
            return Ok(true);
        }
        // Only a decoder whose base or end is not a multiple of 64 bytes maps a line to several parts.
        if part.room < LINE as u64 || self.memory.read(part.dpa.0, line).is_err() {
            return self.fetch(now, request, line).map(|()| false);
        }
        Ok(false)
    }

    /// Address in the device of an access's line.
    ///
    /// # Errors
    /// As [`Self::read`] or, if it `changes` the line, [`Self::write`]; also a decoder that maps a line to two parts of
    /// the device's lines.
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

    /// The owner of a line never said whether it changed it: poisons the line and raises a notification.
    pub fn lose_line(&mut self, now: Instant, who: Pid, dpa: Dpa) {
        self.memory.poison(dpa.0).ok(); // fails only where there is no memory to read
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

    /// Raises a notification about a request that never reached the memory: unrecognised, unexpected or invalid.
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

    /// Samples the backlog: `waiting` of at most `room` requests or responses wait.
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
