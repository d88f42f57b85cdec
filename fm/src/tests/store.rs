//! State over restarts.
//!
//! Save, open again, load.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager".

use super::bind::{COST, fabric, link};
use super::discovery::{US, manager};
use crate::components::bind::{Bindings, Bridge};
use crate::components::edge::AccessBit;
use crate::components::grants::Grants;
use crate::components::memory::{Memory, Part, Share};
use crate::discover::{Options, discover};
use crate::model::graph::SwitchId;
use crate::state::store::{State, Store, StoreError};
use weft_base::rng::Rng;
use weft_parsers::fabric::Pid;

#[test]
fn a_restart_finds_what_was_kept_and_the_fabric_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    let (shared, inventory) = fabric();
    let mut bindings = Bindings::default();
    let host = Bridge { switch: SwitchId(0), vcs: 0, vppb: 1 };
    let below = Bridge { switch: SwitchId(2), vcs: 2, vppb: 0 };
    bindings
        .bind_remote(&mut shared.fabric(US), &inventory, link(&inventory, host, below), COST)
        .unwrap();
    let part = Part { gfd: Pid::from_low_bits(7), group: 1, decoder: 2, dpa: 3 };
    let share = Share {
        tag: [1; 16],
        hosts: Vec::new(),
        parts: vec![part],
        len: 4,
        hpa: u64::MAX,
        granularity: 256,
        notify: false,
    };
    let gim = crate::components::gim::Gim::default();
    let p2p = crate::components::p2p::P2p::default();
    let access =
        [AccessBit::Lav(SwitchId(2), 1, part.gfd), AccessBit::Gmv(SwitchId(0), 0, part.gfd)].into();
    let memory = Memory { shares: vec![share] };
    let state = State { inventory, bindings, grants: Grants { memory, gim, p2p, access } };
    {
        let store = Store::open(&path).unwrap();
        assert!(store.load().unwrap().is_none());
        store.save(&state).unwrap();
        assert!(
            matches!(Store::open(&path), Err(StoreError::Database { what: "open", .. })),
            "one at a time"
        );
    }
    let kept = Store::open(&path).unwrap().load().unwrap().unwrap();
    assert_eq!(kept, state);
    let mut fabric = shared.fabric(US);
    let options = Options { known: kept.inventory.known(), ..Options::new(manager()) };
    let now = discover(&mut fabric, &options).unwrap();
    let pids =
        |inventory: &crate::model::inventory::Inventory| inventory.pids().collect::<Vec<_>>();
    assert_eq!(pids(&now.inventory), pids(&kept.inventory));
    assert_eq!(kept.bindings.compare(&mut fabric, &now.inventory).unwrap(), []);
    // Meanwhile the host's end was unbound.
    shared.with(|fake| fake.switch(0).vcss[0].vppbs[1] = (0, 255, 255, Pid::NONE, None));
    let differ = kept.bindings.compare(&mut fabric, &now.inventory).unwrap();
    assert_eq!(differ, [(host, crate::components::bind::BridgeState::Nothing)]);
}

#[test]
fn what_is_no_store_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    std::fs::write(&path, [7; 5_000]).unwrap();
    assert!(matches!(Store::open(&path), Err(StoreError::Damaged { .. })));
}

/// A file that was cut, or whose bytes were changed, gives an error or the stored text: never a panic.
#[test]
fn a_damaged_store_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    let store = Store::open(&path).unwrap();
    store.save_wanted(&"x".repeat(200_000)).unwrap();
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    let other = dir.path().join("other.redb");
    let mut rng = Rng::new(5);
    let (mut refused, mut kept) = (0, 0);
    for round in 0..60_usize {
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes.truncate(usize::try_from(rng.below(whole.len() as u64)).unwrap()),
            1 => (0..4_000).for_each(|_| {
                let at = usize::try_from(rng.below(whole.len() as u64)).unwrap();
                bytes[at] ^= 1 << rng.below(8);
            }),
            _ => bytes[4_096..].iter_mut().for_each(|byte| *byte ^= 0xFF),
        }
        std::fs::write(&other, &bytes).unwrap();
        match Store::open(&other).and_then(|store| store.load_wanted()) {
            Err(StoreError::Damaged { .. }) => refused += 1,
            Err(_) => {}
            Ok(_) => kept += 1,
        }
    }
    assert!(refused > 30 && kept < 30, "{refused} refused, {kept} read");
}
