//! Specification of each endpoint of a fabric.
//!
//! [`endpoint_spec`] makes the same [`EndpointSpec`] for a part of a [`Layout`] in one process and in many.
//!
//! Source: docs/fabric.md; docs/endpoint.md.

use super::layout::{Layout, Part};
use super::topology::{DeviceKind, Topology};
use crate::endpoint::number::Num;
use crate::endpoint::spec::Common;
use crate::endpoint::{DeviceSpec, EndpointSpec, GfdSpec, HbrSpec, HostSpec};

/// Hosts' addresses of fabric memory: from 1 TiB on, for 256 TiB.
const FABRIC_WINDOW: &str = "0x10000000000:0x1000000000000";

/// The specification of a part; `None` for a PBR switch. `port` names its ports by number.
#[must_use]
pub fn endpoint_spec(
    topology: &Topology,
    layout: &Layout,
    part: Part,
    port: &dyn Fn(u8) -> String,
) -> Option<EndpointSpec> {
    let name = Some(layout.name(part).to_owned());
    let port = (0..layout.link_count(part)).map(port).collect();
    let mode = (!layout.is_flit(part)).then(|| "non-flit".to_owned());
    let gbps = match part {
        Part::Device(at) => topology.devices.get(at).and_then(|device| device.gbps),
        Part::Gfd(at) => layout.gfds.get(at).and_then(|gfd| gfd.gbps),
        Part::Switch(_) | Part::Host(_) | Part::Hbr(_) => None,
    };
    let common = Common { port, name, mode, gbps, ..Common::default() };
    Some(match part {
        Part::Switch(_) => return None,
        Part::Host(at) => {
            let host = topology.hosts.get(at)?;
            let hpa_memory = vec![format!("{}MiB", host.memory_mib)];
            let fabric_window = Some(FABRIC_WINDOW.to_owned());
            let (ln_lines, ln_watchers) = (host.ln_lines, host.ln_watchers);
            let cache_lines = (host.cache_lines > 0).then_some(Num(u64::from(host.cache_lines)));
            HostSpec {
                common,
                hpa_memory,
                fabric_window,
                cache_lines,
                snoop_ms: host.snoop_ms.map(|ms| Num(ms.into())),
                ln_lines,
                ln_watchers,
                enable_use_fabric_mem: host.enable_use_fabric_mem,
                segment: (host.segment > 0).then(|| Num(host.segment.into())),
                ..HostSpec::default()
            }
            .into()
        }
        Part::Device(at) => device_spec(topology, layout, at, common)?.into(),
        Part::Hbr(at) => {
            layout.hbrs.get(at)?;
            HbrSpec { common, ..HbrSpec::default() }.into()
        }
        Part::Gfd(at) => {
            let gfd = layout.gfds.get(at)?;
            let capacity = Some(Num(u64::from(gfd.capacity_mib) << 20));
            let serial = Some(Num(gfd.serial));
            let number = |value: Option<u32>| value.map(|value| Num(value.into()));
            GfdSpec {
                common,
                capacity,
                serial,
                coherent: gfd.coherent,
                filter_lines: number(gfd.filter_lines),
                snoop_ms: number(gfd.snoop_ms),
                managed: true,
                ..GfdSpec::default()
            }
            .into()
        }
    })
}

/// The specification of a device.
fn device_spec(
    topology: &Topology,
    layout: &Layout,
    at: usize,
    common: Common,
) -> Option<DeviceSpec> {
    let device = topology.devices.get(at)?;
    // Ids count up, so that a device can be recognised in a host's tree.
    let [.., high, low] = at.to_be_bytes();
    let device_id = Some(Num(0x0D00 + u64::from(u16::from_be_bytes([high, low]))));
    let gim = device.kind != DeviceKind::Memory;
    let gim_memory = layout.device_gim(at);
    let (lnr, lds) = (device.lnr, device.lds);
    let bytes = |mib| Num(u64::from(mib) << 20);
    let (capacity, dynamic) = (device.capacity_mib.map(bytes), device.dynamic_mib.map(bytes));
    let size = hdm_bytes(topology, layout, at);
    // Others access HDM at a fixed address; the host chooses one where no others do.
    let hdm = match layout.device_hdm(at) {
        Some((hpa, _)) => Some(format!("{hpa:#x}:{size:#x}")),
        None => (size > 0).then(|| format!("{size:#x}")),
    };
    // Without logical devices the HDM has this size already.
    let capacity = capacity.filter(|_| lds.is_some());
    let bar = device.bar_mib.map(|mib| format!("0=pref64:{mib}MiB"));
    let bar = bar.into_iter().collect();
    let spec = DeviceSpec { common, bar, device_id, hdm, lnr, gim, ..DeviceSpec::default() };
    let ld_at = layout.device_lds(at);
    let enable_use_fabric_mem = device.enable_use_fabric_mem;
    let fabric_window = enable_use_fabric_mem.then(|| FABRIC_WINDOW.to_owned());
    let cache_lines = (device.cache_lines > 0).then_some(Num(u64::from(device.cache_lines)));
    Some(DeviceSpec {
        cache_lines,
        lds,
        ld_at,
        capacity,
        dynamic,
        gim_memory,
        latency_ns: device.latency_ns,
        bandwidth_mbps: device.bandwidth_mbps,
        fabric_window,
        enable_use_fabric_mem,
        ..spec
    })
}

