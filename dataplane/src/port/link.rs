//! Netlink: follows an interface's link state, and keeps the host's own stack off the interface.
//!
//! [`LinkWatch`] follows one name through `RTM_NEWLINK` and `RTM_DELLINK`; [`HostGuard`] is an nftables table of ours.
//! Written by hand: netlink-packet-route has no nftables, and for the two remaining message kinds its dependencies are
//! too much.
//!
//! Source: rtnetlink(7); Linux `include/uapi/linux/netfilter/nf_tables.h` (5.12 and later).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::error::Refused;
use super::{PortOpenError, sys};

const HEAD: usize = 16; // nlmsghdr
pub(super) const INFO_GENERIC: usize = 4; // genlmsghdr
const INFO: usize = 16; // ifinfomsg
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINK_NETNSID: u16 = 37;
const ARPHRD_ETHER: u16 = 1;
pub(super) const REQUEST: u16 = 0x01;
const ACK: u16 = 0x04;
const EXCL_CREATE: u16 = 0x600;
const NESTED: u16 = 0x8000;

/// Builds netlink messages one after the other.
#[derive(Default)]
pub(super) struct Messages(pub Vec<u8>);

impl Messages {
    /// Appends a message: type, flags and sequence number, then the bytes that `body` appends.
    pub(super) fn message(
        &mut self,
        kind: u16,
        flags: u16,
        seq: u32,
        body: impl FnOnce(&mut Self),
    ) {
        let at = self.0.len();
        self.0.extend([0; 4]);
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(flags.to_ne_bytes());
        self.0.extend(seq.to_ne_bytes());
        self.0.extend([0; 4]);
        body(self);
        let len = u32::try_from(self.0.len() - at).unwrap_or(0).to_ne_bytes();
        self.put(at, &len);
    }

    /// Appends an attribute, padded to a multiple of four.
    pub(super) fn attribute(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let at = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        body(self);
        let len = u16::try_from(self.0.len() - at).unwrap_or(0).to_ne_bytes();
        self.put(at, &len);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    pub(super) fn string(&mut self, kind: u16, text: &str) {
        self.attribute(kind, |m| {
            m.0.extend(text.as_bytes());
            m.0.push(0);
        });
    }

    pub(super) fn be32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, |m| m.0.extend(value.to_be_bytes()));
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(to) = self.0.get_mut(at..at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }
}

pub(super) fn ne16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

pub(super) fn ne32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

pub(super) fn ne64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b))
}

