//! What logical devices are to have, as a file of a wanted state says it.
//!
//! `[[ld]]` -> [`DesiredLd`], one for each logical device; what is wrong in the file itself is said before a device is
//! asked.
//!
//! Units: bytes; 256ths of the bandwidth.
//! Source: CXL 3.1 sections 7.6.7.4.3, 7.6.7.4.7, 7.6.7.4.10; docs/fm.md "What is wanted".

use serde::Deserialize;

use crate::lds::{LDS_MAX, LdAmounts};

/// Memory is dealt out in units of so many bytes, or in multiples of them, as the device says.
const UNIT: u64 = 256 << 20;
/// All of the bandwidth, 256ths.
const WHOLE: u32 = 256;

/// What a logical device is to have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesiredLd {
    /// Its device: a name, or `SWITCH/port:N`.
    pub device: String,
    /// Its number.
    pub ld: u8,
    /// Memory: bytes, or a number with MiB, GiB or TiB; what it has, where nothing is said.
    #[serde(default, deserialize_with = "super::some_size")]
    pub memory: Option<u64>,
    /// Bandwidth when all want more, 256ths.
    pub bandwidth: Option<u8>,
    /// Bandwidth at most, 256ths; 0 for no limit.
    pub limit: Option<u8>,
}

impl DesiredLd {
    /// What is said of it.
    #[must_use]
    pub const fn amounts(&self) -> LdAmounts {
        LdAmounts { memory: self.memory, bandwidth: self.bandwidth, limit: self.limit }
    }
}

/// Refuses what no device can have; how much memory there is, and how many logical devices, is seen in the fabric.
pub(super) fn check(all: &[DesiredLd]) -> Result<(), String> {
    for (at, one) in all.iter().enumerate() {
        let (device, ld) = (&one.device, one.ld);
        let same = |other: &&DesiredLd| other.device == *device;
        let before = || all.iter().take(at).filter(same);
        let bandwidth = |it: &DesiredLd| u32::from(it.bandwidth.unwrap_or(0));
        let promised: u32 = before().map(bandwidth).sum::<u32>() + bandwidth(one);
        let why = match () {
            () if ld >= LDS_MAX => "a device has logical devices 0 to 15".to_owned(),
            () if before().any(|other| other.ld == ld) => "it is listed twice".to_owned(),
            () if one.amounts() == LdAmounts::default() => {
                "expected memory, bandwidth or limit".to_owned()
            }
            () if one.memory.is_some_and(|memory| !memory.is_multiple_of(UNIT)) => {
                "memory: expected a multiple of 256MiB".to_owned()
            }
            () if promised > WHOLE => format!(
                "bandwidth: the shares of all logical devices of the device are {promised} of {WHOLE} together"
            ),
            () => continue,
        };
        return Err(format!("LD {ld} of {device:?}: {why}"));
    }
    Ok(())
}
