//! Tidy: rules that hold for the source tree as a whole.
//!
//! Each rule is a function from a [`Tree`], which has the path and text of every file, to
//! [`Finding`]s with lines that count from 1. A broken rule fails the tests. A [warning](WARNINGS)
//! is only printed: a number that must not be exceeded is obeyed at the cost of the quality that it
//! measures.
//!
//! Source: ARCHITECTURE.md "Layout of the tree".

pub mod arrows;
pub mod circles;
pub mod citations;
pub mod clauses;
pub mod functions;
pub mod manifests;
pub mod methods;
pub mod mutants;
mod names;
pub mod pages;
pub mod readme;
pub mod reads;
pub mod text;
pub mod words;

use std::fmt;
use std::path::Path;
use std::process::Command;

/// A file of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path from the root, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    /// Whether the name ends like that of Rust source.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        has_extension(&self.path, "rs")
    }

    /// Whether the whole file is tests.
    #[must_use]
    pub fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.path.contains("/tests/") || name == "tests.rs" || name.ends_with("_tests.rs")
    }

    /// Its lines of code with their numbers, comments cut off, up to its inline tests.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let before_tests = lines.take_while(|(_, line)| !starts_tests(line));
        before_tests.map(|(at, line)| (at, line.split("//").next().unwrap_or_default()))
    }

    /// Number of the last line before its inline tests; 0 where it begins with them.
    #[must_use]
    pub fn last_line_of_code(&self) -> usize {
        self.code().last().map_or(0, |(line, _)| line)
    }
}

/// Whether `path` ends in `.extension`.
#[must_use]
pub fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Whether a file's inline tests start at `line`. Items that are only for tests stand indented.
fn starts_tests(line: &str) -> bool {
    line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test")
}

/// All files that git tracks, or would.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Sorted by path.
    pub files: Vec<File>,
}

/// Why a tree cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// git could not be started.
    #[error("run git ls-files")]
    Git(#[source] std::io::Error),
    #[error("git ls-files: {0}")]
    Refused(String),
    /// A file that git names cannot be read.
    #[error("read {path}")]
    File { path: String, source: std::io::Error },
}

impl Tree {
    /// A tree of `(path, text)`.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        Self { files: files.iter().map(file).collect() }
    }

    /// Reads every file below `root` that git tracks or would track. A file that is not text, such
    /// as a picture, has an empty text.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn read(root: &Path) -> Result<Self, TreeError> {
        let listed = Command::new("git")
            // with files that are not added yet, so that a rule fails before the commit and not
            // after it
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(TreeError::Git)?;
        if !listed.status.success() {
            let why = String::from_utf8_lossy(&listed.stderr).trim().to_owned();
            return Err(TreeError::Refused(why));
        }
        let mut files = Vec::new();
        for path in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => {
                    let text = String::from_utf8(bytes).unwrap_or_default();
                    files.push(File { path: path.to_owned(), text });
                }
                // Deleted, but the deletion is not staged.
                Err(gone) if gone.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(TreeError::File { path: path.to_owned(), source }),
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// The file at `path`, if the tree has it.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

/// A rule broken at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path of the file.
    pub path: String,
    /// Line of the place; 0 for the whole file.
    pub line: usize,
    pub what: String,
}

