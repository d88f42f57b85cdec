//! The fast path in the kernel, from user space: makes the program of each port and controls it.
//!
//! [`Xdp`] has the maps of a switch and makes the programs; [`object`] tells whether this build has one. Code of both
//! sides is in [`layout`], [`rules`] and [`fabric`].
//!
//! Source: docs/express.md.

mod btf;
mod code;
mod error;
pub mod fabric;
pub mod layout;
mod load;
mod maps;
pub mod rules;
mod shared_state;
mod stations;
mod stats;
#[expect(unsafe_code, reason = "maps in memory, membarrier, and what values the kernel may read")]
mod sys;
mod tables;
mod trial;
mod xmit;

pub use error::{Unavailable, XdpError};
pub use load::{Checksum, Options, Xdp};
pub use shared_state::SharedState;
pub use stats::PortCounts;
pub use tables::FabricTables;
pub use trial::{Trial, Verdict};

include!(concat!(env!("OUT_DIR"), "/object.rs"));

/// The compiled programs: two objects, each under its own license.
#[derive(Clone, Copy, Debug)]
pub struct Objects {
    pub main: &'static [u8],
    pub xmit: &'static [u8],
}

/// The compiled programs.
///
/// # Errors
/// They could not be built with this weft, with the reason.
pub const fn object() -> Result<Objects, Unavailable> {
    match OBJECTS {
        Ok([main, xmit]) => Ok(Objects { main, xmit }),
        Err(why) => Err(Unavailable(why)),
    }
}
