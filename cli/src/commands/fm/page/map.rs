//! Memory maps: the address space of each host or device, drawn to scale.
//!
//! A window may be a thousand times as long as the memory in it. So the window is drawn once as a whole, by segments,
//! and each run of segments with one FAST entry again as a [`Strip`], on a scale of its own that ends with its memory.
//! Coordinates are pixels of a box 760 wide.
//!
//! Source: docs/spec/wire-formats.md §5.1; docs/fm.md "The page of a fabric".

use std::fmt::Write as _;

use weft_fm::cci::segment_tables::{SegmentRun, SegmentTable};
use weft_fm::components::memory::map::SEGMENT;
use weft_fm::service::request::{P2pRow, P2pState};
use weft_fm::show::overview::{AddressMap, Asked};
use weft_views::page::{Row, table_of};
use weft_views::svg::escape;

use super::{View, pid, size, ways};

/// Width of a bar, and of the margins beside it, in pixels.
const BAR: u64 = 720;
const LEFT: u64 = 20;
/// Height of a window, and of a strip, in pixels.
const WINDOW: usize = 62;
const STRIP: usize = 86;
/// Most strips that are drawn; the table lists all.
const STRIPS: usize = 64;
/// Number of colour classes in page.css (`c0` and on).
const COLOURS: usize = 8;

/// Kind of GIM whose requests carry the target's PID, past FAST.
const BY_PREFIX: &str = "GIM by prefix";
/// Kind of memory devices that accelerators access directly, by LDST.
const P2P: &str = "P2P";

/// Memory granted to a requester: of GFDs, of a host or device (GIM), or of a memory device (P2P).
struct Granted<'a> {
    name: &'a str,
    hpa: u64,
    size: u64,
    targets: Vec<u16>,
    granularity: u32,
    kind: &'static str,
}

impl Granted<'_> {
    /// Whether FAST routes requests to it.
    fn by_fast(&self) -> bool {
        self.kind != BY_PREFIX && self.kind != P2P
    }
}

/// A range of addresses that is drawn on one scale.
struct Strip<'a> {
    title: String,
    base: u64,
    /// Bytes that the bar shows; at most `size`.
    shown: u64,
    size: u64,
    granted: Vec<&'a Granted<'a>>,
    targets: &'a [u16],
    granularity: u32,
    /// A disagreement between the tables and the grants.
    wrong: Option<String>,
}

/// Writes the maps of all requesters.
pub(super) fn all(view: &View<'_>, out: &mut String) {
    out.push_str("<h2>Memory maps</h2>\n");
    if view.all.maps.is_empty() {
        out.push_str("<p>None: no host has a PID.</p>\n");
    }
    view.all.maps.iter().for_each(|map| one(view, map, out));
}

fn one(view: &View<'_>, map: &AddressMap, out: &mut String) {
    let what = if map.host { "Host" } else { "Device" };
    let _ = writeln!(
        out,
        "<section class=\"addresses\" data-map=\"{}\"><h3>{what} {} at {}</h3>",
        map.at,
        escape(&view.who(map.pid)),
        escape(&view.place(map.at))
    );
    let granted = granted(view, map.pid);
    let fast = table(&map.fast);
    notes(view, map, out);
    let strips = strips(fast, &map.ldst, &granted);
    draw(view, fast, table(&map.ldst), &strips, out);
    addresses(view, map, &granted, out);
    capacity(view, map.pid, out);
    out.push_str("</section>\n");
}

/// The table, if it was read and is enabled.
fn table(asked: &Asked<SegmentTable>) -> Option<&SegmentTable> {
    match asked {
        Asked::Read(table) if table.base != 0 => Some(table),
        _ => None,
    }
}

