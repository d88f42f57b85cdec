//! Both sides of proxied commands, with a test for each rule of docs/spec/wire-formats.md §3.8.

use std::collections::BTreeMap;

use weft_base::rng::Rng;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::cci::gae::ProxyCommand;
use weft_parsers::cci::{Header, Opcode, ReturnCode};
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{Mode, VdmOp};

use super::device::{ACTIVE_MAX, GfdProxy, RespondError};
use super::edge::{EdgeOut, HostRead, HostWrite, Outcome, ProxyThreads, READ_TIMEOUT};
use super::*;
use crate::vdm::testing::{Wire, ms, pid, wire_of};

const HOST: Pid = Pid::from_low_bits(0x0A1);
const GFD: Pid = Pid::from_low_bits(0x123);
const REQUEST: u64 = 0x1_0000_0F40; // a page ends 192 bytes behind it
const RESPONSE: u64 = 0x1_0000_8FF0;

fn command(len: u16, room: u16) -> ProxyCommand {
    let (request, response) = (Hpa(REQUEST), Hpa(RESPONSE));
    ProxyCommand { pid: GFD, request, len, response, response_max: room }
}

/// A CCI message of `len` bytes.
fn cci_message(len: usize, salt: u8) -> Vec<u8> {
    let mut message = vec![0; len];
    Header::request(Opcode(0x4900), salt).emit(len - 12, &mut message).unwrap();
    for (k, byte) in message.iter_mut().enumerate().skip(12) {
        *byte = (k as u8).wrapping_mul(31).wrapping_add(salt);
    }
    message
}

/// Messages of a command: operation, `SeqNum`, payload.
type Pieces<'a> = Vec<(VdmOp, u8, &'a [u8])>;

/// All actions that an edge has at `now`.
fn drain(edge: &mut ProxyThreads, now: Instant) -> Vec<EdgeOut> {
    core::iter::from_fn(|| edge.poll(now)).take(10_000).collect()
}

fn drain_gfd(gfd: &mut GfdProxy, now: Instant) -> Vec<Vdm> {
    core::iter::from_fn(|| gfd.poll(now)).take(10_000).collect()
}

fn vdms(outs: &[EdgeOut]) -> Vec<Vdm> {
    outs.iter()
        .filter_map(|out| if let EdgeOut::Vdm(vdm) = out { Some(vdm.clone()) } else { None })
        .collect()
}

fn from_gfd(op: VdmOp, cmd_seq: u8, seq_num: u8, payload: &[u8]) -> Vdm {
    Vdm { cmd_seq, seq_num, ..Vdm::new(GFD, HOST, op) }.with_payload(payload)
}

fn from_host(op: VdmOp, cmd_seq: u8, seq_num: u8, payload: &[u8]) -> Vdm {
    Vdm { cmd_seq, seq_num, ..Vdm::new(HOST, GFD, op) }.with_payload(payload)
}

fn pull(cmd_seq: u8, seq_len: u8) -> Vdm {
    Vdm { seq_len, ..from_gfd(VdmOp::UcPull, cmd_seq, 0, &[]) }
}

fn announce(cmd_seq: u8, seq_len: u8) -> Vdm {
    Vdm { seq_len, ..from_host(VdmOp::DpCmd, cmd_seq, 0, &[]) }
}

/// Answers the reads in `outs`, and those that follow, from `message`; returns all actions.
fn serve(
    edge: &mut ProxyThreads,
    now: Instant,
    outs: Vec<EdgeOut>,
    message: &[u8],
) -> Vec<EdgeOut> {
    let mut padded = message.to_vec();
    padded.resize(message.len().next_multiple_of(4), 0);
    let (mut all, mut todo) = (Vec::new(), outs);
    while !todo.is_empty() {
        for out in &todo {
            if let EdgeOut::Read(read) = out {
                let from = usize::try_from(read.addr.0 - REQUEST).unwrap();
                edge.read_data(now, read.tag, &padded[from..from + read.len]);
            }
        }
        all.append(&mut todo);
        todo = drain(edge, now);
    }
    all
}

/// An edge that has handed a command over and waits for the response.
fn answering(len: usize, room: u16) -> ProxyThreads {
    let mut edge = ProxyThreads::new(HOST, 4);
    edge.start(ms(0), &command(len as u16, room), true).unwrap();
    drain(&mut edge, ms(0));
    edge.receive(ms(0), &pull(1, seq_len(len)), true);
    let outs = drain(&mut edge, ms(0));
    serve(&mut edge, ms(0), outs, &cci_message(len, 1));
    edge
}

