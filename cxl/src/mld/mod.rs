//! A multi-logical device (MLD): up to 16 logical devices (LDs) behind one link, told apart by the prefix of each TLP.
//!
//! [`Mld::poll`] hands each TLP to the LD that its `VendPrefixL0` names, and puts that prefix in front of all TLPs that
//! the LD sends. LD `FFFFh` is the fabric manager's and carries CCI messages (`management`).
//!
//! The LDs are the caller's: [`crate::cxl_device::CxlDevice`]s, or types that hold one each. A TLP of one LD reaches
//! nothing of another, and a reset of one is invisible to the others.
//!
//! Source: CXL 3.1 sections 2.5, 7.6.7.3, 7.6.7.4; docs/spec/wire-formats.md §3.2 "LD-ID form", §4.3a.

mod allocations;
mod dynamic;
mod management;
mod schedule;

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_parsers::MacAddr;
use weft_parsers::cci::Request;
use weft_parsers::cci::events::notification;
use weft_parsers::cci::generic::Identity;
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cxl_mem::{LEN_MAX, LINE, MemMessage};
use weft_parsers::fabric::{Bdf, Pid};
use weft_parsers::tlp::{
    Completion, Kind, MctpPacket, Mode, PbrVdm, Pth, Status, Tlp, TlpRepr, VdmOp, VendPrefixL0,
};

use crate::cxl_device::CxlDevice;
use crate::mem::refusal;
use crate::tlp_end::{Carries, EndConfig, EndCounts, Frame, Outbox, Progress, Received, TlpEnd};
use crate::transaction_layer::TransactionLayer;
use crate::vdm::link_reset::Ordered;
use crate::vdm::mctp::{Event, Peer, Tunnel};
use allocations::Allocations;
pub use allocations::{GRANULE, MEMORY_BAR};
use dynamic::Dynamic;
use management::{Memories, Serving};
use schedule::{Schedule, Waiting};

/// Most logical devices of an MLD.
pub const LDS_MAX: usize = 16;
/// LD-ID of the logical device that the fabric manager owns.
pub const FM_LD: u16 = 0xFFFF;
/// Interval of hellos until the switch has sent a command, and the interval from then on.
const HELLO: [Span; 2] = [Span::from_ms(10), Span::from_ms(1_000)];
/// Most hellos at the shorter interval.
const HELLOS_MAX: u8 = 20;

/// Configuration of an MLD.
#[derive(Clone, Debug)]
pub struct MldConfig {
    /// Its end of the link, which carries TLPs in flit mode without PTH.
    pub end: EndConfig,
    /// Number of logical devices.
    pub lds: usize,
    /// Bytes of memory of the whole device.
    pub capacity: u64,
    /// Bytes of it that are dynamic capacity: unallocated until they are added (5604h).
    pub dynamic: u64,
    /// Payload bandwidth, of which shares and limits of logical devices are fractions.
    pub rate: LinkRate,
    /// Its answer to Identify (0001h); LD n answers with a serial number greater by n + 1.
    pub identity: Identity,
}

/// Why an MLD cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MldError {
    /// The link does not carry TLPs in flit mode without PTH.
    #[error("the link of a device with logical devices carries TLPs in flit mode without PTH")]
    Link,
    /// Number of logical devices that is 0 or above [`LDS_MAX`].
    #[error("a device has 1 to 16 logical devices, found {0}")]
    Lds(usize),
    /// Memory that is 0 or no multiple of 256 MiB.
    #[error("the memory of logical devices is a multiple of 256 MiB, found {0} bytes")]
    Capacity(u64),
    /// Dynamic capacity that is no multiple of 256 MiB, or more than the memory.
    #[error("dynamic capacity is a multiple of 256 MiB, at most all memory, found {0} bytes")]
    Dynamic(u64),
}

