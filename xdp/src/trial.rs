//! What the program does with a frame, tried by the kernel without an interface.
//!
//! Shape: a frame to its [`Trial`]: verdict, and the octets that were left, with what stands before.
//! Units: octets.
//! Source: bpf(2), `BPF_PROG_TEST_RUN`: as if the frame came by interface 1 (`lo`), queue 0.

use std::time::Duration;

use aya::{TestRun, TestRunOptions};

use crate::XdpError;
use crate::layout::Meta;
use crate::load::Xdp;

/// What the program answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To an output or a socket.
    Redirect,
    /// Dropped, and counted by the program.
    Drop,
    /// Not of a port.
    Aborted,
    /// Something that the program never should.
    Other(u32),
}

/// How a trial came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The answer.
    pub verdict: Verdict,
    /// What was put before the frame, if anything.
    pub meta: Option<Meta>,
    /// The frame after it.
    pub octets: Vec<u8>,
}

/// Octets more than the frame that the kernel may answer with.
const MORE: usize = 256;

impl Xdp {
    /// Runs the program on `frame`.
    ///
    /// # Errors
    /// A frame that the kernel does not try: shorter than 14 octets, or than a page leaves room for.
    pub fn trial(&mut self, frame: &[u8]) -> Result<Trial, XdpError> {
        let mut out = vec![0; frame.len() + MORE];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..TestRunOptions::default()
        };
        let name = self.program_name();
        let ran = self.program()?.test_run(options).map_err(XdpError::program(name))?;
        out.truncate(ran.data_size_out as usize);
        let before = out.len().saturating_sub(frame.len());
        let octets = out.split_off(before);
        let verdict = match ran.return_value {
            0 => Verdict::Aborted,
            1 => Verdict::Drop,
            4 => Verdict::Redirect,
            other => Verdict::Other(other),
        };
        Ok(Trial { verdict, meta: out.first_chunk().map(Meta::from_octets), octets })
    }

    /// Mean time that the program takes for `frame` in `count` runs.
    ///
    /// # Errors
    /// As [`Self::trial`].
    pub fn time(&mut self, frame: &[u8], count: u32) -> Result<Duration, XdpError> {
        let options =
            TestRunOptions { data_in: Some(frame), repeat: count, ..TestRunOptions::default() };
        let name = self.program_name();
        let ran = self.program()?.test_run(options).map_err(XdpError::program(name))?;
        Ok(ran.duration)
    }
}

impl Meta {
    /// What stands before a frame.
    #[must_use]
    pub fn from_octets(octets: &[u8; Self::LEN]) -> Self {
        let [port, queue, pri, format] = *octets.last_chunk().unwrap_or(&[0; 4]);
        let tag = octets.get(8..).and_then(<[u8]>::first_chunk).unwrap_or(&[0; 4]);
        let count = octets.first_chunk().unwrap_or(&[0; 8]);
        let (count, tag) = (u64::from_ne_bytes(*count), u32::from_ne_bytes(*tag));
        Self { count, tag, port, queue, pri, format }
    }
}
