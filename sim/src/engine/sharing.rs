//! Shares components out among threads.
//!
//! A component with a single neighbour, such as a host, goes to that neighbour's thread: so threads are joined only by
//! cables between switches, which are the long ones. The other components are shared out in order of their numbers,
//! weighted by their numbers of cables. No thread is made without a component, as all others would wait for it in vain.
//!
//! Source: docs/spec/model.md §1.

use super::cables::Links;

/// Which thread owns each component.
pub(super) struct Owners {
    /// By component: its thread, and its index among that thread's components.
    of: Vec<(usize, usize)>,
    threads: usize,
}

impl Owners {
    /// Shares out components among `threads` threads at most.
    pub fn new(links: &[Links], threads: usize) -> Self {
        // Threads without a component are left out, and the others renumbered.
        let shares = share_out(links, threads);
        let mut used = shares.clone();
        used.sort_unstable();
        used.dedup();
        let mut counts = vec![0; used.len()];
        let place = |share: usize| {
            let thread = used.binary_search(&share).ok()?;
            let count = counts.get_mut(thread)?;
            *count += 1;
            Some((thread, *count - 1))
        };
        Self { of: shares.into_iter().filter_map(place).collect(), threads: used.len() }
    }

    /// Number of threads, each of which has a component.
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Thread that owns a component.
    #[inline]
    pub fn thread(&self, component: usize) -> usize {
        self.of.get(component).map_or(0, |&(thread, _)| thread)
    }

    /// Index of a component among those of its thread.
    #[inline]
    pub fn place(&self, component: usize) -> usize {
        self.of.get(component).map_or(usize::MAX, |&(_, place)| place)
    }
}

/// Which of `threads` shares each component belongs to.
fn share_out(links: &[Links], threads: usize) -> Vec<usize> {
    let threads = threads.clamp(1, links.len().max(1));
    let peers = |component: usize| {
        let of = links.get(component).map(|links| &links.peers);
        of.into_iter().flatten().flatten().map(|peer| peer.component)
    };
    let sole = |component: usize| {
        let mut all = peers(component);
        let first = all.next()?;
        all.all(|peer| peer == first).then_some(first)
    };
    // Two components that have only each other as neighbours are not attached to one another.
    let head = |component| sole(component).filter(|&peer| sole(peer) != Some(component));
    let weight = |component: usize| match head(component) {
        Some(_) => 0,
        None => 1 + peers(component).count(),
    };
    let whole: usize = (0..links.len()).map(weight).sum();
    let mut before = 0;
    let mut own = Vec::with_capacity(links.len());
    for component in 0..links.len() {
        // By the sum of weights before it, so that all shares have about as many cables.
        own.push((before * threads / whole.max(1)).min(threads - 1));
        before += weight(component);
    }
    (0..links.len())
        .map(|component| {
            let stands_for = head(component).unwrap_or(component);
            own.get(stands_for).copied().unwrap_or_default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use weft_dataplane::time::{LinkRate, Span};
    use weft_dataplane::types::PortId;

    use super::*;
    use crate::engine::cables::{CableSpec, Cables, Latency, Place};

    /// Threads of components that are joined by `cables`, each by its next free port.
    fn threads_of(count: usize, cables: &[(usize, usize)], threads: usize) -> (usize, Vec<usize>) {
        let mut all = Cables::new();
        for _ in 0..count {
            all.add(8, Latency::default());
        }
        let mut free = vec![0; count];
        let spec = CableSpec { rate: LinkRate::gbps(400), propagation: Span::ZERO, overhead: true };
        for &(a, b) in cables {
            let [a, b] = [a, b].map(|component| {
                let port = PortId::new(free[component]).unwrap();
                free[component] += 1;
                Place { component, port }
            });
            all.lay(a, b, &spec).unwrap();
        }
        let owners = Owners::new(&all.finish().0, threads);
        let mut places = vec![0; owners.threads()];
        for component in 0..count {
            let next = &mut places[owners.thread(component)];
            assert_eq!(owners.place(component), *next);
            *next += 1;
        }
        (owners.threads(), (0..count).map(|component| owners.thread(component)).collect())
    }

    #[test]
    fn hosts_are_with_their_switches_and_switches_are_shared_out() {
        // Hosts 0 to 3 at switches 4 and 5, which are joined.
        let cables = [(0, 4), (1, 4), (2, 5), (3, 5), (4, 5)];
        #[rustfmt::skip] // columns: name, components, cables, threads, the thread of each
        let cases = [
            ("two switches",         6, cables.to_vec(),        2, vec![0, 0, 1, 1, 0, 1]),
            ("one thread",           6, cables.to_vec(),        1, vec![0; 6]),
            ("too many threads",     6, cables.to_vec(),        9, vec![0, 0, 1, 1, 0, 1]),
            ("two hosts, one cable", 2, vec![(0, 1)],           2, vec![0, 1]),
            ("one switch",           3, vec![(0, 2), (1, 2)],   2, vec![0, 0, 0]),
            ("nobody is joined",     4, vec![],                 2, vec![0, 0, 1, 1]),
        ];
        for (name, count, cables, threads, want) in cases {
            let used = want.iter().max().map_or(0, |last| last + 1);
            assert_eq!(threads_of(count, &cables, threads), (used, want), "{name}");
        }
    }
}