impl Finding {
    fn new(file: &File, line: usize, what: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// A rule: all places of a tree that break it.
pub type Rule = fn(&Tree) -> Vec<Finding>;

/// The rules, by name.
pub const RULES: [(&str, Rule); 21] = [
    ("crates use each other as the map says", manifests::crate_arrows),
    ("each dependency says why it is there", manifests::reasons),
    ("packages are used where the table says", manifests::packages),
    ("modules of the dataplane use each other as the map says", arrows::module_arrows),
    ("files of a crate form no circle", circles::circles),
    ("folders of a crate form no circle", circles::folder_circles),
    ("no signature takes a tuple apart", functions::tuple_parameters),
    ("nothing is left to do", text::left_to_do),
    ("each source file begins with what it is", text::heads),
    ("time is a parameter", text::clocks),
    ("threads that nobody wakes sleep", text::waits),
    ("files are read in one place", reads::reads),
    ("async serves the management API only", text::asyncs),
    ("no file names a machine's paths", text::machine_paths),
    ("the README's claims can be run", readme::claims),
    ("tests that the page of rules names are there", pages::tests_named),
    ("each command has a row on the page of rules", pages::commands_have_rows),
    ("pages and headings that are cited are there", citations::pages),
    ("source files that heads cite are there", citations::sources),
    ("nothing is cited that only its authors have", citations::private),
    ("each checker has a mutant that applies", mutants::table),
];

/// Warnings by name: places worth a look, which fail nothing.
pub const WARNINGS: [(&str, Rule); 3] = [
    ("a file of more than 1,000 lines is often two ideas", text::lengths),
    ("a type with methods in more than four files is often several types", methods::spread),
    ("a clause of a standard is named above code, and above no test", clauses::untested),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rule has a tree that breaks it: none passes whatever it is given.
    #[test]
    fn each_rule_can_fail() {
        let long = "x\n".repeat(1_001);
        let bad = Tree::of(&[
            (
                "parsers/Cargo.toml",
                "[package]\nname = \"weft-parsers\"\n[dependencies]\nweft-sim.workspace = true\nx = \"1\"\n",
            ),
            (
                "dataplane/src/voq.rs",
                "use crate::pfc::Pfc;\npub struct Voq;\nlet t = Instant::now();\nasync fn f() {}\n",
            ),
            ("dataplane/src/pfc.rs", "use crate::voq::Voq;\npub struct Pfc;\n"),
            ("dataplane/src/lib.rs", "mod pfc;\nmod voq;\n"),
            ("tools/long.py", &long),
            ("tools/a.sh", concat!("# TO", "DO later\ncd /ro", "ot/x\n")),
            ("README.md", "Forwards 10 Mpps.\n"),
            ("ARCHITECTURE.md", "## Packages\n| `x` | not used | no |\n"),
            ("docs/fabric-rules.md", "| a rule | 1 | no test |\n"),
            ("sim/src/a.rs", concat!("//! Source: b.rs; no.md, iss", "ue 1\n")),
            ("lab/src/a.rs", "park_timeout(d)\n"),
            ("lab/src/signature.rs", "fn f((a, b): (u8, u8)) {}\n"),
            ("lab/src/clause.rs", "//= RFC 1 section 2\nfn f() {}\n"),
            ("lab/src/reads.rs", "std::fs::read(path)\n"),
            ("hosts/src/wide.rs", "struct Wide;\nimpl Wide {}\n"),
            ("hosts/src/p.rs", "impl Wide {}\n"),
            ("hosts/src/q.rs", "impl Wide {}\n"),
            ("hosts/src/r.rs", "impl Wide {}\n"),
            ("hosts/src/s.rs", "impl Wide {}\n"),
            ("sim/src/checkers.rs", "self.object(now, \"order\", saw);\n"),
        ]);
        for (name, rule) in RULES.into_iter().chain(WARNINGS) {
            assert!(!rule(&bad).is_empty(), "{name}");
            assert_eq!(rule(&Tree::default()), [], "{name}");
        }
    }

    #[test]
    fn code_ends_where_tests_start_and_has_no_comments() {
        let tree = Tree::of(&[("a.rs", "let a = 1; // b\n#[cfg(test)]\nmod tests {}\n")]);
        let code: Vec<_> = tree.files[0].code().collect();
        assert_eq!(code, [(1, "let a = 1; ")]);
        assert_eq!(tree.files[0].last_line_of_code(), 1);
        assert_eq!(Tree::of(&[("a.rs", "#[cfg(test)]\n")]).files[0].last_line_of_code(), 0);
    }

    #[test]
    fn files_of_tests_are_known_by_name() {
        #[rustfmt::skip] // columns: path, whether it is tests
        let cases = [
            ("sim/tests/a.rs", true), ("dataplane/src/voq/tests.rs", true),
            ("dataplane/src/fdb/loom_tests.rs", true), ("tests/src/lib.rs", false),
        ];
        for (path, want) in cases {
            assert_eq!(Tree::of(&[(path, "")]).files[0].is_test(), want, "{path}");
        }
    }
}
