//! System calls of the live ports; all unsafe code of `port` is here.
//!
//! Shape: one function a call, `io::Result` out; [`RxRing`] and [`TxRing`] hold the message arrays of
//! recvmmsg and sendmmsg. Raw libc: rustix has neither packet-socket options nor recvmmsg, and nix's
//! recvmmsg allocates and does not know `PACKET_AUXDATA`.
//! Units: octets.
//! Source: packet(7), recvmmsg(2), sendmmsg(2), netdevice(7), `Documentation/networking/tuntap.rst`.

use core::ptr::NonNull;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::batch::BURST;

/// Octets of the `virtio_net_hdr` that a packet socket puts before each frame.
pub(super) const VNET_LEN: usize = 10;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Memory that a socket shares with the kernel, until this is dropped.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// `len` octets of what `fd` shares, from `offset` on.
    pub(super) fn shared(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Self> {
        let too_long = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let (len, offset) =
            (usize::try_from(len).map_err(too_long)?, i64::try_from(offset).map_err(too_long)?);
        let (fd, flags) = (fd.as_raw_fd(), libc::MAP_SHARED | libc::MAP_POPULATE);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever the kernel likes, touches none of ours.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, flags, fd, offset) };
        match NonNull::new(at.cast::<u8>()) {
            Some(base) if at != libc::MAP_FAILED => Ok(Self { base, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) const fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what mmap gave; whoever points into it keeps the mapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[expect(clippy::cast_possible_truncation, reason = "sizes of small structs")]
const fn socklen<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// A socket that does not block and is not inherited.
pub(super) fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let made =
        unsafe { libc::socket(domain, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, protocol) };
    let fd = check(made)?;
    // SAFETY: the call above made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Types that the kernel may read as plain octets: no padding, no pointer.
pub(super) trait Plain: Copy {}
impl Plain for i32 {}
impl Plain for libc::packet_mreq {}

/// Sets a socket option.
pub(super) fn set_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: T,
) -> io::Result<()> {
    let value = &raw const value;
    // SAFETY: the kernel reads `size_of::<T>()` octets from a live value of that size.
    let set =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.cast(), socklen::<T>()) };
    check(set).map(drop)
}

/// Frames that the kernel dropped for lack of room in the socket since the last call.
pub(super) fn packet_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = socklen::<libc::tpacket_stats>();
    // SAFETY: the kernel writes at most `len` octets, the size of `stats`.
    let got = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    };
    check(got).map(|_| stats.tp_drops)
}

/// Has the kernel send what is in a socket's transmit ring, without waiting.
pub(super) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    let none = core::ptr::null();
    // SAFETY: no octets, no address.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, none.cast(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Binds a socket to an address of its family.
pub(super) fn bind<T>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    let at = core::ptr::from_ref(address).cast();
    // SAFETY: the kernel reads `size_of::<T>()` octets of a live address.
    check(unsafe { libc::bind(fd.as_raw_fd(), at, socklen::<T>()) }).map(drop)
}

/// Starts receiving all frames of an interface.
pub(super) fn bind_packet(fd: BorrowedFd<'_>, ifindex: i32) -> io::Result<()> {
    bind(
        fd,
        &libc::sockaddr_ll {
            sll_family: AF_PACKET,
            sll_protocol: ETH_P_ALL.to_be(),
            sll_ifindex: ifindex,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        },
    )
}

/// Receives what is for other stations too, as long as the socket is open, which itself receives
/// nothing.
pub(super) fn promiscuous(ifindex: i32) -> io::Result<OwnedFd> {
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    set_promiscuous(socket.as_fd(), ifindex)?;
    Ok(socket)
}

/// Receives what is for other stations too, as long as this packet socket is open.
pub(super) fn set_promiscuous(fd: BorrowedFd<'_>, ifindex: i32) -> io::Result<()> {
    let promiscuous = libc::packet_mreq {
        mr_ifindex: ifindex,
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or_default(),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, promiscuous)
}

