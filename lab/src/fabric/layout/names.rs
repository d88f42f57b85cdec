//! Names of parts: whether they can be directory names, and whether the fabric manager accepts them.
//!
//! It works on the parts of a [`LayoutBuilder`] or a [`Layout`], and reports the first bad name.
//!
//! Source: docs/fabric.md, docs/fm.md.

use weft_fm::model::text::{is_name, is_word};

use super::super::topology::Topology;
use super::build::LayoutBuilder;
use super::{Layout, LayoutError, Part};

/// Longest name: it is part of the path of an endpoint's socket.
const LEN_MAX: usize = 32;
/// Directory of the manager's files and socket.
pub const MANAGER: &str = "fm";

/// Whether `name` can be a directory of a part.
fn is_file_name(name: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    (1..=LEN_MAX).contains(&name.len())
        && name.bytes().all(good)
        // A leading dot hides a directory or leaves it (`..`); a leading dash looks like an option.
        && !name.starts_with(['.', '-'])
        && name != MANAGER
}

impl LayoutBuilder<'_> {
    /// Refuses names of memory, GIM and P2P that the manager refuses, because it shows them in texts and pages.
    pub(super) fn check_memory_names(&self) -> Result<(), LayoutError> {
        let topology = self.topology;
        let memory = topology.memory.iter().map(|one| ("memory", Some(&one.name)));
        let gim = topology.gim.iter().map(|one| ("gim", one.name.as_ref()));
        let p2p = topology.p2p.iter().map(|one| ("p2p", one.name.as_ref()));
        let mut all = memory.chain(gim).chain(p2p);
        let bad = all.find(|(_, name)| name.is_some_and(|name| !is_word(name)));
        bad.map_or(Ok(()), |(what, name)| {
            let name = name.cloned().unwrap_or_default();
            Err(LayoutError::MemoryName { what, name })
        })
    }

    /// Refuses names that cannot be directories: files and sockets of a part are in `DIR/NAME`.
    pub(super) fn check_file_names(&self) -> Result<(), LayoutError> {
        let layout = &self.layout;
        let bad = layout.parts().into_iter().find(|part| !is_file_name(layout.name(*part)));
        bad.map_or(Ok(()), |part| {
            let name = layout.name(part).to_owned();
            Err(LayoutError::FileName { what: part.kind(), name })
        })
    }
}

impl Part {
    /// Kind of the part, as the file's keys name it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Switch(_) => "switch",
            Self::Host(_) => "host",
            Self::Device(_) => "device",
            Self::Hbr(_) => "hbr",
            Self::Gfd(_) => "gfd",
        }
    }
}

impl Layout {
    /// All parts, PBR switches first.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let mut all: Vec<Part> = (0..self.switches.len()).map(Part::Switch).collect();
        all.extend(self.endpoints());
        all
    }

    /// Whether a device or HBR switch takes part in memory, so that the manager must know its name.
    #[must_use]
    pub fn has_memory(&self, topology: &Topology, part: Part) -> bool {
        let name = self.name(part);
        topology.memory.iter().any(|memory| memory.devices.iter().any(|it| it == name))
            || self.gim.iter().any(|gim| gim.of == part || gim.from.contains(&part))
            || self.p2p.iter().any(|p2p| p2p.edge == part || p2p.from.contains(&part))
    }

    /// Refuses names of parts that the manager knows by name, and would read as something else.
    ///
    /// # Errors
    /// [`LayoutError::ManagerName`] with the first bad name.
    pub fn check_manager_names(&self, topology: &Topology) -> Result<(), LayoutError> {
        let is_known = |part: Part| match part {
            Part::Switch(_) | Part::Gfd(_) => true,
            Part::Host(host) => self.has_edge(host),
            Part::Device(_) | Part::Hbr(_) => self.has_memory(topology, part),
        };
        let parts = self.parts();
        let mut bad = parts.into_iter().filter(|part| is_known(*part));
        bad.find(|part| !is_name(self.name(*part))).map_or(Ok(()), |part| {
            let name = self.name(part).to_owned();
            Err(LayoutError::ManagerName { what: part.kind(), name })
        })
    }
}
