//! Credits of virtual channels: frames in flight, a receiver that is slower than the line, and losses.

use super::*;

/// Two endpoints with these credits, frames of AFH_GEN1 with ICRC, and counts that take a cable's way back.
fn pair(credits: CreditSpec, slow: Option<SlowSpec>) -> Pair {
    let spec = |number| EndpointSpec {
        credits: Some(credits),
        slow: slow.filter(|_| number == 1),
        frame: FrameSpec { icrc: true, ..EndpointSpec::new(number, peers(), Kind::Gen1).frame },
        ..EndpointSpec::new(number, peers(), Kind::Gen1)
    };
    let mut pair = Pair::over([spec(0), spec(1)], RATE, Span::ZERO, DELAY);
    pair.credit_way = WAY;
    pair
}

fn peers() -> Arc<[Station]> {
    [Station::numbered(1), Station::numbered(2)].into()
}

/// Frames that the receiver has taken until `end`.
fn taken(pair: &mut Pair, end: Instant) -> u64 {
    pair.run(end, |_, _| true);
    pair.ends[1].endpoint.stats().rx_frames
}

/// In each loop of 247.88 ns as many frames pass as there is credit for, up to the line's rate: to one frame in 100 us.
#[test]
fn goodput_is_what_fits_into_the_loop() {
    const LOOP_PS: u64 = 247_880;
    const FRAME_PS: u64 = 27_880;
    let end = Instant::from_ns(100_000);
    #[rustfmt::skip] // columns: credits, frames, Mb/s by the formula
    let table = [
        (11, 1, 43_376), (22, 2, 86_752), (44, 4, 173_503), (66, 6, 260_255), (88, 8, 347_006), (99, 9, 385_653),
        (407, 37, 385_653),
    ];
    for (limit, frames, mbps) in table {
        let mut pair = pair(CreditSpec::new(limit), None);
        pair.send(0, 0, 1_344 * 10_000);
        let had = taken(&mut pair, end);
        // The first frames arrive after 170 ns and their own time; then `frames` in each loop.
        let time = end.as_ps() - 170_000 - FRAME_PS;
        let in_loop = time % LOOP_PS / FRAME_PS + 1;
        let want = if frames * FRAME_PS >= LOOP_PS {
            time / FRAME_PS + 1
        } else {
            time / LOOP_PS * frames + in_loop.min(frames)
        };
        assert!(had.abs_diff(want) <= 1, "{limit} credits: {had} frames, not {want}");
        let rate = had * 1_344 * 8 * 1_000_000 / (end.as_ps() - 170_000);
        assert!(rate.abs_diff(mbps) <= mbps / 200, "{limit} credits: {rate} Mb/s, not {mbps}");
        assert_eq!(pair.ends[1].endpoint.stats().overruns, 0, "{limit}");
    }
}

/// A receiver at half the line's rate: 192.8 Gb/s, to a frame, and nothing is lost.
#[test]
fn a_slow_receiver_holds_its_credits_back() {
    let slow = SlowSpec {
        drain: LinkRate::gbps(200),
        xoff_bytes: 0,
        xon_bytes: 0,
        capacity_bytes: 0,
        lossless: PriSet::from_bits(0xFF),
        quanta: 1,
    };
    for limit in [99, 407, 2_000] {
        let mut pair = pair(CreditSpec::new(limit), Some(slow));
        pair.send(0, 0, 1_344 * 10_000);
        pair.run(Instant::from_ns(20_000), |_, _| true);
        let before = pair.ends[1].endpoint.stats().rx_frames;
        pair.run(Instant::from_ns(220_000), |_, _| true);
        let stats = pair.ends[1].endpoint.stats();
        let (had, want) = (stats.rx_frames - before, 200_000_000 / 55_760);
        assert!(had.abs_diff(want) <= 1, "{limit}: {had} frames, not {want}");
        assert_eq!((stats.overruns, stats.pfc_tx, stats.lost), (0, 0, 0), "{limit}");
        assert_eq!(pair.ends[0].endpoint.stats().resent, 0, "{limit}");
    }
}

