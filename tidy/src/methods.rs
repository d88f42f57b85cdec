//! Types whose methods lie in many files.
//!
//! A type with `impl` blocks in ten files is several types: nobody can say what it owns. Files in a
//! folder that is named after the type do not count, as the folder says that they are one.
//!
//! Types are told apart by the file that defines them. Where a crate has several of one name, an
//! `impl` block belongs to the one in its own file, or else to the one that is nearest in the
//! folders: paths are not resolved.
//!
//! Source: ARCHITECTURE.md "Layout of the tree".

use std::collections::{BTreeMap, BTreeSet};

use syn::{Ident, Item, Type};

use super::functions::is_for_tests;
use super::{File, Finding, Tree};

/// Files that may have methods of one type.
const FILES_MAX: usize = 4;

/// The types that a file defines, and those that it has methods of.
#[derive(Default)]
struct Found {
    /// Names with the line of the definition.
    defined: Vec<(String, usize)>,
    methods_of: BTreeSet<String>,
    /// Files and folders, without extension, that are compiled for tests only.
    tests: Vec<String>,
}

/// Folder of the modules that a file declares.
fn folder_of_modules(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "mod.rs" | "lib.rs" | "main.rs" => folder,
        _ => path.trim_end_matches(".rs"),
    }
}

impl Found {
    fn of(file: &File) -> Self {
        let mut found = Self::default();
        if let Ok(parsed) = syn::parse_file(&file.text) {
            found.items(&parsed.items, folder_of_modules(&file.path));
        }
        found
    }

