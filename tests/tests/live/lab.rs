//! Labs: a switch that waits for its interfaces, as in a container; two switches on two machines, over VXLAN.
//!
//! `weft run` in namespaces, to which interfaces are added while it waits; hosts that ping each other.
//!
//! Units: interfaces, pings.
//! Source: docs/lab.md; ip-link(8) `vxlan`; RFC 7348.
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;
use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch, weft};
use weft_tests::talk::{answers, ping};

/// What containers get.
const PATTERN: &str = "eth[1-9]*";
/// Pings of which every one must come back.
const PINGS: u64 = 20;

/// A `weft run` in any namespace, which may wait before it is up; it ends with its test.
struct Run {
    child: Child,
    err: BufReader<ChildStderr>,
    socket: PathBuf,
}

impl Run {
    /// Starts one; `more` changes the command.
    fn start(net: &Net, host: &str, more: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let socket = Switch::folder(net).join(host).join("mgmt.sock");
        let mut command = net.at(host, weft().to_str().unwrap(), "run --json");
        command.arg("--set").arg(format!("run.socket={}", socket.display()));
        command.env_remove("CLAB_INTFS").env_remove("NOTIFY_SOCKET");
        more(&mut command).stdout(Stdio::piped()).stderr(Stdio::piped());
        std::fs::create_dir_all(Switch::folder(net)).unwrap();
        let mut child = command.spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        Self { child, err, socket }
    }

    /// Reads what it says until a line has `text`; all of it.
    fn says(&mut self, text: &str) -> String {
        let mut said = String::new();
        while !said.lines().last().is_some_and(|line| line.contains(text)) {
            assert_ne!(self.err.read_line(&mut said).unwrap(), 0, "no {text:?}: {said}");
        }
        said
    }

    /// Names and devices of its ports.
    fn ports(&self) -> Vec<(String, String)> {
        let mut ask = Command::new(weft());
        ask.args(["show", "ports", "--json", "--socket"]).arg(&self.socket);
        let answer: Value = serde_json::from_slice(&ask.output().unwrap().stdout).unwrap();
        let text = |port: &Value, key: &str| port.get(key).unwrap().as_str().unwrap().to_owned();
        let ports = answer.get("ports").unwrap().as_array().unwrap();
        ports.iter().map(|port| (text(port, "name"), text(port, "device"))).collect()
    }

