//! What a TCP host sends: ARP, answers of the stack, and segments of its connections in turn.
//!
//! [`TcpHost::send`] fills a link's room with frames, each made when there is room for it.
//!
//! Units: bytes without FCS.
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

/// A frame that is to be sent now.
enum Made {
    /// It is where the stack has written it, so long.
    InSlot(usize),
    Own(Vec<u8>),
}

impl TcpHost {
    /// Sends while there is something to be sent and room; returns how many frames, and whether there is more.
    pub(super) fn send(&mut self, now: Instant, link: &mut impl Link) -> (usize, bool) {
        let room = link.room(now);
        let mut is_short = false;
        for _ in link.again(room)..room {
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

    /// The next frame.
    fn make(&mut self, now: Instant) -> Option<Made> {
        if let Some(frame) = self.neighbours.pop() {
            return Some(Made::Own(frame.to_vec()));
        }
        let paused = self.pauses.paused();
        let count = Pri::ALL.len();
        for step in 0..count {
            let place = (self.turn + step) % count;
            let Some(&pri) = Pri::ALL.get(place).filter(|pri| !paused.contains(**pri)) else {
                continue;
            };
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

    /// Has the stack make a connection's next packet; returns the bytes of the frame.
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

    /// A connection that has nothing to send after all is not asked again at once.
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

/// Tells a connection of a frame that the stack has made for it, and corrects its sequence number.
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

/// Puts an Ethernet header in front of a packet, and a DSCP into it.
pub(super) fn finish(frame: &mut [u8], from: MacAddr, to: EthernetAddress, dscp: Dscp) {
    let header = EthernetRepr {
        src_addr: EthernetAddress(from.0),
        dst_addr: to,
        ethertype: EthernetProtocol::Ipv4,
    };
    let mut view = EthernetFrame::new_unchecked(frame);
    header.emit(&mut view);
    if dscp.get() > 0 {
        let mut packet = Ipv4Packet::new_unchecked(view.payload_mut());
        packet.set_dscp(dscp.get());
        packet.fill_checksum();
    }
}
