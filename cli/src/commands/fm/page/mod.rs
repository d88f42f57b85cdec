//! The page of a fabric: one HTML file with the drawing, tables, and a memory map of each requester.
//!
//! It loads no other file and is well-formed XML too. A row's `data-` attributes name its subject; ids in the drawing
//! are places (`s0`, `s0.3`, `s0.5-s1.0`).
//!
//! Names, addresses and reasons come from components, configuration and the manager. They are escaped text, and none of
//! them is part of the script.
//!
//! Source: docs/fm.md "The page of a fabric"; WHATWG HTML.

mod map;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weft_fm::components::bind::Bridge;
use weft_fm::model::graph::{PortRef, SwitchId};
use weft_fm::model::inventory::{DiscoveredSwitch, Partner, Port, TargetKind};
use weft_fm::model::text::UuidText;
use weft_fm::service::request::{NamedPid, Overview, P2pState};
use weft_fm::show::display_names::DisplayNames;
use weft_fm::show::overview::{Asked, BindingState, BindingUse, LinkLoad, LinkRow};
use weft_fm::show::picture;
use weft_views::figures::grouped;
use weft_views::page::{Row, TIP_SCRIPT, TIP_STYLE, end, sealed_head, table_of};
use weft_views::svg::escape;

use super::text::pid;

const CSS: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Unit of a GFD's capacity, in bytes.
const CAPACITY_UNIT: u64 = 256 << 20;

const LOAD: &str = "The numbers at a link are DPIDs whose static messages are routed over it, from the upper or left end \
    and from the other one; a link is the wider the more they are. The more of the busiest link's load a link has, the \
    more orange it is; how much that is stands in its tooltip and in the table of links. A dashed link is down.";

/// An overview, with the names that the page shows.
struct View<'a> {
    all: &'a Overview,
    called: DisplayNames,
    /// Names of hosts, devices and GFDs by PID.
    names: BTreeMap<u16, String>,
}

pub(super) fn page(all: &Overview) -> String {
    let view = View::new(all);
    let (style, script) = ([TIP_STYLE, CSS].concat(), [SCRIPT, TIP_SCRIPT].concat());
    let mut out = String::new();
    sealed_head("Fabric", &style, &script, &mut out);
    view.drawing(&mut out);
    view.switches(&mut out);
    view.links(&mut out);
    view.attached(&mut out);
    view.bindings(&mut out);
    view.memory(&mut out);
    view.gim(&mut out);
    view.p2p(&mut out);
    map::all(&view, &mut out);
    out.push_str("<div id=\"tip\" hidden=\"hidden\"></div>\n");
    end(&script, &mut out);
    out
}

/// Writes a heading and a table, or "None." without rows.
fn section(title: &str, head: &[&str], rows: &[Row], out: &mut String) {
    let _ = writeln!(out, "<h2>{}</h2>", escape(title)); // writing into text cannot fail
    if rows.is_empty() {
        out.push_str("<p>None.</p>\n");
    } else {
        table_of(head, rows, out);
    }
}

/// Formats bytes in the largest unit without a fraction.
fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |(shift, _): &&(u32, &str)| bytes > 0 && bytes.is_multiple_of(1 << shift);
    units.iter().find(fits).map_or_else(
        || format!("{bytes} B"),
        |(shift, unit)| format!("{} {unit}", grouped(bytes >> shift)),
    )
}

/// Formats an interleaving; a granularity of 0 is not known.
fn ways(ways: usize, granularity: u32) -> String {
    match (ways, granularity) {
        (0 | 1, _) => "1 way".to_owned(),
        (ways, 0) => format!("{ways} ways, granularity not known"),
        (ways, granularity) => format!("{ways} ways of {}", size(granularity.into())),
    }
}

impl<'a> View<'a> {
    fn new(all: &'a Overview) -> Self {
        let called = DisplayNames::from(all.names.as_slice());
        let mut names = BTreeMap::new();
        let ends = all.inventory.gfds.iter().map(|gfd| (gfd.pid.bits(), gfd.at));
        for (pid, at) in ends.chain(all.maps.iter().map(|map| (map.pid, map.at))) {
            let name = called.at(&all.inventory, at.switch, at.port);
            if !name.is_empty() {
                names.insert(pid, name.trim_end().to_owned());
            }
        }
        Self { all, called, names }
    }

