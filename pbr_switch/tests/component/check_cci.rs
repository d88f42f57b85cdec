//! The independent client `tests/py/check_cci.py` drives the switch component and the GFD over TCP loopback.
//!
//! Each connection has a thread, and the component is behind a mutex. Behind ports of the switch are another switch and
//! a device of several logical devices. A request takes 1 ms of the component's time.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; `tests/py/check_cci.py` lists its checks.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use weft_cxl::cci::{Component, Session, StreamServer, serve};
use weft_cxl::gfd::{Config, Gfd, Memory};
use weft_cxl::gfd_end::Device;
use weft_cxl::pci::Link;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::PortId;
use weft_parsers::cci::ReturnCode;
use weft_parsers::fabric::Pid;
use weft_pbr_switch::{
    FarRequest, Outgoing, Partner, PortConfig, Role, Switch, SwitchConfig, VcsConfig,
};

/// A host port, three ports of devices, two to other switches.
const ROLES: [Role; 6] = [Role::Usp, Role::Dsp, Role::Dsp, Role::Dsp, Role::Fabric, Role::Fabric];
const MLD: usize = 3;
const CRAWL: usize = 4;
const MIB: u64 = 1 << 20;

/// Components behind the connections.
trait Served: Send + 'static {
    /// Receives bytes of a connection, and returns the bytes to send.
    fn receive(&mut self, server: &mut StreamServer, bytes: &[u8]) -> Vec<u8>;

    /// Forgets the state of a connection that has ended.
    fn forget(&mut self, session: Session);
}

/// A switch, another switch behind its fabric port, and a device of two logical devices.
struct World {
    switch: Switch,
    far: Switch,
    mld: Mld,
    now: Instant,
}

/// A device of two logical devices, each with registers, by DW, and memory.
struct Mld {
    device: Device,
    registers: [[u32; 16]; 2],
    memory: [Vec<u8>; 2],
}

impl Mld {
    fn new() -> Self {
        let (registers, memory) = ([[0x0D93_1E98; 16]; 2], [vec![0; 64], vec![0; 64]]);
        Self { device: gfd(64 * MIB), registers, memory }
    }

    /// The answer to a request that the switch forwards, as the response contains it.
    fn answer(&mut self, now: Instant, to: &FarRequest) -> Option<Vec<u8>> {
        match *to {
            FarRequest::Device(_, ref message) => {
                let mut response = Vec::new();
                serve(
                    &mut self.device,
                    now,
                    Session::InBand { port: 7, pid: Pid::NONE },
                    message,
                    &mut response,
                );
                Some(response)
            }
            FarRequest::LdConfig { ld, access, data, .. } => {
                let place = self
                    .registers
                    .get_mut(usize::from(ld))?
                    .get_mut(usize::from(access.register))?;
                if access.write {
                    let lanes = (0..4).filter(|lane| access.first_be & 1 << lane != 0);
                    let mask = lanes.fold(0, |mask, lane| mask | 0xFF_u32 << (8 * lane));
                    *place = *place & !mask | data & mask;
                }
                Some(if access.write { [0; 4] } else { place.to_le_bytes() }.to_vec())
            }
            FarRequest::LdMem { ld, access, len, offset, ref data, .. } => {
                let from = usize::try_from(offset).ok()?;
                let memory = self.memory.get_mut(usize::from(ld))?;
                let place = memory.get_mut(from..from.checked_add(len.into())?)?;
                if access.write {
                    place.copy_from_slice(data);
                    return Some(vec![0; 4]);
                }
                Some([&len.to_le_bytes()[..], &[0, 0], place].concat())
            }
            _ => None,
        }
    }
}

impl World {
    fn new() -> Self {
        let mut switch = made(1);
        for number in [MLD, CRAWL] {
            switch.set_link(PortId::new(number).expect("a port"), Some(Link::default()));
        }
        switch.set_partner(PortId::new(MLD).expect("a port"), Partner::Device { lds: 2 });
        Self { switch, far: made(2), mld: Mld::new(), now: Instant::ZERO }
    }
}

impl Served for World {
    fn receive(&mut self, server: &mut StreamServer, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.now += Span::from_ms(1);
        server.receive(&mut self.switch, self.now, bytes, &mut out).expect("in step");
        self.switch.events().for_each(drop); // no host forwards commands to GFDs here
        let outgoing: Vec<Outgoing> = self.switch.outgoing().collect();
        for request in outgoing {
            let answer = match &request.to {
                FarRequest::Port(_, message) => {
                    let (session, mut response) =
                        (Session::InBand { port: 7, pid: request.spid }, Vec::new());
                    serve(&mut self.far, self.now, session, message, &mut response);
                    Some(response)
                }
                other => self.mld.answer(self.now, other),
            };
            let answer = answer.as_deref().ok_or(ReturnCode::RetryRequired);
            let answer = self.switch.common_mut().complete(request.ticket, answer);
            assert!(server.resolve(&answer.expect("somebody waits"), &mut out));
        }
        out
    }

