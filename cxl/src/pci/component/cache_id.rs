//! `CacheID`s below a switch: route table of its upstream port, and decoders of its downstream ports.
//!
//! Software writes the registers; their owner decides about a commit: [`Commit::take`] returns a requested one,
//! [`Commit::end`] records its result. [`CacheIdTable::wanted`] and [`CacheIdDecoder::in_force`] are the settings.
//! A `CacheID` has 4 bits; ports are numbered as in Link Capabilities.
//!
//! Source: CXL 3.1 sections 8.2.4.28, 8.2.4.29; docs/spec/wire-formats.md §3.11.

/// Register offsets in both structures, and their bits.
pub mod regs {
    /// Capability register of both structures.
    pub const CAP: u16 = 0x00;
    /// Control register of both structures.
    pub const CONTROL: u16 = 0x04;
    /// Status register of both structures.
    pub const STATUS: u16 = 0x08;
    /// Status: the last commit succeeded.
    pub const COMMITTED: u32 = 1;
    /// Status: the last commit was refused.
    pub const ERROR: u32 = 1 << 1;

    /// Table: offset of the first target; each has 2 bytes.
    pub const TARGETS: u16 = 0x10;
    /// Table: number of targets, one for each `CacheID`.
    pub const TARGET_COUNT: u8 = 16;
    /// Capability of the table: software must commit changes.
    pub const TABLE_EXPLICIT: u32 = 1 << 16;
    /// Control of the table: request to commit.
    pub const TABLE_COMMIT: u32 = 1;
    /// Target: Valid.
    pub const VALID: u16 = 1;

    /// Capability of a decoder: software must commit changes.
    pub const DECODER_EXPLICIT: u32 = 1;
    /// Control of a decoder: messages from below keep the `CacheID` that they carry.
    pub const FORWARD: u32 = 1;
    /// Control of a decoder: messages from below get the Local `CacheID`.
    pub const ASSIGN: u32 = 1 << 1;
    /// Control of a decoder: an HDM-D device is below.
    pub const HDM_D: u32 = 1 << 2;
    /// Control of a decoder: request to commit.
    pub const DECODER_COMMIT: u32 = 1 << 3;
    /// Control of a decoder: lowest bit of the Local `CacheID`.
    pub const LOCAL: u32 = 16;
}

/// Length of the table in bytes, targets included.
const TABLE_LEN: u16 = regs::TARGETS + 2 * regs::TARGET_COUNT as u16;
/// Length of a decoder in bytes.
const DECODER_LEN: u16 = 0x0C;
/// Time for a commit of the table: 3 × 100 ms, enough for two updates with all tries, one after the other.
const TABLE_TIME: u32 = 5 << 8 | 3 << 12;
/// Time for a commit of a decoder: 1 µs, the shortest that can be expressed, as it ends at once.
const DECODER_TIME: u32 = 1 << 12;
/// Bits of a target that software may write: port and Valid.
const TARGET_BITS: u16 = 0xFF00 | regs::VALID;
/// Bits of a decoder's control that software may write.
const DECODER_BITS: u32 =
    regs::FORWARD | regs::ASSIGN | regs::HDM_D | regs::DECODER_COMMIT | 0xF00 | 0xF << regs::LOCAL;

//= CXL 3.1 sections 8.2.4.28.3 and 8.2.4.29.3: from 0 to 1 commits, from 1 to 0 clears what came of it
/// A commit bit, and the result of the commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    is_set: bool,
    /// The owner has not taken it yet.
    is_new: bool,
    /// Counts commits, so that a late result cannot be taken for that of a newer commit.
    number: u64,
    outcome: Option<bool>,
}

impl Commit {
    const fn write(&mut self, bit: bool) {
        // Writing the value that the bit has neither commits again nor clears the result.
        if self.is_set == bit {
            return;
        }
        (self.is_set, self.is_new, self.outcome) = (bit, bit, None);
        if bit {
            self.number += 1;
        }
    }

    /// Takes a requested commit, by its number; each is returned once.
    pub const fn take(&mut self) -> Option<u64> {
        if core::mem::replace(&mut self.is_new, false) { Some(self.number) } else { None }
    }

