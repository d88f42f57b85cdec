//! Component registers: the array, each rule of a commit, and what committed decoders decode.

use weft_base::rng::Rng;
use weft_parsers::fabric::{Dpa, Hpa};

use super::hdm::{HPA_END, UNIT, regs};
use super::*;

const HDM_AT: u64 = PRIMARY + 0x10;
const DEVICE: HdmRole = HdmRole::Device { capacity: 8 * UNIT };

fn block(role: HdmRole) -> Component {
    Component::new(vec![Structure::Hdm(Hdm::new(role))]).unwrap()
}

fn read(block: &Component, offset: u64) -> u32 {
    let mut bytes = [0; 4];
    block.read(offset, &mut bytes);
    u32::from_le_bytes(bytes)
}

fn at(decoder: u8, register: u16) -> u64 {
    HDM_AT + u64::from(regs::decoder(decoder) + register)
}

fn set64(block: &mut Component, decoder: u8, register: u16, value: u64) {
    block.write(at(decoder, register), &value.to_le_bytes());
}

/// Writes a decoder with `control`, commits it, and returns its control register.
fn commit(block: &mut Component, decoder: u8, base: u64, size: u64, control: u32) -> u32 {
    set64(block, decoder, regs::BASE, base);
    set64(block, decoder, regs::SIZE, size);
    let control = (control | regs::COMMIT).to_le_bytes();
    block.write(at(decoder, regs::DECODER), &control);
    read(block, at(decoder, regs::DECODER)) & (regs::COMMIT | regs::COMMITTED | regs::ERROR)
}

const DONE: u32 = regs::COMMIT | regs::COMMITTED;
const REFUSED: u32 = regs::COMMIT | regs::ERROR;

fn switch_on(block: &mut Component) {
    block.write(HDM_AT + u64::from(regs::CONTROL), &regs::CONTROL_ENABLE.to_le_bytes());
}

#[test]
fn the_array_leads_to_the_decoders() {
    #[rustfmt::skip] // columns: role, capability, bytes
    let cases = [
        (DEVICE,          0x0052_2302, 0x90),
        (HdmRole::Switch, 0x000C_238C, 0x410),
    ];
    for (role, capability, len) in cases {
        let block = block(role);
        assert_eq!(read(&block, PRIMARY), 0x0111_0001, "{role:?}");
        assert_eq!(read(&block, PRIMARY + 4), 0x0103_0005, "{role:?}");
        assert_eq!(array_len(read(&block, PRIMARY)), Some(1));
        assert_eq!(array_entry(read(&block, PRIMARY + 4)), (id::HDM, 0x10));
        assert_eq!(read(&block, HDM_AT), capability, "{role:?}");
        assert_eq!(
            HDM_AT + u64::from(regs::decoder(regs::count(capability).unwrap())),
            HDM_AT + len
        );
        for nothing in [0, PRIMARY - 4, PRIMARY + 8, HDM_AT + len, LEN - 4, u64::MAX - 3] {
            assert_eq!(read(&block, nothing), 0, "{nothing:#x}");
        }
    }
    assert_eq!((array_len(0), array_len(u32::MAX)), (None, None));
    let many = vec![Structure::Hdm(Hdm::new(HdmRole::Switch)); 4];
    assert_eq!(Component::new(many), Err(ComponentError(0x20 + 4 * 0x410)));
}

#[test]
fn counts_of_decoders_have_codes() {
    let all: Vec<Option<u8>> = (0..16).map(regs::count).collect();
    let known = [1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32];
    assert_eq!(all[..13], known.map(Some));
    assert_eq!(all[13..], [None; 3]);
}

