//! Threads of a switch that end or get stuck, and signals that stop it.
//!
//! `weft run` with the hook of docs/running.md, and a supervisor of the test's own that starts it again.
//!
//! Source: docs/running.md; `sd_notify(3)`.

use std::io::{BufRead, Read};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weft_base::wait::{LONG, pause, until};
use weft_dataplane::port::capture::{CaptureFormat, CaptureWriter};

use super::process::start;
use super::{CONFIG, FRAMES, MAKE, Switch, free_port, socket};

/// A port that makes the switch route TLPs, between the two ports of the first worker.
const TLPS: &str = "[[port]]\nname = \"f\"\nkind = \"null\"\nrole = \"fport\"\n";
/// A second worker, which has that port, and the agent's socket.
const MORE: &str = "[run]\nworkers = 2\n\
    [fabric]\nuuid = \"5ed8a1c0-0000-4000-8000-000000000001\"\n";

/// Milliseconds since the machine was started.
fn now_ms() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

/// The result of `wait`, and how long it took.
fn timed<T>(wait: impl FnOnce() -> T) -> (T, i64) {
    let begun = now_ms();
    (wait(), now_ms() - begun)
}

/// A switch with the test hook, and every service that it can have.
struct Hooked {
    switch: Switch,
    hook: PathBuf,
    cci: PathBuf,
}

impl Hooked {
    /// Starts one in `dir`.
    fn start(dir: tempfile::TempDir, notify: Option<&Path>) -> Self {
        let (path, metrics) = (dir.path().to_owned(), free_port());
        let (hook, cci) = (path.join("hook"), path.join("cci").join("cci.sock"));
        let last = "[[port]]\nname = \"b\"";
        let config = CONFIG.replace(last, &format!("{TLPS}{last}"));
        let config = format!("{config}{MORE}cci = {:?}\n", cci.display().to_string());
        std::fs::write(path.join("t.toml"), config).unwrap();
        let mut make = assert_cmd::Command::cargo_bin("weft").unwrap();
        assert!(make.current_dir(&path).args(MAKE).output().unwrap().status.success());
        let at = format!("run.socket={}", socket(&path).display());
        let (child, err) = start(|command| {
            command.env_remove("NOTIFY_SOCKET").env("WEFT_TEST_HOOK", &hook);
            if let Some(notify) = notify {
                command.env("NOTIFY_SOCKET", notify).env("WATCHDOG_USEC", "200000");
            }
            let metrics = metrics.to_string();
            command.current_dir(&path).args(["run", "-c", "t.toml", "--overwrite", "--metrics"]);
            command.args([metrics.as_str(), "--set", &at])
        });
        Self { switch: Switch { dir, child, err, metrics }, hook, cci }
    }

    fn new() -> Self {
        Self::start(tempfile::tempdir().unwrap(), None)
    }

    /// Orders the hook to do `fate` to a thread.
    fn hook(&self, fate: &str, thread: &str) {
        let fresh = self.hook.with_extension("new");
        std::fs::write(&fresh, format!("{fate} {thread}")).unwrap();
        std::fs::rename(&fresh, &self.hook).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.switch.child.0), signal).unwrap();
    }

    /// Waits for the end of the process; returns exit code, duration, and standard error since the start.
    fn end(mut self) -> (i32, i64, String, tempfile::TempDir) {
        let child = &mut self.switch.child.0;
        let (status, took) = timed(|| until(LONG, "the end", || child.try_wait().unwrap()));
        let mut err = String::new();
        self.switch.err.read_to_string(&mut err).unwrap();
        (status.code().unwrap_or(-1), took, err, self.switch.dir)
    }

    /// Waits until the switch has forwarded all frames.
    fn forwards(&self) -> i64 {
        let sent = || {
            let shown = self.switch.json(&["show", "ports", "--json"]);
            (shown.pointer("/ports/2/tx_frames")? == FRAMES).then_some(())
        };
        timed(|| until(LONG, "it forwards", sent)).1
    }

    /// Waits until a command fails with exit code 4 and says `why`: on a busy machine other workers may be away, too,
    /// and it names them all.
    fn refuses(&self, command: &[&str], why: &str) {
        until(LONG, format!("{command:?} says: {why}"), || {
            let (code, out, err) = self.switch.ask(command);
            assert_eq!(code, 4, "{command:?}: {out} {err}");
            (out.contains(why) || err.contains(why)).then_some(())
        });
    }

    /// Waits for an event of a kind.
    fn event(&self, kind: &str) -> Value {
        let found = || {
            let shown = self.switch.json(&["show", "events", "--json"]);
            let all = shown.pointer("/events/events")?.as_array()?.clone();
            all.into_iter().find(|event| event["kind"] == kind)
        };
        until(LONG, kind, found)
    }
}

