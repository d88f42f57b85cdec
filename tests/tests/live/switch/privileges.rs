//! What a switch may do while it runs, and what it takes to run one as an ordinary user.
//!
//! `/proc/PID/task/*/status` of running switches; the table of docs/privileges.md, each row run by
//! `setpriv` with just these capabilities, and with one fewer.
//!
//! Source: capabilities(7), `proc_pid_status(5)`, setpriv(1); docs/privileges.md.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch, weft};
use weft_tests::stations::{Station, frame, mac};
use weft_tests::talk;

use crate::endpoint::{Endpoint, Folder};

/// `nobody`, and its group.
const ORDINARY: u32 = 65_534;
/// `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_IPC_LOCK`, `CAP_PERFMON`, `CAP_BPF`.
const KEPT: u64 = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 38 | 1 << 39;

/// What the kernel says of each thread of a process: `Name`, `CapEff` and so on.
fn threads(pid: u32) -> Vec<BTreeMap<String, String>> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let read = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).ok();
    let texts: Vec<String> = tasks.filter_map(|task| read(task.unwrap())).collect();
    let line = |line: &str| {
        line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
    };
    texts.iter().map(|text| text.lines().filter_map(line).collect()).collect()
}

/// Every thread has the restrictions, and the kernel and the switch agree on them.
fn is_confined(switch: &Switch, kept: u64, uid: u32) {
    assert!(are_confined(switch.pid(), kept, uid) >= 3);
    let shown = switch.show("process");
    assert_eq!(shown["sandbox"], "on", "{shown}");
    assert_eq!((&shown["seccomp"], &shown["no_new_privs"]), (&json!("filter"), &json!(true)));
    assert_eq!(shown["unlike"], json!([]), "{shown}");
    assert_eq!(shown["effective"].as_array().unwrap().len(), kept.count_ones() as usize, "{shown}");
    assert!(!shown["landlock"].as_str().unwrap().is_empty(), "{shown}");
}

/// Every thread of a process has the restrictions; how many there are.
fn are_confined(pid: u32, kept: u64, uid: u32) -> usize {
    let threads = threads(pid);
    for thread in &threads {
        let mask = |name: &str| u64::from_str_radix(&thread[name], 16).unwrap();
        for set in ["CapEff", "CapPrm"] {
            assert_eq!(mask(set), kept, "{set}: {thread:?}");
        }
        for set in ["CapInh", "CapBnd", "CapAmb"] {
            let may_stay = set == "CapBnd" && uid != 0; // emptying it takes CAP_SETPCAP
            assert!(mask(set) == 0 || may_stay, "{set}: {thread:?}");
        }
        assert_eq!((&*thread["NoNewPrivs"], &*thread["Seccomp"]), ("1", "2"), "{thread:?}");
        let uids: Vec<u32> =
            thread["Uid"].split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(uids, [uid; 4], "{thread:?}");
    }
    threads.len()
}

/// Waits until frames from wire 0 leave by wire 1 of `switch`.
fn forwards(net: &Net, switch: &Switch) {
    let station = Station::sender(net, "far", "f0");
    let out = || {
        let ports = switch.show("ports");
        ports[1]["tx_frames"].as_u64().unwrap()
    };
    let before = out();
    until(LONG, "a frame is forwarded", || {
        let _took = station.send(&[frame(mac(1), mac(0), 60, 0)]);
        (out() > before).then_some(())
    });
}

#[test]
fn a_switch_keeps_only_what_opens_its_devices_again() {
    let Some(mut net) = Net::new("a_switch_keeps_only_what_opens_its_devices_again") else {
        return;
    };
    net.add_wires(2);
    let switch = Switch::start(&net, &["p0=s0", "p1=s1"], "");
    is_confined(&switch, KEPT, 0);
    forwards(&net, &switch);
    // Management goes on: what it reads and writes is not in the system's directories.
    assert!(switch.ask("reload").is_some());
    let folder = Switch::folder(&net);
    let copy = folder.join("copy.pcap").display().to_string();
    assert!(switch.ask(&format!("mirror p0 {copy}")).is_some());
    forwards(&net, &switch);
    assert!(switch.ask("mirror p0 --off").is_some());
    assert!(std::fs::metadata(&copy).unwrap().len() > 24, "a head and a frame");
    assert!(switch.ask("mirror p0 /etc/weft-test.pcap").is_none(), "it writes in /etc");
    drop(switch.stop());
    // Another one keeps all, and says so.
    let switch = Switch::start_with(&net, &["p0=s0", "p1=s1"], "", &["--set", "run.sandbox=false"]);
    let shown = switch.show("process");
    assert_eq!((&shown["sandbox"], &shown["seccomp"]), (&json!("off"), &json!("none")), "{shown}");
    assert_eq!(shown["note"], "run.sandbox is false");
    drop(switch.stop());
}

