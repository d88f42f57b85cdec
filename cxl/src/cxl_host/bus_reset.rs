//! Secondary bus reset as software does it: the bridge resets the bus below it, and releases it. [`BusReset::step`]
//! returns the next [`Step`], [`BusReset::answer`] takes its answer.
//!
//! Source: PCI-to-PCI Bridge 1.2 §3.2.5.18; PCIe 6.0 sections 6.6.1 (100 ms from the end of a reset, or from the link
//! that is up again, to the first configuration request) and 7.5.1.3.13.

use weft_parsers::fabric::Bdf;

use crate::pci::regs::{self, bridge_control, express};
use crate::pci::{ByteEnables, Reg};

/// Duration of the reset.
const HOLD_NS: u64 = 2_000_000;
/// Pause between two checks whether the link is up again, and most checks.
const LOOK_NS: u64 = 10_000_000;
const LOOKS_MAX: u16 = 1_000;
/// Time that devices get to recover before the first configuration request.
const RECOVER_NS: u64 = 100_000_000;
/// Byte enable of the doubleword's byte that has the reset bit.
const CONTROL_BYTE: u8 = 0b0100;
/// Byte enables of the slot status, the upper half of a doubleword with the slot control.
const STATUS_BYTES: u8 = 0b1100;

/// Next step of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read a register of the bridge.
    Read(Reg),
    /// Write one byte of the bridge control.
    Write(Reg, u32, ByteEnables),
    /// Let time pass.
    Wait { ns: u64 },
    /// The reset is over; the bus below may be enumerated.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Begin,
    Assert,
    Hold,
    Deassert,
    Pause,
    Look,
    Recover,
    Clear,
    Over,
}

/// One reset of the bus below a bridge.
#[derive(Clone, Debug)]
pub(super) struct BusReset {
    pub bdf: Bdf,
    /// Offset of its PCI Express capability, if it has a link whose status can be read.
    express: Option<u16>,
    /// Whether it has a slot, whose status has recorded the link going down and up.
    slot: bool,
    at: At,
    control: u32,
    looks: u16,
}

impl BusReset {
    /// A reset of the bus below `bdf`. With `express` the link status is awaited; with `slot` the slot's events are
    /// cleared at the end.
    pub(super) const fn new(bdf: Bdf, express: Option<u16>, slot: bool) -> Self {
        Self { bdf, express, slot, at: At::Begin, control: 0, looks: 0 }
    }

    /// The next step; the same one until it is answered.
    pub(super) fn step(&self) -> Step {
        let control = Reg::at(regs::BRIDGE_CONTROL);
        let enables = ByteEnables::from_low_bits(CONTROL_BYTE);
        let bit = u32::from(bridge_control::RESET) << 16;
        match self.at {
            At::Begin => Step::Read(control),
            At::Assert => Step::Write(control, self.control | bit, enables),
            At::Hold => Step::Wait { ns: HOLD_NS },
            At::Deassert => Step::Write(control, self.control & !bit, enables),
            At::Pause => Step::Wait { ns: LOOK_NS },
            At::Look => match self.express {
                Some(at) => Step::Read(Reg::at(at + express::LINK_STA)),
                None => Step::Wait { ns: 0 },
            },
            At::Recover => Step::Wait { ns: RECOVER_NS },
            At::Clear => {
                let reg = Reg::at(self.express.unwrap_or(0) + express::SLOT_STA);
                // Write 1 to clear; the slot control in the other half is not enabled for writing.
                let events = express::SLOT_STA_PRESENCE | express::SLOT_STA_LINK;
                let enables = ByteEnables::from_low_bits(STATUS_BYTES);
                Step::Write(reg, u32::from(events) << 16, enables)
            }
            At::Over => Step::Over,
        }
    }

    /// Takes the answer to the step; `None` if there was none.
    pub(super) fn answer(&mut self, value: Option<u32>) {
        self.at = match self.at {
            At::Begin => match value {
                Some(value) => {
                    self.control = value;
                    At::Assert
                }
                None => At::Over, // the bridge itself is gone
            },
            At::Assert => At::Hold,
            At::Hold => At::Deassert,
            At::Deassert => At::Pause,
            At::Pause => At::Look,
            At::Look => self.looked(value),
            // Events of a reset that software ordered must not count as a hot-plug.
            At::Recover if self.slot && self.express.is_some() => At::Clear,
            At::Recover | At::Clear | At::Over => At::Over,
        };
    }

    fn looked(&mut self, value: Option<u32>) -> At {
        self.looks += 1;
        let Some(at) = self.express else { return At::Recover };
        // Link Status is the upper half of a doubleword with Link Control.
        let half = u32::from((at + express::LINK_STA) & 2) * 8;
        let active =
            value.is_some_and(|value| value >> half & u32::from(express::LINK_STA_ACTIVE) != 0);
        if active || self.looks == LOOKS_MAX { At::Recover } else { At::Pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIDGE: Bdf = Bdf::from_bits(0x0108);

    /// Answers each step; the link is up after `active_after` looks. Returns the values written, and the number of
    /// looks.
    fn run(express: Option<u16>, active_after: u16) -> (Vec<u32>, u16) {
        let mut reset = BusReset::new(BRIDGE, express, false);
        let (mut writes, mut looks) = (Vec::new(), 0);
        for _ in 0..5_000 {
            let value = match reset.step() {
                Step::Over => return (writes, looks),
                Step::Read(reg) if reg == Reg::at(regs::BRIDGE_CONTROL) => Some(0x0003_01FF),
                Step::Read(_) => {
                    looks += 1;
                    let up = looks > active_after;
                    Some(if up { u32::from(express::LINK_STA_ACTIVE) << 16 } else { 0 })
                }
                Step::Write(reg, value, enables) => {
                    assert_eq!(reg, Reg::at(regs::BRIDGE_CONTROL));
                    assert_eq!(enables, ByteEnables::from_low_bits(0b0100), "nothing else of it");
                    writes.push(value);
                    None
                }
                Step::Wait { .. } => None,
            };
            reset.answer(value);
        }
        panic!("it does not end");
    }

    #[test]
    fn the_bit_is_set_and_cleared_and_the_link_waited_for() {
        assert_eq!(run(Some(0x40), 3), (vec![0x0043_01FF, 0x0003_01FF], 4));
        assert_eq!(run(None, 0), (vec![0x0043_01FF, 0x0003_01FF], 0), "no link of its own");
        assert_eq!(run(Some(0x40), u16::MAX).1, LOOKS_MAX, "not for ever");
    }

    #[test]
    fn a_bridge_that_is_gone_is_not_reset() {
        let mut reset = BusReset::new(BRIDGE, None, false);
        reset.answer(None);
        assert_eq!(reset.step(), Step::Over);
    }
}
