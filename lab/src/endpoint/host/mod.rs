//! A host as an endpoint: enumeration, configuration space, memory by HPA, mailboxes, and the notification ring.
//!
//! Commands become transactions of [`CxlHost`], whose events answer them by number.
//!
//! Source: docs/endpoint.md; docs/spec/wire-formats.md §4.6, §5.4.

mod cdat;
pub mod exports;
pub mod fabric_mem;
mod hdm_check;
mod mailbox;
pub mod spec;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weft_cxl::completer::Target;
use weft_cxl::cxl_host::mailbox::Ring;
use weft_cxl::cxl_host::{CpuAccess, CpuError, CpuStep, CxlHost, Event, HomeNews};
use weft_cxl::pci::enumerate::CdatRead;
use weft_cxl::pci::{ByteEnables, Reg, Tree};
use weft_cxl::requester::{Done, OpId, Operation};
use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Bdf, Hpa};
use weft_rpc::Refused;

use super::api::{Endpoint, not_for, sole};
use super::command::{Access, Answer, Command, Via};
use super::event_log::EventLog;
use super::ln::completer;
use super::number::Hex;
use super::own_memory::OwnMemory;
use super::transfer::{Ask, How, Plan, Submit, Transfers, load_answer, name};
use exports::{Exported, Reached};
use fabric_mem::FabricMem;
use hdm_check::HdmCheck;
use mailbox::RingStep;
pub(super) use mailbox::answered;

/// The event that a command waits for.
enum Waits {
    Scan,
    Reset(Bdf),
    CacheId(Bdf),
    Cdat(cdat::Asked),
    Config { op: OpId, write: bool },
    Mailbox { command: u64 },
    Ring { command: u64, step: RingStep, block: Hpa, taken: Option<(Vec<Hex>, bool)> },
    Tree(HdmCheck),
    TurnOff,
}

struct Waiting {
    what: Waits,
    until: Instant,
}

fn submit(host: &mut CxlHost, ask: Ask) -> Result<OpId, Refused> {
    match ask {
        Ask::Tlp(transaction) => Ok(host.submit(transaction)),
        Ask::Mem(what) => Ok(host.mem(what)),
        Ask::Cache(_) => Err(no_cxl_cache()),
    }
}

fn no_cxl_cache() -> Refused {
    Refused::bad_request("only devices load and store by CXL.cache: a host uses store and peek")
}

fn cpu(error: CpuError) -> Refused {
    Refused::because(error.to_string())
}

/// The endpoint around a host.
pub struct HostEndpoint {
    inner: CxlHost,
    name: String,
    /// First address and length of the addresses that `auto` reaches by UIO.
    window: Option<(u64, u64)>,
    exports: Exported,
    transfers: Transfers,
    waiting: BTreeMap<u64, Waiting>,
    ring: Option<Ring>,
    fabric_mem: Option<Box<FabricMem>>,
}

impl HostEndpoint {
    /// Wraps `host` with a fabric window of (first address, length) and these exports.
    #[must_use]
    pub fn new(host: CxlHost, name: &str, window: Option<(u64, u64)>, exports: Exported) -> Self {
        Self {
            inner: host,
            name: name.to_owned(),
            window,
            exports,
            transfers: Transfers::default(),
            waiting: BTreeMap::new(),
            ring: None,
            fabric_mem: None,
        }
    }

    /// Adds fabric memory transfers, or removes them.
    #[must_use]
    pub fn with_fabric_mem(self, fabric_mem: Option<FabricMem>) -> Self {
        Self { fabric_mem: fabric_mem.map(Box::new), ..self }
    }

    /// The host that it wraps.
    pub const fn host(&mut self) -> &mut CxlHost {
        &mut self.inner
    }

    fn how(&self, access: &Access) -> Result<How, Refused> {
        // `wrapping_sub` makes an address below the window a very large offset.
        let inside = |(base, len): (u64, u64)| access.addr.0.wrapping_sub(base) < len;
        Ok(match access.via {
            Via::Plain => How::Plain,
            Via::Uio => How::Uio,
            Via::CxlMem => How::Mem,
            Via::CxlCache => return Err(no_cxl_cache()),
            // Only a UIO request can name a target port, by its prefix.
            Via::Auto if access.to.is_some() || self.window.is_some_and(inside) => How::Uio,
            Via::Auto => How::Plain,
        })
    }

    fn wait(&mut self, now: Instant, number: u64, what: Waits, timeout_ms: u64) {
        let until = now + Span::from_ms(timeout_ms);
        self.waiting.insert(number, Waiting { what, until });
    }

