//! Multi-logical devices (MLDs): detection, requests of the fabric manager to LD `FFFFh`, and resets of one LD.
//!
//! Requests travel to LD `FFFFh` of the device at a port as MCTP packets behind a prefix with that LD-ID. An MLD makes
//! itself known by a notification (0106h) from LD `FFFFh`, of which only the arrival counts. The switch then asks for
//! the number of LDs (5400h). The answer affects only the device's own port, for as long as the link is up. LD `FFFFh`
//! cannot send requests to a switch: only answers are accepted.
//!
//! Source: docs/spec/wire-formats.md §3.2 "LD-ID form", §4.3, §4.3a; docs/spec/cxl-fabric.md "Logical devices".

use core::iter;

use weft_cxl::cci::{Common, Ticket};
use weft_cxl::mld::{FM_LD, LDS_MAX};
use weft_cxl::vdm::mctp::{Event, Peer, RequestId, Sent, Tunnel};
use weft_cxl::vdm::{RETRY_INTERVAL, TRIES_MAX};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::mld::{LdConfig, LdMemRequest};
use weft_parsers::cci::{
    Category, Header, Opcode, Request, Response, ReturnCode, header, mctp, nest,
};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::{MctpPacket, PbrVdm, Pth, Tlp, TlpRepr, VdmOp, VendPrefixL0};

use super::Agent;
use crate::config::Role;
use crate::port::{Partner as Known, Port};
use crate::switch::FarRequest;

/// Whether a TLP without PTH comes from LD `FFFFh`.
pub(super) fn is_management(tlp: &Tlp<'_>) -> bool {
    tlp.vend_prefix().is_some_and(|prefix| prefix.ld_id() == FM_LD)
}

/// Requests to LD `FFFFh` at one port.
#[derive(Clone, Debug)]
pub(super) struct MldSide {
    tunnel: Tunnel,
    /// Time of the next request for the number of LDs, and tries left.
    ask: Option<(Instant, u8)>,
    asked: Option<RequestId>,
    lds: u8,
    /// Requests passed on for the manager.
    out: Vec<PassedOn>,
}

/// A request of the manager that LD `FFFFh` has not answered yet.
#[derive(Clone, Copy, Debug)]
struct PassedOn {
    id: RequestId,
    ticket: Ticket,
    opcode: Opcode,
    /// MCTP message type in front of the tunnelled message; the answer gets the same.
    kind: Option<MessageType>,
}

/// Results of one turn.
#[derive(Default)]
struct Turn {
    sent: Vec<Sent>,
    /// Answers to requests of the manager; `None` after a time limit.
    done: Vec<(PassedOn, Option<Vec<u8>>)>,
    /// Whether anything was sent or received.
    any: bool,
    /// The device reported that it has LDs.
    is_mld: bool,
}

impl MldSide {
    /// For a port that may lead to a device.
    pub fn new(port: &Port) -> Option<(PortId, Self)> {
        let tunnel = Tunnel::new(Pid::NONE);
        let side = Self { tunnel, ask: None, asked: None, lds: 0, out: Vec::new() };
        (port.role == Role::Dsp).then_some((port.id, side))
    }

    /// Forgets everything about the last device, as the link came up or went down.
    pub fn set_link(&mut self) {
        self.tunnel = Tunnel::new(Pid::NONE);
        (self.ask, self.asked, self.lds) = (None, None, 0);
    }

    /// Starts asking for LDs, unless that is under way or was answered.
    fn heard(&mut self, now: Instant) {
        if self.lds == 0 && self.ask.is_none() {
            self.ask = Some((now, TRIES_MAX));
        }
    }

    /// LDs that the device reported; 0 if it has none, or has not answered.
    pub const fn lds(&self) -> u8 {
        self.lds
    }

    /// Time of the next request or time limit.
    pub fn next_due(&self) -> Option<Instant> {
        Instant::earlier(self.ask.map(|(at, _)| at), self.tunnel.next_due())
    }

    /// Sends a request for LDs if one is due.
    fn ask(&mut self, now: Instant, port: PortId) {
        let Some((_, left)) = self.ask.filter(|(at, _)| *at <= now) else { return };
        let Some(left) = left.checked_sub(1) else {
            self.ask = None;
            return;
        };
        // Double the time limit with each try: a device on a slow machine always answers late, and an answer to an
        // abandoned request is not accepted.
        let span = Span::from_ps(RETRY_INTERVAL.as_ps() << (TRIES_MAX - 1 - left));
        self.ask = Some((now + span, left));
        let mut message = [0; header::LEN];
        let len = Request::GetLdInfo.emit_message(0, &mut message).unwrap_or_default();
        let message = message.get(..len).unwrap_or_default();
        let peer = Peer::Port(port.get());
        self.asked = self.tunnel.request(now, peer, MessageType::FmApi, message, span).ok();
    }

