//! Go-Back-N against its closed form, over a way that loses frames of one direction.

use super::*;

/// Frames of Standard with ICRC: 1,398 bytes and 24.
const FRAME_PS: u64 = 28_440;
const ACK_PS: u64 = 1_680;
const RTO: Span = Span::from_us(100);

/// A pair whose ACKs are in `rtt` after the frame was begun.
fn pair(rtt_ns: u64, slots: u16) -> Pair {
    let spec = |number| EndpointSpec {
        slots,
        transport: Transport::Reliable { timeout: RTO },
        frame: FrameSpec { icrc: true, ..EndpointSpec::new(number, peers(), Kind::Standard).frame },
        ..EndpointSpec::new(number, peers(), Kind::Standard)
    };
    let way = (rtt_ns * 1_000 - FRAME_PS - ACK_PS) / 2 - WAY.as_ps();
    Pair::over([spec(0), spec(1)], Span::from_ps(way), Span::ZERO)
}

fn peers() -> Arc<[Station]> {
    [Station::numbered(1), Station::numbered(2)].into()
}

/// Frames taken of a million that the line could have carried, by the time that `frames` took.
fn efficiency(rtt_ns: u64, slots: u16, frames: u64, per_million: u64, seed: u64) -> u64 {
    let mut pair = pair(rtt_ns, slots);
    pair.send(0, 0, 1_344 * frames);
    let mut rng = Rng::new(seed);
    pair.run(LATE, |from, _| from == 1 || !rng.chance(per_million, 1_000_000));
    let receiver = &pair.ends[1].endpoint;
    assert_eq!(receiver.stats().rx_frames, frames);
    assert_eq!(pair.delivered(1), [(0, 1_344 * frames)]);
    let time = receiver.last_taken().unwrap().as_ps() - (rtt_ns * 1_000 - ACK_PS - FRAME_PS) / 2;
    frames * FRAME_PS * 1_000_000 / time
}

/// (1 - p) / (1 - p + p N + p^2 RTO / T), in millionths; N = RTT / T + 1.
fn closed_form(rtt_ns: u64, per_million: u64) -> u64 {
    const ONE: u128 = 1_000_000_000_000;
    let p = u128::from(per_million) * 1_000_000;
    let n = u128::from(rtt_ns) * 1_000 * ONE / u128::from(FRAME_PS) + ONE;
    let rto = u128::from(RTO.as_ps()) * ONE / u128::from(FRAME_PS);
    let below = ONE - p + p * n / ONE + p * p / ONE * rto / ONE;
    u64::try_from((ONE - p) * 1_000_000 / below).unwrap()
}

fn check(rtt_ns: u64, per_million: u64, frames: u64, tolerance_per_mille: u64) {
    let want = closed_form(rtt_ns, per_million);
    let had = efficiency(rtt_ns, 512, frames, per_million, 1);
    let close = had.abs_diff(want) * 1_000 <= want * tolerance_per_mille;
    println!("RTT {rtt_ns} ns, p {per_million} ppm: {had}, by the formula {want}");
    assert!(close, "RTT {rtt_ns} ns, p {per_million} ppm: {had}, not {want}");
}

#[test]
fn go_back_n_is_as_efficient_as_its_closed_form() {
    assert_eq!(closed_form(1_000, 1_000), 961_799); // 0.9618 in the table
    check(1_000, 10, 100_000, 5);
    check(1_000, 100, 100_000, 5);
    check(1_000, 1_000, 300_000, 5);
    check(1_000, 10_000, 60_000, 50);
    check(2_000, 10_000, 40_000, 50);
}

#[test]
#[ignore = "soak: some minutes"]
fn soak_go_back_n_is_as_efficient_as_its_closed_form() {
    for rtt_ns in [1_000, 2_000, 10_000] {
        for (per_million, tolerance) in [(10, 5), (100, 5), (1_000, 5), (10_000, 50)] {
            check(rtt_ns, per_million, 3_000_000, tolerance);
        }
    }
}

/// With fewer slots than the loop has frames: W T / RTT.
#[test]
fn a_window_below_the_loop_limits_the_rate() {
    for (slots, rtt_ns) in [(18, 2_000), (36, 2_000), (72, 2_000), (64, 10_000), (18, 1_000)] {
        let want = (u64::from(slots) * FRAME_PS * 1_000 / rtt_ns).min(1_000_000);
        let had = efficiency(rtt_ns, slots, 20_000, 0, 0);
        assert!(had.abs_diff(want) * 100 <= want, "{slots} slots, {rtt_ns} ns: {had}, not {want}");
    }
}
