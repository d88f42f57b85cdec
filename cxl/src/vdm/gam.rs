//! Notifications (GAM) on their way from a GFD to a host.
//!
//! [`message`] makes one at the GFD; [`GamEdge::receive`] at the host's edge turns it into a posted write of one
//! entry of the host's ring.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.8, §4.6 (0108), §5.4; CXL 3.1 section 7.7.2.7.
//!
//! The ring and its rules are those of [`crate::gfd::gam::Gam`]; the edge of a peer device drops notifications.

use weft_parsers::fabric::Pid;
use weft_parsers::tlp::VdmOp;
use weft_parsers::tlp::vdm::GAM_LEN;

use super::Vdm;
use super::proxy::edge::HostWrite;
use crate::gfd::events::{HOST_LEN, Notice};
use crate::gfd::gam::{Gam, Post};

const _: () = assert!(GAM_LEN == HOST_LEN, "a message carries one entry");

/// The message of the device `own` that notifies the requester named in `notice`.
#[must_use]
pub fn message(own: Pid, notice: &Notice) -> Vdm {
    let to = notice.event.rpid;
    Vdm::new(own, to, VdmOp::Gam).with_payload(&notice.for_host(own))
}

/// The edge switch of a host or peer device, as the receiver of its notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GamEdge {
    own: Pid,
    ring: Gam,
    refused: u64,
}

impl GamEdge {
    /// The edge of a port with PID `own`; `ring` knows whether a host or a peer device is behind it.
    #[must_use]
    pub const fn new(own: Pid, ring: Gam) -> Self {
        Self { own, ring, refused: 0 }
    }

    /// The host's ring, for commands 0109 and 010A.
    pub const fn ring(&mut self) -> &mut Gam {
        &mut self.ring
    }

    /// Messages of another kind or length, or for another PID.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Receives a message; returns the posted write to the host's memory, or `None` if the notification ends here:
    /// see [`Gam::post`].
    pub fn receive(&mut self, vdm: &Vdm) -> Option<HostWrite> {
        let payload = match <[u8; GAM_LEN]>::try_from(vdm.payload.as_slice()) {
            // Each host's edge has a ring of its own, so the DPID must be that of this port.
            Ok(payload) if vdm.op == VdmOp::Gam && vdm.pth.dpid == self.own => payload,
            _ => {
                self.refused += 1;
                return None;
            }
        };
        let Post { hpa, payload } = self.ring.post(payload)?;
        Some(HostWrite::new(hpa, &payload))
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers that make tests short")]
mod tests {
    use super::super::testing::{Wire, ms, pid, vdm_of, wire_of};
    use super::*;
    use crate::gfd::events::{Event, Events, Kind};
    use weft_parsers::fabric::{Bdf, Dpa, Hpa};
    use weft_parsers::tlp::{Flow, Mode, Tlp};

    fn event(rpid: u16, trigger: u8) -> Event {
        Event {
            kind: Kind::AccessError,
            trigger,
            rpid: pid(rpid),
            by_request: true,
            dpa: None,
            hpa: Some(Hpa(0x9_8765_4321)),
            group: None,
            opcode: None,
        }
    }

    #[test]
    fn a_notification_ends_as_a_posted_write_of_one_entry() {
        let notice = Notice { event: event(0x0A1, 8), handle: 3, at_ns: 77 };
        let bytes = wire_of(&message(pid(0x123), &notice));
        #[rustfmt::skip]
        let head = [
            0xC2, 0x12, 0x30, 0xA1, 0x74, 0, 0, 8, 0, 0, 0, 0x7E, 0, 0, 0x1E, 0x98, 0, 0, 7, 0xA1,
        ];
        assert_eq!(bytes, [&head[..], &notice.for_host(pid(0x123))].concat());
        let mut edge = GamEdge::new(pid(0x0A1), Gam::host());
        edge.ring().set(0x5_0000_0001 | 2 << 56).unwrap();
        let write = edge.receive(&vdm_of(&bytes)).unwrap();
        assert_eq!((write.addr, write.len), (Hpa(0x5_0000_0040), 32));
        let mut out = [0; 64];
        let len = write.repr(Mode::Flit, Bdf::new(0, 1, 0)).emit(&mut out).unwrap();
        let tlp = Tlp::parse(Mode::Flit, &out[..len]).unwrap();
        assert_eq!((tlp.flow(), tlp.addr()), (Flow::Posted, Some(Hpa(0x5_0000_0040))));
        assert_eq!(tlp.payload(), notice.for_host(pid(0x123)));
    }

    #[test]
    fn an_edge_of_a_peer_drops() {
        let notice = Notice { event: event(0x0A1, 8), handle: 3, at_ns: 77 };
        let vdm = message(pid(0x123), &notice);
        let mut peer = GamEdge::new(pid(0x0A1), Gam::peer());
        assert_eq!((peer.receive(&vdm), peer.ring().dropped(), peer.refused()), (None, 1, 0));
        let mut host = GamEdge::new(pid(0x0A1), Gam::host());
        assert_eq!((host.receive(&vdm), host.ring().dropped()), (None, 1), "no buffer yet");
        host.ring().set(1).unwrap();
        let mut wrong = [vdm.clone(), vdm.clone(), vdm.clone()];
        wrong[0].pth.dpid = pid(0x0A2);
        wrong[1].op = VdmOp::UcRspLast;
        wrong[2].payload.truncate(28);
        for (k, vdm) in wrong.iter().enumerate() {
            assert_eq!((host.receive(vdm), host.refused()), (None, k as u64 + 1));
        }
        assert!(host.receive(&vdm).is_some());
    }

    /// From the device's queue to the host's ring over a lossy wire: entries arrive whole and in order, and no
    /// write is beyond the ring or over an unread entry.
    #[test]
    fn notices_reach_the_ring_in_order() {
        let mut events = Events::default();
        let mut wire = Wire::new(4, 100, 0, 3_000_000);
        let mut edge = GamEdge::new(pid(0x0A1), Gam::host());
        edge.ring().set(0x8000 | 1).unwrap();
        let (mut ring, mut tail) = (vec![[0; 32]; 256], 0_u8);
        let (mut seen, mut last, mut posted) = (0, None, 0_u32);
        for t in 0..5_000 {
            let base = event(0x0A1, 8);
            let event = Event { dpa: Some(Dpa(t)), trigger: t as u8, ..base };
            events.raise(ms(t), event, true);
            while let Some(notice) = events.pop_host() {
                wire.send(ms(t), &message(pid(0x123), &notice));
            }
            while let Some(vdm) = wire.recv(ms(t)) {
                if let Some(write) = edge.receive(&vdm) {
                    let at = usize::try_from(write.addr.0 - 0x8000).unwrap() / 32;
                    ring[at].copy_from_slice(&write.data);
                    posted += 1;
                }
            }
            let head = edge.ring().get().to_le_bytes()[7];
            while t % 300 == 0 && tail != head {
                let dpa = u64::from_le_bytes(*ring[usize::from(tail)][8..].first_chunk().unwrap());
                assert!(last.is_none_or(|last| last < dpa), "{t}");
                (last, seen, tail) = (Some(dpa), seen + 1, tail.wrapping_add(1));
            }
            edge.ring().set(0x8000 | 1 | u64::from(tail) << 56).unwrap();
        }
        let dropped = edge.ring().dropped();
        assert!(dropped > 0 && wire.dropped > 100 && seen > 2_000, "{dropped} {seen}");
        assert!(posted - seen < 256);
    }
}
