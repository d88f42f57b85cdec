//! Counters of the frames that the kernel forwarded, in the switch's own statistics.
//!
//! The program counts in one of two banks; [`Tally::turn`] switches banks and adds up the one at rest, so that no frame
//! is counted in part. The sums are those of a worker of their own.
//!
//! Source: docs/spec/pipeline.md §10.

use weft_dataplane::stats::{DropReason, WorkerStats};
use weft_dataplane::types::{PortId, Pri};
use weft_xdp::layout::{BANKS, PortStats, Refusals};
use weft_xdp::{Xdp, XdpError};

/// Reads of the refusals until two agree: a refusal is counted at the input and at the output.
const LOOKS: usize = 4;

/// By bank and port, the counts as of the last time that the bank was at rest.
#[derive(Debug)]
pub(super) struct Tally {
    banks: [Vec<PortStats>; BANKS],
}

impl Tally {
    pub(super) fn new(ports: usize) -> Self {
        Self { banks: core::array::from_fn(|_| vec![PortStats::ZERO; ports]) }
    }

    /// Has programs count in the other bank, and adds up the counts so far into `to`.
    pub(super) fn turn(&mut self, xdp: &mut Xdp, to: &WorkerStats) -> Result<(), XdpError> {
        let bank = xdp.turn()?;
        let Some(cells) = self.banks.get_mut(bank) else { return Ok(()) };
        for (port, cell) in (0..).zip(cells.iter_mut()) {
            *cell = xdp.bank(bank, port)?;
        }
        let count = cells.len();
        let look = |xdp: &Xdp| -> Result<Vec<Refusals>, XdpError> {
            (0..).take(count).map(|port| xdp.refusals(port)).collect()
        };
        // Refusals are not in banks, and each is counted at two ports: two equal reads show that none was counted in
        // between.
        let mut refusals = look(xdp)?;
        for _ in 1..LOOKS {
            let again = look(xdp)?;
            let is_same = again == refusals;
            refusals = again;
            if is_same {
                break;
            }
        }
        for (index, refused) in refusals.iter().enumerate() {
            let mut sum = PortStats::ZERO;
            self.banks.iter().filter_map(|bank| bank.get(index)).for_each(|stats| sum.add(stats));
            if let Some(port) = PortId::new(index) {
                show(to, port, &sum, refused);
            }
        }
        Ok(())
    }
}

/// Writes the counts of `port` so far to `to` while programs go on: a frame may be counted in part. Waits for nothing.
pub(super) fn glance(xdp: &Xdp, port: PortId, to: &WorkerStats) -> Result<(), XdpError> {
    let counts = xdp.counts(port.get())?;
    show(to, port, &counts.stats, &counts.refusals);
    Ok(())
}

/// Sets the counters of `port` from the program's.
fn show(to: &WorkerStats, port: PortId, from: &PortStats, refused: &Refusals) {
    let stats = &to.port[port];
    // Frames that the program dropped: no socket took them, or their queue was being drained.
    let lost = from.no_socket + from.no_meta + from.drained;
    let (mut frames_in, mut bytes_in, mut frames_out, mut bytes_out) = (lost, 0, 0, 0);
    let (mut formats_in, mut formats_out) = ([0; 8], [0; 8]);
    for pri in Pri::ALL {
        let (mut came, mut went, mut went_bytes) = (0, 0, 0);
        // The cells of a priority are its eight formats, one after the other.
        let kinds = usize::from(pri.get()) << 3;
        let cells = from.express_in.iter().zip(&from.express_out).skip(kinds).take(8);
        for ((input, output), (sum_in, sum_out)) in
            cells.zip(formats_in.iter_mut().zip(&mut formats_out))
        {
            came += input.frames;
            bytes_in += input.bytes;
            *sum_in += input.frames;
            went += output.frames;
            went_bytes += output.bytes;
            *sum_out += output.frames;
        }
        frames_in += came;
        frames_out += went;
        bytes_out += went_bytes;
        let queue = &stats.pri[pri];
        queue.enqueued.set(came);
        queue.dequeued.set(went);
        queue.tx_bytes.set(went_bytes);
    }
    // Refusals may be read after the counts of the frames: without the limit the difference below could be negative.
    let refused_out = refused.refused_out.min(frames_out);
    stats.rx_frames.set(frames_in);
    stats.rx_bytes.set(bytes_in);
    stats.tx_frames.set(frames_out - refused_out);
    stats.tx_bytes.set(bytes_out);
    stats.late_drops.set(refused_out);
    let counters = stats.rx_format.iter().zip(&stats.tx_format);
    for ((input, output), (sum_in, sum_out)) in
        counters.zip(formats_in.into_iter().zip(formats_out))
    {
        input.set(sum_in);
        output.set(sum_out);
    }
    for (counter, sum) in stats.rx_size.iter().zip(from.sizes) {
        counter.set(sum);
    }
    for (reason, count) in
        [(DropReason::XskRing, lost), (DropReason::ExpressXmit, refused.refused_in)]
    {
        if let Some(counter) = stats.drops.get(reason as usize) {
            counter.set(count);
        }
    }
}
