//! Several fabric managers of one fabric, with an etcd: whatever becomes of the one that leads, another one goes on, and no
//! change that a client was told of is lost or doubled.
//!
//! `weft fabric up --processes`, its manager replaced by three with `--ha`, each in a namespace of its own beside that of
//! etcd; a client makes and releases memory through whoever leads → harm → what it was told against what the fabric holds.
//!
//! Units: rounds; milliseconds of takeovers.
//! Source: docs/fm.md "Several managers".

#![expect(clippy::indexing_slicing, reason = "a test fails that way")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_base::wait::{LONG, pause, try_until};
use weft_rpc::{Client, ClientError, Refused};
use weft_tests::fabric_up::Up;
use weft_tests::netns::{Net, weft};

const TOPOLOGY: &str = "switch = [{ name = \"sw0\" }, { name = \"sw1\" }]\n\
    link = [{ ends = [\"sw0\", \"sw1\"], count = 2 }]\n\
    host = [{ name = \"h0\", at = \"sw0\", spare_vppbs = 1, memory_mib = 64 }]\n\
    gfd = [{ name = \"g\", at = [\"sw0\", \"sw1\"], count = 2, capacity_mib = 256 }]\n";
const MANAGERS: usize = 3;
/// How long a client waits for an answer: one that is stopped gives none.
const ANSWER: Duration = Duration::from_secs(3);
/// Shares that there are at once; a GFD has eight decoders for a host.
const SHARES: usize = 4;

/// What becomes of the one that leads, or of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Harm {
    Killed,
    Stopped,
    EtcdGone,
    CutOff,
}

struct Manager {
    child: Option<Child>,
    socket: PathBuf,
}

struct Rig {
    managers: Vec<Manager>,
    etcd: Option<Child>,
    net: Net,
    up: Up,
    /// `--pause` of the managers.
    pause_ms: u32,
}

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        drop(child.kill());
        drop(child.wait());
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.managers.iter_mut().for_each(|manager| end(&mut manager.child));
        end(&mut self.etcd);
    }
}

fn signal(child: Option<&Child>, name: &str) {
    let pid = child.expect("it runs").id().to_string();
    let done = Command::new("kill").args([name, &pid]).status();
    assert!(done.is_ok_and(|status| status.success()), "kill {name} {pid}");
}

impl Rig {
    /// A fabric, an etcd, and managers; none where the machine has no etcd or no namespaces.
    fn start(test: &str, pause_ms: u32) -> Option<Self> {
        for program in ["etcd", "nft"] {
            let found = Command::new(program).arg("--version").output();
            if found.is_err() {
                eprintln!("SKIPPED {test}: there is no {program} (tools/setup.sh test)");
                return None;
            }
        }
        let up = Up::start_text(test, TOPOLOGY, &[])?;
        up.kill("fm"); // its fabric is taken over by several
        let mut net = Net::new(test)?;
        for at in 0..MANAGERS {
            let (host, port) = (format!("m{at}"), format!("p{at}"));
            net.add_joined(&host, &port, &format!("10.9.{at}.2/24"));
            net.ip("sw", &format!("addr add 10.9.{at}.1/24 dev {port}"));
        }
        let mut rig = Self { managers: Vec::new(), etcd: None, net, up, pause_ms };
        rig.start_etcd();
        for at in 0..MANAGERS {
            let folder = rig.up.folder().join(format!("ha{at}"));
            std::fs::create_dir(&folder).expect("a folder");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(&folder, mode).expect("it is ours");
            rig.managers.push(Manager { child: None, socket: folder.join("fm.sock") });
            rig.run(at);
        }
        Some(rig)
    }

    fn start_etcd(&mut self) {
        let data = self.up.folder().join("etcd");
        let log = std::fs::File::create(self.up.folder().join("etcd.log")).expect("a log");
        let mut command = self.net.at("sw", "etcd", "--logger zap --log-outputs stderr");
        command.arg("--data-dir").arg(data).args(["--listen-client-urls", "http://0.0.0.0:2379"]);
        command.args(["--advertise-client-urls", "http://127.0.0.1:2379", "--unsafe-no-fsync"]);
        self.etcd = Some(command.stdout(Stdio::null()).stderr(log).spawn().expect("etcd starts"));
    }

