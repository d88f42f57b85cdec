//! Discovery of the component at the far end of a PBR-capable link, by an exchange of Link Partner Info.
//!
//! From link up on, the own info is sent every 10 ms until the far end's has come, which gives a [`FarEnd`]. After
//! ten tries without one the far end is a host or device.
//!
//! Units: picoseconds.
//! Source: docs/spec/wire-formats.md §3.8, §4.8; CXL 3.1 section 7.7.11.3; intervals are ours (see `RETRY_INTERVAL`).
//!
//! The standard has no acknowledgement. Here, an info that does not name the receiver's port as its far port asks
//! for one in return; an info that names it is the answer. An info sent before the far port is known names
//! [`PORT_UNKNOWN`], our own choice. Answers are spaced, so that two ends never keep answering each other.

use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::VdmOp;
use weft_parsers::tlp::vdm::PartnerInfo;

use super::{Due, RETRY_INTERVAL, Retry, Vdm};

/// Far port in an info that asks for one in return.
pub const PORT_UNKNOWN: u8 = 0xFF;

/// State of knowledge about the far end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FarEnd {
    /// The link is down, or the exchange is under way.
    #[default]
    Unknown,
    /// A PBR switch.
    Switch(PartnerInfo),
    /// A G-FAM device.
    Gfd(PartnerInfo),
    /// It has not answered, so it is no PBR component.
    HostOrDevice,
}

/// Counts of infos exchanged over a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartnerCounts {
    /// Infos sent, tries included.
    pub sent: u64,
    /// Messages of another kind, malformed payloads, reserved component types, and everything received while the
    /// link was down.
    pub refused: u64,
    /// Changes of the own info that the far end did not answer.
    pub unanswered: u64,
}

/// Exchanges Link Partner Info over one link.
#[derive(Clone, Debug)]
pub struct Partner {
    own: PartnerInfo,
    up: bool,
    far: FarEnd,
    asking: Retry,
    answer_due: Option<Instant>,
    answer_open: Option<Instant>,
    counts: PartnerCounts,
}

impl Partner {
    /// An end whose link is down. The far port in `own` is ignored.
    #[must_use]
    pub fn new(own: PartnerInfo) -> Self {
        Self {
            own,
            up: false,
            far: FarEnd::Unknown,
            asking: Retry::default(),
            answer_due: None,
            answer_open: None,
            counts: PartnerCounts::default(),
        }
    }

    /// The far end, as far as it is known.
    #[must_use]
    pub const fn far_end(&self) -> FarEnd {
        self.far
    }

    #[must_use]
    pub const fn counts(&self) -> PartnerCounts {
        self.counts
    }

    /// The link came up: forgets the old far end, and asks.
    pub fn link_up(&mut self, now: Instant) {
        self.link_down();
        self.up = true;
        self.asking.start(now);
    }

    /// The link went down: forgets the far end and stops sending.
    pub fn link_down(&mut self) {
        self.up = false;
        self.far = FarEnd::Unknown;
        self.asking.stop();
        (self.answer_due, self.answer_open) = (None, None);
    }

    /// Changes the own info, and sends it until the far end answers. An unchanged one is not sent.
    pub fn set_own(&mut self, now: Instant, own: PartnerInfo) {
        let own = heard_from(own, self.own.far_port);
        if own == self.own {
            return;
        }
        self.own = own;
        if self.up {
            self.asking.start(now);
        }
    }

    /// Receives a message; returns whether knowledge of the far end changed.
    pub fn receive(&mut self, now: Instant, vdm: &Vdm) -> bool {
        let info = match PartnerInfo::decode(&vdm.payload) {
            Ok(info) if self.up && vdm.op == VdmOp::LinkPartnerInfo => info,
            _ => {
                self.counts.refused += 1;
                return false;
            }
        };
        let far = match info.component_type {
            PartnerInfo::SWITCH => FarEnd::Switch(info),
            PartnerInfo::GFD => FarEnd::Gfd(info),
            _ => {
                self.counts.refused += 1;
                return false;
            }
        };
        if info.far_port == self.own.port {
            self.asking.stop();
        } else {
            // The far end asks: it has not received our info yet, or has changed its own.
            // Its info is here, and the answer below carries ours; further asking would only repeat both.
            if self.asking.is_running() && self.known().is_none() {
                self.asking.stop();
            }
            // At most one answer in each interval, whatever the far end asks.
            let open = self.answer_open.filter(|&open| now < open);
            self.answer_due = self.answer_due.or(Some(open.unwrap_or(now)));
        }
        let changed = same_but_far_port(self.far) != same_but_far_port(far);
        self.far = far;
        changed
    }

