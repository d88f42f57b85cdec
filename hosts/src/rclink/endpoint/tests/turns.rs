//! Order and rate of frames: turns of banks, and the controller of rates.

use super::*;

/// Receivers of the frames that endpoint 0 of four has sent, each with its virtual channel, when it had messages of two
/// frames for 1, 3 and 2.
fn order(banks: u8, bank_turns: bool) -> Vec<(u16, u8)> {
    let peers: Arc<[_]> = (1..=4).map(Station::numbered).collect();
    let spec = |number| EndpointSpec {
        banks,
        bank_turns,
        ..EndpointSpec::new(number, peers.clone(), Kind::Standard)
    };
    let mut pair = Pair::new([spec(0), spec(1)]);
    for to in [1, 3, 2] {
        pair.ends[0].endpoint.send(Message { id: to.into(), to, bytes: 2_688 }).unwrap();
    }
    pair.ends[0].due = Some(Instant::ZERO);
    let mut order = Vec::new();
    pair.run(Instant::from_ns(1_000), |from, frame| {
        if from == 0 {
            order.push((u16::from_be_bytes([frame[4], frame[5]]) - 1, frame[15] >> 5));
        }
        false
    });
    order
}

#[test]
fn banks_have_channels_and_take_turns_if_asked() {
    #[rustfmt::skip] // columns: banks, turns, frames: to whom, virtual channel
    let cases = [
        (1, false, [(1, 3), (3, 3), (2, 3), (1, 3), (3, 3), (2, 3)]),
        (2, false, [(1, 2), (3, 2), (2, 3), (1, 2), (3, 2), (2, 3)]),
        (2, true,  [(1, 2), (2, 3), (3, 2), (2, 3), (1, 2), (3, 2)]),
        (4, false, [(1, 2), (3, 0), (2, 1), (1, 2), (3, 0), (2, 1)]),
    ];
    for (banks, turns, want) in cases {
        assert_eq!(order(banks, turns), want, "{banks} banks, turns {turns}");
    }
}

/// Frames of 0 that 1 has taken between two instants, in microseconds.
fn between(pair: &mut Pair, from: u64, until: u64) -> u64 {
    let at = |us| Instant::from_ns(us * 1_000);
    pair.run(at(from), |_, _| true);
    let before = pair.ends[1].endpoint.stats().rx_frames;
    pair.run(at(until), |_, _| true);
    pair.ends[1].endpoint.stats().rx_frames - before
}

/// Marks cut the rate, again and again while they come; without them the rate returns to the full one.
#[test]
fn the_controller_follows_marks() {
    let mut pair = Pair::of(Kind::Standard, |spec| {
        spec.rate = Some((Span::from_ns(4_096), 204_800)); // 400 Gb/s
        spec.dcqcn = Some(DcqcnSpec { hyper: 20_480, ..DcqcnSpec::DEFAULT });
        spec.frame_events = false;
    });
    pair.send(0, 0, 1_344 * 1_000_000);
    let full = between(&mut pair, 0, 50);
    assert_eq!(full, 1_759); // 50 us less 100 ns, 28.36 ns each
    pair.ends[0].endpoint.request.change(|spec| spec.ecn = Ecn::Ce);
    between(&mut pair, 50, 56);
    // The line carries less than the limit of 400 Gb/s; half of it is 102,400 bytes a window, 73 or 74 frames.
    let half = between(&mut pair, 56, 56 + 41); // ten windows
    assert!((730..=742).contains(&half), "{half}");
    let low = between(&mut pair, 500, 600);
    assert!(low < 2 * full / 50, "ten cuts later: {low} frames in 100 us");
    pair.ends[0].endpoint.request.change(|spec| spec.ecn = Ecn::Ect0);
    assert_eq!(between(&mut pair, 3_000, 3_050), 1_763, "it is back");
    assert!(pair.ends[0].endpoint.cut.is_empty());
}

/// A receiver without PFC whose buffer is full sends an RNR NAK, and its sender waits for 10 us. Without RNR the frames
/// are lost until the timer or a gap has them sent again.
#[test]
fn who_is_not_ready_is_sent_to_later() {
    for rnr in [Some(1), None] {
        let mut pair = Pair::of(Kind::Standard, |spec| {
            spec.rnr = rnr;
            spec.frame_events = false;
            spec.slow = Some(SlowSpec {
                drain: LinkRate::gbps(100),
                xoff_bytes: usize::MAX,
                xon_bytes: 0,
                capacity_bytes: 140_000,
                lossless: PriSet::EMPTY,
                quanta: 1,
            });
        });
        pair.send(0, 0, 1_344 * 2_000);
        pair.run(LATE, |_, _| true);
        let (sender, receiver) = (pair.ends[0].endpoint.stats(), pair.ends[1].endpoint.stats());
        assert_eq!(pair.delivered(1), [(0, 1_344 * 2_000)], "{rnr:?}");
        assert!(receiver.overruns > 0 && receiver.pfc_tx == 0, "{rnr:?}");
        assert_eq!((receiver.rnrs_tx > 5, receiver.naks_tx > 0), (rnr.is_some(), rnr.is_none()));
        assert_eq!(sender.rnrs_rx, receiver.rnrs_tx);
        // 2,000 frames of 1,418 bytes at 100 Gb/s take 226.9 us
        let time = pair.ends[1].endpoint.last_taken().unwrap().as_ps() / 1_000_000;
        assert!(rnr.is_none() || time < 240, "{rnr:?}: {time} us");
    }
}

/// A receiver that is never ready is given up after 15 times.
#[test]
fn who_is_never_ready_fails() {
    let mut pair = Pair::of(Kind::Standard, |spec| {
        spec.rnr = Some(1);
        spec.slow = Some(SlowSpec {
            drain: LinkRate::gbps(100),
            xoff_bytes: usize::MAX,
            xon_bytes: 0,
            capacity_bytes: 1_000,
            lossless: PriSet::EMPTY,
            quanta: 1,
        });
    });
    pair.send(0, 0, 1_344 * 3);
    pair.run(LATE, |_, _| true);
    let failed = &pair.ends[0].events;
    assert!(matches!(failed[..], [Event::Failed { to: 1, frames: 3, .. }]), "{failed:?}");
    assert_eq!(pair.ends[0].endpoint.stats().rnrs_rx, 16);
    assert!(pair.now > Instant::from_ns(150_000) && pair.now < Instant::from_ns(160_000));
}

/// Delayed ACKs answer all frames that came in the meantime: one each microsecond and the way, of 100 frames in 2.8.
#[test]
fn an_ack_answers_all_that_came_before_it() {
    let mut pair = Pair::of(Kind::Standard, |spec| spec.ack_delay = Span::from_us(1));
    pair.send(0, 0, 1_344 * 100);
    pair.run(LATE, |_, _| true);
    let (sender, receiver) = (pair.ends[0].endpoint.stats(), pair.ends[1].endpoint.stats());
    assert_eq!((receiver.rx_frames, receiver.acks_tx, sender.acks_rx), (100, 3, 3));
    assert_eq!((sender.resent, receiver.naks_tx), (0, 0));
    assert_eq!(pair.sent(0), [0]);
    assert!(pair.ends.iter().all(|end| end.endpoint.is_idle()), "no ACK is left behind");
}