/// Counts of TLPs at an MLD that no LD takes, and of its manager's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MldCounts {
    /// TLPs without a prefix: refused.
    pub no_prefix: u64,
    /// TLPs and messages with an LD-ID that the device does not have: refused.
    pub unknown_ld: u64,
    /// CCI requests of the fabric manager.
    pub commands: u64,
    /// TLPs for LD `FFFFh` that carry no CCI request: refused.
    pub not_management: u64,
    /// Resets of one logical device by its switch.
    pub resets: u64,
    /// Requests refused because too many of their logical device waited for their turn.
    pub overrun: u64,
    /// Requests that wait for their turn now.
    pub waiting: u64,
    /// Other frames: NOPs and control messages of the link.
    pub other: u64,
    /// Own TLPs that cannot be encoded for the link.
    pub unsent: u64,
}

/// An MLD without its logical devices, which belong to the caller.
pub struct Mld {
    end: TlpEnd,
    body: Body,
    up: bool,
}

/// The MLD behind the link, apart from the logical devices.
struct Body {
    identity: Identity,
    memory: Memories,
    schedule: Schedule,
    tunnel: Tunnel,
    /// Time of the next hello, and the number left at the shorter interval; `None` while the link is down.
    hello: Option<(Instant, u8)>,
    counts: MldCounts,
}

impl Mld {
    /// An MLD as after power-on, with its memory divided evenly.
    ///
    /// # Errors
    /// See [`MldError`].
    pub fn new(config: MldConfig) -> Result<Self, MldError> {
        if config.end.carries != Carries::Hbr(Mode::Flit) {
            return Err(MldError::Link);
        }
        if !(1..=LDS_MAX).contains(&config.lds) {
            return Err(MldError::Lds(config.lds));
        }
        let MldConfig { lds, capacity, dynamic: len, .. } = config;
        let fixed = capacity.checked_sub(len).ok_or(MldError::Dynamic(len))?;
        let whole = Allocations::even(lds, capacity).filter(|_| capacity > 0);
        // Memory first, then the two parts of it, so that the error names the number that is wrong.
        whole.ok_or(MldError::Capacity(capacity))?;
        let allocations = Allocations::even(lds, fixed).ok_or(MldError::Dynamic(len))?;
        let dynamic = Dynamic::new(allocations.lds(), fixed, len).ok_or(MldError::Dynamic(len))?;
        let body = Body {
            identity: config.identity,
            memory: Memories { allocations, dynamic },
            schedule: Schedule::new(config.lds, config.rate),
            tunnel: Tunnel::new(Pid::NONE),
            hello: None,
            counts: MldCounts::default(),
        };
        Ok(Self { end: TlpEnd::new(config.end).lower(), body, up: false })
    }

    /// Size of the BAR that shows a logical device's memory: large enough for all memory, which one LD may get.
    #[must_use]
    pub fn bar_size(capacity: u64) -> u64 {
        capacity.clamp(GRANULE, 1 << 47).next_power_of_two()
    }

    /// Sets the memory of the logical devices; to be called once, before they are polled.
    pub fn begin<L: AsMut<CxlDevice>>(&self, lds: &mut [L]) {
        self.body.memory.apply(lds);
    }

    /// Bytes of memory of a logical device, without dynamic capacity.
    #[must_use]
    pub fn memory_of(&self, ld: usize) -> u64 {
        self.body.memory.allocations.bytes(ld)
    }

    /// Bytes of dynamic capacity of a logical device; `None` if the device has none at all.
    #[must_use]
    pub fn dynamic_of(&self, ld: usize) -> Option<u64> {
        let dynamic = &self.body.memory.dynamic;
        (dynamic.bytes() > 0).then(|| dynamic.ranges(ld).map(|(_, len)| len).sum())
    }

    /// Counts of the device and of its link.
    #[must_use]
    pub fn counts(&self) -> (MldCounts, EndCounts) {
        let schedule = &self.body.schedule;
        let (overrun, waiting) = (schedule.overrun(), schedule.waiting() as u64);
        (MldCounts { overrun, waiting, ..self.body.counts }, self.end.counts())
    }

