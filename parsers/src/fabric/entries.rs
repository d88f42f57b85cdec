//! Entries of the tables at an edge and in a switch, as commands carry them.
//!
//! FAST 8, LDST 8, DRT 2, RGT 12, re-router 5 bytes, little-endian; `decode` takes any bytes,
//! `emit` gives them back with reserved bits zero.
//!
//! Source: docs/spec/wire-formats.md §4.5, §4.6; CXL 3.1 sections 7.7.13.10, 7.7.13.12, 7.7.14.6.

use super::{Bdf, Interleave, Pid};
use crate::bytes::{byte, put, window};

/// Why an entry cannot stand in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// Ways or granularity have a reserved code.
    Interleave,
    /// The type is a reserved one.
    Kind,
    /// The mode of a routing group is a reserved one.
    Mode,
    /// The last primary port lies behind the last port.
    Primary,
}

/// One segment of the fabric address space ([`FastEntry`]) or of another VH's memory ([`LdstEntry`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One way: the PID itself.
    Direct(Pid),
    /// Several ways: the first place in the interleave DPID table, 12 bits.
    Interleaved(u16),
}

/// Reads `[1]` ways, `[2]` granularity, `[4..6]` PID or index of a FAST or LDST entry.
const fn target(bytes: [u8; 8]) -> Result<(Interleave, Target), EntryError> {
    let [_, ways, granularity, _, low, high, _, _] = bytes;
    let Some(interleave) = Interleave::from_codes(ways & 0xF, granularity & 0xF) else {
        return Err(EntryError::Interleave);
    };
    let field = u16::from_le_bytes([low, high]) & 0xFFF;
    let target = match interleave.ways_code() {
        0 => Target::Direct(Pid::from_low_bits(field)),
        _ => Target::Interleaved(field),
    };
    Ok((interleave, target))
}

/// The 8 bytes of a FAST or LDST entry with `flags` in the first.
const fn segment(flags: u8, interleave: Interleave, target: Target) -> [u8; 8] {
    let field = match target {
        Target::Direct(pid) => pid.bits(),
        Target::Interleaved(index) => index & 0xFFF,
    };
    let [low, high] = field.to_le_bytes();
    [flags, interleave.ways_code(), interleave.granularity_code(), 0, low, high, 0, 0]
}

/// A valid entry of the fabric address segment table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastEntry {
    /// The segment is another host's or device's memory, not a GFD's.
    pub gim: bool,
    /// Interleaving of the segment over its targets.
    pub interleave: Interleave,
    /// PID, or place in the interleave DPID table.
    pub target: Target,
}

impl FastEntry {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// `None` for an entry that is not valid.
    ///
    /// # Errors
    /// A reserved code in a valid entry.
    pub const fn decode(bytes: [u8; 8]) -> Result<Option<Self>, EntryError> {
        let [flags, ..] = bytes;
        if flags & 1 == 0 {
            return Ok(None);
        }
        match target(bytes) {
            Ok((interleave, target)) => Ok(Some(Self { gim: flags & 2 != 0, interleave, target })),
            Err(error) => Err(error),
        }
    }

    /// The bytes of `entry`; all zero for `None`.
    #[must_use]
    pub const fn emit(entry: Option<Self>) -> [u8; 8] {
        match entry {
            Some(e) => segment(1 | ((e.gim as u8) << 1), e.interleave, e.target),
            None => [0; 8],
        }
    }
}

/// A valid entry of the LD-FAM segment table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LdstEntry {
    /// The requester's PCIe segment is put into the request.
    pub segment: bool,
    /// Interleaving of the segment over its targets.
    pub interleave: Interleave,
    /// PID, or place in the interleave DPID table.
    pub target: Target,
}

impl LdstEntry {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// `None` for an entry that is not valid.
    ///
    /// # Errors
    /// A reserved code in a valid entry.
    pub const fn decode(bytes: [u8; 8]) -> Result<Option<Self>, EntryError> {
        let [flags, ..] = bytes;
        if flags & 1 == 0 {
            return Ok(None);
        }
        match target(bytes) {
            Ok((interleave, target)) => {
                Ok(Some(Self { segment: flags & 2 != 0, interleave, target }))
            }
            Err(error) => Err(error),
        }
    }

