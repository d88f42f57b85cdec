//! Agents of two switches at work: messages between them, enumeration and access by a host, loss and return of links.
//!
//! Host and device - switch - switch - device and GFD, connected by pipes. Every TLP of the agents goes over the wire.
//!
//! Source: docs/spec/cxl-fabric.md "Binding"; docs/spec/wire-formats.md §3.8, §4.1, §4.5, §4.6, §5.4; CXL 3.1 sections
//! 7.7.2.6, 7.7.2.7, 7.7.6.1.

use crate::agent_rig::manager::{
    FABRIC_PORT, FREE, GFD_PID, HOST_EDGE, MANAGER, NEAR_VPPB, SECOND, SWITCHES, TO_GFD, out_of,
};
use crate::agent_rig::{BLOCK, DEVICE, FABRIC, FAR, FM, Fabric, GFD, GFD_UUID, HOST, NEAR, UUIDS};
use crate::agent_rig::{bar, message, pid};
use crate::rig::{RAM, pattern};
use weft_cxl::cxl_device::Refusal;
use weft_cxl::cxl_host::Event;
use weft_cxl::cxl_host::mailbox::Ring;
use weft_cxl::gfd::Decoder;
use weft_cxl::pci::{ByteEnables, ErrorMessage, Node, Reg};
use weft_cxl::requester::{Failure, Operation};
use weft_dataplane::time::Span;
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership, PbrIdentity};
use weft_parsers::cci::gae::{
    AccessOp, ConfigureAccess, PrefixFlags, ProxyCommand, ProxyStarted, ProxyStatus, SetFast,
};
use weft_parsers::cci::gfd::GfdIdentity;
use weft_parsers::cci::mld::{LdConfig, TunnelRequest, TunnelTarget};
use weft_parsers::cci::notify::{HostNotification, kind, trigger};
use weft_parsers::cci::pbr::{BindOp, BindPid, Chosen, CrawlOut, CrawlTarget, PidAndKind, Vppb};
use weft_parsers::cci::switch::{ConfigAccess, SwitchIdentity};
use weft_parsers::cci::tables::{PidOp, SetDrt, SetEntries, Vector, VectorRange};
use weft_parsers::cci::vcs::{BindVppb, UnbindOption, UnbindVppb};
use weft_parsers::cci::{Category, Header, List, Opcode, Payload, Request, ReturnCode, events};
use weft_parsers::fabric::{Bdf, Dpa, DrtEntry, FastEntry, Hpa, Interleave, Pid, Target};
use weft_parsers::tlp::Status;
use weft_pbr_switch::Partner;

/// The host's bridge above the far device.
const LINK_VPPB: u8 = 2;
/// Address of the GFD's memory at the host.
const WINDOW: u64 = 1 << 40;
const SEGMENT: u64 = 64 << 30;

impl Fabric {
    /// Binds the far device to the far switch's virtual switch, and that virtual switch to the host's.
    fn bind_far(&mut self) {
        let number = u8::try_from(DEVICE[1]).unwrap();
        let bind = BindVppb { vcs: 0, vppb: 1, port: number, ld: 0xFFFF };
        self.background(&SECOND, 1, &Request::BindVppb(bind));
        let link = |vppb, far| {
            let (op, pid) = (BindOp::Bind, pid(far));
            Request::BindPid(BindPid { op, vcs: 0, vppb, pid, own: Chosen(None), cost: FREE })
        };
        self.background(&SECOND, 1, &link(0, HOST_EDGE));
        self.early += 1; // its Link Up is sent at once
        self.background(&[], 0, &link(LINK_VPPB, FABRIC_PORT));
    }

    fn unbind_link(&mut self) {
        let unbind = |vppb| {
            let (op, pid) = (BindOp::Unbind, Pid::NONE);
            Request::BindPid(BindPid { op, vcs: 0, vppb, pid, own: Chosen(None), cost: FREE })
        };
        self.background(&[], 0, &unbind(LINK_VPPB));
        self.background(&SECOND, 1, &unbind(0));
    }

