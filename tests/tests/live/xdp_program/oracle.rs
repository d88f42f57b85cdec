//! What the dataplane's own functions say of a frame.
//!
//! A configuration and what was learnt from some frames → [`Facts`] of any frame.
//!
//! Units: bytes without FCS.
//! Source: docs/express.md.

use std::collections::BTreeMap;

use weft_dataplane::fdb::FdbKey;
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::stats::SIZE_BINS;
use weft_dataplane::types::{PortId, Pri};
use weft_dataplane::vlan::{Arrival, TagOp};
use weft_parsers::{AddrKey, Format, HEAD_LEN, Head, ParseError, parse_head};
use weft_xdp::layout::{KINDS, SIZES, Tally};

/// What becomes of a frame while the switch is at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Express(PortId),
    Pass,
}

#[derive(Clone, Copy, Debug)]
pub struct Facts {
    pub fate: Fate,
    pub pri: Pri,
    pub format: Format,
}

/// Counters of one port.
pub struct Sums {
    pub express_in: [Tally; KINDS],
    pub express_out: [Tally; KINDS],
    pub sizes: [u64; SIZES],
}

pub struct Oracle {
    snapshot: Snapshot,
    fdb: BTreeMap<FdbKey, PortId>,
}

fn head(snapshot: &Snapshot, input: PortId, frame: &[u8]) -> Result<Head, ParseError> {
    let mut bytes = [0; HEAD_LEN];
    let part = frame.len().min(HEAD_LEN);
    bytes[..part].copy_from_slice(&frame[..part]);
    parse_head(&bytes, frame.len(), &snapshot.config.ports[input.index()].parse)
}

/// Key of a frame's source in the kernel.
pub fn source_key(snapshot: &Snapshot, input: PortId, frame: &[u8]) -> u64 {
    key(snapshot, input, frame, Head::src)
}

/// Key of its destination.
pub fn destination_key(snapshot: &Snapshot, input: PortId, frame: &[u8]) -> u64 {
    key(snapshot, input, frame, Head::dst)
}

fn key(snapshot: &Snapshot, input: PortId, frame: &[u8], of: fn(&Head) -> AddrKey) -> u64 {
    let head = head(snapshot, input, frame).unwrap();
    let vid = snapshot.vlan.ingress(input, head.tci()).unwrap();
    weft_control::express::station_key(FdbKey::new(vid, of(&head)))
}

impl Oracle {
    /// Learns the sources of `frames`; where one comes in by two ports, the last one counts.
    pub fn new(snapshot: &Snapshot, frames: &[(PortId, Vec<u8>)]) -> Self {
        let mut fdb = BTreeMap::new();
        for (input, frame) in frames {
            let Ok(head) = head(snapshot, *input, frame) else { continue };
            let plain = head.format() != Format::MacControl && head.source_valid();
            if let (true, Ok(vid)) = (plain, snapshot.vlan.ingress(*input, head.tci())) {
                let before = fdb.insert(FdbKey::new(vid, head.src()), *input);
                assert!(before.is_none_or(|port| port == *input), "no station moves in a set");
            }
        }
        Self { snapshot: snapshot.clone(), fdb }
    }

    pub fn stations(&self) -> impl Iterator<Item = (FdbKey, PortId)> + '_ {
        self.fdb.iter().map(|(key, port)| (*key, *port))
    }

    pub fn facts(&self, input: PortId, frame: &[u8]) -> Facts {
        let classifier = &self.snapshot.classifiers[input.index()];
        match head(&self.snapshot, input, frame) {
            Ok(head) => {
                let output = self.output(input, &head, frame.len());
                let (pri, _) = classifier.pri(&head);
                let output = output.filter(|_| !self.snapshot.is_lossless(input, pri));
                let fate = output.map_or(Fate::Pass, Fate::Express);
                Facts { fate, pri, format: head.format() }
            }
            Err(_) => Facts {
                fate: Fate::Pass,
                pri: classifier.pri(&Head::EMPTY).0,
                format: Format::Other,
            },
        }
    }

    /// Where a frame goes that the pipeline would pass on unchanged to one output.
    fn output(&self, input: PortId, head: &Head, len: usize) -> Option<PortId> {
        let (snapshot, ports) = (&self.snapshot, &self.snapshot.config.ports);
        let vid = snapshot.vlan.ingress(input, head.tci()).ok()?;
        let known = self.fdb.get(&FdbKey::new(vid, head.src())) == Some(&input);
        let output = *self.fdb.get(&FdbKey::new(vid, head.dst()))?;
        let op = snapshot.vlan.egress(output, vid, Arrival::of(head.tci()));
        let carried = snapshot.carriers[head.format() as usize].contains(output);
        let longest = ports[input.index()].frame_len_max.min(ports[output.index()].frame_len_max);
        let both = snapshot.vlan.members(vid);
        (known
            && head.individual()
            && head.source_valid()
            && head.format() != Format::MacControl
            && output != input
            && op == TagOp::Keep
            && carried
            && both.contains(input)
            && both.contains(output)
            && (60..=longest).contains(&len))
        .then_some(output)
    }

    /// What the program is to count about `port` when each frame came once while all was open.
    pub fn expected(&self, frames: &[(PortId, Vec<u8>)], port: PortId) -> Sums {
        let mut sums = Sums {
            express_in: [Tally::default(); KINDS],
            express_out: [Tally::default(); KINDS],
            sizes: [0; SIZES],
        };
        for (input, frame) in frames {
            let Facts { fate: Fate::Express(output), pri, format } = self.facts(*input, frame)
            else {
                continue;
            };
            let kind = usize::from(pri.get()) * 8 + format as usize;
            let add = |cells: &mut [Tally; KINDS]| {
                cells[kind].frames += 1;
                cells[kind].bytes += frame.len() as u64;
            };
            if *input == port {
                add(&mut sums.express_in);
                let bin = SIZE_BINS.iter().position(|&bound| frame.len() + 4 <= bound);
                sums.sizes[bin.expect("the last bin takes all")] += 1;
            }
            if output == port {
                add(&mut sums.express_out);
            }
        }
        sums
    }
}
