//! Citations: every page, heading and source file that the tree cites is in the tree.
//!
//! A page is cited by its path from the root, or in links of a page from that page. Behind it stand
//! numbers (`§4.5, §5.1 to §5.3`) or beginnings of headings (`"Inside", "Egress"`).
//!
//! Source: ARCHITECTURE.md "Layout of the tree".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path};
use std::sync::LazyLock;

use regex::Regex;

use super::{File, Finding, Tree, has_extension};

/// Folder of the rules, which contain examples of wrong citations.
const EXAMPLES: &str = "tidy/src/";

/// Compiles one of this file's patterns.
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is right")
}

static PAGE: LazyLock<Regex> = LazyLock::new(|| regex(r"[\w./-]*\w\.md\b"));
static LINK: LazyLock<Regex> = LazyLock::new(|| regex(r"\[[^\[\]]*\]\(([\w./-]*)(?:#([\w-]*))?\)"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^(?:,? | and | to |, and )(?:\([^()]*\),? (?:and |to )?)?§([0-9]+(?:\.[0-9]+)*[a-z]?)")
});
static HEADING: LazyLock<Regex> = LazyLock::new(|| regex(r#"^(?:,? | and )"([^"]+)""#));
static SOURCE: LazyLock<Regex> = LazyLock::new(|| regex(r"[\w./-]*\w\.(?:rs|py)\b"));

/// The text of a file, with each line break and the comment mark behind it made one space.
struct Flat {
    text: String,
    /// Offset of each line in `text`.
    starts: Vec<usize>,
}

impl Flat {
    fn of(file: &File) -> Self {
        let mut flat = Self { text: String::new(), starts: Vec::new() };
        // a citation may be wrapped, with a comment mark in the middle
        for line in file.text.lines() {
            flat.starts.push(flat.text.len());
            let line = line.trim_start();
            let inner = ["//!", "///", "//", "# "].iter().find_map(|mark| line.strip_prefix(mark));
            flat.text.push_str(inner.unwrap_or(line).trim());
            flat.text.push(' ');
        }
        flat
    }

    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    fn behind(&self, range: &Range<usize>) -> &str {
        self.text.get(range.end..).unwrap_or_default()
    }
}

/// The headings of a page, but not lines with `#` in blocks of code.
fn headings(page: &File) -> Vec<&str> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in page.text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if !in_code && line.starts_with('#') {
            found.push(line.trim_start_matches('#').trim());
        }
    }
    found
}

/// The anchor that GitHub gives a heading: small letters, digits, and `-` for blanks.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Whether `heading` has this number: `4.5 Switch commands`, `4. Admit`.
fn is_numbered(heading: &str, number: &str) -> bool {
    heading.split(' ').next().is_some_and(|first| first.trim_end_matches('.') == number)
}

/// Whether `heading` starts with the whole words `start`.
fn starts(heading: &str, start: &str) -> bool {
    let behind = heading.strip_prefix(start);
    behind.is_some_and(|behind| !behind.starts_with(|c: char| c.is_alphanumeric()))
}

/// The path of `link`, as a page at `page` has it, from the root.
fn resolved(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(name) => parts.extend(name.to_str()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Numbers or headings that are cited right behind a page; true for numbers.
fn cited(behind: &str) -> Vec<(&str, bool)> {
    let mut rest = behind;
    let mut found = Vec::new();
    for (pattern, is_number) in [(&NUMBER, true), (&HEADING, false)] {
        // a citation has several numbers or several headings, not both
        while let Some(part) = pattern.captures(rest) {
            let (Some(whole), Some(name)) = (part.get(0), part.get(1)) else { break };
            found.push((name.as_str(), is_number));
            rest = rest.get(whole.end()..).unwrap_or_default();
        }
        if !found.is_empty() {
            break;
        }
    }
    found
}

/// Pages and headings that are cited, and links of pages, are there.
#[must_use]
pub fn pages(tree: &Tree) -> Vec<Finding> {
    let pages: BTreeMap<&str, Vec<&str>> = tree
        .files
        .iter()
        .filter(|file| has_extension(&file.path, "md"))
        .map(|file| (file.path.as_str(), headings(file)))
        .collect();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.starts_with(EXAMPLES)) {
        let is_page = has_extension(&file.path, "md");
        let flat = Flat::of(file);
        let mut links = Vec::new();
        for link in LINK.captures_iter(&flat.text).filter(|_| is_page) {
            let Some(whole) = link.get(0) else { continue };
            let path = link.get(1).map_or("", |path| path.as_str());
            links.push(whole.range());
            let to = if path.is_empty() { file.path.clone() } else { resolved(&file.path, path) };
            let mut wrong =
                |what| findings.push(Finding::new(file, flat.line(whole.start()), what));
            let is_there =
                tree.files.iter().any(|f| f.path == to || f.path.starts_with(&format!("{to}/")));
            if !is_there {
                wrong(format!("links to {to}, which is not there"));
            } else if let (Some(name), Some(heads)) = (link.get(2), pages.get(to.as_str()))
                && !heads.iter().any(|head| anchor(head) == name.as_str())
            {
                wrong(format!("links to {to}#{}, which is not there", name.as_str()));
            }
        }
        for page in PAGE.find_iter(&flat.text) {
            // the page of a link was looked up by its path above
            if links.iter().any(|link| link.contains(&page.start())) {
                continue;
            }
            let mut wrong = |what| findings.push(Finding::new(file, flat.line(page.start()), what));
            // A page may name its neighbours by name; code that reads a page does so from its crate.
            let near = resolved(&file.path, page.as_str());
            let by_path = pages.get(page.as_str().trim_start_matches("../"));
            let Some(heads) = by_path.or_else(|| pages.get(near.as_str()).filter(|_| is_page))
            else {
                wrong(format!("cites {}, which is not there", page.as_str()));
                continue;
            };
            for (name, is_number) in cited(flat.behind(&page.range())) {
                let is_meant = |head: &&str| {
                    if is_number { is_numbered(head, name) } else { starts(head, name) }
                };
                if !heads.iter().any(is_meant) {
                    let mark = if is_number { "§" } else { "" };
                    wrong(format!(
                        "cites {} {mark}{name}, a heading that is not there",
                        page.as_str()
                    ));
                }
            }
        }
    }
    findings
}

/// Whether `line` can go on with a head's source: a comment, or in Python a part of the first text.
fn is_comment(file: &File, line: &str) -> bool {
    !file.is_rust() || line.trim_start().starts_with("//")
}

/// Source files that heads cite are there: by path from the root or a crate, or by name.
#[must_use]
pub fn sources(tree: &Tree) -> Vec<Finding> {
    let all: BTreeSet<String> = tree.files.iter().map(|file| format!("/{}", file.path)).collect();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.starts_with(EXAMPLES)) {
        let mut in_source = false;
        for (at, line) in file.text.lines().enumerate() {
            // A citation goes on over lines, up to an empty one or the end of the comment.
            let goes_on = line.chars().any(char::is_alphanumeric) && !line.contains("\"\"\"");
            in_source = line.contains("Source: ") || in_source && goes_on && is_comment(file, line);
            if !in_source {
                continue;
            }
            for found in SOURCE.find_iter(line) {
                let end = format!("/{}", found.as_str());
                if !all.iter().any(|path| path.ends_with(&end)) {
                    findings.push(Finding::new(
                        file,
                        at + 1,
                        format!("cites {}, which is not there", found.as_str()),
                    ));
                }
            }
        }
    }
    findings
}

