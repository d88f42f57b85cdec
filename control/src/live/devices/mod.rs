//! Opens the devices behind the ports.
//!
//! [`RunPort`] → a boxed [`Port`] by kind, with a note for the user. `auto` takes `AF_XDP`, or a packet socket where
//! that is faster or all that there is, and the note says why. Also finds each device's own address.
//! Source: docs/spec/pipeline.md §11.

mod dpdk;

use std::sync::Arc;

use weft_base::causes::causes;
use weft_config::choice::{DeviceIs, DeviceKind};
use weft_config::resolve::{Config, RunConfig, RunPort};
use weft_dataplane::batch::BURST;
use weft_dataplane::config::{PortConfig, SwitchConfig};
use weft_dataplane::pool::Pool;
use weft_dataplane::port::af_packet::{AfPacket, AfPacketConfig};
use weft_dataplane::port::af_xdp::{AfXdp, AfXdpConfig, Builtin, Steering, Umem};
use weft_dataplane::port::capture::CaptureName;
use weft_dataplane::port::lossy::Lossy;
use weft_dataplane::port::netdev;
use weft_dataplane::port::null::Null;
use weft_dataplane::port::pcap::{Pace, Pcap, PcapConfig};
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::port::tap::{Tap, TapConfig};
use weft_dataplane::port::{Port, PortOpenError};
use weft_dataplane::types::PortId;
use weft_parsers::MacAddr;

use super::LiveError;
use crate::express::Express;

/// The device behind a port, as reports show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Kind that was opened, by its name in the configuration; never `auto`.
    pub kind: &'static str,
    /// Note for the user: why it is not as one would expect, or how it works. `None` if all is as usual.
    pub note: Option<String>,
}

/// One port that was opened.
pub struct OpenedOne {
    pub port: Box<dyn Port>,
    /// As in [`DeviceInfo`].
    pub note: Option<String>,
    /// The device's own address; `None` if it has none.
    pub mac: Option<MacAddr>,
}

/// By port, the ports and their devices; and the far end of the CPU port's pipe, where there is a CPU port.
pub type Opened = (Vec<Box<dyn Port>>, Vec<DeviceInfo>, Option<Pipe>);

/// Most chunks of the pool that the devices of `config` may hold.
#[must_use]
pub fn chunks(config: &Config) -> usize {
    let held = |(port, run): (&PortConfig, &RunPort)| match run.kind {
        DeviceKind::Auto | DeviceKind::AfXdp => {
            af_xdp(run, port, config.switch.tx_ring_frames).chunks()
        }
        DeviceKind::Dpdk => run.dpdk_queues * run.rx_ring_frames + run.dpdk_tx_descriptors,
        DeviceKind::Pipe => 2 * run.rx_ring_frames + 2 * BURST + super::agent::CACHE,
        DeviceKind::AfPacket | DeviceKind::Tap | DeviceKind::Null | DeviceKind::Pcap => 0, // frames are copied
    };
    config.switch.ports.iter().zip(&config.run.ports).map(held).sum()
}

/// Opens every port of `config` for frames in `pool`, and notes each one's address in `switch`. With `express`, its
/// programs steer.
///
/// # Errors
/// The first device that cannot be opened; those before it are closed.
pub fn open_all(
    config: &Config,
    switch: &mut SwitchConfig,
    pool: &Arc<Pool>,
    express: Option<&Express>,
) -> Result<Opened, LiveError> {
    if let Some(first) = config.run.ports.iter().find(|run| run.kind == DeviceKind::Dpdk) {
        dpdk::start(first, &config.run.eal_args).map_err(LiveError::open(&first.name))?;
    }
    let umem = Umem::new(pool.clone());
    let slower = slower_by_xdp(&config.run);
    let (mut info, mut far) = (Vec::new(), None);
    let mut ports: Vec<Box<dyn Port>> = Vec::new();
    for (index, (port, run)) in switch.ports.iter_mut().zip(&config.run.ports).enumerate() {
        // The pipe keeps this one, as it has no device to ask.
        port.parse.port_mac = run.mac.unwrap_or_else(|| made_up_mac(index));
        if run.kind == DeviceKind::Pipe {
            let (near, end) = open_pipe(run, port).map_err(LiveError::open(&run.name))?;
            info.push(DeviceInfo { kind: near.caps().kind, note: None });
            ports.push(Box::new(near));
            far = Some(end);
            continue;
        }
        let steering: Box<dyn Steering> = match express.zip(PortId::new(index)) {
            Some((express, id)) => Box::new(express.steering(id, &run.device)),
            None => Box::new(Builtin::new()),
        };
        let slower = slower.as_deref();
        let opened = open(run, port, switch.tx_ring_frames, &umem, steering, slower);
        let opened = opened.map_err(LiveError::open(&run.name))?;
        info.push(DeviceInfo { kind: opened.port.caps().kind, note: opened.note });
        ports.push(match run.loss {
            // Around the device, as a wire that loses frames would be.
            Some((per_million, seed)) => Box::new(Lossy::new(opened.port, per_million, seed)),
            None => opened.port,
        });
        port.parse.port_mac = run.mac.or(opened.mac).unwrap_or_else(|| made_up_mac(index));
    }
    Ok((ports, info, far))
}

