//! Fast parse of a frame with one of the commonest TLPs.
//!
//! The front of a frame and the kind of its link → [`FastFrame`]; `None` for every frame that takes
//! a longer look.
//!
//! Source: docs/spec/wire-formats.md §3.7, §3.7a.
//!
//! It takes frames without VLAN tag and local prefixes, whose link header has no flag and whose PTH
//! no reserved bit: all bytes in front of the TLP can be written anew from the [`FastFrame`]. The
//! pipeline and the program in the kernel both look at frames this way.

use super::fast::{FastTlp, fast_tlp};
use super::link::{self, Oui, Protocol, VERSION};
use super::pth::{self, Pth};
use crate::HEAD_LEN;

/// Bytes of both addresses.
pub const MACS_LEN: usize = 12;
/// Offset of a TLP without PTH.
pub const HBR_AT: usize = MACS_LEN + link::LEN;
/// Offset of a TLP behind a PTH.
pub const PBR_AT: usize = HBR_AT + pth::LEN;

/// Header between the link header and the TLPs of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// A PTH, on a PBR link.
    Pbr,
    /// Nothing: flit-mode TLPs of a link without PTH.
    Hbr,
}

/// Link headers as words, their flags zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkWords {
    /// Of TLPs with a PTH.
    pub pbr: u64,
    /// Of flit-mode TLPs without one.
    pub hbr: u64,
}

impl LinkWords {
    /// Link headers of the protocols of `oui`.
    #[inline]
    #[must_use]
    pub const fn new(oui: Oui) -> Self {
        Self { pbr: word(oui, Protocol::Pbr), hbr: word(oui, Protocol::HbrFlit) }
    }
}

/// A link header as a word.
#[inline]
const fn word(oui: Oui, protocol: Protocol) -> u64 {
    let Oui([a, b, c]) = oui;
    let oui = u32::from_be_bytes([0, a, b, c]);
    (link::ETHER_TYPE as u64) << 48
        | (oui as u64) << 24
        | (protocol as u64) << 8
        | (VERSION as u64) << 4
}

/// A frame with a TLP that the fast path may forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastFrame {
    /// The TLP's fields.
    pub tlp: FastTlp,
    /// Its PTH; `None` on an HBR link.
    pub pth: Option<Pth>,
    /// Offset of the TLP in the frame.
    pub at: usize,
}

/// Looks at a frame of `len` bytes, from a link with TLPs behind `front` of up to `payload_max` bytes of payload;
/// `None` for one that takes a longer look.
#[inline]
#[must_use]
pub fn fast_frame(
    head: &[u8; HEAD_LEN],
    len: usize,
    words: &LinkWords,
    front: Front,
    payload_max: u16,
) -> Option<FastFrame> {
    let (_, rest) = head.split_first_chunk::<MACS_LEN>()?;
    let (header, rest) = rest.split_first_chunk::<8>()?;
    let header = u64::from_be_bytes(*header);
    let (pth, at, rest) = match front {
        // one comparison checks EtherType, OUI, protocol, version and that no flag is set
        Front::Pbr if header == words.pbr => {
            // reserved bits would be lost, as the PTH is written anew from its fields
            let reserved = rest.first().is_some_and(|first| first & 0x38 != 0);
            let (pth, rest) = Pth::parse(rest).ok()?;
            // DPID FFF is for this switch itself, whose slow path takes it
            if pth.dpid.is_none() || reserved {
                return None;
            }
            (Some(pth), PBR_AT, rest)
        }
        Front::Hbr if header == words.hbr => (None, HBR_AT, rest),
        _ => return None,
    };
    let tlp = fast_tlp(rest.first_chunk()?)?;
    let fits = at + usize::from(tlp.len) <= len && tlp.data_len <= payload_max;
    fits.then_some(FastFrame { tlp, pth, at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;
    use crate::tlp::{PbrTlp, TlpLink};

    #[test]
    fn link_words_are_what_the_emitter_writes() {
        for oui in [Oui::DEFAULT, Oui([0xFF, 0, 0x81])] {
            let LinkWords { pbr, hbr } = LinkWords::new(oui);
            for (word, protocol) in [(pbr, Protocol::Pbr), (hbr, Protocol::HbrFlit)] {
                let mut bytes = [0; link::LEN];
                TlpLink { oui, protocol, ln: false }.emit(&mut bytes).unwrap();
                assert_eq!(word.to_be_bytes(), bytes, "{oui:?} {protocol:?}");
            }
        }
    }

    /// Whatever the fast path takes reads the same by the full parsers, and nothing beyond the
    /// frame or the link's payload.
    #[test]
    fn the_fast_path_reads_of_a_frame_what_the_parsers_read() {
        let mut rng = Rng::new(12);
        let words = LinkWords::new(Oui::DEFAULT);
        let mut taken = [0; 2];
        for n in 0..100_000_u32 {
            let front = if n % 2 == 0 { Front::Pbr } else { Front::Hbr };
            let mut frame = [0; 400];
            frame[..HEAD_LEN].fill_with(|| rng.u8());
            let word = if front == Front::Pbr { words.pbr } else { words.hbr };
            frame[MACS_LEN..HBR_AT].copy_from_slice(&word.to_be_bytes());
            if rng.u8() < 8 {
                frame[MACS_LEN + usize::from(rng.u8() % 8)] ^= 1 << (rng.u8() % 8);
            }
            let at = if front == Front::Pbr { PBR_AT } else { HBR_AT };
            if front == Front::Pbr && rng.u8() < 200 {
                frame[HBR_AT] = 0xC0 | frame[HBR_AT] & 7;
            }
            if rng.u8() < 240 {
                frame[at] =
                    [0x03, 0x20, 0x40, 0x60, 0x22, 0x61, 0x4A, 0x48][usize::from(rng.u8() % 8)];
                frame[at + 1] &= 0xE0;
                frame[at + 2] = 0;
                frame[at + 3] &= 0x3F;
            }
            let len = 60 + usize::from(rng.u8());
            let payload_max = if rng.u8() < 128 { 128 } else { 512 };
            let head = frame.first_chunk().unwrap();
            let Some(fast) = fast_frame(head, len, &words, front, payload_max) else { continue };
            taken[usize::from(front == Front::Hbr)] += 1;
            let (link, rest) = TlpLink::parse(&frame[MACS_LEN..len], Oui::DEFAULT).unwrap();
            let (tlp, pth) = match link.protocol {
                Protocol::Pbr => {
                    let pbr = PbrTlp::parse(rest).unwrap().unwrap();
                    assert_eq!(pbr.pth_at(), 0);
                    (*pbr.tlp(), Some(pbr.pth()))
                }
                Protocol::HbrFlit => {
                    (super::super::Tlp::parse(super::super::Mode::Flit, rest).unwrap(), None)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!((fast.pth, fast.at), (pth, at));
            assert_eq!(usize::from(fast.tlp.len), tlp.len());
            assert!(tlp.payload().len() <= usize::from(payload_max));
            if let Some(pth) = pth {
                assert_eq!(pth.emit()[..], frame[HBR_AT..PBR_AT], "it can be written anew");
            }
        }
        assert!(taken.iter().all(|&taken| taken > 3_000), "{taken:?}");
    }
}