/// Each kind of thread in turn ends as by exit(2): the process ends with the documented code and names the thread, and
/// a new process forwards again.
#[test]
fn a_thread_that_is_gone_ends_the_process_and_it_comes_back() {
    #[rustfmt::skip] // columns: thread, exit code
    let cases = [
        ("weft-worker0", 20), ("weft-worker1", 20), ("weft-agent", 22), ("weft-cci", 23), ("weft-cci-client", 23),
        ("weft-mgmt", 24), ("weft-mgmt-client", 24), ("weft-metrics", 25), ("weft-metrics-client", 25),
        ("weft-mirror", 26), ("weft-events", 27), ("weft-log", 27), ("weft-watch", 27), ("weft-main", 31),
    ];
    let mut dir = tempfile::tempdir().unwrap();
    for (thread, code) in cases {
        let begun = now_ms();
        let hooked = Hooked::start(dir, None);
        let up = now_ms() - begun;
        let forwards = hooked.forwards();
        let mgmt = UnixStream::connect(socket(hooked.switch.dir.path())).unwrap();
        let cci = UnixStream::connect(&hooked.cci).unwrap();
        let metrics = TcpStream::connect(("127.0.0.1", hooked.switch.metrics)).unwrap();
        let mirror = hooked.switch.dir.path().join("mirror.pcap");
        assert_eq!(hooked.switch.ask(&["mirror", "a", mirror.to_str().unwrap()]).0, 0);
        hooked.hook("exit", thread);
        let (found, took, err, kept) = hooked.end();
        println!("{thread}: up in {up} ms, forwards {forwards} ms later, ended in {took} ms");
        assert_eq!(found, code, "{thread}: {err}");
        assert!(err.contains(thread) && err.contains(&format!("exit code {code}")), "{err}");
        drop((mgmt, cci, metrics));
        dir = kept;
        let _ = std::fs::remove_file(mirror);
    }
    let hooked = Hooked::start(dir, None);
    hooked.forwards();
    hooked.switch.stop_well(); // what is left of the ones before is no harm
}

/// A stuck worker holds up no other part: the switch reports it in time, and stops.
#[test]
fn a_stuck_worker_is_told_and_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let heard = UnixDatagram::bind(&path).unwrap();
    heard.set_read_timeout(Some(LONG)).unwrap();
    let listen = || {
        let mut bytes = [0; 512];
        let len = heard.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let hooked = Hooked::start(dir, Some(&path));
    assert_eq!(listen(), "READY=1\nSTATUS=up\n");
    assert_eq!(listen(), "WATCHDOG=1\n");
    // SIGHUP reloads; SIGUSR1 is ignored.
    hooked.signal(Signal::USR1);
    hooked.signal(Signal::HUP);
    let said: Vec<String> =
        (0..1_000).map(|_| listen()).filter(|s| !s.starts_with("WATCHDOG")).take(2).collect();
    assert!(
        said[0].starts_with("RELOADING=1\nMONOTONIC_USEC=") && said[1].starts_with("READY=1\n"),
        "{said:?}"
    );
    hooked.event("reloaded");
    hooked.forwards();

    hooked.hook("stall", "weft-worker1");
    let stalled = hooked.event("worker_stalled");
    assert_eq!((&stalled["subject"], &stalled["level"]), (&"1".into(), &"error".into()));
    let shown = hooked.switch.json(&["show", "workers", "--json"])["workers"].clone();
    assert_eq!((&shown[0]["stuck"], &shown[1]["stuck"]), (&false.into(), &true.into()), "{shown}");
    assert!(shown[1]["heartbeat_age_ns"].as_u64() >= Some(2_000_000_000), "{shown}");
    hooked.refuses(&["show", "conservation"], "unknown: worker 1 does not answer");
    hooked.refuses(&["reload"], "worker 1 does not answer");
    heard.set_nonblocking(true).unwrap();
    until(LONG, "the manager is not told any more that all is well", || {
        // Notifications that found the socket full are sent when it has room.
        while heard.recv(&mut [0; 512]).is_ok() {}
        pause(Duration::from_millis(500)); // five times the interval in which nothing may come
        heard.recv(&mut [0; 512]).is_err().then_some(())
    });

    hooked.signal(Signal::TERM);
    let (code, took, err, _dir) = hooked.end();
    println!("stopped in {took} ms");
    // On a busy machine the stop may be given up before the stuck worker is known.
    let told = err.contains("worker 1 does not answer") || err.contains("was aborted");
    assert!(code == 5 && told, "{code} {err}");
    let mut bytes = [0; 512];
    let len = heard.recv(&mut bytes).unwrap();
    assert_eq!(&bytes[..len], b"STOPPING=1\nSTATUS=stopping on SIGTERM\n");
}

