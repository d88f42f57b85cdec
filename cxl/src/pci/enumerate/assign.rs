//! Address assignment: sizes are added up from the leaves, addresses are given from the root.
//!
//! [`assign`] takes a list of nodes and the address space available to them, sets BAR addresses and windows in the
//! nodes, and returns the BARs that found no room. Windows have steps of 4 KiB (I/O) and 1 MiB (memory).
//!
//! Source: PCI-to-PCI Bridge 1.2 §3.2.5; PCIe 6.0 §7.5.1.2.1 (what may lie in which window).
//!
//! Prefetchable 64-bit memory goes to the prefetchable window if every bridge above it takes 64 bits; all other
//! memory goes below 4 GiB. On one bus, the largest alignment comes first. When there is too little space, the
//! reserve for hot plug is given up first, then the largest BAR, until the rest fits.

use weft_parsers::fabric::Bdf;

use super::spec::Reserve;
use crate::pci::bridge::{Window, Windows};
use crate::pci::function::BarKind;
use crate::pci::tree::{Bar, Below, Node, Problem, ProblemKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Io,
    Mem,
    Pref,
}

impl Pool {
    const fn step(self) -> u64 {
        match self {
            Self::Io => 0x1000,
            Self::Mem | Self::Pref => 0x10_0000,
        }
    }

    const fn of(self, windows: &Windows) -> Option<Window> {
        match self {
            Self::Io => windows.io,
            Self::Mem => windows.mem,
            Self::Pref => windows.pref,
        }
    }

    fn set(self, windows: &mut Windows, window: Option<Window>) {
        match self {
            Self::Io => windows.io = window,
            Self::Mem => windows.mem = window,
            Self::Pref => windows.pref = window,
        }
    }

    const fn reserve(self, reserve: &Reserve) -> u64 {
        match self {
            Self::Io => reserve.io,
            Self::Mem => reserve.mem,
            Self::Pref => reserve.pref,
        }
    }

    /// Pool of `bar`; `pref`: its bus has prefetchable 64-bit memory.
    const fn for_bar(bar: &Bar, pref: bool) -> Self {
        match bar.kind {
            BarKind::Io => Self::Io,
            BarKind::Mem64 { prefetch: true } if pref => Self::Pref,
            _ => Self::Mem,
        }
    }
}

/// One pass over the tree, for one pool.
#[derive(Clone, Copy)]
struct Giving {
    pool: Pool,
    /// Bytes kept free below each slot.
    reserve: u64,
}

/// Bytes and alignment of an item, or of all items on a bus.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Need {
    size: u64,
    align: u64,
}

const NOTHING: Need = Need { size: 0, align: 1 };

/// An item to place on a bus: a BAR, or the window of a bridge; `node` is an index into the bus's nodes.
#[derive(Clone, Copy)]
struct Item {
    node: usize,
    /// Index into the node's BARs; `None` for its window.
    bar: Option<usize>,
    need: Need,
}

