//! Responses to messages of any content.

use weft_base::rng::Rng;

use super::*;
use weft_parsers::cci::generic::{BackgroundStatus, GetLog, SupportedLogs};
use weft_parsers::cci::mld::{TunnelRequest, TunnelTarget};
use weft_parsers::cci::vcs::{UnbindOption, UnbindVppb};
use weft_parsers::cci::{Category, List, Payload, header};

use crate::cci::logs::COMMAND_EFFECTS;

fn code_of(out: &[u8]) -> ReturnCode {
    Header::parse(out).expect("a whole message").0.return_code
}

#[test]
fn the_first_thing_wrong_is_told_and_nothing_changes() {
    let long = |request: &Request<'_>| {
        let mut bytes = message(request, 1);
        bytes[5] += 1;
        bytes.push(0);
        bytes
    };
    let set = Request::SetSv([7; 16]);
    let mut lying = message(&set, 1);
    lying[5] -= 1;
    let mut unknown = message(&Request::Identify, 1);
    unknown[3..5].copy_from_slice(&[0xFF, 0x57]);
    let mut reserved =
        message(&Request::ClaimOwnership(claim(ClaimOp::RegisterSecondary, 2, 3)), 1);
    reserved[12] = 9;
    #[rustfmt::skip] // columns: name, who, bytes, code
    let cases = [
        ("not the owner", SECOND, message(&set, 1), ReturnCode::Unsupported),
        ("not the owner, and too long", SECOND, long(&set), ReturnCode::Unsupported),
        ("a host", HOST, message(&set, 1), ReturnCode::Unsupported),
        ("a host's command", FIRST, message(&Request::GetGamBuffer, 1), ReturnCode::Unsupported),
        ("too long", FIRST, long(&set), ReturnCode::InvalidPayloadLength),
        ("longer than it says", FIRST, lying, ReturnCode::InvalidPayloadLength),
        ("cut off", FIRST, message(&set, 1)[..20].to_vec(), ReturnCode::InvalidPayloadLength),
        ("no such command", FIRST, unknown, ReturnCode::Unsupported),
        ("a command of others", FIRST, message(&Request::IdentifyGfd, 1), ReturnCode::Unsupported),
        ("a reserved code", FIRST, reserved, ReturnCode::InvalidInput),
    ];
    for (name, session, bytes, want) in cases {
        let mut toy = Toy::owned();
        let before = toy.clone();
        let (served, out) = send(&mut toy, 0, session, &bytes);
        assert_eq!((served, code_of(&out)), (Served::Response, want), "{name}");
        assert_eq!(out.len(), header::LEN, "{name}: no payload");
        assert_eq!((out[0], out[1], &out[3..5]), (1, 1, &bytes[3..5]), "{name}: tag and opcode");
        assert_eq!(toy, before, "{name}");
    }
    let mut toy = Toy::owned();
    assert_eq!(ask(&mut toy, 0, FIRST, &set), (ReturnCode::Success, vec![]));
    assert_eq!(ask(&mut toy, 0, FIRST, &Request::GetSvState), (ReturnCode::Success, vec![7]));
}

#[test]
fn what_is_no_request_is_not_answered() {
    let mut toy = Toy::owned();
    for category in [1, 2, 3, 15] {
        let mut bytes = message(&Request::SetSv([7; 16]), 1);
        bytes[0] = category;
        assert_eq!(send(&mut toy, 0, FIRST, &bytes), (Served::Ignored, vec![]), "{category}");
    }
    for len in 0..header::LEN {
        let bytes = message(&Request::Identify, 1);
        assert_eq!(send(&mut toy, 0, FIRST, &bytes[..len]), (Served::Ignored, vec![]), "{len}");
    }
    assert_eq!(toy, Toy::owned());
}

