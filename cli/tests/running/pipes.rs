//! Pipes and devices in place of files never keep a running switch waiting.
//!
//! `weft run` and commands that name a pipe; a switch that hung would not answer, or not stop by itself.
//!
//! Source: docs/privileges.md "Files"; docs/running.md "Exit codes".

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command as Run;

use rustix::process::{Pid, Signal, kill_process};
use weft_base::wait::{LONG, until};

use super::process::start;
use super::{CONFIG, MAKE, Switch, socket};

fn fifo(path: &Path) -> String {
    assert!(Run::new("mkfifo").arg(path).status().unwrap().success());
    path.display().to_string()
}

/// A client names a pipe without a writer, then a device; then the configuration's own path becomes a pipe.
#[test]
fn a_reload_reads_regular_files_and_waits_for_no_other() {
    let switch = Switch::start();
    let pipe = fifo(&switch.dir.path().join("pipe"));
    for (path, found) in [(pipe.as_str(), "found a pipe"), ("/dev/zero", "found a device")] {
        let (code, _, err) = switch.ask(&["reload", path]);
        assert!(code == 4 && err.contains(found), "{code} {err}");
    }
    let config = switch.dir.path().join("t.toml");
    std::fs::remove_file(&config).unwrap();
    fifo(&config);
    kill_process(Pid::from_child(&switch.child.0), Signal::HUP).unwrap();
    until(LONG, "SIGHUP is answered", || {
        let shown = switch.json(&["show", "events", "--json"]);
        let all = shown.pointer("/events/events")?.as_array()?.clone();
        let refused = |event: &&serde_json::Value| event["kind"] == "reload_refused";
        (all.iter().filter(refused).count() == 3).then_some(())
    });
    let (code, _, err, _) = switch.stop();
    assert_eq!(code, Some(0), "{err}");
}

/// A configuration in a pipe is read once, at the start.
#[test]
fn a_configuration_from_a_pipe_starts_a_switch_that_cannot_read_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = fifo(&dir.path().join("pipe"));
    let mut make = assert_cmd::Command::cargo_bin("weft").unwrap();
    assert!(make.current_dir(dir.path()).args(MAKE).output().unwrap().status.success());
    let at = format!("run.socket={}", socket(dir.path()).display());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, CONFIG).unwrap()
    });
    let (child, err) =
        start(|command| command.current_dir(dir.path()).args(["run", "-c", &pipe, "--set", &at]));
    writer.join().unwrap();
    let switch = Switch { dir, child, err, metrics: 0 };
    let (code, _, err) = switch.ask(&["reload"]);
    assert!(code == 4 && err.contains("found a pipe"), "{code} {err}");
    switch.stop_well();
}

/// A mirror into a pipe is refused where nothing reads it.
#[test]
fn a_mirror_waits_for_no_reader_of_a_pipe() {
    let switch = Switch::start();
    let pipe = fifo(&switch.dir.path().join("pipe"));
    let (code, _, err) = switch.ask(&["mirror", "a", &pipe]);
    assert!(code == 4 && err.contains("nothing reads"), "{code} {err}");
    let mut options = std::fs::OpenOptions::new();
    let mut reader = options.read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let (code, _, err) = switch.ask(&["mirror", "a", &pipe]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(switch.ask(&["mirror", "a", "--off"]).0, 0);
    let mut header = [0; 4];
    reader.read_exact(&mut header).unwrap();
    assert_eq!(header, 0xA1B2_3C4D_u32.to_le_bytes(), "a capture's");
    switch.stop_well();
}