fn ended(outs: &[EdgeOut]) -> Vec<Outcome> {
    let outcome = |out: &EdgeOut| match out {
        EdgeOut::Ended { outcome, .. } => Some(*outcome),
        _ => None,
    };
    outs.iter().filter_map(outcome).collect()
}

/// Bytes of docs/spec/wire-formats.md §3.8.
#[test]
fn messages_stand_on_the_wire_as_the_page_has_them() {
    let mut edge = ProxyThreads::new(HOST, 1);
    let mut gfd = GfdProxy::default();
    edge.start(ms(0), &command(256, 256), true).unwrap();
    let [EdgeOut::Vdm(vdm)] = &drain(&mut edge, ms(0))[..] else { panic!() };
    let head = [0x34, 0, 0, 0, 0, 0, 0, 0x7E, 0, 0, 0x1E, 0x98];
    let bytes = wire_of(vdm);
    assert_eq!(bytes[..4], [0xC2, 0x0A, 0x11, 0x23]);
    assert_eq!(bytes[4..], [&head[..], &[0x40, 0x10, 0x00, 0xA0]].concat());
    gfd.receive(ms(0), vdm);
    let [vdm] = &drain_gfd(&mut gfd, ms(0))[..] else { panic!() };
    let bytes = wire_of(vdm);
    assert_eq!(bytes[..4], [0xC2, 0x12, 0x30, 0xA1]);
    assert_eq!(bytes[4..], [&head[..], &[0x40, 0x10, 0x01, 0xA1]].concat());
    edge.receive(ms(0), vdm, true);
    let outs = drain(&mut edge, ms(0));
    let outs = vdms(&serve(&mut edge, ms(0), outs, &cci_message(256, 9)));
    let head = [0x74, 0, 0, 0x20, 0, 0, 0, 0x7E, 0, 0, 0x1E, 0x98];
    assert_eq!(wire_of(&outs[0])[4..20], [&head[..], &[0x00, 0x10, 0x02, 0xA0]].concat());
    assert_eq!(wire_of(&outs[0])[20..32], cci_message(256, 9)[..12]);
    assert_eq!(wire_of(&outs[1])[4..20], [&head[..], &[0x40, 0x11, 0x03, 0xA0]].concat());
    for vdm in &outs {
        gfd.receive(ms(0), vdm);
    }
    let taken = gfd.take().unwrap();
    assert_eq!(
        (taken.message, taken.response_max, taken.ticket.from()),
        (cci_message(256, 9), 256, HOST)
    );
    gfd.respond(ms(0), taken.ticket, &[0xEE; 130]).unwrap();
    let outs = drain_gfd(&mut gfd, ms(0));
    assert_eq!(wire_of(&outs[0])[4..20], [&head[..], &[0x00, 0x10, 0x04, 0xA1]].concat());
    let head = [0x74, 0, 0, 0x01, 0, 0, 0, 0x7E, 0, 0, 0x1E, 0x98];
    let last = [&head[..], &[0x00, 0x11, 0x05, 0xA1, 0xEE, 0xEE, 0, 0]].concat();
    assert_eq!(wire_of(&outs[1])[4..], last);
    for vdm in &outs {
        edge.receive(ms(0), vdm, true);
    }
    assert_eq!(ended(&drain(&mut edge, ms(0))), [Outcome::Done(132)]);
}

#[test]
fn a_command_is_read_in_pieces_of_at_most_128_bytes_within_a_page() {
    for len in [12, 13, 16, 124, 125, 128, 129, 132, 256, 1_000, 1_021, 1_024_usize] {
        let mut edge = ProxyThreads::new(HOST, 1);
        edge.start(ms(0), &command(len as u16, 256), true).unwrap();
        let first = vdms(&drain(&mut edge, ms(0)));
        assert_eq!(announced(first[0].seq_len), len.next_multiple_of(4));
        edge.receive(ms(0), &pull(1, first[0].seq_len), true);
        let outs = drain(&mut edge, ms(0));
        let message = cci_message(len, 3);
        let outs = serve(&mut edge, ms(0), outs, &message);
        let mut at = REQUEST;
        for out in &outs {
            let EdgeOut::Read(HostRead { addr, len, .. }) = out else { continue };
            assert_eq!(addr.0, at);
            assert!(*len <= 128 && len % 4 == 0 && addr.0 % 4_096 + *len as u64 <= 4_096);
            at += *len as u64;
        }
        assert_eq!(at - REQUEST, len.next_multiple_of(4) as u64);
        let pieces = vdms(&outs);
        let (last, others) = pieces.split_last().unwrap();
        assert_eq!((last.op, others.len()), (VdmOp::DcReqLast, (len - 1) / 128));
        assert!(others.iter().all(|vdm| vdm.op == VdmOp::DcReq && vdm.payload.len() == 128));
        let nums: Vec<_> = pieces.iter().map(|vdm| usize::from(vdm.seq_num)).collect();
        assert_eq!(nums, (0..pieces.len()).map(|k| k % 8).collect::<Vec<_>>());
        let bytes: Vec<u8> = pieces.iter().flat_map(|vdm| vdm.payload.clone()).collect();
        assert_eq!(bytes[..len], message, "the first one starts with the CCI header");
    }
}