#[test]
fn anyone_may_identify_and_read_the_log_of_commands() {
    let mut toy = Toy::new();
    for session in [FIRST, HOST, Session::InBand { port: 7, pid: pid(5) }, Session::Proxy(pid(5))] {
        let (code, identity) = ask(&mut toy, 0, session, &Request::Identify);
        assert_eq!(
            (code, identity.len(), &identity[..2]),
            (ReturnCode::Success, 18, &[0x98, 0x1E][..])
        );
        let (code, logs) = ask(&mut toy, 0, session, &Request::GetSupportedLogs);
        assert_eq!(code, ReturnCode::Success);
        let logs = SupportedLogs::parse(&logs).unwrap().logs;
        let only = logs.get(0).unwrap();
        assert_eq!((logs.len(), only.log), (1, COMMAND_EFFECTS));
        let get = GetLog { log: only.log, offset: 0, len: only.len };
        let (code, log) = ask(&mut toy, 0, session, &Request::GetLog(get));
        assert_eq!(code, ReturnCode::Success);
        let listed: Vec<_> = log.chunks(4).map(|it| [it[1], it[0], it[3], it[2]]).collect();
        assert!(listed.is_sorted() && listed.len() == COMMANDS.len() + Common::COMMANDS.len());
        assert!(listed.contains(&[0x52, 0x02, 0, 0x42]), "background and configuration");
        assert!(listed.contains(&[0, 1, 0, 0]));
    }
    let get = GetLog { log: COMMAND_EFFECTS, offset: 4, len: 4 };
    assert_eq!(ask(&mut toy, 0, FIRST, &Request::GetLog(get)).1, [2, 0, 0, 0]);
    #[rustfmt::skip] // columns: offset, bytes, fits
    let cases = [(59, 1, true), (60, 0, true), (59, 2, false), (61, 0, false), (u32::MAX, 1, false), (0, u32::MAX, false)];
    for (offset, len, fits) in cases {
        let want = if fits { ReturnCode::Success } else { ReturnCode::InvalidInput };
        let get = GetLog { log: COMMAND_EFFECTS, offset, len };
        assert_eq!(ask(&mut toy, 0, FIRST, &Request::GetLog(get)).0, want, "{offset} {len}");
    }
    let get = GetLog { log: [1; 16], offset: 0, len: 4 };
    assert_eq!(ask(&mut toy, 0, FIRST, &Request::GetLog(get)).0, ReturnCode::InvalidLog);
}

#[test]
fn one_command_runs_in_the_background_at_a_time() {
    let mut toy = Toy::owned();
    let status = |toy: &mut Toy, at_ns| {
        let (code, payload) = ask(toy, at_ns, FIRST, &Request::BackgroundStatus);
        assert_eq!(code, ReturnCode::Success);
        let BackgroundStatus { progress, opcode, return_code, .. } =
            BackgroundStatus::parse(&payload).unwrap();
        (progress.running, progress.percent, opcode, return_code)
    };
    let unbind = Request::UnbindVppb(UnbindVppb { vcs: 0, vppb: 9, option: UnbindOption::Managed });
    assert_eq!(status(&mut toy, 0), (false, 0, 0, 0));
    assert_eq!(ask(&mut toy, 0, FIRST, &Request::AbortBackground).0, ReturnCode::Success);
    let (_, out) = send(&mut toy, 1_000, FIRST, &message(&unbind, 3));
    let (header, payload) = Header::parse(&out).unwrap();
    assert_eq!((header.return_code, header.background), (ReturnCode::BackgroundStarted, true));
    assert!(payload.is_empty() && toy.next() == Some(Instant::from_ns(1_100)));
    assert_eq!(status(&mut toy, 1_050), (true, 50, 0x5202, 0));
    let before = toy.clone();
    assert_eq!(ask(&mut toy, 1_060, FIRST, &unbind).0, ReturnCode::Busy);
    assert_eq!(ask(&mut toy, 1_060, FIRST, &Request::AbortBackground).0, ReturnCode::NotAbortable);
    assert_eq!(toy, before);
    assert_eq!(status(&mut toy, 1_099), (true, 99, 0x5202, 0));
    assert_eq!(toy.value, 0);
    assert_eq!(status(&mut toy, 1_100), (false, 100, 0x5202, 0));
    assert_eq!((toy.value, toy.next()), (9, None));
}

#[test]
fn responses_stay_below_the_limit_that_is_set() {
    let mut toy = Toy::owned();
    let get = |toy: &mut Toy| ask(toy, 0, FIRST, &Request::GetResponseLimit).1;
    assert_eq!(get(&mut toy), [16]);
    #[rustfmt::skip] // columns: asked for, code, set
    let cases = [(7, ReturnCode::InvalidInput, 16), (8, ReturnCode::Success, 8), (20, ReturnCode::Success, 16), (21, ReturnCode::InvalidInput, 16)];
    for (log2, code, want) in cases {
        assert_eq!(ask(&mut toy, 0, FIRST, &Request::SetResponseLimit(log2)).0, code, "{log2}");
        assert_eq!(get(&mut toy), [want], "{log2}");
    }
}

