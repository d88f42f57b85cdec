//! `weft fm access`: shows or changes the PIDs that a host's edge lets it reach.
//!
//! Source: `docs/fm.md`.

use clap::Args;
use weft_fm::service::request::Access;
use weft_fm::service::{Request, Response, Vector};

use super::Query;
use super::text::{pid, pids};
use crate::error::CliError;

/// Arguments of `weft fm access`.
#[derive(Args, Debug)]
pub struct AccessArgs {
    /// Host, by name
    host: String,
    /// Allow the host to access this PID
    #[arg(long, value_name = "PID", conflicts_with = "forbid")]
    allow: Option<String>,
    /// Forbid the host to access this PID
    #[arg(long, value_name = "PID")]
    forbid: Option<String>,
    /// Access vector to change
    #[arg(long, default_value = "gmv")]
    vector: Vector,
}

impl Query for AccessArgs {
    fn request(&self) -> Result<Request, CliError> {
        let host = self.host.clone();
        let (pid, on) = match (&self.allow, &self.forbid) {
            (Some(pid), _) => (pid.clone(), true),
            (None, Some(pid)) => (pid.clone(), false),
            (None, None) => return Ok(Request::Access { host }),
        };
        Ok(Request::SetAccess { host, vector: self.vector, pid, on })
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Access(access) = response else { return None };
        Some(of_access(access))
    }
}

fn of_access(access: &Access) -> String {
    let list = [("GMV", &access.gmv), ("VTV", &access.vtv), ("LAV", &access.lav)];
    list.iter().fold(format!("host {}\n", pid(access.host)), |text, (name, list)| {
        text + &format!("{name}: {}\n", pids(list))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let host = || "h0".to_owned();
        let (vector, pid) = (Vector::Vtv, || "00a".to_owned());
        let set = |on| Request::SetAccess { host: host(), vector, pid: pid(), on };
        assert_requests([
            ("access h0", Request::Access { host: host() }),
            ("access h0 --allow 00a --vector vtv", set(true)),
            ("access h0 --forbid 00a --vector vtv", set(false)),
        ]);
        assert_refused([("access h0 --allow 001 --forbid 002", "cannot be used with")]);
    }
}
