//! From settings to the configuration of a switch: defaults, units, and contradictions between keys.
//!
//! [`Config::resolve`] turns [`Settings`] into [`SwitchConfig`], [`RunConfig`] and [`TrafficConfig`], and reports
//! every contradiction as a [`Problem`] with its place. Values that follow from other keys are noted as derived, so
//! that reports can show them. Percentages and MiB end here: results are bytes, cells, bit/s and [`Span`]s.
//!
//! Source: docs/spec/pipeline.md §4, §8, §9, §12.
//!
//! [`SwitchConfig`]: weft_dataplane::config::SwitchConfig
//! [`Span`]: weft_dataplane::time::Span

mod buffer;
mod fabric;
mod idle;
mod lag;
mod ports;
mod queueing;
mod run;
mod static_init;
#[cfg(test)]
mod tests;
mod traffic;
mod wred;

use std::collections::BTreeMap;

use toml::de::DeValue;
use weft_dataplane::config::{PriMaps, PriSource, SwitchConfig};
use weft_dataplane::snapshot::{Snapshot, SnapshotError};
use weft_dataplane::types::{PORTS_MAX, PerPri, PortSet, PriSet};
use weft_parsers::AfhMode;
use weft_toml::problem::drop_repeated;
use weft_toml::{ConfigError, Place, Problem};

use super::choice::Choice;
use super::param::{Apply, Form, Param};
use super::settings::{Item, Setting, Settings};
use super::table::{self, Key, SECTIONS, key};
use super::value::Value;

pub(crate) use buffer::{in_us, response_by_default};
pub use fabric::{CPU_PORT, CciConfig, CciGuard, FabricConfig, MctpConfig, TlsFiles};
pub use run::{RunConfig, RunPort, XdpConfig, default_socket, sockets_dir};
pub use traffic::TrafficConfig;

/// Which clock drives the switch: some defaults differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The clock of the machine: `weft run`.
    Live,
    /// Virtual time: replay, models, simulation.
    Virtual,
}

/// Section, number of the item in a repeated section (0 otherwise), and key of an effective value.
pub type Slot = (&'static str, usize, &'static str);

/// A parameter with the value that is in effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Effective {
    pub section: &'static str,
    /// Number of the item in a repeated section; 0 otherwise.
    pub item: usize,
    pub param: &'static Param,
    /// `None` if it is neither set nor derived, and has no default.
    pub value: Option<Value>,
    /// Where the value was set, or whether it is a default or derived.
    pub place: Place,
}

/// A configuration without contradictions.
#[derive(Clone, Debug)]
pub struct Config {
    /// Configuration of the switch itself.
    pub switch: SwitchConfig,
    /// Configuration of the threads and devices around it.
    pub run: RunConfig,
    /// Configuration of the hosts that `weft traffic` plays.
    pub traffic: TrafficConfig,
    /// Configuration of the functions of a switch that routes TLPs; `None` for any other switch.
    pub fabric: Option<FabricConfig>,
    /// All parameters with their values, in the order of the table.
    pub effective: Vec<Effective>,
    /// Settings that are allowed but doubtful.
    pub warnings: Vec<Problem>,
}

impl Config {
    /// Resolves `settings`.
    ///
    /// # Errors
    /// Every contradiction that was found, with its place.
    pub fn resolve(settings: &Settings, timing: Timing) -> Result<Self, ConfigError> {
        let mut resolver = Resolver::new(settings, timing);
        let traffic = resolver.traffic();
        resolver.refuse_idle();
        // Before the switch: the buffer takes the lengths of receive rings from it, and may change how many frames of
        // them headroom covers.
        let mut run = resolver.run();
        let switch = resolver.switch(&mut run);
        let fabric = switch.as_ref().and_then(|switch| resolver.fabric(&switch.ports));
        if resolver.problems.is_empty() {
            match switch {
                Some(switch) => {
                    // The running switch compiles the same: a configuration that passes `weft config check` is not to
                    // fail there.
                    if let Err(error) = Snapshot::compile(switch.clone(), 0) {
                        resolver.refuse_snapshot(&error);
                        return Err(ConfigError(resolver.problems));
                    }
                    let effective = effective(settings, &resolver.derived);
                    let warnings = resolver.warnings;
                    return Ok(Self { switch, run, traffic, fabric, effective, warnings });
                }
                // Too many ports, or a buffer that does not fit, are problems already; without problems there is no
                // port.
                None => resolver.refuse(Place::Default, "port", "expected at least one port"),
            }
        }
        // Ports that take a key from `port_defaults` or a table refuse it once each, with the same words.
        drop_repeated(&mut resolver.problems);
        Err(ConfigError(resolver.problems))
    }

