//! Data Object Exchange (DOE): a mailbox in configuration space, by which software reads a component's CDAT.
//!
//! The owner passes each write by software to [`Doe::written`], which updates the mailbox's registers in the
//! [`Space`]. Objects are answered at once. Lengths are in double words.
//!
//! Source: PCIe 6.0 §6.30, §7.9.24; CXL 3.1 §8.1.11 (table access); docs/spec/wire-formats.md §3.13.
//!
//! Software may write anything in any order: an object is processed once it is complete. Every misuse ends with no
//! answer or with DOE Error, which an abort clears.

use std::collections::VecDeque;

use super::regs::{doe as r, dvsec, ext};
use super::space::{Reg, Space, SpaceError, Written};
use crate::cdat::Table;

/// Longest request that is accepted, in double words; those of both protocols have three.
const REQUEST_MAX: usize = 64;
/// Supported protocols as (vendor, type), in the order of the discovery's index.
const PROTOCOLS: [(u16, u8); 2] = [(r::PCI_SIG, r::DISCOVERY), (dvsec::CXL, r::TABLE_ACCESS)];
/// Table access: Read Entry is the only request, and CDAT the only type of table.
const READ_ENTRY: u8 = 0;
const CDAT: u8 = 0;

/// A DOE mailbox in the configuration space of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doe {
    /// Offset of the capability.
    at: u16,
    /// The CDAT; `None` until its owner sets one.
    table: Option<Table>,
    /// Double words written since the last Go.
    request: Vec<u32>,
    /// Double words of the answer that software has not read.
    answer: VecDeque<u32>,
    error: bool,
}

impl Doe {
    /// Adds the capability to a space; there is no table yet.
    ///
    /// # Errors
    /// No room is left.
    pub fn add(space: &mut Space) -> Result<Self, SpaceError> {
        let at = space.add_ext(ext::DOE, 1, r::LEN)?;
        let (request, answer) = (Vec::new(), VecDeque::new());
        Ok(Self { at, table: None, request, answer, error: false })
    }

    /// Sets the structures of the CDAT.
    pub fn set_table(&mut self, structures: Vec<Vec<u8>>) {
        match &mut self.table {
            Some(table) => table.replace(structures),
            None => self.table = Some(Table::new(structures)),
        }
    }

    /// The CDAT; `None` until its owner sets one.
    #[must_use]
    pub const fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// Drops request, answer and error. The registers themselves are reset with the space.
    pub fn reset(&mut self) {
        self.request.clear();
        self.answer.clear();
        self.error = false;
    }

    /// Handles a write to the space, which may have been to any register of it.
    pub fn written(&mut self, space: &mut Space, written: &Written) {
        let is = |register| written.reg == Reg::at(self.at + register);
        if is(r::CONTROL) {
            self.control(written.value);
        } else if is(r::WRITE) {
            self.push(written.value);
        } else if is(r::READ) {
            // A write of any value to the read mailbox advances to the next double word (7.9.24.6).
            self.pop();
        } else {
            return;
        }
        // Status and read mailbox are computed here alone, so they never disagree with the queue. Busy stays 0.
        let ready = if self.answer.is_empty() { 0 } else { r::STATUS_READY };
        let error = if self.error { r::STATUS_ERROR } else { 0 };
        space.set32(self.at + r::STATUS, ready | error);
        space.set32(self.at + r::READ, self.answer.front().copied().unwrap_or(0));
    }

    fn control(&mut self, value: u32) {
        // Abort wins over Go in the same write, as it is the only way out of an error.
        if value & r::CONTROL_ABORT != 0 {
            return self.reset();
        }
        if value & r::CONTROL_GO == 0 || self.error {
            return;
        }
        // Go would overwrite the answer that software has not read.
        if !self.answer.is_empty() {
            return self.fail();
        }
        let request = std::mem::take(&mut self.request);
        //= PCIe 6.0 section 6.30.1: an object that has another length than it says is discarded without a word
        let says = request.get(1).map(|word| word & r::LENGTH);
        if request.len() < r::HEAD_DW || says.map(u64::from) != Some(request.len() as u64) {
            return;
        }
        match self.respond(&request) {
            Some(answer) => self.answer = answer.into(),
            None => self.fail(),
        }
    }

    fn push(&mut self, word: u32) {
        if self.error {
            return; // until it is aborted
        }
        if self.request.len() >= REQUEST_MAX || !self.answer.is_empty() {
            return self.fail();
        }
        self.request.push(word);
    }

