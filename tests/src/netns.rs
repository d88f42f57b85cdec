//! Networks of kernel hosts in namespaces, and a `weft run` between them.
//!
//! [`Net`] owns its namespaces and [`Switch`] its process; both are gone when they are dropped,
//! after a failed test too. The next run removes namespaces that a killed run left behind.
//!
//! Source: ip-netns(8), veth(4).

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use weft_base::wait::{LONG, until};

/// First part of the names of all namespaces of ours; the process id follows.
const PREFIX: &str = "weftnet";

/// Namespaces that are removed with this value.
pub struct Net {
    base: String,
    /// Number of networks that the process had made before.
    count: usize,
    hosts: Vec<String>,
}

impl Net {
    /// An empty network. `None` without the rights for one, which it reports with the name of
    /// `test`.
    ///
    /// # Panics
    /// Never where namespaces work.
    #[must_use]
    pub fn new(test: &str) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        static SWEPT: OnceLock<()> = OnceLock::new();
        // once is enough: only processes that are gone leave namespaces behind
        SWEPT.get_or_init(sweep);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = format!("{PREFIX}{}-{count}", std::process::id());
        let mut net = Self { base, count, hosts: Vec::new() };
        match net.try_host("sw") {
            Ok(()) => Some(net),
            Err(why) => {
                eprintln!("SKIPPED {test}: {why} (needs root)");
                None
            }
        }
    }

    fn try_host(&mut self, host: &str) -> Result<(), String> {
        let name = self.name(host);
        let done = Command::new("ip").args(["netns", "add", &name]).output();
        let done = done.map_err(|error| format!("ip: {error}"))?;
        if !done.status.success() {
            return Err(format!("ip netns add: {}", text(&done.stderr)));
        }
        self.hosts.push(name);
        self.ip(host, "link set lo up");
        Ok(())
    }

    /// Full name of the namespace of `host`; the switch's is `sw`.
    #[must_use]
    pub fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.base)
    }

    /// Adds a namespace.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn add_host(&mut self, host: &str) {
        self.try_host(host).expect("the first namespace could be made");
    }

    /// Adds `host` with `eth0` at `address`, the other end of which is `port` at the switch.
    pub fn add_joined(&mut self, host: &str, port: &str, address: &str) {
        self.add_host(host);
        let there = self.name(host);
        self.ip("sw", &format!("link add {port} type veth peer name eth0 netns {there}"));
        self.ip("sw", &format!("link set {port} up"));
        self.address(host, address);
        // both ends get their queue on their own
        self.wait_for_queue("sw", port);
        self.wait_for_queue(host, "eth0");
    }

    /// Waits until an interface has its queue: the kernel attaches one some time after the carrier,
    /// and drops frames that are sent before without counting them.
    fn wait_for_queue(&self, host: &str, device: &str) {
        until(LONG, format_args!("{device} of {host} has a queue"), || {
            // `noop` is the discipline that an interface has until then
            let shown = self.run(host, "ip", &format!("link show {device}"));
            (!String::from_utf8_lossy(&shown.stdout).contains(" qdisc noop ")).then_some(())
        });
    }

    /// Adds host `far`, with `count` interfaces `f0`, `f1`, ..., the other ends of which are `s0`,
    /// `s1`, ... at the switch. All are up, and neither kernel sends frames of its own.
    pub fn add_wires(&mut self, count: usize) {
        self.add_host("far");
        for host in ["sw", "far"] {
            // Where there is no IPv6 there is nothing to turn off.
            let quiet = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
            self.within(host, || drop(std::fs::write(quiet, "1")));
        }
        for index in 0..count {
            self.add_wire(index);
        }
    }

    /// Adds one wire of [`Self::add_wires`]. Its end at the switch has a number that no other
    /// interface of the machine has, because a link of bpf(2) names its interface by that alone.
    pub fn add_wire(&self, index: usize) {
        let far = self.name("far");
        let pid = usize::try_from(std::process::id()).unwrap_or(0);
        // process, network and wire, each in digits of its own
        let number = 10_000_000 + (pid % 20_000) * 10_000 + self.count % 100 * 100 + index;
        let ends = format!("name s{index} index {number} type veth peer name f{index} netns {far}");
        self.ip("sw", &format!("link add {ends}"));
        self.ip("sw", &format!("link set s{index} up"));
        self.ip("far", &format!("link set f{index} up"));
        self.wait_for_queue("sw", &format!("s{index}"));
        self.wait_for_queue("far", &format!("f{index}"));
    }

    /// Gives `eth0` of `host` an address and takes it up.
    pub fn address(&self, host: &str, address: &str) {
        self.ip(host, &format!("addr add {address} dev eth0"));
        self.ip(host, "link set eth0 up");
    }

    /// Runs `ip` at `host`.
    ///
    /// # Panics
    /// When it fails.
    pub fn ip(&self, host: &str, arguments: &str) {
        let name = self.name(host);
        let done = Command::new("ip").args(["-n", &name]).args(arguments.split(' ')).output();
        let done = done.expect("ip runs");
        assert!(done.status.success(), "ip -n {name} {arguments}: {}", text(&done.stderr));
    }

    /// Index of an interface at a host.
    ///
    /// # Panics
    /// The host has no interface of that name.
    #[must_use]
    pub fn index(&self, host: &str, device: &str) -> u32 {
        let said = self.run(host, "ip", &format!("-o link show {device}"));
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        text.split(':').next().and_then(|number| number.trim().parse().ok()).expect("an index")
    }

    /// Address of a host's `eth0`.
    ///
    /// # Panics
    /// The host has none.
    #[must_use]
    pub fn mac(&self, host: &str) -> weft_parsers::MacAddr {
        let said = self.run(host, "ip", "-br link show eth0");
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        text.split_whitespace().find_map(|word| word.parse().ok()).expect("an address")
    }

    /// Switches NAPI of a host's device on or off; without NAPI it takes no redirected frames.
    ///
    /// # Panics
    /// The kernel refuses.
    pub fn napi(&self, host: &str, device: &str, on: bool) {
        let word = if on { "on" } else { "off" };
        let set = self.run(host, "ethtool", &format!("-K {device} gro {word}"));
        assert!(set.status.success(), "ethtool: {}", String::from_utf8_lossy(&set.stderr));
    }

    /// Calls `look` in the namespace of `host`. Sockets that it makes stay there.
    ///
    /// # Panics
    /// The namespace is gone, or `look` panics.
    pub fn within<R: Send>(&self, host: &str, look: impl FnOnce() -> R + Send) -> R {
        let name = self.name(host);
        // a thread of its own: the caller's namespace stays as it is
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                enter(&name);
                look()
            });
            there.join().expect("it does not panic")
        })
    }

    /// A command that runs `program` at `host`, with arguments split at blanks.
    #[must_use]
    pub fn at(&self, host: &str, program: &str, arguments: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name(host))).arg(program);
        command.args(arguments.split_whitespace()).stdin(Stdio::null());
        command
    }

    /// Runs `program` at `host` to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run(&self, host: &str, program: &str, arguments: &str) -> Output {
        self.at(host, program, arguments).output().expect("nsenter runs")
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.hosts {
            // Errors are left to the next run's sweep. A test that failed leaves its hosts'
            // processes behind.
            if let Ok(left) = Command::new("ip").args(["netns", "pids", name]).output() {
                let left: Vec<String> = text(&left.stdout).lines().map(str::to_owned).collect();
                if !left.is_empty() {
                    drop(Command::new("kill").arg("-KILL").args(left).output());
                }
            }
            drop(Command::new("ip").args(["netns", "del", name]).output());
        }
        drop(std::fs::remove_dir_all(Switch::folder(self))); // of a switch that a test started by itself, too
    }
}

