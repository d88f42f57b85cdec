//! Endpoints connected by pipes, stepped in turn in one thread.

use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_rpc::Refused;

use super::command::{Access, Export, LoadReport, OwnRange, Status, TransferReport, Via};
use super::number::{Hex, Num};
use super::spec::{SpecError, over};
use super::*;

#[path = "ln/tests.rs"] // beside the module that it tests; it uses the helpers of this file
mod ln;
#[path = "turns_tests.rs"]
mod turns;

const FRAME_LEN_MAX: usize = 2_048;
const RAM: u64 = 0x10_0000;

/// Runners stepped in turn; each step takes a microsecond.
struct Net {
    now: Instant,
    runners: Vec<Runner>,
}

fn wire() -> (Box<dyn Port>, Box<dyn Port>) {
    let names = ["a".to_owned(), "b".to_owned()];
    let rate = LinkRate::gbps(100);
    let config =
        PipeConfig { names, depth: 512, rate, frame_len_max: FRAME_LEN_MAX, wakes_reader: false };
    let (a, b): (Pipe, Pipe) = pipe(config).unwrap();
    (Box::new(a), Box::new(b))
}

fn bufs() -> Bufs {
    Bufs::new(POOL.with(std::sync::Arc::clone), 64, 0)
}

thread_local! {
    static POOL: std::sync::Arc<Pool> = Pool::in_memory(16_384, FRAME_LEN_MAX).unwrap();
}

fn runner(endpoint: impl Endpoint + 'static, ports: Vec<Box<dyn Port>>) -> Runner {
    Runner::new(Box::new(endpoint), ports, bufs()).unwrap()
}

fn host_spec() -> HostSpec {
    HostSpec { fabric_window: Some("0x10000000000:1GiB".to_owned()), ..HostSpec::default() }
}

impl Net {
    fn new(runners: Vec<Runner>) -> Self {
        let mut net = Self { now: Instant::ZERO, runners };
        net.steps(4);
        net
    }

