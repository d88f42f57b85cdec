//! Several managers: elections and stores on an etcd in memory, and components that go from manager to manager.
//!
//! Candidates and services on a [`FakeEtcd`] and a fake fabric.
//!
//! Source: docs/fm.md "Several managers".

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use weft_base::rng::Rng;
use weft_base::wait::{LONG, until};
use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;
use weft_rpc::Answer;

use super::fake::Shared;
use super::fake_etcd::FakeEtcd;
use super::service::{manager, shared, status, want, want_text};
use crate::cci::{CciSession, Gate};
use crate::model::graph::SwitchId;
use crate::model::lineage::Lineage;
use crate::service::ha::address::Address;
use crate::service::ha::answer::{ANSWER_MAX, AnswerError, Kept, Outcome, Ranged, read};
use crate::service::ha::election::{Candidate, Lead};
use crate::service::ha::etcd::{Change, Etcd, EtcdError, Post};
use crate::service::ha::permit::clock;
use crate::service::ha::rival::Rival;
use crate::service::ha::service::{HaService, Setup, Term};
use crate::service::ha::store::SharedStore;
use crate::service::status::{Phase, StartMode};
use crate::service::{Fm, Setup as FmSetup};
use crate::state::desired::{Management, Secondary};
use crate::state::store::{Backend, Store, StoreError};

const TTL: Duration = Duration::from_secs(2);
const BASE: Uuid = [0xF1; 16];

fn address() -> Address {
    "etcd://127.0.0.1:1/weft".parse().unwrap()
}

fn candidate<P: Post>(post: P, name: &str) -> Candidate<P> {
    Candidate::new(post, address(), name, TTL, clock)
}

/// A manager of a term, as [`HaService`] makes it.
pub fn of_term_on(
    fabric: impl FnOnce(Uuid) -> CciSession,
    more: &str,
    term: u64,
    store: Option<Store>,
) -> Fm {
    let lineage = Lineage { base: BASE, term };
    let mut desired = want(more);
    let pid = desired.manager().pid;
    desired.fm.uuid = Some(lineage.now());
    desired.fm.secondary = Some(Secondary { uuid: lineage.next(), pid });
    desired.fm.lineage = Some(lineage);
    let (fabric, mode) = (fabric(lineage.now()), StartMode::FmFirst);
    Fm::new(FmSetup { fabric, desired, mode, take_over: false, store, drain: || {} })
}

fn of_term(shared: &Shared, more: &str, term: u64, store: Option<Store>) -> Fm {
    of_term_on(|uuid| shared.fabric(uuid), more, term, store)
}

/// Terms of the primary and the secondary manager of each component.
fn owners(shared: &Shared) -> Vec<(Option<u64>, Option<u64>)> {
    let last = Lineage { base: BASE, term: u64::MAX };
    let term = |of: Option<(Pid, Uuid)>| of.and_then(|(_, uuid)| last.term_of(uuid));
    shared.with(|fake| {
        let of = |node: &super::fake::Node| (term(node.base.primary), term(node.base.secondary));
        fake.nodes.iter().map(of).collect()
    })
}

fn all_are(shared: &Shared, term: u64) {
    let owners = owners(shared);
    assert!(owners.iter().all(|own| *own == (Some(term), Some(term + 1))), "{term}: {owners:?}");
}

#[test]
fn one_leads_and_the_next_one_when_its_lease_has_ended() {
    let etcd = Arc::new(FakeEtcd::default());
    let (one, two) = (candidate(etcd.clone(), "one"), candidate(etcd.clone(), "two"));
    assert_eq!(two.leader().unwrap(), None);
    let first = one.campaign().unwrap().unwrap();
    assert!(two.campaign().unwrap().is_none() && first.permit.holds());
    assert_eq!((first.term, two.leader().unwrap().as_deref()), (1, Some("one")));
    assert_eq!(etcd.state.lock().unwrap().leases.len(), 1, "the loser gives its lease back");
    assert!(one.keep(&first).unwrap());
    etcd.state.lock().unwrap().expire(first.fence.0.lease);
    let second = two.campaign().unwrap().unwrap();
    assert_eq!((second.term, one.leader().unwrap().as_deref()), (2, Some("two")));
    // By its own clock the first leader may go on, but etcd refuses its writes.
    let write = |lead: &Lead| Etcd(etcd.clone()).write(&lead.fence, &[], &[Change::Put("k", b"v")]);
    assert!(matches!(write(&first), Err(EtcdError::Deposed)));
    assert!(!etcd.state.lock().unwrap().keys.contains_key(b"k".as_slice()));
    write(&second).unwrap();
    assert!(!one.keep(&first).unwrap() && !first.permit.holds());
    // A name with control characters is shown as text of one line.
    let named = candidate(etcd.clone(), "evil\n\u{1b}[2J");
    assert_eq!(named.name(), "evil[2J");
}

