//! `weft conform`: what conformance tests of a switch's buffer and PFC need to know of a running switch.
//!
//! Shape: a subcommand for each; `params` asks the switch for [`Params`].
//! Units: frames, cells, bytes.
//! Source: docs/conform.md.

use std::io::Write;

use clap::{Args, Subcommand};

use super::running::{SwitchArgs, read_answer};
use super::write_json;
use crate::conform::Params;
use crate::error::CliError;
use crate::report::tables;
use crate::requests::Request;

/// `weft conform`.
#[derive(Subcommand, Debug)]
pub enum ConformCommand {
    /// Print at which frame each (port, priority) of a running switch pauses, drops and resumes
    Params(ParamsArgs),
}

/// Arguments of `weft conform params`.
#[derive(Args, Debug)]
pub struct ParamsArgs {
    /// Bytes of each frame, without FCS
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    packet_size: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    switch: SwitchArgs,
}

/// Runs `weft conform`.
///
/// # Errors
/// No switch answers, or it refuses.
pub fn run(command: &ConformCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        ConformCommand::Params(args) => params(args, out),
    }
}

fn params(args: &ParamsArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let request = Request::ConformParams { packet_size: args.packet_size };
    let answer = args.switch.ask(&request)?;
    if args.json {
        return write_json(out, &answer);
    }
    let params: Params = read_answer(answer)?;
    out.write_all(text(&params).as_bytes()).map_err(CliError::Output)
}

fn text(params: &Params) -> String {
    let Params { cell_size, packet_size, packet_cells, buf_pool_roid, rows } = params;
    let head = format!(
        "frames of {packet_size} bytes, {packet_cells} cells of {cell_size} bytes each; buffer pool {buf_pool_roid}\n"
    );
    let or =
        |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let cells = rows.iter().map(|row| {
        [
            row.port.clone(),
            row.pri.to_string(),
            row.pg.to_string(),
            if row.lossless { "yes" } else { "no" }.to_owned(),
            row.fill_min.to_string(),
            or(row.trig_pfc),
            or(row.dismiss_pfc),
            or(row.headroom),
            or(row.trig_ingr_drp),
            or(row.trig_egr_drp),
            row.margin.to_string(),
        ]
    });
    let heads = [
        "port",
        "pri",
        "pg",
        "lossless",
        "fill min",
        "trig pfc",
        "dismiss pfc",
        "headroom",
        "trig ingr drp",
        "trig egr drp",
        "margin",
    ];
    head + &tables::table(heads, 4, cells)
}
