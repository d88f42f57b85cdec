//! Classifies frames into priorities as the switch does with its default configuration.
//!
//! [`PriMap`] holds a table each for PCP, DSCP, Traffic Class and EXP, and the order in which a port trusts them; it
//! also says which PFC classes stop a priority. This is written apart from the switch's own classifier on purpose:
//! hosts and switch count frames by priority, and a fault in one shows as a difference between the counts.
//!
//! Source: docs/spec/pipeline.md §2; docs/spec/wire-formats.md §1.4b.

pub use weft_parsers::PriSource;

use weft_dataplane::config::PriMaps;
use weft_dataplane::types::{PRIS_MAX, Pri, PriSet};
use weft_parsers::{Head, TrafficClass};

/// Maps header fields (PCP, DSCP, Traffic Class) to priorities, as a port of the switch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriMap {
    /// Header fields in order of trust; the first one that a frame carries decides.
    pub trust: [Option<PriSource>; PriSource::COUNT],
    /// Priority by PCP; PFC class c stops `pcp[c]`.
    pub pcp: [Pri; 8],
    /// Priority by DSCP, of IPv4 and IPv6 alike.
    pub dscp: [Pri; 64],
    /// Priority by `TC[7:2]`.
    pub tc: [Pri; 64],
    /// Priority by EXP of an MPLS label.
    pub exp: [Pri; 8],
    /// Priority of a frame with none of the trusted fields.
    pub default_pri: Pri,
}

const fn pri_of(number: usize) -> Pri {
    Pri::from_low_bits(number.to_le_bytes()[0])
}

impl PriMap {
    /// The switch's defaults with 4 priorities.
    #[must_use]
    pub fn four() -> Self {
        // PCP 5 to 7 carry ACK and CNP, 3 and 4 REQ, 1 RSP (docs/spec/pipeline.md §2, defaults with 4 priorities).
        let by_pcp = [0, 1, 0, 2, 2, 3, 3, 3].map(pri_of);
        Self::with(by_pcp, |tc| match tc.flow() {
            TrafficClass::FLOW_TYPE1_ACK => pri_of(3),
            TrafficClass::FLOW_TYPE1_REQ => pri_of(2),
            _ => pri_of(0),
        })
    }

    /// The switch's defaults with 8 priorities.
    #[must_use]
    pub fn eight() -> Self {
        Self::with(core::array::from_fn(pri_of), |tc| Pri::from_low_bits(tc.vc()))
    }

    fn with(pcp: [Pri; 8], by_tc: impl Fn(TrafficClass) -> Pri) -> Self {
        // The top three bits of a DSCP are taken as a PCP.
        let by_code = |code: usize| pcp.get(code >> 3).copied().unwrap_or_default();
        Self {
            trust: core::array::from_fn(|at| PriSource::DEFAULT_TRUST.get(at).copied()),
            pcp,
            dscp: core::array::from_fn(by_code),
            // The table has TC[7:2], so an index stands two bits higher in the octet.
            tc: core::array::from_fn(|index| by_tc(TrafficClass(index.to_le_bytes()[0] << 2))),
            exp: pcp,
            default_pri: Pri::default(),
        }
    }

    /// The classifier of a switch port with `maps`; `trust` lists the fields it goes by, most trusted first.
    #[must_use]
    pub fn of_port(maps: &PriMaps, trust: &[PriSource], default_pri: Pri) -> Self {
        Self {
            trust: core::array::from_fn(|at| trust.get(at).copied()),
            pcp: maps.pcp_to_pri,
            dscp: maps.dscp_to_pri,
            tc: maps.tc_to_pri,
            exp: maps.exp_to_pri,
            default_pri,
        }
    }

    /// Priority that the header of a frame asks for, or `default_pri` if it has no trusted field.
    #[must_use]
    pub fn pri(&self, head: &Head) -> Pri {
        let asked = |trust: &PriSource| match trust {
            PriSource::Pcp => head.tci().and_then(|tci| self.of_class(tci.pcp().get())),
            PriSource::Dscp => {
                head.dscp().and_then(|dscp| self.dscp.get(usize::from(dscp.get())).copied())
            }
            PriSource::Tc => head.tc().and_then(|tc| self.tc.get(usize::from(tc.index())).copied()),
            PriSource::Exp => {
                head.exp().and_then(|exp| self.exp.get(usize::from(exp.get())).copied())
            }
        };
        // A field that the frame lacks yields None, and the next one in `trust` is asked.
        self.trust.iter().flatten().find_map(asked).unwrap_or(self.default_pri)
    }