    /// A port, with the name of its switch.
    fn place(&self, at: PortRef) -> String {
        self.called.with_names(&at.to_string())
    }

    fn bridge(&self, bridge: Bridge) -> String {
        format!("{}/{}/{}", self.called.switch(bridge.switch), bridge.vcs, bridge.vppb)
    }

    /// The name of a host, device or GFD, with its PID.
    fn who(&self, bits: u16) -> String {
        match self.names.get(&bits) {
            Some(name) => format!("{name} ({})", pid(bits)),
            None => format!("PID {}", pid(bits)),
        }
    }

    fn all_of(&self, pids: &[u16]) -> String {
        pids.iter().map(|bits| self.who(*bits)).collect::<Vec<_>>().join(", ")
    }

    fn drawing(&self, out: &mut String) {
        let inventory = &self.all.inventory;
        let (links, down) = (inventory.links.len(), inventory.down.len());
        let _ = writeln!(
            out,
            "<p>Fabric manager {}, PID {}. Switches: {}; links: {links}, of which {down} are down; GFDs: {}; bindings: {}.</p>",
            UuidText(inventory.manager.uuid),
            inventory.manager.pid,
            inventory.switches.len(),
            inventory.gfds.len(),
            self.all.bindings.len()
        );
        out.push_str("<figure id=\"drawing\"><div class=\"scroll\">");
        let _ = picture::svg(inventory, &self.called, &self.all.links, out);
        let _ = writeln!(out, "</div><figcaption>{}</figcaption></figure>", escape(LOAD));
    }

    fn switches(&self, out: &mut String) {
        let row = |(id, switch): (SwitchId, &DiscoveredSwitch)| Row {
            data: vec![("switch", id.to_string())],
            cells: vec![
                self.called.switch(id),
                id.to_string(),
                switch.pid.to_string(),
                switch.uuid.map_or_else(String::new, |uuid| UuidText(uuid).to_string()),
                format!("{:#x}", switch.serial),
                switch.ports.iter().filter(|port| port.up).count().to_string(),
                switch.vcss.len().to_string(),
                if switch.whole { "" } else { "not read" }.to_owned(),
            ],
        };
        let rows: Vec<Row> = self.all.inventory.by_id().map(row).collect();
        let head =
            ["Switch", "Number", "PID", "UUID", "Serial", "Ports up", "Virtual switches", ""];
        section("Switches", &head, &rows, out);
    }

    fn links(&self, out: &mut String) {
        let row = |link: &LinkRow| {
            let ([a, b], [there, back]) = (link.ends, link.dpids);
            let [group_there, group_back] = link.group_dpids;
            let rate = match link.bandwidth_mbps {
                0 => String::new(),
                rate => grouped(rate),
            };
            let mut cells = vec![self.place(a), self.place(b)];
            cells.push(if link.down { "down" } else { "up" }.to_owned());
            cells.push(rate);
            cells.extend(link.load.map(|load| load.map_or_else(String::new, LinkLoad::text)));
            cells.extend([there, back, group_there, group_back].map(|count| count.to_string()));
            let (id, state) = (format!("{a}-{b}"), cells.get(2).cloned().unwrap_or_default());
            // page.js highlights the drawing's elements of these ids when the row is clicked.
            Row { data: vec![("link", id.clone()), ("state", state), ("marks", id)], cells }
        };
        let rows: Vec<Row> = self.all.links.iter().map(row).collect();
        let head = [
            "From",
            "To",
            "State",
            "Lanes carry, MB/s",
            "Load there",
            "Load back",
            "DPIDs there",
            "DPIDs back",
            "More by group, there",
            "More by group, back",
        ];
        section("Links, their load, and DPIDs that are routed over them", &head, &rows, out);
    }

    fn attached(&self, out: &mut String) {
        let mut rows = Vec::new();
        for (id, switch) in self.all.inventory.by_id() {
            let ports = switch.ports.iter();
            let ports = ports.filter(|port| picture::is_edge(&self.all.inventory, id, port));
            rows.extend(ports.filter_map(|port| self.end(id, switch, port)));
        }
        let head = ["Port", "What", "Name", "PIDs", "Link", "Capacity", "Groups", "Backpressure"];
        section("Hosts, devices and GFDs", &head, &rows, out);
        out.push_str("<p>Backpressure is the average that a GFD itself reports (4910h).</p>\n");
    }

