//! `weft sim` as a user meets it: runs, refusals, files to start from, checks, exit codes, an interrupted run.
//!
//! Source: docs/simulation.md; docs/spec/model.md §3, §5, §6.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use assert_cmd::Command;
use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;
use weft_dataplane::port::capture::{CaptureFormat, CaptureWriter};

const OK: i32 = 0;
const DIFFERENCE: i32 = 1;
const USAGE: i32 = 2;
const SYSTEM: i32 = 3;

/// Runs `weft sim` with `args`; gives exit code, standard output and standard error.
fn sim(args: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("weft").unwrap().arg("sim").args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn shipped(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    dir.join(name).display().to_string()
}

/// A file of `text` in a folder of its own.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    fs::write(&path, text).unwrap();
    (dir, path)
}

const SMALL: &str = "seed = 3\n[net]\ngenerate = 'fat-tree'\nhosts = 16\n[buffer]\nbuffer_size_mb = 4\n[ecn]\necn_threshold_low = 1\necn_threshold_high = 50\n[[workload]]\nkind = 'incast'\nto = 'h5'\nbytes = '64KiB'\n[[workload]]\nkind = 'uniform'\nbytes = 3000\nload_gbps = 100\nduration = '3us'\n";

#[test]
fn shipped_scenarios_are_as_they_expect() {
    let (code, out, err) = sim(&["check", &shipped("")]);
    assert_eq!(code, OK, "{out}{err}");
    assert!(out.ends_with("scenarios are as expected\n"), "{out}");
    let exact = "ok   incast-8.toml: fct_last_us is 114.30844, wanted 114.30844 (exact)\n";
    assert!(out.contains(exact), "{out}");
}

/// On links so slow that ACKs arrive after the timeout, all frames behind a late one are sent again although they are
/// acknowledged by then. No checker objects.
#[test]
fn frames_behind_a_late_one_may_be_sent_again() {
    let text = "until = '1ms'\n[net]\ngenerate = 'fat-tree'\nhosts = 16\nrate_gbps = 3\n[switch]\nfixed_latency_ns = 300\n[buffer]\nbuffer_size_mb = 4\n[[workload]]\nkind = 'permutation'\nbytes = 672000\n";
    let (_dir, path) = file(text);
    let (code, out, err) = sim(&["check", path.to_str().unwrap()]);
    assert_eq!(code, OK, "{out}{err}");
}

const CREDITS: &str = "until = '100us'\n[net]\ngenerate = 'single'\nhosts = 3\nrate_gbps = 100\n[pfc]\npfc_enabled = false\n[[workload]]\nkind = 'incast'\nto = 'h0'\nbytes = 10000\n[endpoint]\nflow_control_mode = 'cbfc'\ncredit_limit = 99\n";

/// Credits of frames that are lost for good do not come back if their sender has no further request. No checker
/// objects.
#[test]
fn credits_of_what_is_lost_for_good_do_not_come_back() {
    let fault = "pkt_type = 'type3'\n[[fault]]\nkind = 'link-down'\nlink = ['h0', 'sw']\n";
    let (_dir, path) = file(&format!("{CREDITS}{fault}"));
    let (code, out, err) = sim(&["check", path.to_str().unwrap()]);
    assert_eq!(code, OK, "{out}{err}");
}

/// Lost LITE frames fail a run whatever it expects, as LITE has no retransmission.
#[test]
fn a_loss_of_lite_fails_the_run() {
    let fault =
        "pkt_format = 'lite'\n[[fault]]\nkind = 'frame-error'\nlink = ['h0', 'sw']\nrate = 0.2\n";
    let (_dir, path) = file(&format!("{CREDITS}{fault}"));
    for command in ["run", "check"] {
        let (code, out, err) = sim(&[command, path.to_str().unwrap()]);
        assert_eq!(code, DIFFERENCE, "{out}{err}");
        let said = format!("{out}{err}");
        assert!(
            said.contains("LITE has lost frames, and sends nothing again: 0 dropped by"),
            "{said}"
        );
    }
}

