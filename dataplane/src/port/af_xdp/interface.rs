//! The interface of an `AF_XDP` port: taken, followed while it comes and goes, and let go.
//!
//! State of the link → sockets and program put where they belong, chunks taken back from closed sockets.
//!
//! Source: docs/spec/pipeline.md §11; Linux `Documentation/networking/af_xdp.rst`.

use std::io;

use weft_base::threads::{self, Ends, Role};

use super::device::{Device, Hold, Sockets, Wish};
use super::{AfXdp, CHECK_EVERY, RETRY_EVERY};
use crate::desc::Desc;
use crate::pool::{Bufs, UMEM_LEAD};
use crate::port::error::Refused;
use crate::port::{PortError, netdev};
use crate::time::Instant;
use crate::types::PriSet;

impl AfXdp {
    /// Takes the interface, if it is not ours already, and opens its sockets.
    pub(super) fn attach(&mut self, index: i32) -> Result<(), Refused> {
        let wish = Wish { config: &self.config, umem: &self.umem, gauge: &self.gauge, index };
        let steering = self.steering.as_mut();
        let (hold, was_held) = match self.hold.take() {
            Some(hold) => (hold, true),
            None => (Hold::take(&wish, steering)?, false),
        };
        let opened = Device::open(&wish, hold).and_then(|device| {
            // A program that numbers frames counts itself what no socket took; a veth counts among its own
            // drops what could not be sent on, too, which that program's owner counts.
            let numbers = steering.numbers();
            let by_interface = !(numbers && netdev::is_veth(&self.config.device));
            self.counts.losses.begin(was_held && !numbers, by_interface); // sockets count for themselves what they lose from now on
            match device.set_sockets(steering) {
                Ok(()) => Ok(device),
                Err(refused) => Err((refused, device.part().1)),
            }
        });
        match opened {
            Ok(device) => {
                if let Some(joined) = &mut self.joined {
                    joined.aim(&device);
                }
                self.device = Some(device);
            }
            Err((refused, hold)) => {
                self.hold = Some(hold).filter(|_| was_held);
                if !was_held {
                    self.steering.detach();
                }
                return Err(refused);
            }
        }
        self.steered();
        Ok(())
    }

    /// The program is where it belongs.
    fn steered(&mut self) {
        self.steered = true;
        (self.receive.sees, self.receive.numbered) =
            (self.steering.sees(), self.steering.numbers());
        self.steering.set_gate(self.gate);
    }

    /// Lets go of the interface, and takes back what the kernel had of the pool.
    pub(super) fn let_go(&mut self, bufs: &mut Bufs) {
        self.steering.set_gate(PriSet::EMPTY);
        threads::close(self.close());
        self.reclaim(bufs);
        threads::step();
        self.steering.detach();
        self.hold = None;
        if let Some(joined) = &mut self.joined {
            joined.let_go();
        }
    }

    /// Parts with the sockets, which are still to be dropped: what comes in is lost from now on.
    fn close(&mut self) -> Option<Sockets> {
        self.count_losses();
        self.steered = false;
        let mut device = self.device.take()?;
        // What the kernel has not looked at is not sent any more.
        let unpublished = core::mem::take(&mut self.counts.unpublished);
        self.counts.frames.tx_failed += u64::from(device.unsent().saturating_sub(unpublished));
        let unread: u32 = device.queues.iter_mut().map(|queue| queue.rx.ready()).sum();
        self.counts.losses.end(unread.into());
        self.counts.frames.kernel_rx =
            self.counts.losses.total().saturating_sub(self.counts.missed);
        let (sockets, hold) = device.part();
        self.hold = Some(hold);
        Some(sockets)
    }

    /// Takes back what the kernel had of the pool, once the sockets are closed.
    fn reclaim(&mut self, bufs: &mut Bufs) {
        if let Some(closing) = self.closing.take() {
            drop(closing.join()); // it has no result
        }
        while let Some(chunk) = self.receive.posted.take_any() {
            bufs.free(Desc::new(chunk, UMEM_LEAD));
        }
        while let Some(chunk) = self.transmit.sent.take_any() {
            self.end_sent(bufs, chunk);
        }
    }

    /// Forgets what the kernel has not sent of an interface that was taken down: it would leave when
    /// that is up again, behind frames of the same flows that have gone another way meanwhile.
    fn forget(&mut self) {
        let sockets = self.close();
        // The kernel takes 10 ms to close one, in which other ports are to be served.
        let close = move || drop(sockets);
        let closing = threads::spawn(Role::Device, "weft-close", Ends::Freely, close);
        self.closing = closing.ok(); // else they are closed by now
    }

    /// Follows interface and program: takes them again when they are back, lets go when they are gone.
    pub(super) fn follow(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        self.counts.system_calls += 2;
        let state = self.watch.poll().map_err(|e| self.error("follow the link", e))?;
        let code = io::Error::from_raw_os_error;
        let held = self.device.as_ref().map(|device| &device.hold).or(self.hold.as_ref());
        let index = held.map(|hold| hold.index);
        if index.is_some() && state.index != index {
            self.let_go(bufs);
            self.retry_at = now;
            return Err(self.error("interface is gone", code(libc::ENODEV)));
        }
        if !state.up && self.device.as_ref().is_some_and(|device| device.unsent() > 0) {
            self.forget();
        }
        if self.device.is_none() && self.hold.is_some() {
            if self.closing.as_ref().is_some_and(|closing| !closing.is_finished()) {
                return Ok(());
            }
            self.reclaim(bufs);
        }
        if self.device.is_none()
            && let Some(index) = state.index
            && state.ethernet
            && self.retry_at <= now
        {
            self.retry_at = now + RETRY_EVERY;
            match self.attach(index) {
                Err(Refused { source, .. })
                    if self.hold.is_some() && source.raw_os_error() == Some(libc::EBUSY) =>
                {
                    self.retry_at = now + CHECK_EVERY; // not yet
                }
                attached => attached.map_err(|refused| self.error(refused.call, refused.source))?,
            }
            self.refill(bufs);
        }
        if let Some(device) = &self.device
            && !(self.steered && self.steering.is_attached())
            && (self.steered || self.retry_at <= now)
        {
            let was_steered = core::mem::replace(&mut self.steered, false);
            self.retry_at = now + RETRY_EVERY;
            let steered = device.steer(self.steering.as_mut());
            steered.map_err(|refused| self.error(refused.call, refused.source))?;
            self.steered();
            if was_steered {
                return Err(
                    self.error("the XDP program was removed; it is back", code(libc::EIDRM))
                );
            }
        }
        Ok(())
    }
}
