//! Specification of a device: a [`DeviceSpec`] makes a [`DeviceEndpoint`]; fields that are not given have defaults.
//!
//! Source: docs/endpoint.md.

use serde::{Deserialize, Serialize};
use weft_cxl::cache::agent::CacheSpec;
use weft_cxl::cdat::Figures;
use weft_cxl::cxl_device::{CxlDevice, DeviceConfig, FunctionConfig, HdmConfig, HdmMemory};
use weft_cxl::mld::{GRANULE, Mld, MldConfig, MldError};
use weft_cxl::pci::component::hdm::{HPA_END, UNIT};
use weft_cxl::pci::function::{BAR_COUNT, BarKind, BarSpec, LnrSpec};
use weft_cxl::pci::{FunctionSpec, Identity};
use weft_cxl::tlp_end::EndConfig;
use weft_parsers::MacAddr;
use weft_parsers::cci::generic;
use weft_parsers::fabric::Hpa;

use super::DeviceEndpoint;
use super::mld::MldEndpoint;
use crate::endpoint::api::Endpoint;
use crate::endpoint::host::fabric_mem::{Asked, FabricMem, Kind, Limits, asked_for};
use crate::endpoint::number::Num;
use crate::endpoint::spec::{
    Common, Spec, SpecError, UIO_MAX, cache_lines, field, identity, in_flight, number, number16,
    parts, power, range,
};

/// A device.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSpec {
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(flatten)]
    pub common: Common,
    /// BAR number N of each function; KIND is io, mem32, pref32, mem64 or pref64 [default: 0=pref64:1MiB]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N=KIND:SIZE"))]
    pub bar: Vec<String>,
    /// Number of functions, 1 to 8, identical except for the Device ID [default: 1]
    #[cfg_attr(feature = "clap", arg(long))]
    pub functions: Option<u8>,
    /// Vendor ID [default: 0x1E98]
    #[cfg_attr(feature = "clap", arg(long))]
    pub vendor_id: Option<Num>,
    /// Device ID of the first function; the others count up from it [default: 0x0D01]
    #[cfg_attr(feature = "clap", arg(long))]
    pub device_id: Option<Num>,
    /// Serial number [default: none]
    #[cfg_attr(feature = "clap", arg(long))]
    pub serial: Option<Num>,
    /// Host-managed memory (HDM) of the first function, for CXL.mem and UIO; placed at BASE, or by default where the
    /// host chooses
    #[cfg_attr(feature = "clap", arg(long, value_name = "[BASE:]SIZE"))]
    pub hdm: Option<String>,
    /// Number of lines of the first function's cache for the host's memory (CXL.cache), 1 to 1048576; 0: no cache
    /// [default: 0]
    #[cfg_attr(feature = "clap", arg(long))]
    pub cache_lines: Option<Num>,
    /// Latency of host-managed memory that its CDAT reports, in ns, 1 to 1000000 [default: 150]
    #[cfg_attr(feature = "clap", arg(long))]
    pub latency_ns: Option<u64>,
    /// Bandwidth of host-managed memory that its CDAT reports, in MB/s, 1 to 100000000 [default: 64000]
    #[cfg_attr(feature = "clap", arg(long))]
    pub bandwidth_mbps: Option<u64>,
    /// Make each function a requester of Lightweight Notification for 2^LNR lines, 0 to 31; non-flit mode only
    #[cfg_attr(feature = "clap", arg(long))]
    pub lnr: Option<u8>,
    /// Line sizes of the LN requester: 64, 128 or both [default: both]
    #[cfg_attr(feature = "clap", arg(long))]
    pub lnr_line: Option<String>,
    /// Boundary in bytes that no UIO request crosses, a power of two from 128 to 4096, at most a GFD's interleave
    /// granularity [default: 256]
    #[cfg_attr(feature = "clap", arg(long))]
    pub uio_max: Option<Num>,
    /// Maximum number of outstanding requests of each function [default: 32]
    #[cfg_attr(feature = "clap", arg(long))]
    pub in_flight: Option<usize>,
    /// Number of logical devices, 1 to 16, each with its own configuration space, BAR 0 and memory [default: none]
    #[cfg_attr(feature = "clap", arg(long))]
    pub lds: Option<u8>,
    /// Address at which the host is to place the memory of a logical device, a multiple of 256 MiB; given once for
    /// each; by default the host chooses
    #[cfg_attr(feature = "clap", arg(long, value_name = "LD=BASE"))]
    pub ld_at: Vec<String>,
    /// Total memory of all logical devices, a multiple of 256 MiB [default: 256 MiB each]
    #[cfg_attr(feature = "clap", arg(long))]
    pub capacity: Option<Num>,
    /// Part of --capacity that is dynamic capacity, a multiple of 256 MiB; unallocated until the fabric manager adds it
    /// to a logical device [default: none]
    #[cfg_attr(feature = "clap", arg(long))]
    pub dynamic: Option<Num>,
    /// Accept UIO requests that name their sender (from GIM and accelerators)
    #[cfg_attr(feature = "clap", arg(long))]
    pub gim: bool,
    /// Memory of the first function that requests accepted by --gim access
    #[cfg_attr(feature = "clap", arg(long, value_name = "BASE:SIZE"))]
    pub gim_memory: Option<String>,
    /// Address range of the fabric's memory, for transfers of fabric memory
    #[cfg_attr(feature = "clap", arg(long, value_name = "BASE:SIZE"))]
    pub fabric_window: Option<String>,
    /// Let the first function transfer fabric memory, by the commands `mem ...` of its control socket
    #[cfg_attr(feature = "clap", arg(long))]
    pub enable_use_fabric_mem: bool,
    /// Option of fabric memory transfers, such as `streams_per_transfer=8`; may be given several times
    #[cfg_attr(feature = "clap", arg(long, value_name = "KEY=VALUE"))]
    pub fabric_mem: Vec<String>,
}

