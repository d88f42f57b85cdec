//! Specification of an endpoint: flags or a TOML file, over defaults.
//!
//! All kinds share [`Common`]. Each kind adds fields of its own, and its [`Spec`] makes an [`Endpoint`] of them.
//!
//! Source: docs/endpoint.md.

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weft_cxl::cxl_device::DeviceError;
use weft_cxl::cxl_host::HostError;
use weft_cxl::cxl_host::memory::NoPlace;
use weft_cxl::hbr::HbrError;
use weft_cxl::pci::Identity;
use weft_cxl::tlp_end::{Carries, EndConfig};
use weft_dataplane::config::TlpConfig;
use weft_dataplane::time::{LinkRate, Span};
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::tlp::Mode;
use weft_toml::{ConfigError, Document, Place};

use super::api::Endpoint;
use super::number::Num;

/// Longest time limit for an answer in milliseconds: an hour.
const ANSWER_MS_MAX: u64 = 3_600_000;
/// Largest BAR, memory range or GFD in bytes.
pub(super) const MEMORY_MAX: u64 = 1 << 48;
/// Name of a specification's text in messages, unless its file is known.
const TEXT: &str = "specification";
/// Vendor id of all endpoints: the CXL consortium's.
const VENDOR: u16 = 0x1E98;

/// Reasons why an endpoint cannot be made as specified.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// A field has a bad value.
    #[error("{field}: {text}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Expected and found value.
        text: String,
    },
    /// The file is not TOML, or has an unknown field.
    #[error(transparent)]
    File(#[from] ConfigError),
    /// Fields that are right alone do not go together.
    #[error("{0}")]
    Whole(String),
    /// The host rejects the configuration.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Its memory ranges do not fit together.
    #[error(transparent)]
    Memory(#[from] NoPlace),
    /// The device rejects the configuration.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The HBR switch rejects the configuration.
    #[error(transparent)]
    Hbr(#[from] HbrError),
    /// The file with a GFD's memory cannot be used.
    #[error("memory in {}", path.display())]
    Backing { path: PathBuf, source: std::io::Error },
}

pub(super) fn field(field: &'static str, text: impl Into<String>) -> SpecError {
    SpecError::Field { field, text: text.into() }
}

/// Options of every kind of endpoint.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Common {
    /// TOML file with the same options as keys (underscores for dashes); flags override it
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "FILE"))]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Control socket; by default NAME/endpoint.sock in the user's directory of sockets
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(skip)]
    pub socket: Option<PathBuf>,
    /// Network interface, `af_packet:INTERFACE` or `tap:NAME`; for an HBR switch the upstream port first
    #[cfg_attr(feature = "clap", arg(long, value_name = "[KIND:]DEVICE"))]
    pub port: Vec<String>,
    /// Name in reports, and of the socket's directory [default: the kind]
    #[cfg_attr(feature = "clap", arg(long))]
    pub name: Option<String>,
    /// MAC address on the link; by default that of the interface
    #[cfg_attr(feature = "clap", arg(long))]
    pub mac: Option<String>,
    /// Layout of TLPs: flit or non-flit [default: flit]
    #[cfg_attr(feature = "clap", arg(long))]
    pub mode: Option<String>,
    /// `Max_Payload_Size`, a power of two from 128 to 4096 [default: 256]
    #[cfg_attr(feature = "clap", arg(long))]
    pub payload_max: Option<Num>,
    /// Number of priorities of the switch at the other end, 4 or 8 [default: 8]
    #[cfg_attr(feature = "clap", arg(long))]
    pub priorities: Option<u8>,
    /// Link rate in Gbit/s, for pause quanta [default: 100]
    #[cfg_attr(feature = "clap", arg(long))]
    pub gbps: Option<u64>,
    /// Time limit for the answer to a request in milliseconds [default: 1000]
    #[cfg_attr(feature = "clap", arg(long))]
    pub answer_ms: Option<u64>,
}

/// Specification of one kind of endpoint; one of its fields, `common`, is a [`Common`].
pub trait Spec {
    /// Name of the kind, as `weft endpoint` has it.
    const KIND: &'static str;
    /// True for exactly one link; false if each given port is one.
    const ONE_LINK: bool = true;

    /// Makes the endpoint. `macs` are the addresses of its ports in order.
    ///
    /// # Errors
    /// See [`SpecError`].
    fn endpoint(&self, macs: &[MacAddr]) -> Result<Box<dyn Endpoint>, SpecError>;

