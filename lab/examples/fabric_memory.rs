//! A transfer of fabric memory by the library. A host writes a MiB into the memory of another host, which compares it.
//!
//! The fabric of `pcaps/fabric/fabric-memory.toml` runs as a [`ManagedFabric`] in this process and in virtual time. Its
//! hosts get the commands that `weft endpoint ctl H mem` sends.
//!
//! Source: docs/fabric-memory.md.
#![expect(clippy::print_stdout, reason = "it says what it has done")]

use std::error::Error;

use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Command, OwnRange};
use weft_lab::endpoint::fabric_mem::{MemAnswer, MemCommand, MemOp, MemTransfer};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::in_process::virtual_clock;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;

const TOPOLOGY: &str = include_str!("../../pcaps/fabric/fabric-memory.toml");
const FROM: Part = Part::Host(0);
const TO: Part = Part::Host(1);

fn main() -> Result<(), Box<dyn Error>> {
    let fabric = ManagedFabric::up(TOPOLOGY, virtual_clock())?;
    let mem = |host, command| match fabric.ask(host, &Command::Mem(command))? {
        Answer::Mem(answer) => Ok::<MemAnswer, Box<dyn Error>>(*answer),
        other => Err(format!("{other:?}").into()),
    };
    let (addr, len) = (Num(1 << 20), Num(1 << 20));
    for host in [FROM, TO] {
        println!("{:?}", mem(host, MemCommand::Register { addr, len })?);
    }
    let own = OwnRange { addr, len: Some(len), seed: Some(1), ..OwnRange::default() };
    fabric.ask(FROM, &Command::Store(own.clone()))?;
    // The mailbox is at the start of the peer's window.
    let mailbox = Num(0x210_0000_0000);
    let MemAnswer::Peer(peer) = mem(FROM, MemCommand::Connect { mailbox, timeout_ms: 1_000 })?
    else {
        return Err("no peer".into());
    };
    let ops = vec![MemOp { local: addr, remote: addr, len }];
    let transfer = MemTransfer { peer, ops, wait: true, timeout_ms: 1_000 };
    println!("{:?}", mem(FROM, MemCommand::Write(transfer))?);
    match fabric.ask(TO, &Command::Peek(own))? {
        Answer::Transfer(report) if report.ok => println!("{} bytes are equal", report.read),
        other => return Err(format!("they differ: {other:?}").into()),
    }
    Ok(())
}
