//! An HBR switch as an endpoint.
//!
//! It has several links, the upstream one first, and no command but its status.
//!
//! Source: docs/endpoint.md.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weft_cxl::hbr::{Event, HbrConfig, HbrSwitch};
use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_parsers::MacAddr;
use weft_rpc::Refused;

use super::api::{Endpoint, not_for};
use super::command::{Answer, Command};
use super::event_log::EventLog;
use super::spec::{Common, Spec, SpecError, identity};

/// An HBR switch.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HbrSpec {
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(flatten)]
    pub common: Common,
    /// Number of the first physical slot [default: 16]
    #[cfg_attr(feature = "clap", arg(long))]
    pub slot_first: Option<u16>,
    /// Report a device that disappears from a slot without notice as an error
    #[cfg_attr(feature = "clap", arg(long))]
    pub no_surprise: bool,
}

impl Spec for HbrSpec {
    const KIND: &'static str = "hbr";
    const ONE_LINK: bool = false;

    fn endpoint(&self, macs: &[MacAddr]) -> Result<Box<dyn Endpoint>, SpecError> {
        Ok(Box::new(self.build(self.common.port.len(), macs)?))
    }
}

impl HbrSpec {
    /// Makes the switch with `links` links. `macs` are the addresses of their ports in order.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn build(&self, links: usize, macs: &[MacAddr]) -> Result<HbrEndpoint, SpecError> {
        let carries = self.common.carries()?;
        let ends = (0..links).map(|link| self.common.end("hbr", carries, macs, link));
        let switch = HbrSwitch::new(HbrConfig {
            identity: identity(0x0200, 0x06_04_00),
            ends: ends.collect::<Result<_, _>>()?,
            slot_first: self.slot_first.unwrap_or(16),
            surprise: !self.no_surprise,
        })?;
        Ok(HbrEndpoint::new(switch, &self.common.name("hbr")))
    }
}

/// The endpoint around an HBR switch.
pub struct HbrEndpoint {
    switch: HbrSwitch,
    name: String,
}

impl HbrEndpoint {
    /// Wraps `switch` under the name `name`.
    #[must_use]
    pub fn new(switch: HbrSwitch, name: &str) -> Self {
        Self { switch, name: name.to_owned() }
    }

    /// The HBR switch that it wraps.
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

    fn name(&self) -> &str {
        &self.name
    }

    fn poll_links(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        let mut ports: Vec<&mut dyn Port> =
            ports.iter_mut().map(|port| &mut **port as &mut dyn Port).collect();
        self.switch.poll(now, &mut ports, bufs)
    }

    fn next_event(&mut self, log: &mut EventLog) -> bool {
        let events = self.switch.take_events();
        let word = |on: bool, yes: &'static str, no: &'static str| if on { yes } else { no };
        for event in &events {
            match *event {
                Event::Reset { port, on } => {
                    log.event("reset", format!("port {port} {}", word(on, "begins", "ends")));
                }
                Event::Power { port, on } => {
                    log.event("power", format!("port {port} {}", word(on, "on", "off")));
                }
            }
        }
        !events.is_empty()
    }

    fn begin(&mut self, _: Instant, _: u64, command: &Command) -> Result<Option<Answer>, Refused> {
        Err(not_for("HBR switch", command))
    }

    fn counts(&self) -> Value {
        json!({ "switch": self.switch.counts(), "links": self.switch.end_counts() })
    }

    fn detail(&self) -> Value {
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
        json!({ "bridges": bridges })
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.switch.release(bufs);
    }
}
