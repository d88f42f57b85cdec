//! Filters system calls: a running switch, host or endpoint may make those of a list, and no other.
//!
//! The list has numbers, some with bounds on an argument, and is compiled to a filter for all threads. It was found by
//! running the project's live tests under it. Any other call ends the process with a line that names the thread and the
//! call (`end_on_refused_call`): if it only failed, the switch might look alive and forward nothing.
//!
//! Source: seccomp(2); syscalls(2).

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BackendError, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};
use weft_dataplane::worker::end_on_refused_call;

use crate::exit::ExitCode;

/// Exit code of a process that made a refused call.
pub const EXIT_CODE: i32 = ExitCode::Refused as i32;

#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    /// The handler for refused calls cannot be installed.
    #[error("catch SIGSYS")]
    Signal(#[source] io::Error),
    /// The list does not compile.
    #[error("compile the filter: {0}")]
    Compile(#[from] BackendError),
    /// The kernel refused the filter.
    #[error("install the filter: {0} (weft run does without it by run.sandbox = false)")]
    Install(#[from] seccompiler::Error),
}

/// Calls that are allowed with any arguments.
const PLAIN: &[c_long] = &[
    // Files and descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_umask,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    // Threads and signals.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigpending,
    libc::SYS_sigaltstack,
    // Waiting and time.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // Sockets; which ones are made is bounded below.
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_shutdown,
    // Programs and maps of the kernel.
    libc::SYS_bpf,
    // Questions of a process about itself.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_capget,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

/// Older names of some of them, which libraries on x86-64 still use.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_mkdir,
    libc::SYS_rename,
    libc::SYS_readlink,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_getrlimit,
    libc::SYS_pause,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Calls that libraries try first and can do without. They get `ENOSYS`, as from a kernel that does not have them.
/// `clone3` keeps its flags in memory, where no filter can look.
const UNKNOWN: &[c_long] = &[libc::SYS_clone3, libc::SYS_openat2, libc::SYS_io_uring_setup];

/// Families of sockets: local ones, TCP for managers and metrics (also for `ioctl` on interfaces), netlink, packet
/// sockets, `AF_XDP`.
const FAMILIES: [i32; 6] =
    [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_XDP];

/// `PR_GET_AUXV` of `linux/prctl.h` (6.4) reads the auxiliary vector of the process. `rustix` asks for it when it first
/// reads a clock.
const PR_GET_AUXV: i32 = 0x4155_5856;

/// Names of threads and of their memory, and the auxiliary vector.
const PRCTL: [i32; 4] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA, PR_GET_AUXV];

/// Number of an `ioctl`, whose type differs between C libraries.
fn number(of: impl TryInto<u64>) -> u64 {
    of.try_into().unwrap_or(u64::MAX)
}

/// Calls that are allowed only with certain arguments, each with its rules.
fn bounded() -> Result<Vec<(c_long, Vec<SeccompRule>)>, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let one = |argument, op, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)?;
        SeccompRule::new(vec![condition])
    };
    let any = |argument, values: &[i32]| {
        let value = |&value: &i32| one(argument, Eq, u64::from(value.cast_unsigned()));
        values.iter().map(value).collect::<Result<Vec<_>, _>>()
    };
    let [thread, exec] =
        [libc::CLONE_THREAD, libc::PROT_EXEC].map(|flag| u64::from(flag.cast_unsigned()));
    let own = u64::from(std::process::id());
    let not_typed = SeccompCondition::new(1, SeccompCmpArgLen::Dword, Ne, number(libc::TIOCSTI))?;
    let not_drawn = SeccompCondition::new(1, SeccompCmpArgLen::Dword, Ne, number(libc::TIOCLINUX))?;
    Ok(vec![
        (libc::SYS_socket, any(0, &FAMILIES)?),
        (libc::SYS_prctl, any(0, &PRCTL)?),
        // `clone` makes threads, not processes. `clone3` is refused as unknown, so that the C library falls back to
        // this.
        (libc::SYS_clone, vec![one(0, MaskedEq(thread), thread)?]),
        // No memory is made executable.
        (libc::SYS_mmap, vec![one(2, MaskedEq(exec), 0)?]),
        (libc::SYS_mprotect, vec![one(2, MaskedEq(exec), 0)?]),
        // TIOCSTI and TIOCLINUX put input into a terminal: a way out of the sandbox by the user's shell.
        (libc::SYS_ioctl, vec![SeccompRule::new(vec![not_typed, not_drawn])?]),
        // Only of the calling process and thread: limits, cores, scheduling, signals.
        (libc::SYS_prlimit64, vec![one(0, Eq, 0)?]),
        (libc::SYS_sched_setaffinity, vec![one(0, Eq, 0)?]),
        (libc::SYS_sched_getattr, vec![one(0, Eq, 0)?]),
        (libc::SYS_sched_setattr, vec![one(0, Eq, 0)?]),
        (libc::SYS_kill, vec![one(0, Eq, own)?]),
        (libc::SYS_tgkill, vec![one(0, Eq, own)?]),
    ])
}

