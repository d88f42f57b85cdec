//! All commands at once: permitted senders, and payloads of the wrong length.

use super::*;
use weft_parsers::cci::gae::{
    AccessOp, ConfigureAccess, GaeRange, GetFastCaps, GetInterrupts, PrefixFlags, ProxyCommand,
    SetFast, SetPrefix, VcsGaeRange,
};
use weft_parsers::cci::generic::ClearEvents;
use weft_parsers::cci::mld::{LdConfig, LdMemRequest, MemAccess, TunnelRequest, TunnelTarget};
use weft_parsers::cci::notify::GamBuffer;
use weft_parsers::cci::pbr::{CrawlOut, CrawlTarget, GetPidTargets, GetTables, Vppb};
use weft_parsers::cci::switch::{ConfigAccess, PortControl, PortList, PortOp, PpbConfig};
use weft_parsers::cci::tables::{
    ConfigureLdstAccess, EdgeRange, LdstAccess, PidOp, Rgt, RoutingRange, SetDrt, SetEdge, SetLdst,
    VcsVectorRange, VectorRange,
};
use weft_parsers::cci::vcs::{BindVppb, GenerateAer, GetVcsInfo, UnbindOption, UnbindVppb};
use weft_parsers::cci::{Bits, component::ReadCdat};
use weft_parsers::fabric::{Bdf, DrtEntry, Hpa, ReRouterEntry, RgtEntry};

const RANGE: EdgeRange = EdgeRange { vppb: 1, count: 1, start: 0 };
const VECTOR: VectorRange = VectorRange { start: 0, len: 8 };

