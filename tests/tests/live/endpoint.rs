//! A CXL host and a device as two processes on a veth pair, steered over their control sockets.
//!
//! `weft endpoint host` and `weft endpoint device` in two namespaces; `weft endpoint ctl` asks.
//!
//! Units: bytes.
//! Source: docs/endpoint.md; docs/spec/wire-formats.md §3.7a.
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use weft_base::wait::{LONG, until};
use weft_tests::netns::{Net, Switch, weft};

/// Where a host's memory begins.
const RAM: u64 = 0x10_0000;
const LEN: u64 = 64 << 10;

/// A process of `weft endpoint`; ended when it is dropped.
pub struct Endpoint {
    child: Option<Child>,
    socket: PathBuf,
}

impl Endpoint {
    pub fn start(net: &Net, at: &str, arguments: &str, socket: PathBuf) -> Self {
        let mut command = net.at(at, "env", "");
        command.arg(weft()).arg("endpoint").args(arguments.split_whitespace());
        command.arg("--socket").arg(&socket).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut endpoint = Self { child: Some(command.spawn().unwrap()), socket };
        until(LONG, format_args!("weft endpoint {arguments} answers"), || {
            if endpoint.ask("status").0 == 0 {
                return Some(());
            }
            let child = endpoint.child.as_mut().unwrap();
            if child.try_wait().unwrap().is_some() {
                let mut said = String::new();
                child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
                panic!("weft endpoint {arguments}: {said}");
            }
            None
        });
        endpoint
    }

    /// Exit code, answer and what stands on standard error.
    pub fn ask(&self, arguments: &str) -> (i32, Value, String) {
        let mut command = Command::new(weft());
        command.args(["endpoint", "ctl", "--json"]).arg(&self.socket);
        let done = command.args(arguments.split_whitespace()).output().unwrap();
        let answer = serde_json::from_slice(&done.stdout).unwrap_or_default();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code().unwrap(), answer, said)
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The answer to what must go well.
    fn well(&self, arguments: &str) -> Value {
        let (code, answer, said) = self.ask(arguments);
        assert_eq!(code, 0, "{arguments}: {answer} {said}");
        answer
    }

    /// Ends it as a user would.
    pub fn stop(mut self) {
        let child = self.child.take().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{said}");
        assert!(!self.socket.exists(), "it leaves its socket");
        assert!(!Path::new("/proc").join(&pid).exists(), "it leaves its process");
        assert_eq!(said, "");
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A folder that goes away with it.
pub struct Folder(pub PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_host_and_a_device_on_a_veth_pair() {
    let Some(mut net) = Net::new("a_host_and_a_device_on_a_veth_pair") else { return };
    net.add_wires(1);
    let folder = Folder(Switch::folder(&net));
    std::fs::create_dir_all(&folder.0).unwrap();
    let socket = |name: &str| folder.0.join("ctl").join(name);
    let host = "host --port s0 --hpa-memory 64MiB --fabric-window 0x10000000000:1GiB";
    let host = Endpoint::start(&net, "sw", host, socket("host.sock"));
    let device = "device --port f0 --bar 0=pref64:1MiB --bar 2=mem32:64KiB";
    let device = Endpoint::start(&net, "far", device, socket("device.sock"));

    let found = host.well("enumerate");
    let node = &found["tree"]["tree"]["nodes"][0]["below"]["nodes"][0];
    assert_eq!((node["bdf"].as_str(), node["device"].as_u64()), (Some("01:00.0"), Some(0x0D01)));
    let bar = node["bars"][0]["address"].as_u64().unwrap();

    // Written by the host, read back, and there in the device.
    let report = host.well(&format!("write {bar} {LEN} --seed=5 --check"));
    let report = &report["transfer"];
    assert_eq!((report["written"].as_u64(), report["read"].as_u64()), (Some(LEN), Some(LEN)));
    device.well(&format!("peek 0 {LEN} --seed=5 --bar 0"));
    let (code, answer, _) = device.ask(&format!("peek 0 {LEN} --seed=6 --bar 0"));
    assert!(code == 1 && answer["transfer"]["mismatched"].as_u64() > Some(LEN / 2), "{answer}");
    host.well(&format!("write {bar} {LEN} --seed=6 --via uio --check"));
    device.well(&format!("peek 0 {LEN} --seed=6 --bar 0"));

    // DMA, both ways, by memory requests and by UIO as far as a host takes it.
    device.well(&format!("dma write {RAM} {LEN} --seed=7 --via plain --check"));
    host.well(&format!("peek {RAM} {LEN} --seed=7"));
    host.well(&format!("store {RAM} {LEN} --seed=8"));
    device.well(&format!("dma read {RAM} {LEN} --seed=8 --via plain"));

    // What nobody has is refused, and told.
    let (code, answer, said) = host.ask(&format!("read {} 8192", bar + (1 << 20)));
    assert_eq!(code, 1, "{answer} {said}");
    assert_eq!(answer["transfer"]["failures"]["UR"].as_u64(), Some(2), "{answer}");
    let (code, _, said) = host.ask("dma read 0 4");
    assert!(code == 4 && said.contains("a host has no command"), "{code} {said}");

    // A load goes on while other commands are met.
    host.well(&format!("load start {} 20000 --seed=1", bar + 0x8_0000));
    host.well(&format!("write {bar} {LEN} --seed=9 --check"));
    until(LONG, "five rounds of the load", || {
        (host.well("load status")["load"]["done"].as_u64() >= Some(5)).then_some(())
    });
    let load = host.well("load stop");
    let load = &load["load"];
    assert!(load["done"].as_u64() >= Some(5), "{load}");
    assert_eq!(
        (load["failed"].as_u64(), load["mismatched"].as_u64()),
        (Some(0), Some(0)),
        "{load}"
    );

    let events = device.well("events");
    assert!(events["events"]["events"].as_array().is_some_and(|it| !it.is_empty()), "{events}");
    device.stop();
    host.stop();
}
