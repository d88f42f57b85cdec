//! The service: requests, start-up, restarts, a second manager, and what comes and goes.
//!
//! Tests send requests to an [`Fm`] on a fake fabric, and compare the fabric's state.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Start-up"; CXL 3.1 section 7.7.12.1.

use crate::show::trace::Via;
use std::time::Duration;

use weft_base::wait::{LONG, until};
use weft_parsers::cci::Uuid;
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};
use weft_rpc::{Answer, Refused};

use super::bind::fabric as three_switches;
use super::discovery::{US, number};
use super::fake::{Fake, Kind, Shared};
use super::fake_gfd::{BLOCK, GfdState};
use crate::model::graph::{SwitchId, generate};
use crate::model::inventory::Partner;
use crate::model::text::UuidText;
use crate::model::text::tag;
use crate::service::request::TopologyFormat;
use crate::service::run::Service;
use crate::service::status::{Phase, StartMode, Status};
use crate::service::{Fm, Request, Response, Setup, Vector};
use crate::state::desired::DesiredMemory;
use crate::state::desired::DesiredState;
use crate::state::store::Store;

const THEM: Uuid = [0xF2; 16];

/// Two switches with a host each, and four GFDs.
pub fn shared() -> Shared {
    let mut fake = Fake::of(&generate::line(2, 1).unwrap());
    for at in 0..4 {
        fake.add(SwitchId(at % 2), Some(GfdState::new(16)));
    }
    Shared::new(fake)
}

pub fn want(more: &str) -> DesiredState {
    DesiredState::parse(&want_text(more)).unwrap()
}

/// A wanted state with one host, as TOML.
pub fn want_text(more: &str) -> String {
    format!(
        "[fm]\nuuid = \"{}\"\nswitch_ns = 100\n\
         [[host]]\nname = \"h0\"\nswitch = \"entry\"\nport = {}\n{more}",
        "f1".repeat(16),
        host_port()
    )
}

/// The port of the host at the first switch of a line of two.
fn host_port() -> u8 {
    let graph = generate::line(2, 1).unwrap();
    graph.endpoints().find(|end| end.at.switch == SwitchId(0)).unwrap().at.port
}

const POOL: &str = "[[memory]]\nname = \"pool\"\nhosts = [\"h0\"]\nways = 4\nsize = \"2GiB\"\nhpa = \"0x10000000000\"\n";

pub fn manager(shared: &Shared, want: DesiredState, mode: StartMode, store: Option<Store>) -> Fm {
    let fabric = shared.fabric(want.manager().uuid);
    Fm::new(Setup { fabric, desired: want, mode, take_over: false, store, drain: || {} })
}

pub fn started(shared: &Shared, more: &str) -> Fm {
    let mut fm = manager(shared, want(more), StartMode::FmFirst, None);
    fm.start().unwrap();
    fm
}

pub fn status(fm: &Fm) -> Status {
    fm.board().status()
}

/// All that the fake components hold.
pub fn holds(shared: &Shared) -> Vec<String> {
    shared.with(|fake| fake.nodes.iter().map(|node| format!("{node:?}")).collect())
}

pub fn done(answer: Result<Response, Refused>) -> Vec<String> {
    match answer {
        Ok(Response::Done(said)) => said,
        other => panic!("{other:?}"),
    }
}

fn share(name: &str, gfds: &[&str], size: u64) -> Request {
    Request::Share(DesiredMemory {
        name: name.to_owned(),
        hosts: vec!["h0".to_owned()],
        gfds: gfds.iter().map(ToString::to_string).collect(),
        ways: None,
        size,
        granularity: 256,
        hpa: 1 << 41,
        media: None,
        notify: false,
    })
}

