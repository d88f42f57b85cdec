//! The documentation of all parameters, from their table.
//!
//! [`markdown`] renders [`table::SECTIONS`]; a test compares the result with `docs/configuration.md`.
//!
//! Source: docs/spec/pipeline.md §12.

use std::fmt::Write;

use super::param::{Form, Param, Section};
use super::table;

const HEAD: &str = "# Configuration

<!-- Made by `weft config docs` from the table of parameters; a test holds it against that. -->

`weft run`, `weft replay` and `weft config` read TOML with `-c FILE`. Flags lie over the file: `--port
NAME=[KIND:]DEVICE` adds a port or changes its device, `--set SECTION.KEY=VALUE` sets anything that
occurs once. `weft config check` refuses what is wrong with file, line, column and what was expected;
`weft config show` prints every value with where it comes from. *hot*: `weft reload` changes it while
traffic flows; *restart*: only a new start does. Percentages are 0 to 100 of what the unit names, sizes
in MiB are 1,048,576 bytes.
";

#[must_use]
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for section in table::SECTIONS {
        page += &of_section(section);
    }
    page
}

fn of_section(section: &Section) -> String {
    let name = match section.form {
        Form::Table => format!("[{}]", section.name),
        Form::Repeated => format!("[[{}]]", section.name),
    };
    let mut text = format!("\n## `{name}`\n\n{}\n\n", section.doc); // writing to it cannot fail
    if section.name == "port" {
        text += "Each port also takes every key of `[port_defaults]`; its own goes first.\n\n";
    }
    text += "| key | unit | range | default | change | meaning |\n|---|---|---|---|---|---|\n";
    let shared = table::section("port_defaults");
    // A port takes all keys of `[port_defaults]`, which has a section of its own: list each key once.
    let is_shared = |param: &Param| {
        section.name == "port" && shared.is_some_and(|shared| shared.param(param.name).is_some())
    };
    for param in section.params().filter(|param| !is_shared(param)) {
        let cells = [
            format!("`{}`", param.name),
            param.unit.to_owned(),
            param.kind.to_string(),
            param.initial.describe(),
            param.apply.name().to_owned(),
            param.doc.to_owned(),
        ];
        // A `|` would end the cell, and a `<` begin an HTML tag that renderers drop.
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('<', "&lt;"));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}