#[test]
fn commands_that_cannot_be_are_refused() {
    let mut edge = ProxyThreads::new(HOST, 2);
    let good = command(64, 64);
    let other = ProxyCommand { pid: pid(0x124), ..good };
    #[rustfmt::skip] // columns: name, command, in the GMV, return code
    let cases = [
        ("not in the GMV",       good,                                          false, ReturnCode::InvalidInput),
        ("no PID",               ProxyCommand { pid: Pid::NONE, ..good },       true,  ReturnCode::InvalidInput),
        ("longer than 1,024",    ProxyCommand { len: 1_025, ..good },           true,  ReturnCode::InvalidInput),
        ("shorter than a header", ProxyCommand { len: 11, ..good },             true,  ReturnCode::InvalidInput),
        ("no room",              ProxyCommand { response_max: 11, ..good },     true,  ReturnCode::InvalidInput),
        ("odd address",          ProxyCommand { request: Hpa(2), ..good },      true,  ReturnCode::InvalidInput),
        ("address wraps",        ProxyCommand { response: Hpa(!3), ..good },    true,  ReturnCode::InvalidInput),
    ];
    for (name, command, allowed, want) in cases {
        assert_eq!(edge.start(ms(0), &command, allowed), Err(want), "{name}");
        assert_eq!((edge.free(), edge.poll(ms(0))), (2, None), "{name}: nothing changed");
    }
    let started = edge.start(ms(0), &good, true).unwrap();
    assert_eq!((started.seq.get(), started.free), (1, 1));
    assert_eq!(edge.start(ms(0), &good, true), Err(ReturnCode::Busy), "one for each GFD");
    edge.start(ms(0), &other, true).unwrap();
    let third = ProxyCommand { pid: pid(0x125), ..good };
    assert_eq!(edge.start(ms(0), &third, true), Err(ReturnCode::ResourcesExhausted));
    assert!(edge.status(GFD, 1).running && !edge.status(GFD, 2).running);
    assert_eq!(edge.status(GFD, 1).free, 0);
}

#[test]
fn a_second_dpcmd_of_the_pair_aborts_the_first() {
    let whole = cci_message(64, 1);
    // State of the first command: announced, half pulled, ready, executing, half answered.
    for progress in 0..5 {
        let mut gfd = GfdProxy::default();
        let len = if progress == 1 { 64 } else { 16 };
        gfd.receive(ms(0), &announce(1, len));
        let mut ticket = None;
        if progress == 1 {
            gfd.receive(ms(0), &from_host(VdmOp::DcReq, 1, 0, &[0; 128]));
        } else if progress > 1 {
            gfd.receive(ms(0), &from_host(VdmOp::DcReqLast, 1, 0, &whole));
        }
        if progress > 2 {
            ticket = gfd.take().map(|command| command.ticket);
        }
        if progress > 3 {
            gfd.respond(ms(0), ticket.unwrap(), &[7; 300]).unwrap();
            while gfd.poll(ms(0)).unwrap().op != VdmOp::UcRsp {}
        }
        drain_pulls(&mut gfd);
        gfd.receive(ms(1), &announce(2, 16));
        assert_eq!(gfd.counts().aborted, 1, "{progress}");
        let outs = drain_gfd(&mut gfd, ms(1));
        assert_eq!(
            outs.iter().map(|vdm| (vdm.op, vdm.cmd_seq)).collect::<Vec<_>>(),
            [(VdmOp::UcPull, 2)]
        );
        if let Some(ticket) = ticket {
            assert_eq!(gfd.respond(ms(1), ticket, &[1]), Err(RespondError::Gone), "{progress}");
        }
        gfd.receive(ms(1), &from_host(VdmOp::DcReqLast, 2, 0, &whole));
        let second = gfd.take().unwrap();
        assert_eq!((second.message, gfd.take()), (whole.clone(), None), "{progress}");
        gfd.respond(ms(1), second.ticket, &[1; 4]).unwrap();
        assert_eq!(drain_gfd(&mut gfd, ms(1)).len(), 1);
        // A command of another pair aborts nothing.
        gfd.receive(ms(1), &announce(3, 16));
        let mut other = announce(3, 16);
        other.pth.spid = pid(0x0A2);
        gfd.receive(ms(1), &other);
        assert_eq!(gfd.counts().aborted, 1, "{progress}");
    }
}

