//! Fabric memory of a host or device: the engine with its peers, registrations and transfers, driven by commands.
//!
//! [`FabricMem::begin`] starts a [`MemCommand`], [`FabricMem::pump`] advances everything, and answers are recorded by
//! number. Rights follow from the port that a request came in by. Host memory is served to the port in the request's
//! prefix, and only after that port has connected through its own slot of the mailbox. Statements of a peer are used
//! for two things alone: memory in the same 64 GiB as the mailbox that this host's user named, and fabric memory that
//! this host's user has registered as well.
//!
//! Source: docs/fabric-memory.md; docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §5.5.

mod channel;
mod devices;
mod mailbox;
mod memory;
mod owner;
mod peers;
mod settings;
mod transfers;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use weft_cxl::cxl_host::CxlHost;
use weft_cxl::fabric_mem::{
    Engine, EngineSpec, Error, Handle, MemDesc, MemKind, Memory, Op, PeerId, Place as EnginePlace,
    Segment, Share, Window,
};
use weft_cxl::requester::Done;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Hpa, Pid};
use weft_rpc::Refused;

use self::channel::{Channel, Place, State};
use self::devices::{Device, Devices};
use self::mailbox::{MAILBOX_LEN, SHARES_MAX};
use self::memory::{Memories, NOBODY};
use self::owner::{Owner, Work};
pub use self::settings::{Asked, Limits, Settings, asked_for};
use self::transfers::Transfers;
use crate::endpoint::command::Answer;
use crate::endpoint::event_log::EventLog;
use crate::endpoint::fabric_mem::{
    MemAnswer, MemCommand, MemImport, MemList, MemPeer, MemRange, MemTransfer, MemWindow,
};

/// Refusal of all commands while fabric memory is off.
pub const OFF: &str = "fabric memory is off: start it with enable_use_fabric_mem";
/// First address of the mailbox slots in the host's memory, one slot for each port id.
pub const SLOTS: u64 = 1 << 60;
/// Length of all slots in bytes.
pub const SLOTS_LEN: u64 = MAILBOX_LEN * Pid::COUNT as u64;
/// Place of host memory without a window: no address leads there.
const NOWHERE: Window =
    Window { place: EnginePlace { pid: NOBODY, offset: 1 << 61 }, len: 1 << 60 };
/// Bytes that one entry of a switch's address table covers.
const SEGMENT: u64 = 64 << 30;

/// A command that waits for a connection.
struct Caller {
    number: u64,
    until: Instant,
}

/// The kind of component whose memory the engine moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A host with the devices below it, which shows memory in a window.
    Host,
    /// A device, which shows its memory to no others.
    Device,
}

/// Fabric memory of a host or device.
pub struct FabricMem {
    kind: Kind,
    engine: Engine,
    settings: Settings,
    devices: Devices,
    window: Option<MemWindow>,
    channels: BTreeMap<PeerId, Channel>,
    callers: BTreeMap<PeerId, Caller>,
    transfers: Transfers,
    /// Ports that have accessed the mailbox since the last [`FabricMem::pump`].
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

const fn kind_name(owner: Kind, kind: MemKind) -> &'static str {
    match (owner, kind) {
        (Kind::Host, MemKind::Host) => "host",
        (Kind::Device, MemKind::Host) | (_, MemKind::Device) => "device",
        (_, MemKind::Fabric) => "fabric",
    }
}

fn mem(answer: MemAnswer) -> Answer {
    Answer::Mem(Box::new(answer))
}