/// A reload is not refused because a worker is away for longer than one wait, as happens on a busy machine.
#[test]
fn a_reload_waits_again_for_a_worker_that_was_away() {
    let hooked = Hooked::new();
    hooked.forwards();
    hooked.hook("pause", "weft-worker1");
    until(LONG, "the hook", || (!hooked.hook.exists()).then_some(()));
    let (code, out, err) = hooked.switch.ask(&["reload", "--json"]);
    assert_eq!((code, out.as_str()), (0, "{\n  \"epoch\": 1\n}\n"), "{err}");
    hooked.switch.stop_well();
}

/// SIGTERM ends the process whichever thread is stuck; a stuck main thread ends it without a signal.
#[test]
fn a_stop_is_done_in_time_whatever_is_stuck() {
    let mut dir = tempfile::tempdir().unwrap();
    for (thread, code) in [("weft-agent", 5), ("weft-mgmt", 5), ("weft-log", 0), ("weft-events", 0)]
    {
        let hooked = Hooked::start(dir, None);
        hooked.hook("stall", thread);
        until(LONG, "the hook", || (!hooked.hook.exists()).then_some(()));
        hooked.signal(Signal::TERM);
        let (found, took, err, kept) = hooked.end();
        println!("{thread}: stopped in {took} ms");
        assert_eq!(found, code, "{thread}: {err}");
        dir = kept;
    }
    let hooked = Hooked::start(dir, None);
    hooked.hook("stall", "weft-main");
    let (code, _, err, _dir) = hooked.end();
    assert!(code == 31 && err.contains("weft-main"), "{code} {err}");
}

/// A process that was stopped (SIGSTOP) for longer than a thread may be stuck continues as before.
#[test]
fn a_switch_that_was_stopped_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let heard = UnixDatagram::bind(&path).unwrap();
    heard.set_read_timeout(Some(LONG)).unwrap();
    let hooked = Hooked::start(dir, Some(&path));
    hooked.forwards();
    hooked.signal(Signal::STOP);
    // Longer than the 3 s after which a stuck main thread ends the process. No condition can be polled in a stopped
    // process, so wait.
    pause(Duration::from_millis(3_500));
    heard.set_nonblocking(true).unwrap();
    while heard.recv(&mut [0; 512]).is_ok() {}
    heard.set_nonblocking(false).unwrap();
    hooked.signal(Signal::CONT);
    hooked.forwards();
    heard.recv(&mut [0; 512]).expect("the manager is told that all is well again");
    let shown = hooked.switch.json(&["show", "workers", "--json"]);
    let workers = shown.pointer("/workers").and_then(Value::as_array).unwrap();
    assert_eq!(workers.len(), 2, "{shown}");
    let before = hooked.switch.json(&["show", "events", "--json"]);
    let kinds = before.pointer("/events/events").and_then(Value::as_array).unwrap();
    assert!(kinds.iter().all(|event| event["kind"] != "worker_stalled"), "{before}");
    hooked.signal(Signal::TERM);
    assert_eq!(hooked.end().0, 0);
}

/// A switch whose standard error is not read still serves, and stops.
#[test]
fn a_log_that_nobody_reads_stops_nobody() {
    let hooked = Hooked::new();
    // Standard error is a pipe that is not read from here on; refused configurations fill it.
    std::fs::write(hooked.switch.dir.path().join("t.toml"), "[switch]\nname = 7\n").unwrap();
    for _ in 0..80 {
        assert_ne!(hooked.switch.ask(&["reload"]).0, 0);
    }
    let shown = until(LONG, "it answers", || {
        let (code, out, _) = hooked.switch.ask(&["show", "events", "--json"]);
        (code == 0).then(|| serde_json::from_str::<Value>(&out).unwrap())
    });
    let events = shown["events"]["events"].as_array().unwrap().clone();
    let of = |kind: &str| events.iter().find(|event| event["kind"] == kind).cloned().unwrap();
    assert_eq!(of("reload_refused")["level"], "warn");
    assert_eq!(of("link_up")["level"], "info");
    hooked.switch.stop_well();
}

