//! Election: the manager leads whose lease keeps one key in etcd.
//!
//! [`Candidate::campaign`] returns a [`Lead`], a term with its [`Permit`] and [`Fence`]; [`Candidate::keep`] renews it.
//! Times are nanoseconds of [`Clock`].
//!
//! A manager believes that it leads only if the key is read twice as it was made: by the transaction that made it, and
//! by a read after it. So an answer that was changed on its way makes no second leader.
//!
//! Source: docs/fm.md "Several managers".

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::crypto::ring;
use serde::{Deserialize, Serialize};

use super::address::Address;
use super::answer::{AnswerError, KeyValue, shown};
use super::etcd::{Change, Etcd, EtcdError, Fence, Post};
use super::permit::{Clock, Permit};
use super::rival::{Rival, term_apart};

/// Value of the leader's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LeaderValue {
    /// Name of the leader, for people.
    name: String,
}

/// A term of leading, from its election to the end of its lease.
#[derive(Debug)]
pub struct Lead {
    pub term: u64,
    /// Right to send commands and to write.
    pub permit: Permit,
    /// Key that each write compares.
    pub fence: Fence,
}

/// One of several managers.
#[derive(Debug)]
pub struct Candidate<P> {
    etcd: Etcd<P>,
    address: Address,
    name: String,
    ttl: Duration,
    clock: Clock,
    /// Largest term that a component was seen to be led in.
    seen: AtomicU64,
}

impl<P: Post> Candidate<P> {
    /// A candidate with a name, whose lease lasts `ttl`.
    #[must_use]
    pub fn new(post: P, address: Address, name: &str, ttl: Duration, clock: Clock) -> Self {
        let (etcd, name, seen) = (Etcd(post), shown(name), AtomicU64::new(0));
        Self { etcd, address, name, ttl, clock, seen }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Notes a term that was seen at a component, whatever etcd knows of it: the next term is after it.
    pub fn has_seen(&self, term: u64) {
        self.seen.fetch_max(term, Ordering::SeqCst);
    }

    /// Name of the present leader; `None` if there is none.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn leader(&self) -> Result<Option<String>, EtcdError> {
        let found = self.etcd.get(&self.address.key("leader"))?;
        Ok(found.map(|found| match serde_json::from_slice::<LeaderValue>(&found.value) {
            Ok(value) => shown(&value.name),
            Err(_) => "a fabric manager without a name".to_owned(),
        }))
    }

    /// Another group that leads the fabric, as a member of this group has noted: then no leader is elected. That there
    /// is no note must be confirmed by etcd.
    ///
    /// # Errors
    /// etcd does not answer or confirm, or the note cannot be read.
    pub fn rival(&self) -> Result<Option<Rival>, EtcdError> {
        let found = self.etcd.sure(&self.address.key("rival"))?;
        let read =
            |found: KeyValue| serde_json::from_slice(&found.value).map_err(AnswerError::from);
        Ok(found.map(read).transpose()?)
    }

    /// Notes for all of this group that another one leads, which this etcd does not know. Terms continue after those of
    /// that group.
    ///
    /// # Errors
    /// etcd does not answer. [`EtcdError::Deposed`]: another member of this group leads.
    pub fn note_rival(&self, lead: &Lead, rival: Rival) -> Result<(), EtcdError> {
        let (key, counter) = (self.address.key("rival"), self.address.key("term"));
        let value = serde_json::to_vec(&rival).map_err(AnswerError::from)?;
        let number = term_apart(rival.term.max(lead.term)).to_string();
        let changes = [Change::Put(&key, &value), Change::Put(&counter, number.as_bytes())];
        self.etcd.write(&lead.fence, &[], &changes)
    }

    /// Removes the note, as this group takes the fabric over.
    ///
    /// # Errors
    /// etcd does not answer, or another manager leads.
    pub fn forget_rival(&self, lead: &Lead) -> Result<(), EtcdError> {
        let key = self.address.key("rival");
        self.etcd.write(&lead.fence, &[], &[Change::Remove(&key, &format!("{key}\0"))])
    }