    fn forget(&mut self, session: Session) {
        self.switch.common_mut().forget(session);
    }
}

struct Alone {
    device: Device,
    now: Instant,
}

impl Served for Alone {
    fn receive(&mut self, server: &mut StreamServer, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.now += Span::from_ms(1);
        server.receive(&mut self.device, self.now, bytes, &mut out).expect("in step");
        out
    }

    fn forget(&mut self, session: Session) {
        self.device.common_mut().forget(session);
    }
}

fn gfd(bytes: u64) -> Device {
    let config =
        Config { groups: 8, dmps: 2, regions: 2, ..Config::full(Pid::NONE, LinkRate::gbps(8)) };
    Device::new(Gfd::new(config, Memory::anonymous(bytes)), 7)
}

fn made(serial: u64) -> Switch {
    let port = |(at, role)| PortConfig { port: PortId::new(at).expect("few"), role, pids: 2 };
    let usp = PortId::new(0);
    Switch::new(SwitchConfig {
        ports: ROLES.into_iter().enumerate().map(port).collect(),
        vcses: vec![
            VcsConfig { usp, vppbs: 4, gae: true },
            VcsConfig { usp: None, vppbs: 2, gae: true },
        ],
        ..SwitchConfig::new([0x5A; 16], serial)
    })
    .expect("a switch")
}

/// Serves connections to a new port, and returns its address.
fn listen<W: Served>(world: &Arc<Mutex<W>>, session: fn(u32) -> Session) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let world = Arc::clone(world);
    let count = AtomicU32::new(0);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let session = session(count.fetch_add(1, Ordering::Relaxed));
            let world = Arc::clone(&world);
            thread::spawn(move || connection(&*world, session, stream));
        }
    });
    address
}

fn connection<W: Served>(world: &Mutex<W>, session: Session, mut stream: TcpStream) {
    let mut server = StreamServer::new(session);
    let mut bytes = [0; 8_192];
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        let out = world.receive(&mut server, bytes.get(..len).unwrap_or_default());
        drop(world);
        if stream.write_all(&out).is_err() {
            break;
        }
    }
    world.lock().unwrap_or_else(PoisonError::into_inner).forget(session);
}

/// Runs the client, which prints a line for each check.
fn check(command: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/py/check_cci.py");
    let run = Command::new("python3").arg(script).args(command).output();
    let Ok(run) = run else {
        println!("skipped: there is no python3");
        return;
    };
    let text = String::from_utf8_lossy(&run.stdout);
    println!("{text}{}", String::from_utf8_lossy(&run.stderr));
    let bad: Vec<_> = text.lines().filter(|line| !line.contains(": ok")).collect();
    assert!(run.status.success(), "{bad:#?}");
}

fn check_switch(more: &[&str], host: fn(u32) -> Session) {
    let world = Arc::new(Mutex::new(World::new()));
    let (fm, host) = (listen(&world, Session::Fm), listen(&world, host));
    check(&[&["--connect", &fm, "--host-connect", &host, "--kind", "switch"], more].concat());
}

/// A host's virtual switch; its first downstream vPPB is unbound. Each command of a switch in the specification is
/// carried out and refused at least once.
#[test]
fn the_independent_client_finds_nothing_wrong_with_a_host_edge() {
    let ports = ["--bind-port", "1", "--mld-port", "3", "--crawl-port", "4"];
    let more = ["--vppb", "1", "--mld-ld", "1", "--complete", "--reset-port", "3"];
    check_switch(&[&ports[..], &more].concat(), |_| Session::Host { vcs: 0 });
}

/// A downstream edge: vPPB 0 is its vUSP, unbound. Notifications end at the host's edge, so it has no ring for them.
#[test]
fn the_independent_client_finds_nothing_wrong_with_a_downstream_edge() {
    check_switch(&["--vcs", "1", "--crawl-port", "4", "--absent", "109,10a"], |_| Session::Host {
        vcs: 1,
    });
}

/// A GFD after power-on: each of its commands is carried out and refused at least once.
#[test]
fn the_independent_client_finds_nothing_wrong_with_a_gfd() {
    let alone = Alone { device: gfd(1_024 * MIB), now: Instant::ZERO };
    let fm = listen(&Arc::new(Mutex::new(alone)), Session::Fm);
    check(&["--connect", &fm, "--kind", "gfd", "--complete"]);
}
