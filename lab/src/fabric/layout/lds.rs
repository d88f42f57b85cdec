//! Memory devices and logical devices: their limits, and the meaning of a name that a host binds.
//!
//! `NAME.LD` in a host's `bind` is a device and the number of its logical device.
//!
//! Source: docs/fabric.md; CXL 3.1 sections 2.5, 7.7.12.1 (a static fabric has no MLD).

use weft_fm::service::status::StartMode;

use super::super::topology::{Device, DeviceKind};
use super::build::{LINES_MAX, LayoutBuilder};
use super::{End, LayoutError, Part};
use crate::endpoint::device::spec::{BANDWIDTH_MBPS_MAX, LATENCY_NS_MAX};

/// Logical devices of a device at most.
pub(super) const LDS_MAX: u8 = 16;
/// Largest BAR 0 of a device.
const BAR_MIB_MAX: u32 = 16_384;
/// Unit in which memory is shared out.
pub(super) const GRANULE_MIB: u32 = 256;
/// The whole bandwidth of a device, in 256ths.
const WHOLE: u32 = 256;

/// Refuses latency and bandwidth that are out of range, or of a device without memory.
fn check_figures(device: &Device) -> Result<(), LayoutError> {
    let fits = |value: Option<u64>, most| value.is_none_or(|value| (1..=most).contains(&value));
    let is_given = device.latency_ns.is_some() || device.bandwidth_mbps.is_some();
    let why = match () {
        () if !fits(device.latency_ns, LATENCY_NS_MAX) => "latency_ns: expected 1 to 1000000",
        () if !fits(device.bandwidth_mbps, BANDWIDTH_MBPS_MAX) => {
            "bandwidth_mbps: expected 1 to 100000000"
        }
        () if is_given && device.kind != DeviceKind::Memory => {
            "latency_ns and bandwidth_mbps are for kind = \"memory\""
        }
        () => return Ok(()),
    };
    refuse(&device.name, why)
}

impl LayoutBuilder<'_> {
    /// Refuses logical devices that their device cannot have.
    pub(super) fn check_lds(&self) -> Result<(), LayoutError> {
        for (index, device) in self.topology.devices.iter().enumerate() {
            let fits = |mib: u32| mib > 0 && mib.is_multiple_of(GRANULE_MIB);
            // Hosts find the size of a BAR by its lowest writable bit.
            if device.bar_mib.is_some_and(|mib| !mib.is_power_of_two() || mib > BAR_MIB_MAX) {
                return refuse(&device.name, "bar_mib: expected a power of two, 1 to 16384");
            }
            if device.cache_lines > LINES_MAX {
                return refuse(&device.name, "cache_lines: expected 0 to 1048576");
            }
            check_figures(device)?;
            let Some(lds) = device.lds else {
                if device.capacity_mib.is_some() && device.kind != DeviceKind::Memory {
                    return refuse(&device.name, "capacity_mib is for kind = \"memory\"");
                }
                if device.capacity_mib.is_some_and(|mib| !fits(mib)) {
                    return refuse(&device.name, "capacity_mib: expected a multiple of 256");
                }
                if device.dynamic_mib.is_some() {
                    return refuse(
                        &device.name,
                        "dynamic_mib is of logical devices: give lds, too",
                    );
                }
                if device.ld_mib.is_some()
                    || device.ld_bandwidth.is_some()
                    || device.ld_limit.is_some()
                {
                    let why =
                        "ld_mib, ld_bandwidth and ld_limit are of logical devices: give lds, too";
                    return refuse(&device.name, why);
                }
                continue;
            };
            let at = self.at.get(&Part::Device(index));
            let is_at_switch = matches!(at, Some(End { part: Part::Switch(_), .. }));
            let all = device.capacity_mib.unwrap_or(u32::from(lds) * GRANULE_MIB);
            let why = match () {
                () if !(1..=LDS_MAX).contains(&lds) => "lds: expected 1 to 16",
                () if device.kind != DeviceKind::Memory => "lds is for kind = \"memory\"",
                () if device.bar_mib.is_some() => {
                    "bar_mib: BAR 0 of logical devices is as long as their memory"
                }
                () if device.gim => "gim: logical devices take requests of their own hosts alone",
                () if device.lnr.is_some() => {
                    "lnr: logical devices have no Lightweight Notification"
                }
                () if device.cache_lines > 0 => "cache_lines: logical devices have no CacheID",
                () if !is_at_switch => {
                    "lds: its switch must be a PBR switch, which tells logical devices apart"
                }
                () if device.capacity_mib.is_some_and(|mib| !fits(mib)) => {
                    "capacity_mib: expected a multiple of 256"
                }
                () if device.dynamic_mib.is_some_and(|mib| !fits(mib) || mib > all) => {
                    "dynamic_mib: expected a multiple of 256, at most capacity_mib"
                }
                () => {
                    check_amounts(device, lds, all)?;
                    continue;
                }
            };
            return refuse(&device.name, why);
        }
        // A static fabric has no manager to bind LDs.
        let with_lds = self.topology.devices.iter().find(|device| device.lds.is_some());
        match with_lds.filter(|_| self.topology.start == StartMode::Static) {
            Some(device) => Err(LayoutError::Static(device.name.clone())),
            None => Ok(()),
        }
    }

    /// Looks up the name in a host's `bind` or a `[[p2p]]`: a whole device or HBR switch, or a logical device.
    pub(super) fn bound_part(
        &self,
        by: &str,
        name: &str,
    ) -> Result<(Part, Option<u8>), LayoutError> {
        let lds_of = |part: Part| match part {
            Part::Device(at) => self.topology.devices.get(at).and_then(|device| device.lds),
            _ => None,
        };
        // A whole name first: names may have dots themselves.
        let whole = self.find(by, name, "device");
        if let (Err(_), Some((device, ld))) = (&whole, name.rsplit_once('.'))
            && let (Ok(part), Ok(ld)) = (self.find(by, device, "device"), ld.parse::<u8>())
        {
            return match lds_of(part) {
                Some(lds) if ld < lds => Ok((part, Some(ld))),
                Some(lds) => refuse(
                    device,
                    &format!("{by} names {name}: its logical devices are 0 to {}", lds - 1),
                ),
                None => refuse(
                    device,
                    &format!("{by} names {name}: it has no logical devices, give it lds"),
                ),
            };
        }
        let part = whole?;
        match lds_of(part) {
            None => Ok((part, None)),
            Some(_) => refuse(
                name,
                &format!("{by} names it whole: name a logical device, such as {name}.0"),
            ),
        }
    }
}