    /// The host writes and reads the registers and memory of a device, and the device the host's memory.
    fn exercise(&mut self, device: usize, number: u16) {
        let at = bar(self, number, 0).0 + 0x1234;
        let data = pattern(u64::from(number), 3_000);
        let op = self.net.hosts[0].0.write(Hpa(at), &data);
        assert_eq!(self.finish(op), Ok(vec![]));
        let op = self.net.hosts[0].0.read(Hpa(at), data.len());
        assert!(self.finish(op) == Ok(data.clone()), "{number:04x}: what was written is read");
        let addr = Hpa(RAM + 0x4321);
        assert_eq!(self.dma(device, Operation::Write { addr, data: data.clone() }), Ok(vec![]));
        let read = self.dma(device, Operation::Read { addr, len: data.len() });
        assert!(read == Ok(data), "{number:04x}: the host's memory");
    }

    /// Lets the host access the GFD from [`WINDOW`] on; the GFD opens its first block to it.
    fn map_gfd(&mut self) {
        self.allow_gfd(AccessOp::EnableGmv);
        let prefix = PrefixFlags::default();
        let (base, limit) = (Hpa(WINDOW), Hpa(WINDOW + SEGMENT));
        let window = SetFast { vppb: 0, segment_size: 0, prefix, base, limit };
        self.done(&Request::SetFast(window));
        let (interleave, target) = (Interleave::NONE, Target::Direct(pid(GFD_PID)));
        let list = [Some(FastEntry { gim: false, interleave, target })];
        let entries = List::of(&list);
        self.done(&Request::SetFastSegments(SetEntries { vppb: 0, start: 0, entries }));
        let gfd = self.gfd.0.gfd_mut();
        let decoder = Decoder {
            coherent: false,
            hpa_base: Hpa(WINDOW),
            dpa_base: Dpa(0),
            dpa_len: 2 * BLOCK,
            interleave,
            way: 0,
        };
        gfd.set_decoders(pid(HOST_EDGE), 0, &[Some(decoder)]).unwrap();
        gfd.set_sat(&[(pid(HOST_EDGE), 1 | 1 << 31)]).unwrap(); // group 0, with notifications to the host
    }
}

/// A fabric that is claimed and enumerated.
fn up() -> Fabric {
    let mut fabric = Fabric::new(256, 512);
    fabric.crawl();
    fabric.enumerate();
    fabric
}

fn info(partner: Partner) -> (u8, PidAndKind, [u8; 16], [u8; 16]) {
    let Partner::Pbr(it) = partner else { panic!("{partner:?}") };
    (it.far_port, it.far, it.uuid, it.primary_uuid)
}

#[test]
fn link_partners_tell_each_other_who_they_are_and_who_owns_them() {
    let mut fabric = Fabric::new(256, 256);
    let nobody = |kind| PidAndKind { pid: Pid::NONE, kind };
    fabric.until("partners", |fabric| {
        let all = [(0, FABRIC[0]), (1, FABRIC[1]), (1, GFD), (0, DEVICE[0])];
        all.iter().all(|&(at, port)| fabric.partner(at, port) != Partner::Unknown).then_some(())
    });
    let (switch, gfd) = (PidAndKind::SWITCH, PidAndKind::GFD);
    assert_eq!(info(fabric.partner(0, FABRIC[0])), (0, nobody(switch), UUIDS[1], [0; 16]));
    assert_eq!(info(fabric.partner(1, FABRIC[1])), (2, nobody(switch), UUIDS[0], [0; 16]));
    assert_eq!(info(fabric.partner(1, GFD)), (0, nobody(gfd), GFD_UUID, [0; 16]));
    assert_eq!(fabric.partner(0, HOST), Partner::Host);
    assert_eq!(fabric.partner(0, DEVICE[0]), Partner::Device { lds: 0 }, "it says nothing");
    fabric.crawl();
    fabric.rest(Span::from_ms(20));
    let named = |bits, kind| PidAndKind { pid: pid(bits), kind };
    let want = (0, named(SWITCHES[1], switch), UUIDS[1], [1; 16]);
    assert_eq!(info(fabric.partner(0, FABRIC[0])), want);
    let want = (0, named(GFD_PID, gfd), GFD_UUID, [1; 16]);
    assert_eq!(info(fabric.partner(1, GFD)), want);
    let told = fabric.gfd.0.partner().unwrap();
    assert_eq!((told.pid, told.uuid), (Pid::NONE, UUIDS[1]));
    assert_eq!((told.primary_fm, told.secondary_fm), ([0; 16], [0; 16]), "of no use at an edge");
    fabric.wire.set_link(false);
    fabric.rest(Span::from_ms(1));
    assert_eq!(fabric.partner(0, FABRIC[0]), Partner::Unknown, "gone with the link");
    fabric.wire.set_link(true);
    fabric.rest(Span::from_ms(30));
    let want = (2, named(SWITCHES[0], switch), UUIDS[0], [1; 16]);
    assert_eq!(info(fabric.partner(1, FABRIC[1])), want);
    fabric.check();
}

