//! `weft fm port`: resets the device or GFD at a port of a switch.
//!
//! Source: `docs/fm.md`; CXL 3.1 section 7.6.7.1.3.

use clap::Args;
use weft_fm::components::port_reset::PortReset;
use weft_fm::service::Request;

use super::Query;
use crate::error::CliError;

/// Arguments of `weft fm port`.
#[derive(Args, Debug)]
pub struct PortArgs {
    /// Port, by the name of its device or GFD, as SWITCH.N or as SWITCH/port:N
    port: String,
    /// Kind of reset
    #[arg(value_enum)]
    what: PortReset,
}

impl Query for PortArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::ControlPort { port: self.port.clone(), reset: self.what })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let port = |port: &str, reset| Request::ControlPort { port: port.to_owned(), reset };
        assert_requests([
            ("port s1.3 reset", port("s1.3", PortReset::Reset)),
            ("port ep0 assert-perst", port("ep0", PortReset::AssertPerst)),
            ("port s1/port:3 deassert-perst", port("s1/port:3", PortReset::DeassertPerst)),
        ]);
        assert_refused([("port s1.3", "required"), ("port s1.3 cold", "possible values")]);
    }
}
