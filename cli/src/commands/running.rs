//! Commands that ask a running switch: `show`, `fdb`, `reload`, `mirror`, `port`.
//!
//! Each turns its arguments into a [`Request`] over the management socket, and prints the answer as a table, a line or
//! JSON.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weft_control::events::Page;
use weft_control::report::{ShowResponse, ShowTopic, tables};
use weft_control::requests::{MirrorTarget, Request, find_socket};
use weft_rpc::{Client, ClientError};

use super::write_json;
use crate::error::CliError;

/// The running switch to connect to.
#[derive(Args, Clone, Debug, Default)]
pub struct SwitchArgs {
    /// Management socket of the switch; by default that of the running switch
    #[arg(long, value_name = "FILE", conflicts_with = "switch")]
    pub socket: Option<PathBuf>,
    /// Name of the switch, if several are running
    #[arg(long, value_name = "NAME")]
    pub switch: Option<String>,
}

/// Parses a topic of `weft show`, and gives its help.
fn topics() -> impl TypedValueParser<Value = ShowTopic> {
    let topics = || ShowTopic::ALL.iter().copied();
    PossibleValuesParser::new(
        topics().map(|topic| PossibleValue::new(topic.name()).help(topic.about())),
    )
    .map(move |name| topics().find(|topic| topic.name() == name).expect("one of the names above"))
}

/// Arguments of `weft show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Topic to show
    #[arg(value_parser = topics())]
    pub what: ShowTopic,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Repeat until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Interval between repeats in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0, requires = "watch")]
    pub interval: f64,
    /// Keep watermarks; by default, showing queues, pfc, buffer or all resets the watermarks that it shows
    #[arg(long)]
    pub keep_watermarks: bool,
    #[command(flatten)]
    pub switch: SwitchArgs,
}

#[derive(Debug, Subcommand)]
pub enum FdbCommand {
    /// Add a static entry
    Add {
        /// Station address, as `weft show fdb` prints it
        addr: String,
        /// Name of the port to the station
        port: String,
        /// VLAN ID of the entry
        #[arg(long, default_value_t = 1)]
        vid: u16,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        switch: SwitchArgs,
    },
    /// Remove an entry, static or learned
    Del {
        /// Station address, as `weft show fdb` prints it
        addr: String,
        /// VLAN ID of the entry
        #[arg(long, default_value_t = 1)]
        vid: u16,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        switch: SwitchArgs,
    },
}

/// Arguments of `weft reload`.
#[derive(Args, Debug)]
pub struct ReloadArgs {
    /// Configuration file to read; by default the file that the switch was started with
    pub file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub switch: SwitchArgs,
}

/// Arguments of `weft mirror`.
#[derive(Args, Debug)]
pub struct MirrorArgs {
    /// Port to mirror
    pub port: String,
    /// Destination of the copies: a port, or a capture file (a name with '/', or ending with .pcap or .pcapng)
    #[arg(value_name = "FILE|PORT", required_unless_present = "off")]
    pub to: Option<String>,
    /// Replace an existing capture file
    #[arg(long, conflicts_with = "off")]
    pub overwrite: bool,
    /// Stop mirroring the port
    #[arg(long, conflicts_with = "to")]
    pub off: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub switch: SwitchArgs,
}

/// Arguments of `weft port`.
#[derive(Args, Debug)]
pub struct PortArgs {
    /// Name of the port
    pub port: String,
    /// Setting to change
    pub set: PortSetting,
    /// New state
    pub state: OnOff,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub switch: SwitchArgs,
}

/// A setting of a port that can change at run time.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSetting {
    /// Transmission: off holds all queues of the port, drops nothing, and still sends PFC frames; it stays off across
    /// reloads, until it is set on again or the switch ends
    Tx,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOff {
    /// The port transmits
    On,
    /// The port's queues are held
    Off,
}

impl SwitchArgs {
    pub(super) fn connect(&self) -> Result<Client, CliError> {
        let path = match &self.socket {
            Some(path) => path.clone(),
            None => find_socket(self.switch.as_deref()).map_err(switch_error)?,
        };
        Client::connect(&path).map_err(switch_error)
    }

