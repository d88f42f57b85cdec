//! Priority of threads: niceness, and the round-robin policy, which goes before the normal one.
//!
//! [`set`] is for threads of this process. Nice values are -20 (first) to 19.
//!
//! Source: sched(7), setpriority(2), `sched_setscheduler(2)`. Below the nice value that a thread
//! has, and for the round-robin policy, `CAP_SYS_NICE` or a limit (`ulimit -e`, `ulimit -r`) is
//! needed.

use std::io;

use crate::threads::ThreadId;

/// How early a thread gets its turn beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The normal policy, with a nice value.
    Nice(i32),
    /// `SCHED_RR`, of the lowest level.
    RoundRobin,
}

/// Gives `thread` a priority.
///
/// # Errors
/// `EPERM` (`EACCES` for a nice value): it is not permitted.
pub fn set(thread: ThreadId, priority: Priority) -> io::Result<()> {
    let answer = match priority {
        Priority::Nice(nice) => {
            let who = libc::id_t::try_from(thread.0).unwrap_or_default();
            // SAFETY: plain call with numbers.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, who, nice) }
        }
        Priority::RoundRobin => {
            let level = libc::sched_param { sched_priority: 1 };
            // SAFETY: the kernel reads a live struct. Through libc's name musl refuses.
            let answer = unsafe {
                libc::syscall(
                    libc::SYS_sched_setscheduler,
                    thread.0,
                    libc::SCHED_RR,
                    &raw const level,
                )
            };
            if answer == 0 { 0 } else { -1 }
        }
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nice value and policy of the calling thread.
    fn own() -> (i32, i32) {
        // SAFETY: plain call with numbers.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: as above.
        (nice, unsafe { libc::sched_getscheduler(0) })
    }

    #[test]
    fn a_thread_gets_its_priority_and_others_keep_theirs() {
        let before = own();
        std::thread::spawn(move || {
            let more = (before.0 + 1).min(19);
            set(ThreadId::own(), Priority::Nice(more)).unwrap();
            assert_eq!(own(), (more, libc::SCHED_OTHER));
            // Not everybody may.
            match set(ThreadId::own(), Priority::RoundRobin) {
                Ok(()) => assert_eq!(own().1, libc::SCHED_RR),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
            }
        })
        .join()
        .unwrap();
        assert_eq!(own(), before);
    }
}
