//! A fabric as a picture: switches in rows, what is attached below each, and links between.
//!
//! [`Inventory`], names, [`LinkRow`]s -> one `svg` element. Ids are places: `s0` a switch, `s0.3` what is at a port,
//! `s0.5-s1.0` a link; classes say what each is, for the style of a page.
//!
//! Units: pixels.
//! Source: W3C SVG 2; docs/fm.md "Commands".

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use weft_base::markup::escape;

use super::graph::{PortRef, SwitchId};
use super::inventory::{Inventory, Partner, Port, Switch};
use super::overview::{LinkLoad, LinkRow};
use super::service::display_names::DisplayNames;
use super::topology::partner;

/// Width of a box and of the gap beside it.
const BOX: (i64, i64) = (190, 44);
/// Height of a switch's box, of a row of what is attached to it, and of the gap below a row of switches.
const ROW: (i64, i64, i64) = (44, 20, 76);
/// Room above the first row, that of the entry switch alone.
const TOP: i64 = 28;
/// Between two links of the same switches, at most: numbers of three digits stand beside each other.
const BESIDE: i64 = 48;
/// Characters that a box has room for.
const FITS: usize = 31;
/// The thinnest link has 1 pixel; one with as many DPIDs as any has so many more.
const WIDER: u16 = 4;
/// Below this load, in bits a second, the busiest link is no busy one: the manager's own messages are some.
const QUIET: u64 = 1_000_000;

/// Where each switch stands.
type Places = BTreeMap<SwitchId, (i64, i64)>;

/// A place or a number of places as pixels.
fn px(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::from(u32::MAX))
}

/// Writes a fabric as a picture: switches in rows by how far they are from the entry switch, what is attached to each below
/// it, links between. A link is the wider the more DPIDs are routed over it; the numbers at it are those of its two ends. Its
/// colour is its load as part of that of the busiest link.
///
/// # Errors
/// The writer's.
pub fn svg(
    inventory: &Inventory,
    called: &DisplayNames,
    links: &[LinkRow],
    to: &mut dyn Write,
) -> fmt::Result {
    let (places, width, height) = places(inventory, called);
    writeln!(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\" role=\"img\" aria-label=\"Topology\">"
    )?;
    let most = links.iter().flat_map(|link| link.dpids).max().unwrap_or(0).max(1);
    let busiest = links.iter().map(busier).max().unwrap_or(0);
    let (mut sides, mut labels) = (Sides::of(links), String::new());
    for link in links {
        let Some(line) = Line::of(&places, link, sides.next(link)) else { continue };
        draw_link(link, called, &line, most, busiest, to)?;
        if !link.down {
            let ((x, y), [one, other]) = (line.label, line.dpids);
            writeln!(
                labels,
                "  <text class=\"load\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#234\" stroke=\"#fff\" \
                 stroke-width=\"3\" paint-order=\"stroke\">{one}/{other}</text>"
            )?;
        }
    }
    for (id, switch) in inventory.by_id() {
        let Some(&(x, y)) = places.get(&id) else { continue };
        draw_switch(inventory, called, id, switch, x, y, to)?;
    }
    write!(to, "{labels}")?;
    writeln!(to, "</svg>")
}

/// Links of the same two switches: how many there are, and how many of them have been drawn.
struct Sides(BTreeMap<(SwitchId, SwitchId), (i64, i64)>);

impl Sides {
    fn pair(link: &LinkRow) -> (SwitchId, SwitchId) {
        let [a, b] = link.ends.map(|end| end.switch);
        (a.min(b), a.max(b))
    }

    fn of(links: &[LinkRow]) -> Self {
        let mut all = BTreeMap::new();
        for link in links {
            all.entry(Self::pair(link)).or_insert((0, 0)).0 += 1;
        }
        Self(all)
    }

    /// Where a link is beside the others.
    fn next(&mut self, link: &LinkRow) -> Side {
        let Some((all, drawn)) = self.0.get_mut(&Self::pair(link)) else { return Side(0, 1) };
        *drawn += 1;
        Side(2 * *drawn - 1 - *all, *all)
    }
}

/// A link among those of the same switches: twice its place from the middle one, and how many there are.
#[derive(Clone, Copy)]
struct Side(i64, i64);

impl Side {
    /// Pixels from the middle of a side of a box.
    fn shift(self, side: i64) -> i64 {
        self.0 * BESIDE.min((side - 8) / self.1) / 2
    }
}

