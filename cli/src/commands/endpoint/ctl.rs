//! `weft endpoint ctl`: sends one command to a running endpoint and prints the answer.
//!
//! Turns the arguments into a [`Command`]; the answer is printed as text or JSON.
//!
//! Source: docs/endpoint.md.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use weft_rpc::{Client, ClientError, LINE_LEN_MAX};

use super::mem::{self, Mem};
use super::{cdat, intx, ln, show};
use crate::commands::pid_bits;
use crate::error::CliError;
use weft_lab::endpoint::command::{Access, Export, OwnRange, Via};
use weft_lab::endpoint::number::{Hex, Id, Num};
use weft_lab::endpoint::time_limit::{TIMEOUT_MS, TIMEOUT_MS_MAX};
use weft_lab::endpoint::{Answer, Command};

/// How much longer than a command's own limit the client waits for the answer.
const GRACE: Duration = Duration::from_secs(15);

/// Arguments of `weft endpoint ctl`.
#[derive(Args, Debug)]
pub struct CtlArgs {
    /// Control socket, or name, of the endpoint
    socket: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Time limit of the command in milliseconds, at most a day
    #[arg(long, default_value_t = TIMEOUT_MS, global = true, value_parser = clap::value_parser!(u64).range(..=TIMEOUT_MS_MAX))]
    timeout_ms: u64,
    #[command(subcommand)]
    what: CtlCommand,
}

fn opcode(text: &str) -> Result<Num, String> {
    crate::commands::opcode(text).map(|opcode| Num(opcode.into()))
}

#[derive(Debug, Subcommand)]
enum CtlCommand {
    /// Show the endpoint's kind, links and counters
    Status,
    /// Show the events since the last call
    Events,
    /// Host: enumerate all devices below it
    Enumerate,
    /// Host: enumerate the devices behind a slot again
    Rescan {
        /// Bridge that has the slot
        bdf: Id,
    },
    /// Host: reset the bus below a bridge, then enumerate the devices there again
    Reset {
        /// Bridge above the bus
        bdf: Id,
    },
    /// Host: assign a `CacheID` to a device below another switch than the host's, or clear it
    #[command(subcommand)]
    CacheId(CacheId),
    /// Host: show the result of the last enumeration
    Tree,
    /// Host: read or write configuration space
    #[command(subcommand)]
    Config(Config),
    /// Host: read memory
    Read(AccessArgs),
    /// Host: write memory
    Write(WriteArgs),
    /// Device: read or write memory of the host or a peer
    #[command(subcommand)]
    Dma(Dma),
    /// Write the endpoint's own memory
    Store(OwnArgs),
    /// Read the endpoint's own memory
    Peek(OwnArgs),
    /// Host: export memory to other hosts and devices; replaces all earlier exports
    Export {
        /// Memory at local address LOCAL, exported at address BASE
        #[arg(value_name = "BASE:SIZE=LOCAL", value_parser = export)]
        ranges: Vec<Export>,
        /// Export only to these PIDs (hexadecimal)
        #[arg(long, value_name = "PID", value_parser = pid_bits)]
        from: Vec<u16>,
    },
    /// Host: send a command to the mailbox of a Global Access Endpoint
    Gae {
        /// Opcode (hexadecimal), such as 5804
        #[arg(value_parser = opcode)]
        opcode: Num,
        /// Payload of the command (hexadecimal)
        #[arg(default_value = "")]
        input: Hex,
        /// Address of the register block of the mailbox
        #[arg(long)]
        block: Option<Num>,
    },
    /// Host: show latency and bandwidth of devices' memory and the path to it, or of the path to a fabric component
    Cdat {
        /// Device, such as 05:00.0, or PID of the component; by default all devices below the host
        #[arg(value_name = "BDF|PID")]
        of: Option<cdat::Of>,
        /// For a PID: address of the register block of the mailbox
        #[arg(long)]
        block: Option<Num>,
    },
    /// Host: read the notifications since the last call from the notification ring
    Ring {
        /// First place the ring at this address (8 KiB)
        #[arg(long)]
        base: Option<Num>,
        /// Address of the register block of the mailbox
        #[arg(long)]
        block: Option<Num>,
    },
    /// Host: prepare all devices below it for power-off (`PME_Turn_Off`)
    TurnOff,
    /// Device: write back and invalidate all lines of its cache for the host's memory
    CacheFlush {
        /// Function number
        #[arg(long, default_value_t = 0)]
        function: u8,
    },
    /// Device: send an interrupt (MSI) to the host
    Interrupt {
        /// Function number
        #[arg(long, default_value_t = 0)]
        function: u8,
        /// Number of the logical device, for a device with logical devices
        #[arg(long)]
        ld: Option<u8>,
    },
    /// Device: assert or deassert its legacy interrupt (INTx)
    #[command(subcommand)]
    Intx(intx::Intx),
    /// G-FAM device: carry out a CCI command as if a host's GAE had forwarded it
    Cci {
        /// Opcode (hexadecimal), such as 5804
        #[arg(value_parser = opcode)]
        opcode: Num,
        /// Payload of the command (hexadecimal)
        #[arg(default_value = "")]
        input: Hex,
        /// PID of the host (hexadecimal)
        #[arg(long, value_name = "PID", default_value = "000", value_parser = pid_bits)]
        from: u16,
    },
    /// Run a load: write a range and read it back, repeatedly
    #[command(subcommand)]
    Load(Load),
    /// Lightweight Notification: keep copies of lines of the host's memory in a device
    #[command(subcommand)]
    Ln(ln::Ln),
    /// Host: transfer fabric memory
    #[command(subcommand)]
    Mem(Mem),
    /// Send a command as a JSON object of the socket's protocol
    Raw {
        /// Command, a JSON object
        #[arg(id = "command", value_name = "JSON")]
        json: String,
    },
}

