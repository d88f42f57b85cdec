//! Messages: notifications to hosts, partner information, and proxied commands.
//!
//! The device sends GAM and [`PartnerInfo`]; it takes [`PartnerInfo`], and hands all other messages of its own to
//! [`super::InBand`].
//!
//! Source: docs/spec/wire-formats.md §3.8, §4.6, §4.8.

use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::vdm::PartnerInfo;
use weft_parsers::tlp::{MctpPacket, PbrVdm, Pth, Tlp, VdmOp};

use super::serve::{GfdEndCore, NOWHERE};
use crate::cci::Component;
use crate::gfd::device::Request;
use crate::gfd::events::{Kind, QUEUE_MAX};
use crate::tlp_end::{Outbox, TlpEnd};

/// Least time between two answers to unchanged partner information.
const ANSWER_HOLD: Span = Span::from_ms(10);

/// Virtual channels of PCIe TLPs (VC 0), one bit each; `UIO_VCS` has those of UIO (VC 3).
const VCS: u8 = 1;
const UIO_VCS: u8 = 1 << 3;

impl GfdEndCore {
    pub(super) fn message(&mut self, now: Instant, pth: Pth, tlp: &Tlp<'_>, out: &mut Outbox) {
        let request = Request { rpid: pth.spid, hpa: NOWHERE, opcode: None };
        if let Ok(packet) = MctpPacket::parse(tlp)
            && let Some(in_band) = &mut self.in_band
            && in_band.packet(now, &mut self.device, pth, &packet, out)
        {
            return;
        }
        let Ok(vdm) = PbrVdm::parse(tlp) else {
            self.counts.unrecognised += 1;
            self.device.gfd.reject(now, request, Kind::UnrecognisedRequest);
            return;
        };
        let own = self.device.gfd.pid();
        if vdm.op == VdmOp::LinkPartnerInfo {
            // About the link itself, so it counts whatever PIDs its ends have, even before they have one.
            let Ok(info) = PartnerInfo::decode(vdm.payload) else { return };
            let is_new = self.partner.replace(info) != Some(info);
            // Each end answers the other's information with its own: without the hold two ends would answer each other
            // for ever.
            let held = self.announced.is_some_and(|at| now < at + ANSWER_HOLD);
            if is_new || !held {
                self.announce(now, out);
            }
        } else if pth.spid.is_none() || pth.dpid != own || own.is_none() {
            self.unexpected(now, request);
        } else if let Some(in_band) = &mut self.in_band
            && in_band.message(now, &mut self.device, pth, &vdm, out)
        {
        } else {
            self.counts.unrecognised += 1;
            self.device.gfd.reject(now, request, Kind::UnrecognisedRequest);
        }
    }

    /// Sends partner information to the other end of the link.
    pub(super) fn announce(&mut self, now: Instant, out: &mut Outbox) {
        self.announced = Some(now);
        let mut info = PartnerInfo::new(self.device.gfd.pid(), PartnerInfo::GFD);
        info.port = self.config.port;
        info.far_port = self.partner.map_or(0, |partner| partner.port);
        info.uuid = self.config.uuid;
        (info.vcs, info.uio_vcs) = (VCS, UIO_VCS);
        let owners = self.device.common().ownership.owners();
        (info.primary_fm, info.secondary_fm) = (owners.primary_uuid, owners.secondary_uuid);
        let payload = info.emit();
        let pth = Pth { dsar: true, ..Pth::new(self.device.gfd.pid(), Pid::NONE) };
        let sent = out.send(Some(pth), &PbrVdm::new(VdmOp::LinkPartnerInfo, &payload).repr());
        debug_assert!(sent.is_ok(), "a message of its own making");
    }

    /// Sends waiting notifications to the fabric manager, and keeps a copy of as many as there is room for, for
    /// display.
    pub(super) fn tell_fm(&mut self) {
        let pid = self.device.gfd.pid();
        while let Some(notice) = self.device.gfd.events().pop_fm() {
            // The payload names the device by its PID.
            if let Some(in_band) = self.in_band.as_mut().filter(|_| !pid.is_none()) {
                let told = in_band.notify(&self.device, &notice.for_fm(pid));
                self.counts.untold += u64::from(!told);
            }
            if self.notices.len() < QUEUE_MAX {
                self.notices.push_back(notice);
            }
        }
    }

    /// Sends waiting notifications to hosts.
    pub(super) fn notify(&mut self, end: &mut TlpEnd) {
        let own = self.device.gfd.pid();
        // Only while the outbox has room, so that notifications wait in their own bounded queue, where like ones count
        // as one.
        while !own.is_none()
            && !end.is_full()
            && let Some(notice) = self.device.gfd.events().pop_host()
        {
            let payload = notice.for_host(own);
            let pth = Pth { dsar: true, ..Pth::new(own, notice.event.rpid) };
            let gam = PbrVdm::new(VdmOp::Gam, &payload);
            self.counts.gam += u64::from(end.outbox().send(Some(pth), &gam.repr()).is_ok());
        }
    }
}
