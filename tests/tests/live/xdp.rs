//! The program in the kernel on real interfaces: hosts that reach each other through it alone.
//!
//! Veths in namespaces, the program attached from the test itself; `ping` between hosts. What an
//! output refuses is counted; the program is gone with its owner, however that ends.
//!
//! Units: frames.
//! Source: docs/express.md.

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::process::{Command, Stdio};

use weft_base::wait::{LONG, until};
use weft_dataplane::port::af_xdp::{Attach, Link, Program, Target};
use weft_dataplane::port::netdev;
use weft_parsers::{AddrKey, PriSource};
use weft_tests::netns::{Net, enter};
use weft_xdp::layout::{NO_SOURCE, NO_VID, PortRules, Tally, TlpRules, VIDS, fdb_key, tags};
use weft_xdp::{Checksum, Options, Xdp};

const HOSTS: [(&str, &str, &str); 2] = [("a", "p0", "10.77.0.1"), ("b", "p1", "10.77.0.2")];
const CHILD: &str = "WEFT_XDP_CHILD";

/// Two hosts behind two interfaces, and this thread where these are; or the reason why not.
fn network(test: &str) -> Option<Net> {
    if let Err(why) = weft_xdp::object() {
        eprintln!("SKIPPED {test}: the XDP program is {why}");
        return None;
    }
    let mut net = Net::new(test)?;
    for (host, port, address) in HOSTS {
        net.add_joined(host, port, &format!("{address}/24"));
        net.napi(host, "eth0", true); // only such an end takes redirected frames
    }
    for ((host, _, _), (other, _, address)) in HOSTS.iter().zip(HOSTS.iter().rev()) {
        let mac = net.mac(other);
        net.ip(host, &format!("neigh replace {address} lladdr {mac} dev eth0 nud permanent"));
    }
    enter(&net.name("sw"));
    Some(net)
}

/// What `ip` says of programs on an interface.
fn has_program(net: &Net, port: &str) -> bool {
    let said = net.run("sw", "ip", &format!("link show {port}"));
    String::from_utf8_lossy(&said.stdout).contains("prog/xdp")
}

/// Rules of a port that takes and sends all as it is.
const OPEN: PortRules = PortRules {
    maps: [[0; PriSource::CODES_MAX]; PriSource::COUNT],
    by: [NO_SOURCE; PriSource::SETS],
    port_mac: [0; 6],
    tpids: [0x8100; 4],
    mac_type1: 0x88B5,
    mac_type2: 0x88B6,
    udp_type1: 4791,
    udp_type2: 0,
    untagged: 1,
    frame_len_max: 1518,
    default_pri: 0,
    afh: 0,
    gen2_order: 0,
    tags: tags::AS_ARRIVED,
    carries: 0xFF,
    express_pris: 1,
    tlp: NO_TLPS,
};

/// A port of Ethernet.
const NO_TLPS: TlpRules = TlpRules {
    tc_to_pri: [0; 8],
    oui: [0; 3],
    role: 0,
    payload_max: 0,
    uio_req_pri: 0,
    uio_cpl_pri: 0,
    flit: 0,
    spare: [0; 7],
};

/// The program of `port` on an interface, as `weft run` attaches it.
fn attach(xdp: &mut Xdp, port: u8, ifindex: u32) -> std::io::Result<Link> {
    let shows_tags =
        netdev::features(ifindex.cast_signed()).is_ok_and(netdev::Features::shows_tags);
    let target = Target { index: ifindex, queues: 1, shows_tags, is_veth: true };
    let vlan_tag = target.vlan_tag(Attach::Native);
    let left = target.left_checksum(Attach::Native);
    let checksum =
        left.as_ref().map_or(Checksum::Unseen, |left| Checksum::Seen(left.instructions()));
    let program = Program::load(&xdp.program(port, vlan_tag, checksum), vlan_tag.map(|_| ifindex));
    xdp.name(port, ifindex).unwrap();
    Link::attach(&program.expect("the verifier takes it"), ifindex, true)
}

/// Programs on both interfaces that know both hosts.
fn express(net: &Net) -> (Xdp, Vec<Link>) {
    assert_ne!(OPEN.untagged, NO_VID);
    let mut xdp = Xdp::load(&Options::default()).expect("the kernel makes the maps");
    xdp.prepare(&[OPEN; 2], &vec![0b11; VIDS]).unwrap();
    xdp.commit();
    let mut links = Vec::new();
    for (port, (host, name, _)) in (0..).zip(HOSTS) {
        let ifindex = net.index("sw", name);
        links.push(attach(&mut xdp, port, ifindex).unwrap());
        xdp.set_output(port, ifindex).unwrap();
        let station = AddrKey::ethernet(net.mac(host)).to_bits();
        xdp.put_station(fdb_key(1, station), port, false).unwrap();
        xdp.shared().set_open(port, 1);
    }
    (xdp, links)
}

