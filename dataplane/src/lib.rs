//! The switching core of weft and the ports it runs on.
//!
//! It receives frames and `now`, and makes decisions. Blocks (time, types, pool, desc, batch) are used by
//! switch functions (classify, fdb, vlan, lag, loops, buffer, voq, islip, egress, ecn, pfc), which
//! `pipeline` calls in order; `worker` is the thread that drives it live, and `weft-sim` drives it in
//! virtual time.
//!
//! Units: time in picoseconds ([`time::Instant`]), sizes in bytes or cells, rates in bit/s, as named.
//! Source: docs/spec/pipeline.md §1 to §13; each module names its standard and clause.
//!
//! A switch of two ports, and a frame through it:
//!
//! ```
//! use weft_dataplane::batch::Batch;
//! use weft_dataplane::pipeline::SwitchBuilder;
//! use weft_dataplane::pool::{Bufs, Pool};
//! use weft_dataplane::port::Port;
//! use weft_dataplane::port::pipe::{PipeConfig, pipe};
//! use weft_dataplane::time::{Instant, LinkRate};
//!
//! let pool = Pool::in_memory(8_192, 1_518)?;
//! let mut bufs = Bufs::new(pool.clone(), 64, 0);
//! let (mut hosts, mut ports) = (Vec::new(), Vec::<Box<dyn Port>>::new());
//! for name in ["left", "right"] {
//!     let names = [format!("host {name}"), name.to_owned()];
//!     let rate = LinkRate::gbps(10);
//!     let config = PipeConfig { names, depth: 64, rate, frame_len_max: 1_518, wakes_reader: false };
//!     let (mut host, port) = pipe(config)?;
//!     host.start(&mut bufs)?;
//!     hosts.push(host);
//!     ports.push(Box::new(port));
//! }
//! let mut switch = SwitchBuilder::new(ports).pool(pool).build()?;
//!
//! let mut frame = [0; 60];
//! frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x90, 0x00]);
//! let mut batch = Batch::new();
//! batch.push(bufs.alloc_from(&frame).ok_or("no free chunk")?);
//! let now = Instant::ZERO;
//! switch.step(now); // the links are seen to be up
//! hosts[0].tx(now, &mut bufs, &mut batch);
//! switch.step(now);
//! hosts[1].rx(now, &mut bufs, &mut batch);
//! assert_eq!(bufs.bytes(batch.iter().next().ok_or("nothing came out")?), frame);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`port::Port`] is a way in and out, [`pool::Pool`] the memory of all frames, [`config::SwitchConfig`] the
//! configuration of a switch. [`pipeline`] forwards frames, [`worker`] runs it on threads, [`stats`] has the
//! counters, and [`trace`] the decisions as events.

#![warn(missing_docs)]

pub mod batch;
pub mod bucket;
pub mod buffer;
pub mod classify;
pub mod config;
pub mod desc;
pub mod ecn;
pub mod egress;
pub mod fdb;
pub mod flows;
pub mod groups;
pub mod islip;
pub mod lag;
pub mod loops;
pub mod pbr;
pub mod pfc;
pub mod pipeline;
#[expect(unsafe_code, reason = "chunks of a mapping, reached through descriptors")]
pub mod pool;
pub mod port;
pub mod queues;
pub mod snapshot;
pub mod stats;
pub mod storm;
pub mod time;
pub mod trace;
pub mod types;
pub mod vlan;
pub mod voq;
#[expect(unsafe_code, reason = "ppoll")]
pub mod worker;
