//! Worker group: how control reaches the workers, and how they wake each other.
//!
//! Workers check flags once a loop, and an eventfd wakes those that sleep. Every wait for a worker
//! has a time limit: a worker that is stuck is named in an error instead.
//!
//! Source: ARCHITECTURE.md "Control".

use std::hint::spin_loop;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_base::eventfd::EventFd;
use weft_base::sync::{AtomicBool, AtomicU64, Ordering, fence};

use super::Listener;
use crate::pipeline::Step;
use crate::types::{PORTS_MAX, PortId};

/// The worker group could not be made: the kernel gave no eventfd.
#[derive(Debug, thiserror::Error)]
#[error("eventfd for worker {worker}")]
pub struct WorkerGroupError {
    /// Index of the worker.
    pub worker: usize,
    /// Error of eventfd(2).
    #[source]
    pub source: std::io::Error,
}

/// Workers that did not finish their step within the time limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", said(workers))]
pub struct Stuck {
    /// Their indices; empty if another caller keeps the group quiesced.
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

/// Length of one wait; a limit is a number of waits ([`WAITS`]). Waits are counted instead of time
/// because no wait ends while the whole process is stopped.
const WAIT: Duration = Duration::from_millis(100);
/// Waits after which a worker that has not arrived is stuck: 2 s.
const WAITS: u32 = if cfg!(test) { 4 } else { 20 };

/// Looks before a thread waits for another in the kernel: some tens of microseconds. A step takes
/// less, and so does most that is done while workers pause, whereas a thread that has gone to sleep
/// must wait until its core is free.
const SPINS: u32 = if cfg!(test) { 4 } else { 2_000 };

struct Member {
    wakeup: Arc<EventFd>,
    sleeps: AtomicBool,
    listener: Mutex<Option<Listener>>,
    has_listener: AtomicBool,
}

/// Where workers wait between two steps while the group is quiesced.
#[derive(Default)]
struct Barrier {
    /// Whether the group is quiesced.
    closed: bool,
    /// Workers that wait at the barrier, as bits.
    arrived: u64,
    /// Workers that have left their loops for good, as bits.
    left: u64,
}

impl Barrier {
    /// Workers that are in no step, as bits.
    const fn present(&self) -> u64 {
        self.arrived | self.left
    }
}

/// Keeps all workers of a group between two steps until it is dropped.
pub struct Quiesced<'a>(&'a WorkerGroup);

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The worker threads of one switch: tells them to stop or to pause, and wakes them.
pub struct WorkerGroup {
    members: Vec<Member>,
    /// By port: the worker that owns it.
    owner: [usize; PORTS_MAX],
    stopping: AtomicBool,
    quiescing: AtomicBool,
    barrier: Mutex<Barrier>,
    /// [`Barrier::present`], readable without the lock.
    present: AtomicU64,
    changed: Condvar,
}

