//! The physical fabric as the FM knows it.
//!
//! Switches with numbered ports; links between two switch ports, up or down; PIDs at ports. At most 1,024 switches, 256
//! ports a switch (a port number is a byte on the wire) and 4,095 PIDs.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 sections 7.7.5 and 7.7.12.

pub mod generate;
pub mod ids;

use std::collections::BTreeMap;

use weft_parsers::fabric::Pid;

pub use ids::{Key, LinkId, Per, PortMask, PortRef, SwitchId};

/// Largest number of switches in a fabric.
pub const SWITCHES_MAX: usize = 1_024;

/// Why a graph does not take a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// There is no room for another switch.
    #[error("a fabric has at most {SWITCHES_MAX} switches")]
    TooMany,
    /// The switch is not in the graph.
    #[error("there is no switch {0}")]
    NoSwitch(SwitchId),
    /// The link is not in the graph.
    #[error("there is no link {}", .0.0)]
    NoLink(LinkId),
    /// The port does something else already.
    #[error("port {0} is in use for something else")]
    PortTaken(PortRef),
    /// The switch has no port left.
    #[error("all 256 ports of {0} are in use")]
    NoPort(SwitchId),
    /// Both ends of a link would be one port.
    #[error("port {0} cannot be linked to itself")]
    ToItself(PortRef),
    /// `0xFFF` is never assigned.
    #[error("PID fff cannot be assigned")]
    Reserved,
    /// The PID is somewhere already.
    #[error("PID {pid} is at {at} already")]
    PidTaken { pid: Pid, at: PortRef },
}

/// Use of a switch port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortUse {
    #[default]
    Free,
    /// A link to another switch, or back to this one.
    Isl { link: LinkId, far: PortRef },
    /// A host, a device or a GFD.
    Edge,
    /// The switch itself, or an FM in it: packets end here, at a port number the caller has chosen.
    LocalRange,
}

/// A link between switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub ends: [PortRef; 2],
    /// Link state as the switches at its ends report it; [`Graph::works`] also asks for the switches themselves.
    pub up: bool,
}

/// A PID, and the port at which packets to it leave the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub pid: Pid,
    /// The port; several PIDs may share one.
    pub at: PortRef,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Switch {
    up: bool,
    /// Use of port 0, 1, ...; those behind the last are free.
    ports: Vec<PortUse>,
}

/// The topology that routes are made for: switches, links between them, and PIDs at their ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    switches: Per<SwitchId, Switch>,
    links: Per<LinkId, Link>,
    endpoints: BTreeMap<u16, Endpoint>,
}

impl Graph {
    /// Adds a switch, which works until [`set_switch`](Self::set_switch) says otherwise.
    ///
    /// # Errors
    /// There are 1,024 already.
    pub fn add_switch(&mut self) -> Result<SwitchId, GraphError> {
        if self.switches.len() >= SWITCHES_MAX {
            // Checked here, so that every `SwitchId` of a graph fits its 16 bits.
            return Err(GraphError::TooMany);
        }
        Ok(self.switches.push(Switch { up: true, ports: Vec::new() }))
    }

    /// Links two ports; both may be of one switch.
    ///
    /// # Errors
    /// A switch is unknown, or a port is in use.
    pub fn link(&mut self, a: PortRef, b: PortRef) -> Result<LinkId, GraphError> {
        if a == b {
            return Err(GraphError::ToItself(a));
        }
        for port in [a, b] {
            if self.port(port)? != PortUse::Free {
                return Err(GraphError::PortTaken(port));
            }
        }
        let link = self.links.push(Link { ends: [a, b], up: true });
        self.set_port(a, PortUse::Isl { link, far: b });
        self.set_port(b, PortUse::Isl { link, far: a });
        Ok(link)
    }

    /// Attaches a PID to an edge port; several may share one.
    ///
    /// # Errors
    /// The PID is `0xFFF` or somewhere already, the switch is unknown, or the port is used otherwise.
    pub fn attach(&mut self, pid: Pid, at: PortRef) -> Result<(), GraphError> {
        self.put(pid, at, PortUse::Edge)
    }

