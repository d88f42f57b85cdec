//! Event logs of a switch: link changes (warning) and refused accesses (informational).
//!
//! [`EventLogs`] carries out the event commands (0100h, 0101h, 0104h, 0105h). [`EventLogs::take_changed`] returns the changed
//! logs that the fabric manager subscribed to (0105h).
//!
//! Source: docs/spec/wire-formats.md §4.2 ("Events"); CXL 3.1 sections 7.6.8.1, 8.2.9.2.
//!
//! A record reports the state at the time of the event; the current state is in the ports and counters. So a full log
//! drops the newest record and counts it, and no information about the present is lost.

use std::collections::VecDeque;

use weft_cxl::cci::{Done, Reply};
use weft_dataplane::time::Instant;
use weft_parsers::cci::Wire;
use weft_parsers::cci::events::{
    INFO, LAST, PORT_EVENT, PortEvent, REFUSAL_EVENT, RefusalEvent, WARNING,
};
use weft_parsers::cci::generic::{ClearEvents, EventRecord, EventRecords};
use weft_parsers::cci::switch::PortState;
use weft_parsers::cci::{List, Response, ReturnCode, Uuid};

use super::cci::DONE;

/// Records that one log keeps.
pub const RECORDS_MAX: usize = 64;
/// Bits of the existing logs, as in 0105h.
pub const LOGS: u16 = 1 << INFO | 1 << WARNING;

/// Length of a record in bytes.
const RECORD_LEN: u8 = 128;
/// Bit of [`EventRecords::flags`]: the log overflowed.
const OVERFLOW: u8 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Log {
    records: VecDeque<EventRecord>,
    lost: u16,
    first_lost_ns: u64,
    last_lost_ns: u64,
}

impl Log {
    fn push(&mut self, record: EventRecord) {
        if self.records.len() < RECORDS_MAX {
            self.records.push_back(record);
            return;
        }
        // The response names the first and the last loss; those in between are only counted.
        if self.lost == 0 {
            self.first_lost_ns = record.timestamp_ns;
        }
        self.lost = self.lost.saturating_add(1);
        self.last_lost_ns = record.timestamp_ns;
    }
}

/// All logs, and the subset whose changes the fabric manager is notified of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventLogs {
    info: Log,
    warning: Log,
    policy: u16,
    changed: u16,
    handle: u16,
}

impl EventLogs {
    /// Logs the new state of a port after a change of its link or partner.
    pub fn port(&mut self, now: Instant, state: &PortState) {
        let event = PortEvent {
            port: state.port,
            event: 0,
            config_state: state.config_state,
            partner_version: state.partner_version,
            partner_type: state.partner_type,
            versions: state.versions,
            width_max: state.width_max,
            width: state.width,
            speeds: state.speeds,
            speed_max: state.speed_max,
            speed: state.speed,
            ltssm: state.ltssm,
            first_lane: state.first_lane,
            link_state: state.link_state,
        };
        let record = self.record(now, PORT_EVENT, WARNING, &event);
        self.warning.push(record);
        self.changed |= 1 << WARNING;
    }

    /// Logs how often accesses were refused at a port by one rule. Each (port, rule) has one record. A new count gets a
    /// new handle, so that a manager cannot clear a count that it has not read.
    pub fn refused(&mut self, now: Instant, refusal: &RefusalEvent) {
        let mut data = [0; 80];
        refusal.write(&mut data);
        let is_same = |record: &EventRecord| {
            let other = RefusalEvent::read(&record.data);
            other.is_ok_and(|other| (other.port, other.rule) == (refusal.port, refusal.rule))
        };
        // Without this a stream of refusals would fill the log and push out other ports.
        self.info.records.retain(|record| !is_same(record));
        let record = self.record(now, REFUSAL_EVENT, INFO, refusal);
        self.info.push(record);
        self.changed |= 1 << INFO;
    }

