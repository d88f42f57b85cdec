//! Specification of a host: a [`HostSpec`] makes a [`HostEndpoint`]; fields that are not given have defaults.
//!
//! Source: docs/endpoint.md.

use std::hash::{BuildHasher, RandomState};

use serde::{Deserialize, Serialize};
use weft_cxl::cache::home::HomeSpec;
use weft_cxl::cxl_host::{CxlHost, HostConfig, HostMemory};
use weft_cxl::gfd::memory::Memory;
use weft_cxl::ln::{LineSize, LncSpec, Regions};
use weft_cxl::pci::bridge::Window;
use weft_cxl::pci::express::LnSystem;
use weft_cxl::pci::{BridgeSpec, HostSpec as Software, Link, LnSettings, PortKind, SlotSpec};
use weft_dataplane::time::Span;
use weft_parsers::MacAddr;
use weft_parsers::fabric::Hpa;

use super::HostEndpoint;
use super::fabric_mem::{Asked, FabricMem, Kind, Limits, SLOTS, SLOTS_LEN, asked_for};
use crate::endpoint::api::Endpoint;
use crate::endpoint::command::Export;
use crate::endpoint::host::exports::Exported;
use crate::endpoint::number::Num;
use crate::endpoint::spec::{
    Common, Spec, SpecError, UIO_MAX, cache_lines, field, identity, in_flight, number, parts,
    power, range,
};

/// First address of a host's memory by default.
pub const MEMORY_BASE: u64 = 0x10_0000;
/// First address and length of the range that interrupts are written to.
const MSI: (u64, u64) = (0xFEE0_0000, 1 << 20);

/// Lines of its memory that caches of devices may hold in total.
const FILTER_LINES: usize = 1 << 20;

/// A host.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSpec {
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(flatten)]
    pub common: Common,
    /// Memory of the host; may be given several times; without BASE from 0x100000 on [default: 64MiB]
    #[cfg_attr(feature = "clap", arg(long, value_name = "[BASE:]SIZE"))]
    pub hpa_memory: Vec<String>,
    /// Address range of the fabric's memory, which the host accesses by UIO
    #[cfg_attr(feature = "clap", arg(long, value_name = "BASE:SIZE"))]
    pub fabric_window: Option<String>,
    /// Maximum size of a read request in bytes, a power of two from 128 to 4096 [default: 512]
    #[cfg_attr(feature = "clap", arg(long))]
    pub read_max: Option<Num>,
    /// Boundary in bytes that no UIO request crosses, a power of two from 128 to 4096, at most a GFD's interleave
    /// granularity [default: 256]
    #[cfg_attr(feature = "clap", arg(long))]
    pub uio_max: Option<Num>,
    /// Maximum number of outstanding requests [default: 64]
    #[cfg_attr(feature = "clap", arg(long))]
    pub in_flight: Option<usize>,
    /// PCIe segment of the host, 0 to 255, announced to devices by configuration requests [default: not announced]
    #[cfg_attr(feature = "clap", arg(long))]
    pub segment: Option<Num>,
    /// Number of lines of a write-back cache for CXL.mem, 1 to 1048576; 0: no cache [default: 0]
    #[cfg_attr(feature = "clap", arg(long))]
    pub cache_lines: Option<Num>,
    /// Time limit for a caching device's answer to a snoop, in milliseconds, 1 to 60000 [default: 200]
    #[cfg_attr(feature = "clap", arg(long))]
    pub snoop_ms: Option<Num>,
    /// Memory at local address LOCAL that others access by UIO at address BASE (GIM)
    #[cfg_attr(feature = "clap", arg(long, value_name = "BASE:SIZE=LOCAL"))]
    pub export: Vec<String>,
    /// Number of lines that can be watched by Lightweight Notification; non-flit mode only
    #[cfg_attr(feature = "clap", arg(long))]
    pub ln_lines: Option<usize>,
    /// Size of a watched line in bytes, 64 or 128, the same in the whole system [default: 64]
    #[cfg_attr(feature = "clap", arg(long))]
    pub ln_line: Option<Num>,
    /// Maximum number of watchers of a line to notify by directed messages; more get a broadcast (0: all do)
    /// [default: 4]
    #[cfg_attr(feature = "clap", arg(long))]
    pub ln_watchers: Option<usize>,
    /// Transfer fabric memory, by the commands `mem ...` of the control socket
    #[cfg_attr(feature = "clap", arg(long))]
    pub enable_use_fabric_mem: bool,
    /// Option of fabric memory transfers, such as `streams_per_transfer=8`; may be given several times
    #[cfg_attr(feature = "clap", arg(long, value_name = "KEY=VALUE"))]
    pub fabric_mem: Vec<String>,
}

