//! A device as an endpoint: memory behind its BARs, and DMA of its functions.
//!
//! Commands become transactions of [`CxlDevice`], whose events answer them by number.
//!
//! Source: docs/endpoint.md.

pub mod mld;
pub mod spec;

use serde_json::{Value, json};
use weft_cxl::cxl_device::{CxlDevice, Event, Refusal};
use weft_cxl::gfd::memory::Memory;
use weft_cxl::pci::Function;
use weft_cxl::pci::function::LnrSpec;
use weft_cxl::requester::OpId;
use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_rpc::Refused;

use super::api::{Endpoint, not_for, sole};
use super::command::{Access, Answer, Command, OwnRange, Via};
use super::event_log::EventLog;
use super::host::fabric_mem::{FabricMem, OFF};
use super::ln::requester::{LnCommands, notified};
use super::own_memory::OwnMemory;
use super::transfer::{Ask, How, Plan, Transfers, load_answer};

/// The endpoint around a device. Each function has transfers of its own, because each numbers its own requests.
pub struct DeviceEndpoint {
    inner: CxlDevice,
    name: String,
    /// The link is in flit mode, which has UIO.
    flit: bool,
    transfers: Vec<Transfers>,
    ln: LnCommands,
    flushes: Vec<Flush>,
    fabric_mem: Option<Box<FabricMem>>,
    /// Name for events about the whole device.
    whole: String,
}

/// A command that waits for the flush of a function's cache.
struct Flush {
    number: u64,
    function: u8,
    until: Instant,
}

impl AsMut<CxlDevice> for DeviceEndpoint {
    fn as_mut(&mut self) -> &mut CxlDevice {
        &mut self.inner
    }
}

fn refused(refusal: Refusal) -> Refused {
    Refused::because(refusal.to_string())
}

fn submitter(device: &mut CxlDevice, function: u8) -> impl FnMut(Ask) -> Result<OpId, Refused> {
    move |ask| match ask {
        Ask::Tlp(transaction) => device.submit(function, transaction).map_err(refused),
        Ask::Mem(_) => Err(no_cxl_mem()),
        Ask::Cache(what) => device.cached(function, what).map_err(refused),
    }
}

fn no_cxl_mem() -> Refused {
    Refused::bad_request("only hosts load and store by CXL.mem")
}

impl DeviceEndpoint {
    /// Wraps `device` with `functions` functions; `flit` tells the mode of its link.
    #[must_use]
    pub fn new(device: CxlDevice, name: &str, functions: usize, flit: bool) -> Self {
        let transfers = (0..functions).map(|_| Transfers::default()).collect();
        let ln = LnCommands::new(None, flit);
        let whole = "the device".to_owned();
        let (name, fabric_mem) = (name.to_owned(), None);
        let flushes = Vec::new();
        Self { inner: device, name, flit, transfers, ln, flushes, fabric_mem, whole }
    }

    /// Makes it logical device `number` of several.
    #[must_use]
    pub fn logical(self, number: usize) -> Self {
        Self { inner: self.inner.logical(), whole: format!("LD {number}"), ..self }
    }

    /// Adds LN requesters of this kind to its functions.
    #[must_use]
    pub fn with_lnr(mut self, spec: Option<LnrSpec>) -> Self {
        self.ln = LnCommands::new(spec, self.flit);
        self
    }

    /// Adds fabric memory transfers, or removes them.
    #[must_use]
    pub fn with_fabric_mem(self, fabric_mem: Option<FabricMem>) -> Self {
        Self { fabric_mem: fabric_mem.map(Box::new), ..self }
    }

    /// The device that it wraps.
    pub const fn device(&mut self) -> &mut CxlDevice {
        &mut self.inner
    }

    fn transfers(&mut self, function: u8) -> Result<(&mut CxlDevice, &mut Transfers), Refused> {
        let Self { inner: device, transfers, .. } = self;
        let found = transfers.get_mut(usize::from(function));
        Ok((device, found.ok_or_else(|| refused(Refusal::NoFunction(function)))?))
    }

    fn how(&self, access: &Access) -> Result<How, Refused> {
        match access.via {
            Via::Auto if self.flit => Ok(How::Uio),
            Via::Plain | Via::Auto => Ok(How::Plain),
            Via::Uio => Ok(How::Uio),
            Via::CxlMem => Err(no_cxl_mem()),
            Via::CxlCache => Ok(How::Cache),
        }
    }

