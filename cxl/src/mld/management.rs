//! Commands of an MLD by its LD `FFFFh`: about itself, and tunnelled to one logical device. [`Serving`] is the
//! component for one request: the MLD's state and its logical devices.
//!
//! Every sender by LD `FFFFh` is the fabric manager: the switch gives its prefix to no other TLP.
//!
//! Source: CXL 3.1 sections 7.6.7.3 to 7.6.7.6; docs/spec/wire-formats.md §4.3, §4.3a, §4.3b.

use weft_dataplane::time::Instant;
use weft_parsers::cci::dcd::{GetExtents, InitiateAdd, InitiateRelease};
use weft_parsers::cci::generic::Identity;
use weft_parsers::cci::gfd::GetTags;
use weft_parsers::cci::gfd_access::QosControl;
use weft_parsers::cci::host_dc::{HostRange, HostRegions, HostTags};
use weft_parsers::cci::ld::{
    Granularity, HeadInfo, HeadInfos, LdAllocations, LdFractions, LdInfo, LdPage, LdRange,
    MultiHeadedInfo, SetLdAllocations,
};
use weft_parsers::cci::mld::{
    LdConfig, LdMemRequest, LdMemResponse, TunnelRequest, TunnelResponse, TunnelTarget,
};
use weft_parsers::cci::{List, Request, Response, ReturnCode, nest};
use weft_parsers::fabric::Pid;

use super::allocations::{Allocations, MEMORY_BAR, is_on};
use super::dynamic::Dynamic;
use super::schedule::Schedule;
use crate::cci::{Command, Common, Component, Done, Outcome, Reply, Served, Session, serve, who};
use crate::cdat::Range;
use crate::cxl_device::CxlDevice;
use crate::gfd::commands::count32;
use crate::gfd::extent_lists::extent_list;
use crate::gfd::qos::Control;
use crate::pci::{ByteEnables, Link, Reg};

const WHO: u8 = who::PROXY;
/// LTSSM state L0, as in the link state of a switch: the link is up.
const L0: u8 = 4;
/// Supported speeds: 2.5 to 64 GT/s.
const SPEEDS: u8 = 0x3F;

/// Most extents or tags of an answer, so that it fits into a tunnelled message.
const LISTED_MAX: u32 = 64;
/// Valid flags of 5608h: the holders are listed; pending offers are not, as there are none.
const HOLDERS_VALID: u8 = 1;

/// `QoS` capability: backpressure average, and no temporary throughput reduction.
const EGRESS: u8 = 1;

/// Session of the manager.
const MANAGER: Session = Session::Proxy(Pid::NONE);

/// An MLD while it carries out one request.
pub(super) struct Serving<'a, L> {
    common: Common,
    memory: &'a mut Memories,
    schedule: &'a mut Schedule,
    lds: &'a mut [L],
}

/// Memory of the logical devices.
pub(super) struct Memories {
    /// Memory that 5402h allocates.
    pub allocations: Allocations,
    /// Dynamic capacity, which 5604h adds.
    pub dynamic: Dynamic,
}

impl Memories {
    /// Applies allocations and extents to the memory of all logical devices.
    pub fn apply<L: AsMut<CxlDevice>>(&self, lds: &mut [L]) {
        for (number, ld) in lds.iter_mut().enumerate() {
            if let Some(memory) = ld.as_mut().bar_mut(0, MEMORY_BAR) {
                // The ranges set below decide which part of the shared bytes this LD has.
                self.dynamic.show(memory);
                let first = [(0, self.allocations.bytes(number))];
                let set = memory.set_ranges(first.into_iter().chain(self.dynamic.ranges(number)));
                debug_assert!(set.is_ok(), "it is in no file");
            }
            let fixed = Range::plain(0, self.allocations.bytes(number));
            ld.as_mut().set_hdm_ranges(0, &[fixed, self.dynamic.range()]);
        }
    }
}

/// A logical device as a component: it can be identified only.
struct LogicalDevice(Common);

impl Component for LogicalDevice {
    fn common(&self) -> &Common {
        &self.0
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.0
    }

    fn commands(&self) -> &'static [Command] {
        &[]
    }

    fn execute(&mut self, _: Instant, _: Session, _: &Request<'_>, _: &mut Reply) -> Done {
        Err(ReturnCode::Unsupported)
    }
}

