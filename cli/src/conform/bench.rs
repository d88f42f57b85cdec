//! The switch under test with this machine at its ports: held, filled, counted.
//!
//! [`Bench`] over SAI's RPC and [`Links`]; ports by number, in the order of the command line.
//!
//! Units: frames, cells as bytes.
//! Source: docs/conform.md; docs/spec/pipeline.md §4, §7, §9.

use std::time::Duration;

use weft_base::wait;
use weft_control::conform::{Params, Row};
use weft_control::sai::client::{PortObjects, SaiClient, SaiError};
use weft_control::sai::objects::{
    GroupCounter, PoolCounter, PortCounter, QueueCounter, pfc_tx_counter,
};
use weft_dataplane::time::Span;
use weft_lab::clock::now;
use weft_parsers::Ecn;

use super::links::{Links, Seen, Tag};
use super::{CaseError, End};

/// Frames that are sent before they are seen to have arrived: fewer than a port's receive ring has.
const FLIGHT: u64 = 256;
/// How long something is watched that must not happen.
const CALM: Span = Span::from_ms(100);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(10);
/// Counts of PFC frames that show that a PAUSE is repeated.
const REPEATS: u64 = 3;

/// The switch, and this machine's ends of its ports.
pub struct Bench {
    switch: SaiClient,
    links: Links,
    ends: Vec<End>,
    objects: Vec<PortObjects>,
    /// What is known of it.
    pub params: Params,
    pool: i64,
    /// How long the switch may take for what is waited for.
    limit: Duration,
}

impl Bench {
    /// Looks up the ports of `ends` in `switch` and opens the interfaces.
    ///
    /// # Errors
    /// A port that is not there, an interface that cannot be opened.
    pub fn new(
        mut switch: SaiClient,
        ends: Vec<End>,
        params: Params,
        limit: Duration,
    ) -> Result<Self, CaseError> {
        let mut objects = Vec::with_capacity(ends.len());
        for end in &ends {
            let found = switch.port(&end.port)?;
            objects.push(found.ok_or_else(|| CaseError::NoPort(end.port.clone()))?);
        }
        let interfaces: Vec<&str> = ends.iter().map(|end| end.interface.as_str()).collect();
        let links = Links::open(&interfaces)?;
        let digits = params.buf_pool_roid.trim_start_matches("0x");
        let pool = i64::from_str_radix(digits, 16).unwrap_or(0);
        Ok(Self { switch, links, ends, objects, params, pool, limit })
    }

    /// How many ports there are.
    #[must_use]
    pub const fn ports(&self) -> usize {
        self.ends.len()
    }

    /// Name of a port.
    #[must_use]
    pub fn name(&self, port: usize) -> &str {
        self.ends.get(port).map_or("", |end| &end.port)
    }

    /// Thresholds of a port and priority.
    #[must_use]
    pub fn row(&self, port: usize, pri: u8) -> Option<&Row> {
        let name = self.name(port);
        self.params.rows.iter().find(|row| row.port == name && row.pri == pri)
    }

    /// The first lossless, or lossy, priority of a port for which frames can be made.
    #[must_use]
    pub fn priority(&self, port: usize, lossless: bool) -> Option<u8> {
        let name = self.name(port);
        let mut rows = self.params.rows.iter().filter(|row| row.port == name);
        rows.find(|row| row.lossless == lossless && self.tag(port, row.pri).is_some())
            .map(|row| row.pri)
    }

    /// The PFC class that a PAUSE for a priority of a port names.
    #[must_use]
    pub fn class(&self, port: usize, pri: u8) -> u8 {
        self.row(port, pri).and_then(|row| row.pfc_classes.first().copied()).unwrap_or(pri)
    }

