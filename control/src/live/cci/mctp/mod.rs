//! CCI over MCTP, for managers that know no other way: all connections are one session.
//!
//! [`Server`] accepts TCP connections, or uses the kernel's MCTP (`kernel`). Packets go through a [`Connection`] to the
//! [`Agent`], responses and late answers go back.
//!
//! Source: docs/mctp.md; DMTF DSP0236.
//!
//! MCTP knows no users and nothing is encrypted. Who may command is decided by the listener that a client reached,
//! never by the contents of packets. Such managers open several connections for one purpose, so all of them are one
//! manager.

mod kernel;

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_base::eventfd::EventFd;
use weft_base::threads::Role;
use weft_config::choice::CciOwner;
use weft_config::places::MctpPlace;
use weft_config::resolve::MctpConfig;
use weft_cxl::cci::{Right, Session};
use weft_cxl::mctp::{Connection, MctpCounts};
use weft_parsers::cci::Uuid;

use self::kernel::Bus;
pub use self::kernel::BusError;
use super::{OUT_MAX, PIECE};
use crate::live::agent::{Agent, PeerId};
use crate::report::fabric::MctpReport;
use crate::serve::{Client, Counts, Limits, Protocol, Stream, TcpError, TcpServer, Trust, wait};

/// Limits for these managers together. Connections without a whole message yet take no place of those that have sent
/// one.
pub const LIMITS: Limits = Limits {
    clients: 16,
    unknown: 16,
    idle: Duration::from_mins(5),
    request: Duration::from_secs(10),
    answer: Duration::from_secs(10),
    unread: 8 << 20,
};

/// Why these managers cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum MctpError {
    #[error(transparent)]
    Tcp(#[from] TcpError),
    #[error(transparent)]
    Kernel(#[from] BusError),
}

/// The transport that packets come by.
enum Source {
    Tcp(Arc<Managers>, TcpServer),
    Kernel(Bus),
}

/// The listener for these managers; dropping it ends all connections.
pub struct Server {
    at: MctpPlace,
    source: Source,
    owner: CciOwner,
}

impl Server {
    /// Serves `agent`, whose UUID is `uuid`, where `config` says.
    ///
    /// # Errors
    /// See [`MctpError`].
    pub fn start(config: &MctpConfig, uuid: Uuid, agent: Arc<Agent>) -> Result<Self, MctpError> {
        Self::start_within(config, uuid, agent, LIMITS)
    }

    /// As [`start`](Self::start), with other limits for TCP.
    ///
    /// # Errors
    /// See [`start`](Self::start).
    pub fn start_within(
        config: &MctpConfig,
        uuid: Uuid,
        agent: Arc<Agent>,
        limits: Limits,
    ) -> Result<Self, MctpError> {
        let session = agent.new_session();
        // A session that commands without a claim may not make one: it is open to all that reach the listener, so a
        // claim would not belong to one of them.
        let right = match config.owner {
            CciOwner::Claim => Right::Primary,
            CciOwner::First => {
                agent.stand_in(session);
                Right::Observer
            }
        };
        let (at, source) = match config.place {
            MctpPlace::Tcp(addr) => {
                let counts = Mutex::default();
                let managers = Arc::new(Managers { agent, session, right, uuid, counts });
                let inner = TcpServer::start("CCI over MCTP", addr, limits, managers.clone())?;
                (MctpPlace::Tcp(inner.addr()), Source::Tcp(managers, inner))
            }
            MctpPlace::Kernel(network) => {
                (config.place, Source::Kernel(Bus::start(network, agent, session, right)?))
            }
        };
        Ok(Self { at, source, owner: config.owner })
    }

    #[must_use]
    pub const fn at(&self) -> MctpPlace {
        self.at
    }

    /// Who may command by it, as text for reports.
    #[must_use]
    pub const fn guard(&self) -> &'static str {
        match self.owner {
            CciOwner::Claim => "INSECURE: whoever reaches it may claim the switch",
            CciOwner::First => {
                "INSECURE: whoever reaches it may command the switch until a manager claims it"
            }
        }
    }

    #[must_use]
    pub fn report(&self) -> MctpReport {
        let (counts, messages) = match &self.source {
            Source::Tcp(managers, inner) => (inner.counts(), *managers.counts()),
            Source::Kernel(bus) => (Counts::default(), bus.counts()),
        };
        let Counts { open, accepted, refused, evicted, overdue } = counts;
        MctpReport { open, accepted, refused, evicted, overdue, messages }
    }
}

