//! What G-FAM devices tell of requests that they have not carried out (0107h).
//!
//! Shape: notifications as they come -> [`GfdNotices`] -> lines for events: who, where, and which rule.
//! Units: notifications.
//! Source: docs/spec/wire-formats.md §4.6 ("Notifications"); docs/spec/cxl-fabric.md "GFD (endpoint)".
//!
//! They are shown to people and decide nothing. The switch at which the device is says whose it is, so one that names a device
//! elsewhere is dropped.

use std::collections::BTreeMap;

use weft_parsers::cci::header::Category;
use weft_parsers::cci::notify::{FmNotification, flags, kind, trigger};
use weft_parsers::cci::pbr::CrawlTarget;
use weft_parsers::cci::{Header, Request, events};
use weft_parsers::fabric::Pid;

use super::Fm;
use super::display_names::DisplayNames;
use super::news::News;
use crate::graph::SwitchId;
use crate::inventory::Inventory;

/// Notifications that wait to be told.
const WAITING_MAX: usize = 256;

/// What is alike: device, requester, type, trigger.
type Kind = (Pid, Pid, u8, u8);

/// Notifications of G-FAM devices.
#[derive(Debug, Default)]
pub(super) struct GfdNotices {
    /// With the PID of the switch that passed it on; none of the entry switch.
    waiting: Vec<(Option<Pid>, FmNotification)>,
    lost: u64,
    seen: BTreeMap<Kind, u64>,
    news: News<Kind>,
}

/// The notification of a device that a message is, and who passed it on.
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

/// What was wrong, of those types that are somebody's fault.
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

impl GfdNotices {
    /// Takes a message in; false if it is something else.
    pub fn take(&mut self, message: &[u8]) -> bool {
        let Some(notice) = read(message) else { return false };
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(notice);
        } else {
            self.lost += 1;
        }
        true
    }

    /// What is to be told now: each kind when it begins, and whenever it has doubled; how often it was notified of.
    fn news(
        &mut self,
        inventory: &Inventory,
    ) -> Vec<(FmNotification, SwitchId, &'static str, u64)> {
        let mut news = Vec::new();
        for (by, notice) in std::mem::take(&mut self.waiting) {
            let gfd = inventory.gfds.iter().find(|gfd| gfd.pid == notice.pid);
            let (Some(gfd), Some(rule)) = (gfd, rule(&notice)) else { continue };
            let at = gfd.at.switch;
            let is_at = match by {
                None => at == SwitchId(0),
                Some(pid) => inventory.switch(at).is_some_and(|switch| switch.pid == pid),
            };
            if !is_at {
                continue;
            }
            let kind = (notice.pid, notice.rpid, notice.kind, notice.trigger);
            if !self.news.has_room_for(&kind) {
                self.seen.clear();
                self.news = News::default();
            }
            let seen = self.seen.entry(kind).or_default();
            *seen += 1;
            if self.news.is_news(kind, *seen) {
                news.push((notice, at, rule, *seen));
            }
        }
        news
    }
}

impl Fm {
    /// Tells what G-FAM devices have notified of.
    pub(super) fn tell_gfd_notices(&mut self) {
        let Some(running) = &self.running else { return };
        let inventory = &running.inventory;
        let news = self.gfd_notices.news(inventory);
        let lost = std::mem::take(&mut self.gfd_notices.lost);
        if news.is_empty() && lost == 0 {
            return;
        }
        let names = DisplayNames::new(&self.desired, inventory);
        let name = |pid: Pid| match inventory.pids().find(|(known, _)| *known == pid) {
            Some((_, at)) => {
                let name = names.at(inventory, at.switch, at.port);
                format!("{} (PID {pid})", name.trim_end()).trim_start().to_owned()
            }
            None => format!("PID {pid}"),
        };
        let mut lines = Vec::new();
        for (notice, at, rule, count) in news {
            let hpa = (notice.flags & flags::HPA != 0).then(|| format!(" at {:#x}", notice.hpa.0));
            let times = if count == 1 { "notification" } else { "notifications" };
            lines.push(format!(
                "{} at {at} refused {}{}: {rule}, {count} {times}",
                name(notice.pid),
                name(notice.rpid),
                hpa.unwrap_or_default(),
            ));
        }
        if lost > 0 {
            lines.push(format!("{lost} notifications of G-FAM devices were not read in time"));
        }
        for line in lines {
            self.board.record_event(line);
        }
    }
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

    /// As the switch of that PID passes it on; none: the entry switch.
    fn by(switch: Option<Pid>, notice: FmNotification) -> Vec<u8> {
        let own = message(&Request::FmNotification(notice));
        let Some(pid) = switch else { return own };
        let target = CrawlTarget::Pid(pid);
        message(&Request::CrawlOut(CrawlOut { target, message: List::of(&own) }))
    }

    /// docs/security.md: what a switch tells of a device that is not at it is nobody's word.
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

    /// Whoever floods is told of when it begins and when it doubles, and what is kept is bounded.
    #[test]
    fn a_flood_is_a_few_lines() {
        let (_shared, inventory) = fabric(1);
        let gfd = inventory.gfds[0];
        let by_whom =
            (gfd.at.switch != SwitchId(0)).then(|| inventory.switch(gfd.at.switch).unwrap().pid);
        let (mut notices, mut lines) = (GfdNotices::default(), 0);
        for _ in 0..10_000 {
            notices.take(&by(by_whom, notice(gfd.pid, 9)));
            lines += notices.news(&inventory).len();
        }
        assert_eq!(lines, 14, "1, 2, 4, ... 8192");
        for rpid in 0..4_000 {
            notices.take(&by(by_whom, notice(gfd.pid, rpid)));
        }
        assert_eq!(
            (notices.waiting.len(), notices.lost),
            (WAITING_MAX, 4_000 - WAITING_MAX as u64)
        );
        for rpid in 0..4_000 {
            notices.take(&by(by_whom, notice(gfd.pid, rpid)));
            notices.news(&inventory);
        }
        assert!(notices.seen.len() <= super::super::news::KINDS_MAX);
    }
}
