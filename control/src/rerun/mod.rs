//! Replays a record: builds the same switch again and compares every decision.
//!
//! A record → [`RecordReport`]. Frames that the ports send go to a capture for each port, if wanted, with nanoseconds
//! since the start of the switch.
//!
//! Source: docs/spec/pipeline.md §13.

mod report;

use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use weft_config::resolve::Config;
use weft_config::{ConfigError, Sources, Timing};
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::{Core, Ledger};
use weft_dataplane::pool::Pool;
use weft_dataplane::port::PortCaps;
use weft_dataplane::port::capture::{CaptureError, CaptureFormat, CaptureWriter};
use weft_dataplane::port::record::{Answer, Call, Entry, RecordError, RecordReader, Script};
use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Listen};
use weft_dataplane::types::{PortId, PortSet};
use weft_dataplane::worker::{Divergence, Replaying};

use self::report::{Counts, differences};
pub use self::report::{RecordReport, Recorded, hex};
use crate::live::{LiveError, assemble, chunks, pool, successor, take_over};
use crate::paths::TraceError;
use crate::record::{self, Change, Header};
use crate::replay::trace::Tracer;
use crate::replay::{Look, capture_name};
use crate::report::watermarks::Mark;

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read, or is damaged.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Text that control wrote is damaged.
    #[error("damaged: {0}")]
    Text(String),
    #[error("its configuration: {0}")]
    Config(#[from] ConfigError),
    /// The switch cannot be built.
    #[error(transparent)]
    Switch(#[from] LiveError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Options of a replay.
#[derive(Default)]
pub struct Job<'a> {
    /// Existing folder for a capture of each port.
    pub out: Option<&'a Path>,
    /// Called with the switch after each step, and once at the end.
    pub look: Option<Look<'a>>,
}

/// Frames that ports sent: counted, and written to captures.
struct Outputs {
    counts: Vec<u64>,
    captures: Vec<CaptureWriter>,
    error: Option<CaptureError>,
}

impl Outputs {
    fn put(&mut self, port: usize, at: Instant, frame: &[u8]) {
        if let Some(count) = self.counts.get_mut(port) {
            *count += 1;
        }
        if let Some(capture) = self.captures.get_mut(port).filter(|_| self.error.is_none())
            && let Err(error) = capture.write(at.as_ns(), frame, None)
        {
            self.error = Some(error);
        }
    }
}

fn lock(outputs: &Mutex<Outputs>) -> MutexGuard<'_, Outputs> {
    outputs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A record whose header has been read, ready for [`replay`].
pub struct Record<R> {
    reader: RecordReader<R>,
    header: Header,
    config: Config,
    /// The configuration, with the ports' addresses and the probes' key from the header.
    switch: SwitchConfig,
}

impl<R: Read> Record<R> {
    /// Reads the header, and resolves its configuration.
    ///
    /// # Errors
    /// The file is no record, or one that another version of weft wrote.
    pub fn open(from: R) -> Result<Self, ReplayError> {
        let (reader, text) = RecordReader::new(from)?;
        let header: Header = read_text(&text)?;
        let config = resolve(&header.sources)?;
        let mut switch = config.switch.clone();
        let macs = header.addresses().filter(|macs| macs.len() == switch.ports.len());
        let macs = macs.ok_or_else(|| ReplayError::Text("no address for each port".to_owned()))?;
        for (port, mac) in switch.ports.iter_mut().zip(macs) {
            port.parse.port_mac = mac;
        }
        // Else probes would differ from those in the recorded frames, and loops be found at other steps.
        switch.forward.probe_key = header.probe_key;
        Ok(Self { reader, header, config, switch })
    }

    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }
}

/// Replays `record`. Decisions go to `tracer`, the number of steps so far to `progress`.
///
/// # Errors
/// See [`ReplayError`]. A difference is not an error: the report lists it.
pub fn replay<R: Read>(
    record: Record<R>,
    job: &Job<'_>,
    mut tracer: Option<Tracer<'_>>,
    progress: &dyn Fn(u64),
) -> Result<RecordReport, ReplayError> {
    let Record { mut reader, header, config, switch } = record;
    let names: Vec<&str> = config.switch.ports.iter().map(|port| port.name.as_str()).collect();
    let mut captures = Vec::new();
    if let Some(out) = job.out {
        for name in &names {
            let path = out.join(capture_name(name));
            captures.push(CaptureWriter::create(path, CaptureFormat::Pcap, 0)?);
        }
    }
    let counts = vec![0; names.len()];
    let outputs = Arc::new(Mutex::new(Outputs { counts, captures, error: None }));
    let to = outputs.clone();
    let sent = move |port: usize, at, frame: &[u8]| lock(&to).put(port, at, frame);
    let script = Script::new(names.len(), Some(Box::new(sent)));
    let count = header.chunks.unwrap_or_else(|| chunks(&switch, 1));
    let pool = pool(&config.run, count).map_err(LiveError::from)?;
    let mut run = Run::new(&pool, switch, script, OptionalTracer(tracer.as_mut()))?;
    let look = |now: Instant, core: &Core, is_end: bool| {
        if let Some(look) = job.look {
            look(now, core, is_end);
        }
    };
    let ended = run.all(&mut reader, progress, &look)?;
    let report = run.report(ended, &names, &outputs);
    if let Some(tracer) = tracer {
        tracer.finish()?;
    }
    let mut outputs = lock(&outputs);
    if let Some(error) = outputs.error.take() {
        return Err(error.into());
    }
    for capture in core::mem::take(&mut outputs.captures) {
        capture.finish()?;
    }
    Ok(report)
}

