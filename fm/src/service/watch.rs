//! Monitoring of a running fabric: components and links that come or go, and changes by others.
//!
//! [`Fm::watch`] is called again and again; it leads to new tables, a discovery, or events.
//!
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; docs/fm.md.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use super::foreign::Foreign;
use super::gfd_notices::GfdNotices;
use super::listen::{EventLogs, LogsRead};
use super::pid_mismatch::PidMismatches;
use super::status::{Phase, StartMode};
use super::traffic::Traffic;
use super::{Fm, with_causes};
use crate::cci::{CciSession, Way};
use crate::discover::change::{Event, Report};
use crate::model::graph::PortRef;
use crate::model::inventory::{DiscoveredSwitch, Inventory};

/// Looks between two attempts to discover a component that has not come back.
const ROUNDS: u32 = 16;
/// Looks between two attempts to remove an error.
const ERROR_ROUNDS: u32 = 64;

impl Fm {
    /// Looks for changes in the fabric, and handles them.
    pub fn watch(&mut self) {
        if self.mode == StartMode::Static || self.board.status().phase != Phase::Up {
            return;
        }
        self.take_in(); // what has been notified of is looked at now
        let is_ours = self.entry_is_ours();
        let Some(running) = &mut self.running else { return };
        let before = running.inventory.clone();
        match is_ours {
            Some(true) => {}
            Some(false) => return self.bring_back(),
            None => return self.show(),
        }
        let watched = running.watch(&mut self.session.cci);
        self.record_withdrawn();
        let Some(running) = &self.running else { return };
        let again = match watched {
            Ok(reports) => {
                for report in &reports {
                    self.board.record_event(told(report, &running.inventory));
                }
                let is_up = |report: &Report| {
                    let more = report.more.iter().chain([&report.event]);
                    more.into_iter().any(|event| matches!(event, Event::LinkUp(_)))
                };
                let bindings = &running.bindings;
                let lacks = !self.errors.is_empty() || !bindings.cut.is_empty();
                reports.iter().any(|report| !report.severed.is_empty() || lacks && is_up(report))
            }
            Err(error) => {
                self.board.record_event(with_causes(&error));
                true
            }
        };
        // Before a discovery, so that none follows for what it has dealt with.
        let (monitor, inventory) = (&mut self.monitor, &running.inventory);
        let LogsRead { silent, relinked } =
            monitor.logs.read(&mut self.session.cci, inventory, &self.desired, &self.board);
        let changed = *inventory != before;
        let may_be_back = monitor.may_be_back(&mut self.session.cci, inventory);
        // The cause of an error may be gone without any event.
        let is_due = !self.errors.is_empty() && monitor.looks.is_multiple_of(ERROR_ROUNDS);
        // A discovery also saves; without one the state is saved if it changed.
        if may_be_back || again || is_due || relinked {
            if let Err(error) = self.rediscover() {
                self.board.record_event(with_causes(&error));
                self.errors.push(with_causes(&error));
            }
        } else if changed && let Err(error) = self.save() {
            self.errors.push(with_causes(&error));
        }
        let is_changed = self.memory_requests().is_ok_and(|mut requests| requests.watch_domains());
        if is_changed && let Err(error) = self.save() {
            self.errors.push(with_causes(&error));
        }
        if let Some(running) = &self.running {
            let now = &running.pid_mismatches;
            self.monitor.pid_mismatches.report(now, &mut self.errors, &self.board);
            let manager = self.desired.manager().uuid;
            for line in self.monitor.foreign.check(&mut self.session.cci, running, manager) {
                self.board.record_event(line);
            }
        }
        if let Some(running) = &self.running {
            let (cci, wanted) = (&mut self.session.cci, self.grants.access_bits());
            self.costs.tell_changed(cci, running, self.desired.figures(), &wanted);
            let inventory = &running.inventory;
            self.monitor.traffic.read(&mut self.session.cci, inventory, &silent);
            self.monitor.gfd_notices.report(inventory, &self.desired, &self.board);
        }
        self.show();
    }

    /// Whether the entry switch answered the last request.
    pub(crate) fn has_entry(&self) -> bool {
        !self.entry_silent
    }