/// Moves this thread into a namespace, for as long as it lives.
///
/// # Panics
/// When there is no such namespace.
pub fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).expect("the namespace is there");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
}

/// Removes namespaces whose process is gone.
fn sweep() {
    let Ok(listed) = Command::new("ip").args(["netns", "list"]).output() else { return };
    for name in text(&listed.stdout).lines().filter_map(|line| line.split_whitespace().next()) {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let is_gone = |pid: &str| !pid.is_empty() && !Path::new("/proc").join(pid).exists();
        if owner.is_some_and(is_gone) {
            drop(Command::new("ip").args(["netns", "del", name]).output());
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// The binary to test: `WEFT_BIN`, or else one that is built now.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn weft() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(set) = std::env::var_os("WEFT_BIN").map(PathBuf::from).filter(|p| p.is_file()) {
            return set;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "-p", "weft"])
            .args(if cfg!(feature = "dpdk") { &["--features", "dpdk"][..] } else { &[] })
            .current_dir(root)
            .status();
        assert!(built.is_ok_and(|status| status.success()), "cargo build -p weft");
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
        target.join("debug/weft")
    })
}

/// A `weft run` in the namespace `sw` of a [`Net`].
pub struct Switch {
    child: Option<Child>,
    socket: PathBuf,
    folder: PathBuf,
}