    fn dma(
        &mut self,
        now: Instant,
        number: u64,
        access: &Access,
        write: bool,
    ) -> Result<Option<Answer>, Refused> {
        let plan = Plan::new(access, write, self.how(access)?)?;
        let (device, transfers) = self.transfers(access.function)?;
        transfers.begin(now, number, plan, &mut submitter(device, access.function))?;
        Ok(None)
    }

    /// The memory that a store or peek names.
    fn memory(&mut self, place: &OwnRange) -> Result<&mut Memory, Refused> {
        self.inner.id(place.function).map_err(refused)?;
        let found = match place.bar {
            Some(bar) => self.inner.bar_mut(place.function, bar),
            // Without HDM (no component registers) memory outside of a BAR can only be that for GIM.
            None if self.inner.component(place.function).is_none() => {
                self.inner.gim(place.function)
            }
            None => self.inner.hdm(place.function),
        };
        found.ok_or_else(|| {
            let what = place.bar.map_or("HDM".to_owned(), |bar| format!("BAR {bar}"));
            Refused::because(format!("function {} has no memory in {what}", place.function))
        })
    }

    fn pump(&mut self, now: Instant, log: &mut EventLog) -> usize {
        let Self { inner: device, transfers, flushes, fabric_mem, .. } = self;
        let (mut sent, mut ended) = (0, Vec::new());
        sent += fabric_mem.as_mut().map_or(0, |it| it.pump(now, device, log));
        // Requests carry the id of their function, so each function submits its own transfers.
        for (function, transfers) in (0..).zip(transfers) {
            sent += transfers.pump(now, &mut submitter(device, function), &mut ended);
        }
        log.transfers(ended);
        flushes.retain(|flush| {
            let is_over = !device.is_flushing(flush.function);
            if is_over {
                log.answer(flush.number, Ok(Answer::Done));
            } else if now >= flush.until {
                log.answer(flush.number, Err(Refused::unavailable("not finished in time")));
            }
            !is_over && now < flush.until
        });
        self.ln.expire(now, log);
        sent
    }

    fn event(&mut self, event: Event, log: &mut EventLog) {
        match event {
            Event::Done { function, done } => {
                // Fabric memory belongs to function 0, and the others number their requests alike.
                let mut fabric_mem = self.fabric_mem.as_mut().filter(|_| function == 0);
                if self.ln.take(&self.inner, function, &done, log)
                    || fabric_mem.as_mut().is_some_and(|it| it.take(&done, log))
                {
                    return;
                }
                if let Ok((device, transfers)) = self.transfers(function) {
                    transfers.take(&done, &mut submitter(device, function));
                }
            }
            Event::Ln { function, ticket, outcome, result } => {
                self.ln.ended(&self.inner, function, ticket, outcome, result, log);
            }
            Event::Notified { function, message, copies } => {
                notified(function, &message, copies, log);
            }
            Event::Command { function, command } => {
                log.event("command", format!("function {function}: {:#06x}", command.opcode));
                // No function serves mailbox commands: Unsupported Mailbox or CCI (15h).
                let _ = self.inner.complete(function, 0x15, 0, &[]);
            }
            Event::Reset(function) => {
                self.ln.reset(function, log);
                if let Some(fabric_mem) =
                    self.fabric_mem.as_mut().filter(|_| function.is_none_or(|it| it == 0))
                {
                    fabric_mem.reset(log);
                }
                let what =
                    function.map_or_else(|| self.whole.clone(), |it| format!("function {it}"));
                log.event("reset", what);
            }
            Event::LineLost { function, line } => {
                let text =
                    format!("function {function}: what was stored in the line at {line} is lost");
                log.event("line_lost", text);
            }
            Event::Message(message) => log.message(message),
        }
    }
}

