//! The program in the kernel against the switch's own functions, frame by frame.
//!
//! Every golden capture through the kernel's test run; what it answers and counts must be what
//! parser, classifier, VLAN table and FDB of the dataplane say. Skips without BPF, by name.
//!
//! Units: bytes without FCS.
//! Source: docs/express.md; docs/spec/pipeline.md §11.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod oracle;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use oracle::{Fate, Oracle};
use weft_config::resolve::{Config, Timing};
use weft_config::settings::Settings;
use weft_control::express::rules;
use weft_dataplane::config::PriSource;
use weft_dataplane::port::af_xdp::{Attach, Program, Target};
use weft_dataplane::port::capture::{CaptureReader, Record};
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::types::PortId;
use weft_parsers::vlan::Tpids;
use weft_xdp::layout::{Meta, NO_PORT, Refusals, Tally, fdb_key};
use weft_xdp::{Checksum, Options, PortCounts, Trial, Verdict, Xdp};

const GOLDEN: [&str; 7] =
    ["standard", "standard_vlan", "gen1", "gen2", "gen2_doc", "lite", "malformed"];
/// The interface that trials come in by.
const LO: u32 = 1;

fn pcaps(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps").join(path)
}

/// A loaded program, or the reason why there can be none here, told by the name of `test`.
fn loaded(test: &str) -> Option<Xdp> {
    loaded_for(test, Options::default())
}

fn loaded_for(test: &str, options: Options) -> Option<Xdp> {
    if let Some(why) = Trial::refused() {
        eprintln!("SKIPPED {test}: {why}");
        return None;
    }
    Some(Xdp::load(&options).expect("the kernel makes the maps"))
}