fn pings(net: &Net, count: u32) -> bool {
    let (_, _, address) = HOSTS[1];
    net.run("a", "ping", &format!("-n -q -i 0.01 -w 2 -c {count} {address}")).status.success()
}

/// Frames that went express by input, and those that outputs refused.
fn sums(xdp: &Xdp) -> ([u64; 2], [u64; 2], [u64; 2]) {
    let counts = [0, 1].map(|port| xdp.counts(port).unwrap());
    (
        counts.map(|c| Tally::sum(&c.stats.express_in).frames),
        counts.map(|c| c.refusals.refused_in),
        counts.map(|c| c.refusals.refused_out),
    )
}

/// Hosts reach each other with nothing in user space; what is too long for the far end of an output, or
/// comes when that has lost NAPI, is counted as refused at both ends of its way.
#[test]
fn hosts_reach_each_other_in_the_kernel_and_what_is_refused_is_counted() {
    let Some(net) = network("hosts_reach_each_other_in_the_kernel_and_what_is_refused_is_counted")
    else {
        return;
    };
    let (xdp, _links) = express(&net);
    assert!(pings(&net, 20), "both know each other");
    let (express_in, refused_in, refused_out) = sums(&xdp);
    assert!(express_in.iter().all(|&frames| frames >= 20), "{express_in:?}");
    assert_eq!((refused_in, refused_out), ([0; 2], [0; 2]));
    if !xdp.counts_refusals() {
        eprintln!("SKIPPED counts of what is refused: no types of the kernel, or no tracepoints");
    }

    // Too long for the far end: the output takes them, and drops them as it sends a burst.
    net.ip("b", "link set eth0 mtu 576");
    let sent = net.run("a", "ping", "-n -q -i 0.01 -w 1 -c 3 -s 1000 10.77.0.2");
    assert!(!sent.status.success(), "nothing comes through");
    let (after, refused_in, refused_out) = sums(&xdp);
    let too_long = after[0] - express_in[0];
    assert!(too_long >= 3, "{too_long} frames");
    if xdp.counts_refusals() {
        assert_eq!((refused_in, refused_out), ([too_long, 0], [0, too_long]));
    }
    // Without NAPI there, they do not come to the output.
    net.napi("b", "eth0", false);
    assert!(!pings(&net, 3), "nothing comes through");
    let (after, refused_in, refused_out) = sums(&xdp);
    let lost = after[0] - express_in[0];
    assert!(lost >= too_long + 3, "{lost} frames");
    if xdp.counts_refusals() {
        assert_eq!((refused_in, refused_out), ([lost, 0], [0, lost]));
    }
}

/// The program is on the interfaces as long as its owner lives: dropped, and killed.
#[test]
fn the_program_is_gone_with_its_owner() {
    let test = "the_program_is_gone_with_its_owner";
    if let Ok(index) = std::env::var(CHILD) {
        let mut xdp = Xdp::load(&Options::default()).unwrap();
        let _link = attach(&mut xdp, 0, index.parse().unwrap()).unwrap();
        println!("attached");
        std::thread::park(); // until it is killed
        return;
    }
    let Some(net) = network(test) else { return };
    let (mut xdp, mut links) = express(&net);
    assert!(has_program(&net, "p0") && has_program(&net, "p1"));
    drop(links.remove(0));
    assert!(!has_program(&net, "p0") && has_program(&net, "p1"), "detached alone");
    let taken = attach(&mut xdp, 0, net.index("sw", "p1"));
    assert!(taken.is_err(), "a second program is refused");
    drop(links);
    assert!(!has_program(&net, "p1"), "dropped");

    let mut child = Command::new("nsenter");
    child.arg(format!("--net=/run/netns/{}", net.name("sw"))).arg(std::env::current_exe().unwrap());
    child
        .args(["--exact", &format!("xdp::{test}"), "--nocapture"])
        .env(CHILD, net.index("sw", "p0").to_string());
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let said = std::io::BufReader::new(child.stdout.take().unwrap());
    let attached = std::io::BufRead::lines(said).any(|line| line.unwrap().contains("attached"));
    assert!(attached && has_program(&net, "p0"), "the child has it");
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    until(LONG, "the program goes with its owner", || (!has_program(&net, "p0")).then_some(()));
}
