//! Specification of a G-FAM device: a [`GfdSpec`] makes a [`GfdEndpoint`]; fields that are not given have defaults.
//!
//! Source: docs/endpoint.md.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use weft_base::files::{self, Existing};
use weft_cxl::gfd::capacity::{Choice, NO_TAG};
use weft_cxl::gfd::decode::Decoder;
use weft_cxl::gfd::dmp::{Dmp, Media, Region, UNIT};
use weft_cxl::gfd::memory::Memory;
use weft_cxl::gfd::{Config, Gfd};
use weft_cxl::gfd_end::{CoherentConfig, Device as GfdDevice, GfdEnd, GfdEndConfig};
use weft_cxl::in_band::Commands;
use weft_cxl::tlp_end::Carries;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::MacAddr;
use weft_parsers::fabric::{Hpa, Interleave, Pid};

use super::GfdEndpoint;
use crate::endpoint::api::Endpoint;
use crate::endpoint::number::Num;
use crate::endpoint::spec::{Common, MEMORY_MAX, Spec, SpecError, field, number, parts, range};

/// A G-FAM device.
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GfdSpec {
    #[cfg_attr(feature = "clap", command(flatten))]
    #[serde(flatten)]
    pub common: Common,
    /// Capacity of the device, a multiple of 256 MiB, at first one partition with one region [default: 256MiB]
    #[cfg_attr(feature = "clap", arg(long))]
    pub capacity: Option<Num>,
    /// Block size for allocating capacity, a power of two from 4 KiB [default: 16MiB]
    #[cfg_attr(feature = "clap", arg(long))]
    pub block: Option<Num>,
    /// File that keeps the memory contents; by default they are lost with the process
    #[cfg_attr(feature = "clap", arg(long))]
    pub file: Option<PathBuf>,
    /// PID until a fabric manager assigns one; decimal, or hexadecimal with 0x [default: 1; none with --managed]
    #[cfg_attr(feature = "clap", arg(long))]
    pub pid: Option<Num>,
    /// Serial number [default: 1]
    #[cfg_attr(feature = "clap", arg(long))]
    pub serial: Option<Num>,
    /// Without a fabric manager: grant a requester SIZE bytes of memory at address HPA, in a new group each time
    #[cfg_attr(feature = "clap", arg(long, value_name = "PID=HPA:SIZE"))]
    pub grant: Vec<String>,
    /// Keep memory lines coherent in hosts' caches, by back-invalidate (HDM-DB)
    #[cfg_attr(feature = "clap", arg(long))]
    pub coherent: bool,
    /// With --coherent: number of lines that hosts can hold at once, 1 to 1048576 [default: 65536]
    #[cfg_attr(feature = "clap", arg(long))]
    pub filter_lines: Option<Num>,
    /// With --coherent: time limit for a host's answer to a snoop, in milliseconds, 1 to 60000 [default: 200]
    #[cfg_attr(feature = "clap", arg(long))]
    pub snoop_ms: Option<Num>,
    /// Accept commands from a fabric manager, as messages on the link
    #[cfg_attr(feature = "clap", arg(long))]
    pub managed: bool,
}

impl Spec for GfdSpec {
    const KIND: &'static str = "gfd";

    fn endpoint(&self, macs: &[MacAddr]) -> Result<Box<dyn Endpoint>, SpecError> {
        Ok(Box::new(self.build(macs)?))
    }
}