impl<'a, L: AsMut<CxlDevice>> Serving<'a, L> {
    pub fn new(
        identity: Identity,
        memory: &'a mut Memories,
        schedule: &'a mut Schedule,
        lds: &'a mut [L],
    ) -> Self {
        Self { common: Common::new(identity), memory, schedule, lds }
    }

    /// Carries out the request in `message`; `None` if it is none.
    pub fn serve(&mut self, now: Instant, message: &[u8]) -> Option<Vec<u8>> {
        let mut answer = Vec::new();
        let served = serve(self, now, MANAGER, message, &mut answer);
        (served == Served::Response).then_some(answer)
    }

    fn ld(&mut self, ld: u16) -> Result<&mut CxlDevice, ReturnCode> {
        let found = self.lds.get_mut(usize::from(ld));
        found.map(AsMut::as_mut).ok_or(ReturnCode::InvalidInput)
    }

    /// Tunnels a message to a logical device.
    fn tunnel(&mut self, now: Instant, request: &TunnelRequest<'_>, reply: &mut Reply) -> Done {
        // LD pools belong to devices with several heads, which weft does not offer.
        if request.target != TunnelTarget::PortOrLd {
            return Err(ReturnCode::InvalidInput);
        }
        self.ld(request.id.into())?;
        let (kind, message) = nest::split_type(request.message.bytes());
        if !matches!(nest::tunnels(message), Ok(0)) {
            return Err(ReturnCode::Unsupported); // an LD has no tunnel of its own
        }
        let Identity { serial, .. } = self.common.identity;
        let serial = serial.wrapping_add(u64::from(request.id) + 1);
        let identity = Identity { serial, ..self.common.identity };
        let mut component = LogicalDevice(Common::new(identity));
        let mut answer = Vec::new();
        if serve(&mut component, now, MANAGER, message, &mut answer) != Served::Response {
            return Err(ReturnCode::InvalidInput);
        }
        if let Some(kind) = kind {
            answer.insert(0, kind as u8); // with or without type byte, like the request
        }
        reply.send(&Response::Tunnel(TunnelResponse { message: List::of(&answer) }))
    }

    fn config(&mut self, request: &LdConfig, reply: &mut Reply) -> Done {
        let LdConfig { access, ld, data, .. } = *request;
        // Register numbers count doublewords: 4 KiB of configuration space.
        if access.register >= 0x400 {
            return Err(ReturnCode::InvalidInput);
        }
        let enables = ByteEnables::from_low_bits(access.first_be);
        let write = access.write.then_some((data, enables));
        let read = self.ld(ld)?.manage_config(0, Reg::new(access.register), write);
        let read = read.map_err(|_| ReturnCode::InternalError)?;
        // A write answers with data 0.
        reply.send(&Response::LdConfig(if access.write { 0 } else { read }))
    }

    /// Reads or writes memory of a logical device, from the start of its BAR on, whether or not its host has enabled
    /// it.
    fn memory(&mut self, request: &LdMemRequest<'_>, reply: &mut Reply) -> Done {
        let LdMemRequest { access, ld, len, offset, data, .. } = *request;
        if !offset.is_multiple_of(4) || !len.is_multiple_of(4) {
            return Err(ReturnCode::InvalidInput); // whole doublewords, as a TLP has them
        }
        let Some(memory) = self.ld(ld)?.bar_mut(0, MEMORY_BAR) else {
            return Err(ReturnCode::InternalError);
        };
        let refused = |_| ReturnCode::InvalidInput; // beyond its memory, or poisoned
        if !access.write {
            let mut bytes = vec![0; usize::from(len)];
            memory.read(offset, &mut bytes).map_err(refused)?;
            return reply.send(&Response::LdMem(LdMemResponse { data: List::of(&bytes) }));
        }
        let mut bytes = vec![0; data.len()];
        memory.read(offset, &mut bytes).map_err(refused)?;
        // First enables win where there is a single doubleword, as in a TLP.
        let last = (data.len() / 4).saturating_sub(1);
        for (at, (byte, new)) in bytes.iter_mut().zip(data).enumerate() {
            let enables = match at / 4 {
                0 => access.first_be,
                dw if dw == last => access.last_be,
                _ => 0xF,
            };
            if enables >> (at % 4) & 1 != 0 {
                *byte = *new;
            }
        }
        memory.write(offset, &bytes).map_err(refused)?;
        reply.send(&Response::LdMem(LdMemResponse { data: List::of(&[]) }))
    }

