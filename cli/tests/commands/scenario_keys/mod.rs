//! Every key of a scenario acts: one change of each, alone, in a small network, and the figure that it changes.
//!
//! [`rows`] has a [`Row`] for each key; a key without one fails the test. To add a row, name the key, its value, the
//! scenario, the observed figure, and its change.
//!
//! Source: docs/spec/model.md §2, §3, §4; docs/spec/model-reference.md.

mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use weft_base::sync::AtomicBool;
use weft_config::param::Form;
use weft_config::scenario::Source;
use weft_config::scenario::table::{ELSEWHERE, SCENARIO};
use weft_config::table::CONFIG;
use weft_sim::run::{RunOptions, run};

use crate::config_mutations::config_keys;

/// Sections whose keys have rows here. The other ones of a switch have theirs in `config_keys`, by replay.
const SECTIONS: [&str; 11] = [
    "", "net", "host", "link", "switch", "buffer", "crossbar", "ecn", "pfc", "endpoint", "workload",
];

/// A key, a change of it, and the effect.
pub struct Row {
    /// `section.key`, or a key that stands before all sections.
    pub key: &'static str,
    /// The new value, as TOML; a key that has to go with it may stand on a line of its own.
    pub value: &'static str,
    /// The scenario.
    pub base: &'static str,
    /// Settings of both runs, `section.key=value`.
    pub beside: &'static [&'static str],
    /// The observed figure.
    pub look: Look,
    /// Its value after the change, which it must not have before.
    pub want: Want,
}

/// The place of an outcome.
pub enum Look {
    /// In the results as JSON, by pointer.
    At(&'static str),
    /// A counter of all hosts together.
    Hosts(&'static str),
    /// Which priorities frames had that left by a port of the first switch.
    Pris(usize),
    /// The key changes how the scenario is run, not its results; the test `file::name` checks that.
    Work(fn(&weft_sim::scenario::Scenario) -> String, &'static str),
}

/// The change of an outcome.
pub enum Want {
    /// Exactly this value.
    Is(&'static str),
    /// More than it was.
    More,
    /// Less than it was.
    Less,
    /// Anything else: where chance decides.
    Other,
    /// A refusal that says this.
    Refused(&'static str),
}

impl Row {
    const fn beside(self, beside: &'static [&'static str]) -> Self {
        Self { beside, ..self }
    }
}

/// `text` with a key set; one that stands before all sections is put there.
pub fn with(text: &str, path: &str, value: &str) -> String {
    if path.contains('.') {
        return config_keys::with(text, path, value);
    }
    let is_key = |line: &&str| line.split('=').next().is_some_and(|name| name.trim() == path);
    let rest: Vec<&str> = text.lines().filter(|line| !is_key(line)).collect();
    format!("{path} = {value}\n{}\n", rest.join("\n"))
}

/// Files that scenarios name.
fn files(dir: &Path) {
    let topology =
        |delay: &str| format!("3 1 2\n2\n0 2 400Gbps {delay} 0\n1 2 400Gbps {delay} 0\n");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    write("near.txt", &topology("0.00005ms"));
    write("far.txt", &topology("0.00050ms"));
    write("one.csv", "from,to,bytes,start_us\nh0,h1,1344,0\n");
    write("two.csv", "from,to,bytes,start_us\nh0,h1,1344,0\nh1,h0,1344,0\n");
}

/// Runs scenarios, each text once.
pub struct Runs {
    dir: tempfile::TempDir,
    done: BTreeMap<String, Result<Value, String>>,
}

impl Runs {
    /// With a folder in which there is nothing.
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), done: BTreeMap::new() }
    }

    /// Forgets earlier runs.
    pub fn forget(&mut self) {
        self.done.clear();
    }

    fn source(&self, text: &str) -> Source {
        let dir = Some(self.dir.path().to_owned());
        Source { name: "s.toml".to_owned(), text: text.to_owned(), dir, set: Vec::new() }
    }

    /// Results as JSON, or why there are none.
    pub fn run(&mut self, text: &str) -> Result<Value, String> {
        if let Some(done) = self.done.get(text) {
            return done.clone();
        }
        let ran = self.source(text).load().map_err(|error| error.to_string()).and_then(|loaded| {
            let (stop, mut progress) = (AtomicBool::new(false), |_: &_| ());
            let options = RunOptions { threads: 1, stop: &stop, progress: &mut progress };
            run(&loaded.scenario, options).map_err(|error| weft_base::causes::with_causes(&error))
        });
        let done = ran.map(|results| serde_json::to_value(&results).unwrap());
        self.done.insert(text.to_owned(), done.clone());
        done
    }

    /// The outcome of a scenario, or the message that refuses it.
    fn look(&mut self, look: &Look, text: &str) -> Result<String, String> {
        if let Look::Work(of, _) = look {
            return self
                .source(text)
                .load()
                .map(|loaded| of(&loaded.scenario))
                .map_err(|e| e.to_string());
        }
        let value = self.run(text)?;
        Ok(match look {
            Look::At(pointer) => match value.pointer(pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => panic!("nothing at {pointer}"),
            },
            Look::Hosts(counter) => {
                let hosts = value["hosts"].as_array().unwrap().iter();
                let counts = hosts.filter_map(|host| host["counters"][counter].as_u64());
                counts.sum::<u64>().to_string()
            }
            Look::Pris(port) => {
                let queues = value["switches"][0]["ports"][port]["queues"].as_array().unwrap();
                let used = |queue: &Value| queue["dequeued_frames"].as_u64() > Some(0);
                let pris = (0..queues.len()).filter(|&pri| used(&queues[pri]));
                format!("{:?}", pris.collect::<Vec<_>>())
            }
            Look::Work(..) => unreachable!("it was before the run"),
        })
    }

    /// The fault of a row, if it has one.
    fn fault(&mut self, row: &Row) -> Option<String> {
        let base = row.beside.iter().fold(row.base.to_owned(), |text, assignment| {
            let (path, value) = assignment.split_once('=').unwrap();
            with(&text, path, value)
        });
        let before = self.look(&row.look, &base);
        let after = self.look(&row.look, &with(&base, row.key, row.value));
        let name = format!("{} = {}: {before:?} before, {after:?} after", row.key, row.value);
        println!("{name}");
        let number = |seen: &Result<String, String>| {
            seen.as_ref().ok().and_then(|text| text.parse::<f64>().ok())
        };
        let both = number(&before).zip(number(&after));
        let good = match row.want {
            Want::Is(want) => after.as_deref() == Ok(want) && before.as_deref() != Ok(want),
            Want::More => both.is_some_and(|(before, after)| after > before),
            Want::Less => both.is_some_and(|(before, after)| after < before),
            Want::Other => before.is_ok() && after.is_ok() && before != after,
            Want::Refused(text) => {
                before.is_ok() && after.as_ref().is_err_and(|error| error.contains(text))
            }
        };
        (!good).then_some(name)
    }
}

/// Each key changes what its row names; a key without a row, or a row without a key, is a fault.
#[test]
fn every_key_of_a_scenario_acts_or_is_refused() {
    let mut runs = Runs::new();
    files(runs.dir.path());
    let known = keys();
    let mut missing = known.clone();
    let mut faults = Vec::new();
    for row in rows::rows() {
        assert!(known.contains(row.key), "{} is no key", row.key);
        faults.extend(runs.fault(&row));
        missing.remove(row.key);
    }
    assert!(faults.is_empty(), "{} rows: {faults:#?}", faults.len());
    assert!(missing.is_empty(), "keys of which nobody knows what they do: {missing:?}");
}

/// Keys that need a row: all of [`SECTIONS`], and of faults and expectations.
fn keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let own = SCENARIO.sections().chain(SCENARIO.root());
    let of_switch = CONFIG.section("switch", Form::Table);
    for section in own
        .filter(|section| (section.name, section.form) != ("switch", Form::Repeated))
        .chain(of_switch)
    {
        if !SECTIONS.contains(&section.name) && !["fault", "expect"].contains(&section.name) {
            continue;
        }
        for param in section.params() {
            let is_elsewhere = |(of, keys, _): &(&str, &[&str], _)| {
                *of == section.name && keys.contains(&param.name)
            };
            if !ELSEWHERE.iter().any(is_elsewhere) {
                let dot = if section.name.is_empty() { "" } else { "." };
                keys.insert(format!("{}{dot}{}", section.name, param.name));
            }
        }
    }
    keys
}

