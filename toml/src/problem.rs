//! Faults of a configuration, each with its place.
//!
//! A [`Problem`] has a [`Place`]; a [`ConfigError`] prints all problems, a line each. Lines and columns count from 1,
//! columns in characters.
//!
//! Source: GNU coding standards, "Formatting Error Messages" (`file:line:column: message`).

use std::collections::BTreeSet;
use std::fmt;

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it is the default.
    Default,
    /// Worked out from other parameters.
    Derived,
    File {
        file: String,
        line: usize,
        /// In characters, from 1.
        column: usize,
    },
    /// In a file as a whole.
    WholeFile(String),
    /// On the command line, with this flag.
    Flag(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Derived => f.write_str("derived"),
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::WholeFile(file) => f.write_str(file),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    /// The key, such as `buffer.dt_alpha`; empty when the text itself is broken.
    pub key: String,
    /// The expected value and the one found.
    pub message: String,
}

/// Drops repeated problems; the first of each keeps its place. Several ports may refuse one value that they share.
pub fn drop_repeated(problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    problems.retain(|problem| seen.insert(problem.to_string()));
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Most problems that are reported at once.
pub const PROBLEMS_MAX: usize = 100;

/// A configuration was refused; all reasons found, in the order of the text where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError(pub Vec<Problem>);

impl ConfigError {
    /// Names the file that the text came from, in place of what it was called when it was parsed.
    #[must_use]
    pub fn in_file(mut self, name: &str) -> Self {
        for problem in &mut self.0 {
            if let Place::File { file, .. } | Place::WholeFile(file) = &mut problem.place {
                name.clone_into(file);
            }
        }
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// Lines and columns of a text.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    file: &'a str,
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    /// Lines of `text`, which was read from `file`.
    #[must_use]
    pub fn new(file: &'a str, text: &'a str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        Self { file, text, starts }
    }

    /// Where byte `offset` is; past the end counts as the end.
    #[must_use]
    pub fn place(&self, offset: usize) -> Place {
        let offset = offset.min(self.text.len());
        // Lines that begin at or before the byte: the number of its own line, counted from 1.
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).and_then(|i| self.starts.get(i)).copied().unwrap_or(0);
        let before = self.text.as_bytes().get(start..offset).unwrap_or_default();
        let column = 1 + before.iter().filter(|&&byte| byte & 0xC0 != 0x80).count(); // not UTF-8 tails
        Place::File { file: self.file.to_owned(), line, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters() {
        let text = "ab\n\u{e9}=1\r\nx\n";
        let lines = Lines::new("f", text);
        #[rustfmt::skip] // columns: offset, want
        let cases = [
            (0, "f:1:1"), (2, "f:1:3"), (3, "f:2:1"), (5, "f:2:2"), (6, "f:2:3"), (9, "f:3:1"),
            (text.len(), "f:4:1"), (999, "f:4:1"),
        ];
        for (offset, want) in cases {
            assert_eq!(lines.place(offset).to_string(), want, "{offset}");
        }
        assert_eq!(Lines::new("f", "").place(0).to_string(), "f:1:1");
    }
}
