//! `weft fm`: the fabric manager as a service, and the commands that ask it.
//!
//! Each subcommand, or pair of opposites, is a file, which makes a [`Request`] of its arguments and a text of the
//! [`Response`]. [`FmCommand`] lists them. `serve` runs the service; `hbr` commands a switch that has none.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; `docs/fm.md`.

mod access;
mod aer;
mod bind;
mod cci;
mod cdat;
mod discover;
mod events;
mod gim;
mod grant;
mod hbr;
mod ld;
mod live_page;
mod memory;
mod p2p;
mod page;
mod pid;
mod port;
mod routes;
mod serve;
mod serve_ha;
mod status;
mod text;
mod topology;
mod trace;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use weft_config::resolve::sockets_dir;
use weft_fm::service::{Request, Response};
use weft_lab::fabric::processes::manager_socket;
use weft_rpc::{Client, ClientError};

use super::write_json;
use crate::error::CliError;

const NO_WORD: &str = "expected a command, or --hbr PEER: `weft fm --help` lists them";
const NO_JSON: &str = "expected no --json with serve, which prints no answer";
/// Longest wait for an answer: a discovery asks every component.
const ANSWER_MAX: Duration = Duration::from_mins(10);
/// Interval at which a request is repeated whose answer was not final.
const LOOK: Duration = Duration::from_millis(200);

/// Arguments of `weft fm`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub struct FmArgs {
    /// Command a plain CXL switch (HBR) itself: topology, bind, unbind and aer; without a command, show its ports and
    /// virtual switches
    #[arg(long, value_name = "PEER")]
    hbr: Option<hbr::HbrPeer>,
    /// With --hbr: allow a switch on another machine, although anyone on the network path can command it
    #[arg(long, requires = "hbr")]
    insecure: bool,
    #[command(flatten)]
    ask: AskArgs,
    #[command(subcommand)]
    command: Option<FmCommand>,
}

/// The fabric manager, and the format of the answer.
#[derive(Args, Clone, Debug, Default)]
struct AskArgs {
    /// Management socket of the fabric manager
    #[arg(long, value_name = "FILE", global = true)]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

impl AskArgs {
    /// The request of `query`, for text or JSON.
    fn request(&self, query: &dyn Query) -> Result<Request, CliError> {
        if self.json { query.json_request() } else { query.request() }
    }
}

/// Arguments of a subcommand that asks a fabric manager.
trait Query {
    /// The request of the arguments.
    ///
    /// # Errors
    /// The arguments contradict each other.
    fn request(&self) -> Result<Request, CliError>;

    /// The request for JSON output, which differs for some commands.
    ///
    /// # Errors
    /// As [`Self::request`], or the command has no JSON.
    fn json_request(&self) -> Result<Request, CliError> {
        self.request()
    }

    /// Whether `response` is final; otherwise the request is sent again.
    ///
    /// # Errors
    /// The response is a failure that waiting will not change.
    fn is_final(&self, _response: &Response) -> Result<bool, CliError> {
        Ok(true)
    }

