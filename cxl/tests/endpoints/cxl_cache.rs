//! A device with a cache for its host's memory: loads and stores of both, TLPs for the same lines, and devices that are off,
//! silent or reset (docs/spec/cxl-fabric.md "CXL.cache"). Device and host are joined by one link, so the `CacheID` is 0.

use weft_base::rng::Rng;
use weft_cxl::cache::agent::CacheSpec;
use weft_cxl::cxl_device::{Event as DeviceEvent, FunctionConfig, Refusal};
use weft_cxl::cxl_host::{CpuError, CpuStep, Event, HomeNews};
use weft_cxl::mem::MemOperation;
use weft_cxl::pci::cxl::device::{CONTROL, CONTROL_CACHE};
use weft_cxl::pci::regs::{dvsec, ext};
use weft_cxl::pci::{ByteEnables, Reg};
use weft_cxl::requester::{Failure, Operation};
use weft_dataplane::time::Span;
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::Mode;

use crate::rig::{Net, RAM, RAM_LEN, device_config, function, host_config, pattern};

const LINE: u64 = 64;

/// A host and a device whose cache has so many lines; it is on.
fn joined(lines: usize) -> Net {
    let mut net = off(lines);
    switch(&mut net, true);
    net
}

/// The same before software has switched the cache on.
fn off(lines: usize) -> Net {
    let mut net = Net::new();
    let host = net.host(host_config(Mode::Flit));
    let timeout = Span::from_ms(20);
    let cache = CacheSpec { lines, in_flight_max: 8, timeout };
    let function = FunctionConfig { cache: Some(cache), ..function(0x0D01) };
    let device = net.device(device_config(Mode::Flit, vec![function]));
    net.join(host, device);
    net.enumerate(0);
    switch(&mut net, false); // enumeration has switched it on
    net
}

/// Software writes `Cache_Enable`.
fn switch(net: &mut Net, on: bool) {
    let space = net.devices[0].0.function(0).unwrap().space();
    let is_it = |at: &u16| space.get16(*at) == ext::DVSEC && space.get16(at + dvsec::HEADER2) == 0;
    let next = |at: &u16| Some(space.get16(at + 2) >> 4).filter(|at| *at != 0);
    let at = core::iter::successors(Some(0x100), next).find(is_it).unwrap();
    let (dest, value) = (net.devices[0].0.id(0).unwrap(), u32::from(on) * u32::from(CONTROL_CACHE));
    let (reg, enables) = (Reg::at(at + CONTROL), ByteEnables::from_low_bits(1));
    let write = Operation::ConfigWrite { dest, reg, type1: false, value, enables };
    let op = net.hosts[0].0.submit(write);
    net.wait(0, op).unwrap();
}

fn device_store(net: &mut Net, addr: u64, data: &[u8]) -> Result<Vec<u8>, Failure> {
    let store = MemOperation::Store { addr: Hpa(addr), data: data.to_vec() };
    let op = net.devices[0].0.cached(0, store).unwrap();
    net.device_wait(0, op).result
}

fn device_load(net: &mut Net, addr: u64, len: usize) -> Result<Vec<u8>, Failure> {
    let op = net.devices[0].0.cached(0, MemOperation::Load { addr: Hpa(addr), len }).unwrap();
    net.device_wait(0, op).result
}

/// A processor of the host loads, as often as it takes.
fn host_load(net: &mut Net, addr: u64, len: usize) -> Result<Vec<u8>, CpuError> {
    let mut all = Vec::new();
    while all.len() < len {
        let mut bytes = vec![0; len - all.len()];
        match net.hosts[0].0.load(Hpa(addr + all.len() as u64), &mut bytes)? {
            CpuStep::Done(done) => all.extend(&bytes[..done]),
            CpuStep::Waits(access, _) => loop {
                net.step();
                if let Some(ended) = net.hosts[0].0.cpu_ended(access) {
                    break all.extend(ended?);
                }
            },
        }
    }
    Ok(all)
}

fn host_store(net: &mut Net, addr: u64, data: &[u8]) -> Result<(), CpuError> {
    let mut done = 0;
    while done < data.len() {
        match net.hosts[0].0.store_some(Hpa(addr + done as u64), &data[done..])? {
            CpuStep::Done(part) => done += part,
            CpuStep::Waits(access, part) => loop {
                net.step();
                if let Some(ended) = net.hosts[0].0.cpu_ended(access) {
                    ended?;
                    break done += part;
                }
            },
        }
    }
    Ok(())
}

