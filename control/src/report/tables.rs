//! Reports as tables for people: lines of plain text, with numbers aligned to the right.

use std::fmt::Write;

use comfy_table::{CellAlignment, Row, Table, presets};

use super::fabric::FabricReport;
use super::process::ProcessReport;
use super::{
    BufferReport, ConservationReport, DropsReport, FdbReport, PfcReport, PortReport, QueueReport,
    StatsSnapshot, WorkerReport,
};
use crate::events::Page;

/// A table whose first `texts` columns are text and whose others are numbers.
pub fn table<const N: usize>(
    heads: [&str; N],
    texts: usize,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heads);
    table.add_rows(rows.map(Row::from));
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= texts {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(&table)
}

fn lines(table: &Table) -> String {
    // Without the blanks that the padding leaves at the end of a line.
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

/// Names in one column, values in the other.
fn list(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter()
        .fold(String::new(), |text, (name, value)| text + &format!("{name:<width$}  {value}\n"))
}

fn rate(bps: u64) -> String {
    #[rustfmt::skip] // columns: unit, its bit/s
    let units = [("Tbit/s", 1_000_000_000_000), ("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000)];
    // The largest unit that writes the rate exactly, with three decimals at most.
    let unit = units.iter().find(|(_, size)| bps >= *size && bps.is_multiple_of(size / 1_000));
    let Some((unit, size)) = unit else { return format!("{bps} bit/s") };
    let (whole, thousandths) = (bps / size, bps % size / (size / 1_000));
    if thousandths == 0 {
        return format!("{whole} {unit}");
    }
    format!("{whole}.{thousandths:03}").trim_end_matches('0').to_owned() + " " + unit
}

/// Facts about the switch as a whole.
fn head_of_fabric(fabric: &FabricReport) -> String {
    let or = |text: &Option<String>, none: &str| text.clone().unwrap_or_else(|| none.to_owned());
    let (agent, cci) = (&fabric.agent, &fabric.cci);
    list(&[
        ("uuid", fabric.uuid.clone()),
        ("serial", fabric.serial.to_string()),
        ("pid", or(&fabric.pid, "none: the switch has no owner")),
        ("primary manager", or(&fabric.primary, "none")),
        ("cci", or(&fabric.cci_at, "no manager can connect")),
        ("may command", or(&fabric.cci_guard, "nobody")),
        (
            "connections",
            format!(
                "{} open, {} accepted, {} refused, {} without a role, {} evicted, {} out of time",
                cci.open, cci.accepted, cci.refused, cci.denied, cci.evicted, cci.overdue
            ),
        ),
        ("bad input", format!("{} malformed, {} ignored", cci.malformed, cci.ignored)),
        (
            "agent",
            format!(
                "{} tables published, {} link changes, {} TLPs, {} requests passed on, {} unsupported",
                agent.published,
                agent.links,
                agent.functions.came,
                agent.functions.passed_on,
                agent.functions.unsupported
            ),
        ),
        (
            "not allowed",
            format!(
                "{} announcements with a PID that is not the port's, {} messages at edges",
                agent.functions.foreign, agent.functions.refused
            ),
        ),
        (
            "stale",
            match fabric.stale.last() {
                Some(last) => {
                    format!("{} messages of no active command, last {last}", agent.functions.stale)
                }
                None => format!("{} messages of no active command", agent.functions.stale),
            },
        ),
    ])
}

/// The listener for CCI over MCTP; empty without one.
fn mctp_of_fabric(fabric: &FabricReport) -> String {
    let (Some(at), Some(guard)) = (&fabric.mctp_at, &fabric.mctp_guard) else {
        return String::new();
    };
    let (mctp, messages) = (&fabric.mctp, &fabric.mctp.messages);
    // The kernel's MCTP has no connections.
    let is_bus = at.starts_with("mctp");
    let mut rows = vec![
        ("cci over mctp", at.clone()),
        ("may command", guard.clone()),
        (
            "connections",
            format!(
                "{} open, {} accepted, {} refused, {} evicted, {} out of time",
                mctp.open, mctp.accepted, mctp.refused, mctp.evicted, mctp.overdue
            ),
        ),
        (
            "messages",
            format!(
                "{} requests, {} control, in {} packets; dropped: {}, answers not sent: {}",
                messages.requests,
                messages.control,
                messages.packets,
                messages.dropped(),
                messages.unsent
            ),
        ),
    ];
    rows.retain(|(name, _)| !is_bus || *name != "connections");
    list(&rows)
}

#[expect(clippy::ref_option, reason = "a topic hands over its report as it is")]
pub(super) fn of_fabric(fabric: &Option<Box<FabricReport>>) -> String {
    let Some(fabric) = fabric else {
        return "no port of this switch has a role: it routes no TLPs\n".to_owned();
    };
    let or = |text: &Option<String>, none: &str| text.clone().unwrap_or_else(|| none.to_owned());
    let mut text = head_of_fabric(fabric) + &mctp_of_fabric(fabric);
    text += "\n";
    text += &table(
        ["port", "role", "link", "pids", "room", "refused pid"],
        4,
        fabric.ports.iter().map(|port| {
            let link = if port.link_up { "up" } else { "down" }.to_owned();
            let pids = if port.pids.is_empty() { "-".to_owned() } else { port.pids.join(" ") };
            let refused = port.refused_pid.clone().unwrap_or_else(|| "-".to_owned());
            let room = port.pids_max.to_string();
            [port.name.clone(), port.role.clone(), link, pids, room, refused]
        }),
    );
    for (port, refused) in &fabric.refused {
        let each = refused.iter().map(|(why, count)| format!("{why} {count}"));
        let _ = writeln!(text, "{port} refused: {}", each.collect::<Vec<_>>().join(", ")); // to a String
    }
    let of = |[used, all]: [u64; 2]| format!("{used}/{all}");
    for vcs in &fabric.vcses {
        let (usp, gae) = (or(&vcs.usp, "vUSP"), if vcs.gae { "GAE" } else { "no GAE" });
        let (gmv, vtv, lav) = (vcs.gmv, vcs.vtv, vcs.lav);
        let _ = writeln!(text, "\nvcs {}: {usp}, {gae}, gmv {gmv} vtv {vtv} lav {lav}", vcs.vcs); // to a String
        text += &table(
            ["vppb", "bound to", "fast", "idt", "ldst", "idt"],
            2,
            vcs.vppbs.iter().map(|vppb| {
                let [fast, fast_idt, ldst, ldst_idt] =
                    [vppb.fast, vppb.fast_idt, vppb.ldst, vppb.ldst_idt].map(of);
                [vppb.vppb.to_string(), vppb.bound.clone(), fast, fast_idt, ldst, ldst_idt]
            }),
        );
        for id in &vcs.cache_ids {
            let by = if id.edge.is_empty() {
                "own table".into()
            } else {
                format!("told by {}", id.edge)
            };
            let _ = writeln!(text, "CacheID {}: pid {}, {by}", id.cache_id, id.port); // to a String
        }
    }
    let _ = writeln!(
        text,
        "\n{} PIDs lead somewhere; {} routing groups",
        fabric.drt.len(),
        fabric.groups
    ); // to a String
    let rows = fabric.drt.iter().map(|row| [row.dpid.clone(), row.to.clone()]);
    if !fabric.drt.is_empty() {
        text += &table(["dpid", "to"], 2, rows);
    }
    for group in &fabric.rgt {
        let (ports, primary) = (group.ports.join(" "), group.primary);
        let _ = writeln!(text, "group {}: {ports}, of which {primary} primary", group.group); // to a String
    }
    text
}

pub(super) fn of_ports(ports: &[PortReport]) -> String {
    #[rustfmt::skip] // as a line of the table
    let heads = [
        "port", "device", "link", "rate", "afh", "rx frames", "rx bytes", "tx frames", "tx bytes", "dropped", "consumed",
        "kernel rx", "express", "pfc rx", "pfc tx", "pfc guard",
    ];
    let mut text = table(
        heads,
        5,
        ports.iter().map(|port| {
            [
                port.name.clone(),
                format!("{}:{}", port.kind, port.device),
                match (port.link_up, &port.blocked) {
                    (true, None) => "up",
                    (true, Some(_)) => "blocked",
                    (false, _) => "down",
                }
                .to_owned(),
                rate(port.rate_bps),
                port.afh.clone(),
                port.rx_frames.to_string(),
                port.rx_bytes.to_string(),
                port.tx_frames.to_string(),
                port.tx_bytes.to_string(),
                port.dropped.to_string(),
                port.consumed.to_string(),
                port.kernel_rx.to_string(),
                port.express.to_string(),
                port.pfc_rx.to_string(),
                port.pfc_tx.to_string(),
                port.pfc_guard.to_string(),
            ]
        }),
    );
    for port in ports {
        if let Some(lag) = &port.lag {
            let _ = writeln!(text, "{}: in LAG {lag}", port.name); // to a String
        }
        if let Some(note) = &port.note {
            let _ = writeln!(text, "{}: {note}", port.name); // to a String
        }
        if let Some(warning) = &port.mtu_warning {
            let _ = writeln!(text, "{}: {warning}", port.name); // to a String
        }
        if let Some(why) = &port.last_error {
            let _ = writeln!(text, "{}: last error: {why}", port.name); // to a String
        }
        if port.tx_off {
            let _ = writeln!(text, "{}: transmission is off (weft port)", port.name); // to a String
        }
        if let Some(why) = &port.blocked {
            let _ = writeln!(text, "{}: blocked: {why}", port.name); // to a String
        }
        if let Some(why) = &port.no_express {
            let _ = writeln!(text, "{}: no express: {why}", port.name); // to a String
        }
    }
    text
}

pub(super) fn of_fdb(FdbReport { summary, entries }: &FdbReport) -> String {
    let heads = ["vlan", "address", "port", "kind", "age s"];
    let mut text = table(
        heads,
        4,
        entries.iter().map(|entry| {
            [
                entry.vid.to_string(),
                entry.addr.clone(),
                entry.port.clone(),
                if entry.is_static { "static" } else { "learned" }.to_owned(),
                if entry.is_static { "-".to_owned() } else { entry.age_s.to_string() },
            ]
        }),
    );
    let _ = writeln!(
        text, // a String
        "{} of {} entries; learned {}, moved {}, aged {}; refused for port limit {}, for room {}",
        summary.used,
        summary.capacity,
        summary.learned,
        summary.moved,
        summary.aged,
        summary.port_limit,
        summary.full
    );
    if summary.held > 0 {
        let held = summary.held;
        let _ = writeln!(text, "held: {held} moves of addresses that had moved too often"); // to a String
    }
    if !summary.loop_ports.is_empty() {
        let between = summary.loop_ports.join(", ");
        let _ = writeln!(text, "LOOP ALARM: an address moves between {between}"); // to a String
    }
    text
}

pub(super) fn of_queues(queues: &[QueueReport]) -> String {
    let heads = [
        "port",
        "pri",
        "in enqueued",
        "in dropped",
        "out dequeued",
        "out dropped",
        "out purged",
        "out bytes",
        "out marked",
        "depth cells",
        "watermark",
    ];
    table(
        heads,
        1,
        queues.iter().map(|queue| {
            [
                queue.port.clone(),
                queue.pri.to_string(),
                queue.enqueued.to_string(),
                queue.dropped.to_string(),
                queue.dequeued.to_string(),
                queue.output_dropped.to_string(),
                queue.purged.to_string(),
                queue.tx_bytes.to_string(),
                queue.ecn_marked.to_string(),
                queue.depth_cells.to_string(),
                queue.depth_watermark_cells.to_string(),
            ]
        }),
    )
}

pub(super) fn of_buffer(buffer: &BufferReport) -> String {
    let cells = |cells: u64| format!("{cells} cells, {} bytes", cells * buffer.cell_bytes);
    list(&[
        ("cell", format!("{} bytes", buffer.cell_bytes)),
        ("buffer", cells(buffer.total_cells)),
        ("headroom", cells(buffer.headroom_cells)),
        ("reserves", cells(buffer.reserve_cells)),
        ("shared", cells(buffer.shared_cells)),
        ("shared used", cells(buffer.shared_used_cells)),
        ("shared watermark", cells(buffer.shared_watermark_cells)),
        ("headroom used", cells(buffer.headroom_used_cells)),
        ("headroom watermark", cells(buffer.headroom_watermark_cells)),
        ("pool", format!("{} chunks", buffer.chunks)),
        ("pool used", format!("{} chunks", buffer.chunks_used)),
        ("pool free", format!("{} chunks", buffer.chunks_free)),
    ])
}

pub(super) fn of_pfc(pfc: &[PfcReport]) -> String {
    let heads = [
        "port",
        "pri",
        "pg",
        "lossless",
        "classes",
        "state",
        "xoff",
        "xon",
        "pause tx",
        "pause rx",
        "paused us",
        "storms",
        "group",
        "watermark",
        "headroom",
        "watermark",
        "of",
    ];
    table(
        heads,
        6,
        pfc.iter().map(|row| {
            let states =
                [(row.xoff_now, "asks"), (row.paused_now, "paused"), (row.storm_now, "storm")];
            let on: Vec<_> = states.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
            let classes: Vec<_> = row.classes.iter().map(u8::to_string).collect();
            [
                row.port.clone(),
                row.pri.to_string(),
                row.pg.to_string(),
                if row.lossless { "yes" } else { "no" }.to_owned(),
                classes.join(","),
                if on.is_empty() { "-".to_owned() } else { on.join("+") },
                row.xoff.to_string(),
                row.xon.to_string(),
                row.pause_tx.to_string(),
                row.pause_rx.to_string(),
                (row.paused_ns / 1_000).to_string(),
                row.storms.to_string(),
                row.group_cells.to_string(),
                row.group_watermark_cells.to_string(),
                row.headroom_cells.to_string(),
                row.headroom_watermark_cells.to_string(),
                row.headroom_size_cells.to_string(),
            ]
        }),
    )
}

pub(super) fn of_drops(drops: &DropsReport) -> String {
    let by_port = drops.ports.iter().flat_map(|(port, reasons)| {
        reasons.iter().map(move |(reason, count)| (port.as_str(), reason.as_str(), *count))
    });
    let lost = drops.kernel_rx.iter().map(|(port, count)| (port.as_str(), "(kernel_rx)", *count));
    let total = drops.total.iter().map(|(reason, count)| ("total", reason.as_str(), *count));
    let rows: Vec<_> = by_port.chain(lost).chain(total).collect();
    if rows.is_empty() {
        return "no drops\n".to_owned();
    }
    let cells = |(port, reason, count): (&str, &str, u64)| {
        [port.to_owned(), reason.to_owned(), count.to_string()]
    };
    table(["port", "reason", "frames"], 2, rows.into_iter().map(cells))
}

pub(super) fn of_conservation(sum: &ConservationReport) -> String {
    let verdict = if let Some(why) = &sum.inexact {
        format!("unknown: {why}, and the numbers were not read at one moment")
    } else if sum.holds {
        "holds: every frame is accounted for".to_owned()
    } else {
        format!("DOES NOT HOLD: {} frames are not accounted for", sum.imbalance)
    };
    list(&[
        ("rx", sum.rx.to_string()),
        ("+ copies", sum.copies.to_string()),
        ("- tx", sum.tx.to_string()),
        ("- dropped", sum.dropped.to_string()),
        ("- consumed", sum.consumed.to_string()),
        ("- queued", sum.queued.to_string()),
        ("= left", sum.imbalance.to_string()),
        ("conservation", verdict),
    ])
}

/// `of` by `by` with one decimal; a dash if `by` is 0.
fn tenths(of: u64, by: u64) -> String {
    let Some(tenths) = of.saturating_mul(10).checked_div(by) else { return "-".to_owned() };
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Events, a line each.
#[must_use]
pub fn of_events(page: &Page) -> String {
    let lost = match page.lost {
        0 => String::new(),
        count => format!("{count} earlier events were discarded\n"),
    };
    page.events.iter().fold(lost, |text, event| text + &event.to_string() + "\n")
}

/// Time in ms since a worker's last pass began, and whether it is stuck.
fn heartbeat(worker: &WorkerReport) -> String {
    let ago = tenths(worker.heartbeat_age_ns, 1_000_000);
    if worker.stuck { format!("{ago} STUCK") } else { ago }
}

pub(super) fn of_workers(workers: &[WorkerReport]) -> String {
    let heads = [
        "worker",
        "frames",
        "bursts",
        "frames/burst",
        "ns/frame",
        "cycles/frame",
        "idle %",
        "heartbeat ms",
        "away ms",
        "max away ms",
        "loops",
        "busy loops",
        "device errors",
        "learn busy",
    ];
    table(
        heads,
        0,
        workers.iter().map(|worker| {
            let idle_ns = worker.uptime_ns.saturating_sub(worker.busy_ns);
            let cycles = match worker.busy_cycles {
                0 => "-".to_owned(),
                cycles => tenths(cycles, worker.frames),
            };
            [
                worker.worker.to_string(),
                worker.frames.to_string(),
                worker.bursts.to_string(),
                tenths(worker.frames, worker.bursts),
                tenths(worker.busy_ns, worker.frames),
                cycles,
                tenths(idle_ns.saturating_mul(100), worker.uptime_ns),
                heartbeat(worker),
                tenths(worker.away_lately_ns, 1_000_000),
                tenths(worker.away_max_ns, 1_000_000),
                worker.loops.to_string(),
                worker.busy_loops.to_string(),
                worker.service_errors.to_string(),
                worker.learn_busy.to_string(),
            ]
        }),
    )
}

pub(super) fn of_process(process: &ProcessReport) -> String {
    let words = |words: &[String]| match words {
        [] => "none".to_owned(),
        words => words.join(", "),
    };
    let sandbox = match &process.note {
        Some(note) => format!("{}: {note}", process.sandbox),
        None => process.sandbox.clone(),
    };
    list(&[
        ("process", process.pid.to_string()),
        ("user, group", format!("{}, {}", process.uid, process.gid)),
        ("threads", process.threads.to_string()),
        ("sandbox", sandbox),
        ("capabilities in force", words(&process.effective)),
        ("that it may put in force", words(&process.permitted)),
        ("of what it executes", words(&process.bounding)),
        ("no_new_privs", if process.no_new_privs { "set" } else { "not set" }.to_owned()),
        ("seccomp", process.seccomp.clone()),
        ("Landlock", process.landlock.clone()),
        ("threads unlike the first", words(&process.unlike)),
    ])
}

pub(super) fn of_all(stats: &StatsSnapshot) -> String {
    let parts = [
        ("ports", of_ports(&stats.ports)),
        ("queues", of_queues(&stats.queues)),
        ("pfc", of_pfc(&stats.pfc)),
        ("drops", of_drops(&stats.drops)),
        ("buffer", of_buffer(&stats.buffer)),
        ("workers", of_workers(&stats.workers)),
        ("conservation", of_conservation(&stats.conservation)),
    ];
    let head = format!(
        "switch {}, weft {}, up {} s, configuration {}\n",
        stats.switch,
        stats.version,
        stats.uptime_ns / 1_000_000_000,
        stats.epoch
    );
    parts.iter().fold(head, |text, (name, part)| text + "\n== " + name + "\n" + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_written_with_the_fitting_unit() {
        #[rustfmt::skip] // columns: bit/s, want
        let cases = [
            (1, "1 bit/s"), (1_000, "1 kbit/s"), (1_500_000, "1.5 Mbit/s"), (1_000_000_000, "1 Gbit/s"),
            (400_000_000_000, "400 Gbit/s"), (10_000_000_000_000, "10 Tbit/s"), (1_234_567, "1234.567 kbit/s"),
            (1_050_000_000, "1.05 Gbit/s"),
        ];
        for (bps, want) in cases {
            assert_eq!(rate(bps), want, "{bps}");
        }
    }

    #[test]
    fn tables_align_and_say_what_is_missing() {
        assert_eq!(of_drops(&DropsReport::default()), "no drops\n");
        let mut drops = DropsReport::default();
        drops.total.insert("dt".into(), 1_234);
        drops.ports.insert("p0".into(), [("dt".to_owned(), 1_234)].into());
        drops.kernel_rx.insert("p0".into(), 5);
        let want = "port   reason       frames\n\
                    p0     dt             1234\n\
                    p0     (kernel_rx)       5\n\
                    total  dt             1234\n";
        assert_eq!(of_drops(&drops), want);
        let sum = ConservationReport { rx: 5, tx: 3, imbalance: 2, ..Default::default() };
        assert!(of_conservation(&sum).contains("DOES NOT HOLD: 2 frames"));
    }

    #[test]
    fn everything_renders_without_ports() {
        let stats = StatsSnapshot::default();
        let text = of_all(&stats);
        assert!(text.contains("== conservation") && text.ends_with('\n'), "{text}");
    }
}
