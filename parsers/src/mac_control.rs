//! MAC Control frames: opcode, PFC and PAUSE.
//!
//! DA, SA, EtherType 0x8808, opcode 16 bits; PFC: enable vector 16, 8 x time 16 bits; PAUSE: time
//! 16 bits; zeros to 60 bytes. A time is in quanta of 512 bit times.
//!
//! Source: IEEE 802.3-2022 annexes 31, 31B and 31D, IEEE 802.1Q-2022 clause 36;
//! docs/spec/wire-formats.md §2.3.

use crate::addr::MacAddr;
use crate::bytes::{be16, byte, cut, put, window};
use crate::error::{Field, Layer, ParseError};
use crate::ethernet::{self, EthernetRepr};
use crate::types::ether_type;

/// Bytes up to and including the opcode.
pub const LEN: usize = 16;
/// Bytes of a MAC Control frame as emitted: the least a frame may have without FCS.
pub const FRAME_LEN: usize = ethernet::MIN_FRAME_LEN;
/// Bytes of a PFC frame up to its last time.
pub const PFC_LEN: usize = 34;
/// Bytes of a PAUSE frame up to its time.
pub const PAUSE_LEN: usize = 18;

/// Opcodes of MAC Control frames.
pub mod opcode {
    /// 802.3x PAUSE, of a whole link.
    pub const PAUSE: u16 = 0x0001;
    /// Priority-based flow control (PFC), of single classes.
    pub const PFC: u16 = 0x0101;
    /// Extension with a CID: UEC `CC_Update`.
    pub const EXTENSION: u16 = 0xFFFE;

    /// Name of an opcode that is known.
    #[must_use]
    pub const fn name(opcode: u16) -> Option<&'static str> {
        match opcode {
            PAUSE => Some("pause"),
            PFC => Some("pfc"),
            EXTENSION => Some("extension"),
            _ => None,
        }
    }
}

/// Borrowed front of a MAC Control frame. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct MacControl<'a> {
    head: &'a [u8; LEN],
}

impl<'a> MacControl<'a> {
    /// Takes the front of `frame`; also returns the bytes behind the opcode.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain; [`ParseError::Value`] when the
    /// EtherType is not 0x8808.
    #[inline]
    pub const fn parse(frame: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let (head, rest) = match cut(frame, Layer::MacControl) {
            Ok(parts) => parts,
            Err(error) => return Err(error),
        };
        let kind = be16::<12, _>(head);
        if kind != ether_type::MAC_CONTROL {
            let (layer, field) = (Layer::MacControl, Field::EtherType);
            return Err(ParseError::Value { layer, field, value: kind });
        }
        Ok((Self { head }, rest))
    }

    /// Destination address, bytes 0 to 5.
    #[inline]
    #[must_use]
    pub const fn dst(self) -> MacAddr {
        MacAddr(*window::<0, 6, _>(self.head))
    }

    /// Source address, bytes 6 to 11.
    #[inline]
    #[must_use]
    pub const fn src(self) -> MacAddr {
        MacAddr(*window::<6, 6, _>(self.head))
    }

    /// Opcode, bytes 14 and 15; [`opcode`] has those in use.
    #[inline]
    #[must_use]
    pub const fn opcode(self) -> u16 {
        be16::<14, _>(self.head)
    }
}

/// Refuses `frame` unless it is a MAC Control frame with opcode `want`.
pub(crate) const fn expect_opcode(frame: &[u8], layer: Layer, want: u16) -> Result<(), ParseError> {
    match MacControl::parse(frame) {
        Ok((view, _)) if view.opcode() == want => Ok(()),
        Ok((view, _)) => {
            Err(ParseError::Value { layer, field: Field::Opcode, value: view.opcode() })
        }
        Err(error) => Err(error),
    }
}

/// Writes addresses, EtherType and opcode, and zeros to the end.
pub(crate) const fn emit_front(dst: MacAddr, src: MacAddr, opcode: u16, out: &mut [u8; FRAME_LEN]) {
    *out = [0; FRAME_LEN];
    if let Some(head) = out.first_chunk_mut() {
        EthernetRepr { dst, src, ether_type: ether_type::MAC_CONTROL }.emit(head);
    }
    put::<{ ethernet::LEN }, 2, _>(out, opcode.to_be_bytes());
}