#[test]
fn a_store_that_is_shared_keeps_large_parts_and_refuses_who_led_before() {
    let etcd = Arc::new(FakeEtcd::default());
    let one = candidate(etcd.clone(), "one");
    let lead = Arc::new(one.campaign().unwrap().unwrap());
    let store = |lead: &Arc<Lead>| SharedStore::new(etcd.clone(), address(), lead.clone());
    let mine = store(&lead);
    let sizes = [0, 1, (96 << 10) + 1, 512 << 10, (512 << 10) + 1, 3 << 20, 7];
    for size in sizes {
        let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
        mine.write(&[("home", Some(bytes.clone())), ("form", Some(vec![1]))]).unwrap();
        assert_eq!(mine.read("home").unwrap().unwrap(), bytes, "{size} bytes");
        let pieces = {
            let state = etcd.state.lock().unwrap();
            state.keys.keys().filter(|key| key.starts_with(b"weft/pieces/")).count()
        };
        let few = if size > 96 << 10 { size.div_ceil(512 << 10) } else { 0 };
        assert_eq!(pieces, few, "those of the write before are gone: {size} bytes");
    }
    mine.write(&[("form", None)]).unwrap();
    assert_eq!(mine.read("form").unwrap(), None);
    etcd.state.lock().unwrap().expire(lead.fence.0.lease);
    let next = Arc::new(candidate(etcd.clone(), "two").campaign().unwrap().unwrap());
    let failed = mine.write(&[("form", Some(vec![2]))]).unwrap_err();
    assert!(matches!(failed, StoreError::Shared { what: "write", .. }), "{failed:?}");
    assert!(!lead.permit.holds(), "it has noticed");
    assert_eq!(store(&next).read("form").unwrap(), None);
    assert_eq!(store(&next).read("home").unwrap().unwrap(), (0..7).collect::<Vec<u8>>());
    next.permit.end();
    assert!(store(&next).write(&[("form", Some(vec![3]))]).is_err(), "not after its own time");
    // A stored value with a wrong bit is never read as another state.
    let third = {
        etcd.state.lock().unwrap().expire(next.fence.0.lease);
        Arc::new(candidate(etcd.clone(), "three").campaign().unwrap().unwrap())
    };
    for place in 0..60 {
        let changed = {
            let mut state = etcd.state.lock().unwrap();
            let stored = state.keys.get_mut(b"weft/state/home".as_slice()).unwrap();
            let Some(byte) = stored.value.get_mut(place) else { break };
            *byte ^= 1;
            stored.value.clone()
        };
        let quick = store(&third);
        third.permit.end(); // a read is repeated until the permit ends
        let read = quick.read("home");
        let text = String::from_utf8_lossy(&changed).into_owned();
        assert!(
            !matches!(&read, Ok(Some(b)) if *b != (0..7).collect::<Vec<u8>>()),
            "{text}: {read:?}"
        );
        let mut state = etcd.state.lock().unwrap();
        state.keys.get_mut(b"weft/state/home".as_slice()).unwrap().value[place] ^= 1;
    }
}