    /// Advice for the person who starts it, if there is any.
    fn note(&self) -> Option<String> {
        None
    }
}

/// Merges the TOML in `text` with `flags`, which take precedence.
///
/// # Errors
/// Invalid TOML, unknown fields, or values of the wrong type.
pub fn over<T>(text: &str, flags: &T) -> Result<T, SpecError>
where
    T: Default + Serialize + DeserializeOwned,
{
    let object = |of: &T| match serde_json::to_value(of) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    // A default specification has all fields, so its keys are the known names.
    let known = object(&T::default());
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    let document = Document::parse(TEXT, text)?;
    document.check_keys::<T>(&names)?;
    let mut all: Map<String, Value> = document.read()?;
    // A flag that equals the default was not given, and must not hide the file's value.
    for (name, value) in object(flags) {
        if known.get(&name) != Some(&value) {
            all.insert(name, value);
        }
    }
    // Each field was accepted alone.
    let whole = serde_json::from_value(Value::Object(all));
    whole.map_err(|error| SpecError::Whole(error.to_string()))
}

/// The place in `text` of the value of `field`; `None` if the text has none, or `flags` override it.
pub fn place<T: Default + Serialize>(text: &str, flags: &T, field: &str) -> Option<Place> {
    let value = |of: &T| serde_json::to_value(of).ok()?.get(field).cloned();
    if value(flags) != value(&T::default()) {
        return None;
    }
    let document = Document::parse(TEXT, text).ok()?;
    let (_, value) = document.root().iter().find(|(key, _)| key.get_ref() == field)?;
    Some(document.place(value.span().start))
}

/// The TOML from which [`over`] makes `spec`: one line for each field that is set.
pub fn to_toml(spec: &impl Serialize) -> String {
    let fields = serde_json::to_value(spec).unwrap_or_default();
    let given = fields.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    // TOML writes booleans, lists, text (except U+007F) and numbers (except those above `i64::MAX`) like JSON.
    let line = |(name, value): (&String, &Value)| match value.as_u64() {
        Some(number) if i64::try_from(number).is_err() => format!("{name} = \"{number}\"\n"),
        _ => format!("{name} = {value}\n").replace('\u{7f}', "\\u007f"),
    };
    given.map(line).collect()
}

/// Parses `BASE:SIZE`, or `SIZE` alone if there is a default `base`.
pub(super) fn range(
    name: &'static str,
    text: &str,
    base: Option<u64>,
) -> Result<(u64, u64), SpecError> {
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

/// Splits `LEFT=RIGHT`.
pub(super) fn parts<'a>(
    name: &'static str,
    text: &'a str,
    form: &str,
) -> Result<(&'a str, &'a str), SpecError> {
    text.split_once('=').ok_or_else(|| field(name, format!("expected {form}, found {text:?}")))
}

pub(super) fn number16(name: &'static str, number: Num) -> Result<u16, SpecError> {
    let text = || format!("expected 16 bits, found {:#x}", number.0);
    u16::try_from(number.0).map_err(|_| field(name, text()))
}

pub(super) fn number(name: &'static str, text: &str) -> Result<u64, SpecError> {
    text.parse::<Num>().map(|it| it.0).map_err(|error| field(name, error))
}

/// A MAC address derived from the name alone.
fn made_up_mac(name: &str, link: usize) -> MacAddr {
    // FNV-1a: stable between runs, and different for different names in practice.
    let mix = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let [a, b, c, _] = name.as_bytes().iter().fold(0x811C_9DC5, mix).to_le_bytes();
    // Bit 1 of the first byte marks a locally administered address (IEEE 802).
    MacAddr([2, 0xE, a, b, c, u8::try_from(link).unwrap_or(u8::MAX)])
}

impl Common {
    /// Name of the endpoint; the name of its kind by default.
    #[must_use]
    pub fn name(&self, kind: &str) -> String {
        self.name.clone().unwrap_or_else(|| kind.to_owned())
    }

    /// Rate that its link claims.
    ///
    /// # Errors
    /// The rate is out of range.
    pub fn rate(&self) -> Result<LinkRate, SpecError> {
        match self.gbps.unwrap_or(100) {
            gbps @ 1..=1_600 => Ok(LinkRate::gbps(gbps)),
            gbps => Err(field("gbps", format!("expected 1 to 1600, found {gbps}"))),
        }
    }