    /// A host and a device on one link.
    fn pair(host: &HostSpec, device: &DeviceSpec) -> Self {
        let (a, b) = wire();
        let (host, device) = (host.build(&[]).unwrap(), device.build(&[]).unwrap());
        Self::new(vec![runner(host, vec![a]), runner(device, vec![b])])
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.now += Span::from_us(1);
            for runner in &mut self.runners {
                runner.step(self.now).unwrap();
            }
        }
    }

    fn ask(&mut self, at: usize, command: &Command) -> Result<Answer, Refused> {
        // Commands and answers must survive JSON unchanged, because clients read and write them.
        let text = serde_json::to_string(command).unwrap();
        assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), *command, "{text}");
        let number = self.runners[at].begin(self.now, command);
        for _ in 0..200_000 {
            if let Some(answer) = self.runners[at].answer(number) {
                if let Ok(answer) = &answer {
                    let text = serde_json::to_string(answer).unwrap();
                    assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), *answer, "{text}");
                }
                return answer;
            }
            self.steps(1);
        }
        panic!("no answer to {command:?}");
    }

    fn refusal(&mut self, at: usize, command: &Command) -> String {
        self.ask(at, command).expect_err("it is refused").message
    }

    fn transfer(&mut self, at: usize, command: &Command) -> TransferReport {
        match self.ask(at, command) {
            Ok(Answer::Transfer(report)) => *report,
            other => panic!("{command:?}: {other:?}"),
        }
    }

    fn load(&mut self, at: usize, command: &Command) -> LoadReport {
        match self.ask(at, command) {
            Ok(Answer::Load(report)) => *report,
            other => panic!("{command:?}: {other:?}"),
        }
    }

    fn status(&mut self, at: usize) -> Status {
        match self.ask(at, &Command::Status {}) {
            Ok(Answer::Status(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Enumerates at a host, and returns the address of BAR 0 of each endpoint found.
    fn enumerate(&mut self, at: usize) -> Vec<u64> {
        let answer = self.ask(at, &Command::Enumerate { timeout_ms: 10_000 });
        let Ok(Answer::Tree { tree, text }) = answer else { panic!("{answer:?}") };
        assert_eq!(tree["problems"].as_array().unwrap().len(), 0, "{text}");
        let mut found = Vec::new();
        let mut left = vec![&tree["nodes"]];
        while let Some(nodes) = left.pop() {
            for node in nodes.as_array().into_iter().flatten() {
                if node["kind"] == "endpoint" {
                    found.push(node["bars"][0]["address"].as_u64().unwrap());
                }
                left.push(&node["below"]["nodes"]);
            }
        }
        found.sort_unstable();
        found
    }
}

fn seeded(addr: u64, len: u64, seed: u64) -> Access {
    let (addr, len, seed) = (Num(addr), Some(Num(len)), Some(seed));
    Access { addr, len, seed, timeout_ms: 30_000, ..Access::default() }
}

fn own(addr: u64, len: u64, seed: u64, bar: Option<u8>) -> OwnRange {
    OwnRange { addr: Num(addr), len: Some(Num(len)), seed: Some(seed), bar, ..OwnRange::default() }
}

#[test]
fn a_host_writes_a_device_and_reads_it_back() {
    for mode in ["flit", "non-flit"] {
        let mut host = host_spec();
        host.common.mode = Some(mode.to_owned());
        let mut device = DeviceSpec::default();
        device.common.mode = Some(mode.to_owned());
        let mut net = Net::pair(&host, &device);
        let [bar] = net.enumerate(0)[..] else { panic!("one device") };
        let len = (64 << 10) + 13;
        let check = Access { check: true, ..seeded(bar + 3, len, 7) };
        let report = net.transfer(0, &Command::Write(check));
        assert!(report.ok, "{mode} {report:?}");
        assert_eq!((report.written, report.read, report.mismatched), (len, len, 0));
        // The device has the bytes, and the bytes beside them are unchanged.
        assert!(net.transfer(1, &Command::Peek(own(3, len, 7, Some(0)))).ok);
        let beside = OwnRange { len: Some(Num(3)), bar: Some(0), ..OwnRange::default() };
        assert_eq!(net.transfer(1, &Command::Peek(beside)).data, Some(Hex(vec![0; 3])));
        // A comparison finds the byte that the device changes, and its address.
        let change = OwnRange {
            addr: Num(5_000),
            data: Some(Hex(vec![0x55])),
            bar: Some(0),
            ..OwnRange::default()
        };
        let was =
            net.transfer(0, &Command::Read(Access { seed: None, ..seeded(bar + 5_000, 1, 0) }));
        assert_ne!(was.data, Some(Hex(vec![0x55])), "the test changes something");
        assert!(net.transfer(1, &Command::Store(change)).ok);
        let report = net.transfer(0, &Command::Read(seeded(bar + 3, len, 7)));
        assert!(!report.ok);
        assert_eq!((report.mismatched, report.first_mismatch), (1, Some(bar + 5_000)));
        // Given data instead of a pattern.
        let data =
            Access { seed: None, len: None, data: Some(Hex(vec![1, 2, 3])), ..seeded(bar, 0, 0) };
        let report = net.transfer(0, &Command::Write(Access { check: true, ..data.clone() }));
        assert!(report.ok, "{report:?}");
        assert!(net.transfer(0, &Command::Read(data)).ok);
    }
}

#[test]
fn failures_are_counted_by_status_and_place() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    let [bar] = net.enumerate(0)[..] else { panic!("one device") };
    let size = 1 << 20;
    // Two pages within the BAR and two beyond it, by plain requests and by UIO.
    for via in [Via::Plain, Via::Uio] {
        for write in [false, true] {
            let access = Access { via, ..seeded(bar + size - 8_192, 16_384, 1) };
            let command = if write { Command::Write(access) } else { Command::Read(access) };
            let report = net.transfer(0, &command);
            assert!(!report.ok && !report.timed_out);
            assert_eq!(report.failures.get("UR"), Some(&2), "{via:?} {write} {report:?}");
            assert_eq!(report.first_failed, Some(bar + size), "{via:?} {write}");
            let moved = if write { report.written } else { report.read };
            assert_eq!(moved, 8_192, "{via:?} {write} {report:?}");
        }
    }
    // A read that fails in part shows no data, not even zeros.
    let plain = |at, len| Command::Read(Access { seed: None, ..seeded(at, len, 1) });
    let report = net.transfer(0, &plain(bar + size - 4_096, 8_192));
    assert_eq!((report.ok, report.read, report.data), (false, 4_096, None));
    let report = net.transfer(0, &plain(bar + size - 4_096, 4_096));
    assert_eq!(report.data.map(|data| data.0.len()), Some(4_096));
    // The fabric's window leads nowhere either.
    let report = net.transfer(0, &Command::Read(seeded(0x100_0000_0000, 64, 0)));
    assert_eq!(report.failures.get("UR"), Some(&1), "{report:?}");
    let counts = net.status(0).counts;
    assert!(counts["requester"]["sent"].as_u64().unwrap() > 0);
}

#[test]
fn a_device_reads_and_writes_the_hosts_memory() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    let dma = Access { via: Via::Plain, ..seeded(RAM + 0x1001, 20_000, 3) };
    let early = net.refusal(1, &Command::DmaWrite(dma.clone()));
    assert_eq!(early, "function 0 may not send requests", "software has not enabled it");
    net.enumerate(0);
    let report = net.transfer(1, &Command::DmaWrite(Access { check: true, ..dma.clone() }));
    assert!(report.ok, "{report:?}");
    assert!(net.transfer(0, &Command::Peek(own(RAM + 0x1001, 20_000, 3, None))).ok);
    assert!(!net.transfer(0, &Command::Peek(own(RAM + 0x1002, 20_000, 3, None))).ok);
    // The other way: the host's CPU stores, and the device reads.
    assert!(net.transfer(0, &Command::Store(own(RAM + 0x9000, 9_000, 4, None))).ok);
    let report = net.transfer(
        1,
        &Command::DmaRead(Access {
            addr: Num(RAM + 0x9000),
            len: Some(Num(9_000)),
            seed: Some(4),
            ..dma.clone()
        }),
    );
    assert!(report.ok, "{report:?}");
    let report = net.transfer(1, &Command::DmaRead(Access { addr: Num(0x1000), ..dma }));
    assert_eq!(report.failures.get("UR"), Some(&5), "{report:?}");
    // Enumeration has made the device bus master, so it may send interrupts if software enables them.
    let status = net.status(1);
    assert_eq!(status.detail["functions"][0]["master"], true, "{status:?}");
}

/// A host, an HBR switch and two devices; the first device accesses the BAR of the second.
#[test]
fn two_devices_behind_a_switch_reach_each_other() {
    let (root, top) = wire();
    let (left, first) = wire();
    let (right, second) = wire();
    let device = |id: u64| DeviceSpec { device_id: Some(Num(id)), ..DeviceSpec::default() };
    let mut net = Net::new(vec![
        runner(host_spec().build(&[]).unwrap(), vec![root]),
        runner(HbrSpec::default().build(3, &[]).unwrap(), vec![top, left, right]),
        runner(device(0xD01).build(&[]).unwrap(), vec![first]),
        runner(device(0xD02).build(&[]).unwrap(), vec![second]),
    ]);
    let [one, two] = net.enumerate(0)[..] else { panic!("two devices") };
    for (seed, bar) in [(1, one), (2, two)] {
        let report =
            net.transfer(0, &Command::Write(Access { check: true, ..seeded(bar, 10_000, seed) }));
        assert!(report.ok, "{report:?}");
    }
    let own_bar = |net: &mut Net, at: usize, seed: u64| {
        net.transfer(at, &Command::Peek(own(0, 10_000, seed, Some(0)))).ok
    };
    let first = if own_bar(&mut net, 2, 1) { (2, 3) } else { (3, 2) };
    assert!(own_bar(&mut net, first.0, 1) && own_bar(&mut net, first.1, 2));
    // UIO between the devices does not pass the host.
    let before = net.status(0).counts["host"]["requests"].clone();
    let report =
        net.transfer(first.0, &Command::DmaWrite(Access { check: true, ..seeded(two, 30_000, 9) }));
    assert!(report.ok, "{report:?}");
    assert!(net.transfer(first.1, &Command::Peek(own(0, 30_000, 9, Some(0)))).ok);
    assert_eq!(net.status(0).counts["host"]["requests"], before);
    let status = net.status(1);
    assert_eq!((status.kind.as_str(), status.links.len()), ("hbr", 3));
    assert!(status.counts["switch"]["passed"].as_u64().unwrap() > 100, "{status:?}");
    assert_eq!(net.ask(0, &Command::TurnOff { timeout_ms: 1_000 }), Ok(Answer::Done));
}

/// HDM below an HBR switch cannot be accessed before the host has enumerated it. After that, the tree shows its
/// address.
#[test]
fn memory_that_a_host_manages_is_there_once_it_is_enumerated() {
    let [above, left] = [wire(), wire()];
    let device = DeviceSpec { hdm: Some("512MiB".to_owned()), ..DeviceSpec::default() };
    let mut net = Net::new(vec![
        runner(host_spec().build(&[]).unwrap(), vec![above.0]),
        runner(HbrSpec::default().build(2, &[]).unwrap(), vec![above.1, left.0]),
        runner(device.build(&[]).unwrap(), vec![left.1]),
    ]);
    let at = 0x80_0000_0000;
    let by_mem = |addr, len| Access { via: Via::CxlMem, ..seeded(addr, len, 3) };
    let before = net.transfer(0, &Command::Read(by_mem(at, 64)));
    assert!(!before.ok && before.failures.contains_key("no_memory"), "{before:?}");
    net.enumerate(0);
    let Ok(Answer::Tree { tree, text }) = net.ask(0, &Command::Tree {}) else { panic!() };
    for shown in ["HDM 8000000000-801fffffff port 1 committed", "dpa 0 committed"] {
        assert!(text.contains(shown), "{text}");
    }
    let port = tree.pointer("/nodes/0/below/nodes/0/hdm/0").unwrap();
    let want = serde_json::json!({
        "base": at, "size": 512 << 20, "dpa": null, "port": 1, "committed": true, "reached": null
    });
    assert_eq!(*port, want, "{tree}");
    for (addr, len) in [(at, 10_000), (at + (512 << 20) - 64, 64)] {
        assert!(net.transfer(0, &Command::Write(by_mem(addr, len))).ok);
        let read = net.transfer(0, &Command::Read(by_mem(addr, len)));
        assert!(read.ok && read.mismatched == 0, "{read:?}");
        assert!(net.transfer(2, &Command::Peek(own(addr - at, len, 3, None))).ok);
    }
    let behind = net.transfer(0, &Command::Read(by_mem(at + (512 << 20), 64)));
    assert!(behind.failures.contains_key("no_memory"), "{behind:?}");
    let status = net.status(1);
    let mem = |name: &str| status.counts.pointer(&format!("/switch/mem/{name}")).cloned();
    assert_eq!(mem("no_hdm_decoder"), Some(2.into()), "{status:?}");
    let requests = mem("requests").and_then(|it| it.as_u64()).unwrap();
    assert!(requests > 300 && mem("answers") == Some(requests.into()), "{status:?}");
}

/// Enumeration turns interrupts on. A device can send none before it; after it, they arrive at the host.
#[test]
fn an_interrupt_of_a_device_is_an_event_of_its_host() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    let interrupt = Command::Interrupt { function: 0, ld: None };
    assert!(net.refusal(1, &interrupt).contains("has not enabled interrupts"));
    net.enumerate(0);
    assert_eq!(net.ask(1, &interrupt), Ok(Answer::Done));
    net.steps(1_000);
    let Ok(Answer::Events { events, .. }) = net.ask(0, &Command::Events {}) else { panic!() };
    assert!(events.iter().any(|it| it.kind == "msi"), "{events:?}");
}