    /// Receives frames from the port, hands them to the logical devices, and sends frames that are due.
    ///
    /// # Errors
    /// The port's own.
    pub fn poll<L: AsMut<CxlDevice>>(
        &mut self,
        now: Instant,
        lds: &mut [L],
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        if port.link_up() != self.up {
            self.up = port.link_up();
            self.body.begin(self.up.then_some(now));
            for ld in &mut *lds {
                ld.as_mut().set_link(self.up);
            }
        }
        let Self { end, body, .. } = self;
        work(now, lds, end);
        let mut progress = end.poll(now, port, bufs, &mut |frame, out| {
            body.receive(now, lds, &frame, out);
            out.set_prefix(None);
        })?;
        // Behind receiving, so that requests of this poll take part in the choice.
        body.serve(now, lds, end.outbox());
        body.say_hello(now, end.outbox());
        for (number, ld) in lds.iter_mut().enumerate() {
            end.outbox().set_prefix(Some(prefix_of(number)));
            // Behind receiving: answers that the port had by now are not late.
            ld.as_mut().core().expire(now, end.outbox());
        }
        work(now, lds, end);
        let due = lds.iter_mut().filter_map(|ld| ld.as_mut().core().next_due()).min();
        let due = Instant::earlier(due, body.tunnel.next_due());
        let due = Instant::earlier(due, body.schedule.next_due(now));
        let due = Instant::earlier(due, body.hello.map(|(at, _)| at));
        progress.next = Instant::earlier(progress.next, due);
        progress.blocked |= end.waiting() > 0;
        Ok(progress)
    }

    pub fn release(&mut self, bufs: &mut Bufs) {
        self.end.release(bufs);
    }
}

/// Prefix of a logical device, by its index.
fn prefix_of(ld: usize) -> VendPrefixL0 {
    VendPrefixL0::from_ld_id(u16::try_from(ld).unwrap_or(FM_LD - 1))
}

/// Refuses a CXL.mem request for an LD that does not exist or has no room.
fn refuse_mem(message: &MemMessage<'_>, out: &mut Outbox) {
    if let Some((head, ones)) = refusal(&message.head) {
        let data = ones.then_some(&[0xFF; LINE]);
        let sent = out.send_mem(None, &MemMessage { head, data, enables: None });
        debug_assert!(sent.is_ok(), "the request came on this link");
    }
}

/// Lets all logical devices send messages that are due.
fn work<L: AsMut<CxlDevice>>(now: Instant, lds: &mut [L], end: &mut TlpEnd) {
    let full = end.is_full();
    for (number, ld) in lds.iter_mut().enumerate() {
        end.outbox().set_prefix(Some(prefix_of(number)));
        ld.as_mut().core().work(now, full, end.outbox());
    }
    end.outbox().set_prefix(None);
}

impl Body {
    fn receive<L: AsMut<CxlDevice>>(
        &mut self,
        now: Instant,
        lds: &mut [L],
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) {
        let tlp = match frame.content {
            Received::Tlp(None, tlp) => tlp,
            Received::Reset(ordered) => return self.link_reset(now, ordered, lds),
            Received::Mem(None, message) => {
                return self.receive_mem(now, lds, &message, frame, out);
            }
            _ => {
                self.counts.other += 1;
                return;
            }
        };
        //= docs/spec/wire-formats.md §3.2: a TLP without prefix, or with the LD-ID of nobody, is refused
        let Some(prefix) = tlp.vend_prefix() else {
            self.counts.no_prefix += 1;
            return self.refuse(&tlp, out);
        };
        // All answers to this TLP carry its prefix: by it the switch finds the virtual switch of the LD.
        out.set_prefix(Some(prefix));
        if prefix.ld_id() == FM_LD {
            return self.manage(now, lds, &tlp, out);
        }
        let Some(ld) = lds.get_mut(usize::from(prefix.ld_id())) else {
            self.counts.unknown_ld += 1;
            return self.refuse(&tlp, out);
        };
        match PbrVdm::parse(&tlp).map(|vdm| vdm.op) {
            Ok(VdmOp::AssertReset | VdmOp::AssertPerst) => {
                self.counts.resets += 1;
                // Requests of before the reset must not be answered after it.
                self.schedule.forget(prefix.ld_id().into());
                ld.as_mut().core().reset();
            }
            // The reset of one LD is over when it was carried out: it has no state of being held.
            Ok(VdmOp::DeassertReset) => {}
            _ if self.waits(prefix.ld_id().into(), &tlp, out) => {}
            _ => {
                out.set_load(self.schedule.load(prefix.ld_id().into()).wire());
                ld.as_mut().core().receive(now, frame, out);
            }
        }
    }

