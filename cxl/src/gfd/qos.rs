//! Quality of service: the load that the device reports, and bandwidth limits of requesters.
//!
//! Samples of the backlog give an average and a [`DevLoad`]; a draw of bytes by an RPID gives the time at which its
//! answer is due. Limits are fractions of the device's payload bandwidth in 1/256.
//!
//! A limit is a token bucket of its own: `dataplane::bucket` charges the wire time of an Ethernet frame (FCS, 64-byte
//! minimum, preamble, gap), which memory accesses do not have.
//!
//! Source: docs/spec/wire-formats.md §4.7 (490E to 4912); CXL 3.1 section 3.3.4.

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp;

use super::code::ReturnCode;

/// Burst of a requester with a limit: 16 KiB.
pub const BURST_BYTES: u64 = 16 << 10;
/// Longest debt that counts: no answer waits longer because of a limit.
const DEBT_MAX: Span = Span::from_ms(1_000);
const PS_PER_S: u128 = 1_000_000_000_000;

/// Load of the device, as the two bits of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DevLoad {
    /// Light load: there is room for much more.
    #[default]
    Light = 0b00,
    /// Optimal load: busy and not overloaded.
    Optimal = 0b01,
    /// Moderate overload: requesters throttle a step.
    Moderate = 0b10,
    /// Severe overload: requesters throttle in larger steps.
    Severe = 0b11,
}

impl DevLoad {
    /// Converts to the field of UIO completions.
    #[must_use]
    pub const fn wire(self) -> tlp::DevLoad {
        match self {
            Self::Light => tlp::DevLoad::Light,
            Self::Optimal => tlp::DevLoad::Optimal,
            Self::Moderate => tlp::DevLoad::ModerateOverload,
            Self::Severe => tlp::DevLoad::SevereOverload,
        }
    }
}

/// `QoS` Control of commands 490E and 490F, 7 bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Bit 0: the backpressure average counts. Bit 1, temporary throughput reduction, is not offered (4900), and
    /// refused.
    pub flags: u8,
    /// Average backpressure from which on load is moderate, 1..=100 %.
    pub moderate_percent: u8,
    /// Average backpressure from which on load is severe, 1..=100 %.
    pub severe_percent: u8,
    /// Sample interval, 0..=15; 0 stops sampling. All other values do the same here: each sample counts alike, whenever
    /// it comes.
    pub interval: u8,
    /// Stored and returned; changes nothing here.
    pub req_cmp_basis: u16,
    /// Stored and returned; changes nothing here.
    pub completion_interval: u8,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            flags: 0,
            moderate_percent: 10,
            severe_percent: 25,
            interval: 8,
            req_cmp_basis: 0,
            completion_interval: 64,
        }
    }
}

/// `QoS` state of a device.
#[derive(Clone, Debug)]
pub struct Qos {
    control: Control,
    rate: LinkRate,
    average: u32, // of backpressure, in 1/256 %
    backlog_percent: u8,
    fractions: Vec<u8>,            // by RPID; 0: no limit
    full_at: Vec<Option<Instant>>, // when the requester's bucket is full again
}

impl Qos {
    /// No limits, in a device that moves `rate` of payload.
    #[must_use]
    pub fn new(rate: LinkRate) -> Self {
        Self {
            control: Control::default(),
            rate,
            average: 0,
            backlog_percent: 0,
            fractions: vec![0; Pid::COUNT],
            full_at: vec![None; Pid::COUNT],
        }
    }

    #[must_use]
    pub const fn control(&self) -> Control {
        self.control
    }

    /// Sets the control fields.
    ///
    /// # Errors
    /// Invalid Input: a flag that is reserved or not offered, a percentage that is not 1..=100, an interval above 15.
    /// Severe may be below moderate, and counts first.
    pub fn set_control(&mut self, control: Control) -> Result<(), ReturnCode> {
        let percents = [control.moderate_percent, control.severe_percent];
        if control.flags > 1
            || control.interval > 15
            || percents.iter().any(|percent| !(1..=100).contains(percent))
        {
            return Err(ReturnCode::InvalidInput);
        }
        self.control = control;
        Ok(())
    }

