//! Direct access to memory devices (P2P) on a fake fabric: LAV at both edges, domains of hosts, and refusals.
//!
//! An `Fm` starts with a wanted state that has `[[p2p]]`; tests read the LAV of the fake switches.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 7.7.9; docs/spec/wire-formats.md §4.3, §4.5.

use std::fmt::Write as _;

use weft_base::rng::Rng;
use weft_parsers::cci::ReturnCode;
use weft_parsers::fabric::Pid;

use super::fake::{Fake, FakeVcs, Faults, Shared};
use super::service::{done, manager, started, status, want};
use crate::components::p2p::Grant;
use crate::model::graph::{SwitchId, generate};
use crate::service::request::{P2pRow, P2pState};
use crate::service::status::StartMode;
use crate::service::{Fm, Request, Response, Vector};
use crate::show::trace::{End, Trace, Via};
use crate::state::desired::{DesiredGim, DesiredP2p};
use crate::state::store::Store;

const HPA: u64 = 1 << 40;
const SEGMENT: u64 = 64 << 30;

/// Two switches with a host each: `xpu` and `mem` of the first host, `far` and `sub` of the second.
fn world() -> (Shared, String) {
    let mut fake = Fake::of(&generate::line(2, 1).unwrap());
    let mut text = String::new();
    let graph = generate::line(2, 1).unwrap();
    let at = graph.endpoints().find(|end| end.at.switch == SwitchId(1)).unwrap().at;
    let _ = writeln!(text, "[[host]]\nname = \"h1\"\nswitch = \"s1\"\nport = {}", at.port);
    let names = [("xpu", 0, 1), ("mem", 0, 2), ("far", 1, 1), ("sub", 1, 2)];
    for (name, switch, vppb) in names {
        let port = fake.add(SwitchId(switch), None);
        let at = if switch == 0 { "entry" } else { "s1" };
        let _ = writeln!(text, "[[device]]\nname = {name:?}\nswitch = {at:?}\nport = {port}");
        let bridge = format!("{at}/0/{vppb}");
        let _ = writeln!(text, "[[bind]]\nbridge = {bridge:?}\nto = \"port:{port}\"");
    }
    (Shared::new(fake), text)
}

fn p2p(name: &str, from: &[&str], to: &str, hpa: u64) -> String {
    format!(
        "[[p2p]]\nname = {name:?}\nfrom = {from:?}\nto = {to:?}\nsize = \"16MiB\"\nhpa = {hpa}\n"
    )
}

fn add(name: &str, from: &[&str], to: &str, hpa: u64) -> Request {
    let from = from.iter().map(|one| (*one).to_owned()).collect();
    Request::AddP2p(DesiredP2p {
        name: name.to_owned(),
        from,
        to: to.to_owned(),
        size: 16 << 20,
        hpa,
    })
}

fn release(name: &str) -> Request {
    Request::Release { name: name.to_owned() }
}

