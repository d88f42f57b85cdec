//! Memory of hosts for others (GIM) on a fake fabric: bits at both edges, restarts, refusals and traces.
//!
//! An `Fm` starts with a wanted state that has `[[gim]]`; tests read VTV and prefixes of the fake switches.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 7.7.3.3; docs/spec/wire-formats.md §4.6.

use weft_base::rng::Rng;
use weft_parsers::cci::gae::PrefixFlags;
use weft_parsers::fabric::Pid;

use super::fake::{FakeVcs, Faults, Shared};
use super::service::{done, holds, manager, shared, started, status, want};
use crate::components::memory::Host;
use crate::model::graph::{SwitchId, generate};
use crate::service::request::GimRow;
use crate::service::status::StartMode;
use crate::service::{Fm, Request, Response, Vector};
use crate::show::trace::{End, Trace, Via};
use crate::state::desired::DesiredGim;
use crate::state::store::Store;

const HPA: u64 = 1 << 40;
const ON: PrefixFlags = PrefixFlags { out: true, into: false };
const OFF: PrefixFlags = PrefixFlags { out: false, into: false };

/// The second host, by its place.
fn other() -> String {
    let graph = generate::line(2, 1).unwrap();
    let at = graph.endpoints().find(|end| end.at.switch == SwitchId(1)).unwrap().at;
    format!("s1.{}", at.port)
}

fn file(prefix: bool) -> String {
    let of = other();
    format!(
        "[[gim]]\nname = \"win\"\nof = {of:?}\nfrom = [\"h0\"]\nprefix = {prefix}\n\
         size = \"16MiB\"\nhpa = {HPA}\n"
    )
}

/// Requester of the first grant, and the host whose memory it is.
fn ends(fm: &Fm) -> (Host, Host) {
    let grant = fm.state().unwrap().grants.gim.grants[0].clone();
    (grant.members[0], grant.owner)
}

fn with_vcs<R>(shared: &Shared, fm: &Fm, host: Host, f: impl FnOnce(&mut FakeVcs) -> R) -> R {
    let pid = fm.state().unwrap().inventory.switch(host.switch).unwrap().pid;
    shared.with(|fake| {
        let place = fake.nodes.iter().position(|node| node.base.pid == pid).unwrap();
        f(&mut fake.switch(place).vcss[usize::from(host.vcs)])
    })
}

fn edge(shared: &Shared, fm: &Fm, host: Host) -> (Vec<Pid>, PrefixFlags) {
    with_vcs(shared, fm, host, |vcs| (vcs.vtv.iter().copied().collect(), vcs.prefix))
}

