//! `weft run`: runs the switch until a signal stops it.
//!
//! Starts a [`SwitchHandle`] from the settings, serves the management socket, metrics and SAI, and prints the final
//! counters, in frames, and the result of the record.
//!
//! Source: docs/spec/pipeline.md §10 and §11.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use clap::Args;
use serde::Serialize;
use signal_hook::consts::SIGXFSZ;
use weft_base::files::{self, Existing, OpenedBy};
use weft_base::threads::{self, Ends, Role};
use weft_config::Sources;
use weft_config::places::listen_addr;
use weft_config::resolve::{Config, Timing};
use weft_control::events::{self, Kind};
use weft_control::live::backend::SwitchHandle;
use weft_control::live::watch::Watcher;
use weft_control::live::{NewRecord, confine};
use weft_control::log::{Level, Log};
use weft_control::metrics;
use weft_control::mgmt::Server;
use weft_control::requests::{Backend, SwitchHandler};
use weft_control::rerun::hex;
use weft_control::sai;
use weft_control::sai::service::Service;
use weft_control::serve::{TcpServer, raise_descriptor_limit};
use weft_control::supervise::{Heartbeats, Notifier, Supervisor, WELL_MISSED};
use weft_dataplane::pipeline::Ledger;
use weft_dataplane::port::record::Summary;
use weft_dataplane::stats::DropReason;

use crate::error::CliError;
use crate::interfaces::InterfaceArgs;
use crate::settings::SettingsArgs;

/// Address of the SAI service if `--sai` gives none.
const SAI_LISTEN: &str = "127.0.0.1:9092";

/// Arguments of `weft run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    interfaces: InterfaceArgs,
    /// Serve Prometheus metrics at this address, such as 127.0.0.1:9464, or 9464 on loopback
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    metrics: Option<SocketAddr>,
    /// Serve SAI's RPC at this address, such as 127.0.0.1:9092, or 9092 on loopback (docs/sai.md)
    #[arg(long, value_name = "ADDR", value_parser = listen, num_args = 0..=1, default_missing_value = SAI_LISTEN)]
    sai: Option<SocketAddr>,
    /// Record the run for `weft replay --record`; needs a single worker. The file contains all received frames
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Replace existing files: the record, and captures written by ports
    #[arg(long)]
    overwrite: bool,
    /// Print the final counters as JSON
    #[arg(long)]
    json: bool,
}

/// Final counters and record, as JSON.
#[derive(Serialize)]
struct Final<'a> {
    #[serde(flatten)]
    counters: &'a Ledger,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<Recorded>,
}

/// Result of a record.
#[derive(Serialize)]
struct Recorded {
    file: PathBuf,
    steps: u64,
    bytes: u64,
    /// Number of decisions that the trace hash covers.
    events: u64,
    /// Hash of all decisions and their times; `None` if it was not computed.
    trace_hash: Option<String>,
    /// Hash of all frames that ports have sent.
    sent_hash: String,
    /// Why the record ends before the run does.
    error: Option<String>,
}

impl Recorded {
    fn new(file: &Path, summary: &Summary) -> Self {
        Self {
            file: file.to_owned(),
            steps: summary.steps,
            bytes: summary.bytes,
            events: summary.events,
            trace_hash: summary.trace_hash.map(hex),
            sent_hash: hex(summary.sent_hash),
            error: summary.failed.as_ref().map(ToString::to_string),
        }
    }

    fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let (file, steps, bytes) = (self.file.display(), self.steps, self.bytes);
        writeln!(out, "record {file}: {steps} steps, {bytes} bytes")?;
        if let Some(error) = &self.error {
            writeln!(out, "record {file} ends before the run: {error}")?;
        }
        match &self.trace_hash {
            Some(hash) => writeln!(out, "trace hash {hash} over {} decisions", self.events),
            None => Ok(()),
        }
    }
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    listen_addr(text).ok_or_else(|| "expected ADDRESS:PORT, or a port of loopback".to_owned())
}

