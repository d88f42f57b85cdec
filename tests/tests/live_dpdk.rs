//! `weft run` on DPDK's virtual devices, without huge pages: between kernel hosts, and between files.
//!
//! Hosts behind `net_tap`, `net_af_packet` and weft's own `af_packet`; captures in and out by
//! `net_pcap`; refusals as a user reads them.
//!
//! Units: frames, bit/s.
//! Source: docs/spec/pipeline.md §11.
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weft_base::wait::{LONG, until};
use weft_dataplane::port::capture::{CaptureFormat, CaptureReader, CaptureWriter, Record};
use weft_tests::netns::{Net, Switch, weft};
use weft_tests::talk::{answers, checksum_errors, ping, tcp};

const EAL: &str =
    "[dpdk]\neal_args = [\"--no-huge\", \"-m\", \"128\", \"--no-shconf\", \"--no-telemetry\"]\n";
/// Pings of which every one must come back.
const PINGS: u64 = 500;

fn sum(ledger: &Value, keys: &[&str]) -> u64 {
    keys.iter().map(|key| ledger[*key].as_u64().unwrap()).sum()
}

/// Every frame is accounted for.
fn check(ledger: &Value) {
    let (had, became) = (["rx", "copies"], ["tx", "dropped", "consumed", "queued"]);
    assert_eq!(sum(ledger, &had), sum(ledger, &became), "{ledger}");
}

#[test]
fn hosts_talk_through_taps_and_sockets_of_dpdk() {
    let Some(mut net) = Net::new("hosts_talk_through_taps_and_sockets_of_dpdk") else { return };
    net.add_joined("h1", "sw1", "10.79.0.1/24");
    net.add_joined("h2", "sw2", "10.79.0.2/24");
    // The kernel beside the switch is the third host; it is not to answer at the others' wires.
    net.ip("sw", "link set sw1 arp off");
    net.ip("sw", "link set sw2 arp off");
    let config = format!(
        "{EAL}[[port]]\nname = \"p1\"\nkind = \"dpdk\"\ndevice = \"net_af_packet0,iface=sw1,blocksz=102400,framesz=1600\"\n\
         [[port]]\nname = \"p2\"\ndevice = \"sw2\"\n\
         [[port]]\nname = \"p3\"\nkind = \"dpdk\"\ndevice = \"net_tap0,iface=dtap0\"\n"
    );
    // DPDK's driver of packet sockets has no room for super-frames.
    let off = net.run("h1", "ethtool", "-K eth0 tso off gso off");
    assert!(off.status.success(), "{off:?}");
    let switch = Switch::start(&net, &[], &config);
    net.ip("sw", "addr add 10.79.0.3/24 dev dtap0");
    let hosts = [("h1", "10.79.0.1"), ("h2", "10.79.0.2"), ("sw", "10.79.0.3")];
    for (from, to) in [(0, 2), (2, 1), (1, 0), (0, 1)] {
        // The first one waits for ARP, which asks again after a second: the kernel does not keep all that come meanwhile.
        let knows = || (ping(&net, hosts[from].0, hosts[to].1, 1) == 1).then_some(());
        until(LONG, "they know each other", knows);
        let came = answers(&net, hosts[from].0, hosts[to].1, PINGS);
        let (from, to) = (hosts[from].0, hosts[to].1);
        assert_eq!(came, PINGS, "{from} {to}: {}", switch.show("all"));
    }
    // From h1 and h2 checksums come partial, and leave by DPDK complete.
    for (from, to) in [(1, 0), (1, 2), (2, 0), (0, 1)] {
        let rate = tcp(&net, hosts[from].0, hosts[to].0, hosts[to].1, 1);
        println!("TCP {} to {}: {rate:.0} bit/s", hosts[from].0, hosts[to].0);
        assert!(rate > 1e6, "{} to {}: {rate} bit/s", hosts[from].0, hosts[to].0);
    }
    for (host, _) in hosts {
        assert_eq!(checksum_errors(&net, host), 0, "{host}");
    }
    let ledger = switch.stop();
    check(&ledger);
    assert!(sum(&ledger, &["copies"]) > 0, "ARP went to all");
    assert!(sum(&ledger, &["rx"]) > 8 * PINGS);
}

/// A folder that is gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-dpdk-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("s/mgmt.sock")
    }

    /// A configuration of `ports` (kind dpdk), written to a file.
    fn config(&self, head: &str, ports: &[String]) -> PathBuf {
        let socket = self.socket();
        let port = |(index, device): (usize, &String)| {
            format!("[[port]]\nname = \"p{index}\"\nkind = \"dpdk\"\ndevice = {device:?}\n")
        };
        let ports: String = ports.iter().enumerate().map(port).collect();
        let file = self.0.join("weft.toml");
        let run = format!("[run]\nsocket = \"{}\"\n", socket.display());
        std::fs::write(&file, [head, &run, &ports].concat()).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(path).unwrap();
    let (mut record, mut frames) = (Record::default(), Vec::new());
    while reader.read_into(&mut record).unwrap() {
        frames.push(record.data.clone());
    }
    frames
}

