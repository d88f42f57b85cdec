//! Ports made from existing interfaces: `weft run --ports`.
//!
//! Waits until enough interfaces of this network namespace match the patterns, and makes a `--port` flag of each.
//!
//! Source: proc(5) `/proc/net/dev`; names of interfaces: `dev_valid_name` of Linux (up to 15 bytes, no blank, `/` or
//! `:`); docs/lab.md "Ports by pattern".

use std::cmp::Ordering;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicUsize};
use std::time::Duration;

use clap::Args;
use glob::Pattern;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use weft_base::wait;
use weft_config::choice::{Choice, DeviceIs, DeviceKind};
use weft_config::settings::{Item, Settings};
use weft_config::value::is_name;
use weft_control::log::{Level, Log};
use weft_dataplane::types::PORTS_MAX;

/// The namespace's interfaces: two lines of headings, then one line for each.
const LIST: &str = "/proc/thread-self/net/dev";
/// Environment variable in which containerlab gives the number of a container's interfaces besides eth0.
const COUNT_VAR: &str = "CLAB_INTFS";
/// Loopback and a container's management interface: only their full names match them, never a wildcard.
const KEPT: [&str; 2] = ["lo", "eth0"];

/// The interfaces that become ports.
#[derive(Args, Clone, Debug, Default)]
pub struct InterfaceArgs {
    /// Make a port of each interface whose name matches, such as 'eth[1-9]*'; may be given several times
    ///
    /// Wildcards are *, ? and [...]. They never match lo and eth0, which can be given in full. KIND is one of auto (the
    /// default), `af_packet` and `af_xdp`. A port has the name of its interface; interfaces that are already ports, by
    /// the configuration or --port, stay as they are.
    #[arg(long, value_name = "[KIND:]PATTERN")]
    pub ports: Vec<InterfacePattern>,
    /// Wait until this many interfaces match --ports; by default the number in environment variable `CLAB_INTFS`, or 0
    #[arg(long, value_name = "N", requires = "ports", value_parser = clap::value_parser!(u8).range(1..=PORTS_MAX as i64))]
    pub wait_ports: Option<u8>,
    /// Time limit for --wait-ports in seconds
    #[arg(long, value_name = "SECONDS", requires = "ports", default_value_t = 60,
        value_parser = clap::value_parser!(u16).range(0..=3_600))]
    pub wait_limit: u16,
}

/// A pattern of interface names, and the kind of port that opens them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePattern {
    /// A word of [`DeviceKind`].
    kind: &'static str,
    names: Pattern,
}

impl FromStr for InterfacePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // No interface has a colon in its name, but a set of characters may.
        let word = |kind: &str| DeviceKind::NAMES.iter().copied().find(|known| *known == kind);
        let (kind, names) = match text.split_once(':').map(|(kind, names)| (word(kind), names)) {
            Some((Some(kind), names)) => (kind, names),
            _ => ("auto", text),
        };
        if DeviceKind::from_name(kind).is_none_or(|kind| kind.device() != DeviceIs::Interface) {
            return Err(format!("expected a kind of port on an interface, found {kind:?}"));
        }
        if names.is_empty() {
            return Err("expected a pattern of names of interfaces".to_owned());
        }
        let names = Pattern::new(names).map_err(|error| error.to_string())?;
        Ok(Self { kind, names })
    }
}

impl InterfacePattern {
    fn matches(&self, name: &str) -> bool {
        self.names.as_str() == name || (self.names.matches(name) && !KEPT.contains(&name))
    }
}

/// Why `--ports` gave no ports.
#[derive(Debug, thiserror::Error)]
pub enum InterfacesError {
    /// The kernel's list of interfaces cannot be read.
    #[error("read {LIST}")]
    List(#[source] io::Error),
    /// Too few interfaces matched within the limit.
    #[error("{} of {want} interfaces that match {patterns} came within {limit_s} s{}", found.len(), listed(found))]
    Few {
        want: usize,
        patterns: String,
        limit_s: u16,
        /// Names that matched when time was up.
        found: Vec<String>,
    },
    /// No interface matches, none was waited for, and the configuration has no ports either.
    #[error("no interface matches {patterns}; there is {}", listed_names(there))]
    Nothing {
        patterns: String,
        /// Names of all interfaces.
        there: Vec<String>,
    },
    /// A configured port already has the interface's name, but another device.
    #[error(
        "interface {name:?} would be port {name:?}, which has another device; make it a port of another name by --port"
    )]
    NameTaken {
        /// Name of both port and interface.
        name: String,
    },
    /// `CLAB_INTFS` is not a number, or too large.
    #[error("{COUNT_VAR} in the environment: expected a number from 0 to {PORTS_MAX}, found {0:?}")]
    Count(String),
    #[error("catch signals")]
    Signals(#[source] io::Error),
}

