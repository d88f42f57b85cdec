//! Table of mutants: each mutant's place is in the source, and each checker has a mutant.
//!
//! It compares `tools/mutants.toml` with the sources that it names, and with the names of checkers
//! in their sources.
//!
//! Source: docs/simulation.md "What the checkers are worth".

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use toml::{Table, Value};

use super::{File, Finding, Tree};

const TABLE: &str = "tools/mutants.toml";
/// File that names the scenes.
const SCENES: &str = "sim/examples/objections.rs";
/// Sources that mutants may change: the stages that checkers watch.
const STAGES: [&str; 2] = ["dataplane/src/", "hosts/src/"];
/// Kind of checker, and where checkers of that kind are defined.
const CHECKERS: [(&str, &str); 3] = [
    ("switch", "sim/src/checkers.rs"),
    ("switch", "sim/src/chaos/"),
    ("endpoint", "sim/src/rclink_checkers/"),
];

/// Call by which a checker objects, with its name as the first text.
static OBJECTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?:object\(\s*now,\s*\(?|Err\(\(|\bsay\()\s*"([a-z]+)""#)
        .expect("a regular expression")
});

/// Checkers by kind and name, from their sources.
fn checkers(tree: &Tree) -> BTreeSet<(&'static str, String)> {
    let mut all = BTreeSet::new();
    for file in tree.rust() {
        for (watch, _) in CHECKERS.iter().filter(|(_, path)| file.path.starts_with(path)) {
            // joined, as rustfmt may put the name on the line behind the call
            let code: Vec<&str> = file.code().map(|(_, code)| code).collect();
            let code = code.join("\n");
            all.extend(OBJECTION.captures_iter(&code).map(|it| (*watch, it[1].to_owned())));
        }
    }
    all
}

/// Each mutant applies to the source as it is, and each checker has one.
#[must_use]
pub fn table(tree: &Tree) -> Vec<Finding> {
    let known = checkers(tree);
    let Some(file) = tree.get(TABLE) else {
        // without a table, one finding at the first checker is enough
        let first = tree.files.iter().find(|file| file.path.starts_with(CHECKERS[0].1));
        return first
            .map(|file| Finding::new(file, 0, format!("there is no {TABLE}")))
            .into_iter()
            .collect();
    };
    let table: Table = match file.text.parse() {
        Ok(table) => table,
        Err(error) => return vec![Finding::new(file, 0, error.to_string())],
    };
    let mutants = table.get("mutant").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut findings = Vec::new();
    let mut open = known.clone();
    for mutant in mutants {
        let text = |key: &str| mutant.get(key).and_then(Value::as_str).unwrap_or_default();
        let line = line_of(file, text("name"));
        let mut say = |what| findings.push(Finding::new(file, line, what));
        // checkers that are left at the end have no mutant
        open.retain(|(watch, checker)| {
            (*watch, checker.as_str()) != (text("watch"), text("checker"))
        });
        if !known
            .iter()
            .any(|(watch, checker)| (*watch, checker.as_str()) == (text("watch"), text("checker")))
        {
            say(format!("no checker {} {}", text("watch"), text("checker")));
        }
        if let Some(what) = place(tree, mutant) {
            say(what);
        }
        let scenes = mutant.get("scenes").and_then(Value::as_array).into_iter().flatten();
        for scene in scenes.filter_map(Value::as_str) {
            let is_there = |file: &File| file.text.contains(&format!("(\"{scene}\", "));
            if !tree.get(SCENES).is_some_and(is_there) {
                say(format!("no scene {scene} in {SCENES}"));
            }
        }
    }
    for (watch, checker) in open {
        findings.push(Finding::new(
            file,
            0,
            format!("no mutant for the checker {watch} {checker}"),
        ));
    }
    findings
}

/// Fault of the place that a mutant changes; `None` if it is there once.
fn place(tree: &Tree, mutant: &Value) -> Option<String> {
    let text = |key: &str| mutant.get(key).and_then(Value::as_str);
    let (path, find) = (text("file")?, text("find")?.trim_matches('\n'));
    if !STAGES.iter().any(|stage| path.starts_with(stage)) {
        return Some(format!("changes {path}, which is no stage"));
    }
    let Some(file) = tree.get(path) else { return Some(format!("no file {path}")) };
    let times = file.text.matches(find).count();
    // a place that is there twice would be mutated in the wrong one
    if times != 1 {
        return Some(format!("its place in {path} is there {times} times: expected once"));
    }
    let times = text("part").map_or(1, |part| find.matches(part).count());
    (times != 1).then(|| format!("its part is {times} times in what it finds: expected once"))
}

/// The line that names a mutant.
fn line_of(file: &File, name: &str) -> usize {
    let named = format!("name = \"{name}\"");
    file.text.lines().position(|line| line == named).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKER: &str =
        "self.object(\n    now,\n    \"order\",\n    saw);\n// object(now, \"no\", saw)\n";
    const SCENE: &str = "    (\"lite\", lite),\n";
    const MUTANT: &str = r#"
[[mutant]]
name = "a"
watch = "switch"
checker = "order"
scenes = ["lite"]
file = "dataplane/src/voq.rs"
find = """
let a = b + 1;
"""
part = "b + 1"
to = "b"
"#;

    #[test]
    fn a_mutant_that_has_gone_out_of_date_is_found() {
        #[rustfmt::skip] // columns: name, what is replaced in the table, by what, the finding
        let cases = [
            ("as it is", "", "", None),
            ("another name", "\"order\"", "\"odrer\"", Some("no checker switch odrer")),
            ("another watch", "\"switch\"", "\"endpoint\"", Some("no checker endpoint order")),
            ("no such scene", "[\"lite\"]", "[\"heavy\"]", Some("no scene heavy in sim/examples/objections.rs")),
            ("no such file", "voq.rs", "vqo.rs", Some("no file dataplane/src/vqo.rs")),
            ("no stage", "dataplane/src/voq.rs", "sim/src/checkers.rs", Some("changes sim/src/checkers.rs, which is no stage")),
            ("gone", "let a = b", "let a = c", Some("its place in dataplane/src/voq.rs is there 0 times: expected once")),
            ("there twice", "let a = b + 1;", "b + 1", Some("its place in dataplane/src/voq.rs is there 2 times: expected once")),
            ("no such part", "\"b + 1\"", "\"b + 2\"", Some("its part is 0 times in what it finds: expected once")),
            ("no TOML", "name = ", "name ", Some("")),
        ];
        for (name, from, to, want) in cases {
            let table = if from.is_empty() { MUTANT.to_owned() } else { MUTANT.replace(from, to) };
            let tree = Tree::of(&[
                ("sim/src/checkers.rs", CHECKER),
                (SCENES, SCENE),
                ("dataplane/src/voq.rs", "let a = b + 1;\nlet b = b + 1;\n"),
                (TABLE, &table),
            ]);
            let found = super::table(&tree);
            let first = found.first().map(|finding| finding.what.as_str());
            assert!(want.is_none() == found.is_empty(), "{name}: {found:?}");
            assert!(
                want.is_none_or(|want| want.is_empty() || first == Some(want)),
                "{name}: {found:?}"
            );
        }
    }

    #[test]
    fn each_checker_has_a_mutant() {
        let others = "self.object(now, (\"pause\", saw));\nErr((\n \"deliver\", saw))\n";
        let tree = Tree::of(&[
            ("sim/src/checkers.rs", CHECKER),
            ("sim/src/chaos/mod.rs", "say(\"progress\", saw);\n"),
            ("sim/src/rclink_checkers/mod.rs", others),
            (TABLE, ""),
        ]);
        let found: Vec<String> = table(&tree).into_iter().map(|finding| finding.what).collect();
        let want = ["endpoint deliver", "endpoint pause", "switch order", "switch progress"];
        assert_eq!(found, want.map(|name| format!("no mutant for the checker {name}")));
    }
}
