//! Frames received by a TCP host: segments for its connections and for none, ARP, PFC.
//!
//! Source: docs/spec/model.md §7; RFC 9293 (3.10.7).

use smoltcp::iface::SocketSet;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, TcpPacket,
};
use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::types::Pri;
use weft_parsers::{Dscp, Pfc, ether_type};

use super::clock::StackClock;
use super::neighbours::ETHERNET_LEN;
use super::tx::{finish, note};
use super::{ANSWERS_MAX, ConnectionKey, ConnectionSpec, IP_HEADERS_LEN, Offered, TcpHost};

impl TcpHost {
    /// Handles a frame of `len` bytes, of which `kept` are known, if it is for this host.
    pub fn offer(&mut self, now: Instant, rate: LinkRate, kept: &[u8], len: usize) -> Offered {
        let Ok(frame) = EthernetFrame::new_checked(kept) else { return Offered::Left };
        match frame.ethertype() {
            EthernetProtocol::Ipv4 => self.offer_ip(now, &frame, len),
            EthernetProtocol::Arp => {
                if self.neighbours.take(kept) {
                    self.resolved();
                }
                Offered::Taken
            }
            EthernetProtocol::Unknown(ether_type::MAC_CONTROL) => {
                if let Ok(pfc) = Pfc::parse(kept) {
                    self.stats.pfc_rx += 1;
                    self.pauses.receive(now, &pfc, rate);
                }
                // Pauses stop the link's other user as well, which has to see the frame.
                Offered::Left
            }
            _ => Offered::Left,
        }
    }

    /// Handles an IPv4 packet.
    fn offer_ip(&mut self, now: Instant, frame: &EthernetFrame<&[u8]>, len: usize) -> Offered {
        // The packet may be cut: only the front of it may be there.
        let packet = Ipv4Packet::new_unchecked(frame.payload());
        let is_whole_header = frame.payload().len() >= IP_HEADERS_LEN
            && usize::from(packet.header_len()) + IP_HEADERS_LEN - 20 <= frame.payload().len();
        let is_for_us = frame.dst_addr() == EthernetAddress(self.spec.mac.0);
        if !is_whole_header || !is_for_us || packet.dst_addr() != self.spec.ip {
            return Offered::Left;
        }
        match packet.next_header() {
            IpProtocol::Tcp => self.take_segment(now, frame, &packet, len),
            // Other protocols may belong to the link's other user; a TCP host on its own leaves them unanswered.
            IpProtocol::Icmp => self.answer(now, frame, len),
            _ => return Offered::Left,
        }
        Offered::Taken
    }

    /// Handles a TCP segment for this host.
    fn take_segment(
        &mut self,
        now: Instant,
        frame: &EthernetFrame<&[u8]>,
        packet: &Ipv4Packet<&[u8]>,
        len: usize,
    ) {
        let rest = frame.payload().get(usize::from(packet.header_len())..).unwrap_or_default();
        let segment = TcpPacket::new_unchecked(rest);
        if usize::from(segment.header_len()) > rest.len() || segment.header_len() < 20 {
            self.stats.refused += 1;
            return;
        }
        let (port, peer_port) = (segment.dst_port(), segment.src_port());
        let key = ConnectionKey { port, peer: packet.src_addr(), peer_port };
        let index = self.by_key.get(&key).copied();
        // Only a SYN opens a connection; any other segment without one is answered by a reset (RFC 9293, 3.10.7).
        let index = index.or_else(|| if segment.syn() { self.accept(key) } else { None });
        let Some(index) = index else {
            self.stats.refused += 1;
            return self.answer(now, frame, len);
        };
        let Self { connections, slot, faces, stats, .. } = self;
        let Some(connection) = connections.get_mut(index).and_then(Option::as_deref_mut) else {
            return;
        };
        let Some((_, face)) = faces.get_mut(connection.face) else { return };
        if !slot.receive_next(frame.payload(), len.saturating_sub(ETHERNET_LEN)) {
            stats.refused += 1;
            return;
        }
        // Before the stack consumes the segment.
        connection.heard(now, &segment, stats);
        face.poll_ingress_single(connection.clock.at(now), slot, &mut connection.sockets);
        let (pri, dscp) = (connection.pri, connection.spec.dscp);
        self.keep_answer(now, frame.src_addr(), Some(index), pri, dscp);
        self.settle(now, index);
    }

    /// Has the stack answer a packet that belongs to no connection: by a reset, or an echo reply.
    fn answer(&mut self, now: Instant, frame: &EthernetFrame<&[u8]>, len: usize) {
        let none = Dscp::from_tos(0);
        let clock = StackClock::new(self.spec.origin, ConnectionSpec::DEFAULT.rto_min);
        let Self { slot, faces, .. } = self;
        let Some((_, face)) = faces.first_mut() else { return };
        if slot.receive_next(frame.payload(), len.saturating_sub(ETHERNET_LEN)) {
            face.poll_ingress_single(clock.at(now), slot, &mut SocketSet::new(Vec::new()));
            self.keep_answer(now, frame.src_addr(), None, self.pri_of(none), none);
        }
    }

    /// Queues the packet that the stack has answered with at once, if there is one.
    fn keep_answer(
        &mut self,
        now: Instant,
        to: EthernetAddress,
        of: Option<usize>,
        pri: Pri,
        dscp: Dscp,
    ) {
        let own = self.spec.mac;
        let Self { slot, connections, events, stats, answers, .. } = self;
        // The stack has room for one packet: it must be taken before it is asked again.
        let Some(frame) = slot.take_sent() else { return };
        finish(frame, own, to, dscp);
        if let Some(connection) = of.and_then(|of| connections.get_mut(of)?.as_deref_mut()) {
            note(connection, now, frame, events, stats);
        }
        let frame = frame.to_vec();
        if answers[pri].len() < ANSWERS_MAX {
            answers[pri].push_back(frame);
        } else {
            stats.answers_dropped += 1;
        }
    }

    /// Opens the connection that a peer begins; `None` if none is expected.
    fn accept(&mut self, key: ConnectionKey) -> Option<usize> {
        let (id, spec, transfer) = if let Some(awaited) = self.awaited.remove(&key) {
            awaited
        } else {
            let listener = self.listeners.get_mut(&key.port).filter(|it| it.left > 0)?;
            listener.left -= 1;
            let id = listener.next_id;
            listener.next_id += 1;
            (id, listener.spec, listener.transfer)
        };
        let index = self.open(id, key, &spec, transfer).ok()?;
        let connection = self.connections.get_mut(index)?.as_deref_mut()?;
        let address = IpAddress::Ipv4(self.spec.ip);
        connection.socket().listen((address, key.port)).ok()?;
        Some(index)
    }
}
