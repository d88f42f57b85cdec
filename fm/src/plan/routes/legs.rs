//! Legs: intermediate tables between old and new routes, so that in each leg no packet goes up after down.
//!
//! If old routes are legal by the order of the new ones, one leg is enough. Otherwise orders between the old and the
//! new one ([`Moves`]) are tried: a leg changes the routes that the next order does not allow to ones that both orders
//! allow, over links that lead the same way in both. All else stays as it is until the last leg, by the new order.
//!
//! Source: own construction; docs/spec/cxl-fabric.md "Change of routes".

use std::borrow::Cow;
use std::collections::BTreeSet;

use weft_parsers::fabric::{DrtEntry, Pid};

use super::reorder::{Moves, without_turned};
use super::updown::UpDown;
use super::{Basis, Options, Routed, route_from};
use crate::model::graph::Graph;
use crate::plan::order::{Net, Order};
use crate::plan::tables::Tables;

/// Number of intermediate legs at most; beyond it, rounds of PIDs are searched instead.
const LEGS_MAX: usize = 8;

/// One set of tables on the way, and the order of the step to it.
#[derive(Clone, Debug)]
pub(super) struct Leg<'n> {
    pub tables: Cow<'n, Tables>,
    /// Packets by these tables, and by those before, never go up after down by this order.
    pub order: Cow<'n, Order>,
}

/// Tables that are legal by two orders.
enum Between {
    /// Those in the switches already are.
    Standing,
    By(Tables),
}

/// Input of a search for legs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip<'a> {
    pub graph: &'a Graph,
    pub options: &'a Options,
    /// PIDs whose routes are ignored.
    pub apart: &'a BTreeSet<Pid>,
    /// Orders that the old routes may follow.
    pub orders: &'a [&'a Order],
}

impl Trip<'_> {
    /// The legs from `old` to `new`; `None` if none were found.
    pub fn legs<'n>(&self, old: &Tables, new: &'n Routed) -> Option<Vec<Leg<'n>>> {
        let to_new = UpDown::new(self.graph, &new.order);
        if !to_new.illegal(&new.tables, self.apart).is_empty() {
            return None; // they were made otherwise
        }
        let last = Leg { tables: Cow::Borrowed(&new.tables), order: Cow::Borrowed(&new.order) };
        if to_new.illegal(old, self.apart).is_empty() {
            return Some(vec![last]);
        }
        let start = Order::of(self.graph, old, self.apart, self.orders)?;
        let mut legs = self.on_the_way(old, start, new)?;
        legs.push(last);
        Some(legs)
    }

    /// Legs until all routes in force are legal by the new order.
    fn on_the_way<'n>(&self, old: &Tables, start: Order, new: &'n Routed) -> Option<Vec<Leg<'n>>> {
        let net = Net::new(self.graph);
        let moves = Moves::new(&net, &start, &new.order);
        let whole = moves.count();
        let (mut order, mut standing, mut done, mut legs) = (start, old.clone(), 0, Vec::new());
        while done < whole {
            // As far as possible at once: all the way, else half of it, ... one swap. An easy change takes few legs.
            let mut far = whole - done;
            let (next, leg) = loop {
                let next =
                    if done + far == whole { new.order.clone() } else { moves.after(done + far) };
                if let Some(leg) = self.leg(&standing, &order, &next, new) {
                    break (next, leg);
                }
                if far == 1 {
                    // Not even one swap works: the links that keep their direction do not join the fabric.
                    return None;
                }
                far /= 2;
            };
            done += far;
            if let Between::By(tables) = leg {
                standing = tables.clone();
                legs.push(Leg { tables: Cow::Owned(tables), order: Cow::Owned(order) });
                if legs.len() > LEGS_MAX {
                    return None;
                }
            }
            order = next;
        }
        Some(legs)
    }

    /// Tables that are legal by both orders, from `standing`, which is legal by `order`; `None` if the links that lead
    /// the same way in both do not join the fabric.
    fn leg(&self, standing: &Tables, order: &Order, next: &Order, new: &Routed) -> Option<Between> {
        let by = UpDown::new(self.graph, next);
        let wrong = by.illegal(standing, self.apart);
        if wrong.is_empty() {
            return Some(Between::Standing);
        }
        let mut left = without_turned(self.graph, order, next);
        let parts = |graph: &Graph| Net::new(graph).parts();
        if !order.serves(&left) || parts(&left) != parts(self.graph) {
            return None;
        }
        // Only illegal PIDs are routed anew: the rest must not change in this leg.
        let others: Vec<Pid> = left.endpoints().map(|end| end.pid).collect();
        for to in others.into_iter().filter(|to| !wrong.contains(to)) {
            left.detach(to);
        }
        let basis = Basis { order: Some(order), home: Some(&new.tables), standing: Some(standing) };
        let between = route_from(&left, self.options, basis).tables;
        let mut tables = standing.clone();
        for at in self.graph.switches() {
            let (Some(from), into) = (between.get(at), tables.get_mut(at)) else { continue };
            for &to in &wrong {
                let entry = from.drt(to);
                into.set_drt(to, entry);
                if let DrtEntry::Group(index) = entry {
                    into.set_rgt(index, from.rgt(index).copied());
                }
            }
        }
        Some(Between::By(tables))
    }
}
