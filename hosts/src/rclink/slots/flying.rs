//! What waits for an ACK at once, where that is limited beside the slots.
//!
//! [`Flying::start`] at a grant, [`Flying::land`] when the frame does not wait any more.
//!
//! Units: frames; credits of so many bytes.
//! Source: docs/spec/model.md §4 "TYPE2".

/// Credits that frames take at their sender until they are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// All.
    pub credits: u32,
    /// Bytes of one.
    pub each: u32,
    /// Bytes of a frame beside its payload.
    pub overhead: usize,
    /// Bytes of the longest frame: one goes while there are credits for that.
    pub longest: usize,
}

impl Local {
    fn of(&self, len: usize) -> u32 {
        u32::try_from(len).unwrap_or(u32::MAX).div_ceil(self.each.max(1))
    }

    /// Credits of a frame with such a payload.
    fn of_payload(&self, len: u16) -> u32 {
        self.of(usize::from(len) + self.overhead)
    }
}

/// What may wait for an ACK at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flying {
    /// Frames, of at most so many.
    frames: u16,
    most: u16,
    /// Credits in use, of those of `local`.
    used: u32,
    local: Option<Local>,
}

impl Flying {
    /// Whatever there are slots for.
    pub const ANY: Self = Self { frames: 0, most: u16::MAX, used: 0, local: None };

    /// At most so many frames, which take credits of `local`.
    pub const fn limited(most: u16, local: Local) -> Self {
        Self { most, local: Some(local), ..Self::ANY }
    }

    /// Whether one more may go.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.frames < self.most
            && self.local.is_none_or(|local| self.used + local.of(local.longest) <= local.credits)
    }

    /// Whether nothing waits.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// One with such a payload goes.
    #[inline]
    pub fn start(&mut self, len: u16) {
        self.frames += 1;
        if let Some(local) = &self.local {
            self.used += local.of_payload(len);
        }
    }

    /// One with such a payload waits no more.
    #[inline]
    pub fn land(&mut self, len: u16) {
        self.frames = self.frames.saturating_sub(1);
        if let Some(local) = &self.local {
            self.used = self.used.saturating_sub(local.of_payload(len));
        }
    }
}
