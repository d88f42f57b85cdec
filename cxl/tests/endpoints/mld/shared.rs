//! Dynamic capacity that several logical devices share, and that is kept while none has it.
//! Commands to the device; what each LD then reads and writes behind its BAR.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §4.3b; CXL 3.1 section 7.6.7.6.

use super::*;

impl Bench {
    /// 5603h: the numbers among those that are shared, and the generation.
    fn numbers(&mut self, host: u16) -> (Vec<u16>, u32) {
        let get = GetExtents { owner: host, count: 64, start: 0 };
        let (_, payload) = self.manage(&Request::GetExtents(get));
        let Ok(Response::GetExtents(list)) = Response::parse(Opcode::GET_EXTENTS, &payload) else {
            panic!("{payload:02x?}")
        };
        (list.extents.iter().map(|extent| extent.shared_seq).collect(), list.generation)
    }

    fn sequence(&mut self, host: u16) -> u16 {
        self.numbers(host).0[0]
    }
}

/// 5604h with Enable Shared Access: what one LD writes the other reads, until the last one lets it go; 5606h keeps it beyond that
/// for whoever gets it then, until 5607h.
#[test]
fn what_has_a_tag_is_shared_and_kept() {
    let mut bench = dynamic_bench();
    for ld in 0..3 {
        bench.place(ld);
    }
    let share = (AddPolicy::EnableShared, 0, 0, 1);
    let refused = Some(Status::UnsupportedRequest);
    assert_eq!(bench.add(0, (AddPolicy::Free, 0, 2 * BLOCK, 1), &[]), ReturnCode::Success);
    assert_eq!(bench.add(2, (AddPolicy::Free, 0, BLOCK, 2), &[]), ReturnCode::Success);
    bench.memory(Some(0), BAR + REGION, Some(&[1, 2, 3, 4]));
    assert_eq!(bench.status(1, REGION), refused, "not before it is given");
    assert_eq!(bench.add(1, share, &[]), ReturnCode::Success);
    assert_eq!(bench.add(1, share, &[]), ReturnCode::InvalidInput, "it has it");
    assert_eq!(bench.extents(1), bench.extents(0));
    assert_eq!((bench.sequence(0), bench.sequence(1), bench.sequence(2)), (1, 1, 0));
    assert_eq!(bench.memory(Some(1), BAR + REGION, None)[0].2, [1, 2, 3, 4]);
    bench.memory(Some(1), BAR + REGION + BLOCK, Some(&[5, 6, 7, 8]));
    assert_eq!(bench.memory(Some(0), BAR + REGION + BLOCK, None)[0].2, [5, 6, 7, 8]);
    assert_eq!(bench.status(2, REGION), refused, "LD 2 has none of it");
    assert_eq!(bench.status(1, REGION + 2 * BLOCK), refused, "and LD 1 nothing of LD 2");
    // The first one lets it go, and the second one has it still.
    assert_eq!(bench.take(0, true, 0, 1, &[]), ReturnCode::Success);
    assert_eq!(bench.status(0, REGION), refused);
    assert_eq!(bench.memory(Some(1), BAR + REGION, None)[0].2, [1, 2, 3, 4]);
    // The manager keeps it: nobody has it, and it is not free.
    let reference = |bench: &mut Bench, tag, on| {
        let tag = [tag; 16];
        let ask = if on { Request::AddReference(tag) } else { Request::RemoveReference(tag) };
        bench.manage(&ask).0
    };
    assert_eq!(reference(&mut bench, 9, true), ReturnCode::InvalidInput, "nobody's tag");
    assert_eq!(reference(&mut bench, 1, false), ReturnCode::InvalidInput, "none was added");
    assert_eq!(reference(&mut bench, 1, true), ReturnCode::Success);
    assert_eq!(reference(&mut bench, 1, true), ReturnCode::Success, "twice is as once");
    assert_eq!(bench.take(1, true, 0, 1, &[]), ReturnCode::Success);
    assert_eq!((bench.status(1, REGION), bench.extents(1)), (refused, vec![]));
    let all = (AddPolicy::Contiguous, 0, 2 * GRANULE - BLOCK, 3);
    assert_eq!(bench.add(1, all, &[]), ReturnCode::ResourcesExhausted);
    assert_eq!(bench.add(2, share, &[]), ReturnCode::Success, "it comes back as it was");
    assert_eq!(bench.memory(Some(2), BAR + REGION, None)[0].2, [1, 2, 3, 4]);
    assert_eq!(bench.take(2, true, 0, 1, &[]), ReturnCode::Success);
    assert_eq!(reference(&mut bench, 1, false), ReturnCode::Success);
    assert_eq!(bench.add(2, share, &[]), ReturnCode::InvalidInput, "it is gone");
    let again = (AddPolicy::Prescriptive, 0, 0, 0);
    assert_eq!(bench.add(1, again, &[at(REGION, 2 * BLOCK)]), ReturnCode::Success);
    assert_eq!(bench.memory(Some(1), BAR + REGION, None)[0].2, [0; 4], "and so is what was in it");
}

/// 5603h after 5604h, 5605h and 5606h: each number once, from 1, of what several have or the manager keeps; and another generation
/// wherever another list or number is found, and nowhere else.
#[test]
fn what_is_shared_has_numbers_of_its_own() {
    let mut bench = dynamic_bench();
    let share = (AddPolicy::EnableShared, 0, 0, 1);
    bench.add(0, (AddPolicy::Free, 0, 3 * BLOCK, 1), &[]);
    bench.add(2, (AddPolicy::Free, 0, BLOCK, 2), &[]);
    let mut before = [0, 1, 2].map(|ld| bench.numbers(ld).1);
    let mut seen = |bench: &mut Bench| {
        let now = [0, 1, 2].map(|ld| bench.numbers(ld));
        let changed = [0, 1, 2].map(|ld| now[ld].1 != before[ld]);
        before = [0, 1, 2].map(|ld| now[ld].1);
        (now.map(|(numbers, _)| numbers), changed)
    };
    let own = vec![0];
    assert_eq!(seen(&mut bench), ([own.clone(), vec![], own.clone()], [false; 3]));
    assert_eq!(bench.add(1, share, &[]), ReturnCode::Success);
    assert_eq!(seen(&mut bench), ([vec![1], vec![1], own.clone()], [true, true, false]));
    let middle = [at(REGION + BLOCK, BLOCK)];
    assert_eq!(bench.take(1, true, 0, 0, &middle), ReturnCode::Success);
    let want = [vec![1, 0, 3], vec![1, 3], own.clone()];
    assert_eq!(seen(&mut bench), (want, [true, true, false]), "the middle is one LD's alone");
    assert_eq!(bench.take(0, true, 0, 0, &middle), ReturnCode::Success);
    assert_eq!(seen(&mut bench), ([vec![1, 2], vec![1, 2], own.clone()], [true, true, false]));
    assert_eq!(bench.take(0, true, 0, 1, &[]), ReturnCode::Success);
    assert_eq!(seen(&mut bench), ([vec![], vec![0, 0], own.clone()], [true, true, false]));
    assert_eq!(bench.manage(&Request::AddReference([1; 16])).0, ReturnCode::Success);
    assert_eq!(seen(&mut bench), ([vec![], vec![1, 2], own], [false, true, false]));
}
