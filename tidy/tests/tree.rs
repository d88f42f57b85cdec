//! The source tree keeps its own rules.
//!
//! Every rule of `weft_tidy` over the files that git knows.
//!
//! Source: ARCHITECTURE.md "Layout of the tree".

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use weft_tidy::{RULES, Tree};

fn tree() -> Tree {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace");
    Tree::read(root).expect("the tests run in a git checkout")
}

#[test]
fn the_tree_keeps_its_rules() {
    let tree = tree();
    assert!(tree.get("dataplane/src/lib.rs").is_some(), "the tree was read");
    let mut broken = 0;
    for (name, rule) in RULES {
        for finding in rule(&tree) {
            eprintln!("{finding}  ({name})");
            broken += 1;
        }
    }
    assert_eq!(broken, 0, "places that break a rule, listed above");
}

/// Facts that `cargo metadata` prints of every package that the manifest at `path` leads to.
fn packages(path: &Path) -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let said = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--manifest-path"])
        .arg(path)
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .expect("cargo runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let all: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    all.get("packages").and_then(Value::as_array).cloned().expect("packages")
}

/// Members of a list of texts in `deny.toml`.
fn texts(list: &toml::Value) -> BTreeSet<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|text| Some(text.as_str()?.to_owned())).collect()
}

/// Whether a licence, as a manifest has it, leaves a choice that is allowed.
fn allows(allowed: &BTreeSet<String>, license: &str) -> bool {
    let parsed = spdx::Expression::parse_mode(license, spdx::ParseMode::LAX);
    parsed.is_ok_and(|choice| choice.evaluate(|one| allowed.contains(&one.to_string())))
}

/// The checks of `make deny` that need no network and no tool: licences, sources, and one version of
/// each package.
#[test]
fn dependencies_are_what_deny_toml_allows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace");
    let text = std::fs::read_to_string(root.join("deny.toml")).expect("deny.toml is there");
    let deny: toml::Value = toml::from_str(&text).expect("TOML");
    let allowed = texts(&deny["licenses"]["allow"]);
    for (license, want) in [
        ("MIT/GPL-3.0-only", true),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", true),
        ("MIT AND GPL-3.0-only", false),
        ("GPL-2.0-only", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("", false),
    ] {
        assert_eq!(allows(&allowed, license), want, "{license:?}");
    }
    let skipped: BTreeSet<String> = deny["bans"]["skip"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry["crate"].as_str()?.split('@').next()?.to_owned()))
        .collect();
    let mut broken = Vec::new();
    for manifest in ["Cargo.toml", "xdp/ebpf/Cargo.toml"] {
        let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let packages = packages(&root.join(manifest));
        assert!(packages.len() > 3, "{manifest}");
        for package in &packages {
            let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
            let (name, license, source) = (text("name"), text("license"), text("source"));
            if !allows(&allowed, &license) {
                broken.push(format!("{manifest}: {name}: licence {license:?} is not allowed"));
            }
            let is_known = source == "registry+https://github.com/rust-lang/crates.io-index";
            if !is_known && !source.is_empty() {
                broken.push(format!("{manifest}: {name} comes from {source}"));
            }
            versions.entry(name).or_default().insert(text("version"));
        }
        for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
            if !skipped.contains(name) {
                broken.push(format!("{manifest}: {name} comes in versions {versions:?}"));
            }
        }
    }
    assert!(broken.is_empty(), "not as deny.toml says:\n{}", broken.join("\n"));
}