/// The two ends of the CPU port's pipe: the port's, then the agent's.
fn open_pipe(run: &RunPort, port: &PortConfig) -> Result<(Pipe, Pipe), PortOpenError> {
    pipe(PipeConfig {
        names: [run.name.clone(), format!("{}-far", run.name)],
        depth: run.rx_ring_frames,
        rate: port.rate,
        frame_len_max: port.frame_len_max,
        wakes_reader: true,
    })
}

/// Why ports of kind `auto` on veth are served faster by packet sockets than by `AF_XDP`; `None` where they are not.
///
/// With `AF_XDP`, hosts behind a veth send no super-frames, and frames are copied on the way in and out. The fast path
/// in the kernel makes up for it, but leads only to a veth whose far end has NAPI.
fn slower_by_xdp(run: &RunConfig) -> Option<String> {
    let is_veth = |port: &&RunPort| port.kind == DeviceKind::Auto && netdev::is_veth(&port.device);
    let mut ports = run.ports.iter().filter(is_veth).peekable();
    // Without a port of the kind there is nothing to decide.
    ports.peek()?;
    if !run.express {
        return Some("express.enabled is false".to_owned());
    }
    // One veth that takes nothing decides for all: frames to it would be copied through the switch, whichever port they
    // came by.
    let deaf = ports.find(|port| !netdev::takes_redirected(&port.device))?;
    Some(format!(
        "the far end of {} has no NAPI (`ethtool -K FAR-END gro on`), so that the kernel could send nothing on by itself",
        deaf.device
    ))
}

/// Opens one device, with its note. `slower` is the reason why `auto` does not use `AF_XDP` on a veth.
///
/// # Errors
/// The call that failed, and the kernel's answer.
pub fn open(
    run: &RunPort,
    port: &PortConfig,
    tx_ring_frames: usize,
    umem: &Arc<Umem>,
    steering: Box<dyn Steering>,
    slower: Option<&str>,
) -> Result<OpenedOne, PortOpenError> {
    let (device, rate) = (run.device.clone(), port.rate);
    let frame_len_max = port.frame_len_max;
    let packet = || {
        let tx_ring_frames = tx_ring_frames.min(64);
        let (device, rx_ring_frames) = (device.clone(), run.rx_ring_frames);
        let config = AfPacketConfig {
            device,
            rate,
            frame_len_max,
            tx_ring_frames,
            rx_ring_frames,
            tunnel_tap: true,
        };
        AfPacket::open(&config)
    };
    let xdp = || AfXdp::open(&af_xdp(run, port, tx_ring_frames), umem, steering);
    let (opened, note): (Box<dyn Port>, Option<String>) = match run.kind {
        DeviceKind::Auto => {
            let slower = slower.filter(|_| netdev::is_veth(&device));
            let faster = slower.map_or(Ok(()), |why| Err(format!("slower on veth, as {why}")));
            let by_xdp = || {
                // A port that would lose tags or send wrong checksums is refused for `auto` only: with kind `af_xdp`
                // the user has chosen it, and gets a note.
                let port = xdp().map_err(|error| why(&error))?;
                needs_tags(port).and_then(needs_checksums)
            };
            match faster.and_then(|()| by_xdp()) {
                Ok(port) => {
                    let note = note(&port);
                    (Box::new(port), note)
                }
                Err(why) => (Box::new(packet()?), Some(format!("not AF_XDP: {why}"))),
            }
        }
        DeviceKind::AfXdp => {
            let port = xdp()?;
            let note = note(&port);
            (Box::new(port), note)
        }
        DeviceKind::AfPacket => (Box::new(packet()?), None),
        DeviceKind::Tap => (Box::new(Tap::open(&TapConfig { device, rate, frame_len_max })?), None),
        DeviceKind::Null => (Box::new(Null::sink(&run.name, rate)), None),
        DeviceKind::Pcap => {
            let (input, output) = device.split_once(':').unwrap_or((&device, ""));
            let input = (!input.is_empty()).then(|| CaptureName::parse(input));
            let output = (!output.is_empty()).then(|| output.into());
            let port = Pcap::open(&PcapConfig {
                name: run.name.clone(),
                rate,
                frame_len_max,
                input,
                pace: Pace::Stamps,
                times: Some(1),
                output,
                existing: run.existing,
            })?;
            let warnings = port.warnings().join("; ");
            (Box::new(port), (!warnings.is_empty()).then_some(warnings))
        }
        DeviceKind::Dpdk => return dpdk::open(run, port),
        DeviceKind::Pipe => (Box::new(open_pipe(run, port)?.0), None), // an end that nobody is at
    };
    Ok(OpenedOne { port: opened, note, mac: device_mac(run) })
}