/// With `dyn_uf` requests may use the reserve that other frames may not.
#[test]
fn what_is_kept_back_is_for_requests_alone() {
    for (uf_limit, dynamic, frames) in [(1, false, 4), (3, false, 2), (3, true, 4)] {
        let mut pair = pair(CreditSpec { uf_limit, dynamic, ..CreditSpec::new(44) }, None);
        pair.send(0, 0, 1_344 * 100);
        let had = taken(&mut pair, Instant::from_ns(170 + 28 * 4 + 1));
        assert_eq!(had, frames, "{uf_limit} {dynamic}");
    }
}

/// Lost frames, even all that had credit, lose no credit for good.
#[test]
fn a_loss_leaks_no_credit() {
    for limit in [11, 44, 99] {
        let mut pair = pair(CreditSpec::new(limit), None);
        pair.send(0, 0, 1_344 * 3_000);
        pair.send(1, 0, 1_344 * 3_000);
        let (mut rng, mut count) = (Rng::new(8), 0);
        pair.run(LATE, |_, _| {
            count += 1;
            !rng.chance(1, 50) && !(500..500 + limit / 11 * 3).contains(&count)
        });
        for end in &pair.ends {
            let stats = end.endpoint.stats();
            assert!(end.endpoint.is_idle(), "{limit}: {stats:?}");
            assert_eq!((stats.rx_frames, stats.overruns), (3_000, 0), "{limit}");
            assert!(stats.resent > 0, "{limit}");
        }
        // A message after that goes as fast as the first one.
        for (id, start) in [(1, pair.now), (2, pair.now + Span::from_us(100))] {
            pair.now = start;
            let before = pair.ends[1].endpoint.stats().rx_frames;
            pair.send(0, id, 1_344 * 200);
            let frames = u64::from(limit / 11);
            let had = taken(&mut pair, start + Span::from_ps(10 * 247_880 + 197_881)) - before;
            assert!(had >= 10 * frames.min(8), "{limit}: {had} frames in ten loops");
            pair.run(LATE, |_, _| true);
        }
    }
}

#[test]
fn a_count_is_bytes_and_back() {
    for kind in [CreditKind::Returned, CreditKind::Used] {
        let update = CreditUpdate { vc: 3, kind, count: 0x0102_0304_0506_0708 };
        let bytes = update.to_bytes();
        assert_eq!(bytes[2..], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(CreditUpdate::of_bytes(&bytes), Some(update));
        for len in 0..bytes.len() {
            assert_eq!(CreditUpdate::of_bytes(&bytes[..len]), None);
        }
    }
    assert_eq!(CreditUpdate::of_bytes(&[3, 2, 0, 0, 0, 0, 0, 0, 0, 0]), None);
}

/// A count above the credits used, and one from a host that never sent, change nothing; PFC is ignored.
#[test]
fn who_says_what_cannot_be_gets_nothing() {
    let mut pair = pair(CreditSpec::new(11), None);
    pair.send(0, 0, 1_344 * 100);
    pair.run(Instant::from_ns(1), |_, _| true);
    for (from, vc, count) in [(1, 3, 12), (1, 3, u64::MAX), (0, 3, 11), (900, 3, 11), (1, 9, 11)] {
        for kind in [CreditKind::Returned, CreditKind::Used] {
            pair.ends[0].endpoint.credits_in(from, CreditUpdate { vc, kind, count });
        }
    }
    pair.ends[0].due = Some(pair.now);
    assert_eq!(taken(&mut pair, Instant::from_ns(400)), 1, "the second one waits for its credit");
    let mut frame = [0; weft_parsers::mac_control::FRAME_LEN];
    let pfc = weft_parsers::Pfc { enable: 0xFF, quanta: [0xFFFF; 8] };
    pfc.emit(Station::numbered(2).mac, &mut frame);
    assert!(pair.middle[0].send(Instant::from_ns(500), Flaw::None, &frame));
    pair.ends[0].due = Some(Instant::from_ns(500));
    pair.run(LATE, |_, _| true);
    assert_eq!(pair.delivered(1), [(0, 134_400)]);
    let stats = pair.ends[0].endpoint.stats();
    assert_eq!((stats.pfc_rx, stats.foreign), (0, 1));
    assert_eq!(pair.ends[0].endpoint.paused(pair.now), Span::ZERO);
}
