//! Frames sent by a TCP host: ARP, immediate answers of the stack, and segments of its connections in turn.
//!
//! Source: docs/spec/model.md §7.

use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, Ipv4Packet,
    TcpPacket, TcpSeqNumber,
};
use weft_dataplane::time::Instant;
use weft_dataplane::types::Pri;
use weft_parsers::{Dscp, MacAddr};

use super::connection::Connection;
use super::neighbours::ETHERNET_LEN;
use super::{RETRY, TcpEvent, TcpHost, TcpStats};
use crate::link::Link;

/// The frame to be sent next.
enum Made {
    /// The stack has written it to the slot; its length with the Ethernet header.
    InSlot(usize),
    Own(Vec<u8>),
}

impl TcpHost {
    /// Fills the link's room with frames; returns how many it took, and whether more are due.
    pub(super) fn send(&mut self, now: Instant, link: &mut impl Link) -> (usize, bool) {
        let room = link.room(now);
        let mut is_short = false;
        for _ in link.again(room)..room {
            // Reserved before a packet is made: one that the stack has made cannot be put back.
            if !link.reserve() {
                is_short = true;
                break;
            }
            let Some(made) = self.make(now) else {
                link.unreserve();
                break;
            };
            let frame = match &made {
                Made::InSlot(len) => self.slot.sent_before(*len),
                Made::Own(frame) => frame,
            };
            let len = frame.len().max(weft_parsers::ethernet::MIN_FRAME_LEN);
            link.send(now, len, |out| {
                let (front, padding) = out.split_at_mut(out.len().min(frame.len()));
                front.iter_mut().zip(frame).for_each(|(to, from)| *to = *from);
                padding.fill(0);
            });
        }
        let (sent, is_refused) = link.flush(now);
        (sent, is_short || is_refused || self.has_ready())
    }

    /// Makes the next frame, if one is due.
    fn make(&mut self, now: Instant) -> Option<Made> {
        // ARP goes first and waits for no pause: without an address nothing else can be sent.
        if let Some(frame) = self.neighbours.pop() {
            return Some(Made::Own(frame.to_vec()));
        }
        let paused = self.pauses.paused();
        // Beginning after the priority served last, so that priorities take turns.
        let count = Pri::ALL.len();
        for step in 0..count {
            let place = (self.turn + step) % count;
            let Some(&pri) = Pri::ALL.get(place).filter(|pri| !paused.contains(**pri)) else {
                continue;
            };
            // Answers go first (docs/spec/model.md §7): a duplicate ACK, for example, has the peer repair a gap.
            if let Some(frame) = self.answers[pri].pop_front() {
                self.turn = place + 1;
                return Some(Made::Own(frame));
            }
            while let Some(index) = self.ready[pri].pop_front() {
                if let Some(len) = self.dispatch(now, index) {
                    self.turn = place + 1;
                    return Some(Made::InSlot(len));
                }
            }
        }
        // What had no address was asked for.
        self.neighbours.pop().map(|frame| Made::Own(frame.to_vec()))
    }

    /// Has the stack make the next packet of a connection; returns the length of the frame.
    fn dispatch(&mut self, now: Instant, index: usize) -> Option<usize> {
        let Self { connections, faces, slot, neighbours, events, stats, spec, .. } = self;
        let connection = connections.get_mut(index)?.as_deref_mut()?;
        connection.is_ready = false;
        let Some(mac) = neighbours.find(now, connection.hop) else {
            self.unresolved.push(index);
            return None;
        };
        let (_, face) = faces.get_mut(connection.face)?;
        face.poll_egress(connection.clock.at(now), slot, &mut connection.sockets);
        let made = slot.take_sent().map(|frame| {
            finish(frame, spec.mac, EthernetAddress(mac.0), connection.spec.dscp);
            note(connection, now, frame, events, stats);
            frame.len()
        });
        self.settle(now, index);
        if made.is_none() {
            self.rest(now, index);
        }
        made
    }

    /// Delays a connection that had nothing to send, so that it is not asked again at once.
    fn rest(&mut self, now: Instant, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_deref_mut)
        else {
            return;
        };
        if core::mem::take(&mut connection.is_ready) {
            let pri = connection.pri;
            self.ready[pri].retain(|&other| other != index);
            let at = (now + RETRY).since(self.spec.origin).as_ps();
            connection.timer = Some(at);
            self.timers.insert((at, index));
        }
    }
}

/// Lets a connection read a packet that the stack has made for it, and corrects its sequence number if necessary.
pub(super) fn note(
    connection: &mut Connection,
    now: Instant,
    frame: &mut [u8],
    events: &mut Vec<TcpEvent>,
    stats: &mut TcpStats,
) {
    let Some(packet) = frame.get_mut(ETHERNET_LEN..) else { return };
    let view = Ipv4Packet::new_unchecked(&*packet);
    let (from, to) = (view.src_addr(), view.dst_addr());
    let Ok(segment) = TcpPacket::new_checked(view.payload()) else { return };
    let Some(number) = connection.sent(now, &segment, events, stats) else { return };
    let mut view = Ipv4Packet::new_unchecked(packet);
    let mut segment = TcpPacket::new_unchecked(view.payload_mut());
    segment.set_seq_number(TcpSeqNumber(number.cast_signed()));
    segment.fill_checksum(&IpAddress::Ipv4(from), &IpAddress::Ipv4(to));
}

/// Fills in the Ethernet header in front of a packet, and its DSCP.
pub(super) fn finish(frame: &mut [u8], from: MacAddr, to: EthernetAddress, dscp: Dscp) {
    let header = EthernetRepr {
        src_addr: EthernetAddress(from.0),
        dst_addr: to,
        ethertype: EthernetProtocol::Ipv4,
    };
    let mut view = EthernetFrame::new_unchecked(frame);
    header.emit(&mut view);
    // The stack sends DSCP 0, so its checksum stands unless that changes.
    if dscp.get() > 0 {
        let mut packet = Ipv4Packet::new_unchecked(view.payload_mut());
        packet.set_dscp(dscp.get());
        packet.fill_checksum();
    }
}
