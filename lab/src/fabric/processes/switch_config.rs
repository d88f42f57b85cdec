//! Configuration file of a switch that runs as a process: TOML for `weft run`.
//!
//! Source: docs/configuration.md.

use std::fmt::Write as _;
use std::path::Path;

use weft_fm::model::text::UuidText;

use super::Processes;
use crate::fabric::layout::{End, Part, PortRole, uuid};
use crate::fabric::static_init::sections;

/// `Max_Payload_Size` of each link in bytes.
const MAX_PAYLOAD: u16 = 512;

impl Processes {
    /// The configuration file of a switch.
    pub(super) fn switch_config(&self, at: usize, folder: &Path) -> String {
        let mut text = String::new();
        let Some(switch) = self.layout.switches.get(at) else { return text };
        let named = UuidText(uuid(switch.serial));
        let path = |name: &str| folder.join(name).display().to_string();
        let (socket, cci) = (path("mgmt.sock"), self.cci_config(at, folder));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[switch]\nname = {:?}\nnum_priorities = 8\n[run]\nsocket = {socket:?}\n\
             [fabric]\nuuid = \"{named}\"\nserial = {}\n{cci}threads = 4\n",
            switch.name, switch.serial
        );
        let fixed =
            self.static_fabric.as_ref().and_then(|static_fabric| static_fabric.switches.get(at));
        if let Some(fixed) = fixed {
            let _ = writeln!(text, "pid = {}", fixed.pid.bits());
        }
        for (number, port) in (0..=u8::MAX).zip(&switch.ports) {
            let role = match port.role {
                PortRole::Usp => "usp",
                PortRole::Dsp => "dsp",
                PortRole::Fabric => "fport",
            };
            let device = self.device(End { part: Part::Switch(at), port: number });
            let _ = write!(
                text,
                "[[port]]\nname = \"p{number}\"\nkind = \"af_packet\"\ndevice = {device:?}\n\
                 role = {role:?}\nmax_payload = {MAX_PAYLOAD}\n"
            );
            if !self.layout.is_flit(port.far.part) {
                text += "tlp = \"non-flit\"\n";
            }
        }
        for vcs in &switch.vcses {
            let _ = writeln!(text, "[[vcs]]\nvppbs = {}", vcs.vppbs.len());
            if let Some(port) = vcs.usp {
                let _ = writeln!(text, "usp = \"p{port}\"");
            }
        }
        if let Some(fixed) = fixed {
            text += &sections(fixed);
        }
        text
    }
}
