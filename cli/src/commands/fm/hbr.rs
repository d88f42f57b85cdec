//! `weft fm --hbr`: commands a plain CXL switch (hierarchy-based routing, no PBR) directly.
//!
//! Such a switch has no fabric manager of weft, so `topology`, `bind`, `unbind` and `aer` go to the switch itself.
//!
//! Source: docs/mctp.md "Plain switches".

use std::fmt::Write as _;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use weft_base::causes::with_causes;
use weft_fm::cci::{Mctp, Peer, RetryPolicy, Socket, Transport};
use weft_fm::components::aer::{AerError, tlp_header};
use weft_fm::components::hbr::{HbrSwitch, HbrView};
use weft_fm::service::Request;
use weft_fm::service::request::TopologyFormat;
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::pbr::Vppb;

use super::super::write_json;
use super::text::table;
use super::{AskArgs, FmCommand};
use crate::error::CliError;

/// Longest wait for an answer of the switch.
const ANSWER_MAX: Duration = Duration::from_secs(2);
const WORDS: &str = "expected topology, bind, unbind or aer with --hbr, or nothing (--json only with topology, bind alone or nothing): a plain CXL switch has no other commands, \
    and no fabric manager of weft";
const SOCKET: &str =
    "expected no --socket with --hbr: the switch is asked itself, and not a fabric manager";
const PATH: &str = "expected an address of loopback, or --insecure: nothing on the way is encrypted, and whoever is on it can \
    command the switch";

/// The transport and address of a plain switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HbrPeer {
    /// `mctp:HOST:PORT`: MCTP packets over TCP.
    Mctp(SocketAddr),
    /// `tcp:HOST:PORT` or `unix:PATH`: CCI messages with their length.
    Stream(Peer),
}

impl FromStr for HbrPeer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(address) = text.strip_prefix("mctp:") else {
            return text.parse().map(Self::Stream).map_err(|_| {
                format!("expected mctp:HOST:PORT, tcp:HOST:PORT or unix:PATH, found {text:?}")
            });
        };
        let mut found = address.to_socket_addrs().map_err(|error| format!("{text:?}: {error}"))?;
        found.next().map(Self::Mctp).ok_or_else(|| format!("{text:?}: the name has no address"))
    }
}

impl HbrPeer {
    fn transport(&self, is_insecure: bool) -> Result<Box<dyn Transport + Send>, CliError> {
        let addr = match self {
            Self::Mctp(addr) | Self::Stream(Peer::Tcp(addr)) => Some(addr),
            Self::Stream(Peer::Unix(_)) => None,
        };
        if let Some(addr) = addr.filter(|addr| !addr.ip().is_loopback() && !is_insecure) {
            return Err(CliError::Usage(format!("{addr}: {PATH}")));
        }
        Ok(match self {
            Self::Mctp(addr) => Box::new(Mctp::new(*addr, ANSWER_MAX)),
            Self::Stream(peer) => {
                Box::new(Socket::new(peer.clone(), MessageType::FmApi, ANSWER_MAX))
            }
        })
    }
}

/// Sends `command` to the switch at `peer`; without one, shows its ports and virtual switches.
///
/// # Errors
/// A command that plain switches lack, or a switch that refuses or does not answer.
pub fn run(
    peer: &HbrPeer,
    is_insecure: bool,
    command: Option<&FmCommand>,
    ask: &AskArgs,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let word = Word::of(command, ask)?;
    let mut switch = HbrSwitch::new(peer.transport(is_insecure)?, RetryPolicy::live());
    let failed = |error: weft_fm::cci::CallError| CliError::Switch(with_causes(&error));
    match word {
        Word::Show { json } => {
            let view = switch.view().map_err(failed)?;
            if json {
                return write_json(out, &view);
            }
            out.write_all(text(&view).as_bytes()).map_err(CliError::Output)
        }
        Word::Bind { bridge, port, ld } => {
            switch.bind(bridge, port, ld).map_err(failed)?;
            let to =
                ld.map_or_else(|| format!("port {port}"), |ld| format!("LD {ld} of port {port}"));
            writeln!(out, "vPPB {} of VCS {} is bound to {to}", bridge.vppb, bridge.vcs)
                .map_err(CliError::Output)
        }
        Word::Unbind { bridge } => {
            switch.unbind(bridge).map_err(failed)?;
            writeln!(out, "vPPB {} of VCS {} is unbound", bridge.vppb, bridge.vcs)
                .map_err(CliError::Output)
        }
        Word::Aer { bridge, error, tlp } => {
            switch.generate_aer(bridge, error, tlp).map_err(failed)?;
            let Vppb { vcs, vppb } = bridge;
            writeln!(out, "vPPB {vppb} of VCS {vcs} reports the error {}", error.name())
                .map_err(CliError::Output)
        }
    }
}

