//! The sending side: single frames leave by the ring, one call for all; segments of one TCP stream leave joined, as a
//! message, or by a tap if the stream is in a tunnel.
//!
//! The caller hands over frames from the front of a burst and learns how many the kernel took, and why it refused the
//! next one.
//!
//! Source: packet(7); docs/spec/pipeline.md §11.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;

use super::super::join::{Joint, Segment};
use super::super::super_frames::SuperFrame;
use super::super::sys;
use super::super::vnet::{Lead, VnetHeader};
use super::messages::{Outgoing, TxMessages};
use super::slots::{Settled, TxSlots};
use super::tunnel_tap::TunnelTap;
use crate::batch::BURST;
use crate::desc::{Desc, Flag};
use crate::pool::{Bufs, PartialCsum};
use crate::port::TX_LEN_MIN;
use crate::time::{Instant, Span};

/// How long the kernel may refuse the first frame for lack of room before the frame is to blame.
const STUCK_AFTER: Span = Span::from_ms(10);
/// How long frames leave one by one after the kernel refused a joined message.
const JOIN_AGAIN_AFTER: Span = Span::from_ms(10);
/// Ethernet header of an untagged frame.
const ETHERNET_LEN: usize = 14;

/// Tells a frame that cannot be sent from a device that has no room: the kernel says ENOBUFS to both,
/// for example when the far end of a veth has a smaller MTU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    /// When the kernel began to refuse the first frame.
    since: Option<Instant>,
    /// Frames of this length or more were refused for [`STUCK_AFTER`]; one that is sent clears it.
    len: usize,
}

impl Default for Stuck {
    fn default() -> Self {
        Self { since: None, len: usize::MAX }
    }
}

impl Stuck {
    /// The first frame was refused; true when it is to be given up.
    pub(super) fn refused(&mut self, now: Instant, len: usize) -> bool {
        let since = *self.since.get_or_insert(now);
        // Once a length was given up, others as long are given up at once; waiting 10 ms for each would stop the port.
        if len < self.len && now.since(since) < STUCK_AFTER {
            return false;
        }
        *self = Self { since: None, len: len.min(self.len) };
        true
    }

    pub(super) fn sent(&mut self, len: usize) {
        self.since = None;
        if len >= self.len {
            self.len = usize::MAX;
        }
    }
}

/// Which frames may be joined.
#[derive(Clone, Copy)]
struct Joinable {
    /// Longest packet in bytes.
    mtu: usize,
    /// Frames must be shorter than this: the length at which the kernel last refused one for good.
    len: usize,
    /// Whether frames in tunnels may be.
    tunnels: bool,
}

impl Joinable {
    fn has(self, segment: &Segment<'_>) -> bool {
        segment.packet_len() <= self.mtu && segment.len() < self.len
    }
}

/// Joins the first frames of `frames` if at least two belong to one TCP stream; their payloads are appended to `parts`.
fn join<'a>(
    bufs: &'a Bufs,
    frames: &'a [Desc],
    joinable: Joinable,
    parts: &mut ArrayVec<&'a [u8], BURST>,
) -> Option<Joint<'a>> {
    let partial = |desc: &'a Desc| Some((bufs.bytes(desc), bufs.partial_csum(desc)?));
    let (first, rest) = frames.split_first()?;
    // The cheap test first: most frames have complete checksums, and their headers need not be parsed.
    rest.first().filter(|next| next.has(Flag::PartialCsum))?;
    let (bytes, left) = partial(first)?;
    let first =
        Segment::parse(bytes, left, joinable.tunnels).filter(|first| joinable.has(first))?;
    let mut joint = Joint::new(first);
    parts.push(first.payload());
    let from = parts.len();
    for desc in rest {
        let Some((bytes, left)) = partial(desc) else { break };
        let Some(payload) = joint.take(bytes, left) else { break };
        parts.push(payload);
    }
    (parts.len() > from).then_some(joint)
}

