//! `weft fm cci`: sends a CCI command as bytes to any component, and prints the return code and the payload.
//!
//! Source: `docs/fm.md`; docs/spec/wire-formats.md §4.1.

use clap::Args;
use data_encoding::HEXLOWER;
use weft_fm::service::{Request, Response};
use weft_parsers::cci::{Header, Opcode, header};

use super::super::opcode;
use super::Query;
use crate::error::CliError;

/// Arguments of `weft fm cci`.
#[derive(Args, Debug)]
pub struct CciArgs {
    /// Whole message, or with --opcode its payload (hexadecimal)
    hex: String,
    /// Opcode of the command (hexadecimal), such as 5700
    #[arg(long, value_parser = opcode)]
    opcode: Option<u16>,
    /// Destination of the command: entry (the entry switch), port:N, pid:P, or pid:P/port:N
    #[arg(long, default_value = "entry")]
    to: String,
}

impl Query for CciArgs {
    fn request(&self) -> Result<Request, CliError> {
        let message = match self.opcode {
            Some(opcode) => whole(opcode, &self.hex).map_err(CliError::Usage)?,
            None => self.hex.clone(),
        };
        Ok(Request::Cci { to: self.to.clone(), message })
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Cci(answer) = response else { return None };
        let payload = if answer.payload.is_empty() { "-" } else { &answer.payload };
        Some(format!("{}: {} ({:#x})\n{payload}\n", answer.opcode, answer.name, answer.code))
    }
}

/// Hexadecimal digits of a request: a header for the payload, and the payload.
fn whole(opcode: u16, payload: &str) -> Result<String, String> {
    let digits: String = payload.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let len = digits.len() / 2;
    let mut head = [0; header::LEN];
    Header::request(Opcode(opcode), 0)
        .emit(len, &mut head)
        .ok_or_else(|| format!("a payload of {len} bytes is too long"))?;
    Ok(HEXLOWER.encode(&head) + &digits)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let cci = |to: &str, message: &str| Request::Cci {
            to: to.to_owned(),
            message: message.to_owned(),
        };
        assert_requests([
            ("cci 0001 --to pid:00a", cci("pid:00a", "0001")),
            ("cci --opcode 0x5700 0102", cci("entry", "0000000057020000000000000102")),
            ("cci --opcode 5700 --to entry 0102", cci("entry", "0000000057020000000000000102")),
        ]);
        assert_refused([("cci 00 --opcode xyz", "expected an opcode")]);
    }
}
