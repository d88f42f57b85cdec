//! CDATs of devices and of the switches above them, and the latency and bandwidth of the whole path to a device's
//! memory.
//!
//! [`Asked`] names the functions whose CDATs must be read, from the last enumeration; [`report`] puts the results
//! together. As in Linux, the latencies of the device and of each switch on the path are added, and the least bandwidth
//! counts. A switch below a virtual link includes the fabric's path in its own figures.
//!
//! Source: CXL 3.1 section 7.7.12.4; docs/endpoint.md "Latency and bandwidth of memory".

use std::collections::BTreeSet;

use weft_cxl::cdat::flags;
use weft_cxl::cdat::read::{Access, Contents, MemoryRange};
use weft_cxl::pci::enumerate::CdatRead;
use weft_cxl::pci::express::PortKind;
use weft_cxl::pci::tree::LeadsTo;
use weft_cxl::pci::{Node, Tree};
use weft_parsers::fabric::Bdf;
use weft_rpc::Refused;

use crate::endpoint::command::{AccessFigures, CdatDevice, CdatRange, CdatSwitch};
use crate::endpoint::number::Id;

/// The functions whose CDATs a command needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Devices to report on.
    pub devices: Vec<Bdf>,
    /// These devices, and the switches above them.
    pub functions: Vec<Bdf>,
}

/// A device's path through one switch: upstream port, and number of the downstream port.
struct Way {
    upstream: Bdf,
    port: u8,
}

fn is_device(node: &Node) -> bool {
    node.below.is_none() && !node.doe.is_empty()
}

/// Upstream ports of the CXL switches above a function, beginning at the host.
fn ways(tree: &Tree, device: Bdf) -> Vec<Way> {
    let path = tree.path(device);
    let mut ways = Vec::new();
    for (up, down) in path.iter().zip(path.iter().skip(1)) {
        if up.kind() == Some(PortKind::Upstream)
            && let Some(port) = down.port
        {
            ways.push(Way { upstream: up.bdf, port });
        }
    }
    ways
}

impl Asked {
    /// For one device, or for all devices that have a DOE mailbox.
    pub(super) fn of(tree: Option<&Tree>, device: Option<Bdf>) -> Result<Self, Refused> {
        let tree = tree.ok_or_else(|| Refused::because("nothing is known: enumerate first"))?;
        let devices: Vec<Bdf> = match device {
            None => tree.iter().filter(|node| is_device(node)).map(|node| node.bdf).collect(),
            Some(bdf) => match tree.get(bdf) {
                None => {
                    return Err(Refused::because(format!("no device at {bdf}: enumerate first")));
                }
                Some(node) if is_device(node) => vec![bdf],
                Some(_) => {
                    let text =
                        format!("{bdf} has no CDAT: only devices with memory for hosts have one");
                    return Err(Refused::because(text));
                }
            },
        };
        // A set: devices below one switch share its CDAT.
        let mut functions: BTreeSet<Bdf> = devices.iter().copied().collect();
        for device in &devices {
            functions.extend(ways(tree, *device).into_iter().map(|way| way.upstream));
        }
        Ok(Self { devices, functions: functions.into_iter().collect() })
    }

    /// The report on these devices.
    pub(super) fn report(&self, tree: &Tree, read: &[CdatRead]) -> Vec<CdatDevice> {
        self.devices.iter().map(|device| report(tree, *device, read)).collect()
    }
}

fn contents(read: &[CdatRead], bdf: Bdf) -> Result<Contents, String> {
    match read.iter().find(|one| one.bdf == bdf).map(|one| &one.result) {
        Some(Ok(structures)) => Ok(Contents::of(structures.iter().map(Vec::as_slice))),
        Some(Err(why)) => Err(why.to_string()),
        None => Err("it was not read".to_owned()),
    }
}

fn figures(access: Access) -> AccessFigures {
    // Rounded up, so that a latency below 1 ns does not read as none.
    let ns = |ps: Option<u64>| ps.map(|ps| ps.div_ceil(1_000));
    AccessFigures {
        read_latency_ns: ns(access.read_latency_ps),
        write_latency_ns: ns(access.write_latency_ps),
        read_bandwidth_mbps: access.read_bandwidth_mbps,
        write_bandwidth_mbps: access.write_bandwidth_mbps,
    }
}

/// Host address of a range of the device's memory, by the device's committed decoders.
fn hpa(node: Option<&Node>, range: &MemoryRange) -> Option<u64> {
    node?.decoders.iter().filter(|it| it.committed).find_map(|it| {
        let LeadsTo::Memory { dpa } = it.to else { return None };
        let offset = range.base.checked_sub(dpa)?;
        (offset <= it.hpa.limit - it.hpa.base).then_some(it.hpa.base.checked_add(offset))?
    })
}