    fn record(&mut self, now: Instant, kind: Uuid, severity: u8, event: &impl Wire) -> EventRecord {
        // Handle 0 means "no event": skip it when the counter wraps.
        self.handle = self.handle.wrapping_add(1).max(1);
        let mut data = [0; 80];
        event.write(&mut data);
        EventRecord {
            kind,
            len: RECORD_LEN,
            flags: [severity, 0, 0],
            handle: self.handle,
            related: 0,
            timestamp_ns: now.as_ns(),
            maintenance: 0,
            maintenance_sub: 0,
            data,
        }
    }

    /// Get MCTP Event Interrupt Policy (0104h): logs that the manager is notified of.
    ///
    /// # Errors
    /// See [`Reply::send`].
    pub fn policy(&self, reply: &mut Reply) -> Done {
        reply.send(&Response::GetMctpEvents(self.policy))
    }

    /// Set MCTP Event Interrupt Policy (0105h): subscribes the manager to the logs in `policy` and answers those of
    /// them that exist. Records already in a log count as a change.
    ///
    /// # Errors
    /// See [`Reply::send`].
    pub fn set_policy(&mut self, policy: u16, reply: &mut Reply) -> Done {
        self.policy = policy & LOGS;
        // A manager that subscribes late, such as after its restart, must not wait for the next event.
        for (log, number) in [(&self.info, INFO), (&self.warning, WARNING)] {
            if !log.records.is_empty() {
                self.changed |= 1 << number;
            }
        }
        reply.send(&Response::SetMctpEvents(self.policy))
    }

    /// Takes the changed logs that the manager subscribed to; each change is reported once.
    pub const fn take_changed(&mut self) -> u16 {
        let changed = self.changed & self.policy;
        // Also forget changes of logs outside the policy: a later subscription looks at the records instead.
        self.changed = 0;
        changed
    }

    /// Get Event Records (0100h): the records of a log, oldest first.
    ///
    /// # Errors
    /// Invalid Input: no log has that number.
    pub fn get(&self, log: u8, reply: &mut Reply) -> Done {
        // Logs of the standard that a switch never writes read as empty, not as an error.
        let none = Log::default();
        let log = match log {
            INFO => &self.info,
            WARNING => &self.warning,
            _ if log <= LAST => &none,
            _ => return Err(ReturnCode::InvalidInput),
        };
        let records: Vec<EventRecord> = log.records.iter().copied().collect();
        reply.send(&Response::GetEvents(EventRecords {
            flags: if log.lost > 0 { OVERFLOW } else { 0 },
            lost: log.lost,
            first_lost_ns: log.first_lost_ns,
            last_lost_ns: log.last_lost_ns,
            records: List::of(&records),
        }))
    }

    /// Clear Event Records (0101h): clears all of the handles, or none of them.
    ///
    /// # Errors
    /// Invalid Input: no such log, or handles are given with "clear all". Invalid Handle: no such record.
    pub fn clear(&mut self, request: &ClearEvents<'_>) -> Done {
        let log = match request.log {
            INFO => &mut self.info,
            WARNING => &mut self.warning,
            log if log <= LAST && request.handles.is_empty() => return DONE,
            log if log <= LAST => return Err(ReturnCode::InvalidHandle),
            _ => return Err(ReturnCode::InvalidInput),
        };
        if request.all {
            if !request.handles.is_empty() {
                return Err(ReturnCode::InvalidInput);
            }
            *log = Log::default();
            return DONE;
        }
        // Check all before removing any: a refused command changes nothing.
        let is_there = |handle: u16| log.records.iter().any(|record| record.handle == handle);
        if !request.handles.iter().all(is_there) {
            return Err(ReturnCode::InvalidHandle);
        }
        log.records.retain(|record| !request.handles.iter().any(|it| it == record.handle));
        (log.lost, log.first_lost_ns, log.last_lost_ns) = (0, 0, 0);
        DONE
    }
}
