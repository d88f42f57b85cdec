//! `weft replay` as a user meets it: golden captures, the shipped scenario, differences, traces.
//!
//! Replays captures of `pcaps/`, and checks exit codes, captures and `result.json`.
//!
//! Source: docs/spec/pipeline.md §13.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

use crate::frames::sorted;
use weft_dataplane::port::capture::{CaptureFormat, CaptureWriter};

pub const OK: i32 = 0;
const DIFFERENCE: i32 = 1;
pub const USAGE: i32 = 2;
pub const SYSTEM: i32 = 3;

fn pcaps(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps").join(path)
}

/// Runs weft; gives exit code, standard output and standard error.
pub fn weft(args: &[String]) -> (i32, String, String) {
    let output = Command::cargo_bin("weft").unwrap().args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

pub fn strings<const N: usize>(args: [&str; N]) -> Vec<String> {
    args.map(str::to_owned).to_vec()
}

/// Arguments of a replay of the captures in `inputs` with configuration `config`.
fn replay_args(config: &Path, inputs: &Path, out: &Path) -> Vec<String> {
    let [config, out_text] = [config, out].map(|path| path.display().to_string());
    let mut args = strings(["replay", "-c", &config, "--out", &out_text]);
    let mut files: Vec<PathBuf> =
        fs::read_dir(inputs).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let port = file.file_stem().unwrap().to_str().unwrap();
        args.extend(["--in".to_owned(), format!("{port}={}", file.display())]);
    }
    args
}

fn golden(name: &str, out: &Path) -> Vec<String> {
    let config = pcaps(&format!("conformance/{name}.toml"));
    replay_args(&config, &pcaps(&format!("in/{name}")), out)
}

pub fn result(out: &Path) -> Value {
    serde_json::from_slice(&fs::read(out.join("result.json")).unwrap()).unwrap()
}

const GOLDEN: [&str; 7] =
    ["standard", "standard_vlan", "gen1", "gen2", "gen2_doc", "lite", "malformed"];

/// Bytes and stamps are those that are kept; `pcaps/README.md` says where they come from.
#[test]
fn golden_captures_come_out_as_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for name in GOLDEN {
        let out = dir.path().join(name);
        let mut args = golden(name, &out);
        let want = pcaps(&format!("want/{name}")).display().to_string();
        args.extend(strings(["--expect", &want, "--expect-times"]));
        let (code, _, err) = weft(&args);
        assert_eq!(code, OK, "{name}: {err}");
        let result = result(&out);
        assert_eq!(result["conservation"]["imbalance"], 0, "{name}");
        assert_eq!(
            (&result["stuck"], &result["violation_count"]),
            (&0.into(), &0.into()),
            "{name}"
        );
    }
    let malformed = result(&dir.path().join("malformed"));
    assert_eq!(malformed["drops"]["malformed"], 7, "{malformed}");
    assert_eq!(malformed["drops"]["reserved_group"], 2);
    assert_eq!(malformed["conservation"]["consumed"], 5);
}

/// Without a configuration the inputs name the ports; a single one gets a second port to send to.
#[test]
fn ports_are_made_for_inputs_without_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let [input, other] = ["p0.pcap", "p1.pcap"].map(|name| pcaps("in/gen1").join(name));
    let [input, other] = [input, other].map(|path| path.display().to_string());
    #[rustfmt::skip] // columns: inputs, ports
    let cases: [(Vec<String>, &[&str]); 3] = [
        (vec![format!("p0={input}")], &["p0", "p1"]),
        (vec![format!("p1={input}")], &["p1", "p0"]),
        (vec![format!("left={input}"), format!("right={other}")], &["left", "right"]),
    ];
    for (inputs, ports) in cases {
        let out = dir.path().join(ports[0]);
        let mut args = strings(["replay", "--out", out.to_str().unwrap()]);
        args.extend(inputs.iter().flat_map(|input| ["--in".to_owned(), input.clone()]));
        let (code, _, err) = weft(&args);
        assert_eq!(code, OK, "{ports:?}: {err}");
        let result = result(&out);
        let names: Vec<_> =
            result["ports"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
        assert_eq!(names, ports);
        assert!(result["outputs"].as_u64() > Some(0), "{ports:?}: {result}");
    }
    let twice = strings(["replay", "--out", "x", "--in", "p0=a.pcap", "--in", "p0=b.pcap"]);
    let (code, _, err) = weft(&twice);
    assert!(code == USAGE && err.contains("each port once"), "{err}");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let outs = ["a", "b"].map(|name| dir.path().join(name));
    for out in &outs {
        let mut args = golden("gen2", out);
        args.extend(strings(["--trace", out.with_extension("jsonl").to_str().unwrap()]));
        assert_eq!(weft(&args).0, OK);
    }
    let [a, b] = outs;
    for file in ["p0.pcap", "p1.pcap", "p2.pcap", "p3.pcap", "result.json"] {
        assert_eq!(fs::read(a.join(file)).unwrap(), fs::read(b.join(file)).unwrap(), "{file}");
    }
    let [a, b] = [a, b].map(|out| fs::read(out.with_extension("jsonl")).unwrap());
    assert!(a == b && !a.is_empty(), "the traces differ");
}

