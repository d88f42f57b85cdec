//! What hosts and devices have in common at the end of a link: TLPs told apart and counted, and one poll.
//!
//! `poll` lets a `TransactionLayer` send what is due and hands it what came; [`TlpCounts`], [`ReceivedMessage`].
//!
//! Units: TLPs.
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
    /// Requests; their sum with the next five is what the end counts as received.
    pub requests: u64,
    /// Completions.
    pub completions: u64,
    /// Messages.
    pub messages: u64,
    /// CXL.mem messages.
    pub mem: u64,
    /// CXL.cache messages.
    pub cache: u64,
    /// NOPs, link control and TLPs with a PTH.
    pub other: u64,
    /// Requests that were served.
    pub served: u64,
    /// Requests refused as unsupported.
    pub unsupported: u64,
    /// Requests refused as completer aborts.
    pub aborted: u64,
    /// Writes with data that are marked as bad.
    pub poisoned: u64,
    /// TLPs of its own that have no form on the link.
    pub unsent: u64,
}

impl TlpCounts {
    /// Counts a request by what became of it.
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

/// A message that a host or device has no use for, handed to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// By whom.
    pub from: Bdf,
    /// Message code.
    pub code: u8,
    /// How it was routed.
    pub routing: Routing,
    /// Its two double words behind the code.
    pub dws: (u32, u32),
    /// Payload.
    pub payload: Vec<u8>,
}

impl ReceivedMessage {
    /// The message that `tlp` is, which was routed so.
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

/// What stands behind the end of a link: makes requests, and takes what came by kind.
pub(crate) trait TransactionLayer {
    /// Its counts.
    fn counts(&mut self) -> &mut TlpCounts;

    /// Ends what is late. Called when what the port had has been taken in: an answer that was there already is not late.
    fn expire(&mut self, now: Instant, out: &mut Outbox);

    /// Sends what is due; with `full`, no requests of its own.
    fn work(&mut self, now: Instant, full: bool, out: &mut Outbox);

    /// Takes a completion.
    fn completion(&mut self, tlp: &Tlp<'_>, out: &mut Outbox);

    /// Takes a message.
    fn message(&mut self, tlp: &Tlp<'_>, routing: Routing, out: &mut Outbox);

    /// Takes a request.
    fn request(&mut self, tlp: &Tlp<'_>, out: &mut Outbox);

    /// Takes a CXL.mem message.
    fn mem(&mut self, message: &MemMessage<'_>, out: &mut Outbox);

    /// Takes a CXL.cache message.
    fn cache(&mut self, now: Instant, message: &CacheMessage<'_>, out: &mut Outbox);

    /// The upper end of the link resets it, or ends that.
    fn link_reset(&mut self, _ordered: Ordered) {}

    /// Takes what the other end says of the link.
    fn control(&mut self, _now: Instant, _message: LinkReset) {
        self.counts().other += 1;
    }

    /// When it has something to do though nothing comes.
    fn next_due(&self) -> Option<Instant>;

    /// Takes what came, and counts it.
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

/// Takes in what the port has, and sends what is to be sent.
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
    layer.expire(now, end.outbox());
    layer.work(now, end.is_full(), end.outbox());
    progress.next = Instant::earlier(progress.next, layer.next_due());
    progress.blocked |= end.waiting() > 0;
    Ok(progress)
}
