//! `weft fm serve` on real components over TCP, asked by the other words of `weft fm`.
//!
//! A line of two switches and four GFDs in this process; the fabric manager and its clients are processes.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; `docs/fm.md`.

#[path = "../../../tests/tests/fabric/service/world.rs"]
#[expect(dead_code, reason = "other tests look into the components, too")]
mod world;

use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex};

use assert_cmd::Command;
use serde_json::Value;
use weft_cxl::cci::Session;

use crate::process::{Guard, start};
use world::{BLOCK, HOST, World, listen};

struct Served {
    dir: tempfile::TempDir,
    entry: String,
    world: Option<Arc<Mutex<World>>>,
}

impl Served {
    fn new(world: World) -> Self {
        let world = Arc::new(Mutex::new(world));
        let entry = listen(&world, Session::Fm).peer;
        let gae = listen(&world, |_| Session::Host { vcs: 0 }).peer;
        let want = format!(
            "[[host]]\nname = \"h0\"\nswitch = \"entry\"\nport = {HOST}\ngae = {gae:?}\n\
             [[memory]]\nname = \"pool\"\nhosts = [\"h0\"]\nways = 2\nsize = {}\nhpa = \"0x10000000000\"\n",
            2 * BLOCK
        );
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("want.toml"), want).unwrap();
        Self { dir, entry, world: Some(world) }
    }

    fn serve(&self) -> Guard {
        let (child, mut err) = start(|command| {
            let args = ["fm", "serve", "--entry", &self.entry, "--insecure", "--want", "want.toml"];
            let more = ["--store", "fm.redb", "--socket", "s/fm.sock", "--pause", "50"];
            command.args(args).args(more).current_dir(self.dir.path())
        });
        // Read later output too, so that a full pipe never blocks the manager.
        std::thread::spawn(move || err.read_to_end(&mut Vec::new()));
        child
    }

    /// Exit code, standard output and standard error of `weft fm ARGS --socket ...`.
    fn ask(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::cargo_bin("weft").unwrap();
        let socket = self.dir.path().join(Path::new("s/fm.sock"));
        let output = command.arg("fm").args(args).arg("--socket").arg(socket).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// A bridge reports the requested error, and no other.
    fn assert_aer(&self) {
        let text = self.text(&["aer", "entry/0/1", "malformed-tlp", "--tlp", "40000001"]);
        assert_eq!(text, "entry/0/1 reports the error malformed-tlp\n");
        for (bridge, error, part) in [
            (
                "entry/0/1",
                "ecrc",
                "Invalid Input: it has no such bridge, or one that does not report ecrc",
            ),
            ("entry/0/99", "malformed-tlp", "does not report malformed-tlp"),
            ("sw9/0/1", "malformed-tlp", "there is no switch"),
        ] {
            let (code, _, err) = self.ask(&["aer", bridge, error]);
            assert!(code == 4 && err.contains(part), "{bridge} {error}: {code}: {err}");
        }
        // Port 0 leads to another switch.
        let (code, _, err) = self.ask(&["port", "entry/port:0", "reset"]);
        assert!(code == 4 && err.contains("it is no port for devices"), "{code}: {err}");
        for (change, says) in [("--allow", "may"), ("--forbid", "may not")] {
            let text = self.text(&["access", "h0", change, "0aa", "--vector", "lav"]);
            assert!(text.contains(&format!(" {says} reach 0aa (LAV)")), "{text}");
        }
        let world = self.world.as_ref().unwrap().lock().unwrap();
        let bridges = &world.switches[0].vcs(0).unwrap().vppbs;
        let errors: Vec<u32> = bridges.iter().map(|vppb| vppb.bridge.errors()).collect();
        assert_eq!(errors, [0, 1 << 18, 0, 0, 0]);
    }

    fn text(&self, args: &[&str]) -> String {
        let (code, out, err) = self.ask(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        out
    }

    fn json(&self, args: &[&str]) -> Value {
        let all: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.text(&all)).unwrap()
    }
}

/// Shares of memory by their names: a manager that comes back finds them in an order of its own.
fn by_name(served: &Served) -> std::collections::BTreeMap<String, Value> {
    let shares = served.json(&["memory"]);
    let of = |share: &Value| (share["name"].to_string(), share.clone());
    shares.as_array().unwrap().iter().map(of).collect()
}

