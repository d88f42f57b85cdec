//! `weft fm`: the fabric manager as a service, and the words that ask it.
//!
//! Shape: arguments -> [`Request`] -> [`Response`] as text or JSON; `serve` has the service.
//! Units: as the answers' fields.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; `docs/fm.md`.

mod args;
mod serve;
mod show;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use weft_fm::service::request::TopologyFormat;
use weft_fm::service::status::Phase;
use weft_fm::service::{Request, Response};
use weft_rpc::renamed::{self, Place};
use weft_rpc::{Client, ClientError};

pub use self::args::FmCommand;
use self::args::{AskArgs, GimCommand, MemoryCommand};
use super::write_json;
use crate::config::resolve::sockets_dir;
use crate::error::CliError;

/// How long an answer may take: a discovery asks every component.
const ANSWER_MAX: Duration = Duration::from_secs(600);
/// How often `status --wait` looks.
const LOOK: Duration = Duration::from_millis(200);

/// Where a fabric manager listens unless it is told otherwise.
fn default_socket() -> PathBuf {
    sockets_dir().join("fm").join("fm.sock")
}

/// Does what `command` asks for.
///
/// # Errors
/// Nobody answers, or the fabric manager refuses; output that cannot be written.
pub fn run(command: &FmCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        FmCommand::Serve(args) => serve::run(args),
        FmCommand::Status { wait: true, ask } => wait(ask, out),
        other => {
            let (request, ask) = request(other)?;
            let response = Asker::connect(ask)?.ask(&request)?;
            write(&response, ask.json, out)
        }
    }
}

fn failed(error: &ClientError) -> CliError {
    let text = match error {
        ClientError::Connect { path, source } => {
            format!("no fabric manager listens at {}: {source}", path.display())
        }
        ClientError::Io(source) => format!("connection to the fabric manager: {source}"),
        other => other.to_string(),
    };
    CliError::Switch(text)
}

struct Asker(Client);

impl Asker {
    fn connect(ask: &AskArgs) -> Result<Self, CliError> {
        let path = ask.socket.clone().unwrap_or_else(default_socket);
        Client::connect_for(&path, ANSWER_MAX).map(Self).map_err(|error| failed(&error))
    }

    fn ask(&mut self, request: &Request) -> Result<Response, CliError> {
        let mut answer = self.0.request(request).map_err(|error| failed(&error))?;
        renamed::drop_old(Place::FmAnswer, &mut answer);
        serde_json::from_value(answer).map_err(|error| {
            CliError::Switch(format!("answer of the fabric manager is not understood: {error}"))
        })
    }
}

fn write(response: &Response, json: bool, out: &mut dyn Write) -> Result<(), CliError> {
    if !json {
        return out.write_all(show::text(response).as_bytes()).map_err(CliError::Output);
    }
    // What kind of answer it is goes without saying.
    let value = serde_json::to_value(response).map_err(|error| CliError::Output(error.into()))?;
    let inner = value.as_object().and_then(|object| object.values().next());
    write_json(out, inner.unwrap_or(&value))
}

/// Looks at the status until the fabric is up or cannot be brought up.
fn wait(ask: &AskArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut asker = Asker::connect(ask)?;
    loop {
        let response = asker.ask(&Request::Status)?;
        let Response::Status(status) = &response else {
            return Err(CliError::Switch("expected a status, found another answer".to_owned()));
        };
        match status.phase {
            Phase::Up | Phase::Standby => return write(&response, ask.json, out),
            Phase::Failed => {
                let why = status.failed.clone().unwrap_or_default();
                return Err(CliError::Difference(format!("the fabric is not up: {why}")));
            }
            Phase::Starting => {}
        }
        if !asker.0.wait(LOOK).map_err(|error| failed(&error))? {
            return Err(CliError::Switch("the fabric manager has stopped".to_owned()));
        }
    }
}

