//! Checkers of endpoints object to each kind of mutation of a true run.
//!
//! Frames and events of an endpoint are changed in one place, in a small run with losses, marks and PFC, in one with
//! credits, and in one of LITE.
//!
//! Source: docs/spec/model.md §4.

use weft_hosts::rclink::credits::CreditSpec;
use weft_hosts::rclink::endpoint::{EndpointStats, Event};
use weft_parsers::Pfc;
use weft_sim::network::Network;
use weft_sim::rclink_checkers::Rest;
use weft_sim::rclink_heard::{Frame, FrameKind, Heard};
use weft_sim::scenario::Checks;
use weft_sim::scenario::fault::Fault;

use super::*;

type All = Vec<(Instant, Heard)>;

/// Two senders of two messages each and a slow receiver; the first sender's link damages frames, outputs mark early,
/// and buffers are short.
fn reliable() -> Network {
    losing_one_in(60)
}

/// The same with one frame in `one_in` damaged.
fn losing_one_in(one_in: u64) -> Network {
    let mut bench = Bench::new(100, Kind::Standard);
    bench.setup.buffer_bytes = 500 << 10;
    bench.switch = |switch| (switch.ecn.low_bytes, switch.ecn.high_bytes) = (3_000, 20_000);
    bench.endpoint = |spec| spec.frame.icrc = true;
    let all = (0..4).map(|n| Flow::new(n % 2, 2, 1_344 * 200)).collect();
    let mut scenario = bench.scenario(Topology::single(3).unwrap(), flows(all));
    scenario.faults = vec![
        Fault::FrameError { link: 0, one_in },
        Fault::SlowReceiver { host: 2, drain: LinkRate::gbps(60) },
    ];
    drained(scenario)
}

/// Two endpoints at one cable, with credits for four frames.
fn credits() -> Network {
    let bench = Bench::new(400, Kind::Gen1);
    let mut scenario = bench.scenario(chain(0), flows(vec![Flow::new(0, 1, 1_344 * 100)]));
    scenario.endpoints.template = Box::new(|_, spec| {
        spec.credits = Some(CreditSpec::new(44));
        Ok(())
    });
    drained(scenario)
}

/// Frames that are sent only once.
fn lite() -> Network {
    let mut bench = Bench::new(400, Kind::Lite);
    (bench.switch, bench.endpoint) = (lite_switch, lite_endpoint);
    let all = vec![Flow::new(0, 1, 1_344 * 100), Flow::new(0, 1, 1_344 * 3)];
    drained(bench.scenario(chain(1), flows(all)))
}

/// A network that has run until nothing moves, without an objection.
fn drained(mut scenario: Scenario) -> Network {
    scenario.options.checks = Checks::Keep;
    let mut network = weft_sim::run::build(&scenario).unwrap();
    network.run(Instant::from_ns(500_000_000), 1).unwrap();
    assert!(network.is_idle());
    assert_eq!(network.violations(), []);
    network
}

/// Checkers of a host that object to the frames heard and the counters.
fn objections(
    network: &Network,
    host: usize,
    heard: &All,
    stats: &EndpointStats,
) -> Vec<&'static str> {
    let host = network.hosts().nth(host).unwrap();
    let mut checkers = host.watch().unwrap().checkers();
    for (now, heard) in heard {
        checkers.hear(*now, heard);
    }
    checkers.finish(network.now(), stats, Rest::None);
    let mut names: Vec<_> = checkers.violations().iter().map(|found| found.checker).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Index of the `nth` observation that is wanted.
fn place(heard: &All, nth: usize, wanted: impl Fn(&Heard) -> bool) -> usize {
    let mut all = heard.iter().enumerate().filter(|(_, (_, it))| wanted(it));
    all.nth(nth).expect("the run has so many").0
}

const fn is_sent_data(heard: &Heard) -> bool {
    matches!(heard, Heard::Sent(Frame { kind: FrameKind::Data { .. }, .. }))
}

const fn is_came_data(heard: &Heard) -> bool {
    matches!(heard, Heard::Came(Frame { kind: FrameKind::Data { .. }, .. }))
}

const fn is_received(heard: &Heard) -> bool {
    matches!(heard, Heard::Said(Event::Received { .. }))
}

