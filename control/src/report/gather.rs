//! Gathers a report from the data plane's counters.
//!
//! [`Source`] has all that is read; the caller holds the workers meanwhile, so that sums add up.
//!
//! Source: docs/spec/pipeline.md §10.

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::fdb::FdbEntry;
use weft_dataplane::pipeline::{Core, Ledger, PortLedger, QueueLedger};
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::stats::{DropReason, OUTPUT_REASONS, SIZE_BIN_NAMES};
use weft_dataplane::time::Instant;
use weft_dataplane::types::{PortId, PortSet, Pri, QueueKey};
use weft_dataplane::worker::Stuck;
use weft_parsers::Format;

use super::watermarks::{Mark, Reader, Watermarks};
use super::{
    BufferReport, ConservationReport, DropsReport, FdbRow, FdbSummary, Named, PfcReport,
    PortReport, QueueReport, StatsSnapshot, WaitingReport, WorkerReport,
};

/// Facts about a port that are in no counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortInfo {
    /// Kind that was opened; never `auto`.
    pub kind: String,
    pub device: String,
    /// Why it is not as usual.
    pub note: Option<String>,
    /// Why the kernel forwards none of its frames, where the configuration asks for that.
    pub no_express: Option<String>,
    /// Warning about an MTU that lets hosts send longer frames than the port takes.
    pub mtu_warning: Option<String>,
}

/// Frames that came in at a port and were forwarded by the kernel.
fn express(stats: &weft_dataplane::stats::PortStats) -> u64 {
    Pri::ALL.iter().map(|&pri| stats.pri[pri].enqueued.get()).sum()
}

/// All that a report is made from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub name: &'a str,
    /// State that all workers share.
    pub core: &'a Core,
    /// By port number.
    pub port_info: &'a [PortInfo],
    /// Time since the switch started.
    pub now: Instant,
    /// Workers that could not be held: counters are read while they run, or are stuck.
    pub stuck: Option<&'a Stuck>,
    /// Watermarks that other readers' restarts have kept back; `None` for a switch that has ended.
    pub watermarks: Option<&'a Watermarks>,
}

