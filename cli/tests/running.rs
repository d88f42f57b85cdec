//! A switch on a capture and a sink, asked by the commands that ask a running switch.
//!
//! `weft run` as a child process, its socket in a directory of the test's own.
//!
//! Source: ARCHITECTURE.md "Control".

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "running/memory.rs"]
mod memory;
#[path = "running/pipes.rs"]
mod pipes;
#[path = "running/placement.rs"]
mod placement;
#[path = "common/process.rs"]
mod process;
#[path = "running/supervision.rs"]
mod supervision;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Stdio};
use std::time::Duration;

use assert_cmd::Command;
use serde_json::Value;
use weft_base::wait::{LONG, pause, until};
use weft_control::sai::objects::Object;
use weft_control::sai::thrift::{Fields, Kind, Message, MessageKind, Output};

use process::{Guard, start};

const CONFIG: &str = "[switch]\nname = \"t\"\nseed = 1\n[buffer]\ndt_alpha = 1\n\
    [[port]]\nname = \"a\"\nkind = \"pcap\"\ndevice = \"in.pcap:out.pcap\"\n\
    [[port]]\nname = \"b\"\nkind = \"null\"\n";

/// Frames that port a receives: to an unknown station, so they are flooded to port b.
const MAKE: &[&str] =
    &["gen", "standard", "gen1", "gen2", "--count", "20", "--size", "100", "--out", "in.pcap"];
const FRAMES: u64 = 60;

struct Switch {
    dir: tempfile::TempDir,
    child: Guard,
    err: BufReader<ChildStderr>,
    metrics: u16,
}

