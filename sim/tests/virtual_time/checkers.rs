//! Checkers object to each kind of mutation of a true run's events, and to counters that do not fit.
//!
//! One small run with PFC, ECN and two priorities is changed in one place.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]
#![expect(clippy::too_many_lines, clippy::type_complexity, reason = "tables of mutations")]

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::Pri;
use weft_parsers::{Format, Vid};
use weft_sim::checkers::{Checkers, Watch};
use weft_sim::frames::{FrameSpec, stations_known};
use weft_sim::setup::Setup;
use weft_sim::station::Stream;
use weft_sim::switch::SwitchTiming;
use weft_sim::world::World;

type Events = Vec<(Instant, Event)>;

/// A true run: three senders of a lossless, a lossy and a strict priority to a slow output.
fn record() -> (World, Events) {
    let mut setup = Setup::new(4, 4);
    setup.rates = vec![(0, LinkRate::gbps(10))];
    setup.buffer_bytes = 1 << 20;
    let mut world = World::new(&setup, &SwitchTiming::default(), |config| {
        stations_known(config, Vid::new(1).unwrap());
        (config.ecn.low_bytes, config.ecn.high_bytes) = (10_000, 60_000);
    })
    .unwrap();
    let mut events = Vec::new();
    let mut watch = Watch::new(&world.switch.core().snapshot.load(), |now, event: &Event| {
        events.push((now, *event));
    });
    for src in 1..4 {
        for of in [0, 2, 3] {
            let pri = Pri::new(of).unwrap();
            let spec = FrameSpec::new(Format::Standard, src, 0, 1_000, pri, 4);
            world.stations[src].add(Stream {
                id: u16::try_from(src * 4).unwrap() + u16::from(of),
                pri,
                template: spec.to_vec(),
                len_min: 1_000,
                gap: Span::ZERO,
                start: Instant::ZERO,
                count: 400,
            });
        }
    }
    assert!(world.drain(Instant::from_ns(1_000_000_000), &mut watch));
    watch.checkers.finish(world.now(), world.switch.core());
    assert_eq!(watch.checkers.violations(), []);
    drop(watch);
    (world, events)
}

/// Names of the checkers that object to `events`.
fn objections(world: &World, events: &Events) -> Vec<&'static str> {
    let core = world.switch.core();
    let mut checkers = Checkers::new(&core.snapshot.load());
    checkers.lossless_absolute = true;
    for (now, event) in events {
        checkers.event(*now, event);
    }
    checkers.finish(world.now(), core);
    let mut names: Vec<_> = checkers.violations().iter().map(|found| found.checker).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn position(events: &Events, wanted: impl Fn(&Event) -> bool) -> usize {
    events.iter().position(|(_, event)| wanted(event)).expect("the run has such an event")
}

