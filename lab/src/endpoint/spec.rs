//! What an endpoint is to be: flags or a TOML file, over defaults, made into a `Endpoint`.
//!
//! Shape: [`HostSpec`], [`DeviceSpec`], [`GfdSpec`], [`HbrSpec`]; what is not given has a default; `build` → endpoint.
//! Units: bytes, milliseconds, Gbit/s.
//! Source: docs/endpoint.md.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weft_base::files::{self, Existing};
use weft_cxl::cxl_device::{CxlDevice, DeviceConfig, DeviceError, FunctionConfig};
use weft_cxl::cxl_host::memory::NoPlace;
use weft_cxl::cxl_host::{CxlHost, HostConfig, HostError, HostMemory};
use weft_cxl::gfd::capacity::{Choice, NO_TAG};
use weft_cxl::gfd::decode::Decoder;
use weft_cxl::gfd::dmp::{Dmp, Media, Region, UNIT};
use weft_cxl::gfd::memory::Memory;
use weft_cxl::gfd::{Config, Gfd};
use weft_cxl::gfd_end::{Device as GfdDevice, GfdEnd, GfdEndConfig};
use weft_cxl::hbr::{HbrConfig, HbrError, HbrSwitch};
use weft_cxl::ln::{LineSize, LncSpec, Regions};
use weft_cxl::pci::express::LnSystem;
use weft_cxl::pci::function::{BAR_COUNT, BarKind, BarSpec, LnrSpec};
use weft_cxl::pci::{
    BridgeSpec, FunctionSpec, HostSpec as Software, Identity, Link, PortKind, SlotSpec,
};
use weft_cxl::tlp_end::{Carries, EndConfig};
use weft_cxl::vdm::in_band::Commands;
use weft_dataplane::config::TlpConfig;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::fabric::{Hpa, Interleave, Pid};
use weft_parsers::tlp::Mode;

use super::command::Export;
use super::device::DeviceEndpoint;
use super::gfd::GfdEndpoint;
use super::hbr::HbrEndpoint;
use super::host::HostEndpoint;
use super::number::Num;

/// Where a host's memory begins unless it says otherwise.
pub const MEMORY_BASE: u64 = 0x10_0000;
/// Where interrupts are written, and how far that reaches.
const MSI: (u64, u64) = (0xFEE0_0000, 1 << 20);
/// Most memory behind one BAR or range.
const MEMORY_MAX: u64 = 1 << 48;
/// Who all of them are made by: the CXL consortium's vendor id.
const VENDOR: u16 = 0x1E98;

