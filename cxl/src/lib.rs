//! CXL endpoints: hosts, devices, HBR switches and G-FAM devices at the ends of links that carry TLPs.
//!
//! [`cxl_host`], [`cxl_device`], [`mld`] (several logical devices) and [`hbr`] (an HBR switch) stand on [`tlp_end`],
//! one end of a link, with [`pci`] (configuration space, bridges, mailbox, enumeration); [`requester`] and
//! [`completer`] are their two halves, [`transaction_layer`] is the common part of hosts and devices. [`mem`] loads and
//! stores by CXL.mem, [`coherence`] keeps lines in hosts' caches; [`gfd`] is a G-FAM device, [`gfd_end`] one on a link;
//! [`ln`] keeps copies of a host's cache lines, [`fabric_mem`] copies memory over a fabric; [`vdm`] has the messages
//! between components, [`cci`] serves commands, [`cdat`] reports latency and bandwidth.
//!
//! Units: picoseconds (`dataplane::time`), bytes.
//! Source: docs/spec/cxl-fabric.md; docs/spec/wire-formats.md §3 to §5.
//!
//! Pure: time is a parameter, chance is seeded, no thread, no I/O of its own.
//!
//! A G-FAM device of 1 GiB, and a fabric manager that identifies it by CCI:
//!
//! ```
//! use weft_cxl::cci::{Served, Session, serve};
//! use weft_cxl::gfd::{Config, Gfd, Memory};
//! use weft_cxl::gfd_end::Device;
//! use weft_dataplane::time::{Instant, LinkRate};
//! use weft_parsers::cci::{Header, Request, ReturnCode};
//! use weft_parsers::fabric::Pid;
//!
//! let config = Config::full(Pid::NONE, LinkRate::gbps(100));
//! let mut device = Device::new(Gfd::new(config, Memory::anonymous(1 << 30)), 1);
//!
//! let mut message = [0; 64];
//! let len = Request::Identify.emit_message(9, &mut message).expect("it fits");
//! let mut out = Vec::new();
//! let served = serve(&mut device, Instant::ZERO, Session::Fm(1), &message[..len], &mut out);
//! assert_eq!(served, Served::Response);
//! let (header, payload) = Header::parse(&out).expect("a whole message");
//! assert_eq!((header.return_code, header.tag), (ReturnCode::Success, 9));
//! assert!(!payload.is_empty());
//! ```
//!
//! An endpoint on a link of TLPs is polled with its port, as [`cxl_host::CxlHost`] and [`cxl_device::CxlDevice`] are;
//! its events are fetched by its owner.

mod by_key;
pub mod cache;
pub mod cci;
pub mod cdat;
pub mod coherence;
pub mod completer;
mod cover;
pub mod cxl_device;
pub mod cxl_host;
pub mod fabric_mem;
pub mod gfd;
pub mod gfd_end;
pub mod hbr;
pub mod in_band;
pub mod ln;
pub mod mctp;
pub mod mem;
pub mod mld;
pub mod pci;
pub mod requester;
pub mod tlp_end;
pub mod transaction_layer;
pub mod vdm;
