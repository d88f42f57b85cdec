//! Clients and sockets, against a switch that is only numbers.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use weft_base::wait::{LONG, until};
use weft_rpc::{Client as Asker, ClientError};

use super::*;
use crate::report::{ShowResponse, ShowTopic};
use crate::requests::testing::Recorder;
use crate::requests::{Backend, Request, SwitchHandler, next_path};

/// Serves `backend` at `path`.
fn start(path: &Path, backend: Arc<dyn Backend>) -> Result<Server, SocketError> {
    Server::start(path, Arc::new(SwitchHandler::new(backend)))
}

fn served() -> (tempfile::TempDir, PathBuf, Arc<Recorder>, Server) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weft").join("s").join("mgmt.sock");
    let backend = Arc::new(Recorder::default());
    let server = start(&path, backend.clone()).unwrap();
    (dir, path, backend, server)
}

#[test]
fn clients_ask_over_the_socket() {
    let (_dir, path, backend, server) = served();
    let mode = std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut client = Asker::connect(&path).unwrap();
    let request = Request::Show { what: ShowTopic::Conservation, restart_watermarks: true };
    let shown: ShowResponse = serde_json::from_value(client.request(&request).unwrap()).unwrap();
    let ShowResponse::Conservation(sum) = shown else { panic!("{shown:?}") };
    assert_eq!((sum.rx, sum.holds), (5, true));
    let request = Request::FdbAdd { addr: "id:0001".into(), port: "p9".into(), vid: 1 };
    let error = client.request(&request).unwrap_err();
    assert!(
        matches!(&error, ClientError::Refused(refused) if refused.code == "refused"),
        "{error}"
    );
    assert_eq!(*backend.0.lock().unwrap(), ["stats true", "add 1 id:0001 p9"]);
    client.request(&Request::Trace { filter: None, count: 2, bytes: false }).unwrap();
    for frame in [1, 0] {
        assert_eq!(next_path(&mut client).unwrap().unwrap().frame, frame);
    }
    assert_eq!(next_path(&mut client).unwrap(), Err(json!({ "frames": 0 })));
    client.request(&Request::Reload { path: None }).unwrap();
    assert!(client.wait(Duration::from_millis(1)).unwrap(), "the switch is there");
    drop(server);
    assert!(!client.wait(Duration::from_secs(10)).unwrap(), "the switch went");
    assert!(!path.exists() && !path.parent().unwrap().exists(), "nothing is left");
}

#[test]
fn stopping_ends_silent_traces_and_open_clients() {
    let (_dir, path, _, server) = served();
    let mut tracing = Asker::connect(&path).unwrap();
    let silent = Request::Trace { filter: Some("silent".into()), count: 1, bytes: false };
    tracing.request(&silent).unwrap();
    let idle: Vec<_> = (0..3).map(|_| UnixStream::connect(&path).unwrap()).collect();
    drop(server); // joins every thread
    assert!(next_path(&mut tracing).is_err());
    for mut stream in idle {
        // Closed; reset if it had not been accepted yet.
        assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
}

#[test]
fn clients_are_bounded_and_bad_ones_do_not_hurt() {
    let (_dir, path, _, _server) = served();
    let answer = |mut stream: UnixStream, line: &[u8]| {
        stream.write_all(line).unwrap();
        let mut text = String::new();
        BufReader::new(stream).read_line(&mut text).unwrap();
        text
    };
    let mut long = vec![b'x'; LINE_LEN_MAX + 10];
    long.push(b'\n');
    let refused = answer(UnixStream::connect(&path).unwrap(), &long);
    assert!(refused.contains("expected at most 65536 bytes"), "{refused}");
    let refused = answer(UnixStream::connect(&path).unwrap(), b"\xFF\xFE\n");
    assert!(refused.contains("bad_request"), "{refused}");
    // Without a newline at the end, after an empty line.
    let stream = UnixStream::connect(&path).unwrap();
    (&stream).write_all(b"\n{\"cmd\":\"reload\"}").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    (&stream).read_to_string(&mut text).unwrap();
    assert!(text.contains("epoch"), "{text}");
}

/// All places are taken by clients that never end their line, and the owner is answered all the same.
#[test]
fn slow_clients_do_not_keep_the_owner_out() {
    let (_dir, path, _, server) = served();
    let slow: Vec<_> = (0..3 * CLIENTS_MAX)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"{\"cmd\":").unwrap();
            stream
        })
        .collect();
    let mut owner = Asker::connect(&path).unwrap();
    let request = Request::Show { what: ShowTopic::Conservation, restart_watermarks: false };
    owner.request(&request).unwrap();
    let counts = server.counts();
    assert!(counts.open <= CLIENTS_MAX as u64 && counts.evicted > CLIENTS_MAX as u64, "{counts:?}");
    drop(slow);
}

