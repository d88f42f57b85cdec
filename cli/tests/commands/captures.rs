//! Captures as users have them: several interfaces, packed, cut off, from pipes, years apart.
//!
//! Makes captures, and checks exit codes, `result.json` and messages. A trace whose reader goes away is here, too.
//!
//! Source: docs/replay.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use assert_cmd::Command;
use serde_json::Value;
use weft_dataplane::port::capture::{CaptureFormat, CaptureWriter, Meta};
use weft_parsers::crc::Crc32;

use crate::replay::{OK, SYSTEM, USAGE, result, strings, weft};

/// A frame to everybody, from station `of`, which tells it apart.
fn frame(of: u8) -> Vec<u8> {
    let mut bytes = vec![0xFF; 60];
    bytes[6..14].copy_from_slice(&[2, 0, 0, 0, 0, of, 0x90, 0]);
    bytes
}

/// Writes a pcapng of these interfaces with a frame of each, and gives its bytes.
fn several(path: &Path, names: &[&str]) -> Vec<u8> {
    let mut writer = CaptureWriter::create(path, CaptureFormat::PcapNg, 0).unwrap();
    for name in names {
        writer.add_interface(name).unwrap();
    }
    for (interface, of) in (0..).zip(1..).take(names.len()) {
        let meta = Meta { ts_ns: u64::from(of), interface, ..Meta::default() };
        writer.write_with(meta, &frame(of)).unwrap();
    }
    writer.finish().unwrap();
    fs::read(path).unwrap()
}

/// Writes a pcap with a frame at each of `stamps`, and gives its bytes.
fn stamped(path: &Path, stamps: &[u64]) -> Vec<u8> {
    let mut writer = CaptureWriter::create(path, CaptureFormat::Pcap, 0).unwrap();
    for at in stamps {
        writer.write(*at, &frame(1), None).unwrap();
    }
    writer.finish().unwrap();
    fs::read(path).unwrap()
}

/// Arguments of a replay into `out`.
fn replay(out: &Path, more: &[&str]) -> Vec<String> {
    let mut args = strings(["replay", "--out", out.to_str().unwrap()]);
    args.extend(more.iter().map(|text| (*text).to_owned()));
    args
}

/// Frames that each port received.
fn received(result: &Value) -> Vec<(String, u64)> {
    let ports = result["ports"].as_array().unwrap().iter();
    ports
        .map(|p| (p["name"].as_str().unwrap().to_owned(), p["rx_frames"].as_u64().unwrap()))
        .collect()
}

/// Name, arguments, frames by port, part of a warning.
type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, u64)], &'a str);