#[test]
fn results_are_the_same_bytes_on_any_number_of_threads() {
    let (dir, path) = file(SMALL);
    let run = |threads: &str, seed: &str| {
        let json = dir.path().join(format!("{threads}-{seed}.json"));
        let (path, to) = (path.to_str().unwrap(), json.to_str().unwrap());
        let flags = ["run", path, "--threads", threads, "--seed", seed, "--json", to];
        let (code, _, err) = sim(&flags);
        assert_eq!(code, OK, "{err}");
        fs::read(json).unwrap()
    };
    let one = run("1", "3");
    let value: Value = serde_json::from_slice(&one).unwrap();
    assert_eq!(value["summary"]["flows"], value["summary"]["flows_delivered"]);
    assert!(value["summary"]["ecn_marked_frames"].as_u64() > Some(0), "{}", value["summary"]);
    assert_eq!(value["settings"][0]["key"], "seed");
    for threads in ["2", "4"] {
        assert!(run(threads, "3") == one, "{threads} threads");
    }
    assert!(run("1", "4") != one, "another seed");
}

#[test]
fn what_is_not_as_expected_is_told_with_exit_code_1() {
    let expect = |value: &str| {
        format!(
            "{SMALL}[[expect]]\nmetric = 'dropped_frames'\nvalue = {value}\nsource = 'a test'\n"
        )
    };
    let (_dir, path) = file(&expect("7"));
    let (code, out, err) = sim(&["run", path.to_str().unwrap()]);
    assert_eq!(code, DIFFERENCE, "{out}{err}");
    assert!(
        out.contains("NOT AS EXPECTED: dropped_frames is 0, wanted 7 (exact)  (a test)"),
        "{out}"
    );
    assert!(err.contains("error: not as expected: dropped_frames is 0, wanted 7"), "{err}");
    let (code, out, err) = sim(&["check", path.to_str().unwrap()]);
    assert_eq!(code, DIFFERENCE, "{out}{err}");
    assert!(out.contains("FAIL s.toml: dropped_frames is 0, wanted 7 (exact)"), "{out}");
    let (_dir, path) = file(&expect("0"));
    assert_eq!(sim(&["run", path.to_str().unwrap()]).0, OK);
    let (_dir, path) =
        file(&SMALL.replace("seed", "[[expect]]\nmetric = 'no_such'\nvalue = 1\nsource = 's'\n#"));
    let (code, _, err) = sim(&["run", path.to_str().unwrap()]);
    assert_eq!(code, USAGE);
    assert!(err.contains("metric \"no_such\" is not known: expected one of flows,"), "{err}");
}

/// Faults that show only when a scenario is about to run are refused with their place, too.
#[test]
fn what_cannot_run_is_refused_with_its_place() {
    let net = "[net]\ngenerate = 'single'\nhosts = 2\n";
    let two = "[[host]]\nname = 'a'\n[[host]]\nname = 'b'\n";
    let pair = "kind = 'point-to-point'\nfrom = 'a'\nto = 'b'\nbytes = 1\n";
    #[rustfmt::skip] // columns: name, text, place and what is said
    let cases = [
        ("metric", format!("{SMALL}[[expect]]\nvalue = 1\nmetric = 'x'\n"), "s.toml:21:1: expect.metric: metric \"x\" is not known"),
        ("no flows", format!("{net}[[workload]]\nkind = 'uniform'\nbytes = '1GB'\nload_gbps = 1\nduration = '1ns'\n"), "s.toml:5:1: workload: no workload has a flow: nothing would move"),
        ("circle", SMALL.replace("'fat-tree'", "'ring'\nswitches = 5"), "s.toml:3:1: net: PFC may wait for itself in a circle"),
        ("no way", format!("{two}[[host]]\nname = 'c'\n[[host]]\nname = 'd'\n[[link]]\nends = ['a', 'b']\n[[link]]\nends = ['c', 'd']\n[[workload]]\n{pair}"), "s.toml: net: no path from host"),
        ("a long link", format!("{two}[[link]]\nends = ['a', 'b']\ndelay = '100s'\n[[workload]]\n{pair}"), "s.toml: net: the link between \"a\" and \"b\" can hold "),
        ("a slow end", format!("{two}[[link]]\nends = ['a', 'b']\n[endpoint]\ndelay = '100s'\n[[workload]]\n{pair}"), "s.toml: net: the link between \"a\" and \"b\" can hold "),
    ];
    for (name, text, want) in cases {
        let (_dir, path) = file(&text);
        let (code, out, err) = sim(&["run", path.to_str().unwrap()]);
        assert!(code == USAGE && err.contains(want), "{name}: {code} {out}{err}");
    }
    let (dir, path) = file(&format!("{net}[[workload]]\nkind = 'flows'\nfile = 'f.csv'\n"));
    fs::write(dir.path().join("f.csv"), "from,to,bytes,start_us\nh0,h1,9223372036854775807,0\n")
        .unwrap();
    let (code, _, err) = sim(&["run", path.to_str().unwrap()]);
    let want =
        "s.toml: flow 0 from host 0 has 9223372036854775807 bytes: expected at most 2886218022912";
    assert!(code == USAGE && err.contains(want), "{code} {err}");
    let (code, _, err) = sim(&[
        "run",
        path.to_str().unwrap(),
        "--csv",
        dir.path().to_str().unwrap(),
        "--set",
        "net.hosts=3",
    ]);
    assert!(code == USAGE && err.contains("2886218022912"), "{code} {err}");
}

