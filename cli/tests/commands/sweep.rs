//! `weft sim sweep` as a user meets it: jobs, finished and failed ones, table and page.
//!
//! Runs a small scenario in a folder of its own, and checks exit codes, files and text.
//!
//! Source: docs/sweep.md.

use std::fs;
use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

const SCENARIO: &str = "
seed = 3
until = \"1ms\"
[net]
generate = \"single\"
hosts = 3
rate_gbps = 400
link_m = 10
[endpoint]
pkt_format = \"standard\"
[[workload]]
kind = \"flows\"
file = \"flows.csv\"
";
const FLOWS: &str = "from,to,bytes,start_us\nh0,h1,64KiB,0\nh2,h1,64KiB,0\n";

struct Sweep(TempDir);

impl Sweep {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("s.toml"), SCENARIO).unwrap();
        fs::write(folder.path().join("flows.csv"), FLOWS).unwrap();
        Self(folder)
    }

    fn out(&self, name: &str) -> PathBuf {
        self.0.path().join("out").join(name)
    }

    /// Runs the sweep with more arguments; exit code, standard output and standard error.
    fn run(&self, more: &[&str]) -> (i32, String, String) {
        let args = ["sim", "sweep", "s.toml", "--out", "out", "--vary", "net.link_m=10,100"];
        let ran = Command::cargo_bin("weft").unwrap();
        let ran = { ran }.current_dir(self.0.path()).args(args).args(more).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ran.status.code().unwrap(), text(ran.stdout), text(ran.stderr))
    }

    fn list(&self, more: &[&str]) -> Vec<Value> {
        let (code, text, error) = self.run(&[more, &["--list"]].concat());
        assert_eq!(code, 0, "{error}");
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn result(&self, job: &Value) -> PathBuf {
        self.out("jobs").join(format!("{}.json", job["job"].as_str().unwrap()))
    }
}

fn finished(jobs: &[Value]) -> Vec<bool> {
    jobs.iter().map(|job| job["finished"].as_bool().unwrap()).collect()
}

#[test]
fn every_combination_runs_once_and_a_table_has_them_all() {
    let sweep = Sweep::new();
    let (code, text, error) = sweep.run(&["--seeds", "1..2"]);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("fct_last_us") && text.lines().count() == 5, "{text}");
    let table = fs::read_to_string(sweep.out("sweep.csv")).unwrap();
    let mut rows = csv::Reader::from_reader(table.as_bytes());
    let names = rows.headers().unwrap().clone();
    let at = |name: &str| names.iter().position(|had| had == name).unwrap();
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    let had: Vec<_> = rows.iter().map(|row| [&row[at("net.link_m")], &row[at("seed")]]).collect();
    assert_eq!(had, [["10", "1"], ["10", "2"], ["100", "1"], ["100", "2"]]);
    // 90 m more on both cables, at 5 ns a metre: from the sender to the last byte taken.
    let last = |row: usize| rows[row][at("fct_last_us")].parse::<f64>().unwrap();
    assert!((last(2) - last(0) - 0.9).abs() < 1e-6, "{} {}", last(2), last(0));
    let jobs = sweep.list(&["--seeds", "1..2"]);
    let results: Value =
        serde_json::from_slice(&fs::read(sweep.result(&jobs[3])).unwrap()).unwrap();
    assert_eq!((&results["seed"], &results["scenario"].is_string()), (&Value::from(2), &true));
    let page = fs::read_to_string(sweep.out("sweep.html")).unwrap();
    assert!(page.contains("<figure id=\"fct_last_us\">"));
}

