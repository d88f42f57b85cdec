//! The register block of a CXL device, with its primary mailbox, by which a host gives it commands.
//!
//! The owner passes in reads and writes of bytes in the block, executes the [`Command`] that a write returns, and
//! ends it by [`Mailbox::complete`]. [`capabilities`] is the host's side: it finds the mailbox in the block. All
//! values are little-endian.
//!
//! Source: CXL 3.1 §8.2.8.1 and .2 (capability array), .3 (status), .4 (mailbox); docs/spec/wire-formats.md §4.1
//! (return codes).
//!
//! While a command runs, writes to the mailbox are ignored. A command whose payload is longer than the payload area
//! never reaches the owner: the mailbox answers it.

/// Offset of the device status registers in the block.
const STATUS_AT: u32 = 0x80;
/// Offset of the memory device status registers in the block; memory devices only.
const MEMORY_AT: u32 = 0x88;
/// Offset of the primary mailbox in the block.
pub const MAILBOX_AT: u32 = 0x100;

const HEADER_LEN: usize = 0x10;
const ID_STATUS: u16 = 0x0001;
/// Capability id of the primary mailbox.
pub const ID_MAILBOX: u16 = 0x0002;
const ID_MEMORY: u16 = 0x4000;

// Offsets in the mailbox.
const CAPABILITIES: usize = 0x00;
pub(crate) const CONTROL: usize = 0x04;
pub(crate) const COMMAND: usize = 0x08;
pub(crate) const STATUS: usize = 0x10;
pub(crate) const PAYLOAD: usize = 0x20;

pub(crate) const DOORBELL: u8 = 1 << 0;
const DOORBELL_INTERRUPT: u8 = 1 << 1;
const BACKGROUND_INTERRUPT: u8 = 1 << 2;
/// Memory device status: Mailbox Interfaces Ready.
const READY: u8 = 1 << 4;

/// Return codes that the mailbox sets itself, or looks at.
pub mod code {
    /// The command completed.
    pub const SUCCESS: u16 = 0x00;
    /// The executor returned more output than fits the payload area.
    pub const INTERNAL: u16 = 0x04;
    /// The input payload does not fit the payload area.
    pub const PAYLOAD_LENGTH: u16 = 0x16;
}

/// Kind of component that a block belongs to, as its capability array says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockKind {
    /// Defined by the class code of the function.
    #[default]
    FromClass,
    /// Memory device: the block then has a memory device status, which says that the mailbox is ready.
    Memory,
    /// Mailbox CCI of a switch, such as a GAE.
    Switch,
}

impl BlockKind {
    const fn bits(self) -> u8 {
        match self {
            Self::FromClass => 0,
            Self::Memory => 1,
            Self::Switch => 2,
        }
    }
}

/// Why a mailbox cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MailboxError {
    /// The payload area has 256 bytes to 1 MiB.
    #[error("a mailbox has 2^8 to 2^20 bytes of payload, not 2^{shift}")]
    Payload {
        /// The requested size, as a power of two.
        shift: u8,
    },
}

/// A command that the host has put into the mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub opcode: u16,
    /// Input payload, as long as the command register says.
    pub payload: Vec<u8>,
}

/// The effect of a write on the mailbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailboxEffects {
    /// Command to execute, and to end by [`Mailbox::complete`].
    pub command: Option<Command>,
    /// The host wants an interrupt now.
    pub interrupt: bool,
}

/// A block of CXL device registers with a primary mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailbox {
    /// First 256 bytes of the block: capability array and status.
    head: Vec<u8>,
    /// The mailbox from [`MAILBOX_AT`] on: registers, then the payload area.
    registers: Vec<u8>,
}