/// A colon and the names; empty if there are no names.
fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(": {}", listed_names(names)) }
}

/// Interface names for a message; quoted unless plain, because others chose them.
fn listed_names(names: &[String]) -> String {
    let shown = |name: &String| if is_name(name) { name.clone() } else { format!("{name:?}") };
    names.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// Ports found by the patterns, with the signal handlers that were installed for the wait.
#[derive(Default)]
pub struct Interfaces {
    /// A `--port` flag for each interface, ordered by name.
    pub flags: Vec<String>,
    stop: Option<Stop>,
}

impl Interfaces {
    /// Whether SIGTERM or SIGINT has arrived since the wait began.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::is_told)
    }

    /// Removes the signal handlers of the wait. The caller has installed its own by now, and gets a signal that has
    /// already arrived.
    pub fn hand_over(self) {
        if self.is_stopped() {
            let _ = signal_hook::low_level::raise(SIGTERM); // it cannot fail: this signal exists
        }
    }
}

impl InterfaceArgs {
    /// Waits for the wanted interfaces; returns a `--port` flag for each that is not a port of `settings` yet.
    ///
    /// # Errors
    /// See [`InterfacesError`].
    pub fn find(&self, settings: &Settings, log: Log) -> Result<Interfaces, InterfacesError> {
        if self.ports.is_empty() {
            return Ok(Interfaces::default());
        }
        let var = std::env::var_os(COUNT_VAR).map(|text| text.to_string_lossy().into_owned());
        let want = match self.wait_ports {
            Some(count) => usize::from(count),
            None => count(var.as_deref())?,
        };
        // The kernel discards signals to a container's first process unless it catches them, so the wait could not be
        // stopped.
        let stop = Stop::catch().map_err(InterfacesError::Signals)?;
        let Some(there) = self.wait(want, &stop, log)? else {
            return Ok(Interfaces { flags: Vec::new(), stop: Some(stop) });
        };
        // A wanted count of 0 ends the wait at once, so the list may be empty. A switch that the configuration gives
        // ports starts all the same.
        if settings.items("port").is_empty() && self.count(&there) == 0 {
            return Err(InterfacesError::Nothing { patterns: self.patterns(), there });
        }
        let flags = self.flags(&there, settings, log)?;
        Ok(Interfaces { flags, stop: Some(stop) })
    }

    /// The first pattern that an interface matches.
    fn pattern(&self, name: &str) -> Option<&InterfacePattern> {
        self.ports.iter().find(|pattern| pattern.matches(name))
    }

    /// Whether an interface matches, and has a name that a port can have.
    fn wants(&self, name: &str) -> bool {
        is_name(name) && self.pattern(name).is_some()
    }

    fn count(&self, there: &[String]) -> usize {
        there.iter().filter(|name| self.wants(name)).count()
    }

    fn patterns(&self) -> String {
        let shown = |pattern: &InterfacePattern| format!("{:?}", pattern.names.as_str());
        self.ports.iter().map(shown).collect::<Vec<_>>().join(" or ")
    }

    /// Sorted names of all interfaces, as soon as `want` of them match; `None` if a signal arrives first.
    fn wait(
        &self,
        want: usize,
        stop: &Stop,
        log: Log,
    ) -> Result<Option<Vec<String>>, InterfacesError> {
        let mut last = None;
        let ended = wait::try_until(Duration::from_secs(self.wait_limit.into()), || {
            if stop.is_told() {
                return Some(Ok(None));
            }
            let there = match list() {
                Ok(there) => there,
                Err(error) => return Some(Err(InterfacesError::List(error))),
            };
            let count = self.count(&there);
            if count >= want {
                return Some(Ok(Some(there)));
            }
            // A line for each change, not for each poll.
            if last.replace(count) != Some(count) {
                let patterns = self.patterns();
                let text = format!("{count} of {want} interfaces that match {patterns} are there");
                log.say(Level::Info, "start", &text);
            }
            None
        });
        ended.unwrap_or_else(|| {
            // Read once more, so that the message lists the interfaces that are there now.
            let found = list().map_err(InterfacesError::List)?;
            let found = found.into_iter().filter(|name| self.wants(name)).collect();
            let (patterns, limit_s) = (self.patterns(), self.wait_limit);
            Err(InterfacesError::Few { want, patterns, limit_s, found })
        })
    }

