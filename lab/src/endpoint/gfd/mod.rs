//! A G-FAM device as an endpoint.
//!
//! It carries out CCI commands as a host's GAE would forward them; its status shows tables and refusals.
//!
//! Source: docs/endpoint.md; docs/spec/cxl-fabric.md "GFD (endpoint)".

pub mod spec;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weft_cxl::cci::{Served, Session};
use weft_cxl::cxl_host::mailbox::Response;
use weft_cxl::gfd::decode::Decoder;
use weft_cxl::gfd_end::GfdEnd;
use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_parsers::cci::{Header, Opcode};
use weft_parsers::fabric::Pid;
use weft_rpc::Refused;

use super::api::{Endpoint, not_for, sole};
use super::command::{Answer, Command};
use super::event_log::EventLog;
use super::host::answered;
use super::own_memory::OwnMemory;

/// Port ids covered by one slice of a status.
const REQUESTERS: usize = 512;
/// Longest input of a command in bytes.
const INPUT_MAX: usize = 1 << 16;

/// The endpoint around a G-FAM device.
pub struct GfdEndpoint {
    end: GfdEnd,
    name: String,
    /// Notifications that became events here, counted by kind.
    notices: BTreeMap<String, u64>,
}

impl GfdEndpoint {
    /// Wraps `end` under the name `name`. Its notifications for the fabric manager (0107h) become events here, because
    /// no manager reads them.
    #[must_use]
    pub fn new(end: GfdEnd, name: &str) -> Self {
        Self { end, name: name.to_owned(), notices: BTreeMap::new() }
    }

    /// The G-FAM device that it wraps.
    pub const fn end(&mut self) -> &mut GfdEnd {
        &mut self.end
    }

    fn cci(
        &mut self,
        now: Instant,
        opcode: u64,
        input: &[u8],
        from: u16,
    ) -> Result<Answer, Refused> {
        let refuse = |text: String| Refused::bad_request(text);
        let opcode = u16::try_from(opcode)
            .map_err(|_| refuse(format!("expected an opcode of 16 bits, found {opcode:#x}")))?;
        let from = Pid::assignable(from)
            .ok_or_else(|| refuse(format!("expected a port id 0..=4094, found {from}")))?;
        if input.len() > INPUT_MAX {
            return Err(refuse(format!("expected at most {INPUT_MAX} bytes of input")));
        }
        let header = Header::request(Opcode(opcode), 0);
        let mut message = vec![0; weft_parsers::cci::header::LEN + input.len()];
        let len = header.emit(input.len(), &mut message);
        let Some(len) = len else { return Err(refuse("the command has no form".to_owned())) };
        if let Some(to) = message.get_mut(weft_parsers::cci::header::LEN..) {
            to.copy_from_slice(input);
        }
        debug_assert!(len <= message.len(), "a header has its length");
        let mut out = Vec::new();
        // As a forwarded command of that host, so that the device applies the rights of a host and not of a manager.
        match self.end.cci(now, Session::Proxy(from), &message, &mut out) {
            Served::Response => {}
            other => return Err(Refused::unavailable(format!("no response: {other:?}"))),
        }
        let (header, payload) = Header::parse(&out)
            .map_err(|error| Refused::unavailable(format!("no response: {error}")))?;
        Ok(answered(Response {
            code: header.return_code.bits(),
            vendor: header.vendor_status,
            payload: payload.to_vec(),
        }))
    }

    /// Requesters with any rights or decoders, among the `count` port ids from `from` on.
    fn requesters(&self, from: u16, count: usize) -> Vec<Value> {
        let gfd = self.end.gfd();
        let sat = gfd.sat(from.into(), count).map(|page| page.list).unwrap_or_default();
        let row = |(bits, vector): (u16, &u32)| {
            let pid = Pid::assignable(bits)?;
            // Most of the 4,095 port ids have nothing; listing them would hide those that do.
            if *vector == 0 && !gfd.gdt().knows(pid) {
                return None;
            }
            let decoders: Vec<Value> = (0..)
                .zip(gfd.gdt().get(pid))
                .filter_map(|(index, decoder)| Some(decoder_json(index, &decoder?)))
                .collect();
            (*vector != 0 || !decoders.is_empty()).then(|| {
                json!({
                    "pid": pid.to_string(),
                    // Bit 31 of the access vector asks for notifications; the others are groups.
                    "groups": vector & !(1 << 31),
                    "notify": vector >> 31 == 1,
                    "gdt": decoders,
                })
            })
        };
        (from..).zip(&sat).filter_map(row).collect()
    }
}

