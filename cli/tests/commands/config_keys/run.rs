//! Small replays: a switch of three ports at 1 Gbit/s, a few frames, and the output.
//!
//! A [`Flow`] has frames and a configuration; [`replay`] runs them; [`Run`] is `result.json` and captures.
//!
//! Source: docs/spec/pipeline.md §13.

use serde_json::Value;
use weft_config::{Config, Settings, Timing};
use weft_control::replay::sources::Source;
use weft_control::replay::{Inputs, Job};
use weft_dataplane::port::capture::{
    CaptureFormat, CaptureName, CaptureReader, CaptureWriter, Choice, Record,
};
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_hosts::frames::{FrameSpec, Kind, Station};
use weft_hosts::sizes::Sizes;
use weft_hosts::stamp::Stamp;
use weft_parsers::{Dscp, Pcp, Pfc, Vid};

/// Station 2 is behind p1, station 3 behind p2.
pub const THREE: &str = "\
[[port]]
name = \"p0\"
[[port]]
name = \"p1\"
[[port]]
name = \"p2\"
[[static_entry]]
addr = \"02:00:00:00:00:02\"
port = \"p1\"
[[static_entry]]
addr = \"02:00:00:00:00:03\"
port = \"p2\"
[[group]]
addr = \"01:00:5e:00:00:07\"
ports = [\"p1\"]
";

/// A port, a stamp and a frame.
pub type Arrival = (usize, u64, Vec<u8>);

/// Frames of a run.
#[derive(Clone, Copy, Debug)]
pub enum Flow {
    /// Ten frames of 256 bytes from p0 to station 2: Standard with a DSCP.
    Ten(u8),
    /// The same with UDP to port 5000, which is not Standard by default.
    Udp,
    /// The same in another format.
    Of(Kind),
    /// Standard frames of DSCP 0 with a tag: PCP and VLAN.
    Tagged(u8, u16),
    /// Plain Ethernet: broadcast, to a group, or to an unknown station.
    Broadcast,
    Group,
    /// As LLDP sends.
    Reserved,
    Unknown,
    /// p0 and p2 send 1,000 frames of 1,000 bytes each to station 2 at the rate of the link; DSCP and UDP port.
    Incast(u8, u16),
    /// The same at two DSCPs, 0 from p0 and this one from p2, with frames of 500 bytes.
    Two(u8),
    /// Three stations speak at p0, then each is spoken to from p2, after so many ms.
    Learn(u64),
    /// Ten frames with an MPLS label of this EXP.
    Mpls(u8),
    /// 200 of them.
    Many,
    /// A station is heard at p0 and p2 by turns, 40 times in 80 ms, and goes on at p2 for 3 s.
    Loop,
    /// Class 0 of p1 is paused for 300 ms and again from 450 to 750 ms, while p0 sends to it.
    Storm,
}

pub fn bytes(spec: &FrameSpec, seq: u64) -> Vec<u8> {
    spec.to_vec(&Stamp { stream: 1, seq, sent: Instant::ZERO }, 1).unwrap()
}

pub fn spec(kind: Kind, src: u16, dst: Station) -> FrameSpec {
    FrameSpec::new(kind, Station::numbered(src), dst).with_sizes(Sizes::Fixed(256))
}

/// To 01-80-C2-00-00-0X.
pub fn to_reserved(digit: u8) -> FrameSpec {
    let mac = weft_parsers::MacAddr([1, 0x80, 0xC2, 0, 0, digit]);
    spec(Kind::Ethernet, 100, Station { mac, ..Station::ALL })
}

/// Ten frames from p0, 10 us apart.
fn ten(spec: &FrameSpec) -> Vec<Arrival> {
    (0..10).map(|seq| (0, seq * 10_000, bytes(spec, seq))).collect()
}

/// Ten frames from p0 with two labels, the upper one with `exp`, the lower one with another.
fn ten_mpls(exp: u8) -> Vec<Arrival> {
    let ether_type = weft_parsers::ether_type::MPLS;
    let mut frames =
        ten(&FrameSpec { ether_type, ..spec(Kind::Ethernet, 9, Station::numbered(2)) });
    for (_, _, frame) in &mut frames {
        frame[14..22].copy_from_slice(&[0, 1, exp << 1, 64, 0, 2, (!exp & 7) << 1 | 1, 64]);
    }
    frames
}

fn incast(dscps: [u8; 2], dport: u16) -> Vec<Arrival> {
    let mut frames = Vec::new();
    for (port, dscp) in [0_usize, 2].into_iter().zip(dscps) {
        let source = if port == 0 { 20 } else { 22 };
        let mut spec = spec(Kind::Standard, source, Station::numbered(2));
        let alike = dscps.iter().all(|&other| other == dscp);
        spec.sizes = Sizes::Fixed(if port == 0 || alike { 1_000 } else { 500 });
        (spec.dscp, spec.dport) = (Dscp::new(dscp).unwrap(), dport);
        frames.extend((0..1_000).map(|seq| (port, seq * 8_192, bytes(&spec, seq))));
    }
    frames
}

fn learn(stations: u16, after_ms: u64) -> Vec<Arrival> {
    let say = |number: u16| bytes(&spec(Kind::Ethernet, 100 + number, Station::ALL), 0);
    let ask = |number: u16| bytes(&spec(Kind::Ethernet, 9, Station::numbered(100 + number)), 0);
    let at = |number: u16| u64::from(number) * 10_000;
    let said = (0..stations).map(|n| (0, at(n), say(n)));
    said.chain((0..stations).map(|n| (2, after_ms * 1_000_000 + at(n), ask(n)))).collect()
}

fn moves() -> Vec<Arrival> {
    let frame = bytes(&spec(Kind::Ethernet, 100, Station::numbered(2)), 0);
    let ms = 1_000_000;
    let by_turns = (0..40).map(|n| (if n % 2 == 0 { 0 } else { 2 }, 2 * n * ms));
    let later = (1..30).map(|n| (2, n * 100 * ms));
    by_turns.chain(later).map(|(port, at)| (port, at, frame.clone())).collect()
}

fn storm() -> Vec<Arrival> {
    let mut pause = FrameSpec::new(Kind::Pfc, Station::numbered(2), Station::numbered(2));
    pause.pfc = Pfc { enable: 1, quanta: [0; 8] }.with(0, 0xFFFF);
    let ms = 1_000_000;
    let paused = (0..300).chain(450..750).step_by(10);
    let pauses = paused.map(|at| (1, at * ms, bytes(&pause, 0)));
    let data = spec(Kind::Standard, 9, Station::numbered(2));
    pauses.chain((0..80).map(|n| (0, n * 10 * ms, bytes(&data, n)))).collect()
}

impl Flow {
    fn frames(self) -> Vec<Arrival> {
        let to_two = Station::numbered(2);
        let standard = spec(Kind::Standard, 9, to_two);
        match self {
            Self::Ten(dscp) => ten(&FrameSpec { dscp: Dscp::new(dscp).unwrap(), ..standard }),
            Self::Udp => ten(&FrameSpec { dport: 5_000, ..standard }),
            Self::Of(kind) => ten(&spec(kind, 9, to_two)),
            Self::Tagged(pcp, vid) => {
                ten(&standard.with_vlan(Pcp::from_low_bits(pcp), Vid::from_low_bits(vid)))
            }
            Self::Mpls(exp) => ten_mpls(exp),
            Self::Broadcast => ten(&spec(Kind::Ethernet, 9, Station::ALL)),
            Self::Group => {
                let mac = weft_parsers::MacAddr([1, 0, 0x5E, 0, 0, 7]);
                ten(&spec(Kind::Ethernet, 9, Station { mac, ..to_two }))
            }
            Self::Reserved => ten(&to_reserved(0x0E)),
            Self::Unknown => ten(&spec(Kind::Ethernet, 9, Station::numbered(77))),
            Self::Incast(dscp, dport) => incast([dscp; 2], dport),
            Self::Two(dscp) => incast([0, dscp], 4_791),
            Self::Learn(after_ms) => learn(3, after_ms),
            Self::Many => learn(200, 10),
            Self::Loop => moves(),
            Self::Storm => storm(),
        }
    }
}

/// The result of a run.
pub struct Run {
    result: Value,
    /// By port: stamp in ns and bytes of each frame that left.
    pub sent: Vec<Vec<(u64, Vec<u8>)>>,
}

impl Run {
    /// A number of `result.json`; 0 if it is missing.
    pub fn number(&self, at: &str) -> String {
        self.result.pointer(at).map_or_else(|| "0".to_owned(), ToString::to_string)
    }
}

/// Frames of `flow` through a switch of configuration `text`.
pub fn replay(flow: Flow, text: &str) -> Run {
    run(flow.frames(), text)
}

/// `frames` through a switch of configuration `text`.
pub fn run(mut frames: Vec<Arrival>, text: &str) -> Run {
    let settings = Settings::read("f", text).unwrap();
    let config = Config::resolve(&settings, Timing::Virtual)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let dir = tempfile::tempdir().unwrap();
    frames.sort_by_key(|&(port, at, _)| (port, at));
    let mut inputs = Vec::new();
    for port in 0..3 {
        let path = dir.path().join(format!("in{port}.pcap"));
        let mut writer = CaptureWriter::create(&path, CaptureFormat::Pcap, 0).unwrap();
        let interface = writer.add_interface("in").unwrap();
        for (_, at, frame) in frames.iter().filter(|(of, ..)| *of == port) {
            let meta =
                weft_dataplane::port::capture::Meta { ts_ns: *at, interface, ..Default::default() };
            writer.write_with(meta, frame).unwrap();
        }
        writer.finish().unwrap();
        if frames.iter().any(|(of, ..)| *of == port) {
            let name = CaptureName { path, choice: Choice::Ethernet };
            inputs.push((PortId::new(port).unwrap(), Source::new(name)));
        }
    }
    let inputs = Inputs::open(&inputs, None).unwrap();
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let job = Job { config: &config, out: &out, drop_runts: false, look: None };
    let report = weft_control::replay::run(&job, inputs, None, &|_| ()).unwrap();
    assert_eq!((report.conservation.imbalance, report.violation_count), (0, 0), "{text}");
    let read = |name: &str| {
        let mut reader = CaptureReader::open(out.join(format!("{name}.pcap"))).unwrap();
        let (mut record, mut frames) = (Record::default(), Vec::new());
        while reader.read_into(&mut record).unwrap() {
            frames.push((record.ts_ns, record.data.clone()));
        }
        frames
    };
    let sent = config.switch.ports.iter().map(|port| read(&port.name)).collect();
    Run { result: serde_json::to_value(&report).unwrap(), sent }
}
