//! `weft sim transfer`: runs transfers of fabric memory over links of given rates, in virtual time.
//!
//! Prints a line for each rate and direction, with the rate that the links allow. GB/s are 10^9 bytes a second.
//!
//! Source: docs/fabric-memory.md "Rates in virtual time".

use std::io::Write;

use clap::Args;
use serde_json::json;
use weft_cxl::fabric_mem::Op;
use weft_dataplane::time::LinkRate;
use weft_lab::endpoint::number::Num;
use weft_sim::fabric_transfer::{Outcome, TransferSpec};

use crate::error::CliError;

/// Highest rate of a link in GB/s.
const GBYTES_MAX: u64 = 1_000;

/// Arguments of `weft sim transfer`.
#[derive(Args, Debug)]
pub struct TransferArgs {
    /// Link rates in GB/s, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64,103")]
    pub gbytes: Vec<u64>,
    /// `Max_Payload_Size` of the links in bytes, a power of two from 128 to 4096; no request crosses a multiple of it
    #[arg(long, value_name = "BYTES", default_value_t = 4_096)]
    pub payload: u16,
    /// Maximum number of outstanding requests
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub in_flight: usize,
    /// Size of the transfer, in whole MiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub size: Num,
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// Both directions, by the names that users know.
const DIRECTIONS: [(Op, &str); 2] = [(Op::Write, "write (D2RH)"), (Op::Read, "read (RH2D)")];

/// Runs a transfer each way for each rate.
///
/// # Errors
/// An argument out of range, or bytes that differ at the end.
pub fn run(args: &TransferArgs, out: &mut dyn Write) -> Result<(), CliError> {
    if !args.json {
        let head = "link GB/s  direction     payload  in flight       bytes          us    GB/s  allowed  of link";
        writeln!(out, "{head}").map_err(CliError::Output)?;
    }
    for &gbytes in &args.gbytes {
        let bps = gbytes.checked_mul(8_000_000_000).filter(|_| gbytes <= GBYTES_MAX);
        let Some(rate) = bps.and_then(LinkRate::bps) else {
            let text = format!("--gbytes: expected 1 to {GBYTES_MAX}, found {gbytes}");
            return Err(CliError::Usage(text));
        };
        for (op, direction) in DIRECTIONS {
            let (payload_max, in_flight, bytes) = (args.payload, args.in_flight, args.size.0);
            let spec = TransferSpec { rate, op, bytes, payload_max, in_flight };
            let outcome = spec.run().map_err(|error| CliError::Usage(error.to_string()))?;
            let line = line(args.json, gbytes, direction, &spec, &outcome);
            writeln!(out, "{line}").map_err(CliError::Output)?;
            if !outcome.equal {
                let text = format!("{gbytes} GB/s, {direction}: the bytes differ");
                return Err(CliError::Difference(text));
            }
        }
    }
    Ok(())
}

/// Formats bytes a second as GB/s with two decimals.
fn gbps(bytes_a_second: u64) -> String {
    let hundredths = bytes_a_second / 10_000_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Formats one transfer as a line of text or JSON.
fn line(
    as_json: bool,
    gbytes: u64,
    direction: &str,
    spec: &TransferSpec,
    outcome: &Outcome,
) -> String {
    let TransferSpec { bytes, payload_max, in_flight, .. } = *spec;
    let Outcome { took, rate, equal } = *outcome;
    let allowed = spec.goodput();
    if as_json {
        let ns = took.as_ns();
        return json!({
            "link_gbytes": gbytes,
            "direction": direction,
            "payload": payload_max,
            "in_flight": in_flight,
            "bytes": bytes,
            "ns": ns,
            "bytes_per_s": rate,
            "allowed_bytes_per_s": allowed,
            "equal": equal,
        })
        .to_string();
    }
    let (whole, part) = (took.as_ns() / 1_000, took.as_ns() % 1_000);
    // `rate` is in bytes a second, and the link carries `gbytes` × 10^9 of them.
    let per_mille = rate / (gbytes * 1_000_000);
    let (got, most) = (gbps(rate), gbps(allowed));
    let us = format!("{whole}.{part:03}");
    let share = format!("{}.{} %", per_mille / 10, per_mille % 10);
    format!(
        "{gbytes:>9}  {direction:<12}  {payload_max:>7}  {in_flight:>9}  {bytes:>10}  {us:>10}  {got:>6}  {most:>7}  {share:>7}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(gbytes: &[u64]) -> TransferArgs {
        let gbytes = gbytes.to_vec();
        TransferArgs { gbytes, payload: 4_096, in_flight: 64, size: Num(2 << 20), json: false }
    }

    /// docs/fabric-memory.md "Rates in virtual time": a line each way, with what the links allow.
    #[test]
    fn a_line_each_way_says_what_the_links_allow() {
        let mut out = Vec::new();
        run(&args(&[64]), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for (line, direction) in lines.iter().skip(1).zip(["write (D2RH)", "read (RH2D)"]) {
            assert!(line.contains(direction) && line.contains(" 63.01 "), "{line}");
        }
        let mut out = Vec::new();
        run(&TransferArgs { json: true, ..args(&[103]) }, &mut out).unwrap();
        let first: serde_json::Value =
            serde_json::from_str(String::from_utf8(out).unwrap().lines().next().unwrap()).unwrap();
        assert_eq!(first.get("allowed_bytes_per_s").unwrap(), 101_415_384_615_u64);
        assert_eq!(first.get("equal").unwrap(), true);
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        for (bad, want) in [
            (args(&[0]), "--gbytes"),
            (args(&[5_000]), "--gbytes"),
            (TransferArgs { payload: 300, ..args(&[1]) }, "payload"),
            (TransferArgs { in_flight: 0, ..args(&[1]) }, "requests"),
            (TransferArgs { size: Num(3), ..args(&[1]) }, "bytes"),
        ] {
            let error = run(&bad, &mut Vec::new()).unwrap_err();
            assert!(matches!(&error, CliError::Usage(text) if text.contains(want)), "{error}");
        }
    }
}