    /// Starts a manager.
    fn run(&mut self, at: usize) {
        let folder = self.up.folder();
        let log = folder.join(format!("ha{at}")).join("log");
        let log = std::fs::File::options().create(true).append(true).open(log).expect("a log");
        let url = format!("etcd://10.9.{at}.1:2379/weft/fabric");
        let mut command =
            self.net.at(&format!("m{at}"), weft().to_str().expect("text"), "fm serve");
        command.arg("--entry").arg(format!("unix:{}", folder.join("sw0/cci.sock").display()));
        command.args(["--ha", &url, "--ha-insecure", "--ha-name", &format!("m{at}")]);
        command.arg("--want").arg(folder.join("fm/want.toml"));
        command.args(["--pause", &self.pause_ms.to_string()]);
        command.arg("--socket").arg(&self.managers[at].socket).stdout(Stdio::null()).stderr(log);
        self.managers[at].child = Some(command.spawn().expect("nsenter runs"));
    }

    fn status(&self, at: usize) -> Option<Value> {
        let mut client = Client::connect_for(&self.managers[at].socket, ANSWER).ok()?;
        let answer = client.request(&json!({ "cmd": "status" })).ok()?;
        answer.get("status").cloned()
    }

    fn phase(&self, at: usize) -> Option<String> {
        Some(self.status(at)?.get("phase")?.as_str()?.to_owned())
    }

    fn logs(&self) -> String {
        let status = (0..MANAGERS).map(|at| format!("m{at}: {:?}\n", self.status(at)));
        format!("{}{}", status.collect::<String>(), self.up.logs())
    }

