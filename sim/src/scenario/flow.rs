//! Flows: messages or connections from one host to another, and the flows that each waits for.
//!
//! A collective operation is a set of flows that wait for each other's predecessors.
//!
//! Source: docs/spec/model.md §3.

use weft_dataplane::time::{Instant, Span};

/// Number of a flow: its index in the list of all.
pub type FlowId = u32;

/// Protocol that carries a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// A message of an RC Link endpoint.
    #[default]
    RcLink,
    /// A TCP connection of its own.
    Tcp {
        /// Time for which it sends as much as possible, whatever [`Flow::bytes`] says; `None`: it sends those bytes.
        lasts: Option<Span>,
    },
}

/// A message or a connection from one host to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Number of the sender, in the order of [`crate::topology::Topology::hosts`].
    pub from: u16,
    /// Number of the receiver, in the same order.
    pub to: u16,
    /// Bytes of payload, at least 1; 0 if the amount is not fixed ([`Carrier::Tcp`]).
    pub bytes: u64,
    /// Earliest time at which it begins.
    pub start: Instant,
    /// Flows that must be done, as its sender sees it, before it begins: delivered if the sender is their receiver,
    /// acknowledged (sent, without acknowledgements) if it is their sender. A host knows of no other flow without a
    /// message.
    pub after: Vec<FlowId>,
    /// Virtual channel; `None`: that of the endpoint's requests.
    pub vc: Option<u8>,
    /// Index of its workload.
    pub workload: u16,
    /// Protocol that carries it.
    pub carrier: Carrier,
}

impl Flow {
    /// A flow over RC Link that begins at once.
    #[must_use]
    pub const fn new(from: u16, to: u16, bytes: u64) -> Self {
        let start = Instant::ZERO;
        let after = Vec::new();
        Self { from, to, bytes, start, after, vc: None, workload: 0, carrier: Carrier::RcLink }
    }

    /// Whether a TCP connection carries it.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        matches!(self.carrier, Carrier::Tcp { .. })
    }
}

/// Why a flow cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// A host at one of its ends does not exist.
    #[error("flow {flow} has host {host} at an end: expected 0 to {most}")]
    Host {
        /// Number of the flow.
        flow: usize,
        /// Number of the host.
        host: u16,
        /// Highest number there is.
        most: usize,
    },
    /// Both ends are the same host.
    #[error("flow {flow} is from host {host} to itself")]
    Own {
        /// Number of the flow.
        flow: usize,
        /// Number of the host.
        host: u16,
    },
    /// It has no bytes to send.
    #[error("flow {flow} has 0 bytes: expected 1 or more")]
    Empty {
        /// Number of the flow.
        flow: usize,
    },
    /// It waits for a flow that does not exist, or that its sender cannot see done.
    #[error(
        "flow {flow} from host {from} waits for flow {after}: expected one that is there and begins or ends at that host"
    )]
    After {
        /// Number of the flow.
        flow: usize,
        /// Number of its sender.
        from: u16,
        /// Number of the flow that it waits for.
        after: FlowId,
    },
    /// Flows wait for each other in a circle.
    #[error("flow {flow} waits for itself, by way of what it waits for")]
    Circle {
        /// Number of one of them.
        flow: usize,
    },
    /// There are too many flows.
    #[error("{0} flows: expected fewer than 2^32")]
    Many(usize),
}

/// Checks flows among `hosts` hosts.
///
/// # Errors
/// The first flow that cannot be, or a circle of flows.
pub fn check(flows: &[Flow], hosts: usize) -> Result<(), FlowError> {
    if u32::try_from(flows.len()).is_err() {
        return Err(FlowError::Many(flows.len()));
    }
    for (flow, it) in flows.iter().enumerate() {
        for host in [it.from, it.to] {
            if usize::from(host) >= hosts {
                return Err(FlowError::Host { flow, host, most: hosts.saturating_sub(1) });
            }
        }
        if it.from == it.to {
            return Err(FlowError::Own { flow, host: it.from });
        }
        if it.bytes == 0 && !matches!(it.carrier, Carrier::Tcp { lasts: Some(_) }) {
            return Err(FlowError::Empty { flow });
        }
        for &after in &it.after {
            let known = flows.get(after as usize);
            if known.is_none_or(|other| other.from != it.from && other.to != it.from) {
                return Err(FlowError::After { flow, from: it.from, after });
            }
        }
    }
    circle(flows).map_or(Ok(()), |flow| Err(FlowError::Circle { flow }))
}

/// A flow that waits for itself over others, if there is one.
fn circle(flows: &[Flow]) -> Option<usize> {
    // If each waits only for earlier ones, there is no circle. That is usual, and saves the search.
    let is_ordered =
        |(id, flow): (usize, &Flow)| flow.after.iter().all(|&other| (other as usize) < id);
    if flows.iter().enumerate().all(is_ordered) {
        return None;
    }
    let mut left: Vec<usize> = flows.iter().map(|flow| flow.after.len()).collect();
    let mut waiting: Vec<(FlowId, usize)> = Vec::new();
    for (id, flow) in flows.iter().enumerate() {
        waiting.extend(flow.after.iter().map(|&other| (other, id)));
    }
    waiting.sort_unstable();
    // Flows that can be done are taken away one by one (Kahn's algorithm); flows that remain wait in a circle.
    let mut open: Vec<usize> = (0..flows.len()).filter(|&id| left.get(id) == Some(&0)).collect();
    while let Some(done) = open.pop() {
        let first = waiting.partition_point(|&(other, _)| (other as usize) < done);
        for &(_, waiter) in
            waiting.iter().skip(first).take_while(|&&(other, _)| other as usize == done)
        {
            if let Some(count) = left.get_mut(waiter) {
                *count -= 1;
                if *count == 0 {
                    open.push(waiter);
                }
            }
        }
    }
    left.iter().position(|&count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(from: u16, to: u16, after: &[FlowId]) -> Flow {
        Flow { after: after.to_vec(), ..Flow::new(from, to, 1) }
    }

    #[test]
    fn flows_that_cannot_be_are_refused() {
        let empty = Flow { bytes: 0, ..flow(0, 1, &[]) };
        #[rustfmt::skip] // columns: name, flows, error
        let cases = [
            ("none",            vec![],                                                Ok(())),
            ("delivered first", vec![flow(0, 1, &[]), flow(1, 2, &[0])],               Ok(())),
            ("sent first",      vec![flow(0, 1, &[]), flow(0, 2, &[0])],               Ok(())),
            ("a later one",     vec![flow(0, 1, &[1]), flow(1, 0, &[])],               Ok(())),
            ("no host",         vec![flow(0, 3, &[])],          Err(FlowError::Host { flow: 0, host: 3, most: 2 })),
            ("to itself",       vec![flow(2, 2, &[])],          Err(FlowError::Own { flow: 0, host: 2 })),
            ("empty",           vec![empty],                    Err(FlowError::Empty { flow: 0 })),
            ("elsewhere",       vec![flow(0, 1, &[]), flow(2, 0, &[0])], Err(FlowError::After { flow: 1, from: 2, after: 0 })),
            ("no flow",         vec![flow(0, 1, &[7])],         Err(FlowError::After { flow: 0, from: 0, after: 7 })),
            ("itself",          vec![flow(0, 1, &[0])],         Err(FlowError::Circle { flow: 0 })),
            ("circle",          vec![flow(0, 1, &[]), flow(0, 1, &[2]), flow(1, 0, &[1])], Err(FlowError::Circle { flow: 1 })),
        ];
        for (name, flows, want) in cases {
            assert_eq!(check(&flows, 3), want, "{name}");
        }
    }
}
