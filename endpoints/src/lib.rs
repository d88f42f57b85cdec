//! Hosts and traffic that hang on a switch's ports.
//!
//! Shape: [`frames`] build octets, [`stamp`] marks and checks them, [`stream`] paces and judges a
//! sequence of them, [`host`] drives streams over any `Port` and speaks PFC, [`patterns`] makes the
//! streams of N hosts, [`report`] is what a run says; [`null_path`] is a switch that feeds itself.
//! [`gfd`] is a G-FAM device, [`gfd_end`] one on a link, [`fabric_mem`] copies memory over a CXL fabric,
//! [`ln`] keeps copies of a host's cache lines, [`vdm`] holds what components of a fabric say to each other.
//! [`cxl_host`], [`cxl_device`] and [`hbr`] hang on links of TLPs; [`requester`] and [`completer`] are their two halves.
//! Units: picoseconds (`dataplane::time`), octets without FCS, bit/s; no float but in reports.
//! Source: docs/spec/pipeline.md §2, §9; docs/spec/wire-formats.md §1, §2.
//!
//! Pure: time is a parameter, chance is seeded, no thread, no I/O of its own. A live host is
//!
//! ```no_run
//! # use weft_dataplane::{pool::Bufs, port::{Port, PortError}, time::Instant};
//! # use weft_endpoints::{host::Host, report::Report};
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

pub mod cci;
pub mod classes;
pub mod completer;
pub mod component;
pub mod cxl_device;
pub mod cxl_host;
pub mod fabric_mem;
pub mod frames;
pub mod gfd;
pub mod gfd_end;
pub mod hbr;
pub mod host;
pub mod ln;
pub mod null_path;
pub mod pace;
pub mod patterns;
pub mod pci;
pub mod pfc;
pub mod report;
pub mod requester;
pub mod sizes;
pub mod stamp;
pub mod stream;
pub mod tlp_end;
pub mod vdm;
