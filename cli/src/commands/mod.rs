//! The commands, one module each: arguments, and a function that takes them and a writer.
//!
//! Results go to the writer; warnings and progress go to standard error.

pub mod bench;
pub mod config;
pub mod conform;
pub mod decode;
pub mod drops;
pub mod endpoint;
pub mod extcap;
pub mod fabric;
pub mod fm;
mod frames;
pub mod generate;
pub mod model;
pub mod progress;
pub mod replay;
pub mod run;
pub mod running;
pub mod shell;
pub mod sim;
pub mod tls;
pub mod trace;
pub mod traffic;

use std::io::Write;

use weft_parsers::fabric::Pid;

use crate::error::CliError;

/// Writes `value` as one JSON document.
pub(crate) fn write_json(
    out: &mut dyn Write,
    value: &impl serde::Serialize,
) -> Result<(), CliError> {
    let write = |out: &mut dyn Write| -> std::io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    };
    write(out).map_err(CliError::Output)
}

/// Parses an opcode of CCI: hexadecimal digits as the documentation has them, such as 5700, 0x5700 or 5700h.
///
/// # Errors
/// The text is no opcode.
fn opcode(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let digits = digits.strip_suffix(['h', 'H']).unwrap_or(digits);
    // `from_str_radix` would also accept a sign.
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u16::from_str_radix(digits, 16).ok().filter(|_| is_plain);
    number.ok_or_else(|| format!("expected an opcode in hexadecimal digits, found {text:?}"))
}

/// Parses a PID as `weft fm` shows it: hexadecimal digits, such as 014, with 0x or without.
///
/// # Errors
/// The text is no PID.
fn pid(text: &str) -> Result<Pid, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    weft_fm::model::text::parse_pid(digits)
        .map_err(|_| format!("expected a PID in hexadecimal digits, 000 to ffe, found {text:?}"))
}

/// Like [`pid`], for commands that carry the PID as a number.
///
/// # Errors
/// The text is no PID.
fn pid_bits(text: &str) -> Result<u16, String> {
    pid(text).map(Pid::bits)
}

#[cfg(test)]
mod tests {
    /// They are what `weft fm gim` shows, whose rights would go to another port if they were read as decimal.
    #[test]
    fn pids_are_hexadecimal_however_they_are_written() {
        for text in ["014", "14", "0x14", "0X014"] {
            assert_eq!(super::pid_bits(text), Ok(0x14), "{text}");
        }
        assert_eq!((super::pid_bits("00a"), super::pid_bits("0")), (Ok(10), Ok(0)));
        for text in ["", "0x", "+1", "-1", "fff", "1000", "0x+1", "0x0x1", "1 ", "h0"] {
            assert!(super::pid_bits(text).unwrap_err().contains("hexadecimal"), "{text}");
        }
    }

    #[test]
    fn opcodes_are_hexadecimal_however_they_are_written() {
        for text in ["5700", "0x5700", "0X5700", "5700h", "5700H", "0x5700h"] {
            assert_eq!(super::opcode(text), Ok(0x5700), "{text}");
        }
        assert_eq!(super::opcode("1"), Ok(1));
        for text in ["", "h", "0x", "+1", "-1", "57 00", "15700", "xyz", "hh"] {
            assert!(super::opcode(text).unwrap_err().contains("expected an opcode"), "{text}");
        }
    }
}