fn drain_pulls(gfd: &mut GfdProxy) {
    while gfd.clone().poll(ms(0)).is_some_and(|vdm| vdm.op == VdmOp::UcPull) {
        gfd.poll(ms(0));
    }
}

#[test]
fn a_stale_cmd_seq_is_dropped_and_logged() {
    let mut edge = answering(64, 64);
    for op in [VdmOp::UcPull, VdmOp::UcRsp, VdmOp::UcRspLast, VdmOp::UcRspFail] {
        edge.receive(ms(1), &from_gfd(op, 7, 0, &[1; 128]), true);
        assert_eq!(drain(&mut edge, ms(1)), [], "{op:?}");
        let want = Stale { from: GFD, op, cmd_seq: 7, active: Some(1) };
        assert_eq!(edge.stale_log().last(), Some(&want));
    }
    edge.receive(ms(1), &pull(1, 16), true);
    assert_eq!((drain(&mut edge, ms(1)), edge.stale()), (vec![], 5), "pulled already");
    edge.receive(ms(1), &from_gfd(VdmOp::UcRspLast, 1, 0, &[1; 4]), true);
    assert_eq!(ended(&drain(&mut edge, ms(1))), [Outcome::Done(4)]);
    edge.receive(ms(1), &from_gfd(VdmOp::UcRspLast, 1, 0, &[1; 4]), true);
    assert_eq!((drain(&mut edge, ms(1)), edge.stale()), (vec![], 6), "twice");
    let mut gfd = GfdProxy::default();
    gfd.receive(ms(0), &announce(1, 16));
    drain_gfd(&mut gfd, ms(0));
    for op in [VdmOp::DcReq, VdmOp::DcReqLast, VdmOp::DcReqFail] {
        gfd.receive(ms(0), &from_host(op, 0, 0, &[1; 64]));
        let want = Stale { from: HOST, op, cmd_seq: 0, active: Some(1) };
        assert_eq!(drain_gfd(&mut gfd, ms(0)), []);
        assert_eq!(gfd.stale_log().last(), Some(&want));
    }
    for _ in 0..1_000 {
        gfd.receive(ms(0), &from_host(VdmOp::DcReqFail, 5, 0, &[]));
        edge.receive(ms(1), &pull(5, 16), true);
    }
    assert_eq!(gfd.stale_log().count(), LOG_MAX);
    assert_eq!(edge.stale_log().count(), LOG_MAX);
    assert_eq!((gfd.stale(), edge.stale()), (1_003, 1_006));
}

#[test]
fn a_gfd_not_in_the_gmv_gets_no_command_and_its_response_is_dropped() {
    let mut edge = ProxyThreads::new(HOST, 1);
    edge.start(ms(0), &command(64, 64), true).unwrap();
    drain(&mut edge, ms(0));
    edge.receive(ms(0), &pull(1, 16), false);
    let outs = drain(&mut edge, ms(0));
    let bytes = wire_of(&vdms(&outs)[0]);
    assert_eq!(bytes[16..], [0x00, 0x10, 0x08, 0xA0]);
    assert_eq!((outs.len(), ended(&outs), edge.free()), (2, vec![Outcome::NotAllowed], 1));
    edge.receive(ms(0), &pull(6, 16), false);
    assert_eq!(vdms(&drain(&mut edge, ms(0)))[0].op, VdmOp::DcReqFail, "nobody asked it either");
    for op in [VdmOp::UcRsp, VdmOp::UcRspLast] {
        let mut edge = answering(64, 256);
        edge.receive(ms(0), &from_gfd(op, 1, 0, &[1; 128]), false);
        let outs = drain(&mut edge, ms(0));
        assert_eq!(
            (outs.len(), ended(&outs)),
            (1, vec![Outcome::NotAllowed]),
            "nothing is written"
        );
    }
    // The device forgets the command.
    let mut gfd = GfdProxy::default();
    gfd.receive(ms(0), &announce(1, 16));
    drain_gfd(&mut gfd, ms(0));
    gfd.receive(ms(0), &from_host(VdmOp::DcReqFail, 1, 0, &[]));
    assert_eq!((gfd.counts().aborted, gfd.next_due(), gfd.stale()), (1, None, 0));
    assert_eq!(drain_gfd(&mut gfd, ms(9_000)), []);
}

