//! Rate of a G-FAM device over a link within the process: requester and device on one core.
//!
//! [`measure`]: a requester with 4 streams of 8 requests in flight, a pipe, a [`GfdEnd`].
//! Each byte is written into its chunk from the requester's memory, or copied to it.
//! Figures are bytes a ns (GB/s) of wall clock.
//!
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)"; docs/spec/wire-formats.md §3.6, §5.5 (requests
//! of 4 KiB, 4 streams).

use std::hint::black_box;

use weft_cxl::gfd::Gfd;
use weft_cxl::gfd_end::{Device, GfdEnd, GfdEndConfig};
use weft_cxl::tlp_end::{Carries, EndConfig, PlaceError, Received, TlpEnd};
use weft_dataplane::config::TlpConfig;
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, LinkRate};
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{At, Body, Kind, Mode, Pth, Status, TlpRepr};

use crate::gfam_path::rate;

/// Least bytes a ns of one core for both ends.
pub const GOAL_GBPS: f64 = 2.0;
/// Streams, each with [`WINDOW`] requests in flight.
const STREAMS: u16 = 4;
const WINDOW: u16 = 8;
const REQUEST: usize = 4_096;
const FRAME_MAX: usize = REQUEST + 64;
/// Memory that a round moves: more than the caches hold.
const ROUND: usize = 128 << 20;
const ROUNDS: usize = 5;
const CHUNKS: usize = 1_024;

/// A requester and the device, over a pipe.
pub struct Link {
    gfd: GfdEnd,
    host: TlpEnd,
    ports: [Pipe; 2],
    bufs: Bufs,
    memory: Vec<u8>,
}

