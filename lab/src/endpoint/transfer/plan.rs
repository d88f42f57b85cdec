//! What a transfer writes, reads and expects.
//!
//! [`Access`] → [`Plan`]; [`Source`] is what is written or expected.
//!
//! Units: bytes.
//! Source: docs/endpoint.md "Transfers".

use weft_cxl::mem::MemOperation;
use weft_cxl::requester::{Operation, Transaction};
use weft_dataplane::time::Span;
use weft_hosts::stamp::mix;
use weft_parsers::fabric::{Hpa, Pid};
use weft_rpc::Refused;

use crate::endpoint::command::{Access, OwnRange, TransferReport};
use crate::endpoint::number::Hex;

/// Most bytes that are read and handed back.
pub const DATA_MAX: u64 = 1 << 20;

/// The bytes that are written or expected: a pattern, given ones, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// These bytes.
    Data(Vec<u8>),
    /// Bytes made of this.
    Seed(u64),
    /// Nothing is expected.
    Nothing,
}

/// Byte `at` and those behind it of the pattern of `seed`: each eight bytes, the least significant first, are `SplitMix64` of
/// the seed XOR their number.
pub fn pattern(seed: u64, at: u64, into: &mut [u8]) {
    let mut from = at;
    let mut left = into;
    while !left.is_empty() {
        let bytes = mix(seed ^ (from / 8)).to_le_bytes();
        let skip = usize::try_from(from % 8).unwrap_or(0);
        let bytes = bytes.get(skip..).unwrap_or_default();
        let len = bytes.len().min(left.len());
        let (now, later) = left.split_at_mut(len);
        now.copy_from_slice(bytes.get(..len).unwrap_or_default());
        (from, left) = (from + len as u64, later);
    }
}

impl Source {
    fn of(data: Option<&Hex>, seed: Option<u64>) -> Result<Self, Refused> {
        match (data, seed) {
            (Some(_), Some(_)) => Err(Refused::bad_request("expected data or a seed, found both")),
            (Some(data), None) => Ok(Self::Data(data.0.clone())),
            (None, Some(seed)) => Ok(Self::Seed(seed)),
            (None, None) => Ok(Self::Nothing),
        }
    }

    /// Fills `bytes` with those from `at` on; false if there are none.
    pub fn fill(&self, at: u64, into: &mut [u8]) -> bool {
        match self {
            Self::Seed(seed) => pattern(*seed, at, into),
            Self::Data(data) => {
                let from = usize::try_from(at).unwrap_or(usize::MAX);
                let Some(bytes) = data.get(from..).and_then(|it| it.get(..into.len())) else {
                    return false;
                };
                into.copy_from_slice(bytes);
            }
            Self::Nothing => return false,
        }
        true
    }
}

/// Length of a range, given by itself or by its data.
fn range(addr: u64, len: Option<u64>, source: &Source) -> Result<u64, Refused> {
    let had = match source {
        Source::Data(data) => Some(data.len() as u64),
        _ => None,
    };
    let len = match (len, had) {
        (Some(len), Some(had)) if len != had => {
            let text = format!("expected {len} bytes of data, found {had}");
            return Err(Refused::bad_request(text));
        }
        (Some(len), _) | (None, Some(len)) => len,
        (None, None) => return Err(Refused::bad_request("expected a length or data")),
    };
    if len == 0 || addr.checked_add(len).is_none() {
        let text = format!("expected a range of addresses, found {len} bytes at {addr:#x}");
        return Err(Refused::bad_request(text));
    }
    Ok(len)
}

/// What carries a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Memory requests; writes are posted.
    Plain,
    /// UIO requests.
    Uio,
    /// CXL.mem.
    Mem,
    /// CXL.cache.
    Cache,
}

impl How {
    /// Whether the answer to a write says that it was carried out.
    pub(super) const fn answers_writes(self) -> bool {
        matches!(self, Self::Uio | Self::Cache)
    }

    /// Bytes of the read behind a write that is not to be read back: none push posted writes on, and of CXL.mem, where a
    /// refused store is completed as any other (Cmp), the load of a line tells that it was refused.
    pub(super) const fn probe_len(self) -> usize {
        match self {
            Self::Plain | Self::Uio | Self::Cache => 0,
            Self::Mem => 1,
        }
    }
}

/// What an endpoint is asked to send.
#[derive(Debug)]
pub enum Ask {
    /// TLPs.
    Tlp(Transaction),
    /// CXL.mem messages.
    Mem(MemOperation),
    /// Loads and stores of a device's cache.
    Cache(MemOperation),
}