    /// The bytes of `entry`; all zero for `None`.
    #[must_use]
    pub const fn emit(entry: Option<Self>) -> [u8; 8] {
        match entry {
            Some(e) => segment(1 | ((e.segment as u8) << 1), e.interleave, e.target),
            None => [0; 8],
        }
    }
}

/// An entry of the DPID routing table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrtEntry {
    /// No route: TLPs to this DPID are refused.
    #[default]
    Invalid,
    /// The physical port with this number.
    Port(u8),
    /// A routing group: index into the RGT.
    Group(u8),
}

impl DrtEntry {
    /// Bytes on the wire.
    pub const LEN: usize = 2;

    /// Reads an entry.
    ///
    /// # Errors
    /// Type 11, which is reserved.
    pub const fn decode([kind, index]: [u8; 2]) -> Result<Self, EntryError> {
        match kind & 3 {
            0 => Ok(Self::Invalid),
            1 => Ok(Self::Port(index)),
            2 => Ok(Self::Group(index)),
            _ => Err(EntryError::Kind),
        }
    }

    /// The entry's 2 bytes, as [`Self::decode`] reads them.
    #[must_use]
    pub const fn emit(self) -> [u8; 2] {
        match self {
            Self::Invalid => [0, 0],
            Self::Port(port) => [1, port],
            Self::Group(index) => [2, index],
        }
    }
}

/// How a routing group's port is chosen for dynamic messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RgtMode {
    /// 0: a port is drawn at random.
    #[default]
    Random = 0,
    /// 1: congested ports of this switch are avoided.
    CongestionAvoiding = 1,
    /// 2: congestion at switches further on counts as well.
    AdvancedCongestionAvoiding = 2,
}

/// A routing group: up to eight ports, the first of them primary ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RgtEntry {
    /// Ports; those behind index `highest` do not count.
    pub ports: [u8; 8],
    /// Index of the last port, 0..=7.
    pub highest: u8,
    /// Index of the last primary port, at most `highest`.
    pub primary: u8,
    /// How dynamic messages choose.
    pub mode: RgtMode,
    /// Share of the primary ports, 0..=6: (7 - mix) eighths; 7: primary until they are full.
    pub mix: u8,
}

impl RgtEntry {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// Reads an entry.
    ///
    /// # Errors
    /// A reserved mode (vendor modes 6 and 7 are not supported), or a primary beyond the last port.
    pub const fn decode(bytes: [u8; 12]) -> Result<Self, EntryError> {
        let ports = *window::<0, 8, _>(&bytes);
        let (last, how) = (byte::<8, _>(&bytes), byte::<9, _>(&bytes));
        let mode = match how & 7 {
            0 => RgtMode::Random,
            1 => RgtMode::CongestionAvoiding,
            2 => RgtMode::AdvancedCongestionAvoiding,
            _ => return Err(EntryError::Mode),
        };
        let (highest, primary) = (last & 7, (last >> 3) & 7);
        if primary > highest {
            return Err(EntryError::Primary);
        }
        Ok(Self { ports, highest, primary, mode, mix: (how >> 3) & 7 })
    }

    /// The entry's 12 bytes, as [`Self::decode`] reads them.
    #[must_use]
    pub const fn emit(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        put::<0, 8, _>(&mut bytes, self.ports);
        let last = (self.highest & 7) | ((self.primary & 7) << 3);
        put::<8, 2, _>(&mut bytes, [last, self.mode as u8 | ((self.mix & 7) << 3)]);
        bytes
    }

    /// Ports in use, in order; the first one takes static messages.
    #[inline]
    #[must_use]
    pub fn ports(&self) -> &[u8] {
        self.ports.get(..=usize::from(self.highest & 7)).unwrap_or_default()
    }
}

/// An entry of the completer id based re-router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReRouterEntry {
    /// DPID that completions for the requester get.
    pub dpid: Pid,
    /// The requester's PCIe segment; `None` when it does not count.
    pub segment: Option<u8>,
    /// Bus, device and function of the requester.
    pub requester: Bdf,
}

impl ReRouterEntry {
    /// Bytes on the wire.
    pub const LEN: usize = 5;

