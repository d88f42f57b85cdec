//! Drives an endpoint on its ports by the clock, and passes commands to it.
//!
//! [`Runner::step`] advances it once; [`Runner::run`] goes on until it is stopped. [`RunnerHandle`]s send commands from
//! other threads, and answer lines of the control socket.
//!
//! A step carries out the commands that arrived before it, serves the ports, and does one slice of a long command
//! ([`super::slices`]). The time of a step is read after its commands arrived: a host uses a line of its cache only if
//! its lease lasts beyond the time at which it was told to.
//!
//! Source: docs/endpoint.md.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use weft_base::eventfd::EventFd;
use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError, PortOpenError};
use weft_dataplane::time::{Instant, Span};
use weft_rpc::{LineHandler, Refused};

use super::api::Endpoint;
use super::command::{Answer, Command, EventReport, LinkReport, Status};
use super::event_log::EventLog;
use super::slices::Slices;
use crate::clock::now;
use crate::netdev::wait_for;

/// Longest sleep of an idle runner.
const SLEEP_MAX: Span = Span::from_ms(5);
/// Time beyond a command's own limit before its caller gives up.
const GRACE: Duration = Duration::from_secs(5);

/// Refusal of a command that names a logical device.
const NO_LDS: &str = "only a device that was started with lds has logical devices: leave ld out";

/// A command from another thread.
struct Call {
    command: Command,
    reply: SyncSender<Result<Answer, Refused>>,
}

