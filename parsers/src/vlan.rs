//! 802.1Q tag: the 4 bytes behind a TPID.
//!
//! PCP 3, DEI 1, VID 12, EtherType 16 bits; view, writer in place, plain struct. [`Tpids`] is the
//! set of `EtherType` values that mark a tag.
//!
//! Source: IEEE 802.1Q-2022 9.6; docs/spec/wire-formats.md §1.2.

use crate::bytes::{be16, cut, cut_mut, put, window};
use crate::error::{Layer, ParseError};
use crate::types::{Pcp, Tci, Vid, ether_type};

/// Bytes of the tag behind its TPID: tag control information and the next EtherType.
pub const LEN: usize = 4;
/// Bytes that a tag adds to a frame: TPID and tag control information.
pub const TAG_LEN: usize = 4;

/// The `EtherType` values that mark a tag at a port, 1 to [`Tpids::MAX`]. Tags that the switch adds
/// have the first.
///
/// One word with an `EtherType` in each lane, and the first one again in lanes that are left: that of a frame is
/// compared with all of them at once, without a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tpids(u64);

impl Tpids {
    /// The most that a port can have.
    pub const MAX: usize = 4;
    /// The C-tag's TPID alone, the default of a port.
    pub const CTAG: Self = Self::from_lanes([ether_type::CTAG; Self::MAX]);
    /// A one in each lane.
    const ONES: u64 = 0x0001_0001_0001_0001;
    /// The top bit of each lane.
    const TOPS: u64 = Self::ONES << 15;

    /// From a list; `None` when there is none or more than [`Tpids::MAX`].
    #[must_use]
    pub fn new(tpids: &[u16]) -> Option<Self> {
        let (first, fits) = (*tpids.first()?, tpids.len() <= Self::MAX);
        // a lane that repeats the first TPID matches nothing more, so that `contains` needs no
        // count
        let lanes = core::array::from_fn(|lane| tpids.get(lane).copied().unwrap_or(first));
        fits.then(|| Self::from_lanes(lanes))
    }

    /// The set with these lanes, as [`Tpids::lanes`] gives them.
    #[inline]
    #[must_use]
    pub const fn from_lanes([a, b, c, d]: [u16; Self::MAX]) -> Self {
        Self(a as u64 | (b as u64) << 16 | (c as u64) << 32 | (d as u64) << 48)
    }

    /// The first one, the others, and the first again up to the end.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "lanes of a word")]
    pub const fn lanes(self) -> [u16; Self::MAX] {
        let word = self.0;
        [word as u16, (word >> 16) as u16, (word >> 32) as u16, (word >> 48) as u16]
    }

    /// The TPID of tags that the switch adds.
    #[inline]
    #[must_use]
    pub const fn first(self) -> u16 {
        self.lanes()[0]
    }

    /// Whether `kind` is the EtherType of a tag.
    #[inline]
    #[must_use]
    pub const fn contains(self, kind: u16) -> bool {
        // A lane is 0 where they are equal. Some lane is 0 exactly when a subtraction of one from each sets a top bit
        // that was clear: lanes above the lowest 0 may be wrong, but then there is one.
        let differs = self.0 ^ (kind as u64).wrapping_mul(Self::ONES);
        differs.wrapping_sub(Self::ONES) & !differs & Self::TOPS != 0
    }
}

/// Borrowed VLAN tag. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct VlanTag<'a> {
    head: &'a [u8; LEN],
}

impl<'a> VlanTag<'a> {
    /// Splits a tag off the front of `bytes`, which start behind the TPID; also returns the bytes
    /// behind it.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        match cut(bytes, Layer::VlanTag) {
            Ok((head, rest)) => Ok((Self { head }, rest)),
            Err(error) => Err(error),
        }
    }

    /// PCP, DEI and VID together.
    #[inline]
    #[must_use]
    pub const fn tci(self) -> Tci {
        Tci(be16::<0, _>(self.head))
    }

    /// Priority code point, bits 15:13.
    #[inline]
    #[must_use]
    pub const fn pcp(self) -> Pcp {
        self.tci().pcp()
    }

    /// Drop eligible indicator, bit 12.
    #[inline]
    #[must_use]
    pub const fn dei(self) -> bool {
        self.tci().dei()
    }

    /// VLAN identifier, 0..=4095; 0 means priority-tagged.
    #[inline]
    #[must_use]
    pub const fn vid(self) -> Vid {
        self.tci().vid()
    }

    /// EtherType behind the tag, bytes 2 and 3.
    #[inline]
    #[must_use]
    pub const fn ether_type(self) -> u16 {
        be16::<2, _>(self.head)
    }

    /// All fields, to change and emit.
    #[must_use]
    pub const fn repr(self) -> VlanTagRepr {
        VlanTagRepr { tci: self.tci(), ether_type: self.ether_type() }
    }
}

/// Writer of a VLAN tag in place.
#[derive(Debug)]
pub struct VlanTagMut<'a> {
    head: &'a mut [u8; LEN],
}

impl<'a> VlanTagMut<'a> {
    /// As [`VlanTag::parse`], writable.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a mut [u8]) -> Result<(Self, &'a mut [u8]), ParseError> {
        match cut_mut(bytes, Layer::VlanTag) {
            Ok((head, rest)) => Ok((Self { head }, rest)),
            Err(error) => Err(error),
        }
    }

    /// The tag, to read.
    #[inline]
    #[must_use]
    pub const fn as_view(&self) -> VlanTag<'_> {
        VlanTag { head: self.head }
    }

    /// Replaces PCP, DEI and VID.
    #[inline]
    pub const fn set_tci(&mut self, tci: Tci) {
        put::<0, 2, _>(self.head, tci.0.to_be_bytes());
    }

    /// Replaces the PCP only.
    #[inline]
    pub const fn set_pcp(&mut self, pcp: Pcp) {
        let old = self.as_view().tci();
        self.set_tci(Tci::new(pcp, old.dei(), old.vid()));
    }

    /// Replaces the VID only.
    #[inline]
    pub const fn set_vid(&mut self, vid: Vid) {
        let old = self.as_view().tci();
        self.set_tci(Tci::new(old.pcp(), old.dei(), vid));
    }
}

