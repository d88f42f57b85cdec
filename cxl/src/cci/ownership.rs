//! Ownership of a component: one primary and one secondary fabric manager, and the component's own PID.
//!
//! Claim Ownership (0701h) changes it; [`Ownership::rank`] decides the rights of a session.
//!
//! Source: docs/spec/wire-formats.md §4.4, §4.8; CXL 3.1 section 7.7.13.1; docs/spec/cxl-fabric.md "Discovery".
//!
//! A stream session belongs to the primary after a successful operation 0, 2 or 3: each of them carries the fabric
//! manager's PID and UUID, so a manager that reconnects identifies itself by operation 2 with the component's
//! present PID. A message from the fabric is the primary's if it has the primary's SPID and came by a port through
//! which the primary has claimed the component, by such an operation, since that port's link came up.

use std::collections::BTreeSet;

use weft_parsers::cci::component::{ClaimOp, ClaimOwnership, Owners, PbrIdentity};
use weft_parsers::cci::{ReturnCode, Uuid};
use weft_parsers::fabric::Pid;

use super::NO_UUID;
use super::rights::Right;
use super::session::Session;

/// A fabric manager, by PID and UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fm {
    pub pid: Pid,
    /// UUID of the manager, which it chooses itself.
    pub uuid: Uuid,
}

/// Relation of a session to the component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The primary fabric manager.
    Primary,
    /// The secondary manager, or any other requester.
    Other,
}

/// Owners of a component, and its PID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    pid: Pid,
    primary: Option<Fm>,
    secondary: Option<Fm>,
    /// Streams in which the primary has identified itself.
    sessions: BTreeSet<Session>,
    /// Highest right of the primary's connection at the time of its claim.
    primary_right: Right,
    /// Ports through which the primary has identified itself.
    ways: BTreeSet<u8>,
    /// Session with the rights of the primary while there is none.
    stand_in: Option<Session>,
}

impl Default for Ownership {
    fn default() -> Self {
        Self::new()
    }
}

