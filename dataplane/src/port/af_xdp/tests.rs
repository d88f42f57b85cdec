use super::transmit::put_tx_metadata;
use super::umem::TX_METADATA_LEN;
use super::*;
use crate::pool::{PartialCsum, Pool};
use crate::time::LinkRate;

/// Change of the configuration that a case makes.
type Change = fn(&mut AfXdpConfig);

fn config() -> AfXdpConfig {
    AfXdpConfig {
        device: "no-such-if0".to_owned(),
        rate: LinkRate::gbps(1),
        frame_len_max: 1_522,
        tx_ring_frames: 64,
        rx_ring_frames: 512,
        queues: None,
        attach: AttachTo::Native,
        zero_copy: true,
        busy_poll_us: 0,
        joins: false,
        fixed_udp_ports: [0; 2],
    }
}

#[test]
#[cfg(not(miri))]
fn settings_out_of_range_are_refused_before_anything_is_tried() {
    let umem = Umem::new(Pool::map_umem(16, 1_522).unwrap());
    let longest = umem.frame_len_max().unwrap();
    #[rustfmt::skip] // columns: what is changed, part of the message
    let cases: [(Change, &str); 9] = [
        (|c| c.frame_len_max = 63,        "max_frame is 63"),
        (|c| c.frame_len_max = 1_857,     "max_frame is 1857"),
        (|c| c.tx_ring_frames = 0,        "tx_ring_frames is 0"),
        (|c| c.tx_ring_frames = 65,       "tx_ring_frames is 65"),
        (|c| c.rx_ring_frames = 63,       "rx_ring_frames is 63"),
        (|c| c.rx_ring_frames = 65_537,   "rx_ring_frames is 65537"),
        (|c| c.queues = Some(0),          "queues is 0"),
        (|c| c.queues = Some(65),         "queues is 65"),
        (|_| (),                          "find the interface"),
    ];
    assert_eq!(longest, 1_856);
    for (change, want) in cases {
        let mut config = config();
        change(&mut config);
        let opened = AfXdp::open(&config, &umem, Box::new(Builtin::new()));
        let error = opened.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
#[cfg(not(miri))]
fn a_pool_that_the_kernel_does_not_take_is_refused() {
    for pool in [Pool::in_memory(16, 1_800), Pool::map(16, 1_522), Pool::map_umem(16, 9_216)] {
        let umem = Umem::new(pool.unwrap());
        let opened = AfXdp::open(&config(), &umem, Box::new(Builtin::new()));
        let error = opened.err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("pool chunk is"), "{error}");
    }
}

#[test]
fn transmit_metadata_is_as_the_kernel_reads_it() {
    let mut metadata = [0xFF; TX_METADATA_LEN];
    put_tx_metadata(&mut metadata, PartialCsum { start: 34, offset: 16 });
    assert_eq!(metadata[..8], 2_u64.to_ne_bytes());
    assert_eq!(metadata[8..10], 34_u16.to_ne_bytes());
    assert_eq!(metadata[10..12], 16_u16.to_ne_bytes());
    assert_eq!(metadata[12..], [0; TX_METADATA_LEN - 12]);
}
