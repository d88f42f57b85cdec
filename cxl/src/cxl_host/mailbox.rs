//! The host's end of a mailbox: finds it in the tree, sends it a command, waits, and reads the answer.
//!
//! [`Exchange::step`] returns one memory access, [`Exchange::answer`] takes its result; [`Ring`] reads the
//! notifications that the GAE writes to the host's memory. All fields are little-endian.
//!
//! Source: CXL 3.1 sections 8.2.8.1, 8.2.8.4; docs/spec/wire-formats.md §4.6 (0109, 010A), §5.4.

use weft_parsers::fabric::{Bdf, Hpa};

use crate::completer::Target;
use crate::gfd::gam::ENTRIES;
use crate::pci::mailbox::{self, DOORBELL, ID_MAILBOX, array_len, capabilities};
use crate::pci::{Tree, cxl::BlockId};
use crate::requester::Failure;

/// Pause between two polls of a mailbox, and most polls.
const PAUSE_NS: u64 = 1_000;
const ASKS_MAX: u32 = 100_000;
/// Bytes of a notification.
pub const ENTRY_LEN: usize = 32;

const CONTROL: u64 = mailbox::CONTROL as u64;
const COMMAND: u64 = mailbox::COMMAND as u64;
const STATUS: u64 = mailbox::STATUS as u64;
const PAYLOAD: u64 = mailbox::PAYLOAD as u64;

/// Functions with a block of device registers, and the address of the block.
#[must_use]
pub fn blocks(tree: &Tree) -> Vec<(Bdf, Hpa)> {
    let nodes = tree.iter().flat_map(|node| {
        let device = node.blocks.iter().filter(|block| block.id == BlockId::Device as u8);
        device.filter_map(|block| {
            let bar = node.bars.iter().find(|bar| bar.index == block.bar)?;
            Some((node.bdf, Hpa(bar.address?.checked_add(block.offset)?)))
        })
    });
    nodes.collect()
}

/// The response of a mailbox to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub code: u16,
    pub vendor: u16,
    pub payload: Vec<u8>,
}

/// Why a mailbox command has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailboxFailure {
    /// An access to its registers failed.
    #[error("an access to the mailbox was {0}")]
    Access(#[from] Failure),
    /// The block names no mailbox, or one that lies outside of it.
    #[error("the block of registers names no mailbox")]
    NoMailbox,
    /// The input does not fit.
    #[error("{len} bytes of input do not fit into {max}")]
    Length { len: usize, max: usize },
    /// The mailbox was never ready.
    #[error("the mailbox does not become ready")]
    Busy,
}

/// The next access that a mailbox exchange needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Read(Hpa, usize),
    Write(Hpa, Vec<u8>),
    Wait {
        ns: u64,
    },
    /// The exchange has ended.
    Done(Result<Response, MailboxFailure>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Head,
    Array { len: usize },
    Capabilities,
    Idle,
    Payload,
    Command,
    Ring,
    Poll,
    Pause(Box<State>),
    Status,
    Length { code: u16, vendor: u16 },
    Output { code: u16, vendor: u16, len: usize },
    Done(Result<Response, MailboxFailure>),
}

/// A command at a mailbox, with its progress.
#[derive(Clone, Debug)]
pub struct Exchange {
    block: Hpa,
    mailbox: u64,
    opcode: u16,
    input: Vec<u8>,
    output_max: usize,
    asks: u32,
    state: State,
}

impl Exchange {
    /// A command for the mailbox of the register block at `block`.
    #[must_use]
    pub fn new(block: Hpa, opcode: u16, input: &[u8]) -> Self {
        let input = input.to_vec();
        Self { block, mailbox: 0, opcode, input, output_max: 0, asks: 0, state: State::Head }
    }

    const fn at(&self, offset: u64) -> Hpa {
        Hpa(self.block.0.wrapping_add(self.mailbox).wrapping_add(offset))
    }

    /// The next access; the same one until it is answered.
    #[must_use]
    pub fn step(&self) -> Step {
        match &self.state {
            State::Head => Step::Read(self.block, 8),
            State::Array { len } => Step::Read(self.block, *len),
            State::Capabilities => Step::Read(self.at(0), 4),
            State::Idle | State::Poll => Step::Read(self.at(CONTROL), 4),
            State::Payload => Step::Write(self.at(PAYLOAD), self.input.clone()),
            State::Command => {
                let command = u64::from(self.opcode) | (self.input.len() as u64) << 16;
                Step::Write(self.at(COMMAND), command.to_le_bytes().to_vec())
            }
            State::Ring => Step::Write(self.at(CONTROL), vec![DOORBELL, 0, 0, 0]),
            State::Pause(_) => Step::Wait { ns: PAUSE_NS },
            State::Status => Step::Read(self.at(STATUS), 8),
            State::Length { .. } => Step::Read(self.at(COMMAND), 8),
            State::Output { len, .. } => Step::Read(self.at(PAYLOAD), *len),
            State::Done(result) => Step::Done(result.clone()),
        }
    }

    /// Takes the result of the access: the bytes read, none after a write or a pause.
    pub fn answer(&mut self, result: Result<Vec<u8>, Failure>) {
        if matches!(self.state, State::Done(_)) {
            return;
        }
        let next = result.map_err(MailboxFailure::from).and_then(|bytes| self.next(&bytes));
        self.state = next.unwrap_or_else(|why| State::Done(Err(why)));
    }

