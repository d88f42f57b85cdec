//! Whole fabrics of one process in virtual time, and the commands of their hosts and devices.
//!
//! [`up`] starts the fabric of a topology file, and [`ask`] sends a command. Helpers panic on an unexpected answer.
//!
//! Source: docs/fabric-memory.md.

use weft_dataplane::time::Span;
use weft_fm::service::status::Phase;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, OwnRange, TransferReport};
use weft_lab::endpoint::fabric_mem::{
    MemAnswer, MemCommand, MemList, MemOp, MemRange, MemTransfer, MemTransferReport,
};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::in_process::virtual_clock;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_rpc::Refused;

pub const H0: Part = Part::Host(0);
pub const H1: Part = Part::Host(1);
/// First address of a host's own memory.
pub const OWN: u64 = 0x10_0000;
pub const MIB: u64 = 1 << 20;
/// Memory that both hosts were granted, and the window of each host.
pub const POOL: u64 = 0x100_0000_0000;
pub const WINDOWS: [u64; 2] = [0x200_0000_0000, 0x210_0000_0000];

/// The text of a file in `pcaps/fabric`.
pub fn file(name: &str) -> String {
    let path = format!("{}/../pcaps/fabric/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the file is there")
}

pub fn up(name: &str) -> ManagedFabric {
    up_text(name, &file(name))
}

/// Starts a fabric, which must come up without errors.
pub fn up_text(name: &str, text: &str) -> ManagedFabric {
    let mut fabric = ManagedFabric::up(text, virtual_clock()).unwrap_or_else(|error| {
        let causes = core::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
        panic!("{name}: {}", causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
    });
    let status = fabric.fm().board().status();
    assert_eq!((status.phase, &status.errors[..]), (Phase::Up, &[][..]), "{name}: {status:?}");
    fabric
}

/// Checks that every switch has accounted for all its frames, and queues none.
pub fn books(fabric: &ManagedFabric) {
    let parts = fabric.parts();
    for at in 0..parts.layout().switches.len() {
        let ledger = parts.ledger(at).expect("as many as switches");
        assert_eq!((ledger.imbalance(), ledger.queued), (0, 0), "switch {at}: {ledger:?}");
    }
}

pub fn transfer(fabric: &ManagedFabric, part: Part, command: &Command) -> TransferReport {
    match fabric.ask(part, command) {
        Ok(Answer::Transfer(report)) => *report,
        other => panic!("{part:?} {command:?}: {other:?}"),
    }
}

/// A range with the pattern of this seed.
pub fn range(addr: u64, len: u64, seed: u64) -> Access {
    let (addr, len, seed) = (Num(addr), Some(Num(len)), Some(seed));
    Access { addr, len, seed, timeout_ms: 60_000, ..Access::default() }
}

/// A host's plain write or read, which bypasses its transfer engine.
pub fn access(fabric: &ManagedFabric, by: Part, access: Access, write: bool) -> TransferReport {
    let command = if write { Command::Write(access) } else { Command::Read(access) };
    transfer(fabric, by, &command)
}

pub fn ask(fabric: &ManagedFabric, host: Part, command: MemCommand) -> Result<Answer, Refused> {
    fabric.ask(host, &Command::Mem(command))
}

pub fn asked(fabric: &ManagedFabric, host: Part, command: MemCommand) -> MemAnswer {
    let name = format!("{host:?} {command:?}");
    match ask(fabric, host, command) {
        Ok(Answer::Mem(answer)) => *answer,
        other => panic!("{name}: {other:?}"),
    }
}

pub fn refusal(fabric: &ManagedFabric, host: Part, command: MemCommand) -> String {
    let name = format!("{host:?} {command:?}");
    match ask(fabric, host, command) {
        Err(refused) => refused.message,
        Ok(answer) => panic!("{name}: {answer:?}"),
    }
}

pub fn done(fabric: &ManagedFabric, host: Part, command: MemCommand) {
    let name = format!("{host:?} {command:?}");
    assert_eq!(ask(fabric, host, command), Ok(Answer::Done), "{name}");
}

pub fn register(fabric: &ManagedFabric, host: Part, addr: u64, len: u64) -> MemRange {
    match asked(fabric, host, MemCommand::Register { addr: Num(addr), len: Num(len) }) {
        MemAnswer::Registered(range) => range,
        other => panic!("{other:?}"),
    }
}

pub fn list(fabric: &ManagedFabric, host: Part) -> MemList {
    match asked(fabric, host, MemCommand::List {}) {
        MemAnswer::List(list) => list,
        other => panic!("{other:?}"),
    }
}

pub fn connect_to(mailbox: u64) -> MemCommand {
    MemCommand::Connect { mailbox: Num(mailbox), timeout_ms: 2_000 }
}

pub fn connect(fabric: &ManagedFabric, host: Part, mailbox: u64) -> u32 {
    match asked(fabric, host, connect_to(mailbox)) {
        MemAnswer::Peer(peer) => peer,
        other => panic!("{other:?}"),
    }
}

pub fn ops(list: &[(u64, u64, u64)]) -> Vec<MemOp> {
    let op = |(local, remote, len): &(u64, u64, u64)| MemOp {
        local: Num(*local),
        remote: Num(*remote),
        len: Num(*len),
    };
    list.iter().map(op).collect()
}

pub fn plan(peer: u32, list: &[(u64, u64, u64)]) -> MemTransfer {
    MemTransfer { peer, ops: ops(list), wait: true, timeout_ms: 10_000 }
}

pub fn moved(fabric: &ManagedFabric, host: Part, command: MemCommand) -> MemTransferReport {
    match asked(fabric, host, command) {
        MemAnswer::Transfer(report) => report,
        other => panic!("{other:?}"),
    }
}

pub fn store(fabric: &ManagedFabric, host: Part, addr: u64, len: u64, seed: u64) {
    let (addr, len, seed) = (Num(addr), Some(Num(len)), Some(seed));
    let report = transfer(
        fabric,
        host,
        &Command::Store(OwnRange { addr, len, seed, ..OwnRange::default() }),
    );
    assert!(report.ok);
}

pub fn has(fabric: &ManagedFabric, host: Part, addr: u64, len: u64, seed: u64) -> bool {
    let (addr, len, seed) = (Num(addr), Some(Num(len)), Some(seed));
    let peek = OwnRange { addr, len, seed, ..OwnRange::default() };
    transfer(fabric, host, &Command::Peek(peek)).ok
}

/// Lets time pass until `done` is true, but for 20 s at most.
pub fn until(fabric: &ManagedFabric, what: &str, mut done: impl FnMut(&ManagedFabric) -> bool) {
    for _ in 0..400 {
        if done(fabric) {
            return;
        }
        fabric.parts().until(Span::from_ms(50), |_| false);
    }
    panic!("{what}: not in 20 s");
}

/// Lets both hosts register a MiB of their own, connects h0 to h1, and returns h0's number of the peer.
pub fn pair(fabric: &ManagedFabric) -> u32 {
    for host in [H0, H1] {
        let range = register(fabric, host, OWN, MIB);
        assert_eq!((range.handle, range.kind.as_str()), (1, "host"));
    }
    connect(fabric, H0, WINDOWS[1])
}

/// Checks that a host has no transfer and request in progress, and no stream in use.
pub fn idle(fabric: &ManagedFabric, host: Part) {
    let list = list(fabric, host);
    assert_eq!((list.streams, list.requests, list.transfers.len()), (0, 0, 0), "{list:?}");
}
