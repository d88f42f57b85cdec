//! Workloads: patterns of traffic, expanded to single [`Flow`]s with a seed.
//!
//! Source: docs/spec/model.md §3; permutations after Sattolo (1986).

use weft_base::rng::Rng;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::tcp::ConnectionSpec;

use super::flow::{Carrier, Flow, FlowId};

/// Traffic among some hosts in one pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Name for reports and metrics, unique in the scenario.
    pub name: String,
    /// Pattern of the traffic, with its hosts and sizes.
    pub kind: Pattern,
    /// When its first flows begin.
    pub start: Instant,
    /// Virtual channel of its flows; `None`: that of the endpoint's requests.
    pub vc: Option<u8>,
}

/// Patterns of traffic. Hosts are named by their numbers; an empty list stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Incast: many hosts send to one.
    Incast {
        /// Senders; empty: all hosts but the receiver.
        from: Vec<u16>,
        /// Number of the receiver.
        to: u16,
        /// Bytes from each sender.
        bytes: u64,
    },
    /// Each host sends to one other and receives from one other, chosen by the seed.
    Permutation {
        /// Hosts that take part; empty: all.
        hosts: Vec<u16>,
        /// Bytes from each host.
        bytes: u64,
    },
    /// Each host sends messages to random others at random times (Poisson arrivals).
    Uniform {
        /// Hosts that take part; empty: all.
        hosts: Vec<u16>,
        /// Bytes of each message.
        bytes: u64,
        /// Mean rate of payload that each host offers.
        load: LinkRate,
        /// Time from the start in which messages arrive.
        duration: Span,
    },
    /// Each host sends to every other one.
    AllToAll {
        /// Hosts that take part; empty: all.
        hosts: Vec<u16>,
        /// Bytes of each pair.
        bytes: u64,
        /// Whether a host sends to one after another, each when the one before is acknowledged; otherwise to all at
        /// once.
        one_by_one: bool,
    },
    /// Ring all-reduce in 2 (N - 1) steps. In each step a host sends a chunk of bytes / N to its right when the chunk
    /// of the step before has come from its left.
    RingAllReduce {
        /// The hosts of the ring, in order.
        hosts: Vec<u16>,
        /// Bytes to reduce, of each host.
        bytes: u64,
    },
    /// Messages from one host to another, each when the one before is acknowledged.
    PointToPoint {
        /// Number of the sender.
        from: u16,
        /// Number of the receiver.
        to: u16,
        /// Bytes of each message.
        bytes: u64,
        /// Number of these messages.
        count: u32,
    },
    /// TCP connections from each sender, which all begin at once.
    Tcp {
        /// Senders; empty: all hosts but the receiver.
        from: Vec<u16>,
        /// Number of the receiver.
        to: u16,
        /// Amount that each connection sends.
        load: TcpLoad,
        /// Number of connections of each sender.
        connections: u32,
        /// Settings of each connection, at both ends.
        connection: ConnectionSpec,
    },
    /// Flows given one by one. `after` are indices in this list, and `start` counts from the workload's start.
    Flows(Vec<Flow>),
}

/// Amount that a TCP connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpLoad {
    /// A fixed number of bytes.
    Bytes(u64),
    /// As much as possible in this time.
    Lasts(Span),
}

impl Workload {
    /// Settings of its TCP connections, if it has any.
    #[must_use]
    pub const fn connection(&self) -> Option<ConnectionSpec> {
        match self.kind {
            Pattern::Tcp { connection, .. } => Some(connection),
            _ => None,
        }
    }
}

/// A workload that cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("workload {name:?}: {problem}")]
pub struct WorkloadError {
    /// Name of the workload.
    pub name: String,
    /// Reason for which it cannot be.
    pub problem: Problem,
}

/// Why a workload cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Too few hosts take part.
    #[error("{had} hosts take part: expected 2 or more, each once")]
    Few {
        /// Number of hosts listed.
        had: usize,
    },
    /// A host is listed twice.
    #[error("host {0} takes part twice: expected each once")]
    Twice(u16),
    /// A host that does not exist is listed.
    #[error("host {host} takes part: expected 0 to {most}")]
    Host {
        /// Number that is listed.
        host: u16,
        /// Highest number there is.
        most: usize,
    },
    /// There are more chunks than bytes.
    #[error("{bytes} bytes in {chunks} chunks: expected one a chunk at least")]
    Chunks {
        /// Number of bytes to reduce.
        bytes: u64,
        /// Number of chunks, one for each host.
        chunks: usize,
    },
    /// The scenario would have too many flows.
    #[error("it would have more than {FLOWS_MAX} flows with those before it: expected no more")]
    Many,
}

