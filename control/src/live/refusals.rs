//! Copies refused accesses and traffic from the workers' counters into the agent's event log and port statistics.
//!
//! [`RefusalWatch::look`] is called at each turn of the agent, and reads the counters ten times a second at most.
//! Source: docs/spec/wire-formats.md §4.2 ("Events"), §4.3 (C510h); docs/fm.md "Refused accesses".

use weft_dataplane::pbr::Refusal;
use weft_dataplane::pipeline::{Core, Ledger};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_pbr_switch::Agent;

/// Least time between two reads of the counters.
const LOOK: Span = Span::from_ms(100);

/// Counts as of the last read, so that the log is told of increases only.
#[derive(Debug, Default)]
pub struct RefusalWatch {
    noted: Vec<[u64; Refusal::COUNT]>,
    not_before: Option<Instant>,
}

impl RefusalWatch {
    /// Reports to `agent` what `ports` have refused since the last read, and the bytes that went through them. Does
    /// nothing before the next read is due.
    pub fn look(
        &mut self,
        now: Instant,
        core: &Core,
        ports: impl Iterator<Item = PortId>,
        agent: &mut Agent,
    ) {
        // A turn comes with each frame and command: reading all counters at each would cost more than the work of the
        // turn.
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return;
        }
        self.not_before = Some(now + LOOK);
        let ledger = Ledger::read(core);
        for port in ports {
            let Some(counted) = ledger.port.get(port.index()) else { continue };
            agent.count_traffic(now, port, counted.rx_bytes, counted.tx_bytes);
            if self.noted.len() <= port.index() {
                self.noted.resize(port.index() + 1, [0; Refusal::COUNT]);
            }
            let Some(noted) = self.noted.get_mut(port.index()) else { continue };
            let all = Refusal::ALL.iter().zip(&counted.refused).zip(noted);
            for ((refusal, &count), noted) in all {
                // Only attempts without the right are incidents for a manager. The other refusals come of enumeration,
                // of tables that a host has set itself, and of links that are down.
                if count > *noted && refusal.is_of_rights() {
                    *noted = count;
                    agent.log_refusals(now, port, refusal.name(), count);
                }
            }
        }
    }
}