    /// Records whether commit `number` succeeded; ignored if software has withdrawn it meanwhile.
    pub const fn end(&mut self, number: u64, is_done: bool) {
        if self.is_set && self.number == number {
            self.outcome = Some(is_done);
        }
    }

    const fn status(&self) -> u32 {
        match self.outcome {
            None => 0,
            Some(true) => regs::COMMITTED,
            Some(false) => regs::ERROR,
        }
    }
}

/// Route table of an upstream port: the downstream port that each `CacheID` is behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheIdTable {
    /// State of the table's commit bit.
    pub commit: Commit,
    targets: Targets,
    /// Targets as they were when the last commit was requested.
    wanted: Targets,
}

type Targets = [u16; regs::TARGET_COUNT as usize];

impl CacheIdTable {
    /// Targets of the last requested commit: (`CacheID`, port number) of each valid one.
    pub fn wanted(&self) -> impl Iterator<Item = (u8, u8)> {
        let valid = |(_, target): &(u8, &u16)| **target & regs::VALID != 0;
        let all = (0..regs::TARGET_COUNT).zip(&self.wanted).filter(valid);
        all.map(|(cache_id, target)| (cache_id, target.to_be_bytes()[0]))
    }

    /// Length of the structure in bytes.
    #[expect(clippy::unused_self, reason = "as of structures whose length varies")]
    pub(super) const fn len(&self) -> u16 {
        TABLE_LEN
    }

    pub(super) fn read(&self, at: u16) -> u32 {
        match at {
            regs::CAP => u32::from(regs::TARGET_COUNT) | regs::TABLE_EXPLICIT,
            regs::CONTROL if self.commit.is_set => regs::TABLE_COMMIT,
            regs::STATUS => self.commit.status() | TABLE_TIME,
            _ => {
                let number = usize::from(at.saturating_sub(regs::TARGETS) / 2);
                let target = |number| self.targets.get(number).copied().map_or(0, u32::from);
                let is_target = at >= regs::TARGETS;
                if is_target { target(number) | target(number + 1) << 16 } else { 0 }
            }
        }
    }

    pub(super) fn write(&mut self, at: u16, value: u32, mask: u32) {
        if at == regs::CONTROL && mask & regs::TABLE_COMMIT != 0 {
            self.commit.write(value & regs::TABLE_COMMIT != 0);
            // Targets are copied at this moment: writes behind it in the same burst belong to the next commit.
            self.wanted = if self.commit.is_new { self.targets } else { self.wanted };
        }
        let Some(first) = at.checked_sub(regs::TARGETS) else { return };
        let halves = [(value, mask), (value >> 16, mask >> 16)];
        for (target, (value, mask)) in
            self.targets.iter_mut().skip(usize::from(first / 2)).zip(halves)
        {
            let low =
                |word: u32| u16::from_le_bytes([word.to_le_bytes()[0], word.to_le_bytes()[1]]);
            let mask = low(mask) & TARGET_BITS;
            *target = (*target & !mask) | (low(value) & mask);
        }
    }
}

/// Settings of a decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoding {
    /// Messages from below keep the `CacheID` that they carry.
    pub forwards: bool,
    /// Messages from below get this `CacheID`.
    pub assigns: Option<u8>,
    /// An HDM-D device is below.
    pub hdm_d: bool,
}

impl Decoding {
    const fn of(control: u32) -> Self {
        let [.., local, _] = control.to_le_bytes();
        let assigns = if control & regs::ASSIGN == 0 { None } else { Some(local & 0xF) };
        let forwards = control & regs::FORWARD != 0;
        Self { forwards, assigns, hdm_d: control & regs::HDM_D != 0 }
    }

    /// Whether messages with this `CacheID` may come from below.
    #[must_use]
    pub fn has(self, cache_id: u8) -> bool {
        self.forwards || self.assigns == Some(cache_id)
    }
}

