//! Tests of both ends of a virtual link: tries, repetitions, foreign messages, lost paths, agreement.

use weft_base::rng::Rng;
use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::VdmOp;

use super::*;
use crate::vdm::Vdm;
use crate::vdm::testing::{Wire, ms, pid, wire_of};
use crate::vdm::{RETRY_INTERVAL, TRIES_MAX};

const HOST: Binding = Binding { own: Pid::from_low_bits(0x010), far: Pid::from_low_bits(0x020) };
const DEVICE: Binding = Binding { own: HOST.far, far: HOST.own };

fn message(op: VdmOp) -> Vdm {
    HOST.message(op)
}

fn sent(end: &mut VirtualDsp, now: Instant) -> Vec<VdmOp> {
    core::iter::from_fn(|| end.poll(now)).filter_map(Result::ok).map(|vdm| vdm.op).collect()
}

/// Bytes of docs/spec/wire-formats.md §3.8: hot reset of a `vDSP`.
#[test]
fn a_hot_reset_stands_on_the_wire_as_the_page_has_it() {
    let mut end = VirtualDsp::bind(ms(0), HOST, Some(Reset::Hot));
    let Some(Ok(vdm)) = end.poll(ms(0)) else { panic!() };
    #[rustfmt::skip]
    let want = [0xC6, 0x01, 0, 0x20, 0x34, 0, 0, 0, 0, 0, 0, 0x7E, 0, 0, 0x1E, 0x98, 0, 0, 1, 0x80];
    assert_eq!(wire_of(&vdm), want);
    end.deassert(ms(1));
    let Some(Ok(vdm)) = end.poll(ms(1)) else { panic!() };
    assert_eq!(wire_of(&vdm)[16..], [0, 0, 3, 0x80]);
    end.assert(ms(2), Reset::Fundamental);
    let Some(Ok(vdm)) = end.poll(ms(2)) else { panic!() };
    assert_eq!(wire_of(&vdm)[16..], [0, 0, 0, 0x80]);
    let mut usp = VirtualUsp::bind(DEVICE);
    usp.ready(ms(0));
    let want = [0xC6, 0x02, 0, 0x10, 0x34, 0, 0, 0, 0, 0, 0, 0x7E];
    let bytes = wire_of(&usp.poll(ms(0)).unwrap());
    assert_eq!((&bytes[..12], &bytes[16..]), (&want[..], &[0, 0, 4, 0x80][..]));
}

#[test]
fn tries_are_ten_times_ten_ms_and_then_the_link_stays_down() {
    let mut end = VirtualDsp::bind(ms(0), HOST, None);
    for k in 0..u64::from(TRIES_MAX) {
        assert_eq!(end.next_due(), Some(ms(10 * k)));
        assert_eq!(sent(&mut end, ms(10 * k)), [VdmOp::DeassertReset], "{k}");
    }
    assert_eq!(end.poll(ms(100)), Some(Err(LinkEvent::NoAnswer)));
    assert_eq!((end.poll(ms(999)), end.next_due(), end.state()), (None, None, LinkState::Down));
    // A late Link Up still counts.
    let late = DEVICE.message(VdmOp::LinkUp);
    assert_eq!((end.receive(&late), end.state()), (Some(LinkEvent::Up), LinkState::Up));
    // An Assert that runs out of tries is no event.
    end.assert(ms(1_000), Reset::Hot);
    let all: Vec<_> = (0..30).flat_map(|k| sent(&mut end, ms(1_000 + 10 * k))).collect();
    assert_eq!(all, [VdmOp::AssertReset; TRIES_MAX as usize]);
    assert_eq!((end.state(), end.next_due()), (LinkState::Reset(Reset::Hot), None));
}

#[test]
fn the_same_message_twice_changes_nothing() {
    let mut usp = VirtualUsp::bind(DEVICE);
    usp.ready(ms(0));
    let hot = LinkEvent::Asserted(Reset::Hot);
    #[rustfmt::skip] // columns: message, what it does at first
    let cases = [
        (VdmOp::AssertReset,   Some(hot)),
        (VdmOp::AssertPerst,   Some(LinkEvent::Asserted(Reset::Fundamental))),
        (VdmOp::AssertReset,   None), // within the other
        (VdmOp::DeassertReset, Some(LinkEvent::Deasserted)),
        (VdmOp::AssertReset,   Some(hot)),
        (VdmOp::DeassertReset, Some(LinkEvent::Deasserted)),
    ];
    for (op, want) in cases {
        assert_eq!(usp.receive(ms(1), &message(op)), want, "{op:?}");
        let before = usp.state();
        for _ in 0..3 {
            assert_eq!(usp.receive(ms(1), &message(op)), None, "{op:?} again");
        }
        assert_eq!((usp.state(), usp.poll(ms(1))), (before, None));
    }
    usp.ready(ms(2));
    assert_eq!(usp.poll(ms(2)).map(|vdm| vdm.op), Some(VdmOp::LinkUp));
    usp.heard();
    assert_eq!(usp.next_due(), None);
    assert_eq!(usp.receive(ms(3), &message(VdmOp::DeassertReset)), None, "asks once more");
    assert_eq!(usp.poll(ms(3)).map(|vdm| vdm.op), Some(VdmOp::LinkUp));
    assert_eq!(usp.state(), LinkState::Up);
}

