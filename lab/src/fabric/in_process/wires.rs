//! The wires of a fabric in one process: a pipe for each.
//!
//! [`Wires::new`] of a layout; each part takes its ends.
//!
//! Units: bytes, frames.
//! Source: docs/spec/cxl-fabric.md.

use std::collections::BTreeMap;

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::pipe::{Inbox, LinkHandle, Pipe, PipeConfig, pipe};
use weft_dataplane::port::{Port, PortOpenError};

use super::{FRAME_LEN_MAX, InProcessError, RATE};
use crate::fabric::layout::{End, Layout, Part};

/// Frames on their way in one direction of a link.
const DEPTH: usize = 128;

/// The pipes of a layout, by their ends.
pub(super) struct Wires {
    ends: BTreeMap<End, Pipe>,
    pub links: Vec<LinkHandle>,
}

impl Wires {
    /// A pipe for each wire of `layout`.
    pub fn new(layout: &Layout, bufs: &mut Bufs) -> Result<Self, InProcessError> {
        let (mut ends, mut links) = (BTreeMap::new(), Vec::new());
        for &[one, two] in &layout.wires {
            let names = [layout.name(two.part), layout.name(one.part)].map(ToOwned::to_owned);
            let (near, far) = joined(names, bufs).map_err(Box::new)?;
            links.push(near.link_handle());
            ends.insert(one, near);
            ends.insert(two, far);
        }
        Ok(Self { ends, links })
    }

    /// The end of a wire at a port of a part, and where what comes to it waits.
    pub fn take(&mut self, part: Part, port: u8) -> Option<(Box<dyn Port>, Inbox)> {
        let end = self.ends.remove(&End { part, port })?;
        let inbox = end.inbox();
        Some((Box::new(end), inbox))
    }
}

/// A pipe between two parts of these names, both its ends started.
pub(super) fn joined(names: [String; 2], bufs: &mut Bufs) -> Result<(Pipe, Pipe), PortOpenError> {
    let (rate, frame_len_max) = (RATE, FRAME_LEN_MAX);
    let config = PipeConfig { names, depth: DEPTH, rate, frame_len_max, wakes_reader: false };
    let (mut near, mut far) = pipe(config)?;
    near.start(bufs)?;
    far.start(bufs)?;
    Ok((near, far))
}