    /// Stands for election; returns `None` if another manager leads.
    ///
    /// # Errors
    /// etcd does not answer, or with nonsense. It is not known then whether the key was made; its lease ends by itself.
    pub fn campaign(&self) -> Result<Option<Lead>, EtcdError> {
        let id = random()?;
        // Read before the request: the lease runs from a moment after this, so the permit ends before it.
        let asked = (self.clock)();
        let lease = self.etcd.grant(id, self.ttl)?;
        let permit = Permit::new(self.clock, asked, lease);
        let lead = self.stand(id, permit);
        if !matches!(lead, Ok(Some(_))) {
            // A lost election leaves no lease that keeps the key of a half-made term.
            let _ = self.etcd.revoke(id); // it ends by itself otherwise
        }
        lead
    }

    /// Makes the leader's key, and counts the terms up.
    fn stand(&self, id: i64, permit: Permit) -> Result<Option<Lead>, EtcdError> {
        let key = self.address.key("leader");
        let value = serde_json::to_vec(&LeaderValue { name: self.name.clone() });
        let value = value.map_err(AnswerError::from)?;
        let made = self.etcd.make(&key, &value, id)?;
        let own = KeyValue { key: key.clone().into(), value, lease: id, ..made };
        if made != own {
            return Ok(None);
        }
        // Read once more: a changed answer of `make` must not make a second leader.
        if self.etcd.get(&key)?.as_ref() != Some(&own) {
            return Err(
                AnswerError::Unfit("the leader's key is another one when read again").into()
            );
        }
        let fence = Fence(own);
        let counter = self.address.key("term");
        let found = self.etcd.get(&counter)?;
        let last = found.as_ref().map_or(Ok(0), |found| term(&found.value))?;
        let last = last.max(self.seen.load(Ordering::SeqCst));
        let term = last.checked_add(1).ok_or(AnswerError::Unfit("no term is left"))?;
        let number = term.to_string();
        let change = Change::Put(&counter, number.as_bytes());
        // In a transaction on the counter as it was read, so that two managers never get the same term.
        self.etcd.write(&fence, &[(&counter, found.as_ref())], &[change])?;
        Ok(Some(Lead { term, permit, fence }))
    }

    /// Renews the lease of a term; returns whether it still leads.
    ///
    /// # Errors
    /// etcd does not answer; the permit holds until it ends.
    pub fn keep(&self, lead: &Lead) -> Result<bool, EtcdError> {
        let asked = (self.clock)();
        if let Some(lease) = self.etcd.keep(lead.fence.0.lease, self.ttl)? {
            return Ok(lead.permit.renew(asked, lease));
        }
        lead.permit.end();
        Ok(false)
    }

    /// Ends a term, so that the next one can begin at once.
    ///
    /// # Errors
    /// etcd does not answer; the lease ends by itself.
    pub fn resign(&self, lead: &Lead) -> Result<(), EtcdError> {
        // The permit first: no command may go out once another manager can be elected.
        lead.permit.end();
        match self.etcd.revoke(lead.fence.0.lease) {
            Err(EtcdError::Answer(AnswerError::Refused(_))) => Ok(()), // there is no such lease
            outcome => outcome,
        }
    }
}

fn term(value: &[u8]) -> Result<u64, EtcdError> {
    let text = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| AnswerError::Unfit("the term is no number").into())
}

/// A random lease number, so that no two managers have the same.
fn random() -> Result<i64, EtcdError> {
    let mut bytes = [0; 8];
    let filled = ring::default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| AnswerError::Unfit("the machine has no random numbers"))?;
    // Positive, as etcd takes 0 for "choose one".
    Ok((i64::from_le_bytes(bytes) & i64::MAX).max(1))
}