    fn pop(&mut self) {
        if self.answer.pop_front().is_none() {
            self.fail();
        }
    }

    /// Sets DOE Error and drops the request and answer in progress.
    fn fail(&mut self) {
        self.reset();
        self.error = true;
    }

    /// The answer to a complete object; `None` for an unknown or malformed request, which is an error.
    fn respond(&self, request: &[u32]) -> Option<Vec<u32>> {
        let &[head, _, word] = request else { return None };
        let [low, high, kind, _] = head.to_le_bytes();
        let [first, second, third, fourth] = word.to_le_bytes();
        let protocol = (u16::from_le_bytes([low, high]), kind);
        let rest = match protocol {
            (r::PCI_SIG, r::DISCOVERY) => {
                let (vendor, kind) = *PROTOCOLS.get(usize::from(first))?;
                let next = first.saturating_add(1);
                // Next index 0 ends the list.
                let next = if usize::from(next) < PROTOCOLS.len() { next } else { 0 };
                vec![u32::from(vendor) | u32::from(kind) << 16 | u32::from(next) << 24]
            }
            (dvsec::CXL, r::TABLE_ACCESS) if (first, second) == (READ_ENTRY, CDAT) => {
                let (entry, next) =
                    self.table.as_ref()?.entry(u16::from_le_bytes([third, fourth]))?;
                let mut rest =
                    vec![u32::from(READ_ENTRY) | u32::from(CDAT) << 8 | u32::from(next) << 16];
                let (words, _) = entry.as_chunks::<4>(); // structures are of whole double words
                rest.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
                rest
            }
            _ => return None,
        };
        let (vendor, kind) = protocol;
        let len = u32::try_from(rest.len() + r::HEAD_DW).ok().filter(|len| *len <= r::LENGTH)?;
        let head = [u32::from(vendor) | u32::from(kind) << 16, len];
        Some(head.into_iter().chain(rest).collect())
    }
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;
    use crate::cdat::{Figures, Range, memory};
    use crate::pci::space::ByteEnables;

    struct Bench {
        space: Space,
        doe: Doe,
    }

    impl Bench {
        fn new() -> Self {
            let mut space = Space::new();
            let mut doe = Doe::add(&mut space).unwrap();
            doe.set_table(memory(&[Range::plain(0, 1 << 28)], Figures::MEMORY));
            Self { space, doe }
        }

        fn write(&mut self, register: u16, value: u32) {
            let reg = Reg::at(0x100 + register);
            let written = self.space.write(reg, value, ByteEnables::ALL);
            self.doe.written(&mut self.space, &written);
        }

        fn status(&self) -> u32 {
            self.space.get32(0x10C)
        }

        fn send(&mut self, object: &[u32]) {
            for word in object {
                self.write(0x10, *word);
            }
            self.write(8, 0x8000_0000);
        }

        /// Sends an object and reads the answer, which may be empty.
        fn ask(&mut self, object: &[u32]) -> Vec<u32> {
            self.send(object);
            let mut answer = Vec::new();
            while self.status() & 0x8000_0000 != 0 {
                answer.push(self.space.get32(0x114));
                self.write(0x14, 0);
            }
            answer
        }
    }

    const DISCOVER: [u32; 3] = [0x0000_0001, 3, 0];
    const HEAD: [u32; 3] = [0x0002_1E98, 3, 0];

    /// Bytes by hand: the header of the capability, discovery of both protocols, the CDAT's header and its last entry.
    #[test]
    fn software_discovers_and_reads_the_table() {
        let mut bench = Bench::new();
        assert_eq!((bench.space.get32(0x100), bench.space.get32(0x104)), (0x0001_002E, 0));
        assert_eq!(bench.ask(&DISCOVER), [0x0000_0001, 3, 0x0100_0001]);
        assert_eq!(bench.ask(&[0x0000_0001, 3, 1]), [0x0000_0001, 3, 0x0002_1E98]);
        let head = bench.ask(&HEAD);
        assert_eq!(head[..4], [0x0002_1E98, 7, 0x0001_0000, 136]);
        assert_eq!((head.len(), head[6]), (7, 0), "sequence");
        let last = [0x0002_1E98, 9, 0xFFFF_0000, 0x0018_0001, 0x0005_0000, 1, 0, 0x0000_FA00, 0];
        assert_eq!(bench.ask(&[0x0002_1E98, 3, 0x0005_0000]), last);
        assert_eq!(bench.status(), 0);
    }