/// Host and device load what the other one has stored, wherever the line is; memory itself has the old bytes meanwhile.
#[test]
fn what_one_stores_the_other_loads() {
    let mut net = joined(16);
    assert_eq!(device_store(&mut net, RAM + 10, &[1, 2, 3]), Ok(vec![]));
    let mut old = [9; 3];
    let memory = net.hosts[0].0.memory();
    assert!(weft_cxl::completer::Target::read(memory, RAM + 10, &mut old));
    assert_eq!(old, [0; 3], "the cache has it");
    assert_eq!(host_load(&mut net, RAM + 9, 5), Ok(vec![0, 1, 2, 3, 0]));
    host_store(&mut net, RAM + 11, &[7]).unwrap();
    assert_eq!(device_load(&mut net, RAM + 9, 5), Ok(vec![0, 1, 7, 3, 0]));
    let (counts, (lines, _)) = net.devices[0].0.cache_counts().unwrap();
    assert_eq!((counts.lines.snoops, lines), (2, 1));
    assert_eq!(net.hosts[0].0.home_counts().filter.snoops, 2);
}

/// Loads and stores of the device, of processors, and DMA and UIO of the device past its cache, over the same lines: each finds
/// what was stored last.
#[test]
fn nobody_finds_old_bytes_whoever_stored_them() {
    for seed in 0..4_u64 {
        let mut net = joined(4);
        let mut rng = Rng::new(seed);
        let mut want = vec![0; 8 * 64];
        for round in 0..600_u64 {
            let from = usize::try_from(rng.below(7 * 64)).unwrap();
            let len = 1 + usize::try_from(rng.below(96)).unwrap().min(want.len() - from - 1);
            let (addr, data) = (RAM + from as u64, pattern(seed << 32 | round, len));
            let writes = rng.below(2) == 0;
            let found = match (rng.below(4), writes) {
                (0, true) => device_store(&mut net, addr, &data).map(|_| data.clone()),
                (0, false) => device_load(&mut net, addr, len),
                (1, true) => Ok(host_store(&mut net, addr, &data).map(|()| data.clone()).unwrap()),
                (1, false) => Ok(host_load(&mut net, addr, len).unwrap()),
                (2, true) => {
                    let write = Operation::Write { addr: Hpa(addr), data: data.clone() };
                    net.devices[0].0.submit(0, write).unwrap();
                    // Posted: a read behind it says that it is done.
                    let read = Operation::Read { addr: Hpa(addr), len };
                    let op = net.devices[0].0.submit(0, read).unwrap();
                    net.device_wait(0, op).result
                }
                (2, false) => {
                    let read = Operation::Read { addr: Hpa(addr), len };
                    let op = net.devices[0].0.submit(0, read).unwrap();
                    net.device_wait(0, op).result
                }
                (_, true) => {
                    let whole = from & !3..(from + len).next_multiple_of(4);
                    let data = pattern(seed << 32 | round, whole.len());
                    let addr = Hpa(RAM + whole.start as u64);
                    let write = Operation::UioWrite { addr, data: data.clone() };
                    let op = net.devices[0].0.submit(0, write).unwrap();
                    assert!(net.device_wait(0, op).result.is_ok());
                    want[whole].copy_from_slice(&data);
                    continue;
                }
                (_, false) => {
                    let whole = from & !3..(from + len).next_multiple_of(4);
                    let addr = Hpa(RAM + whole.start as u64);
                    let read = Operation::UioRead { addr, len: whole.len() };
                    let op = net.devices[0].0.submit(0, read).unwrap();
                    let found = net.device_wait(0, op).result.unwrap();
                    assert_eq!(found, want[whole], "seed {seed}, round {round}");
                    continue;
                }
            };
            if writes {
                want[from..from + len].copy_from_slice(&data);
            }
            assert_eq!(found.unwrap(), want[from..from + len], "seed {seed}, round {round}");
        }
        let counts = net.hosts[0].0.home_counts();
        assert!(counts.filter.snoops > 100 && counts.filter.lost == 0, "{counts:?}");
        assert_eq!((counts.filter.unexpected, counts.waiting), (0, 0), "{counts:?}");
    }
}

/// A cache that software has not switched on asks for nothing; one that it switches off writes back what it has first.
#[test]
fn software_switches_a_cache_on_and_off() {
    let mut net = off(4);
    let load = MemOperation::Load { addr: Hpa(RAM), len: 1 };
    assert_eq!(net.devices[0].0.cached(0, load.clone()), Err(Refusal::NoCache(0)));
    assert_eq!(net.devices[0].0.flush_cache(0), Err(Refusal::NoCache(0)));
    switch(&mut net, true);
    device_store(&mut net, RAM, &[5; 200]).unwrap();
    switch(&mut net, false);
    net.steps(100);
    assert_eq!(net.devices[0].0.cached(0, load), Err(Refusal::NoCache(0)));
    let (counts, (lines, _)) = net.devices[0].0.cache_counts().unwrap();
    assert_eq!((counts.lines.written_back, lines), (4, 0));
    let home = net.hosts[0].0.home_counts();
    assert_eq!((home.lines, home.writes), (0, 4));
    assert_eq!(host_load(&mut net, RAM + 199, 2), Ok(vec![5, 0]));
}