#[test]
fn commands_reach_the_second_switch_and_the_gfd_by_tunnel() {
    let mut fabric = Fabric::new(256, 256);
    fabric.crawl();
    for (way, want) in [(&[][..], SWITCHES[0]), (&SECOND, SWITCHES[1]), (&TO_GFD, GFD_PID)] {
        let payload = fabric.ok(way, &Request::IdentifyPbrComponent);
        let it = PbrIdentity::parse(&payload).unwrap();
        assert_eq!((it.pid, it.primary, it.primary_uuid), (pid(want), pid(MANAGER), [1; 16]));
    }
    let payload = fabric.ok(&SECOND, &Request::IdentifySwitch);
    let it = SwitchIdentity::parse(&payload).unwrap();
    assert_eq!((it.ports, it.vcss, it.vppbs), (3, 1, 2), "the second one, not the first");
    let payload = fabric.ok(&[SECOND[0], out_of(GFD)], &Request::IdentifyGfd);
    assert_eq!(GfdIdentity::parse(&payload).unwrap().partitions, 4, "through both");
    let (code, _) = fabric.ask(&[CrawlTarget::Pid(pid(0x333))], &Request::IdentifySwitch);
    assert_eq!(code, ReturnCode::InvalidInput, "nobody is called so");
    let access = ConfigAccess { register: 0, first_be: 0xF, write: false };
    for request in [
        Request::LdConfig(LdConfig { port: 1, access, ld: 0, data: 0 }),
        Request::Tunnel(TunnelRequest {
            id: 1,
            target: TunnelTarget::PortOrLd,
            message: List::of(&message(&Request::IdentifySwitch)),
        }),
    ] {
        let (code, _) = fabric.ask(&[], &request);
        assert_eq!(code, ReturnCode::InvalidInput, "no device of several here");
    }
    let counts = fabric.nodes[0].agent.counts().0;
    assert!(counts.passed_on > 10 && counts.messages >= counts.passed_on, "{counts:?}");
    fabric.check();
}

#[test]
fn a_tunnel_into_nothing_ends_and_one_whose_asker_is_gone_is_nobodys() {
    let mut fabric = Fabric::new(256, 256);
    fabric.crawl();
    let there = message(&Request::IdentifySwitch);
    let (target, inner) = (SECOND[0], List::of(&there));
    let bytes = message(&Request::CrawlOut(CrawlOut { target, message: inner }));
    let now = fabric.net.now;
    fabric.nodes[0].agent.cci(now, FM, &bytes);
    fabric.nodes[0].agent.forget(FM);
    fabric.rest(Span::from_ms(1));
    assert_eq!(fabric.nodes[0].agent.next_answer(), None);
    let again = |own: u16| {
        let (op, fm, fm_uuid) = (ClaimOp::UpdatePid, pid(MANAGER), [1; 16]);
        Request::ClaimOwnership(ClaimOwnership { op, fm, fm_uuid, pid: pid(own) })
    };
    fabric.ok(&[], &again(SWITCHES[0]));
    fabric.ok(&SECOND, &Request::IdentifySwitch);
    fabric.wire.set_link(false);
    let answer = fabric.send(&bytes);
    let (header, _) = Header::parse(&answer).unwrap();
    assert_eq!(header.return_code, ReturnCode::RetryRequired);
    fabric.wire.set_link(true);
    fabric.rest(Span::from_ms(30));
    // The link was down, so its partner may be another one: the manager must claim it again.
    assert_eq!(fabric.ask(&SECOND, &Request::IdentifySwitch).0, ReturnCode::Unsupported);
    fabric.ok(&SECOND, &again(SWITCHES[1]));
    fabric.ok(&SECOND, &Request::IdentifySwitch);
}

