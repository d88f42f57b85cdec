//! Picture of a fabric as SVG: switches in rows, attached components below each, and links between.
//!
//! [`svg`] writes one `svg` element from an [`Inventory`], names and [`LinkRow`]s. Ids are places: `s0` a switch,
//! `s0.3` the component at a port, `s0.5-s1.0` a link; classes name the kind of each, for the style of a page. Lengths
//! are pixels.
//!
//! Source: W3C SVG 2; docs/fm.md "Commands".

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use weft_base::markup::escape;

use super::overview::{LinkLoad, LinkRow};
use super::topology::partner;
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::{DiscoveredSwitch, Inventory, Partner, Port};
use crate::show::display_names::DisplayNames;

/// Width of a box, and of the gap beside it.
const BOX: (i64, i64) = (190, 44);
/// Height of a switch's box, of a row of attached components, and of the gap below a row of switches.
const ROW: (i64, i64, i64) = (44, 20, 76);
/// Room above the first row, which has the entry switch alone.
const TOP: i64 = 28;
/// Distance between two links of the same switches at most: room for three-digit numbers side by side.
const BESIDE: i64 = 48;
/// Characters that fit a box.
const FITS: usize = 31;
/// The thinnest link has 1 pixel; the one with most DPIDs has this many more.
const WIDER: u16 = 4;
/// Load in bits a second below which the busiest link counts as idle: the manager's own messages cause some.
const QUIET: u64 = 1_000_000;

/// Upper left corner of each switch's box.
type Places = BTreeMap<SwitchId, (i64, i64)>;

/// A number of rows or columns for arithmetic in pixels.
fn px(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::from(u32::MAX))
}

/// Writes the picture of a fabric: switches in rows by distance from the entry switch, attached components below each,
/// links between. The more DPIDs are routed over a link, the wider it is; the numbers at it are those of its two ends.
/// Its colour is its load relative to that of the busiest link.
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
    // Never 0, as widths are divided by it.
    let most = links.iter().flat_map(|link| link.dpids).max().unwrap_or(0).max(1);
    let busiest = links.iter().map(busier).max().unwrap_or(0);
    let (mut sides, mut labels) = (Sides::of(links), String::new());
    // Links first, then switches over them, and the numbers last, so that nothing covers them.
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

/// For each pair of switches: number of links between them, and number of those drawn.
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

    /// Position of a link beside the others of its pair.
    fn next(&mut self, link: &LinkRow) -> Side {
        let Some((all, drawn)) = self.0.get_mut(&Self::pair(link)) else { return Side(0, 1) };
        *drawn += 1;
        Side(2 * *drawn - 1 - *all, *all)
    }
}

/// Position of a link among those of the same switches: twice its offset from the middle, and their number.
#[derive(Clone, Copy)]
struct Side(i64, i64);

impl Side {
    /// Offset in pixels from the middle of a side of a box.
    fn shift(self, side: i64) -> i64 {
        // The links must stay within the side of the box, 4 pixels from each corner.
        self.0 * BESIDE.min((side - 8) / self.1) / 2
    }
}

/// A link as drawn.
struct Line {
    /// SVG path data.
    path: String,
    /// Position of its numbers.
    label: (i64, i64),
    /// DPIDs by end, that of the upper or left switch first.
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
            // Over the switches between. The numbers are at a third of the curve, beside the middle one of these.
            let bend = ROW.0 + 24 + 12 * ((x2 - x1) / column) - 2 * shift;
            let (middle, top) = (x1.midpoint(x2), y1 - bend);
            let label = (x1 + (x2 - x1) / 3, y1 - bend * 4 / 9 - 4);
            (format!("M{x1} {y1}Q{middle} {top} {x2} {y2}"), label)
        };
        Some(Self { path, label, dpids })
    }
}

/// Load of a link in its busier direction, bits a second.
fn busier(link: &LinkRow) -> u64 {
    link.load.iter().flatten().map(|load| load.bps).max().unwrap_or(0)
}

/// Colour of a link, by quarters of the load of the busiest one.
fn color(link: &LinkRow, busiest: u64) -> &'static str {
    // In 128 bits: four times the load that a faulty switch reports may not fit 64.
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
    switch: &DiscoveredSwitch,
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

/// Text shortened to fit a box.
fn fitting(text: &str) -> String {
    if text.chars().count() <= FITS {
        return text.to_owned();
    }
    text.chars().take(FITS - 1).chain(['\u{2026}']).collect()
}

/// Components attached to a switch, with their ports; also names in use without a link.
fn attached<'a>(
    inventory: &Inventory,
    called: &DisplayNames,
    id: SwitchId,
    switch: &'a DiscoveredSwitch,
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

/// Whether a port may have a component: it leads to no switch. Behind a link that is down the partner may be unknown,
/// so known links are looked up, too.
#[must_use]
pub fn is_edge(inventory: &Inventory, id: SwitchId, port: &Port) -> bool {
    match port.partner {
        Partner::Switch(_) => false,
        Partner::Foreign => inventory.link_at(PortRef::new(id, port.number)).is_none(),
        Partner::Nobody | Partner::Host | Partner::Device(_) | Partner::Gfd(_) => true,
    }
}

/// Position of each switch, and the size of the picture.
fn places(inventory: &Inventory, called: &DisplayNames) -> (Places, i64, i64) {
    let mut rows: BTreeMap<i64, Vec<SwitchId>> = BTreeMap::new();
    let mut depths = BTreeMap::new();
    // Switches come after those that they were found from, in the inventory; a lost one may not.
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