#[test]
fn both_pids_must_match_and_the_route_be_hierarchical() {
    let mut usp = VirtualUsp::bind(DEVICE);
    let mut dsp = VirtualDsp::bind(ms(0), HOST, None);
    let right = message(VdmOp::AssertReset);
    let mut wrong = [right.clone(), right.clone(), right.clone()];
    wrong[0].pth.spid = pid(0x011);
    wrong[1].pth.dpid = pid(0x021);
    wrong[2].pth.hie = false;
    for vdm in &wrong {
        assert_eq!((usp.receive(ms(0), vdm), usp.state()), (None, LinkState::Down));
    }
    assert_eq!(usp.counts().foreign, 3);
    let mut up = DEVICE.message(VdmOp::LinkUp);
    (up.pth.spid, up.pth.dpid) = (HOST.own, HOST.far);
    assert_eq!((dsp.receive(&up), dsp.counts().foreign), (None, 1));
    assert!(usp.receive(ms(0), &right).is_some());
}

#[test]
fn messages_for_the_other_end_are_counted() {
    let mut dsp = VirtualDsp::bind(ms(0), HOST, None);
    let mut usp = VirtualUsp::bind(DEVICE);
    for (k, op) in VdmOp::ALL.into_iter().enumerate() {
        let (before, state) = (dsp.counts(), dsp.state());
        if op != VdmOp::LinkUp {
            assert_eq!(dsp.receive(&DEVICE.message(op)), None);
            assert_eq!(
                (dsp.counts().unexpected, dsp.state()),
                (before.unexpected + 1, state),
                "{k}"
            );
        }
        let known = [VdmOp::AssertPerst, VdmOp::AssertReset, VdmOp::DeassertReset];
        if !known.contains(&op) {
            let before = usp.counts();
            assert_eq!(usp.receive(ms(0), &message(op)), None);
            assert_eq!(usp.counts().unexpected, before.unexpected + 1, "{k}");
        }
    }
    dsp.assert(ms(1), Reset::Hot);
    assert_eq!(dsp.receive(&DEVICE.message(VdmOp::LinkUp)), None, "one that was on its way");
    assert_eq!(dsp.state(), LinkState::Reset(Reset::Hot));
}

#[test]
fn a_lost_path_is_a_surprise_down_at_both_ends() {
    let mut dsp = VirtualDsp::bind(ms(0), HOST, None);
    let mut usp = VirtualUsp::bind(DEVICE);
    usp.ready(ms(0));
    dsp.receive(&usp.poll(ms(0)).unwrap());
    assert_eq!((dsp.state(), usp.state()), (LinkState::Up, LinkState::Up));
    let down = Some(LinkEvent::SurpriseDown);
    assert_eq!((dsp.path_lost(), usp.path_lost()), (down, down));
    assert_eq!((dsp.path_lost(), usp.path_lost()), (None, None), "once");
    assert_eq!((dsp.next_due(), usp.next_due()), (None, None), "silent");
    assert_eq!(dsp.receive(&DEVICE.message(VdmOp::LinkUp)), None, "stale");
    assert_eq!(usp.receive(ms(1), &message(VdmOp::AssertReset)), None, "stale");
    usp.ready(ms(1));
    assert_eq!((dsp.state(), usp.state()), (LinkState::Down, LinkState::Down));
    // A reset without a path is sent when there is one.
    dsp.assert(ms(2), Reset::Fundamental);
    assert_eq!(dsp.poll(ms(2)), None);
    dsp.path_back(ms(3));
    usp.path_back();
    assert_eq!(sent(&mut dsp, ms(3)), [VdmOp::AssertPerst]);
    dsp.deassert(ms(4));
    assert_eq!(sent(&mut dsp, ms(4)), [VdmOp::DeassertReset]);
    usp.ready(ms(5));
    assert_eq!(dsp.receive(&usp.poll(ms(5)).unwrap()), Some(LinkEvent::Up));
    assert_eq!((usp.device_lost(), usp.device_lost()), (down, None));
}