/// Passes events to a tracer, if there is one.
struct OptionalTracer<'r, 'a>(Option<&'r mut Tracer<'a>>);

impl Listen for OptionalTracer<'_, '_> {
    fn listen(&mut self, now: Instant, event: &Event) {
        if let Some(tracer) = &mut self.0 {
            tracer.listen(now, event);
        }
    }

    fn bytes(&mut self, frame: u64, bytes: &[u8]) {
        if let Some(tracer) = &mut self.0 {
            tracer.bytes(frame, bytes);
        }
    }
}

fn read_text<'a, T: serde::Deserialize<'a>>(text: &'a [u8]) -> Result<T, ReplayError> {
    serde_json::from_slice(text).map_err(|error| ReplayError::Text(error.to_string()))
}

fn resolve(sources: &Sources) -> Result<Config, ConfigError> {
    Config::resolve(&sources.settings()?, Timing::Live)
}

/// How the record ended.
#[derive(Default)]
struct Ended {
    divergence: Option<Divergence>,
    cut_at: Option<u64>,
    /// Hashes of decisions and of sent frames, and the number of decisions.
    stop: Option<([u64; 2], u64)>,
    counters: Option<Value>,
}

/// A replay under way.
struct Run<L> {
    again: Replaying<L>,
    script: Script,
    /// Configuration in force; a change without new texts starts from it.
    switch: SwitchConfig,
    received: u64,
    /// Hash and number of decisions at the end of the run.
    decided: (u64, u64),
}

impl<L: Listen> Run<L> {
    fn new(
        pool: &Arc<Pool>,
        switch: SwitchConfig,
        script: Script,
        listener: L,
    ) -> Result<Self, ReplayError> {
        // All ports on one worker, as in every recorded run.
        let all = (0..switch.ports.len()).filter_map(PortId::new).collect();
        let built = assemble(switch.clone(), pool, &[all])?;
        let lane = built.lanes.into_iter().next();
        let lane = lane.ok_or_else(|| ReplayError::Text("a switch without ports".to_owned()))?;
        let caps = switch.ports.iter().map(|port| PortCaps {
            kind: "record",
            device: port.name.clone(),
            frame_len_max: port.frame_len_max,
            rate: port.rate,
            tx_partial_csum: true,
            virtual_time: false,
        });
        let again = Replaying::new(lane, caps.collect(), script.clone(), listener);
        Ok(Self { again, script, switch, received: 0, decided: (0, 0) })
    }

