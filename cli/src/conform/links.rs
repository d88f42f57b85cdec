//! This machine's ends of the switch's ports: sends test frames and reads the arrivals.
//!
//! [`Links`] has a network interface for each port, and a [`Seen`] for each frame that arrived. Lengths are without
//! FCS.
//!
//! Source: docs/spec/wire-formats.md §1.1, §2.1; IEEE 802.1Q clause 36 (PFC).

use weft_base::wait;
use weft_dataplane::batch::Batch;
use weft_dataplane::pool::{Bufs, FRAME_LEN_MAX, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::time::{LinkRate, Span};
use weft_hosts::frames::{FrameSpec, Kind, Station};
use weft_hosts::sizes::Sizes;
use weft_hosts::stamp::Stamp;
use weft_lab::clock::now;
use weft_lab::netdev;
use weft_parsers::{Dscp, Ecn, Pcp, Vid};

use super::CaseError;

/// Chunks for frames in flight and the interfaces' receive rings.
const CHUNKS: usize = 4_096;
/// First number of the test's stations, away from those that other weft commands use.
const STATIONS: u16 = 0x57E0;
/// UDP port of test frames: Discard (RFC 863).
const DISCARD: u16 = 9;
/// Time without a sent frame after which a device counts as dead.
const SEND_MAX: Span = Span::from_ms(5_000);

/// The field from which the switch takes a frame's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// DSCP of IPv4, no VLAN tag.
    Dscp(u8),
    /// PCP of a tag with VLAN 0.
    Pcp(u8),
}

/// A frame that arrived, as far as cases need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A test frame, with its fields as the switch sent it.
    Test {
        /// Number of the interface that sent it.
        src: usize,
        dscp: u8,
        ecn: Ecn,
    },
    /// A station's broadcast, with the number of the interface that sent it.
    Hello(usize),
    /// A PFC frame: enable bits and pause quanta, by class.
    Pfc(u8, [u16; 8]),
}

struct Link {
    port: Box<dyn Port>,
    seen: Vec<Seen>,
}

pub struct Links {
    ends: Vec<Link>,
    bufs: Bufs,
    batch: Batch,
}

impl Links {
    /// Opens `interfaces`, one for each port.
    ///
    /// # Errors
    /// An interface cannot be opened or started.
    pub fn open(interfaces: &[&str]) -> Result<Self, CaseError> {
        let mut links = Vec::with_capacity(interfaces.len());
        for &interface in interfaces {
            let port = netdev::open(interface, LinkRate::gbps(100), FRAME_LEN_MAX);
            let port = port.map_err(|source| CaseError::Open {
                interface: interface.to_owned(),
                source: Box::new(source),
            })?;
            links.push(Link { port, seen: Vec::new() });
        }
        let len_max = links.iter().map(|link| link.port.caps().frame_len_max).max();
        let pool = Pool::map(CHUNKS, len_max.unwrap_or(FRAME_LEN_MAX))
            .map_err(|error| CaseError::Device(error.to_string()))?;
        let mut bufs = Bufs::new(pool, CHUNKS / 4, 4);
        for link in &mut links {
            let started = link.port.start(&mut bufs);
            started.map_err(|error| CaseError::Device(error.to_string()))?;
        }
        Ok(Self { ends: links, bufs, batch: Batch::new() })
    }

    /// A frame of `len` bytes from the station of interface `src` to that of `dst`.
    ///
    /// # Errors
    /// A length that the format cannot have.
    pub fn frame(
        src: usize,
        dst: usize,
        tag: Tag,
        ecn: Ecn,
        len: usize,
    ) -> Result<Vec<u8>, CaseError> {
        let mut spec = FrameSpec::new(Kind::Standard, station(src), station(dst));
        (spec.dport, spec.stamped, spec.ecn) = (DISCARD, false, ecn);
        match tag {
            // DSCP is the upper six bits of the octet (RFC 2474 §3).
            Tag::Dscp(dscp) => spec.dscp = Dscp::from_tos(dscp << 2),
            Tag::Pcp(pcp) => {
                spec = spec.with_vlan(Pcp::from_low_bits(pcp), Vid::from_low_bits(0));
            }
        }
        bytes(&spec.with_sizes(Sizes::Fixed(len)))
    }

    /// Broadcasts from each station, so that the switch learns their ports.
    ///
    /// # Errors
    /// A device sends nothing.
    pub fn announce(&mut self) -> Result<(), CaseError> {
        for src in 0..self.ends.len() {
            let spec = FrameSpec::new(Kind::Ethernet, station(src), Station::ALL);
            let frame = bytes(&spec.announcement())?;
            self.send(src, &frame, 1)?;
        }
        Ok(())
    }