/// Runs the switch.
///
/// # Errors
/// A configuration that is refused, interfaces that do not appear in time, or a device that cannot be opened.
pub fn run(mut args: RunArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut sources = args.settings.sources()?;
    let mut settings = sources.settings()?;
    let found = args.interfaces.find(&settings, Log::of(&settings));
    let found = found.map_err(|source| CliError::system("find interfaces", source))?;
    if found.is_stopped() {
        return Ok(());
    }
    // Like ports of `--port`: a reload then finds the same ports, and a record contains them.
    for flag in &found.flags {
        settings.set_port(flag, "--ports")?;
    }
    args.settings.port.extend_from_slice(&found.flags);
    sources.port.clone_from(&args.settings.port);
    let mut config = Config::resolve(&settings, Timing::Live)?;
    for port in &mut config.run.ports {
        port.existing = Existing::replace_if(args.overwrite);
    }
    config.run.metrics = args.metrics.or(config.run.metrics);
    config.run.sai = args.sai.or(config.run.sai);
    // Only SAI reads watermarks of lossy priority groups.
    config.switch.lossy_watermarks = config.run.sai.is_some();
    let log = Log { least: config.run.log, format: config.run.log_format };
    for warning in &config.warnings {
        log.say(Level::Warn, "start", &warning.to_string());
    }
    // With SIGXFSZ caught, a file at its size limit (setrlimit(2)) fails the write with EFBIG instead of ending the
    // switch.
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(|source| CliError::system("catch SIGXFSZ", source))?;
    let record =
        args.record.as_deref().map(|path| new_record(path, args.overwrite, &config, sources));
    let (switch, entered, mut supervisor) =
        open_confined(&args, &config, record.transpose()?, log)?;
    // The supervisor catches signals by now.
    found.hand_over();
    let watcher = Watcher::start(&switch, log)
        .map_err(|source| CliError::system("start a thread", source))?;
    let served = serve(&config, &switch)?;
    let confined = entered
        .seal()
        .map_err(|source| CliError::system("give up what the switch does not need", source))?;
    switch.set_confined(confined);
    say_up(&config, &switch, &served, log);
    let mut look = Look::new(&switch);
    let signal = supervisor.wait(|notifier, is_hup| look.look(notifier, is_hup));
    log.say_in_time(Level::Info, "stop", &format!("stopping on {signal}"));
    // No client may change the switch, or wait for it, while it stops.
    drop(served);
    let (counters, stuck, summary) = switch.stop();
    drop(watcher);
    let path = args.record.as_deref().unwrap_or(Path::new(""));
    let record = summary.as_ref().map(|summary| Recorded::new(path, summary));
    if args.json {
        super::write_json(out, &Final { counters: &counters, record })?;
    } else {
        print(&config, &counters, out).map_err(CliError::Output)?;
        record.map_or(Ok(()), |record| record.print(out)).map_err(CliError::Output)?;
    }
    // After the counters were printed: they are approximate, but still useful.
    if let Some(stuck) = stuck {
        return Err(CliError::Late(stuck.to_string()));
    }
    match summary.and_then(|summary| summary.failed) {
        Some(source) => Err(CliError::File { verb: "write", path: path.to_owned(), source }),
        None => Ok(()),
    }
}

/// Logs the devices that the switch has opened, and the addresses at which it serves clients.
fn say_up(config: &Config, switch: &SwitchHandle, served: &Served, log: Log) {
    for (port, opened) in config.switch.ports.iter().zip(switch.devices()) {
        let (name, kind, device) = (&port.name, &opened.kind, &opened.device);
        let note = opened.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
        log.say(Level::Info, "start", &format!("port {name}: {kind} {device}{note}"));
    }
    for (name, warning) in switch.mtu_warnings() {
        log.say(Level::Warn, "start", &format!("port {name}: {warning}"));
    }
    for warning in switch.pair_warnings() {
        log.say(Level::Warn, "start", &warning);
    }
    if let Some(sai) = &served.sai {
        log.say(Level::Info, "start", &format!("SAI service at {}", sai.addr()));
    }
    if let Some(at) = switch.cci() {
        log.say(Level::Info, "start", &format!("CCI at {at}"));
    }
    if let Some(at) = switch.mctp() {
        log.say(Level::Info, "start", &format!("CCI over MCTP at {at}"));
    }
    log.say(Level::Info, "start", &format!("switch {:?} is up", config.run.name));
}

/// Gives up unneeded rights and starts the switch. System calls are filtered later, when everything is open.
fn open_confined(
    args: &RunArgs,
    config: &Config,
    record: Option<NewRecord>,
    log: Log,
) -> Result<(Arc<SwitchHandle>, confine::Entered, Supervisor), CliError> {
    raise_descriptor_limit()
        .map_err(|source| CliError::system("raise the limit of descriptors", source))?;
    // Before any thread is made: capabilities and Landlock's rules are each thread's own, and are inherited.
    let mut entered = confine::enter(config)
        .map_err(|source| CliError::system("give up what the switch does not need", source))?;
    warn_of_reload(args.settings.config.as_deref(), log);
    // First of all threads, so that it notices the unexpected end of any other.
    let supervisor = Supervisor::begin(log)?;
    let started =
        SwitchHandle::start(args.settings.clone().into(), config.clone(), record, entered.raiser());
    if let (Err(_), Some(path), false) = (&started, &args.record, args.overwrite)
        && path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
    {
        drop(std::fs::remove_file(path)); // made just now, and nothing is in it
    }
    let switch = started.map_err(|source| {
        CliError::system(format!("start switch {:?}", config.run.name), source)
    })?;
    for warning in switch.warnings() {
        log.say(Level::Warn, "start", warning);
    }
    Ok((Arc::new(switch), entered, supervisor))
}

