//! Memory of a host and of a switch in virtual time, counted by the allocator.
//!
//! Networks and endpoints are built and used between two readings of the bytes that are allocated.
//!
//! Source: docs/spec/model.md §4 (one FIFO of 512 slots an endpoint).
#![expect(unsafe_code, reason = "an allocator that counts")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails that way, and says what it found"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::port::wire::{Wire, WireConfig, WireEnd, cable};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::frames::{Kind, Station};
use weft_hosts::rclink::endpoint::{Endpoint, EndpointSpec, Message, QPS};
use weft_sim::network::{Network, NetworkSpec};
use weft_sim::scenario::flow::Flow;
use weft_sim::setup::Setup;
use weft_sim::switch::{Switch, SwitchTiming};
use weft_sim::topology::{NodeKind, Topology};

thread_local! {
    /// Bytes that this thread has allocated and not given back.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, whose bytes are counted by thread.
struct Counting;

fn count(bytes: usize, sign: isize) {
    let bytes = isize::try_from(bytes).unwrap_or(isize::MAX) * sign;
    // A thread that ends frees memory after its counter is gone.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above; pages that nobody writes stay unreal.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: `at` came from `System.alloc` with this layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> isize {
    LIVE.get()
}

/// Bytes that `make` allocates and that its result keeps.
fn kept<T>(make: impl FnOnce() -> T) -> (T, isize) {
    let before = live();
    let made = make();
    (made, live() - before)
}

const RATE: LinkRate = LinkRate::gbps(400);

fn spec(topology: Topology) -> NetworkSpec {
    NetworkSpec {
        topology,
        setup: Setup { rate: RATE, buffer_bytes: 16 << 20, ..Setup::new(1, 4) },
        around: SwitchTiming { fronts: true, ..SwitchTiming::default() },
        kind: Kind::Standard,
        endpoint_delay: Span::from_ns(60),
    }
}

/// A host of two that a cable connects takes at most 100 KB, cable included, before anything has moved and after.
#[test]
fn a_host_takes_at_most_100_kb() {
    let mut topology = Topology::default();
    let [a, b] = ["a", "b"].map(|name| topology.add(name, NodeKind::Host).unwrap());
    topology.link(a, b).unwrap();
    let spec = spec(topology);
    let flows = vec![Flow::new(0, 1, 1_344 * 20_000), Flow::new(1, 0, 1_344 * 20_000)];
    let (mut network, built) = kept(|| Network::new(&spec, flows, |_| (), |_| ()).unwrap());
    let ((), used) = kept(|| network.run(Instant::from_ns(1_000_000), 1).unwrap());
    assert!(network.is_idle(), "all has moved");
    println!("a host: {} bytes, {} more in use", built / 2, used / 2);
    assert!(built <= 200_000, "{built} bytes for two");
    assert!(built + used <= 200_000, "{built} and {used} bytes for two");
}

/// An endpoint at its end of a cable; the test has the other end.
struct End {
    endpoint: Endpoint,
    wire: Wire,
    far: WireEnd,
}

impl End {
    fn new(number: u16, peers: &Arc<[Station]>) -> Self {
        let (near, far) = cable(128);
        let spec = EndpointSpec::new(number, peers.clone(), Kind::Standard);
        let wire = Wire::new(WireConfig::new("", RATE), 1_518, near);
        Self { endpoint: Endpoint::new(spec).unwrap(), wire, far }
    }

    /// Passes on the frames that `self` has sent.
    fn pass(&mut self, to: &mut Self, now: Instant) {
        while let Some(frame) = self.far.receive(now) {
            assert!(to.far.send_front(now, Flaw::None, frame.bytes(), frame.len()));
        }
    }
}

/// One of 1,024 endpoints that has sent to each of the others and taken from each, with all of its slots in use, takes
/// at most 100 KB, its half of a cable included; memory that all share is not counted.
#[test]
fn an_endpoint_that_has_met_all_others_takes_at_most_100_kb() {
    let peers: Arc<[Station]> = (0..QPS).map(Station::numbered).collect();
    let (_, cable) = kept(|| cable(128));
    let (mut end, built) = kept(|| End::new(0, &peers));
    let mut now = Instant::ZERO;
    let ((), met) = kept(|| {
        for number in 1..QPS {
            let mut other = End::new(number, &peers);
            let message = |to| Message { id: u32::from(number), to, bytes: 1_344 * 3 };
            end.endpoint.send(message(number)).unwrap();
            other.endpoint.send(message(0)).unwrap();
            for _ in 0..40 {
                now += Span::from_ns(40);
                end.endpoint.poll_wire(now, &mut end.wire, true);
                other.endpoint.poll_wire(now, &mut other.wire, true);
                end.pass(&mut other, now);
                other.pass(&mut end, now);
            }
            assert_eq!(end.endpoint.drain_events().len(), 2, "one is sent, and one has come");
            assert!(end.endpoint.is_idle() && other.endpoint.is_idle(), "{number}");
        }
        let message = Message { id: 0, to: 1, bytes: 1_344 * 600 };
        end.endpoint.send(message).unwrap();
        end.endpoint.poll_wire(now, &mut end.wire, true);
    });
    let stats = end.endpoint.stats();
    assert_eq!((end.endpoint.peers_met(), stats.rx_frames), (1_023, 3 * 1_023));
    let built = built - cable / 2;
    println!("an endpoint: {built} bytes, {met} more when it has met 1,023 others");
    assert!(built + met <= 100_000, "{built} and {met} bytes");
    let ((), open) = kept(|| {
        for to in 1..QPS {
            let message = Message { id: u32::from(to), to, bytes: 1_344 * 100 };
            end.endpoint.send(message).unwrap();
        }
    });
    println!("{open} bytes more with a message to each of them under way");
    assert!(open <= 50_000, "{open} bytes");
}

/// Bytes of this process: of address space, and in real memory.
fn size_and_resident() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let mut pages = text.split(' ').map(|pages| pages.parse::<u64>().unwrap());
    [(); 2].map(|()| pages.next().unwrap() * 4_096)
}

/// A switch of 16 ports with the buffer of a real one takes memory as frames come, and address space, too.
#[test]
fn a_switch_of_16_ports_takes_little_before_frames_come() {
    let make = || {
        let setup = Setup { rate: RATE, buffer_bytes: 32 << 20, ..Setup::new(16, 4) };
        let around = SwitchTiming { fronts: true, ..SwitchTiming::default() };
        Switch::on(setup.config(), &around, (0..16).map(|_| cable(1).0).collect()).unwrap()
    };
    let first = make(); // and what all need once
    let before = size_and_resident();
    let switches: Vec<Switch> = (0..32).map(|_| make()).collect();
    let [size, resident] = size_and_resident();
    let each = [size - before[0], resident - before[1]].map(|bytes| bytes / switches.len() as u64);
    println!(
        "a switch of 16 ports: {} bytes of address space, {} in real memory",
        each[0], each[1]
    );
    // Measured 2.1 and 0.5 MB. A pool for the whole buffer had 44 MB of address space; counters and caches of 64 ports, and
    // the state of each chunk of the pool, 2.6 MB of memory.
    assert!(each[0] <= 4_000_000 && each[1] <= 650_000, "{each:?} bytes");
    assert!(
        each[1] > 100_000 && first.steps() == 0,
        "{each:?} bytes: memory that nobody has touched is not counted"
    );
}
