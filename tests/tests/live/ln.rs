//! Lightweight Notification over interfaces, steered by commands: back to back, through an HBR switch, and through PBR
//! switches.
//!
//! Processes of `weft` in namespaces; `weft endpoint ctl NAME ln` asks.
//!
//! Units: bytes.
//! Source: docs/endpoint.md "Lightweight Notification"; PCIe 5.0 section 6.21.
#![expect(clippy::indexing_slicing, reason = "a test fails that way")]

use serde_json::Value;
use weft_base::wait::{LONG, until};
use weft_tests::fabric_here::file;
use weft_tests::fabric_up::Up;
use weft_tests::netns::{Net, Switch};

use crate::endpoint::{Endpoint, Folder};

const LINE: u64 = 0x10_4000;

/// Whoever is asked by name, and what of its answer.
type Ask<'a> = &'a dyn Fn(&str, &str) -> (i32, Value);

fn well(ask: Ask<'_>, name: &str, arguments: &str) -> Value {
    let (code, answer) = ask(name, arguments);
    assert_eq!(code, 0, "{name} {arguments}: {answer}");
    answer
}

fn outcome(answer: &Value) -> &str {
    answer.pointer("/ln/outcome").and_then(Value::as_str).unwrap_or_default()
}

fn watched(ask: Ask<'_>, host: &str) -> Value {
    well(ask, host, "ln status")["ln_completer"].take()
}

/// A device reads a line and is told of its change; it writes, and gives the line back. Others are not told.
fn lines_come_and_go(ask: Ask<'_>, host: &str, devices: &[&str]) {
    for device in devices {
        well(ask, host, &format!("store {LINE} 64 --seed=1"));
        let read = well(ask, device, &format!("ln read {LINE}"));
        assert_eq!(outcome(&read), "cached", "{device}: {read}");
        let peek = well(ask, host, &format!("peek {LINE} 64"));
        assert_eq!(read["ln"]["data"], peek["transfer"]["data"], "{device}");
        let lines = watched(ask, host);
        assert_eq!(
            lines["lines"][0]["watchers"].as_array().map(Vec::len),
            Some(1),
            "{device} {lines}"
        );
        well(ask, host, &format!("store {LINE} 64 --seed=2"));
        until(LONG, format_args!("{device} is told"), || {
            let (code, copy) = ask(device, &format!("ln copy {LINE}"));
            (code == 1 && outcome(&copy) == "no_copy").then_some(())
        });
        assert_eq!(watched(ask, host)["watched"], 0, "{device}");
        let probe = well(ask, device, &format!("ln probe {LINE}"));
        assert_eq!(outcome(&probe), "takes", "{device}");
        let data = "5a".repeat(64);
        let wrote = well(ask, device, &format!("ln write {LINE} --data {data}"));
        assert_eq!(
            (outcome(&wrote), &wrote["ln"]["copy"]),
            ("written", &Value::Bool(true)),
            "{device}"
        );
        well(ask, host, &format!("peek {LINE} 64 --data {data}"));
        assert_eq!(watched(ask, host)["watched"], 1, "{device}");
        well(ask, device, &format!("ln drop {LINE}"));
        assert_eq!(watched(ask, host)["watched"], 0, "{device}");
    }
}

#[test]
fn a_device_watches_lines_back_to_back() {
    let Some(mut net) = Net::new("a_device_watches_lines_back_to_back") else { return };
    net.add_wires(1);
    let folder = Folder(Switch::folder(&net));
    std::fs::create_dir_all(&folder.0).unwrap();
    let socket = |name: &str| folder.0.join("ctl").join(name);
    let host = "host --port s0 --mode non-flit --ln-lines 64 --ln-line 128";
    let host = Endpoint::start(&net, "sw", host, socket("host.sock"));
    let device = "device --port f0 --mode non-flit --lnr 4";
    let device = Endpoint::start(&net, "far", device, socket("device.sock"));
    let ask = |name: &str, arguments: &str| {
        let (code, answer, _) =
            if name == "h" { host.ask(arguments) } else { device.ask(arguments) };
        (code, answer)
    };
    let (code, _, said) = device.ask(&format!("ln read {LINE}"));
    assert!(code == 4 && said.contains("LN is off: a host with --ln-lines"), "{code} {said}");
    well(&ask, "h", "enumerate");
    let known = well(&ask, "d", "ln status");
    let known = &known["ln_requesters"]["functions"][0];
    assert_eq!((known["on"].as_bool(), known["line"].as_u64()), (Some(true), Some(128)), "{known}");
    // A line of this system has 128 bytes: its second half is the same line.
    let read = well(&ask, "d", &format!("ln read {}", LINE + 64));
    assert_eq!((read["ln"]["line"].as_u64(), outcome(&read)), (Some(LINE), "cached"));
    well(&ask, "h", &format!("store {} 64 --seed=3", LINE + 64));
    until(LONG, "the device is told", || {
        (ask("d", &format!("ln copy {LINE}")).0 == 1).then_some(())
    });
    let events = well(&ask, "d", "events");
    assert!(events.to_string().contains("updated, copy dropped"), "{events}");
    device.stop();
    host.stop();
}

