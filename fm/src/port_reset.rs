//! Resets of what is at a port of a switch (5102h).
//!
//! [`PortReset`], and the command that it is.
//!
//! Source: CXL 3.1 section 7.6.7.1.3 (Physical Port Control); docs/spec/cxl-fabric.md "Resets".

use serde::{Deserialize, Serialize};
use weft_parsers::cci::Request;
use weft_parsers::cci::switch::{PortControl, PortOp};

/// A reset of what is at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum PortReset {
    /// Hot reset.
    Reset,
    /// Resets it until PERST# is deasserted.
    AssertPerst,
    /// Ends that.
    DeassertPerst,
}

impl PortReset {
    /// The command to the switch.
    #[must_use]
    pub const fn request(self, port: u8) -> Request<'static> {
        let op = match self {
            Self::Reset => PortOp::ResetPpb,
            Self::AssertPerst => PortOp::AssertPerst,
            Self::DeassertPerst => PortOp::DeassertPerst,
        };
        Request::PortControl(PortControl { port, op })
    }

    /// What has become of the device.
    #[must_use]
    pub const fn done(self) -> &'static str {
        match self {
            Self::Reset => "is reset",
            Self::AssertPerst => "is held in reset",
            Self::DeassertPerst => "is let out of reset",
        }
    }
}