#[derive(Debug, Subcommand)]
enum CacheId {
    /// Assign a `CacheID`; replaces the previous one
    Set {
        /// Device with the cache
        bdf: Id,
        /// `CacheID`, 0 to 15
        #[arg(value_parser = clap::value_parser!(u8).range(..16))]
        id: u8,
    },
    /// Clear the `CacheID`
    Clear {
        /// Device with the cache
        bdf: Id,
    },
}

#[derive(Debug, Subcommand)]
enum Config {
    /// Read four bytes of configuration space
    Read {
        /// Function, such as 05:00.0
        bdf: Id,
        /// Offset in bytes, a multiple of 4
        reg: Num,
    },
    /// Write four bytes of configuration space, or some of them
    Write {
        /// Function, such as 05:00.0
        bdf: Id,
        /// Offset in bytes, a multiple of 4
        reg: Num,
        /// New value of the four bytes
        value: Num,
        /// Byte enables, bit 0 for the first byte
        #[arg(long, default_value = "15")]
        enables: Num,
    },
}

#[derive(Debug, Subcommand)]
enum Dma {
    /// Read memory of the host or a peer
    Read(AccessArgs),
    /// Write memory of the host or a peer
    Write(WriteArgs),
}

#[derive(Debug, Subcommand)]
enum Load {
    /// Start a load
    Start {
        /// Range of the load
        #[command(flatten)]
        access: AccessArgs,
        /// Stop after this many rounds; 0: run until stopped
        #[arg(long, default_value_t = 0)]
        rounds: u64,
        /// Pause between rounds in milliseconds
        #[arg(long, default_value_t = 0)]
        pause_ms: u64,
    },
    /// Stop the load after its current round
    Stop,
    /// Show the progress of the load
    Status,
}

/// A range of memory to access.
#[derive(Args, Debug)]
struct AccessArgs {
    /// First address of the range
    addr: Num,
    /// Length in bytes; by default that of --data
    len: Option<Num>,
    /// Bytes to write, or to compare with (hexadecimal)
    #[arg(long, conflicts_with = "seed")]
    data: Option<Hex>,
    /// Use a pattern with this seed instead of --data
    #[arg(long)]
    seed: Option<u64>,
    /// Kind of requests to use
    #[arg(long, value_enum, default_value_t = Via::Auto)]
    via: Via,
    /// Send UIO requests to this PID (hexadecimal)
    #[arg(long, value_name = "PID", value_parser = pid_bits)]
    to: Option<u16>,
    /// Function number of a device
    #[arg(long, default_value_t = 0)]
    function: u8,
    /// Number of the logical device, for a device with logical devices
    #[arg(long)]
    ld: Option<u8>,
}

#[derive(Args, Debug)]
struct WriteArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Read the bytes back and compare
    #[arg(long)]
    check: bool,
}

