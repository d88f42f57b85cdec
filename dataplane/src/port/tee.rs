//! Mirrors: copies of a port's frames in a capture file, beside the data path.
//!
//! A frame is copied into a preallocated slot, which goes through a bounded lock-free queue to the writer thread and
//! comes back by a second queue. If no slot is free, the copy is lost and counted, never the frame.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;
use weft_base::files::Existing;
use weft_base::memory::try_room_with_reserve;
use weft_base::threads::{self, Ends, Role};

use super::capture::{CaptureError, CaptureFormat, CaptureWriter, Direction, Meta};
use super::delegate::delegate;
use super::{Port, SuperFrames, csum};
use crate::batch::{BURST, Batch};
use crate::desc::Desc;
use crate::pool::{Bufs, FRAME_LEN_MAX};
use crate::time::Instant;

/// How long the writer sleeps while it has nothing to write.
const IDLE: Duration = Duration::from_millis(2);

/// A copy of a frame on its way to the file.
struct Slot {
    ts_ns: u64,
    direction: Direction,
    interface: u32,
    orig_len: u32,
    len: usize,
    bytes: Box<[u8]>,
}

/// State that ports and writer share.
struct Shared {
    full: ArrayQueue<Box<Slot>>,
    free: ArrayQueue<Box<Slot>>,
    stop: AtomicBool,
    lost: AtomicU64,
    /// Error after which the file takes no more copies.
    failure: OnceLock<String>,
}

/// Result of a mirror.
#[derive(Debug)]
pub struct MirrorReport {
    /// Frames in the file, or why writing ended early.
    pub written: Result<u64, CaptureError>,
    /// Copies that are not in the file, because the writer did not keep up or failed.
    pub lost: u64,
}

/// A capture file being written, and its thread. Control owns it; each port has a [`MirrorHandle`].
pub struct Mirror {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<Result<u64, CaptureError>>>,
}

/// One interface of a mirror, for the thread that owns the port.
#[derive(Clone)]
pub struct MirrorHandle {
    shared: Arc<Shared>,
    interface: u32,
}

impl Mirror {
    /// Creates a capture with an interface for each of `names`, and starts its writer; `existing` decides about a file
    /// that exists. Frames are cut to `snaplen` bytes (0: whole); `slots` frames (at least 1) may wait to be written.
    ///
    /// # Errors
    /// The file cannot be created, there is no memory for the slots, or the thread cannot be started.
    pub fn start(
        path: impl AsRef<Path>,
        existing: Existing,
        format: CaptureFormat,
        snaplen: usize,
        slots: usize,
        names: &[&str],
    ) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let slots = slots.max(1);
        let room = if snaplen == 0 { FRAME_LEN_MAX } else { snaplen.min(FRAME_LEN_MAX) };
        let snaplen_u32 = u32::try_from(snaplen).unwrap_or(0);
        // Tried before the file is made: a client asks for it, and the switch goes on without.
        let memory = slots.saturating_mul(room + size_of::<Slot>());
        try_room_with_reserve(memory)
            .map_err(|source| CaptureError::Memory { path: path.to_owned(), source })?;
        let mut writer = CaptureWriter::create_in_service(path, existing, format, snaplen_u32)?;
        for name in names {
            writer.add_interface(name)?;
        }
        let shared = Arc::new(Shared {
            full: ArrayQueue::new(slots),
            free: ArrayQueue::new(slots),
            stop: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            failure: OnceLock::new(),
        });
        for _ in 0..slots {
            let slot = Box::new(Slot {
                ts_ns: 0,
                direction: Direction::Unknown,
                interface: 0,
                orig_len: 0,
                len: 0,
                bytes: vec![0; room].into(),
            });
            drop(shared.free.push(slot)); // as many as it holds
        }
        let theirs = shared.clone();
        let asked = shared.clone();
        let ends = Ends::when(move || asked.stop.load(Ordering::Acquire));
        let write = move || write_all(&theirs, writer);
        let thread = threads::spawn(Role::Device, "weft-mirror", ends, write)
            .map_err(|source| CaptureError::Open { path: path.to_owned(), source })?;
        Ok(Self { shared, writer: Some(thread) })
    }

    /// The handle of the port at index `interface` of `names`.
    #[must_use]
    pub fn handle(&self, interface: u32) -> MirrorHandle {
        MirrorHandle { shared: self.shared.clone(), interface }
    }

    /// Copies lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed) // a count
    }

    /// The error after which the file takes no more copies, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.get().cloned()
    }

    /// Ends the file, after all copies made so far are written.
    #[must_use]
    pub fn finish(mut self) -> MirrorReport {
        let written = self.end();
        MirrorReport { written, lost: self.lost() }
    }

    fn end(&mut self) -> Result<u64, CaptureError> {
        let Some(thread) = self.writer.take() else { return Ok(0) };
        self.shared.stop.store(true, Ordering::Release); // pairs with `write_all`
        thread.thread().unpark();
        thread.join().expect("nothing in the writer panics")
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        drop(self.end()); // `finish` reports errors; `drop` cannot
    }
}