/// A link as it is drawn.
struct Line {
    /// Its path.
    path: String,
    /// Where its numbers are.
    label: (i64, i64),
    /// DPIDs by end: the upper or left one first.
    dpids: [u16; 2],
}

impl Line {
    /// The line of a link that stands at `side`.
    fn of(places: &Places, link: &LinkRow, side: Side) -> Option<Self> {
        let middle =
            |end: PortRef| places.get(&end.switch).map(|(x, y)| (x + BOX.0 / 2, y + ROW.0 / 2));
        let ([a, b], [there, back]) = (link.ends, link.dpids);
        let (a, b) = (middle(a)?, middle(b)?);
        let is_first = (a.1, a.0) <= (b.1, b.0);
        let ((x1, y1), (x2, y2)) = if is_first { (a, b) } else { (b, a) };
        let dpids = if is_first { [there, back] } else { [back, there] };
        let column = BOX.0 + BOX.1;
        let shift = side.shift(if y1 == y2 { ROW.0 } else { BOX.0 });
        let (path, label) = if y1 != y2 {
            let (x1, x2) = (x1 + shift, x2 + shift);
            let up = ROW.0 / 2 + 12; // above the box of the lower end
            let x = x2 + (x1 - x2) * up / (y2 - y1);
            (format!("M{x1} {y1}L{x2} {y2}"), (x, y2 - up))
        } else if x2 - x1 <= column {
            let y = y1 + shift;
            (format!("M{x1} {y}L{x2} {y}"), (x1.midpoint(x2), y - 4))
        } else {
            // Over the switches between; the numbers are at a third of the curve, beside the middle one of these.
            let bend = ROW.0 + 24 + 12 * ((x2 - x1) / column) - 2 * shift;
            let (middle, top) = (x1.midpoint(x2), y1 - bend);
            let label = (x1 + (x2 - x1) / 3, y1 - bend * 4 / 9 - 4);
            (format!("M{x1} {y1}Q{middle} {top} {x2} {y2}"), label)
        };
        Some(Self { path, label, dpids })
    }
}

/// The load of a link in its busier direction, bits a second.
fn busier(link: &LinkRow) -> u64 {
    link.load.iter().flatten().map(|load| load.bps).max().unwrap_or(0)
}

/// The color of a link: by quarters of the load of the busiest one.
fn color(link: &LinkRow, busiest: u64) -> &'static str {
    match u128::from(busier(link)) * 4 / u128::from(busiest.max(QUIET)) {
        _ if link.down => "#b33",
        0 => "#567",
        1 => "#9a7b2f",
        2 => "#c98a12",
        _ => "#f09000",
    }
}

fn draw_link(
    link: &LinkRow,
    called: &DisplayNames,
    line: &Line,
    most: u16,
    busiest: u64,
    to: &mut dyn Write,
) -> fmt::Result {
    let [a, b] = link.ends;
    let [from, into] = [a, b].map(|end| escape(&called.with_names(&end.to_string())));
    let [there, back] = link.dpids;
    let (class, dash) = if link.down { (" down", " stroke-dasharray=\"4 4\"") } else { ("", "") };
    let state = if link.down {
        ", down".to_owned()
    } else {
        let load = |load: Option<LinkLoad>| {
            load.map_or_else(String::new, |load| format!(", {}", load.text()))
        };
        let [load_there, load_back] = link.load.map(load);
        format!(": {there} DPIDs from {from}{load_there}, {back} from {into}{load_back}")
    };
    let tenths = 10 + 10 * u32::from(WIDER) * u32::from(there.max(back)) / u32::from(most);
    let (whole, part) = (tenths / 10, tenths % 10);
    let stroke = color(link, busiest);
    writeln!(
        to,
        "  <g class=\"link{class}\" id=\"{a}-{b}\"><title>{from} - {into}{state}</title><path d=\"{}\" fill=\"none\" \
         stroke=\"{stroke}\" stroke-width=\"{whole}.{part}\"{dash}/></g>",
        line.path
    )
}