    /// The next message to send; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Vdm> {
        if !self.up {
            return None;
        }
        if self.answer_due.is_some_and(|due| due <= now) {
            self.answer_due = None;
            self.answer_open = Some(now + RETRY_INTERVAL);
            let far_port = self.known().map_or(PORT_UNKNOWN, |info| info.port);
            return Some(self.send(far_port));
        }
        match self.asking.tick(now) {
            Due::Nothing => None,
            Due::Send => Some(self.send(PORT_UNKNOWN)),
            // The far end is known already, so only a change of our own info went unanswered.
            Due::GaveUp if self.known().is_some() => {
                self.counts.unanswered += 1;
                None
            }
            Due::GaveUp => {
                self.far = FarEnd::HostOrDevice;
                None
            }
        }
    }

    /// Time of the next poll; `None` until something else happens.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        Instant::earlier(self.asking.at, self.answer_due)
    }

    fn known(&self) -> Option<PartnerInfo> {
        match self.far {
            FarEnd::Switch(info) | FarEnd::Gfd(info) => Some(info),
            FarEnd::Unknown | FarEnd::HostOrDevice => None,
        }
    }

    fn send(&mut self, far_port: u8) -> Vdm {
        self.counts.sent += 1;
        let info = heard_from(self.own, far_port);
        let vdm = Vdm::new(info.pid, Pid::NONE, VdmOp::LinkPartnerInfo);
        vdm.with_payload(&info.emit())
    }
}

/// `info` with its far port replaced.
const fn heard_from(mut info: PartnerInfo, far_port: u8) -> PartnerInfo {
    info.far_port = far_port;
    info
}