#[test]
fn a_commit_is_checked() {
    #[rustfmt::skip] // columns: name, first, second (base, size), its control, outcome
    let cases = [
        ("behind the first",        (0, 2 * UNIT), (2 * UNIT, UNIT), 0, DONE),
        ("far behind",              (0, 2 * UNIT), (HPA_END - UNIT, UNIT), 0, DONE),
        ("empty",                   (0, 2 * UNIT), (2 * UNIT, 0), 0, DONE),
        ("over the first",          (0, 2 * UNIT), (UNIT, 2 * UNIT), 0, REFUSED),
        ("the same",                (UNIT, UNIT),  (UNIT, UNIT), 0, REFUSED),
        ("below the first",         (4 * UNIT, UNIT), (0, UNIT), 0, REFUSED),
        ("beyond 52 bits",          (0, UNIT), (HPA_END, UNIT), 0, REFUSED),
        ("across 52 bits",          (0, UNIT), (HPA_END - UNIT, 2 * UNIT), 0, REFUSED),
        ("beyond 64 bits",          (0, UNIT), (0_u64.wrapping_sub(UNIT), 2 * UNIT), 0, REFUSED),
        ("two ways",                (0, UNIT), (UNIT, 2 * UNIT), 0x10, DONE),
        ("half a unit each",        (0, UNIT), (UNIT, 2 * UNIT + UNIT), 0x10, REFUSED),
        ("eight ways, 16 KiB",      (0, UNIT), (UNIT, 8 * UNIT), 0x36, DONE),
        ("16 ways",                 (0, UNIT), (UNIT, 16 * UNIT), 0x40, REFUSED),
        ("3 ways",                  (0, UNIT), (UNIT, 24 * UNIT), 0x80, REFUSED),
        ("granularity of no code",  (0, UNIT), (UNIT, UNIT), 0x07, REFUSED),
        ("all memory",              (0, UNIT), (UNIT, 7 * UNIT), 0, DONE),
        ("more than the memory",    (0, UNIT), (UNIT, 8 * UNIT), 0, REFUSED),
    ];
    for (name, first, second, control, want) in cases {
        let mut block = block(DEVICE);
        assert_eq!(commit(&mut block, 0, first.0, first.1, 0), DONE, "{name}");
        assert_eq!(commit(&mut block, 1, second.0, second.1, control), want, "{name}");
    }
}

#[test]
fn decoders_are_committed_and_released_in_order() {
    let mut block = block(DEVICE);
    assert_eq!(commit(&mut block, 1, UNIT, UNIT, 0), REFUSED, "not before the one before it");
    assert_eq!(commit(&mut block, 0, 0, UNIT, 0), DONE);
    assert_eq!(commit(&mut block, 1, UNIT, UNIT, 0), DONE, "the next try");
    let control = |block: &Component, decoder| read(block, at(decoder, regs::DECODER));
    block.write(at(0, regs::DECODER), &[0; 4]);
    assert_eq!(control(&block, 0) & DONE, DONE, "not before the one behind it");
    block.write(at(1, regs::DECODER), &[0; 4]);
    block.write(at(0, regs::DECODER), &[0; 4]);
    assert_eq!((control(&block, 0), control(&block, 1)), (regs::HOST_ONLY, regs::HOST_ONLY));
    assert_eq!(block.hdm().unwrap().list(), []);
}

#[test]
fn what_is_committed_does_not_change_and_what_is_locked_stays() {
    let mut block = block(DEVICE);
    switch_on(&mut block);
    assert_eq!(commit(&mut block, 0, UNIT, UNIT, regs::LOCK), DONE);
    assert_eq!(commit(&mut block, 1, 2 * UNIT, UNIT, 0), DONE);
    let was = block.clone();
    for decoder in [0, 1] {
        for register in [regs::BASE, regs::SIZE, regs::TARGET] {
            set64(&mut block, decoder, register, 5 * UNIT);
        }
        block.write(at(decoder, regs::DECODER), &[0x16, regs::COMMIT.to_le_bytes()[1], 0, 0]);
    }
    assert_eq!(block, was);
    block.write(at(1, regs::DECODER), &[0; 4]);
    block.write(at(0, regs::DECODER), &[0; 4]);
    let list = block.hdm().unwrap().list();
    assert_eq!(list.len(), 1, "the locked one stays: {list:?}");
    assert!(list[0].locked && list[0].hpa == (UNIT..2 * UNIT) && list[0].dpa == (0..UNIT));
    block.reset();
    assert_eq!(block, self::block(DEVICE), "until a reset");
    assert_eq!(block.hdm().unwrap().dpa(Hpa(UNIT), 64, false), None);
}

