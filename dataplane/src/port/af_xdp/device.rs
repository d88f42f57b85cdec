//! The interface of an `AF_XDP` port while it exists: its sockets, its XDP program, and the guard that keeps the host's
//! stack off it.
//!
//! [`Hold::take`] attaches program and guard, [`Device::open`] opens the sockets. Dropping closes guard and sockets;
//! the port detaches the program.
//!
//! Source: docs/spec/pipeline.md §11.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::queue::{Plan, Queue};
use super::steering::{Attach, Steering, Target};
use super::umem::{CopyMode, Umem};
use super::{AfXdpConfig, AttachTo, sys};
use crate::port::error::{Refused, at};
use crate::port::gauge::{RxGauge, Shown};
use crate::port::link::HostGuard;
use crate::port::netdev::{self, Features};
use crate::port::sys as socket;

/// What to open: settings, memory and interface.
pub(super) struct Wish<'a> {
    pub config: &'a AfXdpConfig,
    pub umem: &'a Arc<Umem>,
    pub gauge: &'a RxGauge,
    pub index: i32,
}

impl Wish<'_> {
    /// Number of queues to receive from.
    fn queues(&self) -> usize {
        self.config.queues.unwrap_or_else(|| netdev::rx_queues(&self.config.device)).min(64)
    }
}

/// An interface with our program attached and the host's stack kept off.
pub(super) struct Hold {
    pub index: i32,
    target: Target,
    how: Attach,
    features: Features,
    /// Open so that the interface stays promiscuous and frames to other stations are received.
    _promiscuous: OwnedFd,
    /// Keeps the host's stack off while no program is attached; `None` if the kernel lacks nftables' netdev tables.
    _guard: Option<HostGuard>,
}

/// Sockets of all queues, and one descriptor to wait for all of them if there are several.
pub(super) type Sockets = (Vec<Queue>, Option<OwnedFd>);

/// An interface with a socket at each queue; the first socket also sends.
pub(super) struct Device {
    // Dropped before the queues, whose rings it lets other threads read.
    shown: Shown,
    // Dropped before `hold`, whose guard keeps frames off the host while the sockets close.
    pub queues: Vec<Queue>,
    /// Waits for all sockets at once; `None` if there is only one.
    all: Option<OwnedFd>,
    pub hold: Hold,
}

const ATTACH: &str = "attach the XDP program";
const IN_DRIVER: &str = "run XDP in the driver";

/// The usual cause of a refusal, for the user; empty if there is none.
pub(super) fn hint(call: &str, error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => " (needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW)",
        // The pool is locked memory, which RLIMIT_MEMLOCK bounds for others.
        Some(libc::ENOBUFS) => " (without CAP_IPC_LOCK it needs a larger `ulimit -l`)",
        Some(libc::EEXIST | libc::EBUSY) if call == ATTACH => {
            " (another XDP program is attached; `ip link show` names it)"
        }
        Some(libc::EEXIST) => " (it is already a port of a running switch)",
        Some(libc::EBUSY) => " (another socket has the queue)",
        Some(libc::EOPNOTSUPP) => " (the driver has no XDP)",
        Some(libc::ERANGE | libc::EINVAL) if call == ATTACH => {
            " (its MTU, or that of a veth's peer, may be too long for XDP)"
        }
        Some(libc::EAFNOSUPPORT | libc::ENOSYS) => " (this kernel has no AF_XDP)",
        _ => "",
    }
}

impl Hold {
    /// Takes the interface. Its frames are dropped until it has sockets.
    pub(super) fn take(wish: &Wish<'_>, steering: &mut dyn Steering) -> Result<Self, Refused> {
        let Wish { config, index, .. } = *wish;
        // First, because it is also the lock by which a second switch is refused. A kernel without such tables gives
        // other errors; then the program alone keeps the host off.
        let guard = match HostGuard::open(&config.device) {
            Ok(guard) => Some(guard),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EEXIST | libc::EPERM)) => {
                return Err(Refused { call: "keep the host out (nftables netdev)", source: e });
            }
            Err(_) => None,
        };
        let promiscuous = socket::promiscuous(index).map_err(at("set promiscuous"))?;
        // An older kernel does not tell the driver's features; native mode is then tried and may fail.
        let features = netdev::features(index).ok();
        let native = features.is_none_or(Features::has_native_xdp);
        let how = match config.attach {
            AttachTo::Native | AttachTo::Any if native => Attach::Native,
            AttachTo::Native => {
                let source = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
                return Err(Refused { call: IN_DRIVER, source });
            }
            AttachTo::Any | AttachTo::Generic => Attach::Generic,
        };
        let features = features.unwrap_or_default();
        let has = netdev::rx_queues(&config.device);
        let target = Target {
            index: index.cast_unsigned(),
            queues: u32::try_from(wish.queues().max(has)).unwrap_or(u32::MAX),
            shows_tags: features.shows_tags(),
            is_veth: netdev::is_veth(&config.device),
        };
        steering.attach(target, how).map_err(at(ATTACH))?;
        Ok(Self { index, target, how, features, _promiscuous: promiscuous, _guard: guard })
    }
}

