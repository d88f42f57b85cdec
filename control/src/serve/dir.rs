//! The directory and file of a Unix socket: a directory that is ours alone, and a listener in it.
//!
//! Source: unix(7), "pathname sockets": access to the directory is what protects a socket.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use weft_base::files::{OpenDir, open_to_others};

/// Why a Unix socket cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A call on the directory or the file failed.
    #[error("{call} {}", path.display())]
    Io { call: &'static str, path: PathBuf, source: io::Error },
    /// The directory is open to other users.
    #[error(
        "{}: expected a directory of our own with mode 0700, found mode {mode:04o}, owner {owner}",
        path.display()
    )]
    Open {
        path: PathBuf,
        /// Mode and owner as found, of the first directory that is open.
        mode: u32,
        owner: u32,
    },
    /// The path exists and is no socket.
    #[error("{}: expected a socket that no process listens at, or no file; found something else", .0.display())]
    NoSocket(PathBuf),
    /// A process listens there.
    #[error("{}: a switch of this name is running", .0.display())]
    Running(PathBuf),
    #[error("{}: expected the name of a file in a directory", .0.display())]
    NoFile(PathBuf),
}

/// Makes the directory of a socket at `path`, with mode 0700, unless it exists; returns its path.
pub(crate) fn make_dir_of(path: &Path) -> Result<PathBuf, SocketError> {
    let io = |call, path: &Path| {
        let path = path.to_owned();
        move |source| SocketError::Io { call, path, source }
    };
    let (Some(dir), Some(_)) = (path.parent(), path.file_name()) else {
        return Err(SocketError::NoFile(path.to_owned()));
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    // The directories above may be shared with others: only the last one protects the socket.
    if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o755).create(above).map_err(io("make", above))?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        // One that exists may have any mode and owner: `listen` checks it.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io("make", dir)(error)),
        _ => Ok(dir.to_owned()),
    }
}

/// Listens at `path`. Makes its directory, and replaces a socket at which no process listens.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    let io = |call, path: &Path| {
        let path = path.to_owned();
        move |source| SocketError::Io { call, path, source }
    };
    let dir = &make_dir_of(path)?;
    if let Some(OpenDir { mode, owner }) = open_to_others(dir, 0o077).map_err(io("use", dir))? {
        return Err(SocketError::Open { path: dir.to_owned(), mode, owner });
    }
    // Serialises starts: between `bind` and `listen` of one process, another would find a file at which no process
    // answers, and replace it.
    let lock = fs::File::open(dir).map_err(io("look at", dir))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| io("lock", dir)(error.into()))?;
    // The usual case first; only an existing file needs the checks below.
    match UnixListener::bind(path) {
        Ok(listener) => return Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        Err(error) => return Err(io("listen at", path)(error)),
    }
    if !is_socket(path).map_err(io("look at", path))? {
        return Err(SocketError::NoSocket(path.to_owned()));
    }
    // A killed switch leaves its file behind; connecting is the only way to tell whether a process listens.
    if UnixStream::connect(path).is_ok() {
        return Err(SocketError::Running(path.to_owned()));
    }
    fs::remove_file(path).map_err(io("remove", path))?;
    UnixListener::bind(path).map_err(io("listen at", path))
}

/// Whether `path` is a socket itself, not a symbolic link to one.
fn is_socket(path: &Path) -> io::Result<bool> {
    Ok(fs::symlink_metadata(path)?.file_type().is_socket())
}

/// Removes the socket, and its directories as far as they are empty and ours by name.
pub(crate) fn clean_up(path: &Path) {
    // Errors do not matter: the next start replaces the file that is left.
    if is_socket(path).unwrap_or(false) {
        let _ = fs::remove_file(path);
    }
    // Two levels, `weft/NAME`, and nothing that the user has named otherwise.
    for dir in path.ancestors().skip(1).take(2) {
        let is_ours = dir.file_name().is_some_and(|_| dir.ends_with("weft"))
            || dir.parent().is_some_and(|above| above.ends_with("weft"));
        if !is_ours || fs::remove_dir(dir).is_err() {
            return;
        }
    }
}
