//! Ports by DPDK; in a build without the feature `dpdk`, their refusal.
//!
//! [`start`] once, then [`open`] for each port of the kind.
//!
//! Source: docs/spec/pipeline.md §11; cargo feature `dpdk`.

use std::io;

use weft_config::resolve::RunPort;
use weft_dataplane::config::PortConfig;
use weft_dataplane::port::PortOpenError;

use super::OpenedOne;

fn refused(run: &RunPort, hint: &'static str, why: String) -> PortOpenError {
    let (device, source) = (run.device.clone(), io::Error::other(why));
    PortOpenError::Call { device, call: "start DPDK", hint, source }
}

/// Starts DPDK's environment; `run` is the first port that needs it.
///
/// # Errors
/// DPDK's own message.
#[cfg(feature = "dpdk")]
pub fn start(run: &RunPort, args: &[String]) -> Result<(), PortOpenError> {
    const NO_HUGE: &str = " (without huge pages it needs \
        dpdk.eal_args = [\"--no-huge\", \"-m\", \"256\", \"--no-shconf\"])";
    weft_dataplane::port::dpdk::start_eal(args).map_err(|error| {
        // DPDK's message names huge pages only; the hint says how to do without them.
        let why = error.to_string();
        refused(run, if why.contains("hugepage") { NO_HUGE } else { "" }, why)
    })
}

///
/// # Errors
/// There is no such device or driver.
#[cfg(feature = "dpdk")]
pub fn open(run: &RunPort, port: &PortConfig) -> Result<OpenedOne, PortOpenError> {
    use weft_dataplane::port::dpdk::{Dpdk, DpdkConfig};

    let number = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let opened = Dpdk::open(&DpdkConfig {
        device: run.device.clone(),
        rate: port.rate,
        frame_len_max: port.frame_len_max,
        queues: number(run.dpdk_queues),
        rx_descriptors: number(run.rx_ring_frames),
        tx_descriptors: number(run.dpdk_tx_descriptors),
        fixed_udp_ports: [port.parse.udp_type1, port.parse.udp_type2],
    })?;
    let mac = opened.mac();
    Ok(OpenedOne { port: Box::new(opened), note: None, mac })
}

#[cfg(not(feature = "dpdk"))]
fn missing(run: &RunPort) -> PortOpenError {
    let hint = " (needs a build with --features dpdk)";
    refused(run, hint, "this weft was built without the feature dpdk".to_owned())
}

/// Always refuses.
///
/// # Errors
/// There is no DPDK in this build.
#[cfg(not(feature = "dpdk"))]
pub fn start(run: &RunPort, _args: &[String]) -> Result<(), PortOpenError> {
    Err(missing(run))
}

/// Always refuses.
///
/// # Errors
/// There is no DPDK in this build.
#[cfg(not(feature = "dpdk"))]
pub fn open(run: &RunPort, _port: &PortConfig) -> Result<OpenedOne, PortOpenError> {
    Err(missing(run))
}
