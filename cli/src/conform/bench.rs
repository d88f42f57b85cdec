//! The switch under test, with this machine at its ports.
//!
//! A [`Bench`] holds outputs, fills queues and reads counters: through SAI's RPC, and by frames through [`Links`].
//! Ports are numbered in the order of the command line. Depths and watermarks are in bytes of whole cells.
//!
//! Source: docs/conform.md; docs/spec/pipeline.md §4, §7, §9.

use std::time::Duration;

use weft_base::wait;
use weft_control::conform::{Params, Row};
use weft_control::sai::objects::{
    GroupCounter, PoolCounter, PortCounter, QueueCounter, pfc_tx_counter,
};
use weft_control::sai_client::{PortObjects, SaiClient, SaiError};
use weft_dataplane::time::Span;
use weft_lab::clock::now;
use weft_parsers::Ecn;

use super::links::{Links, Seen, Tag};
use super::{CaseError, End};

/// Most frames in flight to the switch: fewer than a port's receive ring holds, so none is lost before it is counted.
const FLIGHT: u64 = 256;
/// Shortest time for which a counter is watched that must not change.
const CALM: Span = Span::from_ms(100);
/// Interval at which such a counter is read.
const LOOK: Duration = Duration::from_millis(10);
/// PFC frames after which a PAUSE counts as repeated.
const REPEATS: u64 = 3;

/// The switch, and this machine's ends of its ports.
pub struct Bench {
    switch: SaiClient,
    links: Links,
    ends: Vec<End>,
    objects: Vec<PortObjects>,
    /// Thresholds and maps of the switch, from `weft conform params` or a file.
    pub params: Params,
    pool: i64,
    /// Longest wait for a condition of the switch (`--limit`).
    limit: Duration,
}

impl Bench {
    /// Looks up the ports of `ends` in `switch` and opens the interfaces.
    ///
    /// # Errors
    /// The switch lacks a port, the parameters have no pool, or an interface cannot be opened.
    pub fn new(
        mut switch: SaiClient,
        ends: Vec<End>,
        params: Params,
        limit: Duration,
    ) -> Result<Self, CaseError> {
        let digits = params.buf_pool_roid.trim_start_matches("0x");
        let pool = i64::from_str_radix(digits, 16)
            .map_err(|_| CaseError::NoPool(params.buf_pool_roid.clone()))?;
        let mut objects = Vec::with_capacity(ends.len());
        for end in &ends {
            let found = switch.port(&end.port)?;
            objects.push(found.ok_or_else(|| CaseError::NoPort(end.port.clone()))?);
        }
        let interfaces: Vec<&str> = ends.iter().map(|end| end.interface.as_str()).collect();
        let links = Links::open(&interfaces)?;
        Ok(Self { switch, links, ends, objects, params, pool, limit })
    }

    #[must_use]
    pub const fn ports(&self) -> usize {
        self.ends.len()
    }

    /// Name of a port in the switch; empty for a number out of range.
    #[must_use]
    pub fn name(&self, port: usize) -> &str {
        self.ends.get(port).map_or("", |end| &end.port)
    }

    /// Thresholds of a port and priority; `None` if the parameters lack them.
    #[must_use]
    pub fn row(&self, port: usize, pri: u8) -> Option<&Row> {
        let name = self.name(port);
        self.params.rows.iter().find(|row| row.port == name && row.pri == pri)
    }

    /// First lossless, or lossy, priority of a port for which test frames can be tagged.
    #[must_use]
    pub fn priority(&self, port: usize, lossless: bool) -> Option<u8> {
        let name = self.name(port);
        let mut rows = self.params.rows.iter().filter(|row| row.port == name);
        rows.find(|row| row.lossless == lossless && self.tag(port, row.pri).is_some())
            .map(|row| row.pri)
    }

    /// PFC class in a PAUSE for a priority of a port; the priority's own number if the parameters give none.
    #[must_use]
    pub fn class(&self, port: usize, pri: u8) -> u8 {
        self.row(port, pri).and_then(|row| row.pfc_classes.first().copied()).unwrap_or(pri)
    }

    /// Tag with which `port` puts a frame into priority `pri`; prefers DSCP, as it needs no VLAN tag.
    #[must_use]
    pub fn tag(&self, port: usize, pri: u8) -> Option<Tag> {
        let first =
            |map: &[u8]| map.iter().position(|&of| of == pri).and_then(|at| u8::try_from(at).ok());
        let trusts = |field| self.trusts(port, field);
        let by_dscp = || first(&self.params.dscp_to_pri).filter(|_| trusts("dscp")).map(Tag::Dscp);
        let by_pcp = || first(&self.params.pcp_to_pri).filter(|_| trusts("pcp")).map(Tag::Pcp);
        by_dscp().or_else(by_pcp)
    }

