//! Notices of G-FAM devices about requests that they refused (0107h), turned into events.
//!
//! [`GfdNotices`] collects notifications as they come, and makes lines that say who was refused, where and by which
//! rule.
//!
//! They are shown to people and decide nothing. The switch that passes a notification on tells where the device is, so
//! one in the name of a device elsewhere is dropped. Each device has its own room for waiting notifications and for
//! kinds, so that one that floods hides nothing of others; notifications without room are counted.
//!
//! Source: docs/spec/wire-formats.md §4.6 ("Notifications"); docs/spec/cxl-fabric.md "GFD (endpoint)".

use std::collections::BTreeMap;

use weft_parsers::cci::header::Category;
use weft_parsers::cci::notify::{FmNotification, flags, kind, trigger};
use weft_parsers::cci::pbr::CrawlTarget;
use weft_parsers::cci::{Header, Request, events};
use weft_parsers::fabric::Pid;

use super::board::{Cause, StatusBoard};
use super::news::{KINDS_MAX, News, Told};
use crate::model::graph::SwitchId;
use crate::model::inventory::Inventory;
use crate::show::display_names::DisplayNames;
use crate::state::desired::DesiredState;

/// Notifications of one device that may wait.
const WAITING_MAX: usize = 64;
/// Number of devices, as they name themselves, with notifications waiting.
const DEVICES_MAX: usize = 4_096;

/// A device, with the switch that passed its notification on; `None` is the entry switch.
type Device = (Option<Pid>, Pid);
/// Notifications of a device that count as alike: requester, type, trigger.
type Kind = (Pid, u8, u8);

/// A count, and the count that was reported last.
#[derive(Debug, Default)]
struct Tally {
    count: u64,
    told: Told,
}

impl Tally {
    fn news(&mut self) -> Option<u64> {
        self.told.is_news(self.count).then_some(self.count)
    }
}

/// Notifications of one device.
#[derive(Debug, Default)]
struct FromDevice {
    waiting: Vec<FmNotification>,
    seen: BTreeMap<Kind, u64>,
    news: News<Kind>,
    /// Notifications of kinds beyond those kept apart.
    others: Tally,
    /// Notifications that found no room.
    lost: Tally,
}

/// A line to be reported about a device.
#[derive(Debug)]
enum Line {
    Refused(FmNotification, &'static str, u64),
    Others(u64),
    Lost(u64),
}

/// Notifications of all G-FAM devices.
#[derive(Debug, Default)]
pub(super) struct GfdNotices {
    devices: BTreeMap<Device, FromDevice>,
    /// Notifications of devices without room.
    lost: Tally,
}

/// The notification in a message, and the switch that passed it on.
fn read(message: &[u8]) -> Option<(Option<Pid>, FmNotification)> {
    if let Some(notice) = events::gfd_notice(message) {
        return Some((None, notice));
    }
    let (header, payload) = Header::parse(message).ok()?;
    match Request::parse(header.opcode, payload) {
        Ok(Request::CrawlOut(crawl)) if header.category == Category::Event => {
            let CrawlTarget::Pid(pid) = crawl.target else { return None };
            Some((Some(pid), events::gfd_notice(crawl.message.bytes())?))
        }
        _ => None,
    }
}

/// The rule that was broken, for types of notifications that report a fault.
fn rule(notice: &FmNotification) -> Option<&'static str> {
    Some(match notice.kind {
        kind::ACCESS_ERROR if notice.trigger & trigger::NO_HPA_MAP != 0 => {
            "no decoder of the requester has the address"
        }
        kind::ACCESS_ERROR if notice.trigger & trigger::NO_GROUP != 0 => {
            "the memory belongs to no group"
        }
        kind::ACCESS_ERROR if notice.trigger & trigger::SAT_DENIED != 0 => {
            "the requester is not in the group of the memory"
        }
        kind::ACCESS_ERROR => "access error",
        kind::UNRECOGNISED_REQUEST => "a request that the device does not know",
        kind::UNEXPECTED_PACKET => {
            "a packet that is not for the device, or that it has not asked for"
        }
        kind::INVALID_INPUT => "fields of a request that do not fit together",
        kind::FLUSH_FAILED => "memory was not made persistent",
        kind::EXECUTION_FAILED => "a request failed",
        kind::EXECUTION_FATAL => "a request failed, and the device cannot go on",
        _ => return None,
    })
}

impl FromDevice {
    /// Lines to be reported now: for each kind its first notification, and again whenever their number has doubled.
    fn news(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        for notice in std::mem::take(&mut self.waiting) {
            // Types that report no fault, such as background operations, are not shown.
            let Some(rule) = rule(&notice) else { continue };
            let kind = (notice.rpid, notice.kind, notice.trigger);
            if !self.news.has_room_for(&kind) {
                self.others.count += 1;
                continue;
            }
            let seen = self.seen.entry(kind).or_default();
            *seen += 1;
            if self.news.is_news(kind, *seen) {
                lines.push(Line::Refused(notice, rule, *seen));
            }
        }
        let others = self.others.news().map(Line::Others);
        lines.extend(others.into_iter().chain(self.lost.news().map(Line::Lost)));
        lines
    }
}

