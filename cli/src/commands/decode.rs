//! `weft decode`: prints the frames of a capture, one a line.
//!
//! Reads pcap or pcapng and writes text or JSON lines. Lengths are without FCS.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use weft_control::decode::{Decoded, decode};
use weft_dataplane::port::capture::{CaptureError, CaptureName, CaptureReader, Fcs, Record};
use weft_parsers::{AfhMode, Gen2Order, ParseConfig};

use crate::error::CliError;

/// AFH mode of a port, by which its frames are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Afh {
    /// GEN1 or GEN2, detected from the frame; never Lite
    Auto,
    /// No AFH
    None,
    /// `AFH_GEN1`
    Gen1,
    /// `AFH_GEN2_16b`
    Gen2,
    /// `AFH_Lite`
    Lite,
}

/// Byte order of GEN2 and Lite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Order {
    /// `Key_words` first
    Slap,
    /// Traffic Class first
    AsDocumented,
}

impl From<Order> for Gen2Order {
    fn from(order: Order) -> Self {
        match order {
            Order::Slap => Self::Slap,
            Order::AsDocumented => Self::AsDocumented,
        }
    }
}

/// Arguments of `weft decode`.
#[derive(Args, Debug)]
pub struct DecodeArgs {
    /// Capture file, pcap or pcapng, also compressed by gzip or zstd; FILE#INTERFACE selects one interface by number or
    /// name; "-" is standard input
    pub file: PathBuf,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
    /// AFH mode to parse frames by
    #[arg(long, value_enum, default_value_t = Afh::Auto)]
    pub afh: Afh,
    /// Byte order of GEN2 and Lite
    #[arg(long, value_enum, default_value_t = Order::Slap)]
    pub gen2_order: Order,
    /// Second UDP port of Standard frames; 0 disables it
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub udp_type2_port: u16,
    /// Maximum number of frames to print
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,
}

/// A frame of the capture as a line of JSON.
#[derive(Debug, Serialize)]
struct Row<'a> {
    number: u64,
    ts_ns: u64,
    interface: u32,
    /// Length on the wire, if the capture cut the frame off.
    #[serde(skip_serializing_if = "Option::is_none")]
    wire_len: Option<u32>,
    /// `right`, `wrong` or `cut_off` if the capture's frames include the FCS.
    #[serde(skip_serializing_if = "Option::is_none")]
    fcs: Option<&'static str>,
    /// Link errors that the capturing device reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    link_errors: Vec<&'static str>,
    #[serde(flatten)]
    decoded: &'a Decoded,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<&'a str>,
}

/// Prints the frames of a capture.
///
/// # Errors
/// A capture that cannot be read; frames before its fault are printed.
pub fn run(args: &DecodeArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let config = ParseConfig {
        afh: match args.afh {
            Afh::Auto => AfhMode::Auto,
            Afh::None => AfhMode::None,
            Afh::Gen1 => AfhMode::Gen1,
            Afh::Gen2 => AfhMode::Gen2,
            Afh::Lite => AfhMode::Lite,
        },
        gen2_order: args.gen2_order.into(),
        udp_type2: args.udp_type2_port,
        ..ParseConfig::DEFAULT
    };
    let mut out = std::io::BufWriter::new(out);
    let name = CaptureName::from_path(&args.file);
    let mut reader = CaptureReader::open_name(&name).map_err(capture_error)?;
    let mut record = Record::default();
    for number in 1..=args.count.unwrap_or(u64::MAX) {
        let more = match reader.read_into(&mut record) {
            Ok(more) => more,
            Err(error) => {
                // Frames before the fault come first, then the message on standard error.
                out.flush().map_err(CliError::Output)?;
                return Err(capture_error(error));
            }
        };
        if !more {
            break;
        }
        write(&mut out, number, &record, &decode(&record.data, &config), args.json)
            .map_err(CliError::Output)?;
    }
    out.flush().map_err(CliError::Output)?;
    for warning in reader.warnings() {
        anstream::eprintln!("warning: {warning}");
    }
    Ok(())
}

fn write(
    out: &mut impl Write,
    number: u64,
    record: &Record,
    decoded: &Decoded,
    is_json: bool,
) -> std::io::Result<()> {
    let wire_len = record.is_truncated().then_some(record.orig_len);
    if is_json {
        let row = Row {
            number,
            ts_ns: record.ts_ns,
            interface: record.interface,
            wire_len,
            fcs: match record.fcs {
                Fcs::Absent => None,
                Fcs::CutOff => Some("cut_off"),
                Fcs::Right => Some("right"),
                Fcs::Wrong => Some("wrong"),
            },
            link_errors: record.link_errors.names().collect(),
            decoded,
            comment: record.comment.as_deref(),
        };
        serde_json::to_writer(&mut *out, &row)?;
        return writeln!(out);
    }
    let (seconds, ns) = (record.ts_ns / 1_000_000_000, record.ts_ns % 1_000_000_000);
    write!(out, "{number} {seconds}.{ns:09} {decoded}")?;
    if let Some(wire_len) = wire_len {
        write!(out, " TRUNCATED of {wire_len}")?;
    }
    // A right FCS is the rule, and is not mentioned.
    if record.fcs == Fcs::Wrong {
        write!(out, " BAD FCS")?;
    }
    let errors: Vec<&str> = record.link_errors.names().collect();
    if !errors.is_empty() {
        write!(out, " LINK ERRORS {}", errors.join(", "))?;
    }
    if let Some(comment) = &record.comment {
        // A capture may come from anywhere: line ends and escape sequences must not reach the terminal.
        write!(out, " # {}", comment.escape_debug())?;
    }
    writeln!(out)
}

/// Turns a capture's error into a usage error (no such interface in the file) or one of the system.
pub(crate) fn capture_error(error: CaptureError) -> CliError {
    match error {
        CaptureError::NoInterface { .. } => CliError::Usage(error.to_string()),
        error => CliError::system("capture", error),
    }
}