impl Spec for HostSpec {
    const KIND: &'static str = "host";

    fn endpoint(&self, macs: &[MacAddr]) -> Result<Box<dyn Endpoint>, SpecError> {
        Ok(Box::new(self.build(macs)?))
    }
}

impl HostSpec {
    /// The LN completer, which registers lines of the host's whole memory.
    fn completer(&self, regions: Regions) -> Result<Option<LncSpec>, SpecError> {
        let Some(lines_max) = self.ln_lines else {
            let alone =
                [("ln_line", self.ln_line.is_some()), ("ln_watchers", self.ln_watchers.is_some())];
            return match alone.iter().find(|(_, given)| *given) {
                None => Ok(None),
                Some((name, _)) => Err(field(name, "no line is watched: give ln_lines, too")),
            };
        };
        // Flit mode has no LN bit in its TLPs (docs/spec/cxl-fabric.md, "Lightweight Notification").
        if self.common.flit()? {
            let text = "Lightweight Notification is of non-flit mode: give mode non-flit";
            return Err(field("ln_lines", text));
        }
        let line = match self.ln_line {
            None | Some(Num(64)) => LineSize::B64,
            Some(Num(128)) => LineSize::B128,
            Some(Num(other)) => {
                return Err(field("ln_line", format!("expected 64 or 128, found {other}")));
            }
        };
        Ok(Some(LncSpec {
            line,
            lines_max,
            watchers_max: self.ln_watchers.unwrap_or(4),
            translated: false,
            regions,
            broadcast_gap: Span::ZERO,
            pending_max: 1_024,
        }))
    }

