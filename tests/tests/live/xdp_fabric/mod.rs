//! TLPs in the kernel against the pipeline, frame by frame.
//!
//! Drawn tables and frames through the kernel's test run and through a lane of the pipeline; what the kernel
//! sends, the pipeline sends, too: the same bytes, out of the same port, counted alike. All else comes up as it
//! was. Skips without BPF, by name.
//!
//! Units: bytes without FCS.
//! Source: docs/express.md; docs/spec/cxl-fabric.md.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod draw;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use draw::{PORTS, port};
use weft_base::rng::Rng;
use weft_control::express::{fabric, rules};
use weft_dataplane::batch::Batch;
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pbr::segments::Found;
use weft_dataplane::pbr::{EdgePort, Fast, Ldst, Refusal, Role, Tables};
use weft_dataplane::pipeline::{Built, Core, Lane, build};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::af_xdp::Program;
use weft_dataplane::port::capture::{CaptureReader, Record};
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::stats::Counter;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::{PortId, PortSet, Pri};
use weft_parsers::Format;
use weft_parsers::fabric::{FastEntry, Hpa, Interleave, Pid, Target};
use weft_parsers::tlp::fast_frame::LinkWords;
use weft_parsers::tlp::{Oui, Pth};
use weft_xdp::layout::{SEGMENTS, Tally};
use weft_xdp::{Checksum, FabricTables, Options, Trial, Verdict, Xdp};

/// The interface that trials come in by.
const LO: u32 = 1;
const SHORTEST: usize = 60;

/// The pipeline, with a pipe at each port.
struct Lanes {
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    far: Vec<Pipe>,
    bufs: Bufs,
    now: Instant,
}

impl Lanes {
    fn new(config: SwitchConfig) -> Self {
        let pool = Pool::in_memory(8_192, draw::FRAME_LEN_MAX + 500).unwrap();
        let mut bufs = Bufs::new(pool.clone(), 64, 0);
        let all = vec![(0..PORTS).map(port).collect::<Vec<_>>()];
        let Built { mut lanes, .. } = build(config, &pool, &all).unwrap();
        let (mut ports, mut far) = (Vec::<Box<dyn Port>>::new(), Vec::new());
        for _ in 0..PORTS {
            let (mut a, mut b) = pipe(PipeConfig {
                names: ["a".to_owned(), "b".to_owned()],
                depth: 256,
                rate: LinkRate::gbps(100),
                frame_len_max: draw::FRAME_LEN_MAX + 500,
                wakes_reader: false,
            })
            .unwrap();
            a.start(&mut bufs).unwrap();
            b.start(&mut bufs).unwrap();
            ports.push(Box::new(a));
            far.push(b);
        }
        let mut lanes = Self { lane: lanes.remove(0), ports, far, bufs, now: Instant::ZERO };
        lanes.settle();
        lanes
    }

    fn core(&self) -> &Arc<Core> {
        self.lane.core()
    }

    fn settle(&mut self) {
        for _ in 0..4 {
            self.now += Span::from_ns(2_000);
            self.lane.step(self.now, &mut self.ports, &mut NoTrace);
        }
    }

    /// What comes out where when `frame` comes in at `input`, with its padding.
    fn run(&mut self, input: PortId, frame: &[u8]) -> Vec<(PortId, Vec<u8>)> {
        let mut batch = Batch::new();
        batch.push(self.bufs.alloc_from(frame).unwrap());
        assert_eq!(self.far[input.index()].tx(self.now, &mut self.bufs, &mut batch), 1);
        self.settle();
        let mut came = Vec::new();
        for (number, far) in self.far.iter_mut().enumerate() {
            far.rx(self.now, &mut self.bufs, &mut batch);
            for desc in batch.drain(..) {
                let mut bytes = self.bufs.bytes(&desc).to_vec();
                bytes.resize(bytes.len().max(SHORTEST), 0);
                came.push((port(number), bytes));
                self.bufs.free(desc);
            }
        }
        came
    }

