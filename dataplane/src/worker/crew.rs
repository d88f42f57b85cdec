//! Crew: how control reaches the workers, and how they wake each other.
//!
//! Shape: flags that workers look at once a loop, a bell for those that sleep.
//! Units: none.
//! Source: architecture.md, "Control".

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::Listener;
use crate::bell::Bell;
use crate::pipeline::Step;
use crate::sync::{AtomicBool, Ordering, fence};
use crate::types::{PORTS_MAX, PortId};

/// A crew could not be made.
#[derive(Debug, thiserror::Error)]
#[error("eventfd for worker {worker}")]
pub struct CrewError {
    /// Which one.
    pub worker: usize,
    /// The kernel's answer.
    #[source]
    pub source: std::io::Error,
}

struct Member {
    bell: Arc<Bell>,
    sleeps: AtomicBool,
    listener: Mutex<Option<Listener>>,
    has_listener: AtomicBool,
}

#[derive(Default)]
struct Muster {
    held: bool,
    arrived: usize,
    left: usize,
}

/// The workers of one switch, as others see them.
pub struct Crew {
    members: Vec<Member>,
    /// By port: the worker that owns it.
    owner: [usize; PORTS_MAX],
    stopping: AtomicBool,
    holding: AtomicBool,
    muster: Mutex<Muster>,
    changed: Condvar,
}

impl Crew {
    /// A crew for ports spread as `spread` says; the first worker owns the crossbar.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new(spread: &[Vec<PortId>]) -> Result<Arc<Self>, CrewError> {
        let mut owner = [0; PORTS_MAX];
        let mut members = Vec::with_capacity(spread.len());
        for (worker, own) in spread.iter().enumerate() {
            for port in own {
                if let Some(slot) = owner.get_mut(port.index()) {
                    *slot = worker;
                }
            }
            let bell = Bell::new().map_err(|source| CrewError { worker, source })?;
            members.push(Member {
                bell: Arc::new(bell),
                sleeps: AtomicBool::new(false),
                listener: Mutex::new(None),
                has_listener: AtomicBool::new(false),
            });
        }
        Ok(Arc::new(Self {
            members,
            owner,
            stopping: AtomicBool::new(false),
            holding: AtomicBool::new(false),
            muster: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// How many workers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Tells all workers to stop; may be called from anywhere.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.ring_all();
    }

    /// Whether the crew is told to stop.
    #[inline]
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Calls `look` while no worker is in a step: for counters that must add up. Takes
    /// microseconds; frames wait in their ports meanwhile.
    pub fn hold<R>(&self, look: impl FnOnce() -> R) -> R {
        let mut muster = self.muster.lock().unwrap_or_else(PoisonError::into_inner);
        while muster.held {
            muster = self.changed.wait(muster).unwrap_or_else(PoisonError::into_inner);
        }
        muster.held = true;
        self.holding.store(true, Ordering::SeqCst);
        self.ring_all();
        while muster.arrived + muster.left < self.members.len() {
            muster = self.changed.wait(muster).unwrap_or_else(PoisonError::into_inner);
        }
        let seen = look();
        muster.held = false;
        self.holding.store(false, Ordering::SeqCst);
        self.changed.notify_all();
        seen
    }

    /// Has `listener` hear what worker `worker` decides, until it has enough.
    pub fn trace(&self, worker: usize, listener: Listener) {
        if let Some(member) = self.members.get(worker) {
            *member.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
            member.has_listener.store(true, Ordering::SeqCst);
            member.ring();
        }
    }

    pub(super) fn take_listener(&self, worker: usize) -> Option<Listener> {
        let member = self.members.get(worker)?;
        if !member.has_listener.load(Ordering::Relaxed) {
            return None;
        }
        member.has_listener.store(false, Ordering::SeqCst);
        member.listener.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn bell(&self, worker: usize) -> Option<Arc<Bell>> {
        self.members.get(worker).map(|member| member.bell.clone())
    }

    /// Between two steps: waits while control holds the crew.
    #[inline]
    pub(super) fn check_in(&self, _worker: usize) {
        if self.holding.load(Ordering::Relaxed) {
            self.wait_out();
        }
    }

    #[cold]
    fn wait_out(&self) {
        let mut muster = self.muster.lock().unwrap_or_else(PoisonError::into_inner);
        if !muster.held {
            return;
        }
        muster.arrived += 1;
        self.changed.notify_all();
        while muster.held {
            muster = self.changed.wait(muster).unwrap_or_else(PoisonError::into_inner);
        }
        muster.arrived -= 1;
    }

    /// Out of the loop for good; waits for all others, who may hand frames over until then.
    pub(super) fn leave(&self) {
        let mut muster = self.muster.lock().unwrap_or_else(PoisonError::into_inner);
        muster.left += 1;
        self.changed.notify_all();
        while muster.left < self.members.len() {
            muster = self.changed.wait(muster).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes those that a step has made work for.
    #[inline]
    pub(super) fn pass_on(&self, worker: usize, step: &Step) {
        if self.members.len() == 1 {
            return;
        }
        if step.queued && worker != 0 {
            self.wake(0);
        }
        for port in step.fed.iter() {
            if let Some(&owner) = self.owner.get(port.index())
                && owner != worker
            {
                self.wake(owner);
            }
        }
    }

    fn wake(&self, worker: usize) {
        // The hand-over's stores come before this load; pairs with the fence in `doze`.
        fence(Ordering::SeqCst);
        if let Some(member) = self.members.get(worker)
            && member.sleeps.load(Ordering::Relaxed)
        {
            member.ring();
        }
    }

    fn ring_all(&self) {
        for member in &self.members {
            member.ring();
        }
    }

    /// Says that `worker` is about to sleep; false when there is something that it must see first.
    pub(super) fn doze(&self, worker: usize) -> bool {
        if let Some(member) = self.members.get(worker) {
            member.sleeps.store(true, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst); // pairs with `wake`
        !self.is_stopping() && !self.holding.load(Ordering::SeqCst)
    }

    pub(super) fn wake_up(&self, worker: usize) {
        if let Some(member) = self.members.get(worker) {
            member.sleeps.store(false, Ordering::Relaxed);
        }
    }
}

impl Member {
    fn ring(&self) {
        self.bell.ring();
    }
}
