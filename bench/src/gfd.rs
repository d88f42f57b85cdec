//! Cost of an access to a G-FAM device.
//!
//! [`check`] runs decode and protection alone; [`copy`] reads and writes through all of it. Figures
//! are ns an access and bytes a ns (GB/s), of wall clock on one core.
//!
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)"; docs/spec/wire-formats.md §5.2.

use std::hint::black_box;

use weft_base::rng::Rng;
use weft_cxl::gfd::access::Enables;
use weft_cxl::gfd::capacity::{Choice, NO_TAG};
use weft_cxl::gfd::device::Request;
use weft_cxl::gfd::dmp::{Dmp, Media, Region};
use weft_cxl::gfd::{Config, Decoder, Gfd, Memory, ReturnCode};
use weft_dataplane::time::{Instant, LinkRate};
use weft_parsers::fabric::{Dpa, Hpa, Interleave, Pid};

/// The most that GDT, MGT and SAT may take together.
pub const GOAL_NS: f64 = 60.0;
/// Least bytes a ns that one core reads and writes, checks and all, in pieces of 4 KiB.
pub const GOAL_GBPS: f64 = 2.0;

/// Repetitions, of which the median counts.
const REPETITIONS: usize = 5;
const GIB: u64 = 1 << 30;
/// Requesters: every PID that there is.
const REQUESTERS: u16 = 0xFFF;
const DECODERS: u64 = 8;
/// Different accesses that a run goes round; reading them is part of the figure.
const ACCESSES: usize = 1 << 16;
/// Memory that [`copy`] moves about in: more than the caches hold.
const SPREAD: u64 = 128 << 20;

/// 64 GiB in 4 partitions of 1,024 blocks, 64 groups; all requesters have 8 decoders over 4 ways and
/// may use every group, so that every access goes through to the end.
///
/// # Errors
/// The device refuses a setting.
pub fn device() -> Result<Gfd, ReturnCode> {
    let pid = Pid::from_low_bits(0xABC);
    let mut gfd = Gfd::new(Config::full(pid, LinkRate::gbps(400)), Memory::anonymous(64 * GIB));
    let (len, block, media) = (16 * GIB, 16 << 20, Media::default());
    let base = |index: u8| Dpa(u64::from(index) * len);
    let dmp = |index| Dmp { index, base: base(index), decode_len: len, len, block, media };
    gfd.set_dmps(&[dmp(0), dmp(1), dmp(2), dmp(3)])?;
    for index in 0..4 {
        let base = base(index);
        let (id, sanitize) = (index, false);
        gfd.set_region(Region { id, block, sanitize, base, decode_len: len, len })?;
        for group in 0..64 {
            let choice = Choice::Free { region: index, len: len / 64 };
            gfd.add_capacity(Instant::ZERO, group, NO_TAG, choice, 0)?;
        }
    }
    let interleave = Interleave::from_codes(2, 4).ok_or(ReturnCode::InvalidInput)?;
    let dpa_len = 64 * GIB / DECODERS;
    for rpid in (0..REQUESTERS).map(Pid::from_low_bits) {
        let window = |k: u64| Decoder {
            coherent: false,
            hpa_base: Hpa((k + 1) << 40),
            dpa_base: Dpa(k * dpa_len),
            dpa_len,
            interleave,
            way: 1,
        };
        let decoders: Vec<_> = (0..DECODERS).map(|k| Some(window(k))).collect();
        gfd.set_decoders(rpid, 0, &decoders)?;
        gfd.set_group_access(&[(rpid, u64::MAX)])?;
    }
    Ok(gfd)
}

/// Random accesses of `len` bytes at most, none of which leaves its granule, to the first `spread`
/// bytes behind each decoder.
fn accesses(len: u64, spread: u64) -> Vec<(Pid, Hpa)> {
    let mut rng = Rng::new(0x60D);
    let mut one = || {
        let rpid = Pid::from_low_bits(u16::try_from(rng.below(REQUESTERS.into())).unwrap_or(0));
        let at = rng.below(spread / len) * len;
        // 4 ways of 4 KiB, of which this device is way 1.
        let off = ((at >> 12) << 14) | 1 << 12 | (at & 0xFFF);
        (rpid, Hpa(((1 + rng.below(DECODERS)) << 40) + off))
    };
    (0..ACCESSES).map(|_| one()).collect()
}

/// Least and median ns an item, of some repetitions of `each` over all of `list`.
#[expect(clippy::float_arithmetic, reason = "a figure for people")]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn timed<T: Copy>(list: &[T], rounds: usize, mut each: impl FnMut(T)) -> (f64, f64) {
    let rounds = rounds.max(1);
    let mut repetitions = [0.0; REPETITIONS];
    // warms caches and page tables; not counted
    for item in list {
        each(*item);
    }
    for ns in &mut repetitions {
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            for item in list {
                each(*item);
            }
        }
        *ns = start.elapsed().as_nanos() as f64 / (rounds * list.len()) as f64;
    }
    repetitions.sort_by(f64::total_cmp);
    let [least, _, median, _, _] = repetitions;
    (least, median)
}

/// Decodes and checks random 64-byte accesses: ns each, least and median repetition, and how many
/// were refused (none may be).
#[must_use]
pub fn check(gfd: &Gfd, accesses_wanted: u64) -> (f64, f64, u64) {
    let list = accesses(64, 64 * GIB / DECODERS);
    // whole passes over the list, so that each address is as often in a repetition
    let rounds = usize::try_from(accesses_wanted).unwrap_or(usize::MAX) / list.len();
    let mut refused = 0;
    let (least, median) = timed(&list, rounds, |(rpid, hpa)| {
        let part = gfd.guard().check(rpid, hpa, 64, false);
        refused += u64::from(black_box(part).is_err());
    });
    (least, median, refused)
}

/// Reads, or writes, pieces of `len` bytes at random places of 128 MiB: bytes a ns, median.
///
/// # Errors
/// The device refuses an access.
#[expect(clippy::float_arithmetic, reason = "a figure for people")]
pub fn copy(gfd: &mut Gfd, len: u16, writes: bool) -> Result<f64, ReturnCode> {
    let list = accesses(len.into(), SPREAD / DECODERS);
    let mut bytes = vec![0x5A; usize::from(len)];
    let mut refused = 0_u64;
    // All of it is touched first: a page's first touch is the system's time.
    for k in 0..DECODERS {
        touch(gfd, k)?;
    }
    let (_, median) = timed(&list, 8, |(rpid, hpa)| {
        let request = Request { rpid, hpa, opcode: None };
        let done = if writes {
            gfd.write(Instant::ZERO, request, black_box(&bytes), Enables::All)
        } else {
            gfd.read(Instant::ZERO, request, black_box(&mut bytes))
        };
        refused += u64::from(black_box(done).is_err());
    });
    if refused == 0 { Ok(f64::from(len) / median) } else { Err(ReturnCode::InternalError) }
}

/// Writes the first bytes behind decoder `k`.
fn touch(gfd: &mut Gfd, k: u64) -> Result<(), ReturnCode> {
    let page = [0xA5; 4096];
    for at in (0..SPREAD / DECODERS).step_by(4096) {
        let hpa = Hpa(((1 + k) << 40) + ((at >> 12) << 14) + (1 << 12));
        let request = Request { rpid: Pid::from_low_bits(0), hpa, opcode: None };
        let done = gfd.write(Instant::ZERO, request, &page, Enables::All);
        done.map_err(|_| ReturnCode::InternalError)?;
    }
    Ok(())
}