    /// Whether `port` classifies by `field`; assumed for both fields where the parameters don't list the port.
    #[must_use]
    pub fn trusts(&self, port: usize, field: &str) -> bool {
        let known = self.params.port(self.name(port));
        known.is_none_or(|port| port.trust.iter().any(|of| of == field))
    }

    /// Lets all ports send, waits until their queues are empty, discards the arrivals, and has all stations learnt.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub fn fresh(&mut self) -> Result<(), CaseError> {
        self.free_all()?;
        for port in 0..self.ports() {
            self.until("empty queues", |bench| Ok(bench.queued(port)? == 0))?;
        }
        for port in 0..self.ports() {
            // Frames of the case before, which may have failed half-way.
            self.links.take(port)?;
        }
        self.links.announce()?;
        for port in 0..self.ports() {
            let mut heard = 0;
            let what = format!("each station's broadcast out of {}", self.name(port));
            self.until(&what, |bench| {
                let came = bench.links.take(port)?;
                heard += came.iter().filter(|seen| matches!(seen, Seen::Hello(_))).count();
                // Each other station's: the switch doesn't send a broadcast back to its input.
                Ok(heard + 1 >= bench.ports())
            })?;
        }
        Ok(())
    }

    /// Lets all ports send.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn free_all(&mut self) -> Result<(), CaseError> {
        let ports: Vec<i64> = self.objects.iter().map(|of| of.port).collect();
        for port in ports {
            self.switch.set_tx(port, true)?;
        }
        Ok(())
    }

    /// Lets a port send, or holds its queues.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn send_on(&mut self, port: usize, on: bool) -> Result<(), CaseError> {
        let id = self.objects.get(port).map_or(0, |of| of.port);
        Ok(self.switch.set_tx(id, on)?)
    }

    /// Waits until `is_so` is true; `what` names the condition in the error.
    ///
    /// # Errors
    /// It is not true within the limit, or cannot be evaluated.
    pub fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&mut Self) -> Result<bool, CaseError>,
    ) -> Result<(), CaseError> {
        let looked = wait::try_until(self.limit, || match is_so(self) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        looked.unwrap_or_else(|| Err(CaseError::Late(what.to_owned())))
    }

    /// Sends `count` frames, at most `FLIGHT` at a time, and waits until the priority group has counted each batch.
    ///
    /// # Errors
    /// Frames do not arrive at the switch.
    pub fn fill(&mut self, way: (usize, usize), pri: u8, count: u64) -> Result<(), CaseError> {
        let frame = self.frame(way, pri, Ecn::NotEct)?;
        self.fill_with(way.0, pri, &frame, count)
    }

    /// Like [`Self::fill`], with copies of `frame`.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn fill_with(
        &mut self,
        src: usize,
        pri: u8,
        frame: &[u8],
        count: u64,
    ) -> Result<(), CaseError> {
        let begun = self.arrived(src, pri)?;
        let mut sent = 0;
        while sent < count {
            let more = FLIGHT.min(count - sent);
            self.links.send(src, frame, more)?;
            sent += more;
            self.until("frames that were sent to arrive at the switch", |bench| {
                // Frames that the switch forwards meanwhile must not fill this machine's receive rings.
                bench.links.poll()?;
                Ok(bench.arrived(src, pri)? >= begun + sent)
            })?;
        }
        Ok(())
    }

    /// Sends frames without waiting for the switch to count them.
    ///
    /// # Errors
    /// The device sends nothing.
    pub fn send(&mut self, src: usize, frame: &[u8], count: u64) -> Result<(), CaseError> {
        self.links.send(src, frame, count)
    }

    /// A frame of the parameters' `packet_size` along `way` (source, destination), tagged for priority `pri`.
    ///
    /// # Errors
    /// No tag leads to `pri`, or the frame cannot be made.
    pub fn frame(&self, way: (usize, usize), pri: u8, ecn: Ecn) -> Result<Vec<u8>, CaseError> {
        let tag = self.tag(way.0, pri).ok_or(CaseError::NoTag(pri))?;
        self.frame_with(way, tag, ecn)
    }

    /// Like [`Self::frame`], with a given tag.
    ///
    /// # Errors
    /// The frame cannot be made.
    pub fn frame_with(
        &self,
        way: (usize, usize),
        tag: Tag,
        ecn: Ecn,
    ) -> Result<Vec<u8>, CaseError> {
        let tagged = if matches!(tag, Tag::Pcp(_)) { 4 } else { 0 };
        // 60 bytes are Ethernet's minimum without FCS. An output may remove the tag, and the frame must not get
        // shorter.
        let len = usize::try_from(self.params.packet_size).unwrap_or(64).max(60 + tagged);
        let (src, dst) = way;
        Links::frame(src, dst, tag, ecn, len)
    }

    /// Waits for `count` test frames at an interface; returns source, DSCP and ECN of each, in order of arrival.
    ///
    /// # Errors
    /// Fewer arrive within the limit.
    pub fn delivered(
        &mut self,
        dst: usize,
        count: u64,
    ) -> Result<Vec<(usize, u8, Ecn)>, CaseError> {
        let mut came = Vec::new();
        let what = format!("{count} frames out of {}", self.name(dst));
        let done = self.until(&what, |bench| {
            for seen in bench.links.take(dst)? {
                if let Seen::Test { src, dscp, ecn } = seen {
                    came.push((src, dscp, ecn));
                }
            }
            Ok(came.len() as u64 >= count)
        });
        if let Err(CaseError::Late(_)) = done {
            // A count that falls short is a finding: report how many frames came, instead of a timeout.
            let (port, found) = (self.name(dst).to_owned(), came.len());
            return Err(CaseError::differs(format!("frames out of {port}"), count, found));
        }
        done.map(|()| came)
    }

    /// Lets an output send, and waits until its queue is empty and has sent `count` frames. Goes by the switch's
    /// counters, because an interface of this machine may lose frames of so long a burst.
    ///
    /// # Errors
    /// It sends fewer frames, or more.
    pub fn release(&mut self, dst: usize, pri: u8, count: u64) -> Result<(), CaseError> {
        let before = self.left(dst, pri)?;
        self.send_on(dst, true)?;
        let what = format!("queue {pri} of {} to be empty", self.name(dst));
        self.until(&what, |bench| {
            bench.links.poll()?;
            Ok(bench.depth(dst, pri)? == 0)
        })?;
        let what = format!("frames out of {}", self.name(dst));
        let mut found = 0;
        let sent = self.until(&what, |bench| {
            found = bench.left(dst, pri)? - before;
            Ok(found >= count)
        });
        // More frames than expected means that a threshold is higher than the parameters say.
        if matches!(sent, Err(CaseError::Late(_))) || found > count {
            return Err(CaseError::differs(what, count, found));
        }
        sent
    }

    fn port_counters(&mut self, port: usize, ids: &[i32]) -> Result<u64, CaseError> {
        let id = self.objects.get(port).map_or(0, |of| of.port);
        Ok(self.switch.port_stats(id, ids)?.iter().sum())
    }

    fn queue_counter(&mut self, port: usize, pri: u8, id: QueueCounter) -> Result<u64, CaseError> {
        let queue = self.objects.get(port).and_then(|of| of.queues.get(usize::from(pri))).copied();
        first(self.switch.queue_stats(queue.unwrap_or(0), &[id as i32]))
    }

    fn group_counter(&mut self, port: usize, pri: u8, id: GroupCounter) -> Result<u64, CaseError> {
        let pg = self.row(port, pri).map_or(pri, |row| row.pg);
        let group = self.objects.get(port).and_then(|of| of.groups.get(usize::from(pg))).copied();
        first(self.switch.group_stats(group.unwrap_or(0), &[id as i32]))
    }

    /// Frames that the priority group of `pri` has received.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn arrived(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.group_counter(port, pri, GroupCounter::Packets)
    }

    /// Highest fill of a group in bytes, without headroom, since the last call.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn group_mark(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.group_counter(port, pri, GroupCounter::SharedWatermarkBytes)
    }

    /// Highest use of a group's headroom in bytes since the last call.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn headroom_mark(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.group_counter(port, pri, GroupCounter::XoffRoomWatermarkBytes)
    }

    /// Frames that a queue has sent.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn left(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.queue_counter(port, pri, QueueCounter::Packets)
    }

    /// Current depth of a queue in bytes.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn depth(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.queue_counter(port, pri, QueueCounter::OccupancyBytes)
    }

    /// Highest depth of a queue in bytes since the last call.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn queue_mark(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        let mark = self.queue_counter(port, pri, QueueCounter::SharedWatermarkBytes)?;
        let queue = self.objects.get(port).and_then(|of| of.queues.get(usize::from(pri))).copied();
        self.switch
            .clear_queue(queue.unwrap_or(0), &[QueueCounter::SharedWatermarkBytes as i32])?;
        Ok(mark)
    }

    /// Highest use of the pool's shared part, and of all headroom, in bytes since the last call.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn pool_marks(&mut self) -> Result<(u64, u64), CaseError> {
        let ids = PoolCounter::ALL.iter().map(|id| *id as i32).collect::<Vec<_>>();
        let marks = self.switch.pool_stats(self.pool, &ids)?;
        self.switch.clear_pool(self.pool, &ids)?;
        Ok((marks.first().copied().unwrap_or(0), marks.get(1).copied().unwrap_or(0)))
    }

    /// Bytes in all queues of an output.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn queued(&mut self, port: usize) -> Result<u64, CaseError> {
        let queues = self.objects.get(port).map(|of| of.queues.clone()).unwrap_or_default();
        let mut sum = 0;
        for queue in queues {
            sum += first(self.switch.queue_stats(queue, &[QueueCounter::OccupancyBytes as i32]))?;
        }
        Ok(sum)
    }

    /// PFC frames that a port has sent for a class.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn pfc(&mut self, port: usize, class: u8) -> Result<u64, CaseError> {
        self.port_counters(port, &[pfc_tx_counter(class)])
    }

    /// PFC frames that a port has sent, summed over all classes.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn all_pfc(&mut self, port: usize) -> Result<u64, CaseError> {
        let ids: Vec<i32> = (0..8).map(pfc_tx_counter).collect();
        self.port_counters(port, &ids)
    }

    /// PFC frames that a port has sent, summed over all classes but this one.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn other_pfc(&mut self, port: usize, class: u8) -> Result<u64, CaseError> {
        let ids: Vec<i32> = (0..8).filter(|other| *other != class).map(pfc_tx_counter).collect();
        self.port_counters(port, &ids)
    }

    /// Frames of an input dropped because its headroom was full.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn dropped_in(&mut self, port: usize) -> Result<u64, CaseError> {
        self.port_counters(port, &[PortCounter::InDiscards as i32])
    }

    /// Frames for an output dropped at its thresholds.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn dropped_out(&mut self, port: usize) -> Result<u64, CaseError> {
        self.port_counters(port, &[PortCounter::OutDiscards as i32])
    }

    /// Sends two frames of a lossy priority through the switch, one after the other, to show that it is running. A
    /// switch whose thread waits for a processor sends no PFC frames either, and its silence proves nothing. After the
    /// first frame has passed, all that was due before the second is done.
    ///
    /// # Errors
    /// A frame does not pass.
    pub fn passes(&mut self, way: (usize, usize)) -> Result<(), CaseError> {
        let Some(pri) = self.priority(way.0, false) else { return Ok(()) };
        for _ in 0..2 {
            let before = self.left(way.1, pri)?;
            self.fill(way, pri, 1)?;
            self.until("a frame to pass", |bench| {
                bench.links.poll()?;
                Ok(bench.left(way.1, pri)? > before)
            })?;
        }
        Ok(())
    }

    /// Waits until a count has not changed for `CALM`, and returns it.
    ///
    /// # Errors
    /// It still changes at the limit.
    pub fn settles(
        &mut self,
        what: &str,
        mut count: impl FnMut(&mut Self) -> Result<u64, CaseError>,
    ) -> Result<u64, CaseError> {
        let (mut last, mut since) = (count(self)?, now());
        self.until(what, |bench| {
            let found = count(bench)?;
            if found != last {
                (last, since) = (found, now());
            }
            Ok(now().since(since) >= CALM)
        })?;
        Ok(last)
    }

    /// Checks that a count does not change for `span`, or `CALM` if that is longer.
    ///
    /// # Errors
    /// It changes.
    pub fn stays(
        &mut self,
        what: &str,
        mut count: impl FnMut(&mut Self) -> Result<u64, CaseError>,
        span: Span,
    ) -> Result<u64, CaseError> {
        let (before, end) = (count(self)?, now() + span.max(CALM));
        loop {
            let found = count(self)?;
            if found != before {
                return Err(CaseError::differs(what, before, found));
            }
            if now() >= end {
                return Ok(before);
            }
            wait::pause(LOOK);
        }
    }

    /// Waits until a port has sent `REPEATS` PFC frames of a class; returns the time that took, which is longer than
    /// the interval of one repetition.
    ///
    /// # Errors
    /// It sends fewer within the limit.
    pub fn is_paused(&mut self, port: usize, class: u8) -> Result<Span, CaseError> {
        let (begun, at) = (self.pfc(port, class)?, now());
        let what = format!("PAUSE of class {class} by {}, again and again", self.name(port));
        self.until(&what, |bench| Ok(bench.pfc(port, class)? >= begun + REPEATS))?;
        Ok(now().since(at))
    }
}

/// However the test ends, no port of the switch stays held.
impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.free_all(); // a switch that is gone holds nothing
    }
}

fn first(counts: Result<Vec<u64>, SaiError>) -> Result<u64, CaseError> {
    Ok(counts?.first().copied().unwrap_or(0))
}