fn rows(fm: &mut Fm) -> Vec<GimRow> {
    match fm.request(&Request::Gim) {
        Ok(Response::Gim(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

fn revoke() -> Request {
    Request::Revoke { name: "win".to_owned(), host: "h0".to_owned() }
}

#[test]
fn both_edges_have_their_bits_and_lose_them() {
    let shared = shared();
    for (prefix, into) in [(false, OFF), (true, PrefixFlags { out: false, into: true })] {
        let mut fm = started(&shared, &file(prefix));
        assert_eq!(status(&fm).errors, Vec::<String>::new());
        let (from, of) = ends(&fm);
        assert_eq!(edge(&shared, &fm, from), (vec![of.pid], into), "prefix {prefix}");
        assert_eq!(edge(&shared, &fm, of), (vec![from.pid], ON), "prefix {prefix}");
        let row = rows(&mut fm).remove(0);
        assert_eq!((row.from[0].name.as_str(), row.of.pid), ("h0", of.pid.bits()));
        assert_eq!((row.hpa, row.size, row.prefix), (HPA, 16 << 20, prefix));
        match fm.request(&Request::Cdat { read: None }) {
            Ok(Response::Costs(rows)) => {
                let ours = rows.iter().find(|row| row.what == "GIM \"win\"").unwrap();
                assert_eq!((ours.from, ours.to), (from.pid.bits(), of.pid.bits()));
            }
            other => panic!("{other:?}"),
        }
        // A request cannot clear a bit that the grant needs.
        let pid = of.pid.to_string();
        let access =
            |vector| Request::SetAccess { host: "h0".into(), vector, pid: pid.clone(), on: false };
        let refused = fm.request(&access(Vector::Vtv)).unwrap_err();
        assert!(refused.message.contains("\"win\" needs it"), "{refused}");
        done(fm.request(&revoke()));
        assert_eq!(edge(&shared, &fm, from), (vec![], OFF), "prefix {prefix}");
        assert_eq!(edge(&shared, &fm, of), (vec![], OFF), "prefix {prefix}");
        assert!(fm.request(&revoke()).unwrap_err().message.contains("no access"));
        done(fm.request(&Request::Release { name: "win".to_owned() }));
        assert_eq!(rows(&mut fm), vec![]);
    }
}

/// Two grants of one target: bits that one needs stay when the other is released.
#[test]
fn bits_stay_as_long_as_somebody_needs_them() {
    let shared = shared();
    let mut fm = started(&shared, &file(false));
    let (from, of) = ends(&fm);
    let show = |name: &str, prefix, hpa| {
        Request::ShowGim(DesiredGim {
            name: name.to_owned(),
            of: other(),
            from: vec!["h0".to_owned()],
            prefix,
            size: 4_096,
            hpa,
        })
    };
    done(fm.request(&show("more", true, HPA)));
    let both = PrefixFlags { out: false, into: true };
    assert_eq!(edge(&shared, &fm, from), (vec![of.pid], both));
    done(fm.request(&Request::Release { name: "win".to_owned() }));
    assert_eq!(edge(&shared, &fm, from), (vec![of.pid], both), "the other needs it");
    assert_eq!(edge(&shared, &fm, of), (vec![from.pid], ON));
    done(fm.request(&Request::Release { name: "more".to_owned() }));
    assert_eq!((edge(&shared, &fm, from), edge(&shared, &fm, of)), ((vec![], OFF), (vec![], OFF)));
}

#[test]
fn a_restart_keeps_it_and_what_was_lost_is_told_and_made_again() {
    let shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fm.redb");
    let start = |text: &str| {
        let store = Some(Store::open(&path).unwrap());
        let mut fm = manager(&shared, want(text), StartMode::FmFirst, store);
        fm.start().unwrap();
        fm
    };
    let first = start(&file(false));
    let (state, before) = (first.state().unwrap(), holds(&shared));
    let (from, of) = ends(&first);
    drop(first);
    // A wanted state without the grant does not revoke it.
    let second = start("");
    assert_eq!((status(&second).errors, holds(&shared)), (vec![], before.clone()));
    assert_eq!(second.state().unwrap(), state);
    with_vcs(&shared, &second, of, |vcs| vcs.prefix = OFF);
    drop(second);
    let third = start(&file(false));
    let errors = status(&third).errors;
    assert!(errors.len() == 1 && errors[0].contains("not as it was"), "{errors:?}");
    assert_eq!((third.state().unwrap().grants.gim, holds(&shared)), (state.grants.gim, before));
    with_vcs(&shared, &third, from, |vcs| vcs.vtv.clear());
    drop(third);
    let fourth = start("");
    let errors = status(&fourth).errors;
    assert!(errors.len() == 1 && errors[0].contains("VTV"), "{errors:?}");
    assert_eq!(fourth.state().unwrap().grants.gim.grants, vec![]);
}

#[test]
fn what_cannot_be_is_refused_and_sends_nothing() {
    let shared = shared();
    let pool = "[[memory]]\nname = \"pool\"\nhosts = [\"h0\"]\nways = 1\nsize = \"1GiB\"\nhpa = \"0x20000000000\"\n";
    let mut fm = started(&shared, &format!("{}{pool}", file(false)));
    let before = holds(&shared);
    let show = |name: &str, of: &str, from: &[&str], size, hpa| {
        Request::ShowGim(DesiredGim {
            name: name.to_owned(),
            of: of.to_owned(),
            from: from.iter().map(ToString::to_string).collect(),
            prefix: false,
            size,
            hpa,
        })
    };
    let (own, far) = ("h0", other());
    #[rustfmt::skip] // columns: request, part of the refusal
    let cases = [
        (show("win", &far, &[own], 64, 0), "no other memory, GIM or P2P"),
        (show("pool", &far, &[own], 64, 0), "no other memory, GIM or P2P"),
        (show("a", own, &[own], 64, 0), "gim-other-domain"),
        (show("a", &far, &[], 64, 0), "at least one requester"),
        (show("a", &far, &[own, own], 64, 0), "each of them once"),
        (show("a", "nobody", &[own], 64, 0), "there is no host"),
        (show("a", "s0/port:99", &[own], 64, 0), "no device of that name that is bound"),
        (show("a", &far, &[own], 0, 0), "the size is 0"),
        (show("a", &far, &[own], 2, u64::MAX), "beyond 64 bits"),
        (show("a", &far, &[own], 64, 2 << 40), "memory-own-addresses"),
        (Request::Revoke { name: "win".into(), host: far.clone() }, "no access"),
    ];
    for (request, part) in cases {
        let refused = fm.request(&request).unwrap_err();
        assert!(refused.message.contains(part), "{request:?}: {refused}");
    }
    assert_eq!(holds(&shared), before);
}

/// Whichever messages get lost, the grant is whole, or nothing is left of it, or the refusal lists the rest.
#[test]
fn lost_answers_leave_nothing_half_shown_silently() {
    let (mut given, mut undone, mut left) = (0, 0, 0);
    for seed in 0..60 {
        let shared = shared();
        let mut fm = started(&shared, "");
        let empty = holds(&shared);
        shared.with(|fake| fake.faults = Some(Faults { rng: Rng::new(seed), per_mille: 120 }));
        let show = Request::ShowGim(DesiredGim {
            name: "win".to_owned(),
            of: other(),
            from: vec!["h0".to_owned()],
            prefix: false,
            size: 64,
            hpa: HPA,
        });
        let outcome = fm.request(&show);
        shared.with(|fake| fake.faults = None);
        match outcome {
            Ok(_) => {
                given += 1;
                done(fm.request(&Request::Release { name: "win".to_owned() }));
            }
            Err(refused) if refused.message.contains("left: ") => {
                left += 1;
                continue;
            }
            Err(_) => undone += 1,
        }
        assert_eq!(edges(&holds(&shared)), edges(&empty), "seed {seed}");
    }
    assert!(given > 5 && undone > 5, "{given} given, {undone} undone, {left} left");
}

/// The virtual switches in the texts of all components.
fn edges(all: &[String]) -> Vec<String> {
    let part = |text: &String| text.split_once("vcss:").map(|(_, rest)| rest.to_owned());
    all.iter().filter_map(part).collect()
}

fn traced(fm: &mut Fm, hpa: u64) -> Trace {
    match fm.request(&Request::Trace { host: "h0".into(), hpa, via: Via::Uio }).unwrap() {
        Response::Trace(trace) => trace,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_trace_follows_it_to_the_prefix_and_back() {
    let shared = shared();
    for prefix in [false, true] {
        let mut fm = started(&shared, &file(prefix));
        let (from, of) = ends(&fm);
        let trace = traced(&mut fm, HPA + (16 << 20) - 1);
        assert_eq!((&trace.end, trace.dpid), (&End::Host, Some(of.pid.bits())), "{trace:?}");
        let tables: Vec<&str> = trace.steps.iter().map(|step| step.table.as_str()).collect();
        for table in ["VTV", "DRT", "VendPrefixL0"] {
            assert!(tables.contains(&table), "{table}: {tables:?}");
        }
        assert!(matches!(traced(&mut fm, HPA + (16 << 20)).end, End::Unknown(_)));
        let why = |fm: &mut Fm| match traced(fm, HPA).end {
            End::Refused(why) => why,
            other => panic!("{other:?}"),
        };
        with_vcs(&shared, &fm, of, |vcs| vcs.vtv.clear());
        assert!(why(&mut fm).contains("the completion is dropped"));
        with_vcs(&shared, &fm, of, |vcs| vcs.prefix.out = false);
        assert!(why(&mut fm).contains("no VendPrefixL0 may be put in front"));
        with_vcs(&shared, &fm, from, |vcs| vcs.vtv.clear());
        assert!(why(&mut fm).contains("VTV does not have"));
        if prefix {
            with_vcs(&shared, &fm, from, |vcs| vcs.prefix.into = false);
            assert!(why(&mut fm).contains("may not have a VendPrefixL0"));
        }
    }
}