    fn transfer(
        &mut self,
        now: Instant,
        number: u64,
        access: &Access,
        write: bool,
    ) -> Result<Option<Answer>, Refused> {
        no_function(access.function)?;
        let plan = Plan::new(access, write, self.how(access)?)?;
        let Self { inner: host, transfers, .. } = self;
        transfers.begin(now, number, plan, &mut |ask| submit(host, ask))?;
        Ok(None)
    }

    fn scan(
        &mut self,
        now: Instant,
        number: u64,
        slot: Option<Bdf>,
        timeout_ms: u64,
    ) -> Result<Option<Answer>, Refused> {
        // One enumeration at a time: both would number the same buses.
        if self.inner.is_enumerating() {
            return Err(Refused::unavailable("the host is enumerating already"));
        }
        match slot {
            None => self.inner.enumerate(),
            Some(bdf) => {
                let is_slot = |tree: &Tree| {
                    let node = tree.get(bdf).and_then(|node| node.below.as_ref());
                    node.is_some_and(|below| below.slot.is_some())
                };
                if !self.inner.tree().is_some_and(is_slot) {
                    let text = format!("no slot at {bdf}: enumerate first");
                    return Err(Refused::because(text));
                }
                self.inner.rescan(bdf);
            }
        }
        self.wait(now, number, Waits::Scan, timeout_ms);
        Ok(None)
    }

    fn reset(
        &mut self,
        now: Instant,
        number: u64,
        bdf: Bdf,
        timeout_ms: u64,
    ) -> Result<Option<Answer>, Refused> {
        let is_bridge = |tree: &Tree| tree.get(bdf).is_some_and(|node| node.below.is_some());
        if !self.inner.tree().is_some_and(is_bridge) {
            return Err(Refused::because(format!("no bridge at {bdf}: enumerate first")));
        }
        if !self.inner.reset_bus(bdf) {
            return Err(Refused::unavailable("the host resets a bus already"));
        }
        self.wait(now, number, Waits::Reset(bdf), timeout_ms);
        Ok(None)
    }

    fn cache_id(
        &mut self,
        now: Instant,
        number: u64,
        device: Bdf,
        cache_id: Option<u8>,
        timeout_ms: u64,
    ) -> Result<Option<Answer>, Refused> {
        if let Some(found) = cache_id.filter(|id| *id > 15) {
            return Err(Refused::bad_request(format!(
                "expected a CacheID of 0 to 15, found {found}"
            )));
        }
        if !self.inner.set_cache_id(device, cache_id) {
            return Err(Refused::unavailable("the host gives a CacheID already"));
        }
        self.wait(now, number, Waits::CacheId(device), timeout_ms);
        Ok(None)
    }

    fn cdat(
        &mut self,
        now: Instant,
        number: u64,
        device: Option<Bdf>,
        timeout_ms: u64,
    ) -> Result<Option<Answer>, Refused> {
        let asked = cdat::Asked::of(self.inner.tree(), device)?;
        if asked.devices.is_empty() {
            return Ok(Some(Answer::Cdat { devices: Vec::new() }));
        }
        if !self.inner.read_cdats(asked.functions.clone()) {
            return Err(Refused::unavailable("the host reads CDATs already"));
        }
        self.wait(now, number, Waits::Cdat(asked), timeout_ms);
        Ok(None)
    }

    /// Answers the commands that wait for CDATs. A command that no longer waits has exceeded its time limit.
    fn cdats_read(&mut self, read: &[CdatRead], log: &mut EventLog) {
        let Self { inner: host, waiting, .. } = self;
        waiting.retain(|number, waiting| {
            let Waits::Cdat(asked) = &waiting.what else { return true };
            let devices = host.tree().map(|tree| asked.report(tree, read)).unwrap_or_default();
            log.answer(*number, Ok(Answer::Cdat { devices }));
            false
        });
    }

