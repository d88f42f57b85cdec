//! The running switch as management sees it: [`SwitchHandle`] implements [`Backend`] over a [`Live`] switch.
//!
//! It also remembers where the configuration came from, so that a reload can read it again.
//! Source: ARCHITECTURE.md "Control".

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::{Mutex, OnceLock, PoisonError};

use serde_json::{Value, json};
use weft_base::causes::with_causes;
use weft_base::files::{Existing, OpenedBy};
use weft_config::SettingsFlags;
use weft_config::Sources;
use weft_config::resolve::{Config, Timing};
use weft_dataplane::config::MirrorConfig;
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::pbr::explain;
use weft_dataplane::pipeline::Ledger;
use weft_dataplane::port::capture::CaptureFormat;
use weft_dataplane::port::record::Summary;
use weft_dataplane::port::tee::{Mirror, MirrorSlot};
use weft_dataplane::types::{PortId, PortSet};
use weft_dataplane::worker::Stuck;
use weft_parsers::fabric::{Hpa, Pid};
use weft_parsers::{AddrKey, Vid};
use weft_rpc::Refused;

use super::confine::Confined;
use super::pairs::{self, Opened};
use super::placement::Raiser;
use super::trace::{Traces, Wanted};
use super::{Live, LiveError, NewRecord, mtu};
use crate::conform::Params;
use crate::events::{self, Kind};
use crate::express::Watch;
use crate::paths::Filter;
use crate::record::Change;
use crate::report::gather::{PortInfo, Source};
use crate::report::pauses::Pauses;
use crate::report::process::ProcessReport;
use crate::report::watermarks::{Mark, Reader, Watermarks};
use crate::report::{FdbRow, ShowTopic, StatsSnapshot, fabric};
use crate::requests::{Backend, MirrorTarget, TraceStream};

/// Copies that wait for a mirror's writer; more are lost, and counted.
const MIRROR_SLOTS: usize = 4_096;

/// State that changes of the running configuration start from.
struct State {
    config: Config,
    /// Static entries that management added, in addition to those of the configuration.
    added: Vec<StaticEntry>,
    /// By mirrored port, the file's writer; the watch has all its frames come to user space meanwhile.
    mirrors: BTreeMap<PortId, (Mirror, Option<Watch>)>,
}

/// Static entries: those that management added, then those of the configuration.
type Entries = (Vec<StaticEntry>, Vec<StaticEntry>);

fn entries(state: &State) -> Entries {
    (state.added.clone(), state.config.switch.forward.static_entries.clone())
}

pub struct SwitchHandle {
    live: Live,
    args: SettingsFlags,
    port_info: Vec<PortInfo>,
    names: Vec<String>,
    slots: Vec<MirrorSlot>,
    state: Mutex<State>,
    confined: OnceLock<Confined>,
    watermarks: Watermarks,
    traces: Traces,
}

impl SwitchHandle {
    /// Starts the switch of `config`, to which `args` resolve. The run is recorded in `record`; for `raiser`
    /// see [`Live::start`].
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn start(
        args: SettingsFlags,
        config: Config,
        record: Option<NewRecord>,
        raiser: Option<Raiser>,
    ) -> Result<Self, LiveError> {
        let slots: Vec<MirrorSlot> =
            config.switch.ports.iter().map(|_| MirrorSlot::default()).collect();
        let live = Live::start(&config, &slots, record, raiser)?;
        let port_info =
            config.run.ports.iter().zip(live.devices()).map(|(port, opened)| PortInfo {
                kind: opened.kind.to_owned(),
                device: port.device.clone(),
                note: opened.note.clone(),
                no_express: None,
                mtu_warning: None,
            });
        let port_info = port_info.collect();
        Ok(Self {
            live,
            args,
            port_info,
            names: config.switch.ports.iter().map(|port| port.name.clone()).collect(),
            slots,
            state: Mutex::new(State { config, added: Vec::new(), mirrors: BTreeMap::new() }),
            confined: OnceLock::new(),
            watermarks: Watermarks::default(),
            traces: Traces::default(),
        })
    }