impl Spec for DeviceSpec {
    const KIND: &'static str = "device";

    fn endpoint(&self, macs: &[MacAddr]) -> Result<Box<dyn Endpoint>, SpecError> {
        match self.lds {
            Some(lds) => Ok(Box::new(self.build_mld(lds, macs)?)),
            None if self.capacity.is_some() => {
                Err(field("capacity", "is shared out among logical devices: give lds, too"))
            }
            None if !self.ld_at.is_empty() => {
                Err(field("ld_at", "is of logical devices: give lds, too"))
            }
            None if self.dynamic.is_some() => {
                Err(field("dynamic", "is of logical devices: give lds, too"))
            }
            None => Ok(Box::new(self.build(macs)?)),
        }
    }

    fn note(&self) -> Option<String> {
        let (lds, capacity) = (u64::from(self.lds?), self.capacity?.0);
        let fixed = capacity.saturating_sub(self.dynamic.map_or(0, |it| it.0));
        let is_short = fixed > 0 && fixed.checked_div(lds).is_some_and(|each| each < GRANULE);
        is_short.then(|| {
            format!(
                "each logical device has 0 bytes until a fabric manager gives it some: {fixed:#x} bytes besides dynamic capacity are no {GRANULE:#x} for each of {lds}"
            )
        })
    }
}

/// Upper bounds of the figures in a CDAT.
pub(crate) const LATENCY_NS_MAX: u64 = 1_000_000;
pub(crate) const BANDWIDTH_MBPS_MAX: u64 = 100_000_000;
/// Component type of a Type 3 device in Identify (0001h).
const TYPE_3: u8 = 3;

/// A serial number derived from a MAC address.
fn made_up_serial(MacAddr(mac): MacAddr) -> u64 {
    // 8 bits of room below: LD n gets the serial number plus n + 1 (`build_mld`).
    mac.into_iter().fold(0, |serial, byte| serial << 8 | u64::from(byte)) << 8
}

/// Parses `N=KIND:SIZE`.
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