/// Why an endpoint cannot be as it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// A field is wrong.
    #[error("{field}: {text}")]
    Field {
        /// Which.
        field: &'static str,
        /// How.
        text: String,
    },
    /// The file is not TOML, or has a field that there is not.
    #[error("{0}")]
    File(String),
    /// The host refuses.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Its memory does not fit together.
    #[error(transparent)]
    Memory(#[from] NoPlace),
    /// The device refuses.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The switch refuses.
    #[error(transparent)]
    Hbr(#[from] HbrError),
    /// The file with a GFD's memory cannot be used.
    #[error("memory in {}", path.display())]
    Backing {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

fn field(field: &'static str, text: impl Into<String>) -> SpecError {
    SpecError::Field { field, text: text.into() }
}

/// What all endpoints have.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Common {
    /// Interface, `af_packet:INTERFACE` or `tap:NAME`; of a switch the upstream one first
    #[cfg_attr(feature = "clap", arg(long, value_name = "[KIND:]DEVICE"))]
    pub port: Vec<String>,
    /// Name, in reports and of the socket's directory
    #[cfg_attr(feature = "clap", arg(long))]
    pub name: Option<String>,
    /// Address on its link; that of the interface by default
    #[cfg_attr(feature = "clap", arg(long))]
    pub mac: Option<String>,
    /// Layout of TLPs: flit or non-flit [default: flit]
    #[cfg_attr(feature = "clap", arg(long))]
    pub mode: Option<String>,
    /// `Max_Payload_Size`, a power of two from 128 to 4096 [default: 256]
    #[cfg_attr(feature = "clap", arg(long))]
    pub payload_max: Option<Num>,
    /// Priorities of the switch at the other end, 4 or 8 [default: 8]
    #[cfg_attr(feature = "clap", arg(long))]
    pub priorities: Option<u8>,
    /// Rate of the link, for pauses [default: 100]
    #[cfg_attr(feature = "clap", arg(long))]
    pub gbps: Option<u64>,
    /// How long an answer to a request may take [default: 1000]
    #[cfg_attr(feature = "clap", arg(long))]
    pub answer_ms: Option<u64>,
}

/// A host.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSpec {
    /// What all endpoints have
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(flatten)]
    pub common: Common,
    /// Its memory, several times if need be; from 0x100000 on by default [default: 64MiB]
    #[cfg_attr(feature = "clap", arg(long, value_name = "[BASE:]SIZE"))]
    pub hpa_memory: Vec<String>,
    /// Addresses that are reached by UIO: the fabric's memory
    #[cfg_attr(feature = "clap", arg(long, value_name = "BASE:SIZE"))]
    pub fabric_window: Option<String>,
    /// Most bytes of a read, a power of two from 128 to 4096 [default: 512]
    #[cfg_attr(feature = "clap", arg(long))]
    pub read_max: Option<Num>,
    /// No UIO request crosses a multiple of this, a power of two from 128 to 4096, at most a GFD's granularity
    /// [default: 256]
    #[cfg_attr(feature = "clap", arg(long))]
    pub uio_max: Option<Num>,
    /// Requests under way [default: 64]
    #[cfg_attr(feature = "clap", arg(long))]
    pub in_flight: Option<usize>,
    /// Memory that others reach by UIO (GIM): what they call BASE is LOCAL here
    #[cfg_attr(feature = "clap", arg(long, value_name = "BASE:SIZE=LOCAL"))]
    pub export: Vec<String>,
    /// Lines that may be watched by Lightweight Notification, in non-flit mode
    #[cfg_attr(feature = "clap", arg(long))]
    pub ln_lines: Option<usize>,
}

/// A device.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSpec {
    /// What all endpoints have
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(flatten)]
    pub common: Common,
    /// A BAR of each function; KIND is io, mem32, pref32, mem64 or pref64 [default: 0=pref64:1MiB]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N=KIND:SIZE"))]
    pub bar: Vec<String>,
    /// Functions, 1 to 8, alike but for the Device ID [default: 1]
    #[cfg_attr(feature = "clap", arg(long))]
    pub functions: Option<u8>,
    /// Vendor ID [default: 0x1E98]
    #[cfg_attr(feature = "clap", arg(long))]
    pub vendor_id: Option<Num>,
    /// Device ID of the first function; those behind it count on [default: 0x0D01]
    #[cfg_attr(feature = "clap", arg(long))]
    pub device_id: Option<Num>,
    /// Serial number
    #[cfg_attr(feature = "clap", arg(long))]
    pub serial: Option<Num>,
    /// Memory that hosts manage, behind the first function, for UIO
    #[cfg_attr(feature = "clap", arg(long, value_name = "BASE:SIZE"))]
    pub hdm: Option<String>,
    /// A requester of Lightweight Notification for 2 to the power of so many lines
    #[cfg_attr(feature = "clap", arg(long))]
    pub lnr: Option<u8>,
    /// No UIO request crosses a multiple of this, a power of two from 128 to 4096, at most a GFD's granularity
    /// [default: 256]
    #[cfg_attr(feature = "clap", arg(long))]
    pub uio_max: Option<Num>,
    /// Requests under way, of each function [default: 32]
    #[cfg_attr(feature = "clap", arg(long))]
    pub in_flight: Option<usize>,
    /// Takes UIO requests that name their sender (GIM, accelerators)
    #[cfg_attr(feature = "clap", arg(long))]
    pub gim: bool,
}

