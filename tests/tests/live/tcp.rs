//! `weft traffic --tcp` against the kernel's TCP through a running switch, with 1 % of the frames lost: all bytes are equal.
//!
//! Weft is at `h1` without a kernel's address, the kernel at `h2`; each side compares what it gets.
//!
//! Units: bytes of payload.
//! Source: docs/tcp.md.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use weft_dataplane::time::Span;
use weft_hosts::tcp::pattern;
use weft_lab::clock::now;
use weft_tests::netns::{Net, Switch, weft};
use weft_tests::talk::host as talk_host;

/// Seed of all data.
const SEED: u64 = 7;
/// How long a side waits for the other.
const PATIENCE: Duration = Duration::from_secs(40);
const LOSSES: &str = "[express]\nenabled = false\n[port_defaults]\nrx_ring_frames = 8192\nloss_per_million = 10000\n";

/// A switch between `h1`, whose kernel has no address, and `h2`, which has 10.79.0.2.
fn network(test: &str, config: &str) -> Option<(Net, Switch)> {
    let mut net = Net::new(test)?;
    net.add_joined("h1", "sw1", "10.99.0.1/24");
    net.add_joined("h2", "sw2", "10.79.0.2/24");
    let switch = Switch::start(&net, &["p1=af_packet:sw1", "p2=af_packet:sw2"], config);
    Some((net, switch))
}

/// Reads to the end and compares all; returns how many bytes there were.
fn read_all(stream: &mut TcpStream) -> u64 {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut total, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            return total;
        }
        assert_eq!(pattern::differs(SEED, total, &buffer[..count]), None, "at {total}");
        total += count as u64;
    }
}

/// Writes while `more` says so, given what has been written; returns how many bytes those were.
fn write_all(stream: &mut TcpStream, more: impl Fn(u64) -> u64) -> u64 {
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let (mut total, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let count = usize::try_from(more(total)).unwrap().min(buffer.len());
        if count == 0 {
            stream.shutdown(Shutdown::Write).unwrap();
            return total;
        }
        pattern::fill(SEED, total, &mut buffer[..count]);
        stream.write_all(&buffer[..count]).unwrap();
        total += count as u64;
    }
}

/// The report of a host that ended well.
fn report(done: &Output) -> Value {
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors} {}", String::from_utf8_lossy(&done.stdout));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {value}"))
}

/// What weft says, what the kernel has read, and the switch's drops.
struct Said {
    report: Value,
    read: u64,
    drops: Value,
}

/// weft begins, sends and is sent to at once.
fn to_the_kernel(test: &str, config: &str, send: &str, back: u64) -> Option<Said> {
    let (net, switch) = network(test, config)?;
    let listener = net.within("h2", || TcpListener::bind("10.79.0.2:5001").unwrap());
    let kernel = std::thread::spawn(move || {
        let (mut stream, from) = listener.accept().unwrap();
        assert_eq!(from.ip().to_string(), "10.79.0.1");
        let mut out = stream.try_clone().unwrap();
        let writer =
            std::thread::spawn(move || write_all(&mut out, |written| back - written.min(back)));
        let read = read_all(&mut stream);
        assert_eq!(writer.join().unwrap(), back);
        read
    });
    let flags = format!(
        "traffic eth0 --json --tcp --ip 10.79.0.1/24 --connect 10.79.0.2:5001 --seed {SEED} --expect-bytes {back} {send}"
    );
    let flags = if back == 0 { flags.replace("--expect-bytes 0", "") } else { flags };
    let done = net.run("h1", weft().to_str().unwrap(), &flags);
    let (report, drops) = (report(&done), switch.show("all"));
    let drops = drops.get("drops").cloned().unwrap_or_default();
    drop(switch);
    drop(net);
    Some(Said { report, read: kernel.join().unwrap(), drops })
}

/// 4 MB to the kernel over a switch that loses frames.
#[test]
fn the_kernel_gets_all_bytes_over_a_switch_that_loses_some() {
    let test = "the_kernel_gets_all_bytes_over_a_switch_that_loses_some";
    let said = to_the_kernel(test, LOSSES, "--send 4000001", 0);
    let Some(Said { report: said, read, drops }) = said else { return };
    assert_eq!((read, number(&said, "/connections/0/sent_bytes")), (4_000_001, 4_000_001));
    assert!(number(&said, "/segments/resent") > 0, "{said}");
    assert!(number(&drops, "/total/injected") > 10, "{drops}");
}