/// CXL 3.1 section 7.7.6.1. The agents serve the registers of bridges and of the GAE.
#[test]
fn a_host_finds_its_virtual_switch_and_what_is_bound_and_unbound_later() {
    let mut fabric = up();
    assert!(!fabric.sees(NEAR) && !fabric.sees(FAR), "nothing is bound");
    let tree = fabric.net.hosts[0].0.tree().unwrap();
    let bridges = tree.iter().filter(|node| node.below.is_some()).count();
    assert_eq!((bridges, &tree.problems[..]), (4, &[][..]), "root, upstream, two down:\n{tree}");
    fabric.bind_near();
    fabric.wait_for(NEAR, true);
    fabric.exercise(0, NEAR);
    fabric.bind_far();
    fabric.wait_for(FAR, true);
    let tree = fabric.net.hosts[0].0.tree().unwrap();
    let bridges = tree.iter().filter(|node| node.below.is_some()).count();
    assert_eq!(bridges, 6, "one edge switch below the other:\n{tree}");
    fabric.exercise(1, FAR);
    fabric.exercise(0, NEAR);
    let published = fabric.nodes[1].published;
    fabric.unbind_link();
    fabric.wait_for(FAR, false);
    assert!(fabric.nodes[1].published > published, "commands by tunnel change tables");
    fabric.rest(Span::from_ms(1));
    let refused = fabric.net.devices[1].0.submit(0, Operation::Read { addr: Hpa(RAM), len: 4 });
    assert_eq!(refused, Err(Refusal::NotMaster(0)), "it was reset with the virtual switch");
    fabric.exercise(0, NEAR);
    let option = UnbindOption::Managed;
    let unbind = UnbindVppb { vcs: 0, vppb: NEAR_VPPB, option };
    fabric.background(&[], 0, &Request::UnbindVppb(unbind));
    fabric.wait_for(NEAR, false);
    fabric.bind_near();
    fabric.wait_for(NEAR, true);
    fabric.exercise(0, NEAR);
    let errors = |event: &&Event| matches!(event, Event::Error { .. });
    assert_eq!(fabric.events.iter().find(errors), None, "nothing went by surprise");
    fabric.check();
}

/// docs/spec/wire-formats.md §3.8: Link Up is sent ten times, 10 ms apart, unless the other end shows that it has
/// received it.
#[test]
fn link_up_ends_when_the_host_makes_use_of_the_link() {
    let mut fabric = up();
    fabric.bind_far();
    let sent =
        |fabric: &Fabric| fabric.nodes[1].agent.link_counts(Vppb { vcs: 0, vppb: 0 }).unwrap().sent;
    fabric.wait_for(FAR, true);
    let heard = sent(&fabric);
    assert!((1..10).contains(&heard), "{heard}");
    fabric.rest(Span::from_ms(200));
    assert_eq!(sent(&fabric), heard, "none since then");
}

/// CXL 3.1 section 7.7.6.1: loss of any link below a virtual link is a surprise link down at the vPPB.
#[test]
fn a_lost_link_is_a_surprise_and_one_that_comes_back_a_hot_add() {
    let mut fabric = up();
    fabric.bind_near();
    fabric.bind_far();
    fabric.wait_for(NEAR, true);
    fabric.wait_for(FAR, true);
    fabric.events.clear();
    fabric.wire.set_link(false);
    let error = fabric.event("an error message", |event| match event {
        Event::Error { message, .. } => Some(*message),
        _ => None,
    });
    assert_eq!(error, ErrorMessage::Fatal, "a surprise link down is one");
    fabric.wait_for(FAR, false);
    fabric.exercise(0, NEAR);
    let upstream = &fabric.nodes[1].agent.switch().vcs(0).unwrap().vppbs[0];
    assert_eq!(upstream.bridge.buses().secondary, 0, "reset, as by any loss of the link above");
    fabric.wire.set_link(true);
    fabric.wait_for(FAR, true);
    fabric.exercise(1, FAR);
    fabric.check();
}