#[test]
fn interfaces_of_a_capture_come_in_at_ports() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    several(&path("four.pcapng"), &["eth0", "eth1", "eth2", "eth3"]);
    several(&path("odd#name.pcapng"), &["a", "b"]);
    let mut mixed = several(&path("mixed.pcapng"), &["eth0", "any", "eth1"]);
    let second = 28 + usize::from(mixed[28 + 4]); // behind the section and the first interface
    mixed[second + 8] = 113; // a cooked capture
    fs::write(path("mixed.pcapng"), mixed).unwrap();
    let named = |port: &str, file: &str| format!("{port}={}", path(file).display());
    let [four, mixed] =
        ["four.pcapng", "mixed.pcapng"].map(|name| path(name).display().to_string());
    let [p0, p1] = [named("p0", "four.pcapng#2"), named("p1", "four.pcapng#eth0")];
    let [odd, first, whole] = [
        named("p0", "odd#name.pcapng"),
        named("p1", "odd#name.pcapng#0"),
        named("p0", "mixed.pcapng"),
    ];
    #[rustfmt::skip] // columns: name, arguments, frames by port, part of a warning
    let cases: &[Case<'_>] = &[
        ("all",         &["--in-all", &four],            &[("p0", 1), ("p1", 1), ("p2", 1), ("p3", 1)], ""),
        ("some",        &["--in", &p0, "--in", &p1],     &[("p0", 1), ("p1", 1)], ""),
        ("odd name",    &["--in", &odd, "--in", &first], &[("p0", 2), ("p1", 1)], ""),
        ("mixed, all",  &["--in-all", &mixed],           &[("p0", 1), ("p2", 1)], "interface 1 (any) is not Ethernet, but of link type 113: no port receives its frames"),
        ("mixed",       &["--in", &whole],               &[("p0", 2), ("p1", 0)], "interface 1 (any) is not Ethernet, but of link type 113: its frames are left out (1)"),
    ];
    for (name, more, want, said) in cases {
        let out = path("out");
        let (code, _, err) = weft(&replay(&out, more));
        assert_eq!(code, OK, "{name}: {err}");
        assert!(err.contains(said) && said.is_empty() != err.contains("warning:"), "{name}: {err}");
        let result = result(&out);
        let want: Vec<_> = want.iter().map(|&(port, count)| (port.to_owned(), count)).collect();
        assert_eq!(received(&result), want, "{name}");
        assert_eq!(
            result["warnings"].as_array().unwrap().len(),
            usize::from(!said.is_empty()),
            "{name}"
        );
    }
    // Each frame comes in where it was captured: it is in the captures of all ports but that one.
    let (code, _, err) = weft(&replay(&path("out"), &["--in-all", &four]));
    assert_eq!(code, OK, "{err}");
    for port in 0..4 {
        let frames = crate::frames::sorted(&path("out").join(format!("p{port}.pcap")));
        let want: Vec<_> = (0..4).filter(|of| *of != port).map(|of| frame(of + 1)).collect();
        assert_eq!(frames, want, "p{port}");
    }
    let [nine, cooked, none] = [
        named("p0", "four.pcapng#9"),
        named("p0", "mixed.pcapng#any"),
        named("p0", "none.pcapng#1"),
    ];
    let one = format!("{four}#1");
    #[rustfmt::skip] // columns: name, arguments, code, part of standard error
    let refused: &[(&str, &[&str], i32, &str)] = &[
        ("no such",      &["--in", &nine],                  USAGE,  "no interface 9: it has 0 (eth0), 1 (eth1), 2 (eth2), 3 (eth3)"),
        ("not Ethernet", &["--in", &cooked],                SYSTEM, "link type 113 is not Ethernet"),
        ("missing",      &["--in", &none],                  SYSTEM, "none.pcapng#1: cannot open capture"),
        ("one of all",   &["--in-all", &one],               USAGE,  "expected a file; one interface of it is --in PORT=FILE#INTERFACE"),
        ("other ports",  &["--in-all", &four, "--port", "left=null:l"], USAGE, "interface 0: expected one of the ports left, found \"p0\""),
        ("port twice",   &["--in", &p1, "--in-all", &four], USAGE,  "interface 1: expected each port once"),
    ];
    for (name, more, code, said) in refused {
        let (got, _, err) = weft(&replay(&path("out"), more));
        assert!(got == *code && err.contains(said), "{name}: {got} {err}");
    }
}

/// gzip of blocks that are stored as they are.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap();
    let mut packed = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 1];
    packed.extend([len.to_le_bytes(), (!len).to_le_bytes()].concat());
    packed.extend(bytes);
    packed.extend(Crc32::START.with(bytes).to_wire());
    packed.extend(u32::from(len).to_le_bytes());
    packed
}

/// zstd of one block that is stored as it is.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).unwrap();
    let mut packed = vec![0x28, 0xB5, 0x2F, 0xFD, 0xA0];
    packed.extend(len.to_le_bytes());
    packed.extend(&(len << 3 | 1).to_le_bytes()[..3]);
    packed.extend(bytes);
    packed
}