impl GfdSpec {
    fn memory(&self, len: u64) -> Result<Memory, SpecError> {
        let Some(path) = &self.file else { return Ok(Memory::anonymous(len)) };
        let open = || {
            let file = files::create(path, Existing::Keep)?;
            // Two processes that write one file would each corrupt the other's memory.
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    return Err(io::Error::other("another GFD keeps its memory there"));
                }
                locked => locked?,
            }
            Memory::in_file(file, len)
        };
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
        // Region 0 is the only one: `build` has just made it.
        let choice = Choice::Contiguous { region: 0, len };
        let added = gfd.grant_capacity(group, NO_TAG, choice);
        let added = added.map_err(refuse("capacity"))?;
        let start = added.list.first().map(|extent| extent.start);
        let start = start.ok_or_else(|| field("grant", format!("{text}: no room is left")))?;
        let groups = gfd.sat(pid.index(), 1).ok().and_then(|page| page.list.first().copied());
        // Bit 31: notify this requester of refused accesses.
        let groups = groups.unwrap_or_default() | 1 << 31 | 1 << group;
        gfd.set_sat(&[(pid, groups)]).map_err(refuse("access"))?;
        // GDT has 8 decoders for each requester.
        let place = gfd.gdt().get(pid).iter().position(Option::is_none);
        let place = place.ok_or_else(|| field("grant", format!("{pid} has 8 decoders already")))?;
        let interleave = Interleave::NONE;
        let (hpa_base, dpa_base) = (Hpa(hpa), start);
        let decoder =
            Decoder { coherent: false, hpa_base, dpa_base, dpa_len: len, interleave, way: 0 };
        gfd.set_decoders(pid, place, &[Some(decoder)]).map_err(refuse("a decoder"))
    }

    fn coherence(&self) -> Result<Option<CoherentConfig>, SpecError> {
        let given = |name, value: Option<Num>, default, most: u64| match value {
            None => Ok(default),
            Some(_) if !self.coherent => Err(field(name, "it is of a coherent device")),
            Some(Num(value)) if (1..=most).contains(&value) => Ok(value),
            Some(Num(value)) => Err(field(name, format!("expected 1 to {most}, found {value}"))),
        };
        let lines = given("filter_lines", self.filter_lines, 1 << 16, 1 << 20)?;
        let snoop_ms = given("snoop_ms", self.snoop_ms, 200, 60_000)?;
        let lines = usize::try_from(lines).unwrap_or(usize::MAX);
        let answer_max = Span::from_ms(snoop_ms);
        // Lease numbers decide nothing, so a run in virtual time is the same whatever they are. They only must be hard
        // to guess.
        let secret = RandomState::new().hash_one(self.serial.map(|it| it.0));
        Ok(self.coherent.then_some(CoherentConfig { lines, answer_max, secret }))
    }

    /// Makes the device. The first of `macs` is the address of its port.
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
        let bits = self.pid.map_or(Ok(1), |it| u16::try_from(it.0));
        let pid = bits.ok().and_then(Pid::assignable);
        let pid = pid.ok_or_else(|| field("pid", "expected a port id 0..=4094"))?;
        let mut gfd = Gfd::new(Config::full(pid, self.common.rate()?), self.memory(len)?);
        let (base, media) = (weft_parsers::fabric::Dpa(0), Media::default());
        let refuse = |code| field("block", format!("{block:#x} bytes are refused: {code:?}"));
        // One partition with one region of all of it, as a device has before a manager partitions it (4905h).
        gfd.set_dmps(&[Dmp { index: 0, base, decode_len: len, len, block, media }])
            .map_err(refuse)?;
        gfd.set_region(Region { id: 0, block, sanitize: false, base, decode_len: len, len })
            .map_err(refuse)?;
        // The groups of `grant` are numbered from 0, and bit 31 of the access vector is not a group.
        if self.grant.len() > 31 {
            return Err(field("grant", "expected at most 31"));
        }
        for (group, text) in (0..).zip(&self.grant) {
            Self::grant(&mut gfd, group, text)?;
        }
        while gfd.events().pop_fm().is_some() {} // grants from the command line are no news to a manager
        let serial = self.serial.map_or(1, |it| it.0);
        let mut uuid = [0; 16];
        for (to, byte) in uuid.iter_mut().zip(serial.to_be_bytes()) {
            *to = byte;
        }
        let end = self.common.end("gfd", Carries::Pbr, macs, 0)?;
        let config = GfdEndConfig { uuid, coherent: self.coherence()?, ..GfdEndConfig::default() };
        let mut end = GfdEnd::new(GfdDevice::new(gfd, serial), config, end);
        if self.managed {
            // A manager commands it by messages, and assigns a port id of its choice.
            end.set_in_band(Box::new(Commands::new(config.port)));
            if self.pid.is_none() {
                end.set_pid(Instant::ZERO, Pid::NONE);
            }
        }
        Ok(GfdEndpoint::new(end, &self.common.name("gfd")))
    }
}
