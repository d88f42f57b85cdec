//! Real components in one process: switches joined by links, GFDs behind them, reached by CCI.
//!
//! [`World`] takes messages of a session at a switch and follows tunnels; [`listen`] serves one session by a socket.
//!
//! Units: bytes; a message takes 100 us of the components' time.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.5 (Fabric Crawl Out).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use weft_cxl::cci::{Component, Served, Session, serve};
use weft_cxl::gfd::dmp::{Dmp, Media, Region};
use weft_cxl::gfd::{Config, Gfd, Memory};
use weft_cxl::gfd_end::Device;
use weft_cxl::pci::Link;
use weft_dataplane::pbr::Dispatch;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::PortId;
use weft_parsers::cci::mctp::{self, Decoded};
use weft_parsers::cci::pbr::{LinkPartner, PidAndKind};
use weft_parsers::cci::{ReturnCode, Uuid};
use weft_parsers::fabric::{Dpa, Pid};
use weft_pbr_switch::{FarRequest, Partner, PortConfig, Role, Switch, SwitchConfig, VcsConfig};

/// Bytes of each GFD, and of its blocks.
pub const CAPACITY: u64 = 1 << 30;
pub const BLOCK: u64 = 256 << 20;
/// Port of the host at a switch that has one, and of its first GFD.
pub const HOST: u8 = 0;
const GFD: u8 = 40;

/// Who is at the other end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Switch(usize, u8),
    Gfd(usize),
}

pub struct World {
    pub switches: Vec<Switch>,
    pub gfds: Vec<Device>,
    far: BTreeMap<(usize, u8), End>,
    now: Instant,
}

fn uuid(kind: u8, number: usize) -> Uuid {
    let mut uuid = [kind; 16];
    uuid[8..].copy_from_slice(&(number as u64).to_be_bytes());
    uuid
}

fn port(number: u8) -> PortId {
    PortId::new(number.into()).unwrap()
}

fn gfd(number: usize) -> Device {
    let config = Config::full(Pid::NONE, LinkRate::gbps(100));
    let mut gfd = Gfd::new(config, Memory::anonymous(CAPACITY));
    let (base, block, media) = (Dpa(0), BLOCK, Media::default());
    let (decode_len, len) = (CAPACITY, CAPACITY);
    gfd.set_dmps(&[Dmp { index: 0, base, decode_len, len, block, media }]).unwrap();
    gfd.set_region(Region { id: 0, block, sanitize: true, base, decode_len, len }).unwrap();
    Device::new(gfd, number as u64 + 100)
}

impl World {
    /// Switches in a ring (or a line of one or two), a host at each of the first `hosts`, and a GFD at each of `gfds`.
    pub fn ring(count: usize, hosts: usize, gfds: &[usize]) -> Self {
        let mut far = BTreeMap::new();
        let links = if count > 2 { count } else { count - 1 };
        for at in 0..links {
            let (a, b) = ((at, 10), ((at + 1) % count, 11));
            far.insert(a, End::Switch(b.0, b.1));
            far.insert(b, End::Switch(a.0, a.1));
        }
        for (number, &at) in gfds.iter().enumerate() {
            far.insert((at, GFD + u8::try_from(number).unwrap()), End::Gfd(number));
        }
        let switches = (0..count).map(|at| switch(at, at < hosts, &far)).collect();
        let gfds = (0..gfds.len()).map(gfd).collect();
        let mut world = Self { switches, gfds, far, now: Instant::ZERO };
        world.tell();
        world
    }

    /// Link partners tell each other who they are, as partner information does after every change.
    fn tell(&mut self) {
        for (&(at, number), &end) in &self.far {
            let (far_port, kind, uuid, ownership) = match end {
                End::Switch(far, far_port) => {
                    let common = self.switches[far].common();
                    (far_port, PidAndKind::SWITCH, uuid(0x5A, far), &common.ownership)
                }
                End::Gfd(far) => {
                    (0, PidAndKind::GFD, uuid(0x6F, far), &self.gfds[far].common().ownership)
                }
            };
            let owners = ownership.owners();
            let partner = LinkPartner {
                port: number,
                far_port,
                far: PidAndKind { pid: ownership.pid(), kind },
                uuid,
                standard_vcs: 1,
                uio_vcs: 8,
                primary_uuid: owners.primary_uuid,
                secondary_uuid: owners.secondary_uuid,
            };
            self.switches[at].set_partner(port(number), Partner::Pbr(partner));
        }
    }

