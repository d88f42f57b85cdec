//! `weft fm pid`: lists PIDs and their owners, or assigns one.
//!
//! Source: `docs/fm.md`.

use clap::Args;
use weft_fm::service::{Request, Response};

use super::Query;
use super::text::{pid, table};
use crate::error::CliError;

/// Arguments of `weft fm pid`.
#[derive(Args, Debug)]
pub struct PidArgs {
    /// Assign a PID to this target, SWITCH/TARGET or SWITCH/TARGET/INSTANCE as `weft fm pid` lists it
    #[arg(long, value_name = "TARGET")]
    assign: Option<String>,
    /// PID to assign; by default a free one
    #[arg(long, value_name = "PID", requires = "assign")]
    to: Option<String>,
}

impl Query for PidArgs {
    fn request(&self) -> Result<Request, CliError> {
        match &self.assign {
            None => Ok(Request::Pids),
            Some(target) => assignment(target, self.to.clone()).map_err(CliError::Usage),
        }
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Pids(rows) = response else { return None };
        let cells = rows.iter().map(|row| {
            let target = row.target.map(|(id, instance)| format!("{id}/{instance}"));
            let number = row.pid.map_or_else(|| "-".to_owned(), pid);
            [number, row.at.clone(), row.what.clone(), target.unwrap_or_default()]
        });
        Some(table(["PID", "at", "what", "target"], cells))
    }
}

/// Parses the target of an assignment: SWITCH/TARGET or SWITCH/TARGET/INSTANCE.
fn assignment(text: &str, pid: Option<String>) -> Result<Request, String> {
    let bad = || format!("expected SWITCH/TARGET or SWITCH/TARGET/INSTANCE, found {text:?}");
    let parts: Vec<&str> = text.split('/').collect();
    let (switch, target, instance) = match parts[..] {
        [switch, target] => (switch, target, "0"),
        [switch, target, instance] => (switch, target, instance),
        _ => return Err(bad()),
    };
    let target = target.parse().map_err(|_| bad())?;
    let instance = instance.parse().map_err(|_| bad())?;
    Ok(Request::Assign { switch: switch.to_owned(), target, instance, pid })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let assign = |instance, pid: Option<&str>| Request::Assign {
            switch: "s0".to_owned(),
            target: 3,
            instance,
            pid: pid.map(str::to_owned),
        };
        assert_requests([
            ("pid", Request::Pids),
            ("pid --assign s0/3 --to 0aa", assign(0, Some("0aa"))),
            ("pid --assign s0/3/1", assign(1, None)),
        ]);
        assert_refused([
            ("pid --assign s0", "expected SWITCH/TARGET"),
            ("pid --assign s0/x", "expected SWITCH/TARGET"),
            ("pid --to 001", "--assign"),
        ]);
    }
}