/// A free TCP port of loopback.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Switch {
    fn start() -> Self {
        Self::start_with(CONFIG)
    }

    fn start_with(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("t.toml"), config).unwrap();
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
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// The JSON answer. On a busy machine a worker may be away for longer than the switch waits for it, so the command
    /// is repeated.
    fn json(&self, args: &[&str]) -> Value {
        let out = until(LONG, "its workers answer", || {
            let (code, out, err) = self.ask(args);
            let is_away = code == 4 && err.contains("does not answer");
            assert!(code == 0 || is_away, "{args:?}: {code}, {err}");
            (code == 0).then_some(out)
        });
        serde_json::from_str(&out).unwrap()
    }

    /// Ends the switch as an operator does; returns exit code, standard output and the rest of standard error.
    fn stop(mut self) -> (Option<i32>, String, String, tempfile::TempDir) {
        let pid = rustix::process::Pid::from_child(&self.child.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        self.child.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        (self.child.0.wait().unwrap().code(), out, err, self.dir)
    }

    /// Ends the switch as an operator does, and expects exit code 0.
    fn stop_well(self) {
        let (code, _, err, _) = self.stop();
        assert_eq!(code, Some(0), "{err}");
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("weft").join("t").join("mgmt.sock")
}

/// A connection to the SAI service of a switch.
struct Sai(TcpStream);

impl Sai {
    fn connect(at: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", at)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self(stream)
    }

    /// Calls a method with the arguments that `write` adds; returns the whole answer.
    fn call(&mut self, name: &str, write: impl FnOnce(&mut Output)) -> Vec<u8> {
        let (kind, name) = (MessageKind::Call, name.to_owned());
        let message = Message { name, kind, seq: 1, strict: true, args: Fields::new() };
        let mut out = Output::answer(&message, kind);
        write(&mut out);
        out.stop();
        self.0.write_all(&out.into_bytes()).unwrap();
        let mut answer = vec![0; 1_000];
        let count = self.0.read(&mut answer).unwrap();
        answer.truncate(count);
        answer
    }

    fn enable_tx(&mut self, on: bool) {
        let answer = self.call("sai_thrift_set_port_attribute", |out| {
            out.field(Kind::I64, 1).i64(Object::Port(1).id());
            out.field(Kind::Struct, 2);
            out.field(Kind::I32, 1).i32(97);
            out.field(Kind::Struct, 2);
            out.field(Kind::Bool, 1).byte(u8::from(on));
            (0..2).for_each(|_| out.stop());
        });
        assert_eq!(answer.last_chunk(), Some(&[8, 0, 0, 0, 0, 0, 0, 0]), "success");
    }

    /// The most bytes that queues of port 1 have held, all priorities.
    fn most(&mut self) -> i64 {
        let of = |pri| {
            let answer = self.call("sai_thrift_get_queue_stats", |out| {
                out.field(Kind::I64, 1).i64(Object::Queue(1, pri).id());
                out.field(Kind::List, 2).list(Kind::I32, 1).i32(27);
                out.field(Kind::I32, 3).i32(1);
            });
            let [value @ .., _]: [u8; 9] = *answer.last_chunk().unwrap();
            i64::from_be_bytes(value)
        };
        (0..4).map(of).sum()
    }
}

/// A port that is held and lets go by command and by the SAI service is shown so.
#[test]
fn a_running_switch_is_held_and_read_by_sai() {
    let at = free_port();
    let switch = Switch::start_with(&format!("{CONFIG}[sai]\nlisten = \"{at}\"\n"));
    let mut sai = Sai::connect(at);
    let tx_off = || switch.json(&["show", "ports", "--json"])["ports"][1]["tx_off"].clone();
    sai.enable_tx(false);
    assert_eq!(tx_off(), true);
    assert_eq!(switch.ask(&["reload"]).0, 0);
    assert_eq!(tx_off(), true, "through a reload");
    assert_eq!(switch.ask(&["port", "b", "tx", "on"]).0, 0);
    assert_eq!(tx_off(), false);
    assert_eq!(switch.ask(&["port", "b", "tx", "off"]).0, 0);
    assert_eq!(tx_off(), true);
    sai.enable_tx(true);
    assert_eq!(tx_off(), false);
    let held = switch.json(&["port", "b", "tx", "off", "--json"]);
    assert_eq!(held, serde_json::json!({ "port": "b", "tx": "off" }));
    let epoch = switch.json(&["reload", "--json"])["epoch"].as_u64().unwrap();
    let (code, out, _) = switch.ask(&["reload"]);
    assert_eq!((code, out), (0, format!("configuration {} is in force\n", epoch + 1)));
    let (code, _, err) = switch.ask(&["port", "z", "tx", "off"]);
    assert!(code == 4 && err.contains("no port \"z\""), "{code} {err}");

    let params = switch.json(&["conform", "params", "--json"]);
    assert_eq!(params["rows"].as_array().unwrap().len(), 8, "{params}");
    assert!(switch.ask(&["conform", "params"]).1.contains("trig pfc"));
    switch.stop_well();
}

/// After frames came and went, each reader has a watermark of its own.
#[test]
fn watermarks_begin_again_for_their_reader() {
    let at = free_port();
    let switch = Switch::start_with(&format!("{CONFIG}[sai]\nlisten = \"{at}\"\n"));
    let mut sai = Sai::connect(at);
    let sum = || switch.json(&["show", "conservation", "--json"])["conservation"].clone();
    until(LONG, "all frames have left", || (sum()["tx"] == FRAMES).then_some(()));
    let most = |keep: bool| {
        let mut args = vec!["show", "queues", "--json"];
        args.extend(keep.then_some("--keep-watermarks"));
        let queues = switch.json(&args)["queues"].clone();
        let rows = queues.as_array().unwrap().clone();
        rows.iter().map(|row| row["depth_watermark_cells"].as_u64().unwrap()).sum::<u64>()
    };
    let had = most(true);
    assert!(had > 0);
    assert!(sai.most() > 0);
    assert_eq!(sai.most(), 0, "a read begins it again");
    assert_eq!(most(false), had, "for that reader alone");
    assert_eq!(most(false), 0);
    switch.stop_well();
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
    let seen =
        until(LONG, "all frames have left", || Some(ports()).filter(|ports| tx(ports) == FRAMES));
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
    let entry = serde_json::json!({ "addr": "02:00:00:00:77:01", "vid": 7, "port": "b" });
    let add = ["fdb", "add", "02:00:00:00:77:01", "b", "--vid", "7", "--json"];
    assert_eq!(switch.json(&add), entry);
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

/// Frames to a station that is not known leave once, each flow by one port of the LAG.
/// `run.log` is the lowest level that is logged.
#[test]
fn a_log_of_errors_does_not_tell_what_goes_well() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("t.toml"), "[[port]]\nname = \"a\"\nkind = \"null\"\n").unwrap();
    let path = socket(dir.path());
    let set = format!("run.socket={}", path.display());
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin("weft"))
        .args(["run", "-c", "t.toml", "--set", &set, "--set", "run.log=error"])
        .current_dir(dir.path())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut child = process::Guard(child.unwrap());
    until(LONG, "it is up", || {
        assert!(child.0.try_wait().unwrap().is_none(), "it ended before it was up");
        UnixStream::connect(&path).ok()
    });
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut told = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((child.0.wait().unwrap().code(), told.as_str()), (Some(0), ""));
}

