//! CCI client: typed requests to components, retries, and waiting for background operations.
//!
//! A [`Request`] sent along a [`Way`] returns an [`Answer`], whose payload is read as the type that belongs to the
//! command.
//!
//! Source: docs/spec/wire-formats.md §4.1; CXL 3.1 sections 7.6.3, 8.2.9.1.1.

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

use weft_base::causes::with_causes;
use weft_base::wait;
use weft_parsers::ParseError;
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership, PbrIdentity};
use weft_parsers::cci::generic::BackgroundStatus;
use weft_parsers::cci::pbr::CrawlTarget;
use weft_parsers::cci::{Category, Header, Opcode, Payload, Request, ReturnCode, header, mctp};
use weft_parsers::fabric::Pid;

use super::{Transport, TransportError, Tunnel, Way};
use crate::model::inventory::Manager;

/// Why a command failed, or may have failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No response came: whether it was carried out is not known.
    #[error("{opcode} to {way}")]
    Transport { way: Way, opcode: Opcode, source: TransportError },
    /// The response cannot be decoded.
    #[error("{opcode} to {way}: the response is malformed")]
    Malformed { way: Way, opcode: Opcode, source: ParseError },
    /// The response belongs to another command.
    #[error("{opcode} to {way}: the response is to {got}")]
    Mismatch { way: Way, opcode: Opcode, got: Opcode },
    /// The component refused it; nothing has changed.
    #[error("{opcode} to {way}: {}", .code.name())]
    Refused { way: Way, opcode: Opcode, code: ReturnCode },
    /// Its background operation has not ended within the polls allowed.
    #[error("{opcode} to {way}: still running after {polls} polls")]
    Unfinished { way: Way, opcode: Opcode, polls: u32 },
    /// The answer contradicts the value that was set or expected.
    #[error("{opcode} to {way}: {what}")]
    Unexpected {
        way: Way,
        opcode: Opcode,
        /// The contradiction, in words.
        what: &'static str,
    },
}

impl CallError {
    /// Whether no answer came. Asking such a component again costs another time limit, for which all else waits.
    #[must_use]
    pub const fn is_silence(&self) -> bool {
        matches!(self, Self::Transport { .. })
    }

    /// Whether the component refused, so that nothing has changed.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// The message, followed by those of its causes.
    #[must_use]
    pub fn with_causes(&self) -> String {
        with_causes(self)
    }
}

/// How often commands are repeated and background operations polled, and the wait in between.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Attempts of a repeatable command, and of any command that is answered Busy or Retry Required.
    pub tries: u32,
    /// Status requests before a background operation is given up.
    pub polls: u32,
    pub wait: fn(),
}

impl RetryPolicy {
    /// For components reached over a network: 10 ms between polls.
    #[must_use]
    pub fn live() -> Self {
        Self { tries: 3, polls: 1_000, wait: || wait::pause(Duration::from_millis(10)) }
    }

    /// For components that answer at once, as in memory: never waits.
    #[must_use]
    pub fn quick() -> Self {
        Self { tries: 3, polls: 64, wait: || {} }
    }
}

/// A successful response to a CCI command.
#[derive(Clone, Debug)]
pub struct Answer {
    way: Way,
    opcode: Opcode,
    payload: Vec<u8>,
}

impl Answer {
    /// Reads the payload as the type that belongs to the command.
    ///
    /// # Errors
    /// The payload is not of that type.
    pub fn read<'a, T: Payload<'a>>(&'a self) -> Result<T, CallError> {
        let (way, opcode) = (self.way, self.opcode);
        T::parse(&self.payload).map_err(|source| CallError::Malformed { way, opcode, source })
    }
}

/// Whether a command may be sent again when no answer came: it changes nothing, or nothing more the second time.
fn may_repeat(request: &Request<'_>) -> bool {
    use Request as R;
    // Not in the list: ClaimOwnership (the second one is refused, as a primary is there), allocation and release of
    // memory, and bindings: a second one would be refused, or act twice.
    matches!(
        request,
        R::Identify
            | R::BackgroundStatus
            | R::IdentifyPbrComponent
            | R::ReadCdat(_)
            | R::IdentifyGfd
            | R::GetGfdStatus
            | R::GetDcRegions(_)
            | R::GetGfdExtents(_)
            | R::GetDmps(_)
            | R::DcListTags(_)
            | R::GetSat(_)
            | R::GetGdt(_)
            | R::IdentifySwitch
            | R::GetPortState(_)
            | R::GetVcsSvState(_)
            | R::GetSv(_)
            | R::GetVcsInfo(_)
            | R::IdentifyPbrSwitch
            | R::GetLinkPartners(_)
            | R::GetPidTargets(_)
            | R::GetPidBinding(_)
            | R::GetTables(_)
            | R::GetDrt(_)
            | R::GetRgt(_)
            | R::GetFastCaps(_)
            | R::GetFastSegments(_)
            | R::GetIdt(_)
            | R::GetVcsAccess(_)
            | R::GetVcsLav(_)
            | R::IdentifyVcsGae(_)
            | R::GetReRouter(_)
            | R::GetLdstCaps(_)
            | R::GetLdstSegments(_)
            | R::GetLdstIdt(_)
            | R::SetDrt(_)
            | R::SetRgt(_)
            | R::ConfigureAccess(_)
            | R::ConfigureLdstAccess(_)
            | R::SetSat(_)
            | R::SetGdt(_)
    )
}

