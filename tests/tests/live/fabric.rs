//! A running switch of ports with roles, commanded by bytes over its CCI socket.
//!
//! `weft run` with a usp and two fports in a namespace; raw requests over a Unix socket; TLPs of
//! `pcaps/tlp/link.pcap` in at one wire and out at another, by the pipeline and past it.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Inside: DRT", "The fabric manager"; docs/spec/wire-formats.md §3.7a, §4.1, §4.5.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use weft_base::wait::{LONG, pause, until};
use weft_dataplane::port::capture::{CaptureReader, Record};
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership};
use weft_parsers::cci::mctp::{self, Decoded, MessageType};
use weft_parsers::cci::{Header, Opcode, Request, ReturnCode};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::fast_frame::{LinkWords, PBR_AT};
use weft_parsers::tlp::{Oui, PbrTlp, Pth, TlpLink};
use weft_tests::netns::{Net, Switch};
use weft_tests::stations::{Station, index_of};

const PORTS: &str = "[[port]]\nname = \"h\"\nkind = \"af_packet\"\ndevice = \"s0\"\nrole = \"usp\"\n\
    [[port]]\nname = \"a\"\nkind = \"af_packet\"\ndevice = \"s1\"\nrole = \"fport\"\n\
    [[port]]\nname = \"b\"\nkind = \"af_packet\"\ndevice = \"s2\"\nrole = \"fport\"\npids = 2\n\
    [[vcs]]\nusp = \"h\"\nvppbs = 2\n";
/// Number of the frame in the capture, and the DPID that it follows from: 89 times the number.
const NUMBER: usize = 3;
const DPID: u16 = 267;

/// A manager.
struct Fm {
    stream: UnixStream,
    tag: u8,
}

impl Fm {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { stream, tag: 0 }
    }

    fn write(&mut self, message: &[u8]) {
        let mut out = vec![0; mctp::HEAD_LEN + message.len()];
        mctp::emit(MessageType::FmApi, message, &mut out).unwrap();
        self.stream.write_all(&out).unwrap();
    }

    fn read(&mut self) -> (Header, Vec<u8>) {
        let mut bytes = Vec::new();
        loop {
            if let Decoded::Message { message, rest, .. } = mctp::decode(&bytes).unwrap() {
                assert!(rest.is_empty(), "one answer to one request");
                let (header, payload) = Header::parse(message).unwrap();
                return (header, payload.to_vec());
            }
            let mut piece = [0; 4_096];
            let got = match self.stream.read(&mut piece) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                got => got.unwrap(),
            };
            assert!(got > 0, "closed");
            bytes.extend_from_slice(&piece[..got]);
        }
    }

    fn message(&mut self, request: &Request<'_>) -> Vec<u8> {
        self.tag = self.tag.wrapping_add(1);
        let mut bytes = vec![0; 16_384];
        let len = request.emit_message(self.tag, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    /// The answer to bytes that begin as a request's message.
    fn ask_raw(&mut self, message: &[u8]) -> (ReturnCode, Vec<u8>) {
        self.write(message);
        let (header, payload) = self.read();
        (header.return_code, payload)
    }

    fn ask(&mut self, request: &Request<'_>) -> (ReturnCode, Vec<u8>) {
        let message = self.message(request);
        let (code, payload) = self.ask_raw(&message);
        (code, payload)
    }

    /// A command with these bytes of payload.
    fn command(&mut self, opcode: u16, payload: &[u8]) -> (ReturnCode, Vec<u8>) {
        let mut message = self.message(&Request::Identify);
        message[3..5].copy_from_slice(&opcode.to_le_bytes());
        let len = u16::try_from(payload.len()).unwrap().to_le_bytes();
        message[5..7].copy_from_slice(&len);
        message.extend_from_slice(payload);
        self.ask_raw(&message)
    }

    /// Becomes the primary manager, and gives the switch its PID.
    fn claim(&mut self) {
        let claim = ClaimOwnership {
            op: ClaimOp::RegisterPrimary,
            fm: Pid::from_low_bits(1),
            fm_uuid: [1; 16],
            pid: Pid::from_low_bits(0x10),
        };
        assert_eq!(self.ask(&Request::ClaimOwnership(claim)).0, ReturnCode::Success);
    }

    /// Has [`DPID`] lead to a port; to none, without one.
    fn lead(&mut self, port: Option<u8>) {
        // Table 0, one entry from DPID on, kind 1 is a port.
        let ([low, high], kind) = (DPID.to_le_bytes(), u8::from(port.is_some()));
        self.ok(Opcode::SET_DRT, &[0, 0, 1, 0, low, high, kind, port.unwrap_or(0)]);
    }

    fn ok(&mut self, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
        let (code, answer) = self.command(opcode.0, payload);
        assert_eq!(code, ReturnCode::Success, "{opcode} {payload:02x?}");
        answer
    }

    /// LTSSM of a port: byte 11 of its 16, behind 4 of the answer.
    fn ltssm(&mut self, port: u8) -> u8 {
        self.ok(Opcode::GET_PORT_STATE, &[1, port])[4 + 11]
    }

    fn ends(mut self) -> bool {
        self.stream.read(&mut [0; 16]).is_ok_and(|got| got == 0)
    }
}

/// The capture's frame of [`NUMBER`].
fn frame() -> Vec<u8> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps/tlp/link.pcap");
    let mut reader = CaptureReader::open(kept).unwrap();
    let mut record = Record::default();
    for _ in 0..=NUMBER {
        assert!(reader.read_into(&mut record).unwrap());
    }
    record.data.clone()
}

