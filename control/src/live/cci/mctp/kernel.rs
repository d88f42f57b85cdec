//! CCI by the kernel's MCTP (`AF_MCTP`): one thread takes the messages of all endpoints of its networks.
//!
//! [`Bus`] has a socket for each of the message types 7 and 8. Messages go through [`Datagrams`] to the [`Agent`]. A
//! bus has no connections: all senders are one session for as long as the switch runs.
//!
//! Source: docs/mctp.md "The kernel's MCTP".

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_base::eventfd::EventFd;
use weft_base::mctp_socket::{MctpAddr, MctpSocket};
use weft_base::threads::{self, Ends, Role};
use weft_cxl::cci::{Right, Session};
use weft_cxl::mctp::MctpCounts;
use weft_cxl::mctp::datagrams::{Datagrams, Origin};
use weft_parsers::cci::mctp::MessageType;

use crate::live::agent::{Agent, PeerId};
use crate::serve::wait;

/// Longest message in bytes, without its type; the same as over TCP.
const MESSAGE_MAX: usize = 64 * 1024 - 1;
/// Messages of one type that are taken before the other type has its turn.
const BURST: usize = 64;
/// Pause after an error of a socket.
const REST: Duration = Duration::from_millis(100);

/// Why the kernel's MCTP cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The kernel was built without it.
    #[error(
        "this kernel has no MCTP (CONFIG_MCTP): say an address in fabric.cci_mctp, such as \"127.0.0.1:2508\""
    )]
    NoMctp(#[source] io::Error),
    /// The message type is taken, or the process may not take it.
    #[error("take messages of type {kind:02x}h from the kernel's MCTP")]
    Bind {
        kind: u8,
        #[source]
        source: io::Error,
    },
    /// The kernel gives no thread or no eventfd.
    #[error("start a thread for CCI over MCTP")]
    Thread(#[source] io::Error),
}

/// The kernel's networks as a listener; dropping it ends the thread.
pub struct Bus {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    agent: Arc<Agent>,
    sockets: [MctpSocket; 2],
    wakeup: Arc<EventFd>,
    stop: AtomicBool,
    counts: Mutex<MctpCounts>,
}

fn bind(network: Option<u32>, kind: MessageType) -> Result<MctpSocket, BusError> {
    let kind = kind as u8;
    MctpSocket::bind(network, kind).map_err(|source| match source.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => BusError::NoMctp(source),
        _ => BusError::Bind { kind, source },
    })
}

impl Bus {
    /// Serves `agent` to all that reach this machine by `network`, or by any network without one. All of them are
    /// `session`.
    ///
    /// # Errors
    /// See [`BusError`].
    pub fn start(
        network: Option<u32>,
        agent: Arc<Agent>,
        session: Session,
        right: Right,
    ) -> Result<Self, BusError> {
        let sockets = [bind(network, MessageType::FmApi)?, bind(network, MessageType::Cci)?];
        let wakeup = Arc::new(EventFd::new().map_err(BusError::Thread)?);
        let (stop, counts) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared { agent, sockets, wakeup, stop, counts });
        let (own, asked) = (shared.clone(), shared.clone());
        let ends = Ends::when(move || asked.stop.load(Ordering::Acquire));
        let run = move || own.run(session, Datagrams::new(session, right));
        let thread = threads::spawn(Role::Cci, "weft-mctp", ends, run).map_err(BusError::Thread)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    #[must_use]
    pub fn counts(&self) -> MctpCounts {
        *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release); // pairs with `run`
        self.shared.wakeup.notify();
        if let Some(thread) = self.thread.take() {
            drop(thread.join()); // a panic has been printed
        }
    }
}

impl Shared {
    fn run(&self, session: Session, mut datagrams: Datagrams) {
        let mut peer = self.agent.connect(session, self.wakeup.clone());
        let mut message = vec![0; MESSAGE_MAX];
        let [fm_api, cci] = &self.sockets;
        while !self.stop.load(Ordering::Acquire) {
            wait([fm_api.as_fd(), cci.as_fd(), self.wakeup.as_fd()], None);
            self.wakeup.drain();
            for socket in &self.sockets {
                if self.take(socket, peer, &mut datagrams, &mut message).is_err() {
                    // `poll` reports a socket with an error as ready at once, and the thread would spin. A stop still
                    // wakes it by its eventfd.
                    wait([self.wakeup.as_fd()], Some(REST));
                }
            }
            peer = self.answer(session, peer, &mut datagrams);
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.add(&datagrams.take_counts());
        }
        self.agent.forget(peer);
    }

    /// Carries out up to [`BURST`] messages that have come to a socket.
    fn take(
        &self,
        socket: &MctpSocket,
        peer: PeerId,
        datagrams: &mut Datagrams,
        message: &mut [u8],
    ) -> io::Result<()> {
        for _ in 0..BURST {
            let (len, addr) = match socket.receive(message) {
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            // The kernel reports the true length of a message that was cut off.
            let Some(body) = message.get(..len) else {
                datagrams.too_long();
                continue;
            };
            let MctpAddr { network, eid, kind, tag, owner } = addr;
            let from = Origin { sender: (network, eid), kind, tag };
            let response = self.agent.carry_out(peer, |switch, now| {
                let response = datagrams.receive(switch, now, from, owner, body);
                (response, datagrams.tickets())
            });
            if let Some(response) = response {
                respond(socket, from, &response, datagrams);
            }
        }
        // After a whole burst more may be there. The wake-up has the thread come back after the other socket has had
        // its turn.
        self.wakeup.notify();
        Ok(())
    }

    /// Sends answers that came late. Where there were too many, the requesters have to ask again. Returns the
    /// connection to go on with.
    fn answer(&self, session: Session, peer: PeerId, datagrams: &mut Datagrams) -> PeerId {
        let Some(late) = self.agent.late(peer) else {
            // The new connection is made first: with the last one of it the session would end, and the right to command
            // with it.
            let next = self.agent.connect(session, self.wakeup.clone());
            self.agent.forget(peer);
            datagrams.give_up();
            return next;
        };
        let [fm_api, cci] = &self.sockets;
        for answer in late {
            if let Some(from) = datagrams.resolve(&answer) {
                let socket = if from.kind == MessageType::FmApi as u8 { fm_api } else { cci };
                respond(socket, from, &answer.message, datagrams);
            }
        }
        peer
    }
}

/// Sends a response. One that cannot be sent is lost, as on any bus, and counted.
fn respond(socket: &MctpSocket, from: Origin, message: &[u8], datagrams: &mut Datagrams) {
    let Origin { sender: (network, eid), kind, tag } = from;
    if socket.send(MctpAddr { network, eid, kind, tag, owner: false }, message).is_err() {
        datagrams.unsent();
    }
}