    /// Parameters that differ from `old` although only a restart can change them.
    #[must_use]
    pub fn restart_needed(&self, old: &Self) -> Vec<Problem> {
        let slot = |e: &Effective| (e.section, e.item, e.param.name);
        let before: BTreeMap<Slot, &Effective> =
            old.effective.iter().map(|e| (slot(e), e)).collect();
        // A derived value follows from other keys: those are the ones to name, if they changed at all.
        let is_set = |e: &Effective| !matches!(e.place, Place::Derived);
        let [was, is] = [old, self].map(|config| config.switch.ports.len());
        let count = (was != is).then(|| Problem {
            place: Place::Derived,
            key: "port".to_owned(),
            message: format!("expected {was} ports as before, found {is}; this takes a restart"),
        });
        // The configuration of a fabric lists ports: another number of ports would be reported twice.
        let fabric = (count.is_none() && self.fabric != old.fabric).then(|| Problem {
            place: Place::Derived,
            key: "fabric".to_owned(),
            message: "roles and virtual switches can only change with a restart".to_owned(),
        });
        let changed = self
            .effective
            .iter()
            // The switch does not read `[traffic]`.
            .filter(|e| e.param.apply == Apply::Restart && e.section != "traffic")
            .filter(|e| {
                let was = before.get(&slot(e));
                was.is_some_and(|was| was.value != e.value && (is_set(was) || is_set(e)))
            })
            .map(|e| Problem {
                place: e.place.clone(),
                key: format!("{}.{}", e.section, e.param.name),
                message: "can only change with a restart".to_owned(),
            });
        count.into_iter().chain(fabric).chain(changed).collect()
    }
}

/// The part of the classification that hosts need: how a switch sorts their frames into priorities.
#[derive(Clone, Debug)]
pub struct Classes {
    /// Priorities: 4 or 8.
    pub pris: usize,
    pub maps: PriMaps,
    /// Which fields decide, first to last.
    pub trust: Vec<PriSource>,
    /// Priorities that must not lose frames.
    pub lossless: PriSet,
}

/// The part of `settings` that hosts need: their own traffic, and how the switch sorts it.
///
/// # Errors
/// Every contradiction in that part.
pub fn traffic_of(settings: &Settings) -> Result<(TrafficConfig, Classes), ConfigError> {
    let mut resolver = Resolver::new(settings, Timing::Live);
    let traffic = resolver.traffic();
    let maps = resolver.maps();
    let place = Place::Default;
    // No port is meant here: hosts go by `port_defaults` and the defaults.
    let none = Item { place, set: BTreeMap::new() };
    let trust = resolver.trust(&none, AfhMode::Auto);
    let pfc = resolver.pfc(&maps);
    let lossless = if pfc.enabled { pfc.lossless } else { PriSet::EMPTY };
    if resolver.problems.is_empty() {
        Ok((traffic, Classes { pris: resolver.pris, maps, trust, lossless }))
    } else {
        Err(ConfigError(resolver.problems))
    }
}

/// All parameters with their values, in the order of the table; `derived` has the values that follow from other keys.
#[must_use]
pub fn effective(settings: &Settings, derived: &BTreeMap<Slot, Value>) -> Vec<Effective> {
    let pris = pris_of(settings);
    let mut all = Vec::new();
    for section in SECTIONS {
        let count = match section.form {
            Form::Table => 1,
            Form::Repeated => settings.items(section.name).len(),
        };
        for item in 0..count {
            for param in section.params() {
                let set = match section.form {
                    Form::Table => settings.table(section.name, param.name).cloned(),
                    Form::Repeated => item_setting(settings, section.name, item, param.name),
                };
                let derived = derived.get(&(section.name, item, param.name)).cloned();
                let (value, place) = match (set, initial(param, pris), derived) {
                    (Some(set), ..) => (Some(set.value), set.place),
                    (None, Some(value), _) => (Some(value), Place::Default),
                    (None, None, Some(value)) => (Some(value), Place::Derived),
                    (None, None, None) => (None, Place::Default),
                };
                all.push(Effective { section: section.name, item, param, value, place });
            }
        }
    }
    all
}

/// The setting of `key` in an item; for a port also that of `port_defaults`.
fn item_setting(
    settings: &Settings,
    section: &str,
    item: usize,
    key: &'static str,
) -> Option<Setting> {
    let own = settings.items(section).get(item).and_then(|item| item.set.get(key));
    let shared = || (section == "port").then(|| settings.table("port_defaults", key)).flatten();
    own.or_else(shared).cloned()
}