    /// Counters of all ports in a row.
    fn counts(&self) -> Vec<u64> {
        let of = |number| {
            let stats = &self.lane.stats().port[port(number)];
            let sizes = stats.rx_size.iter().map(Counter::get);
            let pris = Pri::ALL.iter().flat_map(|&pri| {
                let pri = &stats.pri[pri];
                [pri.enqueued.get(), pri.dequeued.get(), pri.tx_bytes.get()]
            });
            let (pbr_in, pbr_out) =
                (&stats.rx_format[Format::Pbr as usize], &stats.tx_format[Format::Pbr as usize]);
            let whole = [stats.rx_frames.get(), stats.rx_bytes.get(), pbr_in.get()];
            let out = [stats.tx_frames.get(), stats.tx_bytes.get(), pbr_out.get()];
            whole.into_iter().chain(out).chain(sizes).chain(pris).collect::<Vec<u64>>()
        };
        (0..PORTS).flat_map(of).collect()
    }
}

/// The kernel's side, at rest.
struct Kernel {
    xdp: Xdp,
    programs: Vec<Program>,
    _sockets: Vec<OwnedFd>,
}

impl Kernel {
    /// `None`, told by the name of `test`, where no program can be tried.
    fn new(test: &str, core: &Core) -> Option<Self> {
        if let Some(why) = Trial::refused() {
            eprintln!("SKIPPED {test}: {why}");
            return None;
        }
        let mut xdp = Xdp::load(&Options::default()).expect("the kernel makes the maps");
        let snapshot = core.snapshot.load();
        xdp.prepare(&rules::ports(&snapshot), &rules::members(&snapshot)).unwrap();
        xdp.commit();
        let (mut programs, mut sockets) = (Vec::new(), Vec::new());
        for id in snapshot.ports.iter() {
            let code = xdp.program(id.get(), None, Checksum::OfWire);
            programs.push(Program::load(&code, None).expect("the verifier takes it"));
            xdp.set_output(id.get(), LO).unwrap();
            let (family, kind) = (rustix::net::AddressFamily::XDP, rustix::net::SocketType::RAW);
            let socket = rustix::net::socket(family, kind, None).unwrap();
            xdp.set_socket(id.get(), 0, Some(socket.as_fd())).unwrap();
            sockets.push(socket);
            xdp.shared().set_open(id.get(), snapshot.unshaped[id].bits());
        }
        Some(Self { xdp, programs, _sockets: sockets })
    }

    fn run(&self, input: PortId, frame: &[u8]) -> Trial {
        let trial = Trial::run(self.programs[input.index()].as_fd(), frame).unwrap();
        if let Some(meta) = trial.meta {
            self.xdp.shared().set_done(meta.port, 0, meta.bucket, meta.count);
        }
        trial
    }

    /// Frames that each port was sent.
    fn sent(&self) -> Vec<u64> {
        let of = |number: usize| self.xdp.counts(port(number).get()).unwrap().stats;
        (0..PORTS).map(|number| Tally::sum(&of(number).express_out).frames).collect()
    }

    /// As [`Lanes::counts`].
    fn counts(&self) -> Vec<u64> {
        let of = |number: usize| {
            let stats = self.xdp.counts(port(number).get()).unwrap().stats;
            let (came, went) = (Tally::sum(&stats.express_in), Tally::sum(&stats.express_out));
            let pbr = |cells: &[Tally]| {
                let of = cells.iter().skip(Format::Pbr as usize).step_by(8);
                of.map(|tally| tally.frames).sum::<u64>()
            };
            let pris = Pri::ALL.iter().flat_map(|&pri| {
                let kinds = usize::from(pri.get()) * 8..usize::from(pri.get()) * 8 + 8;
                let (came, went) = (
                    Tally::sum(&stats.express_in[kinds.clone()]),
                    Tally::sum(&stats.express_out[kinds]),
                );
                [came.frames, went.frames, went.bytes]
            });
            let whole = [came.frames, came.bytes, pbr(&stats.express_in)];
            let out = [went.frames, went.bytes, pbr(&stats.express_out)];
            let sizes = stats.sizes.into_iter();
            whole.into_iter().chain(out).chain(sizes).chain(pris).collect::<Vec<u64>>()
        };
        (0..PORTS).flat_map(of).collect()
    }
}

