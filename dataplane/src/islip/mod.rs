//! iSLIP: which input sends to which output in a slot of the crossbar.
//!
//! [`Requests`] (per output and priority, the inputs that ask) in, [`Matches`] out. [`Islip`] keeps
//! the grant and accept pointers per (priority, port), and the weights that are left of each
//! output's round.
//!
//! Units: slots; iterations 1..=4; weights in matches of a round.
//! Source: McKeown, "The iSLIP Scheduling Algorithm", IEEE/ACM Trans. Networking 7(2), 1999, §II to
//! §V (priorities: §V-A); docs/spec/pipeline.md §6.

use crate::types::{PORTS_MAX, PerPort, PerPri, PortId, PortSet, Pri, PriSet, QueueKey};

/// Most iterations of request, grant and accept in a slot.
pub const ITERATIONS_MAX: u32 = 4;

/// How an output chooses among the priorities that are asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// The highest first, always; lower ones may starve.
    Strict,
    /// The highest that has weight left in this output's round; a weight of 0 counts as 1.
    ///
    /// A match uses 1. When no priority that asks has any left, the output's next round begins.
    Weighted(PerPri<u32>),
}

/// Requests of a slot: for each output and priority, the inputs with a frame to send.
///
/// The caller leaves out paused queues and outputs without room. It may keep one value and update
/// it as queues fill and empty, or rebuild it each slot; [`Islip::slot`] only reads it.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    inputs: PerPort<PerPri<PortSet>>,
    pris: PerPort<PriSet>,
    active: PortSet,
}

impl Requests {
    /// An empty set of requests.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Withdraws all requests; the cost grows with the requests that are set, not with the ports.
    #[inline]
    pub fn clear(&mut self) {
        // `inputs` has 512 words, of which a slot with little traffic sets a few: `active` and
        // `pris` say which.
        for output in self.active.iter() {
            for pri in self.pris[output].iter() {
                self.inputs[output][pri] = PortSet::EMPTY;
            }
            self.pris[output] = PriSet::EMPTY;
        }
        self.active = PortSet::EMPTY;
    }

    /// Makes `inputs` the only ones that ask `output` at `pri`; the empty set withdraws their
    /// requests.
    #[inline]
    pub fn set(&mut self, output: PortId, pri: Pri, inputs: PortSet) {
        self.inputs[output][pri] = inputs;
        if !inputs.is_empty() {
            self.pris[output].insert(pri);
            self.active.insert(output);
        } else if !self.pris[output].is_empty() {
            self.pris[output].remove(pri);
            if self.pris[output].is_empty() {
                self.active.remove(output);
            }
        }
    }

    /// Adds a request of `input` to `output` at `pri`.
    #[inline]
    pub fn add(&mut self, QueueKey { input, output, pri }: QueueKey) {
        self.inputs[output][pri].insert(input);
        self.pris[output].insert(pri);
        self.active.insert(output);
    }

    /// Withdraws the request of `input` to `output` at `pri`.
    #[inline]
    pub fn remove(&mut self, QueueKey { input, output, pri }: QueueKey) {
        let mut inputs = self.inputs[output][pri];
        inputs.remove(input);
        self.set(output, pri, inputs);
    }

    /// Inputs that ask `output` at `pri`.
    #[inline]
    #[must_use]
    pub fn voq(&self, output: PortId, pri: Pri) -> PortSet {
        self.inputs[output][pri]
    }

    /// Priorities at which any input asks `output`.
    #[inline]
    #[must_use]
    pub fn pris(&self, output: PortId) -> PriSet {
        self.pris[output]
    }

    /// Outputs with at least one request.
    #[inline]
    #[must_use]
    pub const fn active(&self) -> PortSet {
        self.active
    }

    /// Whether there is no request.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.active.is_empty()
    }
}

