//! Each kind of component of a running fabric is started again under load, with and without a link that goes meanwhile.
//!
//! Three switches in a ring with hosts, devices, GFDs, G-FAM and GIM → one component loses its power and gets it
//! back → flows that do not cross it lose nothing, and every table is what it was, entry by entry.
//!
//! Units: bytes; virtual milliseconds.
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; CXL 3.1 section 7.7.12.6.

use weft_fm::service::{Request, Vector};
use weft_fm::state::desired::DesiredMemory;
use weft_lab::endpoint::command::Command;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{look, pass, range, up_text};
use weft_tests::fabric_tables::{differences, tables};

use super::load;

/// The entry switch has the first host; the other two hosts have memory at their own switches, and what they do crosses
/// nothing else.
const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }, { name = "sw2" }]
link = [{ ends = ["sw0", "sw1"], count = 2 }, { ends = ["sw1", "sw2"] }, { ends = ["sw0", "sw2"] }]
host = [
    { name = "h0", at = "sw0", bind = ["d0", "d1"] }, { name = "h1", at = "sw1" },
    { name = "h2", at = "sw2" },
]
device = [{ name = "d0", at = "sw0" }, { name = "d1", at = "sw1" }]
gfd = [{ name = "ga", at = "sw1", capacity_mib = 1024 }, { name = "gb", at = "sw2", capacity_mib = 1024 }]

[[memory]]
name = "pool"
hosts = ["h0"]
gfds = ["ga", "gb"]
len = 0x20000000
hpa = 0x10000000000

[[memory]]
name = "near-1"
hosts = ["h1"]
gfds = ["ga"]
len = 0x10000000
hpa = 0x10000000000

[[memory]]
name = "near-2"
hosts = ["h2"]
gfds = ["gb"]
len = 0x10000000
hpa = 0x10000000000

[[gim]]
of = "h1"
from = ["h0"]
"#;

/// What is started again; none is the manager.
const PARTS: [Option<Part>; 11] = [
    None,
    Some(Part::Switch(0)),
    Some(Part::Switch(1)),
    Some(Part::Switch(2)),
    Some(Part::Host(0)),
    Some(Part::Host(1)),
    Some(Part::Host(2)),
    Some(Part::Device(0)),
    Some(Part::Device(1)),
    Some(Part::Gfd(0)),
    Some(Part::Gfd(1)),
];

/// Hosts whose loads cross neither it nor the links between the first two switches.
fn untouched(part: Option<Part>) -> &'static [usize] {
    match part {
        Some(Part::Switch(1) | Part::Host(1) | Part::Gfd(0)) => &[2],
        Some(Part::Switch(2) | Part::Host(2) | Part::Gfd(1)) => &[1],
        _ => &[1, 2],
    }
}

fn start_load(fabric: &ManagedFabric, host: usize) {
    let access = range(0x100_0000_0000, 1 << 14, host as u64);
    let start = Command::LoadStart { access, rounds: 0, pause_ms: 1 };
    fabric.ask(Part::Host(host), &start).unwrap();
}

/// The fabric with all loads, and with memory and rights that were given by command.
fn loaded() -> ManagedFabric {
    let mut fabric = up_text("a ring of three", TOPOLOGY);
    let gb = fabric.fm().state().unwrap().inventory.gfds[1].pid;
    let access =
        |vector, pid: String| Request::SetAccess { host: "h0".to_owned(), vector, pid, on: true };
    fabric.fm().request(&access(Vector::Lav, "7ab".to_owned())).unwrap();
    let share = Request::Share(DesiredMemory {
        name: "by-command".to_owned(),
        hosts: vec!["h2".to_owned()],
        gfds: vec![gb.to_string()],
        ways: None,
        size: 256 << 20,
        granularity: 4_096,
        hpa: 0x120_0000_0000,
        media: None,
        notify: false,
    });
    fabric.fm().request(&share).unwrap();
    fabric.bring_up_hosts().unwrap();
    (0..3).for_each(|host| start_load(&fabric, host));
    pass(&fabric, 20);
    fabric
}

/// One of them loses its power and gets it back, perhaps with a link lost meanwhile that comes back later.
fn round(fabric: &mut ManagedFabric, part: Option<Part>, cut: bool) {
    let before = tables(fabric);
    let whole: Vec<_> = untouched(part).iter().map(|&host| (host, load(fabric, host))).collect();
    let wire = {
        let parts = fabric.parts();
        let joins = |at: &usize| parts.wires_of(Part::Switch(1)).contains(at);
        *parts.wires_of(Part::Switch(0)).iter().find(|at| joins(at)).unwrap()
    };
    let set = |fabric: &ManagedFabric, up: bool| {
        if cut {
            fabric.parts().set_wire(wire, up);
        }
    };
    if let Some(part) = part {
        set(fabric, false);
        fabric.parts().stop(part).unwrap();
        pass(fabric, 20);
        fabric.fm().watch();
        fabric.parts().run(part);
    } else {
        fabric.restart_manager(|fabric| set(fabric, false)).unwrap();
    }
    look(fabric);
    for (host, then) in &whole {
        let now = load(fabric, *host);
        assert!(now.done > then.done, "{part:?} {cut}: host {host} goes on: {now:?}");
        let bad = |load: &super::LoadReport| (load.failed, load.unanswered, load.failures.clone());
        assert_eq!(bad(&now), bad(then), "{part:?} {cut}: host {host} loses nothing");
    }
    set(fabric, true);
    look(fabric);
    fabric.bring_up_hosts().unwrap();
    if let Some(Part::Host(host)) = part {
        start_load(fabric, host);
    }
    let status = fabric.fm().board().status();
    assert_eq!(status.errors, Vec::<String>::new(), "{part:?} {cut}");
    let all = differences(&before, &tables(fabric));
    let events = fabric.fm().board().events(0);
    assert!(all.is_empty(), "{part:?} {cut}:\n{}\n{events:#?}", all.join("\n"));
    let then: Vec<_> = (0..3).map(|host| load(fabric, host).done).collect();
    pass(fabric, 60);
    for (host, then) in then.into_iter().enumerate() {
        let now = load(fabric, host);
        assert!(now.done > then, "{part:?} {cut}: host {host} goes on after all: {now:?}");
    }
}

/// Whatever is started again: flows that do not cross it lose nothing, and every table is what it was.
#[test]
fn whatever_is_started_again_gets_all_that_it_had() {
    let mut fabric = loaded();
    for part in PARTS {
        for cut in [false, true] {
            round(&mut fabric, part, cut);
        }
    }
}

/// The same many times over, in an order that a seed says.
#[test]
#[ignore = "long: a run of make soak"]
fn soak_of_restarts() {
    let mut fabric = loaded();
    for _ in 0..20 {
        for part in PARTS {
            for cut in [false, true] {
                round(&mut fabric, part, cut);
            }
        }
    }
}
