//! CCI messages: header, return codes, and the payload of each command.
//!
//! [`Header`] in front, then [`Request`] or [`Response`] by opcode; lists are views over bytes. All
//! integers are little-endian.
//!
//! Source: docs/spec/wire-formats.md §4; CXL 3.1 sections 7.6.7, 7.7.13, 8.2.9.
//!
//! Only the form is checked here: lengths, counts, reserved codes. The component decides who may
//! send a command and whether it makes sense now. Reserved bits are ignored when read and zero when
//! written.
//!
//! ```
//! use weft_parsers::cci::{Header, Opcode, Request};
//! let message = [0, 3, 0, 9, 0x57, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0x23, 1, 1, 5];
//! let (header, payload) = Header::parse(&message)?;
//! let Ok(Request::SetDrt(set)) = Request::parse(header.opcode, payload) else { panic!() };
//! assert_eq!((header.opcode, set.start, set.entries.len()), (Opcode::SET_DRT, 0x123, 1));
//! # Ok::<(), weft_parsers::ParseError>(())
//! ```

pub mod commands;
pub mod component;
pub mod dcd;
pub mod events;
pub mod gae;
pub mod generic;
pub mod gfd;
pub mod gfd_access;
pub mod header;
pub mod host_dc;
mod layout;
pub mod ld;
pub mod mctp;
pub mod mld;
pub mod nest;
pub mod notify;
pub mod opcode;
pub mod pbr;
pub mod switch;
pub mod tables;
#[cfg(test)]
mod tests;
pub mod vcs;
pub mod wire;

pub use commands::{Request, RequestError, Response};
pub use header::{Category, Header, ReturnCode};
pub use opcode::Opcode;
pub use wire::{Bits, List, Payload, Uuid, Wire};
