//! Finds ports that are the two ends of one veth pair: a cable from the switch to itself.
//!
//! [`warnings`] takes the names and devices of the open ports, and returns a warning for each pair.
//!
//! Source: docs/spec/pipeline.md §3 "Loops".

use weft_config::choice::{Choice, DeviceIs, DeviceKind};
use weft_dataplane::port::netdev;

pub(super) struct Opened<'a> {
    pub name: &'a str,
    /// Kind of port that was opened; never `auto`.
    pub kind: &'a str,
    pub device: &'a str,
}

pub(super) fn warnings<'a>(ports: impl Iterator<Item = Opened<'a>>) -> Vec<String> {
    // Other kinds name their device too, but not by an interface: a capture file could have the name of one.
    let is_interface = |port: &Opened<'_>| {
        DeviceKind::from_name(port.kind).is_some_and(|kind| kind.device() == DeviceIs::Interface)
    };
    let ports: Vec<Opened<'_>> = ports.filter(is_interface).collect();
    let devices: Vec<&str> = ports.iter().map(|port| port.device).collect();
    let pairs = netdev::pairs(&devices).into_iter();
    pairs.filter_map(|(one, other)| Some(warning(ports.get(one)?, ports.get(other)?))).collect()
}

fn warning(one: &Opened<'_>, other: &Opened<'_>) -> String {
    format!(
        "ports {} and {} are the two ends of one veth pair ({}, {}), so that what leaves by one comes in by the other: a loop; to have a host behind a port, move the far end to it (ip link set {} netns HOST)",
        one.name, other.name, one.device, other.device, other.device
    )
}
