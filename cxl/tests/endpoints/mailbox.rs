//! Commands of a host for a mailbox behind an HBR switch, and the ring of notifications in its memory.
//!
//! The device's owner answers what comes; its answers are the commands turned around.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 8.2.8.4; docs/spec/wire-formats.md §4.6, §5.4.

use crate::rig::{Net, Place, RAM, device_config, function, host_config, pattern};
use weft_cxl::cxl_device::{Event as DeviceEvent, MailboxPlace};
use weft_cxl::cxl_host::Event;
use weft_cxl::cxl_host::mailbox::{MailboxFailure, Response, Ring, blocks};
use weft_cxl::gfd::gam::Gam;
use weft_cxl::pci::cxl::BlockId;
use weft_cxl::pci::mailbox::{BlockKind, Mailbox};
use weft_cxl::pci::{Function, RegisterBlock};
use weft_cxl::requester::Operation;
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::Mode;

const OFFSET: u64 = 1 << 16;

fn net(mode: Mode) -> Net {
    let mut net = Net::new();
    let host = net.host(host_config(mode));
    let switch = net.switch(&[mode; 2], true);
    net.join(host, Place::Switch(switch, 0));
    let mut gae = function(0x06AE);
    gae.spec.blocks = vec![RegisterBlock { bar: 0, id: BlockId::Device as u8, offset: OFFSET }];
    let mailbox = Mailbox::new(BlockKind::Switch, 9).unwrap();
    gae.mailbox = Some(MailboxPlace { bar: 0, offset: OFFSET, mailbox });
    assert!(Function::new(&gae.spec).is_ok());
    let device = net.device(device_config(mode, vec![gae]));
    net.join(device, Place::Switch(switch, 1));
    net.enumerate(0);
    net
}

/// Gives a command; the device's owner answers it with `answer` after a while.
fn command(
    net: &mut Net,
    opcode: u16,
    input: &[u8],
    answer: impl Fn(u16, &[u8]) -> (u16, Vec<u8>),
) -> Result<Response, MailboxFailure> {
    let [(_, block)] = blocks(net.hosts[0].0.tree().unwrap())[..] else { panic!("one mailbox") };
    let number = net.hosts[0].0.command(block, opcode, input);
    for _ in 0..20_000 {
        net.step();
        while let Some(event) = net.devices[0].0.next_event() {
            if let DeviceEvent::Command { function, command } = event {
                net.steps(100);
                let (code, output) = answer(command.opcode, &command.payload);
                net.devices[0].0.complete(function, code, 0x77, &output).unwrap();
            }
        }
        while let Some(event) = net.hosts[0].0.next_event() {
            match event {
                Event::Response { number: other, result } if other == number => return result,
                _ => {}
            }
        }
    }
    panic!("no answer");
}

#[test]
fn commands_go_through_the_mailbox_and_back() {
    for mode in [Mode::NonFlit, Mode::Flit] {
        let mut net = net(mode);
        let echo = |opcode: u16, input: &[u8]| {
            (opcode >> 8, input.iter().rev().copied().collect::<Vec<_>>())
        };
        for len in [0, 1, 3, 4, 255, 512] {
            let input = pattern(len, usize::try_from(len).unwrap());
            let got = command(&mut net, 0x5804, &input, echo);
            let payload = input.iter().rev().copied().collect();
            let want = Response { code: 0x58, vendor: 0x77, payload };
            assert_eq!(got, Ok(want), "{mode:?} {len}");
        }
        let long = command(&mut net, 0x5804, &[0; 513], echo);
        assert_eq!(long, Err(MailboxFailure::Length { len: 513, max: 512 }));
    }
}

/// docs/spec/wire-formats.md §5.4: 256 entries of 32 bytes, head by the GAE, tail by the host; overflow is told.
#[test]
fn the_ring_of_notifications_is_read_in_order() {
    let mut net = net(Mode::Flit);
    let mut ring = Ring::new(Hpa(RAM + 0x2000));
    let mut gam = Gam::host();
    gam.set(u64::from_le_bytes(ring.set(true))).unwrap();
    let mut next = 0_u64;
    for (posts, read, lost) in [(10, 10, false), (200, 200, false), (300, 255, true), (3, 3, false)]
    {
        for n in 0..posts {
            let mut entry = [0; 32];
            entry[..8].copy_from_slice(&(next + n).to_le_bytes());
            if let Some(post) = gam.post(entry) {
                let write = Operation::Write { addr: post.hpa, data: post.payload.to_vec() };
                net.devices[0].0.submit(0, write).unwrap();
            }
        }
        net.steps(80);
        let head = gam.get();
        let got = command(&mut net, Ring::GET, &[], |_, _| (0, head.to_le_bytes().to_vec()));
        let taken = ring.take(&got.unwrap().payload, net.hosts[0].0.memory()).unwrap();
        assert_eq!((taken.entries.len(), taken.overflow), (read, lost));
        for (n, entry) in (next..).zip(&taken.entries) {
            assert_eq!(entry[..8], n.to_le_bytes());
        }
        next += posts;
        gam.set(u64::from_le_bytes(ring.set(taken.overflow))).unwrap();
    }
    let other = Gam::host().get().to_le_bytes();
    assert_eq!(ring.take(&other, net.hosts[0].0.memory()), None, "no ring is set up");
}