/// After a crash only jobs without complete results run again, and all jobs when a file changes that the scenario
/// names.
#[test]
fn what_is_finished_is_not_run_again() {
    let sweep = Sweep::new();
    let (code, _, error) = sweep.run(&[]);
    assert_eq!(code, 0, "{error}");
    let jobs = sweep.list(&[]);
    assert_eq!(finished(&jobs), [true, true]);
    let [kept, cut] = [0, 1].map(|job| sweep.result(&jobs[job]));
    let whole = fs::read(&cut).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let marked = String::from_utf8(fs::read(&kept).unwrap())
        .unwrap()
        .replace("\"weft\": \"", "\"weft\": \"kept ");
    fs::write(&kept, &marked).unwrap();
    assert_eq!(finished(&sweep.list(&[])), [true, false]);
    let (code, _, error) = sweep.run(&["--collect"]);
    assert_eq!(code, 1);
    assert!(error.contains("1 of 2 jobs failed"), "{error}");
    assert_eq!(sweep.run(&[]).0, 0);
    assert_eq!(fs::read(&cut).unwrap(), whole, "the same bytes");
    assert_eq!(fs::read_to_string(&kept).unwrap(), marked, "it was not run again");
    fs::write(sweep.0.path().join("flows.csv"), FLOWS.replace("64KiB", "65KiB")).unwrap();
    assert_eq!(finished(&sweep.list(&[])), [false, false]);
}

#[test]
fn a_job_that_fails_is_told_of_and_others_run_on() {
    let sweep = Sweep::new();
    let jobs = sweep.list(&[]);
    fs::create_dir_all(sweep.result(&jobs[0])).unwrap(); // its results cannot have their name
    let (code, text, error) = sweep.run(&["--jobs", "1"]);
    assert_eq!(code, 1);
    assert!(
        error.contains("failed: net.link_m=10") && error.contains("1 of 2 jobs failed"),
        "{error}"
    );
    assert!(text.contains("failed: net.link_m=10"), "{text}");
    assert_eq!(finished(&sweep.list(&[])), [false, true]);
    assert_eq!(fs::read_dir(sweep.out("jobs")).unwrap().count(), 2, "nothing is left over");
}

#[test]
fn what_cannot_be_swept_is_refused_before_anything_runs() {
    let sweep = Sweep::new();
    #[rustfmt::skip] // columns: more arguments, part of what is told
    let cases: [(&[&str], &str); 6] = [
        (&["--vary", "net.link_m=1"], "net.link_m is varied twice"),
        (&["--vary", "net.nonsense=1"], "net.nonsense"),
        (&["--vary", "net.rate_gbps=400,fast"], "fast"),
        (&["--seeds", "2..1"], "expected seeds such as"),
        (&["--vary", "seed=1,2", "--seeds", "1"], "seed is varied twice"),
        (&["--vary", "net.hosts"], "expected KEY=VALUE,VALUE"),
    ];
    for (more, told) in cases {
        let (code, _, error) = sweep.run(more);
        assert_eq!(code, 2, "{more:?}: {error}");
        assert!(error.contains(told), "{more:?}: {error}");
    }
    assert!(!sweep.out("").exists());
}

/// SIGINT to the sweep alone also ends the running jobs, which then do not count as finished.
#[test]
fn an_interrupted_sweep_ends_its_jobs() {
    let sweep = Sweep::new();
    let long = SCENARIO.replace("1ms", "100s");
    fs::write(sweep.0.path().join("s.toml"), long).unwrap();
    fs::write(sweep.0.path().join("flows.csv"), FLOWS.replace("64KiB", "1000GiB")).unwrap();
    let mut weft = std::process::Command::new(assert_cmd::cargo::cargo_bin("weft"));
    let weft = weft.current_dir(sweep.0.path()).args(["sim", "sweep", "s.toml", "--out", "out"]);
    let weft = weft.args(["--seeds", "1..4", "--jobs", "2"]);
    let piped = std::process::Stdio::piped;
    let child = weft.stdout(piped()).stderr(piped()).spawn().unwrap();
    weft_base::wait::pause(std::time::Duration::from_millis(1_500));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ran = child.wait_with_output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped: 4 of 4 jobs are not done"), "{said}");
    assert_eq!(fs::read_dir(sweep.out("jobs")).unwrap().count(), 0, "nothing is left over");
}
