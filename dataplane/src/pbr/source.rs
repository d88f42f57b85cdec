//! Admission of TLPs with a PTH at an edge: who may send them. Checked before any other field of the PTH is used.
//!
//! Hosts and devices have no PTH; with one, they can only announce themselves as link partner. A GFD has one and
//! answers with it, but sends no requests.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles", "GFD (endpoint)"; docs/spec/wire-formats.md §3.7, §3.8;
//! docs/security.md.

use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::notify::FmNotification;
use weft_parsers::cci::{Wire, events, header};
use weft_parsers::cxl_mem::MemClass;
use weft_parsers::tlp::{MctpPacket, PbrVdm, Pth, Tlp, VdmOp};

use super::edge::{EdgePort, Role};
use super::ingress::Kind;
use super::refusal::Refusal;

/// MCTP message type of messages to fabric managers.
const FM_API: u8 = MessageType::FmApi as u8;
/// Length of a GFD's notification in bytes.
const NOTIFICATION_LEN: usize = header::LEN + FmNotification::LEN;

/// Checks whether a TLP with this PTH may come in at an edge port.
///
/// # Errors
/// [`Refusal::PthAtEdge`]: a host or device sent it; [`Refusal::ForeignSpid`]: a GFD used another's PID;
/// [`Refusal::NotFromGfd`]: a GFD may not send this kind of TLP.
#[inline]
pub fn admit(port: &EdgePort, pth: Pth, tlp: &Tlp<'_>) -> Result<(), Refusal> {
    match port.role {
        Role::Usp => Err(Refusal::PthAtEdge),
        Role::Dsp if is_announcement(pth, tlp) => Ok(()),
        Role::Dsp => Err(Refusal::PthAtEdge),
        Role::Gfd => from_gfd(port, pth, tlp),
    }
}

const fn is_s2m(class: MemClass) -> bool {
    matches!(class, MemClass::Ndr | MemClass::Drs | MemClass::BiSnp)
}

/// Like [`admit`], for a CXL.mem message: only a GFD has a PTH, and only answers and snoops with it.
///
/// # Errors
/// See [`admit`].
#[inline]
pub fn admit_mem(port: &EdgePort, pth: Pth, class: MemClass) -> Result<(), Refusal> {
    match port.role {
        Role::Usp | Role::Dsp => Err(Refusal::PthAtEdge),
        Role::Gfd if !port.has_pid(pth.spid) => Err(Refusal::ForeignSpid),
        Role::Gfd if !is_s2m(class) || pth.hie || pth.dpid.is_none() => Err(Refusal::NotFromGfd),
        Role::Gfd => Ok(()),
    }
}

/// Like [`admit`], for a CXL.cache message: no G-FAM device has a cache of a host's memory.
///
/// # Errors
/// See [`admit`].
#[inline]
pub fn admit_cache(port: &EdgePort, pth: Pth) -> Result<(), Refusal> {
    match port.role {
        Role::Usp | Role::Dsp => Err(Refusal::PthAtEdge),
        Role::Gfd if !port.has_pid(pth.spid) => Err(Refusal::ForeignSpid),
        Role::Gfd => Err(Refusal::NotFromGfd),
    }
}

fn from_gfd(port: &EdgePort, pth: Pth, tlp: &Tlp<'_>) -> Result<(), Refusal> {
    if !pth.dpid.is_none() {
        // A GFD is a completer: it answers requests and notifies GAEs. Anything else would be a request, which it never
        // sends.
        let says = match Kind::of(tlp) {
            Kind::Completion | Kind::UioCompletion | Kind::Gam => true,
            Kind::Other => is_answer(tlp),
            _ => false,
        };
        return match (port.has_pid(pth.spid), says && !pth.hie) {
            (true, true) => Ok(()),
            (true, false) => Err(Refusal::NotFromGfd),
            (false, _) => Err(Refusal::ForeignSpid),
        };
    }
    // DPID FFFh: a message to the link partner, which judges it by itself and forwards nothing.
    if is_announcement(pth, tlp) {
        return Ok(());
    }
    let is_own = pth.spid.is_none() || pth.spid == port.announced || port.has_pid(pth.spid);
    match (is_own, is_answer(tlp) || is_notification(tlp)) {
        (true, true) => Ok(()),
        (true, false) => Err(Refusal::NotFromGfd),
        (false, _) => Err(Refusal::ForeignSpid),
    }
}