    fn info(&self, reply: &mut Reply) -> Done {
        let (memory, lds) =
            (self.memory.allocations.capacity(), self.memory.allocations.lds().into());
        reply.send(&Response::GetLdInfo(LdInfo { memory, lds, qos: EGRESS }))
    }

    fn list(&self, page: LdPage, reply: &mut Reply) -> Done {
        let list = self.memory.allocations.list(page.start, page.limit)?;
        reply.send(&Response::GetLdAllocations(LdAllocations {
            lds: self.memory.allocations.lds(),
            granularity: Granularity::Mib256,
            start: page.start,
            allocations: List::of(&list),
        }))
    }

    fn allocate(&mut self, set: &SetLdAllocations<'_>, reply: &mut Reply) -> Done {
        self.memory.allocations.set(set.start, set.allocations.iter(), self.lds)?;
        self.memory.apply(self.lds);
        reply.send(&Response::SetLdAllocations(*set))
    }

    const fn qos(&self) -> QosControl {
        let control = self.schedule.control();
        QosControl {
            control: control.flags,
            moderate_percent: control.moderate_percent,
            severe_percent: control.severe_percent,
            interval: control.interval,
            compare_basis: control.req_cmp_basis,
            completion_interval: control.completion_interval,
        }
    }

    fn set_qos(&mut self, set: QosControl, reply: &mut Reply) -> Done {
        let control = Control {
            flags: set.control,
            moderate_percent: set.moderate_percent,
            severe_percent: set.severe_percent,
            interval: set.interval,
            req_cmp_basis: set.compare_basis,
            completion_interval: set.completion_interval,
        };
        self.schedule.set_control(control).map_err(|_| ReturnCode::InvalidInput)?;
        reply.send(&Response::SetLdQosControl(self.qos()))
    }

    /// Returns shares or limits of the bandwidth.
    fn fractions(&self, range: LdRange, limits: bool, reply: &mut Reply) -> Done {
        let list = self.schedule.fractions(range.start, range.count, limits)?;
        let answer = LdFractions { start: range.start, fractions: List::of(&list) };
        let (limit, share) = (Response::GetLdLimit(answer), Response::GetLdBandwidth(answer));
        reply.send(if limits { &limit } else { &share })
    }

    fn set_fractions(&mut self, set: &LdFractions<'_>, limits: bool, reply: &mut Reply) -> Done {
        let list: Vec<u8> = set.fractions.iter().collect();
        self.schedule.set_fractions(set.start, &list, limits)?;
        let (limit, share) = (Response::SetLdLimit(*set), Response::SetLdBandwidth(*set));
        reply.send(if limits { &limit } else { &share })
    }

    fn regions(&self, range: HostRange, reply: &mut Reply) -> Done {
        let (available, list, totals) = self.memory.dynamic.regions(range)?;
        let (host, regions) = (range.host, List::of(&list));
        reply.send(&Response::GetHostDcRegions(HostRegions { host, available, regions, totals }))
    }

    fn extents(&self, get: GetExtents, reply: &mut Reply) -> Done {
        let page = self.memory.dynamic.extents(get, LISTED_MAX)?;
        reply.send(&Response::GetExtents(extent_list(get.owner, &page, &page.list)))
    }

    fn add(&mut self, add: &InitiateAdd<'_>) -> Done {
        self.memory.dynamic.add(add)?;
        self.memory.apply(self.lds);
        Ok(Outcome::Done)
    }

    fn release(&mut self, release: &InitiateRelease<'_>) -> Done {
        let in_use = is_on(self.ld(release.host)?);
        // Before the answer: once the manager has it, no host reaches the released memory any more.
        self.memory.dynamic.release(release, in_use)?;
        self.memory.apply(self.lds);
        Ok(Outcome::Done)
    }

    fn tags(&self, get: GetTags, reply: &mut Reply) -> Done {
        let count = get.max.min(LISTED_MAX);
        let page = self.memory.dynamic.tags(get.start, count)?;
        let (total, generation, tags) =
            (count32(page.total), page.generation, List::of(&page.list));
        reply.send(&Response::ListTags(HostTags { generation, total, valid: HOLDERS_VALID, tags }))
    }

    //= CXL 3.1 section 7.6.7.5: a device with one head says that all its LDs are at that one
    fn heads(&self, page: LdPage, reply: &mut Reply) -> Done {
        let count = self.memory.allocations.list(page.start, page.limit)?.len();
        let (lds, map) = (self.memory.allocations.lds(), vec![0; count]);
        let info = MultiHeadedInfo { lds, heads: 1, start: page.start, map: List::of(&map) };
        reply.send(&Response::GetMultiHeadedInfo(info))
    }

