//! Classification: from what a frame carries to its switch-internal priority.
//!
//! Shape: an ordered trust list per port; the first source that the frame carries decides.
//! Units: priorities 0..=7.
//! Source: docs/spec/pipeline.md §2.

use weft_parsers::Head;

use crate::config::{PriMaps, Trust};
use crate::types::Pri;

const TAG: usize = 1;
const IP: usize = 2;
const TC: usize = 4;

/// One port's rules.
#[derive(Clone, Debug)]
pub struct Classifier {
    /// What decides, by what a frame carries: bit 0 a tag, bit 1 an IP header, bit 2 a TC.
    by: [Option<Trust>; 8],
    default_pri: Pri,
    maps: PriMaps,
}

impl Classifier {
    /// Rules that look at `trust` in order and fall back to `default_pri`.
    #[must_use]
    pub fn new(trust: &[Trust], default_pri: Pri, maps: &PriMaps) -> Self {
        let carried = |trust: Trust| match trust {
            Trust::Pcp => TAG,
            Trust::Dscp => IP,
            Trust::Tc => TC,
        };
        let first = |what: usize| trust.iter().copied().find(|&t| what & carried(t) != 0);
        Self { by: core::array::from_fn(first), default_pri, maps: maps.clone() }
    }

    /// The priority of a frame, and which source decided (`None`: the port's default).
    #[inline]
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "a PCP is below 8, a DSCP and TC[7:2] below 64")]
    pub fn pri(&self, head: &Head) -> (Pri, Option<Trust>) {
        let (tci, dscp, tc) = (head.tci(), head.dscp(), head.tc());
        let mut carries = usize::from(tci.is_some()) * TAG;
        carries |= usize::from(dscp.is_some()) * IP;
        carries |= usize::from(tc.is_some()) * TC;
        let by = self.by[carries];
        let found = match by {
            Some(Trust::Pcp) => tci.map(|tci| self.maps.pcp_to_pri[tci.pcp().get() as usize & 7]),
            Some(Trust::Dscp) => dscp.map(|d| self.maps.dscp_to_pri[d.get() as usize & 63]),
            Some(Trust::Tc) => tc.map(|tc| self.maps.tc_to_pri[tc.0 as usize >> 2 & 63]),
            None => None,
        };
        (found.unwrap_or(self.default_pri), by)
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
        let (pcp, dscp, tc) = (Trust::Pcp, Trust::Dscp, Trust::Tc);
        #[rustfmt::skip] // columns: name, frame, trust, want
        let cases = [
            ("pcp 1 before dscp",  with(&tagged), vec![pcp, dscp, tc], (1, Some(pcp))),
            ("dscp if first",      with(&tagged), vec![dscp, pcp],     (3, Some(dscp))),
            ("dscp without a tag", with(&ip),     vec![pcp, dscp, tc], (3, Some(dscp))),
            ("dscp not trusted",   with(&ip),     vec![pcp, tc],       (2, None)),
            ("tc of gen1",         gen1,          vec![pcp, dscp, tc], (3, Some(tc))),
            ("nothing carried",    with(&[8, 6]), vec![pcp, dscp, tc], (2, None)),
            ("nothing trusted",    with(&tagged), vec![],              (2, None)),
        ];
        for (name, frame, trust, (pri, source)) in cases {
            let rules = Classifier::new(&trust, Pri::from_low_bits(2), &PriMaps::for_pris(4));
            assert_eq!(rules.pri(&head(&frame)), (Pri::from_low_bits(pri), source), "{name}");
        }
    }
}