/// Runs weft with `bytes` in a pipe at its standard input.
fn fed(args: &[String], bytes: &[u8]) -> (i32, String) {
    let output =
        Command::cargo_bin("weft").unwrap().args(args).write_stdin(bytes).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn captures_are_read_packed_and_from_pipes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let out = path("out");
    let bytes = several(&path("plain.pcapng"), &["eth0", "eth1"]);
    let hash = |out: &Path| result(out)["trace_hash"].clone();
    let run = |more: &[&str]| {
        let (code, _, err) = weft(&replay(&out, more));
        assert_eq!(code, OK, "{err}");
        hash(&out)
    };
    let [one, all] = {
        let plain = path("plain.pcapng").display().to_string();
        [run(&["--in", &format!("p0={plain}")]), run(&["--in-all", &plain])]
    };
    for (name, packed) in [("a.pcapng.gz", gzip(&bytes)), ("a.pcapng.zst", zstd(&bytes))] {
        fs::write(path(name), &packed).unwrap();
        let file = path(name).display().to_string();
        assert_eq!(run(&["--in", &format!("p0={file}")]), one, "{name}");
        assert_eq!(run(&["--in-all", &file]), all, "{name}");
        let (code, text, err) = weft(&strings(["decode", &format!("{file}#eth1")]));
        assert!(code == OK && text.lines().count() == 1, "{name}: {text}{err}");
        let (code, err) = fed(&replay(&out, &["--in", "p0=-"]), &packed);
        assert!(code == OK && hash(&out) == one, "{name}: {err}");
    }
    for (more, want) in [
        (&["--in", "p0=/dev/stdin"][..], &one),
        (&["--in", "p0=-"], &one),
        (&["--in", "p0=-", "--max-gap", "1s"], &one), // read twice
        (&["--in-all", "-"], &all),
    ] {
        let (code, err) = fed(&replay(&out, more), &bytes);
        assert!(code == OK && hash(&out) == *want, "{more:?}: {err}");
    }
    let (wanted, plain) = (path("want"), format!("p0={}", path("plain.pcapng").display()));
    let more = ["--in", &plain, "--expect", wanted.to_str().unwrap()];
    fs::create_dir(&wanted).unwrap();
    run(&more[..2]);
    let sent = fs::read(out.join("p1.pcap")).unwrap();
    for (name, packed) in [("p1.pcap.gz", gzip(&sent)), ("p1.pcapng.zst", zstd(&sent))] {
        fs::write(wanted.join(name), packed).unwrap();
        let (code, _, err) = weft(&replay(&out, &more));
        assert!(code == OK && err.contains("2 frames are as expected"), "{name}: {err}");
        fs::remove_file(wanted.join(name)).unwrap();
    }
    for (more, said) in [
        (&["--in", "p0=-", "--in", "p1=/dev/stdin"][..], "expected each pipe once"),
        (&["--in", "p9=-", "--in-all", "/dev/stdin"], "expected each pipe once"),
        (&["-c", "-", "--in", "p0=-"], "as -c reads the configuration from standard input"),
    ] {
        let (code, err) = fed(&replay(&out, more), &bytes);
        assert!(code == USAGE && err.contains(said), "{more:?}: {err}");
    }
    fs::write(path("a.xz"), [0xFD, b'7', b'z', b'X', b'Z', 0]).unwrap();
    let (code, _, err) = weft(&replay(&out, &["--in", &format!("p0={}", path("a.xz").display())]));
    assert!(code == SYSTEM && err.contains("unpack it first (xz -d)"), "{err}");
}

