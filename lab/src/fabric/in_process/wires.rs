//! Wires of a fabric in one process: a pipe for each.
//!
//! [`Wires::new`] makes the pipes of a layout; each part takes its ends.
//!
//! Source: docs/spec/cxl-fabric.md.

use std::collections::BTreeMap;

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::pipe::{Inbox, LinkHandle, Pipe, PipeConfig, pipe};
use weft_dataplane::port::{Port, PortOpenError};

use super::{FRAME_LEN_MAX, InProcessError, RATE};
use crate::fabric::layout::{End, Layout, Part};

/// Frames in flight in one direction of a wire.
const DEPTH: usize = 128;

/// The pipes of a layout by their ends.
pub(super) struct Wires {
    ends: BTreeMap<End, Pipe>,
    pub links: Vec<LinkHandle>,
}

impl Wires {
    /// Makes a pipe for each wire of `layout`.
    pub fn new(layout: &Layout, bufs: &mut Bufs) -> Result<Self, InProcessError> {
        let (mut ends, mut links) = (BTreeMap::new(), Vec::new());
        for &[one, two] in &layout.wires {
            // An end is named after its neighbour, as ports of switches are.
            let names = [layout.name(two.part), layout.name(one.part)].map(ToOwned::to_owned);
            let (near, far) = joined(names, bufs).map_err(Box::new)?;
            links.push(near.link_handle());
            ends.insert(one, near);
            ends.insert(two, far);
        }
        Ok(Self { ends, links })
    }

    /// Takes the end of a wire at a port of a part, with the inbox of its arriving frames.
    pub fn take(&mut self, part: Part, port: u8) -> Option<(Box<dyn Port>, Inbox)> {
        let end = self.ends.remove(&End { part, port })?;
        let inbox = end.inbox();
        Some((Box::new(end), inbox))
    }
}

/// Makes a pipe between two parts with these names, and starts both ends.
pub(super) fn joined(names: [String; 2], bufs: &mut Bufs) -> Result<(Pipe, Pipe), PortOpenError> {
    let (rate, frame_len_max) = (RATE, FRAME_LEN_MAX);
    let config = PipeConfig { names, depth: DEPTH, rate, frame_len_max, wakes_reader: false };
    let (mut near, mut far) = pipe(config)?;
    near.start(bufs)?;
    far.start(bufs)?;
    Ok((near, far))
}