/// One crosspoint that a slot closes: `input` sends from its VOQ of (`output`, `pri`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Match {
    /// Port that the frames came in by; matched at most once a slot.
    pub input: PortId,
    /// Port that the frames leave by; matched at most once a slot.
    pub output: PortId,
    /// Priority of the VOQ that sends.
    pub pri: Pri,
    /// Iteration that made this match, from 0; pointers moved only for 0.
    pub iteration: u8,
}

/// The matches of a slot, in the order they were made; each input and output is in at most one.
#[derive(Clone, Debug)]
pub struct Matches {
    made: [Match; PORTS_MAX],
    len: usize,
}

impl Default for Matches {
    fn default() -> Self {
        Self::new()
    }
}

impl Matches {
    /// An empty list, with room for a match of each port.
    #[must_use]
    pub fn new() -> Self {
        Self { made: [Match::default(); PORTS_MAX], len: 0 }
    }

    /// The matches as a slice.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Match] {
        self.made.get(..self.len).unwrap_or_default()
    }

    /// The match at index `place`, in the order in which they were made.
    #[inline]
    #[must_use]
    pub fn get(&self, place: usize) -> Option<Match> {
        self.as_slice().get(place).copied()
    }

    /// The matches, in the order they were made.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Match> {
        self.as_slice().iter().copied()
    }

    /// Number of matches, at most one for each port.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the slot moves nothing.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties the list for the next slot.
    #[inline]
    pub const fn clear(&mut self) {
        self.len = 0;
    }
}

/// The best grants that an input holds: outputs that granted at `pri`, the highest granted
/// priority. Empty between iterations.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    outputs: PortSet,
    pri: Pri,
}

impl Offer {
    /// Adds a grant, unless one of a higher priority is held. Without a branch, because which
    /// outputs grant the same input cannot be predicted.
    #[inline]
    #[expect(
        clippy::needless_bitwise_bool,
        reason = "measured: || makes the 64-port slot a quarter slower"
    )]
    fn add(&mut self, output: PortId, pri: Pri) {
        let worse = self.outputs.is_empty() | (self.pri < pri);
        let held = if worse { PortSet::EMPTY } else { self.outputs };
        let new = PortSet::only(output);
        self.outputs = held.or(if worse | (self.pri == pri) { new } else { PortSet::EMPTY });
        self.pri = if worse { pri } else { self.pri };
    }
}

/// The highest of `pris` at which any of `inputs` asks, and the inputs that do.
#[inline]
fn highest(pris: PriSet, asking: &PerPri<PortSet>, inputs: PortSet) -> Option<(Pri, PortSet)> {
    pris.iter_down()
        .map(|pri| (pri, asking[pri].and(inputs)))
        .find(|(_, asking)| !asking.is_empty())
}

/// The matches that an output may still grant to each priority in its round, if weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    left: PerPri<u32>,
    open: PriSet, // priorities with `left` above 0
}

impl Round {
    const fn new(weights: PerPri<u32>) -> Self {
        Self { left: weights, open: PriSet::first(8) }
    }

    /// As [`highest`], among those with weight left; begins the next round when none of them asks.
    #[inline]
    fn highest(
        &mut self,
        pris: PriSet,
        asking: &PerPri<PortSet>,
        inputs: PortSet,
        weights: PerPri<u32>,
    ) -> Option<(Pri, PortSet)> {
        highest(pris.and(self.open), asking, inputs).or_else(|| {
            // Without any request no round ends: an output that is idle for a slot would otherwise
            // begin a new one, in which priorities that have used their weight may send again.
            let pick = highest(pris, asking, inputs)?;
            *self = Self::new(weights);
            Some(pick)
        })
    }

    /// Uses one match of `pri`.
    #[inline]
    fn charge(&mut self, pri: Pri) {
        self.left[pri] = self.left[pri].saturating_sub(1);
        if self.left[pri] == 0 {
            self.open.remove(pri);
        }
    }
}