    /// Receives answers, then sends the requests that are due.
    fn turn(&mut self, now: Instant, port: PortId) -> Turn {
        let mut turn =
            Turn { sent: iter::from_fn(|| self.tunnel.poll(now)).collect(), ..Turn::default() };
        while let Some(event) = self.tunnel.pop_event() {
            turn.any = true;
            let (id, answer) = match event {
                Event::Response(id, message) => (id, Some(message)),
                Event::Failed(id, _) => (id, None),
                Event::Request { .. } | Event::Notice { .. } => continue, // no packet of one is taken
            };
            if self.asked == Some(id) {
                self.asked = None;
                turn.is_mld |= answer.is_some_and(|message| self.answered(&message));
            } else if let Some(at) = self.out.iter().position(|asked| asked.id == id) {
                turn.done.push((self.out.swap_remove(at), answer));
            }
        }
        // Last, because an expired request and the next try fall on the same instant.
        self.ask(now, port);
        turn.sent.extend(iter::from_fn(|| self.tunnel.poll(now)));
        turn.any |= !turn.sent.is_empty();
        turn
    }

    /// Handles the answer to a request for LDs; true if there are any.
    fn answered(&mut self, message: &[u8]) -> bool {
        // Any answer ends the tries: a device that refuses 5400h is no MLD.
        self.ask = None;
        let payload = match Header::cut(message) {
            Ok((header, _, payload)) if header.return_code == ReturnCode::Success => payload,
            _ => return false,
        };
        if let Ok(Response::GetLdInfo(info)) = Response::parse(Opcode::GET_LD_INFO, payload)
            // A number of LDs out of range counts as no answer: the edge has tables for `LDS_MAX` at most.
            && (1..=LDS_MAX).contains(&info.lds.into())
        {
            self.lds = u8::try_from(info.lds).unwrap_or(0);
        }
        self.lds > 0
    }
}

/// Whether a packet is a complete notification (0106h), by which an MLD makes itself known.
fn is_hello(packet: &MctpPacket<'_>) -> bool {
    // Byte 0 is the MCTP message type, which is not looked at: only the arrival counts.
    let message = packet.payload.get(1..).unwrap_or_default();
    let is_whole = packet.owner && packet.first && packet.last;
    is_whole
        && Header::cut(message).is_ok_and(|(header, _, _)| {
            (header.category, header.opcode) == (Category::Event, Opcode::EVENT)
        })
}

/// The request as LD `FFFFh` gets it, with its opcode; `None` if it does not fit a message.
fn message_of(to: &FarRequest) -> Option<(PortId, Opcode, Vec<u8>)> {
    let (port, request) = match to {
        FarRequest::Device(port, message) => {
            // An MCTP type in front is not part of the CCI message; `PassedOn::kind` puts it back on the answer.
            return Some((*port, Opcode::TUNNEL, nest::split_type(message).1.to_vec()));
        }
        FarRequest::LdConfig { port, ld, access, data } => {
            let (access, ld, data) = (*access, *ld, *data);
            (*port, Request::LdConfig(LdConfig { port: port.get(), access, ld, data }))
        }
        FarRequest::LdMem { port, ld, access, len, offset, data } => {
            let (access, ld, len, offset) = (*access, *ld, *len, *offset);
            let request = LdMemRequest { port: port.get(), access, ld, len, offset, data };
            (*port, Request::LdMem(request))
        }
        FarRequest::Port(..) | FarRequest::Pid(..) => return None,
    };
    let mut message = vec![0; mctp::MESSAGE_MAX];
    let len = request.emit_message(0, &mut message)?;
    message.truncate(len);
    Some((port, request.opcode(), message))
}

/// The part of an answer that goes to the manager: of a tunnel the whole message, of other commands a valid payload.
fn told(opcode: Opcode, message: &[u8]) -> Result<&[u8], ReturnCode> {
    if opcode == Opcode::TUNNEL {
        return Ok(message);
    }
    let (header, len, payload) = Header::cut(message).map_err(|_| ReturnCode::InternalError)?;
    match header.return_code {
        ReturnCode::Success if payload.len() == len => match Response::parse(opcode, payload) {
            // A device's payload reaches the manager only if it has the layout of the command.
            Ok(_) => Ok(payload),
            Err(_) => Err(ReturnCode::InternalError),
        },
        ReturnCode::Success => Err(ReturnCode::InternalError),
        code => Err(code),
    }
}

