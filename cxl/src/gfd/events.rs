//! Enhanced event notifications: events, their receivers, and the rate at which they are sent.
//!
//! An [`Event`] goes into [`Events`], which has one queue of [`Notice`]s for the FM (0107) and one for hosts (0108,
//! GAM).
//!
//! The pages set no limit. Here, for each receiver, requester, type and trigger (and group, for changed lists of
//! extents), at most one notice waits, and of those caused by requests at most one is raised every [`HOLD`]. Others
//! like it are counted and not sent. A full queue drops the newest, counted.
//!
//! Source: docs/spec/wire-formats.md §4.6 ("Notifications"); CXL 3.1 sections 7.7.2.7 and 8.2.9.2.

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Dpa, Hpa, Pid};

use super::protect::GrpId;

/// Least time between two notices that differ in nothing but address and time.
pub const HOLD: Span = Span::from_ms(1);
/// Most notices in a queue.
pub const QUEUE_MAX: usize = 1_024;
/// Bytes of a payload for the FM (0107).
pub const FM_LEN: usize = 0x28;
/// Bytes of a payload for a host: an entry of its GAM buffer.
pub const HOST_LEN: usize = 0x20;

/// Type of a notification, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// No event (no-op).
    NoOp = 0,
    /// A record of the standard event log.
    Standard = 1,
    /// A request was refused; the trigger says by which check.
    AccessError = 2,
    /// A request that the device does not serve.
    UnrecognisedRequest = 3,
    /// A packet that the device did not expect: a completion, or for another PID.
    UnexpectedPacket = 4,
    /// A request whose fields do not fit together.
    InvalidInput = 5,
    /// Persistent memory was not flushed.
    FlushFailed = 6,
    /// A request could not be carried out.
    Failure = 7,
    /// A request could not be carried out, and the device cannot go on.
    FatalFailure = 8,
    /// Health of the device changed.
    Health = 9,
    /// The list of a group's extents changed.
    ExtentsChanged = 10,
}

impl Kind {
    /// Bit of the FM's event bitmap: 0 info, 1 warning, 2 failure, 3 fatal, 4 dynamic capacity.
    #[must_use]
    pub const fn bitmap(self) -> u16 {
        match self {
            Self::NoOp | Self::Standard | Self::Health => 1,
            Self::AccessError
            | Self::UnrecognisedRequest
            | Self::UnexpectedPacket
            | Self::InvalidInput => 1 << 1,
            Self::FlushFailed | Self::Failure => 1 << 2,
            Self::FatalFailure => 1 << 3,
            Self::ExtentsChanged => 1 << 4,
        }
    }
}

/// An event at a G-FAM device that is to be notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    /// Trigger bits of the type.
    pub trigger: u8,
    /// Requester, or, when `by_request` is not set, the PID that it concerns.
    pub rpid: Pid,
    /// Whether a request caused it.
    pub by_request: bool,
    /// Address in the device.
    pub dpa: Option<Dpa>,
    /// Address as the requester knows it.
    pub hpa: Option<Hpa>,
    /// Group; for the FM only, never sent to hosts (§4.6).
    pub group: Option<GrpId>,
    /// Opcode of the request, 4 bits.
    pub opcode: Option<u8>,
}

/// An event on its way to one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    pub event: Event,
    /// Event handle: number of this notice; for the FM only.
    pub handle: u16,
    /// Time of the event, nanoseconds since start.
    pub at_ns: u64,
}

