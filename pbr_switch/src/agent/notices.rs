//! Event notifications to the fabric manager: this switch's own, and those relayed from components further out.
//!
//! Changed logs and calls of [`Agent::relay`] are collected into one batch every [`GAP`]. A batch goes to the manager's
//! connections ([`Agent::next_notice`]), or as messages through the fabric to the manager's PID. A notification only
//! says that something happened somewhere. It may be lost, and any component may send one, so it decides nothing and
//! relaying is bounded. The switch derives the origin from the port it came in at.
//!
//! Source: docs/spec/wire-formats.md §4.2 ("Events"); docs/spec/cxl-fabric.md "Dynamic change"; CXL 3.1 section
//! 8.2.9.2.

use std::collections::VecDeque;

use weft_cxl::cci::Component;
use weft_cxl::vdm::mctp::Peer;
use weft_dataplane::pbr::Role as Edge;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::notify::FmNotification;
use weft_parsers::cci::pbr::{CrawlOut, CrawlTarget};
use weft_parsers::cci::{Header, List, Opcode, Request, Wire, events, header};

use super::Agent;
use crate::config::Role;

/// Least time between two batches of notifications.
pub(super) const GAP: Span = Span::from_ms(10);
/// Relayed notifications in a batch, at most.
pub(super) const RELAYED_MAX: usize = 32;
/// Length of an Event Notification (0106h) in bytes.
const NOTICE_LEN: usize = header::LEN + 2;
/// Bytes of a Fabric Crawl Out (5701h) in front of its message.
const CRAWL_LEN: usize = 6;
/// Notifications that may wait for the manager's connections.
const OUT_MAX: usize = 64;

/// A notification of another component.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Relayed {
    /// The component further out; `None` for a G-FAM device at a port of this switch, which speaks for it.
    from: Option<Peer>,
    message: Vec<u8>,
}

impl Relayed {
    /// Whether both came from the same neighbour.
    fn is_of(&self, other: &Self) -> bool {
        let device = |it: &Self| events::gfd_notice(&it.message).map(|told| told.pid);
        self.from == other.from && (self.from.is_some() || device(self) == device(other))
    }

    /// Whether both report the same: addresses and times in a device's notification may differ.
    fn is_like(&self, other: &Self) -> bool {
        let alike = match (events::gfd_notice(&self.message), events::gfd_notice(&other.message)) {
            (Some(a), Some(b)) => {
                let what = |it: &FmNotification| (it.pid, it.events, it.kind, it.trigger, it.rpid);
                what(&a) == what(&b)
            }
            _ => self.message == other.message,
        };
        self.from == other.from && alike
    }

    /// The message on the manager's own connection. For a component further out it is wrapped in the Fabric Crawl Out
    /// that reaches that component.
    fn into_message(self) -> Option<Vec<u8>> {
        let target = match self.from {
            None => return Some(self.message),
            Some(Peer::Port(port)) => CrawlTarget::Port(port),
            Some(Peer::Pid(pid)) => CrawlTarget::Pid(pid),
        };
        message(&Request::CrawlOut(CrawlOut { target, message: List::of(&self.message) }))
    }
}

/// Notifications waiting to be sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    /// Changed logs of this switch, as bits of 0106h.
    own: u16,
    /// Notifications relayed for others.
    relayed: Vec<Relayed>,
    /// Earliest time of the next batch.
    not_before: Option<Instant>,
    out: VecDeque<Vec<u8>>,
}

impl Notices {
    /// Time of the next batch.
    pub fn next_due(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.is_waiting())
    }

    const fn is_waiting(&self) -> bool {
        self.own != 0 || !self.relayed.is_empty()
    }

    /// Takes a batch if one is due: the changed logs, and the notifications to relay.
    fn batch(&mut self, now: Instant) -> Option<(u16, Vec<Relayed>)> {
        self.not_before = self.not_before.filter(|not_before| *not_before > now);
        if self.not_before.is_some() || !self.is_waiting() {
            return None;
        }
        // Only a batch starts the gap: the first event after a quiet time goes out at once.
        self.not_before = Some(now + GAP);
        Some((core::mem::take(&mut self.own), core::mem::take(&mut self.relayed)))
    }
}

fn message(request: &Request<'_>) -> Option<Vec<u8>> {
    let mut out = vec![0; header::LEN + CRAWL_LEN + header::LEN + FmNotification::LEN];
    let len = events::notification(request, &mut out)?;
    out.truncate(len);
    Some(out)
}

impl Agent {
    /// Takes a notification for the connections of the primary fabric manager.
    pub fn next_notice(&mut self) -> Option<Vec<u8>> {
        self.notices.out.pop_front()
    }

