//! Commands of the fabric manager, one by one: set, read back, refused.

use super::*;
use weft_dataplane::pbr::{Dispatch, Refusal};
use weft_parsers::cci::Response;
use weft_parsers::cci::component::{Cdat, ReadCdat};
use weft_parsers::cci::mld::{LdConfig, LdMemRequest, MemAccess, TunnelRequest, TunnelTarget};
use weft_parsers::cci::pbr::{
    CrawlOut, CrawlTarget, GetTables, LinkPartners, PbrSwitchIdentity, TableDescriptors, TableKind,
};
use weft_parsers::cci::switch::{
    ConfigAccess, PortList, PortStates, PortsTraffic, PpbConfig, SwitchIdentity,
};
use weft_parsers::cci::tables::{Drt, Rgt, RoutingRange, SetDrt};
use weft_parsers::cci::vcs::{GenerateAer, GetVcsInfo, VcsInfos};
use weft_parsers::fabric::{DrtEntry, RgtEntry};

#[test]
fn identify_switch_and_identify_pbr_switch_say_what_there_is() {
    let mut bench = Bench::new();
    let it: SwitchIdentity = read(&bench.ok(FM, &Request::IdentifySwitch));
    assert_eq!((it.ports, it.vcss, it.vppbs, it.active_vppbs), (6, 2, 8, 1));
    assert_eq!((it.active_ports[0], it.active_vcss[0]), (0x3F, 3));
    let it: PbrSwitchIdentity = read(&bench.ok(FM, &Request::IdentifyPbrSwitch));
    assert_eq!((it.gae_map, it.drts, it.rgts, it.modes), (1, 1, 1, 3));
}

#[test]
fn get_physical_port_state_and_link_partner_follow_the_links() {
    let mut bench = Bench::new();
    let ask = |bench: &mut Bench, number| {
        let payload = bench.ok(FM, &Request::GetPortState(PortList { ports: List::of(&[number]) }));
        let state = read::<PortStates<'_>>(&payload).ports.get(0).expect("one");
        (state.config_state, state.partner_type, state.ltssm, state.width)
    };
    assert_eq!(ask(&mut bench, 0), (4, 0, 0, 0));
    bench.up(1);
    bench.switch.set_partner(port(1), Partner::Device { lds: 4 });
    assert_eq!(ask(&mut bench, 1), (3, 5, 4, 16));
    bench.up(4);
    bench.switch.set_partner(port(4), told(3, PidAndKind::SWITCH));
    assert_eq!(ask(&mut bench, 4), (5, 6, 4, 16));
    let partners = |bench: &mut Bench| {
        let payload =
            bench.ok(FM, &Request::GetLinkPartners(PortList { ports: List::of(&[4, 1]) }));
        let all = read::<LinkPartners<'_>>(&payload).partners;
        let one = |at| all.get(at).map(|it| (it.port, it.far_port, it.far.pid.bits(), it.uuid[0]));
        (one(0), one(1), all.len())
    };
    assert_eq!(partners(&mut bench), (Some((4, 3, 0x77, 7)), Some((1, 0, 0xFFF, 0)), 2));
    bench.switch.set_link(port(4), None);
    assert_eq!(partners(&mut bench).0, Some((4, 0, 0xFFF, 0)), "gone with the link");
    for number in [6, 64, 255] {
        bench.bad(FM, &Request::GetPortState(PortList { ports: List::of(&[0, number]) }), BAD);
        bench.bad(FM, &Request::GetLinkPartners(PortList { ports: List::of(&[0, number]) }), BAD);
    }
}

