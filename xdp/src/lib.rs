//! The fast path in the kernel, from user space: loads the program, attaches it, steers it.
//!
//! Shape: [`Xdp`] is one program with its maps, for all ports of a switch; [`object`] says whether
//! there is one in this build. What both sides know: [`layout`], [`rules`].
//! Units: octets, frames.
//! Source: architecture.md, "The fast path in the kernel".

mod btf;
mod error;
pub mod layout;
mod load;
pub mod rules;
mod stations;
mod stats;
#[expect(unsafe_code, reason = "maps in memory, membarrier, and what values the kernel may read")]
mod sys;
mod trial;
mod words;

pub use error::{Unavailable, XdpError};
pub use load::{Mode, Options, Xdp};
pub use stats::PortCounts;
pub use trial::{Trial, Verdict};
pub use words::Words;

include!(concat!(env!("OUT_DIR"), "/object.rs"));

/// The compiled program.
///
/// # Errors
/// When it could not be built together with weft: with the reason.
pub const fn object() -> Result<&'static [u8], Unavailable> {
    match OBJECT {
        Ok(octets) => Ok(octets),
        Err(why) => Err(Unavailable(why)),
    }
}
