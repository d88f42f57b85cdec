//! Sockets of a kernel's MCTP (`AF_MCTP`): a whole message a datagram.
//!
//! [`MctpSocket`] is bound to a message type, at all EIDs of the machine; [`MctpAddr`] is the other
//! end, and the tag of the message. Lengths are in bytes, without the message's type.
//!
//! Source: Linux, Documentation/networking/mctp.rst; DMTF DSP0236.
//!
//! The kernel puts messages together from packets, and answers control messages (type 0) itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The address family; libc does not have it for every target.
const AF_MCTP: libc::sa_family_t = 45;
/// Any EID, or any network, of this machine.
const EID_ANY: u8 = 0xFF;
const NETWORK_ANY: u32 = 0;
/// Tag owner: set in the tag of a request.
const TAG_OWNER: u8 = 8;

/// The other end of a message, and the message's type and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MctpAddr {
    /// The network, as this machine numbers it.
    pub network: u32,
    /// The endpoint in that network.
    pub eid: u8,
    /// Type of the message; bit 7 says that it has an integrity check.
    pub kind: u8,
    /// Tag of the message, 0..=7.
    pub tag: u8,
    /// Whether the sender owns the tag: a request.
    pub owner: bool,
}

/// `struct sockaddr_mctp` of the kernel, whose layout it has.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SockAddr {
    family: libc::sa_family_t,
    pad0: u16,
    network: u32,
    eid: u8,
    kind: u8,
    tag: u8,
    pad1: u8,
}

/// Length of the address as the kernel takes it.
const SOCK_ADDR_LEN: libc::socklen_t = 12;
const _: () = assert!(size_of::<SockAddr>() == SOCK_ADDR_LEN as usize);

/// A socket that takes the requests of one message type.
#[derive(Debug)]
pub struct MctpSocket(OwnedFd);

impl MctpSocket {
    /// Takes messages of type `kind` that come by `network`, or by any.
    ///
    /// # Errors
    /// The kernel has no MCTP (`EAFNOSUPPORT`), the type is taken, or the process may not (`CAP_NET_BIND_SERVICE`).
    pub fn bind(network: Option<u32>, kind: u8) -> io::Result<Self> {
        let (family, flags) = (libc::c_int::from(AF_MCTP), libc::SOCK_DGRAM | libc::SOCK_CLOEXEC);
        // SAFETY: plain call; the result is checked.
        let fd = unsafe { libc::socket(family, flags, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made and that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let network = network.unwrap_or(NETWORK_ANY);
        let addr = SockAddr { family: AF_MCTP, network, eid: EID_ANY, kind, ..SockAddr::default() };
        // SAFETY: `addr` is a whole address, of the length that is said.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), SOCK_ADDR_LEN) };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(fd))
    }

    /// Takes a message that has arrived. Returns its length, which may be more than `message` has
    /// room for, and its sender.
    ///
    /// # Errors
    /// `WouldBlock` where no message waits.
    pub fn receive(&self, message: &mut [u8]) -> io::Result<(usize, MctpAddr)> {
        let (mut from, mut len) = (SockAddr::default(), SOCK_ADDR_LEN);
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let (at, room) = (message.as_mut_ptr().cast(), message.len());
        let addr = (&raw mut from).cast();
        // SAFETY: `message` has `room` bytes, `from` has the `len` bytes of an address; both are ours alone.
        let got =
            unsafe { libc::recvfrom(self.0.as_raw_fd(), at, room, flags, addr, &raw mut len) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        let SockAddr { network, eid, kind, tag, .. } = from;
        let (owner, tag) = (tag & TAG_OWNER != 0, tag & (TAG_OWNER - 1));
        Ok((got, MctpAddr { network, eid, kind, tag, owner }))
    }

    /// Sends a message. Where the other end owns the tag, it is the answer to the request with that
    /// tag.
    ///
    /// # Errors
    /// No route leads to that end, or no room for now (`WouldBlock`).
    pub fn send(&self, to: MctpAddr, message: &[u8]) -> io::Result<()> {
        let MctpAddr { network, eid, kind, .. } = to;
        let tag = to.tag | if to.owner { TAG_OWNER } else { 0 };
        let addr = SockAddr { family: AF_MCTP, pad0: 0, network, eid, kind, tag, pad1: 0 };
        let (at, len) = (message.as_ptr().cast(), message.len());
        let (flags, place) = (libc::MSG_DONTWAIT, (&raw const addr).cast());
        let fd = self.0.as_raw_fd();
        // SAFETY: `message` has `len` bytes, and `addr` is a whole address, of the length that is said.
        let sent = unsafe { libc::sendto(fd, at, len, flags, place, SOCK_ADDR_LEN) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for MctpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
