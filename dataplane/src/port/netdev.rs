//! Properties of an interface and its driver: support for XDP, receive queues, offloads.
//!
//! [`Features`] come by generic netlink (family `netdev`), queues and offloads by ethtool.
//!
//! Source: Linux `Documentation/netlink/specs/netdev.yaml` (6.3 and later), ethtool(8).

use std::io;
use std::os::fd::AsFd;

use super::link::{
    INFO_GENERIC, LinkWatch, Messages, REQUEST, attribute, for_each_message, ne16, ne64,
};
use super::sys;

const CTRL: u16 = 0x10;
const CTRL_GET_FAMILY: u8 = 3;
const CTRL_FAMILY_ID: u16 = 1;
const CTRL_FAMILY_NAME: u16 = 2;
const NETDEV_DEV_GET: u8 = 1;
const DEV_IFINDEX: u16 = 1;
const DEV_XDP: u16 = 3;
const DEV_RX_METADATA: u16 = 5;
const DEV_XSK: u16 = 6;

/// `ETHTOOL_GFLAGS`, and the flag in its answer that says that tags are taken out of received frames.
const GET_FLAGS: u32 = 0x25;
const FLAG_RX_VLAN: u32 = 1 << 8;

/// XDP features of a driver, as the kernel reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `enum netdev_xdp_act`.
    xdp: u64,
    /// `enum netdev_xdp_rx_metadata`.
    rx_metadata: u64,
    /// `enum netdev_xsk_flags`.
    xsk: u64,
}

impl Features {
    /// Whether XDP programs run in the driver, and may redirect frames to a socket.
    #[must_use]
    pub const fn has_native_xdp(self) -> bool {
        self.xdp & 0b11 == 0b11
    }

    /// Whether the interface sends frames that another device's program redirects to it. Changes at run time.
    #[must_use]
    pub const fn takes_redirected(self) -> bool {
        self.xdp & 1 << 2 != 0
    }

    /// Whether `AF_XDP` sockets work without a copy.
    #[must_use]
    pub const fn has_zero_copy(self) -> bool {
        self.xdp & 1 << 3 != 0
    }

    /// Whether a program can read a VLAN tag that is not in the data.
    #[must_use]
    pub const fn shows_tags(self) -> bool {
        self.rx_metadata & 1 << 2 != 0
    }

    /// Whether the device completes checksums by transmit metadata, also in zero-copy mode.
    #[must_use]
    pub const fn completes_checksums(self) -> bool {
        self.xsk & 1 << 1 != 0
    }
}

/// Sends one request of generic netlink and hands the attributes of each answer to `each`.
fn ask(
    family: u16,
    command: u8,
    body: impl FnOnce(&mut Messages),
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)?;
    sys::bind_netlink(socket.as_fd(), 0)?;
    let mut messages = Messages::default();
    messages.message(family, REQUEST, 1, |m| {
        m.0.extend([command, 1, 0, 0]);
        body(m);
    });
    sys::send(socket.as_fd(), &messages.0)?;
    let mut buffer = [0; 8 << 10];
    let len = sys::recv(socket.as_fd(), &mut buffer)?; // the answer is there by now
    let mut refused = None;
    for_each_message(buffer.get(..len).unwrap_or_default(), |kind, body| {
        if kind == family {
            each(body.get(INFO_GENERIC..).unwrap_or_default());
        } else if i32::from(kind) == libc::NLMSG_ERROR {
            refused = body.first_chunk().map(|code| i32::from_ne_bytes(*code).wrapping_neg());
        }
    });
    refused.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
}

/// Features of the driver of interface `index`.
///
/// # Errors
/// `NotFound` if the kernel is older than 6.3 and cannot tell.
pub fn features(index: i32) -> io::Result<Features> {
    let mut family = None;
    let name = |m: &mut Messages| m.string(CTRL_FAMILY_NAME, "netdev");
    ask(CTRL, CTRL_GET_FAMILY, name, |answer| {
        family = attribute(answer, CTRL_FAMILY_ID).and_then(|id| ne16(id, 0));
    })?;
    let family = family.ok_or(io::ErrorKind::NotFound)?;
    let mut features = Features::default();
    let device = |m: &mut Messages| m.attribute(DEV_IFINDEX, |m| m.0.extend(index.to_ne_bytes()));
    ask(family, NETDEV_DEV_GET, device, |answer| {
        let word = |kind| attribute(answer, kind).and_then(|w| ne64(w, 0)).unwrap_or(0);
        features =
            Features { xdp: word(DEV_XDP), rx_metadata: word(DEV_RX_METADATA), xsk: word(DEV_XSK) };
    })?;
    Ok(features)
}

