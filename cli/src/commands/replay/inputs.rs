//! `--in` and `--in-all`: the captures that a replay's ports receive.
//!
//! `PORT=FILE`, `PORT=FILE#INTERFACE`, or all interfaces of a file, give a [`Source`] to each port.
//!
//! Source: docs/replay.md.

use std::path::Path;

use weft_config::Config;
use weft_control::replay::sources::{Source, pipe_of};
use weft_dataplane::port::capture::{CaptureName, Choice, Shown};
use weft_dataplane::types::{PORTS_MAX, PortId};

use super::{ReplayArgs, capture};
use crate::error::CliError;

/// A capture, and the port that receives its frames.
pub(super) struct Given {
    /// The argument, for error messages.
    argument: String,
    port: String,
    source: Source,
}

/// All captures of a replay.
#[derive(Default)]
pub(super) struct AllGiven {
    all: Vec<Given>,
    /// Notes on interfaces whose frames no port receives.
    pub warnings: Vec<String>,
}

fn refuse<T>(argument: &str, expected: &str) -> Result<T, CliError> {
    Err(CliError::Usage(format!("{argument}: expected {expected}")))
}

impl AllGiven {
    /// Parses the arguments, and reads the interfaces of the file of `--in-all`.
    ///
    /// # Errors
    /// A malformed argument, a pipe that is given twice, or a file without Ethernet interfaces.
    pub fn read(args: &ReplayArgs) -> Result<Self, CliError> {
        let mut given = Self::default();
        let mut pipes = Vec::new();
        // By the pipe, not by the path: `-`, /dev/stdin and a FIFO's two names may be one pipe.
        let mut check_pipe = |argument: &str, path: &Path| match pipe_of(path) {
            Some(pipe) if pipes.contains(&pipe) => refuse(
                argument,
                "each pipe once: what one reads the other does not get; --in-all is for several interfaces",
            ),
            Some(_) if is_config(args, path) => {
                refuse(argument, "a file, as -c reads the configuration from standard input")
            }
            pipe => {
                pipes.extend(pipe);
                Ok(())
            }
        };
        for text in &args.input {
            let argument = format!("--in {text}");
            let Some((port, name)) = text.split_once('=') else {
                return refuse(&argument, "PORT=FILE");
            };
            let name = CaptureName::parse(name);
            check_pipe(&argument, &name.path)?;
            given.all.push(Given { argument, port: port.to_owned(), source: Source::new(name) });
        }
        if let Some(text) = &args.in_all {
            let argument = format!("--in-all {text}");
            let name = CaptureName::parse(text);
            if name.choice != Choice::Ethernet {
                return refuse(
                    &argument,
                    "a file; one interface of it is --in PORT=FILE#INTERFACE",
                );
            }
            check_pipe(&argument, &name.path)?;
            given.add_all(&argument, name)?;
        }
        // Gaps are found over all captures before the replay reads them again, so a pipe's bytes are kept in a file.
        if args.max_gap.is_some() {
            for one in &mut given.all {
                one.source = one.source.clone().kept().map_err(capture)?;
            }
        }
        Ok(given)
    }

    /// Gives each Ethernet interface of the capture `name` to the port of the same number.
    fn add_all(&mut self, argument: &str, name: CaptureName) -> Result<(), CliError> {
        let file = name.path.display().to_string();
        let source = Source::new(name).kept().map_err(capture)?;
        let before = self.all.len();
        for (interface, numbers) in source.interfaces().map_err(capture)? {
            // Later sections of a file describe the same interfaces again: one interface may have several numbers.
            let Some(&number) = numbers.first() else { continue };
            if !interface.is_ethernet() {
                let (shown, link_type) = (Shown(number, &interface), interface.link_type);
                self.warnings.push(format!("{file}: interface {shown} is not Ethernet, but of link type {link_type}: no port receives its frames"));
                continue;
            }
            if usize::try_from(number).ok().and_then(PortId::new).is_none() {
                let expected = format!(
                    "at most {PORTS_MAX} interfaces, as a switch has no more ports, found interface {number}: name some with --in PORT=FILE#INTERFACE"
                );
                return refuse(argument, &expected);
            }
            self.all.push(Given {
                argument: format!("{argument}: interface {number}"),
                port: format!("p{number}"),
                source: source.of(Choice::Numbers(numbers)),
            });
        }
        if self.all.len() == before {
            return refuse(argument, "an interface of Ethernet, found none");
        }
        Ok(())
    }

    /// Ports of a switch without configuration: those that receive captures, and a second one if that is only one.
    pub fn made_ports(&self) -> Vec<String> {
        let mut names: Vec<&str> = Vec::new();
        for given in &self.all {
            // `by_port` refuses a port that is named twice, with a better message than the configuration's.
            if !names.contains(&given.port.as_str()) {
                names.push(&given.port);
            }
        }
        let other = if names == ["p1"] { "p0" } else { "p1" };
        if names.len() == 1 {
            names.push(other);
        }
        names.iter().map(|name| format!("{name}=null:{name}")).collect()
    }

    /// The sources, each with its port's number.
    ///
    /// # Errors
    /// A port that the switch lacks, or that has a source already.
    pub fn by_port(self, config: &Config) -> Result<Vec<(PortId, Source)>, CliError> {
        let ports = &config.switch.ports;
        let mut inputs: Vec<(PortId, Source)> = Vec::new();
        for Given { argument, port: name, source } in self.all {
            let found = ports.iter().position(|port| port.name == name).and_then(PortId::new);
            let Some(port) = found else {
                let names: Vec<_> = ports.iter().map(|port| port.name.as_str()).collect();
                let names = names.join(", ");
                return refuse(&argument, &format!("one of the ports {names}, found {name:?}"));
            };
            if inputs.iter().any(|(other, _)| *other == port) {
                return refuse(&argument, "each port once");
            }
            inputs.push((port, source));
        }
        Ok(inputs)
    }
}

/// Whether `path` is the pipe from which the configuration is read.
fn is_config(args: &ReplayArgs, path: &Path) -> bool {
    let stdin = Path::new("/dev/stdin");
    args.settings.config.as_deref() == Some(Path::new("-")) && pipe_of(path) == pipe_of(stdin)
}