#[test]
fn what_is_wanted_is_brought_about() {
    let shared = shared();
    let fm = started(&shared, POOL);
    let now = status(&fm);
    assert_eq!((now.phase, now.hosts_held, now.errors.len()), (Phase::Up, false, 0), "{now:?}");
    let counts = now.counts;
    assert_eq!((counts.switches, counts.gfds, counts.hosts, counts.shares), (2, 4, 2, 1));
    let state = fm.state().unwrap();
    let share = state.grants.memory.find(&tag("pool").unwrap()).unwrap();
    let host = share.hosts[0].pid;
    for part in &share.parts {
        shared.with(|fake| {
            let place = fake.nodes.iter().position(|node| node.base.pid == part.gfd).unwrap();
            assert_eq!(fake.gfd(place).sat[&host], 1 << part.group);
        });
    }
}

/// Output has the names of the wanted state, requests accept them, and a name stays with its switch.
#[test]
fn switches_are_called_by_their_names() {
    let shared = shared();
    let unnamed = started(&shared, "");
    let state = unnamed.state().unwrap();
    let uuid = UuidText(state.inventory.switches[1].uuid.unwrap());
    let gfd = UuidText(state.inventory.gfds[0].uuid);
    drop(unnamed);
    let text = format!(
        "[[switch]]\nname = \"leaf.b\"\nuuid = \"{uuid}\"\n[[gfd]]\nname = \"mem-0\"\nuuid = \"{gfd}\"\n"
    );
    let mut want = want(&text);
    want.fm.entry = Some("sw0".to_owned());
    let mut fm = manager(&shared, want, StartMode::FmFirst, None);
    fm.start().unwrap();
    let Ok(Response::Topology(tree)) =
        fm.request(&Request::Topology { drawn: TopologyFormat::Text })
    else {
        panic!("a tree");
    };
    for part in ["sw0 PID", "leaf.b PID", "host h0 ", "GFD mem-0 "] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
    assert!(!tree.contains("s0") && !tree.contains("s1"), "{tree}");
    let Ok(Response::Topology(dot)) = fm.request(&Request::Topology { drawn: TopologyFormat::Dot })
    else {
        panic!("a graph");
    };
    assert!(dot.contains("s1 [label=\"leaf.b\\nPID"), "{dot}");
    let Ok(Response::Pids(rows)) = fm.request(&Request::Pids) else { panic!("rows") };
    assert!(rows.iter().all(|row| !row.at.starts_with("s1")), "{rows:?}");
    assert!(rows.iter().any(|row| row.at == "leaf.b") && rows.iter().any(|row| row.at == "sw0"));
    let host = rows.iter().find(|row| row.at.starts_with("leaf.b.") && row.what == "host edge");
    let place = host.unwrap().at.clone();
    assert!(matches!(fm.request(&Request::Access { host: place }), Ok(Response::Access(_))));
    let only = Request::Routes { prove: false, switch: Some("leaf.b".to_owned()) };
    let Ok(Response::Routes(routes)) = fm.request(&only) else { panic!("routes") };
    assert!(!routes.rows.is_empty() && routes.rows.iter().all(|row| row.switch == "leaf.b"));
    let refused = fm.request(&Request::Unbind { bridge: "leaf.b/0/9".to_owned() }).unwrap_err();
    assert!(refused.message.contains("leaf.b VCS 0 vPPB 9"), "{refused}");
    let links = fm.state().unwrap().inventory.links;
    shared.with(|fake| fake.cut(0, links.first().unwrap()[0].port));
    fm.watch();
    let said = fm.board().events(0);
    let lost = said.iter().find(|event| event.what.contains("is down")).expect("an event");
    assert!(lost.what.starts_with("link at sw0."), "{lost:?}");
}

