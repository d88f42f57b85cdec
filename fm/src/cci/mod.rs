//! CCI: how the manager talks to components.
//!
//! A [`Transport`] carries the bytes of one request and its response. [`CciSession`] finds the way to a component, sends
//! typed requests over it and checks the answers.
//!
//! Source: docs/spec/wire-formats.md §4.1, §4.5 (5701h); docs/spec/cxl-fabric.md "The fabric manager".

pub mod client;
pub mod endpoint;
pub mod mctp;
pub mod segment_tables;
pub mod send;
pub mod socket;
pub mod switch_state;
pub mod tunnel;
pub mod wires;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use weft_parsers::ParseError;
use weft_parsers::cci::ReturnCode;
use weft_parsers::cci::pbr::CrawlTarget;

pub use self::client::{Answer, CallError, CciSession, Client, RetryPolicy};
pub use self::endpoint::{Endpoint, GaePeer};
pub use self::mctp::Mctp;
pub use self::socket::{Gate, Identity, Peer, Socket};
pub use self::tunnel::Tunnel;
pub use crate::model::way::Way;

#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The connection could not be made, or broke.
    #[error("{what} {peer}")]
    Io { what: &'static str, peer: String, source: io::Error },
    /// Nothing came in time.
    #[error("no answer within {0} ms")]
    Timeout(u128),
    /// The bytes received are not a message.
    #[error("the received message is malformed")]
    Malformed(#[from] ParseError),
    /// The component in front of the target refused to forward the message.
    #[error("the component in front of {} did not forward the message: {}", target_name(*.target), .code.name())]
    NotPassedOn { target: CrawlTarget, code: ReturnCode },
    /// More than two tunnels around one message: the standard allows no third.
    #[error("a message can be tunneled at most twice")]
    TooDeep,
    /// The message is longer than its carrier takes.
    #[error("the message is too long")]
    TooLong,
    /// This manager's lease has ended, so nothing is sent.
    #[error("the lease of this fabric manager has ended")]
    Ended,
    /// The component does not answer; the carrier of the message gives the reason.
    #[error("{0}")]
    Gone(String),
}

fn target_name(target: CrawlTarget) -> String {
    match target {
        CrawlTarget::Port(port) => format!("port {port}"),
        CrawlTarget::Pid(pid) => format!("PID {pid}"),
    }
}

/// A connection to one component: takes a request, returns its response.
pub trait Transport {
    /// Sends `request` and waits for its response.
    ///
    /// # Errors
    /// No response came. It is not known whether the request was carried out.
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError>;

    /// Pops an event notification that arrived between answers.
    fn event(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Reads notifications that have arrived, without waiting for any.
    fn take_in(&mut self) {}

    /// A descriptor that becomes readable when a notification arrives or the connection ends; `None` without a
    /// connection.
    fn readable(&self) -> Option<OwnedFd> {
        None
    }

    /// Sets the request that each new connection begins with: it tells the component whose connection this is.
    fn on_connect(&mut self, _first_request: Vec<u8>) {}

    /// Waits for answers no longer than [`QUICK`] from now on (true), or as configured (false).
    fn set_impatient(&mut self, _on: bool) {}
}

/// Time limit when the manager only checks whether a component is there. Requests held by switches (900 ms) outlast
/// three such checks.
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

/// A transport to a component in this process: a function from request to response.
#[derive(Clone, Copy, Debug)]
pub struct InProcess<F>(pub F);

impl<F: FnMut(&[u8]) -> Result<Vec<u8>, TransportError>> Transport for InProcess<F> {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        (self.0)(request)
    }
}