/// All memory granted to a requester, by address.
fn granted<'a>(view: &View<'a>, requester: u16) -> Vec<Granted<'a>> {
    let shares = view.all.memory.iter().filter(|share| share.hosts.contains(&requester));
    let shares = shares.map(|share| Granted {
        name: &share.name,
        hpa: share.hpa,
        size: share.size,
        targets: share.parts.iter().map(|part| part.gfd).collect(),
        granularity: share.granularity,
        kind: "memory",
    });
    let gim = view.all.gim.iter().filter(|grant| grant.from.iter().any(|o| o.pid == requester));
    let gim = gim.map(|grant| Granted {
        name: &grant.name,
        hpa: grant.hpa,
        size: grant.size,
        targets: vec![grant.of.pid],
        granularity: 0,
        kind: if grant.prefix { BY_PREFIX } else { "GIM" },
    });
    // Grants that wait or were refused have no entries in LDST.
    let is_given = |grant: &&P2pRow| {
        grant.state == P2pState::Given && grant.from.iter().any(|one| one.pid == requester)
    };
    let p2p = view.all.p2p.iter().filter(is_given).map(|grant| Granted {
        name: &grant.name,
        hpa: grant.hpa,
        size: grant.size,
        targets: vec![grant.to.pid],
        granularity: 0,
        kind: P2P,
    });
    let mut all: Vec<Granted<'a>> = shares.chain(gim).chain(p2p).collect();
    all.sort_by_key(|one| one.hpa);
    all
}

/// Writes the state of the requester's tables as text.
fn notes(view: &View<'_>, map: &AddressMap, out: &mut String) {
    let mut say = |text: String| {
        let _ = writeln!(out, "<li>{}</li>", escape(&view.called.with_names(&text)));
    };
    let window = |name: &str, bounds: &str, asked: &Asked<SegmentTable>| match asked {
        Asked::NotRead(why) => format!("{name}: not read: {why}."),
        Asked::Read(table) if table.base == 0 => format!("{name}: off."),
        Asked::Read(table) => format!(
            "{name}: {bounds} {:#x} to {:#x}, in segments of {}; {} entries, {} of them valid.",
            table.base,
            table.limit,
            size(table.segment_bytes),
            table.entries,
            table.runs.iter().map(|run| u64::from(run.segments)).sum::<u64>()
        ),
    };
    say(window("FAST", "FabricBase to FabricLimit", &map.fast));
    say(window("LDST", "window", &map.ldst));
    say(match &map.lav {
        Asked::NotRead(why) => format!("LAV: not read: {why}."),
        Asked::Read(pids) if pids.is_empty() => "LAV: no port of LD-FAM may be reached.".to_owned(),
        Asked::Read(pids) => format!("LAV: {}.", view.all_of(pids)),
    });
    let own = map.own.iter().map(|own| {
        format!("{:#x} to {:#x}", own.base, own.base.saturating_add(own.size.saturating_sub(1)))
    });
    let own = own.collect::<Vec<_>>().join(", ");
    say(format!(
        "Own addresses of the host, as the wanted state says or as hosts of weft have them: {own}."
    ));
}

/// The strips of a map: runs of FAST, and granted memory that no run covers.
fn strips<'a>(
    fast: Option<&'a SegmentTable>,
    ldst: &Asked<SegmentTable>,
    granted: &'a [Granted<'a>],
) -> Vec<Strip<'a>> {
    let by_fast = |one: &&Granted<'_>| one.by_fast();
    let mut strips = Vec::new();
    let runs = fast.map(|table| (table.runs.as_slice(), table.segment_bytes));
    let (runs, bytes) = runs.unwrap_or((&[], SEGMENT));
    for run in runs {
        let whole = bytes.saturating_mul(run.segments.into());
        let within: Vec<&Granted<'_>> =
            granted.iter().filter(by_fast).filter(|one| meets(one, run.hpa, whole)).collect();
        // FAST sends requests to its own targets, whatever the grant says.
        let other = within.iter().find(|one| one.targets != run.targets);
        let wrong = other.map(|one| format!("{} was granted with other targets", one.name));
        let title = format!(
            "{:#x}: {} of {}, {}{}",
            run.hpa,
            count(run.segments, "segment"),
            size(bytes),
            if run.gim { "GIM, " } else { "" },
            ways(run.ways.into(), run.granularity)
        );
        strips.push(strip(title, run.hpa, whole, within, &run.targets, run.granularity, wrong));
    }
    for one in granted {
        let is_there =
            |run: &SegmentRun| meets(one, run.hpa, bytes.saturating_mul(run.segments.into()));
        if one.by_fast() && runs.iter().any(is_there) {
            continue;
        }
        // Whole segments, as if FAST had an entry for it.
        let base = one.hpa / SEGMENT * SEGMENT;
        let whole = end(one).div_ceil(SEGMENT).saturating_mul(SEGMENT).saturating_sub(base);
        let (why, wrong) = match (one.kind, fast.is_some()) {
            (BY_PREFIX, _) => ("PID in the request", None),
            (P2P, _) => ("by LDST", lacks(ldst, one)),
            (_, true) => ("granted", Some("FAST has no entry for it".to_owned())),
            (_, false) => ("granted", None),
        };
        let text = format!("{:#x}: {why}, {}", one.hpa, ways(one.targets.len(), one.granularity));
        strips.push(strip(text, base, whole, vec![one], &one.targets, one.granularity, wrong));
    }
    strips.sort_by_key(|strip| strip.base);
    strips
}

