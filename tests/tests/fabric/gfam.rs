//! Memory end to end in one process: two hosts, an accelerator, 256 G-FAM devices, and the manager that gives them memory.
//!
//! `pcaps/fabric/gfam-256.toml` → `weft_lab::fabric` in virtual time → ranges written by one requester and read by
//! another, at each number of ways and each granularity; traces held against the memory of the GFDs.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 7.7.2.3 to 7.7.2.5; docs/spec/wire-formats.md §5.1, §5.2.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use weft_base::rng::Rng;
use weft_fm::service::{Request, Response};
use weft_fm::show::trace::{End, Trace, Via};
use weft_fm::state::desired::DesiredMemory;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, OwnRange};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::layout::{Part, uuid};
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{access, books, pass, range, transfer, up, up_text};

/// Every granularity that there is.
const GRANULARITIES: [u32; 7] = [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];
/// Who makes requests, with the names that the manager knows.
const REQUESTERS: [(Part, &str); 3] =
    [(Part::Host(0), "h0"), (Part::Host(1), "h1"), (Part::Device(0), "xpu0")];
/// Where shares that are made here lie: behind those of the file.
const HPA: u64 = (1 << 40) + (16 << 36);
/// Capacity is given in blocks of this size.
const BLOCK: u64 = 16 << 20;
/// Most bytes that are written and read at a time.
const LEN: u64 = 16 << 20;

fn write(fabric: &ManagedFabric, by: Part, to: Access) {
    let (len, addr) = (to.len.unwrap().0, to.addr.0);
    let done = access(fabric, by, to, true);
    assert!(done.ok && done.written == len, "{by:?} {addr:#x}: {done:?}");
}

fn read(fabric: &ManagedFabric, by: Part, from: Access) {
    let (len, addr) = (from.len.unwrap().0, from.addr.0);
    let done = access(fabric, by, from, false);
    assert!(done.ok && done.read == len && done.mismatched == 0, "{by:?} {addr:#x}: {done:?}");
}

/// Bytes that each GFD has had written, and has been asked for.
fn counts(fabric: &ManagedFabric) -> Vec<[u64; 2]> {
    let count = fabric.parts().layout().gfds.len();
    let of = |at| match fabric.ask(Part::Gfd(at), &Command::Status {}).unwrap() {
        Answer::Status(status) => {
            ["bytes_written", "bytes_read"].map(|what| status.counts["gfd"][what].as_u64().unwrap())
        }
        other => panic!("{other:?}"),
    };
    (0..count).map(of).collect()
}

/// One requester writes a range, another one reads it back; the first `ways` GFDs have their part of it, and no other
/// has heard of it. `sum` is what they had of all rounds before.
fn round(
    fabric: &ManagedFabric,
    sum: &mut [[u64; 2]],
    nth: usize,
    hpa: u64,
    len: u64,
    ways: usize,
) {
    let seed = nth as u64 + 1;
    write(fabric, REQUESTERS[nth % 3].0, range(hpa, len, seed));
    read(fabric, REQUESTERS[(nth + 1) % 3].0, range(hpa, len, seed));
    let each = len / ways as u64;
    for (at, (after, before)) in counts(fabric).into_iter().zip(sum).enumerate() {
        let own = if at < ways { each } else { 0 };
        assert_eq!([after[0] - before[0], after[1] - before[1]], [own; 2], "{ways} ways, GFD {at}");
        *before = after;
    }
}

fn request(fabric: &mut ManagedFabric, request: &Request) -> Response {
    fabric.fm().request(request).unwrap_or_else(|refused| panic!("{request:?}: {refused:?}"))
}

/// Gives all requesters memory of the first GFDs, calls `with` with where it is, and takes it again.
fn shared(
    fabric: &mut ManagedFabric,
    ways: u16,
    granularity: u32,
    with: impl FnOnce(&mut ManagedFabric, u64),
) {
    let name = "some".to_owned();
    let hosts = REQUESTERS.map(|(_, name)| name.to_owned()).to_vec();
    let gfds = (0..ways).map(|gfd| format!("g{gfd}")).collect();
    let (size, hpa) = (u64::from(ways) * BLOCK, HPA);
    let share = Request::Share(DesiredMemory {
        name: name.clone(),
        hosts,
        gfds,
        ways: None,
        size,
        granularity,
        hpa,
        media: None,
        notify: false,
    });
    request(fabric, &share);
    fabric.map().unwrap();
    with(fabric, hpa);
    request(fabric, &Request::Release { name });
    fabric.map().unwrap();
}

