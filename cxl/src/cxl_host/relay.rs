//! Requests of other hosts for memory of devices below this host: the root complex passes them on, and the answers
//! back.
//!
//! [`Relay::take`] turns a request into transactions of the host's own; [`Relay::ended`] takes their ends, and
//! [`Relay::answer`] sends the completions that are due. Whether a sender may access the memory was decided before. One
//! sender has a bounded number of requests here, so that it cannot delay the others for long; requests beyond that are
//! answered with retry status (RRS).
//!
//! Source: PCIe 6.0 section 1.3.1 (peer-to-peer routing by a root complex is optional); CXL 3.1 section 7.7.3.3;
//! docs/spec/cxl-fabric.md "Fabric memory transfers".

use std::collections::{BTreeMap, VecDeque};

use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{At, Kind, Mode, Status, Tlp};

use crate::completer::{CompleterSpec, Send, Served, clear_disabled, enabled_runs};
use crate::requester::{Done, Failure, OpId, Operation, Requester};

/// Most requests of one sender at a time.
const EACH_MAX: usize = 256;

#[derive(Debug)]
struct Passed {
    from: Pid,
    /// The request as it came.
    tlp: Vec<u8>,
    /// Number of its transactions under way; `result` joins those that have ended.
    left: usize,
    result: Result<Vec<u8>, Failure>,
}

/// Requests passed on to devices below the host.
#[derive(Debug, Default)]
pub(super) struct Relay {
    passed: BTreeMap<u64, Passed>,
    /// Request that each transaction is for.
    ops: BTreeMap<OpId, u64>,
    ended: VecDeque<Passed>,
    each: BTreeMap<Pid, usize>,
    next: u64,
}

impl Relay {
    /// Passes a UIO request of `from` on to address `addr`.
    ///
    /// # Errors
    /// The status to answer it with.
    pub(super) fn take(
        &mut self,
        from: Pid,
        tlp: &Tlp<'_>,
        addr: u64,
        requester: &mut Requester,
    ) -> Result<(), Status> {
        let is_reserved = matches!(tlp.at(), At::TranslationRequest | At::Reserved);
        if is_reserved || tlp.ep() {
            return Err(Status::UnsupportedRequest);
        }
        let under_way = self.each.entry(from).or_default();
        if *under_way >= EACH_MAX {
            return Err(Status::RequestRetry);
        }
        *under_way += 1;
        let operations = operations(tlp, addr);
        let (number, left) = (self.next, operations.len());
        self.next += 1;
        let passed = Passed { from, tlp: tlp.bytes().to_vec(), left, result: Ok(Vec::new()) };
        // A write without enabled bytes reaches no memory, and succeeds.
        if left == 0 {
            self.ended.push_back(passed);
            return Ok(());
        }
        for operation in operations {
            self.ops.insert(requester.submit(operation.into()), number);
        }
        self.passed.insert(number, passed);
        Ok(())
    }

    /// Takes the end of a transaction of its own; returns any other.
    pub(super) fn ended(&mut self, done: Done) -> Option<Done> {
        let Some(number) = self.ops.remove(&done.op) else { return Some(done) };
        let passed = self.passed.get_mut(&number)?;
        passed.left = passed.left.saturating_sub(1);
        match done.result {
            Ok(data) if passed.result.is_ok() && !data.is_empty() => passed.result = Ok(data),
            // A single failed run fails the request, which has one status.
            Err(failure) => passed.result = Err(failure),
            Ok(_) => {}
        }
        if passed.left == 0 {
            self.ended.extend(self.passed.remove(&number));
        }
        None
    }

    /// Sends the completion of a request that is done, as `completer`. Returns its outcome, or `None` if none is done.
    pub(super) fn answer(
        &mut self,
        spec: CompleterSpec,
        completer: Bdf,
        send: &mut Send<'_>,
    ) -> Option<Served> {
        let Passed { from, tlp, result, .. } = self.ended.pop_front()?;
        if let Some(under_way) = self.each.get_mut(&from) {
            *under_way = under_way.saturating_sub(1);
        }
        // Else a sender that came once would stay in the map for ever.
        self.each.retain(|_, under_way| *under_way > 0);
        // Cannot fail: the bytes were parsed when they came.
        let Ok(tlp) = Tlp::parse(Mode::Flit, &tlp) else { return Some(Served::Aborted) };
        let (status, served) = match result {
            Ok(mut data) if tlp.kind() == Kind::UioRead => {
                clear_disabled(&tlp, &mut data);
                spec.answer(&tlp, completer, &data, false, send);
                return Some(Served::Done);
            }
            Ok(_) => (Status::Success, Served::Done),
            Err(Failure::NoForm | Failure::Status(Status::UnsupportedRequest)) => {
                (Status::UnsupportedRequest, Served::Unsupported)
            }
            Err(Failure::Status(Status::RequestRetry)) => (Status::RequestRetry, Served::Aborted),
            Err(_) => (Status::CompleterAbort, Served::Aborted),
        };
        spec.refuse(&tlp, status, completer, send);
        Some(served)
    }
}

