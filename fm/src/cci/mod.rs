//! How the FM talks to components.
//!
//! Bytes of one CCI request -> [`Transport`] -> bytes of its response; [`Fabric`] finds the way to a component
//! and checks what it says.
//!
//! Units: bytes; polls.
//! Source: docs/spec/wire-formats.md §4.1, §4.5 (5701h); docs/spec/cxl-fabric.md "The fabric manager".

pub mod client;
pub mod endpoint;
pub mod mctp;
pub mod socket;
pub mod tunnel;
pub mod way;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use weft_parsers::ParseError;
use weft_parsers::cci::ReturnCode;
use weft_parsers::cci::pbr::CrawlTarget;

pub use self::client::{Answer, CallError, Client, Fabric, RetryPolicy};
pub use self::endpoint::{Endpoint, GaePeer};
pub use self::mctp::Mctp;
pub use self::socket::{Gate, Identity, Peer, Socket};
pub use self::tunnel::Tunnel;
pub use self::way::Way;

/// Why no response came.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The connection could not be made, or broke.
    #[error("{what} {peer}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With whom.
        peer: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Nothing came in time.
    #[error("no answer within {0} ms")]
    Timeout(u128),
    /// What came is no message.
    #[error("the received message is malformed")]
    Malformed(#[from] ParseError),
    /// The component that was to pass the message on refused to.
    #[error("the component in front of {} did not forward the message: {}", target_name(*.target), .code.name())]
    NotPassedOn {
        /// Where the message was to go.
        target: CrawlTarget,
        /// Why not.
        code: ReturnCode,
    },
    /// More than two tunnels around one message.
    #[error("a message can be tunneled at most twice")]
    TooDeep,
    /// The message is longer than its carrier takes.
    #[error("the message is too long")]
    TooLong,
    /// This manager leads no more, and sends nothing.
    #[error("the lease of this fabric manager has ended")]
    Ended,
    /// The component does not answer, for a reason of the one who carries the message.
    #[error("{0}")]
    Gone(String),
}

fn target_name(target: CrawlTarget) -> String {
    match target {
        CrawlTarget::Port(port) => format!("port {port}"),
        CrawlTarget::Pid(pid) => format!("PID {pid}"),
    }
}

/// The way to one component: a request in, its response out.
pub trait Transport {
    /// Sends `request` and waits for its response.
    ///
    /// # Errors
    /// None came; whether the request was carried out is not known then.
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError>;

    /// An event notification that came meanwhile.
    fn event(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Takes in notifications that have come between two requests, without waiting for any.
    fn take_in(&mut self) {}

    /// What is readable once one has come or the connection has ended; none where there is no connection.
    fn readable(&self) -> Option<OwnedFd> {
        None
    }

    /// The request that each new connection begins with, where there are any: who asks.
    fn on_connect(&mut self, _first_request: Vec<u8>) {}

    /// From now on an answer is waited for no longer than [`QUICK`], or as long as before.
    fn set_impatient(&mut self, _on: bool) {}
}

/// How long an answer is waited for by who only looks whether somebody is there.
pub const QUICK: Duration = Duration::from_millis(250);

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        (**self).call(request)
    }

    fn event(&mut self) -> Option<Vec<u8>> {
        (**self).event()
    }

    fn take_in(&mut self) {
        (**self).take_in();
    }

    fn readable(&self) -> Option<OwnedFd> {
        (**self).readable()
    }

    fn on_connect(&mut self, first_request: Vec<u8>) {
        (**self).on_connect(first_request);
    }

    fn set_impatient(&mut self, on: bool) {
        (**self).set_impatient(on);
    }
}

/// A transport to a component in this process: a function from requests to responses.
#[derive(Clone, Copy, Debug)]
pub struct InProcess<F>(pub F);

impl<F: FnMut(&[u8]) -> Result<Vec<u8>, TransportError>> Transport for InProcess<F> {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        (self.0)(request)
    }
}