    /// Samples the backlog: `waiting` of at most `room` requests or responses wait.
    pub fn sample(&mut self, waiting: u32, room: u32) {
        let percent = u64::from(waiting.min(room)) * 100 / u64::from(room.max(1));
        self.backlog_percent = u8::try_from(percent).unwrap_or(100);
        if self.control.interval == 0 {
            self.average = 0;
        } else {
            let new = u32::from(self.backlog_percent) << 8;
            // An eighth of the way to the sample; rounded up when rising, so that a steady sample is reached.
            self.average = (self.average * 7 + new + if new > self.average { 7 } else { 0 }) / 8;
        }
    }

    /// Average backpressure in percent (4910).
    #[must_use]
    pub fn backpressure_percent(&self) -> u8 {
        u8::try_from(self.average >> 8).unwrap_or(100)
    }

    /// Load by the quarter of the room that the backlog fills, or by the average backpressure if that counts and is
    /// higher.
    #[must_use]
    pub fn load(&self) -> DevLoad {
        let internal = match self.backlog_percent {
            0..=24 => DevLoad::Light,
            25..=49 => DevLoad::Optimal,
            50..=74 => DevLoad::Moderate,
            _ => DevLoad::Severe,
        };
        let percent = self.backpressure_percent();
        let egress = if self.control.flags & 1 == 0 {
            DevLoad::Light
        } else if percent >= self.control.severe_percent {
            DevLoad::Severe
        } else if percent >= self.control.moderate_percent {
            DevLoad::Moderate
        } else {
            DevLoad::Light
        };
        internal.max(egress)
    }

    /// Limit of `rpid` in 1/256 of the bandwidth; 0: no limit.
    #[must_use]
    pub fn limit(&self, rpid: Pid) -> u8 {
        self.fractions.get(rpid.index()).copied().unwrap_or(0)
    }

    /// Sets the limit of `rpid`; its bucket starts full.
    pub fn set_limit(&mut self, rpid: Pid, fraction: u8) {
        if let (Some(place), Some(full_at)) =
            (self.fractions.get_mut(rpid.index()), self.full_at.get_mut(rpid.index()))
        {
            (*place, *full_at) = (fraction, None);
        }
    }