/// Reasons why an endpoint cannot be started on its ports.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The number of ports is not the number of links.
    #[error("expected {want} ports, found {found}")]
    Ports {
        /// Links of the endpoint.
        want: usize,
        /// Ports that were given.
        found: usize,
    },
    /// A port does not start.
    #[error("start a port")]
    Start(#[from] PortOpenError),
    /// The kernel refuses an eventfd.
    #[error("make room for commands")]
    EventFd(#[source] io::Error),
}

/// Sends commands to a runner from other threads.
#[derive(Clone)]
pub struct RunnerHandle {
    calls: Arc<Mutex<Sender<Call>>>,
    wakeup: Arc<EventFd>,
    /// A command was sent since the runner last looked.
    called: Arc<AtomicBool>,
}

impl RunnerHandle {
    /// Sends a command to the endpoint, and waits for its answer.
    ///
    /// # Errors
    /// The runner refuses, has ended, or does not answer in time.
    pub fn call(&self, command: Command) -> Result<Answer, Refused> {
        let time = Duration::from_millis(command.timeout_ms()).saturating_add(GRACE);
        let (reply, answer) = sync_channel(1);
        let ended = || Refused::unavailable("the endpoint has ended");
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(Call { command, reply })
            .map_err(|_| ended())?;
        self.called.store(true, Ordering::Release); // pairs with `Runner::step`
        // Last: the woken thread must find both the call and the flag.
        self.wakeup.notify();
        match answer.recv_timeout(time) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                Err(Refused::unavailable("the endpoint does not answer"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }
}

impl LineHandler for RunnerHandle {
    fn answer(&self, line: &[u8]) -> weft_rpc::Answer {
        let answer = weft_rpc::parse(line).and_then(|command| self.call(command));
        weft_rpc::Answer::Line(weft_rpc::to_line(&match answer {
            Ok(answer) => match serde_json::to_value(&answer) {
                Ok(answer) => json!({ "ok": answer }),
                Err(error) => json!({ "error": Refused::unavailable(error.to_string()) }),
            },
            Err(refused) => json!({ "error": refused }),
        }))
    }
}

/// Drives an endpoint on its ports: frames, commands and events.
pub struct Runner {
    endpoint: Box<dyn Endpoint>,
    ports: Vec<Box<dyn Port>>,
    bufs: Bufs,
    log: EventLog,
    calls: Receiver<Call>,
    /// Calls for the step that begins next.
    came: Vec<Call>,
    slices: Slices,
    handle: RunnerHandle,
    next: u64,
    /// Callers that wait, by the number of their command.
    callers: BTreeMap<u64, SyncSender<Result<Answer, Refused>>>,
    /// Answers to commands of [`Runner::begin`] that were not taken yet.
    answers: BTreeMap<u64, Result<Answer, Refused>>,
    /// A port has failed, and has not worked since.
    failing: bool,
    longest_turn: Span,
}

impl Runner {
    /// Makes a runner of `endpoint` on `ports`, one for each link in order, with frames in `bufs`.
    ///
    /// # Errors
    /// See [`RunnerError`].
    pub fn new(
        endpoint: Box<dyn Endpoint>,
        mut ports: Vec<Box<dyn Port>>,
        mut bufs: Bufs,
    ) -> Result<Self, RunnerError> {
        let (want, found) = (endpoint.link_count(), ports.len());
        if want != found {
            return Err(RunnerError::Ports { want, found });
        }
        for port in &mut ports {
            port.start(&mut bufs)?;
        }
        let (send, calls) = channel();
        let wakeup = Arc::new(EventFd::new().map_err(RunnerError::EventFd)?);
        let handle =
            RunnerHandle { calls: Arc::new(Mutex::new(send)), wakeup, called: Arc::default() };
        let (log, callers, answers) = (EventLog::default(), BTreeMap::new(), BTreeMap::new());
        let (came, slices) = (Vec::new(), Slices::default());
        let (next, failing) = (0, false);
        Ok(Self {
            endpoint,
            ports,
            bufs,
            log,
            calls,
            came,
            slices,
            handle,
            next,
            callers,
            answers,
            failing,
            longest_turn: Span::ZERO,
        })
    }

    /// Makes a handle for another thread.
    #[must_use]
    pub fn handle(&self) -> RunnerHandle {
        self.handle.clone()
    }

    /// Replaces the endpoint, as a power cycle would. Commands in progress get no answer.
    pub fn replace(&mut self, endpoint: Box<dyn Endpoint>) {
        // First: the old endpoint holds buffers of this pool.
        self.endpoint.release(&mut self.bufs);
        self.endpoint = endpoint;
        self.log = EventLog::default();
        self.slices.clear();
        self.callers.clear();
        self.answers.clear();
    }

    /// Refuses all commands from now on; waiting callers learn that the endpoint has ended.
    pub fn end_commands(&mut self) {
        self.calls = channel().1; // of a sender that is gone
        self.came.clear();
        self.slices.clear();
        self.callers.clear();
    }

    /// Whether commands wait or are in progress.
    #[must_use]
    pub fn is_called(&self) -> bool {
        let has_more = !self.came.is_empty() || !self.slices.is_empty();
        has_more || self.handle.called.load(Ordering::Acquire) // pairs with `RunnerHandle::call`
    }

    /// Status of the endpoint with all details: kind, links and counters.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = self.short_status();
        if let Some(name) = self.endpoint.detail_list() {
            let (mut rows, mut next) = self.endpoint.detail_rows(0);
            while let Some(from) = next {
                let (more, then) = self.endpoint.detail_rows(from);
                rows.extend(more);
                next = then;
            }
            status.add_list(name, rows);
        }
        status
    }

    /// Status without the list that may be long.
    fn short_status(&self) -> Status {
        let link =
            |port: &dyn Port| LinkReport { device: port.caps().device.clone(), up: port.link_up() };
        let links = self.ports.iter().map(|port| link(port.as_ref())).collect();
        let longest_turn_us = self.longest_turn.as_ns() / 1_000;
        Status { links, longest_turn_us, ..self.endpoint.status() }
    }

    /// Takes the events since the last call, and the number of those lost.
    pub fn events(&mut self) -> (Vec<EventReport>, u64) {
        self.log.take_events()
    }

    /// Starts a command and returns its number; [`Self::answer`] has the result, at once or after some steps.
    pub fn begin(&mut self, now: Instant, command: &Command) -> u64 {
        let number = self.next;
        self.next += 1;
        self.log.set_now(now);
        let begun = match command {
            Command::Status {} => {
                // The list of a GFD may take milliseconds, during which the links would not be served.
                let status = self.short_status();
                match self.endpoint.detail_list() {
                    Some(name) => {
                        self.slices.status(number, status, name);
                        Ok(None)
                    }
                    None => Ok(Some(Answer::Status(Box::new(status)))),
                }
            }
            Command::Events {} => {
                let (events, lost) = self.log.take_events();
                Ok(Some(Answer::Events { events, lost }))
            }
            // One check for all kinds: an endpoint without LDs would ignore the field.
            command if command.ld().is_some() && !self.endpoint.has_lds() => {
                Err(Refused::bad_request(NO_LDS))
            }
            Command::Store(place) | Command::Peek(place) => {
                let begun = self.slices.own(number, self.endpoint.as_mut(), command, place);
                begun.map(|()| None)
            }
            command => self.endpoint.begin(now, number, command),
        };
        if let Some(answer) = begun.transpose() {
            self.log.answer(number, answer);
            self.hand_out();
        }
        number
    }

    /// Takes the answer to a command of [`Self::begin`] once there is one.
    pub fn answer(&mut self, number: u64) -> Option<Result<Answer, Refused>> {
        self.answers.remove(&number)
    }

    /// Advances frames and commands once. `now` must have been read after the previous step.
    ///
    /// # Errors
    /// An error of a port.
    pub fn step(&mut self, now: Instant) -> Result<Progress, PortError> {
        self.log.set_now(now);
        // `begin` uses the same number next.
        for Call { command, reply } in core::mem::take(&mut self.came) {
            let number = self.next;
            self.callers.insert(number, reply);
            self.begin(now, &command);
        }
        let polled = self.endpoint.poll(now, &mut self.ports, &mut self.bufs, &mut self.log);
        // A command in slices counts as progress, so that `run` does not sleep before its next slice.
        let has_slices = !self.slices.is_empty();
        if let Some((number, answer)) = self.slices.step(self.endpoint.as_mut()) {
            self.log.answer(number, answer);
        }
        self.hand_out();
        // Clear before receiving: a call sent in between sets the flag again, so none is overlooked.
        self.handle.called.swap(false, Ordering::AcqRel);
        self.came.extend(self.calls.try_iter());
        let failed = polled.is_err();
        // One event for each change, not for each failed step.
        if core::mem::replace(&mut self.failing, failed) != failed {
            let text = polled.as_ref().map_or_else(ToString::to_string, |_| "works again".into());
            self.log.event("port", text);
        }
        let progress = polled?;
        let more = self.came.len() + usize::from(has_slices);
        Ok(Progress { frames: progress.frames + more, ..progress })
    }

    /// Delivers answers to their callers, or keeps them for [`Self::answer`].
    fn hand_out(&mut self) {
        for (number, answer) in self.log.take_answers() {
            match self.callers.remove(&number) {
                // A caller that has given up no longer listens.
                Some(caller) => drop(caller.try_send(answer)),
                None => drop(self.answers.insert(number, answer)),
            }
        }
    }

    /// Runs until `stop` is set; sleeps while there is nothing to do.
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let at = now();
            let stepped = self.step(at);
            self.longest_turn = self.longest_turn.max(now().since(at));
            let span = match stepped {
                Err(_) => Span::from_ms(1), // the device is away; it may come back
                Ok(progress) if progress.frames > 0 => continue,
                Ok(progress) if progress.blocked => Span::from_us(50),
                Ok(progress) => progress.next.map_or(SLEEP_MAX, |next| next.since(at)),
            };
            let fds = self.ports.iter().filter_map(|port| port.as_ref().wait_fd());
            wait_for(fds.chain([self.handle.wakeup.as_fd()]), span.min(SLEEP_MAX));
            self.handle.wakeup.drain(); // a wake-up from now on ends the next sleep
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.endpoint.release(&mut self.bufs);
        for port in &mut self.ports {
            port.release(&mut self.bufs);
        }
    }
}