    /// The row of an edge port; `None` for one without name and link.
    fn end(&self, id: SwitchId, switch: &DiscoveredSwitch, port: &Port) -> Option<Row> {
        let at = PortRef::new(id, port.number);
        let name = self.called.at(&self.all.inventory, id, port.number).trim_end().to_owned();
        let (kind, what) = match port.partner {
            // A port with a name is listed although nothing is attached: a component is missing there.
            Partner::Nobody if name.is_empty() => return None,
            Partner::Nobody => ("absent", "nobody".to_owned()),
            Partner::Host => ("host", "host".to_owned()),
            Partner::Device(kind) => ("device", format!("device of type {kind}")),
            Partner::Gfd(_) => ("gfd", "GFD".to_owned()),
            Partner::Foreign | Partner::Switch(_) => ("foreign", "not managed".to_owned()),
        };
        let of_port = switch.targets.iter().filter(|target| {
            let is_pid = target.kind != TargetKind::Fabric && !target.pid.is_none();
            is_pid && target.port == port.number
        });
        let pids = of_port.map(|target| target.pid.to_string()).collect::<Vec<_>>().join(" ");
        let gfd = self.all.inventory.gfds.iter().find(|gfd| gfd.at == at);
        let load = gfd.and_then(|gfd| {
            let load = self.all.gfds.iter().find(|load| load.pid == gfd.pid.bits())?;
            Some(match &load.backpressure_percent {
                Asked::Read(percent) => format!("{percent} %"),
                Asked::NotRead(why) => self.called.with_names(why),
            })
        });
        let link = if port.up { "up" } else { "down" };
        let mut cells = vec![self.place(at), what, name, pids, link.to_owned()];
        let capacity = gfd.map(|gfd| size(gfd.capacity.saturating_mul(CAPACITY_UNIT)));
        let groups = gfd.map(|gfd| gfd.groups.to_string());
        cells.extend([capacity, groups, load].map(Option::unwrap_or_default));
        let data =
            vec![("end", at.to_string()), ("kind", kind.to_owned()), ("marks", at.to_string())];
        Some(Row { data, cells })
    }

    fn bindings(&self, out: &mut String) {
        let row = |one: &BindingUse| {
            let state = match one.state {
                BindingState::Bound => "bound",
                BindingState::NoWay => "unbound: no way is left",
                BindingState::Lost => "lost by the switch",
            };
            let (to, shown) = self.target(one);
            let host = one.host.map_or_else(String::new, |at| {
                self.called.at(&self.all.inventory, at.switch, at.port) + &self.place(at)
            });
            let links = self.links_of(one);
            let over =
                links.iter().map(|[a, b]| format!("{} - {}", self.place(*a), self.place(*b)));
            let over = over.collect::<Vec<_>>().join(", ");
            let Bridge { switch, vcs, vppb } = one.bridge;
            Row {
                data: vec![
                    ("bridge", format!("{switch}/{vcs}/{vppb}")),
                    ("to", to),
                    ("marks", marks(one, &links)),
                ],
                cells: vec![self.bridge(one.bridge), shown, host, over, state.to_owned()],
            }
        };
        let rows: Vec<Row> = self.all.bindings.iter().map(row).collect();
        let head = ["vPPB", "Shows", "To host", "Over links", "State"];
        section("Bindings", &head, &rows, out);
        if !rows.is_empty() {
            out.push_str("<p>A row that is clicked is marked in the drawing.</p>\n");
        }
    }

    /// The target of a binding: by numbers, and as text.
    fn target(&self, one: &BindingUse) -> (String, String) {
        if let Some(Bridge { switch, vcs, vppb }) = one.below {
            let below = Bridge { switch, vcs, vppb };
            return (format!("{switch}/{vcs}/{vppb}"), format!("vUSP {}", self.bridge(below)));
        }
        let Some(at) = one.port else { return (String::new(), String::new()) };
        let ld = one.ld.map_or_else(String::new, |ld| format!(".{ld}"));
        let name = self.called.at(&self.all.inventory, at.switch, at.port);
        (format!("port:{}{ld}", at.port), format!("{name}port {}{ld}", at.port))
    }

