//! `weft traffic --rclink` between two namespaces through a running switch: what is lost is sent again, marks are answered,
//! PFC keeps LITE whole.
//!
//! Station 1 at `h1` sends requests to station 2 at `h2`; both reports are read.
//!
//! Units: requests, frames.
//! Source: docs/rclink.md; docs/spec/model.md §4.
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use serde_json::Value;
use weft_tests::netns::{Net, Switch, weft};
use weft_tests::talk::host as talk_host;

/// What the sender and the receiver say at the end, and the switch's drops.
struct Said {
    sender: Value,
    receiver: Value,
    drops: Value,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("expected a number, found {value}"))
}

/// Runs a receiver with `receives`, then a sender with `sends` to its end.
fn run(test: &str, config: &str, receives: &str, sends: &str) -> Option<Said> {
    let mut net = Net::new(test)?;
    net.add_joined("h1", "sw1", "10.78.0.1/24");
    net.add_joined("h2", "sw2", "10.78.0.2/24");
    let switch = Switch::start(&net, &["p1=af_packet:sw1", "p2=af_packet:sw2"], config);
    let receiver = talk_host(&net, "h2", &format!("--rclink --station 2 {receives}"));
    let sent = format!("traffic eth0 --json --rclink --station 1 --to 2 {sends}");
    let sent = net.run("h1", weft().to_str().unwrap(), &sent);
    let drops = switch.show("all").get_mut("drops").map(Value::take).unwrap_or_default();
    let done = net.run("h2", "kill", &format!("-TERM {}", receiver.id()));
    assert!(done.status.success());
    let received = receiver.wait_with_output().unwrap();
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or_default();
    let said = Said { sender: read(&sent.stdout), receiver: read(&received.stdout), drops };
    let errors = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(sent.status.success(), "{errors} {} {}", said.sender, said.receiver);
    Some(said)
}

