//! Watches a running switch, posts changes to the event log, and writes events to standard error.
//!
//! [`Watcher::start`] runs two threads over a [`SwitchHandle`]: one looks at levels and counters ten times a second,
//! the other writes. Writing may block when the reader of standard error does not read; looking must not.
//! Source: docs/spec/pipeline.md §9 (watchdog), §10 (level-triggered words that control re-reads); docs/running.md
//! "Events".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_base::threads::{self, Ends, Role};
use weft_base::wait;
use weft_config::resolve::CPU_PORT;
use weft_dataplane::fdb::FdbKey;
use weft_dataplane::stats::{Counter, DropReason, PortStats};
use weft_dataplane::types::{PortId, PortSet, PriSet};

use super::backend::SwitchHandle;
use crate::events::{self, EventLog, Kind};
use crate::log::Log;
use crate::supervise::Heartbeats;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Looks after the start in which links may come up; a link that is down after them is reported.
const SETTLED: u64 = 10;
/// Looks in a row at which a worker stood still, after which it is reported: 2 s.
const STALLED: u32 = 20;
/// Looks after which a count that keeps rising is reported again: a minute.
const AGAIN: u64 = 600;
/// How long writing the last events may take at the end.
const LAST: Duration = Duration::from_millis(500);
/// Moves of stations that are reported at one look; more are only counted.
const MOVES: usize = 64;

/// Owns the two threads; dropping it ends them.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    looks: JoinHandle<()>,
    writes: JoinHandle<()>,
}

impl Watcher {
    /// Watches `switch`, and writes events to standard error in the form that `log` says.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(switch: &Arc<SwitchHandle>, log: Log) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = || {
            let stop = stop.clone();
            Ends::when(move || stop.load(Ordering::Acquire))
        };
        let (switch, over) = (switch.clone(), stop.clone());
        let looks = threads::spawn(Role::Events, "weft-events", asked(), move || {
            let mut seen = Seen::new();
            while !over.load(Ordering::Acquire) {
                seen.look(&switch, events::log());
                // The last events of a flood are posted here, once their kind may post again: no later event would
                // bring them out.
                events::log().post_suppressed();
                std::thread::park_timeout(LOOK);
            }
        })?;
        let over = stop.clone();
        let writes = threads::spawn(Role::Events, "weft-log", asked(), move || {
            write_all(events::log(), log, &over);
        })?;
        Ok(Self { stop, looks, writes })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release); // pairs with both threads
        self.looks.thread().unpark();
        let mut left = LAST.as_millis() / 10;
        // A reader that does not read holds the writer up for ever; the process is to end all the same. So the thread
        // is not joined.
        while left > 0 && !self.writes.is_finished() {
            wait::pause(Duration::from_millis(10));
            left -= 1;
        }
    }
}

/// Writes events until told to stop, and then those that are left.
fn write_all(event_log: &EventLog, log: Log, over: &AtomicBool) {
    let mut last = 0;
    loop {
        // The flag is read before the last page is taken: events posted before the end are then on that page. Pairs
        // with the Release store of `drop`.
        let is_over = over.load(Ordering::Acquire); // before the last look
        let page = event_log.wait_after(last, if is_over { Duration::ZERO } else { LOOK });
        for event in &page.events {
            log.event(event);
        }
        last = page.last;
        if is_over {
            return;
        }
    }
}

/// A count that is reported when it begins to rise, and now and then while it keeps rising.
#[derive(Debug, Default)]
struct Rising {
    told: u64,
    at: Option<u64>,
}

impl Rising {
    /// By how much the count has risen since it was reported, if that is to be reported now.
    fn look(&mut self, look: u64, count: u64) -> Option<u64> {
        let more = count.saturating_sub(self.told);
        let is_due = self.at.is_none_or(|at| look >= at + AGAIN);
        (more > 0 && is_due).then(|| {
            (self.told, self.at) = (count, Some(look));
            more
        })
    }
}

