//! TLPs of Lightweight Notification at a bridge, and who may send them.
//!
//! A completer knows requesters by their id. A component that used another's id would end that one's registrations, and
//! its copies would go stale unnoticed. So a bridge accepts LN requests only with ids of its own buses. LN Messages are
//! sent by the root only.
//!
//! Source: PCIe 5.0 section 6.21; PCIe 6.0 section 6.12.1.1 (source validation); docs/spec/wire-formats.md §3.3.

use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::ln::VENDOR_PCI_SIG;
use weft_parsers::tlp::view::CODE_VDM_TYPE1;
use weft_parsers::tlp::{Kind, Tlp};

use super::bridge::Bridge;
use super::refusal::Refusal;

/// A TLP's part in Lightweight Notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LnTlp {
    /// A read or write of this function, with LN set.
    Request(Bdf),
    /// A completion with LN set.
    Completion,
    /// An LN Message from the root.
    Message,
}

impl LnTlp {
    /// Classifies a TLP whose LN bit, here or where it entered the fabric, is `ln`; `None` if it has no part in LN.
    #[inline]
    #[must_use]
    pub fn of(tlp: &Tlp<'_>, ln: bool) -> Option<Self> {
        match tlp.kind() {
            Kind::MemRead | Kind::MemWrite if ln => Some(Self::Request(tlp.requester())),
            Kind::Completion { .. } if ln => Some(Self::Completion),
            Kind::Message { data: true, .. } if is_message(tlp) => Some(Self::Message),
            _ => None,
        }
    }

    /// Whether this kind of TLP has an LN bit.
    #[must_use]
    pub const fn has_bit(self) -> bool {
        matches!(self, Self::Request(_) | Self::Completion)
    }

    /// Whether it may come in from below a bridge.
    ///
    /// # Errors
    /// [`Refusal::LnForeignId`]: a request with the id of a function elsewhere; [`Refusal::MessageDirection`]: an LN
    /// Message, which comes from above only.
    pub fn may_come_up(self, bridge: &Bridge) -> Result<(), Refusal> {
        match self {
            Self::Request(requester) if !bridge.has_bus(requester.bus()) => {
                Err(Refusal::LnForeignId)
            }
            Self::Message => Err(Refusal::MessageDirection),
            Self::Request(_) | Self::Completion => Ok(()),
        }
    }
}

fn is_message(tlp: &Tlp<'_>) -> bool {
    tlp.message_code() == Some(CODE_VDM_TYPE1)
        && tlp.vendor_id() == Some(VENDOR_PCI_SIG)
        // PCI-SIG's messages tell each other apart by their subtype in byte 12; 00h is LN.
        && tlp.message_dws().is_some_and(|(_, dw3)| dw3 >> 24 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_parsers::fabric::Hpa;
    use weft_parsers::tlp::ln::{LnMessage, Reason, read};
    use weft_parsers::tlp::{Mode, TlpRepr, convert};

    fn bytes(repr: &TlpRepr<'_>) -> Vec<u8> {
        let mut out = vec![0; 64];
        let len = repr.emit(&mut out).unwrap();
        out.truncate(len);
        out
    }

    /// A bridge takes requests with ids of its own buses, and no message, in either layout.
    #[test]
    fn a_bridge_takes_its_own_requests_and_no_message() {
        let bridge = Bridge { secondary: 2, subordinate: 4, ..Bridge::default() };
        for (bus, want) in [(1, false), (2, true), (4, true), (5, false)] {
            let read = bytes(&read(Bdf::new(bus, 0, 0), 1, Hpa(0x1000), 16));
            let read = Tlp::parse(Mode::NonFlit, &read).unwrap();
            assert_eq!(LnTlp::of(&read, false), None, "without LN it is any read");
            let ln = LnTlp::of(&read, read.ln()).unwrap();
            let want = if want { Ok(()) } else { Err(Refusal::LnForeignId) };
            assert_eq!((ln.has_bit(), ln.may_come_up(&bridge)), (true, want), "{bus}");
        }
        for dest in [Some(Bdf::new(9, 0, 0)), None] {
            let message = LnMessage { dest, reason: Reason::Updated, line: Hpa(0x1000) };
            let payload = message.payload();
            let message = bytes(&message.repr(Bdf::new(2, 0, 0), &payload));
            let message = Tlp::parse(Mode::NonFlit, &message).unwrap();
            let mut flit = vec![0; 64];
            let len = convert::to_flit(&message, &mut flit).unwrap();
            for tlp in [message, Tlp::parse(Mode::Flit, &flit[..len]).unwrap()] {
                let ln = LnTlp::of(&tlp, tlp.ln()).unwrap();
                let want = (false, Err(Refusal::MessageDirection));
                assert_eq!((ln.has_bit(), ln.may_come_up(&bridge)), want, "{dest:?}");
            }
        }
    }
}
