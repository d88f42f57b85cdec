//! Reads all of a switch that a discovery has claimed.
//!
//! Source: docs/spec/wire-formats.md §4.3, §4.5; CXL 3.1 sections 7.6.7.1, 7.6.7.2, 7.7.13.

use weft_parsers::cci::generic::Identity;
use weft_parsers::cci::pbr::{LinkPartner, PbrSwitchIdentity};
use weft_parsers::cci::switch::{PortList, PortState, PortStates, SwitchIdentity};
use weft_parsers::cci::{List, Request};

use super::Search;
use crate::cci::CallError;
use crate::cci::Way;
use crate::cci::switch_state::{
    PORTS_AT_ONCE, is_perst, is_up, partners, targets, virtual_switches,
};
use crate::model::graph::{Key, PortRef, SwitchId};
use crate::model::inventory::{Partner, Port, Role};

/// Role of a port by its configuration state in 5101h.
const fn role(config_state: u8) -> Role {
    match config_state {
        3 => Role::Dsp,
        4 => Role::Usp,
        5 => Role::Fabric,
        _ => Role::Off,
    }
}

fn ports(mask: &[u8; 32]) -> Vec<u8> {
    let is_set = |port: &u8| {
        mask.get(usize::from(port / 8)).is_some_and(|byte| byte & (1 << (port % 8)) != 0)
    };
    (0..=u8::MAX).filter(is_set).collect()
}

impl Search<'_> {
    /// Reads all of a switch that was claimed.
    pub(super) fn read_switch(&mut self, id: SwitchId) -> Result<(), CallError> {
        let Some(way) = self.found.switch(id).map(crate::model::inventory::DiscoveredSwitch::way)
        else {
            return Ok(());
        };
        let serial = self.fabric.call(way, &Request::Identify)?.read::<Identity>()?.serial;
        let physical = self.fabric.call(way, &Request::IdentifySwitch)?.read::<SwitchIdentity>()?;
        let pbr =
            self.fabric.call(way, &Request::IdentifyPbrSwitch)?.read::<PbrSwitchIdentity>()?;
        let mut states = Vec::new();
        for list in ports(&physical.active_ports).chunks(PORTS_AT_ONCE) {
            let request = Request::GetPortState(PortList { ports: List::of(list) });
            let answer = self.fabric.call(way, &request)?;
            states.extend(answer.read::<PortStates<'_>>()?.ports.iter());
        }
        let told = self.ask_partners(way, &states)?;
        let pid_targets = targets(self.fabric, way)?;
        let vcss = virtual_switches(self.fabric, way, &ports(&physical.active_vcss))?;
        for target in &pid_targets {
            // PIDs from the switch's own configuration: not to be given to another component.
            self.taken.insert(target.pid);
        }
        let port = |state: &PortState| {
            let (role, up) = (role(state.config_state), is_up(state.ltssm));
            let partner = match role {
                Role::Usp if up => Partner::Host,
                Role::Dsp if up => Partner::Device(state.partner_type),
                _ => Partner::Nobody,
            };
            let (width, speed) = (state.width, state.speed);
            let lds = if matches!(partner, Partner::Device(_)) { state.lds } else { 0 };
            let perst = is_perst(state.link_state);
            Port { number: state.port, role, up, width, speed, partner, lds, perst }
        };
        // Written only now that all reads have succeeded: `whole` must not stand beside half of a switch.
        if let Some(switch) = self.found.switches.get_mut(id.index()) {
            switch.serial = serial;
            (switch.modes, switch.rgts) = (pbr.modes, pbr.rgts);
            switch.ports = states.iter().map(port).collect();
            (switch.targets, switch.vcss, switch.whole) = (pid_targets, vcss, true);
        }
        for partner in told {
            self.told.insert(PortRef::new(id, partner.port), partner);
        }
        Ok(())
    }

    /// Partners of ports whose link is up, as far as they are PBR components.
    fn ask_partners(
        &mut self,
        way: Way,
        states: &[PortState],
    ) -> Result<Vec<LinkPartner>, CallError> {
        let up = |state: &&PortState| is_up(state.ltssm) && role(state.config_state) != Role::Off;
        let asked: Vec<u8> = states.iter().filter(up).map(|state| state.port).collect();
        partners(self.fabric, way, &asked)
    }
}
