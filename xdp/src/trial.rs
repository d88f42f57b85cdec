//! Tries the program on a frame, in the kernel, without an interface.
//!
//! Source: bpf(2), `BPF_PROG_TEST_RUN`: as if the frame came by interface 1 (`lo`), queue 0.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::layout::Meta;
use crate::sys;

/// The program's decision about a test frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Sent to an output or a socket.
    Redirect,
    /// Dropped, and counted by the program.
    Drop,
    /// The program is not set up for the port.
    Aborted,
    /// A value that the program should never return.
    Other(u32),
}

/// Result of running the program on a test frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    pub verdict: Verdict,
    /// Metadata in front of the frame, if there is any.
    pub meta: Option<Meta>,
    /// The frame afterwards.
    pub bytes: Vec<u8>,
}

/// Room for bytes that the kernel may add to the frame.
const MORE: usize = 256;

impl Trial {
    /// Why programs cannot be tried here; `None` if they can.
    #[must_use]
    pub fn refused() -> Option<String> {
        if let Err(why) = crate::object() {
            return Some(format!("the XDP program is {why}"));
        }
        (!sys::is_root()).then(|| "BPF needs root".to_owned())
    }

    /// Runs a loaded `program` on `frame`.
    ///
    /// # Errors
    /// A frame that the kernel does not try: shorter than 14 bytes, or than a page leaves room for.
    pub fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<Self> {
        let mut out = vec![0; frame.len() + MORE];
        let ran = sys::test_run(program, frame, &mut out, 1)?;
        out.truncate(ran.len);
        // A forwarded frame may have a new front, but never one that is longer by just this length.
        let has_meta = out.len() == frame.len() + Meta::LEN;
        let bytes = out.split_off(if has_meta { Meta::LEN } else { 0 });
        let verdict = match ran.verdict {
            0 => Verdict::Aborted,
            1 => Verdict::Drop,
            4 => Verdict::Redirect,
            other => Verdict::Other(other),
        };
        Ok(Self { verdict, meta: out.first_chunk().map(Meta::from_bytes), bytes })
    }

    /// Mean time that `program` takes for `frame`, over `count` runs.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn time(program: BorrowedFd<'_>, frame: &[u8], count: u32) -> io::Result<Duration> {
        let mut out = vec![0; frame.len() + MORE];
        sys::test_run(program, frame, &mut out, count).map(|ran| ran.mean)
    }
}

impl Meta {
    /// Reads metadata.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let [c0, c1, c2, c3, c4, c5, c6, c7, t0, t1, t2, t3, rest @ ..] = *bytes;
        let [bucket, pri, format, port, f0, f1, f2, f3, p0, p1, i0, i1, rest @ ..] = rest;
        let [s0, s1, o0, o1, z0, z1, z2, z3] = rest;
        Self {
            count: u64::from_ne_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            tag: u32::from_ne_bytes([t0, t1, t2, t3]),
            bucket,
            pri,
            format,
            port,
            flags: u32::from_ne_bytes([f0, f1, f2, f3]),
            tpid: u16::from_ne_bytes([p0, p1]),
            tci: u16::from_ne_bytes([i0, i1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
            spare: u32::from_ne_bytes([z0, z1, z2, z3]),
        }
    }
}
