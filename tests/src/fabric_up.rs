//! Whole fabrics as processes in a namespace, for tests: `weft fabric up --processes`.
//!
//! [`Up::start`] takes a figure. [`Up::ask`] asks a part, [`Up::fm`] the manager, [`Up::show`] a
//! switch; [`Up::kill`] and [`Up::run`] end parts and start them again.
//!
//! Source: docs/fabric.md.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use weft_base::wait::{LONG, try_until};
use weft_lab::fabric::proc_stat::has_exited;
use weft_lab::fabric::processes::manager_socket;

use crate::netns::{Net, Switch, weft};

/// `weft fabric up --processes` in a namespace; ended when it is dropped.
pub struct Up {
    child: Child,
    folder: PathBuf,
    /// Parts that [`Self::run`] started again.
    again: Vec<Child>,
    net: Net,
}

impl Up {
    /// Brings a figure of `pcaps/fabric` up. `None` without the rights for namespaces, which it
    /// reports with the test's name.
    ///
    /// # Panics
    /// The fabric does not come up.
    #[must_use]
    pub fn start(test: &str, figure: &str) -> Option<Self> {
        let file = format!("{}/../pcaps/fabric/fig-{figure}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).expect("the figure is there");
        Self::start_text(test, &text, &[])
    }

    /// Brings a topology up, with `more` arguments.
    ///
    /// # Panics
    /// The fabric does not come up.
    #[must_use]
    pub fn start_text(test: &str, text: &str, more: &[&str]) -> Option<Self> {
        let net = Net::new(test)?;
        let folder = Switch::folder(&net);
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let file = folder.join("topology.toml");
        std::fs::write(&file, text).expect("the folder takes files");
        let child = launch(&net, &folder, more);
        let mut up = Self { child, folder, again: Vec::new(), net };
        up.is_up(test);
        Some(up)
    }

    /// Waits until it is up.
    fn is_up(&mut self, test: &str) {
        let said = self.child.stdout.take().expect("it is piped");
        // standard output that ends without this line: the fabric has failed, and standard error
        // says why
        if !BufReader::new(said)
            .lines()
            .map_while(Result::ok)
            .any(|l| l.starts_with("fabric is up"))
        {
            panic!("{test}: {}\n{}", self.said(), self.logs());
        }
    }

    /// Kills `weft fabric up`, waits until none of its processes is left, and brings the fabric up
    /// again.
    ///
    /// # Panics
    /// A process outlives it, or the fabric does not come up again.
    pub fn kill_all_and_start(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        let parts = std::fs::read_dir(&self.folder).expect("the folder is there").flatten();
        let pids = parts.filter_map(|part| std::fs::read_to_string(part.path().join("pid")).ok());
        let pids: Vec<u32> = pids.map(|pid| pid.trim().parse().expect("a pid")).collect();
        assert!(!pids.is_empty(), "parts have processes");
        // parts notice the loss of their parent by themselves
        self.until("no process outlives it", |_| {
            pids.iter().all(|pid| has_exited(*pid)).then_some(())
        });
        self.child = launch(&self.net, &self.folder, &[]);
        self.is_up("again");
    }

    /// Folder of the parts' files and sockets.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The namespaces of the fabric.
    #[must_use]
    pub const fn net(&self) -> &Net {
        &self.net
    }

    /// Standard error of `weft fabric up`, once that has ended.
    fn said(&mut self) -> String {
        let mut said = String::new();
        if let Some(err) = &mut self.child.stderr {
            drop(err.read_to_string(&mut said));
        }
        said
    }

    /// Exit code and answer of a part.
    ///
    /// # Panics
    /// `weft` cannot be run.
    #[must_use]
    pub fn ask(&self, name: &str, arguments: &str) -> (i32, Value) {
        let socket = self.folder.join(name).join("endpoint.sock");
        let mut command = Command::new(weft());
        command.args(["endpoint", "ctl", "--json"]).arg(socket);
        answer(&command.args(arguments.split_whitespace()).output().expect("weft runs"))
    }

    /// Answer of a part that must not refuse.
    ///
    /// # Panics
    /// The part refuses.
    #[expect(clippy::must_use_candidate, reason = "most are asked for what they do")]
    pub fn well(&self, name: &str, arguments: &str) -> Value {
        let (code, answer) = self.ask(name, arguments);
        assert_eq!(code, 0, "{name} {arguments}: {answer}\n{}", self.logs());
        answer
    }

    /// Exit code and answer of the fabric manager.
    ///
    /// # Panics
    /// `weft` cannot be run.
    #[must_use]
    pub fn ask_fm(&self, arguments: &str) -> (i32, Value) {
        let mut command = Command::new(weft());
        command.arg("fm").args(arguments.split_whitespace()).arg("--json").arg("--socket");
        let socket = manager_socket(&self.folder);
        answer(&command.arg(socket).output().expect("weft runs"))
    }

    /// Answer of the fabric manager, which must not refuse.
    ///
    /// # Panics
    /// The manager refuses.
    #[expect(clippy::must_use_candidate, reason = "most are asked for what they do")]
    pub fn fm(&self, arguments: &str) -> Value {
        let (code, answer) = self.ask_fm(arguments);
        assert_eq!(code, 0, "fm {arguments}: {answer}\n{}", self.logs());
        answer
    }

    /// Table that `weft show WHAT` prints of a switch.
    ///
    /// # Panics
    /// The switch does not answer.
    #[must_use]
    pub fn show(&self, switch: &str, what: &str) -> Value {
        let mut command = Command::new(weft());
        command.args(["show", what, "--json", "--socket"]);
        let socket = self.folder.join(switch).join("mgmt.sock");
        let (code, mut shown) = answer(&command.arg(socket).output().expect("weft runs"));
        assert_eq!(code, 0, "show {what} of {switch}: {shown}\n{}", self.logs());
        shown.get_mut(what).map(Value::take).unwrap_or(shown)
    }

    /// Places and Device IDs of the functions that a host has found.
    ///
    /// # Panics
    /// The host does not answer.
    #[must_use]
    pub fn functions(&self, host: &str) -> Vec<(String, String)> {
        let answer = self.well(host, "tree");
        let text = answer.pointer("/tree/text").and_then(Value::as_str).expect("a text");
        let lines = text.lines().filter(|line| line.as_bytes().get(2) == Some(&b':'));
        let parts = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.nth(1)?.to_owned()))
        });
        parts.collect()
    }

    /// Waits until a host has found these functions.
    ///
    /// # Panics
    /// It has not for a long time; the message has the tree that it has found.
    pub fn sees(&self, host: &str, functions: &[(String, String)]) {
        if try_until(2 * LONG, || (self.functions(host) == functions).then_some(())).is_none() {
            let answer = self.well(host, "tree");
            let text = answer.pointer("/tree/text").and_then(Value::as_str).unwrap_or_default();
            panic!("{host} does not see {functions:?}:\n{text}\n{}", self.logs());
        }
    }

    /// Kills the process of a part, which cannot prepare for it.
    ///
    /// # Panics
    /// It has no process.
    pub fn kill(&self, name: &str) {
        let pid = std::fs::read_to_string(self.folder.join(name).join("pid")).expect("a pid");
        let killed = Command::new("kill").args(["-KILL", pid.trim()]).status();
        assert!(killed.is_ok_and(|status| status.success()), "kill -KILL {name}");
    }

    /// Starts a part again with its own script.
    ///
    /// # Panics
    /// There is no shell.
    pub fn run(&mut self, name: &str) {
        let mut command = self.net.at("sw", "sh", "");
        let child = command.arg(self.folder.join(name).join("run")).stdout(Stdio::null()).spawn();
        self.again.push(child.expect("nsenter runs"));
    }

    /// Starts a part that was killed, until it answers: right after a kill the kernel may still
    /// refuse its interface to others.
    ///
    /// # Panics
    /// As [`Self::run`].
    pub fn run_again(&mut self, name: &str) {
        let mut is_there = false;
        while !is_there {
            self.run(name);
            let asked = || (self.ask(name, "status").0 == 0).then_some(());
            is_there = try_until(LONG / 10, asked).is_some();
        }
    }

    /// Makes hosts map the memory that they have been granted, as their software does.
    ///
    /// # Errors
    /// `weft fabric map` fails; its standard error.
    ///
    /// # Panics
    /// `weft` cannot be run.
    pub fn map(&self) -> Result<(), String> {
        let mut command = Command::new(weft());
        command.args(["fabric", "map"]).arg(self.folder.join("topology.toml"));
        let done = command.arg("--dir").arg(&self.folder).output().expect("weft runs");
        let said = || String::from_utf8_lossy(&done.stderr).into_owned();
        if done.status.success() { Ok(()) } else { Err(said()) }
    }

    /// Takes an interface up or down.
    pub fn link(&self, device: &str, up: bool) {
        self.net.ip("sw", &format!("link set {device} {}", if up { "up" } else { "down" }));
    }

    /// Interfaces at the first switch of all links to the second.
    ///
    /// # Panics
    /// A switch has no configuration.
    #[must_use]
    pub fn links(&self, first: &str, second: &str) -> Vec<String> {
        let devices = |switch: &str| -> Vec<String> {
            let file = self.folder.join(switch).join("switch.toml");
            let text = std::fs::read_to_string(file).expect("a file");
            let lines = text.lines().filter_map(|line| line.strip_prefix("device = \""));
            lines.map(|line| line.trim_end_matches('"').to_owned()).collect()
        };
        // Both ends of a wire have its number, and a letter.
        let wire = |device: &String| device.trim_end_matches(['a', 'b']).to_owned();
        let far: Vec<String> = devices(second).iter().map(wire).collect();
        devices(first).into_iter().filter(|device| far.contains(&wire(device))).collect()
    }

    /// Names of the switches.
    ///
    /// # Panics
    /// The folder cannot be read.
    #[must_use]
    pub fn switches(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).expect("a folder").flatten();
        let is_switch = |folder: &PathBuf| folder.join("switch.toml").exists();
        let found = entries.map(|entry| entry.path()).filter(is_switch);
        let name = |folder: PathBuf| Some(folder.file_name()?.to_str()?.to_owned());
        let mut names: Vec<String> = found.filter_map(name).collect();
        names.sort_unstable();
        names
    }

    /// Table that `weft show WHAT` prints of a switch, or `None` if the switch does not answer.
    #[must_use]
    pub fn ask_switch(&self, switch: &str, what: &str) -> Option<Value> {
        let mut command = Command::new(weft());
        command.args(["show", what, "--json", "--socket"]);
        let socket = self.folder.join(switch).join("mgmt.sock");
        let (code, mut shown) = answer(&command.arg(socket).output().ok()?);
        (code == 0).then(|| shown.get_mut(what).map(Value::take).unwrap_or(shown))
    }

    /// The wire of a part, found by its interface in `run`, the part's script: switch, port, and
    /// the interfaces at both.
    #[must_use]
    pub fn wire_of(&self, run: &str) -> Option<(String, String, String, String)> {
        for switch in self.switches() {
            let file = self.folder.join(&switch).join("switch.toml");
            let text = std::fs::read_to_string(file).ok()?;
            let mut port = String::new();
            for line in text.lines() {
                let value = |key: &str| {
                    Some(line.strip_prefix(key)?.trim_start_matches(" = ").trim_matches('"'))
                };
                if let Some(name) = value("name") {
                    name.clone_into(&mut port);
                }
                let Some(near) = value("device") else { continue };
                let far = match near.strip_suffix('a') {
                    Some(wire) => format!("{wire}b"),
                    None => format!("{}a", near.trim_end_matches('b')),
                };
                // names end at any other character: `w1` must not be found in `w12`
                let parts = |c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_'));
                if run.split(parts).any(|word| word == far) {
                    return Some((switch, port, near.to_owned(), far));
                }
            }
        }
        None
    }

    /// Waits until `look` finds something.
    ///
    /// # Panics
    /// It has found nothing for a long time.
    pub fn until<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let found = try_until(2 * LONG, || look(self));
        found.unwrap_or_else(|| {
            let told = ["status", "events"].map(|of| self.ask_fm(of).1.to_string());
            panic!("{what}: not in time\n{}\n{}", told.join("\n"), self.logs())
        })
    }

    /// Last lines of every part's log.
    #[must_use]
    pub fn logs(&self) -> String {
        logs(&self.folder)
    }

    /// Ends the fabric as a user would.
    ///
    /// # Panics
    /// It does not end with success.
    pub fn stop(mut self) {
        // the fabric does not know parts that a test started, and would not end them
        end(&mut self.again);
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(told.is_ok_and(|status| status.success()), "kill -TERM {pid}");
        let said = self.said();
        assert!(self.child.wait().is_ok_and(|status| status.success()), "{said}");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        end(&mut self.again);
        if let Ok(None) = self.child.try_wait() {
            let pid = self.child.id().to_string();
            drop(Command::new("kill").args(["-TERM", &pid]).status());
            drop(self.child.wait());
        }
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// Starts `weft fabric up --processes` of `topology.toml` in `folder`.
fn launch(net: &Net, folder: &Path, more: &[&str]) -> Child {
    let mut command = net.at("sw", "env", "");
    command.arg(weft()).args(["fabric", "up", "--processes"]).arg(folder.join("topology.toml"));
    command.arg("--dir").arg(folder).args(more);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    child.expect("nsenter runs")
}

fn end(children: &mut Vec<Child>) {
    for mut child in children.drain(..) {
        drop(child.kill());
        drop(child.wait());
    }
}

fn answer(done: &Output) -> (i32, Value) {
    let said = String::from_utf8_lossy(&done.stderr);
    let answer = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| Value::from(said));
    (done.status.code().unwrap_or(-1), answer)
}

/// Last lines of every part's log.
fn logs(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path().join("log")).unwrap_or_default();
        // the last lines only: they say why a part ended
        let last: Vec<&str> = text.lines().rev().take(5).collect();
        all += &[entry.file_name().to_string_lossy().as_ref(), &last.join(" | "), "\n"].join(": ");
    }
    all
}
