//! `weft-kit`: generator, sink, redirector, passer, latency prober and core distance for `make bench`.
//!
//! `weft-kit COMMAND ...` prints one JSON object a line. A tool that stays attached to an interface
//! answers each line of standard input with its counts, and ends with standard input. Frames count
//! without FCS.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};
use weft_bench::kit::bpf::{Memory, Program, devmap};
use weft_bench::kit::program::{self, Spread};
use weft_bench::kit::source::Source;
use weft_bench::kit::{KitError, distance, latency, sys};

/// Tools at the ends of the wires of `make bench`.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

/// Frames of the generator.
#[derive(Args)]
struct GenerateArgs {
    /// Interface to send out of
    interface: String,
    /// Bytes of a frame, without FCS
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// UDP source ports to go through
    #[arg(long, default_value_t = 256)]
    flows: u16,
    /// Source MACs to go through
    #[arg(long, default_value_t = 1)]
    src_macs: u16,
    /// Destination MACs to go through
    #[arg(long, default_value_t = 1)]
    dst_macs: u16,
    /// Frames a second; as fast as it goes without
    #[arg(long)]
    rate: Option<u64>,
    /// Seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

#[derive(Subcommand)]
enum What {
    /// Sends frames that XDP makes
    Generate(GenerateArgs),
    /// Counts and drops what comes in
    Sink {
        /// Interface
        interface: String,
    },
    /// Sends what comes in out of another interface, and looks at nothing
    Redirect {
        /// Interface that frames come in by
        from: String,
        /// Interface that they leave by
        to: String,
    },
    /// Passes what comes in on to the host's stack, from an XDP program
    Pass {
        /// Interfaces
        #[arg(required = true)]
        interfaces: Vec<String>,
    },
    /// Takes the age of the prober's frames
    Ages {
        /// Interface
        interface: String,
        /// Frames at the beginning that do not count
        #[arg(long, default_value_t = 0)]
        skip: usize,
    },
    /// Sends frames that carry the time, evenly
    Probe {
        /// Interface to send out of
        interface: String,
        /// Bytes of a frame, without FCS
        #[arg(long, default_value_t = 64)]
        size: usize,
        /// Frames a second
        #[arg(long)]
        rate: u64,
        /// Seconds
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// How long a cache line takes between two cores, there and back
    Distance {
        /// The asking core
        from: usize,
        /// The answering core
        to: usize,
    },
}

fn seconds_ns(seconds: f64) -> Result<u64, KitError> {
    let time = std::time::Duration::try_from_secs_f64(seconds);
    let ns = time.ok().and_then(|time| u64::try_from(time.as_nanos()).ok());
    ns.ok_or_else(|| KitError::Usage(format!("seconds {seconds}")))
}

fn say(what: &Value) {
    // Whoever closes the pipe early still gets the exit code.
    let _ = writeln!(io::stdout(), "{what}");
}

/// Prints the counts once, which tells the caller that the tool is attached, and again for each
/// line of standard input.
fn answer(what: impl Fn() -> Value) {
    say(&what());
    for _ in io::stdin().lock().lines().map_while(Result::ok) {
        say(&what());
    }
}

fn sink(interface: &str) -> Result<(), KitError> {
    let memory = Memory::new(2)?;
    let program = Program::load("sink", &program::sink(memory.fd()))?;
    let _link = program.attach(sys::ifindex(interface)?)?;
    answer(
        || json!({ "frames": memory.word(0), "first_ns": memory.word(1), "now_ns": sys::now_ns() }),
    );
    Ok(())
}

fn redirect(from: &str, to: &str) -> Result<(), KitError> {
    let map = devmap(sys::ifindex(to)?)?;
    let asm = program::redirector(std::os::fd::AsRawFd::as_raw_fd(&map));
    let _link = Program::load("redirector", &asm)?.attach(sys::ifindex(from)?)?;
    answer(|| json!({ "from": from, "to": to }));
    Ok(())
}

fn pass(interfaces: &[String]) -> Result<(), KitError> {
    let program = Program::load("passer", &program::passer())?;
    let mut links = Vec::new();
    for interface in interfaces {
        links.push(program.attach(sys::ifindex(interface)?)?);
    }
    answer(|| json!({ "interfaces": interfaces }));
    Ok(())
}

fn ages(interface: &str, skip: usize) -> Result<(), KitError> {
    let memory = Memory::new(1 + latency::SAMPLES_MAX)?;
    let samples = i32::try_from(latency::SAMPLES_MAX).unwrap_or(i32::MAX);
    let program = Program::load("latency", &program::latency(memory.fd(), samples))?;
    let _link = program.attach(sys::ifindex(interface)?)?;
    answer(|| {
        let ages = latency::ages(&memory, skip);
        let at = |quantile| ages.value_at_quantile(quantile);
        json!({
            "frames": memory.word(0), "counted": ages.len(), "min_ns": ages.min(), "p50_ns": at(0.5),
            "p99_ns": at(0.99), "p999_ns": at(0.999), "max_ns": ages.max(),
        })
    });
    Ok(())
}

fn run(what: &What) -> Result<(), KitError> {
    match what {
        What::Generate(args) => {
            let spread =
                Spread { flows: args.flows, src_macs: args.src_macs, dst_macs: args.dst_macs };
            let source = Source {
                frame_len: args.size,
                spread,
                rate_fps: args.rate,
                duration_ns: seconds_ns(args.seconds)?,
            };
            let sent = source.run(sys::ifindex(&args.interface)?)?;
            say(&json!({ "frames": sent.frames, "duration_ns": sent.duration_ns }));
            Ok(())
        }
        What::Sink { interface } => sink(interface),
        What::Redirect { from, to } => redirect(from, to),
        What::Pass { interfaces } => pass(interfaces),
        What::Ages { interface, skip } => ages(interface, *skip),
        What::Probe { interface, size, rate, seconds } => {
            let taken =
                latency::send(sys::ifindex(interface)?, *size, *rate, seconds_ns(*seconds)?)?;
            say(&json!({ "frames": taken }));
            Ok(())
        }
        What::Distance { from, to } => {
            let found = distance::measure([*from, *to])?;
            say(&json!({
                "min_ns": found.min_ns, "median_ns": found.median_ns, "max_ns": found.max_ns,
            }));
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            let _ = writeln!(io::stderr(), "weft-kit: {error}{cause}");
            ExitCode::FAILURE
        }
    }
}