/// Counts are those of the last sample, in the order of the request.
#[test]
fn get_port_traffic_tells_what_was_counted_and_when() {
    let mut bench = Bench::new();
    let ask = |bench: &mut Bench, ports: &[u8]| {
        let payload = bench.ok(FM, &Request::GetPortTraffic(PortList { ports: List::of(ports) }));
        let told = read::<PortsTraffic<'_>>(&payload);
        let all: Vec<_> = told.ports.iter().map(|it| (it.port, it.rx, it.tx)).collect();
        (told.at_ns, all)
    };
    assert_eq!(ask(&mut bench, &[4, 1]), (0, vec![(4, 0, 0), (1, 0, 0)]));
    for (us, rx, tx) in [(100_000, 1_000, 20), (250_001, u64::MAX, 1 << 40)] {
        let now = Instant::ZERO + Span::from_us(us);
        bench.switch.count_traffic(now, port(4), rx, tx);
        assert_eq!(ask(&mut bench, &[4, 1, 4]).0, us * 1_000);
        assert_eq!(ask(&mut bench, &[4, 1, 4]).1, [(4, rx, tx), (1, 0, 0), (4, rx, tx)]);
    }
    assert_eq!(ask(&mut bench, &[]), (250_001_000, vec![]));
    for number in [6, 64, 255] {
        bench.bad(FM, &Request::GetPortTraffic(PortList { ports: List::of(&[4, number]) }), BAD);
    }
}

#[test]
fn send_ppb_config_reads_and_writes_registers() {
    let mut bench = Bench::new();
    let send = |register, write, data| {
        let access = ConfigAccess { register, first_be: 0xF, write };
        Request::PpbConfig(PpbConfig { port: 1, access, data })
    };
    assert_eq!(bench.ok(FM, &send(0, false, 0)), [0x98, 0x1E, 0x47, 0x57]);
    bench.ok(FM, &send(6, true, 0x0003_0201));
    assert_eq!(bench.ok(FM, &send(6, false, 0)), [1, 2, 3, 0]);
    bench.bad(FM, &send(0x400, false, 0), BAD);
    let far = PpbConfig { port: 9, access: ConfigAccess::default(), data: 0 };
    bench.bad(FM, &Request::PpbConfig(far), BAD);
}

#[test]
fn domain_validation_is_set_once_and_read() {
    let mut bench = Bench::new();
    assert_eq!(bench.ok(FM, &Request::GetVcsSvState(0)), [0]);
    assert_eq!(bench.ok(FM, &Request::GetSv(0)), [0; 16]);
    bench.ok(HOST, &Request::SetSv([5; 16]));
    assert_eq!(bench.ok(HOST, &Request::GetSvState), [1]);
    assert_eq!(bench.ok(FM, &Request::GetVcsSvState(0)), [1]);
    assert_eq!(bench.ok(FM, &Request::GetSv(0)), [5; 16]);
    assert_eq!(bench.ok(FM, &Request::GetVcsSvState(1)), [0], "another host");
    bench.bad(HOST, &Request::SetSv([6; 16]), BAD);
    assert_eq!(bench.ok(FM, &Request::GetSvState), [0], "the switch's own");
    bench.ok(FM, &Request::SetSv([7; 16]));
    assert_eq!(bench.ok(FM, &Request::GetSvState), [1]);
    bench.bad(FM, &Request::SetSv([7; 16]), BAD);
    bench.bad(FM, &Request::GetVcsSvState(2), BAD);
    bench.bad(FM, &Request::GetSv(2), BAD);
}

/// The next host at the port does not belong to the domain of the one before.
#[test]
fn a_host_that_is_lost_takes_its_secret_with_it() {
    let mut bench = Bench::new();
    for secret in [5, 6] {
        bench.ok(HOST, &Request::SetSv([secret; 16]));
        assert_eq!(bench.ok(FM, &Request::GetSv(0)), [secret; 16]);
        bench.switch.change(|vcses, _| vcses.reset(0));
        assert_eq!(bench.ok(FM, &Request::GetVcsSvState(0)), [0]);
        assert_eq!(bench.ok(FM, &Request::GetSv(0)), [0; 16]);
    }
}