impl Agent {
    /// Handles a TLP of LD `FFFFh`: a part of an answer, or the notification of an MLD. Anything else is refused.
    pub(super) fn ld_message(&mut self, now: Instant, input: PortId, tlp: &Tlp<'_>) {
        let packet = MctpPacket::parse(tlp).ok();
        match (self.mlds.get_mut(&input), packet) {
            (Some(side), Some(packet)) if is_hello(&packet) => {
                self.counts.messages += 1;
                side.heard(now);
            }
            (Some(side), Some(packet)) if !packet.owner => {
                self.counts.messages += 1;
                // These TLPs have no PTH; the tunnel needs one to know its peer.
                let pth = Pth::new(Pid::NONE, Pid::NONE);
                side.tunnel.receive(now, input.get(), pth, &packet);
            }
            _ => self.counts.refused += 1,
        }
    }

    /// Passes a request on to LD `FFFFh`.
    pub(super) fn ask_ld(&mut self, now: Instant, ticket: Ticket, to: &FarRequest) {
        let Some((port, opcode, message)) = message_of(to) else {
            return self.complete(ticket, Err(ReturnCode::InternalError));
        };
        let kind = match to {
            FarRequest::Device(_, message) => nest::split_type(message).0,
            _ => None,
        };
        let asked = self.mlds.get_mut(&port).and_then(|side| {
            let (peer, by) = (Peer::Port(port.get()), MessageType::FmApi);
            let id = side.tunnel.request(now, peer, by, &message, Common::PATIENCE).ok()?;
            side.out.push(PassedOn { id, ticket, opcode, kind });
            Some(())
        });
        match asked {
            Some(()) => self.counts.passed_on += 1,
            None => self.complete(ticket, Err(ReturnCode::RetryRequired)),
        }
    }

    /// Fails requests that wait for an answer from a port, after its link went down or came up.
    pub(super) fn drop_ld_requests(&mut self, port: PortId) {
        let out = self.mlds.get_mut(&port).map(|side| core::mem::take(&mut side.out));
        for asked in out.unwrap_or_default() {
            self.complete(asked.ticket, Err(ReturnCode::RetryRequired));
        }
    }

    /// Asks, receives answers and sends; true if there was anything.
    pub(super) fn poll_mlds(&mut self, now: Instant) -> bool {
        let mut any = false;
        let ports: Vec<PortId> = self.mlds.keys().copied().collect();
        for port in ports {
            any |= self.poll_mld(now, port);
        }
        any
    }

    fn poll_mld(&mut self, now: Instant, port: PortId) -> bool {
        let partner = self.switch.port(port).map(|port| port.partner);
        let Some(side) = self.mlds.get_mut(&port) else { return false };
        if matches!(partner, Some(Known::Pbr(_))) {
            side.ask = None; // a GFD, or nothing that may be there
        }
        let Turn { sent, done, any, is_mld } = side.turn(now, port);
        let lds = side.lds;
        for packet in sent {
            let vend_prefix = Some(VendPrefixL0::from_ld_id(FM_LD));
            self.send_at(port, None, &TlpRepr { vend_prefix, ..packet.repr() });
        }
        for (asked, mut answer) in done {
            // The manager's message had its MCTP type in front, so its answer has, too.
            if let (Some(kind), Some(message)) = (asked.kind, &mut answer) {
                message.insert(0, kind as u8);
            }
            let answer = answer.as_deref().ok_or(ReturnCode::RetryRequired);
            self.complete(asked.ticket, answer.and_then(|message| told(asked.opcode, message)));
        }
        // Not while the partner is unknown: `tell_partners` adds the number of LDs when it learns that.
        if is_mld && matches!(partner, Some(Known::Device { .. })) {
            self.switch.set_partner(port, Known::Device { lds });
            self.switch.log_port(now, port);
        }
        any
    }

