//! Fabrics without a manager: the configuration that each switch has from the start.
//!
//! A [`StaticFabric`] is the result of a manager's work; [`sections`] writes the part of one switch for its
//! configuration file.
//!
//! Source: CXL 3.1 section 7.7.12.1 (static fabric initialization); docs/configuration.md.

use std::fmt::Write;

use weft_fm::model::text::mode_name;
use weft_fm::state::store::State;
use weft_parsers::fabric::DrtEntry;
use weft_pbr_switch::{BindingEnd, StaticBinding, StaticInit, StaticPid};

/// A fabric as its manager has left it, from which a static fabric starts.
#[derive(Clone, Debug)]
pub struct StaticFabric {
    /// Set-up of each switch, by number.
    pub switches: Vec<StaticInit>,
    /// The manager's state.
    pub state: State,
}

/// The sections of a switch's configuration file that set it up; its ports are called `p0`, `p1`, and so on.
#[must_use]
pub fn sections(fixed: &StaticInit) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, fixed);
    text
}

fn write(text: &mut String, fixed: &StaticInit) -> std::fmt::Result {
    for StaticPid { port, instance, pid } in &fixed.targets {
        let (port, pid) = (port.get(), pid.bits());
        writeln!(text, "[[pid]]\nport = \"p{port}\"\ninstance = {instance}\npid = {pid}")?;
    }
    for (number, group) in &fixed.groups {
        let ports: Vec<String> = group.ports().iter().map(|port| format!("p{port}")).collect();
        let mode = mode_name(group.mode); // no switch has the advanced one, which has no word there
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
    for StaticBinding { vcs, vppb, to } in &fixed.binds {
        writeln!(text, "[[bind]]\nvcs = {vcs}\nvppb = {vppb}")?;
        match to {
            BindingEnd::Port(port) => writeln!(text, "port = \"p{}\"", port.get())?,
            BindingEnd::Link { own, far, cost } => writeln!(
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
