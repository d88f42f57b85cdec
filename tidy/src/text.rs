//! Rules about the text of files: length, heads, and words and calls that must not be there.
//!
//! One function a rule. Forbidden words are put together from pieces, so that this file keeps the
//! rules.
//!
//! Source: ARCHITECTURE.md "Layout of the tree"; ARCHITECTURE.md "Time, errors, unsafe";
//! ARCHITECTURE.md "Control"; `std::thread::park`.

use super::{File, Finding, Tree, has_extension};

/// Lines from which on a file may be two ideas. Most files have far fewer.
const LINES_MAX: usize = 1_000;

/// Files of more than 1,000 lines, inline tests included; locks and licences are not written by hand.
#[must_use]
pub fn lengths(tree: &Tree) -> Vec<Finding> {
    let written = |f: &&File| ["rs", "py", "sh"].iter().any(|ext| has_extension(&f.path, ext));
    let lines = tree.files.iter().filter(written).map(|f| (f, f.text.lines().count()));
    let long = lines.filter(|(_, lines)| *lines > LINES_MAX);
    long.map(|(f, lines)| Finding::new(f, lines, format!("more than {LINES_MAX} lines"))).collect()
}

/// Whether `line` holds `word` by itself, not as a part of a name.
fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        let behind = line.get(at + word.len()..).unwrap_or_default();
        !before.ends_with(inside) && !behind.starts_with(inside)
    })
}

/// Nothing is left to do: no markers, no stubs.
#[must_use]
pub fn left_to_do(tree: &Tree) -> Vec<Finding> {
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["todo", "!"], ["unimplemented", "!"]]
        .map(|w| w.concat());
    let mut findings = Vec::new();
    for file in &tree.files {
        for (at, line) in file.text.lines().enumerate() {
            let found = words.iter().filter(|word| has_word(line, word));
            findings.extend(found.map(|word| Finding::new(file, at + 1, format!("says {word}"))));
        }
    }
    findings
}

/// The comment that a source file starts with.
fn head(file: &File) -> String {
    let lines = file.text.lines();
    if file.is_rust() {
        return lines.take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n");
    }
    let behind = file.text.split_once("\"\"\"").map(|(_, behind)| behind);
    behind.and_then(|text| text.split("\"\"\"").next()).unwrap_or_default().to_owned()
}

/// Labels that make a form of a file's head; a sentence says the same.
const LABELS: [&str; 3] = ["Shape: ", "Units: none", "Source: none"];

/// The comment at the top of each source file says in its first line what the file is, and goes on
/// in prose.
#[must_use]
pub fn heads(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        // a file of tests belongs to the file that it tests, and needs no head
        let part_of_other = file.is_test() && file.path.contains("/src/");
        if !(file.is_rust() || has_extension(&file.path, "py")) || part_of_other {
            continue;
        }
        let head = head(file);
        if head.trim_start_matches(['/', '!', ' ']).is_empty() {
            findings.push(Finding::new(file, 1, "it does not begin with what it is"));
        }
        for line in head.lines().map(|line| line.trim_start_matches(['/', '!', ' '])) {
            if let Some(label) = LABELS.iter().find(|label| line.starts_with(**label)) {
                let what =
                    format!("its head has the label {label:?}: write it as prose, or leave it out");
                findings.push(Finding::new(file, 1, what));
            }
        }
    }
    findings
}

/// Whether frames and time pass through `file` as values: no clock, no sleep.
fn is_pure(file: &File) -> bool {
    let worker = file.path.starts_with("dataplane/src/worker");
    ["parsers/src/", "dataplane/src/", "hosts/src/", "cxl/src/", "pbr_switch/src/", "sim/src/"]
        .iter()
        .any(|dir| file.path.starts_with(dir))
        && !worker
        && !file.is_test()
}

/// Time is a parameter: only the worker's clock, control and the crates above it read a clock.
#[must_use]
pub fn clocks(tree: &Tree) -> Vec<Finding> {
    let calls = [
        "Instant::now",
        "SystemTime::now",
        "thread::sleep",
        "base::wait",
        "clock_gettime",
        "gettimeofday",
        "rdtsc",
    ];
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| is_pure(file)) {
        for (line, code) in file.code() {
            let found = calls.iter().filter(|call| code.contains(**call));
            findings.extend(found.map(|call| Finding::new(file, line, format!("calls {call}"))));
        }
    }
    findings
}

