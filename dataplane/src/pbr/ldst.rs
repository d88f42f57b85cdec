//! The LD-FAM segment table (LDST) of one ingress port, with its interleave DPID table.
//!
//! Commands set [`LdstEntry`]s by command index; a lookup gives the PID for an HPA. The flag of a hit means that the
//! PCIe segment is inserted.
//!
//! Source: docs/spec/wire-formats.md §4.5 (570Ch to 5711h), §5.1; CXL 3.1 section 7.7.9.

use weft_parsers::fabric::LdstEntry;

use super::segments::{Entry, Segment, Table};

/// Maps addresses to the LD-FAM device that a UIO request goes straight to.
pub type Ldst = Table<LdstEntry>;

impl Entry for LdstEntry {
    fn segment(self) -> Segment {
        let Self { segment: flag, interleave, target } = self;
        Segment { flag, interleave, target }
    }

    fn of(segment: Segment) -> Self {
        let Segment { flag, interleave, target } = segment;
        Self { segment: flag, interleave, target }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pbr::segments::Found;
    use weft_parsers::fabric::{Hpa, Interleave, Pid, Target};

    #[test]
    fn segment_insertion_is_told_by_the_entry() {
        let mut ldst = Ldst::new(64, 4).unwrap();
        ldst.configure(0, Hpa(1 << 40), Hpa(1 << 41)).unwrap();
        let pid = Pid::from_low_bits(0x155);
        let target = Target::Direct(pid);
        let across = LdstEntry { segment: true, interleave: Interleave::NONE, target };
        let within = LdstEntry { segment: false, ..across };
        ldst.set(0, &[Some(across), Some(within), None]).unwrap();
        let at = |segment: u64| ldst.lookup(Hpa((1 << 40) + (segment << 36)));
        assert_eq!(at(0), Found::Hit { flag: true, dpid: pid });
        assert_eq!(at(1), Found::Hit { flag: false, dpid: pid });
        assert_eq!(at(2), Found::Invalid);
        assert_eq!((ldst.get(0), ldst.get(1), ldst.get(2)), (Some(across), Some(within), None));
    }
}
