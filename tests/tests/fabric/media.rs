//! G-FAM devices with partitions of DRAM and of persistent memory, from a topology file to loads and stores of hosts.
//!
//! `pcaps/fabric/pm.toml` → `weft_lab::fabric` in virtual time → partitions as 4905h tells them, bytes where the
//! devices have them.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 7.7.2.3; docs/spec/wire-formats.md §4.7 (4905h, 4906h); docs/fabric.md.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use weft_fm::components::media::Media;
use weft_fm::service::request::{DmpRow, ShareRow};
use weft_fm::service::{Request, Response};
use weft_fm::show::trace::{End, Via};
use weft_fm::state::desired::DesiredMemory;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Command, OwnRange};
use weft_lab::endpoint::number::{Hex, Num};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{access, books, file, look, pass, range, transfer, up, up_text};

const MIB: u64 = 1 << 20;
/// DPA and kind of each part of a memory.
type Places = Vec<(u64, Option<Media>)>;

/// Where DRAM ends and persistent memory begins in each device.
const PM: u64 = 512 * MIB;

/// What a device itself answers to a command, as the host with `from` would send it.
fn cci(fabric: &ManagedFabric, gfd: usize, opcode: u64, input: &[u8]) -> Vec<u8> {
    let command = Command::Cci { opcode: Num(opcode), input: Hex(input.to_vec()), from: 0 };
    match fabric.ask(Part::Gfd(gfd), &command).unwrap() {
        Answer::Response { code: 0, output, .. } => output.0,
        other => panic!("{opcode:#x}: {other:?}"),
    }
}

/// Base, length, block and flags of each partition of a device, by 4905h, read from the bytes.
fn partitions(fabric: &ManagedFabric, gfd: usize) -> Vec<[u64; 4]> {
    let told = cci(fabric, gfd, 0x4905, &[0, 0, 4, 0]);
    let number =
        |entry: &[u8], at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap());
    let row = |entry: &[u8]| {
        [number(entry, 0), number(entry, 16), number(entry, 24), u64::from(entry[32])]
    };
    told[4..].chunks(40).map(row).filter(|row| row[1] > 0).collect()
}

fn shares(fabric: &mut ManagedFabric) -> Vec<ShareRow> {
    match fabric.fm().request(&Request::Memory).unwrap() {
        Response::Memory(rows) => rows,
        other => panic!("{other:?}"),
    }
}

fn rows(fabric: &mut ManagedFabric) -> Vec<DmpRow> {
    match fabric.fm().request(&Request::Partitions).unwrap() {
        Response::Partitions(rows) => rows,
        other => panic!("{other:?}"),
    }
}

/// The wanted layout of the file: 20h is dynamic capacity, 04h non-volatile.
const WANTED: [[u64; 4]; 2] = [[0, PM, 16 * MIB, 0x20], [PM, 256 * MIB, 64 * MIB, 0x24]];

/// Writes by one host, and reads by another where it has it.
fn stored(fabric: &ManagedFabric, by: usize, from: usize, hpa: u64, seed: u64) {
    let there = range(hpa, 64 << 10, seed);
    let done = access(fabric, Part::Host(by), there.clone(), true);
    assert!(done.ok, "{hpa:#x}: {done:?}");
    loaded(fabric, from, hpa, seed);
}

fn loaded(fabric: &ManagedFabric, by: usize, hpa: u64, seed: u64) {
    let done = access(fabric, Part::Host(by), range(hpa, 64 << 10, seed), false);
    assert!(done.ok && done.mismatched == 0, "{hpa:#x}: {done:?}");
}

