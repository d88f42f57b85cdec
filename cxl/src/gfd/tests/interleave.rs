//! A set of devices holds the data that the edge interleaves, byte for byte: 1 MiB is distributed by `Interleave::way`,
//! and read back through each device's decoder and memory.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §5.1, §5.2; CXL 3.1 section 7.7.2.4.

use weft_base::rng::Rng;

use super::*;
use crate::gfd::access::Enables;

fn set(interleave: Interleave) -> Vec<Gfd> {
    let member = |way: u16| {
        let mut gfd = device(Media::default());
        give(&mut gfd, 4, 2);
        // Each has its part at another address of its memory.
        let base = u64::from(way % 8) * 0x1_0000;
        let way = u8::try_from(way).unwrap();
        let decoder = Decoder { interleave, way, ..plain(HPA, base, MIB) };
        gfd.set_decoders(pid(7), 0, &[Some(decoder)]).unwrap();
        gfd.set_sat(&[(pid(7), 1 << 4)]).unwrap();
        gfd
    };
    (0..interleave.ways()).map(member).collect()
}

#[test]
fn what_is_dealt_out_is_there_in_every_way_and_granularity() {
    let mut rng = Rng::new(0xDEA1);
    let data: Vec<u8> = (0..MIB).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
    for ways_code in [0, 1, 2, 4, 8] {
        for granularity_code in 0..=Interleave::GRANULARITY_MAX {
            let interleave = Interleave::from_codes(ways_code, granularity_code).unwrap();
            let mut members = set(interleave);
            let piece = usize::try_from(interleave.granularity()).unwrap().min(4096);
            for (k, part) in data.chunks(piece).enumerate() {
                let hpa = HPA + (k * piece) as u64;
                let gfd = &mut members[usize::from(interleave.way(hpa))];
                gfd.write(NOW, at(7, hpa), part, Enables::All).unwrap();
            }
            let mut counted = vec![0; members.len()];
            for (k, want) in data.chunks(256).enumerate() {
                let hpa = HPA + (k * 256) as u64;
                let way = usize::from(interleave.way(hpa));
                let gfd = &mut members[way];
                let mut out = [0; 256];
                gfd.read(NOW, at(7, hpa), &mut out).unwrap();
                assert_eq!(out, want, "{interleave:?} {hpa:#x}");
                // And it lies where counting granules puts it.
                let granule = u64::from(interleave.granularity());
                let off = hpa - HPA;
                let place = off / granule / u64::from(interleave.ways()) * granule + off % granule;
                let dpa = u64::try_from(way % 8).unwrap() * 0x1_0000 + place;
                gfd.memory.read(dpa, &mut out).unwrap();
                assert_eq!(out, want, "{interleave:?} {hpa:#x} at {dpa:#x}");
                assert_eq!(gfd.snoop_hpa(NOW, pid(7), Dpa(dpa)), Ok(Hpa(hpa)));
                counted[way] += 256;
            }
            let share = data.len() / members.len();
            if share >= usize::try_from(interleave.granularity()).unwrap() {
                assert!(counted.iter().all(|bytes| *bytes == share), "{interleave:?}");
            }
        }
    }
}
