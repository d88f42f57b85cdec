//! Clauses: each `//= STANDARD clause` line above code has a test that names the same clause.

use std::collections::BTreeSet;

use super::{File, Finding, Tree};

/// Lines of `file` that name a clause: line number, clause, whether it stands in tests.
fn clauses(file: &File) -> Vec<(usize, &str, bool)> {
    let last = file.last_line_of_code();
    let named = file.text.lines().enumerate().filter_map(|(at, line)| {
        let clause = line.trim_start().strip_prefix("//=")?.trim();
        // a clause behind the last line of code stands above an inline test
        (!clause.is_empty()).then_some((at + 1, clause, file.is_test() || at >= last))
    });
    named.collect()
}

/// Clauses above code that no test names.
#[must_use]
pub fn untested(tree: &Tree) -> Vec<Finding> {
    let all: Vec<_> = tree
        .rust()
        .flat_map(|file| {
            clauses(file).into_iter().map(move |(line, c, test)| (file, line, c, test))
        })
        .collect();
    let tested: BTreeSet<&str> = all.iter().filter(|c| c.3).map(|c| c.2).collect();
    let open = all.iter().filter(|(_, _, clause, test)| !test && !tested.contains(clause));
    open.map(|(file, line, clause, _)| Finding::new(file, *line, *clause)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Files<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn a_clause_is_tested_where_a_test_names_it() {
        let code = "//= RFC 1 section 2\nfn f() {}\n//= RFC 1 section 3\nfn g() {}\n";
        let inline = format!("{code}#[cfg(test)]\nmod tests {{\n    //= RFC 1 section 3\n}}\n");
        #[rustfmt::skip] // columns: name, files, lines of findings
        let cases: [(&str, Files, &[usize]); 3] = [
            ("none", &[("a/src/b.rs", code)], &[1, 3]),
            ("inline", &[("a/src/b.rs", &inline)], &[1]),
            ("elsewhere", &[("a/src/b.rs", code), ("a/tests/c.rs", "//= RFC 1 section 2\n")], &[3]),
        ];
        for (name, files, want) in cases {
            let lines: Vec<_> = untested(&Tree::of(files)).iter().map(|f| f.line).collect();
            assert_eq!(lines, want, "{name}");
        }
    }
}
