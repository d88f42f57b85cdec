//! Frames that the kernel sends on by itself, on a running switch: `weft run` with its ports by AF_XDP.
//!
//! Hosts in namespaces whose ends have NAPI; what went express, what did not and why, and that
//! the books are even after all of it.
//!
//! Units: frames.
//! Source: docs/express.md.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use weft_base::wait::{LONG, pause, try_until, until};
use weft_dataplane::stats::DropReason;
use weft_tests::netns::{Net, Switch};
use weft_tests::talk;

const PORTS: [&str; 2] = ["p0=af_xdp:sw1", "p1=af_xdp:sw2"];
const ADDRESSES: [&str; 2] = ["10.79.0.1", "10.79.0.2"];

/// Two hosts whose ends have NAPI, or the reason why not.
fn two_hosts(test: &str) -> Option<Net> {
    if let Err(why) = weft_xdp::object() {
        eprintln!("SKIPPED {test}: the XDP program is {why}");
        return None;
    }
    let mut net = Net::new(test)?;
    for (host, port, address) in [("h1", "sw1", ADDRESSES[0]), ("h2", "sw2", ADDRESSES[1])] {
        net.add_joined(host, port, &format!("{address}/24"));
        net.napi(host, "eth0", true);
    }
    for host in ["sw", "h1", "h2"] {
        // No frames but those of the test.
        let quiet = net.run(host, "sysctl", "-qw net.ipv6.conf.all.disable_ipv6=1");
        assert!(quiet.status.success(), "sysctl: {}", String::from_utf8_lossy(&quiet.stderr));
    }
    Some(net)
}

/// What `weft show` says of the ports.
fn ports(switch: &Switch) -> Vec<Value> {
    let shown: Value = serde_json::from_str(&switch.ask("show ports --json").unwrap()).unwrap();
    shown["ports"].as_array().unwrap().clone()
}

/// Waits until no port says why none of its frames would be express.
fn wait_until_open(switch: &Switch) {
    let mut said = Vec::new();
    let open = try_until(LONG, || {
        said = ports(switch);
        said.iter().all(|port| port["no_express"].is_null()).then_some(())
    });
    assert!(open.is_some(), "still closed: {said:?}");
}

/// Express frames by input.
fn express(switch: &Switch) -> Vec<u64> {
    ports(switch).iter().map(|port| port["express"].as_u64().unwrap()).collect()
}

/// Stops the switch; its books must be even, and no chunk of the pool missing.
fn stop(switch: Switch) -> Value {
    let end = switch.stop();
    let sum = |name: &str| end[name].as_u64().unwrap();
    let (came, went) = (sum("rx") + sum("copies"), sum("tx") + sum("dropped") + sum("consumed"));
    assert_eq!((came, sum("queued")), (went, 0), "the books of {end}");
    end
}

/// Hosts that know each other talk in the kernel: most frames are express, all are counted.
#[test]
fn hosts_that_are_known_talk_in_the_kernel() {
    let Some(net) = two_hosts("hosts_that_are_known_talk_in_the_kernel") else { return };
    let switch = Switch::start(&net, &PORTS, "");
    wait_until_open(&switch);
    assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 1_000), 1_000);
    let went = express(&switch);
    assert!(went.iter().all(|&frames| frames >= 900), "{went:?} of 1,000 each way");
    let end = stop(switch);
    let frames = end["port"][0]["rx_frames"].as_u64().unwrap();
    assert!(frames >= 1_000, "{frames}");
}

/// What a host reports at its end.
fn report(host: Child) -> Value {
    let done = host.wait_with_output().unwrap();
    serde_json::from_slice(&done.stdout).expect("a report as JSON")
}

/// Signals a switch's process, or a host's.
fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(done.unwrap().success(), "kill -{name} {pid}");
}

/// Frames that are express again before the sender may end.
const MORE: u64 = 100_000;

