//! What hosts say to each other through a switch: pings, TCP, and what became of its checksums.
//!
//! Shape: programs of the system, run in a [`Net`]'s namespaces.
//! Units: pings, bit/s, segments.
//! Source: ping(8), iperf3(1), proc(5).
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::process::Stdio;
use std::thread::park_timeout;
use std::time::Duration;

use serde_json::Value;

use crate::netns::Net;

/// Sends `count` pings from a host to an address; how many came back.
///
/// # Panics
/// When ping does not say.
#[must_use]
pub fn ping(net: &Net, from: &str, to: &str, count: u64) -> u64 {
    let done = net.run(from, "ping", &format!("-q -c {count} -i 0.002 -W 2 {to}"));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let received = said.split(" received").next().and_then(|text| text.rsplit(' ').next());
    received.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("ping said: {said}"))
}

/// Bits a second of a TCP stream of so many seconds to host `to` at `address`.
///
/// # Panics
/// When iperf3 does not say.
#[must_use]
pub fn tcp(net: &Net, from: &str, (to, address): (&str, &str), seconds: u64) -> f64 {
    let mut server = net.at(to, "iperf3", "-s -1").stdout(Stdio::null()).spawn().unwrap();
    park_timeout(Duration::from_millis(500));
    let done = net.run(from, "iperf3", &format!("-c {address} -t {seconds} -J"));
    drop(server.kill());
    drop(server.wait());
    let said: Value = serde_json::from_slice(&done.stdout).expect("iperf3 -J says JSON");
    let rate = said["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.unwrap_or_else(|| panic!("iperf3 said: {said}"))
}

/// `TcpInCsumErrors` of a host.
///
/// # Panics
/// When the kernel does not say.
#[must_use]
pub fn checksum_errors(net: &Net, host: &str) -> u64 {
    let done = net.run(host, "cat", "/proc/net/snmp");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut tcp = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (tcp.next().unwrap(), tcp.next().unwrap());
    let at = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}