/// State as of the last look, to report changes only.
struct Seen {
    look: u64,
    up: PortSet,
    told_down: bool,
    last_errors: Vec<Option<String>>,
    storming: Vec<PriSet>,
    loop_ports: PortSet,
    blocked: PortSet,
    held: Rising,
    full: Rising,
    limit: Rising,
    /// By port number.
    kernel_lost: Vec<Rising>,
    lost: Vec<(String, Rising)>,
    failed: Vec<String>,
    heartbeats: Heartbeats,
    stalled: Vec<bool>,
}

impl Seen {
    fn new() -> Self {
        Self {
            look: 0,
            up: PortSet::EMPTY,
            told_down: false,
            last_errors: Vec::new(),
            storming: Vec::new(),
            loop_ports: PortSet::EMPTY,
            blocked: PortSet::EMPTY,
            held: Rising::default(),
            full: Rising::default(),
            limit: Rising::default(),
            kernel_lost: Vec::new(),
            lost: Vec::new(),
            failed: Vec::new(),
            heartbeats: Heartbeats::default(),
            stalled: Vec::new(),
        }
    }

    fn look(&mut self, switch: &SwitchHandle, event_log: &EventLog) {
        self.workers(switch, event_log); // first, as the rest may wait for one
        self.links(switch, event_log);
        self.storms(switch, event_log);
        self.stations(switch, event_log);
        self.blocks(switch, event_log);
        self.kernel_losses(switch, event_log);
        self.mirrors(switch, event_log);
        self.look += 1;
    }

    fn workers(&mut self, switch: &SwitchHandle, event_log: &EventLog) {
        let missed: Vec<u32> = self.heartbeats.look(switch.live().beats()).collect();
        self.stalled.resize(missed.len(), false);
        for (worker, (missed, stalled)) in missed.into_iter().zip(&mut self.stalled).enumerate() {
            let name = worker.to_string();
            // Exactly this many, not more: the event is posted once, however long the worker stands still.
            if missed == STALLED {
                *stalled = true;
                event_log.post(
                    Kind::WorkerStalled,
                    &name,
                    "its loop has been stuck for 2 s: its ports forward nothing",
                );
            } else if missed == 0 && *stalled {
                *stalled = false;
                event_log.post(Kind::WorkerRecovered, &name, "its loop runs again");
            }
        }
    }

    fn links(&mut self, switch: &SwitchHandle, event_log: &EventLog) {
        let core = switch.live().core();
        let up = core.up();
        let settled = self.look == SETTLED && !self.told_down;
        // From here on a link that is down has been reported, so it is not reported again as down since the start.
        self.told_down |= settled;
        let ports = switch.names().iter().enumerate();
        self.last_errors.resize(ports.len(), None);
        for ((index, name), had) in ports.zip(&mut self.last_errors) {
            let Some(id) = PortId::new(index) else { continue };
            // The CPU port is a pipe to the agent, not a link that an operator could mend.
            if name == CPU_PORT {
                continue;
            }
            match (self.up.contains(id), up.contains(id)) {
                (false, true) => event_log.post(Kind::LinkUp, name, "the link came up"),
                (true, false) => event_log.post(Kind::LinkDown, name, "the link went down"),
                (false, false) if settled => {
                    event_log.post(Kind::LinkDown, name, "the link is down since the start");
                }
                _ => {}
            }
            let has = core.last_error(id, |error| format!("{error}: {}", error.source));
            if has != *had {
                match &has {
                    Some(why) => event_log.post(Kind::PortFailed, name, why),
                    None => event_log.post(Kind::PortRecovered, name, "the device works again"),
                }
                *had = has;
            }
        }
        self.up = up;
    }

