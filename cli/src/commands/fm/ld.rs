//! `weft fm ld`: logical devices and their shares of a device's memory and bandwidth.
//!
//! Shares of the bandwidth are in 256ths.
//!
//! Source: `docs/fm.md`; CXL 3.1 section 7.6.7.4.

use clap::{Args, Subcommand};
use weft_fm::service::request::{CapacityChange, CapacityRow, LdChange, LdRow};
use weft_fm::service::{Request, Response};
use weft_fm::text::{parse_address, parse_size};

use super::Query;
use super::text::table;
use crate::error::CliError;

/// Arguments of `weft fm ld`.
#[derive(Args, Debug)]
pub struct LdArgs {
    #[command(subcommand)]
    command: Option<LdCommand>,
}

/// What to do with logical devices.
#[derive(Debug, Subcommand)]
enum LdCommand {
    /// Show all, with their memory, bandwidth and the vPPB that shows each
    List,
    /// Give one memory, a multiple of 256 MiB; nobody finds again what is taken from it
    Allocate {
        #[command(flatten)]
        which: Which,
        /// Size, such as 512MiB
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Dynamic capacity: show who has which, add it to one, release it
    #[command(subcommand)]
    Capacity(CapacityCommand),
    /// Set what one has of the bandwidth when all want more, in 256ths
    Qos {
        #[command(flatten)]
        which: Which,
        /// 0 to 255; 0 for what others leave
        fraction: u8,
    },
    /// Set what one has of the bandwidth at most, in 256ths
    Limit {
        #[command(flatten)]
        which: Which,
        /// 0 to 255; 0 for no limit
        fraction: u8,
    },
}

/// What to do with dynamic capacity.
#[derive(Debug, Subcommand)]
enum CapacityCommand {
    /// Show what there is of each device, what is nobody's, and which logical device has which
    List,
    /// Add some to one: its host reaches it at once
    Add {
        #[command(flatten)]
        which: Which,
        /// Size, such as 64MiB
        #[arg(value_parser = parse_size)]
        size: u64,
        /// What it is called, up to 16 bytes
        #[arg(long)]
        tag: Option<String>,
        /// Where in the logical device, in bytes; anywhere without it
        #[arg(long, value_parser = parse_address)]
        at: Option<u64>,
        /// All of it beside each other
        #[arg(long, conflicts_with = "at")]
        contiguous: bool,
    },
    /// Release some of one: it is refused to its host from then on, and nobody finds again what was in it
    Release {
        #[command(flatten)]
        which: Which,
        /// Size, such as 64MiB; all of the tag without it
        #[arg(value_parser = parse_size)]
        size: Option<u64>,
        /// What it is called; what has no tag without it
        #[arg(long, conflicts_with = "at")]
        tag: Option<String>,
        /// Where in the logical device, in bytes
        #[arg(long, value_parser = parse_address, requires = "size")]
        at: Option<u64>,
        /// Also while its host has its memory on
        #[arg(long)]
        force: bool,
    },
    /// Give one what another one has, or nobody and it is kept: the same bytes
    Share {
        #[command(flatten)]
        which: Which,
        /// What it is called
        tag: String,
    },
    /// Keep the content of what one has for whoever shares it later, also while nobody has it
    Keep {
        #[command(flatten)]
        which: Which,
        /// What it is called
        tag: String,
    },
    /// Deal it out in blocks of another size, while nobody has any of it
    Block {
        /// Its device: the name, s0.3, or SWITCH/port:N
        device: String,
        /// Bytes of a block, such as 64KiB
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// End that: what nobody has is lost; the logical device is any of the device
    Forget {
        #[command(flatten)]
        which: Which,
        /// What it is called
        tag: String,
    },
}

impl CapacityCommand {
    fn request(&self) -> Request {
        let (which, change) = match self {
            Self::List => return Request::LdCapacity,
            Self::Block { device, size } => {
                // The block size belongs to the device; the request needs an LD all the same, and any will do.
                let change = CapacityChange::Block { size: *size };
                return Request::SetLdCapacity { device: device.clone(), ld: 0, change };
            }
            Self::Add { which, size, tag, at, contiguous } => {
                let (size, at, contiguous) = (*size, *at, *contiguous);
                (which, CapacityChange::Add { size, tag: tag.clone(), at, contiguous })
            }
            Self::Release { which, size, tag, at, force } => {
                let (size, at, force) = (*size, *at, *force);
                (which, CapacityChange::Release { size, tag: tag.clone(), at, force })
            }
            Self::Share { which, tag } => (which, CapacityChange::Share { tag: tag.clone() }),
            Self::Keep { which, tag } => (which, CapacityChange::Keep { tag: tag.clone() }),
            Self::Forget { which, tag } => (which, CapacityChange::Forget { tag: tag.clone() }),
        };
        Request::SetLdCapacity { device: which.device.clone(), ld: which.ld, change }
    }
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
    fn request(&self) -> Result<Request, CliError> {
        Ok(match &self.command {
            None | Some(LdCommand::List) => Request::Lds,
            Some(LdCommand::Capacity(command)) => command.request(),
            Some(LdCommand::Allocate { which, size }) => which.change(LdChange::Memory(*size)),
            Some(LdCommand::Qos { which, fraction }) => {
                which.change(LdChange::Bandwidth(*fraction))
            }
            Some(LdCommand::Limit { which, fraction }) => which.change(LdChange::Limit(*fraction)),
        })
    }

