//! Explains why an IOMMU refuses the pool: the pool's addresses may be longer than those that the IOMMU translates.
//!
//! Source: Intel's VT-d specification, "Capability Register", MGAW; Linux,
//! Documentation/ABI/testing/sysfs-class-iommu-intel-iommu.

use core::ops::Range;
use std::io;

use weft_base::files::{self, OpenedBy};

/// Address width in bits of a PCI device's IOMMU; `None` if the kernel does not tell.
pub fn address_bits(device: &str) -> Option<u32> {
    let name = device.split(',').next().unwrap_or(device);
    [name.to_owned(), format!("0000:{name}")].iter().find_map(|name| {
        let path = format!("/sys/bus/pci/devices/{name}/iommu/intel-iommu/cap");
        bits_of_capability(&files::read_text(path, OpenedBy::Service, 64).ok()?)
    })
}

/// Address width in the capability register, which sysfs shows as hexadecimal: bits 21 to 16 are the width less one.
fn bits_of_capability(text: &str) -> Option<u32> {
    let text = text.trim();
    let capability = u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()?;
    u32::try_from((capability >> 16 & 0x3F) + 1).ok()
}

/// Adds the remedy to the error of mapping `pool` for a device, if its IOMMU is too narrow for the pool's addresses.
pub fn explain(error: io::Error, pool: &Range<u64>, bits: Option<u32>) -> io::Error {
    /// Narrowest width that is common.
    const NARROW: u32 = 39;
    let fits = |bits: u32| pool.end.checked_shr(bits).unwrap_or(0) == 0;
    let limit = match bits {
        Some(bits) if !fits(bits) => format!("the device's IOMMU takes addresses of {bits} bits"),
        None if !fits(NARROW) => {
            format!("the device's IOMMU may take addresses of {NARROW} bits only")
        }
        _ => return error,
    };
    let why = format!(
        "{error}; the pool is at {:#x} to {:#x}, but {limit}: give a virtual machine's IOMMU more bits (qemu: aw-bits=48), or \
         add --iova-mode=pa to dpdk.eal_args, with which frames are copied",
        pool.start, pool.end
    );
    io::Error::new(error.kind(), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_tell_the_width() {
        #[rustfmt::skip] // columns: name, text of sysfs, bits
        let cases = [
            ("39 bits",      "d2008c22260286\n",   Some(39)),
            ("48 bits",      "8d2078c106f0466\n",   Some(48)),
            ("with prefix",  "0x8d2078c106f0466",   Some(48)),
            ("all that fit", "3f0000\n",            Some(64)),
            ("nothing",      "",                    None),
            ("no number",    "none\n",              None),
            ("too long",     "18d2078c106f0466ab\n", None),
        ];
        for (name, text, want) in cases {
            assert_eq!(bits_of_capability(text), want, "{name}");
        }
        assert_eq!(address_bits("net_null0,no-rx=1"), None);
    }

    #[test]
    fn an_error_names_the_width_only_where_the_pool_is_beyond_it() {
        let (low, high) = (0x3f_c000_0000..0x40_0000_0000, 0x7f00_0000_0000..0x7f00_0200_0000);
        #[rustfmt::skip] // columns: name, pool, bits, what is said of them
        let cases = [
            ("low",             &low,  Some(39), None),
            ("low, exactly",    &low,  Some(38), Some("IOMMU takes addresses of 38 bits")),
            ("high and narrow", &high, Some(39), Some("IOMMU takes addresses of 39 bits")),
            ("high and wide",   &high, Some(48), None),
            ("low, not known",  &low,  None,     None),
            ("high, not known", &high, None,     Some("IOMMU may take addresses of 39 bits only")),
            ("all bits",        &high, Some(64), None),
        ];
        for (name, pool, bits, want) in cases {
            let refused =
                io::Error::new(io::ErrorKind::PermissionDenied, "refused (EAL: error 22)");
            let error = explain(refused, pool, bits);
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}");
            let text = error.to_string();
            assert!(text.starts_with("refused (EAL: error 22)"), "{name}: {text}");
            match want {
                Some(want) => assert!(
                    text.contains(want) && text.contains("--iova-mode=pa"),
                    "{name}: {text}"
                ),
                None => assert_eq!(text, "refused (EAL: error 22)", "{name}"),
            }
        }
    }
}
