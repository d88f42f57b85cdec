//! Fabric memory of a host: the engine with its peers, registrations and transfers, by commands.
//!
//! Shape: [`FabricMem::begin`] takes a [`MemCommand`]; [`FabricMem::pump`] moves all on; answers go by number.
//! Units: bytes; time as a parameter.
//! Source: docs/fabric-memory.md; docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §5.5.
//!
//! Rights depend on where something came in: host memory is served to the port that a request came from (its prefix), and
//! only once that port has connected through its own slot of the mailbox. What a peer says of itself is used for two things
//! alone: memory in the same 64 GiB as the mailbox that this host's user named, and fabric memory that this host's user has
//! registered as well.

mod channel;
mod devices;
mod mailbox;
mod memory;
mod settings;
mod transfers;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use weft_cxl::cxl_host::CxlHost;
use weft_cxl::fabric_mem::{
    Engine, EngineSpec, Error, Handle, MemDesc, MemKind, Message, Op, PeerId, Place as EnginePlace,
    Segment, Share, Window,
};
use weft_cxl::requester::Done;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Hpa, Pid};
use weft_rpc::Refused;

use self::channel::{Channel, Heard, Place, State};
use self::devices::{Device, Devices};
use self::mailbox::{MAILBOX_LEN, MailShare, SHARES_MAX};
use self::memory::{Counting, Memories, NOBODY};
pub use self::settings::{Limits, Settings};
use self::transfers::Transfers;
use crate::endpoint::command::Answer;
use crate::endpoint::event_log::EventLog;
use crate::endpoint::fabric_mem::{
    MemAnswer, MemCommand, MemImport, MemList, MemPeer, MemRange, MemTransfer, MemWindow,
};

/// Why commands for fabric memory are refused where it is off.
pub const OFF: &str = "fabric memory is off: start the host with enable_use_fabric_mem";
/// First address of the mailbox's slots in the host's memory, a slot for each port.
pub const SLOTS: u64 = 1 << 60;
/// Bytes of all slots.
pub const SLOTS_LEN: u64 = MAILBOX_LEN * Pid::COUNT as u64;
/// Where host memory is shown that nobody can reach: there is no window yet.
const NOWHERE: Window =
    Window { place: EnginePlace { pid: NOBODY, offset: 1 << 61 }, len: 1 << 60 };
/// What the address table of a switch tells apart.
const SEGMENT: u64 = 64 << 30;

/// Who waits for a connection.
struct Caller {
    number: u64,
    until: Instant,
}

/// Fabric memory of a host.
pub struct FabricMem {
    engine: Engine,
    settings: Settings,
    devices: Devices,
    window: Option<MemWindow>,
    channels: BTreeMap<PeerId, Channel>,
    callers: BTreeMap<PeerId, Caller>,
    transfers: Transfers,
    /// Ports whose requests have come to the mailbox since this was last looked at.
    came: RefCell<BTreeSet<Pid>>,
    peers: u32,
    now: Instant,
    due: Option<Instant>,
}

fn refused(error: &Error) -> Refused {
    match error {
        Error::Extent { .. } | Error::Empty => Refused::bad_request(error.to_string()),
        _ => Refused::because(error.to_string()),
    }
}

const fn kind_name(kind: MemKind) -> &'static str {
    match kind {
        MemKind::Host => "host",
        MemKind::Device => "device",
        MemKind::Fabric => "fabric",
    }
}

fn mem(answer: MemAnswer) -> Answer {
    Answer::Mem(Box::new(answer))
}

