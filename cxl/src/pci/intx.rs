//! Legacy interrupts (INTx) as messages: the levels of four virtual wires at a port, combined from all ports below.
//!
//! [`Message`] is the content of a TLP; [`Wires`] takes messages of the ports below and computes which to send
//! upstream. Pins A to D are 0 to 3.
//!
//! Source: PCIe 6.0 §2.2.8.1 (messages, mapping of bridges), §6.1.2; docs/spec/cxl-fabric.md "INTx".

use std::collections::BTreeMap;

use weft_parsers::tlp::{Body, Kind, Routing, Tlp};

/// Code of `Assert_INTA`; B to D follow, then the four `Deassert` in the same order.
const ASSERT_A: u8 = 0x20;
const PINS: u8 = 4;

/// A pin, A to D, as 0 to 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin(u8);

impl Pin {
    /// All four pins, A first.
    pub const ALL: [Self; 4] = [Self(0), Self(1), Self(2), Self(3)];

    /// Pin of an Interrupt Pin register (1 to 4); `None` for a function without INTx.
    #[must_use]
    pub const fn from_register(value: u8) -> Option<Self> {
        match value {
            1..=4 => Some(Self(value - 1)),
            _ => None,
        }
    }

    /// Pin of a letter, in either case.
    #[must_use]
    pub const fn from_letter(letter: char) -> Option<Self> {
        match letter {
            'A' | 'a' => Some(Self(0)),
            'B' | 'b' => Some(Self(1)),
            'C' | 'c' => Some(Self(2)),
            'D' | 'd' => Some(Self(3)),
            _ => None,
        }
    }

    /// Number of the pin, 0 for A.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Letter of the pin, upper case.
    #[must_use]
    pub const fn letter(self) -> char {
        (b'A' + self.0) as char
    }

    //= PCIe 6.0 section 2.2.8.1: the pin of a device below becomes another one by its device number
    /// The pin on the upper side of a bridge, for a device with that number below it.
    #[must_use]
    pub const fn above(self, device: u8) -> Self {
        Self((self.0 + device % PINS) % PINS)
    }

    const fn bit(self) -> u8 {
        1 << self.0
    }
}

/// An INTx message: a change of one pin's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The pin whose level changed.
    pub pin: Pin,
    /// Whether the pin is now asserted.
    pub on: bool,
}

impl Message {
    /// The message in a TLP; `None` if the TLP is no INTx message.
    #[must_use]
    pub fn of(tlp: &Tlp<'_>) -> Option<Self> {
        // Only messages with local routing: one that is routed otherwise is forwarded like any message and changes
        // no level.
        if tlp.kind() != Self::KIND {
            return None;
        }
        let code = tlp.message_code()?.checked_sub(ASSERT_A).filter(|code| *code < 2 * PINS)?;
        Some(Self { pin: Pin(code % PINS), on: code < PINS })
    }

    /// Kind of its TLP: local routing, so it ends at the other end of the link.
    pub const KIND: Kind = Kind::Message { routing: Routing::Local, data: false };

    /// Header of its TLP.
    #[must_use]
    pub const fn body(self) -> Body {
        let code = ASSERT_A + self.pin.0 + if self.on { 0 } else { PINS };
        Body::Message { code, dw2: 0, dw3: 0 }
    }
}

/// The INTx wires of an upstream port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wires {
    /// Asserted pins of each port below, mapped to the upper side. A port that asserts none has no entry.
    below: BTreeMap<usize, u8>,
    /// Levels of the pins as last sent upstream.
    told: u8,
}

impl Wires {
    /// Takes in a message from below a port; `device` is the port's device number on the internal bus.
    pub fn receive(&mut self, port: usize, device: u8, message: Message) {
        let bit = message.pin.above(device).bit();
        let levels = self.below.entry(port).or_default();
        *levels = if message.on { *levels | bit } else { *levels & !bit };
        if *levels == 0 {
            self.below.remove(&port);
        }
    }

    //= PCIe 6.0 section 2.2.8.1: a downstream port whose link is down deasserts what was asserted by it
    /// Deasserts all pins of a port, since whatever is below it is gone or was reset.
    pub fn clear(&mut self, port: usize) {
        self.below.remove(&port);
    }