struct Managers {
    agent: Arc<Agent>,
    session: Session,
    right: Right,
    uuid: Uuid,
    counts: Mutex<MctpCounts>,
}

impl Protocol for Managers {
    fn role(&self) -> Role {
        Role::Cci
    }

    fn name(&self) -> &'static str {
        "weft-mctp"
    }

    fn trust(&self, _stream: &Stream) -> Result<Trust, Vec<u8>> {
        Ok(Trust::Unknown)
    }

    fn serve(&self, client: &Client) {
        // An error ends this connection only; the client sees it closed.
        if let Ok(wakeup) = EventFd::new() {
            let wakeup = Arc::new(wakeup);
            let peer = self.agent.connect(self.session, wakeup.clone());
            let mut connection = Connection::new(self.session, self.right, self.uuid);
            let _ = self.carry_out(client, peer, &mut connection, &wakeup);
            self.counts().add(&connection.take_counts());
            self.agent.forget(peer);
        }
    }
}

impl Managers {
    fn counts(&self) -> MutexGuard<'_, MctpCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry_out(
        &self,
        client: &Client,
        peer: PeerId,
        connection: &mut Connection,
        wakeup: &EventFd,
    ) -> io::Result<()> {
        let (mut piece, mut out, mut is_left, mut is_known) =
            (vec![0; PIECE], Vec::new(), false, false);
        client.idle();
        loop {
            let mut got = 0;
            if !is_left {
                let now = self.agent.now().as_ns();
                let time = connection.next_due().map(|due| {
                    // Rounded up: a wait that ends just before the deadline would only be followed by another.
                    Duration::from_nanos(due.as_ns().saturating_sub(now)) + Duration::from_millis(1)
                });
                let [is_there, _] = wait([client.stream().as_fd(), wakeup.as_fd()], time);
                // Drained before the answers are fetched, so that one that comes in between wakes the next wait.
                wakeup.drain();
                if is_there {
                    client.asking();
                    got = match client.stream().read(&mut piece) {
                        Ok(0) => return Ok(()),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                        other => other?,
                    };
                }
            }
            let bytes = piece.get(..got).unwrap_or_default();
            is_left = self.agent.carry_out(peer, |switch, now| {
                let is_left = connection.receive(switch, now, bytes, OUT_MAX, &mut out);
                (is_left, connection.tickets())
            });
            let late = self.agent.late(peer);
            // More late answers than one connection may leave unread: `late` has dropped them, and the connection is
            // closed, as its manager would wait for them in vain.
            for answer in late.ok_or(io::ErrorKind::OutOfMemory)? {
                connection.resolve(&answer, &mut out);
            }
            // Asked before the counts are taken, as `was_asked` reads them. From its first whole message on the
            // connection takes a place among those that have sent one.
            if connection.was_asked() && !is_known {
                client.raise(Trust::Owner).map_err(|_| io::ErrorKind::ConnectionRefused)?;
                is_known = true;
            }
            self.counts().add(&connection.take_counts());
            if !out.is_empty() {
                // Memory is accounted before the write, which lasts as long as the client takes to read.
                let held = client.hold(out.len()).map_err(io::Error::other)?;
                client.send(&out)?;
                drop(held);
                out.clear();
                out.shrink_to(2 * OUT_MAX);
            }
            if is_left || connection.is_half() {
                client.asking();
            } else {
                client.idle();
            }
        }
    }
}

#[cfg(test)]
mod tests;
