//! The program in the kernel on real interfaces: hosts that reach each other through it alone.
//!
//! Shape: veths in namespaces, the program attached from the test itself; `ping` between hosts. What an
//! output refuses is counted; the program is gone with its owner, however that ends.
//! Units: frames.
//! Source: issue 3; architecture.md, "The fast path in the kernel".

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::process::{Command, Stdio};

use weft_parsers::{AddrKey, MacAddr};
use weft_tests::netns::{Net, enter};
use weft_xdp::layout::{NO_VID, PortRules, Tally, VIDS, fdb_key, tags, trust};
use weft_xdp::{Mode, Options, Xdp};

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
        // Only an end with NAPI takes redirected frames.
        let set = net.run(host, "ethtool", "-K eth0 gro on");
        assert!(set.status.success(), "ethtool: {}", String::from_utf8_lossy(&set.stderr));
    }
    for ((host, _, _), (other, _, address)) in HOSTS.iter().zip(HOSTS.iter().rev()) {
        let mac = mac(&net, other);
        net.ip(host, &format!("neigh replace {address} lladdr {mac} dev eth0 nud permanent"));
    }
    enter(&net.name("sw"));
    Some(net)
}

/// Address of a host's interface.
fn mac(net: &Net, host: &str) -> MacAddr {
    let said = net.run(host, "ip", "-br link show eth0");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    text.split_whitespace().find_map(|word| word.parse().ok()).expect("an address")
}

/// Index of an interface of the switch.
fn index(net: &Net, port: &str) -> u32 {
    let said = net.run("sw", "ip", &format!("-o link show {port}"));
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    text.split(':').next().and_then(|number| number.trim().parse().ok()).expect("an index")
}

/// What `ip` says of programs on an interface.
fn has_program(net: &Net, port: &str) -> bool {
    let said = net.run("sw", "ip", &format!("link show {port}"));
    String::from_utf8_lossy(&said.stdout).contains("prog/xdp")
}

/// Rules of a port that takes and sends all as it is.
const OPEN: PortRules = PortRules {
    pcp_to_pri: [0; 8],
    dscp_to_pri: [0; 64],
    tc_to_pri: [0; 64],
    trust: [trust::DEFAULT; 8],
    port_mac: [0; 6],
    tpid: 0x8100,
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
    spare: [0; 6],
};

/// A program on both interfaces that knows both hosts.
fn express(net: &Net) -> Xdp {
    assert_ne!(OPEN.untagged, NO_VID);
    let mut xdp = Xdp::load(&Options::default()).expect("the verifier takes it");
    xdp.configure(&[OPEN; 2], &vec![0b11; VIDS]).unwrap();
    for (port, (host, name, _)) in (0..).zip(HOSTS) {
        let ifindex = index(net, name);
        xdp.attach(port, ifindex, Mode::Native).unwrap();
        xdp.set_output(port, ifindex).unwrap();
        let station = AddrKey::ethernet(mac(net, host)).to_bits();
        xdp.put_station(fdb_key(1, station), port, false).unwrap();
        xdp.words().set_open(port, 1);
    }
    xdp
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

/// Hosts reach each other with nothing in user space; when the far end of an output loses NAPI, the
/// frames that it refuses are counted at both ends of their way.
#[test]
fn hosts_reach_each_other_in_the_kernel_and_what_is_refused_is_counted() {
    let Some(net) = network("hosts_reach_each_other_in_the_kernel_and_what_is_refused_is_counted")
    else {
        return;
    };
    let xdp = express(&net);
    assert!(pings(&net, 20), "both know each other");
    let (express_in, refused_in, refused_out) = sums(&xdp);
    assert!(express_in.iter().all(|&frames| frames >= 20), "{express_in:?}");
    assert_eq!((refused_in, refused_out), ([0; 2], [0; 2]));
    let counts = xdp.counts(1).unwrap();
    assert_eq!(counts.stats.given, express_in[0]);
    if xdp.counts_refusals() {
        assert_eq!(counts.refusals.settled, express_in[0], "all are known");
    } else {
        eprintln!("SKIPPED counts of what is refused: no types of the kernel, or no tracepoints");
    }

    let set = net.run("b", "ethtool", "-K eth0 gro off");
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    assert!(!pings(&net, 3), "nothing comes through");
    let (after, refused_in, refused_out) = sums(&xdp);
    let lost = after[0] - express_in[0];
    assert!(lost >= 3, "{lost} frames");
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
        xdp.attach(0, index.parse().unwrap(), Mode::Native).unwrap();
        println!("attached");
        std::thread::park(); // until it is killed
        return;
    }
    let Some(net) = network(test) else { return };
    let mut xdp = express(&net);
    assert!(has_program(&net, "p0") && has_program(&net, "p1"));
    xdp.detach(0).unwrap();
    assert!(!has_program(&net, "p0") && has_program(&net, "p1"), "detached alone");
    let taken = Xdp::load(&Options::default()).unwrap().attach(0, index(&net, "p1"), Mode::Native);
    assert!(taken.is_err(), "a second program is refused");
    drop(xdp);
    assert!(!has_program(&net, "p1"), "dropped");

    let mut child = Command::new("nsenter");
    child.arg(format!("--net=/run/netns/{}", net.name("sw"))).arg(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(CHILD, index(&net, "p0").to_string());
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let said = std::io::BufReader::new(child.stdout.take().unwrap());
    let attached = std::io::BufRead::lines(said).any(|line| line.unwrap().contains("attached"));
    assert!(attached && has_program(&net, "p0"), "the child has it");
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    for _ in 0..100 {
        if !has_program(&net, "p0") {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    panic!("the program is still there 2 s after its owner was killed");
}
