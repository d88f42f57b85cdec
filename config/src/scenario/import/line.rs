//! Lines of a text as words with their places.
//!
//! [`lines`] splits a text into [`Line`]s, whose methods read a word as a number or another type, or refuse it with
//! its place. Lines and columns count from 1.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::scenario::problem;
use crate::{Place, Problem};

/// The words of a line, each with its column.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    file: &'a str,
    number: usize,
    /// Column behind the last character, for words that are missing.
    end: usize,
    words: Vec<(usize, &'a str)>,
}

/// Lines of `text` that have words; a `#` begins a comment.
pub(super) fn lines<'a>(
    file: &'a str,
    text: &'a str,
    is_gap: impl Fn(char) -> bool + Copy,
) -> impl Iterator<Item = Line<'a>> {
    let lines = (1..).zip(text.lines()).map(move |(number, line)| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = Vec::new();
        let mut start = None;
        // A gap behind the end closes the last word.
        for (at, c) in line.char_indices().chain([(line.len(), ' ')]) {
            if is_gap(c) || at == line.len() {
                if let Some(word) =
                    start.take().and_then(|start| Some((start + 1, line.get(start..at)?)))
                {
                    words.push(word);
                }
            } else if start.is_none() {
                start = Some(at);
            }
        }
        Line { file, number, end: line.len() + 1, words }
    });
    lines.filter(|line| !line.words.is_empty())
}

impl<'a> Line<'a> {
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Word `at`; empty past the end.
    pub fn word(&self, at: usize) -> &'a str {
        self.words.get(at).map_or("", |(_, word)| word)
    }

    /// A problem with word `at`.
    pub fn refuse(&self, at: usize, expected: impl Display) -> Problem {
        let column = self.words.get(at).map_or(self.end, |(column, _)| *column);
        let place = Place::File { file: self.file.to_owned(), line: self.number, column };
        let found: String = self.word(at).chars().take(60).collect();
        let found =
            if found.is_empty() { "the end of the line".to_owned() } else { format!("{found:?}") };
        problem(place, "", format!("expected {expected}, found {found}"))
    }

    /// A warning about the line as a whole.
    pub fn remark(&self, message: impl Display) -> Problem {
        let place = Place::File { file: self.file.to_owned(), line: self.number, column: 1 };
        problem(place, "", format!("{message}"))
    }

    /// Word `at` as a `T`.
    pub fn read<T: FromStr>(&self, at: usize, expected: &str) -> Result<T, Problem> {
        self.word(at).parse().map_err(|_| self.refuse(at, expected))
    }

    /// Word `at` as a number of `range`.
    pub fn number(
        &self,
        at: usize,
        what: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, Problem> {
        let number: Option<u64> = self.word(at).parse().ok();
        let (least, most) = range.into_inner();
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.refuse(at, format_args!("{what}, {least} to {most}")))
    }

    /// Refuses the first word after `count`, if there is one; `what` is the expectation in the message.
    pub fn at_most(&self, count: usize, what: &str) -> Result<(), Problem> {
        if self.len() > count { Err(self.refuse(count, what)) } else { Ok(()) }
    }
}

/// A problem at the end of the text.
pub(super) fn at_end(file: &str, text: &str, expected: impl Display) -> Problem {
    let line = text.lines().count().max(1);
    let place = Place::File { file: file.to_owned(), line, column: 1 };
    problem(place, "", format!("expected {expected}, found the end of the file"))
}