/// Runs a switch until its counters are so; the final ones.
fn run(folder: &Folder, config: &Path, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut command = Command::new(weft());
    command.args(["run", "--json", "-c"]).arg(config);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id().to_string();
    until(LONG, "counters as wanted", || {
        if child.try_wait().unwrap().is_some() {
            return Some(()); // what it said is told below
        }
        let mut ask = Command::new(weft());
        ask.args(["show", "conservation", "--json", "--socket"]).arg(folder.socket());
        let shown = serde_json::from_slice::<Value>(&ask.output().unwrap().stdout);
        shown.is_ok_and(|shown| shown.get("conservation").is_some_and(&is_so)).then_some(())
    });
    let _told = Command::new("kill").args(["-TERM", &id]).status().unwrap(); // unless it has ended
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn a_capture_goes_to_every_port_unchanged() {
    let folder = Folder::new("files");
    let frame = |index: usize| -> Vec<u8> {
        let len = [60, 61, 64, 128, 700, 1_514, 1_518][index % 7];
        // Two broadcasts, then one to a station that nobody has heard of: all three are flooded.
        let dst = if index % 3 < 2 { [0xFF; 6] } else { [2, 0, 0, 0, 9, 9] };
        let index = u16::try_from(index).unwrap().to_be_bytes();
        let head = [&dst[..], &[2, 0, 0, 1, index[0], index[1], 0x90, 0x00]].concat();
        let rest = (0..=u8::MAX).cycle().map(|at| index[1] ^ at);
        head.into_iter().chain(rest).take(len).collect()
    };
    let frames: Vec<Vec<u8>> = (0..4_000).map(frame).collect();
    let input = folder.0.join("in.pcap");
    let mut writer = CaptureWriter::create(&input, CaptureFormat::Pcap, 0).unwrap();
    for frame in &frames {
        writer.write(0, frame, None).unwrap();
    }
    writer.finish().unwrap();
    let outputs = [1, 2, 3].map(|index| folder.0.join(format!("out{index}.pcap")));
    let mut ports = vec![format!("net_pcap0,rx_pcap={}", input.display())];
    for (index, output) in outputs.iter().enumerate() {
        ports.push(format!("net_pcap{},tx_pcap={}", index + 1, output.display()));
    }
    let all = |counters: &Value| counters["tx"].as_u64() >= Some(12_000);
    let ledger = run(&folder, &folder.config(EAL, &ports), all);
    check(&ledger);
    assert_eq!(sum(&ledger, &["rx"]), 4_000);
    assert_eq!((sum(&ledger, &["copies"]), sum(&ledger, &["tx"])), (8_000, 12_000), "{ledger}");
    for output in &outputs {
        assert!(read(output) == frames, "{} is not what went in", output.display());
    }
}

#[test]
fn two_workers_forward_at_rate_between_generator_and_sink() {
    let folder = Folder::new("rate");
    let ports = ["net_null0,size=64", "net_null1,no-rx=1", "net_null2,no-rx=1"].map(str::to_owned);
    let config = folder.config(EAL, &ports);
    let text = std::fs::read_to_string(&config).unwrap().replace("[run]", "[run]\nworkers = 2");
    std::fs::write(&config, text).unwrap();
    let ledger = run(&folder, &config, |counters| counters["rx"].as_u64() > Some(100_000));
    check(&ledger);
}

#[test]
fn what_dpdk_refuses_is_said_and_nothing_else() {
    let folder = Folder::new("refused");
    let head = |args: &str| format!("[dpdk]\neal_args = [{args}]\n");
    let no_huge = "\"--no-huge\", \"--no-shconf\", \"--no-telemetry\"";
    #[rustfmt::skip] // columns: arguments, device, what is said
    let cases = [
        ("\"--frob\"", "net_null0", "start DPDK: weft: unrecognized option '--frob'"),
        ("\"--help\"", "net_null0", "start DPDK: argument \"--help\" cannot be used here"),
        ("\"--no-huge\", \"--vfio-intr\", \"none\"", "net_null0", "start DPDK: EAL: "),
        (no_huge, "net_nothing0", "port p0: net_nothing0: attach the device"),
        (no_huge, "net_af_xdp0,iface=lo", "port p0: net_af_xdp0,iface=lo: attach the device: use kind = \"af_xdp\""),
        (no_huge, "net_pcap0,rx_pcap=/nowhere/at.all", "port p0: net_pcap0,rx_pcap=/nowhere/at.all"),
    ];
    for (args, device, want) in cases {
        let config = folder.config(&head(args), &[device.to_owned()]);
        let mut command = Command::new("timeout"); // one that starts would run for ever
        command.arg("20").arg(weft()).args(["run", "-c"]).arg(config);
        let done: Output = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.contains(want), "{device} {args}: {said}");
        assert_eq!(said.lines().count(), 1, "{device} {args}: {said}");
        assert!(done.stdout.is_empty(), "{}", String::from_utf8_lossy(&done.stdout));
        assert_eq!(done.status.code(), Some(3), "{device} {args}");
    }
}