/// A G-FAM device.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GfdSpec {
    /// What all endpoints have
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(flatten)]
    pub common: Common,
    /// Its memory, a multiple of 256 MiB, one partition and region [default: 256MiB]
    #[cfg_attr(feature = "clap", arg(long))]
    pub capacity: Option<Num>,
    /// Block in which capacity is dealt out, a power of two from 4 KiB [default: 16MiB]
    #[cfg_attr(feature = "clap", arg(long))]
    pub block: Option<Num>,
    /// Keeps its memory in this file; without, in this process
    #[cfg_attr(feature = "clap", arg(long))]
    pub file: Option<PathBuf>,
    /// Its port id before a fabric manager gives it one [default: 1; none where it is managed]
    #[cfg_attr(feature = "clap", arg(long))]
    pub pid: Option<u16>,
    /// Serial number [default: 1]
    #[cfg_attr(feature = "clap", arg(long))]
    pub serial: Option<Num>,
    /// Without a fabric manager: gives a requester so much, at that address; a group of its own each time
    #[cfg_attr(feature = "clap", arg(long, value_name = "PID=HPA:SIZE"))]
    pub grant: Vec<String>,
    /// Has a fabric manager: takes commands by messages
    #[cfg_attr(feature = "clap", arg(long))]
    pub managed: bool,
}

/// An HBR switch.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HbrSpec {
    /// What all endpoints have
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(flatten)]
    pub common: Common,
    /// Number of the first slot [default: 16]
    #[cfg_attr(feature = "clap", arg(long))]
    pub slot_first: Option<u16>,
    /// What vanishes from a slot without notice is an error
    #[cfg_attr(feature = "clap", arg(long))]
    pub no_surprise: bool,
}

/// `flags` over what the TOML in `text` says.
///
/// # Errors
/// No TOML, a field that there is not, a value of another kind.
pub fn over<T>(text: &str, flags: &T) -> Result<T, SpecError>
where
    T: Default + Serialize + DeserializeOwned,
{
    let file = |text: String| SpecError::File(text);
    let mut all: Map<String, Value> = toml::from_str(text).map_err(|e| file(e.to_string()))?;
    let object = |of: &T| match serde_json::to_value(of) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let known = object(&T::default());
    if let Some(name) = all.keys().find(|name| !known.contains_key(*name)) {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        return Err(file(format!("no field {name:?}; there are {}", names.join(", "))));
    }
    for (name, value) in object(flags) {
        if known.get(&name) != Some(&value) {
            all.insert(name, value);
        }
    }
    // One field at a time, so that what is wrong has a name.
    for (name, value) in &all {
        let one = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
        serde_json::from_value::<T>(one).map_err(|e| file(format!("{name}: {e}")))?;
    }
    serde_json::from_value(Value::Object(all)).map_err(|e| file(e.to_string()))
}

/// `BASE:SIZE`, or only the size.
fn range(name: &'static str, text: &str, base: Option<u64>) -> Result<(u64, u64), SpecError> {
    let number = |part: &str| part.parse::<Num>().map(|it| it.0).map_err(|e| field(name, e));
    let (from, len) = match (text.split_once(':'), base) {
        (Some((from, len)), _) => (number(from)?, number(len)?),
        (None, Some(base)) => (base, number(text)?),
        (None, None) => return Err(field(name, format!("expected BASE:SIZE, found {text:?}"))),
    };
    if len == 0 || len > MEMORY_MAX || from.checked_add(len).is_none() {
        let text = format!("expected 1 to 2^48 bytes below 2^64, found {len} at {from:#x}");
        return Err(field(name, text));
    }
    Ok((from, len))
}