/// 1, 2, 4 and 256 ways, each at every granularity; `len` says how much of each, and more is taken where that does not
/// reach all GFDs.
fn all_ways(len: impl Fn(u16, u32) -> u64) {
    let len =
        |ways: u16, granule: u32| len(ways, granule).max(u64::from(ways) * u64::from(granule));
    let mut fabric = up("gfam-256");
    let mut sum = counts(&fabric);
    let placed: Vec<(u32, u64)> =
        fabric.topology().memory.iter().map(|share| (share.granularity, share.hpa)).collect();
    assert_eq!(placed.iter().map(|(granule, _)| *granule).collect::<Vec<_>>(), GRANULARITIES);
    for (nth, (granule, hpa)) in placed.into_iter().enumerate() {
        round(&fabric, &mut sum, nth, hpa, len(256, granule), 256);
    }
    for ways in [1, 2, 4] {
        for (nth, granule) in GRANULARITIES.into_iter().enumerate() {
            let nth = nth + usize::from(ways);
            shared(&mut fabric, ways, granule, |fabric, hpa| {
                round(fabric, &mut sum, nth, hpa, len(ways, granule), ways.into());
            });
        }
    }
    books(&fabric);
}

/// 16 MiB at each number of ways by one granularity, and 256 KiB by all others.
#[test]
fn memory_of_1_2_4_and_256_ways_at_every_granularity() {
    all_ways(|ways, granule| match (ways, granule) {
        (2, 4_096) | (4, 1_024) | (256, 256) => LEN,
        _ => LEN / 64,
    });
}

/// 16 MiB at each number of ways by every granularity.
#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_sixteen_mib_at_1_2_4_and_256_ways_and_every_granularity() {
    all_ways(|_, _| LEN);
}

fn traced(fabric: &mut ManagedFabric, host: &str, hpa: u64) -> Trace {
    match request(fabric, &Request::Trace { host: host.to_owned(), hpa, via: Via::Uio }) {
        Response::Trace(trace) => trace,
        other => panic!("{other:?}"),
    }
}

/// Random addresses of random requesters: what the trace says of GFD and DPA is where the bytes of a write are.
#[test]
fn a_trace_of_256_ways_names_the_gfd_and_the_dpa() {
    let mut fabric = up("gfam-256");
    let shares: Vec<u64> = fabric.topology().memory.iter().map(|share| share.hpa).collect();
    let gfds = fabric.fm().state().unwrap().inventory.gfds;
    let uuids: Vec<_> = fabric.parts().layout().gfds.iter().map(|gfd| uuid(gfd.serial)).collect();
    let before = counts(&fabric);
    let mut expected = vec![0; uuids.len()];
    let mut rng = Rng::new(0x6FA3);
    for nth in 0..64 {
        let (part, name) = REQUESTERS[usize::try_from(rng.below(3)).unwrap()];
        let share = shares[usize::try_from(rng.below(shares.len() as u64)).unwrap()];
        let hpa = share + rng.below((256 * BLOCK) >> 6 << 6) / 64 * 64;
        let trace = traced(&mut fabric, name, hpa);
        assert_eq!(trace.end, End::Memory, "{trace:?}");
        assert!(trace.steps.iter().all(|step| step.asked), "{trace:?}");
        assert_eq!(trace.others, [""; 0], "one link between each two switches: {trace:?}");
        let named = gfds.iter().find(|gfd| Some(gfd.pid.bits()) == trace.dpid).unwrap();
        let at = uuids.iter().position(|uuid| *uuid == named.uuid).unwrap();
        expected[at] += 64;
        write(&fabric, part, range(hpa, 64, nth));
        let (addr, len, seed) = (Num(trace.dpa.unwrap()), Some(Num(64)), Some(nth));
        let place = OwnRange { addr, len, seed, ..OwnRange::default() };
        let seen = transfer(&fabric, Part::Gfd(at), &Command::Peek(place));
        assert!(seen.ok, "{hpa:#x} of {name}: {seen:?} {trace:?}");
    }
    let after = counts(&fabric);
    let written: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a[0] - b[0]).collect();
    assert_eq!(written, expected);
    books(&fabric);
}

/// What was taken is refused, also to the accelerator, and nobody else is disturbed.
#[test]
fn memory_of_an_accelerator_is_revoked_alone() {
    let mut fabric = up("gfam-256");
    let share = fabric.topology().memory[4].clone();
    write(&fabric, Part::Device(0), range(share.hpa, 1 << 16, 3));
    let (name, host) = (share.name, "xpu0".to_owned());
    request(&mut fabric, &Request::Revoke { name, host });
    let access = Command::DmaRead(range(share.hpa, 1 << 16, 3));
    let refused = transfer(&fabric, Part::Device(0), &access);
    assert!(!refused.ok && refused.failures.contains_key("UR"), "{refused:?}");
    read(&fabric, Part::Host(0), range(share.hpa, 1 << 16, 3));
    read(&fabric, Part::Host(1), range(share.hpa, 1 << 16, 3));
    let ended = traced(&mut fabric, "xpu0", share.hpa).end;
    assert!(matches!(&ended, End::Refused(why) if why.contains("no decoder")), "{ended:?}");
}

