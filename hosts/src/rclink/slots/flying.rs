//! Limits how many frames wait for an ACK at once, in frames and in credits of the sender, beside the number of slots.
//!
//! Source: docs/spec/model.md §4 "TYPE2".

/// Credits that frames take at their sender until they are acknowledged; lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Number of credits in all.
    pub credits: u32,
    /// Bytes of one credit.
    pub each: u32,
    /// Bytes that a frame has beside its payload, FCS included.
    pub overhead: usize,
    /// Bytes of the longest frame: a frame goes only while there are credits for one like that.
    pub longest: usize,
}

impl Local {
    fn of(&self, len: usize) -> u32 {
        u32::try_from(len).unwrap_or(u32::MAX).div_ceil(self.each.max(1))
    }

    /// Credits of a frame with a payload of `len` bytes.
    fn of_payload(&self, len: u16) -> u32 {
        self.of(usize::from(len) + self.overhead)
    }
}

/// Frames that wait for an ACK, and their limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flying {
    /// Number of frames that wait now, at most `most`.
    frames: u16,
    most: u16,
    /// Credits of `local` in use.
    used: u32,
    local: Option<Local>,
}

impl Flying {
    /// No limit beside the slots.
    pub const ANY: Self = Self { frames: 0, most: u16::MAX, used: 0, local: None };

    /// A limit of `most` frames, which take credits of `local`.
    pub const fn limited(most: u16, local: Local) -> Self {
        Self { most, local: Some(local), ..Self::ANY }
    }

    /// Whether one more frame may go.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.frames < self.most
            && self.local.is_none_or(|local| self.used + local.of(local.longest) <= local.credits)
    }

    /// Whether no frame waits.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Counts a frame with a payload of `len` bytes that is sent.
    #[inline]
    pub fn start(&mut self, len: u16) {
        self.frames += 1;
        if let Some(local) = &self.local {
            self.used += local.of_payload(len);
        }
    }

    /// Counts a frame with a payload of `len` bytes that no longer waits.
    #[inline]
    pub fn land(&mut self, len: u16) {
        self.frames = self.frames.saturating_sub(1);
        if let Some(local) = &self.local {
            self.used = self.used.saturating_sub(local.of_payload(len));
        }
    }
}