#[test]
fn a_device_decodes_when_it_is_on() {
    let mut block = block(DEVICE);
    assert_eq!(commit(&mut block, 0, 4 * UNIT, UNIT, regs::UIO), DONE);
    let dpa =
        |block: &Component, hpa, uio| block.hdm().unwrap().dpa(Hpa(hpa), 64, uio).map(|Dpa(at)| at);
    assert_eq!(dpa(&block, 4 * UNIT, false), None, "off");
    switch_on(&mut block);
    // A skip of one unit, and no UIO.
    set64(&mut block, 1, regs::TARGET, UNIT);
    assert_eq!(commit(&mut block, 1, 8 * UNIT, 2 * UNIT, 0), DONE);
    #[rustfmt::skip] // columns: HPA, CXL.mem, UIO
    let cases = [
        (4 * UNIT - 64,     None,                None),
        (4 * UNIT,          Some(0),             Some(0)),
        (5 * UNIT - 64,     Some(UNIT - 64),     Some(UNIT - 64)),
        (5 * UNIT - 63,     None,                None),
        (5 * UNIT,          None,                None),
        (8 * UNIT + 128,    Some(2 * UNIT + 128), None),
        (10 * UNIT - 64,    Some(4 * UNIT - 64), None),
        (10 * UNIT,         None,                None),
        (u64::MAX,          None,                None),
    ];
    for (hpa, mem, uio) in cases {
        assert_eq!((dpa(&block, hpa, false), dpa(&block, hpa, true)), (mem, uio), "{hpa:#x}");
    }
    block.write(HDM_AT + u64::from(regs::CONTROL), &[0]);
    assert_eq!(dpa(&block, 4 * UNIT, false), None, "off again");
    block.write(HDM_AT + u64::from(regs::CONTROL) + 1, &[0xFF; 3]);
    assert_eq!(
        read(&block, HDM_AT + u64::from(regs::CONTROL)),
        0,
        "nothing else is there to be set"
    );
}

/// Worked example of docs/spec/wire-formats.md §3.10: four ways of 4 KiB.
#[test]
fn ways_are_taken_out_by_a_device_and_choose_the_port_of_a_switch() {
    let (base, size, hpa) = (0x100_0000_0000, 4 * UNIT, 0x100_0000_0000 + 0x1_3A40);
    let mut device = block(DEVICE);
    switch_on(&mut device);
    assert_eq!(commit(&mut device, 0, base, size, 0x24), DONE);
    let dpa = |len| device.hdm().unwrap().dpa(Hpa(hpa), len, false);
    assert_eq!((dpa(64), dpa(0x5C0)), (Some(Dpa(0x4A40)), Some(Dpa(0x4A40))));
    assert_eq!(dpa(0x5C1), None, "past the granule another device has the next byte");
    let mut switch = block(HdmRole::Switch);
    set64(&mut switch, 0, regs::TARGET, 0x0807_0605_0403_0201);
    assert_eq!(commit(&mut switch, 0, base, size, 0x24), DONE);
    let target = |at| switch.hdm().unwrap().target(Hpa(at), 1, false);
    assert_eq!(target(hpa), Some(4), "(HPA >> 12) & 3 = 3");
    assert_eq!((target(base + 0x1000), target(base + size - 1)), (Some(2), Some(4)));
    assert_eq!((target(base - 1), target(base + size)), (None, None));
    let uio = |switch: &Component, len| switch.hdm().unwrap().target(Hpa(hpa), len, true);
    assert_eq!(uio(&switch, 64), None, "its UIO bit is not set");
    let mut switch = block(HdmRole::Switch);
    set64(&mut switch, 0, regs::TARGET, 0x0807_0605_0403_0201);
    assert_eq!(commit(&mut switch, 0, base, size, 0x24 | regs::UIO), DONE);
    assert_eq!((uio(&switch, 64), uio(&switch, 0x5C0)), (Some(4), Some(4)));
    assert_eq!(uio(&switch, 0x5C1), None, "past the granule another port has the next byte");
    assert_eq!(switch.hdm().unwrap().list()[0].dpa, 0..0);
}

