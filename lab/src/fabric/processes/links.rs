//! Links of a fabric of processes: a veth pair for each wire, made and removed by `ip`, or VXLAN to another machine.
//!
//! [`Processes::make_links`] makes them. Ends are named `PREFIX`, the wire's number, and `a` or `b`.
//!
//! Source: docs/fabric.md; veth(4), ip-link(8); RFC 7348.

use std::process::Command as Run;

use super::hosts_file::{Tunnel, WireHere};
use super::{ProcessError, Processes, io};
use crate::fabric::layout::End;
use crate::fabric::leftovers;

impl Processes {
    /// Interface at an end of a wire.
    pub(super) fn device(&self, end: End) -> String {
        let at = self.layout.wires.iter().position(|wire| wire.contains(&end));
        let wire = at.and_then(|at| Some((at, self.layout.wires.get(at)?)));
        wire.map_or_else(String::new, |(at, [near, _])| {
            let side = if *near == end { 'a' } else { 'b' };
            format!("{}{at}{side}", self.setup.prefix)
        })
    }

    /// Makes this machine's ends of all wires.
    pub(super) fn make_links(&mut self) -> Result<(), ProcessError> {
        self.remove_stale_pairs()?;
        let mark = leftovers::pair_alias();
        for at in 0..self.layout.wires.len() {
            let prefix = &self.setup.prefix;
            let (near, far) = (format!("{prefix}{at}a"), format!("{prefix}{at}b"));
            let devices = match self.wire_here(at) {
                WireHere::Neither => continue,
                WireHere::Both => {
                    ip(&["link", "add", &near, "type", "veth", "peer", "name", &far])?;
                    vec![near, far]
                }
                WireHere::One(side, tunnel) => {
                    let device = if side == 'a' { near } else { far };
                    self.make_tunnel(&device, at, tunnel)?;
                    vec![device]
                }
            };
            if let Some(first) = devices.first() {
                // Recorded before anything else can fail, so that dropping the fabric removes it.
                self.pairs.push(first.clone());
                ip(&["link", "set", first, "alias", &mark])?;
            }
            for device in &devices {
                // The kernel must not send frames of its own (IPv6). Fails harmlessly where the kernel has no IPv6.
                let _ = ip(&["link", "set", device, "addrgenmode", "none"]);
                ip(&["link", "set", device, "up"])?;
            }
        }
        Ok(())
    }

    /// Makes this machine's end of a wire to another machine.
    fn make_tunnel(&self, device: &str, wire: usize, tunnel: Tunnel) -> Result<(), ProcessError> {
        let Some(here) = &self.setup.here else { return Ok(()) };
        let number = u32::try_from(wire).unwrap_or(u32::MAX);
        let (vni, port) =
            (here.hosts.vni.saturating_add(number).to_string(), here.hosts.vxlan_port.to_string());
        let (local, remote) = (tunnel.local.to_string(), tunnel.remote.to_string());
        // Without learning: a forged frame cannot redirect others to its sender.
        ip(&[
            "link",
            "add",
            device,
            "type",
            "vxlan",
            "id",
            &vni,
            "local",
            &local,
            "remote",
            &remote,
            "dstport",
            &port,
            "ttl",
            "64",
            "nolearning",
        ])
        .map_err(|error| vni_taken(error, &vni))
    }

    /// The part of wire `at` that is on this machine.
    pub(super) fn wire_here(&self, at: usize) -> WireHere {
        let (here, wire) = (&self.setup.here, self.layout.wires.get(at));
        match (here, wire) {
            (_, None) => WireHere::Neither,
            (None, Some(_)) => WireHere::Both,
            (Some(here), Some(wire)) => here.wire(&self.layout, wire),
        }
    }

    /// Interfaces of this machine that lead to others, with the number of their wire.
    pub(super) fn tunnels(&self) -> Vec<(usize, String)> {
        let ends = (0..self.layout.wires.len()).filter_map(|at| match self.wire_here(at) {
            WireHere::One(side, _) => Some((at, format!("{}{at}{side}", self.setup.prefix))),
            _ => None,
        });
        ends.collect()
    }

    /// Removes the pairs of a fabric that was killed.
    fn remove_stale_pairs(&self) -> Result<(), ProcessError> {
        let prefix = &self.setup.prefix;
        for kind in ["veth", "vxlan"] {
            let links = Run::new("ip").args(["-j", "link", "show", "type", kind]).output();
            let listed = links.map_err(io("run ip (iproute2)"))?.stdout;
            let listed = if listed.trim_ascii().is_empty() { b"[]".to_vec() } else { listed };
            let refused =
                |said| ProcessError::Refused { command: "look for pairs".to_owned(), said };
            for near in leftovers::stale_pairs(&listed, prefix).map_err(refused)? {
                ip(&["link", "del", &near])?;
            }
        }
        Ok(())
    }
}

/// Sets an interface down; it may be gone with its namespace.
pub(super) fn take_down(device: &str) {
    let _ = ip(&["link", "set", device, "down"]);
}

/// Makes an interface show the carrier of its far end; it may be gone with its namespace.
pub(super) fn set_carrier(device: &str, is_on: bool) {
    let _ = ip(&["link", "set", "dev", device, "protodown", if is_on { "off" } else { "on" }]);
}

/// Removes a pair by one of its ends; it may be gone with its namespace.
pub(super) fn remove_pair(near: &str) {
    let _ = ip(&["link", "del", near]);
}

/// Runs `ip` of iproute2.
fn ip(arguments: &[&str]) -> Result<(), ProcessError> {
    let done = Run::new("ip").args(arguments).output().map_err(io("run ip (iproute2)"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(ProcessError::Refused { command: format!("ip {}", arguments.join(" ")), said })
}

/// Adds advice to the kernel's error that another tunnel has the identifier.
fn vni_taken(error: ProcessError, vni: &str) -> ProcessError {
    match error {
        ProcessError::Refused { command, said }
            if said.contains("specified VNI already exists") =>
        {
            let said = format!(
                "{said}: VNI {vni} is another fabric's, or somebody else's: give another `vni` in the file of the machines"
            );
            ProcessError::Refused { command, said }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vni_that_is_taken_says_what_to_do() {
        let refused = |said: &str| ProcessError::Refused {
            command: "ip link add".to_owned(),
            said: said.to_owned(),
        };
        let kernel = "Error: A VXLAN device with the specified VNI already exists.";
        let said = vni_taken(refused(kernel), "7701").to_string();
        assert!(said.contains("VNI 7701") && said.contains("give another `vni`"), "{said}");
        let other = vni_taken(refused("RTNETLINK answers: No such device"), "7701").to_string();
        assert!(!other.contains("vni"), "{other}");
    }
}
