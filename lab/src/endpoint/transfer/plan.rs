//! Plan of a transfer: the bytes it writes, reads and expects.
//!
//! A [`Plan`] is made from an [`Access`]; its [`Source`] has the bytes to write or to expect.
//!
//! Source: docs/endpoint.md "Transfers".

use weft_cxl::mem::MemOperation;
use weft_cxl::requester::{Operation, Transaction};
use weft_dataplane::time::Span;
use weft_hosts::stamp::mix;
use weft_parsers::fabric::{Hpa, Pid};
use weft_rpc::Refused;

use crate::endpoint::command::{Access, OwnRange, TransferReport};
use crate::endpoint::number::Hex;

/// Most bytes of a read that the answer returns.
pub const DATA_MAX: u64 = 1 << 20;

/// The bytes to write or to expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Given bytes, as long as the range.
    Data(Vec<u8>),
    /// Bytes of the pattern of this seed.
    Seed(u64),
    /// A read without comparison.
    Nothing,
}

/// Fills `into` with the pattern of `seed` from byte `at` on. Each group of eight bytes, least significant first, is
/// `SplitMix64` of the seed XOR the group's number.
pub fn pattern(seed: u64, at: u64, into: &mut [u8]) {
    let mut from = at;
    let mut left = into;
    while !left.is_empty() {
        // A piece may begin within a group of eight bytes.
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

    /// Fills `into` with the bytes from `at` on; false if there are none.
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

/// Length of a range, from the length or from the data.
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

/// The kind of messages that carries a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Memory requests, whose writes are posted.
    Plain,
    /// UIO requests, whose writes are completed.
    Uio,
    /// CXL.mem loads and stores.
    Mem,
    /// Loads and stores through a device's own cache (CXL.cache).
    Cache,
}

impl How {
    /// Whether the answer to a write shows that it was carried out.
    pub(super) const fn answers_writes(self) -> bool {
        matches!(self, Self::Uio | Self::Cache)
    }

    /// Length of the read behind a write that is not read back. A read of zero bytes pushes posted writes ahead.
    /// CXL.mem completes a refused store like any other (Cmp), and only the load of a line shows the refusal.
    pub(super) const fn probe_len(self) -> usize {
        match self {
            Self::Plain | Self::Uio | Self::Cache => 0,
            Self::Mem => 1,
        }
    }
}

/// A request for an endpoint to send.
#[derive(Debug)]
pub enum Ask {
    Tlp(Transaction),
    /// A load or store by CXL.mem.
    Mem(MemOperation),
    /// A load or store of a device's cache.
    Cache(MemOperation),
}

/// A transfer with its parameters checked.
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
    /// Makes the transfer of `access`; `how` is the endpoint's decision on its `via`.
    ///
    /// # Errors
    /// The command contradicts itself.
    pub fn new(access: &Access, write: bool, how: How) -> Result<Self, Refused> {
        let source = Source::of(access.data.as_ref(), access.seed)?;
        let len = range(access.addr.0, access.len.map(|it| it.0), &source)?;
        if write && source == Source::Nothing {
            return Err(Refused::bad_request("expected data or a seed to write"));
        }
        // The answer is one line of JSON, and a line of the socket has a bound.
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

    /// The request for `len` bytes at `addr`; a write if there is `data`.
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

/// The range of a store or peek, and its bytes: first address, length, source.
///
/// # Errors
/// The command contradicts itself, or is too long.
pub fn own(own: &OwnRange, store: bool) -> Result<(u64, u64, Source), Refused> {
    let source = Source::of(own.data.as_ref(), own.seed)?;
    let len = range(own.addr.0, own.len.map(|it| it.0), &source)?;
    if store && source == Source::Nothing {
        return Err(Refused::bad_request("expected data or a seed to store"));
    }
    // Bytes made from a seed need no room in the command, so they may be many more.
    let most = if source == Source::Nothing { DATA_MAX } else { DATA_MAX << 10 };
    if len > most {
        let text = format!("expected at most {most} bytes at once, found {len}");
        return Err(Refused::bad_request(text));
    }
    Ok((own.addr.0, len, source))
}

/// Compares `bytes`, which begin `at` bytes into the range at `addr`, with the expected ones.
pub fn compare(report: &mut TransferReport, addr: u64, at: u64, bytes: &[u8], source: &Source) {
    let mut want = vec![0; bytes.len()];
    source.fill(at, &mut want);
    if bytes == want {
        return;
    }
    // Byte by byte only now: the common case is one comparison of the whole slice.
    for (place, _) in (at..).zip(bytes.iter().zip(&want)).filter(|(_, (a, b))| a != b) {
        report.mismatched += 1;
        report.first_mismatch.get_or_insert(addr + place);
    }
}

#[cfg(test)]
mod tests {
    /// docs/endpoint.md, "Transfers": the first bytes of the pattern of `--seed=1`, and any part of them.
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