impl FabricMem {
    /// Makes fabric memory with nothing registered.
    ///
    /// # Errors
    /// An option is out of range, or two options exclude each other.
    pub fn new(kind: Kind, settings: Settings) -> Result<Self, Error> {
        // One segment of all addresses: the fabric's decoders lead on, not the engine.
        let segments = BTreeMap::from([(NOBODY, Segment { base: Hpa(0), len: u64::MAX })]);
        let options = settings.options.clone();
        let engine = Engine::new(EngineSpec { options, window: NOWHERE, segments })?;
        Ok(Self {
            kind,
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

    /// Whether the window covers this address, so that only this engine's memory is found there.
    pub fn shows(&self, addr: Hpa) -> bool {
        self.window.as_ref().is_some_and(|it| addr.0.wrapping_sub(it.base) < it.len)
    }

    /// Local address of `len` bytes of the window, if port `from` may access them.
    pub fn serve(&self, from: Pid, Hpa(addr): Hpa, len: u64) -> Option<u64> {
        let window = self.window.as_ref()?;
        let offset = addr.checked_sub(window.base)?;
        let end = offset.checked_add(len).filter(|end| *end <= window.len)?;
        if !window.from.is_empty() && !window.from.contains(&from.bits()) {
            return None;
        }
        // Behind the mailbox the engine checks that `from` belongs to a connected peer.
        if offset >= MAILBOX_LEN {
            return self.engine.serve(from, addr, len);
        }
        if end > MAILBOX_LEN {
            return None;
        }
        // A cell, as `Exports::local` has the host shared only; `meet` opens a channel for the port later.
        self.came.borrow_mut().insert(from);
        Some(slot_of(from) + offset)
    }

    /// Time of the next action.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Starts a command.
    ///
    /// # Errors
    /// The reason for a refusal; nothing was done then.
    pub fn begin(
        &mut self,
        now: Instant,
        number: u64,
        command: &MemCommand,
        owner: &mut dyn Owner,
    ) -> Result<Option<Answer>, Refused> {
        self.now = now;
        match command {
            MemCommand::Register { addr, len } => self.register(addr.0, len.0, owner).map(Some),
            MemCommand::Deregister { handle } => {
                let handle = Handle::from_number(*handle);
                self.engine.deregister(handle).map_err(|error| refused(&error))?;
                self.devices.remove(handle);
                Ok(Some(Answer::Done))
            }
            MemCommand::Window { .. } if self.kind == Kind::Device => {
                let text =
                    "a device has no window: others reach what its host registers of its memory";
                Err(Refused::because(text))
            }
            MemCommand::Window { base, len, from } => {
                let window = MemWindow { base: base.0, len: len.0, from: from.clone() };
                self.show(window).map(|()| Some(Answer::Done))
            }
            MemCommand::Listen { mailbox } => self.listen(mailbox.0).map(Some),
            MemCommand::Connect { mailbox, timeout_ms } => {
                if !owner.may_send() {
                    let text = "function 0 may not send requests: its host has not enabled it";
                    return Err(Refused::because(text));
                }
                // 2^32 ms are 49 days: the sum with `now` stays within a u64 of picoseconds.
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
                let begun = self.transfers.begin(now, number, op, transfer, &mut self.engine);
                let begun = begun.map_err(|error| self.explain(&error))?;
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

    fn register(&mut self, addr: u64, len: u64, owner: &mut dyn Owner) -> Result<Answer, Refused> {
        // More would not fit in a half of the mailbox, and peers would miss them.
        if self.engine.usage().registrations >= SHARES_MAX {
            let text = format!("{SHARES_MAX} ranges are registered, and there is no room for more");
            return Err(Refused::because(text));
        }
        let desc = MemDesc { addr, len }.checked().map_err(|error| refused(&error))?;
        // During an enumeration bus numbers change, so no device can be identified.
        let found = Device::at(owner.tree(), desc).filter(|_| !owner.is_enumerating());
        let (fabric, hidden, device) = (self.settings.fabric, SLOTS, found.map(|_| (addr, len)));
        let (engine, mut done) = (&mut self.engine, None);
        owner.own(&mut |own| {
            let memories = Memories { own, fabric, device, hidden };
            let kind = memories.kind(addr, len);
            done = kind.map(|kind| (kind, engine.register(desc, kind, &memories)));
        });
        let (kind, handle) = done.ok_or_else(|| self.no_memory(desc))?;
        let handle = handle.map_err(|error| refused(&error))?;
        if let Some(device) = found.filter(|_| kind == MemKind::Device) {
            self.devices.add(handle, desc, device);
        }
        // The engine has computed where others find it.
        let range = self.ranges().into_iter().find(|range| range.handle == handle.number());
        range
            .map(|range| mem(MemAnswer::Registered(range)))
            .ok_or_else(|| Refused::unavailable("the registration is gone"))
    }

    fn no_memory(&self, MemDesc { addr, len }: MemDesc) -> Refused {
        let text = match self.kind {
            Kind::Host => {
                "expected memory of the host, of a device that it has found, or of its fabric window, all of one kind"
            }
            Kind::Device => {
                "expected memory of the device, by the addresses that its host has given it, or of its fabric window, all of one kind"
            }
        };
        Refused::because(format!("{len:#x} bytes at {addr:#x}: {text}"))
    }

    fn ranges(&self) -> Vec<MemRange> {
        let shown = self.window.is_some();
        let range = |(handle, share): (Handle, Share)| MemRange {
            handle: handle.number(),
            addr: share.mem.addr,
            len: share.mem.len,
            kind: kind_name(self.kind, share.kind).to_owned(),
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
        // Peers use only memory in the segment of the mailbox (`usable`).
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

    /// Refuses transfers that touch a mailbox of this host's connections, which lies in memory that both sides have
    /// registered.
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

    /// The refusal of a transfer; names the device if its memory is gone.
    fn explain(&self, error: &Error) -> Refused {
        let refused = refused(error);
        let Error::Local { addr, .. } = *error else { return refused };
        let Some((handle, device)) = self.devices.lost_at(addr) else { return refused };
        let number = handle.number();
        let message = format!("{}: {device} of handle {number} is gone", refused.message);
        Refused { message, ..refused }
    }

    /// The device was reset: its host starts anew with it, so connections and registrations go.
    pub fn reset(&mut self, log: &mut EventLog) {
        let Ok(peers) = self.engine.reset() else { return };
        self.channels.clear();
        for (_, caller) in core::mem::take(&mut self.callers) {
            log.answer(caller.number, Err(Refused::because("the device was reset")));
        }
        if !peers.is_empty() {
            log.event("fabric_mem", "reset: connections and registrations are gone");
        }
    }

    /// The host has enumerated: takes back registrations of devices that are gone.
    pub fn renewed(&mut self, host: &mut CxlHost, log: &mut EventLog) {
        for (handle, device) in self.devices.gone(host.tree()) {
            let _ = self.engine.revoke(handle);
            let text = format!("{device} is gone, and handle {} with it", handle.number());
            log.event("fabric_mem", text);
        }
        // Only now may peers' requests for memory of devices pass again: the registrations agree with the tree.
        host.know_devices();
    }

    fn listen(&mut self, mailbox: u64) -> Result<Answer, Refused> {
        let place = self.mailbox_at(mailbox)?;
        // Otherwise the channel would write into memory that the user has not offered.
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
        // Time makes the session new after a restart; the low byte keeps connections of one moment apart, and is never
        // 0.
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

    /// Handles the end of a request for a mailbox; false if no mailbox waits for it.
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

    /// Advances mailboxes, transfers and answers; returns the number of requests submitted.
    pub fn pump(&mut self, now: Instant, owner: &mut dyn Owner, log: &mut EventLog) -> usize {
        self.now = now;
        self.meet();
        let mut sent = 0;
        for peer in self.channels.keys().copied().collect::<Vec<_>>() {
            let Some(channel) = self.channels.get_mut(&peer) else { continue };
            let (heard, requests) = channel.advance(now, owner);
            sent += requests;
            if let Some(heard) = heard {
                self.heard(peer, heard, log);
            }
        }
        // After the enumeration another device may be at the address.
        let held = if owner.is_enumerating() { self.devices.ranges() } else { Vec::new() };
        let (fabric, hidden) = (self.settings.fabric, SLOTS);
        let work = Work { fabric, hidden, held, pending_max: self.settings.pending_max };
        let (next, requests) = owner.drive(now, &mut self.engine, work);
        sent += requests;
        for (number, report) in self.transfers.ended(now, &mut self.engine) {
            log.answer(number, Ok(mem(MemAnswer::Transfer(report))));
        }
        self.give_up(now, log);
        let channels = self.channels.values().filter_map(Channel::due);
        let callers = self.callers.values().map(|caller| caller.until);
        self.due = channels.chain(callers).chain(next).min();
        sent
    }

    /// State of everything: window, registrations, peers, transfers.
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
            imports: self.engine.imports(*peer).map(|(mem, hpa)| import(mem, hpa)).collect(),
        };
        // A port that only read the mailbox is not a peer.
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

const fn import(mem: MemDesc, hpa: Hpa) -> MemImport {
    MemImport { addr: mem.addr, len: mem.len, hpa: hpa.0 }
}
