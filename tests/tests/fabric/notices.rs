//! What the manager of a fabric in its own process is notified of: it looks once an hour, so that whatever it finds out it has been
//! notified of.
//!
//! A thread moves the fabric on; a fault at the entry switch or further out, or a refused access → an event of the manager, and
//! new tables.
//!
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; docs/spec/wire-formats.md §4.2 "Events"; docs/fm.md "Monitoring the fabric".

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_base::wait::{LONG, until};
use weft_fm::service::run::Service;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, Via};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::SharedFabric;
use weft_tests::fabric_here::{pass, range, up_text};

/// The longest time between two looks without a notification.
const HOUR: Duration = Duration::from_hours(1);
const HPA: u64 = 0x100_0000_0000;
const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }, { name = "sw2" }]
link = [{ ends = ["sw0", "sw1"], count = 2 }, { ends = ["sw1", "sw2"], count = 2 }]
host = [{ name = "h0", at = "sw0" }, { name = "h1", at = "sw2" }]
gfd = [{ name = "g", at = "sw2" }]

[[memory]]
name = "pool"
hosts = ["h0"]
gfds = ["g"]
len = 0x10000000
hpa = 0x10000000000
"#;

/// A fabric that a thread moves on, with its manager.
struct Running {
    shared: SharedFabric,
    service: Service,
    stop: Arc<AtomicBool>,
    mover: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        let (shared, fm, _) = up_text("notices", TOPOLOGY).into_parts();
        let stop = Arc::new(AtomicBool::new(false));
        let (parts, over) = (shared.clone(), stop.clone());
        let mover = std::thread::spawn(move || {
            let mut moved = true;
            while !over.load(Ordering::Relaxed) {
                moved = parts.step(moved);
                if !moved {
                    std::thread::yield_now();
                }
            }
        });
        let service = Service::start(fm, HOUR).unwrap();
        Self { shared, service, stop, mover: Some(mover) }
    }

    fn last(&self) -> u64 {
        self.service.board().events(0).last().map_or(0, |event| event.number)
    }

    /// Waits until the manager has noted an event behind `after` that has `part` in it.
    fn noted(&self, after: u64, part: &str) {
        until(LONG, part, || {
            let events = self.service.board().events(after);
            events.iter().any(|event| event.what.contains(part)).then_some(())
        });
    }

    /// Entries that a switch has in its routing table, as text.
    fn routes(&self, switch: usize) -> String {
        self.shared
            .with(|parts| format!("{:?}", parts.agent(switch).unwrap().switch().tables().routes()))
    }

    /// The wires between two switches.
    fn wires(&self, one: usize, other: usize) -> Vec<usize> {
        self.shared.with(|parts| {
            let ends = [one, other].map(|at| parts.wires_of(Part::Switch(at)));
            let [one, other] = ends;
            one.into_iter().filter(|wire| other.contains(wire)).collect()
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(mover) = self.mover.take() {
            let _ = mover.join();
        }
    }
}

#[test]
fn a_link_that_is_pulled_changes_tables_without_a_poll() {
    let fabric = Running::start();
    // What the first look of all may have seen is over when the last of these has been noted.
    for (one, other) in [(0, 1), (1, 2), (0, 1), (1, 2)] {
        let before = fabric.routes(one);
        for wire in fabric.wires(one, other) {
            let after = fabric.last();
            fabric.shared.with(|parts| parts.set_wire(wire, false));
            fabric.noted(after, "is down");
            until(LONG, "other routes", || (fabric.routes(one) != before).then_some(()));
            let after = fabric.last();
            fabric.shared.with(|parts| parts.set_wire(wire, true));
            fabric.noted(after, "is up again");
            until(LONG, "the routes of before", || (fabric.routes(one) == before).then_some(()));
        }
    }
}

/// It need not ask whether there is something: what it waits on becomes readable, and again when it has taken what there was.
#[test]
fn the_manager_is_woken() {
    let fabric = up_text("notices", TOPOLOGY);
    let bell = fabric.parts().bell();
    let is_rung =
        || File::from(bell.as_fd().try_clone_to_owned().unwrap()).read(&mut [0; 8]).is_ok();
    let take = || core::iter::from_fn(|| fabric.parts().take_notice(0)).count();
    pass(&fabric, 500); // what coming up has led to
    take();
    pass(&fabric, 50);
    assert_eq!((is_rung(), take()), (false, 0));
    let wire = fabric.parts().wires_of(Part::Host(1))[0];
    for is_up in [false, true] {
        fabric.parts().set_wire(wire, is_up);
        pass(&fabric, 200);
        assert!(is_rung() && take() > 0, "{is_up}");
        assert!(!is_rung(), "{is_up}: nothing is left");
    }
}

/// 0107h: who refuses is two switches away from the manager.
#[test]
fn what_a_gfd_refuses_is_told_without_a_poll() {
    let fabric = Running::start();
    let after = fabric.last();
    let beyond = HPA + (1 << 28);
    // Its edge lets it through, as FAST knows segments of 64 GiB; the GFD has no decoder for the address.
    let read = Command::Read(Access { via: Via::Uio, ..range(beyond, 64, 1) });
    let refused = fabric.shared.ask(Part::Host(0), &read);
    let Ok(Answer::Transfer(report)) = refused else { panic!("{refused:?}") };
    assert_eq!(report.failures.get("UR"), Some(&1), "{report:?}");
    // A look follows only from something that may have changed; what devices refuse is told with the next one.
    let [wire] = fabric.shared.with(|parts| parts.wires_of(Part::Host(1)))[..] else {
        panic!("one link")
    };
    let mut is_up = true;
    until(LONG, "the refusal is told", || {
        is_up = !is_up;
        fabric.shared.with(|parts| parts.set_wire(wire, is_up));
        let told = |what: &str| {
            what.starts_with("g (PID ")
                && what.contains("no decoder of the requester has the address")
        };
        fabric.service.board().events(after).iter().any(|event| told(&event.what)).then_some(())
    });
}
