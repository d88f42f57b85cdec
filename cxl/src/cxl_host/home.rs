//! A host's memory behind its home agent: reads and writes wait for the caches of devices in their way.
//!
//! Loads and stores of the host's processors come by [`Home::load`] and [`Home::store`], TLPs by [`Home::admit_tlp`],
//! and the fabric memory engine reaches memory by [`CoherentMemory`]. An access that need not wait is done at once, as
//! in a host without such devices.

use std::collections::BTreeMap;

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::LINE;
use weft_parsers::fabric::Hpa;

use super::memory::HostMemory;
pub use crate::cache::home::HomeNews;
use crate::cache::home::{Admitted, HomeAgent, HomeSpec, Local, Refused};
use crate::completer::Target;
use crate::fabric_mem;
use crate::ln::Lnc;

/// Results of processors' accesses kept until they are fetched; beyond that many the oldest is dropped.
const ENDED_MAX: usize = 4_096;

/// Number of a processor's load or store that waits for a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuAccess(u64);

/// Progress of a processor's load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuStep {
    /// This many bytes from the front are done.
    Done(usize),
    /// This many bytes from the front wait for a cache of a device; [`super::CxlHost::cpu_ended`] returns their result.
    Waits(CpuAccess, usize),
}

/// Why a processor cannot load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// The host has no memory there.
    #[error("no such memory")]
    NoMemory,
    /// A line is poisoned, for example because the device that owned it has not answered.
    #[error("the line is poisoned")]
    Poisoned,
    /// Devices took the line back too often, or too many accesses wait.
    #[error("caches of devices are too busy")]
    Busy,
}

impl From<Refused> for CpuError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Poisoned => Self::Poisoned,
            Refused::Busy => Self::Busy,
        }
    }
}

/// An access that waits for caches of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parked {
    Tlp(Box<[u8]>),
    /// A store: of a processor, which waits for it, or (`None`) of an engine, which does not.
    Store(Option<CpuAccess>, Box<[u8]>),
    Load(CpuAccess),
    /// No access of its own: an engine waits until the line can be read.
    Touch,
}

/// The home agent, and the results for processors.
pub(super) struct Home {
    pub(super) agent: HomeAgent<Parked>,
    ended: BTreeMap<CpuAccess, Result<Vec<u8>, CpuError>>,
    accesses: u64,
}

impl Home {
    pub(super) fn new(spec: HomeSpec) -> Self {
        Self { agent: HomeAgent::new(spec), ended: BTreeMap::new(), accesses: 0 }
    }

    /// When the agent has work next: at once while it must read the clock first.
    pub(super) fn next_due(&self) -> Option<Instant> {
        // The time limit of a pull begins with the next reading of the clock, even if no frame comes.
        if self.agent.waits_for_a_look() { Some(Instant::ZERO) } else { self.agent.next_due() }
    }

    /// Takes a TLP for host memory; it waits only if a cache is in its way.
    pub(super) fn admit_tlp(
        &mut self,
        addr: u64,
        len: u64,
        writes: bool,
        bytes: &[u8],
    ) -> Admitted<()> {
        // Common case: no copy of the TLP.
        if self.agent.is_clear(addr, len, writes) {
            return Admitted::Now(());
        }
        self.admit_again(Local::new(addr, len, writes, Parked::Tlp(bytes.into())))
    }

    /// Like [`Self::admit_tlp`], for a TLP that has waited for a line.
    pub(super) fn admit_again(&mut self, local: Local<Parked>) -> Admitted<()> {
        match self.agent.admit(local) {
            Admitted::Now(_) => Admitted::Now(()),
            Admitted::Waits => Admitted::Waits,
            Admitted::Refused(_, why) => Admitted::Refused((), why),
        }
    }