/// A workload or fault that begins after the run's end is a warning, not an error.
#[test]
fn what_begins_too_late_is_warned_of() {
    let late = "[[workload]]\nkind = 'permutation'\nbytes = 1\nstart = '2ms'\n[[fault]]\nkind = 'link-down'\nlink = ['h0', 'edge0']\nfrom = '1ms'\n";
    let (_dir, path) = file(&format!("until = '1ms'\n{SMALL}{late}"));
    let (code, out, err) = sim(&["run", path.to_str().unwrap()]);
    assert_eq!(code, OK, "{out}{err}");
    for place in ["s.toml:23:1: workload.start", "s.toml:27:1: fault.from"] {
        let want =
            format!("{place}: it begins when the run is over; expected a time before `until`");
        assert!(err.contains(&want), "{err}");
    }
}

#[test]
fn flags_change_the_run_and_wrong_ones_are_refused() {
    let (dir, path) = file(SMALL);
    let (path, folder) = (path.to_str().unwrap(), dir.path().to_str().unwrap());
    let (twice, flows) = (format!("{folder}/./x"), format!("{folder}/flows.csv"));
    let (code, out, _) = sim(&["run", path, "--until", "2us", "--json", "-"]);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &value["end_ps"], &value["ending"]["why"]),
        (OK, &2_000_000.into(), &"until".into())
    );
    let (code, out, _) = sim(&["run", path, "--set", "net.rate_gbps=100", "--json", "-"]);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, value["links"][0]["rate_bps"].as_u64()), (OK, Some(100_000_000_000)));
    #[rustfmt::skip] // columns: flags, exit code, what is said
    let refused: &[(&[&str], i32, &str)] = &[
        (&["--until", "2"], USAGE, "--until: expected a time such as \"10ms\": a number and ps, ns, us, ms or s, found \"2\""),
        (&["--set", "net.host=2"], USAGE, "--set net.host=2: net.host: unknown key \"host\", did you mean \"hosts\"?"),
        (&["--threads", "0"], USAGE, "0 is not in 1..=64"),
        (&["--json", "/nowhere/x.json"], SYSTEM, "write /nowhere/x.json"),
        (&["--json", path], USAGE, "--json: expected a file of results, found "),
        (&["--html", &twice, "--flows", &twice], USAGE, "--flows: expected another file than that of --html, found "),
        (&["--csv", folder, "--json", &flows], USAGE, "--csv: expected another file than that of --json, found "),
        (&["--html", "-"], USAGE, "--html: expected a file, found \"-\": only --json takes it"),
        (&["--csv", "-"], USAGE, "--csv: expected a file, found \"-\": only --json takes it"),
        (&["--perfetto", folder], SYSTEM, "is a directory"),
        (&["--set", "workload.bytes=1"], USAGE, "--set workload.bytes=1: workload.bytes: expected a section that is there once; [[workload]] is changed in the file"),
    ];
    for (flags, want, text) in refused {
        let (code, out, err) = sim(&[&["run", path], *flags].concat());
        assert!(code == *want && err.contains(text), "{flags:?}: {code} {err}");
        assert!(
            out.is_empty() && !err.contains("frame-hops"),
            "{flags:?} is refused before the run"
        );
    }
    assert_eq!(fs::read_to_string(path).unwrap(), SMALL);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing is left over");
    let (code, _, err) = sim(&["run", path, "--json", "/dev/null", "--html", "/dev/null"]);
    assert_eq!(code, OK, "{err}");
    let (code, _, err) = sim(&["run", "/nowhere.toml"]);
    assert!(code == SYSTEM && err.contains("read /nowhere.toml"), "{err}");
}

