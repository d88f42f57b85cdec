//! The directory and file of the management socket.
//!
//! A path in; a listener whose directory is ours alone out.
//!
//! Source: unix(7), "pathname sockets": access to the directory is what protects a socket.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use weft_base::files::{OpenDir, open_to_others};

/// Why there is no management socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The directory cannot be made or looked at.
    #[error("{call} {}", path.display())]
    Io {
        /// What was tried.
        call: &'static str,
        /// With what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The directory is open to others.
    #[error(
        "{}: expected a directory of our own with mode 0700, found mode {mode:04o}, owner {owner}",
        path.display()
    )]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Its owner.
        owner: u32,
    },
    /// What is there is no socket.
    #[error("{}: expected a socket that no process listens at, or no file; found something else", .0.display())]
    NoSocket(PathBuf),
    /// Somebody listens there.
    #[error("{}: a switch of this name is running", .0.display())]
    Running(PathBuf),
    /// The path names no file.
    #[error("{}: expected the name of a file in a directory", .0.display())]
    NoFile(PathBuf),
}

/// The directory of a socket at `path`; it is made with mode 0700 if there is none.
pub(crate) fn make_dir_of(path: &Path) -> Result<PathBuf, SocketError> {
    let io = |call, path: &Path| {
        let path = path.to_owned();
        move |source| SocketError::Io { call, path, source }
    };
    let (Some(dir), Some(_)) = (path.parent(), path.file_name()) else {
        return Err(SocketError::NoFile(path.to_owned()));
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o755).create(above).map_err(io("make", above))?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io("make", dir)(error)),
        _ => Ok(dir.to_owned()),
    }
}

/// Listens at `path`; makes its directory, takes the place of a socket that nobody listens at.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    let io = |call, path: &Path| {
        let path = path.to_owned();
        move |source| SocketError::Io { call, path, source }
    };
    let dir = &make_dir_of(path)?;
    if let Some(OpenDir { mode, owner }) = open_to_others(dir, 0o077).map_err(io("use", dir))? {
        return Err(SocketError::Open { path: dir.to_owned(), mode, owner });
    }
    // Of two that start at once, the second one sees whether the first one listens: a file is there a moment before.
    let lock = fs::File::open(dir).map_err(io("look at", dir))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| io("lock", dir)(error.into()))?;
    match UnixListener::bind(path) {
        Ok(listener) => return Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        Err(error) => return Err(io("listen at", path)(error)),
    }
    if !is_socket(path).map_err(io("look at", path))? {
        return Err(SocketError::NoSocket(path.to_owned()));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(SocketError::Running(path.to_owned()));
    }
    fs::remove_file(path).map_err(io("remove", path))?;
    UnixListener::bind(path).map_err(io("listen at", path))
}

/// Whether there is a socket, and not a symbolic link to one.
fn is_socket(path: &Path) -> io::Result<bool> {
    Ok(fs::symlink_metadata(path)?.file_type().is_socket())
}

/// Removes the socket, and its directories as far as they are empty.
pub(crate) fn clean_up(path: &Path) {
    // What is left in place hurts nobody: the next start takes its place.
    if is_socket(path).unwrap_or(false) {
        let _ = fs::remove_file(path);
    }
    for dir in path.ancestors().skip(1).take(2) {
        let is_ours = dir.file_name().is_some_and(|_| dir.ends_with("weft"))
            || dir.parent().is_some_and(|above| above.ends_with("weft"));
        if !is_ours || fs::remove_dir(dir).is_err() {
            return;
        }
    }
}
