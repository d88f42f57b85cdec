//! Tests of the resolver: resulting configurations, and contradictions with the places where they are refused.

use weft_dataplane::config::{PfcMode, StormAction};
use weft_dataplane::islip::Discipline;
use weft_dataplane::storm::StormLimit;
use weft_dataplane::types::{Alpha, PortId};
use weft_dataplane::vlan::PortMode;
use weft_parsers::AddrKey;

use super::*;
use crate::choice::{CciOwner, DeviceKind, Poll};
use crate::places::{Listen, MctpPlace};

const TWO: &str = "[[port]]\nname = 'p0'\n[[port]]\nname = 'p1'\n";

fn resolve(text: &str, timing: Timing) -> Result<Config, Vec<String>> {
    let lines = |error: ConfigError| error.0.iter().map(ToString::to_string).collect::<Vec<_>>();
    let settings = Settings::read("f", text).map_err(lines)?;
    Config::resolve(&settings, timing).map_err(lines)
}

fn live(text: &str) -> Result<Config, Vec<String>> {
    resolve(text, Timing::Live)
}

#[test]
fn two_named_ports_are_a_switch() {
    let config = live(TWO).unwrap();
    let switch = &config.switch;
    assert_eq!(switch.pris, 4);
    assert_eq!(switch.ports.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["p0", "p1"]);
    assert_eq!(config.run.ports[1].device, "p1");
    assert_eq!(config.run.ports[1].kind, DeviceKind::Auto);
    assert_eq!(switch.ports[0].rate.as_bps(), 1_000_000_000);
    assert_eq!(switch.ports[0].egress.strict.bits(), 0b1000);
    assert_eq!(switch.ports[0].egress.weights.0[..3], [10, 40, 50]);
    assert_eq!(switch.pfc.lossless.bits(), 0b110);
    assert_eq!(switch.pfc.classes.0[..4], [0b101, 0b10, 0b1_1000, 0b1110_0000]);
    assert_eq!(switch.buffer.cell_bytes, 2_048);
    // 10 ms at 1 Gbit/s are 1,250,000 bytes, 611 cells; 64 + 2,048 frames wait in rings.
    assert_eq!(switch.buffer.headroom_cells, [611 + 64 + 2_048; 2]);
    // 32 MiB, headroom of 2 ports x 2 priorities, and 2 cells of reserve for each.
    assert_eq!(switch.buffer.total_cells, 16_384 + 4 * 2_723 + 4 * 2);
    // The shared part / (2 x ports), of which ECN takes 50 and 80 %.
    let capacity: u64 = (32 << 20) / 4;
    assert_eq!(switch.ecn.low_bytes, capacity / 2);
    assert_eq!(switch.ecn.high_bytes, capacity * 8 / 10);
    assert_eq!(switch.pfc.mode, PfcMode::IngressPg);
    assert_eq!(switch.crossbar.burst, 64);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

/// A switch with links to a host, to a device and to two other switches.
const ROLES: &str = "[fabric]\nuuid = '5ed8a1c0-0000-4000-8000-000000000001'\npid = 1\n\
    [[port]]\nname = 'p0'\nrole = 'usp'\n[[port]]\nname = 'p1'\nrole = 'dsp'\n\
    [[port]]\nname = 'p2'\nrole = 'fport'\n[[port]]\nname = 'p3'\nrole = 'fport'\n\
    [[vcs]]\nusp = 'p0'\nvppbs = 2\n";
const FIXED: &str = "[[pid]]\nport = 'p0'\npid = 2\n[[pid]]\nport = 'p2'\npid = 3\n\
    [[routing_group]]\nnumber = 5\nports = ['p2', 'p3']\nprimary = 1\nmix = 2\nmode = 'congestion-avoiding'\n\
    [[route]]\npid = 9\nrouting_group = 5\n[[route]]\npid = 10\nport = 'p3'\n\
    [[bind]]\nvppb = 1\nport = 'p1'\n[[bind]]\nvppb = 2\nown = 2\nfar = 9\nlatency_base = 10\nlatency = 3\n";

/// CXL 3.1 section 7.7.12.1; the result, written as sections again, resolves to itself.
#[test]
fn a_switch_is_set_up_from_the_start() {
    let config = live(&format!("{ROLES}{FIXED}")).unwrap();
    let fixed = config.fabric.unwrap().switch.static_init.unwrap();
    assert_eq!((fixed.targets.len(), fixed.routes.len(), fixed.binds.len()), (2, 2, 2));
    let (number, group) = fixed.groups[0];
    assert_eq!((number, group.ports(), group.primary, group.mix), (5, &[2, 3][..], 0, 2));
    let again =
        live(&format!("{ROLES}{}", weft_lab::fabric::static_init::sections(&fixed))).unwrap();
    assert_eq!(again.fabric.unwrap().switch.static_init, Some(fixed));
}

#[test]
fn what_a_switch_cannot_be_set_up_with_is_refused_where_it_is() {
    #[rustfmt::skip] // columns: what is added, what is said
    let cases = [
        ("[[pid]]\nport = 'p9'\npid = 4\n",                           "expected the name of a port, found \"p9\""),
        ("[[pid]]\nport = 'p3'\n",                                    "expected pid, found none"),
        ("[[pid]]\npid = 4\n",                                        "expected the name of a port, found none"),
        ("[[pid]]\nport = 'p3'\npid = 2\n",                           "port 3 cannot have PID 002 as its number 0"),
        ("[[pid]]\nport = 'p3'\npid = 4095\n",                        "expected a whole number 0..=4094"),
        ("[[routing_group]]\nnumber = 0\n",                           "expected names of ports, found none"),
        ("[[routing_group]]\nnumber = 0\nports = ['p2']\nprimary = 2\n", "at most the 1 ports of the group, found 2"),
        ("[[routing_group]]\nnumber = 0\nports = ['p2']\nmode = 'advanced-congestion-avoiding'\n", "expected \"random\" or \"congestion-avoiding\""),
        ("[[route]]\npid = 11\n",                                     "expected either a port or a routing_group"),
        ("[[route]]\npid = 11\nport = 'p2'\nrouting_group = 5\n",     "expected either a port or a routing_group"),
        ("[[bind]]\nvppb = 2\nown = 2\n",                             "expected either a port, or own and far"),
        ("[[bind]]\nvppb = 1\nport = 'p1'\n",                         "vPPB 1 cannot be bound to that"),
    ];
    for (more, want) in cases {
        let said = live(&format!("{ROLES}{FIXED}{more}")).unwrap_err().join("\n");
        assert!(said.contains(want), "{more}: {said}");
    }
    let unset = live(&format!("{}{FIXED}", ROLES.replace("pid = 1\n", ""))).unwrap_err().join("\n");
    assert!(unset.contains("expected a pid in [fabric]"), "{unset}");
}

#[test]
fn headroom_for_receive_rings_that_are_not_set_leaves_half_of_a_small_buffer() {
    #[rustfmt::skip] // columns: name, configuration, frames that are covered; headroom takes 21.3 MiB of 2,048 frames
    let cases = [
        ("no size",         "",                                               2_048),
        ("just enough",     "[buffer]\nbuffer_size_mb = 43\n",              2_048),
        ("just too little", "[buffer]\nbuffer_size_mb = 42\n",              512),
        ("set for all",     "[buffer]\nbuffer_size_mb = 42\n[port_defaults]\nrx_ring_frames = 2048\n", 2_048),
    ];
    for (name, text, covered) in cases {
        let config = live(&(text.to_owned() + TWO)).unwrap();
        let rings: Vec<usize> = config.run.ports.iter().map(|port| port.rx_ring_frames).collect();
        assert_eq!(
            rings, [2_048; 2],
            "{name}: a ring that is longer than what is covered loses later"
        );
        assert_eq!(config.switch.buffer.headroom_cells, [covered + 611 + 64; 2], "{name}");
        assert!(config.warnings.is_empty(), "{name}: {:?}", config.warnings);
    }
    let one = "[buffer]\nbuffer_size_mb = 34\n[[port]]\nname = 'a'\n\
               [[port]]\nname = 'b'\nrx_ring_frames = 1024\n";
    let config = live(one).unwrap();
    assert_eq!(config.switch.buffer.headroom_cells, [611 + 64 + 512, 611 + 64 + 1_024]);
    let shown = |item, key| {
        let of = |e: &&Effective| e.section == "port" && e.item == item && e.param.name == key;
        config.effective.iter().find(of).unwrap().value.as_ref().map(ToString::to_string)
    };
    assert_eq!(shown(0, "rx_ring_frames"), Some("2048".into()));
    assert_eq!(shown(1, "rx_ring_frames"), Some("1024".into()));
}

/// Cells of headroom of a switch of two ports in virtual time.
fn headroom(text: &str) -> u64 {
    let config = resolve(&(text.to_owned() + TWO), Timing::Virtual).unwrap();
    u64::from(config.switch.buffer.headroom_cells[0])
}

#[test]
fn headroom_in_virtual_time_covers_the_densest_frames() {
    let text = "[port_defaults]\nport_bandwidth_gbps = 100\n";
    let config = resolve(&(text.to_owned() + TWO), Timing::Virtual).unwrap();
    // 500 ns of its own, 500 of the peer and 100 of cable at 100 Gbit/s: 13,750 bytes; a frame of 1,522 + 24; the PFC frame,
    // 84: 15,380 bytes, or 184 shortest frames of a cell each; and two longest ones of 6.
    assert_eq!(config.switch.buffer.cell_bytes, 256);
    assert_eq!(config.switch.buffer.headroom_cells, [184 + 12; 2]);
    assert_eq!(config.switch.crossbar.burst, 1);
}

/// The bytes of docs/spec/model-reference.md §8 without the last frame. Each 84 of them may be a frame in a cell of
/// its own.
#[test]
fn headroom_in_virtual_time_is_that_of_annex_o() {
    #[rustfmt::skip] // columns: Gbit/s, bytes at 3, 10, 100 and 300 m
    let table = [
        (100, [13_303, 14_178,  25_428,  50_428]),
        (200, [23_678, 25_428,  47_928,  97_928]),
        (400, [44_428, 47_928,  92_928, 192_928]),
        (800, [85_928, 92_928, 182_928, 382_928]),
    ];
    for (gbps, of_rate) in table {
        for (cable_m, bytes) in [3, 10, 100, 300].into_iter().zip(of_rate) {
            let text = format!(
                "[switch]\nmax_frame = 1398\nfixed_latency_ns = 0\n[buffer]\npeer_response_us = 0.8\n\
                 cable_m = {cable_m}\n[port_defaults]\nport_bandwidth_gbps = {gbps}\n"
            );
            let want = u64::div_ceil(bytes - 1_422, 84) + 2 * 6;
            assert_eq!(headroom(&text), want, "{gbps}G, {cable_m} m");
        }
    }
}

/// Frames under way count in full, whichever key sets the latency.
#[test]
fn headroom_in_virtual_time_covers_the_switch_s_own_latency() {
    let at = |keys: &str| {
        headroom(&format!("[switch]\n{keys}[port_defaults]\nport_bandwidth_gbps = 400\n"))
    };
    let bytes = |ns: u64| ns * 400 / 8;
    // A microsecond covers both ends of the cable; the switch's latency beyond it is its own.
    assert_eq!(at("fixed_latency_ns = 0\n"), at("fixed_latency_ns = 1000\n"));
    let more = at("fixed_latency_ns = 5000\n") - at("fixed_latency_ns = 1000\n");
    assert!(more.abs_diff(bytes(4_000) / 84) <= 1, "{more} cells");
    let parts = at("t_ingress_ns = 4000\nt_crossbar_ns = 1000\n");
    assert_eq!(parts, at("fixed_latency_ns = 5000\n"));
    let bare = at("fixed_latency_ns = 5000\nwire_overhead = false\n");
    assert!(bare > 4 * parts, "frames of 14 bytes take those and the FCS: {bare} cells");
}

#[test]
fn headroom_that_is_set_too_small_is_a_warning_with_the_figure() {
    #[rustfmt::skip] // columns: configuration, timing, what is said
    let cases = [
        ("[buffer]\nheadroom_bytes = 5576704\n", Timing::Live, ""),
        ("[buffer]\nheadroom_bytes = 5574656\n", Timing::Live,
         "5576704 bytes can come to p0 after its XOFF, found 5574656; without this key headroom follows from peer_response_us and rx_ring_frames"),
        ("[buffer]\nheadroom_bytes = 0\n[pfc]\npfc_enabled = false\n", Timing::Live, ""),
        ("[buffer]\nheadroom_bytes = 0\n[pfc]\npfc_priorities = []\n", Timing::Live, ""),
        ("[buffer]\nheadroom_bytes = 8704\n", Timing::Virtual, ""),
        ("[buffer]\nheadroom_bytes = 8448\n", Timing::Virtual,
         "8704 bytes can come to p0 after its XOFF, found 8448; without this key headroom follows from peer_response_us, cable_m and fixed_latency_ns"),
    ];
    for (text, timing, want) in cases {
        let config = resolve(&(text.to_owned() + TWO), timing).unwrap();
        let of_headroom = config.warnings.iter().filter(|it| it.key == "buffer.headroom_bytes");
        let said: Vec<String> = of_headroom.map(ToString::to_string).collect();
        assert_eq!(said.is_empty(), want.is_empty(), "{text}: {said:?}");
        assert!(said.iter().all(|said| said.contains(want)), "{text}: {said:?}");
    }
}

#[test]
fn ports_inherit_what_port_defaults_say() {
    let text = "[port_defaults]\nvlan = 'access'\npvid = 7\nstorm_broadcast = 10\n\
                [[port]]\nname = 'a'\n[[port]]\nname = 'b'\nvlan = 'trunk'\nallowed = [1, '10-12']\n\
                native = 5\nstorm_multicast_mbps = 2.5\n";
    let config = live(text).unwrap();
    let [a, b] = &config.switch.ports[..] else { panic!("two ports") };
    assert!(matches!(a.vlan, PortMode::Access { pvid } if pvid.get() == 7));
    let PortMode::Trunk { allowed, native } = &b.vlan else { panic!("{:?}", b.vlan) };
    assert_eq!(allowed.iter().map(weft_parsers::Vid::get).collect::<Vec<_>>(), [1, 10, 11, 12]);
    assert_eq!(native.map(weft_parsers::Vid::get), Some(5));
    assert_eq!(b.storm.broadcast, Some(StormLimit::FramesPerSecond(10)));
    assert_eq!(b.storm.multicast, Some(StormLimit::BitsPerSecond(2_500_000)));
    let shown = |key| {
        let of = |e: &&Effective| e.section == "port" && e.item == 0 && e.param.name == key;
        let found = config.effective.iter().find(of).unwrap();
        (found.value.as_ref().map(ToString::to_string), found.place.to_string())
    };
    assert_eq!(shown("pvid"), (Some("7".into()), "f:3:1".into()));
    assert_eq!(shown("device"), (Some("\"a\"".into()), "derived".into()));
    assert_eq!(shown("default_pri"), (Some("0".into()), "default".into()));
    assert_eq!(shown("max_rate_gbps"), (None, "default".into()));
}

#[test]
fn everything_set_arrives() {
    let text = "[switch]\nnum_priorities = 8\nseed = 9\n[run]\npoll = 'busy'\nmetrics = '127.0.0.1:1'\n\
        [buffer]\nbuffer_size_mb = 64\ncell_bytes = 512\ndt_alpha = [0.125, 0.25, 0.5, 1, 2, 4, 8, \"3/4\"]\n\
        [crossbar]\ndiscipline = 'weighted'\nweights = [1,2,3,4,5,6,7,8]\niterations = 4\n\
        [pfc]\nmode = 'egress-queue'\nwatchdog_action = 'forward'\n\
        [buffer.extra]\n";
    assert!(live(text).is_err(), "a table inside of a table");
    let text = text.replace("[buffer.extra]\n", "")
        + TWO
        + "[[static_entry]]\naddr = 'id:0005'\nport = 'p1'\nvid = 3\n\
           [[group]]\naddr = '01:00:5e:00:00:01'\nports = ['p0', 'p1']\n";
    let config = live(&text).unwrap();
    let switch = &config.switch;
    assert_eq!((switch.pris, switch.seed), (8, 9));
    let shifts = [-3, -2, -1, 0, 1, 2, 3].map(Alpha::shift);
    assert_eq!(switch.buffer.alpha.0[..7], shifts);
    assert_eq!(Some(switch.buffer.alpha.0[7]), Alpha::ratio(3, 4));
    assert_eq!(switch.buffer.total_cells, (64 << 20) / 512);
    let Discipline::Weighted(weights) = switch.crossbar.discipline else { panic!("weighted") };
    assert_eq!(weights.0, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(switch.pfc.watchdog_action, StormAction::Forward);
    let PfcMode::EgressQueue { xoff_bytes, xon_bytes } = switch.pfc.mode else { panic!("mode") };
    assert!(xon_bytes < xoff_bytes && switch.ecn.high_bytes < xoff_bytes);
    let entry = switch.forward.static_entries[0];
    assert_eq!((entry.port, entry.key.addr()), (PortId::new(1).unwrap(), AddrKey::id16(5)));
    assert_eq!(switch.forward.groups[0].ports.bits(), 0b11);
    assert_eq!(config.run.metrics.unwrap().port(), 1);
    assert_eq!(config.run.poll, Poll::Busy);
}

/// Both ports refuse both of the values that they share.
#[test]
fn a_problem_of_several_ports_is_one_line() {
    let text = "[port_defaults]\nmax_frame = 1600\ntrust = ['pcp', 'pcp']\n".to_owned() + TWO;
    let refused = live(&text).unwrap_err();
    let of = |key: &str| refused.iter().filter(|line| line.contains(key)).count();
    assert_eq!((of("port.max_frame"), of("port.trust")), (1, 1), "{refused:#?}");
}

#[test]
fn contradictions_are_refused_at_their_place() {
    #[rustfmt::skip] // columns: name, text before two ports, wanted start, wanted part
    let cases = [
        ("ecn order", "[ecn]\necn_threshold_low = 90\n", "f:2:1: ecn.ecn_threshold_low", "at most ecn_threshold_high, 80, found 90"),
        ("ecn after pfc", "[pfc]\nmode = 'egress-queue'\n[ecn]\necn_threshold_high = 86\n", "f:4:1: ecn.ecn_threshold_high", "at most pfc.pfc_threshold, 85"),
        ("pfc order", "[pfc]\nmode = 'egress-queue'\npfc_release = 86\n", "f:3:1: pfc.pfc_release", "at most pfc_threshold, 85, found 86"),
        ("class twice", "[pfc]\npri_to_pfc = [[0], [1, 2], [2, 3], [4]]\n", "f:2:1: pfc.pri_to_pfc", "found 2 at 1 and 2"),
        ("no class", "[pfc]\npri_to_pfc = [[0], [], [2], [4]]\n", "f:2:1: pfc.pri_to_pfc", "lossless priority 1, found none"),
        ("pri of 8", "[pfc]\npfc_priorities = [1, 5]\n", "f:2:1: pfc.pfc_priorities", "0..=3 (num_priorities is 4), found 5"),
        ("more than there are", "[pfc]\npfc_priorities = [0, 1, 2, 3, 4, 5]\n", "f:2:1: pfc.pfc_priorities", "0..=3 (num_priorities is 4), found 4"),
        ("map of 8", "[classify]\npcp_to_pri = [0,1,2,3,4,5,6,7]\n", "f:2:1: classify.pcp_to_pri", "found 4"),
        ("alpha count", "[buffer]\ndt_alpha = [1,1,1,1,1]\n", "f:2:1: buffer.dt_alpha", "expected 4 members, one for each priority, found 5"),
        ("small buffer", "[buffer]\nbuffer_size_mb = 1\n", "f:2:1: buffer.buffer_size_mb", "leave nothing to share"),
        ("small share", "[buffer]\nbuffer_size_mb = 1\nbuffer_sharing = 'static'\ncell_bytes = 64\nheadroom_bytes = 260416\npg_reserve_bytes = 0\n", "f:2:1: buffer.buffer_size_mb", "static share"),
        ("huge buffer", "[buffer]\nbuffer_size_mb = 65536\n", "f:2:1: buffer.buffer_size_mb", "expected at most 16777216 cells"),
        ("cores", "[run]\nworkers = 2\ncores = [0]\n", "f:3:1: run.cores", "expected a core for each of 2 workers, found 1"),
        ("workers", "[run]\nworkers = 3\n", "f:2:1: run.workers", "at most one worker a port, found 3 for 2"),
        ("frame", "[port_defaults]\nmax_frame = 1600\n", "f:2:1: port.max_frame", "at most switch.max_frame, 1522"),
        ("both storms", "[port_defaults]\nstorm_broadcast = 1\nstorm_broadcast_mbps = 1\n", "f:3:1: port.storm_broadcast_mbps", "found both"),
        ("trust in a word we have not", "[port_defaults]\ntrust = ['mpls']\n", "f:2:10: port_defaults.trust", "\"exp\""),
        ("map of exp of 4", "[classify]\nexp_to_pri = [0,1,2,3]\n", "f:2:14: classify.exp_to_pri", "found a list of 4"),
        ("trust twice", "[port_defaults]\ntrust = ['pcp', 'pcp']\n", "f:2:1: port.trust", "found \"pcp\" twice"),
        ("lite tag", "[traffic]\npkt_format = 'lite'\nvlan_enabled = true\n", "f:3:1: traffic.vlan_enabled", "expected false"),
        ("ecn format", "[traffic]\npkt_format = 'gen1'\necn_capable = true\n", "f:3:1: traffic.ecn_capable", "expected false"),
        ("a part of the latency", "[switch]\nt_ingress_ns = 50\n", "f:2:1: switch.t_ingress_ns", "expected t_crossbar_ns beside it"),
        ("the other part", "[switch]\nt_crossbar_ns = 50\n", "f:2:1: switch.t_crossbar_ns", "expected t_ingress_ns beside it"),
        ("another sum", "[switch]\nt_crossbar_ns = 50\nt_ingress_ns = 100\nfixed_latency_ns = 151\n", "f:4:1: switch.fixed_latency_ns", "expected 150, the sum"),
        ("cut-through", "[switch]\nforwarding_mode = 'cut-through'\n", "f:2:1: switch.forwarding_mode", "allow_store_and_forward = true"),
        ("lite mode", "[traffic]\npkt_format = 'gen1'\nlite_mode = true\n", "f:3:1: traffic.lite_mode", "expected true with pkt_format lite"),
    ];
    for (name, text, start, part) in cases {
        let refused = live(&(text.to_owned() + TWO)).unwrap_err();
        assert!(
            refused.iter().any(|line| line.starts_with(start) && line.contains(part)),
            "{name}: {refused:#?}"
        );
    }
}

#[test]
fn names_must_fit_together() {
    #[rustfmt::skip] // columns: name, text after two ports, wanted line
    let cases = [
        ("port twice", "[[port]]\nname = 'p0'\ndevice = 'x'\n", "f:6:1: port.name: expected each port once, found \"p0\" here and at f:2:1"),
        ("device twice", "[[port]]\nname = 'p2'\ndevice = 'p0'\n", "f:7:1: port.device: expected a device of its own, found \"p0\" at port \"p0\" too"),
        ("no name", "[[port]]\ndevice = 'x'\n", "f:5:1: port.name: expected a name for this port"),
        ("entry port", "[[static_entry]]\naddr = '02:00:00:00:00:01'\nport = 'p9'\n", "f:7:1: static_entry.port: expected the name of a port, found \"p9\""),
        ("entry group", "[[static_entry]]\naddr = '03:00:00:00:00:01'\nport = 'p0'\n", "f:6:1: static_entry.addr: expected a station's address, found a group's"),
        ("entry twice", "[[static_entry]]\naddr = 'id:0001'\nport = 'p0'\n[[static_entry]]\naddr = 'id:0001'\nport = 'p1'\n", "f:9:1: static_entry.addr: expected each address once, found id:0001 in VLAN 1 here and at f:6:1"),
        ("no address", "[[static_entry]]\nport = 'p0'\n", "f:5:1: static_entry.addr: expected an address"),
        ("entry ports", "[[static_entry]]\naddr = 'id:0001'\nports = ['p0', 'p9']\n", "f:7:1: static_entry.ports: expected the name of a port, found \"p9\""),
        ("entry both", "[[static_entry]]\naddr = 'id:0001'\nports = ['p0', 'p1']\nport = 'p0'\n", "f:7:1: static_entry.ports: expected this or port, found both"),
        ("entry nowhere", "[[static_entry]]\naddr = 'id:0001'\n", "f:5:1: static_entry.port: expected the name of a port"),
        ("entry again", "[[static_entry]]\naddr = 'id:0001'\nports = ['p0', 'p0']\n", "f:7:1: static_entry.ports: expected each port once, found \"p0\" again"),
        ("entry member", "[[lag]]\nname = 'l'\nports = ['p1', 'p0']\n[[static_entry]]\naddr = 'id:0001'\nport = 'p1'\n", "f:10:1: static_entry.port: expected \"l\", the LAG that \"p1\" is in, or its first port"),
        ("lag name", "[[lag]]\nports = ['p0', 'p1']\n", "f:5:1: lag.name: expected a name and ports of this LAG"),
        ("lag ports", "[[lag]]\nname = 'l'\n", "f:5:1: lag.ports: expected a name and ports of this LAG"),
        ("lag port's name", "[[lag]]\nname = 'p0'\nports = ['p0', 'p1']\n", "f:6:1: lag.name: expected a name of its own, found \"p0\" twice"),
        ("lag port", "[[lag]]\nname = 'l'\nports = ['p0', 'p2']\n", "f:7:1: lag.ports: expected the name of a port, found \"p2\""),
        ("lag port twice", "[[lag]]\nname = 'l'\nports = ['p0', 'p0']\n", "f:7:1: lag.ports: expected each port once, found \"p0\" in \"l\" too"),
        ("lag overlap", "[[lag]]\nname = 'l'\nports = ['p0', 'p1']\n[[lag]]\nname = 'm'\nports = ['p1', 'p0']\n", "f:10:1: lag.ports: expected each port once, found \"p1\" in \"l\" too"),
        ("lag unlike", "[[port]]\nname = 'p2'\nvlan = 'access'\n[[lag]]\nname = 'l'\nports = ['p0', 'p2']\n", "f:10:1: lag.ports: expected ports that are alike, found \"p0\" and \"p2\" with another vlan"),
        ("group station", "[[group]]\naddr = '02:00:00:00:00:01'\nports = []\n", "f:6:1: group.addr: expected a group's address, found a station's"),
        ("group port", "[[group]]\naddr = '01:00:00:00:00:01'\nports = ['p1', 'x']\n", "f:7:1: group.ports: expected the name of a port, found \"x\""),
    ];
    for (name, text, want) in cases {
        let refused = live(&(TWO.to_owned() + text)).unwrap_err();
        assert!(refused.iter().any(|line| line.starts_with(want)), "{name}: {refused:#?}");
    }
    assert_eq!(live("").unwrap_err(), ["default: port: expected at least one port"]);
    let many = (0..65).fold(String::new(), |text, i| text + &format!("[[port]]\nname = 'p{i}'\n"));
    let refused = live(&many).unwrap_err();
    assert_eq!(refused, ["f:129:1: port: expected at most 64 ports, found 65"]);
}

/// Live ports pass whole frames: cut-through is refused, unless the configuration of a model is to be taken as it is.
#[test]
fn cut_through_is_for_virtual_time() {
    let text = "[switch]\nforwarding_mode = 'cut-through'\nwire_overhead = false\n\
        t_ingress_ns = 150\nt_crossbar_ns = 30\n";
    let seen = |text: &str, timing| {
        let seen = resolve(&(text.to_owned() + TWO), timing).ok()?.run.in_virtual_time;
        Some((seen.cut_through, seen.wire_overhead, seen.fixed_latency.as_ps()))
    };
    let allowed = text.replace("wire", "allow_store_and_forward = true\nwire");
    assert_eq!(seen(text, Timing::Virtual), Some((true, false, 180_000)));
    assert_eq!(seen(text, Timing::Live), None);
    assert_eq!(seen(&allowed, Timing::Live), Some((false, false, 180_000)));
    assert_eq!(seen(&allowed, Timing::Virtual), Some((true, false, 180_000)));
    assert_eq!(seen("", Timing::Virtual), Some((false, true, 500_000)));
}

#[test]
fn a_pause_before_the_first_mark_is_warned_about() {
    let text = "[buffer]\ndt_alpha = 0.125\n".to_owned() + TWO;
    let config = live(&text).unwrap();
    assert_eq!(config.warnings.len(), 2, "one for each lossless priority");
    let text = config.warnings[0].to_string();
    assert!(
        text.starts_with("f:2:1: ecn.ecn_threshold_low: an input that fills 1 outputs"),
        "{text}"
    );
}

#[test]
fn sixty_four_ports_need_no_settings() {
    let text = (0..64).fold(String::new(), |text, i| text + &format!("[[port]]\nname = 'p{i}'\n"));
    for timing in [Timing::Live, Timing::Virtual] {
        let config = resolve(&text, timing).unwrap();
        assert_eq!(config.switch.ports.len(), 64);
    }
}

/// By default no port can fill the FDB for the others; a value that is set counts as it is.
#[test]
fn a_port_learns_a_fair_share_by_default() {
    #[rustfmt::skip] // columns: settings, what each of two ports learns
    let cases = [
        ("", [32_768, 32_768]),
        ("[fdb]\ncapacity = 100\n", [50, 50]),
        ("[fdb]\ncapacity = 100\n[port_defaults]\nmax_learned = 100\n", [100, 100]),
    ];
    for (settings, want) in cases {
        let switch = live(&(settings.to_owned() + TWO)).unwrap().switch;
        assert_eq!([0, 1].map(|port| switch.ports[port].learned_max), want, "{settings}");
    }
}

#[test]
fn entries_name_ports_and_lags() {
    let text = TWO.to_owned()
        + "[[port]]\nname = 'p2'\n[[lag]]\nname = 'l'\nports = ['p2', 'p1']\n\
           [[static_entry]]\naddr = 'id:0001'\nport = 'l'\n\
           [[static_entry]]\naddr = 'id:0002'\nports = ['l', 'p0']\n\
           [[static_entry]]\naddr = 'id:0003'\nport = 'p1'\n";
    let switch = live(&text).unwrap().switch;
    assert_eq!((switch.lags.len(), switch.lags[0].ports.bits()), (1, 0b110));
    let entries = switch.forward.static_entries.iter();
    let entries: Vec<_> = entries.map(|e| (e.port.get(), e.spread.bits())).collect();
    assert_eq!(entries, [(1, 0), (0, 0b11), (1, 0)]);
}

#[test]
fn changes_that_need_a_restart_are_named() {
    let old = live(TWO).unwrap();
    let new = live(&("[switch]\nseed = 2\n[buffer]\ndt_alpha = 2\n".to_owned() + TWO)).unwrap();
    let named: Vec<_> = new.restart_needed(&old).iter().map(ToString::to_string).collect();
    assert_eq!(named, ["f:2:1: switch.seed: can only change with a restart"]);
    assert!(old.restart_needed(&old).is_empty());
    let more = live(&(TWO.to_owned() + "[[port]]\nname = 'p2'\n")).unwrap();
    assert!(!more.restart_needed(&old).is_empty(), "another port");
    assert!(!old.restart_needed(&more).is_empty(), "one port less");
}

const UUID: &str = "5ed8a1c0-0000-4000-8000-000000000001";

/// `[fabric]` with a UUID and `more`, then ports of each role.
fn fabric(more: &str) -> String {
    format!(
        "[fabric]\nuuid = '{UUID}'\n{more}\n[[port]]\nname = 'h'\nrole = 'usp'\n[[port]]\nname = 'd'\nrole = 'dsp'\n\
         pids = 4\ntlp = 'non-flit'\nmax_payload = 256\n[[port]]\nname = 'f'\nrole = 'fport'\n[[port]]\nname = 'e'\n"
    )
}

#[test]
fn ports_with_roles_make_a_switch_of_tlps_with_an_agent() {
    use weft_dataplane::config::{PortRole, TlpConfig, TlpLink};
    use weft_pbr_switch::{PortConfig, Role, VcsConfig};
    let text = fabric("cci = '/run/x/cci.sock'\nfast = 64\nthreads = 3\n")
        + "[[vcs]]\nusp = 'h'\nvppbs = 3\n[[vcs]]\ngae = false\n";
    let config = live(&text).unwrap();
    let roles: Vec<_> = config.switch.ports.iter().map(|port| port.role).collect();
    let link = TlpLink::default();
    let old = TlpLink { mode: weft_parsers::tlp::Mode::NonFlit, payload_max: 256 };
    let want = [
        PortRole::Usp(link),
        PortRole::Dsp(old),
        PortRole::Fport(link),
        PortRole::L2,
        PortRole::Cpu,
    ];
    assert_eq!(roles, want);
    let agent = config.run.ports.last().unwrap();
    assert_eq!(
        (config.run.ports.len(), agent.kind, agent.name.as_str()),
        (5, DeviceKind::Pipe, "agent")
    );
    let fabric = config.fabric.unwrap();
    assert_eq!(fabric.cpu_port, PortId::new(4).unwrap());
    let port = |at, role, pids| PortConfig { port: PortId::new(at).unwrap(), role, pids };
    assert_eq!(
        fabric.switch.ports,
        [port(0, Role::Usp, 1), port(1, Role::Dsp, 4), port(2, Role::Fabric, 1)]
    );
    let vcses = [
        VcsConfig { usp: PortId::new(0), vppbs: 3, gae: true },
        VcsConfig { usp: None, vppbs: 4, gae: false },
    ];
    assert_eq!(fabric.switch.vcses, vcses);
    assert_eq!(
        (fabric.switch.sizes.fast, fabric.switch.sizes.ldst, fabric.switch.threads),
        (64, 4_096, 3)
    );
    assert_eq!(fabric.switch.uuid[..4], [0x5E, 0xD8, 0xA1, 0xC0]);
    assert_eq!(fabric.switch.identity.serial, 1);
    assert_eq!(
        fabric.cci,
        Some(CciConfig { place: Listen::Unix("/run/x/cci.sock".into()), guard: CciGuard::OwnUser })
    );
    // The defaults of the table are those of the dataplane, for either number of priorities.
    for pris in [4, 8] {
        let text = format!("[switch]\nnum_priorities = {pris}\n") + &super::tests::fabric("");
        let (got, want) = (live(&text).unwrap().switch.tlp, TlpConfig::for_pris(pris));
        assert_eq!((got.tc_to_pri, got.oui), (want.tc_to_pri, want.oui));
        assert_eq!((got.uio_req_pri, got.uio_cpl_pri), (want.uio_req_pri, want.uio_cpl_pri));
    }
    let plain = live(TWO).unwrap();
    assert!(plain.fabric.is_none() && plain.run.ports.len() == 2);
}

#[test]
fn managers_connect_in_one_of_three_ways() {
    let of = |more: &str| live(&fabric(more)).unwrap();
    let tls = of("cci = '0.0.0.0:4000'\ncci_ca = 'a'\ncci_cert = 'c'\ncci_key = 'k'\n");
    let cci = tls.fabric.unwrap().cci.unwrap();
    let files = TlsFiles { ca: "a".into(), cert: "c".into(), key: "k".into() };
    assert_eq!((cci.guard, tls.warnings.len()), (CciGuard::Tls(files), 0));
    let open = of("cci = '4000'\ncci_insecure = true\n");
    assert_eq!(open.fabric.unwrap().cci.unwrap().guard, CciGuard::Insecure);
    let warning = open.warnings[0].to_string();
    assert!(warning.contains("whoever reaches cci may do all"), "{warning}");
    assert!(of("").fabric.unwrap().cci.is_none());
}

#[test]
fn managers_of_others_connect_at_loopback() {
    let of = |more: &str| live(&fabric(more)).unwrap();
    let near = of("cci_mctp = '2508'\n");
    let place = MctpPlace::Tcp("127.0.0.1:2508".parse().unwrap());
    let want = MctpConfig { place, owner: CciOwner::Claim };
    assert_eq!((near.fabric.unwrap().mctp, near.warnings.len()), (Some(want), 0));
    let first = of("cci_mctp = '[::1]:2508'\ncci_owner = 'first'\n").fabric.unwrap();
    assert_eq!(first.mctp.unwrap().owner, CciOwner::First);
    assert!(first.cci.is_none(), "each listener is by itself");
    let far = of("cci_mctp = '0.0.0.0:2508'\ncci_mctp_insecure = true\n");
    let warning = far.warnings[0].to_string();
    assert!(warning.contains("whoever reaches cci_mctp may command the switch"), "{warning}");
    let bus = of("cci_mctp = 'mctp:3'\ncci_mctp_insecure = true\n");
    assert_eq!(bus.warnings.len(), 1, "whoever is on the bus");
    assert_eq!(bus.fabric.unwrap().mctp.unwrap().place, MctpPlace::Kernel(Some(3)));
    assert!(of("").fabric.unwrap().mctp.is_none());
}

#[test]
fn what_is_wrong_with_roles_is_named() {
    let good = fabric("");
    let no_uuid = good.replace(&format!("uuid = '{UUID}'"), "");
    #[rustfmt::skip] // columns: name, text, wanted part
    let cases = [
        ("no uuid", no_uuid, "fabric.uuid: expected a UUID for a switch whose ports have roles, found none"),
        ("bad uuid", good.replace(UUID, "5ed8"), "fabric.uuid: expected a UUID"),
        ("role", good.replace("'usp'", "'host'"), "port.role: expected \"l2\", \"usp\", \"dsp\" or \"fport\", found \"host\""),
        ("vcs role", good.clone() + "[[vcs]]\nusp = 'd'\n", "vcs.usp: expected a port of role usp, found \"d\" of role dsp"),
        ("vcs l2", good.clone() + "[[vcs]]\nusp = 'e'\n", "found \"e\" of role l2"),
        ("vcs port", good.clone() + "[[vcs]]\nusp = 'x'\n", "vcs.usp: expected the name of a port, found \"x\""),
        ("vcs twice", good.clone() + "[[vcs]]\nusp = 'h'\n[[vcs]]\nusp = 'h'\n", "vcs.usp: expected each port once, found \"h\" here and at"),
        ("vcs alone", TWO.to_owned() + "[[vcs]]\n", "vcs: expected a port of role usp, dsp or fport"),
        ("name", good.replace("'e'", "'agent'"), "port.name: expected another name: \"agent\""),
        ("fport", good.replace("'fport'", "'fport'\ntlp = 'non-flit'"), "port.tlp: expected flit"),
        ("payload", good.replace("max_payload = 256", "max_payload = 2048"), "port.max_payload: expected a max_frame of at least 2144 bytes for 2048, found 1522"),
        ("payload of none", good.replace("= 256", "= 300"), "port.max_payload: expected 128, 256, 512"),
        ("priorities", fabric("uio_cpl_pri = 1\n"), "fabric.uio_cpl_pri: expected another priority than uio_req_pri, found 1 for both"),
        ("priority", fabric("tc_to_pri = [1,1,1,1,1,1,1,5]\n"), "fabric.tc_to_pri: expected priorities 0..=3"),
        ("table", fabric("fast = 48\n"), "fabric.fast: expected a power of two 1..=32768, found 48"),
        ("lag", good.clone() + "[[lag]]\nname = 'l'\nports = ['f', 'h']\n", "lag.ports: expected ports of role l2, found \"h\""),
        ("cci", fabric("cci = 'here'\n"), "fabric.cci: expected the path of a socket"),
        ("bare tcp", fabric("cci = '0.0.0.0:4000'\n"), "fabric.cci: expected the path of a Unix socket; or TCP with all of cci_ca, cci_cert and cci_key"),
        ("bare port", fabric("cci = '4000'\ncci_insecure = false\n"), "or TCP with cci_insecure = true, and whoever reaches it commands the switch"),
        ("half of tls", fabric("cci = '4000'\ncci_ca = 'a'\ncci_key = 'k'\n"), "fabric.cci: expected the path of a Unix socket; or TCP with all of"),
        ("both", fabric("cci = '4000'\ncci_insecure = true\ncci_ca = 'a'\ncci_cert = 'c'\ncci_key = 'k'\n"), "fabric.cci: expected either cci_insecure or cci_ca, cci_cert and cci_key, found both"),
        ("unix and insecure", fabric("cci = '/x/y'\ncci_insecure = true\n"), "fabric.cci: expected neither cci_insecure nor"),
        ("unix and tls", fabric("cci = '/x/y'\ncci_cert = 'c'\n"), "fabric.cci: expected neither cci_insecure nor"),
        ("public mctp", fabric("cci_mctp = '0.0.0.0:2508'\n"), "fabric.cci_mctp: expected an address of loopback"),
        ("private mctp", fabric("cci_mctp = '2508'\ncci_mctp_insecure = true\n"), "fabric.cci_mctp_insecure: expected an address other than loopback"),
        ("no mctp", fabric("cci_owner = 'first'\n"), "fabric.cci_owner: expected an address in cci_mctp beside it"),
        ("mctp of the kernel", fabric("cci_mctp = 'mctp:1'\n"), "fabric.cci_mctp: expected an address of loopback"),
        ("no mctp network", fabric("cci_mctp = 'mctp:0'\n"), "fabric.cci_mctp: expected"),
        ("no cci", fabric("cci_insecure = true\n"), "fabric.cci: expected a place where cci_insecure"),
    ];
    for (name, text, part) in cases {
        let refused = live(&text).map(|_| ()).unwrap_err();
        assert!(refused.iter().any(|line| line.contains(part)), "{name}: {refused:#?}");
    }
    let many: String = (0..64).fold(String::new(), |all, at| {
        all + &format!("[[port]]\nname = 'p{at}'\nrole = 'fport'\n")
    });
    let refused = live(&format!("[fabric]\nuuid = '{UUID}'\n{many}")).map(|_| ()).unwrap_err();
    assert!(
        refused[0].contains("expected at most 63 ports beside the agent's, found 64"),
        "{refused:?}"
    );
}

#[test]
fn roles_and_virtual_switches_take_a_restart() {
    let old = live(&(fabric("") + "[[vcs]]\nusp = 'h'\n")).unwrap();
    let lines = |text: &str| -> Vec<String> {
        live(text).unwrap().restart_needed(&old).iter().map(ToString::to_string).collect()
    };
    assert_eq!(lines(&(fabric("tc_to_pri = [1,1,1,1,1,1,1,2]") + "[[vcs]]\nusp = 'h'\n")), [""; 0]);
    let role = lines(
        &(fabric("").replace("'dsp'", "'fport'").replace("'non-flit'", "'flit'")
            + "[[vcs]]\nusp = 'h'\n"),
    );
    assert!(
        role.iter().any(|line| line.contains("port.role: can only change with a restart")),
        "{role:?}"
    );
    let vcs = lines(&(fabric("") + "[[vcs]]\nusp = 'h'\n[[vcs]]\n"));
    assert_eq!(vcs, ["derived: fabric: roles and virtual switches can only change with a restart"]);
}
