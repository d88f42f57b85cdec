//! An inventory for people: a tree in text, a graph for Graphviz, and a picture.
//!
//! Shape: [`Inventory`] -> text.
//! Units: pixels in the picture.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; the DOT language of graphviz.org; W3C SVG 2.

use std::fmt::{self, Write};

use super::graph::SwitchId;
use super::inventory::{Inventory, Partner, Port, Switch, TargetKind};
use super::service::display_names::DisplayNames;
use super::text::UuidText;

/// PIDs of a port's targets, with a blank in front of each.
fn pids(switch: &Switch, port: &Port) -> String {
    let has = |t: &&super::inventory::Target| {
        t.port == port.number && t.kind != TargetKind::Fabric && !t.pid.is_none()
    };
    let mut text = String::new();
    for target in switch.targets.iter().filter(has) {
        let _ = write!(text, " {}", target.pid);
    }
    text
}

fn partner(
    (inventory, called): (&Inventory, &DisplayNames),
    id: SwitchId,
    switch: &Switch,
    port: &Port,
) -> Option<String> {
    let at = super::graph::PortRef::new(id, port.number);
    let name = called.at(inventory, id, port.number);
    Some(match port.partner {
        Partner::Nobody => return None,
        Partner::Host => {
            format!("host {name}{}", pids(switch, port).trim_start()).trim_end().to_owned()
        }
        Partner::Device(kind) => format!("device {name}of type {kind}{}", pids(switch, port)),
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

/// Writes a fabric as text: a switch a paragraph, a port a line; switches under those that they were found from.
///
/// # Errors
/// The writer's.
pub fn tree(inventory: &Inventory, called: &DisplayNames, to: &mut dyn Write) -> fmt::Result {
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
            if let Some(what) = partner((inventory, called), id, switch, port) {
                writeln!(to, "{indent}  {}: {what}", port.number)?;
            }
        }
        let found = |(below, switch): (SwitchId, &Switch)| {
            switch.came.filter(|came| came.from.switch == id).map(|_| (below, depth + 1))
        };
        let mut below: Vec<_> = inventory.by_id().filter_map(found).collect();
        below.reverse();
        open.extend(below);
    }
    Ok(())
}

/// Writes a fabric as a graph in the DOT language.
///
/// # Errors
/// The writer's.
pub fn dot(inventory: &Inventory, called: &DisplayNames, to: &mut dyn Write) -> fmt::Result {
    writeln!(to, "graph fabric {{\n  node [shape=box];")?;
    for (id, switch) in inventory.by_id() {
        writeln!(to, "  {id} [label=\"{}\\nPID {}\"];", called.switch(id), switch.pid)?;
        for port in &switch.ports {
            if matches!(port.partner, Partner::Switch(_)) {
                continue;
            }
            if let Some(what) = partner((inventory, called), id, switch, port) {
                let name = format!("{id}_{}", port.number);
                writeln!(to, "  {name} [shape=ellipse, label=\"{what}\"];")?;
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

/// Width of a box and of the gap beside it, pixels.
const BOX: (usize, usize) = (132, 28);
/// Height of a switch's box, of what hangs on it, and of the gap below a row.
const ROW: (usize, usize, usize) = (44, 18, 60);

/// Writes a fabric as a picture: switches in rows by how far they are from the entry switch, what hangs on each below
/// it, links between.
///
/// # Errors
/// The writer's.
pub fn svg(inventory: &Inventory, called: &DisplayNames, to: &mut dyn Write) -> fmt::Result {
    let (places, width, height) = places(inventory, called);
    writeln!(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">"
    )?;
    for link in &inventory.links {
        let is_down = inventory.down.contains(link);
        let dash = if is_down { " stroke-dasharray=\"4 4\"" } else { "" };
        let middle = |end: super::graph::PortRef| {
            places.get(&end.switch).map(|(x, y)| (x + BOX.0 / 2, y + ROW.0 / 2))
        };
        let [a, b] = *link;
        let (Some((x1, y1)), Some((x2, y2))) = (middle(a), middle(b)) else { continue };
        let [a, b] = [a, b].map(|end| called.with_names(&end.to_string()));
        let line = format!("x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"");
        let state = if is_down { ", down" } else { "" };
        writeln!(
            to,
            "  <line {line} stroke=\"#567\"{dash}><title>{a} - {b}{state}</title></line>"
        )?;
    }
    for (id, switch) in inventory.by_id() {
        let Some(&(x, y)) = places.get(&id) else { continue };
        let fill = if switch.whole { "#dbe9f6" } else { "#eee" };
        writeln!(
            to,
            "  <rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{fill}\" stroke=\"#345\"/>",
            BOX.0, ROW.0
        )?;
        let text = format!("{} PID {}", called.switch(id), switch.pid);
        writeln!(to, "  <text x=\"{}\" y=\"{}\">{text}</text>", x + 8, y + 26)?;
        for (line, what) in hanging((inventory, called), id, switch).into_iter().enumerate() {
            let y = y + ROW.0 + ROW.1 * (line + 1) - 4;
            writeln!(to, "  <text x=\"{}\" y=\"{y}\" fill=\"#555\">{what}</text>", x + 4)?;
        }
    }
    writeln!(to, "</svg>")
}

/// What hangs on a switch, a line each.
fn hanging(
    (inventory, called): (&Inventory, &DisplayNames),
    id: SwitchId,
    switch: &Switch,
) -> Vec<String> {
    let ports = switch.ports.iter().filter(|port| !matches!(port.partner, Partner::Switch(_)));
    ports
        .filter_map(|port| {
            Some(format!("{}: {}", port.number, partner((inventory, called), id, switch, port)?))
        })
        .collect()
}

/// Where each switch stands, and how large the picture is.
fn places(
    inventory: &Inventory,
    called: &DisplayNames,
) -> (std::collections::BTreeMap<SwitchId, (usize, usize)>, usize, usize) {
    let mut rows: std::collections::BTreeMap<usize, Vec<SwitchId>> =
        std::collections::BTreeMap::new();
    let mut depths = std::collections::BTreeMap::new();
    // Switches stand behind those that they were found from; a lost one may not.
    for (id, switch) in inventory.by_id() {
        let above = switch.came.and_then(|came| depths.get(&came.from.switch).copied());
        let depth = if switch.came.is_none() { 0 } else { above.unwrap_or(0) + 1 };
        depths.insert(id, depth);
        rows.entry(depth).or_default().push(id);
    }
    let widest = rows.values().map(Vec::len).max().unwrap_or(1);
    let width = widest * (BOX.0 + BOX.1) + BOX.1;
    let (mut places, mut y) = (std::collections::BTreeMap::new(), BOX.1);
    for row in rows.values() {
        let left = (width + BOX.1).saturating_sub(row.len() * (BOX.0 + BOX.1)) / 2;
        let mut lines = 0;
        for (at, &id) in row.iter().enumerate() {
            places.insert(id, (left + at * (BOX.0 + BOX.1), y));
            let count =
                inventory.switch(id).map_or(0, |s| hanging((inventory, called), id, s).len());
            lines = lines.max(count);
        }
        y += ROW.0 + lines * ROW.1 + ROW.2;
    }
    (places, width, y)
}
