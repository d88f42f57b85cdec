//! Store in etcd: the state of a fabric, written by the leader.
//!
//! Each part, as [`Backend`] names it, is a key below the prefix: a head followed by the bytes, or by pieces in other
//! keys.
//!
//! All parts of one write go into one transaction that compares the leader's key. A long part has pieces under a number
//! of its own, which are written before, and are not used until the transaction. A write whose answer is lost is sent
//! again until the permit ends, with the same values. A request that is not answered for 9/10 of a lease ends the
//! permit, even if the lease is kept alive.
//!
//! Source: etcd 3.4 "System limits": 1.5 MiB a request, 128 operations a transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_base::wait;

use super::address::Address;
use super::answer::AnswerError;
use super::election::Lead;
use super::etcd::{Change, Etcd, EtcdError, Post};
use crate::state::store::{Backend, StoreError};

/// Longest part that is kept in its own key, bytes.
const INLINE_MAX: usize = 96 << 10;
/// Bytes of a piece: 683 KiB in base64, well below etcd's limit on a request.
const PIECE: usize = 512 << 10;
/// Largest number of pieces of a part: 256 MiB.
const PIECES_MAX: usize = 512;
/// Wait between two attempts.
const AGAIN: Duration = Duration::from_millis(50);

/// Head of a part: a line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    len: usize,
    /// Checksum of name and bytes, so that bytes changed on their way are not taken for a state.
    sum: u64,
    /// Number of pieces; 0 if the bytes follow the head.
    pieces: usize,
    /// Number that the pieces are kept under.
    number: i64,
}

/// The store of one term.
#[derive(Debug)]
pub struct SharedStore<P> {
    etcd: Etcd<P>,
    address: Address,
    lead: Arc<Lead>,
    number: AtomicI64,
}

impl<P: Post> SharedStore<P> {
    /// The store of the manager that leads.
    #[must_use]
    pub fn new(post: P, address: Address, lead: Arc<Lead>) -> Self {
        Self { etcd: Etcd(post), address, lead, number: AtomicI64::new(0) }
    }

    /// Writes under the leader's key, again and again until it is answered or the permit ends.
    fn fenced(&self, changes: &[Change<'_>]) -> Result<(), EtcdError> {
        let _asks = self.lead.permit.asks();
        loop {
            if !self.lead.permit.holds() {
                return Err(EtcdError::Ended);
            }
            match self.etcd.write(&self.lead.fence, &[], changes) {
                Err(EtcdError::Silent { .. } | EtcdError::Answer(_)) => wait::pause(AGAIN),
                Err(error) => {
                    // Deposed: nothing that is written later would count, so the term ends at once.
                    self.lead.permit.end();
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Repeats a read until it succeeds or the permit ends.
    fn again<T>(&self, run: impl Fn() -> Result<T, EtcdError>) -> Result<T, EtcdError> {
        let _asks = self.lead.permit.asks();
        loop {
            match run() {
                Err(_) if self.lead.permit.holds() => wait::pause(AGAIN),
                outcome => return outcome,
            }
        }
    }

    fn pieces(&self, part: &str) -> String {
        self.address.key(&format!("pieces/{part}/"))
    }

    fn put(&self, parts: &[(&'static str, Option<Vec<u8>>)]) -> Result<(), EtcdError> {
        let mut values: Vec<(String, Vec<u8>)> = Vec::new();
        let mut gone: Vec<(String, String)> = Vec::new();
        for (part, bytes) in parts {
            let key = self.address.key(&format!("state/{part}"));
            let pieces = self.pieces(part);
            let Some(bytes) = bytes else {
                gone.push((key.clone(), format!("{key}\0")));
                continue;
            };
            // Larger than the numbers of earlier terms, as revisions grow.
            let count = self.number.fetch_add(1, Ordering::SeqCst) & 0xF_FFFF;
            let number = self.lead.fence.0.create_revision.saturating_mul(1 << 20) + count;
            let (sum, len) = (sum(part, bytes), bytes.len());
            let mut head = Head { len, sum, pieces: 0, number };
            if len > INLINE_MAX {
                head.pieces = len.div_ceil(PIECE);
                for (at, piece) in bytes.chunks(PIECE).enumerate() {
                    let key = format!("{pieces}{number:016x}/{at:04x}");
                    // A piece alone changes nothing: only the head, written last, names this number.
                    self.fenced(&[Change::Put(&key, piece)])?;
                }
            }
            let mut value = serde_json::to_vec(&head).map_err(AnswerError::from)?;
            value.push(b'\n');
            if head.pieces == 0 {
                value.extend_from_slice(bytes);
            }
            // Pieces of earlier writes go with the transaction that replaces their head.
            gone.push((pieces.clone(), format!("{pieces}{number:016x}/")));
            values.push((key, value));
        }
        let puts = values.iter().map(|(key, value)| Change::Put(key, value));
        let removes = gone.iter().map(|(from, to)| Change::Remove(from, to));
        let changes: Vec<Change<'_>> = puts.chain(removes).collect();
        self.fenced(&changes)
    }

    fn get(&self, part: &str) -> Result<Option<Vec<u8>>, EtcdError> {
        let Some(found) = self.etcd.sure(&self.address.key(&format!("state/{part}")))? else {
            return Ok(None);
        };
        let bad = AnswerError::Unfit("a part of the state is not as it was written");
        let end = found.value.iter().position(|byte| *byte == b'\n');
        let Some((line, rest)) = end.and_then(|end| found.value.split_at_checked(end)) else {
            return Err(bad.into());
        };
        let head: Head = serde_json::from_slice(line).map_err(AnswerError::from)?;
        let mut bytes = rest.get(1..).unwrap_or_default().to_vec();
        if head.pieces > PIECES_MAX {
            return Err(bad.into());
        }
        for at in 0..head.pieces {
            let key = format!("{}{:016x}/{at:04x}", self.pieces(part), head.number);
            // Pieces need no confirmation by etcd: the checksum in the confirmed head covers them.
            let Some(piece) = self.etcd.get(&key)? else { return Err(bad.into()) };
            bytes.extend(piece.value);
        }
        if bytes.len() != head.len || sum(part, &bytes) != head.sum {
            return Err(bad.into());
        }
        Ok(Some(bytes))
    }
}

impl<P: Post + 'static> Backend for SharedStore<P> {
    fn place(&self) -> String {
        self.address.to_string()
    }

    fn read(&self, part: &'static str) -> Result<Option<Vec<u8>>, StoreError> {
        self.again(|| self.get(part)).map_err(|source| failed(self, "read", source))
    }

    fn write(&self, parts: &[(&'static str, Option<Vec<u8>>)]) -> Result<(), StoreError> {
        self.put(parts).map_err(|source| failed(self, "write", source))
    }
}

fn failed<P: Post + 'static>(
    store: &SharedStore<P>,
    what: &'static str,
    source: EtcdError,
) -> StoreError {
    StoreError::Shared { what, place: store.place(), source: Box::new(source) }
}

/// FNV-1a over the part's name and bytes: against accidents, not attackers.
fn sum(part: &str, bytes: &[u8]) -> u64 {
    let all = part.bytes().chain([0]).chain(bytes.iter().copied());
    all.fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
