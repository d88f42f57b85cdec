//! Memory end to end over veth: two hosts, an accelerator and four G-FAM devices as processes, and what is on their links.
//!
//! `weft fabric up --processes` of `pcaps/fabric/gfam.toml` → ranges written by one requester and read by another;
//! traces of the manager held against captured frames, which are read here by their bytes.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.5 to §3.7a, §5.1, §5.2; packet(7).
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use weft_base::rng::Rng;
use weft_base::wait::pause;
use weft_lab::fabric::layout::{End, Layout, Part};
use weft_lab::fabric::processes::manager_socket;
use weft_lab::fabric::topology::Topology;
use weft_tests::fabric_up::Up;
use weft_tests::netns::{Net, weft};
use weft_tests::stations::{Station, index_of};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcaps/fabric/gfam.toml");
/// Every granularity that there is.
const GRANULARITIES: [u64; 7] = [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384];
const REQUESTERS: [&str; 3] = ["h0", "h1", "xpu0"];
const GFDS: [&str; 4] = ["g0", "g1", "g2", "g3"];
/// The share of the n-th granularity begins at this plus n segments.
const BASE: u64 = 1 << 40;
const SEGMENT: u64 = 64 << 30;
/// Bytes of a share in each GFD.
const BLOCK: u64 = 16 << 20;
const MIB: u64 = 1 << 20;

/// The fabric of the file.
struct Gfam(Up);

impl Gfam {
    fn start(test: &str) -> Option<Self> {
        Up::start_text(test, &std::fs::read_to_string(FILE).unwrap(), &[]).map(Self)
    }

    /// Asks a part; what it answers must be well.
    fn ask(&self, name: &str, request: &Value) -> Value {
        let answer = ask(&self.0.folder().join(name).join("endpoint.sock"), request);
        answer.get("ok").cloned().unwrap_or_else(|| panic!("{name} {request}: {answer}"))
    }

    /// Asks the manager; what it answers must be well.
    fn manager(&self, request: &Value) -> Value {
        let answer = ask(&manager_socket(self.0.folder()), request);
        answer.get("ok").cloned().unwrap_or_else(|| panic!("{request}: {answer}"))
    }

    /// Has a requester write a range, or read and compare it.
    fn transfer(&self, name: &str, write: bool, addr: u64, len: u64, seed: u64) {
        let cmd = match (name.starts_with('h'), write) {
            (true, true) => "write",
            (true, false) => "read",
            (false, true) => "dma_write",
            (false, false) => "dma_read",
        };
        let request = json!({ "cmd": cmd, "addr": addr, "len": len, "seed": seed });
        let report = self.ask(name, &request)["transfer"].clone();
        let done = if write { &report["written"] } else { &report["read"] };
        assert_eq!((&report["ok"], done), (&json!(true), &json!(len)), "{name} {request} {report}");
    }

    /// Bytes that each GFD has had written, and has been asked for.
    fn counts(&self) -> [[u64; 2]; 4] {
        GFDS.map(|name| {
            let status = self.ask(name, &json!({ "cmd": "status" }));
            let counts = &status["status"]["counts"]["gfd"];
            ["bytes_written", "bytes_read"].map(|what| counts[what].as_u64().unwrap())
        })
    }

    /// One requester writes 1 MiB and another one reads it back; GFDs of `who` have their part, the others nothing.
    fn round(&self, nth: usize, addr: u64, who: &[usize]) {
        let before = self.counts();
        let seed = nth as u64 + 1;
        self.transfer(REQUESTERS[nth % 3], true, addr, MIB, seed);
        self.transfer(REQUESTERS[(nth + 1) % 3], false, addr, MIB, seed);
        let each = MIB / who.len() as u64;
        for (at, (after, before)) in self.counts().iter().zip(&before).enumerate() {
            let own = if who.contains(&at) { each } else { 0 };
            let got = [after[0] - before[0], after[1] - before[1]];
            assert_eq!(got, [own; 2], "{} of {who:?}, {addr:#x}", GFDS[at]);
        }
    }
}

/// Sends a line to a socket and returns the line that comes back.
fn ask(socket: &Path, request: &Value) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    writeln!(stream, "{request}").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// 4, 2 and 1 ways at every granularity, 1 MiB each: written by one requester, read by another, dealt out exactly. The
/// shares of 2 ways and of one are given while all runs, instead of those of the file.
#[test]
fn every_granularity_over_veth() {
    let Some(up) = Gfam::start("every_granularity_over_veth") else { return };
    for nth in 0..GRANULARITIES.len() {
        up.round(nth, BASE + nth as u64 * SEGMENT + nth as u64 * MIB, &[0, 1, 2, 3]);
    }
    let sets: [&[usize]; 7] = [&[0, 1], &[2, 3], &[1, 0], &[0, 3], &[3, 2], &[1, 3], &[2, 0]];
    for ways in [2, 1] {
        for granule in GRANULARITIES {
            let old =
                if ways == 2 { format!("four-{granule}") } else { format!("fewer-{granule}") };
            up.manager(&json!({ "cmd": "release", "name": old }));
        }
        for (nth, (granule, who)) in GRANULARITIES.iter().zip(sets).enumerate() {
            let gfds: Vec<&str> = who[..ways].iter().map(|at| GFDS[*at]).collect();
            let share = json!({
                "cmd": "share", "name": format!("fewer-{granule}"), "hosts": REQUESTERS, "gfds": gfds,
                "size": ways as u64 * BLOCK, "granularity": granule,
                "hpa": BASE + nth as u64 * SEGMENT,
            });
            up.manager(&share);
        }
        let mut map = Command::new(weft());
        let mapped =
            map.args(["fabric", "map", FILE, "--dir"]).arg(up.0.folder()).output().unwrap();
        assert!(mapped.status.success(), "{}", String::from_utf8_lossy(&mapped.stderr));
        for (nth, who) in sets.into_iter().enumerate() {
            up.round(nth + ways, BASE + nth as u64 * SEGMENT + MIB, &who[..ways]);
        }
    }
    up.0.stop();
}

