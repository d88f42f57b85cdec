//! DPDK's interrupt thread, in which drivers handle events of their devices.
//!
//! Source: DPDK 22.11 `rte_alarm.h`, `rte_interrupts.h`: alarms and interrupts are handled by one thread, in turn.

use core::ffi::c_void;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use weft_dpdk_sys as sys;

/// Longest wait; an event that takes longer is stuck.
const LONGEST: Duration = Duration::from_secs(1);
/// Delay of the alarm: it runs as soon as the thread is free.
const SOON_US: u64 = 1;

/// Waits until the interrupt thread has finished its current event. When the far end of a `net_memif` goes away, the
/// device looks down before its driver has freed that end's memory; closing the device in between would free it twice.
pub fn settle() {
    let (done, ends) = sync_channel::<()>(1);
    // On the heap and not on this stack: after a time-out the alarm may still come.
    let done = Box::into_raw(Box::new(done)).cast::<c_void>();
    // SAFETY: `done` is the argument that `tell` expects, and belongs to the alarm from here on unless none is set.
    let refused = unsafe { sys::rte_eal_alarm_set(SOON_US, Some(tell), done) } < 0;
    if refused {
        // SAFETY: made above, and nobody else has it.
        drop(unsafe { Box::from_raw(done.cast::<SyncSender<()>>()) });
        return;
    }
    let _ = ends.recv_timeout(LONGEST); // a stuck thread must not keep the port from closing
}

/// The alarm: signals that the thread got to it.
extern "C" fn tell(done: *mut c_void) {
    // SAFETY: from `settle`, for this one call.
    let done = unsafe { Box::from_raw(done.cast::<SyncSender<()>>()) };
    let _ = done.try_send(()); // after a time-out there is no receiver
}