//= docs/spec/cxl-fabric.md "CacheID": which decoders may be committed
/// Ends the requested commits of all decoders of one switch, in order of the ports: a `CacheID` may be assigned by
/// one decoder only, and HDM-D is refused. Returns whether there were any.
pub fn commit_decoders(decoders: &mut [&mut CacheIdDecoder]) -> bool {
    let mut any = false;
    for at in 0..decoders.len() {
        let asked = decoders.get_mut(at).map(|it| (it.commit.take(), it.wanted()));
        let Some((Some(number), wanted)) = asked else { continue };
        let others = decoders.iter().enumerate().filter(|(other, _)| *other != at);
        // Against settings in force, not requested ones: of two that request the same `CacheID` the first one wins.
        let mut assigned = others.filter_map(|(_, it)| it.in_force().assigns);
        let is_taken = wanted.assigns.is_some_and(|id| assigned.any(|other| other == id));
        if let Some(decoder) = decoders.get_mut(at) {
            decoder.end(number, !is_taken && !wanted.hdm_d);
        }
        any = true;
    }
    any
}

/// Decoder of a downstream port: the `CacheID`s of devices below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheIdDecoder {
    /// State of the decoder's commit bit.
    pub commit: Commit,
    control: u32,
    in_force: Decoding,
}

impl CacheIdDecoder {
    /// Settings that a commit would put into force.
    #[must_use]
    pub const fn wanted(&self) -> Decoding {
        Decoding::of(self.control)
    }

    /// Settings of the last successful commit; register changes wait for the next one.
    #[must_use]
    pub const fn in_force(&self) -> Decoding {
        self.in_force
    }

    /// Ends a commit; on success the settings in the registers are in force.
    pub const fn end(&mut self, number: u64, is_done: bool) {
        if is_done {
            self.in_force = self.wanted();
        }
        self.commit.end(number, is_done);
    }

    /// Length of the structure in bytes.
    #[expect(clippy::unused_self, reason = "as of structures whose length varies")]
    pub(super) const fn len(&self) -> u16 {
        DECODER_LEN
    }

    pub(super) const fn read(&self, at: u16) -> u32 {
        match at {
            regs::CAP => regs::DECODER_EXPLICIT,
            regs::CONTROL => self.control,
            regs::STATUS => self.commit.status() | DECODER_TIME,
            _ => 0,
        }
    }

    pub(super) const fn write(&mut self, at: u16, value: u32, mask: u32) {
        if at != regs::CONTROL {
            return;
        }
        let mask = mask & DECODER_BITS;
        self.control = (self.control & !mask) | (value & mask);
        self.commit.write(self.control & regs::DECODER_COMMIT != 0);
    }
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;
    use crate::pci::component::{Component, LEN, PRIMARY, Structure};

    const AT: u64 = PRIMARY + 0x10;

    fn table() -> Component {
        Component::new(vec![Structure::CacheIdTable(CacheIdTable::default())]).unwrap()
    }

    fn decoder() -> Component {
        Component::new(vec![Structure::CacheIdDecoder(CacheIdDecoder::default())]).unwrap()
    }

    fn bytes<const N: usize>(block: &Component, at: u64) -> [u8; N] {
        let mut bytes = [0xEE; N];
        block.read(at, &mut bytes);
        bytes
    }

    fn word(block: &Component, at: u16) -> u32 {
        u32::from_le_bytes(bytes(block, AT + u64::from(at)))
    }

    fn set(block: &mut Component, at: u16, value: u32) {
        block.write(AT + u64::from(at), &value.to_le_bytes());
    }

    //= docs/spec/wire-formats.md 3.11: the worked bytes
    #[test]
    fn registers_stand_as_the_page_has_them() {
        let mut block = table();
        assert_eq!(bytes(&block, PRIMARY), [0x01, 0x00, 0x11, 0x01, 0x0D, 0x00, 0x01, 0x01]);
        assert_eq!(bytes(&block, AT), [0x10, 0, 1, 0, 0, 0, 0, 0, 0, 0x35, 0, 0, 0, 0, 0, 0]);
        block.write(AT + 0x1A, &[0x01, 0x02]);
        assert_eq!(bytes(&block, AT + 0x18), [0, 0, 1, 2, 0, 0, 0, 0]);
        assert_eq!(bytes(&block, AT + 0x30), [0; 4], "nothing behind the last target");
        let mut block = decoder();
        assert_eq!(bytes(&block, PRIMARY), [0x01, 0x00, 0x11, 0x01, 0x0E, 0x00, 0x01, 0x01]);
        block.write(AT + 4, &[0x0A, 0, 5, 0]);
        assert_eq!(bytes(&block, AT), [1, 0, 0, 0, 0x0A, 0, 5, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]);
        let wanted = Decoding { forwards: false, assigns: Some(5), hdm_d: false };
        assert_eq!(block.cache_id_decoder().unwrap().wanted(), wanted);
    }