/// Content of a PFC frame: the classes that it names, and the time that each is to pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pfc {
    /// Bit n: class n is named. A class that is not named goes on as it was.
    pub enable: u8,
    /// Time per class in quanta of 512 bit times; 0 resumes. Counts only where `enable` says so.
    pub quanta: [u16; 8],
}

impl Pfc {
    /// Reads a whole PFC frame, padded or not. The DA is classification's business.
    ///
    /// The high byte of the enable vector is reserved: sent as zero, ignored here, as by other
    /// receivers (docs/spec/wire-formats.md §2.3 names them).
    ///
    /// # Errors
    /// [`ParseError::Short`] below [`PFC_LEN`] bytes; [`ParseError::Value`] when it is not MAC
    /// Control or the opcode is not PFC's.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        expect_opcode(frame, Layer::Pfc, opcode::PFC)?;
        let (head, _) = cut::<PFC_LEN>(frame, Layer::Pfc)?;
        // byte 16, the reserved half of the vector, is not looked at
        let enable = byte::<17, _>(head);
        let times = window::<18, 16, _>(head).as_chunks::<2>().0;
        let mut quanta = [0; 8];
        for (to, from) in quanta.iter_mut().zip(times) {
            *to = u16::from_be_bytes(*from);
        }
        Ok(Self { enable, quanta })
    }

    /// Names `class` (0..=7) with `quanta`; any other class is ignored.
    #[must_use]
    pub fn with(mut self, class: u8, quanta: u16) -> Self {
        if let Some(place) = self.quanta.get_mut(usize::from(class)) {
            *place = quanta;
            self.enable |= 1 << class;
        }
        self
    }

    /// Quanta of `class`; `None` when the frame does not name it.
    #[inline]
    #[must_use]
    pub fn class(&self, class: u8) -> Option<u16> {
        let named = self.enable.checked_shr(u32::from(class)).is_some_and(|bits| bits & 1 != 0);
        self.quanta.get(usize::from(class)).copied().filter(|_| named)
    }

    /// Writes a whole frame from `src` to [`MacAddr::PAUSE`].
    pub fn emit(&self, src: MacAddr, out: &mut [u8; FRAME_LEN]) {
        emit_front(MacAddr::PAUSE, src, opcode::PFC, out);
        put::<16, 2, _>(out, [0, self.enable]);
        let mut times = [0; 16];
        for (to, from) in times.as_chunks_mut::<2>().0.iter_mut().zip(self.quanta) {
            *to = from.to_be_bytes();
        }
        put::<18, 16, _>(out, times);
    }
}

/// Content of an 802.3x PAUSE frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Time in quanta of 512 bit times; 0 resumes.
    pub quanta: u16,
}