#[test]
fn configuration_space_is_read_and_written() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    net.enumerate(0);
    let bdf = "01:00.0".parse().unwrap();
    let read = |reg| Command::ConfigRead { bdf, reg };
    assert_eq!(net.ask(0, &read(0)), Ok(Answer::Register { value: 0x0D01_1E98 }));
    let line = Command::ConfigWrite { bdf, reg: 0x3C, value: Num(0xFF77), enables: 1 };
    assert_eq!(net.ask(0, &line), Ok(Answer::Done));
    let Ok(Answer::Register { value }) = net.ask(0, &read(0x3C)) else { panic!("a register") };
    assert_eq!(value & 0xFF, 0x77);
    let root = Command::ConfigRead { bdf: "00:00.0".parse().unwrap(), reg: 0 };
    assert_eq!(net.ask(0, &root), Ok(Answer::Register { value: 0x0100_1E98 }));
    let nobody = Command::ConfigRead { bdf: "01:00.3".parse().unwrap(), reg: 0 };
    assert!(net.refusal(0, &nobody).contains("(UR)"));
    assert!(net.refusal(0, &read(2)).contains("multiple of 4"));
}

#[test]
fn a_load_counts_rounds_and_finds_what_changes() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    let [bar] = net.enumerate(0)[..] else { panic!("one device") };
    assert_eq!(net.refusal(0, &Command::LoadStatus {}), "no load was started");
    let start = |rounds| Command::LoadStart { access: seeded(bar, 10_000, 1), rounds, pause_ms: 0 };
    assert_eq!(net.ask(0, &start(3)), Ok(Answer::Done));
    assert!(net.refusal(0, &start(1)).contains("runs already"));
    net.steps(2_000);
    let report = net.load(0, &Command::LoadStatus {});
    // Three pieces a round, each written and read.
    let counts = LoadReport { requests: 18, answered: 9, posted: 9, ..LoadReport::default() };
    assert!(report.longest_gap_ns > 0, "{report:?}");
    let longest_gap_ns = report.longest_gap_ns; // depends on the steps of this net
    let want = LoadReport { done: 3, bytes: 60_000, longest_gap_ns, ..counts };
    assert_eq!(report, want);
    // Without a number of rounds, the load runs until it is stopped.
    net.ask(0, &start(0)).unwrap();
    net.steps(500);
    assert!(net.load(0, &Command::LoadStop {}).running);
    net.steps(500);
    let report = net.load(0, &Command::LoadStatus {});
    assert!(!report.running && report.done > 5 && report.failed == 0, "{report:?}");
    // A load on addresses without a target fails at its normal pace.
    let access = seeded(bar + (1 << 20), 4_096, 1);
    net.ask(0, &Command::LoadStart { access, rounds: 0, pause_ms: 0 }).unwrap();
    net.steps(30_000); // 30 ms, and rounds are 10 ms apart
    let report = net.load(0, &Command::LoadStop {});
    assert!((2..=4).contains(&report.failed) && report.done == 0, "{report:?}");
    assert!(report.failures.contains_key("UR"), "{report:?}");
    let ends =
        report.answered + report.posted + report.unanswered + report.failures.values().sum::<u64>();
    assert_eq!(report.requests, ends + report.under_way, "each has one outcome: {report:?}");
}

