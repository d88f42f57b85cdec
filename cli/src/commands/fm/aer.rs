//! `weft fm aer`: has a bridge report an error to its host.
//!
//! Source: `docs/fm.md`; CXL 3.1 section 7.6.7.2.4.

use clap::Args;
use clap::builder::PossibleValuesParser;
use weft_fm::components::aer::{AerError, tlp_header};
use weft_fm::service::Request;

use super::Query;
use crate::error::CliError;

/// Arguments of `weft fm aer`.
#[derive(Args, Debug)]
pub struct AerArgs {
    /// vPPB as SWITCH/VCS/VPPB; with --hbr as VCS/VPPB
    bridge: String,
    /// Error to report
    #[arg(value_parser = PossibleValuesParser::new(AerError::names()))]
    error: String,
    /// Header of the TLP at fault, up to 32 bytes (hexadecimal); zeros by default
    #[arg(long, value_name = "HEX")]
    tlp: Option<String>,
}

impl Query for AerArgs {
    fn request(&self) -> Result<Request, CliError> {
        // Checked here as well as by the manager: a mistyped argument is exit code 2.
        tlp_header(self.tlp.as_deref()).map_err(CliError::Usage)?;
        let (bridge, error, tlp) = (self.bridge.clone(), self.error.clone(), self.tlp.clone());
        Ok(Request::GenerateAer { bridge, error, tlp })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let aer = |error: &str, tlp: Option<&str>| Request::GenerateAer {
            bridge: "s0/0/1".to_owned(),
            error: error.to_owned(),
            tlp: tlp.map(str::to_owned),
        };
        assert_requests([
            ("aer s0/0/1 poisoned-tlp", aer("poisoned-tlp", None)),
            ("aer s0/0/1 ecrc --tlp 40000001", aer("ecrc", Some("40000001"))),
        ]);
        assert_refused([
            ("aer s0/0/1", "required"),
            ("aer s0/0/1 parity", "possible values"),
            ("aer s0/0/1 ecrc --tlp 400", "expected pairs of hexadecimal digits"),
            ("aer s0/0/1 ecrc --tlp 40", "expected the header of a TLP"),
        ]);
    }
}
