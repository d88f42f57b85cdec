//! `weft sim new`: writes a scenario file to start from.
//!
//! The file is commented TOML and runs as it is.
//!
//! Source: docs/scenarios.md.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use weft_base::files::{self, Existing};

use crate::commands::write_json;
use crate::error::CliError;

/// The subject of a scenario file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NewKind {
    /// Many hosts send to one
    Incast,
    /// Each host sends to one other host, and receives from one other
    Permutation,
    /// Messages at random times, to randomly chosen hosts
    Uniform,
    /// Each host sends to every other host
    AllToAll,
    /// An all-reduce around a ring of hosts
    RingAllReduce,
    /// One host sends to one other host
    PointToPoint,
    /// Flows from a CSV file, which is written beside the scenario file; needs --out
    Flows,
    /// A topology of named switches, hosts and links
    Graph,
    /// LITE frames, which are never retransmitted, and PFC
    Lite,
    /// A link that corrupts frames, and Go-Back-N retransmission
    Lossy,
    /// A host that sends PAUSE without end, and the PFC watchdog
    Storm,
}

/// Arguments of `weft sim new`.
#[derive(Args, Debug)]
pub struct NewArgs {
    /// Subject of the scenario
    #[arg(value_name = "KIND", value_enum)]
    pub kind: NewKind,
    /// File to write; by default standard output. An existing file is not replaced
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print JSON: the names of the written files, or without --out the text
    #[arg(long)]
    pub json: bool,
}

const SINGLE: &str = "[net]
generate = \"single\" # or direct, leaf-spine, fat-tree, mesh, ring, torus; or name nodes: weft sim new graph
hosts = 8
rate_gbps = 400
link_m = 10
";

const FAT_TREE: &str = "[net]
generate = \"fat-tree\" # of three stages, as many ports as it takes; or single, leaf-spine, mesh, ring, torus
hosts = 16
rate_gbps = 400
link_m = 10
";

const GRAPH: &str = "[net]
rate_gbps = 400 # of links that do not say otherwise
link_m = 10

