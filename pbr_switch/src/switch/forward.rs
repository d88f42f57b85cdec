//! Requests passed on to components further out (5300h to 5302h, 5701h), and Read CDAT (0702h).
//!
//! A request passed on becomes an [`Outgoing`] with a ticket, under which its answer completes later.
//!
//! Source: docs/spec/wire-formats.md §4.1, §4.3, §4.4, §4.5; CXL 3.1 section 7.7.12.2.

use weft_cxl::cci::reply::PAYLOAD_MAX;
use weft_cxl::cci::{Done, Outcome, Reply, Session, Ticket};
use weft_dataplane::pbr::Dispatch;
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_parsers::cci::component::{Cdat, ReadCdat};
use weft_parsers::cci::mld::{LdConfig, LdMemRequest, MemAccess, TunnelRequest, TunnelTarget};
use weft_parsers::cci::pbr::{CrawlOut, CrawlTarget, Vppb};
use weft_parsers::cci::switch::ConfigAccess;
use weft_parsers::cci::{List, Response, ReturnCode, nest};
use weft_parsers::fabric::Pid;

use super::Switch;
use crate::cci::NONE_SUCH;
use crate::cdat;
use crate::port::Port;

/// The receiver and content of a request to a component further out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarRequest {
    /// A CCI message to the PBR component at the other end of a port, which has no PID yet (DPID `FFF`).
    Port(PortId, Vec<u8>),
    /// A CCI message to a component with a PID.
    Pid(Pid, Vec<u8>),
    /// A CCI message to LD `FFFFh` of an MLD, or to the device itself, behind a port.
    Device(PortId, Vec<u8>),
    /// An access to configuration space of a logical device; the answer is the 4 bytes read, zero for a write.
    LdConfig {
        port: PortId,
        ld: u16,
        /// Register, direction and byte enables.
        access: ConfigAccess,
        /// Data to write; unused for a read.
        data: u32,
    },
    /// An access to memory of a logical device; the answer is a response of 5302h.
    LdMem {
        port: PortId,
        ld: u16,
        /// Direction of the access.
        access: MemAccess,
        /// Length in bytes.
        len: u16,
        /// First byte within the memory of the logical device.
        offset: u64,
        /// Data to write; empty for a read.
        data: Vec<u8>,
    },
}

/// A request to a component further out; the answer goes to `Common::complete` under the ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Ticket under which the answer completes.
    pub ticket: Ticket,
    /// PID of the requester: the fabric manager.
    pub spid: Pid,
    pub to: FarRequest,
}

/// Bytes in front of the data of a Read CDAT response.
const CDAT_HEAD: usize = 16;

//= docs/spec/wire-formats.md §4.5: more than 2 tunnel layers is Unsupported
/// Checks that a message may be put into one more tunnel.
fn fits_in_tunnel(message: &[u8]) -> Result<(), ReturnCode> {
    match nest::tunnels(message) {
        Ok(layers) if layers < nest::TUNNELS_MAX => Ok(()),
        Ok(_) => Err(ReturnCode::Unsupported),
        Err(_) => Err(ReturnCode::InvalidInput),
    }
}

impl Switch {
    /// Queues a request to a component further out.
    fn send_out(&mut self, now: Instant, session: Session, to: FarRequest) -> Done {
        let ticket = self.common.ticket(now)?;
        let fm = self.common.ownership.primary().map_or(Pid::NONE, |fm| fm.pid);
        let spid = if let Session::InBand { pid, .. } = session { pid } else { fm };
        self.outgoing.push_back(Outgoing { ticket, spid, to });
        Ok(Outcome::Pending(ticket))
    }

    pub(super) fn crawl_out(
        &mut self,
        now: Instant,
        session: Session,
        request: &CrawlOut<'_>,
    ) -> Done {
        let message = request.message.bytes();
        fits_in_tunnel(message)?;
        let message = message.to_vec();
        let to = match request.target {
            CrawlTarget::Port(number) => {
                let port = self.ports.named(number)?;
                // Only such a partner answers CCI addressed to DPID FFFh.
                if !port.is_pbr() {
                    return Err(ReturnCode::InvalidInput);
                }
                FarRequest::Port(with_link(port)?.id, message)
            }
            CrawlTarget::Pid(pid) => match self.routing.tables().routes().lookup(pid) {
                Ok(Dispatch::Here) | Err(_) => return Err(ReturnCode::InvalidInput),
                // As at a port without link: the request would be lost, and there may be another route the next time.
                Ok(_) if self.static_port(pid).is_none() => return Err(ReturnCode::RetryRequired),
                Ok(_) => FarRequest::Pid(pid, message),
            },
        };
        self.send_out(now, session, to)
    }