/// Frames before the cut are replayed and printed, with a warning; an expected capture has to be complete.
#[test]
fn a_capture_that_is_cut_off_is_read_as_far_as_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let out = path("out");
    for (name, bytes) in [
        ("p0.pcap", stamped(&path("p0.pcap"), &[1, 2, 3])),
        ("p0.pcapng", several(&path("p0.pcapng"), &["a", "b", "c"])),
    ] {
        let whole = path(name).display().to_string();
        let (code, ..) = weft(&replay(&out, &["--in", &format!("p0={whole}")]));
        assert!(code == OK && result(&out)["warnings"] == serde_json::json!([]), "{name}");
        for packed in [&bytes[..bytes.len() - 10], &gzip(&bytes)[..bytes.len()]] {
            fs::write(path(name), packed).unwrap();
            let (code, _, err) = weft(&replay(&out, &["--in", &format!("p0={whole}")]));
            assert_eq!(code, OK, "{name}: {err}");
            assert!(
                err.contains("warning: ") && err.contains("record 3 at byte "),
                "{name}: {err}"
            );
            let result = result(&out);
            assert_eq!(result["inputs"], 2, "{name}");
            assert_eq!(result["warnings"].as_array().unwrap().len(), 1, "{name}");
            let (code, text, err) = weft(&strings(["decode", &whole]));
            assert!(code == OK && text.lines().count() == 2, "{name}: {text}");
            assert!(err.contains("warning: "), "{name}: {err}");
        }
        let want = path("want");
        fs::create_dir_all(&want).unwrap();
        let sent = fs::read(out.join("p1.pcap")).unwrap();
        fs::write(want.join("p1.pcap"), &sent[..sent.len() - 1]).unwrap();
        let more = ["--in", &format!("p0={whole}"), "--expect", want.to_str().unwrap()];
        let (code, _, err) = weft(&replay(&out, &more));
        assert!(code == SYSTEM && err.contains("want/p1.pcap: record 2"), "{name}: {err}");
    }
}

#[test]
fn long_gaps_are_made_short() {
    const S: u64 = 1_000_000_000;
    const YEAR: u64 = 365 * 86_400 * S;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (out, base) = (path("out"), 50 * YEAR);
    stamped(&path("a.pcap"), &[base, base + YEAR, base + 3 * YEAR]);
    // Between the frames of the other one: there is a gap in front of it and one behind it.
    stamped(&path("b.pcap"), &[base + 2 * YEAR, base + 2 * YEAR + 1]);
    let [a, b] = [("p0", "a.pcap"), ("p1", "b.pcap")]
        .map(|(port, name)| format!("{port}={}", path(name).display()));
    let (code, _, err) = weft(&replay(&out, &["--in", &a]));
    assert!(code == SYSTEM && err.contains("--max-gap shortens long gaps"), "{err}");
    let (code, _, err) = weft(&replay(&out, &["--in", &a, "--in", &b, "--max-gap", "20ms"]));
    assert_eq!(code, OK, "{err}");
    let result = result(&out);
    assert_eq!((&result["inputs"], &result["base_ns"]), (&5.into(), &base.into()));
    let end_ps = result["end_ps"].as_u64().unwrap();
    assert!((60_000_000_001..60_100_000_000).contains(&end_ps), "three gaps of 20 ms: {end_ps}");
    for bad in ["20", "-1s", "0.5ns", "1h", "101000000s"] {
        let (code, _, err) = weft(&replay(&out, &["--in", &a, &format!("--max-gap={bad}")]));
        assert!(code == USAGE && err.contains("whole nanoseconds"), "{bad}: {err}");
    }
}

/// A reader that goes away, such as `head`, is no error; other outputs are written all the same.
#[test]
fn an_output_that_nobody_reads_ends_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    stamped(&path("a.pcap"), &[1, 2, 3]);
    let (input, out) = (path("a.pcap").display().to_string(), path("out"));
    let in_p0 = format!("p0={input}");
    let out_text = out.display().to_string();
    let cases: &[&[&str]] = &[
        &["replay", "--in", &in_p0, "--out", &out_text, "--trace", "-"],
        &["replay", "--in", &in_p0, "--out", &out_text, "--trace", "-", "--trace-filter", "in=p0"],
        &["replay", "--in", &in_p0, "--out", &out_text, "--json"],
        &["replay", "--in", &in_p0, "--out", &out_text],
        &["decode", &input],
        &["decode", "--json", &input],
        &["drops"],
        &["config", "docs"],
        &["sim", "keys"],
    ];
    for args in cases {
        let _: Result<(), _> = fs::remove_dir_all(&out); // of the case before, if that made one
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let bin = assert_cmd::cargo::cargo_bin("weft");
        let ended = std::process::Command::new(bin)
            .args(*args)
            .stdout(Stdio::from(writer))
            .output()
            .unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.success() && err.is_empty(), "{args:?}: {err}");
        if args[0] == "replay" {
            assert_eq!(result(&PathBuf::from(&out_text))["inputs"], 3, "{args:?}");
        }
    }
}
