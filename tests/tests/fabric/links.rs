//! Several virtual links between two edge switches, for one host.
//!
//! `pcaps/fabric/two-links.toml` in virtual time → bindings of the manager, tables of the switches, and what the host
//! reads and writes through each link.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 7.7.6.4, 7.7.6.5; docs/spec/cxl-fabric.md "Binding".

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use weft_fm::components::bind::Remote;
use weft_fm::service::Request;
use weft_lab::endpoint::command::{Access, Command, OwnRange};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{self, books, file, look, pass, range, transfer, up, up_text};

const HOST: Part = Part::Host(0);
const FAR: usize = 1;
const LEN: u64 = 1 << 14;
/// Three virtual switches below, at a switch with two links.
const THREE: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }, { name = "sw2" }]
link = [{ ends = ["sw0", "sw1"] }, { ends = ["sw1", "sw2"] }]
host = [
    { name = "h0", at = "sw0", bind = ["ep0"], spare_vppbs = 2 },
    { name = "h1", at = "sw2", bind = ["ep1"] },
    { name = "h2", at = "sw2", bind = ["ep2"] },
]
device = [{ name = "ep0", at = "sw1" }, { name = "ep1", at = "sw1" }, { name = "ep2", at = "sw1" }]
"#;

/// Where the host sees the memory of its devices, in the order of their buses.
fn bars(fabric: &ManagedFabric) -> Vec<u64> {
    fabric_here::bars(fabric, HOST, &[0x0D00, 0x0D01])
}

/// The host writes to the device at `bar`, and device number `device` has it.
fn reaches(fabric: &ManagedFabric, bar: u64, device: usize, seed: u64) {
    let write = transfer(fabric, HOST, &Command::Write(range(bar, LEN, seed)));
    assert!(write.ok && write.written == LEN, "{write:?}");
    let place = OwnRange {
        addr: Num(0),
        len: Some(Num(LEN)),
        seed: Some(seed),
        bar: Some(0),
        ..OwnRange::default()
    };
    assert!(transfer(fabric, Part::Device(device), &Command::Peek(place)).ok, "device {device}");
}

fn links(fabric: &mut ManagedFabric) -> Vec<Remote> {
    fabric.fm().state().unwrap().bindings.remote.clone()
}

fn bind(fabric: &mut ManagedFabric, bridge: &str, to: &str) {
    let (bridge, to) = (bridge.to_owned(), to.to_owned());
    fabric.fm().request(&Request::Bind { bridge, to }).unwrap();
}

fn unbind(fabric: &mut ManagedFabric, bridge: &str) {
    fabric.fm().request(&Request::Unbind { bridge: bridge.to_owned() }).unwrap();
}

/// The fabric with both links bound anew, one after the other; the first one has the first PID then.
fn bound_anew(first: [&str; 2], second: [&str; 2]) -> (ManagedFabric, Vec<Remote>) {
    let mut fabric = up("two-links");
    unbind(&mut fabric, "entry/0/1");
    unbind(&mut fabric, "entry/0/2");
    for [bridge, to] in [first, second] {
        bind(&mut fabric, bridge, to);
    }
    fabric.bring_up_hosts().unwrap();
    let links = links(&mut fabric);
    (fabric, links)
}

/// The ends of two links differ in the PID below, each leads to its own device, and one that is taken away leaves the other.
#[test]
fn each_link_leads_to_its_own_virtual_switch() {
    let mut fabric = up("two-links");
    let both = links(&mut fabric);
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].host.pid, both[1].host.pid);
    assert_ne!(both[0].below.pid, both[1].below.pid);
    let at = bars(&fabric);
    assert_eq!(at.len(), 2);
    reaches(&fabric, at[0], 0, 1);
    reaches(&fabric, at[1], 1, 2);

    unbind(&mut fabric, "entry/0/1");
    pass(&fabric, 20);
    let gone = Access { seed: None, ..range(at[0], 64, 0) };
    assert!(!transfer(&fabric, HOST, &Command::Read(gone)).ok);
    reaches(&fabric, at[1], 1, 3);
    bind(&mut fabric, "entry/0/1", "sw1/0/0");
    fabric.bring_up_hosts().unwrap();
    assert_eq!(links(&mut fabric), both);
    let at = bars(&fabric);
    reaches(&fabric, at[0], 0, 4);
    reaches(&fabric, at[1], 1, 5);
    books(&fabric);
}

/// Bound the other way round, so that no order of bridges tells which ends belong together: what the last manager kept does.
#[test]
fn who_belongs_to_whom_is_known_to_the_next_manager() {
    let (mut fabric, crossed) = bound_anew(["entry/0/1", "sw1/1/0"], ["entry/0/2", "sw1/0/0"]);
    assert_eq!(crossed[0].below.bridge.vcs, 1);
    assert!(crossed[0].below.pid < crossed[1].below.pid);

    fabric.restart_manager(|_| ()).unwrap();
    assert_eq!(links(&mut fabric), crossed, "by what it kept");
    unbind(&mut fabric, "entry/0/1");
    pass(&fabric, 20);
    let at = bars(&fabric);
    reaches(&fabric, *at.last().unwrap(), 0, 5);
    bind(&mut fabric, "entry/0/1", "sw1/1/0");
    assert_eq!(links(&mut fabric), crossed);
    books(&fabric);
}

