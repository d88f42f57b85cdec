//! The interface of an `AF_XDP` port: opened, followed while it comes and goes, and closed.
//!
//! Sockets and program are put back when the interface returns, and chunks are taken back from closed sockets.
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
    /// Attaches the program, unless it is attached already, and opens the sockets.
    pub(super) fn attach(&mut self, index: i32) -> Result<(), Refused> {
        let wish = Wish { config: &self.config, umem: &self.umem, gauge: &self.gauge, index };
        let steering = self.steering.as_mut();
        let (hold, was_held) = match self.hold.take() {
            Some(hold) => (hold, true),
            None => (Hold::take(&wish, steering)?, false),
        };
        let opened = Device::open(&wish, hold).and_then(|device| {
            // A program that numbers frames counts by itself those that no socket took. A veth counts redirected frames
            // that could not be sent among its own drops; the program's owner counts those already, so the interface's
            // count is left out.
            let numbers = steering.numbers();
            let by_interface = !(numbers && netdev::is_veth(&self.config.device));
            // Before the sockets get frames: from then on they count their own losses, and no frame may be in both
            // counts.
            self.counts.losses.begin(was_held && !numbers, by_interface);
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
                // Only a fresh attempt is undone: an interface that was ours before keeps its program, which keeps the
                // host off.
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

    /// Records that the program is attached, and sets the gate in it.
    fn steered(&mut self) {
        self.steered = true;
        (self.receive.sees, self.receive.numbered) =
            (self.steering.sees(), self.steering.numbers());
        self.steering.set_gate(self.gate);
    }

    /// Closes sockets and program, and takes back all chunks that the kernel had.
    pub(super) fn let_go(&mut self, bufs: &mut Bufs) {
        // First: the kernel must not redirect frames of other ports to an interface that is being given up.
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

    /// Takes the sockets out of the port, for the caller to drop. Frames that arrive from now on are lost, and counted.
    fn close(&mut self) -> Option<Sockets> {
        self.count_losses();
        self.steered = false;
        let mut device = self.device.take()?;
        // Frames that the kernel has not taken from the ring will not be sent. Those in `unpublished` are counted
        // already.
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

    /// Takes back the chunks that the kernel had. The sockets must be closed, as the kernel may write to their chunks.
    fn reclaim(&mut self, bufs: &mut Bufs) {
        if let Some(closing) = self.closing.take() {
            drop(closing.join()); // it has no result
        }
        // The fill ring's contents are lost with the socket; the bits are the only record of these chunks.
        while let Some(chunk) = self.receive.posted.take_any() {
            bufs.free(Desc::new(chunk, UMEM_LEAD));
        }
        while let Some(chunk) = self.transmit.sent.take_any() {
            self.end_sent(bufs, chunk);
        }
    }

    /// Discards frames still in the transmit ring of an interface that was taken down. They would leave when it comes
    /// up again, behind frames of their flows that took another way meanwhile (a LAG's other link, for example).
    fn forget(&mut self) {
        let sockets = self.close();
        // Closing a socket takes the kernel 10 ms, in which the worker has to serve other ports.
        let close = move || drop(sockets);
        let closing = threads::spawn(Role::Device, "weft-close", Ends::Freely, close);
        self.closing = closing.ok(); // else they are closed by now
    }

    /// Follows interface and program: opens them again when they are back, closes them when they are gone.
    pub(super) fn follow(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        self.counts.system_calls += 2;
        let state = self.watch.poll().map_err(|e| self.error("follow the link", e))?;
        let code = io::Error::from_raw_os_error;
        let held = self.device.as_ref().map(|device| &device.hold).or(self.hold.as_ref());
        let index = held.map(|hold| hold.index);
        // The ifindex decides, not the name: an interface that was deleted and made again has the name and another
        // index.
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
                // The kernel still has the old sockets, and with them the chunks and the queues.
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
                    self.retry_at = now + CHECK_EVERY; // the kernel has not let go of the closed socket yet
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
