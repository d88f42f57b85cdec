//! One end of a connection's mailbox: writes its own half, and reads the other one.
//!
//! [`Channel::advance`] works on it by time, and [`Channel::ended`] when a request has ended; both report [`Heard`]. A
//! mailbox in the host's own window is a slot for each port that sends requests, so only that port has written it. A
//! mailbox in fabric memory is read and written by UIO, and does not show its writer.
//!
//! Source: docs/spec/wire-formats.md §5.5.

use weft_cxl::requester::{Failure, OpId, Operation};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Hpa, Pid};
use weft_parsers::tlp::Status;

use super::mailbox::{HALF_LEN, HEAD_LEN, Half, MailShare, NoHalf, Says};
use super::owner::Owner;

/// Time between two looks while a connection is being made.
const LOOK: Span = Span::from_ms(20);
const BEAT: Span = Span::from_ms(250);
/// Refusals in a row after which a connected peer counts as gone.
const REFUSED_MAX: u32 = 3;
const REFUSED_AT_FIRST_MAX: u32 = 25;

/// Location of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address on the fabric.
    Fabric(Hpa),
    /// In this host: the slot of a port, at this address.
    Slot(Pid, u64),
}

/// Progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Hello is in the mailbox, without an answer yet.
    Connecting,
    /// No peer has said hello, or the last one is gone.
    Listening,
    /// Both sides have exchanged their shares.
    Connected,
    /// Goodbye must still be written; then the connection is over.
    Closing,
}

impl State {
    /// Name of the state in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Listening => "listening",
            Self::Connected => "connected",
            Self::Closing => "closing",
        }
    }
}

/// News from the other half of a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// At the listener: a peer wants to connect, with this session and these shares.
    Hello(u64, Vec<MailShare>),
    /// At the connecting side: the peer has accepted, with these shares.
    Welcome(Vec<MailShare>),
    /// The peer has ended the connection.
    Goodbye,
    /// The peer is gone, for this reason.
    Gone(String),
    /// The connection is over, and its mailbox needs no more writes.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Rest,
    Body,
    Head,
    Look,
}

/// One end of a mailbox, and the state of the peer at the other end.
#[derive(Debug)]
pub struct Channel {
    pub place: Place,
    pub state: State,
    /// This side connects, and writes the first half.
    pub connects: bool,
    /// Failure of the last access.
    pub failure: Option<Failure>,
    /// Silence after which the peer counts as gone.
    silence: Span,
    own: Half,
    write_body: bool,
    write_head: bool,
    /// Session and beat of the last look.
    seen: (u64, u64),
    /// Session that this side has ended, and must not accept again.
    closed: u64,
    heard: Instant,
    refused: u32,
    step: Step,
    op: Option<OpId>,
    next: Instant,
}

impl Channel {
    /// Makes a channel that is looked at from `now` on. `hello` has the session and shares of the side that connects.
    pub fn new(
        place: Place,
        now: Instant,
        silence: Span,
        hello: Option<(u64, Vec<MailShare>)>,
    ) -> Self {
        let connects = hello.is_some();
        let (session, shares) = hello.unwrap_or_default();
        let state = if connects { State::Connecting } else { State::Listening };
        Self {
            place,
            state,
            connects,
            failure: None,
            silence,
            own: Half { says: Says::Hello, session, beat: 0, shares },
            write_body: connects,
            write_head: connects,
            seen: (0, 0),
            closed: 0,
            heard: now,
            refused: 0,
            step: Step::Rest,
            op: None,
            next: now,
        }
    }

    /// The port of the peer, if the mailbox tells: only a slot does.
    pub const fn pid(&self) -> Option<Pid> {
        match self.place {
            Place::Slot(pid, _) => Some(pid),
            Place::Fabric(_) => None,
        }
    }

    /// Time of the next look; while a request is in flight, the end of the allowed silence.
    pub fn due(&self) -> Option<Instant> {
        match self.op {
            None => Some(self.next),
            Some(_) => (self.state == State::Connected)
                .then_some(self.heard + self.silence + Span::from_ps(1)),
        }
    }

    /// Whether it waits for the end of this request.
    pub fn waits_for(&self, op: OpId) -> bool {
        self.op == Some(op)
    }