/// The two parts of `LEFT=RIGHT`.
fn parts<'a>(
    name: &'static str,
    text: &'a str,
    form: &str,
) -> Result<(&'a str, &'a str), SpecError> {
    text.split_once('=').ok_or_else(|| field(name, format!("expected {form}, found {text:?}")))
}

fn number16(name: &'static str, number: Num) -> Result<u16, SpecError> {
    let text = || format!("expected 16 bits, found {:#x}", number.0);
    u16::try_from(number.0).map_err(|_| field(name, text()))
}

fn number(name: &'static str, text: &str) -> Result<u64, SpecError> {
    text.parse::<Num>().map(|it| it.0).map_err(|error| field(name, error))
}

/// An address that depends on the name alone.
fn made_up_mac(name: &str, link: usize) -> MacAddr {
    // FNV-1a: the same in every run, and different names are told apart.
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let [a, b, c, _] = name.as_bytes().iter().fold(0x811C_9DC5, mix).to_le_bytes();
    MacAddr([2, 0xE, a, b, c, u8::try_from(link).unwrap_or(u8::MAX)])
}

impl Common {
    /// Its name, or the one that goes with `kind`.
    #[must_use]
    pub fn name(&self, kind: &str) -> String {
        self.name.clone().unwrap_or_else(|| kind.to_owned())
    }

    /// Rate that its link claims.
    ///
    /// # Errors
    /// None that a link has.
    pub fn rate(&self) -> Result<LinkRate, SpecError> {
        match self.gbps.unwrap_or(100) {
            gbps @ 1..=1_600 => Ok(LinkRate::gbps(gbps)),
            gbps => Err(field("gbps", format!("expected 1 to 1600, found {gbps}"))),
        }
    }

    /// Longest frame of its links, without FCS.
    ///
    /// # Errors
    /// As [`Self::payload`].
    pub fn frame_len_max(&self) -> Result<usize, SpecError> {
        Ok((self.payload()? + 128).max(1_518)) // addresses, link header, PTH, header, OHC, trailer
    }

    /// `Max_Payload_Size`.
    ///
    /// # Errors
    /// It is none.
    pub fn payload(&self) -> Result<usize, SpecError> {
        power("payload_max", self.payload_max, 256)
    }

    fn flit(&self) -> Result<bool, SpecError> {
        match self.mode.as_deref().unwrap_or("flit") {
            "flit" => Ok(true),
            "non-flit" => Ok(false),
            other => Err(field("mode", format!("expected flit or non-flit, found {other:?}"))),
        }
    }

    fn carries(&self) -> Result<Carries, SpecError> {
        Ok(Carries::Hbr(if self.flit()? { Mode::Flit } else { Mode::NonFlit }))
    }

    fn timeout(&self) -> Span {
        Span::from_ms(self.answer_ms.unwrap_or(1_000).clamp(1, 3_600_000))
    }

    fn end(
        &self,
        kind: &str,
        carries: Carries,
        macs: &[MacAddr],
        link: usize,
    ) -> Result<EndConfig, SpecError> {
        let own = self.mac.as_ref().filter(|_| link == 0).map(|text| {
            let refuse = || field("mac", format!("expected an address, found {text:?}"));
            text.parse::<MacAddr>().map_err(|_| refuse())
        });
        let made_up = || made_up_mac(&self.name(kind), link);
        let mac = own.transpose()?.or(macs.get(link).copied()).unwrap_or_else(made_up);
        let (pris, classes) = match self.priorities.unwrap_or(8) {
            4 => (4, PriMap::four()),
            8 => (8, PriMap::eight()),
            other => return Err(field("priorities", format!("expected 4 or 8, found {other}"))),
        };
        let (tlp, payload_max) = (TlpConfig::for_pris(pris), self.payload()?);
        Ok(EndConfig { mac, carries, tlp, classes, payload_max })
    }
}