    fn text(&self, response: &Response) -> Option<String> {
        let rows = match response {
            Response::Lds(rows) => rows,
            Response::LdCapacity(rows) => return Some(capacity_text(rows)),
            _ => return None,
        };
        // `None` where the device does not say.
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

/// Formats dynamic capacity: a line for each device, then a table of extents with their logical devices.
fn capacity_text(rows: &[CapacityRow]) -> String {
    if rows.is_empty() {
        return "no device has dynamic capacity\n".to_owned();
    }
    let line = |row: &CapacityRow| {
        let [free, size, block] = [row.free >> 20, row.size >> 20, row.block >> 10];
        let (device, base) = (&row.device, row.base);
        format!(
            "{device}: {free} MiB of {size} MiB are nobody's, from {base:#x} on, in blocks of {block} KiB{}\n",
            if row.kept.is_empty() {
                String::new()
            } else {
                format!("; kept: {}", row.kept.join(", "))
            }
        )
    };
    let lines: String = rows.iter().map(line).collect();
    let cells = rows.iter().flat_map(|row| {
        row.extents.iter().map(|extent| {
            let (start, kib) = (format!("{:#x}", extent.start), (extent.len >> 10).to_string());
            let tag = extent.tag.clone().unwrap_or_else(|| "-".to_owned());
            [row.device.clone(), extent.ld.to_string(), start, kib, tag]
        })
    });
    lines + &table(["device", "LD", "start", "KiB", "tag"], cells)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let set = |change| Request::SetLd { device: "mld0".to_owned(), ld: 2, change };
        let of = |change| Request::SetLdCapacity { device: "mld0".to_owned(), ld: 2, change };
        let add = |tag: Option<&str>, at, contiguous| {
            of(CapacityChange::Add { size: 64 << 20, tag: tag.map(str::to_owned), at, contiguous })
        };
        let release = |size, tag: Option<&str>, at, force| {
            of(CapacityChange::Release { size, tag: tag.map(str::to_owned), at, force })
        };
        assert_requests([
            ("ld", Request::Lds),
            ("ld list", Request::Lds),
            ("ld allocate mld0 2 512MiB", set(LdChange::Memory(512 << 20))),
            ("ld qos mld0 2 64", set(LdChange::Bandwidth(64))),
            ("ld limit mld0 2 0", set(LdChange::Limit(0))),
            ("ld capacity list", Request::LdCapacity),
            ("ld capacity add mld0 2 64MiB", add(None, None, false)),
            ("ld capacity add mld0 2 64MiB --tag db --contiguous", add(Some("db"), None, true)),
            ("ld capacity add mld0 2 64MiB --at 0x20000000", add(None, Some(1 << 29), false)),
            ("ld capacity release mld0 2", release(None, None, None, false)),
            ("ld capacity release mld0 2 --tag db --force", release(None, Some("db"), None, true)),
            (
                "ld capacity release mld0 2 2MiB --at 4096",
                release(Some(2 << 20), None, Some(4096), false),
            ),
            ("ld capacity share mld0 2 db", of(CapacityChange::Share { tag: "db".to_owned() })),
            ("ld capacity keep mld0 2 db", of(CapacityChange::Keep { tag: "db".to_owned() })),
            (
                "ld capacity block mld0 64KiB",
                Request::SetLdCapacity {
                    device: "mld0".to_owned(),
                    ld: 0,
                    change: CapacityChange::Block { size: 64 << 10 },
                },
            ),
            ("ld capacity forget mld0 2 db", of(CapacityChange::Forget { tag: "db".to_owned() })),
        ]);
        assert_refused([
            ("ld allocate mld0 2", "SIZE"),
            ("ld limit mld0 2 256", "256"),
            ("ld qos mld0 two 1", "invalid"),
            ("ld capacity", "add"),
            ("ld capacity add mld0 2", "SIZE"),
            ("ld capacity block mld0", "SIZE"),
            ("ld capacity share mld0 2", "TAG"),
            ("ld capacity add mld0 2 much", "expected bytes"),
            ("ld capacity add mld0 2 2MiB --at 0 --contiguous", "cannot be used with"),
            ("ld capacity release mld0 2 --at 0", "SIZE"),
            ("ld capacity release mld0 2 2MiB --at 0 --tag db", "cannot be used with"),
        ]);
    }
}