/// The crossbar's scheduler: pointers and rounds that last from slot to slot.
///
/// ```
/// use weft_dataplane::islip::{Discipline, Islip, Matches, Requests};
/// use weft_dataplane::types::{PortId, Pri, QueueKey};
///
/// let port = |n| PortId::new(n).unwrap();
/// let mut crossbar = Islip::new(4, 4, 2, Discipline::Strict);
/// let mut requests = Requests::new();
/// requests.add(QueueKey { input: port(0), output: port(2), pri: Pri::ALL[1] });
/// requests.add(QueueKey { input: port(0), output: port(3), pri: Pri::ALL[3] });
/// let mut matches = Matches::new();
/// crossbar.slot(&requests, &mut matches);
/// assert_eq!(matches.as_slice()[0].output, port(3)); // the higher priority
/// assert_eq!(matches.len(), 1); // input 0 sends once a slot
/// ```
#[derive(Clone, Debug)]
pub struct Islip {
    grant_ptr: PerPort<PerPri<PortId>>, // [output][pri]: first input to look at
    accept_ptr: PerPort<PerPri<PortId>>, // [input][pri]: first output to look at
    offers: PerPort<Offer>,             // by input; meaningful within one iteration
    rounds: PerPort<Round>,             // by output
    weights: Option<PerPri<u32>>,       // none: strict
    ports: usize,
    pris: PriSet,
    iterations: u32,
}

impl Islip {
    /// A crossbar of `ports` inputs and outputs, all pointers at port 0.
    ///
    /// # Panics
    /// When `ports` is not in 1..=64, `pris` not in 1..=8 or `iterations` not in 1..=4.
    #[must_use]
    pub fn new(ports: usize, pris: usize, iterations: u32, discipline: Discipline) -> Self {
        assert!((1..=PORTS_MAX).contains(&ports), "ports is 1..=64, not {ports}");
        assert!((1..=Pri::ALL.len()).contains(&pris), "pris is 1..=8, not {pris}");
        let mut crossbar = Self {
            grant_ptr: PerPort::default(),
            accept_ptr: PerPort::default(),
            offers: PerPort::default(),
            rounds: PerPort::default(),
            weights: None,
            ports,
            pris: PriSet::first(pris),
            iterations: 1,
        };
        crossbar.set_iterations(iterations);
        crossbar.set_discipline(discipline);
        crossbar
    }

    /// Changes the number of iterations from the next slot on.
    ///
    /// # Panics
    /// When `iterations` is not in 1..=4.
    pub fn set_iterations(&mut self, iterations: u32) {
        assert!((1..=ITERATIONS_MAX).contains(&iterations), "1..=4 iterations, not {iterations}");
        self.iterations = iterations;
    }

    /// Changes the discipline from the next slot on; if weighted, each output begins a new round.
    pub fn set_discipline(&mut self, discipline: Discipline) {
        self.weights = match discipline {
            Discipline::Strict => None,
            Discipline::Weighted(weights) => Some(PerPri(weights.0.map(|w| w.max(1)))),
        };
        if let Some(weights) = self.weights {
            for output in PortSet::first(PORTS_MAX).iter() {
                self.rounds[output] = Round::new(weights); // in place: a reload allocates nothing
            }
        }
    }

    /// Ports of the switch: each is an input and an output.
    #[must_use]
    pub const fn ports(&self) -> usize {
        self.ports
    }

    /// Iterations of request, grant and accept in a slot, 1..=4.
    #[must_use]
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Replaces `matches` by those of the next slot.
    ///
    /// Requests of ports and priorities that this crossbar does not have are ignored.
    #[inline]
    pub fn slot(&mut self, requests: &Requests, matches: &mut Matches) {
        matches.clear();
        if requests.is_empty() {
            return;
        }
        match self.weights {
            None => self.slot_of::<false>(PerPri::default(), requests, matches),
            Some(weights) => self.slot_of::<true>(weights, requests, matches),
        }
    }