/// Index of the first frame that is sent again.
fn back(heard: &All) -> usize {
    let mut seen = std::collections::BTreeSet::new();
    let again = |(_, it): &(Instant, Heard)| match it {
        Heard::Sent(Frame { kind: FrameKind::Data { message, index, .. }, .. }) => {
            !seen.insert((*message, *index))
        }
        _ => false,
    };
    heard.iter().position(again).expect("frames are sent again")
}

/// Changes the frame at an index.
fn change(heard: &mut All, at: usize, of: impl FnOnce(&mut Frame)) {
    match &mut heard.get_mut(at).unwrap().1 {
        Heard::Sent(frame) | Heard::Came(frame) => of(frame),
        other => panic!("{other:?} is no frame"),
    }
}

/// Changes the PSN of an answer.
fn shift(frame: &mut Frame, by: u16) {
    match &mut frame.kind {
        FrameKind::Ack(psn) | FrameKind::Nak(psn) => *psn = (*psn + by) % 4_096,
        other => panic!("{other:?} is no answer"),
    }
}

/// A mutation, and the checker that must object.
type Case = (&'static str, &'static str, fn(&mut All));

/// Gives mutations of the observations of host `host` to its checkers.
fn check(network: &Network, host: usize, cases: &[Case]) {
    let of = network.hosts().nth(host).unwrap();
    let (heard, stats) = (of.watch().unwrap().heard().to_vec(), of.endpoint().stats());
    assert_eq!(objections(network, host, &heard, &stats), [""; 0], "the true run");
    for (name, checker, mutate) in cases {
        let mut heard = heard.clone();
        mutate(&mut heard);
        let names = objections(network, host, &heard, &stats);
        assert!(names.contains(checker), "{name}: {names:?}");
    }
}

#[test]
fn checkers_of_senders_object() {
    #[rustfmt::skip] // columns: name, checker, mutation
    let cases: &[Case] = &[
        ("a lost ACK counted as delivered", "acknowledge", |all| {
            let done = place(all, 0, |it| matches!(it, Heard::Said(Event::Sent { .. })));
            let ack = |it: &(Instant, Heard)| matches!(it.1, Heard::Came(Frame { kind: FrameKind::Ack(_), .. }));
            all.remove(all[..done].iter().rposition(ack).unwrap());
        }),
        ("an ACK of what was never sent", "acknowledge", |all| {
            let at = place(all, 3, |it| matches!(it, Heard::Came(Frame { kind: FrameKind::Ack(_), .. })));
            change(all, at, |frame| shift(frame, 600));
        }),
        ("done twice", "acknowledge", |all| {
            let at = place(all, 0, |it| matches!(it, Heard::Said(Event::Sent { .. })));
            all.insert(at, all[at]);
        }),
        ("a frame left out", "sequence", |all| { all.remove(place(all, 7, is_sent_data)); }),
        ("a resend left out", "resend", |all| { all.remove(back(all)); }),
        ("a later resend left out", "sequence", |all| {
            let first = back(all);
            let next = (first + 1..all.len()).find(|&at| is_sent_data(&all[at].1)).unwrap();
            all.remove(next);
        }),
        ("another frame sent again", "sequence", |all| {
            let at = back(all);
            change(all, at, |frame| if let FrameKind::Data { index, .. } = &mut frame.kind { *index += 1; });
        }),
        ("a frame sent twice", "resend", |all| {
            let at = place(all, 7, is_sent_data);
            all.insert(at, all[at]);
        }),
        ("sent again without a NAK", "resend", |all| {
            let at = back(all);
            let nak = |it: &(Instant, Heard)| matches!(it.1, Heard::Came(Frame { kind: FrameKind::Nak(_), .. }));
            let nak = all[..at].iter().rposition(nak).unwrap();
            // It acknowledges as before, and does not ask.
            change(all, nak, |frame| if let FrameKind::Nak(psn) = frame.kind { frame.kind = FrameKind::Ack((psn + 4_095) % 4_096); });
        }),
        ("frames sent again and not counted", "ledger", |all| {
            let at = place(all, 0, |it| matches!(it, Heard::Said(Event::Sent { .. })));
            if let Heard::Said(Event::Sent { resent, .. }) = &mut all[at].1 { *resent += 1; }
        }),
        ("PAUSE ignored", "pause", |all| {
            let at = place(all, 9, is_sent_data);
            let Heard::Sent(frame) = all[at].1 else { return };
            let pfc = Pfc { enable: 0xFF, quanta: [1_000; 8] };
            all.insert(at, (all[at].0, Heard::Came(Frame { kind: FrameKind::Pfc(pfc), ..frame })));
        }),
        ("a PFC frame not counted", "ledger", |all| {
            all.retain(|(_, it)| !matches!(it, Heard::Came(Frame { kind: FrameKind::Pfc(_), .. })));
        }),
    ];
    let network = reliable();
    let stats = network.hosts().next().unwrap().endpoint().stats();
    assert!(
        stats.resent > 0 && stats.naks_rx > 0 && stats.pfc_rx > 0 && stats.cnps_rx > 0,
        "{stats:?}"
    );
    check(&network, 0, cases);
}

