//! Circles: no files of a crate use each other, whether at once or by way of others.
//!
//! Shape: files of a crate → which defines what another uses → those that form a circle. A re-export is followed to
//! what is exported. A use of what a file above in the tree of modules defines is none: a folder's `mod.rs` and what is
//! below it are one module in parts, which is what `super` is for; files beside each other are not.
//! Units: none.
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
        let with = reached.iter().filter(|to| all.get(*to).is_some_and(|back| back.contains(from)));
        let group: Vec<&str> = with.copied().collect();
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// The circles below `src`: their files, and which uses which.
fn found(tree: &Tree, src: &str) -> Vec<(Vec<String>, String)> {
    let below = |file: &File| {
        let path = file.path.strip_prefix(src)?.strip_prefix('/')?.to_owned();
        let is_other = path.starts_with("bin/") || path == "main.rs";
        (file.is_rust() && !file.is_test() && !is_other).then_some(path)
    };
    let files: Vec<(String, &File)> =
        tree.files.iter().filter_map(|file| Some((below(file)?, file))).collect();
    let whole = Crate::of(files.iter().map(|(path, file)| (path.as_str(), *file)));
    let mut uses = Uses::new();
    for (from, to) in whole.uses() {
        let apart = to.into_iter().filter(|to| !from.starts_with(to));
        let apart = apart.map(|to| to.join("::")).collect();
        uses.insert(from.join("::"), apart);
    }
    let told = |group: Vec<&str>| {
        let arrows = group
            .iter()
            .flat_map(|from| uses.get(*from).into_iter().flatten().map(move |to| (from, to)));
        let arrows = arrows.filter(|(_, to)| group.contains(&to.as_str()));
        let arrows: Vec<String> = arrows.map(|(from, to)| format!("{from} uses {to}")).collect();
        (group.into_iter().map(str::to_owned).collect(), arrows.join("; "))
    };
    groups(&uses).into_iter().map(told).collect()
}

/// No files of a crate use each other in a circle.
#[must_use]
pub fn circles(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for src in sources(tree) {
        for (group, arrows) in found(tree, src) {
            let what = format!("these use each other in a circle: {} ({arrows})", group.join(", "));
            findings.push(Finding { path: src.to_owned(), line: 0, what });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modules of a crate and their texts.
    type Files<'a> = &'a [(&'a str, &'a str)];

    /// What is found in a crate of `a`, `b` and `c`, with `c` a folder of `c::d` and `c::e`.
    fn circle(files: Files) -> Vec<String> {
        let mut tree = Tree::default();
        for name in ["lib", "a", "b", "c/mod", "c/d", "c/e"] {
            let text = files.iter().find(|(of, _)| *of == name).map_or("", |(_, text)| text);
            tree.files.push(File { path: format!("x/src/{name}.rs"), text: text.to_owned() });
        }
        circles(&tree).into_iter().map(|found| found.what).collect()
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