impl Ownership {
    /// A component without owners and PID.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pid: Pid::NONE,
            primary: None,
            secondary: None,
            sessions: BTreeSet::new(),
            primary_right: Right::Primary,
            ways: BTreeSet::new(),
            stand_in: None,
        }
    }

    /// The component's PID, `FFF` until it has one.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Assigns a PID without a fabric manager, as a static configuration does.
    pub const fn set_pid(&mut self, pid: Pid) {
        self.pid = pid;
    }

    /// The primary fabric manager, if there is one.
    #[must_use]
    pub const fn primary(&self) -> Option<Fm> {
        self.primary
    }

    /// The secondary fabric manager, if there is one.
    #[must_use]
    pub const fn secondary(&self) -> Option<Fm> {
        self.secondary
    }

    /// Highest right of the primary's connection at the time of its claim: connections with lower rights cannot
    /// identify themselves as the primary.
    #[must_use]
    pub const fn primary_right(&self) -> Right {
        self.primary_right
    }

    /// Records the right of the connection that made the last claim.
    pub const fn set_primary_right(&mut self, right: Right) {
        self.primary_right = right;
    }

    /// Gives `session` the rights of the primary while there is none, for managers that do not know Claim
    /// Ownership. From the first claim on it is an ordinary session.
    pub const fn set_stand_in(&mut self, session: Session) {
        self.stand_in = Some(session);
    }

    /// Relation of `session` to the component.
    #[must_use]
    pub fn rank(&self, session: Session) -> Rank {
        let primary = match session {
            Session::Fm(_) if self.primary.is_none() => self.stand_in == Some(session),
            Session::Fm(_) => self.sessions.contains(&session),
            Session::InBand { port, pid } => {
                self.primary.is_some_and(|fm| fm.pid == pid) && self.ways.contains(&port)
            }
            Session::Host { .. } | Session::Proxy(_) => false,
        };
        if primary { Rank::Primary } else { Rank::Other }
    }

    /// Whether the primary has a connection of its own to the component.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// A stream has ended: its number may be used for another one.
    pub fn forget(&mut self, session: Session) {
        self.sessions.remove(&session);
    }

    /// The link of a port went down: the component behind it may be another one, which has claimed nothing.
    pub fn forget_way(&mut self, port: u8) {
        self.ways.remove(&port);
    }

    /// Claim Ownership (0701h); `free` says that no part of the component has the PID that it is to get.
    ///
    /// # Errors
    /// Invalid Input, in the cases of docs/spec/wire-formats.md §4.4, and for a PID that is in use; nothing has
    /// changed.
    pub fn claim(
        &mut self,
        session: Session,
        claim: &ClaimOwnership,
        free: bool,
    ) -> Result<Owners, ReturnCode> {
        let fm = Fm { pid: claim.fm, uuid: claim.fm_uuid };
        if claim.fm.is_none() || claim.pid.is_none() {
            return Err(ReturnCode::InvalidInput);
        }
        // From the fabric a manager can speak for itself only: the SPID is its PID, or it has none yet.
        if let Session::InBand { pid, .. } = session
            && !pid.is_none()
            && pid != fm.pid
            && claim.op != ClaimOp::RegisterSecondary
        {
            return Err(ReturnCode::InvalidInput);
        }
        // Only these operations assign the component's PID.
        let names_component = matches!(claim.op, ClaimOp::RegisterPrimary | ClaimOp::UpdatePid);
        if names_component && !free {
            return Err(ReturnCode::InvalidInput);
        }
        match claim.op {
            ClaimOp::RegisterPrimary => {
                if self.primary.is_some() {
                    return Err(ReturnCode::InvalidInput);
                }
                self.primary = Some(fm);
                self.pid = claim.pid;
                self.know(session);
            }
            ClaimOp::RegisterSecondary => {
                let known = self.primary.is_some() && self.rank(session) == Rank::Primary;
                // One manager must not be primary and secondary: it would be promoted into its own place.
                if !known || self.secondary.is_some() || self.primary.is_some_and(|it| it == fm) {
                    return Err(ReturnCode::InvalidInput);
                }
                self.secondary = Some(fm);
            }
            ClaimOp::UpdatePid => {
                if self.primary != Some(fm) {
                    return Err(ReturnCode::InvalidInput);
                }
                self.pid = claim.pid;
                self.know(session);
            }
            ClaimOp::PromoteSecondary => {
                if self.secondary != Some(fm) {
                    return Err(ReturnCode::InvalidInput);
                }
                self.primary = self.secondary.take();
                // Connections of the old primary lose their rank with it.
                self.sessions.clear();
                self.ways.clear();
                self.know(session);
            }
        }
        Ok(self.owners())
    }

    fn know(&mut self, session: Session) {
        match session {
            Session::Fm(_) => drop(self.sessions.insert(session)),
            Session::InBand { port, .. } => drop(self.ways.insert(port)),
            Session::Host { .. } | Session::Proxy(_) => {}
        }
    }

    /// Response to Claim Ownership (0701h).
    #[must_use]
    pub fn owners(&self) -> Owners {
        let PbrIdentity { primary, primary_uuid, secondary, secondary_uuid, .. } = self.identity();
        Owners { primary, primary_uuid, secondary, secondary_uuid }
    }

    /// Response to Identify PBR Component (0700h).
    #[must_use]
    pub fn identity(&self) -> PbrIdentity {
        let nobody = Fm { pid: Pid::NONE, uuid: NO_UUID };
        let (primary, secondary) =
            (self.primary.unwrap_or(nobody), self.secondary.unwrap_or(nobody));
        PbrIdentity {
            pid: self.pid,
            primary: primary.pid,
            primary_uuid: primary.uuid,
            secondary: secondary.pid,
            secondary_uuid: secondary.uuid,
        }
    }
}
