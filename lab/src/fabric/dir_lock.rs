//! Lock of a running fabric's directory, which has one owner.
//!
//! [`DirLock::take`] holds a directory until the lock is dropped or the process ends, however it ends. Agents of one
//! fabric may share a directory, each with parts of its own. So all hold a shared lock on a file that names the fabric;
//! the first one, which gets the exclusive lock, writes the name.
//!
//! Source: flock(2); docs/fabric.md "Whole fabrics".

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use weft_base::files::{self, Existing, OpenDir, open_to_others};

use crate::clock;

/// Name of the lock file; no part can have this name.
const FILE: &str = ".lock";
/// Mode bits that let others create and rename files in a directory.
const WRITABLE: u32 = 0o022;
/// Longest fabric name that is read.
const LEN_MAX: u64 = 256;

/// Reasons why a directory cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum DirLockError {
    /// It cannot be made or locked.
    #[error("{what} {}", path.display())]
    Io {
        /// The attempted action.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Other users could put files and links there.
    #[error(
        "{}: expected a directory of our own that others cannot write to, found mode {mode:04o}, owner {owner}: take another directory (--dir), or remove it",
        path.display()
    )]
    Open { path: PathBuf, mode: u32, owner: u32 },
    /// Another fabric has it.
    #[error("a fabric is running in {}: end it first, or give another directory (--dir)", .0.display())]
    Running(PathBuf),
}

/// A fabric name that is unique among those running on the machine.
#[must_use]
pub fn new_name() -> String {
    format!("{}-{}", std::process::id(), clock::now().as_ps())
}

/// Makes `dir` with mode 0700 if it does not exist.
///
/// # Errors
/// [`DirLockError::Open`] if another user owns it or may write to it; [`DirLockError::Io`] for a link, or an error of
/// the kernel.
pub fn make_own_dir(dir: &Path) -> Result<(), DirLockError> {
    let io = |what| move |source| DirLockError::Io { what, path: dir.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io("make")(error));
        }
        _ => {}
    }
    let found = open_to_others(dir, WRITABLE).map_err(io("use as a directory:"))?;
    found.map_or(Ok(()), |OpenDir { mode, owner }| {
        Err(DirLockError::Open { path: dir.to_owned(), mode, owner })
    })
}

/// Marks a directory as a fabric's for the life of this value.
#[derive(Debug)]
pub struct DirLock {
    /// Closing it releases the lock.
    _file: File,
}

impl DirLock {
    /// Takes `dir` for the fabric called `name`; makes it if it does not exist.
    ///
    /// # Errors
    /// [`DirLockError::Running`] if another fabric has it, [`DirLockError::Open`] if others may write; an error of the
    /// kernel.
    pub fn take(dir: &Path, name: &str) -> Result<Self, DirLockError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| DirLockError::Io { what, path, source }
        };
        if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
            // Only the directory itself is private; those above keep their usual mode.
            DirBuilder::new().recursive(true).create(above).map_err(io("make", above))?;
        }
        make_own_dir(dir)?;
        let path = dir.join(FILE);
        let mut file = files::create(&path, Existing::Keep).map_err(io("open", &path))?;
        if !file.metadata().map_err(io("look at", &path))?.is_file() {
            return Err(io("lock", &path)(io::Error::other("it is no file: remove it")));
        }
        let locked = |operation| flock(&file, operation);
        let is_first = match locked(FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => true,
            Err(Errno::WOULDBLOCK) => false,
            Err(error) => return Err(io("lock", &path)(error.into())),
        };
        if is_first {
            let written = file.set_len(0).and_then(|()| file.write_all(name.as_bytes()));
            written.map_err(io("write", &path))?;
        }
        // flock does not change a lock atomically: another agent may get the exclusive lock in between and write its
        // own name. The name read below decides.
        flock(&file, FlockOperation::LockShared).map_err(|e| io("lock", &path)(e.into()))?;
        let mut owner = String::new();
        let start = file.seek(SeekFrom::Start(0));
        let read = start.and_then(|_| (&file).take(LEN_MAX).read_to_string(&mut owner));
        read.map_err(io("read", &path))?;
        if owner == name {
            Ok(Self { _file: file })
        } else {
            Err(DirLockError::Running(dir.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_has_one_fabric_at_a_time_with_as_many_agents_as_it_likes() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("above/fabric");
        let one = DirLock::take(&dir, "one").unwrap();
        let same = DirLock::take(&dir, "one").unwrap();
        let refused = |name: &str| DirLock::take(&dir, name).unwrap_err().to_string();
        assert!(refused("two").contains("a fabric is running in"), "{}", refused("two"));
        drop(one);
        assert!(refused("two").contains("--dir"), "{}", refused("two"));
        drop(same);
        let two = DirLock::take(&dir, "two").unwrap();
        assert!(refused("one").contains("is running"));
        drop(two);
        assert!(DirLock::take(&dir, &new_name()).is_ok());
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(FILE))), (0o700, 0o600));
        assert_ne!(new_name(), new_name());
    }

    /// Following a link of another user would empty a file of this one.
    #[test]
    fn a_symbolic_link_is_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let precious = scratch.path().join("precious");
        std::fs::write(&precious, "kept").unwrap();
        std::os::unix::fs::symlink(&precious, scratch.path().join(FILE)).unwrap();
        assert!(matches!(DirLock::take(scratch.path(), "one"), Err(DirLockError::Io { .. })));
        assert_eq!(std::fs::read_to_string(precious).unwrap(), "kept");
    }

    /// Others can fill a directory that they may write to with links.
    #[test]
    fn a_directory_of_others_is_refused_and_a_pipe_does_not_hang_it() {
        let scratch = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o770, 0o1777] {
            std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(mode)).unwrap();
            let refused = DirLock::take(scratch.path(), "one").unwrap_err();
            assert!(matches!(refused, DirLockError::Open { .. }), "{refused}");
            assert!(!scratch.path().join(FILE).exists());
        }
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let link = scratch.path().join("link");
        std::fs::create_dir(scratch.path().join("dir")).unwrap();
        std::os::unix::fs::symlink("dir", &link).unwrap();
        for link in [link.clone(), PathBuf::from(format!("{}/", link.display()))] {
            let refused = DirLock::take(&link, "one").unwrap_err();
            assert!(matches!(refused, DirLockError::Io { .. }), "{refused}");
        }
        let pipe = scratch.path().join(FILE);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(matches!(DirLock::take(scratch.path(), "one"), Err(DirLockError::Io { .. })));
        std::fs::remove_file(pipe).unwrap();
        assert!(DirLock::take(scratch.path(), "one").is_ok());
    }
}
