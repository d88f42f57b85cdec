//! HPA to DPA by the decoders of the requester, and back.
//!
//! All of a requester's up to 8 [`Decoder`]s are compared; the result is a [`Hit`], or a [`Miss`] if none or several
//! map the address.
//!
//! A decoder takes every HPA of its window, on whichever way it falls: the edge has already chosen this device by the
//! way, and the window of an interleaved decoder is the whole set's. Overlapping windows of one requester are refused
//! when they are set, so that a new one never takes addresses from an old one.
//!
//! Source: docs/spec/wire-formats.md §5.2; CXL 3.1 sections 7.7.2.4 and 7.7.13.

use weft_parsers::fabric::{Dpa, Hpa, Interleave, Pid};

use super::code::ReturnCode;

/// Most decoders of a requester.
pub const DECODERS: usize = 8;

/// A decoder of the GDT: maps a window of a requester's addresses to the device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoder {
    /// Whether the requester keeps it coherent by hardware; stored and returned, changes nothing here.
    pub coherent: bool,
    /// First address for the requester; a multiple of ways x granularity.
    pub hpa_base: Hpa,
    /// First address in the device.
    pub dpa_base: Dpa,
    /// Bytes in this device; with interleaving, a multiple of the granularity.
    pub dpa_len: u64,
    /// How the window is interleaved over devices.
    pub interleave: Interleave,
    /// The way of this device.
    pub way: u8,
}

impl Decoder {
    /// Bytes of the window as the requester sees it; `None` for an invalid decoder.
    ///
    /// Without interleaving nothing has to be aligned. With it, an unaligned base or a length that
    /// ends within an interleave granule would let two addresses decode to one, and the way back would be wrong.
    fn span(&self) -> Option<u64> {
        let ways = u64::from(self.interleave.ways());
        let granule = u64::from(self.interleave.granularity());
        if self.dpa_len == 0 || u64::from(self.way) >= ways {
            return None;
        }
        if ways > 1
            && (!self.hpa_base.0.is_multiple_of(granule * ways)
                || !self.dpa_len.is_multiple_of(granule))
        {
            return None;
        }
        let span = self.dpa_len.checked_mul(ways)?;
        self.hpa_base.0.checked_add(span - 1)?;
        self.dpa_base.0.checked_add(self.dpa_len - 1)?;
        Some(span)
    }
}

/// The result of decoding an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The address in the device.
    pub dpa: Dpa,
    /// Bytes from there on that this decoder alone maps contiguously; 1 or more.
    pub room: u64,
    /// Way of the set that the address falls on.
    pub way: u8,
}

/// Why an address decodes to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Miss {
    /// No decoder maps it.
    #[error("no decoder maps the address")]
    None,
    /// More than one decoder maps it.
    #[error("several decoders map the address")]
    Several,
}

/// Target of a window: the fields of a decoder that matter once it has hit.
#[derive(Clone, Copy, Debug, Default)]
struct To {
    dpa_base: u64,
    interleave: Interleave,
    way: u8,
    coherent: bool,
}

/// Decoders of one requester in four cache lines. Comparing all of them reads the first two.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Row {
    base: [u64; DECODERS],
    span: [u64; DECODERS], // 0: not valid
    to: [To; DECODERS],
}

impl Row {
    /// Bit k is set if decoder k maps `hpa`.
    ///
    /// `base + span` stays within 64 bits, so an address below the base wraps to above the span.
    #[inline]
    fn hits(&self, hpa: u64) -> u32 {
        // No early exit: a second hit makes the address a miss.
        let mut hits = 0;
        for (k, (base, span)) in self.base.iter().zip(&self.span).enumerate() {
            hits |= u32::from(hpa.wrapping_sub(*base) < *span) << k;
        }
        hits
    }

    /// Whether two windows have an address in common.
    fn overlaps(&self) -> bool {
        let all = || self.base.iter().zip(&self.span).filter(|(_, span)| **span > 0);
        let meets = |(base, span): (&u64, &u64), (other, len): (&u64, &u64)| {
            base.wrapping_sub(*other) < *len || other.wrapping_sub(*base) < *span
        };
        all().enumerate().any(|(at, one)| all().skip(at + 1).any(|other| meets(one, other)))
    }

