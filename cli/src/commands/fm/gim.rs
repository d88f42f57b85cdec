//! `weft fm gim`: memory that hosts and devices export to each other.
//!
//! Source: `docs/fm.md`.

use clap::{Args, Subcommand};
use weft_fm::model::text::{parse_address, parse_size};
use weft_fm::service::request::GimRow;
use weft_fm::service::{Request, Response};

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
    Add {
        /// Name of the GIM
        name: String,
        /// Owner of the memory: a host, a device, SWITCH/port:N or a PID
        #[arg(long)]
        of: String,
        /// Host or device that may access the memory; may be given several times
        #[arg(long, required = true)]
        from: Vec<String>,
        /// Have requesters name the target themselves (`VendPrefixL0`); by default, FAST decodes the address
        #[arg(long)]
        prefix: bool,
        /// Size of the memory, such as 16MiB
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Host physical address at which all of them access the memory
        #[arg(long, value_parser = parse_address)]
        hpa: u64,
    },
    /// Revoke a GIM from all hosts and devices
    Release {
        /// Name of the GIM
        name: String,
    },
}

impl GimCommand {
    fn request(&self) -> Request {
        match self {
            Self::Add { name, of, from, prefix, size, hpa } => Request::ShowGim {
                name: name.clone(),
                of: of.clone(),
                from: from.clone(),
                prefix: *prefix,
                size: *size,
                hpa: *hpa,
            },
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
        let show = Request::ShowGim {
            name: text("a"),
            of: text("h0"),
            from: vec![text("h1"), text("00a")],
            prefix: true,
            size: 16 << 20,
            hpa: 4_096,
        };
        assert_requests([
            ("gim", Request::Gim),
            ("gim add a --of h0 --from h1 --from 00a --prefix --size 16MiB --hpa 4096", show),
            ("gim release a", Request::Release { name: text("a") }),
        ]);
    }
}
