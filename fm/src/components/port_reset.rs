//! Resets of the component at a switch port (5102h).
//!
//! Source: CXL 3.1 section 7.6.7.1.3 (Physical Port Control); docs/spec/cxl-fabric.md "Resets".

use serde::{Deserialize, Serialize};
use weft_parsers::cci::Request;
use weft_parsers::cci::switch::{PortControl, PortOp};

/// A reset of the component at a switch port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum PortReset {
    /// Hot reset, once.
    Reset,
    /// Assert PERST#: the component stays in reset until PERST# is deasserted.
    AssertPerst,
    /// Deassert PERST#.
    DeassertPerst,
}

impl PortReset {
    #[must_use]
    pub const fn request(self, port: u8) -> Request<'static> {
        let op = match self {
            Self::Reset => PortOp::ResetPpb,
            Self::AssertPerst => PortOp::AssertPerst,
            Self::DeassertPerst => PortOp::DeassertPerst,
        };
        Request::PortControl(PortControl { port, op })
    }

    /// Words for an answer: the state of the component after it.
    #[must_use]
    pub const fn done(self) -> &'static str {
        match self {
            Self::Reset => "is reset",
            Self::AssertPerst => "is held in reset",
            Self::DeassertPerst => "is let out of reset",
        }
    }
}