#[test]
fn get_vcs_info_lists_the_upstream_bridge_first() {
    let mut bench = Bench::new();
    let info = |start, limit, vcss: &[u8], bench: &mut Bench| {
        let request = Request::GetVcsInfo(GetVcsInfo { start, limit, vcss: List::of(vcss) });
        let payload = bench.ok(FM, &request);
        let all: Vec<_> = read::<VcsInfos<'_>>(&payload)
            .iter()
            .map(|it| {
                let vppbs: Vec<_> = it.vppbs.iter().map(|it| (it.status, it.port)).collect();
                (it.vcs, it.state, it.usp, vppbs)
            })
            .collect();
        all
    };
    let unbound = (0, 255);
    let first = (0, 1, 0, vec![(2, 0), unbound, unbound, unbound, unbound]);
    let second = (1, 1, 255, vec![unbound; 3]);
    assert_eq!(info(0, 255, &[0, 1], &mut bench), [first, second]);
    assert_eq!(info(1, 2, &[0], &mut bench), [(0, 1, 0, vec![unbound; 2])]);
    assert_eq!(info(9, 2, &[0], &mut bench), [(0, 1, 0, vec![])]);
    bench.bad(
        FM,
        &Request::GetVcsInfo(GetVcsInfo { start: 0, limit: 9, vcss: List::of(&[0, 2]) }),
        BAD,
    );
}

#[test]
fn generate_aer_sets_the_error_at_the_bridge() {
    let mut bench = Bench::new();
    let aer =
        |vcs, vppb, error| Request::GenerateAer(GenerateAer { vcs, vppb, error, tlp: [0; 32] });
    bench.ok(FM, &aer(0, 2, 1 << 18));
    let errors = bench.switch.vcs(0).expect("there").vppbs[2].bridge.errors();
    assert_eq!(errors, 1 << 18);
    for request in [aer(2, 0, 1 << 18), aer(0, 5, 1 << 18), aer(0, 2, 0), aer(0, 2, 3 << 12)] {
        bench.bad(FM, &request, BAD);
    }
}

#[test]
fn get_table_descriptors_names_one_of_each() {
    let mut bench = Bench::new();
    let kinds = |start, count, bench: &mut Bench| {
        let payload = bench.ok(FM, &Request::GetTables(GetTables { start, count }));
        let all = read::<TableDescriptors<'_>>(&payload).tables;
        assert!(all.iter().all(|it| it.ports[0] == 0x3F && it.index == 0));
        all.iter().map(|it| it.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(0, 9, &mut bench), [TableKind::Drt, TableKind::Rgt]);
    assert_eq!(kinds(1, 1, &mut bench), [TableKind::Rgt]);
    assert_eq!(kinds(2, 1, &mut bench), []);
    bench.bad(FM, &Request::GetTables(GetTables { start: 3, count: 1 }), BAD);
}

#[test]
fn set_drt_is_read_by_get_drt_and_by_the_dataplane() {
    let mut bench = Bench::new();
    let epoch = bench.switch.epoch();
    let entries = [DrtEntry::Port(5), DrtEntry::Invalid, DrtEntry::Group(3)];
    let set = |table, start, entries| {
        Request::SetDrt(SetDrt { table, start, entries: List::of(entries) })
    };
    bench.ok(FM, &set(0, 0x123, &entries));
    assert_ne!(bench.switch.epoch(), epoch);
    let range = |table, start, count| Request::GetDrt(RoutingRange { table, count, start });
    let payload = bench.ok(FM, &range(0, 0x123, 3));
    let drt: Drt<'_> = read(&payload);
    assert_eq!((drt.start, drt.rgt, drt.entries), (0x123, 0, List::of(&entries)));
    let routes = bench.switch.tables().routes();
    assert_eq!(routes.lookup(pid(0x123)), Ok(Dispatch::Port(port(5))));
    assert_eq!(routes.lookup(pid(0x124)), Err(Refusal::NoDrtEntry));
    assert_eq!(routes.lookup(pid(0x125)), Ok(Dispatch::Group(3)));
    for request in [
        set(1, 0, &entries),
        set(0, 0, &[DrtEntry::Port(4), DrtEntry::Port(6)]),
        set(0, 0, &[DrtEntry::Port(4), DrtEntry::Group(4)]),
        set(0, 0xFFE, &[DrtEntry::Port(4), DrtEntry::Port(4)]),
        set(0, 0xFFE, &entries),
        range(1, 0, 1),
        range(0, 0xFFF, 2),
        range(0, 0x1000, 1),
    ] {
        bench.bad(FM, &request, BAD);
    }
}

fn put_groups(table: u8, start: u16, entries: &[RgtEntry]) -> Request<'_> {
    Request::SetRgt(Rgt { table, start, entries: List::of(entries) })
}

