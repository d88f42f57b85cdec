#![expect(clippy::cast_possible_truncation, reason = "small numbers")]
use super::*;

fn bufs(count: usize) -> Bufs {
    Bufs::new(Pool::in_memory(count, 256).unwrap(), 4, 2)
}

#[test]
fn a_frame_keeps_its_bytes_until_it_is_freed() {
    let mut bufs = bufs(8);
    let mut held: Vec<Desc> = (0..6u8).map(|i| bufs.alloc_from(&[i; 100]).unwrap()).collect();
    assert!(bufs.alloc().is_none(), "two are kept back");
    assert!(bufs.alloc_control().is_some_and(|d| bufs.free(d)), "for control frames");
    for (i, desc) in held.iter_mut().enumerate() {
        assert_eq!(bufs.bytes(desc), [i as u8; 100]);
        bufs.bytes_mut(desc).unwrap()[0] = 0xEE;
        assert_eq!(bufs.head(desc)[..2], [0xEE, i as u8]);
    }
    for desc in held {
        assert!(bufs.free(desc));
    }
    assert_eq!(bufs.used().get(), 0);
}

#[test]
fn a_chunk_is_only_noted_when_nobody_waits_for_it() {
    let pool = Pool::in_memory(300, 256).unwrap();
    let mut bufs = Bufs::new(pool.clone(), 124, 2);
    let mut held: Vec<Desc> = core::iter::from_fn(|| bufs.alloc()).collect();
    let control = bufs.alloc_control().unwrap();
    let one = held.pop().unwrap();
    assert!(!bufs.free_warm(one.chunk()), "the reserve comes first");
    bufs.free(control);
    assert!(bufs.free_warm(one.chunk()));
    assert_eq!(
        (bufs.used().get(), bufs.alloc().map(|desc| desc.chunk())),
        (297, Some(one.chunk()))
    );
    held.push(one);
    while bufs.free_warm(held.last().unwrap().chunk()) {
        let _gone = held.pop();
    }
    assert_eq!(held.len(), 298 - 124, "what is above `keep` goes to the other workers");
    for desc in held {
        assert!(bufs.free(desc));
    }
    assert_eq!(bufs.used().get(), 0);
    drop(bufs);
    let mut other = Bufs::new(pool, 124, 0);
    assert_eq!(core::iter::from_fn(|| other.alloc()).count(), 300, "none is lost");
}

#[test]
fn a_short_frame_is_zero_up_to_the_head() {
    let mut bufs = bufs(4);
    let full = bufs.alloc_from(&[0xFF; 64]).unwrap();
    bufs.free(full);
    for len in [0, 1, 14, 63, 64] {
        let desc = bufs.alloc_from(&vec![0xFF; len]).unwrap();
        let head = *bufs.head(&desc);
        assert!(head[..len].iter().all(|&b| b == 0xFF), "{len}");
        assert!(head[len..].iter().all(|&b| b == 0), "{len}");
        bufs.free(desc);
    }
}

#[test]
fn shared_bytes_are_read_only_until_one_handle_is_left() {
    let mut bufs = bufs(8);
    let mut one = bufs.alloc_from(b"shared between three handles").unwrap();
    let mut two = bufs.share(&mut one);
    let three = bufs.share(&mut two);
    assert!(bufs.bytes_mut(&mut one).is_none());
    let mut own = bufs.make_sole(three).unwrap();
    assert_ne!(own.chunk(), one.chunk(), "copied on write");
    bufs.bytes_mut(&mut own).unwrap()[0] = b'S';
    assert_eq!(bufs.bytes(&one), b"shared between three handles");
    assert_eq!(bufs.bytes(&own), b"Shared between three handles");
    assert!(!bufs.uncharge(&one));
    assert!(!bufs.free(one));
    assert!(bufs.bytes_mut(&mut two).is_some(), "the last one may write");
    let two = bufs.make_sole(two).unwrap();
    assert!(bufs.free(two));
    assert!(bufs.free(own));
    assert_eq!(bufs.used().get(), 0);
}

#[test]
fn the_last_copy_to_leave_takes_the_charge_away() {
    let mut bufs = bufs(8);
    let mut one = bufs.alloc_from(&[1; 64]).unwrap();
    assert!(bufs.uncharge(&one), "a frame that is not shared is its own last copy");
    let two = bufs.share(&mut one);
    let three = bufs.share(&mut one);
    assert_eq!(
        [bufs.uncharge(&two), bufs.uncharge(&one), bufs.uncharge(&three)],
        [false, false, true]
    );
    assert_eq!([bufs.free(one), bufs.free(three), bufs.free(two)], [false, false, true]);
}

#[test]
fn a_tag_fits_into_the_headroom() {
    let mut bufs = bufs(4);
    let mut desc = bufs.alloc_from(&[7; 60]).unwrap();
    let (chunk, start) = bufs.chunk_mut(&mut desc).unwrap();
    chunk[start - 4..start].copy_from_slice(&[1, 2, 3, 4]);
    bufs.set_bounds(&mut desc, start - 4, 64);
    assert_eq!(bufs.bytes(&desc)[..6], [1, 2, 3, 4, 7, 7]);
    bufs.set_partial_csum(&mut desc, Some(PartialCsum { start: 34, offset: 16 }));
    bufs.set_trace_id(&mut desc, 0x1234_5678_9ABC);
    assert_eq!(bufs.partial_csum(&desc), Some(PartialCsum { start: 34, offset: 16 }));
    assert_eq!(bufs.trace_id(&desc), 0x1234_5678_9ABC);
    bufs.set_partial_csum(&mut desc, None);
    assert_eq!(bufs.partial_csum(&desc), None);
    bufs.free(desc);
}

