//! Tests of the shared CCI server, by a component with one command of each kind.

mod message;
mod ownership;
mod stream;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership};
use weft_parsers::cci::generic::Identity;
use weft_parsers::cci::{Header, Opcode, Request, Response, ReturnCode};
use weft_parsers::fabric::Pid;

use super::{Command, Common, Component, Done, Outcome, Reply, Served, Session, serve, who};

const FIRST: Session = Session::Fm(1);
const SECOND: Session = Session::Fm(2);
const HOST: Session = Session::Host { vcs: 0 };

/// A component with one byte, read and set at once, in the background, or by a pending request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Toy {
    common: Common,
    value: u8,
    later: Option<u8>,
}

const COMMANDS: &[Command] = &[
    Command::get(Opcode::GET_SV_STATE, who::PRIMARY),
    Command::set(Opcode::SET_SV, who::PRIMARY),
    Command::background(Opcode::UNBIND_VPPB, who::PRIMARY),
    Command::get(Opcode::TUNNEL, who::PRIMARY),
    Command::get(Opcode::GET_GAM_BUFFER, who::HOST),
    Command::get(Opcode::GET_PREFIX, who::PRIMARY | who::PROXY),
];

impl Toy {
    fn new() -> Self {
        let identity = Identity {
            vendor: 0x1E98,
            device: 1,
            subsystem_vendor: 2,
            subsystem: 3,
            serial: 4,
            message_max_log2: 0,
            component: 0,
        };
        Self { common: Common::new(identity), value: 0, later: None }
    }

    /// A component owned by [`FIRST`].
    fn owned() -> Self {
        let mut toy = Self::new();
        let claim = claim(ClaimOp::RegisterPrimary, 1, 0x10);
        let (code, _) = ask(&mut toy, 0, FIRST, &Request::ClaimOwnership(claim));
        assert_eq!(code, ReturnCode::Success);
        toy
    }
}

impl Component for Toy {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn commands(&self) -> &'static [Command] {
        COMMANDS
    }

    fn execute(
        &mut self,
        now: Instant,
        _session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done {
        match *request {
            Request::GetSvState => reply.send(&Response::GetSvState(self.value)),
            Request::SetSv([first, ..]) => {
                self.value = first;
                Ok(Outcome::Done)
            }
            Request::UnbindVppb(it) => {
                let end = Instant::from_ns(now.as_ns() + 100);
                self.common.background.start(Opcode::UNBIND_VPPB, now, end)?;
                self.later = Some(it.vppb);
                Ok(Outcome::Background)
            }
            Request::Tunnel(_) => Ok(Outcome::Pending(self.common.ticket(now)?)),
            Request::GetPrefix(_) | Request::GetGamBuffer => Ok(Outcome::Done),
            _ => Err(ReturnCode::Unsupported),
        }
    }

    fn tick(&mut self, now: Instant) {
        self.common.tick(now);
        if self.common.background.due(now).is_some() {
            self.value = self.later.take().unwrap_or_default();
            self.common.background.finish(ReturnCode::Success);
        }
    }
}

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

/// A claim by the fabric manager with this PID, from which its UUID is made.
fn claim(op: ClaimOp, fm: u16, component: u16) -> ClaimOwnership {
    let [low, _] = fm.to_le_bytes();
    ClaimOwnership { op, fm: pid(fm), fm_uuid: [low; 16], pid: pid(component) }
}

fn message(request: &Request<'_>, tag: u8) -> Vec<u8> {
    let mut bytes = vec![0; 4_096];
    let len = request.emit_message(tag, &mut bytes).expect("it fits");
    bytes.truncate(len);
    bytes
}

/// Sends bytes and returns the whole response.
fn send(toy: &mut Toy, at_ns: u64, session: Session, bytes: &[u8]) -> (Served, Vec<u8>) {
    let mut out = Vec::new();
    let served = serve(toy, Instant::from_ns(at_ns), session, bytes, &mut out);
    (served, out)
}

/// Sends a request and returns code and payload of the response.
fn ask(
    toy: &mut Toy,
    at_ns: u64,
    session: Session,
    request: &Request<'_>,
) -> (ReturnCode, Vec<u8>) {
    let (served, out) = send(toy, at_ns, session, &message(request, 0x5A));
    assert_eq!(served, Served::Response);
    let (header, payload) = Header::parse(&out).expect("a whole message");
    assert_eq!((header.tag, header.opcode), (0x5A, request.opcode()));
    (header.return_code, payload.to_vec())
}

/// Far longer than [`Common::PATIENCE`].
const LATE: Span = Span::from_ms(5_000);
