//! Preparations by a fabric manager: it claims all components, assigns PIDs and sets routes.
//!
//! [`Fabric::ok`] sends commands of docs/spec/wire-formats.md §4. For a component behind others, `way` lists the
//! targets of Fabric Crawl Out on the path to it.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.3 to §4.6.

use weft_cxl::cci::Component;
use weft_cxl::completer::Target as _;
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership};
use weft_parsers::cci::gae::{AccessOp, ConfigureAccess};
use weft_parsers::cci::pbr::{AssignOp, AssignPids, CrawlTarget, PathCost, PidAssignment};
use weft_parsers::cci::tables::{PidOp, SetDrt};
use weft_parsers::cci::vcs::BindVppb;
use weft_parsers::cci::{List, Request, ReturnCode};
use weft_parsers::fabric::{DrtEntry, Hpa, Pid};
use weft_pbr_switch::Partner;

use super::super::rig::RAM;
use super::{DEVICE, FABRIC, Fabric, GFD, HOST, pid, port};

pub(crate) const MANAGER: u16 = 0x001;
pub(crate) const SWITCHES: [u16; 2] = [0x010, 0x011];
pub(crate) const GFD_PID: u16 = 0x020;
/// PIDs of the two ends of the virtual link: the host's edge, and the second switch's fabric port.
pub(crate) const HOST_EDGE: u16 = 0x0A1;
pub(crate) const FABRIC_PORT: u16 = 0x0F1;
pub(crate) const FREE: PathCost =
    PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
/// The host's bridge above the near device.
pub(crate) const NEAR_VPPB: u8 = 1;

pub(crate) const SECOND: [CrawlTarget; 1] = [CrawlTarget::Pid(Pid::from_low_bits(SWITCHES[1]))];
pub(crate) const TO_GFD: [CrawlTarget; 1] = [CrawlTarget::Pid(Pid::from_low_bits(GFD_PID))];

pub(crate) fn claim(own: u16) -> Request<'static> {
    let (op, fm) = (ClaimOp::RegisterPrimary, pid(MANAGER));
    Request::ClaimOwnership(ClaimOwnership { op, fm, fm_uuid: [1; 16], pid: pid(own) })
}

pub(crate) fn out_of(number: usize) -> CrawlTarget {
    CrawlTarget::Port(u8::try_from(number).unwrap())
}

impl Fabric {
    pub(crate) fn route(&mut self, way: &[CrawlTarget], to: u16, out: usize) {
        let entries = [DrtEntry::Port(u8::try_from(out).unwrap())];
        let (table, start) = (0, to);
        self.ok(way, &Request::SetDrt(SetDrt { table, start, entries: List::of(&entries) }));
    }

    pub(crate) fn assign(&mut self, way: &[CrawlTarget], target: usize, bits: u16) {
        let target = u16::try_from(target).unwrap();
        let list = [PidAssignment { pid: pid(bits), target, instance: 0 }];
        let (op, assignments) = (AssignOp::Assign, List::of(&list));
        self.ok(way, &Request::AssignPids(AssignPids { op, assignments }));
    }

    /// Sends a request that runs in the background, and waits until it has succeeded.
    pub(crate) fn background(&mut self, way: &[CrawlTarget], at: usize, request: &Request<'_>) {
        let (code, _) = self.ask(way, request);
        assert_eq!(code, ReturnCode::BackgroundStarted, "{request:?}");
        let now = |fabric: &Self| fabric.net.now;
        self.until("the end of a background operation", |fabric| {
            let background = &fabric.nodes[at].agent.switch().common().background;
            (!background.is_running()).then_some(())
        });
        let background = &self.nodes[at].agent.switch().common().background;
        let code = background.status(now(self)).return_code;
        assert_eq!(ReturnCode::from_bits(code), ReturnCode::Success, "{request:?}");
    }

    pub(crate) fn partner(&self, at: usize, number: usize) -> Partner {
        self.nodes[at].agent.switch().port(port(number)).unwrap().partner
    }

    /// Claims the first switch, the second one through it, and the GFD through both.
    pub(crate) fn crawl(&mut self) {
        self.until("a link partner at all ports", |fabric| {
            let known = |at, number: usize| fabric.partner(at, number) != Partner::Unknown;
            (0..2).all(|at| (0..3).all(|number| known(at, number))).then_some(())
        });
        self.ok(&[], &claim(SWITCHES[0]));
        let (out, gfd) = (out_of(FABRIC[0]), out_of(GFD));
        self.ok(&[out], &claim(SWITCHES[1]));
        self.route(&[], SWITCHES[1], FABRIC[0]);
        self.route(&[out], MANAGER, FABRIC[1]);
        self.assign(&SECOND, GFD, GFD_PID); // the edge of the GFD lets it send only as this PID
        self.ok(&[SECOND[0], gfd], &claim(GFD_PID));
        self.route(&SECOND, GFD_PID, GFD);
        self.route(&[], GFD_PID, FABRIC[0]);
        self.assign(&[], HOST, HOST_EDGE);
        self.assign(&SECOND, FABRIC[1], FABRIC_PORT);
        for (bits, own, other) in
            [(HOST_EDGE, HOST, FABRIC[1]), (FABRIC_PORT, FABRIC[0], FABRIC[1])]
        {
            self.route(&[], bits, own);
            self.route(&SECOND, bits, other);
        }
    }

    pub(crate) fn bind_near(&mut self) {
        let number = u8::try_from(DEVICE[0]).unwrap();
        let bind = BindVppb { vcs: 0, vppb: NEAR_VPPB, port: number, ld: 0xFFFF };
        self.background(&[], 0, &Request::BindVppb(bind));
    }

    pub(crate) fn store(&mut self, offset: u64, bytes: &[u8]) {
        assert!(self.net.hosts[0].0.store(Hpa(RAM + offset), bytes));
    }

    pub(crate) fn load(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.net.hosts[0].0.memory().read(RAM + offset, &mut bytes));
        bytes
    }

    pub(crate) fn allow_gfd(&mut self, op: AccessOp) {
        let access = PidOp { pid: pid(GFD_PID), op };
        self.ok(&[], &Request::ConfigureAccess(ConfigureAccess { vcs: 0, access, cost: FREE }));
    }

    /// Waits until the host sees a device, or does not see it any more.
    pub(crate) fn wait_for(&mut self, device: u16, there: bool) {
        let what = format!("{device:04x} {}", if there { "appears" } else { "goes" });
        self.until(&what, |fabric| {
            let looks = fabric.net.hosts[0].0.is_enumerating();
            (!looks && fabric.sees(device) == there).then_some(())
        });
    }
}
