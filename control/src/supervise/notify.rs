//! Notifications for the service manager: ready, reloading, stopping, alive.
//!
//! [`Notifier`] sends a datagram of `KEY=VALUE` lines to `$NOTIFY_SOCKET`, if there is one. Times are microseconds of
//! the monotonic clock, as the protocol has them.
//!
//! Source: `sd_notify(3)`, `sd_watchdog_enabled(3)`, systemd.service(5) "Type=notify-reload".

// Our own code, as `sd-notify` 0.5 sends blocking, so that a manager that does not read would stop the switch, and
// knows no abstract sockets, which systemd uses in containers.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use weft_dataplane::time::{Instant, Span};

use weft_lab::clock;

/// Messages that may wait while the manager does not read.
const WAITING_MAX: usize = 8;

/// The connection to the service manager; does nothing without one.
pub struct Notifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Messages that the manager has not taken yet, in order.
    waiting: Vec<String>,
    /// Time between two messages that all is well; `None` if the manager asks for none.
    every: Option<Span>,
    fed: Option<Instant>,
}

impl Notifier {
    /// By the environment of this process.
    #[must_use]
    pub fn from_env() -> Self {
        let var = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        // The variable is inherited: a watchdog for another process is not ours to feed.
        let pid = var("WATCHDOG_PID").is_none_or(|pid| *pid == *std::process::id().to_string());
        let watchdog = var("WATCHDOG_USEC").filter(|_| pid);
        Self::new(var("NOTIFY_SOCKET").as_deref(), watchdog.as_deref())
    }

    fn new(socket: Option<&OsStr>, watchdog_us: Option<&OsStr>) -> Self {
        let to = socket.and_then(|name| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address(name).ok()?))
        });
        let us = watchdog_us.and_then(|text| text.to_str()?.parse::<u64>().ok());
        // Twice as often as is asked for, as sd_watchdog_enabled(3) advises.
        let every = us.filter(|&us| us > 0).map(|us| Span::from_us(us / 2));
        Self { to, waiting: Vec::new(), every, fed: None }
    }

    /// Tells that the start, or reading a configuration, is over.
    pub fn ready(&mut self) {
        self.say("READY=1\nSTATUS=up\n".to_owned());
    }

    /// Tells that a configuration is being read.
    pub fn reloading(&mut self) {
        // The manager compares it with its own clock, to tell this reload from an earlier one.
        let us = clock::now().as_ns() / 1_000;
        self.say(format!("RELOADING=1\nMONOTONIC_USEC={us}\nSTATUS=reading the configuration\n"));
    }

    /// Tells that the process is about to end.
    pub fn stopping(&mut self, why: &str) {
        // A newline would begin another variable.
        let why = why.replace('\n', " ");
        self.say(format!("STOPPING=1\nSTATUS={why}\n"));
    }

    /// Takes note that all is well; the manager is told when it is due.
    pub fn is_well(&mut self, now: Instant) {
        let Some(every) = self.every else { return };
        if self.fed.is_none_or(|fed| now.since(fed) >= every) {
            self.fed = Some(now);
            self.say("WATCHDOG=1\n".to_owned());
        }
    }

    fn say(&mut self, text: String) {
        if self.to.is_none() {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            // Of all messages a watchdog's says least: the next one says the same.
            self.waiting.retain(|text| !text.starts_with("WATCHDOG"));
        }
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push(text);
        }
        self.flush();
    }

    /// Sends the messages that wait, as far as the manager takes them.
    pub fn flush(&mut self) {
        let Some((socket, address)) = &self.to else { return };
        while let Some(text) = self.waiting.first() {
            match socket.send_to_addr(text.as_bytes(), address) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The manager is gone: its message is dropped.
                Ok(_) | Err(_) => drop(self.waiting.remove(0)),
            }
        }
    }
}

/// The address that `$NOTIFY_SOCKET` names: a path, or `@` and an abstract name.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 512];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    fn listen(name: &str) -> UnixDatagram {
        let socket = UnixDatagram::bind_addr(&address(OsStr::new(name)).unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    #[test]
    fn the_manager_is_told_in_its_own_words_by_path_or_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify").display().to_string();
        for name in [path, format!("@weft-test-notify-{}", std::process::id())] {
            let socket = listen(&name);
            let mut notifier = Notifier::new(Some(OsStr::new(&name)), Some(OsStr::new("2000000")));
            notifier.ready();
            assert_eq!(heard(&socket), "READY=1\nSTATUS=up\n", "{name}");
            notifier.reloading();
            let text = heard(&socket);
            let us = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(us.split('\n').next().unwrap().parse::<u64>().unwrap() > 0, "{text}");
            let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
            for ms in [5, 900, 1_004, 1_005, 1_500, 2_005] {
                notifier.is_well(at(ms));
            }
            for _ in 0..3 {
                assert_eq!(heard(&socket), "WATCHDOG=1\n", "{name}");
            }
            notifier.stopping("on\nSIGTERM");
            assert_eq!(heard(&socket), "STOPPING=1\nSTATUS=on SIGTERM\n", "no fourth one before");
        }
    }

    #[test]
    fn a_manager_that_does_not_read_stops_nobody_and_still_learns_what_counts() {
        let name = format!("@weft-test-deaf-{}", std::process::id());
        let socket = listen(&name);
        let mut notifier = Notifier::new(Some(OsStr::new(&name)), Some(OsStr::new("2")));
        for us in 0..10_000 {
            notifier.is_well(Instant::from_ns(us * 1_000));
        }
        notifier.stopping("x");
        let mut last = String::new();
        loop {
            notifier.flush();
            let mut bytes = [0; 512];
            let Ok(len) = socket.recv(&mut bytes) else { break };
            last = String::from_utf8(bytes[..len].to_vec()).unwrap();
        }
        assert_eq!(last, "STOPPING=1\nSTATUS=x\n");
    }

    #[test]
    fn without_a_manager_nothing_is_said() {
        let mut notifier = Notifier::new(None, None);
        notifier.ready();
        notifier.is_well(Instant::ZERO);
        assert!(notifier.waiting.is_empty());
        let mut gone = Notifier::new(Some(OsStr::new("/nowhere/at/all")), Some(OsStr::new("x")));
        gone.ready();
        assert!(gone.waiting.is_empty() && gone.every.is_none());
    }
}