#[test]
fn every_checker_objects_to_its_mutation() {
    let (world, true_run) = record();
    assert_eq!(objections(&world, &true_run), [""; 0], "the true run");
    let lossless = |events: &Events| {
        let at = position(events, |e| matches!(e, Event::Admit { pri: 2, verdict: "queue", .. }));
        (at, events[at].1.frame().unwrap())
    };
    #[rustfmt::skip] // columns: name, checker, mutation
    let cases: Vec<(&str, &str, Box<dyn Fn(&mut Events)>)> = vec![
        ("a frame sent twice", "conservation", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Tx { .. }));
            events.insert(at, events[at]);
        })),
        ("a frame lost", "conservation", Box::new(|events| {
            events.remove(position(events, |e| matches!(e, Event::Tx { .. })));
        })),
        ("a frame from nowhere", "conservation", Box::new(|events| {
            events.remove(position(events, |e| matches!(e, Event::Rx { .. })));
        })),
        ("room not given back", "buffer", Box::new(|events| {
            events.remove(position(events, |e| matches!(e, Event::Deq { .. })));
        })),
        ("room given back twice", "buffer", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Deq { .. }));
            events.insert(at, events[at]);
        })),
        ("admitted over the limit", "buffer", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Admit { verdict: "queue", .. }));
            if let Event::Admit { used, limit, .. } = &mut events[at].1 { *used = *limit; }
        })),
        ("two frames change places", "fifo", Box::new(|events| {
            let input = |events: &Events, frame| events.iter().find_map(|(_, e)| match *e {
                Event::Admit { frame: f, input, pri, .. } if f == frame => Some((input, pri)),
                _ => None,
            });
            let sent: Vec<_> = events.iter().enumerate().filter_map(|(n, (_, e))| match *e {
                Event::Tx { frame, .. } => Some((n, frame, input(events, frame))),
                _ => None,
            }).take(1_000).collect();
            // Both were in the switch when the first one was sent.
            let came = |frame| position(events, |e| matches!(e, Event::Rx { frame: f, .. } if *f == frame));
            let pair = sent.iter().enumerate().find_map(|(n, &(a, _, of))| {
                let later = sent[n + 1..].iter().take(100);
                let b = later.filter(|&&(_, _, other)| other == of).find(|&&(_, f, _)| came(f) < a)?;
                Some((a, b.0))
            });
            let (a, b) = pair.expect("frames of one flow wait together");
            let (x, y) = (events[a].1, events[b].1);
            (events[a].1, events[b].1) = (y, x);
        })),
        ("a lossless frame dropped", "lossless", Box::new(move |events| {
            let (at, frame) = lossless(events);
            events.insert(at, (events[at].0, Event::Drop { frame, port: 1, reason: "dt" }));
        })),
        ("a lossless frame finds no headroom", "lossless", Box::new(move |events| {
            let (at, frame) = lossless(events);
            events.insert(at, (events[at].0, Event::Drop { frame, port: 1, reason: "headroom" }));
        })),
        ("a lossy frame in headroom", "lossless", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Admit { pri: 0, .. }));
            if let Event::Admit { verdict, .. } = &mut events[at].1 { *verdict = "in_headroom"; }
        })),
        ("PAUSE without a reason", "pause", Box::new(|events| {
            events.remove(position(events, |e| matches!(e, Event::Group { xoff: true, .. })));
        })),
        ("a resume is missing", "pause", Box::new(|events| {
            let last = events.iter().rposition(|(_, e)| matches!(e, Event::PauseTx { pausing: 0, .. }));
            events.remove(last.expect("the run resumes"));
        })),
        ("a paused priority sends", "pause", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Deq { pri: 2, .. }));
            let pause = Event::PauseRx { port: 0, enable: 0x18, paused: 0b100 };
            events.insert(at, (events[at].0, pause));
        })),
        ("strict waits", "strict", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Deq { pri: 0, .. }));
            let waits = Event::Match { input: 1, output: 0, pri: 3, iteration: 1, frames: 1 };
            events.insert(at, (events[at].0, waits));
        })),
        ("Not-ECT is marked", "ecn", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Deq { marked: true, .. }));
            if let Event::Deq { ect, .. } = &mut events[at].1 { *ect = false; }
        })),
        ("marked below the lower mark", "ecn", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Deq { marked: true, .. }));
            if let Event::Deq { depth, .. } = &mut events[at].1 { *depth = 9_999; }
        })),
        ("not marked above the upper mark", "ecn", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Deq { marked: true, ect: true, depth, high, .. } if depth >= high));
            if let Event::Deq { marked, .. } = &mut events[at].1 { *marked = false; }
        })),
        ("sent back to its input", "forwarding", Box::new(|events| {
            let at = position(events, |e| matches!(e, Event::Forward { .. }));
            if let Event::Forward { outputs, .. } = &mut events[at].1 { *outputs = 0b1111; }
        })),
    ];
    for (name, checker, mutate) in cases {
        let mut events = true_run.clone();
        mutate(&mut events);
        let names = objections(&world, &events);
        assert!(names.contains(&checker), "{name}: {names:?}");
    }
}
