//! `weft config`: checks a configuration, lists all parameters, shows effective values.
//!
//! Parameters, units and ranges come from the table in `weft-config`; no switch is needed.
//!
//! Source: docs/spec/pipeline.md §12.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde_json::json;
use weft_config::param::{Form, Initial};
use weft_config::resolve::effective;
use weft_config::table::{self, SECTIONS};
use weft_config::{Config, Effective, Problem, Timing, document};

use crate::error::CliError;
use crate::settings::SettingsArgs;

use super::write_json;

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration; each error names file, line and the expected value
    Check(CheckArgs),
    /// List all parameters with unit, range, default, and whether a reload can change them
    Defaults(DefaultsArgs),
    /// Show effective values and the source of each
    Show(ShowArgs),
    /// Print the documentation of all parameters as Markdown
    #[command(hide = true)]
    Docs,
}

/// Arguments of `weft config check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Configuration file, TOML; "-" is standard input
    #[arg(value_name = "FILE")]
    pub file: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Check the configuration for virtual time (replay and models)
    #[arg(long = "virtual")]
    pub is_virtual: bool,
}

/// Arguments of `weft config defaults`.
#[derive(Args, Debug)]
pub struct DefaultsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weft config show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show the values for virtual time (replay and models)
    #[arg(long = "virtual")]
    pub is_virtual: bool,
}

/// Runs `weft config`.
///
/// # Errors
/// A configuration that is refused, or a file that cannot be read.
pub fn run(command: &ConfigCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        ConfigCommand::Check(args) => check(args, out),
        ConfigCommand::Defaults(args) if args.json => write_json(out, &defaults_json()),
        ConfigCommand::Defaults(_) => write_defaults(out).map_err(CliError::Output),
        ConfigCommand::Show(args) => show(args, out),
        ConfigCommand::Docs => {
            out.write_all(document::markdown().as_bytes()).map_err(CliError::Output)
        }
    }
}

const fn timing(is_virtual: bool) -> Timing {
    if is_virtual { Timing::Virtual } else { Timing::Live }
}

fn check(args: &CheckArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut from = args.settings.clone();
    if let Some(file) = &args.file
        // The file may be an argument or `--config`, but not both.
        && from.config.replace(file.clone()).is_some()
    {
        return Err(CliError::Usage("expected one configuration file, found two".to_owned()));
    }
    let config = Config::resolve(&from.load()?, timing(args.is_virtual))?;
    let (ports, pris) = (config.switch.ports.len(), config.switch.pris);
    if args.json {
        let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        let valid = json!({ "ports": ports, "priorities": pris, "warnings": warnings });
        return write_json(out, &valid);
    }
    let mut write = || {
        for warning in &config.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        writeln!(out, "configuration is valid: {ports} ports, {pris} priorities")
    };
    write().map_err(CliError::Output)
}

fn show(args: &ShowArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let settings = args.settings.load()?;
    // A switch needs ports to be resolved. A file without them is still shown, with its settings and plain defaults.
    let (all, warnings) = if settings.items("port").is_empty() {
        (effective(&settings, &std::collections::BTreeMap::new()), Vec::new())
    } else {
        let config = Config::resolve(&settings, timing(args.is_virtual))?;
        (config.effective, config.warnings)
    };
    if args.json {
        let values: Vec<_> = all.iter().map(shown_json).collect();
        let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        return write_json(out, &json!({ "parameters": values, "warnings": warnings }));
    }
    write_shown(&all, &warnings, out).map_err(CliError::Output)
}

fn write_shown(all: &[Effective], warnings: &[Problem], out: &mut dyn Write) -> io::Result<()> {
    let mut before = None;
    for value in all {
        let here = (value.section, value.item);
        if before != Some(here) {
            let form = table::section(value.section).map_or(Form::Table, |section| section.form);
            let start = if before.is_some() { "\n" } else { "" };
            writeln!(out, "{start}{}", header(value.section, form))?;
            before = Some(here);
        }
        out.write_all(shown_text(value).as_bytes())?;
    }
    for warning in warnings {
        writeln!(out, "# warning: {warning}")?;
    }
    Ok(())
}

fn header(name: &str, form: Form) -> String {
    match form {
        Form::Table => format!("[{name}]"),
        Form::Repeated => format!("[[{name}]]"),
    }
}

/// A line of TOML with its origin as comment; an unset parameter is a comment as a whole.
fn shown_text(effective: &Effective) -> String {
    let (name, place) = (effective.param.name, &effective.place);
    let set = match (&effective.value, effective.param.initial) {
        (Some(value), _) => format!("{name} = {}", effective.param.kind.show(value)),
        (None, Initial::Derived(how)) => format!("# {name}: {how}"),
        (None, Initial::Unset(meaning)) => format!("# {name}: unset, {meaning}"),
        (None, _) => format!("# {name}: unset"),
    };
    format!("{set:<50} # {place}\n")
}

fn shown_json(effective: &Effective) -> serde_json::Value {
    json!({
        "section": effective.section,
        "item": effective.item,
        "key": effective.param.name,
        "value": effective.value.as_ref().map(weft_config::value::Value::to_json),
        "from": effective.place.to_string(),
    })
}

fn defaults_json() -> serde_json::Value {
    let of = |section: &'static weft_config::param::Section| {
        section.params().map(move |param| {
            json!({
                "section": section.name,
                "key": param.name,
                "repeated": section.form == Form::Repeated,
                "unit": param.unit,
                "range": param.kind.to_string(),
                "default": param.initial.describe(),
                "apply": param.apply.name(),
                "doc": param.doc,
            })
        })
    };
    SECTIONS.iter().flat_map(of).collect()
}

fn write_defaults(out: &mut dyn Write) -> io::Result<()> {
    for (i, section) in SECTIONS.iter().enumerate() {
        let start = if i == 0 { "" } else { "\n" };
        writeln!(out, "{start}{}  {}", header(section.name, section.form), section.doc)?;
        for param in section.params() {
            let unit =
                if param.unit.is_empty() { String::new() } else { format!(" ({})", param.unit) };
            writeln!(out, "  {}{unit}  {}", param.name, param.apply.name())?;
            writeln!(out, "      {}", param.doc)?;
            writeln!(out, "      range: {}", param.kind)?;
            writeln!(out, "      default: {}", param.initial.describe())?;
        }
    }
    Ok(())
}