#[derive(Args, Debug)]
struct OwnArgs {
    /// At a host, an address; at a device, an offset
    addr: Num,
    /// Length in bytes; by default that of --data
    len: Option<Num>,
    /// Bytes to store, or to compare with (hexadecimal)
    #[arg(long, conflicts_with = "seed")]
    data: Option<Hex>,
    /// Use a pattern with this seed instead of --data
    #[arg(long)]
    seed: Option<u64>,
    /// Function number of a device
    #[arg(long, default_value_t = 0)]
    function: u8,
    /// Number of the logical device, for a device with logical devices
    #[arg(long)]
    ld: Option<u8>,
    /// BAR number of a device; by default host-managed memory (HDM)
    #[arg(long)]
    bar: Option<u8>,
}

fn export(text: &str) -> Result<Export, String> {
    let read = || {
        let (there, local) = text.split_once('=')?;
        let (base, len) = there.split_once(':')?;
        let number = |text: &str| text.parse::<Num>().ok();
        Some(Export {
            base: number(base)?,
            len: number(len)?,
            local: number(local)?,
            from: Vec::new(),
        })
    };
    read().ok_or_else(|| format!("expected BASE:SIZE=LOCAL, found {text:?}"))
}

impl AccessArgs {
    fn access(&self, check: bool, timeout_ms: u64) -> Access {
        let Self { addr, len, data, seed, via, to, function, ld } = self;
        let (addr, len, seed, via, to) = (*addr, *len, *seed, *via, *to);
        let (data, function, ld) = (data.clone(), *function, *ld);
        Access { addr, len, data, seed, via, to, check, function, ld, timeout_ms }
    }
}

impl OwnArgs {
    fn own(&self) -> OwnRange {
        let Self { addr, len, data, seed, function, ld, bar } = self;
        let (addr, len, seed, function, ld, bar) = (*addr, *len, *seed, *function, *ld, *bar);
        OwnRange { addr, len, data: data.clone(), seed, function, ld, bar }
    }
}

fn bits<T: TryFrom<u64>>(what: &str, number: Num) -> Result<T, CliError> {
    let text = || format!("{what} of {:#x} is too large", number.0);
    T::try_from(number.0).map_err(|_| CliError::Usage(text()))
}

/// The command of the arguments.
fn command(args: &CtlArgs) -> Result<Command, CliError> {
    let timeout_ms = args.timeout_ms;
    Ok(match &args.what {
        CtlCommand::Status => Command::Status {},
        CtlCommand::Events => Command::Events {},
        CtlCommand::Enumerate => Command::Enumerate { timeout_ms },
        CtlCommand::Rescan { bdf } => Command::Rescan { bdf: *bdf, timeout_ms },
        CtlCommand::Reset { bdf } => Command::Reset { bdf: *bdf, timeout_ms },
        CtlCommand::CacheId(CacheId::Set { bdf, id }) => {
            Command::CacheId { bdf: *bdf, id: Some(*id), timeout_ms }
        }
        CtlCommand::CacheId(CacheId::Clear { bdf }) => {
            Command::CacheId { bdf: *bdf, id: None, timeout_ms }
        }
        CtlCommand::Tree => Command::Tree {},
        CtlCommand::Config(Config::Read { bdf, reg }) => {
            Command::ConfigRead { bdf: *bdf, reg: bits("an offset", *reg)? }
        }
        CtlCommand::Config(Config::Write { bdf, reg, value, enables }) => Command::ConfigWrite {
            bdf: *bdf,
            reg: bits("an offset", *reg)?,
            value: *value,
            enables: bits("bytes", *enables)?,
        },
        CtlCommand::Read(access) => Command::Read(access.access(false, timeout_ms)),
        CtlCommand::Write(it) => Command::Write(it.access.access(it.check, timeout_ms)),
        CtlCommand::Dma(Dma::Read(access)) => Command::DmaRead(access.access(false, timeout_ms)),
        CtlCommand::Dma(Dma::Write(it)) => {
            Command::DmaWrite(it.access.access(it.check, timeout_ms))
        }
        CtlCommand::Store(place) => Command::Store(place.own()),
        CtlCommand::Peek(place) => Command::Peek(place.own()),
        CtlCommand::Export { ranges, from } => {
            let ranges = ranges.iter().map(|it| Export { from: from.clone(), ..it.clone() });
            Command::Export { ranges: ranges.collect() }
        }
        CtlCommand::Gae { opcode, input, block } => {
            Command::Gae { opcode: *opcode, input: input.clone(), block: *block, timeout_ms }
        }
        CtlCommand::Cdat { of, block } => cdat::ask(*of, *block, timeout_ms)?,
        CtlCommand::Ring { base, block } => {
            Command::Ring { base: *base, block: *block, timeout_ms }
        }
        CtlCommand::TurnOff => Command::TurnOff { timeout_ms },
        CtlCommand::CacheFlush { function } => {
            Command::CacheFlush { function: *function, timeout_ms }
        }
        CtlCommand::Interrupt { function, ld } => {
            Command::Interrupt { function: *function, ld: *ld }
        }
        CtlCommand::Intx(what) => what.command(),
        CtlCommand::Cci { opcode, input, from } => {
            Command::Cci { opcode: *opcode, input: input.clone(), from: *from }
        }
        CtlCommand::Load(Load::Start { access, rounds, pause_ms }) => {
            // A load always reads back and compares.
            let (access, rounds, pause_ms) = (access.access(true, timeout_ms), *rounds, *pause_ms);
            Command::LoadStart { access, rounds, pause_ms }
        }
        CtlCommand::Load(Load::Stop) => Command::LoadStop {},
        CtlCommand::Load(Load::Status) => Command::LoadStatus {},
        CtlCommand::Ln(what) => ln::command(what, timeout_ms),
        CtlCommand::Mem(it) => Command::Mem(it.command(timeout_ms)),
        CtlCommand::Raw { json } => serde_json::from_str(json)
            .map_err(|error| CliError::Usage(format!("no command: {error}")))?,
    })
}