    /// Accepts a notification that came in by a port, from a component further out or from a G-FAM device at the port,
    /// for which this switch speaks from then on.
    pub(super) fn relay(&mut self, from: Peer, port: u8, notice: &[u8]) {
        let relayed = self.port_of(port).and_then(|port| self.relayed(from, port, notice));
        let Some(relayed) = relayed else {
            self.counts.ended += 1;
            return;
        };
        let waiting = &mut self.notices.relayed;
        if waiting.iter().any(|other| other.is_like(&relayed)) {
            return; // the waiting notification covers it
        }
        // One sender gets at most half of the places: a flood leaves room for others.
        let own = waiting.iter().filter(|other| other.is_of(&relayed)).count();
        if own < RELAYED_MAX.saturating_sub(waiting.len()) {
            waiting.push(relayed);
        } else {
            self.counts.ended += 1;
        }
    }

    /// The form in which a notification is relayed; `None` if it is not.
    fn relayed(&self, from: Peer, port: PortId, notice: &[u8]) -> Option<Relayed> {
        let told = events::gfd_notice(notice);
        if let (Some(edge), Some(told)) = (self.switch.tables().edge(port), told) {
            // The port decides whose notification it is; the PID inside is only a claim.
            let pid = Some(edge.pid).filter(|pid| edge.role == Edge::Gfd && !pid.is_none())?;
            let message = message(&Request::FmNotification(FmNotification { pid, ..told }))?;
            return Some(Relayed { from: None, message });
        }
        let is_fabric = self.switch.port(port).is_some_and(|it| it.role == Role::Fabric);
        let is_event = notice.len() == NOTICE_LEN
            && Header::parse(notice).is_ok_and(|(header, _)| header.opcode == Opcode::EVENT);
        let is_known = is_fabric && (is_event || told.is_some());
        // A component further out notifies the manager itself. Only the switch with the manager's connection relays it.
        (is_known && self.switch.common().ownership.is_local())
            .then(|| Relayed { from: Some(from), message: notice.to_vec() })
    }