    /// Items of a file or an inline module. Bodies of functions are left out: a type that is
    /// defined in one has no methods elsewhere.
    fn items(&mut self, items: &[Item], folder: &str) {
        let mut define =
            |name: &Ident| self.defined.push((name.to_string(), name.span().start().line));
        for item in items {
            match item {
                Item::Struct(it) if !is_for_tests(&it.attrs) => define(&it.ident),
                Item::Enum(it) if !is_for_tests(&it.attrs) => define(&it.ident),
                Item::Union(it) if !is_for_tests(&it.attrs) => define(&it.ident),
                _ => {}
            }
        }
        for item in items {
            match item {
                Item::Impl(it) if it.trait_.is_none() && !is_for_tests(&it.attrs) => {
                    if let Type::Path(path) = &*it.self_ty {
                        let name = path.path.segments.last().map(|last| last.ident.to_string());
                        self.methods_of.extend(name);
                    }
                }
                Item::Mod(it) => match &it.content {
                    Some((_, items)) if !is_for_tests(&it.attrs) => self.items(items, folder),
                    None if is_for_tests(&it.attrs) => {
                        self.tests.push(format!("{folder}/{}", it.ident));
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

/// The name of a type as a folder would have it: `VoqSet` is `voq_set`.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| letters.get(before));
        let behind = letters.get(at + 1);
        // the last capital of several begins the next word: `CXLLink` is `cxl_link`
        let starts_word = letter.is_uppercase()
            && before.is_some_and(|before| {
                !before.is_uppercase() || behind.is_some_and(|behind| behind.is_lowercase())
            });
        if starts_word {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// How many folders two paths have in common.
fn shared_folders(one: &str, other: &str) -> usize {
    // the file names at the ends may agree, too: that counts for nothing
    let files = one.split('/').count().min(other.split('/').count()) - 1;
    let shared = one.split('/').zip(other.split('/')).take_while(|(one, other)| one == other);
    shared.count().min(files)
}

/// No type has methods in more than four files outside a folder of its name. Traits that it
/// implements do not count, nor do tests.
#[must_use]
pub fn spread(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(&File, Found)>> = BTreeMap::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        if let Some((name, _)) = file.path.split_once("/src/") {
            crates.entry(name).or_default().push((file, Found::of(file)));
        }
    }
    crates.values().flat_map(|files| spread_in(files)).collect()
}

/// The types of one crate that break the rule.
fn spread_in(files: &[(&File, Found)]) -> Vec<Finding> {
    let tests: Vec<&String> = files.iter().flat_map(|(_, found)| &found.tests).collect();
    let is_test = |file: &File| {
        let module = file.path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        let below = |test: &String| module.strip_prefix(test.as_str());
        tests.iter().any(|test| below(test).is_some_and(|it| it.is_empty() || it.starts_with('/')))
    };
    let files: Vec<&(&File, Found)> = files.iter().filter(|(file, _)| !is_test(file)).collect();
    let mut defined: BTreeMap<&str, Vec<(&File, usize)>> = BTreeMap::new();
    for (file, found) in &files {
        for (name, line) in &found.defined {
            defined.entry(name).or_default().push((*file, *line));
        }
    }
    // By definition, which is told by its file and line: the type's name, and the files.
    let mut methods: BTreeMap<(&str, usize), (&str, Vec<&File>)> = BTreeMap::new();
    for (file, found) in &files {
        for name in &found.methods_of {
            let all = defined.get(name.as_str()).into_iter().flatten();
            let nearness = |other: &&(&File, usize)| {
                let is_same = other.0.path == file.path;
                (is_same, shared_folders(&other.0.path, &file.path))
            };
            // of two that are equally near the first: `max_by_key` would take the last
            let Some((definer, line)) = all.rev().max_by_key(nearness) else { continue };
            let (_, list) = methods
                .entry((definer.path.as_str(), *line))
                .or_insert((name.as_str(), Vec::new()));
            if !is_in_folder_of(&file.path, &snake_case(name)) {
                list.push(file);
            }
        }
    }
    let spread = methods.into_iter().filter(|(_, (_, files))| files.len() > FILES_MAX);
    let finding = |((path, line), (name, files)): ((&str, usize), (&str, Vec<&File>))| {
        let names: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let what = format!(
            "methods of `{name}` lie in {} files outside a folder `{}`: {}",
            names.len(),
            snake_case(name),
            names.join(", ")
        );
        Finding { path: path.to_owned(), line, what }
    };
    spread.map(finding).collect()
}

/// Whether a file lies in a folder that is named after a type: `hbr_switch` or `hbr` for `HbrSwitch`, `resolve` for
/// `Resolver`.
fn is_in_folder_of(path: &str, type_name: &str) -> bool {
    // A shorter name is the beginning of too many others.
    const LEN_MIN: usize = 3;
    let folders = path.split_once("/src/").and_then(|(_, within)| within.rsplit_once('/'));
    let mut folders = folders.into_iter().flat_map(|(folders, _)| folders.split('/'));
    folders.any(|folder| folder.len() >= LEN_MIN && type_name.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate `a` with `wide.rs`, which defines `Wide`, and methods of `Wide` in these files.
    fn tree(methods: &[(&str, &str)]) -> Tree {
        let mut files = vec![("a/src/wide.rs", "pub struct Wide;\nimpl Wide {}\n")];
        files.extend(methods);
        Tree::of(&files)
    }

    #[test]
    fn a_type_with_methods_in_five_files_is_named() {
        const METHODS: &str = "impl super::Wide { fn f() {} }";
        let three = [("a/src/b.rs", METHODS), ("a/src/c.rs", METHODS), ("a/src/d/e.rs", METHODS)];
        assert_eq!(spread(&tree(&three)), []);
        #[rustfmt::skip] // columns: name, the fifth file, its text, whether it counts
        let cases = [
            ("beside",            "a/src/f.rs",          METHODS, true),
            ("generic",           "a/src/f.rs",          "impl<T> Wide<T> where T: Copy {}", true),
            ("in a module",       "a/src/f.rs",          "mod g { impl Wide {} }", true),
            ("in another folder", "a/src/wider/f.rs",    METHODS, true),
            ("in its folder",     "a/src/g/wide/f.rs",   METHODS, false),
            ("of its family",     "a/src/wid/f.rs",      METHODS, false),
            ("a short name",      "a/src/wi/f.rs",       METHODS, true),
            ("of a trait",        "a/src/f.rs",          "impl Copy for Wide {}", false),
            ("of another type",   "a/src/f.rs",          "impl Wider {}", false),
            ("of its own Wide",   "a/src/f.rs",          "struct Wide;\nimpl Wide {}", false),
            ("in a crate beside", "b/src/f.rs",          METHODS, false),
            ("in tests",          "a/src/tests.rs",      METHODS, false),
            ("in inline tests",   "a/src/f.rs",          "#[cfg(test)]\nmod tests { impl Wide {} }", false),
            ("for tests",         "a/src/f.rs",          "#[cfg(test)]\nimpl Wide {}", false),
            ("in a body",         "a/src/f.rs",          "fn f() { impl Wide {} }", false),
            ("no Rust",           "a/src/f.rs",          "impl Wide {", false),
        ];
        for (name, path, text, counts) in cases {
            let found = spread(&tree(&[three.as_slice(), &[(path, text)]].concat()));
            assert_eq!(!found.is_empty(), counts, "{name}");
            if counts {
                let at = (found[0].path.as_str(), found[0].line);
                assert_eq!(at, ("a/src/wide.rs", 1), "{name}");
                assert!(found[0].what.contains(path), "{name}: {}", found[0].what);
            }
        }
    }

    /// A module that its parent declares for tests is tests, whatever its name.
    #[test]
    fn modules_for_tests_do_not_count() {
        let with = |declared| {
            spread(&tree(&[
                ("a/src/lib.rs", declared),
                ("a/src/b.rs", "impl Wide {}"),
                ("a/src/c.rs", "impl Wide {}"),
                ("a/src/d.rs", "impl Wide {}"),
                ("a/src/rig/mod.rs", "impl Wide {}"),
            ]))
        };
        assert_eq!(with("#[cfg(test)]\nmod rig;\n"), []);
        assert_eq!(with("mod rig;\n").len(), 1);
        assert_eq!(with("#[cfg(test)]\nmod ri;\n").len(), 1, "another one");
    }

    /// Of two types of one name, the nearer one has the methods.
    #[test]
    fn types_of_one_name_are_told_apart() {
        let found = spread(&Tree::of(&[
            ("a/src/x/mod.rs", "struct Lane;"),
            ("a/src/y/mod.rs", "struct Lane;"),
            ("a/src/x/b.rs", "impl Lane {}"),
            ("a/src/x/c.rs", "impl Lane {}"),
            ("a/src/x/d.rs", "impl Lane {}"),
            ("a/src/y/b.rs", "impl Lane {}"),
            ("a/src/y/c.rs", "impl Lane {}"),
            ("a/src/y/d.rs", "impl Lane {}"),
        ]));
        assert_eq!(found, []);
    }

    #[test]
    fn folders_have_names_in_snake_case() {
        let cases = [("Fm", "fm"), ("VoqSet", "voq_set"), ("CXLLink", "cxl_link"), ("T2A", "t2_a")];
        for (name, want) in cases {
            assert_eq!(snake_case(name), want);
        }
    }
}