/// Nothing cites documents that only its authors have: numbers of issues, and files of the
/// project's start.
#[must_use]
pub fn private(tree: &Tree) -> Vec<Finding> {
    // in two pieces, so that this file does not break its own rule
    let cited = [["see", "d [0-9]"], ["iss", "ue [0-9]"], ["sty", r"le\.md"]].map(|p| p.concat());
    let pattern = regex(&format!("(?i-u){}", cited.join("|")));
    let mut findings = Vec::new();
    for file in &tree.files {
        for (at, line) in file.text.lines().enumerate() {
            let found = pattern.find(line);
            findings.extend(
                found.map(|f| Finding::new(file, at + 1, format!("cites {:?}", f.as_str()))),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str =
        "# Spec\n## 4. Admit\n### 4.5 Switch: all\n## Inside: DRT\n```\n# no heading\n```\n";

    #[test]
    fn what_is_cited_must_be_there() {
        #[rustfmt::skip] // columns: name, path, text, lines of findings
        let cases: [(&str, &str, &str, &[usize]); 12] = [
            ("by number",        "a.rs", "//! docs/s.md §4, §4.5 (0h), and §4.5.\n",           &[]),
            ("no such number",   "a.rs", "fn f() {}\n// docs/s.md §4 to §5\n",                &[2]),
            ("behind brackets",  "a.rs", "// docs/s.md §4 (a, b), §9\n",                      &[1]),
            ("over lines",       "a.rs", "//! Source: docs/s.md\n//! \"Inside\", \"Out\".\n",     &[1]),
            ("starts of words",  "a.py", "\"\"\"docs/s.md \"Inside\" and \"Ins\".\"\"\"\n",         &[1]),
            ("in code",          "a.rs", "// docs/s.md \"no heading\"\n",                       &[1]),
            ("no such page",     "a.rs", "// s.md §4\n",                                      &[1]),
            ("beside the page",  "docs/b.md", "s.md §4\n",                                    &[]),
            ("a link",           "docs/b.md", "[s](s.md), [it](s.md#inside-drt), [me](#b)\n# b\n", &[]),
            ("a link up",        "docs/b.md", "[s](../s.md)\n",                               &[1]),
            ("no such anchor",   "docs/b.md", "[s](s.md#outside)\n",                          &[1]),
            ("a quote is none",  "a.rs", "// docs/s.md §4 (\"words\"); \"others\"\n",             &[]),
        ];
        for (name, path, text, want) in cases {
            let found = pages(&Tree::of(&[("docs/s.md", SPEC), (path, text)]));
            assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), want, "{name}: {found:?}");
        }
    }

    #[test]
    fn source_files_of_heads_must_be_there() {
        let text =
            "//! Source: a/src/b.rs, b.rs.\n//! Source: c.rs;\n//! `d/b.rs`.\nf.rs\n// e.rs\n";
        let found = sources(&Tree::of(&[("a/src/b.rs", text)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2, 3], "{found:?}");
    }

    #[test]
    fn what_only_authors_have_is_not_cited() {
        let text = ["Iss", "ue 2\n", "see", "d 000\nseeds and issues\n--seed=1\n"].concat();
        let found = private(&Tree::of(&[("a.md", &text)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [1, 2], "{found:?}");
    }
}
