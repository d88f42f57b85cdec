//! Port-based routing of TLPs: the tables of an edge and of a switch, and the decisions based on them.
//!
//! Tables ([`Tables`]) are immutable. A decision takes plain values of a TLP and gives a PID, a port or a [`Refusal`].
//!
//! Only `request` and `source` know the layout of a header. Code that reads and rewrites TLPs calls [`Tables::ingress`]
//! for one that comes in at an edge, [`source::admit`] and [`Tables::forward`] for one that comes in with a PTH,
//! [`Tables::pick`] for the port behind a DPID, and [`egress::leave`] for one that leaves at an edge.
//!
//! Source: docs/spec/cxl-fabric.md; CXL 3.1 section 7.7.6; docs/spec/wire-formats.md §3.4, §3.7, §4.5, §4.6, §5.

pub mod access;
pub mod bridge;
pub mod cache_ids;
pub mod drt;
pub mod edge;
pub mod egress;
pub mod error;
pub mod explain;
pub mod fast;
pub mod gather;
pub mod ingress;
pub mod ldst;
pub mod ln;
pub mod refusal;
mod request;
pub mod rerouter;
pub mod segments;
pub mod source;
pub mod tables;
pub mod vcs;

pub use access::{Access, AccessVector};
pub use bridge::{Bridge, Window};
pub use cache_ids::{CacheDecoding, CacheRoutes};
pub use drt::{Dispatch, Flow, Load, Routes};
pub use edge::{EdgePort, Prefixes, Role};
pub use egress::{Bindings, Leaving, Out};
pub use error::TableError;
pub use fast::Fast;
pub use gather::Gather;
pub use ingress::{Kind, Request, Verdict};
pub use ldst::Ldst;
pub use ln::LnTlp;
pub use refusal::Refusal;
pub use rerouter::ReRouter;
pub use segments::Found;
pub use tables::{Arrival, Tables};
pub use vcs::{Binding, Function, Hop, Implicit, Route, Side, Vcs, Vppb};