/// The bytes to send for a frame. The pool keeps zeros behind a short frame up to 64 bytes, which serve as padding.
fn bytes<'a>(bufs: &'a Bufs, desc: &'a Desc) -> &'a [u8] {
    match bufs.head(desc).get(..TX_LEN_MIN) {
        Some(padded) if desc.len() < TX_LEN_MIN => padded,
        _ => bufs.bytes(desc),
    }
}

/// The partial checksum of a frame, if its bounds are in it.
fn partial(bufs: &Bufs, desc: &Desc) -> Option<PartialCsum> {
    let fits = |p: &PartialCsum| usize::from(p.start) + usize::from(p.offset) + 2 <= desc.len();
    bufs.partial_csum(desc).filter(fits)
}

/// Whether a device of this MTU takes the frame. The kernel checks a message for this, but not a slot.
fn fits_mtu(frame: &[u8], mtu: usize) -> bool {
    let tag = if frame.get(12..14) == Some(&[0x81, 0x00]) { 4 } else { 0 };
    mtu == 0 || frame.len() <= mtu + ETHERNET_LEN + tag
}

/// Outcome of handing over the first frames of a burst.
#[derive(Debug, Default)]
pub(in crate::port) struct Handed {
    /// How many of the first frames the kernel took.
    pub taken: usize,
    /// The kernel's answer to the next one; `None` if it was not refused.
    pub refused: Option<io::Error>,
    /// The refused frame was joined with frames behind it.
    pub joined: bool,
}

/// Ways out of the interface that take several frames joined.
#[derive(Clone, Copy)]
pub(in crate::port) struct Joins<'a> {
    /// Sends messages.
    pub socket: BorrowedFd<'a>,
    /// Takes super-frames of tunnels; `None` if the port has no tap.
    pub tap: Option<&'a TunnelTap>,
    /// The device's MTU in bytes; 0 while it is not known.
    pub mtu: usize,
}

/// How the first of some frames leave.
pub(in crate::port) enum Turn {
    /// This many of them leave one by one; sending them is up to the caller.
    OneByOne(usize),
    /// They were handed over, some of them joined.
    Joined(Handed),
}

/// How to go on after the kernel's answer.
#[derive(Debug)]
pub(in crate::port) enum Next {
    /// Hand over more.
    GoOn,
    /// No room now: wait for the next `service`.
    Wait,
    /// The next frame can never be sent.
    GiveUp,
    /// The interface is down or gone.
    Fault(io::Error),
}

/// The planned way out of the first frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One by one, by the ring.
    Ring,
    /// Some of them in one message.
    Messages,
    /// All of them as one super-frame of a tunnel.
    Tap,
}

/// A socket that only sends, and its ring.
pub(super) struct Ring {
    // Fields drop in this order: the ring is unmapped, then the socket closed. The kernel keeps the pages until then.
    slots: TxSlots,
    socket: OwnedFd,
}

impl Ring {
    /// Makes the ring of `socket` for `frames` of up to `frame_len_max`.
    pub(super) fn new(socket: OwnedFd, frames: usize, frame_len_max: usize) -> io::Result<Self> {
        Ok(Self { slots: TxSlots::map(socket.as_fd(), frames, frame_len_max)?, socket })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Frames handed to the device and not sent yet.
    #[inline]
    pub(super) fn under_way(&mut self) -> usize {
        self.slots.under_way()
    }
}

pub(in crate::port) struct Sender {
    messages: TxMessages,
    /// Lead of each planned message.
    leads: Vec<Lead>,
    /// From this time on, segments of one TCP stream may be joined.
    join_at: Instant,
    pub joined_frames: u64,
    pub passed_super_frames: u64,
    pub system_calls: u64,
    stuck: Stuck,
}

impl Sender {
    pub(in crate::port) fn new() -> Self {
        Self {
            messages: TxMessages::new(),
            leads: vec![Lead::default(); BURST],
            join_at: Instant::ZERO,
            joined_frames: 0,
            passed_super_frames: 0,
            system_calls: 0,
            stuck: Stuck::default(),
        }
    }

