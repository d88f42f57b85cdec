//! Files of results as `weft sim run` writes them: all of them, the same each time.
//!
//! Source: docs/results.md; docs/spec/model.md §6.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

const SCENARIO: &str = "
seed = 3
until = \"1ms\"
[net]
generate = \"leaf-spine\"
hosts = 8
leaves = 2
spines = 2
rate_gbps = 100
link_m = 10
[endpoint]
pkt_format = \"standard\"
[[workload]]
kind = \"incast\"
to = \"h0\"
bytes = \"256KiB\"
";

/// Runs the scenario on so many threads in a folder of this name; all files by name.
fn files(folder: &Path, name: &str, threads: &str, scenario: &str) -> BTreeMap<String, Vec<u8>> {
    let out = folder.join(name);
    fs::create_dir(&out).unwrap();
    fs::write(out.join("s.toml"), scenario).unwrap();
    let args =
        ["sim", "run", "s.toml", "--threads", threads, "--json", "r.json", "--html", "r.html"];
    let more = [
        "--perfetto",
        "trace.json",
        "--csv",
        "csv",
        "--flows",
        "ended.csv",
        "--hpcc-fct",
        "fct.txt",
    ];
    let mut weft = Command::cargo_bin("weft").unwrap();
    weft.current_dir(&out).args(args).args(more).assert().success();
    let mut files = BTreeMap::new();
    for folder in [out.clone(), out.join("csv")] {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                let name = entry.file_name().into_string().unwrap();
                files.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

#[test]
fn all_files_have_the_same_bytes_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let one = files(folder.path(), "one", "1", SCENARIO);
    let names: Vec<_> = one.keys().map(String::as_str).collect();
    let want = [
        "ended.csv",
        "fct.txt",
        "flows.csv",
        "ports.csv",
        "queues.csv",
        "r.html",
        "r.json",
        "s.toml",
        "series.csv",
        "trace.json",
    ];
    assert_eq!(names, want, "nothing is left over");
    for run in [("again", "1"), ("two", "2"), ("four", "4")] {
        let other = files(folder.path(), run.0, run.1, SCENARIO);
        for (name, bytes) in &one {
            assert!(other[name] == *bytes, "{name}, {run:?}");
        }
    }
    let results: Value = serde_json::from_slice(&one["r.json"]).unwrap();
    assert_eq!(results["flows"].as_array().unwrap().len(), 7);
    assert_eq!(results["summary"]["flows_delivered"], 7);
    let rows = String::from_utf8(one["flows.csv"].clone()).unwrap();
    let last = results["summary"]["fct_ps"]["max"].to_string();
    assert!(rows.contains(&last), "{last}\n{rows}");
    let page = String::from_utf8(one["r.html"].clone()).unwrap();
    for picture in ["fct", "slowdown", "depth", "throughput", "matrix", "links", "topology"] {
        assert!(page.contains(&format!("<figure id=\"{picture}\">")), "{picture}");
    }
}

/// Credits, LITE, rate control, cut-through, storms: all that is shipped.
#[test]
fn shipped_scenarios_leave_the_same_bytes_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut count = 0;
    for file in fs::read_dir(shipped).unwrap().map(|entry| entry.unwrap().path()) {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let scenario = fs::read_to_string(&file).unwrap();
        let one = files(folder.path(), &format!("{name}-1"), "1", &scenario);
        for threads in ["2", "4"] {
            let other = files(folder.path(), &format!("{name}-{threads}"), threads, &scenario);
            for (of, bytes) in &one {
                assert!(other[of] == *bytes, "{name}: {of} with {threads} threads");
            }
        }
        count += 1;
    }
    assert!(count >= 16, "{count}");
}

/// With whole frames, files differ only in the text of that key.
#[test]
fn all_files_have_the_same_bytes_with_whole_frames() {
    const KEY: &str = "net.full_frames";
    let folder = tempfile::tempdir().unwrap();
    let scenario =
        |whole: bool| SCENARIO.replace("[endpoint]", &format!("full_frames = {whole}\n[endpoint]"));
    let fronts = files(folder.path(), "fronts", "1", &scenario(false));
    let whole = files(folder.path(), "whole", "2", &scenario(true));
    assert_eq!(fronts.len(), 10);
    let mut keys = 0;
    for (name, bytes) in fronts.iter().filter(|(name, _)| *name != "s.toml") {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut parts = text(&whole[name]);
        let mut from = 0;
        while let Some(at) = parts[from..].find(KEY).map(|at| from + at + KEY.len()) {
            parts = parts[..at].to_owned() + &parts[at..].replacen("true", "false", 1);
            (from, keys) = (at, keys + 1);
        }
        assert!(parts == text(bytes), "{name}");
    }
    assert!(keys >= 2, "JSON and page tell what is set");
}

#[test]
fn a_file_that_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
    for flag in ["--html", "--csv", "--perfetto", "--json", "--flows", "--hpcc-fct"] {
        let mut weft = Command::cargo_bin("weft").unwrap();
        let ran = weft
            .current_dir(folder.path())
            .args(["sim", "run", "s.toml", flag, "s.toml/x"])
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(3), "{flag}");
        let told = String::from_utf8(ran.stderr).unwrap();
        assert!(told.contains("s.toml/x") && told.contains("Not a directory"), "{flag}: {told}");
    }
}
