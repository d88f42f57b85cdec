//! Circles: files, and folders, of a crate that use each other.
//!
//! Two may do so directly or through others.
//!
//! A re-export is followed to the file that defines the name. A file may use the modules above it:
//! a folder's `mod.rs` and the files below it are one module in parts, for which `super` exists;
//! files beside each other are not.
//!
//! Source: ARCHITECTURE.md "Layout of the tree".

use std::collections::{BTreeMap, BTreeSet};

use super::names::Crate;
use super::{File, Finding, Tree};

/// Folders of crates' sources.
fn sources(tree: &Tree) -> BTreeSet<&str> {
    let roots = tree.files.iter().filter_map(|file| {
        let folder =
            file.path.strip_suffix("/lib.rs").or_else(|| file.path.strip_suffix("/main.rs"))?;
        (folder.ends_with("/src") || folder == "src").then_some(folder)
    });
    roots.collect()
}

/// Which files use which.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// The modules that reach each other, in groups.
fn groups(uses: &Uses) -> Vec<Vec<&str>> {
    // all that can be reached from each module; a module that reaches itself lies on a circle
    let reach = |from: &str| {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> =
            uses.get(from).into_iter().flat_map(|to| to.iter().map(String::as_str)).collect();
        while let Some(one) = next.pop() {
            if seen.insert(one) {
                next.extend(uses.get(one).into_iter().flat_map(|to| to.iter().map(String::as_str)));
            }
        }
        seen
    };
    let all: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|from| (from.as_str(), reach(from))).collect();
    let mut groups: Vec<Vec<&str>> = Vec::new();
    for (from, reached) in all.iter().filter(|(from, reached)| reached.contains(*from)) {
        // two modules lie on one circle if each reaches the other
        let with = reached.iter().filter(|to| all.get(*to).is_some_and(|back| back.contains(from)));
        let group: Vec<&str> = with.copied().collect();
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// Uses between the modules below `src`: user and definer of a name. Uses of modules above are left
/// out.
fn uses_below(tree: &Tree, src: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let below = |file: &File| {
        let path = file.path.strip_prefix(src)?.strip_prefix('/')?.to_owned();
        let is_other = path.starts_with("bin/") || path == "main.rs";
        (file.is_rust() && !file.is_test() && !is_other).then_some(path)
    };
    let files: Vec<(String, &File)> =
        tree.files.iter().filter_map(|file| Some((below(file)?, file))).collect();
    let whole = Crate::of(files.iter().map(|(path, file)| (path.as_str(), *file)));
    let uses = whole.uses().into_iter().flat_map(|(from, to)| {
        // a file may use the modules above it: with them it is one module in parts
        let apart = to.into_iter().filter(|to| !from.starts_with(to));
        let apart: Vec<_> = apart.map(<[String]>::to_vec).collect();
        apart.into_iter().map(|to| (from.to_vec(), to))
    });
    uses.collect()
}

/// The circles in `uses`, by the names that `node` gives to modules. Each arrow between two nodes
/// is shown by one example.
fn told(uses: &[(Vec<String>, Vec<String>)], node: impl Fn(&[String]) -> String) -> Vec<String> {
    let mut nodes = Uses::new();
    for (from, to) in uses {
        nodes.entry(node(from)).or_default().insert(node(to));
    }
    let told = |group: Vec<&str>| {
        let mut arrows = BTreeMap::new();
        for (from, to) in uses {
            let ends = (node(from), node(to));
            if ends.0 != ends.1
                && [&ends.0, &ends.1].iter().all(|end| group.contains(&end.as_str()))
            {
                let arrow = || format!("{} uses {}", from.join("::"), to.join("::"));
                // one example is enough to find the arrow in the code
                arrows.entry(ends).or_insert_with(arrow);
            }
        }
        let arrows: Vec<String> = arrows.into_values().collect();
        format!("these use each other in a circle: {} ({})", group.join(", "), arrows.join("; "))
    };
    groups(&nodes).into_iter().map(told).collect()
}

/// No files of a crate use each other in a circle.
#[must_use]
pub fn circles(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for src in sources(tree) {
        let found = told(&uses_below(tree, src), |path| path.join("::"));
        findings.extend(found.into_iter().map(|what| Finding {
            path: src.to_owned(),
            line: 0,
            what,
        }));
    }
    findings
}

/// Folders beside each other, each with all files below it, do not use each other in a circle; nor
/// do a folder and a file beside it. Two that do are one idea in two places, even where their files
/// form no circle.
#[must_use]
pub fn folder_circles(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for src in sources(tree) {
        // Each circle of files shows again among the children of a folder: the innermost one that
        // has them all.
        let mut folders: BTreeMap<Vec<String>, Vec<_>> = BTreeMap::new();
        for (from, to) in uses_below(tree, src) {
            let depth = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
            let is_above = depth == from.len();
            if !is_above {
                let folder = from.iter().take(depth).cloned().collect();
                folders.entry(folder).or_default().push((from, to));
            }
        }
        for (folder, uses) in folders {
            let path = [&[src.to_owned()], folder.as_slice()].concat().join("/");
            let child = |path: &[String]| path.get(folder.len()).cloned().unwrap_or_default();
            let found = told(&uses, child);
            findings.extend(found.into_iter().map(|what| Finding {
                path: path.clone(),
                line: 0,
                what,
            }));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modules of a crate and their texts.
    type Files<'a> = &'a [(&'a str, &'a str)];

    /// A crate of `a`, `b` and `c`, with `c` a folder of `c::d` and `c::e`.
    fn tree(files: Files) -> Tree {
        let mut tree = Tree::default();
        for name in ["lib", "a", "b", "c/mod", "c/d", "c/e"] {
            let text = files.iter().find(|(of, _)| *of == name).map_or("", |(_, text)| text);
            tree.files.push(File { path: format!("x/src/{name}.rs"), text: text.to_owned() });
        }
        tree
    }

    /// The circles of files that are found in it.
    fn circle(files: Files) -> Vec<String> {
        circles(&tree(files)).into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn files_that_use_each_other_are_found_in_every_spelling() {
        const A: (&str, &str) = ("a", "use crate::b::B;\npub struct A;\n");
        #[rustfmt::skip] // columns: name, files, whether there is a circle
        let cases: [(&str, Files, bool); 19] = [
            ("one way", &[A, ("b", "pub struct B;\n")], false),
            ("by use", &[A, ("b", "use super::a::A;\npub struct B;\n")], true),
            ("in a group", &[A, ("b", "use crate::{c, a::{self, A}};\npub struct B;\n")], true),
            ("by a path", &[A, ("b", "pub struct B;\nfn f() { crate::a::A::new() }\n")], true),
            ("by a module's name", &[A, ("b", "use crate::a;\npub struct B;\nfn f() { a::A::new() }\n")], true),
            ("the name alone is no use", &[A, ("b", "use crate::a;\npub struct B;\n")], false),
            ("another name", &[A, ("b", "use crate::a as x;\npub struct B(x::A);\n")], true),
            ("in a comment or a text", &[A, ("b", "pub struct B;\n// crate::a::A\nconst T: &str = \"crate::a::A\";\n")], false),
            ("in tests", &[A, ("b", "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n")], false),
            ("behind a module of tests", &[A, ("b", "#[cfg(test)]\nmod tests;\nuse crate::a::A;\npub struct B;\n")], true),
            ("by a re-export", &[A, ("lib", "pub use a::A;\n"), ("b", "use crate::A;\npub struct B;\n")], true),
            ("by a re-export of all", &[A, ("lib", "pub use a::*;\n"), ("b", "use crate::A;\npub struct B;\n")], true),
            ("all names", &[A, ("b", "use crate::a::*;\npub struct B(A);\n")], true),
            ("all names, none used", &[A, ("b", "use crate::a::*;\npub struct B;\n")], false),
            ("a re-export is no use", &[("c/mod", "pub use d::D;\npub struct C;\n"), ("c/d", "use super::C;\npub struct D(C);\n")], false),
            ("a module in parts", &[("c/mod", "use d::D;\npub struct C(D);\n"), ("c/d", "use super::C;\npub struct D(C);\n")], false),
            ("parts of a module", &[("c/d", "use super::e::E;\npub struct D;\n"), ("c/e", "use super::d::D;\npub struct E;\n")], true),
            ("by way of a third", &[A, ("b", "use crate::c::d::D;\npub struct B;\n"), ("c/d", "use crate::a::A;\npub struct D;\n")], true),
            ("another crate's", &[A, ("b", "use a2::a::A;\npub struct B;\n")], false),
        ];
        for (name, files, want) in cases {
            let found = circle(files);
            assert_eq!(!found.is_empty(), want, "{name}: {found:?}");
        }
    }

    #[test]
    fn a_circle_is_told_with_its_arrows() {
        let found = circle(&[
            ("a", "use crate::b::B;\npub struct A;\n"),
            ("b", "use crate::a::A;\npub struct B;\n"),
        ]);
        assert_eq!(found, ["these use each other in a circle: a, b (a uses b; b uses a)"]);
    }

    #[test]
    fn folders_that_use_each_other_are_found_though_their_files_do_not() {
        const C: (&str, &str) = ("c/d", "use crate::a::A;\npub struct D;\n");
        #[rustfmt::skip] // columns: name, files, what is found
        let cases: [(&str, Files, &[&str]); 4] = [
            ("one way", &[C, ("a", "pub struct A;\n")], &[]),
            ("a folder and a file", &[C, ("a", "use crate::c::e::E;\npub struct A;\n"), ("c/e", "pub struct E;\n")],
                &["x/src: these use each other in a circle: a, c (a uses c::e; c::d uses a)"]),
            ("by way of a third", &[C, ("a", "use crate::b::B;\npub struct A;\n"), ("b", "use crate::c::e::E;\npub struct B;\n"), ("c/e", "pub struct E;\n")],
                &["x/src: these use each other in a circle: a, b, c (a uses b; b uses c::e; c::d uses a)"]),
            ("inside a folder", &[("c/d", "use super::e::E;\npub struct D;\n"), ("c/e", "use super::d::D;\npub struct E;\n")],
                &["x/src/c: these use each other in a circle: d, e (c::d uses c::e; c::e uses c::d)"]),
        ];
        for (name, files, want) in cases {
            let tree = tree(files);
            let found: Vec<_> = folder_circles(&tree)
                .iter()
                .map(|one| format!("{}: {}", one.path, one.what))
                .collect();
            assert_eq!(found, want, "{name}");
        }
    }

    #[test]
    fn what_makes_no_sense_comes_to_an_end() {
        for text in [
            "use",
            "use {",
            "use {{}",
            "use a::{b",
            "use ;;} as",
            "pub use a::A;\npub use a::*;\n",
            "use =;",
        ] {
            circle(&[
                ("a", text),
                ("lib", "pub use a::*;\npub use self::*;\npub use B as A;\npub use A as B;\n"),
                ("b", "use crate::A;\n"),
            ]);
        }
    }
}