/// Hundreds of thousands of numbered frames, of priorities that are express and of those that are not, as 1 and 2 are
/// lossless; in the middle all of them come to a switch that is stopped, so that its fill ring runs empty. Express comes
/// back, nothing is out of order or comes twice, every frame that is lost is counted.
#[test]
fn order_holds_through_starvation_and_what_is_lost_is_counted() {
    let Some(net) = two_hosts("order_holds_through_starvation") else { return };
    let switch = Switch::start(&net, &PORTS, "");
    wait_until_open(&switch);
    let noise = [crossed(&net, "h1", "tx"), crossed(&net, "h2", "rx")];
    let receiver = talk::host(&net, "h2", "--station 2 --to 1 --count 1 --linger 300");
    let sender = talk::host(&net, "h1", "--station 1 --to 2 --pri all --rate 80kfps");
    let express = || express(&switch)[0];
    let before = until(LONG, "the first frames are express", || {
        Some(express()).filter(|&frames| frames > 1_000)
    });

    // All frames come to user space, which stands still.
    let capture = Switch::folder(&net).join("all.pcap");
    switch.ask(&format!("mirror p0 {}", capture.display())).expect("the switch mirrors");
    until(LONG, "no frame is express", || {
        let frames = express();
        pause(Duration::from_millis(50)); // a rate is over a span
        (express() == frames).then_some(())
    });
    signal(switch.pid(), "STOP");
    pause(Duration::from_millis(300)); // more frames than the fill ring has chunks
    signal(switch.pid(), "CONT");
    until(LONG, "starvation", || {
        (switch.show("drops")["total"]["xsk_ring"].as_u64() > Some(0)).then_some(())
    });
    switch.ask("mirror p0 --off").expect("the switch mirrors no more");
    wait_until_open(&switch);
    let closed = express();
    let back =
        until(LONG, "express is back", || Some(express()).filter(|&frames| frames > closed + MORE));
    println!("express: {before} before, {closed} while it was closed, {back}");

    signal(sender.id(), "INT");
    drop(report(sender));
    let sent = crossed(&net, "h1", "tx") - noise[0];
    until(LONG, "all that was sent has come in, and gone out", || {
        let shown = ports(&switch);
        let of = |port: usize, name: &str| shown[port][name].as_u64().unwrap();
        let out = crossed(&net, "h2", "rx") - noise[1];
        let all = of(0, "rx_frames") + of(0, "kernel_rx") == sent && of(1, "tx_frames") == out;
        all.then_some(())
    });
    signal(receiver.id(), "INT");
    let received = report(receiver);
    let end = stop(switch);
    let streams = received["rx_streams"].as_array().unwrap();
    assert_eq!(streams.len(), 4, "{streams:?}");
    let of = |stream: &Value, name: &str| stream[name].as_u64().unwrap();
    for stream in streams {
        let faults = ["reordered", "duplicates", "corrupt", "too_old"].map(|name| of(stream, name));
        assert_eq!(faults, [0; 4], "{stream}");
    }
    let drops = |reason| drops_of(&end, reason);
    assert!(drops(DropReason::XskRing) > 0, "starvation was forced");
    assert_eq!(end["dropped"].as_u64().unwrap(), drops(DropReason::XskRing), "and nothing else");
    let [input, output] = [0, 1].map(|port| &end["port"][port]);
    let came = of(input, "rx_frames") + of(input, "kernel_rx");
    let crossed = |host, way| crossed(&net, host, way);
    assert_eq!(came, crossed("h1", "tx") - noise[0], "what was sent came in, or is counted");
    assert_eq!(of(output, "tx_frames"), crossed("h2", "rx") - noise[1], "what was sent came out");
}

/// Frames that a host's interface sent (`tx`) or received (`rx`).
fn crossed(net: &Net, host: &str, way: &str) -> u64 {
    let said = net.run(host, "ip", "-s -j link show eth0");
    let shown: Value = serde_json::from_slice(&said.stdout).expect("ip -j says JSON");
    shown[0]["stats64"][way]["packets"].as_u64().unwrap()
}

/// Drops of a reason, over all ports.
fn drops_of(end: &Value, reason: DropReason) -> u64 {
    let of = |port: &Value| port["drops"][reason as usize].as_u64().unwrap();
    end["port"].as_array().unwrap().iter().map(of).sum()
}

/// A far end that takes no redirected frames: nothing is lost, and `weft show ports` says why nothing
/// is express; when it takes them, they are.
#[test]
fn an_end_without_napi_gets_its_frames_from_the_switch() {
    let Some(net) = two_hosts("an_end_without_napi") else { return };
    net.napi("h2", "eth0", false);
    let switch = Switch::start(&net, &PORTS, "");
    let why = |switch: &Switch| ports(switch)[1]["no_express"].as_str().map(str::to_owned);
    let said = until(LONG, "it says why", || why(&switch));
    assert!(said.contains("NAPI"), "{said:?}");
    assert!(switch.ask("show ports").unwrap().contains("p1: no express: "));
    assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 200), 200);
    let went = express(&switch);
    assert!(went[0] == 0 && went[1] >= 150, "only what goes to the other end: {went:?}");
    net.napi("h2", "eth0", true);
    wait_until_open(&switch);
    assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 200), 200);
    assert!(express(&switch)[0] >= 150);
    stop(switch);
}

/// TCP and UDP of hosts that leave checksums to their device, by every way through the switch.
#[test]
fn checksums_hold_on_every_way() {
    let Some(net) = two_hosts("checksums_hold_on_every_way") else { return };
    let ways = [
        ("express", PORTS, ""),
        ("AF_XDP", PORTS, "[express]\nenabled = false\n"),
        ("packet sockets", ["p0=af_packet:sw1", "p1=af_packet:sw2"], ""),
    ];
    for (name, ports, config) in ways {
        let switch = Switch::start(&net, &ports, config);
        assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 20), 20, "{name}");
        let before = express(&switch);
        let rate = talk::tcp(&net, "h1", "h2", ADDRESSES[1], 2);
        assert!(rate > 1e6, "{name}: {rate} bit/s");
        let datagrams = talk::udp(&net, "h1", "h2", ADDRESSES[1], 2);
        assert!(datagrams > 100, "{name}: {datagrams} datagrams");
        for host in ["h1", "h2"] {
            assert_eq!(talk::checksum_errors(&net, host), 0, "{name}: {host}");
        }
        if name == "express" {
            // What comes with a checksum to be completed goes the long way, all else does not.
            assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 100), 100);
            let after = express(&switch);
            assert!(after[0] >= before[0] + 90, "{before:?}, {after:?}");
        }
        stop(switch);
    }
}