    /// A flag for each interface of `there` that matches and is not a port of `settings` yet.
    fn flags(
        &self,
        there: &[String],
        settings: &Settings,
        log: Log,
    ) -> Result<Vec<String>, InterfacesError> {
        let mut flags = Vec::new();
        for name in there {
            let Some(pattern) = self.pattern(name) else { continue };
            // Under any name: one interface can be opened by one port only.
            if settings.items("port").iter().any(|item| device(item) == Some(name)) {
                continue;
            }
            if !is_name(name) {
                let text = format!("interface {name:?} is left out: its name cannot be a port's");
                log.say(Level::Warn, "start", &text);
                continue;
            }
            // A `--port` flag of an existing name would replace that port's device (see `SettingsArgs::port`).
            if settings.items("port").iter().any(|item| text(item, "name") == Some(name)) {
                return Err(InterfacesError::NameTaken { name: name.clone() });
            }
            flags.push(format!("{name}={}:{name}", pattern.kind));
        }
        Ok(flags)
    }
}

/// Number of interfaces that the environment announces; 0 if it announces none.
fn count(var: Option<&str>) -> Result<usize, InterfacesError> {
    let Some(text) = var.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(0) };
    let number = text.parse().ok().filter(|&number| number <= PORTS_MAX);
    number.ok_or_else(|| InterfacesError::Count(text.to_owned()))
}

fn text<'a>(item: &'a Item, key: &str) -> Option<&'a str> {
    item.set.get(key)?.value.as_text()
}

/// Interface or tap of a configured port; `None` for kinds without one.
fn device(item: &Item) -> Option<&str> {
    let kind = text(item, "kind").map_or(Some(DeviceKind::Auto), DeviceKind::from_name)?;
    let is_one = matches!(kind.device(), DeviceIs::Interface | DeviceIs::Made);
    // `device` defaults to the port's name, as in weft-config's resolver.
    is_one.then(|| text(item, "device").or_else(|| text(item, "name")))?
}

/// The interfaces of this thread's network namespace, sorted. Bytes that are not UTF-8 become U+FFFD.
fn list() -> io::Result<Vec<String>> {
    let text = std::fs::read(LIST)?;
    Ok(names(&String::from_utf8_lossy(&text)))
}

/// The names in a list, in numeric order: `eth2` before `eth10`.
fn names(list: &str) -> Vec<String> {
    // A name may have any character but a blank, `/` and `:`, which ends it here.
    let name = |line: &str| line.split_once(':').map(|(name, _)| name.trim_start().to_owned());
    let mut names: Vec<String> = list.split('\n').skip(2).filter_map(name).collect();
    names.sort_by(|a, b| in_order(a, b));
    names
}

/// Compares names, and numbers within them by value.
fn in_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (text_a, number_a, rest_a) = part(left);
        let (text_b, number_b, rest_b) = part(right);
        let order = text_a.cmp(text_b).then(number_a.cmp(&number_b));
        if order != Ordering::Equal {
            return order;
        }
        if rest_a.is_empty() || rest_b.is_empty() {
            return rest_a.cmp(rest_b).then_with(|| a.cmp(b)); // eth01 and eth1 are two
        }
        (left, right) = (rest_a, rest_b);
    }
}

/// Splits off leading text and the number behind it. A name has at most 15 bytes, so the number fits a `u64`.
fn part(text: &str) -> (&str, Option<u64>, &str) {
    let (head, tail) = text.split_at(text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len()));
    let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    let (digits, rest) = tail.split_at(end);
    (head, digits.parse().ok(), rest)
}

/// Catches SIGTERM and SIGINT until it is dropped.
struct Stop {
    told: Arc<AtomicUsize>,
    caught: Vec<SigId>,
}

impl Stop {
    fn catch() -> io::Result<Self> {
        let told = Arc::new(AtomicUsize::new(0));
        let mut stop = Self { told: told.clone(), caught: Vec::new() };
        for signal in [SIGTERM, SIGINT] {
            stop.caught.push(signal_hook::flag::register_usize(signal, told.clone(), 1)?);
        }
        Ok(stop)
    }

