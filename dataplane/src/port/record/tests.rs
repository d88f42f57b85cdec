//! The record of [`super::format`], written and read; damaged ones.
#![expect(clippy::cast_possible_truncation, reason = "small drawn numbers")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use weft_base::rng::Rng;

use super::format::{
    self, Answer, Call, Entry, Frame, PoolMove, RecordError, RecordReader, put_number,
};
use super::{Recorder, Script, Scripted};
use crate::batch::Batch;
use crate::pool::{Bufs, FRAME_LEN_MAX, HEADROOM, PartialCsum, Pool};
use crate::port::null::Null;
use crate::port::record::Recorded;
use crate::port::{Port, PortCounters};
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate};

/// Keeps the bytes written, for the test to read.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes this many bytes, then reports a full disk.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn some_entries() -> Vec<Entry> {
    let pool = |used, short| PoolMove { used, short };
    let frame = |start, partial, len: usize| Frame { start, partial, bytes: vec![0xA5; len] };
    let partial = Some(PartialCsum { start: 34, offset: 16 });
    let mut counters = PortCounters { kernel_rx: 1 << 40, tx_failed: 3, ..Default::default() };
    counters.rx_drop(DropReason::Pool);
    counters.rx_drop(DropReason::Malformed);
    let calls = [
        (0, Answer::Link(true)),
        (1, Answer::Link(false)),
        (
            0,
            Answer::Rx(
                vec![frame(HEADROOM, None, 14), frame(124, partial, FRAME_LEN_MAX)],
                pool(64, 0),
            ),
        ),
        (3, Answer::Rx(vec![], pool(-5, 2))),
        (0, Answer::Room(usize::MAX - 1)),
        (0, Answer::Tx(64, pool(-64, 1))),
        (2, Answer::Service(pool(i64::from(i32::MIN), 0))),
        (63, Answer::Counters(counters)),
    ];
    let calls = calls.map(|(port, answer)| Call { port, answer });
    vec![
        Entry::Step { now: Instant::from_ps(7), calls: calls.to_vec(), digest: 0xDEAD_BEEF },
        Entry::Change(b"{\"a\":1}".to_vec()),
        Entry::Step { now: Instant::from_ps(1 << 60), calls: vec![], digest: 0 },
        Entry::Stop {
            now: Instant::from_ps(3), // the clock went round
            calls: vec![calls[7].clone()],
            trace_hash: u64::MAX,
            sent_hash: 1,
            events: 1 << 33,
        },
        Entry::Counts(vec![]),
    ]
}

fn put_calls(out: &mut Vec<u8>, calls: &[Call]) {
    for Call { port, answer } in calls {
        match answer {
            Answer::Link(up) => format::put_link(out, *port, *up),
            Answer::Rx(frames, pool) => {
                format::put_rx(out, *port, frames.len(), *pool);
                for frame in frames {
                    format::put_frame(out, frame.start, frame.partial, &frame.bytes);
                }
            }
            Answer::Room(room) => format::put_room(out, *port, *room),
            Answer::Tx(taken, pool) => format::put_tx(out, *port, *taken, *pool),
            Answer::Service(pool) => format::put_service(out, *port, *pool),
            Answer::Counters(counters) => format::put_counters(out, *port, counters),
        }
    }
}

fn written(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    format::put_preamble(&mut out, b"header");
    let mut last = Instant::ZERO;
    let mut since = |now: Instant| {
        let ps = now.as_ps().wrapping_sub(last.as_ps());
        last = now;
        ps
    };
    for entry in entries {
        let mut bytes = Vec::new();
        match entry {
            Entry::Step { now, calls, digest } => {
                put_calls(&mut bytes, calls);
                format::put_step(&mut out, since(*now), &bytes, *digest);
            }
            Entry::Change(text) => format::put_change(&mut out, text),
            Entry::Stop { now, calls, trace_hash, sent_hash, events } => {
                put_calls(&mut bytes, calls);
                let hashes = [*trace_hash, *sent_hash];
                format::put_stop(&mut out, since(*now), &bytes, hashes, *events);
            }
            Entry::Counts(text) => format::put_counts(&mut out, text),
        }
    }
    out
}

