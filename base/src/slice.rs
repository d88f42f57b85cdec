//! Time for which the kernel lets a thread run before others of its core have their turn.
//!
//! [`shorten`] is for a thread that answers and sleeps, beside threads that never sleep. A thread
//! with a short slice runs at once when it wakes; otherwise it waits for the end of the other's
//! slice, 3 ms. Both still get the same share of the core.
//!
//! Source: `sched_setattr(2)`, whose `sched_runtime` is the slice of a `SCHED_OTHER` thread since
//! Linux 6.12.

use std::mem::{size_of, zeroed};

/// The shortest slice that Linux gives.
const SHORT_NS: u64 = 100_000;

/// Gives the calling thread the shortest slice, if it is a thread of the normal policy. Linux
/// before 6.12 takes the call and changes nothing; a refusal changes nothing either, and the thread
/// works as it did.
pub fn shorten() {
    let Some(mut attributes) = own() else { return };
    if attributes.sched_policy == libc::SCHED_OTHER.cast_unsigned() {
        attributes.sched_runtime = SHORT_NS;
        // SAFETY: the kernel reads as many bytes as `size` says, which are there.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// The calling thread's policy, niceness and slice.
fn own() -> Option<libc::sched_attr> {
    const SIZE: usize = size_of::<libc::sched_attr>();
    // SAFETY: numbers alone, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { zeroed() };
    // SAFETY: the kernel writes at most as many bytes as the third argument says, which are there.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    (got == 0).then_some(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_shortened_and_niceness_stays() {
        let read = || own().map(|had| (had.sched_policy, had.sched_nice, had.sched_runtime));
        std::thread::spawn(move || {
            let Some((policy, nice, slice)) = read() else { return };
            shorten();
            let now = read().unwrap();
            assert_eq!((now.0, now.1), (policy, nice));
            // Before 6.12 there is no such slice: it is read as 0.
            assert!(slice == 0 || now.2 == SHORT_NS, "{now:?}");
        })
        .join()
        .unwrap();
    }
}
