//! Unfinished changes: whenever a manager dies, the next one finishes or undoes its change.
//!
//! A manager is cut off for good after each command of a request in turn, and the next one starts. Components then have
//! their state from before or after the request.
//!
//! Units: commands.
//! Source: docs/fm.md "Several managers".

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::fake::{Fake, Shared};
use super::fake_gfd::GfdState;
use super::ha::of_term_on;
use super::service::status;
use crate::cci::Gate;
use crate::model::graph::{SwitchId, generate};
use crate::service::status::Phase;
use crate::service::{Fm, Request, Vector};
use crate::state::desired::{DesiredGim, DesiredMemory};
use crate::state::store::{Backend, Store, StoreError};

/// Number of commands and writes that a manager may still send.
type Fuse = Arc<AtomicU64>;

fn burn(fuse: &Fuse) -> bool {
    let less = |left: u64| left.checked_sub(1);
    fuse.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
}

/// A store that outlives managers.
#[derive(Clone, Debug, Default)]
struct Kept {
    parts: Arc<Mutex<BTreeMap<&'static str, Vec<u8>>>>,
    fuse: Fuse,
}

impl Backend for Kept {
    fn place(&self) -> String {
        "a map".to_owned()
    }

    fn read(&self, part: &'static str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.parts.lock().unwrap().get(part).cloned())
    }