/// Parses `[BASE:]SIZE` of host-managed memory.
fn hdm(text: &str) -> Result<HdmConfig, SpecError> {
    let (base, len) = range("hdm", text, Some(0))?;
    if !base.is_multiple_of(UNIT) || !len.is_multiple_of(UNIT) || base.saturating_add(len) > HPA_END
    {
        let text = format!("expected multiples of 256MiB below 2^52, found {len:#x} at {base:#x}");
        return Err(field("hdm", text));
    }
    // `range` fills in base 0 where the text has none.
    let base = text.contains(':').then_some(Hpa(base));
    if base == Some(Hpa(0)) {
        return Err(field(
            "hdm",
            "address 0 is no place: leave BASE out for one that the host picks",
        ));
    }
    Ok(HdmConfig { base, memory: HdmMemory::Own(len), figures: Figures::MEMORY })
}

impl DeviceSpec {
    /// The LN requester that each function gets.
    fn requester(&self) -> Result<Option<LnrSpec>, SpecError> {
        let Some(registrations) = self.lnr else {
            return match self.lnr_line {
                None => Ok(None),
                Some(_) => Err(field("lnr_line", "there is no LN requester: give lnr, too")),
            };
        };
        if self.common.flit()? {
            let text = "Lightweight Notification is of non-flit mode: give mode non-flit";
            return Err(field("lnr", text));
        }
        let (cls64, cls128) = match self.lnr_line.as_deref() {
            None | Some("both") => (true, true),
            Some("64") => (true, false),
            Some("128") => (false, true),
            Some(other) => {
                return Err(field(
                    "lnr_line",
                    format!("expected 64, 128 or both, found {other:?}"),
                ));
            }
        };
        Ok(Some(LnrSpec { cls64, cls128, registrations }))
    }

    /// Figures that its CDAT reports for its memory.
    fn figures(&self) -> Result<Figures, SpecError> {
        let has_memory = self.hdm.is_some() || self.lds.is_some();
        let limited = |name, value: Option<u64>, most: u64, default: u64| match value {
            None => Ok(default),
            Some(_) if !has_memory => {
                Err(field(name, "is told of memory that hosts manage: give hdm or lds, too"))
            }
            Some(value) if (1..=most).contains(&value) => Ok(value),
            Some(value) => Err(field(name, format!("expected 1 to {most}, found {value}"))),
        };
        let Figures { latency_ps, bandwidth_mbps } = Figures::MEMORY;
        let latency_ns =
            limited("latency_ns", self.latency_ns, LATENCY_NS_MAX, latency_ps / 1_000)?;
        let bandwidth_mbps =
            limited("bandwidth_mbps", self.bandwidth_mbps, BANDWIDTH_MBPS_MAX, bandwidth_mbps)?;
        Ok(Figures { latency_ps: latency_ns * 1_000, bandwidth_mbps })
    }

    fn function(&self, number: u8, count: u8) -> Result<FunctionConfig, SpecError> {
        let first = number16("device_id", self.device_id.unwrap_or(Num(0x0D01)))?;
        // Class of CXL memory devices: 05 02 10h (CXL 3.1, 8.1.12.1).
        let mut identity = identity(first.wrapping_add(number.into()), 0x05_02_10);
        if let Some(vendor) = self.vendor_id {
            identity.vendor = number16("vendor_id", vendor)?;
        }
        let mut spec = FunctionSpec {
            identity,
            multi_function: count > 1,
            // Pins A to D in turn, as docs/spec/cxl-fabric.md "INTx" has them.
            pin: number % 4 + 1,
            ..FunctionSpec::default()
        };
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
        // Function 0 must have it if any function has it (PCIe 6.0, 7.9.3); more are not needed.
        spec.serial = self.serial.filter(|_| number == 0).map(|it| it.0);
        spec.lnr = self.requester()?;
        let first = number == 0;
        let hdm = self.hdm.as_deref().filter(|_| first).map(hdm).transpose()?;
        let figures = self.figures()?;
        let hdm = hdm.map(|hdm| HdmConfig { figures, ..hdm });
        if self.gim_memory.is_some() && !self.gim {
            return Err(field("gim_memory", "nobody reaches it: give gim, too"));
        }
        let gim = self.gim_memory.as_deref().filter(|_| first);
        let gim = gim.map(|text| range("gim_memory", text, None)).transpose()?;
        let gim = gim.map(|(base, len)| (Hpa(base), len));
        let cache = if first { self.cache()? } else { None };
        Ok(FunctionConfig { spec, hdm, gim, cache, ..FunctionConfig::default() })
    }