    /// Reads the 5 bytes of an entry.
    #[must_use]
    pub const fn decode([low, high, segment, bus, function]: [u8; 5]) -> Self {
        let word = u16::from_le_bytes([low, high]);
        let segment = if word & 0x1000 == 0 { None } else { Some(segment) };
        let requester = Bdf::from_bits(u16::from_be_bytes([bus, function]));
        Self { dpid: Pid::from_low_bits(word), segment, requester }
    }

    /// The entry's 5 bytes, as [`Self::decode`] reads them.
    #[must_use]
    pub const fn emit(self) -> [u8; 5] {
        let (flag, segment) = match self.segment {
            Some(segment) => (0x1000, segment),
            None => (0, 0),
        };
        let [low, high] = (self.dpid.bits() | flag).to_le_bytes();
        let [bus, function] = self.requester.bits().to_be_bytes();
        [low, high, segment, bus, function]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    /// Examples of docs/spec/wire-formats.md §4.5 and §4.6.
    #[test]
    fn worked_entries_decode_and_emit() {
        let four = FastEntry {
            gim: false,
            interleave: Interleave::from_codes(2, 4).expect("in range"),
            target: Target::Interleaved(0x040),
        };
        assert_eq!(FastEntry::decode([1, 2, 4, 0, 0x40, 0, 0, 0]), Ok(Some(four)));
        assert_eq!(FastEntry::emit(Some(four)), [1, 2, 4, 0, 0x40, 0, 0, 0]);
        let pid = Pid::from_low_bits(0x123);
        let gim =
            FastEntry { gim: true, interleave: Interleave::NONE, target: Target::Direct(pid) };
        assert_eq!(FastEntry::decode([3, 0, 0, 0, 0x23, 1, 0, 0]), Ok(Some(gim)));
        assert_eq!(FastEntry::emit(Some(gim)), [3, 0, 0, 0, 0x23, 1, 0, 0]);
        assert_eq!(DrtEntry::decode([1, 5]), Ok(DrtEntry::Port(5)));
    }

    #[test]
    fn reserved_codes_are_refused_only_where_they_count() {
        assert_eq!(FastEntry::decode([0, 15, 15, 0, 0, 0, 0, 0]), Ok(None));
        assert_eq!(FastEntry::decode([1, 9, 0, 0, 0, 0, 0, 0]), Err(EntryError::Interleave));
        assert_eq!(LdstEntry::decode([1, 0, 7, 0, 0, 0, 0, 0]), Err(EntryError::Interleave));
        assert_eq!(DrtEntry::decode([3, 0]), Err(EntryError::Kind));
        for mode in [3, 4, 5, 6, 7] {
            let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0, mode, 0, 0];
            assert_eq!(RgtEntry::decode(bytes), Err(EntryError::Mode), "{mode}");
        }
        let beyond = [0, 0, 0, 0, 0, 0, 0, 0, 0b00_010_001, 0, 0, 0];
        assert_eq!(RgtEntry::decode(beyond), Err(EntryError::Primary), "primary 2 of last 1");
    }

    /// What was emitted decodes to the same, whatever stands in the fields.
    #[test]
    fn random_entries_come_back() {
        let mut rng = Rng::new(3);
        for _ in 0..2_000 {
            let eight = rng.bytes::<8>();
            if let Ok(entry) = FastEntry::decode(eight) {
                assert_eq!(FastEntry::decode(FastEntry::emit(entry)), Ok(entry), "{eight:02x?}");
            }
            if let Ok(entry) = LdstEntry::decode(eight) {
                assert_eq!(LdstEntry::decode(LdstEntry::emit(entry)), Ok(entry), "{eight:02x?}");
            }
            if let Ok(entry) = DrtEntry::decode(rng.bytes()) {
                assert_eq!(DrtEntry::decode(entry.emit()), Ok(entry));
            }
            if let Ok(entry) = RgtEntry::decode(rng.bytes()) {
                assert_eq!(RgtEntry::decode(entry.emit()), Ok(entry));
                assert_eq!(entry.ports().len(), usize::from(entry.highest) + 1);
            }
            let entry = ReRouterEntry::decode(rng.bytes());
            assert_eq!(ReRouterEntry::decode(entry.emit()), entry);
        }
    }
}