    fn config(
        &mut self,
        now: Instant,
        number: u64,
        dest: Bdf,
        register: u16,
        write: Option<(u64, u8)>,
    ) -> Result<Option<Answer>, Refused> {
        if !register.is_multiple_of(4) || register > 0xFFC {
            let text = format!("expected a multiple of 4 below 0x1000, found {register:#x}");
            return Err(Refused::bad_request(text));
        }
        let reg = Reg::at(register);
        // The root port's bus exists in the host only: no configuration request on a link reaches it.
        let own_bus = self.inner.tree().map_or(0, |tree| tree.bus);
        if dest.bus() == own_bus {
            if write.is_some() || (dest.device(), dest.function()) != (0, 0) {
                let text = "of the host's own bus only the root port's registers can be read";
                return Err(Refused::because(text));
            }
            let value = self.inner.root().read(reg).into();
            return Ok(Some(Answer::Register { value }));
        }
        // A bus below the next one needs a type 1 request, which bridges turn into type 0 at its bus.
        let type1 = dest.bus() != self.inner.root().buses().secondary;
        let what = match write {
            None => Operation::ConfigRead { dest, reg, type1 },
            Some((value, enables)) => {
                let refuse = |_| Refused::bad_request(format!("{value:#x} is not of 32 bits"));
                let value = u32::try_from(value).map_err(refuse)?;
                let enables = ByteEnables::from_low_bits(enables);
                Operation::ConfigWrite { dest, reg, type1, value, enables }
            }
        };
        let op = self.inner.submit(what);
        let waits = Waits::Config { op, write: write.is_some() };
        self.wait(now, number, waits, super::time_limit::TIMEOUT_MS);
        Ok(None)
    }

    fn done(&mut self, done: &Done, log: &mut EventLog) {
        let Self { inner: host, transfers, waiting, fabric_mem, .. } = self;
        // Each request belongs to exactly one of these, which recognises its number.
        if transfers.take(done, &mut |ask| submit(host, ask))
            || fabric_mem.as_mut().is_some_and(|it| it.take(done, log))
        {
            return;
        }
        let mut checks = waiting.iter_mut().filter_map(|(number, it)| match &mut it.what {
            Waits::Tree(check) => Some((*number, check)),
            _ => None,
        });
        if let Some((number, check)) = checks.find_map(|(n, it)| it.take(done).then_some((n, it))) {
            if check.is_done() {
                log.answer(number, Ok(check.answer(host)));
                waiting.remove(&number);
            }
            return;
        }
        let ours = |it: &Waiting| matches!(it.what, Waits::Config { op, .. } if op == done.op);
        let Some(number) = waiting.iter().find(|(_, it)| ours(it)).map(|(n, _)| *n) else { return };
        let write = matches!(
            waiting.remove(&number),
            Some(Waiting { what: Waits::Config { write: true, .. }, .. })
        );
        log.answer(
            number,
            match &done.result {
                Ok(_) if write => Ok(Answer::Done),
                Ok(bytes) => {
                    let value = bytes.first_chunk().map_or(0, |it| u32::from_le_bytes(*it));
                    Ok(Answer::Register { value: value.into() })
                }
                Err(failure) => {
                    let text = format!("the request was {failure} ({})", name(*failure));
                    Err(Refused::because(text))
                }
            },
        );
    }

    /// Answers all commands that wait for `what`.
    fn all(
        &mut self,
        what: impl Fn(&Waits) -> bool,
        answer: &Result<Answer, Refused>,
        log: &mut EventLog,
    ) {
        self.waiting.retain(|number, waiting| {
            let is_it = what(&waiting.what);
            if is_it {
                log.answer(*number, answer.clone());
            }
            !is_it
        });
    }

    fn event(&mut self, event: Event, log: &mut EventLog) {
        match event {
            Event::Done(done) => self.done(&done, log),
            Event::Response { number, result } => self.responded(number, result, log),
            Event::Enumerated(result) => {
                log.event("enumerated", result.map_or_else(|e| e.to_string(), |()| "done".into()));
                // Before the commands are answered: a client may name registrations in its next command.
                if let Some(fabric_mem) = &mut self.fabric_mem {
                    fabric_mem.renewed(&mut self.inner, log);
                }
                let result = result.map_err(|error| Refused::because(error.to_string()));
                self.show_tree(|it| matches!(it, Waits::Scan), result, log);
            }
            Event::TurnedOff => {
                log.event("turned_off", "all below are ready to lose power");
                self.all(|it| matches!(it, Waits::TurnOff), &Ok(Answer::Done), log);
            }
            Event::Msi { addr, data, from } => {
                log.event("msi", format!("{from} wrote {data:#x} to {addr}"));
            }
            Event::Intx(message) => {
                let state = if message.on { "asserted" } else { "deasserted" };
                log.event("intx", format!("INT{} is {state}", message.pin.letter()));
            }
            Event::Error { from, message } => log.event("error", format!("{from}: {message:?}")),
            Event::Message(message) => log.message(message),
            Event::LineLost(addr) => {
                log.event("line_lost", format!("what was stored in the line at {addr} is lost"));
            }
            Event::Cache(news) => {
                let lost = matches!(news, HomeNews::Lost { .. });
                log.event(if lost { "line_lost" } else { "coherence" }, news.to_string());
            }
            Event::Link(up) => log.event("link", if up { "up" } else { "down" }),
            Event::Reset(on) => log.event("reset", if on { "begins" } else { "ends" }),
            Event::CacheId { device, result } => {
                let text = result.map_or_else(|e| e.to_string(), |()| "done".into());
                log.event("cache_id", format!("{device}: {text}"));
                let result = result.map_err(|error| Refused::because(error.to_string()));
                let is_it = |it: &Waits| matches!(it, Waits::CacheId(of) if *of == device);
                self.show_tree(is_it, result, log);
            }
            Event::Cdats(read) => self.cdats_read(&read, log),
            Event::BusReset(bdf) => {
                log.event("bus_reset", format!("what is below {bdf} has been reset"));
                let is_it = |it: &Waits| matches!(it, Waits::Reset(of) if *of == bdf);
                self.show_tree(is_it, Ok(()), log);
            }
        }
    }

