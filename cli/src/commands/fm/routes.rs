//! `weft fm routes`: the switches' routing tables, or the proof that they are free of deadlock.
//!
//! Source: `docs/fm.md`.

use std::fmt::Write;

use clap::Args;
use weft_fm::service::request::Routes;
use weft_fm::service::{Request, Response};

use super::Query;
use super::text::{pid, table};
use crate::error::CliError;

/// Arguments of `weft fm routes`.
#[derive(Args, Debug)]
pub struct RoutesArgs {
    /// Check the proof again, and print the order of channels
    #[arg(long)]
    prove: bool,
    /// Show only the routes of this switch
    #[arg(long, conflicts_with = "prove")]
    switch: Option<String>,
}

impl Query for RoutesArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(Request::Routes { prove: self.prove, switch: self.switch.clone() })
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Routes(routes) = response else { return None };
        Some(of_routes(routes))
    }
}

fn of_routes(routes: &Routes) -> String {
    let mut text = if let Some(proof) = &routes.proof {
        proof.clone()
    } else {
        let rows = routes.rows.iter().map(|row| {
            let ports: Vec<String> = row.ports.iter().map(u8::to_string).collect();
            let group = row.group.map_or(String::new(), |group| group.to_string());
            [row.switch.clone(), pid(row.pid), ports.join(" "), group]
        });
        table(["switch", "PID", "ports", "group"], rows)
    };
    if let Some(partition) = &routes.partition {
        let _ = writeln!(text, "{partition}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_requests;
    use super::*;

    #[test]
    fn words_become_requests() {
        let of_s1 = Request::Routes { prove: false, switch: Some("s1".to_owned()) };
        assert_requests([
            ("routes --prove", Request::Routes { prove: true, switch: None }),
            ("routes --switch s1 --json", of_s1),
        ]);
    }
}