/// The commands of the page, as they stand there but for the interfaces; all but the last copy are well.
#[test]
fn the_commands_of_the_page_do_what_it_says() {
    let Some(mut net) = Net::new("the_commands_of_the_page_do_what_it_says") else { return };
    net.add_wires(1);
    let folder = Folder(Switch::folder(&net));
    std::fs::create_dir_all(&folder.0).unwrap();
    let page = include_str!("../../../docs/endpoint.md");
    let (_, section) = page.split_once("### Lightweight Notification").unwrap();
    let block = section.split("```").nth(1).unwrap();
    let lines: Vec<&str> =
        block.lines().filter_map(|line| line.strip_prefix("weft endpoint ")).collect();
    let mut started = Vec::new();
    for (at, place) in [("sw", ("h0", "s0")), ("far", ("d0", "f0"))] {
        let line = lines[started.len()].trim_end_matches(" &").replace(place.0, place.1);
        let socket = folder.0.join("ctl").join(place.0);
        started.push(Endpoint::start(&net, at, &line, socket));
    }
    let commands: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("ctl ")).collect();
    assert_eq!(commands.len(), 5, "{block}");
    for command in commands {
        let (name, arguments) = command.split_once(' ').unwrap();
        let asked = &started[usize::from(name == "d")];
        let is_gone = arguments.starts_with("ln copy");
        until(LONG, format_args!("{command}"), || {
            let (code, answer, said) = asked.ask(arguments);
            assert!(is_gone || code == 0, "{command}: {answer} {said}");
            (code == i32::from(is_gone)).then_some(())
        });
    }
    started.into_iter().rev().for_each(Endpoint::stop);
}

#[test]
fn lines_are_watched_through_an_hbr_switch() {
    let text = "[[host]]\nname = \"h\"\nln_lines = 64\n[[hbr]]\nname = \"hbr\"\nat = \"h\"\n\
        [[device]]\nname = \"one\"\nat = \"hbr\"\nlnr = 4\n[[device]]\nname = \"two\"\nat = \"hbr\"\nlnr = 4\n\
        [[switch]]\nname = \"beside\"\n[[device]]\nname = \"else\"\nat = \"beside\"\n";
    let Some(up) = Up::start_text("lines_are_watched_through_an_hbr_switch", text, &[]) else {
        return;
    };
    lines_come_and_go(&|name, arguments| up.ask(name, arguments), "h", &["one", "two"]);
    up.stop();
}

/// At the host's switch, behind two others, and below an HBR switch there: directed messages, then broadcasts.
#[test]
fn lines_are_watched_through_pbr_switches() {
    let name = "lines_are_watched_through_pbr_switches";
    let text = file("ln").replace("ln_lines = 64", "ln_lines = 64\nln_watchers = 3");
    let Some(up) = Up::start_text(name, &text, &[]) else { return };
    let devices = ["near", "distant", "one", "two"];
    let ask: Ask<'_> = &|name, arguments| up.ask(name, arguments);
    lines_come_and_go(ask, "h", &devices);
    let before = watched(ask, "h")["counts"]["broadcast"].as_u64();
    for device in devices {
        assert_eq!(outcome(&well(ask, device, &format!("ln read {LINE}"))), "cached", "{device}");
    }
    well(ask, "h", &format!("store {LINE} 64 --seed=9"));
    for device in devices {
        until(LONG, format_args!("{device} hears the broadcast"), || {
            (ask(device, &format!("ln copy {LINE}")).0 == 1).then_some(())
        });
    }
    let counts = watched(ask, "h")["counts"].take();
    assert_eq!((before, counts["broadcast"].as_u64()), (Some(0), Some(1)), "{counts}");
    up.stop();
}
