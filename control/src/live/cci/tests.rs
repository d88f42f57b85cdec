//! Managers of a running switch: their rights over TLS, and managers that are slow, greedy or unknown.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustls::pki_types::ServerName;
use weft_base::wait::{LONG, until};
use weft_config::Settings;
use weft_config::resolve::TlsFiles;
use weft_config::resolve::{Config, Timing};
use weft_dataplane::port::tee::MirrorSlot;
use weft_fm::cci::{Identity, Peer, Socket, Transport};
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership};
use weft_parsers::cci::mctp::{self, MessageType};
use weft_parsers::cci::{Header, Request, ReturnCode};
use weft_parsers::fabric::Pid;

use super::*;
use crate::live::Live;

/// A switch of null ports, with its functions.
pub(super) fn live() -> Live {
    let text = "[fabric]\nuuid = '5ed8a1c0-0000-4000-8000-000000000001'\n\
        [[port]]\nname = 'h'\nkind = 'null'\nrole = 'usp'\n\
        [[port]]\nname = 'f'\nkind = 'null'\nrole = 'fport'\n[[vcs]]\nusp = 'h'\n";
    let config = Config::resolve(&Settings::read("f", text).unwrap(), Timing::Live).unwrap();
    let mirrors: Vec<_> = config.switch.ports.iter().map(|_| MirrorSlot::default()).collect();
    Live::start(&config, &mirrors, None, None).unwrap()
}

fn server(live: &Live, place: Listen, guard: CciGuard, limits: Limits) -> Server {
    let agent = live.functions().as_ref().unwrap().agent.clone();
    Server::start_within(&CciConfig { place, guard }, agent, limits).unwrap()
}

fn files(dir: &Path, name: &str) -> TlsFiles {
    TlsFiles {
        ca: dir.join("ca.pem"),
        cert: dir.join(format!("{name}.pem")),
        key: dir.join(format!("{name}.key")),
    }
}

fn over_tls(server: &Server, files: &TlsFiles) -> Socket {
    let name = ServerName::try_from(tls::SWITCH_NAME).unwrap();
    let identity = Identity { config: tls::client(files).unwrap(), name };
    let peer = Peer::Tcp(server.at().parse().unwrap());
    Socket::new(peer, MessageType::FmApi, Duration::from_secs(20)).with_identity(Some(identity))
}

pub(super) fn message(request: &Request<'_>) -> Vec<u8> {
    let mut out = vec![0; 100];
    let len = request.emit_message(7, &mut out).unwrap();
    out.truncate(len);
    out
}

fn frame(request: &Request<'_>) -> Vec<u8> {
    let message = message(request);
    let mut out = vec![0; message.len() + mctp::HEAD_LEN];
    mctp::emit(MessageType::FmApi, &message, &mut out).unwrap();
    out
}

pub(super) fn claim(op: ClaimOp, fm: u8) -> Request<'static> {
    let (pid, fm_uuid) = (Pid::from_low_bits(0x10), [fm; 16]);
    Request::ClaimOwnership(ClaimOwnership { op, fm: Pid::from_low_bits(fm.into()), fm_uuid, pid })
}

pub(super) fn ask(socket: &mut Socket, request: &Request<'_>) -> (ReturnCode, Vec<u8>) {
    let answer = socket.call(&message(request)).unwrap();
    let (header, payload) = Header::parse(&answer).unwrap();
    (header.return_code, payload.to_vec())
}

/// A server over TLS, and a manager of each role that has connected to it.
fn roles(live: &Live) -> (Server, [Socket; 3]) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("tls");
    tls::make(&dir, &[], 1).unwrap();
    let place = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = server(live, place, CciGuard::Tls(files(&dir, "switch")), LIMITS);
    let sockets =
        ["observer", "secondary", "primary"].map(|name| over_tls(&server, &files(&dir, name)));
    (server, sockets)
}

#[test]
fn a_certificate_says_what_its_holder_may() {
    use ReturnCode::{InvalidInput, Success, Unsupported};
    let live = live();
    let (_server, [mut observer, mut secondary, mut primary]) = roles(&live);
    assert_eq!(ask(&mut observer, &claim(ClaimOp::RegisterPrimary, 1)).0, Unsupported);
    assert_eq!(ask(&mut secondary, &claim(ClaimOp::RegisterPrimary, 1)).0, InvalidInput);
    assert_eq!(ask(&mut primary, &claim(ClaimOp::RegisterPrimary, 1)).0, Success);
    // In the primary's name, which the secondary is told and the observer is not.
    let (_, told) = ask(&mut secondary, &Request::IdentifyPbrComponent);
    let (_, hidden) = ask(&mut observer, &Request::IdentifyPbrComponent);
    assert_eq!((told[4..20] == [1; 16], hidden[4..20] == [0; 16]), (true, true));
    assert_eq!((&hidden[..4], &hidden[0x14..0x16]), (&[255, 15, 255, 15][..], &[255, 15][..]));
    assert_eq!(ask(&mut observer, &claim(ClaimOp::UpdatePid, 1)).0, Unsupported);
    assert_eq!(ask(&mut secondary, &claim(ClaimOp::UpdatePid, 1)).0, InvalidInput);
    for socket in [&mut observer, &mut secondary] {
        assert_eq!(ask(socket, &Request::IdentifyPbrSwitch).0, Unsupported);
        assert_eq!(ask(socket, &Request::Identify).0, Success);
    }
    assert_eq!(ask(&mut primary, &Request::IdentifyPbrSwitch).0, Success);
    assert_eq!(ask(&mut primary, &claim(ClaimOp::RegisterSecondary, 2)).0, Success);
    assert_eq!(ask(&mut secondary, &claim(ClaimOp::PromoteSecondary, 2)).0, Success);
    assert_eq!(ask(&mut secondary, &Request::IdentifyPbrSwitch).0, Success);
    assert_eq!(ask(&mut primary, &Request::IdentifyPbrSwitch).0, Unsupported);
}