    /// Goes through all entries, up to the first step that does not do as recorded.
    fn all<R: Read>(
        &mut self,
        reader: &mut RecordReader<R>,
        progress: &dyn Fn(u64),
        look: Look<'_>,
    ) -> Result<Ended, ReplayError> {
        const PROGRESS_EVERY: u64 = 4_096;
        let mut ended = Ended::default();
        loop {
            let entry = match reader.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // A killed switch leaves a record without an end; its whole steps are replayed all the same.
                Err(RecordError::Cut { at }) => {
                    ended.cut_at = Some(at);
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            // Only the final counters may follow: anything else would be replayed on a switch that has stopped.
            if ended.stop.is_some() && !matches!(entry, Entry::Counts(_)) {
                return Err(ReplayError::Text("data after the stop".to_owned()));
            }
            let done = match entry {
                Entry::Step { now, calls, digest } => {
                    self.count(&calls);
                    let done = self.again.step(now, calls, digest);
                    look(now, self.again.core(), false);
                    done
                }
                // Changes were recorded while no worker was in a step; they are made at the same place here.
                Entry::Change(text) => {
                    self.change(read_text(&text)?)?;
                    Ok(())
                }
                Entry::Stop { now, calls, trace_hash, sent_hash, events } => {
                    ended.stop = Some(([trace_hash, sent_hash], events));
                    self.again.stop(now, calls)
                }
                Entry::Counts(text) => {
                    ended.counters = Some(read_text(&text)?);
                    Ok(())
                }
            };
            if self.again.steps().is_multiple_of(PROGRESS_EVERY) {
                progress(self.again.steps());
            }
            if let Err(divergence) = done {
                ended.divergence = Some(divergence);
                break;
            }
        }
        // Before `end` empties the queues, so that the page shows them as the run left them.
        look(self.again.now(), self.again.core(), true);
        // Likewise: `end` makes decisions that are not in the record.
        self.decided = (self.again.trace_hash(), self.again.events());
        if ended.stop.is_none() {
            self.again.end();
        }
        Ok(ended)
    }

    fn count(&mut self, calls: &[Call]) {
        for call in calls {
            if let Answer::Rx(frames, _) = &call.answer {
                self.received += frames.len() as u64;
            }
        }
    }

    /// Makes a change as control did, with the same outcome: a change that was refused then is refused now.
    fn change(&mut self, change: Change) -> Result<(), ReplayError> {
        let wrong = || ReplayError::Text("a change that names something unknown".to_owned());
        let core = self.again.core();
        match change {
            Change::Config { sources, entries, mirror, tx_off } => {
                let mut switch = match sources {
                    Some(sources) => resolve(&sources)?.switch,
                    None => self.switch.clone(),
                };
                let entries: Option<Vec<_>> =
                    entries.into_iter().map(record::Entry::read).collect();
                switch.forward.static_entries = entries.ok_or_else(wrong)?;
                let mirror = mirror.map(|(from, to)| record::mirror(from, to).ok_or_else(wrong));
                switch.mirror = mirror.transpose()?;
                switch.tx_off = PortSet::from_bits(tx_off);
                // `successor` checks the configuration itself; a bit set in the record may name any port.
                let ports = switch.ports.len();
                let stays = |port: PortId| port.index() < ports;
                let mirrored = switch.mirror.is_none_or(|mirror| stays(mirror.to));
                if !mirrored || !switch.forward.static_entries.iter().all(|e| stays(e.port)) {
                    return Err(wrong());
                }
                let new = successor(core, switch.clone())?;
                // A refusal here is part of the run: control was refused as well, and went on with the old
                // configuration.
                if take_over(core, &new).is_ok() {
                    self.switch = switch;
                }
            }
            Change::FdbDel { vid, addr } => {
                core.fdb.del(record::key(vid, addr).ok_or_else(wrong)?);
            }
            Change::RestartWatermarks { marks } => restart_watermarks(core, &marks),
        }
        Ok(())
    }

    /// Report of the replay. A run without an end is shown as it stood after its last step; frames queued then count as
    /// dropped.
    fn report(&self, ended: Ended, names: &[&str], outputs: &Mutex<Outputs>) -> RecordReport {
        let ledger = Ledger::read(self.again.core());
        let counts = Counts {
            trace_hash: self.decided.0,
            sent_hash: self.script.sent_hash(),
            events: self.decided.1,
            // The stop is an entry of its own and counted as a step by `Replaying`.
            steps: self.again.steps() - u64::from(ended.stop.is_some()),
            end_ps: self.again.now().as_ps(),
            inputs: self.received,
            outputs: self.script.sent_count(),
        };
        let mut report = RecordReport::new(&counts, &ledger, names, &lock(outputs).counts);
        if let Some(([trace_hash, sent_hash], events)) = ended.stop {
            let recorded =
                Recorded { trace_hash: hex(trace_hash), sent_hash: hex(sent_hash), events };
            // After a divergence the hashes differ in any case.
            if ended.divergence.is_none() {
                let pairs = [
                    ("trace hash", &recorded.trace_hash, &report.trace_hash),
                    ("hash of sent frames", &recorded.sent_hash, &report.sent_hash),
                ];
                for (what, want, got) in pairs {
                    if want != got {
                        report.differences.push(format!("{what}: recorded {want}, replayed {got}"));
                    }
                }
            }
            report.recorded = Some(recorded);
        }
        if let Some(want) = ended.counters
            && let Ok(got) = serde_json::to_value(&ledger)
        {
            report.differences.extend(differences(&got, &want));
        }
        report.cut_at = ended.cut_at;
        report.divergence = ended.divergence.map(|divergence| divergence.to_string());
        report
    }
}

/// Restarts `marks`, or all watermarks if the list is empty.
fn restart_watermarks(core: &Core, marks: &[Mark]) {
    if marks.is_empty() {
        let snapshot = core.snapshot.load();
        let all = Mark::all(snapshot.config.ports.len(), snapshot.config.pris);
        return all.for_each(|mark| mark.begin_again(core));
    }
    for mark in marks {
        mark.begin_again(core);
    }
}