fn pris_of(settings: &Settings) -> i64 {
    let set = settings.at(key!("switch", "num_priorities"));
    set.and_then(|set| set.value.as_int()).unwrap_or(4)
}

/// The default of `param`, if it has one of its own.
#[must_use]
pub fn initial(param: &Param, pris: i64) -> Option<Value> {
    let raw = DeValue::parse(param.initial.toml(pris)?).ok()?;
    param.kind.check(&raw).ok()
}

/// The value of `T` that `value` names; the table has checked it against the words of `T`.
fn chosen<T: Choice>(value: &Value) -> T {
    value.as_text().and_then(T::from_name).unwrap_or_else(|| no_word(value))
}

fn no_word<T>(what: impl std::fmt::Display) -> T {
    unreachable!(
        "{what}: the table of parameters accepts the words of this type, and has a default"
    )
}

/// Looks settings up, and collects problems, warnings and derived values.
struct Resolver<'a> {
    settings: &'a Settings,
    timing: Timing,
    pris: usize,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    derived: BTreeMap<Slot, Value>,
}

impl<'a> Resolver<'a> {
    fn new(settings: &'a Settings, timing: Timing) -> Self {
        // The table accepts 4 and 8 only; anything else has been refused when it was read.
        let pris = if pris_of(settings) <= 4 { 4 } else { 8 };
        let (problems, warnings, derived) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { settings, timing, pris, problems, warnings, derived }
    }

    fn refuse(&mut self, place: Place, key: &str, message: impl Into<String>) {
        self.problems.push(Problem { place, key: key.to_owned(), message: message.into() });
    }

    /// A table's value: as set, else the default.
    fn get(&self, key: Key) -> Option<Value> {
        let set = self.settings.at(key).map(|set| set.value.clone());
        set.or_else(|| self.default_of(key.section, key.name))
    }

    fn default_of(&self, section: &'static str, key: &'static str) -> Option<Value> {
        let param = table::section(section).and_then(|section| section.param(key));
        // A misspelt key here would read as one that is not set.
        debug_assert!(param.is_some(), "{section}.{key} is not in the table");
        initial(param?, pris_of(self.settings))
    }

    /// Where a table's value was set.
    fn place(&self, key: Key) -> Place {
        self.place_of(&[key])
    }

    /// Where the first of these keys was set. Of two keys that contradict each other, one may be a default, which has
    /// no place.
    fn place_of(&self, keys: &[Key]) -> Place {
        let set = keys.iter().find_map(|key| self.settings.at(*key));
        set.map_or(Place::Default, |set| set.place.clone())
    }

    fn int(&self, key: Key) -> Option<u64> {
        self.get(key)?.as_int().and_then(|int| u64::try_from(int).ok())
    }

    fn num(&self, key: Key) -> Option<f64> {
        self.get(key)?.as_num()
    }

    fn is(&self, key: Key, word: &str) -> bool {
        self.get(key).is_some_and(|value| value.as_text() == Some(word))
    }

    /// The value of a table's key that takes words.
    fn choice<T: Choice>(&self, key: Key) -> T {
        self.get(key).as_ref().map_or_else(|| no_word(key.name), chosen)
    }

    /// The value of a port's key that takes words.
    fn port_choice<T: Choice>(&self, item: &Item, key: Key) -> T {
        self.port_get(item, key).as_ref().map_or_else(|| no_word(key.name), chosen)
    }

    fn flag(&self, key: Key) -> bool {
        self.get(key) == Some(Value::Bool(true))
    }

    fn text(&self, key: Key) -> Option<String> {
        self.get(key)?.as_text().map(str::to_owned)
    }

    /// The texts of a list's members.
    fn texts(&self, key: Key) -> Vec<String> {
        let list = self.get(key);
        let members = list.iter().flat_map(Value::members);
        members.filter_map(Value::as_text).map(str::to_owned).collect()
    }

    /// A port's value: its own, else that of `port_defaults`, else the default.
    fn port_get(&self, item: &Item, key: Key) -> Option<Value> {
        if let Some(set) = item.get(key) {
            return Some(set.value.clone());
        }
        match self.settings.table("port_defaults", key.name) {
            Some(set) => Some(set.value.clone()),
            None => self.default_of(key.section, key.name),
        }
    }

    /// Where a port's value was set; else where the port begins.
    fn port_place(&self, item: &Item, key: Key) -> Place {
        let own = item.get(key);
        let set = own.or_else(|| self.settings.table("port_defaults", key.name));
        set.map_or_else(|| item.place.clone(), |set| set.place.clone())
    }

