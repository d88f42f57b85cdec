//! PCIe and CXL.io TLPs, non-flit and flit mode, and the headers of a PBR link around them.
//!
//! [`Tlp`] reads bytes, [`TlpRepr`] emits them; `pth` and `link` are headers in front, `vdm`, `ln`
//! and `uio` contents that have a layout of their own. Lengths are in bytes or double words (DW, 4
//! bytes); all is big-endian.
//!
//! Source: docs/spec/wire-formats.md §3; PCIe 6.0 section 2.2; CXL 3.1 section 7.7.6.

pub mod completion;
pub mod convert;
pub mod fast;
pub mod fast_frame;
pub mod fields;
pub mod kind;
mod layout;
pub mod link;
pub mod link_reset;
pub mod ln;
pub mod mctp;
pub mod ohc;
pub mod prefix;
pub mod pth;
pub mod repr;
pub mod uio;
pub mod vdm;
pub mod view;

pub use completion::Completion;
pub use convert::{ConvertError, to_flit, to_non_flit, type1_to_type0};
pub use fast::{FastKind, FastTlp, fast_tlp};
pub use fields::{AddressSpace, At, Attr, DevLoad, Implicit, Pasid, Route, Status};
pub use kind::{Flow, Kind, Mode, Routing};
pub use link::{Oui, Protocol, TlpLink};
pub use link_reset::{LinkReset, ResetWord};
pub use mctp::MctpPacket;
pub use prefix::VendPrefixL0;
pub use pth::{PbrTlp, Pth};
pub use repr::{Body, EmitError, HEAD_LEN_MAX, TlpRepr};
pub use vdm::{PbrVdm, VdmOp};
pub use view::Tlp;

#[cfg(test)]
mod tests;