/// Both, and what was found so far.
struct Bench {
    lanes: Lanes,
    kernel: Kernel,
    /// Frames that the kernel sent, by input and output.
    sent: [[u64; PORTS]; PORTS],
    passed: u64,
    /// What the pipeline counted of those that the kernel sent.
    counted: Vec<u64>,
}

impl Bench {
    fn new(test: &str, lossless: usize) -> Option<Self> {
        let lanes = Lanes::new(draw::config(lossless));
        let kernel = Kernel::new(test, lanes.core())?;
        let counted = vec![0; lanes.counts().len()];
        Some(Self { lanes, kernel, sent: [[0; PORTS]; PORTS], passed: 0, counted })
    }

    fn tlp_ports(&self) -> PortSet {
        self.lanes.core().snapshot.load().tlp_ports
    }

    /// Puts tables in force on both sides; `fault` may change the kernel's.
    fn set(&mut self, tables: Tables, fault: impl FnOnce(&mut FabricTables)) {
        let mut mirrored = fabric::compile(&tables, self.tlp_ports());
        fault(&mut mirrored);
        self.kernel.xdp.set_fabric(&mirrored).unwrap();
        self.lanes.core().tables.store(Arc::new(tables));
    }

    /// Has a frame fare both ways.
    fn run(&mut self, input: PortId, frame: &[u8]) -> Result<(), String> {
        for id in (0..PORTS).map(port) {
            self.kernel.xdp.set_partner(id.get(), self.lanes.core().partner(id).to_bits());
        }
        let before = self.kernel.sent();
        let trial = self.kernel.run(input, frame);
        let after = self.kernel.sent();
        let counts = self.lanes.counts();
        let came = self.lanes.run(input, frame);
        let name = format!("{input:?}: {frame:02x?}");
        let Some(output) = (0..PORTS).find(|&n| after[n] != before[n]).map(port) else {
            let meta = trial.meta.map(|meta| (meta.port, meta.format));
            let want = Some((input.get(), Format::Pbr as u8));
            self.passed += 1;
            return if (trial.verdict, &trial.bytes[..], meta) == (Verdict::Redirect, frame, want) {
                Ok(())
            } else {
                Err(format!("not as it came: {trial:02x?}, {name}"))
            };
        };
        self.sent[input.index()][output.index()] += 1;
        if trial.verdict != Verdict::Redirect || came != [(output, trial.bytes.clone())] {
            return Err(format!("{output:?} {trial:02x?}, but {came:02x?}: {name}"));
        }
        let snapshot = self.lanes.core().snapshot.load();
        let more = self.lanes.counts();
        for (sum, (after, before)) in self.counted.iter_mut().zip(more.iter().zip(&counts)) {
            *sum += after - before;
        }
        let queued = |pri: Pri| {
            let at = input.index() * COUNTERS + ENQUEUED + 3 * usize::from(pri.get());
            more[at] > counts[at]
        };
        match Pri::ALL.into_iter().find(|&pri| queued(pri)) {
            Some(pri) if snapshot.is_lossless(input, pri) => Err(format!("lossless: {name}")),
            Some(_) => Ok(()),
            None => Err(format!("not queued: {name}")),
        }
    }

    /// Draws tables and frames; the first difference.
    fn draw(
        &mut self,
        rng: &mut Rng,
        frames: usize,
        fault: impl FnOnce(&mut FabricTables),
    ) -> Result<(), String> {
        let tables = draw::tables(rng, self.tlp_ports());
        self.set(tables.clone(), fault);
        for _ in 0..frames {
            let input = port(usize::try_from(rng.below(draw::ETHERNET as u64)).unwrap());
            let frame = draw::frame(rng, &tables, input, Oui::DEFAULT);
            if frame.len() >= 14 {
                self.run(input, &frame)?;
            }
        }
        Ok(())
    }
}