    /// An object with a wrong length gets no answer, and the next object is accepted.
    #[test]
    fn an_object_of_another_length_is_discarded() {
        let mut bench = Bench::new();
        #[rustfmt::skip]
        let objects: [&[u32]; 6] = [
            &[], &[1], &[1, 3], &[1, 2, 0], &[1, 0, 0], &[1, 4, 0],
        ];
        for object in objects {
            assert_eq!(bench.ask(object), [0; 0], "{object:x?}");
            assert_eq!(bench.status(), 0, "{object:x?}");
            assert_eq!(bench.ask(&DISCOVER).len(), 3, "behind {object:x?}");
        }
    }

    /// Requests without an answer set DOE Error until an abort.
    #[test]
    fn what_it_cannot_answer_is_an_error() {
        #[rustfmt::skip] // columns: name, object
        let cases: [(&str, &[u32]); 8] = [
            ("no such protocol",      &[0x0001_1E98, 3, 0]),
            ("no such vendor",        &[0x0002_8086, 3, 0]),
            ("no such index",         &[0x0000_0001, 3, 2]),
            ("index beyond all",      &[0x0000_0001, 3, 0xFF]),
            ("no such request",       &[0x0002_1E98, 3, 1]),
            ("no such table",         &[0x0002_1E98, 3, 0x0100]),
            ("no such entry",         &[0x0002_1E98, 3, 0xFFFF_0000]),
            ("an empty object",       &[0x0002_1E98, 2]),
        ];
        for (name, object) in cases {
            let mut bench = Bench::new();
            assert_eq!(bench.ask(object), [0; 0], "{name}");
            assert_eq!(bench.status(), 1 << 2, "{name}");
            assert_eq!(bench.ask(&DISCOVER), [0; 0], "{name}: until it is aborted");
            bench.write(8, 1);
            assert_eq!(bench.status(), 0, "{name}");
            assert_eq!(bench.ask(&DISCOVER).len(), 3, "{name}");
        }
    }

    #[test]
    fn misuse_of_the_mailbox_is_an_error() {
        #[rustfmt::skip] // columns: name, registers and values
        let cases: [(&str, &[(u16, u32)]); 4] = [
            ("read without an answer", &[(0x14, 0)]),
            ("written before the answer is read",
             &[(0x10, 1), (0x10, 3), (0x10, 0), (8, 1 << 31), (0x10, 1)]),
            ("gone before the answer is read",
             &[(0x10, 1), (0x10, 3), (0x10, 0), (8, 1 << 31), (8, 1 << 31)]),
            ("an object without end", &[(0x10, 0); 65]),
        ];
        for (name, writes) in cases {
            let mut bench = Bench::new();
            for (register, value) in writes {
                bench.write(*register, *value);
            }
            assert_eq!((bench.status(), bench.space.get32(0x114)), (1 << 2, 0), "{name}");
            bench.write(8, 1);
            assert_eq!(bench.ask(&DISCOVER).len(), 3, "{name}");
        }
    }

    /// An abort and a reset empty the mailbox at any time, and drop a half-written object.
    #[test]
    fn an_abort_empties_it() {
        let mut bench = Bench::new();
        bench.send(&HEAD);
        assert_eq!(bench.status(), 1 << 31);
        bench.write(8, 1);
        assert_eq!((bench.status(), bench.space.get32(0x114)), (0, 0));
        bench.write(0x10, 0x0002_1E98);
        bench.write(8, 0x8000_0001); // both: the abort counts
        assert_eq!(bench.ask(&DISCOVER).len(), 3);
        assert_eq!(bench.space.get32(0x110), 0, "what was written is not read");
    }

    /// Random writes: the mailbox's memory is bounded, and Busy is never set.
    #[test]
    fn random_writes_leave_it_usable() {
        let (mut rng, mut bench) = (Rng::new(0xD0E), Bench::new());
        let mut draw = || usize::try_from(rng.below(6)).unwrap();
        for _ in 0..200_000 {
            let register = [8, 0xC, 0x10, 0x10, 0x10, 0x14][draw()];
            let value = [0, 1, 3, 0x0002_1E98, 0x8000_0000, 0xFFFF_FFFF][draw()];
            bench.write(register, value);
            assert!(bench.doe.request.len() <= REQUEST_MAX && bench.status() & 1 == 0);
        }
        bench.write(8, 1);
        assert_eq!(bench.ask(&HEAD).len(), 7);
    }
}