#[test]
fn checkers_of_receivers_object() {
    #[rustfmt::skip] // columns: name, checker, mutation
    let cases: &[Case] = &[
        ("frames taken out of order", "order", |all| {
            let (a, b) = (place(all, 5, is_received), place(all, 7, is_received));
            all.swap(a, b);
        }),
        ("a frame taken twice", "order", |all| {
            let at = place(all, 5, is_received);
            all.insert(at, all[at]);
        }),
        ("a frame taken that did not come", "order", |all| { all.remove(place(all, 0, is_came_data)); }),
        ("a message that is not all there", "deliver", |all| {
            let at = place(all, 0, |it| matches!(it, Heard::Said(Event::Delivered { .. })));
            all.remove(all[..at].iter().rposition(|(_, it)| is_received(it)).unwrap());
        }),
        ("a message there and not delivered", "deliver", |all| {
            all.retain(|(_, it)| !matches!(it, Heard::Said(Event::Delivered { .. })));
        }),
        ("delivered twice", "deliver", |all| {
            let at = place(all, 0, |it| matches!(it, Heard::Said(Event::Delivered { .. })));
            all.insert(at, all[at]);
        }),
        ("an ACK of what has not come", "answer", |all| {
            let at = place(all, 4, |it| matches!(it, Heard::Sent(Frame { kind: FrameKind::Ack(_), .. })));
            change(all, at, |frame| shift(frame, 3));
        }),
        ("a NAK of what is not missing", "answer", |all| {
            let at = place(all, 0, |it| matches!(it, Heard::Sent(Frame { kind: FrameKind::Nak(_), .. })));
            change(all, at, |frame| shift(frame, 3));
        }),
        ("marks lost", "ecn", |all| {
            for (_, it) in all.iter_mut() { if let Heard::Came(frame) = it { frame.ce = false; } }
        }),
        ("a CNP left out", "ecn", |all| {
            let last = |(_, it): &(Instant, Heard)| matches!(it, Heard::Sent(Frame { kind: FrameKind::Cnp, .. }));
            all.remove(all.iter().rposition(last).unwrap());
        }),
        ("a CNP too many", "ecn", |all| {
            let at = place(all, 0, |it| matches!(it, Heard::Sent(Frame { kind: FrameKind::Cnp, .. })));
            all.insert(at, all[at]);
        }),
    ];
    check(&reliable(), 2, cases);
}

#[test]
fn checkers_of_credits_object() {
    let network = credits();
    let counted = |it: &Heard| matches!(it, Heard::Counted(..));
    let last =
        |all: &All| all.iter().rposition(|(_, it)| matches!(it, Heard::Counted(..))).unwrap();
    assert!(
        network.hosts().next().unwrap().watch().unwrap().heard().iter().any(|it| counted(&it.1))
    );
    let _ = last;
    #[rustfmt::skip] // columns: name, checker, mutation
    let cases: &[Case] = &[
        ("more credits used than there are", "credit", |all| {
            all.retain(|(_, it)| !matches!(it, Heard::Counted(..)));
        }),
        ("a credit leaked", "credit", |all| {
            let last = all.iter().rposition(|(_, it)| matches!(it, Heard::Counted(..)));
            all.remove(last.unwrap());
        }),
        ("credits from nowhere", "credit", |all| {
            let at = place(all, 0, |it| matches!(it, Heard::Counted(..)));
            if let Heard::Counted(_, update) = &mut all[at].1 { update.count += 1_000; }
        }),
    ];
    check(&network, 0, cases);
}

