//! System calls of the live ports, and memory that they share with the kernel.
//!
//! One function per call; [`Mapping`] owns a mapping. Raw libc, because rustix has no packet-socket options.
//!
//! Source: packet(7), mmap(2), netdevice(7), `Documentation/networking/tuntap.rst`.

use core::ops::RangeInclusive;
use core::ptr::NonNull;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Bytes of the `virtio_net_hdr` that a packet socket puts in front of each frame.
pub(super) const VNET_LEN: usize = 10;

pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Memory shared with the kernel; unmapped on drop.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd`, from `offset` on.
    pub(super) fn shared(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Self> {
        // Populated at once, so that no frame waits for page faults.
        Self::map(Some(fd), offset, len, libc::MAP_SHARED | libc::MAP_POPULATE)
    }

    /// Private memory, all zero.
    #[cfg(test)]
    pub(super) fn private(len: u64) -> io::Result<Self> {
        Self::map(None, 0, len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    }

    fn map(fd: Option<BorrowedFd<'_>>, offset: u64, len: u64, flags: i32) -> io::Result<Self> {
        let too_long = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let (len, offset) =
            (usize::try_from(len).map_err(too_long)?, i64::try_from(offset).map_err(too_long)?);
        let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
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

    pub(super) const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are mmap's; code that holds pointers into the mapping keeps it alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[expect(clippy::cast_possible_truncation, reason = "sizes of small structs")]
const fn socklen<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// A non-blocking socket that child processes do not inherit.
pub(super) fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let made =
        unsafe { libc::socket(domain, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, protocol) };
    let fd = check(made)?;
    // SAFETY: the call above made it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Types that the kernel may read as plain bytes: no padding, no pointer.
pub(super) trait Plain: Copy {}
impl Plain for i32 {}
impl Plain for libc::packet_mreq {}
impl Plain for libc::tpacket_req {}

pub(super) fn set_option<T: Plain>(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: T,
) -> io::Result<()> {
    let value = &raw const value;
    // SAFETY: the kernel reads `size_of::<T>()` bytes from a live value of that size.
    let set =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.cast(), socklen::<T>()) };
    check(set).map(drop)
}

/// Has a packet socket receive frames whose length in bytes is in `lens`, without a tag that the device took out. To be
/// called before the socket is bound.
pub(super) fn receive_lens(fd: BorrowedFd<'_>, lens: RangeInclusive<u32>) -> io::Result<()> {
    let op = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    let test = libc::BPF_JMP | libc::BPF_K;
    let mut program = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        op(test | libc::BPF_JGE, 0, 2, *lens.start()),
        op(test | libc::BPF_JGT, 1, 0, *lens.end()),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX), // all of it
        op(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let len = u16::try_from(program.len()).unwrap_or_default();
    let filter = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    let (at, size) = ((&raw const filter).cast(), socklen::<libc::sock_fprog>());
    // SAFETY: the kernel reads a live program of `len` instructions and copies it.
    let set = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, size)
    };
    check(set).map(drop)
}

/// A descriptor that is readable while one of `fds` is, or has an error; they are watched until they are closed.
pub(super) fn readable_with(fds: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let made = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the call above made it, and nobody else has it.
    let epoll = unsafe { OwnedFd::from_raw_fd(made) };
    for fd in fds {
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: 0 };
        let (of, add, fd) = (epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd());
        // SAFETY: the kernel reads one live event.
        check(unsafe { libc::epoll_ctl(of, add, fd, &raw mut event) })?;
    }
    Ok(epoll)
}

/// Frames that the kernel dropped since the last call because the socket had no room. Reading the counter resets it.
pub(super) fn packet_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = socklen::<libc::tpacket_stats>();
    // SAFETY: the kernel writes at most `len` bytes, the size of `stats`.
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

/// Reads and clears the socket's pending error.
pub(super) fn take_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut code: libc::c_int = 0;
    let mut len = socklen::<libc::c_int>();
    let at = (&raw mut code).cast();
    // SAFETY: the kernel writes at most `len` bytes, the size of `code`.
    let got = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ERROR, at, &raw mut len)
    };
    check(got)?;
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Has the kernel send the contents of a socket's transmit ring, without waiting.
pub(super) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    let none = core::ptr::null();
    // SAFETY: no bytes, no address.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, none.cast(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Binds a socket to an address of its family.
pub(super) fn bind<T>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    let at = core::ptr::from_ref(address).cast();
    // SAFETY: the kernel reads `size_of::<T>()` bytes of a live address.
    check(unsafe { libc::bind(fd.as_raw_fd(), at, socklen::<T>()) }).map(drop)
}

/// Binds a packet socket to an interface; it receives all frames of the interface if `receives`.
pub(super) fn bind_packet(fd: BorrowedFd<'_>, ifindex: i32, receives: bool) -> io::Result<()> {
    bind(
        fd,
        &libc::sockaddr_ll {
            sll_family: AF_PACKET,
            // Protocol 0 receives nothing: the kernel then adds no packet tap, which would cost every frame of the
            // interface.
            sll_protocol: if receives { ETH_P_ALL.to_be() } else { 0 },
            sll_ifindex: ifindex,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        },
    )
}

/// Makes the interface promiscuous as long as the returned socket is open; the socket itself receives nothing.
pub(super) fn promiscuous(ifindex: i32) -> io::Result<OwnedFd> {
    // Protocol 0, as in `bind_packet`: no tap for a socket that only holds the membership.
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    set_promiscuous(socket.as_fd(), ifindex)?;
    Ok(socket)
}

/// Makes the interface promiscuous as long as this packet socket is open. The kernel counts such memberships, and ends
/// them with the process.
pub(super) fn set_promiscuous(fd: BorrowedFd<'_>, ifindex: i32) -> io::Result<()> {
    let promiscuous = libc::packet_mreq {
        mr_ifindex: ifindex,
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or_default(),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, promiscuous)
}

/// Binds a netlink socket and joins the given multicast groups.
#[expect(clippy::cast_possible_truncation, reason = "address families are small")]
pub(super) fn bind_netlink(fd: BorrowedFd<'_>, groups: u32) -> io::Result<()> {
    // SAFETY: all bytes zero is a valid address.
    let mut address: libc::sockaddr_nl = unsafe { core::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups;
    bind(fd, &address)
}

#[expect(clippy::cast_possible_truncation, reason = "address families are small")]
const AF_PACKET: libc::sa_family_t = libc::AF_PACKET as libc::sa_family_t;
#[expect(clippy::cast_possible_truncation, reason = "EtherTypes have 16 bits")]
const ETH_P_ALL: u16 = libc::ETH_P_ALL as u16;

/// Sends a message on a connected or bound socket.
pub(super) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let (at, len) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: the kernel reads `len` bytes of a live slice.
    let sent = unsafe { libc::send(fd.as_raw_fd(), at, len, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message, without waiting; one longer than `bytes` is cut.
pub(super) fn recv(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    let (at, len) = (bytes.as_mut_ptr().cast(), bytes.len());
    // SAFETY: the kernel writes at most `len` bytes into a slice that is ours.
    let had = unsafe { libc::recv(fd.as_raw_fd(), at, len, 0) };
    usize::try_from(had).map_err(|_| io::Error::last_os_error())
}

/// Which of `events` are pending on a descriptor, without waiting.
pub(super) fn ready(fd: BorrowedFd<'_>, events: i16) -> io::Result<i16> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one live element.
    check(unsafe { libc::poll(&raw mut poll, 1, 0) })?;
    Ok(poll.revents)
}

/// An interface request for `name`, with all other fields zero.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all bytes zero is a valid request.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "interface names have 1..=15 bytes",
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

/// Opens /dev/net/tun, non-blocking and attached to no device yet.
pub(super) fn open_tun() -> io::Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")
}

/// Attaches a descriptor of /dev/net/tun to the tap `name`, without packet information; creates the tap if there is
/// none.
pub(super) fn attach_tap(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).unwrap_or_default();
    ioctl(fd, libc::TUNSETIFF, &mut request)?;
    // SAFETY: this call takes a number, not a pointer.
    // Offloads off: the host's stack then hands over whole frames with complete checksums. A tap that exists may have
    // them on.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, 0) }).map(drop)
}

/// Attaches a descriptor of /dev/net/tun to a new tap without carrier. Its frames have a virtio-net header of
/// `header_len` bytes in front and may be super-frames of tunnels. Returns its name, `weft-out` and a number.
pub(super) fn attach_tunnel_tap(fd: BorrowedFd<'_>, header_len: usize) -> io::Result<String> {
    /// `TUN_F_UDP_TUNNEL_GSO` and `TUN_F_UDP_TUNNEL_GSO_CSUM` (Linux 6.17).
    const TUNNELS: libc::c_uint = 0x80 | 0x100;
    let offloads = TUNNELS | libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // The kernel puts the first free number for `%d` and writes the name back into the request.
    let mut request = request("weft-out%d")?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_NO_CARRIER;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).unwrap_or_default();
    ioctl(fd, libc::TUNSETIFF, &mut request)?;
    let header_len = libc::c_int::try_from(header_len).unwrap_or(0);
    // SAFETY: this call reads one number, which is live.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header_len) })?;
    // SAFETY: this call takes a number, not a pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) })?;
    let name = request.ifr_name.iter().map(|&byte| char::from(byte.cast_unsigned()));
    Ok(name.take_while(|&letter| letter != '\0').collect())
}

/// The ifindex of an interface; `fd` is any socket.
pub(super) fn index(fd: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    ioctl(fd, libc::SIOCGIFINDEX as libc::Ioctl, &mut request)?;
    // SAFETY: the call above filled this member in.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    u32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

/// Whether an interface of this name exists; `fd` is any socket.
pub(super) fn exists(fd: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    match index(fd, name) {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Sets an interface's MTU; `fd` is any socket.
pub(super) fn set_mtu(fd: BorrowedFd<'_>, name: &str, mtu: i32) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu = mtu;
    ioctl(fd, libc::SIOCSIFMTU as libc::Ioctl, &mut request)
}

/// Sets an interface up; `fd` is any socket.
pub(super) fn set_up(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    ioctl(fd, libc::SIOCGIFFLAGS as libc::Ioctl, &mut request)?;
    // SAFETY: the call above filled this member in.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    // The next call sets all flags, so those that the interface has go along.
    request.ifr_ifru.ifru_flags = flags | i16::try_from(libc::IFF_UP).unwrap_or_default();
    ioctl(fd, libc::SIOCSIFFLAGS as libc::Ioctl, &mut request)
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

/// Queue counts of an interface; `fd` is any socket.
pub(super) fn channels(fd: BorrowedFd<'_>, name: &str) -> io::Result<Channels> {
    let mut channels = Channels { command: 0x3C, ..Channels::default() }; // ETHTOOL_GCHANNELS
    ethtool(fd, name, &mut channels)?;
    Ok(channels)
}

/// `struct ethtool_drvinfo`: names end with a zero byte.
#[repr(C)]
pub(super) struct DriverInfo {
    command: u32,
    pub driver: [u8; 32],
    versions: [u8; 64],
    /// Address of the device on its bus; empty for most software devices.
    pub bus: [u8; 32],
    rest: [u8; 64],
}

/// Driver of an interface; `fd` is any socket.
pub(super) fn driver_info(fd: BorrowedFd<'_>, name: &str) -> io::Result<DriverInfo> {
    let mut info = DriverInfo {
        command: 0x03, // ETHTOOL_GDRVINFO
        driver: [0; 32],
        versions: [0; 64],
        bus: [0; 32],
        rest: [0; 64],
    };
    ethtool(fd, name, &mut info)?;
    Ok(info)
}

/// Answer to an ethtool command that returns one number; `fd` is any socket.
pub(super) fn ethtool_value(fd: BorrowedFd<'_>, name: &str, command: u32) -> io::Result<u32> {
    let mut value = [command, 0];
    ethtool(fd, name, &mut value)?;
    Ok(value[1])
}

#[cfg(test)]
mod tests {
    use super::*;

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