    /// Members of a list of numbers, checked to be priorities that the switch has.
    fn pri_list(&mut self, value: Option<&Value>, place: &Place, key: &str) -> Vec<u8> {
        let mut pris = Vec::new();
        for member in value.map_or(&[][..], Value::members) {
            let pri = member.as_int().and_then(|int| u8::try_from(int).ok()).unwrap_or(0);
            if usize::from(pri) >= self.pris {
                let highest = self.pris - 1;
                let message = format!(
                    "expected priorities 0..={highest} (num_priorities is {}), found {pri}",
                    self.pris
                );
                self.refuse(place.clone(), key, message);
            }
            pris.push(pri);
        }
        pris
    }

    /// A list with one member for each priority; a single value stands for all.
    fn per_pri<T: Copy>(
        &mut self,
        value: &Value,
        place: &Place,
        key: &str,
        rest: T,
        read: impl Fn(&Value) -> Option<T>,
    ) -> PerPri<T> {
        let mut all = PerPri([rest; 8]);
        match value {
            Value::List(list) => {
                if list.len() != self.pris {
                    let message = format!(
                        "expected {} members, one for each priority, found {}",
                        self.pris,
                        list.len()
                    );
                    self.refuse(place.clone(), key, message);
                }
                for (slot, member) in all.0.iter_mut().zip(list) {
                    *slot = read(member).unwrap_or(rest);
                }
            }
            single => {
                // Priorities that the switch does not have keep `rest`, as with a list.
                for slot in all.0.iter_mut().take(self.pris) {
                    *slot = read(single).unwrap_or(rest);
                }
            }
        }
        all
    }

    fn switch(&mut self, run: &mut RunConfig) -> Option<SwitchConfig> {
        let maps = self.maps();
        let mut ports = self.ports();
        let cpu_port = self.cpu_port(&ports);
        ports.extend(cpu_port);
        let lags = self.lags(&ports);
        let forward = self.forward();
        // Only now, so that problems of LAGs and static entries are reported in the same run.
        if ports.is_empty() || ports.len() > PORTS_MAX {
            return None;
        }
        // In this order: the buffer needs to know which priorities are lossless, percentages need the capacity that
        // the buffer leaves to share, and the marks are held against the thresholds of PFC.
        let pfc = self.pfc(&maps);
        self.check_priority_groups(maps.pri_to_pg, pfc.lossless);
        let buffer = self.buffer(&ports, &pfc, run);
        let capacity = self.queue_capacity(&buffer, &ports, &pfc)?;
        let pfc = self.pfc_mode(pfc, capacity);
        let ecn = self.ecn(capacity, &pfc);
        let wred = self.wred(capacity, &pfc);
        self.warn_about_order(&buffer, &ports, &pfc, &ecn);
        let crossbar = self.crossbar();
        Some(SwitchConfig {
            ports,
            pris: self.pris,
            maps,
            buffer,
            crossbar,
            ecn,
            wred,
            pfc,
            forward,
            lags,
            mirror: None,
            tx_off: PortSet::EMPTY,
            lossy_watermarks: run.sai.is_some(),
            seed: self.int(key!("switch", "seed"))?,
            tx_ring_frames: to_usize(self.int(key!("switch", "tx_ring_frames"))?),
            tlp: self.tlp(),
        })
    }

    /// Reports an error of [`Snapshot::compile`] at the key that most likely caused it. Checks above have refused
    /// most of these with a better place.
    fn refuse_snapshot(&mut self, error: &SnapshotError) {
        let key = match error {
            SnapshotError::Buffer(_) => key!("buffer", "buffer_size_mb"),
            SnapshotError::Classes(_) => key!("pfc", "pri_to_pfc"),
            SnapshotError::Red(_) => key!("ecn", "ecn_threshold_low"),
            SnapshotError::Pris(_) | SnapshotError::Pri { .. } => key!("switch", "num_priorities"),
            SnapshotError::Ports(_)
            | SnapshotError::Lag(_)
            | SnapshotError::Vlan(_)
            | SnapshotError::Group(_)
            | SnapshotError::Restart(_) => key!("switch", "name"),
        };
        self.refuse(self.place(key), &key.path(), error.to_string());
    }
}

/// Saturates; the table bounds numbers below 2^63.
fn to_usize(int: u64) -> usize {
    usize::try_from(int).unwrap_or(usize::MAX)
}

fn to_u32(int: u64) -> u32 {
    u32::try_from(int).unwrap_or(u32::MAX)
}

/// A number with a fraction, times `factor`, rounded to a whole one.
#[expect(
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "control reads decimal units; a cast saturates"
)]
pub(crate) fn scale(num: f64, factor: f64) -> u64 {
    (num * factor).round() as u64
}