    /// Sends the batch if one is due.
    pub(super) fn notify(&mut self, now: Instant) {
        self.notices.own |= self.switch.logs.take_changed();
        let Some((own, relayed)) = self.notices.batch(now) else { return };
        let own = if own == 0 { None } else { message(&Request::Event(own)) };
        let ownership = &self.switch.common().ownership;
        if ownership.is_local() {
            let out = &mut self.notices.out;
            // A manager that does not read its connection loses the rest; it polls anyway.
            let room = OUT_MAX.saturating_sub(out.len());
            let relayed = relayed.into_iter().filter_map(Relayed::into_message);
            out.extend(own.into_iter().chain(relayed).take(room));
            return;
        }
        // Without an owner there is no receiver, and without an own PID no sender: the batch is dropped.
        let Some(fm) = ownership.primary().filter(|_| !ownership.pid().is_none()) else { return };
        self.name_guests();
        for message in own.into_iter().chain(relayed.into_iter().map(|it| it.message)) {
            let kind = MessageType::FmApi;
            if self.tunnel.notify(Peer::Pid(fm.pid), kind, &message).is_err() {
                self.counts.unsent += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::agent::{AgentConfig, From};
    use crate::config::{PortConfig, SwitchConfig, VcsConfig};
    use crate::switch::Switch;
    use weft_cxl::cci::Session;
    use weft_cxl::pci::Link;
    use weft_cxl::vdm::mctp::Tunnel;
    use weft_dataplane::config::TlpConfig;
    use weft_dataplane::types::PortId;
    use weft_hosts::classes::PriMap;
    use weft_parsers::cci::component::{ClaimOp, ClaimOwnership};
    use weft_parsers::fabric::Pid;
    use weft_parsers::tlp::{Mode, Tlp};

    const OWN: u16 = 0x10;
    const HOST: usize = 0;
    const DSP: usize = 1;
    const FABRIC: usize = 2;

    fn pid(bits: u16) -> Pid {
        Pid::from_low_bits(bits)
    }

    fn port(number: usize) -> PortId {
        PortId::new(number).unwrap()
    }

    /// A switch that a manager has claimed on its own connection; all links are up.
    fn agent() -> Agent {
        let mut config = SwitchConfig::new([0x51; 16], 7);
        let roles = [Role::Usp, Role::Dsp, Role::Fabric].into_iter().enumerate();
        config.ports =
            roles.map(|(at, role)| PortConfig { port: port(at), role, pids: 1 }).collect();
        config.vcses = vec![VcsConfig { usp: Some(port(HOST)), vppbs: 1, gae: true }];
        let (modes, tlp) = (BTreeMap::new(), TlpConfig::for_pris(8));
        let config_of_agent =
            AgentConfig { modes, tlp, classes: PriMap::eight(), payload_max: 512 };
        let mut agent = Agent::new(Switch::new(config).unwrap(), config_of_agent);
        for at in 0..3 {
            agent.set_link(Instant::ZERO, port(at), Some(Link::default()));
        }
        let (op, fm) = (ClaimOp::RegisterPrimary, pid(1));
        let claim = ClaimOwnership { op, fm, fm_uuid: [1; 16], pid: pid(OWN) };
        let mut bytes = [0; 64];
        let len = Request::ClaimOwnership(claim).emit_message(1, &mut bytes).unwrap();
        agent.cci(Instant::ZERO, Session::Fm(1), &bytes[..len]);
        agent
    }

    fn notice() -> Vec<u8> {
        message(&Request::Event(1 << events::WARNING)).unwrap()
    }

    /// Receives a notification at port `number` in the name of `from`.
    fn comes(agent: &mut Agent, now: Instant, number: usize, from: u16, message: &[u8]) {
        let mut tunnel = Tunnel::new(pid(from));
        tunnel.notify(Peer::Pid(pid(OWN)), MessageType::FmApi, message).unwrap();
        while let Some(sent) = tunnel.poll(now) {
            let mut bytes = [0; 256];
            let len = sent.repr().emit(&mut bytes).unwrap();
            let tlp = Tlp::parse(Mode::Flit, &bytes[..len]).unwrap();
            agent.take(now, From { input: port(number), pth: Some(sent.pth), ld: None }, &tlp);
        }
        agent.settle(now);
    }

    fn notices(agent: &mut Agent) -> Vec<Vec<u8>> {
        core::iter::from_fn(|| agent.next_notice()).collect()
    }

    /// docs/security.md: only other switches may notify, and only that an event occurred.
    #[test]
    fn only_switches_notify_and_only_of_events() {
        let mut agent = agent();
        let mut other = notice();
        other[3] = 7;
        let long = [notice(), vec![0; 4]].concat();
        let mut longer = long.clone();
        longer[5] += 4;
        #[rustfmt::skip] // columns: sender, port, message, whether it is passed on
        let cases = [
            ("a host",       HOST,   notice(), false),
            ("a device",     DSP,    notice(), false),
            ("another one",  FABRIC, other,    false),
            ("a longer one", FABRIC, longer,   false),
            ("a switch",     FABRIC, notice(), true),
        ];
        let mut now = Instant::ZERO;
        for (name, number, message, passed_on) in cases {
            now += GAP;
            comes(&mut agent, now, number, 0x77, &message);
            assert_eq!(notices(&mut agent).len(), usize::from(passed_on), "{name}");
        }
        // The manager finds the source of an event by the sender's PID, which is passed on unchecked.
        now += GAP;
        comes(&mut agent, now, FABRIC, 0x77, &notice());
        let target = CrawlTarget::Pid(pid(0x77));
        let notice = notice();
        let crawl = Request::CrawlOut(CrawlOut { target, message: List::of(&notice) });
        assert_eq!(notices(&mut agent), [message(&crawl).unwrap()]);
    }

    /// docs/security.md: a sender that floods leaves room for the others.
    #[test]
    fn a_flood_of_one_leaves_places_for_others() {
        let (mut agent, now) = (agent(), Instant::ZERO + GAP);
        let of = |rpid: u16| {
            let told = FmNotification {
                rpid: pid(rpid),
                kind: 3,
                ..FmNotification::read(&[0; FmNotification::LEN]).unwrap()
            };
            message(&Request::FmNotification(told)).unwrap()
        };
        comes(&mut agent, now, FABRIC, 0x70, &of(1));
        agent.settle(now); // begins a gap
        notices(&mut agent);
        for rpid in 0..500 {
            comes(&mut agent, now, FABRIC, 0x77, &of(rpid));
        }
        comes(&mut agent, now, FABRIC, 0x78, &of(1));
        comes(&mut agent, now, FABRIC, 0x79, &notice());
        let is_of = |other: u16| {
            let relayed = agent.notices.relayed.iter();
            relayed.filter(|it| it.from == Some(Peer::Pid(pid(other)))).count()
        };
        assert_eq!([0x77, 0x78, 0x79].map(is_of), [RELAYED_MAX / 2, 1, 1]);
    }

    /// docs/security.md: a flood costs the manager one batch for each [`GAP`] at most.
    #[test]
    fn a_flood_of_others_is_bounded() {
        let mut agent = agent();
        let (mut now, mut batches) = (Instant::ZERO + GAP, 0);
        for round in 0..10_u16 {
            for name in 0..200 {
                comes(&mut agent, now, FABRIC, 0x100 + name + 200 * (round % 2), &notice());
            }
            let told = notices(&mut agent).len();
            assert!(told <= RELAYED_MAX, "{told}");
            batches += usize::from(told > 0);
            assert!(agent.next_due().is_some_and(|due| due <= now + GAP));
            now += GAP;
        }
        assert_eq!(batches, 10, "they are told of again and again");
        // While the manager takes no batches, they are bounded as well.
        for round in 0..100_u16 {
            comes(&mut agent, now, FABRIC, 0x100 + round, &notice());
            now += GAP;
        }
        assert!(notices(&mut agent).len() <= OUT_MAX);
    }
}
