//! An HBR switch as an endpoint.
//!
//! Shape: several links, the upstream one first; nothing to be told but to say how it stands.
//! Units: none.
//! Source: docs/endpoint.md.

use serde_json::{Value, json};
use weft_cxl::hbr::{Event, HbrSwitch};
use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_rpc::Refused;

use super::api::{Endpoint, not_for};
use super::command::{Answer, Command, Status};
use super::event_log::EventLog;

/// An HBR switch.
pub struct HbrEndpoint {
    switch: HbrSwitch,
    name: String,
}

impl HbrEndpoint {
    /// `switch` by name.
    #[must_use]
    pub fn new(switch: HbrSwitch, name: &str) -> Self {
        Self { switch, name: name.to_owned() }
    }

    /// The switch itself.
    pub const fn switch(&mut self) -> &mut HbrSwitch {
        &mut self.switch
    }
}

impl Endpoint for HbrEndpoint {
    fn kind(&self) -> &'static str {
        "hbr"
    }

    fn link_count(&self) -> usize {
        self.switch.bridges().len()
    }

    fn poll(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        bufs: &mut Bufs,
        log: &mut EventLog,
    ) -> Result<Progress, PortError> {
        let mut ports: Vec<&mut dyn Port> =
            ports.iter_mut().map(|port| &mut **port as &mut dyn Port).collect();
        let progress = self.switch.poll(now, &mut ports, bufs)?;
        for event in self.switch.take_events() {
            let word = |on: bool, yes: &'static str, no: &'static str| if on { yes } else { no };
            match event {
                Event::Reset { port, on } => {
                    log.event("reset", format!("port {port} {}", word(on, "begins", "ends")));
                }
                Event::Power { port, on } => {
                    log.event("power", format!("port {port} {}", word(on, "on", "off")));
                }
            }
        }
        Ok(progress)
    }

    fn begin(&mut self, _: Instant, _: u64, command: &Command) -> Result<Option<Answer>, Refused> {
        Err(not_for("HBR switch", command))
    }

    fn status(&self) -> Status {
        let bridges: Vec<Value> = self
            .switch
            .bridges()
            .iter()
            .map(|bridge| {
                let buses = bridge.buses();
                json!({
                    "kind": format!("{:?}", bridge.kind()).to_lowercase(),
                    "link": bridge.link().is_some(),
                    "secondary": buses.secondary,
                    "subordinate": buses.subordinate,
                })
            })
            .collect();
        Status {
            kind: "hbr".to_owned(),
            name: self.name.clone(),
            links: Vec::new(),
            counts: json!({ "switch": self.switch.counts(), "links": self.switch.end_counts() }),
            detail: json!({ "bridges": bridges }),
        }
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.switch.release(bufs);
    }
}