    /// Formats `response` as text that ends with a newline; `None` if it answers another request. [`Response::Done`] is
    /// formatted by the caller.
    fn text(&self, _response: &Response) -> Option<String> {
        None
    }
}

/// Makes [`FmCommand`] from one row for each subcommand that asks a manager: help, name and arguments.
macro_rules! fm_command {
    ($($(#[$help:meta])+ $name:ident($args:ty),)+) => {
        /// A command to a fabric manager, or `serve`, which runs one.
        #[derive(Debug, Subcommand)]
        pub enum FmCommand {
            /// Run as the fabric manager until SIGINT or SIGTERM
            Serve(Box<serve::ServeArgs>),
            $($(#[$help])+ $name($args),)+
        }

        impl FmCommand {
            /// The query of the subcommand; `None` for `serve`.
            fn query(&self) -> Option<&dyn Query> {
                match self {
                    Self::Serve(_) => None,
                    $(Self::$name(args) => Some(args),)+
                }
            }
        }
    };
}

fm_command! {
    /// Show the state of the fabric manager; also works during start-up
    Status(status::StatusArgs),
    /// Discover all components again, and apply the wanted state
    Discover(discover::DiscoverArgs),
    /// As the second fabric manager: become the primary one
    TakeOver(discover::TakeOverArgs),
    /// Show switches, links and the hosts and devices attached to them
    Topology(topology::TopologyArgs),
    /// Show bindings, or bind a device or a virtual switch of another switch to a vPPB
    Bind(bind::BindArgs),
    /// Unbind the device or virtual switch that is bound to a vPPB
    Unbind(bind::UnbindArgs),
    /// Have a vPPB report a PCIe error to its host (AER)
    Aer(aer::AerArgs),
    /// Reset the device or GFD at a switch port: by hot reset, or by PERST# until it is deasserted
    Port(port::PortArgs),
    /// Show the routes, or check and print the proof that they are deadlock-free
    Routes(routes::RoutesArgs),
    /// Show the memory that hosts share, or share and release memory
    Memory(memory::MemoryArgs),
    /// Show logical devices, or change a logical device's memory and bandwidth
    Ld(ld::LdArgs),
    /// Show memory that hosts and devices export to each other (GIM), or export some
    Gim(gim::GimArgs),
    /// Show the direct access of accelerators to memory devices (P2P), or give such access
    P2p(p2p::P2pArgs),
    /// Revoke memory from one host, or GIM or P2P from one host or device; others keep it
    Revoke(grant::RevokeArgs),
    /// Give one more host access to memory that is already shared, or one more device a P2P access
    Grant(grant::GrantArgs),
    /// Show or change the access vectors at a host's edge
    Access(access::AccessArgs),
    /// Show latency and bandwidth of paths, or the CDAT of a component
    Cdat(cdat::CdatArgs),
    /// Show PIDs, or assign a PID to a target
    Pid(pid::PidArgs),
    /// Explain every lookup on the path from a host to an address
    Trace(trace::TraceArgs),
    /// Show events
    Events(events::EventsArgs),
    /// Send a CCI command given as bytes, and print the response
    Cci(cci::CciArgs),
}

/// Default management socket of a fabric manager.
fn default_socket() -> PathBuf {
    manager_socket(&sockets_dir())
}

/// Runs `weft fm`.
///
/// # Errors
/// No fabric manager answers, it refuses, or output cannot be written.
pub fn run(args: &FmArgs, out: &mut dyn Write) -> Result<(), CliError> {
    if let Some(peer) = &args.hbr {
        return hbr::run(peer, args.insecure, args.command.as_ref(), &args.ask, out);
    }
    match &args.command {
        Some(FmCommand::Serve(_)) if args.ask.json => Err(CliError::Usage(NO_JSON.to_owned())),
        Some(FmCommand::Serve(serve)) => serve::run(serve),
        Some(FmCommand::Topology(topology @ topology::TopologyArgs { listen: Some(addr), .. })) => {
            args.ask.request(topology)?; // refuses --json beside the page
            live_page::run(*addr, &args.ask)
        }
        Some(other) => other.query().map_or(Ok(()), |query| ask(query, &args.ask, out)),
        None => Err(CliError::Usage(NO_WORD.to_owned())),
    }
}

/// Sends the request until the answer is final, and writes that answer.
fn ask(query: &dyn Query, ask: &AskArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let request = ask.request(query)?;
    let mut client = FmClient::connect(ask)?;
    loop {
        let response = client.ask(&request)?;
        if query.is_final(&response)? {
            return write(query, ask, &response, out);
        }
        // Waits on the socket, so that a manager that stops ends the command at once.
        if !client.0.wait(LOOK).map_err(|error| failed(&error))? {
            return Err(CliError::Switch("the fabric manager has stopped".to_owned()));
        }
    }
}

fn failed(error: &ClientError) -> CliError {
    let text = match error {
        ClientError::Connect { path, source } => {
            format!("no fabric manager listens at {}: {source}", path.display())
        }
        ClientError::Closed => {
            "the fabric manager has closed the connection: it has stopped, or has sent this client away".to_owned()
        }
        ClientError::Io(source) => format!("connection to the fabric manager: {source}"),
        other => other.to_string(),
    };
    CliError::Switch(text)
}

struct FmClient(Client);

impl FmClient {
    fn connect(ask: &AskArgs) -> Result<Self, CliError> {
        let path = ask.socket.clone().unwrap_or_else(default_socket);
        Client::connect_for(&path, ANSWER_MAX).map(Self).map_err(|error| failed(&error))
    }

    fn ask(&mut self, request: &Request) -> Result<Response, CliError> {
        let answer = self.0.request(request).map_err(|error| failed(&error))?;
        serde_json::from_value(answer).map_err(|error| {
            CliError::Switch(format!("answer of the fabric manager is not understood: {error}"))
        })
    }
}

fn write(
    query: &dyn Query,
    ask: &AskArgs,
    response: &Response,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    if ask.json {
        // A response is `{"Kind": …}`; the kind follows from the command, so only its content is printed.
        let value =
            serde_json::to_value(response).map_err(|error| CliError::Output(error.into()))?;
        let inner = value.as_object().and_then(|object| object.values().next());
        return write_json(out, inner.unwrap_or(&value));
    }
    let text = match response {
        Response::Done(said) => said.iter().fold(String::new(), |text, line| text + line + "\n"),
        other => query.text(other).ok_or_else(|| {
            CliError::Switch("the fabric manager answered another request".to_owned())
        })?,
    };
    out.write_all(text.as_bytes()).map_err(CliError::Output)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// The arguments of `weft fm WORDS`.
    pub fn args(words: &str) -> Result<FmArgs, String> {
        let words = ["weft", "fm"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Fm(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    /// The request of `weft fm WORDS`, or the reason why there is none.
    fn parsed(words: &str) -> Result<Request, String> {
        let args = args(words)?;
        let command = args.command.as_ref().ok_or("no command")?;
        let query = command.query().ok_or("serve sends no request")?;
        args.ask.request(query).map_err(|error| error.to_string())
    }

    /// All words give the request that stands beside them.
    pub fn assert_requests<const N: usize>(cases: [(&str, Request); N]) {
        for (words, want) in cases {
            assert_eq!(parsed(words), Ok(want), "{words}");
        }
    }

    /// All words are refused with an error that contains the text beside them.
    pub fn assert_refused<const N: usize>(cases: [(&str, &str); N]) {
        for (words, part) in cases {
            let error = parsed(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
    }

    #[test]
    fn socket_and_json_may_stand_before_or_behind_the_command() {
        for words in [
            "--socket /s --json status",
            "--json status --socket /s",
            "status --socket /s --json",
            "gim --socket /s --json",
            "gim --json release a --socket /s",
            "memory --socket /s --json partitions",
            "p2p --json list --socket /s",
            "ld --json capacity --socket /s list",
            "ld capacity forget mld0 2 db --json --socket /s",
            "--socket /other status --json --socket /s",
        ] {
            let AskArgs { socket, json } = args(words).unwrap().ask;
            assert_eq!((socket, json), (Some("/s".into()), true), "{words}");
        }
        for words in ["--json serve --entry unix:/x", "serve --entry unix:/x --json"] {
            let refused = run(&args(words).unwrap(), &mut Vec::new()).unwrap_err().to_string();
            assert_eq!(refused, NO_JSON, "{words}");
        }
    }

    #[test]
    fn wrong_words_are_refused() {
        #[rustfmt::skip] // columns: words, part of the error
        assert_refused([
            ("", "Usage"),
            ("serve", "--entry"),
            ("serve --entry 127.0.0.1:1", "expected tcp:HOST:PORT or unix:PATH"),
            ("serve --entry unix:/x --start never", "possible values"),
        ]);
    }
}