[[switch]]
name = \"left\"
[[switch]]
name = \"right\"
[[host]]
name = \"a\"
[[host]]
name = \"b\"
[[host]]
name = \"c\"
[[link]]
ends = [\"a\", \"left\"]
[[link]]
ends = [\"b\", \"left\"]
[[link]]
ends = [\"left\", \"right\"]
rate_gbps = 200
link_m = 100
[[link]]
ends = [\"right\", \"c\"]

[switch_defaults] # keys of [switch] that all switches have
fixed_latency_ns = 300
";

const SWITCH: &str = "
[switch] # every key of a switch: weft config defaults
fixed_latency_ns = 300
";

const BUFFER: &str = "
[buffer]
buffer_size_mb = 8 # of each switch; without, 32 MiB to share and headroom on top
dt_alpha = 1

[ecn]
ecn_threshold_low = 50 # % of a queue
ecn_threshold_high = 80

[pfc]
pfc_enabled = true
";

const STANDARD: &str = "
[endpoint] # every key: weft sim keys
pkt_format = \"standard\" # or gen1, gen2; lite is never sent again
payload_bytes = 1344
";

const LITE: &str = "
[endpoint] # every key: weft sim keys
pkt_format = \"lite\" # no ACK, nothing is sent again: PFC has to keep all
";

const FLOWS_CSV: &str = "from,to,bytes,start_us\nh0,h1,64KiB,0\nh2,h1,64KiB,0\nh3,h4,1000000,2.5\n";

/// The `[[workload]]` section of a kind; `csv` is the name of the file of flows.
fn workload(kind: NewKind, csv: &str) -> String {
    let text = match kind {
        NewKind::Incast => {
            "kind = \"incast\"\nto = \"h0\"\n# from = [\"h1\", \"h2\"] # all others without it\nbytes = \"1MiB\" # from each"
        }
        NewKind::Permutation | NewKind::Lossy => {
            "kind = \"permutation\" # as the seed has it\nbytes = \"1MiB\""
        }
        NewKind::Uniform => {
            "kind = \"uniform\"\nbytes = \"16KiB\" # of each message\nload_gbps = 200 # of payload that each host offers\nduration = \"100us\""
        }
        NewKind::AllToAll => {
            "kind = \"all-to-all\"\nbytes = \"128KiB\" # of each pair\none_by_one = true # false: to all at once"
        }
        NewKind::RingAllReduce => {
            "kind = \"ring-all-reduce\"\nbytes = \"1MiB\" # that are reduced; a chunk is an eighth here\n# hosts = [\"h0\", \"h1\"] # the ring in its order; all without it"
        }
        NewKind::PointToPoint | NewKind::Lite => {
            "kind = \"point-to-point\"\nfrom = \"h0\"\nto = \"h1\"\nbytes = \"1MiB\"\ncount = 4 # messages, each when the one before is done"
        }
        NewKind::Flows => {
            return format!(
                "\n[[workload]]\nkind = \"flows\"\nfile = \"{csv}\" # columns: from,to,bytes,start_us\n"
            );
        }
        NewKind::Graph => {
            "kind = \"incast\"\nfrom = [\"a\", \"b\"]\nto = \"c\"\nbytes = \"1MiB\" # from each"
        }
        NewKind::Storm => "kind = \"point-to-point\"\nfrom = \"h1\"\nto = \"h0\"\nbytes = \"1MiB\"",
    };
    format!("\n[[workload]]\n{text}\nstart = \"0s\"\n")
}

const LOSSY: &str = "
[[fault]]
kind = \"bit-error\" # or frame-error, link-down, slow-receiver, pause-storm
link = [\"h0\", \"sw\"]
rate = 1e-6 # chance that a bit is damaged; a frame with one is dropped, and sent again
";

const STORM: &str = "
[[fault]]
kind = \"pause-storm\" # the watchdog drops what is blocked for pfc.watchdog_detect_ms
host = \"h0\"
from = \"5us\"
until = \"2ms\"
";

/// The text of the scenario file.
#[must_use]
pub fn text(kind: NewKind, csv: &str) -> String {
    let net = match kind {
        NewKind::Permutation | NewKind::Uniform => FAT_TREE,
        NewKind::Graph => GRAPH,
        _ => SINGLE,
    };
    let switch = if kind == NewKind::Graph { "" } else { SWITCH };
    let buffer = match kind {
        NewKind::Storm => BUFFER.to_owned() + "watchdog_detect_ms = 1\nwatchdog_restore_ms = 1\n",
        _ => BUFFER.to_owned(),
    };
    let endpoint = if kind == NewKind::Lite { LITE } else { STANDARD };
    let fault = match kind {
        NewKind::Lossy => LOSSY,
        NewKind::Storm => STORM,
        _ => "",
    };
    let moves = workload(kind, csv);
    let title = kind.to_possible_value().map_or_else(String::new, |it| it.get_name().to_owned());
    format!(
        "# Run it with: weft sim run FILE. Every key: docs/scenarios.md, or weft sim keys.
title = \"{title}\"
seed = 1 # of all that is random
until = \"20ms\" # at the latest; it ends before when all is done

{net}{switch}{buffer}{endpoint}{moves}{fault}
# What is expected; weft sim run and weft sim check fail without it.
# [[expect]]
# metric = \"dropped_frames\"
# value = 0
# tolerance = 0 # or \"0.3%\", \"at least\", \"at most\"
# source = \"where the value is from\"
"
    )
}

/// Writes the file.
///
/// # Errors
/// A file that exists already, or cannot be written.
pub fn run(args: &NewArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let Some(path) = &args.out else {
        if args.kind == NewKind::Flows {
            let message = "expected --out FILE: the flows are written beside it";
            return Err(CliError::Usage(message.to_owned()));
        }
        let text = text(args.kind, "");
        if args.json {
            return write_json(out, &json!({ "files": [], "text": text }));
        }
        return out.write_all(text.as_bytes()).map_err(CliError::Output);
    };
    let csv = path.with_extension("csv");
    let name = csv.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut files = vec![path];
    if args.kind == NewKind::Flows {
        write(&csv, FLOWS_CSV)?;
        files.push(&csv);
    }
    write(path, &text(args.kind, &name))?;
    if args.json { write_json(out, &json!({ "files": files })) } else { Ok(()) }
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let write = || files::create(path, Existing::Refuse)?.write_all(text.as_bytes());
    write().map_err(|source| CliError::File { verb: "write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_config::scenario::Source;

    #[test]
    fn each_file_is_a_scenario() {
        let dir = tempfile::tempdir().unwrap();
        for kind in NewKind::value_variants() {
            let path = dir.path().join(format!("{kind:?}.toml"));
            let args = NewArgs { kind: *kind, out: Some(path.clone()), json: false };
            run(&args, &mut Vec::new()).unwrap();
            let loaded = Source::read(&path).unwrap().load();
            assert!(loaded.is_ok(), "{kind:?}: {}", loaded.unwrap_err());
            assert!(run(&args, &mut Vec::new()).is_err(), "{kind:?}: it is there");
        }
        assert!(
            run(&NewArgs { kind: NewKind::Flows, out: None, json: false }, &mut Vec::new())
                .is_err()
        );
    }
}
