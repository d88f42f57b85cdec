//! Records of a PBR switch's event logs, and notifications of them.
//!
//! [`PortEvent`] and [`RefusalEvent`] are the 80 bytes behind the header of an
//! [`EventRecord`](super::generic::EventRecord), by its kind. [`notification`] makes an event
//! message of a request; such a message gets no answer.
//!
//! Source: docs/spec/wire-formats.md §4.2 ("Events"); CXL 3.1 sections 7.6.8.1, 8.2.9.2.

use super::commands::Request;
use super::header::{Category, Header};
use super::layout::record;
use super::notify::FmNotification;
use super::opcode::Opcode;
use super::wire::{Uuid, Wire};

/// Number of the informational log.
pub const INFO: u8 = 0;
/// Number of the warning log.
pub const WARNING: u8 = 1;
/// Number of the last log there can be, that of dynamic capacity.
pub const LAST: u8 = 4;

/// Kind of a record that is a [`PortEvent`]: Physical Switch Event Record.
pub const PORT_EVENT: Uuid = [
    0x77, 0xCF, 0x92, 0x71, 0x9C, 0x02, 0x47, 0x0B, 0x9F, 0xE4, 0xBC, 0x7B, 0x75, 0xF2, 0xDA, 0x97,
];
/// Kind of a record that is a [`RefusalEvent`], weft's own.
pub const REFUSAL_EVENT: Uuid = [
    0x3B, 0x0F, 0x51, 0x5E, 0x57, 0x45, 0x4E, 0x46, 0x8A, 0x54, 0x52, 0x45, 0x46, 0x55, 0x53, 0x45,
];
/// Bytes of the name of a rule.
pub const RULE_LEN: usize = 40;

record! {
    /// State of a port after its link or its partner has changed; fields as in Get Physical Port
    /// State (5101h).
    struct PortEvent: 80 {
        /// Number of the physical port.
        0 => port: u8,
        /// 0 state of the link, 1 slot status register.
        1 => event: u8,
        /// Role of the port: [`PortState::config_state`](super::switch::PortState::config_state).
        5 => config_state: u8,
        /// CXL version of the device at the other end; code of 5101h.
        6 => partner_version: u8,
        /// Kind of device at the other end; code of 5101h.
        8 => partner_type: u8,
        /// CXL versions that the port supports, one bit each.
        9 => versions: u8,
        /// Lanes of the widest link that it supports.
        0xA => width_max: u8,
        /// Lanes in use.
        0xB => width: u8,
        /// Link speeds that it supports, one bit each.
        0xC => speeds: u8,
        /// Code of the fastest supported speed.
        0xD => speed_max: u8,
        /// Code of the speed in use.
        0xE => speed: u8,
        /// LTSSM state of its link.
        0xF => ltssm: u8,
        /// Number of the lowest lane in use.
        0x10 => first_lane: u8,
        /// Link flags; [`LINK_STATE_PERST`](super::switch::LINK_STATE_PERST).
        0x11 => link_state: u16,
    }
}

record! {
    /// Accesses that a switch has refused at a port by one rule.
    struct RefusalEvent: 80 {
        /// The port that they came in at.
        0 => port: u8,
        /// PID of the port; `FFF` where it has none.
        2 => pid: u16,
        /// Refusals since the switch was started.
        8 => count: u64,
        /// Name of the rule, as in docs/drops.md; zeros behind it.
        0x10 => rule: [u8; 40],
    }
}

impl RefusalEvent {
    /// Of the rule called `rule`; a name longer than [`RULE_LEN`] is cut.
    #[must_use]
    pub fn new(port: u8, pid: u16, rule: &str, count: u64) -> Self {
        let mut name = [0; RULE_LEN];
        for (to, from) in name.iter_mut().zip(rule.bytes()) {
            *to = from;
        }
        Self { port, pid, count, rule: name }
    }

