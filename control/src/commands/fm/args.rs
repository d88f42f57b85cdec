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
    /// Run as the fabric manager until SIGINT or SIGTERM
    Serve(serve::ServeArgs),
    /// Show the state of the fabric manager; also works during start-up
    Status {
        /// Wait until the fabric is up; fail if it cannot be brought up
        #[arg(long)]
        wait: bool,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Discover all components again, and apply the wanted state
    Discover {
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// As the second fabric manager: become the primary one
    TakeOver {
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show switches, links and the hosts and devices attached to them
    Topology {
        /// For Graphviz
        #[arg(long, conflicts_with_all = ["svg", "json"])]
        dot: bool,
        /// As an SVG picture
        #[arg(long, conflicts_with = "json")]
        svg: bool,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show bindings, or bind a device or a virtual switch of another switch to a bridge
    Bind {
        /// SWITCH/VCS/VPPB, such as s0/0/1
        #[arg(requires = "to")]
        bridge: Option<String>,
        /// port:N, port:N.LD, or SWITCH/VCS/VPPB of another switch
        to: Option<String>,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Unbind what is bound to a bridge
    Unbind {
        /// SWITCH/VCS/VPPB
        bridge: String,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show the routes, or check and print the proof that they are free of deadlock
    Routes {
        /// Check the proof again, and print the order of channels
        #[arg(long)]
        prove: bool,
        /// Routes of this switch only
        #[arg(long, conflicts_with = "prove")]
        switch: Option<String>,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show which hosts have which memory, or share and release memory
    #[command(args_conflicts_with_subcommands = true)]
    Memory {
        /// What to do.
        #[command(subcommand)]
        command: Option<MemoryCommand>,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show memory that hosts and devices export to each other (GIM), or export some
    #[command(args_conflicts_with_subcommands = true)]
    Gim {
        /// What to do.
        #[command(subcommand)]
        command: Option<GimCommand>,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Revoke memory from one host, or GIM from one host or device; others keep it
    Revoke {
        /// Name of the memory
        name: String,
        /// The host; for GIM also a device
        host: String,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Give one more host access to memory that is already shared
    Grant {
        /// Name of the memory
        name: String,
        /// The host
        host: String,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show or change the access vectors at a host's edge
    Access {
        /// The host
        host: String,
        /// Allow access to this PID
        #[arg(long, value_name = "PID", conflicts_with = "forbid")]
        allow: Option<String>,
        /// Forbid access to this PID
        #[arg(long, value_name = "PID")]
        forbid: Option<String>,
        /// The vector to change
        #[arg(long, default_value = "gmv")]
        vector: Vector,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show latency and bandwidth of paths, or the CDAT of a component
    Cdat {
        /// Read the CDAT of this PID
        #[arg(long, value_name = "PID")]
        read: Option<String>,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show PIDs, or assign a PID to a target
    Pid {
        /// SWITCH/TARGET or SWITCH/TARGET/INSTANCE, as the list shows them
        #[arg(long, value_name = "TARGET")]
        assign: Option<String>,
        /// The PID; by default a free one
        #[arg(long, value_name = "PID", requires = "assign")]
        to: Option<String>,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Explain every lookup on the path of one address of one host
    Trace {
        /// The host
        #[arg(long)]
        host: String,
        /// The address
        #[arg(long, value_parser = parse_address)]
        hpa: u64,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show events
    Events {
        /// Only events after this number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Send a CCI command as bytes, and print the response
    Cci {
        /// Hexadecimal digits: the whole message, or its payload with --opcode
        hex: String,
        /// Opcode of the payload, in hexadecimal digits, such as 5700
        #[arg(long, value_parser = opcode)]
        opcode: Option<u16>,
        /// The component: entry, port:N, pid:P, or pid:P/port:N
        #[arg(long, default_value = "entry")]
        to: String,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// What to do with memory.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Share memory with hosts
    Add {
        /// Its name, 1 to 16 bytes
        name: String,
        /// A host; may be given several times
        #[arg(long, required = true)]
        host: Vec<String>,
        /// A GFD, in the order of interleaving; 1, 2, 4, ... or 256 of them
        #[arg(long)]
        gfd: Vec<String>,
        /// Instead of --gfd: interleave over this many GFDs, in the order of discovery
        #[arg(long)]
        ways: Option<u16>,
        /// Total size, such as 4GiB
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Bytes of an interleave granule, such as 4KiB
        #[arg(long, value_parser = parse_size, default_value = "4KiB")]
        granularity: u64,
        /// Address at which all hosts see it
        #[arg(long, value_parser = parse_address)]
        hpa: u64,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Revoke memory from all hosts, and free its capacity on the GFDs
    Release {
        /// Its name
        name: String,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// What to do with memory that hosts and devices show each other.
#[derive(Debug, Subcommand)]
pub enum GimCommand {
    /// Give hosts and devices access to memory of another host or device
    Add {
        /// Its name
        name: String,
        /// Owner of the memory: a host, a device, SWITCH/port:N or a PID
        #[arg(long)]
        of: String,
        /// Host or device that may access it; may be given several times
        #[arg(long, required = true)]
        from: Vec<String>,
        /// Requesters name the target themselves (`VendPrefixL0`); by default FAST finds it
        #[arg(long)]
        prefix: bool,
        /// Size, such as 16MiB
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Address at which all of them see it
        #[arg(long, value_parser = parse_address)]
        hpa: u64,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Revoke it from all hosts and devices
    Release {
        /// Its name
        name: String,
        /// Which fabric manager.
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// Which fabric manager, and the format of the answer.
#[derive(Args, Clone, Debug, Default)]
pub struct AskArgs {
    /// Management socket of the fabric manager
    #[arg(long, value_name = "FILE")]
    pub socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
