//! CBFC: the credits of a virtual channel, at its sender ([`Credits`]) and its receiver ([`CreditReturn`]).
//!
//! Both ends count from the start of the run and exchange absolute counts, so a lost update or frame loses no credit
//! for good.
//!
//! Source: docs/spec/model.md §4 "CBFC".

/// Largest limit: counters on the wire have 15 bits, so no more credits can be outstanding.
pub const LIMIT_MAX: u32 = (1 << 15) - 1;

/// Why a channel cannot have credits as specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreditError {
    /// A credit size that the registers cannot hold.
    #[error("credit_size {0}: expected 32, 64, 128, 256, 512, 1024 or 2048")]
    Size(u32),
    /// A reserve of frames out of range.
    #[error("uf_limit {0}: expected 1 to 7")]
    Reserve(u32),
    /// A limit out of range.
    #[error(
        "credit_limit {had}: expected {least} (uf_limit frames of {frame_len_max} bytes) to {LIMIT_MAX}"
    )]
    Limit {
        /// The limit that was asked for.
        had: u32,
        /// Least limit with which the longest frame can ever be sent.
        least: u32,
        /// Bytes of the longest frame.
        frame_len_max: u32,
    },
}

/// Credit settings of a virtual channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditSpec {
    /// Credits that the receiver grants in all.
    pub limit: u32,
    /// Bytes of one credit: 32 to 2,048, a power of two.
    pub size: u32,
    /// Bytes added to each frame's length before credits are counted.
    pub overhead: u32,
    /// A frame may go while credits for this many of the longest frames are left; 1 to 7.
    pub uf_limit: u32,
    /// Whether a request may go while credits for one of the longest frames are left, whatever `uf_limit`.
    pub dynamic: bool,
    /// Bytes of the longest frame, FCS included.
    pub frame_len_max: u32,
}

impl CreditSpec {
    /// `limit` credits of 128 bytes, with one longest frame as reserve; the caller fills in its length.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self { limit, size: 128, overhead: 0, uf_limit: 1, dynamic: false, frame_len_max: 0 }
    }

    /// Credits that a frame of `len` bytes takes.
    #[must_use]
    pub const fn of(&self, len: u32) -> u32 {
        len.saturating_add(self.overhead).div_ceil(self.size)
    }

    /// Checks that the registers can hold the values and that the longest frame can be sent.
    ///
    /// # Errors
    /// The first value out of range.
    pub const fn check(&self) -> Result<(), CreditError> {
        if !self.size.is_power_of_two() || self.size < 32 || self.size > 2_048 {
            return Err(CreditError::Size(self.size));
        }
        if self.uf_limit == 0 || self.uf_limit > 7 {
            return Err(CreditError::Reserve(self.uf_limit));
        }
        let least = self.uf_limit.saturating_mul(self.of(self.frame_len_max));
        if self.limit < least || self.limit > LIMIT_MAX {
            let (had, frame_len_max) = (self.limit, self.frame_len_max);
            return Err(CreditError::Limit { had, least, frame_len_max });
        }
        Ok(())
    }
}

/// Sender's side of a channel's credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    spec: CreditSpec,
    used: u64,
    returned: u64,
}

impl Credits {
    /// All credits are available.
    ///
    /// # Errors
    /// Those of [`CreditSpec::check`].
    pub const fn new(spec: CreditSpec) -> Result<Self, CreditError> {
        match spec.check() {
            Ok(()) => Ok(Self { spec, used: 0, returned: 0 }),
            Err(error) => Err(error),
        }
    }

    /// Credits used since the start of the run.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Credits returned by the receiver since the start of the run.
    #[must_use]
    pub const fn returned(&self) -> u64 {
        self.returned
    }

    /// Credits available to the sender now.
    #[must_use]
    pub fn left(&self) -> u32 {
        let out = u32::try_from(self.used - self.returned).unwrap_or(u32::MAX);
        self.spec.limit.saturating_sub(out)
    }

    /// Whether a frame may go; `is_request` matters if the reserve is dynamic.
    #[must_use]
    pub fn may_send(&self, is_request: bool) -> bool {
        let frames = if self.spec.dynamic && is_request { 1 } else { self.spec.uf_limit };
        self.left() >= frames * self.spec.of(self.spec.frame_len_max)
    }

    /// Uses the credits of a frame of `len` bytes; returns the count that the frame carries.
    pub const fn send(&mut self, len: u32) -> u64 {
        self.used += self.spec.of(len) as u64;
        self.used
    }

    /// Takes the receiver's count of credits returned. A count older than one that has come already changes nothing;
    /// nor does one above the credits used, which no correct receiver sends.
    pub const fn update(&mut self, returned: u64) {
        if returned > self.returned && returned <= self.used {
            self.returned = returned;
        }
    }
}

/// Receiver's side of a channel's credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditReturn {
    seen: u64,
    held: u64,
}

impl CreditReturn {
    /// Counts a frame that takes `credits`, with the count it carries. If that is further ahead than the frame accounts
    /// for, the difference was lost on the way.
    pub const fn receive(&mut self, count: u64, credits: u32) {
        if count > self.seen {
            self.seen = count;
        }
        self.held += credits as u64;
    }

