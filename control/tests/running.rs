//! A switch on a capture and a sink, asked by the commands that ask a running switch.
//!
//! Shape: `weft run` as a child process, its socket in a directory of the test's own.
//! Units: none.
//! Source: issue 2, "`weft` binary"; architecture.md, "Control".

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "common/process.rs"]
mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Stdio};

use assert_cmd::Command;
use serde_json::Value;

use process::{Guard, start};

const CONFIG: &str = "[switch]\nname = \"t\"\nseed = 1\n[buffer]\ndt_alpha = 1\n\
    [[port]]\nname = \"a\"\nkind = \"pcap\"\ndevice = \"in.pcap:out.pcap\"\n\
    [[port]]\nname = \"b\"\nkind = \"null\"\n";

/// Frames that port a receives: to a station that is not known, so that they go to port b.
const MAKE: &[&str] =
    &["gen", "standard", "gen1", "gen2", "--count", "20", "--size", "100", "--out", "in.pcap"];
const FRAMES: u64 = 60;

struct Switch {
    dir: tempfile::TempDir,
    child: Guard,
    err: BufReader<ChildStderr>,
    metrics: u16,
}

/// A port of loopback that nobody listens at.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Switch {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("t.toml"), CONFIG).unwrap();
        let made = Command::cargo_bin("weft").unwrap().current_dir(dir.path()).args(MAKE).output();
        assert!(made.unwrap().status.success());
        let metrics = free_port();
        let socket = format!("run.socket={}", socket(dir.path()).display());
        let (child, err) = start(|command| {
            let run = ["run", "-c", "t.toml", "--metrics", &metrics.to_string(), "--set", &socket];
            command.args(run).current_dir(dir.path())
        });
        Self { dir, child, err, metrics }
    }

    /// Exit code, standard output and standard error of `weft ARGS --socket ...`.
    fn ask(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::cargo_bin("weft").unwrap();
        let socket = socket(self.dir.path());
        let output =
            command.current_dir(self.dir.path()).args(args).arg("--socket").arg(socket).output();
        let output = output.unwrap();
        let text = |octets| String::from_utf8(octets).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn json(&self, args: &[&str]) -> Value {
        let (code, out, err) = self.ask(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        serde_json::from_str(&out).unwrap()
    }

    /// Ends it as an operator does; its exit code, standard output and the rest of standard error.
    fn stop(mut self) -> (Option<i32>, String, String, tempfile::TempDir) {
        let pid = rustix::process::Pid::from_child(&self.child.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        self.child.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        (self.child.0.wait().unwrap().code(), out, err, self.dir)
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("weft").join("t").join("mgmt.sock")
}

#[test]
fn a_running_switch_shows_and_changes_its_state() {
    let switch = Switch::start();
    for what in
        ["ports", "fdb", "queues", "buffer", "pfc", "drops", "conservation", "workers", "all"]
    {
        let shown = switch.json(&["show", what, "--json"]);
        assert!(shown.get(what).is_some(), "{what}: {shown}");
        let (code, text, err) = switch.ask(&["show", what]);
        assert!(code == 0 && !text.is_empty() && !text.contains('\x1b'), "{what}: {err}");
    }
    let ports = || switch.json(&["show", "ports", "--json"])["ports"].clone();
    let tx = |ports: &Value| ports[1]["tx_frames"].as_u64().unwrap();
    let seen = (0..200).map(|_| ports()).find(|ports| tx(ports) == FRAMES).unwrap();
    assert_eq!((&seen[0]["name"], &seen[1]["kind"]), (&"a".into(), &"null".into()));
    let formats = serde_json::json!({"gen1": 20, "gen2": 20, "standard": 20});
    assert_eq!(seen[0]["rx_formats"], formats);
    let sum = switch.json(&["show", "conservation", "--json"]);
    assert_eq!(sum["conservation"]["holds"], true, "{sum}");
    assert_eq!(sum["conservation"]["rx"], FRAMES, "{sum}");
    let workers = switch.json(&["show", "workers", "--json"])["workers"].clone();
    let of = |what: &str| workers[0][what].as_u64().unwrap();
    assert_eq!(of("frames"), FRAMES, "{workers}");
    assert!((1..=FRAMES).contains(&of("bursts")), "{workers}");
    assert!(of("busy_ns") > 0 && of("busy_ns") < of("uptime_ns"), "{workers}");
    assert!(of("busy_cycles") > 0 || !cfg!(target_arch = "x86_64"), "{workers}");
    let table = switch.ask(&["show", "workers"]).1;
    assert!(table.contains("frames/burst") && table.contains("cycles/frame"), "{table}");

    // The forwarding database takes an entry and gives it back.
    let entries = || {
        let shown = switch.json(&["show", "fdb", "--json"]);
        shown["fdb"]["entries"].as_array().unwrap().clone()
    };
    let is_ours = |row: &Value| row["addr"] == "02:00:00:00:77:01" && row["vid"] == 7;
    assert_eq!(switch.ask(&["fdb", "add", "02:00:00:00:77:01", "b", "--vid", "7"]).0, 0);
    let row = entries().into_iter().find(is_ours).unwrap();
    assert_eq!((&row["port"], &row["static"]), (&"b".into(), &true.into()));
    assert_eq!(switch.ask(&["fdb", "del", "02:00:00:00:77:01", "--vid", "7"]).0, 0);
    assert!(!entries().iter().any(is_ours));
    let (code, _, err) = switch.ask(&["fdb", "del", "02:00:00:00:77:01", "--vid", "7"]);
    assert!(code == 4 && err.contains("no entry"), "{code} {err}");
    let (code, _, err) = switch.ask(&["fdb", "add", "02:00:00:00:77:01", "z"]);
    assert!(code == 4 && err.contains('z'), "{code} {err}");

    // Metrics are the same numbers.
    let mut stream = TcpStream::connect(("127.0.0.1", switch.metrics)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(
        page.contains("weft_unaccounted_frames 0\n") && page.contains("{port=\"a\"}"),
        "{page}"
    );

    let (code, out, err, dir) = switch.stop();
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("unaccounted 0"), "{out}");
    assert!(!dir.path().join("weft").exists(), "socket and directories are gone");
}

#[test]
fn reload_takes_all_or_nothing() {
    let switch = Switch::start();
    let rewrite = |from: &str, to: &str| {
        assert!(CONFIG.contains(from));
        std::fs::write(switch.dir.path().join("t.toml"), CONFIG.replace(from, to)).unwrap();
    };
    let epoch = || switch.json(&["show", "all", "--json"])["all"]["epoch"].clone();
    assert_eq!(epoch(), 0);
    rewrite("dt_alpha = 1", "dt_alpha = 4");
    assert_eq!(switch.ask(&["reload"]).0, 0);
    assert_eq!(epoch(), 1);
    #[rustfmt::skip] // columns: from, to, part of standard error
    let refused = [
        ("dt_alpha = 1", "dt_alpha = 3", "t.toml:5:12: buffer.dt_alpha: expected"),
        ("seed = 1", "seed = 2", "t.toml:3:1: switch.seed: can only change with a restart"),
        ("name = \"b\"", "name = \"c\"", "port.name: can only change with a restart"),
        ("[buffer]", "[bufer]", "did you mean \"buffer\"?"),
    ];
    for (from, to, part) in refused {
        rewrite(from, to);
        let (code, _, err) = switch.ask(&["reload"]);
        assert!(code == 4 && err.contains(part), "{to}: {code} {err}");
        assert_eq!(epoch(), 1, "{to}");
    }
    let (code, _, err) = switch.ask(&["reload", "other.toml"]);
    assert!(code == 4 && err.contains("other.toml"), "{code} {err}");
    assert_eq!(switch.stop().0, Some(0));
}

#[test]
fn watching_ends_with_the_switch() {
    let switch = Switch::start();
    let mut watching = std::process::Command::new(assert_cmd::cargo::cargo_bin("weft"))
        .args(["show", "ports", "--json", "--watch", "--interval", "0.05", "--socket"])
        .arg(socket(switch.dir.path()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let shown: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(shown["ports"].as_array().unwrap().len(), 2);
    }
    assert_eq!(switch.stop().0, Some(0));
    assert_eq!(lines.by_ref().filter(Result::is_err).count(), 0);
    let ended = watching.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(4) && err.contains("switch"), "{err}");
}