    pub(super) fn ask(&self, request: &Request) -> Result<Value, CliError> {
        self.connect()?.request(request).map_err(switch_error)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(super) fn switch_error(error: ClientError) -> CliError {
    let text = match std::error::Error::source(&error) {
        _ if matches!(error, ClientError::Closed) => {
            "the switch has closed the connection: it has stopped, or has sent this client away"
                .to_owned()
        }
        // A refusal's own text is that of its source.
        Some(source) if !matches!(error, ClientError::Refused(_)) => format!("{error}: {source}"),
        _ => error.to_string(),
    };
    CliError::Switch(text)
}

/// Parses an answer of a switch.
pub(super) fn read_answer<T: DeserializeOwned>(answer: Value) -> Result<T, CliError> {
    serde_json::from_value(answer)
        .map_err(|error| switch_error(ClientError::Answer(error.to_string())))
}

/// Runs `weft show`.
///
/// # Errors
/// No switch answers, the interval is out of range, output cannot be written, or, with `conservation`, frames are
/// unaccounted for.
pub fn show(args: &ShowArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let interval = Duration::try_from_secs_f64(args.interval)
        .ok()
        .filter(|interval| (0.05..=86_400.0).contains(&interval.as_secs_f64()))
        .ok_or_else(|| {
            let message =
                format!("expected an interval of 0.05 to 86400 s, found {}", args.interval);
            CliError::Usage(message)
        })?;
    let mut client = args.switch.connect()?;
    if args.what == ShowTopic::Events && args.watch {
        return events(&mut client, args.json, interval, out);
    }
    // Only topics that show watermarks: others must not reset them behind the reader's back.
    let restarts = matches!(
        args.what,
        ShowTopic::Queues | ShowTopic::Pfc | ShowTopic::Buffer | ShowTopic::All
    );
    let restart_watermarks = restarts && !args.keep_watermarks;
    let request = Request::Show { what: args.what, restart_watermarks };
    loop {
        let answer = client.request(&request).map_err(switch_error)?;
        let shown: ShowResponse = read_answer(answer.clone())?;
        // A file or pipe gets the tables one behind the other.
        if args.watch && !args.json && io::stdout().is_terminal() {
            out.write_all(b"\x1b[H\x1b[2J").map_err(CliError::Output)?; // home, clear
        }
        match (args.json, args.watch) {
            (false, _) => {
                out.write_all(shown.to_text().as_bytes()).map_err(CliError::Output)?;
            }
            (true, false) => write_json(out, &answer)?,
            (true, true) => writeln!(out, "{answer}").map_err(CliError::Output)?, // JSON lines
        }
        out.flush().map_err(CliError::Output)?;
        if !args.watch {
            return match shown {
                // A worker did not answer, so the counters are not of one moment: neither a pass nor a failure.
                ShowResponse::Conservation(sum) if sum.inexact.is_some() => {
                    Err(CliError::Switch(sum.inexact.unwrap_or_default()))
                }
                ShowResponse::Conservation(sum) if !sum.holds => {
                    let message = format!("{} frames are not accounted for", sum.imbalance);
                    Err(CliError::Difference(message))
                }
                _ => Ok(()),
            };
        }
        // Waits on the socket, so that a switch that stops ends the command at once.
        if !client.wait(interval).map_err(switch_error)? {
            return Err(CliError::Switch("the switch has stopped".to_owned()));
        }
    }
}

/// Writes events as they happen, a line each, beginning with those that the switch has kept.
fn events(
    client: &mut Client,
    json: bool,
    interval: Duration,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut after = 0;
    loop {
        let answer = client.request(&Request::Events { after }).map_err(switch_error)?;
        let page: Page = read_answer(answer)?;
        if json {
            for event in &page.events {
                let line = serde_json::to_string(event).unwrap_or_default();
                writeln!(out, "{line}").map_err(CliError::Output)?;
            }
        } else {
            // Before the first page nothing was watched, so older events are not lost.
            let lost = if after == 0 { 0 } else { page.lost };
            let text = tables::of_events(&Page { lost, ..page.clone() });
            out.write_all(text.as_bytes()).map_err(CliError::Output)?;
        }
        out.flush().map_err(CliError::Output)?;
        after = page.last;
        if !client.wait(interval).map_err(switch_error)? {
            return Err(CliError::Switch("the switch has stopped".to_owned()));
        }
    }
}

/// Runs `weft fdb`; prints the entry with `--json`.
///
/// # Errors
/// No switch answers, or it refuses.
pub fn fdb(command: &FdbCommand, out: &mut dyn Write) -> Result<(), CliError> {
    let (switch, is_json, done, request) = match command {
        FdbCommand::Add { addr, port, vid, json, switch } => {
            let done = json!({ "addr": addr, "vid": vid, "port": port });
            let (addr, port) = (addr.clone(), port.clone());
            (switch, *json, done, Request::FdbAdd { addr, port, vid: *vid })
        }
        FdbCommand::Del { addr, vid, json, switch } => {
            let done = json!({ "addr": addr, "vid": vid });
            (switch, *json, done, Request::FdbDel { addr: addr.clone(), vid: *vid })
        }
    };
    switch.ask(&request)?;
    json_if(is_json, &done, out)
}

/// Writes the effect of a command as JSON if requested; otherwise success is silent.
fn json_if(is_json: bool, done: &Value, out: &mut dyn Write) -> Result<(), CliError> {
    if is_json { write_json(out, done) } else { Ok(()) }
}

/// The absolute path: the switch has another working directory.
fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|source| CliError::File {
        verb: "find",
        path: path.to_owned(),
        source,
    })
}