    /// The priority that a PFC class stops; `None` above 7.
    #[must_use]
    pub fn of_class(&self, class: u8) -> Option<Pri> {
        // PFC class c pauses the priority that PCP c is mapped to, as at the switch (docs/spec/pipeline.md §2).
        self.pcp.get(usize::from(class)).copied()
    }

    /// The PFC classes that stop one of `pris`, as bits.
    #[must_use]
    pub fn classes_of(&self, pris: PriSet) -> u8 {
        let classes = (0..8u8).zip(self.pcp).filter(|(_, pri)| pris.contains(*pri));
        classes.fold(0, |bits, (class, _)| bits | 1 << class)
    }

    /// The first index of `table` that gives `pri`.
    pub(crate) fn first(table: &[Pri], pri: Pri) -> Option<u8> {
        let index = table.iter().position(|had| *had == pri)?;
        u8::try_from(index).ok()
    }
}

const _: () = assert!(PRIS_MAX == 8, "a PCP names any priority");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_map_both_ways() {
        #[rustfmt::skip] // columns: name, map, pri, classes
        let cases = [
            ("4: multicast", PriMap::four(),  0, 0b0000_0101),
            ("4: response",  PriMap::four(),  1, 0b0000_0010),
            ("4: request",   PriMap::four(),  2, 0b0001_1000),
            ("4: ack",       PriMap::four(),  3, 0b1110_0000),
            ("4: none",      PriMap::four(),  4, 0),
            ("8: lowest",    PriMap::eight(), 0, 0b0000_0001),
            ("8: highest",   PriMap::eight(), 7, 0b1000_0000),
        ];
        for (name, map, pri, classes) in cases {
            let pri = Pri::new(pri).unwrap();
            assert_eq!(map.classes_of(PriSet::only(pri)), classes, "{name}");
            for class in (0..8).filter(|class| classes >> class & 1 != 0) {
                assert_eq!(map.of_class(class), Some(pri), "{name} {class}");
            }
        }
        assert_eq!(PriMap::four().of_class(8), None);
        assert_eq!(PriMap::eight().classes_of(PriSet::first(8)), 0xFF);
    }

    /// Two readings of the design agree.
    #[test]
    fn defaults_are_those_of_the_switch() {
        for (pris, map) in [(4, PriMap::four()), (8, PriMap::eight())] {
            let trust = [PriSource::Pcp, PriSource::Dscp, PriSource::Tc];
            let switch = PriMap::of_port(&PriMaps::for_pris(pris), &trust, Pri::default());
            assert_eq!(map, switch, "{pris}");
        }
        let one = PriMap::of_port(&PriMaps::for_pris(4), &[PriSource::Tc], Pri::ALL[1]);
        let trusted: Vec<_> = one.trust.into_iter().flatten().collect();
        assert_eq!((trusted, one.default_pri), (vec![PriSource::Tc], Pri::ALL[1]));
    }

    #[test]
    fn tables_follow_the_design() {
        let (four, eight) = (PriMap::four(), PriMap::eight());
        #[rustfmt::skip] // columns: TC, priority of 4, priority of 8
        let cases = [(0x20u8, 2, 1), (0x24, 3, 1), (0x48, 0, 2), (0x40, 2, 2), (0xFC, 0, 7)];
        for (tc, of_four, of_eight) in cases {
            let index = usize::from(tc >> 2);
            assert_eq!(four.tc[index].get(), of_four, "{tc:#x}");
            assert_eq!(eight.tc[index].get(), of_eight, "{tc:#x}");
        }
        assert_eq!((four.dscp[46].get(), eight.dscp[46].get()), (3, 5), "EF");
        assert_eq!((four.dscp[8].get(), eight.dscp[8].get()), (1, 1), "CS1");
    }
}
