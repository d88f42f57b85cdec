//! Tests of the device as a whole. [`device`] is one of 2 GiB with a partition of 1 MiB blocks and one region; each
//! file has one subject.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)"; docs/spec/wire-formats.md §4.7, §5.2.

mod capacity;
mod commands;
mod interleave;
mod model;
mod refusals;

use weft_dataplane::time::{Instant, LinkRate};
use weft_parsers::fabric::{Dpa, Hpa, Interleave, Pid};

use super::capacity::{Choice, NO_TAG};
use super::code::ReturnCode;
use super::device::{Config, Gfd, Request};
use super::dmp::{Dmp, Media, Region};
use super::{Decoder, Memory};

const NOW: Instant = Instant::ZERO;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Base of a requester's window.
const HPA: u64 = 0x0120_0000_0000;

const fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

fn dmp(index: u8, base: u64, media: Media) -> Dmp {
    Dmp { index, base: Dpa(base), decode_len: GIB, len: GIB, block: MIB, media }
}

fn region(id: u8, base: u64) -> Region {
    let base = Dpa(base);
    Region { id, block: MIB, sanitize: false, base, decode_len: GIB, len: GIB }
}

/// A device with one partition and region of 1 GiB from DPA 0 on, and another 1 GiB that is `media`.
fn device(media: Media) -> Gfd {
    let rate = LinkRate::gbps(400);
    let mut gfd = Gfd::new(Config::full(pid(0x0F0), rate), Memory::anonymous(2 * GIB));
    gfd.set_dmps(&[dmp(0, 0, Media::default()), dmp(1, GIB, media)]).unwrap();
    gfd.set_region(region(0, 0)).unwrap();
    gfd.set_region(region(1, GIB)).unwrap();
    gfd
}

fn plain(hpa: u64, dpa: u64, len: u64) -> Decoder {
    let (hpa_base, dpa_base) = (Hpa(hpa), Dpa(dpa));
    let interleave = Interleave::NONE;
    Decoder { coherent: false, hpa_base, dpa_base, dpa_len: len, interleave, way: 0 }
}

fn at(rpid: u16, hpa: u64) -> Request {
    Request { rpid: pid(rpid), hpa: Hpa(hpa), opcode: Some(3) }
}

/// Gives `mib` MiB of region 0 to `group`.
fn give(gfd: &mut Gfd, group: u16, mib: u64) {
    let choice = Choice::Contiguous { region: 0, len: mib * MIB };
    gfd.add_capacity(NOW, group, NO_TAG, choice, 1).unwrap();
}
