//! The final report of `weft traffic --tcp`.
//!
//! [`Connections`] follows events during the run; a [`Report`] is printed as text or JSON. Bytes are those of payload.
//!
//! Source: docs/tcp.md.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use weft_dataplane::time::Instant;
use weft_hosts::tcp::{TcpEvent, TcpHost, TcpStats};

use crate::commands::traffic::TrafficArgs;
use crate::error::CliError;

/// The course of one connection.
#[derive(Debug, Default, Serialize)]
struct Connection {
    id: u32,
    established: bool,
    /// From the first segment to the end of the handshake; `None` if the other end began.
    handshake_ps: Option<u64>,
    /// Bytes that the other end has acknowledged.
    sent_bytes: Option<u64>,
    resent_segments: Option<u64>,
    /// From the end of the handshake to the last acknowledgement.
    sent_ps: Option<u64>,
    sent_bps: Option<u64>,
    received_bytes: Option<u64>,
    received_ps: Option<u64>,
    received_bps: Option<u64>,
    /// Offset of the first byte that differs from the expected data.
    differs_at: Option<u64>,
    failed: bool,
    closed: bool,
    #[serde(skip)]
    begun: Option<Instant>,
    #[serde(skip)]
    open: Option<Instant>,
}

impl Connection {
    /// The time from the end of the handshake to `at`, and the rate of `bytes` in it.
    fn rate(&self, bytes: u64, at: Instant) -> (Option<u64>, Option<u64>) {
        let took = self.open.map(|open| at.since(open).as_ps());
        let bits = u128::from(bytes) * 8 * 1_000_000_000_000;
        let bps = took.and_then(|took| bits.checked_div(took.into()));
        (took, bps.and_then(|bps| u64::try_from(bps).ok()))
    }
}

/// All connections, by number.
#[derive(Debug, Default)]
pub struct Connections(BTreeMap<u32, Connection>);

impl Connections {
    /// Number of connections that are over.
    pub fn closed(&self) -> u64 {
        self.0.values().filter(|it| it.closed).count() as u64
    }

    /// Updates the connection of an event.
    pub fn take(&mut self, event: &TcpEvent) {
        let (TcpEvent::Begun { id, .. }
        | TcpEvent::Established { id, .. }
        | TcpEvent::Acknowledged { id, .. }
        | TcpEvent::Received { id, .. }
        | TcpEvent::Failed { id, .. }
        | TcpEvent::Closed { id, .. }) = *event;
        let it = self.0.entry(id).or_insert_with(|| Connection { id, ..Connection::default() });
        match *event {
            TcpEvent::Begun { at, .. } => it.begun = Some(at),
            TcpEvent::Established { at, .. } => {
                (it.established, it.open) = (true, Some(at));
                it.handshake_ps = it.begun.map(|begun| at.since(begun).as_ps());
            }
            TcpEvent::Acknowledged { bytes, resent, at, .. } => {
                (it.sent_bytes, it.resent_segments) = (Some(bytes), Some(resent));
                // `bytes` counts from the start, so the last event's rate is that of the whole connection.
                (it.sent_ps, it.sent_bps) = it.rate(bytes, at);
            }
            TcpEvent::Received { bytes, at, .. } => {
                it.received_bytes = Some(bytes);
                (it.received_ps, it.received_bps) = it.rate(bytes, at);
            }
            TcpEvent::Failed { .. } => it.failed = true,
            TcpEvent::Closed { differs, .. } => (it.differs_at, it.closed) = (differs, true),
        }
    }
}

/// The report, as JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    station: u16,
    connections: Vec<Connection>,
    segments: TcpStats,
}

impl Report {
    /// Makes the report of a host that is done.
    pub fn new(args: &TrafficArgs, host: &TcpHost, connections: Connections) -> Self {
        let connections = connections.0.into_values().collect();
        Self { station: args.station, connections, segments: host.stats() }
    }

    /// Prints the report as text.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for it in &self.connections {
            let Connection { id, sent_bytes, received_bytes, .. } = it;
            let state = match (it.failed, it.closed) {
                (true, _) => "failed",
                (false, true) => "closed",
                (false, false) => "open",
            };
            write!(out, "connection {id}: {state}")?;
            for (what, bytes, bps) in
                [("sent", sent_bytes, it.sent_bps), ("received", received_bytes, it.received_bps)]
            {
                if let Some(bytes) = bytes {
                    let mbps = bps.unwrap_or(0) / 1_000_000;
                    write!(out, "; {what} {bytes} bytes, {mbps} Mbit/s")?;
                }
            }
            match it.differs_at {
                Some(at) => writeln!(out, "; byte {at} is not the expected one")?,
                None => writeln!(out)?,
            }
        }
        let it = &self.segments;
        writeln!(
            out,
            "segments: {} sent, {} of them again ({} bytes); {} received, {} duplicate ACKs, {} for no connection",
            it.tx_segments,
            it.resent,
            it.resent_bytes,
            it.rx_segments,
            it.duplicate_acks,
            it.refused
        )
    }

    /// Checks the connections against the arguments.
    ///
    /// # Errors
    /// A connection failed, did not close, or brought other data than expected.
    pub fn verdict(&self, args: &TrafficArgs) -> Result<(), CliError> {
        let wanted = args.tcp.connections as usize;
        let whole = self.connections.iter().filter(|it| it.closed && !it.failed).count();
        if whole < wanted {
            let text = format!(
                "expected {wanted} connections to come about and to be closed; {whole} were, {} failed",
                self.segments.failed
            );
            return Err(CliError::Difference(text));
        }
        for it in &self.connections {
            if let Some(at) = it.differs_at {
                let (id, seed) = (it.id, args.tcp.seed);
                let text = format!(
                    "connection {id}: byte {at} is not that of seed {seed}; --any-data compares nothing"
                );
                return Err(CliError::Difference(text));
            }
            let had = it.received_bytes.unwrap_or(0);
            if let Some(expected) = args.tcp.expect_bytes.filter(|&expected| expected != had) {
                let id = it.id;
                let text = format!("connection {id}: expected {expected} bytes, {had} came");
                return Err(CliError::Difference(text));
            }
        }
        Ok(())
    }
}
