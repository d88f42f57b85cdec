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

/// What to do with fabric memory.
#[derive(Debug, Subcommand)]
pub(super) enum Mem {
    /// Register a range of the host's own memory, or of fabric memory that it was granted
    Register {
        /// First address
        addr: Num,
        /// Bytes
        len: Num,
    },
    /// Take a registration back
    Deregister {
        /// Handle, as `register` and `list` show it
        handle: u64,
    },
    /// Show registered host memory to others there; a fabric's hosts have their window from the fabric
    Window {
        /// Where others reach it
        #[arg(value_name = "BASE:SIZE", value_parser = window)]
        range: (Num, Num),
        /// Only to these PIDs, in hexadecimal digits
        #[arg(long, value_name = "PID", value_parser = pid_bits)]
        from: Vec<u16>,
    },
    /// Listen at a mailbox of 8 KiB in registered fabric memory
    Listen {
        /// Address of the mailbox
        mailbox: Num,
    },
    /// Connect to a peer: by the start of its window, or a mailbox that it listens at
    Connect {
        /// Address of the mailbox
        mailbox: Num,
    },
    /// End a connection, or stop to listen
    Disconnect {
        /// Number of the peer
        peer: u32,
    },
    /// Copy from the peer's memory to the host's own
    Read(TransferArgs),
    /// Copy from the host's own memory to the peer's
    Write(TransferArgs),
    /// Show how far a transfer is that was not waited for; its end is shown once
    Status {
        /// Number of the transfer
        transfer: u64,
    },
    /// Show registrations, peers, transfers and what is in use
    List,
    /// End all connections and free everything, for good
    Finalize,
}

/// A transfer.
#[derive(Args, Debug)]
pub(super) struct TransferArgs {
    /// Number of the peer
    peer: u32,
    /// Operations: own address, the peer's address, bytes
    #[arg(required = true, value_name = "LOCAL:REMOTE:LEN", value_parser = operation)]
    ops: Vec<MemOp>,
    /// Do not wait for the end
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
