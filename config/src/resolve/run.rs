//! The process around the switch: threads, devices, management.
//!
//! A [`RunConfig`] has one [`RunPort`] for each port, the CPU port included.
//!
//! Source: docs/spec/pipeline.md §11 and §12; ARCHITECTURE.md "The path of a frame".

use std::net::SocketAddr;
use std::path::PathBuf;

use weft_base::files::Existing;
use weft_base::priority::Priority;
use weft_base::processors;
use weft_dataplane::port::af_xdp::AttachTo;
use weft_dataplane::time::Span;
use weft_parsers::MacAddr;

use super::{CPU_PORT, Item, Problem, Resolver, Value, to_usize};
use crate::Timing;
use crate::choice::{DeviceKind, ForwardingMode, LogFormat, LogLevel, Poll};
use crate::places::listen_addr;
use crate::table::key;

/// Frames that a receive ring holds unless it is set: those that arrive within a millisecond or two while the worker
/// does not run, at the speed of a software switch.
const RX_RING_FRAMES: usize = 2_048;
/// Frames of them that headroom covers where the buffer is too small to cover all.
const RX_RING_FRAMES_COVERED: usize = 512;

/// Frames that may wait at each end of the CPU port's pipe.
pub const PIPE_FRAMES: usize = 256;

/// The device of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPort {
    pub name: String,
    pub kind: DeviceKind,
    /// Name of the interface, tap or file, or DPDK's name of the device.
    pub device: String,
    /// The port's address, if it is set; `None` for that of the device.
    pub mac: Option<MacAddr>,
    /// Frames that may wait in the kernel, or in each receive queue.
    pub rx_ring_frames: usize,
    /// Number of them that headroom covers; may be fewer.
    pub covered_frames: usize,
    /// Treatment of an existing file, for ports that write one.
    pub existing: Existing,
    /// Receive queues of a DPDK device.
    pub dpdk_queues: usize,
    /// Frames that a DPDK device may hold until they are sent.
    pub dpdk_tx_descriptors: usize,
    /// Settings of `AF_XDP`; without effect at other kinds.
    pub xdp: XdpConfig,
    /// Number of frames dropped at random of a million received, and the seed; `None` for no loss.
    pub loss: Option<(u32, u64)>,
}

/// Settings of `AF_XDP` at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// Queues that are received from; `None` for all that the interface has.
    pub queues: Option<usize>,
    /// Hook at which the XDP program runs.
    pub attach: AttachTo,
    /// Whether frames go without a copy between device and pool, where the driver allows that.
    pub zero_copy: bool,
    /// Microseconds for which a call polls the queues; 0 for interrupts.
    pub busy_poll_us: u32,
}

/// Configuration of the process around the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// Name of the switch; its folder for sockets has the same one.
    pub name: String,
    pub workers: usize,
    /// Processors that workers are bound to, in order; empty for any.
    pub cores: Vec<usize>,
    /// Scheduling priority of workers; `None` for that of the process.
    pub priority: Option<Priority>,
    /// Whether a guard pauses the peers of lossless ports while their worker does not run.
    pub pause_guard: bool,
    pub poll: Poll,
    /// Arguments of DPDK's environment abstraction layer (EAL).
    pub eal_args: Vec<String>,
    /// Whether the kernel may forward frames past the workers.
    pub express: bool,
    /// Path of the management socket.
    pub socket: PathBuf,
    /// User, or user and group, that the process changes to at its start; `None` to stay.
    pub user: Option<String>,
    /// Whether the process gives up the privileges that it does not need.
    pub sandbox: bool,
    /// Address of the metrics server; `None` for none.
    pub metrics: Option<SocketAddr>,
    /// Address of the SAI service; `None` for none.
    pub sai: Option<SocketAddr>,
    /// Least level of messages.
    pub log: LogLevel,
    /// Text, or JSON.
    pub log_format: LogFormat,
    /// Times that a frame takes beside queueing, in virtual time.
    pub in_virtual_time: InVirtualTime,
    /// Longest frame that the pool's chunks hold, without FCS.
    pub frame_len_max: usize,
    /// Devices, by port number.
    pub ports: Vec<RunPort>,
}

