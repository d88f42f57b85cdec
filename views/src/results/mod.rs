//! Results of a run in virtual time, for people and programs.
//!
//! [`Results`] are written as JSON, [`csv`], [`html`] and [`perfetto`].
//!
//! Source: docs/spec/model.md §6; docs/results.md.

pub mod csv;
pub mod html;
pub mod perfetto;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use weft_base::files::{self, Existing};
use weft_sim::results::Results;

/// A file of results could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}: {source}")]
pub struct WriteError {
    /// Name of the file as it was given.
    pub path: PathBuf,
    /// The kernel's answer, or the writer's.
    pub source: io::Error,
}

/// Writes `results` as JSON, all of them, as docs/results.md describes it.
///
/// # Errors
/// The writer's.
pub fn write_json(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, results)?;
    writeln!(out)
}

/// Writes a file whole or not at all: first beside it, then renamed, so that no reader finds half of it.
///
/// # Errors
/// The kernel's answer, or the writer's.
pub fn write_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    // Devices and pipes, such as /dev/stdout, cannot be replaced by a rename: write to them directly.
    if path.exists() && !path.is_file() {
        let mut out = BufWriter::new(files::create(path, Existing::Result).map_err(failed)?);
        return write(&mut out).and_then(|()| out.flush()).map_err(failed);
    }
    // The rename would replace the link and leave its target as it was.
    if path.is_symlink() {
        return Err(failed(io::Error::other("it is a symbolic link, which is not followed")));
    }
    let beside = beside(path);
    let whole = |file: File| -> io::Result<()> {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        // On the disk before the rename, or a power failure could leave an empty file under the final name.
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&beside, path)
    };
    let written = files::create(&beside, Existing::Result).and_then(whole);
    if written.is_err() {
        drop(std::fs::remove_file(&beside));
    }
    written.map_err(failed)
}

/// Checks whether [`write_file`] can write to `path`, before a run that may take hours. Leaves no file behind.
///
/// # Errors
/// As [`write_file`]'s.
pub fn probe_file(path: &Path) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    // Opening a pipe could wait for its reader: take it for fine.
    if path.exists() && !path.is_file() {
        return Ok(());
    }
    if path.is_symlink() {
        return Err(failed(io::Error::other("it is a symbolic link, which is not followed")));
    }
    let beside = beside(path);
    files::create(&beside, Existing::Result).map_err(failed)?;
    std::fs::remove_file(&beside).map_err(failed)
}

/// The name under which this process writes a file before it renames it.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

#[cfg(any(test, feature = "example"))]
pub mod example;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        write_file(&path, |out| out.write_all(b"first")).unwrap();
        let failed = write_file(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert!(failed.unwrap_err().to_string().ends_with("r.json: full"));
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
        write_file(Path::new("/dev/null"), |out| out.write_all(b"x")).unwrap();
        for (name, is_fine) in [("r.json", true), ("new", true), ("r.json/x", false), ("", false)] {
            assert_eq!(probe_file(&folder.path().join(name)).is_ok(), is_fine, "{name:?}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(write_file(&link, |out| out.write_all(b"x")).is_err());
    }

    #[test]
    fn json_is_the_same_each_time_and_reads_back() {
        let results = example::results();
        let text = || {
            let mut out = Vec::new();
            write_json(&results, &mut out).unwrap();
            out
        };
        assert_eq!(text(), text());
        let back: Results = serde_json::from_slice(&text()).unwrap();
        assert_eq!(back, results);
    }
}