impl OwnMemory for Memory {
    fn check(&self, at: u64, len: u64) -> Result<(), Refused> {
        if self.holds(at, len) {
            return Ok(());
        }
        let text = format!("it has {:#x} bytes, and not {len} at {at:#x}", self.size());
        Err(Refused::because(text))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Refused> {
        Self::read(self, at, into).map_err(|error| Refused::because(error.to_string()))
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Refused> {
        Self::write(self, at, data).map_err(|error| Refused::because(error.to_string()))
    }
}

impl Endpoint for DeviceEndpoint {
    fn kind(&self) -> &'static str {
        "device"
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
        let Some(port) = sole(ports) else { return Ok(Progress::default()) };
        let progress = self.inner.poll(now, port, bufs)?;
        let due = self.fabric_mem.as_deref().and_then(FabricMem::due);
        Ok(Progress { next: Instant::earlier(progress.next, due), ..progress })
    }

    fn next_event(&mut self, log: &mut EventLog) -> bool {
        let event = self.inner.next_event();
        event.map(|event| self.event(event, log)).is_some()
    }

    fn submit_requests(&mut self, now: Instant, log: &mut EventLog) -> usize {
        self.pump(now, log)
    }

    fn begin(
        &mut self,
        now: Instant,
        number: u64,
        command: &Command,
    ) -> Result<Option<Answer>, Refused> {
        match command {
            Command::DmaRead(access) => self.dma(now, number, access, false),
            Command::DmaWrite(access) => self.dma(now, number, access, true),
            Command::LnRead(_)
            | Command::LnProbe(_)
            | Command::LnWrite(_)
            | Command::LnDrop(_)
            | Command::LnCopy(_)
            | Command::LnStatus {} => self.ln.begin(&mut self.inner, now, number, command),
            Command::CacheFlush { function, timeout_ms } => {
                self.inner.flush_cache(*function).map_err(refused)?;
                let until = now + Span::from_ms(*timeout_ms);
                self.flushes.push(Flush { number, function: *function, until });
                Ok(None)
            }
            Command::Interrupt { function, .. } => {
                if self.inner.interrupt(*function).map_err(refused)? {
                    return Ok(Some(Answer::Done));
                }
                let text = format!("software has not enabled interrupts of function {function}");
                Err(Refused::because(text))
            }
            Command::Intx { on, function, .. } => {
                self.inner.set_intx(*function, *on).map_err(refused)?;
                Ok(Some(Answer::Done))
            }
            Command::LoadStart { access, rounds, pause_ms } => {
                // One load for all functions: `load status` and `load stop` name none.
                if self.transfers.iter().any(|it| it.load().is_some_and(|load| load.running)) {
                    return Err(Refused::because("a load runs already: stop it first"));
                }
                let how = self.how(access)?;
                let (_, transfers) = self.transfers(access.function)?;
                transfers.start_load(access, how, *rounds, *pause_ms)?;
                // A load that ended on another function must not be reported for this one.
                for (function, other) in (0..).zip(&mut self.transfers) {
                    if function != access.function {
                        other.forget_load();
                    }
                }
                Ok(Some(Answer::Done))
            }
            Command::Mem(command) => match &mut self.fabric_mem {
                Some(fabric_mem) => fabric_mem.begin(now, number, command, &mut self.inner),
                None => Err(Refused::because(OFF)),
            },
            Command::LoadStop {} | Command::LoadStatus {} => {
                let found = self.transfers.iter_mut().find(|it| it.load().is_some());
                let found = found.ok_or_else(|| Refused::because("no load was started"))?;
                load_answer(found, command).map(Some)
            }
            _ => Err(not_for("device", command)),
        }
    }

    fn own_memory(&mut self, command: &Command) -> Result<&mut dyn OwnMemory, Refused> {
        match command {
            Command::Store(place) | Command::Peek(place) => Ok(self.memory(place)?),
            _ => Err(not_for("device", command)),
        }
    }

    fn counts(&self) -> Value {
        let (device, requester, link) = self.inner.counts();
        let mut counts = json!({ "device": device, "requester": requester, "link": link });
        if let (Some((cache, (lines, lines_max))), Value::Object(counts)) =
            (self.inner.cache_counts(), &mut counts)
        {
            let held = json!({ "lines": lines, "lines_max": lines_max, "counts": cache });
            counts.insert("cache".to_owned(), held);
        }
        counts
    }

    fn detail(&self) -> Value {
        let functions: Vec<_> = (0..)
            .zip(&self.transfers)
            .map(|(function, _)| {
                let master = self.inner.function(function).is_ok_and(Function::is_master);
                let id = self.inner.id(function).map(|id| id.to_string()).unwrap_or_default();
                json!({ "function": function, "id": id, "master": master })
            })
            .collect();
        let load = self.transfers.iter().find_map(Transfers::load);
        let fabric_mem = self.fabric_mem.as_ref().map(|it| it.list());
        json!({ "functions": functions, "load": load, "fabric_mem": fabric_mem })
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.inner.release(bufs);
    }
}
