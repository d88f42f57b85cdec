//! Threads of the service: one brings the fabric up and monitors it, others serve clients.
//!
//! [`Service`] has the [`Fm`] behind a lock. A [`LineHandler`] takes requests, one at a time; status and events are
//! read from the board, also during start-up.
//!
//! Source: ARCHITECTURE.md "Control".

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use weft_base::threads::{self, Ends, Role};
use weft_rpc::{Answer, LineHandler, Refused, parse, to_line};

use super::board::StatusBoard;
use super::pace::{Bell, Pace, Waits, Woken};
use super::status::Phase;
use super::{Fm, Request, Response};

struct Shared {
    fm: Mutex<Fm>,
    board: Arc<StatusBoard>,
    stopping: AtomicBool,
    bell: Bell,
}

/// The service's own thread between two looks.
impl Waits for &Shared {
    fn wait(&mut self, span: Duration, listens: bool) -> Woken {
        self.bell.set(span);
        loop {
            if self.stopping.load(Ordering::SeqCst) {
                return Woken::Stop;
            }
            let mut readable = None;
            if listens {
                let ControlFlow::Continue(until) = self.lock().look_out() else {
                    return Woken::Notified;
                };
                readable = until;
            }
            // The lock is released here: requests are answered while this thread waits.
            if self.bell.wait(readable.as_ref().map(AsFd::as_fd)) {
                return Woken::Time;
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Fm> {
        self.fm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fabric manager with its threads; dropping it ends them.
pub struct Service {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

impl Service {
    /// Brings the fabric up in a thread of its own, and looks at it every `pause` and after notifications.
    ///
    /// # Errors
    /// A thread or descriptor could not be made.
    pub fn start(fm: Fm, pause: Duration) -> std::io::Result<Self> {
        let board = fm.board();
        let (fm, stopping) = (Mutex::new(fm), AtomicBool::new(false));
        let shared = Arc::new(Shared { fm, board, stopping, bell: Bell::new()? });
        let keeper = shared.clone();
        let asked = shared.clone();
        let ends = Ends::when(move || asked.stopping.load(Ordering::SeqCst));
        let keeper = threads::spawn(Role::Manager, "weft-fm", ends, move || keep(&keeper, pause))?;
        Ok(Self { shared, keeper: Some(keeper) })
    }

    #[must_use]
    pub fn handler(&self) -> Arc<dyn LineHandler> {
        Arc::new(ClientHandler(self.shared.clone()))
    }

    /// The board with status and events, for other threads.
    #[must_use]
    pub fn board(&self) -> &StatusBoard {
        &self.shared.board
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Before the bell rings: the keeper reads it when it wakes up.
        self.shared.stopping.store(true, Ordering::SeqCst);
        if let Some(keeper) = self.keeper.take() {
            self.shared.bell.ring();
            let _ = keeper.join(); // a panic has been printed
        }
    }
}

fn keep(mut shared: &Shared, pause: Duration) {
    let mut pace = Pace::new(pause);
    let is_over = || shared.stopping.load(Ordering::SeqCst);
    while !is_over() {
        match shared.board.status().phase {
            // A failed start-up is tried again at each look, for example until the entry switch answers.
            Phase::Starting | Phase::Failed => {
                let started = shared.lock().start();
                if let Err(error) = started {
                    shared.board.record_change(format!("start-up: {}", super::with_causes(&error)));
                }
            }
            Phase::Up => shared.lock().watch(),
            Phase::Standby => {}
        }
        if !is_over() {
            pace.rest(&mut shared);
        }
    }
}

/// A response as JSON.
pub(crate) fn in_json(response: &Response) -> Result<Value, Refused> {
    serde_json::to_value(response).map_err(|error| Refused::unavailable(error.to_string()))
}

/// The line that a client gets.
pub(crate) fn line_of(outcome: Result<Value, Refused>) -> Answer {
    Answer::Line(to_line(&match outcome {
        Ok(value) => json!({ "ok": value }),
        Err(refused) => json!({ "error": refused }),
    }))
}

struct ClientHandler(Arc<Shared>);

impl ClientHandler {
    fn dispatch(&self, line: &[u8]) -> Result<Value, Refused> {
        let request: Request = parse(line)?;
        let response = match &request {
            Request::Status => Response::Status(self.0.board.status()),
            Request::Events { after } => Response::Events(self.0.board.events(*after)),
            // Without the lock: start-up holds it, and the client should be told at once.
            _ if self.0.board.status().phase == Phase::Starting => {
                let step = self.0.board.status().step;
                return Err(Refused::unavailable(format!("start-up is in progress: {step}")));
            }
            _ => {
                let response = self.0.lock().request(&request);
                self.0.bell.ring(); // a notification may have come with the answers to it
                response?
            }
        };
        in_json(&response)
    }
}

impl LineHandler for ClientHandler {
    fn answer(&self, line: &[u8]) -> Answer {
        line_of(self.dispatch(line))
    }
}
