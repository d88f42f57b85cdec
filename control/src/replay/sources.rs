//! Sources of a replay's frames: captures by name, also those that have to be read more than once.
//!
//! [`CaptureName`] → [`Source`], which can be read any number of times; its interfaces, each with its numbers.
//!
//! Source: docs/replay.md.

use std::collections::BTreeMap;
use std::fs::{File, metadata};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use weft_base::files::{self, OpenedBy};
use weft_dataplane::port::capture::{
    CaptureError, CaptureName, CaptureReader, Choice, Interface, Place, Record,
};

/// A capture, of which every reader reads the same bytes.
#[derive(Clone, Debug)]
pub struct Source {
    name: CaptureName,
    /// Contents of a pipe that is read more than once.
    copy: Option<Arc<File>>,
}

/// Reader of such a copy. It has a position of its own, as several read the same file.
struct Copy {
    file: Arc<File>,
    at: u64,
}

impl Read for Copy {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Device and inode of a path whose bytes can be read only once, such as a pipe or a terminal; `None` for a file.
#[must_use]
pub fn pipe_of(path: &Path) -> Option<(u64, u64)> {
    let data = metadata(path).ok()?;
    (!data.is_file()).then(|| (data.dev(), data.ino()))
}

impl Source {
    /// The capture of that name, to be read as it comes.
    #[must_use]
    pub const fn new(name: CaptureName) -> Self {
        Self { name, copy: None }
    }

    #[must_use]
    pub const fn name(&self) -> &CaptureName {
        &self.name
    }

    /// Makes the source readable again: the contents of a pipe go to an unnamed file first.
    ///
    /// # Errors
    /// The pipe cannot be read, or the file cannot be written.
    pub fn kept(mut self) -> Result<Self, CaptureError> {
        if self.copy.is_some() || pipe_of(&self.name.path).is_none() {
            return Ok(self);
        }
        let path = &self.name.path;
        let at = |path: &Path| Place { path: path.to_owned(), record: 0, offset: 0 };
        let read = |source| CaptureError::Read { at: at(path), source };
        let write = |source| CaptureError::Write { at: at(&std::env::temp_dir()), source };
        let pipe = files::open(path, OpenedBy::Command)
            .map_err(|source| CaptureError::Open { path: path.clone(), source })?;
        let mut pipe = BufReader::with_capacity(1 << 16, pipe);
        let mut file = tempfile::tempfile().map_err(write)?;
        loop {
            let bytes = match pipe.fill_buf() {
                Ok([]) => break,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(read(error)),
            };
            file.write_all(bytes).map_err(write)?;
            let len = bytes.len();
            pipe.consume(len);
        }
        self.copy = Some(Arc::new(file));
        Ok(self)
    }

    /// The same file, for other interfaces.
    #[must_use]
    pub fn of(&self, choice: Choice) -> Self {
        Self { name: CaptureName { choice, ..self.name.clone() }, copy: self.copy.clone() }
    }

    /// A reader from the beginning.
    ///
    /// # Errors
    /// As [`CaptureReader::open`].
    pub fn reader(&self) -> Result<CaptureReader, CaptureError> {
        let Some(file) = &self.copy else { return CaptureReader::open_name(&self.name) };
        let copy = Copy { file: file.clone(), at: 0 };
        Ok(CaptureReader::new(&self.name.path, copy)?.only(self.name.choice.clone()))
    }

    /// Interfaces of the file, each with its numbers: a later section may describe the same interfaces again, and those
    /// of one name are one. The file is read to its end, as it may describe an interface anywhere.
    ///
    /// # Errors
    /// The file cannot be read, or has frames but none of Ethernet.
    pub fn interfaces(&self) -> Result<Vec<(Interface, Vec<u32>)>, CaptureError> {
        let mut reader = self.of(Choice::Ethernet).reader()?;
        let mut record = Record::default();
        while reader.read_into(&mut record)? {}
        // By name, and by how many of that name come before it in its section.
        let mut known: BTreeMap<(&str, usize), usize> = BTreeMap::new();
        let mut in_section: BTreeMap<(u32, &str), usize> = BTreeMap::new();
        let mut found: Vec<(Interface, Vec<u32>)> = Vec::new();
        for (number, interface) in (0..).zip(reader.interfaces()) {
            let name = interface.name.as_str();
            let nth = in_section.entry((interface.section, name)).or_default();
            let key = (name, *nth);
            *nth += 1;
            // Interfaces without a name cannot be told apart, so none is taken for another.
            let same = known.get(&key).filter(|_| !name.is_empty());
            if let Some((_, numbers)) = same.and_then(|&at| found.get_mut(at)) {
                numbers.push(number);
            } else {
                known.insert(key, found.len());
                found.push((interface.clone(), vec![number]));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::port::capture::{CaptureFormat, CaptureWriter};

    /// A section with these interfaces and no frame.
    fn section(dir: &Path, names: &[&str]) -> Vec<u8> {
        let path = dir.join("section.pcapng");
        let mut writer = CaptureWriter::create(&path, CaptureFormat::PcapNg, 0).unwrap();
        for name in names {
            writer.add_interface(name).unwrap();
        }
        writer.finish().unwrap();
        std::fs::read(path).unwrap()
    }

    #[test]
    fn interfaces_of_one_name_in_several_sections_are_one() {
        let dir = tempfile::tempdir().unwrap();
        let both = [
            section(dir.path(), &["eth0", "eth1", ""]),
            section(dir.path(), &["eth1", "eth0", "eth0", ""]),
        ];
        let path = dir.path().join("both.pcapng");
        std::fs::write(&path, both.concat()).unwrap();
        let source = Source::new(CaptureName::parse(path.to_str().unwrap()));
        let found = source.interfaces().unwrap();
        let got: Vec<_> = found.iter().map(|(of, all)| (of.name.as_str(), &all[..])).collect();
        let want: [(&str, &[u32]); 5] = [
            ("eth0", &[0, 4]),
            ("eth1", &[1, 3]),
            ("", &[2]),
            ("eth0", &[5]), // the second of that name in its section
            ("", &[6]),
        ];
        assert_eq!(got, want);
    }
}