    /// What has `port` put a frame into priority `pri`.
    #[must_use]
    pub fn tag(&self, port: usize, pri: u8) -> Option<Tag> {
        let first =
            |map: &[u8]| map.iter().position(|&of| of == pri).and_then(|at| u8::try_from(at).ok());
        let trusts = |field| self.trusts(port, field);
        let by_dscp = || first(&self.params.dscp_to_pri).filter(|_| trusts("dscp")).map(Tag::Dscp);
        let by_pcp = || first(&self.params.pcp_to_pri).filter(|_| trusts("pcp")).map(Tag::Pcp);
        by_dscp().or_else(by_pcp)
    }

    /// Whether `port` looks at `field` of frames that have it; at both where nothing is known.
    #[must_use]
    pub fn trusts(&self, port: usize, field: &str) -> bool {
        let known = self.params.port(self.name(port));
        known.is_none_or(|port| port.trust.iter().any(|of| of == field))
    }

    /// Lets all ports send, waits until nothing is queued for them, and forgets what came.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub fn fresh(&mut self) -> Result<(), CaseError> {
        self.free_all()?;
        for port in 0..self.ports() {
            self.until("empty queues", |bench| Ok(bench.queued(port)? == 0))?;
        }
        for port in 0..self.ports() {
            self.links.take(port)?;
        }
        self.links.announce()?;
        for port in 0..self.ports() {
            let mut heard = 0;
            let what = format!("each station's broadcast out of {}", self.name(port));
            self.until(&what, |bench| {
                let came = bench.links.take(port)?;
                heard += came.iter().filter(|seen| matches!(seen, Seen::Hello(_))).count();
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

    /// Holds a port's queues, or lets it send.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn send_on(&mut self, port: usize, on: bool) -> Result<(), CaseError> {
        let id = self.objects.get(port).map_or(0, |of| of.port);
        Ok(self.switch.set_tx(id, on)?)
    }

    /// Waits for something to be so.
    ///
    /// # Errors
    /// It is not within the limit, or cannot be asked.
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

    /// Sends frames that the switch is seen to take: their groups count them, before the next are sent.
    ///
    /// # Errors
    /// They do not arrive.
    pub fn fill(&mut self, way: (usize, usize), pri: u8, count: u64) -> Result<(), CaseError> {
        let frame = self.frame(way, pri, Ecn::NotEct)?;
        self.fill_with(way.0, pri, &frame, count)
    }

    /// As [`Self::fill`], `frame` again and again.
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
                bench.links.poll()?;
                Ok(bench.arrived(src, pri)? >= begun + sent)
            })?;
        }
        Ok(())
    }

    /// Sends frames, and does not wait.
    ///
    /// # Errors
    /// The device sends nothing.
    pub fn send(&mut self, src: usize, frame: &[u8], count: u64) -> Result<(), CaseError> {
        self.links.send(src, frame, count)
    }

    /// A frame from port to port of the length that the parameters are for.
    ///
    /// # Errors
    /// There is no such frame.
    pub fn frame(&self, way: (usize, usize), pri: u8, ecn: Ecn) -> Result<Vec<u8>, CaseError> {
        let tag = self.tag(way.0, pri).ok_or(CaseError::NoTag(pri))?;
        self.frame_with(way, tag, ecn)
    }

    /// As [`Self::frame`], with a field of its own.
    ///
    /// # Errors
    /// There is no such frame.
    pub fn frame_with(
        &self,
        way: (usize, usize),
        tag: Tag,
        ecn: Ecn,
    ) -> Result<Vec<u8>, CaseError> {
        let tagged = if matches!(tag, Tag::Pcp(_)) { 4 } else { 0 };
        let len = usize::try_from(self.params.packet_size).unwrap_or(64).max(60 + tagged);
        let (src, dst) = way;
        Links::frame(src, dst, tag, ecn, len)
    }

    /// Waits for test frames at an interface: those that came, in order.
    ///
    /// # Errors
    /// Fewer come.
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
            let (port, found) = (self.name(dst).to_owned(), came.len());
            return Err(CaseError::differs(format!("frames out of {port}"), count, found));
        }
        done.map(|()| came)
    }

    /// Lets an output send, and waits until its queue is empty and has sent `count` frames. They are not looked at: there may be
    /// more than an interface of this machine can take at once.
    ///
    /// # Errors
    /// It sends others, or more.
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

    /// Frames of a priority's group that came to the switch.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn arrived(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.group_counter(port, pri, GroupCounter::Packets)
    }

    /// Most bytes of a group, headroom apart, since this was asked last.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn group_mark(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.group_counter(port, pri, GroupCounter::SharedWatermarkBytes)
    }

    /// Most bytes of a group's headroom since this was asked last.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn headroom_mark(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.group_counter(port, pri, GroupCounter::XoffRoomWatermarkBytes)
    }

    /// Frames that left by a queue.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn left(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.queue_counter(port, pri, QueueCounter::Packets)
    }

    /// Bytes of a queue.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn depth(&mut self, port: usize, pri: u8) -> Result<u64, CaseError> {
        self.queue_counter(port, pri, QueueCounter::OccupancyBytes)
    }

    /// Most bytes of a queue since this was asked last.
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

    /// Most bytes of the shared part, and of headroom, since this was asked last.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn pool_marks(&mut self) -> Result<(u64, u64), CaseError> {
        let ids = PoolCounter::ALL.iter().map(|id| *id as i32).collect::<Vec<_>>();
        let marks = self.switch.pool_stats(self.pool, &ids)?;
        self.switch.clear_pool(self.pool, &ids)?;
        Ok((marks.first().copied().unwrap_or(0), marks.get(1).copied().unwrap_or(0)))
    }

    /// Bytes queued for an output.
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

    /// PFC frames of a class that a port has sent.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn pfc(&mut self, port: usize, class: u8) -> Result<u64, CaseError> {
        self.port_counters(port, &[pfc_tx_counter(class)])
    }

    /// PFC frames that a port has sent, of all classes.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn all_pfc(&mut self, port: usize) -> Result<u64, CaseError> {
        let ids: Vec<i32> = (0..8).map(pfc_tx_counter).collect();
        self.port_counters(port, &ids)
    }

    /// PFC frames that a port has sent, of all classes but this one.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn other_pfc(&mut self, port: usize, class: u8) -> Result<u64, CaseError> {
        let ids: Vec<i32> = (0..8).filter(|other| *other != class).map(pfc_tx_counter).collect();
        self.port_counters(port, &ids)
    }

    /// Frames dropped of an input for want of headroom.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn dropped_in(&mut self, port: usize) -> Result<u64, CaseError> {
        self.port_counters(port, &[PortCounter::InDiscards as i32])
    }

    /// Frames dropped that were to leave by an output, headroom apart.
    ///
    /// # Errors
    /// See [`CaseError`].
    pub fn dropped_out(&mut self, port: usize) -> Result<u64, CaseError> {
        self.port_counters(port, &[PortCounter::OutDiscards as i32])
    }

    /// Has frames of a lossy priority pass the switch: one that waits for a processor sends no PFC frame, either. Two of them,
    /// so that it has done all that was due between.
    ///
    /// # Errors
    /// They do not pass.
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

    /// Waits until a count has stayed as it is for a while.
    ///
    /// # Errors
    /// It does not within the limit.
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

    /// Watches for a while that a count stays as it is.
    ///
    /// # Errors
    /// It does not.
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

    /// Waits until PAUSE of a class is sent again and again; how long a repetition takes at most.
    ///
    /// # Errors
    /// It is not.
    pub fn is_paused(&mut self, port: usize, class: u8) -> Result<Span, CaseError> {
        let (begun, at) = (self.pfc(port, class)?, now());
        let what = format!("PAUSE of class {class} by {}, again and again", self.name(port));
        self.until(&what, |bench| Ok(bench.pfc(port, class)? >= begun + REPEATS))?;
        Ok(now().since(at))
    }
}

/// Held ports of a switch under test send again, however the test ends.
impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.free_all(); // a switch that is gone holds nothing
    }
}

fn first(counts: Result<Vec<u64>, SaiError>) -> Result<u64, CaseError> {
    Ok(counts?.first().copied().unwrap_or(0))
}
