//! Places where others connect, as keys and flags name them.
//!
//! Text -> an address, a Unix socket, a network of the kernel's MCTP.
//!
//! Source: docs/configuration.md.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Longest text of a parameter, in bytes: a file name of Linux.
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

/// Where something listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Where managers connect that speak MCTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MctpPlace {
    /// TCP.
    Tcp(SocketAddr),
    /// A network of the kernel's MCTP; all of them where none is named.
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

/// As [`listen_addr`], or `mctp` for all networks of the kernel's MCTP, or `mctp:N` for one.
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

/// As [`listen_addr`], or what has a `/` as the path of a Unix socket.
#[must_use]
pub fn listen_place(text: &str) -> Option<Listen> {
    if text.contains('/') && is_path(text) {
        return Some(Listen::Unix(PathBuf::from(text)));
    }
    listen_addr(text).map(Listen::Tcp)
}