/// Both ways over one connection, without losses.
#[test]
fn a_connection_with_the_kernel_goes_both_ways() {
    let test = "a_connection_with_the_kernel_goes_both_ways";
    let flags = "--send 3000000 --congestion reno --mss 1000 --dscp 10";
    let quiet = "[express]\nenabled = false\n[port_defaults]\nrx_ring_frames = 8192\n";
    let said = to_the_kernel(test, quiet, flags, 2_000_003);
    let Some(Said { report: said, read, .. }) = said else { return };
    assert_eq!((read, number(&said, "/connections/0/received_bytes")), (3_000_000, 2_000_003));
    assert_eq!(said["connections"][0]["differs_at"], Value::Null);
}

/// The kernel begins, and sends what `more` says.
fn from_the_kernel(test: &str, config: &str, more: impl Fn(u64) -> u64) -> Option<(Value, u64)> {
    let (net, switch) = network(test, config)?;
    let flags = format!("--tcp --ip 10.79.0.1/24 --listen 5001 --seed {SEED}");
    let weft = talk_host(&net, "h1", &flags);
    let mut stream = net.within("h2", || TcpStream::connect("10.79.0.1:5001").unwrap());
    let written = write_all(&mut stream, more);
    assert_eq!(read_all(&mut stream), 0, "weft sends nothing, and closes behind");
    let done = weft.wait_with_output().unwrap();
    drop(switch);
    drop(net);
    Some((report(&done), written))
}

/// 4 MB from the kernel over a switch that loses frames.
#[test]
fn all_bytes_of_the_kernel_come_over_a_switch_that_loses_some() {
    let test = "all_bytes_of_the_kernel_come_over_a_switch_that_loses_some";
    let all = 4_000_001_u64;
    let Some((said, written)) = from_the_kernel(test, LOSSES, move |had| all - had.min(all)) else {
        return;
    };
    assert_eq!((written, number(&said, "/connections/0/received_bytes")), (all, all));
}

/// For a minute, each way, all bytes are equal though 1 % of the frames are lost.
#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_a_minute_with_the_kernel_over_a_switch_that_loses_1_percent() {
    let test = "soak_a_minute_with_the_kernel_over_a_switch_that_loses_1_percent";
    let said = to_the_kernel(test, LOSSES, "--duration 60", 0);
    let Some(Said { report: said, read, drops }) = said else { return };
    let sent = number(&said, "/connections/0/sent_bytes");
    let (resent, lost) = (number(&said, "/segments/resent"), number(&drops, "/total/injected"));
    println!("to the kernel: {read} bytes equal, {resent} segments again, {lost} frames lost");
    assert_eq!(read, sent);
    assert!(read > 20_000_000 && lost > 100, "{said} {drops}");
    let over = now() + Span::from_ms(60_000);
    let more = move |_| if now() < over { u64::MAX } else { 0 };
    let Some((said, written)) = from_the_kernel(test, LOSSES, more) else { return };
    println!("from the kernel: {written} bytes equal");
    assert_eq!(number(&said, "/connections/0/received_bytes"), written);
    assert!(written > 20_000_000, "{said}");
}

/// Data of another seed, a port that is closed, and flags that do not go together are told.
#[test]
fn what_is_wrong_with_a_connection_is_told() {
    let Some((net, _switch)) = network("what_is_wrong_with_a_connection_is_told", "") else {
        return;
    };
    let listener = net.within("h2", || TcpListener::bind("10.79.0.2:5001").unwrap());
    let kernel = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        write_all(&mut stream, |written| 10_000 - written.min(10_000));
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest));
    });
    #[rustfmt::skip] // columns: flags, exit code, part of what is said
    let cases = [
        ("--ip 10.79.0.1/24 --connect 10.79.0.2:5001 --seed=8", 1, "byte 0 is not that of seed"),
        ("--ip 10.79.0.1/24 --connect 10.79.0.2:5002", 1, "1 failed"),
        ("--ip 10.79.0.1/24 --connect 10.80.0.2:5001", 2, "expected a gateway"),
        ("--ip 10.79.0.1/24", 2, "expected --connect ADDRESS:PORT or --listen PORT"),
        ("--ip 255.255.255.255/24 --listen 1", 2, "expected one of a single host"),
    ];
    for (flags, code, part) in cases {
        let all = format!("traffic eth0 --tcp {flags}");
        let done = net.run("h1", weft().to_str().unwrap(), &all);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{flags}: {said}");
        assert!(said.contains(part), "{flags}: {said}");
    }
    kernel.join().unwrap();
}