/// A GFD alone on a link has no host. Its tables can be read by commands, and contain the grants of its specification.
#[test]
fn a_gfd_is_commanded_and_tells_its_tables() {
    let (a, b) = wire();
    let spec = GfdSpec {
        grant: vec!["0xA1=0x10000000000:32MiB".to_owned(), "0xA1=0x20000000000:16MiB".to_owned()],
        ..GfdSpec::default()
    };
    let mut net = Net::new(vec![runner(spec.build(&[]).unwrap(), vec![a])]);
    drop(b);
    let status = net.status(0);
    for untold in ["notifications_alike", "notifications_lost"] {
        let counts = &status.counts[untold];
        assert_eq!(
            (counts["fm"].as_u64(), counts["hosts"].as_u64()),
            (Some(0), Some(0)),
            "{untold}"
        );
    }
    let requesters = status.detail["requesters"].as_array().unwrap().clone();
    let [row] = &requesters[..] else { panic!("{requesters:?}") };
    assert_eq!((row["pid"].as_str(), row["groups"].as_u64()), (Some("0a1"), Some(3)), "{row}");
    assert_eq!(row["gdt"][1]["hpa"].as_u64(), Some(0x200_0000_0000));
    assert_eq!(row["gdt"][1]["dpa"].as_u64(), Some(32 << 20));
    // 4900h, Identify GFD, is answered; an unknown command is refused by its return code.
    let cci = |opcode, input: &str| Command::Cci {
        opcode: Num(opcode),
        input: input.parse().unwrap(),
        from: 0xA1,
    };
    let answer = net.ask(0, &cci(0x4900, ""));
    assert!(
        matches!(&answer, Ok(Answer::Response { code: 0, output, .. }) if !output.0.is_empty()),
        "{answer:?}"
    );
    let answer = net.ask(0, &cci(0x1234, ""));
    assert!(
        matches!(&answer, Ok(Answer::Response { code: 1.., output, .. }) if output.0.is_empty()),
        "{answer:?}"
    );
    let enumerate = Command::Enumerate { timeout_ms: 1 };
    assert_eq!(net.refusal(0, &enumerate), "a gfd has no command \"enumerate\"");
}

