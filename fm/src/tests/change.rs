//! Links and switches that go while the fabric runs.
//!
//! A link or switch of the fake goes, the manager watches, and routes are followed hop by hop.
//!
//! Source: CXL 3.1 section 7.7.12.6.

use std::collections::BTreeSet;

use weft_base::rng::Rng;

use super::bind::{COST, link};
use super::discovery::{US, number};
use super::fake::{Fake, Shared};
use super::plan::{all_reach_all, set_up};
use crate::cci::wires::read_all;
use crate::components::bind::{Bindings, Bridge};
use crate::discover::change::{ChangeError, Event, Running};
use crate::model::graph::{Graph, PortRef, SwitchId, generate};
use crate::plan::Options;

fn running(graph: &Graph, device_at: Option<SwitchId>) -> (Shared, Running) {
    let mut fake = Fake::of(graph);
    if let Some(at) = device_at {
        fake.add(at, None);
    }
    let shared = Shared::new(fake);
    let (inventory, plan, _) = set_up(&shared);
    let (standing, silent) = read_all(&mut shared.fabric(US), &inventory);
    assert!(silent.is_empty());
    let (bindings, options) = (Bindings::default(), Options::default());
    (
        shared,
        Running {
            inventory,
            plan,
            standing,
            bindings,
            options,
            drain: || {},
            pid_mismatches: BTreeSet::new(),
        },
    )
}

fn cut(shared: &Shared, running: &Running, at: PortRef) {
    let real = number(&running.inventory, at.switch);
    shared.with(|fake| fake.cut(real, at.port));
}

#[test]
fn links_are_lost_one_after_the_other_and_all_still_reach_all() {
    let mut rng = Rng::new(77);
    for _ in 0..8 {
        let graph = generate::random(&mut rng, 14, 20, 1).unwrap();
        let (shared, mut running) = running(&graph, None);
        let mut fabric = shared.fabric(US);
        for _ in 0..6 {
            let links: Vec<_> =
                running.inventory.links.difference(&running.inventory.down).copied().collect();
            let [at, _] = links[usize::try_from(rng.below(links.len() as u64)).unwrap()];
            cut(&shared, &running, at);
            let reports = running.watch(&mut fabric).unwrap();
            assert_eq!(reports.len(), 1, "{reports:?}");
            if reports[0].partition.is_some() {
                break;
            }
            all_reach_all(&shared, &running.inventory);
        }
    }
}

#[test]
fn a_switch_that_is_gone_takes_only_its_own_with_it() {
    let (shared, mut running) = running(&generate::mesh(5, 1).unwrap(), None);
    let lost = SwitchId(3);
    let real = number(&running.inventory, lost);
    shared.with(|fake| fake.nodes[real].base.gone = true);
    let reports = running.watch(&mut shared.fabric(US)).unwrap();
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.event, &report.sent.cut_off[..]), (Event::SwitchGone(lost), &[lost][..]));
    let islands = report.partition.as_ref().unwrap().islands.len();
    assert_eq!(islands, 2, "the lost one, and all the others together");
}

#[test]
fn a_link_comes_back() {
    let (shared, mut running) = running(&generate::ring(5, 1).unwrap(), None);
    let mut fabric = shared.fabric(US);
    let &link = running.inventory.links.first().unwrap();
    cut(&shared, &running, link[0]);
    assert_eq!(running.watch(&mut fabric).unwrap()[0].event, Event::LinkDown(link[0]));
    all_reach_all(&shared, &running.inventory);
    for end in link {
        let real = number(&running.inventory, end.switch);
        shared.with(|fake| fake.switch(real).ports.get_mut(&end.port).unwrap().up = true);
    }
    assert_eq!(running.watch(&mut fabric).unwrap()[0].event, Event::LinkUp(link[0]));
    all_reach_all(&shared, &running.inventory);
    assert!(running.inventory.down.is_empty() && running.watch(&mut fabric).unwrap().is_empty());
    assert!(matches!(
        running.on(&mut fabric, Event::NewLink(link[0])),
        Err(ChangeError::Unknown(_))
    ));
}

#[test]
fn virtual_links_are_moved_while_there_is_a_way_and_unbound_when_not() {
    // A ring of three with the device at the second: two ways from the first to it.
    let (shared, mut running) = running(&generate::ring(3, 1).unwrap(), Some(SwitchId(1)));
    let mut fabric = shared.fabric(US);
    let below =
        running.inventory.by_id().find(|(id, _)| number(&running.inventory, *id) == 1).unwrap().0;
    let host = Bridge { switch: SwitchId(0), vcs: 0, vppb: 1 };
    let below = Bridge { switch: below, vcs: 2, vppb: 0 };
    let wanted = link(&running.inventory, host, below);
    let inventory = running.inventory.clone();
    running.bindings.bind_remote(&mut fabric, &inventory, wanted, COST).unwrap();
    let direct = |link: &&[PortRef; 2]| {
        link.iter().any(|e| e.switch == host.switch)
            && link.iter().any(|e| e.switch == below.switch)
    };
    let [at, _] = *running.inventory.links.iter().find(direct).unwrap();
    cut(&shared, &running, at);
    let first = running.watch(&mut fabric).unwrap().remove(0);
    assert_eq!((first.hit.len(), first.severed.len()), (1, 0));
    let of_below = |link: &&[PortRef; 2]| link.iter().any(|e| e.switch == below.switch);
    let left = running.inventory.links.difference(&running.inventory.down);
    let [at, _] = *left.filter(of_below).last().unwrap();
    cut(&shared, &running, at);
    let second = running.watch(&mut fabric).unwrap().remove(0);
    assert_eq!(
        (second.severed, second.left),
        (vec![wanted], vec![below]),
        "the far end is cut off"
    );
    assert!(running.bindings.remote.is_empty());
    assert_eq!(
        shared.with(|fake| fake.switch(0).vcss[0].vppbs[1].0),
        0,
        "the host's end is unbound"
    );
}