    /// Hands the first of `frames` to the kernel; those that leave one by one go to the ring.
    pub(super) fn hand_over(
        &mut self,
        now: Instant,
        joins: Joins<'_>,
        ring: &mut Ring,
        bufs: &Bufs,
        frames: &[Desc],
    ) -> Handed {
        self.system_calls += 1;
        match self.turn(now, joins, bufs, frames) {
            Turn::OneByOne(count) => {
                by_ring(ring, joins.mtu, bufs, frames.get(..count).unwrap_or_default())
            }
            Turn::Joined(handed) => handed,
        }
    }

    /// Hands over the first of `frames` if some of them leave joined.
    pub(in crate::port) fn turn(
        &mut self,
        now: Instant,
        joins: Joins<'_>,
        bufs: &Bufs,
        frames: &[Desc],
    ) -> Turn {
        if !self.may_join(now, frames) {
            return Turn::OneByOne(frames.len());
        }
        let mut parts = ArrayVec::new();
        let joinable =
            Joinable { mtu: joins.mtu, len: self.stuck.len, tunnels: joins.tap.is_some() };
        match (self.plan(bufs, frames, joinable, &mut parts), joins.tap) {
            (Way::Tap, Some(tap)) => Turn::Joined(self.by_tap(tap, &parts)),
            (Way::Messages, _) => Turn::Joined(self.by_messages(joins.socket, &parts)),
            _ => Turn::OneByOne(parts.len()),
        }
    }

    /// Sends a super-frame as it was received; false, and nothing sent, if the kernel might not split it into the same
    /// frames, or does not take it now.
    pub(super) fn send_whole(
        &mut self,
        now: Instant,
        joins: Joins<'_>,
        frame: &SuperFrame<'_>,
    ) -> bool {
        if now < self.join_at || frame.segments().len >= self.stuck.len {
            return false;
        }
        let (Some(joined), Some(lead)) = (frame.joined(joins.mtu), self.leads.first_mut()) else {
            return false;
        };
        lead.set_whole(joined, frame.segments().count);
        let (lead, parts) = (lead.bytes(), &[frame.bytes]);
        let sent = match (joined.tunnel, joins.tap) {
            (None, _) => {
                self.messages.transmit(joins.socket, &[Outgoing { lead, parts }]).map(|_| ())
            }
            (Some(_), Some(tap)) => tap.send(lead, parts),
            (Some(_), None) => return false,
        };
        self.system_calls += 1;
        let Err(e) = sent else {
            self.passed_super_frames += 1;
            return true;
        };
        if e.raw_os_error() != Some(libc::EAGAIN) {
            self.join_at = now + JOIN_AGAIN_AFTER; // what is wrong is found out by frames one by one
        }
        false
    }

    /// Whether two neighbours of `frames` may be joined. Reads descriptors only, no frame data.
    pub(in crate::port) fn may_join(&self, now: Instant, frames: &[Desc]) -> bool {
        // A local sender leaves its checksums partial, and segments from a split super-frame have them. Only these can
        // be joined without recomputing a checksum over the payload.
        let is_partial = |desc: &Desc| desc.has(Flag::PartialCsum);
        self.join_at <= now && frames.windows(2).any(|two| two.iter().all(is_partial))
    }

    /// Decides how to go on after `handed`. After a refused joined message the next frames leave one by one.
    pub(in crate::port) fn next(&mut self, now: Instant, handed: Handed, frames: &[Desc]) -> Next {
        let len = |desc: &Desc| desc.len().max(TX_LEN_MIN);
        if let Some(longest) = frames.iter().take(handed.taken).map(len).max() {
            self.stuck.sent(longest);
        }
        let Some(e) = handed.refused else {
            return if handed.taken == 0 { Next::Wait } else { Next::GoOn };
        };
        // The frame that was refused; padded as it was sent, since `Stuck` compares lengths on the wire.
        let refused = frames.get(handed.taken).or(frames.first()).map_or(0, len);
        match e.raw_os_error() {
            Some(libc::EINTR) => Next::GoOn,
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Next::Fault(e),
            Some(libc::EAGAIN) => Next::Wait,
            // The device does not segment, or has no room for that many bytes. No frame is to blame, so none is given
            // up.
            _ if handed.joined => {
                self.join_at = now + JOIN_AGAIN_AFTER;
                Next::GoOn
            }
            Some(libc::ENOBUFS) if !self.stuck.refused(now, refused) => Next::Wait,
            _ => Next::GiveUp, // of this frame only: longer than the device's MTU, say
        }
    }

