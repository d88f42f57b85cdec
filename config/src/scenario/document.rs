//! The documentation of all keys of a scenario file, from their table.
//!
//! [`markdown`] renders [`SCENARIO`]; a test compares the result with `docs/scenarios.md`.
//!
//! Source: docs/spec/model.md §3.

use std::fmt::Write;

use super::table::{SCENARIO, SWITCH_SECTIONS};
use crate::param::{Form, Section};

const HEAD: &str = "# Scenario files

<!-- Made by `weft sim keys` from the table of keys; a test holds it against that. -->

`weft sim run FILE` reads TOML; `--set SECTION.KEY=VALUE` (or `--set KEY=VALUE` for what stands before all sections) lies
over it. Whatever is wrong is refused with file, line, column, what was found and what was expected. Times are texts such
as `\"10ms\"` or `\"2.5us\"`; sizes are bytes, or texts such as `\"64KiB\"` (of 1024) or `\"2MB\"` (of 1000). `weft sim new`
writes a file to start from, and docs/simulation.md says how to work with them.
";

#[must_use]
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for section in SCENARIO.root().into_iter().chain(SCENARIO.sections()) {
        page += &of_section(section);
    }
    page
}

/// Whether a section is one of a switch's configuration, and documented there.
fn is_of_switch(section: &Section) -> bool {
    let names = SWITCH_SECTIONS.iter().chain(&["port_defaults"]);
    section.form == Form::Table && names.into_iter().any(|name| *name == section.name)
}

fn of_section(section: &Section) -> String {
    let name = match section.form {
        Form::Table if section.name.is_empty() => "Before all sections".to_owned(),
        Form::Table => format!("`[{}]`", section.name),
        Form::Repeated => format!("`[[{}]]`", section.name),
    };
    let mut text = format!("\n## {name}\n\n"); // writing to it cannot fail
    if is_of_switch(section) {
        text += "Holds for every switch, with the keys and defaults of docs/configuration.md in virtual time.\n";
        return text;
    }
    if !section.name.is_empty() {
        let _ = writeln!(text, "{}\n", section.doc);
    }
    // Both take the keys of `[switch]`, which docs/configuration.md explains.
    if section.name == "switch_defaults" || section.name == "switch" {
        let _ = writeln!(text, "Keys: those of `[switch]` in docs/configuration.md.");
        return text;
    }
    text += "| key | unit | range | default | meaning |\n|---|---|---|---|---|\n";
    for param in section.params() {
        let cells = [
            format!("`{}`", param.name),
            param.unit.to_owned(),
            param.kind.to_string(),
            param.initial.describe(),
            param.doc.to_owned(),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('<', "&lt;"));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}