/// Sends CCI commands to one component over a transport, repeats them where that is safe, and waits for their
/// background operations.
pub struct Client<'a> {
    transport: &'a mut dyn Transport,
    way: Way,
    pace: RetryPolicy,
    tag: &'a mut u8,
}

impl<'a> Client<'a> {
    /// A client of the component behind `transport`, called `way` in errors; `tag` is advanced with each request.
    pub fn new(
        transport: &'a mut dyn Transport,
        way: Way,
        pace: RetryPolicy,
        tag: &'a mut u8,
    ) -> Self {
        Self { transport, way, pace, tag }
    }

    /// Sends a request, and waits for its background operation if it starts one.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&mut self, request: &Request<'_>) -> Result<Answer, CallError> {
        let (way, opcode) = (self.way, request.opcode());
        let mut tries = self.pace.tries;
        loop {
            tries = tries.saturating_sub(1);
            let failed = match self.once(request) {
                Ok((ReturnCode::Success, payload)) => return Ok(Answer { way, opcode, payload }),
                Ok((ReturnCode::BackgroundStarted, payload)) => {
                    self.wait_for(opcode)?;
                    return Ok(Answer { way, opcode, payload });
                }
                // The component did not begin: even a command that must not run twice may be sent again.
                Ok((code @ (ReturnCode::Busy | ReturnCode::RetryRequired), _)) => {
                    CallError::Refused { way, opcode, code }
                }
                Ok((code, _)) => return Err(CallError::Refused { way, opcode, code }),
                Err(error) if may_repeat(request) => error,
                Err(error) => return Err(error),
            };
            if tries == 0 {
                return Err(failed);
            }
            (self.pace.wait)();
        }
    }

    /// Sends a request once and does not wait; returns whether a background operation was started.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn begin(&mut self, request: &Request<'_>) -> Result<bool, CallError> {
        let (way, opcode) = (self.way, request.opcode());
        match self.once(request)?.0 {
            ReturnCode::Success => Ok(false),
            ReturnCode::BackgroundStarted => Ok(true),
            code => Err(CallError::Refused { way, opcode, code }),
        }
    }

    fn once(&mut self, request: &Request<'_>) -> Result<(ReturnCode, Vec<u8>), CallError> {
        let (way, opcode) = (self.way, request.opcode());
        *self.tag = self.tag.wrapping_add(1);
        let asked = *self.tag;
        let mut out = vec![0; mctp::MESSAGE_MAX];
        let no = |source| CallError::Transport { way, opcode, source };
        let len = request.emit_message(asked, &mut out).ok_or(no(TransportError::TooLong))?;
        out.truncate(len);
        let message = self.transport.call(&out).map_err(no)?;
        let bad = |source| CallError::Malformed { way, opcode, source };
        let (header, payload) = Header::parse(&message).map_err(bad)?;
        // The tag tells a late answer from this one where the transport does not drop it.
        if header.category != Category::Response || header.opcode != opcode || header.tag != asked {
            return Err(CallError::Mismatch { way, opcode, got: header.opcode });
        }
        Ok((header.return_code, payload.to_vec()))
    }

    fn wait_for(&mut self, opcode: Opcode) -> Result<(), CallError> {
        let way = self.way;
        for _ in 0..self.pace.polls {
            let status = self.call(&Request::BackgroundStatus)?.read::<BackgroundStatus>()?;
            if status.opcode != opcode.0 {
                // A component runs one background operation at a time: ours has ended, or another sender began one.
                let what = "the component reports another background operation";
                return Err(CallError::Unexpected { way, opcode, what });
            }
            if !status.progress.running {
                return match ReturnCode::from_bits(status.return_code) {
                    ReturnCode::Success => Ok(()),
                    code => Err(CallError::Refused { way, opcode, code }),
                };
            }
            (self.pace.wait)();
        }
        Err(CallError::Unfinished { way, opcode, polls: self.pace.polls })
    }
}

/// Sends CCI commands to any component of a fabric, tunnelled through the entry switch.
pub struct CciSession {
    entry: Box<dyn Transport + Send>,
    pace: RetryPolicy,
    /// One attempt for each command, with a short time limit.
    quick: bool,
    tag: u8,
    calls: u64,
    manager: Option<Manager>,
    withdrawn: BTreeSet<Pid>,
}