    /// Decides how the first of `frames` leave and which of them are joined in one message. Afterwards `parts` has the
    /// bytes of all planned frames, in order.
    fn plan<'a>(
        &mut self,
        bufs: &'a Bufs,
        frames: &'a [Desc],
        joinable: Joinable,
        parts: &mut ArrayVec<&'a [u8], BURST>,
    ) -> Way {
        let mut way = Way::Ring;
        let mut leads = self.leads.iter_mut();
        let mut rest = frames;
        while let (Some(desc), Some(lead)) = (rest.first(), leads.next()) {
            let from = parts.len();
            if let Some(joint) = join(bufs, rest, joinable, parts)
                && lead.set_many(&joint, parts.len() - from)
            {
                // The tap takes one super-frame per write, so a tunnel's goes alone: now if it is first, else in the
                // next turn.
                if joint.is_in_tunnel() && from == 0 {
                    return Way::Tap;
                }
                if joint.is_in_tunnel() {
                    parts.truncate(from); // the next call's
                    break;
                }
                way = Way::Messages;
                rest = rest.get(lead.frames..).unwrap_or_default();
                continue;
            }
            parts.truncate(from);
            lead.set_one(partial(bufs, desc));
            parts.push(bytes(bufs, desc));
            rest = rest.get(1..).unwrap_or_default();
        }
        way
    }

    /// Sends the planned super-frame of a tunnel.
    fn by_tap(&mut self, tap: &TunnelTap, parts: &[&[u8]]) -> Handed {
        let lead = self.leads.first().map_or(&[][..], |lead| lead.bytes());
        match tap.send(lead, parts) {
            Ok(()) => {
                self.joined_frames += parts.len().saturating_sub(1) as u64;
                Handed { taken: parts.len(), ..Handed::default() }
            }
            Err(error) => Handed { refused: Some(error), joined: true, ..Handed::default() },
        }
    }

    /// Sends the planned messages.
    fn by_messages(&mut self, socket: BorrowedFd<'_>, parts: &[&[u8]]) -> Handed {
        let mut outgoing = ArrayVec::<_, BURST>::new();
        let mut at = 0;
        for lead in &self.leads {
            let own = parts.get(at..at + lead.frames).unwrap_or_default();
            if own.is_empty() || at >= parts.len() {
                break;
            }
            outgoing.push(Outgoing { lead: lead.bytes(), parts: own });
            at += lead.frames;
        }
        match self.messages.transmit(socket, &outgoing) {
            Ok(sent) => {
                let taken = self.leads.iter().take(sent).map(|lead| lead.frames).sum::<usize>();
                self.joined_frames += (taken - sent) as u64;
                Handed { taken, ..Handed::default() }
            }
            Err(error) => {
                // sendmmsg reports an error only if it could send no message at all, so it is the first one's.
                let joined = self.leads.first().is_some_and(|lead| lead.frames > 1);
                Handed { refused: Some(error), joined, ..Handed::default() }
            }
        }
    }
}

/// Sends the first of `frames` through the ring, by one call.
fn by_ring(ring: &mut Ring, mtu: usize, bufs: &Bufs, frames: &[Desc]) -> Handed {
    let slots = &mut ring.slots;
    let (mut put, mut too_long) = (0, false);
    for desc in frames {
        let bytes = bytes(bufs, desc);
        too_long = !fits_mtu(bytes, mtu);
        if too_long || !slots.put(VnetHeader::emit_whole(partial(bufs, desc), bytes.len()), bytes) {
            break;
        }
        put += 1;
    }
    // Without a slot to send there is nothing to ask the kernel: either the first frame is too long or the ring is
    // full.
    if put == 0 {
        let code = if too_long { libc::EMSGSIZE } else { libc::EAGAIN };
        let refused = Some(io::Error::from_raw_os_error(code));
        return Handed { refused, ..Handed::default() };
    }
    let said = sys::kick_tx(ring.socket.as_fd());
    handed(put, slots.settle(), said)
}