/// A well-formed request of each command that only switches have.
#[expect(clippy::too_many_lines, reason = "a list")]
pub(super) fn samples(then: &mut dyn FnMut(&Request<'_>)) {
    let inner = message(&Request::Identify);
    let (at, access) = (Vppb { vcs: 0, vppb: 1 }, ConfigAccess::default());
    let routing = RoutingRange { table: 0, count: 1, start: 0 };
    let named = PidOp { pid: pid(0x123), op: Bits::from_low_bits(0) };
    let route = [ReRouterEntry { dpid: pid(0x123), segment: None, requester: Bdf::from_bits(1) }];
    let assignment = [PidAssignment { pid: pid(0x20), target: 0, instance: 0 }];
    let group = [RgtEntry::default()];
    let proxy = ProxyCommand {
        pid: pid(0x123),
        request: Hpa(0x1000),
        len: 64,
        response: Hpa(0x2000),
        response_max: 64,
    };
    let all = [
        Request::GetEvents(1),
        Request::ClearEvents(ClearEvents { log: 1, all: false, handles: List::of(&[]) }),
        Request::GetMctpEvents,
        Request::SetMctpEvents(2),
        Request::GetGamBuffer,
        Request::SetGamBuffer(GamBuffer {
            valid: true,
            address: Hpa(0x1000),
            ..Default::default()
        }),
        Request::ReadCdat(ReadCdat { target: pid(0x10), start: 0, len: 16 }),
        Request::IdentifySwitch,
        Request::GetPortState(PortList { ports: List::of(&[0, 1]) }),
        Request::PortControl(PortControl { port: 1, op: PortOp::AssertPerst }),
        Request::PpbConfig(PpbConfig { port: 1, access, data: 0 }),
        Request::GetSvState,
        Request::SetSv([5; 16]),
        Request::GetVcsSvState(0),
        Request::GetSv(0),
        Request::GetVcsInfo(GetVcsInfo { start: 0, limit: 255, vcss: List::of(&[0, 1]) }),
        Request::BindVppb(BindVppb { vcs: 0, vppb: 1, port: 1, ld: 0xFFFF }),
        Request::UnbindVppb(UnbindVppb { vcs: 0, vppb: 1, option: UnbindOption::Managed }),
        Request::GenerateAer(GenerateAer { vcs: 0, vppb: 1, error: 1 << 12, tlp: [0; 32] }),
        Request::Tunnel(TunnelRequest {
            id: 1,
            target: TunnelTarget::PortOrLd,
            message: List::of(&inner),
        }),
        Request::LdConfig(LdConfig { port: 1, access, ld: 0, data: 0 }),
        Request::LdMem(LdMemRequest {
            port: 1,
            access: MemAccess::default(),
            ld: 0,
            len: 4,
            offset: 0,
            data: &[],
        }),
        Request::IdentifyPbrSwitch,
        Request::CrawlOut(CrawlOut { target: CrawlTarget::Port(4), message: List::of(&inner) }),
        Request::GetLinkPartners(PortList { ports: List::of(&[4]) }),
        Request::GetPidTargets(GetPidTargets { start: 0, count: 100 }),
        Request::AssignPids(AssignPids {
            op: AssignOp::Assign,
            assignments: List::of(&assignment),
        }),
        Request::GetPidBinding(at),
        bind(0, 1, 0x99),
        Request::GetTables(GetTables { start: 0, count: 2 }),
        Request::GetDrt(routing),
        Request::SetDrt(SetDrt { table: 0, start: 5, entries: List::of(&[DrtEntry::Port(4)]) }),
        Request::GetRgt(routing),
        Request::SetRgt(Rgt { table: 0, start: 1, entries: List::of(&group) }),
        Request::GetLdstCaps(1),
        Request::SetLdst(SetLdst { vppb: 1, segment_size: 0, base: Hpa(0), limit: Hpa(0) }),
        Request::GetLdstSegments(RANGE),
        Request::SetLdstSegments(SetEdge { vppb: 1, start: 0, entries: List::of(&[None]) }),
        Request::GetLdstIdt(RANGE),
        Request::SetLdstIdt(SetEdge { vppb: 1, start: 0, entries: List::of(&[Pid::NONE]) }),
        Request::GetReRouter(RANGE),
        Request::SetReRouter(SetEdge { vppb: 1, start: 0, entries: List::of(&route) }),
        Request::GetLav(VECTOR),
        Request::GetVcsLav(VcsVectorRange { vcs: 0, range: VECTOR }),
        Request::ConfigureLdstAccess(ConfigureLdstAccess {
            vcs: 0,
            access: PidOp { pid: pid(0x123), op: LdstAccess::Enable },
        }),
        Request::IdentifyGae(GaeRange { start: 0, count: 9 }),
        Request::GetPidInterrupts(GetInterrupts { range: VECTOR, clear: true }),
        Request::GetPidAccess(VECTOR),
        Request::GetFastCaps(GetFastCaps { vppb: 0 }),
        Request::SetFast(SetFast {
            vppb: 0,
            segment_size: 0,
            prefix: PrefixFlags::default(),
            base: Hpa(0),
            limit: Hpa(0),
        }),
        Request::GetFastSegments(RANGE),
        Request::SetFastSegments(SetEdge { vppb: 0, start: 0, entries: List::of(&[None]) }),
        Request::GetIdt(RANGE),
        Request::SetIdt(SetEdge { vppb: 0, start: 0, entries: List::of(&[Pid::NONE]) }),
        Request::Proxy(proxy),
        Request::GetProxyStatus(named),
        Request::CancelProxy(named),
        Request::IdentifyVcsGae(VcsGaeRange { vcs: 0, range: GaeRange { start: 0, count: 9 } }),
        Request::GetVcsAccess(VcsVectorRange { vcs: 0, range: VECTOR }),
        Request::ConfigureAccess(ConfigureAccess {
            vcs: 0,
            access: PidOp { pid: pid(0x123), op: AccessOp::EnableGmv },
            cost: FREE,
        }),
        Request::GetPrefix(0),
        Request::SetPrefix(SetPrefix { vcs: 0, prefix: PrefixFlags { out: true, into: true } }),
        Request::GetPortTraffic(PortList { ports: List::of(&[0, 1]) }),
    ];
    all.iter().for_each(then);
}

#[test]
fn the_samples_are_all_commands() {
    let mut seen = Vec::new();
    samples(&mut |request| seen.push(request.opcode()));
    let bench = Bench::fresh();
    let listed: Vec<Opcode> = bench.switch.commands().iter().map(|it| it.opcode).collect();
    assert!(seen.is_sorted() && seen == listed, "{seen:?}");
}

/// Strangers may use no command, an FM no command of hosts, and a host no command of FMs.
#[test]
fn each_command_is_refused_to_who_may_not_use_it() {
    samples(&mut |request| {
        let mut fresh = Bench::fresh();
        fresh.bad(FM, request, ReturnCode::Unsupported);
        let mut bench = Bench::new();
        let entry = bench.switch.commands().iter().find(|it| it.opcode == request.opcode());
        let who = entry.expect("listed").who;
        let strangers = [
            Session::Fm(2),
            Session::InBand { port: 7, pid: pid(2) },
            Session::InBand { port: 7, pid: Pid::NONE },
            Session::Proxy(pid(1)),
        ];
        for session in strangers {
            bench.bad(session, request, ReturnCode::Unsupported);
        }
        if who & weft_cxl::cci::who::HOST == 0 {
            bench.bad(HOST, request, ReturnCode::Unsupported);
        }
        if who & weft_cxl::cci::who::PRIMARY == 0 {
            bench.bad(FM, request, ReturnCode::Unsupported);
            bench.bad(Session::InBand { port: 7, pid: pid(1) }, request, ReturnCode::Unsupported);
        }
    });
}

#[test]
fn each_command_has_its_length() {
    samples(&mut |request| {
        let mut bench = Bench::new();
        let entry = bench.switch.commands().iter().find(|it| it.opcode == request.opcode());
        let host = entry.expect("listed").who & weft_cxl::cci::who::PRIMARY == 0;
        let session = if host { HOST } else { FM };
        let before = bench.switch.clone();
        let good = message(request);
        let header = weft_parsers::cci::header::LEN;
        for len in (header..good.len()).chain([good.len() + 1]) {
            let mut bytes = good.clone();
            bytes.resize(len, 0);
            let payload = u32::try_from(len - header).expect("short");
            bytes[5..8].copy_from_slice(&payload.to_le_bytes()[..3]);
            let (served, out) = bench.send(session, &bytes);
            assert_eq!(served, Served::Response);
            let (answer, payload) = Header::parse(&out).expect("a whole message");
            let got = (answer.return_code, payload.len());
            assert_eq!(got, (ReturnCode::InvalidPayloadLength, 0), "{request:?} of {len}");
        }
        assert!(bench.switch == before, "{request:?}");
    });
}