/// Joins the multicast groups of a netlink socket.
#[expect(clippy::cast_possible_truncation, reason = "address families are small")]
pub(super) fn bind_netlink(fd: BorrowedFd<'_>, groups: u32) -> io::Result<()> {
    // SAFETY: all octets zero is a valid address.
    let mut address: libc::sockaddr_nl = unsafe { core::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups;
    bind(fd, &address)
}

#[expect(clippy::cast_possible_truncation, reason = "address families are small")]
const AF_PACKET: libc::sa_family_t = libc::AF_PACKET as libc::sa_family_t;
#[expect(clippy::cast_possible_truncation, reason = "EtherTypes have 16 bits")]
const ETH_P_ALL: u16 = libc::ETH_P_ALL as u16;

/// Sends a message to the kernel.
pub(super) fn send(fd: BorrowedFd<'_>, octets: &[u8]) -> io::Result<()> {
    let (at, len) = (octets.as_ptr().cast(), octets.len());
    // SAFETY: the kernel reads `len` octets of a live slice.
    let sent = unsafe { libc::send(fd.as_raw_fd(), at, len, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message; an answer longer than `octets` is cut.
pub(super) fn recv(fd: BorrowedFd<'_>, octets: &mut [u8]) -> io::Result<usize> {
    let (at, len) = (octets.as_mut_ptr().cast(), octets.len());
    // SAFETY: the kernel writes at most `len` octets into a slice that is ours.
    let had = unsafe { libc::recv(fd.as_raw_fd(), at, len, 0) };
    usize::try_from(had).map_err(|_| io::Error::last_os_error())
}

/// What is ready on a descriptor, without waiting.
pub(super) fn ready(fd: BorrowedFd<'_>, events: i16) -> io::Result<i16> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one live element.
    check(unsafe { libc::poll(&raw mut poll, 1, 0) })?;
    Ok(poll.revents)
}

/// An interface request by name, all else zero.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all octets zero is a valid request.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "interface names have 1..=15 octets",
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    Ok(request)
}

fn ioctl(fd: BorrowedFd<'_>, call: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all calls made here read and write one `ifreq`, which is live and ours, and so is what
    // it points to.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), call, core::ptr::from_mut(request)) }).map(drop)
}

/// Attaches a descriptor of /dev/net/tun to a tap device of this name without packet information,
/// which is made if there is none.
pub(super) fn attach_tap(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).unwrap_or_default();
    ioctl(fd, libc::TUNSETIFF, &mut request)?;
    // SAFETY: this call takes a number, not a pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, 0) }).map(drop)
}

/// Whether there is an interface of this name; `fd` is any socket.
pub(super) fn exists(fd: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    match ioctl(fd, libc::SIOCGIFINDEX, &mut request(name)?) {
        Ok(()) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Sets an interface's MTU; `fd` is any socket.
pub(super) fn set_mtu(fd: BorrowedFd<'_>, name: &str, mtu: i32) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = mtu;
    ioctl(fd, libc::SIOCSIFMTU, &mut request)
}

/// Sets an interface up; `fd` is any socket.
pub(super) fn set_up(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    ioctl(fd, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the call above filled this member in.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | i16::try_from(libc::IFF_UP).unwrap_or_default();
    ioctl(fd, libc::SIOCSIFFLAGS, &mut request)
}

/// Runs an ethtool command whose arguments are `T`, which starts with the command's number.
fn ethtool<T>(fd: BorrowedFd<'_>, name: &str, arguments: &mut T) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = core::ptr::from_mut(arguments).cast();
    ioctl(fd, libc::SIOCETHTOOL as libc::Ioctl, &mut request)
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
pub(super) struct Channels {
    command: u32,
    max: [u32; 4],
    /// Queues that only receive.
    pub rx: u32,
    tx: u32,
    other: u32,
    /// Queues that receive and send.
    pub combined: u32,
}

/// The queues of an interface; `fd` is any socket.
pub(super) fn channels(fd: BorrowedFd<'_>, name: &str) -> io::Result<Channels> {
    let mut channels = Channels { command: 0x3C, ..Channels::default() };
    ethtool(fd, name, &mut channels)?;
    Ok(channels)
}

/// `struct ethtool_drvinfo`: after the command the driver's name, then 160 octets of other facts.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// The driver of an interface, ended by a zero; `fd` is any socket.
pub(super) fn driver(fd: BorrowedFd<'_>, name: &str) -> io::Result<[u8; 32]> {
    let mut info = DriverInfo { command: 0x03, driver: [0; 32], rest: [0; 160] };
    ethtool(fd, name, &mut info)?;
    Ok(info.driver)
}

/// The answer to an ethtool command that has one number; `fd` is any socket.
pub(super) fn ethtool_value(fd: BorrowedFd<'_>, name: &str, command: u32) -> io::Result<u32> {
    let mut value = [command, 0];
    ethtool(fd, name, &mut value)?;
    Ok(value[1])
}

const NO_IOV: libc::iovec = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };

fn messages() -> Vec<libc::mmsghdr> {
    // SAFETY: all octets zero is a valid, empty message.
    (0..BURST).map(|_| unsafe { core::mem::zeroed() }).collect()
}

/// What the kernel says beside a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Octets written, header included.
    pub len: usize,
    /// The buffers were too short for it.
    pub cut: bool,
    /// A VLAN tag that was taken out of the data: TPID and TCI.
    pub tag: Option<(u16, u16)>,
}

/// Room for one control message with a `tpacket_auxdata`.
#[repr(align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

/// Arrays of recvmmsg: two buffers a message, and room for its auxiliary data.
pub(super) struct RxRing {
    messages: Vec<libc::mmsghdr>,
    iovs: Vec<[libc::iovec; 2]>,
    controls: Vec<Control>,
}

// SAFETY: the pointers in it go to its own arrays and to buffers that its owner answers for
// (`receive`); nothing in it belongs to a thread.
unsafe impl Send for RxRing {}

impl RxRing {
    pub(super) fn new() -> Self {
        Self {
            messages: messages(),
            iovs: vec![[NO_IOV; 2]; BURST],
            controls: vec![Control([0; 64]); BURST],
        }
    }

    /// Names the buffers of message `index`: first and overflow.
    pub(super) fn set(&mut self, index: usize, buffers: [(*mut u8, usize); 2]) {
        if let Some(iov) = self.iovs.get_mut(index) {
            *iov = buffers.map(|(at, len)| libc::iovec { iov_base: at.cast(), iov_len: len });
        }
    }

    /// Receives up to `count` frames into the buffers of messages 0, 1, ...
    ///
    /// # Safety
    /// The buffers that were last named for those messages are valid for writing their length, and
    /// nobody else reads or writes them during the call.
    pub(super) unsafe fn receive(&mut self, fd: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
        let count = count.min(BURST);
        let arrays = self.messages.iter_mut().zip(&mut self.iovs).zip(&mut self.controls);
        for ((message, iov), control) in arrays.take(count) {
            let header = &mut message.msg_hdr;
            header.msg_iov = iov.as_mut_ptr();
            header.msg_iovlen = 2;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = control.0.len();
        }
        let (at, vlen) = (self.messages.as_mut_ptr(), u32::try_from(count).unwrap_or(0));
        // SAFETY: `vlen` messages are live; their arrays are ours, and the caller answers for the
        // buffers.
        let got = unsafe {
            libc::recvmmsg(fd.as_raw_fd(), at, vlen, libc::MSG_DONTWAIT, core::ptr::null_mut())
        };
        check(got).map(|n| usize::try_from(n).unwrap_or(0))
    }

    /// What was received as message `index` of the last call.
    pub(super) fn received(&self, index: usize) -> Received {
        let (Some(message), Some(control)) = (self.messages.get(index), self.controls.get(index))
        else {
            return Received::default();
        };
        let control = control.0.get(..message.msg_hdr.msg_controllen).unwrap_or_default();
        Received {
            len: usize::try_from(message.msg_len).unwrap_or(0),
            cut: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            tag: tag(control),
        }
    }
}

/// The tag in a control message; there is only one message, `PACKET_AUXDATA`.
fn tag(control: &[u8]) -> Option<(u16, u16)> {
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let word =
        |at: usize| control.get(at..).and_then(|c| c.first_chunk()).map(|w| u32::from_ne_bytes(*w));
    let half =
        |at: usize| control.get(at..).and_then(|c| c.first_chunk()).map(|w| u16::from_ne_bytes(*w));
    let is = |at, want: i32| word(at).is_some_and(|w| w.cast_signed() == want);
    if !is(HEAD - 8, libc::SOL_PACKET) || !is(HEAD - 4, libc::PACKET_AUXDATA) {
        return None;
    }
    // tpacket_auxdata: status, len, snaplen (32 bits), mac, net, tci, tpid (16 bits)
    let status = word(HEAD)?;
    let (tci, tpid) = (half(HEAD + 16)?, half(HEAD + 18)?);
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 { 0x8100 } else { tpid };
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some((tpid, tci))
}

/// One message to send: what comes first (virtio-net header, perhaps headers), then what follows.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub lead: &'a [u8],
    pub parts: &'a [&'a [u8]],
}

/// Arrays of sendmmsg.
pub(super) struct TxRing {
    messages: Vec<libc::mmsghdr>,
    iovs: Vec<libc::iovec>,
}

// SAFETY: the pointers in it are set and used within one call of `transmit`.
unsafe impl Send for TxRing {}

impl TxRing {
    /// Buffers of all messages of a call.
    const IOVS: usize = 2 * BURST;

    pub(super) fn new() -> Self {
        Self { messages: messages(), iovs: Vec::with_capacity(Self::IOVS) }
    }

    /// Sends messages; returns how many of the first were taken. What has more than 128 buffers in
    /// all, or comes after that, is left.
    pub(super) fn transmit(
        &mut self,
        fd: BorrowedFd<'_>,
        outgoing: &[Outgoing<'_>],
    ) -> io::Result<usize> {
        self.iovs.clear();
        let buffers = outgoing.iter().flat_map(|out| core::iter::once(&out.lead).chain(out.parts));
        self.iovs.extend(buffers.take(Self::IOVS).map(|part| libc::iovec {
            // The kernel only reads these; iovec has no const pointer.
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        }));
        let (mut rest, mut count) = (self.iovs.as_mut_slice(), 0);
        for (message, out) in self.messages.iter_mut().zip(outgoing) {
            let Some((own, after)) = rest.split_at_mut_checked(1 + out.parts.len()) else { break };
            message.msg_hdr.msg_iov = own.as_mut_ptr();
            message.msg_hdr.msg_iovlen = own.len();
            rest = after;
            count += 1;
        }
        let at = self.messages.as_mut_ptr();
        // SAFETY: `count` messages were just set to buffers that are borrowed until the end of this
        // function.
        let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), at, count, libc::MSG_DONTWAIT) };
        check(sent).map(|n| usize::try_from(n).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(level: i32, status: u32, tci: u16, tpid: u16) -> Vec<u8> {
        let mut octets = (size_of::<libc::cmsghdr>() + 20).to_ne_bytes().to_vec();
        octets.extend(level.to_ne_bytes());
        octets.extend(libc::PACKET_AUXDATA.to_ne_bytes());
        octets.extend(status.to_ne_bytes());
        octets.extend([0; 12]);
        octets.extend(tci.to_ne_bytes());
        octets.extend(tpid.to_ne_bytes());
        octets
    }

    #[test]
    fn tags_are_found_in_auxiliary_data() {
        let both = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        #[rustfmt::skip] // columns: name, level, status, tci, tpid, want
        let cases = [
            ("tag with tpid", libc::SOL_PACKET, both, 0x6005, 0x88A8, Some((0x88A8, 0x6005))),
            ("old kernel",    libc::SOL_PACKET, libc::TP_STATUS_VLAN_VALID, 5, 0, Some((0x8100, 5))),
            ("no tag",        libc::SOL_PACKET, 1,    5,      0x8100, None),
            ("other message", libc::SOL_SOCKET, both, 5,      0x8100, None),
        ];
        for (name, level, status, tci, tpid, want) in cases {
            let octets = control(level, status, tci, tpid);
            assert_eq!(tag(&octets), want, "{name}");
            for len in 0..octets.len() {
                assert_eq!(tag(&octets[..len]), None, "{name} cut to {len}");
            }
        }
    }

    #[test]
    fn interface_names_out_of_range_are_refused() {
        for (name, fits) in [
            ("", false),
            ("eth0", true),
            ("123456789012345", true),
            ("1234567890123456", false),
            ("a\0b", false),
        ] {
            assert_eq!(request(name).is_ok(), fits, "{name:?}");
        }
    }
}
