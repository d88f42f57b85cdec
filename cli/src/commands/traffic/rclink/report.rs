//! What `weft traffic --rclink` says at the end.
//!
//! [`Tally`] counts events while it runs; [`Report`] is data, for programs as JSON.
//!
//! Units: requests, frames, bytes of payload, picoseconds (`_ps`).
//! Source: docs/rclink.md.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use weft_hosts::rclink::endpoint::{Endpoint, EndpointStats, Event};
use weft_hosts::report::LatencyReport;
use weft_hosts::stream::rx::Latency;

use super::has_acks;
use crate::commands::traffic::TrafficArgs;

/// Requests, as events tell of them.
#[derive(Debug, Default)]
pub struct Tally {
    /// Given to the endpoint.
    pub given: u64,
    /// Of these, not taken: their queue pair had failed.
    pub refused: u64,
    /// Acknowledged; where nothing is, sent.
    pub done: u64,
    /// Frames that were given up.
    pub given_up: u64,
    /// Queue pairs that have failed.
    pub failed: u64,
    /// Requests that have come whole.
    pub delivered: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, not behind the one before of the same sender.
    pub disordered: u64,
    /// CNPs that were passed on.
    pub congested: u64,
    /// By sender: the last request.
    last: BTreeMap<u16, u32>,
    latency: Latency,
}

impl Tally {
    /// Requests that are neither done nor given up.
    pub const fn open(&self) -> u64 {
        if self.failed > 0 { 0 } else { self.given - self.done }
    }

    /// Counts an event.
    pub fn take(&mut self, event: &Event) {
        match *event {
            Event::Sent { .. } => self.done += 1,
            Event::Delivered { from, id, bytes, first, at } => {
                let last = self.last.insert(from, id);
                self.disordered += u64::from(last.is_some_and(|last| last >= id));
                self.delivered += 1;
                self.bytes += bytes;
                self.latency.record(at.since(first));
            }
            Event::Congested { .. } => self.congested += 1,
            Event::Failed { frames, .. } => {
                self.failed += 1;
                self.given_up += frames as u64;
            }
            Event::Received { .. } => {}
        }
    }
}

/// Requests of this endpoint, and those to it.
#[derive(Debug, Serialize)]
struct Requests {
    given: u64,
    /// Where nothing is acknowledged: those of which all frames were sent.
    sent: Option<u64>,
    acknowledged: Option<u64>,
    refused: u64,
    failed_stations: u64,
    frames_given_up: u64,
    delivered: u64,
    delivered_bytes: u64,
    out_of_order: u64,
}

/// What is said.
#[derive(Debug, Serialize)]
pub struct Report {
    station: u16,
    requests: Requests,
    congestions: u64,
    frames: EndpointStats,
    paused_ps: u64,
    frame_latency: LatencyReport,
    request_latency: LatencyReport,
}

impl Report {
    /// Of an endpoint that is done.
    pub fn new(args: &TrafficArgs, endpoint: &Endpoint, tally: &Tally) -> Self {
        let is_acked = has_acks(args);
        Self {
            station: args.station,
            requests: Requests {
                given: tally.given,
                sent: (!is_acked).then_some(tally.done),
                acknowledged: is_acked.then_some(tally.done),
                refused: tally.refused,
                failed_stations: tally.failed,
                frames_given_up: tally.given_up,
                delivered: tally.delivered,
                delivered_bytes: tally.bytes,
                out_of_order: tally.disordered,
            },
            congestions: tally.congested,
            frames: endpoint.stats(),
            paused_ps: endpoint.paused(weft_lab::clock::now()).as_ps(),
            frame_latency: endpoint.latency().into(),
            request_latency: (&tally.latency).into(),
        }
    }

    /// For people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { requests, frames, .. } = self;
        let done = match (requests.acknowledged, requests.sent) {
            (Some(count), _) => format!("{count} acknowledged"),
            (None, sent) => format!("{} sent (LITE has no acknowledgements)", sent.unwrap_or(0)),
        };
        writeln!(
            out,
            "requests: {} given, {done}; {} delivered here ({} bytes), {} out of order",
            requests.given, requests.delivered, requests.delivered_bytes, requests.out_of_order
        )?;
        if requests.failed_stations > 0 {
            writeln!(
                out,
                "failed: {} stations did not acknowledge; {} frames given up, {} requests refused",
                requests.failed_stations, requests.frames_given_up, requests.refused
            )?;
        }
        writeln!(
            out,
            "sent: {} frames, {} of them again ({} NAKs, {} timeouts); {} ACKs, {} CNPs, {} PFC frames",
            frames.tx_frames,
            frames.resent,
            frames.naks_rx,
            frames.timeouts,
            frames.acks_tx,
            frames.cnps_tx,
            frames.pfc_tx
        )?;
        writeln!(
            out,
            "received: {} frames, {} again, {} behind a gap, {} lost, {} without room, {} foreign; {} marked CE; {} ACKs, \
             {} CNPs ({} passed on), {} PFC frames (paused for {} us)",
            frames.rx_frames,
            frames.duplicates,
            frames.out_of_order,
            frames.lost,
            frames.overruns,
            frames.foreign,
            frames.marked,
            frames.acks_rx,
            frames.cnps_rx,
            self.congestions,
            frames.pfc_rx,
            self.paused_ps / 1_000_000
        )?;
        for (what, latency) in [("frame", &self.frame_latency), ("request", &self.request_latency)]
        {
            let latency = latency.in_words(&format!("no {what} came here"));
            writeln!(out, "{what} latency ns: {latency}")?;
        }
        Ok(())
    }
}
