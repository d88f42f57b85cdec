//! `weft sim` where memory is short: each run completes or is refused, and is never ended by a signal.
//!
//! Runs under a limit of their address space (`ulimit -v`), from one under which the program just starts to one that
//! suffices.
//!
//! Source: docs/simulation.md, "Running"; getrlimit(2), `RLIMIT_AS`.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

const DONE: i32 = 0;
const SYSTEM: i32 = 3;

/// Runs `weft` with `args` in an address space of `kib`.
fn bounded(kib: u64, args: &[&str]) -> Output {
    let weft = assert_cmd::cargo::cargo_bin("weft");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v \"$0\" && exec \"$@\"", &kib.to_string()]);
    command.arg(weft).args(args).output().unwrap()
}

/// The least limit, about, under which the program itself starts.
fn least() -> u64 {
    let starts = |kib: &u64| bounded(*kib, &["--version"]).status.success();
    (1..200).map(|step| step * 8_192).find(starts).expect("1.6 GB for a line of text")
}

/// Runs `args` with more and more memory until it suffices; returns the messages of the runs before.
fn refusals(args: &[&str]) -> Vec<String> {
    let least = least();
    let mut refused = Vec::new();
    for step in 0..60 {
        let kib = least + step * step * 1_024;
        let output = bounded(kib, args);
        let err = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(DONE) => return refused,
            Some(SYSTEM) => {}
            other => panic!("{args:?} in {kib} KiB: {other:?} {}\n{err}", output.status),
        }
        assert!(
            err.contains("the system has no ") && err.contains(" bytes of memory left"),
            "{err}"
        );
        assert!(!err.contains("panicked"), "{err}");
        refused.push(err);
    }
    panic!("{args:?} never had enough: {refused:?}");
}

/// A network of 20 switches: some limits are too low for it, and it says so with its size before it is built; under
/// others it begins and has to end early. A run on two threads, a check, and a sweep are no different.
#[test]
fn a_network_that_memory_does_not_suffice_for_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    let text = "seed = 3\n[net]\ngenerate = 'fat-tree'\nhosts = 64\n[buffer]\nbuffer_size_mb = 32\n[[workload]]\nkind = 'permutation'\nbytes = '64KiB'\n";
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let refused = refusals(&["sim", "run", path]);
    let names_network = |err: &String| err.contains(" switches and 64 hosts: the system has no ");
    assert!(refused.iter().any(names_network), "{refused:?}");
    for args in [&["sim", "run", path, "--threads", "2"][..], &["sim", "check", path]] {
        assert!(refusals(args).iter().any(names_network), "{args:?}");
    }
    assert!(Path::new(path).exists());
}