    fn next(&mut self, bytes: &[u8]) -> Result<State, MailboxFailure> {
        let word = |from: usize| bytes.get(from..from + 2).and_then(|it| it.first_chunk::<2>());
        let word = |from| word(from).map_or(0, |it| u16::from_le_bytes(*it));
        let rings = bytes.first().is_some_and(|byte| byte & DOORBELL != 0);
        Ok(match core::mem::replace(&mut self.state, State::Head) {
            State::Head => {
                let head = bytes.first_chunk::<8>().ok_or(MailboxFailure::NoMailbox)?;
                // Bounded: the length comes from the device.
                State::Array { len: array_len(*head).min(4_096) }
            }
            State::Array { .. } => {
                let found = capabilities(bytes).into_iter().find(|it| it.id == ID_MAILBOX);
                self.mailbox = found.ok_or(MailboxFailure::NoMailbox)?.offset.into();
                State::Capabilities
            }
            State::Capabilities => {
                let shift = bytes.first().map_or(0, |byte| byte & 0x1F);
                // Payload size is 2^8 to 2^20 bytes (CXL 3.1, 8.2.8.4); other values allow no payload.
                let max = if (8..=20).contains(&shift) { 1 << shift } else { 0 };
                self.output_max = max;
                if self.input.len() > max {
                    return Err(MailboxFailure::Length { len: self.input.len(), max });
                }
                State::Idle
            }
            // The doorbell is set while the mailbox has a command: of an earlier user, for example.
            State::Idle if rings => self.pause(State::Idle)?,
            State::Idle if self.input.is_empty() => State::Command,
            State::Idle => State::Payload,
            State::Payload => State::Command,
            State::Command => State::Ring,
            State::Ring => State::Poll,
            State::Poll if rings => self.pause(State::Poll)?,
            State::Poll => State::Status,
            State::Pause(then) => *then,
            State::Status => State::Length { code: word(4), vendor: word(6) },
            State::Length { code, vendor } => {
                let len = usize::from(word(2)) | usize::from(word(4) & 0x1F) << 16;
                // A device that reports more than its mailbox holds must not make the host read beyond it.
                if len > self.output_max {
                    return Err(MailboxFailure::Length { len, max: self.output_max });
                }
                match len {
                    0 => State::Done(Ok(Response { code, vendor, payload: Vec::new() })),
                    _ => State::Output { code, vendor, len },
                }
            }
            State::Output { code, vendor, .. } => {
                State::Done(Ok(Response { code, vendor, payload: bytes.to_vec() }))
            }
            State::Done(result) => State::Done(result),
        })
    }

    const fn too_often(&mut self) -> bool {
        self.asks += 1;
        self.asks > ASKS_MAX
    }

    fn pause(&mut self, then: State) -> Result<State, MailboxFailure> {
        if self.too_often() {
            return Err(MailboxFailure::Busy);
        }
        Ok(State::Pause(Box::new(then)))
    }
}

/// The host's end of the ring of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    base: Hpa,
    tail: u8,
}

/// Notifications taken from the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Notifications, from the oldest to the newest.
    pub entries: Vec<[u8; ENTRY_LEN]>,
    /// Whether other notifications were dropped because the ring was full.
    pub overflow: bool,
}

impl Ring {
    /// Opcode of Get GAM Buffer, without payload; its answer goes to [`Self::take`].
    pub const GET: u16 = 0x0109;
    /// Opcode of Set GAM Buffer, with [`Self::set`] as payload.
    pub const SET: u16 = 0x010A;

    /// An empty ring of 8 KiB in the host's memory at `base`, a multiple of 32 below 2^52.
    #[must_use]
    pub const fn new(base: Hpa) -> Self {
        Self { base: Hpa(base.0 & 0xF_FFFF_FFFF_FFE0), tail: 0 }
    }

    /// Payload of command 010A: address of the ring, and the tail.
    #[must_use]
    pub const fn set(&self, clear_overflow: bool) -> [u8; 8] {
        let flags = 1 | (clear_overflow as u64) << 1;
        (flags | self.base.0 | (self.tail as u64) << 56).to_le_bytes()
    }

    /// Reads the notifications between the tail and the head in the answer to command 0109, and advances the tail.
    /// `None` if the answer names another ring, or none.
    pub fn take(&mut self, answer: &[u8], memory: &dyn Target) -> Option<Taken> {
        let answer = u64::from_le_bytes(*answer.first_chunk()?);
        let [flags, .., head] = answer.to_le_bytes();
        if flags & 1 == 0 || answer & 0xF_FFFF_FFFF_FFE0 != self.base.0 {
            return None;
        }
        let mut taken = Taken { entries: Vec::new(), overflow: flags & 2 != 0 };
        while self.tail != head {
            let mut entry = [0; ENTRY_LEN];
            let at = u64::from(self.tail) % ENTRIES * ENTRY_LEN as u64;
            if !memory.read(self.base.0.checked_add(at)?, &mut entry) {
                return None;
            }
            taken.entries.push(entry);
            self.tail = self.tail.wrapping_add(1);
        }
        Some(taken)
    }
}
