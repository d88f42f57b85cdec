//! Registers as `lspci` understands them: it reads a dump and prints its findings.
//!
//! A tree is enumerated in memory, dumped as `lspci -xxxx` would, and read by `lspci -F`.
//!
//! Units: bytes.
//! Source: pciutils, whose reading of the layouts is independent of ours.

use std::fmt::Write as _;
use std::process::Command;

use weft_parsers::fabric::Bdf;

use super::cxl::{BlockId, CxlKind, CxlSpec, RegisterBlock};
use super::enumerate::{HostSpec, enumerate};
use super::express::Identity;
use super::function::{BarKind, BarSpec, Function, FunctionSpec, LnrSpec};
use super::space::Space;
use super::testing::{Fabric, Thing, at, port};
use super::{PortKind, Uncorrectable};

/// A dump of all functions of `fabric` at `places`.
fn dump(fabric: &mut Fabric, places: &[Bdf]) -> String {
    let mut text = String::new();
    for bdf in places {
        let space: &Space = match fabric.place(*bdf).map(|place| &place.thing) {
            Some(Thing::Function(function)) => function.space(),
            Some(Thing::Port(bridge, _)) => bridge.space(),
            Some(Thing::Raw(space)) => space,
            None => panic!("nothing at {bdf}"),
        };
        writeln!(text, "{bdf} of weft").unwrap();
        for (line, bytes) in space.bytes().chunks(16).enumerate() {
            write!(text, "{:02x}:", line * 16).unwrap();
            for byte in bytes {
                write!(text, " {byte:02x}").unwrap();
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

fn accelerator() -> Thing {
    let mut bars = [None; 6];
    bars[0] = Some(BarSpec { kind: BarKind::Mem64 { prefetch: true }, size: 256 << 20 });
    bars[2] = Some(BarSpec { kind: BarKind::Mem32 { prefetch: false }, size: 128 << 10 });
    bars[3] = Some(BarSpec { kind: BarKind::Io, size: 32 });
    let function = Function::new(&FunctionSpec {
        identity: Identity {
            vendor: 0x1E98,
            device: 0xACCE,
            revision: 3,
            class: 0x12_00_00,
            subsystem: (0x1E98, 0x0042),
        },
        bars,
        serial: Some(0x0123_4567_89AB_CDEF),
        lnr: Some(LnrSpec { cls64: true, cls128: true, registrations: 19 }),
        cxl: Some(CxlSpec { kind: CxlKind::Type2, memory: 4 << 30, base: 0 }),
        blocks: vec![RegisterBlock { bar: 2, id: BlockId::Device as u8, offset: 0x1_0000 }],
        ..FunctionSpec::default()
    });
    Thing::Function(Box::new(function.unwrap()))
}

/// Output of `lspci` for a dump, one string for each function; `None` if `lspci` is not installed.
fn lspci(text: &str) -> Option<Vec<String>> {
    if Command::new("lspci").arg("--version").output().is_err() {
        return None;
    }
    let file = std::env::temp_dir().join(format!("weft-lspci-{}", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let out = Command::new("lspci").args(["-nn", "-vvv", "-F"]).arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    let out = out.unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    Some(said.trim().split("\n\n").map(str::to_owned).collect())
}

/// Bus of each function, and strings that its description must contain, in this order.
#[rustfmt::skip]
const WANTED: [(usize, &[&str]); 4] = [
    (0, &[
        "PCI bridge [0604]: Device [1e98:5004] (rev 01)",
        "Bus: primary=00, secondary=01, subordinate=05",
        "I/O behind bridge: 00001000-00001fff [size=4K]",
        "Memory behind bridge: 80000000-803fffff [size=4M]",
        "Prefetchable memory behind bridge: 0000004000000000-000000400fffffff [size=256M]",
        "Express (v2) Root Port (Slot+)",
        "MaxPayload 128 bytes, MaxReadReq 512 bytes",
        "LnkCap:\tPort #1, Speed 64GT/s, Width x16",
        "Surprise+ LLActRep+",
        "DLActive+",
        "HotPlug+ Surprise-",
        "Slot #1",
        "PresDet+ CmdCplt- HPIrq+ LinkChg+",
        "Changed: MRL- PresDet- LinkState-",
        "MSI: Enable+ Count=1/1 Maskable- 64bit+",
        "[100 v2] Advanced Error Reporting",
        "RootCmd: CERptEn- NFERptEn- FERptEn-",
    ]),
    (1, &[
        "Express (v2) Upstream Port",
        "CorrErr+ NonFatalErr+ FatalErr+ UnsupReq+",
        "DLActive-",
        "MSI: Enable-",
    ]),
    (2, &[
        "Bus: primary=02, secondary=03, subordinate=05",
        "Express (v2) Downstream Port (Slot+)",
        "DevSta:\tCorrErr+ NonFatalErr- FatalErr+ UnsupReq-",
        "LnkSta:\tSpeed unknown, Width x0",
        "DLActive-",
        "PresDet+ Interlock-",
        "Changed: MRL- PresDet- LinkState+",
        "Address: 00000000fee00000  Data: 0200",
        "UESta:\tDLP- SDES+ TLP- FCP- CmpltTO- CmpltAbrt- UnxCmplt+ RxOF- MalfTLP- ECRC- UnsupReq-",
        "UESvrt:\tDLP- SDES+",
        "AdvNonFatalErr+",
        "First Error Pointer: 10",
    ]),
    (3, &[
        "Processing accelerators [1200]: Device [1e98:acce] (rev 03)",
        "Subsystem: Device [1e98:0042]",
        "I/O+ Mem+ BusMaster+",
        "Region 0: Memory at 4000000000 (64-bit, prefetchable)",
        "Region 2: Memory at 80000000 (32-bit, non-prefetchable)",
        "Region 3: I/O ports at 1000",
        "Express (v2) Endpoint",
        "FLReset+",
        "Device Serial Number 01-23-45-67-89-ab-cd-ef",
        "[138 v1] LN Requester",
        "Vendor=1e98 ID=0000 Rev=1 Len=56: CXL",
        "CXLCap:\tCache+ IO+ Mem+ Mem HW Init+ HDMCount 1",
        "CXLCtl:\tCache- IO+ Mem-",
        "Range1: 0000000000000000-00000000ffffffff",
        "Valid+ Active+ Type=CDAT Class=CDAT",
        "Vendor=1e98 ID=0008 Rev=0 Len=20: CXL",
        "Block1: BIR: bar2, ID: CXL device registers, offset: 0000000000010000",
    ]),
];

#[test]
fn lspci_reads_what_was_meant() {
    let down = port(PortKind::Downstream, 9, vec![at(0, 0, accelerator())]);
    let up = port(PortKind::Upstream, 0, vec![at(0, 0, down)]);
    let root = port(PortKind::Root, 1, vec![at(0, 0, up)]);
    let mut fabric = Fabric { root: vec![at(0, 0, root)], waited_ns: 0 };
    enumerate(HostSpec::default(), &mut fabric).unwrap();
    let places = [0, 1, 2, 3].map(|bus| Bdf::new(bus, 0, 0));
    let below = dump(&mut fabric, &places[3..]);
    let _ = fabric.bridge(places[2]).report(Uncorrectable::UnexpectedCompletion, false, [0; 4]);
    let _ = fabric.bridge(places[2]).lose_link();
    let Some(said) = lspci(&(dump(&mut fabric, &places[..3]) + &below)) else {
        eprintln!("SKIPPED lspci_reads_what_was_meant: no lspci (install pciutils)");
        return;
    };
    assert_eq!(said.len(), 4);
    for (bus, parts) in WANTED {
        let mut left = said[bus].as_str();
        for part in parts {
            let found = left.find(part);
            let found = found.unwrap_or_else(|| panic!("bus {bus}: no {part:?} in\n{left}"));
            left = &left[found + part.len()..];
        }
        for broken in ["<chain looped>", "<chain broken>", "<unreadable>", "<access denied>"] {
            assert!(!said[bus].contains(broken), "bus {bus}: {broken}");
        }
    }
}