    /// The link came up, or went down (`None`): drops all that was under way.
    fn begin(&mut self, up: Option<Instant>) {
        // Half a message from before the loss must not be completed by one from after it.
        self.tunnel = Tunnel::new(Pid::NONE);
        self.schedule.clear();
        self.hello = up.map(|now| (now, HELLOS_MAX));
    }

    /// A reset of the link resets all logical devices. Memory, shares and limits stay, as after any loss of the link.
    fn link_reset<L: AsMut<CxlDevice>>(&mut self, now: Instant, ordered: Ordered, lds: &mut [L]) {
        if ordered == Ordered::Ends {
            return self.begin(Some(now));
        }
        self.begin(None);
        for ld in lds {
            ld.as_mut().core().reset();
        }
    }

    /// A CXL.mem message: its LD-ID names the logical device, whose answers carry the same.
    fn receive_mem<L: AsMut<CxlDevice>>(
        &mut self,
        now: Instant,
        lds: &mut [L],
        message: &MemMessage<'_>,
        frame: &Frame<'_>,
        out: &mut Outbox,
    ) {
        let number = usize::from(message.head.ld);
        let Some(ld) = lds.get_mut(number) else {
            self.counts.unknown_ld += 1;
            return refuse_mem(message, out);
        };
        // Shares and limits are for requests; other messages move no memory.
        if message.head.op.class().is_request() && self.schedule.holds(number, true) {
            let mut bytes = [0; LEN_MAX];
            let len = message.emit(&mut bytes).unwrap_or_default();
            let bytes = bytes.get(..len).unwrap_or_default().to_vec();
            if !self.schedule.push(number, Waiting::Mem(bytes), LINE as u64) {
                refuse_mem(message, out);
            }
            return;
        }
        out.set_load(self.schedule.load(number).wire());
        ld.as_mut().core().receive(now, frame, out);
    }

    /// Whether a request has to wait for its turn, or finds no room to wait: then it is answered as an abort.
    fn waits(&mut self, ld: usize, tlp: &Tlp<'_>, out: &mut Outbox) -> bool {
        let is_request =
            !tlp.is_completion() && !matches!(tlp.kind(), Kind::Message { .. } | Kind::Nop);
        if !is_request || !self.schedule.holds(ld, tlp.kind().is_memory()) {
            return false;
        }
        let bytes = tlp.bytes().get(..tlp.len()).unwrap_or_default().to_vec();
        // CA, not UR: the address is valid, the device has no room for the request.
        if !self.schedule.push(ld, Waiting::Tlp(bytes), tlp.access_len())
            && let Some(answer) = Completion::of(tlp, Status::CompleterAbort, Bdf::from_bits(0))
        {
            self.counts.unsent += u64::from(out.send(None, &answer).is_err());
        }
        true
    }

