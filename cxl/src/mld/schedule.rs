//! Order in which logical devices are served: shares of the bandwidth when all want more, and limits that always hold.
//!
//! Requests wait in a queue for each LD. [`Schedule::next`] takes the request of the LD that has had least for its
//! share (start-time fair queueing), unless that LD's limit holds it up. Shares and limits are in 256ths of the
//! device's bandwidth.
//!
//! While no share and no limit is set, no request waits. An LD that floods fills its own queue alone: requests that
//! find it full are refused, and the others are served as before.
//!
//! Source: CXL 3.1 sections 3.3.4, 7.6.7.4.4 to 7.6.7.4.10; P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queueing"
//! (1996); docs/spec/wire-formats.md §4.3a.

use std::collections::VecDeque;

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_parsers::cci::ReturnCode;
use weft_parsers::fabric::Pid;

use crate::gfd;
use crate::gfd::qos::{Control, DevLoad, Qos};

/// Most waiting requests of one LD: many more than a host has under way, as a request that finds no room is refused.
pub const WAITING_MAX: usize = 4_096;
/// Waiting requests of one LD from which on its answers report severe overload.
const LOADED: usize = 256;
/// Least cost of a request: a line.
const COST_MIN: u64 = 64;
/// 256ths of the whole.
const WHOLE: u16 = 256;
/// Idle time after which a device has no debt.
const IDLE: Span = Span::from_us(10);
const PS_PER_S: u128 = 1_000_000_000_000;

/// A waiting request: the bytes of a TLP, or of a CXL.mem message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Tlp(Vec<u8>),
    Mem(Vec<u8>),
}

/// Queue and account of one logical device.
#[derive(Default)]
struct Queue {
    /// Waiting requests, with their costs in bytes.
    waiting: VecDeque<(Waiting, u64)>,
    /// Share in 256ths of the bandwidth; 0: an equal part of the bandwidth that shares leave.
    share: u8,
    /// Finish tag of its last request: start tag plus cost divided by weight.
    finish: u64,
    /// Time until which its limit holds it up.
    held: Option<Instant>,
}

/// Scheduler of the requests of all logical devices.
pub(super) struct Schedule {
    rate: LinkRate,
    qos: Qos,
    queues: Vec<Queue>,
    /// Virtual time: start tag of the request in service.
    virtual_time: u64,
    /// Time at which the request in service is done.
    busy: Option<Instant>,
    /// Requests refused because their LD's queue was full.
    overrun: u64,
}

/// Key of an LD in [`Qos`], which keeps limits by PID.
fn key(ld: usize) -> Pid {
    Pid::from_low_bits(u16::try_from(ld).unwrap_or(0))
}

impl Schedule {
    /// A scheduler for `lds` LDs, in a device that moves `rate` of payload.
    pub fn new(lds: usize, rate: LinkRate) -> Self {
        let queues = (0..lds).map(|_| Queue::default()).collect();
        Self { rate, qos: Qos::new(rate), queues, virtual_time: 0, busy: None, overrun: 0 }
    }

    /// The link went down: drops all requests, as no requester waits any more.
    pub fn clear(&mut self) {
        for queue in &mut self.queues {
            queue.waiting.clear();
            queue.held = None;
        }
        self.busy = None;
    }

    /// A reset of one LD: drops its requests.
    pub fn forget(&mut self, ld: usize) {
        if let Some(queue) = self.queues.get_mut(ld) {
            queue.waiting.clear();
        }
    }

    /// Number of requests refused because the queue of their LD was full.
    pub const fn overrun(&self) -> u64 {
        self.overrun
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum()
    }

    /// Whether a request of an LD has to wait for its turn: shares or limits are set, or an earlier request of the LD
    /// waits.
    pub fn holds(&self, ld: usize, is_memory: bool) -> bool {
        let is_set = |(at, queue): (usize, &Queue)| queue.share > 0 || self.qos.limit(key(at)) > 0;
        self.queues.get(ld).is_some_and(|queue| !queue.waiting.is_empty())
            || (is_memory && self.queues.iter().enumerate().any(is_set))
    }