    fn is_told(&self) -> bool {
        self.told.load(atomic::Ordering::Relaxed) != 0 // nothing else is passed by it
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        for id in self.caught.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(patterns: &[&str]) -> InterfaceArgs {
        let ports = patterns.iter().map(|text| text.parse().unwrap()).collect();
        InterfaceArgs { ports, wait_ports: None, wait_limit: 0 }
    }

    fn flags(patterns: &[&str], there: &[&str], config: &str) -> Result<Vec<String>, String> {
        let there: Vec<String> = there.iter().map(ToString::to_string).collect();
        let settings = Settings::read("t.toml", config).unwrap();
        args(patterns).flags(&there, &settings, Log::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_read_whatever_they_are_and_sorted_as_people_do() {
        let head = "Inter-|   Receive\n face |bytes\n";
        let line = |name: &str| format!("{name:>6}: 0 0 0\n");
        let given =
            ["eth10", "lo", "eth2", "e\"x*'", "$(id)", "eth1", "eth01", "--x", "a\u{1b}[0m", "7"];
        let text = head.to_owned() + &given.map(line).concat();
        let want =
            ["7", "$(id)", "--x", "a\u{1b}[0m", "e\"x*'", "eth01", "eth1", "eth2", "eth10", "lo"];
        assert_eq!(names(&text), want);
        assert_eq!(names("").len() + names(head).len(), 0);
    }

    #[test]
    fn patterns_take_what_matches_but_never_the_loopback_and_management() {
        #[rustfmt::skip] // columns: patterns, flags for lo, eth0, eth1, eth10, veth3
        let cases: [(&[&str], &[&str]); 7] = [
            (&["eth[1-9]*"], &["eth1=auto:eth1", "eth10=auto:eth10"]),
            (&["*"], &["eth1=auto:eth1", "eth10=auto:eth10", "veth3=auto:veth3"]),
            (&["?th?"], &["eth1=auto:eth1"]),
            (&["eth[!1]"], &[]),
            (&["eth0", "af_packet:v*"], &["eth0=auto:eth0", "veth3=af_packet:veth3"]),
            (&["af_xdp:eth1", "eth*"], &["eth1=af_xdp:eth1", "eth10=auto:eth10"]),
            (&["[a:e]th1"], &["eth1=auto:eth1"]),
        ];
        let there = ["lo", "eth0", "eth1", "eth10", "veth3"];
        for (patterns, want) in cases {
            assert_eq!(flags(patterns, &there, "").unwrap(), want, "{patterns:?}");
        }
        for text in ["", "tap:x*", "null:*", "eth[", "eth**", "af_xdp:"] {
            assert!(text.parse::<InterfacePattern>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn ports_of_the_configuration_stay_as_they_are() {
        let config = "[[port]]\nname = \"eth1\"\n[[port]]\nname = \"up\"\ndevice = \"eth2\"\n";
        assert_eq!(
            flags(&["eth*"], &["eth1", "eth2", "eth3"], config).unwrap(),
            ["eth3=auto:eth3"]
        );
        let config = "[[port]]\nname = \"eth1\"\ndevice = \"veth9\"\n";
        let error = flags(&["eth*"], &["eth1"], config).unwrap_err();
        assert!(error.contains("interface \"eth1\" would be port \"eth1\""), "{error}");
    }

    /// Others choose the names of interfaces: a name never becomes an option, nor reaches a terminal unescaped.
    #[test]
    fn names_that_no_port_has_are_left_out() {
        let there =
            ["e*", "e=x", "e\"", "e$(id)", "-e", "e\u{1b}[31m", "e\u{fffd}", "e'1", "é1", "e-1"];
        assert_eq!(flags(&["*"], &there, "").unwrap(), ["e-1=auto:e-1"]);
        let found = there.map(str::to_owned).to_vec();
        let text = InterfacesError::Few { want: 99, patterns: "\"*\"".into(), limit_s: 0, found };
        assert!(
            text.to_string().starts_with("10 of 99 interfaces that match \"*\" came within 0 s: ")
        );
        assert!(!text.to_string().contains(char::is_control), "{text}");
    }

    #[test]
    fn the_environment_says_how_many_there_will_be() {
        let cases =
            [(None, Some(0)), (Some(""), Some(0)), (Some("3"), Some(3)), (Some(" 64\n"), Some(64))];
        for (var, want) in cases {
            assert_eq!(count(var).ok(), want, "{var:?}");
        }
        for var in ["65", "-1", "x", "1.0", "99999999999999999999"] {
            let error = count(Some(var)).unwrap_err().to_string();
            assert!(error.contains(var) && error.contains(COUNT_VAR), "{error}");
        }
    }
}