/// Counters of a port in [`Lanes::counts`], and where those by priority begin.
const COUNTERS: usize = 37;
const ENQUEUED: usize = 13;

/// Drawn tables, drawn frames: all that the kernel sends is what the pipeline sends, and counted alike; with all
/// priorities lossless it sends none, and with some of them none of those.
#[test]
fn what_the_kernel_sends_is_what_the_pipeline_sends() {
    let test = "what_the_kernel_sends_is_what_the_pipeline_sends";
    for lossless in [0, 2, 8] {
        let Some(mut bench) = Bench::new(test, lossless) else { return };
        let mut rng = Rng::new(41 + lossless as u64);
        for _ in 0..16 {
            bench.draw(&mut rng, 500, |_| {}).unwrap();
        }
        assert_eq!(bench.kernel.counts(), bench.counted, "{lossless}");
        let sent: u64 = bench.sent.iter().flatten().sum();
        println!("{lossless} lossless: {sent} sent, {} passed: {:?}", bench.passed, bench.sent);
        assert!(bench.passed > 1_000, "{}", bench.passed);
        assert_eq!(sent > 0, lossless < 8);
        if lossless == 0 {
            // A PTH put in, left, taken out, and left towards a G-FAM device.
            for (input, output) in
                [(0, 3), (1, 3), (3, 4), (4, 3), (3, 0), (4, 1), (3, 2), (0, 2), (0, 1)]
            {
                assert!(bench.sent[input][output] > 5, "{input} to {output}: {:?}", bench.sent);
            }
            // Only what is in flit mode, and TLPs.
            assert!(bench.sent.iter().all(|row| row[5] == 0 && row[7] == 0 && row[8] == 0));
            assert_eq!(bench.sent[5], [0; PORTS], "another layout is translated");
            assert_eq!(bench.sent[2], [0; PORTS], "a G-FAM device's SPID is checked");
        }
    }
}

/// What an edge refuses is not sent by the kernel either: it goes up, and is refused there.
#[test]
fn the_kernel_sends_nothing_that_an_edge_refuses() {
    let Some(mut bench) = Bench::new("the_kernel_sends_nothing_that_an_edge_refuses", 0) else {
        return;
    };
    let mut rng = Rng::new(77);
    let tables = draw::tables(&mut rng, bench.tlp_ports());
    bench.set(tables, |_| {});
    let words = LinkWords::new(Oui::DEFAULT);
    let write: Vec<u8> =
        [&[0x60, 0, 0, 8, 1, 2, 0, 0x34, 0, 0, 1, 0, 0, 0, 0, 0][..], &[7; 32]].concat();
    let done: Vec<u8> = [&[0x4A, 0, 0, 8, 1, 2, 0, 0x34, 1, 0, 0, 32][..], &[7; 32]].concat();
    let refused = |bench: &Bench, at: usize, why: Refusal| {
        bench.lanes.lane.stats().port[port(at)].refused.all()[why.index()].get()
    };
    // Edges of a host, of a device and of a G-FAM device; each in its own name, in others', in none.
    for (at, own) in [(0, 0x0A0), (1, 0x0A1), (2, 0x0A2)] {
        for spid in [own, 0x0A5, 0x0A6, 0x103, 0xFFF] {
            for dpid in (0x100..0x140).chain([0x0A0, 0x0A1, 0xFFF]) {
                for tlp in [&write, &done] {
                    let why = match (at, spid == own && dpid != 0xFFF) {
                        (2, true) if core::ptr::eq(tlp, &raw const done) => continue, // its answer
                        (2, _) if spid == own || spid == 0xFFF && dpid == 0xFFF => {
                            Refusal::NotFromGfd
                        }
                        (2, _) => Refusal::ForeignSpid,
                        _ => Refusal::PthAtEdge,
                    };
                    let number = u8::try_from(at).unwrap();
                    let mut frame = vec![2, 0, 0, 0, 0, number, 2, 0, 0, 9, 9, number];
                    frame.extend(words.pbr.to_be_bytes());
                    let pth = Pth::new(Pid::from_low_bits(spid), Pid::from_low_bits(dpid));
                    frame.extend(pth.emit());
                    frame.extend(tlp);
                    let had = refused(&bench, at, why);
                    bench.run(port(at), &frame).unwrap();
                    assert_eq!(refused(&bench, at, why), had + 1, "{at} {spid:x} {dpid:x} {why:?}");
                }
            }
        }
        assert_eq!(bench.sent[at], [0; PORTS], "by the kernel");
    }
}