impl Source<'_> {
    /// Reads everything. Exact if no worker is in a step meanwhile.
    #[must_use]
    pub fn stats(&self) -> StatsSnapshot {
        self.stats_of(&Ledger::read(self.core))
    }

    /// As [`Self::stats`], with counters that were read before.
    #[must_use]
    pub fn stats_of(&self, ledger: &Ledger) -> StatsSnapshot {
        let snapshot = self.core.snapshot.load();
        let config = &snapshot.config;
        // Thresholds depend on the free part of the buffer; all are computed from one value, so that they fit together.
        let free = ledger.shared_total.saturating_sub(ledger.shared_used);
        let ports: Vec<_> =
            (0..config.ports.len()).filter_map(PortId::new).zip(&ledger.port).collect();
        let by_queue = || {
            ports
                .iter()
                .flat_map(|&(id, port)| Pri::ALL.into_iter().zip(&port.pri).map(move |q| (id, q)))
        };
        StatsSnapshot {
            switch: self.name.to_owned(),
            // The event log has these; the caller fills them in.
            events: Named::new(),
            // The agent has these; the caller fills them in.
            fabric: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ns: self.now.as_ns(),
            epoch: snapshot.epoch,
            ports: ports.iter().map(|&(id, port)| self.port(config, id, port)).collect(),
            queues: by_queue()
                .map(|(id, (pri, queue))| QueueReport {
                    voq_limit_cells: snapshot.thresholds.voq_limit_with(pri, free).into(),
                    waiting: self.waiting(config, id, pri, queue),
                    depth_watermark_cells: self
                        .most(Mark::Depth(id.get(), pri.get()), queue.depth_watermark),
                    ..of_queue(config, id, pri, queue)
                })
                .collect(),
            pfc: by_queue()
                .map(|(id, (pri, queue))| self.pfc(&snapshot, free, id, pri, queue))
                .collect(),
            drops: drops(config, &ports),
            buffer: BufferReport {
                cell_bytes: config.buffer.cell_bytes.into(),
                total_cells: snapshot.plan.total,
                headroom_cells: snapshot.plan.headroom,
                reserve_cells: snapshot.plan.reserves,
                shared_cells: ledger.shared_total,
                shared_used_cells: ledger.shared_used,
                shared_watermark_cells: self.most(Mark::Shared, ledger.shared_watermark),
                headroom_used_cells: ledger.headroom_used,
                headroom_watermark_cells: self.most(Mark::HeadroomPool, ledger.headroom_watermark),
                chunks: ledger.chunks,
                chunks_used: ledger.chunks_used,
                chunks_free: ledger.chunks.saturating_sub(ledger.chunks_used),
            },
            fdb: self.fdb(config),
            conservation: ConservationReport {
                rx: ledger.rx,
                copies: ledger.copies,
                tx: ledger.tx,
                dropped: ledger.dropped,
                consumed: ledger.consumed,
                queued: ledger.queued,
                imbalance: ledger.imbalance(),
                holds: ledger.imbalance() == 0,
                inexact: self.stuck.map(ToString::to_string),
            },
            workers: self.workers(),
        }
    }

    /// FDB entries, by VLAN and address.
    #[must_use]
    pub fn fdb_rows(&self) -> Vec<FdbRow> {
        let snapshot = self.core.snapshot.load();
        let mut rows: Vec<FdbRow> = self
            .core
            .fdb
            .iter(self.now)
            .map(|entry| FdbRow {
                vid: entry.key.vid().get(),
                addr: entry.key.addr().to_string(),
                port: place_of(&snapshot, &entry),
                is_static: entry.is_static,
                age_s: entry.age.as_ns() / 1_000_000_000,
            })
            .collect();
        rows.sort_unstable();
        rows
    }

    /// Highest value of `mark` since `weft show` last restarted it, where the workers' highest is `highest`.
    fn most(&self, mark: Mark, highest: u64) -> u64 {
        let kept = self.watermarks;
        kept.map_or(highest, |kept| kept.since_restart(Reader::Show, mark, highest))
    }

    /// By input, the frames that are queued for (output, pri).
    fn waiting(
        &self,
        config: &SwitchConfig,
        output: PortId,
        pri: Pri,
        queue: &QueueLedger,
    ) -> Vec<WaitingReport> {
        // Nothing is queued for most queues: the loop over all inputs is left out.
        if queue.depth == 0 {
            return Vec::new();
        }
        let of = |input: PortId| WaitingReport {
            input: name_of(config, input),
            lossy_cells: self.core.buffer.voq_used(QueueKey { input, output, pri }).into(),
            lossless_frames: self
                .core
                .buffer
                .lossless_waiting(QueueKey { input, output, pri })
                .into(),
        };
        let inputs = (0..config.ports.len()).filter_map(PortId::new).map(of);
        inputs.filter(|of| of.lossy_cells + of.lossless_frames > 0).collect()
    }

    fn pfc(
        &self,
        snapshot: &Snapshot,
        free: u64,
        id: PortId,
        pri: Pri,
        queue: &QueueLedger,
    ) -> PfcReport {
        let (config, lossless) = (&snapshot.config, snapshot.is_lossless(id, pri));
        // Only lossless priorities have headroom and send PAUSE; zeros say so in the report.
        let headroom = if lossless { snapshot.thresholds.headroom(id) } else { 0 };
        let (port, number) = (id.get(), pri.get());
        let xoff = if lossless { snapshot.thresholds.group_limit_with(pri, free) } else { 0 };
        let xon = if lossless { snapshot.thresholds.xon(xoff) } else { 0 };
        PfcReport {
            port: name_of(config, id),
            pri: number,
            pg: config.maps.pri_to_pg[pri],
            lossless,
            classes: (0..8).filter(|class| config.pfc.classes[pri] >> class & 1 != 0).collect(),
            xoff_now: self.core.xoff(id).contains(pri),
            paused_now: self.core.paused(id).contains(pri),
            storm_now: self.core.storming(id).contains(pri),
            headroom_size_cells: headroom.into(),
            xoff_cells: xoff.into(),
            xon_cells: xon.into(),
            group_watermark_cells: self.most(Mark::Group(port, number), queue.pg_watermark),
            headroom_watermark_cells: self
                .most(Mark::Headroom(port, number), queue.headroom_watermark),
            ..of_pfc(queue)
        }
    }

    fn port(&self, config: &SwitchConfig, id: PortId, port: &PortLedger) -> PortReport {
        let port_info = self.port_info.get(id.index()).cloned().unwrap_or_default();
        let of = config.ports.get(id.index());
        PortReport {
            port: id.get(),
            name: name_of(config, id),
            kind: port_info.kind,
            device: port_info.device,
            link_up: self.core.up().contains(id),
            rate_bps: of.map_or(0, |port| port.rate.as_bps()),
            mac: of.map_or_else(String::new, |port| port.parse.port_mac.to_string()),
            afh: of.map_or_else(String::new, |port| port.parse.afh.name().to_owned()),
            lag: lag_of(config, id).map(str::to_owned),
            note: port_info.note,
            last_error: self.core.last_error(id, |error| format!("{error}: {}", error.source)),
            blocked: self.blocked(config, id),
            tx_off: self.core.tx_off().contains(id),
            loop_blocks: port.loop_blocks,
            loop_probes: port.loop_probes,
            loop_probes_bad: port.loop_probes_bad,
            no_express: port_info.no_express,
            mtu_warning: port_info.mtu_warning,
            express: express(&self.core.fast.stats.port[id]),
            rx_frames: port.rx_frames,
            rx_bytes: port.rx_bytes,
            tx_frames: port.tx_frames,
            tx_bytes: port.tx_bytes,
            rx_formats: named(Format::ALL.iter().map(|f| f.name()), &port.rx_format),
            tx_formats: named(Format::ALL.iter().map(|f| f.name()), &port.tx_format),
            rx_group_frames: port.rx_group_frames,
            tx_group_frames: port.tx_group_frames,
            rx_sizes: SIZE_BIN_NAMES.map(str::to_owned).into_iter().zip(port.rx_size).collect(),
            copies: port.copies,
            consumed: port.consumed,
            pause_rx: port.pause_rx,
            cbfc_rx: port.cbfc_rx,
            mac_control_bad: port.mac_control_bad,
            mac_control_unknown: port.mac_control_unknown,
            pfc_rx: port.pfc_rx,
            pfc_tx: port.pfc_tx,
            pfc_tx_late: port.pfc_tx_late,
            pfc_guard: port.pfc_guard,
            dropped: port.drops.iter().sum(),
            kernel_rx: port.kernel_rx,
            learned: self.core.fdb.learned(id).into(),
            fdb_moves: port.fdb_moves,
        }
    }

    /// Reason for which a port is blocked.
    fn blocked(&self, config: &SwitchConfig, id: PortId) -> Option<String> {
        if !self.core.blocked().contains(id) {
            return None;
        }
        // Blocked because of a probe: this port is known to receive the frames of `sender`.
        if let Some(sender) = self.core.blocked_for(id) {
            return Some(format!("loop: what leaves by {} comes in here", name_of(config, sender)));
        }
        // Blocked because of moving stations: only the last alarm is known, which may be of other ports by now.
        let told = self.core.fdb.last_loop().map(|alarm| {
            let [from, to] = [alarm.from, alarm.to].map(|port| name_of(config, port));
            format!(": {} moved between {from} and {to} too often", alarm.key)
        });
        Some(format!("loop{}", told.unwrap_or_default()))
    }

    fn fdb(&self, config: &SwitchConfig) -> FdbSummary {
        let (fdb, counters) = (&self.core.fdb, self.core.fdb.counters());
        let names = |ports: PortSet| ports.iter().map(|port| name_of(config, port)).collect();
        FdbSummary {
            capacity: config.forward.fdb_capacity as u64,
            used: fdb.len() as u64,
            learned: counters.learned,
            moved: counters.moved,
            aged: counters.aged,
            port_limit: counters.port_limit,
            full: counters.full,
            busy: counters.busy,
            events_lost: counters.events_lost,
            held: counters.held,
            loop_alarms: counters.loop_alarms,
            loop_ports: names(fdb.loop_ports()),
        }
    }

    fn workers(&self) -> Vec<WorkerReport> {
        let report =
            |(worker, stats): (usize, &std::sync::Arc<weft_dataplane::stats::WorkerStats>)| {
                WorkerReport {
                    worker,
                    frames: stats.frames.get(),
                    bursts: stats.bursts.get(),
                    busy_ns: stats.busy_ns.get(),
                    busy_cycles: stats.busy_cycles.get(),
                    uptime_ns: self.now.as_ns(),
                    heartbeat_age_ns: self.now.as_ns().saturating_sub(stats.beat_ns.get()),
                    away_lately_ns: stats.away_lately_ns.get(),
                    away_max_ns: stats.away_ns.get(),
                    stuck: self.stuck.is_some_and(|stuck| stuck.workers.contains(&worker)),
                    loops: stats.loops.get(),
                    busy_loops: stats.busy_loops.get(),
                    service_errors: stats.service_errors.get(),
                    learn_busy: stats.learn_busy.get(),
                }
            };
        self.core.stats.iter().enumerate().map(report).collect()
    }
}