#[test]
fn bad_commands_are_refused_with_what_is_wrong() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    net.enumerate(0);
    let some = || seeded(RAM, 8, 1);
    let none = Access { len: None, seed: None, ..some() };
    let both = Access { data: Some(Hex(vec![1; 8])), ..some() };
    let short = Access { data: Some(Hex(vec![1])), seed: None, ..some() };
    let gae = Command::Gae { opcode: Num(1), input: Hex::default(), block: None, timeout_ms: 1 };
    let ring = |base| Command::Ring { base, block: Some(Num(0x8000_0000)), timeout_ms: 1 };
    let range = Export { base: Num(0), len: Num(1), local: Num(0), from: vec![] };
    #[rustfmt::skip] // columns: endpoint, command, part of the refusal
    let cases = [
        (0, Command::DmaRead(some()), "a host has no command \"dma_read\""),
        (1, Command::Read(some()), "a device has no command \"read\""),
        (1, Command::Export { ranges: vec![range.clone()] }, "a device has no command \"export\""),
        (0, Command::Export { ranges: vec![range] }, "expected a range of the host's memory, found 0x1 bytes at 0x0"),
        (0, Command::Read(none.clone()), "expected a length or data"),
        (0, Command::Write(Access { len: Some(Num(8)), ..none }), "expected data or a seed to write"),
        (0, Command::Write(both), "found both"),
        (0, Command::Write(short), "expected 8 bytes of data, found 1"),
        (0, Command::Read(seeded(RAM, 0, 1)), "expected a range of addresses"),
        (0, Command::Read(seeded(u64::MAX, 2, 1)), "expected a range of addresses"),
        (0, Command::Read(Access { seed: None, ..seeded(RAM, 1 << 30, 1) }), "bytes without a seed"),
        (0, Command::Read(Access { function: 1, ..some() }), "a host has no functions"),
        (0, Command::Read(Access { to: Some(0xFFF), via: Via::Uio, ..some() }), "expected a port id"),
        (0, Command::Read(Access { to: Some(1), via: Via::Plain, ..some() }), "only UIO requests"),
        (1, Command::DmaRead(Access { function: 9, ..some() }), "no function has the number 9"),
        (0, Command::Store(own(0, 8, 1, None)), "no memory of 8 bytes at 0x0"),
        (1, Command::Store(own(0, 8, 1, None)), "no memory in HDM"),
        (1, Command::Peek(own(0, 8, 1, Some(4))), "no memory in BAR 4"),
        (1, Command::Interrupt { function: 3, ld: None }, "no function has the number 3"),
        (0, Command::Rescan { bdf: "07:00.0".parse().unwrap(), timeout_ms: 1 }, "no slot at"),
        (0, gae, "no function with a mailbox is known"),
        (0, ring(None), "the host has no ring"),
        (0, ring(Some(Num(RAM + 1))), "multiple of 32"),
        (0, ring(Some(Num(0))), "expected 8 KiB of memory"),
        (0, Command::LoadStop {}, "no load was started"),
    ];
    for (at, command, part) in cases {
        let text = net.refusal(at, &command);
        assert!(text.contains(part), "{command:?}: {text}");
    }
}

/// A request that is never answered ends with the time limit of its command, and holds up no other command.
#[test]
fn what_is_never_answered_times_out() {
    let (a, _b) = wire();
    let mut net = Net::new(vec![runner(host_spec().build(&[]).unwrap(), vec![a])]);
    let report =
        net.transfer(0, &Command::Read(Access { timeout_ms: 5, ..seeded(0x8000_0000, 64, 0) }));
    assert!(report.timed_out && !report.ok, "{report:?}");
    let enumerate = Command::Enumerate { timeout_ms: 5 };
    assert_eq!(net.refusal(0, &enumerate), "not finished in time");
    assert!(net.refusal(0, &enumerate).contains("enumerating already"));
}

