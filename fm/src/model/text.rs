//! Names, tags, UUIDs, PIDs, sizes and addresses as people write them.
//!
//! Error messages name the expected form and the text found. Sizes are bytes.
//!
//! Source: docs/fm.md; UUIDs as RFC 9562 section 4 writes them.

use std::fmt;

use data_encoding::HEXLOWER_PERMISSIVE;
use weft_parsers::cci::Uuid;
use weft_parsers::fabric::{Pid, RgtMode};
use weft_toml::quantity::parse_number;

/// Whether a name has only letters, digits, `-`, `_` and `.`, so that it can be typed and shown as it is.
#[must_use]
pub fn is_word(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.chars().all(good)
}

/// Whether a name is a word that cannot be taken for a PID, a port or a bridge.
#[must_use]
pub fn is_name(name: &str) -> bool {
    // A PID or FFF, or a UUID without its dashes; acc0 is neither.
    let is_pid = u16::from_str_radix(name, 16).is_ok_and(|bits| bits <= 0xFFF);
    let is_number = is_pid || parse_uuid(name).is_ok();
    // `s1`, `s0.3`: names that the manager itself gives to switches and ports. "entry" is the entry switch.
    let is_place = name.strip_prefix('s').is_some_and(|rest| {
        !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit() || c == '.')
    });
    is_word(name) && !is_number && !is_place && name != "entry"
}

/// The tag (16 bytes) of memory of this name: the name itself, filled up with zeros.
///
/// # Errors
/// The name is empty, longer than 16 bytes, or has a zero byte.
pub fn tag(name: &str) -> Result<Uuid, String> {
    let mut tag = [0; 16];
    match tag.get_mut(..name.len()) {
        // A zero byte in the name would be taken for the end of it by `name_of`.
        Some(place) if !name.is_empty() && !name.contains('\0') => {
            place.copy_from_slice(name.as_bytes());
        }
        _ => return Err(format!("expected a name of 1 to 16 bytes, found {name:?}")),
    }
    Ok(tag)
}

/// The name in a tag; a tag that is no printable text is shown as a UUID.
#[must_use]
pub fn name_of(tag: &Uuid) -> String {
    let len = tag.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let text = std::str::from_utf8(tag.get(..len).unwrap_or_default()).ok();
    // Others can have written the tag: control characters must not reach a terminal.
    let text = text.filter(|text| !text.is_empty() && !text.chars().any(char::is_control));
    text.map_or_else(|| UuidText(*tag).to_string(), str::to_owned)
}

/// Hexadecimal digits as bytes; blanks between them are ignored.
///
/// # Errors
/// Other characters, or half a byte.
pub fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bad = || format!("expected pairs of hexadecimal digits, found {text:?}");
    HEXLOWER_PERMISSIVE.decode(&digits).map_err(|_| bad())
}

/// Displays a UUID in five groups of hexadecimal digits.
#[derive(Clone, Copy)]
pub struct UuidText(pub Uuid);

impl fmt::Display for UuidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Name of a routing group's mode, as configurations of switches have it.
#[must_use]
pub const fn mode_name(mode: RgtMode) -> &'static str {
    match mode {
        RgtMode::Random => "random",
        RgtMode::CongestionAvoiding => "congestion-avoiding",
        RgtMode::AdvancedCongestionAvoiding => "advanced congestion-avoiding",
    }
}

/// Reads a UUID, with dashes anywhere or none.
///
/// # Errors
/// The text is no UUID.
pub fn parse_uuid(text: &str) -> Result<Uuid, String> {
    let bad = || format!("expected a UUID of 32 hexadecimal digits, found {text:?}");
    // RFC 9562 section 4 has the dashes at fixed places; here they may be anywhere, as in docs/fm.md.
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let digits = std::str::from_utf8(&digits).map_err(|_| bad())?;
    // `from_str_radix` alone would take a sign.
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad());
    }
    u128::from_str_radix(digits, 16).map(u128::to_be_bytes).map_err(|_| bad())
}

/// Reads a PID: three hexadecimal digits or fewer.
///
/// # Errors
/// The text is no PID, or FFF.
pub fn parse_pid(text: &str) -> Result<Pid, String> {
    // `from_str_radix` takes a sign, which is no part of a PID.
    let bits = u16::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'));
    let pid = bits.and_then(Pid::assignable);
    pid.ok_or_else(|| format!("expected a PID of 000 to ffe, found {text:?}"))
}

/// Reads a number of bytes, with a unit or without one.
///
/// # Errors
/// The text is no size, or does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("expected bytes, such as 4096, 0x1000 or 4KiB, found {text:?}");
    parse_number(text).ok_or_else(bad)
}

/// Reads an address: hexadecimal with 0x, or decimal; `_` may group the digits.
///
/// # Errors
/// The text is no address.
pub fn parse_address(text: &str) -> Result<u64, String> {
    parse_number(text).ok_or_else(|| format!("expected an address, found {text:?}"))
}