fn af_xdp(run: &RunPort, port: &PortConfig, tx_ring_frames: usize) -> AfXdpConfig {
    AfXdpConfig {
        device: run.device.clone(),
        rate: port.rate,
        frame_len_max: port.frame_len_max,
        tx_ring_frames: tx_ring_frames.min(64),
        rx_ring_frames: run.rx_ring_frames,
        queues: run.xdp.queues,
        attach: run.xdp.attach,
        zero_copy: run.xdp.zero_copy,
        busy_poll_us: run.xdp.busy_poll_us,
        joins: true,
        fixed_udp_ports: [port.parse.udp_type1, port.parse.udp_type2],
    }
}

/// An error with all its causes in one line, without the device's name.
fn why(error: &PortOpenError) -> String {
    let mut text = error.to_string();
    // The user sees the port's name in front of the note; the device's would say it twice.
    if let Some((_, rest)) = text.split_once(": ") {
        text = rest.to_owned();
    }
    for cause in causes(error) {
        text = format!("{text}: {cause}");
    }
    text
}

const UNREAD_TAGS: &str = "VLAN tags that are not in the data cannot be read (`ethtool -K DEVICE rxvlan off` leaves them in)";

/// Refuses a port that cannot read VLAN tags which the device has taken out of the data.
fn needs_tags(port: AfXdp) -> Result<AfXdp, String> {
    if port.reads_tags() { Ok(port) } else { Err(UNREAD_TAGS.to_owned()) }
}

const UNSEEN_CHECKSUMS: &str =
    "checksums that hosts leave to the device are only found in tunnels that weft knows";

/// Refuses a port that would forward wrong checksums: hosts leave the checksum to the device, and in a tunnel of an
/// unknown kind the port does not find it.
fn needs_checksums(port: AfXdp) -> Result<AfXdp, String> {
    if port.knows_checksums() { Ok(port) } else { Err(UNSEEN_CHECKSUMS.to_owned()) }
}

/// The note for a port by `AF_XDP`; `None` if it is as usual.
fn note(port: &AfXdp) -> Option<String> {
    let how = port.describe();
    let unseen = [(port.reads_tags(), UNREAD_TAGS), (port.knows_checksums(), UNSEEN_CHECKSUMS)];
    let unseen = unseen.into_iter().filter(|(seen, _)| !seen).map(|(_, text)| text.to_owned());
    let notes: Vec<String> = core::iter::once(how).chain(unseen).collect();
    (notes != ["native, copy"]).then(|| notes.join("; "))
}

fn device_mac(run: &RunPort) -> Option<MacAddr> {
    if !matches!(run.kind.device(), DeviceIs::Interface | DeviceIs::Made) {
        return None;
    }
    let text = std::fs::read_to_string(format!("/sys/class/net/{}/address", run.device)).ok()?;
    text.trim().parse().ok()
}

/// A locally administered address for a port whose device has none.
fn made_up_mac(index: usize) -> MacAddr {
    let low = u8::try_from(index).unwrap_or(u8::MAX);
    // `02` in the first octet: locally administered and unicast (IEEE 802).
    MacAddr([0x02, b'w', b'e', b'f', b't', low])
}