/// What is asked for.
fn request(command: &FmCommand) -> Result<(Request, &AskArgs), CliError> {
    Ok(match command {
        FmCommand::Serve(_) => return Err(CliError::Usage("serve sends no request".to_owned())),
        FmCommand::Status { ask, .. } => (Request::Status, ask),
        FmCommand::Discover { ask } => (Request::Discover, ask),
        FmCommand::TakeOver { ask } => (Request::TakeOver, ask),
        FmCommand::Topology { dot, svg, ask } => {
            let drawn = match (dot, svg, ask.json) {
                (true, ..) => TopologyFormat::Dot,
                (_, true, _) => TopologyFormat::Svg,
                (.., true) => TopologyFormat::Data,
                _ => TopologyFormat::Text,
            };
            (Request::Topology { drawn }, ask)
        }
        FmCommand::Bind { bridge: Some(bridge), to: Some(to), ask } => {
            (Request::Bind { bridge: bridge.clone(), to: to.clone() }, ask)
        }
        FmCommand::Bind { ask, .. } => (Request::Bindings, ask),
        FmCommand::Unbind { bridge, ask } => (Request::Unbind { bridge: bridge.clone() }, ask),
        FmCommand::Routes { prove, switch, ask } => {
            (Request::Routes { prove: *prove, switch: switch.clone() }, ask)
        }
        FmCommand::Memory { command: None, ask } => (Request::Memory, ask),
        FmCommand::Memory { command: Some(command), .. } => memory(command)?,
        FmCommand::Grant { name, host, ask } => {
            (Request::Grant { name: name.clone(), host: host.clone() }, ask)
        }
        FmCommand::Gim { command: None, ask } => (Request::Gim, ask),
        FmCommand::Gim { command: Some(command), .. } => gim(command),
        FmCommand::Revoke { name, host, ask } => {
            (Request::Revoke { name: name.clone(), host: host.clone() }, ask)
        }
        FmCommand::Access { host, allow, forbid, vector, ask } => {
            let host = host.clone();
            let set = |pid: &str, on| {
                (
                    Request::SetAccess {
                        host: host.clone(),
                        vector: *vector,
                        pid: pid.to_owned(),
                        on,
                    },
                    ask,
                )
            };
            match (allow, forbid) {
                (Some(pid), _) => set(pid, true),
                (None, Some(pid)) => set(pid, false),
                (None, None) => (Request::Access { host }, ask),
            }
        }
        FmCommand::Cdat { read, ask } => (Request::Cdat { read: read.clone() }, ask),
        FmCommand::Pid { assign: None, ask, .. } => (Request::Pids, ask),
        FmCommand::Pid { assign: Some(target), to, ask } => {
            (assignment(target, to.clone()).map_err(CliError::Usage)?, ask)
        }
        FmCommand::Trace { host, hpa, ask } => {
            (Request::Trace { host: host.clone(), hpa: *hpa }, ask)
        }
        FmCommand::Events { after, ask } => (Request::Events { after: *after }, ask),
        FmCommand::Cci { hex, opcode, to, ask } => {
            let message = match opcode {
                Some(opcode) => whole(*opcode, hex).map_err(CliError::Usage)?,
                None => hex.clone(),
            };
            (Request::Cci { to: to.clone(), message }, ask)
        }
    })
}

fn memory(command: &MemoryCommand) -> Result<(Request, &AskArgs), CliError> {
    Ok(match command {
        MemoryCommand::Add { name, host, gfd, ways, size, granularity, hpa, ask } => {
            if gfd.is_empty() && ways.is_none() {
                let which = "expected --gfd NAME, once for each way and in their order, or --ways N for the N that \
                             were found first";
                return Err(CliError::Usage(which.to_owned()));
            }
            let granularity = u32::try_from(*granularity).map_err(|_| {
                CliError::Usage("an interleave granule has at most 16 KiB".to_owned())
            })?;
            let share = Request::Share {
                name: name.clone(),
                hosts: host.clone(),
                gfds: gfd.clone(),
                ways: *ways,
                size: *size,
                granularity,
                hpa: *hpa,
            };
            (share, ask)
        }
        MemoryCommand::Release { name, ask } => (Request::Release { name: name.clone() }, ask),
    })
}

fn gim(command: &GimCommand) -> (Request, &AskArgs) {
    match command {
        GimCommand::Add { name, of, from, prefix, size, hpa, ask } => {
            let show = Request::ShowGim {
                name: name.clone(),
                of: of.clone(),
                from: from.clone(),
                prefix: *prefix,
                size: *size,
                hpa: *hpa,
            };
            (show, ask)
        }
        GimCommand::Release { name, ask } => (Request::Release { name: name.clone() }, ask),
    }
}

/// A target: SWITCH/TARGET or SWITCH/TARGET/INSTANCE.
fn assignment(text: &str, pid: Option<String>) -> Result<Request, String> {
    let bad = || format!("expected SWITCH/TARGET or SWITCH/TARGET/INSTANCE, found {text:?}");
    let parts: Vec<&str> = text.split('/').collect();
    let (switch, target, instance) = match parts[..] {
        [switch, target] => (switch, target, "0"),
        [switch, target, instance] => (switch, target, instance),
        _ => return Err(bad()),
    };
    let target = target.parse().map_err(|_| bad())?;
    let instance = instance.parse().map_err(|_| bad())?;
    Ok(Request::Assign { switch: switch.to_owned(), target, instance, pid })
}