/// Why LDST does not lead to memory that is accessed directly; `None` if it does, or was not read.
fn lacks(ldst: &Asked<SegmentTable>, one: &Granted<'_>) -> Option<String> {
    let Asked::Read(table) = ldst else { return None };
    let is_there = |run: &&SegmentRun| {
        meets(one, run.hpa, table.segment_bytes.saturating_mul(run.segments.into()))
    };
    match table.runs.iter().filter(|_| table.base != 0).find(is_there) {
        None => Some("LDST has no entry for it".to_owned()),
        Some(run) if run.targets != one.targets => Some("LDST leads to another target".to_owned()),
        Some(_) => None,
    }
}

fn strip<'a>(
    title: String,
    base: u64,
    size: u64,
    granted: Vec<&'a Granted<'a>>,
    targets: &'a [u16],
    granularity: u32,
    wrong: Option<String>,
) -> Strip<'a> {
    // A run without granted memory is shown as a whole. Otherwise the scale ends at a power of two, a round figure.
    let last = granted.iter().map(|one| end(one)).max().unwrap_or(u64::MAX);
    let used = last.saturating_sub(base).checked_next_power_of_two().unwrap_or(u64::MAX);
    let shown = used.min(size).max(1);
    Strip { title, base, shown, size, granted, targets, granularity, wrong }
}

/// The first address behind the memory.
fn end(one: &Granted<'_>) -> u64 {
    one.hpa.saturating_add(one.size)
}

