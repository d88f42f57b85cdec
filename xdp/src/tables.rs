//! The tables by which the kernel routes TLPs: written as a whole to the bank that is not in force, then put in force.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "Inside"; docs/express.md.

use core::sync::atomic::Ordering;

use aya::Ebpf;
use aya::maps::Array;

use crate::XdpError;
use crate::layout::{BANKS, Edge, IDT, PIDS, PORTS, SEGMENTS, map};
use crate::maps::{map_of, mapped};
use crate::sys::Mapped;

/// Words of an access vector.
const GMV_WORDS: usize = PIDS / 64;

/// Everything by which the kernel routes TLPs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricTables {
    /// Edge ports, by port number.
    pub edges: Vec<Edge>,
    /// Segments of all edges.
    pub segments: Vec<u32>,
    /// PIDs of all interleave DPID tables.
    pub idt: Vec<u16>,
    /// PIDs that a port's host may reach as G-FAM, by port.
    pub gmv: Vec<[u64; GMV_WORDS]>,
    /// DRT entries by DPID ([`crate::layout::route`]).
    pub drt: Vec<u16>,
}

/// The maps that hold these tables.
#[derive(Debug)]
pub(crate) struct Fabric {
    segments: Mapped,
    idt: Mapped,
    gmv: Mapped,
    drt: Mapped,
    partners: Mapped,
}

const SEGMENT_WORDS: usize = SEGMENTS / 2;
const IDT_WORDS: usize = IDT / 4;
const DRT_WORDS: usize = PIDS / 4;

impl Fabric {
    pub fn new(ebpf: &Ebpf) -> Result<Self, XdpError> {
        Ok(Self {
            segments: mapped(ebpf, map::SEGMENTS, BANKS * SEGMENT_WORDS)?,
            idt: mapped(ebpf, map::IDT, BANKS * IDT_WORDS)?,
            gmv: mapped(ebpf, map::GMV, BANKS * PORTS * GMV_WORDS)?,
            drt: mapped(ebpf, map::DRT, BANKS * DRT_WORDS)?,
            partners: mapped(ebpf, map::PARTNERS, PORTS)?,
        })
    }
}

/// Packs `values` of `bits` bits each into words from `first` on, lowest bits first.
fn pack(to: &Mapped, first: usize, values: impl Iterator<Item = u64>, bits: usize) {
    let per = 64 / bits;
    let (mut word, mut at) = (0, 0);
    for value in values {
        word |= value << (at % per * bits);
        at += 1;
        if at % per == 0 {
            // Relaxed: no program reads this bank until `set_control` names it, with a Release store.
            to.word(first + at / per - 1).store(word, Ordering::Relaxed);
            word = 0;
        }
    }
    if at % per != 0 {
        to.word(first + at / per).store(word, Ordering::Relaxed);
    }
}

/// Unpacks `count` values.
fn unpack(from: &Mapped, first: usize, count: usize, bits: usize) -> impl Iterator<Item = u64> {
    let (per, mask) = (64 / bits, u64::MAX >> (64 - bits));
    (0..count).map(move |at| {
        from.word(first + at / per).load(Ordering::Relaxed) >> (at % per * bits) & mask
    })
}

impl Fabric {
    /// Writes tables to `bank`, which is not in force.
    ///
    /// # Panics
    /// When a table exceeds its map.
    pub fn write(
        &self,
        ebpf: &mut Ebpf,
        bank: usize,
        tables: &FabricTables,
    ) -> Result<(), XdpError> {
        let FabricTables { edges, segments, idt, gmv, drt } = tables;
        assert!(edges.len() <= PORTS && gmv.len() <= PORTS, "ports of a switch");
        assert!(segments.len() <= SEGMENTS && idt.len() <= IDT && drt.len() <= PIDS, "room");
        let mut all: Array<_, Edge> = map_of(ebpf, map::EDGES)?;
        for port in 0..PORTS {
            let at = u32::try_from(bank * PORTS + port).unwrap_or(u32::MAX);
            let edge = edges.get(port).copied().unwrap_or_default();
            all.set(at, edge, 0).map_err(XdpError::map(map::EDGES))?;
        }
        let Self { segments: to_segments, idt: to_idt, gmv: to_gmv, drt: to_drt, .. } = self;
        let words = |values: &[u32]| values.iter().map(|&value| value.into()).collect::<Vec<u64>>();
        pack(to_segments, bank * SEGMENT_WORDS, words(segments).into_iter(), 32);
        pack(to_idt, bank * IDT_WORDS, idt.iter().map(|&pid| pid.into()), 16);
        let all = gmv.iter().flatten().copied();
        pack(to_gmv, bank * PORTS * GMV_WORDS, all, 64);
        // The rest of the bank may hold routes of two changes ago.
        let nowhere = std::iter::repeat_n(0, PIDS - drt.len());
        pack(to_drt, bank * DRT_WORDS, drt.iter().map(|&route| route.into()).chain(nowhere), 16);
        Ok(())
    }

    /// Reads back the tables of `bank`, with the lengths of `like`.
    #[expect(clippy::cast_possible_truncation, reason = "masked to as many bits")]
    pub fn read(
        &self,
        ebpf: &Ebpf,
        bank: usize,
        like: &FabricTables,
    ) -> Result<FabricTables, XdpError> {
        let all = ebpf.map(map::EDGES).ok_or(XdpError::Missing(map::EDGES))?;
        let all = Array::<_, Edge>::try_from(all).map_err(XdpError::map(map::EDGES))?;
        let edge = |port: usize| {
            let at = u32::try_from(bank * PORTS + port).unwrap_or(u32::MAX);
            all.get(&at, 0).map_err(XdpError::map(map::EDGES))
        };
        let Self { segments, idt, gmv, drt, .. } = self;
        let of_port = |port: usize| {
            let mut words = [0; GMV_WORDS];
            let at = (bank * PORTS + port) * GMV_WORDS;
            words.iter_mut().zip(unpack(gmv, at, GMV_WORDS, 64)).for_each(|(to, from)| *to = from);
            words
        };
        Ok(FabricTables {
            edges: (0..like.edges.len()).map(edge).collect::<Result<_, _>>()?,
            segments: unpack(segments, bank * SEGMENT_WORDS, like.segments.len(), 32)
                .map(|word| word as u32)
                .collect(),
            idt: unpack(idt, bank * IDT_WORDS, like.idt.len(), 16)
                .map(|word| word as u16)
                .collect(),
            gmv: (0..like.gmv.len()).map(of_port).collect(),
            drt: unpack(drt, bank * DRT_WORDS, like.drt.len(), 16)
                .map(|word| word as u16)
                .collect(),
        })
    }

    /// Sets the MAC address of the component at the other end of a link for TLPs.
    pub fn set_partner(&self, port: u8, mac: u64) {
        self.partners.word(port.into()).store(mac, Ordering::Relaxed);
    }
}