fn stop(mut child: Guard) {
    let pid = rustix::process::Pid::from_child(&child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn a_fabric_is_served_asked_and_found_again() {
    let served = Served::new(World::ring(2, 1, &[0, 1, 1, 0]));
    let child = served.serve();
    let status = served.json(&["status", "--wait"]);
    assert_eq!(
        (&status["phase"], &status["hosts_held"]),
        (&"up".into(), &false.into()),
        "{status}"
    );
    assert_eq!(status["errors"], serde_json::json!([]), "{status}");
    assert_eq!((&status["counts"]["gfds"], &status["counts"]["shares"]), (&4.into(), &1.into()));

    let memory = served.json(&["memory"]);
    let gfd = memory[0]["parts"][1]["gfd"].as_u64().unwrap();
    for (args, part) in [
        (&["topology"][..], "GFD"),
        (&["topology", "--dot"], "graph fabric"),
        (&["topology", "--svg"], "</svg>"),
        (&["topology", "--html"], "data-memory=\"pool\""),
        (&["routes", "--prove"], "none of them backwards"),
        (&["routes", "--switch", "s1"], "s1"),
        (&["memory"], "pool"),
        (&["access", "h0"], &format!("{gfd:03x}")),
        (&["pid"], "host edge"),
        (&["cdat"], "GFD"),
        (&["events"], "memory \"pool\" given"),
        (&["bind"], "bridge"),
        (&["cci", "--opcode", "5700", ""], "Success"),
        (
            &["cci", "--opcode", "4900", "", "--to", &format!("pid:{gfd:03x}")],
            "Identify GFD: Success",
        ),
    ] {
        let text = served.text(args);
        assert!(text.contains(part), "{args:?}: {text}");
    }
    // The host has written no FAST, and its GAE says so.
    let trace = served.text(&["trace", "--host", "h0", "--hpa", "0x10000000000"]);
    assert!(trace.contains("FAST is off") && trace.contains("own hierarchy"), "{trace}");

    let (code, _, err) = served.ask(&["revoke", "pond", "h0"]);
    assert!(code == 4 && err.contains("there is no memory"), "{code}: {err}");
    served.text(&[
        "memory",
        "add",
        "more",
        "--host",
        "h0",
        "--ways",
        "1",
        "--size",
        "256MiB",
        "--hpa",
        "0x20000000000",
    ]);
    served.text(&["revoke", "pool", "h0"]);
    served.assert_aer();
    let before = by_name(&served);
    stop(child);
    let (code, _, err) = served.ask(&["status"]);
    assert!(code == 4 && err.contains("no fabric manager listens"), "{code}: {err}");

    let child = served.serve();
    let status = served.json(&["status", "--wait"]);
    assert_eq!(status["phase"], "up", "{status}");
    assert_eq!(by_name(&served), before, "{status}");
    assert!(status["errors"].to_string().contains("release it first"), "{status}");
    stop(child);
}

#[test]
fn what_cannot_be_brought_up_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let served = Served { dir, entry: format!("tcp:{free}"), world: None };
    std::fs::write(served.dir.path().join("want.toml"), "").unwrap();
    let child = served.serve();
    let (code, _, err) = served.ask(&["status", "--wait"]);
    assert!(code == 1 && err.contains("cannot be claimed"), "{code}: {err}");
    let status = served.json(&["status"]);
    assert_eq!(status["hosts_held"], true, "{status}");
    stop(child);
    let mut bare = Command::cargo_bin("weft").unwrap();
    let bare = bare.args(["fm", "serve", "--entry", &served.entry]).output().unwrap();
    let text = String::from_utf8(bare.stderr).unwrap();
    assert_eq!(bare.status.code(), Some(2), "{text}");
    assert!(
        text.contains("expected a Unix socket, or --tls-ca, --tls-cert and --tls-key"),
        "{text}"
    );
    std::fs::write(served.dir.path().join("want.toml"), "[fm]\npid = \"fff\"\n").unwrap();
    let refused = Command::cargo_bin("weft")
        .unwrap()
        .args(["fm", "serve", "--entry", "unix:/nonexistent", "--want", "want.toml"])
        .current_dir(served.dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("expected a PID of 000 to ffe"), "{text}");
}
