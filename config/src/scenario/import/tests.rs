//! Files of other simulators: those that are read, and those that are refused with place, value found and value
//! expected.

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_sim::scenario::flow::Flow;
use weft_sim::topology::Topology;

use super::{Imported, Network};
use crate::Problem;

/// Hosts h0 to h15, and n0 to n15 as HPCC names them.
fn host(name: &str) -> Option<u16> {
    name.strip_prefix(['h', 'n'])?.parse().ok().filter(|number| *number < 16)
}

/// Bytes that flows without an end get.
const ENDLESS: u64 = 1 << 40;

fn warned<T>(read: Imported<T>) -> (T, Vec<String>) {
    let warnings = read.warnings.iter().map(ToString::to_string).collect();
    (read.what, warnings)
}

/// A network that is read without warnings.
fn topology(file: &str, text: &str) -> Result<Topology, Problem> {
    let (Network { topology, .. }, warnings) = warned(super::topology(file, text)?);
    assert!(warnings.is_empty(), "{warnings:?}");
    Ok(topology)
}

/// Flows that are read without warnings.
fn flows(
    file: &str,
    text: &str,
    host: &dyn Fn(&str) -> Option<u16>,
) -> Result<Vec<Flow>, Vec<Problem>> {
    let (flows, warnings) = warned(super::flows(file, text, host, ENDLESS)?);
    assert!(warnings.is_empty(), "{warnings:?}");
    Ok(flows)
}

const TOPO: &str = "# two tiers\nNodes 8\nTIERS 2\nTier 0\nDownlink_speed_Gbps 100\nDownlink_Latency_ns 1000\nRadix_Down 4\nRadix_Up 4\nTier 1\nDownlink_speed_Gbps 200\nDownlink_Latency_ns 500\nRadix_Down 4\nBundle 2\n";

#[test]
fn a_folded_clos_of_htsim_is_built() {
    let net = topology("f.topo", TOPO).unwrap();
    assert_eq!((net.hosts().count(), net.switches().count()), (8, 4), "2 below, 2 above");
    assert_eq!(net.links().len(), 8 + 2 * 2 * 2, "bundles of two");
    let up = net.links()[8].spec.unwrap();
    assert_eq!((up.rate, up.propagation), (LinkRate::gbps(200), Span::from_ns(500)));
    net.routes().unwrap();
    let three = "Nodes 16\nTiers 3\nPodsize 4\nTier 0\nDownlink_speed_Gbps 100\nDownlink_Latency_ns 1\nRadix_Down 2\nRadix_Up 2\nTier 1\nDownlink_speed_Gbps 100\nDownlink_Latency_ns 1\nRadix_Down 2\nRadix_Up 2\nTier 2\nDownlink_speed_Gbps 100\nDownlink_Latency_ns 1\nRadix_Down 4\n";
    let net = topology("f.topo", three).unwrap();
    assert_eq!(
        (net.hosts().count(), net.switches().count(), net.links().len()),
        (16, 20, 48),
        "the fat tree of k = 4"
    );
    net.routes().unwrap();
}

#[test]
fn a_topology_of_hpcc_is_built() {
    let net = topology(
        "t.txt",
        "4 2 3\n2 3\n0 2 100Gbps 0.001ms 0\n2 3 400Gbps 0.0005ms 0\n1 3 100Gbps 1us 0\n",
    )
    .unwrap();
    assert_eq!((net.hosts().count(), net.switches().count()), (2, 2));
    let specs: Vec<_> = net.links().iter().map(|link| link.spec.unwrap()).collect();
    assert_eq!((specs[0].rate, specs[0].propagation), (LinkRate::gbps(100), Span::from_ns(1_000)));
    assert_eq!((specs[1].rate, specs[1].propagation), (LinkRate::gbps(400), Span::from_ns(500)));
    net.routes().unwrap();
}