    /// Name of the rule, up to the first byte that is no letter, digit or dash.
    pub fn rule(&self) -> impl Iterator<Item = char> {
        // the bytes came from another switch: only such characters may reach a log or a terminal
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        self.rule.into_iter().take_while(is_name).map(char::from)
    }
}

/// The GFD's notification (0107h) in `message`, which has to be one CCI message and nothing behind.
#[must_use]
pub fn gfd_notice(message: &[u8]) -> Option<FmNotification> {
    let (header, payload) = Header::parse(message).ok()?;
    let is_one = header.category == Category::Event && header.opcode == Opcode::FM_NOTIFICATION;
    let notice = payload.first_chunk::<{ FmNotification::LEN }>()?;
    // a payload longer than the record would be read by its first 40 bytes alone
    (is_one && notice.len() == payload.len()).then(|| FmNotification::read(notice).ok())?
}

/// Writes `request` as a notification to the front of `out`, and returns its length; `None` when it does not fit.
pub fn notification(request: &Request<'_>, out: &mut [u8]) -> Option<usize> {
    // tag 0: no answer comes that a tag could be matched with
    let header = Header { category: Category::Event, ..Header::request(request.opcode(), 0) };
    header.emit_with(out, |place| request.emit(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cci::wire::Wire;

    /// docs/spec/wire-formats.md §4.6: whole, of its category and opcode, and nothing else.
    #[test]
    fn a_gfds_notification_is_known_by_all_of_its_message() {
        let none = FmNotification::read(&[0; FmNotification::LEN]).unwrap();
        let notice = FmNotification { kind: 2, trigger: 8, ..none };
        let mut out = [0; 64];
        let len = notification(&Request::FmNotification(notice), &mut out).unwrap();
        assert_eq!((len, gfd_notice(&out[..len])), (52, Some(notice)));
        assert_eq!((gfd_notice(&out[..51]), gfd_notice(&out[..53])), (None, None));
        for (at, other) in [(0, 0), (3, 6), (5, 39)] {
            let mut message = out;
            message[at] = other;
            assert_eq!(gfd_notice(&message[..len]), None, "byte {at}");
        }
    }

    #[test]
    fn records_have_their_fields_where_the_page_says() {
        let event = PortEvent {
            port: 3,
            event: 0,
            config_state: 5,
            partner_version: 4,
            partner_type: 6,
            versions: 0x0F,
            width_max: 16,
            width: 8,
            speeds: 0x3F,
            speed_max: 6,
            speed: 5,
            ltssm: 4,
            first_lane: 2,
            link_state: 0x0201,
        };
        let mut bytes = [0; 80];
        event.write(&mut bytes);
        let want = [3, 0, 0, 0, 0, 5, 4, 0, 6, 0x0F, 16, 8, 0x3F, 6, 5, 4, 2, 1, 2];
        assert_eq!(bytes[..19], want);
        assert!(bytes[19..].iter().all(|byte| *byte == 0));
        assert_eq!(PortEvent::read(&bytes), Ok(event));

        let refused = RefusalEvent::new(2, 0x0A1, "not-in-gmv", 0x0102_0304);
        let mut bytes = [0; 80];
        refused.write(&mut bytes);
        assert_eq!(bytes[..16], [2, 0, 0xA1, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(&bytes[16..28], b"not-in-gmv\0\0");
        let read = RefusalEvent::read(&bytes).unwrap();
        assert_eq!(read, refused);
        assert!(read.rule().eq("not-in-gmv".chars()));
        let markup = RefusalEvent::new(0, 0, "a<b>\u{1b}[2J", 1);
        assert!(markup.rule().eq("a".chars()), "what is no name ends it");
    }

    /// docs/spec/wire-formats.md §4.2.
    #[test]
    fn a_notification_is_a_message_of_category_2() {
        let mut out = [0xFF; 64];
        let len = notification(&Request::Event(2), &mut out).unwrap();
        assert_eq!(out[..len], [2, 0, 0, 6, 1, 2, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(notification(&Request::Event(2), &mut out[..13]), None);
    }
}
