//! What goes and comes under load: rights, bindings, links, endpoints, the fabric manager; as processes on veth pairs.
//!
//! A fabric with loads of several requesters → one fault, and its end → who was hit, who was not, and that the
//! state after equals the state before.
//!
//! Units: bytes, milliseconds.
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; docs/endpoint.md "Transfers".

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod attack;
mod events;

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use weft_base::wait::{LONG, try_until};
use weft_tests::fabric_up::Up;

/// Two switches by two links and a third one by one: two hosts share memory of two GFDs, one has memory behind the
/// third switch, and one a device at its own switch and one at the second.
const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }, { name = "sw2" }]
link = [{ ends = ["sw0", "sw1"], count = 2 }, { ends = ["sw1", "sw2"] }]
host = [
    { name = "h0", at = "sw0" }, { name = "h1", at = "sw1" },
    { name = "h2", at = "sw0", bind = ["d0", "d1"] }, { name = "h3", at = "sw1" },
]
device = [{ name = "d0", at = "sw0" }, { name = "d1", at = "sw1" }]
gfd = [{ name = "g", at = ["sw0", "sw1"], count = 2 }, { name = "far", at = "sw2" }]

[[memory]]
name = "pool"
hosts = ["h0", "h1"]
gfds = ["g"]
len = 0x10000000
hpa = 0x10000000000

[[memory]]
name = "off"
hosts = ["h3"]
gfds = ["far"]
len = 0x10000000
hpa = 0x10000000000
"#;

/// What each requester does all the time; `d1` is the BAR of the second device.
const LOADS: [(&str, &str); 5] = [
    ("h0", "0x10000000000 16KiB --seed=1"),
    ("h1", "0x10000100000 16KiB --seed=2"),
    ("h2", "BAR 8KiB --seed=3"),
    ("h3", "0x10000000000 16KiB --seed=4"),
    ("d0", "0x200000 8KiB --seed=5 --via plain"),
];
const SWITCHES: [&str; 3] = ["sw0", "sw1", "sw2"];
/// Longest time for an answer to a request, so that what is lost is known soon.
const ANSWER_MS: &str = "4000";

/// One fabric at a time: each is a dozen processes.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Loaded {
    up: Up,
    before: Value,
    bar: String,
}

impl Loaded {
    /// The fabric, with its state, and all loads running.
    fn start(test: &str) -> Option<Self> {
        let up = Up::start_text(test, TOPOLOGY, &["--answer-ms", ANSWER_MS])?;
        let before = state(&up);
        let mut loaded = Self { up, before, bar: String::new() };
        loaded.bar = loaded.bar();
        for (name, _) in LOADS {
            loaded.load(name);
        }
        for (name, _) in LOADS {
            loaded.goes_on(name);
        }
        Some(loaded)
    }

    /// Address of the BAR of the device at the other switch, as its host has set it.
    fn bar(&self) -> String {
        let functions = self.up.functions("h2");
        let of = |(bdf, id): &(String, String)| (id == "1e98:0d01").then(|| bdf.clone());
        let bdf = functions.iter().find_map(of).unwrap();
        let word = |reg: u32| -> u64 {
            let read = self.up.well("h2", &format!("config read {bdf} {reg}"));
            read.pointer("/register/value").and_then(Value::as_u64).unwrap()
        };
        ((word(0x14) << 32) | (word(0x10) & !0xF)).to_string()
    }

    /// Begins the load of a part.
    fn load(&self, name: &str) {
        let what = LOADS.iter().find(|(one, _)| *one == name).unwrap().1;
        let what = what.replace("BAR", &self.bar);
        self.up.well(name, &format!("load start {what} --pause-ms 2 --timeout-ms 60000"));
    }

    /// How the load of a part goes; each of its requests has one outcome.
    fn counts(&self, name: &str) -> Value {
        let load = self.up.well(name, "load status")["load"].take();
        let failures: u64 = load["failures"].as_object().unwrap().values().map(number).sum();
        let ends = ["answered", "wrong", "posted", "unanswered", "under_way"]
            .map(|key| number(&load[key]));
        assert_eq!(number(&load["requests"]), failures + ends.iter().sum::<u64>(), "{load}");
        load
    }