    /// The links that a binding's virtual link passes over.
    fn links_of(&self, one: &BindingUse) -> Vec<[PortRef; 2]> {
        // The path has both ends of each link; one of them identifies it.
        let links = one.path.iter().step_by(2).filter_map(|at| self.all.inventory.link_at(*at));
        links.collect()
    }

    fn memory(&self, out: &mut String) {
        let row = |share: &weft_fm::service::request::ShareRow| {
            let parts = share.parts.iter().enumerate().map(|(way, part)| {
                let (gfd, group, decoder) = (self.who(part.gfd), part.group, part.decoder);
                let media = part.media.map_or_else(String::new, |media| format!(" ({media})"));
                format!(
                    "{way}: {gfd}, group {group}, decoder {decoder}, DPA {:#x}{media}",
                    part.dpa
                )
            });
            Row {
                data: vec![("memory", share.name.clone())],
                cells: vec![
                    share.name.clone(),
                    format!("{:#x}", share.hpa),
                    size(share.size),
                    ways(share.parts.len(), share.granularity),
                    self.all_of(&share.hosts),
                    parts.collect::<Vec<_>>().join("; "),
                ],
            }
        };
        let rows: Vec<Row> = self.all.memory.iter().map(row).collect();
        let head = ["Name", "HPA", "Size", "Interleaving", "Hosts and devices", "By way"];
        section("Memory of GFDs", &head, &rows, out);
    }

    fn gim(&self, out: &mut String) {
        let who = |one: &NamedPid| format!("{} ({})", one.name, pid(one.pid));
        let row = |grant: &weft_fm::service::request::GimRow| Row {
            data: vec![("gim", grant.name.clone())],
            cells: vec![
                grant.name.clone(),
                format!("{:#x}", grant.hpa),
                size(grant.size),
                who(&grant.of),
                grant.from.iter().map(who).collect::<Vec<_>>().join(", "),
                if grant.prefix { "PID in the request (VendPrefixL0)" } else { "FAST" }.to_owned(),
            ],
        };
        let rows: Vec<Row> = self.all.gim.iter().map(row).collect();
        let head = ["Name", "HPA", "Size", "Memory of", "Reached from", "Target found by"];
        section("Memory of hosts and devices for others (GIM)", &head, &rows, out);
    }

    fn p2p(&self, out: &mut String) {
        let who = |one: &NamedPid| format!("{} ({})", one.name, pid(one.pid));
        let row = |grant: &weft_fm::service::request::P2pRow| {
            let state = match grant.state {
                P2pState::Given => "given",
                P2pState::Waits => "waits",
                P2pState::Refused => "refused",
            };
            let why = grant.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            Row {
                data: vec![("p2p", grant.name.clone())],
                cells: vec![
                    grant.name.clone(),
                    format!("{:#x}", grant.hpa),
                    size(grant.size),
                    who(&grant.to),
                    grant.from.iter().map(who).collect::<Vec<_>>().join(", "),
                    format!("{state}{why}"),
                ],
            }
        };
        let rows: Vec<Row> = self.all.p2p.iter().map(row).collect();
        let head = ["Name", "HPA", "Size", "Memory device", "Accessed by", "State"];
        section("Memory devices that are accessed directly (P2P)", &head, &rows, out);
    }
}

/// Ids of the switches, links and ports in the drawing that a binding passes over, separated by blanks.
fn marks(one: &BindingUse, links: &[[PortRef; 2]]) -> String {
    let mut ids: Vec<String> = links.iter().map(|[a, b]| format!("{a}-{b}")).collect();
    ids.extend(one.path.iter().map(|at| at.switch.to_string()));
    ids.push(one.bridge.switch.to_string());
    ids.extend(one.below.map(|below| below.switch.to_string()));
    ids.extend(one.host.into_iter().chain(one.port).map(|at| at.to_string()));
    ids.sort();
    ids.dedup();
    ids.join(" ")
}

#[cfg(test)]
mod tests;
