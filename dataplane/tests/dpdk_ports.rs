//! DPDK ports on virtual devices, driven by hand with a virtual clock, without huge pages.
//!
//! `net_null` makes and forgets frames, `net_ring` gives back what it was sent, `net_pcap`
//! reads and writes files. Every test ends with as many chunks in use as it began with: none.
//!
//! Units: bytes, frames.
//! Source: docs/spec/pipeline.md §11; DPDK 22.11 `doc/guides/nics`.
#![expect(unsafe_code, reason = "an allocator that counts")]
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};

use weft_base::wait::{LONG, until};
use weft_dataplane::batch::{BURST, Batch};
use weft_dataplane::desc::{Desc, Flag};
use weft_dataplane::pool::{Bufs, PartialCsum, Pool, Sharing};
use weft_dataplane::port::capture::{CaptureFormat, CaptureReader, CaptureWriter, Record};
use weft_dataplane::port::dpdk::{Dpdk, DpdkConfig, EalError, start_eal};
use weft_dataplane::port::{Port, PortCounters, PortOpenError};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};

thread_local! {
    /// Allocations of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counted by thread.
struct Counting;

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System.alloc` with this layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The same for all tests, as a process starts DPDK once.
fn args() -> Vec<String> {
    ["--no-huge", "-m", "128", "--no-shconf", "--no-telemetry"].map(str::to_owned).into()
}

fn config(device: &str) -> DpdkConfig {
    DpdkConfig {
        device: device.to_owned(),
        rate: LinkRate::gbps(10),
        frame_len_max: 1_522,
        queues: 1,
        rx_descriptors: 256,
        tx_descriptors: 256,
        fixed_udp_ports: [0; 2],
    }
}

fn try_open(device: &str) -> Result<Dpdk, PortOpenError> {
    start_eal(&args()).unwrap();
    Dpdk::open(&config(device))
}

/// A port, the chunks that it works with, and the time there.
struct Rig {
    port: Dpdk,
    bufs: Bufs,
    now: Instant,
}

impl Rig {
    fn new(device: &str, chunks: usize) -> Self {
        Self::with(device, Bufs::new(Pool::map(chunks, 1_522).unwrap(), usize::MAX, 0))
    }

    fn with(device: &str, mut bufs: Bufs) -> Self {
        let mut port = try_open(device).unwrap();
        port.start(&mut bufs).unwrap();
        Self { port, bufs, now: Instant::ZERO }
    }

    fn rx(&mut self) -> Batch {
        let mut batch = Batch::new();
        let got = self.port.rx(self.now, &mut self.bufs, &mut batch);
        assert_eq!(got, batch.len());
        batch
    }

    /// Sends what the port takes; the rest is left in `batch`.
    fn tx(&mut self, batch: &mut Batch) -> usize {
        let taken = self.port.tx(self.now, &mut self.bufs, batch);
        self.service();
        taken
    }

    fn service(&mut self) {
        self.now += Span::from_ms(1);
        self.port.service(self.now, &mut self.bufs).unwrap();
    }

    /// Lets 30 ms of the virtual clock pass, so that link state is looked at.
    fn settle(&mut self) {
        (0..30).for_each(|_| self.service());
    }

    fn send(&mut self, frame: &[u8]) {
        let mut batch = Batch::new();
        batch.push(self.bufs.alloc_from(frame).unwrap());
        assert_eq!(self.tx(&mut batch), 1);
    }

    /// The bytes of all frames that wait.
    fn take_all(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let batch = self.rx();
            if batch.is_empty() {
                return frames;
            }
            for desc in batch {
                frames.push(self.bufs.bytes(&desc).to_vec());
                self.bufs.free(desc);
            }
        }
    }

    fn free(&mut self, batch: Batch) {
        for desc in batch {
            self.bufs.free(desc);
        }
    }

    /// Closes the port; nothing of the pool may be left in use.
    fn end(mut self) {
        self.port.release(&mut self.bufs);
        drop(self.port);
        assert_eq!(self.bufs.used().get(), 0, "chunks in use at the end");
    }
}

/// A frame of `len` bytes whose contents depend on `seed`.
fn frame(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + seed * 31 + seed / 256) % 251).unwrap()).collect()
}

/// A capture that is gone at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("weft-dpdk-{}-{name}.pcap", std::process::id())))
    }

    fn of(name: &str, frames: &[Vec<u8>]) -> Self {
        let file = Self::new(name);
        let mut writer = CaptureWriter::create(&file.0, CaptureFormat::Pcap, 0).unwrap();
        for frame in frames {
            writer.write(0, frame, None).unwrap();
        }
        writer.finish().unwrap();
        file
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn read(&self) -> Vec<Vec<u8>> {
        let mut reader = CaptureReader::open(&self.0).unwrap();
        let (mut record, mut frames) = (Record::default(), Vec::new());
        while reader.read_into(&mut record).unwrap() {
            frames.push(record.data.clone());
        }
        frames
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn frames_of_a_null_device_come_and_go_without_an_allocation() {
    let mut rig = Rig::new("net_null_flow,size=60", 2_000);
    assert!(rig.port.link_up() && !rig.port.copies());
    assert_eq!(rig.port.driver(), "net_null");
    let mut frames = 0;
    let before = ALLOCATIONS.get();
    for _ in 0..10_000 {
        let mut batch = rig.rx();
        assert!(batch.iter().all(|desc| rig.bufs.bytes(desc).len() == 60));
        frames += rig.tx(&mut batch);
        assert!(batch.is_empty());
    }
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations over {frames} frames");
    assert_eq!(frames, 10_000 * BURST);
    assert_eq!(rig.port.counters(), PortCounters::default());
    rig.end();
}

#[test]
fn a_ring_gives_back_what_it_was_sent() {
    let mut rig = Rig::new("net_ring_back", 500);
    let lens = [14, 59, 60, 61, 63, 64, 65, 127, 128, 1_000, 1_514, 1_518, 1_522];
    for (seed, &len) in lens.iter().enumerate() {
        rig.send(&frame(len, seed));
    }
    let want: Vec<Vec<u8>> = lens
        .iter()
        .enumerate()
        .map(|(seed, &len)| {
            let mut bytes = frame(len, seed);
            bytes.resize(len.max(60), 0); // padded
            bytes
        })
        .collect();
    assert_eq!(rig.take_all(), want);
    // One that starts elsewhere, as after a tag was put in or taken out.
    for shift in [-4_isize, 4, 382] {
        let mut desc = rig.bufs.alloc_from(&frame(300, 1)).unwrap();
        let (chunk, start) = rig.bufs.chunk_mut(&mut desc).unwrap();
        let to = start.strict_add_signed(shift);
        chunk.copy_within(start..start + 300, to);
        rig.bufs.set_bounds(&mut desc, to, 300);
        let mut batch: Batch = [desc].into_iter().collect();
        assert_eq!(rig.tx(&mut batch), 1);
        assert_eq!(rig.take_all(), [frame(300, 1)], "{shift}");
    }
    rig.end();
}

#[test]
fn what_waits_in_a_ring_is_given_back_when_the_port_is_closed() {
    let mut rig = Rig::new("net_ring_full", 500);
    for seed in 0..300 {
        rig.send(&frame(100, seed));
    }
    assert_eq!(rig.bufs.used().get(), 300, "in the ring");
    rig.end();
    // The next port of its name takes the ring over, and finds it empty.
    let mut rig = Rig::new("net_ring_full", 500);
    assert_eq!(rig.take_all(), Vec::<Vec<u8>>::new());
    rig.send(&frame(100, 7));
    assert_eq!(rig.take_all(), [frame(100, 7)]);
    rig.end();
}

#[test]
fn a_full_ring_leaves_frames_with_the_caller() {
    let mut rig = Rig::new("net_ring_narrow", 2_000);
    let (mut sent, mut batch) = (0, Batch::new());
    while batch.is_empty() {
        for _ in 0..BURST {
            batch.push(rig.bufs.alloc_from(&frame(80, sent)).unwrap());
            sent += 1;
        }
        rig.port.tx(rig.now, &mut rig.bufs, &mut batch);
    }
    assert_eq!(rig.port.tx_room(rig.now), 0, "until the next service");
    let left = batch.len();
    assert!(batch.iter().all(|desc| rig.bufs.bytes(desc).len() == 80), "and they are whole");
    rig.service();
    assert_eq!(rig.port.tx_room(rig.now), BURST);
    let first = rig.rx();
    let got = first.len();
    rig.free(first);
    assert_eq!(rig.tx(&mut batch), left.min(got), "as many as there is room for again");
    rig.free(batch);
    assert_eq!(rig.take_all().len(), sent - got - left.saturating_sub(got));
    rig.end();
}

#[test]
fn copies_share_a_chunk_and_each_port_gives_back_its_own() {
    let bufs = Bufs::new(Pool::map(600, 1_522).unwrap(), usize::MAX, 0);
    let mut one = Rig::with("net_ring_copy1", bufs);
    let mut two = try_open("net_ring_copy2").unwrap();
    let mut sink = try_open("net_null_copies").unwrap();
    two.start(&mut one.bufs).unwrap();
    sink.start(&mut one.bufs).unwrap();
    for seed in 0..200 {
        let bytes = frame(200, seed);
        let mut desc = one.bufs.alloc_from(&bytes).unwrap();
        let copies = [one.bufs.share(&mut desc), one.bufs.share(&mut desc)];
        let mut batch: Batch = [desc].into_iter().collect();
        assert_eq!(one.port.tx(one.now, &mut one.bufs, &mut batch), 1);
        for (port, copy) in [&mut two, &mut sink].into_iter().zip(copies) {
            assert_eq!(one.bufs.bytes(&copy), bytes, "still there");
            let mut batch: Batch = [copy].into_iter().collect();
            assert_eq!(port.tx(one.now, &mut one.bufs, &mut batch), 1);
        }
        assert_eq!(one.bufs.used().get(), 1, "two copies of one chunk are in rings");
        assert_eq!(one.take_all(), std::slice::from_ref(&bytes));
        let mut batch = Batch::new();
        assert_eq!(two.rx(one.now, &mut one.bufs, &mut batch), 1);
        assert_eq!(one.bufs.bytes(&batch[0]), bytes);
        one.free(batch);
        assert_eq!(one.bufs.used().get(), 0);
    }
    two.release(&mut one.bufs);
    sink.release(&mut one.bufs);
    one.end();
}

#[test]
fn a_copy_that_is_not_taken_stays_a_copy() {
    let mut rig = Rig::new("net_ring_untaken", 3_000);
    let fill = |rig: &mut Rig| loop {
        let mut batch: Batch =
            (0..BURST).map(|_| rig.bufs.alloc_from(&frame(70, 0)).unwrap()).collect();
        rig.tx(&mut batch);
        if !batch.is_empty() {
            return rig.free(batch);
        }
    };
    fill(&mut rig);
    let waiting = rig.bufs.used().get();
    let mut desc = rig.bufs.alloc_from(&frame(90, 5)).unwrap();
    let copy = rig.bufs.share(&mut desc);
    let mut batch: Batch = [desc].into_iter().collect();
    for _ in 0..2_000 {
        // More often than there are carriers.
        assert_eq!(rig.tx(&mut batch), 0, "the ring is full");
    }
    assert_eq!(rig.bufs.bytes(&batch[0]), frame(90, 5));
    assert!(batch[0].has(Flag::Shared) && rig.bufs.bytes_mut(&mut batch[0]).is_none());
    rig.bufs.free(copy);
    assert_eq!(rig.bufs.used().get(), waiting + 1, "the other handle is still one");
    let all = rig.take_all();
    assert_eq!(all.len() as u64, waiting);
    assert_eq!(rig.tx(&mut batch), 1);
    assert_eq!(rig.take_all(), [frame(90, 5)]);
    rig.end();
}

#[test]
fn a_partial_checksum_is_completed() {
    let mut rig = Rig::new("net_ring_csum", 100);
    for shared in [false, true] {
        // The field holds the pseudo-header's sum; here it is 0 over bytes 40 to 60.
        let mut bytes = frame(60, 9);
        bytes[50..52].fill(0);
        let partial = PartialCsum { start: 40, offset: 10 };
        let mut desc = rig.bufs.alloc_from(&bytes).unwrap();
        rig.bufs.set_partial_csum(&mut desc, Some(partial));
        let copy = shared.then(|| rig.bufs.share(&mut desc));
        let mut batch: Batch = [desc].into_iter().collect();
        assert_eq!(rig.tx(&mut batch), 1);
        let got = rig.take_all();
        let words = got[0][40..].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum: u32 = words.sum();
        assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF, "shared {shared}");
        if let Some(copy) = copy {
            assert_eq!(rig.bufs.bytes(&copy), bytes, "the other copy is as it was");
            rig.bufs.free(copy);
        }
    }
    rig.end();
}

#[test]
fn a_capture_goes_through_unchanged() {
    let lens = [60, 64, 65, 200, 1_000, 1_514, 1_522];
    let frames: Vec<Vec<u8>> = (0..5_000).map(|i| frame(lens[i % lens.len()], i)).collect();
    let (input, output) = (File::of("in", &frames), File::new("out"));
    let (from, to) = (input.path().display(), output.path().display());
    let mut rig = Rig::new(&format!("net_pcap_thru,rx_pcap={from},tx_pcap={to}"), 600);
    let mut seen = 0;
    loop {
        let mut batch = rig.rx();
        if batch.is_empty() {
            break;
        }
        for desc in &batch {
            assert_eq!(rig.bufs.bytes(desc), frames[seen], "frame {seen}");
            let after = rig.bufs.head(desc).iter().skip(desc.len());
            assert!(after.copied().all(|byte| byte == 0), "frame {seen}: zeros after its end");
            seen += 1;
        }
        rig.tx(&mut batch);
        assert!(batch.is_empty());
    }
    rig.end();
    assert_eq!(output.read(), frames);
}

#[test]
fn a_frame_that_no_chunk_holds_is_dropped_and_counted() {
    let frames = [frame(100, 1), frame(4_000, 2), frame(101, 3)];
    let input = File::of("long", &frames);
    let mut rig = Rig::new(&format!("net_pcap_long,rx_pcap={}", input.path().display()), 100);
    assert_eq!(rig.take_all(), [frames[0].clone(), frames[2].clone()]);
    let counters = rig.port.counters();
    assert_eq!(counters.rx_dropped[0], (Some(DropReason::TooLong), 1));
    rig.end();
}

#[test]
fn a_starved_port_goes_on_when_there_are_chunks_again() {
    let frames: Vec<Vec<u8>> = (0..100).map(|i| frame(64, i)).collect();
    let input = File::of("starved", &frames);
    let device = format!("net_pcap_starved,rx_pcap={},infinite_rx=1", input.path().display());
    let mut rig = Rig::new(&device, 400);
    assert_eq!(rig.bufs.used().get(), 100, "the driver keeps the file's frames");
    let mut held: Vec<Desc> = Vec::new();
    loop {
        let batch = rig.rx();
        if batch.is_empty() {
            break;
        }
        held.extend(batch);
    }
    assert!(held.len() > 300 - BURST && held.len() <= 300, "{}", held.len());
    for _ in 0..10 {
        assert!(rig.rx().is_empty(), "nothing to receive into");
        rig.service();
    }
    for (index, desc) in held.drain(..).enumerate() {
        assert_eq!(rig.bufs.bytes(&desc), frames[index % 100], "{index}");
        rig.bufs.free(desc);
    }
    for _ in 0..100 {
        let mut batch = rig.rx();
        assert_eq!(batch.len(), BURST, "on it goes");
        assert_eq!(rig.tx(&mut batch), BURST);
    }
    rig.end();
}

#[test]
fn a_driver_that_wants_its_own_memory_gets_copies() {
    // net_memif reads and writes the memory of its mempool; both its ends are ours.
    let socket = std::env::temp_dir().join(format!("weft-dpdk-{}-memif", std::process::id()));
    let device = |role| {
        let path = socket.display();
        format!("net_memif_{role},role={role},socket={path},socket-abstract=no")
    };
    let mut one = Rig::new(&device("server"), 600);
    let mut two = Rig::new(&device("client"), 600);
    assert!(one.port.copies() && two.port.copies());
    // They meet, and part, in another thread.
    until(LONG, "both links are up", || {
        one.settle();
        two.settle();
        (one.port.link_up() && two.port.link_up()).then_some(())
    });
    let before = ALLOCATIONS.get();
    let mut allocated = 0;
    for seed in 0..2_000 {
        let bytes = frame([14, 60, 333, 1_522][seed % 4], seed);
        let mut desc = two.bufs.alloc_from(&bytes).unwrap();
        let copy = two.bufs.share(&mut desc);
        let mut batch: Batch = [desc, copy].into_iter().collect();
        assert_eq!(two.tx(&mut batch), 2);
        let had = ALLOCATIONS.get();
        let got = one.take_all();
        allocated += ALLOCATIONS.get() - had;
        assert_eq!(got.len(), 2, "{seed}");
        for got in got {
            assert_eq!(got[..bytes.len()], bytes, "{seed}");
            assert_eq!(got.len(), bytes.len().max(60));
        }
    }
    let own = 2_000; // of `frame`
    assert_eq!(ALLOCATIONS.get() - before - allocated, own, "allocations of the ports");
    two.end();
    until(LONG, "the link is down, as the other end is gone", || {
        one.settle();
        (!one.port.link_up()).then_some(())
    });
    one.end();
    drop(std::fs::remove_file(socket));
}

#[test]
fn what_cannot_be_opened_is_refused_with_what_dpdk_says() {
    let refused = |device: &str| match try_open(device).err() {
        Some(error @ PortOpenError::Call { .. }) => {
            let source = std::error::Error::source(&error).unwrap();
            format!("{error}: {source}")
        }
        other => panic!("{device}: {other:?}"),
    };
    #[rustfmt::skip] // columns: device, what is said
    let cases = [
        ("net_nothing0", "net_nothing0: attach the device"),
        ("net_pcap_gone,rx_pcap=/nowhere/at.all", "attach the device"),
        ("net_null_odd,colour=red", "attach the device"),
        ("0000:7f:1f.7", "0000:7f:1f.7: attach the device: No such device"),
        ("a\0b", "read the device's arguments"),
    ];
    for (device, want) in cases {
        let said = refused(device);
        assert!(said.contains(want), "{device}: {said}");
    }
    assert!(refused("net_nothing0").contains("EAL: "), "{}", refused("net_nothing0"));
    // A device has one port, until that is closed.
    let rig = Rig::new("net_null_mine", 100);
    assert!(refused("net_null_mine").contains("take the device"));
    rig.end();
    Rig::new("net_null_mine", 100).end();
}

#[test]
fn every_queue_is_asked() {
    start_eal(&args()).unwrap();
    let frames = [1, 2, 3].map(|queue| frame(60 + queue, queue));
    let files = [1, 2, 3].map(|queue| {
        let frames = vec![frames[queue - 1].clone(); 10 * queue];
        File::of(&format!("queue{queue}"), &frames)
    });
    let queues = files.iter().map(|file| format!(",rx_pcap={}", file.path().display()));
    let device = format!("net_pcap_asked{}", queues.collect::<String>());
    let mut bufs = Bufs::new(Pool::map(200, 1_522).unwrap(), usize::MAX, 0);
    let mut port = Dpdk::open(&DpdkConfig { queues: 3, ..config(&device) }).unwrap();
    port.start(&mut bufs).unwrap();
    let mut rig = Rig { port, bufs, now: Instant::ZERO };
    let mut got = rig.take_all();
    got.sort_unstable_by_key(Vec::len);
    let want = [(10, 0), (20, 1), (30, 2)].map(|(count, of)| vec![frames[of].clone(); count]);
    assert_eq!(got, want.concat());
    rig.end();
}

#[test]
fn a_queue_that_fills_every_burst_leaves_turns_to_the_others() {
    start_eal(&args()).unwrap();
    let frames = [1, 2].map(|queue| frame(60 + queue, queue));
    let counts = [200, 10]; // the first queue has bursts enough for the whole test
    let files = [0, 1].map(|queue| {
        File::of(&format!("turns{queue}"), &vec![frames[queue].clone(); counts[queue]])
    });
    let queues = files.iter().map(|file| format!(",rx_pcap={}", file.path().display()));
    let device = format!("net_pcap_turns{}", queues.collect::<String>());
    let mut bufs = Bufs::new(Pool::map(400, 1_522).unwrap(), usize::MAX, 0);
    let mut port = Dpdk::open(&DpdkConfig { queues: 2, ..config(&device) }).unwrap();
    port.start(&mut bufs).unwrap();
    let mut rig = Rig { port, bufs, now: Instant::ZERO };
    let mut came = Vec::new();
    for _ in 0..2 {
        let batch = rig.rx();
        came.extend(batch.iter().map(|desc| rig.bufs.bytes(desc).len()));
        rig.free(batch);
    }
    let of_second = came.iter().filter(|&&len| len == frames[1].len()).count();
    assert_eq!(of_second, counts[1], "{came:?}");
    rig.end();
}

/// DPDK reserves its memory from below, the pool is put there from above.
#[test]
fn a_pool_below_the_limit_of_narrow_iommus_carries_frames() {
    start_eal(&args()).unwrap();
    let sharing = Sharing { umem: false, dma: true };
    let pools = [1, 2].map(|_| Pool::map_shared(300, 1_522, sharing).unwrap());
    for pool in &pools {
        let memory = pool.memory();
        let end = memory.as_ptr().cast::<u8>() as usize + memory.len();
        assert!(end <= 1 << 38, "{end:#x}");
    }
    for (number, pool) in pools.into_iter().enumerate() {
        let mut rig = Rig::with(&format!("net_ring_low{number}"), Bufs::new(pool, usize::MAX, 0));
        let want = frame(300, number);
        let mut batch: Batch = rig.bufs.alloc_from(&want).into_iter().collect();
        assert_eq!(rig.tx(&mut batch), 1);
        assert_eq!(rig.take_all(), [want]);
        rig.end();
    }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    start_eal(&args()).unwrap();
    let refused = |change: fn(&mut DpdkConfig)| {
        let mut config = config("net_null_range");
        change(&mut config);
        Dpdk::open(&config).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(refused(|c| c.frame_len_max = 63).contains("frame_len_max is 63"));
    assert!(refused(|c| c.frame_len_max = 9_729).contains("frame_len_max is 9729"));
    assert!(refused(|c| c.queues = 0).contains("queues is 0"));
    assert_eq!(refused(|_| ()), "");
}

#[test]
fn more_queues_than_a_device_has_are_refused_when_it_starts() {
    start_eal(&args()).unwrap();
    let mut bufs = Bufs::new(Pool::map(100, 1_522).unwrap(), usize::MAX, 0);
    let mut port = Dpdk::open(&DpdkConfig { queues: 64, ..config("net_ring_queues") }).unwrap();
    let error = port.start(&mut bufs).unwrap_err();
    assert!(error.to_string().contains("configure the device"), "{error}");
    port.release(&mut bufs);
    assert_eq!(bufs.used().get(), 0);
}

#[test]
fn dpdk_is_started_once_with_arguments_that_may_be_given() {
    start_eal(&args()).unwrap();
    assert_eq!(start_eal(&args()), Ok(()));
    assert_eq!(start_eal(&["--no-huge".to_owned()]), Err(EalError::Other(args())));
}