/// The partitions are set, memory of each kind is where its partition is, hosts use it, the trace names the kind, and
/// the device's CDAT has it.
#[test]
fn hosts_have_memory_of_each_kind_where_its_partition_is() {
    let mut fabric = up("pm");
    for gfd in 0..2 {
        assert_eq!(partitions(&fabric, gfd), WANTED, "GFD {gfd}");
    }
    let all = shares(&mut fabric);
    let kinds: Vec<(&str, Vec<(Media, u64)>)> = all
        .iter()
        .map(|one| {
            let part = |part: &weft_fm::service::request::PartRow| (part.media.unwrap(), part.dpa);
            (one.name.as_str(), one.parts.iter().map(part).collect())
        })
        .collect();
    let want = [
        ("any", vec![(Media::Dram, 0)]),
        ("cache", vec![(Media::Dram, 0)]),
        ("log", vec![(Media::Pm, PM); 2]),
    ];
    assert_eq!(kinds, want);
    let used: Vec<_> =
        rows(&mut fabric).iter().map(|row| (row.dmp.media, row.used / MIB)).collect();
    let (dram, pm) = (Media::Dram, Media::Pm);
    assert_eq!(used, [(dram, 64), (pm, 128), (dram, 64), (pm, 128)]);
    for (nth, one) in all.iter().enumerate() {
        let far = one.hosts.len() - 1; // h1, where it has it
        stored(&fabric, 0, far, one.hpa, nth as u64 + 1);
    }
    // The first granule of "log" is where persistent memory begins in g0; nothing of it is in DRAM.
    let peek = |dpa, seed| {
        let (addr, len, seed) = (Num(dpa), Some(Num(4_096)), Some(seed));
        let place = OwnRange { addr, len, seed, ..OwnRange::default() };
        transfer(&fabric, Part::Gfd(0), &Command::Peek(place)).ok
    };
    assert_eq!([peek(PM, 3), peek(0, 3), peek(0, 2)], [true, false, true]);
    for (hpa, text) in
        [(all[2].hpa, "1 (pm): block 0 of 64MiB"), (all[1].hpa, "0 (dram): block 0 of 16MiB")]
    {
        let ask = Request::Trace { host: "h1".to_owned(), hpa, via: Via::Uio };
        let Response::Trace(trace) = fabric.fm().request(&ask).unwrap() else { panic!("no trace") };
        let step = trace.steps.iter().find(|step| step.table == "DMP").unwrap();
        assert_eq!((step.found.as_str(), trace.end), (text, End::Memory));
    }
    books(&fabric);
}

/// A partition has no more than its own: what is too much of a kind is refused, though the device has room elsewhere.
#[test]
fn a_kind_of_memory_that_is_used_up_is_refused() {
    let mut fabric = up("pm");
    let before = (partitions(&fabric, 0), shares(&mut fabric));
    let share = |name: &str, mib: u64, media| {
        Request::Share(DesiredMemory {
            name: name.to_owned(),
            hosts: vec!["h0".to_owned()],
            gfds: vec!["g0".to_owned()],
            ways: None,
            size: mib * MIB,
            granularity: 4_096,
            hpa: 0x130_0000_0000,
            media,
            notify: false,
        })
    };
    let (pm, dram) = (Some(Media::Pm), Some(Media::Dram));
    #[rustfmt::skip] // columns: how much, kind, part of why
    let refused = [
        (512, pm,   "its largest partition of pm has 0x10000000"),
        (192, pm,   "Resources Exhausted"),
        (16,  pm,   "no multiple of 0x4000000"), // of the blocks of persistent memory
        (512, dram, "Resources Exhausted"),
        (513, None, "its largest partition has 0x20000000"),
        (512, None, "Resources Exhausted"),
    ];
    for (mib, media, why) in refused {
        let error = fabric.fm().request(&share("more", mib, media)).unwrap_err();
        assert!(error.message.contains(why), "{mib} MiB of {media:?}: {error:?}");
    }
    assert_eq!((partitions(&fabric, 0), shares(&mut fabric)), before, "nothing is left of them");
    // Any kind: DRAM has 448 MiB, then it is the turn of persistent memory.
    fabric.fm().request(&share("first", 448, None)).unwrap();
    fabric.fm().request(&Request::Release { name: "first".to_owned() }).unwrap();
    fabric.fm().request(&share("first", 384, None)).unwrap();
    let next = Request::Share(DesiredMemory {
        name: "second".to_owned(),
        hosts: vec!["h1".to_owned()],
        gfds: vec!["g0".to_owned()],
        ways: None,
        size: 128 * MIB,
        granularity: 4_096,
        hpa: 0x130_0000_0000,
        media: None,
        notify: false,
    });
    fabric.fm().request(&next).unwrap();
    let all = shares(&mut fabric);
    let kind = |name: &str| all.iter().find(|one| one.name == name).unwrap().parts[0].media;
    assert_eq!((kind("first"), kind("second")), (dram, pm));
}