/// Files with threads that park until another thread of the same file wakes them, or a time has
/// passed.
const PARKS: [&str; 2] = ["control/src/live/watch.rs", "dataplane/src/port/tee.rs"];
/// The file that sleeps for all others.
const SLEEPS: &str = "base/src/wait.rs";

/// A thread that another one wakes parks; a thread that is never woken sleeps, as a park ends early
/// after a wake-up that was meant for something else.
#[must_use]
pub fn waits(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.path.starts_with("tidy/src/")) {
        let has = |call: &str| file.code().any(|(_, code)| code.contains(call));
        let may_park = PARKS.contains(&file.path.as_str());
        let (parks, wakes) = (has("park_timeout"), has(".unpark()"));
        // a listed file that no longer parks would hide the next one that does
        if may_park && !(parks && wakes) {
            findings.push(Finding::new(
                file,
                0,
                "is listed, and has no thread that parks and is woken",
            ));
        }
        let tests_at = file.last_line_of_code();
        // tests too: a sleep that fails on a slow machine is a test that fails at random
        for (at, line) in file.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let is_woken = may_park && wakes && at < tests_at;
            if code.contains("park_timeout") && !is_woken {
                findings.push(Finding::new(file, at + 1, "parks for a time, and nobody wakes it"));
            }
            if code.contains("thread::sleep") && file.path != SLEEPS {
                findings.push(Finding::new(file, at + 1, format!("sleeps outside {SLEEPS}")));
            }
        }
    }
    findings
}

/// Async serves the management API only.
#[must_use]
pub fn asyncs(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.path.starts_with("control/src/api")) {
        if file.path.starts_with("tidy/src/") {
            continue; // names what it looks for
        }
        for (line, code) in file.code() {
            let found = ["async", "await", "tokio"].into_iter().find(|word| has_word(code, word));
            findings.extend(found.map(|word| Finding::new(file, line, format!("uses {word}"))));
        }
    }
    findings
}