#[test]
fn a_lag_is_one_port() {
    let lag = "[[port]]\nname = \"c\"\nkind = \"null\"\n\
        [[lag]]\nname = \"up\"\nports = [\"b\", \"c\"]\n";
    let switch = Switch::start_with(&(CONFIG.to_owned() + lag));
    let ports = || switch.json(&["show", "ports", "--json"])["ports"].clone();
    let tx = |ports: &Value| [0, 1, 2].map(|port| ports[port]["tx_frames"].as_u64().unwrap());
    let seen = until(LONG, "all frames have left", || {
        Some(ports()).filter(|ports| tx(ports).iter().sum::<u64>() >= FRAMES)
    });
    let [a, b, c] = tx(&seen);
    assert!(a == 0 && b + c == FRAMES && b % 20 == 0, "{FRAMES} frames are 3 flows: {seen}");
    let lags: Vec<_> = [0, 1, 2].iter().map(|&port: &usize| seen[port]["lag"].as_str()).collect();
    assert_eq!(lags, [None, Some("up"), Some("up")]);
    let text = switch.ask(&["show", "ports"]).1;
    assert!(text.contains("b: in LAG up\nc: in LAG up\n"), "{text}");
    let sum = switch.json(&["show", "conservation", "--json"]);
    assert_eq!(sum["conservation"]["holds"], true, "{sum}");

    // Entries name the LAG, or its first port for it.
    for (addr, port) in [("02:00:00:00:77:01", "up"), ("02:00:00:00:77:02", "b")] {
        let (code, _, err) = switch.ask(&["fdb", "add", addr, port]);
        assert_eq!(code, 0, "{err}");
        let shown = switch.json(&["show", "fdb", "--json"]);
        let rows = shown["fdb"]["entries"].as_array().unwrap();
        let row = rows.iter().find(|row| row["addr"] == addr).unwrap();
        assert_eq!(row["port"], "up", "{addr}");
    }
    let (code, _, err) = switch.ask(&["fdb", "add", "02:00:00:00:77:03", "c"]);
    assert!(code == 4 && err.contains("LAG up"), "{code} {err}");
    let fewer = CONFIG.to_owned() + "[[port]]\nname = \"c\"\nkind = \"null\"\n";
    std::fs::write(switch.dir.path().join("t.toml"), fewer).unwrap();
    let (code, _, err) = switch.ask(&["reload"]);
    assert!(code == 4 && err.contains("can only change with a restart"), "{code} {err}");
    switch.stop_well();
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
        ("dt_alpha = 1", "dt_alpha = 65", "t.toml:5:12: buffer.dt_alpha: expected"),
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
    switch.stop_well();
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
    switch.stop_well();
    assert_eq!(lines.by_ref().filter(Result::is_err).count(), 0);
    let ended = watching.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(4) && err.contains("switch"), "{err}");
}