    /// Makes the host. The first of `macs` is the address of its port.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn build(&self, macs: &[MacAddr]) -> Result<HostEndpoint, SpecError> {
        let mut memory = HostMemory::default();
        let software = Software::default();
        let default = ["64MiB".to_owned()];
        let given = if self.hpa_memory.is_empty() { &default[..] } else { &self.hpa_memory };
        let mut regions = Regions::new();
        let window = self.fabric_window.as_deref().map(|text| range("fabric_window", text, None));
        let window = window.transpose()?;
        if let Some((base, len)) = window {
            // The window first: memory is then checked against it as well.
            free("fabric_window", base, len, &software, None)?;
        }
        for text in given {
            let (base, len) = range("hpa_memory", text, Some(MEMORY_BASE))?;
            free("hpa_memory", base, len, &software, window)?;
            memory.add(Hpa(base), Memory::anonymous(len))?;
            let added = regions.add(Hpa(base), len);
            added.map_err(|error| field("hpa_memory", error.to_string()))?;
        }
        let exports = self.export.iter().map(|text| export(text)).collect::<Result<Vec<_>, _>>()?;
        let exports = Exported::of(exports, &memory).map_err(|text| field("export", text))?;
        let lnc = self.completer(regions)?;
        let fabric = window.map(|(base, len)| Window { base, limit: base + (len - 1) });
        let software = Software { ln: lnc.as_ref().map(settings), fabric, ..software };
        let fabric_mem = self.fabric_mem(window)?;
        // Memory of the host like any other, so that its completer serves it; others get there by `FabricMem::serve`.
        if fabric_mem.is_some() {
            memory.add(Hpa(SLOTS), Memory::anonymous(SLOTS_LEN))?;
        }
        let config = HostConfig {
            end: self.common.end("host", self.common.carries()?, macs, 0)?,
            spec: software,
            root: BridgeSpec {
                // 06 04 00h: PCI-to-PCI bridge, which a root port is.
                identity: identity(0x0100, 0x06_04_00),
                kind: PortKind::Root,
                port: 0,
                link: Link::default(),
                slot: Some(SlotSpec { number: 1, surprise: true, ..SlotSpec::default() }),
                serial: None,
                multi_function: false,
                ln: match lnc.as_ref().map(|lnc| lnc.line) {
                    None => LnSystem::None,
                    Some(LineSize::B64) => LnSystem::Cls64,
                    Some(LineSize::B128) => LnSystem::Cls128,
                },
            },
            read_max: power("read_max", self.read_max, 512)?,
            uio_max: power("uio_max", self.uio_max, UIO_MAX)?,
            in_flight_max: in_flight(self.in_flight, 64)?,
            timeout: self.common.timeout()?,
            uio_last_first: false,
            cache_lines: cache_lines(self.cache_lines)?,
            home: self.home()?,
            gim: true, // its exports decide which requests it accepts
            lnc,
            hot_plug: true,
        };
        let host = CxlHost::new(config, memory)?;
        let host = match self.segment()? {
            Some(segment) => host.in_segment(segment),
            None => host,
        };
        let endpoint = HostEndpoint::new(host, &self.common.name("host"), window, exports);
        Ok(endpoint.with_fabric_mem(fabric_mem))
    }

    /// The home agent for caches of devices.
    fn home(&self) -> Result<HomeSpec, SpecError> {
        let snoop_ms = match self.snoop_ms {
            None => 200,
            Some(Num(ms @ 1..=60_000)) => ms,
            Some(Num(ms)) => {
                return Err(field("snoop_ms", format!("expected 1 to 60000, found {ms}")));
            }
        };
        // Lease numbers decide nothing, so a run in virtual time is the same whatever they are. They only must be hard
        // to guess.
        let secret = RandomState::new().hash_one(FILTER_LINES);
        Ok(HomeSpec { lines: FILTER_LINES, answer_max: Span::from_ms(snoop_ms), secret })
    }

    fn segment(&self) -> Result<Option<u8>, SpecError> {
        let Some(Num(number)) = self.segment else { return Ok(None) };
        if !self.common.flit()? {
            return Err(field("segment", "requests name a segment in flit mode only"));
        }
        let fits = u8::try_from(number).map(Some);
        fits.map_err(|_| field("segment", format!("expected 0 to 255, found {number}")))
    }

    /// Its fabric memory transfers, if they are enabled.
    fn fabric_mem(&self, window: Option<(u64, u64)>) -> Result<Option<FabricMem>, SpecError> {
        let asked = Asked {
            on: self.enable_use_fabric_mem,
            options: &self.fabric_mem,
            window,
            flit: self.common.flit()?,
        };
        let limits = Limits {
            answer: self.common.timeout()?,
            in_flight: in_flight(self.in_flight, 64)?,
            uio_max: power("uio_max", self.uio_max, UIO_MAX)?,
        };
        asked_for(Kind::Host, asked, limits)
    }
}

/// Settings for LN requesters: none may register more lines than the host can watch.
fn settings(lnc: &LncSpec) -> LnSettings {
    // The limit is an exponent of five bits in the requester's control register.
    let limit = lnc.lines_max.checked_ilog2().unwrap_or_default().min(31);
    LnSettings { line: lnc.line, limit: u8::try_from(limit).unwrap_or_default() }
}

/// Parses `BASE:SIZE=LOCAL`.
fn export(text: &str) -> Result<Export, SpecError> {
    let (there, local) = parts("export", text, "BASE:SIZE=LOCAL")?;
    let (base, len) = range("export", there, None)?;
    let local = number("export", local)?;
    if local.checked_add(len).is_none() {
        return Err(field("export", format!("{text:?} ends beyond 64 bits")));
    }
    Ok(Export { base: Num(base), len: Num(len), local: Num(local), from: Vec::new() })
}

/// Refuses a range that overlaps the apertures of devices, interrupts or the fabric window.
fn free(
    name: &'static str,
    base: u64,
    len: u64,
    software: &Software,
    window: Option<(u64, u64)>,
) -> Result<(), SpecError> {
    let apertures = [software.apertures.mem, software.apertures.pref];
    let apertures = apertures.iter().flatten().map(|it| (it.base, it.limit));
    let others = [Some(MSI), window];
    let others = others.iter().flatten().map(|(base, len)| (*base, base + (len - 1)));
    let hit = apertures.chain(others).find(|(from, to)| base <= *to && *from <= base + (len - 1));
    match hit {
        None => Ok(()),
        Some((from, to)) => {
            let text = format!(
                "{len:#x} bytes at {base:#x} reach into {from:#x} to {to:#x}, which devices, \
                 interrupts or the fabric have"
            );
            Err(field(name, text))
        }
    }
}
