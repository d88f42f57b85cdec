//! Cost of a network in virtual time.
//!
//! [`Work`] → [`run`] → [`Cost`]; [`calibrate`] tells how fast the machine is. Times are seconds of
//! wall clock; a frame-hop is a frame that a switch sent; instructions are those that valgrind
//! counts.
//!
//! Source: docs/spec/model-reference.md "13. Speed": the times of csg-htsim on such a machine.

use std::process::Command;

use weft_dataplane::config::SwitchConfig;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::Alpha;
use weft_hosts::frames::Kind;
use weft_hosts::rclink::endpoint::Transport;
use weft_sim::network::{Network, NetworkError, NetworkSpec};
use weft_sim::scenario::flow::Flow;
use weft_sim::setup::Setup;
use weft_sim::switch::SwitchTiming;
use weft_sim::topology::Topology;

/// Bytes of payload of a frame.
const PAYLOAD: u64 = 1_344;

/// Sender and receiver of each flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each host to the one half of all hosts further.
    Permutation,
    /// All hosts to the first.
    Incast,
    /// A ring all-reduce: chunk after chunk to the next host.
    Ring,
}

/// Size and traffic of a network to run.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Pattern of the flows.
    pub pattern: Pattern,
    /// Hosts: up to 64 at one switch, else on a fat tree.
    pub hosts: usize,
    /// Frames of each flow.
    pub frames: u64,
    pub threads: usize,
}

/// Counts and duration of a run.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Frames that switches sent.
    pub hops: u64,
    /// Data frames that came to their receivers.
    pub delivered: u64,
    /// Seconds of the run, without building.
    pub seconds: f64,
    /// Whether all messages are done.
    pub done: bool,
}

/// Cells of 256 bytes at which an input sends PAUSE, and the distance below them at which its peer
/// may go on: 15 and 12 packets of 4,064 bytes, as in the runs of csg-htsim.
const XOFF_CELLS: u32 = 15 * 4_064 / 256;
const XON_OFFSET_CELLS: u32 = 3 * 4_064 / 256;

/// Makes each input pause at [`XOFF_CELLS`] of its own: DT with alpha 1/256 in a shared buffer 256
/// times as large.
fn thresholds(config: &mut SwitchConfig) {
    let (lossless, buffer) = (config.pfc.lossless, &mut config.buffer);
    for pri in lossless.iter() {
        buffer.alpha[pri] = Alpha::shift(-8);
    }
    (buffer.pg_reserve_cells, buffer.xon_offset_cells) = (0, XON_OFFSET_CELLS);
    let headroom: u32 = buffer.headroom_cells.iter().sum();
    buffer.total_cells = lossless.iter().map(|_| headroom).sum::<u32>() + XOFF_CELLS * 256 + 255;
}

/// The network of `work`: 400G, 10 m, switches of 300 ns with PFC at the thresholds of csg-htsim's
/// runs and no ECN, as there (no rate is controlled: each mark would be one frame more), Standard
/// frames, and endpoints that wait for an ACK for 67 ms.
fn network(work: Work) -> Result<Network, NetworkError> {
    let Work { hosts, frames, .. } = work;
    let topology = if hosts <= 64 { Topology::single(hosts)? } else { Topology::fat_tree(hosts)? };
    let setup =
        Setup { rate: LinkRate::gbps(400), buffer_bytes: 16 << 20, ecn: false, ..Setup::new(1, 4) };
    let spec = NetworkSpec {
        topology,
        setup,
        around: SwitchTiming { fronts: true, ..SwitchTiming::default() },
        kind: Kind::Standard,
        endpoint_delay: Span::from_ns(60),
    };
    let number = |host: usize| u16::try_from(host % hosts).unwrap_or_default();
    let bytes = PAYLOAD * frames;
    let flows = match work.pattern {
        Pattern::Permutation => (0..hosts)
            .map(|from| Flow::new(number(from), number(from + hosts / 2), bytes))
            .collect(),
        Pattern::Incast => (1..hosts).map(|from| Flow::new(number(from), 0, bytes)).collect(),
        Pattern::Ring => ring(hosts, bytes),
    };
    // PFC loses no frame, so that no timer may expire for one that waits in a queue.
    let patient = Transport::Reliable { timeout: Span::from_ns(4_096 << 14) };
    Network::new(&spec, flows, thresholds, |endpoint| endpoint.transport = patient)
}