    /// Cache for the host's memory.
    fn cache(&self) -> Result<Option<CacheSpec>, SpecError> {
        let lines = cache_lines(self.cache_lines)?;
        if lines > 0 && !self.common.flit()? {
            let text = "CXL.cache needs mode flit";
            return Err(field("cache_lines", text));
        }
        let spec = CacheSpec {
            lines,
            in_flight_max: in_flight(self.in_flight, 32)?,
            timeout: self.common.timeout()?,
        };
        Ok((lines > 0).then_some(spec))
    }

    /// Refuses fields that do not go with logical devices: each has one function, with its memory behind BAR 0.
    fn check_lds(&self) -> Result<(), SpecError> {
        let alone = [
            (
                !self.bar.is_empty(),
                "bar",
                "a logical device has one BAR, of the memory that is its own",
            ),
            (
                self.functions.is_some_and(|count| count != 1),
                "functions",
                "a logical device has one",
            ),
            (self.hdm.is_some(), "hdm", "the memory of a logical device is behind its BAR 0"),
            (self.lnr.is_some() || self.lnr_line.is_some(), "lnr", "logical devices have none"),
            (
                self.cache_lines.is_some_and(|lines| lines.0 > 0),
                "cache_lines",
                "logical devices have no CacheID",
            ),
            (
                self.gim || self.gim_memory.is_some(),
                "gim",
                "logical devices take requests of their own hosts alone",
            ),
            (
                self.enable_use_fabric_mem
                    || !self.fabric_mem.is_empty()
                    || self.fabric_window.is_some(),
                "enable_use_fabric_mem",
                "logical devices have no transfers of their own",
            ),
            (!self.common.flit()?, "mode", "a device with logical devices needs mode flit"),
        ];
        match alone.into_iter().find(|(is_given, ..)| *is_given) {
            Some((_, name, text)) => Err(field(name, format!("{text}: leave lds out, or this"))),
            None => Ok(()),
        }
    }

