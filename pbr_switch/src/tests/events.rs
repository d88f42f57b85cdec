//! Changes of links and paths of a switch, and their effects on its hosts.

use super::*;
use weft_dataplane::pbr::{self, Binding};
use weft_parsers::cci::vcs::BindVppb;

use weft_cxl::pci::Uncorrectable;

//= CXL 3.1 section 7.7.6.1: loss of any link under a virtual link is a surprise link down
#[test]
fn a_lost_path_is_a_surprise_link_down_at_the_vppb() {
    let mut bench = Bench::new();
    bench.assign(0, 0, 0x20);
    assert_eq!(bench.background(&bind(0, 1, 0x99)), ReturnCode::Success);
    let (vcs, vppb, own, far) = (0, 1, pid(0x20), pid(0x99));
    assert_eq!(bench.events(), [Event::PidBinding { vcs, vppb, bound: true, own, far }]);
    let state = |bench: &Bench| {
        let bridge = &bench.switch.vcs(0).expect("there").vppbs[1].bridge;
        let binding = bench.switch.tables().vcs(0).expect("there").below()[0].binding;
        (bridge.link().is_some(), bridge.errors(), binding != Binding::Unbound)
    };
    assert_eq!(state(&bench), (true, 0, true));
    let epoch = bench.switch.epoch();
    bench.switch.change(|vcses, _| vcses.set_path(Vppb { vcs: 0, vppb: 1 }, true));
    assert_eq!(bench.switch.epoch(), epoch, "nothing new");
    bench.switch.change(|vcses, _| vcses.set_path(Vppb { vcs: 0, vppb: 1 }, false));
    assert_eq!(state(&bench), (false, Uncorrectable::SurpriseDown.bit(), false));
    bench.switch.change(|vcses, _| vcses.set_path(Vppb { vcs: 0, vppb: 1 }, true));
    assert_eq!(state(&bench), (true, Uncorrectable::SurpriseDown.bit(), true));
}

#[test]
fn a_lost_link_is_seen_by_the_vppb_that_is_bound_to_it() {
    let mut bench = Bench::new();
    bench.up(1);
    let bind = BindVppb { vcs: 0, vppb: 1, port: 1, ld: 0xFFFF };
    assert_eq!(bench.background(&Request::BindVppb(bind)), ReturnCode::Success);
    bench.switch.set_link(port(1), None);
    let bridge = &bench.switch.vcs(0).expect("there").vppbs[1].bridge;
    assert_eq!((bridge.link(), bridge.errors()), (None, Uncorrectable::SurpriseDown.bit()));
    assert!(bridge.is_present(), "it stays bound");
}

#[test]
fn a_gfd_makes_its_port_one_with_all_its_pids() {
    let mut bench = Bench::new();
    bench.up(1);
    bench.assign(1, 0, 0x30);
    bench.assign(1, 1, 0x31);
    assert_eq!(bench.switch.tables().edge(port(1)).expect("an edge").role, pbr::Role::Dsp);
    bench.switch.set_partner(port(1), told(0, PidAndKind::GFD));
    let edge = bench.switch.tables().edge(port(1)).expect("an edge");
    assert_eq!((edge.role, edge.has_pid(pid(0x31))), (pbr::Role::Gfd, true));
    assert!(bench.switch.tables().edge(port(4)).is_none(), "a fabric port");
}

#[test]
fn switches_that_cannot_be_are_refused() {
    let good = config();
    let twice =
        SwitchConfig { ports: [good.ports.clone(), good.ports.clone()].concat(), ..good.clone() };
    assert_eq!(Switch::new(twice).err(), Some(ConfigError::Port(0)));
    let usp = |number| {
        let vcs = VcsConfig { usp: Some(port(number)), vppbs: 1, gae: true };
        SwitchConfig { vcses: vec![vcs; 2], ..good.clone() }
    };
    assert_eq!(Switch::new(usp(0)).err(), Some(ConfigError::Usp { vcs: 1, port: 0 }));
    assert_eq!(Switch::new(usp(1)).err(), Some(ConfigError::Usp { vcs: 0, port: 1 }));
    let many = VcsConfig { usp: None, vppbs: 255, gae: true };
    let many = SwitchConfig { vcses: vec![many], ..good.clone() };
    assert_eq!(Switch::new(many).err(), Some(ConfigError::Count(255)));
    let sizes = Sizes { fast: 3, ..Sizes::default() };
    assert!(matches!(
        Switch::new(SwitchConfig { sizes, ..good }).err(),
        Some(ConfigError::Table(_))
    ));
}
