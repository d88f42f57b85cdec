//! Files that weft reads and writes: their kind, their mode, and files that are there already.
//!
//! [`open`] takes a path and [`OpenedBy`], and gives a file to read. [`create`] takes a path and
//! [`Existing`], and gives a file to write; it follows no symbolic link. [`open_to_others`] tells
//! who else may use a directory.
//!
//! Source: open(2), `O_EXCL`, `O_NOFOLLOW`, `O_NONBLOCK`; fifo(7); inode(7), mode;
//! docs/privileges.md, "Files".

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Mode of a file with data that a running switch saw or knows: only its owner may read it.
const PRIVATE: u32 = 0o600;

/// Flags of every file that a service opens: opening a pipe, a terminal or a file that another
/// process has leased does not wait, and no terminal becomes the process's own.
const NO_WAIT: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;

/// Time for which a service waits for the reader of a pipe that it writes to. Shorter than the 4 s
/// that a stop may make no progress (docs/running.md, "Exit codes").
const PIPE_WAIT: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// Process that opens a file: a service must not be kept waiting by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedBy {
    /// A command that serves no clients, and that any signal ends: a pipe is waited for, as `<(...)` of a shell and
    /// `/dev/stdin` are pipes.
    Command,
    /// A process that serves. It reads regular files only: opening a pipe without a writer never
    /// returns, reading a device may never end, and opening some devices (a watchdog's) has an
    /// effect of its own.
    Service,
}

/// Opens a file to read.
///
/// # Errors
/// The kernel's answer; in a service, a file that is not a regular one.
pub fn open(path: impl AsRef<Path>, by: OpenedBy) -> io::Result<File> {
    let path = path.as_ref();
    if by == OpenedBy::Command {
        return File::open(path);
    }
    // Its kind is asked before it is opened: to open a device may have an effect.
    only_regular(std::fs::metadata(path)?.file_type())?;
    let file = OpenOptions::new().read(true).custom_flags(NO_WAIT).open(path)?;
    only_regular(file.metadata()?.file_type())?; // another one may have taken its name
    Ok(file)
}

/// Reads all of a file, as [`open`] opens it.
///
/// # Errors
/// As for [`open`]; a file of more than `most` bytes.
pub fn read(path: impl AsRef<Path>, by: OpenedBy, most: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    open(path, by)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("expected at most {most} bytes, found more")));
    }
    Ok(bytes)
}

/// Reads all of a text, as [`open`] opens it.
///
/// # Errors
/// As for [`read`]; bytes that are no text.
pub fn read_text(path: impl AsRef<Path>, by: OpenedBy, most: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, by, most)?);
    text.map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, "expected UTF-8, found other bytes")
    })
}

fn only_regular(kind: FileType) -> io::Result<()> {
    let found = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        _ if kind.is_fifo() => "a pipe, which could keep the process waiting",
        _ if kind.is_socket() => "a socket",
        _ => "a device, which could keep the process waiting",
    };
    Err(io::Error::other(format!("expected a regular file, found {found}")))
}

/// Treatment of a file that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, and refuse: frames of a live switch come only once.
    #[default]
    Refuse,
    /// Empty it, and make it its owner's alone.
    Replace,
    /// Open it as it is, to read and write: data that is kept from run to run.
    Keep,
    /// Empty it, and leave its mode: results of a computation that can be repeated.
    Result,
}

impl Existing {
    /// [`Self::Replace`] with the flag `--overwrite`, else [`Self::Refuse`].
    #[must_use]
    pub const fn replace_if(overwrite: bool) -> Self {
        if overwrite { Self::Replace } else { Self::Refuse }
    }

    fn refuses(self, error: io::Error) -> io::Error {
        match (self, error.raw_os_error()) {
            (Self::Refuse, Some(libc::EEXIST)) => io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is such a file already (--overwrite replaces it)",
            ),
            (_, Some(libc::ELOOP)) => {
                io::Error::other("it is a symbolic link, which is not followed")
            }
            _ => error,
        }
    }
}

/// Opens a file to write: a new one, with mode 0600 unless it is a [`Existing::Result`], or one
/// that is there already, as `existing` says. Devices such as `/dev/null`, and pipes, are opened as
/// they are. A path in `/dev` may be a symbolic link, as `/dev/stdout` is.
///
/// # Errors
/// The kernel's answer; a file that is there, a symbolic link.
pub fn create(path: impl AsRef<Path>, existing: Existing) -> io::Result<File> {
    let path = path.as_ref();
    let is_device = path.starts_with("/dev")
        || path.symlink_metadata().is_ok_and(|facts| {
            let kind = facts.file_type();
            // A pipe keeps nothing, and opening one that nothing reads would wait for ever.
            kind.is_char_device() || (kind.is_fifo() && existing != Existing::Keep)
        });
    let mut options = OpenOptions::new();
    options.write(true).mode(if existing == Existing::Result { 0o666 } else { PRIVATE });
    if is_device {
        return options.open(path);
    }
    options.custom_flags(libc::O_NOFOLLOW);
    match existing {
        Existing::Refuse => options.create_new(true),
        Existing::Keep => options.read(true).create(true).truncate(false),
        Existing::Replace | Existing::Result => options.create(true).truncate(true),
    };
    let file = options.open(path).map_err(|error| existing.refuses(error))?;
    if existing == Existing::Keep && file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is a pipe, which keeps nothing"));
    }
    // `open` gives its mode to new files only; an existing one is empty by now
    if existing == Existing::Replace {
        file.set_permissions(std::fs::Permissions::from_mode(PRIVATE))?;
    }
    Ok(file)
}

