//! An inventory as text for people: a tree, or a graph for Graphviz.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; the DOT language of graphviz.org.

use std::fmt::{self, Write};

use crate::model::graph::SwitchId;
use crate::model::inventory::{DiscoveredSwitch, Inventory, Partner, Port, TargetKind, Vcs};
use crate::model::text::UuidText;
use crate::show::display_names::DisplayNames;

/// PIDs of a port's targets, each preceded by a blank.
fn pids(switch: &DiscoveredSwitch, port: &Port) -> String {
    let has = |t: &&crate::model::inventory::Target| {
        t.port == port.number && t.kind != TargetKind::Fabric && !t.pid.is_none()
    };
    let mut text = String::new();
    for target in switch.targets.iter().filter(has) {
        let _ = write!(text, " {}", target.pid);
    }
    text
}

/// Description of the partner at a port; `None` for a port without one.
pub(crate) fn partner(
    inventory: &Inventory,
    called: &DisplayNames,
    id: SwitchId,
    switch: &DiscoveredSwitch,
    port: &Port,
) -> Option<String> {
    let at = crate::model::graph::PortRef::new(id, port.number);
    let name = called.at(inventory, id, port.number);
    if port.perst {
        return Some(format!("{name}held in reset, PERST# is asserted"));
    }
    Some(match port.partner {
        Partner::Nobody => return None,
        Partner::Host => {
            format!("host {name}{}", pids(switch, port).trim_start()).trim_end().to_owned()
        }
        Partner::Device(kind) => {
            let lds = match port.lds {
                0 => String::new(),
                lds => format!(", {lds} LDs"),
            };
            format!("device {name}of type {kind}{}{lds}", pids(switch, port))
        }
        Partner::Gfd(place) => {
            let gfd = inventory.gfds.get(place)?;
            format!("GFD {name}{}, {} MiB", gfd.pid, gfd.capacity.saturating_mul(256))
        }
        Partner::Switch(far) => {
            let is_down = inventory.link_at(at).is_some_and(|link| inventory.down.contains(&link));
            format!(
                "{}{}",
                called.with_names(&far.to_string()),
                if is_down { ", down" } else { "" }
            )
        }
        Partner::Foreign => "not managed".to_owned(),
    })
}

/// Free downstream bridges of a virtual switch, as text; empty if there is none.
fn free_vppbs(vcs: &Vcs) -> String {
    let free = (1_u8..).zip(vcs.vppbs.iter().skip(1)).filter(|(_, vppb)| vppb.status == 0);
    let numbers: Vec<String> = free.map(|(number, _)| format!("vPPB {number}")).collect();
    numbers.join(", ")
}

/// Port of the host whose virtual switch this is, at the host's edge.
fn host_of(switch: &DiscoveredSwitch, vcs: &Vcs) -> Option<u8> {
    let is_it =
        |t: &&crate::model::inventory::Target| t.kind == TargetKind::Host && t.vcs == vcs.id;
    switch.targets.iter().find(is_it).map(|target| target.port)
}

/// Writes a fabric as text: a paragraph for each switch, a line for each port. Switches are indented below those that
/// they were found from.
///
/// # Errors
/// The writer's.
pub fn tree(inventory: &Inventory, called: &DisplayNames, to: &mut dyn Write) -> fmt::Result {
    // A stack rather than recursion: the depth is as the fabric has it.
    let mut open: Vec<(SwitchId, usize)> = vec![(SwitchId(0), 0)];
    while let Some((id, depth)) = open.pop() {
        let Some(switch) = inventory.switch(id) else { continue };
        let indent = "  ".repeat(depth);
        write!(to, "{indent}{} PID {}", called.switch(id), switch.pid)?;
        match switch.uuid {
            Some(uuid) => write!(to, " {}", UuidText(uuid))?,
            None => write!(to, " serial {}", switch.serial)?,
        }
        writeln!(to, "{}", if switch.whole { "" } else { ", not read" })?;
        for port in &switch.ports {
            if let Some(what) = partner(inventory, called, id, switch, port) {
                writeln!(to, "{indent}  {}: {what}", port.number)?;
            }
        }
        for vcs in &switch.vcss {
            let free = free_vppbs(vcs);
            if !free.is_empty() {
                let of = host_of(switch, vcs).map(|port| called.at(inventory, id, port));
                let of = of.map_or_else(|| "no host".to_owned(), |name| format!("host {name}"));
                writeln!(to, "{indent}  VCS {}, of {}: free {free}", vcs.id, of.trim_end())?;
            }
        }
        let found = |(below, switch): (SwitchId, &DiscoveredSwitch)| {
            switch.came.filter(|came| came.from.switch == id).map(|_| (below, depth + 1))
        };
        let mut below: Vec<_> = inventory.by_id().filter_map(found).collect();
        below.reverse();
        open.extend(below);
    }
    Ok(())
}

/// Text for a label of the DOT language, in which `"` and backslash are special.
struct Label<'a>(&'a str);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '"' | '\\' => write!(f, "\\{c}"),
            // Names come from a file: a control character in one must not reach a terminal.
            c if c.is_control() => write!(f, "{}", char::REPLACEMENT_CHARACTER),
            c => f.write_char(c),
        })
    }
}

/// Writes a fabric as a graph in the DOT language.
///
/// # Errors
/// The writer's.
pub fn dot(inventory: &Inventory, called: &DisplayNames, to: &mut dyn Write) -> fmt::Result {
    writeln!(to, "graph fabric {{\n  node [shape=box];")?;
    for (id, switch) in inventory.by_id() {
        let name = called.switch(id);
        writeln!(to, "  {id} [label=\"{}\\nPID {}\"];", Label(&name), switch.pid)?;
        for port in &switch.ports {
            // Links follow below, each once rather than at both ends.
            if matches!(port.partner, Partner::Switch(_)) {
                continue;
            }
            if let Some(what) = partner(inventory, called, id, switch, port) {
                let name = format!("{id}_{}", port.number);
                writeln!(to, "  {name} [shape=ellipse, label=\"{}\"];", Label(&what))?;
                writeln!(to, "  {id} -- {name} [taillabel=\"{}\"];", port.number)?;
            }
        }
    }
    for link in &inventory.links {
        let [a, b] = *link;
        let style = if inventory.down.contains(link) { ", style=dashed" } else { "" };
        let labels = format!("taillabel=\"{}\", headlabel=\"{}\"", a.port, b.port);
        writeln!(to, "  {} -- {} [{labels}{style}];", a.switch, b.switch)?;
    }
    writeln!(to, "}}")
}