#[test]
fn checkers_of_lite_object() {
    let network = lite();
    #[rustfmt::skip] // columns: name, checker, mutation
    let sender: &[Case] = &[
        ("a frame left out", "sequence", |all| { all.remove(place(all, 7, is_sent_data)); }),
        ("a frame sent twice", "sequence", |all| {
            let at = place(all, 7, is_sent_data);
            all.insert(at, all[at]);
        }),
        ("done before all is sent", "acknowledge", |all| {
            let done = all.remove(place(all, 0, |it| matches!(it, Heard::Said(Event::Sent { .. }))));
            let at = place(all, 50, is_sent_data);
            all.insert(at, done);
        }),
    ];
    check(&network, 0, sender);
    #[rustfmt::skip] // columns: name, checker, mutation
    let receiver: &[Case] = &[
        ("a frame lost", "order", |all| {
            all.remove(place(all, 7, is_came_data));
            all.remove(place(all, 7, is_received));
        }),
        ("a frame twice", "order", |all| {
            for of in [is_came_data, is_received] {
                let at = place(all, 7, of);
                all.insert(at, all[at]);
            }
        }),
    ];
    check(&network, 1, receiver);
}

/// A frame that is sent again when its timer would have ended is too early if its priority was paused in between.
#[test]
fn checkers_of_timers_object() {
    let network = losing_one_in(20);
    let timer = Span::from_ns(4_096 << 8);
    let of = network.hosts().next().unwrap();
    assert!(of.endpoint().stats().timeouts > 0, "{:?}", of.endpoint().stats());
    // The first frame sent again for no other reason: its timer began when it was sent, or at the ACK of those before
    // it.
    let heard = of.watch().unwrap().heard();
    let (mut last, mut acked) = (std::collections::BTreeMap::new(), Instant::ZERO);
    let late = heard.iter().find_map(|&(at, it)| match it {
        Heard::Sent(Frame { kind: FrameKind::Data { message, index, .. }, .. }) => {
            let began = acked.max(last.insert((message, index), at)?);
            (at == began + timer).then_some(began)
        }
        Heard::Came(Frame { kind: FrameKind::Ack(_), .. }) => {
            acked = at;
            None
        }
        _ => None,
    });
    let began = late.expect("a timer has ended");
    let mut stopped = heard.to_vec();
    let at = place(&stopped, 0, is_sent_data);
    let at = at + stopped.iter().skip(at).take_while(|(at, _)| *at <= began).count();
    let Heard::Sent(frame) = stopped[place(&stopped, 0, is_sent_data)].1 else { return };
    // For 5 ns, too short for another frame to be sent in the meantime.
    let pfc = FrameKind::Pfc(Pfc { enable: 0xFF, quanta: [1; 8] });
    stopped.insert(at, (began, Heard::Came(Frame { kind: pfc, ..frame })));
    let mut stats = of.endpoint().stats();
    stats.pfc_rx += 1;
    let names = objections(&network, 0, &stopped, &stats);
    assert!(names.contains(&"resend"), "{names:?}");
}

/// A counter that is wrong by one, whichever it is.
#[test]
fn checkers_of_books_object() {
    let network = reliable();
    for (host, names) in [(0, SENDERS), (2, RECEIVERS)] {
        let of = network.hosts().nth(host).unwrap();
        let heard = of.watch().unwrap().heard().to_vec();
        for (name, add) in names {
            let mut stats = of.endpoint().stats();
            add(&mut stats);
            assert_eq!(objections(&network, host, &heard, &stats), ["ledger"], "{name}");
        }
    }
}

type Book = (&'static str, fn(&mut EndpointStats));

const SENDERS: &[Book] = &[
    ("sent", |stats| stats.tx_frames += 1),
    ("sent again", |stats| stats.resent += 1),
    ("ACKs", |stats| stats.acks_rx += 1),
    ("NAKs", |stats| stats.naks_rx += 1),
    ("CNPs", |stats| stats.cnps_rx += 1),
    ("PFC", |stats| stats.pfc_rx += 1),
];

const RECEIVERS: &[Book] = &[
    ("taken", |stats| stats.rx_frames += 1),
    ("payload", |stats| stats.rx_payload += 1),
    ("marked", |stats| stats.marked += 1),
    ("ACKs", |stats| stats.acks_tx += 1),
    ("NAKs", |stats| stats.naks_tx += 1),
    ("CNPs", |stats| stats.cnps_tx += 1),
    ("PFC", |stats| stats.pfc_tx += 1),
];