/// An error with its cause, as text.
fn said(error: &CaptureError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// The writer thread: writes until it is stopped and the queue is empty.
fn write_all(shared: &Shared, mut writer: CaptureWriter) -> Result<u64, CaptureError> {
    let mut failed = None;
    loop {
        // Read before the queue: copies made before the stop are then found in this last pass.
        let stop = shared.stop.load(Ordering::Acquire);
        while let Some(slot) = shared.full.pop() {
            let meta = Meta {
                ts_ns: slot.ts_ns,
                interface: slot.interface,
                orig_len: slot.orig_len,
                direction: slot.direction,
                comment: None,
            };
            if failed.is_none() {
                let bytes = slot.bytes.get(..slot.len).unwrap_or_default();
                failed = writer.write_with(meta, bytes).err();
                if let Some(error) = &failed {
                    shared.failure.get_or_init(|| said(error));
                }
            }
            if failed.is_some() {
                shared.lost.fetch_add(1, Ordering::Relaxed); // a count
            }
            // Also after a failed write: ports go on, and must find their slots counted as lost, not missing.
            drop(shared.free.push(slot)); // there is room: it came from there
        }
        if stop {
            return failed.map_or_else(|| writer.finish(), Err);
        }
        std::thread::park_timeout(IDLE);
    }
}

impl MirrorHandle {
    /// Copies a frame and completes its checksum; `None` if no slot is free, or the mirror has ended.
    fn copy(
        &self,
        now: Instant,
        direction: Direction,
        bufs: &Bufs,
        desc: &Desc,
    ) -> Option<Box<Slot>> {
        if self.shared.stop.load(Ordering::Relaxed) {
            return None; // a copy more or less at the end does not matter
        }
        let Some(mut slot) = self.shared.free.pop() else {
            self.shared.lost.fetch_add(1, Ordering::Relaxed); // a count
            return None;
        };
        let frame = bufs.bytes(desc);
        let len = frame.len().min(slot.bytes.len());
        slot.len = len;
        if let (Some(to), Some(from)) = (slot.bytes.get_mut(..len), frame.get(..len)) {
            to.copy_from_slice(from);
        }
        // A checksum covers the whole frame, so that of a cut copy cannot be computed.
        if len == frame.len()
            && let Some(partial) = bufs.partial_csum(desc)
            && let Some(copy) = slot.bytes.get_mut(..len)
        {
            csum::complete_frame(copy, partial);
        }
        slot.orig_len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        (slot.ts_ns, slot.direction, slot.interface) = (now.as_ns(), direction, self.interface);
        Some(slot)
    }

    fn push(&self, slot: Box<Slot>) {
        drop(self.shared.full.push(slot)); // there is room: as many slots as places
    }

    fn give_back(&self, slot: Box<Slot>) {
        drop(self.shared.free.push(slot));
    }
}

/// Place where a port finds its mirror; control sets and clears it while the port runs.
#[derive(Clone, Default)]
pub struct MirrorSlot(Arc<ArcSwapOption<MirrorHandle>>);

impl MirrorSlot {
    /// Starts mirroring to `mirror`, or ends it with `None`.
    pub fn set(&self, mirror: Option<MirrorHandle>) {
        self.0.store(mirror.map(Arc::new));
    }
}

impl From<MirrorHandle> for MirrorSlot {
    fn from(mirror: MirrorHandle) -> Self {
        Self(Arc::new(ArcSwapOption::from_pointee(mirror)))
    }
}

/// A port whose received and sent frames are mirrored while its slot is set.
pub struct Tee<P: Port> {
    port: P,
    mirror: MirrorSlot,
}

impl<P: Port> Tee<P> {
    /// Mirrors `port` to the mirror in the slot.
    pub fn new(port: P, mirror: impl Into<MirrorSlot>) -> Self {
        Self { port, mirror: mirror.into() }
    }

    /// Ends mirroring and returns the port.
    #[must_use]
    pub fn into_inner(self) -> P {
        self.port
    }
}

impl<P: Port> Port for Tee<P> {
    delegate!(
        caps, start, tx_room, sending, service, link_up, fast_path, counters, rx_gauge, wait_fd, link_fd,
        next_event, idle_at, release => |self| self.port
    );

    /// None while frames are mirrored: a mirror has them one by one.
    fn super_frames(&mut self) -> Option<&mut dyn SuperFrames> {
        let Self { port, mirror } = self;
        // The port first: it is asked in every step, and most have none.
        port.super_frames().filter(|_| mirror.0.load().is_none())
    }

    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        let count = self.port.rx(now, bufs, batch);
        if let Some(mirror) = &*self.mirror.0.load() {
            for desc in batch.iter().skip(before) {
                if let Some(slot) = mirror.copy(now, Direction::In, bufs, desc) {
                    mirror.push(slot);
                }
            }
        }
        count
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let mirror = self.mirror.0.load();
        let Some(mirror) = &*mirror else { return self.port.tx(now, bufs, batch) };
        // Copied before the port takes them, as it frees the frames that it took.
        let room = self.port.tx_room(now);
        let mut slots = ArrayVec::<_, BURST>::new();
        for desc in batch.iter().take(room) {
            slots.push(mirror.copy(now, Direction::Out, bufs, desc));
        }
        let taken = self.port.tx(now, bufs, batch);
        for (index, slot) in slots.into_iter().enumerate() {
            match slot {
                Some(slot) if index < taken => mirror.push(slot),
                Some(slot) => mirror.give_back(slot),
                None => {}
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::pool::{PartialCsum, Pool};
    use crate::port::capture::{CaptureReader, Record};
    use crate::port::null::{Null, NullConfig};
    use crate::port::super_frames::testing::Memory;
    use crate::port::{PortCaps, PortError};
    use crate::time::LinkRate;

    struct Temp(PathBuf);

    impl Temp {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("weft-{}-{name}", std::process::id())))
        }

        fn records(&self) -> Vec<Record> {
            CaptureReader::open(&self.0).unwrap().collect::<Result<_, _>>().unwrap()
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            drop(std::fs::remove_file(&self.0));
        }
    }

    /// Makes two frames a call and takes them all.
    fn port() -> Box<dyn Port> {
        let config = NullConfig {
            name: "gen0".to_owned(),
            rate: LinkRate::gbps(100),
            frame_len_max: 1_518,
            templates: vec![vec![1; 100], vec![2; 60]],
            per_burst: 2,
            limit: None,
        };
        Box::new(Null::generator(config).unwrap())
    }

    fn bufs() -> Bufs {
        Bufs::new(Pool::in_memory(64, 1_518).unwrap(), 16, 0)
    }

    #[test]
    fn no_super_frame_passes_whole_while_frames_are_mirrored() {
        let (file, slot) = (Temp::new("whole.pcapng"), MirrorSlot::default());
        let (port, _) = Memory::new("memory");
        let mut tee = Tee::new(port, slot.clone());
        assert!(tee.super_frames().is_some());
        let form = CaptureFormat::PcapNg;
        let mirror = Mirror::start(&file.0, Existing::Replace, form, 0, 1_000, &["one"]).unwrap();
        slot.set(Some(mirror.handle(0)));
        assert!(tee.super_frames().is_none());
        slot.set(None);
        assert!(tee.super_frames().is_some());
    }

    #[test]
    fn both_directions_are_in_the_file_in_order_and_whole() {
        let (file, mut bufs) = (Temp::new("tee.pcapng"), bufs());
        let mirror = Mirror::start(
            &file.0,
            Existing::Replace,
            CaptureFormat::PcapNg,
            0,
            1_000,
            &["other", "gen0"],
        )
        .unwrap();
        let mut tee = Tee::new(port(), mirror.handle(1));
        let mut batch = Batch::new();
        for round in 0..100 {
            assert_eq!(tee.rx(Instant::from_ns(round), &mut bufs, &mut batch), 2);
            bufs.set_partial_csum(&mut batch[0], Some(PartialCsum { start: 34, offset: 6 }));
            assert_eq!(tee.tx(Instant::from_ns(round), &mut bufs, &mut batch), 2);
        }
        tee.into_inner().release(&mut bufs);
        let report = mirror.finish();
        assert_eq!((report.written.unwrap(), report.lost), (400, 0));
        let records = file.records();
        for (index, record) in records.iter().enumerate() {
            assert_eq!(record.ts_ns, index as u64 / 4, "{index}");
            assert_eq!(record.interface, 1);
            let want = [100, 60][index % 2];
            assert_eq!((record.data.len(), record.orig_len), (want, u32::try_from(want).unwrap()));
        }
        assert_eq!(records[0].data, [1; 100]);
        assert_eq!(records[2].data[40..42], (!csum::sum(&[1; 66], 0)).to_be_bytes());
    }

    #[test]
    fn copies_are_lost_and_counted_when_the_writer_is_behind_but_frames_are_not() {
        let (file, mut bufs) = (Temp::new("tee-lost.pcap"), bufs());
        let mirror =
            Mirror::start(&file.0, Existing::Replace, CaptureFormat::Pcap, 64, 4, &["gen0"])
                .unwrap();
        let mut tee = Tee::new(port(), mirror.handle(0));
        let mut batch = Batch::new();
        for _ in 0..20_000 {
            assert_eq!(tee.rx(Instant::ZERO, &mut bufs, &mut batch), 2);
            assert_eq!(tee.tx(Instant::ZERO, &mut bufs, &mut batch), 2);
        }
        let report = mirror.finish();
        let written = report.written.unwrap();
        assert!(report.lost > 0, "4 slots for 80,000 copies in milliseconds");
        assert_eq!(written + report.lost, 80_000);
        let records = file.records();
        assert_eq!(records.len() as u64, written);
        assert!(records.iter().all(|r| r.data.len() <= 64));
        assert!(records.iter().any(|r| (r.data.len(), r.orig_len) == (64, 100)));
        // After the end of the mirror the port works on, without copies.
        assert_eq!(tee.rx(Instant::ZERO, &mut bufs, &mut batch), 2);
        assert_eq!(tee.tx(Instant::ZERO, &mut bufs, &mut batch), 2);
    }

    #[test]
    fn what_the_port_does_not_take_is_not_in_the_file() {
        let (file, mut bufs) = (Temp::new("tee-left.pcap"), bufs());
        let mirror =
            Mirror::start(&file.0, Existing::Replace, CaptureFormat::Pcap, 0, 8, &["p"]).unwrap();
        let mut tee = Tee::new(Takes(2, port()), mirror.handle(0));
        let mut batch = Batch::new();
        for len in [60, 61, 62, 63] {
            batch.push(bufs.alloc_from(&vec![0; len]).unwrap());
        }
        assert_eq!(tee.tx(Instant::ZERO, &mut bufs, &mut batch), 2);
        assert_eq!(tee.tx(Instant::ZERO, &mut bufs, &mut batch), 2);
        let report = mirror.finish();
        assert_eq!((report.written.unwrap(), report.lost), (4, 0));
        let lens: Vec<_> = file.records().iter().map(|r| r.data.len()).collect();
        assert_eq!(lens, [60, 61, 62, 63]);
    }

    /// Announces room for 64 frames and takes fewer.
    struct Takes(usize, Box<dyn Port>);

    impl Port for Takes {
        fn caps(&self) -> &PortCaps {
            self.1.caps()
        }

        fn rx(&mut self, _: Instant, _: &mut Bufs, _: &mut Batch) -> usize {
            0
        }

        fn tx_room(&mut self, _: Instant) -> usize {
            BURST
        }

        fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
            let mut some: Batch = batch.drain(..self.0).collect();
            self.1.tx(now, bufs, &mut some)
        }

        fn service(&mut self, _: Instant, _: &mut Bufs) -> Result<(), PortError> {
            Ok(())
        }

        fn release(&mut self, _: &mut Bufs) {}
    }
}