    /// Draws `bytes` for `rpid`; returns when the answer may leave, and the load to report in it.
    ///
    /// A requester that has to wait is told at least moderate load, and severe load if it waits for longer than a whole
    /// burst takes.
    #[inline]
    pub fn draw(&mut self, now: Instant, rpid: Pid, bytes: u64) -> (Instant, DevLoad) {
        let load = self.load();
        let fraction = self.limit(rpid);
        let place = self.full_at.get_mut(rpid.index());
        let (true, Some(full_at)) = (fraction > 0, place) else { return (now, load) };
        let ps_per = |bytes: u64| {
            let bits = u128::from(bytes) * 8 * 256;
            let ps =
                (bits * PS_PER_S).div_ceil(u128::from(self.rate.as_bps()) * u128::from(fraction));
            Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX)).min(DEBT_MAX)
        };
        let burst = ps_per(BURST_BYTES);
        // `full_at` is all the state of a bucket: the time at which it is full again. An answer leaves at once while
        // that is at most a burst ahead.
        let most = DEBT_MAX + burst;
        // A time further ahead than any draw leaves it is long past: the clock has wrapped.
        let start = full_at.filter(|at| at.since(now) > Span::ZERO && at.since(now) <= most);
        let ahead = start.map_or(Span::ZERO, |at| at.since(now));
        let ahead = (ahead + ps_per(bytes)).min(most);
        *full_at = Some(now + ahead);
        if ahead <= burst {
            (now, load)
        } else {
            let wait = Span::from_ps(ahead.as_ps() - burst.as_ps());
            // This answer alone: its requester should slow down, and others should not for it.
            let own = if wait > burst { DevLoad::Severe } else { DevLoad::Moderate };
            (now + wait, load.max(own))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RPID: Pid = Pid::from_low_bits(5);

    /// 64/256 of 8 Gbit/s is 2 Gbit/s: 4,096 bytes are 16,384 ns.
    #[test]
    fn a_limit_lets_a_burst_go_and_then_holds() {
        for start in [Instant::ZERO, Instant::from_ps(u64::MAX - 20_000_000)] {
            let mut qos = Qos::new(LinkRate::gbps(8));
            qos.set_limit(RPID, 64);
            for k in 0..4 {
                assert_eq!(qos.draw(start, RPID, 4096), (start, DevLoad::Light), "{k}");
            }
            let due = start + Span::from_ns(16_384);
            assert_eq!(qos.draw(start, RPID, 4096), (due, DevLoad::Moderate));
            let free = Pid::from_low_bits(6);
            assert_eq!(qos.draw(start, free, 1 << 40), (start, DevLoad::Light), "no limit");
            for _ in 0..4 {
                qos.draw(start, RPID, 4096);
            }
            let (due, load) = qos.draw(start, RPID, 4096);
            assert_eq!((due, load), (start + Span::from_ns(16_384 * 6), DevLoad::Severe));
            let later = start + Span::from_ns(16_384 * 10);
            assert_eq!(qos.draw(later, RPID, 16 << 10).0, later, "full again");
            assert!(qos.draw(later, RPID, 1).0 > later, "and no fuller");
            let far = later + Span::from_ps(u64::MAX / 2 + 5);
            assert_eq!(qos.draw(far, RPID, 1).0, far);
        }
    }

    /// Many odd draws never go faster than the limit, and lose no more than a picosecond each.
    #[test]
    fn the_rate_holds_over_many_draws() {
        let mut qos = Qos::new(LinkRate::bps(7_000_000_003).unwrap());
        qos.set_limit(RPID, 17);
        let (mut now, mut bytes) = (Instant::ZERO, 0_u128);
        for k in 0..10_000 {
            (now, _) = qos.draw(now, RPID, 1 + k % 4096);
            bytes += u128::from(1 + k % 4096);
        }
        let least = (bytes - u128::from(BURST_BYTES)) * 8 * 256 * PS_PER_S / (7_000_000_003 * 17);
        let took = u128::from(now.as_ps());
        assert!(took + 2 >= least && took <= least + 10_002, "{took} {least}");
    }

    #[test]
    fn load_follows_backlog_and_average() {
        let mut qos = Qos::new(LinkRate::gbps(8));
        #[rustfmt::skip] // columns: waiting of 100, want
        let cases = [
            (0, DevLoad::Light), (24, DevLoad::Light), (25, DevLoad::Optimal), (49, DevLoad::Optimal),
            (50, DevLoad::Moderate), (74, DevLoad::Moderate), (75, DevLoad::Severe), (200, DevLoad::Severe),
        ];
        for (waiting, want) in cases {
            qos.sample(waiting, 100);
            assert_eq!(qos.load(), want, "{waiting}");
        }
        let control = Control { flags: 1, ..Control::default() };
        qos.set_control(control).unwrap();
        (0..200).for_each(|_| qos.sample(20, 100));
        assert_eq!((qos.backpressure_percent(), qos.load()), (20, DevLoad::Moderate));
        qos.set_control(Control { severe_percent: 20, ..control }).unwrap();
        assert_eq!(qos.load(), DevLoad::Severe);
        qos.set_control(Control { interval: 0, ..control }).unwrap();
        qos.sample(20, 0);
        assert_eq!((qos.backpressure_percent(), qos.load()), (0, DevLoad::Light), "off");
        for bad in [
            Control { flags: 2, ..control },
            Control { flags: 4, ..control },
            Control { interval: 16, ..control },
            Control { moderate_percent: 0, ..control },
            Control { severe_percent: 101, ..control },
        ] {
            let before = qos.control();
            assert_eq!(qos.set_control(bad), Err(ReturnCode::InvalidInput), "{bad:?}");
            assert_eq!(qos.control(), before);
        }
    }
}
