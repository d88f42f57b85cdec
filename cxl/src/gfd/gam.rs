//! GAM buffer of a host's edge: the ring in the host's memory that notifications end in.
//!
//! The head moves with entries posted, the tail with those that the host has read; there are 256 entries of 32 bytes.
//! The ring is host memory, so a posted entry is returned as a [`Post`] to be written there.
//!
//! Source: docs/spec/wire-formats.md §4.6 (0109, 010A), §5.4; CXL 3.1 section 7.7.2.7.

use weft_parsers::fabric::Hpa;

use super::code::ReturnCode;
use super::events::HOST_LEN;

/// Entries of the ring.
pub const ENTRIES: u64 = 256;
const VALID: u64 = 1;
const OVERFLOW: u64 = 1 << 1;
const ADDRESS: u64 = ((1 << 52) - 1) & !0x1F;
const INDEX_SHIFT: u32 = 56;

/// A notification to be written to the ring in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    pub hpa: Hpa,
    pub payload: [u8; HOST_LEN],
}

/// The ring of notifications of one edge port, in its host's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gam {
    is_peer: bool,
    valid: bool,
    overflow: bool,
    address: u64,
    head: u8,
    tail: u8,
    dropped: u64,
}

impl Gam {
    /// GAM of a host that has not set up a buffer yet.
    #[must_use]
    pub const fn host() -> Self {
        let (valid, overflow) = (false, false);
        Self { is_peer: false, valid, overflow, address: 0, head: 0, tail: 0, dropped: 0 }
    }

    /// GAM of a peer device: notifications for it are dropped here.
    #[must_use]
    pub const fn peer() -> Self {
        Self { is_peer: true, ..Self::host() }
    }

    /// Get GAM Buffer (0109): bit 0 valid, 1 overflow, 51:5 address, 63:56 head.
    #[must_use]
    pub const fn get(&self) -> u64 {
        let flags = self.valid as u64 | (self.overflow as u64) << 1;
        flags | self.address | (self.head as u64) << INDEX_SHIFT
    }

    /// Set GAM Buffer (010A): bit 0 valid, 1 clear overflow, 51:5 address, 63:56 tail.
    ///
    /// A buffer that becomes valid, or moves, begins empty: its head is set to the given tail.
    ///
    /// # Errors
    /// Unsupported: a peer has none. Invalid Input: a reserved bit, a buffer that would leave the
    /// address field, or a tail beyond the head. Nothing changed.
    pub const fn set(&mut self, bits: u64) -> Result<(), ReturnCode> {
        if self.is_peer {
            return Err(ReturnCode::Unsupported);
        }
        let [.., tail] = bits.to_le_bytes();
        let address = bits & ADDRESS;
        let known = VALID | OVERFLOW | ADDRESS | 0xFF << INDEX_SHIFT;
        if bits & !known != 0 || address + ENTRIES * HOST_LEN as u64 > 1 << 52 {
            return Err(ReturnCode::InvalidInput);
        }
        let valid = bits & VALID != 0;
        if valid && self.valid && address == self.address {
            // Indices of 8 bits wrap on their own: the new tail must lie between the old one and the head.
            if tail.wrapping_sub(self.tail) > self.head.wrapping_sub(self.tail) {
                return Err(ReturnCode::InvalidInput);
            }
        } else {
            self.head = tail;
        }
        self.valid = valid;
        self.address = address;
        self.tail = tail;
        // The host clears the flag by writing 1; another write of the tail must not lose it.
        self.overflow = self.overflow && bits & OVERFLOW == 0;
        Ok(())
    }

    /// Takes a notification; `None` when it is dropped because there is no buffer or room, or for a peer. Without room
    /// the overflow flag is set, and the entries stay as they are.
    pub const fn post(&mut self, payload: [u8; HOST_LEN]) -> Option<Post> {
        let next = self.head.wrapping_add(1);
        if self.is_peer || !self.valid {
            self.dropped += 1;
            return None;
        }
        // Full is head just before tail (§5.4): one entry stays unused, so that head = tail means empty.
        if next == self.tail {
            self.overflow = true;
            self.dropped += 1;
            return None;
        }
        let hpa = Hpa(self.address + self.head as u64 * HOST_LEN as u64);
        self.head = next;
        Some(Post { hpa, payload })
    }

