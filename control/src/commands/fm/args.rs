//! Arguments of `weft fm`.
//!
//! Shape: [`FmCommand`], a variant for each subcommand; [`AskArgs`] are those of all that ask a fabric manager.
//! Units: bytes.
//! Source: docs/fm.md.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use weft_fm::service::Vector;
use weft_fm::text::{parse_address, parse_size};

use super::super::opcode;
use super::serve;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum FmCommand {
    /// Be the fabric manager until SIGINT or SIGTERM
    Serve(serve::ServeArgs),
    /// How far the fabric manager is: also while start-up runs
    Status {
        /// Wait until the fabric is up; fail if it cannot be brought up
        #[arg(long)]
        wait: bool,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Find all components again, and bring about what is wanted
    Discover {
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// As the second fabric manager: become the primary one
    TakeOver {
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show switches, links and what hangs on them
    Topology {
        /// For Graphviz
        #[arg(long, conflicts_with_all = ["svg", "json"])]
        dot: bool,
        /// As a picture
        #[arg(long, conflicts_with = "json")]
        svg: bool,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show what is bound, or show a device or a virtual switch elsewhere at a bridge
    Bind {
        /// SWITCH/VCS/VPPB, such as s0/0/1
        #[arg(requires = "to")]
        bridge: Option<String>,
        /// port:N, port:N.LD, or SWITCH/VCS/VPPB of another switch
        to: Option<String>,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Take away what a bridge shows
    Unbind {
        /// SWITCH/VCS/VPPB
        bridge: String,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show the routes, or check the proof that they hold and print it
    Routes {
        /// Check the proof again, and print the order of channels
        #[arg(long)]
        prove: bool,
        /// Those of one switch
        #[arg(long, conflicts_with = "prove")]
        switch: Option<String>,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show who has which memory, or give and release it
    #[command(args_conflicts_with_subcommands = true)]
    Memory {
        /// What to do.
        #[command(subcommand)]
        command: Option<MemoryCommand>,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show who shows whom which memory (GIM), or show some
    #[command(args_conflicts_with_subcommands = true)]
    Gim {
        /// What to do.
        #[command(subcommand)]
        command: Option<GimCommand>,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Take memory from one host, or GIM from one host or device, while others keep it
    Revoke {
        /// Name of the memory
        name: String,
        /// The host; of GIM also a device
        host: String,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Give memory that is there to one host more
    Grant {
        /// Name of the memory
        name: String,
        /// The host
        host: String,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show or change what a host's edge lets through
    Access {
        /// The host
        host: String,
        /// A PID that it may reach
        #[arg(long, value_name = "PID", conflicts_with = "forbid")]
        allow: Option<String>,
        /// A PID that it may not reach any more
        #[arg(long, value_name = "PID")]
        forbid: Option<String>,
        /// In which vector
        #[arg(long, default_value = "gmv")]
        vector: Vector,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show what paths cost, or the CDAT of a component
    Cdat {
        /// Read the CDAT of this PID
        #[arg(long, value_name = "PID")]
        read: Option<String>,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show PIDs, or give a target another one
    Pid {
        /// SWITCH/TARGET or SWITCH/TARGET/INSTANCE, as the list shows them
        #[arg(long, value_name = "TARGET")]
        assign: Option<String>,
        /// Which PID; a free one otherwise
        #[arg(long, value_name = "PID", requires = "assign")]
        to: Option<String>,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Explain every lookup for one address of one host
    Trace {
        /// The host
        #[arg(long)]
        host: String,
        /// The address
        #[arg(long, value_parser = parse_address)]
        hpa: u64,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show what happened
    Events {
        /// Only after that of this number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Send a command as bytes, and print what comes back
    Cci {
        /// Hexadecimal digits: the whole message, or its payload with --opcode
        hex: String,
        /// Opcode of the payload, in hexadecimal digits, such as 5700
        #[arg(long, value_parser = opcode)]
        opcode: Option<u16>,
        /// To whom: entry, port:N, pid:P, or pid:P/port:N
        #[arg(long, default_value = "entry")]
        to: String,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// What to do with memory.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Give memory to hosts
    Add {
        /// Its name, 1 to 16 bytes
        name: String,
        /// A host; several may share
        #[arg(long, required = true)]
        host: Vec<String>,
        /// A GFD, in the order of the ways: 1, 2, 4, ... 256 of them
        #[arg(long)]
        gfd: Vec<String>,
        /// Instead of --gfd: over how many GFDs, those that were found first
        #[arg(long)]
        ways: Option<u16>,
        /// In all, such as 4GiB
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Bytes of an interleave granule, such as 4KiB
        #[arg(long, value_parser = parse_size, default_value = "4KiB")]
        granularity: u64,
        /// Where all hosts see it
        #[arg(long, value_parser = parse_address)]
        hpa: u64,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Take memory from all hosts, and its capacity from the GFDs
    Release {
        /// Its name
        name: String,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// What to do with memory that hosts and devices show each other.
#[derive(Debug, Subcommand)]
pub enum GimCommand {
    /// Let hosts and devices reach memory of another
    Add {
        /// Its name
        name: String,
        /// Whose memory it is: a host, a device, SWITCH/port:N or a PID
        #[arg(long)]
        of: String,
        /// Who reaches it; several may
        #[arg(long, required = true)]
        from: Vec<String>,
        /// They name the target themselves (`VendPrefixL0`) instead of by FAST
        #[arg(long)]
        prefix: bool,
        /// How much, such as 16MiB
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Where all of them see it
        #[arg(long, value_parser = parse_address)]
        hpa: u64,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Hide it from all
    Release {
        /// Its name
        name: String,
        /// Whom to ask.
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// Whom to ask, and how the answer looks.
#[derive(Args, Clone, Debug, Default)]
pub struct AskArgs {
    /// Management socket of the fabric manager
    #[arg(long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}
