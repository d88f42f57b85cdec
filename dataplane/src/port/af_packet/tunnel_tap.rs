//! The way out for super-frames of tunnels: a tap takes them and packet sockets do not, so they are written to a tap
//! from which the kernel redirects them to the port's interface.
//!
//! It is a tap of our own without carrier, which no host's stack uses, with a redirecting program at its ingress.
//!
//! Source: Linux `Documentation/networking/tuntap.rst`, `drivers/net/tun_vnet.h`; bpf-helpers(7), `bpf_redirect`. Linux
//! 6.17 or later; `CAP_NET_ADMIN` and `CAP_BPF` to make it, no capability afterwards.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use arrayvec::ArrayVec;

use super::super::bpf::asm::{CALL, EXIT, LOAD_IMM64, LOAD32, MAP_VALUE, MOV, op};
use super::super::bpf::{Hook, Link, Program, SharedNumber};
use super::super::sys;
use super::super::vnet::TUNNEL_VNET_LEN;
use crate::batch::BURST;

/// Number of the helper `bpf_redirect`.
const REDIRECT: i32 = 23;

/// A tap whose frames leave by another interface.
pub(in crate::port) struct TunnelTap {
    file: File,
    /// Ifindex that the program redirects to; frames are dropped while it is 0.
    target: SharedNumber,
    _program: Program,
    _link: Link,
}

impl TunnelTap {
    /// Makes a tap in the namespace of the calling thread.
    pub(in crate::port) fn open() -> io::Result<Self> {
        let file = sys::open_tun()?;
        let name = sys::attach_tunnel_tap(file.as_fd(), TUNNEL_VNET_LEN)?;
        let target = SharedNumber::new()?;
        let program = Program::load_for(Hook::Ingress, &redirect(target.map()), None)?;
        let control = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let index = sys::index(control.as_fd(), &name)?;
        let link = Link::attach_at(Hook::Ingress, &program, index, 0)?;
        // Last: the program must be attached before the first frame, as none may reach the host's stack.
        sys::set_up(control.as_fd(), &name)?;
        Ok(Self { file, target, _program: program, _link: link })
    }

    /// Redirects frames that are written from now on to the interface `index`.
    pub(in crate::port) fn aim(&self, index: i32) {
        self.target.set(u32::try_from(index).unwrap_or(0));
    }

    /// Sends one super-frame: its virtio-net header and headers, then the parts of its payload.
    pub(super) fn send(&self, lead: &[u8], parts: &[&[u8]]) -> io::Result<()> {
        let mut slices = ArrayVec::<_, { BURST + 1 }>::new();
        slices.push(IoSlice::new(lead));
        slices.extend(parts.iter().take(BURST).map(|part| IoSlice::new(part)));
        let len = lead.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        let written = (&self.file).write_vectored(&slices)?;
        if written == len { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// Redirects each frame to the interface whose index is the first value of `target`.
fn redirect(target: BorrowedFd<'_>) -> [u64; 6] {
    [
        op(LOAD_IMM64, 1, MAP_VALUE, 0, target.as_raw_fd()),
        0, // the upper half of the constant: at the value's first byte
        op(LOAD32, 1, 1, 0, 0),
        op(MOV, 2, 0, 0, 0), // to be sent, not received
        op(CALL, 0, 0, 0, REDIRECT),
        op(EXIT, 0, 0, 0, 0),
    ]
}
