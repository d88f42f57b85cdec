//! Opening the devices behind the ports.
//!
//! Shape: [`RunPort`] → a boxed [`Port`] and its device's own address, by kind.
//! Units: octets, frames.
//! Source: pipeline.md §11.

use weft_dataplane::config::{PortConfig, SwitchConfig};
use weft_dataplane::port::af_packet::{AfPacket, AfPacketConfig};
use weft_dataplane::port::null::Null;
use weft_dataplane::port::pcap::{Pace, Pcap, PcapConfig};
use weft_dataplane::port::tap::{Tap, TapConfig};
use weft_dataplane::port::{Port, PortOpenError};
use weft_parsers::MacAddr;

use super::{LiveError, dpdk};
use crate::config::resolve::{Config, DeviceKind, RunPort};

/// Opens every port of `config`, and notes each one's address in `switch`.
///
/// # Errors
/// The first device that cannot be opened; those before it are closed again.
pub fn open_all(
    config: &Config,
    switch: &mut SwitchConfig,
) -> Result<Vec<Box<dyn Port>>, LiveError> {
    let named = |run: &RunPort| {
        let name = run.name.clone();
        move |source| LiveError::Open { name, source: Box::new(source) }
    };
    if let Some(first) = config.run.ports.iter().find(|run| run.kind == DeviceKind::Dpdk) {
        dpdk::start(first, &config.run.eal_args).map_err(named(first))?;
    }
    let mut ports = Vec::with_capacity(config.run.ports.len());
    for (index, (port, run)) in switch.ports.iter_mut().zip(&config.run.ports).enumerate() {
        let (opened, mac) = open(run, port, switch.tx_ring_frames).map_err(named(run))?;
        ports.push(opened);
        port.parse.port_mac = run.mac.or(mac).unwrap_or_else(|| made_up_mac(index));
    }
    Ok(ports)
}

/// Opens one device; also its own address, if it has one.
///
/// # Errors
/// What was tried, and the kernel's answer.
pub fn open(
    run: &RunPort,
    port: &PortConfig,
    tx_ring_frames: usize,
) -> Result<(Box<dyn Port>, Option<MacAddr>), PortOpenError> {
    let (device, rate) = (run.device.clone(), port.rate);
    let frame_len_max = port.frame_len_max;
    let opened: Box<dyn Port> = match run.kind {
        DeviceKind::AfPacket => Box::new(AfPacket::open(&AfPacketConfig {
            device,
            rate,
            frame_len_max,
            tx_ring_frames: tx_ring_frames.min(64),
        })?),
        DeviceKind::Tap => Box::new(Tap::open(&TapConfig { device, rate, frame_len_max })?),
        DeviceKind::Null => Box::new(Null::sink(&run.name, rate)),
        DeviceKind::Pcap => {
            let (input, output) = device.split_once(':').unwrap_or((&device, ""));
            let file = |name: &str| (!name.is_empty()).then(|| name.into());
            Box::new(Pcap::open(&PcapConfig {
                name: run.name.clone(),
                rate,
                frame_len_max,
                input: file(input),
                pace: Pace::Stamps,
                times: Some(1),
                output: file(output),
            })?)
        }
        DeviceKind::Dpdk => return dpdk::open(run, port),
    };
    Ok((opened, device_mac(run)))
}

/// Chunks that a device holds beside those that every port is given.
#[must_use]
pub fn chunks_held(run: &RunPort) -> usize {
    match run.kind {
        DeviceKind::Dpdk => run.queues * run.rx_ring_frames + run.tx_descriptors,
        _ => 0,
    }
}

/// The address of the interface behind a port, if it has one.
fn device_mac(run: &RunPort) -> Option<MacAddr> {
    if !matches!(run.kind, DeviceKind::AfPacket | DeviceKind::Tap) {
        return None;
    }
    let text = std::fs::read_to_string(format!("/sys/class/net/{}/address", run.device)).ok()?;
    text.trim().parse().ok()
}

/// A locally administered address for a port that has none.
fn made_up_mac(index: usize) -> MacAddr {
    let low = u8::try_from(index).unwrap_or(u8::MAX);
    MacAddr([0x02, b'w', b'e', b'f', b't', low])
}