#[test]
fn circles_of_pfc_are_named_unless_they_are_allowed() {
    let text = "until = '1ms'\n[net]\ngenerate = 'ring'\nhosts = 5\nswitches = 5\n[buffer]\nbuffer_size_mb = 2\n[[workload]]\nkind = 'permutation'\nbytes = 10000\n";
    let (_dir, path) = file(text);
    let path = path.to_str().unwrap();
    let (code, _, err) = sim(&["run", path]);
    assert!(code == USAGE && err.contains("PFC may wait for itself in a circle"), "{code} {err}");
    let (code, out, err) = sim(&["run", path, "--allow-pfc-circles"]);
    assert_eq!(code, OK, "{out}{err}");
}

#[test]
fn a_file_to_start_from_runs_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let kinds = [
        "incast",
        "permutation",
        "uniform",
        "all-to-all",
        "ring-all-reduce",
        "point-to-point",
        "flows",
        "graph",
        "lite",
        "lossy",
        "storm",
    ];
    for kind in kinds {
        let path = dir.path().join(format!("{kind}.toml"));
        let path = path.to_str().unwrap();
        assert_eq!(sim(&["new", kind, "--out", path]).0, OK, "{kind}");
        let (code, out, err) = sim(&["run", path]);
        assert_eq!(code, OK, "{kind}: {out}{err}");
        assert!(out.contains(": all flows are done"), "{kind}: {out}");
        assert_eq!(sim(&["new", kind, "-o", path]).0, SYSTEM, "{kind}: it is there");
    }
    let (code, text, _) = sim(&["new", "incast"]);
    assert!(code == OK && text.contains("kind = \"incast\""));
}

#[test]
fn other_simulators_files_are_taken_and_given() {
    let (dir, path) =
        file("[net]\nimport = 'topology.txt'\n[[workload]]\nkind = 'flows'\nfile = 'flow.txt'\n");
    fs::write(
        dir.path().join("topology.txt"),
        "3 1 2\n2\n0 2 100Gbps 0.001ms 0\n1 2 100Gbps 0.001ms 0\n",
    )
    .unwrap();
    fs::write(dir.path().join("flow.txt"), "1\n0 1 3 100 1344 2\n").unwrap();
    let fct = dir.path().join("fct.txt");
    let (path, to) = (path.to_str().unwrap(), fct.to_str().unwrap());
    let (code, out, err) =
        sim(&["run", path, "--hpcc-fct", to, "--set", "switch.fixed_latency_ns=300"]);
    assert_eq!(code, OK, "{out}{err}");
    // 60 + 2 x (113.76 + 1000) + 300 + 60 ns
    assert_eq!(fs::read_to_string(fct).unwrap(), "0b000001 0b000101 0 0 1344 0 2647 2647\n");
    fs::write(dir.path().join("flow.txt"), "1\n0 9 3 100 1344 2\n").unwrap();
    let (code, _, err) = sim(&["run", path]);
    assert!(
        code == USAGE && err.contains("flow.txt:2:3: expected the number of a host"),
        "{code} {err}"
    );
}