    /// Lets all commands that wait for `what` wait for the tree and its HDM check, or refuses them with the error.
    fn show_tree(
        &mut self,
        what: impl Fn(&Waits) -> bool,
        result: Result<(), Refused>,
        log: &mut EventLog,
    ) {
        if let Err(refused) = result {
            return self.all(what, &Err(refused), log);
        }
        let Self { inner: host, waiting, .. } = self;
        waiting.retain(|number, waiting| {
            if !what(&waiting.what) {
                return true;
            }
            let check = HdmCheck::begin(host);
            if check.is_done() {
                log.answer(*number, Ok(check.answer(host)));
                return false;
            }
            waiting.what = Waits::Tree(check);
            // From here on `done` answers it, when the last load has ended.
            true
        });
    }

    fn tree(&mut self, now: Instant, number: u64) -> Option<Answer> {
        let check = HdmCheck::begin(&mut self.inner);
        if check.is_done() {
            return Some(check.answer(&self.inner));
        }
        self.wait(now, number, Waits::Tree(check), super::time_limit::TIMEOUT_MS);
        None
    }

    fn pump(&mut self, now: Instant, log: &mut EventLog) -> usize {
        let Self { inner: host, transfers, waiting, fabric_mem, .. } = self;
        let mut ended = Vec::new();
        let submit: &mut Submit<'_> = &mut |ask| submit(host, ask);
        let mut sent = transfers.pump(now, submit, &mut ended);
        log.transfers(ended);
        sent += fabric_mem.as_mut().map_or(0, |it| it.pump(now, host, log));
        waiting.retain(|number, waiting| {
            let goes_on = now < waiting.until;
            if !goes_on {
                log.answer(*number, Err(Refused::unavailable("not finished in time")));
            }
            goes_on
        });
        sent
    }
}

fn no_function(function: u8) -> Result<(), Refused> {
    if function == 0 { Ok(()) } else { Err(Refused::bad_request("a host has no functions")) }
}

fn no_memory(at: u64, len: u64) -> Refused {
    Refused::because(format!("no memory of {len} bytes at {at:#x}"))
}