/// Memory by DPA, without decoders and access rights.
impl OwnMemory for GfdEndpoint {
    fn check(&self, at: u64, len: u64) -> Result<(), Refused> {
        self.end.gfd().memory().check(at, len)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Refused> {
        OwnMemory::read(self.end.gfd().memory(), at, into)
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Refused> {
        // A store here would bypass the snoop filter, and leave stale copies in hosts' caches.
        let text = format!("{} bytes at {at:#x} are stored by hosts alone", data.len());
        Err(Refused::because(text))
    }
}

fn decoder_json(index: u64, decoder: &Decoder) -> Value {
    json!({
        "index": index,
        "hpa": decoder.hpa_base.0,
        "dpa": decoder.dpa_base.0,
        "len": decoder.dpa_len,
        "ways": decoder.interleave.ways(),
        "granularity": decoder.interleave.granularity(),
        "way": decoder.way,
        "coherent": decoder.coherent,
    })
}

impl Endpoint for GfdEndpoint {
    fn kind(&self) -> &'static str {
        "gfd"
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
        sole(ports).map_or(Ok(Progress::default()), |port| self.end.poll(now, port, bufs))
    }

    fn next_event(&mut self, log: &mut EventLog) -> bool {
        // One event in each call; the caller repeats until there is none.
        if let Some(news) = self.end.next_coherence_news() {
            log.event("coherence", news.to_string());
            return true;
        }
        let Some(notice) = self.end.next_notice() else { return false };
        let event = notice.event;
        let kind = format!("{:?}", event.kind);
        let text = format!(
            "{kind} trigger {} by {} at {:?} {:?}",
            event.trigger, event.rpid, event.hpa, event.dpa
        );
        log.event("notification", text);
        *self.notices.entry(kind).or_default() += 1;
        true
    }

    fn begin(
        &mut self,
        now: Instant,
        _: u64,
        command: &Command,
    ) -> Result<Option<Answer>, Refused> {
        match command {
            Command::Cci { opcode, input, from } => {
                self.cci(now, opcode.0, &input.0, *from).map(Some)
            }
            _ => Err(not_for("gfd", command)),
        }
    }

    fn counts(&self) -> Value {
        let (gfd, link) = self.end.counts();
        let (alike, lost) = self.end.gfd().untold();
        json!({
            "gfd": gfd,
            "link": link,
            "coherence": self.end.coherence(),
            "stale_messages": self.end.stale().0,
            "notifications": self.notices,
            "notifications_alike": { "fm": alike.0, "hosts": alike.1 },
            "notifications_lost": { "fm": lost.0, "hosts": lost.1 },
        })
    }

    fn detail(&self) -> Value {
        let device = self.end.gfd();
        let dmps = device.dmps(0, usize::MAX).map(|page| page.list).unwrap_or_default();
        let regions = device.regions(0, usize::MAX).map(|(it, _)| it.list).unwrap_or_default();
        let dmps: Vec<Value> = dmps
            .iter()
            .map(|it| {
                let media = if it.media.non_volatile { "pm" } else { "dram" };
                let (base, len) = (it.base.0, it.len);
                json!({ "index": it.index, "media": media, "base": base, "len": len, "block": it.block })
            })
            .collect();
        let regions: Vec<Value> = regions
            .iter()
            .map(|it| json!({ "id": it.id, "base": it.base.0, "len": it.len, "block": it.block }))
            .collect();
        json!({
            "pid": device.pid().to_string(),
            "capacity": device.capacity().size(),
            "media": dmps,
            "regions": regions,
            "extents": device.capacity().extent_count(),
            "stale_messages": self.end.stale().1.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    fn own_memory(&mut self, command: &Command) -> Result<&mut dyn OwnMemory, Refused> {
        match command {
            Command::Peek(_) => Ok(self),
            _ => Err(not_for("gfd", command)),
        }
    }

    fn detail_list(&self) -> Option<&'static str> {
        Some("requesters")
    }

    fn detail_rows(&self, from: usize) -> (Vec<Value>, Option<usize>) {
        let then = from + REQUESTERS;
        let first = u16::try_from(from).unwrap_or(u16::MAX);
        (self.requesters(first, REQUESTERS), (then < Pid::COUNT).then_some(then))
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.end.release(bufs);
    }
}