#[test]
fn flows_are_read_in_each_form() {
    let flow = |from, to, bytes, start_ns, after: &[u32]| Flow {
        start: Instant::from_ns(start_ns),
        after: after.to_vec(),
        ..Flow::new(from, to, bytes)
    };
    let csv = flows("f.csv", "from,to,bytes,start_us\nh0,h1,64KiB,0\nh1, h2, 10, 2.5\n", &host);
    assert_eq!(csv.unwrap(), [flow(0, 1, 65_536, 0, &[]), flow(1, 2, 10, 2_500, &[])]);
    let hpcc = flows("flow.txt", "2\n0 1 3 100 5000 2\n1 0 3 100 6000 2.000001\n", &host);
    assert_eq!(hpcc.unwrap(), [flow(0, 1, 5_000, 0, &[]), flow(1, 0, 6_000, 1_000, &[])]);
    let cm = "Nodes 16\nConnections 2\nTriggers 1\n0->1 id 1 start 1000 size 5 send_done_trigger 7\n2->3 id 2 trigger 7 size 6\ntrigger id 7 oneshot\n";
    assert_eq!(flows("f.cm", cm, &host).unwrap(), [flow(0, 1, 5, 1, &[]), flow(2, 3, 6, 0, &[0])]);
}

/// Files as HPCC's project ships them: decimals everywhere, and behind the entries that the first line counts an
/// explanation, or more flows, which HPCC does not read.
#[test]
fn files_of_hpcc_go_on_behind_their_data() {
    let text = "4 1 3\n0\n0 1 12.5Gbps 0.001ms 0.000000\n0 2 1GB/s 1000ns 0\n0 3 25Gb/s 1us 0\n\nFirst line: total node #, switch node #, link #\nSecond line: switch node IDs...\nsrc0 dst0 rate delay error_rate\n...\n";
    let net = topology("t.txt", text).unwrap();
    let rates: Vec<_> = net.links().iter().map(|link| link.spec.unwrap().rate.as_bps()).collect();
    assert_eq!(rates, [12_500_000_000, 8_000_000_000, 25_000_000_000]);
    let text = "1\n1 2 3 100 5000 2\n2 1 3 100 6000 2\n3 1 3 100 6000 2\n\nFirst line: # of flows\nsrc0 dst0 3 dst_port0 size0 start_time0\n";
    let (read, warnings) = warned(super::flows("flow.txt", text, &host, ENDLESS).unwrap());
    assert_eq!(read.len(), 1);
    let want = "flow.txt:3:1: 2 more flows than the 1 of the first line: not read, as HPCC does not read them";
    assert_eq!(warnings, [want]);
    let more = "2 0 1\n0 1 1Gbps 1us 0\n0 1 1Gbps 1us 0\n";
    let (_, warnings) = warned(super::topology("t", more).unwrap());
    assert_eq!(
        warnings,
        ["t:3:1: 1 more links than the 1 of the first line: not read, as HPCC does not read them"]
    );
    let several = topology("t", "5 3 2\n1 2\n3\n0 1 1Gbps 1us 0\n4 3 1Gbps 1us 0\n").unwrap();
    assert_eq!(several.switches().count(), 3, "on two lines");
}

#[test]
fn rates_of_ns3_are_read_in_each_unit() {
    #[rustfmt::skip] // columns: text, bit/s
    let cases = [
        ("100Gbps", 100_000_000_000), ("12.5Gbps", 12_500_000_000), ("0.1Gb/s", 100_000_000),
        ("1.5GB/s", 12_000_000_000), ("2GBps", 16_000_000_000), ("10Mbps", 10_000_000), ("2MB/s", 16_000_000),
        ("800KB/s", 6_400_000), ("64kbps", 64_000), ("64Kb/s", 64_000), ("1Gib/s", 1 << 30), ("1MiB/s", 8 << 20),
        ("1Kib/s", 1_024), ("1500000bps", 1_500_000), ("1500000B/s", 12_000_000), ("1500000", 1_500_000),
        ("10Tbps", 10_000_000_000_000),
    ];
    for (text, bps) in cases {
        let net = topology("t", &format!("2 0 1\n0 1 {text} 1us 0\n")).unwrap();
        assert_eq!(net.links()[0].spec.unwrap().rate.as_bps(), bps, "{text}");
    }
    for text in [
        "Gbps",
        ".Gbps",
        "1Gbps/s",
        "0Gbps",
        "0.0000000001bps",
        "-1Gbps",
        "1gbps",
        "11Tbps",
        "1e9bps",
    ] {
        assert!(topology("t", &format!("2 0 1\n0 1 {text} 1us 0\n")).is_err(), "{text}");
    }
}

#[test]
fn a_switch_has_at_most_64_links() {
    let links: Vec<String> = (1..=65).map(|host| format!("0 {host} 100Gbps 1us 0\n")).collect();
    let text = format!("66 1 65\n0\n{}", links.concat());
    let error = topology("t", &text).unwrap_err().to_string();
    assert_eq!(
        error,
        "t:67:1: expected at most 64 links at switch n0, which has no more ports, found \"0\""
    );
}

