//! PFC storms: a host that pauses its link partner again and again, whatever its endpoint does.
//!
//! Source: IEEE 802.1Q-2022 clause 36; docs/spec/model.md §3.

use weft_dataplane::port::Port;
use weft_dataplane::port::wire::Wire;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PriSet;
use weft_parsers::{MacAddr, Pfc, mac_control};

/// Pause time of each frame in quanta; the next one follows after half of it.
const QUANTA: u16 = u16::MAX;

/// A storm of one fault.
#[derive(Clone, Copy, Debug)]
struct Storm {
    classes: PriSet,
    until: Instant,
    /// When its next frame is due; `None` once it is over.
    next: Option<Instant>,
}

/// All storms of a host.
pub(super) struct Storms {
    all: Vec<Storm>,
    source: MacAddr,
    sent: u64,
}

impl Storms {
    /// The storms of a host with address `source`: classes, begin and end of each; `None` if there are none.
    pub fn new(source: MacAddr, storms: &[(PriSet, Instant, Instant)]) -> Option<Box<Self>> {
        let storms = storms.iter().filter(|&&(_, from, until)| from < until);
        let storms: Vec<Storm> = storms
            .map(|&(classes, from, until)| Storm { classes, until, next: Some(from) })
            .collect();
        let is_any = !storms.is_empty();
        is_any.then(|| Box::new(Self { all: storms, source, sent: 0 }))
    }

    /// Number of PFC frames sent.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends frames that are due; returns when the next one is.
    pub fn step(&mut self, now: Instant, port: &mut Wire) -> Option<Instant> {
        let mut next = None;
        for storm in &mut self.all {
            let Some(due) = storm.next else { continue };
            if due > now {
                next = Instant::earlier(next, Some(due));
                continue;
            }
            // At its end the storm releases the classes, which would otherwise stay paused for their quanta.
            let quanta = if now < storm.until { QUANTA } else { 0 };
            let classes = (0..8_u8).filter(|class| storm.classes.bits() >> class & 1 != 0);
            let pfc = classes
                .fold(Pfc { enable: 0, quanta: [0; 8] }, |pfc, class| pfc.with(class, quanta));
            let (len, source) = (mac_control::FRAME_LEN, self.source);
            let is_sent = port.put(now, len, len, |out| {
                if let Some(out) = out.first_chunk_mut() {
                    pfc.emit(source, out);
                }
            });
            if !is_sent {
                // PFC waits only for the frame that is being sent.
                next = Instant::earlier(
                    next,
                    port.idle_at().or(Some(now + port.caps().rate.quanta(1))),
                );
                continue;
            }
            self.sent += 1;
            let half = Span::from_ps(port.caps().rate.quanta(QUANTA).as_ps() / 2);
            storm.next = (quanta > 0).then(|| (now + half).min(storm.until));
            next = Instant::earlier(next, storm.next);
        }
        next
    }
}
