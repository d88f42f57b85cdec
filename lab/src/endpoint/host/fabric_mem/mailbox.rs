//! The mailbox by which two engines of fabric memory connect: two halves, one for each side.
//!
//! A half has a head of 64 bytes, followed by shares of 32 bytes each, all little-endian. [`Half::parse`] reads one;
//! [`Half::body`] and [`Half::head`] give the bytes to write.
//!
//! Source: docs/spec/wire-formats.md §5.5.

use weft_parsers::crc::Crc32;

/// Length of a mailbox in bytes: the half of the connecting side, then that of the listener.
pub const MAILBOX_LEN: u64 = 2 * HALF_LEN;
/// Length of a half in bytes.
pub const HALF_LEN: u64 = 4_096;
/// Length of a head in bytes; one request writes it.
pub const HEAD_LEN: usize = 64;
/// Length of a share in bytes.
const SHARE_LEN: usize = 32;
/// Shares that fit in a half.
pub const SHARES_MAX: usize = (4_096 - HEAD_LEN) / SHARE_LEN;
const MAGIC: [u8; 4] = *b"WFMB";
const VERSION: u8 = 1;

/// Message of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// The connecting side begins.
    Hello,
    /// The listener accepts.
    Welcome,
    /// The connection is over, or was refused.
    Goodbye,
}

impl Says {
    const fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Welcome => 2,
            Self::Goodbye => 3,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Hello),
            2 => Some(Self::Welcome),
            3 => Some(Self::Goodbye),
            _ => None,
        }
    }
}

/// A range that the sender has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailShare {
    /// First address, as the sender registered it.
    pub addr: u64,
    pub len: u64,
    /// Address at which it is found on the fabric.
    pub hpa: u64,
    /// Fabric memory that the sender was granted; otherwise its own memory.
    pub fabric: bool,
}

/// One half of a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    pub says: Says,
    /// Session number, chosen by the connecting side.
    pub session: u64,
    /// Counts up as long as the sender is alive.
    pub beat: u64,
    /// Ranges that the sender shares.
    pub shares: Vec<MailShare>,
}

/// Reasons why a half cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHalf {
    /// It was never written.
    Empty,
    /// It is being written, or has another version.
    Torn,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let part = bytes.get(at..).and_then(|it| it.first_chunk());
    part.map_or(0, |it| u64::from_le_bytes(*it))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let part = bytes.get(at..).and_then(|it| it.first_chunk());
    part.map_or(0, |it| u32::from_le_bytes(*it))
}

fn crc(shares: &[u8]) -> u32 {
    Crc32::START.with(shares).finish()
}

impl Half {
    /// Reads a half.
    ///
    /// # Errors
    /// See [`NoHalf`].
    pub fn parse(bytes: &[u8]) -> Result<Self, NoHalf> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else {
            return Err(NoHalf::Torn);
        };
        if !head.starts_with(&MAGIC) {
            return Err(NoHalf::Empty);
        }
        let [_, _, _, _, version, code, low, high, ..] = *head;
        let says = Says::of(code).filter(|_| version == VERSION).ok_or(NoHalf::Torn)?;
        let len = usize::from(u16::from_le_bytes([low, high])) * SHARE_LEN;
        let shares = rest.get(..len).ok_or(NoHalf::Torn)?;
        // Head and body are separate writes: the checksum shows that both belong together.
        if crc(shares) != u32_at(head, 24) {
            return Err(NoHalf::Torn);
        }
        let share = |at: &[u8]| MailShare {
            addr: u64_at(at, 0),
            len: u64_at(at, 8),
            hpa: u64_at(at, 16),
            fabric: at.get(24) == Some(&1),
        };
        let shares = shares.chunks_exact(SHARE_LEN).map(share).collect();
        Ok(Self { says, session: u64_at(head, 8), beat: u64_at(head, 16), shares })
    }

    /// The shares as bytes; those beyond `SHARES_MAX` are left out.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let share = |it: &MailShare| {
            let mut bytes = [0; SHARE_LEN];
            let parts = [it.addr, it.len, it.hpa, u64::from(it.fabric)];
            for (place, part) in bytes.chunks_exact_mut(8).zip(parts) {
                place.copy_from_slice(&part.to_le_bytes());
            }
            bytes
        };
        self.shares.iter().take(SHARES_MAX).flat_map(share).collect()
    }

    /// The head as bytes; it must be written after the shares.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let body = self.body();
        let count = u16::try_from(body.len() / SHARE_LEN).unwrap_or(0);
        let mut head = Vec::with_capacity(HEAD_LEN);
        head.extend(MAGIC);
        head.extend([VERSION, self.says.code()]);
        head.extend(count.to_le_bytes());
        head.extend(self.session.to_le_bytes());
        head.extend(self.beat.to_le_bytes());
        head.extend(crc(&body).to_le_bytes());
        head.resize(HEAD_LEN, 0);
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::number::Hex;

    fn half(count: u64) -> Half {
        let share = |n| MailShare {
            addr: 0x10_0000 * n,
            len: 0x1000,
            hpa: (1 << 40) + n,
            fabric: n % 2 == 1,
        };
        let shares = (0..count).map(share).collect();
        Half { says: Says::Hello, session: 0x0102_0304_0506_0708, beat: 9, shares }
    }

    fn bytes(half: &Half) -> Vec<u8> {
        let mut bytes = [half.head(), half.body()].concat();
        bytes.resize(4_096, 0);
        bytes
    }

    /// The bytes of the example in docs/spec/wire-formats.md §5.5.
    #[test]
    fn a_half_has_the_bytes_of_the_page() {
        let page = include_str!("../../../../../docs/spec/wire-formats.md");
        let hex = |bytes: &[u8]| Hex(bytes.to_vec()).to_string();
        let half = Half { shares: half(2).shares.split_off(1), ..half(0) };
        let (head, body) = (half.head(), half.body());
        for part in [head.get(..32), body.get(..32)] {
            let text = hex(part.unwrap());
            assert!(page.contains(&text), "{text}");
        }
        assert!(head.iter().skip(28).all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_written_is_read() {
        for count in [0, 1, 2, SHARES_MAX as u64] {
            assert_eq!(Half::parse(&bytes(&half(count))), Ok(half(count)), "{count}");
        }
        let many = half(SHARES_MAX as u64 + 1);
        assert_eq!(Half::parse(&bytes(&many)).unwrap().shares.len(), SHARES_MAX);
    }

    /// A changed byte makes a half invalid, unless it is reserved or belongs to the session, beat or kind.
    #[test]
    fn torn_halves_are_refused() {
        assert_eq!(Half::parse(&[0; 4_096]), Err(NoHalf::Empty));
        for len in 0..HEAD_LEN {
            assert!(Half::parse(bytes(&half(1)).get(..len).unwrap()).is_err(), "{len}");
        }
        for at in (0..8).chain(24..28).chain(64..128) {
            let mut changed = bytes(&half(2));
            *changed.get_mut(at).unwrap() ^= 0x80;
            assert!(Half::parse(&changed).is_err(), "byte {at}");
        }
    }
}
