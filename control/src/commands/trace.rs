//! `weft trace`: the path of frames through a running switch, stage by stage.
//!
//! Shape: a filter and a count → events of whole paths, as text or JSON lines.
//! Units: nanoseconds since each frame's receipt (text), picoseconds since the start (JSON).
//! Source: issue 2, "`weft trace`".

use std::io::Write;

use clap::Args;
use serde_json::Value;

use super::running::SwitchArgs;
use crate::error::CliError;
use crate::mgmt::Request;
use crate::paths::FILTER_HELP;

/// Arguments of `weft trace`.
#[derive(Args, Debug)]
#[command(after_help = format!("FILTER: {FILTER_HELP}"))]
pub struct TraceArgs {
    /// Which frames; all by default
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// How many frames
    #[arg(short = 'n', long, default_value_t = 1)]
    count: u64,
    /// One JSON object a line, with every number that decided
    #[arg(long)]
    json: bool,
    /// Which switch.
    #[command(flatten)]
    switch: SwitchArgs,
}

/// Follows frames until enough were seen, or the switch stops.
///
/// # Errors
/// No switch, or a filter that it refuses.
pub fn run(args: &TraceArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = args.switch.connect()?;
    let refused = |error: crate::mgmt::ClientError| CliError::Switch(error.to_string());
    let request = Request::Trace { filter: args.filter.clone(), count: args.count };
    client.request(&request).map_err(refused)?;
    loop {
        let Ok(mut event) = client.event().map_err(refused)? else { return Ok(()) };
        let text = event.as_object_mut().and_then(|fields| fields.remove("text"));
        let written = if args.json {
            serde_json::to_writer(&mut *out, &event).map_err(std::io::Error::from)
        } else {
            let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
            write!(out, "{text}")
        };
        written
            .and_then(|()| writeln!(out))
            .and_then(|()| out.flush())
            .map_err(CliError::Output)?;
    }
}
