//! Where workers run, and how early they are let in: `run.cores` and `run.priority` as the kernel has them.
//!
//! `weft run` on ports without a wire; its threads in `/proc`, or its refusal.
//!
//! Source: docs/configuration.md `[run]`; docs/privileges.md; `proc_pid_status(5)`, `proc_pid_stat(5)`.

use std::process::Command;

use assert_cmd::cargo::cargo_bin;

use super::process::start;
use super::socket;

/// A switch of two ports without a wire, with a worker for each.
fn options(dir: &std::path::Path, sets: &[&str]) -> Vec<String> {
    let mut all = vec![format!("run.socket={}", socket(dir).display()), "run.workers=2".to_owned()];
    all.extend(sets.iter().map(|set| (*set).to_owned()));
    let sets = all.into_iter().flat_map(|set| ["--set".to_owned(), set]);
    ["run", "--port", "p0=null", "--port", "p1=null"]
        .map(str::to_owned)
        .into_iter()
        .chain(sets)
        .collect()
}

/// Processors that a process of this test may use, from the first.
fn processors() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let run = |run: &str| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    list.trim().split(',').flat_map(run).collect()
}

/// The policy that `sched(7)` has as number 2.
const SCHED_RR: i64 = 2;

/// A worker as the kernel has it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worker {
    name: String,
    processors: String,
    nice: i64,
    policy: i64,
}

/// Field `at` of a `stat` file; the one after the name is number 0.
fn field(stat: &str, at: usize) -> &str {
    stat.rsplit(") ").next().unwrap().split(' ').nth(at).unwrap()
}

/// The workers of a process, by name.
fn workers(pid: u32) -> Vec<Worker> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let path = task.unwrap().path();
        // Skip a thread that has ended meanwhile.
        let Ok(status) = std::fs::read_to_string(path.join("status")) else { continue };
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        if line("Name:").trim().starts_with("weft-worker") {
            let stat = std::fs::read_to_string(path.join("stat")).unwrap();
            let [nice, policy] = [16, 38].map(|at| field(&stat, at).parse().unwrap());
            let processors = line("Cpus_allowed_list:").trim().to_owned();
            all.push(Worker { name: line("Name:").trim().to_owned(), processors, nice, policy });
        }
    }
    all.sort_unstable();
    all
}

#[test]
fn workers_are_bound_and_have_a_priority() {
    let (dir, own) = (tempfile::tempdir().unwrap(), processors());
    let [first, second, ..] = own[..] else {
        eprintln!("SKIPPED workers_are_bound_and_have_a_priority: one processor only");
        return;
    };
    let cores = format!("run.cores=[{second},{first}]");
    let (child, _err) =
        start(|command| command.args(options(dir.path(), &[&cores, "run.priority=7"])));
    let found = workers(child.0.id());
    let placed: Vec<(&str, i64)> = found.iter().map(|w| (w.processors.as_str(), w.nice)).collect();
    let [first, second] = [first, second].map(|core| core.to_string());
    assert_eq!(placed, [(second.as_str(), 7), (first.as_str(), 7)]);
    let others = std::fs::read_to_string(format!("/proc/{}/stat", child.0.id())).unwrap();
    assert_ne!(field(&others, 16), "7", "the main thread keeps its own: {others}");
}

/// `run.priority` gives workers a real-time policy; the main thread keeps its own.
#[test]
fn workers_run_in_real_time_where_they_are_to() {
    let dir = tempfile::tempdir().unwrap();
    let (child, _err) =
        start(|command| command.args(options(dir.path(), &["run.priority=\"rr\""])));
    let found = workers(child.0.id());
    assert_eq!(found.iter().map(|w| w.policy).collect::<Vec<_>>(), [SCHED_RR; 2], "{found:?}");
    let main = std::fs::read_to_string(format!("/proc/{}/stat", child.0.id())).unwrap();
    assert_eq!(field(&main, 38), "0", "{main}");
}

/// Cores that are absent or named twice, too few cores, and an impossible priority are refused.
#[test]
fn processors_that_are_absent_or_named_twice_are_refused() {
    #[rustfmt::skip] // columns: what is set, parts of the refusal
    let cases: [(&[&str], [&str; 2]); 4] = [
        (&["run.cores=[1022,1023]"], ["run.cores: expected processors of this machine (", "found 1022"]),
        (&["run.cores=[0,0]"],       ["run.cores", "expected each core once, found 0 twice"]),
        (&["run.cores=[0]"],         ["run.cores", "expected a core for each of 2 workers, found 1"]),
        (&["run.priority=\"rr\"", "run.poll=\"busy\""], ["run.priority", "found \"rr\""]),
    ];
    for (sets, want) in cases {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(cargo_bin("weft"));
        let ended = command.args(options(dir.path(), sets)).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success(), "{sets:?}: {said}");
        assert!(want.iter().all(|part| said.contains(part)), "{sets:?}: {said}");
    }
}