/// Latest start of a flow; later ones begin then. No run is that long, and instants half the range of [`Instant`] apart
/// cannot be compared.
const LATEST: Span = Span::from_ps(100 * 86_400 * 1_000_000_000_000);

/// Most flows of a scenario.
pub const FLOWS_MAX: usize = 1 << 24;

/// Expands all workloads, in order, to flows among `hosts` hosts.
///
/// # Errors
/// The first workload that cannot be expanded. Flows given one by one are not checked here but by
/// [`super::flow::check`].
pub fn expand(workloads: &[Workload], hosts: usize, seed: u64) -> Result<Vec<Flow>, WorkloadError> {
    let mut flows = Vec::new();
    let mut seeds = Rng::new(seed);
    for (number, workload) in (0..).zip(workloads) {
        // Each workload has its own random numbers, so that it does not depend on how many another one draws.
        let rng = Rng::new(seeds.next_u64());
        let mut expansion = Expansion { workload, number, hosts, rng, flows: &mut flows };
        expansion
            .all()
            .map_err(|problem| WorkloadError { name: workload.name.clone(), problem })?;
    }
    Ok(flows)
}

/// A workload that is being expanded to flows.
struct Expansion<'a> {
    workload: &'a Workload,
    number: u16,
    hosts: usize,
    rng: Rng,
    flows: &'a mut Vec<Flow>,
}

