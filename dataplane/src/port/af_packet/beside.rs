//! A socket that sends frames on an interface next to a port of any kind that is open there.
//!
//! The pause guard sends PAUSE through one while the worker that owns the port is away. A socket whose interface was
//! deleted is closed, and opened again at the next frame.
//!
//! Source: packet(7). `CAP_NET_RAW`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::super::link::LinkWatch;
use super::super::{PortOpenError, sys};
use super::sending_socket;

/// Sends by an interface, and receives nothing.
#[derive(Debug)]
pub struct Beside {
    device: String,
    /// `None` while the interface is gone.
    socket: Option<OwnedFd>,
}

impl Beside {
    /// Opens a socket on an interface that is there, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The interface is missing or not Ethernet; a call was refused.
    pub fn open(device: &str) -> Result<Self, PortOpenError> {
        let socket = Some(Self::socket(device)?);
        Ok(Self { device: device.to_owned(), socket })
    }

    fn socket(device: &str) -> Result<OwnedFd, PortOpenError> {
        let (_, index) = LinkWatch::of_ethernet(device)?;
        sending_socket(index, &[]).map_err(|refused| PortOpenError::refused(device, refused, ""))
    }

    /// Sends a frame past the interface's queues; false if the kernel refused it.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        if self.socket.is_none() {
            self.socket = Self::socket(&self.device).ok();
        }
        let Some(socket) = &self.socket else { return false };
        let sent = sys::send(socket.as_fd(), frame);
        let is_gone = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::ENXIO | libc::ENODEV));
        // A socket stays bound to the ifindex, which a new interface of the same name does not get back.
        if sent.as_ref().is_err_and(is_gone) {
            self.socket = None;
        }
        sent.is_ok()
    }
}
