//! A poll at a wire takes the short way where it can, with the same results as any poll.

use super::*;

/// Events and counters of two endpoints, each of which has sent messages to the other over a way that loses frames.
fn run(
    kind: Kind,
    change: Change,
    per_thousand: u64,
    seed: u64,
    is_short: bool,
) -> [(Vec<Event>, EndpointStats); 2] {
    let mut pair = Pair::of(kind, change);
    for end in &mut pair.ends {
        end.is_short = is_short;
    }
    let (mut rng, mut loss) = (Rng::new(seed), Rng::new(seed + 1));
    for id in 0..20 {
        for from in 0..2 {
            if rng.chance(2, 3) {
                pair.send(from, id, 1 + rng.below(40_000));
            }
        }
        let end = pair.now + Span::from_ns(rng.below(2_000));
        pair.run(end, |_, _| !loss.chance(per_thousand, 1_000));
        pair.now = end;
    }
    pair.run(LATE, |_, _| !loss.chance(per_thousand, 1_000));
    pair.ends.map(|end| (end.events, end.endpoint.stats()))
}

#[test]
fn the_short_way_is_as_good_as_the_long_one() {
    #[rustfmt::skip] // columns: name, kind, what is changed, losses in a thousand
    let cases: [(&str, Kind, Change, u64); 11] = [
        ("standard",           Kind::Standard, |_| (), 0),
        ("standard, losses",   Kind::Standard, |_| (), 20),
        ("VLAN, losses",       Kind::Standard, tag, 20),
        ("ICRC, losses",       Kind::Standard, |spec| spec.frame.icrc = true, 20),
        ("CE",                 Kind::Standard, |spec| spec.frame.ecn = Ecn::Ce, 20),
        ("four banks",         Kind::Standard, |spec| spec.banks = 4, 20),
        ("few slots",          Kind::Standard, |spec| spec.slots = 3, 20),
        ("late ACKs",          Kind::Standard, |spec| spec.ack_delay = Span::from_ns(700), 20),
        ("a rate",             Kind::Standard, |spec| spec.rate = Some((Span::from_ns(4_096), 20_000)), 20),
        ("GEN1, losses",       Kind::Gen1,     |_| (), 20),
        ("GEN2, losses",       Kind::Gen2,     |_| (), 20),
    ];
    for (name, kind, change, per_thousand) in cases {
        let mut resent = 0;
        for seed in 0..10 {
            let [long, short] =
                [false, true].map(|is_short| run(kind, change, per_thousand, seed, is_short));
            assert_eq!(long, short, "{name}, seed {seed}");
            let [(_, stats), _] = long;
            assert!(stats.rx_frames > 50, "{name}");
            resent += stats.resent;
        }
        assert_eq!(resent > 0, per_thousand > 0, "{name}");
    }
}