    fn storms(&mut self, switch: &SwitchHandle, event_log: &EventLog) {
        let core = switch.live().core();
        let ports = switch.names().iter().enumerate();
        self.storming.resize(ports.len(), PriSet::default());
        for ((index, name), had) in ports.zip(&mut self.storming) {
            let Some(id) = PortId::new(index) else { continue };
            let has = core.storming(id);
            for pri in has.without(*had).iter_down() {
                let message = format!(
                    "priority {} is paused without a break: its frames are dropped or sent, as pfc.watchdog_action says",
                    pri.get()
                );
                event_log.post(Kind::PfcStorm, name, &message);
            }
            for pri in had.without(has).iter_down() {
                let message = format!("priority {} is not paused any more", pri.get());
                event_log.post(Kind::PfcStormOver, name, &message);
            }
            *had = has;
        }
    }

    fn stations(&mut self, switch: &SwitchHandle, event_log: &EventLog) {
        let fdb = &switch.live().core().fdb;
        let name = |port: PortId| switch.names().get(port.index()).cloned().unwrap_or_default();
        let station = |key: FdbKey| format!("{} in VLAN {}", key.addr(), key.vid().get());
        // Bounded, so that a loop that moves every station does not flood the log; the loop has an event of its own.
        for (key, from, to) in std::iter::from_fn(|| fdb.pop_move()).take(MOVES) {
            let message = format!("moved from port {} to port {}", name(from), name(to));
            event_log.post(Kind::StationMoved, &station(key), &message);
        }
        let counters = fdb.counters();
        if let Some(more) = self.full.look(self.look, counters.full) {
            let message = format!(
                "{more} times a station was not learned: all {} entries are in use",
                fdb.len()
            );
            event_log.post(Kind::FdbFull, "fdb", &message);
        }
        if let Some(more) = self.limit.look(self.look, counters.port_limit) {
            let message =
                format!("{more} times a station was not learned: its port has reached max_learned");
            event_log.post(Kind::FdbFull, "max_learned", &message);
        }
        let mut ports = fdb.loop_ports();
        if !ports.is_empty() {
            // `loop_alarm` is also the call that ends an alarm which is over.
            let alarm = fdb.loop_alarm(switch.live().now());
            ports = alarm.map_or(PortSet::EMPTY, |alarm| alarm.ports);
            if ports != self.loop_ports
                && let Some(alarm) = alarm
            {
                let names: Vec<String> = ports.iter().map(name).collect();
                let station = station(alarm.key);
                let message = format!("{station} moves between them more than 10 times a second");
                event_log.post(Kind::Loop, &names.join(", "), &message);
            }
        }
        if ports.is_empty() && !self.loop_ports.is_empty() {
            let names: Vec<String> = self.loop_ports.iter().map(name).collect();
            event_log.post(
                Kind::LoopOver,
                &names.join(", "),
                "no station has moved too often for 10 s",
            );
        }
        self.loop_ports = ports;
    }

    /// Reports loops that the probes found, and ports that were blocked or opened because of them.
    fn blocks(&mut self, switch: &SwitchHandle, event_log: &EventLog) {
        let core = switch.live().core();
        let named = |port: PortId| switch.names().get(port.index()).cloned().unwrap_or_default();
        for found in std::iter::from_fn(|| core.pop_loop()) {
            let [sender, came] = [found.sender, found.came].map(named);
            // A port that receives its own probe has the loop behind it, not between two ports of the switch.
            let (subject, message) = if sender == came {
                (came.clone(), format!("what leaves by {sender} comes back in by it"))
            } else {
                (format!("{sender}, {came}"), format!("what leaves by {sender} comes in by {came}"))
            };
            event_log.post(Kind::Loop, &subject, &message);
        }
        let blocked = core.blocked();
        let ports = switch.names().iter().enumerate();
        for (port, name) in ports.filter_map(|(at, name)| Some((PortId::new(at)?, name))) {
            match (self.blocked.contains(port), blocked.contains(port)) {
                (false, true) => {
                    let message = "blocked for fdb.loop_block_s: it is part of a loop";
                    event_log.post(Kind::LoopBlocked, name, message);
                }
                (true, false) => event_log.post(Kind::LoopOpened, name, "not blocked any more"),
                _ => {}
            }
        }
        self.blocked = blocked;
        if let Some(more) = self.held.look(self.look, core.fdb.counters().held) {
            let key = core.fdb.last_loop().map(|alarm| alarm.key);
            let station = key.map_or_else(String::new, |key| {
                format!("{} in VLAN {}", key.addr(), key.vid().get())
            });
            let message = format!("held where it was: {more} frames came in at other ports");
            event_log.post(Kind::StationHeld, &station, &message);
        }
    }

