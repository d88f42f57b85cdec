//! Settings of fabric memory: options by name, and the limits of its host or device.
//!
//! `KEY=VALUE` texts become [`Settings`].
//!
//! Source: docs/fabric-memory.md "Options"; docs/spec/cxl-fabric.md "Fabric memory transfers".

use weft_cxl::fabric_mem::Options;
use weft_dataplane::time::Span;

use super::{FabricMem, Kind};
use crate::endpoint::spec::{SpecError, field};

/// Settings of one engine.
#[derive(Clone, Debug)]
pub struct Settings {
    pub options: Options,
    /// First address and length of the fabric window.
    pub fabric: (u64, u64),
    /// Silence after which a peer counts as gone.
    pub silence: Span,
    /// Requests that the requester may have in flight for the engine.
    pub pending_max: usize,
}

/// Option of the mailboxes, not of the engine; in microseconds.
const SILENCE: &str = "peer_timeout_us";
const ON: &str = "enable_use_fabric_mem";

/// Limits of the host or device that has the engine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit for an answer.
    pub answer: Span,
    /// TLPs in flight at most.
    pub in_flight: usize,
    /// UIO requests do not cross multiples of it, in bytes.
    pub uio_max: usize,
}

/// The fields of a specification that concern fabric memory.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Whether transfers are enabled.
    pub on: bool,
    /// Texts of the form `KEY=VALUE`.
    pub options: &'a [String],
    /// First address and length of the fabric window, if given.
    pub window: Option<(u64, u64)>,
    /// Whether the link is in flit mode.
    pub flit: bool,
}

/// Makes the engine of a specification, within the limits of its host or device.
///
/// # Errors
/// Options without effect, or with impossible values.
pub fn asked_for(
    kind: Kind,
    asked: Asked<'_>,
    limits: Limits,
) -> Result<Option<FabricMem>, SpecError> {
    if !asked.on {
        if asked.options.is_empty() {
            return Ok(None);
        }
        return Err(field("fabric_mem", format!("without effect: set {ON}")));
    }
    let Some(fabric) = asked.window else {
        return Err(field(ON, "needs a fabric_window: what lies there is reached by UIO"));
    };
    if !asked.flit {
        return Err(field(ON, "UIO is of flit mode only"));
    }
    let settings = Settings::of(asked.options, fabric, limits);
    let settings = settings.map_err(|text| field("fabric_mem", text))?;
    let built = FabricMem::new(kind, settings);
    built.map(Some).map_err(|error| field("fabric_mem", error.to_string()))
}

impl Settings {
    /// Parses `KEY=VALUE` texts over defaults that follow from `limits`.
    ///
    /// # Errors
    /// An unknown key, a bad value, or options that exclude each other.
    pub fn of(texts: &[String], fabric: (u64, u64), limits: Limits) -> Result<Self, String> {
        let mut pairs = vec![(ON, "1")];
        let mut silence = Span::from_ms(10_000);
        // A request first waits for room in the requester, and then for its answer.
        let late = limits.answer.as_ns().saturating_mul(2) / 1_000 + 1_000_000;
        let late = late.to_string();
        pairs.push(("completion_timeout_us", &late));
        for text in texts {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| format!("expected KEY=VALUE, found {text:?}"))?;
            match key {
                SILENCE => {
                    let us: Option<u64> = value.parse().ok();
                    let us = us.filter(|us| (1_000_000..=3_600_000_000).contains(us));
                    let refuse = || format!("{key} = {value:?}: a second to an hour");
                    silence = Span::from_us(us.ok_or_else(refuse)?);
                }
                "transfer_timeout_us" => return Err(format!("{key}: each command names its own")),
                ON => return Err(format!("{ON} is a setting of the host itself")),
                _ => pairs.push((key, value)),
            }
        }
        let options = Options::parse(pairs).map_err(|error| error.to_string())?;
        // A request becomes several TLPs of at most `uio_max`: requests that fill the requester twice keep it busy.
        let tlps = limits.in_flight.saturating_mul(2).saturating_mul(limits.uio_max);
        let longest = usize::try_from(options.request_len_max).unwrap_or(4_096);
        let pending_max = (tlps / longest).max(2);
        Ok(Self { options, fabric, silence, pending_max })
    }
}
