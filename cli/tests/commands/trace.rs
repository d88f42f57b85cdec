//! `weft trace` on a switch that runs in this process, in all its forms.
//!
//! Numbered frames of one length and one beginning, played by a port with pauses between them;
//! the trace must show each as it came in.
//!
//! Lengths are without FCS.

use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use serde_json::Value;
use weft::cli::Cli;
use weft::error::CliError;
use weft_base::files::OpenedBy;
use weft_base::wait::{LONG, until};
use weft_config::{Config, SettingsFlags, Timing};
use weft_control::live::backend::SwitchHandle;
use weft_control::mgmt::Server;
use weft_control::requests::{Backend, SwitchHandler};
use weft_dataplane::port::capture::{CaptureFormat, CaptureReader, CaptureWriter, Record};

/// With as many workers as ports, each has a port.
const CONFIG: &str = "[switch]\nname = \"t\"\nseed = 1\n\
    [run]\nworkers = 1\n\
    [[port]]\nname = \"sink\"\nkind = \"null\"\n";
/// Half a minute of frames: a trace that begins meanwhile sees some, however slow the machine.
const FRAMES: u64 = 3_000;
const GAP_NS: u64 = 10_000_000;
const LEN: usize = 100;

/// Frame `number`, which only its payload tells from the others.
fn frame(number: u64) -> Vec<u8> {
    frame_of("a", number)
}

/// The same of the station behind `port`.
fn frame_of(port: &str, number: u64) -> Vec<u8> {
    let station = port.as_bytes()[0];
    let mut frame = vec![2, 0, 0, 0, 0, 0x0B, 2, 0, 0, 0, 0, station, 0x60, 0x07];
    frame.resize(LEN - 8, 0x5A);
    frame.extend(number.to_be_bytes());
    frame
}

struct Switch {
    dir: tempfile::TempDir,
    handle: Arc<SwitchHandle>,
    _server: Server,
}

impl Switch {
    fn start(workers: usize) -> Self {
        Self::playing(workers, &["a"], 1)
    }

    /// A switch whose ports `inputs` play `burst` frames at once, again and again.
    fn playing(workers: usize, inputs: &[&str], burst: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = CONFIG.replace("workers = 1", &format!("workers = {workers}"));
        for port in inputs {
            let input = dir.path().join(format!("{port}.pcap"));
            let mut capture = CaptureWriter::create(&input, CaptureFormat::Pcap, 0).unwrap();
            for number in 0..FRAMES * burst {
                let at_ns = number / burst * GAP_NS;
                capture.write(at_ns, &frame_of(port, number), None).unwrap();
            }
            capture.finish().unwrap();
            let device = input.display();
            let lines =
                [format!("name = '{port}'"), format!("kind = 'pcap'\ndevice = '{device}'\n")];
            config.extend(["[[port]]\n", &lines.join("\n")]);
        }
        let file = dir.path().join("t.toml");
        std::fs::write(&file, config).unwrap();
        let flags = SettingsFlags { config: Some(file), ..SettingsFlags::default() };
        let settings = flags.sources(OpenedBy::Command).unwrap().settings().unwrap();
        let config = Config::resolve(&settings, Timing::Live).unwrap();
        let switch = Arc::new(SwitchHandle::start(flags, config, None, None).unwrap());
        // Frames to a port whose worker has not seen its link yet are dropped: no trace is to begin with them.
        until(LONG, "all links are up", || {
            switch.stats(None).ports.iter().all(|port| port.link_up).then_some(())
        });
        let server =
            Server::start(&socket(dir.path()), Arc::new(SwitchHandler::new(switch.clone())))
                .unwrap();
        Self { dir, handle: switch, _server: server }
    }

    /// Standard output of `weft trace ARGS`, and how it ended.
    fn trace(&self, args: &[&str]) -> (String, Result<(), CliError>) {
        let socket = socket(self.dir.path());
        let cli = [&["weft", "trace", "--socket", socket.to_str().unwrap()], args].concat();
        let mut out = Vec::new();
        let ended = Cli::parse_from(cli).run(&mut out);
        (String::from_utf8(out).unwrap(), ended)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let (counters, _, _) = self.handle.stop();
        assert!(std::thread::panicking() || counters.imbalance() == 0, "{counters:?}");
    }
}

fn socket(dir: &Path) -> std::path::PathBuf {
    dir.join("weft").join("t").join("mgmt.sock")
}

fn records(path: &Path) -> Vec<Record> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut records = Vec::new();
    let mut record = Record::default();
    while reader.read_into(&mut record).unwrap() {
        records.push(record.clone());
    }
    records
}

#[test]
fn a_capture_holds_each_frame_and_its_path() {
    for workers in [1, 2] {
        capture_four(&Switch::start(workers));
    }
}