/// Events as text, as JSON, and as they happen; a refused configuration is an event.
#[test]
fn events_are_shown_and_logged_in_one_form() {
    let dir = tempfile::tempdir().unwrap();
    let config = CONFIG.to_owned() + "[run]\nlog_format = \"json\"\n";
    std::fs::write(dir.path().join("t.toml"), &config).unwrap();
    let switch = Switch::start_with(&config);
    let watched = std::process::Command::new(assert_cmd::cargo::cargo_bin("weft"))
        .args(["show", "events", "--watch", "--json", "--interval", "0.05", "--socket"])
        .arg(socket(switch.dir.path()))
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut watched = super::Guard(watched.unwrap());
    let mut lines = std::io::BufReader::new(watched.0.stdout.take().unwrap()).lines();
    let mut next = |kind: &str| loop {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if event["kind"] == kind {
            return event;
        }
    };
    assert_eq!(next("link_up")["subject"], "a");
    std::fs::write(switch.dir.path().join("t.toml"), config.replace("[buffer]", "[bufer]"))
        .unwrap();
    assert_eq!(switch.ask(&["reload"]).0, 4);
    let refused = next("reload_refused");
    assert!(refused["message"].as_str().unwrap().contains("did you mean"), "{refused}");
    let text = switch.ask(&["show", "events"]).1;
    assert!(text.lines().any(|line| line.contains("Z warn reload_refused: ")), "{text}");
    let (code, _, err, _) = switch.stop();
    assert_eq!(code, Some(0));
    for line in err.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(line["time"].is_string() && line["message"].is_string(), "{line}");
    }
    assert!(
        err.contains("\"kind\":\"reload_refused\"") && err.contains("stopping on SIGTERM"),
        "{err}"
    );
}

/// A capture of `frames`, each with its stamp in milliseconds.
fn capture(path: &Path, frames: impl Iterator<Item = (u64, Vec<u8>)>) {
    let mut writer = CaptureWriter::create(path, CaptureFormat::Pcap, 0).unwrap();
    for (ms, frame) in frames {
        writer.write(ms * 1_000_000, &frame, None).unwrap();
    }
    writer.finish().unwrap();
}

/// A frame of 100 bytes from a station to an unknown one.
fn from_station(number: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 9, 9, 2, 0, 0, 0, 1, number, 0x08, 0x00];
    frame.resize(100, 0);
    frame
}

/// PFC: all classes paused for as long as can be asked for.
fn pause_all() -> Vec<u8> {
    let mut frame = vec![0x01, 0x80, 0xC2, 0, 0, 0x01, 2, 0, 0, 0, 2, 1, 0x88, 0x08, 1, 1, 0, 0xFF];
    frame.extend([0xFF; 16]);
    frame.resize(60, 0);
    frame
}

/// Events name the place of a station at two ports, of a full forwarding database, and of a peer that pauses for ever.
#[test]
fn what_happens_at_ports_is_told() {
    const CONFIG: &str = "[switch]\nname = \"t\"\n[fdb]\ncapacity = 64\nloop_action = \"alarm\"\nsticky_s = 0\n\
        [port_defaults]\nmax_learned = 64\n[pfc]\nwatchdog_detect_ms = 50\nwatchdog_restore_ms = 50\n\
        [[port]]\nname = \"a\"\nkind = \"pcap\"\ndevice = \"a.pcap:\"\n\
        [[port]]\nname = \"b\"\nkind = \"pcap\"\ndevice = \"b.pcap:\"\n\
        [[port]]\nname = \"c\"\nkind = \"null\"\n";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    std::fs::write(path.join("t.toml"), CONFIG).unwrap();
    let moving = |offset: u64| (0..200).map(move |turn| (turn * 20 + offset, from_station(0)));
    let mut all: Vec<_> = moving(0).chain((1..=200).map(|n| (30, from_station(n)))).collect();
    all.sort_by_key(|(ms, _)| *ms);
    capture(&path.join("a.pcap"), all.into_iter());
    let pauses = (0..400).map(|turn| (turn * 10, pause_all()));
    let mut all: Vec<_> = pauses.chain(moving(10)).collect();
    all.sort_by_key(|(ms, _)| *ms);
    capture(&path.join("b.pcap"), all.into_iter());
    let at = format!("run.socket={}", socket(&path).display());
    let (child, err) =
        start(|command| command.current_dir(&path).args(["run", "-c", "t.toml", "--set", &at]));
    let hooked = Hooked {
        switch: Switch { dir, child, err, metrics: 0 },
        hook: PathBuf::new(),
        cci: PathBuf::new(),
    };
    #[rustfmt::skip] // columns: kind, its subject or a part of its message
    let cases = [
        ("fdb_full", "fdb"), ("station_moved", "02:00:00:00:01:00 in VLAN 1"), ("loop", "a, b"), ("pfc_storm", "b"),
        ("pfc_storm_over", "b"),
    ];
    for (kind, part) in cases {
        let event = hooked.event(kind);
        assert!(event["subject"].as_str().unwrap().contains(part), "{event}");
    }
    let all = hooked.switch.json(&["show", "all", "--json"]);
    assert!(all["all"]["events"]["station_moved"].as_u64() > Some(1), "{}", all["all"]["events"]);
    hooked.switch.stop();
}