impl Switch {
    /// Starts a switch with `ports` as for `--port`, and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn start(net: &Net, ports: &[&str], config: &str) -> Self {
        Self::start_with(net, ports, config, &[])
    }

    /// As [`Self::start`], with `more` arguments of `weft run`.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn start_with(net: &Net, ports: &[&str], config: &str, more: &[&str]) -> Self {
        Self::start_by(net, "env", ports, config, more)
    }

    /// As [`Self::start_with`]; `wrapper` is a command, with arguments, that runs another one.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn start_by(net: &Net, wrapper: &str, ports: &[&str], config: &str, more: &[&str]) -> Self {
        let folder = Self::folder(net);
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let socket = folder.join("socket/mgmt.sock");
        let mut switch = Self { child: None, socket, folder };
        switch.configure(config);
        let (wrapper, arguments) = wrapper.split_once(' ').unwrap_or((wrapper, ""));
        // the wrapper runs inside the namespace, in front of `weft`
        let mut command = net.at("sw", wrapper, arguments);
        command
            .arg(weft())
            .args(["run", "--json", "-c"])
            .arg(switch.folder.join("weft.toml"))
            .args(more);
        for port in ports {
            command.args(["--port", port]);
        }
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        switch.child = Some(child.expect("nsenter runs"));
        until(LONG, "weft run answers", || {
            if switch.ask("show ports").is_some() {
                return Some(());
            }
            let child = switch.child.as_mut().expect("it was just started");
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                let mut said = String::new();
                if let Some(err) = &mut child.stderr {
                    drop(err.read_to_string(&mut said));
                }
                panic!("weft run ended: {said}");
            }
            None
        });
        switch
    }

    /// Writes the configuration, which the switch reads when it starts and when it reloads.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn configure(&self, config: &str) {
        let mut text = config.to_owned();
        let socket = self.socket.display().to_string();
        writeln!(text, "\n[run]\nsocket = {socket:?}").expect("to memory");
        std::fs::write(self.folder.join("weft.toml"), text).expect("the folder takes files");
    }

    /// The switch's folder, which is removed with it.
    #[must_use]
    pub fn folder(net: &Net) -> PathBuf {
        std::env::temp_dir().join(net.name("run"))
    }

    /// Asks the running switch; `None` when it refuses.
    ///
    /// # Panics
    /// When `weft` cannot be run.
    #[must_use]
    pub fn ask(&self, command: &str) -> Option<String> {
        let asked = Command::new(weft())
            .args(command.split_whitespace())
            .arg("--socket")
            .arg(&self.socket)
            .output()
            .expect("weft runs");
        asked.status.success().then(|| text(&asked.stdout))
    }

    /// Table of `weft show WHAT --json`. Asks again while the switch refuses, as a worker that a
    /// busy machine keeps waiting is away for a time.
    ///
    /// # Panics
    /// The switch does not answer, or not in JSON.
    #[must_use]
    pub fn show(&self, what: &str) -> Value {
        let said = until(LONG, format_args!("an answer to weft show {what}"), || {
            self.ask(&format!("show {what} --json"))
        });
        let mut shown: Value = serde_json::from_str(&said).expect("JSON");
        shown.get_mut(what).map(Value::take).unwrap_or(shown)
    }

    /// Process id of the switch.
    ///
    /// # Panics
    /// Never: it runs until it is stopped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs until it is stopped").id()
    }

    /// Stops the switch as a user would, and returns its final counters.
    ///
    /// # Panics
    /// It does not end with success, or its counters are not JSON.
    #[must_use]
    pub fn stop(mut self) -> Value {
        let child = self.child.take().expect("it runs until it is stopped");
        let pid = child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(told.is_ok_and(|status| status.success()), "kill -TERM {pid}");
        let ended = child.wait_with_output().expect("the child is ours");
        let said = text(&ended.stderr);
        let last = said.lines().next_back().unwrap_or_default();
        assert!(ended.status.success(), "weft run: {}, {last:?}; before: {said}", ended.status);
        serde_json::from_slice(&ended.stdout).expect("final counters as JSON")
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
        drop(std::fs::remove_dir_all(&self.folder));
    }
}