/// What docs/spec/wire-formats.md §3.7a, §3.7 and §3.5 say of a frame: protocol, SPID and DPID, and of the TLP what is
/// looked at.
#[derive(Clone, Debug)]
struct Seen {
    /// The end that it came to.
    at: End,
    /// Flags, SPID and DPID of its PTH.
    pth: Option<(u8, u16, u16)>,
    kind: u8,
    requester: u16,
    tag: u16,
    addr: u64,
    payload: Vec<u8>,
}

const UIO_WRITE: u8 = 0x61;
const UIO_WRITE_COMPLETION: u8 = 0x0C;

impl Seen {
    fn read(at: End, frame: &[u8]) -> Option<Self> {
        if frame.get(12..17)? != [0x88, 0xB7, 0x02, 0x57, 0x46] || frame[19] >> 4 != 1 {
            return None;
        }
        let rest = &frame[20..];
        let (pth, tlp) = match u16::from_be_bytes([frame[17], frame[18]]) {
            1 if rest[0] >> 6 == 3 => {
                let spid = u16::from(rest[1]) << 4 | u16::from(rest[2] >> 4);
                let dpid = u16::from(rest[2] & 0xF) << 8 | u16::from(rest[3]);
                (Some((rest[0] & 7, spid, dpid)), &rest[4..])
            }
            2 => (None, rest),
            _ => return None,
        };
        let kind = tlp[0];
        let dw = |at: usize| u32::from_be_bytes([tlp[at], tlp[at + 1], tlp[at + 2], tlp[at + 3]]);
        let tag = u16::from_be_bytes([tlp[6], tlp[7]]) & 0x3FFF;
        let (requester, addr, payload) = match kind {
            UIO_WRITE => {
                let ohc = (tlp[1] & 7).count_ones() as usize; // one double word each of A, B and C
                let len = (dw(0) & 0x3FF) as usize * 4;
                let addr = u64::from(dw(8)) << 32 | u64::from(dw(12) & !3);
                let from = 16 + 4 * ohc;
                (dw(4) >> 16, addr, tlp[from..from + len].to_vec())
            }
            UIO_WRITE_COMPLETION => (dw(8) >> 16, 0, Vec::new()),
            _ => return None,
        };
        let requester = u16::try_from(requester).unwrap();
        Some(Self { at, pth, kind, requester, tag, addr, payload })
    }

    /// The link as a trace names it: from where it came to where it came, or to the PID of who is there.
    fn link(&self, layout: &Layout) -> String {
        let wire = layout.wires.iter().find(|ends| ends.contains(&self.at)).unwrap();
        let from = wire.iter().find(|end| **end != self.at).unwrap();
        let place = |end: &End| match end.part {
            Part::Switch(at) => format!("{}.{}", layout.switches[at].name, end.port),
            _ => format!("{:03x}", self.pth.unwrap().2),
        };
        format!("{} - {}", place(from), place(&self.at))
    }
}

/// All links of the fabric, listened to.
struct Tap<'a> {
    station: Station,
    ends: Vec<(i32, End)>,
    layout: &'a Layout,
}

impl<'a> Tap<'a> {
    fn new(net: &Net, layout: &'a Layout) -> Self {
        let names = net.within("sw", || {
            let number = |name: String| index_of(&name).unwrap();
            let both = |at| [number(format!("wf{at}a")), number(format!("wf{at}b"))];
            (0..layout.wires.len()).map(both).collect::<Vec<_>>()
        });
        let ends = names.iter().zip(&layout.wires);
        let ends = ends.flat_map(|(names, ends)| [(names[0], ends[0]), (names[1], ends[1])]);
        Self { station: Station::hearer(net, "sw"), ends: ends.collect(), layout }
    }

    /// What came by, of the kinds that are looked at, in its order; nothing is lost.
    fn take(&mut self) -> Vec<Seen> {
        pause(Duration::from_millis(2)); // for a frame more than there must be
        let (mut all, ends) = (Vec::new(), &self.ends);
        while self.station.receive(|index, frame| {
            let end = ends.iter().find(|(number, _)| *number == index);
            all.extend(end.and_then(|(_, end)| Seen::read(*end, frame)));
        }) > 0
        {}
        assert_eq!(self.station.lost(), 0);
        all
    }

