//! Access vectors: the PIDs that a host may reach, GMV for G-FAM, VTV for GIM and prefixes, LAV for LD-FAM.
//!
//! An [`AccessVector`] has 4,096 bits, bit n for PID n; as bytes, PID n is bit n % 8 of byte n / 8.
//!
//! Source: docs/spec/wire-formats.md §4.5 (5714h to 5716h), §4.6 (5802h, 5901h, 5902h), §5.2; CXL 3.1 section 7.7.2.6.

use weft_parsers::fabric::Pid;

use super::error::TableError;

/// One bit for each PID; only the fabric manager may set any.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub struct AccessVector([u64; Pid::COUNT / 64]);

impl Default for AccessVector {
    fn default() -> Self {
        Self::NONE
    }
}

impl AccessVector {
    /// Length of a vector in bytes.
    pub const LEN: usize = Pid::COUNT / 8;
    /// The empty vector: no PID is allowed.
    pub const NONE: Self = Self([0; Pid::COUNT / 64]);

    /// Whether `pid` is allowed. Reads one cache line.
    #[inline]
    #[must_use]
    pub fn contains(&self, pid: Pid) -> bool {
        self.0.get(pid.index() / 64).is_some_and(|word| word >> (pid.index() % 64) & 1 != 0)
    }

    /// Allows `pid`.
    ///
    /// # Errors
    /// PID `0xFFF`, which is never assigned and means "the switch itself" in a DPID.
    pub fn allow(&mut self, pid: Pid) -> Result<(), TableError> {
        if pid.is_none() {
            return Err(TableError::NoPid);
        }
        if let Some(word) = self.0.get_mut(pid.index() / 64) {
            *word |= 1 << (pid.index() % 64);
        }
        Ok(())
    }

    /// Removes `pid` from the allowed ones.
    pub fn forbid(&mut self, pid: Pid) {
        if let Some(word) = self.0.get_mut(pid.index() / 64) {
            *word &= !(1 << (pid.index() % 64));
        }
    }

    /// Whether no PID is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The vector as bytes, in the order of the Get commands.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes())
    }

    /// Copies bytes from offset `start` on into `out`, as the Get commands return them.
    ///
    /// # Errors
    /// The range leaves the vector.
    pub fn read(&self, start: usize, out: &mut [u8]) -> Result<(), TableError> {
        let count = out.len();
        if start.checked_add(count).is_none_or(|end| end > Self::LEN) {
            return Err(TableError::Range { start, count, len: Self::LEN });
        }
        for (to, byte) in out.iter_mut().zip(self.bytes().skip(start)) {
            *to = byte;
        }
        Ok(())
    }

    /// Allowed PIDs, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = Pid> {
        (0..=0xFFF).map(Pid::from_low_bits).filter(|&pid| self.contains(pid))
    }
}

/// The three access vectors of one virtual switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Targets with G-FAM.
    pub gmv: AccessVector,
    /// Targets with GIM, and PIDs in `VendPrefixL0`.
    pub vtv: AccessVector,
    /// Targets with LD-FAM, and destinations of completions from a re-router.
    pub lav: AccessVector,
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn bytes_have_pid_0_in_the_lowest_bit() {
        let mut vector = AccessVector::default();
        for bits in [0, 9, 0x123, 0xFFE] {
            vector.allow(Pid::from_low_bits(bits)).unwrap();
        }
        let mut bytes = [0; AccessVector::LEN];
        vector.read(0, &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[1], bytes[0x24], bytes[511]), (1, 2, 8, 0x40));
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 4);
    }

    #[test]
    fn reads_stay_inside_and_pid_fff_is_refused() {
        let mut vector = AccessVector::default();
        assert_eq!(vector.allow(Pid::NONE), Err(TableError::NoPid));
        assert!(vector.is_empty());
        #[rustfmt::skip] // columns: start, count, fits
        let cases = [(0, 512, true), (511, 1, true), (512, 0, true), (1, 512, false), (512, 1, false), (usize::MAX, 2, false)];
        for (start, count, fits) in cases {
            let mut out = vec![0; count];
            assert_eq!(vector.read(start, &mut out).is_ok(), fits, "{start} {count}");
        }
    }

    /// Random changes against a set.
    #[test]
    fn random_changes_match_a_set() {
        let (mut rng, mut vector, mut model) = (Rng::new(1), AccessVector::NONE, BTreeSet::new());
        for _ in 0..20_000 {
            let pid = Pid::from_low_bits(u16::try_from(rng.below(0xFFF)).unwrap());
            if rng.chance(1, 2) {
                vector.allow(pid).unwrap();
                model.insert(pid);
            } else {
                vector.forbid(pid);
                model.remove(&pid);
            }
            let probe = Pid::from_low_bits(u16::try_from(rng.below(0x1000)).unwrap());
            assert_eq!(vector.contains(probe), model.contains(&probe), "{probe}");
        }
        assert!(vector.iter().eq(model.iter().copied()));
        let (start, mut out) = (100, [0; 37]);
        vector.read(start, &mut out).unwrap();
        for (at, byte) in out.iter().enumerate() {
            for bit in 0..8 {
                let pid = Pid::from_low_bits(u16::try_from((start + at) * 8 + bit).unwrap());
                assert_eq!(byte >> bit & 1 != 0, model.contains(&pid), "{pid}");
            }
        }
    }
}
