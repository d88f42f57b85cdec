//! The figures of seed 000 as whole fabrics in one process: real switches, real endpoints, the real manager.
//!
//! Shape: a file of `pcaps/fabric` → `weft::fabric` in virtual time → what hosts see, read and write.
//! Units: octets.
//! Source: seed 000 sections 7.7.1 to 7.7.6; issue 4, item 7 and acceptance 1 and 2.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use weft::endpoint::Answer;
use weft::endpoint::command::{Access, Command, TransferReport};
use weft::endpoint::number::Num;
use weft::fabric::embedded::Fabric;
use weft::fabric::layout::Part;
use weft::fabric::world::virtual_clock;
use weft::fm::service::board::Phase;

fn file(figure: &str) -> String {
    let path = format!("{}/../pcaps/fabric/fig-{figure}.toml", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// A figure, up and without trouble.
fn up(figure: &str) -> Fabric {
    let mut fabric = Fabric::up(&file(figure), virtual_clock()).unwrap_or_else(|error| {
        panic!("{figure}: {}", chain(&error));
    });
    let status = fabric.fm().board().status();
    assert_eq!((status.phase, &status.trouble[..]), (Phase::Up, &[][..]), "{status:?}");
    fabric
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

fn tree(fabric: &Fabric, host: usize) -> String {
    match fabric.ask(Part::Host(host), &Command::Tree {}).unwrap() {
        Answer::Tree { text, .. } => text,
        other => panic!("{other:?}"),
    }
}

fn transfer(fabric: &Fabric, part: Part, command: &Command) -> TransferReport {
    match fabric.ask(part, command).unwrap() {
        Answer::Transfer(report) => *report,
        other => panic!("{other:?}"),
    }
}

fn range(addr: u64, len: u64, seed: u64) -> Access {
    Access { addr: Num(addr), len: Some(Num(len)), seed: Some(seed), ..Access::default() }
}

#[test]
fn figure_7_25_hosts_share_memory_of_a_gfd() {
    let fabric = up("7-25");
    println!("{}", tree(&fabric, 0));
    println!("{}", tree(&fabric, 1));
    let base = fabric.topology().memory[0].hpa;
    let write = transfer(&fabric, Part::Host(0), &Command::Write(range(base, 1 << 16, 7)));
    assert!(write.ok, "{write:?}");
    let read = transfer(&fabric, Part::Host(1), &Command::Read(range(base, 1 << 16, 7)));
    assert!(read.ok && read.read == 1 << 16, "{read:?}");
}

#[test]
fn figure_7_45_each_host_sees_its_own_hierarchy() {
    let fabric = up("7-45");
    println!("{}\n{}", tree(&fabric, 0), tree(&fabric, 1));
}