fn report(tree: &Tree, device: Bdf, read: &[CdatRead]) -> CdatDevice {
    let mut errors = Vec::new();
    let (mut switches, mut above) = (Vec::new(), Access::default());
    for Way { upstream, port } in ways(tree, device) {
        let way = contents(read, upstream)
            .and_then(|it| it.way_to(port).ok_or(format!("it tells nothing of port {port}")));
        match way {
            Ok(way) => {
                above = above.through(way);
                switches.push(CdatSwitch { bdf: Id(upstream), port, access: figures(way) });
            }
            Err(why) => errors.push(format!("{upstream}: {why}")),
        }
    }
    let own = contents(read, device).unwrap_or_else(|why| {
        errors.push(format!("{device}: {why}"));
        Contents::default()
    });
    let node = tree.get(device);
    let range = |it: &MemoryRange| CdatRange {
        dpa: it.base,
        len: it.len,
        hpa: hpa(node, it),
        non_volatile: it.flags & flags::NON_VOLATILE != 0,
        dynamic: it.flags & flags::DYNAMIC != 0,
        device: figures(it.access),
        // Without the figures of a part of the path there is no sum.
        path: errors.is_empty().then(|| figures(it.access.through(above))),
    };
    let ranges = own.ranges.values().map(range).collect();
    CdatDevice { bdf: Id(device), ranges, switches, errors }
}

#[cfg(test)]
mod tests {
    use weft_cxl::cdat::{Figures, Range, memory, switch};
    use weft_cxl::pci::enumerate::CdatFailure;
    use weft_cxl::pci::tree::Below;

    use super::*;

    const DEVICE: Bdf = Bdf::new(5, 0, 0);

    fn bridge(bdf: Bdf, kind: PortKind, port: u8, nodes: Vec<Node>) -> Node {
        let doe = if kind == PortKind::Upstream { vec![0x150] } else { Vec::new() };
        let below = Some(Below { nodes, ..Below::default() });
        Node {
            bdf,
            express: Some((Some(kind), 0x40)),
            port: Some(port),
            doe,
            below,
            ..Node::default()
        }
    }

    /// A device behind two switches: at port 7 of the lower one, which is at port 2 of the upper one.
    fn tree() -> Tree {
        let device = Node { bdf: DEVICE, doe: vec![0x150], ..Node::default() };
        let plain = Node { bdf: Bdf::new(5, 1, 0), ..Node::default() };
        let down = bridge(Bdf::new(4, 6, 0), PortKind::Downstream, 7, vec![device, plain]);
        let up = bridge(Bdf::new(3, 0, 0), PortKind::Upstream, 0, vec![down]);
        let down = bridge(Bdf::new(2, 1, 0), PortKind::Downstream, 2, vec![up]);
        let up = bridge(Bdf::new(1, 0, 0), PortKind::Upstream, 0, vec![down]);
        Tree {
            nodes: vec![bridge(Bdf::new(0, 0, 0), PortKind::Root, 1, vec![up])],
            ..Tree::default()
        }
    }

    fn all(latency_ns: u64, bandwidth_mbps: u64) -> AccessFigures {
        AccessFigures {
            read_latency_ns: Some(latency_ns),
            write_latency_ns: Some(latency_ns),
            read_bandwidth_mbps: Some(bandwidth_mbps),
            write_bandwidth_mbps: Some(bandwidth_mbps),
        }
    }

    fn read() -> Vec<CdatRead> {
        let path = Figures { latency_ps: 205_000, bandwidth_mbps: 32_000 };
        let one = |bus, structures| CdatRead { bdf: Bdf::new(bus, 0, 0), result: Ok(structures) };
        vec![
            one(1, switch(&[(1, path), (2, Figures::SWITCH)])),
            one(3, switch(&[(7, Figures::SWITCH.and_path(path))])),
            one(5, memory(&[Range::plain(0, 1 << 28)], Figures::MEMORY)),
        ]
    }

    /// The sum of 150 ns at the device, 100 ns in the first switch, and 100 + 205 ns in the second, whose path has 32
    /// GB/s.
    #[test]
    fn a_way_through_switches_adds_up() {
        let (tree, read) = (tree(), read());
        let asked = Asked::of(Some(&tree), None).unwrap();
        let buses: Vec<u8> = asked.functions.iter().map(|bdf| bdf.bus()).collect();
        assert_eq!((asked.devices.as_slice(), buses), ([DEVICE].as_slice(), vec![1, 3, 5]));
        let told = asked.report(&tree, &read);
        assert_eq!(told[0].errors, [""; 0]);
        let range = &told[0].ranges[0];
        assert_eq!((range.device, range.path), (all(150, 64_000), Some(all(555, 32_000))));
        let switches: Vec<_> = told[0].switches.iter().map(|it| (it.port, it.access)).collect();
        assert_eq!(switches, [(2, all(100, 128_000)), (7, all(305, 32_000))]);
    }

    /// A report of a path with unknown parts shows the known ones, and no sum.
    #[test]
    fn a_way_that_is_not_known_has_no_sum() {
        let (tree, mut read) = (tree(), read());
        read[0].result = Err(CdatFailure::Silent);
        let told = Asked::of(Some(&tree), Some(DEVICE)).unwrap().report(&tree, &read);
        assert_eq!((told[0].ranges[0].device, told[0].ranges[0].path), (all(150, 64_000), None));
        assert!(told[0].errors[0].starts_with("01:00.0: "), "{:?}", told[0].errors);
        read.remove(2);
        let told = Asked::of(Some(&tree), Some(DEVICE)).unwrap().report(&tree, &read);
        assert_eq!((told[0].ranges.len(), told[0].errors.len()), (0, 2));
    }

    #[test]
    fn who_has_no_cdat_is_refused() {
        let tree = tree();
        for bdf in [Bdf::new(9, 0, 0), Bdf::new(5, 1, 0), Bdf::new(1, 0, 0)] {
            assert!(Asked::of(Some(&tree), Some(bdf)).is_err(), "{bdf}");
        }
        assert!(Asked::of(None, None).is_err());
    }
}