#[test]
fn a_cancelled_thread_is_free_and_what_still_comes_is_stale() {
    let mut edge = ProxyThreads::new(HOST, 2);
    edge.start(ms(0), &command(64, 64), true).unwrap();
    drain(&mut edge, ms(0));
    assert_eq!(edge.cancel(GFD, 2), Err(ReturnCode::InvalidInput));
    assert_eq!(edge.cancel(GFD, 1), Ok(2));
    assert_eq!(edge.cancel(GFD, 1), Err(ReturnCode::InvalidInput));
    let outs = drain(&mut edge, ms(0));
    assert_eq!((outs.len(), vdms(&outs)[0].op), (1, VdmOp::DcReqFail));
    let next = edge.start(ms(1), &command(64, 64), true).unwrap();
    assert_eq!(next.seq.get(), 2, "the next one has another number");
    drain(&mut edge, ms(1));
    edge.receive(ms(1), &pull(1, 16), true);
    assert_eq!((drain(&mut edge, ms(1)), edge.stale()), (vec![], 1));
    // A completion for the read of a cancelled thread does not match the next thread's read.
    edge.receive(ms(1), &pull(2, 16), true);
    let outs = drain(&mut edge, ms(1));
    let EdgeOut::Read(old) = &outs[0] else { panic!() };
    edge.cancel(GFD, 2).unwrap();
    edge.start(ms(1), &command(64, 64), true).unwrap();
    edge.receive(ms(1), &pull(3, 16), true);
    let outs = drain(&mut edge, ms(1));
    let Some(EdgeOut::Read(new)) = outs.last() else { panic!() };
    assert_ne!(old.tag, new.tag);
    edge.read_data(ms(1), old.tag, &[0xBB; 64]);
    edge.read_failed(old.tag);
    assert_eq!((drain(&mut edge, ms(1)), edge.counts().unexpected), (vec![], 2));
    // A GFD that has the complete command gets no `DCReq-Fail`.
    let mut edge = answering(64, 64);
    edge.cancel(GFD, 1).unwrap();
    assert_eq!(drain(&mut edge, ms(1)), []);
}

#[test]
fn memory_that_cannot_be_read_is_a_dcreq_fail() {
    for how in 0..3 {
        let mut edge = ProxyThreads::new(HOST, 1);
        edge.start(ms(0), &command(256, 64), true).unwrap();
        drain(&mut edge, ms(0));
        edge.receive(ms(0), &pull(1, 64), true);
        let outs = drain(&mut edge, ms(0));
        let EdgeOut::Read(read) = &outs[0] else { panic!() };
        match how {
            0 => edge.read_failed(read.tag),
            1 => edge.read_data(ms(0), read.tag, &[0; 132]),
            _ => assert_eq!(edge.next_due(), Some(Instant::ZERO + READ_TIMEOUT)),
        }
        let outs = drain(&mut edge, Instant::ZERO + READ_TIMEOUT);
        assert_eq!(vdms(&outs)[0].op, VdmOp::DcReqFail, "{how}");
        assert_eq!((ended(&outs), edge.free()), (vec![Outcome::HostMemory], 1), "{how}");
    }
    // A read may be completed in several parts.
    let mut edge = ProxyThreads::new(HOST, 1);
    edge.start(ms(0), &command(64, 64), true).unwrap();
    edge.receive(ms(0), &pull(1, 16), true);
    let outs = drain(&mut edge, ms(0));
    let Some(EdgeOut::Read(read)) = outs.last() else { panic!() };
    edge.read_data(ms(0), read.tag, &cci_message(64, 0)[..20]);
    assert_eq!(drain(&mut edge, ms(0)), []);
    edge.read_data(ms(0), read.tag, &cci_message(64, 0)[20..]);
    assert_eq!(vdms(&drain(&mut edge, ms(0)))[0].payload[..], cci_message(64, 0));
}