impl GfdNotices {
    /// Takes a message; returns false if it is no notification of a GFD.
    pub fn take(&mut self, message: &[u8]) -> bool {
        let Some((by, notice)) = read(message) else { return false };
        let device = (by, notice.pid);
        // A switch may invent device PIDs at will: their number is bounded, too.
        if self.devices.len() >= DEVICES_MAX && !self.devices.contains_key(&device) {
            self.lost.count += 1;
            return true;
        }
        let from = self.devices.entry(device).or_default();
        if from.waiting.len() < WAITING_MAX {
            from.waiting.push(notice);
        } else {
            from.lost.count += 1;
        }
        true
    }

    /// Lines to be reported now, with device and switch. Notifications about a device that is not at the reporting
    /// switch are dropped.
    fn news(&mut self, inventory: &Inventory) -> Vec<(Pid, SwitchId, Line)> {
        let at = |(by, pid): Device| {
            let at = inventory.gfds.iter().find(|gfd| gfd.pid == pid)?.at.switch;
            let is_at = match by {
                None => at == SwitchId(0),
                Some(by) => inventory.switch(at).is_some_and(|switch| switch.pid == by),
            };
            is_at.then_some(at)
        };
        let mut news = Vec::new();
        self.devices.retain(|device, from| {
            // Dropped with its counts: a device that is not there must not take room from others.
            let Some(at) = at(*device) else { return false };
            news.extend(from.news().into_iter().map(|line| (device.1, at, line)));
            true
        });
        news
    }

    /// Reports the notifications that have come as events.
    pub fn report(&mut self, inventory: &Inventory, desired: &DesiredState, board: &StatusBoard) {
        let news = self.news(inventory);
        if let Some(lost) = self.lost.news() {
            let text =
                format!("{lost} notifications of too many G-FAM devices were not read in time");
            board.record_event(text);
        }
        if news.is_empty() {
            return;
        }
        // Made only when there are lines: it goes through all PIDs of the fabric.
        let names = DisplayNames::new(desired, inventory);
        for (gfd, at, line) in news {
            let text = text(inventory, &names, gfd, at, &line);
            board.record_caused(Cause::Gfd(gfd), &text);
        }
    }
}

