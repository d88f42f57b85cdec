//! Scenario files: those that are read, and those that are refused with place, value found and value expected.

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::frames::{Kind, Station};
use weft_hosts::rclink::endpoint::{EndpointSpec, Transport};
use weft_sim::scenario::Site;
use weft_sim::scenario::expect::{Number, Tolerance};
use weft_sim::scenario::fault::Fault;
use weft_sim::scenario::workload::Pattern;

use super::{Loaded, Source};

fn load(text: &str) -> Result<Loaded, Vec<String>> {
    let source = Source { name: "f".to_owned(), text: text.to_owned(), ..Source::default() };
    source.load().map_err(|error| error.to_string().lines().map(str::to_owned).collect())
}

/// The end of a file that is accepted.
const MOVES: &str = "[[workload]]\nkind = 'permutation'\nbytes = 1000\n";

/// A file with something in every section.
const ALL: &str = "
seed = 7
until = '10ms'
[net]
rate_gbps = 100
[switch_defaults]
fixed_latency_ns = 300
[[switch]]
name = 'left'
[[switch]]
name = 'right'
fixed_latency_ns = 400
[[host]]
name = 'a'
[[host]]
name = 'b'
[[link]]
ends = ['a', 'left']
[[link]]
ends = ['left', 'right']
rate_gbps = 50
delay = '2.5us'
[[link]]
ends = ['right', 'b']
link_m = 100
[buffer]
buffer_size_mb = 8
[endpoint]
pkt_format = 'lite'
payload_bytes = 1024
[[workload]]
kind = 'point-to-point'
from = 'b'
to = 'a'
bytes = '1MiB'
start = '3us'
[[fault]]
kind = 'bit-error'
link = ['right', 'left']
rate = 1e-12
[[expect]]
metric = 'fct_last_us'
value = 650.3
tolerance = '0.3%'
source = 'a test'
";

#[test]
fn a_file_says_all_of_a_scenario() {
    let loaded = load(ALL).unwrap();
    let it = &loaded.scenario;
    assert_eq!((it.seed, it.until, it.name.as_str()), (7, Instant::from_ns(10_000_000), "f"));
    let specs: Vec<_> = it.topology.links().iter().map(|link| link.spec.unwrap()).collect();
    let rates: Vec<u64> = specs.iter().map(|spec| spec.rate.as_bps()).collect();
    assert_eq!(rates, [100_000_000_000, 50_000_000_000, 100_000_000_000]);
    let delays: Vec<u64> = specs.iter().map(|spec| spec.propagation.as_ns()).collect();
    assert_eq!(delays, [50, 2_500, 500]);
    let plan = |name: &str, links: &[_]| {
        (it.switches)(&Site { node: it.topology.find(name).unwrap(), name, links }).unwrap()
    };
    let (left, right) = (plan("left", &specs[..2]), plan("right", &specs[1..]));
    assert_eq!(left.around.latency, Span::from_ns(300));
    assert_eq!(right.around.latency, Span::from_ns(400));
    assert_eq!(left.config.ports[1].rate, LinkRate::gbps(50));
    assert_eq!(left.config.ports[0].parse.afh, weft_parsers::AfhMode::Lite);
    let bytes = |cells: u32, size: u32| u64::from(cells) * u64::from(size);
    assert_eq!(bytes(left.config.buffer.total_cells, left.config.buffer.cell_bytes), 8 << 20);
    let peers: Vec<Station> = (1..3).map(Station::numbered).collect();
    let mut spec = EndpointSpec::new(0, peers.into(), it.endpoints.kind);
    (it.endpoints.template)(&Site { node: 0, name: "a", links: &specs[..1] }, &mut spec).unwrap();
    assert_eq!((spec.frame.kind, spec.transport), (Kind::Lite, Transport::Lite));
    assert_eq!((spec.payload_max, spec.frame.icrc), (1_024, false));
    let pattern = Pattern::PointToPoint { from: 1, to: 0, bytes: 1 << 20, count: 1 };
    assert_eq!(it.workloads[0].kind, pattern);
    assert_eq!(it.workloads[0].start, Instant::from_ns(3_000));
    assert_eq!(it.faults, [Fault::BitError { link: 1, one_in_bits: 1_000_000_000_000 }]);
    assert_eq!(it.expects[0].value, Number(650_300_000_000));
    assert_eq!(it.expects[0].tolerance, Tolerance::Relative(Number(3_000_000)));
}

