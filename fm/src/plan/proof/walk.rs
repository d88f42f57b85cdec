//! Follows packets through the tables, and collects which channels they wait for.
//!
//! [`Walk`] follows the entries for one destination at a time, from every switch at which packets start, and collects
//! for each of the [`Channels`] of a graph the ports that packets in it wait for.
//!
//! Source: Dally and Seitz, IEEE Trans. Computers C-36(5), 1987 (channel dependency graph); docs/spec/cxl-fabric.md
//! "Routes".

use weft_parsers::fabric::Pid;

use super::fault::{Channel, Fault};
use crate::model::graph::{Endpoint, Graph, Key, Per, PortMask, PortRef, PortUse, SwitchId};
use crate::plan::order::Order;
use crate::plan::tables::Tables;

/// Entry of [`Channels::out`] for a port that is no way out.
const NONE: usize = usize::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelId(usize);

impl Key for ChannelId {
    #[inline]
    fn index(self) -> usize {
        self.0
    }

    #[inline]
    fn at(index: usize) -> Self {
        Self(index)
    }
}

/// All channels of the links and switches that work.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    pub list: Per<ChannelId, Channel>,
    /// Channel by the port it leaves by, or [`NONE`].
    out: Per<SwitchId, Vec<usize>>,
    /// Switches with endpoints, at which packets start.
    pub sources: Vec<SwitchId>,
    /// The connected part of the fabric that a switch is in, named by its lowest switch.
    part: Per<SwitchId, usize>,
}

impl Channels {
    pub fn new(graph: &Graph) -> Self {
        let mut list: Per<ChannelId, Channel> = Per::default();
        let mut out = Per::default();
        for switch in graph.switches() {
            let mut leave = Vec::new();
            for (port, what) in graph.ports(switch).filter(|_| graph.is_up(switch)) {
                let at = PortRef::new(switch, port);
                let channel = match what {
                    PortUse::Free => continue,
                    PortUse::Isl { .. } => match graph.far(at) {
                        Some(to) => Channel::Isl { from: at, to },
                        None => continue,
                    },
                    PortUse::Edge | PortUse::LocalRange => {
                        // An endpoint sends and receives; only the channel out is one that a packet can wait for.
                        list.push(Channel::In(at));
                        Channel::Out(at)
                    }
                };
                leave.resize(usize::from(port) + 1, NONE);
                if let Some(place) = leave.last_mut() {
                    *place = list.push(channel).index();
                }
            }
            out.push(leave);
        }
        let mut sources: Vec<SwitchId> =
            graph.endpoints().map(|end| end.at.switch).filter(|&s| graph.is_up(s)).collect();
        sources.sort_unstable();
        sources.dedup();
        Self { list, out, sources, part: Self::parts(graph) }
    }

    fn parts(graph: &Graph) -> Per<SwitchId, usize> {
        let mut part = Per::new(graph.switch_count(), NONE);
        for start in graph.switches() {
            let mut found = vec![start];
            while let Some(switch) = found.pop() {
                if part[switch] != NONE {
                    continue;
                }
                part[switch] = start.index();
                for (port, _) in graph.ports(switch) {
                    found.extend(graph.far(PortRef::new(switch, port)).map(|far| far.switch));
                }
            }
        }
        part
    }

    /// The channel that leaves a switch by a port.
    #[inline]
    pub fn leaving(&self, at: SwitchId, port: u8) -> Option<ChannelId> {
        let &id = self.out[at].get(usize::from(port))?;
        (id != NONE).then_some(ChannelId(id))
    }

    /// The switch whose tables decide which channel packets in this one wait for.
    #[inline]
    pub fn head(&self, channel: ChannelId) -> Option<SwitchId> {
        match self.list[channel] {
            Channel::In(at) => Some(at.switch),
            Channel::Isl { to, .. } => Some(to.switch),
            Channel::Out(_) => None,
        }
    }

