//! MAC addresses of other hosts: known beforehand, or asked for by ARP.
//!
//! Source: RFC 826; RFC 1122 (2.3.2.1): no more than one request a second for an address.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, VecDeque};

use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr,
};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::MacAddr;

use super::spec::Directory;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_LEN: usize = 14;
/// Bytes of a frame with ARP in it, without padding.
const ARP_LEN: usize = ETHERNET_LEN + 28;
/// Least time between two requests for one address.
const AGAIN: Span = Span::from_ms(1_000);
/// Most addresses that are remembered from strangers; those that the host asked for always are.
const KNOWN_MAX: usize = 1_024;
/// Most replies that wait to be sent.
const OUT_MAX: usize = 64;

/// State of an address in the table.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Known(MacAddr),
    /// A request was sent; another may be sent from then on.
    Asked(Instant),
}

/// The ARP table of a host.
#[derive(Debug)]
pub(super) struct Neighbours {
    mac: MacAddr,
    ip: Ipv4Addr,
    directory: Option<Directory>,
    table: BTreeMap<Ipv4Addr, Entry>,
    out: VecDeque<[u8; ARP_LEN]>,
    /// Requests sent so far.
    pub requests: u64,
}

impl Neighbours {
    pub const fn new(mac: MacAddr, ip: Ipv4Addr, directory: Option<Directory>) -> Self {
        Self { mac, ip, directory, table: BTreeMap::new(), out: VecDeque::new(), requests: 0 }
    }

    /// MAC address of `ip`; if it is unknown an ARP request is queued and `None` returned.
    pub fn find(&mut self, now: Instant, ip: Ipv4Addr) -> Option<MacAddr> {
        if let Some(directory) = self.directory {
            return directory(ip);
        }
        match self.table.get(&ip) {
            Some(&Entry::Known(mac)) => return Some(mac),
            Some(&Entry::Asked(again)) if now < again => return None,
            _ => {}
        }
        self.table.insert(ip, Entry::Asked(now + AGAIN));
        self.requests += 1;
        self.push(ArpOperation::Request, MacAddr::BROADCAST, ip);
        None
    }

    /// When the next request may be repeated.
    pub fn next(&self) -> Option<Instant> {
        let asked = self.table.values().filter_map(|entry| match entry {
            Entry::Asked(again) => Some(*again),
            Entry::Known(_) => None,
        });
        asked.fold(None, |soonest, at| Instant::earlier(soonest, Some(at)))
    }