#[test]
fn set_rgt_is_read_by_get_rgt() {
    let mut bench = Bench::new();
    let entry = RgtEntry { ports: [4, 5, 0, 0, 0, 0, 0, 0], highest: 1, ..RgtEntry::default() };
    let set = put_groups;
    bench.ok(FM, &set(0, 2, &[entry, entry]));
    let range = |table, start, count| Request::GetRgt(RoutingRange { table, count, start });
    let payload = bench.ok(FM, &range(0, 3, 1));
    assert_eq!(read::<Rgt<'_>>(&payload).entries, List::of(&[entry]));
    let far = RgtEntry { ports: [4, 6, 0, 0, 0, 0, 0, 0], ..entry };
    let mixed = RgtEntry { mix: 4, ..entry };
    for request in [
        set(1, 0, &[entry]),
        set(0, 3, &[mixed, mixed]),
        set(0, 0, &[mixed, far]),
        range(1, 0, 1),
        range(0, 4, 1),
    ] {
        bench.bad(FM, &request, BAD);
    }
}

fn crawl(target: CrawlTarget, message: &[u8]) -> Request<'_> {
    Request::CrawlOut(CrawlOut { target, message: List::of(message) })
}

#[test]
fn crawl_out_goes_out_and_its_answer_comes_back() {
    let mut bench = Bench::new();
    let inner = message(&Request::IdentifyPbrComponent);
    bench.bad(FM, &crawl(CrawlTarget::Port(4), &inner), ReturnCode::RetryRequired);
    bench.up(4);
    let bytes = message(&crawl(CrawlTarget::Port(4), &inner));
    let (Served::Pending(ticket), _) = bench.send(FM, &bytes) else { panic!() };
    let out: Vec<Outgoing> = bench.switch.outgoing().collect();
    let want = Outgoing { ticket, spid: pid(1), to: FarRequest::Port(port(4), inner.clone()) };
    assert_eq!(out, [want]);
    let answer = bench.switch.common_mut().complete(ticket, Ok(&[1, 2])).expect("awaited");
    assert_eq!(answer.message[12..], [2, 0, 0, 0, 1, 2]);

    let list = [DrtEntry::Port(4)];
    bench.ok(FM, &Request::SetDrt(SetDrt { table: 0, start: 0x55, entries: List::of(&list) }));
    let bytes = message(&crawl(CrawlTarget::Pid(pid(0x55)), &inner));
    let session = Session::InBand { port: 7, pid: pid(1) };
    let claim = ClaimOp::UpdatePid;
    let claim = ClaimOwnership { op: claim, fm: pid(1), fm_uuid: [1; 16], pid: pid(0x10) };
    bench.ok(session, &Request::ClaimOwnership(claim)); // the manager now speaks through this port
    let (Served::Pending(_), _) = bench.send(session, &bytes) else { panic!() };
    let out: Vec<Outgoing> = bench.switch.outgoing().collect();
    assert_eq!((out[0].spid, &out[0].to), (pid(1), &FarRequest::Pid(pid(0x55), inner.clone())));

    let twice = message(&crawl(CrawlTarget::Port(4), &inner));
    let thrice = message(&crawl(CrawlTarget::Port(4), &twice));
    bench.up(1);
    for (target, inside, code) in [
        (CrawlTarget::Port(4), &thrice[..], ReturnCode::Unsupported),
        (CrawlTarget::Port(9), &inner, BAD),
        (CrawlTarget::Port(1), &inner, BAD), // without an announcement it counts as a device
        (CrawlTarget::Port(0), &inner, BAD),
        (CrawlTarget::Pid(pid(0x56)), &inner, BAD),
        (CrawlTarget::Pid(pid(0x10)), &inner, BAD),
        (CrawlTarget::Pid(Pid::NONE), &inner, BAD),
        (CrawlTarget::Port(4), &inner[..11], BAD),
    ] {
        bench.bad(FM, &crawl(target, inside), code);
    }
    bench.switch.set_partner(port(1), told(0, PidAndKind::GFD));
    let bytes = message(&crawl(CrawlTarget::Port(1), &twice));
    assert!(matches!(bench.send(FM, &bytes).0, Served::Pending(_)), "a GFD; two layers");
}

