//! Pipe: two ports of one process back to back; frames change hands without a copy.
//!
//! [`pipe`] makes two [`Pipe`]s, each a [`Port`], with a ring of descriptors in each direction over one pool. No rate
//! limits them.
//!
//! Source: ARCHITECTURE.md "The path of a frame" (only descriptors move).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{OnceLock, Weak};

use weft_base::eventfd::EventFd;
use weft_base::ring::{Rx, Tx, Watch, ring};
use weft_base::sync::{Arc, AtomicBool, Ordering};

use super::error::at;
use super::{Port, PortCaps, PortCounters, PortError, PortOpenError};
use crate::batch::Batch;
use crate::desc::{Desc, Flag};
use crate::pool::{Bufs, Pool};
use crate::time::{Instant, LinkRate};

/// Settings of a pipe between two ports of one process.
#[derive(Clone, Debug)]
pub struct PipeConfig {
    /// Names of the two ends in reports.
    pub names: [String; 2],
    /// Frames that fit into each direction's ring.
    pub depth: usize,
    /// Rate that the ends report; it limits nothing.
    pub rate: LinkRate,
    /// Longest frame in bytes, without FCS.
    pub frame_len_max: usize,
    /// Whether a sleeping reader is woken when frames come.
    pub wakes_reader: bool,
}

/// State that both ends share.
struct Shared {
    up: AtomicBool,
    pool: OnceLock<Weak<Pool>>,
}

impl Shared {
    fn link_up(&self) -> bool {
        self.up.load(Ordering::Relaxed) && self.pool.get().is_some()
    }
}

/// Wakes the reader of one direction.
struct Waker {
    wakeup: EventFd,
    /// The reader was notified, and has not called `look` since.
    notified: AtomicBool,
}

impl Waker {
    fn wake(&self) {
        // Release: a reader that clears the flag in `look` sees the frames pushed before this. Acquire: pairs with the
        // swap in `look`. One notification lasts until the reader looks again; a system call for every burst would add
        // nothing.
        if !self.notified.swap(true, Ordering::AcqRel) {
            self.wakeup.notify();
        }
    }

    /// Called by the reader before it looks: frames pushed afterwards notify again.
    fn look(&self) {
        if self.notified.load(Ordering::Relaxed) {
            // Drain before clearing. The other way round, a notification between the two would be drained while the
            // flag stays set: later frames would not notify, and the reader would sleep.
            self.wakeup.drain();
            self.notified.swap(false, Ordering::AcqRel); // pairs with `wake`
        }
    }
}

/// One end of a pipe: a port back to back with another of the same process.
pub struct Pipe {
    caps: PortCaps,
    tx: Tx<Desc>,
    rx: Rx<Desc>,
    shared: Arc<Shared>,
    own: Option<Arc<Waker>>,
    far: Option<Arc<Waker>>,
    counters: PortCounters,
}

/// Makes two ports back to back. They work once both were started over the same pool.
///
/// # Errors
/// The kernel gives no eventfd to wake a reader with.
///
/// # Panics
/// When the depth is 0.
pub fn pipe(config: PipeConfig) -> Result<(Pipe, Pipe), PortOpenError> {
    let [near, far] = config.names;
    let wakeup = || -> Result<Option<Arc<Waker>>, PortOpenError> {
        if !config.wakes_reader {
            return Ok(None);
        }
        let refused = |refused| PortOpenError::refused(&near, refused, "");
        let wakeup = EventFd::new().map_err(at("eventfd")).map_err(refused)?;
        Ok(Some(Arc::new(Waker { wakeup, notified: AtomicBool::new(false) })))
    };
    let (near_wakeup, far_wakeup) = (wakeup()?, wakeup()?);
    let (near_tx, far_rx) = ring(config.depth);
    let (far_tx, near_rx) = ring(config.depth);
    let shared = Arc::new(Shared { up: AtomicBool::new(true), pool: OnceLock::new() });
    let caps = |device: &str| PortCaps {
        kind: "pipe",
        device: device.to_owned(),
        frame_len_max: config.frame_len_max,
        rate: config.rate,
        tx_partial_csum: true,
        virtual_time: false,
    };
    let end = |name: &str, tx, rx, own, far| Pipe {
        caps: caps(name),
        tx,
        rx,
        shared: shared.clone(),
        own,
        far,
        counters: PortCounters::default(),
    };
    Ok((
        end(&near, near_tx, near_rx, near_wakeup.clone(), far_wakeup.clone()),
        end(&far, far_tx, far_rx, far_wakeup, near_wakeup),
    ))
}

