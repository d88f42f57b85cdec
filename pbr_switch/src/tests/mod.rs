//! Commands of a switch: request and response as bytes, and the resulting tables.

mod absent;
mod bytes;
mod cache_ids;
mod cache_routes;
mod edge;
mod events;
mod everyone;
mod fm;
mod pids;
mod random;
mod registers;
mod static_init;

use weft_cxl::cci::{Component, Served, Session, serve};
use weft_cxl::pci::Link;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership};
use weft_parsers::cci::pbr::{
    AssignOp, AssignPids, BindOp, BindPid, Chosen, LinkPartner, PathCost, PidAndKind,
    PidAssignment, Vppb,
};
use weft_parsers::cci::{Header, List, Opcode, Payload, Request, ReturnCode};
use weft_parsers::fabric::Pid;

use super::*;

const FM: Session = Session::Fm(1);
const HOST: Session = Session::Host { vcs: 0 };
const OTHER_HOST: Session = Session::Host { vcs: 1 };
const FREE: PathCost = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
const BAD: ReturnCode = ReturnCode::InvalidInput;

/// A switch with a host at port 0, devices at ports 1 to 3, and other switches at ports 4 and 5. Virtual switch 0 is
/// the host's and has four vPPBs; virtual switch 1 has a vUSP and two vPPBs.
struct Bench {
    switch: Switch,
    now: Instant,
}

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

/// Configure PID Binding (5706h) of a vPPB to a PID elsewhere; the switch chooses its own PID.
fn bind(vcs: u8, vppb: u8, far: u16) -> Request<'static> {
    Request::BindPid(BindPid {
        op: BindOp::Bind,
        vcs,
        vppb,
        pid: pid(far),
        own: Chosen(None),
        cost: FREE,
    })
}

fn port(number: usize) -> PortId {
    PortId::new(number).expect("below 64")
}

fn config() -> SwitchConfig {
    let roles = [Role::Usp, Role::Dsp, Role::Dsp, Role::Dsp, Role::Fabric, Role::Fabric];
    let ports = roles.into_iter().enumerate();
    let sizes = Sizes { fast: 16, fast_idt: 8, ldst: 16, ldst_idt: 8 };
    SwitchConfig {
        ports: ports.map(|(at, role)| PortConfig { port: port(at), role, pids: 2 }).collect(),
        vcses: vec![
            VcsConfig { usp: Some(port(0)), vppbs: 4, gae: true },
            VcsConfig { usp: None, vppbs: 2, gae: false },
        ],
        sizes,
        groups: 4,
        ..SwitchConfig::new([0x5A; 16], 7)
    }
}

impl Bench {
    /// A switch without an owner.
    fn fresh() -> Self {
        Self { switch: Switch::new(config()).expect("a switch"), now: Instant::ZERO }
    }

    /// A switch that [`FM`] owns. Its PID is 010h, and that of the FM 001h.
    fn new() -> Self {
        let mut bench = Self::fresh();
        let (op, fm) = (ClaimOp::RegisterPrimary, pid(1));
        let claim = ClaimOwnership { op, fm, fm_uuid: [1; 16], pid: pid(0x10) };
        bench.ok(FM, &Request::ClaimOwnership(claim));
        bench
    }

    /// Sends a message, and returns the response.
    fn send(&mut self, session: Session, bytes: &[u8]) -> (Served, Vec<u8>) {
        let mut out = Vec::new();
        (serve(&mut self.switch, self.now, session, bytes, &mut out), out)
    }

    fn ask(&mut self, session: Session, request: &Request<'_>) -> (ReturnCode, Vec<u8>) {
        let (served, out) = self.send(session, &message(request));
        assert_eq!(served, Served::Response, "{request:?}");
        let (header, payload) = Header::parse(&out).expect("a whole message");
        assert_eq!((header.opcode, header.tag), (request.opcode(), 9));
        (header.return_code, payload.to_vec())
    }

    /// Sends a request that must succeed, and returns the payload of its response.
    fn ok(&mut self, session: Session, request: &Request<'_>) -> Vec<u8> {
        let (code, payload) = self.ask(session, request);
        assert_eq!(code, ReturnCode::Success, "{request:?}");
        payload
    }

    /// Sends a request that must be refused and change nothing.
    fn bad(&mut self, session: Session, request: &Request<'_>, want: ReturnCode) {
        let before = self.switch.clone();
        let (code, payload) = self.ask(session, request);
        assert_eq!((code, payload.len()), (want, 0), "{request:?}");
        assert!(self.switch == before, "{request:?} was refused and changed something");
    }

    /// Sends a request that runs in the background, and returns its result.
    fn background(&mut self, request: &Request<'_>) -> ReturnCode {
        let (code, _) = self.ask(FM, request);
        assert_eq!(code, ReturnCode::BackgroundStarted, "{request:?}");
        self.wait(Span::from_ms(2));
        assert!(!self.switch.common().background.is_running());
        ReturnCode::from_bits(self.switch.common().background.status(self.now).return_code)
    }

    fn wait(&mut self, time: Span) {
        self.now += time;
        self.switch.tick(self.now);
    }

    fn assign(&mut self, target: u16, instance: u8, bits: u16) {
        let list = [PidAssignment { pid: pid(bits), target, instance }];
        let op = AssignOp::Assign;
        self.ok(FM, &Request::AssignPids(AssignPids { op, assignments: List::of(&list) }));
    }

    fn up(&mut self, number: usize) {
        self.switch.set_link(port(number), Some(Link::default()));
    }

    fn events(&mut self) -> Vec<Event> {
        self.switch.events().collect()
    }
}

fn message(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 40_000];
    let len = request.emit_message(9, &mut bytes).expect("it fits");
    bytes.truncate(len);
    bytes
}

/// The announcement of another switch or component.
fn told(far_port: u8, kind: u8) -> Partner {
    Partner::Pbr(LinkPartner {
        port: 0,
        far_port,
        far: PidAndKind { pid: pid(0x77), kind },
        uuid: [7; 16],
        standard_vcs: 1,
        uio_vcs: 8,
        primary_uuid: [1; 16],
        secondary_uuid: [2; 16],
    })
}

fn read<'a, T: Payload<'a>>(payload: &'a [u8]) -> T {
    T::parse(payload).expect("a good response")
}