fn rows(fm: &mut Fm) -> Vec<P2pRow> {
    match fm.request(&Request::P2p) {
        Ok(Response::P2p(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

/// Runs `f` on virtual switch 0, the host's, of switch `at`.
fn vcs<R>(shared: &Shared, fm: &Fm, at: u16, f: impl FnOnce(&mut FakeVcs) -> R) -> R {
    let pid = fm.state().unwrap().inventory.switch(SwitchId(at)).unwrap().pid;
    shared.with(|fake| {
        let place = fake.nodes.iter().position(|node| node.base.pid == pid).unwrap();
        f(&mut fake.switch(place).vcss[0])
    })
}

fn lav(shared: &Shared, fm: &Fm, at: u16) -> Vec<Pid> {
    vcs(shared, fm, at, |vcs| vcs.lav.iter().copied().collect())
}

fn secret(shared: &Shared, fm: &Fm, at: u16, secret: Option<u8>) {
    vcs(shared, fm, at, |vcs| vcs.secret = secret.map(|byte| [byte; 16]));
}

fn grant(fm: &Fm) -> Grant {
    fm.state().unwrap().grants.p2p.all().next().unwrap().clone()
}

fn traced(fm: &mut Fm, host: &str, hpa: u64) -> Trace {
    match fm.request(&Request::Trace { host: host.to_owned(), hpa, via: Via::Uio }) {
        Ok(Response::Trace(trace)) => trace,
        other => panic!("{other:?}"),
    }
}

/// Within one hierarchy no domain has to be proved: its one LAV gets both bits, and loses them on a revocation.
#[test]
fn one_hierarchy_has_both_bits_in_its_lav() {
    let (shared, text) = world();
    let mut fm = started(&shared, &(text + &p2p("direct", &["xpu"], "mem", HPA)));
    assert_eq!(status(&fm).errors, Vec::<String>::new());
    let Grant { owner: to, members: from, .. } = grant(&fm);
    let mut both = vec![to.pid, from[0].pid];
    both.sort_unstable();
    assert_eq!((lav(&shared, &fm, 0), lav(&shared, &fm, 1)), (both, vec![]));
    let row = rows(&mut fm).remove(0);
    assert_eq!((row.from[0].name.as_str(), row.to.name.as_str()), ("xpu", "mem"));
    assert_eq!((row.state, row.why), (P2pState::Given, None));
    let trace = traced(&mut fm, "xpu", HPA + 77);
    assert_eq!((&trace.end, trace.dpid), (&End::Memory, Some(to.pid.bits())), "{trace:?}");
    let asked: Vec<(&str, bool)> =
        trace.steps.iter().map(|step| (step.table.as_str(), step.asked)).collect();
    assert!(asked.contains(&("LDST", false)) && asked.contains(&("LAV", true)), "{asked:?}");
    // A request cannot clear a bit that the grant needs.
    let (host, vector, pid) = ("h0".to_owned(), Vector::Lav, to.pid.to_string());
    let refused = fm.request(&Request::SetAccess { host, vector, pid, on: false }).unwrap_err();
    assert!(refused.message.contains("\"direct\" needs it"), "{refused}");
    match fm.request(&Request::Cdat { read: None }) {
        Ok(Response::Costs(rows)) => assert!(rows.iter().any(|row| row.what == "P2P \"direct\"")),
        other => panic!("{other:?}"),
    }
    let revoke = Request::Revoke { name: "direct".to_owned(), host: "xpu".to_owned() };
    done(fm.request(&revoke));
    assert_eq!(lav(&shared, &fm, 0), vec![]);
    assert!(fm.request(&revoke).unwrap_err().message.contains("no access"));
    done(fm.request(&release("direct")));
    assert_eq!(rows(&mut fm), vec![]);
    assert!(fm.request(&release("direct")).is_err());
}

/// Between hierarchies a grant waits until both hosts have set the same secret. With different secrets it is refused,
/// and a given one is withdrawn.
#[test]
fn between_hierarchies_hosts_prove_their_domain() {
    let (shared, text) = world();
    let mut fm = started(&shared, &(text + &p2p("across", &["xpu"], "sub", HPA)));
    let none = (vec![], vec![]);
    let lavs = |fm: &Fm| (lav(&shared, fm, 0), lav(&shared, fm, 1));
    let state = |fm: &mut Fm| rows(fm).remove(0).state;
    assert_eq!((lavs(&fm), state(&mut fm)), (none.clone(), P2pState::Waits));
    assert_eq!(status(&fm).errors, Vec::<String>::new(), "what waits is no error");
    for (first, second, want) in [
        (Some(1), None, P2pState::Waits),
        (Some(1), Some(2), P2pState::Refused),
        (Some(0), None, P2pState::Waits),
        (Some(1), Some(1), P2pState::Given),
        (None, Some(1), P2pState::Waits),
        (Some(1), Some(1), P2pState::Given),
        (Some(2), Some(1), P2pState::Refused),
        (Some(2), Some(2), P2pState::Given),
    ] {
        secret(&shared, &fm, 0, first);
        secret(&shared, &fm, 1, second);
        fm.watch();
        let Grant { owner: to, members: from, .. } = grant(&fm);
        let given = (vec![to.pid], vec![from[0].pid]);
        let has = if want == P2pState::Given { given } else { none.clone() };
        assert_eq!((lavs(&fm), state(&mut fm)), (has, want), "{first:?} {second:?}");
        let told = status(&fm).errors.iter().filter(|line| line.contains("across")).count();
        assert_eq!(told, usize::from(want == P2pState::Refused), "{:?}", status(&fm).errors);
    }
    done(fm.request(&release("across")));
    assert_eq!(lavs(&fm), none);
    // A command is refused at once by the rule's name, and changes nothing.
    for (second, part) in [(None, "has set no domain validation secret"), (Some(3), "differ")] {
        secret(&shared, &fm, 1, second);
        let before = fm.state();
        let refused = fm.request(&add("across", &["far"], "mem", HPA)).unwrap_err().message;
        assert!(refused.contains("p2p-same-domain") && refused.contains(part), "{refused}");
        assert_eq!((fm.state(), lavs(&fm)), (before, none.clone()));
    }
    secret(&shared, &fm, 1, Some(2));
    done(fm.request(&add("across", &["far"], "mem", HPA)));
    let Grant { owner: to, members: from, .. } = grant(&fm);
    assert_eq!(lavs(&fm), (vec![from[0].pid], vec![to.pid]));
}

/// A switch that does not tell a host's secret has proved nothing: what waits goes on waiting, whatever is discovered.
#[test]
fn waiting_grant_outlasts_a_secret_that_cannot_be_read() {
    let (shared, text) = world();
    let mut fm = started(&shared, &(text + &p2p("across", &["xpu"], "sub", HPA)));
    let before = rows(&mut fm);
    assert_eq!(before[0].state, P2pState::Waits);
    let refuse = |fm: &Fm, code| vcs(&shared, fm, 0, |vcs| vcs.secret_refusal = code);
    refuse(&fm, Some(ReturnCode::InternalError));
    fm.rediscover().unwrap();
    assert_eq!(rows(&mut fm), before);
    let errors = status(&fm).errors;
    assert!(errors.iter().any(|line| line.contains("across")), "{errors:?}");
    refuse(&fm, None);
    for at in [0, 1] {
        secret(&shared, &fm, at, Some(1));
    }
    fm.watch();
    assert_eq!(rows(&mut fm)[0].state, P2pState::Given);
    assert_eq!(status(&fm).errors, Vec::<String>::new());
}

/// A target without memory, or with less than requested, is refused if the wanted state has the size of its memory.
#[test]
fn a_target_without_the_memory_is_refused() {
    let (shared, mut text) = world();
    for (name, memory) in [("far", "0"), ("mem", "\"16MiB\"")] {
        let line = format!("name = {name:?}\n");
        text = text.replace(&line, &format!("{line}memory = {memory}\n"));
    }
    let mut fm = started(&shared, &text);
    let direct = |to: &str, size: u64| {
        let (name, from) = ("direct".to_owned(), vec!["xpu".to_owned()]);
        Request::AddP2p(DesiredP2p { name, from, to: to.to_owned(), size, hpa: HPA })
    };
    let refused = |fm: &mut Fm, request: &Request| fm.request(request).unwrap_err().message;
    let said = refused(&mut fm, &add("none", &["sub"], "far", HPA));
    let want =
        "p2p-memory-device: far has no memory that its host manages (HDM): name a memory device";
    assert_eq!(said, want);
    let said = refused(&mut fm, &direct("h1", 1));
    assert!(said.starts_with("p2p-memory-device: h1"), "{said}");
    let said = refused(&mut fm, &direct("mem", (16 << 20) + 1));
    assert!(said.contains("mem has 0x1000000 bytes: expected a size of at most"), "{said}");
    assert_eq!(rows(&mut fm), Vec::new());
    done(fm.request(&direct("mem", 16 << 20)));
    let (to, state) = (grant(&fm).owner, fm.state().unwrap());
    let (_, place) = state.inventory.pids().find(|(pid, _)| *pid == to.pid).unwrap();
    done(fm.request(&release("direct")));
    let said = refused(&mut fm, &direct(&place.to_string(), 17 << 20));
    assert!(said.contains("p2p-within-device"), "by its place it is the same: {said}");
    done(fm.request(&add("other", &["far"], "sub", HPA))); // the wanted state has no size for it
}

#[test]
fn what_does_not_fit_is_refused_by_its_rule() {
    let (shared, text) = world();
    let mut fm = started(&shared, &(text + &p2p("direct", &["xpu"], "mem", HPA)));
    for (at, byte) in [(0, Some(1)), (1, Some(1))] {
        secret(&shared, &fm, at, byte);
    }
    let before = (fm.state(), lav(&shared, &fm, 0), lav(&shared, &fm, 1));
    #[rustfmt::skip] // columns: request, part of the refusal
    let cases = [
        (add("direct", &["xpu"], "mem", HPA), "no other memory, GIM or P2P"),
        (add("", &["xpu"], "mem", HPA), "a name of letters, digits"),
        (add("n", &["mem"], "mem", HPA), "p2p-peer"),
        (add("n", &[], "mem", HPA), "at least one requester"),
        (add("n", &["xpu", "xpu"], "mem", HPA), "each of them once"),
        (add("n", &["far"], "mem", HPA + SEGMENT), "p2p-one-address"),
        (add("n", &["xpu"], "sub", HPA), "memory-own-addresses"),
        (add("n", &["xpu"], "sub", HPA + (1 << 30)), "segment-one-entry"),
        (add("n", &["xpu"], "sub", HPA + 4_096 * SEGMENT), "window-depth"),
        (add("n", &["xpu"], "sub", 0x8000_0000), "window-no-own-addresses"),
        (add("n", &["xpu"], "sub", u64::MAX - 7), "beyond 64 bits"),
        (add("n", &["nobody"], "mem", HPA), "there is no host \"nobody\""),
        (add("n", &["xpu"], "nobody", HPA), "there is no host \"nobody\""),
    ];
    for (request, part) in cases {
        let refused = fm.request(&request).unwrap_err().message;
        assert!(refused.contains(part), "{request:?}: {refused}");
        assert_eq!((fm.state(), lav(&shared, &fm, 0), lav(&shared, &fm, 1)), before);
    }
    // Memory by FAST is refused where the FAST window would cover addresses of LDST.
    let show = Request::ShowGim(DesiredGim {
        name: "win".to_owned(),
        of: "h1".to_owned(),
        from: vec!["xpu".to_owned()],
        prefix: false,
        size: 4_096,
        hpa: HPA - SEGMENT,
    });
    let refused = fm.request(&show).unwrap_err().message;
    assert!(refused.contains("p2p-outside-window"), "{refused}");
}

/// Another device of the same virtual switch keeps the bit, and the answer says so.
#[test]
fn revoking_one_of_two_says_that_the_bit_stays() {
    let (shared, text) = world();
    let mut fm = started(&shared, &(text + &p2p("direct", &["xpu", "h0"], "mem", HPA)));
    let Grant { owner: to, members: from, .. } = grant(&fm);
    let revoke = Request::Revoke { name: "direct".to_owned(), host: "h0".to_owned() };
    let said = done(fm.request(&revoke));
    assert!(said.iter().any(|line| line.contains("lets its requests through")), "{said:?}");
    let mut both = vec![to.pid, from[0].pid];
    both.sort_unstable();
    assert_eq!(lav(&shared, &fm, 0), both);
}

/// A grant is given again after a revocation, also to the only requester; each requester is checked as in a new grant.
#[test]
fn it_is_granted_to_one_more() {
    let (shared, text) = world();
    let mut fm = started(&shared, &(text + &p2p("direct", &["xpu"], "mem", HPA)));
    let before = lav(&shared, &fm, 0);
    let (name, host) = ("direct".to_owned(), "xpu".to_owned());
    let revoke = Request::Revoke { name: name.clone(), host: host.clone() };
    let give = |host: &str| Request::Grant { name: name.clone(), host: host.to_owned() };
    let why = fm.request(&give("xpu")).unwrap_err().message;
    assert!(why.contains("has access to it already"), "{why}");
    let said = done(fm.request(&revoke));
    assert!(said.iter().any(|line| line.contains("nobody has it any more")), "{said:?}");
    assert_eq!((lav(&shared, &fm, 0), rows(&mut fm)[0].from.len()), (vec![], 0));
    done(fm.request(&give("xpu")));
    assert_eq!((lav(&shared, &fm, 0), rows(&mut fm)[0].from.len()), (before.clone(), 1));
    // A requester of another hierarchy needs the same domain; the memory device itself never is a requester.
    let why = fm.request(&give("far")).unwrap_err().message;
    assert!(why.contains("p2p-same-domain"), "{why}");
    let why = fm.request(&give("mem")).unwrap_err().message;
    assert!(why.contains("p2p-peer"), "{why}");
    assert_eq!(lav(&shared, &fm, 0), before);
    for at in [0, 1] {
        secret(&shared, &fm, at, Some(1));
    }
    done(fm.request(&give("far")));
    assert_eq!(rows(&mut fm)[0].from.len(), 2);
    assert_eq!(lav(&shared, &fm, 1).len(), 1);
}

#[test]
fn a_restart_keeps_it_and_sets_again_what_was_lost() {
    let (shared, text) = world();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    let start = |text: &str| {
        let store = Some(Store::open(&path).unwrap());
        let mut fm = manager(&shared, want(text), StartMode::FmFirst, store);
        fm.start().unwrap();
        fm
    };
    let first = start(&(text.clone() + &p2p("direct", &["xpu"], "mem", HPA)));
    let (state, before) = (first.state().unwrap(), lav(&shared, &first, 0));
    drop(first);
    let second = start(&text);
    assert_eq!((second.state().unwrap(), lav(&shared, &second, 0)), (state, before.clone()));
    vcs(&shared, &second, 0, |vcs| vcs.lav.clear());
    drop(second);
    let third = start(&text);
    assert_eq!(lav(&shared, &third, 0), before);
    assert_eq!(status(&third).errors, Vec::<String>::new());
}

/// Whichever messages get lost, a grant is made whole or not at all, or the refusal lists the rest.
#[test]
fn faults_leave_all_or_nothing() {
    let (shared, text) = world();
    let mut fm = started(&shared, &text);
    for (at, byte) in [(0, Some(1)), (1, Some(1))] {
        secret(&shared, &fm, at, byte);
    }
    let (mut made, mut refused) = (0, 0);
    for seed in 0..60 {
        shared.with(|fake| {
            fake.faults = Some(Faults { rng: Rng::new(seed), per_mille: 300 });
        });
        let answer = fm.request(&add("across", &["xpu"], "sub", HPA));
        shared.with(|fake| fake.faults = None);
        let bits = (lav(&shared, &fm, 0).len(), lav(&shared, &fm, 1).len());
        match answer {
            Ok(_) => {
                made += 1;
                assert_eq!(bits, (1, 1), "seed {seed}");
                done(fm.request(&release("across")));
            }
            Err(error) if error.message.contains("left: ") => {
                refused += 1;
                vcs(&shared, &fm, 0, |vcs| vcs.lav.clear());
                vcs(&shared, &fm, 1, |vcs| vcs.lav.clear());
            }
            Err(error) => {
                refused += 1;
                assert_eq!(bits, (0, 0), "seed {seed}: {error}");
            }
        }
        assert_eq!(rows(&mut fm), vec![], "seed {seed}");
    }
    assert!(made > 5 && refused > 5, "{made} made, {refused} refused");
}
