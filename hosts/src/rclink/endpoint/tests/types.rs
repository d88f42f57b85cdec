//! TYPE2, with few frames outstanding and none sent again, and TYPE3, which is raw Ethernet.

use weft_parsers::{TrafficClass, ether_type};

use super::*;

/// Bytes of a largest frame of TYPE2 in GEN1, and of an ACK.
const LEN: usize = 1_366;
const ACK_LEN: usize = 60;

fn type2(outstanding: u16, credits: u32) -> impl Fn(&mut EndpointSpec) {
    move |spec| {
        spec.frame.ether_type = ether_type::MAC_TYPE2;
        spec.transport =
            Transport::Unreliable { timeout: Span::from_us(100), outstanding, credits };
    }
}

/// A pair `way` apart, with ends changed by `change`.
fn apart(way: Span, kind: Kind, change: impl Fn(&mut EndpointSpec)) -> Pair {
    let specs = [0, 1].map(|number| {
        let peers: Arc<[_]> = [Station::numbered(1), Station::numbered(2)].into();
        let mut spec = EndpointSpec::new(number, peers, kind);
        change(&mut spec);
        spec
    });
    Pair::over(specs, RATE, way, Span::ZERO)
}

/// Between sender and receiver there are never more than `outstanding` frames, and that many pass in each loop:
/// min(line, n frames a loop), to a frame.
#[test]
fn type2_has_so_many_outstanding() {
    const FRAME_PS: u64 = 27_800; // 1,366 bytes, FCS, preamble, gap
    const ACK_PS: u64 = 1_680;
    let end = Instant::from_ns(200_000);
    #[rustfmt::skip] // columns: outstanding, credits, ns from the middle to the other end, frames a loop
    let table = [
        (16, 2_048, 1_000, 16), // as it is by default
        (16, 2_048,    50, 16), // below the loop's 8 frames: the line's rate
        (16,    33, 1_000,  3), // a frame of 1,370 bytes with FCS takes 11 credits of 128
        (16,    43, 1_000,  3),
        (16,    44, 1_000,  4),
        ( 1, 2_048, 1_000,  1),
    ];
    for (outstanding, credits, way_ns, frames) in table {
        let way = Span::from_ns(way_ns);
        let mut pair = apart(way, Kind::Gen1, type2(outstanding, credits));
        let (mut flying, mut most) = (0_u16, 0);
        pair.send(0, 0, 1_344 * 20_000);
        pair.run(end, |from, bytes| {
            if from == 0 {
                flying += 1;
                most = most.max(flying);
                assert_eq!(bytes.len(), LEN);
                assert_eq!(bytes[12..14], ether_type::MAC_TYPE2.to_be_bytes());
                assert_eq!(TrafficClass(bytes[6]).flow(), TrafficClass::FLOW_TYPE2);
            } else {
                flying -= 1;
                assert_eq!(bytes.len(), ACK_LEN);
            }
            true
        });
        let (sender, receiver) = (pair.ends[0].endpoint.stats(), pair.ends[1].endpoint.stats());
        assert!(most <= outstanding.min(frames), "{most} outstanding");
        let there = WAY.as_ps() + way.as_ps();
        let in_loop = FRAME_PS + ACK_PS + 2 * there;
        let time = end.as_ps() - there;
        let (rounds, rest) = (time / in_loop, time % in_loop / FRAME_PS);
        let frames = u64::from(frames);
        let want = if frames * FRAME_PS >= in_loop {
            time / FRAME_PS
        } else {
            rounds * frames + rest.min(frames)
        };
        let had = receiver.rx_frames;
        assert!(had.abs_diff(want) <= 1, "{outstanding} {credits} {way_ns}: {had}, not {want}");
        assert_eq!((sender.resent, receiver.lost, receiver.foreign), (0, 0, 0));
    }
}