    /// Handles an ARP frame; returns whether it resolves an address that was asked for.
    pub fn take(&mut self, frame: &[u8]) -> bool {
        let packet = EthernetFrame::new_checked(frame).map(|it| it.payload());
        let packet = packet.and_then(ArpPacket::new_checked);
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr: from,
            target_protocol_addr,
            ..
        }) = packet.and_then(|packet| ArpRepr::parse(&packet))
        else {
            return false;
        };
        // With a directory nothing is learnt; and a frame in this host's own name must not change its table.
        if !source_hardware_addr.is_unicast() || from == self.ip || self.directory.is_some() {
            return false;
        }
        let (mac, is_for_us) = (MacAddr(source_hardware_addr.0), target_protocol_addr == self.ip);
        // Whoever asks for this host is going to speak to it (RFC 826, "Packet Reception").
        let had = self.table.get(&from).copied();
        if had.is_some() || (is_for_us && self.table.len() < KNOWN_MAX) {
            self.table.insert(from, Entry::Known(mac));
        }
        if operation == ArpOperation::Request && is_for_us && self.out.len() < OUT_MAX {
            self.push(ArpOperation::Reply, mac, from);
        }
        matches!(had, Some(Entry::Asked(_)))
    }

    /// Queues an announcement of this host's address (RFC 5227, 3).
    pub fn announce(&mut self) {
        self.push(ArpOperation::Request, MacAddr::BROADCAST, self.ip);
    }

    /// Takes the next ARP frame to send.
    pub fn pop(&mut self) -> Option<[u8; ARP_LEN]> {
        self.out.pop_front()
    }

    pub fn has_frames(&self) -> bool {
        !self.out.is_empty()
    }

    fn push(&mut self, operation: ArpOperation, to: MacAddr, ip: Ipv4Addr) {
        let own = EthernetAddress(self.mac.0);
        let is_request = operation == ArpOperation::Request;
        // A request names no target address, which is what it asks for (RFC 826).
        let target = if is_request { EthernetAddress([0; 6]) } else { EthernetAddress(to.0) };
        let mut frame = [0; ARP_LEN];
        let header = EthernetRepr {
            src_addr: own,
            dst_addr: EthernetAddress(to.0),
            ethertype: EthernetProtocol::Arp,
        };
        let packet = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: own,
            source_protocol_addr: self.ip,
            target_hardware_addr: target,
            target_protocol_addr: ip,
        };
        let mut view = EthernetFrame::new_unchecked(&mut frame[..]);
        header.emit(&mut view);
        packet.emit(&mut ArpPacket::new_unchecked(view.payload_mut()));
        self.out.push_back(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (MacAddr, Ipv4Addr) = (MacAddr([2, 0, 0, 0, 0, 1]), Ipv4Addr::new(10, 0, 0, 1));
    const TWO: (MacAddr, Ipv4Addr) = (MacAddr([2, 0, 0, 0, 0, 2]), Ipv4Addr::new(10, 0, 0, 2));

    fn host(at: (MacAddr, Ipv4Addr)) -> Neighbours {
        Neighbours::new(at.0, at.1, None)
    }

    #[test]
    fn hosts_find_each_other_by_one_request_and_its_answer() {
        let (mut one, mut two) = (host(ONE), host(TWO));
        let now = Instant::from_ns(5);
        assert_eq!(one.find(now, TWO.1), None);
        assert_eq!(one.find(now, TWO.1), None);
        let request = one.pop().unwrap();
        assert!(one.pop().is_none(), "asked once");
        assert_eq!((request[..6].to_vec(), request[12..14].to_vec()), (vec![0xFF; 6], vec![8, 6]));
        assert!(!two.take(&request));
        assert_eq!(two.find(now, ONE.1), Some(ONE.0), "who asks is known");
        let answer = two.pop().unwrap();
        assert!(one.take(&answer));
        assert_eq!((one.find(now, TWO.1), one.next()), (Some(TWO.0), None));
    }

    #[test]
    fn who_does_not_answer_is_asked_again_after_a_second() {
        let mut one = host(ONE);
        one.find(Instant::ZERO, TWO.1);
        assert_eq!(one.next(), Some(Instant::ZERO + AGAIN));
        one.find(Instant::ZERO + AGAIN, TWO.1);
        assert_eq!((one.requests, one.out.len()), (2, 2));
    }

    /// What strangers say of each other, cut frames and floods leave no trace.
    #[test]
    fn only_what_concerns_the_host_is_remembered() {
        let (mut one, mut two) = (host(ONE), host(TWO));
        two.find(Instant::ZERO, Ipv4Addr::new(10, 0, 0, 9));
        let for_another = two.pop().unwrap();
        one.take(&for_another);
        assert!(one.table.is_empty() && one.out.is_empty());
        two.find(Instant::ZERO, ONE.1);
        let request = two.pop().unwrap();
        for len in 0..ARP_LEN {
            assert!(!one.take(&request[..len]), "{len}");
        }
        for number in 0..2_000_u16 {
            let [high, low] = number.to_be_bytes();
            let mut other = host((TWO.0, Ipv4Addr::new(10, 9, high, low)));
            other.find(Instant::ZERO, ONE.1);
            one.take(&other.pop().unwrap());
        }
        assert_eq!((one.table.len(), one.out.len()), (KNOWN_MAX, OUT_MAX));
    }
}
