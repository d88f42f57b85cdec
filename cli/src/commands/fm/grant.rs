//! `weft fm grant` and `weft fm revoke`: give memory to one more host, or take it from one.
//!
//! Source: `docs/fm.md`.

use clap::Args;
use weft_fm::service::Request;

use super::Query;
use crate::error::CliError;

/// Arguments of `weft fm grant`.
#[derive(Args, Debug)]
pub struct GrantArgs {
    /// Name of the memory or P2P access
    name: String,
    /// Host to give access to; for P2P also a device
    host: String,
}

impl Query for GrantArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::Grant { name: self.name.clone(), host: self.host.clone() })
    }
}

/// Arguments of `weft fm revoke`.
#[derive(Args, Debug)]
pub struct RevokeArgs {
    /// Name of the memory, GIM or P2P access
    name: String,
    /// Host to revoke access from; for GIM and P2P also a device
    host: String,
}

impl Query for RevokeArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::Revoke { name: self.name.clone(), host: self.host.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_requests;
    use super::*;

    #[test]
    fn words_become_requests() {
        let (name, host) = ("pool".to_owned(), "h0".to_owned());
        assert_requests([
            ("grant pool h0", Request::Grant { name: name.clone(), host: host.clone() }),
            ("revoke pool h0", Request::Revoke { name, host }),
        ]);
    }
}