/// Each leader promotes itself at all components, which then refuse the leader before.
#[test]
fn components_go_from_leader_to_leader_and_refuse_those_before() {
    let shared = shared();
    let mut single = manager(&shared, want(""), StartMode::FmFirst, None);
    single.start().unwrap(); // a single manager, from before there were several
    for term in [1, 2, 3] {
        let mut fm = of_term(&shared, "", term, None);
        fm.start().unwrap();
        assert_eq!((status(&fm).phase, status(&fm).errors), (Phase::Up, vec![]), "term {term}");
        all_are(&shared, term);
        let held = super::service::holds(&shared);
        single.watch();
        assert_eq!(status(&single).phase, Phase::Failed, "it has noticed");
        assert!(single.start().is_err() && single.rediscover().is_err());
        assert_eq!(super::service::holds(&shared), held, "and has changed nothing");
        single = fm;
    }
    // The components have term 4 as their secondary manager, which never started.
    let mut late = of_term(&shared, "", 9, None);
    late.start().unwrap();
    all_are(&shared, 9);
    // Term 10 promoted itself at some components, and registered a secondary manager at every other one of them only.
    let lineage = Lineage { base: BASE, term: 10 };
    shared.with(|fake| {
        for (place, node) in fake.nodes.iter_mut().enumerate().take(4) {
            let pid = node.base.primary.unwrap().0;
            node.base.primary = Some((pid, lineage.now()));
            node.base.secondary = (place % 2 == 0).then_some((pid, lineage.next()));
        }
    });
    let mut next = of_term(&shared, "", 12, None);
    next.start().unwrap();
    assert_eq!(status(&next).errors, Vec::<String>::new());
    all_are(&shared, 12);
    // Managers of earlier terms change nothing, and a stranger's component is left alone.
    for term in [11, 3] {
        let held = super::service::holds(&shared);
        assert!(of_term(&shared, "", term, None).start().is_err(), "term {term}");
        assert_eq!(super::service::holds(&shared), held);
    }
    shared.with(|fake| fake.nodes[0].base.primary = Some((Pid::from_low_bits(0xFFD), [9; 16])));
    let error = of_term(&shared, "", 13, None).start().unwrap_err();
    assert!(format!("{error:?}").contains("Owned"), "{error:?}");
}

fn service(etcd: &Arc<FakeEtcd>, shared: &Shared, name: &str, wanted: Option<String>) -> HaService {
    service_by(etcd, shared, name, wanted, Arc::default())
}

/// A service that cannot reach its entry switch while `cut` is set.
fn service_by(
    etcd: &Arc<FakeEtcd>,
    shared: &Shared,
    name: &str,
    wanted: Option<String>,
    cut: Arc<AtomicBool>,
) -> HaService {
    let shared = shared.clone();
    let make = move |Term { desired, store, gate }: Term| {
        let cut = cut.clone();
        let gate = Gate(Arc::new(move || (gate.0)() && !cut.load(Ordering::SeqCst)));
        let fabric = shared.gated(desired.manager().uuid, gate);
        let (mode, store) = (StartMode::FmFirst, Some(store));
        let setup = FmSetup { fabric, desired, mode, take_over: false, store, drain: || {} };
        Ok(Fm::new(setup))
    };
    let (post, name, ttl, replace) = (etcd.clone(), name.to_owned(), TTL, false);
    let setup =
        Setup { post, address: address(), name, ttl, wanted, replace, make: Box::new(make) };
    HaService::start(setup, Duration::from_millis(10)).unwrap()
}

fn ask(service: &HaService, request: &Value) -> Result<Value, String> {
    let Answer::Line(line) = service.handler().answer(request.to_string().as_bytes()) else {
        panic!("a line");
    };
    let answer: Value = serde_json::from_slice(&line).unwrap();
    match answer.get("ok") {
        Some(ok) => Ok(ok.clone()),
        None => Err(answer["error"]["message"].as_str().unwrap().to_owned()),
    }
}

fn phase(service: &HaService) -> String {
    let answer = ask(service, &json!({ "cmd": "status" })).unwrap();
    answer["status"]["phase"].as_str().unwrap().to_owned()
}

fn is_up(service: &HaService) {
    until(LONG, "a leader", || (phase(service) == "up").then_some(()));
}

const WANTED: &str = "[fm]\nuuid = \"f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1\"\n";

