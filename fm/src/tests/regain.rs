//! Memory that is given again: to a host from whom it was taken, and by a GFD that has forgotten it.
//!
//! Tests compare the knowledge of an [`Fm`](crate::service::Fm) and the state of the fake fabric.
//!
//! Source: docs/spec/cxl-fabric.md "Memory", "Dynamic change".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_parsers::fabric::Pid;

use super::discovery::number;
use super::fake::{Kind, Shared};
use super::fake_gfd::GfdState;
use super::service::{manager, shared, started, want};
use crate::model::text::tag;
use crate::service::Request;
use crate::service::status::StartMode;
use crate::state::store::{State, Store};

const POOL: &str = "[[memory]]\nname = \"pool\"\nhosts = [\"h0\"]\nways = 4\nsize = \"2GiB\"\nhpa = \"0x10000000000\"\n";

/// All that the fake components hold.
fn holds(shared: &Shared) -> Vec<String> {
    shared.with(|fake| fake.nodes.iter().map(|node| format!("{node:?}")).collect())
}

#[test]
fn memory_that_was_revoked_is_granted_again() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let (before, held) = (fm.state().unwrap(), holds(&shared));
    let (name, host) = ("pool".to_owned(), "h0".to_owned());
    let twice = fm.request(&Request::Grant { name: name.clone(), host: host.clone() });
    assert!(twice.unwrap_err().message.contains("has this memory already"));
    fm.request(&Request::Revoke { name: name.clone(), host: host.clone() }).unwrap();
    assert_ne!(holds(&shared), held);
    // A discovery reports the difference to the wanted state, and changes nothing.
    fm.request(&Request::Discover).unwrap();
    let errors = fm.board().status().errors;
    assert!(errors.iter().any(|line| line.contains("grant it")), "{errors:?}");
    let other = "no such host".to_owned();
    assert!(fm.request(&Request::Grant { name: name.clone(), host: other }).is_err());
    fm.request(&Request::Grant { name, host }).unwrap();
    assert_eq!((fm.state().unwrap(), holds(&shared)), (before, held));
}

/// Memory without hosts stays known over a restart of the manager, although a new share without hosts is refused.
#[test]
fn memory_that_its_last_host_lost_outlives_a_restart() {
    let shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    let restart = || {
        let store = Some(Store::open(&path).unwrap());
        let mut fm = manager(&shared, want(POOL), StartMode::FmFirst, store);
        fm.start().unwrap();
        fm
    };
    let mut first = restart();
    let (before, held) = (first.state().unwrap(), holds(&shared));
    let (name, host) = ("pool".to_owned(), "h0".to_owned());
    first.request(&Request::Revoke { name: name.clone(), host: host.clone() }).unwrap();
    let revoked = first.state().unwrap();
    assert_eq!(revoked.grants.memory.shares[0].hosts, []);
    drop(first);
    let mut second = restart();
    assert_eq!(second.state().unwrap(), revoked);
    let errors = second.board().status().errors;
    assert!(errors.iter().any(|line| line.contains("grant it")), "{errors:?}");
    second.request(&Request::Grant { name, host }).unwrap();
    assert_eq!((second.state().unwrap(), holds(&shared)), (before, held));
    drop(second);
    assert_eq!(restart().board().status().errors, Vec::<String>::new());
}

/// Index of a GFD in the fake, and that of its switch with the port.
fn places(shared: &Shared, state: &State, gfd: Pid) -> (usize, (usize, u8)) {
    let at = state.inventory.gfds.iter().find(|one| one.pid == gfd).unwrap().at;
    let of = |fake: &mut super::fake::Fake| {
        fake.nodes.iter().position(|node| node.base.pid == gfd).unwrap()
    };
    (shared.with(of), (number(&state.inventory, at.switch), at.port))
}

#[test]
fn a_gfd_that_comes_back_empty_gets_its_part_anew() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let (before, held) = (fm.state().unwrap(), holds(&shared));
    let part = before.grants.memory.find(&tag("pool").unwrap()).unwrap().parts[2];
    let (place, (switch, port)) = places(&shared, &before, part.gfd);
    shared.with(|fake| fake.cut(switch, port));
    fm.watch();
    let events = fm.board().events(0);
    assert!(events.iter().any(|event| event.what.contains("has lost its component")));
    assert_eq!(fm.state().unwrap().grants.memory, before.grants.memory, "what is away stays known");
    shared.with(|fake| {
        let node = &mut fake.nodes[place];
        node.kind = Kind::Gfd(GfdState::new(16));
        (node.base.primary, node.base.pid) = (None, Pid::NONE);
        fake.switch(switch).ports.get_mut(&port).unwrap().up = true;
    });
    fm.watch();
    let status = fm.board().status();
    assert_eq!(status.errors, Vec::<String>::new());
    let events = fm.board().events(0);
    assert!(events.iter().any(|event| event.what.contains("set up again, with what it has kept")));
    assert_eq!(fm.state().unwrap(), before);
    assert_eq!(holds(&shared), held, "extents, decoders and rights are as they were");
    // For memory that is not in the wanted state, the manager only reports the difference.
    let mut other = super::service::started(&shared, "");
    shared.with(|fake| fake.gfd(place).extents.clear());
    other.request(&Request::Discover).unwrap();
    let errors = other.board().status().errors;
    assert!(errors.iter().any(|line| line.contains("not as it was")), "{errors:?}");
}