fn name_of(config: &SwitchConfig, id: PortId) -> String {
    config.ports.get(id.index()).map_or_else(|| id.get().to_string(), |port| port.name.clone())
}

/// Name of the LAG that a port is in.
fn lag_of(config: &SwitchConfig, id: PortId) -> Option<&str> {
    config.lags.iter().find(|lag| lag.ports.contains(id)).map(|lag| lag.name.as_str())
}

/// Place of an entry's station: a port, a LAG, or several of them.
fn place_of(snapshot: &Snapshot, entry: &FdbEntry) -> String {
    let config = &snapshot.config;
    // Learned entries have one place, even where a static one of the same address would be spread.
    let spread = snapshot.links.station(entry.key.vid(), entry.key.addr());
    let ports = spread.filter(|_| entry.is_static).unwrap_or(PortSet::only(entry.port));
    let name = |id| lag_of(config, id).map_or_else(|| name_of(config, id), str::to_owned);
    ports.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Counts by name, without those that are 0.
fn named<'a>(names: impl Iterator<Item = &'a str>, counts: &[u64]) -> Named {
    let pairs = names.zip(counts).filter(|(_, count)| **count != 0);
    pairs.map(|(name, count)| (name.to_owned(), *count)).collect()
}

fn drop_names() -> impl Iterator<Item = &'static str> {
    DropReason::ALL.iter().map(|reason| reason.name())
}

