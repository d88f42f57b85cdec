//! Classification: maps the fields of a frame to its switch-internal priority.
//!
//! Each port has an ordered trust list; the first source in it that the frame carries decides.
//!
//! Units: priorities 0..=7.
//! Source: docs/spec/pipeline.md §2.

use weft_parsers::Head;

use crate::config::{PriMaps, PriSource};
use crate::types::Pri;

/// The rules by which one port's frames get their priority.
#[derive(Clone, Debug)]
pub struct Classifier {
    /// The deciding source, by the set of sources that a frame carries ([`Head::carries`]).
    by: [Option<PriSource>; PriSource::SETS],
    default_pri: Pri,
    maps: PriMaps,
}

impl Classifier {
    /// Rules that look at `trust` in order and fall back to `default_pri`.
    #[must_use]
    pub fn new(trust: &[PriSource], default_pri: Pri, maps: &PriMaps) -> Self {
        // Evaluated for every set of sources here, so that a frame needs one array access, not a
        // loop.
        let by = core::array::from_fn(|carried| PriSource::deciding(trust, carried));
        Self { by, default_pri, maps: maps.clone() }
    }

    /// The priority of a frame, and which source decided (`None`: the port's default).
    #[inline]
    #[must_use]
    pub fn pri(&self, head: &Head) -> (Pri, Option<PriSource>) {
        let by = self.by.get(head.carries()).copied().flatten();
        let found = by.and_then(|source| self.maps.of(source).get(head.code(source)));
        (found.copied().unwrap_or(self.default_pri), by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_parsers::{AfhMode, HEAD_LEN, ParseConfig, parse_head};

    fn head(bytes: &[u8]) -> Head {
        let mut first = [0; HEAD_LEN];
        first[..bytes.len()].copy_from_slice(bytes);
        let config = ParseConfig { afh: AfhMode::Gen1, ..ParseConfig::DEFAULT };
        parse_head(&first, 64, &config).unwrap()
    }

    #[test]
    fn the_first_source_that_the_frame_carries_decides() {
        const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let with = |rest: &[u8]| [&MACS, rest].concat();
        let mut ip = vec![0x08, 0x00, 0x45, 46 << 2];
        ip.resize(2 + 20, 0);
        ip[4..6].copy_from_slice(&[0, 46]);
        let tagged = [&[0x81, 0, 0x20, 5][..], &ip].concat();
        let mut gen1 = with(&[0x88, 0xB5, 0, 0, 0, 0, 0, 0, 0, 0]);
        gen1[6] = 0x24;
        let mpls = [0x88, 0x47, 0x00, 0x01, 0x0B, 0x40]; // EXP 5
        let tagged_mpls = [&[0x81, 0, 0x20, 5][..], &mpls].concat();
        let (pcp, dscp) = (PriSource::Pcp, PriSource::Dscp);
        let (tc, exp) = (PriSource::Tc, PriSource::Exp);
        #[rustfmt::skip] // columns: name, frame, trust, want
        let cases = [
            ("pcp 1 before dscp",  with(&tagged), vec![pcp, dscp, tc], (1, Some(pcp))),
            ("dscp if first",      with(&tagged), vec![dscp, pcp],     (3, Some(dscp))),
            ("dscp without a tag", with(&ip),     vec![pcp, dscp, tc], (3, Some(dscp))),
            ("dscp not trusted",   with(&ip),     vec![pcp, tc],       (2, None)),
            ("tc of gen1",         gen1,          vec![pcp, dscp, tc], (3, Some(tc))),
            ("exp 5 as a pcp",     with(&mpls),   vec![pcp, exp],      (3, Some(exp))),
            ("exp before pcp",     with(&tagged_mpls), vec![exp, pcp], (3, Some(exp))),
            ("exp behind a tag",   with(&tagged_mpls), vec![pcp, exp], (1, Some(pcp))),
            ("exp not trusted",    with(&mpls),   vec![pcp, dscp, tc], (2, None)),
            ("no exp in IP",       with(&ip),     vec![exp, dscp],     (3, Some(dscp))),
            ("nothing carried",    with(&[8, 6]), vec![pcp, dscp, tc], (2, None)),
            ("nothing trusted",    with(&tagged), vec![],              (2, None)),
        ];
        for (name, frame, trust, (pri, source)) in cases {
            let rules = Classifier::new(&trust, Pri::from_low_bits(2), &PriMaps::for_pris(4));
            assert_eq!(rules.pri(&head(&frame)), (Pri::from_low_bits(pri), source), "{name}");
        }
    }
}
