//! The wanted state of a topology, for the fabric manager.
//!
//! [`desired_state`] writes the text of docs/fm.md from a [`Topology`] and its [`Layout`].
//!
//! Source: docs/fm.md; CXL 3.1 section 7.7.6.1.

use std::fmt::Write;

use weft_fm::model::text::{UuidText, is_name};

use super::endpoint_spec::hdm_bytes;
use super::layout::gim::OWN;
use super::layout::{Layout, Part, PortRole, VppbBinding, uuid};
use super::topology::{Device, Flow, Topology};
use weft_fm::service::status::StartMode;

/// Bridge 0 of a virtual switch is the upstream one.
const UPSTREAM: u8 = 0;

/// The wanted state as the text of a file. `gae` returns the address of a host's GAE for the manager's trace.
#[must_use]
pub fn desired_state(
    topology: &Topology,
    layout: &Layout,
    gae: &dyn Fn(usize) -> Option<String>,
) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, topology, layout, gae);
    text
}

fn write(
    text: &mut String,
    topology: &Topology,
    layout: &Layout,
    gae: &dyn Fn(usize) -> Option<String>,
) -> std::fmt::Result {
    // The entry switch has no name by UUID here: the manager learns its UUID from neighbours, which it may not have.
    let entry = layout.switches.first().filter(|switch| is_name(&switch.name));
    if let Some(entry) = entry {
        let through = weft_cxl::cdat::Figures::SWITCH.latency_ps / 1_000;
        writeln!(text, "[fm]\nentry = {:?}\nswitch_ns = {through}", entry.name)?;
    }
    for switch in layout.switches.iter().skip(1) {
        let named = UuidText(uuid(switch.serial));
        writeln!(text, "[[switch]]\nname = {:?}\nuuid = \"{named}\"", switch.name)?;
    }
    for gfd in &layout.gfds {
        let named = UuidText(uuid(gfd.serial));
        writeln!(text, "[[gfd]]\nname = {:?}\nuuid = \"{named}\"", gfd.name)?;
        if let Some(partitions) = &gfd.partitions {
            let all: Vec<String> = partitions.iter().map(ToString::to_string).collect();
            writeln!(text, "partitions = {all:?}")?;
        }
    }
    let name = |at: usize| match (at, layout.switches.get(at)) {
        (0, _) => "entry",
        (_, switch) => switch.map_or("", |switch| switch.name.as_str()),
    };
    for (index, switch) in layout.switches.iter().enumerate() {
        for (number, vcs) in (0_u8..).zip(&switch.vcses) {
            if let (Some(port), Some(host)) = (vcs.usp, layout.hosts.get(vcs.host)) {
                let at = name(index);
                writeln!(text, "[[host]]\nname = {host:?}\nswitch = {at:?}\nport = {port}")?;
                if let Some(gae) = gae(vcs.host) {
                    writeln!(text, "gae = {gae:?}")?;
                }
                let [low, high] = OWN.map(|own| format!("{:#x}:{:#x}", own.base, own.len));
                writeln!(text, "own_addresses = [{low:?}, {high:?}]")?;
            }
            let is_static = topology.start == StartMode::Static; // bound by its switches
            for (vppb, shown) in (1_u8..).zip(&vcs.vppbs).filter(|_| !is_static) {
                let to = match shown {
                    VppbBinding::Port(port) => format!("port:{port}"),
                    VppbBinding::Ld(port, ld) => format!("port:{port}.{ld}"),
                    VppbBinding::Below { switch, vcs } => {
                        format!("{}/{vcs}/{UPSTREAM}", name(*switch))
                    }
                    VppbBinding::Spare => continue,
                };
                let bridge = format!("{}/{number}/{vppb}", name(index));
                writeln!(text, "[[bind]]\nbridge = {bridge:?}\nto = {to:?}")?;
            }
        }
    }
    write_devices(text, topology, layout, &name)?;
    write_memory(text, topology, layout)
}

/// Writes names and memory of devices.
fn write_devices<'a>(
    text: &mut String,
    topology: &Topology,
    layout: &'a Layout,
    name: &dyn Fn(usize) -> &'a str,
) -> std::fmt::Result {
    for (index, switch) in layout.switches.iter().enumerate() {
        for (number, port) in (0_u8..).zip(&switch.ports) {
            let (device, is_device) = match port.far.part {
                part @ Part::Device(_) => (layout.name(part), true),
                part @ Part::Hbr(_) => (layout.name(part), false),
                _ => continue,
            };
            if port.role != PortRole::Dsp {
                continue;
            }
            if let Part::Device(at) = port.far.part
                && let Some(device) = topology.devices.get(at)
            {
                write_lds(text, device, &format!("{}/port:{number}", name(index)))?;
            }
            // The manager does not accept a name that could be a PID, and uses the device's place instead. HBR switches
            // get a name if memory below them is accessed.
            if (is_device && is_name(device)) || layout.has_memory(topology, port.far.part) {
                let at = name(index);
                writeln!(text, "[[device]]\nname = {device:?}\nswitch = {at:?}\nport = {number}")?;
                if let Part::Device(at) = port.far.part
                    && topology.devices.get(at).is_some_and(|device| device.lds.is_none())
                {
                    writeln!(text, "memory = {}", hdm_bytes(topology, layout, at))?;
                }
            }
        }
    }
    Ok(())
}

