//! Interfaces of a capture, and which of them are read.
//!
//! `FILE#INTERFACE` → [`CaptureName`]; a description in the file → [`Interface`].
//!
//! Units: stamps to ns.
//! Source: draft-ietf-opsawg-pcapng-05, 4.2.

use core::fmt;
use std::path::{Path, PathBuf};

use super::LINK_ETHERNET;

/// Which interfaces of a capture are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// All that are Ethernet; frames of others are left out.
    #[default]
    Ethernet,
    /// Those of these numbers, counted from 0 over the whole file.
    Numbers(Vec<u32>),
    /// Those of this name.
    Name(String),
}

/// A capture, and which of its interfaces are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureName {
    /// The file.
    pub path: PathBuf,
    /// Its interfaces.
    pub choice: Choice,
}

impl CaptureName {
    /// As [`Self::parse`], of an argument that may be any bytes.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        let whole = || Self { path: path.to_owned(), choice: Choice::Ethernet };
        path.to_str().map_or_else(whole, Self::parse)
    }

    /// Reads `FILE`, `FILE#NUMBER` or `FILE#NAME`, of which a file `-` is standard input. Where there is a file of the whole
    /// text, that is meant: a `#` may be part of a name.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let file = |text: &str| PathBuf::from(if text == "-" { "/dev/stdin" } else { text });
        let whole = || Self { path: file(text), choice: Choice::Ethernet };
        let Some((path, interface)) = text.rsplit_once('#').map(|(path, of)| (file(path), of))
        else {
            return whole();
        };
        // Where neither is there, the error had better name what was given.
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
    /// Whether it is of `interface`, which is the file's `number`th.
    pub(super) fn is_of(&self, number: u32, interface: &Interface) -> bool {
        match self {
            Self::Ethernet => interface.is_ethernet(),
            Self::Numbers(numbers) => numbers.contains(&number),
            Self::Name(name) => interface.name == *name,
        }
    }
}

/// What a file says about one interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name, as far as it is kept; empty where the file does not say.
    pub name: String,
    /// `LINKTYPE_` of its frames.
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
    /// Frames of it that were left out, as it is not Ethernet.
    pub(super) left_out: u64,
}

impl Interface {
    /// One of which the file says no more than `link_type` yet.
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

    /// A stamp in ns; `None` before 1970 or after 2554.
    pub(super) fn to_ns(&self, stamp: u64) -> Option<u64> {
        let n = u32::from(self.tsresol & 0x7F);
        let stamp = u128::from(stamp);
        let ns = if self.tsresol & 0x80 != 0 {
            (stamp * 1_000_000_000) >> n
        } else if n <= 9 {
            stamp * 10u128.pow(9 - n)
        } else {
            10u128.checked_pow(n - 9).map_or(0, |unit| stamp / unit)
        };
        let offset = i128::from(self.tsoffset) * 1_000_000_000;
        u64::try_from(i128::try_from(ns).ok()? + offset).ok()
    }
}

/// An interface in a message: its number, and its name if it has one.
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