/// Links have come up since the start: the owner of the switch is told so with its first request, over TLS too, and no
/// other manager is.
#[test]
fn the_primary_is_notified_of_events_and_nobody_else() {
    use ReturnCode::{Success, Unsupported};
    let live = live();
    let (_server, [mut observer, mut secondary, mut primary]) = roles(&live);
    assert_eq!(ask(&mut primary, &claim(ClaimOp::RegisterPrimary, 1)).0, Success);
    for socket in [&mut observer, &mut secondary] {
        assert_eq!(ask(socket, &Request::SetMctpEvents(2)).0, Unsupported);
    }
    assert_eq!(ask(&mut primary, &Request::SetMctpEvents(2)), (Success, vec![2, 0]));
    let event = until(LONG, "a notification", || {
        primary.take_in();
        primary.event()
    });
    assert_eq!(event, [2, 0, 0, 6, 1, 2, 0, 0, 0, 0, 0, 0, 2, 0]);
    for socket in [&mut observer, &mut secondary] {
        // Whatever was sent before the answer has come with it.
        assert_eq!(ask(socket, &Request::Identify).0, Success);
        socket.take_in();
        assert_eq!(socket.event(), None);
    }
}

#[test]
fn who_has_no_certificate_of_the_authority_with_one_role_is_denied() {
    let (live, dir) = (live(), tempfile::tempdir().unwrap());
    let [ours, theirs] = ["ours", "theirs"].map(|name| dir.path().join(name));
    tls::make(&ours, &[], 1).unwrap();
    tls::make(&theirs, &[], 1).unwrap();
    let place = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = server(&live, place, CciGuard::Tls(files(&ours, "switch")), LIMITS);
    // Another authority's primary that trusts the switch; the switch's own certificate; nothing but bytes.
    let stranger = TlsFiles { ca: ours.join("ca.pem"), ..files(&theirs, "primary") };
    for (denied, files) in [(1, stranger), (2, files(&ours, "switch"))] {
        over_tls(&server, &files).call(&message(&Request::Identify)).unwrap_err();
        until(LONG, "one is denied", || (server.counts().denied == denied).then_some(()));
    }
    let mut plain = TcpStream::connect(server.at()).unwrap();
    plain.write_all(&frame(&Request::Identify)).unwrap();
    until(LONG, "a third one is denied", || (server.counts().denied == 3).then_some(()));
    let mut got = Vec::new();
    let _ = plain.read_to_end(&mut got); // closed, or reset
    assert!(got.len() < 15, "an alert at most: {got:02x?}");
    // A manager does not speak with a switch of another authority.
    let other = TlsFiles { ca: theirs.join("ca.pem"), ..files(&ours, "primary") };
    over_tls(&server, &other).call(&message(&Request::Identify)).unwrap_err();
    let mut primary = over_tls(&server, &files(&ours, "primary"));
    assert_eq!(ask(&mut primary, &Request::Identify).0, ReturnCode::Success);
}

#[test]
fn keys_that_others_may_read_are_refused() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let made = tls::make(dir.path(), &["10.0.0.1".to_owned()], 1).unwrap();
    for file in &made {
        assert_eq!(std::fs::metadata(&file.path).unwrap().mode() & 0o777, 0o600, "{file:?}");
    }
    assert_eq!(made.len(), 10);
    assert!(tls::make(dir.path(), &[], 1).is_err(), "nothing is overwritten");
    let files = files(dir.path(), "switch");
    tls::server(&files).unwrap();
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let refused = tls::server(&files).unwrap_err().to_string();
    assert!(refused.contains("mode 0600), found mode 0640"), "{refused}");
}