    /// Whether the highest priority always goes first.
    #[inline]
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.weights.is_none()
    }

    /// The match of a slot with a single request, under strict priority; `None` if there is no such
    /// port or priority. It leaves the pointers as [`Self::slot`] would.
    #[inline]
    #[must_use]
    pub fn slot_of_one(&mut self, QueueKey { input, output, pri }: QueueKey) -> Option<Match> {
        let ports = PortSet::first(self.ports);
        if !(ports.contains(input) && ports.contains(output) && self.pris.contains(pri)) {
            return None;
        }
        self.grant_ptr[output][pri] = self.after(input);
        self.accept_ptr[input][pri] = self.after(output);
        Some(Match { input, output, pri, iteration: 0 })
    }

    fn slot_of<const WEIGHTED: bool>(
        &mut self,
        weights: PerPri<u32>,
        requests: &Requests,
        matches: &mut Matches,
    ) {
        let ports = PortSet::first(self.ports);
        let mut outputs = requests.active.and(ports);
        let mut inputs = ports;
        for (_, iteration) in (0..self.iterations).zip(0_u8..) {
            // Free inputs only become fewer within a slot: an output without a request in this
            // iteration has none in the next ones, so `asked` is all that they need to look at.
            let mut asked = PortSet::EMPTY;
            let mut granted = PortSet::EMPTY;
            for output in outputs.iter() {
                let pris = requests.pris[output].and(self.pris);
                let of_output = &requests.inputs[output];
                let pick = if WEIGHTED {
                    self.rounds[output].highest(pris, of_output, inputs, weights)
                } else {
                    highest(pris, of_output, inputs)
                };
                let Some((pri, asking)) = pick else { continue };
                if let Some(input) = asking.next_from(self.grant_ptr[output][pri]) {
                    asked.insert(output);
                    granted.insert(input);
                    self.offers[input].add(output, pri);
                }
            }
            let taken = self.accept::<WEIGHTED>(granted, iteration, matches);
            outputs = asked.without(taken);
            // An input with any grant accepts one, so it is matched now. An output whose grant was
            // not accepted tries again.
            inputs = inputs.without(granted);
            if outputs.is_empty() {
                break;
            }
        }
    }

    /// Each of `granted` accepts one of its grants; returns the outputs that this matches.
    #[inline]
    fn accept<const WEIGHTED: bool>(
        &mut self,
        granted: PortSet,
        iteration: u8,
        matches: &mut Matches,
    ) -> PortSet {
        let mut taken = PortSet::EMPTY;
        let free = matches.made.get_mut(matches.len..).unwrap_or_default();
        debug_assert!(granted.len() <= free.len(), "an input is matched at most once a slot");
        for (input, made) in granted.iter().zip(free) {
            // `take` empties the offer for the next iteration.
            let Offer { outputs, pri } = core::mem::take(&mut self.offers[input]);
            let from = self.accept_ptr[input][pri];
            let output = outputs.next_from(from).unwrap_or_default(); // never empty: it was granted
            taken.insert(output);
            *made = Match { input, output, pri, iteration };
            // Both pointers move past an accepted match, and only in the first iteration: a request
            // that has lost keeps its place in front until it wins. If later iterations moved
            // pointers, too, a VOQ could be passed over for ever (McKeown 1999;
            // docs/spec/pipeline.md §6).
            if iteration == 0 {
                self.grant_ptr[output][pri] = self.after(input);
                self.accept_ptr[input][pri] = self.after(output);
            }
            if WEIGHTED {
                // At the match, not at the grant: a grant that is not accepted sends nothing.
                self.rounds[output].charge(pri);
            }
        }
        matches.len += granted.len();
        taken
    }

    /// The port after `port`, going round.
    #[inline]
    fn after(&self, port: PortId) -> PortId {
        let next = PortId::new(port.index() + 1);
        next.filter(|next| next.index() < self.ports).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