/// Calls `each` with the type and body of every whole message in `bytes`.
pub(super) fn for_each_message(mut bytes: &[u8], mut each: impl FnMut(u16, &[u8])) {
    while let (Some(len), Some(kind)) = (ne32(bytes, 0), ne16(bytes, 4)) {
        let len = len as usize;
        let Some(body) = bytes.get(HEAD..len) else { return };
        each(kind, body);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Value of the first attribute of `kind`.
pub(super) fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    while let (Some(len), Some(found)) = (ne16(bytes, 0), ne16(bytes, 2)) {
        let len = usize::from(len);
        let value = bytes.get(4..len)?;
        // The top two bits are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
        if found & 0x3FFF == kind {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// Follows one interface by its name.
pub(super) struct LinkWatch {
    socket: OwnedFd,
    name: String,
    /// The request for the interface's state, built once: `ask` runs in the worker, which must not allocate.
    question: Vec<u8>,
    buffer: Vec<u8>,
    state: LinkState,
}

/// Last known state of the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkState {
    /// Its ifindex; `None` while no interface has this name.
    pub index: Option<i32>,
    /// Whether it is administratively up and has a carrier.
    pub up: bool,
    pub ethernet: bool,
    /// Its MTU in bytes; 0 while it is not known.
    pub mtu: usize,
    /// Ifindex of the interface below it, or of its other end, if that one is in the same namespace.
    pub link: Option<i32>,
}

impl LinkWatch {
    /// Starts to follow `name` in the network namespace of the calling thread.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        sys::bind_netlink(socket.as_fd(), libc::RTMGRP_LINK.cast_unsigned())?;
        let mut question = Messages::default();
        question.message(libc::RTM_GETLINK, REQUEST, 1, |m| {
            m.0.extend([0; INFO]);
            m.string(IFLA_IFNAME, name);
        });
        let mut watch = Self {
            socket,
            name: name.to_owned(),
            question: question.0,
            buffer: vec![0; 32 << 10],
            state: LinkState::default(),
        };
        watch.ask()?;
        watch.poll()?;
        Ok(watch)
    }

    /// Starts to follow `device`, which must exist and be Ethernet; also returns its ifindex.
    ///
    /// # Errors
    /// There is no such interface, it is not Ethernet, or a call was refused.
    pub(super) fn of_ethernet(device: &str) -> Result<(Self, i32), PortOpenError> {
        let refused =
            |call, source, hint| PortOpenError::refused(device, Refused { call, source }, hint);
        let code = io::Error::from_raw_os_error;
        let watch = Self::open(device).map_err(|e| refused("follow the link", e, ""))?;
        let Some(index) = watch.state.index else {
            return Err(refused("find the interface", code(libc::ENODEV), ""));
        };
        if !watch.state.ethernet {
            let hint = " (it is not Ethernet)";
            return Err(refused("use the interface", code(libc::EPROTOTYPE), hint));
        }
        Ok((watch, index))
    }

    /// A descriptor that is readable when the link's state has changed.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// State of the link at the last [`Self::poll`].
    pub(super) const fn state(&self) -> LinkState {
        self.state
    }

    /// Treats the link as down until the kernel's next message.
    pub(super) const fn suspect(&mut self) {
        self.state.up = false;
    }

    /// Requests the present state. The kernel answers within this call, so the next [`Self::poll`] reads it.
    pub(super) fn ask(&self) -> io::Result<()> {
        sys::send(self.socket.as_fd(), &self.question)
    }

    /// Reads the kernel's messages, without waiting.
    pub(super) fn poll(&mut self) -> io::Result<LinkState> {
        // Bounded: the worker has other ports to serve, however many links of the machine change.
        for _ in 0..64 {
            match sys::recv(self.socket.as_fd(), &mut self.buffer) {
                Ok(len) => {
                    let bytes = self.buffer.get(..len).unwrap_or_default();
                    let (state, name) = (&mut self.state, self.name.as_bytes());
                    for_each_message(bytes, |kind, body| apply_message(state, name, kind, body));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                // The socket's buffer overflowed and messages were lost: request the whole state.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => self.ask()?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(self.state)
    }
}

/// Applies one message of the kernel to the state.
fn apply_message(state: &mut LinkState, name: &[u8], kind: u16, body: &[u8]) {
    if i32::from(kind) == libc::NLMSG_ERROR {
        *state = LinkState::default(); // our question: no such interface
        return;
    }
    let (Some(&family), Some(index), Some(flags)) = (body.first(), ne32(body, 4), ne32(body, 8))
    else {
        return;
    };
    if family != 0 {
        return; // a bridge's view of a port
    }
    let index = Some(index.cast_signed());
    let attributes = body.get(INFO..).unwrap_or_default();
    // A name can change, so both are compared: the name says which interface is ours, the index says what happens to
    // it.
    let same_name = attribute(attributes, IFLA_IFNAME)
        .is_some_and(|n| n.strip_suffix(&[0]).unwrap_or(n) == name);
    if kind == libc::RTM_NEWLINK && same_name {
        let want = (libc::IFF_UP | libc::IFF_LOWER_UP).cast_unsigned();
        let ethernet = ne16(body, 2) == Some(ARPHRD_ETHER);
        let mtu = attribute(attributes, IFLA_MTU).and_then(|m| ne32(m, 0)).unwrap_or(0) as usize;
        let elsewhere = attribute(attributes, IFLA_LINK_NETNSID).is_some();
        let link = attribute(attributes, IFLA_LINK).and_then(|m| ne32(m, 0));
        let link = link.filter(|&link| link != 0 && !elsewhere).map(u32::cast_signed);
        *state = LinkState { index, up: flags & want == want, ethernet, mtu, link };
    } else if matches!(kind, libc::RTM_NEWLINK | libc::RTM_DELLINK) && state.index == index {
        *state = LinkState::default(); // renamed, removed, or moved to another namespace
    }
}

/// Keeps the host's stack off an interface until it is dropped: an nftables chain at its ingress drops all frames.
/// Packet sockets come before that chain and still see every frame.
///
/// The table is owned by our socket. The kernel removes it when the socket closes, also when the process is killed, so
/// no table is ever left behind. (tc on clsact would need `cls_matchall` and `act_gact`, which many kernels lack, or a
/// right to load BPF, which a user namespace does not give.)
pub(super) struct HostGuard {
    socket: OwnedFd,
    /// Messages that delete the table.
    removal: Vec<u8>,
}

const NFT_NEWTABLE: u16 = 10 << 8;
const NFT_DELTABLE: u16 = 10 << 8 | 2;
const NFT_NEWCHAIN: u16 = 10 << 8 | 3;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const FAMILY_NETDEV: u8 = 5;
const TABLE_OWNER: u32 = 2;

/// Messages for a table with one chain at the device's ingress whose policy is to drop.
fn guard_messages(device: &str) -> Vec<u8> {
    let table = format!("weft-{device}");
    let mut messages = Messages::default();
    messages.message(BATCH_BEGIN, REQUEST, 1, |m| m.0.extend([0, 0, 0, 10]));
    messages.message(NFT_NEWTABLE, REQUEST | ACK | EXCL_CREATE, 2, |m| {
        m.0.extend([FAMILY_NETDEV, 0, 0, 0]);
        m.string(1, &table);
        m.be32(2, TABLE_OWNER);
    });
    messages.message(NFT_NEWCHAIN, REQUEST | ACK | EXCL_CREATE, 3, |m| {
        m.0.extend([FAMILY_NETDEV, 0, 0, 0]);
        m.string(1, &table);
        m.string(3, "ingress");
        m.attribute(4 | NESTED, |m| {
            m.be32(1, 0); // hook: ingress
            m.be32(2, i32::MIN.cast_unsigned()); // before all others
            m.string(3, device);
        });
        m.be32(5, 0); // policy: drop
        m.string(7, "filter");
    });
    messages.message(BATCH_END, REQUEST, 4, |m| m.0.extend([0, 0, 0, 10]));
    messages.0
}

fn removal_messages(device: &str) -> Vec<u8> {
    let mut messages = Messages::default();
    messages.message(BATCH_BEGIN, REQUEST, 5, |m| m.0.extend([0, 0, 0, 10]));
    messages.message(NFT_DELTABLE, REQUEST, 6, |m| {
        m.0.extend([FAMILY_NETDEV, 0, 0, 0]);
        m.string(1, &format!("weft-{device}"));
    });
    messages.message(BATCH_END, REQUEST, 7, |m| m.0.extend([0, 0, 0, 10]));
    messages.0
}

impl Drop for HostGuard {
    fn drop(&mut self) {
        // Delete the table now: a child process between fork and exec may still hold a copy of the socket. If this
        // fails, the kernel deletes the table when the last copy is closed.
        drop(sys::send(self.socket.as_fd(), &self.removal));
    }
}

impl HostGuard {
    /// Starts to drop the frames that the host would receive by `device`.
    ///
    /// # Errors
    /// `AlreadyExists` if another process has made the interface its port; else the kernel's answer.
    pub(super) fn open(device: &str) -> io::Result<Self> {
        let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER)?;
        sys::bind_netlink(socket.as_fd(), 0)?;
        sys::send(socket.as_fd(), &guard_messages(device))?;
        let mut buffer = [0; 8 << 10];
        let (mut answers, mut error) = (0, None);
        // One ACK for the table and one for the chain; a batch that fails is undone as a whole.
        while answers < 2 && error.is_none() {
            let len = sys::recv(socket.as_fd(), &mut buffer)?; // answers are there by now
            for_each_message(buffer.get(..len).unwrap_or_default(), |kind, body| {
                if i32::from(kind) == libc::NLMSG_ERROR {
                    answers += 1;
                    let code = ne32(body, 0).unwrap_or(0).cast_signed();
                    error = error.or((code != 0).then_some(code.wrapping_neg()));
                }
            });
        }
        match error {
            None => Ok(Self { socket, removal: removal_messages(device) }),
            // EPERM means that the table has another owner, or that CAP_NET_ADMIN is missing; only a look tells which.
            Some(libc::EEXIST | libc::EPERM) if exists(device) => {
                Err(io::Error::from_raw_os_error(libc::EEXIST))
            }
            Some(code) => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Whether a guard of this device exists.
fn exists(device: &str) -> bool {
    let ask = || {
        let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER)?;
        sys::bind_netlink(socket.as_fd(), 0)?;
        let mut messages = Messages::default();
        messages.message(NFT_NEWTABLE | 1, REQUEST, 1, |m| {
            m.0.extend([FAMILY_NETDEV, 0, 0, 0]);
            m.string(1, &format!("weft-{device}"));
        });
        sys::send(socket.as_fd(), &messages.0)?;
        let mut buffer = [0; 4 << 10];
        let len = sys::recv(socket.as_fd(), &mut buffer)?;
        let mut found = false;
        for_each_message(buffer.get(..len).unwrap_or_default(), |kind, _| {
            found |= kind == NFT_NEWTABLE;
        });
        io::Result::Ok(found)
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(kind: u16, family: u8, index: i32, flags: i32, name: &str) -> Vec<u8> {
        let mut m = Messages::default();
        m.message(kind, 0, 0, |m| {
            m.0.extend([family, 0]);
            m.0.extend(ARPHRD_ETHER.to_ne_bytes());
            m.0.extend(index.to_ne_bytes());
            m.0.extend(flags.to_ne_bytes());
            m.0.extend([0; 4]);
            m.attribute(13, |m| m.0.extend([1, 2, 3]));
            m.attribute(IFLA_MTU, |m| m.0.extend(1_500_u32.to_ne_bytes()));
            m.string(IFLA_IFNAME, name);
        });
        m.0
    }

    #[test]
    fn an_interface_is_followed_by_its_name() {
        const UP: i32 = libc::IFF_UP | libc::IFF_LOWER_UP;
        let (new, del) = (libc::RTM_NEWLINK, libc::RTM_DELLINK);
        #[rustfmt::skip] // columns: name, message, index and up after it
        let steps = [
            ("another",        link(new, 0, 6, UP, "veth00"),          (None, false)),
            ("no carrier",     link(new, 0, 7, libc::IFF_UP, "veth0"), (Some(7), false)),
            ("carrier",        link(new, 0, 7, UP, "veth0"),           (Some(7), true)),
            ("other removed",  link(del, 0, 6, UP, "veth00"),          (Some(7), true)),
            ("left a bridge",  link(del, 7, 7, UP, "veth0"),           (Some(7), true)),
            ("removed",        link(del, 0, 7, UP, "veth0"),           (None, false)),
            ("back",           link(new, 0, 9, UP, "veth0"),           (Some(9), true)),
            ("renamed",        link(new, 0, 9, UP, "wan"),             (None, false)),
        ];
        let mut state = LinkState::default();
        for (name, bytes, want) in steps {
            for_each_message(&bytes, |kind, body| apply_message(&mut state, b"veth0", kind, body));
            assert_eq!((state.index, state.up), want, "{name}");
            assert_eq!(state.mtu, if state.index.is_some() { 1_500 } else { 0 }, "{name}");
        }
    }

    #[test]
    fn the_other_end_counts_in_the_own_namespace_only() {
        #[rustfmt::skip] // columns: name, IFLA_LINK, IFLA_LINK_NETNSID, link
        let cases = [
            ("none",            None,    None,    None),
            ("of a veth here",  Some(8), None,    Some(8)),
            ("of a veth there", Some(8), Some(0), None),
            ("a tunnel",        Some(0), None,    None),
        ];
        for (name, other, elsewhere, want) in cases {
            let mut m = Messages(link(libc::RTM_NEWLINK, 0, 7, 0, "veth0"));
            if let Some(other) = other {
                m.attribute(IFLA_LINK, |m| m.0.extend(i32::to_ne_bytes(other)));
            }
            if let Some(id) = elsewhere {
                m.attribute(IFLA_LINK_NETNSID, |m| m.0.extend(i32::to_ne_bytes(id)));
            }
            let len = u32::try_from(m.0.len()).unwrap().to_ne_bytes();
            m.put(0, &len);
            let mut state = LinkState::default();
            for_each_message(&m.0, |kind, body| apply_message(&mut state, b"veth0", kind, body));
            assert_eq!(state.link, want, "{name}");
        }
    }

    #[test]
    fn cut_messages_are_passed_over() {
        let bytes = link(libc::RTM_NEWLINK, 0, 7, 1, "veth0");
        for len in 0..bytes.len() {
            for_each_message(&bytes[..len], |_, _| panic!("not whole at {len}"));
        }
        let body = &bytes[HEAD..];
        for len in 0..body.len() - 4 {
            let mut state = LinkState::default();
            apply_message(&mut state, b"veth0", libc::RTM_NEWLINK, &body[..len]);
            assert_eq!(state, LinkState::default(), "{len}");
        }
        for_each_message(&[0; 64], |_, _| panic!("a length of 0 is no message"));
        assert_eq!(attribute(&[0; 64], 1), None);
    }
}
