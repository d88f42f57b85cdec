//! The final report of `weft traffic --rclink`.
//!
//! A [`Tally`] counts events during the run; a [`Report`] is printed as text or JSON. Bytes are those of payload.
//!
//! Source: docs/rclink.md.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use weft_hosts::rclink::endpoint::{Endpoint, EndpointStats, Event};
use weft_hosts::report::LatencyReport;
use weft_hosts::stream::rx::Latency;

use super::has_acks;
use crate::commands::traffic::TrafficArgs;

/// Counts of requests, by events.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests given to the endpoint.
    pub given: u64,
    /// Requests that the endpoint refused, because their queue pair had failed.
    pub refused: u64,
    /// Requests acknowledged; in LITE, sent.
    pub done: u64,
    /// Frames given up without an ACK.
    pub given_up: u64,
    /// Queue pairs that failed.
    pub failed: u64,
    /// Requests that arrived complete.
    pub delivered: u64,
    /// Payload bytes of the delivered requests.
    pub bytes: u64,
    /// Delivered requests that were out of order within their sender's.
    pub disordered: u64,
    /// CNPs that the endpoint passed on.
    pub congested: u64,
    /// Number of the last request, by sender.
    last: BTreeMap<u16, u32>,
    latency: Latency,
}

impl Tally {
    /// Requests in progress. After a failure 0, so that the remaining ones are given (and refused) at once.
    pub const fn open(&self) -> u64 {
        if self.failed > 0 { 0 } else { self.given - self.done }
    }

    pub fn take(&mut self, event: &Event) {
        match *event {
            Event::Sent { .. } => self.done += 1,
            Event::Delivered { from, id, bytes, first, at } => {
                let last = self.last.insert(from, id);
                // A sender's numbers rise, but not by one: it serves its stations in turn.
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
    /// LITE only: requests whose frames were all sent.
    sent: Option<u64>,
    acknowledged: Option<u64>,
    refused: u64,
    failed_stations: u64,
    frames_given_up: u64,
    delivered: u64,
    delivered_bytes: u64,
    out_of_order: u64,
}

/// The report, as JSON.
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
    /// Makes the report of an endpoint that is done.
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

    /// Prints the report as text.
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