/// The entry switch answers at its own PID as it does at `entry`.
#[test]
fn commands_to_the_pid_of_the_entry_switch_reach_it() {
    let shared = shared();
    let mut fm = started(&shared, "");
    let entry = fm.state().unwrap().inventory.switches[0].pid;
    let message = "000000000700000000000000".to_owned();
    let ask = |to: String| Request::Cci { to, message: message.clone() };
    let by_name = fm.request(&ask("entry".to_owned())).unwrap();
    let by_pid = fm.request(&ask(format!("pid:{entry}"))).unwrap();
    assert_eq!(by_name, by_pid);
    assert!(matches!(by_pid, Response::Cci(answer) if answer.code == 0));
}

#[test]
fn each_request_is_answered() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let entry = fm.state().unwrap().inventory.switches[0].pid;
    let cases = [
        (Request::Status, "Status"),
        (Request::Topology { drawn: TopologyFormat::Text }, "s0 PID"),
        (Request::Topology { drawn: TopologyFormat::Dot }, "graph fabric"),
        (Request::Topology { drawn: TopologyFormat::Svg }, "<svg "),
        (Request::Topology { drawn: TopologyFormat::Data }, "Inventory("),
        (Request::Overview, "Overview("),
        (Request::Bindings, "Bindings([])"),
        (Request::Routes { prove: true, switch: None }, "none of them backwards"),
        (Request::Routes { prove: false, switch: Some("s1".into()) }, "switch: \"s1\""),
        (Request::Memory, "name: \"pool\""),
        (Request::Access { host: "h0".into() }, "gmv: ["),
        (Request::Pids, "host edge"),
        (Request::Cdat { read: None }, "latency_ns: 100"),
        (Request::Events { after: 0 }, "memory \\\"pool\\\" given"),
        (Request::Discover, "found 2 switches"),
        (
            Request::Cci {
                to: "entry".into(),
                message: "00 07 00 00 57 00 00 00 00 00 00 00".into(),
            },
            "Identify PBR Switch",
        ),
        (
            Request::Cci { to: format!("pid:{entry}"), message: "000700075700000000000000".into() },
            "Invalid Payload Length",
        ),
    ];
    for (request, part) in cases {
        let text = format!("{:?}", fm.request(&request).unwrap());
        assert!(text.contains(part), "{request:?}: {text}");
    }
}

#[test]
fn refused_requests_leave_everything_as_it_was() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let state = fm.state().unwrap();
    let (before, gfd) = (holds(&shared), state.inventory.gfds[0].pid.to_string());
    let used = state.inventory.gfds[1].pid.to_string();
    let text = str::to_owned;
    let mut for_nobody = share("free", &[&gfd], BLOCK);
    if let Request::Share(DesiredMemory { hosts, .. }) = &mut for_nobody {
        hosts.clear();
    }
    let target = |pid: Option<&str>| Request::Assign {
        switch: text("entry"),
        target: u16::from(host_port()),
        instance: 0,
        pid: pid.map(text),
    };
    #[rustfmt::skip] // columns: request, part of the refusal
    let cases = [
        (share("pool", &[&gfd], BLOCK), "that no other memory, GIM or P2P has"),
        (share("two words", &[&gfd], BLOCK), "a name of letters, digits"),
        (share("\x1b[2J\n", &[&gfd], BLOCK), "a name of letters, digits"),
        (share("two", &[&gfd, &gfd], 2 * BLOCK), "is listed twice"),
        (share("odd", &[&gfd], 1), "the size is no multiple of 0x100"),
        (share("part", &[&gfd], BLOCK + 256), "1 GFDs give blocks of 0x10000000 bytes: 0x10000100; 0x10000000 or 0x20000000 would do"),
        (share("big", &[&gfd], 99 * BLOCK), "bytes in all"),
        (share("none", &["eee"], BLOCK), "no GFD"),
        (share("seventeen-bytes..", &[&gfd], BLOCK), "1 to 16 bytes"),
        (for_nobody, "at least one host"),
        (Request::Release { name: text("pond") }, "no memory"),
        (Request::Revoke { name: text("pool"), host: text("h9") }, "no host"),
        (Request::Unbind { bridge: text("s0/0/1") }, "not bound"),
        (Request::Bind { bridge: text("s0/0/1"), to: text("port:99") }, "no device"),
        (Request::Bind { bridge: text("s0/0"), to: text("port:1") }, "expected SWITCH/VCS/VPPB"),
        (Request::Bind { bridge: text("s9/0/1"), to: text("port:1") }, "no switch"),
        (Request::SetAccess { host: text("h0"), vector: Vector::Gmv, pid: used, on: false }, "needs it"),
        (target(Some("0aa")), "uses PID"),
        (target(Some(&gfd)), "assigned already"),
        (target(Some("fff")), "expected a PID"),
        (Request::Cci { to: text("pid:xyz"), message: text("00") }, "expected a PID"),
        (Request::Cci { to: text("entry"), message: text("0") }, "pairs of hexadecimal"),
        (Request::Cci { to: text("entry"), message: text("00") }, "expected a CCI message"),
        (Request::Trace { host: text("s0.99"), hpa: 0, via: Via::Uio }, "no host"),
    ];
    for (request, part) in cases {
        let refused = fm.request(&request).unwrap_err();
        assert!(refused.message.contains(part), "{request:?}: {}", refused.message);
        assert_eq!(fm.state().unwrap(), state, "{request:?}");
    }
    assert_eq!(holds(&shared), before);
}