/// No file names the paths of one machine.
#[must_use]
pub fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let roots = ["work", "root", "home"].map(|dir| format!("/{dir}/"));
    let mut findings = Vec::new();
    for file in &tree.files {
        for (at, line) in file.text.lines().enumerate() {
            let starts = |at: usize| {
                let before = line.get(..at).and_then(|text| text.chars().next_back());
                // a folder of this name in the middle of a path is no machine's
                before.is_none_or(|c| !c.is_alphanumeric() && !"._-}/".contains(c))
            };
            let found =
                roots.iter().find(|root| line.match_indices(*root).any(|(at, _)| starts(at)));
            findings.extend(found.map(|dir| Finding::new(file, at + 1, format!("names {dir}"))));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn words_calls_and_paths_are_found_where_they_count() {
        let marker = ["FIX", "ME"].concat();
        let stub = format!("    {}()", ["todo", "!"].concat());
        let home = format!("cd {}", ["/ho", "me/x"].concat());
        let inner = format!("net{}", ["/wo", "rk/x"].concat());
        #[rustfmt::skip] // columns: name, rule, path, text, findings
        let cases: [(&str, Rule, &str, &str, usize); 20] = [
            ("marker", left_to_do, "a.md", &marker, 1),
            ("marker inside a word", left_to_do, "a.md", &format!("A{marker}S"), 0),
            ("stub", left_to_do, "a.rs", &stub, 1),
            ("clock in the core", clocks, "dataplane/src/pfc.rs", "Instant::now()", 1),
            ("clock in a comment", clocks, "dataplane/src/pfc.rs", "// Instant::now()", 0),
            ("clock of the worker", clocks, "dataplane/src/worker/mod.rs", "Instant::now()", 0),
            ("clock of control", clocks, "control/src/live.rs", "Instant::now()", 0),
            ("sleep in an endpoint", clocks, "hosts/src/a.rs", "std::thread::sleep(d)", 1),
            ("sleep by another name", clocks, "hosts/src/a.rs", "use weft_base::wait;", 1),
            ("kernel's clock", clocks, "sim/src/a.rs", "libc::clock_gettime(", 1),
            ("async", asyncs, "dataplane/src/port/tap.rs", "async fn rx() {}", 1),
            ("await", asyncs, "control/src/live.rs", "x.await;", 1),
            ("async in the API", asyncs, "control/src/api/http.rs", "async fn rx() {}", 0),
            ("asynchronous", asyncs, "sim/src/a.rs", "let asynchronous = 1;", 0),
            ("home", machine_paths, "a.sh", &home, 1),
            ("inside a path", machine_paths, "a.sh", &inner, 0),
            ("1000 lines", lengths, "a.rs", &"\n".repeat(1_000), 0),
            ("1001 lines", lengths, "a.rs", &"\n".repeat(1_001), 1),
            ("1001 lines of tests", lengths, "a/tests.rs", &"\n".repeat(1_001), 1),
            ("1001 lines of a lock", lengths, "Cargo.lock", &"\n".repeat(1_001), 0),
        ];
        for (name, rule, path, text, want) in cases {
            assert_eq!(rule(&Tree::of(&[(path, text)])).len(), want, "{name}");
        }
    }

    #[test]
    fn only_threads_that_are_woken_park_and_one_file_sleeps() {
        let park = "thread::park_timeout(d);\n";
        let sleep = "std::thread::sleep(d);\n";
        let wake = "a.thread().unpark();\n";
        let listed = PARKS[0];
        let both = [park, wake].concat();
        let tests = "#[cfg(test)]\nmod tests {\n";
        let own_tests = [&both, tests, park, "}\n"].concat();
        #[rustfmt::skip] // columns: name, path, text, lines of findings
        let cases: [(&str, &str, &str, &[usize]); 14] = [
            ("woken", listed, &both, &[]),
            ("no longer woken", listed, park, &[0, 1]),
            ("no longer parked", listed, wake, &[0]),
            ("woken in its tests alone", listed, &[park, tests, wake, "}\n"].concat(), &[0, 1]),
            ("in the tests of a file that may", listed, &own_tests, &[5]),
            ("in a file that is not listed", "lab/src/a.rs", &both, &[1]),
            ("in inline tests", "lab/src/a.rs", &["#[cfg(test)]\n", park].concat(), &[2]),
            ("in a file of tests", "lab/src/a/tests.rs", park, &[1]),
            ("in a test of the whole", "tests/tests/live/a.rs", park, &[1]),
            ("imported", "tests/src/a.rs", "use std::thread::park_timeout;\n", &[1]),
            ("in a comment", "tests/src/a.rs", "//! `park_timeout`\n", &[]),
            ("until it is woken", "lab/src/a.rs", "std::thread::park();\n", &[]),
            ("a sleep", "tests/src/a.rs", sleep, &[1]),
            ("the sleep of all", SLEEPS, sleep, &[]),
        ];
        for (name, path, text, want) in cases {
            let found = waits(&Tree::of(&[(path, text)]));
            let lines: Vec<_> = found.iter().map(|finding| finding.line).collect();
            assert_eq!(lines, want, "{name}: {found:?}");
        }
    }

    #[test]
    fn files_say_what_they_are() {
        let python = "#!/usr/bin/env python3\n\"\"\"What.\n\"\"\"\n";
        #[rustfmt::skip] // columns: path, text, findings
        let cases = [
            ("a/src/b.rs", "//! What.\nfn f() {}\n", 0),
            ("a/src/b.rs", "//!\nfn f() {}\n", 1),
            ("a/src/b.rs", "//! What.\n//!\n//! Shape: a -> b.\n//! Units: none.\n", 2),
            ("a/src/b.rs", "//! What.\n//!\n//! Units: bytes.\n//!\n//! Source: b(2).\n", 0),
            ("a/c.py", "\"\"\"What.\n\nSource: none of its own.\n\"\"\"\n", 1),
            ("a/src/b.rs", "fn f() {}\n", 1),
            ("a/src/b/tests.rs", "use super::*;\n", 0),
            ("a/tests/c.rs", "fn f() {}\n", 1),
            ("a/c.py", python, 0),
            ("a/c.py", "import os\n", 1),
        ];
        for (path, text, want) in cases {
            assert_eq!(heads(&Tree::of(&[(path, text)])).len(), want, "{path}: {text}");
        }
    }
}