/// The standby manager names the leader to clients, and takes over when that one ends. A leader without etcd stands by
/// until etcd is back.
#[test]
fn standby_managers_name_the_leader_and_take_over() {
    let (etcd, shared) = (Arc::new(FakeEtcd::default()), shared());
    let one = service(&etcd, &shared, "one", Some(WANTED.to_owned()));
    is_up(&one);
    let entry = b"weft/state/entry".as_slice();
    assert!(
        etcd.state.lock().unwrap().keys.contains_key(entry),
        "what the wanted state means by it"
    );
    let two = service(&etcd, &shared, "two", None);
    let leader = |service: &HaService| {
        let answer = ask(service, &json!({ "cmd": "status" })).unwrap();
        answer["status"]["ha"]["leader"].as_str().map(str::to_owned)
    };
    until(LONG, "it knows", || (leader(&two).as_deref() == Some("one")).then_some(()));
    assert_eq!(phase(&two), "standby");
    let release = json!({ "cmd": "release", "name": "x" });
    assert_eq!(ask(&two, &release).unwrap_err(), "this fabric manager stands by; \"one\" leads");
    assert!(ask(&two, &json!({ "cmd": "topology" })).unwrap_err().contains("\"one\" leads"));
    assert!(ask(&one, &json!({ "cmd": "take_over" })).unwrap_err().contains("elect"));
    assert!(ask(&one, &release).unwrap_err().contains("there is no memory"));
    drop(one); // gives its lease up
    is_up(&two);
    all_are(&shared, 2);
    // etcd does not answer: the leader stands by within a lease, and the fabric stays as it is.
    let held = super::service::holds(&shared);
    etcd.silent.store(true, Ordering::SeqCst);
    until(LONG, "it stands by", || (phase(&two) == "standby").then_some(()));
    let refused = ask(&two, &release).unwrap_err();
    assert!(refused.contains("none leads now"), "{refused}");
    let answer = ask(&two, &json!({ "cmd": "status" })).unwrap();
    let said = answer["status"]["ha"]["store_error"].as_str().unwrap_or_default().to_owned();
    assert!(said.contains("does not answer"), "{answer}");
    assert_eq!(super::service::holds(&shared), held);
    // etcd still has the former lease: the manager gives that up, and leads in a new term.
    assert!(etcd.state.lock().unwrap().leader().is_some());
    etcd.silent.store(false, Ordering::SeqCst);
    is_up(&two);
    all_are(&shared, 3);
    // The wanted state of a newcomer does not replace the stored one.
    let three = service(&etcd, &shared, "three", Some(format!("{WANTED}switch_ns = 7\n")));
    drop(two);
    is_up(&three);
    let answer = ask(&three, &json!({ "cmd": "status" })).unwrap();
    let note = answer["status"]["ha"]["note"].as_str().unwrap_or_default().to_owned();
    assert!(note.contains("--replace-want"), "{answer}");
}

/// When etcd keeps leases alive but confirms no write, the leader changes nothing more, and says why. It leads again
/// when a write is confirmed; nothing is left of the change that was under way.
#[test]
fn a_leader_whose_writes_are_not_confirmed_stands_by() {
    let (etcd, shared) = (Arc::new(FakeEtcd::default()), shared());
    let one = service(&etcd, &shared, "one", Some(want_text("")));
    is_up(&one);
    let status = || ask(&one, &json!({ "cmd": "status" })).unwrap()["status"].clone();
    let held = super::service::holds(&shared);
    etcd.unconfirming.store(true, Ordering::SeqCst);
    let share = json!({ "cmd": "share", "name": "pool", "hosts": ["h0"], "ways": 2,
        "size": 1_u64 << 29, "granularity": 4096, "hpa": 1_u64 << 40 });
    let refused = ask(&one, &share).unwrap_err();
    assert!(refused.contains("led until its term ended"), "{refused}");
    assert_eq!(super::service::holds(&shared), held, "no component was told anything");
    until(LONG, "it stands by", || (status()["phase"] == "standby").then_some(()));
    until(LONG, "it says why", || {
        let events = ask(&one, &json!({ "cmd": "events" })).unwrap().to_string();
        events.contains("term 1 has ended: etcd has kept its lease").then_some(())
    });
    until(LONG, "it tries again and says why not", || {
        let said = status()["ha"]["store_error"].as_str().unwrap_or_default().to_owned();
        said.contains("does not answer").then_some(())
    });
    assert_eq!(
        (status()["phase"].as_str(), status()["ha"]["term"].as_u64()),
        (Some("standby"), Some(1))
    );
    assert_eq!(super::service::holds(&shared), held);
    etcd.unconfirming.store(false, Ordering::SeqCst);
    is_up(&one);
    assert!(status()["ha"]["term"].as_u64() > Some(1));
    let memory = ask(&one, &json!({ "cmd": "memory" })).unwrap();
    assert_eq!(memory, json!({ "memory": [] }), "not half of it either");
    ask(&one, &share).unwrap();
}