impl Device {
    /// Opens the sockets of an interface; returns `hold` if that fails. Sockets receive after [`Self::set_sockets`].
    pub(super) fn open(wish: &Wish<'_>, hold: Hold) -> Result<Self, (Refused, Hold)> {
        match open_queues(wish, &hold) {
            Ok((queues, all)) => {
                let rings = queues.iter().map(|queue| queue.rx.gauged(queue.posted_max)).collect();
                // SAFETY: the device drops it before the queues.
                let shown = unsafe { wish.gauge.show(rings) };
                Ok(Self { shown, queues, all, hold })
            }
            Err(refused) => Err((refused, hold)),
        }
    }

    /// Splits off the sockets, to be closed; program and guard stay in place.
    pub(super) fn part(self) -> (Sockets, Hold) {
        drop(self.shown);
        ((self.queues, self.all), self.hold)
    }

    /// Attaches the program again, after it was removed.
    pub(super) fn steer(&self, steering: &mut dyn Steering) -> Result<(), Refused> {
        steering.attach(self.hold.target, self.hold.how).map_err(at(ATTACH))?;
        self.set_sockets(steering)
    }

    /// Has the program hand frames to the sockets.
    pub(super) fn set_sockets(&self, steering: &mut dyn Steering) -> Result<(), Refused> {
        for (number, queue) in (0..).zip(&self.queues) {
            steering
                .set_socket(number, queue.socket.as_fd())
                .map_err(at("hand the socket to the XDP program"))?;
        }
        Ok(())
    }

    /// The queue that also sends.
    pub(super) fn sender(&mut self) -> &mut Queue {
        self.queues.first_mut().expect("a device has a queue")
    }

    fn first(&self) -> &Queue {
        self.queues.first().expect("a device has a queue")
    }

    /// Whether frames are sent without a copy.
    pub(super) fn is_zero_copy(&self) -> bool {
        self.first().member.mode == CopyMode::Zero
    }

    /// Whether the kernel or the device completes a partial checksum.
    pub(super) fn completes_checksums(&self) -> bool {
        // In copy mode the kernel builds an skb, and completes the checksum itself if the driver cannot.
        let copies = !self.is_zero_copy();
        self.first().member.tx_metadata && (copies || self.hold.features.completes_checksums())
    }

    /// Frames in the transmit ring that the kernel has not taken yet.
    pub(super) fn unsent(&self) -> u32 {
        self.first().tx.as_ref().map_or(0, super::rings::Producer::waiting)
    }

    pub(super) fn wait_fd(&self) -> BorrowedFd<'_> {
        self.all.as_ref().map_or(self.first().socket.as_fd(), AsFd::as_fd)
    }

    pub(super) fn describe(&self) -> String {
        let how = if self.hold.how == Attach::Native { "native" } else { "generic" };
        let copy = if self.is_zero_copy() { "zero-copy" } else { "copy" };
        let (ours, all) = (self.queues.len(), self.hold.target.queues as usize);
        let several = match (ours, all) {
            (1, 1) => String::new(),
            _ if ours == all => format!(", {ours} queues"),
            _ => format!(", {ours} of {all} queues; frames of the others are dropped"),
        };
        format!("{how}, {copy}{several}")
    }
}

/// Opens a socket at each queue.
fn open_queues(wish: &Wish<'_>, hold: &Hold) -> Result<Sockets, Refused> {
    let Wish { config, umem, .. } = *wish;
    let zero_copy = config.zero_copy
        && hold.how == Attach::Native
        && hold.features.has_zero_copy()
        && umem.pool().has_huge_pages();
    let opened = (0..wish.queues()).map(|queue| {
        let plan = |mode| Plan {
            ifindex: hold.target.index,
            queue: u32::try_from(queue).unwrap_or(u32::MAX),
            posted_max: u32::try_from(config.rx_ring_frames).unwrap_or(1 << 16),
            sends: queue == 0,
            mode,
            busy_poll_us: (config.busy_poll_us > 0)
                .then(|| i32::try_from(config.busy_poll_us).unwrap_or(i32::MAX)),
        };
        // The driver may still refuse zero copy for a queue; copy mode always works.
        if zero_copy && let Ok(queue) = Queue::open(umem, &plan(CopyMode::Zero)) {
            return Ok(queue);
        }
        Queue::open(umem, &plan(CopyMode::Copy))
    });
    let queues = opened.collect::<Result<Vec<Queue>, Refused>>()?;
    let sockets: Vec<BorrowedFd<'_>> = queues.iter().map(|q| q.socket.as_fd()).collect();
    let all = match sockets.as_slice() {
        [_] => None,
        several => Some(sys::wait_for_any(several).map_err(at("wait for several queues"))?),
    };
    Ok((queues, all))
}
