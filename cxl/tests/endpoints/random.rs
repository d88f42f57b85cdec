//! Any TLP at any endpoint: nothing panics, and what came in is in one count each.
//!
//! Random bytes, and TLPs of every kind with bytes changed, as frames from a bare port.
//!
//! Units: bytes, frames.
//! Source: docs/spec/wire-formats.md §3.

use crate::rig::{Net, Place, RAM, device_config, function, host_config};
use weft_base::rng::Rng;
use weft_cxl::cxl_device::HdmConfig;
use weft_cxl::cxl_host::Export;
use weft_cxl::ln::{LineSize, LncSpec, Regions};
use weft_cxl::requester::Operation;
use weft_dataplane::batch::Batch;
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::Pipe;
use weft_dataplane::time::Span;
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::Mode;

const ROUNDS: u64 = 30_000;

/// First bytes of headers, with how many double words of payload they announce.
const KINDS: [(u8, u8); 22] = [
    (0x20, 16),
    (0x60, 4),
    (0x00, 2),
    (0x40, 1),
    (0x03, 2),
    (0x02, 1),
    (0x42, 1),
    (0x04, 1),
    (0x44, 1),
    (0x05, 1),
    (0x45, 1),
    (0x0A, 0),
    (0x4A, 4),
    (0x30, 0),
    (0x73, 2),
    (0x72, 2),
    (0x33, 0),
    (0x35, 0),
    (0x22, 16),
    (0x61, 8),
    (0x4C, 1),
    (0x6E, 4),
];

/// Bytes that are a TLP, nearly one, or anything.
fn bytes(rng: &mut Rng, mode: Mode) -> Vec<u8> {
    let mut any = |count: u64| -> Vec<u8> {
        (0..rng.below(count + 1)).map(|_| rng.next_u64().to_le_bytes()[0]).collect()
    };
    let mut tlp = any(120);
    if rng.chance(1, 8) {
        return tlp;
    }
    let (first, dws) = KINDS[usize::try_from(rng.below(KINDS.len() as u64)).unwrap()];
    tlp.resize(16 + usize::from(dws) * 4 + 16, 0);
    let near = [RAM, 0x40_0000_0000, 0x8000_0000, 0xFEE0_0000, 0x1000];
    let addr = near[usize::try_from(rng.below(5)).unwrap()] + rng.below(0x200) / 4 * 4;
    tlp[..8].copy_from_slice(&[first, 0, 0, dws, 1, 0, 0, 0xFF]);
    if dws == 1 {
        tlp[7] = 0x0F;
    }
    if mode == Mode::Flit {
        tlp[6] = 0;
    } else if rng.chance(1, 2) {
        tlp[1] = 2; // LN
    }
    tlp[8..16].copy_from_slice(&addr.to_be_bytes());
    if rng.chance(1, 2) {
        tlp[8..12].copy_from_slice(&[1, 0, 0, (rng.below(64) * 4).to_le_bytes()[0]]);
    }
    if mode == Mode::Flit && matches!(first, 0x02 | 0x42 | 0x04 | 0x44 | 0x05 | 0x45) {
        tlp[1] = 1; // OHC-A, with the byte enables
        tlp[12..16].copy_from_slice(&[0, 0, 0, 0xF]);
    }
    for _ in 0..rng.below(3) {
        let at = usize::try_from(rng.below(20)).unwrap();
        tlp[at] ^= 1 << rng.below(8);
    }
    if mode == Mode::Flit && rng.chance(1, 4) {
        tlp.splice(0..0, [0x8E, 0x0A, 0x10, 0]);
    }
    tlp
}

/// Sends a frame, and throws away what comes back.
fn poke(net: &mut Net, port: &mut Pipe, mode: Mode, tlp: &[u8]) {
    let protocol = if mode == Mode::Flit { 2 } else { 3 };
    let head = [0x88, 0xB7, 0x02, 0x57, 0x46, 0x00, protocol, 0x10];
    let frame = [&[2; 12][..], &head, tlp].concat();
    let desc = net.bufs.alloc_from(&frame).unwrap();
    let mut batch: Batch = core::iter::once(desc).collect();
    assert_eq!(port.tx(net.now, &mut net.bufs, &mut batch), 1);
    net.now += Span::from_ns(1);
    net.step();
    net.step();
    loop {
        let mut batch = Batch::new();
        if port.rx(net.now, &mut net.bufs, &mut batch) == 0 {
            break;
        }
        for desc in batch.drain(..) {
            net.bufs.free(desc);
        }
    }
}