/// The flows of a ring all-reduce: in each of 2 (N - 1) steps a host sends on the chunk that it
/// received in the step before.
fn ring(hosts: usize, bytes: u64) -> Vec<Flow> {
    let mut flows = Vec::with_capacity(hosts * 2 * (hosts - 1));
    for step in 0..2 * (hosts - 1) {
        for from in 0..hosts {
            let [from_16, to] = [from, (from + 1) % hosts].map(|n| u16::try_from(n).unwrap_or(0));
            let mut flow = Flow::new(from_16, to, bytes);
            if let Some(before) = step.checked_sub(1) {
                let left = (from + hosts - 1) % hosts;
                flow.after = vec![u32::try_from(before * hosts + left).unwrap_or(u32::MAX)];
            }
            flows.push(flow);
        }
    }
    flows
}

/// Runs a work to its end, or for a second of virtual time.
///
/// # Errors
/// A network that cannot be built.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub fn run(work: Work) -> Result<Cost, NetworkError> {
    let mut network = network(work)?;
    let start = std::time::Instant::now();
    // in pieces, so that the clock stops soon after the last message
    let mut end = Instant::ZERO;
    while !network.is_idle() && end < Instant::from_ns(1_000_000_000) {
        end += Span::from_us(200);
        if network.run(end, work.threads).is_err() {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let hops = network.ledgers().iter().map(|ledger| ledger.tx).sum();
    let delivered = network.delivered() as u64 * work.frames;
    Ok(Cost { hops, delivered, seconds, done: network.is_idle() })
}

/// Seconds of a loop that any machine can run: 2^27 steps of a generator (xorshift64), each of
/// which reads and writes a word of a table of 1 MiB.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#[expect(clippy::cast_possible_truncation, reason = "low bits name a place")]
pub fn calibrate() -> f64 {
    let mut table = vec![0_u64; 1 << 17];
    let mask = table.len() - 1;
    let mut word = 0x9E37_79B9_7F4A_7C15_u64;
    let start = std::time::Instant::now();
    for _ in 0..1 << 27 {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        if let Some(slot) = table.get_mut(word as usize & mask) {
            *slot = slot.wrapping_add(word);
            // the next place depends on the word just read, so that no two steps overlap
            word = word.wrapping_add(*slot);
        }
    }
    std::hint::black_box(&table);
    start.elapsed().as_secs_f64()
}

/// Instructions a frame-hop of a permutation of 8 hosts: this program's, with 2,200 frames a host less those with 200.
///
/// # Errors
/// Why they were not counted.
#[expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "a ratio for people")]
pub fn instructions() -> Result<f64, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let count = |frames: u64| -> Result<(u64, u64), String> {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&own);
        let output = command.args(["model-count", &frames.to_string()]).output();
        let output = output.map_err(|error| format!("valgrind: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let hops = String::from_utf8_lossy(&output.stdout);
        let counted = said.lines().find_map(|line| line.split_once("refs:")).map(|(_, n)| n);
        let counted = counted.ok_or_else(|| format!("valgrind said: {}", said.trim()))?;
        let number = |text: &str| text.trim().replace(',', "").parse::<u64>().ok();
        number(counted).zip(number(&hops)).ok_or_else(|| format!("valgrind said: {}", said.trim()))
    };
    // the difference leaves out program start and building of the network
    let (few, few_hops) = count(200)?;
    let (many, many_hops) = count(2_200)?;
    Ok((many - few) as f64 / (many_hops - few_hops) as f64)
}
