//! Claims of the README: beside each figure stands the command that shows it, or the word pending.
//!
//! It reads paragraphs of `README.md`, and compares them with targets of the `Makefile` and files
//! of the tree.

use super::{Finding, Tree};

/// Units of figures about how weft performs.
const UNITS: [&str; 12] =
    ["Mpps", "Kpps", "pps", "Gbit/s", "Mbit/s", "ns", "µs", "us", "ms", "%", "frames/s", "GbE/s"];

/// Whether `text` holds a number with a unit of performance.
fn claims_number(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let trim = |word: &str| word.trim_matches(|c: char| ",.;:()|*".contains(c)).to_owned();
    words.iter().enumerate().any(|(at, word)| {
        let word = trim(word);
        let unit_at = word.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
        match unit_at {
            Some(0) => false,
            Some(unit_at) => word.get(unit_at..).is_some_and(|unit| UNITS.contains(&unit)),
            None if word.is_empty() => false,
            None => words.get(at + 1).is_some_and(|next| UNITS.contains(&trim(next).as_str())),
        }
    })
}

/// Whether `text` has a command that shows the figure, in backticks or a code block, or says
/// pending.
fn shows_how(text: &str) -> bool {
    let code =
        |start: &str| text.contains(&format!("`{start} ")) || text.contains(&format!("\n{start} "));
    text.contains("pending") || ["make", "weft", "cargo", "tools/test.py"].into_iter().any(code)
}

/// Targets that a Makefile defines, without variables.
fn targets(makefile: &str) -> Vec<&str> {
    let rule = |line: &'_ str| line.split_once(':').map(|(name, _)| name.len());
    let lines = makefile.lines().filter(|line| !line.starts_with(['\t', '#', '.', ' ']));
    lines.filter_map(|line| line.get(..rule(line)?)).filter(|name| !name.contains('=')).collect()
}

/// The README's claims can be run: numbers have a command, and `make` targets and links exist.
#[must_use]
pub fn claims(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.get("README.md") else { return Vec::new() };
    let targets = tree.get("Makefile").map(|makefile| targets(&makefile.text)).unwrap_or_default();
    let mut findings = Vec::new();
    let mut line = 1;
    for paragraph in file.text.split("\n\n") {
        if claims_number(paragraph) && !shows_how(paragraph) {
            findings.push(Finding::new(file, line, "a figure without a command or `pending`"));
        }
        for named in paragraph.split(['`', '\n']).filter_map(|code| code.strip_prefix("make ")) {
            let target = named.split_whitespace().next().unwrap_or_default();
            if !targets.contains(&target) {
                findings.push(Finding::new(file, line, format!("no target `make {target}`")));
            }
        }
        for link in paragraph.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            // a link to the web cannot be checked here
            let local = !path.is_empty() && !path.contains("://");
            let exists = tree.files.iter().any(|f| {
                f.path == path || f.path.starts_with(&format!("{}/", path.trim_end_matches('/')))
            });
            if local && !exists {
                findings.push(Finding::new(
                    file,
                    line,
                    format!("link to {path}, which is not there"),
                ));
            }
        }
        // the two newlines between paragraphs were split away
        line += paragraph.matches('\n').count() + 2;
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_need_what_shows_them() {
        #[rustfmt::skip] // columns: paragraph, findings
        let cases = [
            ("Forwards 10 Mpps.", 1),
            ("Forwards 10 Mpps (`make bench`).", 0),
            ("Forwards 10 Mpps, pending.", 0),
            ("Takes 3.5ns a frame", 1),
            ("| whole path | 95 % |", 1),
            ("Has 64 ports and 4 frame formats.", 0),
            ("`make nothing`", 1),
            ("```sh\nmake bench\n```", 0),
            ("[map](ARCHITECTURE.md) [src](parsers/) [out](https://a.b/c)", 0),
            ("[gone](docs/gone.svg)", 1),
        ];
        for (text, want) in cases {
            let tree = Tree::of(&[
                ("README.md", text),
                ("Makefile", "CARGO ?= cargo\n.PHONY: x\nbench:\n\tcargo run\n"),
                ("ARCHITECTURE.md", ""),
                ("parsers/src/lib.rs", ""),
            ]);
            let found = claims(&tree);
            assert_eq!(found.len(), want, "{text}: {found:?}");
        }
    }
}