/// Sends the command and prints the answer.
///
/// # Errors
/// No endpoint answers, it refuses, or a transfer failed.
pub(super) fn run(args: &CtlArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let command = command(args)?;
    // Checked here, where the message can name the way out: the socket accepts no longer line.
    let long = serde_json::to_vec(&command).map_or(0, |line| line.len()) >= LINE_LEN_MAX;
    if long {
        let text = format!("a command has at most {LINE_LEN_MAX} bytes: use --seed for more data");
        return Err(CliError::Usage(text));
    }
    // A single word is an endpoint's name, unless the working directory has a socket of that name.
    let named = args.socket.components().count() == 1 && !args.socket.exists();
    let path = if named {
        super::default_socket(&args.socket.display().to_string())
    } else {
        args.socket.clone()
    };
    let asked = || {
        let longest = Duration::from_millis(command.timeout_ms()).saturating_add(GRACE);
        let mut client = Client::connect_for(&path, longest)?;
        client.request(&command)
    };
    let value = asked().map_err(|error| {
        CliError::Switch(match error {
            ClientError::Connect { path, source } => {
                format!("no endpoint listens at {}: {source}", path.display())
            }
            other => other.to_string(),
        })
    })?;
    let answer: Answer = serde_json::from_value(value)
        .map_err(|error| CliError::Switch(format!("the answer is not understood: {error}")))?;
    if let (
        CtlCommand::Cdat { of: Some(cdat::Of::Pid(pid)), .. },
        Answer::Response { code, name, output, .. },
    ) = (&args.what, &answer)
    {
        let output = Some(&output.0).filter(|_| *code == 0);
        return cdat::show(*pid, name, output.map(Vec::as_slice), args.json, out);
    }
    if args.json {
        crate::commands::write_json(out, &answer)?;
    } else if let (CtlCommand::Load(Load::Stop), Answer::Load(report)) = (&args.what, &answer) {
        show::load_stopped(report, out).map_err(CliError::Output)?;
    } else {
        show::print(&answer, out).map_err(CliError::Output)?;
    }
    // After the report was printed: a transfer that failed is exit code 1.
    match answer {
        Answer::Transfer(report) if !report.ok => {
            let mut text = format!(
                "{} of {} requests failed, {} bytes differ",
                report.failed, report.requests, report.mismatched
            );
            if report.timed_out {
                text.push_str(", not all was done in time");
            }
            Err(CliError::Difference(text))
        }
        Answer::Ln(report) if !report.outcome.is_ok() => {
            Err(CliError::Difference(ln::summary(&report)))
        }
        Answer::Mem(answer) => {
            mem::failure(&answer).map_or(Ok(()), |text| Err(CliError::Difference(text)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command as Top};
    use crate::commands::endpoint::EndpointCommand;
    use clap::Parser;
    use weft_lab::endpoint::EndpointSpec;

    fn parse(line: &str) -> Result<EndpointCommand, clap::Error> {
        let words = ["weft", "endpoint"].into_iter().chain(line.split(' '));
        match Cli::try_parse_from(words)?.command {
            Top::Endpoint(command) => Ok(*command),
            other => panic!("{other:?}"),
        }
    }

    fn ctl(line: &str) -> Option<String> {
        let EndpointCommand::Ctl(args) = parse(&format!("ctl /s {line}")).ok()? else {
            return None;
        };
        command(&args).ok().map(|command| serde_json::to_string(&command).unwrap())
    }

    #[test]
    fn json_may_stand_before_or_behind_the_command() {
        for (line, want) in [
            ("status", false),
            ("--json status", true),
            ("status --json", true),
            ("read 1 1 --json", true),
        ] {
            let EndpointCommand::Ctl(args) = parse(&format!("ctl /s {line}")).unwrap() else {
                panic!("{line}");
            };
            assert_eq!(args.json, want, "{line}");
        }
    }

    #[test]
    fn commands_become_what_goes_over_the_socket() {
        #[rustfmt::skip] // columns: arguments, command; empty: refused
        let cases = [
            ("status", r#"{"cmd":"status"}"#),
            ("enumerate --timeout-ms 5", r#"{"cmd":"enumerate","timeout_ms":5}"#),
            ("--timeout-ms 5 enumerate", r#"{"cmd":"enumerate","timeout_ms":5}"#),
            ("config read 01:00.0 0x10", r#"{"cmd":"config_read","bdf":"01:00.0","reg":16}"#),
            ("config write 01:00.0 4 6 --enables 3",
             r#"{"cmd":"config_write","bdf":"01:00.0","reg":4,"value":6,"enables":3}"#),
            ("config read 01:00.0 0x10000", ""),
            ("cache-id set 05:00.0 3", r#"{"cmd":"cache_id","bdf":"05:00.0","id":3,"timeout_ms":30000}"#),
            ("cache-id clear 05:00.0", r#"{"cmd":"cache_id","bdf":"05:00.0","timeout_ms":30000}"#),
            ("cache-id set 05:00.0 16", ""), ("cache-id set 05:00.0", ""),
            ("read 0x1000 4KiB --seed=1 --via uio --to 014",
             r#"{"cmd":"read","addr":4096,"len":4096,"seed":1,"via":"uio","to":20,"check":false,"function":0,"timeout_ms":30000}"#),
            ("write 1 --data 0aFF --check",
             r#"{"cmd":"write","addr":1,"data":"0aff","via":"auto","check":true,"function":0,"timeout_ms":30000}"#),
            ("write 1 --data 0 --check", ""), ("write 1 --data 00 --seed=1", ""), ("read", ""), ("read -1 4", ""),
            ("read 1 1 --check", ""), ("write 1 1 --via air --seed=1", ""),
            ("dma write 1 8 --seed=2 --function 1 --via plain",
             r#"{"cmd":"dma_write","addr":1,"len":8,"seed":2,"via":"plain","check":false,"function":1,"timeout_ms":30000}"#),
            ("peek 0 8 --bar 2", r#"{"cmd":"peek","addr":0,"len":8,"function":0,"bar":2}"#),
            ("export 1MiB:4KiB=0x2000 --from 00a --from 0x014",
             r#"{"cmd":"export","ranges":[{"base":1048576,"len":4096,"local":8192,"from":[10,20]}]}"#),
            ("export 1MiB:4KiB=0x2000 --from fff", ""), ("read 1 1 --to x", ""),
            ("export 1MiB", ""),
            ("status --json", r#"{"cmd":"status"}"#), ("--json status", r#"{"cmd":"status"}"#),
            ("gae 5804 0102", r#"{"cmd":"gae","opcode":22532,"input":"0102","timeout_ms":30000}"#),
            ("gae 58040", ""),
            (
                "cdat 051",
                r#"{"cmd":"gae","opcode":1794,"input":"5100000000000000000000000000100000000000","timeout_ms":30000}"#,
            ),
            ("cdat fff", ""),
            ("cdat", r#"{"cmd":"cdat","timeout_ms":30000}"#),
            ("cdat 05:00.0", r#"{"cmd":"cdat","bdf":"05:00.0","timeout_ms":30000}"#),
            ("cdat 05:00", ""), ("cdat 05:00.0 --block 0x1000", ""), ("intx assert --pin e", ""), ("intx deassert --pin b", r#"{"cmd":"intx","on":false,"function":1}"#),
            ("cdat 1000", ""),
            ("gae 0x5804 0102", r#"{"cmd":"gae","opcode":22532,"input":"0102","timeout_ms":30000}"#),
            ("ring --base 0x2000", r#"{"cmd":"ring","base":8192,"timeout_ms":30000}"#),
            ("cci 0x490C --from 010", r#"{"cmd":"cci","opcode":18700,"input":"","from":16}"#),
            ("ln read 0x1000", r#"{"cmd":"ln_read","addr":4096,"function":0,"timeout_ms":30000}"#),
            ("ln write 0x1000 --data 0aFF --function 1 --timeout-ms 5",
             r#"{"cmd":"ln_write","addr":4096,"data":"0aff","function":1,"timeout_ms":5}"#),
            ("ln status", r#"{"cmd":"ln_status"}"#), ("ln write 0x1000", ""), ("ln read", ""),
            ("load stop", r#"{"cmd":"load_stop"}"#),
            ("load start 0x1000 4KiB --seed=1 --pause-ms 5",
             r#"{"cmd":"load_start","access":{"addr":4096,"len":4096,"seed":1,"via":"auto","check":true,"function":0,"timeout_ms":30000},"rounds":0,"pause_ms":5}"#),
            ("mem register 1MiB 4KiB", r#"{"cmd":"mem","op":"register","addr":1048576,"len":4096}"#),
            ("mem window 0x1000:8K --from 010", r#"{"cmd":"mem","op":"window","base":4096,"len":8192,"from":[16]}"#),
            ("mem connect 4096", r#"{"cmd":"mem","op":"connect","mailbox":4096,"timeout_ms":30000}"#),
            ("mem write 2 1:2:3 4:5:6 --no-wait",
             r#"{"cmd":"mem","op":"write","peer":2,"ops":[{"local":1,"remote":2,"len":3},{"local":4,"remote":5,"len":6}],"wait":false,"timeout_ms":30000}"#),
            ("mem read 2 1:2", ""), ("mem read 2", ""), ("mem status", ""), ("mem finalize", r#"{"cmd":"mem","op":"finalize"}"#),
            (r#"raw {"cmd":"tree"}"#, r#"{"cmd":"tree"}"#), ("raw {}", ""), ("fly", ""),
        ];
        for (line, want) in cases {
            assert_eq!(ctl(line).unwrap_or_default(), want, "{line}");
        }
    }

    fn played(line: &str) -> EndpointSpec {
        match parse(line).unwrap() {
            EndpointCommand::Play(spec) => *spec,
            EndpointCommand::Ctl(_) => panic!("{line}: nothing is played"),
        }
    }

    #[test]
    fn endpoints_are_specified_by_flags() {
        let host =
            "host --port tap:t0 --hpa-memory 64MiB --hpa-memory 0x40000000:1M --read-max 256 -c f";
        let EndpointSpec::Host(spec) = played(host) else { panic!("a host") };
        assert_eq!(spec.common.config, Some("f".into()));
        assert_eq!((spec.common.port, spec.read_max), (vec!["tap:t0".to_owned()], Some(Num(256))));
        assert_eq!(spec.hpa_memory, ["64MiB", "0x40000000:1M"]);
        let device = "device --port a --bar 0=io:64 --gim --functions 2";
        let EndpointSpec::Device(spec) = played(device) else { panic!("a device") };
        assert_eq!(
            (spec.bar, spec.gim, spec.functions),
            (vec!["0=io:64".to_owned()], true, Some(2))
        );
        let gfd = played("gfd --port a --capacity 1GiB --file m --pid 0x10");
        let EndpointSpec::Gfd(spec) = gfd else { panic!("a GFD") };
        assert_eq!((spec.pid, spec.capacity), (Some(Num(16)), Some(Num(1 << 30))));
        let hbr = "hbr --port a --port b --no-surprise";
        let EndpointSpec::Hbr(spec) = played(hbr) else { panic!("a switch") };
        assert_eq!((spec.common.port.len(), spec.no_surprise), (2, true));
        for line in [
            "host --fly",
            "device --functions x",
            "gfd --capacity much",
            "fly",
            "host --bar 0=io:64",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
