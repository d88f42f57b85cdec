//! The common part of hosts and devices at the end of a link: TLPs sorted by kind and counted, and one poll.
//!
//! `poll` lets a `TransactionLayer` send messages that are due, and hands it the received ones; [`TlpCounts`],
//! [`ReceivedMessage`].
//!
//! Source: PCIe 6.0 sections 2.2, 2.3.

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_parsers::cxl_cache::CacheMessage;
use weft_parsers::cxl_mem::MemMessage;
use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::{Kind, LinkReset, Routing, Tlp, TlpRepr};

use crate::completer::Served;
use crate::tlp_end::{Frame, Outbox, Progress, Received, TlpEnd};
use crate::vdm::link_reset::Ordered;

/// Counts of the TLPs that a host or a device took, by kind and outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TlpCounts {
    /// Requests. This and the next five counts add up to the frames that the end counts as received.
    pub requests: u64,
    pub completions: u64,
    pub messages: u64,
    pub mem: u64,
    pub cache: u64,
    /// NOPs, link control and TLPs with a PTH.
    pub other: u64,
    /// Requests carried out.
    pub served: u64,
    /// Requests refused as unsupported.
    pub unsupported: u64,
    /// Requests refused as completer aborts.
    pub aborted: u64,
    /// Writes with poisoned data.
    pub poisoned: u64,
    /// Own TLPs that cannot be encoded for the link.
    pub unsent: u64,
}

impl TlpCounts {
    /// Counts a request by its outcome.
    pub(crate) const fn count(&mut self, served: Served) {
        let count = match served {
            Served::Done => &mut self.served,
            Served::Unsupported => &mut self.unsupported,
            Served::Aborted => &mut self.aborted,
            Served::Poisoned => &mut self.poisoned,
        };
        *count += 1;
    }
}

/// A message that the host or device does not handle itself, for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// Requester ID of the sender.
    pub from: Bdf,
    pub code: u8,
    /// Routing of the message.
    pub routing: Routing,
    /// The two doublewords behind the code.
    pub dws: (u32, u32),
    pub payload: Vec<u8>,
}

impl ReceivedMessage {
    /// Copies the message in `tlp`.
    pub(crate) fn new(tlp: &Tlp<'_>, routing: Routing) -> Self {
        Self {
            from: tlp.requester(),
            code: tlp.message_code().unwrap_or_default(),
            routing,
            dws: tlp.message_dws().unwrap_or_default(),
            payload: tlp.payload().to_vec(),
        }
    }
}

/// The owner of a link's end: makes requests, and handles received TLPs and messages by kind.
pub(crate) trait TransactionLayer {
    fn counts(&mut self) -> &mut TlpCounts;

    /// Ends late requests. Called after all received frames were handled, so that an answer that had arrived is not
    /// late.
    fn expire(&mut self, now: Instant, out: &mut Outbox);

    /// Sends messages that are due; if `full`, no requests of its own.
    fn work(&mut self, now: Instant, full: bool, out: &mut Outbox);

    fn completion(&mut self, tlp: &Tlp<'_>, out: &mut Outbox);

    fn message(&mut self, tlp: &Tlp<'_>, routing: Routing, out: &mut Outbox);

    fn request(&mut self, tlp: &Tlp<'_>, out: &mut Outbox);

    fn mem(&mut self, message: &MemMessage<'_>, out: &mut Outbox);

    fn cache(&mut self, now: Instant, message: &CacheMessage<'_>, out: &mut Outbox);

    /// The upper end of the link begins or ends a reset.
    fn link_reset(&mut self, _ordered: Ordered) {}

    /// Takes a control message of the other end of the link.
    fn control(&mut self, _now: Instant, _message: LinkReset) {
        self.counts().other += 1;
    }

    /// When it has work next, even if nothing is received.
    fn next_due(&self) -> Option<Instant>;

    /// Sorts a received frame by kind, and counts it.
    fn receive(&mut self, now: Instant, frame: &Frame<'_>, out: &mut Outbox) {
        let tlp = match frame.content {
            Received::Tlp(None, tlp) => tlp,
            Received::Mem(None, message) => {
                self.counts().mem += 1;
                return self.mem(&message, out);
            }
            Received::Cache(message) => {
                self.counts().cache += 1;
                return self.cache(now, &message, out);
            }
            _ => {
                self.counts().other += 1;
                return;
            }
        };
        match tlp.kind() {
            _ if tlp.is_completion() => {
                self.counts().completions += 1;
                self.completion(&tlp, out);
            }
            Kind::Nop => self.counts().other += 1,
            Kind::Message { routing, .. } => {
                self.counts().messages += 1;
                self.message(&tlp, routing, out);
            }
            _ => {
                self.counts().requests += 1;
                self.request(&tlp, out);
            }
        }
    }

    /// Sends a TLP of its own, or counts it as unsent.
    fn send(&mut self, out: &mut Outbox, tlp: &TlpRepr<'_>) {
        self.counts().unsent += u64::from(out.send(None, tlp).is_err());
    }
}

/// Receives frames from the port, and sends frames that are due.
///
/// # Errors
/// The port's own.
pub(crate) fn poll(
    end: &mut TlpEnd,
    layer: &mut impl TransactionLayer,
    now: Instant,
    port: &mut dyn Port,
    bufs: &mut Bufs,
) -> Result<Progress, PortError> {
    layer.work(now, end.is_full(), end.outbox());
    let mut progress = end.poll(now, port, bufs, &mut |frame, out| match frame.content {
        Received::Reset(ordered) => layer.link_reset(ordered),
        Received::Control(message) => layer.control(now, message),
        _ => layer.receive(now, &frame, out),
    })?;
    // Behind `end.poll`: answers that the port had by now are not late.
    layer.expire(now, end.outbox());
    // Again, for requests that answers and timeouts have made room for.
    layer.work(now, end.is_full(), end.outbox());
    progress.next = Instant::earlier(progress.next, layer.next_due());
    progress.blocked |= end.waiting() > 0;
    Ok(progress)
}