/// The entry of a wanted state is the same switch for every manager, whichever switch a manager enters by.
#[test]
fn the_entry_of_the_wanted_state_is_one_switch() {
    let shared = shared();
    let mut fm = of_term(&shared, "", 1, None);
    fm.start().unwrap();
    let mut inventory = fm.state().unwrap().inventory;
    let mut management = Management::default();
    assert_eq!(
        management.entry_in(&inventory),
        Some(SwitchId(0)),
        "its own where nothing is known"
    );
    management.entry_serial = Some(inventory.switches[1].serial);
    assert_eq!(management.entry_in(&inventory), Some(SwitchId(1)));
    inventory.switches[0].serial = inventory.switches[1].serial;
    assert_eq!(management.entry_in(&inventory), None, "one of them lies");
    management.entry_serial = Some(0xDEAD);
    assert_eq!(management.entry_in(&inventory), None, "it is not there");
}

/// A leader that cannot reach its entry switch leaves the lead to a manager that can, and says why.
#[test]
fn a_leader_without_its_entry_switch_stands_aside() {
    let (etcd, shared, cut) = (Arc::new(FakeEtcd::default()), shared(), Arc::default());
    let one = service_by(&etcd, &shared, "one", Some(WANTED.to_owned()), Arc::clone(&cut));
    is_up(&one);
    let two = service(&etcd, &shared, "two", None);
    cut.store(true, Ordering::SeqCst);
    is_up(&two);
    all_are(&shared, 2);
    let status = ask(&one, &json!({ "cmd": "status" })).unwrap();
    let note = status["status"]["ha"]["note"].as_str().unwrap_or_default().to_owned();
    assert!(note.contains("its entry switch did not answer"), "{status}");
    // Without another manager it leads again, and goes on when its entry switch answers.
    drop(two);
    until(LONG, "it tries", || (phase(&one) != "standby").then_some(()));
    cut.store(false, Ordering::SeqCst);
    is_up(&one);
}

/// A way to etcd that changes, adds, removes or cuts off bytes of half the answers.
#[derive(Debug)]
struct Mutated {
    etcd: Arc<FakeEtcd>,
    rng: Mutex<Rng>,
}

pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let len = bytes.len() as u64;
        let at = usize::try_from(rng.below(len.max(1))).unwrap();
        let digit = b"0123456789\"{}[]:,eE-+.tf\\\0"[usize::try_from(rng.below(26)).unwrap()];
        match rng.below(6) {
            _ if bytes.is_empty() => bytes.push(digit),
            0 => bytes[at] = rng.next_u64().to_le_bytes()[0],
            1 => bytes[at] = digit,
            2 => bytes.insert(at, digit),
            3 => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            _ => {
                let end = at + usize::try_from(rng.below(40)).unwrap();
                let part = bytes[at..end.min(bytes.len())].to_vec();
                let to = usize::try_from(rng.below(len)).unwrap();
                bytes.splice(to..to, part);
            }
        }
    }
}

impl Post for Mutated {
    fn post(&self, path: &str, body: &str) -> Result<Vec<u8>, EtcdError> {
        let mut bytes = self.etcd.answer(path, body);
        let mut rng = self.rng.lock().unwrap();
        if rng.chance(1, 2) {
            mutate(&mut rng, &mut bytes);
        }
        Ok(bytes)
    }
}