/// What no UIO request crosses a multiple of, unless told otherwise: the least granularity of G-FAM
/// (docs/spec/wire-formats.md 5.1), so that whatever is mapped can be reached.
const UIO_MAX: u64 = 256;

fn power(name: &'static str, given: Option<Num>, default: u64) -> Result<usize, SpecError> {
    let number = given.map_or(default, |it| it.0);
    let fits = number.is_power_of_two() && (128..=4_096).contains(&number);
    let found = usize::try_from(number).ok().filter(|_| fits);
    let text = || format!("expected a power of two from 128 to 4096, found {number}");
    found.ok_or_else(|| field(name, text()))
}

fn in_flight(given: Option<usize>, default: usize) -> Result<usize, SpecError> {
    match given.unwrap_or(default) {
        count @ 1..=1_024 => Ok(count),
        count => Err(field("in_flight", format!("expected 1 to 1024, found {count}"))),
    }
}

fn identity(device: u16, class: u32) -> Identity {
    Identity { vendor: VENDOR, device, revision: 1, class, subsystem: (VENDOR, 0) }
}

impl HostSpec {
    /// The host, whose port has the first of `macs`.
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
        if let Some(window) = window {
            free("fabric_window", window, &software, None)?;
        }
        for text in given {
            let (base, len) = range("hpa_memory", text, Some(MEMORY_BASE))?;
            free("hpa_memory", (base, len), &software, window)?;
            memory.add(Hpa(base), Memory::anonymous(len))?;
            let added = regions.add(Hpa(base), len);
            added.map_err(|error| field("hpa_memory", error.to_string()))?;
        }
        let exports = self.export.iter().map(|text| export(text)).collect::<Result<Vec<_>, _>>()?;
        if self.ln_lines.is_some() && self.common.flit()? {
            return Err(field("ln_lines", "Lightweight Notification is of non-flit mode"));
        }
        let lnc = self.ln_lines.map(|lines_max| LncSpec {
            line: LineSize::B64,
            lines_max,
            watchers_max: 4,
            translated: false,
            regions,
            broadcast_gap: Span::ZERO,
            pending_max: 1_024,
        });
        let config = HostConfig {
            end: self.common.end("host", self.common.carries()?, macs, 0)?,
            spec: software,
            root: BridgeSpec {
                identity: identity(0x0100, 0x06_04_00),
                kind: PortKind::Root,
                port: 0,
                link: Link::default(),
                slot: Some(SlotSpec { number: 1, surprise: true, ..SlotSpec::default() }),
                serial: None,
                multi_function: false,
                ln: if lnc.is_some() { LnSystem::Cls64 } else { LnSystem::None },
            },
            read_max: power("read_max", self.read_max, 512)?,
            uio_max: power("uio_max", self.uio_max, UIO_MAX)?,
            in_flight_max: in_flight(self.in_flight, 64)?,
            timeout: self.common.timeout(),
            uio_last_first: false,
            gim: true, // what it exports decides
            lnc,
            hot_plug: true,
        };
        let host = CxlHost::new(config, memory)?;
        Ok(HostEndpoint::new(host, &self.common.name("host"), window, exports))
    }
}

/// `BASE:SIZE=LOCAL`.
fn export(text: &str) -> Result<Export, SpecError> {
    let (there, local) = parts("export", text, "BASE:SIZE=LOCAL")?;
    let (base, len) = range("export", there, None)?;
    let local = number("export", local)?;
    if local.checked_add(len).is_none() {
        return Err(field("export", format!("{text:?} ends beyond 64 bits")));
    }
    Ok(Export { base: Num(base), len: Num(len), local: Num(local), from: Vec::new() })
}