    fn write(&self, parts: &[(&'static str, Option<Vec<u8>>)]) -> Result<(), StoreError> {
        if !burn(&self.fuse) {
            let source = "the manager is dead".into();
            return Err(StoreError::Shared { what: "write", place: self.place(), source });
        }
        let mut all = self.parts.lock().unwrap();
        for (part, bytes) in parts {
            match bytes {
                Some(bytes) => drop(all.insert(part, bytes.clone())),
                None => drop(all.remove(part)),
            }
        }
        Ok(())
    }
}

/// A fabric with a device at each switch, its store, and the manager of term 1.
struct Rig {
    shared: Shared,
    kept: Kept,
    ports: [u8; 2],
}

impl Rig {
    fn new() -> Self {
        let mut fake = Fake::of(&generate::line(2, 1).unwrap());
        let ports = [0, 1].map(|at| {
            fake.add(SwitchId(at), Some(GfdState::new(16)));
            fake.add(SwitchId(at), None)
        });
        let shared = Shared::new(fake);
        Self { shared, kept: Kept::default(), ports }
    }

    /// A manager that may send `left` commands and writes.
    fn manager(&self, term: u64, left: u64) -> (Fm, Fuse) {
        let fuse: Fuse = Arc::new(AtomicU64::new(left));
        let kept = Kept { fuse: fuse.clone(), ..self.kept.clone() };
        let asked = fuse.clone();
        let gate = Gate(Arc::new(move || burn(&asked)));
        let fabric = |uuid| self.shared.gated(uuid, gate);
        (of_term_on(fabric, "", term, Some(Store::on(kept))), fuse)
    }

    /// State of all components without their owners.
    fn holds(&self) -> Vec<String> {
        let kinds = |fake: &mut super::fake::Fake| {
            for node in &mut fake.nodes {
                if let super::fake::Kind::Switch(state) = &mut node.kind {
                    state.background = None;
                }
                if let super::fake::Kind::Gfd(gfd) = &mut node.kind {
                    gfd.sat.retain(|_, vector| *vector != 0);
                    gfd.gdt.retain(|_, entry| entry.decoder.is_some());
                    gfd.extents.retain(|_, extents| !extents.is_empty());
                }
            }
            fake.nodes.iter().map(|node| format!("{:?}", node.kind)).collect()
        };
        self.shared.with(kinds)
    }
}

/// Knowledge of a manager without its inventory.
fn known(fm: &Fm) -> String {
    let state = fm.state().unwrap();
    format!(
        "{:?} {:?} {:?} {:?}",
        state.bindings, state.grants.memory, state.grants.gim, state.grants.access
    )
}

fn hosts() -> [String; 2] {
    let graph = generate::line(2, 1).unwrap();
    let at = |id| graph.endpoints().find(|end| end.at.switch == SwitchId(id)).unwrap().at.port;
    [format!("s0.{}", at(0)), format!("s1.{}", at(1))]
}

fn share(hosts: &[&String]) -> Request {
    Request::Share(DesiredMemory {
        name: "pool".to_owned(),
        hosts: hosts.iter().map(|host| (*host).clone()).collect(),
        gfds: Vec::new(),
        ways: Some(2),
        size: 1 << 29,
        granularity: 256,
        hpa: 1 << 41,
        media: None,
        notify: false,
    })
}

fn gim(prefix: bool) -> Request {
    let [from, of] = hosts();
    let (name, size, hpa) = ("win".to_owned(), 1 << 24, 1 << 40);
    Request::ShowGim(DesiredGim { name, of, from: vec![from], prefix, size, hpa })
}

fn bind(bridge: &str, to: &str) -> Request {
    Request::Bind { bridge: bridge.to_owned(), to: to.to_owned() }
}

/// Cases: name, requests that come before, and the request that is cut off.
fn cases(ports: [u8; 2]) -> Vec<(&'static str, Vec<Request>, Request)> {
    let [a, b] = hosts();
    let name = || "pool".to_owned();
    let (host, gim_name) = (b.clone(), "win".to_owned());
    let access =
        |on| Request::SetAccess { host: a.clone(), vector: Vector::Gmv, pid: "7ab".to_owned(), on };
    let local = bind("s0/0/1", &format!("port:{}", ports[0]));
    let remote = bind("s0/0/2", "s1/1/0");
    let below = bind("s1/1/1", &format!("port:{}", ports[1]));
    let unbind = |bridge: &str| Request::Unbind { bridge: bridge.to_owned() };
    vec![
        ("share", vec![], share(&[&a, &b])),
        ("release", vec![share(&[&a, &b])], Request::Release { name: name() }),
        ("grant", vec![share(&[&a])], Request::Grant { name: name(), host: host.clone() }),
        ("revoke", vec![share(&[&a, &b])], Request::Revoke { name: name(), host }),
        ("show_gim", vec![], gim(false)),
        ("show_gim by prefix", vec![access(true)], gim(true)),
        ("release of GIM", vec![gim(true)], Request::Release { name: gim_name.clone() }),
        ("revoke of GIM", vec![gim(false)], Request::Revoke { name: gim_name, host: a.clone() }),
        ("access on", vec![], access(true)),
        ("access off", vec![access(true)], access(false)),
        ("bind", vec![], local.clone()),
        ("bind of a link", vec![below.clone()], remote.clone()),
        ("unbind", vec![local], unbind("s0/0/1")),
        ("unbind of a link", vec![below, remote.clone()], unbind("s0/0/2")),
        ("a bind that is refused", vec![remote.clone()], remote),
        ("a share that is refused", vec![share(&[&a])], share(&[&b])),
    ]
}

fn brought_up(rig: &Rig, before: &[Request]) -> (Fm, Fuse) {
    let (mut fm, fuse) = rig.manager(1, u64::MAX);
    fm.start().unwrap();
    for request in before {
        fm.request(request).unwrap();
    }
    (fm, fuse)
}

/// State of the fabric and knowledge of the manager after a whole request.
fn whole(before: &[Request], request: &Request) -> (Vec<String>, String) {
    let rig = Rig::new();
    let (mut fm, _) = brought_up(&rig, before);
    let _ = fm.request(request);
    (rig.holds(), known(&fm))
}

/// Starts the next manager, which is cut off after `left` commands of its start-up, and returns the one after it.
fn next(rig: &Rig, left: u64) -> Fm {
    let (mut second, _) = rig.manager(2, left);
    let _ = second.start();
    let (mut third, _) = rig.manager(3, u64::MAX);
    third.start().unwrap();
    third
}

/// Whenever the manager dies, and the next one in turn, state and knowledge are as before the request or as after it.
#[test]
fn no_change_is_left_half_done() {
    for (name, before, request) in cases(Rig::new().ports) {
        let (was, knew) = {
            let rig = Rig::new();
            let (fm, _) = brought_up(&rig, &before);
            (rig.holds(), known(&fm))
        };
        let (becomes, knows) = whole(&before, &request);
        let (mut outcomes, mut left) = ([0_u32; 2], 0);
        loop {
            let rig = Rig::new();
            let (mut fm, fuse) = brought_up(&rig, &before);
            fuse.store(left, Ordering::SeqCst);
            let answer = fm.request(&request);
            let is_whole = fuse.load(Ordering::SeqCst) > 0;
            let third = next(&rig, if left % 2 == 0 { u64::MAX } else { 211 + 7 * left });
            let (now, state) = (rig.holds(), known(&third));
            let at =
                format!("{name}, dead after {left}: {answer:?}; {:?}", third.board().events(0));
            assert_eq!((status(&third).phase, status(&third).errors), (Phase::Up, vec![]), "{at}");
            let is_after = now == becomes && state == knows;
            let is_before = now == was && state == knew;
            let differ = now.iter().zip(&was).filter(|(now, was)| now != was);
            assert!(is_after || is_before, "{at}\n{state}\n{:#?}", differ.collect::<Vec<_>>());
            assert!(answer.is_err() || is_after, "{at}: what was answered counts");
            outcomes[usize::from(is_after)] += 1;
            if is_whole {
                break;
            }
            left += 1;
        }
        assert!(left > 1, "{name}: {outcomes:?}");
    }
}