/// What makes tables wrong.
type Fault = fn(&mut FabricTables);

/// The comparison finds a table that is not the switch's own.
#[test]
fn a_table_that_is_wrong_is_found() {
    let test = "a_table_that_is_wrong_is_found";
    let faults: [(&str, Fault); 6] = [
        ("access", |all| all.gmv.iter_mut().flatten().for_each(|word| *word = !0)),
        ("DRT", |all| all.drt.iter_mut().for_each(|route| *route ^= 1)),
        ("IDT", |all| all.idt.rotate_left(1)),
        ("SPID", |all| all.edges.iter_mut().for_each(|edge| edge.pid ^= 1)),
        ("segments", |all| all.segments.rotate_left(1)),
        ("role", |all| all.edges[2].kind = weft_xdp::layout::edge::DSP),
    ];
    for (name, fault) in faults {
        let Some(mut bench) = Bench::new(test, 0) else { return };
        let mut rng = Rng::new(7);
        let found = (0..4).any(|_| bench.draw(&mut rng, 400, fault).is_err());
        assert!(found, "{name}");
    }
}

/// The frames of an independent maker, at each port.
#[test]
fn golden_frames_fare_as_in_the_pipeline() {
    let test = "golden_frames_fare_as_in_the_pipeline";
    let Some(mut bench) = Bench::new(test, 0) else { return };
    let mut tables = Tables::new(bench.tlp_ports(), 1).unwrap();
    for bits in 0..0xFFF {
        let to = weft_parsers::fabric::DrtEntry::Port(4);
        tables.set_drt(bits, &[to]).unwrap();
    }
    let mut edge = host_edge(16, 8);
    // Their addresses begin at 4 GiB, below any segment, and PIF is set where they have no OHC: what has a PTH goes
    // from switch to switch, and nothing else.
    edge.configure_fast(0, Hpa(1 << 40), Hpa(2 << 40)).unwrap();
    tables.set_edge(port(0), Some(edge)).unwrap();
    bench.set(tables, |_| {});
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps/tlp/link.pcap");
    for input in [0, 1, 3, 4, 5, 6].map(port) {
        let mut reader = CaptureReader::open(&kept).unwrap();
        let mut record = Record::default();
        while reader.read_into(&mut record).unwrap() {
            // Twice: the first one tells who is at the link's other end.
            for _ in 0..2 {
                bench.run(input, &record.data).unwrap();
            }
        }
    }
    println!("{} passed: {:?}", bench.passed, bench.sent);
    assert!(bench.sent[3][4] > 10, "{:?}", bench.sent);
    assert_eq!(bench.kernel.counts(), bench.counted);
}

