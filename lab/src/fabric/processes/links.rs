//! The links of a fabric of processes: a veth pair for each wire, made and removed by `ip`.
//!
//! Shape: [`Processes::make_links`]; a pair's ends are `PREFIX`, the wire's number, and `a` or `b`.
//! Units: none.
//! Source: docs/fabric.md; veth(4), ip-link(8).

use std::process::Command as Run;

use super::{ProcessError, Processes, io};
use crate::fabric::layout::End;
use crate::fabric::leftovers;

impl Processes {
    /// The interface at an end.
    pub(super) fn device(&self, end: End) -> String {
        let at = self.layout.wires.iter().position(|wire| wire.contains(&end));
        let wire = at.and_then(|at| Some((at, self.layout.wires.get(at)?)));
        wire.map_or_else(String::new, |(at, [near, _])| {
            let side = if *near == end { 'a' } else { 'b' };
            format!("{}{at}{side}", self.setup.prefix)
        })
    }

    /// Makes a veth pair for each wire.
    pub(super) fn make_links(&mut self) -> Result<(), ProcessError> {
        self.remove_stale_pairs()?;
        let mark = leftovers::pair_alias();
        for at in 0..self.layout.wires.len() {
            let prefix = &self.setup.prefix;
            let (near, far) = (format!("{prefix}{at}a"), format!("{prefix}{at}b"));
            ip(&["link", "add", &near, "type", "veth", "peer", "name", &far])?;
            self.pairs.push(near.clone());
            ip(&["link", "set", &near, "alias", &mark])?;
            for device in [&near, &far] {
                // So that no kernel says anything by itself; where there is no IPv6 there is nothing to turn off.
                let _ = ip(&["link", "set", device, "addrgenmode", "none"]);
                ip(&["link", "set", device, "up"])?;
            }
        }
        Ok(())
    }

    /// Removes the pairs of a fabric that was killed.
    fn remove_stale_pairs(&self) -> Result<(), ProcessError> {
        let prefix = &self.setup.prefix;
        let links = Run::new("ip").args(["-j", "link", "show", "type", "veth"]).output();
        let listed = links.map_err(io("run ip (iproute2)"))?.stdout;
        let listed = if listed.trim_ascii().is_empty() { b"[]".to_vec() } else { listed };
        let gone = leftovers::stale_pairs(&listed, prefix);
        let gone = gone
            .map_err(|said| ProcessError::Refused { command: "look for pairs".to_owned(), said })?;
        for near in gone {
            ip(&["link", "del", &near])?;
        }
        Ok(())
    }
}

/// Takes an interface down; it may be gone with its namespace.
pub(super) fn take_down(device: &str) {
    let _ = ip(&["link", "set", device, "down"]);
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