fn meets(one: &Granted<'_>, base: u64, size: u64) -> bool {
    one.hpa < base.saturating_add(size) && base < end(one)
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Position of an offset on a bar that stands for `all` bytes, in tenths of a pixel.
fn tenths(offset: u64, all: u64) -> u64 {
    let at = u128::from(offset.min(all)) * u128::from(10 * BAR) / u128::from(all.max(1));
    u64::try_from(at).unwrap_or(10 * BAR)
}

/// SVG attributes of a box on a bar; at least a pixel wide, or small memory would not show.
fn span(from: u64, to: u64, all: u64) -> String {
    let (begin, last) = (tenths(from, all), tenths(to, all));
    let wide = last.saturating_sub(begin).max(10);
    // A box that was widened to a pixel must not end beyond the bar.
    let begin = begin.min(10 * BAR - wide.min(10 * BAR)) + 10 * LEFT;
    format!("x=\"{}.{}\" width=\"{}.{}\"", begin / 10, begin % 10, wide / 10, wide % 10)
}

fn draw(
    view: &View<'_>,
    fast: Option<&SegmentTable>,
    ldst: Option<&SegmentTable>,
    strips: &[Strip<'_>],
    out: &mut String,
) {
    let drawn = strips.len().min(STRIPS);
    let windows = [("Fabric", fast), ("LDST ", ldst)];
    let windows = windows.into_iter().filter_map(|(name, table)| Some((name, table?)));
    let top = WINDOW * windows.clone().count();
    if drawn == 0 && top == 0 {
        return;
    }
    let (width, height) = (BAR + 2 * LEFT, top + drawn * STRIP + 8);
    let _ = writeln!(
        out,
        "<figure><svg class=\"map\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"Memory map\">"
    );
    let mut seen: Vec<&[u16]> = Vec::new();
    // By the list of targets: the same targets have the same colour in windows and strips.
    let mut colour = |targets| {
        let at = seen.iter().position(|one: &&[u16]| *one == targets);
        at.unwrap_or_else(|| {
            seen.push(targets);
            seen.len() - 1
        }) % COLOURS
    };
    for (at, (name, table)) in windows.enumerate() {
        draw_window(view, name, table, at * WINDOW, &mut colour, out);
    }
    for (at, strip) in strips.iter().take(STRIPS).enumerate() {
        draw_strip(view, strip, top + at * STRIP, colour(strip.targets), out);
    }
    out.push_str("</svg>");
    if strips.len() > drawn {
        let _ = write!(
            out,
            "<figcaption>{drawn} of {} strips; the table has all.</figcaption>",
            strips.len()
        );
    }
    out.push_str("</figure>\n");
}

/// Draws the whole window of a table, by segments.
fn draw_window<'a>(
    view: &View<'_>,
    name: &str,
    table: &'a SegmentTable,
    y: usize,
    colour: &mut impl FnMut(&'a [u16]) -> usize,
    out: &mut String,
) {
    let all = table.limit.saturating_sub(table.base).max(1);
    let _ = write!(
        out,
        "<g class=\"window\" data-base=\"{0:#x}\" data-limit=\"{1:#x}\">\
         <text class=\"name\" x=\"{LEFT}\" y=\"{3}\">{name}Base {0:#x}</text>\
         <text class=\"name end\" x=\"{2}\" y=\"{3}\">{name}Limit {1:#x}</text>\
         <rect class=\"bar\" x=\"{LEFT}\" y=\"{4}\" width=\"{BAR}\" height=\"18\"/>",
        table.base,
        table.limit,
        LEFT + BAR,
        y + 14,
        y + 20
    );
    for run in &table.runs {
        let from = run.hpa.saturating_sub(table.base);
        let whole = table.segment_bytes.saturating_mul(run.segments.into());
        let title = format!(
            "{:#x}: {}, {}: {}",
            run.hpa,
            count(run.segments, "segment"),
            ways(run.ways.into(), run.granularity),
            view.all_of(&run.targets)
        );
        let _ = write!(
            out,
            "<rect class=\"c{}\" {} y=\"{}\" height=\"18\"><title>{}</title></rect>",
            colour(&run.targets),
            span(from, from.saturating_add(whole), all),
            y + 20,
            escape(&title)
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"name\" x=\"{LEFT}\" y=\"{}\">the whole window, {}; no entry is valid where it is empty</text></g>",
        y + 52,
        size(table.limit.saturating_sub(table.base))
    );
}

/// Draws a strip: its granted memory, and below that one round of interleaving.
fn draw_strip(view: &View<'_>, strip: &Strip<'_>, y: usize, colour: usize, out: &mut String) {
    let scale = if strip.shown == strip.size {
        format!("bar: all {}", size(strip.size))
    } else {
        format!("bar: the first {} of {}", size(strip.shown), size(strip.size))
    };
    let _ = write!(
        out,
        "<g class=\"strip\" data-base=\"{:#x}\"><text class=\"name\" x=\"{LEFT}\" y=\"{}\">{}</text>\
         <text class=\"name end\" x=\"{}\" y=\"{}\">{}</text>\
         <rect class=\"bar\" x=\"{LEFT}\" y=\"{}\" width=\"{BAR}\" height=\"18\"/>",
        strip.base,
        y + 16,
        escape(&strip.title),
        LEFT + BAR,
        y + 16,
        escape(&scale),
        y + 22
    );
    for one in &strip.granted {
        let (from, to) = (one.hpa.saturating_sub(strip.base), end(one).saturating_sub(strip.base));
        let title = format!("{} {}: {:#x}, {}", one.kind, one.name, one.hpa, size(one.size));
        let _ = write!(
            out,
            "<rect class=\"c{colour}\" {} y=\"{}\" height=\"18\"><title>{}</title></rect>",
            span(from, to, strip.shown),
            y + 22,
            escape(&title)
        );
        let start = LEFT + tenths(from, strip.shown) / 10 + 4;
        // Twelve letters take 90 pixels.
        if tenths(to, strip.shown).saturating_sub(tenths(from, strip.shown)) > 900 {
            let name: String = one.name.chars().take(12).collect();
            let _ = write!(
                out,
                "<text class=\"in\" x=\"{start}\" y=\"{}\">{}</text>",
                y + 35,
                escape(&name)
            );
        }
    }
    round(view, strip, y + 44, out);
    if let Some(wrong) = &strip.wrong {
        let (y, wrong) = (y + 72, escape(wrong));
        let _ = write!(out, "<text class=\"name wrong\" x=\"{LEFT}\" y=\"{y}\">{wrong}</text>");
    }
    out.push_str("</g>\n");
}

/// Draws one round of interleaving: a box for each way.
fn round(view: &View<'_>, strip: &Strip<'_>, y: usize, out: &mut String) {
    let all = u64::try_from(strip.targets.len()).unwrap_or(u64::MAX).max(1);
    for (way, target) in (0_u64..).zip(strip.targets) {
        let who = view.who(*target);
        let title = if all == 1 {
            who.clone()
        } else {
            format!("way {way}: {who}, granules of {}", size(strip.granularity.into()))
        };
        let class = usize::from(*target) % COLOURS;
        let _ = write!(
            out,
            "<rect class=\"c{class} way\" data-pid=\"{}\" {} y=\"{y}\" height=\"14\"><title>{}</title></rect>",
            pid(*target),
            span(way, way + 1, all),
            escape(&title)
        );
        // With more ways a box is narrower than the 90 pixels of a name.
        if all <= 8 {
            let short: String = who.chars().take(12).collect();
            let x = LEFT + tenths(way, all) / 10 + 3;
            let _ = write!(
                out,
                "<text class=\"in\" x=\"{x}\" y=\"{}\">{}</text>",
                y + 11,
                escape(&short)
            );
        }
    }
}

/// Writes all segments and grants as a table.
fn addresses(view: &View<'_>, map: &AddressMap, granted: &[Granted<'_>], out: &mut String) {
    let mut rows = Vec::new();
    for (name, asked) in [("FAST", &map.fast), ("LDST", &map.ldst)] {
        let Some(table) = table(asked) else { continue };
        rows.extend(table.runs.iter().map(|run| Row {
            data: vec![("segment", format!("{:#x}", run.hpa))],
            cells: vec![
                format!(
                    "{name}, {}{}",
                    count(run.segments, "segment"),
                    if run.gim { ", GIM" } else { "" }
                ),
                format!("{:#x}", run.hpa),
                size(table.segment_bytes.saturating_mul(run.segments.into())),
                ways(run.ways.into(), run.granularity),
                view.all_of(&run.targets),
            ],
        }));
    }
    rows.extend(granted.iter().map(|one| Row {
        data: vec![("granted", one.name.to_owned())],
        cells: vec![
            format!("granted: {} {}", one.kind, one.name),
            format!("{:#x}", one.hpa),
            size(one.size),
            ways(one.targets.len(), one.granularity),
            view.all_of(&one.targets),
        ],
    }));
    if rows.is_empty() {
        out.push_str("<p>No memory of the fabric.</p>\n");
        return;
    }
    table_of(&["What", "HPA", "Size", "Interleaving", "Targets, by way"], &rows, out);
}

/// Writes a table of the GFD groups and capacity that a requester may access.
fn capacity(view: &View<'_>, requester: u16, out: &mut String) {
    let mut rows = Vec::new();
    for share in view.all.memory.iter().filter(|share| share.hosts.contains(&requester)) {
        let ways = u64::try_from(share.parts.len()).unwrap_or(u64::MAX).max(1);
        rows.extend(share.parts.iter().map(|part| Row {
            data: vec![("capacity", pid(part.gfd))],
            cells: vec![
                view.who(part.gfd),
                part.group.to_string(),
                share.name.clone(),
                part.decoder.to_string(),
                format!("{:#x}", part.dpa),
                size(share.size / ways),
            ],
        }));
    }
    if !rows.is_empty() {
        table_of(&["GFD", "Group", "Memory", "Decoder", "DPA", "Capacity"], &rows, out);
    }
}