    /// Whether the entry switch still belongs to this manager; `None` if it does not answer or belongs to another one.
    fn entry_is_ours(&mut self) -> Option<bool> {
        const SILENT: &str = "the entry switch does not answer";
        let now = crate::discover::identify(&mut self.session.cci, Way::Entry);
        self.errors.retain(|line| !line.starts_with(SILENT));
        self.entry_silent = now.is_err();
        match now {
            Ok(now) => {
                let ours = self.desired.manager().uuid;
                if now.primary.is_none() || now.primary_uuid == ours {
                    return Some(now.primary_uuid == ours);
                }
                let owner = crate::model::text::UuidText(now.primary_uuid);
                let why = format!("the fabric is now owned by the fabric manager {owner}");
                self.board.record_event(why.clone());
                self.board.set(|status| (status.phase, status.failed) = (Phase::Failed, Some(why)));
                // `Failed` makes the next look a start-up, which finds out whether this manager stands by now.
                None
            }
            Err(error) => {
                self.errors.push(format!("{SILENT}: {}", error.with_causes()));
                None
            }
        }
    }

    /// Brings the fabric up again after the entry switch was restarted.
    fn bring_back(&mut self) {
        self.board.record_event("the entry switch has lost its settings");
        if let Err(error) = self.rediscover() {
            self.board.record_event(with_causes(&error));
            self.errors.push(with_causes(&error));
        }
        self.show();
    }

    /// Takes messages that came between two requests; returns whether there was a notification of a change.
    pub fn take_in(&mut self) -> bool {
        self.monitor.take_in(&mut self.session.cci)
    }

    /// Breaks if the fabric should be looked at now: after a notification, or when the connection to the entry switch
    /// has ended. Otherwise returns the descriptor to wait for.
    pub(crate) fn look_out(&mut self) -> ControlFlow<(), Option<OwnedFd>> {
        // Compared with the state afterwards: only the end of a connection that was there is news.
        let was_open = self.session.cci.readable().is_some();
        let is_notified = self.take_in();
        let readable = self.session.cci.readable();
        if is_notified || was_open && readable.is_none() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(readable)
    }
}

/// What monitoring remembers from one look to the next, so that each finding is reported once.
#[derive(Debug, Default)]
pub(super) struct Monitor {
    /// Changes by other managers.
    foreign: Foreign,
    /// Refused accesses at edges.
    logs: EventLogs,
    /// Loads of links.
    pub traffic: Traffic,
    /// Requests that G-FAM devices refused.
    gfd_notices: GfdNotices,
    pid_mismatches: PidMismatches,
    /// Ends that are up of links that are down, with the partner's type, for which a discovery was tried.
    tried: BTreeSet<(PortRef, u8)>,
    /// Looks so far; it wraps around.
    looks: u32,
}

impl Monitor {
    /// Present problems that monitoring has found.
    pub fn errors(&self) -> Vec<String> {
        self.foreign.errors()
    }

    /// Takes the messages that have come; returns whether there was a notification of a change.
    fn take_in(&mut self, cci: &mut CciSession) -> bool {
        cci.take_in();
        let mut any = false;
        while let Some(message) = cci.event() {
            // A refusal at a device is no change, and any host can cause one.
            any |= !self.gfd_notices.take(&message);
        }
        any
    }

    /// Whether a link that is known to be down has an end that is up: its component may be back.
    fn may_be_back(&mut self, cci: &mut CciSession, inventory: &Inventory) -> bool {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(ROUNDS) {
            self.tried.clear();
        }
        let mut half = BTreeSet::new();
        for &end in inventory.down.iter().flatten() {
            let switch = inventory.switch(end.switch).filter(|switch| switch.whole);
            let Some(way) = switch.map(DiscoveredSwitch::way) else { continue };
            let seen = crate::cci::switch_state::ports_seen(cci, way, &[end.port]);
            let up = seen.unwrap_or_default().into_iter().find(|seen| seen.up);
            // The partner announces itself after the link is up; that is worth another try.
            half.extend(up.map(|seen| (end, seen.partner)));
        }
        let is_new = half.iter().any(|end| !self.tried.contains(end));
        self.tried = half;
        is_new
    }
}

fn told(report: &Report, inventory: &Inventory) -> String {
    let mut text = report.event.told(inventory);
    if let Event::SwitchGone(_) = report.event {
        text.push_str(", though a link to it is up");
    }
    for event in &report.more {
        let _ = write!(text, "; {}", event.told(inventory)); // a String takes everything
        if let Event::SwitchGone(_) = event {
            text.push_str(": no way leads to it");
        }
    }
    let mut add = |args: std::fmt::Arguments<'_>| {
        let _ = text.write_fmt(args); // a String takes everything
    };
    add(format_args!("; {} entries of tables were sent", report.sent.entries));
    for link in &report.hit {
        add(format_args!("; the virtual link at {} has another way", link.host.bridge));
    }
    for link in &report.severed {
        add(format_args!("; the virtual link at {} is cut", link.host.bridge));
    }
    for end in &report.left {
        add(format_args!("; {end} cannot be reached, and may be bound still"));
    }
    if let Some(partition) = &report.partition {
        add(format_args!("; {partition}"));
    }
    text
}