/// docs/spec/wire-formats.md §3.8: a register of the bridge at the host causes Assert Reset, Deassert Reset and Link
/// Up.
#[test]
fn a_reset_by_the_host_goes_over_the_virtual_link() {
    let mut fabric = up();
    fabric.bind_far();
    fabric.wait_for(FAR, true);
    let tree = fabric.net.hosts[0].0.tree().unwrap();
    let below = |bdf| tree.iter().find(|node| node.bdf == bdf).unwrap().below.clone().unwrap();
    let holds = |node: &&Node| node.below.iter().flat_map(|below| &below.nodes).count() == 1;
    let bridges: Vec<Bdf> = tree.iter().filter(holds).map(|node| node.bdf).collect();
    let [link, far_upstream, _] = bridges[..] else { panic!("{tree}") };
    let buses = below(far_upstream).buses;
    let at_first = Bdf::new(below(link).buses.secondary, 0, 0);
    assert_eq!(at_first, far_upstream);
    let read = |fabric: &mut Fabric| {
        let (dest, reg, type1) = (far_upstream, Reg::at(0x18), true);
        let op = fabric.net.hosts[0].0.submit(Operation::ConfigRead { dest, reg, type1 });
        fabric.finish(op).map(|bytes| [bytes[0], bytes[1], bytes[2]])
    };
    let set = |fabric: &mut Fabric, on: u32| {
        let (dest, reg, type1) = (link, Reg::at(0x3C), true);
        let (value, enables) = (on << 22, ByteEnables::from_low_bits(0b0100));
        let what = Operation::ConfigWrite { dest, reg, type1, value, enables };
        let op = fabric.net.hosts[0].0.submit(what);
        assert_eq!(fabric.finish(op), Ok(vec![]));
    };
    assert_eq!(read(&mut fabric), Ok([buses.primary, buses.secondary, buses.subordinate]));
    set(&mut fabric, 1);
    fabric.rest(Span::from_us(200));
    let resets = |fabric: &Fabric| fabric.net.devices[1].0.counts().2.resets;
    assert_eq!(resets(&fabric), 1, "the device there is held in reset");
    let upstream = &fabric.nodes[1].agent.switch().vcs(0).unwrap().vppbs[0];
    assert_eq!(upstream.bridge.buses().secondary, 0, "as after power-on");
    assert!(read(&mut fabric).is_err(), "nothing passes");
    set(&mut fabric, 0);
    fabric.wait_for(FAR, false); // the link goes down and up, and the host enumerates again
    fabric.wait_for(FAR, true);
    assert_eq!(read(&mut fabric), Ok([buses.primary, buses.secondary, buses.subordinate]));
    fabric.exercise(1, FAR);
    assert_eq!(resets(&fabric), 1);
    fabric.check();
}

/// docs/spec/wire-formats.md §3.8, the count of Link Up: for a moment only the far switch has no route to the host, so
/// that only the vUSP sees the loss and resets its bridges. The host is told, and sets them up again.
#[test]
fn a_loss_that_the_hosts_edge_has_not_seen_is_told_to_the_host() {
    let mut fabric = up();
    fabric.bind_far();
    fabric.wait_for(FAR, true);
    fabric.exercise(1, FAR);
    let secondary = |fabric: &Fabric| {
        let upstream = &fabric.nodes[1].agent.switch().vcs(0).unwrap().vppbs[0];
        upstream.bridge.buses().secondary
    };
    let was = secondary(&fabric);
    assert_ne!(was, 0);
    let (table, start, entries) = (0, HOST_EDGE, List::of(&[DrtEntry::Invalid]));
    fabric.ok(&SECOND, &Request::SetDrt(SetDrt { table, start, entries }));
    fabric.rest(Span::from_ms(1));
    assert_eq!((secondary(&fabric), fabric.sees(FAR)), (0, true), "the host knows nothing of it");
    fabric.route(&SECOND, HOST_EDGE, FABRIC[1]);
    fabric.until("the bridges are set up again", |fabric| {
        let looks = fabric.net.hosts[0].0.is_enumerating();
        (!looks && secondary(fabric) == was).then_some(())
    });
    fabric.exercise(1, FAR);
    fabric.check();
}