impl WorkerGroup {
    /// A group for ports spread as `spread` says; the first worker owns the crossbar.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new(spread: &[Vec<PortId>]) -> Result<Arc<Self>, WorkerGroupError> {
        let mut owner = [0; PORTS_MAX];
        let mut members = Vec::with_capacity(spread.len());
        for (worker, own) in spread.iter().enumerate() {
            for port in own {
                if let Some(slot) = owner.get_mut(port.index()) {
                    *slot = worker;
                }
            }
            let wakeup = EventFd::new().map_err(|source| WorkerGroupError { worker, source })?;
            members.push(Member {
                wakeup: Arc::new(wakeup),
                sleeps: AtomicBool::new(false),
                listener: Mutex::new(None),
                has_listener: AtomicBool::new(false),
            });
        }
        Ok(Arc::new(Self {
            members,
            owner,
            stopping: AtomicBool::new(false),
            quiescing: AtomicBool::new(false),
            present: AtomicU64::new(0),
            barrier: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Number of workers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether the group has no worker.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The worker that owns `port`.
    #[must_use]
    pub fn owner(&self, port: PortId) -> usize {
        self.owner.get(port.index()).copied().unwrap_or(0)
    }

    /// Tells all workers to stop; may be called from any thread.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Sleeping workers read the flag only when they are woken.
        self.notify_all_members();
    }

    /// Whether the workers have been told to stop.
    #[inline]
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Calls `look` while all workers pause between two steps, for counters that must add up. This
    /// takes microseconds; frames wait in their ports meanwhile.
    ///
    /// # Errors
    /// A worker does not finish its step within 2 s; `look` is not called then.
    pub fn with_quiesced<R>(&self, look: impl FnOnce() -> R) -> Result<R, Stuck> {
        let _quiesced = self.quiesce()?;
        Ok(look())
    }

    /// Makes all workers pause between two steps until the returned guard is dropped.
    ///
    /// # Errors
    /// A worker does not finish its step within 2 s; no worker is paused then.
    pub fn quiesce(&self) -> Result<Quiesced<'_>, Stuck> {
        let barrier = self.lock();
        let mut barrier = self.until(barrier, WAITS, |barrier| !barrier.closed);
        if barrier.closed {
            return Err(Stuck { workers: Vec::new() });
        }
        barrier.closed = true;
        self.quiescing.store(true, Ordering::SeqCst);
        drop(barrier);
        (0..self.members.len()).for_each(|worker| self.wake(worker));
        let all = self.all();
        // Pairs with the Release store in `note_present`: all that the workers wrote in their steps is
        // visible to the caller.
        spin_until(|| self.present.load(Ordering::Acquire) == all);
        let barrier = self.until(self.lock(), WAITS, |barrier| barrier.present() == all);
        let missing = all & !barrier.present();
        drop(barrier);
        // Before the check, so that the guard releases the other workers if one is missing.
        let quiesced = Quiesced(self);
        if missing != 0 {
            let workers = (0..self.members.len()).filter(|worker| missing >> worker & 1 != 0);
            return Err(Stuck { workers: workers.collect() });
        }
        Ok(quiesced)
    }

    fn release(&self) {
        let mut barrier = self.lock();
        barrier.closed = false;
        self.quiescing.store(false, Ordering::SeqCst);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Barrier> {
        self.barrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All workers, as bits.
    fn all(&self) -> u64 {
        (0..self.members.len()).fold(0, |all, worker| all | bit(worker))
    }

    /// Waits until `done`, but for at most `most` waits.
    fn until<'a>(
        &self,
        mut barrier: MutexGuard<'a, Barrier>,
        most: u32,
        done: impl Fn(&Barrier) -> bool,
    ) -> MutexGuard<'a, Barrier> {
        let mut waits = 0;
        while !done(&barrier) && waits < most {
            let waited = self.changed.wait_timeout(barrier, WAIT);
            let (guard, over) = waited.unwrap_or_else(PoisonError::into_inner);
            barrier = guard;
            waits += u32::from(over.timed_out());
        }
        barrier
    }

    /// Passes what worker `worker` decides to `listener`, until that has enough.
    pub fn trace(&self, worker: usize, listener: Listener) {
        if let Some(member) = self.members.get(worker) {
            *member.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
            // After the listener is in its place: a worker that sees the flag takes it.
            member.has_listener.store(true, Ordering::SeqCst);
            member.notify();
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

    pub(super) fn wakeup(&self, worker: usize) -> Option<Arc<EventFd>> {
        self.members.get(worker).map(|member| member.wakeup.clone())
    }

    /// Called between two steps: waits while the group is quiesced.
    #[inline]
    pub(super) fn check_in(&self, worker: usize) {
        if self.quiescing.load(Ordering::Relaxed) {
            self.wait_for_resume(worker);
        }
    }

    #[cold]
    fn wait_for_resume(&self, worker: usize) {
        let mut barrier = self.lock();
        barrier.arrived |= bit(worker);
        self.note_present(&barrier);
        drop(barrier);
        // Without the lock, which the thread that quiesced us needs to see who has arrived.
        spin_until(|| !self.quiescing.load(Ordering::Relaxed));
        let mut barrier = self.until(self.lock(), 3 * WAITS, |barrier| !barrier.closed);
        if barrier.closed {
            // The thread that quiesced us is stuck, and frames must not wait for it any longer.
            self.quiescing.store(false, Ordering::SeqCst);
        }
        barrier.arrived &= !bit(worker);
        self.note_present(&barrier);
    }

    /// Publishes which workers are in no step.
    fn note_present(&self, barrier: &Barrier) {
        self.present.store(barrier.present(), Ordering::Release); // pairs with the load in `quiesce`
        self.changed.notify_all();
    }

    /// Leaves the loop for good. Waits for all other workers, which may hand frames over until they
    /// leave, too, but not for one that is stuck.
    pub(super) fn leave(&self, worker: usize) {
        let mut barrier = self.lock();
        barrier.left |= bit(worker);
        self.note_present(&barrier);
        let all = self.all();
        // Frames that are still in a ring after `Lane::stop` would be counted nowhere.
        drop(self.until(barrier, WAITS / 2, |barrier| barrier.left == all));
    }

    /// Wakes the workers for which a step has made work.
    #[inline]
    pub(super) fn wake_after(&self, worker: usize, step: &Step) {
        if self.members.len() == 1 {
            return;
        }
        // Worker 0 owns the crossbar.
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
        // Pairs with the fence in `prepare_sleep`: either this load sees that the worker sleeps, or the
        // worker sees what was stored before (`quiescing`, frames in a ring). Release and Acquire would not do, as
        // each side stores one word and then loads the other's.
        fence(Ordering::SeqCst);
        if let Some(member) = self.members.get(worker)
            && member.sleeps.load(Ordering::Relaxed)
        {
            member.notify();
        }
    }

    fn notify_all_members(&self) {
        for member in &self.members {
            member.notify();
        }
    }

    /// Announces that `worker` is about to sleep; false if the group is stopping or being quiesced,
    /// which it must see first.
    pub(super) fn prepare_sleep(&self, worker: usize) -> bool {
        if let Some(member) = self.members.get(worker) {
            member.sleeps.store(true, Ordering::SeqCst);
        }
        // Pairs with the fence in `wake`. `ppoll` then returns at once if the eventfd was notified.
        fence(Ordering::SeqCst);
        !self.is_stopping() && !self.quiescing.load(Ordering::SeqCst)
    }

    pub(super) fn wake_up(&self, worker: usize) {
        if let Some(member) = self.members.get(worker) {
            member.sleeps.store(false, Ordering::Relaxed);
        }
    }
}

/// Looks up to [`SPINS`] times whether `done`.
fn spin_until(done: impl Fn() -> bool) {
    for _ in 0..SPINS {
        if done() {
            return;
        }
        spin_loop();
    }
}

/// The bit of a worker; there are at most as many as ports.
const fn bit(worker: usize) -> u64 {
    1_u64 << (worker % PORTS_MAX)
}

const _: () = assert!(PORTS_MAX <= u64::BITS as usize, "a bit for each worker");

impl Member {
    fn notify(&self) {
        self.wakeup.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle::Idle;
    use super::*;
    use crate::time::Span;
    use crate::worker::Poll;

    fn group(workers: usize) -> Arc<WorkerGroup> {
        let own = |port| PortId::new(port).into_iter().collect();
        let spread: Vec<Vec<PortId>> = (0..workers).map(own).collect();
        WorkerGroup::new(&spread).unwrap()
    }

    /// Has workers check in until `stop`.
    fn working(
        group: &Arc<WorkerGroup>,
        worker: usize,
        stop: &Arc<AtomicBool>,
    ) -> std::thread::JoinHandle<()> {
        let (group, stop) = (group.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                group.check_in(worker);
                std::thread::yield_now();
            }
        })
    }

    /// Nothing would wake a worker for frames that came between its last step and its announcement.
    #[test]
    fn arrivals_are_looked_for_after_the_sleep_is_announced() {
        let group = group(2);
        let mut idle = Idle::new(Poll::Adaptive, group.wakeup(1));
        let mut announced = None;
        idle.sleep(Span::from_ms(600_000), &group, 1, || {
            announced = Some(group.members[1].sleeps.load(Ordering::SeqCst));
            true // so it does not sleep: this test would never end
        });
        assert_eq!(announced, Some(true));
        assert!(!group.members[1].sleeps.load(Ordering::SeqCst));
    }

    #[test]
    fn a_stuck_worker_is_named_and_the_others_go_on() {
        let (group, stop) = (group(2), Arc::new(AtomicBool::new(false)));
        let worker = working(&group, 0, &stop);
        let stuck = group.with_quiesced(|| ()).unwrap_err();
        assert_eq!(
            (stuck.workers.as_slice(), stuck.to_string().as_str()),
            (&[1][..], "worker 1 does not answer")
        );
        let late = working(&group, 1, &stop);
        assert_eq!(group.with_quiesced(|| 7), Ok(7), "it has come back");
        stop.store(true, Ordering::SeqCst);
        worker.join().unwrap();
        late.join().unwrap();
        group.leave(0); // does not wait for ever for the other one
    }

    #[test]
    fn a_look_that_panics_lets_the_workers_go() {
        let (group, stop) = (group(1), Arc::new(AtomicBool::new(false)));
        let worker = working(&group, 0, &stop);
        let other = group.clone();
        assert!(
            std::thread::spawn(move || other.with_quiesced(|| panic!("a look"))).join().is_err()
        );
        assert_eq!(group.with_quiesced(|| 7), Ok(7));
        stop.store(true, Ordering::SeqCst);
        worker.join().unwrap();
    }

    #[test]
    fn workers_go_on_when_whoever_holds_them_is_stuck() {
        let (group, stop) = (group(1), Arc::new(AtomicBool::new(false)));
        let worker = working(&group, 0, &stop);
        let quiesced = group.quiesce().unwrap();
        while group.quiescing.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert_eq!(group.with_quiesced(|| ()), Err(Stuck { workers: Vec::new() }));
        drop(quiesced);
        assert_eq!(group.with_quiesced(|| 7), Ok(7));
        stop.store(true, Ordering::SeqCst);
        worker.join().unwrap();
    }
}