    pub(super) fn tunnel(
        &mut self,
        now: Instant,
        session: Session,
        request: &TunnelRequest<'_>,
    ) -> Done {
        let message = request.message.bytes();
        fits_in_tunnel(nest::split_type(message).1)?;
        let port = self.ports.named(request.id)?;
        // The LD-pool CCI belongs to a multi-headed device, not to a port of a switch.
        if port.lds() == 0 || request.target != TunnelTarget::PortOrLd {
            return Err(ReturnCode::InvalidInput);
        }
        let to = FarRequest::Device(with_link(port)?.id, message.to_vec());
        self.send_out(now, session, to)
    }

    /// The port of an MLD that has a logical device with that LD-ID.
    fn ld_port(&self, number: u8, ld: u16) -> Result<&Port, ReturnCode> {
        let port = self.ports.named(number)?;
        if ld >= port.lds().into() {
            return Err(NONE_SUCH);
        }
        with_link(port)
    }

    pub(super) fn ld_config(&mut self, now: Instant, session: Session, request: &LdConfig) -> Done {
        let LdConfig { port, access, ld, data } = *request;
        let port = self.ld_port(port, ld)?.id;
        // Registers count double words: 400h is the end of the 4 KiB configuration space.
        if access.register >= 0x400 {
            return Err(ReturnCode::InvalidInput);
        }
        self.send_out(now, session, FarRequest::LdConfig { port, ld, access, data })
    }

    pub(super) fn ld_mem(
        &mut self,
        now: Instant,
        session: Session,
        request: &LdMemRequest<'_>,
    ) -> Done {
        let LdMemRequest { port, access, ld, len, offset, data } = *request;
        let port = self.ld_port(port, ld)?.id;
        let data = data.to_vec();
        self.send_out(now, session, FarRequest::LdMem { port, ld, access, len, offset, data })
    }

    //= CXL 3.1 section 7.7.12.4
    /// Read CDAT (0702h). A manager reads the switch's own CDAT by the switch's PID. A host, through its GAE, reads the
    /// CDAT of a component in its GMV or VTV, with the cost of the fabric included, or with target `FFF` that of the
    /// GAE's virtual switch.
    pub(super) fn read_cdat(
        &mut self,
        vcs: Option<u8>,
        request: &ReadCdat,
        reply: &mut Reply,
    ) -> Done {
        let pid = request.target;
        let cdat = match vcs {
            // Before it is claimed the switch has no PID (FFFh), and FFFh must not name it.
            None if !pid.is_none() && pid == self.common.ownership.pid() => {
                cdat::of_switch(self.ports.all())
            }
            None => return Err(NONE_SUCH),
            Some(vcs) if pid.is_none() => {
                let upstream = self.vcses.vppb(Vppb { vcs, vppb: 0 })?;
                upstream.bridge.cdat().ok_or(NONE_SUCH)?.bytes()
            }
            Some(vcs) => {
                let fast = self.vcses.vppb(Vppb { vcs, vppb: 0 })?.tables.fast();
                let state = self.vcses.named(vcs)?;
                // Invalid Input as for an unknown PID: a host learns nothing of components that it may not reach.
                if !state.access.gmv.contains(pid) && !state.access.vtv.contains(pid) {
                    return Err(NONE_SUCH);
                }
                let cost = state.costs.get(&pid).copied().ok_or(NONE_SUCH)?;
                cdat::of_target(fast.segments(), pid, cost)
            }
        };
        send_cdat(&cdat, request, reply)
    }
}

/// The port, if its link is up; otherwise Retry Required, as it may be up the next time.
fn with_link(port: &Port) -> Result<&Port, ReturnCode> {
    if port.link.is_some() { Ok(port) } else { Err(ReturnCode::RetryRequired) }
}

/// Sends the requested part of a CDAT; the response ends early if the CDAT or the payload does.
fn send_cdat(cdat: &[u8], request: &ReadCdat, reply: &mut Reply) -> Done {
    let from = usize::try_from(request.start).map_err(|_| ReturnCode::InvalidInput)?;
    let rest = cdat.get(from..).ok_or(ReturnCode::InvalidInput)?;
    let len = usize::try_from(request.len).unwrap_or(usize::MAX);
    let data = rest.get(..len.min(rest.len()).min(PAYLOAD_MAX - CDAT_HEAD)).unwrap_or_default();
    let total = cdat.len() as u64;
    reply.send(&Response::ReadCdat(Cdat { total, data: List::of(data) }))
}