fn arch() -> Result<TargetArch, BackendError> {
    TargetArch::try_from(std::env::consts::ARCH)
}

/// Has every other system call end the process, in all threads.
///
/// # Errors
/// See [`CallsError`].
pub fn filter_all_threads() -> Result<(), CallsError> {
    // The handler first: a call that is refused right after the filter is there must already be named.
    end_on_refused_call(EXIT_CODE).map_err(CallsError::Signal)?;
    let unknown = UNKNOWN.iter().map(|&call| (call, Vec::new())).collect();
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let unknown = SeccompFilter::new(unknown, SeccompAction::Allow, missing, arch()?)?;
    let plain = PLAIN.iter().chain(OLDER).chain(UNKNOWN).map(|&call| (call, Vec::new()));
    let listed: BTreeMap<c_long, Vec<SeccompRule>> = plain.chain(bounded()?).collect();
    let listed = SeccompFilter::new(listed, SeccompAction::Trap, SeccompAction::Allow, arch()?)?;
    let (unknown, listed): (Vec<_>, Vec<_>) = (unknown.try_into()?, listed.try_into()?);
    // The kernel takes the strictest answer of all filters: `Errno` of the first is stricter than `Allow` of the
    // second, which lists these calls only so that it does not trap them.
    apply_filter_all_threads(&unknown)?;
    apply_filter_all_threads(&listed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};
    use std::sync::mpsc::channel;

    use super::*;

    /// Set in the process that a test makes of itself.
    const CHILD: &str = "WEFT_TEST_REFUSED";

    /// Runs `test` in a process of its own, with `how` in the variable `CHILD`.
    fn child(test: &str, how: &str) -> Output {
        let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
        let own = std::env::current_exe().unwrap();
        Command::new(own).args(["--exact", &name, "--nocapture"]).env(CHILD, how).output().unwrap()
    }

    /// Makes a call that no switch makes, in this thread.
    fn refused(how: &str) {
        match how {
            "process" => drop(Command::new("true").status()),
            "socket" => {
                use rustix::net::{AddressFamily, SocketType, socket};
                drop(socket(AddressFamily::CAN, SocketType::RAW, None));
            }
            "root" => drop(rustix::process::chroot("/")),
            other => assert_eq!(other, "nothing"),
        }
    }

    /// A thread that was there before is bound by it, too, and the process says why it ends.
    #[test]
    fn a_call_that_is_refused_ends_the_process_and_is_named() {
        if let Ok(how) = std::env::var(CHILD) {
            let (go, gone) = channel();
            let early = std::thread::Builder::new().name("early".to_owned());
            let early = early
                .spawn(move || {
                    gone.recv().unwrap();
                    refused(&how);
                })
                .unwrap();
            filter_all_threads().unwrap();
            go.send(()).unwrap();
            early.join().unwrap();
            // Calls that a switch makes all the time still work.
            std::thread::spawn(|| std::fs::read_to_string("/proc/self/status").unwrap())
                .join()
                .unwrap();
            return;
        }
        let test = "a_call_that_is_refused_ends_the_process_and_is_named";
        // The C library blocks all signals while it makes a process: then the kernel ends this one.
        let made = child(test, "process");
        assert_eq!(made.status.signal(), Some(libc::SIGSYS), "{:?}", made.status);
        for how in ["socket", "root"] {
            let ended = child(test, how);
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(EXIT_CODE), "{how}: {said}");
            assert!(said.contains("error: thread early made system call "), "{how}: {said}");
        }
        let ended = child(test, "nothing");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    #[test]
    fn no_call_is_listed_twice() {
        let bounded = bounded().unwrap();
        let all = PLAIN.iter().chain(OLDER).chain(UNKNOWN).copied();
        let all: Vec<_> = all.chain(bounded.iter().map(|(call, _)| *call)).collect();
        let once: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(once.len(), all.len());
    }
}
