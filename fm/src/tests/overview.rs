//! The overview of a fabric, and its picture.
//!
//! Rows and drawings of fake fabrics are compared with the inventory and the tables.
//!
//! Units: bytes; DPIDs.
//! Source: docs/fm-socket.md "Answers".

use std::collections::BTreeSet;

use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use super::bind::{fabric as three_switches, link};
use super::fake::{Fake, Kind, Shared};
use super::fake_gfd::GfdState;
use super::plan::set_up;
use super::service::{holds, manager, shared, started, status, want};
use crate::components::bind::{Bindings, Bridge, Local};
use crate::model::graph::{SwitchId, generate};
use crate::model::inventory::Inventory;
use crate::plan::tables::SwitchTables;
use crate::service::request::Overview;
use crate::service::status::StartMode;
use crate::service::{Fm, Request, Response};
use crate::show::display_names::DisplayNames;
use crate::show::overview::{Asked, BindingState, LinkLoad, LinkRow, NameRow, bindings, links};
use crate::show::picture::svg;
use crate::state::store::Store;

const POOL: &str = "[[memory]]\nname = \"pool\"\nhosts = [\"h0\"]\nways = 4\nsize = \"2GiB\"\nhpa = \"0x10000000000\"\n";

fn overview(fm: &mut Fm) -> Overview {
    match fm.request(&Request::Overview) {
        Ok(Response::Overview(all)) => *all,
        other => panic!("{other:?}"),
    }
}

fn drawn(inventory: &Inventory, names: &[NameRow], links: &[LinkRow]) -> String {
    let mut text = String::new();
    svg(inventory, &DisplayNames::from(names), links, &mut text).unwrap();
    text
}

/// Why something was not read.
fn why<T: std::fmt::Debug>(asked: &Asked<T>) -> &str {
    match asked {
        Asked::NotRead(why) => why,
        Asked::Read(read) => panic!("{read:?}"),
    }
}

#[test]
fn an_overview_has_what_is_known_and_says_what_was_not_read() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let (all, state) = (overview(&mut fm), fm.state().unwrap());
    assert_eq!(all.inventory, state.inventory);
    let name = NameRow { switch: SwitchId(0), port: Some(all.maps[0].at.port), name: "h0".into() };
    assert_eq!((&all.names[..], all.maps[0].at.switch), (&[name][..], SwitchId(0)));
    assert_eq!((all.memory.len(), all.memory[0].name.as_str()), (1, "pool"));
    let pids: Vec<u16> = all.maps.iter().map(|map| map.pid).collect();
    assert_eq!(pids.len(), 2, "a host at each switch");
    assert_eq!(all.memory[0].hosts, [pids[0]]);
    for map in &all.maps {
        assert!(map.host && map.vppb == 0, "{map:?}");
        assert!(why(&map.fast).contains("the wanted state does not say where"), "{map:?}");
        assert!(why(&map.ldst).contains("only the host's GAE reports it"), "{map:?}");
        assert_eq!(map.lav, Asked::Read(Vec::new()));
    }
    // These GFDs do not support the command; each of them is asked all the same.
    let said: Vec<&str> = all.gfds.iter().map(|load| why(&load.backpressure_percent)).collect();
    assert_eq!(said.len(), 4);
    assert!(
        said.iter().all(|why| why.contains("490Eh") && why.contains("Unsupported")),
        "{said:?}"
    );
}

/// A GFD that does not answer costs one timeout: the others are not asked then.
#[test]
fn behind_a_gfd_that_is_silent_none_is_asked() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let first = fm.state().unwrap().inventory.gfds[0];
    shared.with(|fake| {
        let node = fake.nodes.iter_mut().find(|node| node.base.pid == first.pid).unwrap();
        node.base.gone = true;
    });
    let calls = status(&fm).calls;
    let all = overview(&mut fm);
    let said: Vec<&str> = all.gfds.iter().map(|load| why(&load.backpressure_percent)).collect();
    assert!(said[0].contains("490Eh Get GFD QoS Control to "), "{said:?}");
    let behind = format!("not asked, as GFD {} did not answer", first.pid);
    assert_eq!(said[1..], [behind.as_str(); 3]);
    let asked = status(&fm).calls - calls;
    assert!(asked < 8, "two edges and one GFD: {asked}");
}

/// Counts of a switch: time in ms, and bytes in and out; `None`: it does not support the command.
type Told = Option<(u64, [u64; 2])>;