    /// Whether working links join two switches.
    pub fn connected(&self, a: SwitchId, b: SwitchId) -> bool {
        self.part[a] == self.part[b]
    }
}

/// State of a switch while packets to one destination are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Ports that packets wait for there.
    ports: PortMask,
    /// Most hops from there to the destination.
    hops: u32,
    /// Hops of static messages from there.
    static_hops: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unseen,
    Open,
    Done,
}

/// Ports by which packets may leave a switch; `None` when the entry names a group that does not exist.
fn ports_of(tables: &Tables, at: SwitchId, to: Pid) -> Option<PortMask> {
    tables.get(at).map_or(Some(PortMask::EMPTY), |tables| tables.ports(to))
}

/// Statistics of a walk over routing tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ordered pairs of a switch with PIDs and a PID that it reaches.
    pub routes: u64,
    /// Most hops that any packet can take.
    pub hops_max: u32,
    /// Most hops of static messages.
    pub static_hops_max: u32,
    /// Hops of static messages over all routes.
    pub static_hops: u64,
}

/// The waits of packets, collected destination by destination.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    graph: &'a Graph,
    channels: &'a Channels,
    /// Ports that packets in a channel wait for at its head.
    turns: Per<ChannelId, PortMask>,
    /// The same for the channels into the fabric at a switch: they share one set, as their packets meet the same
    /// entries.
    starts: Per<SwitchId, PortMask>,
    seen: Per<SwitchId, Seen>,
    /// Ports by old and by new entries, for [`mix`](Self::mix).
    ways: Per<SwitchId, (PortMask, PortMask)>,
    stack: Vec<(SwitchId, PortMask)>,
    pub counts: Counts,
}

/// For every switch, its ports that lead up.
#[derive(Clone, Debug)]
pub(crate) struct UpPorts(Per<SwitchId, PortMask>);

impl UpPorts {
    pub fn new(graph: &Graph, order: &Order) -> Self {
        let of = |at: SwitchId| {
            let leads_up = |port: &u8| {
                let far = graph.far(PortRef::new(at, *port));
                far.is_some_and(|far| order.leads_up(at, far.switch))
            };
            graph.ports(at).map(|(port, _)| port).filter(leads_up).collect()
        };
        Self(graph.switches().map(of).collect())
    }
}

