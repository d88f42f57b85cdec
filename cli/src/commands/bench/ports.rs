//! `weft bench ports`: opens two ports, measures one frame size after another, and reports.
//!
//! Makes a [`PortsResult`] from [`PortsArgs`] and writes it as text or JSON, and as HTML.
//!
//! Source: RFC 2544.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weft_base::files::{self, Existing};
use weft_config::Sources;
use weft_config::resolve::{Config, Timing};
use weft_control::live::{self, devices};
use weft_dataplane::port::Port;

use super::machine::{Link, Machine};
use super::measure::{Measure, SizeError};
use super::plan::{Plan, PortsArgs};
use super::result::{LeftOut, PortsResult};
use super::trial::{CHUNKS, Rig, TrialError};
use super::{html, stop_flag, text};
use crate::commands::{progress, write_json};
use crate::error::CliError;

/// Sizes without a complete result, and the reasons.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotRun(String);

/// Measures the device or link between two ports.
///
/// # Errors
/// Flags that contradict each other, a port that cannot be opened, or a trial that cannot be run. Results until then
/// are written all the same.
pub fn run(args: &PortsArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let plan = Plan::new(args).map_err(CliError::Usage)?;
    let config = config(args)?;
    // Create the page before the measurement: a path that cannot be written must not show after hours.
    let failed = |source| CliError::File {
        verb: "write",
        path: args.html.clone().unwrap_or_default(),
        source,
    };
    let mut page = args
        .html
        .as_ref()
        .map(|path| files::create(path, Existing::Result))
        .transpose()
        .map_err(failed)?;
    let stop = stop_flag()?;
    let result = measure(plan, &config, stop)?;
    if args.json {
        write_json(out, &result)?;
    } else {
        text::print(&result, out).map_err(CliError::Output)?;
    }
    if let Some(file) = &mut page {
        file.write_all(html::page(&result).as_bytes()).map_err(failed)?;
    }
    if result.interrupted {
        let done = result.sizes.len();
        return Err(CliError::Difference(format!("interrupted; {done} sizes are measured whole")));
    }
    let missing: Vec<_> = result
        .left_out
        .iter()
        .filter(|left| left.failed)
        .map(|left| format!("{}: {}", left.size, left.why))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::system("run all trials", NotRun(missing.join("; "))))
}

/// Makes a configuration of the two ports, so that every kind and parameter of `weft run` is available.
fn config(args: &PortsArgs) -> Result<Config, CliError> {
    let port = |name: &str, device: &str| match &args.kind {
        Some(kind) if !device.contains(':') => format!("{name}={kind}:{device}"),
        _ => format!("{name}={device}"),
    };
    let ports = vec![port("tx", &args.tx), port("rx", &args.rx)];
    let sources = Sources { port: ports, set: args.set.clone(), ..Sources::default() };
    let config = Config::resolve(&sources.settings()?, Timing::Live)?;
    // A word that is no kind is read as part of the device's name, and would be reported as a missing device.
    if let Some(kind) = &args.kind
        && config.run.ports.iter().any(|port| port.device.starts_with(&format!("{kind}:")))
    {
        let text = format!("--kind {kind}: expected one of port.kind in `weft config defaults`");
        return Err(CliError::Usage(text));
    }
    Ok(config)
}

/// Opens the ports and measures every size of `plan`.
fn measure(plan: Plan, config: &Config, stop: Arc<AtomicBool>) -> Result<PortsResult, CliError> {
    let mut switch = config.switch.clone();
    let pool = live::pool(&config.run, CHUNKS + devices::chunks(config))
        .map_err(|source| CliError::system("make room for frames", source))?;
    let (ports, info, _) = devices::open_all(config, &mut switch, &pool, None)
        .map_err(|source| CliError::system("open the ports", source))?;
    let frame_len_max = switch.ports.iter().map(|port| port.frame_len_max).min().unwrap_or(0);
    // `--set port...` may have added ports.
    let Ok(ports) = <[_; 2]>::try_from(ports) else {
        return Err(CliError::Usage("--set: expected no ports but --tx and --rx".to_owned()));
    };
    let mut notes = info.into_iter().map(|device| device.note);
    let mut link = |port: &dyn Port| Link::of(port.caps(), notes.next().flatten());
    let [tx, rx] = [link(ports[0].as_ref()), link(ports[1].as_ref())];
    let mut rig = Rig::new(ports, &pool, &plan, stop);
    let progress = progress::trials();
    let (mut sizes, mut left_out, mut interrupted) = (Vec::new(), Vec::new(), false);
    for &size in &plan.sizes {
        let mut leave = |why, failed| left_out.push(LeftOut { size: size.name(), why, failed });
        let frame = match plan.frames(size, frame_len_max) {
            Ok(frame) => frame,
            Err(why) => {
                // Of the default sizes, those that the format cannot have are skipped without failing the run.
                leave(why, plan.sizes_given);
                continue;
            }
        };
        let measure = Measure {
            rig: &mut rig,
            plan: &plan,
            frame,
            size: size.name(),
            links: [&tx, &rx],
            progress: &progress,
            totals: super::result::Totals::default(),
            most_fps: 0,
        };
        match measure.run() {
            Ok(result) => sizes.push(result),
            Err(SizeError::Trial(TrialError::Interrupted)) => {
                interrupted = true;
                break;
            }
            // A path may drop one size (its MTU) and pass others: go on. After any other error the ports are not
            // reliable.
            Err(error @ SizeError::NoWay(..)) => leave(error.to_string(), true),
            Err(error) => {
                leave(CliError::system("trial", error).with_causes(), true);
                break;
            }
        }
    }
    progress.finish_and_clear();
    let machine = Machine::here();
    Ok(PortsResult { bench: "ports", machine, tx, rx, plan, sizes, left_out, interrupted })
}
