//! A device with logical devices as an endpoint: each logical device is a [`DeviceEndpoint`] behind the common link.
//!
//! A command names a logical device (`ld`), which carries it out like a device of its own.
//!
//! Source: docs/endpoint.md "Logical devices"; CXL 3.1 section 2.5.

use serde_json::{Value, json};
use weft_cxl::mld::Mld;
use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_rpc::Refused;

use super::DeviceEndpoint;
use crate::endpoint::api::{Endpoint, not_for, sole};
use crate::endpoint::command::{Answer, Command};
use crate::endpoint::event_log::EventLog;
use crate::endpoint::own_memory::OwnMemory;

/// The endpoint around an MLD.
pub struct MldEndpoint {
    inner: Mld,
    lds: Vec<DeviceEndpoint>,
    name: String,
    /// Logical device of the last load.
    load: usize,
}

impl MldEndpoint {
    /// Wraps `mld` with its logical devices under the name `name`.
    #[must_use]
    pub fn new(mld: Mld, mut lds: Vec<DeviceEndpoint>, name: &str) -> Self {
        mld.begin(&mut lds);
        Self { inner: mld, lds, name: name.to_owned(), load: 0 }
    }

    /// Index of the logical device that a command names.
    fn named(&self, command: &Command) -> Result<usize, Refused> {
        let last = self.lds.len().saturating_sub(1);
        match command.ld().map(usize::from) {
            Some(ld) if ld <= last => Ok(ld),
            Some(ld) => {
                Err(Refused::because(format!("no logical device has the number {ld}: 0 to {last}")))
            }
            None => {
                let text = format!("the device has logical devices: name one by ld, 0 to {last}");
                Err(Refused::bad_request(text))
            }
        }
    }
}

impl Endpoint for MldEndpoint {
    fn kind(&self) -> &'static str {
        "device"
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn has_lds(&self) -> bool {
        true
    }

    fn poll_links(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        let Self { inner, lds, .. } = self;
        sole(ports).map_or(Ok(Progress::default()), |port| inner.poll(now, lds, port, bufs))
    }

    fn next_event(&mut self, log: &mut EventLog) -> bool {
        // `any` ends at the first event, as `next_event` records one.
        self.lds.iter_mut().any(|ld| ld.next_event(log))
    }

    fn submit_requests(&mut self, now: Instant, log: &mut EventLog) -> usize {
        self.lds.iter_mut().map(|ld| ld.submit_requests(now, log)).sum()
    }

    fn begin(
        &mut self,
        now: Instant,
        number: u64,
        command: &Command,
    ) -> Result<Option<Answer>, Refused> {
        let ld = match command {
            // Load commands name no LD, because an endpoint has one load at a time.
            Command::LoadStop {} | Command::LoadStatus {} => self.load,
            Command::DmaRead(_)
            | Command::DmaWrite(_)
            | Command::Interrupt { .. }
            | Command::Intx { .. }
            | Command::LoadStart { .. } => self.named(command)?,
            _ => return Err(not_for("device with logical devices", command)),
        };
        let Some(device) = self.lds.get_mut(ld) else {
            return Err(Refused::because("no load was started"));
        };
        // First, as a refused start must leave `load` at the LD of the previous load.
        let begun = device.begin(now, number, command)?;
        if matches!(command, Command::LoadStart { .. }) {
            self.load = ld;
        }
        Ok(begun)
    }

    fn own_memory(&mut self, command: &Command) -> Result<&mut dyn OwnMemory, Refused> {
        let ld = self.named(command)?;
        match self.lds.get_mut(ld) {
            Some(ld) => ld.own_memory(command),
            None => Err(not_for("device with logical devices", command)),
        }
    }

    fn counts(&self) -> Value {
        let (mld, link) = self.inner.counts();
        let lds: Vec<Value> = self.lds.iter().map(Endpoint::counts).collect();
        json!({ "mld": mld, "link": link, "lds": lds })
    }

    fn detail(&self) -> Value {
        let one = |(number, ld): (usize, &DeviceEndpoint)| {
            let memory = self.inner.memory_of(number);
            let mut detail = ld.detail();
            if let Value::Object(detail) = &mut detail {
                detail.insert("ld".to_owned(), json!(number));
                detail.insert("memory".to_owned(), json!(memory));
                if let Some(dynamic) = self.inner.dynamic_of(number) {
                    detail.insert("dynamic".to_owned(), json!(dynamic));
                }
            }
            detail
        };
        json!({ "lds": self.lds.iter().enumerate().map(one).collect::<Vec<_>>() })
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.inner.release(bufs);
    }
}
