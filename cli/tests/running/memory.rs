//! A switch that is short of memory: clients are refused, and the switch goes on.
//!
//! `weft run` whose address space is bounded while it runs (`RLIMIT_AS`), and clients that want more than is there.
//!
//! Source: docs/security.md; getrlimit(2).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use weft_base::wait::LONG;

use super::{Switch, socket};

const MIB: u64 = 1 << 20;

/// Limits the switch's address space to `left` bytes more than it uses; `None` removes the limit.
fn bound(switch: &Switch, left: Option<u64>) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", switch.child.0.id())).unwrap();
    let size = status.lines().find_map(|line| {
        line.strip_prefix("VmSize:")?.trim().split(' ').next()?.parse::<u64>().ok()
    });
    let current = left.map(|left| size.unwrap() * 1_024 + left);
    prlimit(
        Some(Pid::from_child(&switch.child.0)),
        Resource::As,
        Rlimit { current, maximum: None },
    )
    .unwrap();
}

/// A client that has sent a request, with the first line of the answer; `None` if it was sent away.
fn ask(switch: &Switch, request: &str) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(socket(switch.dir.path())).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let _ = writeln!(stream, "{request}"); // it may have been sent away already
    let mut line = String::new();
    let _ = BufReader::new(&stream).read_line(&mut line);
    (stream, line)
}

/// As many traces as there may be clients, and a mirror, with limits from no further memory to more than they need.
#[test]
fn clients_are_refused_where_memory_is_short_and_the_switch_goes_on() {
    let mut refused = 0;
    for left in [0, 1, 2, 4, 8, 18, 20, 24, 30, 40, 60, 90] {
        let switch = Switch::start();
        bound(&switch, Some(left * MIB));
        let traces: Vec<_> = std::thread::scope(|scope| {
            let trace = || ask(&switch, r#"{"cmd":"trace","count":1,"bytes":true}"#);
            let all: Vec<_> = (0..32).map(|_| scope.spawn(trace)).collect();
            all.into_iter().map(|trace| trace.join().unwrap()).collect()
        });
        for (_, line) in traces.iter().filter(|(_, line)| !line.contains("tracing")) {
            // The switch has 32 places, of which the client that saw it come up may still hold one: then a trace is
            // sent away for the next one, without an answer.
            assert!(line.is_empty() || line.contains("error"), "{left}: {line:?}");
            refused += usize::from(line.contains("bytes of memory left"));
        }
        drop(traces);
        let path = switch.dir.path().join("mirror.pcap");
        let request = format!(r#"{{"cmd":"mirror","port":"a","to":{{"file":{path:?}}}}}"#);
        let (_, line) = ask(&switch, &request);
        let has_room = left >= 90;
        assert!(has_room || line.contains("error") && line.contains("memory"), "{left}: {line:?}");
        assert!(has_room || !path.exists(), "{left}: a file that nothing will be written to");
        bound(&switch, None);
        assert_eq!(switch.json(&["show", "ports", "--json"])["ports"][0]["name"], "a", "{left}");
        let (code, _, err, _) = switch.stop();
        assert_eq!(code, Some(0), "{left}: {err}");
    }
    assert!(refused > 0);
}
