//! `weft fm p2p`: memory devices that accelerators access directly, by UIO (direct P2P to HDM).
//!
//! Source: `docs/fm.md`; CXL 3.1 section 7.7.9.

use clap::{Args, Subcommand};
use weft_fm::service::request::{P2pRow, P2pState};
use weft_fm::service::{Request, Response};
use weft_fm::state::desired::DesiredP2p;

use super::Query;
use super::text::{named, table};
use crate::error::CliError;

/// Arguments of `weft fm p2p`.
#[derive(Args, Debug)]
pub struct P2pArgs {
    #[command(subcommand)]
    command: Option<P2pCommand>,
}

#[derive(Debug, Subcommand)]
enum P2pCommand {
    /// List all P2P accesses
    List,
    /// Give devices direct access to a memory device
    Add(DesiredP2p),
    /// Revoke a P2P access from all devices
    Remove {
        /// Name of the P2P access
        name: String,
    },
}

impl P2pCommand {
    fn request(&self) -> Request {
        match self {
            Self::List => Request::P2p,
            Self::Add(wanted) => Request::AddP2p(wanted.clone()),
            Self::Remove { name } => Request::Release { name: name.clone() },
        }
    }
}

impl Query for P2pArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(self.command.as_ref().map_or(Request::P2p, P2pCommand::request))
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::P2p(rows) = response else { return None };
        Some(of_rows(rows))
    }
}

fn of_rows(rows: &[P2pRow]) -> String {
    let cells = rows.iter().map(|row| {
        let from = row.from.iter().map(named).collect::<Vec<_>>().join("\n");
        let state = match row.state {
            P2pState::Given => "given",
            P2pState::Waits => "waits",
            P2pState::Refused => "refused",
        };
        let state = row.why.as_ref().map_or_else(|| state.into(), |why| format!("{state}: {why}"));
        let hpa = format!("{:#x}", row.hpa);
        let size = (row.size >> 10).to_string();
        [row.name.clone(), hpa, size, from, named(&row.to), state]
    });
    table(["name", "hpa", "KiB", "from", "to", "state"], cells)
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_requests;
    use super::*;
    use weft_fm::service::request::NamedPid;

    #[test]
    fn words_become_requests() {
        let text = str::to_owned;
        let add = Request::AddP2p(DesiredP2p {
            name: text("a"),
            from: vec![text("acc0"), text("00a")],
            to: text("mem0"),
            size: 16 << 20,
            hpa: 1 << 40,
        });
        assert_requests([
            ("p2p", Request::P2p),
            ("p2p list", Request::P2p),
            ("p2p add a --from acc0 --from 00a --to mem0 --size 16MiB --hpa 0x10000000000", add),
            ("p2p remove a", Request::Release { name: text("a") }),
        ]);
    }

    #[test]
    fn what_waits_says_for_what() {
        let who = |name: &str, pid| NamedPid { name: name.to_owned(), pid };
        let row = P2pRow {
            name: "direct".to_owned(),
            to: who("mem0", 0x12),
            from: vec![who("acc0", 0x10)],
            hpa: 1 << 40,
            size: 16 << 20,
            state: P2pState::Waits,
            why: Some("p2p-same-domain: h1 has set no secret".to_owned()),
        };
        let text = of_rows(&[row]);
        assert!(
            text.contains("waits: p2p-same-domain: h1") && text.contains("mem0 (012)"),
            "{text}"
        );
    }
}