#[test]
fn a_switch_has_nothing_to_switch_on_and_all_of_its_targets() {
    let mut block = block(HdmRole::Switch);
    switch_on(&mut block);
    assert_eq!(read(&block, HDM_AT + u64::from(regs::CONTROL)), 0);
    set64(&mut block, 31, regs::TARGET, 0x0102_0304_0506_0708);
    assert_eq!(read(&block, at(31, regs::TARGET)), 0x0506_0708);
    assert_eq!(read(&block, at(31, regs::TARGET + 4)), 0x0102_0304);
    set64(&mut block, 31, regs::BASE, u64::MAX);
    assert_eq!(read(&block, at(31, regs::BASE)), 0xF000_0000, "bits 27:0 are reserved");
    assert_eq!(read(&block, at(31, regs::BASE + 4)), u32::MAX);
    set64(&mut block, 31, 0x1C, u64::MAX);
    assert_eq!(read(&block, at(31, 0x1C)), 0, "reserved");
}

/// Random writes of bytes and registers: committed decoders are the first ones, in order, never overlap, never
/// change without being released, and a device never decodes beyond its memory.
#[test]
fn random_writes_never_commit_what_may_not_be() {
    for (seed, role) in [(1, DEVICE), (2, HdmRole::Switch), (3, DEVICE)] {
        let mut rng = Rng::new(seed);
        let mut block = block(role);
        let (mut most, mut tries) = (0, 0);
        for _ in 0..200_000 {
            let before = block.hdm().unwrap().list();
            random_write(&mut rng, &mut block);
            let list = block.hdm().unwrap().list();
            tries += usize::from(list != before);
            most = most.max(list.len());
            let same = list.len().min(before.len());
            assert!(list.len().abs_diff(before.len()) <= 2 && list[..same] == before[..same]);
            for pair in list.windows(2) {
                assert!(pair[0].hpa.end <= pair[1].hpa.start, "{list:x?}");
                assert!(pair[0].dpa.end <= pair[1].dpa.start, "{list:x?}");
            }
            for one in &list {
                assert!(one.hpa.end <= HPA_END && one.hpa.start % UNIT == 0, "{list:x?}");
                assert!(role == HdmRole::Switch || one.dpa.end <= 8 * UNIT, "{list:x?}");
            }
            if rng.below(2_000) == 0 {
                block.reset();
            }
        }
        assert!(most >= 3 && tries > 500, "{role:?}: {most} at once, {tries} changes");
    }
}

fn random_write(rng: &mut Rng, block: &mut Component) {
    let decoder = u8::try_from(rng.below(4)).unwrap();
    let register = [regs::BASE, regs::SIZE, regs::DECODER, regs::TARGET];
    let register = register[usize::try_from(rng.below(4)).unwrap()];
    let units = rng.below(12) * UNIT;
    match rng.below(16) {
        0 => {
            let len = usize::try_from(rng.below(17)).unwrap();
            let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            block.write(PRIMARY + rng.below(0x200), &bytes);
            let mut bytes = vec![0; len];
            block.read(rng.below(LEN + 64), &mut bytes);
        }
        1 => block.write(rng.next_u64(), &rng.next_u64().to_le_bytes()),
        2 => set64(block, decoder, regs::TARGET, rng.below(2) * UNIT),
        3..=8 => {
            let lock = if rng.below(50) == 0 { regs::LOCK } else { 0 };
            let control = u32::try_from(rng.below(1 << 8)).unwrap() & 0x11;
            let commit = if rng.below(3) > 0 { regs::COMMIT } else { 0 };
            let control = (control | lock | commit).to_le_bytes();
            block.write(at(decoder, regs::DECODER), &control);
        }
        9..=12 => {
            let size = 2 * UNIT;
            set64(block, decoder, regs::BASE, u64::from(decoder) * 2 * UNIT + rng.below(2) * UNIT);
            set64(block, decoder, regs::SIZE, size);
        }
        _ => set64(block, decoder, register, units),
    }
}