/// The same without the far port, which is knowledge of the far end and no property of it.
fn same_but_far_port(far: FarEnd) -> FarEnd {
    match far {
        FarEnd::Switch(info) => FarEnd::Switch(heard_from(info, 0)),
        FarEnd::Gfd(info) => FarEnd::Gfd(heard_from(info, 0)),
        other => other,
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers that make tests short")]
mod tests {
    use super::super::testing::{Wire, ms, pid, vdm_of, wire_of};
    use super::super::{RETRY_INTERVAL, TRIES_MAX};
    use super::*;
    use weft_dataplane::time::Span;

    fn info(port: u8, own: u16, kind: u8) -> PartnerInfo {
        let mut info = PartnerInfo::new(pid(own), kind);
        (info.port, info.uuid, info.vcs, info.uio_vcs) = (port, [port; 16], 1, 8);
        info
    }

    /// Sends all messages that are due at `now`.
    fn drain(partner: &mut Partner, now: Instant) -> Vec<Vdm> {
        core::iter::from_fn(|| partner.poll(now)).take(100).collect()
    }

    #[test]
    fn the_first_info_stands_on_the_wire_as_the_page_has_it() {
        let mut partner = Partner::new(info(3, 0xFFF, PartnerInfo::GFD));
        partner.link_up(Instant::ZERO);
        let bytes = wire_of(&partner.poll(Instant::ZERO).unwrap());
        #[rustfmt::skip]
        let head = [
            0xC2, 0xFF, 0xFF, 0xFF, 0x74, 0, 0, 0x10, 0, 0, 0, 0x7E, 0, 0, 0x1E, 0x98, 0, 0, 0, 0x90,
            3, 0xFF, 0xFF, 0x1F,
        ];
        assert_eq!((&bytes[..24], bytes.len()), (&head[..], 4 + 16 + 64));
        let mut assigned = Partner::new(info(3, 0x0A1, PartnerInfo::SWITCH));
        assigned.link_up(Instant::ZERO);
        let bytes = wire_of(&assigned.poll(Instant::ZERO).unwrap());
        assert_eq!(bytes[..4], [0xC2, 0x0A, 0x1F, 0xFF]);
        assert_eq!(bytes[22..24], [0xA1, 0x00]);
    }

    #[test]
    fn without_an_answer_the_far_end_is_a_host_or_device() {
        let mut partner = Partner::new(info(1, 2, 0));
        assert_eq!((partner.poll(ms(0)), partner.next_due()), (None, None), "the link is down");
        partner.link_up(ms(5));
        for k in 0..u64::from(TRIES_MAX) {
            assert_eq!(partner.next_due(), Some(ms(5 + 10 * k)));
            assert_eq!(drain(&mut partner, ms(5 + 10 * k)).len(), 1, "{k}");
            assert_eq!(drain(&mut partner, ms(14 + 10 * k)).len(), 0, "{k}");
            assert_eq!(partner.far_end(), FarEnd::Unknown);
        }
        assert_eq!(drain(&mut partner, ms(105)).len(), 0);
        assert_eq!((partner.far_end(), partner.next_due()), (FarEnd::HostOrDevice, None));
    }

    #[test]
    fn one_that_asks_late_is_known_and_answered() {
        let mut partner = Partner::new(info(1, 2, 0));
        partner.link_up(ms(0));
        for k in 0..=10 {
            drain(&mut partner, ms(10 * k));
        }
        assert_eq!(partner.far_end(), FarEnd::HostOrDevice);
        let late = heard_from(info(7, 9, PartnerInfo::GFD), PORT_UNKNOWN);
        let vdm = Vdm::new(pid(9), Pid::NONE, VdmOp::LinkPartnerInfo).with_payload(&late.emit());
        assert!(partner.receive(ms(900), &vdm));
        assert_eq!(partner.far_end(), FarEnd::Gfd(late));
        let answers = drain(&mut partner, ms(900));
        let answer = PartnerInfo::decode(&answers[0].payload).unwrap();
        assert_eq!((answers.len(), answer.port, answer.far_port), (1, 1, 7));
        // It answers repeated requests once in each interval.
        for _ in 0..50 {
            assert!(!partner.receive(ms(901), &vdm), "nothing new");
            assert_eq!(drain(&mut partner, ms(901)).len(), 0);
        }
        assert_eq!(partner.next_due(), Some(ms(910)));
        assert_eq!(drain(&mut partner, ms(910)).len(), 1);
        assert_eq!(partner.next_due(), None);
    }

    #[test]
    fn an_answer_is_not_answered() {
        let mut partner = Partner::new(info(1, 2, 0));
        partner.link_up(ms(0));
        drain(&mut partner, ms(0));
        let answer = heard_from(info(7, 9, 0), 1);
        let vdm = Vdm::new(pid(9), Pid::NONE, VdmOp::LinkPartnerInfo).with_payload(&answer.emit());
        assert!(partner.receive(ms(1), &vdm));
        assert_eq!((drain(&mut partner, ms(500)).len(), partner.next_due()), (0, None));
    }

    #[test]
    fn link_down_forgets() {
        let mut partner = Partner::new(info(1, 2, 0));
        let vdm = Vdm::new(pid(9), Pid::NONE, VdmOp::LinkPartnerInfo);
        let vdm = vdm.with_payload(&info(7, 9, 0).emit());
        partner.link_up(ms(0));
        partner.receive(ms(1), &vdm);
        partner.link_down();
        assert_eq!((partner.far_end(), partner.next_due()), (FarEnd::Unknown, None));
        assert_eq!(drain(&mut partner, ms(100)).len(), 0);
        assert!(!partner.receive(ms(101), &vdm), "what was in flight");
        assert_eq!((partner.far_end(), partner.counts().refused), (FarEnd::Unknown, 1));
        partner.link_up(ms(200));
        assert_eq!((drain(&mut partner, ms(200)).len(), partner.far_end()), (1, FarEnd::Unknown));
    }

    #[test]
    fn what_means_nothing_is_counted() {
        let mut partner = Partner::new(info(1, 2, 0));
        partner.link_up(ms(0));
        let base = Vdm::new(pid(9), Pid::NONE, VdmOp::LinkPartnerInfo);
        let other = Vdm::new(pid(9), Pid::NONE, VdmOp::Gam).with_payload(&[0; 64]);
        for (k, vdm) in
            [base.clone().with_payload(&info(7, 9, 2).emit()), base, other].into_iter().enumerate()
        {
            assert!(!partner.receive(ms(1), &vdm));
            assert_eq!(
                (partner.far_end(), partner.counts().refused),
                (FarEnd::Unknown, k as u64 + 1)
            );
        }
    }

    #[test]
    fn a_changed_pid_or_fm_is_told() {
        let mut ends = [Partner::new(info(1, 0xFFF, 0)), Partner::new(info(2, 0xFFF, 0))];
        let mut wires = [Wire::new(1, 0, 0, 1_000), Wire::new(2, 0, 0, 1_000)];
        for end in &mut ends {
            end.link_up(ms(0));
        }
        run(&mut ends, &mut wires, ms(0), ms(300));
        let sent = ends[0].counts().sent;
        ends[0].set_own(ms(300), info(1, 0xFFF, 0));
        run(&mut ends, &mut wires, ms(300), ms(400));
        assert_eq!(ends[0].counts().sent, sent, "nothing changed");
        let mut own = info(1, 0x123, 0);
        own.primary_fm = [9; 16];
        ends[0].set_own(ms(400), own);
        run(&mut ends, &mut wires, ms(400), ms(700));
        let FarEnd::Switch(known) = ends[1].far_end() else { panic!() };
        assert_eq!((known.pid, known.primary_fm), (pid(0x123), [9; 16]));
        assert_eq!(ends[0].counts().sent, sent + 1, "one was enough");
        // A far end that stops answering stays known while the link is up.
        wires[0].drop = 1_000;
        ends[0].set_own(ms(700), info(1, 0x124, 0));
        run(&mut ends, &mut wires, ms(700), ms(900));
        assert_eq!((ends[0].counts().unanswered, ends[0].next_due()), (1, None));
        assert!(matches!(ends[0].far_end(), FarEnd::Switch(_)));
    }

    fn run(ends: &mut [Partner; 2], wires: &mut [Wire; 2], from: Instant, to: Instant) {
        let mut now = from;
        while now < to {
            for k in 0..2 {
                while let Some(vdm) = wires[1 - k].recv(now) {
                    ends[k].receive(now, &vdm);
                }
                for vdm in drain(&mut ends[k], now) {
                    wires[k].send(now, &vdm);
                }
            }
            let due = ends.iter().map(Partner::next_due).chain(wires.iter().map(Wire::next));
            now = due.fold(None, Instant::earlier).unwrap_or(to).max(now + Span::from_ns(1));
        }
    }

    /// With messages lost, late or doubled, both ends know each other in the end, unless all tries of one were
    /// lost, and fall silent.
    #[test]
    fn both_ends_find_each_other_and_fall_silent() {
        for seed in 0..300 {
            let drop = [0, 100, 500][seed as usize % 3];
            let mut ends = [
                Partner::new(info(1, 0xFFF, PartnerInfo::SWITCH)),
                Partner::new(info(2, 5, PartnerInfo::GFD)),
            ];
            let mut wires =
                [Wire::new(seed, drop, 200, 3_000_000), Wire::new(!seed, drop, 200, 3_000_000)];
            ends[0].link_up(ms(0));
            run(&mut ends, &mut wires, ms(0), ms(seed % 60));
            ends[1].link_up(ms(seed % 60));
            run(&mut ends, &mut wires, ms(seed % 60), ms(1_000));
            let [a, b] = &ends;
            assert_eq!((a.next_due(), b.next_due()), (None, None), "seed {seed}: silent");
            if drop < 500 {
                assert!(matches!(a.far_end(), FarEnd::Gfd(_)), "seed {seed}: {:?}", a.far_end());
                assert!(matches!(b.far_end(), FarEnd::Switch(_)), "seed {seed}: {:?}", b.far_end());
            }
            for end in &ends {
                assert!(end.counts().sent <= 60, "seed {seed}: {:?}", end.counts());
            }
        }
    }

    /// Every sequence of six events: the end falls silent, and knows only information from the wire.
    #[test]
    fn all_short_histories_end() {
        let ask = vdm_of(&wire_of(
            &Vdm::new(pid(9), Pid::NONE, VdmOp::LinkPartnerInfo)
                .with_payload(&heard_from(info(7, 9, 0), PORT_UNKNOWN).emit()),
        ));
        let answer = vdm_of(&wire_of(
            &Vdm::new(pid(9), Pid::NONE, VdmOp::LinkPartnerInfo)
                .with_payload(&heard_from(info(7, 9, 0), 1).emit()),
        ));
        for history in 0..6_u32.pow(6) {
            let mut partner = Partner::new(info(1, 2, 0));
            let (mut code, mut now, mut heard) = (history, ms(0), false);
            for step in 0..6 {
                match code % 6 {
                    0 => partner.link_up(now),
                    1 => partner.link_down(),
                    2 => partner.set_own(now, info(1, 2 + step, 0)),
                    3 => heard |= partner.receive(now, &ask),
                    4 => heard |= partner.receive(now, &answer),
                    _ => now += RETRY_INTERVAL,
                }
                code /= 6;
                drain(&mut partner, now);
                assert!(heard || partner.known().is_none(), "{history}");
            }
            for _ in 0..12 {
                now += RETRY_INTERVAL;
                drain(&mut partner, now);
            }
            assert_eq!(partner.next_due(), None, "{history}");
            assert_eq!(partner.up, partner.far_end() != FarEnd::Unknown, "{history}");
        }
    }
}