/// Requests over a switch that loses 1 % of the frames each way: all are delivered, once and in order.
#[test]
fn all_requests_are_delivered_over_a_switch_that_loses_some() {
    deliver("all_requests_are_delivered_over_a_switch_that_loses_some", 20_000);
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_all_of_100_000_requests_are_delivered() {
    deliver("soak_all_of_100_000_requests_are_delivered", 100_000);
}

/// A receiver that does not get a processor for a second is no broken link: eight timers are two.
fn deliver(test: &str, requests: u64) {
    let config = "[express]\nenabled = false\n[port_defaults]\nrx_ring_frames = 8192\nloss_per_million = 10000\n";
    let sends = format!("--requests {requests} --request-bytes 64 --window 64 --ack-timeout 16");
    let Some(Said { sender, receiver, drops }) = run(test, config, "", &sends) else { return };
    let of = |said: &Value, path: &str| said.pointer(path).map_or(0, number);
    assert_eq!(of(&receiver, "/requests/delivered"), requests, "{receiver}");
    assert_eq!(of(&receiver, "/requests/delivered_bytes"), 64 * requests);
    assert_eq!(of(&receiver, "/requests/out_of_order"), 0);
    assert_eq!(of(&sender, "/requests/acknowledged"), requests, "{sender}");
    let (resent, tx) = (of(&sender, "/frames/resent"), of(&sender, "/frames/tx_frames"));
    assert_eq!(tx - resent, requests, "{sender}");
    assert!(resent > requests / 200 && of(&sender, "/frames/naks_rx") > 0, "{sender}");
    let injected = of(&drops, "/total/injected");
    let (timeouts, naks) = (of(&sender, "/frames/timeouts"), of(&sender, "/frames/naks_rx"));
    println!(
        "{injected} lost by the switch, {resent} sent again: {naks} NAKs, {timeouts} timeouts"
    );
    assert!(injected > requests / 100, "{drops}");
    assert_eq!(of(&receiver, "/frames/rx_frames"), requests);
}

/// A port that is slower than its sender marks what waits; each mark is answered, and the controller holds the sender back.
#[test]
fn marks_are_answered_and_cut_the_rate() {
    let config = "[express]\nenabled = false\n[ecn]\necn_threshold_low = 1\necn_threshold_high = 2\n\
        [port_defaults]\nrx_ring_frames = 8192\nmax_rate_gbps = 0.1\n";
    let sends = "--requests 3000 --request-bytes 1344 --ecn --window 256 --limit 1Gbps --dcqcn";
    let Some(Said { sender, receiver, .. }) =
        run("marks_are_answered_and_cut_the_rate", config, "--ecn", sends)
    else {
        return;
    };
    assert_eq!(number(&receiver["requests"]["delivered"]), 3_000, "{receiver}");
    let marked = number(&receiver["frames"]["marked"]);
    let cnps = number(&receiver["frames"]["cnps_tx"]);
    assert!(marked > 0 && cnps > 0 && cnps <= marked, "{receiver}");
    assert_eq!(number(&sender["frames"]["cnps_rx"]), cnps, "{sender}");
    assert!(number(&sender["congestions"]) > 0, "{sender}");
}

/// Frames wait in the queue of a slow port for longer than the timer, and none is sent again, as ACKs go on coming. The timer is
/// one of a second, so that a receiver that has no processor for a while is no reason.
#[test]
fn what_waits_in_a_slow_port_is_not_sent_again() {
    let config = "[express]\nenabled = false\n[port_defaults]\nrx_ring_frames = 8192\nmax_rate_gbps = 0.004\n";
    let sends = "--requests 1000 --request-bytes 1344 --window 512 --ack-timeout 18";
    let said = run("what_waits_in_a_slow_port_is_not_sent_again", config, "", sends);
    let Some(Said { sender, receiver, .. }) = said else { return };
    assert_eq!(number(&receiver["requests"]["delivered"]), 1_000, "{receiver}");
    let longest = number(&receiver["frame_latency"]["max_ps"]);
    assert!(longest > 1_073_741_824_000, "some waited for longer than the timer: {receiver}");
    assert_eq!(number(&sender["frames"]["resent"]), 0, "{sender}");
    assert_eq!(number(&sender["frames"]["timeouts"]), 0, "{sender}");
}

/// LITE sends nothing again: with PFC on both links nothing is lost, though the receiver is slow.
#[test]
fn lite_loses_nothing_with_pfc() {
    // What the rings may hold is headroom: 876 frames are left to share.
    let config = "[express]\nenabled = false\n[buffer]\nbuffer_size_mb = 15\n\
        [port_defaults]\nafh = \"lite\"\nrx_ring_frames = 1024\n";
    let receives = "--format lite --slow 50Mbps --slow-xoff 65536 --slow-xon 32768";
    let sends = "--format lite --requests 6000 --limit 200Mbps --linger 3";
    let Some(Said { sender, receiver, .. }) =
        run("lite_loses_nothing_with_pfc", config, receives, sends)
    else {
        return;
    };
    assert_eq!(number(&receiver["requests"]["delivered"]), 6_000, "{receiver}");
    // what LITE sends is never acknowledged
    assert_eq!(number(&sender["requests"]["sent"]), 6_000, "{sender}");
    assert_eq!(sender["requests"]["acknowledged"], Value::Null, "{sender}");
    assert_eq!(
        (number(&receiver["frames"]["lost"]), number(&receiver["frames"]["overruns"])),
        (0, 0)
    );
    assert!(number(&receiver["frames"]["pfc_tx"]) > 0, "{receiver}");
    assert!(number(&sender["frames"]["pfc_rx"]) > 0, "{sender}");
}

/// What has no meaning beside `--rclink`, or without it, is refused.
#[test]
fn flags_that_would_do_nothing_are_refused() {
    let Some(net) = Net::new("flags_that_would_do_nothing_are_refused") else { return };
    #[rustfmt::skip] // columns: flags, part of what is said
    let cases = [
        ("--rclink --rate 5fps",                  "cannot be used with"),
        ("--rclink --set switch.mtu=1",           "cannot be used with"),
        ("--requests 5",                          "--rclink"),
        ("--rclink --dcqcn",                      "--limit"),
        ("--rclink --limit 5fps",                 "expected N[k|M|G]bps"),
        ("--rclink --limit 5Mbps",                "expected 10.01Mbps"),
        ("--rclink --format ethernet",            "expected standard, gen1, gen2 or lite"),
        ("--rclink --format gen1,gen2",           "expected one --format"),
        ("--rclink --format lite --vlan 5",       "a tag"),
        ("--rclink --vc 8",                       "expected 0 to 7"),
        ("--rclink --window 513",                 "513"),
        ("--rclink --lite --ack-timeout 5",       "cannot be used with"),
        ("--lite",                                "--rclink"),
    ];
    for (flags, part) in cases {
        let done = net.run("sw", weft().to_str().unwrap(), &format!("traffic lo {flags}"));
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{flags}: {said}");
        assert!(said.contains(part), "{flags}: {said}");
    }
}