/// Processor time of the thread that accepts management clients, in ticks of a hundredth of a second.
fn acceptor_ticks(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).ok();
    let mut stats = tasks.filter_map(|task| stat(task.unwrap()));
    let stat = stats.find(|stat| stat.contains("(weft-mgmt)")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

/// Clients beyond that are sent away, no thread spins, and clients are served when descriptors are free again.
#[test]
fn acceptors_wait_when_descriptors_run_out() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let switch = Switch::start();
    let id = switch.child.0.id();
    let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|at| line.split_whitespace().nth(at).unwrap());
    assert_eq!(soft, hard, "raised to what it may have");
    // The limit is the lowest free number: no further descriptor can be opened.
    let none_left = || {
        let open = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap();
        let open: BTreeSet<u64> =
            open.filter_map(|fd| fd.ok()?.file_name().to_str()?.parse().ok()).collect();
        (0..20_000).find(|number| !open.contains(number)).unwrap()
    };
    let limit = |count: u64| {
        let few = Rlimit { current: Some(count), maximum: hard.parse().ok() };
        prlimit(Some(Pid::from_child(&switch.child.0)), Resource::Nofile, few).unwrap();
    };
    let connect = || {
        let stream = UnixStream::connect(socket(switch.dir.path())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    };
    // One after the other, each with a request: a client without an answer was sent away.
    let served = |mut stream: &UnixStream| {
        let asked = stream.write_all(b"{\"cmd\":\"show\",\"what\":\"drops\"}\n");
        let mut answer = String::new();
        let read = asked.and_then(|()| BufReader::new(stream).read_line(&mut answer));
        let hangs = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!read.is_err_and(|error| hangs(&error)), "a client waits in vain");
        answer.contains("\"ok\"")
    };
    let kept = connect();
    assert!(served(&kept));
    limit(none_left());
    let waiting: Vec<UnixStream> = (0..8).map(|_| connect()).collect();
    let before = acceptor_ticks(id);
    pause(Duration::from_millis(500)); // a rate is over a span
    let spent = acceptor_ticks(id) - before;
    assert!(spent < 5, "{spent} hundredths of a second of processor time in half a second");
    assert!(waiting.iter().all(|stream| !served(stream)));
    assert!(served(&kept), "who was there before is served on");
    limit(soft.parse().unwrap_or(4_096));
    until(LONG, "who comes after descriptors are free is served", || {
        served(&connect()).then_some(())
    });
    switch.stop_well();
}

/// Captures and records are readable by their owner only; existing files are replaced only with --overwrite.
#[test]
fn files_with_frames_are_private_and_are_not_overwritten() {
    let switch = Switch::start();
    let mode = |name: &str| {
        std::fs::metadata(switch.dir.path().join(name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode("out.pcap"), 0o600);
    let refuses = |args: &[&str], part: &str| {
        let (code, _, err) = switch.ask(args);
        assert!([3, 4].contains(&code) && err.contains(part), "{args:?}: {code} {err}");
    };
    let mirror = switch.json(&["mirror", "b", "m.pcap", "--json"]);
    assert!(
        mirror["port"] == "b" && mirror["to"].as_str().unwrap().ends_with("/m.pcap"),
        "{mirror}"
    );
    assert_eq!(mode("m.pcap"), 0o600);
    assert_eq!(switch.ask(&["mirror", "b", "--off"]).0, 0);
    refuses(&["mirror", "b", "m.pcap"], "--overwrite replaces it");
    assert_eq!(switch.ask(&["mirror", "b", "m.pcap", "--overwrite"]).0, 0);
    std::os::unix::fs::symlink("m.pcap", switch.dir.path().join("link.pcap")).unwrap();
    refuses(&["mirror", "b", "link.pcap", "--overwrite"], "symbolic link");
    refuses(&["trace", "--out", "m.pcap.json", "in=z"], "z"); // a filter is looked at first
    std::fs::write(switch.dir.path().join("t.json"), "mine").unwrap();
    refuses(&["trace", "--out", "t.json"], "--overwrite replaces it");
    assert_eq!(std::fs::read(switch.dir.path().join("t.json")).unwrap(), b"mine");
    let (code, _, err, dir) = switch.stop();
    assert_eq!(code, Some(0), "{err}");
    // The same ports again would lose what the first run wrote.
    let socket = format!("run.socket={}", socket(dir.path()).display());
    let again = |more: &[&str]| {
        let mut command = Command::cargo_bin("weft").unwrap();
        let run = ["run", "-c", "t.toml", "--set", &socket];
        let ended = command.current_dir(dir.path()).args(run).args(more).output().unwrap();
        (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
    };
    let (code, err) = again(&[]);
    assert!(code == 3 && err.contains("out.pcap") && err.contains("--overwrite"), "{code} {err}");
    let (code, err) = again(&["--record", "m.pcap"]);
    assert!(code == 3 && err.contains("m.pcap") && err.contains("--overwrite"), "{code} {err}");
    // A switch that does not start leaves no empty record, which would be in the way of the next one.
    let (code, err) = again(&["--record", "r.rec"]);
    assert!(code == 3 && !dir.path().join("r.rec").exists(), "{code} {err}");
    let (child, _err) = start(|command| {
        let run = ["run", "-c", "t.toml", "--set", &socket, "--overwrite", "--record", "m.pcap"];
        command.args(run).current_dir(dir.path())
    });
    drop(child);
}
