//! LAGs and stations behind several ports: refusals, choices of a link, and when links join.

use weft_base::rng::Rng;

use super::*;

fn port(index: usize) -> PortId {
    PortId::new(index).unwrap()
}

fn lag(name: &str, ports: u64) -> Lag {
    Lag { name: name.into(), ports: PortSet::from_bits(ports) }
}

fn links(lags: &[Lag], station: u64) -> Result<Links, LagError> {
    let station = (station != 0).then(|| (vid(), AddrKey::id16(7), PortSet::from_bits(station)));
    Links::build(lags, station.into_iter(), PortSet::first(8), 1)
}

fn vid() -> Vid {
    Vid::from_low_bits(1)
}

#[test]
fn wrong_ones_are_refused() {
    let [a, b] = ["a", "b"].map(str::to_owned);
    #[rustfmt::skip] // columns: name, LAGs, ports of a station, error
    let cases = [
        ("none",     vec![],                                  0,     None),
        ("good",     vec![lag("a", 0b110), lag("b", 0b11000)], 0b1011, None),
        ("one port", vec![lag("a", 0b10)],                    0,     Some(LagError::Few(a.clone()))),
        ("no port",  vec![lag("a", 0b10 | 1 << 8)],           0,     Some(LagError::Unknown { lag: a.clone(), port: port(8) })),
        ("shared",   vec![lag("a", 0b110), lag("b", 0b1100)], 0,     Some(LagError::Shared(a.clone(), b))),
        ("member",   vec![lag("a", 0b110)],                   0b101, Some(LagError::Member { lag: a, port: port(2) })),
        ("nowhere",  vec![],                                  1 << 9, Some(LagError::NoPort(port(9)))),
    ];
    for (name, lags, station, want) in cases {
        assert_eq!(links(&lags, station).err(), want, "{name}");
    }
}

#[test]
fn a_lag_is_known_by_its_first_port() {
    let links = links(&[lag("a", 0b1_0010)], 0b1001).unwrap();
    assert!(links.is_any());
    for (at, want) in [(0, 0), (1, 1), (4, 1), (5, 5)] {
        assert_eq!(links.leader(port(at)), port(want), "{at}");
    }
    assert_eq!(links.expand(PortSet::from_bits(0b1_0001)).bits(), 0b1_0011);
    assert_eq!(links.station(vid(), AddrKey::id16(7)), Some(PortSet::from_bits(0b1001)));
    assert_eq!(links.station(vid(), AddrKey::id16(8)), None);
    assert_eq!(links.station(Vid::from_low_bits(2), AddrKey::id16(7)), None);
    assert!(!super::tests::links(&[], 0b1).unwrap().is_any(), "one port is no choice");
}

#[test]
fn flows_spread_evenly_and_only_those_of_a_link_that_goes_move() {
    let four = PortSet::from_bits(0b1111_0000);
    let links = links(&[lag("a", four.bits())], 0).unwrap();
    let all = PortSet::from_bits(u64::MAX);
    let pick = |outputs: PortSet, hash| links.pick_members(outputs, || hash, all).0.sole().unwrap();
    let mut rng = Rng::new(3);
    let mut counts = [0_u32; 8];
    for _ in 0..8_000 {
        let hash = rng.next_u64();
        let before = pick(four, hash);
        counts[before.index()] += 1;
        for gone in four.iter() {
            let after = pick(four.without(PortSet::only(gone)), hash);
            assert!(after != gone && (before == gone || after == before), "{gone:?} {hash:#x}");
        }
    }
    // 2,000 expected; five standard deviations are 194.
    assert!(counts[4..].iter().all(|count| (1_806..=2_194).contains(count)), "{counts:?}");
}