#[test]
fn a_difference_is_shown_with_field_names() {
    let dir = tempfile::tempdir().unwrap();
    let (want, out) = (dir.path().join("want"), dir.path().join("out"));
    fs::create_dir(&want).unwrap();
    for port in ["p0", "p1", "p2", "p3"] {
        let name = format!("{port}.pcap");
        let mut bytes = fs::read(pcaps("want/gen1").join(&name)).unwrap();
        if port == "p1" {
            bytes[24 + 16 + 6] ^= 0x20; // the Traffic Class of the first frame
        }
        fs::write(want.join(name), bytes).unwrap();
    }
    let mut args = golden("gen1", &out);
    args.extend(strings(["--expect", want.to_str().unwrap()]));
    let (code, _, err) = weft(&args);
    assert_eq!(code, DIFFERENCE, "{err}");
    assert!(err.contains("frame 1 differs from byte 6 on, in afh.tc\ngot\n"), "{err}");
    assert!(err.contains("\n> 0000  "), "{err}");
    assert!(err.contains("error: not as expected: port p1\n"), "{err}");
    fs::remove_file(want.join("p2.pcap")).unwrap();
    let (code, _, err) = weft(&args);
    assert_eq!(code, DIFFERENCE);
    assert!(err.contains("port p2: ") && err.contains("frame 1 was not expected; got"), "{err}");
}

#[test]
fn what_is_wrong_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    fs::write(dir.path().join("no.pcap"), "hello").unwrap();
    let no = format!("p1={}", dir.path().join("no.pcap").display());
    let empty = dir.path().display().to_string();
    let with = |more: &[&str]| {
        let mut args = golden("lite", &out);
        args.retain(|arg| !arg.starts_with("p1=") && !arg.starts_with("p2="));
        let at = args.iter().position(|arg| arg == "--in").unwrap();
        args.truncate(at + 2);
        args.extend(more.iter().map(|text| (*text).to_owned()));
        args
    };
    #[rustfmt::skip] // columns: name, more arguments, code, part of standard error
    let cases: &[(&str, &[&str], i32, &str)] = &[
        ("no such port",  &["--in", "p9=x.pcap"],        USAGE,  "expected one of the ports p0, p1, p2, p3"),
        ("no file",       &["--in", "p1"],               USAGE,  "expected PORT=FILE"),
        ("port twice",    &["--in", "p0=x.pcap"],        USAGE,  "expected each port once"),
        ("missing file",  &["--in", "p1=/nonexistent"],  SYSTEM, "/nonexistent"),
        ("no capture",    &["--in", &no],                SYSTEM, "not a pcap or pcapng file"),
        ("nothing wanted", &["--expect", &empty],        USAGE,  "no.pcap"),
        ("bad filter",    &["--trace", "-", "--trace-filter", "x=1"], USAGE, "--trace-filter: \"x=1\": expected"),
        ("filter alone",  &["--trace-filter", "pri=1"],  USAGE,  "--trace"),
        ("two outputs",   &["--trace", "-", "--json"],   USAGE,  "both write to standard output"),
    ];
    for (name, more, code, part) in cases {
        let (got, _, err) = weft(&with(more));
        assert_eq!(got, *code, "{name}: {err}");
        assert!(err.contains(part), "{name}: {err}");
    }
}

