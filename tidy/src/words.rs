//! Thermometer of words, crate by crate.
//!
//! It counts comments inside functions, documentation that repeats a name, and words of sentences
//! that have to be decoded. Nothing fails by it, so that text is not written for it.
//!
//! Tests are left out: product code is the first that a reader has to understand.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use super::functions::functions;
use super::{File, Tree};

/// Documentation of at most this many words most often repeats a name.
const SHORT: usize = 3;
/// Words that are counted in documentation, in groups.
const MARKERS: [(&str, &[&str]); 3] =
    [("what", &["what"]), ("nobody", &["nobody", "somebody"]), ("none", &["none"])];

/// Counts of one or several files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Lines of code inside functions.
    pub code: usize,
    /// Lines inside functions that are a comment, and lines of code with one behind it.
    pub comments: usize,
    pub trailing: usize,
    /// Pieces of documentation, those of three words or fewer, and the words of all.
    pub docs: usize,
    pub short: usize,
    pub words: usize,
    /// Words of documentation that are markers, by group.
    pub markers: [usize; MARKERS.len()],
    /// Functions whose signature takes a tuple apart, those of tests too.
    pub tuples: usize,
}

impl Add for Reading {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let mut markers = self.markers;
        markers.iter_mut().zip(other.markers).for_each(|(sum, more)| *sum += more);
        Self {
            code: self.code + other.code,
            comments: self.comments + other.comments,
            trailing: self.trailing + other.trailing,
            docs: self.docs + other.docs,
            short: self.short + other.short,
            words: self.words + other.words,
            markers,
            tuples: self.tuples + other.tuples,
        }
    }
}

impl Sum for Reading {
    fn sum<I: Iterator<Item = Self>>(readings: I) -> Self {
        readings.fold(Self::default(), Add::add)
    }
}

/// Offset of the comment behind code, if there is one; two slashes in a text do not count.
fn trailing_comment(line: &str) -> Option<usize> {
    let (mut in_text, mut escaped) = (false, false);
    let bytes = line.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\\' if in_text => escaped = !escaped,
            b'"' if !escaped => in_text = !in_text,
            b'/' if !in_text && bytes.get(at + 1) == Some(&b'/') => return Some(at),
            _ => escaped = false,
        }
    }
    None
}

impl Reading {
    /// Counts the words of one file.
    #[must_use]
    pub fn of(file: &File) -> Self {
        let functions = functions(file);
        let tuples = functions.iter().filter(|function| function.tuples > 0).count();
        let mut reading = Self { tuples, ..Self::default() };
        if file.is_test() {
            return reading;
        }
        // bodies of tests are left out, as their lines are not product code
        let bodies = functions.iter().filter(|function| !function.is_test);
        let inside: BTreeSet<usize> =
            bodies.filter_map(|function| function.body.clone()).flatten().collect();
        let mut doc: Option<(&str, usize)> = None;
        for (at, line) in file.text.lines().take(file.last_line_of_code()).enumerate() {
            let line = line.trim();
            reading.count_code(line, inside.contains(&(at + 1)));
            let text =
                ["///", "//!"].into_iter().find_map(|kind| Some((kind, line.strip_prefix(kind)?)));
            doc = match (doc, text) {
                // lines of one kind that follow each other are one piece of documentation
                (Some((kind, words)), Some((same, text))) if kind == same => {
                    Some((kind, words + reading.count_words(text)))
                }
                (before, text) => {
                    reading.end_doc(before);
                    text.map(|(kind, text)| (kind, reading.count_words(text)))
                }
            };
        }
        reading.end_doc(doc);
        reading
    }

    fn count_code(&mut self, line: &str, is_inside: bool) {
        if !is_inside || line.is_empty() {
            return;
        }
        if line.starts_with("//") {
            self.comments += 1;
        } else {
            self.code += 1;
            self.trailing += usize::from(trailing_comment(line).is_some());
        }
    }

    /// Counts a line of documentation; returns its words.
    fn count_words(&mut self, text: &str) -> usize {
        let words = text.split_whitespace();
        let words = words.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        let mut count = 0;
        // a dash or a table's bar between blanks is no word
        for word in words.filter(|word| !word.is_empty()) {
            count += 1;
            let word = word.to_lowercase();
            for ((_, group), found) in MARKERS.iter().zip(&mut self.markers) {
                *found += usize::from(group.contains(&word.as_str()));
            }
        }
        self.words += count;
        count
    }

