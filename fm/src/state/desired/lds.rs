//! Wanted state of logical devices: the `[[ld]]` sections.
//!
//! Each section is a [`DesiredLd`]. Mistakes within the file are found before any device is asked.
//!
//! Source: CXL 3.1 sections 7.6.7.4.3, 7.6.7.4.7, 7.6.7.4.10; docs/fm.md "What is wanted".

use serde::Deserialize;

use crate::components::lds::{LDS_MAX, LdAmounts};

/// Unit of memory: devices use it, or multiples of it.
const UNIT: u64 = 256 << 20;
/// The whole bandwidth, in 256ths.
const WHOLE: u32 = 256;

/// Wanted settings of a logical device; it keeps the values that are not given.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesiredLd {
    /// Device: a name, or `SWITCH/port:N`.
    pub device: String,
    /// Its number in the device.
    pub ld: u8,
    /// Bytes of memory, or a number with MiB, GiB or TiB.
    #[serde(default, deserialize_with = "super::some_size")]
    pub memory: Option<u64>,
    /// Share of the bandwidth when all want more, in 256ths.
    pub bandwidth: Option<u8>,
    /// Limit on the bandwidth in 256ths; 0 for none.
    pub limit: Option<u8>,
}

impl DesiredLd {
    #[must_use]
    pub const fn amounts(&self) -> LdAmounts {
        LdAmounts { memory: self.memory, bandwidth: self.bandwidth, limit: self.limit }
    }
}

/// Refuses settings that no device can have. The amount of memory and number of LDs are checked in the fabric.
pub(super) fn check(all: &[DesiredLd]) -> Result<(), String> {
    for (at, one) in all.iter().enumerate() {
        let (device, ld) = (&one.device, one.ld);
        let same = |other: &&DesiredLd| other.device == *device;
        let before = || all.iter().take(at).filter(same);
        let bandwidth = |it: &DesiredLd| u32::from(it.bandwidth.unwrap_or(0));
        // In the order of the file, so that the message names the LD with which it is too much.
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
