//! Faults under full load: an interface that is pulled, moved away, taken down; a program that is
//! removed or not let in; a buffer that is too small. The switch recovers or says so, other ports are
//! not disturbed, and no chunk is lost.
//!
//! Three wires; stations 0 and 1 talk to each other all the time, station 2 is behind the port
//! to which it happens, and sends to and gets from both.
//!
//! Units: frames, chunks.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]
#![expect(unsafe_code, reason = "bpf(2)")]

#[path = "../../../dataplane/tests/kernel/links.rs"]
mod links;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use weft_base::wait::{LONG, pause, try_until};
use weft_dataplane::port::af_xdp::{Attach, Builtin, Steering, Target};
use weft_tests::netns::{Net, Switch};
use weft_tests::stations::{BURST, Load, Station, frame, mac};

const WIRES: usize = 3;
/// The port to which it happens.
const HIT: usize = 2;

/// A switch under load, and what it was like before.
struct Case {
    net: Net,
    switch: Switch,
    load: Option<Load>,
    chunks: u64,
}

/// What is shown at one moment.
struct Shown(Value);

impl Shown {
    fn port(&self, index: usize, key: &str) -> u64 {
        self.0["ports"][index][key].as_u64().unwrap()
    }

    fn up(&self, index: usize) -> bool {
        self.0["ports"][index]["link_up"] == true
    }

    fn chunks(&self) -> u64 {
        self.0["buffer"]["chunks_used"].as_u64().unwrap()
    }

    fn errors(&self) -> u64 {
        self.0["workers"][0]["service_errors"].as_u64().unwrap()
    }
}

impl Case {
    /// The switch, idle.
    fn new(test: &str, config: &str) -> Option<Self> {
        let mut net = Net::new(test)?;
        net.add_wires(WIRES);
        let switch = Switch::start(&net, &["p0=af_xdp:s0", "p1=af_xdp:s1", "p2=af_xdp:s2"], config);
        let mut case = Self { net, switch, load: None, chunks: 0 };
        case.chunks = case.until("idle", |shown| (0..WIRES).all(|n| shown.up(n))).chunks();
        Some(case)
    }

    /// Starts the load: every station sends to both others.
    fn load(&mut self) {
        let stations = (0..WIRES).map(|n| Station::sender(&self.net, "far", &format!("f{n}")));
        self.load = Some(Load::start(stations.collect(), |index, burst, _| {
            let address = |n: usize| mac(u8::try_from(n % WIRES).unwrap());
            let to = |n: usize| address(index + 1 + n % 2);
            burst.clear();
            burst.extend((0..BURST).map(|n| frame(to(n), address(index), 60, 0)));
        }));
        let before = self.shown();
        self.until("frames from all stations", |shown| {
            (0..WIRES).all(|n| shown.port(n, "rx_frames") > before.port(n, "rx_frames") + 1_000)
        });
    }

    fn shown(&self) -> Shown {
        let shown = Shown(self.switch.show("all"));
        assert_eq!(shown.0["conservation"]["imbalance"], 0, "{}", shown.0["conservation"]);
        shown
    }

    /// Waits for what `holds` says.
    fn until(&self, what: &str, holds: impl Fn(&Shown) -> bool) -> Shown {
        let found = try_until(LONG, || Some(self.shown()).filter(|shown| holds(shown)));
        found.unwrap_or_else(|| panic!("not within {LONG:?}: {what}: {}", self.shown().0))
    }

    /// Stations 0 and 1 reach each other, and nothing of theirs is thrown away on the way out.
    fn others_work(&self) {
        let before = self.shown();
        let more = |shown: &Shown, key: &str| {
            [0, 1].iter().all(|&n| shown.port(n, key) > before.port(n, key) + 1_000)
        };
        let after = self.until("frames of others", |shown| {
            more(shown, "rx_frames") && more(shown, "tx_frames")
        });
        assert!(after.up(0) && after.up(1), "{}", after.0["ports"]);
    }

    /// Station 2 is served, too.
    fn all_work(&self) {
        self.others_work();
        let before = self.shown();
        let enough =
            |key: &str, shown: &Shown| shown.port(HIT, key) > before.port(HIT, key) + 1_000;
        self.until("frames at the port again", |shown| {
            enough("rx_frames", shown) && enough("tx_frames", shown)
        });
    }

    /// No load, and every chunk is where it was before.
    fn end(mut self) {
        drop(self.load.take());
        let shown = self.until("chunks as before", |shown| {
            shown.0["conservation"]["queued"] == 0 && shown.chunks() == self.chunks
        });
        println!("{} {}", shown.0["drops"]["total"], shown.0["workers"]);
        let Self { switch, net, .. } = self;
        let _ledger = switch.stop();
        drop(net);
    }
}

#[test]
fn an_interface_that_is_pulled_is_taken_again_when_it_is_back() {
    let Some(mut case) = Case::new("an_interface_that_is_pulled", "") else { return };
    case.load();
    case.all_work();
    for round in 0..3 {
        let errors = case.shown().errors();
        if round < 2 {
            case.net.ip("sw", "link del s2");
        } else {
            case.net.ip("sw", &format!("link set s2 netns {}", case.net.name("far")));
        }
        let down = case.until("the port is down", |shown| !shown.up(HIT));
        assert!(down.errors() > errors, "round {round}: it is not reported");
        case.others_work();
        if round < 2 {
            case.net.add_wire(HIT);
        } else {
            case.net.ip("far", &format!("link set s2 netns {}", case.net.name("sw")));
            case.net.ip("sw", "link set s2 up");
        }
        case.until("the port is up", |shown| shown.up(HIT));
        // The station's socket is as dead as its interface was.
        drop(case.load.take());
        case.load();
        case.all_work();
    }
    case.end();
}