/// Length of a device's host-managed memory (HDM), at least the part that others access; 0 for none. Logical devices
/// have their own.
#[must_use]
pub fn hdm_bytes(topology: &Topology, layout: &Layout, device: usize) -> u64 {
    let given = layout.device_hdm(device).map_or(0, |(_, len)| len);
    let own = topology.devices.get(device).filter(|device| device.lds.is_none());
    let capacity = own.and_then(|device| device.capacity_mib).map_or(0, u64::from);
    given.max(capacity << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endpoint has the rate of the file, and an impossible rate is refused.
    #[test]
    fn devices_and_gfds_have_the_rate_that_the_file_says() {
        let file = |gbps: u64| {
            format!(
                "switch = [{{ name = \"sw\" }}]\nhost = [{{ name = \"h\", at = \"sw\", bind = [\"d\"] }}]\n\
                 device = [{{ name = \"d\", at = \"sw\", kind = \"memory\", gbps = {gbps} }}]\n\
                 gfd = [{{ name = \"g\", at = \"sw\", gbps = {} }}]",
                gbps + 1
            )
        };
        let topology = Topology::parse(&file(2)).unwrap();
        let layout = Layout::new(&topology).unwrap();
        let rate = |part| {
            let mut spec = endpoint_spec(&topology, &layout, part, &|_| "x".to_owned()).unwrap();
            spec.common_mut().gbps
        };
        let all = [Part::Host(0), Part::Device(0), Part::Gfd(0)].map(rate);
        assert_eq!(all, [None, Some(2), Some(3)]);
        let why = crate::fabric::topology_file::read(&file(0)).map(drop).unwrap_err().to_string();
        assert!(why.contains("d: gbps: expected 1 to 1600, found 0"), "{why}");
    }

    /// A GFD has the coherence settings of the file.
    #[test]
    fn gfds_have_the_coherence_that_the_file_says() {
        let file = "switch = [{ name = \"sw\" }]\n\
                    gfd = [{ name = \"g\", at = \"sw\", coherent = true, filter_lines = 7, snoop_ms = 90 }]";
        let topology = Topology::parse(file).unwrap();
        let layout = Layout::new(&topology).unwrap();
        let spec = endpoint_spec(&topology, &layout, Part::Gfd(0), &|_| "x".to_owned()).unwrap();
        let EndpointSpec::Gfd(gfd) = spec else { panic!("no GFD: {spec:?}") };
        let settings = (gfd.coherent, gfd.filter_lines, gfd.snoop_ms);
        assert_eq!(settings, (true, Some(Num(7)), Some(Num(90))));
    }

    /// The specification that a process reads from its file equals that of a fabric in one process.
    #[test]
    fn every_endpoint_of_every_figure_is_read_back_from_its_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcaps/fabric");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let topology = Topology::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let layout = Layout::new(&topology).unwrap();
            for part in layout.endpoints() {
                let port = |port| format!("af_packet:{part:?} \"{port}\"");
                let spec = endpoint_spec(&topology, &layout, part, &port).unwrap();
                let text = spec.to_toml();
                let nothing = match &spec {
                    EndpointSpec::Host(_) => HostSpec::default().into(),
                    EndpointSpec::Device(_) => DeviceSpec::default().into(),
                    EndpointSpec::Gfd(_) => GfdSpec::default().into(),
                    EndpointSpec::Hbr(_) => EndpointSpec::from(HbrSpec::default()),
                };
                let read = nothing.over(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
                assert_eq!(format!("{read:?}"), format!("{spec:?}"), "{text}");
                assert!(spec.endpoint(&[]).is_ok(), "{text}");
                count += 1;
            }
        }
        assert!(count > 20, "{count}");
    }
}