/// Of 100,000 answers half are mutated: no manager wrongly believes that it leads, no term comes twice, and no read or
/// write is wrongly confirmed.
#[test]
fn mutated_answers_make_no_second_leader() {
    let etcd = Arc::new(FakeEtcd::default());
    let seed = 7;
    let mutated = Arc::new(Mutated { etcd: etcd.clone(), rng: Mutex::new(Rng::new(seed)) });
    let all = ["one", "two", "three"].map(|name| candidate(mutated.clone(), name));
    let (mut rng, mut led, mut refused) = (Rng::new(seed + 1), 0, 0);
    let (mut answers, mut before, mut known) = (0, 0, 0);
    while answers < 100_000 {
        let one = &all[usize::try_from(rng.below(3)).unwrap()];
        let _ = one.leader();
        let outcome = one.campaign();
        answers += 4;
        refused += u32::from(outcome.is_err());
        if let Ok(Some(lead)) = outcome {
            led += 1;
            assert!(lead.term > before, "seed {seed}: term {} after {before}", lead.term);
            before = lead.term;
            let truth = || etcd.state.lock().unwrap().leader();
            assert_eq!(truth(), Some(lead.fence.0.lease), "seed {seed}: {lead:?}");
            for count in 0..8_u32 {
                let value = format!("{}-{count}", lead.term);
                answers += 2;
                let put = Change::Put("weft/k", value.as_bytes());
                if Etcd(mutated.clone()).write(&lead.fence, &[], &[put]).is_ok() {
                    let state = etcd.state.lock().unwrap();
                    assert_eq!(state.keys[b"weft/k".as_slice()].value, value.as_bytes());
                }
                let kept = one.keep(&lead);
                assert!(lead.permit.left() <= TTL, "{kept:?}");
            }
            assert_eq!(truth(), Some(lead.fence.0.lease));
            etcd.state.lock().unwrap().expire(lead.fence.0.lease);
        } else {
            // A candidate may have won without an answer that says so: its lease ends.
            etcd.state.lock().unwrap().depose();
        }
        if rng.chance(1, 64) {
            let sure = Etcd(mutated.clone()).sure("weft/k");
            let state = etcd.state.lock().unwrap();
            let has = state.keys.get(b"weft/k".as_slice()).map(|stored| stored.value.clone());
            if let Ok(found) = sure {
                assert_eq!(found.map(|found| found.value), has, "seed {seed}");
                known += 1;
            }
        }
    }
    assert!(known > 10, "{known} reads confirmed");
    assert!(led > 500 && refused > 5_000, "{led} led, {refused} refused");
}

/// Change of an answer on its way.
type OnItsWay = fn(Vec<u8>) -> Vec<u8>;

/// A way to etcd that applies `change` to one answer, that of the first read of `key`.
#[derive(Debug)]
struct Once {
    etcd: Arc<FakeEtcd>,
    key: &'static str,
    change: Mutex<Option<OnItsWay>>,
}

impl Post for Once {
    fn post(&self, path: &str, body: &str) -> Result<Vec<u8>, EtcdError> {
        let bytes = self.etcd.answer(path, body);
        let asked = data_encoding::BASE64.encode(self.key.as_bytes());
        let is_it = path == "/v3/kv/range" && body.contains(&asked);
        let change = if is_it { self.change.lock().unwrap().take() } else { None };
        Ok(change.map_or_else(|| bytes.clone(), |change| change(bytes.clone())))
    }
}

fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains(from), "{text}");
    text.replace(from, to).into_bytes()
}

/// One mutated read, empty or with another number, makes no term begin again.
#[test]
fn no_answer_takes_terms_back() {
    let changes: [OnItsWay; 5] = [
        |bytes| replaced(&bytes, "\"kvs\"", "\"kvw\""),
        |_| b"{}".to_vec(),
        |_| b"{\"header\":{\"revision\":\"9\"}}".to_vec(),
        |bytes| replaced(&bytes, "\"NQ==\"", "\"MQ==\""), // 5, 1
        |bytes| replaced(&bytes, "\"mod_revision\":\"", "\"mod_revision\":\"1"),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let etcd = Arc::new(FakeEtcd::default());
        let own = candidate(etcd.clone(), "own");
        let depose = || etcd.state.lock().unwrap().depose();
        for term in 1..=5 {
            assert_eq!(own.campaign().unwrap().unwrap().term, term);
            depose();
        }
        let change = Mutex::new(Some(change));
        let post = Arc::new(Once { etcd: etcd.clone(), key: "weft/term", change });
        let other = candidate(post, "other");
        let failed = other.campaign();
        assert!(matches!(failed, Err(EtcdError::Answer(_))), "{at}: {failed:?}");
        depose();
        assert_eq!(other.campaign().unwrap().unwrap().term, 6, "{at}: the next answer is right");
    }
}

