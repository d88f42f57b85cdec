//! Answers of the fabric manager for people.
//!
//! Shape: [`Response`] -> text that ends with a newline.
//! Units: in each column's head.
//! Source: none.

use std::fmt::Write;

use comfy_table::{Table, presets};

use weft_fm::service::Response;
use weft_fm::service::request::{Access, NamedPid, Routes, Status};
use weft_fm::trace::{End, Trace};

fn table<const N: usize>(heads: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heads);
    table.add_rows(rows.map(comfy_table::Row::from));
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

fn pid(bits: u16) -> String {
    format!("{bits:03x}")
}

fn pids(list: &[u16]) -> String {
    if list.is_empty() {
        return "none".to_owned();
    }
    list.iter().map(|bits| pid(*bits)).collect::<Vec<_>>().join(" ")
}

/// `response` as text.
pub fn text(response: &Response) -> String {
    match response {
        Response::Status(status) => of_status(status),
        Response::Topology(text) => text.clone(),
        Response::Inventory(inventory) => {
            let mut text = String::new();
            let called = weft_fm::service::display_names::DisplayNames::default();
            let _ = weft_fm::topology::tree(inventory, &called, &mut text); // a String takes everything
            text
        }
        Response::Bindings(rows) => table(
            ["bridge", "shows", "kind"],
            rows.iter().map(|row| [row.bridge.clone(), row.to.clone(), row.kind.clone()]),
        ),
        Response::Done(said) => said.iter().fold(String::new(), |text, line| text + line + "\n"),
        Response::Routes(routes) => of_routes(routes),
        Response::Memory(rows) => table(
            ["name", "hpa", "MiB", "hosts", "way: GFD, group, decoder, DPA"],
            rows.iter().map(|row| {
                let parts = row.parts.iter().enumerate().map(|(way, part)| {
                    let (gfd, group, decoder) = (pid(part.gfd), part.group, part.decoder);
                    format!("{way}: {gfd} {group} {decoder} {:#x}", part.dpa)
                });
                let parts = parts.collect::<Vec<_>>().join("\n");
                let hpa = format!("{:#x}", row.hpa);
                [row.name.clone(), hpa, (row.size >> 20).to_string(), pids(&row.hosts), parts]
            }),
        ),
        Response::Gim(rows) => table(
            ["name", "hpa", "KiB", "of", "from"],
            rows.iter().map(|row| {
                let who = |who: &NamedPid| format!("{} ({})", who.name, pid(who.pid));
                let from = row.from.iter().map(who).collect::<Vec<_>>().join("\n");
                let by = if row.prefix { "\nby prefix" } else { "" };
                let hpa = format!("{:#x}", row.hpa);
                let size = (row.size >> 10).to_string();
                [row.name.clone(), hpa, size, who(&row.of), from + by]
            }),
        ),
        Response::Access(access) => of_access(access),
        Response::Pids(rows) => table(
            ["PID", "at", "what", "target"],
            rows.iter().map(|row| {
                let target = row.target.map(|(id, instance)| format!("{id}/{instance}"));
                let number = row.pid.map_or_else(|| "-".to_owned(), pid);
                [number, row.at.clone(), row.what.clone(), target.unwrap_or_default()]
            }),
        ),
        Response::Costs(rows) => table(
            ["from", "to", "what", "latency ns", "MB/s"],
            rows.iter().map(|row| {
                let rate = match row.bandwidth_mbps {
                    0 => "unbound".to_owned(),
                    rate => rate.to_string(),
                };
                [pid(row.from), pid(row.to), row.what.clone(), row.latency_ns.to_string(), rate]
            }),
        ),
        Response::Bytes(digits) => format!("{digits}\n"),
        Response::Trace(trace) => of_trace(trace),
        Response::Events(events) => events.iter().fold(String::new(), |text, event| {
            text + &format!("{} {}\n", event.number, event.what)
        }),
        Response::Cci(answer) => {
            let payload = if answer.payload.is_empty() { "-" } else { &answer.payload };
            format!("{}: {} ({:#x})\n{payload}\n", answer.opcode, answer.name, answer.code)
        }
    }
}

fn of_status(status: &Status) -> String {
    let phase = match status.phase {
        weft_fm::service::status::Phase::Starting => "starting",
        weft_fm::service::status::Phase::Up => "up",
        weft_fm::service::status::Phase::Standby => "standing by",
        weft_fm::service::status::Phase::Failed => "failed",
    };
    let counts = &status.counts;
    let mut text = format!("{phase}: {}\n", status.step);
    let hosts = if status.hosts_held { "held" } else { "need not wait" };
    let _ = writeln!(text, "hosts {hosts}; manager {} PID {}", status.manager, pid(status.pid));
    let _ = writeln!(
        text,
        "{} switches ({} silent), {} GFDs, {} hosts, {} links ({} down), {} bindings, {} shares of memory",
        counts.switches,
        counts.silent,
        counts.gfds,
        counts.hosts,
        counts.links,
        counts.down,
        counts.bindings,
        counts.shares
    );
    let _ = writeln!(text, "{} commands, {} events", status.calls, status.events);
    if let Some(why) = &status.failed {
        let _ = writeln!(text, "failed: {why}");
    }
    for line in &status.trouble {
        let _ = writeln!(text, "trouble: {line}");
    }
    text
}

fn of_routes(routes: &Routes) -> String {
    let mut text = if let Some(proof) = &routes.proof {
        proof.clone()
    } else {
        let rows = routes.rows.iter().map(|row| {
            let ports: Vec<String> = row.ports.iter().map(u8::to_string).collect();
            let group = row.group.map_or(String::new(), |group| group.to_string());
            [row.switch.clone(), pid(row.pid), ports.join(" "), group]
        });
        table(["switch", "PID", "ports", "group"], rows)
    };
    if let Some(partition) = &routes.partition {
        let _ = writeln!(text, "{partition}");
    }
    text
}

fn of_access(access: &Access) -> String {
    let list = [("GMV", &access.gmv), ("VTV", &access.vtv), ("LAV", &access.lav)];
    list.iter().fold(format!("host {}\n", pid(access.host)), |text, (name, list)| {
        text + &format!("{name}: {}\n", pids(list))
    })
}

fn of_trace(trace: &Trace) -> String {
    let mut text = format!("host {} address {:#x}\n", pid(trace.spid), trace.hpa);
    let rows = trace.steps.iter().map(|step| {
        let asked = if step.asked { "" } else { "not asked" };
        [step.at.clone(), step.table.clone(), step.found.clone(), asked.to_owned()]
    });
    text += &table(["at", "table", "says", ""], rows);
    if !trace.hops.is_empty() {
        let _ = writeln!(text, "way: {}", trace.hops.join(", "));
    }
    if !trace.others.is_empty() {
        let _ = writeln!(text, "or, by routing groups: {}", trace.others.join(", "));
    }
    let end = match &trace.end {
        End::Memory => "memory that the host may use".to_owned(),
        End::Host => "another host's memory".to_owned(),
        End::Hierarchy => "the host's own hierarchy routes it".to_owned(),
        End::Refused(why) => format!("refused: {why}"),
        End::Unknown(why) => format!("not known: {why}"),
    };
    let to = trace.dpid.map_or(String::new(), |bits| format!(", DPID {}", pid(bits)));
    let dpa = trace.dpa.map_or(String::new(), |dpa| format!(", DPA {dpa:#x}"));
    let _ = writeln!(text, "ends: {end}{to}{dpa}");
    text
}