/// A line about a device at a switch.
fn text(
    inventory: &Inventory,
    names: &DisplayNames,
    gfd: Pid,
    at: SwitchId,
    line: &Line,
) -> String {
    let is_known = |pid| inventory.pids().any(|(known, _)| known == pid);
    let times = |count: u64| if count == 1 { "notification" } else { "notifications" };
    let text = match line {
        Line::Refused(notice, rule, count) => {
            let rpid = notice.rpid;
            let who = if is_known(rpid) { "" } else { "unknown " };
            let hpa = (notice.flags & flags::HPA != 0).then(|| format!(" at {:#x}", notice.hpa.0));
            let (hpa, times) = (hpa.unwrap_or_default(), times(*count));
            format!("PID {gfd} at {at} refused {who}PID {rpid}{hpa}: {rule}, {count} {times}")
        }
        Line::Others(count) => {
            let times = times(*count);
            format!(
                "PID {gfd} at {at} refused more than {KINDS_MAX} kinds of requests: {count} {times} of others"
            )
        }
        Line::Lost(count) => {
            format!("{count} {} of PID {gfd} at {at} were not read in time", times(*count))
        }
    };
    names.told(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::memory::fabric;
    use weft_parsers::cci::pbr::CrawlOut;
    use weft_parsers::cci::{List, Wire};

    fn notice(gfd: Pid, rpid: u16) -> FmNotification {
        let none = FmNotification::read(&[0; 40]).unwrap();
        let (kind, trigger) = (kind::ACCESS_ERROR, trigger::SAT_DENIED);
        FmNotification { pid: gfd, rpid: Pid::from_low_bits(rpid), kind, trigger, ..none }
    }

    fn message(request: &Request<'_>) -> Vec<u8> {
        let mut out = [0; 256];
        let len = events::notification(request, &mut out).unwrap();
        out[..len].to_vec()
    }

    /// A notification as `switch` passes it on; `None`: the entry switch.
    fn by(switch: Option<Pid>, notice: FmNotification) -> Vec<u8> {
        let own = message(&Request::FmNotification(notice));
        let Some(pid) = switch else { return own };
        let target = CrawlTarget::Pid(pid);
        message(&Request::CrawlOut(CrawlOut { target, message: List::of(&own) }))
    }

    /// docs/security.md: notifications count only from the switch that has the device.
    #[test]
    fn who_tells_must_have_the_device() {
        let (_shared, inventory) = fabric(2);
        let pid = |id| inventory.switch(SwitchId(id)).unwrap().pid;
        let mut notices = GfdNotices::default();
        for gfd in &inventory.gfds {
            let at = gfd.at.switch;
            let own = if at == SwitchId(0) { None } else { Some(pid(1)) };
            let other = if at == SwitchId(0) { Some(pid(1)) } else { None };
            for (switch, told) in [(own, 1), (other, 0), (Some(Pid::from_low_bits(0x777)), 0)] {
                assert!(notices.take(&by(switch, notice(gfd.pid, 9))));
                assert_eq!(notices.news(&inventory).len(), told, "{switch:?}");
            }
            let extents = FmNotification { kind: kind::EXTENTS_CHANGED, ..notice(gfd.pid, 9) };
            assert!(notices.take(&by(own, extents)) && notices.news(&inventory).is_empty());
        }
        assert!(notices.take(&by(None, notice(Pid::from_low_bits(0x777), 9))));
        assert!(notices.news(&inventory).is_empty(), "no such device");
        for other in [message(&Request::Event(2)), Vec::new(), vec![0xFF; 70]] {
            assert!(!notices.take(&other), "{other:x?}");
        }
    }

    /// A notification of a GFD as its switch passes it on.
    fn by_its_switch(inventory: &Inventory, gfd: Pid, rpid: u16) -> Vec<u8> {
        let at = inventory.gfds.iter().find(|known| known.pid == gfd).unwrap().at.switch;
        let switch = (at != SwitchId(0)).then(|| inventory.switch(at).unwrap().pid);
        by(switch, notice(gfd, rpid))
    }

    /// A flood is reported when it begins and when it doubles; the notices kept of it are bounded, and those of other
    /// GFDs are reported.
    #[test]
    fn a_flood_is_a_few_lines_and_hides_nobody() {
        let (_shared, inventory) = fabric(2);
        let [hostile, honest] = [0, 1].map(|at| inventory.gfds[at].pid);
        let (mut notices, mut lines) = (GfdNotices::default(), 0);
        for _ in 0..10_000 {
            notices.take(&by_its_switch(&inventory, hostile, 9));
            lines += notices.news(&inventory).len();
        }
        assert_eq!(lines, 14, "1, 2, 4, ... 8192");
        // A flood that names many requesters, without a look in between.
        for rpid in 0..4_000 {
            notices.take(&by_its_switch(&inventory, hostile, rpid));
        }
        notices.take(&by_its_switch(&inventory, honest, 9));
        let news = notices.news(&inventory);
        let of = |gfd| news.iter().filter(move |(from, ..)| *from == gfd).map(|(.., line)| line);
        let lost = of(hostile)
            .any(|line| matches!(line, Line::Lost(count) if *count == 4_000 - WAITING_MAX as u64));
        assert!(lost && of(hostile).count() <= WAITING_MAX + 1, "{news:?}");
        assert_eq!(of(honest).count(), 1);
        // With a look after each: kinds beyond `KINDS_MAX` share one line, reported when its count doubles.
        lines = 0;
        for rpid in 0..40_000 {
            notices.take(&by_its_switch(&inventory, hostile, rpid % 0x1000));
            lines += notices.news(&inventory).len();
        }
        assert!(notices.devices.values().all(|from| from.seen.len() <= KINDS_MAX));
        assert!((KINDS_MAX..6 * KINDS_MAX).contains(&lines), "{lines}");
        notices.take(&by_its_switch(&inventory, honest, 9));
        assert_eq!(notices.news(&inventory).len(), 1, "the second one of its kind");
        // PIDs that a switch invents are not reported, and not kept.
        for pid in 0..0x1000 {
            notices.take(&by(Some(Pid::from_low_bits(0x777)), notice(Pid::from_low_bits(pid), 9)));
        }
        assert!(notices.devices.len() <= DEVICES_MAX && notices.news(&inventory).is_empty());
        assert_eq!(notices.devices.len(), 2);
    }

    #[test]
    fn a_requester_that_there_is_not_is_told_as_such() {
        let (_shared, inventory) = fabric(1);
        let (gfd, names) = (inventory.gfds[0], DisplayNames::default());
        let (pid, at) = (gfd.pid, gfd.at.switch);
        let told = |rpid: u16, names: &DisplayNames| {
            text(&inventory, names, pid, at, &Line::Refused(notice(pid, rpid), "why", 1))
        };
        let uuid = data_encoding::HEXLOWER.encode(&gfd.uuid);
        let desired = DesiredState::parse(&format!("[[gfd]]\nname = \"g0\"\nuuid = \"{uuid}\"\n"));
        let named = DisplayNames::new(&desired.unwrap(), &inventory);
        let text = format!("PID {pid} at {at} refused unknown PID 7ab: why, 1 notification");
        assert_eq!(told(0x7AB, &names), text);
        let text = format!("g0 (PID {pid}) at {at} refused g0 (PID {pid}): why, 1 notification");
        assert_eq!(told(pid.bits(), &named), text);
    }
}
