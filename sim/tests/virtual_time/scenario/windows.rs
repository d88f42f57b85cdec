//! Throughput of windows: slots in a round trip, bytes in 4.096 us and its multiples.
//!
//! Source: docs/spec/model-reference.md §9 (windows below the loop), §11 (rate windows).

use weft_sim::scenario::flow::Flow;

use super::*;

const FRAME_PS: u64 = 28_440;

/// A flow of `frames` Standard frames at 400 Gb/s, with the endpoint as `change` leaves it.
fn takes(
    frames: u64,
    cable: u64,
    change: impl Fn(&mut EndpointSpec) + Send + Sync + 'static,
) -> u64 {
    let mut bench = Bench::new(400, Kind::Standard);
    bench.around.propagation = Span::from_ps(cable);
    let mut scenario = bench.scenario(chain(0), flows(vec![Flow::new(0, 1, 1_344 * frames)]));
    scenario.endpoints.template = Box::new(move |_, spec| {
        spec.frame.icrc = true;
        change(spec);
        Ok(())
    });
    run(&scenario).flows.first().and_then(|flow| flow.fct_ps).unwrap()
}

/// Two hosts on one cable with fewer slots than a round trip has frames: a frame for each slot in each round trip, W·S
/// / RTT of the line. 512 are enough up to a round trip of 14.6 us.
#[test]
fn slots_let_as_many_frames_fly_as_there_are() {
    const ACK_PS: u64 = 1_680;
    #[rustfmt::skip] // columns: slots, us of a round trip in 1/10, part of the line in 1/10,000
    let table = [
        (18, 10, 5_119), (18, 20, 2_559), (36, 20, 5_119), (70, 20, 9_954), (72, 20, 10_000), (64, 100, 1_820),
        (512, 145, 10_000), (512, 147, 9_905), (512, 500, 2_912),
    ];
    for (slots, tenths, part) in table {
        let window = u64::from(slots);
        let frames = 100 * window + 1;
        let rtt = tenths * 100_000;
        let cable = (rtt - FRAME_PS - ACK_PS) / 2;
        let had = takes(frames, cable, move |spec| spec.slots = slots);
        let first = (rtt + FRAME_PS - ACK_PS) / 2;
        let is_full = window * FRAME_PS >= rtt;
        let took = if is_full { 100 * window * FRAME_PS } else { 100 * rtt };
        assert_eq!(had, first + took, "{slots} slots, {rtt} ps");
        let of_line = 10_000 * 100 * window * FRAME_PS / took;
        assert!(of_line.abs_diff(part) <= 1, "{slots} slots, {rtt} ps: {of_line}");
    }
}

/// Frames go while less than the threshold was sent, and bytes beyond it are debt: the last frame goes in the window in
/// which all before it are paid for, to the picosecond.
#[test]
fn rate_windows_are_exact() {
    const LEN: u64 = 1_398;
    const CABLE: u64 = 50_000;
    #[rustfmt::skip] // columns: ns of a window, bytes a window, frames
    let table = [
        (4_096, 0x30, 200), (4_096, 1_398, 300), (4_096, 100_000, 20_000), (4_096, 200_000, 20_000), (8_192, 12_345, 2_000),
        (16_384, 100_000, 20_000), (32_768, 700_001, 20_000), (65_536, 0x30, 20), (65_536, 3_200_000, 20_000),
        (5_000, 125_000, 20_000), (60_001, 2_000_003, 20_000),
    ];
    for (ns, threshold, frames) in table {
        let length = Span::from_ns(ns);
        let had = takes(frames, CABLE, move |spec| spec.rate = Some((length, threshold)));
        let (window, of) = (length.as_ps(), u64::from(threshold));
        let last = (frames - 1) * LEN / of;
        let first_in_it = (last * of).div_ceil(LEN);
        let want = last * window + (frames - first_in_it) * FRAME_PS + CABLE;
        assert_eq!(had, want, "{threshold} bytes in {ns} ns");
    }
}