/// All entries up to the end or the first error.
fn read(bytes: &[u8]) -> (Vec<Entry>, Option<RecordError>) {
    let mut reader = match RecordReader::new(bytes) {
        Ok((reader, header)) => {
            assert!(header.len() <= bytes.len());
            reader
        }
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut entries = Vec::new();
    loop {
        match reader.next_entry() {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => return (entries, None),
            Err(error) => {
                assert!(matches!(reader.next_entry(), Ok(None)), "an error ends the record");
                return (entries, Some(error));
            }
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let entries = some_entries();
    let (got, error) = read(&written(&entries));
    assert!(error.is_none(), "{error:?}");
    assert_eq!(got, entries);
}

#[test]
fn every_shorter_record_gives_the_entries_that_are_whole() {
    let entries = some_entries();
    let bytes = written(&entries);
    let ends: Vec<usize> = (0..=entries.len()).map(|n| written(&entries[..n]).len()).collect();
    for len in 0..bytes.len() {
        let (got, error) = read(&bytes[..len]);
        let whole = ends.iter().filter(|&&end| end <= len).count().saturating_sub(1);
        assert_eq!(got, entries[..whole], "{len}");
        match error {
            None => assert!(ends.contains(&len), "{len}"),
            Some(RecordError::Cut { at }) => {
                let want = if len < ends[0] { 0 } else { ends[whole] };
                assert_eq!(at, want as u64, "{len}");
            }
            Some(other) => panic!("{len}: {other}"),
        }
    }
}

#[test]
fn what_no_recorder_writes_is_refused_with_its_place() {
    let number = |n: u64| {
        let mut out = Vec::new();
        put_number(&mut out, n);
        out
    };
    let step = |rest: &[&[u8]]| [&[1, 0][..], &rest.concat()].concat();
    #[rustfmt::skip] // columns: name, entry, part of the message
    let cases = [
        ("tag",           vec![0x7E],                                 "no entry begins"),
        ("long text",     [&[2][..], &number(17 << 20)].concat(),     "a text that is too long"),
        ("answer",        step(&[&[0x2A, 0]]),                        "no answer begins"),
        ("port",          step(&[&[0x10, 64, 1]]),                    "a port's number above 63"),
        ("link",          step(&[&[0x10, 0, 2]]),                     "neither up nor down"),
        ("burst",         step(&[&[0x11, 0, 65, 0]]),                 "more frames than a burst"),
        ("taken",         step(&[&[0x13, 0, 65, 0]]),                 "more frames than a burst"),
        ("frame flags",   step(&[&[0x11, 0, 1, 0, 4, 20]]),           "unknown flags"),
        ("odd start",     step(&[&[0x11, 0, 1, 0, 1, 65, 20]]),       "starts nowhere"),
        ("start in front", step(&[&[0x11, 0, 1, 0, 1, 62, 20]]),      "starts nowhere"),
        ("short frame",   step(&[&[0x11, 0, 1, 0, 0, 13]]),           "of a length"),
        ("long frame",    step(&[&[0x11, 0, 1, 0, 0], &number(FRAME_LEN_MAX as u64 + 129)]), "of a length"),
        ("checksum",      step(&[&[0x11, 0, 1, 0, 2], &number(1 << 16), &[0, 20]]), "beyond any frame"),
        ("reasons",       step(&[&[0x15, 0, 0, 0, 7]]),               "more reasons"),
        ("reason",        step(&[&[0x15, 0, 0, 0, 1, 99, 1]]),        "an unknown drop reason"),
        ("number",        [&[1][..], &[0xFF; 9], &[2]].concat(),      "more than 64 bits"),
        ("longer number", [&[1][..], &[0x80; 10], &[0]].concat(),     "more than 64 bits"),
    ];
    for (name, entry, part) in cases {
        let bytes = [written(&[]), entry, vec![0; 64]].concat();
        match read(&bytes).1 {
            Some(error @ RecordError::Damaged { .. }) => {
                assert!(error.to_string().contains(part), "{name}: {error}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(matches!(read(b"\x7fELF then more").1, Some(RecordError::Foreign)));
    assert!(matches!(read(b"WEFTREC\x02\0").1, Some(RecordError::Version(2))));
}

/// Any bytes give entries and perhaps an error, never a panic, and never more contents than the file has bytes.
#[test]
fn random_and_flipped_bytes_are_entries_or_errors() {
    let (mut rng, whole) = (Rng::new(20_261_121), written(&some_entries()));
    for round in 0..20_000 {
        let mut bytes = if round % 2 == 0 {
            whole.clone()
        } else {
            let len = rng.below(400) as usize;
            let mut bytes = written(&[]);
            bytes.extend((0..len).map(|_| {
                // Tags come often enough that something is reached.
                let draw = rng.next_u64();
                if draw >> 63 == 0 { (draw as u8) & 0x1F } else { draw as u8 }
            }));
            bytes
        };
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        let (entries, _) = read(&bytes);
        let held: usize = entries.iter().map(size).sum();
        assert!(held <= bytes.len(), "{held} bytes out of {}", bytes.len());
    }
}

fn size(entry: &Entry) -> usize {
    match entry {
        Entry::Change(text) | Entry::Counts(text) => text.len(),
        Entry::Step { calls, .. } | Entry::Stop { calls, .. } => calls
            .iter()
            .map(|call| match &call.answer {
                Answer::Rx(frames, _) => frames.iter().map(|frame| frame.bytes.len()).sum(),
                _ => 0,
            })
            .sum(),
    }
}

#[test]
fn a_full_disk_ends_the_record_and_is_told_once() {
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    let on_failure = Box::new(move |error: &io::Error| {
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        *count.lock().unwrap() += 1;
    });
    assert!(Recorder::start(Box::new(Full(10)), b"head", 1, Box::new(|_| {})).is_err());
    let recorder = Recorder::start(Box::new(Full(100)), b"head", 1, on_failure).unwrap();
    for len in [50, 300 << 10, 300 << 10] {
        recorder.change(&vec![1; len]);
    }
    let summary = recorder.finish(b"");
    assert_eq!(*told.lock().unwrap(), 1);
    assert_eq!(summary.failed.and_then(|e| e.raw_os_error()), Some(libc::ENOSPC));
}

/// A scripted port that is asked for an answer other than the recorded one reports the first difference, and answers
/// with nothing from then on.
#[test]
fn a_script_tells_the_first_thing_that_does_not_fit() {
    let none = PoolMove::default();
    let frame = || Frame { start: HEADROOM, partial: None, bytes: vec![7; 60] };
    let mut counters = PortCounters { tx_failed: 1 << 25, ..Default::default() };
    counters.rx_drop(DropReason::Pool);
    #[rustfmt::skip] // columns: answers of port 0, part of the message
    let cases: [(Vec<Answer>, &str); 7] = [
        (vec![Answer::Room(9), Answer::Tx(1, none), Answer::Link(true)],
         "has port 0's link up, which was not asked for"),
        (vec![], "asked how many frames it would take, where the record has nothing"),
        (vec![Answer::Tx(1, none)], "where the record has 1 frames taken by port 0"),
        (vec![Answer::Room(9), Answer::Tx(2, none)], "asked to take 1 frames"),
        (vec![Answer::Room(9), Answer::Tx(0, PoolMove { used: 99, short: 0 })], "the pool cannot hold"),
        (vec![Answer::Room(9), Answer::Tx(0, PoolMove { used: 0, short: 3 })], "the reserve is not"),
        (vec![Answer::Room(9), Answer::Tx(1, none), Answer::Counters(counters)], "leap or go back"),
    ];
    for (answers, part) in cases {
        let mut bufs = Bufs::new(Pool::in_memory(8, 1_518).unwrap(), 4, 0);
        let caps = Null::sink("p0", LinkRate::gbps(1)).caps().clone();
        let script = Script::new(1, None);
        let mut port = Scripted::new(caps, 0, script.clone());
        let mut batch = Batch::new();
        script.load(vec![Call {
            port: 0,
            answer: Answer::Rx(vec![frame()], PoolMove { used: 1, short: 0 }),
        }]);
        assert_eq!(port.rx(Instant::ZERO, &mut bufs, &mut batch), 1);
        assert_eq!(script.check(), Ok(()));
        script.load(answers.into_iter().map(|answer| Call { port: 0, answer }).collect());
        port.tx_room(Instant::ZERO);
        port.tx(Instant::ZERO, &mut bufs, &mut batch);
        let _ = port.counters();
        let said = script.check().unwrap_err();
        assert!(said.contains(part), "{said}");
    }
}

/// Posts a chunk with each call; delivers tagged frames whose checksum is partial, later on.
struct Odd(Null, Vec<crate::desc::Desc>);
impl Port for Odd {
    fn caps(&self) -> &crate::port::PortCaps {
        self.0.caps()
    }
    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        self.1.extend(bufs.alloc());
        if now < Instant::from_ns(3) {
            return 0;
        }
        let Some(mut desc) = bufs.alloc_from(&[9; 70]) else { return 0 };
        if let Some((_, start)) = bufs.chunk_mut(&mut desc) {
            bufs.set_bounds(&mut desc, start - 4, 74);
        }
        bufs.set_partial_csum(&mut desc, Some(PartialCsum { start: 38, offset: 6 }));
        batch.push(desc);
        1
    }
    fn tx_room(&mut self, _: Instant) -> usize {
        3
    }
    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        self.0.tx(now, bufs, batch)
    }
    fn service(&mut self, _: Instant, _: &mut Bufs) -> Result<(), crate::port::PortError> {
        Ok(())
    }
    fn release(&mut self, bufs: &mut Bufs) {
        for desc in self.1.drain(..) {
            bufs.free(desc);
        }
    }
}

/// A frame comes back with all that the port knew of it, and steps without an entry leave their mark
/// on the pool.
#[test]
fn a_recorded_port_comes_back_as_it_was() {
    let memory = Memory::default();
    let out = Box::new(memory.clone());
    let recorder = Recorder::start(out, b"", 1, Box::new(|_| {})).unwrap();
    let odd = Odd(Null::sink("p0", LinkRate::gbps(1)), Vec::new());
    let caps = odd.caps().clone();
    let mut port = Recorded::new(odd, 0, recorder.clone());
    let mut bufs = Bufs::new(Pool::in_memory(8, 1_518).unwrap(), 4, 2);
    let mut batch = Batch::new();
    let mut seen = Vec::new();
    for ns in 1..=4 {
        let now = Instant::from_ns(ns);
        recorder.begin(now);
        let count = port.rx(now, &mut bufs, &mut batch);
        seen.extend(
            batch.iter().map(|d| (d.start(), bufs.partial_csum(d), bufs.bytes(d).to_vec())),
        );
        if count > 0 {
            port.tx_room(now);
            port.tx(now, &mut bufs, &mut batch);
        }
        recorder.end(count > 0, 5);
    }
    let used = bufs.used().get();
    assert_eq!((seen.len(), used), (2, 4));
    let sent = recorder.finish(b"").sent_hash;

    let bytes = memory.0.lock().unwrap().clone();
    let (entries, error) = read(&bytes);
    assert!(error.is_none());
    let script = Script::new(1, None);
    let mut port = Scripted::new(caps, 0, script.clone());
    let mut bufs = Bufs::new(Pool::in_memory(8, 1_518).unwrap(), 4, 2);
    let mut again = Vec::new();
    let mut steps = 0;
    for entry in entries {
        let Entry::Step { now, calls, digest } = entry else { continue };
        steps += 1;
        script.load(calls);
        port.rx(now, &mut bufs, &mut batch);
        again.extend(
            batch.iter().map(|d| (d.start(), bufs.partial_csum(d), bufs.bytes(d).to_vec())),
        );
        assert_eq!(port.tx_room(now), 3);
        port.tx(now, &mut bufs, &mut batch);
        assert_eq!((script.check(), script.digest(5)), (Ok(()), digest));
    }
    assert_eq!((steps, bufs.used().get(), script.sent_hash()), (2, used, sent));
    assert_eq!(again, seen);
    port.release(&mut bufs);
    assert_eq!(bufs.used().get(), 0);
}