/// A lost frame of TYPE2 is counted and never sent again, and does not stay outstanding for ever.
#[test]
fn type2_loses_what_is_lost() {
    let mut pair = apart(Span::ZERO, Kind::Gen1, type2(16, 2_048));
    pair.send(0, 0, 1_344 * 1_000);
    let mut rng = Rng::new(2);
    let (mut lost, mut passed) = (0_u64, 0_u64);
    pair.run(LATE, |from, _| {
        let passes = !rng.chance(1, 20);
        lost += u64::from(from == 0 && !passes);
        passed += u64::from(from == 0 && passes);
        passes
    });
    pair.send(0, 1, 1_344); // whose number tells of what was lost at the end
    pair.run(LATE, |_, _| true);
    let (sender, receiver) = (pair.ends[0].endpoint.stats(), pair.ends[1].endpoint.stats());
    assert_eq!((sender.tx_frames, sender.resent, sender.naks_rx), (1_001, 0, 0));
    assert_eq!(receiver.rx_frames, passed + 1);
    assert!(
        lost > 20 && receiver.lost <= lost && receiver.lost + 16 >= lost,
        "{lost} {receiver:?}"
    );
    assert_eq!(
        (pair.sent(0), pair.delivered(1).len()),
        (vec![0, 1], 1),
        "of a loss the rest is none"
    );
    assert!(pair.ends[0].endpoint.is_idle());
    // Where no ACK comes at all, the timer frees the outstanding frames.
    let mut pair = apart(Span::ZERO, Kind::Gen2, type2(16, 2_048));
    pair.send(0, 0, 1_344 * 64);
    pair.run(LATE, |from, _| from == 0);
    let stats = pair.ends[0].endpoint.stats();
    assert_eq!((stats.tx_frames, stats.timeouts, stats.acks_rx), (64, 64, 0));
    assert_eq!((pair.sent(0), pair.ends[1].endpoint.stats().rx_frames), (vec![0], 64));
}

/// Frames of TYPE3 have no RC Link header and no ACK; lost ones are counted.
#[test]
fn type3_is_raw_ethernet() {
    let mut pair = Pair::of(Kind::Ethernet, tag);
    pair.send(0, 7, 1_344 * 100);
    let mut count = 0;
    pair.run(LATE, |from, bytes| {
        assert_eq!(from, 0, "nothing comes back");
        assert_eq!(
            (bytes.len(), &bytes[12..14], &bytes[16..18]),
            (1_362, &[0x81, 0][..], &[0x90, 0][..])
        );
        assert_eq!(bytes[14] >> 5, 3, "its virtual channel is the PCP");
        count += 1;
        count != 5 && count != 6
    });
    let (sender, receiver) = (pair.ends[0].endpoint.stats(), pair.ends[1].endpoint.stats());
    assert_eq!((sender.tx_frames, sender.resent, sender.timeouts), (100, 0, 0));
    assert_eq!((receiver.rx_frames, receiver.lost, receiver.acks_tx), (98, 2, 0));
    assert_eq!((pair.sent(0), pair.delivered(1)), (vec![7], vec![]));
    pair.send(0, 8, 1_344);
    pair.run(LATE, |_, _| true);
    assert_eq!(pair.delivered(1), [(8, 1_344)]);
}

/// Descriptions whose parts do not fit each other are refused.
#[test]
fn types_are_checked() {
    let spec = |kind, change: &dyn Fn(&mut EndpointSpec)| {
        let peers: Arc<[_]> = [Station::numbered(1), Station::numbered(2)].into();
        let mut spec = EndpointSpec::new(0, peers, kind);
        change(&mut spec);
        Endpoint::new(spec).map(|_| ())
    };
    let format =
        |result: Result<(), EndpointError>| matches!(result, Err(EndpointError::Format { .. }));
    assert!(format(spec(Kind::Standard, &type2(16, 2_048))));
    assert!(format(spec(Kind::Lite, &type2(16, 2_048))));
    assert!(format(spec(Kind::Ethernet, &type2(16, 2_048))));
    assert!(format(spec(Kind::Gen1, &|spec| spec.transport = Transport::Raw)));
    assert_eq!(spec(Kind::Gen1, &type2(0, 2_048)), Err(EndpointError::Outstanding(0)));
    assert_eq!(
        spec(Kind::Gen1, &type2(16, 10)),
        Err(EndpointError::LocalCredits { had: 10, least: 11 })
    );
    let with_icrc = |spec: &mut EndpointSpec| {
        type2(16, 2_048)(spec);
        spec.frame.icrc = true;
    };
    assert_eq!(spec(Kind::Gen1, &with_icrc), Err(EndpointError::Icrc));
    assert_eq!(
        spec(Kind::Ethernet, &|spec| spec.rnr = Some(1)),
        Err(EndpointError::RnrWith("TYPE3"))
    );
}