fn put<const N: usize>(payload: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = payload.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

impl Notice {
    /// Flags that both payloads have: bits 2 DPA, 3 HPA, 5 opcode.
    fn flags(&self) -> u16 {
        let Event { dpa, hpa, opcode, .. } = self.event;
        u16::from(dpa.is_some()) << 2
            | u16::from(hpa.is_some()) << 3
            | u16::from(opcode.is_some()) << 5
    }

    /// Payload of 0107 for the FM, from the device `pid`.
    #[must_use]
    pub fn for_fm(&self, pid: Pid) -> [u8; FM_LEN] {
        let event = &self.event;
        let flags = u16::from(event.by_request) << 1 | u16::from(event.group.is_some()) << 4;
        let mut payload = [0; FM_LEN];
        put(&mut payload, 0, pid.bits().to_le_bytes());
        put(&mut payload, 2, event.kind.bitmap().to_le_bytes());
        put(&mut payload, 4, [event.kind as u8, event.trigger]);
        put(&mut payload, 6, event.rpid.bits().to_le_bytes());
        put(&mut payload, 8, event.dpa.unwrap_or_default().0.to_le_bytes());
        put(&mut payload, 0x10, event.hpa.unwrap_or_default().0.to_le_bytes());
        put(&mut payload, 0x18, event.group.map_or(0, GrpId::number).to_le_bytes());
        put(&mut payload, 0x1A, [event.opcode.unwrap_or(0) & 0xF]);
        put(&mut payload, 0x1C, (self.flags() | flags).to_le_bytes());
        put(&mut payload, 0x1E, self.handle.to_le_bytes());
        put(&mut payload, 0x20, self.at_ns.to_le_bytes());
        payload
    }

    /// Payload of 0108 for the host of the requester, and entry of its GAM buffer.
    #[must_use]
    pub fn for_host(&self, pid: Pid) -> [u8; HOST_LEN] {
        let event = &self.event;
        let mut payload = [0; HOST_LEN];
        put(&mut payload, 0, pid.bits().to_le_bytes());
        put(&mut payload, 2, [event.kind as u8, event.opcode.unwrap_or(0) & 0xF]);
        // Bit 1 is hardwired to 1 for hosts (§4.6).
        put(&mut payload, 4, (self.flags() | 1 << 1).to_le_bytes());
        put(&mut payload, 6, event.rpid.bits().to_le_bytes());
        put(&mut payload, 8, event.dpa.unwrap_or_default().0.to_le_bytes());
        put(&mut payload, 0x10, event.hpa.unwrap_or_default().0.to_le_bytes());
        put(&mut payload, 0x18, self.at_ns.to_le_bytes());
        payload
    }
}

/// Key of a notice: notices with the same key are alike.
type Key = (u16, Kind, u8, u16);

/// Notices for one kind of receiver, FM or hosts.
#[derive(Clone, Debug, Default)]
struct Queue {
    waiting: VecDeque<Notice>,
    seen: BTreeMap<Key, (bool, Instant)>, // one waits; until when no other is raised
    alike: u64,
    lost: u64,
}

fn key(event: &Event) -> Key {
    // Changes of different lists are different news; among refusals the group makes no difference.
    let group = event.group.filter(|_| event.kind == Kind::ExtentsChanged);
    (event.rpid.bits(), event.kind, event.trigger, group.map_or(0, GrpId::number))
}

impl Queue {
    fn push(&mut self, now: Instant, notice: Notice) {
        let slot = self.seen.entry(key(&notice.event)).or_insert((false, now));
        let wait = slot.1.since(now); // more than HOLD ahead means long past: the clock has wrapped
        if slot.0 || (wait > Span::ZERO && wait <= HOLD) {
            self.alike += 1;
        } else if self.waiting.len() >= QUEUE_MAX {
            self.lost += 1;
        } else {
            // Only requests can come at line rate. A change of extents is raised each time the last notice was fetched,
            // as its reader would otherwise miss the last change.
            let hold = if notice.event.by_request { HOLD } else { Span::ZERO };
            *slot = (true, now + hold);
            self.waiting.push_back(notice);
        }
    }

    fn pop(&mut self) -> Option<Notice> {
        let notice = self.waiting.pop_front()?;
        if let Some(slot) = self.seen.get_mut(&key(&notice.event)) {
            slot.0 = false;
        }
        Some(notice)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Events {
    fm: Queue,
    hosts: Queue,
    handle: u16,
}

impl Events {
    /// Queues `event` for the FM, and with `notify` also for the host of its requester.
    pub fn raise(&mut self, now: Instant, event: Event, notify: bool) {
        // Never 0 for the FM: `raise_at_host` uses 0 for notices that have no handle.
        self.handle = self.handle.wrapping_add(1).max(1);
        let notice = Notice { event, handle: self.handle, at_ns: now.as_ns() };
        self.fm.push(now, notice);
        if notify {
            self.hosts.push(now, notice);
        }
    }

    /// Queues `event` for one host, and not for the FM.
    pub fn raise_at_host(&mut self, now: Instant, event: Event) {
        self.hosts.push(now, Notice { event, handle: 0, at_ns: now.as_ns() });
    }

    /// The next notice for the FM.
    pub fn pop_fm(&mut self) -> Option<Notice> {
        self.fm.pop()
    }

    /// The next notice for a host, the one of its event's RPID.
    pub fn pop_host(&mut self) -> Option<Notice> {
        self.hosts.pop()
    }

    /// Number of notices not sent because one like it waits or was just sent: for the FM, for hosts.
    #[must_use]
    pub const fn alike(&self) -> (u64, u64) {
        (self.fm.alike, self.hosts.alike)
    }

    /// Number of notices dropped by a full queue: for the FM, for hosts.
    #[must_use]
    pub const fn lost(&self) -> (u64, u64) {
        (self.fm.lost, self.hosts.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(rpid: u16, trigger: u8) -> Event {
        Event {
            kind: Kind::AccessError,
            trigger,
            rpid: Pid::from_low_bits(rpid),
            by_request: true,
            dpa: Some(Dpa(0x1122_3344_5566_7788)),
            hpa: Some(Hpa(0x99)),
            group: GrpId::new(0x21),
            opcode: Some(0xB),
        }
    }

    #[test]
    fn payloads_have_their_fields_where_the_page_says() {
        let notice = Notice { event: event(0x123, 8), handle: 0x4567, at_ns: 0x0102_0304 };
        let fm = notice.for_fm(Pid::from_low_bits(0xABC));
        let want = [
            0xBC, 0x0A, 2, 0, 2, 8, 0x23, 0x01, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
            0x99, 0, 0, 0, 0, 0, 0, 0, 0x21, 0, 0xB, 0, 0b11_1110, 0, 0x67, 0x45, 4, 3, 2, 1, 0, 0,
            0, 0,
        ];
        assert_eq!(fm, want);
        let host = notice.for_host(Pid::from_low_bits(0xABC));
        let want = [
            0xBC, 0x0A, 2, 0xB, 0b10_1110, 0, 0x23, 0x01, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22,
            0x11, 0x99, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0,
        ];
        assert_eq!(host, want);
        let bare = Event { dpa: None, hpa: None, group: None, opcode: None, ..event(1, 1) };
        let bare = Notice { event: Event { by_request: false, ..bare }, ..notice };
        assert_eq!(bare.for_fm(Pid::NONE)[0x1C..0x1E], [0, 0]);
        assert_eq!(bare.for_host(Pid::NONE)[4..6], [2, 0]);
    }

    #[test]
    fn alike_ones_wait_for_their_turn() {
        let mut events = Events::default();
        for now in [Instant::ZERO, Instant::from_ps(u64::MAX - 5)] {
            events.raise(now, event(1, 8), true);
            events.raise(now, event(1, 8), true);
            events.raise(now, event(1, 4), false);
            events.raise(now, event(2, 8), false);
            let triggers: Vec<_> = core::iter::from_fn(|| events.pop_fm())
                .map(|notice| (notice.event.rpid.bits(), notice.event.trigger))
                .collect();
            assert_eq!(triggers, [(1, 8), (1, 4), (2, 8)]);
            assert!(events.pop_host().is_some() && events.pop_host().is_none());
            let soon = now + (Span::from_ns(999_999));
            events.raise(soon, event(1, 8), true);
            assert!(events.pop_fm().is_none(), "taken, but within the hold");
            events.raise(now + HOLD, event(1, 8), true);
            assert!(events.pop_fm().is_some() && events.pop_host().is_some());
        }
        assert_eq!((events.alike(), events.lost()), ((4, 4), (0, 0)));
    }

    /// Each change of a list reaches its reader: it is raised again once the last notice was fetched.
    #[test]
    fn changes_of_lists_are_not_held_back() {
        let mut events = Events::default();
        let change = |group| Event {
            kind: Kind::ExtentsChanged,
            by_request: false,
            group: GrpId::new(group),
            ..event(9, 0)
        };
        for _ in 0..2 {
            for group in [1, 2, 2] {
                events.raise(Instant::ZERO, change(group), false);
            }
            let told = [events.pop_fm(), events.pop_fm(), events.pop_fm()];
            let groups = told.map(|notice| notice.and_then(|notice| notice.event.group));
            assert_eq!(groups, [GrpId::new(1), GrpId::new(2), None]);
        }
    }

    #[test]
    fn a_full_queue_loses_the_newest_and_counts() {
        let mut events = Events::default();
        for rpid in 0..2_000 {
            events.raise(Instant::ZERO, event(rpid, 1), false);
        }
        assert_eq!(events.lost(), (2_000 - QUEUE_MAX as u64, 0));
        assert_eq!(events.pop_fm().map(|notice| notice.event.rpid.bits()), Some(0));
        events.raise(Instant::ZERO, event(1_999, 1), false);
        assert_eq!(core::iter::from_fn(|| events.pop_fm()).count(), QUEUE_MAX);
    }
}
