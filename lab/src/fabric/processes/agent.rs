//! The agent of one machine, for a fabric over several: it carries out orders, and ends all that it started when the
//! orders end.
//!
//! [`serve`] works on two pipes, such as those of ssh(1).
//!
//! Source: docs/fabric.md "Over several machines".

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command as Run, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weft_base::causes::with_causes;

use super::alive::{Beat, Heard};
use super::lines::{Lines, Next, write_line};
use super::protocol::{Event, Order, Reply};
use super::{ProcessError, Processes, Setup, io, links};

/// Time between two checks for ended processes and changed links.
const HOUSEKEEPING: Duration = Duration::from_millis(20);

/// Carries out orders until their end, or until the coordinator is lost.
///
/// # Errors
/// A pipe fails, a line is not an order, or the coordinator has been silent for too long.
pub fn serve(input: impl Read + AsFd, output: impl Write + Send + 'static) -> io::Result<()> {
    let mut orders = Lines::new(input);
    let output = Arc::new(Mutex::new(output));
    let beaten = Arc::clone(&output);
    // From a thread of its own: an order may take minutes, in which this loop says nothing.
    let _beat = Beat::start(move || say(&beaten, &Reply::Alive))?;
    let (mut fabric, mut watch) = (None, None);
    let mut heard = Heard::default();
    loop {
        match orders.next(HOUSEKEEPING)? {
            Next::Closed => return Ok(()),
            Next::Nothing if heard.is_lost() => {
                let said = format!("who gives orders {}", Heard::lost());
                return Err(io::Error::new(io::ErrorKind::TimedOut, said));
            }
            Next::Nothing => {}
            Next::Line(line) => {
                let order = serde_json::from_slice(&line)?;
                if !matches!(order, Order::Alive) {
                    let reply = carry_out(order, &mut fabric, &mut watch);
                    let reply = reply.unwrap_or_else(|error| Reply::Failed(with_causes(&error)));
                    say(&output, &reply)?;
                }
                // After the order: the time that it took here is no silence of the coordinator.
                heard.now();
            }
        }
        let Some(fabric) = &mut fabric else { continue };
        for ended in fabric.housekeeping() {
            say(&output, &Reply::Event(Event::Ended(ended)))?;
        }
        for event in watch.as_mut().map(LinkWatch::changes).transpose()?.unwrap_or_default() {
            say(&output, &Reply::Event(event))?;
        }
    }
}

fn say(output: &Mutex<impl Write>, reply: &Reply) -> io::Result<()> {
    write_line(&mut *output.lock().unwrap_or_else(PoisonError::into_inner), reply)
}

fn carry_out(
    order: Order,
    fabric: &mut Option<Processes>,
    watch: &mut Option<LinkWatch>,
) -> Result<Reply, ProcessError> {
    let up = match (order, fabric.as_mut()) {
        (Order::Setup(setup), None) => {
            // Orders have no version of their own, so both programs must be the same.
            let mine = env!("CARGO_PKG_VERSION");
            if setup.version != mine {
                let text =
                    format!("weft is {mine} here, and {} where it is ordered", setup.version);
                return Ok(Reply::Failed(text));
            }
            let here = Some(setup.here);
            let (dir, prefix) = (setup.dir, setup.prefix);
            let (answer_ms, pause_ms) = (setup.answer_ms, setup.pause_ms);
            let setup_here = Setup { dir, prefix, answer_ms, pause_ms, here };
            *fabric = Some(Processes::of(&setup.topology, setup_here)?);
            return Ok(Reply::Done);
        }
        (Order::Setup(_), Some(_)) | (_, None) => {
            return Ok(Reply::Failed("expected one setup, before all else".to_owned()));
        }
        (order, Some(up)) => (order, up),
    };
    let (order, up) = up;
    match order {
        Order::Setup(_) | Order::Alive => {}
        Order::Links => {
            up.take_dir()?;
            // Watching starts before the tunnels exist, so that no change is missed.
            *watch = Some(LinkWatch::start(up.tunnels())?);
            up.make_links()?;
        }
        Order::Switches => up.start_switches()?,
        Order::Endpoints => up.start_endpoints()?,
        Order::Manager => up.start_manager()?,
        Order::Enumerate => up.enumerate()?,
        Order::Map { grants } => up.map(&grants)?,
        Order::Ask { name, command } => {
            return Ok(match up.ask(&name, &command) {
                Ok(answer) => Reply::Answer(Box::new(answer)),
                Err(refused) => Reply::Refused(refused),
            });
        }
        Order::AskManager { request } => {
            return Ok(Reply::Manager(Box::new(up.manager(&request)?)));
        }
        Order::Carrier { wire, is_on } => {
            if let Some((_, device)) = up.tunnels().into_iter().find(|(at, _)| *at == wire) {
                links::set_carrier(&device, is_on);
            }
        }
    }
    Ok(Reply::Done)
}