/// Operations at the device: whole doublewords of a read, each run of enabled bytes of a write.
fn operations(tlp: &Tlp<'_>, addr: u64) -> Vec<Operation> {
    if tlp.kind() == Kind::UioRead {
        let len = usize::from(tlp.length_dw()) * 4;
        return vec![Operation::UioRead { addr: Hpa(addr), len }];
    }
    let data = tlp.payload();
    enabled_runs(tlp)
        .map(|run| Operation::UioWrite {
            addr: Hpa(addr.wrapping_add(run.start as u64)),
            data: data.get(run).unwrap_or_default().to_vec(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use weft_dataplane::time::{Instant, Span};
    use weft_parsers::tlp::{Body, TlpRepr, VendPrefixL0};

    use super::*;
    use crate::requester::RequesterSpec;

    const ME: Bdf = Bdf::new(2, 0, 0);
    const SPEC: CompleterSpec = CompleterSpec { payload_max: 256, uio_last_first: false };

    fn requester() -> Requester {
        let timeout = Span::from_ms(1);
        let (payload_max, read_max, uio_max) = (256, 256, 256);
        let (mode, in_flight_max) = (Mode::Flit, 4_096);
        let spec = RequesterSpec { mode, payload_max, read_max, uio_max, in_flight_max, timeout };
        Requester::new(spec, Bdf::default())
    }

    /// A request of port `from` for two double words of its window.
    fn request(from: Pid, kind: Kind, tag: u16, enables: (u8, u8)) -> Vec<u8> {
        let body = Body::Address {
            addr: Hpa(0x210_0000_0000),
            wide: true,
            at: At::Untranslated,
            no_write: false,
            length_dw: 2,
            first_be: enables.0,
            last_be: enables.1,
        };
        let tlp = TlpRepr::new(Mode::Flit, kind, Bdf::new(1, 0, 0), tag, body);
        let vend_prefix = Some(VendPrefixL0::from_pid(from));
        let payload: &[u8] = if kind.has_data() { &[1, 2, 3, 4, 5, 6, 7, 8] } else { &[] };
        let mut bytes = vec![0; 128];
        let len = TlpRepr { vend_prefix, payload, ..tlp }.emit(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    fn take(
        relay: &mut Relay,
        from: Pid,
        bytes: &[u8],
        asks: &mut Requester,
    ) -> Result<(), Status> {
        relay.take(from, &Tlp::parse(Mode::Flit, bytes).unwrap(), 0x4000, asks)
    }

    /// The transactions of a requester by its TLPs: first enabled address, and length in doublewords.
    fn asked(asks: &mut Requester) -> Vec<(u64, usize)> {
        let mut seen = Vec::new();
        asks.flush(Instant::ZERO, &mut |tlp| {
            let Body::Address { addr, length_dw, first_be, .. } = tlp.body else {
                panic!("{tlp:?}")
            };
            let skipped = u64::from(first_be.trailing_zeros());
            seen.push((addr.0 + skipped, usize::from(length_dw)));
            true
        });
        seen
    }

    #[test]
    fn bytes_that_are_not_enabled_are_not_written() {
        let from = Pid::from_low_bits(5);
        #[rustfmt::skip] // columns: byte enables, first addresses of what is written
        let cases: [((u8, u8), &[u64]); 3] = [
            ((0xF, 0xF), &[0x4000]),
            ((0x8, 0x1), &[0x4003]),
            ((0x3, 0xC), &[0x4000, 0x4006]),
        ];
        for (enables, want) in cases {
            let (mut relay, mut asks) = (Relay::default(), requester());
            let bytes = request(from, Kind::UioWrite, 9, enables);
            assert_eq!(take(&mut relay, from, &bytes, &mut asks), Ok(()));
            let found: Vec<u64> = asked(&mut asks).iter().map(|(addr, _)| *addr).collect();
            assert_eq!(found, want, "{enables:?}");
            asks.expire(Instant::ZERO + Span::from_ms(2));
            while let Some(done) = asks.next_done() {
                assert_eq!(relay.ended(done), None);
            }
            let mut answers = 0;
            assert_eq!(
                relay.answer(SPEC, ME, &mut |_| answers += 1),
                Some(Served::Aborted),
                "{enables:?}"
            );
            assert_eq!((answers, relay.answer(SPEC, ME, &mut |_| answers += 1)), (1, None));
        }
    }

    /// A sender that never waits has `EACH_MAX` requests here; the next one gets retry status, and other senders go on.
    #[test]
    fn one_sender_does_not_take_all_room() {
        let (mut relay, mut asks) = (Relay::default(), requester());
        let (greedy, other) = (Pid::from_low_bits(5), Pid::from_low_bits(6));
        let bytes = |from| request(from, Kind::UioRead, 3, (0xF, 0xF));
        for _ in 0..EACH_MAX {
            assert_eq!(take(&mut relay, greedy, &bytes(greedy), &mut asks), Ok(()));
        }
        let more = take(&mut relay, greedy, &bytes(greedy), &mut asks);
        assert_eq!(more, Err(Status::RequestRetry));
        assert_eq!(take(&mut relay, other, &bytes(other), &mut asks), Ok(()));
        assert_eq!(asked(&mut asks).len(), EACH_MAX + 1);
        asks.give_up();
        while let Some(done) = asks.next_done() {
            relay.ended(done);
        }
        let mut pids = Vec::new();
        let send =
            &mut |answer: &TlpRepr<'_>| pids.extend(answer.vend_prefix.map(VendPrefixL0::pid));
        while relay.answer(SPEC, ME, send).is_some() {}
        assert_eq!(pids.iter().filter(|pid| **pid == greedy).count(), EACH_MAX);
        assert_eq!(pids.len(), EACH_MAX + 1, "each goes back to who asked");
        assert!(relay.each.is_empty() && relay.ops.is_empty() && relay.passed.is_empty());
        assert_eq!(take(&mut relay, greedy, &bytes(greedy), &mut asks), Ok(()), "there is room");
    }

    #[test]
    fn an_answer_says_what_the_device_said() {
        let from = Pid::from_low_bits(5);
        let unsupported = Failure::Status(Status::UnsupportedRequest);
        #[rustfmt::skip] // columns: kind, what came of it, status
        let cases = [
            (Kind::UioRead,  Ok(vec![7; 8]),          Status::Success),
            (Kind::UioWrite, Ok(vec![]),              Status::Success),
            (Kind::UioWrite, Err(unsupported),        Status::UnsupportedRequest),
            (Kind::UioRead,  Err(Failure::NoForm),    Status::UnsupportedRequest),
            (Kind::UioRead,  Err(Failure::Poisoned),  Status::CompleterAbort),
            (Kind::UioWrite, Err(Failure::Timeout),   Status::CompleterAbort),
            (Kind::UioRead,  Err(Failure::Status(Status::RequestRetry)), Status::RequestRetry),
        ];
        for (kind, result, want) in cases {
            let (mut relay, mut asks) = (Relay::default(), requester());
            let bytes = request(from, kind, 77, (0xF, 0xF));
            take(&mut relay, from, &bytes, &mut asks).unwrap();
            let op = *relay.ops.keys().next().unwrap();
            relay.ended(Done { op, result: result.clone(), ln: false });
            let send = &mut |answer: &TlpRepr<'_>| {
                let Body::UioCompletion { status, completer, .. } = answer.body else {
                    panic!("{answer:?}")
                };
                assert_eq!((status, completer, answer.tag), (want, ME, 77), "{kind:?} {result:?}");
                assert_eq!(answer.payload, result.as_deref().unwrap_or_default());
            };
            assert!(relay.answer(SPEC, ME, send).is_some());
        }
        let (mut relay, mut asks) = (Relay::default(), requester());
        let stranger = Done { op: OpId(9), result: Ok(Vec::new()), ln: false };
        assert_eq!(relay.ended(stranger.clone()), Some(stranger));
        assert!(asked(&mut asks).is_empty());
    }
}