/// What would take addresses of older memory, or send them elsewhere, is refused by the rule's name; what lies beside it in
/// the same segment leaves its data whole, and hosts map both.
#[test]
fn memory_beside_memory_leaves_it_whole() {
    let mut fabric = up("gfam");
    let old = fabric.topology().memory[0].clone();
    let (hpa, len) = (old.hpa, 64 << 10);
    write(&fabric, Part::Host(0), range(hpa, len, 7));
    let share = |granularity, hpa, gfds: [&str; 4]| {
        Request::Share(DesiredMemory {
            name: "more".to_owned(),
            hosts: vec!["h0".to_owned(), "h1".to_owned()],
            gfds: gfds.map(str::to_owned).to_vec(),
            ways: None,
            size: 4 * BLOCK,
            granularity,
            hpa,
            media: None,
            notify: false,
        })
    };
    let (behind, order) = (hpa + old.len, ["g0", "g1", "g2", "g3"]);
    let refused = [
        (share(old.granularity, hpa, order), "memory-own-addresses"),
        (share(old.granularity, hpa + old.len - 4_096, order), "memory-own-addresses"),
        (share(4_096, behind, order), "segment-one-entry"),
        (share(old.granularity, behind, ["g1", "g0", "g2", "g3"]), "segment-one-entry"),
        (share(old.granularity, 0x40_0000_0000, order), "window-no-own-addresses"),
        (share(old.granularity, behind + 64, order), "the address is no multiple"),
    ];
    for (request, rule) in refused {
        let error = fabric.fm().request(&request).unwrap_err();
        assert!(error.message.contains(rule), "{request:?}: {error:?}");
        read(&fabric, Part::Host(1), range(hpa, len, 7));
    }
    fabric.map().unwrap();
    request(&mut fabric, &share(old.granularity, behind, order));
    fabric.map().unwrap();
    write(&fabric, Part::Host(1), range(behind, len, 8));
    write(&fabric, Part::Host(0), range(hpa + old.len - len, len, 9));
    for (at, seed) in [(hpa, 7), (behind, 8), (hpa + old.len - len, 9)] {
        read(&fabric, Part::Host(0), range(at, len, seed));
        read(&fabric, Part::Host(1), range(at, len, seed));
    }
    books(&fabric);
}

/// What the ring of a host has had since the last look: the first look places it.
fn ring(fabric: &ManagedFabric, host: Part, base: Option<u64>) -> usize {
    let command = Command::Ring { base: base.map(Num), block: None, timeout_ms: 5_000 };
    match fabric.ask(host, &command) {
        Ok(Answer::Ring { entries, overflow: false }) => entries.len(),
        other => panic!("{other:?}"),
    }
}

/// A GFD notifies those who asked for it with their memory, and no one else, until the last such memory is taken away.
#[test]
fn hosts_are_notified_where_their_memory_says_so() {
    let text = r#"
switch = [{ name = "sw0" }]
host = [{ name = "h0", at = "sw0" }, { name = "h1", at = "sw0" }]
gfd = [{ name = "g0", at = "sw0" }]
[[memory]]
name = "told"
hosts = ["h0"]
gfds = ["g0"]
len = "16MiB"
hpa = "1TiB"
notify = true
[[memory]]
name = "quiet"
hosts = ["h1"]
gfds = ["g0"]
len = "16MiB"
hpa = "1TiB"
"#;
    let mut fabric = up_text("notifications", text);
    let hosts = [Part::Host(0), Part::Host(1)];
    // Within the segment, and behind what the GFD's decoder has.
    let behind = |fabric: &ManagedFabric, host| {
        let asked = Access { seed: None, ..range((1 << 40) + (1 << 30), 64, 0) };
        let done = access(fabric, host, asked, false);
        assert!(!done.ok && done.failures.contains_key("UR"), "{done:?}");
    };
    assert_eq!(hosts.map(|host| ring(&fabric, host, Some(0x10_0000))), [0, 0]);
    for host in hosts {
        behind(&fabric, host);
    }
    assert_eq!(hosts.map(|host| ring(&fabric, host, None)), [1, 0]);
    let more = Request::Share(DesiredMemory {
        name: "more".to_owned(),
        hosts: vec!["h0".to_owned()],
        gfds: vec!["g0".to_owned()],
        ways: None,
        size: BLOCK,
        granularity: 4_096,
        hpa: HPA,
        media: None,
        notify: true,
    });
    fabric.fm().request(&more).unwrap();
    for (name, told) in [("told", 1), ("more", 0)] {
        fabric.fm().request(&Request::Release { name: name.to_owned() }).unwrap();
        pass(&fabric, 2); // of one kind there is one notice in a millisecond
        behind(&fabric, hosts[0]);
        assert_eq!(ring(&fabric, hosts[0], None), told, "{name} is released");
    }
    books(&fabric);
}