/// Times that a frame takes beside queueing, in virtual time; live they do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InVirtualTime {
    /// From its last received bit to the crossbar.
    pub fixed_latency: Span,
    /// Whether a frame is forwarded once its header has been received.
    pub cut_through: bool,
    /// Whether preamble, gap and the least size of a frame take time on the wire.
    pub wire_overhead: bool,
}

/// The folder in which each switch of this user has a folder for its sockets.
#[must_use]
pub fn sockets_dir() -> PathBuf {
    // Commands find running switches by the same rule.
    let user = rustix::process::geteuid();
    if user.is_root() {
        return PathBuf::from("/run/weft");
    }
    // An empty variable counts as unset (XDG Base Directory Specification).
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir).join("weft"),
        None => PathBuf::from(format!("/tmp/weft-{}", user.as_raw())),
    }
}

/// Default path of the management socket of the switch called `name`.
#[must_use]
pub fn default_socket(name: &str) -> PathBuf {
    sockets_dir().join(name).join("mgmt.sock")
}

impl Resolver<'_> {
    pub(super) fn run(&mut self) -> RunConfig {
        let name = self.text(key!("switch", "name")).unwrap_or_default();
        let socket = match self.text(key!("run", "socket")) {
            Some(socket) => PathBuf::from(socket),
            None => default_socket(&name),
        };
        let shown = Value::Text(socket.display().to_string());
        self.derived.insert(key!("run", "socket").slot(0), shown);
        let workers = to_usize(self.int(key!("run", "workers")).unwrap_or(1));
        let cores = self.cores(workers);
        let priority = self.priority();
        let in_virtual_time = self.in_virtual_time();
        let ports = self.settings.items("port");
        // A port belongs to one worker: the others would have nothing to do.
        if workers > ports.len().max(1) {
            let place = self.place(key!("run", "workers"));
            let message =
                format!("expected at most one worker a port, found {workers} for {}", ports.len());
            self.refuse(place, "run.workers", message);
        }
        RunConfig {
            workers,
            cores,
            priority,
            pause_guard: self.get(key!("run", "pause_guard")) != Some(Value::Bool(false)),
            poll: self.choice(key!("run", "poll")),
            eal_args: self.texts(key!("dpdk", "eal_args")),
            express: self.get(key!("express", "enabled")) != Some(Value::Bool(false)),
            socket,
            user: self.run_user(),
            sandbox: self.get(key!("run", "sandbox")) != Some(Value::Bool(false)),
            metrics: self.text(key!("run", "metrics")).and_then(|text| listen_addr(&text)),
            sai: self.text(key!("sai", "listen")).and_then(|text| listen_addr(&text)),
            log: self.choice(key!("run", "log")),
            log_format: self.choice(key!("run", "log_format")),
            in_virtual_time,
            frame_len_max: to_usize(self.int(key!("switch", "max_frame")).unwrap_or(1_522)),
            ports: self.run_ports(),
            name,
        }
    }

    /// A processor for each of `workers` workers, if any are named.
    fn cores(&mut self, workers: usize) -> Vec<usize> {
        let set = self.get(key!("run", "cores"));
        let members = set.iter().flat_map(Value::members);
        let cores: Vec<usize> =
            members.filter_map(|core| usize::try_from(core.as_int()?).ok()).collect();
        let place = self.place(key!("run", "cores"));
        if !cores.is_empty() && cores.len() < workers {
            let message =
                format!("expected a core for each of {workers} workers, found {}", cores.len());
            self.refuse(place.clone(), "run.cores", message);
        }
        if let Some(core) = processors::repeated(&cores) {
            let message = format!(
                "expected each core once, found {core} twice: of two workers on one core each is away while the other runs"
            );
            self.refuse(place, "run.cores", message);
        } else if cores.len() > workers {
            let message = format!(
                "expected one core for each of {workers} workers, found {}: the last ones are not used",
                cores.len()
            );
            self.warnings.push(Problem { place, key: "run.cores".to_owned(), message });
        }
        cores
    }

    /// Scheduling priority of workers, if it is set.
    fn priority(&mut self) -> Option<Priority> {
        let set = self.get(key!("run", "priority"))?;
        if let Some(nice) = set.as_int() {
            return i32::try_from(nice).ok().map(Priority::Nice);
        }
        if self.choice::<Poll>(key!("run", "poll")) == Poll::Busy {
            let place = self.place(key!("run", "priority"));
            let message = "expected a nice value with run.poll = \"busy\", found \"rr\": the kernel stops a thread of that policy which never sleeps, for 50 ms each second, and before that nothing else runs on its core";
            self.refuse(place, "run.priority", message);
        }
        Some(Priority::RoundRobin)
    }

    fn in_virtual_time(&mut self) -> InVirtualTime {
        let mut cut_through = self.choice::<ForwardingMode>(key!("switch", "forwarding_mode"))
            == ForwardingMode::CutThrough;
        let allowed = self.flag(key!("switch", "allow_store_and_forward"));
        let place = self.place(key!("switch", "forwarding_mode"));
        // A live port receives a frame only when it is whole.
        if cut_through && self.timing == Timing::Live {
            cut_through = false;
            if !allowed {
                let message = "expected \"store-and-forward\", found \"cut-through\": live, ports pass whole frames; leave the key out, or say allow_store_and_forward = true";
                self.refuse(place, "switch.forwarding_mode", message);
            }
        } else if cut_through && self.has_roles() {
            let message = "expected \"store-and-forward\", found \"cut-through\": ports with a role carry TLPs, which are checked whole";
            self.refuse(place, "switch.forwarding_mode", message);
        }
        InVirtualTime {
            fixed_latency: Span::from_ns(self.fixed_latency_ns()),
            cut_through,
            wire_overhead: self.get(key!("switch", "wire_overhead")) != Some(Value::Bool(false)),
        }
    }

    /// The latency of the switch: set as a whole, or in two parts.
    fn fixed_latency_ns(&mut self) -> u64 {
        let whole = self.int(key!("switch", "fixed_latency_ns")).unwrap_or(0);
        // Models give the two parts; for the switch only their sum matters.
        let [ingress, crossbar] = [key!("switch", "t_ingress_ns"), key!("switch", "t_crossbar_ns")];
        let (key, message) = match [ingress, crossbar].map(|part| self.int(part)) {
            [None, None] => return whole,
            [Some(one), Some(other)] => {
                let sum = one + other;
                // Only one that is set can contradict the parts: its default does not count beside them.
                if self.settings.at(key!("switch", "fixed_latency_ns")).is_none() || whole == sum {
                    return sum;
                }
                let message = format!(
                    "expected {sum}, the sum of t_ingress_ns and t_crossbar_ns, found {whole}; leave it out"
                );
                (key!("switch", "fixed_latency_ns"), message)
            }
            [Some(_), None] => (ingress, "expected t_crossbar_ns beside it".to_owned()),
            [None, Some(_)] => (crossbar, "expected t_ingress_ns beside it".to_owned()),
        };
        self.refuse(self.place(key), &key.path(), message);
        whole
    }

    /// User that the process changes to. Refused where other settings need root, or keep its capabilities.
    fn run_user(&mut self) -> Option<String> {
        let user = self.text(key!("run", "user"))?;
        let place = self.place(key!("run", "user"));
        if self.get(key!("run", "sandbox")) == Some(Value::Bool(false)) {
            let message = "expected run.sandbox = true, which gives the user's capabilities up";
            self.refuse(place.clone(), "run.user", message);
        }
        let kinds = self.settings.items("port").iter();
        let is_dpdk = |item: &Item| {
            self.port_choice::<DeviceKind>(item, key!("port", "kind")) == DeviceKind::Dpdk
        };
        if kinds.into_iter().any(is_dpdk) {
            let message = "expected no port of kind dpdk, whose drivers need root; start the switch as the user that may use its devices";
            self.refuse(place, "run.user", message);
        }
        Some(user)
    }

    /// A device for each port, and one for the CPU port where there is one.
    fn run_ports(&mut self) -> Vec<RunPort> {
        let count = self.settings.items("port").len();
        let mut ports: Vec<RunPort> = (0..count).map(|index| self.run_port(index)).collect();
        // In the same order as the ports of `switch`, which has the CPU port last.
        if self.has_roles() {
            ports.push(RunPort {
                name: CPU_PORT.to_owned(),
                kind: DeviceKind::Pipe,
                device: CPU_PORT.to_owned(),
                mac: None,
                rx_ring_frames: PIPE_FRAMES,
                covered_frames: PIPE_FRAMES,
                existing: Existing::Refuse,
                dpdk_queues: 1,
                dpdk_tx_descriptors: 0,
                xdp: XdpConfig {
                    queues: Some(1),
                    attach: AttachTo::Native,
                    zero_copy: false,
                    busy_poll_us: 0,
                },
                loss: None,
            });
        }
        ports
    }

    fn run_port(&mut self, index: usize) -> RunPort {
        let Some(item) = self.settings.items("port").get(index) else {
            unreachable!("the index is that of an item")
        };
        let text = |key| item.text(key).map(str::to_owned);
        let name = text(key!("port", "name")).unwrap_or_default();
        // Own keys of the port alone: these are not in `[port_defaults]`.
        let device = text(key!("port", "device")).unwrap_or_else(|| name.clone());
        self.derived.insert(key!("port", "device").slot(index), Value::Text(device.clone()));
        let number = |key| {
            let value = self.port_get(item, key).and_then(|value| value.as_int());
            value.and_then(|int| usize::try_from(int).ok())
        };
        let dpdk_tx_descriptors = number(key!("port", "dpdk_tx_descriptors"))
            .unwrap_or_else(|| to_usize(self.int(key!("switch", "tx_ring_frames")).unwrap_or(64)));
        let shown = Value::Int(i64::try_from(dpdk_tx_descriptors).unwrap_or(i64::MAX));
        let lost =
            number(key!("port", "loss_per_million")).and_then(|count| u32::try_from(count).ok());
        let seed = number(key!("port", "loss_seed")).unwrap_or(1) as u64;
        // The default is 0, which is no loss: the port is opened without the filter.
        let loss = lost.filter(|&count| count > 0).map(|count| (count, seed));
        let rx_ring_frames = number(key!("port", "rx_ring_frames")).unwrap_or(RX_RING_FRAMES);
        let port = RunPort {
            kind: self.port_choice(item, key!("port", "kind")),
            device,
            mac: text(key!("port", "mac")).and_then(|mac| mac.parse().ok()),
            rx_ring_frames,
            // `buffer` lowers this where headroom would take too much of the buffer.
            covered_frames: rx_ring_frames,
            existing: Existing::Refuse,
            dpdk_queues: number(key!("port", "dpdk_queues")).unwrap_or(1),
            dpdk_tx_descriptors,
            xdp: self.xdp(item),
            loss,
            name,
        };
        self.derived.insert(key!("port", "dpdk_tx_descriptors").slot(index), shown);
        let shown = Value::Int(i64::try_from(rx_ring_frames).unwrap_or(i64::MAX));
        self.derived.insert(key!("port", "rx_ring_frames").slot(index), shown);
        port
    }

    /// Makes headroom cover fewer frames of receive rings whose length is not set; returns whether there are any.
    pub(super) fn cover_less(&self, run: &mut RunConfig) -> bool {
        let mut any = false;
        for (port, item) in run.ports.iter_mut().zip(self.settings.items("port")) {
            if self.port_get(item, key!("port", "rx_ring_frames")).is_none() {
                // The ring itself stays as long: it still helps while its frames find room in the buffer.
                port.covered_frames = RX_RING_FRAMES_COVERED;
                any = true;
            }
        }
        any
    }

    fn xdp(&self, item: &Item) -> XdpConfig {
        let number = |key| self.port_get(item, key).and_then(|value| value.as_int());
        XdpConfig {
            queues: number(key!("port", "xdp_queues"))
                .and_then(|queues| usize::try_from(queues).ok()),
            attach: self.port_choice(item, key!("port", "xdp_mode")),
            zero_copy: self.port_get(item, key!("port", "xdp_zero_copy"))
                != Some(Value::Bool(false)),
            busy_poll_us: number(key!("port", "xdp_busy_poll_us"))
                .and_then(|us| u32::try_from(us).ok())
                .unwrap_or(0),
        }
    }
}
