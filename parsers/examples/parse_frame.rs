//! Prints the format, addresses, priority fields and opcode in the first 64 bytes of a frame.
//!
//! It takes a frame without FCS as hexadecimal digits, blanks allowed; by default a request in AFH_GEN1.
//!
//! Source: docs/spec/wire-formats.md §1.3 (the worked frame).
//!
//! Run: `cargo run -p weft-parsers --example parse_frame [-- HEX]`.
#![expect(clippy::print_stdout, reason = "it shows what it found")]

use std::error::Error;

use weft_parsers::{HEAD_LEN, ParseConfig, parse_head};

const GEN1: &str = "020000000002 20 0000000001 88B5 2112345A90156123";

fn bytes(hex: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let digits: Vec<u32> = hex
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).ok_or(format!("{c:?} is no hexadecimal digit")))
        .collect::<Result<_, _>>()?;
    if !digits.len().is_multiple_of(2) {
        return Err(format!("{} digits: a byte has two", digits.len()).into());
    }
    digits
        .chunks(2)
        .map(|two| Ok(u8::try_from(two.iter().fold(0, |sum, d| sum * 16 + d))?))
        .collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let frame = bytes(&std::env::args().nth(1).unwrap_or_else(|| GEN1.to_owned()))?;
    // Classification looks at 64 bytes, with zeros behind a frame that is shorter.
    let mut head = [0; HEAD_LEN];
    for (place, byte) in head.iter_mut().zip(&frame) {
        *place = *byte;
    }
    let found = parse_head(&head, frame.len(), &ParseConfig::DEFAULT)?;
    println!("format {}, from {} to {}", found.format(), found.src(), found.dst());
    println!("tag {:?}, DSCP {:?}, Traffic Class {:?}", found.tci(), found.dscp(), found.tc());
    println!("opcode {:?}, group {}", found.rh_opcode(), found.group());
    Ok(())
}
