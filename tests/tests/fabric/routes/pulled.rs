//! Every link and every switch is pulled, and comes back: who does not need it keeps a way all the time.
//!
//! Ring, mesh, torus, fat tree, irregular fabrics -> one link or switch goes -> routes like those that stand -> it comes
//! back -> the routes of before. Each step of both is judged by [`super::mixtures`].
//!
//! Units: links and switches.
//! Source: docs/spec/cxl-fabric.md "Change of routes".

use std::collections::BTreeSet;

use weft_base::rng::Rng;
use weft_fm::model::graph::{Graph, generate};
use weft_fm::plan::order::Order;
use weft_fm::plan::routes::{Basis, Options, Routed, route, route_from};

use super::{judge, mixtures, planned, seed};

fn fabrics(rng: &mut Rng) -> Vec<(&'static str, Graph)> {
    vec![
        ("ring", generate::ring(7, 1).unwrap()),
        ("mesh", generate::mesh(5, 1).unwrap()),
        ("torus", generate::torus(&[3, 4], 1).unwrap()),
        ("fat tree", generate::fat_tree(4).unwrap()),
        ("irregular", generate::random(rng, 12, 8, 1).unwrap()),
        ("irregular and larger", generate::random(rng, 20, 16, 1).unwrap()),
    ]
}

/// The routes of what is left, as the manager makes them.
fn left(cut: &Graph, options: &Options, home: &Routed) -> Routed {
    let shown = (!home.order.serves(cut))
        .then(|| Order::of(cut, &home.tables, &BTreeSet::new(), &[&home.order]));
    let basis = Basis {
        order: shown.as_ref().and_then(Option::as_ref).or(Some(&home.order)),
        home: Some(&home.tables),
        standing: Some(&home.tables),
    };
    route_from(cut, options, basis)
}

/// One of four links and switches of each fabric; [`soak_each_link_and_switch_is_pulled`] has them all.
#[test]
fn who_does_not_need_what_is_pulled_keeps_a_way() {
    pull(4);
}

#[test]
#[ignore = "soak: all links and switches"]
fn soak_each_link_and_switch_is_pulled() {
    pull(1);
}

fn pull(step: usize) {
    let mut rng = Rng::new(seed());
    for (name, graph) in fabrics(&mut rng) {
        for groups in [256, 0] {
            let options = Options { groups, ..Options::default() };
            let home = route(&graph, &options, None);
            let links = graph.links().map(|(link, _)| {
                let mut cut = graph.clone();
                cut.set_link(link, false).unwrap();
                (format!("{name}: link {}", link.0), cut)
            });
            let switches = graph.switches().map(|switch| {
                let mut cut = graph.clone();
                cut.set_switch(switch, false).unwrap();
                (format!("{name}: {switch}"), cut)
            });
            let (mut pulled, mut others, mut rounds) = (0, 0, [0, 0]);
            for (name, cut) in links.chain(switches).step_by(step).collect::<Vec<_>>() {
                let next = left(&cut, &options, &home);
                judge(&name, &cut, &next);
                let both = [(&cut, &home, &next), (&graph, &next, &home)];
                for ((on, from, to), most) in both.into_iter().zip(&mut rounds) {
                    let transit = planned(on, from, to, &options);
                    assert!(transit.withdrawn.is_empty(), "{name}: {transit:?}");
                    mixtures(&mut rng, &name, on, &from.tables, &to.tables, &transit);
                    *most =
                        transit.legs.iter().map(|leg| leg.rounds.len()).sum::<usize>().max(*most);
                    others += usize::from(transit.legs.len() > 1);
                }
                pulled += 1;
            }
            let [down, up] = rounds;
            println!(
                "{name}, {groups} groups: {pulled} pulled, in {down} rounds at most, and back in {up}; {others} times over other routes"
            );
        }
    }
}