/// Refuses memory and bandwidth of `lds` logical devices beyond the `all` MiB of their device.
fn check_amounts(device: &Device, lds: u8, all: u32) -> Result<(), LayoutError> {
    let one_each = |key: &str, had: Option<usize>| match had {
        Some(had) if had != usize::from(lds) => {
            let why = format!("{key}: expected one for each of {lds} logical devices, found {had}");
            refuse(&device.name, &why)
        }
        _ => Ok(()),
    };
    one_each("ld_mib", device.ld_mib.as_ref().map(Vec::len))?;
    one_each("ld_bandwidth", device.ld_bandwidth.as_ref().map(Vec::len))?;
    one_each("ld_limit", device.ld_limit.as_ref().map(Vec::len))?;
    let each = device.ld_mib.as_deref().unwrap_or_default();
    if each.iter().any(|mib| !mib.is_multiple_of(GRANULE_MIB)) {
        return refuse(&device.name, "ld_mib: expected multiples of 256");
    }
    let dynamic = device.dynamic_mib.unwrap_or(0);
    // Added in 64 bits, because the numbers of a file may exceed 32 bits together.
    let (fixed, sum) = (all.saturating_sub(dynamic), each.iter().copied().map(u64::from).sum());
    if u64::from(fixed) < sum {
        let why = format!(
            "ld_mib: {sum} MiB together, and the device has {fixed} MiB besides dynamic capacity: raise capacity_mib"
        );
        return refuse(&device.name, &why);
    }
    // By default each gets the same number of whole granules.
    if each.is_empty() && fixed / u32::from(lds) < GRANULE_MIB {
        let why = format!(
            "capacity_mib: {fixed} MiB besides dynamic capacity are no {GRANULE_MIB} for each of {lds} logical devices: raise it, or give ld_mib"
        );
        return refuse(&device.name, &why);
    }
    let shares = device.ld_bandwidth.as_deref().unwrap_or_default();
    let sum: u32 = shares.iter().copied().map(u32::from).sum();
    if sum > WHOLE {
        let why = format!(
            "ld_bandwidth: {sum} of {WHOLE} together: shares are 256ths of the device's bandwidth"
        );
        return refuse(&device.name, &why);
    }
    Ok(())
}

pub(super) fn refuse<T>(device: &str, why: &str) -> Result<T, LayoutError> {
    Err(LayoutError::Lds { device: device.to_owned(), why: why.to_owned() })
}
