//! Crew: how control reaches the workers, and how they wake each other.
//!
//! Shape: flags that workers look at once a loop, a bell for those that sleep. Nobody waits for a worker, or a worker for
//! another one, without end: one that is stuck is named instead.
//! Units: none.
//! Source: ARCHITECTURE.md "Control".

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_base::bell::Bell;
use weft_base::sync::{AtomicBool, Ordering, fence};

use super::Listener;
use crate::pipeline::Step;
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

/// Workers that are not between two steps, and do not come there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", said(workers))]
pub struct Stuck {
    /// Which.
    pub workers: Vec<usize>,
}

fn said(workers: &[usize]) -> String {
    match workers {
        [] => "another look at the workers does not end".to_owned(),
        [one] => format!("worker {one} does not answer"),
        all => {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("workers {} do not answer", all.join(", "))
        }
    }
}

/// One wait of those that [`WAITS`] counts. Waits are counted, not time: while the process is stopped none goes by.
const WAIT: Duration = Duration::from_millis(100);
/// Waits after which a worker that is not there is stuck: 2 s.
const WAITS: u32 = if cfg!(test) { 4 } else { 20 };

struct Member {
    bell: Arc<Bell>,
    sleeps: AtomicBool,
    listener: Mutex<Option<Listener>>,
    has_listener: AtomicBool,
}

#[derive(Default)]
struct Muster {
    held: bool,
    /// Workers that wait until nobody holds the crew; a bit each.
    arrived: u64,
    /// Workers that have left; a bit each.
    left: u64,
}

/// The crew, held between two steps until this is dropped.
pub struct Held<'a>(&'a Crew);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
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
    ///
    /// # Errors
    /// A worker does not come out of its step within 2 s; `look` is not called then.
    pub fn hold<R>(&self, look: impl FnOnce() -> R) -> Result<R, Stuck> {
        let _held = self.held()?;
        Ok(look())
    }

    /// Holds all workers between two steps until the answer is dropped.
    ///
    /// # Errors
    /// A worker does not come out of its step within 2 s; none is held then.
    pub fn held(&self) -> Result<Held<'_>, Stuck> {
        let muster = self.lock();
        let mut muster = self.until(muster, WAITS, |muster| !muster.held);
        if muster.held {
            return Err(Stuck { workers: Vec::new() });
        }
        muster.held = true;
        self.holding.store(true, Ordering::SeqCst);
        self.ring_all();
        let all = self.all();
        let is_there = |muster: &Muster| (muster.arrived | muster.left) == all;
        let muster = self.until(muster, WAITS, is_there);
        let missing = all & !(muster.arrived | muster.left);
        drop(muster);
        let held = Held(self);
        if missing != 0 {
            let workers = (0..self.members.len()).filter(|worker| missing >> worker & 1 != 0);
            return Err(Stuck { workers: workers.collect() });
        }
        Ok(held)
    }

    fn release(&self) {
        let mut muster = self.lock();
        muster.held = false;
        self.holding.store(false, Ordering::SeqCst);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Muster> {
        self.muster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A bit for each worker.
    fn all(&self) -> u64 {
        (0..self.members.len()).fold(0, |all, worker| all | bit(worker))
    }

    /// Waits until `done`, or for so many waits.
    fn until<'a>(
        &self,
        mut muster: MutexGuard<'a, Muster>,
        most: u32,
        done: impl Fn(&Muster) -> bool,
    ) -> MutexGuard<'a, Muster> {
        let mut waits = 0;
        while !done(&muster) && waits < most {
            let waited = self.changed.wait_timeout(muster, WAIT);
            let (guard, over) = waited.unwrap_or_else(PoisonError::into_inner);
            muster = guard;
            waits += u32::from(over.timed_out());
        }
        muster
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
    pub(super) fn check_in(&self, worker: usize) {
        if self.holding.load(Ordering::Relaxed) {
            self.wait_out(worker);
        }
    }

    #[cold]
    fn wait_out(&self, worker: usize) {
        let mut muster = self.lock();
        muster.arrived |= bit(worker);
        self.changed.notify_all();
        let mut muster = self.until(muster, 3 * WAITS, |muster| !muster.held);
        if muster.held {
            self.holding.store(false, Ordering::SeqCst); // whoever holds us is stuck: frames go first
        }
        muster.arrived &= !bit(worker);
    }

    /// Out of the loop for good; waits for all others, who may hand frames over until then, but not for
    /// one that is stuck.
    pub(super) fn leave(&self, worker: usize) {
        let mut muster = self.lock();
        muster.left |= bit(worker);
        self.changed.notify_all();
        let all = self.all();
        drop(self.until(muster, WAITS / 2, |muster| muster.left == all));
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

/// The bit of a worker: there are as many as ports at most.
const fn bit(worker: usize) -> u64 {
    1_u64 << (worker % PORTS_MAX)
}

const _: () = assert!(PORTS_MAX <= u64::BITS as usize, "a bit for each worker");

impl Member {
    fn ring(&self) {
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crew(workers: usize) -> Arc<Crew> {
        let own = |port| PortId::new(port).into_iter().collect();
        let spread: Vec<Vec<PortId>> = (0..workers).map(own).collect();
        Crew::new(&spread).unwrap()
    }

    /// Has workers check in until `stop`.
    fn working(
        crew: &Arc<Crew>,
        worker: usize,
        stop: &Arc<AtomicBool>,
    ) -> std::thread::JoinHandle<()> {
        let (crew, stop) = (crew.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                crew.check_in(worker);
                std::thread::yield_now();
            }
        })
    }

    #[test]
    fn a_stuck_worker_is_named_and_the_others_go_on() {
        let (crew, stop) = (crew(2), Arc::new(AtomicBool::new(false)));
        let worker = working(&crew, 0, &stop);
        let stuck = crew.hold(|| ()).unwrap_err();
        assert_eq!(
            (stuck.workers.as_slice(), stuck.to_string().as_str()),
            (&[1][..], "worker 1 does not answer")
        );
        let late = working(&crew, 1, &stop);
        assert_eq!(crew.hold(|| 7), Ok(7), "it has come back");
        stop.store(true, Ordering::SeqCst);
        worker.join().unwrap();
        late.join().unwrap();
        crew.leave(0); // does not wait for ever for the other one
    }

    #[test]
    fn a_look_that_panics_lets_the_workers_go() {
        let (crew, stop) = (crew(1), Arc::new(AtomicBool::new(false)));
        let worker = working(&crew, 0, &stop);
        let other = crew.clone();
        assert!(std::thread::spawn(move || other.hold(|| panic!("a look"))).join().is_err());
        assert_eq!(crew.hold(|| 7), Ok(7));
        stop.store(true, Ordering::SeqCst);
        worker.join().unwrap();
    }

    #[test]
    fn workers_go_on_when_whoever_holds_them_is_stuck() {
        let (crew, stop) = (crew(1), Arc::new(AtomicBool::new(false)));
        let worker = working(&crew, 0, &stop);
        let held = crew.held().unwrap();
        while crew.holding.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert_eq!(crew.hold(|| ()), Err(Stuck { workers: Vec::new() }));
        drop(held);
        assert_eq!(crew.hold(|| 7), Ok(7));
        stop.store(true, Ordering::SeqCst);
        worker.join().unwrap();
    }
}
