//! Names: the files that define the names that a file of a crate uses.
//!
//! From the text of a file it takes the names that it defines, those that it imports by `use`, and
//! the paths in its code. For a crate it gives the files that define the names of each file.
//!
//! Source: The Rust Reference "Paths", "Use declarations".

use std::collections::{BTreeMap, BTreeSet};

use super::File;

/// Words in front of a name that is being defined.
const DEFINING: [&str; 9] =
    ["struct", "enum", "trait", "type", "const", "static", "fn", "union", "macro_rules"];
/// Most re-exports that a path is followed through.
const STEPS_MAX: usize = 8;

/// A `use` of one name, or of all names (`*`).
#[derive(Debug)]
struct Import {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

/// A module's file, as far as names go.
#[derive(Debug, Default)]
struct Module {
    defined: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths in code outside of `use` statements.
    paths: Vec<Vec<String>>,
    words: BTreeSet<String>,
}

/// The code of a file without comments, texts and tests.
fn code(file: &File) -> String {
    let mut kept = String::new();
    let mut lines = file.text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test") {
            // A module of tests in this file is its end; for one in another file, only its line is
            // skipped.
            if lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{')) {
                break;
            }
            lines.next();
            continue;
        }
        // parts alternate between code and text, as each `"` changes sides; an escaped one is rare
        let mut is_text = false;
        for part in line.split("//").next().unwrap_or_default().split('"') {
            kept.push_str(if is_text { "" } else { part });
            is_text = !is_text;
        }
        kept.push('\n');
    }
    kept
}

/// Splits code into words, `::` and single characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let len = if word(first) {
            rest.find(|c| !word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, behind) = rest.split_at(len);
        if !first.is_whitespace() {
            found.push(token);
        }
        rest = behind;
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The names that a tree of a `use` brings in, from `at` on; returns where it ends.
fn use_tree(
    tokens: &[&str],
    mut at: usize,
    front: &[String],
    is_public: bool,
    to: &mut Vec<Import>,
) -> usize {
    let mut path = front.to_vec();
    while let Some(token) = tokens.get(at) {
        match *token {
            "::" => at += 1,
            // members of a group share the path in front of it
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = use_tree(tokens, at, &path, is_public, to);
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return at + 1;
            }
            "*" => {
                to.push(Import { path, name: "*".to_owned(), is_public });
                return at + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).unwrap_or(&"_");
                to.push(Import { path, name: (*name).to_owned(), is_public });
                return at + 2;
            }
            name if is_name(name) => {
                path.push(name.to_owned());
                at += 1;
            }
            _ => break,
        }
    }
    // `use a::{self}` brings in `a` itself
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(name) = path.last().cloned() {
        to.push(Import { path, name, is_public });
    }
    // A token that cannot stand in a `use` is skipped, so that a list that is being read comes to
    // an end.
    let stuck = tokens.get(at).is_some_and(|token| !["}", ",", ";"].contains(token));
    at + usize::from(stuck)
}

impl Module {
    fn of(file: &File) -> Self {
        let code = code(file);
        let tokens = tokens(&code);
        let mut module = Self::default();
        let mut at = 0;
        while let Some(&token) = tokens.get(at) {
            let before = at.checked_sub(1).and_then(|before| tokens.get(before)).copied();
            if token == "use" && before.is_none_or(|before| before != ".") {
                // `pub use`, or `pub(crate) use` and the like
                let is_public = before == Some("pub") || before == Some(")");
                at = use_tree(&tokens, at + 1, &[], is_public, &mut module.imports);
                continue;
            }
            if !is_name(token) {
                at += 1;
                continue;
            }
            let is_new = before.is_some_and(|before| DEFINING.contains(&before) || before == "mod")
                || before == Some("!") && at >= 2 && tokens.get(at - 2) == Some(&"macro_rules");
            // `mod name;` is another file.
            if is_new && !(before == Some("mod") && tokens.get(at + 1) == Some(&";")) {
                module.defined.insert(token.to_owned());
            }
            let mut path = vec![token.to_owned()];
            while tokens.get(at + 1) == Some(&"::")
                && tokens.get(at + 2).is_some_and(|t| is_name(t))
            {
                at += 2;
                path.push(tokens.get(at).copied().unwrap_or_default().to_owned());
            }
            module.words.extend(path.first().filter(|_| before != Some(".")).cloned());
            if path.len() > 1 && before != Some("::") {
                module.paths.push(path);
            }
            at += 1;
        }
        module
    }
}

/// Modules of a crate, by their paths.
pub struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
}