#[test]
fn one_of_each_lag_and_all_others_are_kept() {
    let links = links(&[lag("a", 0b110), lag("b", 0b11000)], 0).unwrap();
    let all = PortSet::from_bits(u64::MAX);
    for hash in 0..64 {
        let (outputs, chosen) = links.pick_members(PortSet::first(8), || hash, all);
        assert!(chosen && outputs.len() == 6, "{outputs:?}");
        assert_eq!(outputs.bits() & 0b1110_0001, 0b1110_0001);
        // A link that has not joined is only taken when it is the last one.
        let (one, _) =
            links.pick_members(PortSet::from_bits(0b110), || hash, PortSet::only(port(2)));
        assert_eq!(one, PortSet::only(port(2)));
        let (one, _) =
            links.pick_members(PortSet::from_bits(0b010), || hash, PortSet::only(port(2)));
        assert_eq!(one, PortSet::only(port(1)));
    }
    let plain = PortSet::from_bits(0b10_0001);
    assert_eq!(links.pick_members(plain, || 1, all), (plain, false));
}

#[test]
fn stations_take_a_port_that_can() {
    let links = links(&[lag("a", 0b1100)], 0b111).unwrap();
    let all = PortSet::first(8);
    let ports = PortSet::from_bits(0b111);
    let (mut seen, mut within) = (PortSet::EMPTY, [0_u32; 4]);
    let mut rng = Rng::new(4);
    for _ in 0..3_000 {
        let hash = rng.next_u64();
        let picked = links.pick_port(ports, hash, all, all).unwrap();
        seen.insert(picked);
        if picked == port(2) {
            let (one, _) = links.pick_members(PortSet::from_bits(0b1100), || hash, all);
            within[one.sole().unwrap().index()] += 1;
        }
        let without = |bits| links.pick_port(ports, hash, all, PortSet::from_bits(bits)).unwrap();
        assert_ne!(without(!0b1), port(0));
        assert_eq!(without(0b1000), port(2), "by the other member of its LAG");
        assert!(ports.contains(without(0)), "one that is down is better than none");
    }
    assert_eq!(seen, ports);
    // 500 expected of each member; five standard deviations are about 110.
    assert!(within[2..].iter().all(|count| (390..=610).contains(count)), "{within:?}");
}

#[test]
fn a_link_joins_when_the_others_are_empty_or_it_has_waited_long_enough() {
    let links = links(&[lag("a", 0b110)], 0).unwrap();
    let groups = links.lags();
    let at = |ms| Instant::ZERO + Span::from_ms(ms);
    let (both, one) = (PortSet::from_bits(0b110), PortSet::from_bits(0b100));
    let mut joined = Joined::new();
    joined.keep(both, groups);
    assert_eq!(joined.links(), both, "at the start nothing waits");
    joined.keep(one, groups);
    joined.admit(at(1), groups, |_| true);
    assert_eq!((joined.links(), joined.next()), (one, None));
    joined.keep(both, groups);
    joined.admit(at(2), groups, |port| port.index() != 2);
    assert_eq!((joined.links(), joined.next()), (one, Some(at(102))), "frames wait at 2");
    joined.admit(at(3), groups, |port| port.index() == 2);
    assert_eq!((joined.links(), joined.next()), (both, None), "only 1 has frames");
    // Down again while it waits: the time begins anew.
    for ms in [10, 50] {
        joined.keep(one, groups);
        joined.keep(both, groups);
        joined.admit(at(ms), groups, |_| false);
        assert_eq!((joined.links(), joined.next()), (one, Some(at(ms + 100))));
    }
    joined.admit(at(149), groups, |_| false);
    assert_eq!(joined.links(), one);
    joined.admit(at(150), groups, |_| false);
    assert_eq!((joined.links(), joined.next()), (both, None));
}

#[test]
fn a_link_that_waits_takes_over_when_it_is_the_last_one() {
    let links = links(&[lag("a", 0b1110), lag("b", 0b110_0000)], 0).unwrap();
    let groups = links.lags();
    let mut joined = Joined::new();
    let mut up = |bits, want| {
        joined.keep(PortSet::from_bits(bits), groups);
        joined.admit(Instant::ZERO, groups, |_| false);
        assert_eq!(joined.links().bits(), want, "{bits:#b}");
    };
    up(0b0010, 0b0010);
    up(0b0110, 0b0010);
    up(0b0100, 0b0100);
    up(0b1110, 0b0100);
    up(0b1010, 0b1010);
    up(0b010_1010, 0b010_1010);
    up(0b110_1010, 0b010_1010);
}