/// A command that a plain switch has.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Show { json: bool },
    Bind { bridge: Vppb, port: u8, ld: Option<u16> },
    Unbind { bridge: Vppb },
    Aer { bridge: Vppb, error: AerError, tlp: [u8; 32] },
}

impl Word {
    fn of(command: Option<&FmCommand>, ask: &AskArgs) -> Result<Self, CliError> {
        let AskArgs { socket, json } = ask;
        // `serve` has no query, and every command that this function does not know is refused in the same words.
        let other = || CliError::Usage(WORDS.to_owned());
        let query = command.map(|command| command.query().ok_or_else(other)).transpose()?;
        if socket.is_some() {
            return Err(CliError::Usage(SOCKET.to_owned()));
        }
        let Some(query) = query else { return Ok(Self::Show { json: *json }) };
        match query.request()? {
            Request::Topology { drawn: TopologyFormat::Text } | Request::Bindings => {
                Ok(Self::Show { json: *json })
            }
            Request::Bind { bridge, to } if !json => {
                let (port, ld) = target(&to)?;
                Ok(Self::Bind { bridge: vppb(&bridge)?, port, ld })
            }
            Request::Unbind { bridge } if !json => Ok(Self::Unbind { bridge: vppb(&bridge)? }),
            Request::GenerateAer { bridge, error, tlp } if !json => {
                let error = error.parse().map_err(CliError::Usage)?;
                let tlp = tlp_header(tlp.as_deref()).map_err(CliError::Usage)?;
                Ok(Self::Aer { bridge: vppb(&bridge)?, error, tlp })
            }
            _ => Err(other()),
        }
    }
}

fn vppb(text: &str) -> Result<Vppb, CliError> {
    let parts = text
        .split_once('/')
        .and_then(|(vcs, vppb)| Some(Vppb { vcs: vcs.parse().ok()?, vppb: vppb.parse().ok()? }));
    parts.ok_or_else(|| CliError::Usage(format!("expected VCS/VPPB, such as 0/1, found {text:?}")))
}

/// Parses `port:N` or `port:N.LD`.
fn target(text: &str) -> Result<(u8, Option<u16>), CliError> {
    let parts = text.strip_prefix("port:").and_then(|rest| match rest.split_once('.') {
        None => Some((rest.parse().ok()?, None)),
        Some((port, ld)) => {
            // In the command, LD FFFFh stands for the whole port.
            let ld = ld.parse().ok().filter(|&ld| ld < u16::MAX)?;
            Some((port.parse().ok()?, Some(ld)))
        }
    });
    parts.ok_or_else(|| {
        CliError::Usage(format!("expected port:N or port:N.LD of the switch, found {text:?}"))
    })
}

