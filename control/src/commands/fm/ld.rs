//! `weft fm ld`: logical devices, and what each has of its device's memory and bandwidth.
//!
//! Shape: [`LdArgs`] -> [`Request::Lds`] or [`Request::SetLd`] -> rows.
//! Units: bytes; 256ths of the bandwidth.
//! Source: `docs/fm.md`; CXL 3.1 section 7.6.7.4.

use clap::{Args, Subcommand};
use weft_fm::service::request::{LdChange, LdRow};
use weft_fm::service::{Request, Response};
use weft_fm::text::parse_size;

use super::text::table;
use super::{AskArgs, Query};
use crate::error::CliError;

/// Arguments of `weft fm ld`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LdArgs {
    #[command(subcommand)]
    command: Option<LdCommand>,
    #[command(flatten)]
    ask: AskArgs,
}

/// What to do with logical devices.
#[derive(Debug, Subcommand)]
enum LdCommand {
    /// Show all, with their memory, bandwidth and the vPPB that shows each
    List {
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Give one memory, a multiple of 256 MiB; nobody finds again what is taken from it
    Allocate {
        #[command(flatten)]
        which: Which,
        /// Size, such as 512MiB
        #[arg(value_parser = parse_size)]
        size: u64,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Set what one has of the bandwidth when all want more, in 256ths
    Qos {
        #[command(flatten)]
        which: Which,
        /// 0 to 255; 0 for what others leave
        fraction: u8,
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Set what one has of the bandwidth at most, in 256ths
    Limit {
        #[command(flatten)]
        which: Which,
        /// 0 to 255; 0 for no limit
        fraction: u8,
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// Which logical device.
#[derive(Args, Debug)]
struct Which {
    /// Its device: the name, s0.3, or SWITCH/port:N
    device: String,
    /// Its number
    ld: u8,
}

impl Which {
    fn change(&self, change: LdChange) -> Request {
        Request::SetLd { device: self.device.clone(), ld: self.ld, change }
    }
}

impl Query for LdArgs {
    fn ask(&self) -> &AskArgs {
        match &self.command {
            Some(
                LdCommand::List { ask }
                | LdCommand::Allocate { ask, .. }
                | LdCommand::Qos { ask, .. }
                | LdCommand::Limit { ask, .. },
            ) => ask,
            None => &self.ask,
        }
    }

    fn request(&self) -> Result<Request, CliError> {
        Ok(match &self.command {
            None | Some(LdCommand::List { .. }) => Request::Lds,
            Some(LdCommand::Allocate { which, size, .. }) => which.change(LdChange::Memory(*size)),
            Some(LdCommand::Qos { which, fraction, .. }) => {
                which.change(LdChange::Bandwidth(*fraction))
            }
            Some(LdCommand::Limit { which, fraction, .. }) => {
                which.change(LdChange::Limit(*fraction))
            }
        })
    }

    fn text(&self, response: &Response) -> Option<String> {
        let Response::Lds(rows) = response else { return None };
        let part = |part: Option<u8>| part.map_or_else(|| "-".to_owned(), |it| format!("{it}/256"));
        let limit = |row: &LdRow| match row.limit {
            Some(0) => "none".to_owned(),
            limit => part(limit),
        };
        let cells = rows.iter().map(|row| {
            let bridge = row.bridge.clone().unwrap_or_else(|| "-".to_owned());
            let (ld, mib) = (row.ld.to_string(), (row.memory >> 20).to_string());
            [row.device.clone(), ld, mib, part(row.bandwidth), limit(row), bridge]
        });
        Some(table(["device", "LD", "MiB", "bandwidth", "limit", "bridge"], cells))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let set = |change| Request::SetLd { device: "mld0".to_owned(), ld: 2, change };
        assert_requests([
            ("ld", Request::Lds),
            ("ld list", Request::Lds),
            ("ld allocate mld0 2 512MiB", set(LdChange::Memory(512 << 20))),
            ("ld qos mld0 2 64", set(LdChange::Bandwidth(64))),
            ("ld limit mld0 2 0", set(LdChange::Limit(0))),
        ]);
        assert_refused([
            ("ld allocate mld0 2", "SIZE"),
            ("ld limit mld0 2 256", "256"),
            ("ld qos mld0 two 1", "invalid"),
        ]);
    }
}