/// After etcd has lost its data, the next term is greater than the last one in which the fabric was led.
#[test]
fn an_etcd_that_has_lost_its_data_does_not_leave_the_fabric_without_a_manager() {
    let (shared, etcd) = (shared(), Arc::new(FakeEtcd::default()));
    let one = service(&etcd, &shared, "one", Some(WANTED.to_owned()));
    is_up(&one);
    for _ in 0..2 {
        etcd.state.lock().unwrap().depose();
        let term = |one: &HaService| {
            ask(one, &json!({ "cmd": "status" })).unwrap()["status"]["ha"]["term"].clone()
        };
        let before = term(&one);
        until(LONG, "another term", || (term(&one) != before).then_some(()));
        is_up(&one);
    }
    all_are(&shared, 3);
    {
        let mut state = etcd.state.lock().unwrap();
        state.keys.clear();
        state.leases.clear();
    }
    until(LONG, "a term behind the last", || (owners(&shared)[0].0 > Some(3)).then_some(()));
    is_up(&one);
    all_are(&shared, term_of(&one));
    let events = ask(&one, &json!({ "cmd": "events" })).unwrap().to_string();
    assert!(events.contains("was led in term 3, which etcd has lost"), "{events}");
}

/// Two groups with one `fm.uuid`: a leader that is deposed while etcd keeps its lease leaves the fabric to the other
/// group. Each manager of its group says so, and they take over only on a client's request.
#[test]
fn a_group_that_is_deposed_by_another_one_does_not_fight() {
    let (shared, etcd, other) = (shared(), Arc::default(), Arc::default());
    let one = service(&etcd, &shared, "one", Some(WANTED.to_owned()));
    is_up(&one);
    let two = service(&etcd, &shared, "two", None);
    let newcomer = service(&other, &shared, "new", Some(WANTED.to_owned()));
    is_up(&newcomer);
    for stands in [&one, &two] {
        until(LONG, "it says why", || rival_error(stands).map(drop));
        assert_eq!(phase(stands), "standby");
        let refused = ask(stands, &json!({ "cmd": "memory" })).unwrap_err();
        assert!(
            refused.contains("another group of fabric managers with this fm.uuid"),
            "{refused}"
        );
    }
    let told = ask(&one, &json!({ "cmd": "events" })).unwrap().to_string();
    assert!(told.contains("then `weft fm take-over`"), "{told}");
    // The group elects no leader, also with a newcomer; the other group's term stays as it is.
    let (term, own) = (term_of(&newcomer), term_of(&one));
    let three = service(&etcd, &shared, "three", None);
    until(LONG, "it knows", || rival_error(&three).map(drop));
    let looks = ha_looks(&etcd);
    until(LONG, "they look again and again", || (ha_looks(&etcd) > looks + 60).then_some(()));
    assert_eq!((term_of(&newcomer), term_of(&one), etcd_leader(&etcd)), (term, own, None));
    all_are(&shared, term);
    assert!(ask(&newcomer, &json!({ "cmd": "take_over" })).unwrap_err().contains("elect"));
    // On a client's request it takes over, and the other group stands by.
    ask(&two, &json!({ "cmd": "take_over" })).unwrap();
    is_up(&two);
    until(LONG, "the other one says why", || rival_error(&newcomer).map(drop));
    let now = term_of(&two);
    assert!(now > term, "{now}, {term}");
    all_are(&shared, now);
    until(LONG, "the others know", || rival_error(&one).is_none().then_some(()));
    assert_eq!(phase(&one), "standby");
    drop(newcomer);
    assert_eq!((phase(&two).as_str(), term_of(&two)), ("up", now));
}

