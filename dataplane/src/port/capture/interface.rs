//! Interfaces of a capture, and the choice of those that are read.
//!
//! A [`CaptureName`] is a user's `FILE#INTERFACE`; an [`Interface`] is the file's description of one.
//!
//! Source: draft-ietf-opsawg-pcapng-05, 4.2.

use core::fmt;
use std::path::{Path, PathBuf};

use super::LINK_ETHERNET;

/// Which interfaces of a capture are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// All Ethernet interfaces; frames of others are left out.
    #[default]
    Ethernet,
    /// Interfaces with these numbers, counted from 0 over the whole file.
    Numbers(Vec<u32>),
    /// Interfaces with this name.
    Name(String),
}

/// A capture file, and the interfaces to read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureName {
    /// Path of the file.
    pub path: PathBuf,
    /// Interfaces to read.
    pub choice: Choice,
}

impl CaptureName {
    /// Like [`Self::parse`], for an argument that may not be UTF-8.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        let whole = || Self { path: path.to_owned(), choice: Choice::Ethernet };
        path.to_str().map_or_else(whole, Self::parse)
    }

    /// Reads `FILE`, `FILE#NUMBER` or `FILE#NAME`; a file `-` is standard input. If a file with the whole text as its
    /// name exists, that is meant, as `#` may be part of a name.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let file = |text: &str| PathBuf::from(if text == "-" { "/dev/stdin" } else { text });
        let whole = || Self { path: file(text), choice: Choice::Ethernet };
        let Some((path, interface)) = text.rsplit_once('#').map(|(path, of)| (file(path), of))
        else {
            return whole();
        };
        // If neither file exists, the error should name the text that the user typed.
        if interface.is_empty() || Path::new(text).exists() || !path.exists() {
            return whole();
        }
        let number = interface.parse().map(|number| Choice::Numbers(vec![number]));
        Self { path, choice: number.unwrap_or_else(|_| Choice::Name(interface.to_owned())) }
    }
}

impl fmt::Display for CaptureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match &self.choice {
            Choice::Ethernet => Ok(()),
            choice => write!(f, "#{choice}"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet => f.write_str("of Ethernet"),
            Self::Name(name) => f.write_str(name),
            Self::Numbers(numbers) => {
                for (at, number) in numbers.iter().enumerate() {
                    write!(f, "{}{number}", if at == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl Choice {
    /// Whether `interface`, the file's `number`th, is chosen.
    pub(super) fn is_of(&self, number: u32, interface: &Interface) -> bool {
        match self {
            Self::Ethernet => interface.is_ethernet(),
            Self::Numbers(numbers) => numbers.contains(&number),
            Self::Name(name) => interface.name == *name,
        }
    }
}

/// A file's description of one interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name, cut to the length that is kept; empty if the file gives none.
    pub name: String,
    /// `LINKTYPE_` number of its frames.
    pub link_type: u16,
    /// Section of the file that describes it, from 0.
    pub section: u32,
    pub(super) snaplen: u32,
    /// Bytes of FCS at the end of each frame.
    pub(super) fcs_len: u8,
    /// Stamp unit: 10^-n s, or 2^-n s when the top bit is set.
    pub(super) tsresol: u8,
    /// Seconds added to each stamp.
    pub(super) tsoffset: i64,
    /// Frames that were left out because the interface is not Ethernet.
    pub(super) left_out: u64,
}

impl Interface {
    /// An interface with the format's defaults: stamps in microseconds, no FCS.
    pub(super) const fn new(link_type: u16, section: u32) -> Self {
        Self {
            name: String::new(),
            link_type,
            section,
            snaplen: 0,
            fcs_len: 0,
            tsresol: 6,
            tsoffset: 0,
            left_out: 0,
        }
    }

    /// Whether its frames are Ethernet.
    #[must_use]
    pub const fn is_ethernet(&self) -> bool {
        self.link_type == LINK_ETHERNET
    }

    /// Converts a stamp to ns since 1970; `None` before 1970 or after 2554.
    pub(super) fn to_ns(&self, stamp: u64) -> Option<u64> {
        let n = u32::from(self.tsresol & 0x7F);
        let stamp = u128::from(stamp);
        let ns = if self.tsresol & 0x80 != 0 {
            (stamp * 1_000_000_000) >> n
        } else if n <= 9 {
            stamp * 10u128.pow(9 - n)
        } else {
            // A unit so small that its factor overflows: every stamp is less than 1 ns.
            10u128.checked_pow(n - 9).map_or(0, |unit| stamp / unit)
        };
        let offset = i128::from(self.tsoffset) * 1_000_000_000;
        u64::try_from(i128::try_from(ns).ok()? + offset).ok()
    }
}

/// Shows an interface in a message: its number, and its name if it has one.
pub struct Shown<'a>(pub u32, pub &'a Interface);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, interface) = self;
        write!(f, "{number}")?;
        if !interface.name.is_empty() {
            write!(f, " ({})", interface.name.escape_debug())?;
        }
        Ok(())
    }
}
