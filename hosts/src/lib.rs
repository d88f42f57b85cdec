//! Ethernet hosts and their traffic, on a switch's ports.
//!
//! [`frames`] build bytes, [`stamp`] marks and checks them, [`stream`] paces and judges a
//! sequence of them, [`host`] drives streams over any `Port` and speaks PFC, [`rclink`] is an endpoint for
//! messages, [`tcp`] a host with connections; [`report`] is what a run says; [`null_path`] is a switch that feeds itself.
//!
//! Units: picoseconds (`dataplane::time`), bytes without FCS, bit/s; no float but in reports.
//! Source: docs/spec/pipeline.md §2, §9; docs/spec/wire-formats.md §1, §2.
//!
//! Pure: time is a parameter, chance is seeded, no thread, no I/O of its own. A live host is
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