impl<'a> Walk<'a> {
    pub fn new(graph: &'a Graph, channels: &'a Channels) -> Self {
        Self {
            graph,
            channels,
            turns: Per::new(channels.list.len(), PortMask::EMPTY),
            starts: Per::new(graph.switch_count(), PortMask::EMPTY),
            seen: Per::new(graph.switch_count(), Seen::default()),
            ways: Per::new(graph.switch_count(), Default::default()),
            stack: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Follows packets to `to` from all switches at which packets start; all must arrive.
    pub fn follow(&mut self, tables: &Tables, to: Pid) -> Result<(), Fault> {
        let end = self.graph.endpoint(to).filter(|end| self.graph.is_up(end.at.switch));
        // Reused from one destination to the next, of which there are 4,095.
        self.seen.fill(Seen::default());
        self.stack.clear();
        let channels = self.channels;
        for &source in &channels.sources {
            if self.seen[source].state == State::Unseen {
                self.visit(tables, to, end, source)?;
            }
            let seen = self.seen[source];
            self.starts[source] = self.starts[source].or(seen.ports);
            if !seen.ports.is_empty() {
                self.counts.routes += 1;
                self.counts.hops_max = self.counts.hops_max.max(seen.hops);
                self.counts.static_hops_max = self.counts.static_hops_max.max(seen.static_hops);
                self.counts.static_hops += u64::from(seen.static_hops);
            }
        }
        Ok(())
    }

    /// Depth first from `source`, which is unseen; every switch is entered once.
    fn visit(
        &mut self,
        tables: &Tables,
        to: Pid,
        end: Option<Endpoint>,
        source: SwitchId,
    ) -> Result<(), Fault> {
        self.open(tables, to, end, source)?;
        while let Some(&(at, rest)) = self.stack.last() {
            let Some(port) = rest.first() else {
                self.seen[at].state = State::Done;
                self.stack.pop();
                continue;
            };
            let channel = self.channels.leaving(at, port);
            if let Some(id) = channel
                && let Channel::Isl { to: far, .. } = self.channels.list[id]
            {
                let next = self.seen[far.switch];
                match next.state {
                    State::Unseen => {
                        self.open(tables, to, end, far.switch)?;
                        continue;
                    }
                    // A switch that is still on the stack: the entries lead in a loop.
                    State::Open => return Err(Fault::Loop { to, at: far.switch }),
                    State::Done => {}
                }
                // Set when the far switch is done, whose ports are then known.
                self.turns[id] = self.turns[id].or(next.ports);
                let here = &mut self.seen[at];
                here.hops = here.hops.max(next.hops + 1);
                if tables.get(at).and_then(|tables| tables.static_port(to)) == Some(port) {
                    here.static_hops = next.static_hops + 1;
                }
            } else if end.is_none_or(|end| end.at != PortRef::new(at, port)) {
                // No link, so it must be the port of the endpoint itself.
                return Err(Fault::Misled { to, at: PortRef::new(at, port) });
            }
            if let Some((_, rest)) = self.stack.last_mut() {
                rest.remove(port);
            }
        }
        Ok(())
    }

    #[inline] // in the loop over all switches of `visit`, for each destination
    fn open(
        &mut self,
        tables: &Tables,
        to: Pid,
        end: Option<Endpoint>,
        at: SwitchId,
    ) -> Result<(), Fault> {
        let ports = ports_of(tables, at, to).ok_or(Fault::NoGroup { to, at })?;
        // Where links lead to the destination a switch must have an entry, and nowhere else.
        let way = end.is_some_and(|end| self.channels.connected(at, end.at.switch));
        if way && ports.is_empty() {
            return Err(Fault::Lost { to, at });
        }
        if !way && !ports.is_empty() {
            return Err(Fault::Stray { to, at });
        }
        // At the endpoint's own switch every port must be the endpoint's.
        if let Some(end) = end.filter(|end| end.at.switch == at)
            && let Some(port) = ports.iter().find(|&port| port != end.at.port)
        {
            return Err(Fault::Misled { to, at: PortRef::new(at, port) });
        }
        self.seen[at] = Seen { ports, state: State::Open, ..Seen::default() };
        self.stack.push((at, ports));
        Ok(())
    }

    /// Most hops to `to` from each switch; 0 where there is no way.
    pub fn hops(&mut self, tables: &Tables, to: Pid) -> Result<Per<SwitchId, u32>, Fault> {
        let end = self.graph.endpoint(to).filter(|end| self.graph.is_up(end.at.switch));
        self.seen.fill(Seen::default());
        self.stack.clear();
        for at in self.graph.switches().filter(|&at| self.graph.is_up(at)) {
            let is_new = self.seen[at].state == State::Unseen;
            if is_new && ports_of(tables, at, to).is_none_or(|ports| !ports.is_empty()) {
                self.visit(tables, to, end, at)?;
            }
        }
        Ok(self.seen.values().map(|seen| seen.hops).collect())
    }

    /// Follows packets to `to` while entries change from `old` to `new`, each switch after all switches that its new
    /// entry leads to. A packet that came by an old entry may go on by an old or a new one; one that came by an entry
    /// that only `new` has goes on by `new`.
    ///
    /// Packets may end where an entry or a link is missing. Returns whether no packet goes up after it went down.
    pub fn mix(&mut self, old: &Tables, new: &Tables, ups: &UpPorts, to: Pid) -> bool {
        let mut is_legal = true;
        self.seen.fill(Seen::default());
        self.stack.clear();
        let channels = self.channels;
        // Looked up once for each switch, not for each link that leads to it.
        for at in self.graph.switches() {
            let of = |tables| ports_of(tables, at, to).unwrap_or_default();
            self.ways[at] = (of(old), of(new));
        }
        for &source in &channels.sources {
            let (before, after) = self.ways[source];
            self.starts[source] = self.starts[source].or(before).or(after);
            self.stack.push((source, PortMask::EMPTY));
        }
        while let Some((at, _)) = self.stack.pop() {
            if self.seen[at].state == State::Done {
                continue;
            }
            self.seen[at].state = State::Done;
            let (before, after) = self.ways[at];
            for port in before.or(after).iter() {
                if let Some(id) = channels.leaving(at, port)
                    && let Channel::Isl { to: far, .. } = channels.list[id]
                {
                    let (old_next, next) = self.ways[far.switch];
                    // By a port that only the new entry has, the far switch was changed before: its old entry is no
                    // longer in force.
                    let more = if before.contains(port) { old_next } else { PortMask::EMPTY };
                    let onward = next.or(more);
                    self.turns[id] = self.turns[id].or(onward);
                    // A link that leads down, followed by one that leads up, is the turn that up*/down* forbids.
                    is_legal &= ups.0[at].contains(port) || !onward.meets(ups.0[far.switch]);
                    if self.seen[far.switch].state != State::Done {
                        self.stack.push((far.switch, PortMask::EMPTY));
                    }
                }
            }
        }
        is_legal
    }

    /// Channels that packets in a channel wait for.
    pub fn wanted(&self, held: ChannelId) -> impl Iterator<Item = ChannelId> {
        let head = self.channels.head(held);
        let ports = match self.channels.list[held] {
            Channel::In(at) => self.starts[at.switch],
            Channel::Isl { .. } => self.turns[held],
            Channel::Out(_) => PortMask::EMPTY,
        };
        ports.iter().filter_map(move |port| self.channels.leaving(head?, port))
    }

    /// All channels, each before every channel that its packets wait for; a cycle of waiting is a [`Fault`].
    pub fn order(&self) -> Result<Vec<ChannelId>, Fault> {
        let mut waited_for = Per::<ChannelId, u32>::new(self.channels.list.len(), 0);
        for held in self.channels.list.keys() {
            self.wanted(held).for_each(|wanted| waited_for[wanted] += 1);
        }
        // Kahn's topological sort; a rest that never reaches 0 is on or behind a cycle.
        let mut order: Vec<ChannelId> =
            waited_for.iter().filter(|(_, count)| **count == 0).map(|(id, _)| id).collect();
        let mut at = 0;
        while let Some(&held) = order.get(at) {
            at += 1;
            for wanted in self.wanted(held) {
                waited_for[wanted] -= 1;
                if waited_for[wanted] == 0 {
                    order.push(wanted);
                }
            }
        }
        if order.len() == self.channels.list.len() {
            Ok(order)
        } else {
            Err(self.circle(&waited_for))
        }
    }

    /// Finds a cycle among the channels that the sort left over.
    fn circle(&self, waited_for: &Per<ChannelId, u32>) -> Fault {
        let mut state = Per::<ChannelId, State>::new(self.channels.list.len(), State::Unseen);
        // Channels behind a cycle are left over as well, so the first start need not lie on one.
        for start in self.channels.list.keys().filter(|&id| waited_for[id] > 0) {
            let mut path = vec![(start, self.wanted(start))];
            state[start] = State::Open;
            while let Some((held, rest)) = path.last_mut() {
                let held = *held;
                let Some(wanted) = rest.next() else {
                    state[held] = State::Done;
                    path.pop();
                    continue;
                };
                match state[wanted] {
                    State::Done => {}
                    State::Unseen => {
                        state[wanted] = State::Open;
                        path.push((wanted, self.wanted(wanted)));
                    }
                    State::Open => {
                        let ids = path.iter().map(|(id, _)| *id).skip_while(|&id| id != wanted);
                        return Fault::Circle(ids.map(|id| self.channels.list[id]).collect());
                    }
                }
            }
        }
        Fault::Circle(Vec::new())
    }
}