#[test]
fn memory_is_given_revoked_and_released_by_name() {
    let shared = shared();
    let mut fm = started(&shared, "");
    let gfds: Vec<String> =
        fm.state().unwrap().inventory.gfds.iter().map(|gfd| gfd.pid.to_string()).collect();
    let free = shared.with(|fake| fake.gfd(2).extents.values().flatten().count());
    done(fm.request(&share("two", &[&gfds[0], &gfds[1]], 4 * BLOCK)));
    assert_eq!(status(&fm).counts.shares, 1);
    done(fm.request(&Request::Revoke { name: "two".into(), host: "h0".into() }));
    let (name, host) = ("two".to_owned(), "h0".to_owned());
    let again = fm.request(&Request::Revoke { name: name.clone(), host });
    assert!(again.unwrap_err().message.contains("host"));
    done(fm.request(&Request::Release { name }));
    assert_eq!(status(&fm).counts.shares, 0);
    assert_eq!(shared.with(|fake| fake.gfd(2).extents.values().flatten().count()), free);
}

#[test]
fn a_target_gets_another_pid_and_is_reached_by_it() {
    let shared = shared();
    let mut fm = started(&shared, "");
    let target = u16::from(host_port());
    let pid = Some("0aa".to_owned());
    done(fm.request(&Request::Assign { switch: "entry".into(), target, instance: 0, pid }));
    let wanted = Pid::from_low_bits(0x0AA);
    let inventory = fm.state().unwrap().inventory;
    assert!(inventory.pids().any(|(pid, _)| pid == wanted));
    super::plan::all_reach_all(&shared, &inventory);
}

#[test]
fn start_modes_hold_hosts_as_long_as_they_say() {
    // Phase and `hosts_held` are noted after each command once a GFD has capacity: in the middle of the start-up.
    for (mode, held) in [(StartMode::FmFirst, true), (StartMode::Simultaneous, false)] {
        let shared = shared();
        let mut fm = manager(&shared, want(POOL), mode, None);
        let board = fm.board();
        assert_eq!(board.status().hosts_held, mode == StartMode::FmFirst);
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let notes = seen.clone();
        shared.with(|fake| {
            fake.after = Some(Box::new(move |nodes, _| {
                let is_given = |node: &super::fake::Node| {
                    matches!(&node.kind, Kind::Gfd(gfd) if !gfd.extents.is_empty())
                };
                if nodes.iter().any(is_given) {
                    notes.lock().unwrap().push((board.status().phase, board.status().hosts_held));
                }
            }));
        });
        fm.start().unwrap();
        let seen = seen.lock().unwrap();
        assert!(!seen.is_empty());
        assert!(seen.iter().all(|now| *now == (Phase::Starting, held)), "{mode:?}: {seen:?}");
        let now = status(&fm);
        assert_eq!((now.phase, now.hosts_held), (Phase::Up, false), "{mode:?}");
    }
}

