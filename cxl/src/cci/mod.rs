//! What every component's CCI server shares: who asks, what they may ask for, and what is answered.
//!
//! A message of a [`Session`] in, a message out ([`serve`]); what a command does is the [`Component`]'s.
//! [`StreamServer`] cuts messages out of a stream of bytes, [`Ownership`] knows the fabric managers.
//!
//! Units: bytes; time as `Instant`.
//! Source: docs/spec/wire-formats.md §4.1, §4.4; docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 sections 7.6.3,
//! 8.2.9.1, 8.2.9.5.
//!
//! A request is judged in this order, and the first that is wrong is told: the command is one that the component has,
//! whoever asks may use it (both Unsupported), its payload has the right length, its fields have values that exist,
//! and last what the component says. A refused request changes nothing.

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

/// How a command went; an error is a refusal, after which all is as it was.
pub type Done = Result<Outcome, ReturnCode>;

/// How a command that was not refused ended: done, pending or in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, and what it answers stands in the reply.
    Done,
    /// It goes on in the background: [`Common::background`] has been told.
    Background,
    /// The answer comes from elsewhere: [`Common::complete`].
    Pending(Ticket),
}

/// A component that is commanded by CCI: a switch, a GFD.
pub trait Component {
    /// What all components have.
    fn common(&self) -> &Common;

    /// What all components have, to be changed.
    fn common_mut(&mut self) -> &mut Common;

    /// The commands that it has besides those of [`Common::COMMANDS`], by opcode.
    fn commands(&self) -> &'static [Command];

    /// Carries out a command that is one of [`Component::commands`], and that `session` may use.
    ///
    /// # Errors
    /// Why it is refused; nothing has changed then.
    fn execute(
        &mut self,
        now: Instant,
        session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done;

    /// Whether it can be called `pid`: no other part of it is.
    fn can_be(&self, pid: Pid) -> bool {
        !pid.is_none()
    }

    /// Its fabric managers or its own PID have changed.
    fn owned(&mut self) {}

    /// Does what is due, such as the end of a background operation.
    fn tick(&mut self, now: Instant) {
        self.common_mut().tick(now);
    }

    /// When [`Component::tick`] has something to do next.
    fn next(&self) -> Option<Instant> {
        self.common().next()
    }
}

/// What a component did with a CCI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// A response was appended.
    Response,
    /// It is no request, or not even a header: nobody is told.
    Ignored,
    /// The response comes from [`Common::complete`] or [`Common::answers`] under this ticket.
    Pending(Ticket),
}

/// Carries out the request in `message` for `session`, and appends the response to `out`.
///
/// Nothing in `message` makes it panic: what cannot be read is refused, or ignored.
pub fn serve(
    component: &mut dyn Component,
    now: Instant,
    session: Session,
    message: &[u8],
    out: &mut Vec<u8>,
) -> Served {
    component.tick(now);
    let Ok((header, len, payload)) = Header::cut(message) else { return Served::Ignored };
    if header.category != Category::Request {
        return Served::Ignored;
    }
    let mut reply = Reply::new();
    let done = match allowed(component, session, header.opcode) {
        Ok(()) if payload.len() != len => Err(ReturnCode::InvalidPayloadLength),
        Ok(()) => match Request::parse(header.opcode, payload) {
            Ok(request) => run(component, now, session, &request, &mut reply),
            Err(error) => Err(error.return_code()),
        },
        Err(code) => Err(code),
    };
    // The limit is the FM's; a mailbox has its own length, and its host's command may have cleared what it read.
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

/// Appends the response to a request with `header`.
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

/// Carries out a command that whoever asks may use.
fn run(
    component: &mut dyn Component,
    now: Instant,
    session: Session,
    request: &Request<'_>,
    reply: &mut Reply,
) -> Done {
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

/// UUID of nobody.
pub const NO_UUID: Uuid = [0; 16];