    /// Longest frame of its links in bytes, without FCS.
    ///
    /// # Errors
    /// Like [`Self::payload`].
    pub fn frame_len_max(&self) -> Result<usize, SpecError> {
        Ok((self.payload()? + 128).max(1_518)) // addresses, link header, PTH, header, OHC, trailer
    }

    /// `Max_Payload_Size` in bytes.
    ///
    /// # Errors
    /// Not a power of two from 128 to 4096.
    pub fn payload(&self) -> Result<usize, SpecError> {
        power("payload_max", self.payload_max, 256)
    }

    pub(super) fn flit(&self) -> Result<bool, SpecError> {
        match self.mode.as_deref().unwrap_or("flit") {
            "flit" => Ok(true),
            "non-flit" => Ok(false),
            other => Err(field("mode", format!("expected flit or non-flit, found {other:?}"))),
        }
    }

    pub(super) fn carries(&self) -> Result<Carries, SpecError> {
        Ok(Carries::Hbr(if self.flit()? { Mode::Flit } else { Mode::NonFlit }))
    }

    /// Time limit for the answer to one request.
    ///
    /// # Errors
    /// The time limit is out of range.
    pub(super) fn timeout(&self) -> Result<Span, SpecError> {
        match self.answer_ms.unwrap_or(1_000) {
            ms @ 1..=ANSWER_MS_MAX => Ok(Span::from_ms(ms)),
            ms => Err(field("answer_ms", format!("expected 1 to {ANSWER_MS_MAX}, found {ms}"))),
        }
    }

    pub(super) fn end(
        &self,
        kind: &str,
        carries: Carries,
        macs: &[MacAddr],
        link: usize,
    ) -> Result<EndConfig, SpecError> {
        // `mac` names one address, so it goes to the first link of an HBR switch only.
        let own = self.mac.as_ref().filter(|_| link == 0).map(|text| {
            let refuse =
                || field("mac", format!("expected an address of one station, found {text:?}"));
            text.parse::<MacAddr>().ok().filter(|mac| !mac.is_group()).ok_or_else(refuse)
        });
        let made_up = || made_up_mac(&self.name(kind), link);
        let mac = own.transpose()?.or(macs.get(link).copied()).unwrap_or_else(made_up);
        self.timeout()?; // refused even where nothing uses it
        let (pris, classes) = match self.priorities.unwrap_or(8) {
            4 => (4, PriMap::four()),
            8 => (8, PriMap::eight()),
            other => return Err(field("priorities", format!("expected 4 or 8, found {other}"))),
        };
        let (tlp, payload_max) = (TlpConfig::for_pris(pris), self.payload()?);
        Ok(EndConfig { mac, carries, tlp, classes, payload_max })
    }
}

/// Default multiple that no UIO request crosses: the smallest interleave granularity of G-FAM
/// (docs/spec/wire-formats.md 5.1), so that any mapping can be reached.
pub(super) const UIO_MAX: u64 = 256;

pub(super) fn power(
    name: &'static str,
    given: Option<Num>,
    default: u64,
) -> Result<usize, SpecError> {
    let number = given.map_or(default, |it| it.0);
    let fits = number.is_power_of_two() && (128..=4_096).contains(&number);
    let found = usize::try_from(number).ok().filter(|_| fits);
    let text = || format!("expected a power of two from 128 to 4096, found {number}");
    found.ok_or_else(|| field(name, text()))
}

pub(super) fn in_flight(given: Option<usize>, default: usize) -> Result<usize, SpecError> {
    match given.unwrap_or(default) {
        count @ 1..=1_024 => Ok(count),
        count => Err(field("in_flight", format!("expected 1 to 1024, found {count}"))),
    }
}

pub(super) fn identity(device: u16, class: u32) -> Identity {
    Identity { vendor: VENDOR, device, revision: 1, class, subsystem: (VENDOR, 0) }
}

/// Largest cache in lines.
const CACHE_LINES_MAX: u64 = 1 << 20;

/// Number of lines of a cache; 0 for no cache.
pub(super) fn cache_lines(given: Option<Num>) -> Result<usize, SpecError> {
    let lines = given.map_or(0, |it| it.0);
    match usize::try_from(lines) {
        Ok(fits) if lines <= CACHE_LINES_MAX => Ok(fits),
        _ => Err(field("cache_lines", format!("expected 0 to {CACHE_LINES_MAX}, found {lines}"))),
    }
}