    /// Asserts or deasserts the reset of a logical device.
    pub(super) fn reset_ld(&mut self, port: PortId, ld: u16, on: bool) {
        let op = if on { VdmOp::AssertReset } else { VdmOp::DeassertReset };
        let vdm = PbrVdm { op, seq_len: 0, cmd_seq: 0, seq_num: 0, payload: &[] };
        let vend_prefix = Some(VendPrefixL0::from_ld_id(ld));
        self.counts.ld_resets += u64::from(on);
        self.send_at(port, None, &TlpRepr { vend_prefix, ..vdm.repr() });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weft_cxl::pci::Link;
    use weft_dataplane::config::TlpConfig;
    use weft_hosts::classes::PriMap;
    use weft_parsers::cci::events::notification;
    use weft_parsers::cci::ld::LdInfo;
    use weft_parsers::fabric::Bdf;
    use weft_parsers::tlp::Mode;

    use super::*;
    use crate::agent::{AgentConfig, From};
    use crate::config::{PortConfig, SwitchConfig};
    use crate::switch::Switch;

    const DSP: usize = 1;

    fn at(number: usize) -> PortId {
        PortId::new(number).unwrap()
    }

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    /// A switch with a host port and a downstream port; both links are up from time 0.
    fn agent() -> Agent {
        let mut config = SwitchConfig::new([0x51; 16], 7);
        config.ports = [Role::Usp, Role::Dsp]
            .into_iter()
            .enumerate()
            .map(|(port, role)| PortConfig { port: at(port), role, pids: 1 })
            .collect();
        let modes = BTreeMap::from([(at(DSP), Mode::Flit)]);
        let (tlp, classes) = (TlpConfig::for_pris(8), PriMap::eight());
        let config_of_agent = AgentConfig { modes, tlp, classes, payload_max: 512 };
        let mut agent = Agent::new(Switch::new(config).unwrap(), config_of_agent);
        for port in 0..2 {
            agent.set_link(Instant::ZERO, at(port), Some(Link::default()));
        }
        agent
    }

    /// Receives a packet at `port` with the prefix of LD `FFFFh`.
    fn comes(agent: &mut Agent, now: Instant, port: usize, packet: &MctpPacket<'_>) {
        let repr = packet.repr(Mode::Flit, Bdf::from_bits(0), Bdf::from_bits(0));
        let repr = TlpRepr { vend_prefix: Some(VendPrefixL0::from_ld_id(FM_LD)), ..repr };
        let mut bytes = [0; 256];
        let len = repr.emit(&mut bytes).unwrap();
        let tlp = Tlp::parse(Mode::Flit, &bytes[..len]).unwrap();
        agent.take(now, From { input: at(port), pth: None, ld: None }, &tlp);
        agent.settle(now);
    }

    /// Answers the next request to LD `FFFFh` with `response`, whether that is an LD count or not.
    fn answers(agent: &mut Agent, now: Instant, response: &[u8]) {
        let mut device = Tunnel::new(Pid::NONE);
        let side = agent.mlds.get_mut(&at(DSP)).unwrap();
        (side.ask, side.asked) = (Some((now, TRIES_MAX)), None);
        side.ask(now, at(DSP));
        let pth = Pth::new(Pid::NONE, Pid::NONE);
        while let Some(sent) = side.tunnel.poll(now) {
            device.receive(now, 0, pth, &sent.packet());
        }
        let Some(Event::Request { ticket, .. }) = device.pop_event() else { panic!("no question") };
        device.respond(ticket, response).unwrap();
        while let Some(sent) = device.poll(now) {
            comes(agent, now, DSP, &sent.packet());
        }
    }

    fn info(lds: u16) -> Vec<u8> {
        let mut message = [0; 64];
        let response = Response::GetLdInfo(LdInfo { memory: 1 << 30, lds, qos: 0 });
        let len = response.emit_message(0, &mut message).unwrap();
        message[..len].to_vec()
    }

    fn has_lds(agent: &Agent) -> bool {
        agent.switch.tables().edge(at(DSP)).is_some_and(weft_dataplane::pbr::EdgePort::has_lds)
    }

    /// The switch asks only devices that have made themselves known, and the answer sets the state of the port.
    #[test]
    fn a_device_says_how_many_lds_it_has() {
        let mut agent = agent();
        let side = agent.mlds.get_mut(&at(DSP)).unwrap();
        side.ask(ms(49), at(DSP));
        assert_eq!((side.asked, side.next_due()), (None, None), "it has not spoken");
        let mut device = Tunnel::new(Pid::NONE);
        let mut hello = [0; 16];
        let len = notification(&Request::Event(0), &mut hello).unwrap();
        device.notify(Peer::Port(0), MessageType::FmApi, &hello[..len]).unwrap();
        let sent = device.poll(ms(50)).unwrap();
        comes(&mut agent, ms(50), 0, &sent.packet());
        assert_eq!(agent.counts.refused, 1, "not of a host");
        comes(&mut agent, ms(50), DSP, &sent.packet());
        assert!(agent.mlds[&at(DSP)].asked.is_some(), "it is asked at once");
        agent.switch.set_partner(at(DSP), Known::Device { lds: 0 });
        answers(&mut agent, ms(60), &info(4));
        assert_eq!(agent.switch.port(at(DSP)).unwrap().lds(), 4);
        assert!(has_lds(&agent), "TLPs name one from now on");
        assert_eq!(agent.mlds[&at(DSP)].next_due(), None, "and it is asked no more");
        agent.set_link(ms(70), at(DSP), None);
        assert_eq!(
            (agent.mlds[&at(DSP)].lds(), has_lds(&agent)),
            (0, false),
            "it holds for a link"
        );
    }

    /// The switch finds a device that always answers late, too. It stops asking after 10.23 s.
    #[test]
    fn a_device_that_answers_late_is_given_more_time_each_try() {
        for (late, tries) in [(0, 1), (9, 1), (11, 2), (300, 6), (2_000, 9), (12_000, 10)] {
            let mut agent = agent();
            let side = agent.mlds.get_mut(&at(DSP)).unwrap();
            let (mut device, mut asked, mut now) = (Tunnel::new(Pid::NONE), 0, ms(0));
            let mut under_way = BTreeMap::new();
            side.heard(now);
            loop {
                let turn = side.turn(now, at(DSP));
                if turn.is_mld {
                    break;
                }
                for sent in turn.sent {
                    asked += 1;
                    under_way.insert(now + Span::from_ms(late), sent);
                }
                let next = under_way.keys().next().copied();
                let Some(due) = Instant::earlier(side.next_due(), next) else { break };
                now = due;
                if let Some(question) = under_way.remove(&now) {
                    device.receive(now, 0, Pth::new(Pid::NONE, Pid::NONE), &question.packet());
                    let Some(Event::Request { ticket, .. }) = device.pop_event() else {
                        panic!("no question")
                    };
                    device.respond(ticket, &info(4)).unwrap();
                    while let Some(sent) = device.poll(now) {
                        let to = Pth::new(Pid::NONE, Pid::NONE);
                        side.tunnel.receive(now, at(DSP).get(), to, &sent.packet());
                    }
                }
            }
            assert_eq!(
                (asked, side.lds()),
                (tries, if late < 12_000 { 4 } else { 0 }),
                "{late} ms"
            );
        }
    }

    /// An impossible answer means a device without LDs: a count of 0 or above 16, a refusal, or bytes of another
    /// message.
    #[test]
    fn what_cannot_be_is_no_device_with_lds() {
        let refused = {
            let header = Header::request(Opcode::GET_LD_INFO, 0);
            let mut message = vec![0; header::LEN];
            header.response(ReturnCode::Unsupported).emit(0, &mut message).unwrap();
            message
        };
        let short = {
            let header = Header::request(Opcode::GET_LD_INFO, 0).response(ReturnCode::Success);
            let mut message = vec![0; header::LEN + 3];
            header.emit(3, &mut message).unwrap();
            message
        };
        for (name, message) in [
            ("none", info(0)),
            ("17", info(17)),
            ("65535", info(u16::MAX)),
            ("refused", refused),
            ("short", short),
        ] {
            let mut agent = agent();
            agent.switch.set_partner(at(DSP), Known::Device { lds: 0 });
            answers(&mut agent, ms(60), &message);
            assert_eq!(agent.switch.port(at(DSP)).unwrap().lds(), 0, "{name}");
            assert!(!has_lds(&agent), "{name}");
        }
    }

    /// LD `FFFFh` carries only answers, and only at a downstream port: no device commands a switch by it.
    #[test]
    fn nobody_asks_a_switch_by_ld_ffff() {
        let mut agent = agent();
        let mut device = Tunnel::new(Pid::NONE);
        let mut message = [0; 64];
        let len = Request::Identify.emit_message(0, &mut message).unwrap();
        let (peer, timeout) = (Peer::Port(0), Span::from_ms(1));
        device.request(ms(1), peer, MessageType::FmApi, &message[..len], timeout).unwrap();
        let sent = device.poll(ms(1)).unwrap();
        for port in 0..2 {
            comes(&mut agent, ms(1), port, &sent.packet());
        }
        assert_eq!(agent.counts.refused, 2);
        assert!(agent.mlds[&at(DSP)].tunnel.asked().is_empty());
        // An answer to no request changes nothing either.
        let answer = MctpPacket { owner: false, ..sent.packet() };
        comes(&mut agent, ms(2), DSP, &answer);
        assert_eq!((agent.counts.refused, agent.switch.port(at(DSP)).unwrap().lds()), (2, 0));
    }
}
