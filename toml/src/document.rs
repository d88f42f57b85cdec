//! A parsed text, and the mistakes that are found in it.
//!
//! [`Document::parse`] refuses text that is not TOML; what the keys mean is up to the reader, which collects its
//! [`Findings`].

use toml::Spanned;
use toml::de::DeTable;

use crate::problem::{ConfigError, Lines, PROBLEMS_MAX, Place, Problem};

/// A text that is TOML.
#[derive(Clone, Debug)]
pub struct Document<'t> {
    lines: Lines<'t>,
    root: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    /// Parses `text`, which came from `file`.
    ///
    /// # Errors
    /// All errors of syntax, and keys that are given twice.
    pub fn parse(file: &'t str, text: &'t str) -> Result<Self, ConfigError> {
        // The parser goes on after a syntax error, so one run reports them all. The tree that it recovers lacks the
        // broken parts: checking it would report errors that only follow from those.
        let (root, errors) = DeTable::parse_recoverable(text);
        let document = Self { lines: Lines::new(file, text), root };
        let mut found = document.findings();
        for error in errors {
            let at = error.span().map_or(0, |span| span.start);
            found.add(at, String::new(), error.message().to_owned());
        }
        if found.is_empty() { Ok(document) } else { Err(found.into_error()) }
    }

    /// The keys before the first section, and the sections.
    #[must_use]
    pub fn root(&self) -> &DeTable<'t> {
        self.root.get_ref()
    }

    /// Where byte `offset` of the text is.
    #[must_use]
    pub fn place(&self, offset: usize) -> Place {
        self.lines.place(offset)
    }

    /// An empty list of mistakes in this text.
    #[must_use]
    pub const fn findings(&self) -> Findings<'_> {
        Findings { lines: &self.lines, found: Vec::new() }
    }
}

/// Mistakes found in a text, up to [`PROBLEMS_MAX`].
#[derive(Debug)]
pub struct Findings<'d> {
    lines: &'d Lines<'d>,
    /// Each with its offset in the text.
    found: Vec<(usize, Problem)>,
}

impl Findings<'_> {
    /// Adds a problem at byte `at` of the text. `key` is empty if the text itself is broken.
    pub fn add(&mut self, at: usize, key: String, message: String) {
        if !self.is_full() {
            self.found.push((at, Problem { place: self.lines.place(at), key, message }));
        }
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether no more are taken.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.found.len() >= PROBLEMS_MAX
    }

    /// Adds those of `more`, which was found below `key` where no other key is said.
    pub(crate) fn extend(&mut self, more: Findings<'_>, key: &str) {
        for (at, mut problem) in more.found {
            if problem.key.is_empty() {
                key.clone_into(&mut problem.key);
            }
            self.add(at, problem.key, problem.message);
        }
    }

    /// All of them, in the order of the text: tables iterate by key, but people read from top to bottom.
    #[must_use]
    pub fn into_error(mut self) -> ConfigError {
        self.found.sort_by_key(|(at, _)| *at);
        ConfigError(self.found.into_iter().map(|(_, problem)| problem).collect())
    }
}
