//! Manifests: the crates that each crate may depend on, and reasons for dependencies on others.
//!
//! Every `Cargo.toml` of a [`Tree`] is read by line: section headings and `name = ...` keys.
//!
//! Source: ARCHITECTURE.md "Layout of the tree".

use super::{File, Finding, Tree};

/// Crate, and the crates of ours that it may use; those at the top of the tree may use all.
const MAP: &[(&str, &[&str])] = &[
    ("weft-base", &[]),
    ("weft-rpc", &[]),
    ("weft-toml", &[]),
    ("weft-fm", &["weft-rpc", "weft-toml", "weft-base", "weft-parsers"]),
    ("weft-parsers", &[]),
    ("weft-ebpf", &["weft-parsers"]),
    ("weft-xdp", &["weft-parsers"]),
    ("weft-dpdk-sys", &[]),
    ("weft-dataplane", &["weft-base", "weft-parsers", "weft-dpdk-sys"]),
    ("weft-hosts", &["weft-dataplane", "weft-base", "weft-parsers"]),
    ("weft-cxl", &["weft-hosts", "weft-dataplane", "weft-base", "weft-parsers"]),
    ("weft-pbr-switch", &["weft-cxl", "weft-hosts", "weft-dataplane", "weft-base", "weft-parsers"]),
    ("weft-sim", &["weft-cxl", "weft-hosts", "weft-dataplane", "weft-base", "weft-parsers"]),
    (
        "weft-lab",
        &[
            "weft-fm",
            "weft-pbr-switch",
            "weft-cxl",
            "weft-hosts",
            "weft-dataplane",
            "weft-rpc",
            "weft-toml",
            "weft-base",
            "weft-parsers",
        ],
    ),
    ("weft-views", &["weft-sim", "weft-hosts", "weft-dataplane", "weft-base"]),
    (
        "weft-config",
        &[
            "weft-lab",
            "weft-sim",
            "weft-pbr-switch",
            "weft-hosts",
            "weft-dataplane",
            "weft-toml",
            "weft-base",
            "weft-parsers",
        ],
    ),
    (
        "weft-control",
        &[
            "weft-config",
            "weft-views",
            "weft-lab",
            "weft-sim",
            "weft-fm",
            "weft-pbr-switch",
            "weft-cxl",
            "weft-hosts",
            "weft-xdp",
            "weft-dataplane",
            "weft-rpc",
            "weft-base",
            "weft-parsers",
        ],
    ),
    (
        "weft",
        &[
            "weft-control",
            "weft-config",
            "weft-views",
            "weft-lab",
            "weft-sim",
            "weft-fm",
            "weft-pbr-switch",
            "weft-cxl",
            "weft-hosts",
            "weft-dataplane",
            "weft-rpc",
            "weft-base",
            "weft-parsers",
        ],
    ),
    ("weft-tidy", &["weft-parsers"]),
    ("weft-bench", TOP),
    ("weft-tests", TOP),
    ("weft-fuzz", TOP),
    ("weft-pcaps", TOP),
];

const TOP: &[&str] = &[
    "weft",
    "weft-control",
    "weft-config",
    "weft-views",
    "weft-tests",
    "weft-lab",
    "weft-sim",
    "weft-pbr-switch",
    "weft-cxl",
    "weft-hosts",
    "weft-xdp",
    "weft-dataplane",
    "weft-fm",
    "weft-rpc",
    "weft-toml",
    "weft-base",
    "weft-parsers",
];

/// A dependency as a manifest states it.
struct Dependency<'a> {
    line: usize,
    name: &'a str,
    /// The whole line, with a version or a comment.
    rest: &'a str,
}

fn manifests(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|f| f.path == "Cargo.toml" || f.path.ends_with("/Cargo.toml"))
}

/// The dependencies of `file`, of every kind and for every target.
fn dependencies(file: &File) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut inside = false;
    for (at, line) in file.text.lines().enumerate() {
        let line_no = at + 1;
        if let Some(heading) = line.trim().strip_prefix('[') {
            let heading = heading.split(']').next().unwrap_or_default();
            // `[dependencies.NAME]` is a dependency by itself.
            let (table, name) = heading.rsplit_once('.').unwrap_or((heading, ""));
            inside = heading.ends_with("dependencies");
            if !inside && table.ends_with("dependencies") {
                found.push(Dependency { line: line_no, name, rest: line });
            }
            continue;
        }
        let Some((key, _)) = line.split_once('=').filter(|_| inside) else { continue };
        let key = key.trim();
        // a comment, or a sentence with `=` in one
        if key.starts_with('#') || key.contains(' ') {
            continue;
        }
        let name = key.split('.').next().unwrap_or(key).trim_matches('"');
        found.push(Dependency { line: line_no, name, rest: line });
    }
    found
}

/// The package that a manifest describes.
fn package(file: &File) -> Option<&str> {
    let name = file.text.lines().find_map(|line| line.trim().strip_prefix("name = "))?;
    Some(name.trim().trim_matches('"'))
}

fn is_ours(name: &str) -> bool {
    name == "weft" || name.starts_with("weft-")
}

/// Crates use each other as the map says.
#[must_use]
pub fn crate_arrows(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in manifests(tree) {
        let Some(package) = package(file) else { continue };
        // a new crate must be put on the map before it may be used
        let Some((_, may)) = MAP.iter().find(|(name, _)| *name == package) else {
            findings.push(Finding::new(file, 0, format!("crate {package} is not on the map")));
            continue;
        };
        for dep in dependencies(file).iter().filter(|dep| is_ours(dep.name)) {
            if !may.contains(&dep.name) {
                let what = format!("{package} must not use {}", dep.name);
                findings.push(Finding::new(file, dep.line, what));
            }
        }
    }
    findings
}

