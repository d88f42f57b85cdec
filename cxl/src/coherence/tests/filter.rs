//! The device's half alone: which hosts are snooped and how, bounds, and hosts that answer wrongly or not at all.
//!
//! Source: docs/spec/cxl-fabric.md "Back-invalidate".

use weft_base::rng::Rng;
use weft_parsers::fabric::Pid;

use super::super::filter::{Asker, Effect, Filter, WAITING_EACH, WAITING_MAX, Want, Wrong};
use super::super::{Hold, Snoop};
use Hold::{Owned, Shared};

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

fn effects(filter: &mut Filter<u32>) -> Vec<Effect<u32>> {
    std::iter::from_fn(|| filter.next_effect()).collect()
}

fn go(what: u32, grant: Option<Hold>) -> Effect<u32> {
    Effect::Go { what, grant }
}

fn snoop(to: u16, line: u64, how: Snoop) -> Effect<u32> {
    Effect::Snoop { to: pid(to), line, how }
}

/// Each request against each state of another host's copy: whether it is carried out at once, the snoops it needs, and
/// the copy left.
#[test]
fn each_request_snoops_what_is_in_its_way() {
    #[rustfmt::skip] // columns: what another has, request, snoop, what is granted, what the other may keep at most
    let cases = [
        (Want::Shared,    Want::Current,   Some(Snoop::Current),    None,         Some(Owned)),
        (Want::Shared,    Want::Shared,    Some(Snoop::Data),       Some(Shared), Some(Shared)),
        (Want::Exclusive, Want::Current,   Some(Snoop::Current),    None,         Some(Owned)),
        (Want::Exclusive, Want::Shared,    Some(Snoop::Data),       Some(Shared), Some(Shared)),
        (Want::Exclusive, Want::Exclusive, Some(Snoop::Invalidate), Some(Owned),  None),
        (Want::Exclusive, Want::NoCopy,    Some(Snoop::Invalidate), None,         None),
        (Want::Current,   Want::Exclusive, None,                    Some(Owned),  None),
        (Want::NoCopy,    Want::Shared,    None,                    Some(Owned),  None),
    ];
    for (first, second, want, grant, left) in cases {
        let mut filter = Filter::new(4);
        filter.ask(7, Asker::Cache(pid(1)), first, 1).unwrap();
        let had = filter.hold_of(pid(1), 7);
        assert_eq!(effects(&mut filter), [go(1, had)], "a sole reader owns the line");
        filter.ask(7, Asker::Cache(pid(2)), second, 2).unwrap();
        let Some(how) = want else {
            assert_eq!(effects(&mut filter), [go(2, grant)], "{first:?} {second:?}");
            continue;
        };
        assert_eq!(effects(&mut filter), [snoop(1, 7, how)], "{first:?} {second:?}");
        filter.answered(pid(1), 7, left).unwrap();
        assert_eq!(effects(&mut filter), [go(2, grant)], "{first:?} {second:?}");
        assert_eq!(filter.hold_of(pid(1), 7), left);
    }
}

#[test]
fn sharers_stay_until_somebody_writes() {
    let mut filter = Filter::new(4);
    filter.ask(1, Asker::Cache(pid(1)), Want::Shared, 1).unwrap();
    filter.ask(1, Asker::Cache(pid(2)), Want::Shared, 2).unwrap();
    filter.answered(pid(1), 1, Some(Shared)).unwrap();
    filter.ask(1, Asker::Cache(pid(3)), Want::Shared, 3).unwrap();
    effects(&mut filter);
    assert_eq!(filter.holders(1), [1, 2, 3].map(|host| (pid(host), Shared)));
    // A sharer that wants exclusive ownership is not snooped itself.
    filter.ask(1, Asker::Cache(pid(2)), Want::Exclusive, 4).unwrap();
    let invalidates = [snoop(1, 1, Snoop::Invalidate), snoop(3, 1, Snoop::Invalidate)];
    assert_eq!(effects(&mut filter), invalidates);
    filter.answered(pid(3), 1, None).unwrap();
    assert_eq!(effects(&mut filter), [], "one has not answered");
    // A requester without a copy: even the owner is snooped.
    filter.ask(1, Asker::Plain(pid(4)), Want::NoCopy, 5).unwrap();
    filter.answered(pid(1), 1, None).unwrap();
    assert_eq!(effects(&mut filter), [go(4, Some(Owned)), snoop(2, 1, Snoop::Invalidate)]);
    assert!(filter.leave(pid(2), 1, None), "a write-back passes what waits for it");
    filter.answered(pid(2), 1, None).unwrap();
    assert_eq!(effects(&mut filter), [go(5, None)]);
    assert_eq!(filter.used(), (0, 4));
}