#[test]
fn responses_end_as_they_came() {
    #[rustfmt::skip] // columns: name, room, messages (op, SeqNum, bytes), outcome, bytes written
    let cases = [
        ("one piece",       64,  vec![(VdmOp::UcRspLast, 0, 64)],                            Outcome::Done(64),  64),
        ("odd room",        62,  vec![(VdmOp::UcRspLast, 0, 64)],                            Outcome::Done(62),  62),
        ("two pieces",      200, vec![(VdmOp::UcRsp, 0, 128), (VdmOp::UcRspLast, 1, 8)],     Outcome::Done(136), 136),
        ("fail",            64,  vec![(VdmOp::UcRspFail, 0, 0)],                             Outcome::Failed,    0),
        ("fail in between", 200, vec![(VdmOp::UcRsp, 0, 128), (VdmOp::UcRspFail, 0, 0)],     Outcome::Failed,    128),
        ("lost piece",      400, vec![(VdmOp::UcRsp, 0, 128), (VdmOp::UcRsp, 2, 128)],       Outcome::Sequence,  128),
        ("piece twice",     400, vec![(VdmOp::UcRsp, 0, 128), (VdmOp::UcRsp, 0, 128)],       Outcome::Sequence,  128),
        ("too long",        60,  vec![(VdmOp::UcRspLast, 0, 64)],                            Outcome::Overrun,   60),
        ("longer still",    130, vec![(VdmOp::UcRsp, 0, 128), (VdmOp::UcRsp, 1, 128)],       Outcome::Overrun,   130),
    ];
    for (name, room, messages, want, bytes) in cases {
        let mut edge = answering(64, room);
        for (op, num, len) in messages {
            edge.receive(ms(1), &from_gfd(op, 1, num, &vec![0xA5; len]), true);
        }
        let outs = drain(&mut edge, ms(1));
        assert_eq!((ended(&outs), edge.free()), (vec![want], 4), "{name}");
        let mut at = RESPONSE;
        for out in &outs[..outs.len() - 1] {
            let EdgeOut::Write(HostWrite { addr, len, data }) = out else {
                panic!("{name}: {out:?}")
            };
            assert_eq!((addr.0, data.len()), (at, len.next_multiple_of(4)), "{name}");
            assert!(addr.0 % 4_096 + *len as u64 <= 4_096, "{name}");
            at += *len as u64;
        }
        assert_eq!(at - RESPONSE, bytes, "{name}");
    }
}

#[test]
fn a_side_that_falls_silent_is_given_up() {
    let over = Instant::ZERO + PARTNER_TIMEOUT;
    let mut edge = ProxyThreads::new(HOST, 1);
    edge.start(ms(0), &command(64, 64), true).unwrap();
    drain(&mut edge, ms(0));
    assert_eq!((edge.next_due(), edge.poll(over - Span::from_ps(1))), (Some(over), None));
    assert_eq!(ended(&drain(&mut edge, over)), [Outcome::TimedOut]);
    let mut edge = answering(64, 64);
    assert_eq!(ended(&drain(&mut edge, over)), [Outcome::TimedOut]);
    let mut gfd = GfdProxy::default();
    gfd.receive(ms(0), &announce(1, 64));
    drain_gfd(&mut gfd, ms(0));
    assert_eq!((gfd.next_due(), gfd.poll(over - Span::from_ps(1))), (Some(over), None));
    let outs = drain_gfd(&mut gfd, over);
    assert_eq!(outs.iter().map(|vdm| vdm.op).collect::<Vec<_>>(), [VdmOp::UcRspFail]);
    assert_eq!(gfd.next_due(), None);
}