#[test]
fn a_static_fabric_is_looked_at_and_never_changed() {
    let shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    let without = manager(&shared, want(""), StartMode::Static, None).start().unwrap_err();
    assert!(without.to_string().contains("needs a store"), "{without}");
    let refused = manager(&shared, want(POOL), StartMode::Static, None).start().unwrap_err();
    assert!(refused.to_string().contains("no G-FAM"), "{refused}");
    let ld = "[[ld]]\ndevice = \"entry/port:1\"\nld = 0\nlimit = 1\n";
    let refused = manager(&shared, want(ld), StartMode::Static, None).start().unwrap_err();
    assert!(refused.to_string().contains("no MLD: [[ld]] of \"entry/port:1\""), "{refused}");
    let mut first =
        manager(&shared, want(""), StartMode::FmFirst, Some(Store::open(&path).unwrap()));
    first.start().unwrap();
    drop(first);
    let (before, sets) = (holds(&shared), shared.with(|fake| fake.sets));
    let mut fm = manager(&shared, want(""), StartMode::Static, Some(Store::open(&path).unwrap()));
    fm.start().unwrap();
    fm.watch();
    assert_eq!(status(&fm).calls, 0, "nobody was asked anything");
    let proof =
        format!("{:?}", fm.request(&Request::Routes { prove: true, switch: None }).unwrap());
    assert!(proof.contains("none of them backwards"));
    let refused = fm.request(&share("a", &["003"], BLOCK)).unwrap_err();
    assert!(refused.message.contains("static"), "{refused}");
    assert_eq!((holds(&shared), shared.with(|fake| fake.sets)), (before, sets));
}

/// A wanted logical device that does not exist is an error of the status; one of a device that is away waits.
#[test]
fn logical_devices_that_there_are_not_are_errors() {
    let shared = shared();
    let inventory = started(&shared, "").state().unwrap().inventory;
    let found = inventory.by_id().find_map(|(id, switch)| {
        let host = switch.ports.iter().find(|port| port.partner == Partner::Host)?;
        Some(format!("{id}/port:{}", host.number))
    });
    let host = found.unwrap();
    let ld = |device: &str| format!("[[ld]]\ndevice = {device:?}\nld = 3\nlimit = 1\n");
    let text = [ld(&host), ld("nowhere"), ld("entry/port:200")].concat();
    let errors = status(&started(&shared, &text)).errors;
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors[0].contains("LD 3 of")
            && errors[0].contains("has told its switch of no logical devices")
    );
    assert!(errors[1].contains("there is no device \"nowhere\""), "{errors:?}");
}

#[test]
fn a_restart_finds_the_same_state_and_changes_nothing() {
    let shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    let store = || Some(Store::open(&path).unwrap());
    let mut first = manager(&shared, want(POOL), StartMode::FmFirst, store());
    first.start().unwrap();
    let state = first.state().unwrap();
    drop(first);
    let before = holds(&shared);
    let mut second = manager(&shared, want(POOL), StartMode::FmFirst, store());
    second.start().unwrap();
    assert_eq!(second.state().unwrap(), state);
    assert_eq!(status(&second).errors, Vec::<String>::new());
    assert_eq!(holds(&shared), before);
    drop(second);
    // A right is gone meanwhile: the manager reports that, and does not take the share for the wanted one.
    let host = state.grants.memory.shares[0].hosts[0].pid;
    shared.with(|fake| {
        let place =
            fake.nodes.iter().position(|n| n.base.pid == state.inventory.gfds[2].pid).unwrap();
        fake.gfd(place).sat.insert(host, 0);
    });
    let mut third = manager(&shared, want(POOL), StartMode::FmFirst, store());
    third.start().unwrap();
    let errors = status(&third).errors;
    let has = |part: &str| errors.iter().any(|line| line.contains(part));
    assert!(has("not as it was") && has("release it first"), "{errors:?}");
}