/// Whether a component announces itself to its link partner.
fn is_announcement(pth: Pth, tlp: &Tlp<'_>) -> bool {
    pth.dpid.is_none() && PbrVdm::parse(tlp).is_ok_and(|vdm| vdm.op == VdmOp::LinkPartnerInfo)
}

/// Whether it is part of an answer to a command: the tag belongs to the requester.
fn is_answer(tlp: &Tlp<'_>) -> bool {
    MctpPacket::parse(tlp).is_ok_and(|packet| !packet.owner)
}

/// Whether it is one whole notification to the fabric manager (0107h), and neither a command nor a part of one.
fn is_notification(tlp: &Tlp<'_>) -> bool {
    MctpPacket::parse(tlp).is_ok_and(|packet| {
        let message = packet.payload.split_first().filter(|(kind, _)| **kind == FM_API);
        let message = message.and_then(|(_, rest)| rest.get(..NOTIFICATION_LEN));
        let whole = packet.owner && packet.first && packet.last;
        whole && message.is_some_and(|message| events::gfd_notice(message).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pbr::{Fast, Ldst};
    use std::sync::Arc;
    use weft_parsers::cci::Request;
    use weft_parsers::fabric::{Bdf, Pid};
    use weft_parsers::tlp::{Body, Kind as TlpKind, Mode, Routing, TlpRepr};

    const OWN: u16 = 0x0A1;
    const NONE: u16 = 0xFFF;

    fn pid(bits: u16) -> Pid {
        Pid::from_low_bits(bits)
    }

    fn bytes(repr: &TlpRepr<'_>) -> Vec<u8> {
        let mut out = vec![0; 256];
        let len = repr.emit(&mut out).unwrap();
        out.truncate(len);
        out
    }

    fn message(op: VdmOp) -> Vec<u8> {
        let payload = vec![0; 4 * op.payload_dws().0];
        bytes(&PbrVdm::new(op, &payload).repr())
    }

    fn mctp(owner: bool, first: bool) -> Vec<u8> {
        let (dest, source, last, seq, tag, pad) = (0, 0, first, 0, 1, 0);
        let packet =
            MctpPacket { dest, source, first, last, seq, owner, tag, pad, payload: &[7; 8] };
        bytes(&packet.repr(Mode::Flit, Bdf::from_bits(0), Bdf::from_bits(0)))
    }

    /// Requests: reads, writes, configuration and messages.
    fn requests() -> Vec<(String, Vec<u8>)> {
        let mut all: Vec<(String, Vec<u8>)> = [
            ("MRd", vec![0x20, 0, 0, 1, 1, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0x10, 0]),
            ("MWr", vec![0x60, 0, 0, 1, 1, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0x10, 0, 1, 2, 3, 4]),
            ("UIOMRd", vec![0x22, 0, 0, 2, 1, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0x10, 0]),
            ("UIOMWr", vec![0x61, 0, 0, 1, 1, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0x10, 0, 1, 2, 3, 4]),
            ("CfgRd0", vec![0x04, 1, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0xF]),
        ]
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .into();
        let bare = TlpKind::Message { routing: Routing::Broadcast, data: false };
        let body = Body::Message { code: 0x19, dw2: 0, dw3: 0 };
        let bare = TlpRepr::new(Mode::Flit, bare, Bdf::from_bits(0), 0, body);
        all.push(("broadcast".to_owned(), bytes(&bare)));
        all.push(("a command".to_owned(), mctp(true, true)));
        all.push(("a command's later part".to_owned(), mctp(true, false)));
        let of_gfds = [VdmOp::Gam, VdmOp::UcPull, VdmOp::UcRsp, VdmOp::UcRspLast, VdmOp::UcRspFail];
        for op in VdmOp::ALL.into_iter().filter(|op| !of_gfds.contains(op)) {
            if op != VdmOp::LinkPartnerInfo {
                all.push((format!("{op:?}"), message(op)));
            }
        }
        all
    }

    /// TLPs that a GFD sends: completions, notifications, its part in a forwarded command, answers.
    fn answers() -> Vec<(String, Vec<u8>)> {
        let mut all: Vec<(String, Vec<u8>)> = [
            ("Cpl", vec![0x0A, 0, 0, 0, 1, 0, 0, 5, 2, 0, 0, 4]),
            ("CplD", vec![0x4A, 0, 0, 1, 1, 0, 0, 5, 2, 0, 0, 4, 1, 2, 3, 4]),
        ]
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .into();
        for op in [VdmOp::Gam, VdmOp::UcPull, VdmOp::UcRsp, VdmOp::UcRspLast, VdmOp::UcRspFail] {
            all.push((format!("{op:?}"), message(op)));
        }
        all.push(("an answer".to_owned(), mctp(false, true)));
        all.push(("an answer's later part".to_owned(), mctp(false, false)));
        all
    }

    fn judged(port: &EdgePort, pth: Pth, bytes: &[u8]) -> Result<(), Refusal> {
        let tlp = Tlp::parse(Mode::Flit, bytes).expect("a TLP");
        admit(port, pth, &tlp)
    }

    fn port(role: Role) -> EdgePort {
        let tables = (Fast::new(1, 0).unwrap(), Ldst::new(1, 0).unwrap());
        let mut port = EdgePort::new(role, pid(OWN), tables.0, tables.1);
        port.more_pids = Arc::new([pid(0x0A2)]);
        port.announced = pid(0x0B0);
        port
    }

    /// All TLPs with a PTH are refused from a host, and from a device all but its announcement as link partner.
    #[test]
    fn hosts_and_devices_have_no_pth() {
        for (name, bytes) in requests().into_iter().chain(answers()) {
            for (spid, dpid) in [(OWN, NONE), (NONE, NONE), (OWN, 5), (0x0B0, 5), (5, OWN)] {
                for role in [Role::Usp, Role::Dsp] {
                    let got = judged(&port(role), Pth::new(pid(spid), pid(dpid)), &bytes);
                    assert_eq!(got, Err(Refusal::PthAtEdge), "{role:?} {name} {spid:x} {dpid:x}");
                }
            }
        }
        let info = message(VdmOp::LinkPartnerInfo);
        for spid in [OWN, NONE, 5] {
            let to = |dpid| Pth::new(pid(spid), pid(dpid));
            assert_eq!(judged(&port(Role::Dsp), to(NONE), &info), Ok(()));
            assert_eq!(judged(&port(Role::Usp), to(NONE), &info), Err(Refusal::PthAtEdge));
            assert_eq!(judged(&port(Role::Dsp), to(5), &info), Err(Refusal::PthAtEdge));
        }
    }

    /// A GFD answers with its own PIDs as source, and sends no request, with any PID.
    #[test]
    fn a_gfd_answers_with_its_own_pids_alone() {
        let gfd = port(Role::Gfd);
        let from = |spid, dpid| Pth::new(pid(spid), pid(dpid));
        for (name, bytes) in answers() {
            for (spid, own) in
                [(OWN, true), (0x0A2, true), (0x0B0, false), (9, false), (NONE, false)]
            {
                let want = if own { Ok(()) } else { Err(Refusal::ForeignSpid) };
                assert_eq!(judged(&gfd, from(spid, 5), &bytes), want, "{name} {spid:x}");
            }
            let hie = Pth { hie: true, ..from(OWN, 5) };
            assert_eq!(judged(&gfd, hie, &bytes), Err(Refusal::NotFromGfd), "{name}");
        }
        for (name, bytes) in requests() {
            for dpid in [5, NONE] {
                let own = judged(&gfd, from(OWN, dpid), &bytes);
                assert_eq!(own, Err(Refusal::NotFromGfd), "{name} {dpid:x}");
                let other = judged(&gfd, from(9, dpid), &bytes);
                assert_eq!(other, Err(Refusal::ForeignSpid), "{name} {dpid:x}");
            }
        }
        let mut nobody = port(Role::Gfd);
        (nobody.pid, nobody.more_pids) = (Pid::NONE, Arc::new([]));
        for spid in [NONE, 0x0B0, OWN] {
            let got = judged(&nobody, from(spid, 5), &mctp(false, true));
            assert_eq!(got, Err(Refusal::ForeignSpid), "without a PID of its own: {spid:x}");
        }
    }

    /// A notification (0107h) goes to the link partner alone, whole, in the GFD's own name, and no command looks like one.
    #[test]
    fn a_gfd_notifies_its_partner_alone() {
        let gfd = port(Role::Gfd);
        let to = |spid, dpid| Pth::new(pid(spid), pid(dpid));
        let of = |request: &Request<'_>, event: bool, (first, last): (bool, bool)| {
            let mut body = [0; 64];
            body[0] = FM_API;
            let len = if event {
                events::notification(request, &mut body[1..])
            } else {
                request.emit_message(0, &mut body[1..])
            };
            let len = (1 + len.unwrap()).next_multiple_of(4);
            let (dest, source, seq, owner, tag, pad) = (0, 0, 0, true, 1, 0);
            let payload = &body[..len];
            let packet = MctpPacket { dest, source, first, last, seq, owner, tag, pad, payload };
            bytes(&packet.repr(Mode::Flit, Bdf::from_bits(0), Bdf::from_bits(0)))
        };
        let notice = Request::FmNotification(FmNotification::read(&[0; 40]).unwrap());
        let whole = of(&notice, true, (true, true));
        #[rustfmt::skip] // columns: SPID, DPID, refused
        let cases = [
            (OWN, NONE, None), (NONE, NONE, None), (0x0B0, NONE, None), (9, NONE, Some(Refusal::ForeignSpid)),
            (OWN, 5, Some(Refusal::NotFromGfd)), (9, 5, Some(Refusal::ForeignSpid)),
        ];
        for (spid, dpid, refused) in cases {
            let got = judged(&gfd, to(spid, dpid), &whole);
            assert_eq!(got.err(), refused, "{spid:x} {dpid:x}");
            for role in [Role::Usp, Role::Dsp] {
                assert_eq!(judged(&port(role), to(spid, dpid), &whole), Err(Refusal::PthAtEdge));
            }
        }
        let others = [
            of(&notice, false, (true, true)),
            of(&notice, true, (true, false)),
            of(&notice, true, (false, true)),
            of(&Request::Event(2), true, (true, true)),
            of(&Request::Identify, false, (true, true)),
        ];
        for other in others {
            let got = judged(&gfd, to(OWN, NONE), &other);
            assert_eq!(got, Err(Refusal::NotFromGfd), "{other:x?}");
        }
    }

    /// Answers to the link partner may come in the name that the GFD calls itself by, as they go no further.
    #[test]
    fn to_its_partner_a_gfd_only_answers_too() {
        let gfd = port(Role::Gfd);
        let to_partner = |spid| Pth::new(pid(spid), Pid::NONE);
        for (spid, want) in
            [(OWN, Ok(())), (NONE, Ok(())), (0x0B0, Ok(())), (9, Err(Refusal::ForeignSpid))]
        {
            assert_eq!(judged(&gfd, to_partner(spid), &mctp(false, true)), want, "{spid:x}");
        }
        for op in [VdmOp::Gam, VdmOp::UcRspLast] {
            let got = judged(&gfd, to_partner(OWN), &message(op));
            assert_eq!(got, Err(Refusal::NotFromGfd), "{op:?} for nobody");
        }
        assert_eq!(judged(&gfd, to_partner(9), &message(VdmOp::LinkPartnerInfo)), Ok(()));
    }
}