fn capture_four(switch: &Switch) {
    let path = switch.dir.path().join("t.pcapng");
    let name = path.to_str().unwrap();
    let (text, ended) = switch.trace(&["in=a,out=sink", "-n", "4", "--out", name]);
    ended.unwrap();
    assert_eq!(text, "");
    let records = records(&path);
    assert_eq!(records.len(), 4);
    let number = |record: &Record| {
        let end = record.data.last_chunk::<8>().unwrap();
        u64::from_be_bytes(*end)
    };
    let first = number(&records[0]);
    for (nth, record) in (0..).zip(&records) {
        assert_eq!(record.data, frame(first + nth));
        assert_eq!((record.orig_len, record.interface), (100, 1));
        assert!(record.ts_ns >= (first + nth) * GAP_NS, "played no earlier than its stamp");
        let comment = record.comment.as_deref().unwrap();
        let stages: Vec<&str> = comment.lines().collect();
        assert_eq!(stages.len(), 6, "{comment}");
        for (stage, part) in stages.iter().zip([
            "rx        a 100 bytes",
            "classify  other, priority 0 by default",
            "forward   by flood to sink",
            "admit     queue: priority 0 to sink, ",
            "dequeue   sink priority 0: depth ",
            "tx        sink 100 bytes",
        ]) {
            assert!(stage.contains(part), "{part}: {comment}");
        }
    }
    // A filter that is refused leaves a file as it was.
    let (_, ended) = switch.trace(&["in=z", "--out", name]);
    assert!(matches!(ended, Err(CliError::Switch(_))), "{ended:?}");
    assert_eq!(self::records(&path).len(), 4);
    let (_, ended) = switch.trace(&["--out", "/nonexistent/t.pcapng"]);
    assert!(matches!(ended, Err(CliError::System { .. })), "{ended:?}");
}

/// Two clients at once: each is told of all of its frames, and neither ends the other's trace.
#[test]
fn two_traces_run_beside_each_other() {
    use weft_control::requests::{Request, next_path};
    let switch = Switch::start(1);
    let begin = |filter: &str| {
        let mut client = weft_rpc::Client::connect(&socket(switch.dir.path())).unwrap();
        let filter = Some(filter.to_owned());
        client.request(&Request::Trace { filter, count: 30, bytes: true }).unwrap();
        client
    };
    let mut clients = [begin("in=a"), begin("out=sink")];
    for _ in 0..10 {
        for client in &mut clients {
            let path = next_path(client).unwrap().unwrap();
            assert_eq!((path.len, path.bytes.len()), (100, LEN));
        }
    }
    let [first, mut second] = clients;
    drop(first);
    for _ in 10..30 {
        next_path(&mut second).unwrap().unwrap();
    }
    assert_eq!(next_path(&mut second).unwrap().unwrap_err()["reason"], "enough frames");
}

#[test]
fn text_and_json_say_the_same() {
    let switch = Switch::start(1);
    let (text, ended) = switch.trace(&["-n", "2"]);
    ended.unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("rx        a 100 bytes")).count(), 2);
    assert_eq!(text.lines().count(), 12, "{text}");
    let path = switch.dir.path().join("t.json");
    let name = path.to_str().unwrap();
    let (printed, ended) = switch.trace(&["-n", "2", "--json"]);
    ended.unwrap();
    let (nothing, ended) = switch.trace(&["-n", "2", "--out", name]);
    ended.unwrap();
    assert_eq!(nothing, "");
    for lines in [printed, std::fs::read_to_string(&path).unwrap()] {
        let events = lines.lines().map(|line| serde_json::from_str(line).unwrap());
        let events: Vec<Value> = events.collect();
        assert_eq!(events.len(), 12, "{lines}");
        assert!(events.iter().all(|event| event["t_ps"].is_u64()), "{lines}");
        assert_eq!(events.iter().filter(|event| event["ev"] == "admit").count(), 2, "{lines}");
    }
}

/// Three workers, of which two receive and each sends: several of them report a frame's stages, and frames overlap.
/// Lines are out of order only for frames that take longer than lines wait, on a busy machine.
#[test]
fn lines_of_several_workers_are_in_order_of_time() {
    const COUNT: usize = 200;
    const HOLD_S: f64 = 0.2;
    let switch = Switch::playing(3, &["a", "b"], 8);
    let (text, ended) = switch.trace(&["-n", &COUNT.to_string()]);
    ended.unwrap();
    let lines: Vec<(f64, u64)> = text
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[1], "frame", "{line}");
            (words[0].parse().unwrap(), words[2].parse().unwrap())
        })
        .collect();
    let took = |frame: u64| {
        let of_it = || lines.iter().filter(|(_, of)| *of == frame).map(|(at, _)| *at);
        of_it().fold(0.0, f64::max) - of_it().fold(f64::MAX, f64::min)
    };
    let mut latest = 0.0;
    for &(at, frame) in &lines {
        assert!(at >= latest || took(frame) > HOLD_S, "{at} of frame {frame} is late: {text}");
        latest = at.max(latest);
    }
    let changes = lines.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    assert!(changes > COUNT, "frames that do not overlap show no order: {changes} changes");
    let frames: std::collections::BTreeSet<u64> = lines.iter().map(|&(_, frame)| frame).collect();
    assert_eq!(frames.len(), COUNT);
    for frame in frames {
        let of_it = text.lines().zip(&lines).filter(|(_, (_, of))| *of == frame);
        let stages: Vec<&str> =
            of_it.map(|(line, _)| line.split(" ns  ").nth(1).unwrap()).collect();
        let is_begun = stages[0].starts_with("rx ") && stages[1].starts_with("classify ");
        assert!(is_begun && stages.last().unwrap().starts_with("tx "), "{frame}: {stages:?}");
        assert_eq!(stages.iter().filter(|stage| stage.starts_with("tx ")).count(), 2, "{stages:?}");
    }
}
