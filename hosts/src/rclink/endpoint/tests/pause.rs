//! The retransmission timer while PFC pauses the frames' priority.

use weft_parsers::{Pfc, mac_control};

use super::*;

/// The timeout of [`Transport::RELIABLE`].
const TIMER: Span = Span::from_ns(4_096 << 8);

/// Begin and end of a pause in nanoseconds, and whether it ends by quanta 0 or by itself.
type PauseNs = (u64, Option<u64>);

/// PFC that endpoint 0 receives from its link partner: `class` is paused for `quanta` at a time.
fn pfc(pair: &mut Pair, at: Instant, class: u8, quanta: u16) {
    let mut frame = [0; mac_control::FRAME_LEN];
    Pfc { enable: 0, quanta: [0; 8] }
        .with(class, quanta)
        .emit(Station::numbered(9).mac, &mut frame);
    assert!(pair.middle[0].send(at, Flaw::None, &frame));
    let end = &mut pair.ends[0];
    end.due = Instant::earlier(end.due, end.port.next_arrival());
}

/// The PFC class of endpoint 0's requests.
fn own_class(pair: &Pair) -> u8 {
    let endpoint = &pair.ends[0].endpoint;
    let classes = endpoint.spec.classes.pcp;
    u8::try_from(classes.iter().position(|&pri| pri == endpoint.first_pri()).unwrap()).unwrap()
}

/// Pauses a class of endpoint 0 from `from` to `until`, refreshed as a switch does, and ends the pause by quanta 0.
fn pause(pair: &mut Pair, class: u8, from: Instant, until: Instant) {
    let refresh = Span::from_ps(RATE.quanta(u16::MAX).as_ps() / 2);
    let mut at = from;
    while at < until {
        pfc(pair, at, class, u16::MAX);
        pair.run(at, |_, _| true);
        at += refresh;
    }
    pfc(pair, until, class, 0);
    pair.run(until, |_, _| true);
}

/// Two endpoints `way` apart, and whether they are polled the short way.
fn far(rate: LinkRate, way: Span, is_short: bool, kind: Kind) -> Pair {
    let peers: Arc<[_]> = [Station::numbered(1), Station::numbered(2)].into();
    let specs = [0, 1].map(|number| EndpointSpec::new(number, peers.clone(), kind));
    let mut pair = Pair::over(specs, rate, way, Span::ZERO);
    pair.ends.iter_mut().for_each(|end| end.is_short = is_short);
    pair
}

/// Frames that are in flight for three times the timeout, like their ACKs, are not sent again while PFC has their class
/// paused; without the pause, or with one of another class, they are.
#[test]
fn the_timer_stands_still_while_its_class_is_paused() {
    let rate = LinkRate::gbps(1); // of which the longest pause is 33 ms
    let way = Span::from_ps(TIMER.as_ps() * 3);
    #[rustfmt::skip] // columns: name, which class is paused, whether frames are sent again
    let cases = [
        ("no pause",  None,    true),
        ("its class", Some(0), false),
        ("another",   Some(1), true),
    ];
    for is_short in [false, true] {
        for kind in [Kind::Standard, Kind::Gen1] {
            for (name, other, is_again) in cases {
                let mut pair = far(rate, way, is_short, kind);
                pair.send(0, 0, 1_344 * 20);
                pair.run(Instant::from_ns(300_000), |_, _| true);
                if let Some(other) = other {
                    let class = own_class(&pair) ^ other;
                    pfc(&mut pair, Instant::from_ns(300_000), class, u16::MAX);
                }
                pair.run(LATE, |_, _| true);
                let stats = pair.ends[0].endpoint.stats();
                let case = format!("{name}, {kind:?}, short {is_short}: {stats:?}");
                assert_eq!(stats.resent > 0, is_again, "{case}");
                assert_eq!(stats.timeouts > 0, is_again, "{case}");
                assert_eq!(pair.sent(0), [0], "{case}");
                assert!(pair.ends[0].endpoint.is_idle(), "{case}");
            }
        }
    }
}

/// A lost frame is sent again when its timer has run for the timeout: the pauses delay that to the picosecond, however
/// they end.
#[test]
fn a_loss_is_noticed_when_the_timer_has_run_for_its_time() {
    let lasts = RATE.quanta(1_000);
    #[rustfmt::skip] // columns: name, pauses
    let cases: [(&str, &[PauseNs]); 4] = [
        ("none",            &[]),
        ("ended by quanta", &[(10_000, Some(10_700))]),
        ("ended by time",   &[(10_000, None)]),
        ("several",         &[(10_000, None), (500_000, Some(500_001)), (1_048_600, Some(1_048_800))]),
    ];
    for (name, pauses) in cases {
        let mut pair = far(RATE, WAY, false, Kind::Standard);
        pair.send(0, 0, 1_344);
        pair.run(Instant::from_ns(5_000), |_, _| false);
        let class = own_class(&pair);
        let mut stood = Span::ZERO;
        for &(begin, end) in pauses {
            let begin = Instant::from_ns(begin);
            pfc(&mut pair, begin, class, 1_000);
            pair.run(begin, |_, _| true);
            let end = end.map_or(begin + lasts, Instant::from_ns);
            if end < begin + lasts {
                pfc(&mut pair, end, class, 0);
            }
            pair.run(end, |_, _| true);
            stood = stood + end.since(begin);
        }
        let due = Instant::ZERO + TIMER + stood;
        pair.run(due - Span::from_ps(1), |_, _| true);
        assert_eq!(pair.ends[0].endpoint.stats().timeouts, 0, "{name}: a picosecond before");
        pair.run(due, |_, _| true);
        assert_eq!(pair.ends[0].endpoint.stats().timeouts, 1, "{name}");
        pair.run(LATE, |_, _| true);
        assert_eq!(pair.sent(0), [0], "{name}");
    }
}

/// An endpoint notices after the pause that its peer is gone, even if the pause was there from the start.
#[test]
fn who_is_not_there_fails_after_the_pause() {
    let mut pair = far(RATE, WAY, false, Kind::Standard);
    pair.send(0, 1, 1_344 * 10);
    let class = own_class(&pair);
    pair.run(Instant::from_ns(1_000), |_, _| false);
    pause(&mut pair, class, Instant::from_ns(2_000), Instant::from_ns(20_000_000));
    assert_eq!(pair.ends[0].endpoint.stats().timeouts, 0);
    pair.run(LATE, |_, _| false);
    let failed = pair.ends[0].events.iter().any(|event| matches!(event, Event::Failed { .. }));
    assert!(failed, "{:?}", pair.ends[0].endpoint.stats());
}
