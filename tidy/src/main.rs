//! `cargo run -p weft-tidy`: prints each place of the source tree that breaks a rule.
//!
//! Shape: the tree of the working directory → one line a finding, exit code 1 if there is any.
//! Units: none.
//! Source: ARCHITECTURE.md "Layout of the tree".

use std::error::Error as _;
use std::process::ExitCode;

use weft_tidy::{RULES, Tree};

fn main() -> ExitCode {
    let tree = match Tree::read(".".as_ref()) {
        Ok(tree) => tree,
        Err(err) => {
            let why = err.source().map_or_else(String::new, |source| format!(": {source}"));
            eprintln!("tidy: {err}{why}");
            return ExitCode::from(2);
        }
    };
    let mut broken = 0_usize;
    for (name, rule) in RULES {
        for finding in rule(&tree) {
            println!("{finding}  ({name})");
            broken += 1;
        }
    }
    ExitCode::from(u8::from(broken > 0))
}