/// Refuses a range that devices or interrupts are at, or the fabric.
fn free(
    name: &'static str,
    (base, len): (u64, u64),
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

/// `N=KIND:SIZE`.
fn bar(text: &str) -> Result<(usize, BarSpec), SpecError> {
    let form = "N=KIND:SIZE, KIND one of io, mem32, pref32, mem64, pref64";
    let refuse = || field("bar", format!("expected {form}, found {text:?}"));
    let (index, rest) = parts("bar", text, form)?;
    let (kind, size) = rest.split_once(':').ok_or_else(refuse)?;
    let kind = match kind {
        "io" => BarKind::Io,
        "mem32" => BarKind::Mem32 { prefetch: false },
        "pref32" => BarKind::Mem32 { prefetch: true },
        "mem64" => BarKind::Mem64 { prefetch: false },
        "pref64" => BarKind::Mem64 { prefetch: true },
        _ => return Err(refuse()),
    };
    let index: usize = index.parse().ok().filter(|at| *at < BAR_COUNT).ok_or_else(refuse)?;
    Ok((index, BarSpec { kind, size: number("bar", size)? }))
}

impl DeviceSpec {
    fn function(&self, number: u8, count: u8) -> Result<FunctionConfig, SpecError> {
        let first = number16("device_id", self.device_id.unwrap_or(Num(0x0D01)))?;
        let mut identity = identity(first.wrapping_add(number.into()), 0x05_02_10);
        if let Some(vendor) = self.vendor_id {
            identity.vendor = number16("vendor_id", vendor)?;
        }
        let mut spec =
            FunctionSpec { identity, multi_function: count > 1, ..FunctionSpec::default() };
        let default = ["0=pref64:1MiB".to_owned()];
        for text in if self.bar.is_empty() { &default[..] } else { &self.bar } {
            let (index, given) = bar(text)?;
            let place = spec.bars.get_mut(index);
            if let Some(place) = place.filter(|place| place.is_none()) {
                *place = Some(given);
            } else {
                return Err(field("bar", format!("BAR {index} is given twice")));
            }
        }
        spec.serial = self.serial.filter(|_| number == 0).map(|it| it.0);
        spec.lnr =
            self.lnr.map(|registrations| LnrSpec { cls64: true, cls128: false, registrations });
        let hdm = self.hdm.as_deref().filter(|_| number == 0);
        let hdm = hdm.map(|text| range("hdm", text, None)).transpose()?;
        Ok(FunctionConfig { spec, mailbox: None, hdm: hdm.map(|(base, len)| (Hpa(base), len)) })
    }

    /// The device, whose port has the first of `macs`.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn build(&self, macs: &[MacAddr]) -> Result<DeviceEndpoint, SpecError> {
        let count = self.functions.unwrap_or(1);
        let functions = (0..count).map(|number| self.function(number, count));
        let config = DeviceConfig {
            end: self.common.end("device", self.common.carries()?, macs, 0)?,
            functions: functions.collect::<Result<_, _>>()?,
            uio_max: power("uio_max", self.uio_max, UIO_MAX)?,
            in_flight_max: in_flight(self.in_flight, 32)?,
            timeout: self.common.timeout(),
            uio_last_first: false,
            gim: self.gim,
            busy: 0,
        };
        let device = CxlDevice::new(config)?;
        let flit = self.common.flit()?;
        Ok(DeviceEndpoint::new(device, &self.common.name("device"), usize::from(count), flit))
    }
}

impl GfdSpec {
    fn memory(&self, len: u64) -> Result<Memory, SpecError> {
        let Some(path) = &self.file else { return Ok(Memory::anonymous(len)) };
        let open = || Memory::in_file(files::create(path, Existing::Keep)?, len);
        open().map_err(|source| SpecError::Backing { path: path.clone(), source })
    }