#[test]
fn events_are_told_once() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    net.enumerate(0);
    let kinds = |answer: Result<Answer, Refused>| match answer {
        Ok(Answer::Events { events, lost: 0 }) => {
            events.into_iter().map(|event| event.kind).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let first = kinds(net.ask(0, &Command::Events {}));
    assert!(first.contains(&"link".to_owned()) && first.contains(&"enumerated".to_owned()));
    assert_eq!(kinds(net.ask(0, &Command::Events {})), Vec::<String>::new());
    assert!(kinds(net.ask(1, &Command::Events {})).contains(&"reset".to_owned()));
}

/// Another thread sends lines as the control socket does, while the runner runs by the machine's clock.
#[test]
fn lines_are_answered_while_it_runs() {
    use weft_rpc::{Answer as Line, LineHandler};
    let (a, _b) = wire();
    let mut runner = runner(host_spec().build(&[]).unwrap(), vec![a]);
    let (handle, stop) = (runner.handle(), std::sync::atomic::AtomicBool::new(false));
    let ask = |line: &str| match handle.answer(line.as_bytes()) {
        Line::Line(answer) => String::from_utf8(answer).unwrap(),
        Line::Stream(..) => panic!("one line"),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| runner.run(&stop));
        let said = ask(r#"{"cmd":"status"}"#);
        assert!(said.starts_with(r#"{"ok":{"status":{"#) && said.ends_with("}\n"), "{said}");
        let said = ask(r#"{"cmd":"store","addr":"0x100000","data":"0102"}"#);
        assert!(said.contains(r#""written":2"#), "{said}");
        let said = ask(r#"{"cmd":"peek","addr":1048577,"len":1}"#);
        assert!(said.contains(r#""data":"02""#), "{said}");
        #[rustfmt::skip] // columns: line, part of the refusal
        let bad = [
            ("", "bad_request"), ("{}", "missing field `cmd`"), (r#"{"cmd":"fly"}"#, "unknown variant `fly`"),
            (r#"{"cmd":"status","x":1}"#, "unknown field `x`"), (r#"{"cmd":"read"}"#, "missing field `addr`"),
            (r#"{"cmd":"read","addr":"far","len":1}"#, "expected a number"),
            (r#"{"cmd":"write","addr":1,"data":"0"}"#, "two hexadecimal digits"),
            (r#"{"cmd":"interrupt"}"#, "a host has no command"),
        ];
        for (line, part) in bad {
            let said = ask(line);
            assert!(said.starts_with(r#"{"error":"#) && said.contains(part), "{line}: {said}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(runner);
    assert!(ask(r#"{"cmd":"status"}"#).contains("has ended"));
}

/// Builds a host from the text of a file.
fn host(text: &str) -> Result<(), SpecError> {
    over(text, &HostSpec::default()).and_then(|spec| spec.build(&[]).map(drop))
}

fn device(text: &str) -> Result<(), SpecError> {
    over(text, &DeviceSpec::default()).and_then(|spec| spec.build(&[]).map(drop))
}

fn gfd(text: &str) -> Result<(), SpecError> {
    over(text, &GfdSpec::default()).and_then(|spec| spec.build(&[]).map(drop))
}

/// Checks that each specification is refused with this text, or accepted if the text is empty.
fn holds(cases: impl IntoIterator<Item = (Result<(), SpecError>, &'static str)>) {
    for (at, (result, part)) in cases.into_iter().enumerate() {
        match result {
            Ok(()) => assert_eq!(part, "", "case {at}"),
            Err(error) => {
                let text = error.to_string();
                assert!(!part.is_empty() && text.contains(part), "case {at}: {text}");
            }
        }
    }
}

#[test]
fn options_of_caches_and_notifications_go_together_or_are_refused() {
    #[rustfmt::skip] // columns: result, part of the refusal; empty for none
    holds([
        (host("mode = \"non-flit\"\nln_lines = 8"), ""),
        (host("ln_lines = 8"), "ln_lines: "),
        (host("mode = \"non-flit\"\nln_lines = 8\nln_line = 128\nln_watchers = 0"), ""),
        (host("mode = \"non-flit\"\nln_lines = 8\nln_line = 32"), "ln_line: expected 64 or 128"),
        (host("ln_line = 64"), "ln_line: no line is watched"),
        (host("ln_watchers = 1"), "ln_watchers: no line is watched"),
        (host("cache_lines = 1048576"), ""),
        (host("cache_lines = 1048577"), "cache_lines: expected 0 to 1048576"),
        (gfd("coherent = true\nfilter_lines = 1\nsnoop_ms = 1"), ""),
        (gfd("filter_lines = 8"), "filter_lines: it is of a coherent device"),
        (gfd("snoop_ms = 8"), "snoop_ms: it is of a coherent device"),
        (gfd("coherent = true\nfilter_lines = 0"), "filter_lines: expected 1 to 1048576"),
        (gfd("coherent = true\nsnoop_ms = 60001"), "snoop_ms: expected 1 to 60000"),
        (device("mode = \"non-flit\"\nlnr = 4\nlnr_line = \"128\""), ""),
        (device("lnr = 4"), "lnr: Lightweight Notification is of non-flit mode"),
        (device("mode = \"non-flit\"\nlnr = 4\nlnr_line = \"32\""), "lnr_line: expected 64, 128 or both"),
        (device("lnr_line = \"64\""), "lnr_line: there is no LN requester"),
    ]);
}

#[test]
fn specifications_are_refused_with_what_is_wrong() {
    #[rustfmt::skip] // columns: result, part of the refusal; empty for none
    let cases = [
        (host(""), ""),
        (host("hpa_memory = [\"1MiB\", \"0x40000000:0x1000\"]\npayload_max = \"512\"\nread_max = 256"), ""),
        (host("colour = 1"), "specification:1:1: unknown key \"colour\", expected one of "),
        (host("hpa_memory = 7"), "specification:1:14: hpa_memory: expected a list, found 7"),
        (host("read_mx = 1\nport = 5\ngbps = -1"), "specification:1:1: unknown key \"read_mx\", did you mean \"read_max\"?\n\
            specification:2:8: port: expected a list, found 5\n\
            specification:3:8: gbps: expected a whole number, 0 or above, found -1"),
        (host("port ="), "specification:1:"),
        (host("hpa_memory = [\"much\"]"), "hpa_memory: expected a number"),
        (host("hpa_memory = [\"1MiB\", \"2MiB\"]"), "overlap other memory"),
        (host("hpa_memory = [\"0x70000000:1GiB\"]"), "hpa_memory: 0x40000000 bytes at 0x70000000 reach into 0x80000000"),
        (host("fabric_window = \"0x100000:1MiB\""), "hpa_memory: "),
        (host("fabric_window = \"1GiB\""), "fabric_window: expected BASE:SIZE"),
        (host("read_max = 100"), "read_max: expected a power of two"),
        (host("payload_max = 8192"), "payload_max: expected a power of two"),
        (host("mode = \"fast\""), "mode: expected flit or non-flit"),
        (host("mac = \"02\""), "mac: expected an address"),
        (host("priorities = 5"), "priorities: expected 4 or 8"),
        (host("export = [\"1:2\"]"), "export: expected BASE:SIZE=LOCAL"),
        (host("export = [\"1TiB:64MiB=0x100000\"]"), ""),
        (host("export = [\"1TiB:1GiB=0x100000\"]"), "export: expected a range of the host's memory, found 0x40000000 bytes"),
        (host("export = [\"1TiB:4KiB=0\"]"), "export: expected a range of the host's memory, found 0x1000 bytes at 0x0"),
        (host("in_flight = 0"), "in_flight: expected 1 to 1024"),
        (device("bar = [\"0=pref64:64KiB\", \"2=io:64\", \"3=mem32:4KiB\"]\nhdm = \"0x200000000:1GiB\""), ""),
        (device("hdm = \"512MiB\""), ""),
        (device("hdm = \"0x200000000:1MiB\""), "hdm: expected multiples of 256MiB"),
        (device("hdm = \"0x1000:256MiB\""), "hdm: expected multiples of 256MiB"),
        (device("hdm = \"0xFFFFFF0000000:512MiB\""), "hdm: expected multiples of 256MiB below 2^52"),
        (device("hdm = \"0:256MiB\""), "hdm: address 0 is no place"),
        (device("bar = [\"0=mem64:4KiB\", \"2=mem64:4KiB\", \"4=mem64:4KiB\"]\nhdm = \"256MiB\""), "leave one free"),
        (device("gim_memory = \"0x200000000:1MiB\""), "give gim, too"),
        (device("gim = true\ngim_memory = \"0x200000000:1MiB\""), ""),
        (device("hdm = \"256MiB\"\nlatency_ns = 250\nbandwidth_mbps = 32000"), ""),
        (device("hdm = \"256MiB\"\nlatency_ns = 0"), "latency_ns: expected 1 to 1000000, found 0"),
        (device("bandwidth_mbps = 32000"), "bandwidth_mbps: is told of memory that hosts manage: give hdm or lds, too"),
        (device("bar = [\"0=mem:1MiB\"]"), "bar: expected N=KIND:SIZE"),
        (device("bar = [\"9=io:64\"]"), "bar: expected N=KIND:SIZE"),
        (device("bar = [\"0=io:64\", \"0=io:64\"]"), "bar: BAR 0 is given twice"),
        (device("bar = [\"0=mem32:100\"]"), "BAR 0 cannot be of 0x64 bytes"),
        (device("functions = 0"), "1 to 8 functions"),
        (device("functions = 9"), "1 to 8 functions"),
        (gfd("capacity = \"1GiB\"\nblock = \"64MiB\""), ""),
        (gfd("capacity = \"1MiB\""), "capacity: expected a multiple of 256MiB"),
        (gfd("block = 5"), "block: 0x5 bytes are refused"),
        (gfd("pid = 0xFFF"), "pid: expected a port id"),
        (gfd("pid = \"0x1_0000\""), "pid: expected a port id"),
        (gfd("pid = \"0x10\""), ""),
        (gfd("answer_ms = 0"), "answer_ms: expected 1 to 3600000, found 0"),
        (device("answer_ms = 3600001"), "answer_ms: expected 1 to 3600000, found 3600001"),
        (device("answer_ms = 1"), ""),
        (device("mac = \"ff:ff:ff:ff:ff:ff\""), "mac: expected an address of one station"),
        (device("mac = \"03:00:00:00:00:01\""), "mac: expected an address of one station"),
        (gfd("grant = [\"1=0:1GiB\"]"), "grant: 1=0:1GiB: capacity refused"),
        (gfd("file = \"/nowhere/memory\""), "memory in /nowhere/memory"),
    ];
    holds(cases);
    // A flag overrides the key of the file; other keys of the file stay.
    let flags = HostSpec { read_max: Some(Num(128)), ..HostSpec::default() };
    let spec = over("read_max = 256\nfabric_window = \"1TiB:1GiB\"\nname = \"h\"", &flags).unwrap();
    assert_eq!(spec.read_max, Some(Num(128)));
    assert_eq!(
        (spec.fabric_window.as_deref(), spec.common.name.as_deref()),
        (Some("1TiB:1GiB"), Some("h"))
    );
    let hbr = HbrSpec::default();
    assert!(hbr.build(1, &[]).map(drop).unwrap_err().to_string().contains("1 to 32 downstream"));
    let (a, _b) = wire();
    let refused = Runner::new(Box::new(hbr.build(2, &[]).unwrap()), vec![a], bufs()).map(drop);
    assert_eq!(refused.unwrap_err().to_string(), "expected 2 ports, found 1");
}

#[test]
fn a_file_has_the_memory_of_one_device_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let spec = GfdSpec { file: Some(path.clone()), ..GfdSpec::default() };
    let first = spec.build(&[]).unwrap();
    let refused = spec.build(&[]).map(drop).unwrap_err();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert_eq!(cause, "another GFD keeps its memory there");
    drop(first);
    drop(spec.build(&[]).unwrap());
    assert!(path.is_file());
}

/// A change of a specification that has `lds`.
type Change<'a> = &'a dyn Fn(&mut DeviceSpec);

/// Options that exclude logical devices are refused with advice. Commands must name a logical device if there are some.
#[test]
fn logical_devices_are_refused_where_there_can_be_none() {
    let note = |text: &str| EndpointSpec::from(DeviceSpec::default()).over(text).unwrap().note();
    assert!(
        note("lds = 4\ncapacity = \"256MiB\"").unwrap().contains("0 bytes until a fabric manager")
    );
    assert!(note("lds = 2\ncapacity = \"512MiB\"\ndynamic = \"256MiB\"").is_some());
    for text in [
        "lds = 4",
        "lds = 4\ncapacity = \"1GiB\"",
        "lds = 2\ncapacity = \"256MiB\"\ndynamic = \"256MiB\"",
        "",
    ] {
        assert_eq!(note(text), None, "{text}");
    }
    let with = |change: Change<'_>| {
        let mut spec = DeviceSpec { lds: Some(2), ..DeviceSpec::default() };
        change(&mut spec);
        EndpointSpec::from(spec).endpoint(&[]).err().map_or_else(String::new, |e| e.to_string())
    };
    assert_eq!(with(&|_| {}), "");
    let at = |ld_at: &[&str]| ld_at.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
    assert_eq!(with(&|it| it.ld_at = at(&["1=0x10000000000", "0=256MiB"])), "");
    let cases: [(Change<'_>, &str); 17] = [
        (&|it| it.ld_at = at(&["2=0x10000000000"]), "ld_at: expected LD=BASE, LD 0 to 1"),
        (&|it| it.ld_at = at(&["1=0x10000000000", "1=0x20000000000"]), "each once"),
        (&|it| it.ld_at = at(&["1=0x10000000001"]), "a multiple of 256MiB"),
        (&|it| it.ld_at = at(&["1=0xFFFFFF0000000"]), "ld_at: "),
        (&|it| (it.lds, it.ld_at) = (None, at(&["0=256MiB"])), "ld_at: is of logical devices"),
        (&|it| it.lds = Some(17), "1 to 16 logical devices"),
        (&|it| it.bar = vec!["0=mem64:1MiB".to_owned()], "bar: "),
        (&|it| it.functions = Some(2), "functions: "),
        (&|it| it.hdm = Some("0:4096".to_owned()), "hdm: "),
        (&|it| it.gim = true, "gim: "),
        (&|it| it.common.mode = Some("non-flit".to_owned()), "needs mode flit"),
        (&|it| it.capacity = Some(Num(1 << 20)), "capacity: "),
        (&|it| (it.lds, it.capacity) = (None, Some(Num(1 << 28))), "give lds, too"),
        (&|it| (it.lds, it.dynamic) = (None, Some(Num(1 << 28))), "dynamic: is of logical devices"),
        (&|it| it.dynamic = Some(Num(1 << 20)), "dynamic: "),
        (&|it| it.dynamic = Some(Num(3 << 28)), "dynamic: "),
        (&|it| it.dynamic = Some(Num(u64::MAX)), "dynamic: "),
    ];
    for (change, part) in cases {
        let said = with(change);
        assert!(said.contains(part), "{part}: {said}");
    }
}