impl Expansion<'_> {
    fn all(&mut self) -> Result<(), Problem> {
        match &self.workload.kind {
            Pattern::Incast { from, to, bytes } => {
                let mut from = self.senders(from, *to)?.into_iter();
                from.try_for_each(|from| self.add(from, *to, *bytes, &[]).map(drop))
            }
            Pattern::Tcp { from, to, load, connections, .. } => {
                let from = self.senders(from, *to)?;
                // Round by round: the first connection of each sender, then the second, so that no sender is always
                // last.
                (0..*connections).try_for_each(|_| {
                    from.iter().try_for_each(|&from| self.add_tcp(from, *to, *load))
                })
            }
            Pattern::Permutation { hosts, bytes } => {
                let hosts = self.who(hosts, 2)?;
                let to = self.permutation(&hosts);
                let mut pairs = hosts.into_iter().zip(to);
                pairs.try_for_each(|(from, to)| self.add(from, to, *bytes, &[]).map(drop))
            }
            Pattern::Uniform { hosts, bytes, load, duration } => {
                let hosts = self.who(hosts, 2)?;
                self.uniform(&hosts, *bytes, *load, *duration)
            }
            Pattern::AllToAll { hosts, bytes, one_by_one } => {
                let hosts = self.who(hosts, 2)?;
                self.all_to_all(&hosts, *bytes, *one_by_one)
            }
            Pattern::RingAllReduce { hosts, bytes } => {
                let hosts = self.who(hosts, 2)?;
                self.ring(&hosts, *bytes)
            }
            Pattern::PointToPoint { from, to, bytes, count } => {
                self.who(&[*from, *to], 2)?;
                let mut after: Option<FlowId> = None;
                for _ in 0..*count {
                    after = Some(self.add(*from, *to, *bytes, after.as_slice())?);
                }
                Ok(())
            }
            Pattern::Flows(flows) => {
                let base = self.base();
                for flow in flows {
                    let after: Vec<FlowId> =
                        flow.after.iter().map(|&after| base.saturating_add(after)).collect();
                    let id = self.add(flow.from, flow.to, flow.bytes, &after)?;
                    let start = self.after_start(flow.start.since(Instant::ZERO));
                    if let Some(added) = self.flows.get_mut(id as usize) {
                        (added.start, added.vc) = (start, flow.vc.or(self.workload.vc));
                    }
                }
                Ok(())
            }
        }
    }

    /// The hosts that take part: those in `named`, or all if it is empty.
    fn who(&self, named: &[u16], least: usize) -> Result<Vec<u16>, Problem> {
        let all = || (0..u16::MAX).take(self.hosts).collect();
        let hosts: Vec<u16> = if named.is_empty() { all() } else { named.to_vec() };
        let mut sorted = hosts.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair.first() == pair.last()) {
            return Err(Problem::Twice(pair.first().copied().unwrap_or_default()));
        }
        if let Some(&host) = sorted.last().filter(|&&host| usize::from(host) >= self.hosts) {
            return Err(Problem::Host { host, most: self.hosts.saturating_sub(1) });
        }
        if hosts.len() < least {
            return Err(Problem::Few { had: hosts.len() });
        }
        Ok(hosts)
    }

    /// The hosts of `named`, or of all, that send to `to`.
    fn senders(&self, named: &[u16], to: u16) -> Result<Vec<u16>, Problem> {
        let mut from = self.who(named, 1)?;
        self.who(&[to], 1)?;
        from.retain(|&host| host != to);
        if from.is_empty() { Err(Problem::Few { had: 1 }) } else { Ok(from) }
    }

    /// The instant `span` after the workload's start, at most [`LATEST`].
    fn after_start(&self, span: Span) -> Instant {
        let start = self.workload.start.since(Instant::ZERO);
        Instant::ZERO + (start + span).min(LATEST)
    }

    fn base(&self) -> FlowId {
        FlowId::try_from(self.flows.len()).unwrap_or(FlowId::MAX)
    }

    fn add(&mut self, from: u16, to: u16, bytes: u64, after: &[FlowId]) -> Result<FlowId, Problem> {
        if self.flows.len() >= FLOWS_MAX {
            return Err(Problem::Many);
        }
        let (start, vc, workload) = (self.workload.start, self.workload.vc, self.number);
        let id = self.base();
        let (after, carrier) = (after.to_vec(), Carrier::RcLink);
        self.flows.push(Flow { from, to, bytes, start, after, vc, workload, carrier });
        Ok(id)
    }

    fn add_tcp(&mut self, from: u16, to: u16, load: TcpLoad) -> Result<(), Problem> {
        let (bytes, lasts) = match load {
            TcpLoad::Bytes(bytes) => (bytes, None),
            TcpLoad::Lasts(lasts) => (0, Some(lasts)),
        };
        let id = self.add(from, to, bytes, &[])?;
        if let Some(flow) = self.flows.get_mut(id as usize) {
            flow.carrier = Carrier::Tcp { lasts };
        }
        Ok(())
    }

    /// One cycle through all hosts in random order (Sattolo 1986), in which no host sends to itself.
    fn permutation(&mut self, hosts: &[u16]) -> Vec<u16> {
        let mut to = hosts.to_vec();
        for last in (1..to.len()).rev() {
            let other = usize::try_from(self.rng.below(last as u64)).unwrap_or_default();
            to.swap(last, other);
        }
        to
    }

    fn uniform(
        &mut self,
        hosts: &[u16],
        bytes: u64,
        load: LinkRate,
        duration: Span,
    ) -> Result<(), Problem> {
        const SECOND_PS: u128 = 1_000_000_000_000;
        // Mean time between messages of a host: the payload's bits over the load.
        let mean = u128::from(bytes) * 8 * SECOND_PS / u128::from(load.as_bps());
        let mean = u64::try_from(mean).unwrap_or(u64::MAX);
        for (place, &from) in hosts.iter().enumerate() {
            let mut at = Span::from_ps(self.rng.exponential(mean));
            while at < duration {
                // 1 to N - 1 places on: any other host, never this one.
                let step = 1 + self.rng.below(hosts.len() as u64 - 1);
                let to = place + usize::try_from(step).unwrap_or_default();
                let to = hosts.get(to % hosts.len()).copied().unwrap_or_default();
                let id = self.add(from, to, bytes, &[])?;
                let start = self.after_start(at);
                if let Some(flow) = self.flows.get_mut(id as usize) {
                    flow.start = start;
                }
                // Time always moves on, so that two messages of a host never begin at one instant.
                at = at + Span::from_ps(self.rng.exponential(mean).max(1));
            }
        }
        Ok(())
    }

    /// Each host begins with the one after it, so that no two send to the same receiver at the same time.
    fn all_to_all(&mut self, hosts: &[u16], bytes: u64, one_by_one: bool) -> Result<(), Problem> {
        for (place, &from) in hosts.iter().enumerate() {
            let mut after: Option<FlowId> = None;
            for &to in hosts.iter().cycle().skip(place + 1).take(hosts.len() - 1) {
                let id = self.add(from, to, bytes, after.as_slice())?;
                after = one_by_one.then_some(id);
            }
        }
        Ok(())
    }

    /// In step k host i sends chunk i - k: first the chunks are summed up on their way round, then the sums are passed
    /// on.
    fn ring(&mut self, hosts: &[u16], bytes: u64) -> Result<(), Problem> {
        let count = hosts.len();
        let (chunk, rest) = (bytes / count as u64, bytes % count as u64);
        if chunk == 0 {
            return Err(Problem::Chunks { bytes, chunks: count });
        }
        let steps = 2 * (count - 1);
        // Checked at once, as the number of flows grows with the square of the hosts.
        if self.flows.len().saturating_add(steps.saturating_mul(count)) > FLOWS_MAX {
            return Err(Problem::Many);
        }
        let base = self.base();
        for step in 0..steps {
            for (place, &from) in hosts.iter().enumerate() {
                let to = hosts.get((place + 1) % count).copied().unwrap_or_default();
                let number = (place + 2 * count - step) % count;
                let bytes = chunk + u64::from((number as u64) < rest);
                let left = (place + count - 1) % count;
                // The flow of the step before that ended here: it came from the left neighbour.
                let before = step.checked_sub(1).map(|before| before * count + left);
                let before = before.and_then(|place| FlowId::try_from(place).ok());
                let after = before.map(|place| base + place);
                self.add(from, to, bytes, after.as_slice())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::flow::check;

    fn of(kind: Pattern) -> Workload {
        Workload { name: "w".to_owned(), kind, start: Instant::from_ns(5), vc: Some(2) }
    }

    fn flows(kind: Pattern, hosts: usize) -> Vec<Flow> {
        let flows = expand(&[of(kind)], hosts, 7).unwrap();
        check(&flows, hosts).unwrap();
        assert!(flows.iter().all(|flow| flow.vc == Some(2) && flow.start >= Instant::from_ns(5)));
        flows
    }

    fn degrees(flows: &[Flow], hosts: usize) -> (Vec<usize>, Vec<usize>) {
        let (mut sent, mut received) = (vec![0; hosts], vec![0; hosts]);
        for flow in flows {
            sent[usize::from(flow.from)] += 1;
            received[usize::from(flow.to)] += 1;
        }
        (sent, received)
    }

    #[test]
    fn every_pattern_has_its_degrees() {
        let bytes = 900;
        for hosts in [2, 3, 8, 64] {
            let full = hosts - 1;
            let all = |count: usize| vec![count; hosts];
            let mut but_last = all(1);
            but_last[full] = 0;
            let mut only_last = all(0);
            only_last[full] = full;
            let to = u16::try_from(full).unwrap();
            let everyone = Vec::new;
            #[rustfmt::skip] // columns: pattern, flows out of each host, flows into each host
            let cases = [
                (Pattern::Incast { from: everyone(), to, bytes }, but_last, only_last),
                (Pattern::Permutation { hosts: everyone(), bytes }, all(1), all(1)),
                (Pattern::AllToAll { hosts: everyone(), bytes, one_by_one: false }, all(full), all(full)),
                (Pattern::AllToAll { hosts: everyone(), bytes, one_by_one: true }, all(full), all(full)),
                (Pattern::RingAllReduce { hosts: everyone(), bytes }, all(2 * full), all(2 * full)),
            ];
            for (pattern, out, into) in cases {
                let flows = flows(pattern.clone(), hosts);
                assert_eq!(degrees(&flows, hosts), (out, into), "{pattern:?} {hosts}");
            }
        }
        let some = Pattern::Incast { from: vec![3, 1], to: 2, bytes };
        let some: Vec<_> = flows(some, 5).iter().map(|flow| (flow.from, flow.to)).collect();
        assert_eq!(some, [(3, 2), (1, 2)]);
    }

    #[test]
    fn seeds_choose_and_other_workloads_do_not() {
        let permutation = || of(Pattern::Permutation { hosts: Vec::new(), bytes: 1 });
        let alone = |seed| expand(&[permutation()], 16, seed).unwrap();
        assert_eq!(alone(1), alone(1));
        assert_ne!(alone(1), alone(2));
        let duration = Span::from_us(1);
        let load = LinkRate::gbps(100);
        let uniform = |bytes| of(Pattern::Uniform { hosts: Vec::new(), bytes, load, duration });
        let last = |bytes| expand(&[uniform(bytes), permutation()], 16, 1).unwrap();
        let tos = |flows: Vec<Flow>| {
            let flows = flows.into_iter().filter(|flow| flow.workload == 1);
            flows.map(|flow| flow.to).collect::<Vec<_>>()
        };
        assert_ne!(last(100).len(), last(1_000).len());
        assert_eq!(tos(last(100)), tos(last(1_000)));
    }

    /// 8 hosts that offer 100 Gb/s in messages of 1,250 bytes begin one each 100 ns, to each other evenly.
    #[test]
    fn uniform_offers_its_load_evenly() {
        let (load, duration) = (LinkRate::gbps(100), Span::from_us(1_000));
        let uniform = Pattern::Uniform { hosts: Vec::new(), bytes: 1_250, load, duration };
        let flows = flows(uniform, 8);
        assert!((79_000..=81_000).contains(&flows.len()), "{}", flows.len());
        let (sent, received) = degrees(&flows, 8);
        for count in sent.into_iter().chain(received) {
            assert!((9_500..=10_500).contains(&count), "{count}");
        }
        assert!(flows.iter().all(|flow| flow.start < Instant::from_ns(1_000_005)));
    }

    /// Of 10 bytes on three hosts, chunk 0 has 4; each host passes on what it has got in the step before.
    #[test]
    fn a_ring_passes_its_chunks_on() {
        let flows = flows(Pattern::RingAllReduce { hosts: vec![4, 0, 2], bytes: 10 }, 5);
        let seen: Vec<_> =
            flows.iter().map(|flow| (flow.from, flow.to, flow.bytes, flow.after.clone())).collect();
        #[rustfmt::skip] // columns: from, to, bytes, after; by step
        let want = [
            (4, 0, 4, vec![]), (0, 2, 3, vec![]), (2, 4, 3, vec![]),
            (4, 0, 3, vec![2]), (0, 2, 4, vec![0]), (2, 4, 3, vec![1]),
            (4, 0, 3, vec![5]), (0, 2, 3, vec![3]), (2, 4, 4, vec![4]),
            (4, 0, 4, vec![8]), (0, 2, 3, vec![6]), (2, 4, 3, vec![7]),
        ];
        assert_eq!(seen, want);
    }

    #[test]
    fn flows_one_by_one_keep_their_places() {
        let first = Flow { start: Instant::from_ns(3), ..Flow::new(0, 1, 10) };
        let second = Flow { after: vec![0], vc: Some(7), ..Flow::new(1, 0, 20) };
        let given = of(Pattern::Flows(vec![first, second]));
        let before = of(Pattern::PointToPoint { from: 1, to: 0, bytes: 5, count: 3 });
        let all = expand(&[before, given], 2, 0).unwrap();
        let afters: Vec<_> = all.iter().map(|flow| flow.after.clone()).collect();
        assert_eq!(afters, [vec![], vec![0], vec![1], vec![], vec![3]]);
        assert_eq!((all[3].start, all[4].start), (Instant::from_ns(8), Instant::from_ns(5)));
        assert_eq!((all[3].vc, all[4].vc, all[4].workload), (Some(2), Some(7), 1));
    }

    #[test]
    fn nothing_begins_so_late_that_it_seems_early() {
        let days = |days: u64| Instant::from_ns(days * 86_400 * 1_000_000_000);
        let late = Flow { start: days(100), ..Flow::new(0, 1, 10) };
        let mut workload = of(Pattern::Flows(vec![late]));
        workload.start = days(90);
        assert_eq!(expand(&[workload], 2, 0).unwrap()[0].start, days(100));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let everyone = Vec::new;
        let load = LinkRate::bps(1).unwrap();
        #[rustfmt::skip] // columns: pattern, hosts, problem
        let cases = [
            (Pattern::Permutation { hosts: everyone(), bytes: 1 },        1, Problem::Few { had: 1 }),
            (Pattern::Permutation { hosts: vec![1, 2, 1], bytes: 1 },     3, Problem::Twice(1)),
            (Pattern::AllToAll { hosts: vec![1, 5], bytes: 1, one_by_one: true }, 3, Problem::Host { host: 5, most: 2 }),
            (Pattern::Incast { from: everyone(), to: 9, bytes: 1 },       3, Problem::Host { host: 9, most: 2 }),
            (Pattern::Incast { from: vec![2], to: 2, bytes: 1 },          3, Problem::Few { had: 1 }),
            (Pattern::PointToPoint { from: 1, to: 1, bytes: 1, count: 1 }, 3, Problem::Twice(1)),
            (Pattern::RingAllReduce { hosts: everyone(), bytes: 2 },      3, Problem::Chunks { bytes: 2, chunks: 3 }),
            (Pattern::RingAllReduce { hosts: everyone(), bytes: 1 << 20 }, 8_192, Problem::Many),
        ];
        for (pattern, hosts, problem) in cases {
            let want = WorkloadError { name: "w".to_owned(), problem };
            assert_eq!(expand(&[of(pattern)], hosts, 1), Err(want));
        }
        let slow = Pattern::Uniform { hosts: everyone(), bytes: 1, load, duration: Span::ZERO };
        assert_eq!(expand(&[of(slow)], 2, 1), Ok(Vec::new()));
    }
}