/// DPIDs of PBR TLPs that come out of `f2`: `count` of them, and those of so many milliseconds after.
fn heard(net: &Net, ear: &mut Station, count: usize, more_ms: u64) -> Vec<Pid> {
    frames_heard(net, ear, count, more_ms).into_iter().map(|(dpid, _)| dpid).collect()
}

/// The same, with the whole frames.
fn frames_heard(net: &Net, ear: &mut Station, count: usize, more_ms: u64) -> Vec<(Pid, Vec<u8>)> {
    let index = net.within("far", || index_of("f2").unwrap());
    let mut frames = Vec::new();
    let mut hear = || {
        let mut take = |from, bytes: &[u8]| {
            let Ok((_, rest)) = TlpLink::parse(bytes.get(12..).unwrap_or_default(), Oui::DEFAULT)
            else {
                return;
            };
            // The agent asks who is there, by no DPID.
            if let (true, Ok(Some(tlp))) = (from == index, PbrTlp::parse(rest))
                && !tlp.pth().dpid.is_none()
            {
                frames.push((tlp.pth().dpid, bytes.to_vec()));
            }
        };
        while ear.receive(&mut take) > 0 {}
        frames.len()
    };
    until(LONG, format_args!("{count} frames"), || (hear() >= count).then_some(()));
    pause(Duration::from_millis(more_ms)); // in which no more may come
    hear();
    frames
}

/// A UIO write of 64 bytes behind a PTH, with a number as its tag.
fn numbered(number: u16) -> Vec<u8> {
    let pth = Pth::new(Pid::from_low_bits(0x123), Pid::from_low_bits(DPID));
    let mut frame = [[0xFF; 6], [2, 0, 0, 0, 0, 0x77]].concat();
    frame.extend(LinkWords::new(Oui::DEFAULT).pbr.to_be_bytes());
    frame.extend(pth.emit());
    frame.extend((0x61 << 24 | 16_u32).to_be_bytes());
    frame.extend([1, 2]);
    frame.extend(number.to_be_bytes());
    frame.extend((1_u64 << 40).to_be_bytes());
    frame.extend([0x77; 64]);
    frame
}

/// Where its tag is: behind addresses, link words, PTH and six bytes of the TLP.
const TAG_AT: usize = PBR_AT + 6;

fn config(folder: &Path, ports: &str) -> String {
    let cci = folder.join("cci/cci.sock").display().to_string();
    format!(
        "[fabric]\nuuid = \"5ed8a1c0-0000-4000-8000-000000000007\"\ncci = {cci:?}\nfast = 64\nldst = 64\n{ports}"
    )
}