#[test]
fn files_of_htsim_have_latencies_of_switches_decimals_and_flows_without_an_end() {
    let text = TOPO.replace("Tier 1\n", "Switch_Latency_ns 0\nTier 1\nSwitch_Latency_ns 250\n");
    let (Network { topology, switch_latency_ns }, _) =
        warned(super::topology("f.topo", &text).unwrap());
    assert_eq!(topology.switches().count(), 4);
    let latencies: Vec<_> =
        switch_latency_ns.iter().map(|(name, ns)| (name.as_str(), *ns)).collect();
    assert_eq!(latencies, [("agg0", 250), ("agg1", 250), ("tor0", 0), ("tor1", 0)]);
    let cm = "Nodes 16\nConnections 3\n0->1 start 0.000000 size 0\n2->3 id 2 start 5.0 size 6 send_done_trigger 7\n4->5 id 3 trigger 7 size 8\ntrigger id 7 multishot\n";
    let (read, warnings) = warned(super::flows("f.cm", cm, &host, ENDLESS).unwrap());
    let got: Vec<_> =
        read.iter().map(|flow| (flow.bytes, flow.start.as_ps(), &flow.after[..])).collect();
    assert_eq!(got, [(ENDLESS, 0, &[][..]), (6, 5, &[]), (8, 0, &[1])]);
    let want = "f.cm: 1 connections of size 0 have no end: they go on until the run ends (`until`), and are not delivered then";
    assert_eq!(warnings, [want]);
    let barrier = "Nodes 9\nConnections 3\n0->1 start 0 size 1 recv_done_trigger 4\n1->2 start 0 size 1 send_done_trigger 4\n2->3 trigger 4 size 1\ntrigger id 4 barrier count 2\n";
    assert_eq!(flows("f", barrier, &host).unwrap()[2].after, [0, 1]);
}

#[test]
fn what_is_wrong_with_a_topology_is_told() {
    #[rustfmt::skip] // columns: name, text, want
    let cases: &[(&str, &str, &str)] = &[
        ("empty", "", "f:1:1: expected Nodes, Tiers and a Tier for each (Tiers is 0, and there are 0), found the end of the file"),
        ("no key", "Nodes 4\nColour red\n", "f:2:1: expected Nodes, Tiers, Podsize, Tier, or of a tier Downlink_speed_Gbps, Downlink_Latency_ns, Switch_Latency_ns, Radix_Down, Radix_Up, Bundle or Oversubscribed, found \"Colour\""),
        ("no number", "Nodes many\n", "f:1:7: expected hosts, 1 to 1048576, found \"many\""),
        ("tiers", "Nodes 4\nTiers 4\n", "f:2:7: expected tiers, 2 to 3, found \"4\""),
        ("order of tiers", "Nodes 4\nTiers 2\nTier 1\n", "f:3:6: expected the number of the next tier, 0 to 0, found \"1\""),
        ("queues", "Nodes 4\nTiers 2\nTier 0\nQueue_Up 100\n", "f:4:1: expected no queues here: say buffer.buffer_size_mb in the scenario, and leave them out, found \"Queue_Up\""),
        ("two nodes of HPCC", "1 0 1\n", "f:1:1: expected the number of nodes, 2 to 1048576, found \"1\""),
        ("few links", "2 0 2\n0 1 1Gbps 1us 0\n", "f:2:1: expected 2 links, as the first line has it, found the end of the file"),
        ("few switches", "4 3 1\n0 1\n0 3 1Gbps 1us 0\n", "f:3:3: expected 3 switches, as the first line has it, found \"3\""),
        ("many switches", "4 1 1\n0 1\n0 3 1Gbps 1us 0\n", "f:2:3: expected 1 switches, as the first line has it, found \"1\""),
        ("host of two", "4 2 2\n2 3\n0 2 1Gbps 1us 0\n0 3 1Gbps 1us 0\n", "f:4:1: expected one link at host n0: hosts with several are not modelled, found \"0\""),
        ("unit of a rate", "2 0 1\n0 1 1Gbit 1us 0\n", "f:2:5: expected a rate such as 100Gbps, found \"1Gbit\""),
        ("two points", "2 0 1\n0 1 1.2.5Gbps 1us 0\n", "f:2:5: expected a rate such as 100Gbps, found \"1.2.5Gbps\""),
        ("rate", "2 0 1\n0 1 fast 1us 0\n", "f:2:5: expected a rate such as 100Gbps, found \"fast\""),
        ("delay", "2 0 1\n0 1 1Gbps 0us 0\n", "f:2:11: expected a delay above 0 such as 0.001ms, found \"0us\""),
        ("error rate", "2 0 1\n0 1 1Gbps 1us 0.1\n", "f:2:15: expected an error rate of 0: say others in [[fault]], found \"0.1\""),
        ("no node", "2 0 1\n0 2 1Gbps 1us 0\n", "f:2:3: expected the number of a node, 0 to 1, found \"2\""),
        ("switch twice", "3 2 1\n1 1\n", "f:2:3: expected each switch once, found \"1\""),
    ];
    for (name, text, want) in cases {
        assert_eq!(topology("f", text).unwrap_err().to_string(), *want, "{name}");
    }
}

