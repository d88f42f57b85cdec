//! The fabric address segment table (FAST) of one ingress port, with its interleave DPID table.
//!
//! Commands set [`FastEntry`]s by command index; a lookup gives the PID for an HPA. The flag of a hit is GIM.
//!
//! Source: docs/spec/wire-formats.md §4.6 (5803h to 5808h), §5.1; CXL 3.1 section 7.7.2.4.

use weft_parsers::fabric::FastEntry;

use super::segments::{Entry, Segment, Table};

/// Maps addresses of the fabric window to the GFD, host or device that they belong to.
pub type Fast = Table<FastEntry>;

impl Entry for FastEntry {
    fn segment(self) -> Segment {
        let Self { gim: flag, interleave, target } = self;
        Segment { flag, interleave, target }
    }

    fn of(segment: Segment) -> Self {
        let Segment { flag, interleave, target } = segment;
        Self { gim: flag, interleave, target }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pbr::segments::Found;
    use weft_parsers::fabric::{Hpa, Pid};

    /// The two entries of docs/spec/wire-formats.md §4.6, set by their bytes.
    #[test]
    fn entries_of_the_worked_commands_decide() {
        let mut fast = Fast::new(4_096, 0x80).unwrap();
        fast.configure(0, Hpa(1 << 40), Hpa(1 << 41)).unwrap();
        let bytes = [[1, 2, 4, 0, 0x40, 0, 0, 0], [3, 0, 0, 0, 0x23, 1, 0, 0]];
        let entries = bytes.map(|bytes| FastEntry::decode(bytes).unwrap());
        fast.set(2, &entries).unwrap();
        fast.set_idt(0x43, &[Pid::from_low_bits(0x0A1)]).unwrap();
        let worked = fast.lookup(Hpa(0x0123_4567_BA40));
        assert_eq!(worked, Found::Hit { flag: false, dpid: Pid::from_low_bits(0x0A1) });
        let gim = fast.lookup(Hpa(0x0130_0000_0000));
        assert_eq!(gim, Found::Hit { flag: true, dpid: Pid::from_low_bits(0x123) });
        let back = [2, 3].map(|index| FastEntry::emit(fast.get(index)));
        assert_eq!(back, bytes);
        assert_eq!(fast.lookup(Hpa(1 << 40)), Found::Invalid);
    }
}