    /// The listener has accepted a hello: the answer must be written.
    pub fn welcome(&mut self, now: Instant, session: u64, shares: Vec<MailShare>) {
        self.own = Half { says: Says::Welcome, session, beat: self.own.beat, shares };
        (self.state, self.write_body, self.next) = (State::Connected, true, now);
    }

    /// The connecting side has received a welcome.
    pub fn connected(&mut self, now: Instant) {
        (self.state, self.heard) = (State::Connected, now);
    }

    /// Ends the connection by writing goodbye. The listener in a window goes on listening.
    pub fn close(&mut self, now: Instant, session: u64) {
        let stays = !self.connects && matches!(self.place, Place::Slot(..));
        self.own = Half { says: Says::Goodbye, session, beat: self.own.beat, shares: Vec::new() };
        (self.closed, self.write_body, self.write_head, self.next) = (session, false, true, now);
        self.state = if stays { State::Listening } else { State::Closing };
    }

    /// Session number of the connection.
    pub const fn session(&self) -> u64 {
        self.own.session
    }

    /// Goes back to listening after the peer is gone.
    pub const fn listen(&mut self) {
        self.closed = self.own.session;
        // The old hello may still be in the mailbox: `closed` keeps it from being accepted again.
        (self.state, self.write_body, self.write_head) = (State::Listening, false, false);
    }

    const fn bases(&self) -> (u64, u64) {
        // The side that connects has the first half (docs/spec/wire-formats.md §5.5).
        if self.connects { (0, HALF_LEN) } else { (HALF_LEN, 0) }
    }

    /// Works until it has to wait; returns the news, and the number of requests sent.
    pub fn advance(&mut self, now: Instant, owner: &mut dyn Owner) -> (Option<Heard>, usize) {
        let mut sent = 0;
        if self.op.is_some() && self.silent(now) {
            // A request may take longer than the allowed silence: its time limit is another one.
            return (Some(Heard::Gone("it says nothing any more".to_owned())), sent);
        }
        while self.op.is_none() {
            if self.step == Step::Rest {
                if now < self.next {
                    break;
                }
                // A connected side writes its head at every beat, which shows the peer that it is alive.
                let speaks = self.write_head || self.state == State::Connected;
                self.step = match (self.write_body, speaks) {
                    // Body before head: the head has the checksum, so a reader never takes shares that are half
                    // written.
                    (true, _) => Step::Body,
                    (false, true) => Step::Head,
                    (false, false) => Step::Look,
                };
            }
            let (own, other) = self.bases();
            let (at, data) = match self.step {
                Step::Body => (own + HEAD_LEN as u64, Some(self.own.body())),
                Step::Head => {
                    self.own.beat += 1;
                    (own, Some(self.own.head()))
                }
                _ => (other, None),
            };
            let result = match self.place {
                // No shares, so there is no body to write.
                _ if data.as_ref().is_some_and(Vec::is_empty) => Ok(Vec::new()),
                // A slot is memory of this host, and needs no request.
                Place::Slot(_, base) => {
                    let len = usize::try_from(HALF_LEN).unwrap_or(0);
                    Ok(owner.access(base + at, data.as_deref(), len))
                }
                Place::Fabric(Hpa(base)) => {
                    let addr = Hpa(base.saturating_add(at));
                    let len = usize::try_from(HALF_LEN).unwrap_or(0);
                    self.op = owner.submit(match data {
                        Some(data) => Operation::UioWrite { addr, data },
                        None => Operation::UioRead { addr, len },
                    });
                    if self.op.is_some() {
                        sent += 1;
                        break;
                    }
                    // Not now: `failed` tries again after a pause.
                    Err(Failure::GivenUp)
                }
            };
            if let Some(heard) = self.ended(now, result) {
                return (Some(heard), sent);
            }
        }
        (None, sent)
    }

