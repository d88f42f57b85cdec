//! TYPE2 and the receive buffer with the watermark of multicast: eight to one, slowly received.
//!
//! Source: docs/spec/model.md §4 "Receive and PFC".

use weft_hosts::rclink::endpoint::Transport;
use weft_parsers::ether_type;
use weft_sim::scenario::fault::Fault;

use super::*;

/// Bytes of a frame of either type.
const LEN: u64 = 1_366;

fn type2(spec: &mut EndpointSpec) {
    spec.frame.ether_type = ether_type::MAC_TYPE2;
    spec.transport = Transport::UNRELIABLE;
}

/// XOFF is at 8 frames and a round trip, for requests and responses at 32 and a round trip; the frames after it are as
/// many.
#[test]
fn type2_has_the_watermark_of_multicast() {
    let most = |endpoint: fn(&mut EndpointSpec)| {
        let mut bench = Bench::new(100, Kind::Gen1);
        bench.endpoint = endpoint;
        let longest = bench.setup.frame_len_max as u64;
        let pattern = Pattern::Incast { from: Vec::new(), to: 0, bytes: LEN * 400 };
        let mut scenario = bench.scenario(Topology::single(9).unwrap(), vec![workload(pattern)]);
        scenario.faults = vec![Fault::SlowReceiver { host: 0, drain: LinkRate::gbps(20) }];
        let results = run(&scenario);
        assert!(results.hosts[0].counters["pfc_tx"] > 0);
        assert_eq!(results.hosts[0].counters["overruns"], 0);
        (results.hosts[0].receive_buffer_max_bytes, longest)
    };
    let ((of_type1, longest), (of_type2, _)) = (most(|_| ()), most(type2));
    let (had, want) = (of_type1 - of_type2, (32 - 8) * longest);
    assert!(had.abs_diff(want) <= 2 * LEN, "{of_type1} and {of_type2}: {want} apart");
    assert!(of_type2 > 8 * longest, "{of_type2}");
}
