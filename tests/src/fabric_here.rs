//! Whole fabrics in one process and virtual time, for tests, and commands to their parts.
//!
//! [`up`] takes a file of `pcaps/fabric`; [`access`] is by hosts and devices, [`transfer`] any
//! command; [`books`] checks all frames. Time is in milliseconds of virtual time.
//!
//! Source: docs/fabric.md, docs/endpoint.md.

use serde_json::Value;
use weft_dataplane::time::Span;
use weft_fm::service::status::Phase;
use weft_fm::service::{Request, Response};
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, TransferReport};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::in_process::virtual_clock;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;

/// The text of a file of `pcaps/fabric`.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn file(name: &str) -> String {
    let path = format!("{}/../pcaps/fabric/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the file is there")
}

/// A file of `pcaps/fabric`, up and without errors.
///
/// # Panics
/// It does not come up, or has errors.
#[must_use]
pub fn up(name: &str) -> ManagedFabric {
    up_text(name, &file(name))
}

/// A topology, up and without errors.
///
/// # Panics
/// It does not come up, or has errors.
#[must_use]
pub fn up_text(name: &str, text: &str) -> ManagedFabric {
    let mut fabric = ManagedFabric::up(text, virtual_clock()).unwrap_or_else(|error| {
        let causes = core::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
        panic!("{name}: {}", causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
    });
    let status = fabric.fm().board().status();
    assert_eq!((status.phase, &status.errors[..]), (Phase::Up, &[][..]), "{name}: {status:?}");
    fabric
}

/// Report of a transfer that a part is told to make.
///
/// # Panics
/// The part refuses, or answers with something else.
#[must_use]
pub fn transfer(fabric: &ManagedFabric, part: Part, command: &Command) -> TransferReport {
    match fabric.ask(part, command) {
        Ok(Answer::Transfer(report)) => *report,
        other => panic!("{part:?} {command:?}: {other:?}"),
    }
}

/// A range with the pattern of a seed.
#[must_use]
pub fn range(addr: u64, len: u64, seed: u64) -> Access {
    let timeout_ms = 60_000;
    let (addr, len, seed) = (Num(addr), Some(Num(len)), Some(seed));
    Access { addr, len, seed, timeout_ms, ..Access::default() }
}

/// A write or read by a host, or the same by DMA of a device.
///
/// # Panics
/// The part refuses.
#[must_use]
pub fn access(fabric: &ManagedFabric, by: Part, access: Access, write: bool) -> TransferReport {
    let command = match (by, write) {
        (Part::Device(_), true) => Command::DmaWrite(access),
        (Part::Device(_), false) => Command::DmaRead(access),
        (_, true) => Command::Write(access),
        (_, false) => Command::Read(access),
    };
    transfer(fabric, by, &command)
}

/// Lets virtual time pass.
pub fn pass(fabric: &ManagedFabric, ms: u64) {
    fabric.parts().until(Span::from_ms(ms), |_| false);
}

/// Gives the manager three looks at the fabric, with time for events in between.
pub fn look(fabric: &mut ManagedFabric) {
    for _ in 0..3 {
        pass(fabric, 60);
        fabric.fm().watch();
    }
}

/// Addresses of BAR 0 of functions with these Device IDs, in the order of the host's tree.
///
/// # Panics
/// The host has no tree.
#[must_use]
pub fn bars(fabric: &ManagedFabric, host: Part, devices: &[u64]) -> Vec<u64> {
    let Ok(Answer::Tree { tree, .. }) = fabric.ask(host, &Command::Tree {}) else {
        panic!("{host:?} has no tree")
    };
    let mut found = Vec::new();
    collect_bars(&tree, devices, &mut found);
    found
}

fn collect_bars(tree: &Value, devices: &[u64], found: &mut Vec<u64>) {
    match tree {
        Value::Array(all) => all.iter().for_each(|one| collect_bars(one, devices, found)),
        Value::Object(map) => {
            let device = map.get("device").and_then(Value::as_u64);
            if device.is_some_and(|device| devices.contains(&device)) {
                found.extend(tree.pointer("/bars/0/address").and_then(Value::as_u64));
            }
            map.values().for_each(|one| collect_bars(one, devices, found));
        }
        _ => {}
    }
}

/// Sends a command as bytes to a component, through the manager. Returns the return code, and the
/// payload in hexadecimal digits.
///
/// # Panics
/// The manager has no answer.
pub fn cci(fabric: &mut ManagedFabric, to: &str, opcode: u16, payload: &str) -> (u16, String) {
    let digits: String = payload.chars().filter(|c| !c.is_whitespace()).collect();
    let [low, high] = opcode.to_le_bytes();
    let len = digits.len() / 2;
    // a CCI header of 12 bytes: category, tag, reserved, opcode, length; the rest 0
    let message = format!("000000{low:02x}{high:02x}{len:02x}000000000000{digits}");
    let asked = Request::Cci { to: to.to_owned(), message };
    match fabric.fm().request(&asked) {
        Ok(Response::Cci(answer)) => (answer.code, answer.payload),
        other => panic!("{opcode:x}: {other:?}"),
    }
}

/// Every frame of every switch is accounted for, and none is left.
///
/// # Panics
/// They are not, or some are still queued.
pub fn books(fabric: &ManagedFabric) {
    let parts = fabric.parts();
    for at in 0..parts.layout().switches.len() {
        let ledger = parts.ledger(at).expect("as many as switches");
        assert_eq!((ledger.imbalance(), ledger.queued), (0, 0), "switch {at}: {ledger:?}");
    }
}