#[test]
fn commands_that_come_wrong_are_a_ucrsp_fail() {
    let whole = cci_message(132, 1);
    let mut longer = whole.clone();
    longer[5] = 200;
    let mut kind = whole.clone();
    kind[0] = 9;
    #[rustfmt::skip] // columns: name, SeqLen, messages
    let cases: [(&str, u8, Pieces<'_>); 7] = [
        ("first is not 0", 33, vec![(VdmOp::DcReq, 1, &whole[..128])]),
        (
            "one lost",
            65,
            vec![(VdmOp::DcReq, 0, &whole[..128]), (VdmOp::DcReqLast, 2, &whole[128..])],
        ),
        ("one twice", 65, vec![(VdmOp::DcReq, 0, &whole[..128]), (VdmOp::DcReq, 0, &whole[..128])]),
        (
            "too short",
            34,
            vec![(VdmOp::DcReq, 0, &whole[..128]), (VdmOp::DcReqLast, 1, &whole[128..])],
        ),
        ("too long", 32, vec![(VdmOp::DcReq, 0, &whole[..128])]),
        (
            "other CCI length",
            33,
            vec![(VdmOp::DcReq, 0, &longer[..128]), (VdmOp::DcReqLast, 1, &longer[128..])],
        ),
        (
            "no CCI header",
            33,
            vec![(VdmOp::DcReq, 0, &kind[..128]), (VdmOp::DcReqLast, 1, &kind[128..])],
        ),
    ];
    for (name, seq_len, messages) in cases {
        let mut gfd = GfdProxy::default();
        gfd.receive(ms(0), &announce(1, seq_len));
        drain_gfd(&mut gfd, ms(0));
        for (op, num, bytes) in messages {
            gfd.receive(ms(0), &from_host(op, 1, num, bytes));
        }
        let outs = drain_gfd(&mut gfd, ms(0));
        assert_eq!(outs.iter().map(|vdm| vdm.op).collect::<Vec<_>>(), [VdmOp::UcRspFail], "{name}");
        assert_eq!((gfd.take(), gfd.counts().failed), (None, 1), "{name}");
    }
    let mut gfd = GfdProxy::default();
    gfd.receive(ms(0), &announce(1, 3));
    gfd.receive(
        ms(0),
        &Vdm { seq_len: 2, ..from_host(VdmOp::DcReqLast, 1, 0, &cci_message(12, 0)) },
    );
    let taken = gfd.take().unwrap();
    assert_eq!(
        gfd.respond(ms(0), taken.ticket, &[0; 9]),
        Err(RespondError::Size { had: 9, most: 8 })
    );
    assert_eq!(drain_gfd(&mut gfd, ms(0)).last().map(|vdm| vdm.op), Some(VdmOp::UcRspFail));
}

/// With more hosts than active commands the others wait in order, and all are served.
#[test]
fn a_device_pulls_as_many_as_it_can_hold() {
    let mut gfd = GfdProxy::default();
    let message = cci_message(64, 1);
    for host in 0..5_000 {
        gfd.receive(ms(0), &Vdm { seq_len: 16, ..Vdm::new(pid(host % 4_095), GFD, VdmOp::DpCmd) });
    }
    let mut served = Vec::new();
    for _ in 0..4_095 {
        let pulls = drain_gfd(&mut gfd, ms(0));
        assert!(pulls.len() <= ACTIVE_MAX + 905, "{}", pulls.len());
        for vdm in pulls.iter().filter(|vdm| vdm.op == VdmOp::UcPull) {
            let last = Vdm::new(vdm.pth.dpid, GFD, VdmOp::DcReqLast).with_payload(&message);
            gfd.receive(ms(0), &last);
        }
        let Some(command) = gfd.take() else { break };
        served.push(command.ticket.from().bits());
        gfd.refuse(ms(0), command.ticket).unwrap();
    }
    served.sort_unstable();
    assert_eq!(served, (0..4_095).collect::<Vec<_>>());
}

/// A device's response to `message`, which depends on every byte.
fn answer(message: &[u8], most: usize) -> Vec<u8> {
    let len = 12 + message.iter().map(|&byte| usize::from(byte)).sum::<usize>() % 900;
    (0..len.min(most)).map(|k| message[k % message.len()] ^ k as u8).collect()
}

struct Model {
    edges: Vec<ProxyThreads>,
    gfd: GfdProxy,
    up: Vec<Wire>,
    down: Vec<Wire>,
    memory: Vec<BTreeMap<u64, u8>>,
    wanted: Vec<Option<Vec<u8>>>,
    outcomes: Vec<Outcome>,
    rng: Rng,
}

impl Model {
    fn new(seed: u64, drop: u64, twice: u64) -> Self {
        let wires =
            |salt| (0..3).map(|k| Wire::new(seed * 8 + k + salt, drop, twice, 5_000_000)).collect();
        Self {
            edges: (0..3).map(|k| ProxyThreads::new(pid(k + 1), 2)).collect(),
            gfd: GfdProxy::default(),
            up: wires(0),
            down: wires(4),
            memory: vec![BTreeMap::new(); 3],
            wanted: vec![None; 3],
            outcomes: Vec::new(),
            rng: Rng::new(seed),
        }
    }

    fn start(&mut self, host: usize, now: Instant) {
        let len = 12 + self.rng.below(1_013) as usize;
        let room = 12 + self.rng.below(1_013) as u16;
        if self.edges[host].start(now, &command(len as u16, room), true).is_ok() {
            let message = cci_message(len, self.rng.next_u64() as u8);
            self.memory[host].clear();
            self.memory[host]
                .extend(message.iter().enumerate().map(|(k, &o)| (REQUEST + k as u64, o)));
            self.wanted[host] = Some(answer(&message, usize::from(room)));
        }
    }

    fn step(&mut self, now: Instant) {
        for host in 0..3 {
            while let Some(vdm) = self.up[host].recv(now) {
                self.edges[host].receive(now, &vdm, true);
            }
            while let Some(out) = self.edges[host].poll(now) {
                self.act(host, now, out);
            }
            while let Some(vdm) = self.down[host].recv(now) {
                self.gfd.receive(now, &vdm);
            }
        }
        while let Some(command) = self.gfd.take() {
            let response = answer(&command.message, command.response_max);
            self.gfd.respond(now, command.ticket, &response).unwrap();
        }
        while let Some(vdm) = self.gfd.poll(now) {
            self.up[usize::from(vdm.pth.dpid.bits()) - 1].send(now, &vdm);
        }
    }

    fn act(&mut self, host: usize, now: Instant, out: EdgeOut) {
        let id = Bdf::new(0, 1, 0);
        let mut bytes = [0; 256];
        match out {
            EdgeOut::Vdm(vdm) => self.down[host].send(now, &vdm),
            EdgeOut::Read(read) => {
                read.repr(Mode::Flit, id).emit(&mut bytes).expect("a good TLP");
                let at = read.addr.0..read.addr.0 + read.len as u64;
                let data: Vec<u8> =
                    at.map(|a| self.memory[host].get(&a).copied().unwrap_or(0)).collect();
                self.edges[host].read_data(now, read.tag, &data);
            }
            EdgeOut::Write(write) => {
                for mode in [Mode::Flit, Mode::NonFlit] {
                    write.repr(mode, id).emit(&mut bytes).expect("a good TLP");
                }
                for (k, &byte) in write.data[..write.len].iter().enumerate() {
                    self.memory[host].insert(write.addr.0 + k as u64, byte);
                }
            }
            EdgeOut::Ended { pid, outcome, .. } => {
                assert_eq!(pid, GFD);
                self.outcomes.push(outcome);
                let want = self.wanted[host].take().expect("it ends once");
                if let Outcome::Done(len) = outcome {
                    assert!(usize::from(len) >= want.len() && usize::from(len) < want.len() + 4);
                    let got: Vec<u8> = (0..want.len() as u64)
                        .map(|k| self.memory[host].get(&(RESPONSE + k)).copied().unwrap_or(0))
                        .collect();
                    assert_eq!(got, want);
                }
            }
        }
    }
}

/// Three hosts and one device. Without losses every command is answered; with losses and doubles each is answered
/// correctly or fails, and all threads are free in the end.
#[test]
fn hosts_get_their_own_answers_or_an_error() {
    for seed in 0..60 {
        let (drop, twice) = [(0, 0), (0, 0), (20, 20)][seed as usize % 3];
        let mut model = Model::new(seed, drop, twice);
        for t in 0..6_000 {
            let now = ms(t);
            for host in 0..3 {
                if t < 3_000 && model.rng.chance(1, 50) {
                    model.start(host, now);
                }
                if t < 3_000 && model.wanted[host].is_some() && model.rng.chance(1, 400) {
                    let running = (0..8).find(|&seq| model.edges[host].status(GFD, seq).running);
                    model.edges[host].cancel(GFD, running.unwrap()).unwrap();
                    model.wanted[host] = None;
                }
            }
            model.step(now);
        }
        let done = model.outcomes.iter().filter(|o| matches!(o, Outcome::Done(_))).count();
        assert!(done > 20, "seed {seed}: {done}");
        if drop == 0 {
            assert_eq!(done, model.outcomes.len(), "seed {seed}: {:?}", model.outcomes);
        }
        assert!(model.edges.iter().all(|edge| edge.free() == 2), "seed {seed}");
        assert!(model.wanted.iter().all(Option::is_none), "seed {seed}");
        assert_eq!(model.gfd.next_due(), None, "seed {seed}");
    }
}

/// Random messages: nothing is written outside the response buffer, and memory stays bounded without any poll.
#[test]
fn any_messages_in_any_order() {
    let mut rng = Rng::new(77);
    for _ in 0..40 {
        let mut edge = ProxyThreads::new(HOST, 2);
        let mut gfd = GfdProxy::default();
        for step in 0..2_000 {
            let now = ms(step);
            let op = VdmOp::ALL[rng.below(19) as usize];
            let payload = vec![rng.next_u64() as u8 & 1; rng.below(33) as usize * 4];
            let vdm = Vdm {
                seq_len: rng.below(40) as u8,
                cmd_seq: rng.below(8) as u8,
                seq_num: rng.below(2) as u8,
                ..Vdm::new(GFD, HOST, op)
            };
            edge.receive(now, &vdm.clone().with_payload(&payload), rng.chance(9, 10));
            let mut vdm = vdm.with_payload(&payload);
            (vdm.pth.spid, vdm.pth.dpid) = (HOST, GFD);
            gfd.receive(now, &vdm);
            match rng.below(4) {
                0 => drop(edge.start(
                    now,
                    &command(12 + rng.below(200) as u16, 12 + rng.below(300) as u16),
                    true,
                )),
                1 => drop(edge.cancel(GFD, rng.below(8) as u8)),
                2 => edge.read_data(now, (rng.below(64) << 4) as u16, &payload),
                _ => drop(gfd.take()),
            }
        }
        let outs = drain(&mut edge, ms(2_000));
        assert!(outs.len() < 1_200, "{}", outs.len());
        for out in outs {
            if let EdgeOut::Write(HostWrite { addr, len, .. }) = out {
                assert!(addr.0 >= RESPONSE && addr.0 + len as u64 <= RESPONSE + 312);
            }
        }
        assert!(drain_gfd(&mut gfd, ms(2_000)).len() <= 1_100);
    }
}