/// PCIe 6.0 section 2.2.4: all devices agree to lose power, level by level, and the root receives one answer.
#[test]
fn a_message_for_all_goes_to_all_and_one_answer_comes_back() {
    let mut fabric = up();
    fabric.bind_near();
    fabric.bind_far();
    fabric.wait_for(NEAR, true);
    fabric.wait_for(FAR, true);
    fabric.events.clear();
    for _ in 0..2 {
        fabric.net.hosts[0].0.turn_off();
        fabric.rest(Span::from_ms(1));
        let heard: Vec<Event> = fabric.events.drain(..).collect();
        assert_eq!(heard, [Event::TurnedOff]);
    }
    assert_eq!(
        [0, 1].map(|at| fabric.nodes[at].agent.counts().0.ended),
        [4, 2],
        "answers gathered"
    );
    fabric.check();
}

/// docs/spec/wire-formats.md §4.6, 5809h and 580Ah: the command and its response are in the host's memory.
#[test]
fn a_hosts_command_for_the_gfd_goes_through_its_gae_and_back() {
    let mut fabric = up();
    let command = message(&Request::IdentifyGfd);
    fabric.store(0x1000, &command);
    let proxy = |target| {
        Request::Proxy(ProxyCommand {
            pid: pid(target),
            request: Hpa(RAM + 0x1000),
            len: u16::try_from(command.len()).unwrap(),
            response: Hpa(RAM + 0x2000),
            response_max: 0x200,
        })
    };
    let refused = fabric.command(&proxy(GFD_PID));
    assert_eq!(refused.code, ReturnCode::InvalidInput.bits(), "it may not reach it");
    fabric.allow_gfd(AccessOp::EnableGmv);
    for round in 0..3_u8 {
        fabric.store(0x2000, &[0xEE; 0x200]);
        let started = ProxyStarted::parse(&fabric.done(&proxy(GFD_PID))).unwrap();
        assert_eq!(started.seq.get(), round);
        let thread = PidOp { pid: pid(GFD_PID), op: started.seq };
        for asked in 0.. {
            assert!(asked < 100, "it does not end");
            let payload = fabric.done(&Request::GetProxyStatus(thread));
            let status = ProxyStatus::parse(&payload).unwrap();
            if !status.running {
                assert_eq!(status.free, 2);
                break;
            }
        }
        let response = fabric.load(0x2000, 0x200);
        let (header, len, rest) = Header::cut(&response).unwrap();
        assert_eq!((header.return_code, header.tag), (ReturnCode::Success, 9));
        assert_eq!(GfdIdentity::parse(&rest[..len]).unwrap().partitions, 4);
        let padded = (12 + len).next_multiple_of(4);
        assert!(response[padded..].iter().all(|&byte| byte == 0xEE), "and no more");
    }
    fabric.check();
}