    fn head(page: LdPage, reply: &mut Reply) -> Done {
        if page.start > 0 {
            return Err(ReturnCode::InvalidInput);
        }
        let Link { width, speed } = Link::default();
        let (width_max, speeds, speed_max) = (width, SPEEDS, speed);
        let (port, ltssm, first_lane, link_state) = (0, L0, 0, 0);
        let head = HeadInfo {
            port,
            width_max,
            width,
            speeds,
            speed_max,
            speed,
            ltssm,
            first_lane,
            link_state,
        };
        let heads = [head];
        let count = usize::from(page.limit).min(heads.len());
        let heads = heads.get(..count).unwrap_or_default();
        reply.send(&Response::GetHeadInfo(HeadInfos { heads: List::of(heads) }))
    }

    #[rustfmt::skip] // columns: who may send it, what it does, opcode, request, what carries it out
    crate::command_table! {
        /// Commands of an MLD, besides those of every component.
        const COMMANDS;
        /// Carries out `request`; Unsupported where there is no such command.
        fn carry_out(&mut self, request, now: Instant, reply: &mut Reply) asked by u8;
        WHO get TUNNEL Tunnel(request) => self.tunnel(now, &request, reply);
        WHO set LD_CONFIG LdConfig(request) => self.config(&request, reply);
        WHO set_with_data LD_MEM LdMem(request) => self.memory(&request, reply);
        WHO get GET_LD_INFO GetLdInfo => self.info(reply);
        WHO get GET_LD_ALLOCATIONS GetLdAllocations(page) => self.list(page, reply);
        WHO set_with_data SET_LD_ALLOCATIONS SetLdAllocations(set) => self.allocate(&set, reply);
        WHO get GET_LD_QOS_CONTROL GetLdQosControl => reply.send(&Response::GetLdQosControl(self.qos()));
        WHO policy SET_LD_QOS_CONTROL SetLdQosControl(set) => self.set_qos(set, reply);
        WHO get GET_LD_QOS_STATUS GetLdQosStatus => reply.send(&Response::GetLdQosStatus(self.schedule.backpressure_percent()));
        WHO get GET_LD_BANDWIDTH GetLdBandwidth(range) => self.fractions(range, false, reply);
        WHO policy SET_LD_BANDWIDTH SetLdBandwidth(set) => self.set_fractions(&set, false, reply);
        WHO get GET_LD_LIMIT GetLdLimit(range) => self.fractions(range, true, reply);
        WHO policy SET_LD_LIMIT SetLdLimit(set) => self.set_fractions(&set, true, reply);
        WHO get GET_MULTI_HEADED_INFO GetMultiHeadedInfo(page) => self.heads(page, reply);
        WHO get GET_HEAD_INFO GetHeadInfo(page) => Self::head(page, reply);
        WHO get GET_DCD_INFO GetDcdInfo => reply.send(&Response::GetDcdInfo(self.memory.dynamic.info()));
        WHO get GET_HOST_DC_REGIONS GetHostDcRegions(range) => self.regions(range, reply);
        WHO set SET_HOST_DC_REGION SetHostDcRegion(set) => self.memory.dynamic.set_region(set).map(|()| Outcome::Done);
        WHO get GET_EXTENTS GetExtents(get) => self.extents(get, reply);
        WHO set_with_data INITIATE_ADD InitiateAdd(add) => self.add(&add);
        WHO set_with_data INITIATE_RELEASE InitiateRelease(release) => self.release(&release);
        WHO set ADD_REFERENCE AddReference(tag) => self.memory.dynamic.add_reference(tag).map(|()| Outcome::Done);
        WHO set_with_data REMOVE_REFERENCE RemoveReference(tag) => self.memory.dynamic.remove_reference(tag).map(|()| Outcome::Done);
        WHO get LIST_TAGS ListTags(get) => self.tags(get, reply);
    }
}

impl<L: AsMut<CxlDevice>> Component for Serving<'_, L> {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn commands(&self) -> &'static [Command] {
        Self::COMMANDS
    }

    fn execute(
        &mut self,
        now: Instant,
        _session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done {
        self.carry_out(request, now, reply, who::PROXY)
    }
}