fn text(view: &HbrView) -> String {
    let HbrView { ingress_port, port_count, vcs_count, vppbs, vppbs_bound, .. } = view;
    let mut text = format!(
        "{port_count} ports, {vcs_count} virtual switches, {vppbs_bound} of {vppbs} vPPBs bound; asked by port {ingress_port}\n\n"
    );
    text += &table(
        ["port", "state", "lanes", "speed", "device", "CXL", "LDs"],
        view.ports.iter().map(|port| {
            [
                port.port.to_string(),
                port.state.clone(),
                format!("{} of {}", port.width, port.width_max),
                port.speed.to_string(),
                port.device.to_string(),
                port.version.to_string(),
                port.lds.to_string(),
            ]
        }),
    );
    for vcs in &view.vcses {
        let state = if vcs.is_enabled { "" } else { ", disabled" };
        let _ = write!(text, "\nVCS {} of port {}{state}\n", vcs.vcs, vcs.usp); // to a String
        text += &table(
            ["vPPB", "state", "port", "LD"],
            vcs.vppbs.iter().map(|vppb| {
                let or = |number: Option<u8>| {
                    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
                };
                [vppb.vppb.to_string(), vppb.state.clone(), or(vppb.port), or(vppb.ld)]
            }),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::args;
    use super::*;

    fn word(words: &str) -> Result<Word, String> {
        let args = args(&format!("--hbr mctp:127.0.0.1:1 {words}"))?;
        Word::of(args.command.as_ref(), &args.ask).map_err(|error| error.to_string())
    }

    #[test]
    fn words_become_commands() {
        let show = |json| Ok(Word::Show { json });
        let bridge = |vcs, vppb| Vppb { vcs, vppb };
        let bind = |ld| Ok(Word::Bind { bridge: bridge(0, 1), port: 4, ld });
        #[rustfmt::skip] // columns: words, what they ask for
        let cases = [
            ("", show(false)),
            ("topology", show(false)),
            ("topology --json", show(true)),
            ("--json topology", show(true)),
            ("--json", show(true)),
            ("bind", show(false)),
            ("bind 0/1 port:4", bind(None)),
            ("bind 0/1 port:4.7", bind(Some(7))),
            ("unbind 2/3", Ok(Word::Unbind { bridge: bridge(2, 3) })),
            ("aer 0/1 ecrc", Ok(Word::Aer { bridge: bridge(0, 1), error: "ecrc".parse().unwrap(), tlp: [0; 32] })),
        ];
        for (words, want) in cases {
            assert_eq!(word(words), want, "{words}");
        }
        #[rustfmt::skip] // columns: words, part of the error
        let refused = [
            ("status", "expected topology, bind, unbind or aer"),
            ("topology --svg", "expected topology, bind, unbind or aer"),
            ("topology --html", "expected topology, bind, unbind or aer"),
            ("topology --socket /x", "expected no --socket"),
            ("--socket /x topology", "expected no --socket"),
            ("bind s0/0/1 port:4", "expected VCS/VPPB"),
            ("bind 0/256 port:4", "expected VCS/VPPB"),
            ("bind 0/1 pid:4", "expected port:N"),
            ("bind 0/1 port:4.65535", "expected port:N"),
            ("unbind 0", "expected VCS/VPPB"),
            ("aer s0/0/1 ecrc", "expected VCS/VPPB"),
            ("aer 0/1 ecrc --json", "expected topology, bind, unbind or aer"),
        ];
        for (words, part) in refused {
            let error = word(words).expect_err(words);
            assert!(error.contains(part), "{words}: {error}");
        }
    }

    #[test]
    fn a_switch_beyond_loopback_takes_a_word_more() {
        let peer = |text: &str| text.parse::<HbrPeer>();
        for text in ["mctp:127.0.0.1:2508", "tcp:[::1]:2508", "unix:/x"] {
            assert!(peer(text).unwrap().transport(false).is_ok(), "{text}");
        }
        for text in ["mctp:192.0.2.1:2508", "tcp:192.0.2.1:2508"] {
            let error = peer(text).unwrap().transport(false).err().unwrap().to_string();
            assert!(error.contains("or --insecure"), "{error}");
            assert!(peer(text).unwrap().transport(true).is_ok(), "{text}");
        }
        for text in ["", "2508", "mctp:", "mctp:x", "udp:127.0.0.1:1"] {
            assert!(peer(text).is_err(), "{text}");
        }
        assert!(args("--insecure status").unwrap_err().contains("--hbr"));
        assert!(args("--hbr udp:1").unwrap_err().contains("expected mctp:HOST:PORT"));
    }
}