    fn commit(block: &mut Component) -> &mut Commit {
        &mut block.cache_id_table_mut().unwrap().commit
    }

    #[test]
    fn a_commit_is_from_0_to_1_and_taken_back_by_0() {
        let mut block = table();
        let status = |block: &Component| word(block, regs::STATUS) & 3;
        set(&mut block, regs::CONTROL, 1);
        assert_eq!((commit(&mut block).take(), commit(&mut block).take()), (Some(1), None));
        set(&mut block, regs::CONTROL, 1);
        assert_eq!(commit(&mut block).take(), None, "it is 1 already");
        assert_eq!((word(&block, regs::CONTROL), status(&block)), (1, 0));
        commit(&mut block).end(1, true);
        assert_eq!(status(&block), regs::COMMITTED);
        set(&mut block, regs::CONTROL, 0);
        assert_eq!((word(&block, regs::CONTROL), status(&block)), (0, 0));
        commit(&mut block).end(1, true);
        assert_eq!(status(&block), 0, "it was taken back");
        set(&mut block, regs::CONTROL, 1);
        commit(&mut block).end(1, true);
        assert_eq!(status(&block), 0, "that was of the one before");
        commit(&mut block).end(2, false);
        assert_eq!(status(&block), regs::ERROR);
        block.reset();
        assert_eq!(block, table());
    }

    #[test]
    fn what_is_committed_is_what_stood_there_then() {
        let mut block = table();
        block.write(AT + 0x10, &[1, 7, 1, 8]);
        // One write over control and targets: the commit comes first.
        let mut all = [0; 0x10];
        (all[0], all[0xC], all[0xD]) = (1, 1, 9);
        block.write(AT + 4, &all);
        let wanted = |block: &mut Component| {
            block.cache_id_table_mut().unwrap().wanted().collect::<Vec<_>>()
        };
        assert_eq!(wanted(&mut block), [(0, 7), (1, 8)]);
        assert_eq!(word(&block, 0x10), 0x0000_0901);
        set(&mut block, regs::CONTROL, 0);
        set(&mut block, regs::CONTROL, 1);
        assert_eq!(wanted(&mut block), [(0, 9)]);
        let mut block = decoder();
        set(&mut block, regs::CONTROL, 0x0003_000A);
        let decoder = block.cache_id_decoder_mut().unwrap();
        let number = decoder.commit.take().unwrap();
        decoder.end(number, true);
        let had = decoder.in_force();
        assert!(had.has(3) && !had.has(4));
        set(&mut block, regs::CONTROL, 0x0004_000A);
        let decoder = block.cache_id_decoder().unwrap();
        assert_eq!(decoder.in_force(), had, "until the next commit");
        assert!(Decoding { forwards: true, ..had }.has(4), "whatever is below has its own");
    }

    #[test]
    fn software_writes_what_it_may_and_no_more() {
        let mut rng = Rng::new(0xCAC4E);
        for (mut block, writable) in [
            (
                table(),
                [(0x04, 1)]
                    .into_iter()
                    .chain((0x10..0x30).step_by(4).map(|at| (at, 0xFF01_FF01)))
                    .collect::<Vec<_>>(),
            ),
            (decoder(), vec![(0x04, 0x000F_0F0F)]),
        ] {
            for _ in 0..20_000 {
                let len = usize::try_from(rng.below(70)).unwrap();
                let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
                let at = if rng.below(20) == 0 { rng.next_u64() } else { AT + rng.below(0x40) };
                block.write(at, &bytes);
                let mut all = vec![0; len];
                block.read(rng.below(LEN + 64), &mut all);
                for at in (0..0x40_u16).step_by(4) {
                    let may = writable.iter().find(|(one, _)| *one == at).map_or(0, |one| one.1);
                    let fixed = match (at, writable.len()) {
                        (0x00, 1) => 1,
                        (0x00, _) => 0x0001_0010,
                        (0x08, 1) => 0x1000,
                        (0x08, _) => 0x3500,
                        _ => 0,
                    };
                    let word = word(&block, at);
                    assert_eq!(word & !may, fixed, "{at:#x} {word:#x}");
                }
            }
        }
    }
}