fn end(last: u8) -> EndConfig {
    EndConfig {
        mac: MacAddr([2, 0, 0, 0, 0, last]),
        carries: Carries::Pbr,
        tlp: TlpConfig::for_pris(8),
        classes: PriMap::eight(),
        payload_max: REQUEST,
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The pool or the pipe could not be built.
    #[error("the link cannot be made: {0}")]
    Made(String),
    /// Requester's or device's port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Tag of a request that failed, or of an answer to no request.
    #[error("request {0} was not answered with success")]
    Refused(u16),
}

/// Address of byte `at` of the requester's window: granules of 4 KiB of way 1 of 4, as [`crate::gfd::device`] has them.
const fn address(at: usize) -> Hpa {
    let at = at as u64;
    Hpa((1 << 40) + ((at >> 12) << 14) + (1 << 12) + (at & 0xFFF))
}

impl Link {
    /// `gfd` at one end and a requester with PID 1 at the other.
    ///
    /// # Errors
    /// No memory for the pool.
    pub fn new(gfd: Gfd) -> Result<Self, LinkError> {
        let names = ["requester".to_owned(), "gfd".to_owned()];
        let (rate, frame_len_max) = (LinkRate::gbps(400), FRAME_MAX);
        let made = |what: &dyn std::fmt::Display| LinkError::Made(what.to_string());
        let config = PipeConfig { names, depth: 256, rate, frame_len_max, wakes_reader: false };
        let (mut near, mut far) = pipe(config).map_err(|error| made(&error))?;
        let pool = Pool::in_memory(CHUNKS, FRAME_MAX).map_err(|error| made(&error))?;
        let mut bufs = Bufs::new(pool, 64, 0);
        near.start(&mut bufs).map_err(|error| made(&error))?;
        far.start(&mut bufs).map_err(|error| made(&error))?;
        let gfd = GfdEnd::new(Device::new(gfd, 0), GfdEndConfig::default(), end(1));
        let memory = (0..ROUND).map(|at| at.to_le_bytes()[0]).collect();
        Ok(Self { gfd, host: TlpEnd::new(end(2)), ports: [near, far], bufs, memory })
    }

    /// Moves the whole window once; `writes` to the device, else from it.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn round(&mut self, writes: bool) -> Result<(), LinkError> {
        let Self { gfd, host, ports: [near, far], bufs, memory } = self;
        let pth = Some(Pth::new(Pid::from_low_bits(1), gfd.gfd().pid()));
        let mut starts: [Option<usize>; (STREAMS * WINDOW) as usize] = Default::default();
        let (mut next, mut done, mut refused) = (0, 0, None);
        while done < ROUND / REQUEST {
            for (tag, slot) in (0_u16..).zip(&mut starts) {
                if slot.is_some() || next >= ROUND / REQUEST {
                    continue;
                }
                // streams lie apart, one beside the other
                let lane = next % usize::from(STREAMS);
                let at =
                    lane * (ROUND / usize::from(STREAMS)) + next / usize::from(STREAMS) * REQUEST;
                let request = request(writes, tag, at);
                let data = memory.get(at..at + REQUEST).unwrap_or_default();
                let len = if writes { REQUEST } else { 0 };
                match host.place(bufs, pth, &request, len, |place| {
                    if writes {
                        place.copy_from_slice(data);
                    }
                    true
                }) {
                    Ok(()) => {}
                    // chunks come back as the device answers: go on with the requests in flight
                    Err(PlaceError::NoChunk) => break,
                    Err(_) => return Err(LinkError::Refused(tag)),
                }
                (*slot, next) = (Some(at), next + 1);
            }
            host.flush(Instant::ZERO, near, bufs)?;
            gfd.poll(Instant::ZERO, far, bufs)?;
            host.receive(Instant::ZERO, near, bufs, 8, &mut |frame, _| {
                let Received::Tlp(_, tlp) = frame.content else { return };
                let Some((_, offset)) = tlp.uio_completion() else { return };
                let slot = starts.get_mut(usize::from(tlp.tag()));
                let Some((slot, at)) = slot.and_then(|slot| slot.map(|at| (slot, at))) else {
                    refused = Some(tlp.tag());
                    return;
                };
                if tlp.status() != Some(Status::Success) {
                    refused = Some(tlp.tag());
                }
                let from = at + usize::from(offset) * 4;
                let place = memory.get_mut(from..from + tlp.payload().len());
                if !writes && let Some(place) = place {
                    place.copy_from_slice(tlp.payload());
                }
                *slot = None; // one completion answers all of a request
                done += 1;
            });
            if let Some(tag) = refused {
                return Err(LinkError::Refused(tag));
            }
        }
        Ok(())
    }
}

fn request(writes: bool, tag: u16, at: usize) -> TlpRepr<'static> {
    let body = Body::Address {
        addr: address(at),
        wide: true,
        at: At::default(),
        no_write: false,
        length_dw: 1_024,
        first_be: 15,
        last_be: 15,
    };
    let kind = if writes { Kind::UioWrite } else { Kind::UioRead };
    TlpRepr::new(Mode::Flit, kind, Bdf::new(1, 0, 0), tag, body)
}

/// Bytes a ns of writes, of reads, and of copying the same memory in pieces of the same size.
///
/// # Errors
/// See [`LinkError`].
pub fn measure(gfd: Gfd) -> Result<[f64; 3], LinkError> {
    let mut link = Link::new(gfd)?;
    let bytes = ROUND as u64;
    let writes = rate::<ROUNDS, _>(bytes, || link.round(true))?;
    let reads = rate::<ROUNDS, _>(bytes, || link.round(false))?;
    let (from, mut to) = (std::mem::take(&mut link.memory), vec![0_u8; ROUND]);
    let copies = rate::<ROUNDS, LinkError>(bytes, || {
        for (to, from) in to.chunks_exact_mut(REQUEST).zip(from.chunks_exact(REQUEST)) {
            to.copy_from_slice(black_box(from));
        }
        black_box(&mut to);
        Ok(())
    })?;
    Ok([writes, reads, copies])
}