/// A silent owner loses the line, whose value may be lost; a silent sharer loses its copy. An answer that keeps too
/// much does not count.
#[test]
fn who_does_not_answer_holds_up_nobody_for_ever() {
    for lies in [true, false] {
        let mut filter = Filter::new(4);
        filter.ask(1, Asker::Cache(pid(1)), Want::Exclusive, 1).unwrap();
        filter.ask(1, Asker::Cache(pid(2)), Want::Exclusive, 2).unwrap();
        effects(&mut filter);
        assert_eq!(filter.answered(pid(3), 1, None), Err(Wrong::Unexpected));
        assert_eq!(filter.answered(pid(1), 2, None), Err(Wrong::Unexpected));
        if lies {
            assert_eq!(filter.answered(pid(1), 1, Some(Owned)), Err(Wrong::KeepsTooMuch));
            assert_eq!((effects(&mut filter), filter.counts().wrong), (vec![], 1));
        }
        filter.silent(pid(1), 1);
        let lost = Effect::Lost { line: 1, who: pid(1) };
        assert_eq!(effects(&mut filter), [lost, go(2, Some(Owned))]);
        assert_eq!(filter.answered(pid(1), 1, None), Err(Wrong::Unexpected), "too late");
        assert!(!filter.leave(pid(1), 1, None), "nor has it anything to give up");
        filter.silent(pid(1), 1);
        assert_eq!(effects(&mut filter), []);
    }
    let mut filter = Filter::new(4);
    for host in [1, 2] {
        filter.ask(1, Asker::Cache(pid(host)), Want::Shared, 1).unwrap();
    }
    filter.answered(pid(1), 1, Some(Shared)).unwrap();
    filter.ask(1, Asker::Cache(pid(3)), Want::Exclusive, 3).unwrap();
    effects(&mut filter);
    filter.silent(pid(1), 1);
    filter.answered(pid(2), 1, None).unwrap();
    assert_eq!(effects(&mut filter), [go(3, Some(Owned))], "memory has what sharers had");
}

/// A full filter evicts one line for each request that waits for a place, and never holds more lines than its capacity.
#[test]
fn a_full_filter_takes_lines_away() {
    let mut filter = Filter::new(2);
    for line in 0..2 {
        filter.ask(line, Asker::Cache(pid(1)), Want::Exclusive, 0).unwrap();
    }
    effects(&mut filter);
    for line in 2..5 {
        filter.ask(line, Asker::Cache(pid(2)), Want::Shared, 2).unwrap();
    }
    let invalidates = [snoop(1, 0, Snoop::Invalidate), snoop(1, 1, Snoop::Invalidate)];
    assert_eq!(effects(&mut filter), invalidates);
    // Requests that need no place do not wait for one.
    filter.ask(9, Asker::Cache(pid(3)), Want::NoCopy, 9).unwrap();
    assert_eq!(effects(&mut filter), [go(9, None)]);
    filter.answered(pid(1), 0, None).unwrap();
    assert_eq!(effects(&mut filter), [go(2, Some(Owned)), snoop(2, 2, Snoop::Invalidate)]);
    filter.silent(pid(1), 1);
    let lost = Effect::Lost { line: 1, who: pid(1) };
    assert_eq!(effects(&mut filter), [lost, go(2, Some(Owned))]);
    filter.answered(pid(2), 2, None).unwrap();
    assert_eq!(effects(&mut filter), [go(2, Some(Owned))]);
    assert_eq!((filter.used(), filter.waiting()), ((2, 2), 0));
}