/// docs/spec/wire-formats.md §5.4: the requester's ring has an entry for a request that the GFD refused.
#[test]
fn a_refusal_of_the_gfd_is_in_the_hosts_ring() {
    let mut fabric = up();
    fabric.map_gfd();
    let mut ring = Ring::new(Hpa(RAM + 0x8000));
    let set = fabric.raw_command(Ring::SET, &ring.set(true));
    assert_eq!(set.code, 0);
    let data = pattern(3, 1_000);
    let op = fabric.net.hosts[0].0.uio_write(Hpa(WINDOW + 0x101), &data, None);
    assert_eq!(fabric.finish(op), Ok(vec![]));
    let op = fabric.net.hosts[0].0.uio_read(Hpa(WINDOW + 0x101), data.len(), None);
    assert_eq!(fabric.finish(op), Ok(data), "what it may reach");
    let addr = Hpa(WINDOW + BLOCK + 0x40);
    let op = fabric.net.hosts[0].0.uio_read(addr, 64, None);
    let refused = fabric.finish(op);
    assert_eq!(refused, Err(Failure::Status(Status::UnsupportedRequest)));
    fabric.rest(Span::from_us(200));
    let answer = fabric.raw_command(Ring::GET, &[]).payload;
    let taken = ring.take(&answer, fabric.net.hosts[0].0.memory()).unwrap();
    let [entry] = taken.entries[..] else { panic!("{taken:?}") };
    let notice = HostNotification::parse(&entry).unwrap();
    assert_eq!((notice.pid, notice.rpid, notice.kind), (pid(GFD_PID), pid(HOST_EDGE), 2));
    assert_eq!((notice.hpa, notice.dpa), (addr, Dpa(BLOCK + 0x40)));
    assert_eq!(fabric.nodes[0].agent.counts().0.unexpected, 0);
    fabric.check();
}

/// The switch at which a G-FAM device is forwards its refusal to the manager, with requester, address and rule.
#[test]
fn what_a_gfd_refuses_is_notified_of() {
    let mut fabric = up();
    fabric.map_gfd();
    fabric.rest(Span::from_ms(50));
    while fabric.nodes[0].agent.next_notice().is_some() {}
    let addr = Hpa(WINDOW + BLOCK + 0x40); // beyond the block that the host was granted
    let op = fabric.net.hosts[0].0.uio_read(addr, 64, None);
    assert_eq!(fabric.finish(op), Err(Failure::Status(Status::UnsupportedRequest)));
    let message = fabric.until("the notification", |fabric| fabric.nodes[0].agent.next_notice());
    let (header, payload) = Header::parse(&message).unwrap();
    assert_eq!((header.category, header.opcode), (Category::Event, Opcode::CRAWL_OUT));
    let crawl = CrawlOut::parse(payload).unwrap();
    assert_eq!(crawl.target, SECOND[0], "the switch that the device is at tells of it");
    let notice = events::gfd_notice(crawl.message.bytes()).unwrap();
    assert_eq!((notice.pid, notice.rpid), (pid(GFD_PID), pid(HOST_EDGE)));
    assert_eq!((notice.kind, notice.trigger), (kind::ACCESS_ERROR, trigger::SAT_DENIED));
    assert_eq!((notice.hpa, notice.events), (addr, 1 << events::WARNING));
    // A requester that goes on causes one notification in each batch.
    for _ in 0..50 {
        fabric.rest(Span::from_ms(2));
        let op = fabric.net.hosts[0].0.uio_read(addr, 64, None);
        assert!(fabric.finish(op).is_err());
    }
    fabric.rest(Span::from_ms(50));
    let told = core::iter::from_fn(|| fabric.nodes[0].agent.next_notice()).count();
    assert!((5..=11).contains(&told), "{told} in 100 ms, one each 10 ms");
    assert_eq!(fabric.nodes[1].agent.counts().0.unsent, 0);
    fabric.check();
}

/// Registers are read in completions of a length that every link carries.
#[test]
fn long_reads_of_a_gae_come_in_parts() {
    let mut fabric = Fabric::new(128, 512);
    fabric.crawl();
    fabric.enumerate();
    let vector = VectorRange { start: 0, len: 1_024 };
    for bits in [0, 0x7F, 0x5A5, 0xFFE] {
        let access = PidOp { pid: pid(bits), op: AccessOp::EnableGmv };
        let cost = FREE;
        fabric.ok(&[], &Request::ConfigureAccess(ConfigureAccess { vcs: 0, access, cost }));
    }
    let payload = fabric.done(&Request::GetPidAccess(vector));
    let bytes = Vector::parse(&payload).unwrap().data.bytes();
    let set: Vec<usize> = (0..8_192).filter(|bit| bytes[bit / 8] >> (bit % 8) & 1 != 0).collect();
    assert_eq!((bytes.len(), set), (1_024, vec![0, 0x7F, 0x5A5, 0xFFE]));
    fabric.check();
}
