//! A recorded run as a user meets it: record, change things meanwhile, replay, damage.
//!
//! `weft run --record` on captures and sinks, then `weft replay --record` of the file.
//!
//! Source: docs/spec/pipeline.md §13.

use std::io::{BufReader, Read};
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;
use weft_base::wait::{LONG, until};

use crate::frames::sorted;
use crate::process::{Guard, start};

const OK: i32 = 0;
const DIFFERENCE: i32 = 1;
const USAGE: i32 = 2;
const SYSTEM: i32 = 3;

const CONFIG: &str = "[switch]\nname = \"r\"\nseed = 7\n[buffer]\ndt_alpha = 1\n\
    [[port]]\nname = \"a\"\nkind = \"pcap\"\ndevice = \"a.pcap\"\n\
    [[port]]\nname = \"b\"\nkind = \"pcap\"\ndevice = \"b.pcap:b_out.pcap\"\n\
    [[port]]\nname = \"c\"\nkind = \"null\"\n";

fn weft(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("weft").unwrap().current_dir(dir).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A directory with captures for two ports: stations that talk to each other, groups, and PFC.
fn directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("r.toml"), CONFIG).unwrap();
    for (out, src, dst) in [
        ("a.pcap", "02:00:00:00:00:0a", "02:00:00:00:00:0b"),
        ("b.pcap", "02:00:00:00:00:0b", "02:00:00:00:00:0a"),
    ] {
        let args = [
            "gen", "standard", "gen1", "pfc", "--count", "300", "--size", "400", "--gap-ns",
            "1000000",
        ];
        let args = [&args[..], &["--src-mac", src, "--dst-mac", dst, "--out", out]].concat();
        let (code, _, err) = weft(dir.path(), &args);
        assert_eq!(code, OK, "{err}");
    }
    dir
}

struct Switch {
    child: Guard,
    err: BufReader<std::process::ChildStderr>,
}

impl Switch {
    /// A recorded switch in `dir` that is up.
    fn start(dir: &Path, more: &[&str]) -> Self {
        let socket = format!("run.socket={}", socket(dir));
        let (child, err) = start(|command| {
            let run = ["run", "-c", "r.toml", "--record", "run.rec", "--json", "--set", &socket];
            command.args(run).args(more).current_dir(dir)
        });
        Self { child, err }
    }

