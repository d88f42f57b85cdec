//! Traffic of hosts through a switch: pings, TCP and UDP, and their checksum errors.
//!
//! It runs programs of the system in a [`Net`]'s namespaces.
//!
//! Source: fping(8), iperf3(1), proc(5).
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};

use serde_json::Value;
use weft_base::wait::{LONG, try_until, until};

use crate::netns::{Net, weft};

/// Sends `count` pings from a host to an address; returns how many came back within 2 s each.
/// (ping(8) waits for the last of them twice as long as the slowest took, which is too short beside
/// busy neighbours.)
///
/// # Panics
/// fping prints no counts.
#[must_use]
pub fn ping(net: &Net, from: &str, to: &str, count: u64) -> u64 {
    let done = net.run(from, "fping", &format!("-q -c {count} -p 2 -t 2000 {to}"));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let counts = said.split("xmt/rcv/%loss = ").nth(1).unwrap_or_default();
    let received = counts.split('/').nth(1).and_then(|count| count.parse().ok());
    received.unwrap_or_else(|| panic!("fping said: {said}"))
}

/// Pings under way at a time. After a stall a host gets all that waited at once, and sends its answers out of a socket
/// buffer of 128 KiB: an answer that finds it full is dropped without a count.
const AT_ONCE: u64 = 50;

/// Sends `count` pings of IPv4 from a host to an address; returns the answers that the host's
/// kernel has received, once that is all of them or [`LONG`] has passed.
///
/// The kernel also counts answers that came late, and those that found fping's socket full after a
/// stall: neither was lost on the way.
///
/// # Panics
/// fping or the kernel has no counts.
#[must_use]
pub fn answers(net: &Net, from: &str, to: &str, count: u64) -> u64 {
    let counted = || snmp(net, from, "Icmp:", "InEchoReps");
    let before = counted();
    let so_far = || counted() - before;
    let mut sent = 0;
    while sent < count {
        let more = AT_ONCE.min(count - sent);
        let _in_time = ping(net, from, to, more);
        sent += more;
        let all = try_until(LONG, || Some(so_far()).filter(|&so_far| so_far >= sent));
        if all.is_none() {
            break;
        }
    }
    so_far()
}

/// A `weft traffic` host at a host's `eth0`, once its port is open; its report, as JSON, is on standard output.
///
/// # Panics
/// It does not open its port.
#[must_use]
pub fn host(net: &Net, host: &str, options: &str) -> Child {
    let mut command = net.at(host, weft().to_str().unwrap(), "traffic eth0 --json");
    command.args(options.split_whitespace());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut said, mut rest) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    // its first line tells that the port is open, or begins the reason why not
    said.read_line(&mut rest).unwrap();
    if !rest.contains("is open") {
        said.read_to_string(&mut rest).unwrap();
        panic!("weft traffic at {host}: {rest}");
    }
    child
}

/// Bits a second of a TCP stream of `seconds` to host `to` at `address`.
///
/// # Panics
/// iperf3 reports no rate.
#[must_use]
pub fn tcp(net: &Net, from: &str, to: &str, address: &str, seconds: u64) -> f64 {
    let said = iperf3(net, from, to, address, &format!("-t {seconds}"));
    let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.unwrap_or_else(|| panic!("iperf3 said: {said}"))
}

/// `InCsumErrors` of a host, TCP and UDP.
///
/// # Panics
/// The kernel has no such counter.
#[must_use]
pub fn checksum_errors(net: &Net, host: &str) -> u64 {
    ["Tcp:", "Udp:"].map(|protocol| snmp(net, host, protocol, "InCsumErrors")).iter().sum()
}

/// A counter of a protocol at a host, from its line of names and the line of values behind it.
fn snmp(net: &Net, host: &str, protocol: &str, name: &str) -> u64 {
    let done = net.run(host, "cat", "/proc/net/snmp");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|one| one == name).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// Datagrams of a UDP stream of `seconds` that reached host `to` at `address`.
///
/// # Panics
/// iperf3 reports no counts.
#[must_use]
pub fn udp(net: &Net, from: &str, to: &str, address: &str, seconds: u64) -> u64 {
    let said = iperf3(net, from, to, address, &format!("-u -b 50M -t {seconds}"));
    let sum = &said["end"]["sum"];
    let number = |name: &str| sum[name].as_u64().unwrap_or_else(|| panic!("iperf3 said: {said}"));
    number("packets") - number("lost_packets")
}

/// Report of iperf3 about a stream to host `to` at `address`.
///
/// # Panics
/// The server does not listen, or the client prints no report.
#[must_use]
pub fn iperf3(net: &Net, from: &str, to: &str, address: &str, options: &str) -> Value {
    let mut server = net.at(to, "iperf3", "-s -1").stdout(Stdio::null()).spawn().unwrap();
    until(LONG, "iperf3 listens", || {
        let listening = net.run(to, "ss", "-Hltn sport = :5201");
        (!listening.stdout.is_empty()).then_some(())
    });
    let done = net.run(from, "iperf3", &format!("-c {address} -J {options}"));
    // `-1` ends the server after one client; a client that failed leaves it waiting
    drop(server.kill());
    drop(server.wait());
    serde_json::from_slice(&done.stdout).expect("iperf3 -J says JSON")
}

/// TCP port of [`goes_both_ways`].
const ECHO: u16 = 5_202;

/// Makes host `from` send `len` bytes to host `to` at an address, which sends them back; true if
/// both received the same bytes.
///
/// # Panics
/// They do not connect, or nothing comes for [`LONG`].
#[must_use]
pub fn goes_both_ways(net: &Net, from: &str, to: &str, address: IpAddr, len: usize) -> bool {
    let address = SocketAddr::new(address, ECHO);
    let bytes: Vec<u8> = (0..len).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect();
    let listener = net.within(to, || TcpListener::bind(address).unwrap());
    std::thread::scope(|scope| {
        let connected = net.within(from, || TcpStream::connect_timeout(&address, LONG));
        let mut stream = connected.expect("it connects");
        let there = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            stream.write_all(&got).unwrap();
            got == bytes
        });
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream.write_all(&bytes).unwrap();
        // the other end answers once it has read all
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        there.join().unwrap() && got == bytes
    })
}
