//! Control of the quality of service as requesters see it: a backlog, commands 490Eh and 490Fh, and the load in
//! answers.
//!
//! Source: docs/spec/wire-formats.md §4.7 (490E to 4912); CXL 3.1 section 3.3.4.

use super::*;
use crate::cci::{Served, Session, serve};
use crate::mem::{MemOperation, MemRequester, MemSpec};
use weft_parsers::cxl_mem::MemMessage;

impl Bench {
    /// Return code and payload of a command of the manager.
    fn command(&mut self, opcode: u16, payload: &[u8]) -> (u16, Vec<u8>) {
        let ([low, high], [len, ..]) = (opcode.to_le_bytes(), payload.len().to_le_bytes());
        let message = [&[0, 9, 0, low, high, len, 0, 0, 0, 0, 0, 0][..], payload].concat();
        let mut out = Vec::new();
        let (device, session) = (&mut self.gfd.core.device, Session::Fm(0));
        assert_eq!(serve(device, self.now, session, &message, &mut out), Served::Response);
        (u16::from_le_bytes([out[8], out[9]]), out[12..].to_vec())
    }

    /// Sends loads and carries them out, without receiving the answers yet.
    fn loads_unread(&mut self, requester: &mut MemRequester) {
        let Self { gfd, host, ports: [near, far], bufs, now, .. } = self;
        let mut sent = Vec::new();
        requester.flush(*now, &mut |message| sent.push(message.head));
        for head in sent {
            let message = MemMessage { head, data: None, enables: None };
            host.outbox().send_mem(Some(Pth::new(HOST, GFD)), &message).unwrap();
            host.flush(*now, far, bufs).unwrap();
            gfd.poll(*now, near, bufs).unwrap();
        }
    }
}

/// Highest load reported for `lines` loads whose answers wait, under this control, and the requester's level of
/// throttling.
fn told(control: [u8; 7], lines: usize) -> (DevLoad, u8) {
    let mut bench = Bench::new();
    let uuid: Vec<u8> = (0x10..0x20).collect();
    assert_eq!(bench.command(0x0701, &[&[0, 1, 0][..], &uuid, &[0x10, 0]].concat()).0, 0);
    assert_eq!(bench.command(0x490F, &control), (0, control.to_vec()));
    assert_eq!(bench.command(0x490E, &[]), (0, control.to_vec()));
    let spec = MemSpec { in_flight_max: 1_000, timeout: Span::from_ms(1) };
    let mut requester = MemRequester::new(spec);
    requester.submit(MemOperation::Load { addr: Hpa(BASE), len: 64 * lines });
    bench.loads_unread(&mut requester);
    let (code, percent) = bench.command(0x4910, &[]);
    assert_eq!((code, percent[0] > 5), (0, lines > 400 && control[3] > 0), "{percent:?}");
    for _ in 0..lines {
        bench.step();
    }
    let mut highest = DevLoad::Light;
    for (_, head, data) in bench.lines.drain(..) {
        highest = if head.load as u8 > highest as u8 { head.load } else { highest };
        requester.take(&MemMessage { head, data: data.as_ref(), enables: None });
    }
    assert_eq!(requester.counts().answered, lines as u64, "all are answered");
    (highest, requester.counts().throttle)
}

/// Backpressure is reported as load by the percentages of 490Fh, and requesters throttle; not if the average does not
/// count, is not sampled, or is below.
#[test]
fn qos_control_decides_what_load_is_told_and_requesters_obey() {
    use DevLoad::{Light, ModerateOverload, SevereOverload};
    #[rustfmt::skip] // columns: name; flags, moderate, severe, interval and three that are kept; load and level
    let cases = [
        ("severe",      [1, 2, 3, 8, 0, 0, 64],     (SevereOverload, 64)),
        ("moderate",    [1, 2, 100, 8, 0, 0, 64],   (ModerateOverload, 16)),
        ("below both",  [1, 100, 100, 8, 0, 0, 64], (Light, 0)),
        ("not counted", [0, 2, 3, 8, 0, 0, 64],     (Light, 0)),
        ("not sampled", [1, 2, 3, 0, 0, 0, 64],     (Light, 0)),
    ];
    for (name, control, want) in cases {
        assert_eq!(told(control, 900), want, "{name}");
    }
    assert_eq!(told([1, 2, 3, 8, 0, 0, 64], 1), (Light, 0), "without a backlog");
}