    /// Counts a piece of documentation that is over: its kind and its words.
    fn end_doc(&mut self, doc: Option<(&str, usize)>) {
        if let Some((_, words)) = doc {
            self.docs += 1;
            self.short += usize::from(words <= SHORT);
        }
    }
}

/// Readings by crate, and of all.
#[derive(Clone, Debug, Default)]
pub struct Thermometer(BTreeMap<String, Reading>);

impl Thermometer {
    /// Counts the Rust sources of a tree, by the folder at its root.
    #[must_use]
    pub fn of(tree: &Tree) -> Self {
        let mut crates: BTreeMap<String, Reading> = BTreeMap::new();
        for file in tree.rust() {
            let Some((folder, _)) = file.path.split_once('/') else { continue };
            let sum = crates.entry(folder.to_owned()).or_default();
            *sum = *sum + Reading::of(file);
        }
        Self(crates)
    }
}

/// `count` out of `of`, times `times`, with one digit behind the point.
fn ratio(count: usize, times: usize, of: usize) -> String {
    // rounded in integers: half of the divisor is added
    let tenths = (count * times * 10 + of / 2).checked_div(of).unwrap_or(0);
    format!("{}.{}", tenths / 10, tenths % 10)
}

impl fmt::Display for Thermometer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Inside functions, per 100 lines of code: comment lines, and comments behind code. Of documentation: pieces of"
        )?;
        writeln!(
            f,
            "{SHORT} words or fewer in percent, and markers per 1,000 words. Tuples: signatures that take one apart.\n"
        )?;
        write!(
            f,
            "{:<11}{:>8}{:>7}{:>8}{:>7}{:>8}{:>9}",
            "crate", "code", "lines", "behind", "docs", "short", "words"
        )?;
        for (name, _) in MARKERS {
            write!(f, "{name:>8}")?;
        }
        writeln!(f, "{:>8}", "tuples")?;
        let all: Reading = self.0.values().copied().sum();
        let rows = self.0.iter().map(|(name, reading)| (name.as_str(), reading));
        for (name, reading) in rows.chain([("all", &all)]) {
            let Reading { code, comments, trailing, docs, short, words, markers, tuples } =
                *reading;
            write!(
                f,
                "{name:<11}{code:>8}{:>7}{:>8}",
                ratio(comments, 100, code),
                ratio(trailing, 100, code)
            )?;
            write!(f, "{docs:>7}{:>7}%{words:>9}", ratio(short, 100, docs))?;
            for count in markers {
                write!(f, "{:>8}", ratio(count, 1_000, words))?;
            }
            writeln!(f, "{tuples:>8}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_count_inside_functions_and_documentation_by_piece() {
        let text = "//! Adds what it is given, none left out.\n\n/// Bytes.\nconst A: u8 = 1;\n/// What nobody knows,\n/// or does.\nfn f() {\n    // because\n    let a = \"//\"; // why\n    let b = 2;\n\n}\n// outside\n#[cfg(test)]\nmod tests {\n    /// Test.\n    fn g((a, b): (u8, u8)) {\n        // no\n    }\n}\n";
        let tree = Tree::of(&[("a/src/b.rs", text), ("a/tests/c.rs", text)]);
        let reading = Reading::of(&tree.files[0]);
        let want = Reading {
            code: 2,
            comments: 1,
            trailing: 1,
            docs: 3,
            short: 1,
            words: 8 + 1 + 5,
            markers: [2, 1, 1],
            tuples: 1,
        };
        assert_eq!(reading, want);
        let of_tests = Reading { tuples: 1, ..Reading::default() };
        assert_eq!(Reading::of(&tree.files[1]), of_tests, "tests");
        let shown = Thermometer::of(&tree).to_string();
        let row: Vec<_> = shown.lines().last().unwrap_or_default().split_whitespace().collect();
        assert_eq!(
            row,
            ["all", "2", "50.0", "50.0", "3", "33.3%", "14", "142.9", "71.4", "71.4", "2"]
        );
    }

    #[test]
    fn slashes_in_a_text_are_no_comment() {
        #[rustfmt::skip] // columns: line, where its comment begins
        let cases = [
            ("a // b", Some(2)), ("\"//\"", None), ("\"\\\"//\" // c", Some(7)), ("a / b", None), ("", None),
        ];
        for (line, want) in cases {
            assert_eq!(trailing_comment(line), want, "{line}");
        }
    }
}
