//! `weft fm bind` and `weft fm unbind`: devices and virtual switches at hosts' bridges.
//!
//! Source: `docs/fm.md`.

use clap::Args;
use weft_fm::service::{Request, Response};

use super::Query;
use super::text::table;
use crate::error::CliError;

/// Arguments of `weft fm bind`.
#[derive(Args, Debug)]
pub struct BindArgs {
    /// Host, whose first free vPPB is used, or a vPPB as SWITCH/VCS/VPPB, such as s0/0/1
    #[arg(requires = "to", value_name = "HOST|BRIDGE")]
    bridge: Option<String>,
    /// For a host: a device, such as ep1, mld0.2 or s1.3. For a vPPB: port:N, port:N.LD, or SWITCH/VCS/VPPB of another
    /// switch
    #[arg(value_name = "DEVICE|TO")]
    to: Option<String>,
}

impl Query for BindArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(match (&self.bridge, &self.to) {
            (Some(bridge), Some(to)) => Request::Bind { bridge: bridge.clone(), to: to.clone() },
            _ => Request::Bindings,
        })
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Bindings(rows) = response else { return None };
        Some(table(
            ["bridge", "shows", "kind"],
            rows.iter().map(|row| [row.bridge.clone(), row.to.clone(), row.kind.clone()]),
        ))
    }
}

/// Arguments of `weft fm unbind`.
#[derive(Args, Debug)]
pub struct UnbindArgs {
    /// vPPB as SWITCH/VCS/VPPB
    bridge: String,
}

impl Query for UnbindArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::Unbind { bridge: self.bridge.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let (bridge, to) = ("s0/0/1".to_owned(), "port:40".to_owned());
        let by_name = Request::Bind { bridge: "h0".to_owned(), to: "ep1".to_owned() };
        assert_requests([
            ("bind", Request::Bindings),
            ("bind s0/0/1 port:40", Request::Bind { bridge: bridge.clone(), to }),
            ("bind h0 ep1", by_name),
            ("unbind s0/0/1", Request::Unbind { bridge }),
        ]);
        assert_refused([("bind s0/0/1", "required")]);
    }
}