/// As [`create`], in a process that serves: a pipe without a reader is refused, and writing to one
/// waits at most 3 s.
///
/// # Errors
/// As for [`create`]; a pipe without a reader.
pub fn create_in_service(path: impl AsRef<Path>, existing: Existing) -> io::Result<Outlet> {
    let path = path.as_ref();
    // A path in /dev may be a symbolic link, as /dev/stdout is.
    let facts = if path.starts_with("/dev") { path.metadata() } else { path.symlink_metadata() };
    let kind = facts.map(|facts| facts.file_type());
    let may_wait = kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device());
    if !may_wait {
        return create(path, existing).map(Outlet);
    }
    let opened = OpenOptions::new().write(true).custom_flags(NO_WAIT).open(path);
    opened.map(Outlet).map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => {
            io::Error::other("it is a pipe that nothing reads: start its reader first")
        }
        _ => error,
    })
}

/// A file that a service writes to. A pipe or device that takes no byte for 3 s is an error.
#[derive(Debug)]
pub struct Outlet(File);

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            let mut fds = [PollFd::new(&self.0, PollFlags::OUT)];
            match poll(&mut fds, Some(&PIPE_WAIT)) {
                Ok(0) => {
                    let why = "what reads the file has taken nothing for 3 s";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Makes a file of mode 0600 at `path`. A file or link of that name is removed first, and not
/// written to.
///
/// # Errors
/// The kernel's answer; a directory of that name.
pub fn create_anew(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => create(path, Existing::Refuse),
    }
}

/// Mode and owner of a directory that others may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenDir {
    /// Permission bits of the directory, 12 bits.
    pub mode: u32,
    /// User id of the directory's owner.
    pub owner: u32,
}