/// Clients that go in the middle of a line, of an answer or of a trace leave nothing behind.
#[test]
fn clients_that_die_leave_nothing_behind() {
    let (_dir, path, _, server) = served();
    let lines: [&[u8]; 4] = [
        b"",
        b"{\"cmd\":",
        b"{\"cmd\":\"show\",\"what\":\"conservation\"}\n",
        b"{\"cmd\":\"trace\",\"filter\":\"silent\",\"count\":1}\n",
    ];
    for (_, line) in (0..2_000).zip(lines.iter().cycle()) {
        let mut stream = UnixStream::connect(&path).unwrap();
        // One that finds no place is told so, and may be gone before it has written.
        let _ = stream.write_all(line);
    }
    let mut owner = Asker::connect(&path).unwrap();
    let request = Request::Show { what: ShowTopic::Conservation, restart_watermarks: false };
    owner.request(&request).unwrap();
    until(LONG, "all others are gone", || (server.counts().open <= 1).then_some(()));
}

/// Unread answers have a bound together, and a client that asks beyond it is told so.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    struct Large;
    impl LineHandler for Large {
        fn answer(&self, _line: &[u8]) -> Answer {
            Answer::Line(vec![b' '; 1 << 20])
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s").join("mgmt.sock");
    let limits = Limits { unread: 3 << 20, answer: Duration::from_hours(1), ..LIMITS };
    let server = Server::start_within(&path, Arc::new(Large), limits).unwrap();
    let greedy: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"{}\n").unwrap();
            // The first byte has come: the share of memory is held by now.
            stream.read_exact(&mut [0]).unwrap();
            stream
        })
        .collect();
    let mut text = String::new();
    BufReader::new(greedy.last().unwrap()).read_line(&mut text).unwrap();
    assert!(text.contains("read the pending answers, or try again later"), "{text}");
    drop(server);
}

/// Of several servers that start at once one gets the socket, and the others are told that it runs.
#[test]
fn of_many_that_start_at_once_one_listens() {
    let (dir, _, backend, _server) = served();
    for round in 0..500 {
        let at_once = std::sync::Barrier::new(4);
        let path = dir.path().join(format!("crowd{round}")).join("mgmt.sock");
        let started: Vec<_> = std::thread::scope(|scope| {
            let start = || {
                at_once.wait();
                start(&path, backend.clone())
            };
            let starts: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert_eq!(started.iter().filter(|started| started.is_ok()).count(), 1);
        for refused in started.iter().filter_map(|started| started.as_ref().err()) {
            assert!(matches!(refused, SocketError::Running(_)), "{refused}");
        }
    }
}

#[test]
fn sockets_are_ours_alone() {
    let (dir, path, backend, server) = served();
    assert!(matches!(start(&path, backend.clone()), Err(SocketError::Running(_))));
    drop(server);
    // A socket at which no process listens is replaced.
    let parent = path.parent().unwrap();
    std::fs::create_dir_all(parent).unwrap();
    std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o700)).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    drop(start(&path, backend.clone()).unwrap());
    // A file stays, and so does a symbolic link, whatever it points at.
    let file = parent.join("file");
    let link = parent.join("link");
    std::fs::create_dir_all(parent).unwrap();
    std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(&file, "mine").unwrap();
    drop(std::os::unix::net::UnixListener::bind(parent.join("stale")).unwrap());
    std::os::unix::fs::symlink(parent.join("stale"), &link).unwrap();
    for kept in [&file, &link] {
        let refused = start(kept, backend.clone()).err().unwrap();
        assert!(matches!(refused, SocketError::NoSocket(_)), "{refused}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    assert!(link.is_symlink() && parent.join("stale").exists());
    let aside = dir.path().join("aside");
    std::os::unix::fs::symlink(parent, &aside).unwrap();
    let refused = start(&aside.join("mgmt.sock"), backend.clone()).err().unwrap();
    assert!(matches!(refused, SocketError::Io { call: "use", .. }), "{refused}");
    // A directory that others can enter is refused.
    let open = dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = start(&open.join("mgmt.sock"), backend).err().unwrap().to_string();
    assert!(refused.contains("mode 0700, found mode 0755"), "{refused}");
}
