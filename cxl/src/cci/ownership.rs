//! Who manages a component: one primary and one secondary fabric manager, and the component's own PID.
//!
//! Claim Ownership (0701h) in, the owners out; [`Ownership::rank`] says what a session may do.
//!
//! Source: docs/spec/wire-formats.md §4.4, §4.8; CXL 3.1 section 7.7.13.1; docs/spec/cxl-fabric.md "Discovery".
//!
//! A stream session is the primary's after an operation 0, 2 or 3 of it that succeeded: each of them carries the
//! fabric manager's PID and UUID, so a fabric manager that connects again makes itself known by operation 2 with the
//! PID that the component has already. A message out of the fabric is the primary's if it has the primary's SPID and came in
//! by a port that the primary has claimed the component through, by such an operation, since that port's link came up.

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
    /// Its PID.
    pub pid: Pid,
    /// Its UUID.
    pub uuid: Uuid,
}

/// What a session is to the component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Its primary fabric manager.
    Primary,
    /// Its secondary one, or a stranger.
    Other,
}

/// Who owns a component, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    pid: Pid,
    primary: Option<Fm>,
    secondary: Option<Fm>,
    /// Streams that the primary has made itself known in.
    sessions: BTreeSet<Session>,
    /// What the primary's connection might become at most when it became the primary.
    primary_right: Right,
    /// Ports that it has made itself known through.
    ways: BTreeSet<u8>,
    /// Who may do all that the primary may while there is none.
    stand_in: Option<Session>,
}

impl Default for Ownership {
    fn default() -> Self {
        Self::new()
    }
}

impl Ownership {
    /// Nobody's, without a PID.
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

    /// The component's own PID, `FFF` before it has one.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Gives it a PID without a fabric manager, as a static configuration does.
    pub const fn set_pid(&mut self, pid: Pid) {
        self.pid = pid;
    }

    /// The primary fabric manager.
    #[must_use]
    pub const fn primary(&self) -> Option<Fm> {
        self.primary
    }

    /// The secondary fabric manager.
    #[must_use]
    pub const fn secondary(&self) -> Option<Fm> {
        self.secondary
    }

    /// What the primary fabric manager's connection might become at most when it claimed the component: others that
    /// may less do not make themselves known as it.
    #[must_use]
    pub const fn primary_right(&self) -> Right {
        self.primary_right
    }

    /// Notes by what right it was claimed last.
    pub const fn set_primary_right(&mut self, right: Right) {
        self.primary_right = right;
    }

    /// Lets `session` do all that the primary fabric manager may for as long as there is none: for managers that know
    /// nothing of Claim Ownership. From the first claim on it is one of the others.
    pub const fn set_stand_in(&mut self, session: Session) {
        self.stand_in = Some(session);
    }

    /// What `session` is to the component.
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

    /// Whether a primary fabric manager has a connection to the component itself.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// A stream has ended: its number may be another's.
    pub fn forget(&mut self, session: Session) {
        self.sessions.remove(&session);
    }

    /// The link of a port went down: whoever is behind it next has not claimed anything yet.
    pub fn forget_way(&mut self, port: u8) {
        self.ways.remove(&port);
    }

    /// Claim Ownership (0701h); `free` says that no part of the component is called by the PID that it is to get.
    ///
    /// # Errors
    /// Invalid Input, for what docs/spec/wire-formats.md §4.4 lists, and for a PID that is another's; nothing has
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
        // Out of the fabric nobody can speak for another: the SPID is that of the FM, or none has been given yet.
        if let Session::InBand { pid, .. } = session
            && !pid.is_none()
            && pid != fm.pid
            && claim.op != ClaimOp::RegisterSecondary
        {
            return Err(ReturnCode::InvalidInput);
        }
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

    /// Response of Claim Ownership (0701h).
    #[must_use]
    pub fn owners(&self) -> Owners {
        let PbrIdentity { primary, primary_uuid, secondary, secondary_uuid, .. } = self.identity();
        Owners { primary, primary_uuid, secondary, secondary_uuid }
    }

    /// Response of Identify PBR Component (0700h).
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