#[test]
fn flags_lie_over_the_file() {
    let text = format!("[net]\ngenerate = 'single'\nhosts = 4\n{MOVES}");
    let set = ["seed=9", "net.hosts=6", "switch.fixed_latency_ns=1"].map(str::to_owned);
    let source = Source { name: "f".to_owned(), text, set: set.to_vec(), dir: None };
    let scenario = source.load().unwrap().scenario;
    assert_eq!((scenario.seed, scenario.topology.hosts().count()), (9, 6));
    let wrong = Source { set: vec!["net.host=6".to_owned()], ..source };
    let error = wrong.load().unwrap_err().to_string();
    assert_eq!(error, "--set net.host=6: net.host: unknown key \"host\", did you mean \"hosts\"?");
}

#[test]
fn what_is_wrong_is_refused_with_its_place() {
    #[rustfmt::skip] // columns: name, before the workload, want
    let cases: &[(&str, &str, &str)] = &[
        ("no network", "", "f: net.generate: expected a network: net.generate, net.import, or [[switch]], [[host]] and [[link]]; found none"),
        ("unknown key", "[net]\ngenrate = 'single'\n", "f:2:1: net: unknown key \"genrate\", did you mean \"generate\"?"),
        ("unknown section", "[nets]\n", "f:1:2: unknown section \"nets\", did you mean \"net\"?"),
        ("root type", "seed = 'x'\n[net]\ngenerate = 'direct'\n", "f:1:8: seed: expected a whole number, 0 or above, found \"x\""),
        ("time", "until = 10\n", "f:1:9: until: expected a time such as \"10ms\": a number and ps, ns, us, ms or s, found 10"),
        ("no time", "until = '0s'\n[net]\ngenerate = 'direct'\n", "f:1:1: until: expected a time above 0"),
        ("missing key", "[net]\ngenerate = 'single'\n", "f:2:1: net.hosts: expected this key with generate = \"single\", found none"),
        ("idle key", "[net]\ngenerate = 'direct'\nleaves = 2\n", "f:3:1: net.leaves: expected none with generate = \"direct\": it is for leaf-spine"),
        ("two networks", "[net]\ngenerate = 'direct'\n[[host]]\nname = 'a'\n", "f:3:1: host: expected one network: net.generate, net.import, or [[switch]], [[host]] and [[link]]; found two"),
        ("topology", "[net]\ngenerate = 'single'\nhosts = 65\n", "f:2:1: net.generate: hosts 65: expected 2 to 64"),
        ("name twice", "[[host]]\nname = 'a'\n[[switch]]\nname = 'a'\n[[link]]\nends = ['a', 'b']\n", "f:2:1: host.name: node \"a\" is there already"),
        ("unknown end", "[[host]]\nname = 'alice'\n[[host]]\nname = 'b'\n[[link]]\nends = ['alise', 'b']\n", "f:6:1: link.ends: expected the name of a host or switch, found \"alise\", did you mean \"alice\"?"),
        ("second link of a host", "[[host]]\nname='a'\n[[host]]\nname='b'\n[[host]]\nname='c'\n[[link]]\nends=['a','b']\n[[link]]\nends=['a','c']\n", "f:10:1: link.ends: node \"a\" has 1 links already: expected no more"),
        ("no link", "[[host]]\nname='a'\n[[host]]\nname='b'\n", "f: link.ends: expected a link at \"a\", found none"),
        ("elsewhere", "[net]\ngenerate = 'direct'\n[port_defaults]\nport_bandwidth_gbps = 10\n", "f:4:1: port_defaults.port_bandwidth_gbps: expected net.rate_gbps, or rate_gbps in [[link]]"),
        ("live only", "[net]\ngenerate = 'direct'\n[switch]\ntx_ring_frames = 1\n", "f:4:1: switch.tx_ring_frames: counts only for a live switch, expected it in the configuration of weft run; leave it out"),
        ("switch", "[net]\ngenerate = 'single'\nhosts = 2\n[ecn]\necn_threshold_low = 90\n", "f:5:1: ecn.ecn_threshold_low: expected at most ecn_threshold_high, 80, found 90"),
        ("long frames", "[net]\ngenerate = 'single'\nhosts = 2\n[switch]\nmax_frame = 1000\n", "f:5:1: switch.max_frame: expected at least 1398, which frames of endpoints have, found 1000"),
        ("lite", "[net]\ngenerate = 'direct'\n[endpoint]\nlite_mode = false\npkt_format = 'lite'\n", "f:4:1: endpoint.lite_mode: expected true with pkt_format lite; or leave it out"),
        ("lite of type2", "[net]\ngenerate = 'direct'\n[endpoint]\nlite_mode = true\npkt_type = 'type2'\npkt_format = 'gen1'\n", "f:4:1: endpoint.lite_mode: expected false with pkt_type type2 and type3, which are no LITE frames"),
        ("no ACK in LITE mode", "[net]\ngenerate = 'direct'\n[endpoint]\nlite_mode = true\npkt_format = 'standard'\nack_timeout = 2\n", "f:6:1: endpoint.ack_timeout: expected none with lite_mode, which has no ACK; or leave it out"),
        ("no CNP of lite", "[net]\ngenerate = 'direct'\n[endpoint]\npkt_format = 'lite'\ncnp_delay = '1us'\n", "f:5:1: endpoint.cnp_delay: expected none with pkt_format lite, which has neither ACK nor CNP; or leave it out"),
        ("two windows", "[net]\ngenerate = 'direct'\n[endpoint]\nlength_thr = 9999\nrate_window = 2\ncc_window_ns = 5000\n", "f:6:1: endpoint.cc_window_ns: expected one of rate_window and cc_window_ns; leave one out"),
        ("window", "[net]\ngenerate = 'direct'\n[endpoint]\nlength_thr = 9999\ncc_window_ns = 4095\n", "f:5:16: endpoint.cc_window_ns: expected a whole number 4096..=65536, found 4095"),
        ("delay and its parts", "[net]\ngenerate = 'direct'\n[endpoint]\ndelay = '1us'\nt_paxi_tx = '1ns'\nt_cesoc_rx = '1ns'\n", "f:4:1: endpoint.delay: expected none beside parts of both directions (t_paxi_tx, t_paxi_rx, ...); leave it out"),
        ("type2 of Standard", "[net]\ngenerate = 'direct'\n[endpoint]\npkt_type = 'type2'\n", "f:4:1: endpoint.pkt_type: expected pkt_format gen1 or gen2 beside type2: a Standard frame of TYPE2 has a UDP port of its own, which nobody has agreed on, and lite is sent once in any case"),
        ("type3 with a format", "[net]\ngenerate = 'direct'\n[endpoint]\npkt_type = 'type3'\npkt_format = 'gen1'\n", "f:5:1: endpoint.pkt_format: expected none with pkt_type type3, which is raw Ethernet; leave it out"),
        ("type3 with an ICRC", "[net]\ngenerate = 'direct'\n[endpoint]\npkt_type = 'type3'\nicrc = true\n", "f:5:1: endpoint.icrc: expected false with pkt_type type2 and type3, which have no ICRC"),
        ("type3 has no ACK", "[net]\ngenerate = 'direct'\n[endpoint]\npkt_type = 'type3'\nack_timeout = 4\n", "f:5:1: endpoint.ack_timeout: expected none with pkt_type type3, which has no ACK; or leave it out"),
        ("outstanding of type1", "[net]\ngenerate = 'direct'\n[endpoint]\noutstanding = 4\n", "f:4:1: endpoint.outstanding: expected none without pkt_type type2; leave it out"),
        ("no ACK", "[net]\ngenerate = 'direct'\n[endpoint]\npkt_format = 'lite'\nack_delay = '1us'\n", "f:5:1: endpoint.ack_delay: expected none with pkt_format lite, which has no ACK; or leave it out"),
        ("channel", "[net]\ngenerate = 'direct'\n[endpoint]\nnum_vc = 4\n", "f:4:1: endpoint.ack_vc: expected 0..=3 (num_vc is 4), found 5"),
        ("no limit", "[net]\ngenerate = 'direct'\n[endpoint]\nflow_control_mode = 'cbfc'\n", "f:4:1: endpoint.credit_limit: expected this key, found none"),
        ("credits beside PFC", "[net]\ngenerate = 'single'\nhosts = 2\n[endpoint]\nflow_control_mode = 'cbfc'\ncredit_limit = 99\n", "f:5:1: endpoint.flow_control_mode: expected pfc.pfc_enabled = false beside \"cbfc\": credits go from endpoint to endpoint, and not beside PFC"),
        ("no PAUSE", "[net]\ngenerate = 'direct'\n[endpoint]\nflow_control_mode = 'none'\n", "f:4:1: endpoint.flow_control_mode: expected \"pfc\", found \"none\": an endpoint obeys each PAUSE; say pfc.pfc_enabled = false, so that switches send none"),
        ("credits without", "[net]\ngenerate = 'direct'\n[endpoint]\nuf_limit = 2\n", "f:4:1: endpoint.uf_limit: expected flow_control_mode = \"cbfc\" beside it; or leave it out"),
        ("window without limit", "[net]\ngenerate = 'direct'\n[endpoint]\nrate_window = 2\n", "f:4:1: endpoint.rate_window: expected length_thr beside it, which is the limit"),
        ("controller without rate", "[net]\ngenerate = 'direct'\n[endpoint]\ncontroller = 'dcqcn'\n", "f:4:1: endpoint.controller: expected length_thr beside it, the rate without congestion"),
        ("gain without controller", "[net]\ngenerate = 'direct'\n[endpoint]\ndcqcn_gain = 2\n", "f:4:1: endpoint.dcqcn_gain: expected controller = \"dcqcn\" beside it; or leave it out"),
        ("timer", "[net]\ngenerate = 'direct'\n[endpoint]\ncontroller = 'dcqcn'\nlength_thr = 9\ndcqcn_least_bytes = 1\ndcqcn_timer = '1ms'\n", "f:7:1: endpoint.dcqcn_timer: expected 1us to 256us"),
        ("least", "[net]\ngenerate = 'direct'\n[endpoint]\ncontroller = 'dcqcn'\nlength_thr = 9\n", "f:4:1: endpoint.dcqcn_least_bytes: expected at most length_thr, 9, found 51"),
        ("banks", "[net]\ngenerate = 'direct'\n[endpoint]\nrequest_vc = 1\nbanks = 3\n", "f:5:1: endpoint.banks: expected at most 2, as requests are on virtual channel 1 and below, found 3"),
        ("turns", "[net]\ngenerate = 'direct'\n[endpoint]\nbank_turns = true\n", "f:4:1: endpoint.bank_turns: expected banks of 2 or more beside it, which can take turns"),
        ("channel of a host", "[[host]]\nname='a'\nrequest_vc = 4\n[[host]]\nname='b'\n[[link]]\nends=['a','b']\n[endpoint]\nnum_vc = 4\nack_vc = 3\n", "f:3:1: host.request_vc: expected 0..=3 (num_vc is 4), found 4"),
        ("shared without named", "[net]\ngenerate = 'direct'\n[switch_defaults]\nfixed_latency_ns = 1\n", "f:4:1: switch_defaults.fixed_latency_ns: expected [[switch]] beside it; without, the keys of all switches stand in [switch]"),
        ("no time between samples", "[net]\ngenerate = 'direct'\nsampling = '0s'\n", "f:3:1: net.sampling: expected a time above 0"),
        ("no folder", "[net]\nimport = 'x.topo'\n", "f:2:1: net.import: expected no file, found \"x.topo\": the scenario has no folder"),
    ];
    for (name, text, want) in cases {
        let refused = load(&format!("{text}{MOVES}")).err().unwrap_or_default();
        assert!(refused.contains(&(*want).to_owned()), "{name}: {refused:#?}");
    }
}

