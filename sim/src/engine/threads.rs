//! Runs components on several threads, which meet once in each window of virtual time.
//!
//! A window begins when the first of all components is due, and is as long as the least time that a frame takes from
//! one thread's components to another's: a frame sent within a window arrives after it. Between windows each thread
//! publishes when its components are due first, and which components of others are due for its frames.
//!
//! Source: docs/spec/model.md §1; conservative synchronisation by lookahead (Chandy and Misra 1979).

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use weft_base::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use weft_dataplane::time::{Instant, Span};

use super::cables::Links;
use super::schedule::Schedule;
use super::sharing::Owners;
use super::tournament::Tournament;
use super::{Component, visit};

/// Stands for the instant of a thread of which no component is due.
const NEVER: u64 = u64::MAX;
/// How often a thread looks for the others before it sleeps.
const LOOKS: u32 = 2_000;

/// Components of another thread that are due for frames, and when.
type Mail = Mutex<Vec<(usize, Instant)>>;

/// State that the threads share. Parts of a window exist twice: a slow thread reads those of the last window while
/// others write those of the next.
struct Meeting {
    /// By window and thread: when the first of its components, or of those it has sent frames to, is due, as time since
    /// `start`.
    firsts: [Vec<AtomicU64>; 2],
    /// By window, sending thread and receiving thread.
    mail: [Vec<Vec<Mail>>; 2],
    start: Instant,
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    lost: AtomicBool,
    /// Held while `round` or `lost` is changed, and while a thread checks them before it sleeps: so no wake-up is
    /// missed.
    asleep: Mutex<()>,
    awake: Condvar,
}

/// Reports a thread that ends by a panic, so that the others do not wait for it.
struct Attends<'a>(&'a Meeting);

impl Drop for Attends<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.wake(|| self.0.lost.store(true, Ordering::Release));
        }
    }
}

impl Meeting {
    fn new(threads: usize, start: Instant) -> Self {
        let firsts = || (0..threads).map(|_| AtomicU64::new(NEVER)).collect();
        let row = || (0..threads).map(|_| Mail::default()).collect();
        let mail = || (0..threads).map(|_| row()).collect();
        Self {
            firsts: [firsts(), firsts()],
            mail: [mail(), mail()],
            start,
            threads,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            asleep: Mutex::new(()),
            awake: Condvar::new(),
        }
    }

    /// Makes a change that others wait for, and wakes them.
    fn wake(&self, change: impl FnOnce()) {
        let guard = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        change();
        drop(guard);
        self.awake.notify_all();
    }

    /// Waits until all threads are here; false if one of them has panicked or could not be started.
    fn meet(&self) -> bool {
        let round = self.round.load(Ordering::Acquire); // pairs with the store below
        // The last to arrive acquires what all others have released, and its store of the round passes that on: after
        // the meeting every thread sees all mail and all firsts.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed); // seen by all who see the round
            self.wake(|| self.round.store(round + 1, Ordering::Release));
            return true;
        }
        let waits =
            || self.round.load(Ordering::Acquire) == round && !self.lost.load(Ordering::Acquire);
        // Windows are short, and the others mostly arrive while this thread spins.
        for _ in 0..LOOKS {
            if !waits() {
                break;
            }
            core::hint::spin_loop();
        }
        if waits() {
            let guard = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.awake.wait_while(guard, |()| waits());
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        !self.lost.load(Ordering::Acquire)
    }
}

/// A thread's share of the components.
struct Share<'a, C> {
    own: usize,
    components: Vec<&'a mut C>,
    /// A schedule of all components, in which only those of this thread are due.
    schedule: Schedule,
}

/// Runs until `end`, each component on the thread that `owners` gives it, with stacks of `stack` bytes by thread. False
/// if the system refuses a thread; then no component was stepped.
pub(super) fn run<C: Component>(
    components: &mut [C],
    schedule: &mut Schedule,
    end: Instant,
    owners: &Owners,
    stack: fn(usize) -> usize,
) -> bool {
    let count = components.len();
    let window = window(&schedule.links, owners);
    let share = |own| {
        let mut due = Tournament::new(count);
        for component in (0..count).filter(|&component| owners.thread(component) == own) {
            due.set(component, schedule.due(component));
        }
        let (links, arrivals) = (schedule.links.clone(), schedule.arrivals.clone());
        let lookahead = schedule.lookahead.clone();
        let schedule = Schedule { due, links, arrivals, lookahead, now: schedule.now() };
        Share { own, components: Vec::new(), schedule }
    };
    let mut shares: Vec<_> = (0..owners.threads()).map(share).collect();
    for (number, component) in components.iter_mut().enumerate() {
        if let Some(share) = shares.get_mut(owners.thread(number)) {
            share.components.push(component);
        }
    }
    let meeting = Meeting::new(shares.len(), schedule.now());
    let all_run = thread::scope(|scope| {
        shares.iter_mut().all(|share| {
            let meeting = &meeting;
            let thread = thread::Builder::new().stack_size(stack(share.own));
            let run = move || {
                let _attends = Attends(meeting);
                share.run(meeting, owners, window, end);
            };
            let spawned = thread.spawn_scoped(scope, run).is_ok();
            if !spawned {
                // The threads started before it wait for it in front of their first window, and have to end.
                meeting.wake(|| meeting.lost.store(true, Ordering::Release));
            }
            spawned
        })
    });
    if !all_run {
        return false;
    }
    // The caller's schedule goes on where the shares have ended, with any number of threads.
    for component in 0..count {
        let share = shares.get(owners.thread(component));
        schedule.due.set(component, share.and_then(|share| share.schedule.due(component)));
    }
    for share in shares {
        schedule.now = schedule.now.max(share.schedule.now());
    }
    true
}

