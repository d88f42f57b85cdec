//! Turns of an endpoint: slices of long commands between frames, and the clock that a step goes by.

use weft_base::wait;

use super::*;
use crate::endpoint::slices::SLICE;

/// docs/endpoint.md, "Control socket": a long command is carried out in slices, between which frames are served.
#[test]
fn a_long_command_lets_frames_through() {
    const LEN: u64 = 64 * SLICE + 5;
    let device = DeviceSpec { bar: vec!["0=pref64:8MiB".to_owned()], ..DeviceSpec::default() };
    let mut net = Net::pair(&host_spec(), &device);
    let [bar] = net.enumerate(0)[..] else { panic!("one device") };
    let place = own(3, LEN, 7, Some(0));
    for command in [Command::Store(place.clone()), Command::Peek(place.clone())] {
        let number = net.runners[1].begin(net.now, &command);
        let (mut slices, mut reads) = (0_u64, 0);
        let report = loop {
            match net.runners[1].answer(number) {
                Some(Ok(Answer::Transfer(report))) => break *report,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            // Requests of the host are served again and again meanwhile.
            let read = Command::Read(Access { seed: None, ..seeded(bar, 8, 0) });
            let before = net.now;
            assert!(net.transfer(0, &read).ok);
            reads += 1;
            slices += net.now.since(before).as_ns() / 1_000; // a step takes a microsecond
            assert!(slices < 10_000, "it does not end");
        };
        assert!(report.ok && report.written + report.read == LEN, "{report:?}");
        assert!(slices >= LEN / SLICE && reads > 10, "{slices} slices, {reads} reads");
    }
    // A comparison in slices reports the right address.
    let at = 3 + 5 * SLICE;
    let change =
        OwnRange { addr: Num(at), data: Some(Hex(vec![0])), bar: Some(0), ..OwnRange::default() };
    assert!(net.transfer(1, &Command::Store(change)).ok);
    let report = net.transfer(1, &Command::Peek(place));
    assert_eq!((report.ok, report.mismatched, report.first_mismatch), (false, 1, Some(at)));
    // A range that exceeds the memory is refused as a whole, before any of it is written.
    let beyond = own((8 << 20) - SLICE, 2 * SLICE, 9, Some(0));
    assert!(net.refusal(1, &Command::Store(beyond)).contains("0x800000 bytes"));
    let last = OwnRange { seed: None, ..own((8 << 20) - SLICE, 8, 0, Some(0)) };
    assert_eq!(net.transfer(1, &Command::Peek(last)).data, Some(Hex(vec![0; 8])));
}

/// A host that was not polled for long finds the answers that arrived meanwhile, before it checks its time limits.
#[test]
fn answers_that_came_while_a_host_was_away_are_not_late() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    let [bar] = net.enumerate(0)[..] else { panic!("one device") };
    let read = Command::Read(Access { seed: None, ..seeded(bar, 8, 0) });
    let number = net.runners[0].begin(net.now, &read);
    net.steps(1); // the host sends the request, and the device answers
    net.now += Span::from_ms(5_000); // five times the host's time limit
    net.steps(1);
    match net.runners[0].answer(number) {
        Some(Ok(Answer::Transfer(report))) => assert!(report.ok, "{report:?}"),
        other => panic!("{other:?}"),
    }
}

/// A command is carried out in a step whose time was read after the command arrived, because a host compares leases
/// with that time.
#[test]
fn a_command_waits_for_the_next_look_at_the_clock() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    let handle = net.runners[0].handle();
    let asked = std::thread::spawn(move || handle.call(Command::Events {}));
    wait::until(wait::LONG, "the call", || net.runners[0].is_called().then_some(()));
    net.steps(1);
    assert!(net.runners[0].is_called(), "it came behind the look at the clock");
    net.steps(1);
    assert!(asked.join().unwrap().is_ok() && !net.runners[0].is_called());
}

/// Long commands of several clients get slices in turn.
#[test]
fn long_commands_take_turns() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    let store = |slices: u64, at: u64| Command::Store(own(RAM + at, slices * SLICE, 1, None));
    let long = net.runners[0].begin(net.now, &store(100, 0));
    let short = net.runners[0].begin(net.now, &store(3, 32 << 20));
    let steps = (1..100).find(|_| {
        net.steps(1);
        net.runners[0].answer(short).is_some()
    });
    assert_eq!(steps, Some(6));
    assert!(net.runners[0].answer(long).is_none());
    net.steps(200);
    assert!(net.runners[0].answer(long).is_some_and(|answer| answer.is_ok()));
}

/// An endpoint that ends refuses all waiting callers at once, whether their commands have begun or not.
#[test]
fn who_waits_is_told_that_the_endpoint_has_ended() {
    let store = Command::Store(own(RAM, 100 * SLICE, 1, None));
    for steps in [0, 4] {
        let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
        let handle = net.runners[0].handle();
        let (again, command) = (handle.clone(), store.clone());
        let asked = std::thread::spawn(move || handle.call(command));
        wait::until(wait::LONG, "the call", || net.runners[0].is_called().then_some(()));
        net.steps(steps);
        net.runners[0].end_commands();
        for refused in [asked.join().unwrap(), again.call(store.clone())] {
            assert_eq!(refused.unwrap_err().message, "the endpoint has ended");
        }
        net.steps(200);
    }
}