//= docs/spec/wire-formats.md §3.8: the count of Link Up
/// Each end detects a loss of the path by itself: the upper end learns of one that only the lower end has seen.
#[test]
fn a_loss_that_only_the_lower_end_has_seen_is_told_to_the_upper_one() {
    let mut dsp = VirtualDsp::bind(ms(0), HOST, None);
    let mut usp = VirtualUsp::bind(DEVICE);
    usp.ready(ms(0));
    let first = usp.poll(ms(0)).unwrap();
    assert_eq!(dsp.receive(&first), Some(LinkEvent::Up));
    assert_eq!(usp.path_lost(), Some(LinkEvent::SurpriseDown));
    usp.path_back();
    usp.ready(ms(1));
    let told = usp.poll(ms(1)).unwrap();
    assert_eq!(dsp.receive(&told), Some(LinkEvent::Anew));
    assert_eq!((dsp.receive(&told), dsp.state()), (None, LinkState::Up), "once");
    // TLPs from above do not confirm that Link Up was received.
    usp.heard();
    for k in 1..u64::from(TRIES_MAX) {
        assert_eq!(usp.poll(ms(1 + 10 * k)).map(|vdm| vdm.op), Some(VdmOp::LinkUp), "{k}");
    }
    assert_eq!((usp.poll(ms(500)), usp.next_due()), (None, None));
    // A Link Up that was on its way during a reset by the host is replaced by the next one.
    dsp.assert(ms(600), Reset::Hot);
    usp.receive(ms(600), &message(VdmOp::AssertReset));
    dsp.deassert(ms(601));
    assert_eq!(sent(&mut dsp, ms(601)), [VdmOp::AssertReset, VdmOp::DeassertReset]);
    assert_eq!(dsp.receive(&told), Some(LinkEvent::Up), "it is of before");
    usp.receive(ms(602), &message(VdmOp::DeassertReset));
    usp.ready(ms(602));
    assert_eq!(dsp.receive(&usp.poll(ms(602)).unwrap()), Some(LinkEvent::Anew));
}

/// Bound in either order, with loss, delay and doubles, under resets of any length: once the host ends the reset
/// for long enough, both ends are up and fall silent.
#[test]
fn both_ends_agree_at_last() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut wires = [0, 1].map(|k| Wire::new(seed * 2 + k, 150, 150, 2_000_000));
        let usp_at = rng.below(300);
        let mut dsp = VirtualDsp::bind(ms(0), HOST, None);
        let mut usp = None;
        let mut ready_at = None;
        for t in 0..4_000 {
            let now = ms(t);
            if t == usp_at {
                usp = Some(VirtualUsp::bind(DEVICE));
                ready_at = Some(t);
            }
            if t < 2_000 && rng.chance(1, 200) {
                dsp.assert(now, if rng.chance(1, 2) { Reset::Hot } else { Reset::Fundamental });
            } else if t == 2_000 || t < 2_000 && rng.chance(1, 100) {
                dsp.deassert(now);
            }
            while let Some(Ok(vdm)) = dsp.poll(now) {
                wires[0].send(now, &vdm);
            }
            while let Some(vdm) = wires[1].recv(now) {
                dsp.receive(&vdm);
            }
            let Some(usp) = &mut usp else {
                while wires[0].recv(now).is_some() {}
                continue;
            };
            while let Some(vdm) = wires[0].recv(now) {
                match usp.receive(now, &vdm) {
                    Some(LinkEvent::Deasserted) => ready_at = Some(t + rng.below(30)),
                    Some(LinkEvent::Asserted(_)) => ready_at = None,
                    _ => {}
                }
            }
            if ready_at == Some(t) {
                usp.ready(now);
            }
            while let Some(vdm) = usp.poll(now) {
                wires[1].send(now, &vdm);
            }
        }
        let usp = usp.unwrap();
        assert_eq!((dsp.state(), usp.state()), (LinkState::Up, LinkState::Up), "seed {seed}");
        assert_eq!((dsp.next_due(), usp.next_due()), (None, None), "seed {seed}: silent");
    }
}

/// All histories of seven inputs at a `vUSP`: no reset is lost or reported twice, and the link is up only if ready.
#[test]
fn all_short_histories_of_a_device() {
    for history in 0..6_u32.pow(7) {
        let mut usp = VirtualUsp::bind(DEVICE);
        let (mut code, mut held, mut now) = (history, None, ms(0));
        for _ in 0..7 {
            let op = match code % 6 {
                0 => Some(VdmOp::AssertReset),
                1 => Some(VdmOp::AssertPerst),
                2 => Some(VdmOp::DeassertReset),
                3 => {
                    usp.ready(now);
                    None
                }
                4 => {
                    now += RETRY_INTERVAL;
                    None
                }
                _ => {
                    usp.device_lost();
                    None
                }
            };
            code /= 6;
            if let Some(op) = op {
                match usp.receive(now, &message(op)) {
                    Some(LinkEvent::Asserted(reset)) => {
                        assert!(held < Some(reset), "{history}");
                        held = Some(reset);
                    }
                    Some(LinkEvent::Deasserted) => assert!(held.take().is_some(), "{history}"),
                    other => assert_eq!(other, None, "{history}"),
                }
            }
            assert!(usp.poll(now).is_none() || usp.state() == LinkState::Up, "{history}");
            assert_eq!(matches!(usp.state(), LinkState::Reset(_)), held.is_some(), "{history}");
            assert_eq!(usp.poll(now), None, "{history}");
        }
    }
}