    /// Ends the switch as an operator does; returns exit code, final counters and the rest of standard error.
    fn stop(mut self) -> (i32, Value, String) {
        let pid = rustix::process::Pid::from_child(&self.child.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        self.child.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        let code = self.child.0.wait().unwrap().code().unwrap();
        (code, serde_json::from_str(&out).unwrap(), err)
    }
}

fn socket(dir: &Path) -> String {
    dir.join("weft").join("r").join("mgmt.sock").display().to_string()
}

fn ask(dir: &Path, args: &[&str]) -> Value {
    let (code, out, err) = weft(dir, &[args, &["--socket", &socket(dir)]].concat());
    assert_eq!(code, OK, "{args:?}: {err}");
    serde_json::from_str(&out).unwrap_or(Value::Null)
}

/// Waits until the switch has received so many frames.
fn wait_for(dir: &Path, frames: u64) {
    let rx = || ask(dir, &["show", "conservation", "--json"])["conservation"]["rx"].as_u64();
    until(LONG, format_args!("{frames} frames"), || (rx() >= Some(frames)).then_some(()));
}

/// A run with changes of every kind.
fn recorded() -> (TempDir, Value) {
    let dir = directory();
    let path = dir.path();
    let switch = Switch::start(path, &[]);
    ask(path, &["fdb", "add", "02:00:00:00:00:77", "c"]);
    wait_for(path, 600);
    ask(path, &["show", "queues", "--json"]); // watermarks begin again
    std::fs::write(path.join("r.toml"), CONFIG.replace("dt_alpha = 1", "dt_alpha = 4")).unwrap();
    ask(path, &["reload"]);
    ask(path, &["mirror", "a", "c"]);
    ask(path, &["fdb", "del", "02:00:00:00:00:77"]);
    wait_for(path, 1_800);
    ask(path, &["fdb", "del", "02:00:00:00:00:0a"]);
    let (code, counters, err) = switch.stop();
    assert_eq!(code, OK, "{err}");
    (dir, counters)
}

#[test]
fn a_recorded_run_comes_to_the_same_again() {
    let (dir, counters) = recorded();
    let path = dir.path();
    assert_eq!(counters["rx"], 1_800, "{counters}");
    let received = sorted(&path.join("b.pcap"));
    assert_eq!(received.len(), 900);
    // The record alone is enough.
    for file in ["r.toml", "a.pcap", "b.pcap"] {
        std::fs::remove_file(path.join(file)).unwrap();
    }
    let args = ["replay", "--record", "run.rec", "--out", "out", "--trace", "t.json", "--json"];
    let (code, out, err) = weft(path, &args);
    assert_eq!(code, OK, "{err}");
    assert!(err.contains("hashes and counters equal those recorded"), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let record = &counters["record"];
    for (name, live) in [
        ("trace_hash", "trace_hash"),
        ("sent_hash", "sent_hash"),
        ("events", "events"),
        ("steps", "steps"),
    ] {
        assert_eq!(report[name], record[live], "{name}");
    }
    assert_eq!(report["conservation"]["rx"], counters["rx"]);
    assert_eq!(report["conservation"]["tx"], counters["tx"]);
    let kept: Value =
        serde_json::from_slice(&std::fs::read(path.join("out/result.json")).unwrap()).unwrap();
    assert_eq!(kept, report);
    // In the replay port b sends the same frames as in the run, with the same stamps.
    let live = std::fs::read(path.join("b_out.pcap")).unwrap();
    assert!(live.len() > 1_000 && live == std::fs::read(path.join("out/b.pcap")).unwrap());
    let events = std::fs::read_to_string(path.join("t.json")).unwrap();
    assert_eq!(events.lines().count() as u64, report["events"].as_u64().unwrap());
    for kind in ["\"ev\":\"reload\"", "\"ev\":\"pause_rx\"", "\"ev\":\"learn\""] {
        assert!(events.contains(kind), "{kind}");
    }
    let args = ["replay", "--record", "run.rec", "--trace", "t.pcapng", "--trace-filter", "in=b"];
    let (code, out, err) = weft(path, &args);
    assert_eq!(code, OK, "{err}"); // hashes are the same, whoever listens
    assert!(sorted(&path.join("t.pcapng")) == received, "each frame as it came in: {out}");
    let (code, out, _) = weft(path, &["replay", "--record", "run.rec"]);
    let hash = report["trace_hash"].as_str().unwrap();
    assert!(code == OK && out.matches(hash).count() == 2, "{out}");
}

/// A killed switch leaves a record that can be replayed up to its end, and so does a truncated record.
#[test]
fn a_killed_switch_leaves_whole_steps() {
    let dir = directory();
    let path = dir.path();
    let mut switch = Switch::start(path, &[]);
    wait_for(path, 1_800);
    // Complete steps are written within a fraction of a second.
    until(LONG, "all frames are in the record", || {
        let (code, out, _) = weft(path, &["replay", "--record", "run.rec", "--json"]);
        let report: Value = serde_json::from_str(&out).unwrap_or_default();
        (code == OK && report["inputs"] == 1_800).then_some(())
    });
    switch.child.0.kill().unwrap();
    switch.child.0.wait().unwrap();
    let (code, out, err) = weft(path, &["replay", "--record", "run.rec", "--json"]);
    assert!(code == OK && err.contains("the record has no end"), "{code} {err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["inputs"], &report["recorded"]), (&1_800.into(), &Value::Null));
    let whole = std::fs::read(path.join("run.rec")).unwrap();
    std::fs::write(path.join("cut.rec"), &whole[..whole.len() * 2 / 3]).unwrap();
    let (code, out, err) = weft(path, &["replay", "--record", "cut.rec", "--json"]);
    assert!(code == OK && err.contains("truncated") && err.contains("has no end"), "{code} {err}");
    let part: Value = serde_json::from_str(&out).unwrap();
    assert!(part["steps"].as_u64() < report["steps"].as_u64() && part["inputs"] != 0, "{part}");
}

#[test]
fn a_changed_byte_is_told() {
    let (dir, _) = recorded();
    let path = dir.path();
    let whole = std::fs::read(path.join("run.rec")).unwrap();
    let frame = |from: usize| {
        let addresses = [2, 0, 0, 0, 0, 0x0B, 2, 0, 0, 0, 0, 0x0A];
        from + whole[from..].windows(12).position(|bytes| bytes == addresses).unwrap()
    };
    let header = frame(0);
    #[rustfmt::skip] // columns: name, byte, code, part of standard error
    let cases = [
        ("a received address", header + 5,       DIFFERENCE, "differs from the record: step "),
        ("a payload byte",    header + 200,     DIFFERENCE, "differs from the record: step "),
        ("the first byte",    0,                SYSTEM,     "expected a record"),
        ("the version",        7,                SYSTEM,     "expected a record of version"),
        ("the header",         12,               SYSTEM,     "replay record changed.rec"),
        ("a final counter",    whole.len() - 3,  DIFFERENCE, "chunks: recorded"),
    ];
    for (name, at, want, part) in cases {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(path.join("changed.rec"), changed).unwrap();
        let (code, _, err) = weft(path, &["replay", "--record", "changed.rec"]);
        assert!(code == want && err.contains(part), "{name}: {code} {err}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let dir = directory();
    let path = dir.path();
    let two = ["run", "-c", "r.toml", "--record", "run.rec", "--set", "run.workers=2"];
    #[rustfmt::skip] // columns: arguments, code, part of standard error
    let cases: [(&[&str], i32, &str); 7] = [
        (&two, USAGE, "--record: expected one worker, found run.workers = 2"),
        (&["run", "-c", "r.toml", "--record", "no/run.rec"], SYSTEM, "write no/run.rec: No such file"),
        (&["run", "-c", "r.toml", "--record", "/dev/full"], SYSTEM, "begin the record: No space left"),
        (&["replay", "--record", "none.rec"], SYSTEM, "read none.rec: No such file"),
        (&["replay", "--record", "r.toml"], SYSTEM, "expected a record"),
        (&["replay", "--record", "x", "--in", "a=a.pcap"], USAGE, "cannot be used with"),
        (&["replay"], USAGE, "--out"),
    ];
    for (args, want, part) in cases {
        let (code, _, err) = weft(path, args);
        assert!(code == want && err.contains(part), "{args:?}: {code} {err}");
    }
    assert!(!path.join("run.rec").exists(), "nothing was begun");
}

/// A file at its size limit: the record ends, the switch continues, and reports it at its end.
#[test]
fn a_full_disk_ends_the_record_not_the_switch() {
    let dir = directory();
    let path = dir.path();
    let limit = rustix::process::Rlimit { current: Some(100_000), maximum: None };
    let switch = Switch::start(path, &[]);
    let pid = Some(rustix::process::Pid::from_child(&switch.child.0));
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
    wait_for(path, 1_800);
    let (code, counters, err) = switch.stop();
    assert_eq!(code, SYSTEM, "{err}");
    assert_eq!(counters["rx"], 1_800);
    assert!(counters["record"]["error"].as_str().unwrap().contains("File too large"), "{counters}");
    assert_eq!(err.matches("the switch continues without recording").count(), 1, "{err}");
    let (code, _, err) = weft(path, &["replay", "--record", "run.rec"]);
    assert!(code == OK && err.contains("truncated"), "{code} {err}");
}