#[test]
fn a_restart_keeps_virtual_links_and_binds_again_what_was_lost() {
    let (shared, _) = three_switches();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    let text = format!(
        "[fm]\nuuid = \"{}\"\n[[bind]]\nbridge = \"s0/0/1\"\nto = \"s2/2/0\"\n",
        "f1".repeat(16)
    );
    let start = || {
        let store = Some(Store::open(&path).unwrap());
        let mut fm =
            manager(&shared, DesiredState::parse(&text).unwrap(), StartMode::FmFirst, store);
        fm.start().unwrap();
        fm
    };
    let state = start().state().unwrap();
    assert_eq!(state.bindings.remote.len(), 1);
    let second = start();
    assert_eq!(
        (second.state().unwrap().bindings, status(&second).errors.len()),
        (state.bindings.clone(), 0)
    );
    drop(second);
    // Both ends are taken away behind the manager's back.
    for (at, vcs, vppb) in [(0, 0, 1), (2, 2, 0)] {
        shared.with(|fake| fake.switch(at).vcss[vcs].vppbs[vppb] = (0, 255, 255, Pid::NONE, None));
    }
    let third = start();
    let told = third.board().events(0);
    assert!(told.iter().any(|event| event.what.contains("it is bound again")), "{told:?}");
    assert_eq!(status(&third).errors, Vec::<String>::new(), "what is repaired is no error");
    assert_eq!(third.state().unwrap().bindings, state.bindings, "bound again");
    assert_eq!(shared.with(|fake| fake.switch(0).vcss[0].vppbs[1].0), 4);
}

#[test]
fn a_second_manager_stands_by_and_takes_over_what_there_is() {
    let shared = shared();
    let secondary = format!("secondary = {{ uuid = \"{}\", pid = \"ffd\" }}\n", "f2".repeat(16));
    let primary = want(POOL);
    let text = format!("[fm]\nuuid = \"{}\"\n{secondary}{POOL}", "f1".repeat(16));
    let text = text.replace(
        "[[memory]]",
        &format!("[[host]]\nname = \"h0\"\nswitch = \"entry\"\nport = {}\n[[memory]]", host_port()),
    );
    let mut first = manager(&shared, DesiredState::parse(&text).unwrap(), StartMode::FmFirst, None);
    first.start().unwrap();
    assert_eq!(status(&first).errors, Vec::<String>::new());
    let mut want = primary;
    (want.fm.uuid, want.fm.pid) = (Some(THEM), Some(Pid::from_low_bits(0xFFD)));
    let mut second = manager(&shared, want, StartMode::FmFirst, None);
    second.start().unwrap();
    assert_eq!(status(&second).phase, Phase::Standby);
    assert!(second.request(&Request::Memory).unwrap_err().message.contains("not up"));
    done(second.request(&Request::TakeOver));
    assert_eq!(status(&second).phase, Phase::Up);
    let (old, new) = (first.state().unwrap(), second.state().unwrap());
    assert_eq!(new.grants.memory, old.grants.memory, "read from the GFDs: there is no store");
    assert_eq!(new.inventory.links, old.inventory.links);
    let refused = first.request(&Request::Access { host: "h0".into() }).unwrap_err();
    assert!(refused.message.contains("Unsupported"), "{refused}");
    assert_eq!(shared.fabric(US).calls(), 0);
}