/// Hosts and endpoints are confined as switches are, by what their ports take, and work.
#[test]
fn hosts_and_endpoints_keep_only_what_opens_their_devices_again() {
    let test = "hosts_and_endpoints_keep_only_what_opens_their_devices_again";
    let Some(mut net) = Net::new(test) else { return };
    let (admin, raw) = (1 << 12, 1 << 13);
    net.add_joined("h0", "sw0", "10.0.0.1/24");
    for options in ["--station 1", "--station 1 --to 2 --duration 60 --rate 1Mbps"] {
        let mut host = talk::host(&net, "h0", options);
        assert!(are_confined(host.id(), admin | raw, 0) >= 1, "{options}");
        kill(&host, "-TERM");
        let ended = host.wait().unwrap();
        assert!(ended.success(), "{options}: {ended}");
    }
    let folder = Folder(Switch::folder(&net));
    std::fs::create_dir_all(&folder.0).unwrap();
    for (port, kept) in [("eth0", admin | raw), ("tap:tap7", admin)] {
        let socket = folder.0.join("ctl").join("endpoint.sock");
        let arguments = format!("host --port {port} --name h");
        let endpoint = Endpoint::start(&net, "h0", &arguments, socket);
        assert!(are_confined(endpoint.pid(), kept, 0) >= 2, "{port}");
        endpoint.stop();
    }
}