/// A transfer as it is carried out.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) source: Source,
    pub(super) how: How,
    pub(super) to: Option<Pid>,
    pub(super) write: bool,
    pub(super) read: bool,
    pub(super) timeout: Span,
}

impl Plan {
    /// The transfer that `access` asks for; `how` says what the endpoint makes of its `via`.
    ///
    /// # Errors
    /// It does not hold together.
    pub fn new(access: &Access, write: bool, how: How) -> Result<Self, Refused> {
        let source = Source::of(access.data.as_ref(), access.seed)?;
        let len = range(access.addr.0, access.len.map(|it| it.0), &source)?;
        if write && source == Source::Nothing {
            return Err(Refused::bad_request("expected data or a seed to write"));
        }
        if !write && source == Source::Nothing && len > DATA_MAX {
            let text = format!("expected at most {DATA_MAX} bytes without a seed, found {len}");
            return Err(Refused::bad_request(text));
        }
        let to = match access.to {
            None => None,
            Some(_) if how != How::Uio => {
                return Err(Refused::bad_request("only UIO requests name a port"));
            }
            Some(pid) => Some(Pid::assignable(pid).ok_or_else(|| {
                Refused::bad_request(format!("expected a port id 0..=4094, found {pid}"))
            })?),
        };
        Ok(Self {
            addr: access.addr.0,
            len,
            source,
            how,
            to,
            write,
            read: !write || access.check,
            timeout: Span::from_ms(access.timeout_ms),
        })
    }

    /// The request for `len` bytes at `addr`, with these data if it writes.
    pub(super) fn ask(&self, addr: Hpa, len: usize, data: Option<Vec<u8>>) -> Ask {
        let what = match (self.how, data) {
            (How::Cache, Some(data)) => return Ask::Cache(MemOperation::Store { addr, data }),
            (How::Cache, None) => return Ask::Cache(MemOperation::Load { addr, len }),
            (How::Mem, Some(data)) => return Ask::Mem(MemOperation::Store { addr, data }),
            (How::Mem, None) => return Ask::Mem(MemOperation::Load { addr, len }),
            (How::Uio, Some(data)) => Operation::UioWrite { addr, data },
            (How::Uio, None) => Operation::UioRead { addr, len },
            (How::Plain, Some(data)) => Operation::Write { addr, data },
            (How::Plain, None) => Operation::Read { addr, len },
        };
        Ask::Tlp(Transaction { to: self.to, ..what.into() })
    }
}

/// Bytes of the endpoint itself that are stored or looked at: where they begin, how many, and what goes there.
///
/// # Errors
/// It does not hold together, or is too long.
pub fn own(own: &OwnRange, store: bool) -> Result<(u64, u64, Source), Refused> {
    let source = Source::of(own.data.as_ref(), own.seed)?;
    let len = range(own.addr.0, own.len.map(|it| it.0), &source)?;
    if store && source == Source::Nothing {
        return Err(Refused::bad_request("expected data or a seed to store"));
    }
    let most = if source == Source::Nothing { DATA_MAX } else { DATA_MAX << 10 };
    if len > most {
        let text = format!("expected at most {most} bytes at once, found {len}");
        return Err(Refused::bad_request(text));
    }
    Ok((own.addr.0, len, source))
}

/// Compares `bytes`, those from `at` on of a range that begins at `addr`, to what is expected there.
pub fn compare(report: &mut TransferReport, addr: u64, at: u64, bytes: &[u8], source: &Source) {
    let mut want = vec![0; bytes.len()];
    source.fill(at, &mut want);
    if bytes == want {
        return;
    }
    for (place, _) in (at..).zip(bytes.iter().zip(&want)).filter(|(_, (a, b))| a != b) {
        report.mismatched += 1;
        report.first_mismatch.get_or_insert(addr + place);
    }
}

#[cfg(test)]
mod tests {
    /// docs/endpoint.md, "Transfers": the first bytes of `--seed=1`, and any part of them.
    #[test]
    fn the_pattern_is_that_of_the_page() {
        let page = include_str!("../../../../docs/endpoint.md");
        let mut bytes = [0; 16];
        super::pattern(1, 0, &mut bytes);
        let text = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        assert_eq!(text, "c15c0289ec2d0a91afcd1d7b39a820e2");
        assert!(page.contains(&text));
        let mut part = [0; 7];
        super::pattern(1, 5, &mut part);
        assert_eq!(part, bytes[5..12]);
    }
}
