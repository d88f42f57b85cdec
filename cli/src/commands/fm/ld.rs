//! `weft fm ld`: logical devices and their shares of a device's memory and bandwidth.
//!
//! Shares of the bandwidth are in 256ths.
//!
//! Source: `docs/fm.md`; CXL 3.1 section 7.6.7.4.

use clap::{Args, Subcommand};
use weft_fm::model::text::{parse_address, parse_size};
use weft_fm::service::request::{CapacityChange, CapacityRow, LdChange, LdRow};
use weft_fm::service::{Request, Response};

use super::Query;
use super::text::table;
use crate::error::CliError;

/// Arguments of `weft fm ld`.
#[derive(Args, Debug)]
pub struct LdArgs {
    #[command(subcommand)]
    command: Option<LdCommand>,
}

#[derive(Debug, Subcommand)]
enum LdCommand {
    /// List all logical devices with memory, bandwidth and the vPPB that each is bound to
    List,
    /// Set the memory size of a logical device, a multiple of 256 MiB; memory taken away loses its contents
    Allocate {
        #[command(flatten)]
        which: Which,
        /// New size, such as 512MiB
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Show dynamic capacity, add it to a logical device, release or share it
    #[command(subcommand)]
    Capacity(CapacityCommand),
    /// Set a logical device's share of the bandwidth under contention, in 256ths
    Qos {
        #[command(flatten)]
        which: Which,
        /// Share, 0 to 255 (256ths); 0: only bandwidth that others leave unused
        fraction: u8,
    },
    /// Limit the bandwidth of a logical device, in 256ths
    Limit {
        #[command(flatten)]
        which: Which,
        /// Limit, 0 to 255 (256ths); 0: no limit
        fraction: u8,
    },
}

#[derive(Debug, Subcommand)]
enum CapacityCommand {
    /// Show each device's dynamic capacity, its unallocated part, and the extents of each logical device
    List,
    /// Add dynamic capacity to a logical device; its host can access it at once
    Add {
        #[command(flatten)]
        which: Which,
        /// Size to add, such as 64MiB
        #[arg(value_parser = parse_size)]
        size: u64,
        /// Tag of the added capacity, up to 16 bytes
        #[arg(long)]
        tag: Option<String>,
        /// Offset in the logical device, in bytes; by default any free place
        #[arg(long, value_parser = parse_address)]
        at: Option<u64>,
        /// Add it as one contiguous extent
        #[arg(long, conflicts_with = "at")]
        contiguous: bool,
    },
    /// Release dynamic capacity of a logical device; its host is refused access from then on, and the contents are lost
    /// unless they are shared or kept
    Release {
        #[command(flatten)]
        which: Which,
        /// Size to release, such as 64MiB; by default all of the tag
        #[arg(value_parser = parse_size)]
        size: Option<u64>,
        /// Tag of the capacity to release; by default capacity without a tag
        #[arg(long, conflicts_with = "at")]
        tag: Option<String>,
        /// Offset in the logical device, in bytes
        #[arg(long, value_parser = parse_address, requires = "size")]
        at: Option<u64>,
        /// Release it even while the host has the device's memory enabled
        #[arg(long)]
        force: bool,
    },
    /// Give a logical device the same bytes that another one holds under a tag, or that the device keeps
    Share {
        #[command(flatten)]
        which: Which,
        /// Tag of the capacity to share
        tag: String,
    },
    /// Keep a tag's contents for later sharing, even while no logical device holds them
    Keep {
        #[command(flatten)]
        which: Which,
        /// Tag to keep
        tag: String,
    },
    /// Set the block size of dynamic capacity; possible only while no logical device holds any
    Block {
        /// Device: its name, s0.3, or SWITCH/port:N
        device: String,
        /// Block size, such as 64KiB, one that the device supports
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Stop keeping a tag's contents. Data that no logical device holds is erased. LD may be any logical device of
    /// DEVICE
    Forget {
        #[command(flatten)]
        which: Which,
        /// Tag to stop keeping
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

/// A logical device.
#[derive(Args, Debug)]
struct Which {
    /// Device: its name, s0.3, or SWITCH/port:N
    device: String,
    /// Number of the logical device
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
