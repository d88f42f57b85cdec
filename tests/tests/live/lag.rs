//! A static LAG of two wires on a running switch, one of which goes down and comes back under load: no
//! flow is out of order, nothing is lost but what the wire held, and flows come back to it.
//!
//! Station 0 sends numbered frames of many flows to station 1, which is behind both wires of
//! the LAG; all that comes is read and checked.
//!
//! Units: frames.
//! Source: IEEE 802.1AX-2020 6.1.1.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::time::Duration;

use serde_json::Value;
use weft_base::wait::{LONG, pause, until};
use weft_tests::netns::{Net, Switch};
use weft_tests::stations::{BURST, Load, Station, frame, index_of, mac, parse, renumber};

const FLOWS: usize = 64;
/// The wire of the sender; those of the LAG.
const FROM: usize = 0;
const LAG: [usize; 2] = [1, 2];

/// How long flows must stay where they are, in milliseconds.
const STAYS_MS: u32 = 100;

/// The rings let a busy machine keep the worker waiting for 100 ms.
const CONFIG: &str = "[port_defaults]\nrx_ring_frames = 8192\n[[lag]]\nname = \"both\"\nports = [\"p1\", \"p2\"]\n\
    [[static_entry]]\naddr = \"02:00:00:00:10:01\"\nport = \"both\"\n";

/// All that came in over the LAG, flow by flow.
struct Heard {
    /// By flow: the number that must come next, or a later one.
    next: [u64; FLOWS],
    /// Frames by flow.
    came: [u64; FLOWS],
    /// By flow: the wire of the last frame.
    wire: [usize; FLOWS],
    /// Times that a flow changed its wire.
    moves: u64,
    disorder: Vec<(usize, u64, u64)>,
}

impl Heard {
    const fn new() -> Self {
        let (next, came, wire) = ([0; FLOWS], [0; FLOWS], [0; FLOWS]);
        Self { next, came, wire, moves: 0, disorder: Vec::new() }
    }

    fn take(&mut self, wire: usize, bytes: &[u8]) {
        let Some((_, from, number)) = parse(bytes) else { return };
        let flow = usize::from(from[5]);
        if number < self.next[flow] {
            self.disorder.push((flow, self.next[flow], number));
        }
        self.next[flow] = number + 1;
        self.moves += u64::from(self.came[flow] > 0 && self.wire[flow] != wire);
        self.came[flow] += 1;
        self.wire[flow] = wire;
    }

    /// Flows whose last frame came by `wire`.
    fn on(&self, wire: usize) -> usize {
        (0..FLOWS).filter(|&flow| self.came[flow] > 0 && self.wire[flow] == wire).count()
    }
}

/// A switch with a LAG, its stations, and all that they heard.
struct Case {
    net: Net,
    switch: Switch,
    ear: Station,
    /// Numbers of the interfaces of the LAG.
    indices: [i32; 2],
    heard: Heard,
}

impl Case {
    fn new(test: &str, kind: &str) -> Option<Self> {
        let mut net = Net::new(test)?;
        net.add_wires(1 + LAG.len());
        let ports = [0, 1, 2].map(|n| format!("p{n}={kind}:s{n}"));
        let switch = Switch::start(&net, &[&ports[0], &ports[1], &ports[2]], CONFIG);
        let ear = Station::hearer(&net, "far");
        let index = |n: usize| net.within("far", || index_of(&format!("f{n}")).unwrap());
        let indices = LAG.map(index);
        let mut case = Self { net, switch, ear, indices, heard: Heard::new() };
        case.links(true);
        Some(case)
    }

    /// Waits until all links are up, or the first of the LAG is down; reads what comes meanwhile.
    fn links(&mut self, up: bool) {
        until(LONG, if up { "links are up" } else { "a link is down" }, || {
            self.take();
            let ports = self.switch.show("ports");
            ((0..3).all(|n| ports[n]["link_up"] == true) == up).then_some(())
        });
    }

    /// Reads what has come.
    fn take(&mut self) -> &Heard {
        let Self { ear, indices, heard, .. } = self;
        let mut take = |index: i32, bytes: &[u8]| {
            if let Some(at) = indices.iter().position(|&i| i == index) {
                heard.take(LAG[at], bytes);
            }
        };
        while ear.receive(&mut take) > 0 {}
        heard
    }

