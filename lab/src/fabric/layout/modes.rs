//! Links in non-flit mode: those of hosts and devices with Lightweight Notification, and all links that depend on them.
//!
//! Both ends of a wire have the same mode. A PBR switch has a mode for each port, every other part one for all its
//! links.
//!
//! Source: PCIe 6.0 section 2.2.1.2 (flit mode has no LN); docs/fabric.md.

use std::collections::BTreeSet;

use super::build::LayoutBuilder;
use super::{LayoutError, Part};

impl LayoutBuilder<'_> {
    /// Parts with links in non-flit mode.
    pub(super) fn non_flit(&self) -> BTreeSet<Part> {
        let hosts = (0..).zip(&self.topology.hosts).filter(|(_, host)| host.ln_lines.is_some());
        let devices = (0..).zip(&self.topology.devices).filter(|(_, device)| device.lnr.is_some());
        let mut parts: BTreeSet<Part> = hosts.map(|(at, _)| Part::Host(at)).collect();
        parts.extend(devices.map(|(at, _)| Part::Device(at)));
        // An HBR switch passes its mode on, so repeat until no part is added.
        loop {
            let before = parts.len();
            for wire in &self.layout.wires {
                let both = wire.map(|end| end.part);
                // A PBR switch converts between modes, so the mode ends there.
                let modal = both.iter().all(|part| !matches!(part, Part::Switch(_)));
                if modal && both.iter().any(|part| parts.contains(part)) {
                    parts.extend(both);
                }
            }
            if parts.len() == before {
                return parts;
            }
        }
    }

    /// Refuses memory that is reached by UIO for parts in non-flit mode.
    pub(super) fn check_modes(&self) -> Result<(), LayoutError> {
        let layout = &self.layout;
        let refused = |part: Part, what: String| {
            let name = || layout.name(part).to_owned();
            let flit = layout.is_flit(part);
            if flit { Ok(()) } else { Err(LayoutError::NonFlit { name: name(), what }) }
        };
        for memory in &self.topology.memory {
            for name in memory.hosts.iter().chain(&memory.devices) {
                let part = self.find(&memory.name, name, "host or device")?;
                refused(part, format!("memory {}", memory.name))?;
            }
        }
        for gim in &layout.gim {
            refused(gim.of, "GIM".to_owned())?;
        }
        for p2p in &layout.p2p {
            for part in p2p.from.iter().chain([&p2p.to]) {
                refused(*part, format!("p2p {}", p2p.name))?;
            }
        }
        Ok(())
    }
}
