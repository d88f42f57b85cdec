//! `weft fm status`: the fabric manager's phase and counts.
//!
//! With `--wait` the request is repeated until the fabric is up.
//!
//! Source: `docs/fm.md`.

use std::fmt::Write;

use clap::Args;
use weft_fm::service::request::Status;
use weft_fm::service::status::Phase;
use weft_fm::service::{Request, Response};

use super::Query;
use super::text::pid;
use crate::error::CliError;

/// Arguments of `weft fm status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Wait until the fabric is up; fail if it cannot be brought up
    #[arg(long)]
    wait: bool,
}

impl Query for StatusArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::Status)
    }

    fn is_final(&self, response: &Response) -> Result<bool, CliError> {
        if !self.wait {
            return Ok(true);
        }
        let Response::Status(status) = response else {
            return Err(CliError::Switch("expected a status, found another answer".to_owned()));
        };
        match status.phase {
            // A standby has no fabric to bring up: the leader does that.
            Phase::Up | Phase::Standby => Ok(true),
            Phase::Failed => {
                let why = status.failed.clone().unwrap_or_default();
                Err(CliError::Difference(format!("the fabric is not up: {why}")))
            }
            Phase::Starting => Ok(false),
        }
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Status(status) = response else { return None };
        Some(of_status(status))
    }
}

fn of_status(status: &Status) -> String {
    let phase = match status.phase {
        Phase::Starting => "starting",
        Phase::Up => "up",
        Phase::Standby => "standing by",
        Phase::Failed => "failed",
    };
    let counts = &status.counts;
    let mut text = format!("{phase}: {}\n", status.step);
    let hosts = if status.hosts_held { "held" } else { "need not wait" };
    let _ = writeln!(text, "hosts {hosts}; manager {} PID {}", status.manager, pid(status.pid));
    let _ = writeln!(
        text,
        "{} switches ({} silent), {} GFDs, {} hosts, {} links ({} down), {} bindings, {} shares of memory",
        counts.switches,
        counts.silent,
        counts.gfds,
        counts.hosts,
        counts.links,
        counts.down,
        counts.bindings,
        counts.shares
    );
    if let Some(ha) = &status.ha {
        let leader = ha.leader.as_deref().unwrap_or("nobody");
        let _ = writeln!(
            text,
            "this is {}; {leader} leads; last term of this one {}",
            ha.name, ha.term
        );
        for line in ha.store_error.iter().chain(&ha.note) {
            let _ = writeln!(text, "shared state: {line}");
        }
    }
    let _ = writeln!(text, "{} commands, {} events", status.calls, status.events);
    if let Some(why) = &status.failed {
        let _ = writeln!(text, "failed: {why}");
    }
    for line in &status.errors {
        let _ = writeln!(text, "error: {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_requests;
    use super::*;

    #[test]
    fn words_become_requests() {
        assert_requests([("status", Request::Status), ("status --wait", Request::Status)]);
    }
}
