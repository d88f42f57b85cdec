//! `weft endpoint ctl H mem`: transfers of fabric memory.
//!
//! Makes a [`MemCommand`] of the arguments, and prints a [`MemAnswer`] as text.
//!
//! Source: docs/fabric-memory.md.

use std::io::{self, Write};

use crate::commands::pid_bits;
use clap::{Args, Subcommand};
use weft_lab::endpoint::fabric_mem::{
    MemAnswer, MemCommand, MemList, MemOp, MemRange, MemStatus, MemTransfer, MemTransferReport,
};
use weft_lab::endpoint::number::Num;

#[derive(Debug, Subcommand)]
pub(super) enum Mem {
    /// Register a range of the host's own memory, or of fabric memory granted to the host
    Register {
        /// First address of the range
        addr: Num,
        /// Length in bytes
        len: Num,
    },
    /// Remove a registration
    Deregister {
        /// Handle of the registration, as `register` and `list` show it
        handle: u64,
    },
    /// Set the window through which peers reach registered host memory; hosts of `weft fabric up` get theirs from the
    /// topology file
    Window {
        /// Address range at which peers reach the window; 0:0 closes it
        #[arg(value_name = "BASE:SIZE", value_parser = window)]
        range: (Num, Num),
        /// Allow only these PIDs (hexadecimal)
        #[arg(long, value_name = "PID", value_parser = pid_bits)]
        from: Vec<u16>,
    },
    /// Listen for a connection at a mailbox of 8 KiB in registered fabric memory
    Listen {
        /// Address of the mailbox
        mailbox: Num,
    },
    /// Connect to a peer through the start of its window, or through a mailbox that it listens at
    Connect {
        /// Address of the mailbox
        mailbox: Num,
    },
    /// Close a connection, or stop listening
    Disconnect {
        /// Peer number, as `connect`, `listen` and `list` show it
        peer: u32,
    },
    /// Copy from a peer's memory to the host's own
    Read(TransferArgs),
    /// Copy from the host's own memory to a peer's
    Write(TransferArgs),
    /// Show the progress of a transfer started with --no-wait; its final result is shown only once
    Status {
        /// Transfer number
        transfer: u64,
    },
    /// List registrations, peers, transfers and resources in use
    List,
    /// Close all connections, free all resources, and disable transfers for good
    Finalize,
}

/// A list of copies from or to a peer.
#[derive(Args, Debug)]
pub(super) struct TransferArgs {
    /// Peer number, as `connect`, `listen` and `list` show it
    peer: u32,
    /// Copies: local address, the peer's address, length in bytes
    #[arg(required = true, value_name = "LOCAL:REMOTE:LEN", value_parser = operation)]
    ops: Vec<MemOp>,
    /// Return at once, without waiting for the end of the transfer
    #[arg(long)]
    no_wait: bool,
}

fn number(text: &str) -> Result<Num, String> {
    text.parse()
}

fn window(text: &str) -> Result<(Num, Num), String> {
    let (base, len) =
        text.split_once(':').ok_or_else(|| format!("expected BASE:SIZE, found {text:?}"))?;
    Ok((number(base)?, number(len)?))
}

fn operation(text: &str) -> Result<MemOp, String> {
    let mut parts = text.split(':');
    let (Some(local), Some(remote), Some(len), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!("expected LOCAL:REMOTE:LEN, found {text:?}"));
    };
    Ok(MemOp { local: number(local)?, remote: number(remote)?, len: number(len)? })
}

impl TransferArgs {
    fn transfer(&self, timeout_ms: u64) -> MemTransfer {
        MemTransfer { peer: self.peer, ops: self.ops.clone(), wait: !self.no_wait, timeout_ms }
    }
}

impl Mem {
    /// The command of the arguments.
    pub(super) fn command(&self, timeout_ms: u64) -> MemCommand {
        match self {
            Self::Register { addr, len } => MemCommand::Register { addr: *addr, len: *len },
            Self::Deregister { handle } => MemCommand::Deregister { handle: *handle },
            Self::Window { range: (base, len), from } => {
                MemCommand::Window { base: *base, len: *len, from: from.clone() }
            }
            Self::Listen { mailbox } => MemCommand::Listen { mailbox: *mailbox },
            Self::Connect { mailbox } => MemCommand::Connect { mailbox: *mailbox, timeout_ms },
            Self::Disconnect { peer } => MemCommand::Disconnect { peer: *peer },
            Self::Read(args) => MemCommand::Read(args.transfer(timeout_ms)),
            Self::Write(args) => MemCommand::Write(args.transfer(timeout_ms)),
            Self::Status { transfer } => MemCommand::Status { transfer: *transfer },
            Self::List => MemCommand::List {},
            Self::Finalize => MemCommand::Finalize {},
        }
    }
}

fn range(it: &MemRange, out: &mut dyn Write) -> io::Result<()> {
    let MemRange { handle, addr, len, kind, hpa } = it;
    write!(out, "handle {handle}: {len} bytes of {kind} memory at {addr:#x}")?;
    match hpa {
        // Others reach the host's own memory through its window, at another address.
        Some(hpa) if hpa != addr => writeln!(out, ", for others at {hpa:#x}"),
        _ => writeln!(out),
    }
}

fn transfer(it: &MemTransferReport, out: &mut dyn Write) -> io::Result<()> {
    let MemTransferReport { transfer, status, reason, bytes, ns } = it;
    write!(out, "transfer {transfer}: {}, {bytes} bytes, {ns} ns", status.name())?;
    match reason {
        Some(reason) => writeln!(out, ": {reason}"),
        None => writeln!(out),
    }
}

fn list(it: &MemList, out: &mut dyn Write) -> io::Result<()> {
    if let Some(window) = &it.window {
        writeln!(out, "window: {} bytes at {:#x}", window.len, window.base)?;
    }
    it.registrations.iter().try_for_each(|one| range(one, out))?;
    for peer in &it.peers {
        let pid = peer.pid.map(|pid| format!(", PID {pid:03x}")).unwrap_or_default();
        writeln!(out, "peer {}: {}, mailbox {:#x}{pid}", peer.peer, peer.state, peer.mailbox)?;
        for import in &peer.imports {
            let (len, addr, hpa) = (import.len, import.addr, import.hpa);
            writeln!(out, "  {len} bytes at its {addr:#x}, found at {hpa:#x}")?;
        }
    }
    it.transfers.iter().try_for_each(|one| transfer(one, out))?;
    let MemList { streams, requests, unexpected, .. } = it;
    writeln!(
        out,
        "in use: {streams} streams, {requests} requests; {unexpected} unexpected completions"
    )
}

/// Prints an answer as text.
pub(super) fn print(answer: &MemAnswer, out: &mut dyn Write) -> io::Result<()> {
    match answer {
        MemAnswer::Registered(it) => range(it, out),
        MemAnswer::Peer(peer) => writeln!(out, "peer {peer}"),
        MemAnswer::Transfer(it) => transfer(it, out),
        MemAnswer::List(it) => list(it, out),
    }
}

/// The error text of a transfer that failed or timed out; `None` for any other answer.
pub(super) fn failure(answer: &MemAnswer) -> Option<String> {
    let MemAnswer::Transfer(it) = answer else { return None };
    match it.status {
        MemStatus::Waiting | MemStatus::Completed => None,
        MemStatus::Failed => {
            Some(format!("the transfer failed: {}", it.reason.as_deref().unwrap_or_default()))
        }
        MemStatus::Timeout => Some("the transfer did not end in time".to_owned()),
    }
}