/// Sets the counts at both ends of the first link and looks; returns the link's load by end, in bit/s over ms.
fn load_after(shared: &Shared, fm: &mut Fm, told: [Told; 2]) -> [Option<(u64, u64)>; 2] {
    let ends = fm.state().unwrap().inventory.links.first().copied().unwrap();
    shared.with(|fake| {
        for (end, told) in ends.iter().zip(told) {
            let Kind::Switch(state) = &mut fake.nodes[usize::from(end.switch.0)].kind else {
                panic!()
            };
            state.traffic = told.map(|(ms, bytes)| (ms * 1_000_000, [(end.port, bytes)].into()));
        }
    });
    fm.watch();
    let rows = overview(fm).links;
    let row = rows.iter().find(|row| row.ends == ends).unwrap();
    row.load.map(|load| load.map(|load| (load.bps, load.over_ms)))
}

/// Load of `bytes` in `ms`, in bit/s over ms.
#[expect(clippy::unnecessary_wraps, reason = "as loads are compared")]
const fn of(bytes: u64, ms: u64) -> Option<(u64, u64)> {
    Some((bytes * 8_000 / ms, ms))
}

/// A load is an average over at least 200 ms of the switch's own clock; without such counts there is no load.
#[test]
fn the_load_of_a_link_is_what_its_ends_count() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let mut load = |told| load_after(&shared, &mut fm, [told, None])[0];
    assert_eq!(load(Some((0, [0, 0]))), None, "once");
    assert_eq!(load(Some((100, [0, 1_000]))), None, "too near");
    assert_eq!(load(Some((200, [0, 3_000]))), of(3_000, 200));
    assert_eq!(load(Some((200, [0, 9_000]))), of(3_000, 200), "the same time: no news");
    assert_eq!(load(Some((300, [0, 4_000]))), of(3_000, 200));
    assert_eq!(load(Some((1_300, [7, 5_000]))), of(1_000, 1_000));
    // A value that goes back means a restart: bytes out, bytes in, and the time.
    assert_eq!(load(Some((1_400, [7, 4_999]))), None);
    assert_eq!(load(Some((2_400, [7, 5_000]))), of(1, 1_000));
    assert_eq!(load(Some((2_700, [6, 5_000]))), None);
    assert_eq!(load(Some((2_900, [6, 5_000]))), of(0, 200));
    assert_eq!(load(Some((3, [6, 6_000]))), None);
    // Wrong counts do no harm: times that hardly move, and bytes beyond any line rate.
    for ms in 4..500 {
        load(Some((ms, [6, u64::MAX])));
    }
    assert_eq!(load(Some((600, [6, u64::MAX]))), None, "eight counts within 200 ms of the last");
    assert_eq!(load(Some((900, [6, u64::MAX]))), of(0, 300));
    assert_eq!(load(Some((901, [6, 0]))), None);
    assert_eq!(load(Some((1_101, [6, u64::MAX]))), Some((u64::MAX, 200)));
    // When a switch's clock stands still, its counts become too old.
    assert_eq!(load(Some((1_301, [6, u64::MAX]))), of(0, 200));
    let told: Vec<_> = (0..40).map(|_| load(Some((1_301, [0, 0])))).collect();
    assert_eq!((told[0], told[39]), (of(0, 200), None));
}

/// Short frames are padded after the sender counts them, and frames can be lost: the load is the larger count.
#[test]
fn either_end_tells_the_load_of_both_directions() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let mut load = |one, other| load_after(&shared, &mut fm, [one, other]);
    load(Some((0, [0, 0])), Some((5_000, [0, 0])));
    let all = load(Some((200, [100, 600])), Some((5_400, [2_000, 100])));
    assert_eq!(all, [of(2_000, 400), of(100, 200)], "received at the other end, and here");
    let all = load(Some((400, [100, 1_600])), Some((5_800, [2_100, 400])));
    assert_eq!(all, [of(1_000, 200), of(300, 400)], "sent here, and there");
    // A switch without the command is asked once a discovery; the other end's counts give both directions.
    assert_eq!(load(Some((600, [200, 1_800])), None), [of(200, 200), of(100, 200)]);
    fm.rediscover().unwrap();
    let mut load = |one, other| load_after(&shared, &mut fm, [one, other]);
    assert_eq!(load(Some((0, [7, 7])), Some((5, [0, 7]))), [None, None]);
    let all = load(Some((250, [7, 7])), Some((405, [0, 1_007])));
    assert_eq!(all, [of(0, 400), of(1_000, 400)]);
}

