//! `weft endpoint ctl DEVICE intx`: a device's legacy interrupt.

use clap::{Args, Subcommand};
use weft_lab::endpoint::Command;

/// What becomes of the level.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum Intx {
    /// Assert it, until it is deasserted
    Assert(Whose),
    /// Deassert it
    Deassert(Whose),
}

/// Whose it is.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Whose {
    /// Which function
    #[arg(long, default_value_t = 0, conflicts_with = "pin")]
    function: u8,
    /// Instead: the first function with this pin, A to D
    #[arg(long, value_parser = pin)]
    pin: Option<u8>,
    /// Which logical device, of a device that has some
    #[arg(long)]
    ld: Option<u8>,
}

/// Number of the first function with a pin: function n has pin n, counted from A, modulo 4.
fn pin(letter: &str) -> Result<u8, String> {
    match letter {
        "A" | "a" => Ok(0),
        "B" | "b" => Ok(1),
        "C" | "c" => Ok(2),
        "D" | "d" => Ok(3),
        _ => Err(format!("expected A to D, found {letter:?}")),
    }
}

impl Intx {
    pub(super) fn command(self) -> Command {
        let (on, Whose { function, pin, ld }) = match self {
            Self::Assert(whose) => (true, whose),
            Self::Deassert(whose) => (false, whose),
        };
        Command::Intx { on, function: pin.unwrap_or(function), ld }
    }
}