/// Tells how a directory is open to others: another user owns it, or its mode has one of the bits
/// `mask`. `None` where it is not open.
///
/// # Errors
/// No directory is there, or something else, such as a symbolic link to a directory.
pub fn open_to_others(dir: &Path, mask: u32) -> io::Result<Option<OpenDir>> {
    // A trailing slash would make the kernel follow a link.
    let dir: PathBuf = dir.components().collect();
    let metadata = std::fs::symlink_metadata(dir)?;
    if !metadata.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory)); // a symbolic link is none
    }
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    let is_ours = owner == rustix::process::geteuid().as_raw();
    Ok((!is_ours || mode & mask != 0).then_some(OpenDir { mode, owner }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let name = format!("weft-files-{}-{test}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_when_that_is_asked_for() {
        let folder = Folder::new("existing");
        let path = folder.0.join("x");
        create(&path, Existing::Refuse).unwrap().write_all(b"first").unwrap();
        assert_eq!(mode(&path), 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = create(&path, Existing::Refuse).unwrap_err();
        assert!(refused.to_string().contains("--overwrite"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        drop(create(&path, Existing::Keep).unwrap());
        assert_eq!((std::fs::read(&path).unwrap(), mode(&path)), (b"first".to_vec(), 0o644));
        drop(create(&path, Existing::Replace).unwrap());
        assert_eq!((std::fs::read(&path).unwrap(), mode(&path)), (Vec::new(), 0o600));
        drop(create(folder.0.join("kept"), Existing::Keep).unwrap());
        assert_eq!(mode(&folder.0.join("kept")), 0o600);
    }

    #[test]
    fn no_symbolic_link_is_followed_and_devices_take_what_comes() {
        let folder = Folder::new("links");
        let (target, link) = (folder.0.join("target"), folder.0.join("link"));
        std::fs::write(&target, "mine").unwrap();
        symlink(&target, &link).unwrap();
        let dangling = folder.0.join("dangling");
        symlink(folder.0.join("nowhere"), &dangling).unwrap();
        for existing in [Existing::Refuse, Existing::Replace, Existing::Keep, Existing::Result] {
            assert!(create(&link, existing).is_err(), "{existing:?}");
            assert!(create(&dangling, existing).is_err(), "{existing:?}");
            assert!(create("/dev/null", existing).is_ok(), "{existing:?}");
        }
        assert_eq!(std::fs::read(&target).unwrap(), b"mine");
        assert!(!folder.0.join("nowhere").exists());
    }

    #[test]
    fn a_pipe_is_not_kept_and_not_waited_for() {
        let folder = Folder::new("pipe");
        let pipe = folder.0.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let refused = create(&pipe, Existing::Keep).unwrap_err();
        assert!(refused.to_string().contains("pipe"), "{refused}");
    }

    fn fifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    /// A thread that hung would be noticed: the test would not end.
    #[test]
    fn a_service_reads_regular_files_and_waits_for_no_other() {
        let folder = Folder::new("read");
        let (file, pipe, link) =
            (folder.0.join("file"), folder.0.join("pipe"), folder.0.join("link"));
        std::fs::write(&file, "12345").unwrap();
        fifo(&pipe);
        symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            for by in [OpenedBy::Command, OpenedBy::Service] {
                assert_eq!(read(path, by, 5).unwrap(), b"12345", "{by:?}");
                let long = read(path, by, 4).unwrap_err().to_string();
                assert!(long.contains("at most 4 bytes"), "{long}");
            }
        }
        let socket = folder.0.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, found) in [
            (pipe.as_path(), "a pipe"),
            (Path::new("/dev/zero"), "a device"),
            (Path::new("/dev/stdin"), "found a"), // whatever runs the tests gives them
            (&socket, "a socket"),
            (&folder.0, "directory"),
            (Path::new("/none"), "No such file"),
        ] {
            if path.starts_with("/dev/stdin") && path.metadata().is_ok_and(|facts| facts.is_file())
            {
                continue;
            }
            let refused = open(path, OpenedBy::Service).unwrap_err().to_string();
            assert!(refused.contains(found), "{}: {refused}", path.display());
        }
        // A command waits for the writer.
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::write(pipe, "piped").unwrap()
        });
        assert_eq!(read(&pipe, OpenedBy::Command, 100).unwrap(), b"piped");
        writer.join().unwrap();
    }

    #[test]
    fn a_service_writes_to_a_pipe_only_while_something_reads_it() {
        let folder = Folder::new("outlet");
        let pipe = folder.0.join("pipe");
        fifo(&pipe);
        let refused = create_in_service(&pipe, Existing::Refuse).unwrap_err().to_string();
        assert!(refused.contains("nothing reads"), "{refused}");
        let reader = OpenOptions::new().read(true).custom_flags(NO_WAIT).open(&pipe).unwrap();
        let mut outlet = create_in_service(&pipe, Existing::Refuse).unwrap();
        outlet.write_all(b"taken").unwrap();
        let late = outlet.write_all(&vec![0; 8 << 20]).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut, "{late}");
        drop(reader);
        assert_eq!(outlet.write_all(b"gone").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let plain = folder.0.join("plain");
        create_in_service(&plain, Existing::Refuse).unwrap().write_all(b"kept").unwrap();
        assert_eq!((std::fs::read(&plain).unwrap(), mode(&plain)), (b"kept".to_vec(), 0o600));
        assert!(create_in_service(&plain, Existing::Refuse).is_err());
        create_in_service("/dev/null", Existing::Refuse).unwrap().write_all(b"gone").unwrap();
    }

    #[test]
    fn a_file_that_is_made_anew_is_another_one() {
        let folder = Folder::new("anew");
        let (target, path) = (folder.0.join("target"), folder.0.join("x"));
        std::fs::write(&target, "mine").unwrap();
        for plant in [
            |from: &Path, to: &Path| symlink(from, to),
            |from: &Path, to: &Path| std::fs::hard_link(from, to),
        ] {
            let _ = std::fs::remove_file(&path); // of the turn before
            plant(&target, &path).unwrap();
            create_anew(&path).unwrap().write_all(b"new").unwrap();
            assert_eq!(std::fs::read(&target).unwrap(), b"mine");
            assert_eq!((std::fs::read(&path).unwrap(), mode(&path)), (b"new".to_vec(), 0o600));
        }
        assert!(create_anew(&folder.0).is_err());
    }

    #[test]
    fn a_directory_is_ours_and_no_link() {
        let folder = Folder::new("open");
        let (dir, link) = (folder.0.join("dir"), folder.0.join("link"));
        std::fs::create_dir(&dir).unwrap();
        symlink(&dir, &link).unwrap();
        let set = |mode| {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let mode = |mask| open_to_others(&dir, mask).unwrap().map(|found| found.mode);
        for (is, mask, want) in [
            (0o700, 0o077, None),
            (0o755, 0o077, Some(0o755)),
            (0o755, 0o022, None),
            (0o775, 0o022, Some(0o775)),
            (0o757, 0o022, Some(0o757)),
        ] {
            set(is);
            assert_eq!(mode(mask), want, "{is:o} {mask:o}");
        }
        set(0o700);
        let slash = PathBuf::from(format!("{}/", link.display()));
        for bad in [&link, &slash, &folder.0.join("none")] {
            assert!(open_to_others(bad, 0).is_err(), "{}", bad.display());
        }
        // Only root can give a directory away.
        if rustix::process::geteuid().is_root() {
            chown(&dir, Some(65_534), None).unwrap();
            assert_eq!(open_to_others(&dir, 0).unwrap().map(|found| found.owner), Some(65_534));
        }
    }
}