impl Pipe {
    /// Plugs the pipe in or pulls it; both ends see it.
    pub fn set_link(&self, up: bool) {
        self.shared.up.store(up, Ordering::Relaxed); // guards no data: frames in the rings have their own ordering
        for waker in self.own.iter().chain(&self.far) {
            waker.wake();
        }
    }

    /// A handle that plugs and pulls the pipe, for a caller that does not own the port.
    #[must_use]
    pub fn link_handle(&self) -> LinkHandle {
        LinkHandle(self.shared.clone())
    }

    /// Tells whether this end has work to do, for a caller that does not own the port.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        Inbox { ring: self.rx.watch(), shared: self.shared.clone() }
    }

    fn drain(&mut self, bufs: &mut Bufs) {
        while let Some(desc) = self.rx.pop() {
            bufs.free(desc);
        }
    }
}

/// Pending work of one end of a pipe.
pub struct Inbox {
    ring: Watch<Desc>,
    shared: Arc<Shared>,
}

impl Inbox {
    /// Whether frames wait to be received.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Like [`Port::link_up`] of this end.
    #[must_use]
    pub fn link_up(&self) -> bool {
        self.shared.link_up()
    }
}

/// Plugs and pulls a pipe.
#[derive(Clone)]
pub struct LinkHandle(Arc<Shared>);

impl LinkHandle {
    /// Plugs the pipe in or pulls it.
    pub fn set_link(&self, up: bool) {
        // Relaxed as in `Pipe::set_link`. This wakes no reader: a sleeping one sees it when it next wakes.
        self.0.up.store(up, Ordering::Relaxed);
    }
}

