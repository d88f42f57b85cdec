//! The generator: frames as fast as the kernel makes them, or at a rate.
//!
//! [`Source::run`] sends until its time is over, and returns [`Sent`].
//!
//! Source: Linux `Documentation/bpf/bpf_prog_run.rst`, "Running XDP programs in live frame mode".

use std::io::ErrorKind;

use super::bpf::{Memory, Program};
use super::program::{self, Spread};
use super::{KitError, frame, sys};

/// Frames of one call at full speed: some tens of ms, after which the clock is read.
const CALL_FRAMES: u32 = 1 << 17;
/// Frames that the kernel takes at once.
const BATCH: u32 = 64;

/// Frames, rate and duration of a generator.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Bytes of a frame.
    pub frame_len: usize,
    pub spread: Spread,
    /// Frames a second; as fast as it goes without.
    pub rate_fps: Option<u64>,
    /// Duration in ns of wall clock.
    pub duration_ns: u64,
}

/// Frames that were sent, and the time that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub frames: u64,
    pub duration_ns: u64,
}

impl Source {
    /// Sends out of interface `ifindex`.
    ///
    /// # Errors
    /// See [`KitError`].
    pub fn run(self, ifindex: i32) -> Result<Sent, KitError> {
        let memory = Memory::new(1)?;
        let asm = program::generator(memory.fd(), ifindex, self.spread);
        let program = Program::load("generator", &asm)?;
        let template = frame::template(self.frame_len)?;
        let start = sys::now_ns();
        let end = start + self.duration_ns;
        loop {
            let now = sys::now_ns();
            if now >= end {
                return Ok(Sent { frames: memory.word(0), duration_ns: now - start });
            }
            let count = match self.rate_fps {
                None => CALL_FRAMES,
                Some(rate) => {
                    let due = u128::from(now - start) * u128::from(rate) / 1_000_000_000;
                    // the program's own count: a call that a signal ended has sent some frames
                    let owed = due.saturating_sub(u128::from(memory.word(0)));
                    u32::try_from(owed).unwrap_or(CALL_FRAMES).min(CALL_FRAMES)
                }
            };
            if count == 0 {
                std::hint::spin_loop();
                continue;
            }
            match program.send(&template, count, BATCH.min(count)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(KitError::Call { what: "send frames".to_owned(), source });
                }
            }
        }
    }
}