/// Colours go by quarters of the busiest link's load; if that one has hardly any, all links are quiet.
#[test]
fn a_link_is_the_more_orange_the_more_load_it_has() {
    let mut fake = Fake::of(&generate::line(6, 1).unwrap());
    fake.add(SwitchId(1), Some(GfdState::new(8)));
    let (inventory, plan, _) = set_up(&Shared::new(fake));
    let mut rows = links(&inventory, &plan.routed.tables);
    let mut colors = |loads: [u64; 5]| {
        for (row, bps) in rows.iter_mut().zip(loads) {
            row.load = [None, Some(LinkLoad { bps, over_ms: 200 })];
        }
        let text = drawn(&inventory, &[], &rows);
        let lines = text.lines().filter(|line| line.contains("class=\"link"));
        let color = |line: &str| {
            let (_, rest) = line.split_once("stroke=\"").unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        lines.map(color).collect::<Vec<_>>()
    };
    let [quiet, some, more, most] = ["#567", "#9a7b2f", "#c98a12", "#f09000"];
    assert_eq!(colors([400_000_000_000; 5]), [most; 5]);
    assert_eq!(
        colors([0, 24_999_999, 25_000_000, 50_000_000, 100_000_000]),
        [quiet, quiet, some, more, most]
    );
    assert_eq!(colors([75_000_000, 100_000_000, 0, 0, 1]), [most, most, quiet, quiet, quiet]);
    assert_eq!(colors([0, 1, 2, 249_999, 249_999]), [quiet; 5], "the manager's own messages");
    assert_eq!(colors([u64::MAX, 0, 0, 0, 0])[0], most);
}

#[test]
fn a_load_is_told_in_the_unit_that_fits() {
    let text = |bps| LinkLoad { bps, over_ms: 250 }.text();
    assert_eq!(text(0), "0.0 kbit/s over 250 ms");
    assert_eq!(text(999_999), "999.9 kbit/s over 250 ms");
    assert_eq!(text(1_000_000), "1.0 Mbit/s over 250 ms");
    assert_eq!(text(399_960_000_000), "399.9 Gbit/s over 250 ms");
    assert_eq!(text(u64::MAX), "18446744073.7 Gbit/s over 250 ms");
}

/// A switch that does not support the command is asked once a discovery.
#[test]
fn switches_without_counts_are_not_asked_for_them_again() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let steady = |fm: &mut Fm| {
        fm.watch();
        fm.watch();
        let before = status(fm).calls;
        fm.watch();
        status(fm).calls - before
    };
    let without = steady(&mut fm);
    let load = load_after(&shared, &mut fm, [Some((0, [0, 0])); 2]);
    assert_eq!((load, steady(&mut fm)), ([None, None], without));
    fm.rediscover().unwrap();
    assert_eq!(steady(&mut fm), without + 2, "two switches");
}

/// The manager sends nothing to the components of a static fabric, for an overview neither.
#[test]
fn an_overview_of_a_static_fabric_asks_nobody() {
    let shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    let store = || Some(Store::open(&path).unwrap());
    let mut first = manager(&shared, want(""), StartMode::FmFirst, store());
    first.start().unwrap();
    drop(first);
    let before = holds(&shared);
    let mut fm = manager(&shared, want(""), StartMode::Static, store());
    fm.start().unwrap();
    let all = overview(&mut fm);
    assert_eq!((status(&fm).calls, holds(&shared)), (0, before));
    assert_eq!((all.inventory.switches.len(), all.maps.len()), (2, 2));
    assert!(all.maps.iter().all(|map| why(&map.lav).contains("is static")), "{all:?}");
    assert!(all.gfds.iter().all(|load| why(&load.backpressure_percent).contains("is static")));
}

