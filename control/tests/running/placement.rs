//! Where workers run, and how early they are let in: `run.cores` and `run.priority` as the kernel has them.
//!
//! Shape: `weft run` on ports without a wire; its threads in `/proc`, or its refusal.
//! Units: none.
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

/// Of each worker: the processors that it may use, and its nice value.
fn workers(pid: u32) -> Vec<(String, i64)> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let path = task.unwrap().path();
        // A thread that has ended meanwhile is none of them.
        let Ok(status) = std::fs::read_to_string(path.join("status")) else { continue };
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        if line("Name:").trim().starts_with("weft-worker") {
            let stat = std::fs::read_to_string(path.join("stat")).unwrap();
            let nice = stat.rsplit(") ").next().unwrap().split(' ').nth(16).unwrap();
            let name = line("Name:").trim().to_owned();
            all.push((name, line("Cpus_allowed_list:").trim().to_owned(), nice.parse().unwrap()));
        }
    }
    all.sort_unstable();
    all.into_iter().map(|(_, processors, nice)| (processors, nice)).collect()
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
    let want = [second, first].map(|core| (core.to_string(), 7));
    assert_eq!(workers(child.0.id()), want);
    let others = std::fs::read_to_string(format!("/proc/{}/stat", child.0.id())).unwrap();
    let nice = others.rsplit(") ").next().unwrap().split(' ').nth(16).map(str::to_owned);
    assert_ne!(nice.as_deref(), Some("7"), "the main thread keeps its own: {others}");
}

/// What cannot be had is refused, and said with what there is; nothing runs elsewhere without a word.
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
