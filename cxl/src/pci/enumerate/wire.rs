//! Register accesses one at a time, for code that is written as if each returned at once.
//!
//! A job runs until it needs an access that has no answer yet, and stops; with the answer it runs again from its
//! start, where earlier answers are replayed. A finished job's answers are forgotten.
//!
//! Jobs are short (one function each), so that rerunning them is cheap: the cost of a function grows with the
//! square of its own accesses, never with the tree.

use weft_parsers::fabric::{Bdf, Hpa};

use super::spec::{EnumerateError, Request};
use crate::pci::space::{ByteEnables, Reg};

/// Reason why a job stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It waits for the answer to a request.
    Asked,
    /// The whole enumeration ends with this error.
    Failed(EnumerateError),
}

impl From<EnumerateError> for Stop {
    fn from(why: EnumerateError) -> Self {
        Self::Failed(why)
    }
}

pub(super) type Done<T> = Result<T, Stop>;

/// Requests and answers of the current job.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    request: Option<Request>,
    /// Answers since the job began; `told` of them were consumed by this run.
    answers: Vec<Option<u32>>,
    told: usize,
    count: u64,
    max: u64,
}

impl Wire {
    pub(super) const fn new(max: u64) -> Self {
        Self { request: None, answers: Vec::new(), told: 0, count: 0, max }
    }

    pub(super) const fn request(&self) -> Option<Request> {
        self.request
    }

    pub(super) fn answer(&mut self, value: Option<u32>) {
        // An answer that comes without a request would shift all later ones.
        if self.request.take().is_some() {
            self.answers.push(value);
        }
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Rewinds the answers, as a job is about to run (again).
    pub(super) const fn rewind(&mut self) {
        self.told = 0;
    }

    /// Drops all answers, as a job has finished.
    pub(super) fn forget(&mut self) {
        self.answers.clear();
        self.told = 0;
    }

    fn ask(&mut self, request: Request) -> Done<Option<u32>> {
        if let Some(answer) = self.answers.get(self.told) {
            self.told += 1;
            return Ok(*answer);
        }
        // Bounds the whole enumeration, whatever registers answer: a hierarchy that always shows another bridge
        // ends here.
        if self.count >= self.max {
            return Err(EnumerateError::TooManyAccesses { max: self.max }.into());
        }
        self.count += 1;
        self.request = Some(request);
        Err(Stop::Asked)
    }

    /// The double word that holds `offset`; all ones if nothing answers.
    pub(super) fn read(&mut self, bdf: Bdf, offset: u16) -> Done<u32> {
        let answer = self.ask(Request::Read { bdf, reg: Reg::at(offset) })?;
        Ok(answer.unwrap_or(u32::MAX))
    }

    /// The u16 at `offset`; all ones if nothing answers.
    pub(super) fn read16(&mut self, bdf: Bdf, offset: u16) -> Done<u16> {
        let [a, b, c, d] = self.read(bdf, offset)?.to_le_bytes();
        // All ones without answer, as hardware returns for a master abort; callers check for that.
        Ok(u16::from_le_bytes(if offset & 2 == 0 { [a, b] } else { [c, d] }))
    }

    pub(super) fn write(&mut self, bdf: Bdf, offset: u16, value: u32) -> Done<()> {
        let enables = ByteEnables::ALL;
        self.ask(Request::Write { bdf, reg: Reg::at(offset), value, enables }).map(|_| ())
    }

    pub(super) fn write16(&mut self, bdf: Bdf, offset: u16, value: u16) -> Done<()> {
        let value = u32::from(value) << (8 * (offset & 2));
        let (reg, enables) = (Reg::at(offset), ByteEnables::of(offset, 2));
        self.ask(Request::Write { bdf, reg, value, enables }).map(|_| ())
    }

    /// The double word at a memory address; all ones if nothing answers.
    pub(super) fn load(&mut self, addr: u64) -> Done<u32> {
        let answer = self.ask(Request::Load { addr: Hpa(addr) })?;
        Ok(answer.unwrap_or(u32::MAX))
    }

    pub(super) fn store(&mut self, addr: u64, value: u32) -> Done<()> {
        self.ask(Request::Store { addr: Hpa(addr), value }).map(|_| ())
    }

    pub(super) fn wait(&mut self, ns: u64) -> Done<()> {
        self.ask(Request::Wait { ns }).map(|_| ())
    }
}
