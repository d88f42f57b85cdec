//! The CCI server that all components share: sessions, rights, and the way from a request to its response.
//!
//! [`serve`] takes a message of a [`Session`] and appends the response; the [`Component`] carries out its own
//! commands. [`StreamServer`] cuts messages out of a byte stream, [`Ownership`] tracks the fabric managers.
//!
//! Units: bytes; time as `Instant`.
//! Source: docs/spec/wire-formats.md §4.1, §4.4; docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 §7.6.3,
//! §8.2.9.1, §8.2.9.5.
//!
//! A request is checked in this order, and the first failure is the answer: the component has the command and the
//! session may use it (otherwise Unsupported), the payload has the right length, its fields have valid values, and
//! last the component's own checks. A refused request changes nothing.

pub mod background;
pub mod common;
pub mod logs;
pub mod ownership;
pub mod reply;
pub mod requests;
pub mod rights;
pub mod session;
pub mod stream;
pub mod table;
#[cfg(test)]
mod tests;

use weft_dataplane::time::Instant;
use weft_parsers::cci::header;
use weft_parsers::cci::{Category, Header, Opcode, Request, ReturnCode, Uuid};
use weft_parsers::fabric::Pid;

pub use background::Background;
pub use common::{Answer, Common, Ticket};
pub use logs::{Command, effect, who};
pub use ownership::{Fm, Ownership, Rank};
pub use reply::Reply;
pub use requests::Requests;
pub use rights::Right;
pub use session::Session;
pub use stream::{StreamError, StreamServer};

/// Result of a command; after an error nothing has changed.
pub type Done = Result<Outcome, ReturnCode>;

/// State of a command that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Complete: its response is in the reply.
    Done,
    /// Continues in the background: [`Common::background`] has been started.
    Background,
    /// The response comes from elsewhere, by [`Common::complete`].
    Pending(Ticket),
}

/// A component with a CCI: a switch or a GFD.
pub trait Component {
    /// State that all components have.
    fn common(&self) -> &Common;

    /// State that all components have, mutable.
    fn common_mut(&mut self) -> &mut Common;

    /// Commands of this component besides [`Common::COMMANDS`], by opcode.
    fn commands(&self) -> &'static [Command];

    /// Carries out one of [`Component::commands`] that `session` may use.
    ///
    /// # Errors
    /// The return code of the refusal; nothing has changed then.
    fn execute(
        &mut self,
        now: Instant,
        session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done;

    /// Whether the component may get `pid`, which no other part of it must have.
    fn can_be(&self, pid: Pid) -> bool {
        !pid.is_none()
    }

    /// Called when the fabric managers or the component's PID have changed.
    fn owned(&mut self) {}

    /// Does work that is due, such as ending a background operation.
    fn tick(&mut self, now: Instant) {
        self.common_mut().tick(now);
    }

    /// Time of the next call of [`Component::tick`].
    fn next(&self) -> Option<Instant> {
        self.common().next()
    }
}

/// Result of a CCI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The response was appended.
    Response,
    /// The message is no request, or has no header: there is no response.
    Ignored,
    /// The response comes from [`Common::complete`] or [`Common::answers`] with this ticket.
    Pending(Ticket),
}

/// Carries out the request in `message` for `session`, and appends the response to `out`.
///
/// No message makes it panic: a message that cannot be parsed is refused or ignored.
pub fn serve(
    component: &mut dyn Component,
    now: Instant,
    session: Session,
    message: &[u8],
    out: &mut Vec<u8>,
) -> Served {
    // A background operation that ends now must not make this command Busy.
    component.tick(now);
    let Ok((header, len, payload)) = Header::cut(message) else { return Served::Ignored };
    if header.category != Category::Request {
        return Served::Ignored;
    }
    let mut reply = Reply::new();
    let done = match allowed(component, session, header.opcode) {
        // After the rights: a session must not find out by lengths which commands exist.
        Ok(()) if payload.len() != len => Err(ReturnCode::InvalidPayloadLength),
        Ok(()) => match Request::parse(header.opcode, payload) {
            Ok(request) => run(component, now, session, &request, &mut reply),
            Err(error) => Err(error.return_code()),
        },
        Err(code) => Err(code),
    };
    // Only an FM sets the limit. A mailbox has a length of its own, and a host's command may already have cleared
    // the records that it read.
    let limit = match session {
        Session::Fm(_) | Session::InBand { .. } => component.common().response_limit(),
        Session::Host { .. } | Session::Proxy(_) => usize::MAX,
    };
    let code = match done {
        Ok(Outcome::Done) if header::LEN + reply.payload().len() > limit => {
            Err(ReturnCode::ResourcesExhausted)
        }
        Ok(Outcome::Done) => Ok(ReturnCode::Success),
        Ok(Outcome::Background) => Ok(ReturnCode::BackgroundStarted),
        // `hold` attaches session and header, without which `complete` could not address the response.
        Ok(Outcome::Pending(ticket)) => {
            component.common_mut().hold(ticket, session, header);
            return Served::Pending(ticket);
        }
        Err(code) => Err(code),
    };
    let payload = if code.is_ok() { reply.payload() } else { &[] };
    respond(header, code.unwrap_or_else(|code| code), payload, out);
    Served::Response
}

/// Appends the response to the request with `header`.
pub(crate) fn respond(header: Header, code: ReturnCode, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + header::LEN, 0);
    let place = out.get_mut(start..).unwrap_or_default();
    let written = header.response(code).emit(payload.len(), place);
    debug_assert!(written.is_some(), "a reply is shorter than a payload may be");
    out.extend_from_slice(payload);
}

/// Whether the component has the command, and `session` may use it.
fn allowed(component: &dyn Component, session: Session, opcode: Opcode) -> Result<(), ReturnCode> {
    let mut commands = Common::COMMANDS.iter().chain(component.commands());
    let found = commands.find(|command| command.opcode == opcode);
    let rank = component.common().ownership.rank(session);
    match found {
        Some(command) if command.is_for(session, rank) => Ok(()),
        _ => Err(ReturnCode::Unsupported),
    }
}

/// Carries out a command that the session may use.
fn run(
    component: &mut dyn Component,
    now: Instant,
    session: Session,
    request: &Request<'_>,
    reply: &mut Reply,
) -> Done {
    // Not in `Common::execute`: the component decides about the PID, and is notified.
    if let Request::ClaimOwnership(claim) = request {
        let free = component.can_be(claim.pid);
        let owners = component.common_mut().ownership.claim(session, claim, free)?;
        component.owned();
        return reply.send(&weft_parsers::cci::Response::ClaimOwnership(owners));
    }
    let commands = component.commands();
    match component.common_mut().execute(now, commands, request, reply) {
        Some(done) => done,
        None => component.execute(now, session, request, reply),
    }
}

/// The UUID of no manager: all zeros.
pub const NO_UUID: Uuid = [0; 16];