fn draw_switch(
    inventory: &Inventory,
    called: &DisplayNames,
    id: SwitchId,
    switch: &Switch,
    x: i64,
    y: i64,
    to: &mut dyn Write,
) -> fmt::Result {
    let (class, fill) =
        if switch.whole { ("switch", "#dbe9f6") } else { ("switch silent", "#eee") };
    let said = format!("{} PID {}", called.switch(id), switch.pid);
    let state = if switch.whole { "" } else { ", not read" };
    writeln!(
        to,
        "  <g class=\"{class}\" id=\"{id}\"><title>{}{state}</title><rect x=\"{x}\" y=\"{y}\" width=\"{}\" \
         height=\"{}\" rx=\"4\" fill=\"{fill}\" stroke=\"#345\"/><text x=\"{}\" y=\"{}\" fill=\"#123\">{}</text></g>",
        escape(&said),
        BOX.0,
        ROW.0,
        x + 8,
        y + 26,
        escape(&fitting(&said))
    )?;
    for (line, (port, said)) in attached(inventory, called, id, switch).into_iter().enumerate() {
        let y = y + ROW.0 + 2 + ROW.1 * px(line);
        let (class, fill) = match port.partner {
            Partner::Host => ("host", "#fdf3d8"),
            Partner::Gfd(_) => ("gfd", "#e3f3e1"),
            Partner::Device(_) => ("device", "#efe6f6"),
            Partner::Nobody => ("absent", "#fff"),
            Partner::Foreign | Partner::Switch(_) => ("foreign", "#eee"),
        };
        let (state, dash) = if port.up { ("", "") } else { (" down", " stroke-dasharray=\"4 4\"") };
        writeln!(
            to,
            "  <g class=\"{class}{state}\" id=\"{id}.{}\"><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{}\" \
             height=\"{}\" rx=\"3\" fill=\"{fill}\" stroke=\"#999\"{dash}/><text x=\"{}\" y=\"{}\" fill=\"#333\">{}</text></g>",
            port.number,
            escape(&said),
            BOX.0,
            ROW.1 - 2,
            x + 5,
            y + 13,
            escape(&fitting(&said))
        )?;
    }
    Ok(())
}

/// Text as a box has room for it.
fn fitting(text: &str) -> String {
    if text.chars().count() <= FITS {
        return text.to_owned();
    }
    text.chars().take(FITS - 1).chain(['\u{2026}']).collect()
}

/// What is attached to a switch, with its ports; also what has a name and no link.
fn attached<'a>(
    inventory: &Inventory,
    called: &DisplayNames,
    id: SwitchId,
    switch: &'a Switch,
) -> Vec<(&'a Port, String)> {
    let ports = switch.ports.iter().filter(|port| is_edge(inventory, id, port));
    ports
        .filter_map(|port| {
            let said = partner(inventory, called, id, switch, port).or_else(|| {
                let name = called.at(inventory, id, port.number);
                (!name.is_empty()).then(|| format!("{}, no link", name.trim_end()))
            })?;
            Some((port, format!("{}: {said}", port.number)))
        })
        .collect()
}

/// Whether something may be attached to a port: it leads to no switch. The far end of a link that is down may not tell any
/// more whom it leads to.
#[must_use]
pub fn is_edge(inventory: &Inventory, id: SwitchId, port: &Port) -> bool {
    match port.partner {
        Partner::Switch(_) => false,
        Partner::Foreign => inventory.link_at(PortRef::new(id, port.number)).is_none(),
        Partner::Nobody | Partner::Host | Partner::Device(_) | Partner::Gfd(_) => true,
    }
}

/// Where each switch stands, and how large the picture is.
fn places(inventory: &Inventory, called: &DisplayNames) -> (Places, i64, i64) {
    let mut rows: BTreeMap<i64, Vec<SwitchId>> = BTreeMap::new();
    let mut depths = BTreeMap::new();
    // Switches stand behind those that they were found from; a lost one may not.
    for (id, switch) in inventory.by_id() {
        let above = switch.came.and_then(|came| depths.get(&came.from.switch).copied());
        let depth = if switch.came.is_none() { 0 } else { above.unwrap_or(0) + 1 };
        depths.insert(id, depth);
        rows.entry(depth).or_default().push(id);
    }
    let column = BOX.0 + BOX.1;
    let width = px(rows.values().map(Vec::len).max().unwrap_or(1)) * column + BOX.1;
    let (mut places, mut y) = (BTreeMap::new(), TOP);
    for row in rows.values() {
        let left = (width + BOX.1 - px(row.len()) * column) / 2;
        let mut lines = 0;
        for (at, &id) in row.iter().enumerate() {
            places.insert(id, (left + px(at) * column, y));
            let ends = |switch| attached(inventory, called, id, switch).len();
            lines = lines.max(inventory.switch(id).map_or(0, ends));
        }
        y += ROW.0 + px(lines) * ROW.1 + ROW.2;
    }
    (places, width, y - ROW.2 + BOX.1)
}