/// After whichever command of a discovery a GFD's link goes down, that is an event, and an error as long as it lasts.
#[test]
fn a_gfd_that_is_lost_during_a_discovery_is_an_event() {
    let mut commands = 0_u64;
    loop {
        let shared = shared();
        let mut fm = started(&shared, POOL);
        let before = fm.state().unwrap();
        let gfd = before.grants.memory.find(&tag("pool").unwrap()).unwrap().parts[2].gfd;
        let (place, (switch, port)) = places(&shared, &before, gfd);
        let seen = fm.board().events(0).len();
        let (left, is_cut) = (Arc::new(AtomicU64::new(commands)), Arc::new(AtomicBool::new(false)));
        let cut = is_cut.clone();
        shared.with(|fake| {
            fake.after = Some(Box::new(move |nodes, _| {
                let less = |left: u64| left.checked_sub(1);
                if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err()
                    && !cut.swap(true, Ordering::SeqCst)
                {
                    nodes[place].base.gone = true;
                    if let Kind::Switch(state) = &mut nodes[switch].kind {
                        state.ports.get_mut(&port).unwrap().up = false;
                    }
                }
            }));
        });
        let _ = fm.rediscover(); // it may fail: the test is about events
        if !is_cut.load(Ordering::SeqCst) {
            break; // the discovery took fewer commands
        }
        shared.with(|fake| fake.after = None);
        for _ in 0..3 {
            fm.watch();
        }
        let events: Vec<String> =
            fm.board().events(0).into_iter().skip(seen).map(|event| event.what).collect();
        let at = before.inventory.gfds.iter().find(|one| one.pid == gfd).unwrap().at;
        let tells = |what: &String| {
            what.contains(&format!("{at} has lost its component"))
                || what.contains(&format!("GFD {gfd} at {at} does not answer"))
        };
        assert!(events.iter().any(tells), "after {commands} commands: {events:#?}");
        let errors = fm.board().status().errors;
        let is_missed = |line: &String| line.contains(&format!("GFD {gfd} is not there any more"));
        assert!(errors.iter().any(is_missed), "after {commands} commands: {errors:#?}");
        commands += 1;
    }
    assert!(commands > 20, "{commands} commands");
}

/// When setting a GFD's part up again fails half-way, the data that the GFD may have kept is not wiped.
#[test]
fn a_part_that_cannot_be_set_up_again_is_not_wiped() {
    let shared = shared();
    let mut fm = started(&shared, POOL);
    let before = fm.state().unwrap();
    let part = before.grants.memory.find(&tag("pool").unwrap()).unwrap().parts[2];
    let (place, _) = places(&shared, &before, part.gfd);
    let restart = |no_decoders| {
        shared.with(|fake| {
            let node = &mut fake.nodes[place];
            node.kind = Kind::Gfd(GfdState { no_decoders, ..GfdState::new(16) });
            (node.base.primary, node.base.pid) = (None, Pid::NONE);
        });
    };
    restart(true);
    fm.request(&Request::Discover).unwrap();
    let errors = fm.board().status().errors;
    assert!(errors.iter().any(|line| line.contains("had lost its part")), "{errors:?}");
    let undone = shared.with(|fake| (fake.gfd(place).left, fake.gfd(place).extents.clone()));
    assert_eq!(undone.0, 1, "given, and taken back as it was");
    assert!(undone.1.values().all(Vec::is_empty), "{undone:?}");
    restart(false);
    fm.request(&Request::Discover).unwrap();
    assert_eq!(fm.board().status().errors, Vec::<String>::new());
    assert_eq!(fm.state().unwrap(), before);
    fm.request(&Request::Release { name: "pool".to_owned() }).unwrap();
    assert_eq!(shared.with(|fake| fake.gfd(place).left), 0, "what is given back for good is wiped");
}