#[test]
fn an_interface_that_is_taken_down_goes_on_when_it_is_up() {
    let Some(mut case) = Case::new("an_interface_that_is_taken_down", "") else { return };
    case.load();
    for (host, device) in [("sw", "s2"), ("far", "f2"), ("sw", "s2")] {
        case.net.ip(host, &format!("link set {device} down"));
        let down = case.until("the port is down", |shown| !shown.up(HIT));
        case.others_work();
        pause(Duration::from_millis(300)); // in which it may be tried a few times
        let errors = case.shown().errors() - down.errors();
        assert!(
            errors < 10,
            "{device}: {errors} errors while it is down: it is tried all the time"
        );
        case.net.ip(host, &format!("link set {device} up"));
        case.until("the port is up", |shown| shown.up(HIT));
        case.all_work();
    }
    case.end();
}

#[test]
fn a_program_that_is_removed_comes_back_under_load() {
    let Some(mut case) = Case::new("a_program_that_is_removed_comes_back", "") else { return };
    case.load();
    let off = case.net.run("sw", "ip", "link set dev s2 xdp off");
    assert!(!off.status.success(), "what is attached as a link stays");
    case.all_work();
    for _ in 0..3 {
        let errors = case.shown().errors();
        let detached = case.net.within("sw", || links::detach("s2"));
        assert!(detached >= 1, "there was one");
        case.until("it is reported", |shown| shown.errors() > errors);
        case.until("the port is up", |shown| shown.up(HIT));
        case.all_work();
    }
    case.end();
}

/// A worker that puts its program back needs what a reload changes, and a reload waits for workers.
#[test]
fn reloads_go_on_while_programs_are_removed_and_come_back() {
    let Some(mut case) = Case::new("reloads_go_on", "") else { return };
    case.load();
    let done = AtomicBool::new(false);
    let Case { net, switch, .. } = &case;
    let detached = std::thread::scope(|scope| {
        let remover = scope.spawn(|| {
            net.within("sw", || {
                let mut detached = 0;
                while !done.load(Ordering::Relaxed) {
                    detached += links::detach("s2");
                    pause(Duration::from_millis(15)); // the switch has time to put it back
                }
                detached
            })
        });
        let reloaded = (0..80).all(|round| {
            switch.configure(&format!("[buffer]\ndt_alpha = {}\n", 1 + round % 2));
            switch.ask("reload").is_some()
        });
        done.store(true, Ordering::Relaxed);
        assert!(reloaded, "a reload did not come to an end");
        remover.join().unwrap()
    });
    assert!(detached > 20, "{detached} times detached: too rarely to meet a reload");
    case.until("the port is up", |shown| shown.up(HIT));
    case.all_work();
    case.end();
}

/// Attaches another program to `device` of the thread's namespace, where ours was; ours is back within
/// 10 ms, so it takes some tries.
fn usurp(device: &str) -> Builtin {
    let index = links::index(device);
    let target = Target { index, queues: 1, shows_tags: false, is_veth: false };
    for _ in 0..100 {
        links::detach(device);
        let mut other = Builtin::new();
        if other.attach(target, Attach::Native).is_ok() {
            return other;
        }
    }
    panic!("the switch was faster each time");
}

#[test]
fn a_program_of_somebody_else_is_reported_until_it_is_gone() {
    let Some(mut case) = Case::new("a_program_of_somebody_else_is_reported", "") else { return };
    case.load();
    let other = case.net.within("sw", || usurp("s2"));
    let down = case.until("the port is down", |shown| !shown.up(HIT));
    case.others_work();
    pause(Duration::from_millis(300)); // in which it is tried a few times
    let tries = case.shown().errors() - down.errors();
    assert!((1..10).contains(&tries), "{tries} tries in 300 ms and a little more");
    let last_error =
        |shown: &Shown| shown.0["ports"][HIT]["last_error"].as_str().map(str::to_owned);
    let why = last_error(&case.shown()).unwrap();
    assert!(why.starts_with("s2: ") && why.contains("busy"), "{why}");
    drop(other);
    case.until("the port is up", |shown| shown.up(HIT));
    case.all_work();
    assert_eq!(last_error(&case.shown()), None);
    case.end();
}

/// An output that is too slow for what it gets takes what the buffer has; the others still work, and
/// it drains when it is fast again.
#[test]
fn a_buffer_that_is_full_costs_frames_and_nothing_else() {
    let config = |gbps: &str| {
        format!(
            "[buffer]\nbuffer_size_mb = 1\ndt_alpha = 8\n[pfc]\npfc_enabled = false\n\
             [[port]]\nname = \"p0\"\n[[port]]\nname = \"p1\"\n[[port]]\nname = \"p2\"\nmax_rate_gbps = {gbps}\n"
        )
    };
    let Some(mut case) = Case::new("a_buffer_that_is_full", &config("0.001")) else { return };
    case.load();
    let full = case
        .until("frames are dropped", |shown| shown.0["drops"]["total"]["dt"].as_u64() > Some(0));
    println!("{} {}", full.0["buffer"], full.0["drops"]);
    case.others_work();
    case.switch.configure(&config("1"));
    assert!(case.switch.ask("reload").is_some());
    case.all_work();
    case.end();
}