/// Writes the memory and bandwidth of a device's logical devices.
fn write_lds(text: &mut String, device: &Device, place: &str) -> std::fmt::Result {
    fn of<T: Copy>(list: Option<&Vec<T>>, ld: u8) -> Option<T> {
        list?.get(usize::from(ld)).copied()
    }
    for ld in 0..device.lds.unwrap_or(0) {
        let mib = of(device.ld_mib.as_ref(), ld);
        let [bandwidth, limit] =
            [&device.ld_bandwidth, &device.ld_limit].map(|list| of(list.as_ref(), ld));
        if mib.is_none() && bandwidth.is_none() && limit.is_none() {
            continue;
        }
        writeln!(text, "[[ld]]\ndevice = {place:?}\nld = {ld}")?;
        if let Some(mib) = mib {
            writeln!(text, "memory = {}", u64::from(mib) << 20)?;
        }
        for (key, part) in [("bandwidth", bandwidth), ("limit", limit)] {
            if let Some(part) = part {
                writeln!(text, "{key} = {part}")?;
            }
        }
    }
    Ok(())
}

/// Writes all memory with its requesters: GIM, P2P and G-FAM.
fn write_memory(text: &mut String, topology: &Topology, layout: &Layout) -> std::fmt::Result {
    for gim in &layout.gim {
        let (own, of, by) = (&gim.name, layout.name(gim.of), gim.by == Flow::Prefix);
        let from: Vec<&str> = gim.from.iter().map(|part| layout.name(*part)).collect();
        let (size, hpa) = (gim.len, gim.hpa);
        writeln!(
            text,
            "[[gim]]\nname = {own:?}\nof = {of:?}\nfrom = {from:?}\nprefix = {by}\nsize = {size}\nhpa = {hpa}"
        )?;
    }
    for p2p in &layout.p2p {
        let (name, size, hpa) = (&p2p.name, p2p.len, p2p.hpa);
        let ld = p2p.ld.map_or(String::new(), |ld| format!(".{ld}"));
        let to = format!("{}{ld}", layout.name(p2p.edge));
        let from: Vec<&str> = p2p.from.iter().map(|part| layout.name(*part)).collect();
        writeln!(
            text,
            "[[p2p]]\nname = {name:?}\nfrom = {from:?}\nto = {to:?}\nsize = {size}\nhpa = {hpa}"
        )?;
    }
    for memory in &topology.memory {
        let gfds = layout.gfds(&memory.gfds).unwrap_or_default();
        let gfds: Vec<&str> =
            gfds.iter().filter_map(|&at| Some(layout.gfds.get(at)?.name.as_str())).collect();
        let super::topology::Memory { name, len, granularity, hpa, .. } = memory;
        let hosts: Vec<&String> = memory.hosts.iter().chain(&memory.devices).collect();
        writeln!(
            text,
            "[[memory]]\nname = {name:?}\nhosts = {hosts:?}\ngfds = {gfds:?}\nsize = {len}\n\
             granularity = {granularity}\nhpa = {hpa}"
        )?;
        if let Some(media) = memory.media {
            writeln!(text, "media = \"{media}\"")?;
        }
        if memory.notify {
            writeln!(text, "notify = true")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weft_fm::state::desired::DesiredState;

    use super::*;

    /// The desired state of every figure is valid, with as many bindings and shares as the figure has.
    #[test]
    fn every_figure_has_a_wanted_state() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcaps/fabric");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let topology = Topology::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let layout = Layout::new(&topology).unwrap();
            let text = desired_state(&topology, &layout, &|_| None);
            let want =
                DesiredState::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let bound = layout.switches.iter().flat_map(|switch| &switch.vcses);
            let is_managed = topology.start != StartMode::Static;
            let shown = bound.flat_map(|vcs| &vcs.vppbs);
            let shown = shown.filter(|s| **s != VppbBinding::Spare && is_managed).count();
            assert_eq!(want.binds.len(), shown, "{}", path.display());
            assert_eq!(want.memory.len(), topology.memory.len(), "{}", path.display());
            assert_eq!(want.switches.len() + 1, layout.switches.len().max(1));
        }
    }
}