/// So is what holds a switch against its thresholds.
#[test]
fn conformance_cases_keep_only_what_opens_their_devices_again() {
    let test = "conformance_cases_keep_only_what_opens_their_devices_again";
    let Some(mut net) = Net::new(test) else { return };
    net.add_wires(2);
    let switch = Switch::start(&net, &["p0=af_packet:s0", "p1=af_packet:s1"], "");
    let links = "conform run --link p0=f0 --link p1=f1 --socket";
    let mut command = net.at("far", weft().to_str().unwrap(), links);
    command.arg(Switch::folder(&net).join("socket/mgmt.sock")).stdout(Stdio::piped());
    let mut cases = command.spawn().unwrap();
    let mut said = BufReader::new(cases.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(are_confined(cases.id(), 1 << 12 | 1 << 13, 0) >= 1, "{line}");
    said.read_to_string(&mut line).unwrap();
    assert!(cases.wait().unwrap().success(), "{line}");
    drop(switch.stop());
}

fn kill(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

#[test]
fn a_switch_goes_on_as_another_user() {
    let Some(mut net) = Net::new("a_switch_goes_on_as_another_user") else { return };
    net.add_wires(2);
    let user = format!("run.user={ORDINARY}:{ORDINARY}");
    let switch = Switch::start_with(&net, &["p0=af_xdp:s0", "p1=af_xdp:s1"], "", &["--set", &user]);
    is_confined(&switch, KEPT, ORDINARY);
    let owned = Switch::folder(&net).join("socket");
    for path in [owned.clone(), owned.join("mgmt.sock")] {
        let facts = std::fs::metadata(&path).unwrap();
        assert_eq!((facts.uid(), facts.gid()), (ORDINARY, ORDINARY), "{}", path.display());
    }
    forwards(&net, &switch);
    assert!(switch.ask("reload").is_some());
    // An interface that is made again is taken again, by whoever the switch is now.
    net.ip("sw", "link del s1");
    let up = |switch: &Switch| switch.show("ports")[1]["link_up"].as_bool().unwrap();
    until(LONG, "the port is down", || (!up(&switch)).then_some(()));
    net.add_wire(1);
    until(LONG, "the port is up", || up(&switch).then_some(()));
    forwards(&net, &switch);
    drop(switch.stop());
}

/// Rows of the page's table: what runs, and with which capabilities.
fn rows() -> Vec<(String, Vec<String>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/privileges.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.lines().skip_while(|line| !line.starts_with("| what runs |")).skip(2);
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        (cells[1].to_owned(), words(cells[2]))
    };
    table.take_while(|line| line.starts_with('|')).map(row).collect()
}

/// The ports and further arguments of what a row names, and what its second port must be.
fn setup(what: &str) -> (Vec<&'static str>, Vec<&'static str>, &'static str) {
    match what {
        "ports of kind `null`, `pcap`" => (vec!["p0=null:a", "p1=null:b"], vec![], "null"),
        "ports of kind `af_packet`" => {
            (vec!["p0=af_packet:s0", "p1=af_packet:s1"], vec![], "af_packet")
        }
        "ports of kind `af_xdp` without express" => {
            (vec!["p0=af_xdp:s0", "p1=af_xdp:s1"], vec!["--set", "express.enabled=false"], "af_xdp")
        }
        "ports of kind `af_xdp` with express" => {
            (vec!["p0=af_xdp:s0", "p1=af_xdp:s1"], vec![], "af_xdp")
        }
        "ports of kind `tap`" => (vec!["p0=null:a", "p1=tap:tap0"], vec![], "tap"),
        "metrics or CCI at a TCP port below 1024" => {
            (vec!["p0=null:a", "p1=null:b"], vec!["--metrics", "127.0.0.1:9"], "null")
        }
        other => panic!("docs/privileges.md has a row that no test runs: {other}"),
    }
}

/// `setpriv` with its arguments, for an ordinary user with `capabilities`.
fn setpriv(capabilities: &[String]) -> String {
    let sets: Vec<String> = capabilities.iter().map(|name| format!(",+{name}")).collect();
    let sets = sets.concat();
    format!(
        "setpriv --reuid {ORDINARY} --regid {ORDINARY} --clear-groups --inh-caps=-all{sets} --ambient-caps=-all{sets}"
    )
}

/// What becomes of a switch with fewer capabilities than it takes: it ends, or says what it lacks.
fn lacks(net: &Net, what: &str, capabilities: &[String]) -> bool {
    let (ports, more, _) = setup(what);
    let mut command = net.at("sw", "timeout", "-s TERM 20");
    command.args(["prlimit", "--memlock=65536"]); // else root's limit decides whether the pool may be locked
    command.args(setpriv(capabilities).split(' ')).arg(weft()).args(["run", "--json"]).args(more);
    command
        .args(["--set", &format!("run.socket={}/fewer/mgmt.sock", Switch::folder(net).display())]);
    for port in ports {
        command.args(["--port", port]);
    }
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let said: Vec<String> =
        lines.by_ref().map_while(Result::ok).take_while(|line| !line.contains(" is up")).collect();
    let ended = child.try_wait().unwrap();
    drop(Command::new("kill").arg(child.id().to_string()).status());
    drop(child.wait());
    println!("{what} with {capabilities:?}: {said:?} {ended:?}");
    said.iter().any(|line| line.contains("error:"))
}

/// Makes a folder the ordinary user's; it goes with each switch.
fn own(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    chown(folder, Some(ORDINARY), Some(ORDINARY)).unwrap();
}

#[test]
fn each_row_of_the_page_runs_as_an_ordinary_user_and_needs_all_of_it() {
    let test = "each_row_of_the_page_runs_as_an_ordinary_user_and_needs_all_of_it";
    let Some(mut net) = Net::new(test) else { return };
    let version = setpriv(&[]);
    let mut tried = Command::new("setpriv");
    tried.args(version.split(' ').skip(1)).arg(weft()).arg("--version");
    if !tried.output().is_ok_and(|Output { status, .. }| status.success()) {
        eprintln!("SKIPPED {test}: an ordinary user cannot execute {}", weft().display());
        return;
    }
    net.add_wires(2);
    for far in ["f0", "f1"] {
        net.napi("far", far, true); // without it no frame is redirected to the wire
    }
    let folder = Switch::folder(&net);
    own(&folder);
    let rows = rows();
    assert!(rows.len() >= 6, "{rows:?}");
    for (what, capabilities) in rows {
        let (ports, more, kind) = setup(&what);
        let switch = Switch::start_by(&net, &setpriv(&capabilities), &ports, "", &more);
        let shown: Value = switch.show("ports");
        assert_eq!(shown[1]["kind"], kind, "{what}: {shown}");
        if what.contains("with express") {
            assert_eq!(shown[1]["no_express"], Value::Null, "{what}");
        }
        if kind.starts_with("af") {
            forwards(&net, &switch);
        }
        let process = switch.show("process");
        assert_eq!(process["uid"], ORDINARY, "{process}");
        let mut has: Vec<&str> =
            process["effective"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let mut want: Vec<&str> = capabilities.iter().map(String::as_str).collect();
        has.sort_unstable();
        want.sort_unstable();
        assert_eq!(has, want, "{what}");
        drop(switch.stop());
        own(&folder);
        for fewer in 0..capabilities.len() {
            let mut left = capabilities.clone();
            let missing = left.remove(fewer);
            if missing == "perfmon" {
                let switch = Switch::start_by(&net, &setpriv(&left), &ports, "", &more);
                let port = &switch.show("ports")[1];
                if what.contains("with express") {
                    let why = port["no_express"].as_str().unwrap();
                    assert!(why.contains("ermission denied"), "{what} without {missing}: {why}");
                }
                let note = port["note"].as_str().unwrap_or_default();
                assert!(note.contains("checksums"), "{what} without {missing}: {note}");
                drop(switch.stop());
                own(&folder);
                continue;
            }
            assert!(lacks(&net, &what, &left), "{what} runs without {missing}");
        }
    }
}