/// Each dependency on another project's crate has a comment on its line, or stands in the
/// workspace's list, which has the comment.
#[must_use]
pub fn reasons(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in manifests(tree) {
        for dep in dependencies(file) {
            let shared = dep.rest.contains("workspace = true");
            if !is_ours(dep.name) && !shared && !dep.rest.contains('#') {
                let what = format!("{} has no comment that says why", dep.name);
                findings.push(Finding::new(file, dep.line, what));
            }
        }
    }
    findings
}

/// The table of packages agrees with the manifests: folders that it names use the package, and
/// packages "not used" are used by none. Places within a crate are not checked.
#[must_use]
pub fn packages(tree: &Tree) -> Vec<Finding> {
    let page = tree.files.iter().find(|file| file.path == "ARCHITECTURE.md");
    let Some(page) = page else { return Vec::new() };
    let uses = |folder: Option<&str>, name: &str| {
        let of_folder = |file: &&File| {
            folder.is_none_or(|folder| file.path.strip_suffix("/Cargo.toml") == Some(folder))
        };
        // The workspace's manifest only lists packages for its members.
        let all = manifests(tree).filter(|file| file.path != "Cargo.toml").filter(of_folder);
        all.flat_map(dependencies).any(|dep| dep.name == name)
    };
    let mut findings = Vec::new();
    let lines = page.text.lines().enumerate().skip_while(|(_, line)| *line != "## Packages");
    for (at, line) in lines.skip(1).take_while(|(_, line)| !line.starts_with("## ")) {
        let mut cells = line.split(" | ");
        let (Some(names), Some(users)) = (cells.next(), cells.next()) else { continue };
        for name in quoted(names) {
            let is_wrong = match users {
                "not used" => uses(None, name),
                // the cell may also name files; only names of crates' folders can be looked up
                _ => quoted(users).any(|folder| {
                    let is_crate = manifests(tree)
                        .any(|file| file.path.strip_suffix("/Cargo.toml") == Some(folder));
                    is_crate && !uses(Some(folder), name)
                }),
            };
            if is_wrong {
                let what = format!("{name}: {users}, which the manifests do not say");
                findings.push(Finding::new(page, at + 1, what));
            }
        }
    }
    findings
}

/// The texts in backquotes of a table's cell.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, dependencies: &str) -> Tree {
        let text = format!("[package]\nname = \"{name}\"\n{dependencies}");
        Tree::of(&[("x/Cargo.toml", &text)])
    }

    #[test]
    fn arrows_point_down() {
        #[rustfmt::skip] // columns: crate, dependencies, lines of findings
        let cases: [(&str, &str, &[usize]); 10] = [
            ("weft-dataplane", "[dependencies]\nweft-xdp.workspace = true\n", &[4]),
            ("weft-xdp", "[dependencies]\nweft-dataplane.workspace = true\n", &[4]),
            ("weft-sim", "[dependencies]\nweft-parsers.workspace = true\n", &[]),
            ("weft-parsers", "[dev-dependencies]\nweft-sim.workspace = true\n", &[4]),
            ("weft-dataplane", "[target.'cfg(loom)'.dependencies]\nweft = { path = \"..\" }\n", &[4]),
            ("weft-dataplane", "[dependencies.weft-sim]\npath = \"..\"\n", &[3]),
            ("weft-hosts", "[build-dependencies]\nweft-sim = \"1\"\n", &[4]),
            ("weft-new", "", &[0]),
            ("weft", "[dependencies]\nserde = \"1\"\n", &[]),
            ("weft-parsers", "[features]\nweft-sim = []\n", &[]),
        ];
        for (name, dependencies, want) in cases {
            let found = crate_arrows(&manifest(name, dependencies));
            let lines: Vec<_> = found.iter().map(|f| f.line).collect();
            assert_eq!(lines, want, "{name}: {dependencies}: {found:?}");
        }
    }

    #[test]
    fn packages_are_where_the_table_says() {
        #[rustfmt::skip] // columns: row, findings
        let cases = [
            ("| `toml`, `serde` | `x` | files |",     0),
            ("| `toml`, `regex` | `x` | files |",     1),
            ("| `tokio` | not used | no |",           0),
            ("| `serde` | not used | no |",           1),
            ("| `tokio` | `x/src/tcp` | a place |",   0),
        ];
        for (row, want) in cases {
            let page = format!("| `serde` | not used | before |\n## Packages\n{row}\n## Next\n");
            let manifest =
                "[package]\nname = \"weft\"\n[dependencies]\ntoml = \"1\"\nserde = \"1\"\n";
            let tree = Tree::of(&[("ARCHITECTURE.md", &page), ("x/Cargo.toml", manifest)]);
            assert_eq!(packages(&tree).len(), want, "{row}");
        }
    }

    #[test]
    fn reasons_stand_on_the_line_or_in_the_workspace() {
        #[rustfmt::skip] // columns: line, findings
        let cases = [
            ("serde = \"1\" # trace events", 0), ("serde = \"1\"", 1),
            ("serde.workspace = true", 0), ("serde = { workspace = true, features = [] }", 0),
            ("weft-sim.workspace = true", 0), ("# serde = \"1\"", 0),
        ];
        for (line, want) in cases {
            let tree = manifest("weft", &format!("[dependencies]\n{line}\n"));
            assert_eq!(reasons(&tree).len(), want, "{line}");
        }
        let tree = Tree::of(&[("Cargo.toml", "[workspace.dependencies]\nx = \"1\"\n")]);
        assert_eq!(reasons(&tree).len(), 1, "the workspace's list");
    }
}
