//! The pipeline: calls the switch functions in order, for one worker's ports.
//!
//! [`Core`] is shared by all workers, a [`Lane`] belongs to one of them; [`Lane::step`] receives,
//! decides and sends at one `now`, and returns when it wants to be called again.
//!
//! Units: cells, frames, `Instant`.
//! Source: docs/spec/pipeline.md §1 to §11; ARCHITECTURE.md "The path of a frame".

mod anew;
mod build;
mod builder;
mod burst;
mod context;
mod cross;
mod crossbar;
mod dequeue;
mod downlink;
mod draining;
mod egress;
mod enqueue;
mod fast;
mod flow_cache;
mod follow;
mod handover;
mod held;
mod housekeeping;
mod ingress;
mod input_lane;
mod lane;
mod learn;
mod ledger;
mod loops;
mod output_lane;
mod parse;
mod pause;
mod rewrite;
mod route;
mod scratch;
mod step;
mod switch_core;
mod timing;
mod tlp;
mod uplink;
mod virtual_time;
mod xoff;

pub use build::{BuildError, Built, build, chunks_beside_buffer, limit_learning};
pub use builder::{Switch, SwitchBuilder};
pub use lane::Lane;
pub use ledger::{Ledger, PortLedger, QueueLedger};
pub use switch_core::{Core, FastCore, LoopFound};
pub use timing::{Step, Timing};
pub use tlp::{CPU_PORT_MAC, cpu_mac_of_port, port_of_cpu_mac};
pub use virtual_time::VirtualLane;