impl fmt::Debug for CciSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CciSession").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl CciSession {
    /// The fabric behind `entry`.
    #[must_use]
    pub fn new(entry: Box<dyn Transport + Send>, pace: RetryPolicy) -> Self {
        let withdrawn = BTreeSet::new();
        Self { entry, pace, quick: false, tag: 0, calls: 0, manager: None, withdrawn }
    }

    /// Number of commands sent so far.
    #[must_use]
    pub const fn calls(&self) -> u64 {
        self.calls
    }

    /// Records PIDs whose routes are removed for a moment.
    pub fn withdrew(&mut self, pids: &[Pid]) {
        self.withdrawn.extend(pids);
    }

    /// PIDs recorded by [`withdrew`](Self::withdrew) since the last call.
    pub fn take_withdrawn(&mut self) -> BTreeSet<Pid> {
        std::mem::take(&mut self.withdrawn)
    }

    /// Waits for answers once and shortly from now on (true), or as configured (false).
    pub fn set_impatient(&mut self, on: bool) {
        if self.quick != on {
            self.quick = on;
            self.entry.set_impatient(on);
        }
    }

    /// Sets the request that each new connection to the entry switch begins with; its result is ignored.
    pub fn on_connect(&mut self, request: &Request<'_>) {
        let mut out = vec![0; mctp::MESSAGE_MAX];
        if let Some(len) = request.emit_message(0, &mut out) {
            out.truncate(len);
            self.entry.on_connect(out);
        }
    }

    /// Pops an event notification that arrived between answers.
    pub fn event(&mut self) -> Option<Vec<u8>> {
        self.entry.event()
    }

    /// Reads notifications that have arrived, without waiting for any.
    pub fn take_in(&mut self) {
        self.entry.take_in();
    }

    /// A descriptor that becomes readable when a notification arrives or the connection to the entry switch ends;
    /// `None` without a connection.
    #[must_use]
    pub fn readable(&self) -> Option<OwnedFd> {
        self.entry.readable()
    }

    /// Sets the manager in whose name components are claimed again; see [`call`](Self::call).
    pub const fn manage(&mut self, manager: Manager) {
        self.manager = Some(manager);
    }

    /// Sends a request to the component that `way` leads to. A component knows its manager by the port that the claim
    /// came in by: after a change of routes a request may come in by another port, where it has no rights. The manager
    /// then claims the component again and repeats the request.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call(&mut self, way: Way, request: &Request<'_>) -> Result<Answer, CallError> {
        match self.ask(way, request) {
            Err(CallError::Refused { code: ReturnCode::Unsupported, .. })
                if self.is_known_anew(way, request) =>
            {
                self.ask(way, request)
            }
            answer => answer,
        }
    }

    /// Whether the component belongs to this manager, and now knows it by the new port.
    fn is_known_anew(&mut self, way: Way, request: &Request<'_>) -> bool {
        // The entry switch is claimed with each new connection (`on_connect`), not by port.
        let Some(Manager { pid, uuid, .. }) = self.manager.filter(|_| way != Way::Entry) else {
            return false;
        };
        if matches!(request, Request::IdentifyPbrComponent | Request::ClaimOwnership(_)) {
            // Both are allowed without rights, so their refusal has another reason; and this function sends them
            // itself.
            return false;
        }
        let now = self.ask(way, &Request::IdentifyPbrComponent);
        let now = now.and_then(|answer| answer.read::<PbrIdentity>());
        let Ok(now) = now else { return false };
        let claim = ClaimOwnership { op: ClaimOp::UpdatePid, fm: pid, fm_uuid: uuid, pid: now.pid };
        // Only a component that is ours is claimed here: after a take-over by another manager it must stay theirs.
        (now.primary, now.primary_uuid) == (pid, uuid)
            && self.ask(way, &Request::ClaimOwnership(claim)).is_ok()
    }

    fn ask(&mut self, way: Way, request: &Request<'_>) -> Result<Answer, CallError> {
        let (mut pace, mut tag) = (self.pace, self.tag);
        if self.quick {
            pace.tries = 1;
        }
        let answer = self.over(way, |to| Client::new(to, way, pace, &mut tag).call(request));
        // The tag goes on across components, so that two requests in a row never have the same one.
        self.tag = tag;
        answer
    }

    /// Sends bytes as they are to the component that `way` leads to.
    ///
    /// # Errors
    /// No response came, or the bytes are not a message that can be carried there.
    pub fn raw(&mut self, way: Way, message: &[u8]) -> Result<Vec<u8>, TransportError> {
        self.over(way, |to| to.call(message))
    }

    fn over<T>(&mut self, way: Way, run: impl FnOnce(&mut dyn Transport) -> T) -> T {
        self.calls += 1;
        let entry: &mut dyn Transport = self.entry.as_mut();
        match way {
            Way::Entry => run(entry),
            Way::Port(port) => run(&mut Tunnel::new(entry, CrawlTarget::Port(port))),
            Way::Pid(pid) => run(&mut Tunnel::new(entry, CrawlTarget::Pid(pid))),
            Way::Behind(pid, port) => {
                let mut outer = Tunnel::new(entry, CrawlTarget::Pid(pid));
                run(&mut Tunnel::new(&mut outer, CrawlTarget::Port(port)))
            }
        }
    }
}

/// Largest payload that fits into one message through two tunnels.
pub const PAYLOAD_MAX: usize = mctp::MESSAGE_MAX - 3 * header::LEN - 12;
