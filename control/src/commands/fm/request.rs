//! Arguments of `weft fm` as requests to the fabric manager.
//!
//! Shape: [`FmCommand`] -> [`Request`], and whom to ask.
//! Units: bytes.
//! Source: `docs/fm.md`.

use weft_fm::service::Request;
use weft_fm::service::request::TopologyFormat;

use super::args::{AskArgs, FmCommand, GimCommand, MemoryCommand};
use crate::error::CliError;

/// What is asked for.
pub(super) fn request(command: &FmCommand) -> Result<(Request, &AskArgs), CliError> {
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