#[test]
fn a_host_takes_anything() {
    for mode in [Mode::NonFlit, Mode::Flit] {
        let mut net = Net::new();
        let mut config = host_config(mode);
        config.gim = true;
        let mut regions = Regions::new();
        regions.add(Hpa(RAM), 4_096).unwrap();
        config.lnc = Some(LncSpec {
            line: LineSize::B64,
            lines_max: 4,
            watchers_max: 1,
            translated: false,
            regions,
            broadcast_gap: Span::ZERO,
            pending_max: 4,
        });
        net.host(config);
        let (mut port, far) = net.pipe();
        net.hosts[0].1 = Some(far);
        let mut rng = Rng::new(0x4057);
        let export = Export { base: Hpa(RAM), len: 1 << 16, local: RAM };
        for round in 0..ROUNDS {
            if round % 64 == 0 {
                net.hosts[0].0.read(Hpa(1 << 38), 64); // some tags are under way
            }
            let tlp = bytes(&mut rng, mode);
            poke(&mut net, &mut port, mode, &tlp);
            net.step_with(&[&export]);
            while net.hosts[0].0.next_event().is_some() {}
        }
        let (counts, requests, end) = net.hosts[0].0.counts();
        assert_eq!(end.rx + end.foreign + end.malformed, ROUNDS, "{mode:?}");
        let came = counts.tlps.requests
            + counts.tlps.completions
            + counts.tlps.messages
            + counts.tlps.other;
        assert_eq!(came, end.rx, "{mode:?}");
        let judged = counts.tlps.served
            + counts.tlps.unsupported
            + counts.tlps.aborted
            + counts.tlps.poisoned;
        assert_eq!(judged, counts.tlps.requests, "{mode:?}");
        assert_eq!(requests.completions + requests.unexpected, counts.tlps.completions, "{mode:?}");
        let ended = requests.answered + requests.timeouts + requests.given_up;
        assert!(requests.sent - ended <= 64);
        assert!(counts.tlps.served > ROUNDS / 100 && end.malformed > ROUNDS / 100, "{counts:?}");
        assert_eq!((net.used(), counts.tlps.unsent), (0, 0), "{mode:?}");
    }
}

#[test]
fn a_device_takes_anything() {
    for mode in [Mode::NonFlit, Mode::Flit] {
        let mut net = Net::new();
        let mut functions = vec![function(1), function(2)];
        functions[0].hdm = Some(HdmConfig::at(Hpa(1 << 40), 1 << 28));
        functions[1].gim = Some((Hpa(RAM), 1 << 16));
        net.device(device_config(mode, functions));
        let (mut port, far) = net.pipe();
        net.devices[0].1 = Some(far);
        let mut rng = Rng::new(0x00DE_71CE);
        for round in 0..ROUNDS {
            if round % 64 == 0 {
                let _ = net.devices[0].0.submit(0, Operation::Read { addr: Hpa(RAM), len: 64 });
            }
            let tlp = bytes(&mut rng, mode);
            poke(&mut net, &mut port, mode, &tlp);
            while net.devices[0].0.next_event().is_some() {}
        }
        let (counts, _, end) = net.devices[0].0.counts();
        assert_eq!(end.rx + end.foreign + end.malformed, ROUNDS, "{mode:?}");
        let came = counts.tlps.requests
            + counts.tlps.completions
            + counts.tlps.messages
            + counts.tlps.other;
        assert_eq!(came, end.rx, "{mode:?}");
        let judged = counts.tlps.served
            + counts.tlps.unsupported
            + counts.tlps.aborted
            + counts.tlps.poisoned;
        let vdms = judged - counts.tlps.requests; // messages that are unsupported are no requests
        assert!(vdms <= counts.tlps.messages, "{counts:?}");
        assert!(counts.tlps.served > ROUNDS / 100, "{counts:?}");
        assert_eq!((net.used(), counts.tlps.unsent), (0, 0), "{mode:?}");
    }
}

#[test]
fn a_switch_takes_anything_from_both_sides() {
    for mode in [Mode::NonFlit, Mode::Flit] {
        let other = if mode == Mode::Flit { Mode::NonFlit } else { Mode::Flit };
        let mut net = Net::new();
        let host = net.host(host_config(mode));
        let switch = net.switch(&[mode, mode, other], true);
        net.join(host, Place::Switch(switch, 0));
        let device = net.device(device_config(mode, vec![function(1)]));
        net.join(device, Place::Switch(switch, 1));
        let (mut below, far) = net.pipe();
        net.switches[0].1[2] = Some(far);
        net.enumerate(0);
        let mut rng = Rng::new(0x0058_17C4);
        for _ in 0..ROUNDS {
            let tlp = bytes(&mut rng, other);
            poke(&mut net, &mut below, other, &tlp);
        }
        // from above: the host's cable is put into a bare port
        let (mut above, far) = net.pipe();
        net.switches[0].1[0] = Some(far);
        for _ in 0..ROUNDS {
            let tlp = bytes(&mut rng, mode);
            poke(&mut net, &mut above, mode, &tlp);
            net.switches[0].0.take_events();
        }
        let counts = net.switches[0].0.counts();
        let judged = [counts.passed, counts.own, counts.ended, counts.refused, counts.dropped];
        let sum = judged.iter().sum::<u64>() + counts.no_form + counts.other;
        assert_eq!(counts.came, sum, "{counts:?}");
        let rx: u64 = net.switches[0].0.end_counts().iter().map(|end| end.rx).sum();
        assert_eq!(counts.came, rx);
        assert!(judged.iter().all(|&count| count > 0), "{counts:?}");
        net.steps(4);
    }
}