    /// Bytes from `hpa` to the first window that begins behind it; 2^64 - 1 if there is none.
    #[inline]
    fn next_base(&self, hpa: u64) -> u64 {
        let mut least = u64::MAX - 1;
        for (base, span) in self.base.iter().zip(&self.span) {
            // A base at `hpa` itself wraps to the greatest number, as one below does nearly.
            let ahead = base.wrapping_sub(hpa).wrapping_sub(1);
            least = least.min(if *span == 0 { u64::MAX } else { ahead });
        }
        least + 1
    }

    fn get(&self, k: usize) -> Option<Decoder> {
        let (base, span, to) = (self.base.get(k)?, self.span.get(k)?, self.to.get(k)?);
        (*span > 0).then(|| Decoder {
            coherent: to.coherent,
            hpa_base: Hpa(*base),
            dpa_base: Dpa(to.dpa_base),
            dpa_len: span >> to.interleave.ways_code(),
            interleave: to.interleave,
            way: to.way,
        })
    }
}

/// Index of the only bit set in `hits`.
#[inline]
const fn only(hits: u32) -> Result<usize, Miss> {
    if hits == 0 {
        Err(Miss::None)
    } else if hits & (hits - 1) != 0 {
        Err(Miss::Several)
    } else {
        Ok(hits.trailing_zeros() as usize)
    }
}

/// Decoder table of the device.
#[derive(Clone, Debug)]
pub struct Gdt {
    row_of: Vec<u16>, // by RPID; 0: has none
    rows: Vec<Row>,   // 0 stays empty
}

impl Default for Gdt {
    fn default() -> Self {
        Self { row_of: vec![0; Pid::COUNT], rows: vec![Row::default()] }
    }
}

impl Gdt {
    #[inline]
    fn row(&self, rpid: Pid) -> Option<&Row> {
        self.rows.get(usize::from(*self.row_of.get(rpid.index())?))
    }

    /// Decodes `hpa` for requester `rpid`.
    ///
    /// # Errors
    /// [`Miss`]: not exactly one decoder maps it.
    #[inline]
    pub fn decode(&self, rpid: Pid, hpa: Hpa) -> Result<Hit, Miss> {
        let row = self.row(rpid).ok_or(Miss::None)?;
        let k = only(row.hits(hpa.0))?;
        let (Some(base), Some(span), Some(to)) = (row.base.get(k), row.span.get(k), row.to.get(k))
        else {
            return Err(Miss::None);
        };
        let off = hpa.0.wrapping_sub(*base);
        // Up to the next window as well: behind that address two decoders may hit, which is a miss.
        let mut room = row.next_base(hpa.0).min(span - off);
        if to.interleave.ways_code() > 0 {
            let granule = u64::from(to.interleave.granularity());
            room = room.min(granule - (off & (granule - 1)));
        }
        let dpa = to.dpa_base.wrapping_add(to.interleave.compact(off));
        Ok(Hit { dpa: Dpa(dpa), room, way: to.interleave.way(off) })
    }

    /// Address of `dpa` for requester `rpid`: inserts the way of the decoder again.
    ///
    /// # Errors
    /// [`Miss`]: not exactly one decoder of the requester leads there.
    pub fn reverse(&self, rpid: Pid, dpa: Dpa) -> Result<Hpa, Miss> {
        let row = self.row(rpid).ok_or(Miss::None)?;
        let mut hits = 0;
        for (k, (span, to)) in row.span.iter().zip(&row.to).enumerate() {
            // Invalid entries have span 0, so no address lies in them.
            let len = span >> to.interleave.ways_code();
            hits |= u32::from(dpa.0.wrapping_sub(to.dpa_base) < len) << k;
        }
        let decoder = row.get(only(hits)?).ok_or(Miss::None)?;
        let off = dpa.0.wrapping_sub(decoder.dpa_base.0);
        let off = decoder.interleave.expand(off, decoder.way).ok_or(Miss::None)?;
        Ok(Hpa(decoder.hpa_base.0.wrapping_add(off)))
    }

