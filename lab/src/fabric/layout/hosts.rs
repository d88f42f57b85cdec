//! Checks hosts: their connection, and keys that would have no effect.
//!
//! It works on the parts of a [`LayoutBuilder`], and reports the first host that breaks a rule.
//!
//! Source: docs/fabric.md.

use super::super::topology::{DeviceKind, Memory};
use super::build::LayoutBuilder;
use super::lds::refuse;
use super::{LayoutError, Part};

impl LayoutBuilder<'_> {
    /// Refuses hosts without a link, and keys of a virtual switch for hosts that have none.
    pub(super) fn check_hosts(&self) -> Result<(), LayoutError> {
        for (index, host) in self.topology.hosts.iter().enumerate() {
            let part = Part::Host(index);
            if !self.layout.wires.iter().flatten().any(|end| end.part == part) {
                return Err(LayoutError::Alone(host.name.clone()));
            }
            let keys = [
                ("spare_vppbs", host.spare_vppbs > 0),
                ("domain", host.domain.is_some()),
                ("segment", host.segment > 0),
                ("link_per_device", host.link_per_device),
            ];
            if host.at.is_empty()
                && let Some((key, _)) = keys.into_iter().find(|(_, given)| *given)
            {
                return Err(LayoutError::NoEdge { host: host.name.clone(), key });
            }
        }
        Ok(())
    }

    /// Refuses fabric memory transfers for hosts and devices that reach no fabric memory.
    pub(super) fn check_transfers(&self) -> Result<(), LayoutError> {
        for (index, host) in self.topology.hosts.iter().enumerate() {
            if host.enable_use_fabric_mem && !self.reaches(Part::Host(index), &host.name) {
                return Err(LayoutError::NoTransfers { kind: "host", name: host.name.clone() });
            }
        }
        for (index, device) in self.topology.devices.iter().enumerate() {
            let name = device.name.clone();
            if device.enable_use_fabric_mem && device.kind == DeviceKind::Memory {
                let why = "enable_use_fabric_mem: a memory device begins no transfers; its host registers its memory";
                return refuse(&name, why);
            }
            if device.enable_use_fabric_mem && !self.reaches(Part::Device(index), &name) {
                return Err(LayoutError::NoTransfers { kind: "device", name });
            }
        }
        Ok(())
    }

    /// Whether a part has memory of the fabric, or memory for others.
    fn reaches(&self, part: Part, name: &String) -> bool {
        let has_gim = |gim: &super::gim::GimRange| gim.of == part || gim.from.contains(&part);
        let has = |it: &Memory| it.hosts.contains(name) || it.devices.contains(name);
        self.topology.memory.iter().any(has)
            || self.layout.gim.iter().any(has_gim)
            || self.layout.p2p.iter().any(|p2p| p2p.from.contains(&part))
    }
}