    /// Makes a device with logical devices. The first of `macs` is the address of its port.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn build_mld(&self, lds: u8, macs: &[MacAddr]) -> Result<MldEndpoint, SpecError> {
        self.check_lds()?;
        let capacity = self.capacity.map_or(u64::from(lds) * GRANULE, |it| it.0);
        let end = self.common.end("device", self.common.carries()?, macs, 0)?;
        let first = self.function(0, 1)?.spec;
        // An MLD must identify itself to the manager, so it needs a serial number in any case.
        let serial = self.serial.map_or_else(|| made_up_serial(end.mac), |it| it.0);
        let Identity { vendor, device, subsystem: (subsystem_vendor, subsystem), .. } =
            first.identity;
        let identity = generic::Identity {
            vendor,
            device,
            subsystem_vendor,
            subsystem,
            serial,
            message_max_log2: 0,
            component: TYPE_3,
        };
        let rate = self.common.rate()?;
        let dynamic = self.dynamic.map_or(0, |it| it.0);
        let (end_of_all, lds_count) = (end.clone(), lds.into());
        let mld = Mld::new(MldConfig {
            end: end_of_all,
            lds: lds_count,
            capacity,
            dynamic,
            rate,
            identity,
        });
        let mld = mld.map_err(|error| {
            let name = match error {
                MldError::Capacity(_) => "capacity",
                MldError::Dynamic(_) => "dynamic",
                MldError::Link | MldError::Lds(_) => "lds",
            };
            field(name, error.to_string())
        })?;
        let name = self.common.name("device");
        let places = self.ld_places(lds, Mld::bar_size(capacity))?;
        let one = |(number, base): (u8, Option<Hpa>)| -> Result<DeviceEndpoint, SpecError> {
            // Every LD shows a BAR as long as the whole capacity: the manager may move memory between LDs at run time.
            let mut spec = FunctionSpec { ..first.clone() };
            let [bar, rest @ ..] = &mut spec.bars;
            let kind = BarKind::Mem64 { prefetch: true };
            *bar = Some(BarSpec { kind, size: Mld::bar_size(capacity) });
            rest.fill(None);
            spec.serial = Some(serial.wrapping_add(u64::from(number) + 1));
            let (memory, figures) = (HdmMemory::Bar(0), self.figures()?);
            let hdm = Some(HdmConfig { base, memory, figures });
            let function = FunctionConfig { spec, hdm, ..FunctionConfig::default() };
            let device = CxlDevice::new(self.device(end.clone(), vec![function])?)?;
            Ok(DeviceEndpoint::new(device, &name, 1, true).logical(number.into()))
        };
        let all = (0..).zip(places).map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(MldEndpoint::new(mld, all, &name))
    }

    /// Preferred addresses of `lds` logical devices, each of which occupies `size` bytes at its host.
    fn ld_places(&self, lds: u8, size: u64) -> Result<Vec<Option<Hpa>>, SpecError> {
        let mut places = vec![None; lds.into()];
        for text in &self.ld_at {
            let (ld, base) = parts("ld_at", text, "LD=BASE")?;
            let base = number("ld_at", base)?;
            // Address 0 would mean "no base" in the DVSEC (Memory_Base).
            let fits = base > 0
                && base.is_multiple_of(UNIT)
                && base.checked_add(size).is_some_and(|end| end <= HPA_END);
            let place = ld.parse::<usize>().ok().and_then(|ld| places.get_mut(ld));
            match place {
                Some(place @ None) if fits => *place = Some(Hpa(base)),
                _ => {
                    let why = format!(
                        "expected LD=BASE, LD 0 to {}, each once, BASE a multiple of 256MiB from 256MiB on, found {text:?}",
                        lds - 1
                    );
                    return Err(field("ld_at", why));
                }
            }
        }
        Ok(places)
    }

    fn device(
        &self,
        end: EndConfig,
        functions: Vec<FunctionConfig>,
    ) -> Result<DeviceConfig, SpecError> {
        Ok(DeviceConfig {
            end,
            functions,
            uio_max: power("uio_max", self.uio_max, UIO_MAX)?,
            in_flight_max: in_flight(self.in_flight, 32)?,
            timeout: self.common.timeout()?,
            uio_last_first: false,
            gim: self.gim,
            busy: 0,
        })
    }

    /// Makes the device. The first of `macs` is the address of its port.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn build(&self, macs: &[MacAddr]) -> Result<DeviceEndpoint, SpecError> {
        let count = self.functions.unwrap_or(1);
        let functions = (0..count).map(|number| self.function(number, count));
        let end = self.common.end("device", self.common.carries()?, macs, 0)?;
        let config = self.device(end, functions.collect::<Result<_, _>>()?)?;
        let device = CxlDevice::new(config)?;
        let flit = self.common.flit()?;
        let name = self.common.name("device");
        let endpoint = DeviceEndpoint::new(device, &name, usize::from(count), flit);
        Ok(endpoint.with_lnr(self.requester()?).with_fabric_mem(self.fabric_mem()?))
    }

    /// Its fabric memory transfers, if they are enabled.
    fn fabric_mem(&self) -> Result<Option<FabricMem>, SpecError> {
        let window = self.fabric_window.as_deref();
        let window = window.map(|text| range("fabric_window", text, None)).transpose()?;
        if window.is_some() && !self.enable_use_fabric_mem {
            return Err(field("fabric_window", "without effect: set enable_use_fabric_mem"));
        }
        let asked = Asked {
            on: self.enable_use_fabric_mem,
            options: &self.fabric_mem,
            window,
            flit: self.common.flit()?,
        };
        let limits = Limits {
            answer: self.common.timeout()?,
            in_flight: in_flight(self.in_flight, 32)?,
            uio_max: power("uio_max", self.uio_max, UIO_MAX)?,
        };
        asked_for(Kind::Device, asked, limits)
    }
}