    /// Waits until a load has done three rounds more.
    fn goes_on(&self, name: &str) {
        let had = number(&self.counts(name)["done"]);
        self.up.until(&format!("the load of {name} goes on"), |_| {
            (number(&self.counts(name)["done"]) >= had + 3).then_some(())
        });
    }

    /// Waits until a load has done three rounds more without a loss: what was on a link that went may be lost still, or refused.
    fn goes_on_whole(&self, name: &str) {
        self.up.until(&format!("the load of {name} goes on without a loss"), |_| {
            let then = self.counts(name);
            self.goes_on(name);
            (self.counts(name)["failures"] == then["failures"]).then_some(())
        });
    }

    /// Loads of these go on, and not one request of them was lost, refused or wrong.
    fn whole(&self, names: &[&str]) {
        for name in names {
            self.goes_on(name);
            let load = self.counts(name);
            let bad = ["failed", "wrong", "unanswered", "mismatched"].map(|key| number(&load[key]));
            assert_eq!((bad, &load["failures"]), ([0; 4], &json!({})), "{name}: {load}");
        }
    }

    /// Ends the load of a part, and says how it went.
    fn ended(&self, name: &str) -> Value {
        self.up.well(name, "load stop");
        self.up.until(&format!("the load of {name} ends"), |_| {
            let load = self.counts(name);
            (load["running"] == json!(false)).then_some(load)
        })
    }

    /// Number of the manager's last event.
    fn events(&self) -> u64 {
        number(&self.up.fm("status")["events"])
    }

    /// Waits until the manager has noted an event after that of a number that has `part` in it.
    fn noted(&self, after: u64, part: &str) {
        let mut events = Value::Null;
        let noted = try_until(2 * LONG, || {
            events = self.up.fm(&format!("events --after {after}"));
            let list = events.as_array().unwrap();
            let is_it = |event: &Value| event["what"].as_str().unwrap().contains(part);
            list.iter().any(is_it).then_some(())
        });
        assert!(noted.is_some(), "{part:?} is not noted: {events} {}", self.up.fm("status"));
    }

    /// The state is what it was before, as soon as all have settled.
    fn as_before(&self) {
        let mut now = Value::Null;
        let same = try_until(2 * LONG, || {
            now = state(&self.up);
            (now == self.before).then_some(())
        });
        if same.is_some() {
            assert_eq!(now.to_string(), self.before.to_string(), "byte by byte");
            return;
        }
        let mut all = Vec::new();
        differences("", &self.before, &now, &mut all);
        panic!("the state is another one:\n{}\n{}", all.join("\n"), self.up.logs());
    }

