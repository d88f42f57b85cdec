//! The source tree keeps its own rules.
//!
//! Shape: every rule of `weft_tests::tidy` over the files that git knows.
//! Units: none.
//! Source: style.md C1, C11, C14.

use std::path::Path;

use weft_tests::tidy::{RULES, Tree, clauses};

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

/// Told, not enforced: clauses of standards above code that no test names.
#[test]
fn clauses_without_tests_are_listed() {
    let tree = tree();
    for finding in clauses::untested(&tree) {
        println!("clause without a test: {finding}");
    }
}
