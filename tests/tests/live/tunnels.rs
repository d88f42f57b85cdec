//! TCP inside of VXLAN between kernel hosts, through a switch: what a kernel leaves of checksums and
//! segmentation inside of a tunnel arrives whole and right, by every kind of port.
//!
//! Two hosts with a VXLAN device each; bytes go both ways; no host counts a wrong checksum.
//!
//! Units: bytes.
//! Source: docs/spec/pipeline.md §11; ip-link(8) `vxlan`.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch};
use weft_tests::talk::{goes_both_ways, ping};

/// Bytes that go each way: some hundred super-frames.
const LEN: usize = 8 << 20;

/// One kind of tunnel: addresses of the hosts below and inside, with `N` for a host's number, and options.
struct Tunnel {
    name: &'static str,
    below: &'static str,
    inside: &'static str,
    options: &'static str,
}

const TUNNELS: [Tunnel; 5] = [
    Tunnel { name: "4 in 4", below: "10.81.0.N", inside: "10.82.0.N", options: "" },
    Tunnel {
        name: "4 in 4, no sum",
        below: "10.81.0.N",
        inside: "10.82.0.N",
        options: " noudpcsum",
    },
    Tunnel { name: "6 in 4", below: "10.81.0.N", inside: "fd82::N", options: "" },
    Tunnel { name: "6 in 6", below: "fd81::N", inside: "fd82::N", options: "" },
    Tunnel {
        name: "4 in 6, no sum",
        below: "fd81::N",
        inside: "10.82.0.N",
        options: " udp6zerocsumtx udp6zerocsumrx",
    },
];

impl Tunnel {
    fn below(&self, host: usize) -> String {
        self.below.replace('N', &host.to_string())
    }

    fn inside(&self, host: usize) -> String {
        self.inside.replace('N', &host.to_string())
    }

    /// Gives a host its addresses and the device, which is down.
    fn add(&self, net: &Net, host: usize) {
        let (own, far) = (self.below(host), self.below(3 - host));
        let name = format!("h{host}");
        let add = |address: &str, device: &str| {
            let (len, more) = if address.contains(':') { (64, " nodad") } else { (24, "") };
            net.ip(&name, &format!("addr add {address}/{len} dev {device}{more}"));
        };
        add(&own, "eth0");
        let vxlan = format!("type vxlan id 42 dstport 4789 dev eth0 local {own} remote {far}");
        net.ip(&name, &format!("link add vx0 {vxlan}{}", self.options));
        add(&self.inside(host), "vx0");
    }

    /// Takes all that away again.
    fn remove(net: &Net, host: usize) {
        net.ip(&format!("h{host}"), "link del vx0");
        net.ip(&format!("h{host}"), "addr flush dev eth0 scope global");
    }
}

/// Wrong checksums that a host has counted: of TCP, and of UDP over both versions of IP.
fn wrong(net: &Net, host: &str) -> Vec<u64> {
    let said = net.run(host, "nstat", "-asz TcpInCsumErrors UdpInCsumErrors Udp6InCsumErrors");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let counts: Vec<u64> = text
        .lines()
        .filter(|line| line.contains("InCsumErrors"))
        .map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
        .collect();
    assert_eq!(counts.len(), 3, "nstat said: {text}");
    counts
}

/// All tunnels through a switch with ports of a kind; `napi`: at the hosts' devices.
fn through(test: &str, kind: &str, config: &str, napi: bool) {
    let Some(mut net) = Net::new(test) else { return };
    for host in [1, 2] {
        let name = format!("h{host}");
        net.add_host(&name);
        let there = net.name(&name);
        net.ip("sw", &format!("link add sw{host} type veth peer name eth0 netns {there}"));
        net.ip("sw", &format!("link set sw{host} up"));
        net.ip(&name, "link set eth0 up");
        net.napi(&name, "eth0", napi);
    }
    let ports = [1, 2].map(|host| format!("p{host}={kind}sw{host}"));
    let switch = Switch::start(&net, &[&ports[0], &ports[1]], config);
    for tunnel in &TUNNELS {
        for host in [1, 2] {
            tunnel.add(&net, host);
        }
        for host in ["h1", "h2"] {
            net.ip(host, "link set vx0 up");
        }
        // What the first one says when it goes up counts as wrong where none expects a sum of 0 yet: it has
        // come when the hosts hear each other.
        until(LONG, "hosts hear each other", || {
            (ping(&net, "h1", &tunnel.inside(2), 1) == 1).then_some(())
        });
        let before = ["h1", "h2"].map(|host| wrong(&net, host));
        let address = tunnel.inside(2).parse().unwrap();
        assert!(goes_both_ways(&net, "h1", "h2", address, LEN), "{}: the same bytes", tunnel.name);
        let after = ["h1", "h2"].map(|host| wrong(&net, host));
        assert_eq!(after, before, "{}: wrong checksums of TCP, UDP and UDP over IPv6", tunnel.name);
        assert!(after.iter().all(|counts| counts[..2] == [0, 0]), "{}: {after:?}", tunnel.name);
        for host in [1, 2] {
            Tunnel::remove(&net, host);
        }
    }
    let drops = switch.show("drops");
    assert!(drops["total"].get("bad_gso").is_none_or(|n| n.as_u64() == Some(0)), "{drops}");
    drop(switch.stop());
}

#[test]
fn tcp_in_vxlan_passes_packet_sockets() {
    through("tcp_in_vxlan_passes_packet_sockets", "af_packet:", "", false);
}

#[test]
fn tcp_in_vxlan_passes_af_xdp() {
    let config = "[express]\nenabled = false\n";
    through("tcp_in_vxlan_passes_af_xdp", "af_xdp:", config, true);
}

#[test]
fn tcp_in_vxlan_passes_beside_the_fast_path() {
    through("tcp_in_vxlan_passes_beside_the_fast_path", "af_xdp:", "", true);
}

#[test]
fn tcp_in_vxlan_passes_what_auto_takes() {
    through("tcp_in_vxlan_passes_what_auto_takes", "", "", true);
}