/// The second PID is asked for where a switch would take the first: the links are what they were after it has forgotten all.
#[test]
fn a_switch_that_has_forgotten_its_links_gets_them_with_the_same_pids() {
    let (mut fabric, before) = bound_anew(["entry/0/2", "sw1/1/0"], ["entry/0/1", "sw1/0/0"]);
    assert!(before[0].below.pid > before[1].below.pid);
    fabric.parts().stop(Part::Switch(FAR)).unwrap();
    pass(&fabric, 20);
    fabric.fm().watch();
    fabric.parts().run(Part::Switch(FAR));
    look(&mut fabric);
    fabric.bring_up_hosts().unwrap();
    assert_eq!(links(&mut fabric), before);
    let at = bars(&fabric);
    reaches(&fabric, at[0], 0, 6);
    reaches(&fabric, at[1], 1, 7);
    books(&fabric);
}

/// More links than PIDs are refused, by the file and by command, and nothing changes.
#[test]
fn there_are_as_many_links_as_pids() {
    let text = file("two-links").replace("count = 2", "count = 1");
    let refused = ManagedFabric::up(&text, weft_lab::fabric::in_process::virtual_clock());
    let Err(error) = refused else { panic!("it is up") };
    let causes = core::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
    let said: String = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    assert!(said.contains("virtual links to one switch") && said.contains("found 2"), "{said}");

    let mut fabric = up_text("two links for three", THREE);
    unbind(&mut fabric, "sw2/0/1");
    unbind(&mut fabric, "sw2/1/1");
    bind(&mut fabric, "entry/0/2", "sw1/1/0");
    let before = links(&mut fabric);
    let (bridge, to) = ("entry/0/3".to_owned(), "sw1/2/0".to_owned());
    let refused = fabric.fm().request(&Request::Bind { bridge, to }).unwrap_err().to_string();
    assert!(refused.contains("no other PID is left below"), "{refused}");
    assert_eq!((before.len(), links(&mut fabric)), (2, before));
}

/// By names the manager finds bridges that are free: at another switch first a virtual switch and a link to it, then one more
/// bridge there; what cannot be is said, and changes nothing.
#[test]
fn devices_are_bound_by_names_at_any_switch() {
    let text = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [{ name = "h0", at = "sw0", spare_vppbs = 2 }, { name = "h1", at = "sw1" }]
device = [
    { name = "ep0", at = "sw1" }, { name = "ep1", at = "sw1" }, { name = "near", at = "sw0" },
    { name = "more", at = "sw1" },
]
"#;
    let mut fabric = up_text("by names", text);
    let mut by_name = |host: &str, device: &str| {
        let (bridge, to) = (host.to_owned(), device.to_owned());
        let done = fabric.fm().request(&Request::Bind { bridge, to });
        done.map_err(|refused| refused.message)
    };
    for (host, device) in [("h0", "ep0"), ("h0", "ep1"), ("h0", "near")] {
        by_name(host, device).unwrap_or_else(|why| panic!("{device}: {why}"));
    }
    #[rustfmt::skip] // columns: host, device, part of the refusal
    let refusals = [
        ("h0", "ep0",    "h0 is shown ep0 by sw1/"),
        ("h1", "near",   "h0 is shown near"),
        ("h0", "more",   "is free"),
        ("h1", "more",   "no vPPB of h1 is free"),
        ("h0", "nobody", "no device \"nobody\""),
        ("nobody", "ep0", "no host \"nobody\""),
        ("ep0", "more",  "ep0 is a device"),
    ];
    for (host, device, part) in refusals {
        let why = by_name(host, device).unwrap_err();
        assert!(why.contains(part), "{host} {device}: {why}");
    }
    assert_eq!(links(&mut fabric).len(), 1);
    fabric.bring_up_hosts().unwrap();
    let at = fabric_here::bars(&fabric, HOST, &[0x0D00, 0x0D01, 0x0D02]);
    assert_eq!(at.len(), 3, "{at:x?}");
    for (seed, bar) in (1..).zip(at) {
        let found = (0..3).filter(|device| {
            let write = transfer(&fabric, HOST, &Command::Write(range(bar, LEN, seed)));
            assert!(write.ok, "{write:?}");
            let (addr, len) = (Num(0), Some(Num(LEN)));
            let seed = Some(seed);
            let own = OwnRange { addr, len, seed, bar: Some(0), ..OwnRange::default() };
            transfer(&fabric, Part::Device(*device), &Command::Peek(own)).ok
        });
        assert_eq!(found.count(), 1, "{bar:#x}");
    }
    books(&fabric);
}