#[test]
fn who_is_no_second_manager_fails_and_says_whose_the_fabric_is() {
    let shared = shared();
    let _first = started(&shared, "");
    let mut want = want("");
    want.fm.uuid = Some(THEM);
    let mut second = manager(&shared, want, StartMode::FmFirst, None);
    second.start().unwrap_err();
    let now = status(&second);
    assert_eq!((now.phase, now.hosts_held), (Phase::Failed, true));
    assert!(now.failed.as_ref().unwrap().contains("f1f1f1f1-f1f1"), "{:?}", now.failed);
}

#[test]
fn links_and_switches_that_go_and_come_back_are_followed() {
    let mut fake = Fake::of(&generate::ring(4, 1).unwrap());
    fake.add(SwitchId(2), Some(GfdState::new(16)));
    let shared = Shared::new(fake);
    let text = format!("[fm]\nuuid = \"{}\"\n", "f1".repeat(16));
    let mut fm = manager(&shared, DesiredState::parse(&text).unwrap(), StartMode::FmFirst, None);
    fm.start().unwrap();
    let state = fm.state().unwrap();
    let lost =
        state.inventory.by_id().find(|(id, _)| number(&state.inventory, *id) == 2).unwrap().1.pid;
    let place =
        shared.with(|fake| fake.nodes.iter().position(|node| node.base.pid == lost).unwrap());
    // The switch goes, and with it the GFD behind it.
    shared.with(|fake| fake.nodes[place].base.gone = true);
    for _ in 0..3 {
        fm.watch();
    }
    let now = status(&fm);
    assert!(now.counts.silent == 1 && now.counts.down == 2, "{now:?}");
    let events = fm.board().events(0);
    assert!(events.iter().any(|event| event.what.contains("does not answer")), "{events:?}");
    let calls = now.calls;
    fm.watch();
    assert!(status(&fm).calls - calls < 50, "it is not looked for again at once");
    // It comes back without any of its settings.
    shared.with(|fake| {
        let node = &mut fake.nodes[place];
        node.base.gone = false;
        (node.base.primary, node.base.pid) = (None, Pid::NONE);
        let state = fake.switch(place);
        state.drt.clear();
        state.rgt.clear();
        state.targets.iter_mut().for_each(|target| target.5 = Pid::NONE);
    });
    for _ in 0..17 {
        fm.watch();
    }
    let back = fm.state().unwrap();
    assert_eq!((status(&fm).counts.silent, status(&fm).counts.down), (0, 0), "{:?}", status(&fm));
    let pids = |state: &crate::state::store::State| {
        let mut pids: Vec<Pid> = state.inventory.pids().map(|(pid, _)| pid).collect();
        pids.sort_unstable();
        pids
    };
    assert_eq!(pids(&back), pids(&state), "everything has the PID that it had");
    super::plan::all_reach_all(&shared, &back.inventory);
}