#[test]
fn tunnels_and_ld_requests_go_to_mlds() {
    let mut bench = Bench::new();
    let inner = message(&Request::Identify);
    bench.up(1);
    bench.up(2);
    bench.switch.set_partner(port(1), Partner::Device { lds: 2 });
    let tunnel =
        |id, target| Request::Tunnel(TunnelRequest { id, target, message: List::of(&inner) });
    let access = ConfigAccess { register: 1, first_be: 0xF, write: false };
    let config = |port, ld, register| {
        let access = ConfigAccess { register, ..access };
        Request::LdConfig(LdConfig { port, access, ld, data: 3 })
    };
    let mem = |port, ld| {
        let access = MemAccess { first_be: 0xF, last_be: 0xF, write: true };
        Request::LdMem(LdMemRequest { port, access, ld, len: 4, offset: 8, data: &[1, 2, 3, 4] })
    };
    for request in [tunnel(1, TunnelTarget::PortOrLd), config(1, 1, 1), mem(1, 1)] {
        let (Served::Pending(ticket), _) = bench.send(FM, &message(&request)) else { panic!() };
        assert!(bench.switch.common_mut().complete(ticket, Ok(&[0, 0, 0, 0])).is_some());
    }
    let out: Vec<FarRequest> = bench.switch.outgoing().map(|it| it.to).collect();
    let (ld, data) = (1, vec![1, 2, 3, 4]);
    let memory = MemAccess { first_be: 0xF, last_be: 0xF, write: true };
    assert_eq!(
        out,
        [
            FarRequest::Device(port(1), inner.clone()),
            FarRequest::LdConfig { port: port(1), ld, access, data: 3 },
            FarRequest::LdMem { port: port(1), ld, access: memory, len: 4, offset: 8, data },
        ]
    );
    for request in [
        tunnel(2, TunnelTarget::PortOrLd),
        tunnel(9, TunnelTarget::PortOrLd),
        tunnel(1, TunnelTarget::LdPool),
        config(1, 2, 1),
        config(2, 0, 1),
        config(9, 0, 1),
        config(1, 0, 0x400),
        mem(1, 2),
        mem(2, 0),
    ] {
        bench.bad(FM, &request, BAD);
    }
}

#[test]
fn read_cdat_gives_parts_of_a_table_that_adds_up() {
    let mut bench = Bench::new();
    let ask =
        |target: u16, start, len| Request::ReadCdat(ReadCdat { target: pid(target), start, len });
    let payload = bench.ok(FM, &ask(0x10, 0, u64::MAX));
    let all: Cdat<'_> = read(&payload);
    let bytes = all.data.bytes();
    assert_eq!((all.total, bytes.len()), (16 + 2 * (16 + 5 * 8), bytes.len()));
    assert_eq!(bytes[..4], u32::try_from(bytes.len()).expect("short").to_le_bytes());
    assert_eq!(bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)), 0);
    assert_eq!((bytes[16], bytes[20], bytes[16 + 56]), (5, 0, 5));
    let part = bench.ok(FM, &ask(0x10, 16, 4));
    assert_eq!(read::<Cdat<'_>>(&part).data.bytes(), &bytes[16..20]);
    for request in [ask(0xFFF, 0, 16), ask(0x11, 0, 16), ask(0x10, 1 << 40, 1)] {
        bench.bad(FM, &request, BAD);
    }
    assert!(matches!(
        Response::parse(Opcode::READ_CDAT, &bench.ok(FM, &ask(0x10, all.total, 5))),
        Ok(Response::ReadCdat(Cdat { total: 128, .. }))
    ));
}