    /// Attaches a PID to the switch itself, under a port number that nothing else has.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_own(&mut self, pid: Pid, at: PortRef) -> Result<(), GraphError> {
        self.put(pid, at, PortUse::LocalRange)
    }

    fn put(&mut self, pid: Pid, at: PortRef, becomes: PortUse) -> Result<(), GraphError> {
        if pid.is_none() {
            return Err(GraphError::Reserved);
        }
        if let Some(taken) = self.endpoint(pid) {
            return Err(GraphError::PidTaken { pid, at: taken.at });
        }
        let now = self.port(at)?;
        // Several PIDs may share an edge port (LDs, instances of a target), so the same use again is no conflict.
        if now != PortUse::Free && now != becomes {
            return Err(GraphError::PortTaken(at));
        }
        self.set_port(at, becomes);
        self.endpoints.insert(pid.bits(), Endpoint { pid, at });
        Ok(())
    }

    /// Detaches a PID and returns where it was; its port keeps its use.
    pub fn detach(&mut self, pid: Pid) -> Option<Endpoint> {
        self.endpoints.remove(&pid.bits())
    }

    /// Notes that a link works, or does not.
    ///
    /// # Errors
    /// The link is unknown.
    pub fn set_link(&mut self, link: LinkId, up: bool) -> Result<(), GraphError> {
        self.links.find(link).ok_or(GraphError::NoLink(link))?;
        self.links[link].up = up;
        Ok(())
    }

    /// Notes that a switch works, or that it and all at it is lost.
    ///
    /// # Errors
    /// The switch is unknown.
    pub fn set_switch(&mut self, switch: SwitchId, up: bool) -> Result<(), GraphError> {
        self.switches.find(switch).ok_or(GraphError::NoSwitch(switch))?;
        self.switches[switch].up = up;
        Ok(())
    }

    /// Number of switches, lost ones too.
    #[must_use]
    pub const fn switch_count(&self) -> usize {
        self.switches.len()
    }

    /// All switches, lost ones included.
    pub fn switches(&self) -> impl Iterator<Item = SwitchId> + use<> {
        self.switches.keys()
    }

    /// Whether a switch works.
    #[must_use]
    pub fn is_up(&self, switch: SwitchId) -> bool {
        self.switches.find(switch).is_some_and(|switch| switch.up)
    }

    pub fn links(&self) -> impl Iterator<Item = (LinkId, Link)> {
        self.links.iter().map(|(id, &link)| (id, link))
    }

    /// Whether a link and the switches at both its ends work.
    #[must_use]
    pub fn works(&self, link: LinkId) -> bool {
        self.links
            .find(link)
            .is_some_and(|link| link.up && link.ends.iter().all(|end| self.is_up(end.switch)))
    }

    /// All PIDs, in ascending order.
    pub fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        self.endpoints.values().copied()
    }

    #[must_use]
    pub fn endpoint_count(&self) -> usize {
        self.endpoints.len()
    }

    #[must_use]
    pub fn endpoint(&self, pid: Pid) -> Option<Endpoint> {
        self.endpoints.get(&pid.bits()).copied()
    }

    /// Use of a port; a number that was never set is free.
    ///
    /// # Errors
    /// The switch is unknown.
    pub fn port(&self, at: PortRef) -> Result<PortUse, GraphError> {
        let switch = self.switches.find(at.switch).ok_or(GraphError::NoSwitch(at.switch))?;
        Ok(switch.ports.get(usize::from(at.port)).copied().unwrap_or_default())
    }

    /// Ports of a switch that are in use, and their use, in ascending order of numbers.
    pub fn ports(&self, switch: SwitchId) -> impl Iterator<Item = (u8, PortUse)> {
        let ports = self.switches.find(switch).map(|s| s.ports.as_slice()).unwrap_or_default();
        (0..=u8::MAX).zip(ports.iter().copied()).filter(|(_, what)| *what != PortUse::Free)
    }

    /// The lowest free port of a switch.
    ///
    /// # Errors
    /// The switch is unknown or has none.
    pub fn free_port(&self, switch: SwitchId) -> Result<PortRef, GraphError> {
        for port in 0..=u8::MAX {
            let at = PortRef::new(switch, port);
            if self.port(at)? == PortUse::Free {
                return Ok(at);
            }
        }
        Err(GraphError::NoPort(switch))
    }

    /// The far end of a link that works, at one of its ends.
    #[must_use]
    pub fn far(&self, at: PortRef) -> Option<PortRef> {
        match self.port(at) {
            Ok(PortUse::Isl { link, far }) if self.works(link) => Some(far),
            _ => None,
        }
    }

    fn set_port(&mut self, at: PortRef, becomes: PortUse) {
        let ports = &mut self.switches[at.switch].ports;
        let place = usize::from(at.port);
        // Ports are stored up to the highest one in use: most switches use a few of the 256.
        if ports.len() <= place {
            ports.resize(place + 1, PortUse::Free);
        }
        if let Some(port) = ports.get_mut(place) {
            *port = becomes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(bits: u16) -> Pid {
        Pid::from_low_bits(bits)
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut graph = Graph::default();
        let (a, b) = (graph.add_switch().unwrap(), graph.add_switch().unwrap());
        let link = graph.link(PortRef::new(a, 0), PortRef::new(b, 255)).unwrap();
        graph.attach(pid(1), PortRef::new(a, 1)).unwrap();
        graph.attach(pid(2), PortRef::new(a, 1)).unwrap();
        graph.attach_own(pid(3), PortRef::new(b, 7)).unwrap();
        let taken = PortRef::new(a, 0);
        #[rustfmt::skip] // columns: name, got, want
        let cases = [
            ("isl as edge", graph.attach(pid(9), taken), GraphError::PortTaken(taken)),
            ("edge as own", graph.attach_own(pid(9), PortRef::new(a, 1)), GraphError::PortTaken(PortRef::new(a, 1))),
            ("pid twice", graph.attach(pid(1), PortRef::new(b, 1)), GraphError::PidTaken { pid: pid(1), at: PortRef::new(a, 1) }),
            ("fff", graph.attach(Pid::NONE, PortRef::new(b, 1)), GraphError::Reserved),
            ("no switch", graph.attach(pid(9), PortRef::new(SwitchId(2), 1)), GraphError::NoSwitch(SwitchId(2))),
            ("no link", graph.set_link(LinkId(1), false), GraphError::NoLink(LinkId(1))),
            ("no such switch", graph.set_switch(SwitchId(5), false), GraphError::NoSwitch(SwitchId(5))),
        ];
        for (name, got, want) in cases {
            assert_eq!(got, Err(want), "{name}");
        }
        assert_eq!(graph.link(taken, PortRef::new(b, 3)), Err(GraphError::PortTaken(taken)));
        let free = PortRef::new(b, 3);
        assert_eq!(graph.link(free, free), Err(GraphError::ToItself(free)));
        assert_eq!((graph.endpoint_count(), graph.links().count()), (3, 1));
        assert_eq!(graph.far(taken), Some(PortRef::new(b, 255)));
        graph.set_switch(b, false).unwrap();
        assert_eq!((graph.far(taken), graph.works(link)), (None, false));
    }

    #[test]
    fn a_fabric_has_1024_switches_and_a_switch_256_ports() {
        let mut graph = Graph::default();
        for _ in 0..SWITCHES_MAX {
            graph.add_switch().unwrap();
        }
        assert_eq!(graph.add_switch(), Err(GraphError::TooMany));
        for port in 0..=255 {
            assert_eq!(graph.free_port(SwitchId(0)), Ok(PortRef::new(SwitchId(0), port)));
            graph.attach(pid(7 + u16::from(port)), PortRef::new(SwitchId(0), port)).unwrap();
        }
        assert_eq!(graph.free_port(SwitchId(0)), Err(GraphError::NoPort(SwitchId(0))));
    }
}
