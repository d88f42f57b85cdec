//! Refused: ends the process with a message when the filter refuses a system call of a thread.
//!
//! On `SIGSYS` it writes a line to standard error and calls `_exit`.
//!
//! Source: seccomp(2), `SECCOMP_RET_TRAP`; sigaction(2), `si_syscall`; signal-safety(7).

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null_mut;
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

/// Exit code of the process in that case.
static EXIT_CODE: AtomicI32 = AtomicI32::new(1);

/// The part of `siginfo_t` that `SIGSYS` fills, on 64-bit machines.
#[repr(C)]
struct SigSys {
    /// Signal, error and code, and padding.
    head: [c_int; 4],
    /// Address of the instruction.
    at: *mut c_void,
    /// Number of the system call.
    call: c_int,
}

/// Makes the process end with `exit_code`, after a line on standard error with the thread and the
/// system call, when a filter of seccomp(2) refuses one by `SECCOMP_RET_TRAP`.
///
/// A call that failed instead might be retried for ever, or leave a switch that forwards nothing
/// and looks alive; a process that the kernel kills reports nothing.
///
/// # Errors
/// Error of sigaction(2).
pub fn end_on_refused_call(exit_code: i32) -> io::Result<()> {
    EXIT_CODE.store(exit_code, Ordering::Relaxed); // before the handler, which reads it, exists
    // SAFETY: all zeros is a value of it: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = end as extern "C" fn(c_int, *const SigSys, *mut c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and calls nothing that may not be
    // called from a signal handler.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn end(_signal: c_int, info: *const SigSys, _context: *mut c_void) {
    // SAFETY: the kernel hands over a `siginfo_t`, which is larger.
    let call = unsafe { (*info).call };
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, with a zero at the end.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    // Only calls that may be made in a signal handler from here on (signal-safety(7)): no
    // allocation, no formatting, no lock of standard error.
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let mut digits = [0_u8; 10];
    say(b"error: thread ");
    say(name);
    say(b" made system call ");
    say(decimal(call.unsigned_abs(), &mut digits));
    say(b", which the switch's filter refuses: the process ends (run.sandbox = false has no filter)\n");
    // SAFETY: it does not return, and runs nothing of ours.
    unsafe { libc::_exit(EXIT_CODE.load(Ordering::Relaxed)) };
}

/// Writes to standard error. A failure is ignored, as the process ends anyway.
fn say(text: &[u8]) {
    // SAFETY: the bytes are there.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// `number` in decimal, without an allocation.
fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut first = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        first = at;
        if number == 0 {
            break;
        }
    }
    digits.get(first..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 59, 435, u32::MAX] {
            let mut digits = [0; 10];
            assert_eq!(decimal(number, &mut digits), number.to_string().as_bytes());
        }
    }
}
