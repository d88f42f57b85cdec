//! Memory that clients may use, accounted before it is used.
//!
//! An [`Account`] has a cap; a [`Share`] of it is given back when dropped. All sizes are in bytes.
//!
//! Source: ARCHITECTURE.md "Control": memory for management must never end the data path.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_base::memory::{NoMemory, try_room, try_room_with_reserve};

/// Why a share is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoShare {
    /// The account has not enough left.
    #[error(
        "{used} of the {cap} bytes that clients may use are in use, and {asked} more are needed"
    )]
    Cap { used: usize, cap: usize, asked: usize },
    /// The system has not enough memory.
    #[error(transparent)]
    System(#[from] NoMemory),
}

/// An amount of memory with a cap, and how much of it is in use.
#[derive(Debug)]
pub struct Account {
    cap: usize,
    used: AtomicUsize,
}

/// Part of an [`Account`], given back when dropped.
#[derive(Debug)]
pub struct Share {
    account: Arc<Account>,
    bytes: usize,
}

impl Account {
    #[must_use]
    pub const fn new(cap: usize) -> Self {
        Self { cap, used: AtomicUsize::new(0) }
    }

    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) // a count, and nothing hangs on it
    }

    /// Takes a share for `bytes` that are allocated already, if the account has them and the system could hold a copy.
    /// While no other share is in use, one may exceed the cap: a single large answer is sent all the same.
    ///
    /// # Errors
    /// See [`NoShare`].
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Share, NoShare> {
        let share = self.count(bytes)?;
        try_room(bytes)?;
        Ok(share)
    }

    /// Takes a share for `bytes` that will be allocated little by little, where an allocation must not fail. The system
    /// must have room for all shares of the account, as none of them may be in use yet.
    ///
    /// # Errors
    /// See [`NoShare`].
    pub fn promise(self: &Arc<Self>, bytes: usize) -> Result<Share, NoShare> {
        let share = self.count(bytes)?;
        // For all that is promised, not for `bytes` alone: promises that fit one by one could not all be kept.
        try_room_with_reserve(self.used())?;
        Ok(share)
    }

    fn count(self: &Arc<Self>, bytes: usize) -> Result<Share, NoShare> {
        let cap = self.cap;
        // With no other share in use the sum may exceed the cap, see `take`.
        let add = |used: usize| used.checked_add(bytes).filter(|&sum| used == 0 || sum <= cap);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .map_err(|used| NoShare::Cap { used, cap, asked: bytes })?;
        Ok(Share { account: self.clone(), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed); // a count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_gives_no_more_than_it_has() {
        let account = Arc::new(Account::new(100));
        let first = account.take(60).unwrap();
        let refused = account.take(41).unwrap_err();
        assert_eq!(refused, NoShare::Cap { used: 60, cap: 100, asked: 41 });
        let second = account.take(40).unwrap();
        drop(first);
        assert_eq!(account.used(), 40);
        drop(second);
        assert_eq!((account.used(), account.take(usize::MAX).is_err()), (0, true));
        let large = account.take(150).unwrap();
        assert!(account.take(1).is_err(), "only one is larger");
        drop(large);
        let all = Arc::new(Account::new(usize::MAX));
        let refused = all.take(usize::MAX).unwrap_err();
        assert_eq!((refused, all.used()), (NoShare::System(NoMemory(usize::MAX)), 0));
    }

    /// Two promises that the system could keep one by one are not both given.
    #[test]
    fn promises_are_kept_together() {
        let half = usize::MAX / 4; // an allocation has at most half of the address space
        let all = Arc::new(Account::new(usize::MAX));
        let _in_use = all.count(half).unwrap();
        assert_eq!(all.promise(half).unwrap_err(), NoShare::System(NoMemory(2 * half)));
        assert_eq!(all.used(), half, "what is refused is given back");
        let small = Arc::new(Account::new(100));
        let _first = small.promise(60).unwrap();
        assert!(matches!(small.promise(41), Err(NoShare::Cap { .. })));
    }
}
