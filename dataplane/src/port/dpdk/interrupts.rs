//! The thread that drivers have for events of their devices.
//!
//! [`settle`] waits until it has done what it is at.
//!
//! Source: DPDK 22.11 `rte_alarm.h`, `rte_interrupts.h`: alarms and interrupts are handled by one thread, in turn.

use core::ffi::c_void;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use weft_dpdk_sys as sys;

/// Longest wait: an event that takes longer is stuck.
const LONGEST: Duration = Duration::from_secs(1);
/// As soon as the thread comes to it.
const SOON_US: u64 = 1;

/// Waits until the thread has done what it is at. When its far end goes, a device is seen to be down before its driver
/// has given back what it had for that end (`net_memif`): closed in between, that would be given back twice.
pub fn settle() {
    let (done, ends) = sync_channel::<()>(1);
    let done = Box::into_raw(Box::new(done)).cast::<c_void>();
    // SAFETY: `done` is what `tell` takes, and is given away but where no alarm is set.
    let refused = unsafe { sys::rte_eal_alarm_set(SOON_US, Some(tell), done) } < 0;
    if refused {
        // SAFETY: made above, and nobody else has it.
        drop(unsafe { Box::from_raw(done.cast::<SyncSender<()>>()) });
        return;
    }
    let _ = ends.recv_timeout(LONGEST); // whoever is stuck is not waited for
}

/// The alarm: tells that the thread has come to it.
extern "C" fn tell(done: *mut c_void) {
    // SAFETY: from `settle`, for this one call.
    let done = unsafe { Box::from_raw(done.cast::<SyncSender<()>>()) };
    let _ = done.try_send(()); // who has given up hears nothing
}
