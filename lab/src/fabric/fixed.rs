//! Fabrics that come up without a manager: what each switch is set up with from the start.
//!
//! Shape: a topology -> [`Frozen`], by a manager that brings it up once in this process, in virtual time; [`sections`] is
//! what a switch of it has in its configuration.
//! Units: none.
//! Source: CXL 3.1 section 7.7.12.1 (static fabric initialization); docs/configuration.md.

use std::fmt::Write;

use weft_agent::component::{Fixed, FixedBind, FixedEnd, FixedPid};
use weft_fm::store::State;
use weft_parsers::fabric::{DrtEntry, RgtMode};

use super::embedded::{Fabric, UpError};
use super::layout::Layout;
use super::topology::{Start, Topology};
use super::world::virtual_clock;

/// A fabric as its manager has left it.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// What each switch has, by number.
    pub switches: Vec<Fixed>,
    /// What the manager knew.
    pub state: State,
}

impl Frozen {
    /// Has a manager number, route and bind the fabric, in this process.
    ///
    /// # Errors
    /// See [`UpError`]; also what a manager would tell as trouble, as nobody could mend it later.
    pub fn of(topology: &Topology) -> Result<Self, UpError> {
        let managed = Topology { start: Start::FmFirst, ..topology.clone() };
        let layout = Layout::new(&managed)?;
        let mut fabric = Fabric::start((managed, layout), &[], virtual_clock(), None)?;
        if let Some(trouble) = fabric.fm().board().status().trouble.into_iter().next() {
            return Err(UpError::Trouble(trouble));
        }
        let state = fabric.fm().state().ok_or(UpError::Stateless)?;
        let world = fabric.world();
        let switches = (0..world.layout().switches.len())
            .filter_map(|at| Some(Fixed::of(world.agent(at)?.switch())))
            .collect();
        Ok(Self { switches, state })
    }
}

/// What a switch has in its configuration; its ports are called `p0`, `p1`, and so on.
#[must_use]
pub fn sections(fixed: &Fixed) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = write(&mut text, fixed);
    text
}

fn write(text: &mut String, fixed: &Fixed) -> std::fmt::Result {
    for FixedPid { port, instance, pid } in &fixed.targets {
        let (port, pid) = (port.get(), pid.bits());
        writeln!(text, "[[pid]]\nport = \"p{port}\"\ninstance = {instance}\npid = {pid}")?;
    }
    for (number, group) in &fixed.groups {
        let ports: Vec<String> = group.ports().iter().map(|port| format!("p{port}")).collect();
        let mode = match group.mode {
            RgtMode::Random => "random",
            // No switch has the advanced mode.
            RgtMode::CongestionAvoiding | RgtMode::AdvancedCongestionAvoiding => {
                "congestion-avoiding"
            }
        };
        let (primary, mix) = (group.primary + 1, group.mix);
        writeln!(
            text,
            "[[routing_group]]\nnumber = {number}\nports = {ports:?}\nmode = {mode:?}\n\
             primary = {primary}\nmix = {mix}"
        )?;
    }
    for (to, entry) in &fixed.routes {
        let by = match entry {
            DrtEntry::Invalid => continue,
            DrtEntry::Port(port) => format!("port = \"p{port}\""),
            DrtEntry::Group(group) => format!("routing_group = {group}"),
        };
        writeln!(text, "[[route]]\npid = {}\n{by}", to.bits())?;
    }
    for FixedBind { vcs, vppb, to } in &fixed.binds {
        writeln!(text, "[[bind]]\nvcs = {vcs}\nvppb = {vppb}")?;
        match to {
            FixedEnd::Port(port) => writeln!(text, "port = \"p{}\"", port.get())?,
            FixedEnd::Link { own, far, cost } => writeln!(
                text,
                "own = {}\nfar = {}\nlatency_base = {}\nlatency = {}\nbandwidth_base = {}\n\
                 bandwidth = {}",
                own.bits(),
                far.bits(),
                cost.latency_base,
                cost.latency,
                cost.bandwidth_base,
                cost.bandwidth
            )?,
        }
    }
    Ok(())
}