/// A client that never shows who it is takes no manager's place, however often it connects.
#[test]
fn connections_that_say_nothing_do_not_keep_a_manager_out() {
    let (live, dir) = (live(), tempfile::tempdir().unwrap());
    let dir = dir.path().join("tls");
    tls::make(&dir, &[], 1).unwrap();
    let place = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = server(&live, place, CciGuard::Tls(files(&dir, "switch")), LIMITS);
    let mut first = over_tls(&server, &files(&dir, "primary"));
    assert_eq!(ask(&mut first, &claim(ClaimOp::RegisterPrimary, 1)).0, ReturnCode::Success);
    let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(server.at()).unwrap()).collect();
    until(LONG, "all are accepted", || (server.counts().accepted == 201).then_some(()));
    assert_eq!(ask(&mut first, &Request::IdentifyPbrSwitch).0, ReturnCode::Success, "it stays");
    let mut second = over_tls(&server, &files(&dir, "observer"));
    assert_eq!(ask(&mut second, &Request::Identify).0, ReturnCode::Success);
    let counts = server.counts();
    assert!(counts.open <= LIMITS.unknown as u64 + 2, "{counts:?}");
    drop(silent);
}

#[test]
fn half_requests_in_all_places_do_not_keep_the_owner_out() {
    let (live, dir) = (live(), tempfile::tempdir().unwrap());
    let path = dir.path().join("cci").join("cci.sock");
    let server = server(&live, Listen::Unix(path.clone()), CciGuard::OwnUser, LIMITS);
    let half: Vec<_> = (0..2 * CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(&[13, 0]).unwrap();
            stream
        })
        .collect();
    let mut owner = Socket::new(Peer::Unix(path), MessageType::FmApi, Duration::from_secs(20));
    assert_eq!(ask(&mut owner, &claim(ClaimOp::RegisterPrimary, 1)).0, ReturnCode::Success);
    let counts = server.counts();
    assert!(counts.open <= CONNECTIONS_MAX as u64 && counts.evicted > 0, "{counts:?}");
    drop(half);
}

/// A manager that sends requests and reads nothing has no more carried out than one answer's worth, and is sent away.
#[test]
fn answers_that_a_manager_does_not_read_are_bounded() {
    let (live, dir) = (live(), tempfile::tempdir().unwrap());
    let path = dir.path().join("cci").join("cci.sock");
    let limits = Limits { answer: Duration::from_millis(300), ..LIMITS };
    let server = server(&live, Listen::Unix(path.clone()), CciGuard::OwnUser, limits);
    let range = weft_parsers::cci::tables::RoutingRange { table: 0, count: 4_095, start: 0 };
    let request = frame(&Request::GetDrt(range));
    let mut greedy = UnixStream::connect(&path).unwrap();
    greedy.write_all(&frame(&claim(ClaimOp::RegisterPrimary, 1))).unwrap();
    // 8 KiB are answered to each of 25 bytes.
    let requests = request.repeat(4_000);
    let mut most = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| greedy.write_all(&requests)); // it is closed meanwhile
        until(LONG, "it is sent away", || {
            most = most.max(server.inner.unread());
            (server.counts().overdue == 1).then_some(())
        });
    });
    assert!((1..=OUT_MAX + mctp::STREAM_MAX).contains(&most), "{most} bytes at a time");
}

#[test]
fn a_switch_that_was_started_again_is_found_again_over_tls() {
    let (live, dir) = (live(), tempfile::tempdir().unwrap());
    let dir = dir.path().join("tls");
    tls::make(&dir, &[], 1).unwrap();
    let guard = || CciGuard::Tls(files(&dir, "switch"));
    let first = server(&live, Listen::Tcp("127.0.0.1:0".parse().unwrap()), guard(), LIMITS);
    let place = Listen::Tcp(first.at().parse().unwrap());
    let mut primary = over_tls(&first, &files(&dir, "primary"));
    assert_eq!(ask(&mut primary, &claim(ClaimOp::RegisterPrimary, 1)).0, ReturnCode::Success);
    drop(first);
    let second = server(&live, place, guard(), LIMITS);
    assert_eq!(ask(&mut primary, &claim(ClaimOp::UpdatePid, 1)).0, ReturnCode::Success);
    assert_eq!(second.counts().accepted, 1);
}

/// The kernel tells the user that connects: others are refused, even if the directory lets them in.
#[test]
fn another_user_is_refused_at_the_socket() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED another_user_is_refused_at_the_socket: only root becomes another user");
        return;
    }
    let (live, dir) = (live(), tempfile::tempdir().unwrap());
    let path = dir.path().join("cci").join("cci.sock");
    let server = server(&live, Listen::Unix(path.clone()), CciGuard::OwnUser, LIMITS);
    for open in [dir.path(), path.parent().unwrap(), &path] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    for (uid, answered, refused) in [(65_534, false, 1), (0, true, 1)] {
        let (path, bytes) = (path.clone(), frame(&Request::Identify));
        // Of the kernel's users a thread has one of its own.
        let asked = std::thread::spawn(move || {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
            let mut stream = UnixStream::connect(path).unwrap();
            let mut answer = [0; 100];
            let sent = stream.write_all(&bytes).and_then(|()| stream.read(&mut answer));
            sent.is_ok_and(|count| count > 15) // closed, or answered
        });
        assert_eq!(asked.join().unwrap(), answered, "{uid}");
        until(LONG, "one is refused", || (server.counts().refused == refused).then_some(()));
    }
}