/// Runs `weft reload`; prints the number of the configuration in force.
///
/// # Errors
/// No switch answers, or it refuses the configuration and keeps the current one.
pub fn reload(args: &ReloadArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let path = args.file.as_deref().map(absolute).transpose()?;
    let answer = args.switch.ask(&Request::Reload { path })?;
    if args.json {
        return write_json(out, &answer);
    }
    let epoch = answer.get("epoch").and_then(Value::as_u64).unwrap_or_default();
    writeln!(out, "configuration {epoch} is in force").map_err(CliError::Output)
}

/// Runs `weft mirror`; silent on success.
///
/// # Errors
/// No switch answers, or it refuses.
pub fn mirror(args: &MirrorArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let to = match args.to.as_deref().map(target).transpose()? {
        Some(MirrorTarget::File(path)) if args.overwrite => Some(MirrorTarget::Replace(path)),
        to => to,
    };
    let place = match &to {
        None => Value::Null,
        Some(MirrorTarget::Port(name)) => name.as_str().into(),
        Some(MirrorTarget::File(path) | MirrorTarget::Replace(path)) => {
            path.display().to_string().into()
        }
    };
    args.switch.ask(&Request::Mirror { port: args.port.clone(), to })?;
    json_if(args.json, &json!({ "port": args.port, "to": place }), out)
}

/// Runs `weft port`; silent on success.
///
/// # Errors
/// No switch answers, or it refuses.
pub fn port(args: &PortArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let on = args.state == OnOff::On;
    let (request, done) = match args.set {
        PortSetting::Tx => (
            Request::PortTx { port: args.port.clone(), on },
            json!({ "port": args.port, "tx": if on { "on" } else { "off" } }),
        ),
    };
    args.switch.ask(&request)?;
    json_if(args.json, &done, out)
}

fn target(text: &str) -> Result<MirrorTarget, CliError> {
    let is_capture = Path::new(text)
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("pcap") || end.eq_ignore_ascii_case("pcapng"));
    if text.contains('/') || is_capture {
        return absolute(Path::new(text)).map(MirrorTarget::File);
    }
    Ok(MirrorTarget::Port(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_go_to_files_or_ports() {
        #[rustfmt::skip] // columns: text, whether a file
        let cases = [
            ("p1", false), ("eth0.7", false), ("./p1", true), ("/tmp/x", true), ("x.pcap", true),
            ("x.PCAPNG", true),
        ];
        for (text, is_file) in cases {
            let target = target(text).unwrap();
            assert_eq!(matches!(target, MirrorTarget::File(_)), is_file, "{text}");
            if let MirrorTarget::File(path) = target {
                assert!(path.is_absolute(), "{text}");
            }
        }
    }
}