    /// A message of `session` to switch `at`; tunnels are followed to their ends.
    pub fn message(&mut self, at: usize, session: Session, message: &[u8]) -> Option<Vec<u8>> {
        self.now += Span::from_us(100); // bindings take time
        let mut out = Vec::new();
        let served = serve(&mut self.switches[at], self.now, session, message, &mut out);
        self.tell();
        let ticket = match served {
            Served::Response => return Some(out),
            Served::Ignored => return None,
            Served::Pending(ticket) => ticket,
        };
        let outgoing: Vec<_> = self.switches[at].outgoing().collect();
        let ours = outgoing.into_iter().find(|outgoing| outgoing.ticket == ticket)?;
        let (to, inner) = match ours.to {
            FarRequest::Port(port, inner) => (self.far.get(&(at, port.get())).copied(), inner),
            FarRequest::Pid(pid, inner) => (self.follow(at, pid), inner),
            _ => (None, Vec::new()),
        };
        let from = Session::InBand { port: 7, pid: ours.spid };
        let answer = match to {
            Some(End::Switch(far, _)) => self.message(far, from, &inner),
            Some(End::Gfd(far)) => {
                let mut out = Vec::new();
                let served = serve(&mut self.gfds[far], self.now, from, &inner, &mut out);
                self.tell();
                (served == Served::Response).then_some(out)
            }
            None => None,
        };
        let answer = answer.as_deref().ok_or(ReturnCode::RetryRequired);
        let answer = self.switches[at].common_mut().complete(ticket, answer)?;
        Some(answer.message)
    }

    /// Where a message to `pid` ends, by the tables of the switches on the way.
    fn follow(&self, from: usize, pid: Pid) -> Option<End> {
        let mut at = from;
        for _ in 0..64 {
            let out = self.port_to(at, pid)?;
            let Some(number) = out else { return Some(End::Switch(at, 0)) };
            match self.far.get(&(at, number)).copied() {
                Some(End::Switch(next, _)) => at = next,
                end => return end,
            }
        }
        None
    }

    /// The port that a switch sends a static message out by, as its own tables say; none within: the switch itself.
    #[expect(clippy::option_option, reason = "no route, or no port")]
    pub fn port_to(&self, at: usize, pid: Pid) -> Option<Option<u8>> {
        let routes = self.switches[at].tables().routes();
        Some(match routes.lookup(pid).ok()? {
            Dispatch::Here => None,
            Dispatch::Port(port) => Some(port.get()),
            Dispatch::Group(group) => Some(routes.rgt(usize::from(group))?.ports[0]),
        })
    }

    /// Ports that static messages from a switch to a PID leave by, switch after switch.
    pub fn way(&self, from: usize, pid: Pid) -> Vec<(usize, u8)> {
        let (mut at, mut way) = (from, Vec::new());
        while let Some(Some(number)) = self.port_to(at, pid) {
            way.push((at, number));
            match self.far.get(&(at, number)) {
                Some(End::Switch(next, _)) if way.len() < 64 => at = *next,
                _ => break,
            }
        }
        way
    }

    /// The GFD that has a PID.
    pub fn gfd_of(&self, pid: Pid) -> &Device {
        self.gfds.iter().find(|device| device.common().ownership.pid() == pid).unwrap()
    }
}

fn switch(at: usize, has_host: bool, far: &BTreeMap<(usize, u8), End>) -> Switch {
    let mut config = SwitchConfig::new(uuid(0x5A, at), at as u64 + 1);
    if has_host {
        config.ports.push(PortConfig { port: port(HOST), role: Role::Usp, pids: 1 });
        config.vcses.push(VcsConfig { usp: Some(port(HOST)), vppbs: 4, gae: true });
    }
    for (&(_, number), end) in far.range((at, 0)..=(at, u8::MAX)) {
        let role = if matches!(end, End::Gfd(_)) { Role::Dsp } else { Role::Fabric };
        config.ports.push(PortConfig { port: port(number), role, pids: 1 });
    }
    let mut switch = Switch::new(config).unwrap();
    if has_host {
        switch.set_link(port(HOST), Some(Link::default()));
        switch.set_partner(port(HOST), Partner::Host);
    }
    for (&(_, number), _) in far.range((at, 0)..=(at, u8::MAX)) {
        switch.set_link(port(number), Some(Link::default()));
    }
    switch
}

/// A port of loopback where sessions at switch 0 are served.
pub struct Listening {
    /// Its address.
    pub peer: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Listening {
    /// Breaks all connections.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            stream.shutdown(Shutdown::Both).unwrap();
        }
    }
}

/// Serves sessions at switch 0, a new one for each connection.
pub fn listen(world: &Arc<Mutex<World>>, session: fn(u32) -> Session) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = format!("tcp:{}", listener.local_addr().unwrap());
    let (world, count) = (Arc::clone(world), AtomicU32::new(1));
    let open = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&open);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            kept.lock().unwrap().push(stream.try_clone().unwrap());
            let session = session(count.fetch_add(1, Ordering::Relaxed));
            let world = Arc::clone(&world);
            std::thread::spawn(move || connection(&world, session, stream));
        }
    });
    Listening { peer, open }
}

fn connection(world: &Mutex<World>, session: Session, mut stream: impl Read + Write) {
    let (mut got, mut piece) = (Vec::new(), [0; 8_192]);
    'open: while let Ok(len @ 1..) = stream.read(&mut piece) {
        got.extend_from_slice(&piece[..len]);
        while let Ok(Decoded::Message { kind, message, rest }) = mctp::decode(&got) {
            let answer = world.lock().unwrap().message(0, session, message);
            got = rest.to_vec();
            let Some(answer) = answer else { continue };
            let mut out = vec![0; answer.len() + mctp::HEAD_LEN];
            mctp::emit(kind, &answer, &mut out).unwrap();
            if stream.write_all(&out).is_err() {
                break 'open;
            }
        }
    }
    world.lock().unwrap().switches[0].common_mut().forget(session);
}
