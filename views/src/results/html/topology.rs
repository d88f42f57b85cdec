//! A picture of the network: hosts at the bottom, switches in rows by distance from hosts, links coloured by load.
//!
//! [`draw`] appends the picture as one `figure`. Lengths are pixels of a box 720 wide.
//!
//! Source: docs/results.md "The page".
#![expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "places on a page")]

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use weft_sim::results::Results;

use crate::svg::escape;

const WIDTH: f64 = 720.0;
/// Height of a row.
const ROW: f64 = 90.0;
/// Most links that are drawn.
const LINKS: usize = 4_000;
/// Most nodes of a row with names; more would overlap.
const NAMED: usize = 16;

/// Appends the picture; nothing if there are no links.
pub fn draw(results: &Results, out: &mut String) {
    let shown = results.links.iter().take(LINKS);
    if results.links.is_empty() {
        return;
    }
    let rows = rows(results);
    let height = ROW * rows.len() as f64;
    let mut places = BTreeMap::new();
    for (row, names) in rows.iter().enumerate() {
        for (at, &name) in names.iter().enumerate() {
            let x = WIDTH * (at as f64 + 0.5) / names.len() as f64;
            places.insert(name, (x, height - ROW * (row as f64 + 0.5)));
        }
    }
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Topology\">");
    for link in shown {
        let (Some(a), Some(b)) =
            (places.get(link.a.node.as_str()), places.get(link.b.node.as_str()))
        else {
            continue;
        };
        // The busier direction decides the colour.
        let busy = link.a_to_b.utilisation.max(link.b_to_a.utilisation);
        let share = busy.0 as f64 / 1e9;
        let class = match share {
            0.9.. => 3,
            0.5.. => 1,
            _ => 0,
        };
        let words = format!(
            "{} port {} to {} port {}: utilisation {} there, {} back",
            link.a.node,
            link.a.port,
            link.b.node,
            link.b.port,
            link.a_to_b.utilisation,
            link.b_to_a.utilisation
        );
        // A link within a row bends upwards, or it would run through the nodes between.
        let bend = f64::midpoint(a.1, b.1) - if (a.1 - b.1).abs() < 1.0 { 40.0 } else { 0.0 };
        let _ = write!(
            svg,
            "<path class=\"wire l{class}\" stroke-width=\"{:.1}\" d=\"M{:.1} {:.1}Q{:.1} {bend:.1} {:.1} {:.1}\">\
             <title>{}</title></path>",
            1.0 + 3.0 * share,
            a.0,
            a.1,
            f64::midpoint(a.0, b.0),
            b.0,
            b.1,
            escape(&words)
        );
    }
    for (row, names) in rows.iter().enumerate() {
        nodes(names, row > 0, &places, &mut svg);
    }
    svg.push_str("</svg>");
    let all = results.links.len();
    let text = if all > LINKS {
        format!("<figcaption>The first {LINKS} of {all} links.</figcaption>")
    } else {
        String::new()
    };
    let _ = writeln!(out, "<figure id=\"topology\"><h2>Topology</h2>{text}{svg}</figure>");
}

fn nodes(names: &[&str], is_switch: bool, places: &BTreeMap<&str, (f64, f64)>, svg: &mut String) {
    let size = (WIDTH / names.len().max(1) as f64 * 0.6).clamp(2.0, 18.0);
    for &name in names {
        let Some(&(x, y)) = places.get(name) else { continue };
        let round = if is_switch { 0.0 } else { size / 2.0 };
        let words = escape(name);
        let _ = write!(
            svg,
            "<rect class=\"node\" x=\"{:.1}\" y=\"{:.1}\" width=\"{size:.1}\" height=\"{size:.1}\" \
             rx=\"{round:.1}\"><title>{words}</title></rect>",
            x - size / 2.0,
            y - size / 2.0
        );
        if names.len() <= NAMED {
            let short: String = name.chars().take(8).collect();
            let _ = write!(
                svg,
                "<text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                y + size / 2.0 + 14.0,
                escape(&short)
            );
        }
    }
}

/// Names by row: hosts, then switches by the least number of links to a host (breadth-first search from all hosts).
fn rows(results: &Results) -> Vec<Vec<&str>> {
    let mut near: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for link in &results.links {
        near.entry(&link.a.node).or_default().push(&link.b.node);
        near.entry(&link.b.node).or_default().push(&link.a.node);
    }
    let mut distance: BTreeMap<&str, usize> =
        results.hosts.iter().map(|host| (host.name.as_str(), 0)).collect();
    let mut queue: VecDeque<&str> = results.hosts.iter().map(|host| host.name.as_str()).collect();
    while let Some(node) = queue.pop_front() {
        let next = distance.get(node).copied().unwrap_or_default() + 1;
        for &far in near.get(node).into_iter().flatten() {
            if !distance.contains_key(far) {
                distance.insert(far, next);
                queue.push_back(far);
            }
        }
    }
    let mut rows: Vec<Vec<&str>> =
        vec![results.hosts.iter().map(|host| host.name.as_str()).collect()];
    for switch in &results.switches {
        // A switch that no host reaches stands in the first row of switches.
        let row = distance.get(switch.name.as_str()).copied().unwrap_or(1).max(1);
        if rows.len() <= row {
            rows.resize(row + 1, Vec::new());
        }
        if let Some(row) = rows.get_mut(row) {
            row.push(&switch.name);
        }
    }
    rows
}
