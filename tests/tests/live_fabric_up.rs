//! Whole fabrics as processes: a switch each, hosts, devices and GFDs, their manager, on veth pairs in a namespace.
//!
//! Shape: `weft fabric up --processes` of a figure → `weft endpoint ctl` and `weft fm` by their sockets.
//! Units: octets.
//! Source: issue 4, acceptance 1 and 2; seed 000 sections 7.7.2.4, 7.7.6.1.
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use weft_tests::netns::{Net, Switch, weft};

/// `weft fabric up --processes` in a namespace; ended when it is dropped.
struct Up {
    child: Child,
    folder: PathBuf,
    _net: Net,
}

impl Up {
    fn start(test: &str, figure: &str) -> Option<Self> {
        let net = Net::new(test)?;
        let folder = Switch::folder(&net);
        let file = format!("{}/../pcaps/fabric/fig-{figure}.toml", env!("CARGO_MANIFEST_DIR"));
        let mut command = net.at("sw", "env", "");
        command.arg(weft()).args(["fabric", "up", "--processes", &file, "--dir"]).arg(&folder);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        if !lines.any(|line| line.unwrap().starts_with("fabric is up")) {
            let mut said = String::new();
            child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
            let logs = logs(&folder);
            panic!("{figure}: {said}\n{logs}");
        }
        Some(Self { child, folder, _net: net })
    }

    /// Exit code and answer of a part.
    fn ask(&self, name: &str, arguments: &str) -> (i32, Value) {
        let socket = self.folder.join(name).join("endpoint.sock");
        let mut command = Command::new(weft());
        command.args(["endpoint", "ctl", "--json"]).arg(socket);
        let done = command.args(arguments.split_whitespace()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        let answer = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| Value::from(said));
        (done.status.code().unwrap(), answer)
    }

    /// The answer to what must go well.
    fn well(&self, name: &str, arguments: &str) -> Value {
        let (code, answer) = self.ask(name, arguments);
        assert_eq!(code, 0, "{name} {arguments}: {answer}\n{}", logs(&self.folder));
        answer
    }

    /// Places and Device IDs of what a host sees.
    fn functions(&self, host: &str) -> Vec<(String, String)> {
        let answer = self.well(host, "tree");
        let text = answer.pointer("/tree/text").and_then(Value::as_str).unwrap().to_owned();
        let lines = text.lines().filter(|line| line.as_bytes().get(2) == Some(&b':'));
        let parts = lines.map(|line| {
            let mut words = line.split_whitespace();
            (words.next().unwrap().to_owned(), words.nth(1).unwrap().to_owned())
        });
        parts.collect()
    }

    /// Ends it as a user would; nothing of it is left.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut said = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let pid = self.child.id().to_string();
            drop(Command::new("kill").args(["-TERM", &pid]).status());
            drop(self.child.wait());
        }
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// What the processes have said.
fn logs(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path().join("log")).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(5).collect();
        all += &[entry.file_name().to_string_lossy().as_ref(), &last.join(" | "), "\n"].join(": ");
    }
    all
}

/// Each host sees exactly its hierarchy of the figure, by config reads over the wire; writes and reads of a host and of
/// a device reach the other, and no second host.
#[test]
fn figure_7_45_as_processes() {
    let Some(up) = Up::start("figure_7_45_as_processes", "7-45") else { return };
    let own = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(bdf, id)| ((*bdf).to_owned(), (*id).to_owned())).collect()
    };
    let (root, bridge, gae) = ("1e98:0100", "1e98:5747", "1e98:5746");
    let first = [
        ("00:00.0", root),
        ("01:00.0", bridge),
        ("02:00.0", bridge),
        ("03:00.0", "1e98:0d00"),
        ("02:01.0", bridge),
        ("06:00.0", bridge),
        ("07:00.0", bridge),
        ("08:00.0", "1e98:0d01"),
        ("02:02.0", bridge),
        ("0b:00.0", bridge),
        ("0c:00.0", bridge),
        ("0d:00.0", "1e98:0d04"),
        ("01:00.1", gae),
    ];
    let second = [
        ("00:00.0", root),
        ("01:00.0", bridge),
        ("02:00.0", bridge),
        ("03:00.0", "1e98:0d03"),
        ("02:01.0", bridge),
        ("06:00.0", bridge),
        ("07:00.0", bridge),
        ("08:00.0", "1e98:0d02"),
        ("01:00.1", gae),
    ];
    assert_eq!(up.functions("h0"), own(&first));
    assert_eq!(up.functions("h1"), own(&second));
    // Both hosts have a device at this address; what host 0 writes is in its own only.
    let bar = 0x40_0020_0000_u64;
    up.well("h0", &format!("write {bar} 64KiB --seed 6 --check"));
    up.well("ep1", "peek 0 64KiB --seed 6 --bar 0");
    assert_eq!(up.ask("ep2", "peek 0 64KiB --seed 6 --bar 0").0, 1);
    // The device writes into the memory of its host and reads it back; the other host has nothing of it.
    up.well("ep1", "dma write 0x200000 64KiB --seed 8 --check --via plain");
    up.well("h0", "peek 0x200000 64KiB --seed 8");
    assert_eq!(up.ask("h1", "peek 0x200000 64KiB --seed 8").0, 1);
    up.stop();
}

/// 1 MiB over four GFDs and two switches, written by one host and read by the other, octet for octet.
#[test]
fn memory_of_four_gfds_over_veth() {
    let Some(up) = Up::start("memory_of_four_gfds_over_veth", "7-26") else { return };
    up.well("h0", "write 0x10000000000 1MiB --seed 3");
    let read = up.well("h1", "read 0x10000000000 1MiB --seed 3");
    assert_eq!(read.pointer("/transfer/read").and_then(Value::as_u64), Some(1 << 20), "{read}");
    for gfd in ["g0", "g1", "g2", "g3"] {
        let status = up.well(gfd, "status");
        let writes = status.pointer("/status/counts/gfd/writes").and_then(Value::as_u64);
        assert_eq!(
            writes,
            Some(1_024),
            "{gfd} has its turns of 4 KiB by requests of 256: {status}"
        );
    }
    up.stop();
}

/// Seed 000 section 7.7.3.3: an accelerator of host 0 writes and reads memory of host 1, octet for octet; a host that may
/// not is refused, and has written nothing.
#[test]
fn gim_of_a_host_over_veth() {
    let Some(up) = Up::start("gim_of_a_host_over_veth", "7-40") else { return };
    let gim = 0x100_0000_0000_u64;
    up.well("acc0", &format!("dma write {gim} 256KiB --seed 5"));
    up.well("h1", "peek 0x100000 256KiB --seed 5");
    let read = up.well("acc0", &format!("dma read {gim} 256KiB --seed 5"));
    assert_eq!(read.pointer("/transfer/read").and_then(Value::as_u64), Some(256 << 10), "{read}");
    up.well("h0", &format!("read {gim} 256KiB --seed 5"));
    for word in ["write", "read"] {
        let (code, answer) = up.ask("h2", &format!("{word} {gim} 4KiB --seed 6"));
        let refused = answer.pointer("/transfer/failures/UR").and_then(Value::as_u64);
        assert!(code == 1 && refused > Some(0), "{word}: {answer}");
    }
    up.well("h1", "peek 0x100000 256KiB --seed 5");
    up.stop();
}