/// Outcome for `put` frames after the call that sends them answered `said`.
fn handed(put: usize, settled: Settled, said: io::Result<()>) -> Handed {
    let code = |code| Some(io::Error::from_raw_os_error(code));
    let refused = match said {
        _ if settled.sent == put => None,
        // ENOBUFS alone means a lack of room, after which the caller waits. With a slot marked as wrong it would wait
        // for a frame that can never leave, so that case is EINVAL.
        Err(error) if !settled.refused || error.raw_os_error() != Some(libc::ENOBUFS) => {
            Some(error)
        }
        _ if settled.refused => code(libc::EINVAL),
        _ => code(libc::EAGAIN),
    };
    Handed { taken: settled.sent, refused, joined: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_never_taken_is_given_up_and_its_like_at_once() {
        #[rustfmt::skip] // columns: name, at ms, length, refused (else sent), given up
        let steps = [
            ("no room yet",           0, 1_000, true,  false),
            ("still none",            9, 1_000, true,  false),
            ("room",                  9, 1_000, false, false),
            ("none again",           12, 1_000, true,  false),
            ("just before",          21, 1_000, true,  false),
            ("too long",             22, 1_000, true,  true),
            ("as long",              22, 1_000, true,  true),
            ("shorter may wait",     22,   999, true,  false),
            ("shorter is sent",      23,   999, false, false),
            ("longer",               23, 1_500, true,  true),
            ("a longer one is sent", 24, 1_500, false, false),
            ("so all may wait",      24, 1_500, true,  false),
        ];
        let mut stuck = Stuck::default();
        for (name, ms, len, refused, want) in steps {
            let now = Instant::ZERO + Span::from_ms(ms);
            if refused {
                assert_eq!(stuck.refused(now, len), want, "{name}");
            } else {
                stuck.sent(len);
            }
        }
    }

    #[test]
    fn a_frame_fits_as_the_kernel_has_it() {
        #[rustfmt::skip] // columns: name, EtherType, length, MTU, fits
        let cases = [
            ("longest",          [0x08, 0x00], 1_514, 1_500, true),
            ("too long",         [0x08, 0x00], 1_515, 1_500, false),
            ("longest with tag", [0x81, 0x00], 1_518, 1_500, true),
            ("too long with it", [0x81, 0x00], 1_519, 1_500, false),
            ("service tag",      [0x88, 0xA8], 1_518, 1_500, false),
            ("MTU not known",    [0x08, 0x00], 9_000, 0,     true),
        ];
        for (name, kind, len, mtu, want) in cases {
            let mut frame = vec![0; len];
            frame[12..14].copy_from_slice(&kind);
            assert_eq!(fits_mtu(&frame, mtu), want, "{name}");
        }
    }

    #[test]
    fn what_the_kernel_left_is_told_apart() {
        let error = |code| Err(io::Error::from_raw_os_error(code));
        #[rustfmt::skip] // columns: name, sent of 3, wrong format, the call's answer, code for the next
        let cases = [
            ("all went",         3, false, Ok(()),               None),
            ("a late error",     3, false, error(libc::EINVAL),  None),
            ("no memory for it", 1, false, Ok(()),               Some(libc::EAGAIN)),
            ("no room",          1, false, error(libc::ENOBUFS), Some(libc::ENOBUFS)),
            ("down",             0, false, error(libc::ENETDOWN), Some(libc::ENETDOWN)),
            ("wrong format",     2, true,  error(libc::EMSGSIZE), Some(libc::EMSGSIZE)),
            ("said otherwise",   2, true,  Ok(()),               Some(libc::EINVAL)),
            ("and worse",        2, true,  error(libc::ENOBUFS), Some(libc::EINVAL)),
        ];
        for (name, sent, refused, said, want) in cases {
            let handed = handed(3, Settled { sent, refused }, said);
            let code = handed.refused.and_then(|e| e.raw_os_error());
            assert_eq!((handed.taken, code), (sent, want), "{name}");
        }
    }
}