/// `flush_cache` ends when the host has all lines.
#[test]
fn a_flush_gives_all_lines_back() {
    let mut net = joined(8);
    device_store(&mut net, RAM, &[1; 128]).unwrap();
    device_load(&mut net, RAM + 4_096, 128).unwrap();
    net.devices[0].0.flush_cache(0).unwrap();
    assert!(net.devices[0].0.is_flushing(0));
    for _ in 0..1_000 {
        net.step();
    }
    assert!(!net.devices[0].0.is_flushing(0));
    assert_eq!(net.hosts[0].0.home_counts().lines, 0);
    device_store(&mut net, RAM, &[2]).unwrap(); // it goes on
}

/// Addresses that are no memory of the host: loads and stores fail, and nothing else happens.
#[test]
fn there_is_nothing_but_the_hosts_memory() {
    let mut net = joined(4);
    for addr in [0, RAM - LINE, RAM + RAM_LEN, (1 << 52) - LINE] {
        assert_eq!(device_load(&mut net, addr, 8), Err(Failure::NoMemory), "{addr:#x}");
        assert_eq!(device_store(&mut net, addr, &[1; 8]), Err(Failure::NoMemory), "{addr:#x}");
    }
    assert_eq!(device_load(&mut net, 1 << 52, 8), Err(Failure::Address));
    let home = net.hosts[0].0.home_counts();
    assert_eq!((home.refused, home.lines, home.writes), (8, 0, 0));
    assert_eq!(net.hosts[0].0.load(Hpa(RAM + RAM_LEN), &mut [0]), Err(CpuError::NoMemory));
}

/// A device that does not answer a snoop: its line is poisoned and told of, a store of the whole line heals it, and the device
/// learns that it has lost what it had.
#[test]
fn a_silent_device_loses_its_line_and_learns_of_it() {
    let mut net = joined(4);
    device_store(&mut net, RAM, &[1; 64]).unwrap();
    let port = net.devices[0].1.take(); // it is stopped: its link stays up
    assert_eq!(host_load(&mut net, RAM, 8), Err(CpuError::Poisoned));
    let line = Hpa(RAM);
    let lost = net.until(0, |event| match event {
        Event::Cache(news @ HomeNews::Lost { .. }) => Some(news),
        _ => None,
    });
    assert_eq!(lost, HomeNews::Lost { cache_id: 0, line });
    assert_eq!(host_store(&mut net, RAM, &[3; 8]), Err(CpuError::Poisoned), "a part heals nothing");
    host_store(&mut net, RAM, &[4; 64]).unwrap();
    net.devices[0].1 = port;
    // Its lease is over: it asks for the line again, and hears that it was not its own any more.
    assert_eq!(device_load(&mut net, RAM, 2), Ok(vec![4, 4]));
    let (cache, _) = net.devices[0].0.cache_counts().unwrap();
    assert_eq!((cache.lines.lost, cache.lines.lapsed), (1, 1), "{cache:?}");
    let home = net.hosts[0].0.home_counts();
    assert_eq!((home.filter.silent, home.filter.lost, home.stale_writes), (1, 1, 1), "{home:?}");
    assert_eq!(home.late, 1, "the answer to the snoop");
}

/// A poisoned line is a completer abort to TLPs.
#[test]
fn a_poisoned_line_aborts_tlps() {
    let mut net = joined(4);
    device_store(&mut net, RAM, &[1; 64]).unwrap();
    let port = net.devices[0].1.take();
    assert_eq!(host_load(&mut net, RAM, 8), Err(CpuError::Poisoned));
    net.devices[0].1 = port;
    let read = Operation::Read { addr: Hpa(RAM), len: 4 };
    let op = net.devices[0].0.submit(0, read).unwrap();
    let aborted = Failure::Status(weft_parsers::tlp::Status::CompleterAbort);
    assert_eq!(net.device_wait(0, op).result, Err(aborted));
}

/// A device that is reset has an empty cache, and its host takes the lines back.
#[test]
fn a_reset_empties_the_cache() {
    let mut net = joined(4);
    device_store(&mut net, RAM, &[1; 64]).unwrap();
    device_load(&mut net, RAM + LINE, 1).unwrap();
    net.devices[0].0.hot_reset();
    let lost = net.device_until(0, |event| match event {
        DeviceEvent::LineLost { line, .. } => Some(line),
        _ => None,
    });
    assert_eq!(lost, Hpa(RAM));
    let load = MemOperation::Load { addr: Hpa(RAM), len: 1 };
    assert_eq!(net.devices[0].0.cached(0, load), Err(Refusal::NoCache(0)), "it is off");
    // It answers snoops: it has nothing.
    assert_eq!(host_load(&mut net, RAM, 8), Ok(vec![0; 8]));
}