#[test]
fn what_moves_is_refused_with_its_place() {
    let net = "[net]\ngenerate = 'single'\nhosts = 4\n";
    #[rustfmt::skip] // columns: name, text after the network, want
    let cases: &[(&str, &str, &str)] = &[
        ("nothing", "", "f: workload: expected a [[workload]] at least, found none: nothing would move"),
        ("no kind", "[[workload]]\nbytes = 1\n", "f:4:1: workload.kind: expected this key, found none"),
        ("unknown kind", "[[workload]]\nkind = 'incats'\n", "f:5:8: workload.kind: expected \"incast\", \"permutation\", \"uniform\", \"all-to-all\", \"ring-all-reduce\", \"point-to-point\", \"flows\", \"capture\" or \"tcp\", found \"incats\""),
        ("missing", "[[workload]]\nkind = 'incast'\nto = 'h0'\n", "f:4:1: workload.bytes: expected this key with kind = \"incast\", found none"),
        ("idle", "[[workload]]\nkind = 'permutation'\nbytes = 1\ncount = 2\n", "f:7:1: workload.count: expected none with kind = \"permutation\": it is for point-to-point"),
        ("no bytes", "[[workload]]\nkind = 'permutation'\nbytes = 0\n", "f:6:9: workload.bytes: expected bytes, 1 or above, as a whole number or such as \"64KiB\": KB, MB, GB, KiB, MiB or GiB, found 0"),
        ("no host", "[[workload]]\nkind = 'incast'\nto = 'h4'\nbytes = 1\n", "f:6:1: workload.to: expected the name of a host, found \"h4\"; there are 4, the first one is \"h0\""),
        ("two networks", "[[host]]\nname = 'receiver'\n", "f:4:1: host: expected one network: net.generate, net.import, or [[switch]], [[host]] and [[link]]; found two"),
        ("twice", "[[workload]]\nkind = 'permutation'\nbytes = 1\nhosts = ['h0', 'h0', 'h1']\n", "f:7:1: workload.hosts: expected each host once, found \"h0\" twice"),
        ("too few", "[[workload]]\nkind = 'permutation'\nbytes = 1\nhosts = ['h0']\n", "f:7:1: workload.hosts: expected 2 hosts or more, found 1"),
        ("to itself", "[[workload]]\nkind = 'point-to-point'\nfrom = 'h1'\nto = 'h1'\nbytes = 1\n", "f:7:1: workload.to: expected another host than the sender"),
        ("name twice", "[[workload]]\nkind = 'permutation'\nbytes = 1\nname = 'w'\n[[workload]]\nkind = 'permutation'\nbytes = 1\nname = 'w'\n", "f:11:1: workload.name: expected each name once, found \"w\" twice"),
        ("small chunks", "[[workload]]\nkind = 'ring-all-reduce'\nbytes = 3\n", "f:6:1: workload.bytes: expected 4 bytes or more, one for each chunk, found 3"),
        ("no duration", "[[workload]]\nkind = 'uniform'\nbytes = 1\nload_gbps = 1\nduration = '0s'\n", "f:8:1: workload.duration: expected a time above 0"),
        ("too many frames", "[[workload]]\nkind = 'incast'\nto = 'h0'\nbytes = 2886218022913\n", "f:7:1: workload.bytes: expected at most 2886218022912, as a message has 2^31 frames of payload_bytes at most, found 2886218022913"),
        ("tcp without end", "[[workload]]\nkind = 'tcp'\nto = 'h0'\n", "f:4:1: workload.bytes: expected bytes or duration with kind = \"tcp\", found none of them"),
        ("tcp to itself", "[[workload]]\nkind = 'tcp'\nfrom = ['h1', 'h0']\nto = 'h0'\nbytes = 1\n", "f:6:1: workload.from: expected senders beside the receiver, found it among them"),
        ("tcp beside lite", "[endpoint]\npkt_format = 'lite'\n[[workload]]\nkind = 'tcp'\nto = 'h0'\nbytes = 1\n", "f:5:1: endpoint.pkt_format: expected standard, gen1 or gen2 beside a workload of kind tcp: a link that carries lite carries nothing else"),
        ("tcp that drains", "[endpoint]\nflow_control_mode = 'cbfc'\ncredit_limit = 99\ndrain_gbps = 1\n[pfc]\npfc_enabled = false\n[[workload]]\nkind = 'tcp'\nto = 'h0'\nbytes = 1\n", "f:7:1: endpoint.drain_gbps: expected none beside a workload of kind tcp, whose receivers read at once; leave it out"),
        ("tcp to a slow host", "[[workload]]\nkind = 'tcp'\nto = 'h0'\nbytes = 1\n[[fault]]\nkind = 'slow-receiver'\nhost = 'h0'\ndrain_gbps = 1\n", "f:10:1: fault.host: expected a host that no TCP connection goes to: it would slow down RC Link alone"),
        ("tcp in long frames", "[switch]\nmax_frame = 1500\n[[workload]]\nkind = 'tcp'\nto = 'h0'\nbytes = 1\n", "f:5:1: switch.max_frame: expected at least 1514, which frames of endpoints have, found 1500"),
        ("slow twice", "[[fault]]\nkind = 'slow-receiver'\nhost = 'h0'\ndrain_gbps = 1\n[[fault]]\nkind = 'slow-receiver'\nhost = 'h0'\ndrain_gbps = 1\n", "f:10:1: fault.host: expected one slow-receiver a host, found another one before"),
        ("link", "[[fault]]\nkind = 'link-down'\nlink = ['h0', 'h1']\n", "f:6:1: fault.link: expected two nodes that a link joins, found host \"h0\" and host \"h1\", which none does"),
        ("times", "[[fault]]\nkind = 'pause-storm'\nhost = 'h0'\nfrom = '2us'\nuntil = '1us'\n", "f:8:1: fault.until: expected a time after `from`"),
        ("rate", "[[fault]]\nkind = 'bit-error'\nlink = ['h0', 'sw']\nrate = 2\n", "f:7:8: fault.rate: expected a number 0.000000000000000001..=1, found 2"),
        ("tolerance", "[[expect]]\nmetric = 'm'\nvalue = 1\ntolerance = 'some'\nsource = 's'\n", "f:7:13: expect.tolerance: expected such as \"0.3%\", a number in the metric's unit, \"at least\" or \"at most\", found \"some\""),
    ];
    for (name, text, want) in cases {
        let refused = load(&format!("{net}{text}")).err().unwrap_or_default();
        assert!(refused.contains(&(*want).to_owned()), "{name}: {refused:#?}");
    }
}

#[test]
fn the_page_is_as_the_table_has_it() {
    let page = include_str!("../../../docs/scenarios.md");
    assert!(
        page == super::document::markdown(),
        "docs/scenarios.md: make it anew with `weft sim keys`"
    );
}

/// Paths of the scenarios in `scenarios/`.
fn shipped() -> Vec<std::path::PathBuf> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect()
}

#[test]
fn shipped_scenarios_are_read_and_say_where_their_values_are_from() {
    let files = shipped();
    assert!(files.len() >= 12, "{files:?}");
    for path in files {
        let loaded = Source::read(&path).unwrap().load();
        let scenario = loaded.unwrap_or_else(|error| panic!("{error}")).scenario;
        assert!(!scenario.expects.is_empty(), "{}", path.display());
    }
}