    fn signal(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Waits for its end: exit code and the rest of what it says.
    fn ends(&mut self) -> (Option<i32>, String) {
        let status = until(LONG, "its end", || self.child.try_wait().unwrap());
        let mut said = String::new();
        self.err.read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// As containerlab starts a container: the management first, links one after the other while the switch waits.
#[test]
fn interfaces_that_come_one_after_the_other_become_ports() {
    let test = "interfaces_that_come_one_after_the_other_become_ports";
    let Some(mut net) = Net::new(test) else { return };
    net.add_joined("mgmt", "eth0", "10.79.0.9/24");
    // Names of others: what a shell or a terminal would read otherwise, and what no pattern matches.
    net.add_host("odd");
    for (index, name) in
        ["eth1\"$(id)", "eth2*", "eth3\u{1b}[31m", "-eth4", "weth5"].iter().enumerate()
    {
        let far = net.name("odd");
        net.ip("sw", &format!("link add name {name} type veth peer name o{index} netns {far}"));
    }
    let mut run = Run::start(&net, "sw", |c| c.args(["--ports", PATTERN]).env("CLAB_INTFS", "3"));
    run.says("0 of 3 interfaces that match \"eth[1-9]*\" are there");
    net.add_joined("h10", "eth10", "10.79.0.10/24");
    run.says("1 of 3 ");
    net.add_joined("h2", "eth2", "10.79.0.2/24");
    run.says("2 of 3 ");
    net.add_joined("h1", "eth1", "10.79.0.1/24");
    let said = run.says("is up");
    assert!(said.contains("\"eth1\\\"$(id)\" is left out"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
    let want = ["eth1", "eth2", "eth10"].map(|name| (name.to_owned(), name.to_owned()));
    assert_eq!(run.ports(), want);
    assert_eq!(answers(&net, "h1", "10.79.0.10", PINGS), PINGS);
    assert_eq!(answers(&net, "h2", "10.79.0.1", PINGS), PINGS);
    assert_eq!(ping(&net, "h1", "10.79.0.9", 1), 0, "eth0 is the container's own");
    run.signal();
    assert_eq!(run.ends().0, Some(0));
}

#[test]
fn too_few_interfaces_are_an_error_that_counts_them_and_a_signal_ends_the_wait() {
    let test = "too_few_interfaces_are_an_error_that_counts_them_and_a_signal_ends_the_wait";
    let Some(mut net) = Net::new(test) else { return };
    let start = |net: &Net, more: &[&str], count: Option<&str>| {
        Run::start(net, "sw", |command| {
            command.args(["--ports", PATTERN]).args(more);
            command.envs(count.map(|count| ("CLAB_INTFS", count)))
        })
    };
    let (code, said) = start(&net, &[], None).ends();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("no interface matches \"eth[1-9]*\"; there is lo"), "{said}");
    let mut waiting = start(&net, &[], Some("2"));
    waiting.says("0 of 2 ");
    net.add_joined("h1", "eth1", "10.79.0.1/24");
    waiting.says("1 of 2 ");
    waiting.signal();
    assert_eq!(waiting.ends().0, Some(0), "a signal ends the wait");
    let few = "1 of 3 interfaces that match \"eth[1-9]*\" came within 0 s: eth1";
    for (more, count) in [
        (&["--wait-limit", "0"][..], Some("3")),
        (&["--wait-limit", "0", "--wait-ports", "3"][..], Some("1")),
    ] {
        let (code, said) = start(&net, more, count).ends();
        assert!(code == Some(3) && said.contains(few), "{code:?} {said}");
    }
    let (code, said) = start(&net, &[], Some("a lot")).ends();
    assert!(code == Some(3) && said.contains("CLAB_INTFS"), "{code:?} {said}");
}

/// Two machines, each with a host and a switch; what is between the switches is a VXLAN over their network.
#[test]
fn two_switches_on_two_machines_are_one_network_over_vxlan() {
    let test = "two_switches_on_two_machines_are_one_network_over_vxlan";
    let Some(mut net) = Net::new(test) else { return };
    for machine in ["m1", "m2"] {
        net.add_host(machine);
    }
    let m2 = net.name("m2");
    net.ip("m1", &format!("link add net0 type veth peer name net0 netns {m2}"));
    let mut runs = Vec::new();
    for (own, far) in [(1, 2), (2, 1)] {
        let (machine, host) = (format!("m{own}"), format!("h{own}"));
        net.ip(&machine, &format!("addr add 192.0.2.{own}/24 dev net0"));
        net.ip(&machine, "link set net0 mtu 1600 up");
        let vxlan = "type vxlan id 42 dstport 4789 dev net0";
        net.ip(&machine, &format!("link add vx0 {vxlan} local 192.0.2.{own} remote 192.0.2.{far}"));
        net.ip(&machine, "link set vx0 mtu 1500 up");
        net.add_host(&host);
        let there = net.name(&host);
        net.ip(&machine, &format!("link add p0 type veth peer name eth0 netns {there}"));
        net.ip(&machine, "link set p0 up");
        net.address(&host, &format!("10.80.0.{own}/24"));
        let mut run = Run::start(&net, &machine, |command| {
            command.args(["--port", "host=p0", "--port", "far=af_packet:vx0"])
        });
        run.says("is up");
        runs.push(run);
    }
    for (from, to) in [("h1", "10.80.0.2"), ("h2", "10.80.0.1")] {
        assert_eq!(answers(&net, from, to, PINGS), PINGS, "{from}");
        let whole = net.run(from, "ping", &format!("-q -c 3 -i 0.01 -W 2 -M do -s 1472 {to}"));
        assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stdout));
    }
    for mut run in runs {
        run.signal();
        assert_eq!(run.ends().0, Some(0));
    }
}
