//! Reports as Prometheus metrics.
//!
//! A [`StatsSnapshot`] in, text exposition format 0.0.4 out, one family after the other. Values are in bytes and
//! seconds, and in cells where the switch counts in cells.
//!
//! Source: Prometheus, "Exposition formats", "Metric and label naming".

use std::fmt::Write;

use super::{PfcReport, PortReport, QueueReport, StatsSnapshot, WorkerReport};

/// Content type of the text of [`render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A family of metrics: name, type, help.
type Family = (&'static str, &'static str, &'static str);

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n"); // to a String
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let start = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{start}{label}=\"{}\"", escape(text)); // to a String
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}"); // to a String
    }
}

fn escape(text: &str) -> String {
    // The escapes of label values in the exposition format.
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(ns: u64) -> String {
    // By integers: a float holds single nanoseconds up to 2^53 of them only, which are 104 days.
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Bits as bytes, with three decimals: an eighth is 0.125.
fn bytes(bits: u64) -> String {
    format!("{}.{:03}", bits / 8, bits % 8 * 125)
}

/// A metric of a port, and how it is read from the report.
type OfPort = (Family, fn(&PortReport) -> u64);
/// A metric of a queue, likewise.
type OfQueue = (Family, fn(&QueueReport) -> u64);
/// A metric of a queue's flow control, likewise.
type OfPfc = (Family, fn(&PfcReport) -> u64);
/// A metric of a worker, likewise.
type OfWorker = (Family, fn(&WorkerReport) -> u64);

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

#[rustfmt::skip] // columns: name, type, help; reader
const OF_PORTS: &[OfPort] = &[
    (("weft_port_up", GAUGE, "Whether the link is up."), |p| p.link_up.into()),
    (("weft_port_rx_frames_total", COUNTER, "Frames received, dropped ones included."), |p| p.rx_frames),
    (("weft_port_rx_bytes_total", COUNTER, "Bytes received, without FCS."), |p| p.rx_bytes),
    (("weft_port_express_frames_total", COUNTER, "Frames received and passed on in the kernel; part of weft_port_rx_frames_total."), |p| p.express),
    (("weft_port_tx_frames_total", COUNTER, "Frames sent."), |p| p.tx_frames),
    (("weft_port_tx_bytes_total", COUNTER, "Bytes sent, without FCS."), |p| p.tx_bytes),
    (("weft_port_rx_group_frames_total", COUNTER, "Frames received for groups (multicast, broadcast), MAC control apart."), |p| p.rx_group_frames),
    (("weft_port_tx_group_frames_total", COUNTER, "Frames sent to groups (multicast, broadcast)."), |p| p.tx_group_frames),
    (("weft_port_copies_total", COUNTER, "Copies of replicated frames beyond the first."), |p| p.copies),
    (("weft_port_consumed_total", COUNTER, "Frames for the switch itself that ended here: MAC control and loop probes."), |p| p.consumed),
    (("weft_port_pause_rx_total", COUNTER, "Plain 802.3x PAUSE frames received."), |p| p.pause_rx),
    (("weft_port_cbfc_rx_total", COUNTER, "UEC CBFC frames received."), |p| p.cbfc_rx),
    (("weft_port_mac_control_bad_total", COUNTER, "MAC control frames that are malformed or for others."), |p| p.mac_control_bad),
    (("weft_port_mac_control_unknown_total", COUNTER, "MAC control frames with an unknown opcode."), |p| p.mac_control_unknown),
    (("weft_port_pfc_rx_total", COUNTER, "PFC frames acted upon."), |p| p.pfc_rx),
    (("weft_port_pfc_tx_total", COUNTER, "PFC frames made and sent."), |p| p.pfc_tx),
    (("weft_port_pfc_tx_late_total", COUNTER, "PFC frames delayed for lack of room."), |p| p.pfc_tx_late),
    (("weft_port_pfc_guard_total", COUNTER, "PFC frames sent for the worker while it was away."), |p| p.pfc_guard),
    (("weft_port_kernel_rx_lost_total", COUNTER, "Frames lost before the switch by kernel or device."), |p| p.kernel_rx),
    (("weft_port_learned_addresses", GAUGE, "Addresses learned on the port."), |p| p.learned),
    (("weft_port_blocked", GAUGE, "1 while the port is blocked for a loop."), |p| p.blocked.is_some().into()),
    (("weft_port_tx_off", GAUGE, "1 while the port's queues are held by command."), |p| p.tx_off.into()),
    (("weft_port_loop_probes_total", COUNTER, "Loop probes made and sent."), |p| p.loop_probes),
    (("weft_port_loop_probes_bad_total", COUNTER, "Frames that pretend to be a loop probe of this switch: forged, recorded or late."), |p| p.loop_probes_bad),
    (("weft_port_loop_blocks_total", COUNTER, "Times that the port was blocked for a loop."), |p| p.loop_blocks),
    (("weft_port_fdb_moves_total", COUNTER, "Addresses that moved to the port."), |p| p.fdb_moves),
];

#[rustfmt::skip] // columns: name, type, help; reader
const OF_QUEUES: &[OfQueue] = &[
    (("weft_queue_enqueued_frames_total", COUNTER, "Frames put into the input's VOQs, copies included."), |q| q.enqueued),
    (("weft_queue_dequeued_frames_total", COUNTER, "Frames taken off the output's egress queue."), |q| q.dequeued),
    (("weft_queue_purged_frames_total", COUNTER, "Frames discarded while queued for the output."), |q| q.purged),
    (("weft_queue_tx_bytes_total", COUNTER, "Bytes sent by the output, without FCS."), |q| q.tx_bytes),
    (("weft_queue_dropped_frames_total", COUNTER, "Frames of the input dropped with this priority."), |q| q.dropped),
    (("weft_queue_ecn_marked_frames_total", COUNTER, "ECN marks set at the output."), |q| q.ecn_marked),
    (("weft_queue_depth_cells", GAUGE, "Cells queued for the output, VOQs included."), |q| q.depth_cells),
    (("weft_queue_depth_watermark_cells", GAUGE, "Most cells queued since weft show last read it."), |q| q.depth_watermark_cells),
];

#[rustfmt::skip] // columns: name, type, help; reader
const OF_PFC: &[OfPfc] = &[
    (("weft_pfc_xoff_total", COUNTER, "Times that the ingress group crossed XOFF."), |p| p.xoff),
    (("weft_pfc_xon_total", COUNTER, "Times that the ingress group reached XON."), |p| p.xon),
    (("weft_pfc_pause_tx_total", COUNTER, "PAUSE sent for the priority, refreshes included."), |p| p.pause_tx),
    (("weft_pfc_resume_tx_total", COUNTER, "Resume sent for the priority."), |p| p.resume_tx),
    (("weft_pfc_pause_rx_total", COUNTER, "PAUSE received for the priority."), |p| p.pause_rx),
    (("weft_pfc_resume_rx_total", COUNTER, "Resume received for the priority."), |p| p.resume_rx),
    (("weft_pfc_storms_total", COUNTER, "PAUSE storms that the watchdog found."), |p| p.storms),
    (("weft_pfc_xoff_active", GAUGE, "Whether the input asks its peer to pause."), |p| p.xoff_now.into()),
    (("weft_pfc_paused", GAUGE, "Whether the output is paused by its peer."), |p| p.paused_now.into()),
    (("weft_pfc_group_cells", GAUGE, "Cells of the ingress group, without headroom."), |p| p.group_cells),
    (("weft_pfc_group_watermark_cells", GAUGE, "Most cells of the group since weft show last read it."), |p| p.group_watermark_cells),
    (("weft_pfc_headroom_cells", GAUGE, "Cells of headroom in use."), |p| p.headroom_cells),
    (("weft_pfc_headroom_watermark_cells", GAUGE, "Most cells of headroom since weft show last read it."), |p| p.headroom_watermark_cells),
    (("weft_pfc_headroom_size_cells", GAUGE, "Cells of headroom in all."), |p| p.headroom_size_cells),
];

/// The whole page.
#[must_use]
pub fn render(stats: &StatsSnapshot) -> String {
    let mut page = Page(String::new());
    page.family("weft_info", GAUGE, "Name and version of the switch.");
    page.sample("weft_info", &[("switch", &stats.switch), ("version", &stats.version)], 1);
    page.family("weft_uptime_seconds", GAUGE, "Time since the start.");
    page.sample("weft_uptime_seconds", &[], seconds(stats.uptime_ns));
    page.family("weft_configuration_epoch", GAUGE, "Reloads since the start.");
    page.sample("weft_configuration_epoch", &[], stats.epoch);
    let rate = "weft_port_rate_bytes_per_second";
    page.family(rate, GAUGE, "Rate of the link.");
    for port in &stats.ports {
        page.sample(rate, &[("port", &port.name)], bytes(port.rate_bps));
    }
    for &((name, kind, help), read) in OF_PORTS {
        page.family(name, kind, help);
        for port in &stats.ports {
            page.sample(name, &[("port", &port.name)], read(port));
        }
    }
    by_format(&mut page, stats);
    let pris: Vec<String> = (0..8).map(|pri: u8| pri.to_string()).collect();
    let pri = |pri: u8| pris.get(usize::from(pri)).map_or("", String::as_str);
    for &((name, kind, help), read) in OF_QUEUES {
        page.family(name, kind, help);
        for queue in &stats.queues {
            page.sample(name, &[("port", &queue.port), ("pri", pri(queue.pri))], read(queue));
        }
    }
    let dropped = "weft_queue_output_dropped_frames_total";
    let help = "Frames dropped that were to leave by the output, by reason; also in weft_dropped_frames_total.";
    page.family(dropped, COUNTER, help);
    for queue in &stats.queues {
        for (reason, count) in &queue.output_drops {
            let labels =
                [("port", queue.port.as_str()), ("pri", pri(queue.pri)), ("reason", reason)];
            page.sample(dropped, &labels, count);
        }
    }
    for &((name, kind, help), read) in OF_PFC {
        page.family(name, kind, help);
        for row in &stats.pfc {
            page.sample(name, &[("port", &row.port), ("pri", pri(row.pri))], read(row));
        }
    }
    page.family("weft_pfc_paused_seconds_total", COUNTER, "Time that the output was paused.");
    for row in &stats.pfc {
        let labels = [("port", row.port.as_str()), ("pri", pri(row.pri))];
        page.sample("weft_pfc_paused_seconds_total", &labels, seconds(row.paused_ns));
    }
    of_the_whole(&mut page, stats);
    page.0
}

fn by_format(page: &mut Page, stats: &StatsSnapshot) {
    let name = "weft_port_format_frames_total";
    page.family(name, COUNTER, "Frames by format and direction.");
    for port in &stats.ports {
        for (direction, formats) in [("rx", &port.rx_formats), ("tx", &port.tx_formats)] {
            for (format, count) in formats {
                let labels =
                    [("port", port.name.as_str()), ("direction", direction), ("format", format)];
                page.sample(name, &labels, count);
            }
        }
    }
    let name = "weft_dropped_frames_total";
    page.family(name, COUNTER, "Frames dropped, by port and reason.");
    for (port, reasons) in &stats.drops.ports {
        for (reason, count) in reasons {
            page.sample(name, &[("port", port), ("reason", reason)], count);
        }
    }
}

fn of_the_whole(page: &mut Page, stats: &StatsSnapshot) {
    let (buffer, fdb, sum) = (&stats.buffer, &stats.fdb, &stats.conservation);
    #[rustfmt::skip] // columns: name, type, help; value
    let single: &[(Family, u64)] = &[
        (("weft_buffer_cell_bytes", GAUGE, "Bytes of a cell."), buffer.cell_bytes),
        (("weft_buffer_cells", GAUGE, "Cells of the buffer."), buffer.total_cells),
        (("weft_buffer_shared_cells", GAUGE, "Cells of its shared part."), buffer.shared_cells),
        (("weft_buffer_shared_used_cells", GAUGE, "Cells of the shared part in use."), buffer.shared_used_cells),
        (("weft_buffer_shared_watermark_cells", GAUGE, "Most cells of the shared part in use since weft show last read it."), buffer.shared_watermark_cells),
        (("weft_buffer_headroom_cells", GAUGE, "Cells of all headroom."), buffer.headroom_cells),
        (("weft_buffer_headroom_used_cells", GAUGE, "Cells of headroom in use."), buffer.headroom_used_cells),
        (("weft_buffer_headroom_watermark_cells", GAUGE, "Most cells of headroom in use since weft show last read it."), buffer.headroom_watermark_cells),
        (("weft_pool_chunks", GAUGE, "Chunks of the packet pool."), buffer.chunks),
        (("weft_pool_used_chunks", GAUGE, "Chunks in use."), buffer.chunks_used),
        (("weft_fdb_capacity", GAUGE, "Most FDB entries."), fdb.capacity),
        (("weft_fdb_entries", GAUGE, "FDB entries."), fdb.used),
        (("weft_fdb_learned_total", COUNTER, "Addresses learned."), fdb.learned),
        (("weft_fdb_moved_total", COUNTER, "Addresses that went to another port."), fdb.moved),
        (("weft_fdb_aged_total", COUNTER, "Addresses removed for their age."), fdb.aged),
        (("weft_fdb_refused_total", COUNTER, "Addresses not learned for want of room."), fdb.full + fdb.port_limit),
        (("weft_fdb_held_total", COUNTER, "Moves refused of addresses that had moved too often."), fdb.held),
        (("weft_fdb_loop_alarms_total", COUNTER, "Times that an address moved too often."), fdb.loop_alarms),
        (("weft_rx_frames_total", COUNTER, "Frames received by all ports."), sum.rx),
        (("weft_tx_frames_total", COUNTER, "Frames sent by all ports."), sum.tx),
        (("weft_queued_frames", GAUGE, "Frames that are queued."), sum.queued),
    ];
    for &((name, kind, help), value) in single {
        page.family(name, kind, help);
        page.sample(name, &[], value);
    }
    page.family("weft_unaccounted_frames", GAUGE, "Frames that are not accounted for; always 0.");
    page.sample("weft_unaccounted_frames", &[], sum.imbalance);
    #[rustfmt::skip] // columns: family, value
    let by_worker: [OfWorker; 5] = [
        (("weft_worker_busy_cycles_total", COUNTER, "Time-stamp counter ticks of passes in which something was done."), |w| w.busy_cycles),
        (("weft_worker_busy_loops_total", COUNTER, "Passes in which something was done."), |w| w.busy_loops),
        (("weft_worker_bursts_total", COUNTER, "Bursts received."), |w| w.bursts),
        (("weft_worker_frames_total", COUNTER, "Frames received."), |w| w.frames),
        (("weft_worker_loops_total", COUNTER, "Passes of the worker's loop."), |w| w.loops),
    ];
    for ((name, kind, help), value) in by_worker {
        page.family(name, kind, help);
        for worker in &stats.workers {
            page.sample(name, &[("worker", &worker.worker.to_string())], value(worker));
        }
    }
    #[rustfmt::skip] // columns: family, value in ns
    let seconds_by_worker: [OfWorker; 4] = [
        (("weft_worker_busy_seconds_total", COUNTER, "Time of passes in which something was done."), |w| w.busy_ns),
        (("weft_worker_heartbeat_age_seconds", GAUGE, "Time since the worker's last pass began; 0.1 at most where all is well."), |w| w.heartbeat_age_ns),
        (("weft_worker_away_seconds", GAUGE, "Longest time in the last 10 to 20 s in which the worker did not run although it had to."), |w| w.away_lately_ns),
        (("weft_worker_away_max_seconds", GAUGE, "The same since the start."), |w| w.away_max_ns),
    ];
    for ((name, kind, help), ns) in seconds_by_worker {
        page.family(name, kind, help);
        for worker in &stats.workers {
            let labels = [("worker", &*worker.worker.to_string())];
            page.sample(name, &labels, seconds(ns(worker)));
        }
    }
    let events = "weft_events_total";
    page.family(events, COUNTER, "Events by kind, those that were held back included.");
    for (kind, count) in &stats.events {
        page.sample(events, &[("kind", kind)], count);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    /// A switch with something of each family.
    fn stats() -> StatsSnapshot {
        let mut stats =
            StatsSnapshot { switch: "a\"b".into(), uptime_ns: 1_500_000_000, ..Default::default() };
        stats.ports = vec![PortReport {
            name: "p0".into(),
            rx_frames: 7,
            rate_bps: 2_500_000_001,
            ..Default::default()
        }];
        stats.queues = vec![QueueReport { port: "p0".into(), pri: 3, ..Default::default() }];
        stats.pfc = vec![PfcReport {
            port: "p0".into(),
            pri: 3,
            paused_ns: 5,
            xoff_now: true,
            ..Default::default()
        }];
        stats.drops.ports.insert("p0".into(), [("dt".to_owned(), 2)].into());
        stats.workers = vec![WorkerReport {
            worker: 3,
            heartbeat_age_ns: 9,
            away_lately_ns: 7,
            away_max_ns: 8,
            ..Default::default()
        }];
        stats.events.insert("link_up".into(), 4);
        stats
    }

    #[test]
    fn pages_follow_the_format() {
        let page = render(&stats());
        for want in [
            "weft_info{switch=\"a\\\"b\",version=\"\"} 1\n",
            "weft_uptime_seconds 1.500000000\n",
            "weft_port_rx_frames_total{port=\"p0\"} 7\n",
            "weft_port_rate_bytes_per_second{port=\"p0\"} 312500000.125\n",
            "weft_queue_depth_cells{port=\"p0\",pri=\"3\"} 0\n",
            "weft_pfc_xoff_active{port=\"p0\",pri=\"3\"} 1\n",
            "weft_pfc_paused_seconds_total{port=\"p0\",pri=\"3\"} 0.000000005\n",
            "weft_dropped_frames_total{port=\"p0\",reason=\"dt\"} 2\n",
            "weft_worker_heartbeat_age_seconds{worker=\"3\"} 0.000000009\n",
            "weft_worker_away_seconds{worker=\"3\"} 0.000000007\n",
            "weft_worker_away_max_seconds{worker=\"3\"} 0.000000008\n",
            "weft_events_total{kind=\"link_up\"} 4\n",
        ] {
            assert!(page.contains(want), "{want} in\n{page}");
        }
        let mut families = Vec::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(!families.contains(&name), "{name} twice");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
                families.push(name);
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                assert_eq!(families.last(), Some(&name), "a sample is under its family");
            }
        }
    }

    /// Prometheus' own check has nothing against names, types, units and help.
    #[test]
    fn promtool_finds_nothing() {
        let promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut promtool = match promtool {
            Ok(promtool) => promtool,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!(
                    "SKIPPED promtool_finds_nothing: promtool is not installed (tools/setup.sh test)"
                );
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let page = render(&stats());
        promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
        assert!(output.status.success() && said == ["", ""], "{}: {said:?}\n{page}", output.status);
    }
}
