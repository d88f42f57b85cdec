//! `cargo run -p weft-tidy`: prints each place of the source tree that breaks a rule.
//!
//! Exit code 1 says that a rule is broken, 2 that the tree cannot be read. Warnings are printed and
//! leave it at 0. `words` prints the [thermometer](weft_tidy::words) instead.

use std::error::Error as _;
use std::process::ExitCode;

use weft_tidy::words::Thermometer;
use weft_tidy::{RULES, Tree, WARNINGS};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let shows_words = match arguments.as_slice() {
        [] => false,
        [word] if word == "words" => true,
        _ => {
            eprintln!("tidy: {} is not known: no argument, or `words`", arguments.join(" "));
            return ExitCode::from(2);
        }
    };
    let tree = match Tree::read(".".as_ref()) {
        Ok(tree) => tree,
        Err(err) => {
            let why = err.source().map_or_else(String::new, |source| format!(": {source}"));
            eprintln!("tidy: {err}{why}");
            return ExitCode::from(2);
        }
    };
    if shows_words {
        print!("{}", Thermometer::of(&tree));
        return ExitCode::SUCCESS;
    }
    // warnings first: the findings that fail stand at the end of the output
    for (name, rule) in WARNINGS {
        for finding in rule(&tree) {
            println!("warning: {finding}  ({name})");
        }
    }
    let mut broken = 0_usize;
    for (name, rule) in RULES {
        for finding in rule(&tree) {
            println!("{finding}  ({name})");
            broken += 1;
        }
    }
    ExitCode::from(u8::from(broken > 0))
}