/// Free places go to waiting hosts in turn: a host that floods and never answers delays others by a place or two, not
/// by all its requests.
#[test]
fn places_go_to_hosts_in_turn() {
    let mut filter = Filter::new(2);
    for line in 0..200 {
        filter.ask(line, Asker::Cache(pid(1)), Want::Exclusive, 1).unwrap();
    }
    filter.ask(1_000, Asker::Cache(pid(2)), Want::Exclusive, 2).unwrap();
    filter.ask(1_001, Asker::Cache(pid(2)), Want::Exclusive, 3).unwrap();
    let mut order = Vec::new();
    for _ in 0..5 {
        for effect in effects(&mut filter) {
            match effect {
                Effect::Snoop { to, line, .. } => filter.silent(to, line),
                Effect::Go { what, .. } => order.push(what),
                Effect::Lost { .. } => {}
            }
        }
    }
    assert_eq!(order.first_chunk(), Some(&[1, 1, 1, 2, 1, 3]), "{order:?}");
}

/// Plain requests of one host leave room for those of others.
#[test]
fn plain_requests_are_of_their_host() {
    let mut filter = Filter::new(8);
    filter.ask(0, Asker::Cache(pid(99)), Want::Exclusive, 0).unwrap();
    let mut ask = |host: u16| filter.ask(0, Asker::Plain(pid(host)), Want::NoCopy, 1).is_ok();
    assert_eq!((0..2 * WAITING_EACH).filter(|_| ask(1)).count(), WAITING_EACH);
    assert!(ask(2));
}

#[test]
fn one_host_cannot_take_all_places_of_those_that_wait() {
    let mut filter = Filter::new(8);
    filter.ask(0, Asker::Cache(pid(99)), Want::Exclusive, 0).unwrap();
    let mut ask = |host: u16| filter.ask(0, Asker::Cache(pid(host)), Want::Exclusive, 1).is_ok();
    assert_eq!((0..2 * WAITING_EACH).filter(|_| ask(1)).count(), WAITING_EACH);
    let others = WAITING_MAX / WAITING_EACH - 1;
    for host in (2..).take(others) {
        assert!((0..WAITING_EACH).all(|_| ask(host)), "{host}");
    }
    assert!(!ask(80), "all places are taken");
    assert!(filter.ask(1, Asker::Cache(pid(80)), Want::Exclusive, 1).is_ok(), "it need not wait");
}

/// For random behaviour of hosts: no request is left waiting once all hosts have answered or timed out, and the counts
/// add up.
#[test]
fn any_behaviour_leaves_nothing_behind() {
    let mut rng = Rng::new(0xB1);
    for _ in 0..200 {
        let mut filter = Filter::new(1 + usize::try_from(rng.below(4)).unwrap());
        let (mut open, mut asked, mut gone) = (Vec::new(), 0_u32, 0_u32);
        for round in 0..400 {
            let (host, line) = (pid(1 + u16::try_from(rng.below(4)).unwrap()), rng.below(6));
            let left = [None, Some(Shared), Some(Owned)][usize::try_from(rng.below(3)).unwrap()];
            match rng.below(if round < 300 { 4 } else { 1 }) {
                0 if !open.is_empty() => {
                    let at = usize::try_from(rng.below(open.len() as u64)).unwrap();
                    let (to, line) = open.swap_remove(at);
                    if rng.chance(1, 2) {
                        filter.silent(to, line);
                    } else if filter.answered(to, line, left) == Err(Wrong::KeepsTooMuch) {
                        open.push((to, line));
                    }
                }
                0 | 1 => _ = filter.leave(host, line, left),
                _ => {
                    let wants = [Want::Current, Want::Shared, Want::Exclusive, Want::NoCopy];
                    let want = wants[usize::try_from(rng.below(4)).unwrap()];
                    asked += u32::from(filter.ask(line, Asker::Cache(host), want, 0).is_ok());
                }
            }
            for effect in effects(&mut filter) {
                match effect {
                    Effect::Snoop { to, line, .. } => open.push((to, line)),
                    Effect::Go { .. } => gone += 1,
                    Effect::Lost { .. } => {}
                }
            }
            let (used, room) = filter.used();
            assert!(used <= room, "{used} of {room}");
        }
        while let Some((to, line)) = open.pop() {
            filter.silent(to, line);
            for effect in effects(&mut filter) {
                match effect {
                    Effect::Snoop { to, line, .. } => open.push((to, line)),
                    Effect::Go { .. } => gone += 1,
                    Effect::Lost { .. } => {}
                }
            }
        }
        assert_eq!((filter.waiting(), gone), (0, asked));
    }
}
