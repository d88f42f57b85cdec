//! The switch component on TCP loopback, driven by the independent client `tests/py/check_cci.py`.
//!
//! Shape: a thread for each connection, one switch behind a mutex, a second one at the other end of a fabric port.
//! Units: octets; a request takes 1 ms of the switch's time.
//! Source: fabric.md "FM module"; `tests/py/check_cci.py` says what it checks.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_endpoints::cci::{Component, Session, StreamServer, serve};
use weft_endpoints::component::{Far, PortConfig, Role, Switch, SwitchConfig, VcsConfig};
use weft_endpoints::pci::Link;
use weft_parsers::cci::ReturnCode;

/// A host's port, three for devices, two to other switches.
const ROLES: [Role; 6] = [Role::Usp, Role::Dsp, Role::Dsp, Role::Dsp, Role::Fabric, Role::Fabric];
const CRAWL: usize = 4;

struct World {
    switch: Switch,
    far: Switch,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let mut switch = made(1);
        let port = PortId::new(CRAWL).expect("a port");
        switch.set_link(port, Some(Link::default()));
        Self { switch, far: made(2), now: Instant::ZERO }
    }

    /// What came by a connection; what is sent back.
    fn receive(&mut self, server: &mut StreamServer, octets: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.now += Span::from_ms(1);
        server.receive(&mut self.switch, self.now, octets, &mut out).expect("in step");
        let outgoing: Vec<_> = self.switch.outgoing().collect();
        for request in outgoing {
            let mut response = Vec::new();
            let answer = match &request.to {
                Far::Port(_, message) => {
                    let session = Session::InBand(request.spid);
                    serve(&mut self.far, self.now, session, message, &mut response);
                    Ok(response.as_slice())
                }
                _ => Err(ReturnCode::RetryRequired),
            };
            let answer = self.switch.common_mut().complete(request.ticket, answer);
            assert!(server.resolve(&answer.expect("somebody waits"), &mut out));
        }
        out
    }
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

/// Serves what connects to a port of its own; its address.
fn listen(world: &Arc<Mutex<World>>, session: fn(u32) -> Session) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let world = Arc::clone(world);
    let count = AtomicU32::new(0);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let session = session(count.fetch_add(1, Ordering::Relaxed));
            let world = Arc::clone(&world);
            thread::spawn(move || connection(&world, session, stream));
        }
    });
    address
}

fn connection(world: &Mutex<World>, session: Session, mut stream: TcpStream) {
    let mut server = StreamServer::new(session);
    let mut octets = [0; 8_192];
    while let Ok(len @ 1..) = stream.read(&mut octets) {
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        let out = world.receive(&mut server, octets.get(..len).unwrap_or_default());
        drop(world);
        if stream.write_all(&out).is_err() {
            break;
        }
    }
    world.lock().unwrap_or_else(PoisonError::into_inner).switch.common_mut().forget(session);
}

fn check(more: &[&str], host: fn(u32) -> Session) {
    let world = Arc::new(Mutex::new(World::new()));
    let (fm, host) = (listen(&world, Session::Fm), listen(&world, host));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/py/check_cci.py");
    let command = ["--connect", &fm, "--host-connect", &host, "--kind", "switch"];
    let run = Command::new("python3").arg(script).args(command).args(more).output();
    let Ok(run) = run else {
        println!("skipped: there is no python3");
        return;
    };
    let text = String::from_utf8_lossy(&run.stdout);
    println!("{text}{}", String::from_utf8_lossy(&run.stderr));
    let bad: Vec<_> = text.lines().filter(|line| !line.contains(": ok")).collect();
    assert!(run.status.success(), "{bad:#?}");
}

/// A host's virtual switch: its first downstream vPPB is unbound.
#[test]
fn the_independent_client_finds_nothing_wrong_with_a_host_edge() {
    let more = ["--vppb", "1", "--bind-port", "1", "--crawl-port", "4"];
    check(&more, |_| Session::Host { vcs: 0 });
}

/// A downstream edge: vPPB 0 is its vUSP, unbound. Notifications end at the host edge, so it has no ring for them.
#[test]
fn the_independent_client_finds_nothing_wrong_with_a_downstream_edge() {
    check(&["--vcs", "1", "--crawl-port", "4", "--absent", "109,10a"], |_| Session::Host {
        vcs: 1,
    });
}