/// A request with a header around a payload; the digits of both.
fn whole(opcode: u16, payload: &str) -> Result<String, String> {
    use weft_parsers::cci::{Header, Opcode, header};
    let digits: String = payload.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let len = digits.len() / 2;
    let mut head = [0; header::LEN];
    Header::request(Opcode(opcode), 0)
        .emit(len, &mut head)
        .ok_or_else(|| format!("a payload of {len} bytes is too long"))?;
    Ok(head.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")) + &digits)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weft_fm::service::Vector;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parsed(words: &str) -> Result<Request, String> {
        let words = ["weft", "fm"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Fm(command) => request(&command).map(|(r, _)| r).map_err(|e| e.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn words_become_requests() {
        let text = str::to_owned;
        let share = |gfds: Vec<String>, ways| Request::Share {
            name: text("pool"),
            hosts: vec![text("h0"), text("h1")],
            gfds,
            ways,
            size: 4 << 30,
            granularity: 256,
            hpa: 1 << 40,
        };
        let set =
            |on| Request::SetAccess { host: text("h0"), vector: Vector::Vtv, pid: text("00a"), on };
        #[rustfmt::skip] // columns: words, request
        let cases = [
            ("status", Request::Status),
            ("topology --svg", Request::Topology { drawn: TopologyFormat::Svg }),
            ("topology --dot", Request::Topology { drawn: TopologyFormat::Dot }),
            ("topology --json", Request::Topology { drawn: TopologyFormat::Data }),
            ("bind", Request::Bindings),
            ("bind s0/0/1 port:40", Request::Bind { bridge: text("s0/0/1"), to: text("port:40") }),
            ("unbind s0/0/1", Request::Unbind { bridge: text("s0/0/1") }),
            ("routes --prove", Request::Routes { prove: true, switch: None }),
            ("routes --switch s1 --json", Request::Routes { prove: false, switch: Some(text("s1")) }),
            ("memory", Request::Memory),
            ("memory --json", Request::Memory),
            ("memory add pool --host h0 --host h1 --ways 4 --size 4GiB --granularity 256 --hpa 0x10000000000", share(vec![], Some(4))),
            ("memory add pool --host h0 --host h1 --gfd a --gfd b --size 4GiB --granularity 256 --hpa 0x10000000000", share(vec![text("a"), text("b")], None)),
            ("memory release pool", Request::Release { name: text("pool") }),
            ("grant pool h0", Request::Grant { name: text("pool"), host: text("h0") }),
            ("revoke pool h0", Request::Revoke { name: text("pool"), host: text("h0") }),
            ("access h0", Request::Access { host: text("h0") }),
            ("access h0 --allow 00a --vector vtv", set(true)),
            ("access h0 --forbid 00a --vector vtv", set(false)),
            ("cdat --read 003", Request::Cdat { read: Some(text("003")) }),
            ("pid", Request::Pids),
            ("pid --assign s0/3 --to 0aa", Request::Assign { switch: text("s0"), target: 3, instance: 0, pid: Some(text("0aa")) }),
            ("pid --assign s0/3/1", Request::Assign { switch: text("s0"), target: 3, instance: 1, pid: None }),
            ("trace --host h0 --hpa 4096", Request::Trace { host: text("h0"), hpa: 4_096 }),
            ("events --after 7", Request::Events { after: 7 }),
            ("cci 0001 --to pid:00a", Request::Cci { to: text("pid:00a"), message: text("0001") }),
            ("cci --opcode 0x5700 0102", Request::Cci { to: text("entry"), message: text("0000000057020000000000000102") }),
            ("cci --opcode 5700 --to entry 0102", Request::Cci { to: text("entry"), message: text("0000000057020000000000000102") }),
            ("take-over", Request::TakeOver),
            ("discover", Request::Discover),
        ];
        for (words, want) in cases {
            assert_eq!(parsed(words), Ok(want), "{words}");
        }
    }

    #[test]
    fn wrong_words_are_refused() {
        #[rustfmt::skip] // columns: words, part of the error
        let cases = [
            ("", "Usage"),
            ("bind s0/0/1", "required"),
            ("topology --dot --svg", "cannot be used with"),
            ("memory add pool --ways 4 --size 4GiB --hpa 0", "--host"),
            ("memory add pool --host h0 --size 4GiB --hpa 0", "expected --gfd NAME, once for each way"),
            ("memory add pool --host h0 --ways 4 --size 4GB --hpa 0", "expected bytes"),
            ("memory add pool --host h0 --ways 4 --size 1 --hpa 0 --granularity 8GiB", "16 KiB"),
            ("trace --host h0 --hpa 0xzz", "expected an address"),
            ("pid --assign s0", "expected SWITCH/TARGET"),
            ("pid --assign s0/x", "expected SWITCH/TARGET"),
            ("pid --to 001", "--assign"),
            ("access h0 --allow 001 --forbid 002", "cannot be used with"),
            ("cci 00 --opcode xyz", "expected an opcode"),
            ("serve", "--entry"),
            ("serve --entry 127.0.0.1:1", "expected tcp:HOST:PORT or unix:PATH"),
            ("serve --entry unix:/x --start never", "possible values"),
        ];
        for (words, part) in cases {
            let error = parsed(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