/// Identify, port state, DRT, ownership; what is wrong is refused, and what is malformed closes its connection alone.
#[test]
fn managers_command_a_running_switch() {
    let test = "managers_command_a_running_switch";
    let Some(mut net) = Net::new(test) else { return };
    net.add_wires(3);
    let folder = Switch::folder(&net);
    let good = config(&folder, PORTS);
    let switch = Switch::start(&net, &[], &good);
    let path = folder.join("cci/cci.sock");
    let (mut fm, mut other) = (Fm::connect(&path), Fm::connect(&path));
    let (code, identity) = fm.ask(&Request::Identify);
    assert_eq!((code, &identity[..2]), (ReturnCode::Success, &0x1E98_u16.to_le_bytes()[..]));
    assert_eq!(fm.command(0x4321, &[]).0, ReturnCode::Unsupported);
    let long = fm.command(Opcode::IDENTIFY.0, &[1]).0;
    assert_eq!(long, ReturnCode::InvalidPayloadLength);
    assert_eq!(
        fm.command(Opcode::SET_DRT.0, &[0; 8]).0,
        ReturnCode::Unsupported,
        "nobody's primary"
    );

    fm.claim();
    assert!(!fm.ok(Opcode::IDENTIFY_PBR_SWITCH, &[]).is_empty());
    until(LONG, "links are up", || (0..3).all(|port| fm.ltssm(port) == 4).then_some(()));

    // Nothing leads there, then port 2 does.
    let mut ear = Station::hearer(&net, "far");
    let mouth = Station::sender(&net, "far", "f1");
    assert_eq!(mouth.send(&[frame()]), 1);
    assert_eq!(heard(&net, &mut ear, 0, 200), []);
    let [low, high] = DPID.to_le_bytes();
    fm.lead(Some(2));
    let drt = fm.ok(Opcode::GET_DRT, &[0, 0, 1, 0, low, high]);
    assert_eq!(drt[drt.len() - 2..], [1, 2]);
    assert_eq!(mouth.send(&[frame()]), 1);
    assert_eq!(heard(&net, &mut ear, 1, 50), [Pid::from_low_bits(DPID)]);
    assert_eq!(
        fm.command(Opcode::SET_DRT.0, &[0, 0, 1, 0, low, high, 1, 9]).0,
        ReturnCode::InvalidInput
    );

    // A second manager beside the first, which may ask and not command.
    assert_eq!(other.ask(&Request::Identify).0, ReturnCode::Success);
    assert_eq!(
        other.command(Opcode::SET_DRT.0, &[0, 0, 1, 0, low, high, 0, 0]).0,
        ReturnCode::Unsupported
    );
    other.stream.write_all(&[5, 0, 0x55, 0, 0, 0, 0]).unwrap(); // no such message type
    assert!(other.ends());
    assert_eq!(fm.ask(&Request::Identify).0, ReturnCode::Success);

    let shown = switch.show("fabric");
    assert_eq!((&shown["pid"], &shown["cci"]["malformed"]), (&"010".into(), &1.into()));
    let row = serde_json::json!({ "dpid": "10b", "to": "port b" });
    assert!(shown["drt"].as_array().unwrap().contains(&row), "{shown}");
    assert!(switch.ask("show fabric").unwrap().contains("primary manager  001"));

    net.ip("far", "link set f2 down");
    until(LONG, "port 2 is down", || (fm.ltssm(2) == 0).then_some(()));
    assert_eq!(fm.ltssm(1), 4);

    assert!(switch.ask("reload").is_some(), "the same again");
    switch.configure(&good.replace("pids = 2", "pids = 3"));
    assert!(switch.ask("reload").is_none(), "what takes a restart");
    assert_eq!(fm.ask(&Request::Identify).0, ReturnCode::Success);
    let counters = switch.stop();
    let count = |what: &str| counters[what].as_u64().unwrap();
    // What the agent says goes in by its own port.
    assert_eq!(count("rx"), count("tx") + count("dropped"), "{counters}");
    assert!(count("tx") > 1 && count("dropped") >= 1, "{counters}");
    assert!(!path.exists(), "its socket goes with it");
}

