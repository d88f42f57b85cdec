//! Threads: components divided among several, which meet once a window.
//!
//! [`run`]. A window begins with the first instant at which anybody is due and is as long as the least time that a
//! frame takes from one thread's components to another's: what is sent in a window is in after it. Between windows each
//! thread says when its components are due first, and who of another's is due for a frame.
//!
//! Units: picoseconds.
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

/// Nobody is due.
const NEVER: u64 = u64::MAX;
/// Looks at the others before a thread sleeps.
const LOOKS: u32 = 2_000;

/// Who is due for a frame of another thread's component, and when.
type Mail = Mutex<Vec<(usize, Instant)>>;

/// What threads share. What belongs to a window is there twice: who is behind reads the last one while others write the next.
struct Meeting {
    /// By window and thread: when its components, or those it has sent frames to, are due first: time since `start`.
    firsts: [Vec<AtomicU64>; 2],
    /// By window, who sends and who receives.
    mail: [Vec<Vec<Mail>>; 2],
    start: Instant,
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    lost: AtomicBool,
    /// Held by who changes the two above and by who looks at them before it sleeps.
    asleep: Mutex<()>,
    awake: Condvar,
}

/// Says that a thread has ended by a panic, so that the others do not wait for it.
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

    /// Changes what others wait for, and wakes them.
    fn wake(&self, change: impl FnOnce()) {
        let guard = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        change();
        drop(guard);
        self.awake.notify_all();
    }

    /// Waits for the others; false if one of them is lost.
    fn meet(&self) -> bool {
        let round = self.round.load(Ordering::Acquire); // pairs with the store below
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed); // seen by all who see the round
            self.wake(|| self.round.store(round + 1, Ordering::Release));
            return true;
        }
        let waits =
            || self.round.load(Ordering::Acquire) == round && !self.lost.load(Ordering::Acquire);
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
    /// Of all components, by number; this thread's are due in it.
    schedule: Schedule,
}

/// Runs until `end`, each component on the thread that `owners` says, each with as many bytes of stack as `stack` says. Returns
/// false, and nothing has moved, where the system refuses one of them.
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
                // Those that run already wait for this one before their first window: they have to go home.
                meeting.wake(|| meeting.lost.store(true, Ordering::Release));
            }
            spawned
        })
    });
    if !all_run {
        return false;
    }
    for component in 0..count {
        let share = shares.get(owners.thread(component));
        schedule.due.set(component, share.and_then(|share| share.schedule.due(component)));
    }
    for share in shares {
        schedule.now = schedule.now.max(share.schedule.now());
    }
    true
}

/// The least time from a component's step to when one of another thread is due for a frame that it sent then; `None` where
/// no cable joins two threads' components.
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
            let first = Instant::earlier(self.schedule.next(), sent);
            let first = first.map_or(NEVER, |first| first.since(meeting.start).as_ps());
            if let Some(slot) = meeting.firsts.get(this).and_then(|slots| slots.get(self.own)) {
                slot.store(first, Ordering::Release);
            }
            if !meeting.meet() {
                return;
            }
            self.read_mail(meeting, this);
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

    /// Steps who is due until `last`, where nobody is due before `first`, each for as long as nothing reaches it; returns when
    /// the first component of another thread is due for a frame.
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
            // Nobody of this thread is due before now, and nothing of another one's is in before the window's end.
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
                    sent = Instant::earlier(sent, Some(at));
                    mail.lock().unwrap_or_else(PoisonError::into_inner).push((peer, at));
                }
            });
        }
        sent
    }
}
