//! Calls of DPDK: one at a time, with DPDK's messages in the error.
//!
//! Source: DPDK 22.11 `rte_errno.h`, `rte_log.h`.

use std::ffi::{CStr, c_int};
use std::io;
use std::sync::{Mutex, PoisonError};

use weft_dpdk_sys as sys;

/// Held during a call, so that the messages captured meanwhile belong to it.
static CALLING: Mutex<()> = Mutex::new(());
/// Bytes of messages that are kept: EAL's usage and the lines around it.
const QUOTE: usize = 16_384;

/// Makes a call that returns a negative errno on failure; the error quotes DPDK's messages.
pub fn call(call: impl FnOnce() -> c_int) -> io::Result<c_int> {
    let (done, said) = listen(false, call);
    if done >= 0 {
        return Ok(done);
    }
    Err(refusal(done, &said))
}

/// Makes a call that returns a pointer, or null and the thread's errno.
pub fn make<T>(call: impl FnOnce() -> *mut T) -> io::Result<core::ptr::NonNull<T>> {
    let (made, said) = listen(false, || (call(), errno()));
    core::ptr::NonNull::new(made.0).ok_or_else(|| refusal(-made.1, &said))
}

fn refusal(code: c_int, said: &str) -> io::Error {
    let kind = io::Error::from_raw_os_error(-code).kind();
    let text = strerror(-code);
    io::Error::new(kind, if said.is_empty() { text } else { format!("{text} ({said})") })
}

/// Makes a call; also returns DPDK's messages during it, on one line.
pub fn listen<R>(all: bool, call: impl FnOnce() -> R) -> (R, String) {
    let _turn = CALLING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: plain call; one at a time by the lock.
    if !unsafe { sys::weft_dpdk_listen(all) } {
        return (call(), String::new());
    }
    let result = call();
    let mut text = vec![0; QUOTE];
    // SAFETY: `text` has that size.
    unsafe { sys::weft_dpdk_quote(text.as_mut_ptr(), text.len()) };
    // SAFETY: the shim has put a zero at the end.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
    (result, last_lines(&text))
}

/// The last lines of `text` with a message, joined: lines that begin with their source, such as `EAL:`. EAL's notes at
/// every start, and its usage, are left out.
fn last_lines(text: &str) -> String {
    const LINES: usize = 3;
    let noted = ["Detected", "Selected IOVA", "Multi-process socket"];
    let says = |line: &&str| match line.split_once(": ") {
        Some((who, what)) => {
            !who.contains(' ')
                && who != "Usage"
                && !noted.iter().any(|noted| what.starts_with(noted))
        }
        None => false,
    };
    let mut lines: Vec<&str> = text.lines().filter(says).collect();
    lines.dedup();
    lines.split_off(lines.len().saturating_sub(LINES)).join("; ")
}

/// DPDK's error number of this thread.
pub fn errno() -> c_int {
    // SAFETY: reads a number of this thread's.
    unsafe { sys::weft_dpdk_errno() }
}

pub fn strerror(code: c_int) -> String {
    // SAFETY: plain call.
    let text = unsafe { sys::rte_strerror(code) };
    // SAFETY: a C string of this thread's that stays until the next such call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_what_went_wrong() {
        let text = "EAL: Detected CPU lcores: 2\nEAL: no x\n\nUsage: weft\n  -c: MASK\nEAL: no x\nw(): bad\n";
        assert_eq!(last_lines(text), "EAL: no x; w(): bad");
        assert_eq!(last_lines(""), "");
    }
}
