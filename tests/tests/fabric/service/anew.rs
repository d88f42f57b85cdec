//! A component that knows its manager by the port that it was claimed through, and a way to it that changes.
//!
//! A switch behind another one, by Fabric Crawl Out; the port that messages come in by is the test's.
//!
//! Source: docs/security.md, "Commands"; docs/spec/wire-formats.md §4.4, §4.5 (5701h).

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use weft_cxl::cci::{Component, Served, Session, serve};
use weft_dataplane::time::Instant;
use weft_fm::cci::{CallError, CciSession, InProcess, RetryPolicy, TransportError, Way};
use weft_fm::model::inventory::Manager;
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership};
use weft_parsers::cci::{Header, Payload, Request, ReturnCode, Uuid, pbr};
use weft_parsers::fabric::Pid;
use weft_pbr_switch::{Switch, SwitchConfig};

const US: Uuid = [0xF1; 16];
const OWN: Pid = Pid::from_low_bits(0x10);

fn manager() -> Manager {
    Manager { uuid: US, pid: Pid::from_low_bits(0xFFE) }
}

/// The switch behind the one that all go through, and the port of it that they come in by.
struct Far {
    switch: Arc<Mutex<Switch>>,
    port: Arc<AtomicU8>,
}

impl Far {
    fn new() -> Self {
        let switch = Switch::new(SwitchConfig::new([7; 16], 7)).unwrap();
        Self { switch: Arc::new(Mutex::new(switch)), port: Arc::new(AtomicU8::new(3)) }
    }

    /// The way of a manager to it.
    fn fabric(&self, manager: Manager) -> CciSession {
        let (switch, port, spid) = (self.switch.clone(), self.port.clone(), manager.pid);
        let entry = InProcess(move |request: &[u8]| -> Result<Vec<u8>, TransportError> {
            let (outer, payload) = Header::parse(request)?;
            let inner = pbr::CrawlOut::parse(payload)?;
            let session = Session::InBand { port: port.load(Ordering::SeqCst), pid: spid };
            let (mut switch, mut answer) = (switch.lock().unwrap(), Vec::new());
            let message = inner.message.bytes();
            let served = serve(&mut *switch, Instant::ZERO, session, message, &mut answer);
            assert_eq!(served, Served::Response);
            let len = u16::try_from(answer.len()).unwrap().to_le_bytes();
            let mut out = [&[0; 12], &len[..], &[0; 2], &answer].concat();
            outer.response(ReturnCode::Success).emit(answer.len() + 4, &mut out).unwrap();
            Ok(out)
        });
        let mut fabric = CciSession::new(Box::new(entry), RetryPolicy::quick());
        fabric.manage(manager);
        fabric
    }
}

#[test]
fn a_manager_makes_itself_known_by_a_new_way() {
    let far = Far::new();
    let mut fabric = far.fabric(manager());
    let claim = |op| {
        let Manager { pid: fm, uuid: fm_uuid, .. } = manager();
        Request::ClaimOwnership(ClaimOwnership { op, fm, fm_uuid, pid: OWN })
    };
    let way = Way::Pid(OWN);
    fabric.call(way, &claim(ClaimOp::RegisterPrimary)).unwrap();
    let had = fabric.calls();
    fabric.call(way, &Request::IdentifySwitch).unwrap();
    assert_eq!(fabric.calls(), had + 1, "it is known there");
    // Routes have changed: messages come in by another port, by which nobody has claimed anything.
    far.port.store(5, Ordering::SeqCst);
    fabric.call(way, &Request::IdentifySwitch).unwrap();
    assert_eq!(fabric.calls(), had + 5, "refused, who is it, claimed, and asked again");
    fabric.call(way, &Request::IdentifySwitch).unwrap();
    assert_eq!(fabric.calls(), had + 6);
    // The link of that port was down for a while.
    far.switch.lock().unwrap().common_mut().ownership.forget_way(5);
    fabric.call(way, &Request::IdentifySwitch).unwrap();
    assert_eq!(fabric.calls(), had + 10);
    // A command that there is not is still refused, once.
    let nothing = fabric.call(way, &Request::IdentifyGfd);
    assert!(matches!(nothing, Err(CallError::Refused { code: ReturnCode::Unsupported, .. })));
    // Somebody with the manager's PID and not its UUID comes to nothing.
    let forger = Manager { uuid: [9; 16], ..manager() };
    far.port.store(6, Ordering::SeqCst);
    let refused = far.fabric(forger).call(way, &Request::IdentifySwitch);
    assert!(matches!(refused, Err(CallError::Refused { code: ReturnCode::Unsupported, .. })));
    let switch = far.switch.lock().unwrap();
    assert_eq!(switch.common().ownership.primary().map(|fm| fm.uuid), Some(US));
}