    /// Whether `rpid` has ever had a decoder; most PIDs have not.
    #[must_use]
    pub fn knows(&self, rpid: Pid) -> bool {
        self.row_of.get(rpid.index()).is_some_and(|row| *row != 0)
    }

    /// The decoders of `rpid`, by index.
    #[must_use]
    pub fn get(&self, rpid: Pid) -> [Option<Decoder>; DECODERS] {
        let row = self.row(rpid).copied().unwrap_or_default();
        core::array::from_fn(|k| row.get(k))
    }

    /// Replaces decoders `start..` of `rpid`, all or none of them; `None` removes one.
    ///
    /// # Errors
    /// Invalid Input: PID `0xFFF`, an index of 8 or more, an invalid decoder, or two that would map one address, as
    /// such an address decodes to nothing.
    pub fn set(
        &mut self,
        rpid: Pid,
        start: usize,
        decoders: &[Option<Decoder>],
    ) -> Result<(), ReturnCode> {
        let row = self.with(rpid, start, decoders)?;
        if row.overlaps() {
            return Err(ReturnCode::InvalidInput);
        }
        self.put(rpid, row)
    }

    /// Sets overlapping decoders, which no command can: decoding does not rely on their absence.
    #[cfg(test)]
    pub(crate) fn force(&mut self, rpid: Pid, start: usize, decoders: &[Option<Decoder>]) {
        self.put(rpid, self.with(rpid, start, decoders).unwrap()).unwrap();
    }

    /// The row of `rpid` with decoders `start..` replaced.
    fn with(
        &self,
        rpid: Pid,
        start: usize,
        decoders: &[Option<Decoder>],
    ) -> Result<Row, ReturnCode> {
        let mut row = *self.row(rpid).ok_or(ReturnCode::InvalidInput)?;
        let end = start.checked_add(decoders.len()).ok_or(ReturnCode::InvalidInput)?;
        if rpid.is_none() || end > DECODERS {
            return Err(ReturnCode::InvalidInput);
        }
        let places = row.base.iter_mut().zip(&mut row.span).zip(&mut row.to).skip(start);
        for (((base, span), to), decoder) in places.zip(decoders) {
            let Some(decoder) = decoder else {
                (*base, *span, *to) = (0, 0, To::default());
                continue;
            };
            *span = decoder.span().ok_or(ReturnCode::InvalidInput)?;
            *base = decoder.hpa_base.0;
            *to = To {
                dpa_base: decoder.dpa_base.0,
                interleave: decoder.interleave,
                way: decoder.way,
                coherent: decoder.coherent,
            };
        }
        Ok(row)
    }