fn of_queue(config: &SwitchConfig, id: PortId, pri: Pri, queue: &QueueLedger) -> QueueReport {
    QueueReport {
        port: name_of(config, id),
        pri: pri.get(),
        enqueued: queue.enqueued,
        dequeued: queue.dequeued,
        purged: queue.purged,
        tx_bytes: queue.tx_bytes,
        dropped: queue.drops.iter().sum(),
        ecn_marked: queue.ecn_marked,
        output_dropped: queue.output_drops.iter().sum(),
        output_drops: named(OUTPUT_REASONS.iter().map(|reason| reason.name()), &queue.output_drops),
        depth_cells: queue.depth,
        ..QueueReport::default()
    }
}

fn of_pfc(queue: &QueueLedger) -> PfcReport {
    PfcReport {
        xoff: queue.xoff,
        xon: queue.xon,
        pause_tx: queue.pause_tx,
        resume_tx: queue.resume_tx,
        pause_rx: queue.pause_rx,
        resume_rx: queue.resume_rx,
        paused_ns: queue.paused_ps / 1_000,
        storms: queue.storms,
        group_cells: queue.pg_used,
        headroom_cells: queue.headroom_used,
        ..PfcReport::default()
    }
}

fn drops(config: &SwitchConfig, ports: &[(PortId, &PortLedger)]) -> DropsReport {
    let mut report = DropsReport::default();
    for &(id, port) in ports {
        let name = name_of(config, id);
        let here = named(drop_names(), &port.drops);
        for (reason, count) in &here {
            *report.total.entry(reason.clone()).or_default() += count;
        }
        if !here.is_empty() {
            report.ports.insert(name.clone(), here);
        }
        if port.kernel_rx != 0 {
            report.kernel_rx.insert(name, port.kernel_rx);
        }
    }
    report
}