impl Pause {
    /// Reads a whole PAUSE frame, padded or not. The DA is classification's business.
    ///
    /// # Errors
    /// [`ParseError::Short`] below [`PAUSE_LEN`] bytes; [`ParseError::Value`] when it is not MAC
    /// Control or the opcode is not PAUSE's.
    #[inline]
    pub const fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        if let Err(error) = expect_opcode(frame, Layer::Pause, opcode::PAUSE) {
            return Err(error);
        }
        match cut::<PAUSE_LEN>(frame, Layer::Pause) {
            Ok((head, _)) => Ok(Self { quanta: be16::<16, _>(head) }),
            Err(error) => Err(error),
        }
    }

    /// Writes a whole frame from `src` to [`MacAddr::PAUSE`].
    pub const fn emit(&self, src: MacAddr, out: &mut [u8; FRAME_LEN]) {
        emit_front(MacAddr::PAUSE, src, opcode::PAUSE, out);
        put::<16, 2, _>(out, self.quanta.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::fcs;
    use crate::testing::Rng;

    const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    #[test]
    fn worked_pfc_frames_both_ways() {
        #[rustfmt::skip] // columns: name, fields, bytes 16..34, FCS
        let cases = [
            ("assert 3",  Pfc::default().with(3, 0xFFFF),
             [0, 8, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0], [0xB0, 0xB2, 0x29, 0xC3]),
            ("resume 3",  Pfc::default().with(3, 0),
             [0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],       [0xD1, 0x31, 0x78, 0xAC]),
            ("3 and 5",   Pfc::default().with(3, 0x100).with(5, 0x200),
             [0, 0x28, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0],    [0x7C, 0x1A, 0x8E, 0x8E]),
        ];
        for (name, fields, body, want_fcs) in cases {
            let mut frame = [0xEE; FRAME_LEN];
            fields.emit(SRC, &mut frame);
            assert_eq!(
                frame[..16],
                [1, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 8, 1, 1],
                "{name}"
            );
            assert_eq!((&frame[16..34], &frame[34..]), (&body[..], &[0; 26][..]), "{name}");
            assert_eq!(fcs(&frame), want_fcs, "{name}");
            assert_eq!(Pfc::parse(&frame), Ok(fields), "{name}");
            assert_eq!(Pfc::parse(&frame[..PFC_LEN]), Ok(fields), "{name} without pad");
        }
    }

    #[test]
    fn parse_undoes_emit() {
        let mut rng = Rng::new(16);
        let mut frame = [0; FRAME_LEN];
        for _ in 0..1000 {
            let pfc = Pfc { enable: rng.u8(), quanta: core::array::from_fn(|_| rng.u16()) };
            let src = MacAddr(rng.bytes());
            pfc.emit(src, &mut frame);
            assert_eq!(Pfc::parse(&frame), Ok(pfc));
            let (view, _) = MacControl::parse(&frame).unwrap();
            assert_eq!((view.dst(), view.src(), view.opcode()), (MacAddr::PAUSE, src, opcode::PFC));
            let pause = Pause { quanta: rng.u16() };
            pause.emit(src, &mut frame);
            assert_eq!(Pause::parse(&frame), Ok(pause));
        }
    }

    #[test]
    fn every_shorter_length_is_refused() {
        let mut frame = [0; FRAME_LEN];
        Pfc::default().with(0, 1).emit(SRC, &mut frame);
        for had in 0..PFC_LEN {
            let (layer, need) =
                if had < LEN { (Layer::MacControl, LEN) } else { (Layer::Pfc, PFC_LEN) };
            assert_eq!(Pfc::parse(&frame[..had]), Err(ParseError::short(layer, need, had)));
        }
        Pause { quanta: 1 }.emit(SRC, &mut frame);
        for had in 0..PAUSE_LEN {
            let (layer, need) =
                if had < LEN { (Layer::MacControl, LEN) } else { (Layer::Pause, PAUSE_LEN) };
            assert_eq!(Pause::parse(&frame[..had]), Err(ParseError::short(layer, need, had)));
        }
        assert_eq!(Pause::parse(&frame[..PAUSE_LEN]), Ok(Pause { quanta: 1 }));
    }

    #[test]
    fn wrong_values_are_named() {
        let mut pfc = [0; FRAME_LEN];
        Pfc::default().emit(SRC, &mut pfc);
        #[rustfmt::skip] // columns: name, byte to change, to, layer, field, value
        let cases = [
            ("ethertype",        13, 0x09, Layer::MacControl, Field::EtherType,   0x8809),
            ("pause opcode",     14, 0x00, Layer::Pfc,        Field::Opcode,      0x0001),
        ];
        for (name, at, to, layer, field, value) in cases {
            let mut frame = pfc;
            frame[at] = to;
            let want = ParseError::Value { layer, field, value };
            assert_eq!(Pfc::parse(&frame), Err(want), "{name}");
        }
        let (layer, field) = (Layer::Pause, Field::Opcode);
        assert_eq!(Pause::parse(&pfc), Err(ParseError::Value { layer, field, value: 0x0101 }));
    }

    #[test]
    fn reserved_bits_of_the_enable_vector_are_ignored() {
        let mut rng = Rng::new(31);
        for reserved in 1..=u8::MAX {
            let pfc = Pfc { enable: rng.u8(), quanta: core::array::from_fn(|_| rng.u16()) };
            let mut frame = [0; FRAME_LEN];
            pfc.emit(SRC, &mut frame);
            assert_eq!(frame[16], 0, "sent as zero");
            frame[16] = reserved;
            assert_eq!(Pfc::parse(&frame), Ok(pfc), "{reserved:#04x}");
        }
    }

    #[test]
    fn a_class_that_is_not_named_says_nothing() {
        let pfc = Pfc { enable: 0b1000_0001, quanta: [7; 8] };
        for class in 0..=u8::MAX {
            let want = matches!(class, 0 | 7).then_some(7);
            assert_eq!(pfc.class(class), want, "class {class}");
        }
        assert_eq!(Pfc::default().with(8, 9), Pfc::default(), "there is no class 8");
    }
}
