//! Ethernet hosts and their traffic, on a switch's ports.
//!
//! [`frames`] builds and reads test frames, [`stamp`] marks their payloads and checks them, [`stream`] paces a sequence
//! of frames and judges how it arrived, [`host`] drives streams over any `Port` and speaks PFC. [`rclink`] is an RC
//! Link endpoint that carries messages, [`tcp`] a host with TCP connections. [`report`] has the results of a run, and
//! [`null_path`] is a switch whose ports generate their own load.
//!
//! Times are picoseconds (`dataplane::time`), lengths are bytes without FCS, rates bit/s; floats occur in reports only.
//! Nothing here reads a clock, starts a thread or does I/O of its own: the caller passes time in, and randomness is
//! seeded. So the same code runs on interfaces and in virtual time. A live host is
//!
//! ```no_run
//! # use weft_dataplane::{pool::Bufs, port::{Port, PortError}, time::Instant};
//! # use weft_hosts::{host::Host, report::Report};
//! # fn clock() -> Instant { Instant::ZERO }
//! fn run(host: &mut Host, port: &mut dyn Port, bufs: &mut Bufs) -> Result<Report, PortError> {
//!     host.announce();
//!     while !host.is_done() {
//!         let progress = host.poll(clock(), port, bufs)?;
//!         // nothing moved: sleep until `progress.next`, or until the port is ready if `blocked`
//! #       let _ = progress;
//!     }
//!     host.release(bufs);
//!     Ok(host.report(clock(), &port.counters()))
//! }
//! ```
//!
//! Source: docs/spec/pipeline.md §2, §9; docs/spec/wire-formats.md §1, §2.

#![warn(missing_docs)]

pub mod classes;
pub mod frames;
pub mod host;
mod link;
pub mod null_path;
pub mod pace;
pub mod pfc;
pub mod rclink;
pub mod report;
pub mod sizes;
pub mod stamp;
pub mod stream;
pub mod tcp;