    /// Ends all loads and the fabric; every frame of every switch is accounted for.
    fn stop(self) {
        for (name, _) in LOADS {
            let load = self.ended(name);
            assert_eq!(
                (number(&load["under_way"]), number(&load["wrong"])),
                (0, 0),
                "{name}: {load}"
            );
        }
        for switch in SWITCHES {
            let books = self.up.show(switch, "conservation");
            let [rx, tx, dropped, consumed, queued, copies] =
                ["rx", "tx", "dropped", "consumed", "queued", "copies"]
                    .map(|key| number(&books[key]));
            assert_eq!(rx + copies, tx + dropped + consumed + queued, "{switch}: {books}");
            assert_eq!(queued, 0, "{switch}: {books}");
            assert_eq!(books["holds"], json!(true), "{switch}: {books}");
            // What ports say of themselves is what the books say.
            let ports = self.up.show(switch, "ports");
            let sum =
                |key: &str| ports.as_array().unwrap().iter().map(|p| number(&p[key])).sum::<u64>();
            let seen = (sum("rx_frames"), sum("tx_frames"));
            assert!(seen.0 >= rx && seen.1 >= tx, "{switch}: {seen:?} {books}");
        }
        self.up.stop();
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

/// All that the manager and the switches hold, without what counts and what only tells of the past.
fn state(up: &Up) -> Value {
    let mut all = json!({});
    for switch in SWITCHES {
        let mut fabric = up.show(switch, "fabric");
        let object = fabric.as_object_mut().unwrap();
        for counters in ["agent", "cci", "refused"] {
            object.remove(counters).unwrap();
        }
        all[switch] = fabric;
    }
    for what in ["topology", "memory", "bind", "routes", "pid", "status"] {
        all[what] = up.fm(what);
    }
    for host in ["h0", "h1", "h3"] {
        all["access"][host] = up.fm(&format!("access {host}"));
    }
    for key in ["calls", "events", "step"] {
        all["status"].as_object_mut().unwrap().remove(key).unwrap();
    }
    for host in ["h0", "h1", "h2", "h3"] {
        all["trees"][host] = json!(up.functions(host));
    }
    all
}

/// Places where two values differ.
fn differences(at: &str, a: &Value, b: &Value, all: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<&String> =
                one.keys().chain(other.keys()).collect();
            for key in keys {
                differences(&format!("{at}/{key}"), &a[key.as_str()], &b[key.as_str()], all);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (place, (a, b)) in one.iter().zip(other).enumerate() {
                differences(&format!("{at}/{place}"), a, b, all);
            }
        }
        _ if a == b => {}
        _ => all.push(format!("{at}: {a} became {b}")),
    }
}

/// The manager is killed under load and started again: nobody notices. Then a right is taken and given back: the
/// host that had it is refused from then on, and nobody else.
#[test]
fn the_manager_is_killed_and_a_host_is_revoked() {
    let _alone = alone();
    let Some(mut fabric) = Loaded::start("the_manager_is_killed_and_a_host_is_revoked") else {
        return;
    };
    let everybody = LOADS.map(|(name, _)| name);
    fabric.up.kill("fm");
    fabric.whole(&everybody);
    assert_ne!(fabric.up.ask_fm("status").0, 0, "nobody answers");
    fabric.up.run("fm");
    fabric
        .up
        .until("the manager is up again", |up| (up.ask_fm("status --wait").0 == 0).then_some(()));
    fabric.whole(&everybody);
    fabric.as_before();
    // Changes can be made again.
    fabric.up.fm("revoke pool h0");
    let then = fabric.counts("h0");
    let now = fabric.up.until("h0 is refused", |_| {
        let now = fabric.counts("h0");
        (number(&now["failed"]) >= number(&then["failed"]) + 3).then_some(now)
    });
    // What was on its way when the manager said that it is done may have been answered; all else is refused.
    let late = number(&now["answered"]) - number(&then["answered"]);
    assert!(late <= number(&then["under_way"]), "{then} {now}");
    assert_eq!(number(&now["wrong"]) + number(&now["unanswered"]), 0, "{now}");
    let kinds: Vec<&String> = now["failures"].as_object().unwrap().keys().collect();
    assert_eq!(kinds, ["UR"], "{now}");
    fabric.whole(&["h1", "h2", "h3", "d0"]);
    let (code, refused) = fabric.up.ask("h0", "read 0x10000000000 64");
    assert_eq!((code, &refused["transfer"]["failures"]), (1, &json!({ "UR": 1 })), "{refused}");
    let memory = fabric.up.fm("memory");
    assert_eq!(
        memory[0]["hosts"].as_array().unwrap().len() + memory[1]["hosts"].as_array().unwrap().len(),
        2
    );
    fabric.up.fm("grant pool h0");
    fabric.goes_on("h0");
    fabric.as_before();
    fabric.stop();
}

/// A device is killed, then a GFD; each is told of, disturbs its own users only, and comes back as it was.
#[test]
fn endpoints_are_killed_and_come_back() {
    let _alone = alone();
    let Some(mut fabric) = Loaded::start("endpoints_are_killed_and_come_back") else { return };
    let tree = fabric.up.functions("h2");
    let events = fabric.events();
    fabric.up.kill("d1");
    fabric.noted(events, "has lost its component");
    fabric.up.until("h2 sees it go", |up| {
        (!up.functions("h2").iter().any(|(_, id)| id == "1e98:0d01")).then_some(())
    });
    fabric.whole(&["h0", "h1", "h3", "d0"]);
    let hit = fabric.ended("h2");
    assert!(number(&hit["failed"]) > 0 && number(&hit["wrong"]) == 0, "{hit}");
    fabric.up.run("d1");
    fabric.up.until("h2 sees it again", |up| (up.functions("h2") == tree).then_some(()));
    fabric.load("h2");
    fabric.whole(&["h0", "h1", "h2", "h3", "d0"]);
    fabric.as_before();
    // One that was started again takes its links down with it, too.
    let events = fabric.events();
    fabric.up.kill("d1");
    fabric.noted(events, "has lost its component");
    fabric.ended("h2");
    fabric.up.run("d1");
    fabric.up.until("h2 sees it once more", |up| (up.functions("h2") == tree).then_some(()));
    fabric.load("h2");
    fabric.whole(&["h0", "h1", "h2", "h3", "d0"]);
    fabric.as_before();

    let events = fabric.events();
    fabric.up.kill("g1");
    fabric.noted(events, "has lost its component");
    fabric.up.until("both users are refused or not answered", |_| {
        let hit = |name| number(&fabric.counts(name)["failed"]) > 0;
        (hit("h0") && hit("h1")).then_some(())
    });
    fabric.whole(&["h2", "h3", "d0"]);
    let hit = [fabric.ended("h0"), fabric.ended("h1")];
    assert!(hit.iter().all(|load| number(&load["wrong"]) == 0), "{hit:?}");
    fabric.up.run("g1");
    fabric.noted(events, "its part is set up again, with what it has kept");
    fabric.load("h0");
    fabric.load("h1");
    fabric.whole(&["h0", "h1", "h2", "h3", "d0"]);
    fabric.as_before();
    fabric.stop();
}

/// A switch at the edge, a host, and a switch at the edge of two hosts are killed and started again: who does not need them
/// loses nothing, and once the hosts' software has mapped its memory again, all is as it was.
#[test]
fn edge_switches_and_a_host_are_killed_and_come_back() {
    let _alone = alone();
    let name = "edge_switches_and_a_host_are_killed_and_come_back";
    let Some(mut fabric) = Loaded::start(name) else { return };
    let tree = fabric.up.functions("h2");
    #[rustfmt::skip] // columns: who, what is told, who loses nothing, whose load is started again
    let cases: [(&str, &str, &[&str], &[&str]); 3] = [
        ("sw2", "sw2 does not answer",       &["h0", "h1", "h2", "d0"], &[]),
        ("h3",  "has lost its component",   &["h0", "h1", "h2", "d0"], &["h3"]),
        ("sw1", "sw1 does not answer",       &["d0"],                   &["h0", "h1", "h2", "h3"]),
    ];
    for (part, told, others, again) in cases {
        let events = fabric.events();
        fabric.up.kill(part);
        fabric.noted(events, told);
        fabric.whole(others);
        for load in again.iter().filter(|load| **load != part) {
            let hit = fabric.ended(load);
            assert_eq!(number(&hit["wrong"]), 0, "{part}: {load}: {hit}");
        }
        fabric.up.run(part);
        fabric.up.until("all of h2 is there", |up| (up.functions("h2") == tree).then_some(()));
        fabric.up.until(&format!("{part}: memory is found and mapped"), |up| {
            // A link that goes once more after an enumeration takes away what it has found.
            let mut hosts = again.iter().filter(|host| **host != "h2");
            let all_found = hosts.all(|host| up.ask(host, "enumerate").0 == 0);
            all_found.then(|| up.map().inspect_err(|why| eprintln!("{part}: {why}")).ok())?
        });
        for load in again {
            fabric.load(load);
        }
        fabric.goes_on("h3");
        fabric.whole(others);
        fabric.as_before();
        if part == "sw2" {
            fabric.ended("h3");
            fabric.load("h3");
        }
    }
    fabric.stop();
}

/// One of two links goes: what it carried goes on by the other one. A link that is the only one goes: what is behind it
/// is not reached. Both come back.
#[test]
fn links_are_pulled_and_come_back() {
    let _alone = alone();
    let Some(fabric) = Loaded::start("links_are_pulled_and_come_back") else { return };
    let two = fabric.up.links("sw0", "sw1");
    let [sole] = &fabric.up.links("sw1", "sw2")[..] else { panic!("one link") };
    assert_eq!(two.len(), 2);
    for device in &two {
        let events = fabric.events();
        fabric.up.link(device, false);
        fabric.noted(events, "is down");
        for name in ["h0", "h1", "h3", "d0"] {
            fabric.goes_on_whole(name);
        }
        fabric.up.link(device, true);
        fabric.noted(events, "is up again");
        for name in ["h0", "h1", "h2", "h3", "d0"] {
            fabric.goes_on_whole(name);
        }
        fabric.as_before();
    }
    // Who does not need the link lost nothing; the others lost what was on it at that moment, and were told.
    fabric.whole(&["h3", "d0"]);
    let lost =
        |load: &Value| load["failures"].as_object().unwrap().values().map(number).sum::<u64>();
    let few = |load: &Value| lost(load) + 8 < number(&load["answered"]);
    for name in ["h0", "h1", "h2"] {
        let what = format!("what {name} lost is the lesser part");
        fabric.up.until(&what, |_| few(&fabric.counts(name)).then_some(()));
        let hit = fabric.ended(name);
        eprintln!("{name}: {hit}");
        // Nobody answers a posted write. One that went with the link is known by the read behind it, if routes are back in
        // between: that of h2 alone, beside more that were refused. UIO has an answer for each write.
        let unseen = if name == "h2" { lost(&hit) } else { 0 };
        assert!(number(&hit["wrong"]) <= unseen && few(&hit), "{name}: {hit}");
        fabric.load(name);
    }

    fabric.up.link(sole, false);
    fabric.up.until("h3 is refused or not answered", |_| {
        (number(&fabric.counts("h3")["failed"]) > 2).then_some(())
    });
    fabric.whole(&["h0", "h1", "h2", "d0"]);
    let cut = fabric.counts("h3");
    assert_eq!(number(&cut["wrong"]), 0, "{cut}");
    eprintln!("h3: {cut}");
    fabric.up.link(sole, true);
    fabric.goes_on_whole("h3");
    fabric.as_before();
    let (then, ()) = (fabric.counts("h3"), fabric.goes_on("h3"));
    assert_eq!(fabric.counts("h3")["failures"], then["failures"], "no more");
    fabric.whole(&["h0", "h1", "h2", "d0"]);
    fabric.stop();
}

/// A virtual link is unbound under load and bound again.
#[test]
fn a_device_is_unbound_and_bound_again() {
    let _alone = alone();
    let Some(fabric) = Loaded::start("a_device_is_unbound_and_bound_again") else { return };
    let tree = fabric.up.functions("h2");
    let bindings = fabric.up.fm("bind");
    let link = bindings.as_array().unwrap().iter().find(|row| row["kind"] == json!("link"));
    let [bridge, to] = ["bridge", "to"].map(|key| link.unwrap()[key].as_str().unwrap());
    fabric.up.fm(&format!("unbind {bridge}"));
    let then = fabric.counts("h2");
    fabric.up.until("h2 sees it go", |up| {
        (!up.functions("h2").iter().any(|(_, id)| id == "1e98:0d01")).then_some(())
    });
    let now = fabric.up.until("h2 is refused", |_| {
        let now = fabric.counts("h2");
        (number(&now["failed"]) >= number(&then["failed"]) + 3).then_some(now)
    });
    let late = number(&now["answered"]) - number(&then["answered"]);
    assert!(late <= number(&then["under_way"]), "{then} {now}");
    fabric.whole(&["h0", "h1", "h3", "d0"]);
    let hit = fabric.ended("h2");
    eprintln!("h2: {hit}");
    fabric.up.fm(&format!("bind {bridge} {to}"));
    fabric.up.until("h2 sees it again", |up| (up.functions("h2") == tree).then_some(()));
    fabric.load("h2");
    fabric.whole(&["h0", "h1", "h2", "h3", "d0"]);
    fabric.as_before();
    fabric.stop();
}