    /// Does the same for all ports for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(usize) -> bool) {
        self.below.retain(|port, _| stays(*port));
    }

    /// Clears everything and sends nothing: the port itself was reset, and with it the port above.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Pins that are asserted upstream.
    #[must_use]
    pub fn asserted(&self) -> Vec<Pin> {
        Self::pins(self.levels()).collect()
    }

    /// Pins that are asserted by any port, as bits.
    fn levels(&self) -> u8 {
        // A wired OR: a pin stays asserted until the last port below has deasserted it.
        self.below.values().fold(0, |all, levels| all | levels)
    }

    fn pins(bits: u8) -> impl Iterator<Item = Pin> {
        Pin::ALL.into_iter().filter(move |pin| bits & pin.bit() != 0)
    }

    /// Messages to send upstream: one for each pin that the first port below asserted, or the last deasserted.
    pub fn changes(&mut self) -> Vec<Message> {
        // Compared with the levels last sent, not message by message, so that two ports that share a pin do not
        // send twice.
        let now = self.levels();
        let changed = now ^ core::mem::replace(&mut self.told, now);
        Self::pins(changed).map(|pin| Message { pin, on: now & pin.bit() != 0 }).collect()
    }
}

#[cfg(test)]
mod tests {
    use weft_parsers::fabric::Bdf;
    use weft_parsers::tlp::{Mode, TlpRepr};

    use super::*;

    const fn say(pin: char, on: bool) -> Message {
        match Pin::from_letter(pin) {
            Some(pin) => Message { pin, on },
            None => panic!("a letter"),
        }
    }

    /// The table of the standard: device number below the bridge, and the pins that A to D become.
    #[test]
    fn a_bridge_maps_pins_by_device_number() {
        #[rustfmt::skip] // columns: device numbers, pins above of A, B, C, D
        let cases = [
            ([0, 4,  8, 28], "ABCD"),
            ([1, 5,  9, 29], "BCDA"),
            ([2, 6, 10, 30], "CDAB"),
            ([3, 7, 11, 31], "DABC"),
        ];
        for (devices, want) in cases {
            for device in devices {
                let got: String = Pin::ALL.map(|pin| pin.above(device).letter()).iter().collect();
                assert_eq!(got, want, "{device}");
            }
        }
    }

    /// The first port asserts a pin, the last one deasserts it; a repeated message changes nothing.
    #[test]
    fn levels_of_all_below_are_collapsed() {
        let mut wires = Wires::default();
        #[rustfmt::skip] // columns: port, device, message; what is sent up
        let steps: [(usize, u8, Message, &[Message]); 8] = [
            (1, 0, say('A', true),  &[say('A', true)]),
            (1, 0, say('A', true),  &[]),
            (2, 1, say('D', true),  &[]),
            (2, 1, say('A', true),  &[say('B', true)]),
            (1, 0, say('A', false), &[]),
            (1, 0, say('B', false), &[]),
            (2, 1, say('D', false), &[say('A', false)]),
            (2, 1, say('A', false), &[say('B', false)]),
        ];
        for (port, device, message, want) in steps {
            wires.receive(port, device, message);
            assert_eq!(wires.changes(), want, "{port}: {message:?}");
        }
        assert_eq!(wires, Wires::default());
    }

    #[test]
    fn who_is_gone_asserts_nothing() {
        let mut wires = Wires::default();
        wires.receive(1, 0, say('A', true));
        wires.receive(2, 0, say('A', true));
        wires.receive(2, 0, say('C', true));
        assert_eq!(wires.changes(), [say('A', true), say('C', true)]);
        assert_eq!(wires.asserted().len(), 2);
        wires.retain(|port| port != 2);
        assert_eq!(wires.changes(), [say('C', false)]);
        wires.clear(1);
        assert_eq!(wires.changes(), [say('A', false)]);
        wires.receive(1, 0, say('A', true));
        wires.reset();
        assert_eq!(wires.changes(), [], "who is above has forgotten, too");
    }

    /// Codes written by hand, in both modes; other codes and routings are no INTx.
    #[test]
    fn messages_have_their_codes() {
        for mode in [Mode::Flit, Mode::NonFlit] {
            for (code, want) in [
                (0x1F, None),
                (0x20, Some(say('A', true))),
                (0x23, Some(say('D', true))),
                (0x24, Some(say('A', false))),
                (0x27, Some(say('D', false))),
                (0x28, None),
            ] {
                let body = Body::Message { code, dw2: 0, dw3: 0 };
                let mut bytes = [0; 64];
                let tlp = TlpRepr::new(mode, Message::KIND, Bdf::new(1, 0, 0), 0, body);
                let len = tlp.emit(&mut bytes).unwrap();
                let tlp = Tlp::parse(mode, &bytes[..len]).unwrap();
                assert_eq!(Message::of(&tlp), want, "{code:#x}");
                assert!(want.is_none_or(|message| message.body() == body), "{code:#x}");
            }
            let kind = Kind::Message { routing: Routing::ToRoot, data: false };
            let body = Body::Message { code: 0x20, dw2: 0, dw3: 0 };
            let mut bytes = [0; 64];
            let len =
                TlpRepr::new(mode, kind, Bdf::new(1, 0, 0), 0, body).emit(&mut bytes).unwrap();
            assert_eq!(Message::of(&Tlp::parse(mode, &bytes[..len]).unwrap()), None, "to the root");
        }
    }
}
