//! Reads the CDAT of a function by its DOE mailbox, entry by entry.
//!
//! The result is a [`CdatRead`]: the structures, or a [`CdatFailure`]. Lengths are in double words, times in
//! nanoseconds.
//!
//! Source: PCIe 6.0 §6.30.2 (an answer within a second), CXL 3.1 §8.1.11; docs/spec/wire-formats.md §3.13.
//!
//! The read ends, whatever a function answers: entries, their lengths and the wait for an answer are bounded.

use weft_parsers::fabric::Bdf;

use super::{Job, Scanner};
use crate::cdat::HEAD;
use crate::pci::enumerate::wire::Done;
use crate::pci::regs::{doe as r, dvsec};

/// Number of reads of a status, and the pause between them: one second in all.
const ASKS: u32 = 100;
const PAUSE_NS: u64 = 10_000_000;
/// Longest answer in double words, and most entries of a table.
const ANSWER_MAX: u32 = 1_024;
const ENTRIES_MAX: usize = 4_096;
/// Next handle that marks the last entry.
const LAST: u16 = 0xFFFF;

/// Reason why the CDAT of a function was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CdatFailure {
    /// There is no such function, or none of its mailboxes offers a CDAT.
    #[error(
        "no mailbox (DOE) that has a CDAT: only memory for hosts and upstream ports of CXL switches have one"
    )]
    None,
    /// A register read as all ones: the function has left.
    #[error("a register of the mailbox (DOE) did not answer")]
    Lost,
    /// The mailbox stays busy, or gives no answer within a second.
    #[error("the mailbox (DOE) did not answer in time")]
    Silent,
    /// The mailbox reports DOE Error.
    #[error("the mailbox (DOE) reports an error")]
    Error,
    /// The answer does not fit the request.
    #[error("the mailbox (DOE) answered something else than was asked")]
    Answer,
    /// Length or checksum of the table is wrong, as it is if the table changed while it was read.
    #[error("the table does not add up")]
    Checksum,
}

/// Result of reading the CDAT of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdatRead {
    /// Function whose CDAT was read.
    pub bdf: Bdf,
    /// Structures of the CDAT without its header, or the failure.
    pub result: Result<Vec<Vec<u8>>, CdatFailure>,
}

/// Whether an answer has an entry of the CDAT: response code and table type are both 0.
fn is_entry(code: u32) -> bool {
    let [code, table, ..] = code.to_le_bytes();
    (code, table) == (0, 0)
}