impl Crate {
    /// The modules in the files below `src`, each given with its path from there.
    pub fn of<'a>(files: impl Iterator<Item = (&'a str, &'a File)>) -> Self {
        let path = |below: &str| -> Vec<String> {
            let below = below.trim_end_matches(".rs");
            let below = below.strip_suffix("/mod").unwrap_or(below);
            let parts = below.split('/').filter(|part| !["lib", "mod"].contains(part));
            parts.map(str::to_owned).collect()
        };
        Self { modules: files.map(|(below, file)| (path(below), Module::of(file))).collect() }
    }

    /// For each module, the other modules that define the names that it uses.
    pub fn uses(&self) -> BTreeMap<&[String], BTreeSet<&[String]>> {
        let of = |(from, module): (&'_ Vec<String>, &'_ Module)| -> BTreeSet<&[String]> {
            let mut found = BTreeSet::new();
            for import in &module.imports {
                // a glob brings in any name: only words that the file itself does not define count
                if import.name == "*" {
                    let inner = self.module_at(from, &import.path);
                    // a public glob re-exports, and uses nothing by itself
                    let inner = inner.iter().filter(|_| !import.is_public);
                    for target in inner {
                        let words =
                            module.words.iter().filter(|word| !module.defined.contains(*word));
                        found.extend(words.filter_map(|word| self.known(target, word, STEPS_MAX)));
                    }
                } else if !import.is_public || module.words.contains(&import.name) {
                    found.extend(self.definer(from, &import.path, STEPS_MAX));
                }
            }
            found
                .extend(module.paths.iter().filter_map(|path| self.definer(from, path, STEPS_MAX)));
            // a module that uses its own names is no arrow
            found.remove(from.as_slice());
            found
        };
        self.modules.iter().map(|one| (one.0.as_slice(), of(one))).collect()
    }

    /// The module at which `path`, used in `from`, starts, and the rest of the path.
    fn start<'p>(
        &self,
        from: &[String],
        path: &'p [String],
    ) -> Option<(Vec<String>, &'p [String])> {
        let mut base = from.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = path.get(1..)?;
            }
            "self" => rest = path.get(1..)?,
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    base.pop();
                    rest = rest.get(1..)?;
                }
            }
            // without `crate`, `self` or `super` a path starts at a child, or in another crate
            name => {
                base.push(name.to_owned());
                let is_child = self.modules.contains_key(&base);
                base.pop();
                if !is_child {
                    return None;
                }
            }
        }
        Some((base, rest))
    }

    /// The module that a path names, if there is one.
    fn module_at(&self, from: &[String], path: &[String]) -> Option<Vec<String>> {
        let (mut base, rest) = self.start(from, path)?;
        base.extend(rest.iter().cloned());
        self.modules.contains_key(&base).then_some(base)
    }

    /// The module that defines the item that `path`, used in `from`, names. `None` for other
    /// crates, and for paths that end at a module.
    fn definer(&self, from: &[String], path: &[String], steps: usize) -> Option<&[String]> {
        let Some((mut at, rest)) = self.start(from, path) else {
            // A name that a `use` of the same file brought in: a module, or an item.
            let name = path.first()?;
            let module = self.modules.get(from)?;
            let import = module.imports.iter().find(|import| import.name == *name)?;
            // bounded, as two files may re-export each other
            if steps == 0 || import.path == path {
                return None;
            }
            let whole: Vec<String> = import.path.iter().chain(path.get(1..)?).cloned().collect();
            return self.definer(from, &whole, steps - 1);
        };
        for part in rest {
            // modules come first in a path; the first part that is none is the item
            at.push(part.clone());
            if !self.modules.contains_key(&at) {
                at.pop();
                let known = self.known(&at, part, steps);
                return known
                    .or_else(|| self.modules.get_key_value(&at).map(|(key, _)| key.as_slice()));
            }
        }
        None
    }

    /// The module that defines `name` of the module at `at`, itself or through its re-exports.
    fn known(&self, at: &[String], name: &str, steps: usize) -> Option<&[String]> {
        let (key, module) = self.modules.get_key_value(at)?;
        if module.defined.contains(name) {
            return Some(key.as_slice());
        }
        let steps = steps.checked_sub(1)?;
        // a name that is imported by itself goes before one of a glob, as in Rust
        let by_name = module.imports.iter().find(|import| import.name == name);
        if let Some(import) = by_name {
            return self.definer(at, &import.path, steps);
        }
        let globs = module.imports.iter().filter(|import| import.name == "*");
        globs
            .filter_map(|import| self.module_at(at, &import.path))
            .find_map(|inner| self.known(&inner, name, steps))
    }
}