#[test]
fn clients_are_answered_one_at_a_time_and_status_always() {
    let shared = shared();
    let fm = manager(&shared, want(POOL), StartMode::FmFirst, None);
    // The start-up waits at its first command until `go` is sent.
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(Some(gate));
    shared.with(|fake| {
        fake.after = Some(Box::new(move |_, _| {
            if let Some(gate) = gate.lock().unwrap().take() {
                let _ = gate.recv();
            }
        }));
    });
    let service = Service::start(fm, Duration::from_millis(20)).unwrap();
    let lines = service.handler();
    let ask = |line: &str| match lines.answer(line.as_bytes()) {
        Answer::Line(line) => String::from_utf8(line).unwrap(),
        Answer::Stream(..) => panic!("no stream"),
    };
    let starting = ask(r#"{"cmd":"status"}"#);
    assert!(
        starting.contains("\"starting\"") && starting.contains("\"hosts_held\":true"),
        "{starting}"
    );
    assert!(starting.contains(r#""errors":[]"#), "{starting}");
    let refused = ask(r#"{"cmd":"memory"}"#);
    assert!(refused.contains("start-up is in progress"), "{refused}");
    go.send(()).unwrap();
    until(LONG, "it has started", || {
        (service.board().status().phase != Phase::Starting).then_some(())
    });
    let memory = ask(r#"{"cmd":"memory"}"#);
    assert!(memory.contains("pool"), "{memory}");
    for bad in ["", "[]", r#"{"cmd":"fly"}"#, r#"{"cmd":"release","name":"a","x":1}"#] {
        assert!(ask(bad).contains("bad_request"), "{bad}");
    }
    drop(service);
}

/// A switch that another manager took is reported as owned by that one, never as silent.
#[test]
fn a_switch_of_another_manager_is_told_so() {
    let shared = shared();
    let mut fm = started(&shared, "");
    let links = fm.state().unwrap().inventory.links;
    shared.with(|fake| fake.nodes[1].base.primary = Some((Pid::from_low_bits(9), THEM)));
    let (after, calls) = (status(&fm).events, status(&fm).calls);
    fm.watch();
    assert!(status(&fm).calls < calls + 40, "it is not asked again and again: {calls}");
    let owner = UuidText(THEM).to_string();
    let told = |fm: &Fm| -> Vec<String> {
        fm.board().events(after).into_iter().map(|event| event.what).collect()
    };
    let [line] = &told(&fm)[..] else { panic!("{:?}", told(&fm)) };
    assert!(line.contains("took s1 over") && line.contains(&owner), "{line}");
    fm.rediscover().unwrap();
    let (said, now) = (told(&fm), status(&fm));
    let says = |part: &str, all: &[String]| all.iter().any(|line| line.contains(part));
    assert!(says("s1, PID ", &said) && says("is owned by", &said), "{said:?}");
    assert!(!says("does not answer", &said), "{said:?}");
    assert!(says("s1, PID 001, is owned by", &now.errors), "{now:?}");
    assert!(!says("s1, PID 001, is not there", &now.errors), "{now:?}");
    let [[one, other]] = links.into_iter().collect::<Vec<_>>()[..] else { panic!("one link") };
    assert!(says(&format!("link at {one} to {other} is down"), &said), "{said:?}");
}

/// Each look reads owners, PIDs and tables again; a change by others is one event, and an error until it is undone.
#[test]
fn what_somebody_else_changes_is_told_with_switch_table_and_entry() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let said = |fm: &Fm| -> Vec<String> {
        let events = fm.board().events(0);
        events.into_iter().map(|e| e.what).filter(|e| e.contains("somebody else")).collect()
    };
    let errors = |fm: &Fm| -> Vec<String> {
        status(fm).errors.into_iter().filter(|line| line.contains("somebody else")).collect()
    };
    fm.watch();
    assert_eq!((said(&fm), errors(&fm)), (vec![], vec![]));
    let change = |change: &dyn Fn(&mut super::fake::SwitchState)| {
        shared.with(|fake| match &mut fake.nodes[1].kind {
            Kind::Switch(state) => change(state),
            Kind::Gfd(_) => panic!("a GFD"),
        });
    };
    let to = Pid::from_low_bits(0x7AB);
    change(&|state| {
        state.drt.insert(to, DrtEntry::Port(1));
    });
    let route = "somebody else changed DRT entry 7ab of s1: expected nothing, found port 1";
    for _ in 0..2 {
        fm.watch();
        assert_eq!((said(&fm), errors(&fm)), (vec![route.to_owned()], vec![route.to_owned()]));
    }
    change(&|state| {
        state.drt.remove(&to);
    });
    change(&|state| {
        let group = RgtEntry::decode([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        state.rgt.insert(77, group);
    });
    fm.watch();
    let group = "somebody else changed RGT entry 77 of s1: expected nothing, found ports [1]";
    assert_eq!(errors(&fm), [group]);
    change(&|state| {
        state.rgt.remove(&77);
    });
    fm.watch();
    assert_eq!((errors(&fm), said(&fm)), (vec![], vec![route.to_owned(), group.to_owned()]));
}
