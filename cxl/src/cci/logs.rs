//! The list of a component's commands, their permitted senders, and the Command Effects Log.
//!
//! A [`Command`] has an opcode, effects and permitted senders; the log has 4 bytes for each.
//!
//! Units: bytes; little-endian.
//! Source: CXL 3.1 section 8.2.9.5.2.1 (Command Effects Log); docs/spec/wire-formats.md §4.4 (who may use what).

use weft_parsers::cci::generic::GetLog;
use weft_parsers::cci::{Opcode, ReturnCode, Uuid};

use super::ownership::Rank;
use super::session::Session;

/// UUID of the Command Effects Log.
pub const COMMAND_EFFECTS: Uuid = [
    0x0D, 0xA9, 0xC0, 0xB5, 0xBF, 0x41, 0x4B, 0x78, 0x8F, 0x79, 0x96, 0xB1, 0x62, 0x3B, 0x3F, 0x17,
];

/// Effects of a command besides its response: bits of the Command Effects Log.
pub mod effect {
    /// The command changes nothing.
    pub const NONE: u16 = 0;
    /// The configuration changes at once.
    pub const CONFIG: u16 = 1 << 1;
    /// Data changes at once.
    pub const DATA: u16 = 1 << 2;
    /// A policy changes at once.
    pub const POLICY: u16 = 1 << 3;
    /// A log changes at once.
    pub const LOG: u16 = 1 << 4;
    /// The command continues in the background.
    pub const BACKGROUND: u16 = 1 << 6;
}

/// Permitted senders of a command, as bits.
pub mod who {
    /// The primary fabric manager.
    pub const PRIMARY: u8 = 1 << 0;
    /// Any fabric manager, and any other sender from the fabric.
    pub const ANY_FM: u8 = 1 << 1;
    /// The host, by its mailbox.
    pub const HOST: u8 = 1 << 2;
    /// A host through the GAE that forwards its commands.
    pub const PROXY: u8 = 1 << 3;
    /// All four kinds of senders.
    pub const ALL: u8 = PRIMARY | ANY_FM | HOST | PROXY;
}

/// A command: opcode, effects and permitted senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    pub opcode: Opcode,
    /// Bits of [`effect`].
    pub effects: u16,
    /// Bits of [`who`].
    pub who: u8,
}

impl Command {
    /// A command that changes nothing.
    #[must_use]
    pub const fn get(opcode: Opcode, who: u8) -> Self {
        Self { opcode, effects: effect::NONE, who }
    }

    /// A command that changes the configuration.
    #[must_use]
    pub const fn set(opcode: Opcode, who: u8) -> Self {
        Self { opcode, effects: effect::CONFIG, who }
    }

    /// A command that changes the configuration in the background.
    #[must_use]
    pub const fn background(opcode: Opcode, who: u8) -> Self {
        Self { opcode, effects: effect::CONFIG | effect::BACKGROUND, who }
    }

    /// A command that changes the configuration and data.
    #[must_use]
    pub const fn set_with_data(opcode: Opcode, who: u8) -> Self {
        Self { opcode, effects: effect::CONFIG | effect::DATA, who }
    }

    /// A command that changes a policy.
    #[must_use]
    pub const fn policy(opcode: Opcode, who: u8) -> Self {
        Self { opcode, effects: effect::POLICY, who }
    }

    /// A command that changes a log.
    #[must_use]
    pub const fn log(opcode: Opcode, who: u8) -> Self {
        Self { opcode, effects: effect::LOG, who }
    }

    /// Whether `session`, which has `rank`, may send it.
    #[must_use]
    pub const fn is_for(&self, session: Session, rank: Rank) -> bool {
        let wanted = match (session, rank) {
            (Session::Host { .. }, _) => who::HOST,
            (Session::Proxy(_), _) => who::PROXY,
            // The primary is a fabric manager as well, so it may send what any manager may.
            (_, Rank::Primary) => who::PRIMARY | who::ANY_FM,
            _ => who::ANY_FM,
        };
        self.who & wanted != 0
    }
}

/// The Command Effects Log of `commands`, in order of opcodes.
pub fn command_effects<'a>(commands: impl Iterator<Item = &'a Command>) -> Vec<u8> {
    let mut all: Vec<(u16, u16)> = commands.map(|it| (it.opcode.0, it.effects)).collect();
    // Sorted, so that the log does not depend on how the tables of a component are joined.
    all.sort_unstable();
    all.iter()
        .flat_map(|&(opcode, effects)| [opcode.to_le_bytes(), effects.to_le_bytes()])
        .flatten()
        .collect()
}

/// The part of `log` that Get Log (0401h) requests.
///
/// # Errors
/// Invalid Log: the request names another log. Invalid Input: the range exceeds the log.
pub fn part<'a>(log: &'a [u8], get: &GetLog) -> Result<&'a [u8], ReturnCode> {
    if get.log != COMMAND_EFFECTS {
        return Err(ReturnCode::InvalidLog);
    }
    let from = usize::try_from(get.offset).map_err(|_| ReturnCode::InvalidInput)?;
    let len = usize::try_from(get.len).map_err(|_| ReturnCode::InvalidInput)?;
    let rest = log.get(from..).ok_or(ReturnCode::InvalidInput)?;
    rest.get(..len).ok_or(ReturnCode::InvalidInput)
}