/// `value` rounded up to a multiple of `align`, a power of two; saturates.
fn up(value: u64, align: u64) -> u64 {
    value.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

impl Giving {
    /// Items of a bus in the order in which they are placed. `pref`: the bus has prefetchable 64-bit memory.
    fn items(self, nodes: &[Node], pref: bool) -> Vec<Item> {
        let mut items = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            for (bar, found) in node.bars.iter().enumerate() {
                // An address marks a BAR that still wants room; `give_up` takes it away.
                let wanted = found.address.is_some() && Pool::for_bar(found, pref) == self.pool;
                if wanted {
                    let need = Need { size: found.size, align: found.size };
                    items.push(Item { node: at, bar: Some(bar), need });
                }
            }
            let need = node.below.as_ref().map_or(NOTHING, |below| self.window(below, pref));
            if need.size > 0 {
                items.push(Item { node: at, bar: None, need });
            }
        }
        // Largest alignment first keeps gaps small; the sort is stable, so equal items keep their order.
        items.sort_by_key(|item| std::cmp::Reverse((item.need.align, item.need.size)));
        items
    }

    /// Size and alignment of a bridge's window.
    fn window(self, below: &Below, pref: bool) -> Need {
        let pref = pref && below.pref64;
        // A bridge without a bus number gets nothing below enumerated, and a prefetchable window of 32 bits stays
        // closed.
        if below.buses.secondary == 0 || (self.pool == Pool::Pref && !pref) {
            return NOTHING;
        }
        let inside = self.bus(&below.nodes, pref);
        // The reserve is a minimum, not an addition: what is there already may use it.
        let reserve = if below.slot.is_some() { self.reserve } else { 0 };
        let step = self.pool.step();
        Need { size: up(inside.size.max(reserve), step), align: inside.align.max(step) }
    }

    /// Size and alignment of all items on a bus.
    fn bus(self, nodes: &[Node], pref: bool) -> Need {
        self.items(nodes, pref).iter().fold(NOTHING, |need, Item { need: next, .. }| Need {
            size: up(need.size, next.align).saturating_add(next.size),
            align: need.align.max(next.align),
        })
    }

    /// Places all items of a bus from `base` on, which is aligned for them.
    fn place(self, nodes: &mut [Node], pref: bool, base: u64) {
        let mut next = base;
        for Item { node, bar, need } in self.items(nodes, pref) {
            let at = up(next, need.align);
            next = at.saturating_add(need.size);
            let Some(node) = nodes.get_mut(node) else { continue };
            if let Some(bar) = bar.and_then(|bar| node.bars.get_mut(bar)) {
                bar.address = Some(at);
            } else if let Some(below) = &mut node.below {
                let window = Window { base: at, limit: at.saturating_add(need.size - 1) };
                self.pool.set(&mut below.windows, Some(window));
                // The window below is aligned for its items by `window`, so they start right at its base.
                let pref = pref && below.pref64;
                self.place(&mut below.nodes, pref, at);
            }
        }
    }

    /// Gives up the largest BAR below, the last one of several; `None` if there is none.
    fn give_up(self, nodes: &mut [Node], pref: bool) -> Option<Problem> {
        let (bdf, index, size) = self.largest(nodes, pref)?;
        drop_bar(nodes, bdf, index);
        Some(Problem { bdf, kind: ProblemKind::NoRoom { index, size } })
    }

    fn largest(self, nodes: &[Node], pref: bool) -> Option<(Bdf, u8, u64)> {
        let mut found: Option<(Bdf, u8, u64)> = None;
        for node in nodes {
            let own = node
                .bars
                .iter()
                .filter(|bar| bar.address.is_some() && Pool::for_bar(bar, pref) == self.pool);
            let own = own.map(|bar| (node.bdf, bar.index, bar.size));
            let below = node.below.as_ref();
            let inside = below.and_then(|below| self.largest(&below.nodes, pref && below.pref64));
            for next in own.chain(inside) {
                // `>=` takes the last of equal size, so that the first one found keeps its address.
                if found.is_none_or(|(.., size)| next.2 >= size) {
                    found = Some(next);
                }
            }
        }
        found
    }
}

fn drop_bar(nodes: &mut [Node], bdf: Bdf, index: u8) {
    for node in nodes {
        if node.bdf == bdf {
            for bar in node.bars.iter_mut().filter(|bar| bar.index == index) {
                bar.address = None;
            }
        }
        if let Some(below) = &mut node.below {
            drop_bar(&mut below.nodes, bdf, index);
        }
    }
}

/// Every BAR wants an address again, and all windows are closed.
fn reset(nodes: &mut [Node]) {
    for node in nodes {
        for bar in &mut node.bars {
            bar.address = Some(0);
        }
        if let Some(below) = &mut node.below {
            below.windows = Windows::default();
            reset(&mut below.nodes);
        }
    }
}

/// Assigns addresses in `apertures` to all BARs and bridges of `nodes`, which are on the bus below; returns the
/// BARs that found no room.
pub fn assign(nodes: &mut [Node], apertures: &Windows, reserve: &Reserve) -> Vec<Problem> {
    // BARs that were given up at the last enumeration get another chance.
    reset(nodes);
    let pref = apertures.pref.is_some();
    let mut problems = Vec::new();
    for pool in [Pool::Io, Pool::Mem, Pool::Pref] {
        let mut giving = Giving { pool, reserve: pool.reserve(reserve) };
        loop {
            // Computed anew in each round, as the reserve or a BAR may have been given up in the last one; each
            // round gives up something, so the loop ends.
            let need = giving.bus(nodes, pref);
            if need.size == 0 {
                break;
            }
            let base = pool.of(apertures).map(|window| (up(window.base, need.align), window.limit));
            if let Some((base, limit)) = base
                && base.checked_add(need.size - 1).is_some_and(|last| last <= limit)
            {
                giving.place(nodes, pref, base);
                break;
            }
            if giving.reserve > 0 {
                giving.reserve = 0;
            } else if let Some(problem) = giving.give_up(nodes, pref) {
                problems.push(problem);
            } else {
                break;
            }
        }
    }
    problems
}