    /// Sends `count` copies of a frame.
    ///
    /// # Errors
    /// The device takes no frame for five seconds.
    pub fn send(&mut self, src: usize, frame: &[u8], count: u64) -> Result<(), CaseError> {
        let Some(link) = self.ends.get_mut(src) else { return Ok(()) };
        let (mut left, mut last) = (count, now());
        while left > 0 || !self.batch.is_empty() {
            while left > 0 && !self.batch.is_full() {
                // The pool is empty until `service` has returned sent chunks to it.
                let Some(desc) = self.bufs.alloc_from(frame) else { break };
                self.batch.push(desc);
                left -= 1;
            }
            let took = link.port.tx(now(), &mut self.bufs, &mut self.batch);
            let served = link.port.service(now(), &mut self.bufs);
            served.map_err(|error| CaseError::Device(error.to_string()))?;
            if took > 0 {
                last = now();
            } else if now().since(last) > SEND_MAX {
                // The batch serves all interfaces: the next call would send these frames out of another one.
                self.bufs.free_all(self.batch.drain(..));
                return Err(CaseError::Device(
                    "a device sends nothing for five seconds".to_owned(),
                ));
            } else {
                wait::pause(core::time::Duration::from_micros(50));
            }
        }
        Ok(())
    }

    /// Frames that arrived at interface `at` since the last call.
    ///
    /// # Errors
    /// The device failed.
    pub fn take(&mut self, at: usize) -> Result<Vec<Seen>, CaseError> {
        self.poll()?;
        Ok(self.ends.get_mut(at).map(|link| core::mem::take(&mut link.seen)).unwrap_or_default())
    }

    /// Reads the arrivals of all interfaces, so that none of their receive rings overflows.
    ///
    /// # Errors
    /// A device failed.
    pub fn poll(&mut self) -> Result<(), CaseError> {
        let stations = self.ends.len();
        for link in &mut self.ends {
            loop {
                let count = link.port.rx(now(), &mut self.bufs, &mut self.batch);
                for desc in self.batch.drain(..) {
                    link.seen.extend(read(self.bufs.bytes(&desc), stations));
                    self.bufs.free(desc);
                }
                if count == 0 {
                    break;
                }
            }
            let served = link.port.service(now(), &mut self.bufs);
            served.map_err(|error| CaseError::Device(error.to_string()))?;
        }
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        for link in &mut self.ends {
            link.port.release(&mut self.bufs);
        }
    }
}

fn station(number: usize) -> Station {
    Station::numbered(STATIONS.wrapping_add(u16::try_from(number).unwrap_or(u16::MAX)))
}

fn bytes(spec: &FrameSpec) -> Result<Vec<u8>, CaseError> {
    let stamp = Stamp { stream: 0, seq: 0, sent: now() };
    spec.to_vec(&stamp, 0).map_err(|error| CaseError::Device(error.to_string()))
}

/// Reads a frame; `None` unless it is PFC or was sent by one of the test's stations.
fn read(frame: &[u8], stations: usize) -> Option<Seen> {
    // EtherType of MAC Control, then PFC's opcode (docs/spec/wire-formats.md §2.3).
    const PFC: [u8; 4] = [0x88, 0x08, 0x01, 0x01];
    let (dst, rest) = frame.split_first_chunk::<6>()?;
    let (src, mut rest) = rest.split_first_chunk::<6>()?;
    if let Some(fields) = rest.strip_prefix(&PFC) {
        // The class-enable vector has 16 bits, of which the upper eight are reserved.
        let (&[_, classes], fields) = fields.split_first_chunk::<2>()?;
        let mut quanta = [0; 8];
        for (to, from) in quanta.iter_mut().zip(fields.chunks_exact(2)) {
            *to = u16::from_be_bytes(from.try_into().ok()?);
        }
        return Some(Seen::Pfc(classes, quanta));
    }
    let is_station = |mac: &[u8; 6]| (0..stations).position(|n| station(n).mac.0 == *mac);
    let src = is_station(src)?;
    if *dst == Station::ALL.mac.0 {
        return Some(Seen::Hello(src));
    }
    is_station(dst)?;
    // The output may send with a C-tag or without, as it is configured.
    if let [0x81, 0x00, _, _, tagged @ ..] = rest {
        rest = tagged;
    }
    let [0x08, 0x00, _, tos, ..] = rest else { return None };
    Some(Seen::Test { src, dscp: tos >> 2, ecn: Ecn::from_low_bits(*tos) })
}
