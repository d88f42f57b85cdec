//! Refused accesses, from the counters of the workers into the event log of the switch's own functions; bytes by port, too.
//!
//! [`RefusalWatch::look`], now and then: what has become more since the last look, by port and rule.
//!
//! Units: accesses; bytes.
//! Source: docs/spec/wire-formats.md §4.2 ("Events"), §4.3 (C510h); docs/fm.md "Refused accesses".

use weft_dataplane::pbr::Refusal;
use weft_dataplane::pipeline::{Core, Ledger};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_pbr_switch::Agent;

/// Time between two looks.
const LOOK: Span = Span::from_ms(100);

/// What has been noted.
#[derive(Debug, Default)]
pub struct RefusalWatch {
    noted: Vec<[u64; Refusal::COUNT]>,
    not_before: Option<Instant>,
}

impl RefusalWatch {
    /// Notes what `ports` have refused since the last look, and what has gone through them, if it is time for one.
    pub fn look(
        &mut self,
        now: Instant,
        core: &Core,
        ports: impl Iterator<Item = PortId>,
        agent: &mut Agent,
    ) {
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
                if count > *noted && refusal.is_of_rights() {
                    *noted = count;
                    agent.log_refusals(now, port, refusal.name(), count);
                }
            }
        }
    }
}