/// Reports when an end of a wire is set up or down here: the kernel at the other end does not see that.
struct LinkWatch {
    /// `ip monitor` of iproute2.
    monitor: Child,
    lines: Lines<ChildStdout>,
    /// Wire and link state of each interface.
    ends: BTreeMap<String, (usize, bool)>,
}

impl LinkWatch {
    fn start(tunnels: Vec<(usize, String)>) -> Result<Self, ProcessError> {
        let monitor = Run::new("ip")
            .args(["-o", "monitor", "link"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut monitor = monitor.map_err(io("run ip (iproute2)"))?;
        let none = || ProcessError::Refused {
            command: "ip monitor link".to_owned(),
            said: "no output".to_owned(),
        };
        let lines = Lines::new(monitor.stdout.take().ok_or_else(none)?);
        let ends = tunnels.into_iter().map(|(wire, device)| (device, (wire, false))).collect();
        Ok(Self { monitor, lines, ends })
    }

    /// The changes since the last call.
    fn changes(&mut self) -> io::Result<Vec<Event>> {
        let mut found = Vec::new();
        while let Next::Line(line) = self.lines.next(Duration::ZERO)? {
            let Some((device, now)) = link_line(&String::from_utf8_lossy(&line)) else { continue };
            if let Some((wire, is_up)) = self.ends.get_mut(&device)
                && *is_up != now
            {
                *is_up = now;
                found.push(Event::Link { wire: *wire, is_up: now });
            }
        }
        Ok(found)
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        let _ = self.monitor.kill(); // it may have ended by itself
        let _ = self.monitor.wait();
    }
}

/// The interface in a line of `ip -o monitor link`, and whether it is set up.
fn link_line(line: &str) -> Option<(String, bool)> {
    let (number, rest) = line.split_once(": ")?;
    // A veth end shows as NAME@PEER.
    let (device, rest) = rest.split_once(": <")?;
    let (flags, _) = rest.split_once('>')?;
    let (is_deleted, name) = (number.starts_with("Deleted"), device.split('@').next()?);
    Some((name.to_owned(), !is_deleted && flags.split(',').any(|flag| flag == "UP")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lines_of_ip_monitor_are_read() {
        #[rustfmt::skip]
        let cases = [
            ("7: wf3a: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP \\    link/ether", Some(("wf3a", true))),
            ("7: wf3a: <BROADCAST,MULTICAST> mtu 1500 state DOWN",  Some(("wf3a", false))),
            ("7: wf3a: <NO-CARRIER,BROADCAST,UP> mtu 1500",         Some(("wf3a", true))),
            ("7: wf3b@if9: <BROADCAST,LOWER_UP> mtu 1500",          Some(("wf3b", false))),
            ("Deleted 7: wf3a: <UP> mtu 1500",                      Some(("wf3a", false))),
            ("", None),
            ("what", None),
        ];
        for (line, want) in cases {
            let want = want.map(|(name, is_up)| (name.to_owned(), is_up));
            assert_eq!(link_line(line), want, "{line}");
        }
    }

    /// Serves these bytes to their end, and returns the answers.
    fn answered(bytes: &[u8]) -> (io::Result<()>, String) {
        let (mut to, from) = UnixStream::pair().unwrap();
        let (output, mut answers) = UnixStream::pair().unwrap();
        to.write_all(bytes).unwrap();
        drop(to);
        let ended = serve(from, output);
        let mut said = String::new();
        answers.read_to_string(&mut said).unwrap();
        (ended, said)
    }

    #[test]
    fn orders_that_are_none_end_it_and_early_ones_are_refused() {
        let (ended, said) = answered(b"");
        assert!(ended.is_ok() && said.is_empty(), "{said}");
        let (ended, said) = answered(b"{\"do\": \"links\"}\n");
        assert!(ended.is_ok() && said.contains("failed"), "{said}");
        for bad in ["hello\n", "{\"do\": \"dance\"}\n", "\n"] {
            assert!(answered(bad.as_bytes()).0.is_err(), "{bad}");
        }
    }
}
