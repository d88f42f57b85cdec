//! `weft fm discover` and `weft fm take-over`: have a fabric manager read the whole fabric again.
//!
//! Source: `docs/fm.md`.

use clap::Args;
use weft_fm::service::Request;

use super::Query;
use crate::error::CliError;

/// Arguments of `weft fm discover`.
#[derive(Args, Debug)]
pub struct DiscoverArgs;

impl Query for DiscoverArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::Discover)
    }
}

/// Arguments of `weft fm take-over`.
#[derive(Args, Debug)]
pub struct TakeOverArgs;

impl Query for TakeOverArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::TakeOver)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_requests;
    use super::*;

    #[test]
    fn words_become_requests() {
        assert_requests([("discover", Request::Discover), ("take-over", Request::TakeOver)]);
    }
}
