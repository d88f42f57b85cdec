//! What switches count at their ports, and the load of links that the manager makes of it.
//!
//! A host and a GFD at two ends of a link, in virtual time → bytes by C510h → the overview's load of the link.
//!
//! Units: bytes without FCS; bits a second.
//! Source: docs/spec/wire-formats.md §4.3 (C510h); docs/fm.md "The page of a fabric".

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use weft_fm::model::graph::PortRef;
use weft_fm::service::request::TopologyFormat;
use weft_fm::service::{Request, Response};
use weft_fm::show::overview::LinkRow;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{access, books, cci, pass, range, up_text};

const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
[[host]]
name = "h0"
at = "sw0"
[[gfd]]
name = "g"
at = ["sw1"]
capacity_mib = 512
[[memory]]
name = "pool"
hosts = ["h0"]
gfds = ["g"]
len = 0x10000000
granularity = 256
hpa = 0x10000000000
"#;
const BASE: u64 = 1 << 40;

fn link(fabric: &mut ManagedFabric) -> LinkRow {
    match fabric.fm().request(&Request::Overview) {
        Ok(Response::Overview(all)) => all.links[0].clone(),
        other => panic!("{other:?}"),
    }
}

/// Lets `ms` pass, and has the manager count.
fn count(fabric: &mut ManagedFabric, ms: u64) {
    pass(fabric, ms);
    fabric.fm().watch();
}

/// Bytes over the link there and back in the time of the average.
fn carried(fabric: &mut ManagedFabric) -> [u64; 2] {
    link(fabric).load.map(|load| {
        let load = load.expect("counted");
        load.bps * load.over_ms / 8_000
    })
}

/// Time of the counts in ns, bytes in and bytes out, as the switch tells them.
fn counts(fabric: &mut ManagedFabric, at: PortRef) -> [u64; 3] {
    let state = fabric.fm().state().unwrap();
    let to = match at.switch.0 {
        0 => "entry".to_owned(),
        _ => format!("pid:{}", state.inventory.switch(at.switch).unwrap().pid),
    };
    let (code, told) = cci(fabric, &to, 0xC510, &format!("01 {:02x}", at.port));
    let byte = |at: usize| u8::from_str_radix(&told[2 * at..][..2], 16).unwrap();
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|nth| byte(at + nth)));
    assert_eq!((code, told.len(), byte(8), byte(16)), (0, 2 * 40, 1, at.port), "{told}");
    [number(0), number(24), number(32)]
}

/// A write of 4 MiB goes over the link once, with headers, and acknowledgements come back; then nothing does. What one end
/// has sent, the other one has received.
#[test]
fn switches_count_what_goes_over_their_links() {
    let len = 4 << 20;
    let mut fabric = up_text("traffic", TOPOLOGY);
    count(&mut fabric, 300);
    count(&mut fabric, 300);
    let idle = carried(&mut fabric);
    assert!(idle.iter().all(|bytes| *bytes < 100_000), "messages of the manager: {idle:?}");
    let ends = link(&mut fabric).ends;
    let before = ends.map(|end| counts(&mut fabric, end));
    for (write, there) in [(true, 0), (false, 1)] {
        assert!(access(&fabric, Part::Host(0), range(BASE, len, 7), write).ok);
        count(&mut fabric, 300);
        let moved = carried(&mut fabric);
        assert!((len..len * 5 / 4).contains(&moved[there]), "write {write}: {moved:?}");
        assert!(moved[1 - there] < len / 4, "write {write}: {moved:?}");
        count(&mut fabric, 300);
        let idle = carried(&mut fabric);
        assert!(idle.iter().all(|bytes| *bytes < 100_000), "over at once: {idle:?}");
    }
    let after = ends.map(|end| counts(&mut fabric, end));
    let of = |end: usize, what: usize| after[end][what] - before[end][what];
    for (from, to) in [(0, 1), (1, 0)] {
        let (sent, received) = (of(from, 2), of(to, 1));
        assert!(sent > len && sent.abs_diff(received) < 10_000, "{sent} {received}");
        assert!((1_000_000_000..2_000_000_000).contains(&of(from, 0)), "ns: {after:?}");
    }
    books(&fabric);
}

/// The picture has it at each link; a switch that has lost its power has none, and has it again after it is back.
#[test]
fn a_link_without_counts_has_no_load() {
    let mut fabric = up_text("traffic", TOPOLOGY);
    assert_eq!(link(&mut fabric).load, [None, None], "counted once at most");
    count(&mut fabric, 300);
    count(&mut fabric, 300);
    assert!(link(&mut fabric).load.iter().all(Option::is_some));
    let picture = |fabric: &mut ManagedFabric| match fabric
        .fm()
        .request(&Request::Topology { drawn: TopologyFormat::Svg })
    {
        Ok(Response::Topology(text)) => text,
        other => panic!("{other:?}"),
    };
    let told = link(&mut fabric).load.map(|load| load.unwrap().text());
    let text = picture(&mut fabric);
    assert!(told.iter().all(|told| text.contains(told.as_str())), "{told:?} {text}");
    fabric.parts().stop(Part::Switch(1)).unwrap();
    count(&mut fabric, 300);
    let lost = link(&mut fabric);
    assert!(lost.down && lost.load == [None, None], "{lost:?}");
    fabric.parts().run(Part::Switch(1));
    for _ in 0..100 {
        count(&mut fabric, 60);
        if link(&mut fabric).load.iter().all(Option::is_some) {
            break;
        }
    }
    let back = carried(&mut fabric);
    assert!(back.iter().all(|bytes| *bytes < 1_000_000), "begun anew: {back:?}");
}
