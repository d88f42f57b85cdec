//! Partitions of GFDs as the manager sets them: what it sends, what it refuses, what it goes on from.
//!
//! Wanted states → `weft_fm::service` → partitions and regions of real GFDs.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 7.7.2.3; docs/spec/wire-formats.md §4.7 (4902h to 4906h).

use std::sync::{Arc, Mutex};

use weft_cxl::cci::Session;
use weft_fm::components::media::Media;
use weft_fm::service::status::StartMode;
use weft_fm::service::{Fm, Request, Response, Setup};
use weft_fm::state::desired::DesiredState;

use super::session;
use super::world::{BLOCK, HOST, World};

/// A manager that wants partitions of the one GFD, and `rest`.
fn manager(world: &Arc<Mutex<World>>, partitions: &[&str], rest: &str) -> Fm {
    let uuid = format!("6f6f6f6f6f6f6f6f{:016x}", 0);
    let text = format!(
        "[[gfd]]\nname = \"g0\"\nuuid = \"{uuid}\"\npartitions = {partitions:?}\n\
         [[host]]\nname = \"h0\"\nswitch = \"entry\"\nport = {HOST}\n{rest}"
    );
    let (fabric, desired) = (session(world, Session::Fm(1)), DesiredState::parse(&text).unwrap());
    let (mode, store) = (StartMode::FmFirst, None);
    let mut fm = Fm::new(Setup { fabric, desired, mode, take_over: false, store, drain: || {} });
    fm.start().unwrap();
    fm
}

fn memory(size: u64, media: &str) -> String {
    format!(
        "[[memory]]\nname = \"pool\"\nhosts = [\"h0\"]\ngfds = [\"g0\"]\nsize = {size}\nhpa = {}\nmedia = {media:?}\n",
        1_u64 << 40
    )
}

/// A partition: number, base, length, whether it is non-volatile.
type ShownDmp = (u8, u64, u64, bool);

/// Number, base, length and whether it is non-volatile, of each partition; number, base and length of each region.
type Shown = (Vec<ShownDmp>, Vec<(u8, u64, u64)>);

fn shown(world: &Mutex<World>) -> Shown {
    let world = world.lock().unwrap();
    let capacity = world.gfds[0].gfd.capacity();
    let dmps = capacity.dmps().iter().flatten();
    let regions = capacity.regions().iter().flatten();
    (
        dmps.map(|one| (one.index, one.base.0, one.len, one.media.non_volatile)).collect(),
        regions.map(|one| (one.id, one.base.0, one.len)).collect(),
    )
}

fn errors(fm: &Fm) -> Vec<String> {
    fm.board().status().errors
}

fn set_events(fm: &Fm) -> usize {
    fm.board().events(0).iter().filter(|event| event.what.contains("has partitions")).count()
}

/// Whatever partitions a GFD has, others can be had while nothing of it is used; the same are not sent again.
#[test]
fn partitions_change_while_no_memory_is_in_use() {
    let world = Arc::new(Mutex::new(World::ring(1, 1, &[0])));
    let (one, two, three) = (BLOCK, 2 * BLOCK, 3 * BLOCK);
    #[rustfmt::skip] // columns: wanted, number, base and length of each
    let cases: [(&[&str], Vec<ShownDmp>); 6] = [
        (&["dram:512MiB", "pm:256MiB"], vec![(0, 0, two, false), (1, two, one, true)]),
        (&["pm:256MiB", "dram:512MiB"], vec![(0, 0, one, true), (1, one, two, false)]),
        (&["pm:256MiB", "pm:256MiB", "dram:256MiB", "pm:256MiB"],
            vec![(0, 0, one, true), (1, one, one, true), (2, two, one, false), (3, three, one, true)]),
        (&["dram:512MiB", "pm:512MiB"], vec![(0, 0, two, false), (1, two, two, true)]),
        (&["dram:512MiB:4MiB", "pm:512MiB"], vec![(0, 0, two, false), (1, two, two, true)]),
        (&["pm:1GiB"], vec![(0, 0, 4 * BLOCK, true)]),
    ];
    for (wanted, dmps) in cases {
        let regions: Vec<_> = dmps.iter().map(|one| (one.0, one.1, one.2)).collect();
        let fm = manager(&world, wanted, "");
        assert_eq!((errors(&fm), set_events(&fm)), (Vec::new(), 1), "{wanted:?}");
        assert_eq!(shown(&world), (dmps.clone(), regions.clone()), "{wanted:?}");
        let again = manager(&world, wanted, "");
        assert_eq!((errors(&again), set_events(&again)), (Vec::new(), 0), "{wanted:?}");
        assert_eq!(shown(&world), (dmps, regions), "{wanted:?}");
    }
}

/// While a GFD gives memory, its partitions stay; the difference is told until the memory is released.
#[test]
fn other_partitions_wait_until_memory_is_released() {
    let world = Arc::new(Mutex::new(World::ring(1, 1, &[0])));
    let old = ["dram:256MiB", "pm:512MiB"];
    let mut fm = manager(&world, &old, &memory(BLOCK, "pm"));
    assert_eq!(errors(&fm), Vec::<String>::new());
    let before = shown(&world);
    let Response::Memory(rows) = fm.request(&Request::Memory).unwrap() else { panic!("no rows") };
    assert_eq!((rows[0].parts[0].media, rows[0].parts[0].dpa), (Some(Media::Pm), BLOCK));
    // As pm it stays where it is; as dram it would have to be given anew.
    let new = ["pm:256MiB", "dram:512MiB"];
    for (media, more) in [("pm", 1), ("dram", 2)] {
        let fm = manager(&world, &new, &memory(BLOCK, media));
        let told = errors(&fm);
        let why = "it has partitions dram:256MiB:16MiB, pm:512MiB:16MiB, not pm:256MiB:16MiB, dram:512MiB:16MiB";
        assert_eq!(told.len(), more, "{told:?}");
        assert!(told[0].contains(why) && told[0].contains("release it first"), "{told:?}");
        assert!(told.iter().skip(1).all(|one| one.contains("is of pm, not of dram")), "{told:?}");
        assert_eq!(shown(&world), before);
    }
    fm.request(&Request::Release { name: "pool".to_owned() }).unwrap();
    let fm = manager(&world, &new, &memory(BLOCK, "pm"));
    assert_eq!(errors(&fm), Vec::<String>::new());
    assert_eq!(shown(&world).0, [(0, 0, BLOCK, true), (1, BLOCK, 2 * BLOCK, false)]);
}

/// What a GFD cannot have is an error of the status, and it keeps what it has.
#[test]
fn partitions_beyond_the_gfd_are_refused_and_change_nothing() {
    let world = Arc::new(Mutex::new(World::ring(1, 1, &[0])));
    let before = shown(&world);
    let fm = manager(&world, &["dram:1GiB", "pm:256MiB"], "");
    let told = errors(&fm);
    assert!(told[0].contains("they have 1280MiB, and it has 1GiB"), "{told:?}");
    assert_eq!((told.len(), shown(&world)), (1, before));
}
