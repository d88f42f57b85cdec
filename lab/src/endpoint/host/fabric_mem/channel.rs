//! One connection's mailbox: writes the own half, looks at the other one, and says what was heard.
//!
//! [`Channel::advance`] at times, [`Channel::ended`] when a request has ended → [`Heard`].
//!
//! Units: bytes; time as a parameter.
//! Source: docs/spec/wire-formats.md §5.5.
//!
//! A mailbox in the host's own window is a slot for each port that requests come from: what is in it was written by that
//! port alone. One in fabric memory is read and written by UIO, and tells nothing of who wrote it.

use weft_cxl::requester::{Failure, OpId, Operation};
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Hpa, Pid};
use weft_parsers::tlp::Status;

use super::mailbox::{HALF_LEN, HEAD_LEN, Half, MailShare, NoHalf, Says};
use super::owner::Owner;

/// Between two looks, while a connection is made, and while there is one.
const LOOK: Span = Span::from_ms(20);
const BEAT: Span = Span::from_ms(250);
/// Requests that are refused in a row before the peer is taken for gone, and before a connection is given up.
const REFUSED_MAX: u32 = 3;
const REFUSED_AT_FIRST_MAX: u32 = 25;

/// Where a mailbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the fabric.
    Fabric(Hpa),
    /// In this host: the slot of a port, at this address.
    Slot(Pid, u64),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Hello is in the mailbox.
    Connecting,
    /// Nobody has said hello, or nobody any more.
    Listening,
    /// Shares were exchanged.
    Connected,
    /// Goodbye is to be written; then it is over.
    Closing,
}

impl State {
    /// What users read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Listening => "listening",
            Self::Connected => "connected",
            Self::Closing => "closing",
        }
    }
}

/// What came of a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Who listens: somebody wants to connect, by this session.
    Hello(u64, Vec<MailShare>),
    /// Who connects: it is connected.
    Welcome(Vec<MailShare>),
    /// The other side has ended it.
    Goodbye,
    /// The other side is not there any more.
    Gone(String),
    /// It is over, and nothing is to be written any more.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Rest,
    Body,
    Head,
    Look,
}

/// A mailbox, and what is known of who is at the other end.
#[derive(Debug)]
pub struct Channel {
    /// Where the mailbox is.
    pub place: Place,
    /// How far it is.
    pub state: State,
    /// This side connects, and has the first half.
    pub connects: bool,
    /// Why the last look failed.
    pub failure: Option<Failure>,
    /// Silence after which the other side is taken for gone.
    silence: Span,
    own: Half,
    write_body: bool,
    write_head: bool,
    /// Session and beat that were seen last.
    seen: (u64, u64),
    /// A session that was ended here: it is not taken again.
    closed: u64,
    heard: Instant,
    refused: u32,
    step: Step,
    op: Option<OpId>,
    next: Instant,
}

impl Channel {
    /// A mailbox that is looked at from `now` on; who connects names the session and what it shares.
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

    /// Port that the other side's requests come from, where the mailbox tells.
    pub const fn pid(&self) -> Option<Pid> {
        match self.place {
            Place::Slot(pid, _) => Some(pid),
            Place::Fabric(_) => None,
        }
    }

    /// When it is to be looked at again; where it waits for a request, when the other side has been silent for too long.
    pub fn due(&self) -> Option<Instant> {
        match self.op {
            None => Some(self.next),
            Some(_) => (self.state == State::Connected)
                .then_some(self.heard + self.silence + Span::from_ps(1)),
        }
    }

    /// Whether it waits for this request.
    pub fn waits_for(&self, op: OpId) -> bool {
        self.op == Some(op)
    }

    /// Who listens has taken a hello: the answer is to be written.
    pub fn welcome(&mut self, now: Instant, session: u64, shares: Vec<MailShare>) {
        self.own = Half { says: Says::Welcome, session, beat: self.own.beat, shares };
        (self.state, self.write_body, self.next) = (State::Connected, true, now);
    }

    /// Who connects has taken a welcome.
    pub fn connected(&mut self, now: Instant) {
        (self.state, self.heard) = (State::Connected, now);
    }

    /// Ends it: goodbye is written. Who listens in its window goes on to do so.
    pub fn close(&mut self, now: Instant, session: u64) {
        let stays = !self.connects && matches!(self.place, Place::Slot(..));
        self.own = Half { says: Says::Goodbye, session, beat: self.own.beat, shares: Vec::new() };
        (self.closed, self.write_body, self.write_head, self.next) = (session, false, true, now);
        self.state = if stays { State::Listening } else { State::Closing };
    }

    /// The session of the connection.
    pub const fn session(&self) -> u64 {
        self.own.session
    }

    /// The other side is gone: who listens goes on to do so.
    pub const fn listen(&mut self) {
        self.closed = self.own.session;
        (self.state, self.write_body, self.write_head) = (State::Listening, false, false);
    }

    const fn bases(&self) -> (u64, u64) {
        if self.connects { (0, HALF_LEN) } else { (HALF_LEN, 0) }
    }

    /// Goes on as far as it can without waiting; tells what was heard, and how many requests were sent.
    pub fn advance(&mut self, now: Instant, owner: &mut dyn Owner) -> (Option<Heard>, usize) {
        let mut sent = 0;
        if self.op.is_some() && self.silent(now) {
            // Nobody may answer for as long as a request may take, which is another time limit.
            return (Some(Heard::Gone("it says nothing any more".to_owned())), sent);
        }
        while self.op.is_none() {
            if self.step == Step::Rest {
                if now < self.next {
                    break;
                }
                let speaks = self.write_head || self.state == State::Connected;
                self.step = match (self.write_body, speaks) {
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
                _ if data.as_ref().is_some_and(Vec::is_empty) => Ok(Vec::new()),
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
                    Err(Failure::GivenUp)
                }
            };
            if let Some(heard) = self.ended(now, result) {
                return (Some(heard), sent);
            }
        }
        (None, sent)
    }

    /// A request for it has ended.
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
                // Who connects goes on to say so until it is heard; goodbye is said once.
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
            Err(NoHalf::Empty) if self.state == State::Connected => {
                return gone("its mailbox is empty: it was started again");
            }
            Err(_) if self.silent(now) => return gone("it says nothing any more"),
            Err(_) => return None,
        };
        let is_ours = half.session == self.own.session;
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

    /// docs/fabric-memory.md "Options": `peer_timeout_us` holds while a request for the mailbox is not answered, whatever
    /// `answer_ms` is.
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