    fn until<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        try_until(2 * LONG, look).unwrap_or_else(|| panic!("{what}\n{}", self.logs()))
    }

    /// Who leads, besides those that do not answer.
    fn leader(&self, besides: &[usize]) -> usize {
        let up = |at: &usize| self.phase(*at).as_deref() == Some("up");
        let all: Vec<usize> = (0..MANAGERS).filter(|at| !besides.contains(at)).collect();
        self.until("nobody leads", || all.iter().copied().find(up))
    }

    fn ask(&self, at: usize, request: &Value) -> Result<Value, ClientError> {
        Client::connect_for(&self.managers[at].socket, LONG)?.request(request)
    }

    fn ask_well(&self, at: usize, request: &Value) -> Value {
        self.ask(at, request).unwrap_or_else(|error| panic!("{request}: {error}\n{}", self.logs()))
    }

    /// A manager that has led has noticed that another one does, and refuses what only that one may do.
    fn stands_by(&self, at: usize, leader: usize) {
        let name = format!("m{leader}");
        self.until("it stands by", || {
            let status = self.status(at)?;
            let names = status.pointer("/ha/leader").and_then(Value::as_str) == Some(&name);
            (status.get("phase").and_then(Value::as_str) == Some("standby") && names).then_some(())
        });
        let release = json!({ "cmd": "release", "name": "none" });
        match self.ask(at, &release) {
            Err(ClientError::Refused(Refused { message, .. })) => {
                assert!(message.contains(&format!("{name:?} leads")), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What a client knows of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    There,
    Gone,
    /// It was asked for, or to be released, and nobody answered.
    Either,
}

/// What became of a request.
enum Outcome {
    Done,
    Refused(String),
    NoAnswer,
}

#[derive(Default)]
struct Ledger {
    shares: BTreeMap<u64, Known>,
    next: u64,
    acknowledged: u64,
    /// The manager that is asked first: the one that answered last.
    first: usize,
}

/// A client that makes and releases shares through whoever leads, until it is dropped.
struct Maker {
    ledger: Arc<Mutex<Ledger>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Maker {
    fn start(sockets: Vec<PathBuf>) -> Self {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let stopping = Arc::new(AtomicBool::new(false));
        let (mine, over) = (Arc::clone(&ledger), Arc::clone(&stopping));
        let run = move || {
            while !over.load(Ordering::SeqCst) {
                step(&mut mine.lock().expect("no panic"), &sockets, &over);
                pause(Duration::from_millis(2));
            }
        };
        Self { ledger, stopping, thread: Some(std::thread::spawn(run)) }
    }

    fn acknowledged(&self) -> u64 {
        self.ledger.lock().expect("no panic").acknowledged
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the client has panicked");
        }
    }
}

/// Makes one change, through whoever takes it.
fn step(ledger: &mut Ledger, sockets: &[PathBuf], over: &AtomicBool) {
    let live: Vec<u64> =
        ledger.shares.iter().filter(|(_, known)| **known != Known::Gone).map(|(n, _)| *n).collect();
    let number = if live.len() >= SHARES { live[0] } else { ledger.next };
    let name = format!("c{number}");
    let releases = ledger.shares.contains_key(&number);
    let request = if releases {
        json!({ "cmd": "release", "name": name })
    } else {
        ledger.next += 1;
        let hpa = (1_u64 << 40) + ((number % 64) << 36);
        json!({ "cmd": "share", "name": name, "hosts": ["h0"], "gfds": [], "ways": 2,
            "size": 32 << 20, "granularity": 4_096, "hpa": hpa })
    };
    let done = if releases { Known::Gone } else { Known::There };
    while !over.load(Ordering::SeqCst) {
        let first = ledger.first;
        for at in (0..sockets.len()).map(|step| (first + step) % sockets.len()) {
            match ask(&sockets[at], &request) {
                Outcome::Done => {
                    ledger.first = at;
                    ledger.acknowledged += 1;
                    ledger.shares.insert(number, done);
                    return;
                }
                Outcome::NoAnswer => {
                    ledger.first = at + 1;
                    ledger.shares.insert(number, Known::Either);
                    return;
                }
                Outcome::Refused(why) if releases && why.contains("there is no memory") => {
                    let before = ledger.shares.insert(number, Known::Gone);
                    assert_eq!(before, Some(Known::Either), "{name} was lost: {why}");
                    return;
                }
                Outcome::Refused(why) => {
                    let elsewhere =
                        ["stands by", "start-up is", "is not up", "nothing was changed"];
                    assert!(elsewhere.iter().any(|part| why.contains(part)), "{request}: {why}");
                }
            }
        }
        pause(Duration::from_millis(10));
    }
}

fn ask(socket: &Path, request: &Value) -> Outcome {
    let client = Client::connect_for(socket, ANSWER);
    let Ok(mut client) = client else {
        return Outcome::Refused("stands by: it is gone".to_owned());
    };
    match client.request(request) {
        Ok(_) => Outcome::Done,
        Err(ClientError::Refused(Refused { message, .. })) => {
            let unsure = ["led until its lease ended", "could not be saved", "; the store:"];
            if unsure.iter().any(|part| message.contains(part)) {
                Outcome::NoAnswer
            } else {
                Outcome::Refused(message)
            }
        }
        Err(_) => Outcome::NoAnswer,
    }
}

/// Holds what the client was told against what the fabric holds, as the one who leads reads it from the components.
fn compare(rig: &Rig, maker: &Maker, leader: usize, at: &str) {
    let ledger = maker.ledger.lock().expect("no panic");
    rig.ask_well(leader, &json!({ "cmd": "discover" }));
    let status = rig.status(leader).expect("a status");
    let errors = status.get("errors").and_then(Value::as_array).expect("a list");
    assert!(errors.is_empty(), "{at}: {status}\n{}", rig.logs());
    let memory = rig.ask_well(leader, &json!({ "cmd": "memory" }));
    let rows = memory.get("memory").and_then(Value::as_array).expect("rows");
    let mut found: BTreeMap<u64, &Value> = BTreeMap::new();
    for row in rows {
        let name = row.get("name").and_then(Value::as_str).expect("a name");
        let number = name.trim_start_matches('c').parse().expect("one of the client's");
        assert!(found.insert(number, row).is_none(), "{at}: {name} twice: {memory}");
        let count = |part: &str| row.get(part).and_then(Value::as_array).map(Vec::len);
        let whole = (count("hosts"), count("parts"), row.get("size").and_then(Value::as_u64));
        assert_eq!(whole, (Some(1), Some(2), Some(32 << 20)), "{at}: half of {name}: {memory}");
    }
    for (number, known) in &ledger.shares {
        let is_there = found.remove(number).is_some();
        let fits = match known {
            Known::There => is_there,
            Known::Gone => !is_there,
            Known::Either => true,
        };
        assert!(fits, "{at}: c{number} is {known:?} for the client: {memory}");
    }
    assert!(found.is_empty(), "{at}: nobody has asked for {found:?}");
}

/// More changes are acknowledged than before.
fn goes_on(rig: &Rig, maker: &Maker, what: &str) {
    let before = maker.acknowledged();
    rig.until(what, || (maker.acknowledged() > before + 2).then_some(()));
}

/// Does harm once, and sees that another one leads; how long that took.
fn round(rig: &mut Rig, maker: &Maker, harm: Harm) -> Duration {
    let leader = rig.leader(&[]);
    goes_on(rig, maker, "no change before");
    #[expect(clippy::disallowed_methods, reason = "the takeover is measured")]
    let begun = Instant::now();
    let host = format!("m{leader}");
    match harm {
        Harm::Killed => end(&mut rig.managers[leader].child),
        Harm::Stopped => signal(rig.managers[leader].child.as_ref(), "-STOP"),
        Harm::EtcdGone => end(&mut rig.etcd),
        Harm::CutOff => {
            for rule in [
                "add table inet cut",
                "add chain inet cut out { type filter hook output priority 0 ; policy drop ; }",
                "add chain inet cut in { type filter hook input priority 0 ; policy drop ; }",
            ] {
                let done = rig.net.run(&host, "nft", rule);
                assert!(done.status.success(), "nft {rule}: {done:?}");
            }
        }
    }
    if harm == Harm::EtcdGone {
        rig.until("it leads without etcd", || {
            (rig.phase(leader).as_deref() == Some("standby")).then_some(())
        });
        let asked = rig.ask(leader, &json!({ "cmd": "release", "name": "none" }));
        let error = asked.expect_err("nobody leads").to_string();
        assert!(error.contains("stands by"), "{error}");
        rig.start_etcd();
    }
    let besides: &[usize] = if harm == Harm::EtcdGone { &[] } else { &[leader] };
    let next = rig.leader(besides);
    let took = begun.elapsed();
    goes_on(rig, maker, "no change after");
    match harm {
        Harm::Killed => rig.run(leader),
        Harm::Stopped => signal(rig.managers[leader].child.as_ref(), "-CONT"),
        Harm::EtcdGone => {}
        Harm::CutOff => {
            let done = rig.net.run(&host, "nft", "delete table inet cut");
            assert!(done.status.success(), "{done:?}");
        }
    }
    if next != leader {
        rig.stands_by(leader, next);
    }
    goes_on(rig, maker, "no change with all of them");
    assert_eq!(rig.leader(&[]), next, "it leads still");
    compare(rig, maker, next, &format!("{harm:?}"));
    // Nobody else has changed anything under the new one.
    let events = rig.ask_well(next, &json!({ "cmd": "events", "after": 0 })).to_string();
    assert!(!events.contains("somebody else"), "{events}");
    took
}

fn rounds(test: &str, count: usize) -> Option<BTreeMap<Harm, Vec<Duration>>> {
    let mut rig = Rig::start(test, 100)?;
    rig.leader(&[]);
    let sockets = rig.managers.iter().map(|manager| manager.socket.clone()).collect();
    let maker = Maker::start(sockets);
    let mut took: BTreeMap<Harm, Vec<Duration>> = BTreeMap::new();
    for _ in 0..count {
        for harm in [Harm::Killed, Harm::Stopped, Harm::CutOff, Harm::EtcdGone] {
            took.entry(harm).or_default().push(round(&mut rig, &maker, harm));
        }
    }
    println!("{} changes were acknowledged", maker.acknowledged());
    Some(took)
}

/// The one that leads is killed, stopped for longer than its lease and woken up, cut off from etcd; and etcd is killed.
#[test]
fn whatever_becomes_of_the_leader_no_change_is_lost_or_doubled() {
    drop(rounds("whatever_becomes_of_the_leader_no_change_is_lost_or_doubled", 1));
}

/// A leader that looks once an hour is notified of a link that goes down and comes up, also in the term after another's.
#[test]
fn a_leader_looks_when_it_is_notified() {
    let Some(mut rig) = Rig::start("a_leader_looks_when_it_is_notified", 3_600_000) else { return };
    for _ in 0..2 {
        let leader = rig.leader(&[]);
        // The other one remains, by which the far switch notifies of its end.
        let [link, _] = &rig.up.links("sw0", "sw1")[..] else { panic!("two links") };
        for (up, what) in [(false, "is down"), (true, "is up again")] {
            let after = rig.ask_well(leader, &json!({ "cmd": "status" }));
            let after = after.pointer("/status/events").and_then(Value::as_u64);
            rig.up.link(link, up);
            rig.until(what, || {
                let events = rig.ask(leader, &json!({ "cmd": "events", "after": after })).ok()?;
                events.to_string().contains(what).then_some(())
            });
        }
        end(&mut rig.managers[leader].child);
        rig.leader(&[leader]);
    }
}

/// The same 20 times, and how long it takes until another one leads.
#[test]
#[ignore = "soak: several minutes"]
fn soak_several_managers() {
    let Some(took) = rounds("soak_several_managers", 20) else { return };
    for (harm, mut all) in took {
        all.sort_unstable();
        let ms: Vec<u128> = all.iter().map(Duration::as_millis).collect();
        let median = ms[ms.len() / 2];
        println!(
            "{harm:?}: takeover after {median} ms (median), {}..{} ms",
            ms[0],
            ms[ms.len() - 1]
        );
        // etcd that was away gives leases as much time again when it is back.
        assert!(harm == Harm::EtcdGone || median <= 5_000, "{harm:?}: {ms:?}");
    }
}
