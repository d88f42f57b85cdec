//! Commands and state of every component: identity, owners, background operation, logs, and pending requests.
//!
//! [`Common`] is a field of each component; [`Common::execute`] carries out the commands that all components have.
//!
//! Units: bytes; time as `Instant`.
//! Source: docs/spec/wire-formats.md §4.2, §4.4; CXL 3.1 sections 8.2.9.1, 8.2.9.5.

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cci::generic::{GetLog, Identity, LogData, SupportedLog, SupportedLogs};
use weft_parsers::cci::mld::TunnelResponse;
use weft_parsers::cci::{Header, List, Opcode, Request, Response, ReturnCode};

use super::background::Background;
use super::logs::{self, Command, who};
use super::ownership::Ownership;
use super::reply::Reply;
use super::session::Session;
use super::{Done, Outcome, respond};

const ALL: u8 = who::ALL;
const ANY_FM: u8 = who::ANY_FM;
const PRIMARY: u8 = who::PRIMARY;
const OWNERS: u8 = who::PRIMARY | who::HOST | who::PROXY;

/// Longest message as a power of two: the most that a stream carries, rounded up.
const MESSAGE_MAX_LOG2: u8 = 16;
/// Smallest limit of a response that can be set, as a power of two.
const LIMIT_MIN_LOG2: u8 = 8;
/// Largest limit that a request may name, as a power of two.
const LIMIT_MAX_LOG2: u8 = 20;
/// Pending requests at a time.
const PENDING_MAX: usize = 256;

/// Id of a request whose response comes from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The response to a pending request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Ticket of the request.
    pub ticket: Ticket,
    /// Session that sent the request.
    pub session: Session,
    /// The response, header and payload.
    pub message: Vec<u8>,
}

/// A request whose response is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    until: Instant,
    /// Session and header; set by [`Common::hold`] before a response can come.
    of: Option<(Session, Header)>,
}

/// The state that every component with a CCI has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// Response of Identify (0001h).
    pub identity: Identity,
    /// Owners of the component, and its PID.
    pub ownership: Ownership,
    /// The background operation.
    pub background: Background,
    limit_log2: u8,
    next_ticket: u64,
    pending: BTreeMap<Ticket, Pending>,
    answers: VecDeque<Answer>,
}

impl Common {
    #[rustfmt::skip] // columns: senders, effects, opcode, request => handler
    crate::command_table! {
        /// Commands that all components have, with their permitted senders.
        pub const COMMANDS;
        /// Carries out `request`; `commands` are the component's own, for the log.
        fn carry_out(&mut self, request, now: Instant, commands: &[Command], reply: &mut Reply) asked by u8;
        ALL get IDENTIFY Identify => reply.send(&Response::Identify(self.identity));
        OWNERS get BACKGROUND_STATUS BackgroundStatus => reply.send(&Response::BackgroundStatus(self.background.status(now)));
        PRIMARY get GET_RESPONSE_LIMIT GetResponseLimit => reply.send(&Response::GetResponseLimit(self.limit_log2));
        PRIMARY policy SET_RESPONSE_LIMIT SetResponseLimit(log2) => self.set_limit(log2, reply);
        PRIMARY get ABORT_BACKGROUND AbortBackground => self.background.abort().map(|()| Outcome::Done);
        ALL get GET_SUPPORTED_LOGS GetSupportedLogs => supported_logs(commands, reply);
        ALL get GET_LOG GetLog(get) => log_part(commands, &get, reply);
        ANY_FM get IDENTIFY_PBR_COMPONENT IdentifyPbrComponent => reply.send(&Response::IdentifyPbrComponent(self.ownership.identity()));
        ANY_FM set CLAIM_OWNERSHIP ClaimOwnership(_) => Err(ReturnCode::Unsupported); // `run`: the component has a say in it
    }

    /// Longest wait for a response from elsewhere.
    pub const PATIENCE: Span = Span::from_ms(1_000);

    /// A component without owners.
    #[must_use]
    pub const fn new(identity: Identity) -> Self {
        Self {
            identity: Identity { message_max_log2: MESSAGE_MAX_LOG2, ..identity },
            ownership: Ownership::new(),
            background: Background::IDLE,
            limit_log2: MESSAGE_MAX_LOG2,
            next_ticket: 0,
            pending: BTreeMap::new(),
            answers: VecDeque::new(),
        }
    }

    /// Limit of a response in bytes, header included.
    #[must_use]
    pub const fn response_limit(&self) -> usize {
        1 << self.limit_log2
    }