#[test]
fn an_interrupted_run_has_results_until_then() {
    let (dir, path) = file(&format!(
        "{}[[workload]]\nkind = 'permutation'\nbytes = '1GiB'\n[[expect]]\nmetric = 'flows_open'\nvalue = 0\nsource = 's'\n",
        SMALL.replace("seed = 3", "seed = 3\nuntil = '10s'")
    ));
    let json = dir.path().join("r.json");
    let (path, to) = (path.to_str().unwrap(), json.to_str().unwrap());
    let (code, out, _) = interrupted(&["run", path, "--json", to]);
    assert_eq!(code, OK, "{out}");
    assert!(out.contains("interrupted: results until then"), "{out}");
    assert!(out.contains("not judged: flows_open"), "{out}");
    let value: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(value["ending"]["why"], "interrupted");
    assert!(value["end_ps"].as_u64() > Some(0));
    let (code, out, err) = interrupted(&["check", path, path]);
    assert_eq!((code, out.as_str()), (DIFFERENCE, ""), "nothing is said of what is not known");
    assert!(err.contains("interrupted: 0 of 2 scenarios were checked"), "{err}");
}

/// As [`sim`], with SIGINT after a while.
fn interrupted(args: &[&str]) -> (i32, String, String) {
    let mut run = Process::cargo_bin("weft").unwrap();
    let run = run.arg("sim").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = run.spawn().unwrap();
    weft_base::wait::pause(std::time::Duration::from_millis(1_500));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Flows are written as they are delivered, before their ACKs arrive, so a killed run still leaves the flows finished
/// so far.
#[test]
fn flows_are_written_as_they_end() {
    let (dir, path) = file(SMALL);
    let (rows, all) = (dir.path().join("rows.csv"), dir.path().join("all"));
    let args = ["run", path.to_str().unwrap(), "--flows", rows.to_str().unwrap()];
    let (code, _, err) = sim(&[&args[..], &["--csv", all.to_str().unwrap()]].concat());
    assert_eq!(code, OK, "{err}");
    let read = |path: &Path| -> Vec<Vec<String>> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    let (had, mut want) = (read(&rows), read(&all.join("flows.csv")));
    let time = |row: &Vec<String>| row[7].parse::<u64>().unwrap();
    assert!(had[1..].is_sorted_by_key(time), "in the order in which they end");
    for row in &mut want[1..] {
        for unknown in [8, 10, 13] {
            row[unknown].clear();
        }
    }
    want[1..].sort_by_key(|row| (time(row), row[0].parse::<u32>().unwrap()));
    assert_eq!(had, want);

    let text = SMALL.replace("seed = 3", "seed = 3\nuntil = '10s'");
    let (dir, path) = file(&format!("{text}[[workload]]\nkind = 'permutation'\nbytes = '4GiB'\n"));
    let rows = dir.path().join("rows.csv");
    let mut run = Process::cargo_bin("weft").unwrap();
    let run = run.args(["sim", "run", path.to_str().unwrap(), "--flows", rows.to_str().unwrap()]);
    let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_there = || fs::read_to_string(&rows).is_ok_and(|text| text.lines().count() > 15);
    let came = (0..600).any(|_| {
        weft_base::wait::pause(std::time::Duration::from_millis(50));
        is_there()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(came && read(&rows).iter().all(|row| row.len() == 14));
}

/// The frames of a capture go out at their times, each to the host of its destination address.
#[test]
fn a_capture_is_sent_from_a_host() {
    let (dir, path) = file(
        "[net]\ngenerate = 'single'\nhosts = 3\n[[workload]]\nkind = 'capture'\nfile = 'c.pcap'\nfrom = 'h1'\n",
    );
    let mut writer =
        CaptureWriter::create(dir.path().join("c.pcap"), CaptureFormat::Pcap, 0).unwrap();
    for (ts_ns, dst, len) in [(1_000, 9, 100), (3_000, 7, 2_000), (9_000, 9, 60)] {
        let mut frame = vec![0; len];
        frame[5] = dst;
        writer.write(ts_ns, &frame, None).unwrap();
    }
    writer.finish().unwrap();
    let run =
        |flags: &[&str]| sim(&[&["run", path.to_str().unwrap(), "--json", "-"], flags].concat());
    let flows = |out: &str| -> Vec<[u64; 4]> {
        let value: Value = serde_json::from_str(out).unwrap();
        let flows = value["flows"].as_array().unwrap().iter();
        flows
            .map(|flow| ["from", "to", "bytes", "start_ps"].map(|key| flow[key].as_u64().unwrap()))
            .collect()
    };
    let (code, out, err) = run(&[]);
    assert_eq!(code, OK, "{err}");
    assert_eq!(flows(&out), [[1, 0, 100, 0], [1, 2, 2_000, 2_000_000], [1, 0, 60, 8_000_000]]);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("hosts = 3", "hosts = 2")).unwrap();
    let (code, _, err) = run(&[]);
    assert!(
        code == USAGE && err.contains("c.pcap: expected at most 1 destination addresses"),
        "{code} {err}"
    );
    fs::write(&path, format!("{text}to = 'h2'\n")).unwrap();
    let (code, out, err) = run(&[]);
    assert_eq!(code, OK, "{err}");
    assert!(flows(&out).iter().all(|flow| flow[1] == 2));
    let capture = dir.path().join("c.pcap");
    let whole = fs::read(&capture).unwrap();
    fs::write(&capture, &whole[..whole.len() - 1]).unwrap();
    let (code, out, err) = run(&[]);
    assert!(code == OK && flows(&out).len() == 2, "{err}");
    assert!(err.contains("warning: c.pcap: c.pcap: record 3 at byte"), "{err}");
    let mut writer = CaptureWriter::create(&capture, CaptureFormat::Pcap, 0).unwrap();
    for days in [0, 100, 101] {
        writer.write(days * 86_400 * 1_000_000_000, &[0; 60], None).unwrap();
    }
    writer.finish().unwrap();
    let (code, _, err) = run(&[]);
    assert!(
        code == USAGE && err.contains("expected frames within 100 days, found frame 3"),
        "{err}"
    );
}

/// Latencies of an imported file apply by tier; the scenario's own values take precedence, with a warning.
#[test]
fn switches_of_an_imported_network_have_the_latency_that_it_says() {
    let (dir, path) =
        file("[net]\nimport = 'n.topo'\n[[workload]]\nkind = 'flows'\nfile = 'f.cm'\n");
    let cm = "Nodes 4\nConnections 1\n0->3 start 0.000000 size 64\n";
    fs::write(dir.path().join("f.cm"), cm).unwrap();
    let topo = |tor: &str, agg: &str| {
        let tier = |of: &str, latency: &str| {
            format!(
                "{of}\nDownlink_speed_Gbps 100\nDownlink_Latency_ns 1000\nRadix_Down 2\n{latency}\n"
            )
        };
        let (tor, agg) = (tier("Tier 0\nRadix_Up 2", tor), tier("Tier 1", agg));
        fs::write(dir.path().join("n.topo"), format!("Nodes 4\nTiers 2\nPodsize 4\n{tor}{agg}"))
            .unwrap();
    };
    let run = |flags: &[&str]| -> (u64, String) {
        let (code, out, err) =
            sim(&[&["run", path.to_str().unwrap(), "--json", "-"], flags].concat());
        assert_eq!(code, OK, "{err}");
        let value: Value = serde_json::from_str(&out).unwrap();
        (value["flows"][0]["fct_ps"].as_u64().unwrap() / 1_000, err)
    };
    topo("", "");
    let (usual, _) = run(&[]);
    topo("Switch_Latency_ns 0", "Switch_Latency_ns 0");
    let (none, err) = run(&[]);
    assert!(!err.contains("warning"), "{err}");
    assert_eq!(usual - none, 3 * 500, "500 ns at each of three switches");
    topo("Switch_Latency_ns 100", "Switch_Latency_ns 10000");
    let (some, _) = run(&[]);
    assert_eq!(some - none, 2 * 100 + 10_000, "two switches below, one above");
    let (own, err) = run(&["--set", "switch.fixed_latency_ns=200"]);
    assert_eq!(own - none, 3 * 200);
    assert!(err.contains("switch.fixed_latency_ns: it is that of all switches"), "{err}");
}
