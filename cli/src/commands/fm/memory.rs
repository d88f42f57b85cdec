//! `weft fm memory`: memory of GFDs, and the hosts that share it.
//!
//! Source: `docs/fm.md`.

use clap::{Args, Subcommand};
use weft_fm::components::media::short;
use weft_fm::service::request::{DmpRow, ShareRow};
use weft_fm::service::{Request, Response};
use weft_fm::state::desired::DesiredMemory;

use super::Query;
use super::text::{pid, pids, table};
use crate::error::CliError;

/// Arguments of `weft fm memory`.
#[derive(Args, Debug)]
pub struct MemoryArgs {
    #[command(subcommand)]
    command: Option<MemoryCommand>,
}

#[derive(Debug, Subcommand)]
enum MemoryCommand {
    /// Give hosts shared access to memory of GFDs
    Add(DesiredMemory),
    /// Show the media partitions (DMPs) of GFDs
    Partitions,
    /// Revoke memory from all hosts, and free its capacity on the GFDs
    Release {
        /// Name of the memory
        name: String,
    },
}

impl MemoryCommand {
    fn request(&self) -> Result<Request, CliError> {
        Ok(match self {
            Self::Add(wanted) if wanted.gfds.is_empty() && wanted.ways.is_none() => {
                let which = "expected --gfd NAME, once for each way and in their order, or --ways N for the N that \
                             were found first";
                return Err(CliError::Usage(which.to_owned()));
            }
            Self::Add(wanted) => Request::Share(wanted.clone()),
            Self::Partitions => Request::Partitions,
            Self::Release { name } => Request::Release { name: name.clone() },
        })
    }
}

impl Query for MemoryArgs {
    fn request(&self) -> Result<Request, CliError> {
        self.command.as_ref().map_or(Ok(Request::Memory), MemoryCommand::request)
    }

    fn text(&self, response: &Response) -> Option<String> {
        match response {
            Response::Memory(rows) => Some(of_shares(rows)),
            Response::Partitions(rows) => Some(of_partitions(rows)),
            _ => None,
        }
    }
}

fn of_shares(rows: &[ShareRow]) -> String {
    let cells = rows.iter().map(|row| {
        let parts = row.parts.iter().enumerate().map(|(way, part)| {
            let (gfd, group, decoder) = (pid(part.gfd), part.group, part.decoder);
            let media = part.media.map_or_else(|| "-".to_owned(), |media| media.to_string());
            format!("{way}: {gfd} {group} {decoder} {:#x} {media}", part.dpa)
        });
        let parts = parts.collect::<Vec<_>>().join("\n");
        let hpa = format!("{:#x}", row.hpa);
        let notify = if row.notify { "yes" } else { "-" }.to_owned();
        [row.name.clone(), hpa, (row.size >> 20).to_string(), pids(&row.hosts), notify, parts]
    });
    table(["name", "hpa", "MiB", "hosts", "notify", "way: GFD, group, decoder, DPA, media"], cells)
}

fn of_partitions(rows: &[DmpRow]) -> String {
    let mib = |bytes: u64| (bytes >> 20).to_string();
    let cells = rows.iter().map(|row| {
        let dmp = &row.dmp;
        let (number, media) = (dmp.index.to_string(), dmp.media.to_string());
        let dpa = format!("{:#x}", dmp.dpa);
        [pid(row.gfd), number, media, dpa, mib(dmp.size), short(dmp.block), mib(row.used)]
    });
    table(["GFD", "DMP", "media", "DPA", "MiB", "block", "used MiB"], cells)
}

#[cfg(test)]
mod tests {
    use weft_fm::components::media::Media;

    use super::super::tests::{assert_refused, assert_requests};
    use super::*;

    #[test]
    fn words_become_requests() {
        let text = str::to_owned;
        let share = |gfds: Vec<String>, ways, media| {
            Request::Share(DesiredMemory {
                name: text("pool"),
                hosts: vec![text("h0"), text("h1")],
                gfds,
                ways,
                size: 4 << 30,
                granularity: 256,
                hpa: 1 << 40,
                media,
                notify: false,
            })
        };
        #[rustfmt::skip] // columns: words, request
        assert_requests([
            ("memory", Request::Memory),
            ("memory --json", Request::Memory),
            ("memory add pool --host h0 --host h1 --ways 4 --size 4GiB --granularity 256 --hpa 0x10000000000", share(vec![], Some(4), None)),
            ("memory add pool --host h0 --host h1 --ways 4 --size 4GiB --granularity 256 --hpa 0x10000000000 --media pm", share(vec![], Some(4), Some(Media::Pm))),
            ("memory partitions", Request::Partitions),
            ("memory add pool --host h0 --host h1 --gfd a --gfd b --size 4GiB --granularity 256 --hpa 0x10000000000", share(vec![text("a"), text("b")], None, None)),
            ("memory release pool", Request::Release { name: text("pool") }),
        ]);
    }

    #[test]
    fn wrong_words_are_refused() {
        #[rustfmt::skip] // columns: words, part of the error
        assert_refused([
            ("memory add pool --ways 4 --size 4GiB --hpa 0", "--host"),
            ("memory add pool --host h0 --size 4GiB --hpa 0", "expected --gfd NAME, once for each way"),
            ("memory add pool --host h0 --ways 4 --size 4gb --hpa 0", "expected bytes"),
            ("memory add pool --host h0 --ways 4 --size 4GiB --hpa 0 --media nand", "expected dram or pm"),
            ("memory add pool --host h0 --ways 4 --size 1 --hpa 0 --granularity 8GiB", "16 KiB"),
        ]);
    }
}
