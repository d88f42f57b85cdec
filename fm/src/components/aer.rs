//! Uncorrectable errors that a bridge is made to report to its host (5203h), to test the host's error handling.
//!
//! [`AerError`] is an error by the name of its bit, [`tlp_header`] the header to be logged with it.
//!
//! Source: CXL 3.1 section 7.6.7.2.4 (Generate AER Event); PCIe 6.0 section 7.8.4.2 (Uncorrectable Error Status).

use std::str::FromStr;

use weft_parsers::cci::Request;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::vcs::GenerateAer;

use crate::model::text::bytes;

/// Length of the command's field for a TLP header: 32 bytes, the longest header that PCIe logs.
const TLP_LEN: usize = 32;

/// Bits of the Uncorrectable Error Status register. A switch refuses those that it cannot report.
const ERRORS: [(&str, u8); 17] = [
    ("data-link-protocol", 4),
    ("surprise-down", 5),
    ("poisoned-tlp", 12),
    ("flow-control-protocol", 13),
    ("completion-timeout", 14),
    ("completer-abort", 15),
    ("unexpected-completion", 16),
    ("receiver-overflow", 17),
    ("malformed-tlp", 18),
    ("ecrc", 19),
    ("unsupported-request", 20),
    ("acs-violation", 21),
    ("internal", 22),
    ("mc-blocked-tlp", 23),
    ("atomicop-egress-blocked", 24),
    ("tlp-prefix-blocked", 25),
    ("poisoned-tlp-egress-blocked", 26),
];

/// An uncorrectable error of PCIe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AerError {
    name: &'static str,
    bit: u8,
}

impl AerError {
    pub fn names() -> impl Iterator<Item = &'static str> {
        ERRORS.into_iter().map(|(name, _)| name)
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The command that has `bridge` report it.
    #[must_use]
    pub const fn request(self, bridge: Vppb, tlp: [u8; TLP_LEN]) -> Request<'static> {
        let Vppb { vcs, vppb } = bridge;
        Request::GenerateAer(GenerateAer { vcs, vppb, error: 1 << self.bit, tlp })
    }
}

impl FromStr for AerError {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = ERRORS.into_iter().find(|&(name, _)| name == text);
        found.map(|(name, bit)| Self { name, bit }).ok_or_else(|| {
            let all: Vec<&str> = Self::names().collect();
            format!("expected an error of PCIe ({}), found {text:?}", all.join(", "))
        })
    }
}

/// The header of a TLP from hexadecimal digits, filled up with zeros; all zeros where none is given.
///
/// # Errors
/// The digits are no bytes, no whole double words, or too many for the command.
pub fn tlp_header(digits: Option<&str>) -> Result<[u8; TLP_LEN], String> {
    let given = bytes(digits.unwrap_or_default())?;
    // A header comes in double words; a length that is no multiple of 4 is a typing error, not a shorter header.
    let mut header = [0; TLP_LEN];
    match header.get_mut(..given.len()) {
        Some(place) if given.len().is_multiple_of(4) => place.copy_from_slice(&given),
        _ => {
            let found = given.len();
            return Err(format!("expected the header of a TLP, 4 to 32 bytes by 4, found {found}"));
        }
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use weft_parsers::cci::Request;

    use super::*;

    //= docs/spec/wire-formats.md §4.3: 5203h
    #[test]
    fn a_name_and_digits_become_the_command() {
        let error: AerError = "malformed-tlp".parse().unwrap();
        let tlp = tlp_header(Some("40000001 0000000f")).unwrap();
        let bridge = Vppb { vcs: 2, vppb: 3 };
        let Request::GenerateAer(it) = error.request(bridge, tlp) else { panic!("another one") };
        assert_eq!((it.vcs, it.vppb, it.error), (2, 3, 1 << 18));
        assert_eq!(it.tlp[..9], [0x40, 0, 0, 1, 0, 0, 0, 0x0F, 0]);
        assert_eq!(tlp_header(None), Ok([0; 32]));
    }

    #[test]
    fn what_is_no_error_or_no_header_is_refused() {
        for name in AerError::names() {
            assert_eq!(name.parse::<AerError>().map(AerError::name), Ok(name));
        }
        let none = "parity".parse::<AerError>().unwrap_err();
        assert!(none.starts_with("expected an error of PCIe (data-link-protocol, "), "{none}");
        let long = "00".repeat(36);
        for digits in ["4", "4g", "400000", long.as_str()] {
            assert!(tlp_header(Some(digits)).unwrap_err().starts_with("expected "), "{digits}");
        }
    }
}