    /// The sender's full count, of which a frame carries the low bits in `count`; without them, the count if no frame
    /// was lost before this one of `credits`. A count that is not ahead is an old frame's: then the count seen last is
    /// returned.
    #[must_use]
    pub fn count_after(&self, count: Option<u16>, credits: u32) -> u64 {
        let Some(count) = count else { return self.seen + u64::from(credits) };
        let [.., high, low] = self.seen.to_be_bytes();
        let ahead = count.wrapping_sub(u16::from_be_bytes([high, low]));
        // No more than 15 bits of credits are outstanding: a larger difference is a frame that is behind.
        if ahead < 1 << 15 { self.seen + u64::from(ahead) } else { self.seen }
    }

    /// Credits of the frames in the buffer.
    #[must_use]
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Takes the count of a frame that never arrived or was damaged, and so occupies no buffer.
    pub const fn lose(&mut self, count: u64) {
        if count > self.seen {
            self.seen = count;
        }
    }

    /// Frees the `credits` of a frame that has left the buffer.
    pub const fn drain(&mut self, credits: u32) {
        self.held = self.held.saturating_sub(credits as u64);
    }

    /// Count to return to the sender: all that it used, except for frames still in the buffer.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.seen.saturating_sub(self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AFH_GEN1 with ICRC: 11 credits of 128 bytes.
    const SPEC: CreditSpec = CreditSpec {
        limit: 44,
        size: 128,
        overhead: 0,
        uf_limit: 1,
        dynamic: false,
        frame_len_max: 1_374,
    };

    #[test]
    fn frames_in_flight_are_as_the_formula_says() {
        #[rustfmt::skip] // columns: limit, uf_limit, dynamic, request, frames in flight
        let cases = [
            (11, 1, false, true, 1),
            (21, 1, false, true, 1),
            (22, 1, false, true, 2),
            (44, 1, false, true, 4),
            (44, 3, false, true, 2),
            (44, 3, true,  true, 4),
            (44, 3, true,  false, 2),
            (99, 7, false, true, 3),
        ];
        for (limit, uf_limit, dynamic, request, frames) in cases {
            let mut credits =
                Credits::new(CreditSpec { limit, uf_limit, dynamic, ..SPEC }).unwrap();
            let mut sent = 0;
            while credits.may_send(request) {
                credits.send(1_374);
                sent += 1;
            }
            assert_eq!(sent, frames, "{limit} {uf_limit} {dynamic} {request}");
        }
    }

    #[test]
    fn what_is_lost_comes_back_with_the_next_frame() {
        let (mut credits, mut back) = (Credits::new(SPEC).unwrap(), CreditReturn::default());
        let first = credits.send(1_374);
        let _lost = credits.send(1_374);
        let third = credits.send(1_374);
        assert_eq!(credits.left(), 11);
        back.receive(first, 11);
        back.receive(third, 11);
        assert_eq!(back.count(), 11, "the lost one's");
        back.drain(11);
        back.drain(11);
        credits.update(back.count());
        assert_eq!(credits.left(), 44);
        let damaged = credits.send(1_374);
        back.lose(damaged);
        credits.update(back.count());
        assert_eq!(credits.left(), 44);
    }

    #[test]
    fn a_count_is_known_by_its_low_bits() {
        #[rustfmt::skip] // columns: seen, low bits, credits, count
        let cases = [
            (0,        Some(11),     11, 11),
            (65_530,   Some(5),      11, 65_541),
            (65_541,   Some(5),      11, 65_541),
            (65_541,   Some(65_530), 11, 65_541),
            (100_000,  None,         11, 100_011),
        ];
        for (seen, low, credits, count) in cases {
            let back = CreditReturn { seen, held: 0 };
            assert_eq!(back.count_after(low, credits), count, "{seen} {low:?}");
        }
    }

    #[test]
    fn a_count_that_cannot_be_changes_nothing() {
        let mut credits = Credits::new(SPEC).unwrap();
        credits.send(1_374);
        credits.send(1_374);
        credits.update(11);
        for forged in [0, 10, 23, u64::MAX] {
            credits.update(forged);
            assert_eq!(credits.left(), 33, "{forged}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let limit = |had, least| CreditError::Limit { had, least, frame_len_max: 1_374 };
        #[rustfmt::skip] // columns: name, credits, error
        let cases = [
            ("odd size",       CreditSpec { size: 96, ..SPEC },     CreditError::Size(96)),
            ("small size",     CreditSpec { size: 16, ..SPEC },     CreditError::Size(16)),
            ("no reserve",     CreditSpec { uf_limit: 0, ..SPEC },  CreditError::Reserve(0)),
            ("large reserve",  CreditSpec { uf_limit: 8, ..SPEC },  CreditError::Reserve(8)),
            ("less than one",  CreditSpec { limit: 10, ..SPEC },    limit(10, 11)),
            ("never enough",   CreditSpec { uf_limit: 5, ..SPEC },  limit(44, 55)),
            ("over 15 bits",   CreditSpec { limit: 32_768, ..SPEC }, limit(32_768, 11)),
        ];
        for (name, spec, error) in cases {
            assert_eq!(Credits::new(spec), Err(error), "{name}");
        }
    }
}