/// Warns if the configuration, which was read a moment ago, cannot be read again: without the rights that were given
/// up, or as another user.
fn warn_of_reload(config: Option<&Path>, log: Log) {
    let Some(path) = config.filter(|path| *path != Path::new("-")) else { return };
    if let Err(error) = files::open(path, OpenedBy::Service) {
        let path = path.display();
        log.say(
            Level::Warn,
            "start",
            &format!("{path}: {error}: `weft reload` cannot read it again"),
        );
    }
}

/// The servers of clients; dropped in this order.
struct Served {
    sai: Option<TcpServer>,
    _metrics: Option<TcpServer>,
    _management: Server,
}

/// Serves the management socket, and metrics and SAI if they are configured.
fn serve(config: &Config, switch: &Arc<SwitchHandle>) -> Result<Served, CliError> {
    let service = Arc::new(Service::new(switch.clone()));
    let handler = SwitchHandler::new(switch.clone()).with_sai(service.clone());
    let server = Server::start(&config.run.socket, Arc::new(handler))
        .map_err(|source| CliError::system("serve the management socket", source))?;
    let metrics = config.run.metrics.map(|addr| metrics::start(addr, switch.clone())).transpose();
    let metrics = metrics.map_err(|source| CliError::system("serve metrics", source))?;
    let sai = config.run.sai.map(|addr| sai::start(addr, service)).transpose();
    let sai = sai.map_err(|source| CliError::system("serve SAI", source))?;
    Ok(Served { sai, _metrics: metrics, _management: server })
}

/// Duties of the main thread while the switch runs: reloads, and the workers' heartbeats.
struct Look {
    switch: Arc<SwitchHandle>,
    heartbeats: Heartbeats,
    /// The thread of the current reload, and whether another one was requested meanwhile.
    reload: Option<JoinHandle<()>>,
    again: bool,
}

impl Look {
    fn new(switch: &Arc<SwitchHandle>) -> Self {
        Self {
            switch: switch.clone(),
            heartbeats: Heartbeats::default(),
            reload: None,
            again: false,
        }
    }

    /// Starts and reaps reloads; returns whether all workers are alive.
    fn look(&mut self, notifier: &mut Notifier, is_hup: bool) -> bool {
        self.again |= is_hup;
        if self.reload.take_if(|thread| thread.is_finished()).is_some() {
            notifier.ready(); // with the configuration before, where that was refused: an event says so
        }
        // One reload at a time. Any number of SIGHUPs during one ask for a single further one.
        if self.again && self.reload.is_none() {
            self.again = false;
            notifier.reloading();
            let switch = self.switch.clone();
            let read = move || drop(switch.reload(None)); // an event says how it ended
            // On a thread of its own: this one must go on feeding the service manager's watchdog.
            let thread = threads::spawn(Role::Reload, "weft-reload", Ends::Freely, read);
            match thread {
                Ok(thread) => self.reload = Some(thread),
                Err(error) => {
                    events::post(Kind::ReloadRefused, "", &error.to_string());
                    notifier.ready();
                }
            }
        }
        self.heartbeats.look(self.switch.beats()).all(|missed| missed < WELL_MISSED)
    }
}

/// Creates the file of a record.
fn new_record(
    path: &Path,
    overwrite: bool,
    config: &Config,
    sources: Sources,
) -> Result<NewRecord, CliError> {
    if config.run.workers > 1 {
        let workers = config.run.workers;
        let text = format!("--record: expected one worker, found run.workers = {workers}");
        return Err(CliError::Usage(text));
    }
    let error = |source| CliError::File { verb: "write", path: path.to_owned(), source };
    let file = files::create(path, Existing::replace_if(overwrite)).map_err(error)?;
    let name = path.display().to_string();
    let on_failure = Box::new(move |error: &std::io::Error| {
        let why = format!("{error}; the switch continues without recording");
        events::post(Kind::RecordFailed, &name, &why);
    });
    Ok(NewRecord { file, sources, on_failure })
}

/// Prints the final counters.
fn print(config: &Config, ledger: &Ledger, out: &mut dyn Write) -> std::io::Result<()> {
    for (port, counts) in config.switch.ports.iter().zip(&ledger.port) {
        let name = &port.name;
        writeln!(
            out,
            "{name}: rx {} tx {} frames, kernel_rx {}",
            counts.rx_frames, counts.tx_frames, counts.kernel_rx
        )?;
        for (reason, &count) in DropReason::ALL.iter().zip(&counts.drops) {
            if count > 0 {
                writeln!(out, "{name}: dropped {count} {}", reason.name())?;
            }
        }
    }
    writeln!(
        out,
        "rx {} + copies {} = tx {} + dropped {} + consumed {} + queued {}, unaccounted {}",
        ledger.rx,
        ledger.copies,
        ledger.tx,
        ledger.dropped,
        ledger.consumed,
        ledger.queued,
        ledger.imbalance()
    )
}
