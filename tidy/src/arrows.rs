//! Arrows between the modules of the dataplane.
//!
//! It reads `crate::NAME` and `super::NAME` in code outside of tests, which make edges between top
//! modules.
//!
//! Source: ARCHITECTURE.md "Layout of the tree".

use std::collections::BTreeSet;

use super::{File, Finding, Tree};

const SRC: &str = "dataplane/src/";

/// Building blocks, which every other module may use.
const BLOCKS: [&str; 9] =
    ["time", "types", "queues", "pool", "desc", "batch", "bucket", "stats", "trace"];

/// Switch functions; `config` and `snapshot` hold the values that they are configured with.
const FUNCTIONS: [&str; 14] = [
    "classify", "fdb", "flows", "vlan", "groups", "storm", "lag", "loops", "buffer", "voq",
    "islip", "egress", "ecn", "pfc",
];

/// Whether module `from` may use module `to`; `None` when one of them is not on the map.
fn may_use(from: &str, to: &str) -> Option<bool> {
    let is_block = |name: &str| BLOCKS.contains(&name);
    let is_function = |name: &str| FUNCTIONS.contains(&name);
    let known = |name: &str| {
        is_block(name)
            || is_function(name)
            || ["config", "snapshot", "port", "pipeline", "worker", "pbr"].contains(&name)
    };
    if !known(from) || !known(to) {
        return None;
    }
    Some(match from {
        _ if is_block(from) => is_block(to),
        // two switch functions never use each other: `pipeline` passes values between them
        _ if is_function(from) => is_block(to) || to == "config",
        "config" => is_block(to) || is_function(to),
        "snapshot" => is_block(to) || is_function(to) || to == "config",
        "pbr" | "port" => is_block(to),
        // the worker drives the pipeline, not the other way round
        "pipeline" => to != "worker",
        _ => true,
    })
}

/// The top module that `file` belongs to.
fn module(file: &File) -> Option<&str> {
    let below = file.path.strip_prefix(SRC)?;
    let top = below.split('/').next()?.trim_end_matches(".rs");
    (top != "lib" && file.is_rust() && !file.is_test()).then_some(top)
}

/// How many `super::` lead from `file` to the crate's root.
fn depth(file: &File) -> usize {
    let below = file.path.strip_prefix(SRC).unwrap_or_default();
    below.trim_end_matches("/mod.rs").split('/').count()
}

/// Names behind `prefix` in `line`, from a path or a group of paths.
fn names_behind<'a>(line: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(prefix) {
        // a name that goes on in front, as in `xcrate::`, is another path
        let joined = rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        rest = &rest[at + prefix.len()..];
        if joined {
            continue; // `xcrate::` or `super::super::`
        }
        match rest.strip_prefix('{') {
            Some(group) => names.extend(group_names(group)),
            None => names.extend(identifier(rest)),
        }
    }
    names
}

fn identifier(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    text.get(..end).filter(|name| !name.is_empty())
}

/// First names of a group's members: `{a::b, c::{d, e}}` gives a and c.
fn group_names(group: &str) -> Vec<&str> {
    let (mut names, mut level, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => level += 1,
            '}' if level > 0 => level -= 1,
            ',' | '}' if level == 0 => {
                names.extend(identifier(group[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

/// Which top modules of its crate `file` uses, and where; a `use` over many lines counts at its first.
fn uses(file: &File) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    // only the prefix that reaches the crate's root names a top module
    let up = "super::".repeat(depth(file));
    let mut offset = 0;
    let mut code: Vec<(usize, usize)> = Vec::new(); // line, offset
    for (at, line) in file.text.lines().enumerate() {
        code.push((at + 1, offset));
        offset += line.len() + 1;
    }
    let last = file.last_line_of_code();
    let mut skip_to = 0;
    for &(line_no, start) in code.iter().take(last).filter(|(n, _)| *n > 0) {
        if start < skip_to {
            continue;
        }
        let rest = file.text.get(start..).unwrap_or_default();
        let line = rest.lines().next().unwrap_or_default();
        // a comment may name any module
        let line = line.split("//").next().unwrap_or_default();
        // A group that goes on over lines is read up to its end.
        let statement = if line.trim_start().starts_with("use ") && !line.contains(';') {
            let end = rest.find(';').unwrap_or(rest.len());
            skip_to = start + end;
            rest.get(..end).unwrap_or(line)
        } else {
            line
        };
        for prefix in ["crate::", up.as_str()] {
            found.extend(names_behind(statement, prefix).into_iter().map(|name| (line_no, name)));
        }
    }
    found
}

/// Names that are modules in the crate's root; other names there are items that `lib` re-exports.
fn modules(tree: &Tree) -> BTreeSet<&str> {
    tree.files.iter().filter_map(module).collect()
}

/// Modules of the dataplane use each other as the map says.
#[must_use]
pub fn module_arrows(tree: &Tree) -> Vec<Finding> {
    let there = modules(tree);
    let mut findings = Vec::new();
    for file in &tree.files {
        let Some(from) = module(file) else { continue };
        if may_use(from, from).is_none() {
            findings.push(Finding::new(file, 0, format!("module {from} is not on the map")));
            continue;
        }
        for (line, to) in uses(file) {
            // a name that is no module is an item that `lib` re-exports
            let wrong = to != from && there.contains(to) && may_use(from, to) == Some(false);
            if wrong {
                findings.push(Finding::new(file, line, format!("{from} must not use {to}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dataplane of all modules, with `text` in the one at `path`.
    fn dataplane(path: &str, text: &str) -> Tree {
        let mut tree = Tree::of(&[(path, text)]);
        for name in BLOCKS.iter().chain(&FUNCTIONS).chain(&["config", "port", "pipeline", "worker"])
        {
            tree.files.push(File { path: format!("{SRC}{name}.rs"), text: String::new() });
        }
        tree
    }

    #[test]
    fn wrong_arrows_are_found_in_every_spelling() {
        #[rustfmt::skip] // columns: file below src, text, lines of findings
        let cases: [(&str, &str, &[usize]); 14] = [
            ("voq/mod.rs", "use crate::ring::ring;\n", &[]),
            ("voq/mod.rs", "use crate::pfc::Pfc;\n", &[1]),
            ("voq/mod.rs", "\nlet a = crate::pfc::x();\n", &[2]),
            ("voq/mod.rs", "use crate::{time::Instant, pfc::{Tx, Rx}};\n", &[1]),
            ("voq/mod.rs", "use crate::{\n    time::Instant,\n    pfc::Tx,\n};\nuse crate::ecn::E;\n", &[1, 5]),
            ("voq/mod.rs", "use super::pfc::Pfc;\n", &[1]),
            ("voq/list.rs", "use super::pfc::Pfc;\n", &[]),
            ("voq/list.rs", "use super::super::pfc::Pfc;\n", &[1]),
            ("voq/mod.rs", "// crate::pfc::Pfc\n", &[]),
            ("voq/mod.rs", "use crate::time::T;\n#[cfg(test)]\nmod tests { use crate::pfc::P; }\n", &[]),
            ("time.rs", "use crate::voq::Voq;\n", &[1]),
            ("port/tap.rs", "use crate::pipeline::Lane;\n", &[1]),
            ("pipeline/mod.rs", "use crate::{voq::A, worker::B};\n", &[1]),
            ("fresh.rs", "", &[0]),
        ];
        for (path, text, want) in cases {
            let found = module_arrows(&dataplane(&format!("{SRC}{path}"), text));
            let lines: Vec<_> = found.iter().map(|f| f.line).collect();
            assert_eq!(lines, want, "{path}: {text}: {found:?}");
        }
    }
}
