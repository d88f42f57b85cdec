//! The page is well-formed, complete, loads nothing, and its plots show the figures.
//!
//! Renders a made-up result, and checks elements of the page.

use clap::Parser;
use roxmltree::{Document, Node, ParsingOptions};
use weft_dataplane::time::Span;
use weft_hosts::stream::rx::Latency;

use super::*;
use crate::commands::bench::machine::{Link, Machine};
use crate::commands::bench::plan::{Plan, PortsArgs};
use crate::commands::bench::result::{BurstResult, LatencyResult, LeftOut, TaggedResult, Totals};
use crate::commands::bench::search::{Found, Limit, Offered};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: PortsArgs,
}

fn offered(offered_fps: u64, received_frames: u64) -> Offered {
    Offered { asked_fps: Some(offered_fps), offered_fps, sent_frames: 1_000, received_frames }
}

fn throughput(fps: u64) -> Option<Throughput> {
    let best = Some(offered(fps, 1_000));
    let trials = vec![offered(fps, 1_000)];
    let found = Found { best, limit: Limit::Device, steady: true, trials };
    Throughput::of(0, 768, vec![found])
}

fn size(name: &str, fps: u64) -> SizeResult {
    let mut latency = Latency::default();
    for us in 1..=1_000 {
        latency.record(Span::from_us(us));
    }
    SizeResult {
        size: name.to_owned(),
        twelve_bytes: 768,
        link_fps: None,
        generator_fps: 2 * fps,
        throughput: throughput(fps),
        partial: throughput(fps + fps / 10),
        latency: LatencyResult::of(offered(fps / 2, 1_000), &latency),
        latency_tagged: TaggedResult::of(fps, 3, &[1_500, 2_500]),
        loss: vec![offered(2 * fps, 500), offered(fps, 1_000)],
        burst: Some(BurstResult { most_tried_frames: 9_000, mean_frames: 777, frames: vec![777] }),
        totals: Totals { trials: 42, sent: 4_200, ..Totals::default() },
    }
}

fn result(device: &str) -> PortsResult {
    let link = |device: &str| Link {
        device: device.to_owned(),
        kind: "af_packet",
        driver: None,
        is_virtual: Some(true),
        bps: None,
        mtu: Some(1_500),
        note: None,
    };
    let line = Line::try_parse_from(["bench", "--tx", device, "--rx", "b"]).unwrap();
    PortsResult {
        bench: "ports",
        machine: Machine::here(),
        tx: link(device),
        rx: link("b"),
        plan: Plan::new(&line.args).unwrap(),
        sizes: vec![size("64", 1_000_000), size("imix", 400_000)],
        left_out: vec![LeftOut { size: "1518".into(), why: "too long".into(), failed: false }],
        interrupted: false,
    }
}

fn parse(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).expect("well-formed")
}

fn all<'a>(doc: &'a Document<'a>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    doc.descendants().filter(move |node| node.has_tag_name(tag))
}

#[test]
fn the_page_is_whole_and_loads_nothing() {
    let page = page(&result("a"));
    for link in ["http://", "https://", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(link), "{link}");
    }
    let doc = parse(&page);
    assert_eq!(all(&doc, "svg").count(), 3, "throughput, latency, loss");
    let heads: Vec<_> = all(&doc, "h2").filter_map(|node| node.text()).collect();
    assert_eq!(heads.len(), 7, "{heads:?}");
    let machine = Machine::here();
    let texts: Vec<_> = doc.descendants().filter_map(|node| node.text()).collect();
    let told = [machine.weft, "777", "1,000,000", "too long", "a virtual interface", "Kernel"];
    for part in told.into_iter().chain(machine.kernel.as_deref()) {
        assert!(texts.iter().any(|text| text.contains(part)), "{part}");
    }
}

#[test]
fn names_cannot_break_the_page() {
    let page = page(&result("<b>&\"'"));
    assert!(!page.contains("<b>"));
    let doc = parse(&page);
    let title = all(&doc, "title").next().and_then(|node| node.text()).unwrap();
    assert_eq!(title, "weft bench: <b>&\"' to b");
}

/// A bar is as high as its figure is large, and its tooltip has the figure.
#[test]
fn bars_and_lines_are_where_the_figures_are() {
    let page = page(&result("a"));
    let doc = parse(&page);
    let svg = all(&doc, "svg").next().unwrap();
    let height = |words: &str| -> f64 {
        let bar = svg
            .descendants()
            .find(|node| {
                let title = node.children().find(|child| child.has_tag_name("title"));
                node.has_tag_name("rect") && title.and_then(|t| t.text()) == Some(words)
            })
            .unwrap_or_else(|| panic!("no bar says {words:?}"));
        bar.attribute("height").unwrap().parse().unwrap()
    };
    let ndr = height("NDR, 64 bytes: 1000000 frames/s".replace("1000000", "1,000,000").as_str());
    let generator = height("generator, 64 bytes: 2,000,000 frames/s");
    let imix = height("NDR, imix bytes: 400,000 frames/s");
    assert!((generator / ndr - 2.0).abs() < 0.01, "{generator} {ndr}");
    assert!((ndr / imix - 2.5).abs() < 0.01, "{ndr} {imix}");
    for line in all(&doc, "polyline") {
        for pair in line.attribute("points").unwrap().split(' ') {
            let (x, y) = pair.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((0.0..=720.0).contains(&x) && (0.0..=320.0).contains(&y), "{pair}");
        }
    }
}

/// A run without results still makes a page.
#[test]
fn an_empty_result_is_a_page_too() {
    let empty = PortsResult { sizes: vec![], interrupted: true, ..result("a") };
    let page = page(&empty);
    let doc = parse(&page);
    assert_eq!(all(&doc, "svg").count(), 0);
    assert!(page.contains("interrupted"));
}