/// A manager that starts again finds partitions, memory and bytes as they were, and sets nothing.
#[test]
fn a_manager_that_starts_again_leaves_partitions_and_what_they_hold() {
    let mut fabric = up("pm");
    let (all, used) = (shares(&mut fabric), rows(&mut fabric));
    for (nth, one) in all.iter().enumerate() {
        stored(&fabric, 0, 0, one.hpa, nth as u64 + 1);
    }
    fabric.restart_manager(|_| ()).unwrap();
    let status = fabric.fm().board().status();
    assert_eq!(status.errors, Vec::<String>::new());
    let events = fabric.fm().board().events(0);
    assert!(!events.iter().any(|event| event.what.contains("partitions")), "{events:?}");
    assert_eq!((shares(&mut fabric), rows(&mut fabric)), (all.clone(), used));
    for (nth, one) in all.iter().enumerate() {
        loaded(&fabric, 0, one.hpa, nth as u64 + 1);
    }
}

/// A device that is started again has one partition; it gets both again, and memory in the same places: also what was
/// given behind memory that has been released since.
#[test]
fn a_device_that_starts_again_gets_its_partitions_before_its_memory() {
    let mut fabric = up("pm");
    let late = Request::Share(DesiredMemory {
        name: "late".to_owned(),
        hosts: vec!["h1".to_owned()],
        gfds: vec!["g0".to_owned()],
        ways: None,
        size: 64 * MIB,
        granularity: 4_096,
        hpa: 0x130_0000_0000,
        media: Some(Media::Dram),
        notify: false,
    });
    fabric.fm().request(&late).unwrap();
    let (all, used) = (shares(&mut fabric), rows(&mut fabric));
    fabric.fm().request(&Request::Release { name: "cache".to_owned() }).unwrap();
    fabric.parts().stop(Part::Gfd(0)).unwrap();
    pass(&fabric, 20);
    fabric.fm().watch();
    fabric.parts().run(Part::Gfd(0));
    look(&mut fabric);
    fabric.bring_up_hosts().unwrap();
    assert_eq!(fabric.fm().board().status().errors, Vec::<String>::new());
    assert_eq!(partitions(&fabric, 0), WANTED);
    // "cache" is wanted, and is given where it was before.
    let dpas = |all: &[ShareRow]| -> Vec<(String, Places)> {
        let part = |part: &weft_fm::service::request::PartRow| (part.dpa, part.media);
        all.iter().map(|one| (one.name.clone(), one.parts.iter().map(part).collect())).collect()
    };
    assert_eq!((dpas(&shares(&mut fabric)), rows(&mut fabric)), (dpas(&all), used));
    for (nth, one) in shares(&mut fabric).iter().enumerate() {
        let by = one.hosts.len() - 1;
        let by = if one.name == "late" { 1 } else { by };
        stored(&fabric, by, by, one.hpa, nth as u64 + 1);
    }
}

/// A file without partitions has devices as ever: one partition of DRAM, that the manager does not touch.
#[test]
fn without_partitions_a_device_keeps_its_one() {
    let text = file("pm");
    let text =
        text.replace("partitions = [\"dram:512MiB\", \"pm:256MiB:64MiB\"]", "capacity_mib = 768");
    let mut fabric = up_text("without", &text.replace("media = \"pm\"", ""));
    assert_eq!(partitions(&fabric, 1), [[0, 768 * MIB, 16 * MIB, 0x20]]);
    let kinds = shares(&mut fabric).into_iter().flat_map(|one| one.parts).map(|part| part.media);
    assert!(kinds.clone().count() == 4 && kinds.into_iter().all(|kind| kind == Some(Media::Dram)));
}
