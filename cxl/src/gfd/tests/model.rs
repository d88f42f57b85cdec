//! Random accesses, revocations and remappings against a naive model.
//! The model is a byte map by DPA, a group by block, and the formula of the page for each byte.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §5.2.

use std::collections::BTreeMap;

use weft_base::rng::Rng;

use super::*;
use crate::gfd::access::{Enables, Refusal};
use crate::gfd::decode::Miss;
use crate::gfd::protect::Denied;

#[derive(Default)]
struct Model {
    bytes: BTreeMap<u64, u8>,
    group_of: BTreeMap<u64, u16>, // by block of 1 MiB
    decoders: BTreeMap<u16, [Option<Decoder>; 8]>,
    vectors: BTreeMap<u16, u64>,
}

impl Model {
    fn place(&self, rpid: u16, hpa: u64) -> Result<(u64, u64), Refusal> {
        let decoders = self.decoders.get(&rpid).into_iter().flatten().flatten();
        let hits = decoders.filter_map(|d| {
            let off = d.interleave.compact(hpa.checked_sub(d.hpa_base.0)?);
            (off < d.dpa_len).then_some((d.dpa_base.0 + off, u64::from(d.interleave.way(hpa))))
        });
        let hits: Vec<_> = hits.collect();
        let [(dpa, way)] = hits[..] else {
            let miss = if hits.is_empty() { Miss::None } else { Miss::Several };
            return Err(miss.into());
        };
        let group = self.group_of.get(&(dpa / MIB)).ok_or(Denied::NoGroup)?;
        let vector = self.vectors.get(&rpid).copied().unwrap_or(0);
        if vector & (1 << group) == 0 {
            return Err(Denied::Group(super::super::GrpId::new(*group).unwrap()).into());
        }
        Ok((dpa, way))
    }

    /// Checks every byte on its own.
    fn places(&self, rpid: u16, hpa: u64, len: usize) -> Result<Vec<u64>, Refusal> {
        let (_, first) = self.place(rpid, hpa)?;
        let each = (0..len as u64).map(|k| {
            let (dpa, way) = self.place(rpid, hpa + k)?;
            if way == first { Ok(dpa) } else { Err(Refusal::OtherWay) }
        });
        each.collect()
    }
}

fn random_decoder(rng: &mut Rng) -> Option<Decoder> {
    let ways = u8::try_from(rng.below(3)).unwrap();
    let granularity = u8::try_from(rng.below(3)).unwrap();
    let interleave = Interleave::from_codes(ways, granularity).unwrap();
    let (unit, granule) = (u64::from(interleave.granularity()) << ways, interleave.granularity());
    let decoder = Decoder {
        coherent: false,
        hpa_base: Hpa(HPA + rng.below(2 * MIB / unit) * unit),
        dpa_base: Dpa(rng.below(4 * MIB)),
        dpa_len: u64::from(granule) * (1 + rng.below(2_000)),
        interleave,
        way: 0,
    };
    rng.chance(3, 4).then_some(decoder)
}

/// Whether two windows have an address in common.
fn do_meet(decoders: &[Option<Decoder>]) -> bool {
    let window = |d: &Decoder| d.hpa_base.0..d.hpa_base.0 + (d.dpa_len << d.interleave.ways_code());
    let all: Vec<_> = decoders.iter().flatten().map(window).collect();
    let meets = |a: usize, b: usize| all[a].start < all[b].end && all[b].start < all[a].end;
    (0..all.len()).any(|a| (0..a).any(|b| meets(a, b)))
}

#[test]
fn random_accesses_do_what_the_model_does() {
    let seed = 0x0060_D5EE;
    let mut rng = Rng::new(seed);
    let mut gfd = device(Media::default());
    let mut model = Model::default();
    for block in 0..5 {
        let group = u16::try_from(rng.below(3)).unwrap();
        give(&mut gfd, group, 1);
        model.group_of.insert(block, group);
    }
    let mut done = [0_u32; 2];
    for step in 0..60_000 {
        let rpid = u16::try_from(rng.below(3)).unwrap();
        if rng.chance(1, 50) {
            let decoders = core::array::from_fn(|_| random_decoder(&mut rng));
            let any = do_meet(&decoders);
            let set = gfd.set_decoders(pid(rpid), 0, &decoders);
            assert_eq!(set.is_err(), any, "seed {seed:#x} step {step}");
            gfd.gdt.force(pid(rpid), 0, &decoders);
            model.decoders.insert(rpid, decoders);
        }
        if rng.chance(1, 50) {
            let vector = rng.below(8) | rng.below(8);
            gfd.set_group_access(&[(pid(rpid), vector)]).unwrap();
            model.vectors.insert(rpid, vector);
        }
        let mut len = usize::try_from(rng.below(300)).unwrap();
        if rng.chance(1, 200) {
            len *= 40;
        }
        // Near the ends of windows and blocks as often as anywhere.
        let decoders = model.decoders.get(&rpid).into_iter().flatten().flatten();
        let edges: Vec<u64> = decoders
            .flat_map(|d| [d.hpa_base.0, d.hpa_base.0 + (d.dpa_len << d.interleave.ways_code())])
            .collect();
        let pick = usize::try_from(rng.below(edges.len() as u64 + 2)).unwrap();
        let near = edges.get(pick).copied().unwrap_or(HPA + rng.below(6) * MIB);
        let spread = if rng.chance(1, 2) { 600 } else { 2 * MIB };
        let hpa = (near + rng.below(spread)).saturating_sub(spread / 2);
        let places = model.places(rpid, hpa, len);
        let want = places.as_ref().map_err(|refusal| *refusal).map(|_| ());
        done[usize::from(want.is_ok())] += 1;
        if rng.chance(1, 2) {
            let data: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            let mask = rng.next_u64() & rng.next_u64();
            let masked = len < 64 && rng.chance(1, 2);
            let mask = if masked { mask & ((1 << len) - 1) } else { u64::MAX };
            let enables = if masked { Enables::Mask(mask) } else { Enables::All };
            let got = gfd.write(NOW, at(rpid, hpa), &data, enables).map(|_| ());
            assert_eq!(got, want, "seed {seed:#x} step {step} write {hpa:#x} {len}");
            for (k, (dpa, byte)) in places.unwrap_or_default().into_iter().zip(data).enumerate() {
                if !masked || mask >> k & 1 == 1 {
                    model.bytes.insert(dpa, byte);
                }
            }
        } else {
            let mut out = vec![0xEE; len];
            let got = gfd.read(NOW, at(rpid, hpa), &mut out).map(|_| ());
            assert_eq!(got, want, "seed {seed:#x} step {step} read {hpa:#x} {len}");
            let byte = |dpa| model.bytes.get(&dpa).copied().unwrap_or(0);
            let want =
                places.map_or(vec![0xEE; len], |places| places.into_iter().map(byte).collect());
            assert_eq!(out, want, "seed {seed:#x} step {step}");
        }
    }
    assert!(done.iter().all(|count| *count > 5_000), "both happen: {done:?}");
    let mut all = vec![0; 8 << 20];
    gfd.memory.read(0, &mut all).unwrap();
    for (dpa, byte) in all.into_iter().enumerate() {
        assert_eq!(byte, model.bytes.get(&(dpa as u64)).copied().unwrap_or(0), "{dpa:#x}");
    }
}