impl Mailbox {
    /// An idle mailbox with 2 to the power of `shift` bytes of payload, 8..=20.
    ///
    /// # Errors
    /// `shift` is out of range.
    pub fn new(kind: BlockKind, shift: u8) -> Result<Self, MailboxError> {
        if !(8..=20).contains(&shift) {
            return Err(MailboxError::Payload { shift });
        }
        let mut this = Self { head: vec![0; 0x100], registers: vec![0; PAYLOAD + (1 << shift)] };
        let mailbox_len = u32::try_from(this.registers.len()).unwrap_or(0);
        let mut blocks = vec![(ID_STATUS, STATUS_AT, 8), (ID_MAILBOX, MAILBOX_AT, mailbox_len)];
        if kind == BlockKind::Memory {
            blocks.push((ID_MEMORY, MEMORY_AT, 8));
            put(&mut this.head, MEMORY_AT as usize, &[READY]);
        }
        let [count, ..] = blocks.len().to_le_bytes();
        put(&mut this.head, 0, &[0, 0, 1, kind.bits(), count, 0]);
        for ((id, offset, len), at) in blocks.into_iter().zip((HEADER_LEN..).step_by(HEADER_LEN)) {
            put(&mut this.head, at, &id.to_le_bytes());
            put(&mut this.head, at + 2, &[1]);
            put(&mut this.head, at + 4, &u32::to_le_bytes(offset));
            put(&mut this.head, at + 8, &u32::to_le_bytes(len));
        }
        // Both interrupts are supported, by message number 0; the kind is repeated in bits 22:19 of the
        // capabilities.
        let caps = u32::from(shift) | 0x60 | u32::from(kind.bits()) << 19;
        put(&mut this.registers, CAPABILITIES, &caps.to_le_bytes());
        Ok(this)
    }

