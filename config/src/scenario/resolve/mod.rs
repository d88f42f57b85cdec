//! From settings to a scenario: names, units, and contradictions between keys.
//!
//! [`scenario`] turns [`Settings`] into a [`Scenario`], and reports every contradiction as a [`Problem`] with its
//! place. The units of the table end here: results are bit/s, bytes, [`Span`]s and numbers of nodes.
//!
//! Source: docs/spec/model.md §3.

mod delay;
mod endpoints;
mod moves;
mod net;
mod switches;

use std::collections::BTreeMap;

use weft_dataplane::time::{Instant, Span};
use weft_sim::results::Setting;
use weft_sim::scenario::{Options, Scenario};
use weft_sim::topology::{NodeKind, Topology};
use weft_toml::problem::{PROBLEMS_MAX, drop_repeated};
use weft_toml::words::nearest;

use super::keys::Keys;
use super::places::Places;
use super::table::SCENARIO;
use super::{Loaded, Source, problem};
use crate::param::Form;
use crate::{ConfigError, Place, Problem, Settings};

/// Resolves `settings`, which were read from `source`.
///
/// # Errors
/// All problems found.
pub(super) fn scenario(source: &Source, settings: &Settings) -> Result<Loaded, ConfigError> {
    let mut reader = ScenarioReader {
        source,
        settings,
        latencies: BTreeMap::new(),
        problems: Vec::new(),
        warnings: Vec::new(),
    };
    let root = Keys::table(settings, "");
    let seed = root.int("seed").unwrap_or(1);
    let until = root.time("until").unwrap_or(Span::ZERO);
    if until == Span::ZERO {
        reader.refuse(&root, "until", "expected a time above 0");
    }
    let net = Keys::table(settings, "net");
    if net.time("sampling") == Some(Span::ZERO) {
        reader.refuse(&net, "sampling", "expected a time above 0");
    }
    // Before the switches: they are refused if `max_frame` is below the longest frame of endpoints.
    let frames = reader.frames();
    let topology = reader.net();
    let plan = reader.switches(seed, frames);
    // Stop here: names of hosts and links in later sections could not be told from misspelt ones.
    let Some(topology) = topology.filter(|_| reader.problems.is_empty()) else {
        return Err(reader.refusals());
    };
    let endpoints = reader.endpoints(frames, &plan);
    reader.check_switches(&topology, &plan);
    reader.check_credits(&topology);
    let hosts = Hosts::of(&topology);
    let workloads = reader.workloads(&hosts);
    let faults = reader.faults(&topology, &hosts, Instant::ZERO + until);
    reader.check_tcp(frames.kind, &workloads, &faults);
    let expects = reader.expects();
    reader.warn_of_late(until);
    let Some(endpoints) = endpoints.filter(|_| reader.problems.is_empty()) else {
        return Err(reader.refusals());
    };
    let default = Options::default();
    let options = Options {
        pfc_circles: net.flag("allow_pfc_circles"),
        sampling: net.time("sampling").unwrap_or(default.sampling),
        samples_max: net.count("samples_max").unwrap_or(default.samples_max),
        full_frames: net.flag("full_frames"),
        checks: default.checks,
        latency_parts: net.flag("latency_parts"),
    };
    let scenario = Scenario {
        name: root.text("title").unwrap_or_else(|| title_of(&source.name)),
        seed,
        until: Instant::ZERO + until,
        topology,
        switches: Box::new(move |site| Ok(plan.at(site)?)),
        endpoints,
        workloads,
        faults,
        expects,
        options,
    };
    let places = Places::of(source, settings);
    Ok(Loaded { scenario, settings: told(settings), warnings: reader.warnings, places })
}

/// All settings in the order of the table, for the results to repeat; without those of `[[expect]]`, which results
/// have anyway.
fn told(settings: &Settings) -> Vec<Setting> {
    let mut told = Vec::new();
    let root = SCENARIO.root().into_iter();
    for section in root.chain(SCENARIO.sections()) {
        let name = section.name;
        match section.form {
            Form::Table => {
                let keys = Keys::table(settings, name);
                told.extend(keys.all_set().map(|(key, set)| (keys.name(key), &set.value)));
            }
            Form::Repeated if name != "expect" => {
                for (at, keys) in Keys::items(settings, name).enumerate() {
                    let all = keys.all_set();
                    told.extend(all.map(|(key, set)| (format!("{name}[{at}].{key}"), &set.value)));
                }
            }
            Form::Repeated => {}
        }
    }
    told.into_iter().map(|(key, value)| Setting { key, value: value.to_string() }).collect()
}