impl FabricMem {
    /// Fabric memory with nothing registered.
    ///
    /// # Errors
    /// An option is out of range, or two exclude each other.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let segments = BTreeMap::from([(NOBODY, Segment { base: Hpa(0), len: u64::MAX })]);
        let options = settings.options.clone();
        let engine = Engine::new(EngineSpec { options, window: NOWHERE, segments })?;
        Ok(Self {
            engine,
            settings,
            devices: Devices::default(),
            window: None,
            channels: BTreeMap::new(),
            callers: BTreeMap::new(),
            transfers: Transfers::default(),
            came: RefCell::default(),
            peers: 0,
            now: Instant::ZERO,
            due: None,
        })
    }

    /// Whether others find nothing but this engine's memory at an address.
    pub fn shows(&self, addr: Hpa) -> bool {
        self.window.as_ref().is_some_and(|it| addr.0.wrapping_sub(it.base) < it.len)
    }

    /// The address here of `len` bytes of the window that port `from` may reach.
    pub fn serve(&self, from: Pid, Hpa(addr): Hpa, len: u64) -> Option<u64> {
        let window = self.window.as_ref()?;
        let offset = addr.checked_sub(window.base)?;
        let end = offset.checked_add(len).filter(|end| *end <= window.len)?;
        if !window.from.is_empty() && !window.from.contains(&from.bits()) {
            return None;
        }
        if offset >= MAILBOX_LEN {
            return self.engine.serve(from, addr, len);
        }
        if end > MAILBOX_LEN {
            return None;
        }
        self.came.borrow_mut().insert(from);
        Some(slot_of(from) + offset)
    }

    /// When something is due next.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Takes a command.
    ///
    /// # Errors
    /// Why not; nothing was done then.
    pub fn begin(
        &mut self,
        now: Instant,
        number: u64,
        command: &MemCommand,
        host: &mut CxlHost,
    ) -> Result<Option<Answer>, Refused> {
        self.now = now;
        match command {
            MemCommand::Register { addr, len } => self.register(addr.0, len.0, host).map(Some),
            MemCommand::Deregister { handle } => {
                let handle = Handle::from_number(*handle);
                self.engine.deregister(handle).map_err(|error| refused(&error))?;
                self.devices.remove(handle);
                Ok(Some(Answer::Done))
            }
            MemCommand::Window { base, len, from } => {
                let window = MemWindow { base: base.0, len: len.0, from: from.clone() };
                self.show(window).map(|()| Some(Answer::Done))
            }
            MemCommand::Listen { mailbox } => self.listen(mailbox.0).map(Some),
            MemCommand::Connect { mailbox, timeout_ms } => {
                let until = now + Span::from_ms((*timeout_ms).min(1 << 32));
                self.connect(mailbox.0, Caller { number, until }).map(|()| None)
            }
            MemCommand::Disconnect { peer } => {
                self.disconnect(PeerId(*peer)).map(|()| Some(Answer::Done))
            }
            MemCommand::Read(transfer) | MemCommand::Write(transfer) => {
                self.spare_mailboxes(transfer)?;
                let is_read = matches!(command, MemCommand::Read(_));
                let op = if is_read { Op::Read } else { Op::Write };
                let begun = self.transfers.begin((now, number), op, transfer, &mut self.engine);
                let begun = begun.map_err(|refused| self.explain(transfer, refused))?;
                Ok(begun.map(|report| mem(MemAnswer::Transfer(report))))
            }
            MemCommand::Status { transfer } => {
                self.on()?;
                self.transfers.refresh(now, &mut self.engine);
                let told = self.transfers.tell(now, *transfer)?;
                Ok(Some(mem(MemAnswer::Transfer(told))))
            }
            MemCommand::List {} => Ok(Some(mem(MemAnswer::List(self.list())))),
            MemCommand::Finalize {} => self.finalize().map(|()| Some(Answer::Done)),
        }
    }

    fn on(&self) -> Result<(), Refused> {
        self.engine.shares().map(drop).map_err(|error| refused(&error))
    }

    fn register(&mut self, addr: u64, len: u64, host: &mut CxlHost) -> Result<Answer, Refused> {
        if self.engine.usage().registrations >= SHARES_MAX {
            let text = format!("{SHARES_MAX} ranges are registered, and there is no room for more");
            return Err(Refused::because(text));
        }
        let desc = MemDesc { addr, len }.checked().map_err(|error| refused(&error))?;
        let device = Device::at(host.tree(), desc).filter(|_| !host.is_enumerating());
        let (_, own) = host.uio(0);
        let known = device.map(|_| (addr, len));
        let (fabric, hidden) = (self.settings.fabric, SLOTS);
        let memories = Memories { own, fabric, device: known, hidden };
        let kind = weft_cxl::fabric_mem::Memory::kind(&memories, addr, len).ok_or_else(|| {
            let text = "expected memory of the host, of a device that it has found, or of its fabric window, all of one kind";
            Refused::because(format!("{len:#x} bytes at {addr:#x}: {text}"))
        })?;
        let handle = self.engine.register(desc, kind, &memories);
        let handle = handle.map_err(|error| refused(&error))?;
        if let Some(device) = device.filter(|_| kind == MemKind::Device) {
            self.devices.add(handle, desc, device);
        }
        let range = self.ranges().into_iter().find(|range| range.handle == handle.number());
        range
            .map(|range| mem(MemAnswer::Registered(range)))
            .ok_or_else(|| Refused::unavailable("the registration is gone"))
    }

    fn ranges(&self) -> Vec<MemRange> {
        let shown = self.window.is_some();
        let range = |(handle, share): (Handle, Share)| MemRange {
            handle: handle.number(),
            addr: share.mem.addr,
            len: share.mem.len,
            kind: kind_name(share.kind).to_owned(),
            hpa: (shown || share.kind == MemKind::Fabric).then_some(share.place.offset),
        };
        self.engine.registrations().map(range).collect()
    }

    fn show(&mut self, window: MemWindow) -> Result<(), Refused> {
        let MemWindow { base, len, .. } = window;
        if len == 0 {
            self.window = None;
            return Ok(());
        }
        if !base.is_multiple_of(4_096) || len <= MAILBOX_LEN || base.checked_add(len).is_none() {
            let text = format!(
                "expected a window of more than {MAILBOX_LEN} bytes at a multiple of 4096, found {len:#x} bytes at {base:#x}"
            );
            return Err(Refused::bad_request(text));
        }
        if base / SEGMENT != (base + (len - 1)) / SEGMENT {
            return Err(Refused::bad_request("a window lies within one segment of 64 GiB"));
        }
        let place = EnginePlace { pid: NOBODY, offset: base + MAILBOX_LEN };
        let shown = self.engine.set_window(Window { place, len: len - MAILBOX_LEN });
        shown.map_err(|error| refused(&error))?;
        self.window = Some(window);
        Ok(())
    }

    fn next_peer(&mut self) -> PeerId {
        self.peers += 1;
        PeerId(self.peers)
    }

    fn mailbox_at(&self, mailbox: u64) -> Result<Place, Refused> {
        self.on()?;
        let (base, len) = self.settings.fabric;
        let end = mailbox.checked_add(MAILBOX_LEN);
        let is_inside = mailbox >= base && end.is_some_and(|end| end <= base.saturating_add(len));
        if !mailbox.is_multiple_of(4_096) || !is_inside {
            let text = format!(
                "expected {MAILBOX_LEN} bytes of the fabric window at a multiple of 4096, found {mailbox:#x}"
            );
            return Err(Refused::bad_request(text));
        }
        let place = Place::Fabric(Hpa(mailbox));
        if let Some((peer, _)) = self.channels.iter().find(|(_, it)| it.place == place) {
            return Err(refused(&Error::Connected(*peer)));
        }
        Ok(place)
    }

    /// A transfer does not touch the mailboxes of this host's connections, which lie in memory that both have registered.
    fn spare_mailboxes(&self, transfer: &MemTransfer) -> Result<(), Refused> {
        let mailboxes = self.channels.values().filter_map(|channel| match channel.place {
            Place::Fabric(Hpa(at)) => Some(at),
            Place::Slot(..) => None,
        });
        let mailboxes: Vec<u64> = mailboxes.collect();
        for (at, op) in transfer.ops.iter().enumerate() {
            for (which, begin) in [("remote", op.remote.0), ("local", op.local.0)] {
                let end = begin.saturating_add(op.len.0);
                let over = |mailbox: &&u64| begin < **mailbox + MAILBOX_LEN && **mailbox < end;
                if let Some(mailbox) = mailboxes.iter().find(over) {
                    let text = format!(
                        "operation {at}: the {which} range covers the mailbox of a connection at {mailbox:#x}"
                    );
                    return Err(Refused::because(text));
                }
            }
        }
        Ok(())
    }

    /// A refusal of a transfer, with what became of memory that it names.
    fn explain(&self, transfer: &MemTransfer, refused: Refused) -> Refused {
        let lost = transfer.ops.iter().find_map(|op| self.devices.lost_at(op.local.0));
        let Some((handle, device)) = lost.filter(|_| refused.message.contains("local range"))
        else {
            return refused;
        };
        let number = handle.number();
        let message = format!("{}: {device} of handle {number} is gone", refused.message);
        Refused { message, ..refused }
    }

    /// The host has looked what is below it: what is registered of devices that are not there any more is taken back.
    pub fn renewed(&mut self, host: &mut CxlHost, log: &mut EventLog) {
        for (handle, device) in self.devices.gone(host.tree()) {
            let _ = self.engine.revoke(handle);
            let text = format!("{device} is gone, and handle {} with it", handle.number());
            log.event("fabric_mem", text);
        }
        host.know_devices();
    }

    fn listen(&mut self, mailbox: u64) -> Result<Answer, Refused> {
        let place = self.mailbox_at(mailbox)?;
        if !self.is_granted(mailbox, MAILBOX_LEN) {
            let text = format!("register the fabric memory of the mailbox at {mailbox:#x} first");
            return Err(Refused::because(text));
        }
        let peer = self.next_peer();
        let channel = Channel::new(place, self.now, self.settings.silence, None);
        self.channels.insert(peer, channel);
        Ok(mem(MemAnswer::Peer(peer.0)))
    }

    fn connect(&mut self, mailbox: u64, caller: Caller) -> Result<(), Refused> {
        let place = self.mailbox_at(mailbox)?;
        let peer = self.next_peer();
        self.engine.connect(peer).map_err(|error| refused(&error))?;
        let session = (self.now.as_ns() << 8) | u64::from(peer.0 % 255 + 1);
        let hello = Some((session, self.own_shares(false)));
        let channel = Channel::new(place, self.now, self.settings.silence, hello);
        self.channels.insert(peer, channel);
        self.callers.insert(peer, caller);
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) -> Result<(), Refused> {
        self.on()?;
        let Some(channel) = self.channels.get_mut(&peer) else {
            return Err(refused(&Error::NotConnected(peer)));
        };
        if !self.engine.is_connected(peer) && matches!(channel.place, Place::Slot(..)) {
            return Err(refused(&Error::NotConnected(peer)));
        }
        let _ = self.engine.disconnect(peer); // who only listens is not connected
        channel.close(self.now, channel.session());
        Ok(())
    }

    fn finalize(&mut self) -> Result<(), Refused> {
        let peers = self.engine.finalize().map_err(|error| refused(&error))?;
        for peer in peers {
            if let Some(channel) = self.channels.get_mut(&peer) {
                channel.close(self.now, channel.session());
            }
        }
        self.devices.clear();
        self.window = None;
        Ok(())
    }

    /// Whether this host's user has registered all of a range of fabric memory.
    fn is_granted(&self, hpa: u64, len: u64) -> bool {
        self.engine.registrations().any(|(_, Share { mem, kind, .. })| {
            let within = hpa.checked_sub(mem.addr).and_then(|from| from.checked_add(len));
            kind == MemKind::Fabric && within.is_some_and(|end| end <= mem.len)
        })
    }

    /// What is said of own registrations; host memory only to who can reach the window.
    fn own_shares(&self, with_host: bool) -> Vec<MailShare> {
        let all = self.engine.registrations().map(|(_, share)| share);
        let share = |Share { mem, kind, place }: Share| MailShare {
            addr: mem.addr,
            len: mem.len,
            hpa: place.offset,
            fabric: kind == MemKind::Fabric,
        };
        let shown = |share: &MailShare| share.fabric || with_host && self.window.is_some();
        all.map(share).filter(shown).collect()
    }

    /// What of a peer's shares is used.
    fn usable(&self, channel: &Channel, shares: &[MailShare]) -> Vec<Share> {
        // Fabric memory for the mailbox: whoever was granted it may have written there.
        let segment = match channel.place {
            Place::Fabric(Hpa(at)) if channel.connects && !self.is_granted(at, MAILBOX_LEN) => {
                Some(at / SEGMENT)
            }
            _ => None,
        };
        let is_used = |it: &&MailShare| {
            let last = it.hpa.saturating_add(it.len.saturating_sub(1));
            let there = Some(it.hpa / SEGMENT) == segment && Some(last / SEGMENT) == segment;
            if it.fabric { it.addr == it.hpa && self.is_granted(it.hpa, it.len) } else { there }
        };
        let share = |it: &MailShare| Share {
            mem: MemDesc { addr: it.addr, len: it.len },
            kind: if it.fabric { MemKind::Fabric } else { MemKind::Host },
            place: EnginePlace { pid: NOBODY, offset: it.hpa },
        };
        shares.iter().filter(is_used).map(share).collect()
    }

    fn heard(&mut self, peer: PeerId, heard: Heard, log: &mut EventLog) {
        let Some(channel) = self.channels.get(&peer) else { return };
        let (pid, connects) = (channel.pid().unwrap_or(NOBODY), channel.connects);
        let now = self.now;
        match heard {
            Heard::Hello(session, shares) => {
                let shares = self.usable(channel, &shares);
                let own = self.own_shares(channel.pid().is_some());
                let taken = self.engine.receive(peer, &Message::Hello { pid, shares });
                let Some(channel) = self.channels.get_mut(&peer) else { return };
                match taken {
                    Ok(_) => channel.welcome(now, session, own),
                    Err(_) => channel.close(now, session),
                }
                let text = taken
                    .map_or_else(|e| e.to_string(), |_| format!("peer {} is connected", peer.0));
                log.event("fabric_mem", text);
            }
            Heard::Welcome(shares) => {
                let shares = self.usable(channel, &shares);
                let taken = self.engine.receive(peer, &Message::Welcome { pid, shares });
                let Some(channel) = self.channels.get_mut(&peer) else { return };
                match taken {
                    Ok(_) => channel.connected(now),
                    Err(_) => channel.close(now, channel.session()),
                }
                let answer = taken.map(|_| mem(MemAnswer::Peer(peer.0)));
                self.answer(peer, answer.map_err(|error| refused(&error)), log);
            }
            Heard::Goodbye => {
                let _ = self.engine.receive(peer, &Message::Goodbye);
                self.over(peer, connects, "it said goodbye", log);
            }
            Heard::Gone(why) => {
                let _ = self.engine.peer_lost(peer);
                self.over(peer, connects, &why, log);
            }
            Heard::Over => {
                let _ = self.engine.disconnect(peer);
                self.channels.remove(&peer);
                self.answer(peer, Err(Refused::because("disconnected")), log);
            }
        }
    }

    fn over(&mut self, peer: PeerId, connects: bool, why: &str, log: &mut EventLog) {
        log.event("fabric_mem", format!("peer {} is gone: {why}", peer.0));
        match self.channels.get_mut(&peer) {
            Some(channel) if !connects => channel.listen(),
            _ => drop(self.channels.remove(&peer)),
        }
        let text = format!("the peer does not connect: {why}");
        self.answer(peer, Err(Refused::because(text)), log);
    }

    fn answer(&mut self, peer: PeerId, answer: Result<Answer, Refused>, log: &mut EventLog) {
        if let Some(caller) = self.callers.remove(&peer) {
            log.answer(caller.number, answer);
        }
    }

    /// Takes the end of a request for a mailbox; false if it is none.
    pub fn take(&mut self, done: &Done, log: &mut EventLog) -> bool {
        let Some((peer, channel)) = self.channels.iter_mut().find(|(_, it)| it.waits_for(done.op))
        else {
            return false;
        };
        let (peer, heard) = (*peer, channel.ended(self.now, done.result.clone()));
        if let Some(heard) = heard {
            self.heard(peer, heard, log);
        }
        true
    }

    /// Moves mailboxes, transfers and answers on; how many requests it has submitted.
    pub fn pump(&mut self, now: Instant, host: &mut CxlHost, log: &mut EventLog) -> usize {
        self.now = now;
        self.meet();
        let mut sent = 0;
        for peer in self.channels.keys().copied().collect::<Vec<_>>() {
            let Some(channel) = self.channels.get_mut(&peer) else { continue };
            let (heard, requests) = channel.advance(now, host);
            sent += requests;
            if let Some(heard) = heard {
                self.heard(peer, heard, log);
            }
        }
        // What is at an address of a device may be another one when this is done.
        let held = if host.is_enumerating() { self.devices.ranges() } else { Vec::new() };
        let (port, own) = host.uio(self.settings.pending_max);
        let mut port = Counting { port, sent: 0, held };
        let (fabric, hidden) = (self.settings.fabric, SLOTS);
        let mut memories = Memories { own, fabric, device: None, hidden };
        let next = self.engine.poll(now, &mut port, &mut memories).unwrap_or_default();
        sent += port.sent;
        for (number, report) in self.transfers.ended(now, &mut self.engine) {
            log.answer(number, Ok(mem(MemAnswer::Transfer(report))));
        }
        self.give_up(now, log);
        let channels = self.channels.values().filter_map(Channel::due);
        let callers = self.callers.values().map(|caller| caller.until);
        self.due = channels.chain(callers).chain(next).min();
        sent
    }

    /// A mailbox for each port that has come to the window.
    fn meet(&mut self) {
        for pid in core::mem::take(self.came.get_mut()) {
            if !self.channels.values().any(|it| it.pid() == Some(pid)) {
                let peer = self.next_peer();
                let place = Place::Slot(pid, slot_of(pid));
                let channel = Channel::new(place, self.now, self.settings.silence, None);
                self.channels.insert(peer, channel);
            }
        }
    }

    /// Ends connections that are not made in time.
    fn give_up(&mut self, now: Instant, log: &mut EventLog) {
        let late = self.callers.iter().filter(|(_, caller)| caller.until <= now);
        for peer in late.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            let _ = self.engine.disconnect(peer);
            let failure = self.channels.remove(&peer).and_then(|channel| channel.failure);
            let why = failure.map_or_else(
                || "nobody answers in the mailbox".to_owned(),
                |failure| format!("the mailbox was {failure}"),
            );
            self.answer(
                peer,
                Err(Refused::unavailable(format!("not connected in time: {why}"))),
                log,
            );
        }
    }

    /// All that there is.
    pub fn list(&self) -> MemList {
        let usage = self.engine.usage();
        let peer = |(peer, channel): (&PeerId, &Channel)| MemPeer {
            peer: peer.0,
            state: channel.state.name().to_owned(),
            mailbox: match channel.place {
                Place::Fabric(Hpa(at)) => at,
                Place::Slot(..) => self.window.as_ref().map_or(0, |window| window.base),
            },
            pid: channel.pid().map(Pid::bits),
            imports: self.engine.imports(*peer).map(import).collect(),
        };
        // A port that only looked at the mailbox is no peer.
        let is_peer =
            |(_, it): &(&PeerId, &Channel)| it.pid().is_none() || it.state == State::Connected;
        MemList {
            window: self.window.clone(),
            registrations: self.ranges(),
            peers: self.channels.iter().filter(is_peer).map(peer).collect(),
            transfers: self.transfers.list(self.now),
            streams: usage.streams,
            requests: usage.tags,
            unexpected: self.engine.unexpected(),
        }
    }
}

fn slot_of(pid: Pid) -> u64 {
    SLOTS + MAILBOX_LEN * u64::from(pid.bits())
}

const fn import((mem, hpa): (MemDesc, Hpa)) -> MemImport {
    MemImport { addr: mem.addr, len: mem.len, hpa: hpa.0 }
}