    fn grant(gfd: &mut Gfd, group: u16, text: &str) -> Result<(), SpecError> {
        let (pid, place) = parts("grant", text, "PID=HPA:SIZE")?;
        let pid = u16::try_from(number("grant", pid)?).ok().and_then(Pid::assignable);
        let pid = pid.ok_or_else(|| field("grant", "expected a port id 0..=4094"))?;
        let (hpa, len) = range("grant", place, None)?;
        let refuse = |what: &str| {
            let what = what.to_owned();
            move |code| field("grant", format!("{text}: {what} refused: {code:?}"))
        };
        let choice = Choice::Contiguous { region: 0, len };
        let added = gfd.add_capacity(Instant::ZERO, (group, NO_TAG), choice, 1);
        let added = added.map_err(refuse("capacity"))?;
        let start = added.list.first().map(|extent| extent.start);
        let start = start.ok_or_else(|| field("grant", format!("{text}: no room is left")))?;
        let groups = gfd.sat(pid.index(), 1).ok().and_then(|page| page.list.first().copied());
        let groups = groups.unwrap_or_default() | 1 << 31 | 1 << group;
        gfd.set_sat(&[(pid, groups)]).map_err(refuse("access"))?;
        let place = gfd.gdt().get(pid).iter().position(Option::is_none);
        let place = place.ok_or_else(|| field("grant", format!("{pid} has 8 decoders already")))?;
        let interleave = Interleave::NONE;
        let (hpa_base, dpa_base) = (Hpa(hpa), start);
        let decoder =
            Decoder { coherent: false, hpa_base, dpa_base, dpa_len: len, interleave, way: 0 };
        gfd.set_decoders(pid, place, &[Some(decoder)]).map_err(refuse("a decoder"))
    }

    /// The device, whose port has the first of `macs`.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn build(&self, macs: &[MacAddr]) -> Result<GfdEndpoint, SpecError> {
        let len = self.capacity.map_or(UNIT, |it| it.0);
        if len == 0 || !len.is_multiple_of(UNIT) || len > MEMORY_MAX {
            let text = format!("expected a multiple of 256MiB up to 2^48, found {len:#x}");
            return Err(field("capacity", text));
        }
        let block = self.block.map_or(16 << 20, |it| it.0);
        let pid = Pid::assignable(self.pid.unwrap_or(1))
            .ok_or_else(|| field("pid", "expected a port id 0..=4094"))?;
        let mut gfd = Gfd::new(Config::full(pid, self.common.rate()?), self.memory(len)?);
        let (base, media) = (weft_parsers::fabric::Dpa(0), Media::default());
        let refuse = |code| field("block", format!("{block:#x} bytes are refused: {code:?}"));
        gfd.set_dmps(&[Dmp { index: 0, base, decode_len: len, len, block, media }])
            .map_err(refuse)?;
        gfd.set_region(Region { id: 0, block, sanitize: false, base, decode_len: len, len })
            .map_err(refuse)?;
        if self.grant.len() > 31 {
            return Err(field("grant", "expected at most 31"));
        }
        for (group, text) in (0..).zip(&self.grant) {
            Self::grant(&mut gfd, group, text)?;
        }
        while gfd.events().pop_fm().is_some() {} // what was granted is no news
        let serial = self.serial.map_or(1, |it| it.0);
        let mut uuid = [0; 16];
        for (to, byte) in uuid.iter_mut().zip(serial.to_be_bytes()) {
            *to = byte;
        }
        let end = self.common.end("gfd", Carries::Pbr, macs, 0)?;
        let config = GfdEndConfig { uuid, ..GfdEndConfig::default() };
        let mut end = GfdEnd::new(GfdDevice::new(gfd, serial), config, end);
        if self.managed {
            // Whoever manages it commands it by messages, and calls it by a port id of its choice.
            end.set_in_band(Box::new(Commands::new(config.port)));
            if self.pid.is_none() {
                end.set_pid(Instant::ZERO, Pid::NONE);
            }
        }
        Ok(GfdEndpoint::new(end, &self.common.name("gfd")))
    }
}

impl HbrSpec {
    /// The switch with so many `links`, whose ports have `macs`.
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