    /// The next TLP that may go on; accesses of processors and engines that may go on are done meanwhile.
    pub(super) fn next_tlp(
        &mut self,
        now: Instant,
        memory: &mut HostMemory,
        lnc: &mut Option<Lnc>,
    ) -> Option<(Local<Parked>, Box<[u8]>)> {
        loop {
            let local = self.agent.next_ready(now, memory)?;
            // Back to the caller, which carries it out before it takes the next one: no cache may be granted the line
            // in between.
            if let Parked::Tlp(bytes) = &local.what {
                let bytes = bytes.clone();
                return Some((local, bytes));
            }
            match self.agent.admit(local) {
                Admitted::Now(local) => self.carry_out(&local, memory, lnc),
                Admitted::Waits => {}
                Admitted::Refused(local, why) => self.end(&local.what, Err(why.into())),
            }
        }
    }

    fn carry_out(&mut self, local: &Local<Parked>, memory: &mut HostMemory, lnc: &mut Option<Lnc>) {
        match &local.what {
            Parked::Store(_, data) => {
                let done = write(memory, lnc, local.addr, data);
                let done = if done { Ok(Vec::new()) } else { Err(CpuError::NoMemory) };
                self.end(&local.what, done);
            }
            Parked::Load(_) => {
                let mut bytes = vec![0; usize::try_from(local.len).unwrap_or(0)];
                let read = memory.read(local.addr, &mut bytes);
                self.end(&local.what, if read { Ok(bytes) } else { Err(CpuError::NoMemory) });
            }
            Parked::Tlp(_) | Parked::Touch => {}
        }
    }

    fn end(&mut self, what: &Parked, result: Result<Vec<u8>, CpuError>) {
        if let Parked::Store(Some(access), _) | Parked::Load(access) = what {
            // A client that never fetches its results must not fill memory.
            if self.ended.len() >= ENDED_MAX {
                self.ended.pop_first();
            }
            self.ended.insert(*access, result);
        }
    }

    /// Number of bytes from `addr` on, at most `len`, that no cache is in the way of; ends at the end of a line if
    /// fewer.
    fn clear_len(&self, addr: u64, len: usize, writes: bool) -> usize {
        if self.agent.is_clear(addr, len as u64, writes) {
            return len;
        }
        let mut clear = 0;
        while clear < len {
            let at = addr + clear as u64;
            let part = in_line(at, len - clear);
            if !self.agent.is_clear(at, part as u64, writes) {
                break;
            }
            clear += part;
        }
        clear
    }

    /// A processor loads: see [`super::CxlHost::load`].
    pub(super) fn load(
        &mut self,
        memory: &HostMemory,
        addr: Hpa,
        into: &mut [u8],
    ) -> Result<CpuStep, CpuError> {
        // All of it, so that an access is refused before a part of it waits.
        if !memory.holds(addr.0, into.len() as u64) {
            return Err(CpuError::NoMemory);
        }
        let step = self.step(addr.0, into.len(), false, |access, _| Parked::Load(access))?;
        if let CpuStep::Done(done) = step {
            memory.read(addr.0, into.get_mut(..done).unwrap_or_default());
        }
        Ok(step)
    }

    /// A processor stores: see [`super::CxlHost::store_some`].
    pub(super) fn store(
        &mut self,
        memory: &mut HostMemory,
        lnc: &mut Option<Lnc>,
        addr: Hpa,
        data: &[u8],
    ) -> Result<CpuStep, CpuError> {
        if !memory.holds(addr.0, data.len() as u64) {
            return Err(CpuError::NoMemory);
        }
        let parked =
            |access, part| Parked::Store(Some(access), data.get(..part).unwrap_or_default().into());
        let step = self.step(addr.0, data.len(), true, parked)?;
        if let CpuStep::Done(done) = step {
            write(memory, lnc, addr.0, data.get(..done).unwrap_or_default());
        }
        Ok(step)
    }