    fn put(&mut self, rpid: Pid, row: Row) -> Result<(), ReturnCode> {
        let Some(place) = self.row_of.get_mut(rpid.index()) else {
            return Err(ReturnCode::InvalidInput);
        };
        if *place == 0 {
            // At most one row a PID, so the number fits.
            *place = u16::try_from(self.rows.len()).map_err(|_| ReturnCode::ResourcesExhausted)?;
            self.rows.push(row);
        } else if let Some(old) = self.rows.get_mut(usize::from(*place)) {
            *old = row;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;

    const RPID: Pid = Pid::from_low_bits(0x12);

    fn plain(hpa: u64, dpa: u64, len: u64) -> Decoder {
        let interleave = Interleave::NONE;
        let (hpa_base, dpa_base) = (Hpa(hpa), Dpa(dpa));
        Decoder { coherent: false, hpa_base, dpa_base, dpa_len: len, interleave, way: 0 }
    }

    //= docs/spec/wire-formats.md §5.2
    #[test]
    fn worked_address_decodes_and_comes_back() {
        let interleave = Interleave::from_codes(2, 4).unwrap();
        let decoder = Decoder {
            coherent: true,
            hpa_base: Hpa(0x0120_0000_0000),
            dpa_base: Dpa(0x4000_0000),
            dpa_len: 16 << 30,
            interleave,
            way: 3,
        };
        let mut gdt = Gdt::default();
        gdt.set(RPID, 2, &[Some(decoder)]).unwrap();
        let hit = gdt.decode(RPID, Hpa(0x0123_4567_BA40)).unwrap();
        assert_eq!((hit.dpa, hit.way), (Dpa(0x1_1159_EA40), 3));
        assert_eq!(hit.room, 0x1000 - 0xA40, "to the end of the granule");
        assert_eq!(gdt.reverse(RPID, Dpa(0x1_1159_EA40)), Ok(Hpa(0x0123_4567_BA40)));
        assert_eq!(gdt.get(RPID)[2], Some(decoder));
        assert!(gdt.knows(RPID) && !gdt.knows(Pid::from_low_bits(0x13)));
    }

    #[test]
    fn exactly_one_decoder_must_hit() {
        let mut gdt = Gdt::default();
        let (low, high) = (plain(0x1000, 0, 0x1000), plain(0x1800, 0x8000, 0x1000));
        gdt.set(RPID, 0, &[Some(low)]).unwrap();
        assert_eq!(gdt.set(RPID, 2, &[Some(high)]), Err(ReturnCode::InvalidInput));
        assert_eq!(gdt.get(RPID)[2], None, "and nothing has changed");
        gdt.force(RPID, 2, &[Some(high)]);
        #[rustfmt::skip] // columns: hpa, want
        let cases = [
            (0x0FFF, Err(Miss::None)),
            (0x1000, Ok((0x0000, 0x800))),
            (0x17FF, Ok((0x07FF, 1))),
            (0x1800, Err(Miss::Several)),
            (0x1FFF, Err(Miss::Several)),
            (0x2000, Ok((0x8800, 0x800))),
            (0x27FF, Ok((0x8FFF, 1))),
            (0x2800, Err(Miss::None)),
            (u64::MAX, Err(Miss::None)),
        ];
        for (hpa, want) in cases {
            let got = gdt.decode(RPID, Hpa(hpa)).map(|hit| (hit.dpa.0, hit.room));
            assert_eq!(got, want, "{hpa:#x}");
        }
        assert_eq!(gdt.decode(Pid::from_low_bits(0x13), Hpa(0x1000)), Err(Miss::None));
        gdt.set(RPID, 0, &[None]).unwrap();
        assert_eq!(gdt.decode(RPID, Hpa(0x1800)).map(|hit| hit.dpa), Ok(Dpa(0x8000)));
        gdt.set(RPID, 0, &[Some(plain(0, 0x8000, 16))]).unwrap();
        assert_eq!(gdt.reverse(RPID, Dpa(0x8000)), Err(Miss::Several), "two ways back");
        assert_eq!(gdt.reverse(RPID, Dpa(0x7FFF)), Err(Miss::None));
    }

    #[test]
    fn decoders_that_do_not_hold_together_change_nothing() {
        let two = Interleave::from_codes(1, 0).unwrap();
        let good = plain(0x1000, 0, 0x1000);
        #[rustfmt::skip] // columns: name, decoder
        let cases = [
            ("length 0",             Decoder { dpa_len: 0, ..good }),
            ("way beyond the ways",  Decoder { way: 1, ..good }),
            ("base within a granule", Decoder { interleave: two, hpa_base: Hpa(0x1100), ..good }),
            ("length within a granule", Decoder { interleave: two, dpa_len: 0x180, ..good }),
            ("HPA leaves 64 bits",   Decoder { hpa_base: Hpa(u64::MAX - 0xFFE), ..good }),
            ("DPA leaves 64 bits",   Decoder { dpa_base: Dpa(u64::MAX - 0xFFE), ..good }),
            ("span leaves 64 bits",  Decoder { interleave: two, dpa_len: 1 << 63, ..good }),
        ];
        for (name, bad) in cases {
            let mut gdt = Gdt::default();
            let got = gdt.set(RPID, 0, &[Some(good), Some(bad)]);
            assert_eq!(got, Err(ReturnCode::InvalidInput), "{name}");
            assert_eq!(gdt.get(RPID), [None; DECODERS], "{name}");
        }
        let mut gdt = Gdt::default();
        assert_eq!(gdt.set(RPID, 8, &[Some(good)]), Err(ReturnCode::InvalidInput));
        assert_eq!(gdt.set(RPID, usize::MAX, &[Some(good)]), Err(ReturnCode::InvalidInput));
        assert_eq!(gdt.set(Pid::NONE, 0, &[Some(good)]), Err(ReturnCode::InvalidInput));
        let last = plain(u64::MAX - 0xFFF, u64::MAX - 0xFFF, 0x1000);
        assert_eq!(gdt.set(RPID, 7, &[Some(last)]), Ok(()), "up to the last address");
        assert_eq!(gdt.decode(RPID, Hpa(u64::MAX)).map(|hit| hit.room), Ok(1));
    }

    /// Random tables against the formula of the page, address by address.
    #[test]
    fn random_tables_decode_as_written() {
        let mut rng = Rng::new(0x6D7);
        let mut refused = 0;
        for _ in 0..300 {
            let mut gdt = Gdt::default();
            let mut decoders = [None; DECODERS];
            for slot in &mut decoders {
                let ways = u8::try_from(rng.below(4)).unwrap();
                let interleave = Interleave::from_codes(ways, 0).unwrap();
                let unit = 256 << ways;
                let decoder = Decoder {
                    hpa_base: Hpa(rng.below(256) * unit),
                    dpa_base: Dpa(rng.below(1 << 40)),
                    dpa_len: 256 * (1 + rng.below(16)),
                    interleave,
                    way: u8::try_from(rng.below(1 << ways)).unwrap(),
                    coherent: rng.chance(1, 2),
                };
                *slot = rng.chance(2, 3).then_some(decoder);
            }
            let window = |d: &Decoder| {
                let first = u128::from(d.hpa_base.0);
                first..first + (u128::from(d.dpa_len) << d.interleave.ways_code())
            };
            let windows: Vec<_> = decoders.iter().flatten().map(window).collect();
            let meets = |a: usize, b: usize| {
                windows[a].start < windows[b].end && windows[b].start < windows[a].end
            };
            let any = (0..windows.len()).any(|a| (0..a).any(|b| meets(a, b)));
            refused += u32::from(any);
            let set = gdt.set(RPID, 0, &decoders);
            assert_eq!(set.is_err(), any, "{decoders:?}");
            gdt.force(RPID, 0, &decoders);
            assert_eq!(gdt.get(RPID), decoders);
            for _ in 0..300 {
                let hpa = rng.below(1 << 16);
                let want = |hpa: u64| {
                    let hits = decoders.iter().flatten().filter_map(|d| {
                        let off = d.interleave.compact(hpa.checked_sub(d.hpa_base.0)?);
                        (off < d.dpa_len).then_some((d.dpa_base.0 + off, d))
                    });
                    let hits: Vec<_> = hits.collect();
                    match hits[..] {
                        [] => Err(Miss::None),
                        [hit] => Ok(hit),
                        _ => Err(Miss::Several),
                    }
                };
                let got = gdt.decode(RPID, Hpa(hpa));
                assert_eq!(got.map(|hit| hit.dpa.0), want(hpa).map(|(dpa, _)| dpa), "{hpa:#x}");
                let Ok(hit) = got else { continue };
                for ahead in [0, hit.room / 2, hit.room - 1] {
                    let there = want(hpa + ahead).map(|(dpa, _)| dpa);
                    assert_eq!(there, Ok(hit.dpa.0 + ahead), "{hpa:#x} + {ahead:#x} in one run");
                }
                let after = want(hpa + hit.room).map(|(dpa, _)| dpa);
                let (_, decoder) = want(hpa).unwrap();
                let plain = decoder.interleave.ways_code() == 0;
                assert!(!plain || after != Ok(hit.dpa.0 + hit.room), "{hpa:#x} run is whole");
                if let Ok(back) = gdt.reverse(RPID, hit.dpa)
                    && hit.way == decoder.way
                {
                    assert_eq!(back, Hpa(hpa));
                }
            }
        }
        assert!((30..270).contains(&refused), "{refused} of 300");
    }
}
