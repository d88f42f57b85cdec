//! Bindings by name: chooses free bridges to show a host a device.
//!
//! The choice is a list of [`Step`]s, each a [`Request::Bind`](super::Request::Bind); all are made, or none.
//!
//! Source: docs/fm.md, "Commands"; CXL 3.1 section 7.7.6.1 (a host sees its edge switch and one level of switches below
//! it).

use crate::components::bind::Bridge;
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::Vcs;
use crate::state::names::Names;

type VcsPlace = (SwitchId, u8);

/// One binding: a bridge, and the device or bridge that it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The bridge as `SWITCH/VCS/VPPB`, which [`Request::Bind`](super::Request::Bind) takes.
    pub bridge: String,
    /// `port:N`, `port:N.LD`, or the bridge at the other end of a virtual link.
    pub to: String,
}

fn text(bridge: Bridge) -> String {
    format!("{}/{}/{}", bridge.switch, bridge.vcs, bridge.vppb)
}

impl Names<'_> {
    /// The bindings that show a host a device, in order: the device first, as the host is told of a hot-add once its
    /// own bridge is bound.
    ///
    /// # Errors
    /// The host or device does not exist, another host has the device, or no bridge is free.
    pub fn steps(&self, host: &str, device: &str) -> Result<Vec<Step>, String> {
        let edge = self.host(host)?;
        if !self.hosts().contains(&edge) {
            return Err(format!(
                "{host} is a device: name the host first, then what it is to be shown"
            ));
        }
        let own = (edge.switch, edge.vcs);
        let (at, ld) = self.device_or_ld(device)?;
        let to =
            ld.map_or_else(|| format!("port:{}", at.port), |ld| format!("port:{}.{ld}", at.port));
        let mut local = self.bindings.local.iter();
        let bound = local.find(|it| (it.bridge.switch, it.port, it.ld) == (at.switch, at.port, ld));
        let bound = bound.map(|local| local.bridge);
        if let Some(bridge) = bound
            && let Some(owner) = self.hierarchy_of((bridge.switch, bridge.vcs))
        {
            let owner = self.host_at(owner);
            return Err(format!(
                "{owner} is shown {device} by {0}: weft fm unbind {0} takes it",
                text(bridge)
            ));
        }
        if at.switch == own.0 {
            return Ok(vec![Step { bridge: text(self.free_bridge(own, host)?), to }]);
        }
        let links = self.bindings.links();
        // A virtual switch that the host has there already needs no second virtual link.
        let links = links.filter(|it| (it.host.bridge.switch, it.host.bridge.vcs) == own);
        let mut below = links.map(|it| it.below.bridge).filter(|it| it.switch == at.switch);
        if bound.is_none()
            && let Some(free) = below.find_map(|it| self.free_in((it.switch, it.vcs)))
        {
            return Ok(vec![Step { bridge: text(free), to }]);
        }
        // An earlier request may have bound the device, and failed at the virtual link.
        let (upstream, shows) = if let Some(bridge) = bound {
            (Bridge { vppb: 0, ..bridge }, None)
        } else {
            let spare = self.spare_switch(at.switch).ok_or_else(|| format!(
                "no virtual switch of {} is free for {host}: hosts with spare_vppbs in the topology file have one at each switch",
                at.switch
            ))?;
            (spare.0, Some(spare.1))
        };
        let link = Step { bridge: text(self.free_bridge(own, host)?), to: text(upstream) };
        let device = shows.map(|bridge| Step { bridge: text(bridge), to });
        Ok(device.into_iter().chain([link]).collect())
    }

    fn device_or_ld(&self, device: &str) -> Result<(PortRef, Option<u16>), String> {
        if let Ok(at) = self.device(device) {
            return Ok((at, None));
        }
        let named = self.port_and_ld(device).map(|(at, ld)| (at, Some(ld)));
        named.ok_or_else(|| format!("there is no device {device:?}"))
    }

    fn virtual_switch(&self, at: VcsPlace) -> Option<&Vcs> {
        self.inventory.switch(at.0)?.vcss.iter().find(|vcs| vcs.id == at.1)
    }

    fn is_free(&self, bridge: Bridge) -> bool {
        let vcs = self.virtual_switch((bridge.switch, bridge.vcs));
        let state = vcs.and_then(|vcs| vcs.vppbs.get(usize::from(bridge.vppb)));
        state.is_some_and(|state| state.status == 0) && !self.bindings.is_taken(bridge)
    }

    /// The first free downstream bridge of a virtual switch.
    fn free_in(&self, at: VcsPlace) -> Option<Bridge> {
        let count = self.virtual_switch(at)?.vppbs.len();
        let bridge = |vppb| Bridge { switch: at.0, vcs: at.1, vppb };
        (1..u8::try_from(count).unwrap_or(u8::MAX)).map(bridge).find(|it| self.is_free(*it))
    }

    fn free_bridge(&self, own: VcsPlace, host: &str) -> Result<Bridge, String> {
        self.free_in(own).ok_or_else(|| format!(
            "no vPPB of {host} is free: unbind one, or give the host spare_vppbs in the topology file"
        ))
    }

    /// A virtual switch that no host has: its upstream bridge, and a free downstream one.
    fn spare_switch(&self, switch: SwitchId) -> Option<(Bridge, Bridge)> {
        self.inventory.switch(switch)?.vcss.iter().find_map(|vcs| {
            let upstream = Bridge { switch, vcs: vcs.id, vppb: 0 };
            let is_spare = self.hierarchy_of((switch, vcs.id)).is_none() && self.is_free(upstream);
            let below = self.free_in((switch, vcs.id)).filter(|_| is_spare)?;
            Some((upstream, below))
        })
    }
}