#[test]
fn truncated_frames_are_dropped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (dir.path().join("in"), dir.path().join("out"));
    fs::create_dir(&input).unwrap();
    let mut bytes = fs::read(pcaps("in/gen1/p0.pcap")).unwrap();
    let orig_len = u32::from_le_bytes(bytes[36..40].try_into().unwrap());
    bytes[36..40].copy_from_slice(&(orig_len + 1).to_le_bytes());
    fs::write(input.join("p0.pcap"), bytes).unwrap();
    let (code, _, err) = weft(&replay_args(&pcaps("conformance/gen1.toml"), &input, &out));
    assert_eq!(code, OK, "{err}");
    assert_eq!(result(&out)["drops"]["truncated"], 1);
}

/// A pcap whose frames have an FCS.
fn pcap_with_fcs(frames: &[Vec<u8>]) -> Vec<u8> {
    let head = [0xA1B2_3C4D, 4 << 16 | 2, 0, 0, 65_535, 0x2400_0001_u32];
    let mut bytes = head.map(u32::to_le_bytes).concat();
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap();
        bytes.extend([1, 0, len, len].map(u32::to_le_bytes).concat());
        bytes.extend(frame);
    }
    bytes
}

/// A pcapng of one frame, with this `if_fcslen` and `epb_flags`.
fn pcapng(fcs_len: u8, flags: u32, frame: &[u8]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes()[..], &len, body, &len].concat()
    };
    let len = u32::try_from(frame.len()).unwrap();
    let interface = [1, 0, 0, 0, 0, 0, 0, 0, 13, 0, 1, 0, fcs_len, 0, 0, 0, 0, 0, 0, 0];
    let fields = [0, 0, 0, len, len].map(u32::to_le_bytes).concat();
    let packet = [&fields, frame, &[2, 0, 4, 0], &flags.to_le_bytes(), &[0; 4]].concat();
    let section = [0x1A2B_3C4D, 1, 0, 0_u32].map(u32::to_le_bytes).concat();
    [block(0x0A0D_0D0A, &section), block(1, &interface), block(6, &packet)].concat()
}

/// A frame that was damaged before it was captured is dropped with the reason that docs/drops.md gives, whether the
/// file has its FCS or the error that the device saw.
#[test]
fn damaged_frames_are_dropped_by_reason() {
    let frame: Vec<u8> = (0..60).collect();
    let fcs = weft_parsers::crc::fcs(&frame);
    let with = |damage: u8| [&frame[..], &fcs.map(|byte| byte ^ damage)].concat();
    let drops = |reason: &str| serde_json::json!({reason: 1});
    let none = || serde_json::json!({});
    #[rustfmt::skip] // columns: name, capture, drops
    let cases = [
        ("right",       pcap_with_fcs(&[with(0)]),          none()),
        ("wrong fcs",   pcap_with_fcs(&[with(0), with(1)]), drops("fcs")),
        ("ng right",    pcapng(4, 0, &with(0)),             none()),
        ("ng wrong",    pcapng(4, 0, &with(1)),             drops("fcs")),
        ("by packet",   pcapng(0, 4 << 5, &with(1)),        drops("fcs")),
        ("crc error",   pcapng(0, 1 << 24, &frame),         drops("fcs")),
        ("too short",   pcapng(0, 1 << 26, &frame),         drops("runt")),
        ("short gap",   pcapng(0, 1 << 27, &frame),         none()),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes, drops) in cases {
        let (input, out) = (dir.path().join("in.pcap"), dir.path().join("out"));
        fs::write(&input, bytes).unwrap();
        let named = format!("p0={}", input.display());
        let args = strings(["replay", "--in", &named, "--out", out.to_str().unwrap()]);
        let (code, _, err) = weft(&args);
        assert_eq!(code, OK, "{name}: {err}");
        let result = result(&out);
        let got = (&result["drops"], &result["conservation"]["imbalance"]);
        assert_eq!(got, (&drops, &0.into()), "{name}");
        let (_, text, _) = weft(&strings(["decode", input.to_str().unwrap()]));
        let is_damaged = text.contains("BAD FCS") || text.contains("LINK ERRORS");
        assert_eq!(is_damaged, drops != none() || name == "short gap", "{name}: {text}");
    }
}