/// One mutated answer does not hide that another group leads.
#[test]
fn no_answer_hides_another_group() {
    let etcd = Arc::new(FakeEtcd::default());
    let own = candidate(etcd.clone(), "own");
    let lead = own.campaign().unwrap().unwrap();
    own.note_rival(&lead, Rival { term: 7 }).unwrap();
    let hide: OnItsWay = |_| b"{\"header\":{\"revision\":\"9\"}}".to_vec();
    let change = Mutex::new(Some(hide));
    let other = candidate(Arc::new(Once { etcd, key: "weft/rival", change }), "other");
    let hidden = other.rival();
    assert!(matches!(hidden, Err(EtcdError::Answer(_))), "{hidden:?}");
    assert_eq!(other.rival().unwrap(), Some(Rival { term: 7 }), "the next answer is right");
    // The next term is beyond that of the other group, and a former leader cannot note a rival.
    own.resign(&lead).unwrap();
    let next = own.campaign().unwrap().unwrap();
    assert!(next.term > 7, "{}", next.term);
    let late = own.note_rival(&lead, Rival { term: 9 });
    assert!(matches!(late, Err(EtcdError::Deposed)), "{late:?}");
    own.forget_rival(&next).unwrap();
    assert_eq!(own.rival().unwrap(), None);
}

/// A newcomer that sees terms move while a lease passes leaves the fabric to its leader.
#[test]
fn a_newcomer_that_sees_terms_move_does_not_take_the_fabric() {
    let (shared, etcd) = (shared(), Arc::default());
    of_term(&shared, "", 7, None).start().unwrap();
    let newcomer = service(&etcd, &shared, "new", Some(WANTED.to_owned()));
    until(LONG, "it has looked", || (phase(&newcomer) == "failed").then_some(()));
    let mut next = of_term(&shared, "", 8, None);
    next.start().unwrap();
    until(LONG, "it says why", || rival_error(&newcomer).map(drop));
    all_are(&shared, 8);
    next.watch();
    assert_eq!(status(&next).phase, Phase::Up);
}

fn rival_error(service: &HaService) -> Option<String> {
    let answer = ask(service, &json!({ "cmd": "status" })).unwrap();
    let error =
        answer["status"]["errors"].as_array().unwrap().first()?.as_str().unwrap().to_owned();
    error.contains("another group of fabric managers with this fm.uuid").then_some(error)
}

fn term_of(service: &HaService) -> u64 {
    let answer = ask(service, &json!({ "cmd": "status" })).unwrap();
    answer["status"]["ha"]["term"].as_u64().unwrap()
}

fn etcd_leader(etcd: &FakeEtcd) -> Option<i64> {
    etcd.state.lock().unwrap().leader()
}

/// Number of reads outside of transactions.
fn ha_looks(etcd: &FakeEtcd) -> u64 {
    etcd.state.lock().unwrap().reads
}

#[test]
fn what_is_too_long_or_too_much_is_refused() {
    let many = format!("{{\"kvs\":[{}{{}}]}}", "{},".repeat(1_000));
    assert!(matches!(read::<Ranged>(many.as_bytes()), Err(AnswerError::Json(_))));
    let deep = format!("{{\"responses\":{}", "[".repeat(100_000));
    assert!(matches!(read::<Outcome>(deep.as_bytes()), Err(AnswerError::Json(_))));
    let long = vec![b' '; ANSWER_MAX + 1];
    assert!(matches!(read::<Outcome>(&long), Err(AnswerError::Long)));
    let refused = read::<Kept>(b"{\"error\":\"etcdserver: no\\nspace\",\"code\":8}").unwrap_err();
    assert_eq!(refused.to_string(), "etcd refused: \"etcdserver: no\\nspace\"");
    for text in ["{\"result\":{\"ID\":\"x\"}}", "{\"result\":{\"TTL\":1e99}}", "{}", "[]", "", "\0"]
    {
        assert!(read::<Kept>(text.as_bytes()).is_err(), "{text}");
    }
}