#[test]
fn an_answer_from_elsewhere_is_wrapped_or_goes_stale() {
    let mut toy = Toy::owned();
    let inner = message(&Request::Identify, 0x11);
    let tunnel = TunnelRequest { id: 1, target: TunnelTarget::PortOrLd, message: List::of(&inner) };
    let bytes = message(&Request::Tunnel(tunnel), 0x77);
    let (served, out) = send(&mut toy, 0, FIRST, &bytes);
    let Served::Pending(ticket) = served else { panic!("{served:?}") };
    assert!(out.is_empty() && toy.common.is_pending(ticket));
    let answer = toy.common.complete(ticket, Ok(&[1, 2, 3])).unwrap();
    assert_eq!((answer.ticket, answer.session), (ticket, FIRST));
    let (header, payload) = Header::parse(&answer.message).unwrap();
    let head = (header.category, header.tag, header.opcode, header.return_code);
    assert_eq!(head, (Category::Response, 0x77, Opcode::TUNNEL, ReturnCode::Success));
    assert_eq!(payload, [3, 0, 0, 0, 1, 2, 3]);
    assert_eq!(toy.common.complete(ticket, Ok(&[])), None, "it was answered");

    let (Served::Pending(ticket), _) = send(&mut toy, 0, FIRST, &bytes) else { panic!() };
    let answer = toy.common.complete(ticket, Err(ReturnCode::InvalidInput)).unwrap();
    assert_eq!((code_of(&answer.message), answer.message.len()), (ReturnCode::InvalidInput, 12));

    let (Served::Pending(ticket), _) = send(&mut toy, 0, FIRST, &bytes) else { panic!() };
    let late = Instant::from_ns(LATE.as_ns());
    assert!(toy.next().is_some_and(|next| next < late));
    toy.tick(late);
    let answers: Vec<_> = toy.common.answers().collect();
    assert_eq!((answers.len(), answers[0].ticket), (1, ticket));
    assert_eq!(code_of(&answers[0].message), ReturnCode::RetryRequired);

    for at in 0..256 {
        let (served, _) = send(&mut toy, LATE.as_ns(), FIRST, &bytes);
        assert!(matches!(served, Served::Pending(_)), "{at}");
    }
    let (served, out) = send(&mut toy, LATE.as_ns(), FIRST, &bytes);
    assert_eq!((served, code_of(&out)), (Served::Response, ReturnCode::Busy));
    toy.common.forget(FIRST);
    assert_eq!(toy.next(), None, "nobody waits any more");
}

/// Messages with bytes changed at random never panic, and refused ones change nothing.
#[test]
fn random_bytes_never_panic_and_refusals_change_nothing() {
    let mut rng = Rng::new(0xCC1);
    let requests = [
        message(&Request::Identify, 1),
        message(&Request::SetSv([7; 16]), 2),
        message(&Request::ClaimOwnership(claim(ClaimOp::UpdatePid, 1, 0x11)), 3),
        message(&Request::GetLog(GetLog { log: COMMAND_EFFECTS, offset: 0, len: 8 }), 4),
    ];
    let mut pick = |bound: usize| usize::try_from(rng.below(bound as u64)).unwrap();
    for _ in 0..50_000 {
        let mut toy = Toy::owned();
        let before = toy.clone();
        let mut bytes = requests[pick(requests.len())].clone();
        for _ in 0..=pick(3) {
            let at = pick(bytes.len());
            bytes[at] = u8::try_from(pick(256)).unwrap();
        }
        bytes.truncate(bytes.len() - if pick(4) == 0 { pick(bytes.len()) } else { 0 });
        let session = [FIRST, SECOND, HOST, Session::InBand { port: 7, pid: pid(1) }][pick(4)];
        let (served, out) = send(&mut toy, 0, session, &bytes);
        let refused = served == Served::Ignored || code_of(&out) != ReturnCode::Success;
        assert!(!refused || toy == before, "{bytes:02x?}");
    }
}