#[test]
fn what_is_wrong_with_flows_is_told() {
    #[rustfmt::skip] // columns: name, text, want
    let cases: &[(&str, &str, &str)] = &[
        ("empty", "", "f:1:1: expected the names of the columns: from,to,bytes,start_us, found the end of the file"),
        ("columns", "from,to,size\n", "f:1:9: expected column \"bytes\" of from,to,bytes,start_us, found \"size\""),
        ("host", "from,to,bytes,start_us\nx,h1,1,0\n", "f:2:1: expected the name of a host, found \"x\""),
        ("itself", "from,to,bytes,start_us\nh1,h1,1,0\n", "f:2:4: expected another host than the sender, found \"h1\""),
        ("bytes", "from,to,bytes,start_us\nh0,h1,0,0\n", "f:2:7: expected bytes, 1 or above, found \"0\""),
        ("late", "Nodes 16\nConnections 1\n0->1 start 8640000000000000001 size 1\n", "f:3:12: expected a start in ps, 0 to 8640000000000000000, found \"8640000000000000001\""),
        ("start", "from,to,bytes,start_us\nh0,h1,1,-2\n", "f:2:9: expected a time in microseconds, 0 or above, to the picosecond, found \"-2\""),
        ("short", "from,to,bytes,start_us\nh0,h1,1\n", "f:2:8: expected a time in microseconds, 0 or above, to the picosecond, found the end of the line"),
        ("long", "from,to,bytes,start_us\nh0,h1,1,0,9\n", "f:2:11: expected no more values than columns, found \"9\""),
        ("number of flows", "3\n0 1 3 100 5 2\n", "f:2:1: expected 3 flows, as the first line has it, found the end of the file"),
        ("connections", "Nodes 2\nConnections 2\n0->1 start 0 size 1\n", "f:3:1: expected 2 connections, read 1, found the end of the file"),
        ("arrow", "Nodes 2\nConnections 1\n0-1 start 0 size 1\n", "f:3:1: expected SRC->DST, two hosts (h0, h1, ...) by number, found \"0-1\""),
        ("no start", "Nodes 2\nConnections 1\n0->1 size 1\n", "f:3:12: expected start and a time in ps, or trigger and a number, found the end of the line"),
        ("nobody fires", "Nodes 2\nConnections 1\n0->1 trigger 4 size 1\n", "f:3:1: expected a connection that fires trigger 4, found \"0->1\""),
        ("fraction", "Nodes 2\nConnections 1\n0->1 start 1.5 size 1\n", "f:3:12: expected a start in ps, 0 to 8640000000000000000, found \"1.5\""),
        ("multishot", "Nodes 9\nConnections 3\n0->1 start 0 size 1 send_done_trigger 4\n1->2 start 0 size 1 send_done_trigger 4\n2->3 trigger 4 size 1\ntrigger id 4 multishot\n", "f:6:14: expected oneshot or barrier: multishot is read where one connection fires and one waits; 2 and 1 do, found \"multishot\""),
        ("barrier", "Nodes 9\nConnections 2\n0->1 start 0 size 1 send_done_trigger 4\n2->3 trigger 4 size 1\ntrigger id 4 barrier count 2\n", "f:5:28: expected the number of connections that fire it, 1, found \"2\""),
        ("failure", "Nodes 2\nConnections 0\nFailures 1\n", "f:3:10: expected no failures: say them in [[fault]], 0 to 0, found \"1\""),
    ];
    for (name, text, want) in cases {
        let refused = flows("f", text, &host).unwrap_err();
        assert_eq!(refused[0].to_string(), *want, "{name}");
    }
}
