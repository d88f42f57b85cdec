//! Files that weft writes: whom they are for, and what becomes of one that is there.
//!
//! Shape: a path and [`Existing`] → a file of its own; no symbolic link is followed.
//! Units: none.
//! Source: open(2), `O_EXCL`, `O_NOFOLLOW`; docs/privileges.md, "Files".

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Mode of a file with what a running switch saw or knows: its owner's alone.
const PRIVATE: u32 = 0o600;

/// What becomes of a file that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It is left as it is, and refused: frames of a live switch, which come once.
    #[default]
    Refuse,
    /// It is emptied, and then its owner's alone.
    Replace,
    /// It is opened as it is, to be read and written: what is kept from run to run.
    Keep,
    /// It is emptied, whoever may read it: results that are computed, and can be again.
    Result,
}

impl Existing {
    /// Whether to replace a file, as a flag says.
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

/// Opens a file to write: a new one, with mode 0600 unless it is a [`Existing::Result`], or one that is
/// there, as `existing` says. A device, such as `/dev/null`, and a pipe take what comes; what is in `/dev`
/// may be a symbolic link, as `/dev/stdout` is.
///
/// # Errors
/// The kernel's answer; a file that is there, a symbolic link.
pub fn create(path: impl AsRef<Path>, existing: Existing) -> io::Result<File> {
    let path = path.as_ref();
    let is_device = path.starts_with("/dev")
        || path.symlink_metadata().is_ok_and(|facts| {
            let kind = facts.file_type();
            kind.is_char_device() || kind.is_fifo()
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
    if existing == Existing::Replace {
        file.set_permissions(std::fs::Permissions::from_mode(PRIVATE))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;

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
}