    /// Queues a request that moves `bytes`; false if the LD has too many.
    pub fn push(&mut self, ld: usize, what: Waiting, bytes: u64) -> bool {
        let virtual_time = self.virtual_time;
        let queue = self.queues.get_mut(ld).filter(|queue| queue.waiting.len() < WAITING_MAX);
        let Some(queue) = queue else {
            self.overrun += 1;
            return false;
        };
        if queue.waiting.is_empty() {
            queue.finish = queue.finish.max(virtual_time); // an idle LD saves up no credit
        }
        queue.waiting.push_back((what, bytes.max(COST_MIN)));
        true
    }

    /// Weight of an LD: its share, or for one without a share an equal part of the bandwidth that shares leave.
    fn weight(&self, ld: usize) -> u64 {
        let share = |queue: &Queue| u16::from(queue.share);
        match self.queues.get(ld).map_or(0, share) {
            0 => {
                let left = WHOLE.saturating_sub(self.queues.iter().map(share).sum());
                let without = self.queues.iter().filter(|queue| queue.share == 0).count();
                u64::from(left).checked_div(without as u64).unwrap_or(0).max(1)
            }
            share => share.into(),
        }
    }

    /// When an LD's limit lets it go on; `None`: now.
    fn held(&self, ld: usize, now: Instant) -> Option<Instant> {
        self.queues.get(ld)?.held.filter(|held| *held > now)
    }