    /// Length of the block in bytes; the space left in its BAR must be at least as long.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.head.len() + self.registers.len()
    }

    /// Always false: a block has registers.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Longest payload, in bytes.
    #[must_use]
    pub const fn payload_max(&self) -> usize {
        self.registers.len() - PAYLOAD
    }

    /// Whether a command runs in the foreground: the doorbell is set.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.control() & DOORBELL != 0
    }

    /// Reads the block from `offset` on, as the host does; 0 beyond its end.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let all = self.head.iter().chain(&self.registers);
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (to, byte) in bytes.iter_mut().zip(all.skip(from)) {
            *to = *byte;
        }
    }

    /// Applies a write of the host to `offset` of the block.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> MailboxEffects {
        // Writes below the mailbox hit the read-only head. While the doorbell is set the device owns the mailbox
        // (8.2.8.4), and the host could otherwise change a payload that is being executed.
        let mailbox = offset.checked_sub(MAILBOX_AT.into()).and_then(|at| usize::try_from(at).ok());
        let Some(at) = mailbox.filter(|_| !self.is_busy()) else {
            return MailboxEffects::default();
        };
        let mut rings = false;
        for (at, byte) in (at..self.registers.len()).zip(bytes) {
            let value = match at {
                CONTROL => {
                    rings = byte & DOORBELL != 0;
                    byte & (DOORBELL_INTERRUPT | BACKGROUND_INTERRUPT)
                }
                // Status and background status are read-only for the host.
                COMMAND..STATUS | PAYLOAD.. => *byte,
                _ => continue,
            };
            put(&mut self.registers, at, &[value]);
        }
        // The doorbell rings after all bytes of the write are stored, as it may come in one write with the command
        // behind it.
        if rings { self.ring() } else { MailboxEffects::default() }
    }

    /// Starts the command in the registers: the doorbell was rung.
    fn ring(&mut self) -> MailboxEffects {
        let control = self.control() | DOORBELL;
        put(&mut self.registers, CONTROL, &[control]);
        let [low, high, len @ .., _, _, _] = self.command();
        let [len_low, len_middle, len_high] = len;
        // The length has 21 bits (36:16 of the command register), so that 1 MiB itself fits.
        let len = u32::from_le_bytes([len_low, len_middle, len_high & 0x1F, 0]);
        let payload = usize::try_from(len).ok().filter(|len| *len <= self.payload_max());
        let payload = payload.and_then(|len| self.registers.get(PAYLOAD..PAYLOAD + len));
        if let Some(payload) = payload {
            let (opcode, payload) = (u16::from_le_bytes([low, high]), payload.to_vec());
            MailboxEffects { command: Some(Command { opcode, payload }), interrupt: false }
        } else {
            let interrupt = self.complete(code::PAYLOAD_LENGTH, 0, &[]);
            MailboxEffects { command: None, interrupt }
        }
    }

    /// Ends the running command with a return code, a vendor-specific status and its output; returns whether the
    /// host wants an interrupt. No command of a mailbox here continues in the background, so its background status
    /// stays zero.
    pub fn complete(&mut self, code: u16, vendor: u16, output: &[u8]) -> bool {
        // A reset of the function may have ended the command before its executor did.
        if !self.is_busy() {
            return false;
        }
        let fits = output.len() <= self.payload_max();
        let (code, output) = if fits { (code, output) } else { (code::INTERNAL, &[][..]) };
        put(&mut self.registers, PAYLOAD, output);
        // The reserved bits above the length are cleared with it.
        put(&mut self.registers, COMMAND + 2, &[0; 6]);
        let len = u32::try_from(output.len()).unwrap_or(0);
        put(&mut self.registers, COMMAND + 2, &len.to_le_bytes());
        put(&mut self.registers, STATUS + 4, &code.to_le_bytes());
        put(&mut self.registers, STATUS + 6, &vendor.to_le_bytes());
        // Cleared last: the host may use the result as soon as it reads the doorbell as 0.
        let control = self.control() & !DOORBELL;
        put(&mut self.registers, CONTROL, &[control]);
        control & DOORBELL_INTERRUPT != 0
    }

    /// Sets the event status of the device: a bit for each log that holds records.
    pub fn set_events(&mut self, logs: u8) {
        put(&mut self.head, STATUS_AT as usize, &[logs]);
    }

    /// Returns to idle, as the function was reset.
    pub fn reset(&mut self) {
        // Capabilities stay, as they describe the hardware; control, command, status and payload are cleared.
        if let Some(registers) = self.registers.get_mut(CONTROL..) {
            registers.fill(0);
        }
        self.set_events(0);
    }

    fn control(&self) -> u8 {
        self.registers.get(CONTROL).copied().unwrap_or(0)
    }

    fn command(&self) -> [u8; 8] {
        let bytes = self.registers.get(COMMAND..).and_then(|rest| rest.first_chunk());
        bytes.copied().unwrap_or_default()
    }
}

/// Copies `bytes` to `at`, as far as they fit.
fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, byte) in block.iter_mut().skip(at).zip(bytes) {
        *to = *byte;
    }
}

/// An entry of the capability array of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Capability id, such as [`ID_MAILBOX`].
    pub id: u16,
    /// Offset in the block, bytes.
    pub offset: u32,
    /// Length of the registers, bytes.
    pub len: u32,
}

/// Length of the capability array in bytes, header included, computed from its first 8 bytes.
#[must_use]
pub const fn array_len(first: [u8; 8]) -> usize {
    let [.., low, high, _, _] = first;
    HEADER_LEN * (1 + u16::from_le_bytes([low, high]) as usize)
}