/// TLPs of every length about the shortest frame, with padding and without, on each of the four ways: all are sent.
#[test]
fn tlps_of_every_length_are_sent() {
    let test = "tlps_of_every_length_are_sent";
    let Some(mut bench) = Bench::new(test, 0) else { return };
    let (mut tables, pid) = (Tables::new(bench.tlp_ports(), 1).unwrap(), Pid::from_low_bits);
    let mut edge = host_edge(16, 4);
    let mut access = weft_dataplane::pbr::Access::default();
    access.gmv.allow(pid(0x200)).unwrap();
    edge.set_access(access.into());
    edge.configure_fast(0, Hpa(1 << 40), Hpa(2 << 40)).unwrap();
    let (interleave, target) = (Interleave::NONE, Target::Direct(pid(0x200)));
    edge.set_fast(0, &[Some(FastEntry { gim: false, interleave, target })]).unwrap();
    tables.set_edge(port(0), Some(edge)).unwrap();
    let mut gfd = host_edge(1, 0);
    (gfd.role, gfd.pid) = (Role::Gfd, pid(0x202));
    tables.set_edge(port(2), Some(gfd)).unwrap();
    for (bits, to) in [(0x200, 3), (0x201, 4), (0x202, 2), (0x0A1, 0)] {
        tables.set_drt(bits, &[weft_parsers::fabric::DrtEntry::Port(to)]).unwrap();
    }
    bench.set(tables, |_| {});
    let words = LinkWords::new(Oui::DEFAULT);
    for (input, output, dpid) in [(0, 3, 0), (3, 4, 0x201), (3, 2, 0x202), (3, 0, 0x0A1)] {
        let mut count = 0;
        for (first, payload) in (0..40).flat_map(|n| [(0x60, n), (0x61, n), (0x20, 0), (0x40, n)]) {
            if first & 0x40 != 0 && payload == 0 {
                continue;
            }
            let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 9, 9, 1];
            if dpid == 0 {
                frame.extend(words.hbr.to_be_bytes());
            } else {
                frame.extend(words.pbr.to_be_bytes());
                frame.extend(Pth::new(pid(0x123), pid(dpid)).emit());
            }
            frame.extend([first, 0, 0, payload.max(1), 1, 2, 3, 4]);
            let address = (1_u64 << 40 | 0x1000).to_be_bytes();
            // A narrow one is below the window.
            frame.extend(if first == 0x40 { &address[4..] } else { &address[..] });
            frame.extend((0..usize::from(payload) * 4).map(|n| n.to_be_bytes()[7] | 1));
            for more in [0, 1, 4, 40] {
                let mut frame = frame.clone();
                frame.resize(frame.len().max(SHORTEST), 0);
                frame.extend(vec![0x5A; more]);
                let before = bench.sent[input][output];
                bench.run(port(input), &frame).unwrap();
                let sent = bench.sent[input][output] - before;
                let goes = frame.len() <= draw::FRAME_LEN_MAX && (dpid != 0 || first != 0x40);
                // The first one tells who is at the link's other end.
                assert_eq!(
                    sent == 1,
                    goes && (count > 0 || input == 3 && output != 4),
                    "{input} to {output}: {frame:02x?}"
                );
                count += 1;
            }
        }
    }
    assert_eq!(bench.kernel.counts(), bench.counted);
}

fn host_edge(entries: usize, idt: usize) -> EdgePort {
    let tables = (Fast::new(entries, idt).unwrap(), Ldst::new(1, 0).unwrap());
    EdgePort::new(Role::Usp, Pid::from_low_bits(0x0A1), tables.0, tables.1)
}

/// A bench where `frame` of port 3 is sent to port 4.
fn sending(test: &str) -> Option<(Bench, PortId, Vec<u8>)> {
    let mut bench = Bench::new(test, 0)?;
    let mut rng = Rng::new(3);
    loop {
        let tables = draw::tables(&mut rng, bench.tlp_ports());
        bench.set(tables.clone(), |_| {});
        for _ in 0..200 {
            let frame = draw::frame(&mut rng, &tables, port(3), Oui::DEFAULT);
            bench.run(port(3), &frame).unwrap();
            if bench.sent[3][4] > 0 {
                return Some((bench, port(3), frame));
            }
        }
    }
}

