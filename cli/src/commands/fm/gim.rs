//! `weft fm gim`: memory that hosts and devices export to each other.
//!
//! Source: `docs/fm.md`.

use clap::{Args, Subcommand};
use weft_fm::service::request::GimRow;
use weft_fm::service::{Request, Response};
use weft_fm::state::desired::DesiredGim;

use super::Query;
use super::text::{named, table};
use crate::error::CliError;

/// Arguments of `weft fm gim`.
#[derive(Args, Debug)]
pub struct GimArgs {
    #[command(subcommand)]
    command: Option<GimCommand>,
}

#[derive(Debug, Subcommand)]
enum GimCommand {
    /// Give hosts and devices access to memory of another host or device (GIM)
    Add(DesiredGim),
    /// Revoke a GIM from all hosts and devices
    Release {
        /// Name of the GIM
        name: String,
    },
}

impl GimCommand {
    fn request(&self) -> Request {
        match self {
            Self::Add(wanted) => Request::ShowGim(wanted.clone()),
            Self::Release { name } => Request::Release { name: name.clone() },
        }
    }
}

impl Query for GimArgs {
    fn request(&self) -> Result<Request, CliError> {
        Ok(self.command.as_ref().map_or(Request::Gim, GimCommand::request))
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Gim(rows) = response else { return None };
        Some(of_grants(rows))
    }
}

fn of_grants(rows: &[GimRow]) -> String {
    let cells = rows.iter().map(|row| {
        let from = row.from.iter().map(named).collect::<Vec<_>>().join("\n");
        let by = if row.prefix { "\nby prefix" } else { "" };
        let hpa = format!("{:#x}", row.hpa);
        let size = (row.size >> 10).to_string();
        [row.name.clone(), hpa, size, named(&row.of), from + by]
    });
    table(["name", "hpa", "KiB", "of", "from"], cells)
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_requests;
    use super::*;

    #[test]
    fn words_become_requests() {
        let text = str::to_owned;
        let show = Request::ShowGim(DesiredGim {
            name: text("a"),
            of: text("h0"),
            from: vec![text("h1"), text("00a")],
            prefix: true,
            size: 16 << 20,
            hpa: 4_096,
        });
        assert_requests([
            ("gim", Request::Gim),
            ("gim add a --of h0 --from h1 --from 00a --prefix --size 16MiB --hpa 4096", show),
            ("gim release a", Request::Release { name: text("a") }),
        ]);
    }
}
