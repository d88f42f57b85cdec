//! Pages of rules: every test that they name is in the tree.
//!
//! The pages are `docs/fabric-rules.md`, `docs/forwarding.md`, `docs/queueing.md` and
//! `docs/security.md`.
//!
//! Tests stand in rows of the pages' tables as `FILE::NAME` in backticks.

use weft_parsers::cci::Opcode;

use super::{File, Finding, Tree};

/// Page of the fabric's rules.
const PAGE: &str = "docs/fabric-rules.md";
/// Pages of which each row names tests.
const PAGES: [&str; 3] = [PAGE, "docs/forwarding.md", "docs/queueing.md"];
/// Page of rights, of which only tables with a last column `test` name tests.
const SECURITY: &str = "docs/security.md";

/// Whether `text` has a test of this name: `#[test]` stands above, with other attributes and comments only between.
fn has_test(text: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut heads = lines.iter().enumerate().filter(|(_, line)| line.starts_with(&head));
    // a helper may have the same name as a test of another file: the attribute decides
    heads.any(|(at, _)| {
        let above = lines.get(..at).unwrap_or_default().iter().rev();
        above.take_while(|line| line.starts_with(['#', '/'])).any(|line| *line == "#[test]")
    })
}

/// Each row of the page names a test, and every test it names is in the source.
#[must_use]
pub fn tests_named(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in PAGES.iter().filter_map(|page| tree.get(page)) {
        let rows = page.text.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
        let rows = rows.filter(|(_, line)| !line.starts_with("| rule |"));
        findings.extend(rows_named(tree, page, rows));
    }
    if let Some(page) = tree.get(SECURITY) {
        let mut counts = false;
        // rows of other tables of this page have no tests
        let rows = page.text.lines().enumerate().filter(|(_, line)| {
            let is_head = line.starts_with("| ") && line.ends_with(" test |");
            counts = is_head || (counts && line.starts_with('|'));
            counts && !is_head && line.starts_with("| ")
        });
        findings.extend(rows_named(tree, page, rows));
    }
    findings
}

fn rows_named<'a>(
    tree: &Tree,
    page: &File,
    rows: impl Iterator<Item = (usize, &'a str)>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, row) in rows {
        let named: Vec<_> = row.split('`').skip(1).step_by(2).collect();
        let named: Vec<_> = named.iter().filter_map(|code| code.split_once(".rs::")).collect();
        if named.is_empty() {
            findings.push(Finding::new(page, at + 1, "a row without a test"));
        }
        for (file, name) in named {
            let file = format!("{file}.rs");
            if !tree.get(&file).is_some_and(|found| has_test(&found.text, name)) {
                findings.push(Finding::new(page, at + 1, format!("no test {name} in {file}")));
            }
        }
    }
    findings
}

/// Heading of the section with the commands' rows.
const COMMANDS: &str = "## Commands";

/// Each command that the parsers know, laid out or by name, has one row of its own in the section
/// of commands. Its cells are bytes, who carries it out, and refusals.
#[must_use]
pub fn commands_have_rows(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.get(PAGE) else { return Vec::new() };
    let lines =
        || page.text.lines().enumerate().skip_while(|(_, line)| !line.starts_with(COMMANDS));
    let mut findings = Vec::new();
    // every opcode there can be, as names also cover commands without a layout
    for opcode in (0..=u16::MAX).map(Opcode) {
        let Some(name) = opcode.name() else { continue };
        let head = format!("| {:04X} {name} |", opcode.0);
        let mut rows = lines().filter(|(_, line)| line.starts_with(&head));
        match (rows.next(), rows.next()) {
            (None, _) => findings.push(Finding::new(page, 1, format!("no row \"{head}\""))),
            (Some(_), Some((at, _))) => {
                findings.push(Finding::new(page, at + 1, format!("another row \"{head}\"")));
            }
            (Some((at, row)), None) => {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                if cells.len() != 7 || cells.iter().skip(1).take(5).any(|cell| cell.is_empty()) {
                    findings.push(Finding::new(
                        page,
                        at + 1,
                        "a command has five cells, none empty",
                    ));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_one_row() {
        let known = (0..=u16::MAX).map(Opcode).filter_map(|opcode| Some((opcode, opcode.name()?)));
        let rows: Vec<String> = known
            .map(|(opcode, name)| format!("| {:04X} {name} | 4 | a | b | c |", opcode.0))
            .collect();
        let found = |rows: &[String]| {
            let text = format!("{COMMANDS} (section 4)\n\n{}\n", rows.join("\n"));
            commands_have_rows(&Tree::of(&[(PAGE, &text)])).len()
        };
        assert_eq!((found(&rows), found(&[])), (0, rows.len()));
        assert_eq!(found(&rows[1..]), 1, "one is gone");
        assert_eq!(found(&[&rows[..], &rows[..1]].concat()), 1, "one is there twice");
        let mut short = rows;
        short[3] = short[3].replace(" b |", "");
        assert_eq!(found(&short), 1, "a cell is gone");
        short[3] = short[3].replace("| 4 |", "| 4 | |");
        assert_eq!(found(&short), 1, "a cell is empty");
    }

    #[test]
    fn each_row_names_tests_that_are_there() {
        let source =
            "#[test]\nfn one() {}\nfn help() {}\n\n\n    #[test]\n    #[ignore]\n    fn two() {}\n";
        #[rustfmt::skip] // columns: name, row, findings
        let cases = [
            ("there", "| a | 1 | `a/b.rs::one` |", 0),
            ("two of them", "| a | 1 | `a/b.rs::one`, `a/b.rs::two` |", 0),
            ("one of two gone", "| a | 1 | `a/b.rs::one`, `a/b.rs::three` |", 1),
            ("another file", "| a | 1 | `a/c.rs::one` |", 1),
            ("part of a name", "| a | 1 | `a/b.rs::on` |", 1),
            ("no name", "| a | 1 | one |", 1),
            ("said to be missing", "| a | 1 | missing |", 1),
            ("head and line", "| rule | seed | test |\n|---|---|---|", 0),
            ("text", "see `a/b.rs::gone`", 0),
        ];
        for (name, row, want) in cases {
            for page in PAGES {
                let tree = Tree::of(&[("a/b.rs", source), (page, row)]);
                assert_eq!(tests_named(&tree).len(), want, "{name} in {page}");
            }
        }
        let page = "| who | may |\n|---|---|\n| a | all |\n\n| rule | where | test |\n|---|---|---|\n\
                    | b | c | `a/b.rs::one` |\n| d | e | `a/b.rs::gone` |\n| f | g | none |\n";
        let tree = Tree::of(&[("a/b.rs", source), (SECURITY, page)]);
        let lines: Vec<usize> = tests_named(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [8, 9], "of tables of rules alone");
        let tree = Tree::of(&[("a/b.rs", source), (PAGE, "| a | 1 | `a/b.rs::help` |")]);
        assert_eq!(tests_named(&tree).len(), 1, "a function that is no test");
    }
}
