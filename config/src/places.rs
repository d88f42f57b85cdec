//! Addresses that clients connect to, as keys and flags write them.
//!
//! Text becomes a TCP address, the path of a Unix socket, or a network of the kernel's MCTP.
//!
//! Source: docs/configuration.md.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Longest text of a parameter, in bytes: `PATH_MAX` of Linux.
const TEXT_LEN_MAX: usize = 4_096;

/// Whether a text may name a file or device.
#[must_use]
pub fn is_path(text: &str) -> bool {
    !text.is_empty() && text.len() <= TEXT_LEN_MAX && !text.chars().any(char::is_control)
}

/// `"127.0.0.1:9460"`, or `"9460"` for that port of loopback.
#[must_use]
pub fn listen_addr(text: &str) -> Option<SocketAddr> {
    let of_loopback = || Some(SocketAddr::from((Ipv4Addr::LOCALHOST, text.parse().ok()?)));
    text.parse().ok().or_else(of_loopback)
}

/// Address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Address for managers that speak MCTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MctpPlace {
    Tcp(SocketAddr),
    /// A network of the kernel's MCTP, 1 or above; `None` for all networks.
    Kernel(Option<u32>),
}

impl fmt::Display for MctpPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Kernel(Some(network)) => write!(f, "mctp:{network}"),
            Self::Kernel(None) => f.write_str("mctp"),
        }
    }
}

/// Reads `mctp` (all networks of the kernel's MCTP), `mctp:N` (one network), or an address as [`listen_addr`] does.
#[must_use]
pub fn mctp_place(text: &str) -> Option<MctpPlace> {
    if text == "mctp" {
        return Some(MctpPlace::Kernel(None));
    }
    let network = text.strip_prefix("mctp:").and_then(|number| number.parse().ok());
    match network {
        Some(0) => None, // to the kernel that means any
        Some(network) => Some(MctpPlace::Kernel(Some(network))),
        None => listen_addr(text).map(MctpPlace::Tcp),
    }
}

/// A text with a `/` is the path of a Unix socket; all others are read by [`listen_addr`].
#[must_use]
pub fn listen_place(text: &str) -> Option<Listen> {
    if text.contains('/') && is_path(text) {
        return Some(Listen::Unix(PathBuf::from(text)));
    }
    listen_addr(text).map(Listen::Tcp)
}
