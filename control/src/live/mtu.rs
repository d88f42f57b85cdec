//! Warns of interfaces whose MTU lets hosts send longer frames than their port takes.
//!
//! Compares the MTU of an interface with `max_frame` of its port; lengths are in bytes, without FCS.
//! Source: docs/spec/pipeline.md §11.

use weft_config::choice::{Choice, DeviceIs, DeviceKind};
use weft_dataplane::pool::FRAME_LEN_MAX;
use weft_dataplane::port::netdev;
use weft_parsers::ethernet;
use weft_parsers::vlan::TAG_LEN;

/// Whether the device of a port that was opened as `kind` is an interface with an MTU.
fn has_mtu(kind: &str) -> bool {
    let device = DeviceKind::from_name(kind).map(DeviceKind::device);
    device.is_some_and(|device| matches!(device, DeviceIs::Interface | DeviceIs::Made))
}

/// Warning for a port of `kind` on `device` by the MTU that the interface has now; `None` if it fits.
pub(super) fn of_port(kind: &str, device: &str, frame_len_max: usize) -> Option<String> {
    let mtu = has_mtu(kind).then(|| netdev::mtu(device))??;
    warning(mtu, frame_len_max)
}

/// Warning for an MTU that is too large for a port. The two ends of a veth mostly have the same MTU, so the near end's
/// stands for the host's.
fn warning(mtu: usize, frame_len_max: usize) -> Option<String> {
    // The MTU counts neither the Ethernet header nor a tag, `max_frame` counts both.
    let (plain, tagged) = (mtu + ethernet::LEN, mtu + ethernet::LEN + TAG_LEN);
    let what = match frame_len_max {
        max if plain > max => format!("{plain} bytes ({tagged} with a tag)"),
        max if tagged > max => format!("{tagged} bytes with a tag"),
        _ => return None,
    };
    let fits = frame_len_max.saturating_sub(ethernet::LEN + TAG_LEN);
    // A port takes at most `FRAME_LEN_MAX`: beyond that only a smaller MTU helps.
    let instead = if tagged <= FRAME_LEN_MAX {
        format!("set max_frame = {tagged}, or an MTU of {fits}")
    } else {
        format!(
            "set an MTU of {fits}, or of {} and max_frame = {FRAME_LEN_MAX}",
            FRAME_LEN_MAX - ethernet::LEN - TAG_LEN
        )
    };
    Some(format!(
        "by its MTU of {mtu} frames have up to {what}, but max_frame is {frame_len_max}: longer ones are dropped (too_long); {instead}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_fits_or_the_warning_says_what_would() {
        #[rustfmt::skip] // columns: name, MTU, max_frame, words of the warning
        let cases: [(_, _, _, &[&str]); 7] = [
            ("as shipped",         1_500,  1_522, &[]),
            ("exact, with a tag",  1_504,  1_522, &[]),
            ("without a tag only", 1_505,  1_522, &["1523 bytes with a tag", "max_frame = 1523", "MTU of 1504"]),
            ("plain is exact",     1_508,  1_522, &["1526 bytes with a tag"]),
            ("containerlab's",     9_500,  1_522, &["9514 bytes (9518 with a tag)", "max_frame = 9518", "too_long"]),
            ("made to fit",        9_500,  9_518, &[]),
            ("more than can be",   65_535, 9_728, &["65549 bytes", "MTU of 9710"]),
        ];
        for (name, mtu, frame_len_max, want) in cases {
            let said = warning(mtu, frame_len_max).unwrap_or_default();
            assert_eq!(said.is_empty(), want.is_empty(), "{name}: {said}");
            assert!(want.iter().all(|words| said.contains(words)), "{name}: {said}");
        }
    }

    #[test]
    fn what_is_no_interface_has_no_mtu() {
        for kind in ["null", "pcap", "dpdk", "pipe", "none"] {
            assert_eq!(of_port(kind, "lo", 64), None, "{kind}");
        }
        assert_eq!(of_port("af_packet", "no-such-if0", 64), None);
    }
}