/// VLAN tag as plain fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanTagRepr {
    /// PCP, DEI and VID.
    pub tci: Tci,
    /// EtherType behind the tag, bytes 2 and 3.
    pub ether_type: u16,
}

impl VlanTagRepr {
    /// Writes the tag behind its TPID.
    #[inline]
    pub const fn emit(&self, out: &mut [u8; LEN]) {
        put::<0, 2, _>(out, self.tci.0.to_be_bytes());
        put::<2, 2, _>(out, self.ether_type.to_be_bytes());
    }
}

/// Puts a tag into a frame: `front` is four free bytes and then the frame's first twelve.
/// Afterwards the frame starts at the front's first byte and is four bytes longer.
#[inline]
pub const fn insert(front: &mut [u8; 16], tpid: u16, tci: Tci) {
    // copied out first: source and destination overlap
    let addresses = *window::<4, 12, _>(front);
    put::<0, 12, _>(front, addresses);
    put::<12, 2, _>(front, tpid.to_be_bytes());
    put::<14, 2, _>(front, tci.0.to_be_bytes());
}

/// Takes the tag out of a frame: `front` is the tagged frame's first sixteen bytes.
/// Afterwards the frame starts at the front's fifth byte and is four bytes shorter.
#[inline]
pub const fn remove(front: &mut [u8; 16]) {
    let addresses = *window::<0, 12, _>(front);
    put::<4, 12, _>(front, addresses);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, refuses_every_shorter};

    #[test]
    fn every_tpid_is_found_and_no_other_ethertype() {
        assert_eq!(Tpids::new(&[]), None);
        assert_eq!(Tpids::new(&[1; Tpids::MAX + 1]), None);
        assert_eq!(Tpids::new(&[0x8100]), Some(Tpids::CTAG));
        let mut rng = Rng::new(8);
        for _ in 0..20_000 {
            // Neighbours and values that differ in one bit are where a lane would borrow from the next.
            let near = rng.u16();
            let any = [near, near ^ 1, near.wrapping_add(1), near ^ 0x8000, rng.u16(), 0, 0xFFFF];
            let mut pick = || any[usize::try_from(rng.below(any.len() as u64)).unwrap()];
            let all = [pick(), pick(), pick(), pick()];
            let count = 1 + usize::from(pick() & 3);
            let tpids = Tpids::new(&all[..count]).unwrap();
            assert_eq!(tpids.first(), all[0]);
            assert_eq!(Tpids::from_lanes(tpids.lanes()), tpids);
            for kind in any {
                let want = all[..count].contains(&kind);
                assert_eq!(tpids.contains(kind), want, "{:x?} {kind:x}", &all[..count]);
            }
        }
    }

    #[test]
    fn shorter_is_refused() {
        refuses_every_shorter(Layer::VlanTag, LEN, |bytes| VlanTag::parse(bytes).err());
        refuses_every_shorter(Layer::VlanTag, LEN, |bytes| {
            let mut room = [0; LEN];
            room[..bytes.len()].copy_from_slice(bytes);
            VlanTagMut::parse(&mut room[..bytes.len()]).err()
        });
    }

    #[test]
    fn parse_undoes_emit_for_every_tci() {
        for bits in 0..=u16::MAX {
            let want = VlanTagRepr { tci: Tci(bits), ether_type: bits.rotate_left(5) };
            let mut out = [0; LEN];
            want.emit(&mut out);
            let (view, rest) = VlanTag::parse(&out).unwrap();
            assert_eq!(view.repr(), want);
            assert!(rest.is_empty());
            assert_eq!(Tci::new(view.pcp(), view.dei(), view.vid()), want.tci);
        }
    }

    #[test]
    fn worked_tag_and_its_parts() {
        let bytes = [0x60, 0x64, 0x88, 0xB5]; // docs/spec/wire-formats.md §1.3: PCP 3, VID 100
        let (view, _) = VlanTag::parse(&bytes).unwrap();
        assert_eq!((view.pcp().get(), view.dei(), view.vid().get()), (3, false, 100));
        assert_eq!(view.ether_type(), 0x88B5);
    }

    #[test]
    fn setters_change_their_field_only() {
        let mut bytes = [0xFF, 0xFF, 0x12, 0x34, 0x56];
        let (mut tag, rest) = VlanTagMut::parse(&mut bytes).unwrap();
        assert_eq!(rest, [0x56]);
        tag.set_pcp(Pcp::new(2).unwrap());
        assert_eq!(tag.as_view().tci(), Tci(0x5FFF));
        tag.set_vid(Vid::new(0x123).unwrap());
        assert_eq!(tag.as_view().tci(), Tci(0x5123));
        tag.set_tci(Tci(0xE001));
        assert_eq!(bytes, [0xE0, 0x01, 0x12, 0x34, 0x56]);
    }

    #[test]
    fn remove_undoes_insert() {
        let mut front = [0xEE; 16];
        for (want, byte) in front[4..].iter_mut().enumerate() {
            *byte = u8::try_from(want).unwrap();
        }
        insert(&mut front, 0x8100, Tci(0x6064));
        assert_eq!(front, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x81, 0, 0x60, 0x64]);
        remove(&mut front);
        assert_eq!(front[4..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }
}