    /// Notifications dropped here, without buffer or room.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;
    use std::collections::VecDeque;

    const AT: u64 = 0x1_2345_6780;

    #[test]
    fn full_is_head_just_before_tail_and_nothing_is_overwritten() {
        let mut gam = Gam::host();
        assert_eq!((gam.post([1; 32]), gam.get(), gam.dropped()), (None, 0, 1));
        gam.set(AT | VALID).unwrap();
        for k in 0..255 {
            assert_eq!(gam.post([7; 32]).map(|post| post.hpa), Some(Hpa(AT + k * 32)), "{k}");
        }
        assert_eq!(gam.get(), AT | VALID | 255 << 56);
        assert_eq!((gam.post([8; 32]), gam.dropped()), (None, 2));
        assert_eq!(gam.get(), AT | VALID | OVERFLOW | 255 << 56);
        gam.set(AT | VALID | 1 << 56).unwrap();
        assert_eq!(gam.get() & OVERFLOW, OVERFLOW, "stays until it is cleared");
        assert_eq!(gam.post([9; 32]).map(|post| post.hpa), Some(Hpa(AT + 255 * 32)));
        assert_eq!(gam.post([9; 32]), None, "one was read, one came");
        gam.set(AT | VALID | OVERFLOW | 2 << 56).unwrap();
        assert_eq!(gam.get(), AT | VALID, "head has wrapped to 0");
        assert_eq!(gam.post([9; 32]).map(|post| post.hpa), Some(Hpa(AT)));
    }

    #[test]
    fn settings_that_cannot_be_change_nothing() {
        let mut gam = Gam::host();
        gam.set(AT | VALID).unwrap();
        gam.post([1; 32]).unwrap();
        let before = gam.clone();
        for (name, bits) in [
            ("reserved bit 2", AT | VALID | 1 << 2),
            ("reserved bit 52", AT | VALID | 1 << 52),
            ("tail beyond head", AT | VALID | 2 << 56),
            ("buffer leaves the field", ADDRESS | VALID),
        ] {
            assert_eq!(gam.set(bits), Err(ReturnCode::InvalidInput), "{name}");
            assert_eq!(gam, before, "{name}");
        }
        gam.set((AT + 32) | VALID | 9 << 56).unwrap();
        assert_eq!(gam.get() >> 56, 9, "a moved buffer is empty");
        gam.set(0).unwrap();
        assert_eq!(gam.post([1; 32]), None);
        let mut peer = Gam::peer();
        assert_eq!(peer.set(AT | VALID), Err(ReturnCode::Unsupported));
        assert_eq!((peer.post([1; 32]), peer.dropped()), (None, 1));
    }

    /// A host that reads its memory sees every posted entry once and in order.
    #[test]
    fn random_hosts_read_what_was_posted() {
        let mut rng = Rng::new(0x6A3);
        let (mut gam, mut memory) = (Gam::host(), vec![[0_u8; 32]; 256]);
        gam.set(AT | VALID | 77 << 56).unwrap();
        let (mut want, mut tail, mut number) = (VecDeque::new(), 77_u8, 0_u32);
        for _ in 0..20_000 {
            if rng.chance(3, 5) {
                number += 1;
                let mut payload = [0; 32];
                payload[..4].copy_from_slice(&number.to_le_bytes());
                let post = gam.post(payload);
                assert_eq!(post.is_some(), want.len() < 255);
                if let Some(Post { hpa, payload }) = post {
                    memory[usize::try_from((hpa.0 - AT) / 32).unwrap()] = payload;
                    want.push_back(payload);
                }
            } else {
                // Mostly slower than entries come, now and then all at once.
                let most = if rng.chance(1, 500) { 300 } else { 3 };
                for _ in 0..rng.below(most) {
                    if u64::from(tail) != gam.get() >> 56 {
                        assert_eq!(Some(memory[usize::from(tail)]), want.pop_front());
                        tail = tail.wrapping_add(1);
                    }
                }
                gam.set(AT | VALID | u64::from(tail) << 56).unwrap();
            }
        }
        assert!(gam.dropped() > 0 && number > 10_000);
    }
}