    /// Serves waiting requests whose turn has come.
    fn serve<L: AsMut<CxlDevice>>(&mut self, now: Instant, lds: &mut [L], out: &mut Outbox) {
        self.schedule.sample();
        while let Some((ld, waiting)) = self.schedule.next(now) {
            let content = match &waiting {
                Waiting::Tlp(bytes) => {
                    Tlp::parse(Mode::Flit, bytes).ok().map(|tlp| Received::Tlp(None, tlp))
                }
                Waiting::Mem(bytes) => {
                    MemMessage::parse(bytes).ok().map(|message| Received::Mem(None, message))
                }
            };
            let (Some(device), Some(content)) = (lds.get_mut(ld), content) else {
                continue; // cannot happen: it was parsed when it came
            };
            out.set_prefix(Some(prefix_of(ld)));
            out.set_load(self.schedule.load(ld).wire());
            // The LD looks at neither address.
            let frame = Frame { to: MacAddr::BROADCAST, from: MacAddr::BROADCAST, content };
            device.as_mut().core().receive(now, &frame, out);
        }
        out.set_prefix(None);
    }

    /// Handles a TLP for LD `FFFFh`: requests of the fabric manager are carried out at once.
    fn manage<L: AsMut<CxlDevice>>(
        &mut self,
        now: Instant,
        lds: &mut [L],
        tlp: &Tlp<'_>,
        out: &mut Outbox,
    ) {
        let Ok(packet) = MctpPacket::parse(tlp) else {
            self.counts.not_management += 1;
            return self.refuse(tlp, out);
        };
        self.tunnel.receive(now, 0, Pth::new(Pid::NONE, Pid::NONE), &packet);
        while let Some(event) = self.tunnel.pop_event() {
            let Event::Request { ticket, message, .. } = event else {
                self.counts.not_management += 1;
                continue;
            };
            self.counts.commands += 1;
            // The switch knows the device now: the longer interval is enough.
            self.hello = self.hello.map(|(at, _)| (at, 0));
            let answer = Serving::new(self.identity, &mut self.memory, &mut self.schedule, lds)
                .serve(now, &message);
            let told = answer.map(|answer| self.tunnel.respond(ticket, &answer));
            self.counts.unsent += u64::from(told.is_some_and(|told| told.is_err()));
        }
        self.flush(now, out);
    }

    /// Sends messages of LD `FFFFh`.
    fn flush(&mut self, now: Instant, out: &mut Outbox) {
        out.set_prefix(Some(VendPrefixL0::from_ld_id(FM_LD)));
        while let Some(sent) = self.tunnel.poll(now) {
            self.counts.unsent += u64::from(out.send(None, &sent.repr()).is_err());
        }
        out.set_prefix(None);
    }

    /// Sends a hello to its switch, which then identifies the device. Repeated, as the switch may have been restarted.
    fn say_hello(&mut self, now: Instant, out: &mut Outbox) {
        let Some((_, left)) = self.hello.filter(|(at, _)| *at <= now) else { return };
        let [short, long] = HELLO;
        // Often at first, as the switch's own start may take a moment; seldom later, for a switch that restarts.
        let span = if left > 0 { short } else { long };
        self.hello = Some((now + span, left.saturating_sub(1)));
        let mut message = [0; 16];
        let len = notification(&Request::Event(0), &mut message).unwrap_or_default();
        let message = message.get(..len).unwrap_or_default();
        let told = self.tunnel.notify(Peer::Port(0), MessageType::FmApi, message);
        self.counts.unsent += u64::from(told.is_err());
        self.flush(now, out);
    }

    /// Answers a request with UR; drops one that wants no answer.
    fn refuse(&mut self, tlp: &Tlp<'_>, out: &mut Outbox) {
        if tlp.is_completion() {
            return;
        }
        let answer: Option<TlpRepr<'_>> =
            Completion::of(tlp, Status::UnsupportedRequest, Bdf::from_bits(0));
        if let Some(answer) = answer {
            self.counts.unsent += u64::from(out.send(None, &answer).is_err());
        }
    }
}
