//! `weft run` as a switch with roles, commanded over its Unix socket by the independent client `tests/py/check_cci.py`.
//!
//! The switch has ports that lead nowhere and serves CCI at a socket of the test; the client reports faults.
//!
//! Source: docs/spec/wire-formats.md §4, which is all that the client knows.

use std::io::Read;
use std::process::Command;

use crate::process::start;

const CONFIG: &str = "[switch]\nname = \"t\"\n\
    [fabric]\nuuid = \"5ed8a1c0-0000-4000-8000-000000000001\"\ncci = \"CCI\"\n\
    [[port]]\nname = \"h\"\nkind = \"null\"\nrole = \"usp\"\n\
    [[port]]\nname = \"d\"\nkind = \"null\"\nrole = \"dsp\"\n\
    [[port]]\nname = \"e\"\nkind = \"null\"\nrole = \"dsp\"\n\
    [[port]]\nname = \"a\"\nkind = \"null\"\nrole = \"fport\"\npids = 2\n\
    [[vcs]]\nusp = \"h\"\nvppbs = 4\n";

/// Commands that need a component behind a port, or a host's mailbox, are tested in
/// `pbr_switch/tests/component/check_cci.rs`.
#[test]
fn the_independent_client_finds_nothing_wrong_with_a_running_switch() {
    let dir = tempfile::tempdir().unwrap();
    let cci = dir.path().join("cci").join("cci.sock").display().to_string();
    let config = CONFIG.replace("CCI", &cci);
    std::fs::write(dir.path().join("t.toml"), config).unwrap();
    let socket = dir.path().join("weft").join("t").join("mgmt.sock");
    let socket = format!("run.socket={}", socket.display());
    let (child, mut err) = start(|command| {
        command.args(["run", "-c", "t.toml", "--set", &socket]).current_dir(dir.path())
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/py/check_cci.py");
    let ports = ["--bind-port", "1", "--unbind-option", "1", "--vppb", "1"];
    let mut client = Command::new("python3");
    client.arg(script).args(["--connect", &format!("unix:{cci}"), "--kind", "switch"]).args(ports);
    let Ok(run) = client.output() else {
        println!("skipped: there is no python3");
        return;
    };
    let text = String::from_utf8_lossy(&run.stdout);
    let bad: Vec<_> = text.lines().filter(|line| !line.contains(": ok")).collect();
    let ran = text.lines().filter(|line| line.contains(": ok")).count();
    assert!(
        run.status.success() && ran > 300,
        "{bad:#?}\n{}",
        String::from_utf8_lossy(&run.stderr)
    );
    drop(child);
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("panicked"), "{rest}");
}