    /// Holds what came by against a trace of the write that was made.
    fn check(&mut self, hpa: u64, data: &[u8], trace: &Value) -> bool {
        let seen = self.take();
        let [spid, dpid] = ["spid", "dpid"].map(|what| trace[what].as_u64().unwrap());
        let (spid, dpid) = (u16::try_from(spid).unwrap(), u16::try_from(dpid).unwrap());
        let writes: Vec<&Seen> =
            seen.iter().filter(|one| one.kind == UIO_WRITE && one.addr == hpa).collect();
        let (first, inside) = writes.split_first().unwrap();
        assert!(first.pth.is_none() && matches!(first.at.part, Part::Switch(_)), "{first:?}");
        for one in &writes {
            assert_eq!((&one.payload[..], one.tag), (data, first.tag), "{one:?}");
        }
        // Behind the edge each frame has the PIDs that the trace tells, no PIF and no Hie, and the host's address.
        for one in inside {
            let (flags, from, to) = one.pth.unwrap();
            assert_eq!((flags & 0b101, from, to), (0, spid, dpid), "{one:?} {trace}");
        }
        let names = |what: &str| -> Vec<String> {
            let list = trace[what].as_array().unwrap();
            list.iter().map(|one| one.as_str().unwrap().to_owned()).collect()
        };
        let (hops, others) = (names("hops"), names("others"));
        let links: Vec<String> = inside.iter().map(|one| one.link(self.layout)).collect();
        if others.is_empty() {
            assert_eq!(links, hops, "{trace}");
        }
        assert_eq!(links.len(), hops.len(), "{links:?} {trace}");
        for link in &links {
            assert!(hops.contains(link) || others.contains(link), "{link}: {trace}");
        }
        for two in inside.windows(2) {
            let (came, went) = (two[0].link(self.layout), two[1].link(self.layout));
            let switch = |text: &str| text.split('.').next().unwrap().to_owned();
            assert_eq!(switch(came.split(" - ").nth(1).unwrap()), switch(&went), "{came}, {went}");
        }
        // The completion comes back with the PIDs exchanged, and to who asked.
        let back = |one: &&Seen| {
            one.kind == UIO_WRITE_COMPLETION
                && (one.tag, one.requester) == (first.tag, first.requester)
        };
        let answers: Vec<&Seen> = seen.iter().filter(back).collect();
        assert_eq!(answers.len(), writes.len(), "{seen:?}");
        for one in answers.iter().take(inside.len()) {
            let (_, from, to) = one.pth.unwrap();
            assert_eq!((from, to), (dpid, spid), "{one:?} {trace}");
        }
        assert!(answers.last().unwrap().pth.is_none());
        !others.is_empty()
    }
}

/// Random addresses of random requesters: DPID, SPID, ports and DPA of the trace are those of the frames that were
/// captured on the links, and of the GFD's memory.
#[test]
fn a_trace_is_what_the_frames_did() {
    let Some(up) = Gfam::start("a_trace_is_what_the_frames_did") else { return };
    let layout = Layout::new(&Topology::parse(&std::fs::read_to_string(FILE).unwrap()).unwrap());
    let layout = layout.unwrap();
    let pids = GFDS.map(|name| {
        let status = up.ask(name, &json!({ "cmd": "status" }));
        let pid = status["status"]["detail"]["pid"].as_str().unwrap();
        u64::from_str_radix(pid, 16).unwrap()
    });
    let mut tap = Tap::new(up.0.net(), &layout);
    let mut rng = Rng::new(0x7_3A);
    let mut several = 0;
    for _ in 0..96 {
        let name = REQUESTERS[usize::try_from(rng.below(3)).unwrap()];
        let hpa = BASE + rng.below(7) * SEGMENT + rng.below(4 * BLOCK / 64) * 64;
        let trace = up.manager(&json!({ "cmd": "trace", "host": name, "hpa": hpa }));
        let trace = &trace["trace"];
        assert_eq!(trace["end"], "memory", "{trace}");
        assert!(!trace.to_string().contains("not asked"), "its host says what FAST has: {trace}");
        let data: Vec<u8> = (0..8).flat_map(|_| rng.below(u64::MAX).to_le_bytes()).collect();
        let digits = data.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        tap.take(); // what the manager asked
        let cmd = if name == "xpu0" { "dma_write" } else { "write" };
        let done = up.ask(name, &json!({ "cmd": cmd, "addr": hpa, "data": digits }));
        assert_eq!(done["transfer"]["ok"], true, "{done}");
        several += usize::from(tap.check(hpa, &data, trace));
        let place = pids.iter().position(|pid| Some(*pid) == trace["dpid"].as_u64()).unwrap();
        let peek = json!({ "cmd": "peek", "addr": trace["dpa"], "len": 64, "data": digits });
        let there = up.ask(GFDS[place], &peek);
        assert_eq!(there["transfer"]["ok"], true, "{there} {trace}");
    }
    assert!(several > 10 && several < 90, "{several} ways had a choice of links");
    up.0.stop();
}