    /// Handles the end of a request for this mailbox.
    pub fn ended(&mut self, now: Instant, result: Result<Vec<u8>, Failure>) -> Option<Heard> {
        self.op = None;
        let step = core::mem::replace(&mut self.step, Step::Rest);
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(failure) => return self.failed(now, failure),
        };
        match step {
            Step::Body => {
                (self.write_body, self.step) = (false, Step::Head);
                None
            }
            Step::Head if self.state == State::Closing => Some(Heard::Over),
            Step::Head => {
                // Hello is repeated until it is answered; goodbye is written once.
                self.write_head = self.state == State::Connecting;
                self.step = Step::Look;
                None
            }
            Step::Look | Step::Rest => {
                (self.refused, self.failure) = (0, None);
                let pause = if self.state == State::Connected { BEAT } else { LOOK };
                self.next = now + pause;
                self.look(now, &bytes)
            }
        }
    }

    fn failed(&mut self, now: Instant, failure: Failure) -> Option<Heard> {
        (self.next, self.failure) = (now + LOOK, Some(failure));
        // Only a status counts as a refusal. A timeout may be congestion, and has the limit of silence.
        self.refused += u32::from(matches!(failure, Failure::Status(_)));
        let text = match failure {
            Failure::Status(Status::UnsupportedRequest) => "its memory is refused (UR)".to_owned(),
            failure => format!("its memory was {failure}"),
        };
        match self.state {
            State::Closing => Some(Heard::Over),
            State::Connected if self.refused >= REFUSED_MAX => Some(Heard::Gone(text)),
            State::Connecting if self.refused >= REFUSED_AT_FIRST_MAX => Some(Heard::Gone(text)),
            _ => self.silent(now).then_some(Heard::Gone(text)),
        }
    }

    fn silent(&self, now: Instant) -> bool {
        self.state == State::Connected && now.since(self.heard) > self.silence
    }

    fn look(&mut self, now: Instant, bytes: &[u8]) -> Option<Heard> {
        let gone = |text: &str| Some(Heard::Gone(text.to_owned()));
        let half = match Half::parse(bytes) {
            Ok(half) => half,
            // A connected peer has written its half, so an empty one means that its memory is new.
            Err(NoHalf::Empty) if self.state == State::Connected => {
                return gone("its mailbox is empty: it was started again");
            }
            Err(_) if self.silent(now) => return gone("it says nothing any more"),
            Err(_) => return None,
        };
        let is_ours = half.session == self.own.session;
        // The beat counts only within one session: a new session is another peer process.
        let moved = self.seen.0 == half.session && self.seen.1 != half.beat;
        self.seen = (half.session, half.beat);
        if moved && is_ours {
            self.heard = now;
        }
        match (self.connects, self.state, half.says) {
            (true, State::Connecting, Says::Welcome) if is_ours => {
                Some(Heard::Welcome(half.shares))
            }
            (true, State::Connecting | State::Connected, Says::Goodbye) if is_ours => {
                Some(Heard::Goodbye)
            }
            (_, State::Connected, _) if !is_ours => gone("it was started again"),
            (false, State::Connected, Says::Goodbye) => Some(Heard::Goodbye),
            // `moved`: a hello that was left in memory does not beat.
            (false, State::Listening, Says::Hello) if moved && half.session != self.closed => {
                self.heard = now;
                Some(Heard::Hello(half.session, half.shares))
            }
            _ if self.silent(now) => gone("it says nothing any more"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::HostSpec;

    /// docs/fabric-memory.md "Options": `peer_timeout_us` limits the silence of a peer also while a request for the
    /// mailbox is not answered, whatever `answer_ms` is.
    #[test]
    fn a_peer_that_answers_nothing_is_gone_when_it_has_been_silent_for_too_long() {
        let endpoint = HostSpec::default().build(&[]).unwrap();
        let mut host = endpoint.inner;
        let (begin, silence) = (Instant::from_ns(5), Span::from_ms(1_000));
        let place = Place::Fabric(Hpa(0x1000));
        let mut channel = Channel::new(place, begin, silence, Some((1, Vec::new())));
        channel.connected(begin);
        let (heard, sent) = channel.advance(begin, &mut host);
        assert_eq!((heard.is_none(), sent, channel.op.is_some()), (true, 1, true));
        let due = channel.due().unwrap();
        assert_eq!(due, begin + silence + Span::from_ps(1));
        assert!(channel.advance(begin + silence, &mut host).0.is_none(), "not yet");
        let (heard, _) = channel.advance(due, &mut host);
        assert!(matches!(heard, Some(Heard::Gone(why)) if why.contains("says nothing")));
        channel.listen();
        assert!(channel.due().is_none() && channel.advance(due, &mut host).0.is_none(), "once");
    }
}
