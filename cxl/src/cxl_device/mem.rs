//! CXL.mem at a memory device: loads and stores of lines of host-managed memory.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem"; docs/spec/wire-formats.md §3.9.

use weft_parsers::cxl_mem::{LINE, MemHead, MemMessage, MemOp};

use crate::gfd::memory::Memory;

/// Answer of a device to a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The message has no answer.
    None,
    /// Answer to a load, with its line.
    Data(MemHead, Box<[u8; LINE]>),
    /// Answer to a store, or to a request without data.
    Done(MemHead),
    /// The request is refused.
    Refused(MemHead),
}

/// Carries out a request. `found` is the memory that decoders have found, and the offset of the line in it.
pub(super) fn serve(found: Option<(u64, &mut Memory)>, message: &MemMessage<'_>) -> Answer {
    let head = &message.head;
    if !head.op.class().is_request() || head.op == MemOp::MemSpecRd {
        return Answer::None; // a hint, or an answer although the device has no requests
    }
    let answer = |op| MemHead { ld: head.ld, ..MemHead::new(op, head.tag) };
    // Repeats the LD-ID, by which the edge finds the host of a logical device.
    let refused = head.op.refusal().map_or(Answer::None, |op| Answer::Refused(answer(op)));
    let Some((at, memory)) = found else { return refused };
    match head.op {
        MemOp::MemRd | MemOp::MemRdData => {
            let mut line = Box::new([0; LINE]);
            let poison = memory.is_poisoned(at, LINE as u64);
            if !poison && memory.read(at, &mut line[..]).is_err() {
                return refused;
            }
            Answer::Data(MemHead { poison, ..answer(MemOp::MemData) }, line)
        }
        MemOp::MemWr | MemOp::MemWrPtl => match store(memory, at, message) {
            Some(()) => Answer::Done(answer(MemOp::Cmp)),
            None => refused,
        },
        MemOp::MemInv | MemOp::MemInvNT | MemOp::MemClnEvct => Answer::Done(answer(MemOp::Cmp)),
        _ => refused,
    }
}

/// Stores a line or parts of it. A poisoned store keeps the bytes and marks the line; a partial store does not end
/// poison.
fn store(memory: &mut Memory, at: u64, message: &MemMessage<'_>) -> Option<()> {
    let (false, Some(line)) = (message.head.poison, message.data) else {
        return memory.poison(at).ok();
    };
    let Some(enables) = message.enables else { return memory.write(at, line).ok() };
    // Byte by byte: only a write of all 64 bytes at once ends poison.
    for (offset, byte) in (0_u64..).zip(line).filter(|(offset, _)| enables >> offset & 1 == 1) {
        memory.write(at + offset, core::slice::from_ref(byte)).ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 4_096;

    fn ask(
        memory: &mut Memory,
        op: MemOp,
        at: u64,
        data: Option<u8>,
        enables: Option<u64>,
    ) -> Answer {
        let line = data.map(|byte| [byte; LINE]);
        let head = MemHead::new(op, 9);
        serve(Some((at, memory)), &MemMessage { head, data: line.as_ref(), enables })
    }

    fn read(memory: &mut Memory, at: u64) -> (bool, [u8; LINE]) {
        match ask(memory, MemOp::MemRd, at, None, None) {
            Answer::Data(head, line) => {
                assert_eq!((head.op, head.tag), (MemOp::MemData, 9));
                (head.poison, *line)
            }
            other => panic!("{other:?}"),
        }
    }

    fn done() -> Answer {
        Answer::Done(MemHead::new(MemOp::Cmp, 9))
    }

    #[test]
    fn lines_are_stored_whole_and_in_part() {
        let memory = &mut Memory::anonymous(SIZE);
        assert_eq!(ask(memory, MemOp::MemWr, 128, Some(7), None), done());
        assert_eq!(ask(memory, MemOp::MemWrPtl, 128, Some(9), Some(0x8000_0000_0000_0001)), done());
        let mut want = [7; LINE];
        (want[0], want[63]) = (9, 9);
        assert_eq!(read(memory, 128), (false, want));
        assert_eq!(read(memory, 64), (false, [0; LINE]), "the line before");
        for op in [MemOp::MemInv, MemOp::MemInvNT, MemOp::MemClnEvct] {
            assert_eq!(ask(memory, op, 0, None, None), done(), "{op:?}");
        }
        assert_eq!(ask(memory, MemOp::MemSpecRd, 0, None, None), Answer::None);
    }

    #[test]
    fn poison_stays_until_the_whole_line_is_stored() {
        let memory = &mut Memory::anonymous(SIZE);
        assert_eq!(ask(memory, MemOp::MemWr, 0, Some(7), None), done());
        let head = MemHead { poison: true, ..MemHead::new(MemOp::MemWr, 9) };
        let poison = MemMessage { head, data: Some(&[1; LINE]), enables: None };
        assert_eq!(serve(Some((0, memory)), &poison), done());
        assert!(read(memory, 0).0);
        for enables in [1, u64::MAX] {
            assert_eq!(ask(memory, MemOp::MemWrPtl, 0, Some(9), Some(enables)), done());
            assert!(read(memory, 0).0, "{enables:#x}");
        }
        assert!(!read(memory, 64).0);
        assert_eq!(ask(memory, MemOp::MemWr, 0, Some(8), None), done());
        assert_eq!(read(memory, 0), (false, [8; LINE]));
    }

    /// Without a decoder a load gets ones, a store Cmp, and nothing is written.
    #[test]
    fn what_is_not_there_is_refused() {
        let memory = &mut Memory::anonymous(SIZE);
        let load = MemMessage { head: MemHead::new(MemOp::MemRd, 9), data: None, enables: None };
        let head = MemHead::new(MemOp::MemWr, 9);
        let store = MemMessage { head, data: Some(&[5; LINE]), enables: None };
        assert_eq!(serve(None, &load), Answer::Refused(MemHead::new(MemOp::MemDataNxm, 9)));
        assert_eq!(serve(None, &store), Answer::Refused(MemHead::new(MemOp::Cmp, 9)));
        for op in [MemOp::MemRdFwd, MemOp::MemWrFwd, MemOp::BiConflict] {
            let refused = ask(memory, op, 0, None, None);
            assert!(matches!(refused, Answer::Refused(_)), "{op:?}: {refused:?}");
        }
        for op in [MemOp::Cmp, MemOp::MemData, MemOp::BiSnpInv, MemOp::BiRspI] {
            assert_eq!(ask(memory, op, 0, Some(0), None), Answer::None, "{op:?}");
        }
    }
}