/// The configuration of a golden set, with or without lossless priorities.
fn snapshot(set: &str, pfc: bool) -> Snapshot {
    let file = pcaps(&format!("conformance/{set}.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    let settings = Settings::read(set, &text).unwrap();
    let mut switch = Config::resolve(&settings, Timing::Virtual).unwrap().switch;
    switch.pfc.enabled &= pfc;
    Snapshot::compile(switch, 0).unwrap()
}

/// Frames of a set, each with its input; those without an Ethernet header the kernel does not try.
fn frames(set: &str, snapshot: &Snapshot) -> Vec<(PortId, Vec<u8>)> {
    let mut frames = Vec::new();
    for (index, port) in snapshot.config.ports.iter().enumerate() {
        let file = pcaps(&format!("in/{set}/{}.pcap", port.name));
        if !file.exists() {
            continue;
        }
        let mut reader = CaptureReader::open(&file).unwrap();
        let mut record = Record::default();
        while reader.read_into(&mut record).unwrap() {
            if record.data.len() >= ETHERNET {
                frames.push((PortId::new(index).unwrap(), record.data.clone()));
            }
        }
    }
    assert!(!frames.is_empty(), "{set} has frames");
    frames
}

/// A program under test, steered like a switch that is at rest.
struct Bench {
    xdp: Xdp,
    /// By port.
    programs: Vec<Program>,
    snapshot: Arc<Snapshot>,
    _sockets: Vec<std::os::fd::OwnedFd>,
}

impl Bench {
    fn new(mut xdp: Xdp, snapshot: Snapshot) -> Self {
        configure(&mut xdp, &snapshot);
        let programs = programs(&xdp, &snapshot, Checksum::OfWire);
        let mut sockets = Vec::new();
        for port in snapshot.ports.iter() {
            xdp.set_output(port.get(), LO).unwrap();
            let socket = rustix::net::socket(
                rustix::net::AddressFamily::XDP,
                rustix::net::SocketType::RAW,
                None,
            );
            let socket = socket.unwrap();
            xdp.set_socket(port.get(), 0, Some(socket.as_fd())).unwrap();
            sockets.push(socket);
        }
        Self { xdp, programs, snapshot: Arc::new(snapshot), _sockets: sockets }
    }

    fn open(&self, open: bool) {
        for port in self.snapshot.ports.iter() {
            let pris = self.snapshot.unshaped[port].bits();
            self.xdp.shared().set_open(port.get(), if open { pris } else { 0 });
        }
    }

    fn learn(&mut self, oracle: &Oracle) {
        for (key, port) in oracle.stations() {
            let key = weft_control::express::station_key(key);
            assert!(self.xdp.put_station(key, port.get(), false).unwrap(), "there is room");
        }
    }

    /// Runs one frame, and lets user space be done with it at once.
    fn run(&mut self, input: PortId, frame: &[u8]) -> Trial {
        let trial = self.hand(input, frame).unwrap();
        if let Some(meta) = trial.meta {
            self.xdp.shared().set_done(meta.port, 0, meta.bucket, meta.count);
        }
        trial
    }

    /// Runs one frame, which stays in user space if it goes there.
    fn hand(&self, input: PortId, frame: &[u8]) -> std::io::Result<Trial> {
        Trial::run(self.programs[input.index()].as_fd(), frame)
    }
}

/// The program of each port.
fn programs(xdp: &Xdp, snapshot: &Snapshot, checksum: Checksum<'_>) -> Vec<Program> {
    let load = |port: PortId| Program::load(&xdp.program(port.get(), None, checksum), None);
    snapshot.ports.iter().map(|port| load(port).expect("the verifier takes it")).collect()
}

/// Has the program do what `snapshot` says.
fn configure(xdp: &mut Xdp, snapshot: &Snapshot) {
    xdp.prepare(&rules::ports(snapshot), &rules::members(snapshot)).unwrap();
    xdp.commit();
}

/// Checks a trial of a frame that belongs to the socket: its bytes, and what stands before it.
fn to_socket(name: &str, trial: &Trial, want: oracle::Facts, input: PortId, frame: &[u8]) {
    assert_eq!(trial.verdict, Verdict::Redirect, "{name}");
    assert_eq!(trial.bytes, frame, "{name}: bytes");
    let meta = trial.meta.unwrap_or_else(|| panic!("{name}: nothing before the frame"));
    let (pri, format) = (want.pri.get(), want.format as u8);
    let (count, bucket) = (meta.count, meta.bucket);
    let meta_of = Meta { tag: Meta::TAG, port: input.get(), pri, format, ..Meta::default() };
    let wanted = Meta { count, bucket, ..meta_of };
    assert_eq!(meta, wanted, "{name}");
}

/// Checks a trial of an express frame: its bytes, and nothing before it.
fn is_express(name: &str, trial: &Trial, frame: &[u8]) {
    assert_eq!((trial.verdict, trial.meta), (Verdict::Redirect, None), "{name}");
    assert_eq!(trial.bytes, frame, "{name}: bytes");
}

/// Every frame of every golden set: the same verdict, priority, format and bytes as the dataplane's
/// functions say, the counters add up; and with all closed, all of them go to the sockets.
#[test]
fn golden_frames_fare_as_the_dataplane_says() {
    let test = "golden_frames_fare_as_the_dataplane_says";
    for (set, pfc) in GOLDEN.into_iter().flat_map(|set| [(set, true), (set, false)]) {
        let Some(xdp) = loaded(test) else { return };
        let snapshot = snapshot(set, pfc);
        let frames = frames(set, &snapshot);
        let oracle = Oracle::new(&snapshot, &frames);
        let mut bench = Bench::new(xdp, snapshot);
        bench.learn(&oracle);
        let (mut passed, mut express) = ([0; 64], 0);
        for open in [false, true] {
            bench.open(open);
            for (n, (input, frame)) in frames.iter().enumerate() {
                let name = format!("{set}, PFC {pfc}, frame {n} of {input:?}, open {open}");
                let want = oracle.facts(*input, frame);
                let trial = bench.run(*input, frame);
                match want.fate {
                    Fate::Express(_) if open => {
                        is_express(&name, &trial, frame);
                        express += 1;
                    }
                    _ => {
                        to_socket(&name, &trial, want, *input, frame);
                        passed[input.index()] += 1;
                    }
                }
            }
        }
        for port in bench.snapshot.ports.iter() {
            let PortCounts { stats: counts, refusals } = bench.xdp.counts(port.get()).unwrap();
            let sums = oracle.expected(&frames, port);
            assert_eq!(Tally::sum(&counts.passed).frames, passed[port.index()], "{set} {port:?}");
            assert_eq!(counts.express_in, sums.express_in, "{set} {port:?}: in");
            assert_eq!(counts.express_out, sums.express_out, "{set} {port:?}: out");
            assert_eq!(counts.sizes, sums.sizes, "{set} {port:?}: sizes");
            assert_eq!((counts.no_socket, counts.no_meta), (0, 0), "{set} {port:?}");
            assert_eq!(refusals, Refusals::default(), "{set} {port:?}");
        }
        assert_eq!(express > 0, set != "malformed", "{set}, PFC {pfc}: {express} were express");
    }
}

/// Cut anywhere, a frame fares as the dataplane's parser says: no byte from before is read.
#[test]
fn a_frame_of_every_length_fares_as_the_dataplane_says() {
    let test = "a_frame_of_every_length_fares_as_the_dataplane_says";
    let Some(xdp) = loaded(test) else { return };
    let snapshot = snapshot("standard_vlan", false);
    let frames = frames("standard_vlan", &snapshot);
    let oracle = Oracle::new(&snapshot, &frames);
    let mut bench = Bench::new(xdp, snapshot);
    bench.learn(&oracle);
    bench.open(true);
    let mut express = 0;
    for (input, frame) in frames.iter().take(12) {
        // Something longer first, whose bytes must not be taken for this frame's.
        bench.run(*input, &[0xFF; 200]);
        for len in (0..=HEAD).chain([HEAD + 1, frame.len()]) {
            let part = &frame[..len.min(frame.len())];
            if part.len() < ETHERNET {
                assert!(bench.hand(*input, part).is_err(), "{len}: the kernel's own");
                continue;
            }
            let name = format!("{len} bytes of {input:?}");
            let want = oracle.facts(*input, part);
            let trial = bench.run(*input, part);
            if let Fate::Express(_) = want.fate {
                assert!(len >= 60, "{name}: shorter ones are padded by the pipeline");
                is_express(&name, &trial, part);
                express += 1;
            } else {
                to_socket(&name, &trial, want, *input, part);
            }
        }
    }
    assert!(express > 0, "some lengths are express");
}

/// A port that trusts EXP: all of its values, with and without a tag, at every length about the label.
#[test]
fn labels_fare_as_the_dataplane_says() {
    let test = "labels_fare_as_the_dataplane_says";
    let Some(xdp) = loaded(test) else { return };
    let before = snapshot("standard", false);
    let frames = frames("standard", &before);
    let mut config = before.config.clone();
    for port in &mut config.ports {
        port.trust = vec![PriSource::Exp, PriSource::Pcp];
    }
    let snapshot = Snapshot::compile(config, 1).unwrap();
    let oracle = Oracle::new(&snapshot, &frames);
    let mut bench = Bench::new(xdp, snapshot);
    bench.learn(&oracle);
    bench.open(true);
    let (mut express, mut pris) = (0, [0; 8]);
    for (input, frame) in frames.iter().take(4) {
        for (exp, tag) in (0..8).flat_map(|exp| [(exp, &[][..]), (exp, &[0x81, 0, 0x20, 0][..])]) {
            let label = [0x88, 0x47, 0, 1, exp << 1 | 1, 64];
            let whole = [&frame[..12], tag, &label, &[0; 80]].concat();
            for len in (ETHERNET..=24).chain([59, 60, 64, 90]) {
                let part = &whole[..len];
                let name = format!("EXP {exp}, tag {tag:?}, {len} bytes of {input:?}");
                let want = oracle.facts(*input, part);
                let trial = bench.run(*input, part);
                pris[usize::from(want.pri.get())] += 1;
                if let Fate::Express(_) = want.fate {
                    is_express(&name, &trial, part);
                    express += 1;
                } else {
                    to_socket(&name, &trial, want, *input, part);
                }
            }
        }
    }
    assert!(express > 0 && pris[..4].iter().all(|&n| n > 0), "{express} express, {pris:?}");
}

/// Ports that read several TPIDs, in VLANs of one trunk: tags of each, and of an EtherType that is none of them.
#[test]
fn every_tpid_fares_as_the_dataplane_says() {
    let test = "every_tpid_fares_as_the_dataplane_says";
    let Some(xdp) = loaded(test) else { return };
    let before = snapshot("standard_vlan", false);
    let mut config = before.config.clone();
    for port in &mut config.ports {
        port.parse.tpids = Tpids::new(&[0x88A8, 0x8100, 0x9100]).unwrap();
    }
    let snapshot = Snapshot::compile(config, 1).unwrap();
    let mut frames = frames("standard_vlan", &snapshot);
    frames.truncate(8);
    let oracle = Oracle::new(&snapshot, &frames);
    let mut bench = Bench::new(xdp, snapshot);
    bench.learn(&oracle);
    bench.open(true);
    let mut express = Vec::new();
    for (input, frame) in &frames {
        for tpid in [0x8100_u16, 0x88A8, 0x9100, 0x9200] {
            let mut other = frame.clone();
            other[12..14].copy_from_slice(&tpid.to_be_bytes());
            let name = format!("{tpid:#x}, {input:?}");
            let want = oracle.facts(*input, &other);
            let trial = bench.run(*input, &other);
            if let Fate::Express(_) = want.fate {
                is_express(&name, &trial, &other);
                express.push(tpid);
            } else {
                to_socket(&name, &trial, want, *input, &other);
            }
        }
    }
    express.sort_unstable();
    express.dedup();
    assert_eq!(express, [0x8100, 0x88A8, 0x9100], "each that is a tag");
}

const HEAD: usize = 64;
const ETHERNET: usize = 14;

/// The first frame of the standard set that is express, in a bench where it is.
fn express_frame(test: &str) -> Option<(Bench, PortId, PortId, Vec<u8>, oracle::Facts)> {
    let xdp = loaded(test)?;
    let snapshot = snapshot("standard", false);
    let frames = frames("standard", &snapshot);
    let oracle = Oracle::new(&snapshot, &frames);
    let mut bench = Bench::new(xdp, snapshot);
    bench.learn(&oracle);
    bench.open(true);
    let found = frames.into_iter().find_map(|(input, frame)| {
        let facts = oracle.facts(input, &frame);
        match facts.fate {
            Fate::Express(output) => Some((input, output, frame, facts)),
            Fate::Pass => None,
        }
    });
    let (input, output, frame, facts) = found.expect("the set has express frames");
    Some((bench, input, output, frame, facts))
}

/// While a frame of the same flow is in user space, none may pass it by; others may.
#[test]
fn express_waits_for_what_was_handed_over() {
    let test = "express_waits_for_what_was_handed_over";
    let Some((mut bench, input, output, frame, want)) = express_frame(test) else { return };
    is_express("at rest", &bench.run(input, &frame), &frame);
    // Three are handed over while the output is closed, and user space is not done with them.
    bench.xdp.shared().set_open(output.get(), 0);
    let mut bucket = 0;
    for count in 1..=3 {
        let trial = bench.hand(input, &frame).unwrap();
        to_socket("closed", &trial, want, input, &frame);
        let meta = trial.meta.unwrap();
        assert_eq!(meta.count, count);
        bucket = meta.bucket;
    }
    bench.open(true);
    let words = bench.xdp.shared().clone();
    for done in 1..=2 {
        words.set_done(input.get(), 0, bucket, done);
        let trial = bench.hand(input, &frame).unwrap();
        assert_eq!(trial.meta.map(|meta| meta.count), Some(3 + done), "{done} done");
    }
    assert_eq!((words.handed(input.get(), 0, bucket), words.done(input.get(), 0, bucket)), (5, 2));
    words.set_done(input.get(), 0, bucket, 4);
    assert!(bench.hand(input, &frame).unwrap().meta.is_some(), "4 of 5");
    // The other way the flow is another one.
    let mut back = frame.clone();
    back[..6].copy_from_slice(&frame[6..12]);
    back[6..12].copy_from_slice(&frame[..6]);
    is_express("another flow", &bench.run(output, &back), &back);
    words.set_done(input.get(), 0, bucket, 6);
    is_express("caught up", &bench.run(input, &frame), &frame);
}

/// Where a queue has to come to rest, most frames that would wait are dropped and counted; those that
/// are at rest are express, and those that never are come through.
#[test]
fn a_queue_that_drains_drops_what_would_wait() {
    let test = "a_queue_that_drains_drops_what_would_wait";
    let Some((mut bench, input, output, frame, _)) = express_frame(test) else { return };
    let words = bench.xdp.shared().clone();
    words.set_drain(input.get(), 0, true);
    is_express("at rest", &bench.run(input, &frame), &frame);
    words.set_open(output.get(), 0);
    for count in 1..=3 {
        let trial = bench.hand(input, &frame).unwrap();
        assert_eq!(trial.meta.map(|meta| meta.count), Some(count), "not express anyway");
    }
    bench.open(true);
    let verdicts = (0..640).map(|_| bench.hand(input, &frame).unwrap().verdict);
    let through = verdicts.filter(|verdict| *verdict == Verdict::Redirect).count() as u64;
    assert!((1..=20).contains(&through), "{through} of 640");
    let counts = bench.xdp.counts(input.get()).unwrap().stats;
    assert_eq!(counts.drained + through, 640);
    words.set_drain(input.get(), 0, false);
    let meta = bench.hand(input, &frame).unwrap().meta.expect("it follows");
    words.set_done(input.get(), 0, meta.bucket, meta.count);
    is_express("at rest again", &bench.run(input, &frame), &frame);
}

/// Without a socket a frame that is not express is dropped and counted, never given to the host.
#[test]
fn without_a_socket_frames_are_dropped_and_counted() {
    let test = "without_a_socket_frames_are_dropped_and_counted";
    let Some((mut bench, input, output, frame, _)) = express_frame(test) else { return };
    bench.xdp.set_socket(input.get(), 0, None).unwrap();
    is_express("no socket is needed", &bench.run(input, &frame), &frame);
    bench.xdp.shared().set_open(output.get(), 0);
    let trial = bench.run(input, &frame);
    assert_eq!((trial.verdict, trial.meta), (Verdict::Drop, None));
    let counts = bench.xdp.counts(input.get()).unwrap().stats;
    assert_eq!((counts.no_socket, Tally::sum(&counts.passed).frames), (1, 0));
    let words = bench.xdp.shared();
    assert_eq!(words.handed(input.get(), 0, 0), 0, "nothing was handed over");
}

/// A station seen elsewhere gets no frames until user space has learnt where it is; one that is
/// seen where it was is stamped; static ones neither move nor age.
#[test]
fn stations_are_stamped_and_do_not_get_frames_while_they_move() {
    let test = "stations_are_stamped_and_do_not_get_frames_while_they_move";
    let Some((mut bench, input, output, frame, _)) = express_frame(test) else { return };
    let source = |bench: &Bench| {
        let key = oracle::source_key(&bench.snapshot, input, &frame);
        bench.xdp.stations().find(|(k, _)| *k == key).expect("it was learnt")
    };
    bench.xdp.set_tick(77);
    is_express("known", &bench.run(input, &frame), &frame);
    let (key, station) = source(&bench);
    assert_eq!((u8::try_from(station.port), station.last_seen), (Ok(input.get()), 77));
    // The same source by the output's port.
    assert!(bench.run(output, &frame).meta.is_some(), "moved");
    assert_eq!(source(&bench).1.port, NO_PORT);
    assert!(bench.run(input, &frame).meta.is_some(), "user space does not know yet");
    bench.xdp.put_station(key, input.get(), true).unwrap();
    is_express("fixed", &bench.run(input, &frame), &frame);
    bench.xdp.set_tick(78);
    assert!(bench.run(output, &frame).meta.is_some(), "its destination is behind the input");
    let station = source(&bench).1;
    assert_eq!((u8::try_from(station.port), station.last_seen), (Ok(input.get()), 77));
    assert!(bench.xdp.remove_station(key), "there it was");
    assert!(!bench.xdp.remove_station(key), "gone");
    assert!(bench.run(input, &frame).meta.is_some(), "unknown");
}

/// A destination that moved gets its frames where it is, one that is not known by user space.
#[test]
fn frames_go_where_their_destination_is() {
    let test = "frames_go_where_their_destination_is";
    let Some((mut bench, input, output, frame, _)) = express_frame(test) else { return };
    let key = oracle::destination_key(&bench.snapshot, input, &frame);
    let third = bench.snapshot.ports.iter().find(|&port| port != input && port != output).unwrap();
    let sent = |bench: &Bench| {
        [output, third].map(|port| {
            let counts = bench.xdp.counts(port.get()).unwrap();
            Tally::sum(&counts.stats.express_out).frames
        })
    };
    is_express("where it was", &bench.run(input, &frame), &frame);
    assert_eq!(sent(&bench), [1, 0]);
    assert!(bench.xdp.put_station(key, third.get(), false).unwrap());
    is_express("where it is", &bench.run(input, &frame), &frame);
    assert_eq!(sent(&bench), [1, 1]);
    assert!(bench.xdp.put_station(key, input.get(), false).unwrap());
    assert!(bench.run(input, &frame).meta.is_some(), "where the frame came from");
    assert!(bench.xdp.remove_station(key));
    assert!(bench.run(input, &frame).meta.is_some(), "nowhere");
    assert!(bench.xdp.put_station(key, output.get(), true).unwrap());
    is_express("back", &bench.run(input, &frame), &frame);
    assert_eq!(sent(&bench), [2, 1]);
}

/// A station is found in every place of its two buckets, as source and as destination; where others have
/// them all, it is user space's.
#[test]
fn stations_are_found_in_every_place_of_their_buckets() {
    const PLACES: usize = 8;
    let test = "stations_are_found_in_every_place_of_their_buckets";
    let Some((bench, input, output, frame, _)) = express_frame(test) else { return };
    let Some(xdp) = loaded_for(test, Options { stations: 2 }) else { return };
    let source = (oracle::source_key(&bench.snapshot, input, &frame), input);
    let destination = (oracle::destination_key(&bench.snapshot, input, &frame), output);
    let mut bench = Bench::new(xdp, (*bench.snapshot).clone());
    bench.open(true);
    let others: Vec<u64> = (0..8).map(|n| fdb_key(4_000, 1 << 20 | n)).collect();
    let put = |bench: &mut Bench, key, port: PortId| bench.xdp.put_station(key, port.get(), false);
    for ((key, port), partner) in [(source, destination), (destination, source)] {
        for place in 0..PLACES {
            let held: Vec<u64> = bench.xdp.stations().map(|(key, _)| key).collect();
            assert!(held.into_iter().all(|key| bench.xdp.remove_station(key)));
            assert!(others.iter().all(|&other| put(&mut bench, other, port).unwrap()));
            let at = |bench: &Bench, place| bench.xdp.stations().nth(place).unwrap().0;
            let out = at(&bench, (place + 3) % PLACES);
            bench.xdp.remove_station(out);
            assert!(put(&mut bench, partner.0, partner.1).unwrap());
            assert!(!put(&mut bench, key, port).unwrap(), "all places are taken");
            assert!(bench.xdp.station(key).is_none());
            assert!(bench.run(input, &frame).meta.is_some(), "{place}: not known");
            let out = at(&bench, place);
            bench.xdp.remove_station(out);
            assert!(put(&mut bench, key, port).unwrap());
            assert_eq!(at(&bench, place), key);
            is_express(&format!("at {place}"), &bench.run(input, &frame), &frame);
        }
    }
}

/// A new configuration is in force whole, from one frame to the next.
#[test]
fn a_reload_changes_priorities_and_what_is_express() {
    let test = "a_reload_changes_priorities_and_what_is_express";
    let Some((mut bench, input, _, frame, want)) = express_frame(test) else { return };
    is_express("before", &bench.run(input, &frame), &frame);
    let mut config = bench.snapshot.config.clone();
    let other = weft_dataplane::types::Pri::new(3 - want.pri.get()).unwrap();
    let port = &mut config.ports[input.index()];
    (port.trust, port.default_pri, port.frame_len_max) = (Vec::new(), other, frame.len() - 1);
    let after = Snapshot::compile(config, 1).unwrap();
    configure(&mut bench.xdp, &after);
    let trial = bench.run(input, &frame);
    let want = oracle::Facts { pri: other, ..want };
    to_socket("too long now", &trial, want, input, &frame);
    let back = bench.snapshot.clone();
    configure(&mut bench.xdp, &back);
    is_express("back", &bench.run(input, &frame), &frame);
}

/// The number of a kernel function is put in, and room for what the verifier adds: the kernel takes it
/// bound to an interface whose driver has the function, and it has not grown.
#[test]
fn the_program_that_reads_tags_is_taken_bound() {
    let test = "the_program_that_reads_tags_is_taken_bound";
    let Some(xdp) = loaded(test) else { return };
    let Some(mut net) = weft_tests::netns::Net::new(test) else { return };
    net.add_joined("a", "p0", "10.77.0.1/24");
    weft_tests::netns::enter(&net.name("sw"));
    let index = net.index("sw", "p0");
    let features = weft_dataplane::port::netdev::features(index.cast_signed()).unwrap();
    let target = Target { index, queues: 1, shows_tags: features.shows_tags(), is_veth: true };
    let Some(vlan_tag) = target.vlan_tag(Attach::Native) else {
        eprintln!("SKIPPED {test}: this kernel does not show tags to programs");
        return;
    };
    let Some(left) = target.left_checksum(Attach::Native) else {
        eprintln!("SKIPPED {test}: this kernel does not show buffers to programs");
        return;
    };
    for checksum in [Checksum::Seen(left.instructions()), Checksum::OfWire, Checksum::Unseen] {
        let code = xdp.program(0, Some(vlan_tag), checksum);
        Program::load(&code, Some(index)).expect("the verifier takes it, and it has not grown");
    }
}

/// TCP and UDP whose checksum the kernel left partial go to user space, which completes it; so does
/// what hides its checksum.
#[test]
fn partial_checksums_are_not_express() {
    let test = "partial_checksums_are_not_express";
    let Some((mut bench, input, _, frame, _)) = express_frame(test) else { return };
    let addresses = &frame[..12];
    for bits in 0..8_u8 {
        let (udp, v6, tagged) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        let name = format!("udp {udp}, v6 {v6}, tagged {tagged}");
        let (complete, field, pseudo) = transport(addresses, udp, v6, tagged);
        is_express(&name, &bench.run(input, &complete), &complete);
        let mut partial = complete.clone();
        partial[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        assert!(bench.run(input, &partial).meta.is_some(), "{name}: partial");
        // A UDP header that is cut short counts as none, and the field is the last of it; of TCP it stands within.
        let enough = (field + 2).max(60);
        for len in 60..enough {
            let trial = bench.run(input, &complete[..len]);
            if udp {
                is_express(&format!("{name}: {len}, no header"), &trial, &complete[..len]);
            } else {
                assert!(trial.meta.is_some(), "{name}: {len}, no field");
            }
        }
        is_express(&name, &bench.run(input, &complete[..enough]), &complete[..enough]);
        let mut hidden = complete.clone();
        let ip = if tagged { 18 } else { 14 };
        if v6 {
            hidden[ip + 6] = 0; // hop-by-hop options
        } else {
            hidden[ip] = 0x46;
        }
        assert!(bench.run(input, &hidden).meta.is_some(), "{name}: hidden");
    }
}

/// Where nothing tells what hosts leave of checksums, whatever could carry a partial one goes to user space, complete or not;
/// of frames of a wire, the same ones are express.
#[test]
fn what_may_carry_a_checksum_that_is_not_seen_is_not_express() {
    let test = "what_may_carry_a_checksum_that_is_not_seen_is_not_express";
    let Some((mut bench, input, _, frame, _)) = express_frame(test) else { return };
    let addresses = &frame[..12];
    let (inner, field, pseudo) = transport(addresses, false, false, false);
    let mut partial = inner.clone();
    partial[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    let mut fragment = partial.clone();
    fragment[20] = 0x20; // more follow
    let v4 = |proto: u8, between: &[u8], inner: &[u8]| {
        let len = u16::try_from(20 + between.len() + inner.len()).unwrap().to_be_bytes();
        let header = [0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, proto, 0, 0];
        let hosts = [10, 0, 0, 200, 10, 0, 99, 255];
        [addresses, &[8, 0], &header, &hosts, between, inner].concat()
    };
    let udp = |port: u16, between: &[u8], inner: &[u8]| {
        let len = u16::try_from(8 + between.len() + inner.len()).unwrap().to_be_bytes();
        let [high, low] = port.to_be_bytes();
        v4(17, &[&[0x80, 1, high, low, len[0], len[1], 0, 0], between].concat(), inner)
    };
    let packet = &partial[14..];
    #[rustfmt::skip] // columns: name, frame
    let carriers = [
        ("VXLAN", udp(4789, &[8, 0, 0, 0, 0, 0, 42, 0], &partial)),
        ("Geneve", udp(6081, &[0, 0, 0x65, 0x58, 0, 0, 42, 0], &partial)),
        ("a UDP tunnel of no known kind", udp(40_000, &[0x5A; 11], packet)),
        ("IP in IP", v4(4, &[], packet)),
        ("GRE", v4(47, &[0, 0, 8, 0], packet)),
        ("a protocol that nobody knows", v4(253, &[1, 2, 3], packet)),
        ("SCTP", v4(132, &[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0], &[0x5A; 30])),
        ("the first fragment", fragment),
        ("MPLS", [addresses, &[0x88, 0x47, 0, 1, 0x21, 64], packet].concat()),
        ("no IP at all", [addresses, &[0x12, 0x34], packet].concat()),
        ("complete UDP", transport(addresses, true, false, false).0),
        ("complete UDP over IPv6", transport(addresses, true, true, true).0),
    ];
    for (name, carrier) in &carriers {
        is_express(&format!("{name}, of a wire"), &bench.run(input, carrier), carrier);
    }
    bench.programs = programs(&bench.xdp, &bench.snapshot, Checksum::Unseen);
    for (name, carrier) in &carriers {
        let trial = bench.run(input, carrier);
        assert!(trial.meta.is_some(), "{name}: express, and nothing looked inside");
        assert_eq!(trial.bytes, *carrier, "{name}: bytes");
    }
    // What shows its own checksum is judged by it.
    assert!(bench.run(input, &partial).meta.is_some(), "partial TCP");
    for (name, complete) in [("complete TCP", &inner), ("a Standard frame", &frame)] {
        is_express(name, &bench.run(input, complete), complete);
    }
}

/// A frame with some checksum that is not its pseudo-header's sum, where it is, and that sum.
fn transport(addresses: &[u8], udp: bool, v6: bool, tagged: bool) -> (Vec<u8>, usize, u16) {
    let mut frame = addresses.to_vec();
    if tagged {
        frame.extend([0x81, 0, 0, 1]);
    }
    let (proto, payload) = (if udp { 17 } else { 6 }, 60_u16);
    let sum = if v6 {
        frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 60, proto, 64]);
        frame.extend((0..32).map(|i: u8| i.wrapping_mul(37)));
        let at = frame.len() - 32;
        let [source, target] = [at, at + 16].map(|at| *frame[at..].first_chunk().unwrap());
        weft_parsers::checksum::pseudo_v6(source, target, proto, payload.into())
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 80, 0, 0, 0x40, 0, 64, proto, 0, 0]);
        frame.extend([10, 0, 0, 200, 10, 0, 99, 255]);
        weft_parsers::checksum::pseudo_v4([10, 0, 0, 200], [10, 0, 99, 255], proto, payload)
    };
    let field = frame.len() + if udp { 6 } else { 16 };
    frame.extend([0x5A; 60]);
    if udp {
        let at = frame.len() - 60;
        frame[at + 4..at + 6].copy_from_slice(&payload.to_be_bytes());
    }
    assert_ne!(sum.fold(), 0x5A5A, "what is there is not the sum");
    (frame, field, sum.fold())
}

