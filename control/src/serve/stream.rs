//! Sockets that clients connect to: TCP, or a Unix socket.
//!
//! A [`Listener`] gives [`Stream`]s. The kernel tells the user at the other end of a Unix socket.
//!
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

#[derive(Debug)]
enum Inside {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A listening socket; dropping it removes the file of a Unix socket.
#[derive(Debug)]
pub struct Listener(Inside);

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

impl Listener {
    /// Listens at an address; port 0 takes any port.
    ///
    /// # Errors
    /// The kernel refuses the address.
    pub fn tcp(addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        // A client may go between poll(2) and accept(2), which would then wait for the next one.
        listener.set_nonblocking(true)?;
        Ok(Self(Inside::Tcp(listener)))
    }

    /// Listens at a path, in a directory that is ours alone.
    ///
    /// # Errors
    /// The socket cannot be made, is in use, or its directory is open to others.
    pub fn unix(path: &Path) -> Result<Self, SocketError> {
        let listener = dir::listen(path)?;
        listener.set_nonblocking(true).map_err(|source| SocketError::Io {
            call: "listen at",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self(Inside::Unix(listener, path.to_owned())))
    }

    /// Address of a TCP listener; `None` for a Unix socket.
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
                // Answers are written whole: Nagle's algorithm would only delay the last segment of each.
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
    /// User and process at the other end; `None` over TCP, where the kernel does not know them.
    #[must_use]
    pub fn peer(&self) -> Option<UCred> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(stream) => rustix::net::sockopt::socket_peercred(stream).ok(),
        }
    }

    /// Shuts both directions down, which ends every wait on the connection.
    pub fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        }; // it may be closed already
    }

    /// Shuts the sending direction down: the peer reads the end of the stream.
    pub fn finish(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }; // it may be closed already
    }

    /// Sends as much as the kernel takes at once.
    pub(super) fn last_words(&self, bytes: &[u8]) {
        // Sent by the acceptor, which must not wait for a client that does not read.
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let _ = rustix::net::send(self, bytes, flags); // it learns why, if it listens at all
    }

    /// Sends all of `bytes`; each wait for room may last as long as `time`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when the peer makes no room for so long; else the kernel's error.
    pub fn send_within(&self, bytes: &[u8], time: Duration) -> io::Result<()> {
        // NOSIGNAL: a peer that has gone is an error here, not a SIGPIPE that ends the process.
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

    /// Whether the peer has closed the connection; bytes that it sent before are not consumed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        use rustix::net::RecvFlags;
        // PEEK leaves the bytes for the protocol; 0 bytes are the end of the stream.
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
