//! The control plane of a PBR switch: the commands of its fabric manager and its hosts, and the tables they lead to.
//!
//! [`Switch`] holds the state. Requests come in through [`weft_cxl::cci::serve`]. It hands out [`Switch::tables`] for
//! the dataplane, [`Event`]s for its driver, and [`Outgoing`] messages to components further out, whose answers return
//! through `Common::complete`. [`Agent`] is everything a switch does by itself at the far end of its CPU port. This
//! crate reads no clock and uses no sockets or threads.
//!
//! A switch has parts, each with its own commands; `Switch` dispatches to them, and carries out what concerns several:
//!
//! | part | owns |
//! |---|---|
//! | `Ports` | links, link partners, PIDs and PPB registers of the ports; counts of their traffic |
//! | `VirtualSwitches` | the virtual switches; events, and marks of tables that must be rebuilt |
//! | [`VcsState`] | one virtual switch: vPPBs with registers, bindings and tables, its GAE, rights of its host |
//! | [`CacheIds`](cache_ids::CacheIds) | `CacheID`s of one virtual switch: routes in force, and updates to the host's edge |
//! | `Routing` | DRT, RGT, PIDs that are here, and the dataplane's tables |
//! | [`EventLogs`](event_log::EventLogs) | event records for the fabric manager |
//!
//! Source: docs/spec/cxl-fabric.md; docs/spec/wire-formats.md §4.3 to §4.6, §4.8, §5; CXL 3.1 sections 7.7.2.6, 7.7.5,
//! 7.7.6, 7.7.9, 7.7.12.
//!
//! Bridges of a virtual switch are numbered as in its commands: vPPB 0 is the upstream bridge (the host's port, or a
//! vUSP), 1 and up are the downstream bridges. So Configure PID Binding names a vUSP as vPPB 0, and the FAST that
//! serves the host's own requests is that of vPPB 0.
//!
//! A switch with a host, a device and a link to another switch answers its fabric manager's first request:
//!
//! ```
//! use weft_cxl::cci::{Served, Session, serve};
//! use weft_dataplane::time::Instant;
//! use weft_dataplane::types::PortId;
//! use weft_parsers::cci::{Header, Request, ReturnCode};
//! use weft_pbr_switch::{PortConfig, Role, Switch, SwitchConfig, VcsConfig};
//!
//! let port = |number| PortId::new(number).expect("below 64");
//! let roles = [Role::Usp, Role::Dsp, Role::Fabric].into_iter().enumerate();
//! let mut switch = Switch::new(SwitchConfig {
//!     ports: roles.map(|(at, role)| PortConfig { port: port(at), role, pids: 2 }).collect(),
//!     vcses: vec![VcsConfig { usp: Some(port(0)), vppbs: 2, gae: true }],
//!     ..SwitchConfig::new([0x5A; 16], 7) // its UUID and serial number
//! })?;
//!
//! let mut message = [0; 64];
//! let len = Request::Identify.emit_message(9, &mut message).expect("it fits");
//! let mut out = Vec::new();
//! let served = serve(&mut switch, Instant::ZERO, Session::Fm(1), &message[..len], &mut out);
//! assert_eq!(served, Served::Response);
//! let (header, payload) = Header::parse(&out).expect("a whole message");
//! assert_eq!((header.return_code, header.tag), (ReturnCode::Success, 9));
//! assert!(!payload.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod agent;
pub mod cache_ids;
mod cci;
pub mod cdat;
pub mod config;
pub mod event;
pub mod event_log;
pub mod port;
mod ports;
mod routing;
pub mod static_init;
pub mod switch;
#[cfg(test)]
mod tests;
pub mod vcs;
mod virtual_switches;
mod work;

pub use agent::{Agent, AgentConfig, AgentCounts};
pub use config::{ConfigError, PortConfig, Role, Sizes, SwitchConfig, VcsConfig};
pub use event::Event;
pub use port::{Partner, Port};
pub use static_init::{BindingEnd, StaticBinding, StaticInit, StaticInitError, StaticPid};
pub use switch::{FarRequest, Outgoing, Switch};
pub use vcs::{Bound, GaeState, PidBound, VcsState, VppbState};