    /// Reads until what was heard is so, and then for a while in which it must stay so.
    fn hear(&mut self, what: &str, is_so: impl Fn(&Heard) -> bool) {
        until(LONG, what, || is_so(self.take()).then_some(()));
        for _ in 0..STAYS_MS {
            pause(Duration::from_millis(1));
            self.take();
        }
        assert!(is_so(&self.heard), "it does not stay so: {what}");
    }

    fn shown(&self) -> Value {
        self.switch.show("all")
    }
}

/// Numbered frames of all flows in turn, at a pace that every wire and reader can keep.
fn load(net: &Net) -> Load {
    let station = Station::sender(net, "far", &format!("f{FROM}"));
    let mut numbers = [0_u64; FLOWS];
    let mut turn = 0;
    Load::start(vec![station], move |_, burst, taken| {
        // What was not taken is sent again: the numbers have no holes.
        burst.drain(..taken);
        while burst.len() < BURST {
            let mut from = mac(0xFF);
            (from[3], from[5]) = (0x77, u8::try_from(turn).unwrap());
            let mut made = frame(mac(1), from, 60, 0);
            renumber(&mut made, numbers[turn]);
            numbers[turn] += 1;
            turn = (turn + 1) % FLOWS;
            burst.push(made);
        }
        pause(Duration::from_micros(300));
    })
}

/// Frames that were lost: those that were to leave by p1 while it was down; those that came too fast at the input, where
/// others kept the worker from its processor, which is no fault of the LAG's.
fn lost(drops: &Value) -> (u64, u64) {
    let count = |at: &str, reason: &str| drops["ports"][at][reason].as_u64().unwrap_or(0);
    let held = count("p1", "port_down") + count("p1", "tx_error");
    let late = count("p0", "xsk_ring") + drops["kernel_rx"]["p0"].as_u64().unwrap_or(0);
    (held, late)
}

fn flows_keep_their_order(test: &str, kind: &str) {
    let Some(mut case) = Case::new(test, kind) else { return };
    let load = load(&case.net);
    case.hear("all flows", |heard| heard.came.iter().all(|&frames| frames >= 10));
    let spread = LAG.map(|wire| case.heard.on(wire));
    assert!(spread.iter().all(|&flows| flows >= FLOWS / 4), "flows on each wire: {spread:?}");
    assert_eq!(case.heard.moves, 0, "a flow stays where it is");
    // The far end, then the switch's own: no carrier, and an interface that is down.
    for (host, device) in [("far", "f1"), ("sw", "s1"), ("sw", "s1")] {
        let moves = case.heard.moves;
        case.net.ip(host, &format!("link set {device} down"));
        case.links(false);
        case.hear("all are on the other wire", |heard| heard.on(1) == 0);
        case.net.ip(host, &format!("link set {device} up"));
        case.links(true);
        case.hear("they come back", |heard| LAG.map(|wire| heard.on(wire)) == spread);
        assert_eq!(case.heard.moves - moves, 2 * spread[0] as u64, "{device}: there and back");
    }
    let sent = load.stop()[0];
    let (shown, came) = until(LONG, "all frames are in the books", || {
        let shown = case.shown();
        let came: u64 = case.take().came.iter().sum();
        let (held, late) = lost(&shown["drops"]);
        let all = shown["conservation"]["queued"] == 0 && sent <= came + held + late;
        all.then_some((shown, came))
    });
    let (drops, books) = (&shown["drops"], &shown["conservation"]);
    let unread = case.ear.lost();
    println!("{kind}: sent {sent}, came {came}, {} moves, {drops}", case.heard.moves);
    assert_eq!(unread, 0, "the stations have heard all");
    assert_eq!(case.heard.disorder, [], "flow, number wanted, number had");
    assert_eq!((&books["imbalance"], &books["queued"]), (&Value::from(0), &Value::from(0)));
    let all: u64 = drops["total"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    let (held, late) = lost(drops);
    let ring = late - drops["kernel_rx"]["p0"].as_u64().unwrap_or(0);
    assert_eq!(all, held + ring, "nothing else is lost but what was to leave by p1: {drops}");
    assert_eq!(sent, came + held + late, "{drops}");
    drop(case);
}

#[test]
fn flows_of_a_lag_keep_their_order_when_a_link_comes_and_goes() {
    flows_keep_their_order("flows_of_a_lag_keep_their_order_when_a_link_comes_and_goes", "af_xdp");
}