    /// Reports frames lost in the receive ring of a port whose lossless priorities must not lose any.
    fn kernel_losses(&mut self, switch: &SwitchHandle, event_log: &EventLog) {
        let core = switch.live().core();
        let snapshot = core.snapshot.load();
        if snapshot.lossless.is_empty() {
            return;
        }
        let names = switch.names();
        let at_socket = |stats: &PortStats| {
            stats.drops.get(DropReason::XskRing as usize).map_or(0, Counter::get)
        };
        self.kernel_lost.resize_with(names.len(), Rising::default);
        for ((index, name), rising) in names.iter().enumerate().zip(&mut self.kernel_lost) {
            let port = PortId::new(index).filter(|port| snapshot.pfc_ports.contains(*port));
            let Some(port) = port else { continue };
            let worker = switch.live().workers().owner(port);
            let Some(stats) = core.stats.get(worker) else { continue };
            let of_all = core.stats.iter().map(|stats| &stats.port[port]);
            let lost = of_all.map(|port| port.kernel_rx.get() + at_socket(port)).sum();
            if let Some(more) = rising.look(self.look, lost) {
                let pris = snapshot.lossless.iter().map(|pri| pri.get().to_string());
                let pris: Vec<String> = pris.collect();
                let [lately, ever] =
                    [&stats.away_lately_ns, &stats.away_ns].map(|away| away.get() / 1_000_000);
                let message = format!(
                    "{more} frames were lost in its receive ring, though priorities {} must lose none: worker {worker} was away for up to {lately} ms in the last 10 to 20 s ({ever} since the start); see run.priority, run.cores and rx_ring_frames",
                    pris.join(", "),
                );
                event_log.post(Kind::KernelLost, name, &message);
            }
        }
    }

    fn mirrors(&mut self, switch: &SwitchHandle, event_log: &EventLog) {
        let (look, lost, failed) = (self.look, &mut self.lost, &mut self.failed);
        let mut names = Vec::new();
        switch.mirrors(|port, mirror| {
            names.push(port.to_owned());
            if !lost.iter().any(|(name, _)| name == port) {
                lost.push((port.to_owned(), Rising::default()));
            }
            let rising = lost.iter_mut().find(|(name, _)| name == port);
            let why = mirror.failure();
            if why.is_some() != failed.iter().any(|name| name == port) {
                if let Some(why) = &why {
                    failed.push(port.to_owned());
                    event_log.post(Kind::MirrorFailed, port, why);
                } else {
                    failed.retain(|name| name != port); // a new mirror of the port
                }
            }
            if why.is_none()
                && let Some((_, rising)) = rising
                && let Some(more) = rising.look(look, mirror.lost())
            {
                let message =
                    format!("{more} copies are missing from its file: the writer is too slow");
                event_log.post(Kind::MirrorLost, port, &message);
            }
        });
        lost.retain(|(name, _)| names.contains(name));
        failed.retain(|name| names.contains(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_rises_is_told_at_once_and_then_now_and_then() {
        let mut rising = Rising::default();
        #[rustfmt::skip] // columns: look, count, told
        let cases = [
            (0, 0, None), (5, 3, Some(3)), (6, 4, None), (604, 9, None), (605, 9, Some(6)), (2_000, 9, None),
            (2_001, 10, Some(1)),
        ];
        for (look, count, want) in cases {
            assert_eq!(rising.look(look, count), want, "{look}");
        }
    }
}
