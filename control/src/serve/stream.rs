//! Sockets that clients connect to: TCP, or a file of this machine.
//!
//! [`Listener`] gives [`Stream`]s; who is at the other end of a Unix socket is told by the kernel.
//!
//! Units: bytes.
//! Source: tcp(7); unix(7), `SO_PEERCRED`.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::UCred;

use super::dir::{self, SocketError};

/// Where clients connect.
#[derive(Debug)]
enum Inside {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Where clients connect; dropping it removes the file of a Unix socket.
#[derive(Debug)]
pub struct Listener(Inside);

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Of this machine.
    Unix(UnixStream),
}

impl Listener {
    /// Listens at an address; port 0 takes any.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tcp(addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        Ok(Self(Inside::Tcp(listener)))
    }

    /// Listens at a file, in a directory of our own.
    ///
    /// # Errors
    /// The socket cannot be made, is in use, or would be open to others.
    pub fn unix(path: &Path) -> Result<Self, SocketError> {
        let listener = dir::listen(path)?;
        listener.set_nonblocking(true).map_err(|source| SocketError::Io {
            call: "listen at",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self(Inside::Unix(listener, path.to_owned())))
    }

    /// The address of a TCP listener.
    #[must_use]
    pub fn addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            Inside::Tcp(listener) => listener.local_addr().ok(),
            Inside::Unix(..) => None,
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Inside::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Inside::Unix(listener, _) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Inside::Unix(_, path) = &self.0 {
            dir::clean_up(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Inside::Tcp(listener) => listener.as_fd(),
            Inside::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Stream {
    /// Who is at the other end; nobody can tell over TCP.
    #[must_use]
    pub fn peer(&self) -> Option<UCred> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(stream) => rustix::net::sockopt::socket_peercred(stream).ok(),
        }
    }

    /// Ends it both ways: whoever waits for it comes back.
    pub fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        }; // it may be closed already
    }

    /// Says that nothing more will be sent.
    pub fn finish(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }; // it may be closed already
    }

    /// Sends what the kernel takes at once.
    pub(super) fn last_words(&self, bytes: &[u8]) {
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let _ = rustix::net::send(self, bytes, flags); // it learns why, if it listens at all
    }

    /// Sends all of `bytes`, where each part of them is taken within `time`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] where the other end makes no room for so long; the kernel's answer.
    pub fn send_within(&self, bytes: &[u8], time: Duration) -> io::Result<()> {
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let timeout = Timespec::try_from(time).ok();
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::net::send(self, rest, flags) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let mut fds = [PollFd::new(self, PollFlags::OUT)];
                    match poll(&mut fds, timeout.as_ref()) {
                        Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                        Ok(_) | Err(rustix::io::Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether the other end has closed; what it may have sent stays where it is.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        use rustix::net::RecvFlags;
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self, &mut [0_u8; 1][..], flags) {
            Ok((_, count)) => count == 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(bytes),
            Stream::Unix(stream) => (&*stream).read(bytes),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            Stream::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
