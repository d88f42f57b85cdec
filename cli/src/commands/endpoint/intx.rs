//! `weft endpoint ctl DEVICE intx`: a device's legacy interrupt.

use clap::{Args, Subcommand};
use weft_cxl::pci::intx::Pin;
use weft_lab::endpoint::Command;

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum Intx {
    /// Assert the interrupt; it stays asserted until it is deasserted
    Assert(Whose),
    /// Deassert the interrupt
    Deassert(Whose),
}

/// The function that interrupts.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Whose {
    /// Function number
    #[arg(long, default_value_t = 0, conflicts_with = "pin")]
    function: u8,
    /// Use the first function with this pin, A to D
    #[arg(long, value_parser = pin)]
    pin: Option<Pin>,
    /// Number of the logical device, for a device with logical devices
    #[arg(long)]
    ld: Option<u8>,
}

fn pin(text: &str) -> Result<Pin, String> {
    let letter = text.parse().ok();
    letter.and_then(Pin::from_letter).ok_or_else(|| format!("expected A to D, found {text:?}"))
}

impl Intx {
    pub(super) fn command(self) -> Command {
        let (on, Whose { function, pin, ld }) = match self {
            Self::Assert(whose) => (true, whose),
            Self::Deassert(whose) => (false, whose),
        };
        // Function n has pin n, counted from A, modulo 4.
        Command::Intx { on, function: pin.map_or(function, Pin::number), ld }
    }
}