/// A TLP waits for those before it, for its output, and for who is at the other end.
#[test]
fn gates_hold_tlps_back() {
    let Some((mut bench, input, frame)) = sending("gates_hold_tlps_back") else { return };
    let words = bench.kernel.xdp.shared().clone();
    let sent = |bench: &mut Bench| {
        let before = bench.sent[3][4];
        bench.run(input, &frame).unwrap();
        bench.sent[3][4] - before
    };
    assert_eq!(sent(&mut bench), 1);
    words.set_open(4, 0);
    assert_eq!(sent(&mut bench), 0, "paused, down, or something is queued");
    words.set_open(4, 0xFF);
    assert_eq!(sent(&mut bench), 1);
    let handed = words.handed(3, 0, 0);
    words.set_done(3, 0, 0, handed - 1);
    bench.kernel.run(input, &[frame.as_slice(), &[0; 4]].concat());
    words.set_done(3, 0, 0, handed - 1);
    let trial = Trial::run(bench.kernel.programs[3].as_fd(), &frame).unwrap();
    assert!(trial.meta.is_some(), "one before it is still in user space");
    words.set_done(3, 0, 0, words.handed(3, 0, 0));
    assert_eq!(sent(&mut bench), 1);
    bench.kernel.xdp.set_partner(3, 0x0200_0000_0001);
    let trial = Trial::run(bench.kernel.programs[3].as_fd(), &frame).unwrap();
    assert!(trial.meta.is_some(), "somebody else speaks");
}

/// Tables in the maps are the switch's: as they are read back, and by what each address leads to.
#[test]
fn the_mirror_holds_what_the_tables_say() {
    let test = "the_mirror_holds_what_the_tables_say";
    let lanes = Lanes::new(draw::config(0));
    let Some(mut kernel) = Kernel::new(test, lanes.core()) else { return };
    let ports = lanes.core().snapshot.load().tlp_ports;
    let mut rng = Rng::new(5);
    for _ in 0..20 {
        let tables = draw::tables(&mut rng, ports);
        let mirrored = fabric::compile(&tables, ports);
        kernel.xdp.set_fabric(&mirrored).unwrap();
        assert_eq!(kernel.xdp.fabric_like(&mirrored).unwrap(), mirrored);
        let mut hits = 0;
        for id in [0, 1, 6].map(port) {
            let (edge, from) = (&mirrored.edges[id.index()], tables.edge(id).unwrap());
            for _ in 0..500 {
                let (_, base, limit) = from.fast().segments().config();
                let address =
                    base.0.wrapping_sub(1 << 36) + rng.below(limit.0 - base.0 + (2 << 36));
                let found = edge.lookup(
                    address & !3,
                    |at| mirrored.segments[at as usize],
                    |at| mirrored.idt[at as usize],
                );
                let want = match from.fast().lookup(Hpa(address & !3)) {
                    Found::Hit { flag: false, dpid } => Some(dpid.bits()),
                    _ => None,
                };
                assert_eq!(found, want, "{address:#x}");
                hits += u64::from(want.is_some());
            }
        }
        assert!(hits > 300, "{hits}");
    }
}

/// An edge whose tables find no room is left to the pipeline, and those after it are not.
#[test]
fn tables_without_room_are_the_pipelines() {
    let lanes = Lanes::new(draw::config(0));
    let ports = lanes.core().snapshot.load().tlp_ports;
    let mut tables = Tables::new(ports, 1).unwrap();
    for (at, entries) in [(0, 1 << 15), (1, 1 << 14), (2, 1 << 15), (6, 1 << 14)] {
        let mut edge = host_edge(entries, 4);
        let mut access = weft_dataplane::pbr::Access::default();
        access.gmv.allow(Pid::from_low_bits(1)).unwrap();
        edge.set_access(access.into());
        edge.configure_fast(0, Hpa(1 << 40), Hpa(2 << 40)).unwrap();
        let (interleave, target) = (Interleave::NONE, Target::Direct(Pid::from_low_bits(1)));
        edge.set_fast(0, &[Some(FastEntry { gim: false, interleave, target })]).unwrap();
        tables.set_edge(port(at), Some(edge)).unwrap();
    }
    let mirrored = fabric::compile(&tables, ports);
    let is_held = |at: usize| mirrored.edges[at].bytes != 0;
    assert_eq!([0, 1, 2, 6].map(is_held), [true, true, false, true]);
    assert_eq!(mirrored.segments.len(), SEGMENTS);
    assert_eq!(mirrored.gmv[6][0], 2);
}