/// Keys that a scenario sets in another way are refused, with a hint.
#[test]
fn keys_that_are_said_elsewhere_are_refused() {
    let mut runs = Runs::new();
    for (section, keys, message) in ELSEWHERE {
        for key in *keys {
            // One of these is a value that the key takes.
            let values =
                ["1", "64", "128", "true", "\"x\"", "\"usp\"", "\"native\"", "\"flit\"", "[1]"];
            let refusals = values.map(|value| {
                runs.run(&with(rows::PAIR, &format!("{section}.{key}"), value)).expect_err(key)
            });
            assert!(
                refusals.iter().any(|it| it.contains(message)),
                "{section}.{key}: {refusals:#?}"
            );
        }
    }
}

/// A switch that is named has the keys of `[switch]` alone, and shares those of `[switch_defaults]`.
#[test]
fn named_switches_have_keys_of_their_own() {
    let mut runs = Runs::new();
    for (path, want) in [
        ("switch.wire_overhead", "1355320"), // as it is
        ("switch.fixed_latency_ns", "1155320"),
        ("switch_defaults.fixed_latency_ns", "955320"),
    ] {
        let value = if path.ends_with("ns") { "300" } else { "true" };
        let seen = runs.look(&rows::LAST, &with(rows::GRAPH, path, value));
        assert_eq!(seen.as_deref(), Ok(want), "{path}");
    }
}

/// Every test that a row refers to exists.
#[test]
fn tests_that_rows_name_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut named = 0;
    for row in rows::rows() {
        let Look::Work(_, by) = row.look else { continue };
        let (file, test) = by.split_once("::").unwrap();
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(text.contains(&format!("#[test]\nfn {test}(")), "{}: no test {by}", row.key);
        named += 1;
    }
    assert_eq!(named, 2);
}
