//! `weft fabric`: a correct file, wrong files, and a fabric that comes up and shows the hosts' devices.
//!
//! Runs the binary with a topology file, and checks output and exit code.
//!
//! Source: docs/fabric.md.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use assert_cmd::Command;

use crate::process::Guard;

fn weft() -> Command {
    let mut weft = Command::cargo_bin("weft").unwrap();
    weft.timeout(std::time::Duration::from_mins(1));
    weft
}

fn figure(name: &str) -> String {
    format!("{}/../pcaps/fabric/fig-{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

fn stdout(run: &assert_cmd::assert::Assert) -> String {
    String::from_utf8_lossy(&run.get_output().stdout).into_owned()
}

#[test]
fn a_file_is_checked() {
    let run = weft().args(["fabric", "check", &figure("7-45")]).assert().success();
    let text = stdout(&run);
    assert!(text.contains("virtual switch 0 of h0: ep0, sw1, sw3"), "{text}");
    assert!(text.contains("4 switches, 2 hosts, 5 devices"), "{text}");
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    let cases = [
        ("switch = [{ name = \"a\", colour = 1 }]", "colour"),
        (
            "switch = [{ name = \"a\" }]\nhbr = [{ name = \"p\", at = \"a\" }]\n\
             gfd = [{ name = \"g\", at = \"p\" }]",
            "gfd-to-pbr-dsp",
        ),
        (
            "start = \"static\"\nswitch = [{ name = \"a\" }]\ngfd = [{ name = \"g\", at = \"a\" }]",
            "a static fabric has no G-FAM",
        ),
        ("host = [{ name = \"h\" }]", "[[switch]]: expected 1 or more"),
        (
            "switch = [{ name = \"sw\" }]\ngfd = [{ name = \"g\", at = \"sw\", capacity_mib = 1 }]",
            "g: capacity: expected a multiple of 256MiB",
        ),
        (
            "switch = [{ name = \"sw\" }]\nhost = [{ name = \"../h\", at = \"sw\" }]",
            "host \"../h\"",
        ),
        ("switch = [{ name = \"sw\" }]\nhost = [{ name = \"00a\", at = \"sw\" }]", "host \"00a\""),
    ];
    for (text, want) in cases {
        std::fs::write(&file, text).unwrap();
        for word in ["check", "up"] {
            let run = weft().args(["fabric", word]).arg(&file).assert().code(2);
            let said = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
            assert!(said.contains(want) && said.contains("wrong.toml"), "{said}");
        }
    }
    weft().args(["fabric", "check", "nowhere.toml"]).assert().code(3);
}

/// Starts `weft fabric up` of a figure, and waits until it is up.
fn up_in(dir: &Path, figure: &str) -> Guard {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("weft"));
    command.args(["fabric", "up", figure, "--dir"]).arg(dir);
    let mut child = Guard(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut out = BufReader::new(child.0.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("fabric is up") {
        assert_ne!(out.read_line(&mut said).unwrap(), 0, "it ended before it was up: {said}");
    }
    child
}

/// A second fabric is refused before any part of it is made, and the first one continues; a killed fabric holds no
/// lock.
#[test]
fn a_directory_has_one_fabric() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, figure) = (folder.path().join("fabric"), figure("7-25"));
    for _ in 0..2 {
        let mut first = up_in(&dir, &figure);
        for kind in [&[][..], &["--processes", "--prefix", "wfdir"]] {
            let mut second = weft();
            second.args(["fabric", "up", &figure, "--dir"]).arg(&dir).args(kind);
            let run = second.assert().code(3);
            let said = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
            assert!(said.contains("a fabric is running in") && said.contains("--dir"), "{said}");
        }
        assert!(!dir.join("sw0").exists() && !dir.join("h0/run").exists());
        let mut status = weft();
        status.args(["endpoint", "ctl"]).arg(dir.join("h0/endpoint.sock")).arg("status");
        assert!(stdout(&status.assert().success()).contains("host h0"));
        first.0.kill().unwrap();
        first.0.wait().unwrap();
    }
}

/// A manager lists such an error and repairs it when it can. In a static fabric nothing would repair it, so the fabric
/// does not come up.
#[test]
fn a_static_fabric_that_would_lack_something_does_not_come_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("apart.toml");
    let text = "switch = [{ name = \"near\" }, { name = \"apart\" }]\n\
        host = [{ name = \"h\", at = \"near\", bind = [\"dev\"] }]\n\
        device = [{ name = \"dev\", at = \"apart\" }]\n";
    for (start, code) in [("fm-first", 1), ("static", 3)] {
        std::fs::write(&file, format!("start = \"{start}\"\n{text}")).unwrap();
        let run = weft().args(["fabric", "up", "--once"]).arg(&file).assert().code(code);
        let output = run.get_output();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("there is no switch \"apart\""), "{start}: {said}");
    }
}

#[test]
fn a_fabric_comes_up_and_shows_what_its_hosts_see() {
    let run = weft().args(["fabric", "up", "--once", &figure("7-45")]).assert().success();
    let text = stdout(&run);
    assert!(!text.contains("error:"), "{text}");
    let devices = text.lines().filter(|line| line.contains(" 1e98:0d0")).count();
    assert_eq!((devices, text.matches(" sees\n").count()), (5, 2), "{text}");
}

/// A process of a fabric whose parent ended before it could ask the kernel to end with it.
#[test]
fn a_process_whose_fabric_is_gone_does_not_begin() {
    let run = weft().env("WEFT_PARENT", "1").args(["config", "defaults"]).assert().code(3);
    let said = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(said.contains("is gone"), "{said}");
}