    /// Carries out a command of [`Common::COMMANDS`] except Claim Ownership; `None` for other commands. `commands`
    /// are the component's own, for the log.
    pub fn execute(
        &mut self,
        now: Instant,
        commands: &[Command],
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Option<Done> {
        let is_common = Self::COMMANDS.iter().any(|command| command.opcode == request.opcode());
        // `ALL`, as `allowed` has checked the session already.
        is_common.then(|| self.carry_out(request, now, commands, reply, ALL))
    }

    fn set_limit(&mut self, log2: u8, reply: &mut Reply) -> Done {
        if !(LIMIT_MIN_LOG2..=LIMIT_MAX_LOG2).contains(&log2) {
            return Err(ReturnCode::InvalidInput);
        }
        // A larger limit than a message can be is accepted, and reported as the longest message.
        self.limit_log2 = log2.min(MESSAGE_MAX_LOG2);
        reply.send(&Response::SetResponseLimit(self.limit_log2))
    }

    /// Creates a ticket for a request whose response comes from elsewhere; it expires after [`Common::PATIENCE`].
    ///
    /// # Errors
    /// Busy: too many requests are pending.
    pub fn ticket(&mut self, now: Instant) -> Result<Ticket, ReturnCode> {
        if self.pending.len() >= PENDING_MAX {
            return Err(ReturnCode::Busy);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        // Wrapping, as instants wrap and are compared wrap-safe.
        let until = Instant::from_ps(now.as_ps().wrapping_add(Self::PATIENCE.as_ps()));
        self.pending.insert(ticket, Pending { until, of: None });
        Ok(ticket)
    }

    /// Records session and header of a pending request.
    pub(super) fn hold(&mut self, ticket: Ticket, session: Session, header: Header) {
        if let Some(pending) = self.pending.get_mut(&ticket) {
            pending.of = Some((session, header));
        }
    }

    /// Whether the response to a request is still pending.
    #[cfg(test)]
    #[must_use]
    pub fn is_pending(&self, ticket: Ticket) -> bool {
        self.pending.contains_key(&ticket)
    }

    /// Ends a pending request with its response: for a tunnel the message that came back, for any other command its
    /// payload. `None` if the request has expired.
    pub fn complete(
        &mut self,
        ticket: Ticket,
        answer: Result<&[u8], ReturnCode>,
    ) -> Option<Answer> {
        let (session, header) = self.pending.remove(&ticket)?.of?;
        let mut reply = Reply::new();
        let mut payload = answer.unwrap_or_default();
        let mut code = answer.err().unwrap_or(ReturnCode::Success);
        if code == ReturnCode::Success
            // A tunnelled message is a payload with a length of its own.
            && matches!(header.opcode, Opcode::TUNNEL | Opcode::CRAWL_OUT)
        {
            let inner = Response::Tunnel(TunnelResponse { message: List::of(payload) });
            match reply.send(&inner) {
                Ok(_) => payload = reply.payload(),
                Err(error) => (code, payload) = (error, &[]),
            }
        }
        let mut message = Vec::new();
        respond(header, code, payload, &mut message);
        Some(Answer { ticket, session, message })
    }

    /// Responses to expired requests: Retry Required, as the other end may answer next time. The sender of
    /// responses takes them after each tick.
    pub fn answers(&mut self) -> impl Iterator<Item = Answer> {
        self.answers.drain(..)
    }

    /// Ends pending requests whose time is over.
    pub fn tick(&mut self, now: Instant) {
        let stale = |pending: &Pending| pending.until <= now;
        let late: Vec<Ticket> =
            self.pending.iter().filter(|(_, it)| stale(it)).map(|(&ticket, _)| ticket).collect();
        for ticket in late {
            let answer = self.complete(ticket, Err(ReturnCode::RetryRequired));
            self.answers.extend(answer);
        }
    }

    /// Time at which a pending request expires or the background operation ends.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        let stale = self.pending.values().map(|pending| pending.until).min();
        Instant::earlier(stale, self.background.end())
    }

    /// A stream has ended: drops its pending requests and its rank.
    pub fn forget(&mut self, session: Session) {
        self.ownership.forget(session);
        self.pending.retain(|_, pending| pending.of.is_none_or(|(whose, _)| whose != session));
    }
}

fn supported_logs(commands: &[Command], reply: &mut Reply) -> Done {
    let len = u32::try_from(effects_of(commands).len()).unwrap_or(u32::MAX);
    let logs = [SupportedLog { log: logs::COMMAND_EFFECTS, len }];
    reply.send(&Response::GetSupportedLogs(SupportedLogs { logs: List::of(&logs) }))
}

fn log_part(commands: &[Command], get: &GetLog, reply: &mut Reply) -> Done {
    let effects = effects_of(commands);
    let data = logs::part(&effects, get)?;
    reply.send(&Response::GetLog(LogData { data }))
}

fn effects_of(commands: &[Command]) -> Vec<u8> {
    logs::command_effects(Common::COMMANDS.iter().chain(commands))
}
