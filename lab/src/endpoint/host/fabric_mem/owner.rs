//! The component whose memory an engine moves: a host, or function 0 of a device.
//!
//! An [`Owner`] sends requests for mailboxes and drives the engine; [`Work`] bounds the engine's work.
//!
//! Source: docs/fabric-memory.md; docs/spec/cxl-fabric.md "Fabric memory transfers".

use weft_cxl::completer::Target;
use weft_cxl::cxl_device::CxlDevice;
use weft_cxl::cxl_host::CxlHost;
use weft_cxl::fabric_mem::{Answer, Body, Completion, Engine, NotTaken, Request, Tag, UioPort};
use weft_cxl::pci::{Function, Tree};
use weft_cxl::requester::{OpId, Operation};
use weft_dataplane::time::Instant;

use super::memory::{Counting, Memories};

/// Bounds for the engine's work.
#[derive(Debug)]
pub struct Work {
    /// First address and length of the fabric window.
    pub fabric: (u64, u64),
    /// Memory from this address on is the engine's own.
    pub hidden: u64,
    /// First address and length of ranges that get no requests for now.
    pub held: Vec<(u64, u64)>,
    /// Requests that the requester may have in flight for the engine.
    pub pending_max: usize,
}

/// Result of driving an engine: time of its next action, and number of requests submitted.
pub type Did = (Option<Instant>, usize);

/// A host or device with an engine.
pub trait Owner {
    /// Whether it may send requests.
    fn may_send(&self) -> bool;
    /// Sends a request for a mailbox; `None` if it may not send now.
    fn submit(&mut self, what: Operation) -> Option<OpId>;
    /// Calls `with` with its memory.
    fn own(&mut self, with: &mut dyn FnMut(&mut dyn Target));
    /// The tree of its last enumeration, if it enumerates.
    fn tree(&self) -> Option<&Tree>;
    /// Whether an enumeration is in progress.
    fn is_enumerating(&self) -> bool;
    /// Polls the engine.
    fn drive(&mut self, now: Instant, engine: &mut Engine, work: Work) -> Did;

    /// Writes `data` to its memory, or reads `len` bytes; missing memory reads as zeros.
    fn access(&mut self, addr: u64, data: Option<&[u8]>, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.own(&mut |own| match data {
            Some(data) => drop(own.write(addr, data)),
            None => drop(own.read(addr, &mut bytes)),
        });
        bytes
    }
}

impl Owner for CxlHost {
    fn may_send(&self) -> bool {
        true
    }

    fn submit(&mut self, what: Operation) -> Option<OpId> {
        Some(Self::submit(self, what))
    }

    fn own(&mut self, with: &mut dyn FnMut(&mut dyn Target)) {
        let (_, mut own) = self.uio(0);
        with(&mut own);
    }

    fn tree(&self) -> Option<&Tree> {
        Self::tree(self)
    }

    fn is_enumerating(&self) -> bool {
        Self::is_enumerating(self)
    }

    fn drive(&mut self, now: Instant, engine: &mut Engine, work: Work) -> Did {
        let Work { fabric, hidden, held, pending_max } = work;
        let (port, mut own) = self.uio(pending_max);
        let mut port = Counting { port, sent: 0, held };
        let mut memories = Memories { own: &mut own, fabric, device: None, hidden };
        let next = engine.poll(now, &mut port, &mut memories).unwrap_or_default();
        (next, port.sent)
    }
}

/// The function of a device that has the engine.
const FUNCTION: u8 = 0;

impl Owner for CxlDevice {
    fn may_send(&self) -> bool {
        self.function(FUNCTION).is_ok_and(Function::is_master)
    }

    fn submit(&mut self, what: Operation) -> Option<OpId> {
        Self::submit(self, FUNCTION, what).ok()
    }

    fn own(&mut self, with: &mut dyn FnMut(&mut dyn Target)) {
        if let Ok(mut own) = self.own_memory(FUNCTION) {
            with(&mut own);
        }
    }

    fn tree(&self) -> Option<&Tree> {
        None
    }

    fn is_enumerating(&self) -> bool {
        false
    }

    fn drive(&mut self, now: Instant, engine: &mut Engine, work: Work) -> Did {
        let Work { fabric, hidden, held, pending_max } = work;
        let mut deferred = Deferred::default();
        if let Ok(mut port) = self.uio(FUNCTION, pending_max) {
            // The port borrows the whole device, its memory too, so completions are collected first.
            deferred.room = port.room();
            port.poll(now, &mut |completion| deferred.came.push(Came::of(&completion)));
        }
        // Bus Master Enable was cleared: the engine must not queue requests that cannot leave.
        if !self.may_send() {
            deferred.room = 0;
        }
        let mut port = Counting { port: deferred, sent: 0, held };
        let mut next = None;
        self.own(&mut |own| {
            let mut memories = Memories { own, fabric, device: None, hidden };
            next = engine.poll(now, &mut port, &mut memories).unwrap_or_default();
        });
        let sent = port.sent;
        for (request, data) in port.port.asked {
            let Ok(mut uio) = self.uio(FUNCTION, pending_max) else { break };
            let mut fill = |place: &mut [u8]| {
                place.copy_from_slice(&data);
                true
            };
            // Cannot fail: there was room, and the data is complete.
            let _ = uio.submit(now, request, &mut fill);
        }
        (next, sent)
    }
}

/// A completion with a copy of its data.
struct Came {
    tag: Tag,
    data: Option<(u64, Vec<u8>, bool)>,
    other: Answer<'static>,
}

impl Came {
    fn of(completion: &Completion<'_>) -> Self {
        let (data, other) = match completion.answer {
            Answer::Data { offset, data, poisoned } => {
                (Some((offset, data.to_vec(), poisoned)), Answer::Written)
            }
            Answer::Written => (None, Answer::Written),
            Answer::Unsupported => (None, Answer::Unsupported),
            Answer::Aborted => (None, Answer::Aborted),
        };
        Self { tag: completion.tag, data, other }
    }
}

/// The port of a device's engine. The device holds memory and requester together, so requests are kept until the engine
/// has released the memory.
#[derive(Default)]
struct Deferred {
    room: usize,
    came: Vec<Came>,
    asked: Vec<(Request, Vec<u8>)>,
}

impl UioPort for Deferred {
    fn submit(
        &mut self,
        _: Instant,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), NotTaken> {
        if self.asked.len() >= self.room {
            return Err(NotTaken::Full);
        }
        let mut data = match request.body {
            Body::Read(_) => Vec::new(),
            Body::Write(len) => vec![0; len],
        };
        if !data.is_empty() && !fill(&mut data) {
            return Err(NotTaken::Unfilled);
        }
        self.asked.push((request, data));
        Ok(())
    }

    fn poll(&mut self, _: Instant, each: &mut dyn FnMut(Completion<'_>)) {
        for Came { tag, data, other } in self.came.drain(..) {
            let answer = match &data {
                Some((offset, data, poisoned)) => {
                    Answer::Data { offset: *offset, data, poisoned: *poisoned }
                }
                None => other,
            };
            each(Completion { tag, answer });
        }
    }
}