/// Structures of a completely read table, checked against its header.
fn structures(mut entries: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, CdatFailure> {
    let len: usize = entries.iter().map(Vec::len).sum();
    let sum = entries.iter().flatten().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    let head = entries.first().filter(|head| head.len() == HEAD).and_then(|it| it.first_chunk());
    let says = head.map(|len| u64::from(u32::from_le_bytes(*len)));
    if sum != 0 || says != Some(len as u64) {
        return Err(CdatFailure::Checksum);
    }
    // Entry 0 is the header, which no caller needs.
    entries.remove(0);
    Ok(entries)
}

impl Scanner {
    /// Finds the mailbox with the CDAT of a function, and starts reading.
    pub(super) fn find_cdat(&mut self, bdf: Bdf) -> Done<()> {
        let mailboxes = self.tree.get(bdf).map(|node| node.doe.clone()).unwrap_or_default();
        let mut failure = CdatFailure::None;
        for mailbox in mailboxes {
            match self.has_cdat(bdf, mailbox)? {
                Ok(true) => {
                    self.entries.clear();
                    // One entry a job: each answered access repeats the job from its start, and a whole table would
                    // take too long.
                    self.jobs.push(Job::CdatEntry { bdf, mailbox, handle: 0 });
                    return Ok(());
                }
                Ok(false) => {}
                Err(why) => failure = why,
            }
        }
        self.cdats.push(CdatRead { bdf, result: Err(failure) });
        Ok(())
    }

    /// Whether the discovery of a mailbox lists table access.
    fn has_cdat(&mut self, bdf: Bdf, mailbox: u16) -> Done<Result<bool, CdatFailure>> {
        let mut index = 0;
        for _ in 0..=u8::MAX {
            let request = [r::PCI_SIG.into(), 3, u32::from(index)];
            let word = match self.exchange(bdf, mailbox, &request)? {
                Ok(answer) => match answer.first() {
                    Some(word) => word.to_le_bytes(),
                    None => return Ok(Err(CdatFailure::Answer)),
                },
                Err(why) => return Ok(Err(why)),
            };
            let [low, high, kind, next] = word;
            if u16::from_le_bytes([low, high]) == dvsec::CXL && kind == r::TABLE_ACCESS {
                return Ok(Ok(true));
            }
            if next == 0 {
                return Ok(Ok(false));
            }
            index = next;
        }
        Ok(Err(CdatFailure::Answer)) // a list in a circle
    }

    /// Reads one entry of the table.
    pub(super) fn read_entry(&mut self, bdf: Bdf, mailbox: u16, handle: u16) -> Done<()> {
        let protocol = u32::from(dvsec::CXL) | u32::from(r::TABLE_ACCESS) << 16;
        let request = [protocol, 3, u32::from(handle) << 16];
        let answer = self.exchange(bdf, mailbox, &request)?;
        let result = match answer.as_ref().map(|words| words.split_first()) {
            // An endless chain of handles ends after this many entries.
            Ok(Some((code, entry))) if is_entry(*code) && self.entries.len() <= ENTRIES_MAX => {
                self.entries.push(entry.iter().flat_map(|word| word.to_le_bytes()).collect());
                let next = u16::try_from(code >> 16).unwrap_or(LAST);
                if next != LAST {
                    self.jobs.push(Job::CdatEntry { bdf, mailbox, handle: next });
                    return Ok(());
                }
                structures(std::mem::take(&mut self.entries))
            }
            Ok(_) => Err(CdatFailure::Answer),
            Err(why) => Err(*why),
        };
        self.cdats.push(CdatRead { bdf, result });
        Ok(())
    }

    /// Sends a request, and reads the answer without its header.
    fn exchange(
        &mut self,
        bdf: Bdf,
        mailbox: u16,
        request: &[u32],
    ) -> Done<Result<Vec<u32>, CdatFailure>> {
        let (control, status, data) =
            (mailbox + r::CONTROL, mailbox + r::STATUS, mailbox + r::READ);
        let now = self.wire.read(bdf, status)?;
        if now == u32::MAX {
            return Ok(Err(CdatFailure::Lost));
        }
        let in_use = r::STATUS_BUSY | r::STATUS_ERROR | r::STATUS_READY;
        if now & in_use != 0 {
            // A request that other software left unfinished: the mailbox has no owner.
            self.wire.write(bdf, control, r::CONTROL_ABORT)?;
            if let Err(why) = self.wait_for(bdf, status, |now| now & in_use == 0)? {
                return Ok(Err(why));
            }
        }
        for word in request {
            self.wire.write(bdf, mailbox + r::WRITE, *word)?;
        }
        self.wire.write(bdf, control, r::CONTROL_GO)?;
        let ended = |now: u32| now & (r::STATUS_READY | r::STATUS_ERROR) != 0;
        let now = match self.wait_for(bdf, status, ended)? {
            Ok(now) => now,
            // Without abort the late answer would be taken for that of the next request.
            Err(why) => {
                self.wire.write(bdf, control, r::CONTROL_ABORT)?;
                return Ok(Err(why));
            }
        };
        if now & r::STATUS_ERROR != 0 {
            self.wire.write(bdf, control, r::CONTROL_ABORT)?;
            return Ok(Err(CdatFailure::Error));
        }
        let head = self.wire.read(bdf, data)?;
        // A write of any value advances the read mailbox.
        self.wire.write(bdf, data, 0)?;
        let len = self.wire.read(bdf, data)? & r::LENGTH;
        self.wire.write(bdf, data, 0)?;
        // The first double word of the answer repeats that of the request: vendor and type.
        if request.first() != Some(&head) || !(3..=ANSWER_MAX).contains(&len) {
            self.wire.write(bdf, control, r::CONTROL_ABORT)?;
            let lost = head == u32::MAX;
            return Ok(Err(if lost { CdatFailure::Lost } else { CdatFailure::Answer }));
        }
        let mut words = Vec::new();
        for _ in 2..len {
            words.push(self.wire.read(bdf, data)?);
            self.wire.write(bdf, data, 0)?;
        }
        Ok(Ok(words))
    }

    /// Reads a status until `is_it` holds for it.
    fn wait_for(
        &mut self,
        bdf: Bdf,
        status: u16,
        is_it: impl Fn(u32) -> bool,
    ) -> Done<Result<u32, CdatFailure>> {
        for _ in 0..ASKS {
            let now = self.wire.read(bdf, status)?;
            // Before `is_it`: all ones has every bit set that a caller may wait for.
            if now == u32::MAX {
                return Ok(Err(CdatFailure::Lost));
            }
            if is_it(now) {
                return Ok(Ok(now));
            }
            self.wire.wait(PAUSE_NS)?;
        }
        Ok(Err(CdatFailure::Silent))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::cdat::{Figures, Range, Table, memory};
    use crate::pci::enumerate::{ConfigAccess, Enumerator, HostSpec};
    use crate::pci::space::{ByteEnables, Reg};
    use crate::pci::tree::Tree;

    const DEVICE: Bdf = Bdf::new(1, 0, 0);
    const MAILBOX: u16 = 0x200;

    /// A mailbox that answers requests by a function of the test.
    struct Mailbox<'a> {
        answers: &'a dyn Fn(&[u32]) -> Vec<u32>,
        request: Vec<u32>,
        answer: VecDeque<u32>,
        /// Bits that its status has in addition.
        status: u32,
        waited_ns: u64,
    }

    impl ConfigAccess for Mailbox<'_> {
        fn read(&mut self, bdf: Bdf, reg: Reg) -> Option<u32> {
            assert_eq!(bdf, DEVICE);
            Some(match reg.offset() - MAILBOX {
                r::STATUS if self.answer.is_empty() => self.status,
                r::STATUS => self.status | r::STATUS_READY,
                r::READ => self.answer.front().copied().unwrap_or(0),
                other => panic!("{other:#x} was read"),
            })
        }

        fn write(&mut self, _: Bdf, reg: Reg, value: u32, _: ByteEnables) {
            match reg.offset() - MAILBOX {
                r::CONTROL if value & r::CONTROL_ABORT != 0 => self.answer.clear(),
                r::CONTROL => {
                    let request = std::mem::take(&mut self.request);
                    self.answer = (self.answers)(&request).into();
                }
                r::WRITE => self.request.push(value),
                r::READ => drop(self.answer.pop_front()),
                other => panic!("{other:#x} was written"),
            }
        }

        fn wait(&mut self, ns: u64) {
            self.waited_ns += ns;
        }
    }

    type Answers<'a> = &'a dyn Fn(&[u32]) -> Vec<u32>;

    fn read(answers: Answers<'_>, status: u32) -> (Result<Vec<Vec<u8>>, CdatFailure>, u64) {
        let node = crate::pci::Node { bdf: DEVICE, doe: vec![MAILBOX], ..Default::default() };
        let tree = Tree { nodes: vec![node], ..Tree::default() };
        let (request, answer) = (Vec::new(), VecDeque::new());
        let mut mailbox = Mailbox { answers, request, answer, status, waited_ns: 0 };
        let mut enumerator = Enumerator::cdat(HostSpec::default(), tree, &[DEVICE]);
        while let crate::pci::enumerate::Step::Do(request) = enumerator.step() {
            use crate::pci::enumerate::Request;
            let value = match request {
                Request::Read { bdf, reg } => mailbox.read(bdf, reg),
                Request::Write { bdf, reg, value, enables } => {
                    mailbox.write(bdf, reg, value, enables);
                    None
                }
                Request::Wait { ns } => {
                    mailbox.wait(ns);
                    None
                }
                other => panic!("{other:?}"),
            };
            enumerator.answer(value);
        }
        let [CdatRead { result, .. }] = enumerator.cdats() else { panic!("one function") };
        (result.clone(), mailbox.waited_ns)
    }

    /// Answers discovery with table access at index 1, and Read Entry by `entry`.
    fn discovered(request: &[u32], entry: &dyn Fn(u32) -> Vec<u32>) -> Vec<u32> {
        match request {
            [1, 3, 0] => vec![1, 3, 0x0100_0001],
            [1, 3, 1] => vec![1, 3, 0x0002_1E98],
            [0x0002_1E98, 3, handle] => entry(handle >> 16),
            other => panic!("{other:x?}"),
        }
    }

    /// The answer of a good mailbox with one byte of the table changed.
    fn good(handle: u32, flip: u32) -> Vec<u32> {
        let table = Table::new(memory(&[Range::plain(0, 1 << 28)], Figures::MEMORY));
        let (bytes, next) = table.entry(handle.try_into().unwrap()).unwrap();
        let words = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut answer = vec![0x0002_1E98, 0, u32::from(next) << 16];
        answer.extend(words);
        answer[1] = answer.len().try_into().unwrap();
        *answer.last_mut().unwrap() ^= flip;
        answer
    }

    #[test]
    fn a_table_is_read_entry_by_entry() {
        let (result, waited_ns) = read(&|request| discovered(request, &|it| good(it, 0)), 0);
        assert_eq!(result, Ok(memory(&[Range::plain(0, 1 << 28)], Figures::MEMORY)));
        assert_eq!(waited_ns, 0);
    }

    /// With any answers of the mailbox, reading ends with the reason, and within about a second.
    #[test]
    fn a_mailbox_that_misbehaves_is_left_alone() {
        let entry = |entry: &'static dyn Fn(u32) -> Vec<u32>| {
            move |request: &[u32]| discovered(request, entry)
        };
        #[rustfmt::skip] // columns: name, answers, status besides, failure
        let cases: [(&str, Answers<'_>, u32, CdatFailure); 13] = [
            ("gone",             &|_| vec![],                         u32::MAX, CdatFailure::Lost),
            ("busy for ever",    &|_| vec![],                         1,        CdatFailure::Silent),
            ("silent",           &|_| vec![],                         0,        CdatFailure::Silent),
            ("error for ever",   &|_| vec![],                         1 << 2,   CdatFailure::Silent),
            ("another protocol", &|_| vec![0x8086, 3, 0],             0,        CdatFailure::Answer),
            ("too short",        &|it| vec![it[0], 2],                0,        CdatFailure::Answer),
            ("too long",         &|it| vec![it[0], 0, 0],             0,        CdatFailure::Answer),
            ("no CDAT",          &|it| vec![it[0], 3, 1],             0,        CdatFailure::None),
            ("a circle",         &|it| vec![it[0], 3, 0x0500_0001],   0,        CdatFailure::Answer),
            ("a code",           &entry(&|_| vec![0x0002_1E98, 3, 0xFFFF_0001]), 0, CdatFailure::Answer),
            ("an empty table",   &entry(&|_| vec![0x0002_1E98, 3, 0xFFFF_0000]), 0, CdatFailure::Checksum),
            ("a wrong byte",     &entry(&|it| good(it, u32::from(it == 5))),     0, CdatFailure::Checksum),
            ("no end",           &entry(&|_| vec![0x0002_1E98, 4, 0x0001_0000, 0]), 0, CdatFailure::Answer),
        ];
        for (name, answers, status, want) in cases {
            let (result, waited_ns) = read(answers, status);
            assert_eq!(result, Err(want), "{name}");
            assert!(waited_ns <= 2_000_000_000, "{name}");
        }
    }
}