/// In a line, all PIDs beyond a link go over it, and no others.
#[test]
fn a_link_carries_the_dpids_that_are_beyond_it() {
    let mut fake = Fake::of(&generate::line(3, 2).unwrap());
    fake.add(SwitchId(2), Some(GfdState::new(8)));
    let (inventory, plan, _) = set_up(&Shared::new(fake));
    let rows = links(&inventory, &plan.routed.tables);
    assert_eq!(rows.len(), 2);
    for row in rows {
        let [near, far] = row.ends.map(|end| end.switch);
        assert!(near < far, "found in the order of the line");
        let count = |beyond: &dyn Fn(SwitchId) -> bool| {
            let pids: BTreeSet<Pid> =
                inventory.pids().filter(|(_, at)| beyond(at.switch)).map(|(pid, _)| pid).collect();
            u16::try_from(pids.len()).unwrap()
        };
        assert_eq!(row.dpids, [count(&|at| at >= far), count(&|at| at <= near)], "{near}");
        assert_eq!((row.group_dpids, row.down), ([0, 0], false));
        assert_eq!(row.bandwidth_mbps, 16 * 7_563, "16 lanes at 64 GT/s");
    }
}

/// A DPID with a routing group counts once as static, at the first port of the group, and as one more at the others.
#[test]
fn a_group_counts_at_each_of_its_ports() {
    let mut graph = generate::line(2, 1).unwrap();
    let [a, b] = [SwitchId(0), SwitchId(1)].map(|id| crate::model::graph::PortRef::new(id, 40));
    graph.link(a, b).unwrap();
    let (inventory, mut plan, _) = set_up(&Shared::new(Fake::of(&graph)));
    let ports: Vec<u8> = inventory.links.iter().map(|ends| ends[0].port).collect();
    let [one, other] = ports[..] else { panic!("{ports:?}") };
    assert!(inventory.links.iter().all(|ends| ends[0].switch == SwitchId(0)));
    let mut tables = SwitchTables::default();
    let group = |ports: [u8; 2]| {
        RgtEntry::decode([ports[0], ports[1], 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).unwrap()
    };
    tables.set_rgt(3, Some(group([one, other])));
    tables.set_rgt(4, Some(group([other, one])));
    for (to, entry) in [(1, 3), (2, 3), (3, 3), (4, 4)] {
        tables.set_drt(Pid::from_low_bits(to), DrtEntry::Group(entry));
    }
    for (to, port) in [(10, other), (11, one), (12, 200)] {
        tables.set_drt(Pid::from_low_bits(to), DrtEntry::Port(port));
    }
    *plan.routed.tables.get_mut(SwitchId(0)) = tables;
    let rows = links(&inventory, &plan.routed.tables);
    let counts: Vec<_> = rows.iter().map(|row| (row.dpids[0], row.group_dpids[0])).collect();
    assert_eq!(counts, [(4, 1), (2, 3)]);
}

/// A device is in the hierarchy of its host, also behind a virtual link; cut and lost bindings have rows, too.
#[test]
fn bindings_lead_to_their_host_and_over_their_links() {
    let (shared, inventory) = three_switches();
    let (_, plan, _) = set_up(&shared);
    let bridge = |switch, vcs, vppb| Bridge { switch: SwitchId(switch), vcs, vppb };
    let device = |at: Bridge| {
        let ports = &inventory.switch(at.switch).unwrap().ports;
        let port =
            ports.iter().find(|port| port.role == crate::model::inventory::Role::Dsp).unwrap();
        Local { bridge: at, port: port.number, ld: None }
    };
    let (near, below, behind) = (bridge(0, 0, 1), bridge(2, 2, 0), bridge(2, 2, 1));
    let all = Bindings {
        local: vec![device(near), device(behind)],
        remote: vec![link(&inventory, bridge(0, 0, 2), below)],
        cut: vec![link(&inventory, bridge(0, 0, 3), bridge(1, 2, 0))],
        lost: vec![device(bridge(1, 2, 1))],
        lds: Vec::new(),
        capacity: Vec::new(),
        blocks: Vec::new(),
    };
    let rows = bindings(&inventory, &all, &plan.graph, &plan.routed.tables);
    let states: Vec<BindingState> = rows.iter().map(|row| row.state).collect();
    let (bound, lost, no_way) = (BindingState::Bound, BindingState::Lost, BindingState::NoWay);
    assert_eq!(states, [bound, bound, lost, bound, no_way]);
    let host = rows[0].host.unwrap();
    assert_eq!(host.switch, SwitchId(0));
    let port = inventory.switch(SwitchId(0)).unwrap().port(host.port).unwrap();
    assert_eq!(port.partner, crate::model::inventory::Partner::Host);
    assert!(rows.iter().all(|row| row.host == Some(host)), "{rows:?}");
    assert_eq!(rows[1].port.map(|at| at.switch), Some(SwitchId(2)));
    assert_eq!((rows[3].below, rows[3].path.len()), (Some(below), 4), "two links");
    assert_eq!(rows[3].path.first().map(|at| at.switch), Some(SwitchId(0)));
    assert_eq!(rows[3].path.last().map(|at| at.switch), Some(SwitchId(2)));
}

#[test]
fn names_in_a_picture_are_text() {
    let mut fake = Fake::of(&generate::line(2, 1).unwrap());
    fake.add(SwitchId(1), Some(GfdState::new(8)));
    let (inventory, plan, _) = set_up(&Shared::new(fake));
    let gfd = inventory.gfds[0].at;
    let name = |switch, port, name: &str| NameRow { switch, port, name: name.to_owned() };
    let names = [
        name(SwitchId(0), None, "<script>alert(1)</script>"),
        name(SwitchId(1), None, "\" onload=\"x"),
        name(gfd.switch, Some(gfd.port), "\"]]>&"),
    ];
    let text = drawn(&inventory, &names, &links(&inventory, &plan.routed.tables));
    for part in ["<script", "onload=\"", "]]>", "\"]"] {
        assert!(!text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("&lt;script&gt;alert(1)&lt;/script&gt; PID 000"), "{text}");
    assert!(text.contains("GFD &quot;]]&gt;&amp; "), "{text}");
}

/// Each link of the same switches has a line of its own; one that is down is dashed and has no number.
#[test]
fn links_side_by_side_are_seen_apart() {
    let mut graph = generate::line(2, 1).unwrap();
    for _ in 0..2 {
        let free = |graph: &crate::model::graph::Graph, id| {
            let used: BTreeSet<u8> = graph.ports(id).map(|(port, _)| port).collect();
            let port = (0..=u8::MAX).find(|port| !used.contains(port)).unwrap();
            crate::model::graph::PortRef::new(id, port)
        };
        let (a, b) = (free(&graph, SwitchId(0)), free(&graph, SwitchId(1)));
        graph.link(a, b).unwrap();
    }
    let (inventory, plan, _) = set_up(&Shared::new(Fake::of(&graph)));
    let mut rows = links(&inventory, &plan.routed.tables);
    assert_eq!(rows.len(), 3);
    let paths = |text: &str| -> BTreeSet<String> {
        text.split(" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    let text = drawn(&inventory, &[], &rows);
    assert_eq!(paths(&text).len(), 3, "{text}");
    let labels = text.split("class=\"load\" x=\"").skip(1);
    let at: Vec<i64> =
        labels.map(|rest| rest.split_once('"').unwrap().0.parse().unwrap()).collect();
    assert!(at.windows(2).all(|two| two[1] - two[0] >= 40), "numbers do not run together: {at:?}");
    assert_eq!((text.matches("class=\"load\"").count(), text.matches("dasharray").count()), (3, 0));
    rows[1].down = true;
    // The switch at the far end may report another partner by now.
    let far = rows[1].ends[1];
    let mut inventory = inventory;
    let ports = &mut inventory.switches[usize::from(far.switch.0)].ports;
    ports.iter_mut().find(|port| port.number == far.port).unwrap().partner =
        crate::model::inventory::Partner::Foreign;
    let text = drawn(&inventory, &[], &rows);
    assert_eq!((text.matches("class=\"load\"").count(), text.matches("dasharray").count()), (2, 1));
    assert_eq!(text.matches("class=\"link down\"").count(), 1, "{text}");
    assert!(!text.contains("not managed"), "{text}");
}

#[test]
fn a_picture_of_nothing_and_of_a_lost_switch_are_pictures() {
    let (shared, mut inventory) = three_switches();
    let (_, plan, _) = set_up(&shared);
    // A switch found from one that is not there stands below the first row; a link to nowhere is left out.
    inventory.switches[2].came.as_mut().unwrap().from.switch = SwitchId(900);
    inventory.switches[2].whole = false;
    let mut rows = links(&inventory, &plan.routed.tables);
    rows[0].ends[0].switch = SwitchId(900);
    let text = drawn(&inventory, &[], &rows);
    assert_eq!(text.matches("class=\"switch silent\"").count(), 1, "{text}");
    assert_eq!((text.matches("<path").count(), text.matches("</svg>").count()), (1, 1), "{text}");
    (inventory.switches, inventory.gfds) = (Vec::new(), Vec::new());
    assert!(drawn(&inventory, &[], &[]).ends_with("</svg>\n"));
}