    /// Number of bytes that a processor may load or store now. If there are none, the bytes of the first line wait, as
    /// the access that `parked` makes of their number and length.
    fn step(
        &mut self,
        addr: u64,
        len: usize,
        writes: bool,
        parked: impl FnOnce(CpuAccess, usize) -> Parked,
    ) -> Result<CpuStep, CpuError> {
        let clear = self.clear_len(addr, len, writes);
        if clear > 0 || len == 0 {
            return Ok(CpuStep::Done(clear));
        }
        let part = in_line(addr, len);
        // One line at a time; the caller repeats the rest.
        let access = self.next_access();
        match self.agent.admit(Local::new(addr, part as u64, writes, parked(access, part))) {
            Admitted::Now(_) => Ok(CpuStep::Done(part)),
            Admitted::Waits => Ok(CpuStep::Waits(access, part)),
            Admitted::Refused(_, why) => Err(why.into()),
        }
    }

    /// Result of an access that waited, returned once.
    pub(super) fn take_ended(&mut self, access: CpuAccess) -> Option<Result<Vec<u8>, CpuError>> {
        self.ended.remove(&access)
    }

    fn next_access(&mut self) -> CpuAccess {
        self.accesses += 1;
        CpuAccess(self.accesses)
    }
}

/// Number of the `len` bytes from `addr` on that lie in its line.
fn in_line(addr: u64, len: usize) -> usize {
    let from = usize::try_from(addr % LINE as u64).unwrap_or(0);
    len.min(LINE - from)
}

/// Writes memory, and notifies watchers of its lines.
fn write(memory: &mut HostMemory, lnc: &mut Option<Lnc>, addr: u64, data: &[u8]) -> bool {
    let done = memory.write(addr, data);
    if let Some(lnc) = lnc.as_mut().filter(|_| done) {
        lnc.on_update(Hpa(addr), data.len() as u64);
    }
    done
}

/// A host's memory for its fabric memory engine, coherent with caches of devices.
pub struct CoherentMemory<'a> {
    pub(super) memory: &'a mut HostMemory,
    pub(super) home: &'a mut Home,
    pub(super) lnc: &'a mut Option<Lnc>,
}

impl Target for CoherentMemory<'_> {
    fn holds(&self, addr: u64, len: u64) -> bool {
        self.memory.holds(addr, len)
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        self.home.agent.is_clear(addr, into.len() as u64, false) && self.memory.read(addr, into)
    }

    /// A write to a line in a device's cache is done once the cache has given up the line; later reads wait for it.
    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        if !self.memory.holds(addr, data.len() as u64) {
            return false;
        }
        if self.home.agent.is_clear(addr, data.len() as u64, true) {
            return write(self.memory, self.lnc, addr, data);
        }
        let mut rest = data;
        let mut at = addr;
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(in_line(at, rest.len()));
            let local = Local::new(at, part.len() as u64, true, Parked::Store(None, part.into()));
            match self.home.agent.admit(local) {
                Admitted::Now(_) => _ = write(self.memory, self.lnc, at, part),
                Admitted::Waits => {}
                Admitted::Refused(..) => return false,
            }
            at += part.len() as u64;
            rest = behind;
        }
        true
    }

    fn ready(&mut self, addr: u64, len: u64) -> bool {
        if self.home.agent.is_clear(addr, len, false) {
            return true;
        }
        match self.home.agent.admit(Local::new(addr, len, false, Parked::Touch)) {
            Admitted::Waits => false,
            Admitted::Now(_) | Admitted::Refused(..) => true, // the read that follows reports the failure
        }
    }
}

impl fabric_mem::Memory for CoherentMemory<'_> {
    fn kind(&self, addr: u64, len: u64) -> Option<fabric_mem::MemKind> {
        fabric_mem::Memory::kind(self.memory, addr, len)
    }

    fn place(&self, addr: u64, len: u64) -> Option<fabric_mem::Place> {
        fabric_mem::Memory::place(self.memory, addr, len)
    }
}