/// Sends a frame, and waits for what becomes of it: whether it came, or the switch has dropped it.
fn comes(net: &Net, switch: &Switch, mouth: &Station, ear: &mut Station) -> bool {
    let dropped = || switch.show("all")["conservation"]["dropped"].as_u64().unwrap();
    let before = dropped();
    assert_eq!(mouth.send(&[numbered(0)]), 1);
    until(LONG, "it came or was dropped", || {
        let heard = frames_heard(net, ear, 0, 0).len();
        assert!(heard <= 1, "{heard} came of one");
        (heard == 1 || dropped() > before).then_some(heard == 1)
    })
}

/// Frames whose way is clear go past the pipeline: all of them, in order, the same bytes as by the pipeline; what the
/// manager changes is in force in the kernel, too, and all is counted.
#[test]
fn tlps_with_a_clean_way_are_sent_on_by_the_kernel() {
    let test = "tlps_with_a_clean_way_are_sent_on_by_the_kernel";
    if let Err(why) = weft_xdp::object() {
        eprintln!("SKIPPED {test}: the XDP program is {why}");
        return;
    }
    let Some(mut net) = Net::new(test) else { return };
    net.add_wires(3);
    for device in ["f0", "f1", "f2"] {
        net.napi("far", device, true);
    }
    let folder = Switch::folder(&net);
    let ports = PORTS.replace("af_packet", "af_xdp");
    let ports = ports.replace("role = ", "flow_control = \"none\"\nrole = ");
    let switch = Switch::start(&net, &[], &config(&folder, &ports));
    let mut fm = Fm::connect(&folder.join("cci/cci.sock"));
    fm.claim();
    until(LONG, "links are up", || (0..3).all(|port| fm.ltssm(port) == 4).then_some(()));
    fm.lead(Some(2));

    let mut ear = Station::hearer(&net, "far");
    let mouth = Station::sender(&net, "far", "f1");
    let express = || {
        let shown = switch.ask("show ports --json").unwrap();
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["ports"][1]["no_express"], serde_json::Value::Null, "{shown}");
        shown["ports"][1]["express"].as_u64().unwrap()
    };
    let (mut sent, mut came) = (0, Vec::new());
    // Sends frames of which so many must come.
    let mut send = |count: u16, come: usize, ear: &mut Station| {
        let frames: Vec<Vec<u8>> = (sent..sent + count).map(numbered).collect();
        assert_eq!(mouth.send(&frames), frames.len());
        sent += count;
        frames_heard(&net, ear, come, 10)
    };
    let mut tries = 0;
    until(LONG, "the kernel sends", || {
        tries += 1;
        came.extend(send(1, 1, &mut ear));
        (express() > 0).then_some(())
    });
    let before = express();
    for _ in 0..40 {
        came.extend(send(10, 10, &mut ear));
    }
    let went = express() - before;
    assert!(went >= 300, "{went} of 400 went past the pipeline");
    let tag = |frame: &[u8]| u16::from_be_bytes([frame[TAG_AT], frame[TAG_AT + 1]]);
    let tags: Vec<u16> = came.iter().map(|(_, frame)| tag(frame)).collect();
    assert_eq!(tags, (0..tries + 400).collect::<Vec<u16>>(), "all, in order");
    let rest = |frame: &[u8]| [&frame[..TAG_AT], &frame[TAG_AT + 2..]].concat();
    assert!(
        came.iter().all(|(_, frame)| rest(frame) == rest(&came[0].1)),
        "the first by the pipeline"
    );

    // The kernel's tables follow soon.
    let mut comes = || comes(&net, &switch, &mouth, &mut ear);
    fm.lead(None);
    until(LONG, "nowhere to go", || (!comes()).then_some(()));
    assert!((0..10).all(|_| !comes()), "nowhere to go");
    fm.lead(Some(2));
    until(LONG, "somewhere to go", || comes().then_some(()));
    assert!((0..10).all(|_| comes()), "somewhere to go");
    let counters = switch.stop();
    let count = |what: &str| counters[what].as_u64().unwrap();
    assert_eq!(count("rx"), count("tx") + count("dropped"), "{counters}");
    assert!(count("dropped") >= 10, "{counters}");
}