/// A station that only the kernel hears does not age; one that is silent does; one that moves gets its
/// frames where it is.
#[test]
fn stations_age_and_move_as_they_are_heard_in_the_kernel() {
    let Some(net) = two_hosts("stations_age_and_move") else { return };
    let switch = Switch::start(&net, &PORTS, "[fdb]\nageing_s = 2\n");
    wait_until_open(&switch);
    assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 100), 100);
    let learned = |switch: &Switch| {
        let shown: Value = serde_json::from_str(&switch.ask("show fdb --json").unwrap()).unwrap();
        shown["fdb"]["entries"].as_array().unwrap_or_else(|| panic!("{shown}")).len()
    };
    let before = express(&switch)[0];
    for _ in 0..15 {
        assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 10), 10);
        pause(Duration::from_millis(200)); // all rounds are longer than a silent station lives
        assert_eq!(learned(&switch), 2, "they are heard");
    }
    let went = express(&switch)[0] - before;
    assert!(went >= 140, "{went} of 150 express");
    until(LONG, "they are silent, and forgotten", || (learned(&switch) == 0).then_some(()));

    // The address of the second host moves to the first port, and back.
    assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 20), 20);
    let (mac, own) = (net.mac("h2"), net.mac("h1"));
    net.ip("h1", &format!("link set eth0 address {mac}"));
    net.ip("h1", &format!("neigh replace {} lladdr {own} dev eth0 nud permanent", ADDRESSES[1]));
    assert_eq!(talk::ping(&net, "h1", ADDRESSES[1], 20), 0, "nobody has that address");
    net.ip("h1", &format!("link set eth0 address {own}"));
    net.ip("h1", &format!("neigh replace {} lladdr {mac} dev eth0 nud permanent", ADDRESSES[1]));
    // The switch hears it where it is.
    assert_eq!(talk::ping(&net, "h2", ADDRESSES[0], 1), 1);
    assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 200), 200);
    stop(switch);
}

/// Who wants to see every frame sees them: those that would be express, too.
#[test]
fn a_mirror_sees_what_would_be_express() {
    let Some(net) = two_hosts("a_mirror_sees_what_would_be_express") else { return };
    let switch = Switch::start(&net, &PORTS, "");
    wait_until_open(&switch);
    assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 100), 100);
    let before = express(&switch);
    assert!(before[0] > 0);
    let capture = Switch::folder(&net).join("all.pcap");
    switch.ask(&format!("mirror p0 {}", capture.display())).expect("the switch mirrors");
    assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 100), 100);
    assert_eq!(express(&switch), before, "none was");
    assert!(ports(&switch)[0]["no_express"].as_str().unwrap().contains("mirror"));
    switch.ask("mirror p0 --off").unwrap();
    let mut reader = weft_dataplane::port::capture::CaptureReader::open(&capture).unwrap();
    let seen = reader.by_ref().filter(|record| record.as_ref().unwrap().data.len() > 80).count();
    assert!(seen >= 200, "{seen} of 100 pings and their answers");
    wait_until_open(&switch);
    assert_eq!(talk::answers(&net, "h1", ADDRESSES[1], 100), 100);
    assert!(express(&switch)[0] > before[0]);
    stop(switch);
}

/// Without the follower no station is ever known to the kernel again: the switch ends instead, and says why.
#[test]
fn a_switch_whose_follower_is_gone_ends() {
    let name = "a_switch_whose_follower_is_gone_ends";
    let Some(net) = two_hosts(name) else { return };
    // Only a build with debug assertions has the hook: the one beside this test.
    let own = std::env::current_exe().unwrap();
    let weft = own.ancestors().nth(2).unwrap().join("weft");
    if !weft.is_file() {
        eprintln!("SKIPPED {name}: no debug build at {}", weft.display());
        return;
    }
    let folder = Switch::folder(&net);
    std::fs::create_dir_all(&folder).unwrap();
    let hook = folder.join("hook");
    let mut command = net.at("sw", "env", "");
    command.arg(format!("WEFT_TEST_HOOK={}", hook.display())).arg(weft).arg("run");
    for port in PORTS {
        command.args(["--port", port]);
    }
    command.arg("--set").arg(format!("run.socket={}", folder.join("socket/mgmt.sock").display()));
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.by_ref().any(|line| line.starts_with("switch ") && line.ends_with("is up")));
    std::fs::write(folder.join("new"), "exit weft-express").unwrap();
    std::fs::rename(folder.join("new"), &hook).unwrap();
    let rest: Vec<String> = said.collect(); // to its end
    let code = child.wait().unwrap().code();
    drop(std::fs::remove_dir_all(&folder));
    assert_eq!(code, Some(21), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("weft-express has ended")), "{rest:?}");
}