/// Copies what git knows below `folder` of the tree to `to`.
fn copy(root: &Path, folder: &str, to: &Path) {
    let known = Command::new("git").args(["ls-files", "--", folder]).current_dir(root).output();
    for file in String::from_utf8(known.unwrap().stdout).unwrap().lines() {
        std::fs::create_dir_all(to.join(file).parent().unwrap()).unwrap();
        std::fs::copy(root.join(file), to.join(file)).unwrap();
    }
}

/// The programs in the kernel, built at `place` of a copy of their sources by the crate's own build script.
fn built_at(root: &Path, place: &Path) -> Vec<Vec<u8>> {
    for folder in ["parsers", "xdp", "Cargo.lock"] {
        copy(root, folder, place);
    }
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (start, end) = (manifest.find("members").unwrap(), manifest.find("exclude").unwrap());
    let members = "members = [\"parsers\", \"xdp\"]\n";
    let manifest = [&manifest[..start], members, &manifest[end..]].concat();
    std::fs::write(place.join("Cargo.toml"), manifest).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--offline", "-p", "weft-xdp"])
        .current_dir(place)
        .env("CARGO_TARGET_DIR", place.join("target"))
        .status();
    assert!(built.unwrap().success());
    let found =
        Command::new("find").arg(place.join("target/debug/build")).args(["-type", "f"]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    let mut files: Vec<&str> = found
        .lines()
        .filter(|file| file.ends_with("out/weft-ebpf") || file.ends_with("out/weft-xmit"))
        .collect();
    files.sort_unstable();
    files.into_iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Whoever builds it, and where: what the kernel is given is the same, byte by byte.
#[test]
#[ignore = "soak: builds the core library twice"]
fn soak_the_program_is_the_same_wherever_it_is_built() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let top = std::env::temp_dir().join(format!("weft-built-{}", std::process::id()));
    let places = ["a", "another/place/with/a/longer/name"].map(|place| top.join(place));
    let built = places.each_ref().map(|place| {
        std::fs::create_dir_all(place).unwrap();
        built_at(root, place)
    });
    std::fs::remove_dir_all(&top).unwrap();
    if built[0].is_empty() {
        println!(
            "SKIPPED soak_the_program_is_the_same_wherever_it_is_built: no bpf-linker or rust-src"
        );
        return;
    }
    assert_eq!(built[0].len(), 2, "weft-ebpf and weft-xmit");
    assert!(built[0].iter().all(|object| object.starts_with(b"\x7fELF")));
    assert!(built[0] == built[1], "the objects differ");
}
