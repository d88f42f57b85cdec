//! What a host's fabric memory is built from: options by name, and the host's own limits.
//!
//! `KEY=VALUE` texts → [`Settings`], or why not.
//!
//! Units: bytes; microseconds in text.
//! Source: docs/fabric-memory.md "Options"; docs/spec/cxl-fabric.md "Fabric memory transfers".

use weft_cxl::fabric_mem::Options;
use weft_dataplane::time::Span;

use super::{FabricMem, Kind};
use crate::endpoint::spec::{SpecError, field};

/// What a host's fabric memory is built from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The engine's options.
    pub options: Options,
    /// First address and bytes of the fabric window.
    pub fabric: (u64, u64),
    /// Silence after which a peer is taken for gone.
    pub silence: Span,
    /// Requests of the engine that the host's requester has at a time.
    pub pending_max: usize,
}

/// Of the host itself, not of the engine.
const SILENCE: &str = "peer_timeout_us";
const ON: &str = "enable_use_fabric_mem";

/// What the host that it is for has.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long an answer may take.
    pub answer: Span,
    /// TLPs under way.
    pub in_flight: usize,
    /// What no UIO request crosses a multiple of.
    pub uio_max: usize,
}

/// What a specification says of transfers of fabric memory.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// They are on.
    pub on: bool,
    /// Options.
    pub options: &'a [String],
    /// The fabric window, if there is one.
    pub window: Option<(u64, u64)>,
    /// The link is in flit mode.
    pub flit: bool,
}

/// The engine of `kind` that a specification asks for, with limits of what it is for.
///
/// # Errors
/// Options without effect, or that cannot be.
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
    /// Settings of texts `KEY=VALUE`, over defaults that go with the host's limits.
    ///
    /// # Errors
    /// No such key, a bad value, or options that exclude each other.
    pub fn of(texts: &[String], fabric: (u64, u64), limits: Limits) -> Result<Self, String> {
        let mut pairs = vec![(ON, "1")];
        let mut silence = Span::from_ms(10_000);
        // A request waits for room in the requester before it is sent, and then for its answer.
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
        let tlps = limits.in_flight.saturating_mul(2).saturating_mul(limits.uio_max);
        let longest = usize::try_from(options.request_len_max).unwrap_or(4_096);
        let pending_max = (tlps / longest).max(2);
        Ok(Self { options, fabric, silence, pending_max })
    }
}
