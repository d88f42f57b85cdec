//! CDATs by DOE: a host reads those of memory devices and of the HBR switch above them, and what resets leave.
//!
//! A host, an HBR switch and devices joined by pipes; registers and [`weft_cxl::cdat::read`].
//!
//! Units: ns, MB/s, bytes.
//! Source: PCIe 6.0 §6.30; CXL 3.1 §8.1.11; docs/spec/cxl-fabric.md "CDAT".

use crate::rig::{Net, Place, device_config, function, host_config};
use weft_cxl::cdat::Figures;
use weft_cxl::cdat::read::Contents;
use weft_cxl::cxl_device::{FunctionConfig, HdmConfig, HdmMemory};
use weft_cxl::cxl_host::Event;
use weft_cxl::pci::enumerate::{CdatFailure, CdatRead};
use weft_cxl::pci::tree::Tree;
use weft_cxl::pci::{ByteEnables, Reg};
use weft_cxl::requester::Operation;
use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::Mode;

const UNIT: u64 = 256 << 20;
const FIGURES: Figures = Figures { latency_ps: 230_000, bandwidth_mbps: 100_000 };

/// A host with a memory device and one without memory below an HBR switch.
fn net(mode: Mode) -> Net {
    let mut net = Net::new();
    let host = net.host(host_config(mode));
    let switch = net.switch(&[mode; 3], true);
    net.join(host, Place::Switch(switch, 0));
    let hdm = HdmConfig { base: None, memory: HdmMemory::Own(2 * UNIT), figures: FIGURES };
    let memory = FunctionConfig { hdm: Some(hdm), ..function(0x0D01) };
    for (at, one) in [(2, memory), (1, function(0x0D02))] {
        let device = net.device(device_config(mode, vec![one]));
        net.join(device, Place::Switch(switch, at));
    }
    net.step();
    net.enumerate(0);
    net
}

fn tree(net: &Net) -> &Tree {
    net.hosts[0].0.tree().unwrap()
}

fn bdf(net: &Net, device: u16) -> Bdf {
    tree(net).iter().find(|node| node.device == device).unwrap().bdf
}

fn read(net: &mut Net, functions: &[Bdf]) -> Vec<CdatRead> {
    assert!(net.hosts[0].0.read_cdats(functions.to_vec()));
    assert!(!net.hosts[0].0.read_cdats(functions.to_vec()), "one after the other");
    let done = |event| if let Event::Cdats(read) = event { Some(read) } else { None };
    net.until(0, done)
}

fn contents(read: &CdatRead) -> Contents {
    Contents::of(read.result.as_ref().unwrap().iter().map(Vec::as_slice))
}

#[test]
fn a_host_reads_the_tables_of_a_device_and_of_the_switch_above() {
    for mode in [Mode::NonFlit, Mode::Flit] {
        let mut net = net(mode);
        let (memory, plain) = (bdf(&net, 0x0D01), bdf(&net, 0x0D02));
        let path: Vec<_> =
            tree(&net).path(memory).iter().map(|node| (node.bdf, node.port)).collect();
        let [_, (upstream, Some(0)), (_, Some(2)), (end, None)] = path[..] else {
            panic!("{path:?}")
        };
        assert_eq!(end, memory);
        let all = read(&mut net, &[memory, upstream, plain, Bdf::new(99, 0, 0)]);
        let range = contents(&all[0]).ranges[&0];
        assert_eq!((range.base, range.len, range.flags), (0, 2 * UNIT, 0));
        assert_eq!(range.access.write_latency_ps, Some(230_000));
        assert_eq!(range.access.read_bandwidth_mbps, Some(100_000));
        let way = contents(&all[1]).way_to(2).unwrap();
        let whole = range.access.through(way);
        assert_eq!(whole.read_latency_ps, Some(330_000));
        assert_eq!(whole.write_bandwidth_mbps, Some(100_000));
        assert_eq!(contents(&all[1]).way_to(3), None, "the switch has two ports");
        for one in &all[2..] {
            assert_eq!(one.result, Err(CdatFailure::None), "{}", one.bdf);
        }
        net.steps(4);
        assert_eq!(net.used(), 0);
    }
}

/// What software has left half-done is gone after a reset of the link, and with the next reader.
#[test]
fn a_reset_empties_the_mailbox() {
    let mut net = net(Mode::Flit);
    let memory = bdf(&net, 0x0D01);
    let at = tree(&net).get(memory).unwrap().doe[0];
    let status = |net: &Net| net.devices[0].0.function(0).unwrap().space().get32(at + 0x0C);
    let write = |net: &mut Net, register: u16, value| {
        let (reg, enables) = (Reg::at(at + register), ByteEnables::ALL);
        let what = Operation::ConfigWrite { dest: memory, reg, type1: true, value, enables };
        let op = net.hosts[0].0.submit(what);
        net.wait(0, op).unwrap();
    };
    let ask = |net: &mut Net| {
        for (register, value) in [(0x10, 0x0002_1E98), (0x10, 3), (0x10, 0), (8, 1 << 31)] {
            write(net, register, value);
        }
    };
    ask(&mut net);
    assert_eq!(status(&net), 1 << 31);
    assert!(read(&mut net, &[memory])[0].result.is_ok(), "the next reader aborts what was left");
    ask(&mut net);
    net.devices[0].0.hot_reset();
    assert_eq!(status(&net), 0);
    write(&mut net, 0x14, 0);
    assert_eq!(status(&net), 1 << 2, "nothing is there to be read");
    assert!(read(&mut net, &[memory])[0].result.is_ok());
}