/// Number of queues by which the interface receives now; 1 if the driver does not say.
#[must_use]
pub fn rx_queues(device: &str) -> usize {
    let ask = || {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        sys::channels(socket.as_fd(), device)
    };
    // A driver has separate receive queues, combined ones, or both.
    ask().map_or(1, |channels| (channels.rx + channels.combined) as usize).max(1)
}

/// The interface's present MTU in bytes; `None` if there is no such interface.
#[must_use]
pub fn mtu(device: &str) -> Option<usize> {
    let state = LinkWatch::open(device).ok()?.state();
    state.index.map(|_| state.mtu).filter(|mtu| *mtu > 0)
}

/// Pairs of indices into `devices` whose interfaces are the two ends of one veth pair.
#[must_use]
pub fn pairs(devices: &[&str]) -> Vec<(usize, usize)> {
    let ends = |device: &&str| {
        let state = LinkWatch::open(device).ok()?.state();
        Some((state.index?, state.link?))
    };
    let ends: Vec<Option<(i32, i32)>> = devices.iter().map(ends).collect();
    let mut pairs = Vec::new();
    for (first, end) in ends.iter().enumerate() {
        // Both ends must name each other: a VLAN's interface names its parent, but not the other way round.
        let other = end.map(|(index, link)| (link, index));
        let rest = ends.iter().enumerate().skip(first + 1);
        pairs.extend(
            rest.filter(|(_, end)| end.is_some() && **end == other).map(|(at, _)| (first, at)),
        );
    }
    pairs
}

/// Whether the interface sends frames that another device's program redirects to it now.
#[must_use]
pub fn takes_redirected(device: &str) -> bool {
    let index = LinkWatch::open(device).map(|watch| watch.state().index);
    matches!(index, Ok(Some(index)) if features(index).is_ok_and(Features::takes_redirected))
}

/// Whether the interface is one end of a veth pair.
#[must_use]
pub fn is_veth(device: &str) -> bool {
    let ask = || {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        io::Result::Ok(sys::driver_info(socket.as_fd(), device)?.driver.starts_with(b"veth\0"))
    };
    ask().unwrap_or(false)
}

/// Whether the interface is a device on a bus, so that its frames come from a wire, or as if they did.
#[must_use]
pub fn is_hardware(device: &str) -> bool {
    let ask = || {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let info = sys::driver_info(socket.as_fd(), device)?;
        // The tun driver gives a bus name, too ("tap"), although its frames come from a program.
        io::Result::Ok(info.bus[0] != 0 && !info.driver.starts_with(b"tun\0"))
    };
    ask().unwrap_or(false)
}

/// Whether the interface leaves the VLAN tags of received frames in their data. False for a veth: it passes on the
/// peer's metadata whatever its own setting is.
#[must_use]
pub fn leaves_tags(device: &str) -> bool {
    let ask = || {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let flags = sys::ethtool_value(socket.as_fd(), device, GET_FLAGS)?;
        io::Result::Ok(!is_veth(device) && flags & FLAG_RX_VLAN == 0)
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(miri))]
    fn the_loopback_device_has_neither_xdp_nor_zero_copy() {
        match features(1) {
            Ok(features) => {
                assert!(!features.has_native_xdp() && !features.has_zero_copy());
                assert!(!features.shows_tags() && !features.completes_checksums());
            }
            Err(error) => eprintln!("SKIPPED the_loopback_device: netdev family: {error}"),
        }
        assert!(features(i32::MAX).is_err(), "no such interface");
        assert_eq!(rx_queues("no-such-if0"), 1);
        assert!(!leaves_tags("no-such-if0"));
        assert!(!is_hardware("no-such-if0") && !is_hardware("lo"));
    }
}
