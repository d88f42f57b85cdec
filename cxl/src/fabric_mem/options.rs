//! Options of an engine, by name as users give them: (key, value) pairs of text become [`Options`].
//! `enable_use_fabric_mem` is off unless it is `1`. Times are in microseconds in the text.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers" and check 1.

use weft_dataplane::time::Span;

use super::error::Error;

/// Longest request in bytes, and the boundary that no request crosses.
pub const REQUEST_LEN_MAX: u64 = 4_096;
/// Longest timeout; a longer one is shortened to it.
pub const TIMEOUT_MAX: Span = Span::from_ms(24 * 3_600 * 1_000);

/// The options of a fabric memory engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether transfers are enabled.
    pub enabled: bool,
    /// Whether the other mode is enabled, which takes memory from a pool of buffers.
    pub buffer_pool: bool,
    /// Streams of the engine.
    pub streams_max: usize,
    /// Streams of one transfer, 1..=`streams_max`.
    pub streams_per_transfer: usize,
    /// Most outstanding requests of one stream.
    pub stream_depth: usize,
    /// Longest request in bytes: a power of two, 64..=4096.
    pub request_len_max: u64,
    /// Most transfers under way, or ended with a status not read yet.
    pub transfers_max: usize,
    /// Most ranges that a peer may share.
    pub shares_max: usize,
    /// Timeout of a transfer that names no other.
    pub transfer_timeout: Span,
    /// Time after which a request without completion is lost and its tag free. Must be longer than any completion can
    /// be under way.
    pub completion_timeout: Span,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: false,
            buffer_pool: false,
            streams_max: 32,
            streams_per_transfer: 4,
            stream_depth: 16,
            request_len_max: REQUEST_LEN_MAX,
            transfers_max: 1_024,
            shares_max: 1_024,
            transfer_timeout: Span::from_ms(1_000),
            completion_timeout: Span::from_ms(50),
        }
    }
}

impl Options {
    /// Parses options; those not named keep their defaults.
    ///
    /// # Errors
    /// An unknown key, a value out of range, or two that exclude each other.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Error> {
        let mut options = Self::default();
        for (key, value) in pairs {
            options.set(key, value)?;
        }
        options.checked()
    }

    /// Checks values that were set by hand.
    ///
    /// # Errors
    /// A value out of range, or two that exclude each other.
    pub fn checked(self) -> Result<Self, Error> {
        // Two ways to manage memory that users of such engines choose from; this one has no buffer pool.
        if self.enabled && self.buffer_pool {
            return Err(Error::OptionConflict);
        }
        let bad = |key: &str, value: u64, why| {
            Err(Error::Option { key: key.to_owned(), value: value.to_string(), why })
        };
        let len = self.request_len_max;
        if !len.is_power_of_two() || !(64..=REQUEST_LEN_MAX).contains(&len) {
            return bad("request_len_max", len, "a power of two from 64 to 4096");
        }
        for (key, value) in [
            ("streams_max", self.streams_max),
            ("streams_per_transfer", self.streams_per_transfer),
            ("stream_depth", self.stream_depth),
            ("transfers_max", self.transfers_max),
            ("shares_max", self.shares_max),
        ] {
            if !(1..=65_536).contains(&value) {
                return bad(key, value as u64, "1 to 65536");
            }
        }
        if self.streams_per_transfer > self.streams_max {
            let value = self.streams_per_transfer as u64;
            return bad("streams_per_transfer", value, "at most streams_max");
        }
        for (key, value) in [
            ("transfer_timeout_us", self.transfer_timeout),
            ("completion_timeout_us", self.completion_timeout),
        ] {
            if value == Span::ZERO || value > TIMEOUT_MAX {
                return bad(key, value.as_ns() / 1_000, "above 0, at most a day");
            }
        }
        Ok(self)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let bad = |why| Error::Option { key: key.to_owned(), value: value.to_owned(), why };
        let number = || value.parse::<u64>().map_err(|_| bad("a number"));
        let count = || number().and_then(|n| usize::try_from(n).map_err(|_| bad("a number")));
        match key {
            "enable_use_fabric_mem" => {
                self.enabled = match value {
                    "1" => true,
                    "0" => false,
                    _ => return Err(bad("0 or 1")),
                }
            }
            "buffer_pool" => {
                let parts = value.split_once(':').map(|(n, len)| (n.parse(), len.parse()));
                let Some((Ok(count), Ok(len))) = parts else { return Err(bad("COUNT:LEN")) };
                self.buffer_pool = u64::min(count, len) > 0; // 0:0 is off
            }
            "streams_max" => self.streams_max = count()?,
            "streams_per_transfer" => self.streams_per_transfer = count()?,
            "stream_depth" => self.stream_depth = count()?,
            "request_len_max" => self.request_len_max = number()?,
            "transfers_max" => self.transfers_max = count()?,
            "shares_max" => self.shares_max = count()?,
            "transfer_timeout_us" => self.transfer_timeout = Span::from_us(number()?),
            "completion_timeout_us" => self.completion_timeout = Span::from_us(number()?),
            _ => return Err(bad("no such option")),
        }
        Ok(())
    }
}