/// Default title of a scenario: the name of its file.
fn title_of(file: &str) -> String {
    let name = std::path::Path::new(file).file_stem().unwrap_or_default();
    if name.is_empty() { "scenario".to_owned() } else { name.to_string_lossy().into_owned() }
}

/// Numbers of hosts by name, counted from 0 in the order of the network.
pub(super) struct Hosts(BTreeMap<String, u16>);

impl Hosts {
    fn of(topology: &Topology) -> Self {
        let nodes = topology.nodes().iter().filter(|node| node.kind == NodeKind::Host);
        Self((0..).zip(nodes).map(|(number, node)| (node.name.clone(), number)).collect())
    }

    pub fn number(&self, name: &str) -> Option<u16> {
        self.0.get(name).copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The message for a `name` that no host has.
    pub fn unknown(&self, name: &str) -> String {
        let names = self.0.keys().map(String::as_str);
        if let Some(near) = nearest(name, names) {
            return format!("expected the name of a host, found {name:?}, did you mean {near:?}?");
        }
        // A list of a thousand hosts would help less than how many there are and how they are named.
        let first = self.0.iter().find(|(_, number)| **number == 0);
        let (count, first) = (self.len(), first.map_or("", |(name, _)| name.as_str()));
        format!(
            "expected the name of a host, found {name:?}; there are {count}, the first one is {first:?}"
        )
    }
}

/// Keys that one kind of item must have or may have, of keys that only some kinds take.
pub(super) struct Takes {
    pub kind: &'static str,
    pub must: &'static [&'static str],
    pub may: &'static [&'static str],
}

/// Reads sections, and collects problems and warnings.
pub(super) struct ScenarioReader<'a> {
    pub source: &'a Source,
    pub settings: &'a Settings,
    /// Latencies of switches by name, in ns, from an imported network.
    pub latencies: BTreeMap<String, u64>,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

impl ScenarioReader<'_> {
    pub fn refuse(&mut self, keys: &Keys<'_>, key: &'static str, message: impl Into<String>) {
        self.refuse_at(keys.place(key), keys.name(key), message);
    }

    pub fn refuse_at(&mut self, place: Place, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(problem(place, key, message));
    }

    fn refusals(mut self) -> ConfigError {
        // A problem of a default has no line: it stands at the file as a whole.
        for problem in &mut self.problems {
            if matches!(problem.place, Place::Default | Place::Derived) {
                problem.place = Place::WholeFile(self.source.name.clone());
            }
        }
        drop_repeated(&mut self.problems);
        // An imported file, or a thousand like items, can have any number of them.
        self.problems.truncate(PROBLEMS_MAX);
        ConfigError(self.problems)
    }

    /// Warns of workloads and faults that would begin after the run.
    fn warn_of_late(&mut self, until: Span) {
        for (section, key) in [("workload", "start"), ("fault", "from")] {
            for keys in Keys::items(self.settings, section) {
                if keys.time(key).is_some_and(|at| at >= until) {
                    let message = "it begins when the run is over; expected a time before `until`";
                    self.warnings.push(problem(keys.place(key), keys.name(key), message));
                }
            }
        }
    }

    /// Refuses required keys that are not set; returns whether all are.
    pub fn requires(&mut self, keys: &Keys<'_>, all: &[&'static str]) -> bool {
        let missing = all.iter().filter(|key| keys.set(key).is_none());
        let missing: Vec<&'static str> = missing.copied().collect();
        for key in &missing {
            let name = keys.name(key);
            self.refuse_at(keys.here(), name, "expected this key, found none");
        }
        missing.is_empty()
    }

    /// Checks an item against `takes`: refuses keys that only other kinds take, and keys that `kind` must have and
    /// that are not set. Returns whether it passed.
    pub fn check_takes(
        &mut self,
        keys: &Keys<'_>,
        takes: &[Takes],
        what: &str,
        kind: &str,
    ) -> bool {
        let Some(row) = takes.iter().find(|row| row.kind == kind) else { return false };
        let before = self.problems.len();
        for (key, set) in keys.all_set() {
            let takers =
                takes.iter().filter(|row| row.must.contains(&key) || row.may.contains(&key));
            let takers: Vec<&str> = takers.map(|row| row.kind).collect();
            // A key that no row names is for all kinds.
            if !takers.is_empty() && !takers.contains(&kind) {
                let message = format!(
                    "expected none with {what} = {kind:?}: it is for {}",
                    takers.join(", ")
                );
                self.refuse_at(set.place.clone(), keys.name(key), message);
            }
        }
        for &key in row.must {
            if keys.set(key).is_none() {
                let message = format!("expected this key with {what} = {kind:?}, found none");
                self.refuse_at(keys.here(), keys.name(key), message);
            }
        }
        before == self.problems.len()
    }
}