impl Port for Pipe {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn start(&mut self, bufs: &mut Bufs) -> Result<(), PortOpenError> {
        // The first end to start decides; the second must use the same pool, as descriptors are indices into it.
        let pool = self.shared.pool.get_or_init(|| std::sync::Arc::downgrade(bufs.pool()));
        if std::ptr::eq(pool.as_ptr(), std::sync::Arc::as_ptr(bufs.pool())) {
            return Ok(());
        }
        Err(PortOpenError::Config {
            device: self.caps.device.clone(),
            what: "pools of the two ends",
            had: 2,
            want: "one and the same",
        })
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        if let Some(own) = &self.own {
            own.look();
        }
        if !self.link_up() {
            // Frames on a pulled cable are lost; their chunks belong to this end's worker now.
            self.drain(bufs);
            return 0;
        }
        let before = batch.len();
        while !batch.is_full() {
            let Some(desc) = self.rx.pop() else { break };
            batch.push(desc);
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        self.tx.room(crate::batch::BURST)
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let taken = self.tx.room(batch.len()).min(batch.len());
        for desc in batch.drain(..taken) {
            // The far end may rewrite the frame, so it must not be shared with other outputs of this switch.
            match bufs.make_sole(desc) {
                Ok(mut desc) => {
                    desc.set(Flag::Pg, false); // the group that it was charged to is this switch's
                    let pushed = self.tx.push(desc);
                    debug_assert!(pushed.is_ok(), "room was asked for");
                }
                Err(desc) => {
                    bufs.free(desc); // the pool has no room for a copy
                    self.counters.tx_failed += 1;
                }
            }
        }
        if taken > 0
            && let Some(far) = &self.far
        {
            far.wake();
        }
        taken
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn link_up(&self) -> bool {
        self.shared.link_up()
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.own.as_ref().map(|own| own.wakeup.as_fd())
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.set_link(false);
        self.drain(bufs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(depth: usize, wakes_reader: bool) -> PipeConfig {
        let names = ["a".to_owned(), "b".to_owned()];
        PipeConfig { names, depth, rate: LinkRate::gbps(400), frame_len_max: 1_518, wakes_reader }
    }

    /// A pipe of `depth` over a pool of `chunks`, started; a handle of the pool for both ends.
    fn pair(depth: usize, chunks: usize) -> (Pipe, Pipe, Bufs) {
        let mut bufs = Bufs::new(Pool::in_memory(chunks, 1_518).unwrap(), 4, 0);
        let (mut a, mut b) = pipe(config(depth, false)).unwrap();
        a.start(&mut bufs).unwrap();
        b.start(&mut bufs).unwrap();
        (a, b, bufs)
    }

    fn batch(bufs: &mut Bufs, marks: core::ops::Range<u8>) -> Batch {
        marks.map(|mark| bufs.alloc_from(&[mark; 60]).unwrap()).collect()
    }

    fn used(bufs: &Bufs) -> u64 {
        bufs.used().get()
    }

    /// Only the inbox of the end that frames are on their way to sees them, until they are taken.
    #[test]
    fn an_inbox_tells_of_what_waits() {
        let (mut a, mut b, mut bufs) = pair(4, 64);
        let (ours, theirs) = (a.inbox(), b.inbox());
        assert!(!ours.is_waiting() && !theirs.is_waiting() && ours.link_up());
        let mut out = batch(&mut bufs, 0..2);
        a.tx(Instant::ZERO, &mut bufs, &mut out);
        assert!(theirs.is_waiting() && !ours.is_waiting());
        let mut got = Batch::new();
        b.rx(Instant::ZERO, &mut bufs, &mut got);
        assert!(!theirs.is_waiting());
        a.set_link(false);
        assert!(!theirs.link_up() && !ours.link_up());
        got.drain(..).for_each(|desc| assert!(bufs.free(desc)));
    }

    #[test]
    fn frames_come_over_in_order_and_what_finds_no_room_stays() {
        let (mut a, mut b, mut bufs) = pair(4, 64);
        let mut out = batch(&mut bufs, 0..6);
        assert_eq!((a.tx_room(Instant::ZERO), a.tx(Instant::ZERO, &mut bufs, &mut out)), (4, 4));
        let mut got = Batch::new();
        assert_eq!(b.rx(Instant::ZERO, &mut bufs, &mut got), 4);
        assert_eq!(a.tx(Instant::ZERO, &mut bufs, &mut out), 2);
        assert_eq!(b.rx(Instant::ZERO, &mut bufs, &mut got), 2);
        let marks: Vec<u8> = got.iter().map(|desc| bufs.bytes(desc)[0]).collect();
        assert_eq!((marks, out.len()), (vec![0, 1, 2, 3, 4, 5], 0));
        got.drain(..).for_each(|desc| assert!(bufs.free(desc)));
        assert_eq!(used(&bufs), 0);
    }

    /// Who holds the other copy must not see it change; a copy that finds no chunk is a failed send.
    #[test]
    fn a_shared_frame_is_copied() {
        let (mut a, mut b, mut bufs) = pair(4, 4);
        let mut first = bufs.alloc_from(&[7; 60]).unwrap();
        let mut out: Batch = core::iter::once(bufs.share(&mut first)).collect();
        assert_eq!(a.tx(Instant::ZERO, &mut bufs, &mut out), 1);
        let mut got = Batch::new();
        b.rx(Instant::ZERO, &mut bufs, &mut got);
        let mut copy = got.pop().unwrap();
        bufs.bytes_mut(&mut copy).expect("nobody shares it").fill(9);
        assert_eq!(bufs.bytes(&first), [7; 60]);
        let others = [bufs.alloc().unwrap(), bufs.alloc().unwrap()];
        out.push(bufs.share(&mut first));
        assert_eq!(a.tx(Instant::ZERO, &mut bufs, &mut out), 1);
        assert_eq!((a.counters().tx_failed, b.rx(Instant::ZERO, &mut bufs, &mut got)), (1, 0));
        for desc in others.into_iter().chain([first, copy]) {
            bufs.free(desc);
        }
        assert_eq!(used(&bufs), 0);
    }

    #[test]
    fn a_parted_pipe_loses_what_is_on_its_way() {
        let (mut a, mut b, mut bufs) = pair(4, 64);
        let mut out = batch(&mut bufs, 0..2);
        a.tx(Instant::ZERO, &mut bufs, &mut out);
        a.link_handle().set_link(false);
        assert!(!a.link_up() && !b.link_up());
        assert_eq!(b.rx(Instant::ZERO, &mut bufs, &mut Batch::new()), 0);
        assert_eq!(used(&bufs), 0);
        a.set_link(true);
        assert!(b.link_up());
        a.release(&mut bufs);
        assert!(!b.link_up(), "nobody is at the other end");
    }

    #[test]
    fn both_ends_have_one_pool() {
        let (mut a, mut b) = pipe(config(4, false)).unwrap();
        let mut bufs = Bufs::new(Pool::in_memory(4, 64).unwrap(), 1, 0);
        let mut other = Bufs::new(Pool::in_memory(4, 64).unwrap(), 1, 0);
        assert!(!a.link_up(), "not started");
        a.start(&mut bufs).unwrap();
        let error = b.start(&mut other).unwrap_err();
        assert!(error.to_string().contains("pools"), "{error}");
    }

    /// Twenty thousand frames with a reader that sleeps whenever there is nothing: it is woken each time.
    #[test]
    fn a_reader_that_sleeps_is_woken() {
        const FRAMES: usize = 20_000;
        let pool = Pool::in_memory(2_048, 64).unwrap(); // more than the ends keep at hand
        let (mut a, mut b) = pipe(config(8, true)).unwrap();
        let (mut near, mut far) = (Bufs::new(pool.clone(), 8, 0), Bufs::new(pool, 8, 0));
        a.start(&mut near).unwrap();
        b.start(&mut far).unwrap();
        let reader = std::thread::spawn(move || {
            let (mut got, mut batch) = (0, Batch::new());
            while got < FRAMES {
                got += b.rx(Instant::ZERO, &mut far, &mut batch);
                let empty = batch.is_empty();
                batch.drain(..).for_each(|desc| assert!(far.free(desc)));
                if empty && got < FRAMES {
                    let mut fds = [std::os::fd::AsRawFd::as_raw_fd(&b.wait_fd().unwrap())]
                        .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
                    assert!(wait(&mut fds), "asleep with {got} of {FRAMES}");
                }
            }
        });
        let (mut sent, mut batch) = (0, Batch::new());
        while sent < FRAMES {
            while sent + batch.len() < FRAMES && batch.len() < 5 {
                match near.alloc_from(&[1; 60]) {
                    Some(desc) => batch.push(desc),
                    None => break,
                }
            }
            sent += a.tx(Instant::ZERO, &mut near, &mut batch);
            std::thread::yield_now();
            assert!(sent == FRAMES || !reader.is_finished(), "the reader gave up");
        }
        reader.join().unwrap();
    }

    /// True when one of `fds` is readable within ten seconds.
    #[expect(unsafe_code, reason = "poll")]
    fn wait(fds: &mut [libc::pollfd; 1]) -> bool {
        // SAFETY: one entry.
        unsafe { libc::poll(fds.as_mut_ptr(), 1, 10_000) == 1 }
    }
}