    /// Problems of the start that did not stop it.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        self.live.warnings()
    }

    /// Keeps how the process was restricted, for reports. Called once, after the start.
    pub fn set_confined(&self, confined: Confined) {
        drop(self.confined.set(confined));
    }

    /// By port name, a warning where its interface has too large an MTU, with the remedy.
    #[must_use]
    pub fn mtu_warnings(&self) -> Vec<(String, String)> {
        let (_, port_info) = self.about();
        let warnings = port_info.into_iter().map(|info| info.mtu_warning);
        let named = self.names.iter().cloned().zip(warnings);
        named.filter_map(|(name, warning)| Some((name, warning?))).collect()
    }

    /// A warning for each two ports that are the ends of one veth pair.
    #[must_use]
    pub fn pair_warnings(&self) -> Vec<String> {
        let ports = self.names.iter().zip(&self.port_info);
        pairs::warnings(ports.map(|(name, info)| Opened {
            name,
            kind: &info.kind,
            device: &info.device,
        }))
    }

    /// The devices that were opened, in the order of the configuration.
    #[must_use]
    pub fn devices(&self) -> &[PortInfo] {
        &self.port_info
    }

    pub(super) const fn live(&self) -> &Live {
        &self.live
    }

    pub(super) const fn marks(&self) -> &Watermarks {
        &self.watermarks
    }

    /// By port number.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Passes of each worker's loop.
    pub fn beats(&self) -> impl Iterator<Item = u64> + '_ {
        self.live.beats()
    }

    /// Calls `look` with each mirror into a file and the name of the port that it mirrors.
    pub(super) fn mirrors(&self, mut look: impl FnMut(&str, &Mirror)) {
        for (port, (mirror, _)) in &self.lock().mirrors {
            look(self.names.get(port.index()).map_or("", String::as_str), mirror);
        }
    }

    /// Stops the switch, ends all mirrors and the record. Returns the final counters, the workers that do not stop, and
    /// how the record ended.
    #[must_use]
    pub fn stop(&self) -> (Ledger, Option<Stuck>, Option<Summary>) {
        let (ledger, stuck) = self.live.stop();
        // After the workers: copies of the last frames are in the file, too.
        self.lock().mirrors.clear();
        // Last, as the record ends with the final counters.
        let record = self.live.end_record(&ledger);
        (ledger, stuck, record)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn port(&self, name: &str) -> Result<PortId, Refused> {
        let index = self.names.iter().position(|n| n == name);
        index.and_then(PortId::new).ok_or_else(|| {
            Refused::bad_request(format!("no port {name:?}; there are {}", self.names.join(", ")))
        })
    }

    fn name(&self, port: PortId) -> String {
        self.names.get(port.index()).cloned().unwrap_or_default()
    }

    /// Address and guard of the CCI listener; `None` where managers cannot connect.
    #[must_use]
    pub fn cci(&self) -> Option<String> {
        self.live.cci()
    }

    /// Address and guard of the listener for CCI over MCTP; `None` where managers cannot connect.
    #[must_use]
    pub fn mctp(&self) -> Option<String> {
        self.live.mctp()
    }

    fn source<R>(&self, look: impl FnOnce(&Source<'_>) -> R) -> R {
        // The kernel's counters are added up and the interfaces are asked before the workers are held: both take system
        // calls.
        self.live.count_express();
        let (name, port_info) = self.about();
        let held = self.live.workers().quiesce();
        // A report is given even when a worker is stuck, and says so: that is when it is needed most.
        let stuck = held.as_ref().err();
        let (core, now) = (self.live.core(), self.live.now());
        let watermarks = Some(&self.watermarks);
        look(&Source { name: &name, core, port_info: &port_info, now, stuck, watermarks })
    }

    /// Name of the switch, and the facts about its ports that do not come from counters.
    fn about(&self) -> (String, Vec<PortInfo>) {
        // The lock is released before the interfaces are asked: they are many system calls.
        let (name, longest) = {
            let state = self.lock();
            let ports = state.config.switch.ports.iter();
            (
                state.config.run.name.clone(),
                ports.map(|port| port.frame_len_max).collect::<Vec<_>>(),
            )
        };
        let mut port_info = self.port_info.clone();
        for (info, longest) in port_info.iter_mut().zip(longest) {
            info.mtu_warning = mtu::of_port(&info.kind, &info.device, longest);
        }
        for (port_info, reason) in port_info.iter_mut().zip(self.live.no_express()) {
            port_info.no_express = reason;
        }
        (name, port_info)
    }

    /// Restarts `marks` for `reader`. The workers must be quiesced.
    pub(super) fn restart(&self, reader: Reader, marks: &[Mark]) {
        self.live.note(&Change::RestartWatermarks { marks: marks.to_vec() });
        self.watermarks.restart(reader, self.live.core(), marks);
    }

    /// Applies the static entries in `state`; on failure they become what they were `before`.
    fn apply_or_restore(&self, state: &mut State, before: Entries) -> Result<(), Refused> {
        let applied = self.apply(state, None);
        if applied.is_err() {
            (state.added, state.config.switch.forward.static_entries) = before;
        }
        applied
    }

    /// Applies the configuration in `state` together with the entries that management added. `sources` are the texts
    /// that it was made from, if they have changed.
    fn apply(&self, state: &State, sources: Option<&Sources>) -> Result<(), Refused> {
        let mut switch = state.config.switch.clone();
        switch.forward.static_entries.extend(state.added.iter().copied());
        (switch.mirror, switch.tx_off) = (state.config.switch.mirror, state.config.switch.tx_off);
        self.live.reload(switch, sources).map_err(|error| Refused::because(error.to_string()))
    }

    /// Reads the configuration again and puts it in force, whole or not at all.
    fn read_again(&self, path: Option<&FilePath>) -> Result<Value, Refused> {
        let is_stdin = self.args.config.as_deref() == Some(FilePath::new("-"));
        if path.is_none() && is_stdin {
            let why = "the configuration came from standard input, which is read once: name a file (weft reload FILE)";
            return Err(Refused::because(why));
        }
        let mut args = self.args.clone();
        if let Some(path) = path {
            args.config = Some(path.to_owned());
        }
        let refuse = |error: &dyn std::fmt::Display| Refused::because(error.to_string());
        let sources =
            args.sources(OpenedBy::Service).map_err(|error| refuse(&with_causes(&error)))?;
        let settings = sources.settings().map_err(|error| refuse(&error))?;
        let mut config =
            Config::resolve(&settings, Timing::Live).map_err(|error| refuse(&error))?;
        let mut state = self.lock();
        let problems = config.restart_needed(&state.config);
        if !problems.is_empty() {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(Refused::because(lines.join("\n")));
        }
        // Mirrors and held ports were set by requests, not by the file: a reload keeps them.
        let before = &state.config.switch;
        (config.switch.mirror, config.switch.tx_off) = (before.mirror, before.tx_off);
        // Turned on at the start if SAI is served, be it by a flag that the configuration does not know.
        config.switch.lossy_watermarks = before.lossy_watermarks;
        // The new configuration stands in `state` while it is applied, as `apply` takes it from there; a refusal puts
        // the old one back.
        let old = core::mem::replace(&mut state.config, config);
        if let Err(refused) = self.apply(&state, Some(&sources)) {
            state.config = old;
            return Err(refused);
        }
        let epoch = self.live.core().snapshot.load().epoch;
        Ok(json!({ "epoch": epoch }))
    }
}

impl Backend for SwitchHandle {
    fn stats(&self, restart: Option<ShowTopic>) -> StatsSnapshot {
        let fabric = self.live.fabric().map(Box::new); // its lock is not taken while workers are held
        self.source(|source| {
            let events = events::log().counts();
            let stats = StatsSnapshot { events, fabric, ..source.stats() };
            if let Some(topic) = restart
                // With a stuck worker the others are not held, and a restart would race with their updates.
                && source.stuck.is_none()
            {
                let config = &self.live.core().snapshot.load().config;
                let mut marks: Vec<_> = Mark::all(config.ports.len(), config.pris).collect();
                // A topic that shows no watermark restarts all of them.
                if marks.iter().any(|mark| mark.is_of(topic)) {
                    marks.retain(|mark| mark.is_of(topic));
                }
                self.restart(Reader::Show, &marks);
            }
            stats
        })
    }

    // A glance: nothing here holds a worker or waits for one, so that pages may ask many times a second.
    fn look(&self, pauses: &mut Pauses) -> StatsSnapshot {
        let core = self.live.core();
        let fabric = self.live.fabric_with(|| Ledger::read(core)).map(Box::new);
        let mut ledger = Ledger::read(core);
        for (id, port) in (0..).map_while(PortId::new).zip(&mut ledger.port) {
            *port = self.live.glance(id);
        }
        let (name, port_info) = self.about();
        pauses.read(core, self.live.now());
        let source = Source {
            name: &name,
            core,
            port_info: &port_info,
            now: self.live.now(),
            stuck: None,
            watermarks: Some(&self.watermarks),
        };
        StatsSnapshot { events: events::log().counts(), fabric, ..source.stats_of(&ledger) }
    }

    fn process(&self) -> Result<ProcessReport, Refused> {
        let confined = self.confined.get().cloned().unwrap_or_default();
        confined.report().map_err(|error| Refused::unavailable(error.to_string()))
    }

    fn fdb(&self) -> Vec<FdbRow> {
        #[expect(clippy::redundant_closure_for_method_calls, reason = "of any lifetime")]
        self.source(|source| source.fdb_rows())
    }

    fn fdb_add(&self, vid: u16, addr: AddrKey, port: &str) -> Result<(), Refused> {
        let mut state = self.lock();
        // A LAG is known by its lowest member (`leader`): its stations are entered there.
        let lag = state.config.switch.lags.iter().find(|lag| lag.name == port);
        let port = match lag.and_then(|lag| lag.ports.lowest()) {
            Some(first) => first,
            None => self.port(port)?,
        };
        let entry = StaticEntry::new(FdbKey::new(Vid::from_low_bits(vid), addr), port);
        let before = entries(&state);
        state.added.retain(|had| had.key != entry.key);
        state.added.push(entry);
        // One entry a key: the new one also replaces the configuration's, or the two would contradict each other.
        state.config.switch.forward.static_entries.retain(|had| had.key != entry.key);
        self.apply_or_restore(&mut state, before)
    }

    fn fdb_del(&self, vid: u16, addr: AddrKey) -> Result<(), Refused> {
        let key = FdbKey::new(Vid::from_low_bits(vid), addr);
        let mut state = self.lock();
        let before = entries(&state);
        state.added.retain(|entry| entry.key != key);
        state.config.switch.forward.static_entries.retain(|entry| entry.key != key);
        // The key was static: applying the rest removes it. Otherwise it is a learned entry, which is in no
        // configuration.
        if entries(&state) != before {
            return self.apply_or_restore(&mut state, before);
        }
        let del = || {
            // Recorded before it is done, with the workers held, as `Live::note` asks.
            self.live.note(&Change::fdb_del(key));
            self.live.core().fdb.del(key)
        };
        let done = self.live.workers().with_quiesced(del);
        if done.map_err(|stuck| Refused::unavailable(stuck.to_string()))? {
            return Ok(());
        }
        Err(Refused::because(format!("no entry {addr} in VLAN {vid}")))
    }

    fn reload(&self, path: Option<&FilePath>) -> Result<Value, Refused> {
        let done = self.read_again(path);
        match &done {
            Ok(_) => events::post(Kind::Reloaded, "", "another configuration is in force"),
            Err(refused) => events::post(Kind::ReloadRefused, "", &refused.message),
        }
        done
    }

    fn mirror(&self, port: &str, to: Option<&MirrorTarget>) -> Result<(), Refused> {
        let from = self.port(port)?;
        let slot = self.slots.get(from.index()).cloned().unwrap_or_default();
        let mut state = self.lock();
        // The slot is emptied before the old file ends, so that no copy is queued for a writer that has gone.
        slot.set(None);
        if let Some((old, _)) = state.mirrors.remove(&from) {
            let report = old.finish();
            report.written.map_err(|error| Refused::because(error.to_string()))?;
        }
        let mut mirrored = state.config.switch.mirror.map_or(PortSet::EMPTY, |m| m.from);
        mirrored.remove(from);
        let mut target = state.config.switch.mirror.map(|m| m.to);
        match to {
            None => {}
            Some(to @ (MirrorTarget::File(path) | MirrorTarget::Replace(path))) => {
                let format = CaptureFormat::for_path(path);
                let overwrite = matches!(to, MirrorTarget::Replace(_));
                let existing = Existing::replace_if(overwrite);
                let mirror = Mirror::start(path, existing, format, 0, MIRROR_SLOTS, &[port])
                    .map_err(|error| Refused::because(with_causes(&error)))?;
                // Before copies begin, or the first frames could still be forwarded by the kernel, unseen.
                let watch = self.live.watch();
                slot.set(Some(mirror.handle(0)));
                state.mirrors.insert(from, (mirror, watch));
            }
            Some(MirrorTarget::Port(name)) => {
                let port = self.port(name)?;
                if port == from {
                    return Err(Refused::bad_request("a port cannot be mirrored to itself"));
                }
                // The switch has one mirror target: another port may use it only if it is the same.
                if target.is_some_and(|t| t != port) && !mirrored.is_empty() {
                    return Err(Refused::because("another port is the mirror's target already"));
                }
                target = Some(port);
                mirrored.insert(from);
            }
        }
        let mirror = target.filter(|_| !mirrored.is_empty());
        state.config.switch.mirror = mirror.map(|to| MirrorConfig { from: mirrored, to });
        self.apply(&state, None)
    }

    fn port_tx(&self, port: &str, on: bool) -> Result<(), Refused> {
        let id = self.port(port)?;
        // Hosts and managers in the fabric get their answers by this port: held, it would cut them off.
        if self.live.core().snapshot.load().cpu_port == Some(id) {
            let why = format!("port {port} leads to the switch's own functions, and always sends");
            return Err(Refused::because(why));
        }
        let mut state = self.lock();
        let before = state.config.switch.tx_off;
        let after =
            if on { before.without(PortSet::only(id)) } else { before.or(PortSet::only(id)) };
        state.config.switch.tx_off = after;
        if after == before {
            return Ok(());
        }
        if let Err(refused) = self.apply(&state, None) {
            state.config.switch.tx_off = before;
            return Err(refused);
        }
        // `until_in_force` may wait for seconds; other requests go on meanwhile.
        drop(state);
        let (kind, what) = if on {
            (Kind::TxOn, "it sends again")
        } else {
            (Kind::TxOff, "its queues are held; PFC frames are sent still")
        };
        events::post(kind, port, what);
        self.live.until_in_force(id, on).map_err(Refused::unavailable)
    }

    fn conform_params(&self, packet_size: u64) -> Params {
        let core = self.live.core();
        Params::of(&core.snapshot.load(), packet_size, core.stats.len())
    }

    fn pbr_edge(&self, port: &str, hpa: u64) -> Result<Value, Refused> {
        let id = self.port(port)?;
        let tables = self.live.core().tables.load();
        let steps = explain::edge(&tables, id, Hpa(hpa));
        let steps = steps.ok_or_else(|| {
            Refused::because(format!("port {port:?} is no edge: it has no role usp or dsp"))
        })?;
        Ok(fabric::edge(&steps, &|id| self.name(id)))
    }

    fn pbr_route(&self, dpid: u16) -> Result<Value, Refused> {
        if self.live.core().snapshot.load().cpu_port.is_none() {
            return Err(Refused::because("no port of this switch has a role: it routes no TLPs"));
        }
        let (tables, dpid) = (self.live.core().tables.load(), Pid::from_low_bits(dpid));
        let steps = explain::route(&tables, dpid);
        Ok(fabric::route(dpid, &steps, &|id| self.name(id)))
    }

    fn trace(
        &self,
        filter: Option<&str>,
        count: u64,
        bytes: bool,
    ) -> Result<Box<dyn TraceStream>, Refused> {
        let number = |name: &str| self.port(name).ok().map(PortId::get);
        let filter = Filter::parse(filter.unwrap_or(""), number).map_err(Refused::bad_request)?;
        // The watch begins before the trace, or the first frames might be forwarded by the kernel and have no path.
        let watch = self.live.watch();
        let wanted = Wanted { filter, count, bytes };
        let stream = self.traces.begin(self.live.workers(), wanted, self.names.clone());
        let stream = stream.map_err(|why| {
            Refused::unavailable(format!("no more traces at a time: {why}; end another one first"))
        })?;
        Ok(Box::new(stream.with(watch)))
    }
}