impl OwnMemory for HostEndpoint {
    fn check(&self, at: u64, len: u64) -> Result<(), Refused> {
        if self.inner.memory().holds(at, len) { Ok(()) } else { Err(no_memory(at, len)) }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Refused> {
        let len = into.len() as u64;
        if Target::read(self.inner.memory(), at, into) { Ok(()) } else { Err(no_memory(at, len)) }
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Refused> {
        let done = self.inner.store(Hpa(at), data);
        if done { Ok(()) } else { Err(no_memory(at, data.len() as u64)) }
    }

    fn load(&mut self, at: u64, into: &mut [u8]) -> Result<CpuStep, Refused> {
        self.inner.load(Hpa(at), into).map_err(cpu)
    }

    fn store(&mut self, at: u64, data: &[u8]) -> Result<CpuStep, Refused> {
        self.inner.store_some(Hpa(at), data).map_err(cpu)
    }

    fn ended(&mut self, access: CpuAccess) -> Option<Result<Vec<u8>, Refused>> {
        Some(self.inner.cpu_ended(access)?.map_err(cpu))
    }
}

impl Endpoint for HostEndpoint {
    fn kind(&self) -> &'static str {
        "host"
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
        let fabric_mem = self.fabric_mem.as_deref();
        // Looked up for each poll: exports and the window change by commands.
        let reached = Reached { exported: &self.exports, fabric_mem };
        let Some(port) = sole(ports) else { return Ok(Progress::default()) };
        let progress = self.inner.poll_with(now, port, bufs, &reached)?;
        let due = fabric_mem.and_then(FabricMem::due);
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
            Command::Enumerate { timeout_ms } => self.scan(now, number, None, *timeout_ms),
            Command::Rescan { bdf, timeout_ms } => self.scan(now, number, Some(bdf.0), *timeout_ms),
            Command::Reset { bdf, timeout_ms } => self.reset(now, number, bdf.0, *timeout_ms),
            Command::CacheId { bdf, id, timeout_ms } => {
                self.cache_id(now, number, bdf.0, *id, *timeout_ms)
            }
            Command::Tree {} => Ok(self.tree(now, number)),
            Command::Cdat { bdf, timeout_ms } => {
                self.cdat(now, number, bdf.map(|it| it.0), *timeout_ms)
            }
            Command::ConfigRead { bdf, reg } => self.config(now, number, bdf.0, *reg, None),
            Command::ConfigWrite { bdf, reg, value, enables } => {
                self.config(now, number, bdf.0, *reg, Some((value.0, *enables)))
            }
            Command::Read(access) => self.transfer(now, number, access, false),
            Command::Write(access) => self.transfer(now, number, access, true),
            Command::Export { ranges } => {
                let exports = Exported::of(ranges.clone(), self.inner.memory());
                self.exports = exports.map_err(Refused::bad_request)?;
                Ok(Some(Answer::Done))
            }
            Command::Gae { opcode, input, block, timeout_ms } => {
                let block = self.block(*block)?;
                let opcode = u16::try_from(opcode.0)
                    .map_err(|_| Refused::bad_request("expected an opcode of 16 bits"))?;
                let command = self.inner.command(block, opcode, &input.0);
                self.wait(now, number, Waits::Mailbox { command }, *timeout_ms);
                Ok(None)
            }
            Command::Ring { base, block, timeout_ms } => {
                self.read_ring(now, number, *base, *block, *timeout_ms)
            }
            Command::TurnOff { timeout_ms } => {
                self.inner.turn_off();
                self.wait(now, number, Waits::TurnOff, *timeout_ms);
                Ok(None)
            }
            Command::LnStatus {} => completer::status(&self.inner).map(Some),
            Command::LoadStart { access, rounds, pause_ms } => {
                no_function(access.function)?;
                let how = self.how(access)?;
                self.transfers.start_load(access, how, *rounds, *pause_ms)?;
                Ok(Some(Answer::Done))
            }
            Command::Mem(command) => match &mut self.fabric_mem {
                Some(fabric_mem) => fabric_mem.begin(now, number, command, &mut self.inner),
                None => Err(Refused::because(fabric_mem::OFF)),
            },
            Command::LoadStop {} | Command::LoadStatus {} => {
                load_answer(&mut self.transfers, command).map(Some)
            }
            _ => Err(not_for("host", command)),
        }
    }

    fn own_memory(&mut self, _: &Command) -> Result<&mut dyn OwnMemory, Refused> {
        Ok(self)
    }

    fn counts(&self) -> Value {
        let (host, requester, link) = self.inner.counts();
        let mem = self.inner.mem_counts();
        let mut counts =
            json!({ "host": host, "requester": requester, "cxl_mem": mem, "link": link });
        if let Value::Object(counts) = &mut counts {
            counts.insert("home".to_owned(), json!(self.inner.home_counts()));
        }
        if let (Some((cache, (lines, lines_max))), Value::Object(counts)) =
            (self.inner.cache(), &mut counts)
        {
            let held = json!({ "lines": lines, "lines_max": lines_max, "counts": cache });
            counts.insert("cache".to_owned(), held);
        }
        counts
    }

    fn detail(&self) -> Value {
        let window = self.window.map(|(base, len)| json!({ "base": base, "len": len }));
        json!({
            "enumerated": self.inner.tree().is_some(),
            "enumerating": self.inner.is_enumerating(),
            "fabric_window": window,
            "exports": self.exports.ranges(),
            "intx": self.inner.intx().iter().map(|pin| pin.letter()).collect::<String>(),
            "load": self.transfers.load(),
            "fabric_mem": self.fabric_mem.as_ref().map(|it| it.list()),
        })
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.inner.release(bufs);
    }
}