/// Entries of the capability array at the start of `block`; empty if that is no array of device registers.
#[must_use]
pub fn capabilities(block: &[u8]) -> Vec<Capability> {
    // The array of device registers has capability id 0 in its first two bytes (8.2.8.1).
    let Some((&[0, 0, _, _, low, high, ..], rest)) = block.split_first_chunk::<HEADER_LEN>() else {
        return Vec::new();
    };
    let count = usize::from(u16::from_le_bytes([low, high]));
    let (headers, _) = rest.as_chunks::<HEADER_LEN>();
    let parse = |header: &[u8; HEADER_LEN]| {
        let [i0, i1, _, _, o0, o1, o2, o3, l0, l1, l2, l3, ..] = *header;
        Capability {
            id: u16::from_le_bytes([i0, i1]),
            offset: u32::from_le_bytes([o0, o1, o2, o3]),
            len: u32::from_le_bytes([l0, l1, l2, l3]),
        }
    };
    // Fewer headers than `count` where the caller has read less of the block, or the count is wrong.
    headers.iter().take(count).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;

    const AT: u64 = MAILBOX_AT as u64;

    fn mailbox() -> Mailbox {
        Mailbox::new(BlockKind::Switch, 8).unwrap()
    }

    fn get<const N: usize>(mailbox: &Mailbox, offset: u64) -> [u8; N] {
        let mut bytes = [0xEE; N];
        mailbox.read(offset, &mut bytes);
        bytes
    }

    /// Sends a command as a driver does: payload, command register, doorbell.
    fn send(mailbox: &mut Mailbox, opcode: u16, payload: &[u8], control: u8) -> MailboxEffects {
        mailbox.write(AT + 0x20, payload);
        let command = u64::from(opcode) | (payload.len() as u64) << 16;
        mailbox.write(AT + 8, &command.to_le_bytes());
        mailbox.write(AT + 4, &[control | 1, 0, 0, 0])
    }

    #[test]
    fn a_host_finds_the_mailbox_in_the_block() {
        for (kind, count) in [(BlockKind::Switch, 2), (BlockKind::Memory, 3)] {
            let mailbox = Mailbox::new(kind, 11).unwrap();
            assert_eq!(get(&mailbox, 0), [0, 0, 1, kind.bits(), count, 0, 0, 0], "{kind:?}");
            let head: [u8; 0x80] = get(&mailbox, 0);
            assert_eq!(array_len(get(&mailbox, 0)), 16 * (1 + usize::from(count)));
            let found = capabilities(&head[..array_len(get(&mailbox, 0))]);
            assert_eq!(found.len(), usize::from(count), "{kind:?}");
            let want = Capability { id: ID_MAILBOX, offset: 0x100, len: 0x820 };
            assert!(found.contains(&want), "{kind:?}");
            assert_eq!(u32::from_le_bytes(get(&mailbox, AT)) & 0x1F, 11, "payload of 2^11");
            let ready: [u8; 1] = get(&mailbox, MEMORY_AT.into());
            assert_eq!(ready, [if kind == BlockKind::Memory { READY } else { 0 }]);
            for len in 0..head.len() {
                assert!(capabilities(&head[..len]).len() <= (len / 16).saturating_sub(1));
            }
        }
        assert_eq!(capabilities(&[1; 64]), [], "another kind of block");
        for shift in [0, 7, 21, 255] {
            let refused = Mailbox::new(BlockKind::Switch, shift);
            assert_eq!(refused, Err(MailboxError::Payload { shift }));
        }
    }

    #[test]
    fn a_command_goes_in_and_its_result_comes_out() {
        let mut mailbox = mailbox();
        assert_eq!(mailbox.write(AT + 4, &[0]), MailboxEffects::default());
        let effects = send(&mut mailbox, 0x5804, &[1, 2, 3], 0);
        let want = Command { opcode: 0x5804, payload: vec![1, 2, 3] };
        assert_eq!(effects, MailboxEffects { command: Some(want), interrupt: false });
        assert!(mailbox.is_busy());
        assert_eq!(get(&mailbox, AT + 4), [1, 0, 0, 0], "the doorbell stands");
        let running = mailbox.clone();
        assert_eq!(send(&mut mailbox, 1, &[9; 9], 2), MailboxEffects::default());
        assert_eq!(mailbox, running, "nothing is taken while it runs");

        assert!(!mailbox.complete(code::SUCCESS, 0x1234, &[7; 200]), "no interrupt wanted");
        assert_eq!(get(&mailbox, AT + 4), [0; 4]);
        assert_eq!(get(&mailbox, AT + 8), [0x04, 0x58, 200, 0, 0, 0, 0, 0]);
        assert_eq!(get(&mailbox, AT + 0x10), [0, 0, 0, 0, 0, 0, 0x34, 0x12]);
        assert_eq!(get(&mailbox, AT + 0x20), [7; 200]);
        let idle = mailbox.clone();
        assert!(!mailbox.complete(2, 2, &[2]), "nothing runs");
        assert_eq!(mailbox, idle);
    }

    #[test]
    fn lengths_are_checked_on_both_ways() {
        #[rustfmt::skip] // columns: name, control, length, executed, code, interrupt
        let cases = [
            ("nothing",          0, 0,         true,  0x00, false),
            ("all",              0, 256,       true,  0x00, false),
            ("one more",         0, 257,       false, 0x16, false),
            ("with interrupt",   2, 257,       false, 0x16, true),
            ("most of 21 bits",  0, 0x1F_FFFF, false, 0x16, false),
        ];
        for (name, control, len, executed, want, interrupt) in cases {
            let mut mailbox = mailbox();
            mailbox.write(AT + 8, &u64::to_le_bytes(0x5800 | len << 16));
            let effects = mailbox.write(AT + 4, &[control | 1]);
            assert_eq!(effects.command.is_some(), executed, "{name}");
            assert_eq!(effects.interrupt, interrupt, "{name}");
            if executed {
                mailbox.complete(code::SUCCESS, 0, &[]);
            }
            let [_, _, _, _, low, high, ..]: [u8; 8] = get(&mailbox, AT + 0x10);
            assert_eq!(u16::from_le_bytes([low, high]), want, "{name}");
            assert!(!mailbox.is_busy(), "{name}");
        }
        let mut mailbox = mailbox();
        send(&mut mailbox, 1, &[], 0);
        mailbox.complete(code::SUCCESS, 0, &[1; 257]);
        assert_eq!(get(&mailbox, AT + 0x14), [0x04, 0], "an output too long is no success");
        assert_eq!(get(&mailbox, AT + 0x20), [0; 4]);
    }

    #[test]
    fn a_reset_leaves_an_idle_mailbox() {
        let mut mailbox = mailbox();
        let fresh = mailbox.clone();
        mailbox.set_events(0b101);
        assert_eq!(get(&mailbox, STATUS_AT.into()), [0b101]);
        send(&mut mailbox, 0x5201, &[1; 256], 6);
        mailbox.complete(code::INTERNAL, 0, &[]);
        send(&mut mailbox, 0x5202, &[1; 256], 6);
        mailbox.reset();
        assert_eq!(mailbox, fresh);
    }

    /// Writes of any length and offset, some past the end, change writable registers only.
    #[test]
    fn random_writes_keep_to_the_mailbox() {
        let mut rng = Rng::new(0x003A_11B0);
        let mut mailbox = mailbox();
        let fresh = mailbox.clone();
        for _ in 0..20_000 {
            let near = rng.below(0x300);
            let offset = if rng.chance(1, 50) { rng.next_u64() } else { near };
            let bytes = rng.next_u64().to_le_bytes();
            let len = usize::try_from(rng.below(9)).unwrap();
            let effects = mailbox.write(offset, &bytes[..len]);
            if let Some(command) = effects.command {
                assert!(command.payload.len() <= mailbox.payload_max() && mailbox.is_busy());
                mailbox.complete(code::SUCCESS, 0, &bytes[..len]);
            }
            assert!(!mailbox.is_busy());
            assert_eq!(get::<0x104>(&mailbox, 0), get::<0x104>(&fresh, 0));
            assert_eq!(get::<8>(&mailbox, AT + 0x18), [0; 8]);
            assert_eq!(mailbox.len(), fresh.len());
        }
        assert_eq!(get::<4>(&mailbox, u64::MAX), [0; 4], "nothing is there");
    }
}