#[test]
fn traces_tell_the_path_of_a_frame() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut args = golden("standard", &out);
    args.extend(strings(["--trace", "-", "--trace-filter", "in=p0", "-n", "1"]));
    let (code, text, err) = weft(&args);
    assert_eq!(code, OK, "{err}");
    for stage in ["rx ", "classify ", "forward ", "admit ", "dequeue ", "tx "] {
        assert!(text.contains(stage), "no {stage}in {text}");
    }
    let ng = dir.path().join("trace.pcapng");
    let mut args = golden("standard", &out);
    args.extend(strings(["--trace", ng.to_str().unwrap(), "-n", "3"]));
    assert_eq!(weft(&args).0, OK);
    let (code, text, _) = weft(&strings(["decode", "--json", ng.to_str().unwrap()]));
    assert_eq!((code, text.lines().count()), (OK, 3));
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["format"], "standard");
        assert!(line["comment"].as_str().unwrap().contains("classify"), "{line}");
    }
    let mut args = golden("standard", &out);
    args.extend(strings(["--trace", ng.to_str().unwrap(), "--trace-filter", "in=p0"]));
    assert_eq!(weft(&args).0, OK);
    let received = sorted(&pcaps("in/standard/p0.pcap"));
    assert!(received.len() > 1 && sorted(&ng) == received, "each frame as it came in");
}

/// The shipped scenario: the first mark comes before the first PAUSE, and both come.
#[test]
fn incast_marks_before_it_pauses() {
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (dir.path().join("in"), dir.path().join("out"));
    fs::create_dir(&input).unwrap();
    for number in 1..=7 {
        let (src, file) = (number.to_string(), input.join(format!("p{}.pcap", number - 1)));
        let (code, _, err) = weft(&strings([
            "gen",
            "standard",
            "--src",
            &src,
            "--dst",
            "8",
            "--pri",
            "2",
            "--ecn",
            "ect0",
            "--size",
            "1024",
            "--count",
            "500",
            "--gbps",
            "100",
            "--out",
            file.to_str().unwrap(),
        ]));
        assert_eq!(code, OK, "{err}");
    }
    let trace = dir.path().join("trace.jsonl");
    let mut args = replay_args(&pcaps("scenarios/incast7-ecn.toml"), &input, &out);
    args.extend(strings(["--trace", trace.to_str().unwrap()]));
    let (code, _, err) = weft(&args);
    assert_eq!(code, OK, "{err}");
    let events: Vec<Value> = fs::read_to_string(&trace)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let first = |wanted: &dyn Fn(&Value) -> bool| {
        events.iter().find(|event| wanted(event)).map(|event| event["t_ps"].as_u64().unwrap())
    };
    let mark = first(&|event| event["ev"] == "deq" && event["marked"] == true);
    let pause = first(&|event| event["ev"] == "pause_tx" && event["pausing"] != 0);
    assert!(mark.is_some() && pause.is_some(), "mark {mark:?}, PAUSE {pause:?}");
    assert!(mark < pause, "mark {mark:?}, PAUSE {pause:?}");
    let result = result(&out);
    assert_eq!(result["conservation"]["imbalance"], 0);
    assert_eq!(result["violation_count"], 0, "{}", result["violations"]);
    assert_eq!(result["conservation"]["rx"], 7 * 500);
}

/// Instants are compared the shorter way round: two stamps may lie 106 days apart, and no further.
#[test]
fn stamps_of_a_replay_lie_within_106_days() {
    const DAY_NS: u64 = 86_400_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let start = 1_700_000_000_000_000_000;
    for (name, days, code) in
        [("days105", 105, OK), ("days107", 107, SYSTEM), ("days213", 213, SYSTEM)]
    {
        let input = dir.path().join(name).with_extension("pcap");
        let mut writer = CaptureWriter::create(&input, CaptureFormat::Pcap, 0).unwrap();
        for at in [start, start + days * DAY_NS] {
            let frame = [&[0xFF; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xB5], &[0; 46]].concat();
            writer.write(at, &frame, None).unwrap();
        }
        writer.finish().unwrap();
        let (out, input) = (dir.path().join(name), input.display().to_string());
        let out = out.display().to_string();
        let args = strings(["replay", "--out", &out, "--in", &format!("p0={input}")]);
        let (found, _, err) = weft(&args);
        assert_eq!(found, code, "{days} days: {err}");
        assert!(code == OK || err.contains("within 106 days"), "{err}");
    }
}