/// Length of a window: the least time from a step of a component until one of another thread is due for a frame sent in
/// it. `None` if no cable joins two threads' components.
fn window(links: &[Links], owners: &Owners) -> Option<Span> {
    let joined = links.iter().enumerate().flat_map(|(component, links)| {
        let peers = links.peers.iter().flatten();
        peers.filter(move |peer| owners.thread(peer.component) != owners.thread(component))
    });
    joined.map(|peer| peer.delay).min()
}

impl<C: Component> Share<'_, C> {
    fn run(&mut self, meeting: &Meeting, owners: &Owners, window: Option<Span>, end: Instant) {
        let mut sent = None;
        for round in 0_usize.. {
            let (this, next) = (round % 2, (round + 1) % 2);
            // Frames sent to another thread may be due before anything of its own.
            let first = Instant::earlier(self.schedule.next(), sent);
            let first = first.map_or(NEVER, |first| first.since(meeting.start).as_ps());
            if let Some(slot) = meeting.firsts.get(this).and_then(|slots| slots.get(self.own)) {
                slot.store(first, Ordering::Release);
            }
            if !meeting.meet() {
                return;
            }
            self.read_mail(meeting, this);
            // Every thread computes the same minimum, so all begin the same window, or all return.
            let firsts = meeting.firsts.get(this).into_iter().flatten();
            let first = firsts.map(|first| first.load(Ordering::Acquire)).min().unwrap_or(NEVER);
            let first = Some(first).filter(|&first| first != NEVER);
            let first = first.map(|first| meeting.start + Span::from_ps(first));
            let Some(first) = first.filter(|&first| first <= end) else { return };
            let last = window.map_or(end, |window| first + window - Span::from_ps(1));
            sent = self.run_window(first, last.min(end), end, meeting, next, owners);
        }
    }

    fn read_mail(&mut self, meeting: &Meeting, window: usize) {
        for row in meeting.mail.get(window).into_iter().flatten() {
            let Some(mail) = row.get(self.own) else { continue };
            let mut mail = mail.lock().unwrap_or_else(PoisonError::into_inner);
            for (component, at) in mail.drain(..) {
                self.schedule.due.bring_forward(component, at);
            }
        }
    }

    /// Steps the components that are due until `last`, of which none is due before `first`, each for as long as nothing
    /// can reach it. Returns when the first component of another thread is due for a frame.
    fn run_window(
        &mut self,
        first: Instant,
        last: Instant,
        end: Instant,
        meeting: &Meeting,
        next: usize,
        owners: &Owners,
    ) -> Option<Instant> {
        let Self { own, components, schedule } = self;
        let mut sent = None;
        let rows = meeting.mail.get(next).and_then(|rows| rows.get(*own));
        while let Some(component) = schedule.turn(last) {
            let now = schedule.now();
            // No component of this thread is due before `now`, and frames of other threads arrive after the window.
            let of_all = schedule.horizon(component, first);
            let until = schedule.horizon(component, now).min(last).max(of_all).min(end);
            let arrived = schedule.arrived(component);
            let it = components.get_mut(owners.place(component));
            let wants = it.and_then(|it| visit(&mut **it, now, arrived, until));
            schedule.stepped_with(component, wants, |due, peer, at| {
                let thread = owners.thread(peer);
                if thread == *own {
                    due.bring_forward(peer, at);
                } else if let Some(mail) = rows.and_then(|rows| rows.get(thread)) {
                    // Read after the next meeting: within this window the frame cannot arrive.
                    sent = Instant::earlier(sent, Some(at));
                    mail.lock().unwrap_or_else(PoisonError::into_inner).push((peer, at));
                }
            });
        }
        sent
    }
}