#[test]
fn sizes_out_of_range_are_refused() {
    for (count, len) in [(0, 256), (1, 63), (1, FRAME_LEN_MAX + 1), ((1 << 24) + 1, 64)] {
        assert!(Pool::in_memory(count, len).is_err(), "{count} {len}");
    }
    let mut bufs = bufs(4);
    assert!(bufs.alloc_from(&vec![0; bufs.room() + 1]).is_none());
    assert!(bufs.alloc_from(&vec![0; bufs.room()]).is_some_and(|d| bufs.free(d)));
}

#[test]
#[cfg(not(miri))]
fn a_mapped_pool_works_like_one_in_memory() {
    let mut bufs = Bufs::new(Pool::map(1_000, 1_518).unwrap(), 64, 0);
    assert_eq!(bufs.pool().chunk_size(), 1_728, "27 lines");
    let all: Vec<Desc> = std::iter::from_fn(|| bufs.alloc_from(&[9; 1_518])).collect();
    assert_eq!(all.len(), 1_000);
    for desc in all {
        assert_eq!(bufs.bytes(&desc).len(), 1_518);
        bufs.free(desc);
    }
}

#[test]
#[cfg(not(miri))]
fn chunks_of_a_umem_are_what_the_kernel_takes() {
    #[rustfmt::skip] // columns: longest frame, chunk
    let cases = [(64, 2_112), (1_522, 2_112), (1_600, 2_240), (3_772, 4_032), (4_000, 4_160), (9_728, 9_920)];
    for (frame_len_max, want) in cases {
        let pool = Pool::map_umem(8, frame_len_max).unwrap();
        assert_eq!(pool.chunk_size(), want, "{frame_len_max}");
        let is_umem = (2_048..=4_096).contains(&want) && UMEM_LEAD + frame_len_max <= want;
        assert_eq!(is_umem, frame_len_max <= UMEM_FRAME_LEN_MAX, "{frame_len_max}");
    }
}

/// Frames keep their contents while the pool grows under them, and it grows up to its limit.
#[test]
fn a_pool_of_fronts_grows_with_its_frames_in_it() {
    let count = 1_000;
    let pool = Pool::fronts(count, 1_518).unwrap();
    let mut bufs = Bufs::new(pool.clone(), usize::MAX, 300); // more than it begins with
    assert_eq!((pool.count(), bufs.pool().count(), bufs.reserve_short()), (count, count, 0));
    let mut descs: Vec<Desc> = Vec::new();
    let mut twin = None;
    while let Some(mut desc) = bufs.alloc_from(&(descs.len() as u64).to_le_bytes().repeat(20)) {
        if twin.is_none() {
            twin = Some(bufs.share(&mut desc));
        }
        descs.push(desc);
    }
    assert_eq!(descs.len(), count - 300);
    for (number, desc) in descs.iter().enumerate() {
        let (len, front) = (desc.len(), bufs.bytes(desc));
        assert_eq!((len, front), (160, &(number as u64).to_le_bytes().repeat(20)[..FRONT_LEN]));
    }
    assert_eq!(std::iter::from_fn(|| bufs.alloc_control()).count(), 300, "the reserve is whole");
    assert!(!bufs.free(descs.remove(0)), "another handle is there");
    assert!(bufs.free(twin.unwrap()), "and that is known still");
    bufs.free_all(descs.into_iter());
    // The reserve is filled first; the chunks taken from it are still out.
    assert_eq!(std::iter::from_fn(|| bufs.alloc()).count(), count - 600);
}

/// A pool of fronts keeps the front of each frame, and its whole length.
#[test]
fn a_pool_of_fronts_keeps_the_front_of_a_frame() {
    let mut bufs = Bufs::new(Pool::fronts(4, 1_518).unwrap(), 1, 0);
    let frame: Vec<u8> = (0..=255).cycle().take(1_400).collect();
    let whole = bufs.alloc_from(&frame).unwrap();
    assert_eq!((whole.len(), bufs.bytes(&whole)), (1_400, &frame[..FRONT_LEN]));
    let mut front = bufs.alloc_front(&frame[..FRONT_LEN], 9_000).unwrap();
    assert_eq!((front.len(), bufs.bytes(&front)), (9_000, &frame[..FRONT_LEN]));
    assert!(bufs.alloc_front(&frame[..FRONT_LEN - 1], 1_400).is_none(), "less than is kept");
    let short = bufs.alloc_from(&frame[..70]).unwrap();
    assert_eq!((short.len(), bufs.bytes(&short)), (70, &frame[..70]));
    let twin = bufs.share(&mut front);
    let own = bufs.make_sole(twin).unwrap();
    assert_eq!((own.len(), bufs.bytes(&own)), (9_000, &frame[..FRONT_LEN]));
    for desc in [whole, front, short, own] {
        assert!(bufs.free(desc));
    }
    let mut whole = Bufs::new(Pool::in_memory(4, 1_518).unwrap(), 1, 0);
    assert!(whole.alloc_front(&frame[..FRONT_LEN], 1_400).is_none(), "it keeps more");
}