    /// Takes the next request, with its LD.
    pub fn next(&mut self, now: Instant) -> Option<(usize, Waiting)> {
        if self.busy.is_some_and(|busy| busy > now) {
            return None;
        }
        let ready = self.queues.iter().enumerate();
        let ready =
            ready.filter(|(ld, it)| !it.waiting.is_empty() && self.held(*ld, now).is_none());
        let (ld, start) = ready.map(|(ld, it)| (ld, it.finish)).min_by_key(|(_, start)| *start)?;
        // The finish tag grows by cost over weight, so LDs with equal tags have had equal parts of their shares.
        let weight = self.weight(ld);
        let queue = self.queues.get_mut(ld)?;
        let (tlp, cost) = queue.waiting.pop_front()?;
        // Start-time fair queueing: virtual time is the start tag of the request in service.
        self.virtual_time = start;
        queue.finish = start.saturating_add(cost.saturating_mul(WHOLE.into()) / weight);
        let (due, _) = self.qos.draw(now, key(ld), cost);
        queue.held = Some(due).filter(|due| *due > now);
        // From the end of the last request, not from now, so that late polls lose no bandwidth.
        let begun = self.busy.filter(|busy| now.since(*busy) < IDLE).unwrap_or(now);
        let ps = (u128::from(cost) * 8 * PS_PER_S).div_ceil(u128::from(self.rate.as_bps()));
        self.busy = Some(begun + Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX)));
        Some((ld, tlp))
    }

    /// When the next waiting request has its turn.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let waits = self.queues.iter().enumerate().filter(|(_, queue)| !queue.waiting.is_empty());
        let free = waits.map(|(ld, _)| self.held(ld, now).unwrap_or(now)).min()?;
        Some(self.busy.map_or(free, |busy| busy.max(free)))
    }

    /// Samples the backlog; to be called at each poll. Requests that an LD's limit holds up do not count: they are no
    /// load of the device and delay no other LD.
    pub fn sample(&mut self) {
        let room = LOADED * self.queues.len();
        let of = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        // A flood beyond its own limit would else report overload to LDs that it does not delay.
        let free = self.queues.iter().filter(|queue| queue.held.is_none());
        let waiting = free.map(|queue| queue.waiting.len()).sum();
        self.qos.sample(of(waiting), of(room));
    }

    /// Load that answers of an LD report: the device's, or its own by the number of its waiting requests, if that is
    /// higher.
    pub fn load(&self, ld: usize) -> DevLoad {
        let own = match self.queues.get(ld).map_or(0, |queue| queue.waiting.len()) * 4 / LOADED {
            0 => DevLoad::Light,
            1 => DevLoad::Optimal,
            2 => DevLoad::Moderate,
            _ => DevLoad::Severe,
        };
        own.max(self.qos.load())
    }

    /// Get `QoS` Control (5403h).
    pub const fn control(&self) -> Control {
        self.qos.control()
    }

    /// Set `QoS` Control (5404h).
    ///
    /// # Errors
    /// As [`Qos::set_control`].
    pub fn set_control(&mut self, control: Control) -> Result<(), gfd::ReturnCode> {
        self.qos.set_control(control)
    }

    /// Get `QoS` Status (5405h): average backpressure in percent.
    pub fn backpressure_percent(&self) -> u8 {
        self.qos.backpressure_percent()
    }

    /// Get `QoS` Allocated BW (5406h) and BW Limit (5408h): shares, or limits, of `count` LDs from `start` on.
    ///
    /// # Errors
    /// The device has no LD `start`.
    pub fn fractions(&self, start: u8, count: u8, limits: bool) -> Result<Vec<u8>, ReturnCode> {
        let first = usize::from(start);
        if first >= self.queues.len() {
            return Err(ReturnCode::InvalidInput);
        }
        let all = self.queues.iter().enumerate().skip(first).take(count.into());
        let one = |(ld, queue): (usize, &Queue)| {
            if limits { self.qos.limit(key(ld)) } else { queue.share }
        };
        Ok(all.map(one).collect())
    }

    /// Set `QoS` Allocated BW (5407h) and BW Limit (5409h), all or none.
    ///
    /// # Errors
    /// Invalid Input: an LD that does not exist, or shares of more than the whole.
    pub fn set_fractions(
        &mut self,
        start: u8,
        fractions: &[u8],
        limits: bool,
    ) -> Result<(), ReturnCode> {
        let first = usize::from(start);
        let end = first + fractions.len();
        if first >= self.queues.len() || end > self.queues.len() {
            return Err(ReturnCode::InvalidInput);
        }
        if limits {
            for (ld, fraction) in (first..).zip(fractions) {
                self.qos.set_limit(key(ld), *fraction);
                if let Some(queue) = self.queues.get_mut(ld) {
                    // A debt that the old limit has left does not count for the new one.
                    queue.held = None;
                }
            }
            return Ok(());
        }
        // The sum with the shares that this command leaves as they are.
        let kept = self.queues.iter().enumerate().filter(|(ld, _)| !(first..end).contains(ld));
        let kept: u16 = kept.map(|(_, queue)| u16::from(queue.share)).sum();
        let new: u16 = fractions.iter().map(|fraction| u16::from(*fraction)).sum();
        if kept + new > WHOLE {
            return Err(ReturnCode::InvalidInput);
        }
        for (queue, fraction) in self.queues.iter_mut().skip(first).zip(fractions) {
            queue.share = *fraction;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the queues of `busy` full for `span`, with requests of `len` bytes; bytes that each LD moved.
    fn moved(schedule: &mut Schedule, busy: &[usize], len: u64, span: Span) -> [u64; 3] {
        let (mut now, mut bytes) = (Instant::ZERO, [0; 3]);
        let end = now + span;
        while now < end {
            for &ld in busy {
                while schedule.queues[ld].waiting.len() < 8 {
                    assert!(schedule.push(ld, Waiting::Tlp(Vec::new()), len));
                }
            }
            while let Some((ld, _)) = schedule.next(now) {
                bytes[ld] += len;
            }
            let due = schedule.next_due(now).expect("requests wait");
            assert!(due > now, "it comes to an end");
            now = due;
        }
        bytes
    }

    /// Name, shares, limits, busy LDs, and the 256ths that each LD gets.
    type Case<'a> = (&'a str, [u8; 3], [u8; 3], &'a [usize], [u64; 3]);

    /// CXL 3.1 sections 7.6.7.4.8 and 7.6.7.4.10: when all want more, each has its share within 2 %; bandwidth that one
    /// leaves goes to the others; a limit holds even if no other LD wants anything.
    #[test]
    fn shares_and_limits_hold_within_2_percent() {
        let (rate, span) = (LinkRate::gbps(10), Span::from_ms(20));
        let whole = rate.as_bps() / 8 / 50; // of 20 ms
        #[rustfmt::skip] // columns: name, shares, limits, who is busy, 256ths that each gets
        let cases: [Case<'_>; 7] = [
            ("shares",                [128, 64, 64], [0; 3],      &[0, 1, 2], [128, 64, 64]),
            ("odd shares",            [200, 37, 19], [0; 3],      &[0, 1, 2], [200, 37, 19]),
            ("what others leave",     [128, 64, 64], [0; 3],      &[1, 2],    [0, 128, 128]),
            ("alone",                 [128, 64, 64], [0; 3],      &[1],       [0, 256, 0]),
            ("without a share",       [192, 0, 0],   [0; 3],      &[0, 1, 2], [192, 32, 32]),
            ("a limit, alone",        [0; 3],        [64, 0, 0],  &[0],       [64, 0, 0]),
            ("a limit below a share", [128, 64, 64], [32, 0, 0],  &[0, 1, 2], [32, 112, 112]),
        ];
        for len in [64, 512, 4_096] {
            for (name, shares, limits, busy, want) in cases {
                let mut schedule = Schedule::new(3, rate);
                schedule.set_fractions(0, &shares, false).unwrap();
                schedule.set_fractions(0, &limits, true).unwrap();
                let bytes = moved(&mut schedule, busy, len, span);
                for (ld, want) in want.into_iter().enumerate() {
                    let want = whole * want / 256;
                    let off = bytes[ld].abs_diff(want);
                    assert!(
                        off * 50 <= want,
                        "{name}, {len}: LD {ld}: {} bytes, not {want}",
                        bytes[ld]
                    );
                }
            }
        }
    }

    /// Without shares and limits no request waits; a full queue refuses its own LD alone.
    #[test]
    fn a_flood_fills_its_own_queue() {
        let mut schedule = Schedule::new(3, LinkRate::gbps(10));
        assert!(!schedule.holds(0, true));
        schedule.set_fractions(0, &[10, 0, 0], true).unwrap();
        assert!(schedule.holds(1, true) && !schedule.holds(1, false));
        for _ in 0..WAITING_MAX {
            assert!(schedule.push(0, Waiting::Tlp(vec![1]), 64));
        }
        let tlp = |byte| Waiting::Tlp(vec![byte]);
        assert!(!schedule.push(0, tlp(1), 64) && schedule.push(1, tlp(2), 64));
        assert_eq!((schedule.overrun(), schedule.waiting()), (1, WAITING_MAX + 1));
        assert_eq!((schedule.load(0), schedule.load(1)), (DevLoad::Severe, DevLoad::Light));
        assert!(schedule.holds(0, false), "what is behind one that waits waits, too");
        schedule.sample();
        assert_eq!(schedule.load(1), DevLoad::Severe, "nothing holds the flood up yet");
        let mut now = Instant::ZERO;
        while schedule.queues[0].held.is_none() {
            assert!(schedule.next(now).is_some());
            now = schedule.next_due(now).unwrap();
        }
        schedule.sample();
        assert!(schedule.queues[0].waiting.len() > WAITING_MAX / 2);
        assert_eq!((schedule.load(0), schedule.load(1)), (DevLoad::Severe, DevLoad::Light));
        schedule.forget(0);
        assert_eq!(schedule.waiting(), usize::from(!schedule.queues[1].waiting.is_empty()));
        for (start, list) in [(3, &[1][..]), (2, &[1, 1]), (255, &[])] {
            let refused = schedule.set_fractions(start, list, true);
            assert_eq!(refused, Err(ReturnCode::InvalidInput), "{start} {list:?}");
        }
        assert_eq!(schedule.set_fractions(0, &[200, 57, 0], false), Err(ReturnCode::InvalidInput));
        assert_eq!(schedule.fractions(0, 9, false), Ok(vec![0; 3]), "nothing has changed");
        assert_eq!(schedule.fractions(1, 1, true), Ok(vec![0]));
        assert_eq!(schedule.fractions(3, 1, true), Err(ReturnCode::InvalidInput));
    }
}
