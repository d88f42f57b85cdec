//! The pipeline: calls the switch functions in order, for one worker's ports.
//!
//! [`Core`] is shared by all workers, a [`Lane`] belongs to one of them; [`Lane::step`] receives,
//! decides and sends at one `now`, and returns when it wants to be called again. A switch in virtual
//! time is a [`VirtualTimeLane`]: one lane, driven from event to event.
//!
//! `input_lane` and `output_lane` are the two sides of a port, and have a method for each stage that
//! concerns one port. Stages without state of their own are functions that take the worker's
//! `Context`.
//!
//! Units: cells, frames, `Instant`.
//! Source: docs/spec/pipeline.md §1 to §11; ARCHITECTURE.md "The path of a frame".

mod build;
mod builder;
mod burst;
mod context;
mod crossbar;
mod downlink;
mod draining;
mod flow_cache;
mod held;
mod input_lane;
mod lane;
mod learn;
mod ledger;
mod loops;
mod output_lane;
mod parse;
mod route;
mod scratch;
mod switch_core;
mod timing;
mod tlp;
mod uplink;
mod virtual_time;

pub use build::{BuildError, Built, build, chunks_beside_buffer, limit_learning};
pub use builder::{Switch, SwitchBuilder};
pub use lane::Lane;
pub use ledger::{Ledger, PortLedger, QueueLedger};
pub use switch_core::{Core, FastCore, LoopFound};
pub use timing::{Step, Timing};
pub use tlp::{CPU_PORT_MAC, cpu_mac_of_port, port_of_cpu_mac};
pub use virtual_time::VirtualTimeLane;
