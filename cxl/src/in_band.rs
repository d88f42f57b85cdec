//! In-band commands at a GFD: proxied commands of hosts' edges, and CCI messages by tunnel.
//!
//! [`Commands`] is the [`InBand`] of a GFD: it runs both state machines in front of the device's CCI.
//!
//! Units: bytes; picoseconds.
//! Source: docs/spec/wire-formats.md §3.8, §4.1; docs/spec/cxl-fabric.md "GFD (endpoint)"; CXL 3.1 sections 7.7.11.5,
//! 7.7.12.

use weft_dataplane::time::Instant;
use weft_parsers::cci::events::notification;
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::notify::FmNotification;
use weft_parsers::cci::{Request, Wire, header};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::{MctpPacket, PbrVdm, Pth, VdmOp};

use crate::cci::{Component, Served, Session, serve};
use crate::gfd::events::FM_LEN;
use crate::gfd_end::{Device, InBand};
use crate::tlp_end::Outbox;
use crate::vdm::Vdm;
use crate::vdm::mctp::{Event, Peer, Tunnel};
use crate::vdm::proxy::Stale;
use crate::vdm::proxy::device::GfdProxy;

/// Receives commands over the fabric and has a GFD carry them out.
#[derive(Debug)]
pub struct Commands {
    proxy: GfdProxy,
    tunnel: Tunnel,
    port: u8,
    unsent: u64,
    /// Messages that belonged to no command, before the last reset.
    stale: u64,
}

impl Commands {
    /// For a device whose port has this number.
    #[must_use]
    pub fn new(port: u8) -> Self {
        let (proxy, tunnel) = (GfdProxy::default(), Tunnel::new(Pid::NONE));
        Self { proxy, tunnel, port, unsent: 0, stale: 0 }
    }

    /// Number of own messages that could not be sent; 0 unless there is a bug.
    #[must_use]
    pub const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Executes complete commands, and sends all responses that are ready.
    fn settle(&mut self, now: Instant, device: &mut Device, out: &mut Outbox) {
        while let Some(command) = self.proxy.take() {
            let mut answer = Vec::new();
            let session = Session::Proxy(command.ticket.from());
            let served = serve(device, now, session, &command.message, &mut answer);
            // The proxy itself refuses a response that is too long for the host; a GFD has no commands that stay
            // pending.
            let told = match served {
                Served::Response => self.proxy.respond(now, command.ticket, &answer),
                Served::Ignored | Served::Pending(_) => self.proxy.refuse(now, command.ticket),
            };
            self.unsent += u64::from(told.is_err());
        }
        while let Some(event) = self.tunnel.pop_event() {
            let Event::Request { ticket, message, .. } = event else { continue };
            let Some((port, pid)) = self.tunnel.asker(ticket) else { continue };
            let session = Session::InBand { port, pid };
            let mut answer = Vec::new();
            if serve(device, now, session, &message, &mut answer) == Served::Response {
                // Before the response: the command may have given the device its PID, which is the SPID of the
                // response.
                self.tunnel.set_own(device.common().ownership.pid());
                self.unsent += u64::from(self.tunnel.respond(ticket, &answer).is_err());
            }
        }
        // Commands first, then messages, so that responses leave in this call.
        while let Some(vdm) = self.proxy.poll(now) {
            self.unsent += u64::from(out.send(Some(vdm.pth), &vdm.message().repr()).is_err());
        }
        while let Some(sent) = self.tunnel.poll(now) {
            self.unsent += u64::from(out.send(Some(sent.pth), &sent.repr()).is_err());
        }
    }
}

impl InBand for Commands {
    fn message(
        &mut self,
        now: Instant,
        device: &mut Device,
        from: Pth,
        message: &PbrVdm<'_>,
        out: &mut Outbox,
    ) -> bool {
        if !matches!(message.op, VdmOp::DpCmd | VdmOp::DcReq | VdmOp::DcReqLast | VdmOp::DcReqFail)
        {
            return false;
        }
        let PbrVdm { op, seq_len, cmd_seq, seq_num, payload } = *message;
        let mut vdm = Vdm::new(from.spid, from.dpid, op).with_payload(payload);
        (vdm.pth, vdm.seq_len, vdm.cmd_seq, vdm.seq_num) = (from, seq_len, cmd_seq, seq_num);
        self.proxy.receive(now, &vdm);
        self.settle(now, device, out);
        true
    }

    fn packet(
        &mut self,
        now: Instant,
        device: &mut Device,
        from: Pth,
        packet: &MctpPacket<'_>,
        out: &mut Outbox,
    ) -> bool {
        // A command of the last packet, or the manager, may have changed the device's PID.
        self.tunnel.set_own(device.common().ownership.pid());
        self.tunnel.receive(now, self.port, from, packet);
        self.settle(now, device, out);
        true
    }

    /// Sends a notification to the switch at the other end of the link, which relays it. So no component has to
    /// trust a GFD's claim to be one, and a GFD's messages have no path into the fabric.
    fn notify(&mut self, device: &Device, payload: &[u8; FM_LEN]) -> bool {
        let ownership = &device.common().ownership;
        if ownership.primary().is_none() {
            return true; // without a manager the notification ends here
        }
        self.tunnel.set_own(ownership.pid());
        let mut message = [0; header::LEN + FM_LEN];
        FmNotification::read(payload)
            .ok()
            .and_then(|notice| notification(&Request::FmNotification(notice), &mut message))
            .is_some_and(|_| {
                let peer = Peer::Port(self.port);
                self.tunnel.notify(peer, MessageType::FmApi, &message).is_ok()
            })
    }

    fn stale(&self) -> (u64, Vec<Stale>) {
        (self.stale + self.proxy.stale(), self.proxy.stale_log().copied().collect())
    }

    fn reset(&mut self) {
        // A reset changes no counter.
        let (unsent, stale) = (self.unsent, self.stale + self.proxy.stale());
        *self = Self { unsent, stale, ..Self::new(self.port) };
    }

    fn poll(&mut self, now: Instant, device: &mut Device, out: &mut Outbox) -> Option<Instant> {
        self.settle(now, device, out);
        Instant::earlier(self.proxy.next_due(), self.tunnel.next_due())
    }
}
